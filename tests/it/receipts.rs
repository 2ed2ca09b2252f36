//! Delivery receipts with the real program and a gateway that misbehaves: every message ends in the state that the
//! gateway says, also if the program is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use smsq_sandbox::{FaultRate, Faults, MessageOutcome, ReceiptFaults, SandboxConfig};

use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::practice::{Practice, list};
use crate::support::scripted::Scripted;
use crate::support::shell::sqlite;
use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::waiting::{PATIENCE, eventually};
use crate::support::{Gateway, Scratch, snapshot};

/// Waits for no receipts, so that the first pass finds what is there.
const SEND: [&str; 5] = ["send", "--yes", "--quiet", "--concurrency", "32"];
const RECHECK: [&str; 3] = ["receipts", "--recheck", "--quiet"];

/// Every fault of receipts, and lost responses, at this share.
fn every_fault(share: f64) -> Faults {
    let share = FaultRate::Part(share);
    Faults {
        no_answer: share,
        receipts: ReceiptFaults {
            delay: Duration::from_millis(200),
            undelivered: share,
            expired: share,
            opted_out: share,
            missing: share,
            intermediate: share,
            out_of_order: share,
            doubled: share,
            per_part: share,
            failed_part: share,
            contradicting: share,
            early: share,
            early_for: Some(Duration::from_millis(50)),
            foreign: share,
            unlisted: share,
            reject_late: share,
        },
        ..Faults::default()
    }
}

fn gateway(faults: Faults) -> Practice {
    Practice::start(SandboxConfig {
        faults,
        // A resend would be counted.
        ignore_references: true,
        ..SandboxConfig::default()
    })
}

/// A provider that honours no references, and whose receipts are fetched.
fn configure(gateway: &Practice, scratch: &Scratch, more: &str) {
    let more =
        format!("honours_reference = false\n[providers.practice.receipts]\nenabled = true\n{more}");
    gateway.with_references(&more).configure(scratch);
}

/// What the program says became of each sent message, by the provider's id.
fn delivery(scratch: &Scratch) -> BTreeMap<String, String> {
    let report = scratch.run(["report", "--sent", "--format", "json"]).json();
    let messages = report["messages"].as_array().expect("a list");
    let word = |one: &Value, key: &str| one[key].as_str().unwrap_or("none").to_owned();
    messages.iter().map(|one| (word(one, "message_id"), word(one, "delivery"))).collect()
}

/// The messages whose state differs from what the gateway says.
fn wrong<'a>(
    scratch: &Scratch,
    outcomes: &'a [MessageOutcome],
) -> Vec<(&'a MessageOutcome, String)> {
    let delivery = delivery(scratch);
    let failed: BTreeMap<String, Value> = scratch
        .failures("c")
        .into_iter()
        .map(|one| (one["phone"].as_str().expect("a phone").to_owned(), one))
        .collect();
    let found = |outcome: &MessageOutcome| match (outcome.state, delivery.get(&outcome.id)) {
        (_, Some(state)) if state == "awaiting" => "no_report".to_owned(),
        (_, Some(state)) => state.clone(),
        ("rejected", None) => {
            let one = failed.get(&outcome.to);
            let code = one.and_then(|one| one["code"].as_str());
            let is_its = code == Some("rejected_before_sending");
            if is_its { "rejected" } else { "elsewhere" }.to_owned()
        }
        (_, None) => "elsewhere".to_owned(),
    };
    let all = outcomes.iter().map(|outcome| (outcome, found(outcome)));
    all.filter(|(outcome, found)| *found != outcome.state).collect()
}

