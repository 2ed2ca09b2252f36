//! The SQL of the store for every engine, as a snapshot: a change of a query shows what it changes on which engine. A
//! short story makes the queries on SQLite, and they are recorded in the SQL of all engines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use smsq_lifecycle::approval::ApprovalRules;
use smsq_lifecycle::resend::ResendRule;
use smsq_lifecycle::{LaneClaim, ProviderClaim, Settlement, Transition};
use smsq_message::event::EventKind;
use smsq_message::receipt::{Receipt, ReceiptPart, ReceiptState};
use smsq_message::route::Division;
use smsq_message::sms::{Class, LaneId, Sms};
use smsq_store::{
    Access, Audited, BudgetChange, CampaignChange, CampaignFilter, CampaignSettings,
    CampaignStatus, CampaignStop, CommitBatch, CommitCount, Delivered, Due, ImportApproval,
    ImportTexts, InDialects, ListApproval, Mode, NewCampaign, NewEvent, Purge, Removal,
    ResendReason, RetryFilter, RunCounts, SettingChange, SingleRequest, SmsFilter, Store,
    StoreError, TriedAt, WatchedCampaign, record_statements, recorded_statements,
};

use super::dead::dead_failure;
use super::doubt::resend;
use super::limits::{pause, rates};
use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, again, claim_of, commit_batch, failed, failure, fixed, phone,
    released, row, rows, sent, unknown,
};
use super::{activity, approvals, budgets, intake, lanes, lost_claims, outbox};
use super::{receipts, recipients, schedules};
use crate::support::databases::Database;

const FILE: &str = "tests/store/statements.sql";
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/store/statements.sql");
const HEAD: &str = "\
-- The statements that the store makes on SQLite in the story of `statements.rs`, and where they differ, as PostgreSQL and
-- MySQL have them. `…` is a list of parameters, or all rows of an INSERT. PostgreSQL always has \"name\" for `name`, $1 for ?,
-- `= ANY($1)` for `IN (…)` and `!= ALL($1)` for `NOT IN (…)`.
";

/// A statement in the SQL of SQLite, and of the servers where theirs is not the usual translation.
fn shown([sqlite, postgres, mysql]: &InDialects) -> String {
    let differs = |engine: &str, sql: &str, usual: &str| {
        let [sql, usual] = [sql, usual].map(|sql| replaced(sql, &SHORT));
        if sql == usual { String::new() } else { format!("-- {engine}: {sql}\n") }
    };
    let postgres = differs("PostgreSQL", postgres, &for_postgres(sqlite));
    let mysql = differs("MySQL", mysql, sqlite);
    format!("{};\n{postgres}{mysql}", replaced(sqlite, &SHORT))
}

