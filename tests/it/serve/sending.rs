//! `smsq serve --send`: the server and a worker in one process.

use rustix::process::Signal;
use smsq_sandbox::SandboxConfig;

use super::{Served, configure};
use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::practice::{Practice, with_latency};
use crate::support::waiting::eventually;

const SEND: [&str; 5] = ["--listen", "127.0.0.1:0", "--send", "--concurrency", "4"];

fn post(served: &Served, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let message = format!("{{\"phone\":\"+4474001{number:05}\",\"text\":\"Hello\"}}");
        served.post(&message).assert_status(202);
    }
}

#[test]
fn one_process_takes_messages_and_sends_them() {
    with_every_database(|db| {
        let gateway = Practice::holding_after(14);
        let scratch = gateway.without_references("timeout = \"25s\"").at(&db.url).scratch();
        let tokens = configure(&scratch, "");
        let mut served = Served::running(&scratch, tokens, &SEND);
        post(&served, 0..10);
        eventually("all are sent", || gateway.accepted() == 10);
        let metrics = served.api("admin", "GET", "/metrics", "").body;
        let counted = "smsq_attempts_total{provider=\"cellar\",outcome=\"accepted\"}";
        assert!(metrics.contains(counted), "{metrics}");
        post(&served, 10..40);
        eventually("some are sent, others wait", || gateway.requests() > 14);
        served.process.signal(Signal::TERM);
        served.process.until_printed("it stops", |printed| printed.contains("stopping"));
        gateway.release();
        let ran = served.process.ended().assert_code(0);
        assert!(ran.stderr().contains("messages left"), "{ran}");
        // Requests in flight were settled, and nothing that was taken is lost.
        let status = scratch.checked_status(None);
        assert_eq!(status["sent"], gateway.accepted(), "{status}");
        assert_eq!((&status["unknown"], &status["sending"]), (&0.into(), &0.into()));
        assert_eq!(status["imported"], 40, "{status}");
        scratch.run(["send", "--quiet"]).assert_code(0);
        gateway.assert_each_once(40);
    });
}

#[test]
fn second_signal_does_not_wait_for_requests() {
    let gateway = Practice::start(with_latency(60_000));
    let scratch = gateway.without_references("timeout = \"25s\"").scratch();
    let tokens = configure(&scratch, "");
    let mut served = Served::running(&scratch, tokens, &SEND);
    post(&served, 0..3);
    eventually("requests are in flight", || gateway.requests() == 3);
    served.process.signal(Signal::INT);
    served.process.until_printed("it stops", |printed| printed.contains("stopping"));
    served.process.signal(Signal::TERM);
    let ran = served.process.ended().assert_code(143);
    assert!(ran.stderr().contains("aborted"), "{ran}");
}

#[test]
fn server_with_tokens_and_without_a_provider_is_refused() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", "");
    configure(&scratch, "");
    for line in [&["serve"][..], &["serve", "--send"]] {
        let ran = scratch.run(line.iter().copied()).assert_code(2);
        assert!(ran.stderr().contains("no provider is configured"), "{ran}");
        assert!(ran.stderr().contains("`--practice`"), "{ran}");
    }
    assert!(!scratch.path("smsq-practice.db").exists());
    assert!(!scratch.path("smsq.db").exists());
}

#[test]
fn server_practises_if_it_is_asked_to() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", "");
    let tokens = configure(&scratch, "");
    let line = ["--listen", "127.0.0.1:0", "--send", "--practice"];
    let served = Served::running(&scratch, tokens, &line);
    post(&served, 0..3);
    let sent = || scratch.run(["status", "--format", "json"]).json()["sent"] == 3;
    eventually("all are sent", sent);
    let ran = served.stop().assert_code(0);
    assert!(ran.stderr().contains("practice: a practice gateway"), "{ran}");
    assert!(ran.stderr().contains("no phone gets any of these messages"), "{ran}");
    assert!(scratch.path("smsq-practice.db").exists());
}

#[test]
fn worker_that_cannot_send_is_an_error_before_the_server_listens() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").scratch();
    configure(&scratch, "");
    for (line, expected) in [
        (vec!["serve", "--rate", "5/s"], "`--rate` is for a worker, and none is started"),
        (vec!["serve", "--send", "--concurrency", "0"], "--concurrency"),
    ] {
        let ran = scratch.run(line).assert_code(2);
        assert!(ran.stderr().contains(expected), "{ran}");
        assert_eq!(ran.stdout(), "");
    }
    let text = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("default_provider = \"other\"\n{text}"));
    let ran = scratch.run(["serve", "--send"]).assert_code(2);
    assert!(ran.stderr().contains("`other`"), "{ran}");
    assert_eq!(ran.stdout(), "");
}
