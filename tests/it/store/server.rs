//! A database on a server: who gets in, what its faults are called, and what is in the way of a
//! transaction without anybody's being told.

use std::env;
use std::sync::Arc;
use std::time::Instant;

use smsq::queue::{Settled, Settlement};
use smsq::store::{Access, CommitBatch, Fault, Store};

use super::desk::{Desk, NOW, PROVIDER, again, at_every_desk, failed, round, rows, sent};
use crate::support::databases::{Database, Kind, on_every_database};
use crate::support::running::PATIENCE;

// Connections that are dropped close in the background, so these tests, which wait for other programs
// meanwhile, leave a thread to the runtime.

/// Runs a test at a new desk of every server, and counts at the end.
pub(super) async fn at_every_server(test: impl AsyncFn(&Desk)) {
    at_every_desk(async |desk| {
        if desk.db.kind != Kind::Sqlite {
            test(desk).await;
        }
    })
    .await;
}

/// What is wrong with the database at the URL; it must not say a password.
async fn refusal(url: &str) -> (Fault, String) {
    let opened = Store::open(url, Access::Create).await;
    let error = opened.err().expect(url);
    let sentence = error.to_string();
    assert!(!sentence.contains("hunter2"), "{sentence}");
    (error.fault(), sentence)
}

/// Lets the database do `fault` at each of the first `times` times that a row meets `event`. What counts
/// them is undone by no rollback.
fn hinder(db: &Database, event: &str, times: u32, fault: &str) {
    let fault = format!("IF nextval(hurdles) <= {times} THEN {fault}; END IF;");
    let mut client = db.client();
    client.run("CREATE SEQUENCE hurdles");
    match db.kind {
        Kind::Mysql => {
            let body = format!("FOR EACH ROW BEGIN {fault} END");
            client.run(&format!(
                "DELIMITER //\nCREATE TRIGGER hurdle BEFORE {event} {body}//\nDELIMITER ;\nDO 0"
            ));
        }
        Kind::Sqlite | Kind::Postgres => {
            let fault = fault.replace("nextval(hurdles)", "nextval('hurdles')");
            client.run(&format!(
                "CREATE FUNCTION hurdle() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN {fault} IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$;
                 CREATE TRIGGER hurdle BEFORE {event} FOR EACH ROW EXECUTE FUNCTION hurdle()"
            ));
        }
    }
}

fn free(db: &Database) {
    match db.kind {
        Kind::Mysql => db.run("DROP TRIGGER hurdle; DROP SEQUENCE hurdles"),
        Kind::Sqlite | Kind::Postgres => {
            db.run("DROP FUNCTION hurdle() CASCADE; DROP SEQUENCE hurdles");
        }
    }
}

/// A fault by its number and its words.
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

/// Imports, claims and settles, with something in the way of each.
async fn work_against(desk: &Desk, times: u32, fault: &str) {
    let spring = desk.campaign("spring").await;
    hinder(&desk.db, "INSERT ON sms", times, fault);
    let done = desk.import(spring, rows(0..20)).await;
    assert_eq!((done.accepted, done.duplicates.len()), (20, 0), "{fault}");
    free(&desk.db);
    let worker = desk.worker().await;
    hinder(&desk.db, "UPDATE ON sms", times, fault);
    let mut claimed = desk.claim(worker.id, spring, 10).await;
    // A connection that is gone may hold its rows a moment longer; they are passed over.
    let deadline = Instant::now() + PATIENCE;
    while claimed.len() < 10 && Instant::now() < deadline {
        claimed.extend(desk.claim(worker.id, spring, 1).await);
    }
    assert_eq!(claimed.len(), 10, "{fault}");
    assert!(claimed.iter().all(|sms| sms.claim == 1), "{fault}");
    free(&desk.db);
    hinder(&desk.db, "INSERT ON sms_sent", times, fault);
    assert_eq!(desk.settle(&claimed[0], sent()).await, Settled::Done);
    free(&desk.db);
    hinder(&desk.db, "DELETE ON sms", times, fault);
    assert_eq!(desk.settle(&claimed[1], sent()).await, Settled::Done);
    free(&desk.db);
    hinder(&desk.db, "UPDATE ON sms", times, fault);
    assert_eq!(desk.settle(&claimed[2], again()).await, Settled::Done);
    free(&desk.db);
    let counts = ["ready", "sending", "sent"].map(|place| desk.count(place));
    assert_eq!(counts, [11, 7, 2], "{fault}");
    let accepted = "SELECT sum(accepted) AS value FROM sms_sent";
    assert_eq!(desk.db.number(accepted), 2, "{fault}");
    desk.assert_nothing_is_lost().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_in_a_transactions_way_for_a_moment_is_told_to_nobody() {
    let deadlock = "Deadlock found when trying to get lock; try restarting transaction";
    let changed = "Record has changed since last read in table ''sms''";
    let faults = [
        (Kind::Mysql, "1213", deadlock),
        (
            Kind::Mysql,
            "1205",
            "Lock wait timeout exceeded; try restarting transaction",
        ),
        (Kind::Mysql, "1020", changed),
        (
            Kind::Postgres,
            "40001",
            "could not serialize access due to concurrent update",
        ),
        (Kind::Postgres, "40P01", "deadlock detected"),
        (
            Kind::Postgres,
            "55P03",
            "canceling statement due to lock timeout",
        ),
    ];
    for (kind, code, words) in faults {
        at_every_server(async |desk| {
            if desk.db.kind == kind {
                work_against(desk, 3, &raise(kind, code, words)).await;
            }
        })
        .await;
    }
}

/// Words that no list of words has: other languages, and statements that were cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn transaction_is_repeated_after_error_in_any_language() {
    let faults = [
        (Kind::Mysql, "1317", "Query execution was interrupted"),
        (Kind::Mysql, "1180", "Got error 6 during COMMIT"),
        (Kind::Postgres, "40P01", "Verklemmung (Deadlock) entdeckt"),
        (Kind::Postgres, "57014", "storniere Anfrage wegen Zeitlimit"),
    ];
    for (kind, code, words) in faults {
        at_every_server(async |desk| {
            if desk.db.kind == kind {
                work_against(desk, 2, &raise(kind, code, words)).await;
            }
        })
        .await;
    }
}

