//! Simulations of the sender with seeded faults, outages and crashes, in simulated time, and checks of the promises
//! after each run.

mod batches;
mod doubt;
mod faults;
mod history;
mod late_commits;
mod lookups;
mod provider;
mod receipts;
mod servers;
mod tests;
mod turns;
mod windows;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use smsq_message::phone::Countries;
use smsq_message::rate::Rates;
use smsq_message::sms::{NewSms, Timestamp};
use smsq_provider::Provider;
use smsq_store::report::{FailureState, Totals};
use smsq_store::{Access, CampaignFilter, ImportApproval, ImportBatch, NewCampaign, Store};
use tokio::sync::watch;

use super::AutoPauseConfig;
use super::clock::Clock;
use super::database::Database;
use super::provider_state::breaker;
use super::request::Transport;
use super::retry;
use super::telemetry::Progress;
use super::{Config, OnUnknown, RunSummary, SendError, Sender, Settings};

use history::{History, Place};

pub(super) use faults::{ClaimLog, DbFaults, SimClock};
pub(super) use provider::SimProvider;

/// So far in the future that no default date of the database is later.
const START: Timestamp = Timestamp::from_millis(4_000_000_000_000);
/// The longest that a simulated campaign may take.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// The provider's status lookup, where it has one.
const LOOKUP: &str = "
[lookup]
path = '/messages'
query = { to = '{{ phone }}' }
list = '/messages'
matches = { '/reference' = '{{ reference }}' }
message_id = '/id'
at = '/at'
more = '/next'
after = '2s'
absent_after = '30s'
horizon = '720h'
rate = '50/s'
";

/// A worker, its lifetime, and the faults of its host.
struct WorkerSpec {
    /// It is killed after this time; `None`: it works until the run ends.
    life: Option<Duration>,
    stopped: watch::Receiver<bool>,
    /// Kept, because a worker stops when the sender of its stop signal is dropped.
    _stop: watch::Sender<bool>,
    clock: SimClock,
    db_faults: Arc<DbFaults>,
    settings: Settings,
    rate: Rates,
}

/// A campaign, its database and its provider.
struct Simulation {
    world: Arc<SimProvider>,
    store: Store,
    campaign_id: i64,
    count: usize,
    settings: Settings,
    rate: Rates,
    log: ClaimLog,
    _folder: Option<tempfile::TempDir>,
    /// For the files of workers, where the database is on a server.
    _state_folder: tempfile::TempDir,
}

