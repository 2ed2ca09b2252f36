//! Unknown messages: their lookups, and putting them back into the queue. The `due_at` of an unknown message is the
//! time of its next lookup by any worker.

use diesel::sql_types::Bool;
use diesel::update;
use smsq_lifecycle::transition::{
    DUPLICATE, NOT_ADMITTED, NOT_STORED, REUSED_REFERENCE, only_doubt,
};
use smsq_lifecycle::{Settlement, Transition};
use smsq_message::sms::{State, Timestamp};
use smsq_process::boxed;

use super::results::settle;
use super::results::transitions::{self, Resend};
use crate::audit::in_chunks;
use crate::connection::prelude::*;
use crate::connection::{Chunk, Connection, QueryResult, ROWS, transaction};
use crate::error::StoreError;
use crate::events::outbox;
use crate::tables::campaign_filter::CampaignFilter;
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{campaign, sms, sms_sent};
use crate::{CHUNK, Store};
use ResendReason::{Absent, MayBeSentTwice, NotAccepted};

/// The longest reason that is stored for a message that cannot be settled, in characters.
const REASON: usize = 500;

/// A message whose outcome is not known.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sms)]
pub struct Unknown {
    pub id: i64,
    pub claim: i64,
    pub attempts: i32,
    pub phone: String,
    pub content: String,
    pub params: String,
    pub reference: Option<String>,
    /// In milliseconds since the Unix epoch, as all instants.
    pub claimed_at: Option<i64>,
    /// No attempt that may have been accepted started after this. `None` where that is not known.
    pub unknown_at: Option<i64>,
    /// The claim of the only attempt that may have been accepted, if it is the only one with its reference;
    /// [`REUSED_REFERENCE`] if one of the others was certainly not accepted.
    pub doubt_claim: Option<i64>,
    /// When the first attempt was claimed that may have been accepted.
    pub doubt_since: Option<i64>,
    /// When it is looked up next.
    pub due_at: i64,
    /// The lane that it was sent from.
    pub lane: i32,
}

impl Unknown {
    /// Whether a provider that reports its reference as not accepted can only speak of its last attempt.
    pub fn is_only_attempt(&self) -> bool {
        only_doubt(self.doubt_claim).is_some()
    }
}

/// Why an unknown message is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendReason {
    /// Its provider accepts its reference only once, or the operator takes the risk.
    MayBeSentTwice,
    /// Its provider has none of its attempts.
    Absent,
    /// Its provider did not accept its only attempt.
    NotAccepted,
}

/// Selects unknown messages by their next lookup, whatever sends the campaign now.
#[derive(Clone, Copy, Debug)]
pub struct Due<'a> {
    pub campaign_id: i64,
    /// They were sent through this provider only, as far as that is known.
    pub provider: &'a str,
    /// Their lookup is due by then.
    pub by: Timestamp,
    /// Their last attempt was claimed by then.
    pub claimed_by: Timestamp,
}

