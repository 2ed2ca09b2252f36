//! `smsq import --query`: the rows of a query on another program's database.

use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::{Ran, Scratch};

/// A database of another program on the same server, and a folder whose queue is on `db`.
fn crm(db: &Database) -> (Database, Scratch) {
    let crm = Database::new(db.kind);
    crm.run("CREATE TABLE other (id INTEGER)");
    let scratch = Scratch::at(&db.url);
    let section = format!("[sources.crm]\nurl = \"{}\"\n", crm.url);
    scratch.write("smsq.toml", &section);
    (crm, scratch)
}

fn with_people(crm: &Database) {
    crm.run(
        "CREATE TABLE people (id INTEGER PRIMARY KEY, customer VARCHAR(20), mobile VARCHAR(20), name VARCHAR(50));
         INSERT INTO people VALUES (1, 'a', '+447400100001', 'Ann'), (2, 'b', '+447400100002', 'Zoë \"Z\"'),
             (3, NULL, '+447400100003', 'Cid'), (4, 'b', '+447400100004', 'Bob''s twin'), (5, 'e', 'none', 'Eve');",
    );
}

fn import(scratch: &Scratch, query: &str, more: &[&str]) -> Ran {
    scratch.write("due.sql", query);
    let line = ["import", "--from", "crm", "--query", "due.sql"];
    scratch.run(line.into_iter().chain(more.iter().copied()))
}

#[test]
fn rows_of_a_query_are_imported_by_their_key() {
    with_every_database(|db| {
        let (crm, scratch) = crm(db);
        with_people(&crm);
        let query = "SELECT customer, mobile AS phone, name FROM people ORDER BY id;\n";
        let flags = ["--key", "customer", "--text", "Hi {{ name }}", "--format", "json"];
        let ran = import(&scratch, query, &flags).assert_code(0);
        let counts = ran.json();
        for (name, count) in [("rows", 5), ("accepted", 2), ("duplicates", 1), ("rejected", 2)] {
            assert_eq!(counts[name], count, "{counts}");
        }
        let reasons = scratch.read("due.rejects.jsonl");
        assert!(reasons.contains("customer") && reasons.contains("is empty"), "{reasons}");
        assert_eq!(
            db.words("SELECT content AS value FROM sms ORDER BY id"),
            [Some("Hi Ann".to_owned()), Some("Hi Zoë \"Z\"".to_owned())]
        );
        crm.run("INSERT INTO people VALUES (6, 'f', '+447400100006', 'Fay')");
        let again = import(&scratch, query, &flags).json();
        assert_eq!((&again["accepted"], &again["duplicates"]), (&1.into(), &3.into()));
    });
}

#[test]
fn values_of_every_type_become_text() {
    with_every_database(|db| {
        let (_crm, scratch) = crm(db);
        let (values, expected) = match db.kind {
            Kind::Postgres => (
                "42::bigint AS a, 12.50::numeric AS b, true AS c, date '2026-11-24' AS d, \
                 timestamp '2026-11-24 09:00:00' AS e, '{\"k\": 1}'::jsonb AS f, \
                 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS g, 1.5::float8 AS h",
                "42 12.50 true 2026-11-24 2026-11-24 09:00:00 {\"k\": 1} a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 1.5",
            ),
            Kind::Mysql => (
                "42 AS a, 12.50 AS b, TRUE AS c, DATE '2026-11-24' AS d, \
                 TIMESTAMP '2026-11-24 09:00:00' AS e, JSON_OBJECT('k', 1) AS f, \
                 'x' AS g, 1.5e0 AS h",
                "42 12.50 1 2026-11-24 2026-11-24 09:00:00 {\"k\": 1} x 1.5",
            ),
            Kind::Sqlite => (
                "42 AS a, '12.50' AS b, TRUE AS c, '2026-11-24' AS d, '2026-11-24 09:00:00' AS e, \
                 json_object('k', 1) AS f, 'x' AS g, 1.5 AS h",
                "42 12.50 1 2026-11-24 2026-11-24 09:00:00 {\"k\":1} x 1.5",
            ),
        };
        let query = format!("SELECT '+447400100001' AS phone, NULL AS blank, {values}");
        let text = "{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ f }} {{ g }} {{ h }}";
        import(&scratch, &query, &["--text", text]).assert_code(0);
        let stored = db.words("SELECT content AS value FROM sms");
        assert_eq!(stored, [Some(expected.to_owned())]);
    });
}

