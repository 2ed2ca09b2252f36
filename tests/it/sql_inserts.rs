//! Rows that other programs insert into the queue, each with the client of its database: a plain INSERT is a
//! complete order, and an invalid row delays no other.

use rustix::process::Signal;
use smsq_sandbox::SandboxConfig;

use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::practice::{Practice, list};
use crate::support::running::Running;
use crate::support::shell::{sqlite, try_sqlite};
use crate::support::waiting::eventually;
use crate::support::{Ran, Scratch};

/// Starts a sender with `--follow`, and waits until it has sent the one message of its list.
fn following(scratch: &Scratch, gateway: &Practice) -> Running {
    scratch.import(&list(1));
    let mut sending = scratch.start(["send", "--follow"]);
    assert!(sending.until("it sends", || gateway.accepted() == 1));
    sending
}

/// Starts a gateway and a sender that follows this database.
fn follow(db: &Database) -> (Practice, Scratch, Running) {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").at(&db.url).scratch();
    let sending = following(&scratch, &gateway);
    (gateway, scratch, sending)
}

fn insert(phone: &str) -> String {
    format!("INSERT INTO sms (phone, content) VALUES ('{phone}', 'Your order is on its way')")
}

/// Inserts a message and waits until it is sent: by then the sender has also seen all earlier rows.
fn send_another(db: &Database, gateway: &Practice, phone: &str) {
    db.client().run(&insert(phone));
    eventually("another message is sent", || gateway.phones().contains(phone));
}

fn stop(mut sending: Running) {
    sending.signal(Signal::INT);
    sending.ended().assert_code(130);
}

#[test]
fn inserted_row_is_sent_on_every_database() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.without_references("").at(&db.url).imported(&list(1));
        let mut other = db.client();
        other.run("INSERT INTO sms (phone, content) VALUES ('07400 123461', 'Your code is 4711')");
        scratch.run_with(["send"], &[("SMSQ__DEFAULT_REGION", "GB")]).assert_code(0);
        assert!(gateway.phones().contains("+447400123461"));
        assert_eq!(scratch.checked_status(Some("default"))["sent"], 1);
        let sent = "SELECT phone FROM sms_sent WHERE campaign_id = 1";
        assert_eq!(other.run(sent), ["+447400123461"]);
    });
}

#[test]
fn row_inserted_in_a_transaction_is_sent_after_its_commit() {
    with_every_database(|db| {
        let (gateway, scratch, sending) = follow(db);
        let mut shop = db.client();
        shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, phone VARCHAR(20) NOT NULL)");
        shop.run("BEGIN");
        shop.run("INSERT INTO orders (id, phone) VALUES (1, '+447400123451')");
        shop.run(&insert("+447400123451"));
        if db.kind != Kind::Sqlite {
            // SQLite has one writer at a time; on a server, others do not wait for the transaction.
            for phone in ["+447400123452", "+447400123453"] {
                send_another(db, &gateway, phone);
            }
            assert_eq!(scratch.checked_status(Some("default"))["imported"], 2);
        }
        assert!(!gateway.phones().contains("+447400123451"), "sent before the commit");
        shop.run("COMMIT");
        eventually("the committed message is sent", || gateway.phones().contains("+447400123451"));
        stop(sending);
        assert_eq!(gateway.stats().repeated, 0);
        scratch.checked_status(None);
        assert_eq!(shop.run("SELECT count(*) FROM sms"), ["0"]);
    });
}

#[test]
fn row_inserted_in_a_failed_transaction_is_never_sent() {
    with_every_database(|db| {
        let (gateway, scratch, sending) = follow(db);
        let mut shop = db.client();
        shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, phone VARCHAR(20) NOT NULL)");
        shop.run("BEGIN");
        shop.run(&insert("+447400123451"));
        shop.run("ROLLBACK");
        send_another(db, &gateway, "+447400123452");

        shop.run("BEGIN");
        shop.run(&insert("+447400123453"));
        shop.run("INSERT INTO orders (id, phone) VALUES (1, '+447400123453')");
        let twice = shop.try_run("INSERT INTO orders (id, phone) VALUES (1, '+447400123453')");
        twice.expect_err("a duplicate key");
        drop(shop);
        send_another(db, &gateway, "+447400123454");

        let mut lost = db.client();
        lost.run("BEGIN");
        lost.run(&insert("+447400123455"));
        lost.kill();
        send_another(db, &gateway, "+447400123456");
        stop(sending);
        for phone in ["+447400123451", "+447400123453", "+447400123455"] {
            assert!(!gateway.phones().contains(phone), "{phone}");
        }
        let status = scratch.checked_status(Some("default"));
        assert_eq!((&status["imported"], &status["sent"]), (&3.into(), &3.into()));
        scratch.run(["send"]).assert_code(0);
        assert_eq!(gateway.accepted(), 4);
    });
}

