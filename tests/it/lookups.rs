//! Status lookups: messages that were perhaps accepted are looked up at the provider, and none is sent twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use smsq_sandbox::Faults;

use crate::support::Scratch;
use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, joined, list, reserved_list, with_faults};
use crate::support::shell::sqlite;
use crate::support::timed_provider::{Reply, TimedProvider, clock};
use crate::support::waiting::eventually;

const SEND: [&str; 3] = ["send", "--concurrency", "8"];

/// Late responses time out. A 503 counts as unknown, although the gateway has not accepted the message.
const UNSURE: &str = "timeout = \"500ms\"\n";

fn gateway() -> Practice {
    Practice::start(with_faults(Faults {
        slow_for: Some(Duration::from_secs(20)),
        ..Faults::default()
    }))
}

fn lookup(gateway: &Practice, more: &str) -> String {
    format!(
        r#"{UNSURE}
[providers.cellar.lookup]
url = "http://{}/messages"
query = {{ reference = "{{{{ reference }}}}" }}
list = ""
matches = {{ "/reference" = "{{{{ reference }}}}" }}
message_id = "/id"
more = false
horizon = "24h"
rate = "20/s"
{more}
"#,
        gateway.address()
    )
}

/// Messages that are accepted with a late response, accepted without one, not accepted, and ordinary ones.
fn mixed_list() -> String {
    joined(&[list(4), reserved_list(6, 2), reserved_list(5, 2), reserved_list(3, 2)])
}

#[test]
fn lookup_settles_accepted_messages_and_resends_others() {
    let gateway = gateway();
    let when = "after = \"200ms\"\nabsent_after = \"1500ms\"";
    let scratch = gateway.in_doubt(&lookup(&gateway, when)).imported(&mixed_list());
    scratch.run(SEND).assert_code(0);
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["sent"], 10, "{status}");
    gateway.assert_each_once(10);
    // One request each, and one more for the two that were not accepted.
    assert_eq!(gateway.requests(), 12);
    let twice = "SELECT count(*) FROM sms_sent WHERE attempts > 1 AND phone NOT LIKE '+15005553%'";
    assert_eq!(sqlite(&scratch, twice), "0");
    let nameless = "SELECT count(*) FROM sms_sent WHERE message_id IS NULL OR accepted <> 1";
    assert_eq!(sqlite(&scratch, nameless), "0");
}

#[test]
fn unknown_messages_of_an_earlier_run_are_looked_up() {
    let gateway = gateway();
    let scratch = gateway.in_doubt(UNSURE).imported(&reserved_list(6, 3));
    scratch.run(SEND).assert_code(1);
    assert_eq!(scratch.checked_status(Some("c"))["unknown"], 3);
    let when = "after = \"100ms\"\nabsent_after = \"10min\"";
    gateway.in_doubt(&lookup(&gateway, when)).configure(&scratch);
    scratch.run(SEND).assert_code(0);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 3);
    gateway.assert_each_once(3);
    assert_eq!(gateway.requests(), 3);
}

#[test]
fn signal_ends_the_wait_for_lookups() {
    let gateway = gateway();
    let when = "after = \"100ms\"\nabsent_after = \"10min\"";
    let scratch = gateway.in_doubt(&lookup(&gateway, when)).imported(&reserved_list(3, 2));
    let mut sending = scratch.start(SEND);
    sending.until_printed("it prints what it waits for", |said| {
        said.contains("for the status of unknown messages")
    });
    sending.signal(Signal::INT);
    sending.ended().assert_code(130);
    assert_eq!(scratch.checked_status(Some("c"))["unknown"], 2);
    assert_eq!(gateway.requests(), 2);
}

#[test]
fn message_stays_unknown_when_absence_cannot_be_proved() {
    let gateway = gateway();
    let scratch =
        gateway.in_doubt(&lookup(&gateway, "after = \"200ms\"")).imported(&reserved_list(3, 2));
    scratch.run(SEND).assert_code(1);
    assert_eq!(scratch.checked_status(Some("c"))["unknown"], 2);
    assert_eq!(gateway.requests(), 2);
}

