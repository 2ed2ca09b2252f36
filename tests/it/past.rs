//! A database that lost what it had committed: it was restored or replaced, or a standby took over. No message is sent
//! again that a worker on this host knows of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::practice::list;
use crate::support::running::Running;
use crate::support::timed_provider::{Reply, TimedProvider};
use crate::support::unstored::{accept_sent_rows, left_files, start_with_unstorable_results};
use crate::support::{Ran, Scratch};

const SEND: [&str; 4] = ["send", "--concurrency", "16", "--quiet"];
const MESSAGES: u64 = 200;

/// A provider that accepts each message at once.
fn accepting() -> TimedProvider {
    TimedProvider::start(None, |_, earlier| Reply::Json(format!(r#"{{ "id": "SM{earlier}" }}"#)))
}

/// A list whose messages this provider gets, 40 in a second.
fn queued(db: &Database, provider: &TimedProvider) -> Scratch {
    let scratch = Scratch::at(&db.url);
    scratch.write_cellar(&provider.url());
    let toml = scratch.read("smsq.toml");
    let limited = toml.replace("timeout = \"2s\"", "timeout = \"20s\"\nrate = \"40/s\"");
    scratch.write("smsq.toml", &limited);
    scratch.import(&list(MESSAGES));
    scratch
}

/// How many messages the provider accepted for each phone.
fn accepted(provider: &TimedProvider) -> BTreeMap<String, usize> {
    let mut phones = BTreeMap::new();
    for body in provider.bodies() {
        let body: Value = serde_json::from_str(&body).expect("JSON");
        let phone = body["to"].as_str().expect("a phone").to_owned();
        *phones.entry(phone).or_default() += 1;
    }
    phones
}

/// The phones that got more than one message.
fn twice(provider: &TimedProvider) -> Vec<String> {
    let phones = accepted(provider).into_iter();
    let twice = phones.filter(|(_, messages)| *messages > 1);
    twice.map(|(phone, _)| phone).collect()
}

/// The files that workers of the database left.
fn files(db: &Database, scratch: &Scratch) -> Vec<PathBuf> {
    let endings = ["jsonl", "marks"].into_iter();
    endings.flat_map(|ending| left_files(db, scratch, ending)).collect()
}

fn settle(scratch: &Scratch, file: &std::path::Path) -> Ran {
    let file = file.to_str().expect("a path");
    scratch.run(["settle", "--journal", file, "--format", "json"])
}

/// Starts a worker, keeps a copy of the database while it sends, and waits until it has sent more.
fn send_past_a_copy(db: &Database, scratch: &Scratch, provider: &TimedProvider) -> Running {
    let mut sending = scratch.start(SEND);
    assert!(sending.until("it sends", || provider.sends() >= 40));
    db.keep_copy();
    assert!(sending.until("it sends more", || provider.sends() >= 100));
    sending
}

/// A worker sends past a copy of the database, is killed, and the copy is put back.
fn restored_after_a_kill(db: &Database) -> (TimedProvider, Scratch) {
    let provider = accepting();
    let scratch = queued(db, &provider);
    send_past_a_copy(db, &scratch, &provider).kill();
    db.rewind();
    (provider, scratch)
}

#[test]
fn worker_stops_when_its_database_lost_commits() {
    with_every_database(|db| {
        let provider = accepting();
        let scratch = queued(db, &provider);
        let sending = send_past_a_copy(db, &scratch, &provider);
        db.rewind();
        let ran = sending.ended().assert_code(3);
        assert!(ran.stderr().contains("lost the last "), "{ran}");
        assert!(ran.stderr().contains(" commits of worker "), "{ran}");
        assert!((provider.sends() as u64) < MESSAGES, "it sent on");
        assert_eq!(left_files(db, &scratch, "marks").len(), 1);

        scratch.run(SEND).assert_code(0);
        assert_eq!(twice(&provider), [] as [String; 0]);
        assert_eq!(accepted(&provider).len() as u64, MESSAGES);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], MESSAGES);
        assert_eq!(files(db, &scratch), [] as [PathBuf; 0]);
    });
}

#[test]
fn idle_worker_notices_that_its_database_was_put_back() {
    with_every_database(|db| {
        let provider = accepting();
        let scratch = queued(db, &provider);
        db.keep_copy();
        let line = ["send", "--follow", "--quiet"];
        let mut sending = scratch.start(line);
        let sent = "SELECT count(*) AS value FROM sms_sent";
        assert!(sending.until("all are sent", || db.number(sent) == 200));
        db.rewind();
        let ran = sending.ended().assert_code(3);
        assert!(ran.stderr().contains("lost worker "), "{ran}");
        assert_eq!(provider.sends() as u64, MESSAGES);

        scratch.run(SEND).assert_code(0);
        assert_eq!(provider.sends() as u64, MESSAGES);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], MESSAGES);
    });
}

