//! Approvals: large campaigns wait for a second person. What was sent is counted at the gateway.

use smsq::sandbox::SandboxConfig;

use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, list};
use crate::support::{Ran, Scratch};

const INSERTED: &str = "+447400999999";
/// Another user than that of the other commands.
const OTHER: [(&str, &str); 2] = [("USER", "another"), ("LOGNAME", "another")];

/// A gateway, and a folder where campaigns of 10 messages wait.
fn waiting(db: &Database) -> (Practice, Scratch) {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::at(&db.url);
    gateway.configure_without_references(&scratch, "");
    let text = scratch.read("smsq.toml");
    let approval = "[approval]\nfrom_messages = 10\n";
    scratch.write("smsq.toml", &format!("{text}\n{approval}"));
    (gateway, scratch)
}

fn import(scratch: &Scratch, campaign: &str, rows: u64) -> Ran {
    scratch.write("list.csv", &list(rows));
    let line = ["import", "list.csv", "--text", "Hello", "--again"];
    let ran = scratch.run(line.into_iter().chain(["--campaign", campaign]));
    assert_eq!(ran.code(), Some(0), "{ran}");
    ran
}

fn send(scratch: &Scratch, campaign: &str) -> Ran {
    scratch.run(["send", "--campaign", campaign])
}

fn approve(scratch: &Scratch, campaign: &str) -> Ran {
    scratch.run_with(["approve", campaign, "--yes"], &OTHER)
}

fn assert_waits(scratch: &Scratch, campaign: &str, (gateway, sent): (&Practice, u64)) {
    let ran = send(scratch, campaign);
    assert_eq!(ran.code(), Some(3), "{ran}");
    assert!(ran.stderr().contains("it waits for approval"), "{ran}");
    assert_eq!(gateway.accepted(), sent);
    assert_eq!(
        scratch.checked_status(Some(campaign))["state"],
        "unapproved"
    );
}

#[test]
fn large_campaign_waits_for_another_person() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        let ran = import(&scratch, "spring", 20);
        let why = "campaign `spring` waits for approval: it has 20 messages, and `approval.from_messages` is 10";
        assert!(ran.stderr().contains(why), "{ran}");
        assert!(!ran.stderr().contains("next: `smsq send"), "{ran}");
        assert_waits(&scratch, "spring", (&gateway, 0));
        let own = scratch.run(["approve", "spring", "--yes"]);
        assert_eq!(own.code(), Some(2), "{own}");
        assert!(own.stderr().contains("cannot approve it"), "{own}");
        let resumed = scratch.run(["resume", "spring"]);
        assert_eq!(resumed.code(), Some(2), "{resumed}");
        let rejected = scratch.run_with(
            ["approve", "spring", "--reject", "the link is wrong"],
            &OTHER,
        );
        assert_eq!(rejected.code(), Some(0), "{rejected}");
        let ran = send(&scratch, "spring");
        assert!(ran.stderr().contains("the link is wrong"), "{ran}");
        let ran = approve(&scratch, "spring");
        assert_eq!(ran.code(), Some(0), "{ran}");
        assert!(ran.stderr().contains("would send  20"), "{ran}");
        let again = approve(&scratch, "spring");
        assert_eq!(again.code(), Some(2), "{again}");
        assert!(
            again.stderr().contains("does not wait for approval"),
            "{again}"
        );
        assert_eq!(send(&scratch, "spring").code(), Some(0));
        gateway.assert_each_once(20);
    });
}

#[test]
fn small_campaign_does_not_wait_until_it_is_large() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        import(&scratch, "spring", 9);
        assert_eq!(send(&scratch, "spring").code(), Some(0));
        assert_eq!(gateway.accepted(), 9);
        import(&scratch, "spring", 12);
        assert_waits(&scratch, "spring", (&gateway, 9));
        assert_eq!(approve(&scratch, "spring").code(), Some(0));
        assert_eq!(send(&scratch, "spring").code(), Some(0));
        gateway.assert_each_once(12);
    });
}

/// Changes an approved campaign; returns how many messages it has then.
fn change(scratch: &Scratch, db: &Database, name: &str) -> u64 {
    match name {
        "inserted" => {
            db.run(&format!(
                "INSERT INTO sms (campaign_id, phone, content) \
                 SELECT id, '{INSERTED}', 'Hi' FROM campaign WHERE name = 'inserted'"
            ));
            21
        }
        "imported" => {
            import(scratch, name, 21);
            21
        }
        "limited" => {
            let ran = scratch.run(["set", "--campaign", name, "--rate", "1000/s"]);
            assert_eq!(ran.code(), Some(0), "{ran}");
            20
        }
        _ => {
            scratch.run(["pause", name]);
            import(scratch, name, 21);
            let ran = scratch.run(["resume", name]);
            assert_eq!(ran.code(), Some(0), "{ran}");
            21
        }
    }
}

#[test]
fn change_after_the_approval_ends_it() {
    with_every_database(|db| {
        for name in ["inserted", "imported", "limited", "resumed"] {
            let (gateway, scratch) = waiting(db);
            import(&scratch, name, 20);
            assert_eq!(approve(&scratch, name).code(), Some(0));
            let count = change(&scratch, db, name);
            if name == "inserted" {
                // Of those that were approved, some may be sent before it is seen.
                assert_eq!(send(&scratch, name).code(), Some(3));
                assert!(!gateway.phones().contains(INSERTED));
            }
            assert_waits(&scratch, name, (&gateway, gateway.accepted()));
            assert!(name == "inserted" || gateway.accepted() == 0, "{name}");
            let ran = approve(&scratch, name);
            assert_eq!(ran.code(), Some(0), "{name}: {ran}");
            let ran = send(&scratch, name);
            assert_eq!(ran.code(), Some(0), "{name}: {ran}");
            gateway.assert_each_once(count);
        }
    });
}
