//! Deletes old messages, and everything about one person. Deleted rows are counted by campaign and import in the same
//! transaction, so that no message seems lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use diesel::dsl::{count_star, exists, not};
use diesel::{delete, update};
use serde::Deserialize;
use smsq_message::age::Age;
use smsq_message::sms::{Class, State, Timestamp};
use smsq_process::boxed;

use super::removal::{self, Removal};
use crate::audit::{Audited, audited};
use crate::campaigns::schedules;
use crate::connection::prelude::*;
use crate::connection::{
    Connection, NewRows, QueryResult, ROWS, delete_all, execute_each, transaction,
};
use crate::error::StoreError;
use crate::events::hooks;
use crate::queue::results::transitions::RemovedKeys;
use crate::queue::results::{attempts, transitions};
use crate::receipts::inbox::delete_receipts;
use crate::recipients::{dead, replies};
use crate::tables::campaign_filter::CampaignFilter;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{
    campaign, hook_event, import, purged, receipt, recipient_start, reply, sms, sms_failed,
    sms_key, sms_sent,
};
use crate::tables::values::PLAIN;
use crate::{CHUNK, Store, positive, signed};

/// Section `[retention]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    /// How long settled messages are kept, such as `90d`; empty: forever.
    pub older_than: String,
}

impl RetentionConfig {
    /// `None` if everything is kept or the text is not an age.
    pub fn age(&self) -> Option<Age> {
        self.older_than.parse().ok()
    }

    pub fn is_valid(&self) -> bool {
        self.older_than.is_empty() || self.age().is_some()
    }
}

/// The number of deleted messages by their last state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub sent: u64,
    /// With the expired ones, without the cancelled.
    pub failed: u64,
    pub unknown: u64,
    /// With those that were queued for a person whose messages are deleted.
    pub cancelled: u64,
    /// Messages that are being sent to this person: they are kept.
    pub sending: u64,
    /// Empty campaigns that were removed.
    pub campaigns: u64,
}

impl Purged {
    fn add_failed(&mut self, class: &str, count: u64) {
        if class == Class::Cancelled.as_str() {
            self.cancelled += count;
        } else {
            self.failed += count;
        }
    }

    /// The number of deleted messages.
    pub fn total(&self) -> u64 {
        self.sent + self.failed + self.unknown + self.cancelled
    }
}

impl std::ops::AddAssign for Purged {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.cancelled += other.cancelled;
        self.sending += other.sending;
        self.campaigns += other.campaigns;
    }
}

/// The deleted rows of one campaign and import.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    messages: Purged,
    segments: i64,
    attempts: i64,
    repeated: i64,
    /// What became of the sent ones, where receipts were awaited.
    delivered: i64,
    undelivered: i64,
    expired: i64,
    no_report: i64,
}

/// Counts of deleted rows by campaign and import, and the dedupe keys that are deleted with them.
#[derive(Default)]
struct PurgeCounts {
    counts: BTreeMap<(i64, i64), Count>,
    keys: BTreeMap<i64, Vec<String>>,
    /// The keys of sent messages.
    sent_keys: BTreeMap<i64, Vec<String>>,
}

impl PurgeCounts {
    fn of(&mut self, campaign_id: i64, import_id: Option<i64>, key: Option<String>) -> &mut Count {
        if let Some(key) = key {
            self.keys.entry(campaign_id).or_default().push(key);
        }
        let group = (campaign_id, import_id.unwrap_or(PLAIN));
        self.counts.entry(group).or_default()
    }
}

#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
struct SentRow {
    id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    phone: LossyText,
    dedupe_key: Option<LossyText>,
    segments: Option<i32>,
    attempts: i32,
    accepted: i32,
    delivery_state: Option<String>,
}

#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms_failed)]
struct FailedRow {
    id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    dedupe_key: Option<LossyText>,
    class: String,
}

#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms)]
struct QueuedRow {
    id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    dedupe_key: Option<LossyText>,
    state: i32,
    in_doubt: bool,
}

