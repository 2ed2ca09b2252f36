//! One, two and four `smsq send` on one database that share one limit, with a gateway 50 ms away: how much of the limit
//! they use, and whether they exceed it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::numbers::say;
use crate::plan::{Plan, Report, table};
use crate::queue::Queue;
use crate::series::Series;
use crate::workspace::finished;

const WORKERS: [usize; 3] = [1, 2, 4];
const LATENCY: Duration = Duration::from_millis(50);
const LIMIT: u32 = 2_000;
const MESSAGES: u32 = 15_000;
/// Of each worker; 100 requests in flight use the limit.
const CONCURRENCY: u32 = 256;
const ROUNDS: usize = 3;

pub(crate) fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let mut table = table(&[
        "one limit of 2,000/s",
        "workers",
        "program",
        "share used (min–max)",
        "most in a second",
        "noticed late by at most",
    ]);
    let mut json = Vec::new();
    for &engine in &plan.engines {
        for workers in WORKERS {
            let mut results: Vec<_> = plan.programs().map(|_| Series::default()).collect();
            let mut most = vec![(Vec::new(), Vec::new()); results.len()];
            for _ in 0..plan.rounds.min(ROUNDS) {
                for (index, (_, program)) in plan.programs().enumerate() {
                    say(&format!("{workers} workers on {}", engine.name()));
                    let gateway = Gateway::recording(LATENCY)?;
                    let messages = plan.messages.unwrap_or(MESSAGES);
                    let rate = format!("{LIMIT}/s");
                    let queue = Queue::new(program, engine, messages, &gateway, Some(&rate))?;
                    send(&queue, workers)?;
                    let stats = queue.check(&gateway)?;
                    let span = stats.last_arrival_us - stats.first_arrival_us;
                    let rate = f64::from(messages - 1) / Duration::from_micros(span).as_secs_f64();
                    results[index].push(rate / f64::from(LIMIT));
                    if let Some(recorded) = stats.recorded {
                        most[index].0.push(recorded.max_in_any_second);
                        most[index].1.push(recorded.max_delay_us);
                    }
                }
            }
            for ((name, _), (shares, (most, delays))) in
                plan.programs().zip(results.iter().zip(most))
            {
                let delay = Duration::from_micros(delays.iter().copied().max().unwrap_or_default());
                table.add_row([
                    engine.name().to_owned(),
                    workers.to_string(),
                    name.to_owned(),
                    shares.decimals(3),
                    most.iter().max().map_or_else(String::new, ToString::to_string),
                    format!("{delay:.1?}"),
                ]);
                json.push(json!({
                    "engine": engine.name(),
                    "workers": workers,
                    "program": name,
                    "share": shares.json(),
                    "max_in_any_second": most,
                    "max_delay_us": delays,
                }));
            }
        }
    }
    Ok(Report { table, json: Value::from(json) })
}

fn send(queue: &Queue, workers: usize) -> anyhow::Result<()> {
    let workers: Vec<_> =
        (0..workers).map(|_| queue.sender(CONCURRENCY).spawn()).collect::<Result<_, _>>()?;
    for worker in workers {
        finished(worker)?;
    }
    Ok(())
}
