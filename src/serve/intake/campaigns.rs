//! The campaigns that messages are posted to, remembered for a moment, and how many of their messages wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use smsq_operations::check_name;
use smsq_store::{Campaign, CampaignSettings, NewCampaign, Store};

use crate::problem::Problem;

/// How long what was read about a campaign is used.
const FRESH: Duration = Duration::from_secs(1);
/// More campaigns are read again each time.
const MAX_KNOWN: usize = 1_000;
/// What a client waits when too many messages of a campaign are due, in seconds.
const WAIT: u32 = 10;

/// A campaign, how many of its messages wait, and when that was read.
#[derive(Clone)]
struct OpenCampaign {
    campaign: Arc<Campaign>,
    waiting: u64,
    read_at: Instant,
}

/// Everybody who posts to a campaign while it is read waits for the same reading, and for no other.
type CampaignRead = Shared<BoxFuture<'static, Result<OpenCampaign, Problem>>>;

/// What clients may not exceed.
#[derive(Clone, Copy)]
pub(crate) struct IntakeLimits {
    /// Messages of a campaign that are due.
    pub(crate) max_waiting: u64,
    /// Campaigns, when one would be created.
    pub(crate) max_campaigns: u64,
}

pub(super) struct Campaigns {
    store: Store,
    limits: IntakeLimits,
    known: Mutex<HashMap<String, CampaignRead>>,
}

impl Campaigns {
    pub(super) fn new(store: Store, limits: IntakeLimits) -> Self {
        Self { store, limits, known: Mutex::default() }
    }

    /// The campaign of that name, which is created if it is missing. Fails while too many of its messages are due.
    /// Whether it is cancelled is decided by the transaction that adds messages.
    pub(super) async fn open(
        &self,
        name: &str,
        sender: Option<&str>,
    ) -> Result<Arc<Campaign>, Problem> {
        let open = self.reading(name, sender).await?;
        let campaign = open.campaign;
        if let Some(sender) = sender
            && campaign.sender.as_deref() != Some(sender)
        {
            return Err(Problem::invalid(format!(
                "invalid `from`: campaign `{name}` has another sender; \
                 `smsq set --campaign {name} --from SENDER` changes it"
            )));
        }
        if open.waiting >= self.limits.max_waiting {
            let status = http::StatusCode::TOO_MANY_REQUESTS;
            let detail = format!(
                "{} messages of campaign `{name}` wait to be sent: post more when there are fewer \
                 (`serve.max_waiting`)",
                open.waiting
            );
            return Err(Problem::new(status, detail).after(WAIT));
        }
        Ok(campaign)
    }

    /// The campaign of that name. Fails if it is missing, and there are too many to create it.
    pub(super) async fn find(&self, name: &str) -> Result<Option<Campaign>, Problem> {
        find(&self.store, name, self.limits).await
    }

    /// Reads a campaign again when it is opened next.
    pub(super) fn forget(&self, name: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(name);
    }

    /// The running reading of a campaign, a fresh one, or a new one.
    fn reading(&self, name: &str, sender: Option<&str>) -> CampaignRead {
        let is_usable = |reading: &&CampaignRead| match reading.peek() {
            None => true,
            Some(read) => read.as_ref().is_ok_and(|open| open.read_at.elapsed() < FRESH),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = known.get(name).filter(is_usable) {
            return reading.clone();
        }
        let new = NewCampaign {
            name: name.to_owned(),
            settings: CampaignSettings {
                sender: sender.map(str::to_owned),
                ..CampaignSettings::default()
            },
        };
        // A task, so that it ends also if all requests that wait for it are dropped.
        let task = tokio::spawn(read(self.store.clone(), new, self.limits));
        let reading =
            task.map(|read| read.unwrap_or_else(|_| Err(Problem::stopping()))).boxed().shared();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(name.to_owned(), reading.clone());
        reading
    }
}

async fn find(
    store: &Store,
    name: &str,
    limits: IntakeLimits,
) -> Result<Option<Campaign>, Problem> {
    let found = store.campaign(name).await?;
    if found.is_none() && store.count_campaigns().await? >= limits.max_campaigns {
        let most = limits.max_campaigns;
        let detail = format!(
            "there are {most} campaigns, so `{name}` is not created: `smsq purge --campaigns` removes those that are \
             done, `serve.max_campaigns` allows more"
        );
        return Err(Problem::new(http::StatusCode::TOO_MANY_REQUESTS, detail).after(WAIT));
    }
    Ok(found)
}

async fn read(
    store: Store,
    new: NewCampaign,
    limits: IntakeLimits,
) -> Result<OpenCampaign, Problem> {
    let now = store.now().await?;
    check_name(&store, &new.name).await?;
    let campaign = match find(&store, &new.name, limits).await? {
        Some(campaign) => campaign,
        None => store.open_campaign(&new, now).await?,
    };
    Ok(OpenCampaign {
        waiting: store.report().count_due(campaign.id, now, limits.max_waiting).await?,
        campaign: Arc::new(campaign),
        read_at: Instant::now(),
    })
}