/// A part of a purge.
#[derive(Clone, Debug)]
enum PurgeScope {
    /// Messages of a campaign that were sent before the instant.
    Sent(i64, Timestamp),
    /// Messages with a greater id that failed before the instant.
    Failed(i64, Timestamp),
    /// Unknown messages of a campaign that were last tried before the instant.
    Unknown(i64, Timestamp),
    /// The numbers that were found not to exist before the instant.
    Dead(Timestamp),
    /// Events for hooks that happened before the instant.
    Events(Timestamp),
    /// Replies that came before the instant.
    Replies(Timestamp),
    /// The dedupe keys of a campaign that has no messages left.
    Keys(i64),
    /// Empty campaigns, all at once.
    Campaigns(Vec<i64>, Timestamp, Removal),
}

/// What a purge looks for next.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Messages,
    Keys,
    Campaigns,
    End,
}

/// The remaining parts of a purge, which can be interrupted and begun again.
#[derive(Debug)]
pub struct Purge {
    before: Timestamp,
    removal: Option<Removal>,
    next: Stage,
    scopes: VecDeque<PurgeScope>,
}

impl Purge {
    /// Deletes messages that were settled before an instant, and unknown messages that were last tried before it.
    /// Then removes campaigns that were done before it.
    #[must_use]
    pub fn before(before: Timestamp, removal: Option<Removal>) -> Self {
        Self {
            before,
            removal,
            next: Stage::Messages,
            scopes: VecDeque::from([
                PurgeScope::Failed(0, before),
                PurgeScope::Dead(before),
                PurgeScope::Events(before),
                PurgeScope::Replies(before),
            ]),
        }
    }

    /// Only removes campaigns that were done before an instant.
    #[must_use]
    pub fn of_campaigns(before: Timestamp) -> Self {
        Self {
            before,
            removal: Some(Removal::Asked),
            next: Stage::Campaigns,
            scopes: VecDeque::new(),
        }
    }
}

/// A span of ids that is searched for a phone in one statement.
const SEARCHED: i64 = 100_000;

/// Loads the rows of a table with one of these phones. Phones have no index, because each message would pay for it: the
/// table is read in spans of ids, without locks, so that no statement takes long.
macro_rules! rows_of_phones {
    ($store:expr, $table:ident, $phones:expr, $columns:expr, $Row:ty) => {{
        let mut found: Vec<$Row> = Vec::new();
        let mut after = i64::MIN;
        loop {
            let first: Option<i64> = $store
                .read_first(
                    $table::table.filter($table::id.gt(after)).select(diesel::dsl::min($table::id)),
                )
                .await?;
            let Some(first) = first else {
                break found;
            };
            after = first.saturating_add(SEARCHED);
            let rows: Vec<$Row> = $store
                .read(
                    $table::table
                        .filter($table::id.between(first, after))
                        .filter($table::phone.eq_any($phones))
                        .order($table::id)
                        .select($columns),
                )
                .await?;
            found.extend(rows);
        }
    }};
}

/// Everything about a person.
#[derive(Default)]
struct Person {
    /// Id, state, and whether it is in doubt.
    queued: Vec<(i64, i32, bool)>,
    /// Id and class.
    failed: Vec<(i64, String)>,
    sent: Vec<i64>,
    receipts: Vec<i64>,
    events: Vec<i64>,
    replies: Vec<i64>,
    /// Message and claim.
    starts: Vec<(i64, i64)>,
    /// Campaign and dedupe key.
    keys: Vec<(i64, String)>,
}

impl Person {
    fn counts(&self) -> Purged {
        let mut counts = Purged { sent: self.sent.len() as u64, ..Purged::default() };
        for (_, class) in &self.failed {
            counts.add_failed(class, 1);
        }
        for &(_, state, in_doubt) in &self.queued {
            if state == State::Sending.code() {
                counts.sending += 1;
            } else if state == State::Ready.code() && !in_doubt {
                counts.cancelled += 1;
            } else {
                counts.unknown += 1;
            }
        }
        counts
    }

