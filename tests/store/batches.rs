//! Batches: several messages per request, with one permit for all of them.

use std::sync::Arc;

use smsq_lifecycle::{ClaimedSms, LaneClaim, ProviderClaim};
use smsq_limit::Permit;
use smsq_message::rate::Rates;
use smsq_store::{CampaignChange, CommitBatch, ProviderClaimed};

use super::test_queue::{NOW, TestQueue, claim_of, commit_batch, on_every_engine};

fn claim_in(
    campaign_id: i64,
    want: u32,
    calls: u32,
    max_batch: u32,
    limits: &str,
) -> ProviderClaim {
    let limits: Rates = limits.parse().expect("rates");
    ProviderClaim {
        limits: limits.0,
        max_messages: want,
        max_requests: calls,
        lanes: vec![LaneClaim { max_batch, ..LaneClaim::undivided(campaign_id, want) }],
        ..claim_of(&[])
    }
}

async fn claimed(queue: &TestQueue, worker_id: i64, claim: ProviderClaim) -> ProviderClaimed {
    let commit = CommitBatch {
        claims: vec![claim],
        // Even and odd numbers do not go together.
        batch_keys: Arc::new(|sms, _| Some(vec![(sms.id % 2).to_string()])),
        ..commit_batch(worker_id, NOW)
    };
    let done = queue.store.commit(&commit).await.expect("a commit");
    done.claims.into_iter().next().expect("a claim")
}

/// The size of each batch. All messages of a batch have the same permit and parity.
fn sizes(rows: &[ClaimedSms]) -> Vec<usize> {
    let calls = rows.chunk_by(|one, next| one.request == next.request);
    calls
        .map(|call| {
            assert!(call.iter().all(|row| row.permit == call[0].permit));
            assert!(call.iter().all(|row| row.sms.id % 2 == call[0].sms.id % 2));
            call.len()
        })
        .collect()
}

#[tokio::test]
async fn message_without_room_in_a_batch_stays_ready() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(30).await;
        // Of 20 messages, 8 of each kind fit into two batches, and 4 do not.
        let first = claimed(queue, worker.id, claim_in(spring, 20, 2, 8, "")).await;
        assert_eq!(sizes(&first.rows), [8, 8]);
        assert!(first.rows.iter().all(|row| row.permit == Permit::AT_ONCE));
        let mut ids: Vec<i64> = first.rows.iter().map(|row| row.sms.id).collect();
        let second = claimed(queue, worker.id, claim_in(spring, 20, 9, 8, "")).await;
        assert_eq!(sizes(&second.rows).iter().sum::<usize>(), 14);
        let left: Vec<i64> = second.rows.iter().map(|row| row.sms.id).collect();
        assert!(left.iter().min() < left.iter().max());
        assert!(second.rows.iter().all(|row| row.sms.attempts == 0));
        ids.extend(left);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 30, "each once");
        assert_eq!(queue.ready_at(spring).await, None);
    })
    .await;
}

#[tokio::test]
async fn message_without_room_in_a_batch_is_not_claimed() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(20).await;
        let first = claimed(queue, worker.id, claim_in(spring, 20, 2, 8, "")).await;
        assert_eq!(first.rows.len(), 16);
        let untouched = "SELECT count(*) AS value FROM sms WHERE state = 0 AND claim = 0 \
            AND worker_id IS NULL AND attempts = 0";
        assert_eq!(queue.db.number(untouched), 4);
        let second = claimed(queue, worker.id, claim_in(spring, 20, 9, 8, "")).await;
        assert_eq!(second.rows.len(), 4);
        assert!(second.rows.iter().all(|row| row.sms.claim == 1));
    })
    .await;
}

#[tokio::test]
async fn batch_has_one_permit_with_the_cost_of_all_messages() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(200).await;
        let claim = claim_in(spring, 100, 50, 50, "400/s");
        let claimed = claimed(queue, worker.id, claim.clone()).await;
        // One fortieth of the limit.
        let sizes = sizes(&claimed.rows);
        assert!(sizes.iter().all(|size| *size <= 10), "{sizes:?}");
        assert!((10..=20).contains(&sizes.iter().sum::<usize>()), "{sizes:?}");
        let mut permits: Vec<i64> = claimed
            .rows
            .iter()
            .map(|row| match row.permit {
                Permit { start_at: Some(permit) } => permit.as_micros(),
                Permit::AT_ONCE => panic!("there is a limit"),
            })
            .collect();
        permits.dedup();
        for (pair, size) in permits.windows(2).zip(&sizes) {
            let cost = i64::try_from(*size).expect("small") * 2_500;
            assert!(pair[1] - pair[0] >= cost, "{permits:?} {sizes:?}");
        }
        assert!(claimed.next_at.expect("a next one") > claim.from);
    })
    .await;
}

#[tokio::test]
async fn campaign_limit_bounds_the_size_of_batches() {
    on_every_engine(async |queue| {
        let spring = queue.queued(100).await;
        let change = CampaignChange {
            rate: Some("80/s".parse().expect("a rate")),
            ..CampaignChange::default()
        };
        let changed = queue.store.change_campaign(spring, &change).await;
        changed.expect("changed");
        let worker = queue.worker().await;
        let claimed = claimed(queue, worker.id, claim_in(spring, 100, 50, 50, "4000/s")).await;
        let sizes = sizes(&claimed.rows);
        assert!(!sizes.is_empty() && sizes.iter().all(|size| *size <= 2), "{sizes:?}");
    })
    .await;
}
