//! Table `audit`: what people changed, what workers paused or stopped, and when.

use diesel::QueryResult;

use super::connection::prelude::*;
use super::connection::{Connection, insert_all, reading, transaction};
use super::schema::audit;
use super::{Store, StoreError};
use crate::sms::Timestamp;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = audit)]
pub struct AuditEntry {
    pub at: Timestamp,
    /// The name of a token, the user of a command such as `ann@web1`, or `worker`.
    pub who: String,
    /// A verb, such as `pause`.
    pub what: String,
    pub campaign: Option<String>,
    /// Without phones and texts.
    pub detail: String,
}

impl AuditEntry {
    /// A change of a campaign that a worker made.
    pub(super) fn of_worker(at: Timestamp, campaign: String, what: &str, reason: &str) -> Self {
        Self {
            at,
            who: "worker".to_owned(),
            what: what.to_owned(),
            detail: format!("{what} `{campaign}`: {reason}"),
            campaign: Some(campaign),
        }
    }

    pub(super) async fn insert(&self, connection: &mut Connection) -> QueryResult<()> {
        let rows = [(
            audit::at.eq(self.at),
            audit::who.eq(&self.who),
            audit::what.eq(&self.what),
            audit::campaign.eq(&self.campaign),
            audit::detail.eq(&self.detail),
        )];
        insert_all!(connection, audit::table, &rows)?;
        Ok(())
    }
}

impl Store {
    /// Records what somebody changed just now; see [`AuditEntry`].
    pub async fn record(
        &self,
        who: &str,
        what: &str,
        campaign: Option<&str>,
        detail: &str,
    ) -> Result<(), StoreError> {
        let entry = AuditEntry {
            at: self.now().await?,
            who: who.to_owned(),
            what: what.to_owned(),
            campaign: campaign.map(str::to_owned),
            detail: detail.to_owned(),
        };
        transaction!(self, |connection| entry.insert(connection))
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
