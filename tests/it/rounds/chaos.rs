//! What happens during a round, at random instants.

use std::fmt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::RngExt;
use rustix::process::Signal;

use super::operators::{self, words};
use super::verdict::Starts;
use super::{CAMPAIGN_LIMITS, CAMPAIGNS, LEASE, PATIENCE, World};
use crate::support::proxy::Cut;
use crate::support::running::Running;
use crate::support::server::Server;

/// The exit status of a command that ends in order.
const DOCUMENTED: [i32; 7] = [0, 1, 2, 3, 129, 130, 143];
/// So many requests arrive at each provider in a round, if that does not take too long.
const ARRIVALS: usize = 70;
/// How many commands of operators run at once.
const MAX_COMMANDS: usize = 4;

/// What happened, in one round or in several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) rounds: usize,
    pub(super) kills: usize,
    pub(super) freezes: usize,
    pub(super) signals: usize,
    pub(super) cuts: usize,
    pub(super) late: usize,
    pub(super) outages: usize,
    pub(super) crashes: usize,
    pub(super) commands: usize,
    pub(super) messages: usize,
    pub(super) accepted: usize,
    /// Messages that an operator had sent again.
    pub(super) twice_asked: usize,
    pub(super) unknown: usize,
    /// The most that started, and that arrived, in a second, in percent of a limit.
    pub(super) most_started: usize,
    pub(super) most_arrived: usize,
}

impl Tally {
    fn count_of(&mut self, cut: Cut) -> &mut usize {
        match cut {
            Cut::Late(_) => &mut self.late,
            Cut::BeforeCommit | Cut::AfterCommit => &mut self.cuts,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.kills += other.kills;
        self.freezes += other.freezes;
        self.signals += other.signals;
        self.cuts += other.cuts;
        self.late += other.late;
        self.outages += other.outages;
        self.crashes += other.crashes;
        self.commands += other.commands;
        self.messages += other.messages;
        self.accepted += other.accepted;
        self.twice_asked += other.twice_asked;
        self.unknown += other.unknown;
        self.most_started = self.most_started.max(other.most_started);
        self.most_arrived = self.most_arrived.max(other.most_arrived);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rounds, {} kills, {} freezes, {} signals, {} cuts, {} late commits, {} outages, {} crashes, \
             {} commands, {} messages, {} accepted, lost 0, twice 0 ({} asked for), {} unknown, at most {} % of a \
             limit started and {} % arrived in a second",
            self.rounds,
            self.kills,
            self.freezes,
            self.signals,
            self.cuts,
            self.late,
            self.outages,
            self.crashes,
            self.commands,
            self.messages,
            self.accepted,
            self.twice_asked,
            self.unknown,
            self.most_started,
            self.most_arrived,
        )
    }
}

/// A worker, or a command of an operator.
struct Process {
    line: String,
    running: Running,
    was_killed: bool,
    /// While it is frozen: until when.
    frozen_until: Option<Instant>,
}

/// What is repaired later.
enum Repair {
    Accept,
    ThawServer,
    Recover,
    /// Another program's transaction.
    Unlock(Child),
}

pub(super) struct Chaos<'a> {
    world: &'a mut World,
    server: Option<&'a mut Server>,
    workers: Vec<Process>,
    commands: Vec<Process>,
    repairs: Vec<(Instant, Repair)>,
    most_workers: usize,
    tally: Tally,
    starts: Starts,
    errors: Vec<String>,
}

impl<'a> Chaos<'a> {
    pub(super) fn new(world: &'a mut World, server: Option<&'a mut Server>) -> Self {
        Self {
            most_workers: world.random.random_range(2..=4),
            world,
            server,
            workers: Vec::new(),
            commands: Vec::new(),
            repairs: Vec::new(),
            tally: Tally {
                rounds: 1,
                ..Tally::default()
            },
            starts: Starts::default(),
            errors: Vec::new(),
        }
    }

    pub(super) fn run(&mut self) {
        let until = Instant::now() + self.world.millis(3_500, 6_000);
        for _ in 0..self.most_workers {
            self.start_worker();
        }
        // On a slow machine it takes longer until enough has happened.
        let latest = until + self.world.millis(0, 10_000);
        let is_enough = |world: &World| {
            (0..2).all(|provider| world.gateway.arrivals(provider).len() >= ARRIVALS)
        };
        while Instant::now() < until || Instant::now() < latest && !is_enough(self.world) {
            std::thread::sleep(self.world.millis(20, 160));
            self.repair(false);
            self.happen();
            self.reap();
        }
    }

