//! What an answered attempt leaves behind at a provider: an entry in its list, a receipt, a remembered reference. None of
//! it settles another attempt, or one at another provider. Counted at a gateway that keeps what it refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::databases::{Database, with_every_database};
use crate::support::practice::list;
use crate::support::timed_provider::{Received, Reply, TimedProvider};
use crate::support::{Ran, Scratch};

const SEND: [&str; 3] = ["send", "--yes", "--quiet"];

/// What a gateway does with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Accept,
    /// It accepts, and closes the connection without an answer.
    AcceptAndClose,
    /// It refuses with this code, and keeps the message as rejected.
    Refuse(&'static str),
    /// It says that it has this reference, and accepts nothing.
    CallDuplicate,
}

/// An attempt in the gateway's list.
#[derive(Clone, Debug)]
struct Entry {
    reference: String,
    phone: String,
    is_accepted: bool,
}

/// Decides about an attempt, given the earlier ones for its phone.
type Decide = Box<dyn Fn(&[Entry], &Entry) -> Act + Send>;

/// A gateway that lists everything that it was asked to send, also what it refused.
struct Keeper {
    gateway: TimedProvider,
    entries: Arc<Mutex<Vec<Entry>>>,
    act: Arc<Mutex<Decide>>,
}

impl Keeper {
    /// `act` gets the earlier attempts for a phone, and the one to decide about.
    fn start(act: impl Fn(&[Entry], &Entry) -> Act + Send + 'static) -> Self {
        let entries: Arc<Mutex<Vec<Entry>>> = Arc::default();
        let act: Arc<Mutex<Decide>> = Arc::new(Mutex::new(Box::new(act)));
        let (known, decide) = (Arc::clone(&entries), Arc::clone(&act));
        let gateway = TimedProvider::start(Some(0), move |received, _| {
            let mut entries = known.lock().expect("not poisoned");
            if received.is_lookup() {
                return listed(&entries, received);
            }
            let mut entry = Entry {
                reference: value(received, "ref"),
                phone: value(received, "to"),
                is_accepted: false,
            };
            let earlier: Vec<Entry> =
                entries.iter().filter(|other| other.phone == entry.phone).cloned().collect();
            let act = decide.lock().expect("not poisoned")(&earlier, &entry);
            entry.is_accepted = matches!(act, Act::Accept | Act::AcceptAndClose);
            entries.push(entry);
            let id = entries.len();
            match act {
                Act::Accept => Reply::Json(json!({ "id": id }).to_string()),
                Act::AcceptAndClose => Reply::Lost,
                Act::Refuse(code) => Reply::Json(json!({ "code": code }).to_string()),
                Act::CallDuplicate => Reply::Json(json!({ "code": "known", "id": id }).to_string()),
            }
        });
        Self { gateway, entries, act }
    }

    fn act(&self, act: impl Fn(&[Entry], &Entry) -> Act + Send + 'static) {
        *self.act.lock().expect("not poisoned") = Box::new(act);
    }

    /// The phones of accepted attempts, once for each.
    fn accepted(&self) -> Vec<String> {
        let entries = self.entries.lock().expect("not poisoned");
        let accepted = entries.iter().filter(|entry| entry.is_accepted);
        accepted.map(|entry| entry.phone.clone()).collect()
    }

    /// Its section, with these keys and tables.
    fn section(&self, name: &str, keys: &str, tables: &str) -> String {
        let url = self.gateway.url();
        let tables = tables.replace("SECTION", name).replace("URL", &url);
        format!(
            r#"
[providers.{name}]
kind = "generic"
url = "{url}/send"
query = {{ to = "{{{{ phone }}}}", ref = "{{{{ reference }}}}" }}
form = {{ text = "{{{{ content }}}}" }}
message_id = "/id"
error_code = "/code"
timeout = "2s"
{keys}
[providers.{name}.codes]
full = {{ class = "cap", wait = "20ms" }}
credit = {{ class = "account" }}
down = {{ class = "unavailable" }}
known = {{ class = "duplicate" }}
rejected = {{ class = "recipient" }}
{tables}
"#
        )
    }
}

