//! The operator's moves between the tables: retry, settle, cancel. They work in chunks, so they can be
//! interrupted and repeated.

use super::{CHUNK, Store, StoreError};
use crate::sms::{Class, Timestamp};

/// The failed messages that an operator means, the oldest first, at most a chunk. Cancelled campaigns are left out.
macro_rules! failed_matching {
    ($filter:expr, $now:expr) => {{
        let filter: &$crate::store::ledger::RetryFilter = $filter;
        let mut query = sms_failed::table
            .order(sms_failed::id)
            .filter(
                sms_failed::campaign_id.ne_all(
                    campaign::table
                        .filter(campaign::state.eq($crate::store::CampaignStatus::Cancelled.code()))
                        .select(campaign::id),
                ),
            )
            .limit($crate::store::CHUNK)
            .select(sms_failed::id)
            .into_boxed();
        if let Some(campaign_id) = filter.campaign_id {
            query = query.filter(sms_failed::campaign_id.eq(campaign_id));
        }
        query = match filter.class {
            // A cancelled message without a key was imported again: it stays.
            Some(Class::Cancelled) => query
                .filter(sms_failed::class.eq(Class::Cancelled.as_str()))
                .filter(
                    sms_failed::dedupe_key
                        .is_not_null()
                        .or(sms_failed::import_id.is_null()),
                ),
            Some(class) => query.filter(sms_failed::class.eq(class.as_str())),
            None => query.filter(sms_failed::class.ne(Class::Cancelled.as_str())),
        };
        if let Some(code) = &filter.code {
            query = query.filter(sms_failed::code.eq(code.clone()));
        }
        if let Some(phone) = &filter.phone {
            query = query.filter(sms_failed::phone.eq(phone.clone()));
        }
        if filter.expires_at.is_none() {
            let now: Timestamp = $now;
            let still = sms_failed::expires_at
                .is_null()
                .or(sms_failed::expires_at.gt(now.as_millis()));
            query = query.filter(still.assume_not_null());
        }
        query
    }};
}

/// A campaign's unknown messages that an operator means, at most a chunk; `now` leaves out those whose
/// time has passed, unless the filter sets a new one.
macro_rules! unknown_matching {
    ($campaign_id:expr, $filter:expr, $now:expr) => {{
        let filter: &$crate::store::ledger::RetryFilter = $filter;
        let mut query = sms::table
            .filter(sms::campaign_id.eq($campaign_id))
            .filter(sms::state.eq(State::Unknown.code()))
            .limit($crate::store::CHUNK)
            .select(sms::id)
            .into_boxed();
        if let Some(phone) = &filter.phone {
            query = query.filter(sms::phone.eq(phone.clone()));
        }
        if let Some(code) = &filter.code {
            query = query.filter(sms::last_code.eq(code.clone()));
        }
        let now: Option<Timestamp> = $now;
        if let (Some(now), None) = (now, filter.expires_at) {
            let still = sms::expires_at
                .is_null()
                .or(sms::expires_at.gt(now.as_millis()));
            query = query.filter(still.assume_not_null());
        }
        query
    }};
}

pub(super) use {failed_matching, unknown_matching};

/// Which messages an operator means; what is `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct RetryFilter {
    pub campaign_id: Option<i64>,
    pub class: Option<Class>,
    pub code: Option<String>,
    /// E.164 with `+`.
    pub phone: Option<String>,
    /// The new last moment; without it, a message whose own has passed stays where it is.
    pub expires_at: Option<Timestamp>,
}

