//! The figures of docs/benchmarks.md: each is a ratio of two values that were measured in the same run. `cargo bench`
//! prints all of them as one table, `cargo bench -- importing` some of them. It takes a few minutes, and nothing
//! leaves this machine.

mod batches;
mod importing;
mod list;
mod memory;
mod redis;
mod sending;
mod suppression;
mod workspace;

use std::io::Write as _;

use comfy_table::{Table, presets};

/// One line of the table.
struct Figure {
    what: String,
    smsq: String,
    /// What smsq is compared with, and its value.
    baseline: String,
    measured: String,
    ratio: f64,
}

fn main() -> anyhow::Result<()> {
    // `cargo test --benches` runs this file, too, but it has no tests.
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
        say("sending, compared with a bare loop of requests");
        figures.push(sending::measure()?);
    }
    if is_chosen("batches") {
        say("sending, many messages in a request compared with one");
        figures.push(batches::measure()?);
    }
    if is_chosen("memory") {
        say("memory, with a long queue and with a short one");
        figures.push(memory::measure()?);
    }
    if is_chosen("importing") {
        say(
            "importing, compared with its libraries alone, the sqlite3 shell, and other file formats",
        );
        figures.extend(importing::measure()?);
    }
    if is_chosen("suppression") {
        say("loading suppressed phones, compared with the sqlite3 shell");
        figures.extend(suppression::measure()?);
    }
    if is_chosen("redis") {
        say("importing a list of Redis, compared with redis-cli");
        figures.extend(redis::measure()?);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "smsq", "baseline", "", "ratio"]);
    for figure in figures {
        table.add_row([
            figure.what,
            figure.smsq,
            figure.measured,
            figure.baseline,
            format!("{:.2}", figure.ratio),
        ]);
    }
    writeln!(std::io::stdout(), "{table}")?;
    Ok(())
}

/// Prints a line to standard error.
fn say(what: &str) {
    // A failure to write to stderr cannot be reported.
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Prints the result of the last round.
fn progress(smsq: &[f64], baseline: &[f64]) {
    if let (Some(smsq), Some(baseline)) = (smsq.last(), baseline.last()) {
        let ratio = smsq / baseline;
        say(&format!(
            "  {}, baseline {}: {ratio:.2}",
            per_second(*smsq),
            per_second(*baseline)
        ));
    }
}

/// The middle value; of an even number, the upper one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// `31,200/s`
fn per_second(rate: f64) -> String {
    format!("{}/s", indicatif::HumanFloatCount(rate.round()))
}