/// Patterns, and what they are replaced by.
type Rules = LazyLock<Vec<(Regex, &'static str)>>;

/// What hides the lengths of lists and the number of rows.
static SHORT: Rules = LazyLock::new(|| {
    rules(&[
        (r"\s+", " "),
        (r"(\?|\$\d+)(, (\?|\$\d+))+", "…"),
        (r"(IN|VALUES|,) \((\?|\$\d+)\)", "$1 (…)"),
        (r"VALUES \(…\)(, \(…\))+", "VALUES (…)"),
    ])
});
/// The usual translation of SQL for SQLite, without the numbers of parameters.
static POSTGRES: Rules = LazyLock::new(|| {
    rules(&[
        (r" NOT IN \((?:(\?)(, \?)*(\))|(SELECT `))", " != ALL($1$3$4"),
        (r" IN \((?:(\?)(, \?)*(\))|(SELECT `))", " = ANY($1$3$4"),
        ("`", "\""),
    ])
});

fn rules(rules: &[(&str, &'static str)]) -> Vec<(Regex, &'static str)> {
    rules.iter().map(|(pattern, by)| (Regex::new(pattern).expect("a pattern"), *by)).collect()
}

fn replaced(sql: &str, rules: &Rules) -> String {
    let replace = |sql: String, (pattern, by): &(Regex, &'static str)| {
        pattern.replace_all(&sql, *by).into_owned()
    };
    rules.iter().fold(sql.trim().to_owned(), replace)
}

fn for_postgres(sqlite: &str) -> String {
    let sql = replaced(sqlite, &POSTGRES);
    let mut parts = sql.split('?');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.zip(1..).fold(first, |sql, (part, number)| format!("{sql}${number}{part}"))
}

/// The lines of the paragraphs of `file` that `other` does not have.
fn only_in(file: &str, other: &str, sign: &str) -> String {
    let other: BTreeSet<&str> = other.split("\n\n").map(str::trim_end).collect();
    let own = file.split("\n\n").map(str::trim_end).filter(|paragraph| !other.contains(paragraph));
    own.flat_map(str::lines).flat_map(|line| [sign, line, "\n"]).collect()
}

#[tokio::test]
async fn statements_of_the_store_are_those_of_the_snapshot() {
    record_statements();
    story().await.expect("the database answers");
    let mut paragraphs: BTreeSet<String> = recorded_statements().iter().map(shown).collect();
    paragraphs.insert(HEAD.to_owned());
    let new = paragraphs.into_iter().collect::<Vec<_>>().join("\n");
    if std::env::var_os("SMSQ_DOCS").is_some_and(|value| value == "update") {
        fs::write(PATH, &new).expect("writes the statements");
    }
    let known = fs::read_to_string(PATH).expect("the statements");
    assert!(
        new == known,
        "{}{}`SMSQ_DOCS=update cargo test --test store statements_of` writes the new statements (+) into {FILE}",
        only_in(&known, &new, "- "),
        only_in(&new, &known, "+ "),
    );
}

#[tokio::test]
async fn every_table_is_in_the_snapshot() {
    let queue = TestQueue::new(Database::in_a_file()).await;
    let tables = "SELECT name AS value FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'";
    let file = fs::read_to_string(PATH).expect("the statements");
    for table in queue.db.words(tables).into_iter().flatten() {
        assert!(file.contains(&format!("`{table}`")), "no statement of the story uses {table}");
    }
}

/// Each part has a queue of its own, so that it can use the functions of other tests.
async fn story() -> Result<(), StoreError> {
    macro_rules! play {
        ($($part:ident),* $(,)?) => {
            $($part(&TestQueue::new(Database::in_a_file()).await).await?;)*
        };
    }
    play!(open, change_campaigns, import_lists, claim_messages, divide_campaigns, cap_recipients);
    play!(settle_results, resolve_doubts, retry_and_cancel, run_workers, apply_receipts);
    play!(deliver_events, count_budgets, approve_lists, run_schedules, report, delete_messages);
    Ok(())
}

/// Claims messages of a campaign, and settles them with these transitions; returns them.
async fn settled(queue: &TestQueue, campaign_id: i64, transitions: &[Transition]) -> Vec<Sms> {
    let worker_id = queue.worker().await.id;
    let count = u32::try_from(transitions.len()).expect("a few");
    let all = queue.claim(worker_id, campaign_id, count).await;
    assert_eq!(all.len(), transitions.len(), "{transitions:?}");
    for (sms, transition) in all.iter().zip(transitions) {
        queue.settle(sms, transition.clone()).await;
    }
    all
}

fn audited() -> Audited {
    let describe = |count: &u64| Some(format!("changed {count} messages"));
    Audited::new("ann", "retry", Some("spring"), describe)
}

fn dead() -> Transition {
    Transition::Failed(dead_failure())
}

fn event(number: u64) -> NewEvent {
    let (hook, body, phone) = (outbox::HOOK.to_owned(), "{}".to_owned(), Some(phone(number)));
    NewEvent { hook, kind: EventKind::MessageFailed, body, phone }
}

async fn open(queue: &TestQueue) -> Result<(), StoreError> {
    let (practice, store, spring) = (Database::in_a_file(), &queue.store, Some("spring"));
    Store::open_for(&practice.url, Access::Create, Mode::Practice).await?;
    store.record("ann", "pause", spring, "paused `spring`").await?;
    tokio::try_join!(store.check_schema(), store.check_writable(), store.created_at())?;
    tokio::try_join!(store.is_changed_by_worker("spring"), store.audit_entries(10))?;
    let suppression = store.suppression();
    suppression.add(vec![(phone(1), None)], NOW, &mut audited()).await?;
    tokio::try_join!(suppression.among(&["+1"]), suppression.page(None, 10), suppression.count())?;
    suppression.remove(vec![phone(1)], NOW, audited()).await.map(drop)
}

async fn change_campaigns(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, entry) = (&queue.store, approvals::entry("ann", NOW));
    let settings = CampaignSettings { budget: "1 EUR".parse().ok(), ..CampaignSettings::default() };
    store.open_campaign(&NewCampaign { name: "summer".to_owned(), settings }, NOW).await?;
    let (spring, active) = (queue.campaign("spring").await, [CampaignStatus::Active]);
    let all = CampaignChange {
        provider: SettingChange::Lift,
        sender: SettingChange::Lift,
        rate: Some(rates("5/s")),
        priority: Some(1),
        unique_by: Some("phone".to_owned()),
        window: SettingChange::Lift,
        budget: BudgetChange::Set("1 EUR".parse().expect("a budget")),
    };
    store.change_campaign(spring, &all).await?;
    // It is counted in this currency already.
    store.change_campaign_in(spring, &active, &all, Some("it is large"), &entry).await?;
    let paused = CampaignStatus::Paused;
    store.change_campaign_state(spring, &active, paused, Some("why"), Some(&entry)).await?;
    store.campaign_names(&[spring]).await?;
    tokio::try_join!(store.campaigns(), store.count_campaigns()).map(drop)
}

async fn import_lists(queue: &TestQueue) -> Result<(), StoreError> {
    let store = queue.store.clone().skipping_dead(Some("2d".parse().expect("an age")));
    let (spring, imports) = (queue.queued(3).await, store.imports());
    let all = settled(queue, spring, &[dead(), failed(), sent()]).await;
    queue.db.run("UPDATE sms_sent SET delivery_state = 'undelivered', content = 'hello'");
    store.suppression().add(vec![(phone(9), None)], NOW, &mut audited()).await?;
    let id = queue.begin(spring).await;
    let fixed = |line: u64, sms: &Sms| fixed(line, sms.id, &phone(line), "hello");
    let list = vec![fixed(50, &all[1]), fixed(51, &all[2]), row(0), row(9), row(5)];
    assert_eq!(imports.enqueue(&TestQueue::batch(id, spring, list)).await?.accepted, 3);
    for (template, sample) in [(Some("Hi"), None), (None, Some("Hi")), (None, None)] {
        let texts = ImportTexts { template, sample, ..ImportTexts::default() };
        imports.add_texts(id, texts).await?;
    }
    imports.decide(spring, &[&row(1)], NOW).await?;
    tokio::try_join!(imports.origins(&[1]), imports.imported_files(), imports.is_ended(id))?;
    let elsewhere = imports.imported_elsewhere("hash", "summer", NOW);
    let interrupted = imports.interrupted_uploads(spring, "hash", "shop");
    tokio::try_join!(imports.campaign_of_file("hash"), elsewhere, interrupted)?;
    imports.end("hash", NOW).await?;
    let codes = queue.campaign("codes").await;
    let posted = intake::posted(queue, codes, 0..2, "a").await;
    intake::post(&store, posted).await;
    store.prune_intake_keys(after(100_000)).await.map(drop)
}

async fn claim_messages(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, spring, worker) = (&queue.store, queue.queued(6).await, queue.worker().await);
    let [other, invalid] = ["('+86 138 0000 0000', 'x', 0)", "('+4479', 'x', 0)"];
    queue.db.run(&format!("INSERT INTO sms (phone, content, due_at) VALUES {other}, {invalid}"));
    // Twice from the same campaign: the second time after the last message of the first.
    let lanes = claim_of(&[(spring, 1), (spring, 2), (1, 9)]);
    let claim = ProviderClaim { limits: rates("100/s").0, ..lanes };
    assert_eq!(queue.claim_with(worker.id, NOW, claim).await.refused, 1);
    let paused = CommitBatch { pauses: vec![pause()], ..commit_batch(worker.id, NOW) };
    store.commit(&paused).await?;
    assert!(store.end_provider_pause(PROVIDER, NOW, audited()).await?);
    let (state, reason) = (CampaignStatus::Stopped, "429".to_owned());
    let filled = CommitBatch {
        campaign_stops: vec![CampaignStop { campaign_id: spring, state, reason }],
        fill_limits: true,
        claims: vec![claim_of(&[(spring, 1)])],
        ..commit_batch(worker.id, NOW)
    };
    store.commit(&filled).await?;
    let (account, rates, sender) = (PROVIDER, &rates("5/s"), None);
    let request = SingleRequest { account, rates, sender, by_segments: false, segments: 1 };
    store.take_permit(request, Duration::from_secs(1)).await?.expect("limits that can be read");
    tokio::try_join!(store.queued_campaigns(), store.next_due(spring), store.has_any(&[1]))?;
    let unexpired = store.has_unexpired_after(spring, NOW);
    tokio::try_join!(store.created_after(&[1], NOW), unexpired).map(drop)
}

async fn divide_campaigns(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, spring, route) = (&queue.store, queue.campaign("spring").await, lanes::route());
    for on in [false, true] {
        store.switch_sender(PROVIDER, "A", on, NOW, audited()).await?;
    }
    let numbers = store.open_lanes(spring, &route).await?;
    let division = Division::new(route, &numbers, &store.senders_off().await?);
    let division = division.expect("all have lanes");
    lanes::import(queue, spring, division.clone(), 4).await;
    let lane = numbers[&(PROVIDER.to_owned(), String::new())];
    let lane = LaneClaim { id: LaneId { campaign_id: spring, lane }, ..lanes::undivided(spring) };
    let worker_id = queue.worker().await.id;
    lanes::claim(queue, worker_id, vec![lane], Some(lanes::unavailable(division))).await;
    store.waiting_by_sender(spring).await?;
    for filter in [CampaignFilter::All, CampaignFilter::One(spring)] {
        assert_eq!(store.failovers(filter).await?.len(), 1);
    }
    Ok(())
}