#[test]
fn restore_after_a_kill_sends_no_message_twice() {
    with_every_database(|db| {
        let (provider, scratch) = restored_after_a_kill(db);

        let ran = scratch.run(SEND);
        assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        assert_eq!(twice(&provider), [] as [String; 0]);
        let status = scratch.checked_status(Some("c"));
        let count = |key: &str| status[key].as_u64().expect("a count");
        assert_eq!(count("sent") + count("unknown"), MESSAGES, "{status}");
        let arrived = accepted(&provider).len() as u64;
        assert!((count("sent")..=MESSAGES).contains(&arrived), "{status}");
        assert_eq!(files(db, &scratch), [] as [PathBuf; 0]);
    });
}

#[test]
fn restored_messages_that_were_accepted_are_not_cancelled() {
    with_every_database(|db| {
        let (provider, scratch) = restored_after_a_kill(db);
        for file in files(db, &scratch) {
            let ran = settle(&scratch, &file).assert_code(0);
            assert!(ran.json()["settled"].as_u64() >= Some(40), "{ran}");
        }
        let what = "SELECT count(*) AS value FROM audit WHERE what = 'settle'";
        assert_eq!(db.number(what), 1);
        scratch.run(["cancel", "c"]).assert_code(0);
        let cancelled = db.words("SELECT phone AS value FROM sms_failed");
        let cancelled: BTreeSet<String> = cancelled.into_iter().flatten().collect();
        let arrived: BTreeSet<String> = accepted(&provider).into_keys().collect();
        assert!(cancelled.len() >= 50, "{}", cancelled.len());
        assert_eq!(cancelled.intersection(&arrived).count(), 0);
        scratch.checked_status(Some("c"));
    });
}

/// Fails if a message that was accepted counts as cancelled, or if the same list, imported again, sends one twice.
fn assert_cancelled_without_accepted(db: &Database, scratch: &Scratch, provider: &TimedProvider) {
    let cancelled = db.words("SELECT phone AS value FROM sms_failed");
    let cancelled: BTreeSet<String> = cancelled.into_iter().flatten().collect();
    let arrived: BTreeSet<String> = accepted(provider).into_keys().collect();
    assert!(cancelled.len() >= 50, "{}", cancelled.len());
    assert_eq!(cancelled.intersection(&arrived).count(), 0);
    scratch.import(&list(MESSAGES));
    let ran = scratch.run(SEND);
    assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
    assert_eq!(twice(provider), [] as [String; 0]);
    assert_eq!(files(db, scratch), [] as [PathBuf; 0]);
    scratch.checked_status(Some("c"));
}

#[test]
fn cancel_after_a_restore_keeps_accepted_messages() {
    with_every_database(|db| {
        let (provider, scratch) = restored_after_a_kill(db);
        scratch.run(["cancel", "c"]).assert_code(0);
        assert_cancelled_without_accepted(db, &scratch, &provider);
    });
}