    /// The queued messages that can be deleted.
    fn waiting(&self) -> Vec<i64> {
        let queued = self.queued.iter();
        let waiting = queued.filter(|(_, state, _)| *state != State::Sending.code());
        waiting.map(|(id, ..)| *id).collect()
    }
}

impl Store {
    /// Deletes at most a thousand messages, or removes some campaigns; `None` if none are left.
    #[boxed]
    pub async fn next_purge(
        &self,
        purge: &mut Purge,
        now: Timestamp,
        audited: &mut Audited<Purged>,
    ) -> Result<Option<Purged>, StoreError> {
        loop {
            while let Some(scope) = purge.scopes.front_mut() {
                let mut last = None;
                let purged = audited!(self, audited, now, |connection| async {
                    let (purged, reached) = purge_scope(connection, scope, now).await?;
                    last = reached;
                    QueryResult::Ok(purged)
                })?;
                if let PurgeScope::Campaigns(..) = scope {
                    purge.scopes.pop_front();
                    return Ok(Some(purged));
                }
                if let Some(last) = last {
                    if let PurgeScope::Failed(after, _) = scope {
                        *after = last;
                    }
                    return Ok(Some(purged));
                }
                purge.scopes.pop_front();
            }
            if !self.find_scopes(purge).await? {
                return Ok(None);
            }
        }
    }

    /// Finds the parts of the next stage without locks; false at the end.
    async fn find_scopes(&self, purge: &mut Purge) -> Result<bool, StoreError> {
        let before = purge.before;
        match purge.next {
            Stage::Messages => {
                let old = || {
                    let sent = sms_sent::table.filter(sms_sent::campaign_id.eq(campaign::id));
                    exists(sent.filter(sms_sent::sent_at.lt(before)))
                };
                let sent: Vec<i64> =
                    self.read(campaign::table.filter(old()).select(campaign::id)).await?;
                let unknown: Vec<i64> = self
                    .read(
                        sms::table
                            .filter(CampaignFilter::All.on(sms::campaign_id))
                            .filter(sms::state.eq(State::Unknown.code()))
                            .filter(sms::claimed_at.lt(before))
                            .select(sms::campaign_id)
                            .distinct(),
                    )
                    .await?;
                let sent = sent.into_iter().map(|id| PurgeScope::Sent(id, before));
                let unknown = unknown.into_iter().map(|id| PurgeScope::Unknown(id, before));
                purge.scopes.extend(sent.chain(unknown));
                purge.next = Stage::Keys;
            }
            Stage::Keys => {
                macro_rules! has {
                    ($table:ident) => {
                        exists($table::table.filter($table::campaign_id.eq(purged::campaign_id)))
                    };
                }
                let found: Vec<i64> = self
                    .read(
                        purged::table
                            .filter(has!(sms_key))
                            .filter(not(has!(sms)))
                            .filter(not(has!(sms_failed)))
                            .filter(not(has!(sms_sent)))
                            .select(purged::campaign_id)
                            .distinct(),
                    )
                    .await?;
                purge.scopes.extend(found.into_iter().map(PurgeScope::Keys));
                purge.next = Stage::Campaigns;
            }
            Stage::Campaigns => {
                if let Some(removal) = purge.removal {
                    let found = self.removable_campaigns(before, removal).await?;
                    let parts = found.chunks(removal::CAMPAIGNS);
                    purge.scopes.extend(
                        parts.map(|ids| PurgeScope::Campaigns(ids.to_vec(), before, removal)),
                    );
                }
                purge.next = Stage::End;
            }
            Stage::End => return Ok(false),
        }
        Ok(true)
    }

