//! `smsq schedule`: campaigns that are imported from a query again and again. Each key gets one message in a period,
//! whatever is killed; counted at the gateway.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;
use smsq_sandbox::SandboxConfig;

use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::practice::{Practice, with_latency};
use crate::support::running::Running;
use crate::support::waiting::eventually;
use crate::support::{Ran, Scratch};

/// The table that a schedule reads, a gateway, and a folder whose queue is on `db`.
fn prepared(db: &Database, config: SandboxConfig) -> (Database, Practice, Scratch) {
    let crm = Database::new(db.kind);
    crm.run("CREATE TABLE due (id INTEGER PRIMARY KEY, phone VARCHAR(20))");
    let gateway = Practice::start(config);
    let scratch = gateway.with_references("").at(&db.url).scratch();
    let text = scratch.read("smsq.toml");
    let section = format!("[sources.crm]\nurl = \"{}\"\n", crm.url);
    scratch.write("smsq.toml", &format!("{text}\n{section}"));
    scratch.write("due.sql", "SELECT id, phone FROM due ORDER BY id");
    (crm, gateway, scratch)
}

fn phone(id: u64) -> String {
    format!("+4474{:08}", id + 10_010)
}

/// Adds rows to the table.
fn grow(crm: &Database, ids: std::ops::Range<u64>) {
    let rows: Vec<String> = ids.map(|id| format!("({id}, '{}')", phone(id))).collect();
    crm.run(&format!("INSERT INTO due VALUES {}", rows.join(", ")));
}

const ADD: [&str; 16] = [
    "schedule",
    "add",
    "daily",
    "--cron",
    "0 9 * * *",
    "--timezone",
    "Europe/Berlin",
    "--from",
    "crm",
    "--query",
    "due.sql",
    "--key",
    "id",
    "--text",
    "Hello",
    "--quiet",
];

fn add(scratch: &Scratch, more: &[&str]) {
    scratch.run(ADD.into_iter().chain(more.iter().copied())).assert_code(0);
}

fn run_now(scratch: &Scratch) -> Value {
    let ran = scratch.run(["schedule", "run", "daily", "--format", "json"]).assert_code(0);
    ran.json()
}

/// The schedule, as the list shows it.
fn listed(scratch: &Scratch) -> Value {
    let ran = scratch.run(["schedule", "list", "--format", "json"]).assert_code(0);
    ran.json()["schedules"][0].clone()
}

fn expect_error(ran: &Ran, said: &str) {
    assert_eq!(ran.code(), Some(2), "{ran}");
    assert!(ran.stderr().contains(said), "{said}: {ran}");
}

#[test]
fn schedule_is_added_paused_resumed_and_removed() {
    with_every_database(|db| {
        let (crm, _gateway, scratch) = prepared(db, SandboxConfig::default());
        grow(&crm, 0..3);
        add(&scratch, &["--per", "week", "--expires", "6h"]);
        let shown = listed(&scratch);
        assert_eq!(shown["name"], "daily");
        assert_eq!((&shown["per"], &shown["key"]), (&"week".into(), &"id".into()));
        assert_eq!((&shown["state"], &shown["source"]), (&"active".into(), &"crm".into()));
        assert!(shown["next_at"].is_string(), "{shown}");
        expect_error(&scratch.run(ADD), "schedule `daily` exists already");
        for (action, state) in [("pause", "paused"), ("pause", "paused"), ("resume", "active")] {
            scratch.run(["schedule", action, "daily"]).assert_code(0);
            assert_eq!(listed(&scratch)["state"], state);
        }
        let unknown = scratch.run(["schedule", "pause", "dayly"]);
        expect_error(&unknown, "unknown schedule `dayly`");
        assert!(unknown.stderr().contains("did you mean `daily`?"), "{unknown}");
        scratch.run(["schedule", "remove", "daily"]).assert_code(0);
        assert!(listed(&scratch).is_null());
        let audit = db.words("SELECT detail AS value FROM audit ORDER BY id");
        let audit: Vec<String> = audit.into_iter().flatten().collect();
        assert_eq!(
            audit,
            [
                "added schedule `daily`: `0 9 * * *` in Europe/Berlin",
                "paused schedule `daily`",
                "resumed schedule `daily`",
                "removed schedule `daily`",
            ]
        );
    });
}