/// MariaDB says that a `DELETE` succeeded which was killed before its first row. `PostgreSQL` can be made to do as much.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn transaction_is_repeated_when_a_delete_removed_nothing() {
    at_every_server(async |desk| {
        if desk.db.kind != Kind::Postgres {
            return;
        }
        let spring = desk.queued(4).await;
        let worker = desk.worker().await;
        let claimed = desk.claim(worker.id, spring, 4).await;
        for (sms, transition) in claimed.iter().zip([sent(), failed()]) {
            hinder(&desk.db, "DELETE ON sms", 1, "RETURN NULL");
            assert_eq!(desk.settle(sms, transition).await, Settled::Done);
            free(&desk.db);
        }
        hinder(&desk.db, "DELETE ON sms_failed", 1, "RETURN NULL");
        assert_eq!(desk.settle(&claimed[1], sent()).await, Settled::Late);
        free(&desk.db);
        let both = "SELECT count(*) AS value FROM sms JOIN sms_sent ON sms.id = sms_sent.id";
        assert_eq!(desk.db.number(both), 0);
        desk.assert_nothing_is_lost().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_that_is_lost_in_a_transaction_is_told_to_nobody() {
    at_every_server(async |desk| {
        let end = match desk.db.kind {
            Kind::Mysql => "KILL CONNECTION CONNECTION_ID()",
            Kind::Sqlite | Kind::Postgres => "PERFORM pg_terminate_backend(pg_backend_pid())",
        };
        work_against(desk, 1, end).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_that_were_lost_while_nobody_needed_them_are_made_anew() {
    at_every_server(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        assert!(desk.db.end_sessions() > 0);
        let claimed = desk.claim(worker.id, spring, 2).await;
        assert_eq!(claimed.len(), 2);
        let beat = desk.store.heartbeat(worker.id, super::desk::after(1)).await;
        assert!(beat.expect("a heartbeat"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_write_that_cannot_be_done_leaves_nothing_behind_and_says_why() {
    let faults = [
        (
            Kind::Mysql,
            "1290",
            "the server is running with the --read-only option",
            Fault::Replica,
        ),
        (
            Kind::Mysql,
            "1114",
            "The table ''sms'' is full",
            Fault::Full,
        ),
        (Kind::Mysql, "1644", "something else", Fault::Other),
        (
            Kind::Postgres,
            "25006",
            "cannot execute INSERT in a read-only transaction",
            Fault::Replica,
        ),
        (
            Kind::Postgres,
            "53100",
            "could not extend file: No space left on device",
            Fault::Full,
        ),
        (Kind::Postgres, "P0001", "something else", Fault::Other),
    ];
    for (kind, code, words, fault) in faults {
        at_every_server(async |desk| {
            if desk.db.kind != kind {
                return;
            }
            let spring = desk.queued(3).await;
            let worker = desk.worker().await;
            let claimed = desk.claim(worker.id, spring, 3).await;
            let settlements = claimed.iter().map(|sms| Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: PROVIDER.to_owned(),
                transition: sent(),
            });
            let settling = Arc::new(CommitBatch {
                settlements: settlements.collect(),
                ..round(worker.id, NOW)
            });
            let raised = raise(kind, code, words);
            hinder(&desk.db, "INSERT ON sms_sent", 1_000, &raised);
            let done = desk.store.commit(&settling).await;
            let error = done.expect_err(words);
            assert_eq!(error.fault(), fault, "{error}");
            free(&desk.db);
            assert_eq!(desk.count("sending"), 3, "the round is whole or not at all");
            let done = desk.store.commit(&settling).await.expect("mended");
            assert_eq!(done.settled, [Settled::Done; 3], "{words}");
            assert_eq!(desk.count("sent"), 3, "{words}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_import_waits_for_a_server_that_can_be_written_to() {
    at_every_server(async |desk| {
        let spring = desk.queued(1).await;
        let import_id = desk.begin(spring).await;
        let read_only = match desk.db.kind {
            Kind::Mysql => raise(Kind::Mysql, "1290", "running with the --read-only option"),
            Kind::Sqlite | Kind::Postgres => raise(Kind::Postgres, "25006", "read-only"),
        };
        hinder(&desk.db, "INSERT ON sms", 5, &read_only);
        let batch = Desk::batch(import_id, spring, rows(10..15));
        let done = desk.store.enqueue(batch).await.expect("queued");
        assert_eq!((done.accepted, done.duplicates.len()), (5, 0));
        free(&desk.db);
        assert_eq!(desk.count("ready"), 6);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_database_that_cannot_be_had_says_why() {
    on_every_database(async |db| {
        if db.kind == Kind::Sqlite {
            return;
        }
        let (fault, sentence) = refusal(&db.url_for("stranger:hunter2")).await;
        assert_eq!(fault, Fault::Denied, "{sentence}");
        let (fault, sentence) = refusal(&format!("{}_and_no_other", db.url)).await;
        assert_eq!(fault, Fault::NoDatabase, "{sentence}");
        assert!(sentence.contains("_and_no_other"), "{sentence}");
        let (server, name) = db.url.rsplit_once('/').expect("a path");
        let (server, _) = server.rsplit_once(':').expect("a port");
        let (fault, sentence) = refusal(&format!("{server}:1/{name}")).await;
        assert_eq!(fault, Fault::Away, "{sentence}");
        assert!(sentence.contains("127.0.0.1:1"), "{sentence}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_user_with_a_difficult_password_gets_in_and_by_tls_where_that_is_asked_for() {
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
            assert_eq!(fault, Fault::Denied, "{sentence}");
        }
        let (fault, sentence) = refusal(&format!("{url}?tls=required")).await;
        assert_eq!(
            fault,
            Fault::Encryption,
            "nobody knows its authority: {sentence}"
        );
        let (fault, sentence) = refusal(&db.url_for(&format!("{user}:hunter2"))).await;
        assert_eq!(fault, Fault::Denied, "{sentence}");
        drop(store);
        db.run(&end);
    })
    .await;
}

/// What was answered as done is done, and stays so where the server's host crashes.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commits_are_durable_whatever_the_server_defaults_to() {
    on_every_database(async |db| {
        let name = db.url.rsplit_once('/').expect("a path").1;
        let user = format!("uncommitted_{name}");
        let (setting, url) = match db.kind {
            Kind::Sqlite => return,
            Kind::Mysql => {
                // Done for whoever has no special rights; the other tests' sessions begin as ever.
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
        let desk = Desk { db, store };
        // A trigger sees the setting of the session that writes.
        desk.db.run(&match desk.db.kind {
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
        let worker = desk.worker().await;
        let beat = desk.store.heartbeat(worker.id, super::desk::after(1)).await;
        assert!(beat.expect("a heartbeat"));
        let seen = desk.db.words("SELECT value FROM seen");
        let seen: Vec<_> = seen.iter().flatten().map(String::as_str).collect();
        assert!(matches!(seen.as_slice(), ["1" | "on"]), "{seen:?}");
        if desk.db.kind == Kind::Mysql {
            let default = desk.db.words("SELECT @@global.init_connect AS value");
            assert!(default[0].as_ref().is_some_and(|sql| sql.contains("uncommitted")));
            drop(desk.store);
            desk.db.run(&format!("DROP USER {user}; SET GLOBAL init_connect = ''"));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn settings_that_a_database_came_with_change_nothing() {
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
        let desk = Desk::new(db).await;
        let text = "您的验证码是 4711 🎉 \\ 'ok'";
        let spring = desk.campaign("春节").await;
        let row = super::desk::mended(2, 0, &super::desk::phone(1), text);
        desk.import(spring, vec![row]).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        assert_eq!(sms.content, text);
        desk.settle(&sms, sent()).await;
        let now = desk.store.now().await.expect("a clock").as_millis();
        let apart = now - jiff::Timestamp::now().as_millisecond();
        assert!(
            apart.abs() < 60_000,
            "both clocks are this machine's: {apart}"
        );
        desk.assert_nothing_is_lost().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tables_of_another_program_are_not_touched() {
    on_every_database(async |db| {
        if db.kind == Kind::Sqlite {
            return;
        }
        db.run("CREATE TABLE sms (id INTEGER PRIMARY KEY, body VARCHAR(9))");
        let error = db.open().await.err().expect("its tables are in the way");
        assert_eq!(error.fault(), Fault::Foreign);
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
async fn tables_whose_making_was_interrupted_are_completed() {
    on_every_database(async |db| {
        // Elsewhere all are made in one transaction.
        if db.kind != Kind::Mysql {
            return;
        }
        drop(db.open().await.expect("a database"));
        db.run(
            "DELETE FROM __diesel_schema_migrations; DROP TABLE suppression; DROP TABLE rate_limit",
        );
        let desk = Desk::new(db).await;
        let spring = desk.queued(3).await;
        let worker = desk.worker().await;
        assert_eq!(desk.claim(worker.id, spring, 3).await.len(), 3);
        desk.assert_nothing_is_lost().await;
    })
    .await;
}
