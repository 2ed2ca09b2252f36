//! The program is killed with SIGKILL at random times, and the gateway counts the messages: none is lost or sent twice.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq_sandbox::SandboxConfig;

use crate::support::Scratch;
use crate::support::client::Client;
use crate::support::databases::Kind;
use crate::support::practice::{Practice, list};

/// The lease of workers. A dead process on this host is noticed sooner.
const LEASE: Duration = Duration::from_secs(30);

const SEND: [&str; 4] = ["send", "--concurrency", "8", "--quiet"];

/// Responses are slow, so that some requests are always running.
fn unhurried(ignore_references: bool) -> SandboxConfig {
    SandboxConfig {
        latency: Duration::from_millis(3),
        jitter: Duration::from_millis(12),
        ignore_references,
        ..SandboxConfig::default()
    }
}

/// Starts the sender and kills it after a random number of requests; false if it ended before.
fn killed(scratch: &Scratch, gateway: &Practice, random: &mut StdRng) -> bool {
    let until = gateway.requests() + random.random_range(0..40);
    let mut sending = scratch.start(SEND);
    let alive = sending.until("requests", || gateway.requests() >= until);
    sending.kill();
    alive
}

#[test]
fn killed_sender_with_unique_references_repeats_nothing() {
    let mut random = StdRng::seed_from_u64(1);
    let gateway = Practice::start(unhurried(false));
    let scratch = gateway.with_references("").imported(&list(500));
    let mut kills = 0;
    while kills < 12 {
        assert!(killed(&scratch, &gateway, &mut random), "after {kills} kills");
        kills += 1;
        scratch.checked_status(Some("c"));
    }
    let began = Instant::now();
    scratch.run(SEND).assert_code(0);
    assert!(began.elapsed() < LEASE * 2 / 3, "it waited for the dead");
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 500);
    gateway.assert_each_once(500);
    assert!(gateway.requests() > 500, "no kill came between a request and its answer");
}

#[test]
fn killed_sender_leaves_unknown_messages_for_the_operator() {
    let mut random = StdRng::seed_from_u64(2);
    let gateway = Practice::start(unhurried(true));
    let scratch = gateway.without_references("").imported(&list(500));
    for kills in 0..12 {
        assert!(killed(&scratch, &gateway, &mut random), "after {kills} kills");
        let status = scratch.checked_status(Some("c"));
        let sent = status["sent"].as_u64().expect("a count");
        let counts = gateway.stats();
        assert!(sent <= counts.accepted, "{status} {counts:?}");
        assert_eq!(counts.accepted, counts.distinct_recipients, "{counts:?}");
    }
    let began = Instant::now();
    scratch.run(SEND).assert_code(1);
    assert!(began.elapsed() < LEASE * 2 / 3, "it waited for the dead");

    let status = scratch.checked_status(Some("c"));
    let failures = scratch.failures("c");
    let unknown: BTreeSet<String> = failures
        .iter()
        .inspect(|failure| assert_eq!(failure["state"], "unknown", "{failure}"))
        .map(|failure| failure["phone"].as_str().expect("a phone").to_owned())
        .collect();
    assert!(!unknown.is_empty());
    assert_eq!(status["unknown"], unknown.len(), "{status}");
    assert_eq!(status["queued"], 0, "{status}");
    assert_eq!(status["failed"], 0, "{status}");

    // The operator settles the messages that the gateway has, and retries the others.
    let accepted = gateway.phones();
    for phone in unknown.intersection(&accepted) {
        let settle = ["settle", "--campaign", "c", "--unknown", "sent", "--phone"];
        scratch.run(settle.into_iter().chain([phone.as_str()])).assert_code(0);
    }
    scratch.run(["retry", "--campaign", "c", "--unknown"]).assert_code(0);
    scratch.run(SEND).assert_code(0);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 500);
    gateway.assert_each_once(500);
}

