//! The suppression list: phones that get no messages.

use std::collections::HashSet;

use serde::Serialize;
use smsq_message::sms::Timestamp;
use smsq_process::boxed;

use crate::audit::{Audited, audited};
use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, ROWS, in_list, querying};
use crate::error::StoreError;
use crate::tables::schema::suppression;
use crate::{SuppressionStore, positive};

/// One phone of the suppression list.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable, Serialize)]
#[diesel(table_name = suppression)]
pub struct Suppressed {
    /// E.164 with `+`.
    pub phone: String,
    pub reason: Option<String>,
    /// In milliseconds since the Unix epoch.
    pub created_at: i64,
}

impl SuppressionStore<'_> {
    /// Adds phones (E.164 with `+`) and why; returns how many were new.
    #[boxed]
    pub async fn add(
        &self,
        mut phones: Vec<(String, Option<String>)>,
        now: Timestamp,
        audited: &mut Audited,
    ) -> Result<u64, StoreError> {
        phones.sort();
        phones.dedup_by(|one, other| one.0 == other.0);
        let mut added = 0;
        for phones in phones.chunks(ROWS) {
            added += audited!(self, audited, now, |connection| async {
                connection.prepare_import().await?;
                let added = insert(connection, phones, now).await?;
                QueryResult::Ok(added as u64)
            })?;
        }
        Ok(added)
    }

    /// Removes phones from the list; returns how many were on it.
    #[boxed]
    pub async fn remove(
        &self,
        phones: Vec<String>,
        now: Timestamp,
        mut audited: Audited,
    ) -> Result<u64, StoreError> {
        for phones in phones.chunks(ROWS) {
            audited!(self, audited, now, |connection| async {
                let removed =
                    diesel::delete(suppression::table.filter(suppression::phone.eq_any(phones)))
                        .execute(connection)
                        .await?;
                QueryResult::Ok(removed as u64)
            })?;
        }
        Ok(*audited.done())
    }

    /// The next page of at most `limit` phones after `after`, in the order of phones.
    #[boxed]
    pub async fn page(
        &self,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<Suppressed>, StoreError> {
        self.read(
            suppression::table
                .filter(suppression::phone.gt(after.unwrap_or("")))
                .order(suppression::phone)
                .limit(limit)
                .select(Suppressed::as_select()),
        )
        .await
    }

    /// How many phones are on the list.
    #[boxed]
    pub async fn count(&self) -> Result<u64, StoreError> {
        let count: i64 = self.read_one(suppression::table.count()).await?;
        Ok(positive(count))
    }

    /// Those of the phones that are on the list.
    #[boxed]
    pub async fn among(&self, phones: &[&str]) -> Result<HashSet<String>, StoreError> {
        let mut found = HashSet::new();
        for phones in phones.chunks(ROWS) {
            let suppressed: Vec<String> =
                querying!(self, Read, |connection| among(connection, phones.iter().copied()))?;
            found.extend(suppressed);
        }
        Ok(found)
    }
}

/// Adds phones and why; returns how many were new.
pub(crate) async fn insert(
    connection: &mut Connection,
    phones: &[(String, Option<String>)],
    now: Timestamp,
) -> QueryResult<usize> {
    let rows: Vec<_> = phones
        .iter()
        .map(|(phone, reason)| {
            (
                suppression::phone.eq(phone),
                suppression::reason.eq(reason),
                suppression::created_at.eq(now),
            )
        })
        .collect();
    NewRows::of(suppression::table, &rows).insert_new(connection).await
}

/// Those of the phones, at most one statement of them, that are on the list.
pub(crate) async fn among<'a>(
    connection: &mut Connection,
    phones: impl IntoIterator<Item = &'a str>,
) -> QueryResult<Vec<String>> {
    let phones = in_list(phones);
    suppression::table
        .filter(suppression::phone.eq_any(&phones))
        .select(suppression::phone)
        .kept()
        .load(connection)
        .await
}

/// Whether the list has any phone. Without `EXISTS`, which is false on MariaDB if the query is killed.
pub(crate) async fn has_any(connection: &mut Connection) -> QueryResult<bool> {
    let first: Vec<String> =
        suppression::table.limit(1).select(suppression::phone).load(connection).await?;
    Ok(!first.is_empty())
}
