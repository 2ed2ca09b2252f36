//! `smsq import` of a Redis list and of JSON lines that other programs write: every entry is once in the queue,
//! in the dead list, or still in Redis, however the importer ends. `tests/run` starts the servers.

use std::collections::BTreeSet;
use std::env;
use std::io::Write;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;

use crate::support::databases::{Database, with_every_database};
use crate::support::shell::sqlite;
use crate::support::waiting::eventually;
use crate::support::{Gateway, Scratch, snapshot};

const PLAIN: &str = "SMSQ_TEST_REDIS";
/// A server without LMOVE.
const OLD: &str = "SMSQ_TEST_REDIS_OLD";
/// A server without LMOVE and RPOPLPUSH.
const OLDEST: &str = "SMSQ_TEST_REDIS_OLDEST";

/// A new list on a server.
struct List {
    url: String,
    key: String,
    client: redis::Connection,
}

impl List {
    /// A missing server is reported, and is a failure if `CI` is set.
    fn on(variable: &str) -> Option<Self> {
        static REPORTED: Once = Once::new();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Ok(server) = env::var(variable) else {
            let message = format!("`{variable}` names no server; `tests/run` starts one");
            assert!(env::var_os("CI").is_none(), "{message}");
            REPORTED.call_once(|| {
                let message = format!("skipped where they need a server: {message}\n");
                std::io::stderr().write_all(message.as_bytes()).expect("the reader is there");
            });
            return None;
        };
        let url = format!("{server}/0");
        let client = redis::Client::open(url.as_str()).expect("a url");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Some(Self {
            key: format!("tasks-{}-{number}", std::process::id()),
            client: client.get_connection().expect("the server answers"),
            url,
        })
    }

    fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let (name, rest) = words.split_first().expect("a command");
        let mut command = redis::cmd(name);
        for word in rest {
            command.arg(*word);
        }
        command.query(&mut self.client).expect("an answer")
    }

    fn push(&mut self, entry: &str) {
        let key = self.key.clone();
        let _: u64 = self.ask(&["LPUSH", &key, entry]);
    }

    /// Pushes `count` entries, whose texts are their numbers.
    fn push_many(&mut self, count: u64) {
        let mut pipeline = redis::pipe();
        for number in 0..count {
            let push = pipeline.cmd("LPUSH").arg(&self.key);
            push.arg(entry(number)).ignore();
        }
        let () = pipeline.query(&mut self.client).expect("pushed");
    }

    fn waiting(&mut self) -> u64 {
        let key = self.key.clone();
        self.ask(&["LLEN", &key])
    }

    fn dead(&mut self) -> Vec<String> {
        let key = format!("{}:dead", self.key);
        self.ask(&["LRANGE", &key, "0", "-1"])
    }

    /// All keys that begin with the key of this list.
    fn keys(&mut self) -> BTreeSet<String> {
        let pattern = format!("{}*", self.key);
        let keys: Vec<String> = self.ask(&["KEYS", &pattern]);
        let own = |key: String| key.replace(&self.key, "KEY");
        keys.into_iter().map(own).collect()
    }

    fn import<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut line = vec!["import", &self.url, "--list", &self.key, "--campaign", "codes"];
        line.extend(more);
        line
    }
}

