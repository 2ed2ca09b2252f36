//! Routes: which provider sends which part of a campaign, and what happens while one is unavailable. Everything is
//! counted at the gateways, each of which has a log of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::support::databases::{Database, with_every_database};
use crate::support::practice::list;
use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::waiting::eventually;
use crate::support::{Ran, Scratch};

const SEND: [&str; 2] = ["send", "--quiet"];

/// What a gateway does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mood {
    Accepts,
    /// 401: it takes nothing.
    RefusesTheAccount,
    /// A code that is not in the table of codes.
    UnknownCode,
    /// It hands the message over, and closes the connection.
    HandsOverAndCuts,
    /// The router of the gateway says 503 after the message was handed over.
    HandsOverAndFails,
    /// It says with a listed code that it takes nothing.
    IsUnavailable,
}

impl Mood {
    const ALL: [Self; 6] = [
        Self::Accepts,
        Self::RefusesTheAccount,
        Self::UnknownCode,
        Self::HandsOverAndCuts,
        Self::HandsOverAndFails,
        Self::IsUnavailable,
    ];

    /// Whether the message arrives.
    fn hands_over(self) -> bool {
        matches!(self, Self::Accepts | Self::HandsOverAndCuts | Self::HandsOverAndFails)
    }

    fn reply(self, number: usize) -> Reply {
        match self {
            Self::Accepts => Reply::Json(format!("{{\"id\":\"m{number}\"}}")),
            Self::RefusesTheAccount => Reply::Status("401 Unauthorized"),
            Self::UnknownCode => Reply::Json("{\"code\":\"strange\"}".to_owned()),
            Self::HandsOverAndCuts => Reply::Lost,
            Self::HandsOverAndFails => Reply::Status("503 Service Unavailable"),
            Self::IsUnavailable => Reply::Json("{\"code\":\"down\"}".to_owned()),
        }
    }
}

/// A gateway whose mood changes, and that remembers which phones got a message.
struct Moody {
    gateway: TimedProvider,
    mood: Arc<AtomicU8>,
    log: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Moody {
    fn start(mood: Mood) -> Self {
        let mood = Arc::new(AtomicU8::new(mood as u8));
        let log: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let (now, got) = (Arc::clone(&mood), Arc::clone(&log));
        let gateway = TimedProvider::start(None, move |received, earlier| {
            let mood = Mood::ALL[usize::from(now.load(Ordering::SeqCst))];
            if mood.hands_over() {
                let to = received.line.split("to=").nth(1).unwrap_or_default();
                let phone = to.split(['&', ' ']).next().unwrap_or_default();
                got.lock().expect("not poisoned").push(phone.replace("%2B", "+"));
            }
            mood.reply(earlier)
        });
        Self { gateway, mood, log }
    }

    fn set(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
    }

    /// The phones that got a message, once for each message.
    fn log(&self) -> Vec<String> {
        self.log.lock().expect("not poisoned").clone()
    }
}

/// Providers `a` and `b`, and the route `main` with these settings.
fn configure(scratch: &Scratch, gateways: [&Moody; 2], more: &str, route: &str) {
    let mut text = String::from(
        "[sender]\nlease = \"5s\"\nconcurrency = 8\n[circuit_breaker]\nfirst_probe = \"100ms\"\nmax_probe = \"200ms\"\n\
         [retry]\nfirst_wait = \"50ms\"\nmax_wait = \"100ms\"\nmax_attempts = 0\n",
    );
    for (name, moody) in ["a", "b"].into_iter().zip(gateways) {
        let url = moody.gateway.url();
        let _ = write!(
            text,
            r#"
[providers.{name}]
kind = "generic"
url = "{url}/send"
query = {{ to = "{{{{ phone }}}}" }}
form = {{ text = "{{{{ content }}}}" }}
message_id = "/id"
error_code = "/code"
timeout = "2s"
{more}
[providers.{name}.codes]
down = {{ class = "unavailable", reason = "maintenance" }}
"#
        );
    }
    let _ = write!(text, "[routes.main]\n{route}\n");
    scratch.write("smsq.toml", &text);
}

fn import(scratch: &Scratch, campaign: &str, rows: u64) -> Ran {
    scratch.write("list.csv", &list(rows));
    let arguments = ["import", "list.csv", "--text", "Hello", "--route", "main"];
    scratch.run(arguments.into_iter().chain(["--again", "--campaign", campaign]))
}

fn status(scratch: &Scratch) -> serde_json::Value {
    scratch.run(["status", "--campaign", "spring", "--format", "json"]).json()
}

/// Each phone has one message at most, except those that smsq lists as unknown; none is at both gateways.
fn assert_each_once(scratch: &Scratch, gateways: [&Moody; 2], rows: u64) {
    let [a, b] = gateways.map(Moody::log);
    let mut counts: BTreeMap<&String, u32> = BTreeMap::new();
    for phone in a.iter().chain(&b) {
        *counts.entry(phone).or_default() += 1;
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let both: BTreeSet<&String> = a.iter().collect();
    assert!(b.iter().all(|phone| !both.contains(phone)));
    let status = status(scratch);
    let settled = status["sent"].as_u64().zip(status["unknown"].as_u64());
    let (sent, unknown) = settled.expect("counts");
    assert_eq!(sent + unknown, rows, "{status}");
    let arrived = counts.len() as u64;
    assert!(sent <= arrived && arrived <= sent + unknown, "{arrived} of {status}");
}

#[test]
fn phones_are_shared_by_prefix_and_share() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let gateways = [Moody::start(Mood::Accepts), Moody::start(Mood::Accepts)];
        let [a, b] = &gateways;
        let route = r#"first = [{ prefix = ["44"], provider = "a", share = 80 }, { prefix = ["44"], provider = "b", share = 20 }]
else = "b"
fallback = ["b"]"#;
        configure(&scratch, [a, b], "", route);
        import(&scratch, "spring", 1_000).assert_code(0);
        scratch.run(SEND).assert_code(0);
        assert_each_once(&scratch, [a, b], 1_000);
        let share = a.log().len();
        assert!((760..=840).contains(&share), "{share}");
        // The same phones have the same providers in another campaign.
        let before: BTreeSet<String> = a.log().into_iter().collect();
        import(&scratch, "summer", 1_000).assert_code(0);
        scratch.run(SEND).assert_code(0);
        let after: BTreeSet<String> = a.log().into_iter().collect();
        assert_eq!(before, after);
    });
}

