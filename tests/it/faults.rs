//! Faults of gateways, accounts and messages: messages that were certainly not accepted are sent again, those perhaps
//! accepted are not, an outage counts no attempts, and one bad message affects no other.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::Duration;

use rustix::process::Signal;
use smsq_sandbox::{FaultRate, Faults, Outage, SandboxConfig};

use crate::support::practice::{
    Practice, Setup, joined, list, reserved_list, with_faults, with_latency,
};
use crate::support::scripted::Scripted;
use crate::support::shell::sqlite;
use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::tls::TlsFront;
use crate::support::waiting::eventually;
use crate::support::{Ran, Scratch};

const SEND: [&str; 3] = ["send", "--concurrency", "8"];

fn every(count: u64) -> FaultRate {
    NonZeroU64::new(count).map_or(FaultRate::None, FaultRate::Every)
}

fn most_attempts(scratch: &Scratch) -> String {
    sqlite(scratch, "SELECT max(attempts) FROM sms_sent")
}

/// Checks that a run has sent all messages.
fn assert_done(scratch: &Scratch, ran: Ran, rows: u64) {
    ran.assert_code(0);
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["state"], "done", "{status}");
    assert_eq!(status["sent"], rows, "{status}");
}

#[test]
fn messages_not_accepted_are_sent_in_the_end() {
    let gateway = Practice::start(with_faults(Faults {
        unavailable: FaultRate::Part(0.25),
        throttle: every(60),
        ..Faults::default()
    }));
    let scratch = gateway.without_references("").imported(&list(80));
    assert_done(&scratch, scratch.run(SEND), 80);
    gateway.assert_each_once(80);
    assert!(gateway.requests() > 80);
}

#[test]
fn messages_perhaps_accepted_are_held_and_listed() {
    let gateway = Practice::start(with_faults(Faults {
        no_answer: every(7),
        slow: every(11),
        slow_for: Some(Duration::from_secs(20)),
        broken: every(13),
        ..Faults::default()
    }));
    let scratch = gateway.without_references("timeout = \"500ms\"").imported(&list(80));
    scratch.run(SEND).assert_code(1);
    // Every message was accepted once; those with a fault got no readable response.
    gateway.assert_each_once(80);
    let missed = (1..=80).filter(|n| n % 7 == 0 || n % 11 == 0 || n % 13 == 0).count();
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["unknown"], missed, "{status}");
    assert_eq!(status["sent"], 80 - missed, "{status}");
    let failures = scratch.failures("c");
    assert_eq!(failures.len(), missed);
    for failure in failures {
        assert_eq!(failure["state"], "unknown", "{failure}");
        assert_eq!(failure["attempts"], 1, "{failure}");
        assert_ne!(failure["reason"], "", "{failure}");
    }
    // Another run does not send them.
    scratch.run(SEND).assert_code(1);
    assert_eq!(gateway.requests(), 80);
}

