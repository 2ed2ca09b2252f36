//! What happens during a round, at random instants of its seed.

use std::io;
use std::time::{Duration, Instant};

use rand::RngExt;
use rustix::process::Signal;
use smsq_store::StoreError;
use tokio::task::JoinHandle;

use super::PROVIDERS;
use super::ProveError;
use super::child::Process;
use super::operators::{SWITCHED, import, words};
use super::proxy::Cut;
use super::world::{LEASE, World, now_micros};

/// The exit status of a command that ends in order.
const DOCUMENTED: [i32; 7] = [0, 1, 2, 3, 129, 130, 143];
/// How many commands of operators run at once.
const MAX_COMMANDS: usize = 3;
/// Faults end when this part of the messages has arrived, or when that takes too long.
const ENOUGH: f64 = 0.7;

/// A process is killed: its number, and when.
struct Kill {
    pid: u32,
    at: Instant,
}

pub(super) struct Chaos<'a> {
    world: &'a mut World,
    workers: Vec<Process>,
    commands: Vec<Process>,
    most_workers: usize,
    /// When connections to the database are accepted again.
    refused_until: Option<Instant>,
    /// When each gateway accepts connections again.
    closed_until: [Option<Instant>; 2],
    /// Killed workers whose messages are not reclaimed yet.
    kills: Vec<Kill>,
    /// Holds the lock of a SQLite file.
    lock: Option<JoinHandle<Result<(), StoreError>>>,
}

impl<'a> Chaos<'a> {
    pub(super) fn new(world: &'a mut World) -> Self {
        Self {
            most_workers: world.random.random_range(2..=4),
            world,
            workers: Vec::new(),
            commands: Vec::new(),
            refused_until: None,
            closed_until: [None; 2],
            kills: Vec::new(),
            lock: None,
        }
    }