#[test]
fn invalid_schedule_is_refused_before_it_is_stored() {
    let db = Database::in_a_file();
    let (crm, _gateway, scratch) = prepared(&db, SandboxConfig::default());
    grow(&crm, 0..3);
    let with = |flag: &str, value: &'static str| {
        let place = ADD.iter().position(|word| *word == flag).expect("a flag");
        let mut line = ADD.to_vec();
        line[place + 1] = value;
        scratch.run(line)
    };
    expect_error(&with("--cron", "0 0 9 * * *"), "it has 6 fields");
    expect_error(&with("--cron", "0 9 30 2 *"), "it has no date");
    expect_error(&with("--timezone", "Europe/Berlln"), "unknown time zone");
    expect_error(&with("--from", "crn"), "unknown source `crn`");
    expect_error(
        &with("--from", "postgres://me:secret@127.0.0.1/crm"),
        "has a password, which would be stored",
    );
    expect_error(&with("--key", "customer"), "`customer`");
    expect_error(&with("--key", "none"), "a schedule needs one");
    expect_error(&with("--text", "Hello {{ name }}"), "`name`");
    expect_error(&with("add", "a/b"), "contains `/`");
    let more = |words: &[&'static str]| scratch.run([&ADD[..], words].concat());
    expect_error(&more(&["--days", "mon-fri"]), "--window");
    expect_error(&more(&["--window", "20:00-09:00"]), "`20:00-09:00`");
    expect_error(
        &more(&["--window", "18:00-20:00", "--expires", "2h"]),
        "nothing would be sent: the window 18:00-20:00 daily in Europe/Berlin opens at ",
    );
    assert!(listed(&scratch).is_null());
}

#[test]
fn run_adds_each_key_once_in_a_period() {
    with_every_database(|db| {
        let (crm, gateway, scratch) = prepared(db, SandboxConfig::default());
        grow(&crm, 0..20);
        add(&scratch, &["--per", "month"]);
        let first = run_now(&scratch);
        assert_eq!((&first["rows"], &first["accepted"]), (&20.into(), &20.into()));
        grow(&crm, 20..25);
        // Other texts and phones of known keys are no reason for another message.
        crm.run("UPDATE due SET phone = '+447400999999' WHERE id = 3");
        let second = run_now(&scratch);
        assert_eq!(second["campaign"], first["campaign"]);
        assert_eq!((&second["accepted"], &second["duplicates"]), (&5.into(), &20.into()));
        scratch.run(["send"]).assert_code(0);
        gateway.assert_each_once(25);
        // A purge does not forget the keys of a period that has not ended.
        let days: i64 = 100 * 24 * 60 * 60 * 1_000;
        db.run(&format!("UPDATE sms_sent SET sent_at = sent_at - {days}"));
        scratch.run(["purge", "--older-than", "30d", "--yes"]).assert_code(0);
        assert_eq!(db.number("SELECT count(*) AS value FROM sms_sent"), 0);
        assert_eq!(run_now(&scratch)["accepted"], 0);
        // Nor is a schedule of the same name that is added again a reason.
        scratch.run(["schedule", "remove", "daily"]).assert_code(0);
        scratch.run(["purge", "--older-than", "30d", "--yes"]).assert_code(0);
        add(&scratch, &["--per", "month"]);
        assert_eq!(run_now(&scratch)["accepted"], 0);
        // After its end it does.
        db.run("UPDATE schedule_run SET keys_until = 1");
        db.run("UPDATE schedule SET period = '2999-01'");
        scratch.run(["purge", "--older-than", "30d", "--yes"]).assert_code(0);
        assert_eq!(db.number("SELECT count(*) AS value FROM sms_key"), 0);
    });
}

