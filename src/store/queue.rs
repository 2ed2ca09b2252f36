//! The clerk's round: one transaction that settles what has ended, halts what must not go on, and
//! claims for whoever is idle. These are its words; each database has its own way to do it.

use std::sync::Arc;
use std::time::Duration;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::schema::{pace, sms};
use super::{CampaignStatus, Store, StoreError};
use crate::limit::{Permit, provider_of, provider_scope};
use crate::queue::batch::{BatchLimits, Batcher};
use crate::queue::{Admission, ClaimedSms, ProviderClaim, Settled, Settlement};
use crate::rate::{Rate, Rates};
use crate::sms::{Sms, Timestamp};

/// The row's attempt of this claim was not given back yet; the answer to the commit of a refund may be lost.
#[diesel::dsl::auto_type]
pub(super) fn is_not_refunded(claim: i64) -> _ {
    let is_refunded = sms::refunded_claim.eq(claim).assume_not_null();
    sms::refunded_claim
        .is_null()
        .or(diesel::dsl::not(is_refunded))
}

/// All that one transaction of a worker shall do.
pub struct CommitBatch {
    pub worker_id: i64,
    pub now: Timestamp,
    /// The worker's requests start within this long of their moments.
    pub tolerance: Duration,
    pub settlements: Vec<Settlement>,
    pub campaign_stops: Vec<CampaignStop>,
    /// Providers that nobody may call before a moment.
    pub pauses: Vec<ProviderPause>,
    /// The clock jumped: all windows count as full.
    pub fill_limits: bool,
    pub claims: Vec<ProviderClaim>,
    /// How often one phone may be texted, over all campaigns; none: as often as there are messages.
    pub caps: Rates,
    /// Looks at a claimed message before anything is sent.
    pub admit: Arc<dyn Fn(&Sms) -> Admission + Send + Sync>,
    /// Puts the messages of one ask together into calls.
    pub fill: Arc<dyn Fn(&BatchLimits<'_>) -> Batcher + Send + Sync>,
}

/// A provider that nobody may call for a while, because it asked for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPause {
    pub provider: String,
    pub until: Timestamp,
    /// What it said.
    pub reason: String,
}

/// A campaign that must not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignStop {
    pub campaign_id: i64,
    pub state: CampaignStatus,
    pub reason: String,
}

/// A campaign that gave fewer rows than it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortfall {
    /// Nothing is due before this moment; nothing is ready at all without one.
    Until(Option<Timestamp>),
    /// It is not active.
    Halted(CampaignStatus, Option<String>),
    /// Another provider sends it now.
    Moved,
}

#[derive(Clone, Debug, Default)]
pub struct ProviderClaimed {
    /// For each held call its new moment, where there was one before `until_us`.
    pub held: Vec<Option<Permit>>,
    pub rows: Vec<ClaimedSms>,
    pub shortfalls: Vec<(i64, Shortfall)>,
    /// The first moment that the account's limits would have had next, where they ended the claim.
    pub next_us: Option<i64>,
    /// The campaigns whose own limit ended their part, and the first moment that it would have had next.
    pub limited: Vec<(i64, i64)>,
    /// Rows that were refused at admission.
    pub refused: u64,
}

/// What a round did; `settled` and `claims` are in the order of the round's.
#[derive(Clone, Debug, Default)]
pub struct CommitResult {
    pub settled: Vec<Settled>,
    pub claims: Vec<ProviderClaimed>,
    /// The worker is not on the list: another one has declared it dead. It got nothing.
    pub is_worker_missing: bool,
}

/// The limits of a batch's claims, by provider.
pub(super) fn limits_of(batch: &CommitBatch) -> impl Iterator<Item = (&str, &[Rate])> {
    let claims = batch.claims.iter();
    claims.map(|claim| (claim.provider.as_str(), claim.limits.as_slice()))
}

impl Store {
    /// Does the round in one transaction.
    pub async fn round(&self, round: Arc<CommitBatch>) -> Result<CommitResult, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.round(round).await,
            Self::Server(server) => server.round(round).await,
        }
    }

    /// The providers that are not to be called at this moment.
    pub async fn provider_pauses(&self, now: Timestamp) -> Result<Vec<ProviderPause>, StoreError> {
        let rows: Vec<(String, i64, Option<String>)> = reading!(self, |conn| pace::table
            .filter(pace::stopped_until.gt(now.as_millis()))
            .order(pace::scope)
            .select((pace::scope, pace::stopped_until, pace::stop_reason))
            .load(conn))?;
        let stop = |(scope, until, reason): (String, i64, Option<String>)| ProviderPause {
            provider: provider_of(&scope).to_owned(),
            until: Timestamp::from_millis(until),
            reason: reason.unwrap_or_default(),
        };
        Ok(rows.into_iter().map(stop).collect())
    }

    /// Calls the provider again at once; false where it was not stopped.
    pub async fn end_provider_pause(
        &self,
        provider: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let rows: usize = writing!(self, |conn| diesel::update(
            pace::table
                .find(provider_scope(provider))
                .filter(pace::stopped_until.gt(now.as_millis()))
        )
        .set((
            pace::stopped_until.eq(0),
            pace::stop_reason.eq(None::<String>)
        ))
        .execute(conn))?;
        Ok(rows > 0)
    }
}