    /// Repairs everything, ends the workers, and waits for all processes.
    pub(super) fn calm_down(mut self) -> Result<(Tally, Starts), String> {
        self.repair(true);
        if let Some(proxy) = &self.world.proxy {
            for cut in proxy.forget_cuts() {
                *self.tally.count_of(cut) -= 1;
            }
        }
        self.world.gateway.calm_down();
        for index in 0..self.workers.len() {
            match self.world.random.random_range(0..3) {
                0 => self.kill_worker(index),
                1 => self.signal(index, Signal::TERM),
                _ => {}
            }
        }
        // Workers may wait for what only the operator changes.
        self.await_commands()?;
        // A cancelled campaign has no settings to change, and an import resumes it with those that it had.
        for name in CAMPAIGNS {
            self.start_command(&words(&format!("resume {name}")));
        }
        self.await_commands()?;
        for (name, rate) in CAMPAIGNS.into_iter().zip(CAMPAIGN_LIMITS) {
            let any_time = format!("set {name} --window none --rate {rate}/s");
            self.start_command(&words(&any_time));
        }
        self.await_commands()?;
        for (campaign, name) in CAMPAIGNS.into_iter().enumerate() {
            let was_cancelled = self.world.asked.cancelled.contains(&campaign);
            if was_cancelled && self.world.chance(0.3) {
                self.start_command(&words(&format!("cancel {name}")));
            }
        }
        self.await_commands()?;
        for campaign in 0..CAMPAIGNS.len() {
            self.start_command(&operators::import(campaign, 0));
            self.start_command(&operators::import(campaign, 1));
        }
        self.await_all()?;
        if self.errors.is_empty() {
            return Ok((self.tally, self.starts));
        }
        Err(self.errors.join("; "))
    }

    fn await_commands(&mut self) -> Result<(), String> {
        self.wait_while(|chaos| chaos.commands.first())
    }

    fn await_all(&mut self) -> Result<(), String> {
        self.wait_while(|chaos| chaos.workers.iter().chain(&chaos.commands).next())
    }