/// Lets the database list each state that a commit stores, in table `stored_state`: of a message, or of a receipt without
/// one.
fn record_states(database: &Database) {
    database.run("CREATE TABLE stored_state (message_id VARCHAR(64), state VARCHAR(32))");
    for (event, table, column) in
        [("UPDATE", "sms_sent", "delivery_state"), ("INSERT", "receipt", "state")]
    {
        let insert = format!("INSERT INTO stored_state VALUES (NEW.message_id, NEW.{column});");
        let trigger = format!("CREATE TRIGGER {table}_state AFTER {event} ON {table} FOR EACH ROW");
        database.run(&match database.kind {
            Kind::Sqlite => format!("{trigger} BEGIN {insert} END"),
            Kind::Mysql => format!("{trigger} {insert}"),
            Kind::Postgres => format!(
                "CREATE FUNCTION {table}_state() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN {insert} RETURN NEW; END $$;
                 {trigger} EXECUTE FUNCTION {table}_state()"
            ),
        });
    }
}

/// Checks that every message has the gateway's state. Of a message with contradicting receipts, the first may have been
/// lost with its process: then no commit has stored it.
fn assert_states(scratch: &Scratch, database: &Database, outcomes: &[MessageOutcome]) {
    for (outcome, found) in wrong(scratch, outcomes) {
        let (id, state) = (&outcome.id, outcome.state);
        assert!(outcome.contradicted, "{id}: {state} but {found}");
        let stored = database.number(&format!(
            "SELECT count(*) AS value FROM stored_state WHERE message_id = '{id}' AND state = '{state}'"
        ));
        assert_eq!(stored, 0, "{id}: {state} was not lost, but {found}");
    }
}

/// Sends with two workers at once, kills one of them three times, and compares every message with the gateway.
fn every_message_has_the_gateways_state(database: &Database) {
    const MESSAGES: u64 = 5_000;
    let mut random = StdRng::seed_from_u64(7);
    let gateway = gateway(every_fault(0.02));
    let scratch = Scratch::at(&database.url);
    configure(&gateway, &scratch, "every = \"100ms\"");
    scratch.import(&list(MESSAGES));
    record_states(database);
    let mut other = scratch.start(SEND);
    for _ in 0..3 {
        let until = gateway.requests() + random.random_range(MESSAGES / 20..MESSAGES / 8);
        let mut killed = scratch.start(SEND);
        let in_time = killed.until("requests", || gateway.requests() >= until);
        assert!(in_time, "it sent everything before it was killed");
        killed.kill();
    }
    other.until("the other one ends", || false);
    let last = scratch.run(SEND);
    assert!(matches!(last.code(), Some(0 | 1)), "{last}");
    // Until nothing changes any more: what was drained and not stored is found by the recheck.
    let missing = |outcomes: &[MessageOutcome]| {
        let missing = outcomes.iter().filter(|one| one.state == "no_report");
        missing.count() as u64
    };
    let outcomes = gateway.outcomes();
    eventually("all receipts have come", || {
        scratch.run(RECHECK).assert_code(0);
        let status = scratch.checked_status(Some("c"));
        status["delivery"]["awaiting"] == missing(&outcomes)
    });

    let status = scratch.checked_status(Some("c"));
    let delivery = &status["delivery"];
    let counts = ["delivered", "undelivered", "expired", "no_report", "awaiting"];
    let counts = counts.map(|key| delivery[key].as_u64().expect("a count"));
    assert_eq!(counts.iter().sum::<u64>(), status["sent"], "{status}");
    assert_eq!(status["queued"], 0, "{status}");
    let seen = gateway.stats();
    assert_eq!(seen.accepted, seen.distinct_recipients, "{seen:?}");
    assert_eq!(seen.repeated, 0, "{seen:?}");
    assert_eq!(status["sent"], seen.accepted, "{status} {seen:?}");

    assert_states(&scratch, database, &outcomes);
    // What is unknown now never reached the gateway.
    let known: BTreeSet<&str> = outcomes.iter().map(|one| one.to.as_str()).collect();
    for failure in scratch.failures("c") {
        let phone = failure["phone"].as_str().expect("a phone");
        assert!(failure["state"] != "unknown" || !known.contains(phone), "{failure}");
    }
    let opted_out = scratch.run(["suppress", "list"]).stdout().lines().count();
    assert!(opted_out > 0);
}

