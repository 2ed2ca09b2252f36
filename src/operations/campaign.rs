//! Changes of a campaign: what is possible in which state, and the only way in which people change its state and
//! settings.

use super::{Actor, ListSettings, OperationError, approval};
use crate::budget::{Budget, amount};
use crate::rate::{RateError, Rates};
use crate::store::{
    BudgetChange, Campaign, CampaignChange, CampaignStatus, SettingChange, Store, WindowChange,
};
use crate::window::SendWindow;

/// How often a change is tried again after another change of the same campaign came in between.
const TRIES: u32 = 3;

/// What people do with a campaign and its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CampaignAction {
    Pause,
    Resume,
    Cancel,
    /// Its limit, priority, provider, sender, window or budget.
    Set,
    /// Put failed messages back into the queue.
    Retry,
    /// Put unknown messages back into the queue.
    RetryUnknown,
    /// Decide what became of unknown messages.
    Settle,
    /// Let its messages start, after another person has looked at them.
    Approve,
    /// Say why they do not start.
    Reject,
}

/// Whether an action is possible in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permitted {
    Yes,
    /// The campaign is in the state that the action leads to.
    Already,
    /// With what cannot be done, as the end of a sentence.
    No(&'static str),
}

/// The table of all actions and states.
const fn permit(action: CampaignAction, state: CampaignStatus) -> Permitted {
    use CampaignAction::{
        Approve, Cancel, Pause, Reject, Resume, Retry, RetryUnknown, Set, Settle,
    };
    use CampaignStatus::{Active, Cancelled, Paused, Stopped, Unapproved};
    match (action, state) {
        (Pause, Active | Stopped | Unapproved)
        | (Resume, Paused | Stopped | Cancelled)
        | (
            Cancel | Set | Retry | RetryUnknown | Approve | Reject,
            Active | Paused | Stopped | Unapproved,
        )
        | (Settle, _) => Permitted::Yes,
        (Pause, Paused) | (Resume, Active) | (Cancel, Cancelled) => Permitted::Already,
        (Pause, Cancelled) => Permitted::No("it has no messages to pause"),
        (Approve | Reject, Cancelled) => Permitted::No("it does not wait for approval"),
        (Resume, Unapproved) => Permitted::No("its messages wait for approval"),
        (Set, Cancelled) => Permitted::No("its settings cannot be changed"),
        (Retry | RetryUnknown, Cancelled) => Permitted::No("its messages cannot be retried"),
    }
}

impl CampaignAction {
    /// The verb in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
            Self::Set => "set",
            Self::Retry => "retry",
            Self::RetryUnknown => "retry-unknown",
            Self::Settle => "settle",
            Self::Approve => "approve",
            Self::Reject => "reject",
        }
    }

    /// Whether it is possible for `campaign` in the state in which it was read. What waits can be approved in any state.
    pub const fn permitted(self, campaign: &Campaign) -> Permitted {
        match self {
            Self::Approve | Self::Reject if !campaign.approval.has_waiting() => {
                Permitted::No("it does not wait for approval")
            }
            _ => permit(self, campaign.state),
        }
    }

    /// Fails if it is not possible for `campaign` in the state in which it was read.
    pub fn check(self, campaign: &Campaign) -> Result<(), OperationError> {
        match self.permitted(campaign) {
            Permitted::No(_) if matches!(self, Self::Approve | Self::Reject) => {
                Err(OperationError::Refused(Refused::NotWaiting {
                    campaign: campaign.name.clone(),
                }))
            }
            Permitted::No(_) if campaign.state == CampaignStatus::Unapproved => {
                Err(OperationError::Refused(Refused::Unapproved {
                    campaign: campaign.name.clone(),
                }))
            }
            Permitted::No(reason) => Err(OperationError::Refused(Refused::Cancelled {
                campaign: campaign.name.clone(),
                reason,
            })),
            Permitted::Yes | Permitted::Already => Ok(()),
        }
    }

    /// The states in which it is possible.
    fn states(self) -> Vec<CampaignStatus> {
        let mut states = CampaignStatus::ALL.to_vec();
        states.retain(|state| permit(self, *state) == Permitted::Yes);
        states
    }

    /// The state that it leads to, and what is done to the campaign.
    const fn target(self) -> Option<(CampaignStatus, &'static str)> {
        match self {
            Self::Pause => Some((CampaignStatus::Paused, "paused")),
            Self::Resume => Some((CampaignStatus::Active, "resumed")),
            Self::Cancel => Some((CampaignStatus::Cancelled, "cancelled")),
            Self::Set
            | Self::Retry
            | Self::RetryUnknown
            | Self::Settle
            | Self::Approve
            | Self::Reject => None,
        }
    }
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("campaign `{campaign}` is cancelled: {reason}")]
    Cancelled { campaign: String, reason: &'static str },
    #[error("campaign `{campaign}` is not paused: its messages wait for approval")]
    Unapproved { campaign: String },
    #[error("campaign `{campaign}` does not wait for approval")]
    NotWaiting { campaign: String },
    #[error(
        "`{who}` added messages to campaign `{campaign}` or changed its settings, and cannot approve it"
    )]
    OwnMessages { campaign: String, who: String },
    #[error(
        "campaign `{campaign}` has changed: it has other messages or settings than those that were looked at"
    )]
    ChangedMeanwhile { campaign: String },
    #[error("campaign `{campaign}` is {state}, and its state cannot be changed{reason}")]
    Unchangeable { campaign: String, state: &'static str, reason: String },
    #[error(
        "the name `{campaign}` belongs to schedule `{schedule}`, which alone adds messages to its campaigns"
    )]
    OfSchedule { campaign: String, schedule: String },
    #[error("campaign `{campaign}` has spent {spent}, which is more than a budget of {budget}")]
    Spent { campaign: String, budget: String, spent: String },
    #[error(
        "nothing would be sent: the window {window} opens at {opens_at}, after all messages of campaign `{campaign}` \
         have expired"
    )]
    OpensTooLate { campaign: String, window: String, opens_at: String },
}

