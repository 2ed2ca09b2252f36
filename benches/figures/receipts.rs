//! Delivery receipts per second of `smsq receipts`, from the first request to the last state, compared with the sqlite3
//! shell, which imports as many rows into a table and updates as many messages by an index. And messages sent per second
//! while their receipts are fetched, compared with none.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::numbers::{median, per_second};
use crate::practice::{Gateway, queue};
use crate::workspace::{Workspace, program};
use crate::{Figure, progress};

const RECEIPTS: u32 = 100_000;
const ROUNDS: u32 = 3;
/// Longer than sending takes, so that all receipts are there at once.
const DELAY: Duration = Duration::from_secs(30);

/// While these are sent, most of their receipts are fetched.
const SENT: u32 = 150_000;
const SEND: [&str; 3] = ["send", "--concurrency", "64"];

pub(crate) fn measure() -> anyhow::Result<Vec<Figure>> {
    Ok(vec![fetched()?, sent_meanwhile()?])
}

fn fetched() -> anyhow::Result<Figure> {
    let (smsq, shell) = medians(receive, import)?;
    Ok(Figure {
        what: "delivery receipts fetched, stored and applied per second".to_owned(),
        smsq: per_second(smsq),
        measured: per_second(shell),
        baseline: "the sqlite3 shell's `.import` of as many rows, and an update by an index"
            .to_owned(),
        ratio: smsq / shell,
    })
}

fn sent_meanwhile() -> anyhow::Result<Figure> {
    let (with, without) = medians(|| send(true), || send(false))?;
    Ok(Figure {
        what: "messages sent per second, with their receipts fetched and applied".to_owned(),
        smsq: per_second(with),
        measured: per_second(without),
        baseline: "the same without receipts".to_owned(),
        ratio: with / without,
    })
}

/// The medians of the rounds, of smsq and of what it is compared with.
fn medians(
    smsq: impl Fn() -> anyhow::Result<f64>,
    baseline: impl Fn() -> anyhow::Result<f64>,
) -> anyhow::Result<(f64, f64)> {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        here.push(smsq()?);
        there.push(baseline()?);
        progress(&here, &there);
    }
    Ok((median(here), median(there)))
}

/// Messages sent per second, with receipts 0.1 s after each message.
fn send(with_receipts: bool) -> anyhow::Result<f64> {
    let workspace = Workspace::new(program()?)?;
    let faults = workspace.path("faults.toml");
    std::fs::write(&faults, "[receipts]\ndelay = \"100ms\"\n")?;
    let gateway = Gateway::start(&["--faults", &faults.to_string_lossy()])?;
    let more = format!(
        "[providers.sandbox.receipts]\nenabled = {with_receipts}\nevery = \"1s\"\nrate = \"1000/s\""
    );
    queue(&workspace, SENT.into(), &gateway, &more)?;
    let began = Instant::now();
    let sent = workspace.json(&SEND)?;
    let rate = rate(SENT, began);
    ensure!(sent["sent"] == SENT, "not all was sent: {sent}");
    let status = workspace.json(&["status"])?;
    let delivered = status["delivery"]["delivered"].as_u64().unwrap_or(0);
    let least = u64::from(if with_receipts { SENT / 4 * 3 } else { 0 });
    ensure!(delivered >= least, "few receipts were applied: {status}");
    Ok(rate)
}

fn rate(count: u32, began: Instant) -> f64 {
    f64::from(count) / began.elapsed().as_secs_f64()
}

fn receive() -> anyhow::Result<f64> {
    let workspace = Workspace::new(program()?)?;
    let faults = workspace.path("faults.toml");
    let delay = DELAY.as_secs();
    std::fs::write(&faults, format!("[receipts]\ndelay = \"{delay}s\"\n"))?;
    let gateway = Gateway::start(&["--faults", &faults.to_string_lossy()])?;
    let on = "[providers.sandbox.receipts]\nenabled = true\nrate = \"1000/s\"";
    queue(&workspace, RECEIPTS.into(), &gateway, on)?;
    let sent = workspace.json(&["send"])?;
    ensure!(sent["sent"] == RECEIPTS, "not all was sent: {sent}");
    std::thread::sleep(DELAY);
    let began = Instant::now();
    let received = workspace.json(&["receipts"])?;
    let rate = rate(RECEIPTS, began);
    let delivered = &received["delivery"]["delivered"];
    ensure!(*delivered == RECEIPTS, "not all was delivered: {received}");
    Ok(rate)
}

fn import() -> anyhow::Result<f64> {
    let workspace = Workspace::new(program()?)?;
    let mut csv = String::new();
    for number in 0..RECEIPTS {
        let _ = writeln!(csv, "{number},SB{number:06},delivered,1763715600000");
    }
    std::fs::write(workspace.path("receipts.csv"), csv)?;
    let run = |commands: &[&str]| {
        let status = Command::new("sqlite3")
            .args(["-bail", "-batch", "shell.db"])
            .args(commands)
            .current_dir(workspace.path("."))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("cannot start the sqlite3 shell")?;
        ensure!(status.success(), "the sqlite3 shell: {status}");
        Ok(())
    };
    let messages = format!(
        "WITH RECURSIVE n(id) AS (VALUES(0) UNION ALL SELECT id + 1 FROM n WHERE id < {RECEIPTS} - 1) \
         INSERT INTO sent SELECT id, printf('SB%06d', id), NULL FROM n;"
    );
    run(&[
        "CREATE TABLE sent(id INTEGER PRIMARY KEY, name TEXT, state TEXT);",
        "CREATE INDEX sent_name ON sent(name);",
        "CREATE TABLE receipt(id INTEGER PRIMARY KEY, name TEXT, state TEXT, at INTEGER);",
        &messages,
    ])?;
    let began = Instant::now();
    run(&[
        ".import --csv receipts.csv receipt",
        "UPDATE sent SET state = receipt.state FROM receipt WHERE receipt.name = sent.name;",
    ])?;
    Ok(rate(RECEIPTS, began))
}
