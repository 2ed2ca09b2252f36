//! Messages in doubt, and a provider that forgets references: no one gets a second text, however long a message waits
//! between two attempts. The checks find a sender that sends it all the same.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq_store::report::Totals;
use smsq_store::testing::server_databases;

use super::Simulation;
use super::provider::{Faults, SimProvider};
use crate::OnUnknown;

/// For how long the provider remembers a reference.
const REMEMBERS: Duration = Duration::from_secs(60);
/// On average, between 0.5 and 1.5 times as long. A request times out after 10 seconds.
const LATENCY: Duration = Duration::from_secs(6);

/// A provider that loses many answers, and that takes a request at any time until it would time out.
fn forgetful(seed: u64) -> SimProvider {
    let faults = Faults { answer_lost: 0.3, request_lost: 0.1, ..Faults::default() };
    let mut world = SimProvider::new(seed, faults);
    world.honours_reference = true;
    world.remembers = REMEMBERS;
    world.latency = LATENCY;
    world
}

/// Workers that are killed, with pauses before the next one that are longer than the memory of the provider; the last
/// one works until the end.
async fn play(mut simulation: Simulation, seed: u64, on_unknown: OnUnknown) -> Simulation {
    simulation.settings.sender.on_unknown = on_unknown;
    // With these waits, what is resent until it succeeds is resent for longer than that, too.
    simulation.settings.retry.max_attempts = 0;
    simulation.settings.retry.first_wait = Duration::from_secs(20);
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..2 {
        let life = Duration::from_millis(random.random_range(2_000..9_000));
        simulation.work(Some(life)).await;
        let pause = random.random_range(0..2) * 90 + 1;
        tokio::time::sleep(Duration::from_secs(pause)).await;
    }
    simulation.work(None).await;
    simulation
}

fn assert_settled(seed: u64, totals: &Totals) {
    assert_eq!(totals.queued + totals.sending, 0, "{seed}: {totals:?}");
    assert_eq!(totals.failed, 0, "{seed}: {totals:?}");
}

#[tokio::test(start_paused = true)]
async fn message_in_doubt_is_not_resent_to_a_provider_that_forgot_it() {
    let mut unknown = 0;
    for seed in 0..4 {
        let simulation = Simulation::new(forgetful(seed), "30/s", 200).await;
        let simulation = play(simulation, seed, OnUnknown::Hold).await;
        let totals = simulation.check().await;
        assert_settled(seed, &totals);
        unknown += totals.unknown;
    }
    assert!(unknown > 0, "some were in doubt for longer");
}

#[tokio::test(start_paused = true)]
async fn message_in_doubt_is_not_resent_on_servers() {
    for url in server_databases().await {
        let simulation = Simulation::new_on(&url, forgetful(9), "30/s", 100).await;
        let simulation = play(simulation, 9, OnUnknown::Hold).await;
        assert_settled(9, &simulation.check().await);
    }
}

#[tokio::test(start_paused = true)]
async fn checks_find_a_sender_that_resends_after_the_span() {
    // The same without the check: the operator takes the risk.
    let mut twice = 0;
    for seed in 0..4 {
        let simulation = Simulation::new(forgetful(seed), "30/s", 200).await;
        let simulation = play(simulation, seed, OnUnknown::Resend).await;
        twice += simulation.texted_twice().await;
    }
    assert!(twice > 0, "no message was sent twice");
}