#[test]
fn messages_go_to_the_fallback_only_while_their_provider_is_unavailable() {
    for mood in [Mood::RefusesTheAccount, Mood::IsUnavailable] {
        with_every_database(|db| {
            let scratch = Scratch::at(&db.url);
            let (a, b) = (Moody::start(mood), Moody::start(Mood::Accepts));
            let route = "else = \"a\"\nfallback = [\"b\"]\nfallback_after = \"100ms\"";
            configure(&scratch, [&a, &b], "rate = \"100/s\"", route);
            import(&scratch, "spring", 600).assert_code(0);
            let sending = scratch.start(SEND);
            eventually("the fallback sends", || b.log().len() > 50);
            assert_eq!(status(&scratch)["failed"], 0);
            a.set(Mood::Accepts);
            sending.ended().assert_code(0);
            assert_each_once(&scratch, [&a, &b], 600);
            assert!(!a.log().is_empty(), "it sends again");
            let moved = status(&scratch)["failovers"][0].clone();
            assert_eq!((&moved["provider"], &moved["fallback"]), (&"a".into(), &"b".into()));
            let count = moved["messages"].as_u64().expect("a count");
            assert_eq!(count, b.log().len() as u64, "{moved}");
        });
    }
}

/// Both gateways fail in turn, in every way, while workers are killed. What is certain goes to the other one; what is
/// not stays, and is listed.
#[test]
fn gateways_that_fail_in_turn_get_each_message_once() {
    const ROWS: u64 = 500;
    let moods = |index: usize| {
        let good = Mood::Accepts;
        let bad = Mood::ALL[1 + index / 2 % (Mood::ALL.len() - 1)];
        match index % 4 {
            0 => [good, bad],
            2 => [bad, bad],
            _ => [bad, good],
        }
    };
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let gateways = [Moody::start(Mood::Accepts), Moody::start(Mood::Accepts)];
        let route = r#"first = [{ prefix = ["44"], provider = "a" }, { prefix = ["44"], provider = "b" }]
fallback = ["a", "b"]
fallback_after = "50ms""#;
        let [a, b] = &gateways;
        configure(&scratch, [a, b], "rate = \"60/s\"", route);
        import(&scratch, "spring", ROWS).assert_code(0);
        let requests = || a.gateway.sends() + b.gateway.sends();
        let mut sending = scratch.start(SEND);
        for index in 0..20 {
            let before = requests();
            for (gateway, mood) in gateways.iter().zip(moods(index)) {
                gateway.set(mood);
            }
            let is_over = sending.until("requests are sent", || requests() > before + 12);
            if !is_over {
                // It stopped the campaign, or everything is settled.
                sending = scratch.start(SEND);
            } else if index % 2 == 1 {
                sending.kill();
                sending = scratch.start(SEND);
            }
        }
        for gateway in &gateways {
            gateway.set(Mood::Accepts);
        }
        sending.ended();
        let ran = scratch.run(SEND);
        assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        assert_each_once(&scratch, [a, b], ROWS);
        scratch.checked_status(Some("spring"));
    });
}

