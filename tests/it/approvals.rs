//! Approvals: large campaigns wait for a second person. What was sent is counted at the gateway.

use smsq_sandbox::SandboxConfig;

use crate::support::databases::{Database, with_every_database};
use crate::support::practice::{Practice, list, reserved_list};
use crate::support::waiting::eventually;
use crate::support::{Ran, Scratch};

const INSERTED: &str = "+447400999999";
/// The last digit of reserved numbers that the gateway rejects.
const REJECTED: u8 = 1;
/// Another user than that of the other commands.
const OTHER: [(&str, &str); 2] = [("USER", "another"), ("LOGNAME", "another")];

/// A gateway, and a folder where campaigns of 10 messages wait.
fn waiting(db: &Database) -> (Practice, Scratch) {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").at(&db.url).scratch();
    let text = scratch.read("smsq.toml");
    let approval = "[approval]\nfrom_messages = 10\n";
    scratch.write("smsq.toml", &format!("{text}\n{approval}"));
    (gateway, scratch)
}

fn import(scratch: &Scratch, campaign: &str, rows: u64) -> Ran {
    scratch.write("list.csv", &list(rows));
    let line = ["import", "list.csv", "--text", "Hello", "--again"];
    scratch.run(line.into_iter().chain(["--campaign", campaign])).assert_code(0)
}

fn send(scratch: &Scratch, campaign: &str) -> Ran {
    scratch.run(["send", "--campaign", campaign])
}

fn approve(scratch: &Scratch, campaign: &str) -> Ran {
    scratch.run_with(["approve", campaign, "--yes"], &OTHER)
}

fn assert_waits(scratch: &Scratch, campaign: &str, (gateway, sent): (&Practice, u64)) {
    let ran = send(scratch, campaign).assert_code(3);
    assert!(ran.stderr().contains("it waits for approval"), "{ran}");
    assert_eq!(gateway.accepted(), sent);
    assert_eq!(scratch.checked_status(Some(campaign))["state"], "unapproved");
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
        let own = scratch.run(["approve", "spring", "--yes"]).assert_code(2);
        assert!(own.stderr().contains("cannot approve it"), "{own}");
        scratch.run(["resume", "spring"]).assert_code(2);
        scratch
            .run_with(["approve", "spring", "--reject", "the link is wrong"], &OTHER)
            .assert_code(0);
        let ran = send(&scratch, "spring");
        assert!(ran.stderr().contains("the link is wrong"), "{ran}");
        let ran = approve(&scratch, "spring").assert_code(0);
        assert!(ran.stderr().contains("would send  20"), "{ran}");
        let again = approve(&scratch, "spring").assert_code(2);
        assert!(again.stderr().contains("does not wait for approval"), "{again}");
        send(&scratch, "spring").assert_code(0);
        gateway.assert_each_once(20);
    });
}

#[test]
fn small_campaign_does_not_wait_until_it_is_large() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        import(&scratch, "spring", 9);
        send(&scratch, "spring").assert_code(0);
        assert_eq!(gateway.accepted(), 9);
        import(&scratch, "spring", 12);
        assert_waits(&scratch, "spring", (&gateway, 9));
        approve(&scratch, "spring").assert_code(0);
        send(&scratch, "spring").assert_code(0);
        gateway.assert_each_once(12);
    });
}

/// Imports `rows` phones, all of which may be in the campaign, as another user than [`OTHER`].
fn import_by(scratch: &Scratch, user: &str, campaign: &str, rows: u64) -> Ran {
    scratch.write("list.csv", &list(rows));
    let user = [("USER", user), ("LOGNAME", user)];
    let line = ["import", "list.csv", "--text", "Hello", "--again"];
    scratch.run_with(line.into_iter().chain(["--campaign", campaign]), &user).assert_code(0)
}

/// What is sent without waiting; the campaign waits for the rest.
fn assert_sends(scratch: &Scratch, campaign: &str, gateway: &Practice, sent: u64) {
    assert_waits_after(scratch, campaign);
    assert_eq!(gateway.accepted(), sent);
}

fn assert_waits_after(scratch: &Scratch, campaign: &str) {
    let ran = send(scratch, campaign).assert_code(3);
    assert!(ran.stderr().contains("it waits for approval"), "{ran}");
}