/// All entries, with states, and with this reference if the request names one.
fn listed(entries: &[Entry], received: &Received) -> Reply {
    let reference = value(received, "ref");
    let wanted = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| reference.is_empty() || entry.reference == reference);
    let items: Vec<Value> = wanted
        .map(|(index, entry)| {
            let state = if entry.is_accepted { "ok" } else { "rejected" };
            json!({ "id": (index + 1).to_string(), "ref": entry.reference, "state": state })
        })
        .collect();
    Reply::Json(json!({ "items": items, "next": null }).to_string())
}

/// The value of a parameter in the first line of a request.
fn value(received: &Received, name: &str) -> String {
    let query = received.line.split(['?', '&', ' ']);
    let found = query.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
    found.map_or_else(String::new, |(_, value)| value.replace("%2B", "+"))
}

const QUICK: &str = "[sender]\nlease = \"5s\"\nconcurrency = 8\n[circuit_breaker]\nfirst_probe = \"50ms\"\n\
    max_probe = \"100ms\"\n[retry]\nfirst_wait = \"20ms\"\nmax_wait = \"50ms\"\n";

const RECEIPTS: &str = r#"
[providers.SECTION.receipts]
enabled = true
pull = "sweep"
url = "URL/list"
query = { all = "1" }
rate = "1000/s"
list = "/items"
next = "/next"
message_id = "/id"
reference = "/ref"
state = "/state"
states = { ok = "delivered", rejected = "rejected" }
"#;

const LOOKUP: &str = r#"
[providers.SECTION.lookup]
url = "URL/list"
query = { ref = "{{ reference }}" }
list = "/items"
matches = { "/ref" = "{{ reference }}" }
message_id = "/id"
error_code = "/state"
more = "/next"
after = "50ms"
absent_after = "10s"
horizon = "24h"
rate = "100/s"
"#;

fn import(scratch: &Scratch, rows: u64, more: &[&str]) {
    scratch.write("list.csv", &list(rows));
    let arguments = ["import", "list.csv", "--text", "Hello", "--campaign", "c"];
    scratch.run(arguments.into_iter().chain(more.iter().copied())).assert_code(0);
}

fn count(scratch: &Scratch, state: &str) -> u64 {
    let status = scratch.checked_status(Some("c"));
    status[state].as_u64().unwrap_or_else(|| panic!("{status}"))
}

/// That each of these phones was accepted once in all.
fn assert_each_once(keepers: &[&Keeper], rows: usize) {
    let accepted: Vec<String> = keepers.iter().flat_map(|keeper| keeper.accepted()).collect();
    let distinct: BTreeSet<&String> = accepted.iter().collect();
    assert_eq!((accepted.len(), distinct.len()), (rows, rows), "{accepted:?}");
}

/// The first attempt for a phone is refused without being counted, and the second is accepted without an answer.
fn refuses_then_closes(code: &'static str) -> impl Fn(&[Entry], &Entry) -> Act + Send + 'static {
    move |earlier, _| match earlier.len() {
        0 => Act::Refuse(code),
        1 => Act::AcceptAndClose,
        _ => Act::Accept,
    }
}

#[test]
fn receipt_of_a_refused_attempt_fails_no_accepted_message() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let keeper = Keeper::start(refuses_then_closes("full"));
        let section = keeper.section("a", "", RECEIPTS);
        scratch.write("smsq.toml", &format!("{QUICK}{section}"));
        import(&scratch, 7, &[]);
        let sent = scratch.run(SEND);
        assert!(matches!(sent.code(), Some(0 | 1)), "{sent}");
        scratch.run(["receipts", "--quiet"]).assert_code(0);
        assert_each_once(&[&keeper], 7);
        assert_eq!((count(&scratch, "sent"), count(&scratch, "failed")), (7, 0));
    });
}

#[test]
fn lookup_of_a_refused_attempt_sends_nothing_twice() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let keeper = Keeper::start(refuses_then_closes("full"));
        let section = keeper.section("a", "", LOOKUP);
        scratch.write("smsq.toml", &format!("{QUICK}{section}"));
        import(&scratch, 8, &[]);
        scratch.run(SEND).assert_code(0);
        assert_each_once(&[&keeper], 8);
        assert_eq!(count(&scratch, "sent"), 8);
    });
}