#[test]
fn message_in_doubt_never_changes_its_provider() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let (a, b) = (Moody::start(Mood::HandsOverAndCuts), Moody::start(Mood::Accepts));
        let route = "else = \"a\"\nfallback = [\"b\"]\nfallback_after = \"10ms\"";
        // It may be sent again, but only to the provider that may have it.
        configure(&scratch, [&a, &b], "honours_reference = true\nrate = \"100/s\"", route);
        import(&scratch, "spring", 60).assert_code(0);
        let sending = scratch.start(SEND);
        let all: BTreeSet<String> = import_phones(&scratch);
        eventually("the rest is at the fallback", || {
            let at_a: BTreeSet<String> = a.log().into_iter().collect();
            b.log().len() + at_a.len() == all.len()
        });
        let at_b: BTreeSet<String> = b.log().into_iter().collect();
        a.set(Mood::Accepts);
        sending.ended().assert_code(0);
        let at_a: BTreeSet<String> = a.log().into_iter().collect();
        assert!(at_a.is_disjoint(&at_b), "{at_a:?} {at_b:?}");
        assert_eq!(status(&scratch)["sent"], 60);
    });
}

/// The phones of the imported list.
fn import_phones(scratch: &Scratch) -> BTreeSet<String> {
    let list = scratch.read("list.csv");
    list.lines().skip(1).map(str::to_owned).collect()
}

/// `a` fills a template from column `code`, `b` sends any text.
fn configure_a_template(scratch: &Scratch, gateways: [&Moody; 2], route: &str) {
    configure(scratch, gateways, "rate = \"100/s\"", route);
    let text = scratch.read("smsq.toml");
    let text = text.replacen("{{ content }}", "{{ params.code }}", 1);
    scratch.write("smsq.toml", &text);
}

fn sorted(mut phones: Vec<String>) -> Vec<String> {
    phones.sort();
    phones
}

/// Inserts messages as another program does: two with a code, one without.
fn insert_three(db: &Database) {
    for (phone, params) in [
        ("+447400900001", "{\"code\": \"17\"}"),
        ("+447400900002", "{\"code\": null}"),
        ("+447400900003", "{\"code\": 18}"),
    ] {
        db.run(&format!(
            "INSERT INTO sms (campaign_id, phone, content, params) \
             SELECT id, '{phone}', 'Hello', '{params}' FROM campaign WHERE name = 'spring'"
        ));
    }
}

#[test]
fn provider_of_a_template_gets_only_messages_with_its_columns() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let gateways = [Moody::start(Mood::Accepts), Moody::start(Mood::Accepts)];
        let [a, b] = &gateways;
        configure_a_template(&scratch, [a, b], "else = \"a\"\nfallback = [\"b\"]");
        let ran = import(&scratch, "spring", 20).assert_code(0);
        let why =
            "provider `a` sends none of its messages: it needs column `code`, which the list lacks";
        assert!(ran.stderr().contains(why), "{ran}");
        scratch.write("codes.csv", "phone,code\n+447400800001,7\n+447400800002,8\n");
        let codes =
            ["import", "codes.csv", "--text", "Hello", "--route", "main", "--campaign", "codes"];
        let ran = scratch.run(codes).assert_code(0);
        assert!(!ran.stderr().contains("sends none"), "{ran}");
        insert_three(db);
        scratch.run(SEND).assert_code(0);
        let of_a = ["+447400800001", "+447400800002", "+447400900001", "+447400900003"];
        assert_eq!(sorted(a.log()), of_a);
        let mut of_b: Vec<String> = import_phones(&scratch).into_iter().collect();
        of_b.push("+447400900002".to_owned());
        assert_eq!(sorted(b.log()), sorted(of_b));
    });
}

