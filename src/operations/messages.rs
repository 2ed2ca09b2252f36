//! Changes of stored messages: failed and unknown ones are queued again, unknown ones are settled.

use smsq_message::sms::Timestamp;
use smsq_message::text::{Hinted, messages};
use smsq_process::boxed;
use smsq_store::{Campaign, RetryFilter, Store};

use super::campaign_action::CampaignAction;
use super::{Actor, OperationError};

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
#[boxed]
pub async fn retry_failed(
    store: &Store,
    campaign: Option<&Campaign>,
    filter: RetryFilter,
    actor: &Actor,
) -> Result<u64, OperationError> {
    let action = CampaignAction::Retry;
    let (filter, now) = checked(store, action, campaign, filter).await?;
    let audited = actor.audited(action.as_str(), campaign, requeued);
    Ok(store.retry_failed(&filter, now, audited).await?)
}

/// Puts unknown messages back into the queue like [`retry_failed`], with the same reference. They may arrive twice.
#[boxed]
pub async fn retry_unknown(
    store: &Store,
    campaign: Option<&Campaign>,
    filter: RetryFilter,
    actor: &Actor,
) -> Result<u64, OperationError> {
    let action = CampaignAction::RetryUnknown;
    let (filter, now) = checked(store, action, campaign, filter).await?;
    let audited = actor.audited(action.as_str(), campaign, requeued);
    Ok(store.retry_unknown(&filter, now, audited).await?)
}

fn requeued(count: u64) -> String {
    format!("put {} back into the queue", messages(count))
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
    Ok((RetryFilter { campaign_id, ..filter }, now))
}

/// Settles the unknown messages of a campaign, or those to one phone (E.164 with `+`); returns how many.
#[boxed]
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
    let audited = actor.audited(action.as_str(), Some(campaign), move |count| {
        format!("settled {} as {}", messages(count), settled.as_str())
    });
    Ok(store.settle_unknown(campaign.id, as_sent, phone, now, audited).await?)
}
