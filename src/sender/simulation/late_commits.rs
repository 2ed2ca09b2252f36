//! Commits that take up to three leases: what they claim is not released meanwhile, and is not started afterwards. The
//! checks find a sender that does either.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use smsq_store::testing::server_databases;

use super::faults::{DbFaults, Delays};
use super::history::Start;
use super::provider::{Faults, SimProvider};
use super::{Simulation, WorkerSpec};
use crate::{Ended, SendError};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(5);
/// How long a store waits for the answer of a server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Commits of which some begin or are answered up to three leases late.
fn late(seed: u64, lease: Duration, timeout: Option<Duration>) -> DbFaults {
    let delays = |seed| Delays {
        random: Mutex::new(StdRng::seed_from_u64(seed)),
        part: 0.15,
        span: Duration::ZERO..=lease * 3,
    };
    DbFaults {
        held_up: Some(delays(seed)),
        late: Some(delays(seed + 1_000)),
        timeout,
        ..DbFaults::default()
    }
}

/// Three workers until the end, each with its own faults.
async fn work(simulation: &Simulation, faults: impl Fn(u64) -> DbFaults) {
    let worker = |number| WorkerSpec { db_faults: Arc::new(faults(number)), ..simulation.worker() };
    let ended = tokio::join!(
        Box::pin(simulation.work_as(worker(0))),
        Box::pin(simulation.work_as(worker(1))),
        Box::pin(simulation.work_as(worker(2))),
    );
    for summary in [ended.0, ended.1, ended.2] {
        assert_eq!(summary.expect("it ends").ended, Ended::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn commits_up_to_three_leases_late_repeat_nothing() {
    for seed in 0..8 {
        let rate = if seed % 2 == 0 { "" } else { "30/s" };
        let world = SimProvider::new(seed, Faults::default());
        let mut simulation = Simulation::new(world, rate, 300).await;
        // The answer of a server is given up before three of these leases.
        let lease = if seed % 4 < 2 { LEASE } else { SECOND * 30 };
        simulation.settings.sender.lease = lease;
        let timeout = (seed < 4).then_some(SERVER_TIMEOUT);
        work(&simulation, |number| late(seed * 10 + number, lease, timeout)).await;
        let totals = simulation.check().await;
        assert_eq!((totals.sent, totals.unknown), (300, 0), "{seed}: {totals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_commits_on_servers_repeat_nothing() {
    for url in server_databases().await {
        let world = SimProvider::new(3, Faults::default());
        let mut simulation = Simulation::new_on(&url, world, "", 120).await;
        simulation.settings.sender.lease = LEASE;
        work(&simulation, |number| late(number, LEASE, Some(SERVER_TIMEOUT))).await;
        let totals = simulation.check().await;
        assert_eq!((totals.sent, totals.unknown), (120, 0), "{totals:?}");
    }
}

/// What the checks find in a sender without one of the two walls, or without both.
async fn faults_without(releases_beside_commits: bool, starts_overdue: bool) -> Vec<String> {
    let mut found = Vec::new();
    for seed in 0..4 {
        let world = SimProvider::new(seed, Faults::default());
        let mut simulation = Simulation::new(world, "", 400).await;
        simulation.settings.sender.lease = LEASE;
        work(&simulation, |number| DbFaults {
            releases_beside_commits,
            starts_overdue,
            ..late(seed * 10 + number, LEASE, None)
        })
        .await;
        found.extend(simulation.faults().await);
    }
    found
}

#[tokio::test(start_paused = true)]
async fn checks_find_a_sender_without_either_wall() {
    let has = |found: &[String], what: &str| found.iter().any(|fault| fault.contains(what));
    let (early, overdue, twice) = ("while its claim was being", "after its deadline", "was texted");
    assert_eq!(faults_without(false, false).await, Vec::<String>::new());
    let beside = faults_without(true, false).await;
    assert!(has(&beside, early) && !has(&beside, overdue), "{beside:?}");
    assert!(!has(&beside, twice), "the other wall holds: {beside:?}");
    let old = faults_without(false, true).await;
    assert!(has(&old, overdue) && !has(&old, early), "{old:?}");
    assert!(!has(&old, twice), "the other wall holds: {old:?}");
    let both = faults_without(true, true).await;
    assert!(has(&both, twice), "{both:?}");
}

#[tokio::test(start_paused = true)]
async fn commits_slower_than_half_a_lease_end_the_run() {
    let mut simulation = Simulation::new(SimProvider::new(1, Faults::default()), "", 100).await;
    simulation.settings.sender.lease = LEASE;
    let worker = WorkerSpec {
        db_faults: Arc::new(DbFaults {
            late: Some(Delays {
                random: Mutex::new(StdRng::seed_from_u64(1)),
                part: 1.0,
                span: SECOND * 3..=SECOND * 3,
            }),
            ..DbFaults::default()
        }),
        ..simulation.worker()
    };
    let ended = simulation.try_work_as(worker).await;
    let Some(Err(SendError::SlowCommits { took, within })) = ended else {
        panic!("{ended:?}");
    };
    assert!(took >= SECOND * 3 && within == LEASE / 2, "{took:?}");
    let totals = simulation.check().await;
    assert_eq!(simulation.world.starts(), 0, "{totals:?}");
    assert_eq!(totals.queued, 100, "nothing is left behind: {totals:?}");
}

/// Late answers to commits whose permits have passed meanwhile, with a limit that does not bind: as many requests wait
/// for other permits as may be in flight.
#[tokio::test(start_paused = true)]
async fn requests_with_passed_permits_soon_get_others() {
    let (mut late, mut started) = (0, 0);
    for seed in 0..4 {
        let mut world = SimProvider::new(seed, Faults::default());
        world.latency = SECOND / 5;
        let mut simulation = Simulation::new(world, "2000/s", 3_000).await;
        simulation.settings.sender.concurrency = 64;
        let worker = WorkerSpec {
            db_faults: Arc::new(DbFaults {
                slow: Duration::from_millis(10),
                late: Some(Delays {
                    random: Mutex::new(StdRng::seed_from_u64(seed)),
                    part: 0.03,
                    span: SECOND / 2..=SECOND / 2,
                }),
                ..DbFaults::default()
            }),
            ..simulation.worker()
        };
        simulation.work_as(worker).await;
        let totals = simulation.check().await;
        assert_eq!(totals.sent, 3_000, "{totals:?}");
        let history = simulation.history(totals).await;
        let of = |start: &Start| (start.sms_id, start.claim);
        let starts: HashSet<(i64, i64)> = history.starts.iter().map(of).collect();
        for claim in &history.claims {
            if claim.answered.saturating_sub(claim.began) > SECOND / 2 {
                late += 1;
                started += usize::from(starts.contains(&(claim.sms_id, claim.claim)));
            }
        }
    }
    // The others were released: their next commit was late, too, and no request waits for a second.
    assert!(late > 200, "{late}");
    assert!(started * 5 > late * 4, "{started} of {late} started");
}
