//! The figures of docs/benchmarks.md: each is a ratio of two things that were measured in the same run. `cargo bench`
//! prints them all as one table, `cargo bench -- importing` some of them; it takes a few minutes, sends nothing
//! off this machine and cleans up.

mod batches;
mod importing;
mod list;
mod memory;
mod redis;
mod scene;
mod sending;
mod suppression;

use std::io::Write as _;

use comfy_table::{Table, presets};

/// One line of the table.
struct Figure {
    what: String,
    smsq: String,
    beside: String,
    measured: String,
    ratio: f64,
}

fn main() -> anyhow::Result<()> {
    // `cargo test --benches` runs this file too; there is nothing to test in it.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    let mut figures = Vec::new();
    if is_chosen("sending") {
        say("sending, beside a bare loop of requests");
        figures.push(sending::measure()?);
    }
    if is_chosen("batches") {
        say("sending, many messages in a request beside one");
        figures.push(batches::measure()?);
    }
    if is_chosen("memory") {
        say("memory, with a long queue and with a short one");
        figures.push(memory::measure()?);
    }
    if is_chosen("importing") {
        say(
            "importing, beside its libraries alone, the sqlite3 shell, and as other kinds of files",
        );
        figures.extend(importing::measure()?);
    }
    if is_chosen("suppression") {
        say("loading suppressed phones, beside the sqlite3 shell");
        figures.extend(suppression::measure()?);
    }
    if is_chosen("redis") {
        say("importing a list of Redis, beside redis-cli");
        figures.extend(redis::measure()?);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "smsq", "beside", "", "ratio"]);
    for figure in figures {
        table.add_row([
            figure.what,
            figure.smsq,
            figure.measured,
            figure.beside,
            format!("{:.2}", figure.ratio),
        ]);
    }
    writeln!(std::io::stdout(), "{table}")?;
    Ok(())
}

/// Says on standard error what goes on.
fn say(what: &str) {
    // Nobody is left to be told when it cannot be written.
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Says what the last round gave.
fn progress(smsq: &[f64], beside: &[f64]) {
    if let (Some(smsq), Some(beside)) = (smsq.last(), beside.last()) {
        let ratio = smsq / beside;
        say(&format!(
            "  {} beside {}: {ratio:.2}",
            per_second(*smsq),
            per_second(*beside)
        ));
    }
}

/// The one in the middle; of an even number, the upper one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// `31,200/s`
fn per_second(rate: f64) -> String {
    format!("{}/s", indicatif::HumanFloatCount(rate.round()))
}
