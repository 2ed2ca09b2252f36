//! Approvals: large lists wait until a second person has looked at them, and so does what is added to their campaigns
//! or changed of them later.

use smsq_import::Summary;
use smsq_lifecycle::approval::{ApprovalRules, ListFacts};
use smsq_message::text::{Hinted, messages, segments};
use smsq_process::boxed;
use smsq_store::{
    ApprovalGate, ApprovalResult, ApprovalSubject, Campaign, CampaignChange, ImportApproval,
    ListApproval, SettingChange, Store, StoreError,
};

use super::campaign_action::{CampaignAction, Refused};
use super::list_settings::{ListPrices, ListSettings};
use super::{Actor, OperationError};

/// How many of the waiting messages of a campaign are priced, in pages, when it gets another provider.
const PRICED: u64 = 10_000;
const PAGE: usize = 1_000;

/// How the messages of a list wait while it is added, and the rules that decide when it is whole.
#[derive(Clone, Debug)]
pub struct ListGate {
    rules: ApprovalRules,
    pub approval: ImportApproval,
}

impl ListGate {
    /// Of a list with this identity that `who` adds. Without any rule its messages wait only in a guarded campaign.
    #[boxed]
    pub async fn of(
        store: &Store,
        rules: &ApprovalRules,
        identity: &str,
        who: &str,
    ) -> Result<Self, StoreError> {
        let list = ListApproval { hash: identity.to_owned(), who: who.to_owned() };
        Self::of_list(store, rules, list).await
    }

    /// The same of a batch.
    #[boxed]
    pub async fn of_batch(
        store: &Store,
        rules: &ApprovalRules,
        who: &str,
    ) -> Result<Self, StoreError> {
        Self::of_list(store, rules, ListApproval::of_batch(who)).await
    }

    async fn of_list(
        store: &Store,
        rules: &ApprovalRules,
        list: ListApproval,
    ) -> Result<Self, StoreError> {
        let rules = store.approval_rules().await?.with(rules);
        Ok(Self {
            approval: if rules.is_any() {
                ImportApproval::OfList(list)
            } else {
                ImportApproval::OneByOne(list.who)
            },
            rules,
        })
    }

    /// Of messages that `who` adds one by one: they wait only in a guarded campaign.
    pub fn one_by_one(who: &str) -> Self {
        Self { rules: ApprovalRules::default(), approval: ImportApproval::OneByOne(who.to_owned()) }
    }

    /// Decides whether the list, which is whole, has to be approved. Returns why, if it has.
    #[boxed]
    pub async fn decide(
        &self,
        store: &Store,
        campaign_id: i64,
        facts: &ListFacts,
    ) -> Result<Option<String>, StoreError> {
        let of_list = match &self.approval {
            ImportApproval::OfList(list) => {
                store.decide_list(campaign_id, list, &self.rules, facts).await?
            }
            ImportApproval::OneByOne(_) => None,
        };
        if of_list.is_some() {
            return Ok(of_list);
        }
        let gate = store.approval_gate(campaign_id).await?;
        let is_list = matches!(self.approval, ImportApproval::OfList(_));
        Ok(match gate {
            ApprovalGate::AllWait => Some("its settings were changed".to_owned()),
            gate if gate.is_guarded() && facts.accepted > 0 && !is_list => {
                Some(were_added(facts.accepted))
            }
            _ => None,
        })
    }
}

fn were_added(count: u64) -> String {
    format!("{} were added", messages(count))
}

/// A list as the rules ask for it.
pub(super) fn facts(summary: &Summary, currency: Option<&str>) -> ListFacts {
    ListFacts {
        accepted: summary.accepted,
        cost: summary.cost.amount,
        unpriced: summary.cost.unpriced,
        currency: currency.map(str::to_owned),
    }
}

/// Adds a message to the facts of a list that has no summary. `segments`: of its text.
pub fn add_message(facts: &mut ListFacts, prices: &ListPrices<'_>, phone: &str, segments: i32) {
    facts.accepted += 1;
    facts.currency = prices.currency();
    match prices.of(phone) {
        Some(price) => facts.cost += price * u64::from(segments.unsigned_abs().max(1)),
        None => facts.unpriced += 1,
    }
}

