//! Claims and settlements per second at several concurrencies: each transaction settles the messages that the one
//! before it claimed, claims as many again, and counts itself as those of workers do. Slices without the count alternate
//! with them, and show what it costs: the median of the ratios of neighbours.

use std::time::{Duration, Instant};

use smsq_lifecycle::ClaimedSms;

use crate::database::Database;
use crate::engine::Engine;
use crate::numbers::{median, per_second, say};

/// Concurrencies, and more messages than are sent at each.
const CONCURRENCY: [(u32, u64); 3] = [(1, 150_000), (8, 600_000), (64, 1_500_000)];
/// Pairs of a slice with the count and one without it, and how long a slice takes.
const PAIRS: usize = 60;
const SLICE: Duration = Duration::from_millis(250);

/// The rates at each concurrency, and their ratio to those without the count.
pub(crate) async fn rates(engine: Engine) -> anyhow::Result<Vec<String>> {
    say(&format!("claims and settlements on {}", engine.name()));
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for (concurrency, messages) in CONCURRENCY {
        let mut database = Database::new(engine).await?;
        let now = database.store.now().await?;
        database.fill(messages, now).await?;
        let mut claimed = database.round(Vec::new(), concurrency).await?;
        let (mut counted, mut of_pairs) = (Vec::new(), Vec::new());
        for pair in 0..PAIRS {
            let mut of_pair = [0.0; 2];
            // Which comes first alternates, too.
            for is_counted in [pair % 2 == 0, pair % 2 == 1] {
                let rate;
                (rate, claimed) = slice(&mut database, claimed, concurrency, is_counted).await?;
                of_pair[usize::from(is_counted)] = rate;
            }
            let [without, with] = of_pair;
            counted.push(with);
            of_pairs.push(with / without);
        }
        rates.push(per_second(median(counted)));
        ratios.push(format!("{:.3}", median(of_pairs)));
    }
    rates.push(ratios.join(", "));
    Ok(rates)
}

/// Messages per second of a slice, and what it left claimed.
async fn slice(
    database: &mut Database,
    mut claimed: Vec<ClaimedSms>,
    concurrency: u32,
    is_counted: bool,
) -> anyhow::Result<(f64, Vec<ClaimedSms>)> {
    let began = Instant::now();
    let mut settled = 0;
    while began.elapsed() < SLICE {
        anyhow::ensure!(!claimed.is_empty(), "the queue is too short");
        settled += claimed.len();
        claimed = if is_counted {
            database.counted_round(claimed, concurrency).await?
        } else {
            database.round(claimed, concurrency).await?
        };
    }
    let settled = u32::try_from(settled)?;
    Ok((f64::from(settled) / began.elapsed().as_secs_f64(), claimed))
}