/// Another person approves all, and it is sent.
fn assert_approved(scratch: &Scratch, campaign: &str, gateway: &Practice, sent: u64) {
    let ran = approve(scratch, campaign);
    assert_eq!(ran.code(), Some(0), "{campaign}: {ran}");
    let ran = send(scratch, campaign);
    assert_eq!(ran.code(), Some(0), "{campaign}: {ran}");
    assert_eq!(gateway.accepted(), sent, "{campaign}");
}

/// A campaign with 20 messages that are approved.
fn approved(scratch: &Scratch, campaign: &str) {
    import(scratch, campaign, 20);
    approve(scratch, campaign).assert_code(0);
}

#[test]
fn messages_after_the_approval_wait_and_no_others() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        approved(&scratch, "imported");
        import(&scratch, "imported", 21);
        assert_sends(&scratch, "imported", &gateway, 20);
        assert_approved(&scratch, "imported", &gateway, 21);
        // Its id is smaller than those that were looked at: its transaction may have begun before.
        approved(&scratch, "inserted");
        db.run(&format!(
            "INSERT INTO sms (id, campaign_id, phone, content) \
             SELECT -5, id, '{INSERTED}', 'Hi' FROM campaign WHERE name = 'inserted'"
        ));
        assert_sends(&scratch, "inserted", &gateway, 41);
        assert!(!gateway.phones().contains(INSERTED));
        assert_approved(&scratch, "inserted", &gateway, 42);
        assert!(gateway.phones().contains(INSERTED));
    });
}

#[test]
fn changed_settings_of_an_approved_campaign_hold_all() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        let mut sent = 0;
        for (name, value) in
            [("--rate", "1000/s"), ("--window", "00:00-24:00 --timezone UTC"), ("--from", "X")]
        {
            approved(&scratch, name.trim_start_matches('-'));
            let campaign = name.trim_start_matches('-');
            scratch
                .run(format!("set --campaign {campaign} {name} {value}").split(' '))
                .assert_code(0);
            // A list without new messages says so, too.
            let ran = import(&scratch, campaign, 20);
            assert!(ran.stderr().contains("waits for approval: its settings"), "{ran}");
            assert_waits(&scratch, campaign, (&gateway, sent));
            sent += 20;
            assert_approved(&scratch, campaign, &gateway, sent);
        }
        // The order of campaigns is not looked at.
        approved(&scratch, "first");
        scratch.run(["set", "--campaign", "first", "--priority", "9"]).assert_code(0);
        send(&scratch, "first").assert_code(0);
        assert_eq!(gateway.accepted(), sent + 20);
    });
}

#[test]
fn raised_budget_of_an_approved_campaign_holds_all() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        let text = scratch.read("smsq.toml");
        let prices = "[prices.cellar]\ncurrency = \"EUR\"\n44 = 0.01\n";
        scratch.write("smsq.toml", &format!("{text}\n{prices}"));
        scratch.write("list.csv", &list(20));
        let line = "import list.csv --text Hello --campaign spring --budget 0.05EUR";
        scratch.run(line.split(' ')).assert_code(0);
        approve(&scratch, "spring").assert_code(0);
        scratch.run(["set", "--campaign", "spring", "--budget", "1000 EUR"]).assert_code(0);
        assert_waits(&scratch, "spring", (&gateway, 0));
        assert_approved(&scratch, "spring", &gateway, 20);
    });
}

#[test]
fn messages_that_are_put_back_wait_for_approval() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        approved(&scratch, "cancelled");
        scratch.run(["cancel", "cancelled"]).assert_code(0);
        scratch.run(["resume", "cancelled"]).assert_code(0);
        // What waited is cancelled with the rest.
        import(&scratch, "cancelled", 30);
        scratch.run(["cancel", "cancelled"]).assert_code(0);
        scratch.run(["resume", "cancelled"]).assert_code(0);
        assert_ne!(scratch.checked_status(Some("cancelled"))["state"], "unapproved");
        scratch.run("retry --campaign cancelled --class cancelled".split(' ')).assert_code(0);
        assert_waits(&scratch, "cancelled", (&gateway, 0));
        assert_approved(&scratch, "cancelled", &gateway, 30);

        scratch.write("list.csv", &reserved_list(REJECTED, 12));
        let line = "import list.csv --text Hello --campaign failed";
        scratch.run(line.split(' ')).assert_code(0);
        approve(&scratch, "failed").assert_code(0);
        send(&scratch, "failed").assert_code(1);
        let requests = gateway.requests();
        scratch.run(["retry", "--campaign", "failed"]).assert_code(0);
        assert_waits_after(&scratch, "failed");
        assert_eq!(gateway.requests(), requests);
        let own = scratch.run(["approve", "failed", "--yes"]);
        assert!(own.stderr().contains("cannot approve it"), "{own}");
        approve(&scratch, "failed").assert_code(0);
        send(&scratch, "failed").assert_code(1);
        assert_eq!(gateway.requests(), requests + 12);
    });
}