#[test]
fn send_without_messages_settles_what_workers_left() {
    with_every_database(|db| {
        let (provider, scratch) = restored_after_a_kill(db);
        let folder = files(db, &scratch)[0].parent().expect("a folder").to_owned();
        let aside = scratch.path("aside");
        fs::rename(&folder, &aside).expect("moved");
        // As from another host.
        scratch.run(["cancel", "c"]).assert_code(0);
        fs::rename(&aside, &folder).expect("moved back");
        let ran = scratch.run(SEND);
        assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        assert_cancelled_without_accepted(db, &scratch, &provider);
    });
}

#[test]
fn worker_that_settled_another_may_lose_its_commits() {
    with_every_database(|db| {
        let provider = accepting();
        let scratch = queued(db, &provider);
        send_past_a_copy(db, &scratch, &provider).kill();
        let mut second = scratch.start(SEND);
        let earlier = provider.sends();
        assert!(second.until("it sends", || provider.sends() >= earlier + 20));
        db.rewind();
        second.ended().assert_code(3);

        let ran = scratch.run(SEND);
        assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        assert_eq!(twice(&provider), [] as [String; 0]);
        assert_eq!(files(db, &scratch), [] as [PathBuf; 0]);
    });
}

#[test]
fn file_without_a_message_of_the_database_is_kept() {
    with_every_database(|db| {
        let (provider, scratch) = restored_after_a_kill(db);
        let other = Database::new(db.kind);
        let at_other = [("SMSQ__DATABASE__URL", other.url.as_str())];
        scratch.write("b.csv", "phone\n+447400000001\n");
        let import = ["import", "b.csv", "--text", "Hello", "--campaign", "b"];
        assert_eq!(scratch.run_with(import, &at_other).code(), Some(0));
        let left = files(db, &scratch);
        assert_ne!(left, [] as [PathBuf; 0]);
        for file in left {
            let path = file.to_str().expect("a path");
            let ran = scratch.run_with(["settle", "--journal", path], &at_other).assert_code(2);
            assert!(ran.stderr().contains("no message of this database"), "{ran}");
            assert!(file.exists());
        }
        let ran = scratch.run(SEND);
        assert!(matches!(ran.code(), Some(0 | 1)), "{ran}");
        assert_eq!(twice(&provider), [] as [String; 0]);
    });
}

#[test]
fn message_that_has_the_id_of_a_lost_one_is_sent() {
    with_every_database(|db| {
        let (provider, scratch) = restored_after_a_kill(db);
        // As if the list had been imported after the restore: other messages with the same ids.
        db.run(
            "UPDATE sms SET created_at = created_at + 1, claim = 0, reference = NULL, state = 0",
        );
        let before = provider.sends() as u64;
        let ready = db.number("SELECT count(*) AS value FROM sms").unsigned_abs();
        scratch.run(SEND).assert_code(0);
        assert_eq!(provider.sends() as u64, before + ready);
    });
}

#[test]
fn worker_stops_when_its_file_is_replaced() {
    let db = Database::in_a_file();
    let provider = accepting();
    let scratch = queued(&db, &provider);
    let file = db.url.trim_start_matches("sqlite://").to_owned();
    let copy = format!("{file}.copy");
    fs::copy(&file, &copy).expect("a copy");
    let mut sending = scratch.start(SEND);
    assert!(sending.until("it sends", || provider.sends() >= 40));
    fs::rename(&copy, &file).expect("replaced");
    for ending in ["-wal", "-shm"] {
        fs::remove_file(format!("{file}{ending}")).expect("removed");
    }
    let ran = sending.ended().assert_code(3);
    assert!(ran.stderr().contains("the file was replaced"), "{ran}");
    let before = provider.sends();
    assert!((before as u64) < MESSAGES, "it sent on");

    let ran = scratch.run(SEND).assert_code(2);
    assert!(ran.stderr().contains("smsq settle --journal "), "{ran}");
    assert_eq!(provider.sends(), before);
    for file in files(&db, &scratch) {
        settle(&scratch, &file).assert_code(0);
    }
    scratch.run(SEND).assert_code(0);
    assert_eq!(twice(&provider), [] as [String; 0]);
    assert_eq!(accepted(&provider).len() as u64, MESSAGES);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], MESSAGES);
}

