//! Whether a second person has approved the messages of a campaign. While they wait, no worker claims them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use diesel::dsl::{count_star, max};
use diesel::{QueryResult, update};

use super::connection::prelude::*;
use super::connection::{Connection, load_locked, transaction, with_conn};
use super::schema::{campaign, import, sms};
use super::{AuditEntry, Store, StoreError, positive};
use crate::senders::hash;
use crate::sms::Timestamp;

/// An approval ends if nothing starts for this long after it was given, or after the messages are due.
const LAPSES_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether the messages of a campaign may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalState {
    /// They need no approval.
    #[default]
    NotNeeded = 0,
    Waiting = 1,
    Approved = 2,
    /// They are approved, and some of them were sent.
    Begun = 3,
}

impl ApprovalState {
    /// An unknown state, which a newer smsq may have written, counts as waiting.
    const fn of(code: i32) -> Self {
        match code {
            0 => Self::NotNeeded,
            2 => Self::Approved,
            3 => Self::Begun,
            _ => Self::Waiting,
        }
    }

    const fn code(self) -> i32 {
        self as i32
    }
}

/// The approval of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Approval {
    pub state: ApprovalState,
    /// The id of the last message that was approved.
    last_id: i64,
    at: Timestamp,
    /// Who added messages or changed settings since the last approval.
    pub wanted_by: BTreeSet<String>,
}

/// The columns of an approval.
#[derive(Queryable, Selectable)]
#[diesel(table_name = campaign)]
pub(super) struct ApprovalColumns {
    approval: i32,
    approved_id: i64,
    approved_at: Timestamp,
    wanted_by: String,
}

impl From<ApprovalColumns> for Approval {
    fn from(row: ApprovalColumns) -> Self {
        Self {
            state: ApprovalState::of(row.approval),
            last_id: row.approved_id,
            at: row.approved_at,
            wanted_by: row.wanted_by.lines().map(str::to_owned).collect(),
        }
    }
}

impl Approval {
    /// Why a message that is due does not start, although the campaign was approved; `None`: it starts.
    pub(super) fn lapse(&self, id: i64, due_at: Timestamp, now: Timestamp) -> Option<&'static str> {
        let is_late = || now.since(self.at.max(due_at)) > LAPSES_AFTER;
        match self.state {
            ApprovalState::NotNeeded | ApprovalState::Waiting => None,
            _ if id > self.last_id => Some("messages were added after it was approved"),
            ApprovalState::Approved if is_late() => {
                Some("nothing was sent within 24 hours of its approval")
            }
            ApprovalState::Approved | ApprovalState::Begun => None,
        }
    }
}

/// What changes of approvals while messages are claimed.
#[derive(Default)]
pub(super) struct ApprovalChanges {
    /// Campaigns that have to be approved again, with the reason.
    pub(super) lapsed: BTreeMap<i64, &'static str>,
    /// Campaigns whose first messages after the approval are sent.
    pub(super) begun: BTreeSet<i64>,
}

impl ApprovalChanges {
    pub(super) async fn store(
        self,
        connection: &mut Connection,
        now: Timestamp,
    ) -> QueryResult<()> {
        for id in self.begun.iter().filter(|id| !self.lapsed.contains_key(id)) {
            with_conn!(connection, |conn| update(campaign::table.find(*id))
                .filter(campaign::approval.eq(ApprovalState::Approved.code()))
                .set(campaign::approval.eq(ApprovalState::Begun.code()))
                .execute(conn))?;
        }
        for (id, reason) in self.lapsed {
            let lapsed = with_conn!(connection, |conn| update(campaign::table.find(id))
                .filter(campaign::approval.gt(ApprovalState::Waiting.code()))
                .set((
                    campaign::approval.eq(ApprovalState::Waiting.code()),
                    campaign::state_reason.eq(waiting(reason)),
                ))
                .execute(conn))?;
            if lapsed > 0 {
                let name = with_conn!(connection, |conn| campaign::table
                    .find(id)
                    .select(campaign::name)
                    .first(conn))?;
                let entry = AuditEntry::of_worker(now, name, "wait for approval", reason);
                entry.insert(connection).await?;
            }
        }
        Ok(())
    }
}

/// The reason in the state of a campaign that waits.
fn waiting(reason: &str) -> String {
    format!("it waits for approval: {reason}")
}

/// What is approved: it differs where the campaign has other messages or settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalSubject {
    pub fingerprint: String,
    /// How many messages wait.
    pub messages: u64,
    last_id: i64,
}

/// What became of an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalResult {
    Done,
    /// The campaign waits for none, or was removed.
    NotWaiting,
    /// It has other messages or settings than those that were looked at.
    Changed,
}

async fn subject(connection: &mut Connection, campaign_id: i64) -> QueryResult<ApprovalSubject> {
    type Settings = (Option<String>, Option<String>, String, String);
    let settings: Option<Settings> = with_conn!(connection, |conn| optional campaign::table
        .find(campaign_id)
        .select((
            campaign::provider,
            campaign::sender,
            campaign::rate,
            campaign::send_window,
        ))
        .first(conn))?;
    let imports: Vec<(i64, i64)> = with_conn!(connection, |conn| import::table
        .filter(import::campaign_id.eq(campaign_id))
        .order(import::id)
        .select((import::id, import::accepted))
        .load(conn))?;
    let (messages, last_id): (i64, Option<i64>) = with_conn!(connection, |conn| sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .select((count_star(), max(sms::id)))
        .first(conn))?;
    let plain: i64 = with_conn!(connection, |conn| sms::table
        .filter(sms::campaign_id.eq(campaign_id))
        .filter(sms::import_id.is_null())
        .count()
        .get_result(conn))?;
    let text = format!("{imports:?} {plain} {last_id:?} {settings:?}");
    Ok(ApprovalSubject {
        fingerprint: format!("{:016x}", hash(&[&text])),
        messages: positive(messages),
        last_id: last_id.unwrap_or_default(),
    })
}

