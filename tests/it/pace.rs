//! The limit over processes and restarts, as the gateway's arrival log shows it. How much of the limit
//! is used depends on the machine and is not looked at here.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use smsq::sandbox::{Behaviour, Faults, Share};

use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::practice::{Practice, list};
use crate::support::running::{Running, stands_still};
use crate::support::shell::sqlite;

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
                std::thread::sleep(NAP);
                let late = began.elapsed().saturating_sub(NAP).as_millis();
                worst.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self {
            worst_ms,
            over,
            thread: Some(thread),
        }
    }

    /// The most arrivals in a second that a limit may show.
    fn allow(&self, limit: u64) -> u64 {
        let worst_ms = self.worst_ms.load(Ordering::Relaxed);
        limit + 5 + (limit * 2 * worst_ms).div_ceil(1_000)
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic would be the machine's, not the test's.
            let _ = thread.join();
        }
    }
}

/// Neither a second of the arrival log nor the whole of it was faster than the limit.
fn assert_kept(gateway: &Practice, stalls: &Stalls, limit: u64) {
    let stats = gateway.stats();
    let allowed = stalls.allow(limit);
    assert!(
        stats.max_in_any_second <= allowed,
        "{stats:?}, {allowed} are allowed"
    );
    let messages = gateway.messages();
    let span_ms = match (messages.first(), messages.last()) {
        (Some(first), Some(last)) => last.at_ms - first.at_ms,
        _ => 0,
    };
    let late = allowed - limit + 1;
    let least_ms = (stats.accepted.saturating_sub(late)) * 1_000 / limit;
    assert!(
        span_ms >= least_ms,
        "{span_ms} ms for {stats:?}, {least_ms} at least"
    );
}

#[test]
fn a_limit_holds_through_restarts_gentle_and_hard() {
    let stalls = Stalls::watch();
    let gateway = Practice::start(Behaviour::default());
    let scratch = Scratch::new();
    gateway.honouring(&scratch, "rate = \"50/s\"");
    scratch.import(&list(160));
    let mut sending = scratch.start(SEND);
    assert!(sending.until("a second's worth", || gateway.accepted() >= 50));
    sending.signal(Signal::TERM);
    let ran = sending.ended();
    assert_eq!(ran.code(), Some(143), "{ran}");
    let mut sending = scratch.start(SEND);
    assert!(sending.until("another second's worth", || gateway.accepted() >= 100));
    sending.kill();
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(160);
    assert_kept(&gateway, &stalls, 50);
}

#[test]
fn two_processes_share_one_limit_and_a_killed_one_comes_back() {
    let stalls = Stalls::watch();
    let gateway = Practice::start(Behaviour::default());
    let scratch = Scratch::new();
    gateway.honouring(&scratch, "rate = \"20/s\"");
    scratch.import(&list(70));
    let one = scratch.start(SEND);
    let mut other = scratch.start(SEND);
    assert!(other.until("a second's worth", || gateway.accepted() >= 25));
    other.kill();
    let again = scratch.run(SEND);
    assert_eq!(again.code(), Some(0), "{again}");
    let ran = one.ended();
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(70);
    assert_kept(&gateway, &stalls, 20);
}

#[test]
fn two_workers_share_one_limit_at_every_database() {
    with_every_database(|db| {
        let stalls = Stalls::watch();
        let gateway = Practice::start(Behaviour::default());
        let scratch = Scratch::at(&db.url);
        gateway.honouring(&scratch, "rate = \"100/s\"");
        scratch.import(&list(350));
        for ran in [scratch.start(SEND), scratch.start(SEND)].map(Running::ended) {
            assert_eq!(ran.code(), Some(0), "{ran}");
        }
        gateway.assert_each_once(350);
        assert_kept(&gateway, &stalls, 100);
        assert_eq!(scratch.sound_standing(Some("c"))["sent"], 350);
    });
}

#[test]
fn a_new_limit_reaches_a_sender_that_runs() {
    let gateway = Practice::start(Behaviour::default());
    let scratch = Scratch::new();
    gateway.honouring(&scratch, "");
    scratch.import(&list(2_000));
    let set = |rate| {
        let ran = scratch.run(["set", "--campaign", "c", "--rate", rate]);
        assert_eq!(ran.code(), Some(0), "{ran}");
    };
    set("200/s");
    let mut sending = scratch.start(SEND);
    assert!(sending.until("some are sent", || gateway.accepted() >= 20));
    set("1/s");
    stands_still("it waits between two", Duration::from_millis(600), || {
        gateway.accepted()
    });
    let slow = gateway.accepted();
    assert!(slow < 2_000);
    set("1000/s");
    let began = Instant::now();
    assert!(sending.until("it is quick again", || gateway.accepted() >= slow + 100));
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "the old limit still held"
    );
    sending.signal(Signal::INT);
    assert_eq!(sending.ended().code(), Some(130));
}

#[test]
fn nothing_is_sent_before_the_time_that_the_gateway_asked_for() {
    let stalls = Stalls::watch();
    let gateway = Practice::start(Behaviour {
        faults: Faults {
            throttle: NonZeroU64::new(40).map_or(Share::None, Share::Every),
            retry_after: Duration::from_secs(2),
            ..Faults::default()
        },
        ..Behaviour::default()
    });
    let scratch = Scratch::new();
    gateway.honouring(&scratch, "");
    scratch.import(&list(60));
    let ran = scratch.run(["send", "--quiet", "--slots", "4"]);
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(60);
    let messages = gateway.messages();
    let silence = messages
        .windows(2)
        .map(|two| two[1].at_ms - two[0].at_ms)
        .max();
    // What was in flight when the answer came may arrive within a stall of the machine.
    let in_flight = 100 + 2 * stalls.worst_ms.load(Ordering::Relaxed);
    assert!(
        silence.is_some_and(|silence| silence + in_flight >= 2_000),
        "{silence:?} ms"
    );
    assert_eq!(sqlite(&scratch, "SELECT max(attempts) FROM sms_sent"), "1");
}

#[test]
fn a_limit_that_only_the_gateway_knows_costs_no_attempt() {
    let gateway = Practice::start(Behaviour {
        limit: NonZeroU32::new(20),
        ..Behaviour::default()
    });
    let scratch = Scratch::new();
    gateway.honouring(&scratch, "");
    scratch.import(&list(50));
    let ran = scratch.run(SEND);
    assert_eq!(ran.code(), Some(0), "{ran}");
    gateway.assert_each_once(50);
    assert!(gateway.requests() > 50, "it was never over the limit");
    assert_eq!(sqlite(&scratch, "SELECT max(attempts) FROM sms_sent"), "1");
}

#[test]
fn a_slow_limit_is_used_from_the_first_moment() {
    for (rate, messages) in [("1/min", 1), ("3/hour", 3)] {
        let gateway = Practice::start(Behaviour::default());
        let scratch = Scratch::new();
        gateway.honouring(&scratch, &format!("rate = \"{rate}\""));
        scratch.import(&list(10));
        let began = Instant::now();
        let mut sending = scratch.start(SEND);
        assert!(
            sending.until("all that the limit allows", || gateway.accepted()
                == messages)
        );
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "a moment was wasted"
        );
        sending.signal(Signal::INT);
        assert_eq!(sending.ended().code(), Some(130));
        gateway.assert_each_once(messages);
    }
}
