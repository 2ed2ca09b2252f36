//! Counts what a campaign has spent before it got a budget. Its messages are not claimed meanwhile, and everything that
//! was claimed before is counted once, whatever becomes of it:
//! 1. the budget is set, and its counter marked as one that is being counted, in one transaction ([`open`]);
//! 2. each worker says that no commit of it runs that does not know of the budget ([`Store::know_budget`]): from then on
//!    nothing is claimed;
//! 3. messages that may be accepted take what they cost, so that it is given back if they are not ([`take`]);
//! 4. one statement compares the counter with the messages, and what is missing is added ([`Store::count_budget`]).
//!
//! Each step can be interrupted, and repeated by any process.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::dsl::{count_star, sql};
use diesel::expression::SqlLiteral;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use diesel::{QueryableByName, update};
use rand::RngExt;
use smsq_lifecycle::AttemptOutcome;
use smsq_message::budget::{self, Budget};
use smsq_message::prices::Prices;
use smsq_message::sms::{State, Timestamp};
use smsq_process::boxed;

use super::rows;
use super::spending::{Spending, campaign_scope};
use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, ROWS, in_list, transaction};
use crate::error::StoreError;
use crate::tables::column_types::LossyText;
use crate::tables::expressions::phone_prefix;
use crate::tables::schema::{attempt, campaign, rate_limit, sms, sms_rest, worker};
use crate::{CHUNK, Store};

/// A budget whose campaign waits, because it is not counted yet what its messages have cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncountedBudget {
    pub campaign_id: i64,
    /// Of the budget.
    pub currency: String,
    counting: Counting,
}

/// How far a count is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountStep {
    /// All messages are counted, or the count has ended otherwise: there may be another one.
    Ended,
    /// A worker may still claim messages without the budget.
    Waits,
}

/// Column `counting`: the number of a count, the ids of the workers that know of the budget, and after `|` the budget
/// that the campaign gets back if it has spent more than the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counting {
    number: String,
    workers: BTreeSet<i64>,
    before: Option<String>,
}

impl Counting {
    fn new(before: Option<&str>) -> Self {
        Self {
            number: format!("{:016x}", rand::rng().random::<u64>()),
            workers: BTreeSet::new(),
            before: before.map(str::to_owned),
        }
    }

    fn of(column: &str) -> Self {
        let (count, before) = match column.split_once('|') {
            Some((count, before)) => (count, Some(before.to_owned())),
            None => (column, None),
        };
        let mut parts = count.split(',');
        Self {
            number: parts.next().unwrap_or_default().to_owned(),
            workers: parts.filter_map(|id| id.parse().ok()).collect(),
            before,
        }
    }

    fn column(&self) -> String {
        let ids = self.workers.iter().map(ToString::to_string);
        let parts: Vec<String> = [self.number.clone()].into_iter().chain(ids).collect();
        let count = parts.join(",");
        match &self.before {
            Some(before) => format!("{count}|{before}"),
            None => count,
        }
    }
}

/// Whether a campaign that has the budget `stored` must be counted before its new budget counts: it was not counted in
/// this currency until now.
pub(crate) fn is_needed(stored: &str, new: &Budget) -> bool {
    let stored = Budget::stored(stored).ok().flatten();
    stored.is_none_or(|stored| stored.currency != new.currency)
}

/// Marks the counter of a campaign that gets a budget as one that is being counted.
pub(crate) async fn open(
    connection: &mut Connection,
    campaign_id: i64,
    budget: &Budget,
    before: &str,
) -> QueryResult<()> {
    let scope = campaign_scope(campaign_id, &budget.currency);
    let rows = [rate_limit::scope.eq(scope.clone())];
    NewRows::of(rate_limit::table, &rows).insert_new(connection).await?;
    update(rate_limit::table.find(&scope))
        .set((
            rate_limit::counted_from.eq(None::<i64>),
            rate_limit::counting.eq(Counting::new(Some(before)).column()),
        ))
        .execute(connection)
        .await?;
    Ok(())
}

