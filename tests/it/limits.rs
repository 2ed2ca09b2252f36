//! Limits and leases of several workers, campaigns and providers, as processes on every database, and what
//! `smsq set` changes while a worker runs.

use std::time::Duration;

use rustix::process::Signal;
use smsq_sandbox::SandboxConfig;

use crate::support::Scratch;
use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, list, with_latency};
use crate::support::running::{Running, until_unchanged};
use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::waiting::eventually;

const SEND: [&str; 4] = ["send", "--quiet", "--concurrency", "4"];

fn set(scratch: &Scratch, campaign: &str, change: &[&str]) {
    let line = [&["set", "--campaign", campaign], change].concat();
    scratch.run(line).assert_code(0);
}

/// Imports `rows` phones that begin with these digits into a campaign.
fn import(scratch: &Scratch, campaign: &str, digits: u64, rows: u64, more: &[&str]) {
    let phones = (0..rows).map(|row| format!("+44{digits}{row:06}\n"));
    let file = format!("{campaign}.csv");
    scratch.write(&file, &format!("phone\n{}", phones.collect::<String>()));
    let line = ["import", &file, "--text", "Hello", "--campaign", campaign];
    scratch.run([&line[..], more].concat()).assert_code(0);
}

/// How many messages to phones that begin with these digits the gateway accepted.
fn accepted(gateway: &Practice, digits: u64) -> usize {
    let prefix = format!("+44{digits}");
    let phones = gateway.messages().into_iter();
    phones.filter(|entry| entry.to.starts_with(&prefix)).count()
}

fn stop(mut sending: Running) {
    sending.signal(Signal::INT);
    sending.ended().assert_code(130);
}

/// How many workers have lived for this long, by their heartbeats.
fn settled_in(db: &Database, millis: i64) -> i64 {
    db.number(&format!(
        "SELECT count(*) AS value FROM worker WHERE heartbeat_at - started_at >= {millis}"
    ))
}

#[test]
fn limit_used_by_one_worker_applies_to_a_new_one() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.with_references("timeout = \"3s\"").at(&db.url).scratch();
        let toml = scratch.read("smsq.toml");
        scratch.write("smsq.toml", &format!("[sender]\nlease = \"5s\"\n{toml}"));
        scratch.import(&list(40));
        let mut thrifty = scratch.start(["send", "--quiet", "--rate", "5/hour"]);
        assert!(thrifty.until("its limit is used up and a lease is over", || {
            gateway.accepted() >= 5 && settled_in(db, 6_000) == 1
        }));
        let mut generous = scratch.start(["send", "--quiet", "--rate", "1000/s"]);
        assert!(
            generous.until("the other worker has sent two heartbeats", || {
                settled_in(db, 3_000) == 2
            })
        );
        assert_eq!(gateway.accepted(), 5);
        stop(thrifty);
        // The campaign is still at its limit.
        assert_eq!(generous.ended().code(), Some(0));
        gateway.assert_each_once(40);
    });
}

#[test]
fn workers_with_different_leases_leave_each_other_alone() {
    with_every_database(|db| {
        let gateway = Practice::start(with_latency(9_000));
        let scratch = Scratch::at(&db.url);
        for (file, lease, timeout) in [("a.toml", "60s", "20s"), ("b.toml", "5s", "3s")] {
            gateway.without_references(&format!("timeout = \"{timeout}\"")).configure(&scratch);
            let toml = scratch.read("smsq.toml");
            let sender = format!("[sender]\nlease = \"{lease}\"\non_unknown = \"resend\"\n");
            scratch.write(file, &format!("{sender}{toml}"));
        }
        scratch.import(&list(4));
        let mut patient = scratch.start([&["--config", "a.toml"], &SEND[..]].concat());
        assert!(patient.until("its requests are in flight", || gateway.requests() == 4));
        let follow = ["--config", "b.toml", "send", "--quiet", "--follow"];
        let mut hasty = scratch.start(follow);
        // The first has 20 s between two heartbeats, the second reclaims after 5 s.
        assert!(hasty.until("the other is silent for its lease", || {
            let spread = "SELECT max(heartbeat_at) - min(heartbeat_at) AS value FROM worker";
            gateway.accepted() == 4 || db.number(spread) >= 6_500
        }));
        assert_eq!(db.number("SELECT count(*) AS value FROM worker WHERE lease_ms = 60000"), 1);
        assert_eq!(db.number("SELECT count(*) AS value FROM sms WHERE state = 2 OR in_doubt"), 0);
        patient.ended().assert_code(0);
        stop(hasty);
        gateway.assert_each_once(4);
        assert_eq!(gateway.requests(), 4);
    });
}

