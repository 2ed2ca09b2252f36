//! Sends what is due until nothing is left to do. Each request gets a permit and is claimed in one
//! committed transaction before it starts, and its results are settled in another. The dispatcher does
//! both for all requests at once: what has finished while one transaction commits goes into the next.

pub mod auto_pause;
mod campaign_state;
mod clock;
mod commit;
mod context;
mod database;
mod dispatcher;
mod lease;
mod local_files;
mod lookup;
mod maintenance;
pub mod provider_state;
mod request;
mod telemetry;
mod window;

#[cfg(test)]
mod simulation;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use smsq_lifecycle::retry;
use smsq_message::budget::BudgetRules;
use smsq_message::phone::{Countries, Region};
use smsq_message::prices::Prices;
use smsq_message::rate::Rates;
use smsq_message::route::Route;
use smsq_metrics::Metrics;
use smsq_process::identity;
use smsq_provider::Provider;
use smsq_provider::client::{Client, ClientError};
use smsq_receipts::ReceiptPuller;
use smsq_store::{Campaign, CampaignStatus, Mode, Store, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use clock::Clock;
use database::Database;
use dispatcher::Dispatcher;
use request::Transport;

pub use auto_pause::Config as AutoPauseConfig;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use local_files::journal::fuzz_journal;
pub use local_files::left::{LeftError, settle_ended, settle_file};
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use local_files::marks::fuzz_marks;
pub use smsq_message::activity::Bottleneck;
pub use telemetry::{MessageEvent, Progress};

/// Section `[sender]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Requests in flight at once, over all providers.
    pub concurrency: u32,
    /// A worker whose heartbeat is older than this is dead; at least 5 s.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub lease: Duration,
    pub on_unknown: OnUnknown,
    /// How many messages one phone may get, over all campaigns and workers.
    pub max_per_recipient: Rates,
}

/// What happens to a message that was perhaps accepted, where the provider has no status lookup and
/// does not accept one message per reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnknown {
    /// It stays unknown: at most once.
    Hold,
    /// It is sent again with the same reference: at least once.
    Resend,
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub sender: Config,
    pub retry: retry::Config,
    pub breaker: provider_state::breaker::Config,
    pub auto_pause: AutoPauseConfig,
    /// The provider or route of campaigns that name none.
    pub default_provider: Option<String>,
    /// By name. A provider with a pool of senders is a route, too.
    pub routes: BTreeMap<String, Arc<Route>>,
    /// The region of phones without a country code, in rows that other programs inserted.
    pub default_region: Option<Region>,
    /// Rows that other programs inserted get no message in other countries.
    pub countries: Countries,
    pub budgets: Arc<BudgetRules>,
    /// What a segment costs, by provider.
    pub prices: BTreeMap<String, Prices>,
    /// Only this campaign.
    pub campaign: Option<String>,
    /// A limit of this run, in addition to every provider's own.
    pub rate: Option<Rates>,
    /// Claim this many messages and end.
    pub limit: Option<u64>,
    /// Wait for more when all is done.
    pub follow: bool,
    /// Wait for windows to open, and for messages that are due later than any retry.
    pub wait: bool,
    pub receipts: smsq_receipts::Config,
    /// Where a worker writes results that its database server cannot store.
    pub state_folder: Option<PathBuf>,
}

/// What limited a run is known after this time.
const EXPLAINED_RUN: Duration = Duration::from_secs(5);

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// Nothing is left to do.
    #[default]
    Done,
    /// The limit of the run was reached.
    Limit,
    /// By the stop signal, after running requests were settled.
    Stopped,
    /// Campaigns with messages left are paused or stopped: their names, and why.
    Halted(Vec<(String, String)>),
    /// The rest is due later, and the run does not wait: the campaigns, and until when, for people.
    Waiting(Vec<(String, String)>),
}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    pub ended: Ended,
    pub elapsed: Duration,
    pub attempts: u64,
    pub sent: u64,
    pub failed: u64,
    pub unknown: u64,
    pub retried: u64,
    /// Why nothing was accepted, although something was tried.
    pub trouble: Option<String>,
    /// What limited it, the longest first; empty: nothing did most of the time, or it was too short.
    pub bottlenecks: Vec<Bottleneck>,
}

impl RunSummary {
    /// Of a run that was stopped before it began.
    fn stopped() -> Self {
        Self { ended: Ended::Stopped, ..Self::default() }
    }
}

/// The output of `work`, or `None` if the run is stopped before it is ready.
async fn unless_stopped<T, E>(
    stop: &watch::Receiver<bool>,
    work: impl Future<Output = Result<T, E>>,
) -> Result<Option<T>, E> {
    let mut stop = stop.clone();
    tokio::select! {
        biased;
        // If the sender is gone, no one can stop it.
        Ok(_) = stop.wait_for(|stop| *stop) => Ok(None),
        done = work => done.map(Some),
    }
}

