//! What campaigns without messages cost: the same run with 0, 1,000 and 10,000 of them, on a database beside the
//! worker and on one that is 2 ms away.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::gateway::Gateway;
use crate::numbers::say;
use crate::plan::{Plan, Report, millis, table};
use crate::proxy::Proxy;
use crate::queue::Queue;
use crate::series::Series;

const CONCURRENCY: u32 = 64;
const LATENCY: Duration = Duration::from_millis(20);
const MESSAGES: u32 = 10_000;
const IDLE: [u32; 3] = [0, 1_000, 10_000];
const DISTANCES: [Duration; 2] = [Duration::ZERO, Duration::from_millis(2)];

pub(crate) fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let mut table = table(&[
        "idle campaigns",
        "database",
        "program",
        "messages",
        "share of the rate without (min–max)",
        "last response to exit, ms (min–max)",
    ]);
    let mut json = Vec::new();
    for &engine in &plan.engines {
        for distance in DISTANCES {
            // A file cannot be reached through a proxy.
            if engine == Engine::Sqlite && !distance.is_zero() {
                continue;
            }
            let place = format!("{}, {} away", engine.name(), millis(distance));
            for (name, program) in plan.programs() {
                let mut results: Vec<_> = IDLE
                    .map(|idle| (idle, Series::default(), Series::default(), Series::default()))
                    .into();
                for _ in 0..plan.rounds {
                    let mut without = f64::NAN;
                    for (idle, rates, shares, ends) in &mut results {
                        say(&format!("{idle} idle campaigns on {place}"));
                        let gateway = Gateway::start(LATENCY)?;
                        let messages = plan.messages.unwrap_or(MESSAGES);
                        let queue = Queue::new(program, engine, messages, &gateway, None)?;
                        add_campaigns(engine, &queue, *idle)?;
                        let _proxy = (!distance.is_zero())
                            .then(|| through_proxy(&queue, distance))
                            .transpose()?;
                        let sent = queue.send(&gateway, CONCURRENCY)?;
                        let rate = sent.per_second_between();
                        if *idle == 0 {
                            without = rate;
                        }
                        rates.push(rate);
                        shares.push(rate / without);
                        let end_us = sent.sender.exited_us - sent.stats.last_answer_us;
                        ends.push(Duration::from_micros(end_us).as_secs_f64() * 1e3);
                    }
                }
                for (idle, rates, shares, ends) in &results {
                    table.add_row([
                        idle.to_string(),
                        place.clone(),
                        name.to_owned(),
                        rates.rates(),
                        shares.decimals(3),
                        ends.decimals(0),
                    ]);
                    json.push(json!({
                        "idle_campaigns": idle,
                        "engine": engine.name(),
                        "distance_ms": distance.as_millis(),
                        "program": name,
                        "messages_per_second": rates.json(),
                        "share_of_the_rate_without": shares.json(),
                        "last_response_to_exit_ms": ends.json(),
                    }));
                }
            }
        }
    }
    Ok(Report { table, json: Value::from(json) })
}

/// Adds campaigns without messages.
fn add_campaigns(engine: Engine, queue: &Queue, count: u32) -> anyhow::Result<()> {
    let mut shell = match engine {
        Engine::Sqlite => {
            let mut shell = std::process::Command::new("sqlite3");
            shell.arg(queue.url.trim_start_matches("sqlite://"));
            shell
        }
        Engine::Mariadb | Engine::Postgres => engine.shell(&queue.url),
    };
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut statements = shell.stdin.take().context("its input")?;
    let numbers: Vec<u32> = (0..count).collect();
    for numbers in numbers.chunks(1_000) {
        let rows: Vec<String> = numbers.iter().map(|number| format!("('idle-{number}')")).collect();
        writeln!(statements, "INSERT INTO campaign (name) VALUES {};", rows.join(", "))?;
    }
    drop(statements);
    ensure!(shell.wait()?.success(), "the campaigns could not be added");
    Ok(())
}

/// Lets the worker reach the database over a distance.
fn through_proxy(queue: &Queue, distance: Duration) -> anyhow::Result<Proxy> {
    let proxy = Proxy::start_away(&queue.url, distance)?;
    let settings = queue.workspace.path("smsq.toml");
    let text = std::fs::read_to_string(&settings)?;
    std::fs::write(&settings, text.replace(&queue.url, &proxy.url))?;
    Ok(proxy)
}