#[test]
fn later_run_of_a_period_keeps_what_a_person_changed() {
    with_every_database(|db| {
        let (crm, _gateway, scratch) = prepared(db, SandboxConfig::default());
        grow(&crm, 0..3);
        let window = ["--window", "09:00-20:00", "--days", "mon-fri"];
        add(&scratch, &[&window[..], &["--sender", "SHOP", "--per", "month"]].concat());
        let campaign = run_now(&scratch)["campaign"].clone();
        let campaign = campaign.as_str().expect("a name");
        let stored = |column: &str| {
            let select = format!("SELECT {column} AS value FROM campaign");
            db.words(&format!("{select} WHERE name = '{campaign}'")).pop().flatten()
        };
        let window = stored("send_window");
        assert_eq!(window.as_deref(), Some("09:00-20:00 mon-fri Europe/Berlin"));
        let change = ["--window", "10:00-12:00", "--days", "sat", "--timezone", "Europe/Paris"];
        let line = [&["set", campaign, "--from", "OTHER"], &change[..]].concat();
        scratch.run(line).assert_code(0);
        grow(&crm, 3..5);
        assert_eq!(run_now(&scratch)["accepted"], 2);
        let window = stored("send_window");
        assert_eq!(window.as_deref(), Some("10:00-12:00 sat Europe/Paris"));
        assert_eq!(stored("sender").as_deref(), Some("OTHER"));
    });
}

#[test]
fn rejected_rows_of_a_run_are_counted_with_their_reasons() {
    let db = Database::in_a_file();
    let (crm, _gateway, scratch) = prepared(&db, SandboxConfig::default());
    grow(&crm, 0..3);
    add(&scratch, &[]);
    crm.run("INSERT INTO due VALUES (8, 'none'), (9, NULL)");
    let run = run_now(&scratch);
    assert_eq!((&run["accepted"], &run["rejected"]), (&3.into(), &2.into()));
    let runs = &listed(&scratch)["runs"];
    let reasons = runs[0]["reasons"].as_str().expect("reasons");
    assert!(reasons.contains("not a phone number (1)"), "{runs}");
    let folder = format!("{}-schedules", db.url.trim_start_matches("sqlite://"));
    let files: Vec<_> = std::fs::read_dir(folder).expect("a folder").collect();
    assert_eq!(files.len(), 1);
}

#[test]
fn cancelled_campaign_gets_no_messages_from_a_run() {
    let db = Database::in_a_file();
    let (crm, _gateway, scratch) = prepared(&db, SandboxConfig::default());
    grow(&crm, 0..3);
    add(&scratch, &[]);
    let campaign = run_now(&scratch)["campaign"].as_str().expect("a name").to_owned();
    scratch.run(["cancel", &campaign]).assert_code(0);
    let ran = scratch.run(["schedule", "run", "daily"]);
    expect_error(&ran, "is cancelled");
    assert_eq!(scratch.checked_status(Some(&campaign))["cancelled"], 3);
}

/// A query that takes until it is released, or for a while on SQLite.
fn held_query(db: &Database) -> &'static str {
    match db.kind {
        Kind::Postgres => {
            "SELECT id, phone FROM due, (SELECT pg_advisory_xact_lock_shared(47)) AS held"
        }
        Kind::Mysql => "SELECT id, phone FROM due, (SELECT get_lock('held', 300)) AS held",
        Kind::Sqlite => {
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 8000000) \
             SELECT id, phone FROM due WHERE (SELECT count(*) FROM c) > 0"
        }
    }
}

/// A database quotes the value that it cannot use.
#[test]
fn failed_query_shows_no_value_of_a_row() {
    with_every_database(|db| {
        let failing = match db.kind {
            Kind::Postgres => "SELECT id, CAST(phone AS integer) AS phone FROM due",
            Kind::Mysql => "SELECT id, extractvalue(1, '~Ann 447400000001') AS phone FROM due",
            Kind::Sqlite => return,
        };
        let (crm, _gateway, scratch) = prepared(db, SandboxConfig::default());
        add(&scratch, &[]);
        crm.run("INSERT INTO due VALUES (1, 'Ann 447400'), (2, '+447400000001')");
        let failing = failing.replace('\'', "''");
        db.run(&format!("UPDATE schedule SET query = '{failing}'"));
        let ran = scratch.run(["schedule", "run", "daily"]).assert_code(2);
        let stored = db.words("SELECT error AS value FROM schedule_run");
        let stored = stored[0].clone().expect("an error");
        let listed = listed(&scratch).to_string();
        for said in [&stored, &ran.stderr(), &listed] {
            assert!(!said.contains("Ann") && !said.contains("447400"), "{said}");
        }
        assert!(stored.contains('…'), "{stored}");
        // What is wrong with the query itself is said.
        db.run("UPDATE schedule SET query = 'SELECT id, fone FROM due'");
        let ran = scratch.run(["schedule", "run", "daily"]);
        assert!(ran.stderr().contains("fone"), "{ran}");
    });
}

