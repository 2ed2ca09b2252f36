//! Sends what is due until nothing is left to do: slots that each have one request in flight, and one clerk
//! that owns their database side.
//!
//! A message gets a permit from the pace and is claimed in one committed transaction, alone or with others
//! that go in the same request; only then does the request start; and what came of each is settled in another. The clerk does both for all slots at
//! once: whatever has ended or waits while one transaction commits goes into the next.

pub mod auto_pause;
mod batch;
pub mod breaker;
mod campaign_state;
mod clock;
mod commit;
mod database;
mod dispatcher;
mod journal;
mod lease;
mod lookup;
mod maintenance;
mod planner;
mod provider_state;
mod request;
mod results;
mod window;

#[cfg(test)]
mod simulation;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use crate::phone::Region;
use crate::provider::Provider;
use crate::provider::client::{Client, ClientError};
use crate::queue::retry;
use crate::rate::Rates;
use crate::store::{Campaign, CampaignStatus, Store, StoreError};
use clock::Clock;
use database::Database;
use dispatcher::Dispatcher;
use request::Transport;

pub use auto_pause::Config as AutoPauseConfig;

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
    /// How often one phone may be texted, over all campaigns and workers.
    pub max_per_recipient: Rates,
}

/// What happens to a message that was perhaps accepted, where the provider can neither be asked nor
/// honours references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnknown {
    /// It is parked and listed: at most once.
    Hold,
    /// It is sent again with the same reference: at least once.
    Resend,
}

/// How a run of the sender shall go.
#[derive(Clone, Debug)]
pub struct Settings {
    pub sender: Config,
    pub retry: retry::Config,
    pub breaker: breaker::Config,
    pub auto_pause: AutoPauseConfig,
    /// The provider of campaigns that name none.
    pub default_provider: Option<String>,
    /// Where phones without a country code are at home, in rows that other programs inserted.
    pub default_region: Option<Region>,
    /// Only this campaign.
    pub campaign: Option<String>,
    /// A limit of this run, beside every provider's own.
    pub rate: Option<Rates>,
    /// Claim so many messages and end.
    pub limit: Option<u64>,
    /// Wait for more when all is done.
    pub follow: bool,
    /// Wait for windows to open, and for what is due later than any retry.
    pub wait: bool,
    /// Where a worker whose server cannot be had leaves what it knows.
    pub state_folder: Option<PathBuf>,
}

/// What a run has done so far; anybody may look at it at any time.
#[derive(Debug, Default)]
pub struct Progress {
    /// Messages that reached their provider, and are in the ledger.
    pub sent: AtomicU64,
    pub failed: AtomicU64,
    pub unknown: AtomicU64,
    /// Messages of requests that were started.
    pub attempts: AtomicU64,
    /// Messages put back for another attempt.
    pub retried: AtomicU64,
    pub in_flight: AtomicU64,
    note: Mutex<Option<String>>,
    trouble: Mutex<Option<String>>,
    last_error: Mutex<Option<(std::time::Instant, String)>>,
}

impl Progress {
    /// What the operator should know now: a provider that is away, a database that is.
    pub fn note(&self) -> Option<String> {
        self.note.lock().map_or(None, |note| note.clone())
    }

    /// Why nothing was accepted in this run, while nothing was.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().map_or(None, |trouble| trouble.clone())
    }

    fn set_trouble(&self, trouble: Option<String>) {
        if let Ok(mut held) = self.trouble.lock() {
            *held = trouble;
        }
    }

    /// Why a message was not accepted last, and when.
    pub fn last_error(&self) -> Option<(std::time::Instant, String)> {
        self.last_error.lock().map_or(None, |last| last.clone())
    }

    fn set_last_error(&self, reason: &str) {
        if let Ok(mut held) = self.last_error.lock() {
            *held = Some((std::time::Instant::now(), reason.to_owned()));
        }
    }

    fn set_note(&self, note: Option<String>) {
        if let Ok(mut held) = self.note.lock() {
            *held = note;
        }
    }
}