/// Opens the counter of a campaign that has no messages yet.
pub(crate) async fn open_counted(
    connection: &mut Connection,
    campaign_id: i64,
    budget: &Budget,
) -> QueryResult<()> {
    let rows = [(
        rate_limit::scope.eq(campaign_scope(campaign_id, &budget.currency)),
        rate_limit::counted_from.eq(0),
    )];
    NewRows::of(rate_limit::table, &rows).insert_new(connection).await.map(drop)
}

impl Store {
    /// The budgets whose campaigns wait.
    #[boxed]
    pub async fn uncounted_budgets(&self) -> Result<Vec<UncountedBudget>, StoreError> {
        let budgets: Vec<(i64, String)> = self
            .read(
                campaign::table
                    .filter(campaign::budget.ne(""))
                    .order(campaign::id)
                    .select((campaign::id, campaign::budget)),
            )
            .await?;
        let budgets: BTreeMap<String, (i64, String)> = budgets
            .into_iter()
            .filter_map(|(id, budget)| Some((id, Budget::stored(&budget).ok()??.currency)))
            .map(|(id, currency)| (campaign_scope(id, &currency), (id, currency)))
            .collect();
        let scopes: Vec<&String> = budgets.keys().collect();
        let mut known: BTreeMap<String, (Option<i64>, Option<String>)> = BTreeMap::new();
        for scopes in scopes.chunks(ROWS) {
            let scopes = in_list(scopes.iter().copied());
            let rows: Vec<(String, Option<i64>, Option<String>)> = self
                .read(rate_limit::table.filter(rate_limit::scope.eq_any(&scopes)).select((
                    rate_limit::scope,
                    rate_limit::counted_from,
                    rate_limit::counting,
                )))
                .await?;
            let row = |(scope, counted_from, counting)| (scope, (counted_from, counting));
            known.extend(rows.into_iter().map(row));
        }
        let mut uncounted = Vec::new();
        for (scope, (campaign_id, currency)) in budgets {
            let counting = match known.remove(&scope) {
                Some((Some(_), _)) => continue,
                Some((None, Some(counting))) => Counting::of(&counting),
                // An earlier program set the budget, or another one.
                Some((None, None)) | None => self.begin_count(&scope).await?,
            };
            uncounted.push(UncountedBudget { campaign_id, currency, counting });
        }
        Ok(uncounted)
    }

    /// Begins a count, unless another process has.
    async fn begin_count(&self, scope: &str) -> Result<Counting, StoreError> {
        let new = Counting::new(None);
        let column = new.column();
        let rows = [rate_limit::scope.eq(scope.to_owned())];
        // If another process was first, its count has another number, and nothing is done in the name of this one.
        transaction!(self, |connection| async {
            NewRows::of(rate_limit::table, &rows).insert_new(connection).await?;
            update(
                rate_limit::table
                    .find(scope)
                    .filter(rate_limit::counted_from.is_null())
                    .filter(rate_limit::counting.is_null()),
            )
            .set(rate_limit::counting.eq(&column))
            .execute(connection)
            .await
        })?;
        Ok(new)
    }

    /// Says that no commit of this worker runs that does not know of the budget.
    #[boxed]
    pub async fn know_budget(
        &self,
        budget: &UncountedBudget,
        worker_id: i64,
    ) -> Result<(), StoreError> {
        if budget.counting.workers.contains(&worker_id) {
            return Ok(());
        }
        transaction!(self, |connection| async {
            if let Some(mut counting) = budget.lock(connection).await? {
                counting.workers.insert(worker_id);
                update(rate_limit::table.find(budget.scope()))
                    .set(rate_limit::counting.eq(counting.column()))
                    .execute(connection)
                    .await?;
            }
            Ok(())
        })
    }

