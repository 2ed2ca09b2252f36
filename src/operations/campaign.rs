//! Changes of a campaign: what is possible in which state, and the only way in which people change its state and
//! settings.

use smsq_message::budget::{Budget, amount};
use smsq_message::rate::{RateError, Rates};
use smsq_message::window::SendWindow;
use smsq_process::boxed;
use smsq_store::{
    BudgetChange, Campaign, CampaignChange, CampaignStatus, SettingChange, Store, WindowChange,
};

use super::campaign_action::{CampaignAction, Permitted, Refused, permit};
use super::list_settings::ListSettings;
use super::{Actor, OperationError, approval};

/// How often a change is tried again after another change of the same campaign came in between.
const TRIES: u32 = 3;

/// Pauses, resumes or cancels `campaign`, with its entry in the audit log; returns whether its state changed. If it
/// was changed since it was read, its present state decides. [`cancel`] also cancels the messages.
#[boxed]
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
#[boxed]
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
#[boxed]
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
    fn limit_is_a_list_of_rates_or_none() {
        let read = |text| limit(text).map(|rates| rates.to_string());
        assert_eq!(read("100/s,2000/day").as_deref(), Ok("100/s,2000/day"));
        assert_eq!(limit(" none "), Ok(Rates::default()));
        assert!(limit(" ").is_err());
        assert!(limit("fast").is_err());
    }
}