#[test]
fn invalid_rows_delay_no_others_on_every_database() {
    with_every_database(|db| {
        let (gateway, _scratch, sending) = follow(db);
        let mut other = db.client();
        for (columns, values) in [
            ("phone, content", "'not a phone', 'a'"),
            ("phone, content", "'', 'a'"),
            ("phone, content", "'+447400123451', ''"),
            ("phone, content, params", "'+447400123452', 'a', 'no JSON'"),
            ("phone, content, attempts", "'+447400123453', 'a', -5"),
            ("phone, content, attempts", "'+447400123454', 'a', 2147483647"),
            ("phone, content, expires_at", "'+447400123455', 'a', 1"),
            ("phone, content, due_at", "'+447400123456', 'a', -9223372036854775807"),
            ("phone, content, reference", "'+447400123457', 'a', 'ünïcode'"),
            ("phone, content, campaign_id", "'+447400123458', 'a', 4711"),
            ("phone, content, claim", "'+447400123459', 'a', 4711"),
        ] {
            other.run(&format!("INSERT INTO sms ({columns}) VALUES ({values})"));
        }
        send_another(db, &gateway, "+447400123499");
        let of_a_campaign = "SELECT count(*) FROM sms WHERE campaign_id = 1";
        eventually("all are settled", || other.run(of_a_campaign) == ["0"]);
        stop(sending);
        assert_eq!(gateway.stats().repeated, 0);
        for phone in ["+447400123456", "+447400123457", "+447400123459"] {
            assert!(gateway.phones().contains(phone), "{phone}");
        }
        assert!(!gateway.phones().contains("+447400123455"), "it had expired");
    });
}

#[test]
fn constraints_reject_rows_that_cannot_be_sent() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        gateway.without_references("").at(&db.url).imported(&list(1));
        for (column, value) in [("state", "9"), ("due_at", "'soon'"), ("expires_at", "'late'")] {
            let sql = format!(
                "INSERT INTO sms (phone, content, {column}) VALUES ('+447400123456', 'a', {value})"
            );
            let refused = db.client().try_run(&sql).expect_err(&sql);
            assert!(!refused.is_empty());
        }
        let refused = db.client().try_run("INSERT INTO sms (phone) VALUES ('+447400123456')");
        refused.expect_err("it has no content");
        assert_eq!(db.number("SELECT count(*) AS value FROM sms"), 1);
    });
}

#[test]
fn messages_of_a_missing_campaign_are_reported() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.without_references("").at(&db.url).imported(&list(1));
        db.run("INSERT INTO sms (campaign_id, phone, content) VALUES (77, '+447400123456', 'x')");
        let ran = scratch.run(["send"]).assert_code(1);
        let message = "1 message of campaign 77, which does not exist: it is not sent";
        assert!(ran.stderr().contains(message), "{ran}");
        let ran = scratch.run(["status"]);
        assert!(ran.stdout().contains(message), "{ran}");
        let lost = serde_json::json!([{ "campaign_id": 77, "messages": 1 }]);
        for command in ["send", "status"] {
            let ran = scratch.run([command, "--format", "json"]);
            assert_eq!(ran.json()["without_campaign"], lost, "{ran}");
        }
        scratch.run(["send", "--campaign", "c"]).assert_code(0);
        assert_eq!(gateway.accepted(), 1);
    });
}