/// One line of the running commentary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub sms_id: i64,
    /// Masked.
    pub phone: String,
    /// What happened and what will happen next, in the operator's words.
    pub what: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing is left to do.
    Done,
    /// As many messages were claimed as were asked for.
    Limit,
    /// By the stop signal; what was running is settled.
    Stopped,
    /// Campaigns with messages left must not go on: their names, and why.
    Halted(Vec<(String, String)>),
    /// What is left waits for its hour, and nobody wanted to: the campaigns, and until when, for people.
    Waiting(Vec<(String, String)>),
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub ended: Ended,
    pub elapsed: Duration,
    pub attempts: u64,
    pub sent: u64,
    pub failed: u64,
    pub unknown: u64,
    pub retried: u64,
    /// Why nothing was accepted, where something was tried and nothing was.
    pub trouble: Option<String>,
}

/// Why nothing could be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("there is no campaign `{0}`")]
    NoSuchCampaign(String),
    #[error("campaign `{0}` has no provider, and there is no `default_provider`")]
    NoProvider(String),
    #[error("campaign `{campaign}` is to be sent by `{provider}`, which is not configured")]
    UnknownProvider { campaign: String, provider: String },
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
}

impl Sender {
    pub fn new(store: Store, providers: BTreeMap<String, Provider>, settings: Settings) -> Self {
        let providers = providers
            .into_iter()
            .map(|(name, provider)| (name, Arc::new(provider)))
            .collect();
        Self {
            store,
            providers,
            settings,
        }
    }

    /// Sends until all is done, or until `stop` holds true; then what is running is settled.
    pub async fn run(
        &self,
        stop: watch::Receiver<bool>,
        progress: Arc<Progress>,
        events: Option<mpsc::UnboundedSender<Event>>,
    ) -> Result<Summary, SendError> {
        let concurrency = self.settings.sender.concurrency as usize;
        let mut transports = BTreeMap::new();
        for (name, provider) in &self.providers {
            let gateway = Client::new(provider, concurrency)?;
            transports.insert(name.clone(), Transport::Http(Arc::new(gateway)));
        }
        let clock = Arc::new(Clock::of(self.store.clone()).await?);
        let database = Database::new(self.store.clone());
        self.run_with(transports, (database, clock), stop, progress, events)
            .await
    }

    async fn run_with(
        &self,
        transports: BTreeMap<String, Transport>,
        (database, clock): (Database, Arc<Clock>),
        stop: watch::Receiver<bool>,
        progress: Arc<Progress>,
        events: Option<mpsc::UnboundedSender<Event>>,
    ) -> Result<Summary, SendError> {
        let began = tokio::time::Instant::now();
        self.clear_stops().await?;
        self.check_routes().await?;
        let parts = dispatcher::Parts {
            database,
            providers: self.providers.clone(),
            transports,
            settings: self.settings.clone(),
            clock,
            stop,
            progress: Arc::clone(&progress),
            events,
        };
        let ended = Dispatcher::begin(parts).await?.run().await?;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(Summary {
            ended,
            elapsed: began.elapsed(),
            attempts: read(&progress.attempts),
            sent: read(&progress.sent),
            failed: read(&progress.failed),
            unknown: read(&progress.unknown),
            retried: read(&progress.retried),
            trouble: progress.trouble(),
        })
    }

    /// To send again is to say that what stopped a campaign has been mended.
    async fn clear_stops(&self) -> Result<(), SendError> {
        for campaign in self.campaigns().await? {
            if campaign.state == CampaignStatus::Stopped {
                self.store
                    .set_campaign_state(campaign.id, CampaignStatus::Active, None)
                    .await?;
            }
        }
        Ok(())
    }

    /// Every campaign with something to send must have a provider that is configured.
    async fn check_routes(&self) -> Result<(), SendError> {
        for campaign in self.campaigns().await? {
            let unfinished = self.store.unfinished(campaign.id).await?;
            if campaign.state != CampaignStatus::Active || !(unfinished.ready || unfinished.sending)
            {
                continue;
            }
            match self.settings.provider_of(&campaign) {
                None => return Err(SendError::NoProvider(campaign.name)),
                Some(provider) if !self.providers.contains_key(provider) => {
                    return Err(SendError::UnknownProvider {
                        provider: provider.to_owned(),
                        campaign: campaign.name,
                    });
                }
                Some(_) => {}
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
    fn provider_of<'a>(&'a self, campaign: &'a Campaign) -> Option<&'a str> {
        campaign
            .provider
            .as_deref()
            .or(self.default_provider.as_deref())
    }
}
