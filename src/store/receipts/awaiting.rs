//! Messages that await delivery receipts: which they are, when the wait ends, and which process fetches the receipts of
//! a provider.

use std::ops::RangeInclusive;

use diesel::dsl::{max, min, sql};
use diesel::sql_types::{BigInt, Bool, Nullable};
use diesel::update;
use smsq_lifecycle::delivery::DeliveryState;
use smsq_message::sms::Timestamp;
use smsq_process::boxed;

use crate::audit::in_chunks;
use crate::connection::prelude::*;
use crate::connection::{
    Chunk, Connection, NewRows, QueryResult, in_dialect, querying, transaction,
};
use crate::error::StoreError;
use crate::tables::column_types::LossyText;
use crate::tables::schema::{campaign, receipt_pull, sms, sms_sent};
use crate::tables::values::SEVERAL;
use crate::{CHUNK, ReceiptStore};

/// A sent message whose receipt is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = sms_sent)]
pub struct AwaitingSms {
    pub id: i64,
    #[diesel(deserialize_as = LossyText)]
    pub phone: String,
    pub reference: Option<String>,
    pub message_id: Option<String>,
    pub sent_at: Timestamp,
}

/// The lease of a provider's receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullLease {
    /// When the last complete pass began.
    pub pulled_at: Option<Timestamp>,
    /// Where the last pass stopped that was not complete.
    pub position: Option<String>,
}

/// Its holder, its end, and the rest.
type LeaseRow = (i64, Timestamp, Option<Timestamp>, Option<String>);

/// Selects the unknown messages that a provider may have.
#[derive(Clone, Copy, Debug)]
pub struct TriedAt<'a> {
    pub provider: &'a str,
    /// Whether it may be that of campaigns that name none.
    pub is_default: bool,
}

impl ReceiptStore<'_> {
    /// The providers with messages that await a receipt, in the order of their names.
    #[boxed]
    pub async fn awaiting_providers(&self) -> Result<Vec<String>, StoreError> {
        let mut providers: Vec<String> = Vec::new();
        loop {
            let after = providers.last().cloned().unwrap_or_default();
            let next: Option<String> = self
                .read_first(
                    sms_sent::table
                        .filter(is_awaiting())
                        .filter(sms_sent::provider.gt(&after))
                        .select(min(sms_sent::provider)),
                )
                .await?;
            match next {
                Some(next) => providers.push(next),
                None => return Ok(providers),
            }
        }
    }

    /// Whether a message of this campaign, or of any, awaits a receipt of this provider.
    #[boxed]
    pub async fn is_awaiting(
        &self,
        provider: &str,
        campaign: Option<i64>,
    ) -> Result<bool, StoreError> {
        let found: Vec<i64> = {
            let query = sms_sent::table
                .filter(is_awaiting())
                .filter(sms_sent::provider.eq(provider))
                .limit(1)
                .select(sms_sent::id)
                .into_boxed();
            match campaign {
                Some(campaign) => self.read(query.filter(sms_sent::campaign_id.eq(campaign))),
                None => self.read(query),
            }
        }
        .await?;
        Ok(!found.is_empty())
    }

    /// When the first and the last message were sent that await a receipt, of those sent in this span.
    #[boxed]
    pub async fn awaiting_span(
        &self,
        provider: &str,
        sent: &RangeInclusive<Timestamp>,
    ) -> Result<Option<(Timestamp, Timestamp)>, StoreError> {
        /// One query for each end, because each reads only that end of the index.
        macro_rules! end {
            ($end:ident) => {
                self.read_first(
                    sms_sent::table
                        .filter(is_awaiting())
                        .filter(sms_sent::provider.eq(provider))
                        .filter(sms_sent::sent_at.ge(*sent.start()))
                        .filter(sms_sent::sent_at.le(*sent.end()))
                        .select($end(sms_sent::sent_at)),
                )
                .await?
            };
        }
        let first: Option<Timestamp> = end!(min);
        let last: Option<Timestamp> = end!(max);
        Ok(first.zip(last))
    }

    /// When the first and the last unknown message of this campaign, or of any, were claimed, of those claimed in this
    /// span that the provider may have: it tried them, or the worker that tried them is gone and their campaign uses it.
    #[boxed]
    pub async fn unknown_span<'a>(
        &'a self,
        tried: TriedAt<'a>,
        campaign: Option<i64>,
        claimed: &RangeInclusive<Timestamp>,
    ) -> Result<Option<(Timestamp, Timestamp)>, StoreError> {
        querying!(self, Read, |connection| unknown_ends(connection, tried, campaign, claimed))
    }

    /// A page of the messages sent in this span that await a receipt, after the one that was sent at this instant and has
    /// this id.
    #[boxed]
    pub async fn awaiting(
        &self,
        provider: &str,
        sent: &RangeInclusive<Timestamp>,
        after_at: Timestamp,
        after_id: i64,
        limit: i64,
    ) -> Result<Vec<AwaitingSms>, StoreError> {
        self.read(
            sms_sent::table
                .filter(is_awaiting())
                .filter(sms_sent::provider.eq(provider))
                .filter(sms_sent::sent_at.ge(after_at.max(*sent.start())))
                .filter(sms_sent::sent_at.le(*sent.end()))
                .filter(sms_sent::sent_at.gt(after_at).or(sms_sent::id.gt(after_id)))
                .order((sms_sent::sent_at, sms_sent::id))
                .limit(limit)
                .select(AwaitingSms::as_select()),
        )
        .await
    }

    /// Ends the wait for receipts of messages that were sent before this instant; returns how many.
    #[boxed]
    pub async fn end_awaiting(
        &self,
        provider: &str,
        sent_before: Timestamp,
    ) -> Result<u64, StoreError> {
        in_chunks!(self, |connection| async {
            let ids: Vec<i64> = sms_sent::table
                .filter(is_awaiting())
                .filter(sms_sent::provider.eq(provider))
                .filter(sms_sent::sent_at.lt(sent_before))
                .order((sms_sent::sent_at, sms_sent::id))
                .limit(CHUNK)
                .select(sms_sent::id)
                .locked()
                .load(connection)
                .await?;
            update(sms_sent::table.filter(sms_sent::id.eq_any(&ids)))
                .set((
                    sms_sent::delivery_state.eq(DeliveryState::NoReport.as_str()),
                    sms_sent::content.eq(None::<String>),
                    sms_sent::params.eq(None::<String>),
                ))
                .execute(connection)
                .await?;
            QueryResult::Ok(Chunk::all(ids.len()))
        })
    }

    /// Leases the receipts of a provider to one process until an instant, or renews its lease. `None` if another process
    /// has them. `position`: where its pass would stop now.
    #[boxed]
    pub async fn lease(
        &self,
        provider: &str,
        holder: i64,
        now: Timestamp,
        until: Timestamp,
        position: Option<&str>,
    ) -> Result<Option<PullLease>, StoreError> {
        transaction!(self, |connection| async {
            let row = [(
                receipt_pull::provider.eq(provider),
                receipt_pull::holder.eq(holder),
                receipt_pull::leased_until.eq(0),
            )];
            NewRows::of(receipt_pull::table, &row).insert_new(connection).await?;
            let found: Vec<LeaseRow> = receipt_pull::table
                .find(provider)
                .select((
                    receipt_pull::holder,
                    receipt_pull::leased_until,
                    receipt_pull::pulled_at,
                    receipt_pull::position,
                ))
                .locked()
                .load(connection)
                .await?;
            let free = found.into_iter().find(|(by, until, ..)| *by == holder || *until < now);
            let Some((.., pulled_at, known)) = free else {
                return QueryResult::Ok(None);
            };
            let position = position.map(str::to_owned).or(known);
            update(receipt_pull::table.find(provider))
                .set((
                    receipt_pull::holder.eq(holder),
                    receipt_pull::leased_until.eq(until),
                    receipt_pull::position.eq(&position),
                ))
                .execute(connection)
                .await?;
            Ok(Some(PullLease { pulled_at, position }))
        })
    }

    /// Ends the lease of this process. `pulled_at`: when its pass began, if it was complete; `position`: where it stopped,
    /// if it was not.
    #[boxed]
    pub async fn release(
        &self,
        provider: &str,
        holder: i64,
        pulled_at: Option<Timestamp>,
        position: Option<&str>,
    ) -> Result<(), StoreError> {
        let pulled = pulled_at.map(|at| receipt_pull::pulled_at.eq(at));
        let _: usize = self
            .write(
                update(receipt_pull::table.find(provider).filter(receipt_pull::holder.eq(holder)))
                    .set((
                        receipt_pull::leased_until.eq(0),
                        receipt_pull::position.eq(position),
                        pulled,
                    )),
            )
            .await?;
        Ok(())
    }
}