#[test]
fn every_message_ends_with_the_state_of_the_gateway() {
    with_every_database(every_message_has_the_gateways_state);
}

#[test]
fn killed_puller_loses_no_stored_receipt() {
    with_every_database(|database| {
        let mut random = StdRng::seed_from_u64(9);
        let gateway = gateway(every_fault(0.02));
        let scratch = Scratch::at(&database.url);
        // Small pages, so that a kill comes between two of them.
        let pages = "every = \"10ms\"\npage_size = 20\nquery = { limit = 20 }\nrate = \"1000/s\"";
        configure(&gateway, &scratch, pages);
        scratch.import(&list(1_000));
        record_states(database);
        // Nothing is fetched while the messages are sent.
        database.run(
            "INSERT INTO receipt_pull (provider, holder, leased_until)
             VALUES ('practice', 1, 9000000000000)",
        );
        let sent = scratch.run(SEND);
        assert!(matches!(sent.code(), Some(0 | 1)), "{sent}");
        database.run("DELETE FROM receipt_pull");
        let decided = "SELECT count(*) AS value FROM sms_sent WHERE delivery_state <> 'awaiting'";
        let stored = || database.number(decided);
        assert_eq!(stored(), 0);
        // Some receipts are never made, and some come only when they are asked for again: the next kill must not wait
        // for these.
        let reported = |outcome: &&MessageOutcome| outcome.state != "no_report";
        let made = gateway.outcomes().iter().filter(reported).count();
        let most = i64::try_from(made * 3 / 4).expect("few");
        let mut kills = 0;
        while kills < 10 && stored() < most {
            let before = stored();
            let until = before + random.random_range(1..60);
            let mut puller = scratch.start(["receipts", "--for", "1h", "--quiet"]);
            assert!(puller.until("receipts", || stored() >= until), "it ended");
            puller.kill();
            assert!(stored() >= before, "stored receipts were lost");
            // As if its lease had run out.
            database.run("UPDATE receipt_pull SET leased_until = 0");
            kills += 1;
        }
        assert!(kills >= 5, "{kills}");
        let outcomes = gateway.outcomes();
        let missing = outcomes.iter().filter(|one| one.state == "no_report").count();
        eventually("all receipts have come", || {
            scratch.run(RECHECK).assert_code(0);
            let status = scratch.checked_status(Some("c"));
            status["delivery"]["awaiting"] == missing
        });
        // No receipt is stored or applied twice.
        let doubled = database.numbers(
            "SELECT count(*) AS value FROM receipt
             GROUP BY provider, message_key, state, part HAVING count(*) > 1",
        );
        assert!(doubled.is_empty());
        assert_states(&scratch, database, &outcomes);
    });
}

/// A gateway that fails one phone.
fn with_undelivered(scratch: &Scratch) -> Practice {
    let gateway = gateway(Faults {
        receipts: ReceiptFaults {
            undelivered: FaultRate::try_from("every 2".to_owned()).expect("a rate"),
            ..ReceiptFaults::default()
        },
        ..Faults::default()
    });
    configure(&gateway, scratch, "");
    gateway
}