async fn cap_recipients(queue: &TestQueue) -> Result<(), StoreError> {
    let (caps, spring) = ("1/30s", recipients::to_one_phone(queue, "spring", 4).await);
    for (seconds, transition) in [(0, sent()), (40, failed())] {
        let sms = recipients::claim(queue, caps, after(seconds), spring).await.remove(0);
        recipients::settle(queue, caps, after(seconds), &sms, transition).await;
    }
    // The end of the third is found out by the next claim.
    let third = recipients::claim(queue, caps, after(80), spring).await.remove(0);
    queue.settle(&third, sent()).await;
    recipients::claim(queue, caps, after(120), spring).await;
    let filled = CommitBatch { fill_limits: true, ..recipients::capped(caps, after(130)) };
    queue.store.commit(&filled).await?;
    queue.store.prune_recipient_starts(after(1_000)).await.map(drop)
}

async fn settle_results(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, spring, worker) = (&queue.store, queue.queued(30).await, queue.worker().await);
    let not_admitted = || Transition::NotAdmitted(failure(Class::Expired));
    let unavailable = || Transition::Failed(failure(Class::Unavailable));
    settled(queue, spring, &[again(), not_admitted()]).await;
    settled(queue, spring, &[released()]).await;
    settled(queue, spring, &[resend(), resend(), resend(), resend()]).await;
    // These are in doubt.
    settled(queue, spring, &[again(), released(), failed(), not_admitted()]).await;
    settled(queue, spring, &[sent(), unknown()]).await;
    settled(queue, spring, &[Transition::Failed(failure(Class::OptedOut)), dead()]).await;
    for sms in settled(queue, spring, &[again(), unavailable()]).await {
        queue.settle(&sms, Transition::Refunded).await;
    }
    settled(queue, spring, &[sent(), sent()]).await;
    // An older claim is accepted while a newer one is sending, and two after their message has failed.
    let old = settled(queue, spring, &[resend()]).await.remove(0);
    let new = queue.claim(worker.id, spring, 1).await.remove(0);
    queue.settle(&old, sent()).await;
    queue.settle(&new, failed()).await;
    let late = settled(queue, spring, &[failed()]).await.remove(0);
    for claim in [late.claim, late.claim + 1] {
        queue.settle_claim(late.id, claim, sent()).await;
    }
    // Another program uses the id of a failed message again.
    let id = settled(queue, spring, &[failed()]).await[0].id;
    let columns = "INSERT INTO sms (id, campaign_id, phone, content, due_at)";
    queue.db.run(&format!("{columns} VALUES ({id}, {spring}, 'none', 'x', 0)"));
    let all = queue.claim(worker.id, spring, 4).await;
    queue.settle(&all[0], unavailable()).await;
    queue.set_state(spring, CampaignStatus::Cancelled).await;
    for (sms, transition) in [(0, Transition::Refunded), (1, released()), (1, sent())] {
        queue.settle(&all[sms], transition).await;
    }
    let (id, claim, provider) = (all[2].id, all[2].claim, PROVIDER.to_owned());
    let settlement = Settlement { id, claim, provider, transition: sent() };
    let error = Store::open("", Access::Read).await.err().expect("it names no database");
    assert!(store.set_aside(&settlement, &error).await?);
    store.settle_left(&[settlement], &mut audited()).await?;
    store.failed_attempts(&[id]).await.map(drop)
}