/// Why nothing could be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("unknown campaign `{0}`")]
    NoSuchCampaign(String),
    #[error("campaign `{0}` has no provider, and there is no `default_provider`")]
    NoProvider(String),
    #[error("campaign `{campaign}` is to be sent by `{provider}`, which is not configured")]
    UnknownProvider { campaign: String, provider: String },
    #[error(
        "the database takes {took:.1?} to commit a claim, and its messages may start within {within:?} only, half of \
         `sender.lease`: they went back into the queue; set `sender.lease` to more than twice as long as a commit takes"
    )]
    SlowCommits { took: Duration, within: Duration },
    #[error(
        "route `{route}` differs from that of worker {worker_id}, which is running: workers of one database need the same \
         `[routes.{route}]`; stop that worker, or use its configuration"
    )]
    OtherRoute { route: String, worker_id: i64 },
    #[error(
        "cannot write down which requests have started, and cannot remove the file that says so: {0}"
    )]
    Marks(String),
    #[error(
        "`{0}` has results of this database before it was moved or restored, or of another copy of it: where it was moved or \
         restored, run `smsq settle --journal {0}`, which stores them; where this is a copy, first run `smsq send` on the \
         original, or move the file away if it is a copy, too"
    )]
    OtherDatabase(String),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Sends campaigns.
pub struct Sender {
    store: Store,
    providers: BTreeMap<String, Arc<Provider>>,
    settings: Settings,
    metrics: Arc<Metrics>,
}

impl Sender {
    pub fn new(
        store: Store,
        providers: BTreeMap<String, Arc<Provider>>,
        mut settings: Settings,
    ) -> Self {
        for (name, provider) in &providers {
            if let Some(pool) = provider.senders() {
                let route = Arc::new(Route::of_pool(Arc::clone(pool)));
                settings.routes.insert(name.clone(), route);
            }
        }
        Self { store, providers, settings, metrics: Arc::default() }
    }

    /// What its messages are for.
    pub fn mode(&self) -> Mode {
        self.store.mode()
    }

    /// Whether a run has something to do even if nothing is queued: workers left files about the database on this host.
    pub async fn has_left_files(&self) -> Result<bool, StoreError> {
        local_files::left::has_files(&self.store, self.settings.state_folder.as_deref()).await
    }

