//! Rows that other programs put into the table: a plain INSERT is a complete order, and one that makes
//! no sense hurts no other.

use rustix::process::Signal;
use smsq::sandbox::SandboxConfig;

use crate::support::databases::with_every_database;
use crate::support::practice::{Practice, list};
use crate::support::running::Running;
use crate::support::shell::{sqlite, try_sqlite};
use crate::support::{Ran, Scratch};

/// A sender that follows, and has sent the one message of its list.
fn following(scratch: &Scratch, gateway: &Practice) -> Running {
    scratch.import(&list(1));
    let mut sending = scratch.start(["send", "--follow"]);
    assert!(sending.until("it sends", || gateway.accepted() == 1));
    sending
}

#[test]
fn messages_of_a_missing_campaign_are_reported() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = Scratch::at(&db.url);
        gateway.forgetful(&scratch, "");
        scratch.import(&list(1));
        db.run("INSERT INTO sms (campaign_id, phone, content) VALUES (77, '+447400123456', 'x')");
        let ran = scratch.run(["send"]);
        assert_eq!(ran.code(), Some(1), "{ran}");
        let said = "1 message of campaign 77, which does not exist: it is not sent";
        assert!(ran.stderr().contains(said), "{ran}");
        let ran = scratch.run(["status"]);
        assert!(ran.stdout().contains(said), "{ran}");
        let lost = serde_json::json!([{ "campaign_id": 77, "messages": 1 }]);
        for command in ["send", "status"] {
            let ran = scratch.run([command, "--format", "json"]);
            assert_eq!(ran.json()["without_campaign"], lost, "{ran}");
        }
        assert_eq!(scratch.run(["send", "--campaign", "c"]).code(), Some(0));
        assert_eq!(gateway.accepted(), 1);
    });
}

#[test]
fn what_another_program_inserts_is_sent_by_a_sender_that_follows() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    let mut sending = following(&scratch, &gateway);
    sqlite(
        &scratch,
        "INSERT INTO sms (phone, content) VALUES ('+447400123456', 'From the shell');
         INSERT INTO sms (phone, content) VALUES ('not a phone', 'Nobody gets this');
         INSERT INTO sms (phone, content) VALUES ('0044 7400 123457', 'Repaired');
         INSERT INTO sms (phone, content, expires_at) VALUES ('+447400123458', 'Too late', 1);
         INSERT INTO sms (phone, content) VALUES ('+447400123459', '');
         INSERT INTO sms (phone, content) VALUES ('+447400123461', ' ' || char(8203));
         INSERT INTO sms (phone, content) VALUES ('+447400123460', 'The last');",
    );
    let alive = sending.until("all are settled", || {
        sqlite(&scratch, "SELECT count(*) FROM sms") == "0"
    });
    assert!(alive, "{}", sending.ended());
    sending.signal(Signal::INT);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(130), "{ran}");
    for phone in ["+447400123456", "+447400123457", "+447400123460"] {
        assert!(gateway.phones().contains(phone), "{phone}");
    }
    assert_eq!(gateway.stats().repeated, 0);
    scratch.sound_standing(Some("default"));
    let failures = scratch.failures("default");
    let class = |phone: &str| {
        let found = failures.iter().find(|failure| failure["phone"] == phone);
        found.map(|failure| failure["class"].clone())
    };
    assert_eq!(
        class("not a phone"),
        Some("recipient".into()),
        "{failures:?}"
    );
    assert_eq!(
        class("+447400123458"),
        Some("expired".into()),
        "{failures:?}"
    );
    for phone in ["+447400123459", "+447400123461"] {
        assert_eq!(class(phone), Some("content".into()), "{failures:?}");
        assert!(!gateway.phones().contains(phone), "{phone}");
    }
}

