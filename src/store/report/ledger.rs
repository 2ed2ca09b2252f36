//! The messages that were sent, page by page: a campaign may have millions of them.

use std::collections::VecDeque;
use std::fmt;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::sms::Timestamp;
use crate::store::connection::reading;
use crate::store::lossy_text::LossyText;
use crate::store::schema::sms_sent;
use crate::store::{Store, StoreError};

/// A message that its provider took.
#[derive(Clone, PartialEq, Eq)]
pub struct SentMessage {
    pub campaign_id: i64,
    pub phone: String,
    pub provider: String,
    /// The provider's id of it.
    pub message_id: Option<String>,
    pub segments: Option<i32>,
    /// What the provider says that it costs.
    pub price: Option<String>,
    pub sent_at: Timestamp,
    pub attempts: i32,
    /// How often the provider took it.
    pub accepted: i32,
}

/// Phones are personal data: none is printed.
impl fmt::Debug for SentMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentMessage")
            .field("phone", &crate::phone::mask(&self.phone))
            .field("provider", &self.provider)
            .field("message_id", &self.message_id)
            .finish_non_exhaustive()
    }
}

/// A walk over all sent messages of some campaigns, in the order in which they were sent; each page begins
/// where the last one ended, found by an index.
#[derive(Debug)]
pub struct SentWalk {
    campaigns: VecDeque<i64>,
    after: (i64, i64),
}

impl SentWalk {
    const BEGIN: (i64, i64) = (i64::MIN, i64::MAX);

    /// Begins a walk: campaign by campaign.
    #[must_use]
    pub fn of(campaigns: &[i64]) -> Self {
        Self {
            campaigns: campaigns.iter().copied().collect(),
            after: Self::BEGIN,
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
struct Row {
    id: i64,
    campaign_id: i64,
    phone: LossyText,
    provider: String,
    message_id: Option<LossyText>,
    segments: Option<i32>,
    price: Option<LossyText>,
    sent_at: i64,
    attempts: i32,
    accepted: i32,
}

impl Store {
    /// The next page, at most `limit` long; an empty one is the end.
    pub async fn next_sent(
        &self,
        walk: &mut SentWalk,
        limit: usize,
    ) -> Result<Vec<SentMessage>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        while let Some(campaign) = walk.campaigns.front().copied() {
            let (sent_at, id) = walk.after;
            let of_campaign = || sms_sent::table.filter(sms_sent::campaign_id.eq(campaign));
            // First the rest of the last page's instant, at which thousands may be sent.
            let mut rows: Vec<Row> = reading!(self, |conn| of_campaign()
                .filter(sms_sent::sent_at.eq(sent_at))
                .filter(sms_sent::id.gt(id))
                .order(sms_sent::id)
                .limit(limit)
                .select(Row::as_select())
                .load(conn))?;
            if rows.is_empty() {
                rows = reading!(self, |conn| of_campaign()
                    .filter(sms_sent::sent_at.gt(sent_at))
                    .order((sms_sent::sent_at, sms_sent::id))
                    .limit(limit)
                    .select(Row::as_select())
                    .load(conn))?;
            }
            if let Some(last) = rows.last() {
                walk.after = (last.sent_at, last.id);
                return Ok(rows.into_iter().map(SentMessage::from).collect());
            }
            walk.campaigns.pop_front();
            walk.after = SentWalk::BEGIN;
        }
        Ok(Vec::new())
    }
}

impl From<Row> for SentMessage {
    fn from(row: Row) -> Self {
        Self {
            campaign_id: row.campaign_id,
            phone: row.phone.text,
            provider: row.provider,
            message_id: row.message_id.map(String::from),
            segments: row.segments,
            price: row.price.map(String::from),
            sent_at: Timestamp::from_millis(row.sent_at),
            attempts: row.attempts,
            accepted: row.accepted,
        }
    }
}
