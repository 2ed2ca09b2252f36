//! Batches end to end: each message has its own outcome, a killed worker loses and repeats none, and messages of a
//! rejected batch are sent alone.

use std::num::NonZeroU64;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq_sandbox::{FaultRate, Faults, SandboxConfig};

use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::practice::{Practice, joined, list, reserved_list};
use crate::support::shell::sqlite;

const SEND: [&str; 4] = ["send", "--concurrency", "4", "--quiet"];
const PER_CALL: &str = "batch = { per_call = 25 }";
/// The provider does not promise to honour references, so a message that is sent twice is detected.
const FORGETFUL: &str = "batch = { per_call = 25 }\nhonours_reference = false\ntimeout = \"500ms\"";

fn every(count: u64) -> FaultRate {
    NonZeroU64::new(count).map_or(FaultRate::None, FaultRate::Every)
}

fn with_jitter(ignore_references: bool) -> SandboxConfig {
    SandboxConfig {
        latency: std::time::Duration::from_millis(10),
        jitter: std::time::Duration::from_millis(20),
        ignore_references,
        ..SandboxConfig::default()
    }
}

/// Starts the sender and kills it once the gateway has seen a random number of further messages.
fn send_and_kill(scratch: &Scratch, gateway: &Practice, random: &mut StdRng) {
    let until = gateway.requests() + random.random_range(5..120);
    let mut sending = scratch.start(SEND);
    let alive = sending.until("requests", || gateway.requests() >= until);
    sending.kill();
    assert!(alive, "it ended before");
}

#[test]
fn killed_sender_repeats_nothing_with_honoured_references() {
    with_every_database(|db| {
        let mut random = StdRng::seed_from_u64(1);
        let gateway = Practice::start(with_jitter(false));
        let scratch = gateway.with_references(PER_CALL).at(&db.url).imported(&list(1_500));
        for _ in 0..5 {
            send_and_kill(&scratch, &gateway, &mut random);
            scratch.checked_status(Some("c"));
        }
        scratch.run(SEND).assert_code(0);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], 1_500);
        gateway.assert_each_once(1_500);
        // The messages in the requests of a killed worker, at most 500, are sent alone.
        let stats = gateway.stats();
        assert!(stats.calls * 2 < stats.requests, "{stats:?}");
    });
}

#[test]
fn killed_sender_leaves_its_batches_unknown() {
    with_every_database(|db| {
        let mut random = StdRng::seed_from_u64(2);
        let gateway = Practice::start(with_jitter(true));
        let scratch = gateway.with_references(FORGETFUL).at(&db.url).imported(&list(1_500));
        for _ in 0..5 {
            send_and_kill(&scratch, &gateway, &mut random);
            scratch.checked_status(Some("c"));
            let stats = gateway.stats();
            assert_eq!(stats.accepted, stats.distinct_recipients, "{stats:?}");
        }
        scratch.run(SEND).assert_code(1);
        let summary = scratch.checked_status(Some("c"));
        let count = |key: &str| summary[key].as_u64().expect("a count");
        assert_eq!(count("sent") + count("unknown"), 1_500, "{summary}");
        // At most the messages of 4 requests per kill.
        assert!((1..=5 * 4 * 25).contains(&count("unknown")), "{summary}");
        let stats = gateway.stats();
        assert_eq!(stats.accepted, stats.distinct_recipients, "{stats:?}");
        assert!(stats.accepted >= count("sent"), "{summary} {stats:?}");
    });
}

#[test]
fn each_message_of_a_batch_has_its_own_outcome() {
    let gateway = Practice::start(SandboxConfig::default());
    let faults = [(1, 2), (2, 1), (3, 3), (4, 1), (8, 1)];
    let reserved = faults.map(|(fault, count)| reserved_list(fault, count));
    let rows = joined(&[&[list(100)], &reserved[..]].concat());
    let scratch = gateway.with_references(PER_CALL).imported(&rows);
    scratch.run_with(SEND, &[("SMSQ__RETRY__MAX_ATTEMPTS", "3")]).assert_code(1);
    let summary = scratch.checked_status(Some("c"));
    assert_eq!(summary["sent"], 104, "{summary}");
    assert_eq!(summary["failed"], 4, "{summary}");
    gateway.assert_each_once(104);
    let mut classes: Vec<String> = scratch
        .failures("c")
        .iter()
        .map(|failure| failure["class"].as_str().expect("a class").to_owned())
        .collect();
    classes.sort();
    assert_eq!(classes, ["opted_out", "recipient", "recipient", "unavailable"]);
    // Valid messages were not attempted twice because of others in their batch.
    let once = "SELECT count(*) FROM sms_sent WHERE attempts = 1";
    assert_eq!(sqlite(&scratch, once), "101");
}

