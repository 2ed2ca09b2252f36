//! Status lookups of a provider that does not honour references: what was not accepted is sent again, and no one gets a
//! second text. The checks find a sender that trusts a list too early.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq_store::report::Totals;
use smsq_store::testing::server_databases;

use super::faults::DbFaults;
use super::provider::{Faults, Lookups, SimProvider};
use super::{Simulation, WorkerSpec};
use crate::Ended;

/// A provider that loses many answers, and lists a message this long after it was accepted. "Not listed" counts after
/// thirty seconds.
fn listing(seed: u64, listed_after: Duration) -> SimProvider {
    let faults = Faults { answer_lost: 0.2, request_lost: 0.1, ..Faults::default() };
    let mut world = SimProvider::new(seed, faults);
    world.lookups = Some(Lookups { listed_after, lost: 0.1, failed: 0.1, cut: 0.2 });
    world
}

/// Workers that are killed, and one that works until the end.
async fn play(simulation: &Simulation, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..2 {
        let life = Duration::from_millis(random.random_range(2_000..60_000));
        simulation.work(Some(life)).await;
    }
    simulation.work(None).await;
}

/// Nothing is left but what no list could prove.
fn assert_settled(seed: u64, simulation: &Simulation, totals: &Totals) {
    assert_eq!(totals.queued + totals.sending, 0, "{seed}: {totals:?}");
    assert_eq!(totals.failed, 0, "{seed}: {totals:?}");
    assert!(totals.unknown < totals.imported / 5, "{seed}: {totals:?}");
    assert!(simulation.world.lookups_answered() > 0, "{seed}");
    let attempts = simulation.world.starts() as u64;
    assert!(attempts > totals.imported, "{seed}: some were sent again");
}

#[tokio::test(start_paused = true)]
async fn lookups_settle_doubt_and_send_nothing_twice() {
    for seed in 0..4 {
        let world = listing(seed, Duration::from_secs(5 * seed));
        let simulation = Simulation::new(world, "30/s", 150).await;
        play(&simulation, seed).await;
        let totals = simulation.check().await;
        assert_settled(seed, &simulation, &totals);
    }
}

/// The last lookups queue messages while the worker reads whether any are left.
#[tokio::test(start_paused = true)]
async fn run_does_not_end_before_what_a_lookup_queued() {
    for seed in 0..40 {
        let simulation = Simulation::new(listing(seed, Duration::ZERO), "", 20).await;
        let slow = DbFaults { slow: Duration::from_millis(100 + seed * 17), ..DbFaults::default() };
        let worker = WorkerSpec { db_faults: Arc::new(slow), ..simulation.worker() };
        let summary = simulation.work_as(worker).await.expect("it ends");
        assert_eq!(summary.ended, Ended::Done, "{seed}");
        let totals = simulation.check().await;
        assert_eq!(totals.queued, 0, "{seed}: {totals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn run_ends_after_few_lookups_where_every_one_fails() {
    let mut world = listing(6, Duration::ZERO);
    world.lookups =
        Some(Lookups { listed_after: Duration::ZERO, lost: 0.0, failed: 1.0, cut: 0.0 });
    let simulation = Simulation::new(world, "", 20).await;
    let summary = simulation.work(None).await.expect("it ends");
    assert_eq!(summary.ended, Ended::Done);
    let totals = simulation.check().await;
    assert_eq!(totals.sent + totals.unknown, 20, "{totals:?}");
    assert!(totals.unknown > 0, "{totals:?}");
    let lookups = simulation.world.lookups_answered() as u64;
    assert!(lookups <= 5 * totals.unknown, "{lookups} lookups");
}

#[tokio::test(start_paused = true)]
async fn lookups_send_nothing_twice_on_servers() {
    for url in server_databases().await {
        let world = listing(5, Duration::from_secs(10));
        let simulation = Simulation::new_on(&url, world, "30/s", 80).await;
        play(&simulation, 5).await;
        let totals = simulation.check().await;
        assert_settled(5, &simulation, &totals);
    }
}

#[tokio::test(start_paused = true)]
async fn checks_find_a_sender_that_trusts_a_late_list() {
    // The provider lists messages after the time for which its section says that it has them.
    let mut twice = 0;
    for seed in 0..4 {
        let simulation =
            Simulation::new(listing(seed, Duration::from_secs(300)), "30/s", 150).await;
        play(&simulation, seed).await;
        twice += simulation.texted_twice().await;
    }
    assert!(twice > 0, "no message was sent twice");
}
