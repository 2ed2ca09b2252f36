//! Hooks with the real program: a receiver that misbehaves, and senders that are killed. Every event arrives at least
//! once, and events that arrive again have the same id and body.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use smsq_sandbox::SandboxConfig;

use crate::support::Scratch;
use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, list, reserved_list};
use crate::support::receiver::{PostedEvent, Reaction, Receiver, SECRET};
use crate::support::waiting::eventually;

const QUICK: &str = "first_wait = \"30ms\"\ntimeout = \"1s\"";
const MESSAGES: [&str; 2] = ["message.failed", "message.unknown"];

/// A gateway that rejects reserved numbers, and a folder with a provider that sends to it.
fn folder(db: &Database, hooks: &str) -> (Practice, Scratch) {
    let gateway = Practice::start(SandboxConfig {
        latency: Duration::from_millis(2),
        jitter: Duration::from_millis(8),
        ..SandboxConfig::default()
    });
    let scratch = Scratch::at(&db.url);
    scratch.write("hook", SECRET);
    // A campaign of rejected numbers is not paused.
    let config = "[auto_pause]\nrejected = 0\nunlisted = 0\n";
    gateway.without_references("").configure(&scratch);
    let text = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("{text}{config}{hooks}"));
    (gateway, scratch)
}

/// Rejected numbers after ordinary ones.
fn mixed(ordinary: u64, rejected: u64) -> String {
    let rejected = reserved_list(1, rejected);
    let rejected = rejected.strip_prefix("phone\n").expect("a header");
    list(ordinary) + rejected
}

/// What `hooks list` says of a hook.
fn listed(scratch: &Scratch, name: &str) -> Value {
    let ran = scratch.run(["hooks", "list", "--format", "json"]).assert_code(0);
    let hooks = ran.json()["hooks"].clone();
    let hooks = hooks.as_array().expect("a list");
    let found = hooks.iter().find(|hook| hook["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {ran}")).clone()
}

/// Runs `send` until no event waits.
fn deliver_all(scratch: &Scratch, name: &str) {
    eventually("all events are delivered", || {
        let ran = scratch.run(["send", "--quiet"]);
        assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        listed(scratch, name)["waiting"] == 0
    });
}

/// The phones of failed messages, as the events say.
fn failed_phones(events: &BTreeMap<String, PostedEvent>) -> BTreeSet<String> {
    events
        .values()
        .filter(|event| event.kind() == "message.failed")
        .map(|event| event.body["data"]["phone"].as_str().expect("a phone").to_owned())
        .collect()
}

fn of_kind(events: &BTreeMap<String, PostedEvent>, kind: &str) -> usize {
    events.values().filter(|event| event.kind() == kind).count()
}

#[test]
fn failed_messages_and_the_end_of_a_campaign_are_posted() {
    with_every_database(|db| {
        let receiver = Receiver::start();
        let kinds = ["message.failed", "campaign.done"];
        let (_gateway, scratch) = folder(db, &receiver.section("crm", &kinds, ""));
        scratch.import(&mixed(5, 3));
        scratch.run(["send"]).assert_code(1);
        let taken = receiver.taken();
        assert_eq!(taken.len(), 4, "{taken:?}");
        assert_eq!(receiver.events().len(), 4);
        for event in taken.values() {
            assert!(!event.text.contains("1500555"), "{event:?}");
            let data = &event.body["data"];
            assert_eq!(data["campaign"], "c");
            match event.kind() {
                "message.failed" => {
                    assert_eq!(data["class"], "recipient");
                    assert_eq!(data["code"], "invalid_recipient");
                    assert_eq!(data["provider"], "cellar");
                    assert!(data["message"].is_string() && data["reference"].is_string());
                }
                "campaign.done" => {
                    assert_eq!(data["state"], "done");
                    assert_eq!([&data["sent"], &data["failed"]], [5, 3]);
                }
                other => panic!("{other}"),
            }
        }
        // More messages: it is done again.
        scratch.import(&mixed(7, 3));
        scratch.run(["send"]).assert_code(1);
        let taken = receiver.taken();
        assert_eq!(of_kind(&taken, "campaign.done"), 2);
        assert_eq!(of_kind(&taken, "message.failed"), 3);
        let hook = listed(&scratch, "crm");
        assert_eq!(hook["state"], "on");
        assert_eq!([&hook["waiting"], &hook["delivered"]], [0, 5], "{hook}");
    });
}

