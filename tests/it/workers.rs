//! Several workers on one database, as processes: the list of workers, their shared limit, and workers that are
//! frozen, killed or on another host.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::Scratch;
use crate::support::practice::{Practice, list, with_latency};
use crate::support::running::Running;
use crate::support::shell::{sqlite, try_sqlite};
use crate::support::waiting::eventually;

const SEND: [&str; 4] = ["send", "--concurrency", "8", "--quiet"];
const LEASE: Duration = Duration::from_secs(5);

/// Sets the shortest lease, so that tests are fast.
fn short_lease(scratch: &Scratch) {
    let toml = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("[sender]\nlease = \"5s\"\n{toml}"));
}

fn workers(scratch: &Scratch) -> Vec<Value> {
    let status = scratch.run(["status", "--format", "json"]).json();
    status["workers"].as_array().expect("a list").clone()
}

/// Stops the process, but not within a transaction: then no other process could write.
pub(crate) fn freeze(scratch: &Scratch, sending: &mut Running) {
    eventually("it is frozen between two transactions", || {
        sending.freeze();
        let is_free = try_sqlite(scratch, "BEGIN IMMEDIATE").is_ok();
        if !is_free {
            sending.signal(Signal::CONT);
        }
        is_free
    });
}

#[test]
fn status_lists_workers() {
    let gateway = Practice::start(with_latency(20_000));
    let scratch = gateway.without_references("timeout = \"25s\"").imported(&list(20));
    assert_eq!(workers(&scratch), Vec::<Value>::new());
    let mut one = scratch.start(SEND);
    assert!(one.until("its requests are in flight", || gateway.requests() >= 8));
    let mut other = scratch.start(["send", "--concurrency", "4", "--quiet"]);
    assert!(other.until("so are the other's", || gateway.requests() >= 12));

    let listed = workers(&scratch);
    let sending: Vec<&Value> = listed.iter().map(|worker| &worker["sending"]).collect();
    assert_eq!(sending, [8, 4], "{listed:?}");
    for worker in &listed {
        assert!(worker["id"].is_i64() && worker["pid"].is_i64(), "{worker}");
        assert!(!worker["host"].as_str().expect("a name").is_empty());
        for key in ["started_at", "heartbeat_at"] {
            assert!(worker[key].as_str().expect("an instant").ends_with('Z'));
        }
    }
    assert_ne!(listed[0]["id"], listed[1]["id"]);
    assert_ne!(listed[0]["pid"], listed[1]["pid"]);
    let text = scratch.run(["status"]).stdout();
    assert!(text.contains("heartbeat"), "{text}");
}

#[test]
fn four_workers_send_each_message_once() {
    let gateway = Practice::start(with_latency(20));
    let scratch = gateway.without_references("rate = \"200/s\"").imported(&list(600));
    let senders: Vec<Running> = (0..4).map(|_| scratch.start(SEND)).collect();
    for sender in senders {
        sender.ended().assert_code(0);
    }
    gateway.assert_each_once(600);
    assert_eq!(gateway.requests(), 600);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 600);
    assert_eq!(workers(&scratch), Vec::<Value>::new());
}

#[test]
fn worker_frozen_past_its_lease_continues_with_a_new_id() {
    let gateway = Practice::start(with_latency(50));
    let scratch = gateway.without_references("timeout = \"3s\"\nrate = \"20/s\"").scratch();
    short_lease(&scratch);
    scratch.import(&list(400));
    let mut frozen = scratch.start(SEND);
    assert!(frozen.until("it sends", || gateway.requests() >= 20));
    let before = workers(&scratch)[0]["id"].clone();
    freeze(&scratch, &mut frozen);
    let mut peer = scratch.start(["send", "--concurrency", "1", "--quiet"]);
    let reclaimed = peer.until("the other worker reclaims it", || {
        workers(&scratch).iter().all(|worker| worker["id"] != before)
    });
    assert!(reclaimed, "{}", peer.ended());
    let unknown = scratch.checked_status(Some("c"))["unknown"].clone();
    assert!(unknown.as_u64().is_some_and(|unknown| unknown <= 8), "{unknown}");

    frozen.signal(Signal::CONT);
    assert!(frozen.until("it is back under a new id", || {
        let ids: Vec<Value> = workers(&scratch).iter().map(|one| one["id"].clone()).collect();
        ids.len() == 2 && !ids.contains(&before)
    }));
    // Both continue to the end, and no message is sent twice.
    for ended in [frozen.ended(), peer.ended()] {
        assert!(matches!(ended.code(), Some(0 | 1)), "{ended}");
    }
    let summary = scratch.checked_status(Some("c"));
    assert_eq!(summary["queued"], 0, "{summary}");
    assert_eq!(summary["sending"], 0, "{summary}");
    assert_eq!(summary["failed"], 0, "{summary}");
    let stats = gateway.stats();
    assert_eq!(stats.accepted, stats.distinct_recipients, "{stats:?}");
    let sent = summary["sent"].as_u64().expect("a count");
    let unknown = summary["unknown"].as_u64().expect("a count");
    assert_eq!(sent + unknown, 400, "{summary}");
    assert!((sent..=sent + unknown).contains(&stats.accepted), "{summary} {stats:?}");
}

#[test]
fn messages_of_a_silent_remote_worker_are_reclaimed() {
    let gateway = Practice::start(with_latency(20_000));
    let scratch = gateway.without_references("timeout = \"3s\"").scratch();
    short_lease(&scratch);
    scratch.import(&list(8));
    let mut dead = scratch.start(SEND);
    assert!(dead.until("its requests are in flight", || gateway.requests() >= 8));
    dead.kill();
    // As if it had run on another host: its process cannot be inspected.
    sqlite(&scratch, "UPDATE worker SET boot_id = 'another host'");
    let beat: i64 =
        sqlite(&scratch, "SELECT heartbeat_at FROM worker").parse().expect("an instant");
    scratch.run(SEND).assert_code(1);
    let summary = scratch.checked_status(Some("c"));
    assert_eq!(summary["unknown"], 8, "{summary}");
    let clock = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";
    let now: i64 = sqlite(&scratch, clock).parse().expect("an instant");
    let lease = i64::try_from(LEASE.as_millis()).expect("small");
    assert!(now - beat > lease, "it was not waited for: {} ms", now - beat);
    let words = sqlite(&scratch, "SELECT DISTINCT last_reason FROM sms");
    assert!(words.contains("fell silent"), "{words}");
    assert_eq!(workers(&scratch), Vec::<Value>::new());
}

#[test]
fn killed_worker_loses_only_its_messages_in_flight() {
    let gateway = Practice::start(with_latency(20));
    let scratch = gateway.with_references("rate = \"100/s\"").imported(&list(500));
    let living = [scratch.start(SEND), scratch.start(SEND)];
    for kills in 1..=3 {
        let mut killed = scratch.start(SEND);
        assert!(killed.until("some are sent", || gateway.requests() >= kills * 100));
        killed.kill();
    }
    for sender in living {
        sender.ended().assert_code(0);
    }
    gateway.assert_each_once(500);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 500);
}