    /// Plays the faults, then repairs everything and waits for all processes.
    pub(super) async fn run(mut self) -> Result<(), ProveError> {
        for _ in 0..self.most_workers {
            self.start_worker()?;
        }
        let messages: usize =
            self.world.campaigns.iter().map(|campaign| campaign.phones.len()).sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a count"
        )]
        let enough = (messages as f64 * ENOUGH) as usize;
        // At the limits half of the messages take about this long; faults take as long again.
        let usual = Duration::from_millis(messages as u64 * 10);
        let least = Instant::now() + usual / 4 + self.millis(200, 1_500);
        let latest = least + usual * 2 + self.millis(500, 5_000);
        while Instant::now() < least || Instant::now() < latest && self.arrivals() < enough {
            tokio::time::sleep(self.millis(20, 160)).await;
            self.world.update_logs()?;
            self.look_for_takeovers().await;
            self.repair(false)?;
            self.happen().await?;
            self.reap().await?;
        }
        self.calm_down().await
    }

    /// How many messages have arrived at all gateways.
    fn arrivals(&self) -> usize {
        let logs = self.world.logs.iter();
        logs.map(|file| file.log.arrivals.len()).sum()
    }

    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.world.random.random_range(least..most))
    }

    async fn calm_down(&mut self) -> Result<(), ProveError> {
        self.repair(true)?;
        if let Some((proxy, _)) = &self.world.proxy {
            self.world.tally.cuts -= proxy.forget_cuts().len() as u64;
        }
        for index in 0..self.workers.len() {
            if self.workers[index].awaits_takeover() {
                continue;
            }
            match self.world.random.random_range(0..3) {
                0 => self.kill_worker(index)?,
                1 => self.signal_worker(index, Signal::TERM)?,
                _ => {}
            }
        }
        // Workers may wait for what only an operator changes.
        self.wait_while(|chaos| chaos.commands.first()).await?;
        for index in 0..self.world.campaigns.len() {
            let campaign = &self.world.campaigns[index];
            let (name, limit) = (&campaign.name, campaign.limit);
            let (resume, cancel) = (format!("resume {name}"), format!("cancel {name}"));
            let set = format!("set {name} --window none --rate {limit}/s");
            self.must_succeed(&resume).await?;
            self.must_succeed(&set).await?;
            if self.world.operators.cancelled[index] && self.world.random.random_bool(0.3) {
                self.must_succeed(&cancel).await?;
            }
            for list in 0..2 {
                let line = import(&self.world.campaigns, index, list);
                self.must_succeed(&line).await?;
            }
        }
        if self.world.operators.has_pool {
            for sender in SWITCHED {
                let provider = PROVIDERS[0];
                let line = format!("set --sender {sender} on --provider {provider}");
                self.must_succeed(&line).await?;
            }
        }
        self.wait_for_takeovers().await?;
        self.wait_while(|chaos| chaos.workers.first()).await
    }

    /// Runs a command until it succeeds. A worker that is stopped until others send its messages may have locked what the
    /// command changes.
    async fn must_succeed(&mut self, line: &str) -> Result<(), ProveError> {
        let deadline = Instant::now() + self.world.patience;
        while self.world.try_command(line, &[0], deadline).await?.is_none() {
            self.repair(false)?;
        }
        Ok(())
    }

    /// Waits until none is left. As long as requests arrive at the gateways, the machine is only slow.
    async fn wait_while(
        &mut self,
        left: impl Fn(&Self) -> Option<&Process>,
    ) -> Result<(), ProveError> {
        let mut deadline = Instant::now() + self.world.patience;
        let mut arrived = 0;
        loop {
            self.reap().await?;
            self.world.update_logs()?;
            if self.world.arrived() > arrived {
                arrived = self.world.arrived();
                deadline = Instant::now() + self.world.patience;
            }
            let Some(process) = left(self) else {
                return Ok(());
            };
            if Instant::now() > deadline {
                let error = format!("{} does not end", process.name);
                self.world.errors.push(error);
                self.workers.clear();
                self.commands.clear();
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops a worker for longer than its lease, and where others may send its messages again, until they do.
    async fn stop_beyond_lease(&mut self) -> Result<(), ProveError> {
        let takeover = self.world.takeover().filter(|_| self.world.random.random_bool(0.5));
        let span = match takeover {
            Some(takeover) => takeover + self.millis(1_000, 4_000),
            None => LEASE + self.millis(300, 1_500),
        };
        let mut stopped = None;
        self.with_worker(|chaos, index| {
            stopped = Some(index);
            chaos.stop_worker(index, span)
        })?;
        let (Some(index), Some(_)) = (stopped, takeover) else {
            return Ok(());
        };
        let sql = format!(
            "SELECT concat_ws(' AND id = ', m.worker_id, m.id) AS value \
             FROM sms m JOIN worker w ON w.id = m.worker_id WHERE m.state = 1 AND w.pid = {}",
            self.workers[index].id()
        );
        // The database may be away.
        let claims = self.world.store.query(&sql).await.unwrap_or_default();
        if !claims.is_empty() {
            let taken_over = claims.join(" OR worker_id <> ");
            self.workers[index].taken_over = Some(format!(
                "SELECT concat_ws('', id) AS value FROM sms WHERE state = 1 AND (worker_id <> {taken_over})"
            ));
        }
        Ok(())
    }

    /// A stopped worker continues when another one sends a message that it had claimed: its late results must not count.
    async fn look_for_takeovers(&mut self) {
        for worker in &mut self.workers {
            let Some(sql) = worker.taken_over.as_ref().filter(|_| worker.stopped_until.is_some())
            else {
                continue;
            };
            // The database may be away.
            let sending = self.world.store.query(sql).await.unwrap_or_default();
            if !sending.is_empty() {
                worker.taken_over = None;
                worker.stopped_until = Some(Instant::now());
                let what = format!("{}: another worker sends its messages", worker.name);
                self.world.record(&what);
            }
        }
    }

    /// Waits until stopped workers have continued; another one runs meanwhile.
    async fn wait_for_takeovers(&mut self) -> Result<(), ProveError> {
        while self.workers.iter().any(Process::awaits_takeover) {
            if self.workers.iter().all(|worker| worker.stopped_until.is_some()) {
                self.start_worker()?;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.look_for_takeovers().await;
            self.repair(false)?;
            self.reap().await?;
        }
        Ok(())
    }

    async fn happen(&mut self) -> Result<(), ProveError> {
        match self.world.random.random_range(0..100) {
            0..8 => self.with_worker(Self::kill_worker)?,
            8..12 => self.stop_beyond_lease().await?,
            12..16 => {
                let span = self.millis(50, 1_500);
                self.with_worker(|chaos, index| chaos.stop_worker(index, span))?;
            }
            16..21 => self.with_worker(|chaos, index| chaos.signal_worker(index, Signal::TERM))?,
            21..23 => self.with_worker(|chaos, index| {
                // The second signal ends it at once.
                chaos.signal_worker(index, Signal::INT)?;
                chaos.signal_worker(index, Signal::TERM)
            })?,
            23..45 if self.workers.len() < self.most_workers => self.start_worker()?,
            45..50 if self.world.proxy.is_none() => self.lock_file(),
            45..48 => self.cut(Cut::BeforeCommit),
            48..51 => self.cut(Cut::InCommit),
            51..55 => self.cut(Cut::AfterCommit),
            55..58 => {
                let span = self.millis(100, 3_000);
                self.cut(Cut::Late(span));
            }
            58..60 => {
                let span = LEASE + self.millis(300, 2_000);
                self.cut(Cut::Late(span));
            }
            60..63 => {
                if let Some((proxy, _)) = &self.world.proxy {
                    proxy.cut_all();
                    self.world.tally.cuts += 1;
                    self.world.record("all connections are cut");
                }
            }
            63..66 => self.refuse(),
            66..71 if !self.world.doors.is_empty() => self.close_gateway(),
            71..90 if self.commands.len() < MAX_COMMANDS => {
                let unknown = self.world.unknown().await;
                let World { operators, random, campaigns, .. } = &mut *self.world;
                let line = operators.command(random, campaigns, &unknown);
                self.start_command(&line)?;
            }
            90..92 => {
                if let Some(command) = self.commands.last_mut() {
                    command.signal(Signal::KILL)?;
                    command.was_killed = true;
                    self.world.tally.kills += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Cuts all connections, and refuses new ones for a while.
    fn refuse(&mut self) {
        let span = self.millis(200, 1_500);
        if let Some((proxy, _)) = &self.world.proxy {
            proxy.refuse();
            self.world.tally.outages += 1;
            self.refused_until = Some(Instant::now() + span);
            let what = format!("connections are refused for {span:?}");
            self.world.record(&what);
        }
    }

    /// Cuts the connections to a gateway, and refuses new ones for a while: the other one gets its messages.
    fn close_gateway(&mut self) {
        let (span, index) = (self.millis(300, 3_000), self.world.random.random_range(0..2));
        let Some(door) = self.world.doors.get(index) else {
            return;
        };
        door.refuse();
        self.closed_until[index] = Some(Instant::now() + span);
        self.world.tally.outages += 1;
        let what = format!("`{}` is closed for {span:?}", PROVIDERS[index]);
        self.world.record(&what);
    }

    /// Does something with a random worker that is not stopped.
    fn with_worker(
        &mut self,
        something: impl FnOnce(&mut Self, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.workers.is_empty() {
            return Ok(());
        }
        let index = self.world.random.random_range(0..self.workers.len());
        if self.workers[index].stopped_until.is_none() {
            something(self, index)?;
        }
        Ok(())
    }

    fn start(&mut self, line: &str, through_proxy: f64) -> io::Result<Process> {
        let uses_proxy = self.world.random.random_bool(through_proxy);
        let mut environment = self.world.environment.clone();
        if let Some((_, url)) = self.world.proxy.as_ref().filter(|_| uses_proxy) {
            environment.database.clone_from(url);
        }
        let process = environment.start(&words(line))?;
        self.world.record(&format!("start {}", process.name));
        Ok(process)
    }

    fn start_worker(&mut self) -> io::Result<()> {
        let worker = self.start("send --yes", 0.7)?;
        self.workers.push(worker);
        Ok(())
    }

    fn start_command(&mut self, line: &str) -> io::Result<()> {
        let command = self.start(line, 0.5)?;
        self.commands.push(command);
        self.world.tally.commands += 1;
        Ok(())
    }

    fn kill_worker(&mut self, index: usize) -> io::Result<()> {
        let worker = &mut self.workers[index];
        if worker.was_killed {
            return Ok(());
        }
        worker.signal(Signal::KILL)?;
        worker.was_killed = true;
        let pid = worker.id();
        let what = format!("kill {}", worker.name);
        self.world.record(&what);
        self.world.tally.kills += 1;
        let at = Instant::now();
        self.kills.push(Kill { pid, at });
        Ok(())
    }

    fn signal_worker(&mut self, index: usize, signal: Signal) -> io::Result<()> {
        let worker = &mut self.workers[index];
        // Before that a signal ends it at once, which a kill tries.
        if worker.handles_signals() {
            worker.signal(signal)?;
            let what = format!("{signal:?} to {}", worker.name);
            self.world.record(&what);
            self.world.tally.signals += 1;
        }
        Ok(())
    }

    fn stop_worker(&mut self, index: usize, span: Duration) -> io::Result<()> {
        let worker = &mut self.workers[index];
        worker.stop()?;
        worker.stopped_until = Some(Instant::now() + span);
        worker.taken_over = None;
        let what = format!("stop {} for {span:?}", worker.name);
        self.world.record(&what);
        self.world.tally.stops += 1;
        Ok(())
    }

    fn cut(&mut self, cut: Cut) {
        if let Some((proxy, _)) = &self.world.proxy {
            proxy.cut(&[cut]);
            self.world.tally.cuts += 1;
            self.world.record(&format!("{cut:?}"));
        }
    }

    /// Another program holds the lock of the SQLite file for a while.
    fn lock_file(&mut self) {
        let is_locked = self.lock.as_ref().is_some_and(|lock| !lock.is_finished());
        if is_locked || self.world.store.file().is_none() {
            return;
        }
        let span = self.millis(100, 2_000);
        self.world.record(&format!("the file is locked for {span:?}"));
        self.world.tally.outages += 1;
        let store = self.world.store.clone();
        // In a task: the round continues meanwhile.
        self.lock = Some(tokio::spawn(async move { store.hold_lock(span).await }));
    }

    /// Repairs what is due, or everything except workers that others take over.
    fn repair(&mut self, all: bool) -> Result<(), ProveError> {
        let is_due =
            |until: Option<Instant>| until.is_some_and(|until| all || Instant::now() >= until);
        if is_due(self.refused_until) {
            self.refused_until = None;
            if let Some((proxy, _)) = &self.world.proxy {
                proxy.accept();
            }
        }
        for (until, door) in self.closed_until.iter_mut().zip(&self.world.doors) {
            if is_due(*until) {
                *until = None;
                door.accept();
            }
        }
        for worker in &mut self.workers {
            let is_due = match worker.stopped_until {
                Some(until) if worker.awaits_takeover() => Instant::now() >= until,
                until => is_due(until),
            };
            if is_due {
                worker.signal(Signal::CONT)?;
                worker.stopped_until = None;
                self.world.thaws.push(now_micros());
            }
        }
        Ok(())
    }

    /// Looks at the processes that have ended, and at the workers that were killed.
    async fn reap(&mut self) -> Result<(), ProveError> {
        for processes in [&mut self.workers, &mut self.commands] {
            let mut left = Vec::new();
            for mut process in processes.drain(..) {
                if !process.has_ended()? {
                    left.push(process);
                    continue;
                }
                let ending = process.ending()?;
                let what = format!("{} ended: {:?}", process.name, ending.code);
                self.world.record(&what);
                let is_expected = match ending.code {
                    Some(code) => DOCUMENTED.contains(&code),
                    None => process.was_killed,
                };
                if !is_expected || ending.stderr.contains("panicked") {
                    let error = format!("{what}: {}", ending.stderr.trim());
                    self.world.errors.push(error);
                }
            }
            *processes = left;
        }
        self.look_for_recoveries().await;
        Ok(())
    }

    /// A killed worker's messages are put right in the transaction that deletes its row.
    async fn look_for_recoveries(&mut self) {
        if self.kills.is_empty() {
            return;
        }
        let sql = "SELECT concat_ws('', pid) AS value FROM worker";
        // The database may be away.
        let Ok(workers) = self.world.store.query(sql).await else {
            return;
        };
        let tally = &mut self.world.tally;
        self.kills.retain(|kill| {
            let is_there = workers.contains(&kill.pid.to_string());
            if !is_there {
                tally.recovery = tally.recovery.max(kill.at.elapsed());
            }
            is_there
        });
    }
}
