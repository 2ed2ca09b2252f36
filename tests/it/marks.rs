//! What becomes of the messages of a killed worker: those without a request are sent, those with a response have its
//! result, and only the rest is unknown.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use smsq_sandbox::SandboxConfig;

use crate::support::Scratch;
use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, list};
use crate::support::shell::sqlite;
use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::unstored::{accept_sent_rows, left_files, start_with_unstorable_results};
use crate::workers::freeze;

const SEND: [&str; 4] = ["send", "--concurrency", "64", "--quiet"];
const SENDING: &str = "SELECT count(*) AS value FROM sms WHERE state = 1";

fn mark_files(db: &Database, scratch: &Scratch) -> Vec<PathBuf> {
    left_files(db, scratch, "marks")
}

/// Configures a provider to which no connection is ever ready: it does not answer the TLS handshake.
fn configure_mute(scratch: &Scratch, more: &str) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mute = listener.local_addr().expect("an address");
    let gateway = Practice::start(SandboxConfig::default());
    gateway.without_references("timeout = \"25s\"").configure(scratch);
    let toml = scratch.read("smsq.toml");
    let toml = toml.replace(&gateway.url(), &format!("https://{mute}"));
    scratch.write("smsq.toml", &format!("{more}{toml}"));
    listener
}

#[test]
fn killed_worker_leaves_only_started_messages_unknown() {
    with_every_database(|db| {
        // Until the first acceptance only a few messages are in flight.
        let slow = TimedProvider::start(None, |_, earlier| match earlier {
            0 => Reply::Json(r#"{ "id": "first" }"#.to_owned()),
            _ => Reply::Never,
        });
        let quick = Practice::start(SandboxConfig::default());
        let scratch = quick.without_references("timeout = \"25s\"").at(&db.url).scratch();
        let toml = scratch.read("smsq.toml");
        scratch.write("smsq.toml", &toml.replace(&quick.url(), &slow.url()));
        scratch.import(&list(200));
        let mut killed = scratch.start(SEND);
        assert!(killed.until("64 are in flight", || slow.sends() >= 65));
        assert_eq!(mark_files(db, &scratch).len(), 1);
        killed.kill();

        scratch.write("smsq.toml", &toml);
        scratch.run(SEND).assert_code(1);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(slow.sends(), 65);
        assert_eq!(status["unknown"], 64, "{status}");
        assert_eq!(status["sent"], 200 - 64, "{status}");
        quick.assert_each_once(200 - 65);
        let failures = scratch.failures("c");
        let phones =
            failures.iter().map(|failure| failure["phone"].as_str().expect("a phone").to_owned());
        let unknown: BTreeSet<String> = phones.collect();
        assert!(unknown.is_disjoint(&quick.phones()));
        assert_eq!(mark_files(db, &scratch), Vec::<PathBuf>::new());
    });
}

#[test]
fn killed_worker_releases_messages_without_a_request() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let _mute = configure_mute(&scratch, "");
        scratch.import(&list(20));
        let mut killed = scratch.start(SEND);
        assert!(killed.until("some are claimed", || db.number(SENDING) > 0));
        killed.kill();

        let quick = Practice::start(SandboxConfig::default());
        quick.without_references("").configure(&scratch);
        scratch.run(SEND).assert_code(0);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], 20);
        quick.assert_each_once(20);
        let attempts = db.number("SELECT sum(attempts) AS value FROM sms_sent");
        assert_eq!(attempts, 20, "a claim without a request is no attempt");
        assert_eq!(mark_files(db, &scratch), Vec::<PathBuf>::new());
    });
}

#[test]
fn frozen_worker_makes_messages_without_a_request_unknown() {
    let scratch = Scratch::new();
    let _mute = configure_mute(&scratch, "[sender]\nlease = \"30s\"\n");
    scratch.import(&list(20));
    let mut frozen = scratch.start(SEND);
    let sending = || -> u64 { sqlite(&scratch, SENDING).parse().expect("a count") };
    assert!(frozen.until("some are claimed", || sending() > 0));
    freeze(&scratch, &mut frozen);
    let claimed = sending();
    // As if its lease had run out: a process that is not gone may continue.
    sqlite(&scratch, "UPDATE worker SET heartbeat_at = heartbeat_at - 60000");

    let quick = Practice::start(SandboxConfig::default());
    quick.without_references("").configure(&scratch);
    scratch.run(SEND).assert_code(1);
    assert_eq!(scratch.checked_status(Some("c"))["unknown"], claimed);
    quick.assert_each_once(20 - claimed);
    // It ends without having started them, so they are not in doubt any more.
    frozen.signal(Signal::CONT);
    frozen.signal(Signal::TERM);
    frozen.ended();
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["queued"], claimed, "{status}");
    assert_eq!(status["sent"], 20 - claimed, "{status}");
    quick.assert_each_once(20 - claimed);
}

