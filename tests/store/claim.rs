//! Claims: which messages are claimed, in which order, and what a claim writes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use smsq_lifecycle::ProviderClaim;
use smsq_limit::{Permit, PermitCost, Reservation};
use smsq_message::instant::DbMicros;
use smsq_message::sms::{Class, LaneId, Timestamp};
use smsq_store::{
    Access, CampaignChange, CampaignStatus, CampaignStop, CommitBatch, ImportBatch, Store,
};

use super::limits::pause;
use super::test_queue::{
    NOW, TestQueue, after, again, claim_of, commit_batch, on_every_engine, released, row, rows,
    sent, unknown,
};

/// Imports one message with its own due time.
async fn due_at(queue: &TestQueue, campaign_id: i64, line: u64, due_at: Timestamp) {
    let import_id = queue.begin(campaign_id).await;
    let batch = ImportBatch { due_at, ..TestQueue::batch(import_id, campaign_id, vec![row(line)]) };
    queue.store.imports().enqueue(&batch).await.expect("queued");
}

#[tokio::test]
async fn messages_are_claimed_in_the_order_of_due_times() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        for (line, seconds) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            due_at(queue, spring, line, after(seconds)).await;
        }
        let worker = queue.worker().await;
        let mut order = Vec::new();
        for want in [1, 3] {
            let claim = claim_of(&[(spring, want)]);
            let claimed = queue.claim_with(worker.id, after(60), claim).await;
            order.extend(claimed.rows.iter().map(|claimed| claimed.sms.id));
        }
        assert_eq!(order, [2, 4, 3, 1]);
    })
    .await;
}

#[tokio::test]
async fn claim_takes_no_more_messages_than_wanted() {
    on_every_engine(async |queue| {
        let spring = queue.queued(10).await;
        let autumn = queue.campaign("autumn").await;
        queue.import(autumn, rows(0..10)).await;
        let worker = queue.worker().await;
        let claim = ProviderClaim { max_messages: 5, ..claim_of(&[(spring, 3), (autumn, 4)]) };
        let claimed = queue.claim_with(worker.id, NOW, claim).await;
        let of = |id| claimed.rows.iter().filter(|row| row.sms.campaign_id == id).count();
        assert_eq!((of(spring), of(autumn)), (3, 2));
        assert!(claimed.exhausted.is_empty());
        assert!(queue.claim(worker.id, spring, 0).await.is_empty());
        assert_eq!(queue.count("sending"), 5);
    })
    .await;
}

#[tokio::test]
async fn message_is_not_claimed_before_it_is_due() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        due_at(queue, spring, 1, after(60)).await;
        let worker = queue.worker().await;
        let claim = || claim_of(&[(spring, 5)]);
        let early = queue.claim_with(worker.id, after(59), claim()).await;
        assert!(early.rows.is_empty());
        assert_eq!(early.exhausted, [LaneId::undivided(spring)]);
        assert_eq!(queue.ready_at(spring).await, Some(after(60)));
        let due = queue.claim_with(worker.id, after(60), claim()).await;
        assert_eq!(due.rows.len(), 1);
        assert_eq!(due.exhausted, [LaneId::undivided(spring)]);
        assert_eq!(queue.ready_at(spring).await, None);
    })
    .await;
}

#[tokio::test]
async fn every_claim_has_a_higher_number() {
    on_every_engine(async |queue| {
        let (spring, worker, first) = queue.one_claimed().await;
        assert_eq!((first.claim, first.attempts), (1, 0));
        assert!((1..=36).contains(&first.reference.len()));
        queue.settle(&first, again()).await;
        let second = queue.claim_one(worker.id, spring).await;
        assert_eq!((second.claim, second.attempts), (2, 1));
        queue.settle(&second, released()).await;
        let third = queue.claim_one(worker.id, spring).await;
        assert_eq!((third.claim, third.attempts), (3, 1));
        queue.settle(&third, sent()).await;
        let numbers = ["claim", "attempts"].map(|column| queue.number(column, third.id));
        assert_eq!(numbers, [3, 2]);
        assert_ne!(second.reference, first.reference, "the first was refused");
        assert_eq!(third.reference, second.reference, "nothing was sent with it");
        assert_eq!(queue.reference(third.id), Some(second.reference));
    })
    .await;
}

