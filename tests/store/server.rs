//! Databases on servers: connecting, the kinds of their errors, and transactions that are repeated.

use std::env;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use smsq_lifecycle::{Settled, Settlement};
use smsq_store::{Access, CommitBatch, Store, StoreErrorKind};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, again, commit_batch, failed, on_every_engine, rows, sent,
};
use crate::support::databases::{Database, Kind, on_every_database};
use crate::support::waiting::PATIENCE;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/mysql/0001_tables.sql");

// Dropped connections are closed in the background, so these tests, which wait for other programs, leave one thread to
// the runtime.

/// Runs a test with a new queue on every server, and counts all messages at its end.
pub(super) async fn on_every_server(test: impl AsyncFn(&TestQueue)) {
    on_every_engine(async |queue| {
        if queue.db.kind != Kind::Sqlite {
            test(queue).await;
        }
    })
    .await;
}

/// The error of opening the URL, which must not have the password.
async fn refusal(url: &str) -> (StoreErrorKind, String) {
    let opened = Store::open(url, Access::Create).await;
    let error = opened.err().expect(url);
    let sentence = error.to_string();
    assert!(!sentence.contains("hunter2"), "{sentence}");
    (error.kind(), sentence)
}

/// Makes the database run `fault` at the first `times` rows that `event` changes. A sequence or the ids of a table
/// count them, which rollbacks do not undo.
fn hinder(db: &Database, event: &str, times: u32, fault: &str) {
    let mut client = db.client();
    match db.kind {
        Kind::Mysql => {
            client.run("CREATE TABLE hurdles (id INTEGER AUTO_INCREMENT PRIMARY KEY)");
            let body = format!(
                "FOR EACH ROW BEGIN INSERT INTO hurdles VALUES (NULL);
                 IF last_insert_id() <= {times} THEN {fault}; END IF; END"
            );
            client.run(&format!(
                "DELIMITER //\nCREATE TRIGGER hurdle BEFORE {event} {body}//\nDELIMITER ;\nDO 0"
            ));
        }
        Kind::Sqlite | Kind::Postgres => {
            client.run("CREATE SEQUENCE hurdles");
            client.run(&format!(
                "CREATE FUNCTION hurdle() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN IF nextval('hurdles') <= {times} THEN {fault}; END IF;
                 IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$;
                 CREATE TRIGGER hurdle BEFORE {event} FOR EACH ROW EXECUTE FUNCTION hurdle()"
            ));
        }
    }
}

fn free(db: &Database) {
    match db.kind {
        Kind::Mysql => db.run("DROP TRIGGER hurdle; DROP TABLE hurdles"),
        Kind::Sqlite | Kind::Postgres => {
            db.run("DROP FUNCTION hurdle() CASCADE; DROP SEQUENCE hurdles");
        }
    }
}

/// The statement that raises an error with this code and message.
fn raise(kind: Kind, code: &str, words: &str) -> String {
    match kind {
        Kind::Mysql => {
            format!("SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = '{words}'")
        }
        Kind::Sqlite | Kind::Postgres => {
            format!("RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = '{words}'")
        }
    }
}

