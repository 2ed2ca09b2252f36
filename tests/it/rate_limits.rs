//! Rate limits across processes and restarts, checked in the gateway's arrival log. How much of a limit is used
//! depends on the machine and is not checked.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use smsq_sandbox::{FaultRate, Faults, SandboxConfig};

use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::practice::{Practice, Setup, list, with_faults};
use crate::support::running::{Running, until_unchanged};
use crate::support::shell::sqlite;
use crate::support::tls::TlsFront;

const SEND: [&str; 2] = ["send", "--quiet"];

/// Watches how long this machine lets a thread wait that wants to run: so much later than its start
/// may a request arrive, which moves it into another second.
struct Stalls {
    worst_ms: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stalls {
    fn watch() -> Self {
        const NAP: Duration = Duration::from_millis(5);
        let worst_ms = Arc::new(AtomicU64::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let (worst, ended) = (Arc::clone(&worst_ms), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                // How late the nap ends is measured.
                std::thread::sleep(NAP);
                let late = began.elapsed().saturating_sub(NAP).as_millis();
                worst.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self { worst_ms, over, thread: Some(thread) }
    }

    /// The most arrivals in a second that are within the limit.
    fn allow(&self, limit: u64) -> u64 {
        let worst_ms = self.worst_ms.load(Ordering::Relaxed);
        limit + 5 + (limit * 2 * worst_ms).div_ceil(1_000)
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic here has nothing to do with the test.
            let _ = thread.join();
        }
    }
}

/// Neither a second of the arrival log nor the whole of it was faster than the limit.
fn assert_kept(gateway: &Practice, stalls: &Stalls, limit: u64) {
    let stats = gateway.stats();
    let allowed = stalls.allow(limit);
    assert!(stats.max_in_any_second <= allowed, "{stats:?}, {allowed} are allowed");
    let messages = gateway.messages();
    let span_ms = match (messages.first(), messages.last()) {
        (Some(first), Some(last)) => last.at_ms - first.at_ms,
        _ => 0,
    };
    let late = allowed - limit + 1;
    let least_ms = (stats.accepted.saturating_sub(late)) * 1_000 / limit;
    assert!(span_ms >= least_ms, "{span_ms} ms for {stats:?}, {least_ms} at least");
}

#[test]
fn rate_limit_holds_across_restarts() {
    let stalls = Stalls::watch();
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("rate = \"50/s\"").imported(&list(160));
    let mut sending = scratch.start(SEND);
    assert!(sending.until("a second's worth", || gateway.accepted() >= 50));
    sending.signal(Signal::TERM);
    sending.ended().assert_code(143);
    let mut sending = scratch.start(SEND);
    assert!(sending.until("another second's worth", || gateway.accepted() >= 100));
    sending.kill();
    scratch.run(SEND).assert_code(0);
    gateway.assert_each_once(160);
    assert_kept(&gateway, &stalls, 50);
}

#[test]
fn two_processes_share_a_limit_when_one_is_killed() {
    let stalls = Stalls::watch();
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("rate = \"20/s\"").imported(&list(70));
    let one = scratch.start(SEND);
    let mut other = scratch.start(SEND);
    assert!(other.until("a second's worth", || gateway.accepted() >= 25));
    other.kill();
    scratch.run(SEND).assert_code(0);
    one.ended().assert_code(0);
    gateway.assert_each_once(70);
    assert_kept(&gateway, &stalls, 20);
}

#[test]
fn two_workers_share_a_limit_on_every_database() {
    with_every_database(|db| {
        let stalls = Stalls::watch();
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.with_references("rate = \"100/s\"").at(&db.url).imported(&list(350));
        for ran in [scratch.start(SEND), scratch.start(SEND)].map(Running::ended) {
            assert_eq!(ran.code(), Some(0), "{ran}");
        }
        gateway.assert_each_once(350);
        assert_kept(&gateway, &stalls, 100);
        assert_eq!(scratch.checked_status(Some("c"))["sent"], 350);
    });
}

#[test]
fn new_limit_reaches_a_running_worker() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.with_references("").imported(&list(2_000));
    let set = |rate| {
        scratch.run(["set", "--campaign", "c", "--rate", rate]).assert_code(0);
    };
    set("200/s");
    let mut sending = scratch.start(SEND);
    assert!(sending.until("some are sent", || gateway.accepted() >= 20));
    set("1/s");
    until_unchanged("it waits between two", Duration::from_millis(600), || gateway.accepted());
    let slow = gateway.accepted();
    assert!(slow < 2_000);
    set("1000/s");
    let began = Instant::now();
    assert!(sending.until("it sends fast again", || gateway.accepted() >= slow + 100));
    assert!(began.elapsed() < Duration::from_secs(30), "the old limit still held");
    sending.signal(Signal::INT);
    assert_eq!(sending.ended().code(), Some(130));
}

#[test]
fn nothing_is_sent_before_retry_after() {
    let stalls = Stalls::watch();
    let gateway = Practice::start(with_faults(Faults {
        throttle: NonZeroU64::new(40).map_or(FaultRate::None, FaultRate::Every),
        retry_after: Some(Duration::from_secs(2)),
        ..Faults::default()
    }));
    let scratch = gateway.with_references("").imported(&list(60));
    scratch.run(["send", "--quiet", "--concurrency", "4"]).assert_code(0);
    gateway.assert_each_once(60);
    let messages = gateway.messages();
    let silence = messages.windows(2).map(|two| two[1].at_ms - two[0].at_ms).max();
    // Requests in flight when the response came may arrive as late as the machine stalls.
    let in_flight = 100 + 2 * stalls.worst_ms.load(Ordering::Relaxed);
    assert!(silence.is_some_and(|silence| silence + in_flight >= 2_000), "{silence:?} ms");
    assert_eq!(sqlite(&scratch, "SELECT max(attempts) FROM sms_sent"), "1");
}

#[test]
fn throttled_message_shows_its_next_attempt() {
    let gateway = Practice::start(with_faults(Faults {
        throttle: NonZeroU64::new(5).map_or(FaultRate::None, FaultRate::Every),
        retry_after: Some(Duration::from_secs(3)),
        ..Faults::default()
    }));
    let scratch = gateway.with_references("").imported(&list(6));
    let ran = scratch.run(["send", "-v", "--concurrency", "1"]).assert_code(0);
    let output = ran.to_string();
    let mut waits = output
        .split("will be tried again in ")
        .skip(1)
        .map(|rest| rest.split(' ').next().and_then(|wait| wait.parse().ok()));
    let wait: f32 = waits.next().flatten().expect("one was throttled");
    assert!(wait > 2.0, "{ran}");
}

#[test]
fn throttling_by_the_gateway_counts_no_attempt() {
    let gateway =
        Practice::start(SandboxConfig { limit: NonZeroU32::new(20), ..SandboxConfig::default() });
    let scratch = gateway.with_references("").imported(&list(50));
    scratch.run(SEND).assert_code(0);
    gateway.assert_each_once(50);
    assert!(gateway.requests() > 50, "it was never over the limit");
    assert_eq!(sqlite(&scratch, "SELECT max(attempts) FROM sms_sent"), "1");
}

#[test]
fn slow_limit_is_used_from_the_start() {
    for (rate, messages) in [("1/min", 1), ("3/hour", 3)] {
        let gateway = Practice::start(SandboxConfig::default());
        let scratch = gateway.with_references(&format!("rate = \"{rate}\"")).imported(&list(10));
        let began = Instant::now();
        let mut sending = scratch.start(SEND);
        assert!(sending.until("all that the limit allows", || gateway.accepted() == messages));
        assert!(began.elapsed() < Duration::from_secs(30), "time was wasted");
        sending.signal(Signal::INT);
        assert_eq!(sending.ended().code(), Some(130));
        gateway.assert_each_once(messages);
    }
}

#[test]
fn slow_handshakes_neither_exceed_the_limit_nor_starve_sending() {
    let stalls = Stalls::watch();
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    // All connections of two seconds are accepted at one instant.
    let front = TlsFront::start(&scratch, &gateway, Duration::from_secs(2));
    Setup::with_references_at(&front.url(), "rate = \"20/s\"\ntimeout = \"10s\"")
        .configure(&scratch);
    scratch.import(&list(60));
    scratch.start(SEND).ended().assert_code(0);
    gateway.assert_each_once(60);
    assert_kept(&gateway, &stalls, 20);
    assert_eq!(sqlite(&scratch, "SELECT max(attempts) FROM sms_sent"), "1");
}

#[test]
fn slow_handshakes_do_not_exceed_a_campaign_limit() {
    let stalls = Stalls::watch();
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    let front = TlsFront::start(&scratch, &gateway, Duration::from_secs(1));
    Setup::with_references_at(&front.url(), "timeout = \"10s\"").configure(&scratch);
    scratch.import(&list(40));
    let line = ["set", "--campaign", "c", "--rate", "20/s"];
    scratch.run(line).assert_code(0);
    scratch.start(SEND).ended().assert_code(0);
    gateway.assert_each_once(40);
    assert_kept(&gateway, &stalls, 20);
}

#[test]
fn message_that_expires_while_connecting_is_not_sent() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = Scratch::new();
    let front = TlsFront::start(&scratch, &gateway, Duration::from_secs(3));
    Setup::with_references_at(&front.url(), "timeout = \"10s\"").configure(&scratch);
    scratch.write("list.csv", &list(5));
    let line = "import list.csv --text Hello --campaign c --expires +1s";
    scratch.run(line.split(' ')).assert_code(0);
    scratch.start(SEND).ended().assert_code(1);
    let arrived = gateway.requests();
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["sent"], arrived, "{status}");
    assert_eq!(status["failed"], 5 - arrived, "{status}");
    // Only messages that were connected within their second may have arrived.
    let late = gateway.messages().into_iter().filter(|entry| entry.at_ms > 1_500);
    assert_eq!(late.count(), 0);
}

