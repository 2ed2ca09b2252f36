//! What is measured: the command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use comfy_table::{Table, presets};
use serde_json::Value;

use crate::engine::Engine;
use crate::results::option;
use crate::workspace::program;

const CONCURRENCIES: [u32; 4] = [16, 64, 256, 1_024];
const LATENCIES: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(100)];
/// The concurrency that is measured at every distance.
const USUAL: u32 = 64;
const ROUNDS: usize = 5;

/// One part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Matrix,
    Commits,
    InFlight,
    Workers,
    StartAndEnd,
    IdleCampaigns,
}

impl Part {
    pub(crate) const ALL: [Self; 6] = [
        Self::Matrix,
        Self::Commits,
        Self::InFlight,
        Self::Workers,
        Self::StartAndEnd,
        Self::IdleCampaigns,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Commits => "commits",
            Self::InFlight => "in-flight",
            Self::Workers => "workers",
            Self::StartAndEnd => "start-and-end",
            Self::IdleCampaigns => "idle-campaigns",
        }
    }
}

/// The result of a part.
pub(crate) struct Report {
    pub(crate) table: Table,
    pub(crate) json: Value,
}

pub(crate) struct Plan {
    pub(crate) engines: Vec<Engine>,
    /// The program, and another one in the same rounds.
    pub(crate) programs: Vec<PathBuf>,
    pub(crate) rounds: usize,
    /// Messages of each run, instead of as many as fit.
    pub(crate) messages: Option<u32>,
    parts: Vec<Part>,
    concurrencies: Vec<u32>,
    latencies: Vec<Duration>,
    limits: Vec<bool>,
    is_all: bool,
}

impl Plan {
    pub(crate) fn new(arguments: &[String]) -> anyhow::Result<Self> {
        let mut plan = Self {
            engines: Vec::new(),
            programs: [Some(program()?), option("--with")?].into_iter().flatten().collect(),
            rounds: ROUNDS,
            messages: None,
            parts: Vec::new(),
            concurrencies: Vec::new(),
            latencies: Vec::new(),
            limits: Vec::new(),
            is_all: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let value = arguments.next();
                value.with_context(|| format!("missing value of `{argument}`"))
            };
            match argument.as_str() {
                "--bench" => {}
                // Read by others.
                "--smsq" | "--with" | "--json" => drop(value()?),
                "--rounds" => plan.rounds = value()?.parse()?,
                "--messages" => plan.messages = Some(value()?.parse()?),
                name => plan.select(name)?,
            }
        }
        if plan.engines.is_empty() {
            plan.engines = Engine::ALL.to_vec();
        }
        Ok(plan)
    }

    fn select(&mut self, name: &str) -> anyhow::Result<()> {
        let engine = |engine: &Engine| engine.name().eq_ignore_ascii_case(name);
        if let Some(engine) = Engine::ALL.into_iter().find(engine) {
            self.engines.push(engine);
        } else if let Some(part) = Part::ALL.into_iter().find(|part| part.name() == name) {
            self.parts.push(part);
        } else if let Ok(concurrency) = name.replace(',', "").parse() {
            self.concurrencies.push(concurrency);
        } else if let Some(Ok(latency)) = name.strip_suffix("ms").map(str::parse) {
            self.latencies.push(Duration::from_millis(latency));
        } else {
            match name {
                "limit" => self.limits.push(true),
                "no-limit" => self.limits.push(false),
                "all" => self.is_all = true,
                _ => bail!(
                    "unknown selection `{name}`: use an engine (`sqlite`), a concurrency (`64`), a latency (`20ms`), \
                     `limit`, `no-limit`, `all`, or a part: {}",
                    Part::ALL.map(Part::name).join(", ")
                ),
            }
        }
        Ok(())
    }

    /// Whether a part is measured: the named ones; only the matrix if a cell of it is named; otherwise all.
    pub(crate) fn has(&self, part: Part) -> bool {
        if !self.parts.is_empty() {
            return self.parts.contains(&part);
        }
        part == Part::Matrix || !self.names_cells()
    }

    /// The programs with their names in the results.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let paths = self.programs.iter().map(PathBuf::as_path);
        ["smsq", "other"].into_iter().zip(paths)
    }

    fn names_cells(&self) -> bool {
        !self.concurrencies.is_empty() || !self.latencies.is_empty() || !self.limits.is_empty()
    }

    pub(crate) fn concurrencies(&self) -> Vec<u32> {
        or_default(&self.concurrencies, &CONCURRENCIES)
    }

    pub(crate) fn latencies(&self) -> Vec<Duration> {
        or_default(&self.latencies, &LATENCIES)
    }

    pub(crate) fn limits(&self) -> Vec<bool> {
        or_default(&self.limits, &[false, true])
    }

    /// Whether a cell of the matrix is measured. By default some of the distant gateways are left out, where smsq waits
    /// most of the time.
    pub(crate) fn has_cell(&self, concurrency: u32, latency: Duration) -> bool {
        self.is_all || self.names_cells() || latency.is_zero() || concurrency == USUAL
    }
}

pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table
}

fn or_default<T: Clone>(named: &[T], default: &[T]) -> Vec<T> {
    if named.is_empty() {
        return default.to_vec();
    }
    named.to_vec()
}

/// `20 ms`
pub(crate) fn millis(latency: Duration) -> String {
    format!("{} ms", latency.as_millis())
}