#[test]
fn inserted_rows_are_sent_or_fail_with_a_reason() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").scratch();
    let mut sending = following(&scratch, &gateway);
    sqlite(
        &scratch,
        "INSERT INTO sms (phone, content) VALUES ('+447400123456', 'From the shell');
         INSERT INTO sms (phone, content) VALUES ('not a phone', 'Not delivered');
         INSERT INTO sms (phone, content) VALUES ('0044 7400 123457', 'Repaired');
         INSERT INTO sms (phone, content, expires_at) VALUES ('+447400123458', 'Too late', 1);
         INSERT INTO sms (phone, content) VALUES ('+447400123459', '');
         INSERT INTO sms (phone, content) VALUES ('+447400123461', ' ' || char(8203));
         INSERT INTO sms (phone, content) VALUES ('+447400123460', 'The last');",
    );
    let alive =
        sending.until("all are settled", || sqlite(&scratch, "SELECT count(*) FROM sms") == "0");
    assert!(alive, "{}", sending.ended());
    sending.signal(Signal::INT);
    sending.ended().assert_code(130);
    for phone in ["+447400123456", "+447400123457", "+447400123460"] {
        assert!(gateway.phones().contains(phone), "{phone}");
    }
    assert_eq!(gateway.stats().repeated, 0);
    scratch.checked_status(Some("default"));
    let failures = scratch.failures("default");
    let class = |phone: &str| {
        let found = failures.iter().find(|failure| failure["phone"] == phone);
        found.map(|failure| failure["class"].clone())
    };
    assert_eq!(class("not a phone"), Some("recipient".into()), "{failures:?}");
    assert_eq!(class("+447400123458"), Some("expired".into()), "{failures:?}");
    for phone in ["+447400123459", "+447400123461"] {
        assert_eq!(class(phone), Some("content".into()), "{failures:?}");
        assert!(!gateway.phones().contains(phone), "{phone}");
    }
}

#[test]
fn rows_with_unreadable_values_delay_no_others() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").scratch();
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
    let alive =
        sending.until("all are settled", || sqlite(&scratch, "SELECT count(*) FROM sms") == "0");
    assert!(alive, "{}", sending.ended());
    sending.signal(Signal::INT);
    sending.ended().assert_code(130);
    assert!(gateway.phones().contains("+447400123499"));
    assert_eq!(gateway.stats().repeated, 0);
    scratch.checked_status(Some("default"));
    let failures = scratch.failures("default");
    let unreadable = failures.iter().filter(|failure| failure["class"] == "content");
    assert_eq!(unreadable.count(), 5, "{failures:?}");
}

#[test]
fn sqlite_names_the_column_of_a_rejected_row() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").imported(&list(1));
    for (column, value) in [("state", "9"), ("due_at", "'soon'"), ("expires_at", "'late'")] {
        let sql = format!(
            "INSERT INTO sms (phone, content, {column}) VALUES ('+447400123456', 'a', {value})"
        );
        let refused = try_sqlite(&scratch, &sql).expect_err("a constraint");
        assert!(refused.contains(column), "{refused}");
    }
    scratch.run(["send"]).assert_code(0);
}

#[test]
fn unreadable_row_can_be_cancelled_and_reported() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").imported(&list(1));
    sqlite(&scratch, "INSERT INTO sms (phone, content, params) VALUES (x'ff2b34', x'ff', x'fe')");
    scratch.run(["cancel", "--campaign", "default"]).assert_code(0);
    assert_eq!(scratch.failures("default").len(), 1);
    for format in ["text", "csv", "html"] {
        let line = ["report", "--failed", "--campaign", "default", "--format", format];
        scratch.run(line).assert_code(0);
    }
    scratch.checked_status(Some("default"));
}

#[test]
fn concurrent_imports_of_a_list_add_each_row_once() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").scratch();
    let mut sending = following(&scratch, &gateway);
    scratch.write("list.csv", &list(3_000));
    let import = ["import", "list.csv", "--text", "Hello", "--campaign", "c", "--format", "json"];
    let other = scratch.start(import);
    let one = scratch.run(import);
    let other = other.ended();
    let accepted = |ran: &Ran| ran.json()["accepted"].as_u64().expect("a count");
    // One row is already in the queue.
    assert_eq!(accepted(&one) + accepted(&other), 2_999, "{one}{other}");
    sending.signal(Signal::INT);
    sending.ended().assert_code(130);
    scratch.run(["send", "--quiet"]).assert_code(0);
    gateway.assert_each_once(3_000);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 3_000);
}