    /// Deletes everything about a person, by all spellings of their phone, and the messages that are queued for them.
    #[boxed]
    pub async fn purge_person(
        &self,
        phones: &[String],
        now: Timestamp,
        mut audited: Audited<Purged>,
    ) -> Result<Purged, StoreError> {
        loop {
            // Messages move between the tables while they are searched, so they are searched until none is found.
            let found = self.find_person(phones).await?;
            let (counts, waiting) = (found.counts(), found.waiting());
            let most = waiting.len().max(found.failed.len()).max(found.sent.len());
            let failed: Vec<i64> = found.failed.iter().map(|(id, _)| *id).collect();
            for start in (0..most).step_by(ROWS) {
                let part = |ids: &[i64]| {
                    let end = ids.len().min(start + ROWS);
                    ids.get(start..end).unwrap_or_default().to_vec()
                };
                let (queued, failed, sent) = (part(&waiting), part(&failed), part(&found.sent));
                audited!(self, audited, now, |connection| async {
                    let mut counts = PurgeCounts::default();
                    let states = [State::Ready, State::Unknown];
                    delete_queued(connection, &queued, &states, &mut counts).await?;
                    delete_failed(connection, &failed, &mut counts).await?;
                    delete_sent(connection, &sent, &mut counts).await?;
                    store_purged(connection, &counts, now).await
                })?;
            }
            self.delete_traces(&found).await?;
            transaction!(self, |connection| dead::forget(connection, phones))?;
            if most == 0 {
                return Ok(Purged { sending: counts.sending, ..*audited.done() });
            }
        }
    }

    /// Searches all tables for a person, the queue first: most messages leave it meanwhile, and are found where they go.
    async fn find_person(&self, phones: &[String]) -> Result<Person, StoreError> {
        let mut person = Person {
            queued: rows_of_phones!(
                self,
                sms,
                phones,
                (sms::id, sms::state, sms::in_doubt),
                (i64, i32, bool)
            ),
            failed: rows_of_phones!(
                self,
                sms_failed,
                phones,
                (sms_failed::id, sms_failed::class),
                (i64, String)
            ),
            sent: rows_of_phones!(self, sms_sent, phones, sms_sent::id, i64),
            ..Person::default()
        };
        person.starts = self
            .read(
                recipient_start::table
                    .filter(recipient_start::phone.eq_any(phones))
                    .filter(recipient_start::ended_at.is_not_null())
                    .select((recipient_start::sms_id, recipient_start::claim)),
            )
            .await?;
        // Providers may write it without `+`.
        let digits = phones.iter().map(|phone| phone.trim_start_matches('+').to_owned());
        let spellings: Vec<String> = digits.chain(phones.iter().cloned()).collect();
        person.receipts = rows_of_phones!(self, receipt, &spellings, receipt::id, i64);
        person.events = rows_of_phones!(self, hook_event, &spellings, hook_event::id, i64);
        person.replies = rows_of_phones!(self, reply, &spellings, reply::id, i64);
        for phone in phones {
            // Campaign by campaign in the primary key.
            let campaigns: Vec<i64> = self
                .read(
                    campaign::table
                        .inner_join(
                            sms_key::table.on(sms_key::campaign_id
                                .eq(campaign::id)
                                .and(sms_key::dedupe_key.eq(phone))),
                        )
                        .select(campaign::id),
                )
                .await?;
            let keys = campaigns.into_iter().map(|id| (id, phone.clone()));
            person.keys.extend(keys);
        }
        Ok(person)
    }

    /// Deletes the receipts, events, replies, starts of requests and dedupe keys of a person.
    async fn delete_traces(&self, found: &Person) -> Result<(), StoreError> {
        for ids in found.receipts.chunks(ROWS) {
            transaction!(self, |connection| delete_receipts(connection, ids))?;
        }
        for ids in found.events.chunks(ROWS) {
            transaction!(self, |connection| hooks::delete_events(connection, ids))?;
        }
        for ids in found.replies.chunks(ROWS) {
            transaction!(self, |connection| replies::delete_replies(connection, ids))?;
        }
        for starts in found.starts.chunks(ROWS) {
            transaction!(self, |connection| async {
                execute_each(
                    connection,
                    starts.iter().map(|start| delete(recipient_start::table.find(*start))),
                )
                .await
            })?;
        }
        for keys in found.keys.chunks(ROWS) {
            transaction!(self, |connection| async {
                for (campaign_id, key) in keys {
                    transitions::remove_keys(connection, *campaign_id, &[key], RemovedKeys::Unused)
                        .await?;
                }
                QueryResult::Ok(())
            })?;
        }
        Ok(())
    }