#[test]
fn author_of_cancelled_messages_cannot_approve_them_later() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        import_by(&scratch, "ann", "spring", 20);
        let reject = ["approve", "spring", "--reject", "the text is wrong"];
        assert_eq!(scratch.run_with(reject, &OTHER).code(), Some(0));
        for line in ["cancel spring", "resume spring", "retry --campaign spring --class cancelled"]
        {
            scratch.run_with(line.split(' '), &OTHER).assert_code(0);
        }
        let approve_by = |user| {
            let user = [("USER", user), ("LOGNAME", user)];
            scratch.run_with(["approve", "spring", "--yes"], &user)
        };
        for author in ["ann", "another"] {
            let own = approve_by(author);
            assert!(own.stderr().contains("cannot approve it"), "{own}");
        }
        assert_waits(&scratch, "spring", (&gateway, 0));
        let ran = approve_by("third").assert_code(0);
        assert!(ran.stderr().contains("the text is wrong"), "{ran}");
        send(&scratch, "spring").assert_code(0);
        assert_eq!(gateway.accepted(), 20);
    });
}

#[test]
fn two_people_approve_each_others_settings() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        approved(&scratch, "spring");
        let by = |user, line: &str| {
            let user = [("USER", user), ("LOGNAME", user)];
            scratch.run_with(line.split(' '), &user).assert_code(0);
        };
        by("ann", "set --campaign spring --rate 1000/s");
        by("ben", "set --campaign spring --from X");
        by("ann", "approve spring --yes");
        assert_waits(&scratch, "spring", (&gateway, 0));
        by("ben", "approve spring --yes");
        send(&scratch, "spring").assert_code(0);
        assert_eq!(gateway.accepted(), 20);
    });
}

#[test]
fn messages_of_other_programs_count_for_the_rules() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        import(&scratch, "spring", 1);
        for phone in 0..8 {
            db.run(&format!(
                "INSERT INTO sms (campaign_id, phone, content) \
                 SELECT id, '+44740099900{phone}', 'Hi' FROM campaign WHERE name = 'spring'"
            ));
        }
        send(&scratch, "spring").assert_code(0);
        assert_eq!(gateway.accepted(), 9);
        let ran = import(&scratch, "spring", 2);
        assert!(ran.stderr().contains("it has 10 messages"), "{ran}");
        assert_waits(&scratch, "spring", (&gateway, 9));
    });
}

/// Kills an import of a list when some of its rows are stored.
fn interrupt(scratch: &Scratch, db: &Database, file: &str, campaign: &str) {
    let count = format!(
        "SELECT count(*) AS value FROM sms JOIN campaign ON campaign.id = sms.campaign_id WHERE campaign.name = '{campaign}'"
    );
    let before = db.number(&count);
    let line = format!("import {file} --text Hello --again --campaign {campaign}");
    let importing = scratch.start(line.split(' '));
    eventually("some rows are stored", || db.number(&count) > before);
    importing.kill();
}

#[test]
fn interrupted_list_holds_only_its_own_messages() {
    const ROWS: u64 = 60_000;
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        let text = scratch.read("smsq.toml");
        let text = text.replace("from_messages = 10\n", "from_messages = 90000\n");
        scratch.write("smsq.toml", &text);
        import(&scratch, "spring", 4);
        scratch.write("large.csv", &list(ROWS));
        interrupt(&scratch, db, "large.csv", "spring");
        // A small list, and what was there before.
        scratch.write("small.csv", "phone\n+447599000001\n+447599000002\n");
        scratch.run("import small.csv --text Hello --campaign spring".split(' ')).assert_code(0);
        assert_sends(&scratch, "spring", &gateway, 6);
        // The same list again continues it.
        let ran = scratch
            .run("import large.csv --text Hello --campaign spring".split(' '))
            .assert_code(0);
        assert!(!ran.stderr().contains("waits for approval"), "{ran}");
        let state = &scratch.checked_status(Some("spring"))["state"];
        assert_eq!(state, "active");
        assert_eq!(scratch.checked_status(Some("spring"))["queued"], ROWS - 4);
    });
}