async fn resolve_doubts(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, spring) = (&queue.store, queue.queued(7).await);
    let all = settled(queue, spring, &[(); 7].map(|()| unknown())).await;
    let due = Due { campaign_id: spring, provider: PROVIDER, by: after(9), claimed_by: after(9) };
    let found = store.unknown_due(due, 9).await?;
    store.is_unknown_due(due).await?;
    store.postpone_lookup(&found[0], after(60)).await?;
    store.unsettled_to(&all[0].phone, 0).await?;
    store.sent_ids(PROVIDER, &["SM1".to_owned()]).await?;
    queue.settle(&all[0], Transition::FoundRejected(failure(Class::Recipient))).await;
    queue.settle(&all[1], Transition::FoundAbsent(failure(Class::Recipient))).await;
    let reasons = [ResendReason::Absent, ResendReason::NotAccepted, ResendReason::MayBeSentTwice];
    for (sms, reason) in all[2..].iter().zip(reasons) {
        for most in [0, 9] {
            store.requeue_message(sms.id, sms.claim, reason, most, NOW).await?;
        }
    }
    let before = NOW.minus(Duration::from_millis(1));
    assert_eq!(store.requeue_unknown(spring, Some((PROVIDER, before)), 9, NOW).await?, 2);
    store.requeue_unknown(spring, None, 0, NOW).await.map(drop)
}

