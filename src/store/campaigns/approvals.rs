//! What waits for the approval of a second person: lists and other messages that came together, each in a lane of its
//! own, and changes of the settings of a campaign, for which all its messages wait. No worker claims what waits.
//!
//! Every change locks the row of the campaign first, and ends with [`summarize`], so that column `campaign.approval`
//! always says what the approvals of the campaign are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::sql_types::Integer;
use diesel::{TextExpressionMethods as _, delete, update};
use smsq_lifecycle::approval::ApprovalState;
use smsq_message::route::sender_pool::hash;
use smsq_message::sms::{LaneId, State, Timestamp};
use smsq_process::boxed;

use crate::audit::AuditEntry;
use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, ROWS, transaction};
use crate::error::StoreError;
use crate::tables::column_types::stored_as_number;
use crate::tables::schema::{approval, approval_author, campaign, sms};
use crate::{Store, signed};

/// The most approvals that are looked at together, to delete those without messages.
const PRUNED: i64 = 1_000;
/// What messages wait for that are not a list.
const PUT_BACK: &str = "messages were put back into the queue";
const INSERTED: &str = "another program inserted messages";

/// Whether messages of a campaign wait for approval: column `campaign.approval`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AsExpression, FromSqlRow)]
#[diesel(sql_type = Integer)]
pub enum ApprovalGate {
    /// Nothing of it needed approval yet.
    #[default]
    Open = 0,
    /// Some messages wait. Others are sent.
    SomeWait = 1,
    /// Nothing waits; new messages and settings need approval.
    Guarded = 2,
    /// Nothing of it needed approval yet. A list is being added, and waits until that is decided.
    Undecided = 3,
    /// All messages wait, because the settings were changed.
    AllWait = 4,
}

impl ApprovalGate {
    /// An unknown one, which a newer smsq may have written, counts as waiting.
    const fn of(code: i32) -> Self {
        match code {
            0 => Self::Open,
            1 => Self::SomeWait,
            2 => Self::Guarded,
            3 => Self::Undecided,
            _ => Self::AllWait,
        }
    }

    /// Whether new messages and settings need approval.
    pub const fn is_guarded(self) -> bool {
        matches!(self, Self::SomeWait | Self::Guarded | Self::AllWait)
    }

    /// Whether anything waits.
    pub const fn has_waiting(self) -> bool {
        matches!(self, Self::SomeWait | Self::Undecided | Self::AllWait)
    }
}

stored_as_number!(ApprovalGate);

/// A list that waits at least until it is whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListApproval {
    /// Identifies the list in its campaign. The same list, imported again after an interruption, continues its
    /// approval.
    pub hash: String,
    /// Who adds it.
    pub who: String,
}

/// What the hash of a batch begins with.
const BATCH: &str = "batch ";
/// A batch to which nothing was added for this long was interrupted, with the process that took it.
const ABANDONED_AFTER: Duration = Duration::from_secs(15 * 60);
/// The most abandoned batches that are decided together.
const DECIDED: i64 = 100;

impl ListApproval {
    /// Of a batch, which has no identity: posted again, it continues the messages that it repeats.
    pub fn of_batch(who: &str) -> Self {
        Self { hash: format!("{BATCH}{:032x}", rand::random::<u128>()), who: who.to_owned() }
    }
}

/// The lane in which the messages of an approval wait.
pub(crate) fn lane_of(approval: i64) -> i32 {
    i32::try_from(-approval).unwrap_or(i32::MIN)
}

/// The approval whose messages wait in a lane; `None`: the lane of a sender, or the part that is not divided.
pub(crate) fn of_lane(lane: i32) -> Option<i64> {
    (lane < 0).then(|| -i64::from(lane))
}

/// Locks a campaign; `None`: it was removed.
pub(super) async fn lock(
    connection: &mut Connection,
    campaign_id: i64,
) -> QueryResult<Option<ApprovalGate>> {
    let found: Vec<ApprovalGate> = campaign::table
        .filter(campaign::id.eq(campaign_id))
        .order(campaign::id)
        .select(campaign::approval)
        .locked()
        .load(connection)
        .await?;
    Ok(found.first().copied())
}