#[test]
fn exhausted_campaign_delays_no_other() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.with_references("").at(&db.url).scratch();
        import(&scratch, "slow", 7400, 10, &[]);
        set(&scratch, "slow", &["--rate", "2/day"]);
        let follow = [&SEND[..], &["--follow"]].concat();
        let mut sending = scratch.start(follow);
        assert!(sending.until("its limit is used up", || gateway.accepted() == 2));
        import(&scratch, "quick", 7401, 5, &[]);
        assert!(sending.until("the other is sent", || accepted(&gateway, 7401) == 5));
        assert_eq!(gateway.accepted(), 7);
        set(&scratch, "slow", &["--rate", "none"]);
        assert!(sending.until("all are sent", || gateway.accepted() == 15));
        stop(sending);
        gateway.assert_each_once(15);
    });
}

#[test]
fn limited_campaign_with_priority_starves_no_other() {
    with_every_database(|db| {
        let gateway = Practice::start(with_latency(30));
        let scratch = gateway.with_references("").at(&db.url).scratch();
        import(&scratch, "slow", 7400, 200, &[]);
        set(&scratch, "slow", &["--rate", "1/s", "--priority", "1"]);
        import(&scratch, "quick", 7401, 300, &[]);
        let mut sending = scratch.start(SEND);
        assert!(sending.until("the other is sent", || accepted(&gateway, 7401) == 300));
        let slow = accepted(&gateway, 7400);
        assert!((1..200).contains(&slow), "{slow}");
        stop(sending);
        assert_eq!(scratch.checked_status(Some("quick"))["sent"], 300);
    });
}

/// Two providers, each with a gateway.
fn two_providers(one: &Practice, two: &Practice) -> String {
    let section = |name: &str, url: String| {
        format!("[providers.{name}]\nkind = \"sandbox\"\nurl = \"{url}\"\n")
    };
    section("one", one.url()) + &section("two", two.url())
}

#[test]
fn campaign_moves_to_another_provider_while_it_is_sent() {
    with_every_database(|db| {
        let (one, two) = (Practice::start(with_latency(20)), Practice::start(with_latency(20)));
        let scratch = Scratch::at(&db.url);
        scratch.write("smsq.toml", &two_providers(&one, &two));
        import(&scratch, "c", 7400, 300, &["--provider", "one"]);
        set(&scratch, "c", &["--rate", "60/s"]);
        let mut sending = scratch.start(SEND);
        assert!(sending.until("some are sent", || one.accepted() >= 20));
        set(&scratch, "c", &["--provider", "two"]);
        assert!(sending.until("the other sends", || two.requests() >= 5));
        let before = one.requests();
        sending.ended().assert_code(0);
        // Messages in flight when it moved.
        assert!(one.requests() <= before + 4, "{} {before}", one.requests());
        assert_eq!(one.accepted() + two.accepted(), 300);
        assert_eq!(one.requests() + two.requests(), 300);
    });
}

#[test]
fn campaign_with_unknown_provider_stops_the_run() {
    with_every_database(|db| {
        let (one, two) = (Practice::start(with_latency(20)), Practice::start(with_latency(20)));
        let scratch = Scratch::at(&db.url);
        let both = two_providers(&one, &two);
        let (first, _) = both.split_once("[providers.two]").expect("two providers");
        scratch.write("smsq.toml", first);
        import(&scratch, "c", 7400, 200, &["--provider", "one"]);
        set(&scratch, "c", &["--rate", "20/s"]);
        let mut sending = scratch.start(SEND);
        assert!(sending.until("some are sent", || one.accepted() >= 3));
        scratch.write("smsq.toml", &both);
        set(&scratch, "c", &["--provider", "two"]);
        let ran = sending.ended().assert_code(3);
        assert!(ran.stderr().contains("without its provider `two`"), "{ran}");
        assert!(one.accepted() < 200 && two.requests() == 0);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(status["sending"], 0, "{status}");
    });
}

#[test]
fn removed_worker_registers_again_at_once() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.with_references("rate = \"20/s\"").at(&db.url).scratch();
        let toml = scratch.read("smsq.toml");
        scratch.write("smsq.toml", &format!("[sender]\nlease = \"600s\"\n{toml}"));
        scratch.import(&list(100));
        let mut sending = scratch.start(SEND);
        assert!(sending.until("some are sent", || gateway.accepted() >= 5));
        // The next heartbeat is minutes away: it notices when it claims.
        let id = db.number("SELECT max(id) AS value FROM worker");
        // As another worker that declares it dead.
        db.run("INSERT INTO reclaimed_worker (token, reclaimed_at) SELECT token, 0 FROM worker");
        db.run("DELETE FROM worker");
        eventually("it is back under another id", || {
            let ids = db.numbers("SELECT id AS value FROM worker");
            ids.len() == 1 && ids[0] > id
        });
        let ran = sending.ended();
        assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        let stats = gateway.stats();
        assert_eq!(stats.accepted, stats.distinct_recipients, "{stats:?}");
        scratch.checked_status(Some("c"));
    });
}