impl Simulation {
    async fn new(world: SimProvider, rate: &str, count: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("queue.db").display());
        Self { _folder: Some(folder), ..Self::new_on(&url, world, rate, count).await }
    }

    /// In an empty database.
    async fn new_on(url: &str, world: SimProvider, rate: &str, count: usize) -> Self {
        let store = Store::open(url, Access::Create).await.expect("a database");
        let state_folder = tempfile::tempdir().expect("a folder");
        let new = NewCampaign { name: "simulated".to_owned(), ..NewCampaign::default() };
        let campaign = store.open_campaign(&new, START).await.expect("a campaign");
        let simulation = Self {
            log: ClaimLog { began: world.began, ..ClaimLog::default() },
            world: Arc::new(world),
            store,
            campaign_id: campaign.id,
            count,
            settings: Settings { state_folder: Some(state_folder.path().to_owned()), ..settings() },
            rate: rate.parse().expect("a rate"),
            _folder: None,
            _state_folder: state_folder,
        };
        simulation.import(None).await;
        simulation
    }

    async fn import(&self, expires_at: Option<Timestamp>) {
        self.import_into(self.campaign_id, 0..self.count, START, expires_at).await;
    }

    async fn import_into(
        &self,
        campaign_id: i64,
        numbers: Range<usize>,
        due_at: Timestamp,
        expires_at: Option<Timestamp>,
    ) {
        let import_id = self
            .store
            .imports()
            .begin(campaign_id, "simulated.csv", "00", None, START)
            .await
            .expect("an import");
        let count = numbers.len() as u64;
        let batch = ImportBatch {
            import_id,
            campaign_id,
            now: START,
            due_at,
            expires_at,
            window: None,
            division: None,
            approval: ImportApproval::OneByOne(String::new()),
            rows: numbers.map(row).collect(),
            row_count: count,
            rejected: 0,
            last_line: count,
        };
        self.store.imports().enqueue(&batch).await.expect("queued");
    }

    /// A worker without faults.
    fn worker(&self) -> WorkerSpec {
        let (stop, stopped) = watch::channel(false);
        WorkerSpec {
            life: None,
            stopped,
            _stop: stop,
            clock: SimClock::right(self.world.began),
            db_faults: Arc::default(),
            settings: self.settings.clone(),
            rate: self.rate.clone(),
        }
    }

    /// Runs a worker for `life` and kills it then; `None`: until the run ends.
    async fn work(&self, life: Option<Duration>) -> Option<RunSummary> {
        self.work_as(WorkerSpec { life, ..self.worker() }).await
    }

    async fn work_as(&self, worker: WorkerSpec) -> Option<RunSummary> {
        let ended = self.try_work_as(worker).await?;
        Some(ended.expect("a run that ends well"))
    }

    async fn try_work_as(&self, worker: WorkerSpec) -> Option<Result<RunSummary, SendError>> {
        let provider = self.provider(&worker.rate);
        let transport = Transport::Simulated(Arc::clone(&self.world));
        let providers = BTreeMap::from([("world".to_owned(), Arc::new(provider))]);
        let lease = worker.settings.sender.lease;
        let sender = Sender::new(self.store.clone(), providers, worker.settings);
        let served = vec![(Arc::clone(&sender.providers["world"]), transport)];
        let mut database = Database::new(self.store.clone());
        database.faults = worker.db_faults;
        database.log = ClaimLog { lease, ..self.log.clone() };
        let progress = Arc::new(Progress::default());
        let run = async {
            let clock = Arc::new(Clock::simulated(worker.clock).await?);
            sender.run_with(served, database, clock, worker.stopped, progress, None).await
        };
        let ended = tokio::time::timeout(worker.life.unwrap_or(LONGEST), run).await;
        assert!(ended.is_ok() || worker.life.is_some(), "a run must end");
        ended.ok()
    }

    fn provider(&self, rate: &Rates) -> Provider {
        let limit = if rate.0.is_empty() { String::new() } else { format!("rate = '{rate}'") };
        let honoured_for = if self.world.honours_reference {
            format!("honoured_for = '{}s'", self.world.remembers.as_secs())
        } else {
            String::new()
        };
        let lookup = if self.world.lookups.is_some() { LOOKUP } else { "" };
        let section = format!(
            "kind = 'sandbox'\nurl = 'http://world.invalid/'\nbatch = {{ per_call = {} }}\n\
             honours_reference = {}\n{honoured_for}\n{limit}\nreceipts = {{ enabled = {} }}\n{lookup}",
            self.world.max_batch, self.world.honours_reference, self.world.has_receipts
        );
        let section: toml::Table = toml::from_str(&section).expect("a section");
        Provider::from_section("world", &section, &|_| None).expect("a provider")
    }

    async fn attempts_in_ledger(&self) -> u64 {
        let sent = self.store.report().sent(CampaignFilter::One(self.campaign_id), 0).await;
        sent.expect("counts").facts.attempts
    }

    /// Checks what must hold after every run: each message is in one table, no phone got a message twice, no window
    /// has too many starts, and the history has no other fault.
    async fn check(&self) -> Totals {
        let totals = self.store.report().totals(Some(self.campaign_id)).await.expect("totals");
        let placed = totals.queued
            + totals.sending
            + totals.sent
            + totals.failed
            + totals.unknown
            + totals.cancelled;
        assert_eq!(totals.imported, placed, "{totals:?}");
        let own: BTreeSet<String> = (0..self.count).map(|number| row(number).phone).collect();
        let delivered = self.world.delivered();
        let certain = delivered.keys().filter(|phone| own.contains(*phone)).count() as u64;
        let left = totals.unknown + totals.queued + totals.sending;
        assert!(
            (totals.sent..=totals.sent + left).contains(&certain),
            "{totals:?}: {certain} were delivered"
        );
        assert_eq!(self.faults().await, Vec::<String>::new(), "{totals:?}");
        totals
    }

    /// How many phones got a message more than once.
    async fn texted_twice(&self) -> usize {
        let faults = self.faults().await;
        faults.iter().filter(|fault| fault.contains("was texted")).count()
    }

    /// What must not have happened, by the history.
    async fn faults(&self) -> Vec<String> {
        let totals = self.store.report().totals(Some(self.campaign_id)).await;
        let totals = totals.expect("totals");
        self.history(totals).await.faults()
    }

    async fn history(&self, totals: Totals) -> History {
        let (starts, quiet_periods) = self.world.history();
        let imported: BTreeSet<String> = (0..self.count).map(|number| row(number).phone).collect();
        let mut places = Vec::new();
        let walk = self.store.report().failures(CampaignFilter::One(self.campaign_id)).await;
        let mut walk = walk.expect("a walk");
        loop {
            let page = self.store.report().next_failures(&mut walk, 1_000).await;
            let page = page.expect("a page");
            if page.is_empty() {
                break;
            }
            places.extend(page.into_iter().map(|failure| {
                let place = match failure.state {
                    FailureState::Unknown => Place::Unknown,
                    _ => Place::Failed,
                };
                (failure.phone, place)
            }));
        }
        let listed: BTreeSet<String> = places.iter().map(|(phone, _)| phone.clone()).collect();
        // The database counts how many of the others wait; if none waits, all were sent.
        let rest = if totals.queued + totals.sending == 0 { Place::Sent } else { Place::Waiting };
        let others = imported.difference(&listed);
        places.extend(others.map(|phone| (phone.clone(), rest)));
        let limits = self.rate.0.iter();
        History {
            starts,
            claims: self.log.claims.lock().expect("no panic").clone(),
            places,
            imported,
            limits: limits.map(|rate| (rate.limit.get() as usize, rate.window)).collect(),
            quiet_periods,
            lease: self.settings.sender.lease,
        }
    }
}

