//! Several messages in one request: each message ends in one table whatever the outcome of the request, and the
//! limit counts messages.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::provider::{Faults, SimProvider};
use super::{LONGEST, Simulation};
use crate::Ended;

fn world(seed: u64, max_batch: usize, faults: Faults) -> SimProvider {
    let mut world = SimProvider::new(seed, faults);
    world.max_batch = max_batch;
    world
}

fn some_of_everything() -> Faults {
    Faults {
        cut_short: 0.03,
        one_rejected: 0.01,
        one_unavailable: 0.02,
        ..Faults::some_of_everything()
    }
}

#[tokio::test(start_paused = true)]
async fn batches_send_no_message_twice_under_any_fault() {
    for seed in 0..12 {
        let mut random = StdRng::seed_from_u64(seed);
        let kills = random.random_range(0..4);
        let mut world = world(seed, 100, some_of_everything());
        if kills > 0 {
            // A killed worker may not have stored the pause that the provider asked for.
            world.faults.throttled = 0.0;
        }
        if seed % 2 == 0 {
            // A message in doubt that is then rejected stays unknown: only the other half of the seeds has that.
            world.honours_reference = true;
            world.faults.rejected = 0.0;
            world.faults.one_rejected = 0.0;
        }
        let rate = ["", "400/s", "4000/min"][usize::try_from(seed % 3).expect("small")];
        let simulation = Simulation::new(world, rate, 1_500).await;
        for _ in 0..kills {
            let life = Duration::from_millis(random.random_range(1..2_000));
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
        assert!(simulation.world.calls() < simulation.world.starts(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn workers_fill_batches_within_one_limit() {
    for seed in 0..4 {
        let world = world(seed, 50, Faults::default());
        let simulation = Simulation::new(world, "800/s", 3_000).await;
        tokio::join!(
            simulation.work(None),
            simulation.work(None),
            simulation.work(Some(Duration::from_millis(700))),
        );
        let totals = simulation.check().await;
        assert_eq!(totals.sent + totals.unknown, 3_000, "{totals:?}");
        // In flight at the killed worker: 16 requests of at most a 40th of the limit.
        assert!(totals.unknown <= 16 * 20, "{totals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_use_95_percent_of_a_limit_in_few_requests() {
    for (rate, count, most) in
        [("20/s", 200, 1), ("100/s", 1_000, 2), ("3000/s", 40_000, 75), ("600/min", 2_000, 15)]
    {
        let simulation = Simulation::new(world(1, 100, Faults::default()), rate, count).await;
        simulation.work(None).await;
        let totals = simulation.check().await;
        assert_eq!(totals.sent, count as u64);
        let started = u32::try_from(count).expect("some thousands");
        // The last request counts at its start, so it does not fill the span.
        let last = u32::try_from(most).expect("small");
        let allowed = simulation.rate.0[0].per_second() * simulation.world.span().as_secs_f64();
        let used = f64::from(started - last) / allowed;
        assert!(used >= 0.95, "{rate}: {used}");
        let calls = simulation.world.calls();
        assert!(calls >= count / most, "{rate}: {calls} calls");
        assert!(calls <= count / most * 5 / 4 + 20, "{rate}: {calls} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_are_full_without_a_limit() {
    let simulation = Simulation::new(world(2, 100, Faults::default()), "", 20_000).await;
    simulation.work(None).await;
    assert_eq!(simulation.check().await.sent, 20_000);
    let calls = simulation.world.calls();
    assert!(calls < 20_000 / 100 * 3, "{calls} calls");
}

#[tokio::test(start_paused = true)]
async fn outage_costs_no_attempts_of_batched_messages() {
    let mut world = world(3, 100, Faults::default());
    world.outage = Some((Duration::from_secs(1), Duration::from_secs(3_600)));
    let mut simulation = Simulation::new(world, "1000/s", 3_000).await;
    simulation.settings.retry.max_attempts = 2;
    let summary = simulation.work(None).await.expect("it ends");
    let totals = simulation.check().await;
    assert_eq!((summary.ended, totals.sent), (Ended::Done, 3_000), "{totals:?}");
    assert_eq!(simulation.attempts_in_ledger().await, 3_000);
    let probes = summary.attempts - 3_000;
    // One message each, except in the requests that opened the circuit breaker.
    assert!(probes <= 3_600 / 15 + 30 + 21 * 31, "{probes} probes");
}

#[tokio::test(start_paused = true)]
async fn rejected_batch_fails_only_the_bad_message() {
    let faults = Faults { rejected: 0.2, ..Faults::default() };
    let mut simulation = Simulation::new(world(4, 100, faults), "", 5_000).await;
    // Also if every message has only one attempt and the campaign is not paused.
    simulation.settings.retry.max_attempts = 1;
    simulation.settings.auto_pause.rejected = 0;
    let summary = simulation.work(None).await.expect("it ends");
    let totals = simulation.check().await;
    assert_eq!(summary.ended, Ended::Done);
    assert_eq!(totals.sent + totals.failed, 5_000, "{totals:?}");
    // Failed messages were rejected alone: a fifth of those whose batch was rejected, which is a fifth of all requests.
    assert!((1..500).contains(&totals.failed), "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn unproven_campaign_sends_few_messages_at_once() {
    let faults = Faults { one_rejected: 1.0, ..Faults::default() };
    let simulation = Simulation::new(world(5, 100, faults), "", 3_000).await;
    let summary = simulation.work(None).await.expect("it ends");
    let totals = simulation.check().await;
    assert!(matches!(summary.ended, Ended::Halted(_)), "{summary:?}");
    assert!(totals.failed < 50 + 16, "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn refused_account_stops_a_campaign_of_batches() {
    let faults = Faults { refused: 1.0, ..Faults::default() };
    let simulation = Simulation::new(world(6, 100, faults), "", 500).await;
    let summary = simulation.work(None).await.expect("it ends");
    let totals = simulation.check().await;
    assert!(matches!(summary.ended, Ended::Halted(_)), "{summary:?}");
    assert_eq!(totals.queued, 500, "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn run_of_batches_ends_at_its_message_limit() {
    for limit in [1, 30, 333] {
        let mut simulation = Simulation::new(world(7, 100, Faults::default()), "", 1_000).await;
        simulation.settings.limit = Some(limit);
        let summary = simulation.work(Some(LONGEST)).await.expect("it ends");
        assert_eq!((summary.ended, summary.sent), (Ended::Limit, limit));
        assert_eq!(simulation.check().await.queued, 1_000 - limit);
    }
}
