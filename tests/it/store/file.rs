//! A database in a file: what else may be at its place, and what only a file can suffer.

use std::fs;

use smsq::store::{Access, Fault, NewCampaign, Store};

use super::desk::{Desk, NOW, row, rows};
use crate::support::databases::Database;

/// The fault of a file with this in it, and its sentence; the file must stay as it is.
async fn fault_of(bytes: &[u8]) -> (Fault, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db");
    fs::write(&file, bytes).expect("a file");
    let url = format!("sqlite://{}", file.display());
    let opened = Store::open(&url, Access::Create).await;
    let error = opened.err().expect("no database");
    assert_eq!(fs::read(&file).expect("the file"), bytes, "it was changed");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("files").collect();
    assert_eq!(left.len(), 1, "{left:?}");
    (error.fault(), error.to_string())
}

#[tokio::test]
async fn an_older_schema_is_brought_up_to_date() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db");
    fs::write(&file, b"").expect("an empty file");
    let url = format!("sqlite://{}", file.display());
    let store = Store::open(&url, Access::Create).await.expect("migrated");
    assert_eq!(store.campaigns().await.expect("campaigns").len(), 1);
}

#[tokio::test]
async fn what_is_no_database_is_named_and_left_alone() {
    let text = b"phone,content\n".repeat(400);
    let (fault, sentence) = fault_of(&text).await;
    assert_eq!(fault, Fault::Foreign);
    assert!(
        sentence.contains("queue.db`: is not a database"),
        "{sentence}"
    );
    let (fault, _) = fault_of(b"short").await;
    assert_eq!(fault, Fault::Foreign);
}

#[tokio::test]
async fn a_truncated_database_is_named_and_left_alone() {
    let desk = Desk::new(Database::in_a_file()).await;
    desk.queued(2_000).await;
    desk.db.run("PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = fs::read(desk.db.folder().join("smsq.db")).expect("the file");
    let (fault, _) = fault_of(&whole[..whole.len() / 2]).await;
    assert_eq!(fault, Fault::Foreign);
    let (fault, _) = fault_of(&whole[..50]).await;
    assert_eq!(fault, Fault::Foreign);
}

#[tokio::test]
async fn a_folder_is_no_database() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().display());
    let error = Store::open(&url, Access::Create).await.err();
    let error = error.expect("a folder");
    assert_eq!(error.fault(), Fault::Foreign);
    assert!(error.to_string().contains("is a folder"), "{error}");
}

#[tokio::test]
async fn a_missing_database_is_only_made_by_those_who_may() {
    let db = Database::in_a_file();
    let error = Store::open(&db.url, Access::Existing).await.err();
    assert_eq!(error.expect("missing").fault(), Fault::Missing);
    assert_eq!(fs::read_dir(db.folder()).expect("files").count(), 0);
    let nowhere = db.url.replace("smsq.db", "no/such/folder/smsq.db");
    let error = Store::open(&nowhere, Access::Create).await.err();
    let error = error.expect("no folder");
    assert_eq!(error.fault(), Fault::NoFolder);
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

#[tokio::test]
async fn tables_of_another_program_are_not_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut db = Database::in_a_file();
    db.url = format!("sqlite://{}", folder.path().join("shop.db").display());
    db.run("CREATE TABLE sms (id INTEGER PRIMARY KEY, body TEXT); INSERT INTO sms VALUES (1, 'x')");
    let file = folder.path().join("shop.db");
    let before = fs::read(&file).expect("the file");
    let error = db.open().await.err().expect("its tables are in the way");
    assert_eq!(error.fault(), Fault::Foreign);
    assert_eq!(fs::read(&file).expect("the file"), before);
    let tables = db.words("SELECT name AS value FROM sqlite_master ORDER BY name");
    assert_eq!(tables, [Some("sms".to_owned())]);
}

/// Root may write what is read-only, so SQLite's own words come by way of a trigger.
#[tokio::test]
async fn a_write_that_cannot_be_done_says_why() {
    for (words, fault) in [
        ("attempt to write a readonly database", Fault::ReadOnly),
        ("database or disk is full", Fault::Full),
        ("database is locked", Fault::Busy),
        ("database disk image is malformed", Fault::Foreign),
        ("something else", Fault::Other),
    ] {
        let desk = Desk::new(Database::in_a_file()).await;
        let campaign_id = desk.queued(1).await;
        let import_id = desk.begin(campaign_id).await;
        desk.db.run(&format!(
            "CREATE TRIGGER fault BEFORE UPDATE ON import BEGIN SELECT RAISE(ABORT, '{words}'); END"
        ));
        let batch = Desk::batch(import_id, campaign_id, rows(10..15));
        let error = desk.store.enqueue(batch).await.expect_err(words);
        assert_eq!(error.fault(), fault);
        assert!(error.to_string().contains("smsq.db`: "), "{error}");
        assert_eq!(desk.count("ready"), 1, "the batch is whole or not at all");
        desk.db.run("DROP TRIGGER fault");
        let batch = Desk::batch(import_id, campaign_id, vec![row(10)]);
        assert_eq!(desk.store.enqueue(batch).await.expect("mended").accepted, 1);
        desk.assert_nothing_is_lost().await;
    }
}

/// Where permissions bind, a file that is read-only is told by its real error too.
#[cfg(unix)]
#[tokio::test]
async fn a_read_only_file_is_told_where_permissions_bind() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::new(Database::in_a_file()).await;
    let file = desk.db.folder().join("smsq.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).expect("permissions");
    let binds = fs::OpenOptions::new().write(true).open(&file).is_err();
    let campaign = match desk.db.open().await {
        Ok(store) => store
            .open_campaign(&NewCampaign::default(), NOW)
            .await
            .map(drop),
        Err(error) => Err(error),
    };
    assert_eq!(
        campaign.err().map(|error| error.fault()),
        binds.then_some(Fault::ReadOnly)
    );
}
