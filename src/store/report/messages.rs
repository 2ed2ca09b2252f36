//! Searches for messages in all tables, and counts those that are due.

use std::collections::BTreeSet;

use serde::Serialize;
use smsq_lifecycle::transition::claim_numbers;
use smsq_message::sms::{State, Timestamp};
use smsq_process::boxed;

use crate::connection::prelude::*;
use crate::error::StoreError;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{import, message, sms};
use crate::{ReportStore, positive};

/// A message with its state.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable, Serialize)]
#[diesel(table_name = message)]
pub struct FoundSms {
    pub id: i64,
    pub campaign_id: i64,
    pub import_id: Option<i64>,
    #[diesel(deserialize_as = LossyText)]
    pub phone: String,
    /// The text; `None`: it is not kept.
    #[serde(skip)]
    pub content: Option<LossyText>,
    /// `queued`, `sending`, `unknown`, `sent`, `failed` or `cancelled`.
    pub state: String,
    pub segments: Option<i32>,
    pub attempts: i32,
    pub reference: Option<String>,
    pub provider: Option<String>,
    pub message_id: Option<String>,
    /// The numbers of the claims that were accepted, separated by commas.
    pub accepted_claims: Option<String>,
    /// Why it failed, or why the last attempt did.
    pub class: Option<String>,
    pub code: Option<String>,
    pub reason: Option<String>,
    /// What a receipt reported.
    pub delivery: Option<String>,
    pub created_at: Timestamp,
    /// When it was sent, failed, or is due.
    pub at: Timestamp,
}

impl FoundSms {
    /// The numbers of the claims that were accepted; empty if none is known.
    pub fn accepted_claims(&self) -> BTreeSet<i64> {
        claim_numbers(self.accepted_claims.as_deref())
    }
}

/// Which messages [`ReportStore::find_sms`] looks for.
#[derive(Clone, Copy, Debug)]
pub enum SmsFilter<'a> {
    Id(i64),
    /// Reads whole tables where no index has it.
    Reference(&'a str),
    /// E.164 with `+`. Reads whole tables.
    Phone(&'a str),
}

impl ReportStore<'_> {
    /// How many messages of a campaign are due, counted up to `most`.
    #[boxed]
    pub async fn count_due(
        &self,
        campaign_id: i64,
        now: Timestamp,
        most: u64,
    ) -> Result<u64, StoreError> {
        let mut count = 0;
        for id in self.0.lanes_of(campaign_id).await? {
            let left = i64::try_from(most - count).unwrap_or(i64::MAX);
            let due = || {
                sms::table
                    .filter(sms::campaign_id.eq(id.campaign_id))
                    .filter(sms::state.eq(State::Ready.code()))
                    .filter(sms::lane.eq(id.lane))
                    .filter(sms::due_at.le(now))
            };
            let last: Vec<i64> = self
                .read(
                    due().order(sms::due_at).offset((left - 1).max(0)).limit(1).select(sms::due_at),
                )
                .await?;
            if !last.is_empty() {
                return Ok(most);
            }
            let of_lane: i64 = self.read_first(due().select(diesel::dsl::count_star())).await?;
            count += positive(of_lane);
        }
        Ok(count)
    }

    /// The newest messages that the filter selects, at most `most`, the newest last. With `posted_by` only those that
    /// were posted with the token of this name.
    #[boxed]
    pub async fn find_sms<'a>(
        &'a self,
        filter: SmsFilter<'a>,
        posted_by: Option<&str>,
        most: i64,
    ) -> Result<Vec<FoundSms>, StoreError> {
        let mut found: Vec<FoundSms> = {
            let mut query = message::table
                .order(message::id.desc())
                .limit(most)
                .select(FoundSms::as_select())
                .into_boxed();
            if let Some(token) = posted_by {
                let imports = import::table.filter(import::posted_by.eq(token));
                query =
                    query.filter(message::import_id.eq_any(imports.select(import::id.nullable())));
            }
            let query = match filter {
                SmsFilter::Id(id) => query.filter(message::id.eq(id)),
                SmsFilter::Reference(reference) => query.filter(message::reference.eq(reference)),
                SmsFilter::Phone(phone) => query.filter(message::phone.eq(phone)),
            };
            self.read(query)
        }
        .await?;
        found.reverse();
        Ok(found)
    }
}
