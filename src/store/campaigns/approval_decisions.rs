//! What people decide about approvals: what waits in a campaign and for whom, and the rules that say which lists have to
//! wait.

use std::collections::BTreeSet;
use std::fmt;

use diesel::{delete, update};
use smsq_lifecycle::approval::{ApprovalRules, ApprovalState, ListFacts};
use smsq_message::budget::Budget;
use smsq_message::route::sender_pool::hash;
use smsq_message::sms::{LaneId, State, Timestamp};
use smsq_message::text::messages;
use smsq_process::boxed;

use super::approvals::{
    ApprovalGate, ListApproval, authors_of, gate, lane_of, lock, remove, summarize,
};
use super::campaign::SettingsColumns;
use crate::audit::AuditEntry;
use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, querying, transaction};
use crate::error::StoreError;
use crate::tables::schema::{
    approval, approval_rule, campaign, import, purged, sms, sms_failed, sms_sent,
};
use crate::tables::values::PLAIN;
use crate::{Store, positive, signed};

/// The messages of an approval are counted up to this number. Of more, it is known how many were added.
const COUNTED: i64 = 10_000;
/// The rules in table `approval_rule`; after this one follows the currency.
const FROM_MESSAGES: &str = "from_messages";
const FROM_COST: &str = "from_cost ";

/// Messages or settings that wait for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingApproval {
    id: i64,
    has_lane: bool,
    state: ApprovalState,
    pub reason: String,
    /// How many messages wait for it: all of the campaign where its settings were changed. Above 10,000: how many were
    /// added.
    pub messages: u64,
    /// Who added messages or changed settings: they cannot approve them.
    pub authors: BTreeSet<String>,
}

/// Such as `20 messages: it has 20 messages, and …, by ann@web1`.
impl fmt::Display for WaitingApproval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, reason) = (messages(self.messages), &self.reason);
        let authors: Vec<&str> = self.authors.iter().map(String::as_str).collect();
        match &authors[..] {
            [] => write!(f, "{count}: {reason}"),
            authors => write!(f, "{count}: {reason}, by {}", authors.join(", ")),
        }
    }
}

/// What one person can approve: it differs where the campaign has other messages or settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalSubject {
    pub fingerprint: String,
    /// How many messages this person can approve.
    pub messages: u64,
    /// How many wait for another person than this.
    pub own_messages: u64,
    /// What this person can approve.
    pub waiting: Vec<WaitingApproval>,
    /// What waits for another person than this waiting.
    pub own: Vec<WaitingApproval>,
    /// The lanes with the messages; `None`: all of the campaign.
    pub lanes: Option<Vec<LaneId>>,
}

impl ApprovalSubject {
    /// `Done` if this person can approve anything of it.
    pub fn result(&self) -> ApprovalResult {
        match (&self.waiting[..], &self.own[..]) {
            ([], []) => ApprovalResult::NotWaiting,
            ([], _) => ApprovalResult::Own,
            _ => ApprovalResult::Done,
        }
    }

    /// All authors of what waits.
    pub fn authors(&self) -> BTreeSet<String> {
        let all = self.waiting.iter().chain(&self.own);
        all.flat_map(|waiting| waiting.authors.clone()).collect()
    }
}

/// What became of an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalResult {
    Done,
    /// The campaign waits for none, or was removed.
    NotWaiting,
    /// All that waits is this person's own.
    Own,
    /// It has other messages or settings than those that were looked at.
    Changed,
}

type ApprovalRow = (i64, bool, i32, i64, String);