impl Store {
    /// The first `limit` messages, in the order of their lookups.
    #[boxed]
    pub async fn unknown_due<'a>(
        &'a self,
        due: Due<'a>,
        limit: i64,
    ) -> Result<Vec<Unknown>, StoreError> {
        let mut found: Vec<Unknown> = Vec::new();
        // The index has the instant after the lane.
        for id in self.lanes_of(due.campaign_id).await? {
            let of_lane: Vec<Unknown> = self
                .read(
                    sms::table
                        .filter(sms::campaign_id.eq(id.campaign_id))
                        .filter(sms::state.eq(State::Unknown.code()))
                        .filter(sms::lane.eq(id.lane))
                        .filter(sms::due_at.le(due.by))
                        .filter(sms::claimed_at.le(due.claimed_by))
                        .filter(was_sent_through(due.provider.to_owned()).assume_not_null())
                        .filter(has_other_code(NOT_STORED).assume_not_null())
                        .order((sms::due_at, sms::id))
                        .limit(limit)
                        .select(Unknown::as_select()),
                )
                .await?;
            found.extend(of_lane);
        }
        found.sort_unstable_by_key(|unknown| (unknown.due_at, unknown.id));
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    #[boxed]
    pub async fn is_unknown_due<'a>(&'a self, due: Due<'a>) -> Result<bool, StoreError> {
        Ok(!self.unknown_due(due, 1).await?.is_empty())
    }

    /// Postpones the next lookup of an unknown message; false if another worker has done so or the message is not
    /// unknown any more.
    #[boxed]
    pub async fn postpone_lookup(
        &self,
        one: &Unknown,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        let rows: usize = self
            .write(
                update(
                    sms::table
                        .filter(sms::id.eq(one.id))
                        .filter(sms::claim.eq(one.claim))
                        .filter(sms::state.eq(State::Unknown.code()))
                        .filter(sms::due_at.eq(one.due_at)),
                )
                .set(sms::due_at.eq(until)),
            )
            .await?;
        Ok(rows == 1)
    }

    /// Other messages of all campaigns to this phone that are sending or unknown: whether they are sending, and their
    /// texts.
    #[boxed]
    pub async fn unsettled_to(
        &self,
        phone: &str,
        other_than: i64,
    ) -> Result<Vec<(bool, String)>, StoreError> {
        let found: Vec<(i32, LossyText)> = self
            .read(
                sms::table
                    .filter(CampaignFilter::All.on(sms::campaign_id))
                    .filter(sms::state.eq_any([State::Sending.code(), State::Unknown.code()]))
                    .filter(sms::phone.eq(phone))
                    .filter(sms::id.ne(other_than))
                    .select((sms::state, sms::content)),
            )
            .await?;
        let unsettled = found
            .into_iter()
            .map(|(state, content)| (state == State::Sending.code(), content.text));
        Ok(unsettled.collect())
    }

    /// Those of the `ids` that `provider` gave to sent messages, with the phones of these messages.
    #[boxed]
    pub async fn sent_ids(
        &self,
        provider: &str,
        ids: &[String],
    ) -> Result<Vec<(String, String)>, StoreError> {
        let mut sent = Vec::new();
        for ids in ids.chunks(ROWS) {
            let rows: Vec<(Option<String>, LossyText)> = self
                .read(
                    sms_sent::table
                        .filter(sms_sent::message_id.eq_any(ids))
                        .filter(sms_sent::provider.eq(provider))
                        .select((sms_sent::message_id, sms_sent::phone)),
                )
                .await?;
            let of = |(id, phone): (Option<String>, LossyText)| Some((id?, phone.text));
            sent.extend(rows.into_iter().filter_map(of));
        }
        Ok(sent)
    }

    /// Puts an unknown message with this id and claim back into the queue. False if it is not unknown under this claim
    /// any more, the reason does not hold for all its attempts, it has no attempts left (`max_attempts` 0: any number),
    /// or its campaign is not active.
    #[boxed]
    pub async fn requeue_message(
        &self,
        id: i64,
        claim: i64,
        reason: ResendReason,
        max_attempts: i32,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let filter = UnknownFilter {
            message: Some((id, claim)),
            ..UnknownFilter::to_resend(reason, max_attempts)
        };
        let done = transaction!(self, |connection| requeue_active(connection, &filter, now))?;
        Ok(done.moved == 1)
    }

    /// Puts unknown messages of a campaign back into the queue, in doubt and with the same reference, if they have
    /// attempts left (`max_attempts` 0: any number) and were `honoured`: sent through this provider only, the first time
    /// after this instant. Returns how many; 0 if the campaign is not active.
    #[boxed]
    pub async fn requeue_unknown(
        &self,
        campaign_id: i64,
        honoured: Option<(&str, Timestamp)>,
        max_attempts: i32,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let filter = UnknownFilter {
            campaign_id: Some(campaign_id),
            honoured: honoured.map(|(provider, after)| (provider.to_owned(), after)),
            ..UnknownFilter::to_resend(MayBeSentTwice, max_attempts)
        };
        in_chunks!(self, |connection| requeue_active(connection, &filter, now))
    }

    /// Makes a message unknown if the database rejects its outcome, so that it is not sent again. False if it has
    /// another claim now.
    #[boxed]
    pub async fn set_aside(
        &self,
        settlement: &Settlement,
        error: &StoreError,
    ) -> Result<bool, StoreError> {
        let (outcome, counted) = match &settlement.transition {
            Transition::Sent(acceptance) => {
                let provider = &settlement.provider;
                let id = acceptance.message_id.as_ref();
                let id = id.map(|id| format!(" as `{id}`")).unwrap_or_default();
                (format!("`{provider}` accepted it{id}"), 1)
            }
            Transition::Failed(failure) => (format!("it failed: {}", failure.reason), 1),
            Transition::NotAdmitted(failure) => (format!("it was not sent: {}", failure.reason), 0),
            Transition::Unknown(failure) => (failure.reason.clone(), 1),
            Transition::Ready { counted, .. } => {
                ("it was not accepted".to_owned(), i32::from(*counted))
            }
            // It stays unknown.
            Transition::FoundRejected(_) | Transition::FoundAbsent(_) | Transition::Refunded => {
                return Ok(false);
            }
        };
        let reason = format!("{outcome}; the database rejects this result: {}", error.reason());
        let reason: String = reason.chars().take(REASON).collect();
        let subscriptions = &self.subscriptions;
        let now = self.now().await?;
        transaction!(self, |connection| async {
            let is_done = transitions::set_aside(connection, settlement, counted, &reason).await?;
            let ended = if is_done { vec![settlement.id] } else { Vec::new() };
            outbox::record_ended(connection, subscriptions, ended, now).await?;
            QueryResult::Ok(is_done)
        })
    }
}