/// Whether new messages of a campaign need approval.
pub(crate) async fn gate(
    connection: &mut Connection,
    campaign_id: i64,
) -> QueryResult<ApprovalGate> {
    let found: Vec<ApprovalGate> = campaign::table
        .filter(campaign::id.eq(campaign_id))
        .select(campaign::approval)
        .load(connection)
        .await?;
    Ok(found.first().copied().unwrap_or_default())
}

/// Stores in the row of a campaign, which is locked, what its approvals are.
pub(super) async fn summarize(connection: &mut Connection, campaign_id: i64) -> QueryResult<()> {
    let is_guarded = gate(connection, campaign_id).await?.is_guarded();
    let mut all: Vec<(bool, i32, String)> = approval::table
        .filter(approval::campaign_id.eq(campaign_id))
        .filter(approval::state.ne_all(ApprovalState::NOT_WAITING.map(ApprovalState::code)))
        .order(approval::id)
        .select((approval::has_lane, approval::state, approval::reason))
        .load(connection)
        .await?;
    // The first one explains why messages wait: what concerns most of them.
    all.sort_by_key(|(has_lane, state, _)| {
        (*has_lane, ApprovalState::of(*state) == ApprovalState::Undecided)
    });
    let is_undecided = |state: i32| ApprovalState::of(state) == ApprovalState::Undecided;
    let gate = match all.first() {
        Some((false, ..)) => ApprovalGate::AllWait,
        Some((true, state, _)) if is_undecided(*state) && !is_guarded => ApprovalGate::Undecided,
        Some(_) => ApprovalGate::SomeWait,
        None if is_guarded => ApprovalGate::Guarded,
        None => ApprovalGate::Open,
    };
    let reason = all.first().map(|(_, state, reason)| {
        if ApprovalState::of(*state) == ApprovalState::Rejected {
            reason.clone()
        } else {
            format!("it waits for approval: {reason}")
        }
    });
    update(campaign::table.find(campaign_id))
        .set((campaign::approval.eq(gate), campaign::approval_reason.eq(reason)))
        .execute(connection)
        .await?;
    Ok(())
}

impl Store {
    /// Batches that were interrupted with the process that took them, and were not posted again: their campaigns, and as
    /// what they are known.
    pub(super) async fn abandoned_batches(
        &self,
        now: Timestamp,
    ) -> Result<Vec<(i64, ListApproval)>, StoreError> {
        let before = now.minus(ABANDONED_AFTER);
        let found: Vec<(i64, String)> = self
            .read(
                approval::table
                    .filter(approval::state.eq(ApprovalState::Undecided.code()))
                    .filter(approval::hash.like(format!("{BATCH}%")))
                    .filter(approval::decided_at.lt(before))
                    .order(approval::id)
                    .limit(DECIDED)
                    .select((approval::campaign_id, approval::hash)),
            )
            .await?;
        let who = String::new;
        let batch = |(campaign_id, hash)| (campaign_id, ListApproval { hash, who: who() });
        Ok(found.into_iter().map(batch).collect())
    }

    /// Deletes some of the approvals whose messages were all settled: each of them costs something whenever workers look
    /// for messages.
    #[boxed]
    pub async fn prune_approvals(&self) -> Result<(), StoreError> {
        let free: Vec<(i64, i64)> = self
            .read(
                approval::table
                    .filter(approval::state.eq_any(ApprovalState::FREE.map(ApprovalState::code)))
                    .order(approval::id)
                    .limit(PRUNED)
                    .select((approval::id, approval::campaign_id)),
            )
            .await?;
        if free.is_empty() {
            return Ok(());
        }
        transaction!(self, |connection| async {
            let mut ended = Vec::new();
            for (id, campaign_id) in &free {
                if !has_messages(connection, *campaign_id, *id).await? {
                    ended.push(*id);
                }
            }
            remove(connection, &ended).await
        })
    }
}

