//! Rows that go together: which is said from outside, that a call has one moment and what it costs is the
//! database's.

use std::sync::Arc;

use smsq::limit::Permit;
use smsq::queue::batch::{BatchLimits, Batcher};
use smsq::queue::{CampaignClaim, ClaimedSms, ProviderClaim};
use smsq::rate::Rates;
use smsq::store::{CampaignChange, CommitBatch, ProviderClaimed};

use super::desk::{Desk, NOW, at_every_desk, claim_of, round};

/// Even and odd numbers do not go together.
fn by_parity(terms: &BatchLimits<'_>) -> Batcher {
    let (most, size) = (
        terms.max_requests as usize,
        terms.max_batch.min(terms.max_cost.unsigned_abs()),
    );
    let mut calls: Vec<(i64, u32)> = Vec::new();
    Box::new(move |sms, _, _| {
        let parity = sms.id % 2;
        let open = calls
            .iter_mut()
            .enumerate()
            .find(|(_, (of, count))| *of == parity && *count < size);
        if let Some((number, (_, count))) = open {
            *count += 1;
            return Some(number);
        }
        if calls.len() == most {
            return None;
        }
        calls.push((parity, 1));
        Some(calls.len() - 1)
    })
}

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
        campaigns: vec![CampaignClaim {
            campaign_id,
            max_messages: want,
            max_batch,
        }],
        ..claim_of(&[])
    }
}

async fn claimed(desk: &Desk, worker_id: i64, claim: ProviderClaim) -> ProviderClaimed {
    let round = CommitBatch {
        claims: vec![claim],
        fill: Arc::new(by_parity),
        ..round(worker_id, NOW)
    };
    let done = desk.store.commit(&round).await.expect("a round");
    done.claims.into_iter().next().expect("a claim")
}

/// How many rows each call has, each of which has one moment and one parity.
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
async fn who_finds_no_room_stays_ready_and_is_found_next() {
    at_every_desk(async |desk| {
        let spring = desk.queued(30).await;
        let worker = desk.worker().await;
        // 20 are looked at: 8 of each kind in two calls, and 4 for whom there is none.
        let first = claimed(desk, worker.id, claim_in(spring, 20, 2, 8, "")).await;
        assert_eq!(sizes(&first.rows), [8, 8]);
        assert!(first.rows.iter().all(|row| row.permit == Permit::AT_ONCE));
        let mut ids: Vec<i64> = first.rows.iter().map(|row| row.sms.id).collect();
        let second = claimed(desk, worker.id, claim_in(spring, 20, 9, 8, "")).await;
        assert_eq!(sizes(&second.rows).iter().sum::<usize>(), 14);
        let left: Vec<i64> = second.rows.iter().map(|row| row.sms.id).collect();
        assert!(left.iter().min() < left.iter().max());
        assert!(second.rows.iter().all(|row| row.sms.attempts == 0));
        ids.extend(left);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 30, "each once");
        let ready = desk
            .store
            .unfinished(spring)
            .await
            .expect("it is looked at");
        assert!(!ready.ready && ready.sending);
    })
    .await;
}

#[tokio::test]
async fn row_without_room_in_a_call_is_as_if_never_claimed() {
    at_every_desk(async |desk| {
        let spring = desk.queued(20).await;
        let worker = desk.worker().await;
        let first = claimed(desk, worker.id, claim_in(spring, 20, 2, 8, "")).await;
        assert_eq!(first.rows.len(), 16);
        let untouched = "SELECT count(*) AS value FROM sms WHERE state = 0 AND claim = 0 \
            AND worker_id IS NULL AND attempts = 0";
        assert_eq!(desk.db.number(untouched), 4);
        let second = claimed(desk, worker.id, claim_in(spring, 20, 9, 8, "")).await;
        assert_eq!(second.rows.len(), 4);
        assert!(second.rows.iter().all(|row| row.sms.claim == 1));
    })
    .await;
}

#[tokio::test]
async fn a_call_has_one_moment_that_costs_as_much_as_all_of_it() {
    at_every_desk(async |desk| {
        let spring = desk.queued(200).await;
        let worker = desk.worker().await;
        let claim = claim_in(spring, 100, 50, 50, "400/s");
        let claimed = claimed(desk, worker.id, claim.clone()).await;
        // A fortieth of the limit.
        let sizes = sizes(&claimed.rows);
        assert!(sizes.iter().all(|size| *size <= 10), "{sizes:?}");
        assert!(
            (10..=20).contains(&sizes.iter().sum::<usize>()),
            "{sizes:?}"
        );
        let mut moments: Vec<i64> = claimed
            .rows
            .iter()
            .map(|row| match row.permit {
                Permit {
                    start_at_us: Some(moment),
                } => moment,
                Permit::AT_ONCE => panic!("there is a limit"),
            })
            .collect();
        moments.dedup();
        for (pair, size) in moments.windows(2).zip(&sizes) {
            let cost = i64::try_from(*size).expect("small") * 2_500;
            assert!(pair[1] - pair[0] >= cost, "{moments:?} {sizes:?}");
        }
        assert!(claimed.next_us.expect("a next one") > claim.from_us);
    })
    .await;
}

#[tokio::test]
async fn a_campaigns_own_limit_bounds_its_calls_too() {
    at_every_desk(async |desk| {
        let spring = desk.queued(100).await;
        let change = CampaignChange {
            rate: Some("80/s".parse().expect("a rate")),
            ..CampaignChange::default()
        };
        let changed = desk.store.change_campaign(spring, &change).await;
        changed.expect("changed");
        let worker = desk.worker().await;
        let claimed = claimed(desk, worker.id, claim_in(spring, 100, 50, 50, "4000/s")).await;
        let sizes = sizes(&claimed.rows);
        assert!(
            !sizes.is_empty() && sizes.iter().all(|size| *size <= 2),
            "{sizes:?}"
        );
    })
    .await;
}