async fn retry_and_cancel(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, spring, all) = (&queue.store, queue.queued(9).await, RetryFilter::default);
    let some = RetryFilter {
        campaign_id: Some(spring),
        class: Some(Class::Recipient),
        code: Some("30003".to_owned()),
        phone: Some(phone(1)),
        expires_at: Some(after(60)),
        by_any_provider: true,
    };
    let coded = Transition::Unknown(failure(Class::Unknown).with_code("30003"));
    settled(queue, spring, &[unknown(), coded, unknown(), unknown()]).await;
    tokio::try_join!(store.named_unknown(spring), store.named_failed(spring))?;
    store.settle_unknown(spring, true, Some(&phone(2)), NOW, audited()).await?;
    assert_eq!(store.retry_unknown(&some, NOW, audited()).await?, 1);
    settled(queue, spring, &[unknown()]).await;
    assert_eq!(store.settle_unknown(spring, false, None, NOW, audited()).await?, 3);
    // What an operator settled is in doubt again, and expires.
    let later = RetryFilter { expires_at: Some(after(60)), ..all() };
    assert_eq!(store.retry_failed(&later, NOW, audited()).await?, 3);
    assert_eq!(store.expire_rows(spring, after(60), None, NOW).await?.rows, 3);
    store.retry_unknown(&all(), NOW, audited()).await?;
    queue.db.run("UPDATE sms SET due_at = due_at + 1 WHERE in_doubt");
    settled(queue, spring, &[failed(), dead(), failed()]).await;
    for filter in [some, RetryFilter { class: Some(Class::Recipient), ..all() }, all()] {
        store.retry_failed(&filter, NOW, audited()).await?;
    }
    // Messages that were imported again stay cancelled.
    queue.cancel(spring).await;
    queue.import(spring, rows(8..9)).await;
    let cancelled = RetryFilter { class: Some(Class::Cancelled), ..all() };
    assert_eq!(store.retry_failed(&cancelled, NOW, audited()).await?, 4);
    Ok(())
}

async fn run_workers(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, spring, workers) = (&queue.store, queue.queued(6).await, queue.store.workers());
    let (worker, dead) = (queue.worker().await, queue.worker().await);
    workers.heartbeat(worker.id, &worker.token, after(1)).await?;
    let routes = BTreeMap::from([("main".to_owned(), "cellar".to_owned())]);
    workers.declare_routes(worker.id, &routes, NOW).await?;
    let (claims, token) = (vec![claim_of(&[(spring, 2)])], worker.token.clone());
    let (batch, count) = (commit_batch(worker.id, NOW), CommitCount::new(worker.id, token));
    store.commit_counted(&CommitBatch { claims, ..batch }, &count).await?;
    workers.check_count(&count, &workers.all().await?).await?;
    assert_eq!(workers.sending(worker.id).await?.len(), 2);
    assert_eq!(queue.release(worker.id, Vec::new(), after(60), spring).await, 2);
    let all = settled(queue, spring, &[failed(), again()]).await;
    let lost: Vec<_> = all.iter().map(lost_claims::later).collect();
    assert_eq!(workers.redo(&lost).await?.sending.len(), 2);
    assert_eq!(workers.reclaim_without_worker(NOW).await?, 2);
    queue.claim(dead.id, spring, 1).await;
    assert_eq!(workers.reclaim(&dead, "it died", NOW).await?, 1);
    assert!(workers.is_reclaimed(&dead.token).await?);
    for rows in [&[activity::row(0, spring, PROVIDER, 1)]; 2] {
        store.publish(worker.id, &activity::doing(1), rows).await?;
    }
    tokio::try_join!(store.activity(NOW, after(9)), store.worker_activities())?;
    assert_eq!(store.prune_activity(after(9)).await?, 1);
    workers.remove(worker.id, &worker.token).await
}

