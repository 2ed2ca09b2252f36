//! Several messages in one request, end to end: each has its own fate, a kill loses and repeats none of them,
//! and one that spoils its company goes alone.

use std::num::NonZeroU64;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq::sandbox::{FaultRate, Faults, SandboxConfig};

use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::practice::{Practice, list, reserved_list};
use crate::support::shell::sqlite;

const SEND: [&str; 4] = ["send", "--concurrency", "4", "--quiet"];
const PER_CALL: &str = "batch = { per_call = 25 }";
/// The provider promises nothing of references, so whoever sends one twice is found out.
const FORGETFUL: &str = "batch = { per_call = 25 }\nhonours_reference = false\ntimeout = \"500ms\"";

fn every(count: u64) -> FaultRate {
    NonZeroU64::new(count).map_or(FaultRate::None, FaultRate::Every)
}

fn unhurried(honour_references: bool) -> SandboxConfig {
    SandboxConfig {
        latency: std::time::Duration::from_millis(10),
        jitter: std::time::Duration::from_millis(20),
        honour_references,
        ..SandboxConfig::default()
    }
}

/// Starts the sender and kills it once the gateway has seen a random number of further messages.
fn kill_one(scratch: &Scratch, gateway: &Practice, random: &mut StdRng) {
    let until = gateway.requests() + random.random_range(5..120);
    let mut sending = scratch.start(SEND);
    let alive = sending.until("requests", || gateway.requests() >= until);
    sending.kill();
    assert!(alive, "it ended before");
}

#[test]
fn a_killed_sender_loses_and_repeats_no_message_of_a_call_where_references_are_honoured() {
    with_every_database(|db| {
        let mut random = StdRng::seed_from_u64(1);
        let gateway = Practice::start(unhurried(true));
        let scratch = Scratch::at(&db.url);
        gateway.honouring(&scratch, PER_CALL);
        scratch.import(&list(1_500));
        for _ in 0..5 {
            kill_one(&scratch, &gateway, &mut random);
            scratch.sound_standing(Some("c"));
        }
        let ran = scratch.run(SEND);
        assert_eq!(ran.code(), Some(0), "{ran}");
        assert_eq!(scratch.sound_standing(Some("c"))["sent"], 1_500);
        gateway.assert_each_once(1_500);
        // What was in a killed sender's calls, at most 500 messages, goes alone.
        let stats = gateway.stats();
        assert!(stats.calls * 2 < stats.requests, "{stats:?}");
    });
}

#[test]
fn what_was_in_the_calls_of_a_killed_sender_is_held_and_nobody_gets_it_twice() {
    with_every_database(|db| {
        let mut random = StdRng::seed_from_u64(2);
        let gateway = Practice::start(unhurried(false));
        let scratch = Scratch::at(&db.url);
        gateway.honouring(&scratch, FORGETFUL);
        scratch.import(&list(1_500));
        for _ in 0..5 {
            kill_one(&scratch, &gateway, &mut random);
            scratch.sound_standing(Some("c"));
            let stats = gateway.stats();
            assert_eq!(stats.accepted, stats.distinct_recipients, "{stats:?}");
        }
        let ran = scratch.run(SEND);
        assert_eq!(ran.code(), Some(1), "{ran}");
        let standing = scratch.sound_standing(Some("c"));
        let count = |key: &str| standing[key].as_u64().expect("a count");
        assert_eq!(count("sent") + count("unknown"), 1_500, "{standing}");
        // At most what 4 slots held at each kill.
        assert!((1..=5 * 4 * 25).contains(&count("unknown")), "{standing}");
        let stats = gateway.stats();
        assert_eq!(stats.accepted, stats.distinct_recipients, "{stats:?}");
        assert!(stats.accepted >= count("sent"), "{standing} {stats:?}");
    });
}

#[test]
fn each_message_of_a_call_has_its_own_fate() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.honouring(&scratch, PER_CALL);
    let mut rows = list(100);
    for (fault, count) in [(1, 2), (2, 1), (3, 3), (4, 1), (8, 1)] {
        rows += &reserved_list(fault, count).replace("phone\n", "");
    }
    scratch.import(&rows);
    let ran = scratch.run_with(SEND, &[("SMSQ__RETRY__MAX_ATTEMPTS", "3")]);
    assert_eq!(ran.code(), Some(1), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["sent"], 104, "{standing}");
    assert_eq!(standing["failed"], 4, "{standing}");
    gateway.assert_each_once(104);
    let mut classes: Vec<String> = scratch
        .failures("c")
        .iter()
        .map(|failure| failure["class"].as_str().expect("a class").to_owned())
        .collect();
    classes.sort();
    assert_eq!(
        classes,
        ["opted_out", "recipient", "recipient", "unavailable"]
    );
    // Nobody who was good was tried twice for their company's sake.
    let once = "SELECT count(*) FROM sms_sent WHERE attempts = 1";
    assert_eq!(sqlite(&scratch, once), "101");
}