#[test]
fn interrupted_query_is_continued_although_its_rows_differ() {
    const ROWS: u64 = 60_000;
    with_every_database(|db| {
        let (_gateway, scratch) = waiting(db);
        let source = Database::new(db.kind);
        source.run("CREATE TABLE due (id BIGINT PRIMARY KEY, phone VARCHAR(20))");
        source.run("CREATE TABLE asked (id INTEGER)");
        let rows = (0..ROWS).map(|id| format!("({id}, '+4474{:08}')", id + 10_010));
        for rows in rows.collect::<Vec<_>>().chunks(5_000) {
            source.run(&format!("INSERT INTO due VALUES {}", rows.join(", ")));
        }
        let text = scratch.read("smsq.toml");
        let text = text.replace("from_messages = 10\n", "from_messages = 90000\n");
        let section = format!("[sources.crm]\nurl = \"{}\"\n", source.url);
        scratch.write("smsq.toml", &format!("{text}\n{section}"));
        let query = "SELECT id, phone, (SELECT count(*) FROM asked) AS asked FROM due ORDER BY id";
        scratch.write("due.sql", query);
        import(&scratch, "spring", 1);
        interrupt(&scratch, db, "--from crm --query due.sql --key id", "spring-2");
        source.run("INSERT INTO asked VALUES (1)");
        let line = "import --from crm --query due.sql --key id --text Hello --campaign spring-2";
        scratch.run(line.split(' ')).assert_code(0);
        let status = scratch.checked_status(Some("spring-2"));
        assert_eq!(status["state"], "active", "{status}");
        assert_eq!(status["queued"], ROWS, "{status}");
    });
}

#[test]
fn interrupted_list_that_is_cancelled_and_put_back_waits() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        import(&scratch, "other", 1);
        scratch.write("large.csv", &list(60_000));
        interrupt(&scratch, db, "large.csv", "spring");
        for line in ["cancel spring", "resume spring", "retry --campaign spring --class cancelled"]
        {
            scratch.run(line.split(' ')).assert_code(0);
        }
        assert_waits(&scratch, "spring", (&gateway, 0));
    });
}

#[test]
fn list_that_is_not_whole_can_be_approved() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        import(&scratch, "other", 1);
        scratch.write("large.csv", &list(60_000));
        interrupt(&scratch, db, "large.csv", "spring");
        let stored = db.number("SELECT count(*) AS value FROM sms").unsigned_abs() - 1;
        approve(&scratch, "spring").assert_code(0);
        let line = "send --campaign spring --limit 5".split(' ');
        scratch.run(line);
        assert_eq!(gateway.accepted(), 5);
        // What the list adds later was not looked at.
        let ran = scratch.run("import large.csv --text Hello --campaign spring".split(' '));
        assert!(ran.stderr().contains("waits for approval"), "{ran}");
        let question = scratch.run_with(["approve", "spring"], &OTHER);
        let left = smsq_message::text::messages(60_000 - stored);
        assert!(question.stderr().contains(&format!("{left}: ")), "{question}");
    });
}

#[test]
fn approval_of_one_list_lifts_no_other() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        import_by(&scratch, "ann", "spring", 12);
        import_by(&scratch, "ben", "spring", 15);
        let ann = [("USER", "ann"), ("LOGNAME", "ann")];
        let ran = scratch.run_with(["approve", "spring", "--yes"], &ann).assert_code(0);
        assert!(ran.stderr().contains("waits for another person: 12 messages"), "{ran}");
        assert_sends(&scratch, "spring", &gateway, 3);
        let again = scratch.run_with(["approve", "spring", "--yes"], &ann);
        assert!(again.stderr().contains("cannot approve it"), "{again}");
        // A list without new messages ends nothing.
        import_by(&scratch, "eve", "spring", 15);
        let ben = [("USER", "ben"), ("LOGNAME", "ben")];
        scratch.run_with(["approve", "spring", "--yes"], &ben).assert_code(0);
        send(&scratch, "spring").assert_code(0);
        gateway.assert_each_once(15);
    });
}

#[test]
fn any_number_of_people_can_add_messages() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        import(&scratch, "spring", 10);
        for index in 0..40 {
            let who = [("USER", &*format!("person-with-a-long-name-{index}"))];
            scratch
                .run_with(["set", "--campaign", "spring", "--rate", "999/s"], &who)
                .assert_code(0);
        }
        assert_eq!(db.number("SELECT count(*) AS value FROM approval_author"), 41);
        assert_approved(&scratch, "spring", &gateway, 10);
    });
}