    /// Counts what the messages of a campaign have cost, by the prices of their providers, or by what these wrote.
    #[boxed]
    pub async fn count_budget(
        &self,
        budget: &UncountedBudget,
        prices: &BTreeMap<String, Prices>,
    ) -> Result<CountStep, StoreError> {
        let prices = InCurrency { currency: &budget.currency, prices };
        let now = self.now().await?;
        let known: Option<Option<String>> = self
            .read_first(rate_limit::table.find(budget.scope()).select(rate_limit::counting))
            .optional()
            .await?;
        let known = known.flatten().map(|column| Counting::of(&column));
        let Some(known) = known.filter(|known| known.number == budget.counting.number) else {
            return Ok(CountStep::Ended);
        };
        let workers: Vec<(i64, Timestamp, i64)> = self
            .read(worker::table.select((worker::id, worker::heartbeat_at, worker::lease_ms)))
            .await?;
        let may_claim = |(id, heartbeat_at, lease_ms): &(i64, Timestamp, i64)| {
            let is_silent = now.as_millis().saturating_sub(heartbeat_at.as_millis()) > *lease_ms;
            !is_silent && !known.workers.contains(id)
        };
        if workers.iter().any(may_claim) {
            return Ok(CountStep::Waits);
        }
        let mut after = i64::MIN;
        loop {
            let ids = self.without_reserve(budget.campaign_id, after).await?;
            let Some(last) = ids.last() else {
                break;
            };
            after = *last;
            transaction!(self, |connection| take(connection, budget, &ids, &prices, now))?;
        }
        let missing = self.missing(budget, &prices).await?;
        transaction!(self, |connection| budget.end(connection, missing))?;
        Ok(CountStep::Ended)
    }

    /// The next messages of a campaign that may be accepted and have taken nothing.
    async fn without_reserve(&self, campaign_id: i64, after: i64) -> Result<Vec<i64>, StoreError> {
        self.read(
            sms::table
                .filter(sms::campaign_id.eq(campaign_id))
                .filter(sms::id.gt(after))
                .filter(may_be_accepted())
                .filter(sql::<Bool>("sms.reserved_month IS NULL"))
                .order(sms::id)
                .limit(CHUNK)
                .select(sms::id),
        )
        .await
    }

    /// How much more the messages of a campaign cost than its counter says, by one statement, for which nothing changes
    /// meanwhile. An attempt that may have been accepted counts although a later one was. Never less: of messages that
    /// were purged only the counter knows.
    async fn missing(
        &self,
        budget: &UncountedBudget,
        prices: &InCurrency<'_>,
    ) -> Result<i64, StoreError> {
        let statement = format!(
            "SELECT 'sent' AS kind, provider AS provider, MIN(phone) AS phone, price AS price, \
                 COALESCE(segments, 1) * accepted AS amount, COUNT(*) AS messages \
             FROM sms_sent WHERE campaign_id = {id} \
             GROUP BY provider, {prefix}, price, COALESCE(segments, 1) * accepted \
             UNION ALL SELECT 'sent', attempt.provider, MIN(phone), NULL, COALESCE(segments, 1), COUNT(*) \
             FROM sms_sent JOIN attempt ON attempt.sms_id = sms_sent.id AND attempt.outcome = '{doubt}' \
             WHERE campaign_id = {id} AND attempt.claim <> sms_sent.claim AND (accepted_claims IS NULL \
                 OR CONCAT(',', accepted_claims, ',') NOT LIKE CONCAT('%,', attempt.claim, ',%')) \
             GROUP BY attempt.provider, {prefix}, COALESCE(segments, 1) \
             UNION ALL SELECT 'taken', NULL, NULL, NULL, reserved + reserved_earlier, COUNT(*) \
             FROM sms WHERE campaign_id = {id} AND reserved_month LIKE '%/{currency}' \
             GROUP BY reserved + reserved_earlier \
             UNION ALL SELECT 'counted', NULL, NULL, NULL, spent, 1 \
             FROM rate_limit WHERE scope = '{scope}'",
            id = budget.campaign_id,
            doubt = AttemptOutcome::Unknown.as_str(),
            prefix = phone_prefix(prices.digits()),
            currency = budget.currency,
            scope = budget.scope(),
        );
        let rows: Vec<Sum> = self.read(diesel::sql_query(&statement)).await?;
        let missing = rows.iter().fold(0_i64, |missing, row| {
            let each = match row.kind.as_str() {
                "sent" => prices.of_sent(row),
                "taken" => row.amount,
                _ => row.amount.saturating_neg(),
            };
            missing.saturating_add(each.saturating_mul(row.messages))
        });
        Ok(missing.max(0))
    }
}

