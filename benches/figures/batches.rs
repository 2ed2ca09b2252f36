//! Messages per second of `smsq send` with 100 messages in each request, beside the same with one: to a gateway
//! that takes 50 ms for every answer, as one does that is far away.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::scene::{Gateway, Scene};
use crate::{Figure, median, per_second, progress};

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
        what: format!("messages sent per second, {PER_CALL} in a request, answers after {LATENCY}"),
        smsq: per_second(together),
        measured: per_second(alone),
        beside: "the same, one in a request".to_owned(),
        ratio: together / alone,
    })
}

/// The whole process, from its start to its end, with the usual slots.
fn send(per_call: u32) -> anyhow::Result<f64> {
    let gateway = Gateway::start(&["--latency", LATENCY])?;
    let scene = Scene::new()?;
    scene.queue(
        MESSAGES,
        &gateway,
        &format!("batch = {{ per_call = {per_call} }}"),
    )?;
    let started_at = Instant::now();
    let sent = scene.json(&["send"])?;
    let elapsed = started_at.elapsed();
    ensure!(sent["sent"] == MESSAGES, "not all was sent: {sent}");
    Ok(Duration::from_secs(MESSAGES).as_secs_f64() / elapsed.as_secs_f64())
}
