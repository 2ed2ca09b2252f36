//! Budgets: claims take from them, and what was not accepted is given back, exactly and once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use smsq_lifecycle::admission::{AdmissionRules, ProviderRules};
use smsq_lifecycle::resend::ResendRule;
use smsq_lifecycle::{ProviderClaim, Settled, Settlement, Transition};
use smsq_message::budget::{BudgetRules, MonthlyBudgets, Unpriced};
use smsq_message::prices::Prices;
use smsq_message::sms::{Acceptance, Class, Sms, Timestamp};
use smsq_store::{
    Access, Audited, BudgetChange, CampaignChange, CampaignStatus, CommitBatch, CountStep,
    ProviderClaimed, RetryFilter, Store, UncountedBudget,
};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, again, claim_of, commit_batch, failed, failure, on_every_engine,
    phone, released, row, rows, sent, unknown,
};

/// What a message costs, in millionths.
const PRICE: i64 = 40_000;
/// The months of `NOW` and of a later claim.
const MONTH: &str = "2025-11";
const NEXT_MONTH: Timestamp = Timestamp::from_millis(NOW.as_millis() + 15 * 86_400_000);

fn prices() -> Arc<Prices> {
    let table = "currency = 'EUR'\nother = 0.04".parse().expect("TOML");
    Arc::new(Prices::from_toml(&table).expect("prices"))
}

pub(super) fn priced(campaign_id: i64, want: u32) -> ProviderClaim {
    ProviderClaim { prices: prices(), ..claim_of(&[(campaign_id, want)]) }
}

pub(super) fn monthly(budgets: &[&str]) -> BudgetRules {
    BudgetRules {
        monthly: MonthlyBudgets(
            budgets.iter().map(|text| text.parse().expect("a budget")).collect(),
        ),
        unpriced: Unpriced::Refuse,
    }
}

pub(super) async fn claim_at(
    queue: &TestQueue,
    worker_id: i64,
    now: Timestamp,
    claim: ProviderClaim,
    rules: BudgetRules,
) -> ProviderClaimed {
    let commit = CommitBatch {
        claims: vec![claim],
        budgets: Arc::new(rules),
        ..commit_batch(worker_id, now)
    };
    let done = queue.store.commit(&commit).await.expect("a commit");
    done.claims.into_iter().next().expect("an answer per claim")
}

/// Claims messages of a campaign with a budget of its own.
pub(super) async fn claim(
    queue: &TestQueue,
    worker_id: i64,
    campaign_id: i64,
    want: u32,
) -> Vec<Sms> {
    let claim = priced(campaign_id, want);
    let claimed = claim_at(queue, worker_id, NOW, claim, BudgetRules::default()).await;
    claimed.rows.into_iter().map(|row| row.sms).collect()
}

pub(super) async fn set_budget(queue: &TestQueue, campaign_id: i64, budget: &str) {
    let change = CampaignChange {
        budget: BudgetChange::Set(budget.parse().expect("a budget")),
        ..CampaignChange::default()
    };
    let changed = queue.store.change_campaign(campaign_id, &change).await;
    changed.expect("changed");
    count(queue).await;
}

/// Counts what campaigns have spent that got a budget. The workers of these tests are silent.
async fn count(queue: &TestQueue) {
    let prices = BTreeMap::from([(PROVIDER.to_owned(), (*prices()).clone())]);
    for budget in queue.store.uncounted_budgets().await.expect("read") {
        let counted = queue.store.count_budget(&budget, &prices).await;
        assert_eq!(counted.expect("counted"), CountStep::Ended);
    }
}

/// A campaign with `count` messages and a budget.
async fn with_budget(queue: &TestQueue, count: u64, budget: &str) -> i64 {
    let campaign_id = queue.queued(count).await;
    set_budget(queue, campaign_id, budget).await;
    campaign_id
}

