//! The messages that wait to be sent, page by page: a campaign may have millions of them.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::sms::{State, Timestamp};
use crate::store::connection::reading;
use crate::store::lossy_text::LossyText;
use crate::store::schema::sms;
use crate::store::{Store, StoreError};

/// A message that waits to be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Queued {
    /// As it was imported, E.164 with `+`; as another program wrote it.
    pub phone: String,
    pub content: String,
    /// The imported columns, a JSON object.
    pub params: String,
}

/// A walk over the waiting messages of a campaign, in the order in which they will be sent; each page begins
/// where the last one ended, found by an index.
#[derive(Debug)]
pub struct Queue {
    campaign: i64,
    after: (i64, i64),
}

/// The message of a campaign that is due first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstDue {
    pub due_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub attempts: i32,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sms)]
struct Row {
    id: i64,
    due_at: i64,
    phone: LossyText,
    content: LossyText,
    params: LossyText,
}

impl Queue {
    /// Begins a walk.
    #[must_use]
    pub fn of(campaign: i64) -> Self {
        Self {
            campaign,
            after: (i64::MIN, i64::MAX),
        }
    }
}

impl Store {
    /// The waiting message of a campaign that is due first, found by an index.
    pub async fn first_due(&self, campaign_id: i64) -> Result<Option<FirstDue>, StoreError> {
        let first: Vec<(i64, Option<i64>, i32)> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .order(sms::due_at)
            .limit(1)
            .select((sms::due_at, sms::expires_at, sms::attempts))
            .load(conn))?;
        let first = first.into_iter().next();
        Ok(first.map(|(due_at, expires_at, attempts)| FirstDue {
            due_at: Timestamp::from_millis(due_at),
            expires_at: expires_at.map(Timestamp::from_millis),
            attempts,
        }))
    }

    /// The next page, at most `limit` long; an empty one is the end.
    pub async fn next_queued(
        &self,
        walk: &mut Queue,
        limit: u32,
    ) -> Result<Vec<Queued>, StoreError> {
        let (due_at, id) = walk.after;
        let ready = || {
            sms::table
                .filter(sms::campaign_id.eq(walk.campaign))
                .filter(sms::state.eq(State::Ready.code()))
        };
        // First the rest of the last page's instant, at which a whole import may be due.
        let mut rows: Vec<Row> = reading!(self, |conn| ready()
            .filter(sms::due_at.eq(due_at))
            .filter(sms::id.gt(id))
            .order(sms::id)
            .limit(limit.into())
            .select(Row::as_select())
            .load(conn))?;
        if rows.is_empty() {
            rows = reading!(self, |conn| ready()
                .filter(sms::due_at.gt(due_at))
                .order((sms::due_at, sms::id))
                .limit(limit.into())
                .select(Row::as_select())
                .load(conn))?;
        }
        if let Some(last) = rows.last() {
            walk.after = (last.due_at, last.id);
        }
        Ok(rows.into_iter().map(Queued::from).collect())
    }
}

impl From<Row> for Queued {
    fn from(row: Row) -> Self {
        Self {
            phone: row.phone.text,
            content: row.content.text,
            params: row.params.text,
        }
    }
}
