//! Searches for messages in all tables, and counts those that are due.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::transition::accepted_claims;
use crate::sms::{Class, State, Timestamp};
use crate::store::column_types::LossyText;
use crate::store::connection::prelude::*;
use crate::store::connection::reading;
use crate::store::schema::{import, sms, sms_failed, sms_sent};
use crate::store::{POSTED, Store, StoreError, positive};

/// A message with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSms {
    pub id: i64,
    pub campaign_id: i64,
    pub import_id: Option<i64>,
    pub phone: String,
    /// The text; `None`: it is not kept.
    pub content: Option<String>,
    /// `queued`, `sending`, `unknown`, `sent`, `failed` or `cancelled`.
    pub state: &'static str,
    pub segments: Option<i32>,
    pub attempts: i32,
    pub reference: Option<String>,
    pub provider: Option<String>,
    pub message_id: Option<String>,
    /// The numbers of the claims that were accepted; empty if none is known.
    pub accepted_claims: BTreeSet<i64>,
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

/// Which messages [`Store::find_sms`] looks for.
#[derive(Clone, Copy, Debug)]
pub enum SmsFilter<'a> {
    Id(i64),
    /// Reads whole tables where no index has it.
    Reference(&'a str),
    /// E.164 with `+`. Reads whole tables.
    Phone(&'a str),
}

/// The columns of a message in any table.
#[derive(Queryable)]
struct MessageRow {
    id: i64,
    campaign_id: i64,
    import_id: Option<i64>,
    phone: LossyText,
    segments: Option<i32>,
    attempts: i32,
    reference: Option<String>,
    created_at: Timestamp,
    content: Option<LossyText>,
    class: Option<String>,
    code: Option<String>,
    reason: Option<String>,
    at: Timestamp,
}

/// What only a sent message has.
#[derive(Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
struct SentColumns {
    provider: String,
    message_id: Option<String>,
    claim: i64,
    accepted: i32,
    accepted_claims: Option<String>,
    delivery_state: Option<String>,
}

impl MessageRow {
    fn failed(self) -> FoundSms {
        let is_cancelled = self.class.as_deref() == Some(Class::Cancelled.as_str());
        self.found(if is_cancelled { "cancelled" } else { "failed" })
    }

    fn queued(self, state: i32) -> FoundSms {
        self.found(match state {
            state if state == State::Sending.code() => "sending",
            state if state == State::Unknown.code() => "unknown",
            _ => "queued",
        })
    }

    fn sent(self, sent: SentColumns) -> FoundSms {
        let claims = sent.accepted_claims.as_deref();
        FoundSms {
            provider: Some(sent.provider),
            message_id: sent.message_id,
            accepted_claims: accepted_claims(sent.claim, sent.accepted, claims),
            delivery: sent.delivery_state,
            ..self.found("sent")
        }
    }

    fn found(self, state: &'static str) -> FoundSms {
        FoundSms {
            id: self.id,
            campaign_id: self.campaign_id,
            import_id: self.import_id,
            phone: self.phone.text,
            content: self.content.map(String::from),
            state,
            segments: self.segments,
            attempts: self.attempts,
            reference: self.reference,
            provider: None,
            message_id: None,
            accepted_claims: BTreeSet::new(),
            class: self.class,
            code: self.code,
            reason: self.reason,
            delivery: None,
            created_at: self.created_at,
            at: self.at,
        }
    }
}

/// The columns of a [`MessageRow`].
macro_rules! message_row {
    ($table:ident, $content:expr, $class:expr, $code:expr, $reason:expr, $at:expr) => {
        (
            $table::id,
            $table::campaign_id,
            $table::import_id,
            $table::phone,
            $table::segments,
            $table::attempts,
            $table::reference,
            $table::created_at,
            $content,
            $class,
            $code,
            $reason,
            $at,
        )
    };
}

impl Store {
    /// How many messages of a campaign are due, counted up to `most`.
    pub async fn count_due(
        &self,
        campaign_id: i64,
        now: Timestamp,
        most: u64,
    ) -> Result<u64, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let due: Vec<i64> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::due_at.le(now))
            .order(sms::due_at)
            .offset((most - 1).max(0))
            .limit(1)
            .select(sms::due_at)
            .load(conn))?;
        if !due.is_empty() {
            return Ok(positive(most));
        }
        let count: i64 = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq(campaign_id))
            .filter(sms::state.eq(State::Ready.code()))
            .filter(sms::due_at.le(now))
            .select(diesel::dsl::count_star())
            .first(conn))?;
        Ok(positive(count))
    }

    /// The messages that the filter selects, at most `most` of each table, the newest last. With `posted_by` only those
    /// that were posted with the token of this name, or with any token by an older smsq.
    pub async fn find_sms(
        &self,
        filter: SmsFilter<'_>,
        posted_by: Option<&str>,
        most: i64,
    ) -> Result<Vec<FoundSms>, StoreError> {
        let found = self.find_once(filter, posted_by, most).await?;
        if found.is_empty() && matches!(filter, SmsFilter::Id(_)) {
            // It may have been queued when the failed messages were read, and failed before the queue was.
            return self.find_once(filter, posted_by, most).await;
        }
        Ok(found)
    }

    async fn find_once(
        &self,
        filter: SmsFilter<'_>,
        posted_by: Option<&str>,
        most: i64,
    ) -> Result<Vec<FoundSms>, StoreError> {
        macro_rules! filtered {
            ($table:ident) => {{
                let rows = $table::table
                    .order($table::id.desc())
                    .limit(most)
                    .into_boxed();
                let rows = match posted_by {
                    None => rows,
                    Some(token) => {
                        let by_token = import::posted_by.eq(token.to_owned());
                        let is_old = import::posted_by.is_null().and(import::file.eq(POSTED));
                        let imports = import::table
                            .filter(by_token.or(is_old))
                            .select(import::id.nullable());
                        rows.filter($table::import_id.eq_any(imports))
                    }
                };
                match filter {
                    SmsFilter::Id(id) => rows.filter($table::id.eq(id)),
                    SmsFilter::Reference(reference) => {
                        rows.filter($table::reference.eq(reference.to_owned()))
                    }
                    SmsFilter::Phone(phone) => rows.filter($table::phone.eq(phone.to_owned())),
                }
            }};
        }
        // In the order in which a message moves, so that one that moves meanwhile is found.
        let failed: Vec<MessageRow> = reading!(self, |conn| filtered!(sms_failed)
            .select(message_row!(
                sms_failed,
                sms_failed::content.nullable(),
                sms_failed::class.nullable(),
                sms_failed::code,
                sms_failed::reason.nullable(),
                sms_failed::failed_at
            ))
            .load(conn))?;
        let queued: Vec<(MessageRow, i32)> = reading!(self, |conn| filtered!(sms)
            .select((
                message_row!(
                    sms,
                    sms::content.nullable(),
                    sms::last_class,
                    sms::last_code,
                    sms::last_reason,
                    sms::due_at
                ),
                sms::state,
            ))
            .load(conn))?;
        let sent: Vec<(MessageRow, SentColumns)> = reading!(self, |conn| filtered!(sms_sent)
            .select((
                message_row!(
                    sms_sent,
                    sms_sent::content,
                    sms_sent::delivery_class,
                    sms_sent::delivery_code,
                    sms_sent::delivery_reason,
                    sms_sent::sent_at
                ),
                SentColumns::as_select(),
            ))
            .load(conn))?;
        let found = failed
            .into_iter()
            .map(MessageRow::failed)
            .chain(queued.into_iter().map(|(row, state)| row.queued(state)))
            .chain(sent.into_iter().map(|(row, sent)| row.sent(sent)));
        let by_id: BTreeMap<i64, FoundSms> = found.map(|sms| (sms.id, sms)).collect();
        Ok(by_id.into_values().collect())
    }
}