impl Refused {
    /// New messages of a cancelled campaign.
    pub fn takes_no_messages(campaign: &str) -> Self {
        Self::Cancelled { campaign: campaign.to_owned(), reason: "it takes no messages" }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cancelled { campaign, .. } => Some(format!(
                "`smsq resume --campaign {campaign}` makes it active again; its cancelled messages stay cancelled"
            )),
            Self::Spent { campaign, .. } => {
                Some(format!("set a higher one, or `smsq pause --campaign {campaign}`"))
            }
            Self::Unapproved { campaign } => Some(format!(
                "another person looks at them with `smsq approve --campaign {campaign}`"
            )),
            Self::OfSchedule { schedule, .. } => {
                Some(format!("choose a name that does not begin with `{schedule}/`"))
            }
            Self::OwnMessages { .. } => Some("another person has to approve it".to_owned()),
            Self::ChangedMeanwhile { .. } => Some("look at it again".to_owned()),
            Self::NotWaiting { .. } | Self::Unchangeable { .. } | Self::OpensTooLate { .. } => None,
        }
    }
}

/// Pauses, resumes or cancels `campaign`, with its entry in the audit log; returns whether its state changed. If it
/// was changed since it was read, its present state decides. [`cancel`] also cancels the messages.
pub async fn change_state(
    store: &Store,
    campaign: &Campaign,
    action: CampaignAction,
    actor: &Actor,
) -> Result<bool, OperationError> {
    let Some((target, done)) = action.target() else {
        return Ok(false);
    };
    let reason = (target != CampaignStatus::Active).then(|| format!("{done} by {}", actor.by));
    let mut campaign = campaign.clone();
    for _ in 0..TRIES {
        action.check(&campaign)?;
        if permit(action, campaign.state) == Permitted::Already {
            return Ok(false);
        }
        let (id, name, verb) = (campaign.id, campaign.name.as_str(), action.as_str());
        let detail = format!("{done} campaign `{name}`");
        let entry = actor.entry(store, verb, Some(name), detail).await?;
        let (from, reason) = (action.states(), reason.as_deref());
        if store.change_campaign_state(id, &from, target, reason, Some(&entry)).await? {
            return Ok(true);
        }
        if let Some(present) = store.campaign(name).await? {
            campaign = present;
        }
    }
    let reason = campaign.state_reason.map(|reason| format!(": {reason}"));
    Err(OperationError::Refused(Refused::Unchangeable {
        campaign: campaign.name,
        state: campaign.state.as_str(),
        reason: reason.unwrap_or_default(),
    }))
}

/// Cancels `campaign` and its queued messages; returns how many will not be sent.
pub async fn cancel(
    store: &Store,
    campaign: &Campaign,
    actor: &Actor,
) -> Result<u64, OperationError> {
    // The state first: then running workers put no message back into the queue.
    change_state(store, campaign, CampaignAction::Cancel, actor).await?;
    Ok(store.cancel_rows(campaign.id, store.now().await?).await?)
}

/// Reads the limit of a campaign or worker, such as `100/s,5000/day`; `none` removes it.
pub fn limit(text: &str) -> Result<Rates, String> {
    match text.trim() {
        "none" => Ok(Rates::default()),
        "" => Err("write a limit such as `100/s`, or `none`".to_owned()),
        text => text.parse().map_err(|error: RateError| error.to_string()),
    }
}

