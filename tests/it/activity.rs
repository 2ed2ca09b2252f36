//! What a running worker publishes in the database: counts of messages, and what it does.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use smsq_sandbox::SandboxConfig;

use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::practice::{Practice, list, reserved_list};
use crate::support::running::until_unchanged;
use crate::support::shell::{Lock, sqlite};
use crate::support::waiting::eventually;

fn latent(millis: u64) -> SandboxConfig {
    SandboxConfig { latency: Duration::from_millis(millis), ..SandboxConfig::default() }
}

/// What the only worker has published.
fn doing(db: &Database) -> Option<Value> {
    let json = db.words("SELECT activity AS value FROM worker").pop()??;
    Some(serde_json::from_str(&json).expect("JSON"))
}

fn sum(db: &Database, column: &str) -> i64 {
    db.number(&format!(
        "SELECT CAST(coalesce(sum({column}), 0) AS {}) AS value FROM activity",
        match db.kind {
            Kind::Mysql => "SIGNED",
            _ => "BIGINT",
        }
    ))
}

#[test]
fn running_worker_publishes_what_it_does() {
    with_every_database(|db| {
        let gateway = Practice::start(latent(200));
        // On every machine the limit takes the most time, and the campaign does not end before it is interrupted.
        let scratch =
            gateway.without_references("rate = \"2/s\"").at(&db.url).imported(&list(2_000));
        let mut sending = scratch.start(["send", "--concurrency", "8", "--quiet"]);
        let alive = sending.until("it has published that it sends", || {
            // At first the database may take the most time.
            doing(db).is_some_and(|doing| {
                let rate = doing["rate"].as_f64();
                rate.is_some_and(|rate| rate > 0.0) && doing["bottleneck"] == "rate_limit"
            })
        });
        assert!(alive, "it ended before");
        let published = doing(db).expect("activity");
        assert_eq!(published["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(published["concurrency"], 8);
        let provider = &published["providers"][0];
        assert_eq!(provider["name"], "cellar");
        assert_eq!(provider["rate_limit"], "2/s");
        assert_eq!(provider["breaker_open"], false);
        assert!(provider["last_success_at"].is_i64(), "{published}");
        let p50 = provider["latency_ms"]["p50"].as_f64().expect("a latency");
        assert!(p50 >= 150.0, "{published}");

        sending.signal(Signal::INT);
        sending.ended().assert_code(130);
        let sent = i64::try_from(gateway.accepted()).expect("small");
        assert_eq!(sum(db, "sent"), sent);
        assert_eq!(db.number("SELECT count(*) AS value FROM worker"), 0);
        let misplaced = "SELECT count(*) AS value FROM activity WHERE at % 10000 <> 0";
        assert_eq!(db.number(misplaced), 0);
    });
}

#[test]
fn run_shorter_than_an_interval_publishes_all_counts() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.without_references("").at(&db.url).scratch();
        let rejected = reserved_list(1, 3);
        let rejected = rejected.strip_prefix("phone\n").expect("a header");
        scratch.import(&format!("{}{rejected}", list(5)));
        scratch.run(["send", "--quiet"]).assert_code(1);
        assert_eq!((sum(db, "sent"), sum(db, "failed")), (5, 3));
    });
}

#[test]
fn counts_wait_for_a_locked_database() {
    let gateway = Practice::start(latent(50));
    let scratch = gateway.without_references("").imported(&list(300));
    let sending = scratch.start(["send", "--concurrency", "8"]);
    eventually("it sends", || gateway.requests() >= 40);
    let lock = Lock::hold(&scratch);
    // Longer than the interval of publications.
    until_unchanged("nothing can be claimed", Duration::from_secs(3), || gateway.requests());
    drop(lock);
    sending.ended().assert_code(0);
    let sent = sqlite(&scratch, "SELECT sum(sent) FROM activity");
    assert_eq!(sent, "300");
}