/// Deletes what waits in a campaign without any message: they were cancelled, expired or removed.
pub(crate) async fn delete_empty(connection: &mut Connection, campaign_id: i64) -> QueryResult<()> {
    if lock(connection, campaign_id).await?.is_none() {
        return Ok(());
    }
    let waiting: Vec<(i64, bool, i32)> = approval::table
        .filter(approval::campaign_id.eq(campaign_id))
        .filter(approval::state.ne_all(ApprovalState::NOT_WAITING.map(ApprovalState::code)))
        .select((approval::id, approval::has_lane, approval::state))
        .load(connection)
        .await?;
    if waiting.is_empty() {
        return Ok(());
    }
    for (id, has_lane, state) in waiting {
        if has_lane && !has_messages(connection, campaign_id, id).await? {
            if ApprovalState::of(state) == ApprovalState::Undecided {
                guard(connection, campaign_id).await?;
            }
            end(connection, campaign_id, id).await?;
        }
    }
    summarize(connection, campaign_id).await
}

/// Ends an approval without messages. Those that have ended with the same reason are one, with the authors of all.
async fn end(connection: &mut Connection, campaign_id: i64, id: i64) -> QueryResult<()> {
    let authors = authors_of(connection, id).await?;
    let (state, reason): (i32, String) = approval::table
        .find(id)
        .select((approval::state, approval::reason))
        .first(connection)
        .await?;
    remove(connection, &[id]).await?;
    let ended = NewApproval {
        campaign_id,
        has_lane: false,
        state: ApprovalState::Ended,
        hash: "",
        reason: if ApprovalState::of(state) == ApprovalState::Rejected { &reason } else { "" },
    };
    ended.open(connection, &authors).await?;
    Ok(())
}

/// Who added messages of an approval, or changed settings.
pub(super) async fn authors_of(
    connection: &mut Connection,
    id: i64,
) -> QueryResult<BTreeSet<String>> {
    let authors: Vec<String> = approval_author::table
        .filter(approval_author::approval_id.eq(id))
        .select(approval_author::who)
        .load(connection)
        .await?;
    Ok(authors.into_iter().collect())
}

async fn add_authors(
    connection: &mut Connection,
    id: i64,
    authors: &BTreeSet<String>,
) -> QueryResult<()> {
    let of_author =
        |who: &String| (approval_author::approval_id.eq(id), approval_author::who.eq(who.clone()));
    let authors: Vec<_> = authors.iter().map(of_author).collect();
    NewRows::of(approval_author::table, &authors).insert_new(connection).await?;
    Ok(())
}

/// What is known of messages of a campaign that ended before they were granted.
struct EndedApprovals {
    authors: BTreeSet<String>,
    /// Why they were not approved.
    reasons: Vec<String>,
}

impl EndedApprovals {
    async fn of(connection: &mut Connection, campaign_id: i64) -> QueryResult<Self> {
        let ended: Vec<(i64, String)> = approval::table
            .filter(approval::campaign_id.eq(campaign_id))
            .filter(approval::state.eq(ApprovalState::Ended.code()))
            .order(approval::id)
            .select((approval::id, approval::reason))
            .load(connection)
            .await?;
        let (ids, mut reasons): (Vec<i64>, Vec<String>) = ended.into_iter().unzip();
        reasons.retain(|reason| !reason.is_empty());
        let mut authors = BTreeSet::new();
        for id in ids {
            authors.append(&mut authors_of(connection, id).await?);
        }
        Ok(Self { authors, reasons })
    }
}

/// New messages of a campaign need approval from now on: messages of a list that was never decided may be put back.
async fn guard(connection: &mut Connection, campaign_id: i64) -> QueryResult<()> {
    update(campaign::table.find(campaign_id))
        .filter(campaign::approval.eq(ApprovalGate::Undecided))
        .set(campaign::approval.eq(ApprovalGate::Guarded))
        .execute(connection)
        .await?;
    Ok(())
}

