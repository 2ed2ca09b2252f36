//! Commits and round trips of `smsq send` per message. The runs are not timed, because a proxy counts the round trips.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::gateway::Gateway;
use crate::numbers::say;
use crate::plan::{Plan, Report, table};
use crate::proxy::Proxy;
use crate::queue::Queue;
use crate::workspace::finished;

const CONCURRENCIES: [u32; 2] = [64, 256];
const MESSAGES: u32 = 20_000;
const LOOK_EVERY: Duration = Duration::from_millis(1);

struct Counts {
    commits: u32,
    /// Only of servers.
    round_trips: Option<u32>,
}

pub(crate) fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let mut table = table(&[
        "work of the database",
        "in flight",
        "program",
        "messages per commit",
        "round trips per commit",
        "round trips per message",
    ]);
    let mut json = Vec::new();
    let messages = plan.messages.unwrap_or(MESSAGES);
    for &engine in &plan.engines {
        say(&format!("commits on {}", engine.name()));
        for concurrency in CONCURRENCIES {
            for (name, program) in plan.programs() {
                let gateway = Gateway::start(Duration::ZERO)?;
                let queue = Queue::new(program, engine, messages, &gateway, None)?;
                let counts = match engine {
                    Engine::Sqlite => count_in_file(&queue, concurrency)?,
                    _ => count_on_server(engine, &queue, concurrency)?,
                };
                queue.check(&gateway)?;
                let commits = f64::from(counts.commits);
                let trips = counts.round_trips.map(f64::from);
                let or_dash = |value: Option<f64>| {
                    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
                };
                table.add_row([
                    engine.name().to_owned(),
                    concurrency.to_string(),
                    name.to_owned(),
                    format!("{:.1}", f64::from(messages) / commits),
                    or_dash(trips.map(|trips| trips / commits)),
                    or_dash(trips.map(|trips| trips / f64::from(messages))),
                ]);
                json.push(json!({
                    "engine": engine.name(),
                    "concurrency": concurrency,
                    "program": name,
                    "messages": messages,
                    "commits": counts.commits,
                    "round_trips": counts.round_trips,
                }));
            }
        }
    }
    Ok(Report { table, json: Value::from(json) })
}

fn count_on_server(engine: Engine, queue: &Queue, concurrency: u32) -> anyhow::Result<Counts> {
    let proxy = Proxy::start(&queue.url)?;
    let before = engine.commits(&queue.url)?;
    let mut sender = queue.sender(concurrency);
    sender.env("SMSQ__DATABASE__URL", &proxy.url);
    finished(sender.spawn()?)?;
    Ok(Counts {
        commits: engine.commits(&queue.url)? - before,
        round_trips: Some(proxy.round_trips()),
    })
}

/// Reads the counter of SQLite's shared memory file, which grows with each transaction that wrote. SQLite deletes the
/// file at the end, but an open one can still be read.
fn count_in_file(queue: &Queue, concurrency: u32) -> anyhow::Result<Counts> {
    let path = queue.workspace.path("smsq.db-shm");
    ensure!(!path.exists(), "the import has left `{}`", path.display());
    let mut sender = queue.sender(concurrency).spawn()?;
    let memory = loop {
        match File::open(&path) {
            Ok(memory) => break memory,
            Err(error) => ensure!(sender.try_wait()?.is_none(), "cannot open the file: {error}"),
        }
        std::thread::sleep(LOOK_EVERY);
    };
    finished(sender)?;
    Ok(Counts { commits: change_counter(&memory, &path)?, round_trips: None })
}

/// The field `iChange` of <https://www.sqlite.org/walformat.html#the_wal_index_header>.
fn change_counter(memory: &File, path: &Path) -> anyhow::Result<u32> {
    let mut counter = [0; 4];
    let read = memory.read_exact_at(&mut counter, 8);
    read.with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(u32::from_ne_bytes(counter))
}