/// A person cancels the campaign of the period while the query of its next run is running.
#[test]
fn campaign_cancelled_during_the_query_stays_cancelled() {
    with_every_database(|db| {
        let (crm, gateway, scratch) = prepared(db, SandboxConfig::default());
        grow(&crm, 0..3);
        add(&scratch, &[]);
        let campaign = run_now(&scratch)["campaign"].as_str().map(str::to_owned);
        let campaign = campaign.expect("a name");
        grow(&crm, 3..6);
        // Two runs that are asked for within a second are one.
        db.run("UPDATE schedule_run SET fire = '2026-01-01T00:00:00'");
        db.run(&format!("UPDATE schedule SET query = '{}'", held_query(db).replace('\'', "''")));
        let holder = (db.kind != Kind::Sqlite).then(|| {
            let mut client = crm.client();
            client.run(match db.kind {
                Kind::Postgres => "SELECT pg_advisory_lock(47)",
                _ => "SELECT get_lock('held', 300)",
            });
            client
        });
        let mut running = scratch.start(["schedule", "run", "daily"]);
        let begun = "SELECT count(*) AS value FROM schedule_run WHERE state = 0";
        assert!(running.until("the run has begun", || db.number(begun) == 1));
        scratch.run(["cancel", &campaign]).assert_code(0);
        // The query ends.
        drop(holder);
        let ran = running.ended();
        if db.kind != Kind::Sqlite {
            expect_error(&ran, "is cancelled: it takes no messages");
        }
        let status = scratch.checked_status(Some(&campaign));
        assert_eq!(status["state"], "cancelled", "{status}");
        assert_eq!(status["queued"], 0, "{status}");
        scratch.run(["send"]).assert_code(0);
        assert_eq!(gateway.requests(), 0);
        let resumed = "SELECT count(*) AS value FROM audit WHERE what = 'resume'";
        assert_eq!(db.number(resumed), 0);
    });
}

#[test]
fn scheduled_run_into_a_cancelled_campaign_is_missed_at_once() {
    with_every_database(|db| {
        let (crm, _gateway, scratch) = prepared(db, SandboxConfig::default());
        grow(&crm, 0..3);
        add(&scratch, &[]);
        let campaign = run_now(&scratch)["campaign"].as_str().map(str::to_owned);
        let campaign = campaign.expect("a name");
        scratch.run(["cancel", &campaign]).assert_code(0);
        let period = campaign.trim_start_matches("daily/");
        db.run(&format!(
            "UPDATE schedule SET next_at = 1000, fire = '{period}T00:01', period = '{period}'"
        ));
        let mut sending = scratch.start(["send", "--follow"]);
        let missed = "SELECT count(*) AS value FROM schedule_run WHERE state = 2 AND error LIKE '%is cancelled%'";
        assert!(sending.until("it is missed", || db.number(missed) == 1));
        sending.signal(rustix::process::Signal::TERM);
        sending.ended();
        let status = scratch.checked_status(Some(&campaign));
        assert_eq!((&status["state"], &status["cancelled"]), (&"cancelled".into(), &3.into()));
    });
}

/// Others can make the campaign of a period only before there is a schedule.
#[test]
fn schedule_keeps_its_settings_whoever_made_the_campaign() {
    with_every_database(|db| {
        let (crm, _gateway, scratch) = prepared(db, SandboxConfig::default());
        grow(&crm, 0..3);
        add(&scratch, &[]);
        let campaign = run_now(&scratch)["campaign"].as_str().map(str::to_owned);
        let campaign = campaign.expect("a name");
        scratch.run(["schedule", "remove", "daily"]).assert_code(0);
        scratch.run(["set", "--campaign", &campaign, "--from", "OTHER"]).assert_code(0);
        add(&scratch, &["--window", "09:00-20:00"]);
        run_now(&scratch);
        let settings = format!(
            "SELECT concat(coalesce(sender, '-'), ' ', send_window) AS value FROM campaign WHERE name = '{campaign}'"
        );
        let settings = || db.words(&settings)[0].clone().expect("a text");
        assert!(settings().starts_with("- 09:00-20:00"), "{}", settings());
        // A later run leaves what a person changed.
        scratch.run(["set", "--campaign", &campaign, "--from", "SHOP"]).assert_code(0);
        grow(&crm, 3..4);
        assert_eq!(run_now(&scratch)["accepted"], 1);
        assert!(settings().starts_with("SHOP 09:00-20:00"), "{}", settings());
    });
}