#[test]
fn killed_senders_lose_no_event() {
    const ORDINARY: u64 = 300;
    const REJECTED: u64 = 200;
    with_every_database(|db| {
        let mut random = StdRng::seed_from_u64(7);
        let number = AtomicU32::new(0);
        let seen: Mutex<BTreeSet<String>> = Mutex::default();
        let receiver = Receiver::with(move |event| {
            let is_first = seen.lock().expect("not poisoned").insert(event.id.clone());
            // Only the first attempt of an event fails, so that none is given up.
            match number.fetch_add(1, Ordering::Relaxed) % 9 {
                3 if is_first => Reaction::Answer(500, ""),
                5 if is_first => Reaction::Answer(503, "Retry-After: 0\r\n"),
                7 if is_first => Reaction::Answer(302, "Location: http://127.0.0.1:1/\r\n"),
                8 if is_first => Reaction::Stall(Duration::from_millis(30)),
                _ => Reaction::Answer(200, ""),
            }
        });
        let kinds = ["message.failed", "message.unknown", "campaign.done"];
        let more = format!("include = [\"phone\"]\n{QUICK}");
        let (gateway, scratch) = folder(db, &receiver.section("crm", &kinds, &more));
        scratch.import(&mixed(ORDINARY, REJECTED));
        for _ in 0..20 {
            let requests = gateway.requests() + random.random_range(0..30);
            let events = receiver.events().len() + random.random_range(0..10);
            let mut sending = scratch.start(["send", "--concurrency", "8", "--quiet"]);
            sending.until("requests or events", || {
                gateway.requests() > requests || receiver.events().len() > events
            });
            sending.kill();
        }
        deliver_all(&scratch, "crm");
        assert_eq!(listed(&scratch, "crm")["given_up"], 0);
        let status = scratch.checked_status(Some("c"));
        let taken = receiver.taken();
        // By the gateway's own log.
        let ended: BTreeSet<String> = scratch
            .failures("c")
            .iter()
            .filter(|failure| failure["state"] == "failed")
            .map(|failure| failure["phone"].as_str().expect("a phone").to_owned())
            .collect();
        assert!(failed_phones(&taken).is_superset(&ended));
        assert!(ended.iter().all(|phone| phone.starts_with("+15005551")));
        // One event for each message, however often it was posted.
        let failed = status["failed"].as_u64().expect("a count");
        assert_eq!(of_kind(&taken, "message.failed") as u64, failed);
        let unknown: BTreeSet<&str> = taken
            .values()
            .filter(|event| event.kind() == "message.unknown")
            .map(|event| event.body["data"]["message"].as_str().expect("an id"))
            .collect();
        assert_eq!(unknown.len() as u64, status["unknown"].as_u64().expect("a count"));
        assert_eq!(of_kind(&taken, "campaign.done"), 1, "{status}");
        assert_eq!(
            failed + unknown.len() as u64 + status["sent"].as_u64().expect("a count"),
            ORDINARY + REJECTED
        );
    });
}

#[test]
fn two_processes_deliver_each_event_once() {
    with_every_database(|db| {
        let receiver = Receiver::with(|_| {
            // A receiver that takes a while: both processes have requests in flight.
            std::thread::sleep(Duration::from_millis(5));
            Reaction::Answer(200, "")
        });
        let kinds = ["message.failed", "campaign.done"];
        let (_gateway, scratch) = folder(db, &receiver.section("crm", &kinds, QUICK));
        scratch.import(&mixed(50, 300));
        let mut serving = scratch.start(["serve", "--listen", "127.0.0.1:0"]);
        serving.first_line();
        let senders = [(); 2].map(|()| scratch.start(["send", "--quiet"]));
        for sender in senders {
            let ran = sender.ended();
            assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        }
        eventually("all events are delivered", || listed(&scratch, "crm")["waiting"] == 0);
        let taken = receiver.taken();
        assert_eq!(of_kind(&taken, "message.failed"), 300);
        assert_eq!(of_kind(&taken, "campaign.done"), 1);
        assert_eq!(receiver.events().len(), 301);
        serving.kill();
    });
}

