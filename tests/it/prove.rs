//! `smsq prove` on every engine, while its database server crashes and freezes; and what it refuses.
//!
//! `SMSQ_ROUNDS=1000 tests/run --test it prove:: -- --nocapture` plays as many rounds, with the seeds from `SMSQ_SEED`
//! on, in four processes at once, and prints a line for each; `tests/prove` does that.

use std::env;
use std::io::Write;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::Scratch;
use crate::support::databases::{Database, Kind};
use crate::support::running::Running;
use crate::support::server::Server;
use crate::support::waiting::eventually;

/// How many processes play rounds, if there are many.
const PROCESSES: u64 = 4;

/// The figures that must be 0.
const BROKEN: [&str; 2] = ["lost", "twice"];
/// In the order of the columns of `tests/prove`.
const SUMS: [&str; 13] = [
    "rounds",
    "kills",
    "stops",
    "cut_commits",
    "outages",
    "commands",
    "messages",
    "accepted",
    "lost",
    "twice",
    "twice_asked",
    "unknown",
    "unknown_accepted",
];

/// The test runner captures what `eprintln` prints.
fn say(line: &str) {
    let mut stderr = std::io::stderr();
    stderr.write_all(line.as_bytes()).expect("standard error is open");
}

/// Crashes or freezes the server for a while.
fn disturb(server: &mut Server, random: &mut StdRng) {
    let span = Duration::from_millis(random.random_range(100..2_000));
    if random.random_bool(0.5) {
        server.crash();
        std::thread::sleep(span);
        server.recover();
    } else {
        server.freeze();
        std::thread::sleep(span);
        server.thaw();
    }
}

/// Plays rounds on one kind of database; its server fails every few seconds.
fn rounds(kind: Kind) {
    if !kind.is_there() {
        return;
    }
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    let asked = number("SMSQ_ROUNDS");
    let seed = number("SMSQ_SEED").unwrap_or(1);
    let processes = asked.map_or(1, |rounds| rounds.min(PROCESSES));
    let each = asked.unwrap_or(2).div_ceil(processes);
    let mut server = Server::start(kind);
    let mut proving: Vec<(Scratch, Running)> = (0..processes)
        .map(|index| {
            let scratch = Scratch::new();
            let (rounds, seed) = (each.to_string(), (seed + index * each).to_string());
            let database = server.as_ref().map(|server| Database::on(kind, &server.url));
            let mut line = vec!["prove", "--format", "json", "--rounds", &rounds, "--seed", &seed];
            line.extend(database.iter().flat_map(|database| ["--database", &database.url]));
            let running = scratch.start(line);
            (scratch, running)
        })
        .collect();
    let mut random = StdRng::seed_from_u64(seed);
    let mut disturbed_at = Instant::now();
    while proving.iter_mut().any(|(_, running)| !running.has_ended()) {
        std::thread::sleep(Duration::from_millis(50));
        if let Some(server) = &mut server
            && disturbed_at.elapsed() > Duration::from_secs(4)
        {
            disturb(server, &mut random);
            disturbed_at = Instant::now();
        }
    }
    let mut totals: Vec<Value> = Vec::new();
    for (_, running) in proving {
        let ran = running.ended();
        if asked.is_some() {
            say(&ran.stderr());
        }
        assert_eq!(ran.code(), Some(0), "{kind:?}: {ran}");
        totals.push(ran.json());
    }
    let sum = |name: &str| -> u64 {
        let counts = totals.iter().map(|total| total[name].as_u64());
        counts.map(|count| count.expect("a count")).sum()
    };
    let most = |name: &str| -> u64 {
        let counts = totals.iter().filter_map(|total| total[name].as_u64());
        counts.max().expect("a count")
    };
    let sums = SUMS.map(|name| sum(name).to_string()).join(" | ");
    let (in_a_second, recovery) = (most("most_in_a_second"), most("worst_recovery_ms"));
    let last = seed + processes * each - 1;
    say(&format!("| {} | {seed}–{last} | {sums} | {in_a_second} | {recovery} ms |\n", kind.name()));
    for name in BROKEN {
        assert_eq!(sum(name), 0, "{name}");
    }
    assert_eq!(sum("rounds"), processes * each);
    // Otherwise the rounds show nothing.
    assert!(sum("kills") > 0 && sum("accepted") > sum("messages") / 2);
}

#[test]
fn rounds_of_faults_on_sqlite_break_no_promise() {
    rounds(Kind::Sqlite);
}

#[test]
fn rounds_of_faults_on_postgres_break_no_promise() {
    rounds(Kind::Postgres);
}

#[test]
fn rounds_of_faults_on_mysql_break_no_promise() {
    rounds(Kind::Mysql);
}