async fn apply_receipts(queue: &TestQueue) -> Result<(), StoreError> {
    let all = receipts::awaiting(queue, 7).await;
    let (receipts, spring) = (queue.store.receipts(), all[0].campaign_id);
    let delivered = |sms: &Sms| receipts::receipt(sms, ReceiptState::Delivered);
    let undelivered = |sms: &Sms| receipts::undelivered(sms, Class::OptedOut);
    let part = Some(ReceiptPart { number: 1, total: 2 });
    let (reference, message_id) = (Some("foreign".to_owned()), None);
    let arrived = [
        undelivered(&all[0]),
        Receipt { failure: Some(dead_failure()), ..undelivered(&all[1]) },
        Receipt { reference: None, ..delivered(&all[2]) },
        Receipt { part, ..delivered(&all[3]) },
        Receipt { reference, message_id, ..delivered(&all[4]) },
    ];
    assert_eq!(receipts::receive(queue, &arrived).await.matched, 4);
    // The next tries, and the end of them.
    for seconds in [10, 400_000] {
        receipts::apply(queue, after(seconds)).await;
    }
    let summer = queue.campaign("summer").await;
    queue.import(summer, rows(1..5)).await;
    let open = settled(queue, summer, &[again()]).await;
    let open = [open, settled(queue, summer, &[unknown(), unknown(), failed()]).await].concat();
    let rejected = receipts::receipt(&open[2], ReceiptState::Rejected);
    let proofs = [delivered(&open[0]), rejected, delivered(&open[3])];
    let applied = receipts::receive(queue, &proofs).await;
    assert_eq!((applied.contradictions, applied.sent, applied.failed), (1, 2, 1));
    let (span, tried) = (NOW..=after(9), TriedAt { provider: PROVIDER, is_default: true });
    for campaign in [None, Some(spring)] {
        assert!(receipts.is_awaiting(PROVIDER, campaign).await?);
        receipts.unknown_span(tried, campaign, &span).await?;
    }
    tokio::try_join!(receipts.awaiting_providers(), receipts.awaiting_span(PROVIDER, &span))?;
    receipts.awaiting(PROVIDER, &span, NOW, 0, 9).await?;
    assert!(receipts.end_awaiting(PROVIDER, after(9)).await? > 0);
    tokio::try_join!(receipts.next_due(), receipts.count_unmatched())?;
    assert!(receipts.lease(PROVIDER, 1, NOW, after(9), None).await?.is_some());
    receipts.release(PROVIDER, 1, None, Some("5")).await?;
    receipts.release(PROVIDER, 1, Some(NOW), None).await
}

async fn deliver_events(queue: &TestQueue) -> Result<(), StoreError> {
    let (hook, spring, worker) = (outbox::HOOK, queue.queued(5).await, queue.worker().await);
    let store = outbox::hooked(queue, &EventKind::ALL, true);
    let hooks = store.hooks();
    hooks.watch(&store.queued_campaigns().await?, NOW).await?;
    let watched = hooks.watched().await?.remove(0);
    let stuck = WatchedCampaign { stuck_at: Some(NOW), ..watched.clone() };
    assert!(hooks.change_watch(&watched, &stuck, &[event(1)], NOW).await?);
    let all = queue.claim(worker.id, spring, 5).await;
    let accepted = all[2..].iter().map(receipts::accepted);
    for (sms, transition) in all.iter().zip([failed(), unknown()].into_iter().chain(accepted)) {
        outbox::settle(&store, worker.id, sms, transition).await;
    }
    assert!(hooks.end_watch(spring, &[], NOW).await?);
    assert!(hooks.lease(hook, 1, NOW, after(9)).await?.is_some());
    let states = [ReceiptState::Delivered, ReceiptState::Undelivered, ReceiptState::Delivered];
    for (sms, state) in all[2..].iter().zip(states) {
        store.receipts().add(PROVIDER, &[outbox::receipt(sms, state)], NOW).await?;
        store.subscriptions().all()[0].set_full(true);
    }
    let (replies, reply) = (store.replies(), outbox::reply(&phone(0), "a"));
    assert_eq!(replies.add(PROVIDER, &[reply], NOW).await?, 1);
    tokio::try_join!(replies.page(None, 10), replies.count(None), replies.count(Some(spring)))?;
    hooks.add(&[event(0)], NOW).await?;
    let (due, error) = (hooks.due(hook, NOW, 10).await?, || "500".to_owned());
    let results = [
        (due[0].id, Delivered::Done),
        (due[1].id, Delivered::Again { at: after(9), error: error() }),
        (due[2].id, Delivered::GivenUp { error: error() }),
    ];
    hooks.finish(hook, &results, Some("410"), NOW).await?;
    hooks.finish(hook, &[], None, NOW).await?;
    assert_eq!(hooks.row(hook).await?.expect("the hook").skipped(), 1);
    tokio::try_join!(hooks.rows(), hooks.names(), hooks.waiting(hook), hooks.next_due(hook))?;
    tokio::try_join!(hooks.has_more_waiting(hook, 1), hooks.counts(hook))?;
    hooks.turn_on(hook).await?;
    for kind in [None, Some(EventKind::MessageFailed)] {
        hooks.replay(hook, NOW, kind, after(9)).await?;
    }
    assert!(hooks.purge(hook, after(99), after(99)).await? > 0);
    hooks.release(hook, 1).await
}

