//! Opening databases: new ones, existing ones, and those of newer versions.

use smsq_store::{Access, Mode, NewCampaign, Store, StoreErrorKind};

use super::test_queue::{NOW, TestQueue, on_every_engine, sent};
use crate::support::databases::{Database, Kind, on_every_database};

const APPLIED: &str = "SELECT count(*) AS value FROM __diesel_schema_migrations";

#[tokio::test]
async fn tables_are_created_once() {
    on_every_engine(async |queue| {
        let applied = queue.db.number(APPLIED);
        queue.queued(3).await;
        let again = queue.db.open().await.expect("a database");
        assert_eq!(queue.db.number(APPLIED), applied);
        assert_eq!(again.report().totals(None).await.expect("totals").queued, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_workers_create_the_tables() {
    on_every_database(async |db| {
        let opening: Vec<_> = (0..8)
            .map(|_| {
                let url = db.url.clone();
                tokio::spawn(async move { Store::open(&url, Access::Create).await.map(drop) })
            })
            .collect();
        for opened in opening {
            opened.await.expect("no panic").expect("a database");
        }
        assert_eq!(db.number("SELECT count(*) AS value FROM campaign"), 1);
        assert_eq!(db.number(APPLIED), 1);
    })
    .await;
}

async fn mode_when_opened_for_practice(db: &Database) -> Mode {
    let opened = Store::open_for(&db.url, Access::Create, Mode::Practice).await;
    opened.expect("a database").mode()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_create_it_at_once_agree_on_practice() {
    on_every_database(async |db| {
        let opening: Vec<_> = (0..8)
            .map(|_| {
                let url = db.url.clone();
                let open =
                    async move { Store::open_for(&url, Access::Create, Mode::Practice).await };
                tokio::spawn(open)
            })
            .collect();
        for opened in opening {
            let store = opened.await.expect("no panic").expect("a database");
            assert_eq!(store.mode(), Mode::Practice);
        }
        // It stays so, whoever opens it.
        assert_eq!(db.open().await.expect("it").mode(), Mode::Practice);
    })
    .await;
}

#[tokio::test]
async fn existing_database_never_becomes_practice() {
    on_every_database(async |db| {
        assert_eq!(db.open().await.expect("a database").mode(), Mode::Real);
        assert_eq!(mode_when_opened_for_practice(&db).await, Mode::Real);
    })
    .await;
}

/// All rows of the history, and the names of all tables.
fn content(db: &Database) -> Vec<Option<String>> {
    let tables = match db.kind {
        Kind::Sqlite => "SELECT name AS value FROM sqlite_master ORDER BY name",
        Kind::Mysql => {
            "SELECT table_name AS value FROM information_schema.tables \
             WHERE table_schema = database() ORDER BY table_name"
        }
        Kind::Postgres => {
            "SELECT table_name AS value FROM information_schema.tables \
             WHERE table_schema = current_schema() ORDER BY table_name"
        }
    };
    let history = "SELECT version AS value FROM __diesel_schema_migrations ORDER BY version";
    [db.words(tables), db.words(history)].concat()
}

#[tokio::test]
async fn earlier_revision_is_an_error_and_unchanged() {
    on_every_database(async |db| {
        db.run(
            "CREATE TABLE __diesel_schema_migrations (version VARCHAR(50) PRIMARY KEY NOT NULL,
             run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);
             CREATE TABLE campaign (id INTEGER PRIMARY KEY);
             INSERT INTO __diesel_schema_migrations (version) VALUES ('0001')",
        );
        let later = "INSERT INTO __diesel_schema_migrations (version) VALUES ('0025'), ('0026')";
        for versions in [None, Some(later)] {
            if let Some(sql) = versions {
                db.run(sql);
            }
            let before = content(&db);
            for access in [Access::Create, Access::Existing, Access::Read] {
                let error = Store::open(&db.url, access).await.err().expect("it is refused");
                assert_eq!(error.kind(), StoreErrorKind::Older);
                assert!(!error.is_temporary());
                let reason = "was made by a development version of smsq, before its first release; this smsq cannot use it";
                assert!(error.to_string().contains(reason), "{error}");
            }
            assert_eq!(content(&db), before);
        }
    })
    .await;
}

#[tokio::test]
async fn tables_of_others_are_refused_and_unchanged() {
    on_every_database(async |db| {
        db.run(
            "CREATE TABLE __diesel_schema_migrations (version VARCHAR(50) PRIMARY KEY NOT NULL,
             run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);
             CREATE TABLE campaign (id INTEGER PRIMARY KEY)",
        );
        let theirs = "INSERT INTO __diesel_schema_migrations (version) VALUES ('20230101000000')";
        for versions in [None, Some(theirs)] {
            if let Some(sql) = versions {
                db.run(sql);
            }
            let before = content(&db);
            for access in [Access::Create, Access::Existing, Access::Read] {
                let error = Store::open(&db.url, access).await.err().expect("it is refused");
                assert_eq!(error.kind(), StoreErrorKind::Unrecognized, "{error}");
            }
            assert_eq!(content(&db), before);
        }
    })
    .await;
}

#[tokio::test]
async fn newer_schema_is_an_error_and_unchanged() {
    on_every_engine(async |queue| {
        queue.db.run("INSERT INTO __diesel_schema_migrations (version) VALUES ('9999')");
        let before = queue.db.number(APPLIED);
        for access in [Access::Create, Access::Existing, Access::Read] {
            let opened = Store::open(&queue.db.url, access).await;
            let error = opened.err().expect("it is newer");
            assert_eq!(error.kind(), StoreErrorKind::Newer);
            assert!(error.to_string().contains("9999"), "{error}");
        }
        assert_eq!(queue.db.number(APPLIED), before);
    })
    .await;
}

#[tokio::test]
async fn url_without_database_is_an_error() {
    for url in ["", "smsq.db", "sqlite://", "ftp://host/queue", "oracle:x"] {
        let error = Store::open(url, Access::Create).await.err();
        assert_eq!(error.expect(url).kind(), StoreErrorKind::Url, "{url}");
    }
    let secret = Store::open("ftp://me:hunter2@host/queue", Access::Create).await;
    let sentence = secret.err().expect("unknown").to_string();
    assert!(!sentence.contains("hunter2"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_opened_concurrently_exists_once() {
    on_every_engine(async |queue| {
        let opening: Vec<_> = (0..6)
            .map(|_| {
                let url = queue.db.url.clone();
                tokio::spawn(async move {
                    let store = Store::open(&url, Access::Existing).await.expect("a store");
                    let new = NewCampaign { name: "spring".to_owned(), ..NewCampaign::default() };
                    store.open_campaign(&new, NOW).await.expect("a campaign").id
                })
            })
            .collect();
        let mut ids = Vec::new();
        for opened in opening {
            ids.push(opened.await.expect("no panic"));
        }
        ids.dedup();
        assert_eq!(ids.len(), 1);
    })
    .await;
}

/// `PgBouncer` in transaction mode is an error unless it keeps prepared statements.
#[tokio::test(flavor = "multi_thread")]
async fn transaction_pooler_works_or_is_rejected_at_once() {
    let Ok(pooler) = std::env::var("SMSQ_TEST_PGBOUNCER") else {
        assert!(std::env::var_os("CI").is_none(), "`tests/run` starts a PgBouncer");
        return;
    };
    on_every_database(async |db| {
        if db.kind != Kind::Postgres {
            return;
        }
        let name = db.url.rsplit_once('/').expect("a path").1;
        let opened = Store::open(&format!("{pooler}/{name}"), Access::Create).await;
        let store = match opened {
            Ok(store) => store,
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Pooler, "{error}");
                let hint = error.hint().unwrap_or_default();
                assert!(hint.contains("pool_mode = session"), "{hint}");
                // The pooler still has the statements of the first store.
                let url = format!("{pooler}/{name}");
                let again = Store::open(&url, Access::Create).await;
                let error = again.err().expect("it is the same pooler");
                assert_eq!(error.kind(), StoreErrorKind::Pooler, "{error}");
                return;
            }
        };
        let queue = TestQueue { db, store };
        let (spring, worker) = queue.queued_with_worker(20).await;
        for sms in queue.claim(worker.id, spring, 20).await {
            queue.settle(&sms, sent()).await;
        }
        queue.assert_nothing_is_lost().await;
    })
    .await;
}

/// A pooler runs each transaction in another session of the server, whose default may be another.
#[tokio::test(flavor = "multi_thread")]
async fn commits_wait_for_the_disk_behind_a_transaction_pooler() {
    let Ok(pooler) = std::env::var("SMSQ_TEST_PGBOUNCER") else {
        return;
    };
    let Some(db) = Database::if_there(Kind::Postgres) else {
        return;
    };
    let (server, name) = db.url.rsplit_once('/').expect("a path");
    let url = format!("{pooler}/{name}");
    // Servers of tests may have another default. A session in this database would stay in the pool, with the other one.
    let set = format!("ALTER DATABASE {name} SET synchronous_commit = on");
    db.kind.administer(server, &set).expect("set");
    let name = name.to_owned();
    let store = match Store::open(&url, Access::Create).await {
        // One that does not keep prepared statements.
        Err(error) if error.kind() == StoreErrorKind::Pooler => return,
        opened => opened.expect("a store"),
    };
    assert!(!store.commits_early().await.expect("a setting"));
    let queue = TestQueue { db, store };
    let (spring, worker) = queue.queued_with_worker(20).await;
    queue.db.run(&format!(
        "ALTER DATABASE {name} SET synchronous_commit = off;
         CREATE TABLE seen (setting text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
         CREATE TRIGGER see AFTER INSERT ON sms_sent FOR EACH ROW EXECUTE FUNCTION see()"
    ));
    for sms in queue.claim(worker.id, spring, 20).await {
        // The pooler opens new sessions, with the new default.
        queue.db.end_sessions();
        queue.settle(&sms, sent()).await;
    }
    let seen = queue.db.words("SELECT DISTINCT setting FROM seen");
    assert_eq!(seen, [Some("on".to_owned())]);
    assert!(queue.store.commits_early().await.expect("a setting"));
}