#[test]
fn number_of_another_country_gets_no_message() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.with_references("").at(&db.url).scratch();
        let toml = scratch.read("smsq.toml");
        let limits = "[limits]\ncountries = [\"GB\", \"IE\"]\n";
        scratch.write("smsq.toml", &format!("{limits}{toml}"));
        let list = "phone\n+447400123456\n+12025550123\n+353851234567\n+79161234567\n";
        scratch.write("list.csv", list);
        let arguments = ["import", "list.csv", "--text", "Hello", "--campaign", "c"];
        let ran = scratch.run(arguments.into_iter().chain(["--dry-run", "--format", "json"]));
        let reasons = &ran.json()["by_reason"];
        assert_eq!(reasons[0]["reason"], "not one of your countries", "{reasons}");
        assert_eq!(reasons[0]["count"], 2, "{reasons}");
        scratch.run(arguments).assert_code(0);
        let why = "is a number of US +1, which is not one of `limits.countries`";
        assert!(scratch.read("list.rejects.csv").contains(why));

        // Nor does a row that another program inserted.
        db.run("INSERT INTO sms (phone, content) VALUES ('+12025550124', 'Hi'), ('+447400123457', 'Hi')");
        scratch.run(["send", "--quiet"]).assert_code(1);
        let phones: Vec<String> = gateway.phones().into_iter().collect();
        assert_eq!(phones, ["+353851234567", "+447400123456", "+447400123457"]);
        assert_eq!(gateway.requests(), 3);
        let failures = scratch.failures("default");
        assert_eq!(failures.len(), 1, "{failures:?}");
        let reason = failures[0]["reason"].as_str().expect("a reason");
        assert!(reason.contains("US +1"), "{reason}");

        // Phones of all countries can be suppressed.
        scratch.write("stop.csv", "phone\n+12025550123\n");
        scratch.run(["suppress", "import", "stop.csv"]).assert_code(0);
    });
    let scratch = Scratch::new();
    scratch.write("smsq.toml", "[limits]\ncountries = [\"UK\"]\n");
    let ran = scratch.run(["status"]).assert_code(2);
    assert!(ran.stderr().contains("limits.countries"), "{ran}");
}

/// Provider sections that send to one gateway, each with these keys.
fn sections(gateway: &TimedProvider, scratch: &Scratch, sections: &[(&str, &str)]) {
    let url = gateway.url();
    let sections = sections.iter().map(|(name, keys)| {
        format!(
            r#"
[providers.{name}]
kind = "generic"
url = "{url}"
json = {{ to = "{{{{ phone }}}}", text = "{{{{ content }}}}" }}
message_id = "/id"
{keys}
"#
        )
    });
    scratch.write("smsq.toml", &sections.collect::<String>());
}

fn accepting() -> TimedProvider {
    TimedProvider::start(None, |_, earlier| Reply::Json(format!(r#"{{"id": "m-{earlier}"}}"#)))
}

/// Waits until a worker has sent what the limit allows.
fn sends_all_that_is_allowed(scratch: &Scratch, gateway: &TimedProvider, expected: usize) {
    let mut sending = scratch.start(SEND);
    assert!(sending.until("it sends", || gateway.sends() >= expected));
    let heartbeats = Duration::from_secs(3);
    until_unchanged("sent", heartbeats, || gateway.sends() as u64);
    stop(sending);
    assert_eq!(gateway.sends(), expected);
}

#[test]
fn sections_of_one_account_share_its_limit() {
    with_every_database(|db| {
        let gateway = accepting();
        let scratch = Scratch::at(&db.url);
        let both =
            [("cellar", "rate = \"4/day\""), ("attic", "account = \"cellar\"\nrate = \"6/day\"")];
        sections(&gateway, &scratch, &both);
        import(&scratch, "a", 7400, 3, &["--provider", "cellar"]);
        scratch.run(SEND).assert_code(0);
        import(&scratch, "b", 7401, 9, &["--provider", "attic"]);
        sends_all_that_is_allowed(&scratch, &gateway, 4);
        let checked = scratch.run(["check", "--offline"]);
        let note = "`attic`, `cellar` have account `cellar` and different limits: the smallest apply to all of \
                    them, 4/day";
        assert!(checked.stdout().contains(note), "{checked}");
        // A section that is renamed, with the name that it had as its account.
        let renamed = [("attic", "account = \"cellar\"\nrate = \"6/day\"")];
        sections(&gateway, &scratch, &renamed);
        sends_all_that_is_allowed(&scratch, &gateway, 6);
    });
}

#[test]
fn test_of_a_provider_counts_towards_its_limit() {
    with_every_database(|db| {
        let gateway = accepting();
        let scratch = Scratch::at(&db.url);
        sections(&gateway, &scratch, &[("cellar", "rate = \"3/day\"")]);
        let test = ["providers", "test", "cellar", "--to", "+447400123456"];
        import(&scratch, "a", 7400, 2, &[]);
        scratch.run(SEND).assert_code(0);
        scratch.run(test).assert_code(0);
        let mut waiting = scratch.start(test);
        waiting.until_printed("it waits", |said| {
            said.contains("for the limit of 3/day of account `cellar`")
        });
        waiting.kill();
        assert_eq!(gateway.sends(), 3);
    });
}