    /// Counts the messages that a purge up to this instant would delete.
    #[boxed]
    pub async fn count_older(&self, before: Timestamp) -> Result<Purged, StoreError> {
        let unknown: i64 = self
            .read_one(
                sms::table
                    .filter(sms::state.eq(State::Unknown.code()))
                    .filter(sms::claimed_at.lt(before))
                    .count(),
            )
            .await?;
        let sent: i64 =
            self.read_one(sms_sent::table.filter(sms_sent::sent_at.lt(before)).count()).await?;
        let failed: Vec<(String, i64)> = self
            .read(
                sms_failed::table
                    .filter(sms_failed::failed_at.lt(before))
                    .group_by(sms_failed::class)
                    .select((sms_failed::class, count_star())),
            )
            .await?;
        let mut counts =
            Purged { sent: positive(sent), unknown: positive(unknown), ..Purged::default() };
        for (class, count) in failed {
            counts.add_failed(&class, positive(count));
        }
        Ok(counts)
    }

    /// Counts the messages of a person, by all spellings of their phone.
    #[boxed]
    pub async fn count_person(&self, phones: &[String]) -> Result<Purged, StoreError> {
        Ok(self.find_person(phones).await?.counts())
    }

    /// When messages of these campaigns were last purged.
    #[boxed]
    pub async fn purged_at(
        &self,
        campaigns: CampaignFilter,
    ) -> Result<Option<Timestamp>, StoreError> {
        self.read_first(
            purged::table
                .filter(campaigns.with_removed(purged::campaign_id))
                .select(diesel::dsl::max(purged::purged_at)),
        )
        .await
    }
}

/// Purges a part of a scope; returns the counts and the last row that was read, `None` if there was none.
async fn purge_scope(
    connection: &mut Connection,
    scope: &PurgeScope,
    now: Timestamp,
) -> QueryResult<(Purged, Option<i64>)> {
    let mut counts = PurgeCounts::default();
    let last = match scope {
        PurgeScope::Sent(campaign_id, before) => {
            let ids: Vec<i64> = sms_sent::table
                .filter(sms_sent::campaign_id.eq(*campaign_id))
                .filter(sms_sent::sent_at.lt(*before))
                .order((sms_sent::sent_at, sms_sent::id))
                .limit(CHUNK)
                .select(sms_sent::id)
                .load(connection)
                .await?;
            delete_sent(connection, &ids, &mut counts).await?;
            ids.last().copied()
        }
        PurgeScope::Failed(after, before) => {
            let seen: Vec<(i64, Timestamp)> = sms_failed::table
                .filter(sms_failed::id.gt(*after))
                .order(sms_failed::id)
                .limit(CHUNK)
                .select((sms_failed::id, sms_failed::failed_at))
                .load(connection)
                .await?;
            let old = seen.iter().filter(|(_, at)| at < before);
            let ids: Vec<i64> = old.map(|(id, _)| *id).collect();
            delete_failed(connection, &ids, &mut counts).await?;
            seen.last().map(|(id, _)| *id)
        }
        PurgeScope::Unknown(campaign_id, before) => {
            let ids: Vec<i64> = sms::table
                .filter(sms::campaign_id.eq(*campaign_id))
                .filter(sms::state.eq(State::Unknown.code()))
                .filter(sms::claimed_at.lt(*before))
                .limit(CHUNK)
                .select(sms::id)
                .load(connection)
                .await?;
            delete_queued(connection, &ids, &[State::Unknown], &mut counts).await?;
            ids.last().copied()
        }
        PurgeScope::Dead(before) => dead::purge(connection, *before).await?.then_some(0),
        PurgeScope::Events(before) => hooks::purge_before(connection, *before).await?.then_some(0),
        PurgeScope::Replies(before) => {
            replies::purge_before(connection, *before).await?.then_some(0)
        }
        PurgeScope::Keys(campaign_id) => purge_keys(connection, *campaign_id, now).await?,
        PurgeScope::Campaigns(campaigns, before, removal) => {
            let removed = removal::remove(connection, campaigns, *before, *removal, now).await?;
            let purged = Purged { campaigns: removed, ..Purged::default() };
            return Ok((purged, None));
        }
    };
    Ok((store_purged(connection, &counts, now).await?, last))
}

