//! Signals and limits that end a run in the middle of the work: what runs is settled, and the next run
//! goes on. And a worker that is frozen for longer than its lease.

use std::time::Duration;

use rustix::process::Signal;
use smsq::sandbox::Behaviour;

use crate::support::Scratch;
use crate::support::practice::{Practice, list};
use crate::support::running::eventually;
use crate::support::shell::try_sqlite;

const SEND: [&str; 3] = ["send", "--slots", "8"];

fn latent(millis: u64) -> Behaviour {
    Behaviour {
        latency: Duration::from_millis(millis),
        ..Behaviour::default()
    }
}

/// Those after the first come while it is stopping.
fn stops_gently(signals: &[Signal], code: i32) {
    let gateway = Practice::start(latent(400));
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.import(&list(40));
    let mut sending = scratch.start(SEND);
    assert!(sending.until("slots are busy", || gateway.requests() >= 12));
    for (number, signal) in signals.iter().enumerate() {
        if number > 0 {
            sending.until_said("it is stopping", |said| said.contains("stopping"));
        }
        sending.signal(*signal);
    }
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(code), "{ran}");
    let accepted = gateway.accepted();
    assert!(accepted < 40);
    assert!(
        ran.stdout().contains(&format!("sent {accepted} messages")),
        "{ran}"
    );
    assert!(ran.stderr().contains("goes on from here"), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["sent"], accepted, "{standing}");
    assert_eq!(standing["queued"], 40 - accepted, "{standing}");
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(40);
    assert_eq!(gateway.requests(), 40);
}

#[test]
fn ctrl_c_settles_what_runs_and_the_next_run_goes_on() {
    stops_gently(&[Signal::INT], 130);
}

#[test]
fn sigterm_settles_what_runs_and_the_next_run_goes_on() {
    stops_gently(&[Signal::TERM], 143);
}

#[test]
fn a_signal_that_comes_to_the_process_and_its_group_is_one_signal() {
    stops_gently(&[Signal::INT, Signal::INT], 130);
}

#[test]
fn a_second_signal_aborts_and_the_next_run_lists_what_was_running() {
    let gateway = Practice::start(latent(20_000));
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "timeout = \"25s\"");
    scratch.import(&list(12));
    let mut sending = scratch.start(SEND);
    assert!(sending.until("slots are busy", || gateway.requests() >= 8));
    sending.signal(Signal::INT);
    sending.until_said("it is stopping", |said| said.contains("stopping"));
    sending.signal(Signal::TERM);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(143), "{ran}");
    assert!(ran.stderr().contains("unknown"), "{ran}");

    let quick = Practice::start(Behaviour::default());
    quick.forgetful(&scratch, "");
    let ran = scratch.run(["send", "--format", "json", "--campaign", "c"]);
    assert_eq!(ran.code(), Some(1), "{ran}");
    assert_eq!(ran.json()["unknown"], 8, "{ran}");
    quick.assert_each_once(4);
    assert!(quick.phones().is_disjoint(&gateway.phones()));
    scratch.sound_standing(Some("c"));
}

#[test]
fn a_limited_run_sends_so_many_and_leaves_the_rest() {
    let gateway = Practice::start(Behaviour::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.import(&list(30));
    let ran = scratch.run(["send", "--limit", "10"]);
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(10);
    assert_eq!(gateway.requests(), 10);
    assert!(ran.stderr().contains("20 messages wait"), "{ran}");
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(30);
}

#[test]
fn a_sender_that_was_frozen_beyond_its_lease_is_taken_for_dead_and_repeats_nothing() {
    let gateway = Practice::start(latent(200));
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "timeout = \"3s\"\nrate = \"30/s\"");
    let toml = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("[sender]\nlease = \"5s\"\n{toml}"));
    scratch.import(&list(60));
    let mut frozen = scratch.start(SEND);
    assert!(frozen.until("slots are busy", || gateway.requests() >= 20));
    // Not in the middle of a transaction: then nobody else could write.
    eventually("it is frozen between two transactions", || {
        frozen.signal(Signal::STOP);
        let is_free = try_sqlite(&scratch, "BEGIN IMMEDIATE").is_ok();
        if !is_free {
            frozen.signal(Signal::CONT);
        }
        is_free
    });
    // What it was sending is parked by another, which sends the rest.
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(1), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    let unknown = standing["unknown"].as_u64().expect("a count");
    assert!((1..=8).contains(&unknown), "{standing}");
    let requests = gateway.requests();

    // It thaws: what it knows of its own messages is the truth, and it starts nothing that is done.
    frozen.signal(Signal::CONT);
    let ran = frozen.ended();
    assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
    assert_eq!(gateway.requests(), requests);
    let stats = gateway.stats();
    assert_eq!(stats.accepted, stats.distinct_recipients, "{stats:?}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["queued"], 0, "{standing}");
    assert_eq!(standing["sending"], 0, "{standing}");
    assert_eq!(standing["failed"], 0, "{standing}");
}