impl Store {
    /// Puts failed messages back into the queue, with a new reference and all their attempts; none of a cancelled
    /// campaign. Cancelled ones only where the filter names that class, and their key is still free.
    pub async fn retry_failed(
        &self,
        filter: &RetryFilter,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => {
                chunked(async || sqlite.retry_failed(filter.clone(), now).await).await
            }
            Self::Server(server) => {
                chunked(async || server.retry_failed(filter.clone(), now).await).await
            }
        }
    }

    /// Puts unknown messages back into the queue, in doubt and with the same reference; none of a cancelled campaign.
    pub async fn retry_unknown(
        &self,
        filter: &RetryFilter,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => {
                chunked(async || sqlite.retry_unknown(filter.clone(), now).await).await
            }
            Self::Server(server) => {
                chunked(async || server.retry_unknown(filter.clone(), now).await).await
            }
        }
    }

    /// The operator's word on unknown messages of a campaign: they were sent, or they were not.
    pub async fn settle_unknown(
        &self,
        campaign_id: i64,
        as_sent: bool,
        phone: Option<&str>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => {
                chunked(async || {
                    sqlite
                        .settle_unknown(campaign_id, as_sent, phone.map(str::to_owned), now)
                        .await
                })
                .await
            }
            Self::Server(server) => {
                chunked(async || {
                    server
                        .settle_unknown(campaign_id, as_sent, phone.map(str::to_owned), now)
                        .await
                })
                .await
            }
        }
    }

    /// Moves what is ready in a cancelled campaign to the failed, class `cancelled`, and gives up its
    /// keys; what is in doubt becomes unknown.
    pub async fn cancel_rows(&self, campaign_id: i64, now: Timestamp) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => {
                chunked(async || sqlite.cancel_rows(campaign_id, now).await).await
            }
            Self::Server(server) => {
                chunked(async || server.cancel_rows(campaign_id, now).await).await
            }
        }
    }

    /// Fails what is queued in a campaign and expires by a moment before which nothing of it may be sent; what
    /// is in doubt is parked. Looks at a chunk of the queue at a time: those after a place in it.
    pub async fn expire_rows(
        &self,
        campaign_id: i64,
        by: Timestamp,
        after: Option<QueuePlace>,
        now: Timestamp,
    ) -> Result<Expired, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.expire_rows(campaign_id, by, after, now).await,
            Self::Server(server) => server.expire_rows(campaign_id, by, after, now).await,
        }
    }
}

/// A place in a campaign's queue: when its message is due, and the message.
pub type QueuePlace = (i64, i64);

/// What came of one chunk of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    pub rows: u64,
    /// Where to go on; `None`: the queue is at its end.
    pub reached: Option<QueuePlace>,
}

/// A queued message: when it is due, its number, when it expires, and whether it is in doubt.
pub(super) type Queued = (i64, i64, Option<i64>, bool);

/// The next chunk of a campaign's queue.
macro_rules! queued_after {
    ($campaign_id:expr, $after:expr) => {{
        let (due_at, id) = $after.unwrap_or((i64::MIN, i64::MIN));
        sms::table
            .filter(sms::campaign_id.eq($campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::due_at.ge(due_at))
            .filter(sms::due_at.gt(due_at).or(sms::id.gt(id)))
            .order((sms::due_at, sms::id))
            .limit($crate::store::CHUNK)
            .select((sms::due_at, sms::id, sms::expires_at, sms::in_doubt))
    }};
}

pub(super) use queued_after;

/// Those that expire by a moment: in doubt, and the others; and where the next chunk begins.
pub(super) fn expiring(rows: &[Queued], by: Timestamp) -> (Vec<i64>, Vec<i64>, Option<QueuePlace>) {
    let expires = |row: &&Queued| row.2.is_some_and(|at| at <= by.as_millis());
    let of = |in_doubt: bool| {
        let rows = rows.iter().filter(expires);
        let rows = rows.filter(move |row| row.3 == in_doubt);
        let mut ids: Vec<i64> = rows.map(|row| row.1).collect();
        ids.sort_unstable();
        ids
    };
    let is_full = i64::try_from(rows.len()).is_ok_and(|count| count >= CHUNK);
    let reached = rows.last().filter(|_| is_full);
    (of(true), of(false), reached.map(|row| (row.0, row.1)))
}

/// What one transaction of many did.
pub(super) struct Chunk {
    /// The end is reached when there is nothing left to look at, moved or not.
    pub(super) looked_at: u64,
    pub(super) moved: u64,
}

impl Chunk {
    /// Every row that was looked at was moved.
    pub(super) fn all(rows: usize) -> Self {
        Self {
            looked_at: rows as u64,
            moved: rows as u64,
        }
    }
}

/// Repeats a chunk until nothing is left to look at; returns how many rows were moved.
pub(super) async fn chunked(
    chunk: impl AsyncFn() -> Result<Chunk, StoreError>,
) -> Result<u64, StoreError> {
    let mut moved = 0;
    loop {
        let chunk = chunk().await?;
        if chunk.looked_at == 0 {
            return Ok(moved);
        }
        moved += chunk.moved;
    }
}