#[test]
fn prove_refuses_a_database_that_is_in_use() {
    let scratch = Scratch::new();
    scratch.import("phone\n+447400123456\n");
    let ran = scratch.run(["prove", "--database", "sqlite://smsq.db"]).assert_code(2);
    let expected = "error: the database has campaigns or messages\nhint: use a database of its own";
    assert!(ran.stderr().starts_with(expected), "{ran}");
    assert!(scratch.run(["status"]).stdout().contains('c'));
}

#[test]
fn prove_ignores_the_configured_database() {
    let scratch = Scratch::new();
    scratch.import("phone\n+447400123456\n");
    let before = scratch.run(["status", "--format", "json"]).stdout();
    let line = ["prove", "--rounds", "1", "--messages", "20", "--seed", "3"];
    let settings =
        [("SMSQ__DATABASE__URL", "sqlite://smsq.db"), ("SMSQ__SENDER__CONCURRENCY", "0")];
    scratch.run_with(line, &settings).assert_code(0);
    assert_eq!(scratch.run(["status", "--format", "json"]).stdout(), before);
}

#[test]
fn prove_says_what_is_wrong_with_its_arguments() {
    let scratch = Scratch::new();
    for (line, expected) in [
        ("--rounds 0", "invalid value '0' for '--rounds <N>'"),
        ("--messages 3", "invalid value '3' for '--messages <N>'"),
        ("--gateway http://127.0.0.1:9", "required arguments were not provided"),
        ("--gateway nowhere --log x", "invalid value 'nowhere'"),
        (
            "--gateway http://127.0.0.1:9 --log missing.jsonl",
            "missing.jsonl`: the file does not exist",
        ),
        ("--database sqlite://missing/smsq.db", "missing/smsq.db"),
        ("--database postgres://me@127.0.0.1:9/p", "127.0.0.1:9"),
        ("--database list.csv", "invalid database URL"),
    ] {
        let words = ["prove"].into_iter().chain(line.split(' '));
        let ran = scratch.run(words);
        assert_eq!(ran.code(), Some(2), "{line}: {ran}");
        assert!(ran.stderr().contains(expected), "{line}: {ran}");
    }
}

/// The processes that have this folder as their working directory.
fn processes_below(folder: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("processes");
    let folders =
        entries.flatten().filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok());
    folders.filter(|path| path.starts_with(folder)).count()
}

#[test]
fn interrupted_prove_ends_what_it_started() {
    let scratch = Scratch::new();
    let folder = scratch.path("temporary");
    std::fs::create_dir(&folder).expect("a folder");
    let mut command = scratch.command(["prove"]);
    command.env("TMPDIR", &folder);
    let mut proving = scratch.start_command(command);
    let folder = folder.display().to_string();
    proving.until("gateway and workers run", || processes_below(&folder) > 3);
    proving.signal(Signal::INT);
    proving.ended().assert_code(130);
    eventually("no process is left", || processes_below(&folder) == 0);
    let left = std::fs::read_dir(&folder).expect("the folder").count();
    assert_eq!(left, 0, "temporary files are deleted");
}

#[test]
fn prove_judges_by_the_log_of_another_gateway() {
    let scratch = Scratch::new();
    let line = "sandbox --listen 127.0.0.1:0 --log gateway.jsonl --ignore-references";
    let mut gateway = scratch.start(line.split(' '));
    let url = gateway.first_line();
    let prove = |seed: &str| {
        let line = [
            "prove",
            "--gateway",
            &url,
            "--log",
            "gateway.jsonl",
            "--rounds",
            "1",
            "--messages",
            "40",
        ];
        scratch.run(line.into_iter().chain(["--seed", seed]))
    };
    prove("5").assert_code(0);
    // A gateway that texts someone twice is found, whoever is to blame.
    let log = scratch.path("gateway.jsonl");
    let doubling = std::thread::spawn(move || {
        let read = std::fs::read_to_string(&log).expect("the log").len();
        eventually("a message is accepted", || {
            let text = std::fs::read_to_string(&log).expect("the log");
            let mut lines = text[read..].lines();
            let Some(line) = lines.find(|line| line.contains("accepted") && line.ends_with('}'))
            else {
                return false;
            };
            let file = std::fs::OpenOptions::new().append(true).open(&log);
            writeln!(file.expect("the log"), "{line}").expect("a line");
            true
        });
    });
    let ran = prove("6");
    doubling.join().expect("no panic");
    assert_eq!(ran.code(), Some(1), "{ran}");
    assert!(ran.stderr().contains("was accepted 2 times"), "{ran}");
    assert!(ran.stderr().contains("what happened is in `"), "{ran}");
    gateway.kill();
}