#[test]
fn hook_that_is_gone_is_off_until_it_is_tested() {
    with_every_database(|db| {
        let answers = AtomicU32::new(0);
        let receiver = Receiver::with(move |_| match answers.fetch_add(1, Ordering::Relaxed) {
            0 => Reaction::Answer(410, ""),
            _ => Reaction::Answer(200, ""),
        });
        let (_gateway, scratch) = folder(db, &receiver.section("crm", &["message.failed"], QUICK));
        scratch.import(&mixed(0, 1));
        let ran = scratch.run(["send"]);
        assert!(ran.stderr().contains("1 event still to be delivered"), "{ran}");
        let hook = listed(&scratch, "crm");
        assert_eq!([&hook["state"], &hook["waiting"]], [&json!("off"), &json!(1)], "{hook}");
        // Nothing is posted while it is off.
        scratch.run(["send"]);
        assert_eq!(receiver.events().len(), 1);
        let ran = scratch.run(["hooks", "test", "crm"]).assert_code(0);
        assert!(ran.stdout().starts_with("delivered: 200"), "{ran}");
        scratch.run(["send"]);
        let hook = listed(&scratch, "crm");
        assert_eq!([&hook["state"], &hook["waiting"]], [&json!("on"), &json!(0)], "{hook}");
        let ids: Vec<String> = receiver.events().into_iter().map(|event| event.id).collect();
        assert_eq!([&ids[0], &ids[2]], [&ids[2], &ids[2]], "{ids:?}");
        assert_eq!(receiver.events()[1].kind(), "smsq.test");
    });
}

#[test]
fn replayed_events_have_their_ids_and_bodies() {
    with_every_database(|db| {
        let receiver = Receiver::start();
        let kinds = ["message.failed", "campaign.done"];
        let (_gateway, scratch) = folder(db, &receiver.section("crm", &kinds, QUICK));
        scratch.import(&mixed(2, 3));
        scratch.run(["send"]);
        let first = receiver.taken();
        assert_eq!(first.len(), 4);
        let line = ["hooks", "replay", "crm", "--since", "1h", "--kind", "message.failed"];
        let ran = scratch.run(line).assert_code(0);
        assert!(ran.stderr().contains("3 events of `crm` delivered again"), "{ran}");
        assert_eq!(receiver.events().len(), 7);
        assert_eq!(receiver.taken().keys().collect::<Vec<_>>(), first.keys().collect::<Vec<_>>());
        let ran = scratch.run(["hooks", "replay", "crm", "--since", "2099-01-01 00:00"]);
        assert!(ran.stderr().contains("0 events"), "{ran}");
    });
}

#[test]
fn receiver_that_is_down_gets_few_requests_and_keeps_all_events() {
    with_every_database(|db| {
        let receiver = Receiver::with(|_| Reaction::Answer(500, ""));
        let more = "first_wait = \"10min\"";
        let (_gateway, scratch) = folder(db, &receiver.section("crm", &MESSAGES, more));
        scratch.import(&mixed(5, 100));
        let ran = scratch.run(["send"]).assert_code(1);
        assert!(ran.stderr().contains("100 events still to be delivered"), "{ran}");
        // Those that were in flight when the first one failed, and the last try.
        assert!(receiver.events().len() <= 20, "{}", receiver.events().len());
        let hook = listed(&scratch, "crm");
        assert_eq!([&hook["state"], &hook["waiting"]], [&json!("failing"), &json!(100)]);
        assert!(hook["last_error"].as_str().expect("an error").starts_with("500"), "{hook}");
    });
}

#[test]
fn addresses_that_are_not_public_are_refused() {
    let receiver = Receiver::start();
    let scratch = Scratch::new();
    scratch.write("hook", SECRET);
    let hook = receiver.section("crm", &["campaign.done"], "");
    let private = hook.replace("allow_private = true\n", "");
    scratch.write("smsq.toml", &private);
    let ran = scratch.run(["hooks", "test", "crm"]).assert_code(2);
    let place = "smsq.toml:2: invalid hook `crm`: `url`: the address is not public";
    assert!(ran.stderr().contains(place), "{ran}");
    // By its name.
    scratch.write("smsq.toml", &private.replace("127.0.0.1", "localhost"));
    let ran = scratch.run(["hooks", "test", "crm"]).assert_code(1);
    assert!(ran.stdout().contains("which is not public"), "{ran}");
    assert_eq!(receiver.events().len(), 0);
    scratch.write("smsq.toml", &hook.replace("127.0.0.1", "localhost"));
    scratch.run(["hooks", "test", "crm"]).assert_code(0);
}