#[test]
fn statuses_after_acceptance_send_nothing_twice() {
    const STATUSES: [&str; 6] = [
        "408 Request Timeout",
        "500 Internal Server Error",
        "502 Bad Gateway",
        "503 Service Unavailable",
        "503 Service Unavailable\r\nretry-after: 1",
        "504 Gateway Timeout",
    ];
    // It takes every message, and a proxy in front of it answers every tenth request.
    let gateway = TimedProvider::start(Some(0), |_, earlier| {
        if earlier % 10 == 9 {
            Reply::Status(STATUSES[earlier / 10 % STATUSES.len()])
        } else {
            Reply::Json(format!(r#"{{"id":"m{earlier}"}}"#))
        }
    });
    let scratch = Scratch::new();
    let section = format!(
        "[providers.cellar]\nkind = 'generic'\nurl = '{}/{{{{ phone | digits }}}}'\n\
         json = {{ text = '{{{{ content }}}}' }}\nmessage_id = '/id'\n",
        gateway.url()
    );
    scratch.write("smsq.toml", &section);
    scratch.import(&list(200));
    scratch.run(SEND).assert_code(1);
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["unknown"], 20, "{status}");
    assert_eq!(status["sent"], 180, "{status}");
    for failure in scratch.failures("c") {
        assert_eq!(failure["state"], "unknown", "{failure}");
        let reason = failure["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("set `certain_status = ["), "{failure}");
    }
    // Another run sends none of them.
    scratch.run(SEND).assert_code(1);
    let lines = gateway.lines();
    assert_eq!(lines.len(), 200);
    assert_eq!(lines.into_iter().collect::<BTreeSet<_>>().len(), 200);
}

#[test]
fn message_accepted_before_a_503_gets_one_text() {
    let gateway = Practice::start(SandboxConfig {
        ignore_references: true,
        ..with_faults(Faults {
            unavailable: every(9),
            unavailable_after: every(10),
            ..Faults::default()
        })
    });
    // The provider `sandbox` knows the code of the gateway's own 503, and no one knows that of the router.
    let scratch = gateway
        .with_references("honours_reference = false")
        .imported(&joined(&[list(60), reserved_list(0, 3)]));
    scratch.run(SEND).assert_code(1);
    gateway.assert_each_once(63);
    let status = scratch.checked_status(Some("c"));
    let unknown = status["unknown"].as_u64().expect("a count");
    assert!(unknown > 3, "{status}");
    assert_eq!(status["sent"], 63 - unknown, "{status}");
    let resends = gateway.requests() - 63;
    assert!(resends > 0);
    scratch.run(SEND).assert_code(1);
    gateway.assert_each_once(63);
}

#[test]
fn outage_in_doubt_leaves_only_what_was_in_flight_unknown() {
    const MESSAGES: u64 = 4_000;
    const CONCURRENCY: u64 = 64;
    let gateway = Practice::start(SandboxConfig {
        latency: Duration::from_millis(20),
        ..with_faults(Faults {
            outage: Outage::try_from("1000 for 2s".to_owned()).ok(),
            ..Faults::default()
        })
    });
    // Without its codes nothing says that it accepts no message with a 503.
    let scratch = Scratch::new();
    let section = format!(
        "[circuit_breaker]\nfirst_probe = '50ms'\nmax_probe = '200ms'\n\
         [providers.cellar]\nkind = 'generic'\nurl = '{}/messages'\n\
         json = {{ to = '{{{{ phone }}}}', text = '{{{{ content }}}}' }}\nmessage_id = '/id'\n",
        gateway.url()
    );
    scratch.write("smsq.toml", &section);
    scratch.import(&list(MESSAGES));
    scratch.run(["send", "--concurrency", "64"]).assert_code(1);
    let status = scratch.checked_status(Some("c"));
    let unknown = status["unknown"].as_u64().expect("a count");
    // Every probe waits for at least 25 ms, then 50 ms, then 100 ms.
    let probes = 2_000 / 100 + 2;
    // Those in flight when the outage began say little: others that started later were accepted. Five more open
    // the breaker, and as many can be in flight then.
    assert!(unknown <= 2 * CONCURRENCY + 5 + probes, "{status}");
    assert_eq!(status["sent"], MESSAGES - unknown, "{status}");
    let seen = gateway.stats();
    assert_eq!(seen.distinct_recipients, MESSAGES - unknown, "{seen:?}");
    assert_eq!(seen.accepted, seen.distinct_recipients, "{seen:?}");
    assert_eq!(seen.requests, MESSAGES, "{seen:?}");
}

#[test]
fn unknown_messages_are_resent_with_honoured_references() {
    let gateway = Practice::start(with_faults(Faults {
        no_answer: every(7),
        slow: every(11),
        slow_for: Some(Duration::from_secs(20)),
        broken: every(13),
        ..Faults::default()
    }));
    let scratch = gateway.with_references("timeout = \"500ms\"").imported(&list(80));
    assert_done(&scratch, scratch.run(SEND), 80);
    gateway.assert_each_once(80);
    assert!(gateway.requests() > 80);
}

#[test]
fn slow_responses_within_the_timeout_count() {
    let gateway = Practice::start(with_latency(300));
    let scratch = gateway.without_references("timeout = \"20s\"").imported(&list(16));
    assert_done(&scratch, scratch.run(SEND), 16);
    gateway.assert_each_once(16);
    assert_eq!(gateway.requests(), 16);
}

#[test]
fn outage_counts_no_attempts() {
    let gateway = Practice::start(with_faults(Faults {
        outage: Outage::try_from("20 for 1500ms".to_owned()).ok(),
        ..Faults::default()
    }));
    let scratch = gateway.without_references("").imported(&list(60));
    assert_done(&scratch, scratch.run(SEND), 60);
    gateway.assert_each_once(60);
    assert!(gateway.requests() > 60);
    // Only messages in flight when it began, while others were still accepted, may have one more.
    let most = most_attempts(&scratch);
    assert!(most == "1" || most == "2", "{most}");
    let edge = sqlite(&scratch, "SELECT count(*) < 8 FROM sms_sent WHERE attempts > 1");
    assert_eq!(edge, "1");
}

#[test]
fn unreachable_gateway_counts_no_attempts() {
    let gateway = Practice::start(SandboxConfig::default());
    let address = gateway.address();
    let scratch = gateway.without_references("").imported(&list(30));
    drop(gateway);
    let mut sending = scratch.start(["send", "-v", "--concurrency", "8"]);
    sending.until_printed("it was tried many times", |said| {
        said.matches("will be tried again").count() > 20
    });
    let gateway = Practice::start_at(address, SandboxConfig::default());
    assert_done(&scratch, sending.ended(), 30);
    gateway.assert_each_once(30);
    assert_eq!(most_attempts(&scratch), "1");
}

#[test]
fn refused_connections_lose_and_repeat_nothing() {
    let gateway = Practice::start(with_faults(Faults {
        refuse: Outage::try_from("20 for 1s".to_owned()).ok(),
        ..Faults::default()
    }));
    let scratch = gateway.with_references("").imported(&list(60));
    assert_done(&scratch, scratch.run(SEND), 60);
    gateway.assert_each_once(60);
}

#[test]
fn account_error_midway_keeps_messages_until_fixed() {
    let gateway =
        Practice::start(with_faults(Faults { account_from: Some(16), ..Faults::default() }));
    let scratch = gateway.without_references("").imported(&list(60));
    let ran = scratch.run(SEND).assert_code(3);
    assert!(ran.stderr().contains("refuses the account"), "{ran}");
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["state"], "stopped", "{status}");
    assert_eq!(status["sent"], 15, "{status}");
    assert_eq!(status["queued"], 45, "{status}");
    gateway.assert_each_once(15);

    let fixed = Practice::start(SandboxConfig::default());
    fixed.without_references("").configure(&scratch);
    assert_done(&scratch, scratch.run(SEND), 60);
    fixed.assert_each_once(45);
    assert!(fixed.phones().is_disjoint(&gateway.phones()));
    assert_eq!(most_attempts(&scratch), "1");
}

#[test]
fn campaign_is_paused_when_most_messages_are_rejected() {
    let gateway = Practice::start(SandboxConfig::default());
    let rows = joined(&[reserved_list(1, 55), list(30)]);
    let scratch = gateway.without_references("").imported(&rows);
    let line = ["send", "--concurrency", "4"];
    let ran = scratch.run(line).assert_code(3);
    assert!(ran.stderr().contains("50 of the last 50 messages were rejected"), "{ran}");
    assert!(ran.stderr().contains("smsq resume"), "{ran}");
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["state"], "paused", "{status}");
    let failed = status["failed"].as_u64().expect("a count");
    assert!((50..54).contains(&failed), "{status}");

    // A paused campaign stays paused until `smsq resume`.
    scratch.run(line).assert_code(3);
    assert_eq!(gateway.requests(), failed + gateway.accepted());
    scratch.run(["resume", "--campaign", "c"]).assert_code(0);
    scratch.run(line).assert_code(1);
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["failed"], 55, "{status}");
    gateway.assert_each_once(30);
}

#[test]
fn message_fails_after_its_attempts_and_affects_no_other() {
    let gateway = Practice::start(SandboxConfig::default());
    let rows = joined(&[reserved_list(8, 1), list(20)]);
    let scratch = gateway.without_references("").imported(&rows);
    scratch.run_with(SEND, &[("SMSQ__RETRY__MAX_ATTEMPTS", "3")]).assert_code(1);
    gateway.assert_each_once(20);
    scratch.checked_status(Some("c"));
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
        // The others are answered after the first attempts of the bad ones have started.
        let gateway = Practice::start(with_latency(1_000));
        let rows = joined(&[reserved_list(8, bad), list(others)]);
        let scratch = gateway.without_references("").imported(&rows);
        // It must end.
        scratch.start(["send"]).ended().assert_code(1);
        gateway.assert_each_once(others);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(status["failed"], bad, "{status}");
        for failure in scratch.failures("c") {
            assert_eq!(failure["class"], "unavailable", "{failure}");
            assert_eq!(failure["attempts"], 8, "{failure}");
        }
    }
}

#[test]
fn campaign_of_rejected_messages_begins_with_few_requests() {
    let gateway = Practice::start(with_latency(20));
    let scratch = gateway.without_references("").imported(&reserved_list(1, 300));
    let ran = scratch.run(["send", "--concurrency", "64"]).assert_code(3);
    let status = scratch.checked_status(Some("c"));
    let failed = status["failed"].as_u64().expect("a count");
    assert!((50..58).contains(&failed), "{status}");
    assert!(!ran.stdout().contains("/s)"), "{ran}");
}

#[test]
fn provider_without_acceptances_is_reported_with_reason() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").imported(&list(2));
    drop(gateway);
    let mut sending = scratch.start(["send"]);
    sending.until_printed("the reason why nothing is sent", |said| said.contains("refused"));
    // It is printed before it is stored.
    eventually("status shows it, too", || {
        let ran = scratch.run(["status"]);
        let shown = "the last attempt failed: no connection";
        ran.stdout().contains(shown)
    });
    sending.signal(Signal::TERM);
    let ran = sending.ended().assert_code(143);
    assert!(ran.stderr().contains("`cellar` has not accepted a message yet"), "{ran}");
    assert!(ran.stderr().contains("is its `url` right?"), "{ran}");
    let status = scratch.run(["status", "--format", "json"]).json();
    let reason = status["last_failures"][0]["reason"].as_str();
    assert!(reason.is_some_and(|reason| reason.contains("refused")), "{status}");
}

#[test]
fn status_shows_the_message_of_a_json_response() {
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
fn untrusted_certificate_stops_the_campaign() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    let front = TlsFront::start(&scratch, &gateway, Duration::ZERO);
    Setup::with_references_at(&front.url(), "").configure(&scratch);
    scratch.import(&list(20));
    scratch.run(["send", "--limit", "1"]).assert_code(0);
    std::fs::remove_file(scratch.path("authority.pem")).expect("it was there");
    let ran = scratch.start(["send"]).ended().assert_code(3);
    assert!(ran.stderr().contains("machine does not trust"), "{ran}");
    assert!(!ran.stderr().contains("ERROR"), "{ran}");
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["state"], "stopped", "{status}");
    assert_eq!(status["queued"], 19, "{status}");
    gateway.assert_each_once(1);
}

#[test]
fn message_expires_while_the_gateway_is_down() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").scratch();
    scratch.write("list.csv", &reserved_list(8, 12));
    let line = "import list.csv --text Hello --campaign c --expires +1s";
    scratch.run(line.split(' ')).assert_code(0);
    scratch.run_with(SEND, &[("SMSQ__RETRY__MAX_ATTEMPTS", "0")]).assert_code(1);
    scratch.checked_status(Some("c"));
    let failures = scratch.failures("c");
    assert_eq!(failures.len(), 12);
    for failure in failures {
        assert_eq!(failure["class"], "expired", "{failure}");
    }
}

#[test]
fn resent_message_keeps_its_reference() {
    let gateway = Practice::start(SandboxConfig {
        ignore_references: true,
        ..with_faults(Faults { no_answer: every(7), broken: every(13), ..Faults::default() })
    });
    let scratch = gateway.without_references("").imported(&list(60));
    assert_done(&scratch, scratch.run(SEND.into_iter().chain(["--on-unknown", "resend"])), 60);
    // At least once: some are received twice, with the same reference.
    let stats = gateway.stats();
    assert!(stats.accepted > 60, "{stats:?}");
    assert_eq!(stats.distinct_references, 60, "{stats:?}");
    assert_eq!(stats.distinct_recipients, 60, "{stats:?}");
    assert_eq!(stats.repeated, 0, "{stats:?}");
}
