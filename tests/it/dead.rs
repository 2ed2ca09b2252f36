//! Numbers that do not exist, as providers said: with `limits.skip_dead` they get no other message.

use serde_json::Value;
use smsq_sandbox::{FaultRate, Faults, ReceiptFaults, SandboxConfig};

use crate::support::databases::{Database, with_every_database};
use crate::support::practice::Practice;
use crate::support::{Ran, Scratch};

const SEND: [&str; 2] = ["send", "--quiet"];
const SKIP: &str = "[limits]\nskip_dead = \"180d\"\n";
/// The practice gateway rejects it always.
const DEAD: &str = "+15005551000";
const REASON: &str = "the number does not exist, as `practice` said on ";

/// A gateway for a list with a dead number, and its prices.
fn configured(db: &Database, faults: Faults, more: &str) -> (Practice, Scratch) {
    let gateway = Practice::start(SandboxConfig { faults, ..SandboxConfig::default() });
    let scratch = gateway
        .with_references(&format!(
            "{more}\n[prices.practice]\ncurrency = \"EUR\"\n1 = 0.05\n44 = 0.03\n"
        ))
        .at(&db.url)
        .scratch();
    scratch.write("list.csv", &format!("phone\n+447400123456\n{DEAD}\n"));
    (gateway, scratch)
}

/// Skips numbers that do not exist from now on.
fn skip(scratch: &Scratch) {
    let toml = scratch.read("smsq.toml");
    scratch.write("smsq.toml", &format!("{SKIP}{toml}"));
}

fn import(scratch: &Scratch, campaign: &str, more: &[&str]) -> Ran {
    let line = ["import", "list.csv", "--text", "Hello", "--again"];
    scratch.run([&line[..], &["--campaign", campaign], more].concat())
}

fn dead(db: &Database) -> Vec<Option<String>> {
    db.words("SELECT phone AS value FROM dead ORDER BY phone")
}

fn ended(ran: &Ran, code: i32) {
    assert_eq!(ran.code(), Some(code), "{ran}");
}

/// The reasons of an import's rejected rows.
fn by_reason(imported: &Value) -> (&Value, &Value, &Value) {
    let first = &imported["by_reason"][0];
    (&imported["rejected"], &first["reason"], &first["count"])
}

#[test]
fn dead_number_gets_no_other_message() {
    with_every_database(|db| {
        let (gateway, scratch) = configured(db, Faults::default(), "");
        ended(&import(&scratch, "a", &[]), 0);
        ended(&scratch.run(SEND), 1);
        // It is recorded before anything is skipped.
        assert_eq!(dead(db), [Some(DEAD.to_owned())]);
        let imported = import(&scratch, "b", &["--format", "json"]).json();
        assert_eq!(imported["accepted"], 2, "{imported}");
        ended(&scratch.run(["cancel", "--campaign", "b"]), 0);

        skip(&scratch);
        let estimate = import(&scratch, "c", &["--dry-run"]);
        let skipped = "  skipped     1 number that does not exist, which saves 0.05 EUR\n";
        assert!(estimate.stdout().contains(skipped), "{estimate}");
        let line = format!("line 3 rejected: {REASON}");
        assert!(estimate.stdout().contains(&line), "{estimate}");
        let imported = import(&scratch, "c", &["--format", "json"]).json();
        let one = Value::from(1);
        assert_eq!(
            by_reason(&imported),
            (&one, &Value::from("no such number"), &one),
            "{imported}"
        );
        let rejects = scratch.read("list.rejects.csv");
        let reasons: Vec<&str> = rejects.lines().skip(1).collect();
        let [row] = reasons[..] else {
            panic!("{rejects}");
        };
        assert!(row.contains(DEAD) && row.contains(REASON), "{rejects}");
        assert!(row.ends_with(" (code invalid_recipient)\""), "{rejects}");

        // A row that another program inserted fails without a request.
        let insert = format!("INSERT INTO sms (phone, content) VALUES ('{DEAD}', 'Hi')");
        db.run(&insert);
        let before = gateway.requests();
        ended(&scratch.run(SEND), 1);
        assert_eq!(gateway.requests(), before + 1, "only the other row of the list");
        let failures = scratch.failures("default");
        let [failure] = &failures[..] else {
            panic!("{failures:?}");
        };
        assert_eq!(failure["class"], "recipient", "{failure}");
        assert_eq!(failure["attempts"], 0, "{failure}");
        let reason = failure["reason"].as_str().expect("a reason");
        assert!(reason.starts_with(REASON), "{reason}");

        // Who retries it wants it to be sent.
        ended(&scratch.run(["retry", "--campaign", "default"]), 0);
        assert!(dead(db).is_empty());
        ended(&scratch.run(SEND), 1);
        assert_eq!(gateway.requests(), before + 2);
        assert_eq!(dead(db), [Some(DEAD.to_owned())]);
        ended(&scratch.run(["purge", "--phone", DEAD, "--yes"]), 0);
        assert!(dead(db).is_empty());
        scratch.checked_status(Some("c"));
    });
}

#[test]
fn receipt_says_that_a_number_is_dead_or_alive() {
    with_every_database(|db| {
        let undelivered = Faults {
            receipts: ReceiptFaults {
                undelivered: FaultRate::Part(1.0),
                ..ReceiptFaults::default()
            },
            ..Faults::default()
        };
        let receipts = "[providers.practice.receipts]\nenabled = true\n[providers.practice.receipts.codes]\n\
            absent = { class = \"recipient\", dead = true, reason = \"the number is not in use\" }";
        let (_gateway, scratch) = configured(db, undelivered, receipts);
        scratch.write("list.csv", "phone\n+447400123456\n");
        ended(&import(&scratch, "a", &[]), 0);
        scratch.run(["send", "--quiet", "--wait-receipts=60s"]);
        assert_eq!(dead(db), [Some("+447400123456".to_owned())]);
        skip(&scratch);
        let imported = import(&scratch, "b", &["--format", "json"]).json();
        assert_eq!(imported["rejected"], 1, "{imported}");

        // Another gateway delivers a message that was queued anyway.
        let (_gateway, other) = configured(db, Faults::default(), receipts);
        other.write("list.csv", "phone\n+447400123456\n");
        ended(&import(&other, "b", &[]), 0);
        ended(&other.run(["send", "--quiet", "--wait-receipts=60s"]), 0);
        assert!(dead(db).is_empty());
    });
}

#[test]
fn invalid_age_of_dead_numbers_is_an_error() {
    let scratch = Scratch::new();
    for age in ["\"1h\"", "\"soon\"", "180"] {
        scratch.write("smsq.toml", &format!("[limits]\nskip_dead = {age}\n"));
        let ran = scratch.run(["status"]).assert_code(2);
        assert!(ran.stderr().contains("limits.skip_dead"), "{ran}");
    }
}
