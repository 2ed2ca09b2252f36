//! Budgets in a group commit: how much its claims may take, and which campaigns are stopped because it is not enough.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use diesel::dsl::sql;
use diesel::sql_types::BigInt;
use diesel::update;
use smsq_lifecycle::batch::BatchItem;
use smsq_lifecycle::{Admission, ProviderClaim};
use smsq_message::budget::{self, Budget, BudgetRules, Pricing};
use smsq_message::instant::DbMicros;
use smsq_message::phone::Phone;
use smsq_message::sms::{Class, Failure, Reserve, Sms, State, Timestamp};
use smsq_message::text::{messages, shell_word};

use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult, in_list};
use crate::limits::spending::{self, Reserves, RowReserve, Spending, scopes};
use crate::positive;
use crate::queue::commit_batch::{ClaimKey, ClaimedCampaign, CommitBatch};
use crate::queue::stops::{CampaignStop, stop_campaigns};
use crate::tables::campaign_filter::CampaignFilter;
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::expressions::in_state;
use crate::tables::schema::{campaign, rate_limit, sms};

/// How soon a campaign is claimed from again whose budget is taken by messages that are being sent.
const RETRY: Duration = Duration::from_millis(200);

/// The budgets of a commit's claims.
pub(crate) struct Budgets {
    rules: Arc<BudgetRules>,
    /// Those of campaigns that have one, by id.
    campaigns: HashMap<i64, Budget>,
    now: Timestamp,
    /// What is spent, by scope: read without a lock for an estimate, then locked.
    spent: BTreeMap<String, i64>,
    /// The counters that have all messages of their campaigns.
    counted: BTreeSet<String>,
    /// Those of months that have any.
    begun: BTreeSet<String>,
    /// What messages in doubt have taken before this claim.
    earlier: Reserves,
    changes: Spending,
    /// Why campaigns cannot go on, by id.
    ended: BTreeMap<i64, BudgetEnd>,
}

/// Why a budget ends the claims of a campaign.
#[derive(Clone, Debug)]
enum BudgetEnd {
    /// Its next message costs more than is left.
    UsedUp {
        scope: String,
        budget: Budget,
        is_monthly: bool,
        /// Of the next message.
        cost: i64,
    },
    /// Its messages have no price.
    Unpriced(String),
    /// What its messages have cost before it got its budget is being counted.
    Uncounted,
}

impl Budgets {
    /// Reads what is spent, if there are any budgets.
    pub(crate) async fn read(
        connection: &mut Connection,
        batch: &CommitBatch,
        campaigns: &HashMap<i64, ClaimedCampaign>,
    ) -> QueryResult<Self> {
        let with_budget = campaigns
            .iter()
            .filter_map(|(id, campaign)| Some((*id, campaign.budget.clone().ok()??)));
        let mut budgets = Self {
            rules: Arc::clone(&batch.budgets),
            campaigns: with_budget.collect(),
            now: batch.now,
            spent: BTreeMap::new(),
            counted: BTreeSet::new(),
            begun: BTreeSet::new(),
            earlier: Reserves::new(),
            changes: Spending::default(),
            ended: BTreeMap::new(),
        };
        if budgets.are_any() {
            let scopes = in_list(budgets.scopes(batch));
            let rows: Vec<(String, i64, Option<i64>)> = rate_limit::table
                .filter(rate_limit::scope.eq_any(&scopes))
                .select((rate_limit::scope, rate_limit::spent, rate_limit::counted_from))
                .kept()
                .load(connection)
                .await?;
            for (scope, spent, counted_from) in rows {
                if counted_from.is_some() {
                    budgets.counted.insert(scope.clone());
                }
                if counted_from.is_some() || spent != 0 {
                    budgets.begun.insert(scope.clone());
                }
                budgets.spent.insert(scope, spent);
            }
        }
        Ok(budgets)
    }

    fn are_any(&self) -> bool {
        !self.campaigns.is_empty() || !self.rules.monthly.0.is_empty()
    }

