//! Sender processes on servers: one of several is killed, the server ends their sessions repeatedly, and passwords are
//! never printed.

use std::time::Duration;

use rustix::process::Signal;
use smsq_sandbox::SandboxConfig;

use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::practice::{Practice, joined, list, reserved_list};
use crate::support::running::Running;

const SEND: [&str; 4] = ["send", "--concurrency", "8", "--quiet"];

fn latent(millis: u64) -> SandboxConfig {
    SandboxConfig { latency: Duration::from_millis(millis), ..SandboxConfig::default() }
}

fn with_every_server(test: impl Fn(&Database)) {
    with_every_database(|db| {
        if db.kind != Kind::Sqlite {
            test(db);
        }
    });
}

#[test]
fn three_workers_send_each_once_when_one_is_killed() {
    const MESSAGES: u64 = 1_200;
    with_every_database(|db| {
        let gateway = Practice::start(latent(50));
        // Slow enough that the last worker starts before all is sent.
        let scratch =
            gateway.with_references("rate = \"150/s\"").at(&db.url).imported(&list(MESSAGES));
        let mut killed = scratch.start(SEND);
        let others = [scratch.start(SEND), scratch.start(SEND)];
        let busy = "SELECT count(DISTINCT worker_id) AS value FROM sms WHERE state = 1";
        let alive = killed.until("all three send", || db.number(busy) == 3);
        assert!(alive && gateway.accepted() < MESSAGES, "it ended before");
        killed.kill();
        for ran in others.map(Running::ended) {
            assert_eq!(ran.code(), Some(0), "{ran}");
        }
        gateway.assert_each_once(MESSAGES);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], MESSAGES);
        assert_eq!(
            db.number("SELECT sum(accepted) AS value FROM sms_sent"),
            i64::try_from(MESSAGES).expect("small")
        );
    });
}

#[test]
fn campaign_ends_although_connections_are_killed() {
    const MESSAGES: u64 = 900;
    with_every_server(|db| {
        let gateway = Practice::start(latent(20));
        // The test would count a message that was sent twice.
        let scratch = gateway.without_references("timeout = \"10s\"").at(&db.url).scratch();
        // A claim with a lost answer is released within two leases.
        let toml = scratch.read("smsq.toml");
        scratch.write("smsq.toml", &format!("[sender]\nlease = \"15s\"\n{toml}"));
        scratch.import(&list(MESSAGES));
        // It is still there, whatever it has sent before a session is ended.
        let mut sending = scratch.start(["send", "--concurrency", "8", "--follow"]);
        let mut ended = 0;
        for times in 1..=9 {
            let alive = sending.until("more are sent", || gateway.accepted() >= times * 100);
            assert!(alive, "{}", sending.ended());
            ended += db.end_sessions();
        }
        assert!(ended >= 9, "{ended} sessions");
        sending.signal(Signal::TERM);
        sending.ended().assert_code(143);
        gateway.assert_each_once(MESSAGES);
        assert_eq!(gateway.requests(), MESSAGES);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], MESSAGES);
    });
}

#[test]
fn check_and_send_warn_of_unsafe_server_settings() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.with_references("").at(&db.url).imported(&list(1));
        // The test servers do not sync to disk, because their data is temporary.
        let settings: &[&str] = match db.kind {
            Kind::Sqlite => &[],
            Kind::Mysql => &["innodb_flush_log_at_trx_commit = 0"],
            Kind::Postgres => &["fsync = off", "full_page_writes = off"],
        };
        let note = ": after a crash of its host messages may be sent twice";
        let expected = format!("{}{note}", settings.join(", "));
        for command in ["check", "send"] {
            let ran = scratch.run([command]).assert_code(0);
            let said = ran.to_string();
            let times = said.matches(note).count();
            assert_eq!(times, usize::from(!settings.is_empty()), "{ran}");
            assert!(settings.is_empty() || said.contains(&expected), "{ran}");
        }
    });
}

/// The private MariaDB accepts statements of 1 MiB, the smallest default of the supported servers.
#[test]
fn rows_of_the_longest_texts_fit_into_statements() {
    const REFUSED: u64 = 40;
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.without_references("").at(&db.url).scratch();
        let note = "\u{1F4E7}".repeat(60_000 / 4);
        let phones = joined(&[list(60), reserved_list(1, REFUSED)]);
        let rows = phones.lines().skip(1).map(|phone| format!("{phone},{note}\n"));
        let rows: String = std::iter::once("phone,note\n".to_owned()).chain(rows).collect();
        scratch.write("list.csv", &rows);
        let import = ["import", "list.csv", "--text", "Hi {{ note[:10] }}", "--campaign", "c"];
        scratch.run(import).assert_code(0);
        scratch.run(SEND).assert_code(1);
        assert_eq!(gateway.accepted(), 60);
        scratch.run(["retry", "--campaign", "c"]).assert_code(0);
        let queued = scratch.checked_status(Some("c"));
        assert_eq!((&queued["sent"], &queued["queued"]), (&60.into(), &REFUSED.into()));
        scratch.run(SEND).assert_code(1);
        assert_eq!(scratch.failures("c").len() as u64, REFUSED);
        assert_eq!(gateway.accepted(), 60);
    });
}

/// A user of this database with a password, and the statements that change the password and drop the user.
fn user_of(db: &Database, password: &str) -> (String, String, String) {
    let name = db.url.rsplit_once('/').expect("a path").1;
    let user = format!("user_{name}");
    if db.kind == Kind::Mysql {
        db.run(&format!(
            "CREATE USER {user} IDENTIFIED BY '{password}'; GRANT ALL ON {name}.* TO {user}"
        ));
        let change = format!("ALTER USER {user} IDENTIFIED BY");
        let drop = format!("DROP USER {user}");
        return (user, change, drop);
    }
    db.run(&format!(
        "CREATE ROLE {user} LOGIN PASSWORD '{password}'; GRANT ALL ON SCHEMA public TO {user}"
    ));
    let change = format!("ALTER ROLE {user} PASSWORD");
    let drop = format!("REASSIGN OWNED BY {user} TO smsq; DROP OWNED BY {user}; DROP ROLE {user}");
    (user, change, drop)
}

#[test]
fn server_password_is_never_printed() {
    const PASSWORD: &str = "hunter2";
    with_every_server(|db| {
        let (user, change, drop) = user_of(db, PASSWORD);
        let gateway = Practice::start(SandboxConfig::default());
        let scratch =
            gateway.without_references("").at(&db.url_for(&format!("{user}:{PASSWORD}"))).scratch();
        let toml = scratch.read("smsq.toml");
        scratch.write("smsq.toml", &format!("[log]\nlevel = \"trace\"\n{toml}"));
        scratch.import(&list(1));
        let mut sending = scratch.start(["send", "--follow", "-v"]);
        assert!(sending.until("it sends", || gateway.accepted() == 1));

        // The password changes, and all sessions have to log in again.
        db.run(&format!("{change} 'another'"));
        assert!(db.end_sessions() > 0);
        let refused = |said: &str| {
            let said = said.to_lowercase();
            said.contains("access denied") || said.contains("authentication failed")
        };
        sending.until_printed("it is refused", refused);
        sending.signal(Signal::INT);
        let ran = sending.ended();
        assert!(!ran.to_string().contains(PASSWORD), "{ran}");
        for command in ["status", "check", "send"] {
            let ran = scratch.run([command, "-vv"]);
            assert!(refused(&ran.stderr()), "{ran}");
            assert!(!ran.to_string().contains(PASSWORD), "{ran}");
        }
        db.run(&drop);
    });
}