/// Changes settings of `campaign`, with its entry in the audit log.
pub async fn change_settings(
    store: &Store,
    settings: &ListSettings,
    campaign: &Campaign,
    change: &CampaignChange,
    actor: &Actor,
) -> Result<(), OperationError> {
    if *change == CampaignChange::default() {
        return Ok(());
    }
    let action = CampaignAction::Set;
    action.check(campaign)?;
    if let WindowChange::Set(window) = &change.window {
        check_queued(store, campaign, window).await?;
    }
    if let BudgetChange::Set(budget) = &change.budget {
        check_spent(store, campaign, budget).await?;
    }
    let (name, verb) = (campaign.name.as_str(), action.as_str());
    let detail = format!("changed campaign `{name}`: {}", describe(change));
    let entry = actor.entry(store, verb, Some(name), detail).await?;
    let needed = approval::dearer(store, settings, campaign, change).await?;
    if store
        .change_campaign_in(campaign.id, &action.states(), change, needed.as_deref(), &entry)
        .await?
    {
        return Ok(());
    }
    if let Some(present) = store.campaign(name).await? {
        action.check(&present)?;
    }
    Err(OperationError::Refused(Refused::Unchangeable {
        campaign: campaign.name.clone(),
        state: campaign.state.as_str(),
        reason: String::new(),
    }))
}

/// Fails if a campaign has spent more than its new budget, as far as it is counted.
pub(super) async fn check_spent(
    store: &Store,
    campaign: &Campaign,
    budget: &Budget,
) -> Result<(), OperationError> {
    let spent = store.spent(campaign.id, &budget.currency).await?;
    let spent = spent.unwrap_or_default();
    if spent <= budget.amount {
        return Ok(());
    }
    Err(OperationError::Refused(Refused::Spent {
        campaign: campaign.name.clone(),
        budget: budget.to_string(),
        spent: amount(spent, &budget.currency),
    }))
}

/// The new settings, such as `at most 5/s, priority 3`.
fn describe(change: &CampaignChange) -> String {
    let rate = change.rate.as_ref().map(|rate| match rate.0.as_slice() {
        [] => "no limit of its own".to_owned(),
        _ => format!("at most {rate}"),
    });
    let priority = change.priority.map(|priority| format!("priority {priority}"));
    let provider = match &change.provider {
        SettingChange::Keep => None,
        SettingChange::Lift => Some("sent by the default provider".to_owned()),
        SettingChange::Set(provider) => Some(format!("sent by `{provider}`")),
    };
    let sender = match &change.sender {
        SettingChange::Keep => None,
        SettingChange::Lift => Some("the sender of the provider".to_owned()),
        SettingChange::Set(_) => Some("another sender".to_owned()),
    };
    let window = match &change.window {
        WindowChange::Keep => None,
        WindowChange::Lift => Some("no window".to_owned()),
        WindowChange::Set(window) => Some(window.describe()),
    };
    let budget = match &change.budget {
        BudgetChange::Keep => None,
        BudgetChange::Lift => Some("no budget".to_owned()),
        BudgetChange::Set(budget) => Some(format!("budget {budget}")),
    };
    let settings = [rate, priority, provider, sender, window, budget];
    settings.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Fails if all queued messages expire before the window opens.
async fn check_queued(
    store: &Store,
    campaign: &Campaign,
    window: &SendWindow,
) -> Result<(), OperationError> {
    let Some(span) = window.for_all(store.now().await?) else {
        return Ok(());
    };
    let is_queued = store.next_due(campaign.id).await?.is_some();
    let opens_at = span.opens_at;
    if !is_queued || store.has_unexpired_after(campaign.id, opens_at).await? {
        return Ok(());
    }
    Err(OperationError::Refused(Refused::OpensTooLate {
        campaign: campaign.name.clone(),
        window: window.describe(),
        opens_at: window.format_local(opens_at),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_resume_leads_out_of_the_cancelled_state() {
        use CampaignAction::{Cancel, Pause, Resume, Retry, RetryUnknown, Set, Settle};
        let cancelled = |action| permit(action, CampaignStatus::Cancelled);
        assert_eq!(cancelled(Resume), Permitted::Yes);
        assert_eq!(cancelled(Settle), Permitted::Yes);
        assert_eq!(cancelled(Cancel), Permitted::Already);
        for action in [Pause, Set, Retry, RetryUnknown] {
            assert!(matches!(cancelled(action), Permitted::No(_)), "{action:?}");
            assert!(!action.states().contains(&CampaignStatus::Cancelled));
        }
    }

    #[test]
    fn limit_is_a_list_of_rates_or_none() {
        let read = |text| limit(text).map(|rates| rates.to_string());
        assert_eq!(read("100/s,2000/day").as_deref(), Ok("100/s,2000/day"));
        assert_eq!(limit(" none "), Ok(Rates::default()));
        assert!(limit(" ").is_err());
        assert!(limit("fast").is_err());
    }

    #[test]
    fn nothing_is_refused_in_other_states() {
        use CampaignAction::{Cancel, Pause, Resume, Retry, RetryUnknown, Set, Settle};
        for action in [Pause, Resume, Cancel, Set, Retry, RetryUnknown, Settle] {
            for state in CampaignStatus::ALL {
                let is_refused = matches!(permit(action, state), Permitted::No(_));
                // What waits for approval is not resumed, but approved.
                let waits = action == Resume && state == CampaignStatus::Unapproved;
                assert_eq!(waits, state == CampaignStatus::Unapproved && is_refused);
                assert!(!is_refused || waits || state == CampaignStatus::Cancelled);
            }
        }
    }
}
