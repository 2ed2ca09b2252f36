//! Gateways, accounts and messages that misbehave: what is certainly not sent is tried again, what is
//! perhaps sent is not, an outage costs no attempt, and one bad message hurts no other.

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::process::Signal;
use smsq::sandbox::{FaultRate, Faults, SandboxConfig};

use crate::support::practice::{Practice, list, reserved_list};
use crate::support::running::eventually;
use crate::support::scripted::Scripted;
use crate::support::shell::sqlite;
use crate::support::tls::TlsFront;
use crate::support::{Ran, Scratch};

const SEND: [&str; 3] = ["send", "--concurrency", "8"];

fn every(count: u64) -> FaultRate {
    NonZeroU64::new(count).map_or(FaultRate::None, FaultRate::Every)
}

fn faulty(faults: Faults) -> SandboxConfig {
    SandboxConfig {
        faults,
        ..SandboxConfig::default()
    }
}

fn most_attempts(scratch: &Scratch) -> String {
    sqlite(scratch, "SELECT max(attempts) FROM sms_sent")
}

fn assert_done(scratch: &Scratch, ran: &Ran, rows: u64) {
    assert_eq!(ran.code(), Some(0), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["state"], "done", "{standing}");
    assert_eq!(standing["sent"], rows, "{standing}");
}

#[test]
fn what_was_certainly_not_sent_is_sent_in_the_end() {
    let gateway = Practice::start(faulty(Faults {
        unavailable: FaultRate::Part(0.25),
        throttle: every(60),
        ..Faults::default()
    }));
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.import(&list(80));
    let ran = scratch.run(SEND);
    assert_done(&scratch, &ran, 80);
    gateway.assert_each_once(80);
    assert!(gateway.requests() > 80);
}

#[test]
fn what_was_perhaps_sent_is_held_and_listed() {
    let gateway = Practice::start(faulty(Faults {
        no_answer: every(7),
        slow: every(11),
        slow_for: Duration::from_secs(20),
        broken: every(13),
        ..Faults::default()
    }));
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "timeout = \"500ms\"");
    scratch.import(&list(80));
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(1), "{ran}");
    // Every message was accepted once, and of each fault one had no answer that can be read.
    gateway.assert_each_once(80);
    let missed = (1..=80)
        .filter(|n| n % 7 == 0 || n % 11 == 0 || n % 13 == 0)
        .count();
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["unknown"], missed, "{standing}");
    assert_eq!(standing["sent"], 80 - missed, "{standing}");
    let failures = scratch.failures("c");
    assert_eq!(failures.len(), missed);
    for failure in failures {
        assert_eq!(failure["state"], "unknown", "{failure}");
        assert_eq!(failure["attempts"], 1, "{failure}");
        assert_ne!(failure["reason"], "", "{failure}");
    }
    // Another run leaves them alone.
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(1), "{ran}");
    assert_eq!(gateway.requests(), 80);
}

#[test]
fn what_was_perhaps_sent_is_settled_by_sending_it_again_where_references_are_honoured() {
    let gateway = Practice::start(faulty(Faults {
        no_answer: every(7),
        slow: every(11),
        slow_for: Duration::from_secs(20),
        broken: every(13),
        ..Faults::default()
    }));
    let scratch = Scratch::new();
    gateway.honouring(&scratch, "timeout = \"500ms\"");
    scratch.import(&list(80));
    let ran = scratch.run(SEND);
    assert_done(&scratch, &ran, 80);
    gateway.assert_each_once(80);
    assert!(gateway.requests() > 80);
}

#[test]
fn answers_that_are_slow_but_in_time_are_answers() {
    let gateway = Practice::start(SandboxConfig {
        latency: Duration::from_millis(300),
        ..SandboxConfig::default()
    });
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "timeout = \"20s\"");
    scratch.import(&list(16));
    let ran = scratch.run(SEND);
    assert_done(&scratch, &ran, 16);
    gateway.assert_each_once(16);
    assert_eq!(gateway.requests(), 16);
}

#[test]
fn an_outage_costs_no_attempt_but_at_its_edge() {
    let gateway = Practice::start(faulty(Faults {
        outage: "20 for 1500ms".parse().ok(),
        ..Faults::default()
    }));
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.import(&list(60));
    let ran = scratch.run(SEND);
    assert_done(&scratch, &ran, 60);
    gateway.assert_each_once(60);
    assert!(gateway.requests() > 60);
    // Only who was on the way at its very edge, beside others that still arrived, may have one more.
    let most = most_attempts(&scratch);
    assert!(most == "1" || most == "2", "{most}");
    let edge = sqlite(
        &scratch,
        "SELECT count(*) < 8 FROM sms_sent WHERE attempts > 1",
    );
    assert_eq!(edge, "1");
}

