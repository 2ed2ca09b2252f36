//! Signals and limits that end a run early: requests in flight are settled, and the next run continues. Also a
//! worker that is frozen for longer than its lease.

use std::net::TcpListener;
use std::num::NonZeroU64;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use smsq_sandbox::{FaultRate, Faults, SandboxConfig};

use crate::support::Scratch;
use crate::support::practice::{Practice, list, with_faults, with_latency};
use crate::support::running::Running;
use crate::support::shell::{Lock, try_sqlite};
use crate::support::waiting::eventually;

const SEND: [&str; 3] = ["send", "--concurrency", "8"];
/// For answers that a test holds.
const PATIENT: &str = "timeout = \"25s\"";

/// Sends the first signal while requests are in flight, and the others while it stops.
fn assert_stops_after_settling(signals: &[Signal], code: i32) {
    let gateway = Practice::holding_after(4);
    let scratch = gateway.without_references(PATIENT).imported(&list(40));
    let mut sending = scratch.start(SEND);
    assert!(sending.until("requests are in flight", || gateway.requests() == 12));
    for signal in signals {
        sending.signal(*signal);
        sending.until_printed("it is stopping", |said| said.contains("stopping"));
    }
    gateway.release();
    let ran = sending.ended().assert_code(code);
    let accepted = gateway.accepted();
    assert_eq!(accepted, 12);
    assert!(ran.stdout().contains(&format!("sent {accepted} messages")), "{ran}");
    assert!(ran.stderr().contains("`smsq send` continues"), "{ran}");
    let summary = scratch.checked_status(Some("c"));
    assert_eq!(summary["sent"], accepted, "{summary}");
    assert_eq!(summary["queued"], 40 - accepted, "{summary}");
    scratch.run(SEND).assert_code(0);
    gateway.assert_each_once(40);
    assert_eq!(gateway.requests(), 40);
}

#[test]
fn ctrl_c_settles_requests_and_next_run_continues() {
    assert_stops_after_settling(&[Signal::INT], 130);
}

#[test]
fn sigterm_settles_requests_and_next_run_continues() {
    assert_stops_after_settling(&[Signal::TERM], 143);
}

#[test]
fn sighup_settles_requests_and_next_run_continues() {
    assert_stops_after_settling(&[Signal::HUP], 129);
}

#[test]
fn sighup_is_ignored_under_nohup() {
    let gateway = Practice::holding_after(4);
    let scratch = gateway.without_references(PATIENT).imported(&list(24));
    let mut sending = scratch
        .command_after("trap '' HUP", SEND)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    eventually("some are sent", || gateway.requests() == 12);
    kill_process(Pid::from_child(&sending), Signal::HUP).expect("the signal is sent");
    gateway.release();
    assert_eq!(sending.wait().expect("it ends").code(), Some(0));
    gateway.assert_each_once(24);
}

#[test]
fn limit_of_open_files_is_raised_for_requests_in_flight() {
    let gateway = Practice::start(with_latency(1_000));
    let scratch = gateway.without_references("").imported(&list(120));
    let ran = scratch
        .command_after("ulimit -Sn 64", ["send", "--concurrency", "100"])
        .output()
        .expect("a shell");
    assert_eq!(ran.status.code(), Some(0));
    gateway.assert_each_once(120);
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(!printed.contains("tried again"), "{printed}");
}

#[test]
fn responses_received_while_stopped_are_read() {
    let gateway = Practice::start(with_latency(600));
    let scratch = gateway.without_references("timeout = \"1s\"").imported(&list(8));
    let mut sending = scratch.start(SEND);
    assert!(sending.until("all requests arrived", || gateway.requests() >= 8));
    sending.freeze();
    let stopped = Instant::now();
    eventually("longer than the timeout", || stopped.elapsed() > Duration::from_secs(2));
    sending.signal(Signal::CONT);
    sending.ended().assert_code(0);
    let summary = scratch.checked_status(Some("c"));
    assert_eq!(summary["sent"], 8, "{summary}");
    assert_eq!(gateway.requests(), 8);
}

#[test]
fn limit_counts_messages_and_not_attempts() {
    let gateway = Practice::start(with_faults(Faults {
        unavailable: NonZeroU64::new(3).map_or(FaultRate::None, FaultRate::Every),
        ..Faults::default()
    }));
    let scratch = gateway.without_references("").imported(&list(30));
    scratch.start(["send", "--limit", "10"]).ended().assert_code(0);
    gateway.assert_each_once(10);
    assert!(gateway.requests() > 10);
}

#[test]
fn signal_to_process_and_group_counts_once() {
    assert_stops_after_settling(&[Signal::INT, Signal::INT], 130);
}

#[test]
fn second_signal_aborts_and_next_run_lists_unknown() {
    let gateway = Practice::start(with_latency(20_000));
    let scratch = gateway.without_references("timeout = \"25s\"").imported(&list(12));
    let mut sending = scratch.start(SEND);
    assert!(sending.until("requests are in flight", || gateway.requests() >= 8));
    sending.signal(Signal::INT);
    sending.until_printed("it is stopping", |said| said.contains("stopping"));
    sending.signal(Signal::TERM);
    let ran = sending.ended().assert_code(143);
    assert!(ran.stderr().contains("unknown"), "{ran}");

    let quick = Practice::start(SandboxConfig::default());
    quick.without_references("").configure(&scratch);
    let ran = scratch.run(["send", "--format", "json", "--campaign", "c"]).assert_code(1);
    assert_eq!(ran.json()["unknown"], 8, "{ran}");
    quick.assert_each_once(4);
    assert!(quick.phones().is_disjoint(&gateway.phones()));
    scratch.checked_status(Some("c"));
}