    /// Waits until none is left.
    fn wait_while(&mut self, left: impl Fn(&Self) -> Option<&Process>) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.reap();
            let Some(process) = left(self) else {
                return Ok(());
            };
            if Instant::now() > deadline {
                return Err(format!("`{}` does not end", process.line));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn happen(&mut self) {
        let is_server = self.server.is_some();
        match self.world.random.random_range(0..100) {
            0..8 => self.with_worker(Self::kill_worker),
            8..13 => {
                let span = LEASE + self.world.millis(300, 1_500);
                self.with_worker(|chaos, index| chaos.freeze(index, span));
            }
            13..17 => {
                let span = self.world.millis(50, 1_500);
                self.with_worker(|chaos, index| chaos.freeze(index, span));
            }
            17..22 => self.with_worker(|chaos, index| chaos.signal(index, Signal::TERM)),
            22..24 => self.with_worker(|chaos, index| {
                chaos.signal(index, Signal::INT);
                std::thread::sleep(chaos.world.millis(5, 300));
                chaos.signal(index, Signal::INT);
            }),
            24..45 if self.workers.len() < self.most_workers => self.start_worker(),
            45..55 if !is_server => self.lock(),
            45..50 => self.cut(Cut::BeforeCommit),
            50..55 => self.cut(Cut::AfterCommit),
            55..58 => {
                let span = self.world.millis(100, 3_000);
                self.cut(Cut::Late(span));
            }
            58..60 => {
                let span = LEASE + self.world.millis(300, 2_000);
                self.cut(Cut::Late(span));
            }
            60..63 => {
                if let Some(proxy) = &self.world.proxy {
                    proxy.cut_all();
                    self.tally.cuts += 1;
                }
            }
            63..66 => self.refuse(),
            66..69 => self.freeze_server(),
            69..71 => self.crash(),
            71..92 if self.commands.len() < MAX_COMMANDS => {
                let line = operators::command(self.world);
                self.start_command(&line);
            }
            92..94 => {
                if let Some(mut command) = self.commands.pop() {
                    command.running.signal(Signal::KILL);
                    command.was_killed = true;
                    self.tally.kills += 1;
                    self.commands.push(command);
                }
            }
            _ => {}
        }
    }

    /// Does something with a random worker that is not frozen.
    fn with_worker(&mut self, something: impl FnOnce(&mut Self, usize)) {
        if self.workers.is_empty() {
            return;
        }
        let index = self.world.random.random_range(0..self.workers.len());
        if self.workers[index].frozen_until.is_none() {
            something(self, index);
        }
    }

    /// For a person who looks for a fault.
    fn note(&mut self, what: &str) {
        let now = jiff::Timestamp::now();
        self.world.history.push(format!("{now:.3} {what}"));
    }

    fn start(&mut self, line: &[String], is_direct: bool) -> Process {
        let world = &mut *self.world;
        let mut command = world.scratch.command(line.iter().map(String::as_str));
        if let Some(proxy) = world.proxy.as_ref().filter(|_| !is_direct) {
            command.env("SMSQ__DATABASE__URL", proxy.url(&world.db));
        }
        let running = world.scratch.start_command(command);
        let line = format!("{} {}", running.id(), line.join(" "));
        self.note(&format!("start {line}"));
        Process {
            line,
            running,
            was_killed: false,
            frozen_until: None,
        }
    }

    fn start_worker(&mut self) {
        let is_direct = self.world.chance(0.3);
        let worker = self.start(&words("send --yes"), is_direct);
        self.workers.push(worker);
    }

    fn start_command(&mut self, line: &[String]) {
        let is_direct = self.world.chance(0.5);
        let command = self.start(line, is_direct);
        self.commands.push(command);
        self.tally.commands += 1;
    }

    fn kill_worker(&mut self, index: usize) {
        self.note(&format!("kill {}", self.workers[index].line));
        self.workers[index].running.signal(Signal::KILL);
        self.workers[index].was_killed = true;
        self.tally.kills += 1;
    }

    fn signal(&mut self, index: usize, signal: Signal) {
        self.note(&format!("{signal:?} to {}", self.workers[index].line));
        let running = &mut self.workers[index].running;
        running.until_it_handles_signals();
        running.signal(signal);
        self.tally.signals += 1;
    }

    fn freeze(&mut self, index: usize, span: Duration) {
        self.note(&format!("freeze {} for {span:?}", self.workers[index].line));
        self.workers[index].running.freeze();
        self.workers[index].frozen_until = Some(Instant::now() + span);
        self.tally.freezes += 1;
    }

    fn cut(&mut self, cut: Cut) {
        if let Some(proxy) = &self.world.proxy {
            proxy.cut(&[cut]);
            *self.tally.count_of(cut) += 1;
            self.note(&format!("{cut:?}"));
        }
    }

    fn refuse(&mut self) {
        let span = self.world.millis(200, 1_500);
        self.note(&format!("connections are refused for {span:?}"));
        if let Some(proxy) = &self.world.proxy {
            proxy.refuse();
            self.repairs.push((Instant::now() + span, Repair::Accept));
            self.tally.outages += 1;
        }
    }

    fn is_server_down(&self) -> bool {
        self.repairs
            .iter()
            .any(|(_, repair)| matches!(repair, Repair::ThawServer | Repair::Recover))
    }

    fn freeze_server(&mut self) {
        let span = self.world.millis(200, 2_500);
        if self.is_server_down() {
            return;
        }
        self.note(&format!("the server freezes for {span:?}"));
        if let Some(server) = &mut self.server {
            server.freeze();
            self.repairs
                .push((Instant::now() + span, Repair::ThawServer));
            self.tally.outages += 1;
        }
    }

    fn crash(&mut self) {
        let span = self.world.millis(1, 1_000);
        if self.is_server_down() {
            return;
        }
        self.note(&format!("the server crashes, for {span:?}"));
        if let Some(server) = &mut self.server {
            server.crash();
            self.repairs.push((Instant::now() + span, Repair::Recover));
            self.tally.crashes += 1;
        }
    }

    /// Another program writes to the SQLite file for a while.
    fn lock(&mut self) {
        let span = self.world.millis(200, 2_500);
        let file = self.world.db.url.trim_start_matches("sqlite://").to_owned();
        self.note(&format!("the file is locked for {span:?}"));
        let shell = Command::new("sqlite3")
            .args(["-cmd", ".timeout 500", "-cmd", "BEGIN IMMEDIATE", &file])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the sqlite3 shell");
        self.repairs
            .push((Instant::now() + span, Repair::Unlock(shell)));
        self.tally.outages += 1;
    }

    /// Repairs what is due, or everything.
    fn repair(&mut self, all: bool) {
        let now = Instant::now();
        let repairs = std::mem::take(&mut self.repairs);
        for (at, repair) in repairs {
            if now < at && !all {
                self.repairs.push((at, repair));
                continue;
            }
            match (repair, &self.world.proxy, &mut self.server) {
                (Repair::Accept, Some(proxy), _) => proxy.accept(),
                (Repair::ThawServer, _, Some(server)) => server.thaw(),
                (Repair::Recover, _, Some(server)) => server.recover(),
                (Repair::Unlock(mut shell), ..) => {
                    drop(shell.stdin.take());
                    shell.wait().expect("its end");
                }
                _ => {}
            }
        }
        for worker in &mut self.workers {
            if worker.frozen_until.is_some_and(|until| now >= until || all) {
                worker.running.signal(Signal::CONT);
                worker.frozen_until = None;
            }
        }
    }

    /// Looks at the processes that have ended.
    fn reap(&mut self) {
        for processes in [&mut self.workers, &mut self.commands] {
            let mut left = Vec::new();
            for mut process in processes.drain(..) {
                if !process.running.has_ended() {
                    left.push(process);
                    continue;
                }
                let ran = process.running.ended();
                let (code, errors) = (ran.code(), ran.stderr());
                let now = jiff::Timestamp::now();
                let ended = format!("{now:.3} {} ended: {code:?}", process.line);
                self.world.history.push(ended);
                let is_expected = match code {
                    Some(code) => DOCUMENTED.contains(&code),
                    None => process.was_killed,
                };
                if !is_expected {
                    self.errors.push(format!("`{}`: {ran}", process.line));
                } else if errors.contains("panicked") {
                    self.errors
                        .push(format!("`{}` panicked: {ran}", process.line));
                }
                self.starts.read(&errors);
            }
            *processes = left;
        }
    }
}