#[test]
fn a_gateway_that_cannot_be_reached_costs_no_attempt() {
    let gateway = Practice::start(SandboxConfig::default());
    let address = gateway.address();
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    drop(gateway);
    scratch.import(&list(30));
    let mut sending = scratch.start(["send", "-v", "--concurrency", "8"]);
    sending.until_said("it was tried many times", |said| {
        said.matches("will be tried again").count() > 20
    });
    let gateway = Practice::start_at(address, SandboxConfig::default());
    let ran = sending.ended();
    assert_done(&scratch, &ran, 30);
    gateway.assert_each_once(30);
    assert_eq!(most_attempts(&scratch), "1");
}

#[test]
fn connections_that_are_refused_for_a_while_lose_and_repeat_nothing() {
    let gateway = Practice::start(faulty(Faults {
        refuse: "20 for 1s".parse().ok(),
        ..Faults::default()
    }));
    let scratch = Scratch::new();
    gateway.honouring(&scratch, "");
    scratch.import(&list(60));
    let ran = scratch.run(SEND);
    assert_done(&scratch, &ran, 60);
    gateway.assert_each_once(60);
}

#[test]
fn an_account_that_is_refused_midway_keeps_every_row_until_it_is_mended() {
    let gateway = Practice::start(faulty(Faults {
        account_from: Some(16),
        ..Faults::default()
    }));
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.import(&list(60));
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(3), "{ran}");
    assert!(ran.stderr().contains("refuses the account"), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["state"], "stopped", "{standing}");
    assert_eq!(standing["sent"], 15, "{standing}");
    assert_eq!(standing["queued"], 45, "{standing}");
    gateway.assert_each_once(15);

    let mended = Practice::start(SandboxConfig::default());
    mended.forgetful(&scratch, "");
    let ran = scratch.run(SEND);
    assert_done(&scratch, &ran, 60);
    mended.assert_each_once(45);
    assert!(mended.phones().is_disjoint(&gateway.phones()));
    assert_eq!(most_attempts(&scratch), "1");
}

#[test]
fn a_wrong_column_is_braked_before_the_list_is_burnt() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    let wrong = reserved_list(1, 55);
    let right = list(30).replace("phone\n", "");
    scratch.import(&format!("{wrong}{right}"));
    let line = ["send", "--concurrency", "4"];
    let ran = scratch.run(line);
    assert_eq!(ran.code(), Some(3), "{ran}");
    assert!(
        ran.stderr()
            .contains("50 of the last 50 messages were rejected"),
        "{ran}"
    );
    assert!(ran.stderr().contains("smsq resume"), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["state"], "paused", "{standing}");
    let failed = standing["failed"].as_u64().expect("a count");
    assert!((50..54).contains(&failed), "{standing}");

    // A paused campaign stays so until somebody says otherwise.
    let ran = scratch.run(line);
    assert_eq!(ran.code(), Some(3), "{ran}");
    assert_eq!(gateway.requests(), failed + gateway.accepted());
    let ran = scratch.run(["resume", "--campaign", "c"]);
    assert_eq!(ran.code(), Some(0), "{ran}");
    let ran = scratch.run(line);
    assert_eq!(ran.code(), Some(1), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["failed"], 55, "{standing}");
    gateway.assert_each_once(30);
}

#[test]
fn a_message_that_is_never_taken_fails_after_its_attempts_and_hurts_no_other() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    let never = reserved_list(8, 1);
    let others = list(20).replace("phone\n", "");
    scratch.import(&format!("{never}{others}"));
    let ran = scratch.run_with(SEND, &[("SMSQ__RETRY__MAX_ATTEMPTS", "3")]);
    assert_eq!(ran.code(), Some(1), "{ran}");
    gateway.assert_each_once(20);
    scratch.sound_standing(Some("c"));
    let failures = scratch.failures("c");
    let [failure] = failures.as_slice() else {
        panic!("{failures:?}");
    };
    assert_eq!(failure["class"], "unavailable", "{failure}");
    assert_eq!(failure["attempts"], 3, "{failure}");
}

#[test]
fn messages_that_always_get_503_fail_while_others_succeed() {
    for (bad, others) in [(1, 2), (6, 120)] {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = Scratch::new();
        gateway.forgetful(&scratch, "");
        let never = reserved_list(8, bad);
        let others_list = list(others).replace("phone\n", "");
        scratch.import(&format!("{never}{others_list}"));
        // Its end is waited for: it must not go on for ever.
        let ran = scratch.start(["send"]).ended();
        assert_eq!(ran.code(), Some(1), "{ran}");
        gateway.assert_each_once(others);
        let standing = scratch.sound_standing(Some("c"));
        assert_eq!(standing["failed"], bad, "{standing}");
        for failure in scratch.failures("c") {
            assert_eq!(failure["class"], "unavailable", "{failure}");
            assert_eq!(failure["attempts"], 8, "{failure}");
        }
    }
}