#[test]
fn a_stanza_of_a_few_lines_puts_several_messages_into_a_request() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    let stanza = r#"
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
    scratch.write("smsq.toml", &stanza.replace("URL", &gateway.url()));
    let wrong = reserved_list(1, 2).replace("phone\n", "");
    scratch.import(&(list(200) + &wrong));
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(1), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(
        (&standing["sent"], &standing["failed"]),
        (&200.into(), &2.into())
    );
    gateway.assert_each_once(200);
    let stats = gateway.stats();
    assert!(stats.calls * 4 < stats.requests, "{stats:?}");
}

#[test]
fn a_list_that_is_turned_down_for_one_message_fails_that_one_only() {
    let gateway = Practice::start(SandboxConfig {
        all_or_none: true,
        ..SandboxConfig::default()
    });
    let scratch = Scratch::new();
    gateway.honouring(&scratch, PER_CALL);
    let good = list(150);
    let bad = reserved_list(1, 1).replace("phone\n", "");
    scratch.import(&format!("{good}{bad}"));
    // Even a single attempt is not used up by another's fault.
    let ran = scratch.run_with(SEND, &[("SMSQ__RETRY__MAX_ATTEMPTS", "1")]);
    assert_eq!(ran.code(), Some(1), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["sent"], 150, "{standing}");
    gateway.assert_each_once(150);
    let failures = scratch.failures("c");
    let [failure] = failures.as_slice() else {
        panic!("{failures:?}");
    };
    assert_eq!(failure["class"], "recipient", "{failure}");
    let stats = gateway.stats();
    assert!(
        stats.requests > 151 && stats.requests <= 151 + 25,
        "{stats:?}"
    );
}

#[test]
fn what_an_answer_does_not_tell_is_unknown_for_just_the_messages_it_does_not_name() {
    let gateway = Practice::start(SandboxConfig {
        honour_references: false,
        faults: Faults {
            short: every(3),
            no_answer: every(150),
            broken: every(170),
            ..Faults::default()
        },
        ..SandboxConfig::default()
    });
    let scratch = Scratch::new();
    gateway.honouring(&scratch, FORGETFUL);
    scratch.import(&list(400));
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(1), "{ran}");
    // All of them were accepted once, and none was asked for again.
    gateway.assert_each_once(400);
    assert_eq!(gateway.requests(), 400);
    let standing = scratch.sound_standing(Some("c"));
    let count = |key: &str| standing[key].as_u64().expect("a count");
    assert_eq!(count("sent") + count("unknown"), 400, "{standing}");
    assert!(count("sent") > 0 && count("unknown") > 0, "{standing}");
    let why = scratch.failures("c");
    let has = |words: &str| {
        why.iter().any(|failure| {
            failure["reason"]
                .as_str()
                .is_some_and(|it| it.contains(words))
        })
    };
    assert!(has("without a result for this message"), "{why:?}");
    assert!(has("no answer"), "{why:?}");
    // Another run leaves them alone.
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(1), "{ran}");
    assert_eq!(gateway.requests(), 400);
}

#[test]
fn one_unlisted_code_again_and_again_stops_the_campaign_until_it_is_listed() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    let wrong = reserved_list(2, 60);
    let right = list(30).replace("phone\n", "");
    scratch.import(&format!("{wrong}{right}"));
    let line = ["send", "--concurrency", "4"];
    let ran = scratch.run(line);
    assert_eq!(ran.code(), Some(3), "{ran}");
    let said = ran.stderr();
    assert!(
        said.contains("code `opted_out`, which is not listed"),
        "{said}"
    );
    assert!(said.contains("[providers.cellar.codes]"), "{said}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["state"], "stopped", "{standing}");
    let failed = standing["failed"].as_u64().expect("a count");
    assert!((20..24).contains(&failed), "{standing}");

    let toml = scratch.read("smsq.toml");
    let listed = format!("{toml}opted_out = {{ class = \"opted_out\" }}\n");
    scratch.write("smsq.toml", &listed);
    let ran = scratch.run(line);
    assert_eq!(ran.code(), Some(1), "{ran}");
    let standing = scratch.sound_standing(Some("c"));
    assert_eq!(standing["failed"], 60, "{standing}");
    assert_eq!(standing["sent"], 30, "{standing}");
}
