//! Changes of stored messages: failed and unknown ones are queued again, unknown ones are settled.

use super::{Actor, CampaignAction, OperationError};
use crate::sms::Timestamp;
use crate::store::{Campaign, RetryFilter, Store};
use crate::text::{Hinted, messages};

/// What became of unknown messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettledAs {
    /// The provider accepted them.
    Sent,
    /// The provider never accepted them.
    Failed,
}

impl SettledAs {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
        }
    }
}

/// Puts failed messages back into the queue, of `campaign` or of all that are not cancelled; returns how many. They
/// get a new reference and all attempts.
pub async fn retry_failed(
    store: &Store,
    campaign: Option<&Campaign>,
    filter: RetryFilter,
    actor: &Actor,
) -> Result<u64, OperationError> {
    let action = CampaignAction::Retry;
    let (filter, now) = checked(store, action, campaign, filter).await?;
    let moved = store.retry_failed(&filter, now).await?;
    record_retry(store, action, campaign, moved, actor).await
}

/// Puts unknown messages back into the queue like [`retry_failed`], with the same reference. They may arrive twice.
pub async fn retry_unknown(
    store: &Store,
    campaign: Option<&Campaign>,
    filter: RetryFilter,
    actor: &Actor,
) -> Result<u64, OperationError> {
    let action = CampaignAction::RetryUnknown;
    let (filter, now) = checked(store, action, campaign, filter).await?;
    let moved = store.retry_unknown(&filter, now).await?;
    record_retry(store, action, campaign, moved, actor).await
}

/// The filter with the campaign, and the time. Fails if the campaign is cancelled, or if the messages would expire at
/// once.
async fn checked(
    store: &Store,
    action: CampaignAction,
    campaign: Option<&Campaign>,
    filter: RetryFilter,
) -> Result<(RetryFilter, Timestamp), OperationError> {
    if let Some(campaign) = campaign {
        action.check(campaign)?;
    }
    let now = store.now().await?;
    if filter.expires_at.is_some_and(|at| at <= now) {
        return Err(Hinted::plain("invalid expiry: it is in the past").into());
    }
    let campaign_id = campaign.map(|campaign| campaign.id);
    Ok((
        RetryFilter {
            campaign_id,
            ..filter
        },
        now,
    ))
}

async fn record_retry(
    store: &Store,
    action: CampaignAction,
    campaign: Option<&Campaign>,
    moved: u64,
    actor: &Actor,
) -> Result<u64, OperationError> {
    if moved > 0 {
        let detail = format!("put {} back into the queue", messages(moved));
        let name = campaign.map(|campaign| campaign.name.as_str());
        actor.record(store, action.as_str(), name, detail).await?;
    }
    Ok(moved)
}

/// Settles the unknown messages of a campaign, or those to one phone (E.164 with `+`); returns how many.
pub async fn settle(
    store: &Store,
    campaign: &Campaign,
    settled: SettledAs,
    phone: Option<&str>,
    actor: &Actor,
) -> Result<u64, OperationError> {
    let action = CampaignAction::Settle;
    action.check(campaign)?;
    let (as_sent, now) = (settled == SettledAs::Sent, store.now().await?);
    let count = store
        .settle_unknown(campaign.id, as_sent, phone, now)
        .await?;
    if count > 0 {
        let detail = format!("settled {} as {}", messages(count), settled.as_str());
        let name = Some(campaign.name.as_str());
        actor.record(store, action.as_str(), name, detail).await?;
    }
    Ok(count)
}
