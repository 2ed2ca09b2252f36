//! A worker that is still running when a newer smsq brings the tables up to date stops, and loses no result. There is no
//! second version of the tables yet, so the tests record one, as the newer program does last.
//!
//! `tests/upgrade` also plays this with the program of an earlier revision.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Scratch;
use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, list, with_latency};
use crate::support::running::Running;
use crate::support::waiting::eventually;

const MESSAGES: u64 = 3_000;

/// A worker in the middle of a campaign.
fn start(db: &Database, program: Option<&Path>) -> (Practice, Scratch, Running) {
    let gateway = Practice::start(with_latency(20));
    let scratch = gateway.with_references("").at(&db.url).scratch();
    scratch.write("list.csv", &list(MESSAGES));
    let command = |line: &str| {
        let mut command = scratch.command(line.split(' '));
        if let Some(program) = program {
            let mut other = Command::new(program);
            other.args(command.get_args());
            other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            other.current_dir(command.get_current_dir().expect("a scratch folder"));
            command = other;
        }
        command
    };
    let importing = scratch.start_command(command("import list.csv --text Hello"));
    importing.ended().assert_code(0);
    let sending = scratch.start_command(command("send --concurrency 8"));
    eventually("it sends", || gateway.accepted() > 100);
    (gateway, scratch, sending)
}

/// Records a version of the tables that no program knows.
fn record_newer_schema(db: &Database) {
    db.run("INSERT INTO __diesel_schema_migrations (version) VALUES ('9999')");
}

/// The worker stops in order.
fn assert_stops(db: &Database, sending: Running) {
    let ran = sending.ended().assert_code(2);
    let reason = "was written by a newer smsq (schema 9999)\n\
                  hint: use the smsq that wrote it, or a newer one";
    assert!(ran.stderr().contains(reason), "{ran}");
    // From here on the program knows all versions of the tables.
    db.run("DELETE FROM __diesel_schema_migrations WHERE version = '9999'");
}

fn assert_goes_on(gateway: &Practice, scratch: &Scratch) {
    scratch.run(["send", "--yes"]).assert_code(0);
    gateway.assert_each_once(MESSAGES);
}

fn old_worker_stops(db: &Database, program: Option<&Path>) {
    let (gateway, scratch, sending) = start(db, program);
    record_newer_schema(db);
    assert_stops(db, sending);
    let accepted = gateway.accepted();
    assert!(accepted < MESSAGES, "it did not send all");
    let stored = db.number("SELECT count(*) AS value FROM sms_sent");
    assert_eq!(u64::try_from(stored), Ok(accepted), "all results are stored");
    for left in ["sms WHERE state <> 0", "worker"] {
        assert_eq!(db.number(&format!("SELECT count(*) AS value FROM {left}")), 0, "{left}");
    }
    assert_goes_on(&gateway, &scratch);
}

#[test]
fn running_worker_stops_when_a_newer_smsq_changes_tables() {
    with_every_database(|db| old_worker_stops(db, None));
}

#[test]
fn results_that_newer_tables_do_not_store_are_kept() {
    with_every_database(|db| {
        let (gateway, scratch, sending) = start(db, None);
        db.run("ALTER TABLE sms_sent RENAME COLUMN message_id TO provider_message_id");
        record_newer_schema(db);
        assert_stops(db, sending);
        let stored = db.number("SELECT count(*) AS value FROM sms_sent");
        let is_less = u64::try_from(stored).is_ok_and(|stored| stored < gateway.accepted());
        assert!(is_less, "some are only in a file");
        db.run("ALTER TABLE sms_sent RENAME COLUMN provider_message_id TO message_id");
        assert_goes_on(&gateway, &scratch);
    });
}

/// With the program of `SMSQ_PREVIOUS`.
#[test]
#[ignore = "needs the program of an earlier revision: `tests/upgrade`"]
fn earlier_program_stops_when_a_newer_smsq_changes_tables() {
    let program = PathBuf::from(env::var_os("SMSQ_PREVIOUS").expect("`tests/upgrade` sets it"));
    with_every_database(|db| old_worker_stops(db, Some(&program)));
}
