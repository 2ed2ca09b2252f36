//! Messages that other programs put into the queue in SQL, each with its database's own client: a plain
//! INSERT is a complete order, and inside somebody's transaction it is an order only once that commits.

use rustix::process::Signal;
use smsq::sandbox::SandboxConfig;

use crate::support::Scratch;
use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::practice::{Practice, list};
use crate::support::running::{Running, eventually};

/// A sender that follows, and has sent the one message of its list.
fn following(scratch: &Scratch, gateway: &Practice) -> Running {
    scratch.import(&list(1));
    let mut sending = scratch.start(["send", "--follow"]);
    assert!(sending.until("it sends", || gateway.accepted() == 1));
    sending
}

fn insert(phone: &str) -> String {
    format!("INSERT INTO sms (phone, content) VALUES ('{phone}', 'Your order is on its way')")
}

/// Puts a message into the queue and waits until the gateway has it: the sender has looked at all that
/// it could see before.
fn send_another(db: &Database, gateway: &Practice, phone: &str) {
    db.client().run(&insert(phone));
    eventually("another message is sent", || {
        gateway.phones().contains(phone)
    });
}

fn stop(sending: Running) {
    sending.signal(Signal::INT);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(130), "{ran}");
}

#[test]
fn what_another_program_inserts_is_sent() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = Scratch::at(&db.url);
        gateway.forgetful(&scratch, "");
        scratch.import(&list(1));
        let mut other = db.client();
        other.run("INSERT INTO sms (phone, content) VALUES ('07400 123461', 'Your code is 4711')");
        let ran = scratch.run_with(["send"], &[("SMSQ__DEFAULT_REGION", "GB")]);
        assert_eq!(ran.code(), Some(0), "{ran}");
        assert!(gateway.phones().contains("+447400123461"));
        assert_eq!(scratch.sound_standing(Some("default"))["sent"], 1);
        let sent = "SELECT phone FROM sms_sent WHERE campaign_id = 1";
        assert_eq!(other.run(sent), ["+447400123461"]);
    });
}

#[test]
fn what_is_inserted_in_a_transaction_is_sent_once_that_commits() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = Scratch::at(&db.url);
        gateway.forgetful(&scratch, "");
        let sending = following(&scratch, &gateway);
        let mut shop = db.client();
        shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, phone VARCHAR(20) NOT NULL)");
        shop.run("BEGIN");
        shop.run("INSERT INTO orders (id, phone) VALUES (1, '+447400123451')");
        shop.run(&insert("+447400123451"));
        if db.kind != Kind::Sqlite {
            // In a file there is one writer at a time; on a server nobody waits for the shop.
            for phone in ["+447400123452", "+447400123453"] {
                send_another(db, &gateway, phone);
            }
            assert_eq!(scratch.sound_standing(Some("default"))["imported"], 2);
        }
        assert!(!gateway.phones().contains("+447400123451"), "not yet");
        shop.run("COMMIT");
        eventually("the shop's message is sent", || {
            gateway.phones().contains("+447400123451")
        });
        stop(sending);
        assert_eq!(gateway.stats().repeated, 0);
        scratch.sound_standing(None);
        assert_eq!(shop.run("SELECT count(*) FROM sms"), ["0"]);
    });
}

#[test]
fn what_is_inserted_in_a_transaction_that_fails_is_never_sent() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = Scratch::at(&db.url);
        gateway.forgetful(&scratch, "");
        let sending = following(&scratch, &gateway);
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
        twice.expect_err("the order is there");
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
        let standing = scratch.sound_standing(Some("default"));
        assert_eq!(
            (&standing["imported"], &standing["sent"]),
            (&3.into(), &3.into())
        );
        let ran = scratch.run(["send"]);
        assert_eq!(ran.code(), Some(0), "{ran}");
        assert_eq!(gateway.accepted(), 4);
    });
}

#[test]
fn a_row_that_makes_no_sense_hurts_no_other_on_any_database() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = Scratch::at(&db.url);
        gateway.forgetful(&scratch, "");
        let sending = following(&scratch, &gateway);
        let mut other = db.client();
        for (columns, values) in [
            ("phone, content", "'not a phone', 'a'"),
            ("phone, content", "'', 'a'"),
            ("phone, content", "'+447400123451', ''"),
            ("phone, content, params", "'+447400123452', 'a', 'no JSON'"),
            ("phone, content, attempts", "'+447400123453', 'a', -5"),
            (
                "phone, content, attempts",
                "'+447400123454', 'a', 2147483647",
            ),
            ("phone, content, expires_at", "'+447400123455', 'a', 1"),
            (
                "phone, content, due_at",
                "'+447400123456', 'a', -9223372036854775807",
            ),
            (
                "phone, content, reference",
                "'+447400123457', 'a', 'ünïcode'",
            ),
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
        assert!(
            !gateway.phones().contains("+447400123455"),
            "it was too late"
        );
    });
}

#[test]
fn a_row_that_could_never_be_sent_is_not_let_in_by_any_database() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        Practice::start(SandboxConfig::default()).forgetful(&scratch, "");
        scratch.import(&list(1));
        for (column, value) in [
            ("state", "9"),
            ("due_at", "'soon'"),
            ("expires_at", "'late'"),
        ] {
            let sql = format!(
                "INSERT INTO sms (phone, content, {column}) VALUES ('+447400123456', 'a', {value})"
            );
            let refused = db.client().try_run(&sql).expect_err(&sql);
            assert!(!refused.is_empty());
        }
        let refused = db
            .client()
            .try_run("INSERT INTO sms (phone) VALUES ('+447400123456')");
        refused.expect_err("it says nothing");
        assert_eq!(db.number("SELECT count(*) AS value FROM sms"), 1);
    });
}