#[test]
fn claimed_messages_are_released_when_provider_stops() {
    with_every_database(|db| {
        let gateway = Practice::start(SandboxConfig {
            latency: Duration::from_millis(300),
            faults: Faults {
                throttle: NonZeroU64::new(10).map_or(FaultRate::None, FaultRate::Every),
                retry_after: Some(Duration::from_secs(86_400)),
                ..Faults::default()
            },
            ..SandboxConfig::default()
        });
        let scratch = gateway.with_references("rate = \"100/s\"").at(&db.url).imported(&list(200));
        let mut sending = scratch.start(SEND);
        // The permits of claimed messages expire while the process is stopped; then the provider asks for a long
        // wait.
        assert!(sending.until("some were sent", || gateway.requests() >= 10));
        sending.freeze();
        until_unchanged("all are answered", Duration::from_millis(600), || gateway.requests());
        sending.signal(Signal::CONT);
        let status = || scratch.run(["status", "--format", "json"]).json();
        assert!(sending.until("the provider is paused", || {
            status()["stops"][0]["provider"] == "practice"
        }));
        assert!(sending.until("nothing stays claimed", || status()["sending"] == 0));
        let status = status();
        assert_eq!(status["unknown"], 0, "{status}");
        sending.signal(Signal::TERM);
        assert_eq!(sending.ended().code(), Some(143));
    });
}

