//! Benchmarks of each database: claims and settlements per second, the duration of a claim in a long queue, and the
//! cost of a suppression list. `benches/servers` starts the servers and runs this. Ratios are of values measured in
//! the same run.

mod approvals;
mod claims;
mod database;
#[path = "../setup/engine.rs"]
mod engine;
#[path = "../setup/numbers.rs"]
mod numbers;
mod queue;
#[path = "../setup/results.rs"]
mod results;
mod suppression;

use std::io::Write as _;

use comfy_table::{Cell, Table, presets};
use engine::Engine;
use serde_json::Value;

const NAMES: [&str; 4] = ["approvals", "claims", "queue", "suppression"];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    // `cargo test --benches` runs this file, too, but it has no tests.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let is_named = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_wanted = |name: &str| is_named(name) || !NAMES.into_iter().any(is_named);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if is_wanted("approvals") {
        let mut table = table([
            "10,000,000 messages wait",
            "question",
            "ratio to 10,000",
            "approval",
            "ratio to 10,000",
        ]);
        for engine in Engine::ALL {
            let durations = runtime.block_on(approvals::durations(engine))?;
            table.add_row([vec![engine.name().to_owned()], durations].concat());
        }
        print("approvals", &table)?;
    }
    if is_wanted("claims") {
        let mut table = table([
            "claimed and settled per second",
            "1 at once",
            "8 at once",
            "64 at once",
            "ratios to those without the count of commits",
        ]);
        for engine in Engine::ALL {
            let rates = runtime.block_on(claims::rates(engine))?;
            table.add_row([vec![engine.name().to_owned()], rates].concat());
        }
        print("claims", &table)?;
    }
    if is_wanted("queue") {
        let mut table =
            table(["p99 of a claim of 10 rows", "rows", "duration", "with 10,000 rows", "ratio"]);
        for engine in Engine::ALL {
            for row in runtime.block_on(queue::prices(engine))? {
                table.add_row([vec![engine.name().to_owned()], row].concat());
            }
        }
        print("queue", &table)?;
    }
    if is_wanted("suppression") {
        let mut table = table([
            "6,000,000 phones suppressed",
            "loaded in",
            "per second",
            "import, ratio to none",
            "claim, ratio to none",
        ]);
        // `suppression sqlite` needs no servers.
        let in_a_file = is_named("sqlite");
        let engines = if in_a_file { 1 } else { Engine::ALL.len() };
        for engine in Engine::ALL.into_iter().take(engines) {
            let costs = runtime.block_on(suppression::costs(engine))?;
            table.add_row([vec![engine.name().to_owned()], costs].concat());
        }
        print("suppression", &table)?;
    }
    Ok(())
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table
}

fn print(name: &str, table: &Table) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{table}\n")?;
    let rows = table.row_iter().map(|row| row.cell_iter().map(Cell::content).collect());
    results::save(name, rows.collect::<Vec<Value>>().into())
}
