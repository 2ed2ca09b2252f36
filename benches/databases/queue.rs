//! The duration of a claim in a long queue, compared with a short one: with a million rows that are due, with a
//! million that are not due yet, after many were sent, and while another session holds an old snapshot.

use std::time::{Duration, Instant};

use crate::database::Database;
use crate::engine::Engine;
use crate::numbers::say;

const SHORT: u64 = 10_000;
const LONG: u64 = 1_000_000;
/// Rows that are sent before claims are measured.
const CHURN: u64 = 100_000;
const CLAIM: u32 = 10;
const CLAIMS: u64 = 2_000;
/// The measurements alternate, so that a slow phase of the machine affects all.
const TURNS: u64 = 100;

pub(crate) async fn prices(engine: Engine) -> anyhow::Result<Vec<Vec<String>>> {
    say(&format!("claims in a long queue on {}", engine.name()));
    let long = queue(engine, LONG, 0).await?;
    let future = queue(engine, SHORT, LONG).await?;
    let mut rows = Vec::new();
    for (what, database) in [("1,000,000 due", &long), ("1,000,000 due in an hour", &future)] {
        rows.push(compared(what, database, engine).await?);
    }
    let churned = queue(engine, SHORT + CHURN, 0).await?;
    churn(&churned).await?;
    rows.push(compared("after 100,000 were sent", &churned, engine).await?);
    let viewed = queue(engine, SHORT + 30_000, 0).await?;
    if let Some(view) = viewed.old_view()? {
        let what = "with an old snapshot, 10,000 sent since";
        for _ in 0..1_000 {
            let claimed = viewed.round(Vec::new(), CLAIM).await?;
            viewed.round(claimed, 0).await?;
        }
        rows.push(compared(what, &viewed, engine).await?);
        drop(view);
    }
    Ok(rows)
}

async fn queue(engine: Engine, due: u64, later: u64) -> anyhow::Result<Database> {
    let database = Database::new(engine).await?;
    let now = database.store.now().await?;
    database.fill(due, now).await?;
    if later > 0 {
        let in_an_hour = now.plus(Duration::from_secs(3_600));
        database.fill(later, in_an_hour).await?;
    }
    Ok(database)
}

async fn churn(database: &Database) -> anyhow::Result<()> {
    let mut gone = 0;
    let mut claimed = database.round(Vec::new(), 256).await?;
    while gone < CHURN {
        gone += claimed.len() as u64;
        claimed = database.round(claimed, 256).await?;
    }
    database.round(claimed, 0).await?;
    Ok(())
}

async fn compared(what: &str, database: &Database, engine: Engine) -> anyhow::Result<Vec<String>> {
    let short = queue(engine, SHORT, 0).await?;
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        measure(database, &mut here).await?;
        measure(&short, &mut there).await?;
    }
    let (here, there) = (p99(here), p99(there));
    let ratio = here.as_secs_f64() / there.as_secs_f64();
    say(&format!("  {} {what}: {ratio:.2}", engine.name()));
    Ok(vec![what.to_owned(), format!("{here:.1?}"), format!("{there:.1?}"), format!("{ratio:.2}")])
}

/// Measures only claims. The claimed messages are settled between them, and the queue is filled again at the end.
async fn measure(database: &Database, times: &mut Vec<Duration>) -> anyhow::Result<()> {
    for _ in 0..CLAIMS / TURNS {
        let began = Instant::now();
        let claimed = database.round(Vec::new(), CLAIM).await?;
        times.push(began.elapsed());
        anyhow::ensure!(claimed.len() == CLAIM as usize, "the queue is empty");
        database.round(claimed, 0).await?;
    }
    let now = database.store.now().await?;
    database.fill(CLAIMS / TURNS * u64::from(CLAIM), now).await
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}
