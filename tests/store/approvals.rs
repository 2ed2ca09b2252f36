//! Approvals in the store: lanes that wait, and their end after a day.

use smsq_lifecycle::approval::{ApprovalRules, ListFacts};
use smsq_lifecycle::{LaneClaim, ProviderClaim};
use smsq_message::sms::{LaneId, Timestamp};
use smsq_store::{
    ApprovalGate, ApprovalResult, AuditEntry, ImportApproval, ImportBatch, ListApproval,
};

use super::test_queue::{NOW, TestQueue, after, claim_of, on_every_engine, rows, sent};

pub(super) const DAY: u64 = 24 * 3_600;

pub(super) fn entry(who: &str, at: Timestamp) -> AuditEntry {
    AuditEntry {
        at,
        who: who.to_owned(),
        what: "approve".to_owned(),
        campaign: Some("spring".to_owned()),
        detail: String::new(),
    }
}

/// Adds messages of a list, which is not whole.
pub(super) async fn add(queue: &TestQueue, campaign_id: i64, count: u64, list: ListApproval) {
    let import_id = queue.begin(campaign_id).await;
    let batch = ImportBatch {
        approval: ImportApproval::OfList(list),
        ..TestQueue::batch(import_id, campaign_id, rows(0..count))
    };
    queue.store.imports().enqueue(&batch).await.expect("queued");
}

/// A list of `count` messages that waits; returns its campaign.
pub(super) async fn waiting(queue: &TestQueue, count: u64) -> i64 {
    let campaign_id = queue.campaign("spring").await;
    let list = ListApproval { hash: "hash".to_owned(), who: "ann".to_owned() };
    add(queue, campaign_id, count, list.clone()).await;
    let rules = ApprovalRules { from_messages: 1, ..ApprovalRules::default() };
    let (store, facts) = (&queue.store, ListFacts::default());
    let decided = store.decide_list(campaign_id, &list, &rules, &facts);
    assert!(decided.await.expect("decided").is_some());
    campaign_id
}

pub(super) async fn approve(queue: &TestQueue, campaign_id: i64, at: Timestamp) {
    let subject = queue.store.approval_subject(campaign_id, "ben").await;
    let fingerprint = subject.expect("a subject").fingerprint;
    let entry = entry("ben", at);
    let approved = queue.store.approve(campaign_id, &fingerprint, &entry);
    assert_eq!(approved.await.expect("approved"), ApprovalResult::Done);
}

/// A claim of all lanes that a worker sees.
pub(super) async fn claim(queue: &TestQueue, campaign_id: i64, now: Timestamp) -> usize {
    let Some(queued) = queue.queued_campaign(campaign_id).await else {
        return 0;
    };
    let numbers = [0].into_iter().chain(queued.lanes.iter().map(|lane| lane.number));
    let lanes = numbers.map(|lane| LaneClaim {
        id: LaneId { campaign_id, lane },
        ..LaneClaim::undivided(campaign_id, 100)
    });
    let claim = ProviderClaim {
        lanes: lanes.collect(),
        max_messages: 100,
        max_requests: 100,
        ..claim_of(&[])
    };
    let worker = queue.worker().await.id;
    let claimed = queue.claim_with(worker, now, claim).await;
    for row in &claimed.rows {
        queue.settle(&row.sms, sent()).await;
    }
    claimed.rows.len()
}

async fn gate(queue: &TestQueue, campaign_id: i64) -> ApprovalGate {
    let gate = queue.store.approval_gate(campaign_id).await;
    gate.expect("a gate")
}

#[tokio::test]
async fn approval_ends_where_nothing_is_sent_for_a_day() {
    on_every_engine(async |queue| {
        let campaign_id = waiting(queue, 5).await;
        assert_eq!(claim(queue, campaign_id, NOW).await, 0);
        approve(queue, campaign_id, NOW).await;
        assert_eq!(claim(queue, campaign_id, after(DAY + 1)).await, 0);
        assert_eq!(gate(queue, campaign_id).await, ApprovalGate::SomeWait);
        approve(queue, campaign_id, after(DAY + 1)).await;
        assert_eq!(claim(queue, campaign_id, after(DAY + 2)).await, 5);
    })
    .await;
}

#[tokio::test]
async fn abandoned_batch_is_decided_by_what_is_there() {
    const MINUTE: u64 = 60;
    on_every_engine(async |queue| {
        let store = &queue.store;
        let rules = ApprovalRules { from_messages: 10, ..ApprovalRules::default() };
        let kept = store.keep_approval_rules(&rules).await;
        assert_eq!(kept.expect("kept"), rules);
        for (name, count, decided) in
            [("small", 9, ApprovalGate::Open), ("large", 10, ApprovalGate::SomeWait)]
        {
            let campaign_id = queue.campaign(name).await;
            add(queue, campaign_id, count, ListApproval::of_batch("ann")).await;
            for (minutes, expected) in [(14, ApprovalGate::Undecided), (16, decided)] {
                let decided = store.decide_abandoned_batches(after(minutes * MINUTE));
                decided.await.expect("decided");
                assert_eq!(gate(queue, campaign_id).await, expected, "{name} {minutes}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn begun_approval_does_not_end() {
    on_every_engine(async |queue| {
        let campaign_id = waiting(queue, 150).await;
        approve(queue, campaign_id, NOW).await;
        assert_eq!(claim(queue, campaign_id, NOW).await, 100);
        assert_eq!(claim(queue, campaign_id, after(9 * DAY)).await, 50);
        assert_eq!(gate(queue, campaign_id).await, ApprovalGate::Guarded);
    })
    .await;
}