#[test]
fn names_of_a_schedules_campaigns_are_refused_to_others() {
    let db = Database::in_a_file();
    let (crm, _gateway, scratch) = prepared(&db, SandboxConfig::default());
    grow(&crm, 0..3);
    scratch.write("list.csv", "phone\n+447400123456\n");
    let import = |name: &str, more: &[&'static str]| {
        let line = ["import", "list.csv", "--text", "Hello", "--campaign", name];
        scratch.run(line.iter().chain(more).copied())
    };
    // Names that are no periods are in use.
    import("weekly/codes", &[]).assert_code(0);
    let weekly = scratch.run(ADD.map(|word| if word == "daily" { "weekly" } else { word }));
    expect_error(&weekly, "there is a campaign `weekly/codes`");
    add(&scratch, &[]);
    let reserved = "the name `daily/2026-11-28` belongs to schedule `daily`";
    expect_error(&import("daily/2026-11-28", &[]), reserved);
    expect_error(&import("daily/2026-11-28", &["--dry-run"]), reserved);
    expect_error(&import("daily/x", &[]), "belongs to schedule `daily`");
    let ran = scratch.run(["run", "list.csv", "--text", "x", "--campaign", "daily/x"]);
    expect_error(&ran, "belongs to schedule `daily`");
    import("other/2026-11-28", &["--again"]).assert_code(0);
    import("daily", &["--again"]).assert_code(0);
    let made = "SELECT count(*) AS value FROM campaign WHERE name LIKE 'daily/%'";
    assert_eq!(db.number(made), 0);
}

/// The failures of a scheduled campaign are fixed and imported again.
#[test]
fn failed_messages_of_a_schedule_can_be_replaced() {
    let db = Database::in_a_file();
    let (crm, gateway, scratch) = prepared(&db, SandboxConfig::default());
    crm.run("INSERT INTO due VALUES (1, '+447400000001')");
    add(&scratch, &[]);
    run_now(&scratch);
    db.run("UPDATE sms SET expires_at = 1000");
    scratch.run(["send"]);
    scratch.run(["report", "--failed", "--format", "csv", "--output", "failed.csv"]).assert_code(0);
    let fixed = scratch.read("failed.csv").replace("400000001", "400000002");
    scratch.write("failed.csv", &fixed);
    scratch.run(["import", "failed.csv"]).assert_code(0);
    scratch.run(["send"]);
    gateway.assert_each_once(1);
}

#[test]
fn due_schedule_runs_in_send_follow_and_source_that_is_away_is_retried() {
    with_every_database(|db| {
        let (crm, gateway, scratch) = prepared(db, SandboxConfig::default());
        grow(&crm, 0..10);
        add(&scratch, &[]);
        let due =
            "UPDATE schedule SET next_at = 1000, fire = '2026-01-01T09:00', period = '2026-01-01'";
        crm.run("ALTER TABLE due RENAME TO moved");
        db.run(due);
        let mut sending = scratch.start(["send", "--follow"]);
        let error =
            || listed(&scratch)["runs"][0]["error"].as_str().unwrap_or_default().contains("due");
        assert!(sending.until("the error is shown", error));
        let shown = listed(&scratch);
        assert_eq!(shown["runs"][0]["state"], "in progress", "{shown}");
        // Of all the fires that were due only the last one ran.
        let missed = shown["runs"][1]["error"].as_str().expect("a reason");
        assert!(missed.starts_with("no process ran it: "), "{shown}");
        crm.run("ALTER TABLE moved RENAME TO due");
        db.run("UPDATE schedule SET next_at = 1000");
        assert!(sending.until("messages are sent", || gateway.accepted() == 10));
        let is_done = || listed(&scratch)["runs"][0]["state"] == "done";
        assert!(sending.until("the run is done", is_done));
        let shown = listed(&scratch);
        assert_eq!(shown["runs"][0]["accepted"], 10, "{shown}");
        sending.signal(rustix::process::Signal::TERM);
        sending.ended().assert_code(143);
        gateway.assert_each_once(10);
    });
}

