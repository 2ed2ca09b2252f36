//! Rate limits that workers share, and which campaigns they delay.

use std::time::Duration;

use smsq_lifecycle::{ProviderClaim, Settlement};
use smsq_limit::{Account, PermitCost, Reservation};
use smsq_message::instant::DbMicros;
use smsq_message::rate::Rates;
use smsq_message::sms::{LaneId, Timestamp};
use smsq_store::{CampaignChange, CampaignStatus, CommitBatch, ProviderClaimed, ProviderPause};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, claim_of, commit_batch, on_every_engine, rows, sent,
};

pub(super) fn rates(text: &str) -> Rates {
    text.parse().expect("rates")
}

/// A claim for one campaign at an instant, with the limits that the worker declares.
fn claim_at(now: Timestamp, campaign_id: i64, want: u32, limits: &str) -> ProviderClaim {
    let from = DbMicros::from(now);
    ProviderClaim {
        limits: rates(limits).0,
        from,
        until: from.plus(Duration::from_millis(50)),
        ..claim_of(&[(campaign_id, want)])
    }
}

/// A pause of the provider for 30 seconds.
pub(super) fn pause() -> ProviderPause {
    ProviderPause {
        account: Account::new(PROVIDER),
        sender: None,
        until: after(30),
        reason: "429".to_owned(),
    }
}

async fn change(queue: &TestQueue, campaign_id: i64, change: CampaignChange) {
    let changed = queue.store.change_campaign(campaign_id, &change).await;
    changed.expect("changed");
}

async fn limit(queue: &TestQueue, campaign_id: i64, rate: &str) {
    let rate = Some(rates(rate));
    let changes = CampaignChange { rate, ..CampaignChange::default() };
    change(queue, campaign_id, changes).await;
}

fn count(claimed: &ProviderClaimed, campaign_id: i64) -> usize {
    let of_it = claimed.rows.iter();
    of_it.filter(|row| row.sms.campaign_id == campaign_id).count()
}

#[tokio::test]
async fn used_up_limit_holds_while_its_worker_is_listed() {
    on_every_engine(async |queue| {
        let spring = queue.queued(60).await;
        let (thrifty, generous) = (queue.worker().await, queue.worker().await);
        let claimed = async |worker_id, now, limits| {
            let claim = claim_at(now, spring, 20, limits);
            queue.claim_with(worker_id, now, claim).await.rows.len()
        };
        assert_eq!(claimed(thrifty.id, NOW, "5/hour").await, 5);
        assert_eq!(claimed(thrifty.id, after(20), "5/hour").await, 0);
        // Long after the lease: the worker is alive, but its limit is used up.
        assert_eq!(claimed(generous.id, after(600), "1000/s").await, 0);
        assert_eq!(claimed(generous.id, after(3_590), "1000/s").await, 0);
        let removed = queue.store.workers().remove(thrifty.id, &thrifty.token).await;
        removed.expect("removed");
        assert_eq!(claimed(generous.id, after(3_591), "1000/s").await, 20);
    })
    .await;
}

#[tokio::test]
async fn limit_of_an_idle_worker_holds_in_short_windows_too() {
    on_every_engine(async |queue| {
        let spring = queue.queued(60).await;
        let (thrifty, generous) = (queue.worker().await, queue.worker().await);
        let claimed = async |worker_id, now, limits| {
            let claim = claim_at(now, spring, 20, limits);
            queue.claim_with(worker_id, now, claim).await.rows.len()
        };
        assert_eq!(claimed(thrifty.id, NOW, "1/min").await, 1);
        assert_eq!(claimed(generous.id, after(120), "1000/s").await, 1);
        assert_eq!(claimed(generous.id, after(150), "1000/s").await, 0);
        // Also without a limit of the campaign.
        assert_eq!(claimed(generous.id, after(181), "").await, 1);
        let removed = queue.store.workers().remove(thrifty.id, &thrifty.token).await;
        removed.expect("removed");
        assert_eq!(claimed(generous.id, after(190), "1000/s").await, 20);
    })
    .await;
}

#[tokio::test]
async fn limit_of_a_worker_binds_only_its_own_provider() {
    on_every_engine(async |queue| {
        let spring = queue.queued(10).await;
        let autumn = queue.campaign("autumn").await;
        queue.import(autumn, rows(20..40)).await;
        let (thrifty, generous) = (queue.worker().await, queue.worker().await);
        let claim = claim_at(NOW, spring, 10, "1/hour");
        let claimed = queue.claim_with(thrifty.id, NOW, claim).await;
        assert_eq!(claimed.rows.len(), 1);
        let elsewhere = ProviderClaim {
            provider: "attic".to_owned(),
            account: Account::new("attic"),
            ..claim_at(NOW, autumn, 20, "")
        };
        let claimed = queue.claim_with(generous.id, NOW, elsewhere).await;
        assert_eq!(claimed.rows.len(), 20);
    })
    .await;
}