    /// Adds what it does to these metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Sends until everything is done, or until `stop` is true; then settles running requests.
    pub async fn run(
        &self,
        stop: watch::Receiver<bool>,
        progress: Arc<Progress>,
        events: Option<mpsc::UnboundedSender<MessageEvent>>,
    ) -> Result<RunSummary, SendError> {
        identity::allow_open_files();
        let mut providers = Vec::new();
        for provider in self.providers.values() {
            let client = Client::new(provider)?;
            providers.push((Arc::clone(provider), Transport::Http(Arc::new(client))));
        }
        let Some(clock) = unless_stopped(&stop, Clock::of(self.store.clone())).await? else {
            return Ok(RunSummary::stopped());
        };
        let database = Database::new(self.store.clone());
        let (stop_pulling, stopped) = watch::channel(false);
        let puller = self.receipts(stopped)?;
        let mut pulling = JoinSet::new();
        if puller.can_pull() {
            pulling.spawn(puller.run());
        }
        let summary =
            self.run_with(providers, database, Arc::new(clock), stop, progress, events).await;
        stop_pulling.send_replace(true);
        // A panic in it has been logged. What it has read is stored; the rest is read again.
        let ended = async { while pulling.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(context::STOPPING_PATIENCE, ended).await;
        summary
    }

    /// What fetches the receipts of the providers.
    pub fn receipts(&self, stop: watch::Receiver<bool>) -> Result<ReceiptPuller, ClientError> {
        let receipts = &self.settings.receipts;
        let puller = ReceiptPuller::new(self.store.clone(), &self.providers, receipts, stop)?;
        let default = self.settings.default_provider.clone();
        let metrics = Arc::clone(&self.metrics);
        Ok(puller.with_default(default).with_metrics(metrics))
    }

    async fn run_with(
        &self,
        providers: Vec<(Arc<Provider>, Transport)>,
        database: Database,
        clock: Arc<Clock>,
        stop: watch::Receiver<bool>,
        progress: Arc<Progress>,
        events: Option<mpsc::UnboundedSender<MessageEvent>>,
    ) -> Result<RunSummary, SendError> {
        let began = tokio::time::Instant::now();
        let processors = identity::processor_times();
        let parts = dispatcher::Parts {
            database,
            providers,
            settings: self.settings.clone(),
            clock,
            stop: stop.clone(),
            progress: Arc::clone(&progress),
            metrics: Arc::clone(&self.metrics),
            events,
        };
        // A database that does not answer must not keep a stopped run.
        let beginning = Box::pin(async {
            self.activate_stopped().await?;
            self.check_providers().await?;
            Dispatcher::begin(parts).await
        });
        let Some(dispatcher) = unless_stopped(&stop, beginning).await? else {
            return Ok(RunSummary::stopped());
        };
        // In a task, which runs on the same thread as the requests that it starts. It ends with this run.
        let mut tasks = JoinSet::new();
        tasks.spawn(dispatcher.run());
        let joined = tasks.join_next().await.expect("it has one task");
        let ended = joined.unwrap_or_else(|error| resume_unwind(error.into_panic()))?;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let elapsed = began.elapsed();
        let waits = (elapsed >= EXPLAINED_RUN).then(|| progress.waits());
        let busy = identity::processor_times()
            .zip(processors)
            .map(|(after, before)| after.busy_since(before));
        Ok(RunSummary {
            ended,
            elapsed,
            bottlenecks: waits.map_or_else(Vec::new, |waits| waits.bottlenecks(busy)),
            attempts: read(&progress.attempts),
            sent: read(&progress.sent),
            failed: read(&progress.failed),
            unknown: read(&progress.unknown),
            retried: read(&progress.retried),
            trouble: progress.trouble(),
        })
    }

    /// Activates stopped campaigns: a new run means that the cause was removed.
    async fn activate_stopped(&self) -> Result<(), SendError> {
        for campaign in self.campaigns().await? {
            if campaign.state == CampaignStatus::Stopped {
                let (from, to) = ([CampaignStatus::Stopped], CampaignStatus::Active);
                self.store.change_campaign_state(campaign.id, &from, to, None, None).await?;
            }
        }
        Ok(())
    }

    /// Checks that every campaign with something to send has a configured provider.
    async fn check_providers(&self) -> Result<(), SendError> {
        let all = self.store.queued_campaigns().await?;
        let now = self.store.now().await?;
        self.store.hooks().watch(&all, now).await?;
        for queued in all {
            let (campaign, wanted) = (&queued.campaign, self.settings.campaign.as_ref());
            let is_wanted = wanted.is_none_or(|name| *name == campaign.name);
            if !is_wanted || !queued.is_unfinished() || !campaign.may_send() {
                continue;
            }
            let names = self.settings.providers_of(campaign);
            if names.is_empty() {
                return Err(SendError::NoProvider(queued.campaign.name));
            }
            let is_unknown = |name: &&&str| !self.providers.contains_key(**name);
            if let Some(provider) = names.iter().find(is_unknown) {
                return Err(SendError::UnknownProvider {
                    provider: (*provider).to_owned(),
                    campaign: campaign.name.clone(),
                });
            }
        }
        Ok(())
    }

    async fn campaigns(&self) -> Result<Vec<Campaign>, SendError> {
        let Some(name) = &self.settings.campaign else {
            return Ok(self.store.campaigns().await?);
        };
        match self.store.campaign(name).await? {
            Some(campaign) => Ok(vec![campaign]),
            None => Err(SendError::NoSuchCampaign(name.clone())),
        }
    }
}

impl Settings {
    /// The name of the provider or route of a campaign.
    fn provider_of<'a>(&'a self, campaign: &'a Campaign) -> Option<&'a str> {
        campaign.provider.as_deref().or(self.default_provider.as_deref())
    }

    /// The names of the providers that send a campaign: its own, or those of its route.
    fn providers_of<'a>(&'a self, campaign: &'a Campaign) -> Vec<&'a str> {
        let name = self.provider_of(campaign);
        match name.and_then(|name| self.routes.get(name)) {
            Some(route) => route.providers().collect(),
            None => name.into_iter().collect(),
        }
    }

    /// The route of a campaign whose messages are divided among senders.
    fn route_of(&self, campaign: &Campaign) -> Option<Arc<Route>> {
        let route = self.routes.get(self.provider_of(campaign)?)?;
        match &campaign.sender {
            None => Some(Arc::clone(route)),
            Some(_) if route.is_pool() => None,
            Some(from) => Some(Arc::new(route.with_sender(from))),
        }
    }

    /// The names of the routes that a provider is part of.
    fn routes_of(&self, provider: &str) -> BTreeSet<String> {
        let has = |route: &Route| route.providers().any(|name| name == provider);
        let routes = self.routes.iter().filter(|(_, route)| has(route));
        routes.map(|(name, _)| name.clone()).collect()
    }

    /// Whether a provider sends campaigns that name none.
    fn is_default(&self, provider: &str) -> bool {
        self.default_provider
            .as_ref()
            .is_some_and(|name| name == provider || self.routes_of(provider).contains(name))
    }
}
