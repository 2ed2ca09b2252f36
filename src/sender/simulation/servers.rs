//! The simulation on PostgreSQL and MariaDB, with fewer seeds. Simulated time stops while a server works.

use std::time::Duration;

use smsq_store::testing::server_databases;

use super::Simulation;
use super::provider::{Faults, SimProvider};
use crate::Ended;

#[tokio::test(start_paused = true)]
async fn servers_lose_and_repeat_no_message_under_any_fault() {
    for seed in 100..102 {
        for url in server_databases().await {
            let mut world = SimProvider::new(seed, Faults::some_of_everything());
            world.honours_reference = seed % 2 == 0;
            if world.honours_reference {
                world.faults.rejected = 0.0;
            }
            let simulation = Simulation::new_on(&url, world, "50/s", 60).await;
            simulation.work(Some(Duration::from_millis(700))).await;
            simulation.check().await;
            let summary = simulation.work(None).await.expect("it ends");
            let totals = simulation.check().await;
            assert_eq!(summary.ended, Ended::Done, "seed {seed}: {totals:?}");
            assert_eq!(totals.queued + totals.sending, 0, "seed {seed}: {totals:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn workers_on_a_server_share_a_limit_and_no_message() {
    for url in server_databases().await {
        let world = SimProvider::new(7, Faults::default());
        let simulation = Simulation::new_on(&url, world, "40/s", 80).await;
        tokio::join!(
            simulation.work(None),
            simulation.work(None),
            simulation.work(Some(Duration::from_millis(700))),
        );
        let totals = simulation.check().await;
        assert_eq!(totals.sent + totals.unknown, 80, "{totals:?}");
        assert!(totals.unknown <= 16, "{totals:?}");
    }
}