    /// The scopes of the counters that the claims may take from.
    fn scopes(&self, batch: &CommitBatch) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for claim in &batch.claims {
            for lane in &claim.lanes {
                let id = lane.id.campaign_id;
                if let Pricing::Priced { .. } = self.pricing(claim, id) {
                    all.extend(scopes(id, &self.month(claim)));
                }
            }
        }
        all
    }

    /// The scopes to lock: also those that settlements of the commit changed.
    pub(crate) fn scopes_to_lock(
        &self,
        batch: &CommitBatch,
        settled: &Spending,
    ) -> BTreeSet<String> {
        let mut all = self.scopes(batch);
        all.extend(settled.amounts().keys().cloned());
        all.extend(self.earlier.values().flat_map(RowReserve::scopes));
        all
    }

    /// Takes over what is spent by the locked counters, and what the settlements of the commit changed.
    pub(crate) fn locked(&mut self, spent: BTreeMap<String, i64>, settled: Spending) {
        self.spent = spent;
        for (scope, amount) in settled.amounts() {
            *self.spent.entry(scope.clone()).or_default() += amount;
        }
        self.changes = settled;
    }

    fn pricing(&self, claim: &ProviderClaim, campaign_id: i64) -> Pricing {
        let own = self.campaigns.get(&campaign_id);
        self.rules.pricing(own, &claim.provider, &claim.prices)
    }

    fn month(&self, claim: &ProviderClaim) -> Arc<str> {
        let currency = claim.prices.currency.to_ascii_uppercase();
        budget::month_key(self.now, &currency).into()
    }

    /// How many of `wanted` messages of a campaign there may be money for: more than none unless they cannot be sent.
    pub(crate) fn available(
        &mut self,
        claim: &ProviderClaim,
        campaign_id: i64,
        wanted: u32,
    ) -> u32 {
        let (own, month) = match self.pricing(claim, campaign_id) {
            Pricing::Free => return wanted,
            Pricing::Refused(reason) => {
                self.ended.insert(campaign_id, BudgetEnd::Unpriced(reason));
                return 0;
            }
            Pricing::Priced { campaign, month } => (campaign, month),
        };
        let [own_scope, month_scope] = scopes(campaign_id, &self.month(claim));
        if own.is_some() && !self.counted.contains(&own_scope) {
            self.ended.insert(campaign_id, BudgetEnd::Uncounted);
            return 0;
        }
        let left = |budget: Option<Budget>, scope| {
            let spent = self.spent.get(scope).copied().unwrap_or_default();
            budget.map(|budget| budget.amount - spent)
        };
        let left = [left(own, &own_scope), left(month, &month_scope)];
        let left = left.into_iter().flatten().min().unwrap_or(i64::MAX);
        let lowest = claim.prices.lowest().unwrap_or_default();
        let lowest = i64::try_from(lowest).unwrap_or(i64::MAX).max(1);
        // The first one that does not fit is found by the locked counters.
        let count = (left / lowest).clamp(0, i64::from(u32::MAX) - 1) + 1;
        wanted.min(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Fails a message that has no price under a budget.
    pub(crate) fn check_price(
        &self,
        claim: &ProviderClaim,
        campaign_id: i64,
        admission: Admission,
    ) -> Admission {
        let Admission::Send { phone, .. } = &admission else {
            return admission;
        };
        let is_refused = self.rules.unpriced == budget::Unpriced::Refuse
            && claim.prices.of(phone.as_str()).is_none()
            && matches!(self.pricing(claim, campaign_id), Pricing::Priced { .. });
        if !is_refused {
            return admission;
        }
        let why = format!(
            "there is a budget, but `[prices.{}]` has no price for this number",
            claim.provider
        );
        Admission::Fail(Failure::new(Class::Recipient, why))
    }

    /// Reads what messages in doubt have taken before: it moves to the present month with their new claim.
    pub(crate) async fn read_earlier<'c>(
        &mut self,
        connection: &mut Connection,
        candidates: impl Iterator<Item = &'c BatchItem<ClaimKey>>,
    ) -> QueryResult<()> {
        if self.are_any() {
            let in_doubt = candidates.filter(|item| item.sms.in_doubt);
            let ids: Vec<i64> = in_doubt.map(|item| item.sms.id).collect();
            self.earlier = spending::read(connection, &ids).await?;
        }
        Ok(())
    }

    /// Begins to claim messages of a campaign.
    pub(crate) fn lane(&mut self, claim: &ProviderClaim, campaign_id: i64) -> LaneBudget<'_> {
        let pricing = match self.pricing(claim, campaign_id) {
            _ if self.ended.contains_key(&campaign_id) => None,
            Pricing::Priced { campaign, month } => Some((campaign, month)),
            Pricing::Free | Pricing::Refused(_) => None,
        };
        LaneBudget {
            month: self.month(claim),
            budgets: self,
            campaign_id,
            pricing,
            taken: HashMap::new(),
        }
    }

    /// When a campaign is claimed from again, if its budget ended the claim.
    pub(crate) fn retry_at(&self, campaign_id: i64) -> Option<DbMicros> {
        let is_ended = self.ended.contains_key(&campaign_id);
        is_ended.then(|| DbMicros::from(self.now).plus(RETRY))
    }

    /// Stores what was taken, and `others`.
    pub(crate) async fn store(
        &mut self,
        connection: &mut Connection,
        others: Spending,
    ) -> QueryResult<()> {
        self.changes.extend(others);
        let changes = std::mem::take(&mut self.changes);
        for scope in self.begun_months(&changes) {
            update(rate_limit::table.find(scope).filter(rate_limit::counted_from.is_null()))
                .set(rate_limit::counted_from.eq(self.now))
                .execute(connection)
                .await?;
        }
        changes.store(connection).await
    }

    /// The counters of months to which these changes are the first.
    fn begun_months<'c>(&'c self, changes: &'c Spending) -> impl Iterator<Item = &'c String> {
        let month = budget::months(self.now);
        let amounts = changes.amounts().iter();
        amounts
            .filter(move |(scope, amount)| {
                **amount > 0 && scope.starts_with(&month) && !self.begun.contains(*scope)
            })
            .map(|(scope, _)| scope)
    }

    /// Pauses or stops the campaigns whose next message does not fit, unless messages that are being sent may give back
    /// enough.
    pub(crate) async fn stop_ended(&mut self, connection: &mut Connection) -> QueryResult<()> {
        let mut stops = Vec::new();
        for (campaign_id, ended) in std::mem::take(&mut self.ended) {
            let (state, reason) = match ended {
                BudgetEnd::Uncounted => continue,
                BudgetEnd::Unpriced(reason) => (CampaignStatus::Stopped, reason),
                BudgetEnd::UsedUp { scope, budget, is_monthly, cost } => {
                    let spent = self.spent.get(&scope).copied().unwrap_or_default();
                    let of = (!is_monthly).then_some(campaign_id);
                    let sending = sending(connection, of.into()).await?;
                    if spent - sending + cost <= budget.amount {
                        continue;
                    }
                    let left: i64 = sms::table
                        .filter(sms::campaign_id.eq(campaign_id))
                        .filter(in_state(State::Ready.code()))
                        .count()
                        .get_result(connection)
                        .await?;
                    let used = UsedUp { budget: &budget, spent, left: positive(left), cost };
                    if is_monthly {
                        (CampaignStatus::Stopped, used.in_month(self.now))
                    } else {
                        let (name, stored): (String, String) = campaign::table
                            .find(campaign_id)
                            .select((campaign::name, campaign::budget))
                            .first(connection)
                            .await?;
                        // It may have been changed meanwhile.
                        if stored.parse().as_ref() != Ok(&budget) {
                            continue;
                        }
                        (CampaignStatus::Paused, used.of_campaign(&name))
                    }
                }
            };
            stops.push(CampaignStop { campaign_id, state, reason });
        }
        stop_campaigns(connection, &stops, self.now).await
    }
}