#[tokio::test]
async fn references_are_unique() {
    on_every_engine(async |queue| {
        let (_, _, claimed) = queue.claimed(200).await;
        let references: BTreeSet<String> = claimed.into_iter().map(|sms| sms.reference).collect();
        assert_eq!(references.len(), 200);
    })
    .await;
}

#[tokio::test]
async fn reference_of_another_program_is_kept() {
    on_every_engine(async |queue| {
        queue.db.run(
            "INSERT INTO sms (phone, content, reference, due_at)
             VALUES ('+8613800138000', 'hello', 'order-17', 0)",
        );
        let worker = queue.worker().await;
        assert_eq!(queue.claim_one(worker.id, 1).await.reference, "order-17");
    })
    .await;
}

#[tokio::test]
async fn message_that_cannot_be_sent_fails_without_an_attempt() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        queue
            .import_expiring(spring, rows(0..3), after(60))
            .await;
        queue.db.run(&format!(
            "INSERT INTO sms (campaign_id, phone, content, due_at) VALUES ({spring}, '+4479', 'hello', 0)"
        ));
        due_at(queue, spring, 9, NOW).await;
        let worker = queue.worker().await;
        let claim = claim_of(&[(spring, 3)]);
        let claimed = queue.claim_with(worker.id, after(60), claim).await;
        assert_eq!((claimed.rows.len(), claimed.refused), (1, 4));
        assert_eq!((queue.count("expired"), queue.count("recipient")), (3, 1));
        for id in 1..=4 {
            assert_eq!(queue.number("attempts", id), 0);
        }
        assert_eq!(queue.keys(), 4, "a failed message keeps its key");
    })
    .await;
}

#[tokio::test]
async fn message_in_doubt_does_not_expire() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        queue.import_expiring(spring, rows(0..1), after(60)).await;
        let worker = queue.worker().await;
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, unknown()).await;
        assert_eq!(queue.requeue_unknown(spring).await, 1);
        let claim = claim_of(&[(spring, 3)]);
        let claimed = queue.claim_with(worker.id, after(60), claim).await;
        assert_eq!((claimed.rows.len(), claimed.refused), (0, 1));
        assert_eq!(queue.place(sms.id), "unknown");
        assert_eq!(queue.number("attempts", sms.id), 1);
    })
    .await;
}

#[tokio::test]
async fn inactive_campaign_is_not_claimed() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(2).await;
        for state in [CampaignStatus::Paused, CampaignStatus::Stopped, CampaignStatus::Cancelled] {
            let (all, store) = (&CampaignStatus::ALL, &queue.store);
            let set = store.change_campaign_state(spring, all, state, Some("why"), None);
            assert!(set.await.expect("a state"));
            let claimed = queue.claim_with(worker.id, NOW, claim_of(&[(spring, 2)])).await;
            assert!(claimed.rows.is_empty());
            assert_eq!(claimed.exhausted, [LaneId::undivided(spring)]);
        }
    })
    .await;
}

#[tokio::test]
async fn campaign_stop_applies_at_once_but_not_over_the_operator() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(2).await;
        let halting = |state| {
            Arc::new(CommitBatch {
                campaign_stops: vec![CampaignStop {
                    campaign_id: spring,
                    state,
                    reason: "the account is suspended".to_owned(),
                }],
                claims: vec![claim_of(&[(spring, 2)])],
                ..commit_batch(worker.id, NOW)
            })
        };
        let done = queue.store.commit(&halting(CampaignStatus::Stopped)).await;
        assert!(done.expect("a commit").claims[0].rows.is_empty());
        let later = queue.store.commit(&halting(CampaignStatus::Paused)).await;
        later.expect("a commit");
        let campaign = queue.store.campaign("spring").await.expect("read").expect("there");
        assert_eq!(campaign.state, CampaignStatus::Stopped);
        assert_eq!(campaign.state_reason.as_deref(), Some("the account is suspended"));
    })
    .await;
}