/// Selects unknown messages; `None` selects all.
#[derive(Clone, Default)]
pub(super) struct UnknownFilter {
    pub(super) campaign_id: Option<i64>,
    /// Id and claim.
    pub(super) message: Option<(i64, i64)>,
    /// E.164 with `+`.
    pub(super) phone: Option<String>,
    pub(super) code: Option<String>,
    pub(super) except_codes: Vec<&'static str>,
    /// Messages that have not expired by then.
    pub(super) alive_at: Option<Timestamp>,
    /// Messages that were sent through this provider only, the first time after this.
    pub(super) honoured: Option<(String, Timestamp)>,
    pub(super) attempts_below: Option<i32>,
    /// Messages to which this applies, as far as their rows can tell.
    pub(super) resend: Option<ResendReason>,
}

impl UnknownFilter {
    /// Messages that a worker may send again for this reason. What was not admitted would not be admitted again while
    /// it is in doubt; otherwise it fails when it is claimed.
    fn to_resend(reason: ResendReason, max_attempts: i32) -> Self {
        let except_codes: &[_] = match reason {
            MayBeSentTwice => &[NOT_STORED, NOT_ADMITTED, DUPLICATE],
            Absent | NotAccepted => &[NOT_STORED],
        };
        Self {
            except_codes: except_codes.to_vec(),
            resend: Some(reason),
            attempts_below: Some(max_attempts).filter(|max| *max > 0),
            ..Self::default()
        }
    }
}

