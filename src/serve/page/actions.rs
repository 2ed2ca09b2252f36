//! What an operator can change on the page of a campaign, after a question that names the campaign and the count.

use std::collections::BTreeMap;

use crate::rate::Rates;
use crate::sms::Class;
use crate::store::report::Totals;
use crate::store::{Campaign, CampaignChange, CampaignStatus, RetryFilter, Store, StoreError};
use crate::text::{messages, printable_line};

/// A change of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Pause,
    Resume,
    Rate,
    Retry,
    RetryUnknown,
    SettleSent,
    SettleFailed,
    Cancel,
}

/// A field of the question.
#[derive(serde::Serialize)]
pub(super) struct Field {
    pub(super) name: &'static str,
    label: String,
    value: String,
    is_required: bool,
}

/// Why a change was not made.
pub(super) enum ActionError {
    /// What was entered.
    Invalid(String),
    Store(StoreError),
}

impl From<StoreError> for ActionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Action {
    const ALL: [Self; 8] = [
        Self::Pause,
        Self::Resume,
        Self::Rate,
        Self::Retry,
        Self::RetryUnknown,
        Self::SettleSent,
        Self::SettleFailed,
        Self::Cancel,
    ];

    /// The last part of its address.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Rate => "rate",
            Self::Retry => "retry",
            Self::RetryUnknown => "retry-unknown",
            Self::SettleSent => "settle-sent",
            Self::SettleFailed => "settle-failed",
            Self::Cancel => "cancel",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Rate => "Change the limit",
            Self::Retry => "Send the failed again",
            Self::RetryUnknown => "Send the unconfirmed again",
            Self::SettleSent => "Settle the unconfirmed as sent",
            Self::SettleFailed => "Settle the unconfirmed as failed",
            Self::Cancel => "Cancel",
        }
    }

    /// Whether it cannot be undone, or may reach a phone twice.
    pub(super) const fn is_dangerous(self) -> bool {
        matches!(self, Self::RetryUnknown | Self::SettleFailed | Self::Cancel)
    }

    /// The changes that make sense for a campaign.
    pub(super) fn possible(campaign: &Campaign, totals: &Totals) -> Vec<Self> {
        let is_cancelled = campaign.state == CampaignStatus::Cancelled;
        let fits = |action: &Self| match action {
            Self::Pause => matches!(
                campaign.state,
                CampaignStatus::Active | CampaignStatus::Stopped
            ),
            Self::Resume => campaign.state != CampaignStatus::Active,
            Self::Rate => !is_cancelled,
            Self::Retry => !is_cancelled && totals.failed > 0,
            Self::RetryUnknown => !is_cancelled && totals.unknown > 0,
            Self::SettleSent | Self::SettleFailed => totals.unknown > 0,
            Self::Cancel => !is_cancelled && totals.queued > 0,
        };
        Self::ALL.into_iter().filter(fits).collect()
    }

    pub(super) fn question(self, name: &str, totals: &Totals) -> String {
        let (queued, failed, unknown) = (
            messages(totals.queued),
            messages(totals.failed),
            messages(totals.unknown),
        );
        match self {
            Self::Pause => format!("Pause `{name}`? {queued} will wait until it is resumed."),
            Self::Resume => format!("Resume `{name}`? A running worker goes on with {queued}."),
            Self::Rate => format!("How fast may `{name}` be sent, besides the provider's limit?"),
            Self::Retry => format!(
                "Put the failed messages of `{name}` back into the queue? That is up to {failed}, \
                 without the expired ones."
            ),
            Self::RetryUnknown => {
                format!("Send the {unknown} of `{name}` that are not confirmed again?")
            }
            Self::SettleSent => {
                format!(
                    "Record that the provider accepted the {unknown} of `{name}` that are not confirmed?"
                )
            }
            Self::SettleFailed => format!(
                "Record that the provider never accepted the {unknown} of `{name}` that are not confirmed?"
            ),
            Self::Cancel => format!("Cancel `{name}`? {queued} will not be sent."),
        }
    }

    pub(super) const fn warning(self) -> Option<&'static str> {
        match self {
            Self::RetryUnknown => Some(
                "The provider may have accepted them: some recipients may get the text twice. \
                 Look them up at the provider first.",
            ),
            Self::SettleSent | Self::SettleFailed => Some("Look them up at the provider first."),
            Self::Cancel => Some("This cannot be undone."),
            _ => None,
        }
    }

    pub(super) fn fields(
        self,
        campaign: &Campaign,
        given: &BTreeMap<String, String>,
    ) -> Vec<Field> {
        let given = |name: &str| given.get(name).cloned();
        match self {
            Self::Rate => vec![Field {
                name: "rate",
                label: "Limit, such as 20/s or 100/min,5000/day; none: no limit of its own"
                    .to_owned(),
                value: given("rate").unwrap_or_else(|| {
                    if campaign.rate.0.is_empty() {
                        "none".to_owned()
                    } else {
                        campaign.rate.to_string()
                    }
                }),
                is_required: true,
            }],
            Self::Retry => {
                let field = |name: &'static str, label: &str| Field {
                    name,
                    label: label.to_owned(),
                    value: given(name).unwrap_or_default(),
                    is_required: false,
                };
                vec![
                    field("class", "Only this class, such as unavailable"),
                    field("code", "Only this code of the provider"),
                ]
            }
            Self::Cancel => vec![Field {
                name: "name",
                label: format!("Enter {} to confirm", campaign.name),
                value: String::new(),
                is_required: true,
            }],
            _ => Vec::new(),
        }
    }

    /// Makes the change; returns what was done.
    pub(super) async fn run(
        self,
        store: &Store,
        campaign: &Campaign,
        given: &BTreeMap<String, String>,
        who: &str,
    ) -> Result<String, ActionError> {
        let now = store.now().await?;
        let (id, name) = (campaign.id, &campaign.name);
        let text = |key: &str| given.get(key).map_or("", |text| text.trim());
        let code = printable_line(text("code")).into_owned();
        let by = |verb: &str| format!("{verb} by {who}");
        let done = match self {
            Self::Pause => {
                let (state, reason) = (CampaignStatus::Paused, by("paused"));
                store.set_campaign_state(id, state, Some(&reason)).await?;
                format!("Paused `{name}`. Running workers stop within seconds.")
            }
            Self::Resume => {
                let state = CampaignStatus::Active;
                store.set_campaign_state(id, state, None).await?;
                format!("Resumed `{name}`.")
            }
            Self::Rate => {
                let rate = match text("rate") {
                    "none" => Rates::default(),
                    rate => rate.parse().map_err(|error| {
                        ActionError::Invalid(format!("invalid limit `{rate}`: {error}"))
                    })?,
                };
                let change = CampaignChange {
                    rate: Some(rate.clone()),
                    ..CampaignChange::default()
                };
                store.change_campaign(id, &change).await?;
                if rate.0.is_empty() {
                    format!("`{name}` has no limit of its own any more.")
                } else {
                    format!("`{name}` is sent with at most {rate}.")
                }
            }
            Self::Retry => {
                let class = match text("class") {
                    "" => None,
                    word => Some(
                        word.parse::<Class>()
                            .map_err(|_| ActionError::Invalid(format!("unknown class `{word}`")))?,
                    ),
                };
                let filter = RetryFilter {
                    campaign_id: Some(id),
                    class,
                    code: Some(code).filter(|code| !code.is_empty()),
                    ..RetryFilter::default()
                };
                let moved = store.retry_failed(&filter, now).await?;
                format!("Put {} of `{name}` back into the queue.", messages(moved))
            }
            Self::RetryUnknown => {
                let filter = RetryFilter {
                    campaign_id: Some(id),
                    ..RetryFilter::default()
                };
                let moved = store.retry_unknown(&filter, now).await?;
                format!("Put {} of `{name}` back into the queue.", messages(moved))
            }
            Self::SettleSent | Self::SettleFailed => {
                let as_sent = self == Self::SettleSent;
                let settled = store.settle_unknown(id, as_sent, None, now).await?;
                let outcome = if as_sent { "sent" } else { "failed" };
                format!("Settled {} of `{name}` as {outcome}.", messages(settled))
            }
            Self::Cancel => {
                if text("name") != name {
                    let problem = format!("enter `{name}` to confirm that it is cancelled");
                    return Err(ActionError::Invalid(problem));
                }
                let (state, reason) = (CampaignStatus::Cancelled, by("cancelled"));
                store.set_campaign_state(id, state, Some(&reason)).await?;
                let cancelled = store.cancel_rows(id, now).await?;
                format!(
                    "Cancelled `{name}`: {} will not be sent.",
                    messages(cancelled)
                )
            }
        };
        store.record(who, self.as_str(), Some(name), &done).await?;
        Ok(done)
    }
}
