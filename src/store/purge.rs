//! What is no longer kept: messages that were settled long ago, and all that is known of one person. A row
//! goes whole, and is counted by campaign and import in the same transaction, so that nothing seems lost.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use serde::Deserialize;

use super::foreign::LossyText;
use super::schema::{campaign, purged, sms, sms_failed, sms_sent};
use super::{Store, StoreError};
use crate::sms::{Class, State, Timestamp};

/// Section `[keep]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    /// How old settled messages may become, like `90d`; empty: for ever.
    pub older_than: String,
}

impl RetentionConfig {
    /// `None` where everything is kept, or where the text is no age.
    pub fn age(&self) -> Option<Age> {
        self.older_than.parse().ok()
    }

    pub fn is_sound(&self) -> bool {
        self.older_than.is_empty() || self.age().is_some()
    }
}

/// How long messages are kept once they are settled: `90d`, `12w`, `6mo`, `1y`; at least one day.
#[derive(Clone, Copy, Debug)]
pub struct Age(jiff::Span);

impl Age {
    /// What was settled before this moment is older.
    #[must_use]
    pub fn before(self, now: Timestamp) -> Timestamp {
        let at = jiff::Timestamp::from_millisecond(now.as_millis());
        let utc = at.map(|at| at.to_zoned(jiff::tz::TimeZone::UTC));
        let before = utc.and_then(|now| now.checked_sub(self.0));
        // An age that no calendar has reaches back to before everything.
        before.map_or(Timestamp::from_millis(0), |before| {
            Timestamp::from_millis(before.timestamp().as_millisecond())
        })
    }
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let no_age = || format!("`{text}` is no age; write it like `90d`, `6mo` or `1y`");
        let span: jiff::Span = text.trim().parse().map_err(|_| no_age())?;
        let now = Timestamp::from_millis(jiff::Timestamp::now().as_millisecond());
        let day = std::time::Duration::from_secs(24 * 60 * 60);
        if Self(span).before(now) > now.minus(day) {
            return Err(format!(
                "`{text}` is too short: messages are kept for a day at least"
            ));
        }
        Ok(Self(span))
    }
}

/// How many messages were purged, by where they stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub sent: u64,
    /// With the expired ones, without the cancelled.
    pub failed: u64,
    pub unknown: u64,
    /// With those that were still waiting to be sent to a person who was forgotten.
    pub cancelled: u64,
}

impl Purged {
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
    }
}

/// What is known of one person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Person {
    pub messages: Purged,
    /// Messages that are being sent at this moment, and were left alone.
    pub sending: u64,
}

/// Rows that are gone, as they count for their campaign and import.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: i64,
    pub(super) failed: i64,
    pub(super) unknown: i64,
    pub(super) cancelled: i64,
    pub(super) segments: i64,
    pub(super) attempts: i64,
    pub(super) repeated: i64,
}

/// Tallies by campaign and import, 0 where there is none, and the dedupe keys that go with the rows.
#[derive(Default)]
pub(super) struct Tallies {
    pub(super) counts: BTreeMap<(i64, i64), Tally>,
    pub(super) keys: BTreeMap<i64, Vec<String>>,
}

impl Tallies {
    fn of(&mut self, campaign_id: i64, import_id: Option<i64>, key: Option<String>) -> &mut Tally {
        if let Some(key) = key {
            self.keys.entry(campaign_id).or_default().push(key);
        }
        self.counts
            .entry((campaign_id, import_id.unwrap_or(0)))
            .or_default()
    }

    pub(super) fn add_sent(&mut self, row: SentRow) {
        // Only an imported message has a key, and the ledger knows it where it is the phone.
        let key = row.import_id.is_some().then_some(row.phone.text);
        let tally = self.of(row.campaign_id, row.import_id, key);
        tally.sent += 1;
        tally.segments += i64::from(row.segments.unwrap_or(0));
        tally.attempts += i64::from(row.attempts);
        tally.repeated += i64::from(row.accepted > 1);
    }