/// Queries that are refused, and what the error says on each engine.
fn refused(kind: Kind) -> Vec<(&'static str, &'static [&'static str])> {
    let mut all: Vec<(&str, &[&str])> = vec![
        (
            "SELECT mobile AS phone FROM people; DELETE FROM people",
            &["multiple commands", "syntax", "not a single `SELECT`"],
        ),
        ("DELETE FROM people", &["returns no columns", "the query writes", "READ ONLY"]),
        ("SELECT mobile AS phone FROM persons", &["persons"]),
        ("SELECT mobile AS phone, name AS phone FROM people", &["two columns `phone`"]),
        ("SELECT name FROM people", &["missing phone column"]),
        ("SELECT name FROM people WHERE 1 = 0", &["missing phone column"]),
        ("   ;\n", &["the query is empty"]),
    ];
    if kind == Kind::Mysql {
        all.push(("CALL emptied()", &["returns no columns"]));
    }
    all.push(match kind {
        Kind::Postgres => (
            "SELECT mobile AS phone, point(1, 2) AS place FROM people",
            &["column `place` of the query has the type `point`"],
        ),
        Kind::Mysql => (
            "SELECT mobile AS phone, CAST(name AS BINARY) AS place FROM people",
            &["column `place` of the query has the type"],
        ),
        Kind::Sqlite => (
            "SELECT mobile AS phone, CAST(name AS BLOB) AS place FROM people",
            &["column `place` of the query has the type `blob`"],
        ),
    });
    all
}

#[test]
fn query_that_writes_or_has_no_list_is_refused() {
    with_every_database(|db| {
        let (crm, scratch) = crm(db);
        with_people(&crm);
        if db.kind == Kind::Mysql {
            crm.run(
                "DELIMITER //\n\
                 CREATE PROCEDURE emptied() \
                 BEGIN COMMIT; SET SESSION TRANSACTION READ WRITE; DELETE FROM people; END//\n\
                 DELIMITER ;\n\
                 DO 0",
            );
        }
        for (query, said) in refused(db.kind) {
            let ran = import(&scratch, query, &["--text", "Hi"]);
            assert_eq!(ran.code(), Some(2), "{query}: {ran}");
            let stderr = ran.stderr();
            assert!(said.iter().any(|part| stderr.contains(part)), "{query}: {ran}");
            assert_eq!(crm.number("SELECT count(*) AS value FROM people"), 5);
        }
        let query = "SELECT mobile AS phone FROM people";
        let ran = import(&scratch, query, &["--text", "Hi", "--key", "customer"]).assert_code(2);
        assert!(ran.stderr().contains("`customer`"), "{ran}");
    });
}

#[test]
fn query_is_ended_after_its_time() {
    with_every_database(|db| {
        let (_crm, scratch) = crm(db);
        let text = scratch.read("smsq.toml");
        scratch.write("smsq.toml", &format!("{text}\n[import]\nquery_timeout = \"300ms\"\n"));
        let slow = match db.kind {
            Kind::Postgres => "SELECT 'x' FROM pg_sleep(600)",
            Kind::Mysql => {
                "SELECT count(*) FROM information_schema.collations a, information_schema.collations b, \
                 information_schema.collations c, information_schema.collations d"
            }
            // It never returns a row.
            Kind::Sqlite => {
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"
            }
        };
        let query = format!("SELECT '+447400100001' AS phone, ({slow}) AS slow");
        let ran = import(&scratch, &query, &["--text", "Hi"]).assert_code(2);
        assert!(ran.stderr().contains("takes longer than 300ms"), "{ran}");
    });
}

#[test]
fn statement_that_returns_nothing_does_nothing() {
    let db = Database::in_a_file();
    let (_crm, scratch) = crm(&db);
    for (query, said) in [
        ("ATTACH 'made.db' AS other", "the query returns no columns"),
        ("VACUUM INTO 'made.db'", "the query writes"),
        ("-- nothing", "the query returns no columns"),
    ] {
        let ran = import(&scratch, query, &["--text", "Hi"]).assert_code(2);
        assert!(ran.stderr().contains(said), "{query}: {ran}");
        assert!(!scratch.path("made.db").exists(), "{query}");
    }
}

#[test]
fn missing_source_is_a_clear_error() {
    let scratch = Scratch::new();
    scratch.write("due.sql", "SELECT 1 AS phone");
    scratch.write("smsq.toml", "[sources.crm]\nurl = \"sqlite:crm.db\"\n");
    for (from, said) in [
        ("crm", "cannot read `crm.db`: it does not exist"),
        ("crn", "unknown source `crn`"),
        ("postgres://reader@127.0.0.1:1/crm", "cannot read `postgres://reader@127.0.0.1:1/crm`"),
        ("mysql://reader@127.0.0.1:1/crm", "cannot read `mysql://reader@127.0.0.1:1/crm`"),
        ("oracle://reader@db/crm", "unknown kind of database"),
        ("postgres://reader:secret@127.0.0.1:1/crm", "the password in `--from` is visible"),
    ] {
        let ran = scratch
            .run(["import", "--from", from, "--query", "due.sql", "--text", "Hi"])
            .assert_code(2);
        assert!(ran.stderr().contains(said), "{said}: {ran}");
        assert!(!ran.stderr().contains("secret"), "{ran}");
    }
    let ran = scratch.run(["import", "--query", "due.sql", "--text", "Hi"]).assert_code(2);
    assert!(ran.stderr().contains("--from"), "{ran}");
}

#[test]
fn password_of_a_source_comes_from_the_environment() {
    let Some(db) = Database::if_there(Kind::Postgres) else {
        return;
    };
    let scratch = Scratch::new();
    let url = db.url.replace("smsq:smsq@", "smsq@");
    scratch.write("smsq.toml", &format!("[sources.crm]\nurl = \"{url}\"\n"));
    scratch.write("due.sql", "SELECT '+447400100001' AS phone");
    let line = ["import", "--from", "crm", "--query", "due.sql", "--text", "Hi"];
    scratch.run_with(line, &[("SMSQ__SOURCES__CRM__PASSWORD", "smsq")]).assert_code(0);
}

#[test]
fn million_rows_are_read_with_little_memory() {
    with_every_database(|db| {
        let (_crm, scratch) = crm(db);
        let series = db.kind.series(1_000_000);
        // Without a phone column it ends when all rows were read.
        let query = format!(
            "SELECT n AS position, 'a text of some length, as long as a name' AS name FROM {series}"
        );
        scratch.write("due.sql", &query);
        let line = ["import", "--from", "crm", "--query", "due.sql", "--text", "Hi"];
        let mut command = scratch.command_after("ulimit -v 1000000", line);
        let ran = command.output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("missing phone column"), "{stderr}");
    });
}

#[test]
fn query_without_rows_imports_nothing() {
    with_every_database(|db| {
        let (crm, scratch) = crm(db);
        with_people(&crm);
        let query = "SELECT mobile AS phone FROM people WHERE 1 = 0";
        let ran = import(&scratch, query, &["--text", "Hi"]);
        assert!(ran.stderr().contains("`due.sql` has no rows"), "{ran}");
        assert_eq!(db.number("SELECT count(*) AS value FROM sms"), 0);
    });
}
