//! Claims and settlements per second at several concurrencies: each transaction settles the messages that the one
//! before it claimed, claims as many again, and counts itself as those of workers do. Slices without the count alternate
//! with them, and show what it costs.

use std::time::{Duration, Instant};

use smsq::queue::ClaimedSms;

use crate::database::Database;
use crate::engine::Engine;
use crate::numbers::{per_second, say};

const CONCURRENCY: [u32; 3] = [1, 8, 64];
const MESSAGES: u64 = 400_000;
/// Slices of each kind, and how long one takes.
const SLICES: u32 = 40;
const SLICE: Duration = Duration::from_millis(250);

/// The rates at each concurrency, and their ratio to those without the count.
pub(crate) async fn rates(engine: Engine) -> anyhow::Result<Vec<String>> {
    say(&format!("claims and settlements on {}", engine.name()));
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for concurrency in CONCURRENCY {
        let mut database = Database::new(engine).await?;
        let now = database.store.now().await?;
        database.fill(MESSAGES, now).await?;
        let mut claimed = database.round(Vec::new(), concurrency).await?;
        let (mut counted, mut uncounted) = (Sum::default(), Sum::default());
        for _ in 0..SLICES {
            claimed = uncounted
                .slice(&mut database, claimed, concurrency, false)
                .await?;
            claimed = counted
                .slice(&mut database, claimed, concurrency, true)
                .await?;
        }
        rates.push(per_second(counted.per_second()));
        ratios.push(format!(
            "{:.2}",
            counted.per_second() / uncounted.per_second()
        ));
    }
    rates.push(ratios.join(", "));
    Ok(rates)
}

/// Messages that were settled, in all slices of one kind.
#[derive(Default)]
struct Sum {
    settled: usize,
    elapsed: Duration,
}

impl Sum {
    async fn slice(
        &mut self,
        database: &mut Database,
        mut claimed: Vec<ClaimedSms>,
        concurrency: u32,
        is_counted: bool,
    ) -> anyhow::Result<Vec<ClaimedSms>> {
        let began = Instant::now();
        while began.elapsed() < SLICE && !claimed.is_empty() {
            self.settled += claimed.len();
            claimed = if is_counted {
                database.counted_round(claimed, concurrency).await?
            } else {
                database.round(claimed, concurrency).await?
            };
        }
        self.elapsed += began.elapsed();
        Ok(claimed)
    }

    fn per_second(&self) -> f64 {
        let settled = u32::try_from(self.settled).expect("fewer than were queued");
        f64::from(settled) / self.elapsed.as_secs_f64()
    }
}