/// Imports, claims and settles, each with an error in between.
async fn work_against(queue: &TestQueue, times: u32, fault: &str) {
    let spring = queue.campaign("spring").await;
    hinder(&queue.db, "INSERT ON sms", times, fault);
    let done = queue.import(spring, rows(0..20)).await;
    assert_eq!((done.accepted, done.duplicates.len()), (20, 0), "{fault}");
    free(&queue.db);
    let worker = queue.worker().await;
    hinder(&queue.db, "UPDATE ON sms", times, fault);
    let mut claimed = queue.claim(worker.id, spring, 10).await;
    // A closed connection may keep its locks for a short time, and locked rows are skipped.
    let deadline = Instant::now() + PATIENCE;
    while claimed.len() < 10 && Instant::now() < deadline {
        claimed.extend(queue.claim(worker.id, spring, 1).await);
    }
    assert_eq!(claimed.len(), 10, "{fault}");
    assert!(claimed.iter().all(|sms| sms.claim == 1), "{fault}");
    free(&queue.db);
    hinder(&queue.db, "INSERT ON sms_sent", times, fault);
    assert_eq!(queue.settle(&claimed[0], sent()).await, Settled::Done);
    free(&queue.db);
    hinder(&queue.db, "DELETE ON sms", times, fault);
    assert_eq!(queue.settle(&claimed[1], sent()).await, Settled::Done);
    free(&queue.db);
    hinder(&queue.db, "UPDATE ON sms", times, fault);
    assert_eq!(queue.settle(&claimed[2], again()).await, Settled::Done);
    free(&queue.db);
    let counts = ["ready", "sending", "sent"].map(|place| queue.count(place));
    assert_eq!(counts, [11, 7, 2], "{fault}");
    let accepted = "SELECT sum(accepted) AS value FROM sms_sent";
    assert_eq!(queue.db.number(accepted), 2, "{fault}");
    queue.assert_nothing_is_lost().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn transaction_is_repeated_after_a_conflict() {
    // By their codes: messages are in the language of the server.
    let faults = [
        (Kind::Mysql, "1213"),
        (Kind::Mysql, "1205"),
        (Kind::Mysql, "1020"),
        (Kind::Postgres, "40001"),
        (Kind::Postgres, "40P01"),
        (Kind::Postgres, "55P03"),
    ];
    for (kind, code) in faults {
        on_every_server(async |queue| {
            if queue.db.kind == kind {
                work_against(queue, 3, &raise(kind, code, "Verklemmung")).await;
            }
        })
        .await;
    }
}

/// Such as a cancelled statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn transaction_is_repeated_after_an_unknown_error() {
    let faults = [
        (Kind::Mysql, "1317", "Query execution was interrupted"),
        (Kind::Mysql, "1180", "Got error 6 during COMMIT"),
        (Kind::Postgres, "57014", "storniere Anfrage wegen Zeitlimit"),
    ];
    for (kind, code, words) in faults {
        on_every_server(async |queue| {
            if queue.db.kind == kind {
                work_against(queue, 2, &raise(kind, code, words)).await;
            }
        })
        .await;
    }
}