/// Whether messages of an approval are in the queue, in any state.
async fn has_messages(connection: &mut Connection, campaign_id: i64, id: i64) -> QueryResult<bool> {
    for state in [State::Ready, State::Sending, State::Unknown] {
        let first: Vec<i64> = sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(state.code()))
            .filter(sms::lane.eq(lane_of(id)))
            .limit(1)
            .select(sms::id)
            .load(connection)
            .await?;
        if !first.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) async fn remove(connection: &mut Connection, ids: &[i64]) -> QueryResult<()> {
    for ids in ids.chunks(ROWS) {
        delete(approval_author::table)
            .filter(approval_author::approval_id.eq_any(ids))
            .execute(connection)
            .await?;
        delete(approval::table).filter(approval::id.eq_any(ids)).execute(connection).await?;
    }
    Ok(())
}

/// Deletes the approvals of a campaign without messages.
pub(crate) async fn delete_of(connection: &mut Connection, campaign_id: i64) -> QueryResult<()> {
    let ids = ids_of(connection, campaign_id).await?;
    remove(connection, &ids).await
}

/// The approvals of a campaign that have a lane.
pub(crate) async fn ids_of(connection: &mut Connection, campaign_id: i64) -> QueryResult<Vec<i64>> {
    approval::table
        .filter(approval::campaign_id.eq(campaign_id))
        .order(approval::id.desc())
        .select(approval::id)
        .load(connection)
        .await
}

/// What makes something wait.
#[derive(Clone, Copy)]
struct NewApproval<'a> {
    campaign_id: i64,
    has_lane: bool,
    state: ApprovalState,
    hash: &'a str,
    reason: &'a str,
}

impl NewApproval<'_> {
    /// Finds the same approval, or makes a new one, with further authors; returns its id. The campaign is locked.
    async fn open(
        self,
        connection: &mut Connection,
        authors: &BTreeSet<String>,
    ) -> QueryResult<i64> {
        let of_state = approval::table
            .filter(approval::campaign_id.eq(self.campaign_id))
            .filter(approval::state.eq(self.state.code()))
            .filter(approval::has_lane.eq(self.has_lane))
            .filter(approval::hash.eq(self.hash))
            .filter(approval::reason.eq(self.reason));
        let found: Vec<i64> =
            of_state.order(approval::id).limit(1).select(approval::id).load(connection).await?;
        let id = if let Some(id) = found.first() {
            *id
        } else {
            let rows = [(
                approval::campaign_id.eq(self.campaign_id),
                approval::has_lane.eq(self.has_lane),
                approval::state.eq(self.state.code()),
                approval::hash.eq(self.hash.to_owned()),
                approval::reason.eq(self.reason.to_owned()),
            )];
            NewRows::of(approval::table, &rows).insert(connection).await?;
            connection.last_id().await?
        };
        add_authors(connection, id, authors).await?;
        summarize(connection, self.campaign_id).await?;
        Ok(id)
    }
}

/// The lane of messages that are added to a list. If it was decided meanwhile, what follows waits again.
pub(crate) async fn lane_of_list(
    connection: &mut Connection,
    campaign_id: i64,
    list: &ListApproval,
    now: Timestamp,
) -> QueryResult<i32> {
    lock(connection, campaign_id).await?;
    let new = NewApproval {
        campaign_id,
        has_lane: true,
        state: ApprovalState::Undecided,
        hash: &list.hash,
        reason: "messages are being added",
    };
    let authors = BTreeSet::from([list.who.clone()]);
    let id = new.open(connection, &authors).await?;
    update(approval::table.find(id)).set(approval::decided_at.eq(now)).execute(connection).await?;
    Ok(lane_of(id))
}

/// Adds messages that a list repeats to its lane, if they wait in lists that were interrupted: it continues these.
pub(crate) async fn take_over(
    connection: &mut Connection,
    campaign_id: i64,
    list: &ListApproval,
    messages: &[i64],
    now: Timestamp,
) -> QueryResult<()> {
    let interrupted: Vec<i64> = approval::table
        .filter(approval::campaign_id.eq(campaign_id))
        .filter(approval::state.eq(ApprovalState::Undecided.code()))
        .filter(approval::hash.ne(&list.hash))
        .order(approval::id)
        .select(approval::id)
        .load(connection)
        .await?;
    for id in interrupted {
        let mut found: Vec<i64> = Vec::new();
        for messages in messages.chunks(ROWS) {
            let in_lane: Vec<i64> = sms::table
                .filter(sms::id.eq_any(messages))
                .filter(sms::lane.eq(lane_of(id)))
                .select(sms::id)
                .load(connection)
                .await?;
            found.extend(in_lane);
        }
        if found.is_empty() {
            continue;
        }
        let lane = lane_of_list(connection, campaign_id, list, now).await?;
        move_to(connection, lane, &found).await?;
        let authors = authors_of(connection, id).await?;
        add_authors(connection, -i64::from(lane), &authors).await?;
        if !has_messages(connection, campaign_id, id).await? {
            remove(connection, &[id]).await?;
        }
    }
    Ok(())
}

