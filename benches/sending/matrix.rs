//! The speed of `smsq send` and of the bare loop: on each engine, at several concurrencies, with and without a limit,
//! and with a gateway at several distances.

use std::time::Duration;

use comfy_table::Table;
use serde_json::{Value, json};

use crate::bare;
use crate::engine::Engine;
use crate::gateway::Gateway;
use crate::numbers::{per_second, say};
use crate::plan::{Plan, Report, millis, table};
use crate::queue::{Queue, Sent};
use crate::series::Series;

/// It never binds.
const RATE: &str = "1000000/s";
/// How long one run should take.
const SPAN: Duration = Duration::from_millis(2_500);
const MAX_MESSAGES: u32 = 60_000;
/// Messages of the run that shows how many a run of that length has.
const TRIAL: u32 = 5_000;

/// What is measured in the same rounds, together with the bare loop.
struct Cell {
    engine: Engine,
    concurrency: u32,
    latency: Duration,
}

/// One program, with or without a limit.
struct Contestant {
    program: usize,
    is_limited: bool,
    rates: Series,
    rates_between: Series,
    ratios: Series,
    cpu_us: Series,
    server_cpu_us: Series,
}

pub(crate) fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let mut header = vec!["sending", "in flight", "gateway", "limit"];
    header.extend(["messages/s", "bare loop", "ratio", "CPU µs", "server µs", "bare µs"]);
    if plan.programs.len() > 1 {
        header.extend(["other messages/s", "ratio", "CPU µs", "server µs", "other ÷ first"]);
    }
    let mut table = table(&header);
    let mut cells = Vec::new();
    for &engine in &plan.engines {
        for &latency in &plan.latencies() {
            for &concurrency in &plan.concurrencies() {
                let cell = Cell { engine, concurrency, latency };
                if plan.has_cell(concurrency, latency) {
                    cell.measure(plan, &mut table, &mut cells)?;
                }
            }
        }
    }
    Ok(Report { table, json: Value::from(cells) })
}

impl Cell {
    fn measure(&self, plan: &Plan, table: &mut Table, json: &mut Vec<Value>) -> anyhow::Result<()> {
        say(&format!(
            "sending on {}, {} in flight, gateway {}",
            self.engine.name(),
            self.concurrency,
            millis(self.latency)
        ));
        let most = self.most();
        let messages = match plan.messages {
            Some(messages) => messages,
            None => self.messages(plan, most)?,
        };
        let mut bare = (Series::default(), Series::default());
        let mut contestants: Vec<Contestant> = plan
            .limits()
            .into_iter()
            .flat_map(|is_limited| {
                (0..plan.programs.len()).map(move |program| (is_limited, program))
            })
            .map(|(is_limited, program)| Contestant {
                program,
                is_limited,
                rates: Series::default(),
                rates_between: Series::default(),
                ratios: Series::default(),
                cpu_us: Series::default(),
                server_cpu_us: Series::default(),
            })
            .collect();
        for round in 0..plan.rounds {
            let alone = || {
                let messages = plan.messages.unwrap_or(most);
                bare::measure(self.concurrency, self.latency, messages)
            };
            // The order alternates, so that a change of the machine's speed affects all.
            let first = (round % 2 == 0).then(alone).transpose()?;
            let mut sent = Vec::new();
            for index in 0..contestants.len() {
                let index = if round % 2 == 0 { index } else { contestants.len() - 1 - index };
                let contestant = &contestants[index];
                let program = &plan.programs[contestant.program];
                let rate = contestant.is_limited.then_some(RATE);
                let gateway = Gateway::start(self.latency)?;
                let queue = Queue::new(program, self.engine, messages, &gateway, rate)?;
                sent.push((index, queue.send(&gateway, self.concurrency)?));
            }
            let alone = first.map_or_else(alone, Ok)?;
            bare.0.push(alone.per_second);
            bare.1.push_us(alone.cpu);
            for (index, sent) in sent {
                contestants[index].add(&sent, alone.per_second);
            }
            for contestant in &contestants {
                let limit = if contestant.is_limited { ", with a limit" } else { "" };
                say(&format!(
                    "  {} of {}: {:.2}{limit}",
                    per_second(contestant.rates.last()),
                    per_second(alone.per_second),
                    contestant.ratios.last()
                ));
            }
        }
        for contestants in contestants.chunks(plan.programs.len()) {
            self.add_row(contestants, &bare, table);
            json.push(self.json(messages, contestants, &bare));
        }
        Ok(())
    }