#[test]
fn fallback_with_a_template_leaves_messages_that_lack_its_columns() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let (a, b) = (Moody::start(Mood::Accepts), Moody::start(Mood::IsUnavailable));
        let route = "else = \"b\"\nfallback = [\"a\"]\nfallback_after = \"10ms\"";
        configure_a_template(&scratch, [&a, &b], route);
        import(&scratch, "spring", 20).assert_code(0);
        insert_three(db);
        let sending = scratch.start(SEND);
        eventually("those with a code are at the fallback", || a.log().len() == 2);
        b.set(Mood::Accepts);
        sending.ended().assert_code(0);
        assert_eq!(sorted(a.log()), ["+447400900001", "+447400900003"]);
        assert_eq!(b.log().len(), 21);
        let status = status(&scratch);
        assert_eq!((&status["sent"], &status["failed"]), (&23.into(), &0.into()));
    });
}

#[test]
fn list_that_no_provider_of_a_route_can_send_is_refused() {
    let scratch = Scratch::new();
    let gateways = [Moody::start(Mood::Accepts), Moody::start(Mood::Accepts)];
    let [a, b] = &gateways;
    configure_a_template(&scratch, [a, b], "else = \"a\"");
    let ran = import(&scratch, "spring", 20).assert_code(2);
    let why = "missing column `code` in `list.csv`, which the template of provider `a` needs";
    assert!(ran.stderr().contains(why), "{ran}");
}

#[test]
fn both_providers_away_cost_no_attempt() {
    let scratch = Scratch::new();
    let gateways = [Moody::start(Mood::RefusesTheAccount), Moody::start(Mood::IsUnavailable)];
    let [a, b] = &gateways;
    let route = "else = \"a\"\nfallback = [\"b\"]\nfallback_after = \"10ms\"";
    configure(&scratch, [a, b], "", route);
    // No message is due again before the breaker opens: what was claimed again is not refunded.
    let settings = scratch.read("smsq.toml");
    let patient = settings
        .replace("first_wait = \"50ms\"", "first_wait = \"10s\"")
        .replace("max_wait = \"100ms\"", "max_wait = \"10s\"");
    scratch.write("smsq.toml", &patient);
    import(&scratch, "spring", 20).assert_code(0);
    let sending = scratch.start(SEND);
    eventually("both are probed", || a.gateway.sends() > 20 && b.gateway.sends() > 10);
    let waiting = status(&scratch);
    assert_eq!((&waiting["sent"], &waiting["failed"]), (&0.into(), &0.into()));
    b.set(Mood::Accepts);
    sending.ended().assert_code(0);
    assert_each_once(&scratch, [a, b], 20);
    let report =
        scratch.run(["report", "--sent", "--format", "json", "--campaign", "spring"]).json();
    let messages = report["messages"].as_array().expect("a list");
    assert_eq!(messages.len(), 20);
    let is_first = |message: &serde_json::Value| message["attempts"] == 1;
    assert!(messages.iter().all(is_first), "{report}");
}

#[test]
fn invalid_routes_and_unknown_names_are_clear_errors() {
    let scratch = Scratch::new();
    let gateways = [Moody::start(Mood::Accepts), Moody::start(Mood::Accepts)];
    let [a, b] = &gateways;
    for (route, expected) in [
        ("else = \"c\"", "invalid route `main`: unknown provider `c`"),
        (
            "else = \"a\"\nfallback = [\"a\"]",
            "invalid route `main`: `a` cannot be the fallback of itself",
        ),
        (
            "else = \"a\"\nfallback = [\"b\"]\non = [\"unknown\"]",
            "only messages that were certainly not accepted go to another provider",
        ),
    ] {
        configure(&scratch, [a, b], "", route);
        let ran = import(&scratch, "spring", 2).assert_code(2);
        assert!(ran.stderr().contains(expected), "{ran}");
        assert!(ran.stderr().contains("smsq.toml:"), "{ran}");
    }
    configure(&scratch, [a, b], "", "else = \"a\"\nfallback = [\"b\"]");
    scratch.write("list.csv", &list(2));
    let of = |more: [&'static str; 2]| {
        let ran = scratch
            .run(["import", "list.csv", "--text", "Hi"].into_iter().chain(more))
            .assert_code(2);
        ran.stderr()
    };
    assert!(of(["--route", "mian"]).contains("unknown provider `mian`"));
    let ran = scratch
        .run(["import", "list.csv", "--text", "Hi", "--route", "main", "--from", "SHOP"])
        .assert_code(2);
    let expected = "provider `a` of route `main` does not list the sender `SHOP`";
    assert!(ran.stderr().contains(expected), "{ran}");
}