#[test]
fn generic_provider_sends_batches() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    let section = r#"
        default_provider = "cellar"
        [providers.cellar]
        kind = "generic"
        url = "URL/messages"
        json = [{ to = "{{ phone }}", text = "{{ content }}", reference = "{{ reference }}" }]
        accepted = [200]
        message_id = "/*/id"
        error_code = "/*/error/code"
        [providers.cellar.batch]
        per_call = 25
        repeat = "json"
        results = ""
        matches = { "/reference" = "{{ reference }}" }
        [providers.cellar.codes]
        invalid_recipient = { class = "recipient" }
    "#;
    scratch.write("smsq.toml", &section.replace("URL", &gateway.url()));
    scratch.import(&joined(&[list(200), reserved_list(1, 2)]));
    scratch.run(SEND).assert_code(1);
    let summary = scratch.checked_status(Some("c"));
    assert_eq!((&summary["sent"], &summary["failed"]), (&200.into(), &2.into()));
    gateway.assert_each_once(200);
    let stats = gateway.stats();
    assert!(stats.calls * 4 < stats.requests, "{stats:?}");
}

#[test]
fn rejected_batch_is_sent_again_one_by_one() {
    let gateway = Practice::start(SandboxConfig { all_or_none: true, ..SandboxConfig::default() });
    let scratch = gateway.with_references(PER_CALL).scratch();
    // Neither among the first, which are sent alone, nor the last, which may be left over.
    let good = list(150);
    let mut lines: Vec<&str> = good.lines().collect();
    let bad = reserved_list(1, 1);
    lines.insert(130, bad.lines().nth(1).expect("a number"));
    scratch.import(&lines.join("\n"));
    // With a single attempt allowed, the rejection of another message uses none.
    scratch.run_with(SEND, &[("SMSQ__RETRY__MAX_ATTEMPTS", "1")]).assert_code(1);
    let summary = scratch.checked_status(Some("c"));
    assert_eq!(summary["sent"], 150, "{summary}");
    gateway.assert_each_once(150);
    let failures = scratch.failures("c");
    let [failure] = failures.as_slice() else {
        panic!("{failures:?}");
    };
    assert_eq!(failure["class"], "recipient", "{failure}");
    let stats = gateway.stats();
    assert!(stats.requests > 151 && stats.requests <= 151 + 25, "{stats:?}");
}

#[test]
fn messages_missing_from_a_batch_response_are_unknown() {
    let gateway = Practice::start(SandboxConfig {
        ignore_references: true,
        faults: Faults {
            short: every(3),
            no_answer: every(150),
            broken: every(170),
            ..Faults::default()
        },
        ..SandboxConfig::default()
    });
    let scratch = gateway.with_references(FORGETFUL).imported(&list(400));
    scratch.run(SEND).assert_code(1);
    // All were accepted once, and none was sent again.
    gateway.assert_each_once(400);
    assert_eq!(gateway.requests(), 400);
    let summary = scratch.checked_status(Some("c"));
    let count = |key: &str| summary[key].as_u64().expect("a count");
    assert_eq!(count("sent") + count("unknown"), 400, "{summary}");
    assert!(count("sent") > 0 && count("unknown") > 0, "{summary}");
    let why = scratch.failures("c");
    let has = |words: &str| {
        why.iter()
            .any(|failure| failure["reason"].as_str().is_some_and(|reason| reason.contains(words)))
    };
    assert!(has("without a result for this message"), "{why:?}");
    assert!(has("no answer"), "{why:?}");
    // Another run does not send them.
    scratch.run(SEND).assert_code(1);
    assert_eq!(gateway.requests(), 400);
}

#[test]
fn repeated_unlisted_code_stops_the_campaign() {
    let gateway = Practice::start(SandboxConfig::default());
    let rows = joined(&[reserved_list(2, 60), list(30)]);
    let scratch = gateway.without_references("").imported(&rows);
    let line = ["send", "--concurrency", "4"];
    let ran = scratch.run(line).assert_code(3);
    let output = ran.stderr();
    assert!(output.contains("returned the unlisted code `opted_out`"), "{output}");
    assert!(output.contains("[providers.cellar.codes]"), "{output}");
    let summary = scratch.checked_status(Some("c"));
    assert_eq!(summary["state"], "stopped", "{summary}");
    let failed = summary["failed"].as_u64().expect("a count");
    assert!((20..24).contains(&failed), "{summary}");

    let toml = scratch.read("smsq.toml");
    let listed = format!("{toml}opted_out = {{ class = \"opted_out\" }}\n");
    scratch.write("smsq.toml", &listed);
    scratch.run(line).assert_code(1);
    let summary = scratch.checked_status(Some("c"));
    assert_eq!(summary["failed"], 60, "{summary}");
    assert_eq!(summary["sent"], 30, "{summary}");
}
