//! Pools of senders: each sender keeps its own limit over all workers, and each phone its sender. Everything is counted
//! at the gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::support::databases::with_every_database;
use crate::support::practice::list;
use crate::support::running::Running;
use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::waiting::eventually;
use crate::support::{Ran, Scratch};

const SEND: [&str; 2] = ["send", "--quiet"];

/// What a gateway got in one request.
struct Sent {
    from: String,
    to: String,
    at: Instant,
}

/// The value of a parameter in the first line of a request.
fn parameter(line: &str, name: &str) -> String {
    let value =
        line.split(['?', '&', ' ']).find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_default().replace("%2B", "+")
}

fn sent(gateway: &TimedProvider) -> Vec<Sent> {
    let all = gateway.received().into_iter();
    all.map(|received| Sent {
        from: parameter(&received.line, "from"),
        to: parameter(&received.line, "to"),
        at: received.at,
    })
    .collect()
}

/// A gateway that accepts everything, except from the senders that `refuses` selects.
fn gateway(
    refuses: impl Fn(&str, usize) -> Option<&'static str> + Send + Sync + 'static,
) -> TimedProvider {
    TimedProvider::start(None, move |received, earlier| {
        match refuses(&parameter(&received.line, "from"), earlier) {
            Some(code) => Reply::Json(format!("{{\"code\":\"{code}\"}}")),
            None => Reply::Json(format!("{{\"id\":\"m{earlier}\"}}")),
        }
    })
}

/// Configures a provider `cellar` with this pool.
fn configure(scratch: &Scratch, gateway: &TimedProvider, senders: &str) {
    let url = gateway.url();
    scratch.write(
        "smsq.toml",
        &format!(
            r#"
[sender]
lease = "5s"
[providers.cellar]
kind = "generic"
url = "{url}/send"
query = {{ to = "{{{{ phone }}}}", from = "{{{{ from }}}}" }}
form = {{ text = "{{{{ content }}}}" }}
message_id = "/id"
error_code = "/code"
timeout = "2s"
senders = [{senders}]
[providers.cellar.codes]
full = {{ class = "throttle", reason = "the queue of the sender is full", sender = true, wait = "1h" }}
foreign = {{ class = "account", reason = "not a sender of this account", sender = true }}
"#
        ),
    );
}

/// `count` senders with this limit.
fn senders(count: u32, rate: &str) -> String {
    (0..count).fold(String::new(), |mut senders, number| {
        let _ = writeln!(senders, "{{ from = \"+12025550{number:03}\", rate = \"{rate}\" }},");
        senders
    })
}

fn import(scratch: &Scratch, campaign: &str, list: &str) -> Ran {
    scratch.write("list.csv", list);
    scratch.run(["import", "list.csv", "--text", "Hello", "--campaign", campaign, "--again"])
}

/// The sender of each phone.
fn by_phone(all: &[Sent]) -> BTreeMap<String, String> {
    let pairs = all.iter().map(|sent| (sent.to.clone(), sent.from.clone()));
    pairs.collect()
}

/// The most requests of one sender that arrived within a span.
fn most_within(all: &[Sent], span: Duration) -> usize {
    let mut by_sender: BTreeMap<&str, Vec<Instant>> = BTreeMap::new();
    for sent in all {
        by_sender.entry(&sent.from).or_default().push(sent.at);
    }
    let most = by_sender.into_values().map(|mut times| {
        times.sort_unstable();
        let from = |index: usize| {
            let within = times[index..].iter().take_while(|at| **at < times[index] + span);
            within.count()
        };
        (0..times.len()).map(from).max().unwrap_or_default()
    });
    most.max().unwrap_or_default()
}

