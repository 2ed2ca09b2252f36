//! The suppression list: phones that nothing is sent to.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::schema::suppression;
use super::{CHUNK, Store, StoreError};
use crate::sms::Timestamp;

/// One phone of the suppression list.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = suppression)]
pub struct Suppressed {
    /// E.164 with `+`.
    pub phone: String,
    pub reason: Option<String>,
    /// In milliseconds since the Unix epoch.
    pub created_at: i64,
}

impl Store {
    /// Adds phones (E.164 with `+`) and why; returns how many were new.
    pub async fn suppress(
        &self,
        phones: Vec<(String, Option<String>)>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.suppress(phones, now).await,
            Self::Server(server) => server.suppress(phones, now).await,
        }
    }

    /// Takes phones off the list; returns how many were on it.
    pub async fn unsuppress(&self, phones: Vec<String>) -> Result<u64, StoreError> {
        let mut removed = 0;
        for chunk in phones.chunks(usize::try_from(CHUNK).unwrap_or(1)) {
            removed += writing!(self, |conn| diesel::delete(
                suppression::table.filter(suppression::phone.eq_any(chunk))
            )
            .execute(conn))?;
        }
        Ok(removed as u64)
    }

    /// The list by phone, a page of at most `limit` after the phone `after`.
    pub async fn suppressed(
        &self,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<Suppressed>, StoreError> {
        reading!(self, |conn| suppression::table
            .filter(suppression::phone.gt(after.unwrap_or("")))
            .order(suppression::phone)
            .limit(limit)
            .select(Suppressed::as_select())
            .load(conn))
    }
}