/// Two schedulers are killed while they import and send rows of a table that grows.
#[test]
fn killed_runs_are_repeated_without_a_second_message() {
    const ROUNDS: u64 = 3;
    const GROWTH: u64 = 200;
    let seed = 4;
    with_every_database(|db| {
        let mut random = StdRng::seed_from_u64(seed);
        let (crm, gateway, scratch) = prepared(db, with_latency(3));
        grow(&crm, 0..1);
        add(&scratch, &[]);
        let start = || scratch.start(["send", "--follow", "--quiet"]);
        let mut running = [start(), start()];
        for round in 1..=ROUNDS {
            grow(&crm, (round - 1) * GROWTH + 1..round * GROWTH + 1);
            // The last run that was due before now is always the same one.
            db.run(
                "UPDATE schedule SET next_at = 1000, leased_until = 0, fire = '2026-01-01T09:00', period = '2026-01-01'",
            );
            for _ in 0..4 {
                // The kill meets another step of a run each time, or none.
                std::thread::sleep(Duration::from_millis(random.random_range(0..1_500)));
                let victim = random.random_range(0..2);
                std::mem::replace(&mut running[victim], start()).kill();
                // The lease of the killed process would end in a minute.
                db.run("UPDATE schedule SET leased_until = 0");
            }
            let expected = round * GROWTH + 1;
            eventually(&format!("{expected} messages are sent"), || gateway.accepted() >= expected);
        }
        drop(running);
        let stats = gateway.stats();
        let expected = ROUNDS * GROWTH + 1;
        assert_eq!(stats.accepted, expected, "{stats:?}");
        assert_eq!(stats.distinct_recipients, expected, "{stats:?}");
    });
}

/// A query that takes ten minutes as soon as the table `slow` has a row.
fn slow_query(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => {
            "SELECT id, phone, (SELECT max(pg_sleep(600)::text) FROM slow) AS waited FROM due"
        }
        Kind::Mysql => "SELECT id, phone, (SELECT max(sleep(600)) FROM slow) AS waited FROM due",
        Kind::Sqlite => {
            "SELECT id, phone FROM due WHERE id < (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
             WHERE i < (SELECT count(*) FROM slow) * 1000000000000) SELECT count(*) FROM n) * 1000000"
        }
    }
}

/// How many slow queries run in the server of a database.
fn running_queries(crm: &Database) -> i64 {
    crm.number(match crm.kind {
        Kind::Postgres => {
            "SELECT count(*) AS value FROM pg_stat_activity WHERE state = 'active' AND datname = current_database() \
             AND query LIKE 'SELECT id, phone%'"
        }
        Kind::Mysql => {
            "SELECT count(*) AS value FROM information_schema.processlist WHERE db = database() \
             AND info LIKE 'SELECT id, phone%'"
        }
        Kind::Sqlite => "SELECT 0 AS value",
    })
}

const RUNS: &str = "SELECT count(*) AS value FROM schedule_run WHERE state = 0";

/// A schedule whose query is slow from now on.
fn slowed(db: &Database) -> (Database, Practice, Scratch) {
    let (crm, gateway, scratch) = prepared(db, SandboxConfig::default());
    crm.run("CREATE TABLE slow (id INTEGER PRIMARY KEY)");
    scratch.write("due.sql", slow_query(crm.kind));
    grow(&crm, 0..3);
    add(&scratch, &[]);
    crm.run("INSERT INTO slow VALUES (1)");
    (crm, gateway, scratch)
}

/// Waits until the query of the one run has begun.
fn until_query_runs(db: &Database, crm: &Database) {
    eventually("the run is in progress", || db.number(RUNS) == 1);
    if crm.kind != Kind::Sqlite {
        eventually("its query runs", || running_queries(crm) == 1);
    }
}

