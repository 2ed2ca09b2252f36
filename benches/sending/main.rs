//! What users run: `smsq send` through a provider of the kind `generic`, at several concurrencies, on each database
//! engine, and a bare loop of the same requests in the same run. `benches/servers` starts the servers and runs this;
//! `cargo bench --bench sending -- sqlite` needs none. See docs/benchmarks.md for the arguments.

mod bare;
mod commits;
#[path = "../setup/engine.rs"]
mod engine;
mod gateway;
mod idle_campaigns;
mod in_flight;
#[path = "../setup/list.rs"]
mod list;
mod matrix;
#[path = "../setup/numbers.rs"]
mod numbers;
#[path = "../setup/peak_memory.rs"]
mod peak_memory;
mod plan;
mod process;
mod proxy;
mod queue;
#[path = "../setup/results.rs"]
mod results;
mod series;
mod server;
mod start_and_end;
mod workers;
#[path = "../setup/workspace.rs"]
mod workspace;

use std::io::Write as _;

use plan::{Part, Plan};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().map(String::as_str) == Some(gateway::COMMAND) {
        return gateway::run(&arguments[1..]);
    }
    // `cargo test --benches` runs this file, too, but it has no tests.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    allow_many_connections()?;
    let plan = Plan::new(&arguments)?;
    let programs = plan.programs().map(|(name, path)| (name, path.display().to_string()));
    results::save("programs", programs.collect())?;
    for part in Part::ALL.into_iter().filter(|part| plan.has(*part)) {
        let report = match part {
            Part::Matrix => matrix::measure(&plan)?,
            Part::Commits => commits::measure(&plan)?,
            Part::InFlight => in_flight::measure(&plan)?,
            Part::Workers => workers::measure(&plan)?,
            Part::StartAndEnd => start_and_end::measure(&plan)?,
            Part::IdleCampaigns => idle_campaigns::measure(&plan)?,
        };
        writeln!(std::io::stdout(), "{}\n", report.table)?;
        results::save(part.name(), report.json)?;
    }
    Ok(())
}

/// A thousand connections need more descriptors than most systems allow at first.
fn allow_many_connections() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    Ok(setrlimit(Resource::Nofile, raised)?)
}