/// Deletes the keys of deleted messages and adds to their counts; returns the sum.
async fn store_purged(
    connection: &mut Connection,
    counts: &PurgeCounts,
    now: Timestamp,
) -> QueryResult<Purged> {
    let mut kept = BTreeSet::new();
    for &campaign_id in counts.keys.keys().chain(counts.sent_keys.keys()) {
        if !kept.contains(&campaign_id)
            && schedules::keeps_keys(connection, campaign_id, now).await?
        {
            kept.insert(campaign_id);
        }
    }
    let is_forgotten = |(id, _): &(&i64, &Vec<String>)| !kept.contains(*id);
    for (campaign_id, keys) in counts.keys.iter().filter(is_forgotten) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        transitions::remove_keys(connection, *campaign_id, &keys, RemovedKeys::NotSent).await?;
    }
    for (campaign_id, keys) in counts.sent_keys.iter().filter(is_forgotten) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        transitions::remove_keys(connection, *campaign_id, &keys, RemovedKeys::OfSent).await?;
    }
    store_counts(connection, counts, now).await?;
    let mut purged = Purged::default();
    for count in counts.counts.values() {
        purged += count.messages;
    }
    Ok(purged)
}

/// Deletes and counts those of the messages that still exist. They were found without locks, because a search locks
/// more rows than it returns.
macro_rules! delete_counted {
    ($connection:expr, $table:ident, $found:expr, |$row:ident: $Row:ty| $count:expr) => {{
        let rows: Vec<$Row> =
            $found.order($table::id).select(<$Row>::as_select()).locked().load($connection).await?;
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        for $row in rows {
            $count
        }
        attempts::delete_of($connection, &ids).await?;
        delete_all($connection, &ids, |ids| {
            diesel::delete($table::table.filter($table::id.eq_any(ids)))
        })
        .await
    }};
}

async fn delete_sent(
    connection: &mut Connection,
    ids: &[i64],
    counts: &mut PurgeCounts,
) -> QueryResult<()> {
    let found = || sms_sent::table.filter(sms_sent::id.eq_any(ids));
    delete_counted!(connection, sms_sent, found(), |row: SentRow| {
        // A message that another program inserted has no key.
        if row.import_id.is_some() {
            let keys = counts.sent_keys.entry(row.campaign_id).or_default();
            keys.push(row.dedupe_key.unwrap_or(row.phone).text);
        }
        let count = counts.of(row.campaign_id, row.import_id, None);
        count.messages.sent += 1;
        count.segments += i64::from(row.segments.unwrap_or(0));
        count.attempts += i64::from(row.attempts);
        count.repeated += i64::from(row.accepted > 1);
        match row.delivery_state.as_deref() {
            None => {}
            Some("delivered") => count.delivered += 1,
            Some("undelivered") => count.undelivered += 1,
            Some("expired") => count.expired += 1,
            Some(_) => count.no_report += 1,
        }
    })?;
    delete(receipt::table.filter(receipt::sms_id.eq_any(ids))).execute(connection).await?;
    Ok(())
}

async fn delete_failed(
    connection: &mut Connection,
    ids: &[i64],
    counts: &mut PurgeCounts,
) -> QueryResult<()> {
    let found = || sms_failed::table.filter(sms_failed::id.eq_any(ids));
    delete_counted!(connection, sms_failed, found(), |row: FailedRow| {
        let is_cancelled = row.class == Class::Cancelled.as_str();
        // A cancelled message has lost its key, which another message may have now.
        let key = row.dedupe_key.filter(|_| !is_cancelled).map(String::from);
        let messages = &mut counts.of(row.campaign_id, row.import_id, key).messages;
        messages.add_failed(&row.class, 1);
    })
}

