//! Databases that another program locks or whose disk is full: smsq waits or reports an error, and no message is lost
//! or repeated.

use std::net::TcpListener;
use std::time::Duration;

use rustix::process::Signal;
use smsq_sandbox::SandboxConfig;

use crate::serve::status_of;
use crate::service::NotifySocket;
use crate::support::Scratch;
use crate::support::databases::{Database, Kind};
use crate::support::disk::Disk;
use crate::support::practice::{Practice, list, with_latency};
use crate::support::running::{Running, until_unchanged};
use crate::support::server::Server;
use crate::support::shell::{Lock, sqlite};
use crate::support::waiting::eventually;

const SEND: [&str; 3] = ["send", "--concurrency", "8"];

/// Slow enough to be interrupted.
fn latent() -> SandboxConfig {
    with_latency(20)
}

#[test]
fn sender_waits_for_a_locked_database() {
    let gateway = Practice::start(latent());
    let scratch = gateway.without_references("").imported(&list(300));
    let sending = scratch.start(SEND);
    eventually("it sends", || gateway.requests() >= 40);
    let lock = Lock::hold(&scratch);
    until_unchanged("nothing can be claimed", Duration::from_secs(2), || gateway.requests());
    assert!(gateway.requests() < 300);
    drop(lock);
    sending.ended().assert_code(0);
    gateway.assert_each_once(300);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 300);
    assert_eq!(sqlite(&scratch, "SELECT max(attempts) FROM sms_sent"), "1");
}

#[test]
fn signal_while_the_database_is_locked_loses_nothing() {
    let gateway = Practice::start(latent());
    let scratch = gateway.without_references("").imported(&list(100));
    let mut sending = scratch.start(SEND);
    eventually("it sends", || gateway.requests() >= 20);
    let lock = Lock::hold(&scratch);
    until_unchanged("nothing can be claimed", Duration::from_millis(500), || gateway.requests());
    sending.signal(Signal::TERM);
    until_unchanged("it waits", Duration::from_millis(500), || gateway.requests());
    drop(lock);
    sending.ended().assert_code(143);
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["sent"], gateway.accepted(), "{status}");
    scratch.run(SEND).assert_code(0);
    gateway.assert_each_once(100);
}

#[test]
fn import_continues_after_a_full_disk() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").scratch();
    scratch.write("list.csv", &list(9_000));
    let import = "import list.csv --text Hello --campaign c --format json";
    let Some(mut disk) = Disk::mount(&scratch, "1m") else {
        return;
    };
    let ran = disk.smsq(import).assert_code(2);
    assert!(ran.stderr().contains("`disk/smsq.db`: its disk is full"), "{ran}");
    assert!(ran.stderr().contains("hint: "), "{ran}");
    assert!(!scratch.path("list.rejects.csv").exists());

    disk.run("mount -o remount,size=64m disk").assert_code(0);
    disk.smsq("check").assert_code(0);
    disk.smsq(import).assert_code(0);
    let status = disk.smsq("status --campaign c --format json").json();
    assert_eq!(status["imported"], 9_000, "{status}");
    assert_eq!(status["queued"], 9_000, "{status}");
}

#[test]
fn sender_waits_while_the_disk_is_full() {
    let gateway = Practice::start(latent());
    let scratch = gateway.without_references("").scratch();
    scratch.write("list.csv", &list(400));
    let Some(mut disk) = Disk::mount(&scratch, "64m") else {
        return;
    };
    disk.smsq("import list.csv --text Hello --campaign c").assert_code(0);
    disk.start("send --concurrency 8");
    eventually("it sends", || gateway.requests() >= 40);
    disk.fill();
    eventually("it says so", || disk.said().contains("its disk is full"));
    until_unchanged("nothing can be claimed", Duration::from_secs(1), || gateway.requests());
    assert!(gateway.requests() < 400);
    disk.free();
    assert_eq!(disk.ended(), "0", "{}", disk.said());
    gateway.assert_each_once(400);
    disk.smsq("check").assert_code(0);
}

#[test]
fn full_disk_at_the_start_sends_nothing() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").scratch();
    scratch.write("list.csv", &list(20));
    let Some(mut disk) = Disk::mount(&scratch, "4m") else {
        return;
    };
    disk.smsq("import list.csv --text Hello --campaign c").assert_code(0);
    disk.fill();
    let ran = disk.smsq("send").assert_code(2);
    assert!(ran.stderr().contains("`disk/smsq.db`: "), "{ran}");
    assert_eq!(gateway.requests(), 0);
    disk.free();
    disk.smsq("send").assert_code(0);
    gateway.assert_each_once(20);
}

/// A database that is taken away, and comes back.
enum Outage {
    Crash(Server),
    /// Another program has a SQLite file for itself.
    Lock(Option<Lock>),
}

impl Outage {
    fn begin(&mut self, scratch: &Scratch) {
        match self {
            Self::Crash(server) => server.crash(),
            Self::Lock(lock) => *lock = Some(Lock::hold_alone(scratch)),
        }
    }