/// What equal messages cost, or have taken.
#[derive(QueryableByName)]
struct Sum {
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Nullable<Text>)]
    provider: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<LossyText>,
    #[diesel(sql_type = Nullable<Text>)]
    price: Option<LossyText>,
    /// Millionths; of a sent message its segments.
    #[diesel(sql_type = BigInt)]
    amount: i64,
    #[diesel(sql_type = BigInt)]
    messages: i64,
}

/// The prices of providers in the currency of a budget. What has no price is free.
struct InCurrency<'a> {
    currency: &'a str,
    prices: &'a BTreeMap<String, Prices>,
}

impl InCurrency<'_> {
    fn tables(&self) -> impl Iterator<Item = (&String, &Prices)> {
        self.prices.iter().filter(|(_, prices)| prices.currency.eq_ignore_ascii_case(self.currency))
    }

    fn digits(&self) -> usize {
        let digits = self.tables().map(|(_, prices)| prices.longest_prefix());
        digits.max().unwrap_or_default()
    }

    /// What a message costs. `None`, or an empty name: the provider is not known, so it is the dearest.
    fn of(&self, provider: Option<&str>, phone: &str, segments: i64) -> i64 {
        let known = provider.filter(|name| !name.is_empty());
        let is_its = |(name, _): &(&String, &Prices)| known.is_none_or(|known| known == *name);
        let prices = self.tables().filter(is_its);
        let price = prices.filter_map(|(_, prices)| prices.of(phone)).max();
        let price = i64::try_from(price.unwrap_or_default()).unwrap_or(i64::MAX);
        price.saturating_mul(segments)
    }

    fn of_sent(&self, row: &Sum) -> i64 {
        let written = row.price.as_deref();
        let charged = written.and_then(|price| budget::charged(self.currency, price));
        charged.filter(|price| *price > 0).unwrap_or_else(|| {
            let phone = row.phone.as_deref().unwrap_or_default();
            self.of(row.provider.as_deref(), phone, row.amount)
        })
    }
}

impl UncountedBudget {
    fn scope(&self) -> String {
        campaign_scope(self.campaign_id, &self.currency)
    }

    /// Adds what is missing, and ends the count. A campaign that has spent more gets the budget back that it had, before
    /// a worker can see that the new one is used up.
    async fn end(&self, connection: &mut Connection, missing: i64) -> QueryResult<()> {
        let Some(counting) = self.lock(connection).await? else {
            return Ok(());
        };
        let scope = self.scope();
        update(rate_limit::table.find(&scope))
            .set((
                rate_limit::spent.eq(rate_limit::spent + missing),
                rate_limit::counted_from.eq(0),
                rate_limit::counting.eq(None::<String>),
            ))
            .execute(connection)
            .await?;
        let Some(before) = counting.before else {
            return Ok(());
        };
        let spent: i64 =
            rate_limit::table.find(&scope).select(rate_limit::spent).first(connection).await?;
        let column: Option<String> = campaign::table
            .find(self.campaign_id)
            .select(campaign::budget)
            .first(connection)
            .optional()
            .await?;
        let Some(stored) = column else {
            return Ok(());
        };
        let budget = Budget::stored(&stored).ok().flatten();
        let is_exceeded =
            |budget: &Budget| budget.currency == self.currency && spent > budget.amount;
        if budget.is_some_and(|budget| is_exceeded(&budget)) {
            update(campaign::table.find(self.campaign_id).filter(campaign::budget.eq(&stored)))
                .set(campaign::budget.eq(&before))
                .execute(connection)
                .await?;
        }
        Ok(())
    }

    /// Locks the counter; `None` if this count has ended.
    async fn lock(&self, connection: &mut Connection) -> QueryResult<Option<Counting>> {
        let scope = self.scope();
        let rows: Vec<Option<String>> = rate_limit::table
            .filter(rate_limit::scope.eq(&scope))
            .filter(rate_limit::counted_from.is_null())
            .select(rate_limit::counting)
            .locked()
            .load(connection)
            .await?;
        let counting = rows.into_iter().flatten().next();
        let counting = counting.map(|column| Counting::of(&column));
        Ok(counting.filter(|counting| counting.number == self.counting.number))
    }
}