    pub(super) fn add_failed(&mut self, row: FailedRow) {
        let is_cancelled = row.class == Class::Cancelled.as_str();
        // A cancelled message has given up its key; who has it now is somebody else.
        let key = row.dedupe_key.filter(|_| !is_cancelled).map(String::from);
        let tally = self.of(row.campaign_id, row.import_id, key);
        if is_cancelled {
            tally.cancelled += 1;
        } else {
            tally.failed += 1;
        }
    }

    /// A row of table `sms`: nobody knows what became of it, or it is forgotten before it was sent.
    pub(super) fn add_queued(&mut self, row: QueuedRow) {
        let is_unknown = row.in_doubt || row.state == State::Unknown.code();
        let key = row.dedupe_key.map(String::from);
        let tally = self.of(row.campaign_id, row.import_id, key);
        if is_unknown {
            tally.unknown += 1;
        } else {
            tally.cancelled += 1;
        }
    }

    pub(super) fn purged(&self) -> Purged {
        let mut all = Purged::default();
        for tally in self.counts.values() {
            let count = |count| u64::try_from(count).unwrap_or(0);
            all += Purged {
                sent: count(tally.sent),
                failed: count(tally.failed),
                unknown: count(tally.unknown),
                cancelled: count(tally.cancelled),
            };
        }
        all
    }
}

/// A row of the ledger that is to go.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
pub(super) struct SentRow {
    pub(super) id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    phone: LossyText,
    segments: Option<i32>,
    attempts: i32,
    accepted: i32,
}

/// A dead letter that is to go.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms_failed)]
pub(super) struct FailedRow {
    pub(super) id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    dedupe_key: Option<LossyText>,
    class: String,
    pub(super) failed_at: i64,
}

/// A row of table `sms` that is to go.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub(super) struct QueuedRow {
    pub(super) id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    dedupe_key: Option<LossyText>,
    state: i32,
    in_doubt: bool,
}

/// What one transaction of a purge looks at.
#[derive(Clone, Debug)]
pub(super) enum Stretch {
    /// Of a campaign, settled before the moment.
    Sent(i64, Timestamp),
    /// Of any campaign, with a greater id, failed before the moment.
    Failed(i64, Timestamp),
    /// Of a campaign, last tried before the moment.
    Unknown(i64, Timestamp),
    /// The keys of a campaign of which nothing is left.
    Keys(i64),
    /// Everything to and of these spellings of a phone.
    Phone(Vec<String>),
}

/// What one transaction of a purge did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PurgeChunk {
    pub(super) purged: Purged,
    /// The last row that was looked at; `None` when there was nothing left.
    pub(super) last: Option<i64>,
}

/// A purge of what is older than a moment, to be done step by step: it may end anywhere and be begun again.
#[derive(Debug)]
pub struct Purge {
    stretches: VecDeque<Stretch>,
}

impl Store {
    /// Messages that were settled before this moment, and unknown ones that were last tried before it.
    pub async fn begin_purge(&self, before: Timestamp) -> Result<Purge, StoreError> {
        let campaigns: Vec<i64> = reading!(self, |conn| campaign::table
            .order(campaign::id)
            .select(campaign::id)
            .load(conn))?;
        let mut stretches: VecDeque<Stretch> = campaigns
            .iter()
            .flat_map(|&id| [Stretch::Sent(id, before), Stretch::Unknown(id, before)])
            .collect();
        stretches.push_front(Stretch::Failed(0, before));
        stretches.extend(campaigns.into_iter().map(Stretch::Keys));
        Ok(Purge { stretches })
    }

    /// Purges at most a thousand messages; `None` when nothing is left.
    pub async fn next_purge(
        &self,
        purge: &mut Purge,
        now: Timestamp,
    ) -> Result<Option<Purged>, StoreError> {
        while let Some(stretch) = purge.stretches.front_mut() {
            let chunk = self.purge_chunk(stretch.clone(), now).await?;
            match (chunk.last, stretch) {
                (None, _) => drop(purge.stretches.pop_front()),
                (Some(last), Stretch::Failed(after, _)) => *after = last,
                (Some(_), _) => {}
            }
            if chunk.last.is_some() {
                return Ok(Some(chunk.purged));
            }
        }
        Ok(None)
    }