/// What waits in a campaign, and what of it `who` can approve.
async fn subject(
    connection: &mut Connection,
    campaign_id: i64,
    who: &str,
) -> QueryResult<ApprovalSubject> {
    let settings: Option<SettingsColumns> = campaign::table
        .find(campaign_id)
        .select(SettingsColumns::as_select())
        .first(connection)
        .optional()
        .await?;
    let rows: Vec<ApprovalRow> = approval::table
        .filter(approval::campaign_id.eq(campaign_id))
        .filter(approval::state.ne_all(ApprovalState::NOT_WAITING.map(ApprovalState::code)))
        .order(approval::id)
        .select((
            approval::id,
            approval::has_lane,
            approval::state,
            approval::messages,
            approval::reason,
        ))
        .load(connection)
        .await?;
    let (mut waiting, mut own) = (Vec::new(), Vec::new());
    for (id, has_lane, state, added, reason) in rows {
        let authors = authors_of(connection, id).await?;
        let lane = has_lane.then(|| lane_of(id));
        let found = WaitingApproval {
            id,
            has_lane,
            state: ApprovalState::of(state),
            reason,
            messages: count_waiting(connection, campaign_id, lane, added).await?,
            authors,
        };
        if found.authors.contains(who) {
            own.push(found);
        } else {
            waiting.push(found);
        }
    }
    let of_all = waiting.iter().find(|waiting| !waiting.has_lane);
    let messages = messages_of(&waiting);
    let in_lane = |lane: i32| LaneId { campaign_id, lane };
    let lanes = match of_all {
        Some(_) => None,
        None => Some(waiting.iter().map(|waiting| in_lane(lane_of(waiting.id))).collect()),
    };
    let what = waiting.iter().map(|waiting| (waiting.id, waiting.state, waiting.messages));
    let looked_at = settings.map(|settings| settings.looked_at());
    let text = format!("{:?} {looked_at:?}", what.collect::<Vec<_>>());
    Ok(ApprovalSubject {
        fingerprint: format!("{:016x}", hash(&[&text])),
        messages,
        own_messages: messages_of(&own),
        waiting,
        own,
        lanes,
    })
}

/// How many messages wait for one of these: all of the campaign if its settings were changed.
fn messages_of(waiting: &[WaitingApproval]) -> u64 {
    let of_all = waiting.iter().find(|waiting| !waiting.has_lane);
    of_all.map_or_else(|| waiting.iter().map(|waiting| waiting.messages).sum(), |all| all.messages)
}

/// How many messages wait in a lane, or in all lanes of a campaign. Few are counted; of many it is known how many were
/// added: to the lane, or to the campaign by all its imports.
async fn count_waiting(
    connection: &mut Connection,
    campaign_id: i64,
    lane: Option<i32>,
    added: i64,
) -> QueryResult<u64> {
    let ready: Vec<i64> = {
        let mut ready = sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .select(sms::due_at)
            .limit(COUNTED + 1)
            .into_boxed();
        if let Some(lane) = lane {
            ready = ready.filter(sms::lane.eq(lane));
        }
        ready.load(connection)
    }
    .await?;
    if ready.len() as u64 <= positive(COUNTED) {
        return Ok(ready.len() as u64);
    }
    match lane {
        Some(_) => Ok(positive(added)),
        None => imported(connection, campaign_id).await,
    }
}

/// How many messages imports have added to a campaign.
async fn imported(connection: &mut Connection, campaign_id: i64) -> QueryResult<u64> {
    let counts: Vec<i64> = import::table
        .filter(import::campaign_id.eq(campaign_id))
        .select(import::accepted - import::replaced)
        .load(connection)
        .await?;
    Ok(counts.into_iter().map(positive).sum())
}

/// How many messages a campaign has, with those of other programs, which are counted as far as `least` needs it.
async fn total(connection: &mut Connection, campaign_id: i64, least: u64) -> QueryResult<u64> {
    let mut total = imported(connection, campaign_id).await?;
    let purged: Vec<i64> = purged::table
        .filter(purged::campaign_id.eq(campaign_id))
        .filter(purged::import_id.eq(PLAIN))
        .select(purged::sent + purged::failed + purged::unknown + purged::cancelled)
        .load(connection)
        .await?;
    total += purged.into_iter().map(positive).sum::<u64>();
    macro_rules! count {
        ($table:ident) => {
            let missing = least.saturating_sub(total);
            let plain: Vec<i64> = $table::table
                .filter($table::campaign_id.eq(campaign_id))
                .filter($table::import_id.is_null())
                .limit(signed(missing))
                .select($table::id)
                .load(connection)
                .await?;
            total += plain.len() as u64;
        };
    }
    count!(sms);
    count!(sms_sent);
    count!(sms_failed);
    Ok(total)
}

