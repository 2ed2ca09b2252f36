//! Promises that hold under every fault.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq_store::CampaignStatus;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::{Ended, SendError, Sender};
use super::faults::DbFaults;
use super::provider::{Faults, SimProvider};
use super::{LONGEST, START, Simulation, WorkerSpec};

#[tokio::test(start_paused = true)]
async fn no_message_is_lost_or_sent_twice_under_any_fault() {
    for seed in 0..12 {
        let mut world = SimProvider::new(seed, Faults::some_of_everything());
        if seed % 2 == 0 {
            // A message in doubt that is then rejected stays unknown: only the other half of the seeds has that.
            world.honours_reference = true;
            world.faults.rejected = 0.0;
        }
        let simulation = Simulation::new(world, "50/s", 150).await;
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..random.random_range(0..4) {
            let life = Duration::from_millis(random.random_range(1..4_000));
            simulation.work(Some(life)).await;
            simulation.check().await;
        }
        let summary = simulation.work(None).await.expect("it ends");
        let totals = simulation.check().await;
        assert_eq!(summary.ended, Ended::Done, "seed {seed}");
        assert_eq!(totals.queued + totals.sending, 0, "seed {seed}: {totals:?}");
        if simulation.world.honours_reference {
            assert_eq!(totals.unknown, 0, "seed {seed}: {totals:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn workers_share_a_limit_and_no_message() {
    for seed in 0..4 {
        let world = SimProvider::new(seed, Faults::default());
        let simulation = Simulation::new(world, "40/s", 300).await;
        tokio::join!(
            simulation.work(None),
            simulation.work(None),
            simulation.work(Some(Duration::from_millis(700))),
        );
        let totals = simulation.check().await;
        assert_eq!(totals.sent + totals.unknown, 300, "{totals:?}");
        assert!(totals.unknown <= 16, "{totals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn limit_is_kept_and_used_across_restarts() {
    for rate in ["50/s", "7/s", "120/min", "3/2s"] {
        let world = SimProvider::new(1, Faults::default());
        let simulation = Simulation::new(world, rate, 200).await;
        simulation.work(Some(Duration::from_millis(1_234))).await;
        let restarted = Instant::now();
        simulation.work(None).await;
        let idle = simulation.settings.sender.lease + Duration::from_secs(5);
        simulation.check().await;
        let used = u32::try_from(simulation.world.starts()).expect("some hundreds");
        let allowed = simulation.rate.0[0].per_second() * simulation.world.span().as_secs_f64();
        assert!(f64::from(used) >= 0.95 * allowed, "{rate}: {used} of {allowed}");
        assert!(restarted.elapsed() <= simulation.world.span() + idle);
    }
}

#[tokio::test(start_paused = true)]
async fn outage_of_any_length_costs_no_attempts() {
    let mut world = SimProvider::new(3, Faults::default());
    let hours = Duration::from_secs(20 * 3_600);
    world.outage = Some((Duration::from_secs(1), hours));
    let mut simulation = Simulation::new(world, "20/s", 100).await;
    simulation.settings.retry.max_attempts = 2;
    let summary = simulation.work(None).await.expect("it ends");
    let totals = simulation.check().await;
    assert_eq!((summary.ended, totals.sent), (Ended::Done, 100), "{totals:?}");
    assert!(simulation.world.span() <= hours + Duration::from_secs(60), "it resumes at once");
    let probes = summary.attempts - 100;
    assert!(probes <= 20 * 3_600 / 15 + 30, "{probes} probes");
    assert_eq!(simulation.attempts_in_ledger().await, 100, "one for every message");
}

#[tokio::test(start_paused = true)]
async fn long_outage_stops_the_campaign_and_keeps_its_messages() {
    let mut world = SimProvider::new(4, Faults::default());
    world.outage = Some((Duration::ZERO, LONGEST));
    let simulation = Simulation::new(world, "", 50).await;
    let summary = simulation.work(None).await.expect("it ends");
    let totals = simulation.check().await;
    assert!(matches!(summary.ended, Ended::Halted(_)), "{summary:?}");
    assert_eq!(totals.queued, 50, "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn refused_account_stops_the_campaign() {
    let faults = Faults { refused: 1.0, ..Faults::default() };
    let simulation = Simulation::new(SimProvider::new(5, faults), "", 50).await;
    let summary = simulation.work(None).await.expect("it ends");
    let totals = simulation.check().await;
    let Ended::Halted(why) = summary.ended else {
        panic!("{summary:?}");
    };
    assert!(why[0].1.contains("401"), "{why:?}");
    assert_eq!(totals.queued, 50, "{totals:?}");
    let campaigns = simulation.store.campaigns().await.expect("campaigns");
    assert!(campaigns.iter().any(|campaign| campaign.state == CampaignStatus::Stopped));
}

#[tokio::test(start_paused = true)]
async fn campaign_of_rejected_numbers_is_paused() {
    let faults = Faults { rejected: 0.9, ..Faults::default() };
    let simulation = Simulation::new(SimProvider::new(6, faults), "", 1_000).await;
    let summary = simulation.work(None).await.expect("it ends");
    let totals = simulation.check().await;
    assert!(matches!(summary.ended, Ended::Halted(_)), "{summary:?}");
    assert!(totals.failed < 50 + 16, "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn throttled_provider_is_slowed_down() {
    let mut world = SimProvider::new(7, Faults::default());
    world.faults.throttled = 0.03;
    let simulation = Simulation::new(world, "50/s", 300).await;
    let summary = simulation.work(None).await.expect("it ends");
    let totals = simulation.check().await;
    assert_eq!((summary.ended, totals.sent), (Ended::Done, 300), "{totals:?}");
    assert_eq!(simulation.attempts_in_ledger().await, 300, "a throttled request is none");
}

#[tokio::test(start_paused = true)]
async fn stop_settles_running_requests_and_releases_others() {
    let world = SimProvider::new(8, Faults::default());
    let simulation = Simulation::new(world, "100/s", 400).await;
    let (stop, stopped) = watch::channel(false);
    let run = simulation.work_as(WorkerSpec { stopped, ..simulation.worker() });
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        stop.send(true).expect("somebody listens");
    };
    let (summary, ()) = tokio::join!(run, stopping);
    assert_eq!(summary.expect("it ends").ended, Ended::Stopped);
    let totals = simulation.check().await;
    assert_eq!((totals.sending, totals.unknown), (0, 0), "{totals:?}");
    assert!(totals.sent >= 100, "{totals:?}");
    simulation.work(None).await;
    assert_eq!(simulation.check().await.sent, 400);
}

#[tokio::test(start_paused = true)]
async fn expired_messages_are_not_sent() {
    let world = SimProvider::new(9, Faults::default());
    let mut simulation = Simulation::new(world, "10/s", 0).await;
    simulation.count = 100;
    simulation.import(Some(START.plus(Duration::from_secs(5)))).await;
    simulation.work(None).await;
    let totals = simulation.check().await;
    assert!((40..=52).contains(&totals.sent), "{totals:?}");
    assert_eq!(totals.failed, 100 - totals.sent);
}

#[tokio::test(start_paused = true)]
async fn run_ends_at_its_message_limit() {
    let mut simulation = Simulation::new(SimProvider::new(10, Faults::default()), "", 100).await;
    simulation.settings.limit = Some(30);
    let summary = simulation.work(None).await.expect("it ends");
    assert_eq!((summary.ended, summary.sent), (Ended::Limit, 30));
    assert_eq!(simulation.check().await.queued, 70);
}

#[tokio::test(start_paused = true)]
async fn campaign_without_provider_is_an_error() {
    let mut simulation = Simulation::new(SimProvider::new(11, Faults::default()), "", 10).await;
    simulation.settings.default_provider = None;
    let sender =
        Sender::new(simulation.store.clone(), BTreeMap::new(), simulation.settings.clone());
    let (_stop, stopped) = watch::channel(false);
    let refused = sender.run(stopped, Arc::default(), None).await;
    assert!(matches!(refused, Err(SendError::NoProvider(_))), "{refused:?}");
    assert_eq!(simulation.check().await.queued, 10);
}

/// The seconds that 3,200 messages take, 16 at once, where a request takes 80 ms and a commit 40 ms.
async fn seconds_with_slow_commits(rate: &str) -> f64 {
    let world = SimProvider::new(1, Faults::default());
    let simulation = Simulation::new(world, rate, 3_200).await;
    let slow = DbFaults { slow: Duration::from_millis(20), ..DbFaults::default() };
    let began = Instant::now();
    let worker = WorkerSpec { db_faults: Arc::new(slow), ..simulation.worker() };
    let summary = simulation.work_as(worker).await.expect("it ends");
    assert_eq!(summary.ended, Ended::Done);
    assert_eq!(simulation.check().await.sent, 3_200);
    began.elapsed().as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn requests_do_not_wait_for_commits() {
    let without_a_database = 3_200.0 / 16.0 * 0.08;
    for rate in ["", "10000/s"] {
        let seconds = seconds_with_slow_commits(rate).await;
        let part = without_a_database / seconds;
        assert!(part >= 0.9, "`{rate}`: {part} of concurrency / latency");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_claimed_ahead_are_released_at_a_stop() {
    let world = SimProvider::new(1, Faults::default());
    let simulation = Simulation::new(world, "", 2_000).await;
    let slow = DbFaults { slow: Duration::from_millis(20), ..DbFaults::default() };
    let (stop, stopped) = watch::channel(false);
    let worker = WorkerSpec { db_faults: Arc::new(slow), stopped, ..simulation.worker() };
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        stop.send_replace(true);
    };
    let (summary, ()) = tokio::join!(simulation.work_as(worker), stopping);
    assert_eq!(summary.expect("it ends").ended, Ended::Stopped);
    let totals = simulation.check().await;
    assert_eq!((totals.sending, totals.unknown), (0, 0), "{totals:?}");
    assert!(totals.queued > 0 && totals.sent > 300, "{totals:?}");
    assert_eq!(simulation.attempts_in_ledger().await, totals.sent);
}
