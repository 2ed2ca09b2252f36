//! The operator's moves between the tables: retry, settle, cancel. They work in chunks, so they can be
//! interrupted and repeated.

use super::{Store, StoreError};
use crate::sms::{Class, Timestamp};

/// The failed messages that an operator means, the oldest first, at most a chunk.
macro_rules! failed_matching {
    ($filter:expr, $now:expr) => {{
        let filter: &$crate::store::ledger::RetryFilter = $filter;
        let mut query = sms_failed::table
            .order(sms_failed::id)
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
    /// Puts failed messages back into the queue, with a new reference and all their attempts.
    /// Cancelled ones only where the filter names that class, and their key is still free.
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

    /// Puts unknown messages back into the queue, in doubt and with the same reference.
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
    /// is in doubt is parked. Returns how many.
    pub async fn expire_rows(
        &self,
        campaign_id: i64,
        by: Timestamp,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => {
                chunked(async || sqlite.expire_rows(campaign_id, by, now).await).await
            }
            Self::Server(server) => {
                chunked(async || server.expire_rows(campaign_id, by, now).await).await
            }
        }
    }
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
async fn chunked(chunk: impl AsyncFn() -> Result<Chunk, StoreError>) -> Result<u64, StoreError> {
    let mut moved = 0;
    loop {
        let chunk = chunk().await?;
        if chunk.looked_at == 0 {
            return Ok(moved);
        }
        moved += chunk.moved;
    }
}