#[test]
fn copy_of_a_database_does_not_take_its_journal() {
    with_every_database(|db| {
        let (gateway, scratch, mut sending) = start_with_unstorable_results(db);
        let copy = Database::new(db.kind);
        let at_copy = [("SMSQ__DATABASE__URL", copy.url.as_str())];
        let import = ["import", "list.csv", "--text", "Hello", "--campaign", "c"];
        scratch.run_with(import, &at_copy).assert_code(0);
        let created_at = db.number("SELECT min(created_at) AS value FROM campaign");
        copy.run(&format!("UPDATE campaign SET created_at = {created_at}"));
        // While the worker of the original lives, a worker of the copy leaves its marks alone.
        let marks = left_files(db, &scratch, "marks");
        assert_eq!(marks.len(), 1);
        let pause = ["pause", "c"];
        assert_eq!(scratch.run_with(pause, &at_copy).code(), Some(0));
        scratch.run_with(SEND, &at_copy).assert_code(3);
        assert_eq!(left_files(db, &scratch, "marks"), marks);

        sending.signal(Signal::TERM);
        sending.ended().assert_code(2);
        let journals = left_files(db, &scratch, "jsonl");
        assert_eq!(journals.len(), 1);
        if db.kind == Kind::Sqlite {
            // The folder was copied with the file.
            let folder =
                PathBuf::from(format!("{}-unsettled", copy.url.trim_start_matches("sqlite://")));
            fs::create_dir(&folder).expect("a folder");
            let name = journals[0].file_name().expect("a name");
            fs::copy(&journals[0], folder.join(name)).expect("a copy");
        }
        scratch.run_with(["resume", "c"], &at_copy).assert_code(0);
        let before = gateway.accepted();
        let ran = scratch.run_with(SEND, &at_copy).assert_code(2);
        assert!(ran.stderr().contains("smsq settle --journal "), "{ran}");
        assert_eq!(gateway.accepted(), before);
        assert_eq!(copy.number("SELECT count(*) AS value FROM sms_sent"), 0);

        accept_sent_rows(db);
        scratch.run(SEND).assert_code(0);
        gateway.assert_each_once(40);
        assert_eq!(left_files(db, &scratch, "jsonl"), [] as [PathBuf; 0]);
    });
}

#[test]
fn worker_whose_commits_go_on_is_not_dead() {
    let db = Database::in_a_file();
    let provider = TimedProvider::start(None, |_, _| Reply::Never);
    let scratch = queued(&db, &provider);
    let mut killed = scratch.start(SEND);
    assert!(killed.until("some are in flight", || provider.sends() >= 4));
    killed.kill();
    let mut next = scratch.start(["send", "--campaign", "default", "--follow", "--quiet"]);
    let beats =
        "SELECT count(*) AS value FROM worker WHERE id = 2 AND heartbeat_at > started_at + 3000";
    let looked = next.until("it has looked several times", || {
        // As if it lived and its number were that of a process that has ended.
        db.run("UPDATE worker SET commits = commits + 1 WHERE id = 1");
        db.number(beats) == 1
    });
    let is_there = "SELECT count(*) AS value FROM worker WHERE id = 1";
    let rows = db.number(is_there);
    assert!(looked && rows == 1, "{looked} {rows}");
    assert!(next.until("it is dead after all", || db.number(is_there) == 0));
    next.signal(Signal::TERM);
    next.ended();
    assert!(scratch.checked_status(Some("c"))["unknown"].as_u64() > Some(0));
}