#[test]
fn a_row_that_makes_no_sense_hurts_no_other() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    let mut sending = following(&scratch, &gateway);
    sqlite(
        &scratch,
        "INSERT INTO sms (phone, content) VALUES ('+447400123456', x'ff00fe');
         INSERT INTO sms (phone, content) VALUES ('+447400123457', CAST(x'48e9' AS TEXT));
         INSERT INTO sms (phone, content) VALUES (x'ff2b34', 'a');
         INSERT INTO sms (phone, content, params) VALUES ('+447400123458', 'a', x'fe');
         INSERT INTO sms (phone, content, params) VALUES ('+447400123459', 'a', 'no JSON');
         INSERT INTO sms (phone, content) VALUES ('+447400123460', 'a' || char(0) || 'b');
         INSERT INTO sms (phone, content) VALUES ('+447400' || char(0) || '123461', 'a');
         INSERT INTO sms (phone, content, attempts) VALUES ('+447400123462', 'a', -5);
         INSERT INTO sms (phone, content, attempts) VALUES ('+447400123463', 'a', 2147483647);
         INSERT INTO sms (phone, content, reference) VALUES ('+447400123464', 'a', x'fe');
         INSERT INTO sms (phone, content) VALUES (447400123465, 12);
         INSERT INTO sms (phone, content) VALUES ('+447400123499', 'The last');",
    );
    let alive = sending.until("all are settled", || {
        sqlite(&scratch, "SELECT count(*) FROM sms") == "0"
    });
    assert!(alive, "{}", sending.ended());
    sending.signal(Signal::INT);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(130), "{ran}");
    assert!(gateway.phones().contains("+447400123499"));
    assert_eq!(gateway.stats().repeated, 0);
    scratch.sound_standing(Some("default"));
    let failures = scratch.failures("default");
    let unreadable = failures
        .iter()
        .filter(|failure| failure["class"] == "content");
    assert_eq!(unreadable.count(), 5, "{failures:?}");
}

#[test]
fn a_row_that_could_never_be_sent_is_not_let_in() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.import(&list(1));
    for (column, value) in [
        ("state", "9"),
        ("due_at", "'soon'"),
        ("expires_at", "'late'"),
    ] {
        let sql = format!(
            "INSERT INTO sms (phone, content, {column}) VALUES ('+447400123456', 'a', {value})"
        );
        let refused = try_sqlite(&scratch, &sql).expect_err("it makes no sense");
        assert!(refused.contains(column), "{refused}");
    }
    let ran = scratch.run(["send"]);
    assert_eq!(ran.code(), Some(0), "{ran}");
}

#[test]
fn what_cannot_be_read_can_still_be_cancelled_and_reported() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    scratch.import(&list(1));
    sqlite(
        &scratch,
        "INSERT INTO sms (phone, content, params) VALUES (x'ff2b34', x'ff', x'fe')",
    );
    let ran = scratch.run(["cancel", "--campaign", "default"]);
    assert_eq!(ran.code(), Some(0), "{ran}");
    assert_eq!(scratch.failures("default").len(), 1);
    for format in ["text", "csv", "html"] {
        let line = [
            "report",
            "--failed",
            "--campaign",
            "default",
            "--format",
            format,
        ];
        let ran = scratch.run(line);
        assert_eq!(ran.code(), Some(0), "{ran}");
    }
    scratch.sound_standing(Some("default"));
}

#[test]
fn two_imports_of_one_list_while_it_is_sent_have_every_row_once() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    gateway.forgetful(&scratch, "");
    let sending = following(&scratch, &gateway);
    scratch.write("list.csv", &list(3_000));
    let import = [
        "import",
        "list.csv",
        "--text",
        "Hello",
        "--campaign",
        "c",
        "--format",
        "json",
    ];
    let other = scratch.start(import);
    let one = scratch.run(import);
    let other = other.ended();
    let accepted = |ran: &Ran| ran.json()["accepted"].as_u64().expect("a count");
    // One row is there already.
    assert_eq!(accepted(&one) + accepted(&other), 2_999, "{one}{other}");
    sending.signal(Signal::INT);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(130), "{ran}");
    let ran = scratch.run(["send", "--quiet"]);
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(3_000);
    assert_eq!(scratch.sound_standing(Some("c"))["sent"], 3_000);
}
