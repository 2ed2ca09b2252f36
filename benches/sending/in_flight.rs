//! A thousand requests in flight to a gateway 100 ms away: the share of concurrency ÷ latency that is reached, and the
//! memory of each request.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bare;
use crate::engine::Engine;
use crate::gateway::Gateway;
use crate::numbers::say;
use crate::peak_memory::peak_kib;
use crate::plan::{Plan, Report, table};
use crate::queue::Queue;
use crate::series::Series;
use crate::workspace::finished;

const CONCURRENCY: u32 = 1_000;
const FEW: u32 = 16;
const LATENCY: Duration = Duration::from_millis(100);
const MESSAGES: u32 = 50_000;
const ROUNDS: usize = 3;

#[derive(Default)]
struct Results {
    shares: Series,
    kib: Series,
}

pub(crate) fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let mut table = table(&[
        "1,000 in flight, gateway 100 ms",
        "program",
        "share of 10,000/s (min–max)",
        "bare loop",
        "KiB per request",
    ]);
    let mut json = Vec::new();
    let messages = plan.messages.unwrap_or(MESSAGES);
    let ideal = f64::from(CONCURRENCY) / LATENCY.as_secs_f64();
    for &engine in &plan.engines {
        say(&format!("{CONCURRENCY} in flight on {}", engine.name()));
        let mut bare = Series::default();
        let mut results: Vec<_> = plan.programs().map(|_| Results::default()).collect();
        for _ in 0..plan.rounds.min(ROUNDS) {
            bare.push(bare::measure(CONCURRENCY, LATENCY, messages)?.per_second / ideal);
            for (results, (_, program)) in results.iter_mut().zip(plan.programs()) {
                let gateway = Gateway::start(LATENCY)?;
                let queue = Queue::new(program, engine, messages, &gateway, None)?;
                let sent = queue.send(&gateway, CONCURRENCY)?;
                results.shares.push(sent.per_second_between() / ideal);
                // The same number of messages takes too long with few in flight and a distant gateway.
                let many = peak(program, engine, messages, CONCURRENCY, LATENCY)?;
                let few = peak(program, engine, messages, FEW, Duration::ZERO)?;
                results.kib.push((many - few) / f64::from(CONCURRENCY - FEW));
            }
        }
        for ((name, _), results) in plan.programs().zip(&results) {
            table.add_row([
                engine.name().to_owned(),
                name.to_owned(),
                results.shares.decimals(3),
                bare.decimals(3),
                results.kib.decimals(1),
            ]);
            json.push(json!({
                "engine": engine.name(),
                "program": name,
                "share": results.shares.json(),
                "bare_share": bare.json(),
                "kib_per_request": results.kib.json(),
            }));
        }
    }
    Ok(Report { table, json: Value::from(json) })
}

fn peak(
    program: &Path,
    engine: Engine,
    messages: u32,
    concurrency: u32,
    latency: Duration,
) -> anyhow::Result<f64> {
    let gateway = Gateway::start(latency)?;
    let queue = Queue::new(program, engine, messages, &gateway, None)?;
    let mut child = queue.sender(concurrency).spawn()?;
    let peak = peak_kib(&mut child)?;
    finished(child)?;
    queue.check(&gateway)?;
    Ok(peak)
}