fn settings() -> Settings {
    Settings {
        routes: BTreeMap::new(),
        sender: Config {
            concurrency: 16,
            lease: Duration::from_secs(30),
            on_unknown: OnUnknown::Hold,
            max_per_recipient: Rates::default(),
        },
        retry: retry::Config {
            max_attempts: 8,
            first_wait: Duration::from_secs(5),
            max_wait: Duration::from_secs(600),
            max_retry_after: Duration::from_secs(3_600),
            give_up_after: Duration::from_secs(86_400),
        },
        breaker: breaker::Config {
            failures: 5,
            first_probe: Duration::from_secs(1),
            max_probe: Duration::from_secs(30),
        },
        auto_pause: AutoPauseConfig { window: 100, rejected: 50, unlisted: 20 },
        default_provider: Some("world".to_owned()),
        default_region: None,
        countries: Countries::default(),
        budgets: Arc::default(),
        prices: BTreeMap::new(),
        campaign: None,
        rate: None,
        limit: None,
        follow: false,
        wait: true,
        receipts: smsq_receipts::Config {
            wait: Duration::ZERO,
            no_report_after: Duration::from_secs(72 * 3_600),
        },
        state_folder: None,
    }
}

fn row(index: usize) -> NewSms {
    let phone = format!("+86138{index:08}");
    NewSms {
        line: index as u64 + 2,
        dedupe_key: phone.clone(),
        phone,
        content: "hello".to_owned(),
        params: "{}".to_owned(),
        segments: 1,
        replaces: None,
    }
}
