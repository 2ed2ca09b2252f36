//! What messages have taken from budgets, and the counters of what budgets have spent: rows of table `rate_limit`. A claim
//! takes the cost of its messages, and whatever ends it without an acceptance gives it back. At every commit, a counter
//! is the sum over the messages that are sending, unknown, in doubt or sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use diesel::dsl::sql;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use diesel::update;
use smsq_lifecycle::transition::Doubt;
use smsq_message::budget::{self, campaign_budget_scope, month_budget_scope};
use smsq_message::sms::{Reserve, Timestamp};
use smsq_process::boxed;

use crate::Store;
use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult, ROWS, in_list};
use crate::error::StoreError;
use crate::tables::schema::{rate_limit, sms, sms_rest};

impl Store {
    /// What the messages of a campaign have cost in a currency, in millionths; `None` if they are not counted.
    #[boxed]
    pub async fn spent(&self, campaign_id: i64, currency: &str) -> Result<Option<i64>, StoreError> {
        let counter = self.counter(&campaign_scope(campaign_id, currency)).await?;
        Ok(counter.filter(|(_, counted_from)| counted_from.is_some()).map(|(spent, _)| spent))
    }

    /// What the messages of the calendar month have cost in a currency, in millionths.
    #[boxed]
    pub async fn month_spent(
        &self,
        now: Timestamp,
        currency: &str,
    ) -> Result<MonthSpent, StoreError> {
        let scope = month_budget_scope(&budget::month_key(now, currency));
        let counter = self.counter(&scope).await?;
        let (spent, counted_from) = counter.unwrap_or_default();
        Ok(MonthSpent { spent, counted_from: counted_from.map(Timestamp::from_millis) })
    }

    async fn counter(&self, scope: &str) -> Result<Option<(i64, Option<i64>)>, StoreError> {
        self.read_first(
            rate_limit::table.find(scope).select((rate_limit::spent, rate_limit::counted_from)),
        )
        .optional()
        .await
    }
}

/// What is spent of the budgets of a calendar month in one currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonthSpent {
    /// In millionths.
    pub spent: i64,
    /// When the first message of the month took from a budget; those before did not. `None`: none has, or that was not
    /// recorded.
    pub counted_from: Option<Timestamp>,
}

/// The scope of a campaign's counter.
pub(super) fn campaign_scope(campaign_id: i64, currency: &str) -> String {
    format!("{}{currency}", budget::campaign_budgets(campaign_id))
}

/// What a message in the queue has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowReserve {
    pub(crate) campaign_id: i64,
    /// For its current claim: 0 unless it is sending.
    pub(crate) claim: i64,
    /// For earlier attempts that may have been accepted.
    pub(crate) earlier: i64,
    /// See [`budget::month_key`].
    pub(crate) month: String,
}

impl RowReserve {
    pub(crate) fn scopes(&self) -> [String; 2] {
        scopes(self.campaign_id, &self.month)
    }
}

/// What messages have taken, by id. Those that took nothing are missing.
pub(crate) type Reserves = BTreeMap<i64, RowReserve>;

/// The scopes of the counters that a message takes from.
pub(crate) fn scopes(campaign_id: i64, month: &str) -> [String; 2] {
    [campaign_budget_scope(campaign_id, month), month_budget_scope(month)]
}

/// Changes of counters, by scope. Each transition of messages returns its own, and the transaction stores them last, so
/// that others wait for the counters only during its end.
#[must_use = "counters change with their messages"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spending(BTreeMap<String, i64>);

impl Spending {
    /// What a message changes that took `amount` more.
    pub(crate) fn of(campaign_id: i64, month: &str, amount: i64) -> Self {
        let mut spending = Self::default();
        spending.add(scopes(campaign_id, month), amount);
        spending
    }

