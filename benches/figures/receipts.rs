//! Delivery receipts per second of `smsq receipts`, from the first request to the last state, compared with the sqlite3
//! shell, which imports as many rows into a table and updates as many messages by an index.

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

pub(crate) fn measure() -> anyhow::Result<Figure> {
    let (mut smsq, mut shell) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        smsq.push(receive()?);
        shell.push(import()?);
        progress(&smsq, &shell);
    }
    let (smsq, shell) = (median(smsq), median(shell));
    Ok(Figure {
        what: "delivery receipts fetched, stored and applied per second".to_owned(),
        smsq: per_second(smsq),
        measured: per_second(shell),
        baseline: "the sqlite3 shell's `.import` of as many rows, and an update by an index"
            .to_owned(),
        ratio: smsq / shell,
    })
}

fn rate(began: Instant) -> f64 {
    f64::from(RECEIPTS) / began.elapsed().as_secs_f64()
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
    let rate = rate(began);
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
    Ok(rate(began))
}