    /// Forgets a person, by all spellings of their phone: what waits for them is not sent any more.
    pub async fn forget(&self, phones: &[String], now: Timestamp) -> Result<Person, StoreError> {
        let mut person = Person::default();
        loop {
            let chunk = self
                .purge_chunk(Stretch::Phone(phones.to_vec()), now)
                .await?;
            person.messages += chunk.purged;
            if chunk.last.is_none() {
                break;
            }
        }
        person.sending = self.known_of(phones).await?.sending;
        Ok(person)
    }

    async fn purge_chunk(
        &self,
        stretch: Stretch,
        now: Timestamp,
    ) -> Result<PurgeChunk, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.purge(stretch, now).await,
            Self::Server(server) => server.purge(stretch, now).await,
        }
    }

    /// What a purge of what was settled before this moment would find.
    pub async fn older_than(&self, before: Timestamp) -> Result<Purged, StoreError> {
        let before = before.as_millis();
        let sent: i64 = reading!(self, |conn| sms_sent::table
            .filter(sms_sent::sent_at.lt(before))
            .count()
            .get_result(conn))?;
        let failed: Vec<String> = reading!(self, |conn| sms_failed::table
            .filter(sms_failed::failed_at.lt(before))
            .select(sms_failed::class)
            .load(conn))?;
        let unknown: i64 = reading!(self, |conn| sms::table
            .filter(sms::state.eq(State::Unknown.code()))
            .filter(sms::claimed_at.lt(before))
            .count()
            .get_result(conn))?;
        Ok(counts(sent, &failed, unknown))
    }

    /// What is known of a person, by all spellings of their phone.
    pub async fn known_of(&self, phones: &[String]) -> Result<Person, StoreError> {
        let sent: i64 = reading!(self, |conn| sms_sent::table
            .filter(sms_sent::phone.eq_any(phones))
            .count()
            .get_result(conn))?;
        let failed: Vec<String> = reading!(self, |conn| sms_failed::table
            .filter(sms_failed::phone.eq_any(phones))
            .select(sms_failed::class)
            .load(conn))?;
        let queued: Vec<(i32, bool)> = reading!(self, |conn| sms::table
            .filter(sms::phone.eq_any(phones))
            .select((sms::state, sms::in_doubt))
            .load(conn))?;
        let of =
            |matches: fn(&(i32, bool)) -> bool| queued.iter().filter(|row| matches(row)).count();
        let sending = of(|(state, _)| *state == State::Sending.code()) as u64;
        let waiting = of(|(state, in_doubt)| *state == State::Ready.code() && !in_doubt) as u64;
        let mut messages = counts(sent, &failed, 0);
        messages.cancelled += waiting;
        messages.unknown = queued.len() as u64 - sending - waiting;
        Ok(Person { messages, sending })
    }

    /// When something of these campaigns was purged last.
    pub async fn purged_at(&self, campaigns: &[i64]) -> Result<Option<Timestamp>, StoreError> {
        let last: Option<i64> = reading!(self, |conn| purged::table
            .filter(purged::campaign_id.eq_any(campaigns))
            .select(diesel::dsl::max(purged::purged_at))
            .first(conn))?;
        Ok(last.map(Timestamp::from_millis))
    }
}

fn counts(sent: i64, failed: &[String], unknown: i64) -> Purged {
    let is_cancelled = |class: &&String| *class == Class::Cancelled.as_str();
    let cancelled = failed.iter().filter(is_cancelled).count() as u64;
    let positive = |count| u64::try_from(count).unwrap_or(0);
    Purged {
        sent: positive(sent),
        failed: failed.len() as u64 - cancelled,
        unknown: positive(unknown),
        cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_day_at_least_and_counted_by_the_calendar() {
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