/// Why a list would have to be approved after its import.
pub(super) async fn expected(
    settings: &ListSettings,
    store: Option<&Store>,
    campaign: Option<&Campaign>,
    facts: &ListFacts,
) -> Result<Option<String>, OperationError> {
    let Some(store) = store else {
        return Ok(settings.approval.reason(facts.accepted, facts));
    };
    let rules = store.approval_rules().await?.with(&settings.approval);
    let mut total = facts.accepted;
    if let Some(campaign) = campaign {
        if campaign.approval.is_guarded() {
            return Ok((facts.accepted > 0).then(|| were_added(facts.accepted)));
        }
        let least = rules.least_total(facts).unwrap_or(0).saturating_sub(total);
        total += store.total(campaign.id, least).await?;
    }
    Ok(rules.reason(total, facts))
}

/// Why the waiting messages of a campaign need approval after a change, although nothing of it needed that yet: its new
/// provider costs more. Of many messages, the first are priced.
pub(super) async fn dearer(
    store: &Store,
    settings: &ListSettings,
    campaign: &Campaign,
    change: &CampaignChange,
) -> Result<Option<String>, StoreError> {
    let is_same = change.provider == SettingChange::Keep && change.sender == SettingChange::Keep;
    if is_same || campaign.approval.is_guarded() {
        return Ok(None);
    }
    let rules = store.approval_rules().await?.with(&settings.approval);
    if rules.from_cost.is_empty() {
        return Ok(None);
    }
    let changed =
        Campaign { settings: campaign.settings.clone().with(change.clone()), ..campaign.clone() };
    let prices = ListPrices::of_campaign(settings, &changed);
    let mut facts = ListFacts::default();
    let mut queue = store.report().queue(campaign.id, None).await?;
    while facts.accepted < PRICED {
        let page = store.report().next_queued(&mut queue, PAGE).await?;
        if page.is_empty() {
            break;
        }
        for sms in page {
            let counted = || segments::count(&sms.content).count;
            let segments = sms.segments.unwrap_or_else(counted);
            add_message(&mut facts, &prices, &sms.phone, segments);
        }
    }
    if facts.accepted == 0 {
        return Ok(None);
    }
    let least = rules.least_total(&facts).unwrap_or(0);
    let rules = ApprovalRules { from_messages: 0, ..rules };
    let total = store.total(campaign.id, least).await?;
    Ok(rules.reason(total, &facts))
}

/// What `actor` can approve of a campaign; an error if that is nothing.
#[boxed]
pub async fn approval_subject(
    store: &Store,
    campaign: &Campaign,
    actor: &Actor,
) -> Result<ApprovalSubject, OperationError> {
    CampaignAction::Approve.check(campaign)?;
    let subject = store.approval_subject(campaign.id, &actor.who).await?;
    check(&subject.result(), campaign, actor)?;
    Ok(subject)
}

/// Approves what `actor` can approve of a campaign. `fingerprint`: of what the person has looked at.
#[boxed]
pub async fn approve(
    store: &Store,
    campaign: &Campaign,
    fingerprint: &str,
    actor: &Actor,
) -> Result<(), OperationError> {
    let action = CampaignAction::Approve;
    action.check(campaign)?;
    let (verb, name) = (action.as_str(), &campaign.name);
    let entry = actor.entry(store, verb, Some(name), String::new()).await?;
    let result = store.approve(campaign.id, fingerprint, &entry).await?;
    Ok(check(&result, campaign, actor)?)
}

/// Says why what waits in a campaign is not approved: it continues to wait.
#[boxed]
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
    let action = CampaignAction::Reject;
    action.check(campaign)?;
    let reason = format!("not approved by {}: {reason}", actor.by);
    let (verb, name) = (action.as_str(), &campaign.name);
    let entry = actor.entry(store, verb, Some(name), reason.clone()).await?;
    let result = store.reject(campaign.id, &reason, &entry).await?;
    Ok(check(&result, campaign, actor)?)
}

/// Replaces the rules in the database by those of this process, which may be less strict.
#[boxed]
pub async fn replace_approval_rules(
    store: &Store,
    rules: &ApprovalRules,
    actor: &Actor,
) -> Result<(), OperationError> {
    let detail = format!("replaced the rules for approvals: {rules}");
    let entry = actor.entry(store, "rules", None, detail).await?;
    Ok(store.replace_approval_rules(rules, &entry).await?)
}

fn check(result: &ApprovalResult, campaign: &Campaign, actor: &Actor) -> Result<(), Refused> {
    let campaign = campaign.name.clone();
    match result {
        ApprovalResult::Done => Ok(()),
        ApprovalResult::NotWaiting => Err(Refused::NotWaiting { campaign }),
        ApprovalResult::Own => Err(Refused::OwnMessages { campaign, who: actor.who.clone() }),
        ApprovalResult::Changed => Err(Refused::ChangedMeanwhile { campaign }),
    }
}