#[test]
fn senders_keep_their_limits_over_workers_that_are_killed() {
    with_every_database(|db| {
        let gateway = gateway(|_, _| None);
        let scratch = Scratch::at(&db.url);
        configure(&scratch, &gateway, &senders(20, "2/s"));
        import(&scratch, "c", &list(400)).assert_code(0);
        let said = scratch.run(["status"]).stdout();
        let slowest =
            said.lines().find(|line| line.contains("`c`: the slowest sender is `+1202555"));
        let slowest = slowest.unwrap_or_else(|| panic!("{said}"));
        assert!(slowest.contains(" messages at 2/s, about "), "{slowest}");
        let mut workers: Vec<Running> = (0..4).map(|_| scratch.start(SEND)).collect();
        eventually("two seconds' worth", || gateway.sends() >= 80);
        for killed in workers.drain(..2) {
            killed.kill();
        }
        for worker in workers {
            let ran = worker.ended();
            assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        }
        let all = sent(&gateway);
        let phones: BTreeSet<&str> = all.iter().map(|sent| sent.to.as_str()).collect();
        assert_eq!(phones.len(), all.len(), "a phone got two messages");
        let status = scratch.checked_status(Some("c"));
        let settled = |key: &str| status[key].as_u64().expect("a count");
        assert_eq!(settled("sent") + settled("unknown"), 400, "{status}");
        assert!(settled("sent") <= all.len() as u64);
        let froms: BTreeSet<&str> = all.iter().map(|sent| sent.from.as_str()).collect();
        assert_eq!(froms.len(), 20);
        // How late a request arrives after its start depends on this machine.
        let most = most_within(&all, Duration::from_millis(800));
        assert!(most <= 2, "{most} of one sender within 800 ms");
    });
}

#[test]
fn phone_keeps_its_sender_in_every_campaign() {
    with_every_database(|db| {
        let gateway = gateway(|_, _| None);
        let scratch = Scratch::at(&db.url);
        configure(&scratch, &gateway, &senders(5, "100/s"));
        import(&scratch, "first", &list(100));
        scratch.run(SEND).assert_code(0);
        let first = by_phone(&sent(&gateway));
        let counts =
            first.values().fold(BTreeMap::new(), |mut counts: BTreeMap<&str, u32>, from| {
                *counts.entry(from).or_default() += 1;
                counts
            });
        assert!(counts.len() == 5 && counts.values().all(|count| *count >= 8), "{counts:?}");

        // Another program's rows are divided in the same way by the workers.
        let phones = first.keys().map(|phone| format!("('{phone}', 'Hi')"));
        let rows: Vec<String> = phones.collect();
        db.run(&format!("INSERT INTO sms (phone, content) VALUES {}", rows.join(", ")));
        scratch.run(SEND).assert_code(0);
        let all = sent(&gateway);
        assert_eq!(all.len(), 200);
        assert_eq!(by_phone(&all[100..]), first);

        // Without one of the senders only its phones have another one, also those that wait already.
        import(&scratch, "second", &list(100));
        let ran = scratch.run(["set", "--sender", "+12025550003", "off"]);
        let said = "sender `+12025550003` of `cellar` is off: running workers move its messages to the other senders";
        assert!(ran.stderr().contains(said) || ran.stdout().contains(said), "{ran}");
        scratch.run(SEND).assert_code(0);
        let all = sent(&gateway);
        assert_eq!(all.len(), 300);
        for (phone, from) in by_phone(&all[200..]) {
            assert_ne!(from, "+12025550003");
            assert!(from == first[&phone] || first[&phone] == "+12025550003");
        }
        let ran = scratch.run(["status"]);
        let off = "`cellar`: sender `+12025550003` is switched off";
        assert!(ran.stdout().contains(off), "{ran}");
    });
}

#[test]
fn refused_sender_waits_alone() {
    with_every_database(|db| {
        for code in ["full", "foreign"] {
            let gateway = gateway(move |from, _| (from == "+12025550001").then_some(code));
            let scratch = Scratch::at(&db.url);
            configure(&scratch, &gateway, &senders(4, "50/s"));
            import(&scratch, code, &list(80));
            let mut sending = scratch.start(SEND);
            let count = || sent(&gateway).iter().filter(|sent| sent.from != "+12025550001").count();
            let refused = || sent(&gateway).len() - count();
            let of_it = "SELECT count(*) AS value FROM sms JOIN lane ON lane.campaign_id = sms.campaign_id \
                         AND lane.lane = sms.lane WHERE lane.sender = '+12025550001'";
            let others = usize::try_from(80 - db.number(of_it)).expect("a share");
            assert!((40..80).contains(&others), "{others}");
            assert!(sending.until("the others have sent theirs, and it waits", || {
                let status = scratch.run(["status"]).stdout();
                count() == others && status.contains("sender `+12025550001` waits")
            }));
            let refused_before = refused();
            let ran = scratch.run(["status", "--campaign", code]);
            let said = "`cellar`: sender `+12025550001` waits";
            assert!(ran.stdout().contains(said), "{ran}");

            scratch.run(["set", "--sender", "+12025550001", "off"]).assert_code(0);
            sending.ended().assert_code(0);
            assert_eq!((count(), refused()), (80, refused_before));
            scratch.run(["set", "--sender", "+12025550001", "on"]);
            scratch.run(["providers", "resume", "cellar"]);
        }
    });
}