/// Deletes those of the queued messages that are still in one of the states: unknown ones, or ones that are deleted
/// before they were sent.
async fn delete_queued(
    connection: &mut Connection,
    ids: &[i64],
    states: &[State],
    counts: &mut PurgeCounts,
) -> QueryResult<()> {
    let states: Vec<i32> = states.iter().map(|state| state.code()).collect();
    let found = || sms::table.filter(sms::id.eq_any(ids)).filter(sms::state.eq_any(&states));
    delete_counted!(connection, sms, found(), |row: QueuedRow| {
        let is_unknown = row.in_doubt || row.state == State::Unknown.code();
        let key = row.dedupe_key.map(String::from);
        let messages = &mut counts.of(row.campaign_id, row.import_id, key).messages;
        messages.unknown += u64::from(is_unknown);
        messages.cancelled += u64::from(!is_unknown);
    })
}

/// Deletes the remaining dedupe keys of a campaign whose last message was purged. The keys are read first: if an import
/// adds one meanwhile, its message is found.
async fn purge_keys(
    connection: &mut Connection,
    campaign_id: i64,
    now: Timestamp,
) -> QueryResult<Option<i64>> {
    let keys: Vec<LossyText> = sms_key::table
        .filter(sms_key::campaign_id.eq(campaign_id))
        .order(sms_key::dedupe_key)
        .select(sms_key::dedupe_key)
        .limit(CHUNK)
        .locked()
        .load(connection)
        .await?;
    let was_purged: Vec<i64> = purged::table
        .filter(purged::campaign_id.eq(campaign_id))
        .limit(1)
        .select(purged::import_id)
        .load(connection)
        .await?;
    if keys.is_empty()
        || was_purged.is_empty()
        || removal::has_messages(connection, campaign_id).await?
        || schedules::keeps_keys(connection, campaign_id, now).await?
    {
        return Ok(None);
    }
    let keys: Vec<&str> = keys.iter().map(|key| key.text.as_str()).collect();
    let removed =
        transitions::remove_keys(connection, campaign_id, &keys, RemovedKeys::All).await?;
    Ok((removed > 0).then_some(campaign_id))
}

/// Adds to table `purged`.
async fn store_counts(
    connection: &mut Connection,
    counts: &PurgeCounts,
    now: Timestamp,
) -> QueryResult<()> {
    for (&(campaign_id, import_id), count) in &counts.counts {
        let rows = [(purged::campaign_id.eq(campaign_id), purged::import_id.eq(import_id))];
        NewRows::of(purged::table, &rows).insert_new(connection).await?;
        update(purged::table.find((campaign_id, import_id)))
            .set((
                purged::sent.eq(purged::sent + signed(count.messages.sent)),
                purged::failed.eq(purged::failed + signed(count.messages.failed)),
                purged::unknown.eq(purged::unknown + signed(count.messages.unknown)),
                purged::cancelled.eq(purged::cancelled + signed(count.messages.cancelled)),
                purged::segments.eq(purged::segments + count.segments),
                purged::attempts.eq(purged::attempts + count.attempts),
                purged::repeated.eq(purged::repeated + count.repeated),
                purged::delivered.eq(purged::delivered + count.delivered),
                purged::undelivered.eq(purged::undelivered + count.undelivered),
                purged::expired.eq(purged::expired + count.expired),
                purged::no_report.eq(purged::no_report + count.no_report),
                purged::purged_at.eq(now),
            ))
            .execute(connection)
            .await?;
        // The sample may be the text of a deleted message.
        update(import::table.find(import_id))
            .filter(import::sample.is_not_null())
            .set(import::sample.eq(None::<String>))
            .execute(connection)
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_at_least_a_day_and_follows_the_calendar() {
        let now = Timestamp::from_millis(1_763_715_600_000);
        let days = |text: &str| {
            let age: Age = text.parse().expect("an age");
            now.since(age.before(now)).as_secs() / 86_400
        };
        assert_eq!((days("90d"), days("2w"), days("1y")), (90, 14, 365));
        for bad in ["", "90", "soon", "5h", "0d", "-90d"] {
            assert!(bad.parse::<Age>().is_err(), "{bad}");
        }
        assert!("86400s".parse::<Age>().is_ok());
    }
}