#[test]
fn second_sender_reclaims_messages_of_the_killed_one() {
    let mut random = StdRng::seed_from_u64(3);
    let gateway =
        Practice::start(SandboxConfig { latency: Duration::from_millis(40), ..unhurried(false) });
    let scratch = gateway.with_references("").imported(&list(600));
    let began = Instant::now();
    let living = scratch.start(SEND);
    let mut kills = 0;
    // The other sender may send all messages before these have started.
    while kills < 4 && killed(&scratch, &gateway, &mut random) {
        kills += 1;
    }
    living.ended().assert_code(0);
    assert!(kills > 0, "no sender was killed while messages were left");
    assert!(began.elapsed() < LEASE * 2 / 3, "it waited for the dead");
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 600);
    gateway.assert_each_once(600);
}

#[test]
fn living_sender_resends_what_a_dead_one_reclaimed() {
    let gateway =
        Practice::start(SandboxConfig { latency: Duration::from_millis(100), ..unhurried(false) });
    let scratch = gateway.with_references("").imported(&list(100));
    let mut living = scratch.start(SEND);
    assert!(living.until("it sends", || gateway.requests() > 0));
    // The state that a sender leaves which is killed after it has reclaimed a message and before it resends it.
    let reclaimed = "UPDATE sms SET state = 2, in_doubt = 1, claim = 1, attempts = 1, reference = 'reclaimed', \
                  claimed_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), \
                  doubt_since = created_at \
                  WHERE id = (SELECT max(id) FROM sms WHERE state = 0)";
    let file = format!("sqlite://{}", scratch.path("smsq.db").display());
    Client::open(Kind::Sqlite, &file).run(reclaimed);
    living.ended().assert_code(0);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 100);
    gateway.assert_each_once(100);
}

/// The size of a database in bytes.
fn written(scratch: &Scratch, name: &str) -> u64 {
    let size = |end: &str| std::fs::metadata(scratch.path(&format!("{name}{end}")));
    let size = |end: &str| size(end).map_or(0, |metadata| metadata.len());
    size("") + size("-wal")
}

#[test]
fn killed_and_repeated_import_has_every_row_once() {
    // Several batches, each in one transaction.
    const ROWS: u64 = 70_000;
    let mut random = StdRng::seed_from_u64(4);
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("").scratch();
    scratch.write("list.csv", &list(ROWS));
    let import = ["import", "list.csv", "--text", "Hello", "--campaign", "c", "--format", "json"];
    let whole = ["--database", "sqlite://whole.db"];
    scratch.run(import.into_iter().chain(whole)).assert_code(0);
    let size = written(&scratch, "whole.db");

    let mut kills = 0;
    let ran = loop {
        let until = written(&scratch, "smsq.db") + random.random_range(0..size / 6);
        let mut importing = scratch.start(import);
        if !importing.until("rows are written", || written(&scratch, "smsq.db") >= until) {
            break importing.ended();
        }
        importing.kill();
        kills += 1;
        if scratch.path("smsq.db").exists() {
            scratch.checked_status(None);
        }
    };
    assert!(kills >= 2, "{kills} kills");
    assert_eq!(ran.code(), Some(0), "{ran}");
    assert_eq!(scratch.checked_status(Some("c"))["imported"], ROWS);
    let again = scratch.run(import).json();
    assert_eq!(again["accepted"], 0, "{again}");
    assert_eq!(again["duplicates"], ROWS, "{again}");
}

#[test]
fn killed_and_repeated_cancel_cancels_every_row() {
    const ROWS: u64 = 12_000;
    let mut random = StdRng::seed_from_u64(5);
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("").imported(&list(ROWS));
    let mut kills = 0;
    let ran = loop {
        let until = written(&scratch, "smsq.db") + random.random_range(10_000..400_000);
        let mut cancelling = scratch.start(["cancel", "--campaign", "c"]);
        if !cancelling.until("rows are moved", || written(&scratch, "smsq.db") >= until) {
            break cancelling.ended();
        }
        cancelling.kill();
        kills += 1;
        scratch.checked_status(Some("c"));
    };
    assert!(kills > 0);
    assert_eq!(ran.code(), Some(0), "{ran}");
    assert_eq!(scratch.checked_status(Some("c"))["cancelled"], ROWS);
    // No message was sent, so the list can be imported again.
    let import = ["import", "list.csv", "--text", "Hello", "--campaign", "c", "--format", "json"];
    let again = scratch.run(import).json();
    assert_eq!(again["accepted"], ROWS, "{again}");
    scratch.checked_status(Some("c"));
}
