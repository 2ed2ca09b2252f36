//! Messages per second of `smsq send` with 100 messages in each request, compared with one, at a gateway that responds
//! after 50 ms, like a distant one.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::numbers::{median, per_second};
use crate::practice::{Gateway, queue};
use crate::workspace::{Workspace, program};
use crate::{Figure, progress};

const PER_CALL: u32 = 100;
const LATENCY: &str = "50ms";
const MESSAGES: u64 = 40_000;
const ROUNDS: u64 = 3;

pub(crate) fn measure() -> anyhow::Result<Figure> {
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(send(1)?);
        together.push(send(PER_CALL)?);
        progress(&together, &alone);
    }
    let (together, alone) = (median(together), median(alone));
    Ok(Figure {
        what: format!(
            "messages sent per second, {PER_CALL} in a request, responses after {LATENCY}"
        ),
        smsq: per_second(together),
        measured: per_second(alone),
        baseline: "the same, one in a request".to_owned(),
        ratio: together / alone,
    })
}

/// Runs the whole process with the default concurrency.
fn send(per_call: u32) -> anyhow::Result<f64> {
    let gateway = Gateway::start(&["--latency", LATENCY])?;
    let workspace = Workspace::new(program()?)?;
    queue(&workspace, MESSAGES, &gateway, &format!("batch = {{ per_call = {per_call} }}"))?;
    let started_at = Instant::now();
    let sent = workspace.json(&["send"])?;
    let elapsed = started_at.elapsed();
    ensure!(sent["sent"] == MESSAGES, "not all was sent: {sent}");
    Ok(Duration::from_secs(MESSAGES).as_secs_f64() / elapsed.as_secs_f64())
}