#[test]
fn killed_worker_leaves_its_results_to_the_next() {
    with_every_database(|db| {
        let (gateway, scratch, killed) = start_with_unstorable_results(db);
        let answered = gateway.accepted();
        killed.kill();
        accept_sent_rows(db);
        assert!(db.number(SENDING) >= i64::try_from(answered).expect("small"));
        scratch.run(SEND).assert_code(0);
        gateway.assert_each_once(40);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], 40);
        let counts = db.number("SELECT sum(accepted + attempts) AS value FROM sms_sent");
        assert_eq!(counts, 80);
        let anonymous = db.number(
            "SELECT count(*) AS value FROM sms_sent WHERE provider <> 'cellar' OR message_id IS NULL",
        );
        assert_eq!(anonymous, 0);
        assert_eq!(mark_files(db, &scratch), Vec::<PathBuf>::new());
    });
}

#[test]
fn results_of_a_killed_worker_wait_for_the_database() {
    with_every_database(|db| {
        let (gateway, scratch, killed) = start_with_unstorable_results(db);
        killed.kill();
        let mut next = scratch.start(["send"]);
        next.until_printed("it tries", |said| said.contains("results wait in memory"));
        accept_sent_rows(db);
        next.ended().assert_code(0);
        gateway.assert_each_once(40);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], 40);
    });
}

#[test]
fn messages_are_unknown_if_the_marks_are_damaged() {
    let damages: [fn(&Path); 4] = [
        |path| fs::remove_file(path).expect("removed"),
        |path| fs::write(path, "").expect("emptied"),
        |path| overwrite(path, 1_024 + 30),
        |path| overwrite(path, 30),
    ];
    for damage in damages {
        let db = Database::in_a_file();
        let (gateway, scratch, killed) = start_with_unstorable_results(&db);
        killed.kill();
        accept_sent_rows(&db);
        let claimed = db.number(SENDING);
        damage(&mark_files(&db, &scratch)[0]);
        scratch.run(SEND).assert_code(1);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(status["unknown"], claimed, "{status}");
        assert_eq!(status["queued"], 0, "{status}");
        gateway.assert_each_once(40);
        assert_eq!(mark_files(&db, &scratch), Vec::<PathBuf>::new());
    }
}

/// Changes some bytes of a file.
fn overwrite(path: &Path, at: u64) {
    let file = OpenOptions::new().write(true).open(path);
    let written = file.and_then(|file| file.write_all_at(b"????", at));
    written.expect("overwritten");
}

#[test]
fn kills_with_64_in_flight_repeat_and_lose_nothing() {
    const MESSAGES: u64 = 4_000;
    with_every_database(|db| {
        let mut random = StdRng::seed_from_u64(6);
        let gateway = Practice::start(SandboxConfig {
            jitter: Duration::from_millis(20),
            ignore_references: true,
            ..SandboxConfig::default()
        });
        let scratch = gateway.without_references("").at(&db.url).imported(&list(MESSAGES));
        let (mut claimed, mut kills) = (0, 0);
        while kills < 6 {
            let until = gateway.requests() + random.random_range(100..400);
            let mut killed = scratch.start(SEND);
            assert!(killed.until("requests", || gateway.requests() >= until), "{kills}");
            killed.kill();
            kills += 1;
            claimed += db.number(SENDING);
            scratch.checked_status(Some("c"));
        }
        scratch.run(SEND).assert_code(1);
        let status = scratch.checked_status(Some("c"));
        let unknown = status["unknown"].as_i64().expect("a count");
        assert!(unknown < claimed, "{claimed} were claimed: {status}");
        assert_eq!((&status["queued"], &status["failed"]), (&0.into(), &0.into()));
        let seen = gateway.stats();
        assert_eq!(seen.accepted, seen.distinct_recipients, "{seen:?}");
        let (sent, unknown) = (&status["sent"], unknown.unsigned_abs());
        assert_eq!(sent, MESSAGES - unknown, "{status}");
        assert!((MESSAGES - unknown..=MESSAGES).contains(&seen.accepted), "{status} {seen:?}");
    });
}