/// The lane of messages that wait although they are not a list.
pub(crate) async fn lane_of_others(
    connection: &mut Connection,
    campaign_id: i64,
    authors: &BTreeSet<String>,
    reason: &str,
) -> QueryResult<i32> {
    lock(connection, campaign_id).await?;
    let new = NewApproval {
        campaign_id,
        has_lane: true,
        state: ApprovalState::Waiting,
        hash: "",
        reason,
    };
    Ok(lane_of(new.open(connection, authors).await?))
}

/// Counts messages that were added to a lane.
pub(crate) async fn count_added(
    connection: &mut Connection,
    lane: i32,
    added: u64,
) -> QueryResult<()> {
    let Some(id) = of_lane(lane) else {
        return Ok(());
    };
    update(approval::table.find(id))
        .set(approval::messages.eq(approval::messages + signed(added)))
        .execute(connection)
        .await?;
    Ok(())
}

/// How messages have come into the queue that are not a list.
#[derive(Clone, Copy)]
pub(crate) enum CameBy<'a> {
    /// This person has put them back.
    PutBack(&'a str),
    /// Another program has inserted them.
    Insert,
}

impl CameBy<'_> {
    /// The lane in which they wait.
    async fn lane(self, connection: &mut Connection, campaign_id: i64) -> QueryResult<i32> {
        let (authors, reason) = match self {
            Self::PutBack(who) => {
                let mut ended = EndedApprovals::of(connection, campaign_id).await?;
                ended.authors.insert(who.to_owned());
                let reason = match &ended.reasons[..] {
                    [] => PUT_BACK.to_owned(),
                    reasons => format!("{PUT_BACK} (before: {})", reasons.join("; ")),
                };
                (ended.authors, reason)
            }
            Self::Insert => (BTreeSet::new(), INSERTED.to_owned()),
        };
        lane_of_others(connection, campaign_id, &authors, &reason).await
    }
}

/// Lets messages, which this transaction has put into the queue, wait where their campaigns are guarded.
pub(crate) async fn hold(
    connection: &mut Connection,
    messages: &[(i64, i64)],
    came_by: CameBy<'_>,
) -> QueryResult<()> {
    let mut by_campaign: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (id, campaign_id) in messages {
        by_campaign.entry(*campaign_id).or_default().push(*id);
    }
    for (campaign_id, ids) in by_campaign {
        // They may be of a list that is not decided.
        if gate(connection, campaign_id).await? == ApprovalGate::Open {
            continue;
        }
        let lane = came_by.lane(connection, campaign_id).await?;
        move_to(connection, lane, &ids).await?;
    }
    Ok(())
}

/// Lets messages wait in a lane.
async fn move_to(connection: &mut Connection, lane: i32, messages: &[i64]) -> QueryResult<()> {
    for ids in messages.chunks(ROWS) {
        update(sms::table.filter(sms::id.eq_any(ids)))
            .set(sms::lane.eq(lane))
            .execute(connection)
            .await?;
    }
    count_added(connection, lane, messages.len() as u64).await
}