#[test]
fn invalid_hooks_are_errors_with_their_place() {
    let scratch = Scratch::new();
    let section = |changed: &str| {
        format!(
            "[[hooks]]\nname = \"a\"\nurl = \"https://crm.example/\"\nsecret = {{ env = \"HOOK_SECRET\" }}\n\
             events = [\"campaign.done\"]\n[[hooks]]\nname = \"b\"\nurl = \"https://crm.example/\"\n\
             secret = {{ env = \"HOOK_SECRET\" }}\nevents = [\"campaign.done\"]\n{changed}\n"
        )
    };
    for (text, expected) in [
        (section("colour = 1"), "smsq.toml:6: invalid hook `b`: `colour`: unknown field `colour`"),
        (section("").replace("\"b\"", "\"a\""), "smsq.toml:6: invalid hook `a`: `name`: another"),
        (section("").replace("https", "http"), "smsq.toml:1: invalid hook `a`: `url`"),
        ("hooks = 1\n".to_owned(), "smsq.toml:1: invalid `hooks`: expected sections `[[hooks]]`"),
        (
            "[notify]\nevents = [\"campaign.over\"]\n".to_owned(),
            "smsq.toml:2: invalid value `[\"campaign.over\"]` of `notify.events`",
        ),
        ("[notify]\nstuck_after = \"1s\"\n".to_owned(), "`notify.stuck_after`"),
    ] {
        scratch.write("smsq.toml", &text);
        let ran = scratch.run(["status"]).assert_code(2);
        assert!(ran.stderr().contains(expected), "{expected}\n{ran}");
    }
    scratch.write("smsq.toml", &section(""));
    let ran = scratch.run(["hooks", "test", "a"]);
    assert!(ran.stderr().contains("`HOOK_SECRET` is not set"), "{ran}");
    scratch.run(["check", "--offline"]).assert_code(2);
    let ran = scratch.run_with(["check", "--offline"], &[("HOOK_SECRET", "whsec_aGVsbG8=")]);
    assert!(ran.stdout().contains("24 to 64 bytes") && !ran.stdout().contains("aGVsbG8"), "{ran}");
    scratch.run_with(["check", "--offline"], &[("HOOK_SECRET", SECRET)]).assert_code(0);
    let ran = scratch.run_with(["hooks", "test", "c"], &[("HOOK_SECRET", SECRET)]);
    assert!(ran.stderr().contains("unknown hook `c`"), "{ran}");
}

#[test]
fn program_of_notify_gets_the_end_of_a_campaign() {
    with_every_database(|db| {
        let (_gateway, scratch) = folder(db, "");
        let text = scratch.read("smsq.toml");
        let folder = scratch.path("").display().to_string();
        let script = format!("cat >> {folder}/event");
        let notify = format!("[notify]\ncommand = [\"sh\", \"-c\", \"{script}\"]\n");
        scratch.write("smsq.toml", &format!("{text}{notify}"));
        scratch.import(&mixed(3, 1));
        scratch.run(["send"]).assert_code(1);
        let written = scratch.read("event");
        let event: Value = serde_json::from_str(&written).expect("one event");
        assert_eq!(event["type"], "campaign.done");
        assert_eq!(event["data"]["sent"], 3);
        let fails = notify.replace(&script, "exit 3");
        scratch.write("smsq.toml", &format!("{text}{fails}"));
        let ran = scratch.run(["hooks", "test", "notify"]).assert_code(1);
        assert!(ran.stdout().contains("exit status: 3"), "{ran}");
    });
}

#[test]
fn stuck_campaign_is_reported_once() {
    with_every_database(|db| {
        let receiver = Receiver::start();
        let (_gateway, scratch) = folder(db, &receiver.section("crm", &["campaign.stuck"], QUICK));
        scratch.import(&mixed(3, 0));
        // Nothing sends.
        let mut serving = scratch.start(["serve", "--listen", "127.0.0.1:0"]);
        serving.first_line();
        let due = "SELECT count(*) AS value FROM campaign_watch WHERE due_since IS NOT NULL";
        eventually("the campaign is due", || db.number(due) == 1);
        db.run("UPDATE campaign_watch SET due_since = due_since - 600000");
        eventually("an event", || !receiver.events().is_empty());
        let stuck = "SELECT count(*) AS value FROM campaign_watch WHERE stuck_at IS NOT NULL";
        assert_eq!(db.number(stuck), 1);
        let events = receiver.events();
        assert_eq!(events[0].kind(), "campaign.stuck");
        assert_eq!(events[0].body["data"]["queued"], 3);
        assert!(events[0].body["data"]["since"].is_string());
        assert_eq!(db.number("SELECT count(*) AS value FROM hook_event"), 1);
        serving.kill();
    });
}