/// Locks the approval of a campaign.
async fn lock(connection: &mut Connection, id: i64) -> QueryResult<Option<Approval>> {
    let found: Vec<ApprovalColumns> = load_locked!(
        connection,
        campaign::table
            .filter(campaign::id.eq(id))
            .order(campaign::id)
            .select(ApprovalColumns::as_select())
    )?;
    Ok(found.into_iter().next().map(Approval::from))
}

impl Store {
    /// Lets the messages of a campaign wait for approval. `who` adds messages or changes settings, and cannot approve
    /// them.
    pub async fn want_approval(
        &self,
        campaign_id: i64,
        who: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        transaction!(self, |connection| async {
            let Some(mut approval) = lock(connection, campaign_id).await? else {
                return Ok(());
            };
            if approval.state != ApprovalState::Waiting {
                approval.wanted_by.clear();
            }
            approval.wanted_by.insert(who.to_owned());
            let wanted_by: Vec<String> = approval.wanted_by.into_iter().collect();
            with_conn!(connection, |conn| update(campaign::table.find(campaign_id))
                .set((
                    campaign::approval.eq(ApprovalState::Waiting.code()),
                    campaign::wanted_by.eq(wanted_by.join("\n")),
                ))
                .execute(conn))?;
            with_conn!(connection, |conn| update(campaign::table.find(campaign_id))
                .filter(campaign::state.eq(0))
                .set(campaign::state_reason.eq(waiting(reason)))
                .execute(conn))?;
            Ok(())
        })
    }

    /// Lets the messages of a campaign start without approval, if none of its imports is unfinished.
    pub async fn lift_approval(&self, campaign_id: i64) -> Result<bool, StoreError> {
        transaction!(self, |connection| async {
            if lock(connection, campaign_id).await?.is_none() {
                return Ok(false);
            }
            let unfinished: i64 = with_conn!(connection, |conn| import::table
                .filter(import::campaign_id.eq(campaign_id))
                .filter(import::finished_at.is_null())
                .count()
                .get_result(conn))?;
            if unfinished > 0 {
                return Ok(false);
            }
            with_conn!(connection, |conn| update(campaign::table.find(campaign_id))
                .filter(campaign::approval.eq(ApprovalState::Waiting.code()))
                .set((
                    campaign::approval.eq(ApprovalState::NotNeeded.code()),
                    campaign::wanted_by.eq(""),
                    campaign::state_reason.eq(None::<String>),
                ))
                .execute(conn))?;
            Ok(true)
        })
    }

    /// What is approved if a campaign is approved now.
    pub async fn approval_subject(&self, campaign_id: i64) -> Result<ApprovalSubject, StoreError> {
        transaction!(self, |connection| async {
            subject(connection, campaign_id).await
        })
    }

    /// Approves the messages of a campaign, if it still is what `fingerprint` says.
    pub async fn approve(
        &self,
        campaign_id: i64,
        fingerprint: &str,
        entry: &AuditEntry,
    ) -> Result<ApprovalResult, StoreError> {
        transaction!(self, |connection| async {
            let approval = lock(connection, campaign_id).await?;
            let is_waiting =
                approval.is_some_and(|approval| approval.state == ApprovalState::Waiting);
            if !is_waiting {
                return Ok(ApprovalResult::NotWaiting);
            }
            let subject = subject(connection, campaign_id).await?;
            if subject.fingerprint != fingerprint {
                return Ok(ApprovalResult::Changed);
            }
            with_conn!(connection, |conn| update(campaign::table.find(campaign_id))
                .set((
                    campaign::approval.eq(ApprovalState::Approved.code()),
                    campaign::approved_id.eq(subject.last_id),
                    campaign::approved_at.eq(entry.at),
                ))
                .execute(conn))?;
            with_conn!(connection, |conn| update(campaign::table.find(campaign_id))
                .filter(campaign::state.eq(0))
                .set(campaign::state_reason.eq(None::<String>))
                .execute(conn))?;
            entry.insert(connection).await?;
            Ok(ApprovalResult::Done)
        })
    }

    /// Stores why the messages of a campaign were not approved; they continue to wait.
    pub async fn reject(
        &self,
        campaign_id: i64,
        reason: &str,
        entry: &AuditEntry,
    ) -> Result<ApprovalResult, StoreError> {
        transaction!(self, |connection| async {
            let rejected =
                with_conn!(connection, |conn| update(campaign::table.find(campaign_id))
                    .filter(campaign::approval.eq(ApprovalState::Waiting.code()))
                    .set(campaign::state_reason.eq(reason))
                    .execute(conn))?;
            if rejected == 0 {
                return Ok(ApprovalResult::NotWaiting);
            }
            entry.insert(connection).await?;
            Ok(ApprovalResult::Done)
        })
    }
}