#[test]
fn send_waits_for_receipts_and_tells_who_was_not_reached() {
    let scratch = Scratch::new();
    let _gateway = with_undelivered(&scratch);
    scratch.import(&list(4));
    // One request at a time, so that the second and the fourth message fail.
    let send = ["send", "--wait-receipts=60s", "--concurrency", "1"];
    snapshot!(scratch.run(send), @r"
    exit 1
    ----- stdout
    sent 4 messages in [TIME] ([RATE])
    ----- stderr
    fetched 4 receipts, 4 of them new
    ");
    snapshot!(scratch.run(["report", "--campaign", "c"]), @r"
    exit 0
    ----- stdout
    c: done

       imported  4
       sent      4  100.0 %
         delivered 2  50.0 %   undelivered 2
       failed    0    0.0 %

      text        Hello
      sent        [DATE] to [DATE]
      provider    practice
      segments    4 (4 messages imported in GSM-7, 0 in UCS-2)
      delivered   half within 100 ms (95 % within 100 ms)
      lists       list.csv (4 rows: 4 accepted, 0 duplicates, 0 suppressed, 0 rejected)

    Why they were sent and not delivered

       2  the phone was not reached (recipient absent)
          → check the number, and import the fixed row

    Next
      smsq report --campaign c --undelivered --format csv --output undelivered.csv
          writes who was sent to and not reached: fix it and import it
    ");
    snapshot!(scratch.run(["report", "--undelivered"]), @r"
    exit 0
    ----- stdout
    +447400010011     recipient absent: the phone was not reached (1 attempt)
    +447400010013     recipient absent: the phone was not reached (1 attempt)
    ");
    snapshot!(scratch.run(["receipts"]), @r"
    exit 0
    ----- stdout
    c: done

       imported  4
       sent      4  100.0 %
         delivered 2  50.0 %   undelivered 2
       failed    0    0.0 %
    ----- stderr
    fetched 0 receipts, 0 of them new
    ");
}

#[test]
fn undelivered_messages_are_fixed_and_imported_once() {
    let scratch = Scratch::new();
    let _gateway = with_undelivered(&scratch);
    scratch.import(&list(4));
    scratch.run(["send", "--wait-receipts=60s", "--concurrency", "1"]);
    let line = ["report", "--undelivered", "--format", "csv", "--output", "again.csv"];
    scratch.run(line).assert_code(0);
    let csv = scratch.read("again.csv");
    assert!(csv.starts_with("phone,content,smsq_id,"), "{csv}");
    // The first of the two is fixed.
    let wrong = csv.lines().nth(1).and_then(|line| line.split(',').next());
    let fixed = csv.replacen(wrong.expect("a phone"), "+447400999999", 1);
    scratch.write("again.csv", &fixed);
    snapshot!(scratch.run(["import", "again.csv"]), @r"
    exit 0
    ----- stdout
    again.csv into campaign `c`
      rows        2
      accepted    1
      duplicates  1
      suppressed  0
      rejected    0
      segments    1 (1 message in GSM-7, 0 in UCS-2)
    ----- stderr
    1 message did not arrive before and did not change: change the phone or the text of a row to send it
    next: `smsq send --campaign c`
    ");
    let status = scratch.checked_status(Some("c"));
    assert_eq!((&status["imported"], &status["queued"]), (&5.into(), &1.into()));
    snapshot!(scratch.run(["import", "again.csv"]), @r"
    exit 0
    ----- stdout
    again.csv into campaign `c`
      rows        2
      accepted    0
      duplicates  2
      suppressed  0
      rejected    0
      segments    0 (0 messages in GSM-7, 0 in UCS-2)
    ----- stderr
    1 message did not arrive before and did not change: change the phone or the text of a row to send it
    next: `smsq send --campaign c`
    ");
    assert_eq!(scratch.checked_status(Some("c"))["imported"], 5);
    // Only the other one is left.
    let left = scratch.run(["report", "--undelivered"]).stdout();
    assert_eq!(left.lines().count(), 1, "{left}");
}

#[test]
fn receipts_without_a_source_are_explained() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("").imported(&list(1));
    snapshot!(scratch.run(["receipts"]), @r"
    exit 2
    ----- stderr
    error: no receipts can be fetched: no configured provider has a list of them that is switched on
    hint: `smsq providers list` shows how receipts come; section `receipts` of a provider switches them on
    ");
    snapshot!(scratch.run(["receipts", "--provider", "practice"]), @r"
    exit 2
    ----- stderr
    error: provider `practice`: fetching receipts is switched off
    hint: set `enabled = true` in [providers.practice.receipts]
    ");
    snapshot!(scratch.run(["receipts", "--provider", "huawei"]), @r"
    exit 2
    ----- stderr
    error: provider `huawei`: secret `app_key` is not set: the environment variable `HUAWEI_APP_KEY` is missing or empty
    hint: `export HUAWEI_APP_KEY=…` sets it for this shell
    ");
    snapshot!(scratch.run(["receipts", "--for", "soon"]), @r"
    exit 2
    ----- stderr
    error: invalid value 'soon' for '--for <TIME>': write a duration such as `30min` or `2h`

    For more information, try '--help'.
    ");
}

#[test]
fn messages_sent_before_receipts_were_on_are_not_awaited() {
    with_every_database(|db| {
        let gateway = gateway(Faults::default());
        let scratch =
            gateway.with_references("honours_reference = false\n").at(&db.url).imported(&list(7));
        scratch.run(SEND).assert_code(0);
        let status = scratch.checked_status(Some("c"));
        assert!(status["delivery"].is_null(), "{status}");
        configure(&gateway, &scratch, "");
        scratch.import(&list(9));
        scratch.run_with(SEND, &[("SMSQ__RECEIPTS__WAIT", "60s")]).assert_code(0);
        let status = scratch.checked_status(Some("c"));
        let expected = json!({
            "delivered": 2, "undelivered": 0, "expired": 0, "no_report": 0, "awaiting": 0,
            "not_awaited": 7,
        });
        assert_eq!(status["delivery"], expected, "{status}");
        let report = scratch.run(["report"]).stdout();
        assert!(report.contains("delivered 2  100.0 %   not awaited 7"), "{report}");
    });
}

#[test]
fn one_process_of_two_fetches_the_receipts() {
    let scratch = Scratch::new();
    let gateway = gateway(Faults {
        receipts: ReceiptFaults { missing: FaultRate::Part(1.0), ..ReceiptFaults::default() },
        ..Faults::default()
    });
    // A process makes one request in a minute.
    configure(&gateway, &scratch, "rate = \"1/min\"\nevery = \"1ms\"");
    scratch.import(&list(1));
    scratch.run(["send"]).assert_code(0);
    let _one = scratch.start(["receipts", "--follow", "--quiet"]);
    eventually("another process is busy", || {
        let ran = scratch.run(["receipts"]);
        ran.stderr().contains("another process")
    });
}

#[test]
fn test_message_waits_for_its_receipt() {
    let scratch = Scratch::new();
    let _gateway = with_undelivered(&scratch);
    let test = ["providers", "test", "practice", "--to", "+447400123456", "--quiet"];
    let without = scratch.run(test);
    assert_eq!(without.stdout(), "accepted by `practice` as SB000001\n");
    // The receipts that a drain returns have a place now.
    scratch.import(&list(1));
    let with = scratch.run(test);
    assert_eq!(
        with.stdout(),
        "accepted by `practice` as SB000002\n\
         undelivered: the phone was not reached (recipient, code absent)\n"
    );
    // They belong to no message of the list.
    let stored = sqlite(&scratch, "SELECT count(*) FROM receipt");
    assert_eq!(stored.trim(), "2");
}

#[test]
fn sandbox_posts_receipts() {
    let (posted, received) = std::sync::mpsc::channel();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        // The first request is refused, so it comes again.
        for (client, status) in listener.incoming().zip([500, 200]) {
            let mut client = client.expect("a connection");
            let mut request = String::new();
            let mut bytes = [0; 4_096];
            while !request.ends_with(']') {
                let count = client.read(&mut bytes).expect("a request");
                request.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
            client.write_all(answer.as_bytes()).expect("an answer");
            posted.send(request).expect("the test runs");
        }
    });
    let scratch = Scratch::new();
    let to = format!("http://{address}/receipts");
    let _gateway = Gateway::start_cellar(&scratch, &["--receipts-to", &to]);
    scratch.import(&list(1));
    scratch.run(["send"]).assert_code(0);
    for _ in 0..2 {
        let request = received.recv_timeout(PATIENCE).expect("a request");
        assert!(request.starts_with("POST /receipts HTTP/1.1"), "{request}");
        let (_, body) = request.split_once("\r\n\r\n").expect("head and body");
        let receipts: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(receipts[0]["state"], "delivered");
        assert_eq!(receipts[0]["id"], "SB000001");
    }
}

const ACCEPTED: (&str, &str) = ("201 Created", r#"{"id":"m1"}"#);
const FAILED: (&str, &str) = ("500 Internal Server Error", "");

/// A message that the gateway accepts as `m1`, and a list of messages of more than one page.
fn one_sent_message(scratch: &Scratch, gateway: &Scripted) {
    sent_messages(scratch, &gateway.url(), 1, "");
}

/// As many messages as `rows`, and `more` in the section of their receipts.
fn sent_messages(scratch: &Scratch, url: &str, rows: u64, more: &str) {
    scratch.write(
        "smsq.toml",
        &format!(
            r#"
default_provider = "shop"
[providers.shop]
kind = "generic"
url = "{url}/send"
json = {{ to = "{{{{ phone }}}}", text = "{{{{ content }}}}" }}
message_id = "/id"
[providers.shop.receipts]
pull = "sweep"
url = "{url}/list"
rate = "1000/s"
next = "/next"
list = "/items"
items = "/recipients"
message_id = "/id"
state = "/item"
states = {{ 1 = "delivered", 2 = "undelivered" }}
{more}
"#
        ),
    );
    scratch.import(&list(rows));
    scratch.run(SEND).assert_code(0);
}

fn page(id: &str, state: u8, next: &str) -> String {
    format!(r#"{{"items":[{{"id":"{id}","recipients":[{state}]}}],"next":{next}}}"#)
}

#[test]
fn list_of_100000_items_is_read_in_little_memory() {
    let scratch = Scratch::new();
    let items = "1,".repeat(99_999);
    let answer = format!(r#"{{"items":[{{"id":"m1","recipients":[{items}1]}}],"next":null}}"#);
    let gateway = Scripted::in_order(&[ACCEPTED, ("200 OK", &answer)]);
    one_sent_message(&scratch, &gateway);
    let mut command = scratch.command_after("ulimit -v 1500000", ["receipts"]);
    let output = command.output().expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("fetched 100000 receipts, 1 of them new"), "{printed}");
    assert_eq!(scratch.checked_status(Some("c"))["delivery"]["delivered"], 1);
}

#[test]
fn page_that_fails_once_is_requested_again() {
    let scratch = Scratch::new();
    let (first, second) = (page("x", 1, r#""/list?2""#), page("m1", 1, "null"));
    let gateway = Scripted::in_order(&[ACCEPTED, ("200 OK", &first), FAILED, ("200 OK", &second)]);
    one_sent_message(&scratch, &gateway);
    scratch.run(["receipts"]).assert_code(0);
    assert_eq!(scratch.checked_status(Some("c"))["delivery"]["delivered"], 1);
    assert_eq!(gateway.requests()[1..], ["GET /list", "GET /list?2", "GET /list?2"]);
}

#[test]
fn pass_continues_where_the_last_one_stopped() {
    with_every_database(|database| {
        let scratch = Scratch::at(&database.url);
        let (first, second) = (page("x", 1, r#""/list?2""#), page("m1", 1, "null"));
        let down = [FAILED; 4];
        let answers = [&[ACCEPTED, ("200 OK", &first)], &down[..], &[("200 OK", &second)]];
        let gateway = Scripted::in_order(&answers.concat());
        one_sent_message(&scratch, &gateway);
        scratch.run(["receipts"]).assert_code(3);
        let before = gateway.requests().len();
        scratch.run(["receipts"]).assert_code(0);
        assert_eq!(gateway.requests()[before..], ["GET /list?2"]);
        assert_eq!(scratch.checked_status(Some("c"))["delivery"]["delivered"], 1);
        let none = database.number("SELECT count(position) AS value FROM receipt_pull");
        assert_eq!(none, 0);
    });
}

#[test]
fn receipts_behind_a_url_of_the_next_page_are_applied() {
    const QUERY: &str = r#"query = { after = "{{ since | date('%Y-%m-%d') }}", before = "{{ until }}", page = "{{ page }}" }"#;
    with_every_database(|database| {
        let scratch = Scratch::at(&database.url);
        let gateway = TimedProvider::start(None, |request, earlier| {
            Reply::Json(match request.is_lookup() {
                false => format!(r#"{{"id":"m{}"}}"#, earlier + 1),
                true if request.line.contains("?token=second ") => page("m2", 2, "null"),
                true => page("m1", 1, r#""/list?token=second""#),
            })
        });
        sent_messages(&scratch, &gateway.url(), 2, QUERY);
        scratch.run(["receipts"]).assert_code(0);
        let delivery = &scratch.checked_status(Some("c"))["delivery"];
        assert_eq!(delivery["delivered"], 1, "{delivery}");
        assert_eq!(delivery["undelivered"], 1, "{delivery}");
        let lines = gateway.lines();
        let fetched: Vec<&String> = lines.iter().filter(|line| line.starts_with("GET")).collect();
        assert_eq!(fetched.len(), 2, "{fetched:?}");
        assert!(fetched[0].contains("after=20") && fetched[0].contains("page=1"));
        assert_eq!(fetched[1], "GET /list?token=second HTTP/1.1");
    });
}

#[test]
fn pages_that_point_at_each_other_are_read_once() {
    let scratch = Scratch::new();
    let (one, two) = (page("x", 1, r#""/list?2""#), page("y", 1, r#""/list?1""#));
    let circle = [("200 OK", one.as_str()), ("200 OK", two.as_str())].repeat(20);
    let answers = [&[ACCEPTED][..], &circle].concat();
    let gateway = Scripted::in_order(&answers);
    one_sent_message(&scratch, &gateway);
    let ran = scratch.run(["receipts"]).assert_code(0);
    let asked = gateway.requests().len() - 1;
    assert!((2..=3).contains(&asked), "{asked}");
    // They belong to messages of another program.
    let said = ran.stderr();
    assert!(said.contains("2 receipts without a message in this database"), "{said}");
    let json = scratch.run(["receipts", "--format", "json"]).json();
    assert_eq!(json["receipts"]["unmatched"], 2, "{json}");
}

#[test]
fn only_the_provider_that_tried_a_message_is_asked() {
    let scratch = Scratch::new();
    let (one, other) = (
        Scripted::in_order(&[FAILED, ("200 OK", r#"{"items":[],"next":null}"#)]),
        Scripted::start("200 OK", r#"{"items":[],"next":null}"#),
    );
    let section = |name: &str, url: &str| {
        format!(
            r#"
[providers.{name}]
kind = "generic"
url = "{url}/send"
json = {{ to = "{{{{ phone }}}}" }}
message_id = "/id"
receipts = {{ pull = "sweep", url = "{url}/list", rate = "1000/s", list = "/items", message_id = "/id", state = "/state", states = {{ 1 = "delivered" }} }}
"#
        )
    };
    let sections = [section("one", &one.url()), section("other", &other.url())].concat();
    scratch.write("smsq.toml", &format!("default_provider = \"one\"\n{sections}"));
    scratch.import(&list(1));
    scratch.run(SEND).assert_code(1);
    assert_eq!(scratch.checked_status(Some("c"))["unknown"], 1);
    scratch.run(["receipts"]).assert_code(0);
    assert_eq!(one.requests().last().map(String::as_str), Some("GET /list"));
    assert_eq!(other.requests(), Vec::<String>::new());
}