    fn end(&mut self) {
        match self {
            Self::Crash(server) => server.recover(),
            Self::Lock(lock) => *lock = None,
        }
    }
}

/// A free port, which another program may take.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A program that waits for its database, and its service manager.
struct Waiting {
    running: Running,
    socket: NotifySocket,
}

impl Waiting {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let name = arguments.join("_").replace(':', "_");
        let socket = NotifySocket::bind_as(scratch, &name);
        let mut command = scratch.command(arguments.iter().copied());
        command.env("NOTIFY_SOCKET", scratch.path(&name));
        Self { running: scratch.start_command(command), socket }
    }

    /// Waits until the program and its service manager say so.
    fn said(mut self) -> Running {
        self.running.until_printed("it waits", |said| said.contains("; waiting for the database"));
        let mut lines = Vec::new();
        eventually("the service manager knows", || {
            self.socket.read(&mut lines);
            let waits = |line: &String| line.starts_with("STATUS=waiting for the database: ");
            let alive = lines.iter().filter(|line| *line == "WATCHDOG=1").count();
            lines.iter().any(waits) && alive > 1
        });
        assert!(lines.contains(&"READY=1".to_owned()), "{lines:?}");
        self.running
    }
}

fn waits_for_database_that_comes_later(kind: Kind) {
    if !kind.is_there() {
        return;
    }
    let (scratch, mut outage) = match Server::start(kind) {
        None => (Scratch::new(), Outage::Lock(None)),
        Some(server) => {
            let db = Database::on(kind, &server.url);
            (Scratch::at(&db.url), Outage::Crash(server))
        }
    };
    let gateway = Practice::start(SandboxConfig::default());
    gateway.with_references("").configure(&scratch);
    scratch.import(&list(20));
    outage.begin(&scratch);
    let address = format!("127.0.0.1:{}", free_port());
    let other = format!("127.0.0.1:{}", free_port());
    let [served, worker, whole, stopped] = [
        &["serve", "--listen", &address][..],
        &["send", "--follow"],
        &["serve", "--send", "--listen", &other],
        &["serve", "--listen", "127.0.0.1:0"],
    ]
    .map(|line| Waiting::start(&scratch, line));
    let (mut served, mut worker, mut whole) = (served.said(), worker.said(), whole.said());
    assert_eq!(status_of(&address, "/healthz"), Some(200));
    assert_eq!(status_of(&address, "/readyz"), Some(503));
    assert_eq!(status_of(&address, "/"), Some(503));
    // A stop does not wait for the database.
    let mut stopped = stopped.said();
    stopped.signal(Signal::TERM);
    assert_eq!(stopped.ended().code(), Some(143));
    if kind != Kind::Sqlite {
        let ran = scratch.run(["send"]);
        assert_eq!(ran.code(), Some(2), "others do not wait: {ran}");
    }
    outage.end();
    eventually("all is sent", || gateway.accepted() == 20);
    for address in [&address, &other] {
        eventually("it is ready", || status_of(address, "/readyz") == Some(200));
    }
    for (running, code) in [(&mut served, 0), (&mut worker, 143), (&mut whole, 0)] {
        running.until_printed("it says so", |said| said.contains("the database is available"));
        running.signal(Signal::TERM);
        let mut ended = None;
        eventually("it ends", || {
            ended = running.code();
            ended.is_some()
        });
        assert_eq!(ended, Some(code));
    }
    gateway.assert_each_once(20);
    assert_eq!(scratch.checked_status(Some("c"))["sent"], 20);
}

#[test]
fn services_wait_for_a_locked_sqlite_file() {
    waits_for_database_that_comes_later(Kind::Sqlite);
}

#[test]
fn services_wait_for_postgres_that_comes_later() {
    waits_for_database_that_comes_later(Kind::Postgres);
}

#[test]
fn services_wait_for_mariadb_that_comes_later() {
    waits_for_database_that_comes_later(Kind::Mysql);
}

/// What another start would not change ends a service at once.
#[test]
fn services_end_where_waiting_does_not_help() {
    let gateway = Practice::start(SandboxConfig::default());
    let fails = |url: &str, reason: &str| {
        let scratch = gateway.with_references("").at(url).scratch();
        for line in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["serve", "--send", "--listen", "127.0.0.1:0"],
            &["send", "--follow"],
        ] {
            let ran = scratch.run(line.iter().copied());
            assert_eq!(ran.code(), Some(2), "{url}: {ran}");
            assert!(!ran.stderr().contains("waiting"), "{url}: {ran}");
            assert!(ran.stderr().contains(reason), "{url}: {ran}");
        }
    };
    fails("sqlite://no/folder.db", "folder");
    fails("postgres:/x", "");
    fails("oracle://smsq@127.0.0.1/x", "unknown kind of database");
    for kind in [Kind::Postgres, Kind::Mysql] {
        if let Some(db) = Database::if_there(kind) {
            fails(&db.url_for("stranger:wrong"), "stranger");
            fails(&format!("{}_unknown", db.url), "_unknown");
        }
    }
}
