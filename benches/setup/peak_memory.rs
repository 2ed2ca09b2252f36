//! The peak memory of a process.

use std::process::Child;
use std::time::Duration;

use anyhow::Context as _;

const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Reads the peak until the process ends; the last value counts. In KiB.
pub(crate) fn peak_kib(child: &mut Child) -> anyhow::Result<f64> {
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
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
