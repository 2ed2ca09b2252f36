//! Claims and settlements per second at several concurrencies: each transaction settles the messages that the one
//! before it claimed, and claims as many again.

use std::time::{Duration, Instant};

use crate::database::Database;
use crate::engine::Engine;
use crate::numbers::{per_second, say};

const CONCURRENCY: [u32; 3] = [1, 8, 64];
const MESSAGES: u64 = 100_000;
const SPAN: Duration = Duration::from_secs(5);

pub(crate) async fn rates(engine: Engine) -> anyhow::Result<Vec<String>> {
    say(&format!("claims and settlements on {}", engine.name()));
    let mut rates = Vec::new();
    for concurrency in CONCURRENCY {
        let database = Database::new(engine).await?;
        let now = database.store.now().await?;
        database.fill(MESSAGES, now).await?;
        let mut claimed = database.round(Vec::new(), concurrency).await?;
        let mut settled = 0;
        let began = Instant::now();
        while began.elapsed() < SPAN && !claimed.is_empty() {
            settled += claimed.len();
            claimed = database.round(claimed, concurrency).await?;
        }
        let settled = f64::from(u32::try_from(settled)?);
        rates.push(per_second(settled / began.elapsed().as_secs_f64()));
    }
    Ok(rates)
}
