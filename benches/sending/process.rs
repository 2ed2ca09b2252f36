//! What a process costs: its duration and its processor time, from `/proc`.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;

use crate::gateway::now_us;
use crate::workspace::finished;

/// Linux counts the time of processes in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// A process that has ended. Instants are microseconds since 1970.
pub(crate) struct Ended {
    pub(crate) output: Value,
    pub(crate) started_us: u64,
    pub(crate) exited_us: u64,
    pub(crate) cpu: Duration,
}

/// Runs a command that prints a JSON object.
pub(crate) fn run(mut command: Command) -> anyhow::Result<Ended> {
    let started_us = now_us();
    let child = command.spawn()?;
    // Its times can be read until it is reaped.
    let process = WaitId::Pid(Pid::from_child(&child));
    waitid(process, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let exited_us = now_us();
    let cpu = stat(child.id()).context("cannot read the processor time in /proc")?;
    Ok(Ended { output: finished(child)?, started_us, exited_us, cpu: cpu.own })
}

/// The processor time of this process.
pub(crate) fn own_cpu() -> Duration {
    stat(std::process::id()).map_or(Duration::ZERO, |stat| stat.own)
}

/// The processor time of a server: the process, its descendants, and those that have ended.
pub(crate) fn cpu_of_tree(root: u32) -> anyhow::Result<Duration> {
    let stats: Vec<Stat> = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .collect();
    let mut tree = vec![root];
    let mut cpu = Duration::ZERO;
    while let Some(process) = tree.pop() {
        for stat in &stats {
            if stat.process == process {
                cpu += stat.own + stat.reaped;
            }
            if stat.parent == process {
                tree.push(stat.process);
            }
        }
    }
    Ok(cpu)
}

struct Stat {
    process: u32,
    parent: u32,
    own: Duration,
    /// Of its children that have ended.
    reaped: Duration,
}

fn stat(process: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program may contain anything, in parentheses.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u32>().ok();
    Some(Stat {
        process,
        parent: ticks(1)?,
        own: TICK * (ticks(11)? + ticks(12)?),
        reaped: TICK * (ticks(13)? + ticks(14)?),
    })
}