fn entry(number: u64) -> String {
    format!(r#"{{"phone":"+44740012{:04}","content":"{number}"}}"#, 1_000 + number % 9_000)
}

fn count(db: &Database) -> u64 {
    let count = db.number("SELECT count(*) AS value FROM sms");
    u64::try_from(count).expect("a count")
}

/// Every entry is one message.
fn assert_each_once(db: &Database, entries: u64) {
    let distinct = db.number("SELECT count(DISTINCT content) AS value FROM sms");
    assert_eq!((count(db), distinct), (entries, i64::try_from(entries).expect("a count")));
    let off = "SELECT count(*) AS value FROM import WHERE accepted - replaced <>
        (SELECT count(*) FROM sms WHERE sms.import_id = import.id)";
    assert_eq!(db.number(off), 0, "imports that do not count what they queued");
}

#[test]
fn invalid_entries_go_to_the_dead_list() {
    let Some(mut list) = List::on(PLAIN) else {
        return;
    };
    let scratch = Scratch::new();
    list.push(r#"{"phone":"+447400123451","content":"Your code is 1","order":7}"#);
    list.push(r#"{"phone":"+447400123451","content":"Your code is 2"}"#);
    list.push("{");
    list.push(r#"{"phone":"+4474001","content":"x"}"#);
    list.push(r#"{"content":"x"}"#);
    list.push(&format!(r#"{{"phone":"{}"}}"#, "1".repeat(10 << 20)));
    list.push(r#"{"phone":"+447400123452","content":"once","dedupe_key":"a"}"#);
    list.push(r#"{"phone":"+447400123452","content":"twice","dedupe_key":"a"}"#);
    let key = list.key.clone();
    let ran = scratch.run(list.import(&["--format", "json"])).assert_code(0);
    let result = ran.json();
    assert_eq!(
        (&result["rows"], &result["accepted"], &result["duplicates"], &result["rejected"]),
        (&8.into(), &3.into(), &1.into(), &4.into()),
        "{result}"
    );
    let message = format!("warning: rejected 4 entries, with the reasons in list `{key}:dead`");
    assert!(ran.stderr().contains(&message), "{ran}");
    let reasons: Vec<String> = list
        .dead()
        .iter()
        .map(|letter| {
            let letter: serde_json::Value = serde_json::from_str(letter).expect("an object");
            assert!(letter["entry"].is_string(), "{letter}");
            letter["reason"].as_str().expect("a reason").to_owned()
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "the row is longer than 64 KiB",
            "missing phone column in `entry`: it has only `content`",
            "`+4****` is not a valid phone number: not assigned in any numbering plan",
            "the line is not a JSON object",
        ]
    );
    assert_eq!(list.keys(), BTreeSet::from(["KEY:dead".to_owned()]));
    scratch.run(list.import(&[])).assert_code(0);
    let status = scratch.run(["status", "--campaign", "codes", "--format", "json"]);
    assert_eq!(status.json()["queued"], 3, "{status}");
}

/// A database that knows that this number does not exist, and skips it.
fn skipping(phone: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", "[limits]\nskip_dead = \"180d\"\n");
    // Creates the tables.
    scratch.import("phone\n+447400123459\n");
    let insert = format!("INSERT INTO dead VALUES ('{phone}', '7', 'cellar', 9000000000000)");
    sqlite(&scratch, &insert);
    scratch
}

const DEAD_REASON: &str = "the number does not exist, as `cellar` said on 2255-03-14 (code 7)";

#[test]
fn entry_of_a_dead_number_goes_to_the_dead_list() {
    let Some(mut list) = List::on(PLAIN) else {
        return;
    };
    let scratch = skipping("+447400123452");
    list.push("{");
    for phone in ["+447400123451", "+447400123452", "+447400123453"] {
        list.push(&format!(r#"{{"phone":"{phone}","content":"Hi"}}"#));
    }
    let result = scratch.run(list.import(&["--format", "json"])).json();
    assert_eq!((&result["accepted"], &result["rejected"]), (&2.into(), &2.into()), "{result}");
    let letters = list.dead();
    assert_eq!(letters.len(), 2);
    assert!(letters[0].contains("+447400123452"), "{letters:?}");
    assert!(letters[0].contains(DEAD_REASON), "{letters:?}");
    assert_eq!(list.keys(), BTreeSet::from(["KEY:dead".to_owned()]));
}

#[test]
fn line_of_a_dead_number_is_rejected() {
    let scratch = skipping("+447400123452");
    let lines = ["+447400123451", "+447400123452"]
        .map(|phone| format!("{{\"phone\":\"{phone}\",\"content\":\"Hi\"}}\n"));
    scratch.write("lines.jsonl", &lines.concat());
    let mut command = scratch.command(["import", "-", "--follow", "--campaign", "codes"]);
    let input = std::fs::File::open(scratch.path("lines.jsonl")).expect("opens");
    let output = command.stdin(input).output().expect("runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("rejected 1 "), "{said}");
    let rejects = scratch.read("stdin.rejects.jsonl");
    assert!(rejects.contains(DEAD_REASON), "{rejects}");
    assert!(rejects.contains("+447400123452"), "{rejects}");
}

#[test]
fn nested_values_are_never_sent_as_json() {
    let Some(mut list) = List::on(PLAIN) else {
        return;
    };
    let scratch = Scratch::new();
    list.push(r#"{"phone":"+447400123451","content":{"a":1}}"#);
    list.push(r#"{"phone":"+447400123452","content":["a"]}"#);
    list.push(r#"{"phone":{"a":"+447400123453"},"content":"Hi"}"#);
    list.push(r#"{"phone":"+447400123454","content":"{\"a\":1}","order":{"id":7}}"#);
    let ran = scratch.run(list.import(&["--format", "json"]));
    let result = ran.json();
    assert_eq!((&result["accepted"], &result["rejected"]), (&1.into(), &3.into()), "{ran}");
    assert_eq!(list.dead().len(), 3);
    let _: u64 = list.ask(&["DEL", &format!("{}:dead", list.key)]);
    list.push(r#"{"phone":"+447400123455","name":{"first":"Ann"}}"#);
    let ran = scratch.run(list.import(&["--text", "Hi {{ name }}", "--format", "json"]));
    assert_eq!(ran.json()["rejected"], 1, "{ran}");
}

#[test]
fn killed_importer_loses_and_duplicates_nothing() {
    with_every_database(|db| {
        let mut random = StdRng::seed_from_u64(7);
        let Some(mut list) = List::on(PLAIN) else {
            return;
        };
        let scratch = Scratch::at(&db.url);
        let entries = 30_000;
        list.push_many(entries);
        let mut kills = 0;
        while list.waiting() > 0 && kills < 12 {
            let until = list.waiting().saturating_sub(random.random_range(0..4_000));
            let mut importing = scratch.start(list.import(&["--follow", "--quiet"]));
            importing.until("fewer entries", || list.waiting() <= until);
            importing.kill();
            kills += 1;
        }
        scratch.run(list.import(&[])).assert_code(0);
        assert_each_once(db, entries);
        assert_eq!(list.keys(), BTreeSet::new());
        assert!(kills > 4, "only {kills} kills");
    });
}

#[test]
fn two_importers_share_a_list() {
    with_every_database(|db| {
        let Some(mut list) = List::on(PLAIN) else {
            return;
        };
        let scratch = Scratch::at(&db.url);
        list.push_many(20_000);
        let both = [(); 2].map(|()| scratch.start(list.import(&["--quiet"])));
        for importing in both {
            importing.ended().assert_code(0);
        }
        assert_each_once(db, 20_000);
        assert_eq!(list.keys(), BTreeSet::new());
    });
}

#[test]
fn entries_of_a_silent_importer_are_reclaimed() {
    let Some(mut list) = List::on(PLAIN) else {
        return;
    };
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    list.push_many(3);
    // An importer that died between the move and the commit.
    drop(scratch.run(list.import(&[])));
    list.push_many(3);
    db.run("DELETE FROM sms; DELETE FROM sms_key; UPDATE import SET accepted = 0");
    let (index, key) = (format!("{}:smsq", list.key), list.key.clone());
    let hash = db.words("SELECT hash AS value FROM import").remove(0);
    let token = hash.expect("a token");
    db.run("UPDATE import SET finished_at = NULL");
    let _: u64 = list.ask(&["SADD", &index, &token]);
    let held = format!("{key}:smsq:{token}:2");
    let lease = format!("{key}:smsq:{token}");
    let _: u64 = list.ask(&["RENAMENX", &key, &held]);
    let _: String = list.ask(&["SET", &lease, "elsewhere boot 1 2 3"]);

    let ran = scratch.run(list.import(&[])).assert_code(0);
    assert!(ran.stderr().contains("another importer reads this list too"), "{ran}");
    assert_eq!(count(&db), 0);

    let _: u64 = list.ask(&["DEL", &lease]);
    let ran = scratch.run(list.import(&[])).assert_code(0);
    let message = "recovered 3 entries of an importer that died";
    assert!(ran.stderr().contains(message), "{ran}");
    assert_each_once(&db, 3);
    assert_eq!(list.keys(), BTreeSet::new());

    // Committed entries are not imported again.
    let _: u64 = list.ask(&["SADD", &index, &token]);
    let committed = format!("{key}:smsq:{token}:1");
    let _: u64 = list.ask(&["LPUSH", &committed, &entry(0)]);
    scratch.run(list.import(&[])).assert_code(0);
    assert_each_once(&db, 3);
    assert_eq!(list.keys(), BTreeSet::new());
}

#[test]
fn importer_reconnects_to_the_server() {
    let Some(mut list) = List::on(PLAIN) else {
        return;
    };
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    list.push_many(20_000);
    let user = ["ACL", "SETUSER", "follower", "on", "nopass", "~*", "+@all"];
    let _: String = list.ask(&user);
    list.url = list.url.replace("redis://", "redis://follower@");
    let mut importing = scratch.start(list.import(&["--follow"]));
    importing.until_printed("that it follows", |message| message.contains("following"));
    for until in [18_000, 12_000, 6_000, 0] {
        importing.until("fewer entries", || list.waiting() <= until);
        let _: u64 = list.ask(&["CLIENT", "KILL", "USER", "follower"]);
        list.push(&format!(r#"{{"phone":"+447400123451","content":"after {until}"}}"#));
    }
    eventually("all of them", || count(&db) == 20_004);
    importing.signal(Signal::INT);
    importing.ended().assert_code(130);
    assert_each_once(&db, 20_004);
    assert_eq!(list.keys(), BTreeSet::new());
}

#[test]
fn older_servers_are_read_with_older_commands() {
    for (variable, is_safe) in [(OLD, true), (OLDEST, false)] {
        let Some(mut list) = List::on(variable) else {
            return;
        };
        let db = Database::in_a_file();
        let scratch = Scratch::at(&db.url);
        list.push_many(2_500);
        list.push("{");
        let ran = scratch.run(list.import(&[])).assert_code(0);
        let warned = ran.stderr().contains("entries are taken with RPOP");
        assert_eq!(warned, !is_safe, "{ran}");
        assert_each_once(&db, 2_500);
        assert_eq!(list.dead().len(), 1);
        assert_eq!(list.keys(), BTreeSet::from(["KEY:dead".to_owned()]));
    }
}

#[test]
fn server_errors_are_one_clear_sentence() {
    let Some(mut list) = List::on(PLAIN) else {
        return;
    };
    let scratch = Scratch::new();
    let server = list.url.trim_start_matches("redis://").to_owned();
    let key = list.key.clone();
    let _: String = list.ask(&["SET", &key, "a text"]);
    let _: String = list.ask(&["ACL", "SETUSER", "locked", "on", ">secret", "~*", "+@all"]);
    let line = |url: String| {
        let ran = scratch.run(["import", &url, "--list", "key"]);
        ran.to_string().replace(&server, "SERVER").replace(&key, "KEY")
    };
    let wrong_type = scratch.run(["import", &list.url, "--list", &key]);
    let wrong_type = wrong_type.to_string().replace(&server, "SERVER");
    snapshot!(wrong_type.replace(&key, "KEY"), @r"
    exit 2
    ----- stderr
    error: key `KEY` of `redis://SERVER` is not a list
    hint: `redis-cli TYPE KEY` shows what it is
    ");
    snapshot!(line(format!("redis://locked:wrong@{server}")), @r"
    exit 2
    ----- stderr
    warning: the password in the redis:// url is visible to other users of this machine; use SMSQ__REDIS__PASSWORD or `redis.password`
    error: `redis://SERVER` refuses the login: it needs another user or password
    hint: set the password as SMSQ__REDIS__PASSWORD, the user in the url: `redis://user@host/0`
    ");
    snapshot!(line(format!("rediss://{server}")), @r"
    exit 2
    ----- stderr
    error: cannot use `rediss://SERVER`: timed out
    hint: nothing is lost: run it again when the server is back; use `rediss://` for TLS
    ");
    snapshot!(line("redis://127.0.0.1:1/0".to_owned()), @r"
    exit 2
    ----- stderr
    error: cannot use `redis://127.0.0.1:[PORT]/0`: Connection refused (os error 111)
    hint: nothing is lost: run it again when the server is back; use `rediss://` for TLS
    ");
    snapshot!(line("redis:///0".to_owned()), @r"
    exit 2
    ----- stderr
    error: invalid Redis url: it names no host; use `redis://host:6379/0`
    ");
    scratch
        .run_with(
            ["import", &format!("redis://locked@{server}"), "--list", "nothing"],
            &[("SMSQ__REDIS__PASSWORD", "secret")],
        )
        .assert_code(0);
}

#[test]
fn redis_list_needs_a_key_and_no_files() {
    let scratch = Scratch::new();
    let url = "redis://127.0.0.1:1/0";
    snapshot!(scratch.run(["import", url]), @r"
    exit 2
    ----- stderr
    error: missing `--list`: `redis://…` is a server
    hint: name the list that programs push to: `--list KEY`
    ");
    snapshot!(scratch.run(["import", "list.csv", "--list", "tasks"]), @r"
    exit 2
    ----- stderr
    error: `--list` needs a Redis server
    hint: write it as `smsq import redis://localhost/0 --list tasks`
    ");
    snapshot!(scratch.run(["import", "list.csv", url, "--list", "tasks"]), @r"
    exit 2
    ----- stderr
    error: a list in Redis cannot be imported together with files
    hint: import the files with a second command
    ");
    snapshot!(scratch.run(["import", url, "--list", "tasks", "--dry-run"]), @r"
    exit 2
    ----- stderr
    error: `--dry-run` cannot read entries without removing them
    hint: `redis-cli LRANGE KEY -5 -1` shows the next entries
    ");
    snapshot!(scratch.run(["import", "list.csv", "--follow"]), @r"
    exit 2
    ----- stderr
    error: `--follow` needs a Redis list or standard input, not a file
    hint: `tail -f FILE | smsq import - --follow` follows a file of JSON lines
    ");
    snapshot!(scratch.run(["run", url, "--provider", "sandbox"]), @r"
    exit 2
    ----- stderr
    error: `run` reads files, not a list in Redis
    hint: use `smsq import redis://… --list KEY`, and `smsq send` in another process
    ");
}

#[test]
fn pushed_entries_are_sent_while_both_follow() {
    let Some(mut list) = List::on(PLAIN) else {
        return;
    };
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    let _gateway = Gateway::start_cellar(&scratch, &[]);
    let mut importing = scratch.start(list.import(&["--follow"]));
    importing.until_printed("that it follows", |message| message.contains("following"));
    let mut sending = scratch.start(["send", "--follow"]);
    for round in 1..=3 {
        list.push_many(10);
        let sent = || db.number("SELECT count(*) AS value FROM sms_sent");
        assert!(sending.until("all sent", || sent() == round * 10));
    }
    for mut process in [importing, sending] {
        process.signal(Signal::INT);
        process.ended().assert_code(130);
    }
}

#[test]
fn lines_are_imported_as_they_arrive() {
    let db = Database::in_a_file();
    let scratch = Scratch::at(&db.url);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let line = ["import", "-", "--follow", "--campaign", "codes"];
    let mut importing = scratch.start_with(line, reader);
    importing.until_printed("that it follows", |message| message.contains("following"));
    for (round, line) in [(1, entry(1)), (2, entry(2))] {
        writeln!(writer, "{line}").expect("the reader is there");
        importing.until("the message", || count(&db) == round);
    }
    writeln!(writer, "nothing like it\n{}", entry(3)).expect("the reader is there");
    importing.until("the third", || count(&db) == 3);
    assert_eq!(
        scratch.read("stdin.rejects.jsonl"),
        "{\"smsq_text\":\"nothing like it\",\"smsq_line\":\"3\",\"smsq_reason\":\"the line is not a JSON object\"}\n"
    );
    drop(writer);
    let ran = importing.ended().assert_code(0);
    assert_each_once(&db, 3);
    assert!(ran.stderr().contains("with the reasons in `stdin.rejects.jsonl`"), "{ran}");
}