    /// As many messages as the bare loop sends in a run.
    fn most(&self) -> u32 {
        let rounds = (3 * Duration::from_secs(1))
            .div_duration_f64(self.latency.max(Duration::from_micros(1)));
        let most = f64::from(self.concurrency) * rounds;
        if most < f64::from(MAX_MESSAGES) {
            format!("{most:.0}").parse().unwrap_or(MAX_MESSAGES)
        } else {
            MAX_MESSAGES
        }
    }

    /// As many messages as a run sends, found by a shorter one.
    fn messages(&self, plan: &Plan, most: u32) -> anyhow::Result<u32> {
        let gateway = Gateway::start(self.latency)?;
        let messages = most.min(TRIAL);
        let queue = Queue::new(&plan.programs[0], self.engine, messages, &gateway, None)?;
        let rate = queue.send(&gateway, self.concurrency)?.per_second_between();
        let count = (rate * SPAN.as_secs_f64()).min(f64::from(most));
        Ok(format!("{count:.0}").parse()?)
    }

    fn add_row(&self, contestants: &[Contestant], bare: &(Series, Series), table: &mut Table) {
        let limit = if contestants[0].is_limited { "1,000,000/s" } else { "none" };
        let mut row = vec![
            self.engine.name().to_owned(),
            self.concurrency.to_string(),
            millis(self.latency),
            limit.to_owned(),
        ];
        for (index, contestant) in contestants.iter().enumerate() {
            row.push(contestant.rates.rates());
            if index == 0 {
                row.push(bare.0.rates());
            }
            row.push(format!("{:.2}", contestant.ratios.median()));
            row.push(contestant.cpu_us.rounded());
            row.push(contestant.server_cpu_us.rounded());
            if index == 0 {
                row.push(bare.1.rounded());
            } else {
                let gain = contestant.rates.median() / contestants[0].rates.median();
                row.push(format!("{gain:.2}"));
            }
        }
        table.add_row(row);
    }

    fn json(&self, messages: u32, contestants: &[Contestant], bare: &(Series, Series)) -> Value {
        let programs: Vec<Value> = contestants.iter().map(Contestant::json).collect();
        json!({
            "engine": self.engine.name(),
            "concurrency": self.concurrency,
            "latency_ms": self.latency.as_secs_f64() * 1e3,
            "is_limited": contestants[0].is_limited,
            "messages": messages,
            "bare": { "per_second": bare.0.json(), "cpu_us": bare.1.json() },
            "smsq": programs[0],
            "other": programs.get(1),
        })
    }
}

impl Contestant {
    fn add(&mut self, sent: &Sent, alone: f64) {
        self.rates.push(sent.per_second());
        self.rates_between.push(sent.per_second_between());
        self.ratios.push(sent.per_second() / alone);
        self.cpu_us.push_us(sent.cpu());
        if let Some(cpu) = sent.server {
            self.server_cpu_us.push_us(cpu / sent.messages);
        }
    }

    fn json(&self) -> Value {
        json!({
            "per_second": self.rates.json(),
            "per_second_from_first_arrival_to_last_answer": self.rates_between.json(),
            "ratio": self.ratios.json(),
            "cpu_us": self.cpu_us.json(),
            "server_cpu_us": self.server_cpu_us.json(),
        })
    }
}