async fn count_budgets(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, spring, worker) = (&queue.store, queue.queued(9).await, queue.worker().await);
    let of_month = async |budget: &str| {
        let (claim, budget) = (budgets::priced(spring, 1), budgets::monthly(&[budget]));
        budgets::claim_at(queue, worker.id, NOW, claim, budget).await.rows.pop()
    };
    queue.settle(&of_month("9 EUR").await.expect("a message").sms, sent()).await;
    let before = budgets::claim(queue, worker.id, spring, 4).await;
    for (sms, transition) in before.iter().zip([sent(), unknown(), resend()]) {
        queue.settle(sms, transition).await;
    }
    // The messages before cost more than the first of them.
    for budget in ["0.02 EUR", "1 EUR"] {
        budgets::set_budget(queue, spring, budget).await;
    }
    queue.settle(&before[3], sent()).await;
    // The first is in doubt.
    for transition in [again(), unknown(), failed(), unknown()] {
        let (claim, rule) = (budgets::priced(spring, 1), ResendRule::Always);
        let mut claimed = queue.claim_by(worker.id, NOW, claim, rule).await;
        queue.settle(&claimed.rows.remove(0).sms, transition).await;
    }
    assert!(of_month("0.01 EUR").await.is_none());
    queue.set_state(spring, CampaignStatus::Active).await;
    budgets::set_budget(queue, spring, "0.33 EUR").await;
    // The last message does not fit, whether the one before is being sent or was sent.
    let last = budgets::claim(queue, worker.id, spring, 5).await.remove(0);
    queue.settle(&last, sent()).await;
    assert!(budgets::claim(queue, worker.id, spring, 5).await.is_empty());
    tokio::try_join!(store.spent(spring, "EUR"), store.month_spent(NOW, "EUR"))?;
    // A budget that another program has set.
    queue.db.run("UPDATE campaign SET budget = '9.00 USD' WHERE name = 'spring'");
    let uncounted = store.uncounted_budgets().await?.remove(0);
    store.know_budget(&uncounted, worker.id).await
}

async fn approve_lists(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, of_ann) = (&queue.store, approvals::entry("ann", NOW));
    let rules = ApprovalRules { from_messages: 1, ..ApprovalRules::default() };
    store.keep_approval_rules(&rules).await?;
    store.replace_approval_rules(&rules, &of_ann).await?;
    let (spring, late) = (approvals::waiting(queue, 5).await, after(approvals::DAY + 1));
    store.reject(spring, "why", &approvals::entry("ben", NOW)).await?;
    approvals::approve(queue, spring, NOW).await;
    assert_eq!(approvals::claim(queue, spring, late).await, 0, "the approval has ended");
    approvals::approve(queue, spring, late).await;
    assert_eq!(approvals::claim(queue, spring, late).await, 5);
    store.prune_approvals().await?;
    let (all, rate) = (&CampaignStatus::ALL, Some(rates("9/s")));
    let faster = CampaignChange { rate, ..CampaignChange::default() };
    store.change_campaign_in(spring, all, &faster, None, &of_ann).await?;
    approvals::approve(queue, spring, late).await;
    // Messages that were added one by one, were inserted, and are put back.
    queue.import(spring, rows(10..12)).await;
    let columns = "INSERT INTO sms (campaign_id, phone, content, due_at)";
    queue.db.run(&format!("{columns} VALUES ({spring}, '+447400123456', 'x', 0)"));
    assert_eq!(approvals::claim(queue, spring, NOW).await, 0);
    assert_eq!(queue.cancel(spring).await, 3);
    queue.set_state(spring, CampaignStatus::Active).await;
    let cancelled = RetryFilter { class: Some(Class::Cancelled), ..RetryFilter::default() };
    assert_eq!(store.retry_failed(&cancelled, NOW, audited()).await?, 3);
    tokio::try_join!(store.approval_gate(spring), store.imported(spring), store.total(spring, 99))?;
    // A batch that continues another, and one that is cancelled.
    let codes = queue.campaign("codes").await;
    for who in ["ann", "ben"] {
        let mut posted = intake::posted(queue, codes, 0..2, "a").await;
        posted.batch.approval = ImportApproval::OfList(ListApproval::of_batch(who));
        intake::post(store, posted).await;
    }
    store.decide_abandoned_batches(late).await?;
    let summer = queue.campaign("summer").await;
    approvals::add(queue, summer, 1, ListApproval::of_batch("ann")).await;
    queue.cancel(summer).await;
    assert!(store.approval_gate(summer).await?.is_guarded());
    Ok(())
}

async fn run_schedules(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, schedules) = (&queue.store, queue.store.schedules());
    let (id, entry) = (schedules::daily(store).await.id, schedules::entry());
    let (first, later) = (schedules::run(id, 1), schedules::run(id, 4));
    tokio::try_join!(schedules.all(), schedules.owner_of(&first.campaign))?;
    assert!(schedules.lease_due(1, after(10), after(70)).await?.is_some());
    assert!(schedules.renew(id, 1, after(99)).await?);
    assert!(schedules.begin_run(&first, Some((&first.fire, None)), NOW).await?);
    assert!(!schedules.has_opened(id, &first.campaign).await?);
    let campaign = queue.campaign(&first.campaign).await;
    queue.import(campaign, rows(0..3)).await;
    schedules.postpone_run(&first, "it is unavailable", after(50)).await?;
    schedules.renew_run(&first, after(60)).await?;
    let missed = schedules::missed(3);
    assert!(schedules.begin_run(&later, Some((&first.fire, Some(&missed))), after(60)).await?);
    let (counts, next) = (RunCounts::default(), schedules::fire(5, 100));
    assert!(schedules.finish_run(&later, Ok(&counts), Some(&next), after(70)).await?);
    assert_eq!(schedules.runs(id, 9, NOW).await?.len(), 3);
    // The key of a message is kept while its run may be repeated.
    for (number, now) in [(0, NOW), (1, after(10 * 86_400))] {
        store.purge_person(&[phone(number)], now, Audited::unrecorded()).await?;
    }
    for next in [None, Some(&next)] {
        assert!(schedules.set_paused(id, next, &entry).await?);
    }
    schedules.release_all(1).await?;
    schedules.remove(id, &entry).await.map(drop)
}