/// MariaDB reports success if a `DELETE` is killed before its first row. On `PostgreSQL` a trigger does the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn transaction_is_repeated_when_a_delete_removed_nothing() {
    on_every_server(async |queue| {
        if queue.db.kind != Kind::Postgres {
            return;
        }
        let (_, _, claimed) = queue.claimed(4).await;
        for (sms, transition) in claimed.iter().zip([sent(), failed()]) {
            hinder(&queue.db, "DELETE ON sms", 1, "RETURN NULL");
            assert_eq!(queue.settle(sms, transition).await, Settled::Done);
            free(&queue.db);
        }
        hinder(&queue.db, "DELETE ON sms_failed", 1, "RETURN NULL");
        assert_eq!(queue.settle(&claimed[1], sent()).await, Settled::Late);
        free(&queue.db);
        let both = "SELECT count(*) AS value FROM sms JOIN sms_sent ON sms.id = sms_sent.id";
        assert_eq!(queue.db.number(both), 0);
        queue.assert_nothing_is_lost().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn transaction_is_repeated_after_a_lost_connection() {
    on_every_server(async |queue| {
        let end = match queue.db.kind {
            Kind::Mysql => "KILL CONNECTION CONNECTION_ID()",
            Kind::Sqlite | Kind::Postgres => "PERFORM pg_terminate_backend(pg_backend_pid())",
        };
        work_against(queue, 1, end).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn lost_idle_connections_are_replaced() {
    on_every_server(async |queue| {
        let (spring, worker) = queue.queued_with_worker(2).await;
        // A pooler may have ended the idle ones.
        while queue.db.end_sessions() == 0 {
            queue.store.now().await.expect("an instant");
        }
        let claimed = queue.claim(worker.id, spring, 2).await;
        assert_eq!(claimed.len(), 2);
        let beat = queue
            .store
            .workers()
            .heartbeat(worker.id, &worker.token, super::test_queue::after(1))
            .await;
        assert!(beat.expect("a heartbeat"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn failed_write_changes_nothing_and_reports_its_reason() {
    let faults = [
        (Kind::Mysql, "1290", "nur lesbar", StoreErrorKind::Replica),
        (Kind::Mysql, "1114", "voll", StoreErrorKind::Full),
        (Kind::Mysql, "1030", "Got error 28 from storage engine", StoreErrorKind::Full),
        (Kind::Mysql, "1062", "doppelt", StoreErrorKind::Constraint),
        (Kind::Mysql, "1644", "Deadlock found; table is full; read-only", StoreErrorKind::Other),
        (Kind::Postgres, "25006", "nur lesbar", StoreErrorKind::Replica),
        (Kind::Postgres, "53100", "voll", StoreErrorKind::Full),
        (Kind::Postgres, "23505", "doppelt", StoreErrorKind::Constraint),
        (Kind::Postgres, "P0001", "deadlock detected; no space left", StoreErrorKind::Other),
    ];
    for (kind, code, words, fault) in faults {
        on_every_server(async |queue| {
            if queue.db.kind != kind {
                return;
            }
            let (_, worker, claimed) = queue.claimed(3).await;
            let settlements = claimed.iter().map(|sms| Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: PROVIDER.to_owned(),
                transition: sent(),
            });
            let settling = Arc::new(CommitBatch {
                settlements: settlements.collect(),
                ..commit_batch(worker.id, NOW)
            });
            let raised = raise(kind, code, words);
            hinder(&queue.db, "INSERT ON sms_sent", 1_000, &raised);
            let done = queue.store.commit(&settling).await;
            let error = done.expect_err(words);
            assert_eq!(error.kind(), fault, "{error}");
            free(&queue.db);
            assert_eq!(queue.count("sending"), 3, "the commit is whole or not at all");
            let done = queue.store.commit(&settling).await.expect("fixed");
            assert_eq!(done.settled, [Settled::Done; 3], "{words}");
            assert_eq!(queue.count("sent"), 3, "{words}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn import_waits_for_a_writable_server() {
    on_every_server(async |queue| {
        let spring = queue.queued(1).await;
        let import_id = queue.begin(spring).await;
        let read_only = match queue.db.kind {
            Kind::Mysql => raise(Kind::Mysql, "1290", "running with the --read-only option"),
            Kind::Sqlite | Kind::Postgres => raise(Kind::Postgres, "25006", "read-only"),
        };
        hinder(&queue.db, "INSERT ON sms", 5, &read_only);
        let batch = TestQueue::batch(import_id, spring, rows(10..15));
        let done = queue.store.imports().enqueue(&batch).await.expect("queued");
        assert_eq!((done.accepted, done.duplicates.len()), (5, 0));
        free(&queue.db);
        assert_eq!(queue.count("ready"), 6);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn failed_connection_reports_its_reason() {
    on_every_database(async |db| {
        if db.kind == Kind::Sqlite {
            return;
        }
        let (fault, sentence) = refusal(&db.url_for("stranger:hunter2")).await;
        assert_eq!(fault, StoreErrorKind::Denied, "{sentence}");
        let (fault, sentence) = refusal(&format!("{}_and_no_other", db.url)).await;
        assert_eq!(fault, StoreErrorKind::NoDatabase, "{sentence}");
        assert!(sentence.contains("_and_no_other"), "{sentence}");
        let (server, name) = db.url.rsplit_once('/').expect("a path");
        let (server, _) = server.rsplit_once(':').expect("a port");
        let (fault, sentence) = refusal(&format!("{server}:1/{name}")).await;
        assert_eq!(fault, StoreErrorKind::Unavailable, "{sentence}");
        assert!(sentence.contains("127.0.0.1:1"), "{sentence}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn password_with_special_characters_works_with_tls() {
    on_every_database(async |db| {
        if db.kind == Kind::Sqlite {
            return;
        }
        let name = db.url.rsplit_once('/').expect("a path").1;
        let user = format!("user_{name}");
        let (create, end) = match db.kind {
            Kind::Mysql => (
                format!(
                    "CREATE USER {user} IDENTIFIED BY 'hunter2@:/?#% ' REQUIRE SSL;
                     GRANT ALL ON {name}.* TO {user}"
                ),
                format!("DROP USER {user}"),
            ),
            Kind::Sqlite | Kind::Postgres => (
                format!(
                    "CREATE ROLE {user} LOGIN PASSWORD 'hunter2@:/?#% ';
                     GRANT ALL ON SCHEMA public TO {user}"
                ),
                format!("REASSIGN OWNED BY {user} TO smsq; DROP OWNED BY {user}; DROP ROLE {user}"),
            ),
        };
        db.run(&create);
        let url = db.url_for(&format!("{user}:hunter2%40%3A%2F%3F%23%25%20"));
        let authority = env::var("SMSQ_TEST_AUTHORITY").expect("a file of `tests/run`");
        let known = format!("{url}?tls=required&tls_ca={authority}");
        let store = Store::open(&known, Access::Create).await;
        let store = store.expect("it gets in");
        assert_eq!(store.campaigns().await.expect("campaigns").len(), 1);
        if db.kind == Kind::Postgres {
            let open = format!(
                "SELECT count(*) AS value FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
                 WHERE usename = '{user}' AND ssl"
            );
            assert!(db.number(&open) > 0);
        } else {
            let (fault, sentence) = refusal(&format!("{url}?tls=off")).await;
            assert_eq!(fault, StoreErrorKind::Denied, "{sentence}");
        }
        let (fault, sentence) = refusal(&format!("{url}?tls=required")).await;
        assert_eq!(fault, StoreErrorKind::Encryption, "unknown authority: {sentence}");
        let (fault, sentence) = refusal(&db.url_for(&format!("{user}:hunter2"))).await;
        assert_eq!(fault, StoreErrorKind::Denied, "{sentence}");
        drop(store);
        db.run(&end);
    })
    .await;
}

/// A confirmed commit survives a crash of the host of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commits_are_durable_with_any_server_default() {
    on_every_database(async |db| {
        let name = db.url.rsplit_once('/').expect("a path").1;
        let user = format!("uncommitted_{name}");
        let (setting, url) = match db.kind {
            Kind::Sqlite => return,
            Kind::Mysql => {
                // Only for users without special rights, so the sessions of other tests do not change.
                db.run(&format!(
                    "CREATE USER {user} IDENTIFIED BY 'x'; GRANT ALL ON {name}.* TO {user};
                     SET GLOBAL init_connect =
                     'SET autocommit = IF(CURRENT_USER() LIKE ''uncommitted%'', 0, 1)'"
                ));
                ("@@session.autocommit", db.url_for(&format!("{user}:x")))
            }
            Kind::Postgres => {
                db.run(&format!(
                    "ALTER DATABASE {name} SET synchronous_commit = off"
                ));
                ("current_setting('synchronous_commit')", db.url.clone())
            }
        };
        let store = Store::open(&url, Access::Create).await;
        let store = store.expect("a database");
        let queue = TestQueue { db, store };
        // A trigger reads the setting of the session that writes.
        queue.db.run(&match queue.db.kind {
            Kind::Sqlite => return,
            Kind::Mysql => format!(
                "CREATE TABLE seen (value VARCHAR(9));
                 CREATE TRIGGER see BEFORE UPDATE ON worker FOR EACH ROW INSERT INTO seen VALUES ({setting})"
            ),
            Kind::Postgres => format!(
                "CREATE TABLE seen (value TEXT);
                 CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN INSERT INTO seen VALUES ({setting}); RETURN NEW; END $$;
                 CREATE TRIGGER see BEFORE UPDATE ON worker FOR EACH ROW EXECUTE FUNCTION see()"
            ),
        });
        let worker = queue.worker().await;
        let beat = queue.store.workers().heartbeat(worker.id, &worker.token, super::test_queue::after(1)).await;
        assert!(beat.expect("a heartbeat"));
        let seen = queue.db.words("SELECT value FROM seen");
        let seen: Vec<_> = seen.iter().flatten().map(String::as_str).collect();
        assert!(matches!(seen.as_slice(), ["1" | "on"]), "{seen:?}");
        if queue.db.kind == Kind::Mysql {
            let default = queue.db.words("SELECT @@global.init_connect AS value");
            assert!(default[0].as_ref().is_some_and(|sql| sql.contains("uncommitted")));
            drop(queue.store);
            queue.db.run(&format!("DROP USER {user}; SET GLOBAL init_connect = ''"));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn database_settings_change_nothing() {
    on_every_database(async |db| {
        let name = db.url.rsplit_once('/').expect("a path").1;
        match db.kind {
            Kind::Sqlite => return,
            Kind::Mysql => db.run(&format!("ALTER DATABASE {name} CHARACTER SET latin1")),
            Kind::Postgres => db.run(&format!(
                "ALTER DATABASE {name} SET default_transaction_isolation = 'serializable';
                 ALTER DATABASE {name} SET timezone = 'Asia/Kolkata';
                 ALTER DATABASE {name} SET standard_conforming_strings = off;
                 ALTER DATABASE {name} SET statement_timeout = '90s'"
            )),
        }
        let queue = TestQueue::new(db).await;
        let text = "您的验证码是 4711 🎉 \\ 'ok'";
        let spring = queue.campaign("春节").await;
        let row = super::test_queue::fixed(2, 0, &super::test_queue::phone(1), text);
        queue.import(spring, vec![row]).await;
        let worker = queue.worker().await;
        let sms = queue.claim_one(worker.id, spring).await;
        assert_eq!(sms.content, text);
        queue.settle(&sms, sent()).await;
        let now = queue.store.now().await.expect("a clock").as_millis();
        let apart = now - jiff::Timestamp::now().as_millisecond();
        assert!(apart.abs() < 60_000, "both clocks are this machine's: {apart}");
        queue.assert_nothing_is_lost().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tables_of_another_program_are_not_changed() {
    on_every_database(async |db| {
        if db.kind == Kind::Sqlite {
            return;
        }
        db.run("CREATE TABLE sms (id INTEGER PRIMARY KEY, body VARCHAR(9))");
        let error = db.open().await.err().expect("its tables are in the way");
        assert_eq!(error.kind(), StoreErrorKind::Unrecognized);
        let schema = match db.kind {
            Kind::Mysql => "database()",
            Kind::Sqlite | Kind::Postgres => "current_schema()",
        };
        let tables = db.words(&format!(
            "SELECT table_name AS value FROM information_schema.tables WHERE table_schema = {schema}"
        ));
        assert_eq!(tables, [Some("sms".to_owned())]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn interrupted_creation_of_tables_is_completed() {
    // Elsewhere all tables are created in one transaction.
    let Some(whole) = Database::if_there(Kind::Mysql) else {
        return;
    };
    drop(whole.open().await.expect("a database"));
    let script = fs::read_to_string(SCRIPT).expect("it");
    let statements: Vec<&str> = script.split_inclusive(";\n").collect();
    let columns = "SELECT concat_ws(' ', table_name, column_name, column_type, column_default, extra) AS value
        FROM information_schema.columns WHERE table_schema = database() ORDER BY value";
    let keys = "SELECT concat_ws(' ', table_name, index_name, seq_in_index, column_name, non_unique) AS value
        FROM information_schema.statistics WHERE table_schema = database() ORDER BY value";
    for done in [1, 2, statements.len() / 2, statements.len()] {
        let db = Database::new(Kind::Mysql);
        db.run(
            "CREATE TABLE __diesel_schema_migrations (version VARCHAR(50) PRIMARY KEY NOT NULL,
             run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)",
        );
        db.run("INSERT INTO __diesel_schema_migrations (version) VALUES ('creating')");
        db.run(&statements[..done].concat());
        let queue = TestQueue::new(db).await;
        for sql in [columns, keys] {
            assert_eq!(queue.db.words(sql), whole.words(sql), "after {done} statements");
        }
        let (spring, worker) = queue.queued_with_worker(3).await;
        assert_eq!(queue.claim(worker.id, spring, 3).await.len(), 3);
        queue.assert_nothing_is_lost().await;
    }
}