impl Store {
    /// Decides whether a list that is whole needs approval; returns why, if it does.
    #[boxed]
    pub async fn decide_list(
        &self,
        campaign_id: i64,
        list: &ListApproval,
        rules: &ApprovalRules,
        facts: &ListFacts,
    ) -> Result<Option<String>, StoreError> {
        transaction!(self, |connection| async {
            let Some(gate) = lock(connection, campaign_id).await? else {
                return Ok(None);
            };
            let found: Vec<(i64, i64)> = approval::table
                .filter(approval::campaign_id.eq(campaign_id))
                .filter(approval::state.eq(ApprovalState::Undecided.code()))
                .filter(approval::hash.eq(&list.hash))
                .select((approval::id, approval::messages))
                .load(connection)
                .await?;
            let Some((id, added)) = found.into_iter().next() else {
                return Ok(None);
            };
            let added = positive(added);
            let reason = if added == 0 {
                None
            } else if gate.is_guarded() {
                Some(format!("{} were added", messages(added)))
            } else {
                // The cost of what an interrupted import added is not known.
                let unknown = added.saturating_sub(facts.accepted);
                let facts = ListFacts {
                    accepted: added.max(facts.accepted),
                    unpriced: facts.unpriced + unknown,
                    ..facts.clone()
                };
                let least = rules.least_total(&facts).unwrap_or(0);
                let total = total(connection, campaign_id, least).await?;
                rules.reason(total, &facts)
            };
            let state = match reason {
                Some(_) => ApprovalState::Waiting,
                None => ApprovalState::NotNeeded,
            };
            update(approval::table.find(id))
                .set((
                    approval::state.eq(state.code()),
                    approval::reason.eq(reason.clone().unwrap_or_default()),
                ))
                .execute(connection)
                .await?;
            summarize(connection, campaign_id).await?;
            Ok(reason)
        })
    }

    /// Decides what is there of batches that were interrupted with the process that took them, as where a client has
    /// disconnected.
    #[boxed]
    pub async fn decide_abandoned_batches(&self, now: Timestamp) -> Result<(), StoreError> {
        let abandoned = self.abandoned_batches(now).await?;
        if abandoned.is_empty() {
            return Ok(());
        }
        let rules = self.approval_rules().await?;
        for (campaign_id, batch) in abandoned {
            let facts = ListFacts::default();
            self.decide_list(campaign_id, &batch, &rules, &facts).await?;
        }
        Ok(())
    }

    /// Whether messages of a campaign wait for approval.
    #[boxed]
    pub async fn approval_gate(&self, campaign_id: i64) -> Result<ApprovalGate, StoreError> {
        querying!(self, Read, |connection| gate(connection, campaign_id))
    }

    /// How many messages imports have added to a campaign.
    #[boxed]
    pub async fn imported(&self, campaign_id: i64) -> Result<u64, StoreError> {
        querying!(self, Read, |connection| imported(connection, campaign_id))
    }

    /// How many messages a campaign has, with those that other programs inserted: these are counted until there are
    /// `least` of all.
    #[boxed]
    pub async fn total(&self, campaign_id: i64, least: u64) -> Result<u64, StoreError> {
        querying!(self, Read, |connection| total(connection, campaign_id, least))
    }

    /// What waits in a campaign, and what of it `who` can approve.
    #[boxed]
    pub async fn approval_subject(
        &self,
        campaign_id: i64,
        who: &str,
    ) -> Result<ApprovalSubject, StoreError> {
        transaction!(self, |connection| async { subject(connection, campaign_id, who).await })
    }

    /// Approves what `who` can approve of a campaign, if it still is what `fingerprint` says. The entry of the audit log
    /// gets its detail here.
    #[boxed]
    pub async fn approve(
        &self,
        campaign_id: i64,
        fingerprint: &str,
        entry: &AuditEntry,
    ) -> Result<ApprovalResult, StoreError> {
        transaction!(self, |connection| async {
            let subject = match locked_subject(connection, campaign_id, &entry.who).await? {
                Ok(subject) => subject,
                Err(result) => return Ok(result),
            };
            if subject.fingerprint != fingerprint {
                return Ok(ApprovalResult::Changed);
            }
            for waiting in &subject.waiting {
                if waiting.has_lane {
                    update(approval::table.find(waiting.id))
                        .set((
                            approval::state.eq(ApprovalState::Granted.code()),
                            approval::decided_at.eq(entry.at),
                        ))
                        .execute(connection)
                        .await?;
                } else {
                    remove(connection, &[waiting.id]).await?;
                }
            }
            summarize(connection, campaign_id).await?;
            let name = entry.campaign.as_deref().unwrap_or_default();
            let count = messages(subject.messages);
            let entry = AuditEntry {
                detail: format!("approved {count} of campaign `{name}`"),
                ..entry.clone()
            };
            entry.insert(connection).await?;
            Ok(ApprovalResult::Done)
        })
    }