#[test]
fn expired_reference_is_not_used_to_resend() {
    let gateway = gateway();
    let scratch = gateway
        .in_doubt("timeout = \"500ms\"\nhonours_reference = true\nhonoured_for = \"1h\"")
        .scratch();
    scratch.import(&reserved_list(5, 2));
    let age = "UPDATE sms SET state = 2, in_doubt = 1, attempts = 1, claim = 1, reference = 'r' || id, \
        claimed_at = created_at, doubt_since = created_at - 7200000 * (id = (SELECT min(id) FROM sms))";
    sqlite(&scratch, age);
    scratch.run(SEND).assert_code(1);
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["unknown"], 1, "{status}");
    assert_eq!(status["sent"], 1, "{status}");
}

#[test]
fn message_in_doubt_is_not_resent_after_a_long_pause() {
    const HOURS: i64 = 3_600_000;
    with_every_database(|db| {
        let gateway = gateway();
        let scratch = gateway.with_references("honoured_for = \"48h\"").at(&db.url).scratch();
        let quick = scratch.read("smsq.toml");
        let patient = quick.replace("\"20ms\"", "\"40h\"").replace("\"200ms\"", "\"40h\"");
        scratch.write("smsq.toml", &patient);
        scratch.import(&reserved_list(5, 8));
        let mut sending = scratch.start(SEND);
        let in_doubt = "SELECT count(*) AS value FROM sms WHERE in_doubt AND state = 0";
        assert!(sending.until("all are in doubt", || db.number(in_doubt) == 8));
        sending.signal(Signal::INT);
        assert_eq!(sending.ended().code(), Some(130));
        assert_eq!(gateway.requests(), 8);
        // Friday evening to Monday morning: half of them were in doubt before that.
        db.run(&format!(
            "UPDATE sms SET due_at = due_at - {}, claimed_at = claimed_at - {}, \
             doubt_since = doubt_since - {} - CASE WHEN id % 2 = 0 THEN 1 ELSE 0 END * {}",
            61 * HOURS,
            47 * HOURS,
            47 * HOURS,
            14 * HOURS
        ));
        scratch.run(SEND).assert_code(1);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(status["unknown"], 4, "{status}");
        assert_eq!(status["sent"], 4, "{status}");
        assert_eq!(gateway.requests(), 12);
        for failure in scratch.failures("c") {
            let reason = failure["reason"].as_str().unwrap_or_default();
            assert!(reason.contains("does not remember"), "{failure}");
        }
        // Only the operator sends them again.
        scratch.run(["retry", "--campaign", "c", "--unknown"]).assert_code(0);
        scratch.run(SEND).assert_code(0);
        assert_eq!(gateway.requests(), 16);
    });
}

/// Configures a provider without references: an entry with the same text at the time of the attempt is the message.
fn by_text(scratch: &Scratch, provider: &TimedProvider, more: &str) {
    let url = provider.url();
    let section = format!(
        r#"
[providers.cellar]
kind = "generic"
url = "{url}/messages"
json = {{ to = "{{{{ phone }}}}", text = "{{{{ content }}}}" }}
message_id = "/id"
error_code = "/code"
timeout = "10s"
[providers.cellar.lookup]
url = "{url}/messages"
query = {{ to = "{{{{ phone }}}}" }}
list = "/list"
matches = {{ "/to" = "{{{{ phone }}}}", "/text" = "{{{{ content }}}}" }}
message_id = "/id"
error_code = "/code"
at = "/at"
more = "/next"
horizon = "24h"
after = "200ms"
rate = "50/s"
{more}
[providers.cellar.codes]
invalid = {{ class = "recipient", reason = "not a number that can be reached" }}
credit = {{ class = "account", reason = "no credit" }}
"#
    );
    scratch.write("smsq.toml", &section);
}