#[tokio::test]
async fn reclaimed_worker_settles_but_claims_nothing() {
    on_every_engine(async |queue| {
        let (spring, dead) = queue.queued_with_worker(3).await;
        let sms = queue.claim(dead.id, spring, 1).await.remove(0);
        let reclaimed = queue.store.workers().reclaim(&dead, "no heartbeat", NOW).await;
        assert_eq!(reclaimed.expect("reclaimed"), 1);
        let last = CommitBatch {
            settlements: vec![Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: PROVIDER.to_owned(),
                transition: sent(),
            }],
            pauses: vec![pause()],
            claims: vec![claim_of(&[(spring, 3)])],
            ..commit_batch(dead.id, NOW)
        };
        let done = queue.store.commit(&last).await.expect("a commit");
        assert!(done.is_worker_missing);
        assert_eq!(done.claims.len(), 1);
        assert!(done.claims[0].rows.is_empty());
        assert_eq!(queue.place(sms.id), "sent");
        assert_eq!(queue.count("ready"), 2);
        // The pause of the provider is stored.
        let other = queue.worker().await;
        let done = queue.claim_with(other.id, NOW, claim_of(&[(spring, 3)])).await;
        assert!(done.rows.is_empty());
        assert_eq!(done.next_at, Some(after(30).into()));
    })
    .await;
}

/// Two campaigns with messages; the first has a limit of one per second.
async fn slow_and_quick(queue: &TestQueue) -> (i64, i64) {
    let slow = queue.queued(50).await;
    let quick = queue.campaign("quick").await;
    queue.import(quick, rows(100..200)).await;
    limit(queue, slow, "1/s").await;
    (slow, quick)
}

#[tokio::test]
async fn exhausted_campaign_limit_leaves_the_claim_to_others() {
    on_every_engine(async |queue| {
        let (slow, quick) = slow_and_quick(queue).await;
        let worker = queue.worker().await;
        let claim = || ProviderClaim {
            max_messages: 8,
            max_requests: 8,
            ..claim_of(&[(slow, 4), (quick, 4), (slow, 8), (quick, 8)])
        };
        let first = queue.claim_with(worker.id, NOW, claim()).await;
        assert_eq!((count(&first, slow), count(&first, quick)), (1, 7));
        let second = queue.claim_with(worker.id, NOW, claim()).await;
        assert_eq!((count(&second, slow), count(&second, quick)), (0, 8));
        // The limit delays only the campaign, not its provider.
        assert_eq!(second.next_at, None);
        let next_at = DbMicros::from(after(1));
        let mut waits = second.limited.iter();
        assert!(waits.len() > 0 && waits.all(|(id, at)| id.campaign_id == slow && *at > next_at));
        assert_eq!(queue.count("sending"), 16);
    })
    .await;
}

#[tokio::test]
async fn held_request_takes_its_permit_before_new_messages() {
    on_every_engine(async |queue| {
        let (slow, quick) = slow_and_quick(queue).await;
        let worker = queue.worker().await;
        let claim = ProviderClaim {
            max_messages: 8,
            max_requests: 8,
            held: vec![Reservation {
                lane: LaneId::undivided(slow),
                sender: None,
                cost: PermitCost::of_message(1),
                unused: None,
            }],
            ..claim_of(&[(slow, 4), (quick, 4), (slow, 8), (quick, 8)])
        };
        let claimed = queue.claim_with(worker.id, NOW, claim).await;
        assert!(claimed.held[0].is_some());
        assert_eq!((count(&claimed, slow), count(&claimed, quick)), (0, 8));
    })
    .await;
}

#[tokio::test]
async fn exhausted_account_limit_is_reported_for_the_provider() {
    on_every_engine(async |queue| {
        let spring = queue.queued(5).await;
        limit(queue, spring, "100/s").await;
        let worker = queue.worker().await;
        let claim = || claim_at(NOW, spring, 5, "1/min");
        let first = queue.claim_with(worker.id, NOW, claim()).await;
        assert_eq!((first.rows.len(), first.limited.len()), (1, 0));
        let next_at = first.next_at.expect("the account's next permit");
        assert!(next_at >= after(60).into());
    })
    .await;
}

#[tokio::test]
async fn wider_campaign_limit_holds_at_once() {
    on_every_engine(async |queue| {
        let spring = queue.queued(20).await;
        limit(queue, spring, "1/min").await;
        let worker = queue.worker().await;
        let claimed = async |seconds| {
            let now = after(seconds);
            let claim = claim_at(now, spring, 20, "");
            queue.claim_with(worker.id, now, claim).await.rows.len()
        };
        assert_eq!((claimed(0).await, claimed(1).await), (1, 0));
        limit(queue, spring, "100/s").await;
        assert!((4..=5).contains(&claimed(2).await));
        limit(queue, spring, "").await;
        assert!(claimed(3).await >= 10);
    })
    .await;
}