#[test]
fn retry_after_is_cut_shown_and_lifted() {
    with_every_database(|db| {
        let gateway = Practice::start(with_faults(Faults {
            throttle: NonZeroU64::new(1).map_or(FaultRate::None, FaultRate::Every),
            retry_after: Some(Duration::from_secs(86_400)),
            ..Faults::default()
        }));
        let scratch = gateway.with_references("").at(&db.url).imported(&list(3));
        for _ in 0..2 {
            let ran = scratch.start(["send", "--no-wait"]).ended().assert_code(3);
            assert!(ran.stderr().contains("as `practice` asked"), "{ran}");
        }
        assert!(gateway.requests() <= 3);
        let now = jiff::Timestamp::now();
        let status = scratch.run(["status", "--format", "json"]).json();
        let until = status["stops"][0]["until"].as_str().expect("an instant");
        let until: jiff::Timestamp = until.parse().expect("an instant");
        let left = until.duration_since(now).as_secs();
        assert!((1..=3_700).contains(&left), "{left} s, but an hour is the most");
        let ran = scratch.run(["status"]);
        assert!(ran.stdout().contains("smsq providers resume practice"), "{ran}");
        // A later worker that waits prints why.
        let mut sending = scratch.start(["send"]);
        sending.until_printed("why it waits", |output| {
            output.contains("`practice` asked to slow down")
        });
        let willing = Practice::start(SandboxConfig::default());
        sending.signal(Signal::TERM);
        assert_eq!(sending.ended().code(), Some(143));
        willing.with_references("").configure(&scratch);
        let sending = scratch.start(["send"]);
        scratch.run(["providers", "resume", "practice"]).assert_code(0);
        sending.ended().assert_code(0);
        willing.assert_each_once(3);
    });
}