    /// Stores why what waits in a campaign is not approved; it continues to wait.
    #[boxed]
    pub async fn reject(
        &self,
        campaign_id: i64,
        reason: &str,
        entry: &AuditEntry,
    ) -> Result<ApprovalResult, StoreError> {
        transaction!(self, |connection| async {
            let subject = match locked_subject(connection, campaign_id, &entry.who).await? {
                Ok(subject) => subject,
                Err(result) => return Ok(result),
            };
            for waiting in &subject.waiting {
                update(approval::table.find(waiting.id))
                    .set((
                        approval::state.eq(ApprovalState::Rejected.code()),
                        approval::reason.eq(reason),
                    ))
                    .execute(connection)
                    .await?;
            }
            summarize(connection, campaign_id).await?;
            entry.insert(connection).await?;
            Ok(ApprovalResult::Done)
        })
    }

    /// The strictest rules that any process has had.
    #[boxed]
    pub async fn approval_rules(&self) -> Result<ApprovalRules, StoreError> {
        querying!(self, Read, |connection| stored_rules(connection))
    }

    /// Keeps rules that are stricter than those in the database; returns the strictest.
    #[boxed]
    pub async fn keep_approval_rules(
        &self,
        rules: &ApprovalRules,
    ) -> Result<ApprovalRules, StoreError> {
        let stored = self.approval_rules().await?;
        let strictest = stored.clone().with(rules);
        if strictest == stored {
            return Ok(stored);
        }
        transaction!(self, |connection| async {
            // Another process may have written stricter ones.
            let strictest = stored_rules(connection).await?.with(rules);
            write_rules(connection, &strictest).await?;
            Ok(strictest)
        })
    }

    /// Replaces the rules in the database, also by rules that are less strict.
    #[boxed]
    pub async fn replace_approval_rules(
        &self,
        rules: &ApprovalRules,
        entry: &AuditEntry,
    ) -> Result<(), StoreError> {
        transaction!(self, |connection| async {
            write_rules(connection, rules).await?;
            entry.insert(connection).await?;
            QueryResult::Ok(())
        })
    }
}

/// Locks a campaign, and returns what `who` can approve of it, or why that is nothing.
async fn locked_subject(
    connection: &mut Connection,
    campaign_id: i64,
    who: &str,
) -> QueryResult<Result<ApprovalSubject, ApprovalResult>> {
    lock(connection, campaign_id).await?;
    let subject = subject(connection, campaign_id, who).await?;
    Ok(match subject.result() {
        ApprovalResult::Done => Ok(subject),
        refused => Err(refused),
    })
}

async fn stored_rules(connection: &mut Connection) -> QueryResult<ApprovalRules> {
    let rows: Vec<(String, String)> = approval_rule::table
        .order(approval_rule::name)
        .select((approval_rule::name, approval_rule::value))
        .load(connection)
        .await?;
    let mut rules = ApprovalRules::default();
    for (name, value) in rows {
        if name == FROM_MESSAGES {
            rules.from_messages = value.parse().unwrap_or(1);
        } else if let Ok(limit) = value.parse::<Budget>() {
            rules.from_cost.push(limit);
        }
    }
    Ok(rules)
}

async fn write_rules(connection: &mut Connection, rules: &ApprovalRules) -> QueryResult<()> {
    let of_messages = (rules.from_messages > 0)
        .then(|| (FROM_MESSAGES.to_owned(), rules.from_messages.to_string()));
    let of_cost = rules
        .from_cost
        .iter()
        .map(|limit| (format!("{FROM_COST}{}", limit.currency), limit.to_string()));
    let rows: Vec<_> = of_messages
        .into_iter()
        .chain(of_cost)
        .map(|(name, value)| (approval_rule::name.eq(name), approval_rule::value.eq(value)))
        .collect();
    delete(approval_rule::table).execute(connection).await?;
    NewRows::of(approval_rule::table, &rows).insert(connection).await?;
    Ok(())
}