#[test]
fn signal_ends_a_slow_query_also_in_its_database() {
    with_every_database(|db| {
        let (crm, _gateway, scratch) = slowed(db);
        for line in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["serve", "--listen", "127.0.0.1:0", "--send"],
            &["send", "--follow", "--quiet"],
        ] {
            db.run("UPDATE schedule_run SET state = 2");
            db.run("UPDATE schedule SET next_at = 1000, leased_until = 0");
            db.run("DELETE FROM schedule_run");
            let mut running = scratch.start(line.iter().copied());
            until_query_runs(db, &crm);
            running.signal(Signal::TERM);
            let signalled = Instant::now();
            let ran = running.ended();
            let expected = if line[0] == "send" { 143 } else { 0 };
            assert_eq!(ran.code(), Some(expected), "{ran}");
            // It would take ten minutes; the machine may be slow.
            let took = signalled.elapsed();
            assert!(took < Duration::from_secs(30), "{line:?}: {took:?}");
            eventually("the query ends in its database", || running_queries(&crm) == 0);
            // The next process runs it at once.
            let leased = "SELECT count(*) AS value FROM schedule WHERE leased_until > 0";
            assert_eq!(db.number(leased), 0, "{took:?} {ran}");
            assert_eq!(db.number(RUNS), 1);
        }
        crm.run("DELETE FROM slow");
        let running = scratch.start(["send", "--follow", "--quiet"]);
        let added = "SELECT accepted AS value FROM schedule_run";
        eventually("the run is repeated", || db.numbers(added) == [3]);
        drop(running);
    });
}

#[test]
fn slow_query_keeps_its_lease_and_runs_once() {
    with_every_database(|db| {
        let (crm, _gateway, scratch) = slowed(db);
        db.run("UPDATE schedule SET next_at = 1000");
        let start = || scratch.start(["send", "--follow", "--quiet"]);
        let running = [start(), start()];
        until_query_runs(db, &crm);
        let lease = || db.number("SELECT leased_until AS value FROM schedule");
        let holder = || db.number("SELECT holder AS value FROM schedule");
        let (first, by) = (lease(), holder());
        eventually("the lease is renewed", || lease() > first);
        assert_eq!(holder(), by);
        assert_eq!(db.number("SELECT count(*) AS value FROM schedule_run"), 1);
        drop(running);
    });
}

#[test]
fn asked_run_that_ends_early_is_not_in_progress() {
    with_every_database(|db| {
        let (crm, _gateway, scratch) = slowed(db);
        let start = || scratch.start(["schedule", "run", "daily"]);
        let mut running = start();
        until_query_runs(db, &crm);
        running.signal(Signal::TERM);
        running.ended().assert_code(143);
        let run = listed(&scratch)["runs"][0].clone();
        assert_eq!(run["state"], "missed", "{run}");
        assert_eq!(run["error"], "the run was interrupted", "{run}");
        eventually("the query ends in its database", || running_queries(&crm) == 0);
        db.run("DELETE FROM schedule_run");
        let running = start();
        until_query_runs(db, &crm);
        running.kill();
        assert_eq!(listed(&scratch)["runs"][0]["state"], "in progress");
        // A minute later.
        db.run("UPDATE schedule_run SET asked_until = 1000");
        let run = listed(&scratch)["runs"][0].clone();
        assert_eq!(run["state"], "missed", "{run}");
        assert_eq!(run["error"], "the run was interrupted", "{run}");
    });
}

#[test]
fn large_run_waits_for_another_person() {
    let db = Database::in_a_file();
    let (crm, gateway, scratch) = prepared(&db, SandboxConfig::default());
    let text = scratch.read("smsq.toml");
    let approval = "[approval]\nfrom_messages = 3\n";
    scratch.write("smsq.toml", &format!("{text}\n{approval}"));
    grow(&crm, 0..3);
    add(&scratch, &[]);
    let run = run_now(&scratch);
    let campaign = run["campaign"].as_str().expect("a name");
    scratch.run(["send"]).assert_code(3);
    assert_eq!(gateway.accepted(), 0);
    expect_error(&scratch.run(["approve", campaign, "--yes"]), "cannot approve it");
    let other = [("USER", "another"), ("LOGNAME", "another")];
    scratch.run_with(["approve", campaign, "--yes"], &other).assert_code(0);
    scratch.run(["send"]).assert_code(0);
    gateway.assert_each_once(3);
}

/// The environment of processes whose clock is shifted by what a file says.
struct ShiftedClock {
    file: std::path::PathBuf,
    shift: i64,
}

impl ShiftedClock {
    const LIBRARY: &str = "/usr/$LIB/faketime/libfaketimeMT.so.1";

    fn new(scratch: &Scratch) -> Self {
        Self { file: scratch.path("clock"), shift: 0 }
    }

    /// Sets the clock to an instant.
    fn set(&mut self, instant: &str) {
        let at: jiff::Timestamp = instant.parse().expect("an instant");
        self.shift = at.as_second() - jiff::Timestamp::now().as_second();
        self.advance(0);
    }

