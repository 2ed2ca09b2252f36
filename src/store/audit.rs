//! Table `audit`: what people changed with `smsq serve`, and when.

use super::connection::prelude::*;
use super::connection::{insert_all, reading, transaction};
use super::schema::audit;
use super::{Store, StoreError};
use crate::sms::Timestamp;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = audit)]
pub struct AuditEntry {
    pub at: Timestamp,
    /// The name of the token.
    pub who: String,
    /// A verb, such as `pause`.
    pub what: String,
    pub campaign: Option<String>,
    /// Without phones and texts.
    pub detail: String,
}

impl Store {
    pub async fn add_audit_entry(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        let rows = [(
            audit::at.eq(entry.at),
            audit::who.eq(&entry.who),
            audit::what.eq(&entry.what),
            audit::campaign.eq(&entry.campaign),
            audit::detail.eq(&entry.detail),
        )];
        transaction!(self, |connection| async {
            insert_all!(connection, audit::table, &rows)
        })?;
        Ok(())
    }

    /// The last `most` changes, the newest first.
    pub async fn audit_entries(&self, most: i64) -> Result<Vec<AuditEntry>, StoreError> {
        reading!(self, |conn| audit::table
            .order(audit::id.desc())
            .limit(most)
            .select(AuditEntry::as_select())
            .load(conn))
    }
}