/// What the claims take for messages that are being sent.
async fn sending(connection: &mut Connection, campaigns: CampaignFilter) -> QueryResult<i64> {
    let taken: Vec<i64> = sms::table
        .filter(campaigns.on(sms::campaign_id))
        .filter(sms::state.eq(State::Sending.code()))
        .select(sql::<BigInt>("sms.reserved"))
        .load(connection)
        .await?;
    Ok(taken.iter().sum())
}

/// A budget from which the next message cannot be paid.
struct UsedUp<'a> {
    budget: &'a Budget,
    spent: i64,
    /// The number of messages that are left.
    left: u64,
    /// Of the next message.
    cost: i64,
}

impl UsedUp<'_> {
    fn of_campaign(&self, name: &str) -> String {
        let name = shell_word(name);
        format!(
            "the budget of {} is used up: {}; raise it with `smsq set --campaign {name} --budget …` and \
             `smsq resume --campaign {name}`",
            self.budget,
            self.spent_and_left("")
        )
    }

    fn in_month(&self, now: Timestamp) -> String {
        let month = budget::month(now);
        format!(
            "the budget of {} per month is used up: {}; it begins anew at {}T00:00:00Z; run `smsq send` then, or raise \
             `budget` in `[limits]`",
            self.budget,
            self.spent_and_left(&format!(" in {month}")),
            budget::next_month(now)
        )
    }

    fn spent_and_left(&self, when: &str) -> String {
        let currency = &self.budget.currency;
        format!(
            "{} spent{when}, {} left, the next of which costs {}",
            budget::amount(self.spent, currency),
            messages(self.left),
            budget::amount(self.cost, currency)
        )
    }
}