/// A counter; the messages must have taken as much.
fn spent(queue: &TestQueue, campaign_id: i64) -> i64 {
    let counter = format!("budget/campaign/{campaign_id}/EUR");
    let spent = counter_of(queue, &counter);
    let taken = queue.db.number(&format!(
        "SELECT coalesce(sum(reserved + reserved_earlier), 0) AS value FROM sms WHERE campaign_id = {campaign_id}"
    ));
    let accepted = queue.db.number(&format!(
        "SELECT count(*) AS value FROM sms_sent WHERE campaign_id = {campaign_id}"
    ));
    assert_eq!(spent, taken + accepted * PRICE, "{counter}");
    spent
}

fn counter_of(queue: &TestQueue, scope: &str) -> i64 {
    queue.db.number(&format!(
        "SELECT coalesce(sum(spent), 0) AS value FROM rate_limit WHERE scope = '{scope}'"
    ))
}

async fn state(queue: &TestQueue, name: &str) -> (CampaignStatus, String) {
    let campaign = queue.store.campaign(name).await.expect("read");
    let campaign = campaign.expect("the campaign");
    (campaign.state, campaign.state_reason.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn campaign_is_paused_when_its_budget_is_used_up() {
    on_every_engine(async |queue| {
        let spring = with_budget(queue, 5, "0.10 EUR").await;
        let worker = queue.worker().await;
        let claimed = claim(queue, worker.id, spring, 5).await;
        assert_eq!((claimed.len(), spent(queue, spring)), (2, 2 * PRICE));
        // What is being sent may come back.
        assert_eq!(state(queue, "spring").await.0, CampaignStatus::Active);
        queue.settle(&claimed[0], failed()).await;
        queue.settle(&claimed[1], sent()).await;
        let claimed = claim(queue, worker.id, spring, 5).await;
        assert_eq!((claimed.len(), spent(queue, spring)), (1, 2 * PRICE));
        queue.settle(&claimed[0], unknown()).await;
        assert!(claim(queue, worker.id, spring, 5).await.is_empty());
        let (state, reason) = state(queue, "spring").await;
        assert_eq!(state, CampaignStatus::Paused);
        assert_eq!(
            reason,
            "the budget of 0.10 EUR is used up: 0.08 EUR spent, 2 messages left, the next of which costs 0.04 EUR; \
             raise it with `smsq set --campaign spring --budget …` and `smsq resume --campaign spring`"
        );
        set_budget(queue, spring, "0.12 EUR").await;
        queue.set_state(spring, CampaignStatus::Active).await;
        assert_eq!(claim(queue, worker.id, spring, 5).await.len(), 1);
        assert_eq!(spent(queue, spring), 3 * PRICE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn claim_without_an_acceptance_gives_back_once() {
    on_every_engine(async |queue| {
        let spring = with_budget(queue, 9, "1 EUR").await;
        let worker = queue.worker().await;
        let not_admitted = Transition::NotAdmitted(failure(Class::Content));
        for (transition, kept) in [
            (sent(), PRICE),
            (failed(), 0),
            (not_admitted, 0),
            (again(), 0),
            (released(), 0),
            (unknown(), PRICE),
            (
                Transition::Ready {
                    due_at: NOW,
                    failure: Some(failure(Class::Unknown)),
                    counted: true,
                    in_doubt: true,
                },
                PRICE,
            ),
        ] {
            let before = spent(queue, spring);
            let sms = claim(queue, worker.id, spring, 1).await.remove(0);
            assert_eq!(spent(queue, spring), before + PRICE);
            for _ in 0..2 {
                // The answer to the first commit may have been lost.
                queue.settle(&sms, transition.clone()).await;
                assert_eq!(spent(queue, spring), before + kept, "{transition:?}");
            }
            // Not to be claimed again below.
            if kept == 0 || queue.place(sms.id) == "ready" {
                let sql = "UPDATE sms SET due_at = due_at + 1000000000000 WHERE id =";
                queue.db.run(&format!("{sql} {}", sms.id));
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn doubt_keeps_what_each_attempt_took_until_its_end() {
    on_every_engine(async |queue| {
        let spring = with_budget(queue, 1, "1 EUR").await;
        let worker = queue.worker().await;
        let first = claim(queue, worker.id, spring, 1).await.remove(0);
        queue.settle(&first, unknown()).await;
        queue.requeue_unknown(spring).await;
        let claim_again = async || {
            let claimed = queue
                .claim_by(
                    worker.id,
                    NOW,
                    priced(spring, 1),
                    smsq_lifecycle::resend::ResendRule::Always,
                )
                .await;
            claimed.rows.into_iter().next().expect("a message").sms
        };
        let second = claim_again().await;
        assert_eq!(spent(queue, spring), 2 * PRICE);
        queue.settle(&second, again()).await;
        assert_eq!(spent(queue, spring), PRICE, "the first may be accepted");
        let third = claim_again().await;
        queue.settle(&third, unknown()).await;
        assert_eq!(spent(queue, spring), 2 * PRICE);
        let found = Transition::FoundAbsent(failure(Class::Unknown));
        assert_eq!(queue.settle(&third, found).await, Settled::Done);
        assert_eq!(spent(queue, spring), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn dead_workers_messages_stay_spent_until_settled() {
    on_every_engine(async |queue| {
        let spring = with_budget(queue, 4, "1 EUR").await;
        let worker = queue.worker().await;
        assert_eq!(claim(queue, worker.id, spring, 3).await.len(), 3);
        let workers = queue.store.workers();
        let reclaimed = workers.reclaim(&worker, "it died", NOW).await;
        assert_eq!(reclaimed.expect("reclaimed"), 3);
        assert_eq!(spent(queue, spring), 3 * PRICE);
        for (phone_of, as_sent, left) in [(0, false, 2), (1, true, 2)] {
            let audited = Audited::unrecorded();
            let phone = phone(phone_of);
            let settled =
                queue.store.settle_unknown(spring, as_sent, Some(&phone), NOW, audited).await;
            assert_eq!(settled.expect("settled"), 1);
            assert_eq!(spent(queue, spring), left * PRICE);
        }
        let filter = RetryFilter { campaign_id: Some(spring), ..RetryFilter::default() };
        let retried = queue.store.retry_unknown(&filter, NOW, Audited::unrecorded()).await;
        assert_eq!(retried.expect("retried"), 1);
        assert_eq!(spent(queue, spring), 2 * PRICE, "it is still in doubt");
        queue.cancel(spring).await;
        assert_eq!(spent(queue, spring), 2 * PRICE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn released_orphans_give_back() {
    on_every_engine(async |queue| {
        let spring = with_budget(queue, 3, "1 EUR").await;
        let worker = queue.worker().await;
        claim(queue, worker.id, spring, 3).await;
        let later = NOW.plus(std::time::Duration::from_secs(60));
        assert_eq!(queue.release(worker.id, Vec::new(), later, spring).await, 3);
        assert_eq!(spent(queue, spring), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn late_acceptance_takes_again_what_was_given_back() {
    on_every_engine(async |queue| {
        let spring = with_budget(queue, 1, "1 EUR").await;
        let worker = queue.worker().await;
        let sms = claim(queue, worker.id, spring, 1).await.remove(0);
        queue.settle(&sms, unknown()).await;
        let audited = Audited::unrecorded();
        let settled = queue.store.settle_unknown(spring, false, None, NOW, audited).await;
        assert_eq!((settled.expect("settled"), spent(queue, spring)), (1, 0));
        let batch = CommitBatch {
            settlements: vec![Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: PROVIDER.to_owned(),
                transition: sent(),
            }],
            claimed: HashMap::from([(sms.id, sms)]),
            ..commit_batch(worker.id, NOW)
        };
        for _ in 0..2 {
            queue.store.commit(&batch).await.expect("a commit");
            assert_eq!(spent(queue, spring), PRICE);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn price_of_the_provider_corrects_what_is_spent() {
    on_every_engine(async |queue| {
        let spring = with_budget(queue, 3, "1 EUR").await;
        let worker = queue.worker().await;
        let claimed = claim(queue, worker.id, spring, 3).await;
        let scope = format!("budget/campaign/{spring}/EUR");
        let mut expected = 3 * PRICE;
        for (sms, (price, more)) in
            claimed.iter().zip([("0.05 EUR", 10_000), ("-0.03 EUR", -10_000), ("9.99 USD", 0)])
        {
            let accepted = Transition::Sent(Acceptance {
                price: Some(price.to_owned()),
                ..Acceptance::default()
            });
            if more < 0 {
                queue.settle(sms, unknown()).await;
            }
            for _ in 0..2 {
                queue.settle(sms, accepted.clone()).await;
            }
            expected += more;
            assert_eq!(counter_of(queue, &scope), expected, "{price}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn budget_of_a_month_is_that_of_all_campaigns() {
    on_every_engine(async |queue| {
        let spring = queue.queued(3).await;
        let other = queue.campaign("other").await;
        queue.import(other, rows(10..13)).await;
        let worker = queue.worker().await;
        let rules = || monthly(&["0.17 EUR"]);
        let month = format!("budget/month/{MONTH}/EUR");
        let mut left = Vec::new();
        for (campaign_id, count) in [(spring, 3), (other, 1)] {
            let claimed =
                claim_at(queue, worker.id, NOW, priced(campaign_id, 3), rules()).await;
            assert_eq!(claimed.rows.len(), count);
            for row in claimed.rows {
                queue.settle(&row.sms, unknown()).await;
                left.push(row.sms);
            }
        }
        assert_eq!(counter_of(queue, &month), 4 * PRICE);
        let none = claim_at(queue, worker.id, NOW, priced(other, 3), rules()).await;
        assert!(none.rows.is_empty());
        let (status, reason) = state(queue, "other").await;
        assert_eq!(status, CampaignStatus::Stopped, "the next `send` continues");
        assert_eq!(
            reason,
            "the budget of 0.17 EUR per month is used up: 0.16 EUR spent in 2025-11, 2 messages left, the next of \
             which costs 0.04 EUR; it begins anew at 2025-12-01T00:00:00Z; run `smsq send` then, or raise `budget` in \
             `[limits]`"
        );
        queue.set_state(other, CampaignStatus::Active).await;
        // In the next month, also for a message in doubt, which takes along what it took before.
        queue.requeue_unknown(other).await;
        let always = ProviderRules {
            resends: ResendRule::Always,
            ..ProviderRules::default()
        };
        let commit = CommitBatch {
            claims: vec![priced(other, 3)],
            budgets: Arc::new(rules()),
            admission: Arc::new(AdmissionRules {
                providers: [(PROVIDER.to_owned(), always)].into(),
                ..AdmissionRules::default()
            }),
            ..commit_batch(worker.id, NEXT_MONTH)
        };
        let done = queue.store.commit(&commit).await.expect("a commit");
        assert_eq!(done.claims[0].rows.len(), 3);
        let next = "budget/month/2025-12/EUR";
        assert_eq!(
            [&month, next].map(|scope| counter_of(queue, scope)),
            [3 * PRICE, 4 * PRICE]
        );
        assert_eq!(spent(queue, other), 4 * PRICE);
        for row in &done.claims[0].rows {
            queue.settle(&row.sms, again()).await;
        }
        assert_eq!(counter_of(queue, next), PRICE);
        queue.settle(&left[0], failed()).await;
        assert_eq!(counter_of(queue, &month), 2 * PRICE);
        assert_eq!(spent(queue, spring), 2 * PRICE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn message_without_a_price_is_not_sent_under_a_budget() {
    on_every_engine(async |queue| {
        let spring = queue.queued(0).await;
        set_budget(queue, spring, "1 EUR").await;
        let british = smsq_message::sms::NewSms {
            phone: "+447400123456".to_owned(),
            dedupe_key: "+447400123456".to_owned(),
            ..row(1)
        };
        queue.import(spring, vec![british, row(2)]).await;
        let worker = queue.worker().await;
        let table = "currency = 'EUR'\n86 = 0.04".parse().expect("TOML");
        let chinese = Arc::new(Prices::from_toml(&table).expect("prices"));
        let none =
            claim_at(queue, worker.id, NOW, claim_of(&[(spring, 2)]), BudgetRules::default()).await;
        assert!(none.rows.is_empty());
        let (status, reason) = state(queue, "spring").await;
        assert_eq!(status, CampaignStatus::Stopped);
        assert!(reason.contains("add a section `[prices.cellar]`"), "{reason}");
        queue.set_state(spring, CampaignStatus::Active).await;
        let claim = || ProviderClaim { prices: Arc::clone(&chinese), ..claim_of(&[(spring, 2)]) };
        let claimed = claim_at(queue, worker.id, NOW, claim(), BudgetRules::default()).await;
        assert_eq!((claimed.rows.len(), claimed.refused), (1, 1));
        assert_eq!(queue.count("recipient"), 1);
        assert_eq!(spent(queue, spring), PRICE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn messages_that_move_while_they_are_counted_count_once() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(9).await;
        let claimed = claim(queue, worker.id, spring, 6).await;
        queue.settle(&claimed[0], sent()).await;
        queue.settle(&claimed[1], unknown()).await;
        let change = CampaignChange {
            budget: BudgetChange::Set("1 EUR".parse().expect("a budget")),
            ..CampaignChange::default()
        };
        let changed = queue.store.change_campaign(spring, &change).await;
        changed.expect("changed");
        assert!(claim(queue, worker.id, spring, 3).await.is_empty());
        assert_eq!(state(queue, "spring").await.0, CampaignStatus::Active);
        assert_eq!(queue.store.spent(spring, "EUR").await.expect("read"), None);
        queue.settle(&claimed[2], sent()).await;
        count(queue).await;
        assert_eq!(spent(queue, spring), 6 * PRICE);
        queue.settle(&claimed[3], sent()).await;
        assert_eq!(spent(queue, spring), 6 * PRICE);
        queue.settle(&claimed[4], failed()).await;
        assert_eq!(spent(queue, spring), 5 * PRICE);
        queue.settle(&claimed[5], again()).await;
        assert_eq!(spent(queue, spring), 4 * PRICE);
        assert_eq!(claim(queue, worker.id, spring, 3).await.len(), 3);
        assert_eq!(spent(queue, spring), 7 * PRICE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn lost_attempt_counts_beside_a_later_one() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(4).await;
        let by_id = |mut messages: Vec<Sms>| {
            messages.sort_by_key(|sms| sms.id);
            messages
        };
        let first = by_id(claim(queue, worker.id, spring, 4).await);
        for sms in &first {
            queue.settle(sms, unknown()).await;
        }
        queue.requeue_unknown(spring).await;
        let always = smsq_lifecycle::resend::ResendRule::Always;
        let claimed = queue.claim_by(worker.id, NOW, priced(spring, 4), always);
        let rows = claimed.await.rows.into_iter();
        let second = by_id(rows.map(|row| row.sms).collect());
        queue.settle(&second[0], sent()).await;
        queue.settle(&second[1], unknown()).await;
        queue.settle(&second[2], sent()).await;
        assert_eq!(queue.settle(&first[2], sent()).await, Settled::Late);
        queue.settle(&second[3], again()).await;
        set_budget(queue, spring, "1 EUR").await;
        let counter = format!("budget/campaign/{spring}/EUR");
        let costs = [2, 2, 2, 1];
        assert_eq!(counter_of(queue, &counter), costs.iter().sum::<i64>() * PRICE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn budget_that_was_removed_is_counted_again() {
    on_every_engine(async |queue| {
        let spring = with_budget(queue, 9, "1 EUR").await;
        let worker = queue.worker().await;
        let first = claim(queue, worker.id, spring, 3).await;
        queue.settle(&first[0], sent()).await;
        let lift = CampaignChange { budget: BudgetChange::Lift, ..CampaignChange::default() };
        let lifted = queue.store.change_campaign(spring, &lift).await;
        lifted.expect("lifted");
        let second = claim(queue, worker.id, spring, 3).await;
        queue.settle(&second[0], sent()).await;
        queue.settle(&first[1], failed()).await;
        set_budget(queue, spring, "2 EUR").await;
        assert_eq!(spent(queue, spring), 5 * PRICE);
        queue.settle(&first[2], failed()).await;
        queue.settle(&second[1], failed()).await;
        assert_eq!(spent(queue, spring), 3 * PRICE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn count_waits_for_workers_that_do_not_know_the_budget() {
    on_every_engine(async |queue| {
        let spring = queue.queued(3).await;
        let now = queue.store.now().await.expect("a clock");
        let worker = queue.worker().await;
        let workers = queue.store.workers();
        let heartbeat = workers.heartbeat(worker.id, &worker.token, now).await;
        assert!(heartbeat.expect("a heartbeat"));
        let change = CampaignChange {
            budget: BudgetChange::Set("1 EUR".parse().expect("a budget")),
            ..CampaignChange::default()
        };
        let set = async || {
            let changed = queue.store.change_campaign(spring, &change).await;
            changed.expect("changed");
            let mut uncounted = queue.store.uncounted_budgets().await.expect("read");
            uncounted.pop().expect("one that is not counted")
        };
        let step = async |budget: &UncountedBudget| {
            let counted = queue.store.count_budget(budget, &BTreeMap::new()).await;
            counted.expect("a step")
        };
        let budget = set().await;
        assert_eq!(step(&budget).await, CountStep::Waits);
        let known = queue.store.know_budget(&budget, worker.id).await;
        known.expect("stored");
        let lift = CampaignChange { budget: BudgetChange::Lift, ..CampaignChange::default() };
        let lifted = queue.store.change_campaign(spring, &lift).await;
        lifted.expect("lifted");
        // What the worker knows is of the first count.
        let again = set().await;
        assert_eq!(step(&again).await, CountStep::Waits);
        let known = queue.store.know_budget(&budget, worker.id).await;
        known.expect("ignored");
        assert_eq!(step(&again).await, CountStep::Waits);
        let known = queue.store.know_budget(&again, worker.id).await;
        known.expect("stored");
        assert_eq!(step(&again).await, CountStep::Ended);
        let uncounted = queue.store.uncounted_budgets().await.expect("read");
        assert_eq!(uncounted, []);
    })
    .await;
}

#[tokio::test]
async fn exceeded_budget_is_taken_back_where_its_count_ends() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(3).await;
        for sms in queue.claim(worker.id, spring, 3).await {
            queue.settle(&sms, sent()).await;
        }
        for (budget, kept) in [("0.02 EUR", ""), ("1 EUR", "1.00 EUR")] {
            set_budget(queue, spring, budget).await;
            let stored = queue.db.words("SELECT budget AS value FROM campaign WHERE budget <> ''");
            let stored = stored.into_iter().flatten().next().unwrap_or_default();
            assert_eq!(stored, kept, "{budget}");
        }
    })
    .await;
}

/// Claims, and settles in all ways, until the campaign is not active.
async fn work(store: Store, worker_id: i64, campaign_id: i64) {
    let mut settlements = Vec::new();
    for round in 0_i64.. {
        let commit = CommitBatch {
            settlements: std::mem::take(&mut settlements),
            claims: vec![priced(campaign_id, 7)],
            ..commit_batch(worker_id, NOW)
        };
        let done = store.commit(&commit).await.expect("a commit");
        let claimed = &done.claims[0].rows;
        for row in claimed {
            let transition = match (row.sms.id + round) % 4 {
                0 => again(),
                1 => unknown(),
                _ => sent(),
            };
            settlements.push(Settlement {
                id: row.sms.id,
                claim: row.sms.claim,
                provider: PROVIDER.to_owned(),
                transition,
            });
        }
        let campaign = store.campaign("spring").await.expect("read");
        let is_active = campaign.is_some_and(|one| one.state == CampaignStatus::Active);
        if settlements.is_empty() && !is_active {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_workers_spend_all_and_not_more() {
    on_every_engine(async |queue| {
        const BUDGET: i64 = 5_030_000;
        let spring = with_budget(queue, 300, "5.03 EUR").await;
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let store = Store::open(&queue.db.url, Access::Existing).await;
            let worker = queue.worker().await;
            let store = store.expect("a store");
            tasks.push(tokio::spawn(work(store, worker.id, spring)));
        }
        for task in tasks {
            task.await.expect("a worker");
        }
        let spent = spent(queue, spring);
        assert!(spent <= BUDGET && spent > BUDGET - PRICE, "{spent}");
        let (status, _) = state(queue, "spring").await;
        assert_eq!(status, CampaignStatus::Paused);
        assert_eq!(queue.count("sending"), 0);
    })
    .await;
}
