//! The campaigns that messages are posted to, remembered for a moment, and how many of their messages wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::import::Unique;
use crate::import::consumer::unique_in;
use crate::serve::problem::Problem;
use crate::sms::Timestamp;
use crate::store::{Campaign, CampaignStatus, NewCampaign, Store};

/// How long what was read about a campaign is used.
const FRESH: Duration = Duration::from_secs(1);
/// More campaigns are read again each time.
const MAX_KNOWN: usize = 1_000;
/// What a client waits when too many messages of a campaign are due, in seconds.
const WAIT: u32 = 10;

/// A campaign that takes messages.
#[derive(Clone)]
pub(super) struct OpenCampaign {
    pub(super) campaign: Campaign,
    pub(super) unique: Unique,
    read_at: Instant,
    waiting: u64,
}

pub(super) struct Campaigns {
    store: Store,
    max_waiting: u64,
    /// Each with a lock of its own, so that one is read once at a time and delays no other.
    known: Mutex<HashMap<String, Arc<KnownCampaign>>>,
}

type KnownCampaign = tokio::sync::Mutex<Option<OpenCampaign>>;

impl Campaigns {
    pub(super) fn new(store: Store, max_waiting: u64) -> Self {
        Self {
            store,
            max_waiting,
            known: Mutex::default(),
        }
    }

    /// The campaign of that name, which is created if it is missing. Fails if it is cancelled, and while too many of
    /// its messages are due.
    pub(super) async fn open(
        &self,
        name: &str,
        sender: Option<&str>,
    ) -> Result<OpenCampaign, Problem> {
        let name = name.trim();
        let known = self.known(name);
        let mut known = known.lock().await;
        let fresh = known.take().filter(|one| one.read_at.elapsed() < FRESH);
        let open = match fresh {
            Some(fresh) => fresh,
            None => self.read(name, sender).await?,
        };
        *known = Some(open.clone());
        drop(known);
        let campaign = &open.campaign;
        if campaign.state == CampaignStatus::Cancelled {
            let detail = format!(
                "campaign `{name}` is cancelled: nothing of it is sent until it is resumed"
            );
            return Err(Problem::new(http::StatusCode::CONFLICT, detail));
        }
        if let Some(sender) = sender
            && campaign.sender.as_deref() != Some(sender)
        {
            return Err(Problem::invalid(format!(
                "invalid `from`: campaign `{name}` has another sender; \
                 `smsq set --campaign {name} --from SENDER` changes it"
            )));
        }
        if open.waiting >= self.max_waiting {
            let status = http::StatusCode::TOO_MANY_REQUESTS;
            let detail = format!(
                "{} messages of campaign `{name}` wait to be sent: post more when there are fewer \
                 (`serve.max_waiting`)",
                open.waiting
            );
            return Err(Problem::new(status, detail).after(WAIT));
        }
        Ok(open)
    }

    fn known(&self, name: &str) -> Arc<KnownCampaign> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN && !known.contains_key(name) {
            known.clear();
        }
        Arc::clone(known.entry(name.to_owned()).or_default())
    }

    async fn read(&self, name: &str, sender: Option<&str>) -> Result<OpenCampaign, Problem> {
        let now = self.store.now().await?;
        let new = NewCampaign {
            name: name.to_owned(),
            sender: sender.map(str::to_owned),
            ..NewCampaign::default()
        };
        let campaign = self.store.open_campaign(&new, now).await?;
        let unique =
            unique_in(None, &campaign).map_err(|error| Problem::invalid(error.to_string()))?;
        Ok(OpenCampaign {
            waiting: self.waiting(&campaign, now).await?,
            campaign,
            unique,
            read_at: Instant::now(),
        })
    }

    async fn waiting(&self, campaign: &Campaign, now: Timestamp) -> Result<u64, Problem> {
        let most = self.max_waiting;
        Ok(self.store.count_due(campaign.id, now, most).await?)
    }
}