async fn report(queue: &TestQueue) -> Result<(), StoreError> {
    let (report, spring) = (queue.store.report(), queue.queued(9).await);
    settled(queue, spring, &[failed(), unknown(), sent(), sent(), again()]).await;
    queue.db.run(
        "UPDATE sms_sent SET delivery_state = 'undelivered' WHERE id = 3;
         INSERT INTO sms (campaign_id, phone, content) VALUES (999, '+447400123456', 'x')",
    );
    for filter in [CampaignFilter::All, CampaignFilter::One(spring)] {
        tokio::try_join!(report.sent(filter, 4), report.failed_by_class(filter))?;
        report.outcomes_over_time(filter, NOW, Duration::from_secs(1), 3).await?;
        tokio::try_join!(report.lists(filter), report.failures_by_reason(filter))?;
        tokio::try_join!(report.undelivered_by_reason(filter), report.delivery_times(filter))?;
        report.purged_at(filter).await?;
        let mut failures = report.failures(filter).await?;
        while !report.next_failures(&mut failures, 9).await?.is_empty() {}
        let mut undelivered = report.undelivered(filter).await?;
        while !report.next_undelivered(&mut undelivered, 9).await?.is_empty() {}
        let mut sent = report.sent_messages(filter).await?;
        while !report.next_sent(&mut sent, 9).await?.is_empty() {}
    }
    tokio::try_join!(report.totals(None), report.totals(Some(spring)), report.campaign_totals())?;
    tokio::try_join!(report.check_counts(), report.worker_loads(), report.imported_rows())?;
    tokio::try_join!(report.without_campaign(), report.delivered(NOW, 4))?;
    tokio::try_join!(report.last_failure("spring"), report.first_due(spring))?;
    assert_eq!(report.count_due(spring, NOW, 99).await?, 5);
    let mut waiting = report.queue(spring, None).await?;
    while !report.next_queued(&mut waiting, 9).await?.is_empty() {}
    for filter in [SmsFilter::Id(1), SmsFilter::Reference("SM1"), SmsFilter::Phone("+4479")] {
        for token in [None, Some("shop")] {
            report.find_sms(filter, token, 9).await?;
        }
    }
    Ok(())
}

async fn delete_messages(queue: &TestQueue) -> Result<(), StoreError> {
    let (store, caps, spring) = (&queue.store, "5/day", queue.queued(6).await);
    let all = recipients::claim(queue, caps, NOW, spring).await;
    let accepted = receipts::accepted(&all[0]);
    let transitions = [accepted, dead(), unknown(), sent(), dead(), unknown()];
    for (sms, transition) in all.iter().zip(transitions) {
        recipients::settle(queue, caps, NOW, sms, transition).await;
    }
    let delivered = receipts::receipt(&all[0], ReceiptState::Delivered);
    let part = Some(ReceiptPart { number: 1, total: 2 });
    receipts::receive(queue, &[Receipt { part, ..delivered }]).await;
    store.hooks().add(&[event(0), event(3)], NOW).await?;
    let replies = [0, 3].map(|number| outbox::reply(&phone(number), &phone(number)));
    store.replies().add(PROVIDER, &replies, NOW).await?;
    let people = [0, 1, 2].map(phone);
    tokio::try_join!(store.count_person(&people), store.count_older(after(9)))?;
    assert_eq!(store.purge_person(&people, NOW, Audited::unrecorded()).await?.total(), 3);
    let columns = "INSERT INTO sms_key (campaign_id, dedupe_key)";
    queue.db.run(&format!("{columns} VALUES ({spring}, 'left')"));
    let purge = Purge::before(after(9), Some(Removal::Retention));
    for mut purge in [purge, Purge::of_campaigns(after(9))] {
        while store.next_purge(&mut purge, NOW, &mut Audited::unrecorded()).await?.is_some() {}
    }
    store.removable_campaigns(after(9), Removal::Asked).await?;
    assert_eq!(queue.db.numbers("SELECT id AS value FROM campaign"), [1]);
    Ok(())
}
