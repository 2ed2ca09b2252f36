//! What an operator can change on the page of a campaign, after a question that names the campaign and the count.

use std::collections::BTreeMap;

use http::StatusCode;
use smsq_message::rate::Rates;
use smsq_message::sms::Class;
use smsq_message::text::{messages, printable_line};
use smsq_operations::{
    Actor, CampaignAction, ListSettings, OperationError, Permitted, SettledAs, approve, cancel,
    change_settings, change_state, limit, reject, retry_failed, retry_unknown, settle,
};
use smsq_store::report::Totals;
use smsq_store::{
    Campaign, CampaignChange, CampaignStatus, NamedMessages, RetryFilter, Store, StoreError,
};

use crate::problem::Problem;

/// A change of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Approve,
    Reject,
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
    /// The question must be answered again: what was entered is invalid, or there are other messages than it named.
    AskAgain(StatusCode, String),
    Operation(OperationError),
}

impl<E: Into<OperationError>> From<E> for ActionError {
    fn from(error: E) -> Self {
        Self::Operation(error.into())
    }
}

impl ActionError {
    fn invalid(problem: String) -> Self {
        Self::AskAgain(StatusCode::BAD_REQUEST, problem)
    }
}

impl Action {
    const ALL: [Self; 10] = [
        Self::Approve,
        Self::Reject,
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
            Self::Approve => "approve",
            Self::Reject => "reject",
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

    pub(super) fn of(name: &str) -> Result<Self, Problem> {
        Self::ALL
            .into_iter()
            .find(|action| action.as_str() == name)
            .ok_or_else(|| Problem::not_found("there is nothing at this address"))
    }

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Approve => "Approve",
            Self::Reject => "Reject",
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Rate => "Change the limit",
            Self::Retry => "Resend failed messages",
            Self::RetryUnknown => "Resend unknown messages",
            Self::SettleSent => "Mark unknown messages as sent",
            Self::SettleFailed => "Mark unknown messages as failed",
            Self::Cancel => "Cancel",
        }
    }

    /// Whether it only changes how queued messages are sent.
    pub(super) const fn is_for_unsent(self) -> bool {
        matches!(self, Self::Pause | Self::Rate)
    }

    /// Whether it cannot be undone, or may reach a phone twice.
    pub(super) const fn is_dangerous(self) -> bool {
        matches!(self, Self::RetryUnknown | Self::SettleFailed | Self::Cancel)
    }

    /// What it does with the campaign, for all doors alike.
    const fn operation(self) -> CampaignAction {
        match self {
            Self::Approve => CampaignAction::Approve,
            Self::Reject => CampaignAction::Reject,
            Self::Pause => CampaignAction::Pause,
            Self::Resume => CampaignAction::Resume,
            Self::Rate => CampaignAction::Set,
            Self::Retry => CampaignAction::Retry,
            Self::RetryUnknown => CampaignAction::RetryUnknown,
            Self::SettleSent | Self::SettleFailed => CampaignAction::Settle,
            Self::Cancel => CampaignAction::Cancel,
        }
    }

    /// Whether it is about what waits for approval.
    pub(super) const fn is_of_approval(self) -> bool {
        matches!(self, Self::Approve | Self::Reject)
    }

    /// Fails if it cannot be done with the campaign now.
    pub(super) fn check(self, campaign: &Campaign) -> Result<(), OperationError> {
        self.operation().check(campaign)
    }

    /// The changes that would do something. `is_approver`: the visitor can approve some of what waits.
    pub(super) fn possible(campaign: &Campaign, totals: &Totals, is_approver: bool) -> Vec<Self> {
        let fits = |action: &Self| {
            let has_messages = match action {
                Self::Approve | Self::Reject => is_approver,
                Self::Pause | Self::Resume | Self::Rate => true,
                Self::Retry => totals.failed > 0,
                Self::RetryUnknown | Self::SettleSent | Self::SettleFailed => totals.unknown > 0,
                Self::Cancel => totals.queued > 0,
            };
            has_messages && action.operation().permitted(campaign) == Permitted::Yes
        };
        Self::ALL.into_iter().filter(fits).collect()
    }

    /// The messages that the question names, if it is about those that there are now, as a text without blanks.
    pub(super) async fn named(
        self,
        store: &Store,
        campaign: &Campaign,
    ) -> Result<Option<String>, StoreError> {
        let counted = self.counted(store, campaign).await?;
        Ok(counted.map(|named| format!("{}-{}", named.count, named.newest)))
    }

    async fn counted(
        self,
        store: &Store,
        campaign: &Campaign,
    ) -> Result<Option<NamedMessages>, StoreError> {
        Ok(match self {
            Self::Retry => Some(store.named_failed(campaign.id).await?),
            Self::RetryUnknown | Self::SettleSent | Self::SettleFailed => {
                Some(store.named_unknown(campaign.id).await?)
            }
            Self::Approve
            | Self::Reject
            | Self::Pause
            | Self::Resume
            | Self::Rate
            | Self::Cancel => None,
        })
    }

    /// Fails if there are other messages than the question named, or if it was not asked.
    async fn check_named(
        self,
        store: &Store,
        campaign: &Campaign,
        given: &BTreeMap<String, String>,
    ) -> Result<(), ActionError> {
        let Some(present) = self.counted(store, campaign).await? else {
            return Ok(());
        };
        let parse = |text: &String| {
            let (count, newest) = text.split_once('-')?;
            let (count, newest) = (count.parse().ok()?, newest.parse().ok()?);
            Some(NamedMessages { count, newest })
        };
        match given.get("named").and_then(parse) {
            Some(named) if present.count <= named.count && present.newest <= named.newest => Ok(()),
            named => {
                let problem = match named {
                    Some(named) => format!(
                        "There are other messages now than the {} that you were asked about: check the number, and \
                         confirm again.",
                        messages(named.count)
                    ),
                    None => "Check the number of messages, and confirm.".to_owned(),
                };
                Err(ActionError::AskAgain(StatusCode::CONFLICT, problem))
            }
        }
    }

    pub(super) fn question(self, campaign: &Campaign, totals: &Totals) -> String {
        let name = &campaign.name;
        let (queued, failed, unknown) =
            (messages(totals.queued), messages(totals.failed), messages(totals.unknown));
        match self {
            Self::Approve => {
                format!("Approve {queued} of `{name}`? Running workers will send them.")
            }
            Self::Reject => format!("Reject {queued} of `{name}`? They continue to wait."),
            Self::Pause => format!("Pause `{name}`? Its {queued} stay queued until it is resumed."),
            Self::Resume if campaign.state == CampaignStatus::Cancelled => format!(
                "Resume `{name}`, which was cancelled? It accepts new messages again. Its {} stay cancelled.",
                messages(totals.cancelled)
            ),
            Self::Resume if campaign.approval.has_waiting() => format!(
                "Resume `{name}`? Of its {queued}, some or all wait for approval, and are sent after it."
            ),
            Self::Resume => format!("Resume `{name}`? Running workers will send its {queued}."),
            Self::Rate => format!("Rate limit of `{name}`. The provider's limit also applies."),
            Self::Retry => format!(
                "Queue the failed messages of `{name}` again? Up to {failed}; expired ones are not included."
            ),
            Self::RetryUnknown => {
                format!("Queue {unknown} of `{name}` again whose outcome is unknown?")
            }
            Self::SettleSent => {
                format!(
                    "Record that the provider accepted {unknown} of `{name}` whose outcome is unknown?"
                )
            }
            Self::SettleFailed => format!(
                "Record that the provider never accepted {unknown} of `{name}` whose outcome is unknown?"
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
            Self::Cancel => Some("The messages stay cancelled even if the campaign is resumed."),
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
                label: "Such as `20/s` or `100/min,5000/day`, or `none` for no limit of its own"
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
                    field("class", "Only this class, such as `unavailable`"),
                    field("code", "Only this code of the provider"),
                ]
            }
            Self::Reject => vec![Field {
                name: "reason",
                label: "What has to be changed".to_owned(),
                value: given("reason").unwrap_or_default(),
                is_required: true,
            }],
            Self::Cancel => vec![Field {
                name: "name",
                label: format!("Enter `{}` to confirm", campaign.name),
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
        settings: &ListSettings,
        campaign: &Campaign,
        given: &BTreeMap<String, String>,
        who: &str,
    ) -> Result<String, ActionError> {
        self.check(campaign)?;
        self.check_named(store, campaign, given).await?;
        let actor = Actor::of_token(who);
        let name = &campaign.name;
        let text = |key: &str| given.get(key).map_or("", |text| text.trim());
        Ok(match self {
            Self::Approve => {
                approve(store, campaign, text("named"), &actor).await?;
                format!("Approved `{name}`. Running workers send its messages within seconds.")
            }
            Self::Reject => {
                let reason = printable_line(text("reason"));
                reject(store, campaign, &reason, &actor).await?;
                format!("Rejected `{name}`. Its messages continue to wait.")
            }
            Self::Pause => {
                change_state(store, campaign, self.operation(), &actor).await?;
                format!("Paused `{name}`. Running workers stop within seconds.")
            }
            Self::Resume => {
                change_state(store, campaign, self.operation(), &actor).await?;
                match campaign.state {
                    CampaignStatus::Cancelled => {
                        format!("Resumed `{name}`. Its cancelled messages stay cancelled.")
                    }
                    _ => format!("Resumed `{name}`."),
                }
            }
            Self::Rate => {
                let rate = limit(text("rate")).map_err(ActionError::invalid)?;
                let (done, change) = rate_change(name, rate);
                change_settings(store, settings, campaign, &change, &actor).await?;
                done
            }
            Self::Retry => {
                let filter = retry_filter(text("class"), text("code"))?;
                let moved = retry_failed(store, Some(campaign), filter, &actor).await?;
                format!("Queued {} of `{name}` again.", messages(moved))
            }
            Self::RetryUnknown => {
                let filter = RetryFilter::default();
                let moved = retry_unknown(store, Some(campaign), filter, &actor).await?;
                format!("Queued {} of `{name}` again.", messages(moved))
            }
            Self::SettleSent | Self::SettleFailed => {
                let settled = match self {
                    Self::SettleSent => SettledAs::Sent,
                    _ => SettledAs::Failed,
                };
                let count = settle(store, campaign, settled, None, &actor).await?;
                let (count, outcome) = (messages(count), settled.as_str());
                format!("Marked {count} of `{name}` as {outcome}.")
            }
            Self::Cancel => {
                if text("name") != name {
                    let problem = format!("Enter `{name}` to confirm that it is cancelled.");
                    return Err(ActionError::invalid(problem));
                }
                let cancelled = messages(cancel(store, campaign, &actor).await?);
                format!("Cancelled `{name}`: {cancelled} will not be sent.")
            }
        })
    }
}

/// What is said of a new rate limit, and the change.
fn rate_change(name: &str, rate: Rates) -> (String, CampaignChange) {
    let done = if rate.0.is_empty() {
        format!("Removed the rate limit of `{name}`.")
    } else {
        format!("Limited `{name}` to at most {rate}.")
    };
    (done, CampaignChange { rate: Some(rate), ..CampaignChange::default() })
}

/// Which failed messages are queued again: of this class, with this code; empty: of any.
fn retry_filter(class: &str, code: &str) -> Result<RetryFilter, ActionError> {
    let class = match class {
        "" => None,
        word => {
            let unknown = |_| ActionError::invalid(format!("unknown class `{word}`"));
            Some(word.parse::<Class>().map_err(unknown)?)
        }
    };
    let code = printable_line(code).into_owned();
    let code = Some(code).filter(|code| !code.is_empty());
    Ok(RetryFilter { class, code, ..RetryFilter::default() })
}