/// Finds at most a chunk of messages that the filter selects, by an index of campaigns, and locks them: without a
/// campaign or a message, of all campaigns that are not cancelled. Returns ids and campaigns.
pub(super) async fn lock_unknown(
    connection: &mut Connection,
    filter: &UnknownFilter,
) -> QueryResult<Vec<(i64, i64)>> {
    let ids: Vec<i64> = {
        let mut query = sms::table
            .filter(sms::state.eq(State::Unknown.code()))
            .limit(CHUNK)
            .select(sms::id)
            .into_boxed();
        query = match (filter.campaign_id, filter.message) {
            (Some(campaign_id), _) => query.filter(sms::campaign_id.eq(campaign_id)),
            (None, Some(_)) => query,
            (None, None) => {
                let open = campaign::table
                    .filter(campaign::state.ne(CampaignStatus::Cancelled))
                    .select(campaign::id);
                query.filter(sms::campaign_id.eq_any(open))
            }
        };
        if let Some((id, claim)) = filter.message {
            query = query.filter(sms::id.eq(id)).filter(sms::claim.eq(claim));
        }
        if let Some(phone) = &filter.phone {
            query = query.filter(sms::phone.eq(phone));
        }
        if let Some(code) = &filter.code {
            query = query.filter(sms::last_code.eq(code));
        }
        for &code in &filter.except_codes {
            query = query.filter(has_other_code(code).assume_not_null());
        }
        if let Some(at) = filter.alive_at {
            let expires_later = sms::expires_at.gt(at);
            let is_alive = sms::expires_at.is_null().or(expires_later);
            query = query.filter(is_alive.assume_not_null());
        }
        if let Some((provider, after)) = &filter.honoured {
            let is_later = sms::doubt_since.gt(*after);
            query = query
                .filter(is_later.assume_not_null())
                .filter(was_sent_through(provider.clone()).assume_not_null());
        }
        if let Some(attempts) = filter.attempts_below {
            query = query.filter(sms::attempts.lt(attempts));
        }
        query.load(connection)
    }
    .await?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let is_other = |reason| (filter.resend != Some(reason)).into_sql::<Bool>();
    // Another transaction may have changed them meanwhile.
    let claims = filter.message.map_or((i64::MIN, i64::MAX), |(_, claim)| (claim, claim));
    sms::table
        .filter(sms::id.eq_any(&ids))
        .filter(sms::state.eq(State::Unknown.code()))
        .filter(sms::claim.between(claims.0, claims.1))
        .filter(sms::unknown_at.is_not_null().or(is_other(Absent)))
        // As `only_doubt`.
        .filter(sms::doubt_claim.gt(REUSED_REFERENCE).assume_not_null().or(is_other(NotAccepted)))
        .filter(sms::attempts.lt(filter.attempts_below.unwrap_or(i32::MAX)))
        .order(sms::id)
        .select((sms::id, sms::campaign_id))
        .locked()
        .load(connection)
        .await
}

/// Puts a chunk of unknown messages of active campaigns back into the queue.
async fn requeue_active(
    connection: &mut Connection,
    filter: &UnknownFilter,
    now: Timestamp,
) -> QueryResult<Chunk> {
    let rows = lock_unknown(connection, filter).await?;
    let is_active = |status| status == CampaignStatus::Active;
    let active = settle::lock_campaigns(connection, &rows, is_active).await?;
    if active.is_empty() {
        return Ok(Chunk::all(0));
    }
    let resend = match filter.resend {
        Some(Absent) => Resend::Absent,
        Some(NotAccepted) => Resend::NotAccepted,
        Some(MayBeSentTwice) | None => Resend::InDoubt,
    };
    let spending = transitions::unknown_to_ready(connection, &active, resend, now).await?;
    spending.store(connection).await?;
    Ok(Chunk::all(active.len()))
}

/// Messages from before this column was added have none.
#[diesel::dsl::auto_type]
fn was_sent_through(provider: String) -> _ {
    let is_same = sms::claimed_provider.eq(provider);
    sms::claimed_provider.is_null().or(is_same)
}

/// A message whose outcome is known but could not be stored has its own code.
#[diesel::dsl::auto_type]
fn has_other_code(code: &'static str) -> _ {
    sms::last_code.is_null().or(sms::last_code.ne(code))
}