    pub(crate) fn add(&mut self, scopes: impl IntoIterator<Item = String>, amount: i64) {
        if amount != 0 {
            for scope in scopes {
                *self.0.entry(scope).or_default() += amount;
            }
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        for (scope, amount) in other.0 {
            self.add([scope], amount);
        }
    }

    /// By scope.
    pub(crate) fn amounts(&self) -> &BTreeMap<String, i64> {
        &self.0
    }

    /// What undoes these changes.
    pub(crate) fn undone(mut self) -> Self {
        for amount in self.0.values_mut() {
            *amount = -*amount;
        }
        self
    }

    /// Stores it, in the order in which claims lock the counters.
    pub(crate) async fn store(self, connection: &mut Connection) -> QueryResult<()> {
        for (scope, amount) in self.0.into_iter().filter(|(_, amount)| *amount != 0) {
            update(rate_limit::table.find(&scope))
                .set(rate_limit::spent.eq(rate_limit::spent + amount))
                .kept()
                .execute(connection)
                .await?;
        }
        Ok(())
    }
}

/// Reads what these messages have taken.
pub(crate) async fn read(connection: &mut Connection, ids: &[i64]) -> QueryResult<Reserves> {
    type Row = (i64, i64, i64, i64, Option<String>);
    let mut found = Reserves::new();
    for ids in ids.chunks(ROWS) {
        let ids = in_list(ids.iter().copied());
        let rows: Vec<Row> = sms::table
            .filter(sms::id.eq_any(&ids))
            .filter(sql::<Bool>("sms.reserved_month IS NOT NULL"))
            .select((
                sms::id,
                sms::campaign_id,
                sql::<BigInt>("sms.reserved"),
                sql::<BigInt>("sms.reserved_earlier"),
                sql::<Nullable<Text>>("sms.reserved_month"),
            ))
            .kept()
            .load(connection)
            .await?;
        for (id, campaign_id, claim, earlier, month) in rows {
            let reserve =
                RowReserve { campaign_id, claim, earlier, month: month.unwrap_or_default() };
            found.insert(id, reserve);
        }
    }
    Ok(found)
}

/// What a message keeps of what it has taken, when a claim ends or its doubt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Its claim may have been accepted.
    All,
    /// Its claim was not accepted, but an earlier one may have been.
    Earlier,
    /// None of its attempts was accepted.
    Nothing,
}

impl From<Option<Doubt>> for Kept {
    fn from(doubt: Option<Doubt>) -> Self {
        match doubt {
            None => Self::Nothing,
            Some(Doubt::Unchanged | Doubt::Earlier) => Self::Earlier,
            Some(Doubt::New) => Self::All,
        }
    }
}

/// Gives back what messages do not keep. Rows of messages that took nothing are not touched.
pub(crate) async fn keep(
    connection: &mut Connection,
    ids: &[i64],
    reserves: &Reserves,
    kept: Kept,
) -> QueryResult<Spending> {
    let mut spending = Spending::default();
    if reserves.is_empty() {
        return Ok(spending);
    }
    let mut changed = Vec::new();
    for id in ids {
        let Some(reserve) = reserves.get(id) else {
            continue;
        };
        let given_back = match kept {
            Kept::All => 0,
            Kept::Earlier => reserve.claim,
            Kept::Nothing => reserve.claim + reserve.earlier,
        };
        spending.add(reserve.scopes(), -given_back);
        if kept == Kept::Nothing || reserve.claim != 0 {
            changed.push(*id);
        }
    }
    for ids in changed.chunks(ROWS) {
        let ids = in_list(ids.iter().copied());
        let earlier = (kept == Kept::All).then(|| {
            sms_rest::reserved_earlier.eq(sms_rest::reserved_earlier + sms_rest::reserved)
        });
        let nothing = (kept == Kept::Nothing).then(|| {
            (sms_rest::reserved_earlier.eq(0), sms_rest::reserved_month.eq(None::<String>))
        });
        update(sms_rest::table.filter(sms_rest::id.eq_any(&ids)))
            // `reserved` last, because MySQL evaluates assignments from left to right.
            .set((earlier, nothing, sms_rest::reserved.eq(0)))
            .kept()
            .execute(connection)
            .await?;
    }
    Ok(spending)
}

/// What `claimed` messages took, to be stored with them.
#[derive(Default)]
pub(crate) struct ReserveWrites(BTreeMap<Arc<str>, BTreeMap<i64, Vec<i64>>>);

impl ReserveWrites {
    pub(crate) fn add(&mut self, id: i64, reserve: &Reserve) {
        let of_month = self.0.entry(Arc::clone(&reserve.month)).or_default();
        of_month.entry(reserve.amount).or_default().push(id);
    }

    pub(crate) async fn write(&self, connection: &mut Connection) -> QueryResult<()> {
        for (month, amounts) in &self.0 {
            for (amount, ids) in amounts {
                for ids in ids.chunks(ROWS) {
                    let ids = in_list(ids.iter().copied());
                    update(sms_rest::table.filter(sms_rest::id.eq_any(&ids)))
                        .set((
                            sms_rest::reserved.eq(*amount),
                            sms_rest::reserved_month.eq(&**month),
                        ))
                        .kept()
                        .execute(connection)
                        .await?;
                }
            }
        }
        Ok(())
    }
}