#[test]
fn refused_account_and_lost_answer_send_nothing_twice() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let keeper = Keeper::start(|_, _| Act::Refuse("credit"));
        let section = keeper.section("a", "", LOOKUP);
        scratch.write("smsq.toml", &format!("{QUICK}{section}"));
        import(&scratch, 6, &[]);
        scratch.run(SEND).assert_code(3);
        // There is credit again.
        let refused: BTreeSet<String> = keeper
            .entries
            .lock()
            .expect("not poisoned")
            .iter()
            .map(|entry| entry.reference.clone())
            .collect();
        keeper.act(|earlier, _| {
            let is_first = earlier.iter().all(|entry| !entry.is_accepted);
            if is_first { Act::AcceptAndClose } else { Act::Accept }
        });
        scratch.run(SEND).assert_code(0);
        assert_each_once(&[&keeper], 6);
        let entries = keeper.entries.lock().expect("not poisoned");
        let accepted = entries.iter().filter(|entry| entry.is_accepted);
        for entry in accepted {
            assert!(!refused.contains(&entry.reference), "{entry:?} was refused");
        }
    });
}

#[test]
fn remembered_reference_of_a_refusal_is_not_an_acceptance() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        // It remembers references as idempotency keys do, whatever became of them.
        let keeper = Keeper::start(|earlier, entry| {
            let is_known = earlier.iter().any(|other| other.reference == entry.reference);
            match earlier.len() {
                _ if is_known => Act::CallDuplicate,
                0 => Act::Refuse("full"),
                _ => Act::Accept,
            }
        });
        let keys = "honours_reference = true\nhonoured_for = \"24h\"";
        let section = keeper.section("a", keys, "");
        scratch.write("smsq.toml", &format!("{QUICK}{section}"));
        import(&scratch, 20, &[]);
        scratch.run(SEND).assert_code(0);
        assert_each_once(&[&keeper], 20);
        assert_eq!(count(&scratch, "sent"), 20);
    });
}

#[test]
fn duplicate_of_a_message_without_doubt_is_unknown() {
    let scratch = Scratch::new();
    let keeper = Keeper::start(|_, _| Act::CallDuplicate);
    let keys = "honours_reference = true\nhonoured_for = \"24h\"";
    let section = keeper.section("a", keys, "");
    scratch.write("smsq.toml", &format!("{QUICK}{section}"));
    import(&scratch, 4, &[]);
    scratch.run(SEND).assert_code(1);
    assert_eq!((count(&scratch, "sent"), count(&scratch, "unknown")), (0, 4));
    assert_eq!(keeper.gateway.sends(), 4, "none is sent again");
    let report = scratch.run(["report", "--failed", "--format", "json"]).json();
    let text = report.to_string();
    assert!(text.contains("accepted this reference before"), "{text}");
}

/// Two providers on a route.
fn configure_route(scratch: &Scratch, sections: [&str; 2]) {
    let route = "[routes.main]\nelse = \"a\"\nfallback = [\"b\"]\nfallback_after = \"10ms\"\n";
    scratch.write("smsq.toml", &format!("{QUICK}{}{route}", sections.concat()));
}

#[test]
fn receipts_of_one_provider_settle_nothing_at_another() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        // What it has refused goes to the other one, and single messages ask whether it has credit again.
        let asked = AtomicUsize::new(0);
        let refusing = Keeper::start(move |_, _| match asked.fetch_add(1, Ordering::Relaxed) {
            0..40 => Act::Refuse("credit"),
            _ => Act::Accept,
        });
        let closing = Keeper::start(|_, _| Act::AcceptAndClose);
        let a = refusing.section("a", "", RECEIPTS);
        let b = closing.section("b", "", "");
        configure_route(&scratch, [&a, &b]);
        import(&scratch, 12, &["--route", "main"]);
        let sent = scratch.run(SEND);
        assert!(matches!(sent.code(), Some(1 | 3)), "{sent}");
        let unknown = count(&scratch, "unknown");
        assert!(unknown > 0, "b has accepted some");
        scratch.run(["receipts", "--provider", "a", "--quiet"]).assert_code(0);
        assert_eq!(count(&scratch, "failed"), 0);
        assert_eq!(count(&scratch, "unknown"), unknown);
    });
}