/// Whether a message may be accepted by what was sent of it.
fn may_be_accepted() -> SqlLiteral<Bool> {
    let (sending, unknown) = (State::Sending.code(), State::Unknown.code());
    sql(&format!("(sms.state IN ({sending}, {unknown}) OR sms.in_doubt)"))
}

/// Takes what these messages cost, for those that may be accepted and have taken nothing.
async fn take(
    connection: &mut Connection,
    budget: &UncountedBudget,
    ids: &[i64],
    prices: &InCurrency<'_>,
    now: Timestamp,
) -> QueryResult<()> {
    type Row = (i64, LossyText, Option<i32>, Option<String>, i32, bool);
    let rows: Vec<Row> = sms::table
        .filter(sms::id.eq_any(ids))
        .filter(may_be_accepted())
        .filter(sql::<Bool>("sms.reserved_month IS NULL"))
        .order(sms::id)
        .select((
            sms::id,
            sms::phone,
            sms::segments,
            sms::claimed_provider,
            sms::state,
            sms::in_doubt,
        ))
        .locked()
        .load(connection)
        .await?;
    let doubts: Vec<(i64, i64)> = attempt::table
        .filter(attempt::sms_id.eq_any(ids))
        .filter(attempt::outcome.eq(AttemptOutcome::Unknown.as_str()))
        .group_by(attempt::sms_id)
        .select((attempt::sms_id, count_star()))
        .load(connection)
        .await?;
    let doubts: HashMap<i64, i64> = doubts.into_iter().collect();
    let month = budget::month_key(now, &budget.currency);
    let mut spending = Spending::default();
    // By what they take for their claim, and for earlier ones.
    let mut taken: BTreeMap<[i64; 2], Vec<i64>> = BTreeMap::new();
    for (id, phone, segments, provider, state, in_doubt) in rows {
        let segments = i64::from(segments.unwrap_or(1).max(1));
        let cost = prices.of(provider.as_deref(), &phone, segments);
        let is_sending = state == State::Sending.code();
        let claim = if is_sending { cost } else { 0 };
        let attempts = doubts.get(&id).copied().unwrap_or(1);
        let earlier = if is_sending && !in_doubt { 0 } else { cost.saturating_mul(attempts) };
        if cost > 0 {
            spending.extend(Spending::of(budget.campaign_id, &month, claim + earlier));
            taken.entry([claim, earlier]).or_default().push(id);
        }
    }
    for ([claim, earlier], ids) in taken {
        for ids in ids.chunks(ROWS) {
            let ids = in_list(ids.iter().copied());
            update(sms_rest::table.filter(sms_rest::id.eq_any(&ids)))
                .set((
                    sms_rest::reserved.eq(claim),
                    sms_rest::reserved_earlier.eq(earlier),
                    sms_rest::reserved_month.eq(&month),
                ))
                .execute(connection)
                .await?;
        }
    }
    // After the messages, as claims lock them.
    rows::lock(connection, &spending.amounts().keys().cloned().collect()).await?;
    spending.store(connection).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_knows_its_number_and_its_workers() {
        let mut counting = Counting::new(None);
        assert_eq!(Counting::of(&counting.column()), counting);
        let replacing = Counting::new(Some("1.50 EUR"));
        assert_eq!(Counting::of(&replacing.column()), replacing);
        let first = Counting::new(Some(""));
        assert_eq!(Counting::of(&first.column()), first);
        counting.workers.extend([7, 19]);
        assert_eq!(Counting::of(&counting.column()), counting);
    }

    #[test]
    fn budget_is_counted_unless_one_in_its_currency_was() {
        let new: Budget = "5 EUR".parse().expect("a budget");
        for (stored, expected) in
            [("", true), ("7.00 USD", true), ("7.00 EUR", false), ("much", true)]
        {
            assert_eq!(is_needed(stored, &new), expected, "{stored}");
        }
    }
}
