//! The cost of a suppression list of six million phones: loading it, and checking every message at import and at
//! claim, compared with an empty list.

use std::time::Instant;

use smsq_store::Audited;

use crate::database::Database;
use crate::engine::Engine;
use crate::numbers::{median, per_second, say};

const SUPPRESSED: u64 = 6_000_000;
/// Phones of one transaction, as `smsq suppress import` has them.
const BATCH: u64 = 20_000;
/// Messages of one import.
const MESSAGES: u64 = 50_000;
const CLAIM: u32 = 64;
const CLAIMS: u32 = 150;
/// The measurements alternate, so that a slow phase of the machine affects both.
const TURNS: usize = 7;

pub(crate) async fn costs(engine: Engine) -> anyhow::Result<Vec<String>> {
    say(&format!("suppression on {}", engine.name()));
    let (listed, empty) = (Database::new(engine).await?, Database::new(engine).await?);
    let began = Instant::now();
    load(&listed).await?;
    let loading = began.elapsed().as_secs_f64();
    let (mut imports, mut claims) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        // The order alternates, too.
        let (one, other) = if turn % 2 == 0 { (&listed, &empty) } else { (&empty, &listed) };
        let (first, second) = (import(one).await?, import(other).await?);
        let (here, there) = (claim(one).await?, claim(other).await?);
        let of_listed = |first: f64, second: f64| {
            if turn % 2 == 0 { first / second } else { second / first }
        };
        imports.push(of_listed(first, second));
        claims.push(of_listed(here, there));
    }
    let (imports, claims) = (median(imports), median(claims));
    say(&format!("  {}: {imports:.2} at import, {claims:.2} at claim", engine.name()));
    Ok(vec![
        format!("{loading:.0} s"),
        per_second(f64::from(u32::try_from(SUPPRESSED)?) / loading),
        format!("{imports:.2}"),
        format!("{claims:.2}"),
    ])
}

/// Loads phones of no recipient, spread over all numbers with a prefix.
async fn load(database: &Database) -> anyhow::Result<()> {
    let now = database.store.now().await?;
    for first in (0..SUPPRESSED).step_by(usize::try_from(BATCH)?) {
        let phones = (first..first + BATCH).map(|index| {
            // Coprime to the count of numbers, so that no number occurs twice.
            let number = index * 7_368_787 % 100_000_000;
            (format!("+86139{number:08}"), None)
        });
        database.store.suppression().add(phones.collect(), now, &mut Audited::unrecorded()).await?;
    }
    Ok(())
}

/// Seconds that an import takes.
async fn import(database: &Database) -> anyhow::Result<f64> {
    let now = database.store.now().await?;
    let began = Instant::now();
    database.fill(MESSAGES, now).await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Seconds that claims take, each in its own transaction. The claimed messages are settled between them.
async fn claim(database: &Database) -> anyhow::Result<f64> {
    let mut seconds = 0.0;
    for _ in 0..CLAIMS {
        let began = Instant::now();
        let claimed = database.round(Vec::new(), CLAIM).await?;
        seconds += began.elapsed().as_secs_f64();
        anyhow::ensure!(claimed.len() == CLAIM as usize, "the queue is empty");
        database.round(claimed, 0).await?;
    }
    Ok(seconds)
}