#[test]
fn cost_that_is_not_known_waits() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.without_references("").at(&db.url).scratch();
        let text = scratch.read("smsq.toml");
        let rule = "[approval]\nfrom_cost = \"1 EUR\"\n";
        let prices =
            |country: &str| format!("[prices.cellar]\ncurrency = \"EUR\"\n{country} = 0.01\n");
        for (campaign, settings) in
            [("without", rule.to_owned()), ("other", format!("{rule}{}", prices("1")))]
        {
            scratch.write("smsq.toml", &format!("{text}\n{settings}"));
            let ran = import(&scratch, campaign, 5);
            assert!(ran.stderr().contains("its cost is not known"), "{ran}");
            assert_waits(&scratch, campaign, (&gateway, 0));
        }
        scratch.write("smsq.toml", &format!("{text}\n{rule}"));
        let ran = scratch.run(["check", "--offline"]);
        assert!(ran.stdout().contains("every list of `cellar` needs approval"), "{ran}");
        scratch.write("smsq.toml", &format!("{text}\n{rule}{}", prices("44")));
        import(&scratch, "cheap", 5);
        send(&scratch, "cheap").assert_code(0);
    });
}

#[test]
fn provider_that_costs_more_needs_approval() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        let text = scratch.read("smsq.toml");
        let text = text.replace("from_messages = 10\n", "from_cost = \"1 EUR\"\n");
        let cellar = text.find("[providers.cellar]").expect("a provider");
        let section: String = text[cellar..].split("\n[").take(1).collect();
        let dear = section.replace("[providers.cellar]", "[providers.dear]");
        let prices = "[prices.cellar]\ncurrency = \"EUR\"\n44 = 0.05\n\
                      [prices.dear]\ncurrency = \"EUR\"\n44 = 5.00\n";
        let default = "default_provider = \"cellar\"";
        scratch.write("smsq.toml", &format!("{default}\n{text}\n{dear}\n{prices}"));
        for campaign in ["set", "import"] {
            let ran = import(&scratch, campaign, 10);
            assert!(!ran.stderr().contains("waits for approval"), "{ran}");
        }
        scratch.run(["set", "set", "--provider", "dear"]).assert_code(0);
        scratch.write("one.csv", "phone\n+447400123456\n");
        let line = "import one.csv --text Hello --campaign import --provider dear";
        let ran = scratch.run(line.split(' '));
        assert!(ran.stderr().contains("waits for approval"), "{ran}");
        for campaign in ["set", "import"] {
            assert_waits(&scratch, campaign, (&gateway, 0));
        }
        assert_approved(&scratch, "set", &gateway, 10);
        // A cheaper one needs none.
        import(&scratch, "cheap", 10);
        scratch.run(["set", "cheap", "--provider", "cellar"]).assert_code(0);
        send(&scratch, "cheap").assert_code(0);
        assert_eq!(gateway.accepted(), 20);
    });
}

#[test]
fn rules_of_another_process_hold_until_they_are_replaced() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        let with_rules = scratch.read("smsq.toml");
        import(&scratch, "first", 3);
        let without = with_rules.replace("from_messages = 10\n", "");
        scratch.write("smsq.toml", &without);
        import(&scratch, "spring", 12);
        assert_waits(&scratch, "spring", (&gateway, 0));
        let ran = scratch.run(["check", "--offline"]);
        assert!(ran.stdout().contains("smsq approve --replace-rules"), "{ran}");
        scratch.run(["approve", "--replace-rules", "--yes"]).assert_code(0);
        import(&scratch, "summer", 12);
        send(&scratch, "summer").assert_code(0);
        // What waited continues to wait.
        assert_waits(&scratch, "spring", (&gateway, 12));
        let audit = db.words("SELECT detail AS value FROM audit WHERE what = 'rules'");
        assert_eq!(audit.len(), 1, "{audit:?}");
    });
}

#[test]
fn paused_campaign_that_waits_can_be_approved() {
    with_every_database(|db| {
        let (gateway, scratch) = waiting(db);
        import(&scratch, "spring", 12);
        scratch.run(["pause", "spring"]).assert_code(0);
        let reason = |scratch: &Scratch| scratch.checked_status(Some("spring"))["state"].clone();
        assert_eq!(reason(&scratch), "paused");
        approve(&scratch, "spring").assert_code(0);
        assert_eq!(reason(&scratch), "paused");
        scratch.run(["resume", "spring"]).assert_code(0);
        send(&scratch, "spring").assert_code(0);
        gateway.assert_each_once(12);
    });
}
