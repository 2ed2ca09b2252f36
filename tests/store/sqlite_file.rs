//! Databases in files: other files at the path, permissions and damage.

use std::fs;

use smsq_store::{Access, NewCampaign, Store, StoreErrorKind};

use super::test_queue::{NOW, TestQueue, row, rows};
use crate::support::databases::Database;

/// The error of a file with this content, which must not change.
async fn error_of(bytes: &[u8]) -> (StoreErrorKind, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db");
    fs::write(&file, bytes).expect("a file");
    let url = format!("sqlite://{}", file.display());
    let opened = Store::open(&url, Access::Create).await;
    let error = opened.err().expect("no database");
    assert_eq!(fs::read(&file).expect("the file"), bytes, "it was changed");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("files").collect();
    assert_eq!(left.len(), 1, "{left:?}");
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn tables_are_created_in_an_empty_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db");
    fs::write(&file, b"").expect("an empty file");
    let url = format!("sqlite://{}", file.display());
    let store = Store::open(&url, Access::Create).await.expect("a database");
    assert_eq!(store.campaigns().await.expect("campaigns").len(), 1);
}

#[tokio::test]
async fn file_that_is_not_a_database_is_an_error_and_unchanged() {
    let text = b"phone,content\n".repeat(400);
    let (fault, sentence) = error_of(&text).await;
    assert_eq!(fault, StoreErrorKind::Unrecognized);
    assert!(sentence.contains("queue.db`: is not a database"), "{sentence}");
    let (fault, _) = error_of(b"short").await;
    assert_eq!(fault, StoreErrorKind::Unrecognized);
}

#[tokio::test]
async fn truncated_database_is_an_error_and_unchanged() {
    let queue = TestQueue::new(Database::in_a_file()).await;
    queue.queued(2_000).await;
    queue.db.run("PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = fs::read(queue.db.folder().join("smsq.db")).expect("the file");
    let (fault, _) = error_of(&whole[..whole.len() / 2]).await;
    assert_eq!(fault, StoreErrorKind::Unrecognized);
    let (fault, _) = error_of(&whole[..50]).await;
    assert_eq!(fault, StoreErrorKind::Unrecognized);
}

#[tokio::test]
async fn folder_is_not_a_database() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().display());
    let error = Store::open(&url, Access::Create).await.err();
    let error = error.expect("a folder");
    assert_eq!(error.kind(), StoreErrorKind::Unrecognized);
    assert!(error.to_string().contains("is a folder"), "{error}");
}

#[tokio::test]
async fn missing_database_is_created_only_with_access_create() {
    let db = Database::in_a_file();
    let error = Store::open(&db.url, Access::Existing).await.err();
    assert_eq!(error.expect("missing").kind(), StoreErrorKind::Missing);
    assert_eq!(fs::read_dir(db.folder()).expect("files").count(), 0);
    let nowhere = db.url.replace("smsq.db", "no/such/folder/smsq.db");
    let error = Store::open(&nowhere, Access::Create).await.err();
    let error = error.expect("no folder");
    assert_eq!(error.kind(), StoreErrorKind::NoFolder);
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

#[tokio::test]
async fn tables_of_another_program_are_not_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut db = Database::in_a_file();
    db.url = format!("sqlite://{}", folder.path().join("shop.db").display());
    db.run("CREATE TABLE sms (id INTEGER PRIMARY KEY, body TEXT); INSERT INTO sms VALUES (1, 'x')");
    let file = folder.path().join("shop.db");
    let before = fs::read(&file).expect("the file");
    let error = db.open().await.err().expect("its tables are in the way");
    assert_eq!(error.kind(), StoreErrorKind::Unrecognized);
    assert_eq!(fs::read(&file).expect("the file"), before);
    let tables = db.words("SELECT name AS value FROM sqlite_master ORDER BY name");
    assert_eq!(tables, [Some("sms".to_owned())]);
}

#[tokio::test]
async fn failed_write_reports_its_reason() {
    for (reason, kind) in [
        ("INSERT INTO refused VALUES (NULL)", StoreErrorKind::Constraint),
        ("SELECT RAISE(ABORT, 'database or disk is full')", StoreErrorKind::Other),
    ] {
        let queue = TestQueue::new(Database::in_a_file()).await;
        let campaign_id = queue.queued(1).await;
        let import_id = queue.begin(campaign_id).await;
        queue.db.run(&format!(
            "CREATE TABLE refused (reason TEXT NOT NULL);
             CREATE TRIGGER fault BEFORE UPDATE ON import BEGIN {reason}; END"
        ));
        let batch = TestQueue::batch(import_id, campaign_id, rows(10..15));
        let error = queue.store.imports().enqueue(&batch).await.expect_err(reason);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("smsq.db`: "), "{error}");
        assert_eq!(queue.count("ready"), 1, "the batch is whole or not at all");
        queue.db.run("DROP TRIGGER fault");
        let batch = TestQueue::batch(import_id, campaign_id, vec![row(10)]);
        assert_eq!(queue.store.imports().enqueue(&batch).await.expect("fixed").accepted, 1);
        queue.assert_nothing_is_lost().await;
    }
}

#[tokio::test]
async fn damaged_file_is_reported_with_a_hint() {
    let queue = TestQueue::new(Database::in_a_file()).await;
    let campaign_id = queue.queued(1_000).await;
    // Into the file, and out of the memory of the connections.
    queue.db.run("PRAGMA wal_checkpoint(TRUNCATE)");
    let file = queue.db.folder().join("smsq.db");
    let mut bytes = fs::read(&file).expect("the file");
    let size = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    // The pages of the tables that migrations read stay as they are.
    let tables = queue.db.numbers(
        "SELECT rootpage AS value FROM sqlite_master WHERE tbl_name IN ('sms', 'sms_key')",
    );
    for page in tables.into_iter().map(|page| usize::try_from(page).expect("a page")) {
        bytes[(page - 1) * size..page * size].fill(0x5a);
    }
    fs::write(&file, bytes).expect("the file");
    let store = queue.db.open().await.expect("a database");
    let error = store.report().totals(Some(campaign_id)).await.expect_err("it is damaged");
    assert_eq!(error.kind(), StoreErrorKind::Unrecognized, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains(".recover")), "{error}");
}

/// Without root permissions, the real error of a read-only file is tested as well.
#[cfg(unix)]
#[tokio::test]
async fn read_only_file_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let queue = TestQueue::new(Database::in_a_file()).await;
    let file = queue.db.folder().join("smsq.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).expect("permissions");
    let binds = fs::OpenOptions::new().write(true).open(&file).is_err();
    let campaign = match queue.db.open().await {
        Ok(store) => store.open_campaign(&NewCampaign::default(), NOW).await.map(drop),
        Err(error) => Err(error),
    };
    assert_eq!(campaign.err().map(|error| error.kind()), binds.then_some(StoreErrorKind::ReadOnly));
}
