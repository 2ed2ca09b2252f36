//! Approvals: large campaigns wait until a second person has looked at them.

use serde::{Deserialize, Deserializer};

use super::{Actor, CampaignAction, ListOptions, OperationError, Refused};
use crate::budget::{Budget, amount};
use crate::import::Summary;
use crate::store::{ApprovalResult, ApprovalState, ApprovalSubject, Campaign, Store};
use crate::text::{Hinted, messages};

/// Section `[approval]`: which campaigns wait for a second person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRules {
    /// Imports that give a campaign at least this number of messages; 0: none.
    pub from_messages: u64,
    /// Imports that cost at least this much; `None`: none.
    #[serde(deserialize_with = "cost")]
    pub from_cost: Option<Budget>,
}

fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Budget>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Budget::stored(&text).map_err(serde::de::Error::custom)
}

impl ApprovalRules {
    fn is_any(&self) -> bool {
        self.from_messages > 0 || self.from_cost.is_some()
    }

    /// Why a campaign with `total` messages needs approval after an import; `None`: it needs none. The price of the
    /// others is taken to be that of the imported ones.
    fn reason(&self, total: u64, summary: &Summary, currency: Option<&str>) -> Option<String> {
        if self.from_messages > 0 && total >= self.from_messages {
            let limit = self.from_messages;
            return Some(format!(
                "it has {}, and `approval.from_messages` is {limit}",
                messages(total)
            ));
        }
        let (limit, currency) = (self.from_cost.as_ref()?, currency?);
        let spent = u128::from(summary.cost.amount) * u128::from(total.max(summary.accepted))
            / u128::from(summary.accepted.max(1));
        let spent = i64::try_from(spent).unwrap_or(i64::MAX);
        // What is in another currency is not compared, so it needs approval.
        let is_cheap = limit.currency.eq_ignore_ascii_case(currency) && spent < limit.amount;
        (!is_cheap).then(|| {
            format!(
                "it costs about {}, and `approval.from_cost` is {limit}",
                amount(spent, currency)
            )
        })
    }
}

/// Why a list would have to be approved after its import.
pub(super) async fn expected(
    options: &ListOptions,
    known: Option<(&Store, &Campaign)>,
    (summary, currency): (&Summary, Option<&str>),
) -> Result<Option<String>, OperationError> {
    let rules = &options.settings.approval;
    let (mut total, mut was_needed) = (summary.accepted, false);
    if let Some((store, campaign)) = known {
        was_needed = campaign.approval.state != ApprovalState::NotNeeded;
        if rules.is_any() {
            total += store.report().totals(Some(campaign.id)).await?.imported;
        }
    }
    let again = || was_needed.then(|| format!("{} are added", messages(summary.accepted)));
    Ok(rules.reason(total, summary, currency).or_else(again))
}

/// Lets a campaign wait for approval before messages are added to it.
pub(super) async fn begin(
    options: &ListOptions,
    store: &Store,
    campaign: &Campaign,
    actor: &Actor,
) -> Result<(), OperationError> {
    if options.settings.approval.is_any() || campaign.approval.state != ApprovalState::NotNeeded {
        let reason = "messages are being added";
        store.want_approval(campaign.id, &actor.who, reason).await?;
    }
    Ok(())
}

/// Decides after an import whether a campaign has to be approved. Returns why, if it has.
pub(super) async fn end(
    options: &ListOptions,
    store: &Store,
    campaign: &Campaign,
    (summary, currency): (&Summary, Option<&str>),
    actor: &Actor,
) -> Result<Option<String>, OperationError> {
    let rules = &options.settings.approval;
    let was_needed = campaign.approval.state != ApprovalState::NotNeeded;
    if !rules.is_any() && !was_needed {
        return Ok(None);
    }
    let total = store.report().totals(Some(campaign.id)).await?.imported;
    let reason = match rules.reason(total, summary, currency) {
        Some(reason) => reason,
        None if was_needed => format!("{} were added", messages(summary.accepted)),
        None if store.lift_approval(campaign.id).await? => return Ok(None),
        None => "another import into it has not ended".to_owned(),
    };
    store
        .want_approval(campaign.id, &actor.who, &reason)
        .await?;
    Ok(Some(reason))
}

/// Fails if a campaign does not wait for approval, or if `actor` added messages or changed settings.
pub fn check_approver(campaign: &Campaign, actor: &Actor) -> Result<(), OperationError> {
    CampaignAction::Approve.check(campaign)?;
    if campaign.approval.wanted_by.contains(&actor.who) {
        return Err(Refused::OwnMessages {
            campaign: campaign.name.clone(),
            who: actor.who.clone(),
        }
        .into());
    }
    Ok(())
}

/// What is approved if a campaign is approved now, by this person.
pub async fn approval_subject(
    store: &Store,
    campaign: &Campaign,
    actor: &Actor,
) -> Result<ApprovalSubject, OperationError> {
    check_approver(campaign, actor)?;
    Ok(store.approval_subject(campaign.id).await?)
}

/// Approves the messages of a campaign. `fingerprint`: of what the person has looked at.
pub async fn approve(
    store: &Store,
    campaign: &Campaign,
    fingerprint: &str,
    actor: &Actor,
) -> Result<(), OperationError> {
    let subject = approval_subject(store, campaign, actor).await?;
    let name = &campaign.name;
    let detail = format!(
        "approved {} of campaign `{name}`",
        messages(subject.messages)
    );
    let verb = CampaignAction::Approve.as_str();
    let entry = actor.entry(store, verb, Some(name), detail).await?;
    let result = store.approve(campaign.id, fingerprint, &entry).await?;
    Ok(check(&result, campaign)?)
}

/// Says why the messages of a campaign are not approved: they continue to wait.
pub async fn reject(
    store: &Store,
    campaign: &Campaign,
    reason: &str,
    actor: &Actor,
) -> Result<(), OperationError> {
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(Hinted::new("missing reason", "say what has to be changed").into());
    }
    check_approver(campaign, actor)?;
    let name = &campaign.name;
    let reason = format!("not approved by {}: {reason}", actor.by);
    let entry = actor
        .entry(
            store,
            CampaignAction::Reject.as_str(),
            Some(name),
            reason.clone(),
        )
        .await?;
    let result = store.reject(campaign.id, &reason, &entry).await?;
    Ok(check(&result, campaign)?)
}

fn check(result: &ApprovalResult, campaign: &Campaign) -> Result<(), Refused> {
    let campaign = campaign.name.clone();
    match result {
        ApprovalResult::Done => Ok(()),
        ApprovalResult::NotWaiting => Err(Refused::NotWaiting { campaign }),
        ApprovalResult::Changed => Err(Refused::ChangedMeanwhile { campaign }),
    }
}
