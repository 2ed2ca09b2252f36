//! The tables: programs that create them at once, one that is killed meanwhile, and those of an earlier revision.

use std::fs;

use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::running::Running;
use crate::support::waiting::eventually;
use crate::support::{Scratch, repository};

const PROGRAMS: usize = 8;
const HISTORY: &str =
    "CREATE TABLE __diesel_schema_migrations (version VARCHAR(50) PRIMARY KEY NOT NULL,
    run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)";

/// Starts a program that creates the tables and adds a number to the suppression list.
fn start(scratch: &Scratch, number: usize) -> Running {
    scratch.start(["suppress", "add", &format!("+44740010000{number}")])
}

fn assert_done(running: Running) {
    running.ended().assert_code(0);
}

#[test]
fn programs_that_start_at_once_create_the_tables_once() {
    for _ in 0..3 {
        with_every_database(|db| {
            let scratch = Scratch::at(&db.url);
            let programs: Vec<_> = (0..PROGRAMS).map(|number| start(&scratch, number)).collect();
            programs.into_iter().for_each(assert_done);
            let count = |table: &str| db.number(&format!("SELECT count(*) AS value FROM {table}"));
            assert_eq!(usize::try_from(count("suppression")), Ok(PROGRAMS));
            assert_eq!(count("__diesel_schema_migrations"), 1);
        });
    }
}

/// On MySQL, where each statement is committed alone.
#[test]
fn tables_of_a_killed_program_are_completed_by_a_waiting_one() {
    let Some(db) = Database::if_there(Kind::Mysql) else {
        return;
    };
    let scratch = Scratch::at(&db.url);
    let sessions = |state: &str| {
        db.number(&format!(
            "SELECT count(*) AS value FROM information_schema.processlist \
             WHERE db = database() AND state = '{state}'"
        ))
    };
    // Locks one of the tables, so that the program stops there.
    let script = fs::read_to_string(repository("migrations/mysql/0001_tables.sql")).expect("it");
    let import = script.split_inclusive(";\n").find(|sql| sql.contains("EXISTS import ("));
    let creating = "INSERT INTO __diesel_schema_migrations (version) VALUES ('creating')";
    db.run(&format!("{HISTORY}; {creating}; {}", import.expect("the table")));
    let mut other = db.client();
    other.run("LOCK TABLES import WRITE");
    let killed = start(&scratch, 1);
    eventually("it waits for the table", || sessions("Waiting for table metadata lock") == 1);
    let waiting = start(&scratch, 2);
    eventually("the next one waits for it", || sessions("User lock") == 1);
    killed.kill();
    other.run("UNLOCK TABLES");
    assert_done(waiting);
    let phones = db.words("SELECT phone AS value FROM suppression");
    assert_eq!(phones, [Some("+447400100002".to_owned())]);
}

#[test]
fn tables_of_an_earlier_revision_are_refused_by_every_command() {
    with_every_database(|db| {
        db.run(&format!(
            "{HISTORY}; INSERT INTO __diesel_schema_migrations (version) VALUES ('0001')"
        ));
        let scratch = Scratch::at(&db.url);
        scratch.write("list.csv", "phone\n+447400100001\n");
        let prove = format!("prove --database {}", db.url);
        for line in ["status", "send", "cancel c", "import list.csv --text Hello", &prove] {
            let ran = scratch.run(line.split(' ')).assert_code(2);
            let reason = "was made by a development version of smsq, before its first release; this smsq cannot use it\n\
                hint: nothing was changed; finish with the smsq that made it, or set `--database` to a new database\n";
            assert!(ran.stderr().ends_with(reason), "{ran}");
        }
        assert_eq!(db.number("SELECT count(*) AS value FROM __diesel_schema_migrations"), 1);
    });
}