fn entry(id: &str, phone: &str, at: &str, code: &str) -> String {
    format!(r#"{{"id":"{id}","to":"{phone}","text":"Hello","at":"{at}","code":"{code}"}}"#)
}

fn listed(entries: &[String]) -> Reply {
    Reply::Json(format!(r#"{{"list":[{}],"next":null}}"#, entries.join(",")))
}

const PHONE: &str = "+447400123456";

/// A campaign with `rows` equal messages to one phone.
fn scratch_with(db: &Database, provider: &TimedProvider, more: &str, rows: usize) -> Scratch {
    let scratch = Scratch::at(&db.url);
    by_text(&scratch, provider, more);
    let line = ["import", "list.csv", "--text", "Hello", "--campaign", "c"];
    scratch.write("list.csv", "phone\n+447400123456\n");
    scratch.run(line).assert_code(0);
    let there = db.number("SELECT count(*) AS value FROM sms");
    for _ in there..i64::try_from(rows).expect("few") {
        db.run(
            "INSERT INTO sms (campaign_id, phone, content) \
             SELECT id, '+447400123456', 'Hello' FROM campaign WHERE name = 'c'",
        );
    }
    scratch
}

/// A provider whose clock is `ahead` and whose responses are lost; lookups return `entries`.
fn with_lost_responses(
    ahead: Option<i64>,
    entries: impl Fn() -> Vec<String> + Send + Sync + 'static,
) -> TimedProvider {
    TimedProvider::start(
        ahead,
        move |received, _| {
            if received.is_lookup() { listed(&entries()) } else { Reply::Lost }
        },
    )
}

/// The message as the provider lists it.
fn accepted_entry() -> Vec<String> {
    vec![entry("m0", PHONE, &clock(0), "")]
}

/// A provider whose responses are lost, and that lists what it was sent under our reference, rejected with a code.
fn rejecting(code: &'static str) -> TimedProvider {
    TimedProvider::start(Some(0), move |received, _| {
        if !received.is_lookup() {
            return Reply::Lost;
        }
        let reference = received.line.split("ref=").nth(1).unwrap_or_default();
        let reference = reference.split(['&', ' ']).next().unwrap_or_default();
        let entry = entry("m0", PHONE, &clock(0), code);
        listed(&[entry.replacen('{', &format!(r#"{{"ref":"{reference}","#), 1)])
    })
}

/// The messages of [`scratch_with`], which are looked up by our reference.
fn scratch_by_reference(db: &Database, provider: &TimedProvider) -> Scratch {
    let scratch = scratch_with(db, provider, "", 1);
    let by_reference = scratch
        .read("smsq.toml")
        .replace(r#"query = { to = "{{ phone }}" }"#, r#"query = { ref = "{{ reference }}" }"#)
        .replace(
            r#"matches = { "/to" = "{{ phone }}", "/text" = "{{ content }}" }"#,
            r#"matches = { "/ref" = "{{ reference }}" }"#,
        );
    assert!(by_reference.contains("/ref"), "{by_reference}");
    scratch.write("smsq.toml", &by_reference);
    scratch
}

#[test]
fn entry_of_a_sent_message_does_not_settle_an_equal_one() {
    with_every_database(|db| {
        // The first is accepted, the second is lost before it arrives, the third is its second attempt.
        let provider = TimedProvider::start(Some(0), |received, earlier| match earlier {
            _ if received.is_lookup() => listed(&[entry("m0", PHONE, &clock(0), "")]),
            1 => Reply::Lost,
            _ => Reply::Json(format!(r#"{{"id":"m{earlier}"}}"#)),
        });
        let scratch = scratch_with(db, &provider, "absent_after = \"1s\"", 2);
        scratch.run(["send", "--concurrency", "1"]).assert_code(0);
        assert_eq!(provider.sends(), 3);
        let mut ids = db.words("SELECT message_id AS value FROM sms_sent");
        ids.sort();
        assert_eq!(ids, [Some("m0".to_owned()), Some("m2".to_owned())]);
    });
}

#[test]
fn entry_of_message_in_flight_does_not_settle_an_equal_one() {
    with_every_database(|db| {
        // The first never arrives. The second is listed at once, and its response comes after one more lookup: its
        // entry proves nothing while it is in flight. The third is the first again.
        let provider = TimedProvider::start(Some(0), |received, earlier| match earlier {
            _ if received.is_lookup() => listed(&[entry("m1", PHONE, &clock(0), "")]),
            0 => Reply::Lost,
            1 => Reply::AfterLookups(2, r#"{"id":"m1"}"#.to_owned()),
            _ => Reply::Json(r#"{"id":"m2"}"#.to_owned()),
        });
        let scratch = scratch_with(db, &provider, "absent_after = \"1s\"", 2);
        scratch.run(["send", "--concurrency", "2"]).assert_code(0);
        assert_eq!(provider.sends(), 3);
        let mut ids = db.words("SELECT message_id AS value FROM sms_sent");
        ids.sort();
        assert_eq!(ids, [Some("m1".to_owned()), Some("m2".to_owned())]);
    });
}

#[test]
fn one_entry_does_not_settle_two_equal_unknown_messages() {
    with_every_database(|db| {
        let provider = with_lost_responses(Some(0), accepted_entry);
        let scratch = scratch_with(db, &provider, "", 2);
        scratch.run(["send", "--concurrency", "2"]).assert_code(1);
        assert_eq!(scratch.checked_status(Some("c"))["unknown"], 2);
        assert_eq!(provider.sends(), 2);
    });
}

#[test]
fn lookup_finds_message_when_provider_clock_is_behind() {
    for behind in [11, 61, 900] {
        with_every_database(|db| {
            let entries = move || vec![entry("m0", PHONE, &clock(-behind), "")];
            let provider = with_lost_responses(Some(-behind), entries);
            let scratch = scratch_with(db, &provider, "absent_after = \"1s\"", 1);
            let ran = scratch.run(["send", "--concurrency", "1"]);
            assert_eq!(ran.code(), Some(0), "{behind} s: {ran}");
            assert_eq!(provider.sends(), 1, "{behind} s");
        });
    }
}

#[test]
fn message_stays_unknown_when_lookup_answer_has_no_date() {
    with_every_database(|db| {
        let provider = with_lost_responses(None, Vec::new);
        let scratch = scratch_with(db, &provider, "absent_after = \"1s\"", 1);
        scratch.run(["send", "--concurrency", "1"]).assert_code(1);
        assert_eq!(scratch.checked_status(Some("c"))["unknown"], 1);
        assert_eq!(provider.sends(), 1);
    });
}

#[test]
fn rejection_found_by_lookup_fails_the_message() {
    with_every_database(|db| {
        let provider = rejecting("invalid");
        let scratch = scratch_by_reference(db, &provider);
        scratch.run(["send", "--concurrency", "1"]).assert_code(1);
        assert_eq!(scratch.checked_status(Some("c"))["failed"], 1);
        let failures = scratch.failures("c");
        assert_eq!(failures[0]["class"], "recipient", "{failures:?}");
        assert_eq!(failures[0]["attempts"], 1, "{failures:?}");
        assert_eq!(provider.sends(), 1);
    });
}

#[test]
fn rejection_without_our_reference_settles_nothing() {
    with_every_database(|db| {
        // It may be the entry of another message with this text.
        let rejected = || vec![entry("m0", PHONE, &clock(0), "invalid")];
        let provider = with_lost_responses(Some(0), rejected);
        let scratch = scratch_with(db, &provider, "", 1);
        scratch.run(["send", "--concurrency", "1"]).assert_code(1);
        assert_eq!(scratch.checked_status(Some("c"))["unknown"], 1);
        assert_eq!(provider.sends(), 1);
    });
}

#[test]
fn account_error_found_by_lookup_stops_the_campaign() {
    with_every_database(|db| {
        let provider = rejecting("credit");
        let scratch = scratch_by_reference(db, &provider);
        scratch.run(["send", "--concurrency", "1"]).assert_code(3);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(status["queued"], 1, "{status}");
        assert_eq!(status["state"], "stopped", "{status}");
        assert_eq!(provider.sends(), 1);
    });
}

#[test]
fn rejection_does_not_settle_earlier_attempt_in_doubt() {
    with_every_database(|db| {
        let provider = rejecting("invalid");
        let scratch = scratch_by_reference(db, &provider);
        db.run("UPDATE sms SET in_doubt = (1 = 1), resend_approved = (1 = 1), attempts = 1, reference = 'r'");
        scratch.run(["send", "--concurrency", "1"]).assert_code(1);
        let status = scratch.checked_status(Some("c"));
        assert_eq!(status["unknown"], 1, "{status}");
        assert_eq!(provider.sends(), 1);
        assert!(provider.lookups() > 0);
    });
}

#[test]
fn absence_counts_from_when_a_dead_worker_was_reclaimed() {
    with_every_database(|db| {
        // The provider has accepted it, and lists it only later.
        let provider = TimedProvider::start(Some(0), |received, earlier| {
            match (received.is_lookup(), earlier) {
                (true, 0) => listed(&[]),
                (true, _) => listed(&[entry("m0", PHONE, "", "")]),
                (false, _) => Reply::Never,
            }
        });
        let scratch = scratch_with(db, &provider, "absent_after = \"3s\"", 1);
        let mut sending = scratch.start(["send", "--concurrency", "1"]);
        let is_sending = sending.until("a request", || provider.sends() == 1);
        sending.kill();
        assert!(is_sending, "it ended before");
        db.run("UPDATE sms SET claimed_at = claimed_at - 600000");
        scratch.run(["send", "--concurrency", "1"]).assert_code(0);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], 1);
        assert_eq!(provider.sends(), 1);
    });
}

#[test]
fn lookup_goes_to_the_host_of_an_overridden_url() {
    let provider = TimedProvider::start(Some(0), |received, _| {
        if received.is_lookup() {
            return Reply::Json(
                r#"{"count":1,"batches":[{"id":"b1","client_reference":"r1"}]}"#.to_owned(),
            );
        }
        Reply::Lost
    });
    let scratch = Scratch::new();
    let section = format!(
        "[providers.sinch]\nkind = \"sinch\"\nurl = \"{}/xms/v1/p/batches\"\n\
         secrets = {{ service_plan = {{ env = \"PLAN\" }}, api_token = {{ env = \"TOKEN\" }} }}\n",
        provider.url()
    );
    scratch.write("smsq.toml", &section);
    scratch.import("phone\n+447400123456\n");
    let unknown = "UPDATE sms SET state = 2, in_doubt = 1, attempts = 1, claim = 1, reference = 'r1', \
        claimed_at = created_at - 7200000, unknown_at = created_at - 7200000, doubt_claim = 1";
    sqlite(&scratch, unknown);
    scratch.run_with(["send"], &[("PLAN", "p"), ("TOKEN", "t")]).assert_code(0);
    let mut lines = provider.lines();
    // Its receipts are fetched from there, too.
    lines.retain(|line| !line.starts_with("GET /xms/v1/p/delivery_reports?"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("GET /xms/v1/p/batches?client_reference=r1&page_size=30&start_date="),
        "{lines:?}"
    );
}

#[test]
fn worker_killed_during_its_last_lookup_is_followed() {
    with_every_database(|db| {
        let is_silent = Arc::new(AtomicBool::new(true));
        let silent = Arc::clone(&is_silent);
        let provider =
            TimedProvider::start(Some(0), move |received, _| match received.is_lookup() {
                true if silent.load(Ordering::Relaxed) => Reply::Never,
                true => listed(&accepted_entry()),
                false => Reply::Lost,
            });
        let scratch = scratch_with(db, &provider, "absent_after = \"200ms\"", 1);
        // The next worker asks when the provider knows all: for the last time.
        let section = scratch.read("smsq.toml");
        let (sending, _) = section.split_once("[providers.cellar.lookup]").expect("a lookup");
        scratch.write("smsq.toml", sending);
        scratch.run(["send"]).assert_code(1);
        let ended = Instant::now();
        eventually("the provider knows all", || ended.elapsed() > Duration::from_secs(1));
        scratch.write("smsq.toml", &section);
        let mut asking = scratch.start(["send"]);
        assert!(asking.until("it asks", || provider.lookups() > 0));
        asking.kill();
        is_silent.store(false, Ordering::Relaxed);
        scratch.run(["send"]).assert_code(0);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], 1);
        assert_eq!(provider.sends(), 1);
    });
}

#[test]
fn absent_message_without_attempts_left_fails() {
    with_every_database(|db| {
        let provider = with_lost_responses(Some(0), Vec::new);
        let scratch = scratch_with(db, &provider, "absent_after = \"1s\"", 1);
        let section = scratch.read("smsq.toml");
        scratch.write("smsq.toml", &format!("[retry]\nmax_attempts = 1\n{section}"));
        scratch.run(["send"]).assert_code(1);
        let status = scratch.checked_status(Some("c"));
        assert_eq!((&status["failed"], &status["unknown"]), (&1.into(), &0.into()));
        assert_eq!(provider.sends(), 1);
    });
}

#[test]
fn message_in_doubt_is_not_sent_through_another_provider() {
    with_every_database(|db| {
        // The first one has accepted what it does not answer; the second one knows nothing of it.
        let first = with_lost_responses(Some(0), Vec::new);
        let second = TimedProvider::start(Some(0), |received, earlier| {
            if received.is_lookup() {
                listed(&[])
            } else {
                Reply::Json(format!(r#"{{"id":"m{earlier}"}}"#))
            }
        });
        let scratch = scratch_with(db, &second, "absent_after = \"200ms\"", 3);
        let second_only = scratch.read("smsq.toml");
        let url = first.url();
        let section = format!(
            "[providers.attic]\nkind = \"generic\"\nurl = \"{url}/messages\"\nmessage_id = \"/id\"\n\
             json = {{ to = \"{{{{ phone }}}}\", text = \"{{{{ content }}}}\" }}\n\
             honours_reference = false\n"
        );
        scratch.write("smsq.toml", &format!("{second_only}{section}"));
        let set = |provider: &str| {
            scratch.run(["set", "--campaign", "c", "--provider", provider]).assert_code(0);
        };
        set("attic");
        scratch.run(["send", "--concurrency", "1"]).assert_code(1);
        assert_eq!(first.sends(), 3);
        set("cellar");
        db.run(
            "INSERT INTO sms (campaign_id, phone, content) \
             SELECT id, '+447400123457', 'Hello' FROM campaign WHERE name = 'c'",
        );
        for more in [["--concurrency", "1"], ["--on-unknown", "hold"]] {
            scratch.run(["send", more[0], more[1]]).assert_code(1);
            assert_eq!(second.sends(), 1);
        }
        assert_eq!(scratch.checked_status(Some("c"))["unknown"], 3);
        // Only the operator sends them again, and through another provider only if that was said, too.
        let retry = ["retry", "--unknown", "--campaign", "c"];
        for (more, exit, sent) in [(None, 1, 1), (Some("--any-provider"), 0, 4)] {
            scratch.run(retry.into_iter().chain(more)).assert_code(0);
            scratch.run(["send", "--concurrency", "1"]).assert_code(exit);
            assert_eq!((first.sends(), second.sends()), (3, sent));
        }
    });
}