/// What the messages of one lane take in a claim.
pub(crate) struct LaneBudget<'b> {
    budgets: &'b mut Budgets,
    campaign_id: i64,
    /// Its budgets: the campaign's and the month's.
    pricing: Option<(Option<Budget>, Option<Budget>)>,
    month: Arc<str>,
    /// By the ids of the messages: what they took, and what they changed.
    taken: HashMap<i64, (Reserve, Spending)>,
}

impl LaneBudget<'_> {
    /// Takes the cost of a message; false if it does not fit. Then no later one is claimed, either.
    pub(crate) fn take(&mut self, claim: &ProviderClaim, item: &BatchItem<ClaimKey>) -> bool {
        let Some((own, month)) = &self.pricing else {
            return !self.budgets.ended.contains_key(&self.campaign_id);
        };
        let cost = cost(claim, &item.phone, item.segments);
        let new = scopes(self.campaign_id, &self.month);
        let mut change = Spending::default();
        change.add(new.clone(), cost);
        if let Some(earlier) = self.budgets.earlier.get(&item.sms.id) {
            change.add(earlier.scopes(), -earlier.earlier);
            change.add(new.clone(), earlier.earlier);
        }
        let [own_scope, month_scope] = new;
        for (scope, budget, is_monthly) in [(own_scope, own, false), (month_scope, month, true)] {
            let more = change.amounts().get(&scope).copied().unwrap_or_default();
            let spent = self.budgets.spent.get(&scope).copied().unwrap_or_default();
            if let Some(budget) = budget
                && more > 0
                && spent.saturating_add(more) > budget.amount
            {
                let end =
                    BudgetEnd::UsedUp { scope, budget: budget.clone(), is_monthly, cost: more };
                self.budgets.ended.insert(self.campaign_id, end);
                return false;
            }
        }
        self.apply(&change);
        let reserve = Reserve { amount: cost, month: Arc::clone(&self.month) };
        self.taken.insert(item.sms.id, (reserve, change));
        true
    }

    /// Gives back what a message took that is not claimed after all.
    pub(crate) fn put_back(&mut self, item: &BatchItem<ClaimKey>) {
        if let Some((_, change)) = self.taken.remove(&item.sms.id) {
            self.apply(&change.undone());
        }
    }

    fn apply(&mut self, change: &Spending) {
        for (scope, amount) in change.amounts() {
            *self.budgets.spent.entry(scope.clone()).or_default() += amount;
        }
        self.budgets.changes.extend(change.clone());
    }

    /// What a claimed message took.
    pub(crate) fn reserve(&mut self, sms: &Sms) -> Option<Reserve> {
        self.taken.remove(&sms.id).map(|(reserve, _)| reserve)
    }
}

/// What a message costs, in millionths.
fn cost(claim: &ProviderClaim, phone: &Phone, segments: i32) -> i64 {
    let price = claim.prices.of(phone.as_str()).unwrap_or_default();
    let price = i64::try_from(price).unwrap_or(i64::MAX);
    price.saturating_mul(i64::from(segments.max(1)))
}