/// As a literal, because an index with a condition serves no parameter.
fn is_awaiting() -> diesel::expression::SqlLiteral<Bool> {
    sql::<Bool>("delivery_state = 'awaiting'")
}

/// When the first and the last unknown message were claimed, of those claimed in this span that may have been sent
/// through the provider with this name, which may be the default of campaigns without one.
async fn unknown_ends(
    connection: &mut Connection,
    tried: TriedAt<'_>,
    campaign: Option<i64>,
    claimed: &RangeInclusive<Timestamp>,
) -> QueryResult<Option<(Timestamp, Timestamp)>> {
    let TriedAt { provider, is_default } = tried;
    let claimed_at =
        || in_dialect::<Nullable<BigInt>, _>(|dialect| dialect.unknown_columns().1.to_owned());
    /// Two queries, because each reads only one end of the index.
    macro_rules! end {
        ($order:ident) => {{
            let found: Vec<Option<Timestamp>> = {
                let here = sms::claimed_provider.eq_any([provider, SEVERAL]);
                let is_named = campaign::provider.eq(provider).assume_not_null();
                let is_default = is_default.into_sql::<Bool>();
                let own = campaign::table
                    .filter(is_named.or(campaign::provider.is_null().and(is_default)))
                    .select(campaign::id);
                let query = sms::table
                    .filter(is_unknown())
                    .filter(claimed_at().ge(*claimed.start()))
                    .filter(claimed_at().le(*claimed.end()))
                    .filter(
                        here.or(sms::claimed_provider.is_null().and(sms::campaign_id.eq_any(own)))
                            .assume_not_null(),
                    )
                    .order(claimed_at().$order())
                    .limit(1)
                    .select(claimed_at())
                    .into_boxed();
                match campaign {
                    Some(id) => query.filter(sms::campaign_id.eq(id)).load(connection),
                    None => query.load(connection),
                }
            }
            .await?;
            found.into_iter().next().flatten()
        }};
    }
    let (first, last) = (end!(asc), end!(desc));
    Ok(first.zip(last))
}

/// As it is written in the indexes of unknown messages.
pub(super) fn is_unknown() -> diesel::expression::SqlLiteral<Bool> {
    sql::<Bool>("state = 2")
}