#[test]
fn row_of_a_country_without_a_sender_is_rejected() {
    let gateway = gateway(|_, _| None);
    let scratch = Scratch::new();
    let bound =
        "{ from = \"SHOP\", prefix = [\"44\"] }, { from = \"+12025550100\", prefix = [\"1\"] }";
    configure(&scratch, &gateway, bound);
    import(&scratch, "c", "phone\n+447400123456\n+12025550123\n+33612345678\n").assert_code(0);
    let rejects = std::fs::read_dir(scratch.path("")).expect("the folder");
    let names = rejects.map(|entry| entry.expect("an entry").file_name());
    let name = names.into_iter().find(|name| name.to_string_lossy().contains("rejects"));
    let file = scratch.read(&name.expect("a file of rejected rows").to_string_lossy());
    let why = "no sender of `cellar` sends to numbers that begin with +336";
    assert!(file.contains(why), "{file}");
    scratch.run(SEND).assert_code(0);
    let expected = [("+12025550123", "+12025550100"), ("+447400123456", "SHOP")];
    let expected = expected.map(|(to, from)| (to.to_owned(), from.to_owned()));
    assert_eq!(by_phone(&sent(&gateway)), BTreeMap::from(expected));
}

#[test]
fn invalid_pool_is_a_clear_error() {
    let gateway = gateway(|_, _| None);
    let scratch = Scratch::new();
    for (senders, expected) in [
        ("{ from = \"A\" }, { from = \"A\" }", "senders[1]: `A` is listed twice"),
        ("{ from = \"A\", rate = \"0/s\" }", "invalid rate `0/s`"),
        ("{ from = \"A\", weight = 0 }", "senders[0]: invalid `weight`: must be at least 1"),
        ("{ from = \"A\", prefix = [\"+44\"] }", "senders[0]: invalid `prefix` \"+44\""),
        ("{ from = \"A\", rates = \"1/s\" }", "unknown key `senders"),
        ("{ rate = \"1/s\" }", "missing key `senders"),
    ] {
        configure(&scratch, &gateway, senders);
        let ran = import(&scratch, "c", &list(1)).assert_code(2);
        assert!(ran.stderr().contains(expected), "{senders}: {ran}");
    }
    configure(&scratch, &gateway, &senders(2, "1/s"));
    for (arguments, expected) in [
        (["set", "--sender", "+1999", "off"], "unknown sender `+1999`"),
        (["set", "--sender", "+12025550001", "no"], "invalid state `no`"),
    ] {
        let ran = scratch.run(arguments).assert_code(2);
        assert!(ran.stderr().contains(expected), "{ran}");
    }
}

#[test]
fn dry_run_says_what_the_pool_changes() {
    let gateway = gateway(|_, _| None);
    let scratch = Scratch::new();
    configure(&scratch, &gateway, &senders(20, "1/s"));
    scratch.write("list.csv", &list(7_200));
    let ran = scratch.run(["import", "list.csv", "--text", "Hello", "--dry-run"]);
    let said = ran.stdout();
    let line = said.lines().find(|line| line.contains("20 senders at 1/s"));
    let line = line.unwrap_or_else(|| panic!("{ran}"));
    assert!(line.contains("; with one sender 2h"), "{line}");
    assert!(line.contains("about 6m") || line.contains("about 7m"), "{line}");
}