#[test]
fn limit_leaves_further_messages_queued() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").imported(&list(30));
    let ran = scratch.run(["send", "--limit", "10"]).assert_code(0);
    gateway.assert_each_once(10);
    assert_eq!(gateway.requests(), 10);
    assert!(ran.stderr().contains("20 messages left"), "{ran}");
    scratch.run(SEND).assert_code(0);
    gateway.assert_each_once(30);
}

#[test]
fn frozen_sender_is_reclaimed_and_repeats_nothing() {
    let gateway = Practice::holding_after(20);
    let scratch = gateway.without_references("timeout = \"3s\"\nrate = \"30/s\"").scratch();
    let toml = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("[sender]\nlease = \"5s\"\n{toml}"));
    scratch.import(&list(120));
    let mut frozen = scratch.start(SEND);
    assert!(frozen.until("requests are in flight", || gateway.requests() >= 20));
    // Not within a transaction: then no other process could write.
    eventually("it is frozen between two transactions, with messages on their way", || {
        frozen.freeze();
        // Without waiting, which would take longer than the lease. The pragma prints 0, too.
        let count =
            "PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; SELECT count(*) FROM sms WHERE state = 1";
        let is_sending = try_sqlite(&scratch, count).is_ok_and(|counts| counts != "0\n0");
        if !is_sending {
            frozen.signal(Signal::CONT);
        }
        is_sending
    });
    gateway.release();
    // Another worker marks its messages in flight as unknown, and sends the rest.
    scratch.run(SEND).assert_code(1);
    let summary = scratch.checked_status(Some("c"));
    let unknown = summary["unknown"].as_u64().expect("a count");
    assert!((1..=8).contains(&unknown), "{summary}");

    // It continues: its results settle its own messages. It sends what it had claimed and not started, and nothing
    // that is settled.
    frozen.signal(Signal::CONT);
    let ran = frozen.ended();
    assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
    let stats = gateway.stats();
    assert_eq!(stats.requests, stats.distinct_recipients, "{stats:?}");
    assert_eq!(stats.accepted, stats.distinct_recipients, "{stats:?}");
    let summary = scratch.checked_status(Some("c"));
    assert_eq!(summary["queued"], 0, "{summary}");
    assert_eq!(summary["sending"], 0, "{summary}");
    assert_eq!(summary["failed"], 0, "{summary}");
}

/// Waits until the process handles SIGTERM.
fn until_handled(sending: &mut Running) {
    let status = format!("/proc/{}/status", sending.id());
    let handled = || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & (1 << (Signal::TERM.as_raw() - 1)) != 0)
    };
    assert!(sending.until("it handles signals", handled));
}

/// Commands that are stopped before they have a database end as documented.
fn assert_stopped(scratch: &Scratch, mut is_waiting: impl FnMut() -> bool) {
    let signals = [(Signal::TERM, 143, "SIGTERM"), (Signal::INT, 130, "SIGINT")];
    for (signal, code, name) in signals {
        for line in [&["send", "-y"][..], &["status"], &["check"]] {
            let mut sending = scratch.start(line.iter().copied());
            until_handled(&mut sending);
            assert!(sending.until("it waits for the database", &mut is_waiting));
            sending.signal(signal);
            let ran = sending.ended();
            assert_eq!(ran.code(), Some(code), "{line:?}: {ran}");
            assert!(ran.stderr().contains(&format!("stopped by {name}")), "{ran}");
        }
    }
}

#[test]
fn signal_ends_command_whose_server_never_answers() {
    for scheme in ["postgres", "mysql"] {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = server.local_addr().expect("an address").port();
        server.set_nonblocking(true).expect("a listener");
        let mut connections = Vec::new();
        let scratch = Scratch::at(&format!("{scheme}://me@127.0.0.1:{port}/queue"));
        assert_stopped(&scratch, || {
            let accepted = server.accept();
            let is_connected = accepted.is_ok();
            connections.extend(accepted);
            is_connected
        });
    }
}

#[test]
fn signal_ends_command_that_waits_for_a_lock() {
    let scratch = Scratch::new();
    scratch.import(&list(1));
    let _lock = Lock::hold(&scratch);
    let mut sending = scratch.start(["send", "-y"]);
    until_handled(&mut sending);
    sending.signal(Signal::TERM);
    let ran = sending.ended().assert_code(143);
    assert!(ran.stderr().contains("stopped"), "{ran}");
}

#[test]
fn workers_without_their_database_end_without_a_panic() {
    // Each ends while a task may be in a statement; several, because one may be lucky.
    let gateway = Practice::start(with_latency(20));
    let workers: Vec<_> = (0..6)
        .map(|_| {
            let scratch = gateway.without_references("").imported(&list(400));
            let before = gateway.requests();
            let mut sending = scratch.start(["send", "-y", "--concurrency", "4"]);
            assert!(sending.until("it sends", || gateway.requests() > before + 8));
            let lock = Lock::hold(&scratch);
            sending.signal(Signal::TERM);
            (scratch, sending, lock)
        })
        .collect();
    for (scratch, sending, lock) in workers {
        let ran = sending.ended();
        assert!(!ran.stderr().contains("panicked"), "{ran}");
        assert!(matches!(ran.code(), Some(2 | 143)), "{ran}");
        drop(lock);
        let ran = scratch.run(["send", "-y"]);
        assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        scratch.checked_status(Some("c"));
    }
}