/// Lets all messages of a campaign wait, if it is guarded or this is `needed`, because `who` changes its settings. The changes of each person
/// are an approval of their own, so that two people can approve what the other one has changed.
pub(super) async fn hold_settings(
    connection: &mut Connection,
    campaign_id: i64,
    who: &str,
    needed: Option<&str>,
) -> QueryResult<()> {
    let gate = lock(connection, campaign_id).await?;
    let is_guarded = gate.is_some_and(ApprovalGate::is_guarded);
    if is_guarded || needed.is_some() {
        let of_person = format!("{:016x}", hash(&[who]));
        let new = NewApproval {
            campaign_id,
            has_lane: false,
            state: ApprovalState::Waiting,
            hash: &of_person,
            reason: needed.unwrap_or("its settings were changed"),
        };
        let authors = BTreeSet::from([who.to_owned()]);
        new.open(connection, &authors).await?;
    }
    Ok(())
}

/// An approval, as claims need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantedLane {
    state: ApprovalState,
    granted_at: Timestamp,
}

/// The approvals of lanes, by their lanes.
pub(crate) async fn of_lanes(
    connection: &mut Connection,
    lanes: impl Iterator<Item = LaneId>,
) -> QueryResult<HashMap<i32, GrantedLane>> {
    let ids: BTreeSet<i64> = lanes.filter_map(|id| of_lane(id.lane)).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(i64, i32, Timestamp)> = approval::table
        .filter(approval::id.eq_any(&ids))
        .select((approval::id, approval::state, approval::decided_at))
        .load(connection)
        .await?;
    let lane = |(id, state, granted_at)| {
        let state = ApprovalState::of(state);
        (lane_of(id), GrantedLane { state, granted_at })
    };
    Ok(rows.into_iter().map(lane).collect())
}

/// What changes of approvals while messages are claimed.
#[derive(Default)]
pub(crate) struct ApprovalChanges {
    /// Lanes that have to be approved again, with the reason.
    lapsed: BTreeMap<LaneId, &'static str>,
    /// Lanes whose first messages after the approval are sent.
    begun: BTreeSet<LaneId>,
    /// Messages and their campaigns that another program inserted, and that need approval.
    inserted: Vec<(i64, i64)>,
}

impl ApprovalChanges {
    /// Whether messages of a lane with an approval may start. `due`: when each of them is due.
    pub(crate) fn check(
        &mut self,
        lane: LaneId,
        granted: Option<&GrantedLane>,
        mut due: impl Iterator<Item = Timestamp>,
        now: Timestamp,
    ) -> bool {
        let Some(granted) = granted.filter(|granted| granted.state.is_free()) else {
            return false;
        };
        let lapsed = due.find_map(|due_at| granted.state.lapse(granted.granted_at, due_at, now));
        if let Some(reason) = lapsed {
            self.lapsed.insert(lane, reason);
        } else if granted.state == ApprovalState::Granted {
            self.begun.insert(lane);
        }
        !self.lapsed.contains_key(&lane)
    }

    /// A message that another program inserted into a guarded campaign.
    pub(crate) fn hold(&mut self, id: i64, campaign_id: i64) {
        self.inserted.push((id, campaign_id));
    }

    pub(crate) async fn store(
        self,
        connection: &mut Connection,
        now: Timestamp,
    ) -> QueryResult<()> {
        for lane in self.begun.iter().filter(|lane| !self.lapsed.contains_key(lane)) {
            update(approval::table)
                .filter(approval::id.nullable().eq(of_lane(lane.lane)))
                .filter(approval::state.eq(ApprovalState::Granted.code()))
                .set(approval::state.eq(ApprovalState::Begun.code()))
                .execute(connection)
                .await?;
        }
        for (lane, reason) in self.lapsed {
            lock(connection, lane.campaign_id).await?;
            let lapsed = update(approval::table)
                .filter(approval::id.nullable().eq(of_lane(lane.lane)))
                .filter(approval::state.eq(ApprovalState::Granted.code()))
                .set((
                    approval::state.eq(ApprovalState::Waiting.code()),
                    approval::reason.eq(reason),
                ))
                .execute(connection)
                .await?;
            if lapsed > 0 {
                summarize(connection, lane.campaign_id).await?;
                let name = campaign::table
                    .find(lane.campaign_id)
                    .select(campaign::name)
                    .first(connection)
                    .await?;
                let entry = AuditEntry::of_worker(now, name, "wait for approval", reason);
                entry.insert(connection).await?;
            }
        }
        hold(connection, &self.inserted, CameBy::Insert).await
    }
}
