//! The figures of docs/benchmarks.md: each is a ratio of two values that were measured in the same run. `cargo bench`
//! prints all of them as one table, `cargo bench -- importing` some of them. It takes a few minutes, and nothing
//! leaves this machine.

mod batches;
mod formats;
mod hooks;
mod http;
mod importing;
mod intake;
#[path = "../setup/list.rs"]
mod list;
mod memory;
#[path = "../setup/numbers.rs"]
mod numbers;
#[path = "../setup/peak_memory.rs"]
mod peak_memory;
mod practice;
mod receipts;
mod redis;
#[path = "../setup/results.rs"]
mod results;
mod serving;
mod suppression;
#[path = "../setup/workspace.rs"]
mod workspace;

use std::io::Write as _;

use comfy_table::{Table, presets};
use numbers::{per_second, say};
use serde::Serialize;

const NAMES: [&str; 10] = [
    "batches",
    "memory",
    "importing",
    "suppression",
    "redis",
    "receipts",
    "intake",
    "serving",
    "hooks",
    "page",
];

/// One line of the table.
#[derive(Serialize)]
struct Figure {
    what: String,
    smsq: String,
    /// What smsq is compared with, and its value.
    baseline: String,
    measured: String,
    ratio: f64,
}

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(http::COMMAND) {
        return http::serve();
    }
    // `cargo test --benches` runs this file, too, but it has no tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_named = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_chosen = |name: &str| is_named(name) || !NAMES.into_iter().any(is_named);
    let mut figures = Vec::new();
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
    if is_chosen("receipts") {
        say("fetching and applying delivery receipts, compared with the sqlite3 shell");
        figures.extend(receipts::measure()?);
    }
    if is_chosen("intake") {
        say("taking messages over HTTP, compared with bare axum");
        figures.extend(intake::measure()?);
    }
    if is_chosen("serving") {
        say("sending, with and without a server that people and programs use");
        figures.push(serving::measure_worker()?);
    }
    if is_chosen("hooks") {
        say("sending, with and without a hook whose receiver is on this machine");
        figures.push(hooks::measure()?);
    }
    if is_chosen("page") {
        say("the page of the server, with a long queue and with a short one");
        figures.push(serving::measure_page()?);
    }
    results::save("figures", serde_json::to_value(&figures)?)?;
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

/// Prints the result of the last round.
fn progress(smsq: &[f64], baseline: &[f64]) {
    if let (Some(smsq), Some(baseline)) = (smsq.last(), baseline.last()) {
        let ratio = smsq / baseline;
        say(&format!("  {}, baseline {}: {ratio:.2}", per_second(*smsq), per_second(*baseline)));
    }
}