#[tokio::test]
async fn campaign_of_another_provider_is_not_claimed() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(2).await;
        let claimed = async |provider: &str, is_default| {
            let claim = ProviderClaim {
                provider: provider.to_owned(),
                account: Account::new(provider),
                is_default,
                ..claim_of(&[(spring, 1)])
            };
            let claimed = queue.claim_with(worker.id, NOW, claim).await;
            (claimed.rows.len(), claimed.exhausted)
        };
        let moved = || (0, vec![LaneId::undivided(spring)]);
        assert_eq!(claimed("cellar", false).await, moved());
        let provider = Some("attic".to_owned());
        let changes = CampaignChange { provider: provider.into(), ..CampaignChange::default() };
        change(queue, spring, changes).await;
        assert_eq!(claimed("cellar", true).await, moved());
        assert_eq!(claimed("attic", false).await.0, 1);
    })
    .await;
}

#[tokio::test]
async fn campaign_with_unreadable_limit_sends_nothing() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(60).await;
        limit(queue, spring, "5/s").await;
        let claim = claim_at(NOW, spring, 1, "");
        let claimed = queue.claim_with(worker.id, NOW, claim).await;
        assert_eq!(claimed.rows.len(), 1);
        queue.db.run("UPDATE campaign SET rate = '5/s;20/fortnight' WHERE name = 'spring'");
        // Nor does a request that was claimed before get a new permit.
        let claim = ProviderClaim {
            held: vec![Reservation {
                lane: LaneId::undivided(spring),
                sender: None,
                cost: PermitCost::of_message(1),
                unused: None,
            }],
            ..claim_at(after(60), spring, 20, "")
        };
        let claimed = queue.claim_with(worker.id, after(60), claim).await;
        assert_eq!((claimed.rows.len(), claimed.held), (0, vec![None]));
        assert_eq!(claimed.exhausted, [LaneId::undivided(spring)]);
        let campaign = queue.store.campaign("spring").await.expect("read");
        let campaign = campaign.expect("the campaign");
        assert_eq!(campaign.state, CampaignStatus::Paused);
        let reason = campaign.state_reason.expect("a reason");
        assert!(reason.contains("20/fortnight"), "{reason}");
        limit(queue, spring, "5/s").await;
        let claim = claim_at(after(120), spring, 1, "");
        let claimed = queue.claim_with(worker.id, after(120), claim).await;
        assert_eq!(claimed.rows.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn unreadable_limit_of_a_worker_stops_its_provider_only() {
    on_every_engine(async |queue| {
        let spring = queue.queued(60).await;
        let (worker, newer) = (queue.worker().await, queue.worker().await);
        let set = |limits: &str| {
            let id = newer.id;
            let sql = format!("UPDATE worker SET limits = '{limits}' WHERE id = {id}");
            queue.db.run(&sql);
        };
        let claim = async |now| {
            let claim = claim_at(now, spring, 5, "100/s");
            queue.claim_with(worker.id, now, claim).await
        };
        for limits in [r#"{"cellar":"5/s;20/fortnight"}"#, "no JSON"] {
            set(limits);
            let claimed = claim(NOW).await;
            assert_eq!(claimed.rows.len(), 0, "{limits}");
            let reason = claimed.halted.expect("a reason");
            assert!(reason.contains("cannot be read"), "{reason}");
        }
        set(r#"{"attic":"5/s;20/fortnight"}"#);
        assert_eq!(claim(NOW).await.rows.len(), 5);
        set("no JSON");
        let removed = queue.store.workers().remove(newer.id, &newer.token).await;
        removed.expect("removed");
        assert_eq!(claim(after(10)).await.rows.len(), 5);
    })
    .await;
}

#[tokio::test]
async fn clock_jump_fills_limits_of_campaigns_without_messages_too() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        limit(queue, spring, "5/min").await;
        let worker = queue.worker().await;
        // The worker claims nothing from it.
        let of_nothing = ProviderClaim { lanes: Vec::new(), ..claim_at(NOW, spring, 0, "") };
        let jumped = CommitBatch {
            fill_limits: true,
            claims: vec![of_nothing],
            ..commit_batch(worker.id, NOW)
        };
        queue.store.commit(&jumped).await.expect("filled");
        queue.import(spring, rows(0..20)).await;
        let claimed = async |now| {
            let claim = claim_at(now, spring, 20, "");
            queue.claim_with(worker.id, now, claim).await.rows.len()
        };
        assert_eq!(claimed(after(1)).await, 0);
        assert_eq!(claimed(after(120)).await, 1);
    })
    .await;
}

#[tokio::test]
async fn limit_with_unreadable_usage_counts_as_used_up() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(60).await;
        let claimed = async |now| {
            let claim = claim_at(now, spring, 20, "10/hour");
            queue.claim_with(worker.id, now, claim).await.rows.len()
        };
        assert_eq!(claimed(NOW).await, 10);
        queue.db.run("UPDATE rate_limit SET buckets = '[7'");
        assert_eq!(claimed(after(10)).await, 0);
        assert_eq!(claimed(after(3_600)).await, 0);
        assert_eq!(claimed(after(4_000)).await, 10);
    })
    .await;
}
