//! Peak memory of `smsq send` with a short and a long queue, sending the same number of messages: queued messages
//! must not be in memory.

use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use indicatif::HumanCount;

use crate::Figure;
use crate::workspace::{Gateway, Workspace, finished};

const SHORT: u64 = 10_000;
const LONG: u64 = 1_000_000;
const LOOK_EVERY: Duration = Duration::from_millis(2);

pub(crate) fn measure() -> anyhow::Result<Figure> {
    let short = peak_kib(SHORT)?;
    let long = peak_kib(LONG)?;
    Ok(Figure {
        what: format!(
            "peak memory sending {} of {}",
            HumanCount(SHORT),
            HumanCount(LONG)
        ),
        smsq: mebibytes(long),
        measured: mebibytes(short),
        baseline: format!("the same, sending {0} of {0}", HumanCount(SHORT)),
        ratio: long / short,
    })
}

fn peak_kib(queued: u64) -> anyhow::Result<f64> {
    let gateway = Gateway::start(&[])?;
    let workspace = Workspace::new()?;
    workspace.queue(queued, &gateway, "")?;
    let limit = SHORT.to_string();
    let arguments = [
        "send",
        "--concurrency",
        "256",
        "--limit",
        &limit,
        "--format",
        "json",
    ];
    let mut child = workspace.smsq(&arguments).spawn()?;
    let peak = watched(&mut child)?;
    let sent = finished(child)?;
    ensure!(sent["sent"] == SHORT, "not as many as asked for: {sent}");
    Ok(peak)
}

/// Reads the peak until the process ends; the last value counts.
pub(crate) fn watched(child: &mut Child) -> anyhow::Result<f64> {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = None;
    while child.try_wait()?.is_none() {
        let seen = std::fs::read_to_string(&status).unwrap_or_default();
        peak = high_water_mark(&seen).or(peak);
        std::thread::sleep(LOOK_EVERY);
    }
    peak.context("this system does not tell the peak memory of a process in /proc")
}

fn high_water_mark(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

pub(crate) fn mebibytes(kib: f64) -> String {
    format!("{:.1} MiB", kib / 1024.0)
}