#[tokio::test]
async fn rate_limit_gives_each_message_its_own_permit() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(100).await;
        let limits: smsq_message::rate::Rates = "100/s".parse().expect("a rate");
        let claim = ProviderClaim { limits: limits.0, ..claim_of(&[(spring, 100)]) };
        let claimed = queue.claim_with(worker.id, NOW, claim.clone()).await;
        let permits: Vec<i64> = claimed
            .rows
            .iter()
            .map(|row| match row.permit {
                Permit { start_at: Some(permit) } => permit.as_micros(),
                Permit::AT_ONCE => 0,
            })
            .collect();
        assert!((4..=5).contains(&permits.len()), "{permits:?}");
        for pair in permits.windows(2) {
            assert!(pair[1] - pair[0] >= 10_000, "{permits:?}");
        }
        assert!(claimed.next_at.expect("a next one") >= claim.until);
        let nothing = queue.claim_with(worker.id, NOW, claim.clone()).await;
        assert!(nothing.rows.is_empty(), "another claim of the same permits");
        let held = vec![Reservation {
            lane: LaneId::undivided(spring),
            sender: None,
            cost: PermitCost::of_message(1),
            unused: None,
        }];
        let later = ProviderClaim {
            from: claim.from.plus(Duration::from_millis(100)),
            until: claim.until.plus(Duration::from_millis(100)),
            held,
            max_messages: 1,
            ..claim
        };
        let given = queue.claim_with(worker.id, NOW, later.clone()).await;
        assert_eq!(given.held, [Some(Permit::at(later.from))], "the held one is first");
        assert_eq!(given.rows.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn campaign_limit_holds_in_addition_to_provider_limit() {
    on_every_engine(async |queue| {
        let spring = queue.queued(100).await;
        let change = CampaignChange {
            rate: Some("1/s".parse().expect("a rate")),
            ..CampaignChange::default()
        };
        queue.store.change_campaign(spring, &change).await.expect("changed");
        let worker = queue.worker().await;
        assert_eq!(queue.claim(worker.id, spring, 100).await.len(), 1);
        assert_eq!(queue.claim(worker.id, spring, 100).await.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn paused_provider_gives_no_permits() {
    on_every_engine(async |queue| {
        let spring = queue.queued(3).await;
        let stop = CommitBatch { pauses: vec![pause()], ..commit_batch(1, NOW) };
        queue.store.commit(&stop).await.expect("a commit");
        let worker = queue.worker().await;
        let claimed = queue.claim_with(worker.id, NOW, claim_of(&[(spring, 3)])).await;
        assert!(claimed.rows.is_empty());
        assert_eq!(claimed.next_at, Some(after(30).into()));
        let from = DbMicros::from(after(30));
        let later = ProviderClaim {
            from,
            until: from.plus(Duration::from_millis(50)),
            ..claim_of(&[(spring, 3)])
        };
        let claimed = queue.claim_with(worker.id, after(30), later).await;
        assert_eq!(claimed.rows.len(), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_workers_never_claim_the_same_message() {
    on_every_engine(async |queue| {
        let spring = queue.queued(300).await;
        let mut claiming = Vec::new();
        for _ in 0..4 {
            let worker = queue.worker().await;
            let url = queue.db.url.clone();
            claiming.push(tokio::spawn(async move {
                let store = Store::open(&url, Access::Existing).await.expect("a store");
                let mut ids = Vec::new();
                loop {
                    let commit = CommitBatch {
                        claims: vec![claim_of(&[(spring, 7)])],
                        ..commit_batch(worker.id, NOW)
                    };
                    let done = store.commit(&commit).await.expect("a commit");
                    // Two claims at once can skip each other's rows, so finding none is not the end.
                    let left = store.queued_campaigns().await.expect("read");
                    let is_left = left.iter().any(|queued| queued.ready_at.is_some());
                    if done.claims[0].rows.is_empty() && !is_left {
                        return ids;
                    }
                    ids.extend(done.claims[0].rows.iter().map(|row| row.sms.id));
                }
            }));
        }
        let mut all = Vec::new();
        for claimed in claiming {
            all.extend(claimed.await.expect("no panic"));
        }
        let distinct: BTreeSet<i64> = all.iter().copied().collect();
        assert_eq!((all.len(), distinct.len()), (300, 300));
        assert_eq!(queue.count("sending"), 300);
        assert_eq!(queue.count(Class::Unknown.as_str()), 0);
    })
    .await;
}