    fn advance(&mut self, seconds: i64) {
        self.shift += seconds;
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{:+}\n", self.shift)).expect("a file");
        std::fs::rename(next, &self.file).expect("a file");
    }

    fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("LD_PRELOAD", Self::LIBRARY.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    fn start(&self, scratch: &Scratch) -> Running {
        let mut command = scratch.command(["send", "--follow", "--quiet"]);
        command.envs(self.environment());
        scratch.start_command(command)
    }

    fn run(&self, scratch: &Scratch, line: &[&str]) -> Ran {
        let environment = self.environment();
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        scratch.run_with(line.iter().copied(), &environment)
    }
}

/// Ten days, in which the clock changes, with two schedulers that are killed at random, and a table that grows. Each day the
/// schedule fires at 02:30, which does not exist on one of the days, and at 09:30.
#[test]
fn killed_schedulers_reach_each_key_once_a_day_for_ten_days() {
    const ROWS: u64 = 30;
    let mut random = StdRng::seed_from_u64(3);
    let db = Database::in_a_file();
    let (crm, gateway, scratch) = prepared(&db, with_latency(2));
    grow(&crm, 0..ROWS);
    let mut clock = ShiftedClock::new(&scratch);
    clock.set("2026-03-24T12:00:00Z");
    let mut line = ADD.to_vec();
    line[4] = "30 2,9 * * *";
    clock.run(&scratch, &line).assert_code(0);
    let (mut rows, mut sent) = (ROWS, 0);
    let mut running = [clock.start(&scratch), clock.start(&scratch)];
    let mut kills = 0;
    for (day, fires) in [
        ("2026-03-25", ["01:30", "08:30"]),
        ("2026-03-26", ["01:30", "08:30"]),
        ("2026-03-27", ["01:30", "08:30"]),
        ("2026-03-28", ["01:30", "08:30"]),
        // 02:00 to 03:00 does not exist: at 01:00 UTC it is 03:00.
        ("2026-03-29", ["01:00", "07:30"]),
        ("2026-03-30", ["00:30", "07:30"]),
        ("2026-03-31", ["00:30", "07:30"]),
        ("2026-04-01", ["00:30", "07:30"]),
        ("2026-04-02", ["00:30", "07:30"]),
        ("2026-04-03", ["00:30", "07:30"]),
    ] {
        let before = gateway.messages().len();
        for (fire, at) in fires.into_iter().enumerate() {
            let expected = sent + if fire == 0 { rows } else { 5 };
            if fire == 1 {
                grow(&crm, rows..rows + 5);
                rows += 5;
            }
            clock.set(&format!("{day}T{at}:01Z"));
            // While the run is imported and sent, one of the two is killed, sometimes both.
            for _ in 0..random.random_range(1..4) {
                let wait = random.random_range(0..2_500);
                std::thread::sleep(Duration::from_millis(wait));
                let victim = random.random_range(0..2);
                let next = clock.start(&scratch);
                std::mem::replace(&mut running[victim], next).kill();
                kills += 1;
            }
            // A run of a killed process is repeated when its lease has ended.
            clock.advance(75);
            eventually(&format!("{day} {at}: {expected} messages are sent"), || {
                gateway.accepted() >= expected
            });
            sent = expected;
            let is_done = || {
                let shown = clock.run(&scratch, &["schedule", "list", "--format", "json"]).json();
                shown["schedules"][0]["runs"][0]["state"] == "done"
            };
            eventually("the run is done", is_done);
        }
        let today = &gateway.messages()[before..];
        let phones: BTreeSet<&str> = today.iter().map(|message| message.to.as_str()).collect();
        let expected: BTreeSet<String> = (0..rows).map(phone).collect();
        let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
        assert_eq!(phones, expected, "{day}");
        assert_eq!(today.len() as u64, rows, "{day}: a key got two messages");
    }
    assert!(kills >= 20, "{kills} kills");
    let campaigns = db.number("SELECT count(*) AS value FROM campaign WHERE name LIKE 'daily/%'");
    assert_eq!(campaigns, 10);
    let last = "SELECT name AS value FROM campaign ORDER BY id DESC LIMIT 1";
    assert_eq!(db.words(last), [Some("daily/2026-04-03".to_owned())]);
}