#[test]
fn campaign_of_rejected_messages_begins_with_few_requests() {
    let gateway = Practice::start(SandboxConfig {
        latency: Duration::from_millis(20),
        ..SandboxConfig::default()
    });
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.import(&reserved_list(1, 300));
    let ran = scratch.run(["send", "--concurrency", "64"]);
    assert_eq!(ran.code(), Some(3), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    let failed = standing["failed"].as_u64().expect("a count");
    assert!((50..58).contains(&failed), "{standing}");
    assert!(!ran.stdout().contains("/s)"), "{ran}");
}

#[test]
fn provider_that_never_took_anything_is_told_with_its_reason() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    drop(gateway);
    scratch.import(&list(2));
    let mut sending = scratch.start(["send"]);
    sending.until_said("why nothing goes", |said| said.contains("refused"));
    // It is said before it is stored.
    eventually("status says it, too", || {
        let ran = scratch.run(["status"]);
        let said = "the last attempt failed: no connection";
        ran.stdout().contains(said)
    });
    sending.signal(Signal::TERM);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(143), "{ran}");
    assert!(
        ran.stderr().contains("`cellar` never took a message"),
        "{ran}"
    );
    assert!(ran.stderr().contains("is its `url` right?"), "{ran}");
    let status = scratch.run(["status", "--format", "json"]).json();
    let reason = status["last_failures"][0]["reason"].as_str();
    assert!(
        reason.is_some_and(|reason| reason.contains("refused")),
        "{status}"
    );
}

#[test]
fn status_shows_the_words_of_an_answer_in_json() {
    let answer = r#"{"error":{"code":"busy","message":"the line is busy","at":[1,2]}}"#;
    let gateway = Scripted::start("503 Service Unavailable", answer);
    let scratch = Scratch::new();
    scratch.write_cellar(&gateway.url());
    scratch.import(&list(1));
    let sending = scratch.start(["send", "--quiet"]);
    let mut shown = String::new();
    eventually("a failed attempt", || {
        shown = scratch.run(["status"]).stdout();
        shown.contains("the last attempt failed: ")
    });
    sending.kill();
    assert!(shown.contains("the line is busy\n"), "{shown}");
    assert!(!shown.contains('{'), "{shown}");
}

#[test]
fn certificate_that_is_not_trusted_stops_the_campaign() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    let front = TlsFront::start(&scratch, &gateway, Duration::ZERO);
    Practice::honouring_at(&front.url(), &scratch, "");
    scratch.import(&list(20));
    let trusted = scratch.run(["send", "--limit", "1"]);
    assert_eq!(trusted.code(), Some(0), "{trusted}");
    std::fs::remove_file(scratch.path("authority.pem")).expect("it was there");
    let ran = scratch.start(["send"]).ended();
    assert_eq!(ran.code(), Some(3), "{ran}");
    assert!(ran.stderr().contains("machine does not trust"), "{ran}");
    assert!(!ran.stderr().contains("ERROR"), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["state"], "stopped", "{standing}");
    assert_eq!(standing["queued"], 19, "{standing}");
    gateway.assert_each_once(1);
}

#[test]
fn a_message_whose_time_runs_out_while_the_gateway_is_away_expires() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.write("list.csv", &reserved_list(8, 12));
    let line = "import list.csv --text Hello --campaign c --expires +1s";
    let ran = scratch.run(line.split(' '));
    assert_eq!(ran.code(), Some(0), "{ran}");
    let ran = scratch.run_with(SEND, &[("SMSQ__RETRY__MAX_ATTEMPTS", "0")]);
    assert_eq!(ran.code(), Some(1), "{ran}");
    scratch.sound_standing(Some("c"));
    let failures = scratch.failures("c");
    assert_eq!(failures.len(), 12);
    for failure in failures {
        assert_eq!(failure["class"], "expired", "{failure}");
    }
}

#[test]
fn sending_again_what_was_perhaps_sent_keeps_its_reference() {
    let gateway = Practice::start(SandboxConfig {
        honour_references: false,
        ..faulty(Faults {
            no_answer: every(7),
            broken: every(13),
            ..Faults::default()
        })
    });
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.import(&list(60));
    let ran = scratch.run(SEND.into_iter().chain(["--on-unknown", "resend"]));
    assert_done(&scratch, &ran, 60);
    // At least once: some have it twice, and the gateway can tell by the reference.
    let stats = gateway.stats();
    assert!(stats.accepted > 60, "{stats:?}");
    assert_eq!(stats.distinct_references, 60, "{stats:?}");
    assert_eq!(stats.distinct_recipients, 60, "{stats:?}");
    assert_eq!(stats.repeated, 0, "{stats:?}");
}
