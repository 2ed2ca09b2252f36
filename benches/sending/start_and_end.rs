//! How long a run takes before its first request, and after its last response.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::numbers::say;
use crate::plan::{Plan, Report, table};
use crate::queue::Queue;
use crate::series::Series;

const CONCURRENCY: u32 = 64;
const MESSAGES: u32 = 500;
/// The runs are short.
const RUNS_PER_ROUND: usize = 3;

pub(crate) fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let mut table = table(&[
        "start and end, in ms (min–max)",
        "program",
        "start to first request",
        "last response to exit",
    ]);
    let mut json = Vec::new();
    for &engine in &plan.engines {
        say(&format!("start and end on {}", engine.name()));
        let mut results: Vec<_> =
            plan.programs().map(|_| (Series::default(), Series::default())).collect();
        for _ in 0..plan.rounds * RUNS_PER_ROUND {
            for ((starts, ends), (_, program)) in results.iter_mut().zip(plan.programs()) {
                let gateway = Gateway::start(Duration::ZERO)?;
                let queue = Queue::new(program, engine, MESSAGES, &gateway, None)?;
                let sent = queue.send(&gateway, CONCURRENCY)?;
                starts.push(millis(sent.sender.started_us, sent.stats.first_arrival_us));
                ends.push(millis(sent.stats.last_answer_us, sent.sender.exited_us));
            }
        }
        for ((name, _), (starts, ends)) in plan.programs().zip(&results) {
            table.add_row([
                engine.name().to_owned(),
                name.to_owned(),
                starts.decimals(1),
                ends.decimals(1),
            ]);
            json.push(json!({
                "engine": engine.name(),
                "program": name,
                "start_to_first_request_ms": starts.json(),
                "last_response_to_exit_ms": ends.json(),
            }));
        }
    }
    Ok(Report { table, json: Value::from(json) })
}

fn millis(from_us: u64, to_us: u64) -> f64 {
    Duration::from_micros(to_us.saturating_sub(from_us)).as_secs_f64() * 1e3
}