#[test]
fn approved_message_in_doubt_stays_with_its_provider() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let a = Keeper::start(|_, _| Act::AcceptAndClose);
        let b = Keeper::start(|_, _| Act::Accept);
        let keys = "honours_reference = true\nhonoured_for = \"24h\"";
        let sections = [a.section("a", keys, ""), b.section("b", "", "")];
        configure_route(&scratch, sections.each_ref().map(String::as_str));
        import(&scratch, 5, &["--route", "main"]);
        let attempts = ["--no-wait"];
        let sent = scratch
            .run_with(SEND.into_iter().chain(attempts), &[("SMSQ__RETRY__MAX_ATTEMPTS", "1")]);
        assert!(matches!(sent.code(), Some(1 | 3)), "{sent}");
        let in_doubt: BTreeSet<String> = a.accepted().into_iter().collect();
        assert!(!in_doubt.is_empty());
        // It is down now, so the route sends by the other one.
        a.act(|_, _| Act::Refuse("down"));
        scratch.run(["retry", "--unknown"]).assert_code(0);
        scratch.run(SEND.into_iter().chain(["--no-wait"]));
        let moved = |phones: Vec<String>| {
            phones.into_iter().filter(|phone| in_doubt.contains(phone)).count()
        };
        assert_eq!(moved(b.accepted()), 0, "b does not know their references");
        // That another provider may send them is a decision of its own.
        let campaign = count(&scratch, "unknown") + count(&scratch, "queued");
        assert_eq!(campaign, in_doubt.len() as u64);
    });
}

/// Six unknown messages of a provider without lookups, and the gateway that has accepted them.
fn with_unknown(scratch: &Scratch, keys: &str) -> Keeper {
    let keeper = Keeper::start(|_, _| Act::AcceptAndClose);
    let section = keeper.section("a", keys, "");
    scratch.write("smsq.toml", &format!("default_provider = \"a\"\n{QUICK}{section}"));
    import(scratch, 6, &[]);
    scratch.run(SEND).assert_code(1);
    assert_eq!(count(scratch, "unknown"), 6);
    keeper
}

/// All unknown messages are looked up, and found.
fn assert_found(scratch: &Scratch, keeper: &Keeper) {
    scratch.run(SEND).assert_code(0);
    assert_eq!((count(scratch, "sent"), count(scratch, "unknown")), (6, 0));
    assert_each_once(&[keeper], 6);
}

#[test]
fn unknown_messages_are_looked_up_whoever_sends_the_campaign() {
    let pool = "senders = [{ from = \"one\" }, { from = \"two\" }]";
    let changes: BTreeMap<&str, (&str, &str, &str)> = BTreeMap::from([
        ("a pool is added", ("", pool, "")),
        ("a sender is removed", (pool, "senders = [{ from = \"three\" }]", "")),
        ("the pool is removed", (pool, "", "")),
        ("a route is added", ("", "", "main")),
        ("another provider sends", ("", "", "b")),
    ]);
    with_every_database(|db| {
        for (change, (before, after, provider)) in &changes {
            let db = Database::new(db.kind);
            let scratch = Scratch::at(&db.url);
            let keeper = with_unknown(&scratch, before);
            let other = Keeper::start(|_, _| Act::Accept);
            let mut text = format!("default_provider = \"a\"\n{QUICK}");
            let _ = write!(
                text,
                "{}{}",
                keeper.section("a", after, LOOKUP),
                other.section("b", "", "")
            );
            text.push_str("[routes.main]\nelse = \"b\"\nfallback = [\"a\"]\n");
            scratch.write("smsq.toml", &text);
            if !provider.is_empty() {
                let set: Ran = scratch.run(["set", "--campaign", "c", "--provider", provider]);
                assert_eq!(set.code(), Some(0), "{change}: {set}");
            }
            assert_found(&scratch, &keeper);
            assert_eq!(other.accepted(), Vec::<String>::new(), "{change}");
        }
    });
}
