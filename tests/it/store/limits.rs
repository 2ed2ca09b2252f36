//! Shared rate limits, and which campaigns they hold up: several workers, campaigns and providers.

use smsq::limit::{Cost, Reservation};
use smsq::queue::{ProviderClaim, Settlement};
use smsq::rate::Rates;
use smsq::sms::Timestamp;
use smsq::store::{CampaignChange, CommitBatch, ProviderClaimed, ProviderPause, Shortfall};

use super::desk::{Desk, NOW, PROVIDER, after, at_every_desk, claim_of, round, rows, sent};

fn rates(text: &str) -> Rates {
    text.parse().expect("rates")
}

/// A claim for one campaign at an instant, under a worker's own limits.
fn claim_at(now: Timestamp, campaign_id: i64, want: u32, limits: &str) -> ProviderClaim {
    let from_us = now.as_millis() * 1_000;
    ProviderClaim {
        limits: rates(limits).0,
        from_us,
        until_us: from_us + 50_000,
        ..claim_of(&[(campaign_id, want)])
    }
}

async fn change(desk: &Desk, campaign_id: i64, change: CampaignChange) {
    let changed = desk.store.change_campaign(campaign_id, &change).await;
    changed.expect("changed");
}

async fn limit(desk: &Desk, campaign_id: i64, rate: &str) {
    let rate = Some(rates(rate));
    let changes = CampaignChange {
        rate,
        ..CampaignChange::default()
    };
    change(desk, campaign_id, changes).await;
}

fn count(claimed: &ProviderClaimed, campaign_id: i64) -> usize {
    let of_it = claimed.rows.iter();
    of_it
        .filter(|row| row.sms.campaign_id == campaign_id)
        .count()
}

#[tokio::test]
async fn used_up_limit_holds_while_its_worker_is_listed() {
    at_every_desk(async |desk| {
        let spring = desk.queued(60).await;
        let (thrifty, generous) = (desk.worker().await, desk.worker().await);
        let claimed = async |worker_id, now, limits| {
            let claim = claim_at(now, spring, 20, limits);
            desk.claim_route(worker_id, now, claim).await.rows.len()
        };
        assert_eq!(claimed(thrifty.id, NOW, "5/hour").await, 5);
        assert_eq!(claimed(thrifty.id, after(20), "5/hour").await, 0);
        // Long after a lease: it lives, but has nothing more to spend.
        assert_eq!(claimed(generous.id, after(600), "1000/s").await, 0);
        assert_eq!(claimed(generous.id, after(3_590), "1000/s").await, 0);
        let removed = desk.store.remove_worker(thrifty.id).await;
        removed.expect("removed");
        assert_eq!(claimed(generous.id, after(3_591), "1000/s").await, 20);
    })
    .await;
}

#[tokio::test]
async fn limit_of_an_idle_worker_holds_in_short_windows_too() {
    at_every_desk(async |desk| {
        let spring = desk.queued(60).await;
        let (thrifty, generous) = (desk.worker().await, desk.worker().await);
        let claimed = async |worker_id, now, limits| {
            let claim = claim_at(now, spring, 20, limits);
            desk.claim_route(worker_id, now, claim).await.rows.len()
        };
        assert_eq!(claimed(thrifty.id, NOW, "1/min").await, 1);
        assert_eq!(claimed(generous.id, after(120), "1000/s").await, 1);
        assert_eq!(claimed(generous.id, after(150), "1000/s").await, 0);
        // Without a limit of its own, too.
        assert_eq!(claimed(generous.id, after(181), "").await, 1);
        let removed = desk.store.remove_worker(thrifty.id).await;
        removed.expect("removed");
        assert_eq!(claimed(generous.id, after(190), "1000/s").await, 20);
    })
    .await;
}

#[tokio::test]
async fn limit_of_a_worker_binds_only_its_own_provider() {
    at_every_desk(async |desk| {
        let spring = desk.queued(10).await;
        let autumn = desk.campaign("autumn").await;
        desk.import(autumn, rows(20..40)).await;
        let (thrifty, generous) = (desk.worker().await, desk.worker().await);
        let claim = claim_at(NOW, spring, 10, "1/hour");
        let claimed = desk.claim_route(thrifty.id, NOW, claim).await;
        assert_eq!(claimed.rows.len(), 1);
        let elsewhere = ProviderClaim {
            provider: "attic".to_owned(),
            ..claim_at(NOW, autumn, 20, "")
        };
        let claimed = desk.claim_route(generous.id, NOW, elsewhere).await;
        assert_eq!(claimed.rows.len(), 20);
    })
    .await;
}

#[tokio::test]
async fn worker_declared_dead_settles_but_claims_nothing() {
    at_every_desk(async |desk| {
        let spring = desk.queued(3).await;
        let dead = desk.worker().await;
        let sms = desk.claim(dead.id, spring, 1).await.remove(0);
        let parked = desk.store.park_dead(&dead, "it fell silent", NOW).await;
        assert_eq!(parked.expect("parked"), 1);
        let last = CommitBatch {
            settlements: vec![Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: PROVIDER.to_owned(),
                transition: sent(),
            }],
            pauses: vec![ProviderPause {
                provider: PROVIDER.to_owned(),
                until: after(30),
                reason: "429".to_owned(),
            }],
            claims: vec![claim_of(&[(spring, 3)])],
            ..round(dead.id, NOW)
        };
        let done = desk.store.commit(&last).await.expect("a round");
        assert!(done.is_worker_missing);
        assert_eq!(done.claims.len(), 1);
        assert!(done.claims[0].rows.is_empty());
        assert_eq!(desk.place(sms.id), "sent");
        assert_eq!(desk.count("ready"), 2);
        // Its word that the provider rests is kept.
        let other = desk.worker().await;
        let done = desk
            .claim_route(other.id, NOW, claim_of(&[(spring, 3)]))
            .await;
        assert!(done.rows.is_empty());
        assert_eq!(done.next_us, Some(after(30).as_millis() * 1_000));
    })
    .await;
}

/// Two campaigns with messages; the first may send one in a second.
async fn slow_and_quick(desk: &Desk) -> (i64, i64) {
    let slow = desk.queued(50).await;
    let quick = desk.campaign("quick").await;
    desk.import(quick, rows(100..200)).await;
    limit(desk, slow, "1/s").await;
    (slow, quick)
}

#[tokio::test]
async fn exhausted_campaign_limit_leaves_the_claim_to_others() {
    at_every_desk(async |desk| {
        let (slow, quick) = slow_and_quick(desk).await;
        let worker = desk.worker().await;
        let claim = || ProviderClaim {
            max_messages: 8,
            max_requests: 8,
            ..claim_of(&[(slow, 4), (quick, 4), (slow, 8), (quick, 8)])
        };
        let first = desk.claim_route(worker.id, NOW, claim()).await;
        assert_eq!((count(&first, slow), count(&first, quick)), (1, 7));
        let second = desk.claim_route(worker.id, NOW, claim()).await;
        assert_eq!((count(&second, slow), count(&second, quick)), (0, 8));
        // Only the campaign has to wait, not its provider.
        assert_eq!(second.next_us, None);
        let next_us = NOW.as_millis() * 1_000 + 1_000_000;
        let waits = second.limited.iter().map(|(id, at_us)| (*id, *at_us));
        let waits: Vec<(i64, bool)> = waits.map(|(id, at_us)| (id, at_us > next_us)).collect();
        assert!(!waits.is_empty() && waits.iter().all(|one| *one == (slow, true)));
        assert_eq!(desk.count("sending"), 16);
    })
    .await;
}

#[tokio::test]
async fn held_call_takes_its_permit_before_new_rows_are_sought() {
    at_every_desk(async |desk| {
        let (slow, quick) = slow_and_quick(desk).await;
        let worker = desk.worker().await;
        let claim = ProviderClaim {
            max_messages: 8,
            max_requests: 8,
            held: vec![Reservation {
                campaign_id: slow,
                cost: Cost::of_message(1),
                unused_us: None,
            }],
            ..claim_of(&[(slow, 4), (quick, 4), (slow, 8), (quick, 8)])
        };
        let claimed = desk.claim_route(worker.id, NOW, claim).await;
        assert!(claimed.held[0].is_some());
        assert_eq!((count(&claimed, slow), count(&claimed, quick)), (0, 8));
    })
    .await;
}

#[tokio::test]
async fn exhausted_account_limit_is_the_providers() {
    at_every_desk(async |desk| {
        let spring = desk.queued(5).await;
        limit(desk, spring, "100/s").await;
        let worker = desk.worker().await;
        let claim = || claim_at(NOW, spring, 5, "1/min");
        let first = desk.claim_route(worker.id, NOW, claim()).await;
        assert_eq!((first.rows.len(), first.limited.len()), (1, 0));
        let next_us = first.next_us.expect("the account's next moment");
        assert!(next_us >= after(60).as_millis() * 1_000);
    })
    .await;
}

#[tokio::test]
async fn wider_campaign_limit_holds_at_once() {
    at_every_desk(async |desk| {
        let spring = desk.queued(20).await;
        limit(desk, spring, "1/min").await;
        let worker = desk.worker().await;
        let claimed = async |seconds| {
            let now = after(seconds);
            let claim = claim_at(now, spring, 20, "");
            desk.claim_route(worker.id, now, claim).await.rows.len()
        };
        assert_eq!((claimed(0).await, claimed(1).await), (1, 0));
        limit(desk, spring, "100/s").await;
        assert!((4..=5).contains(&claimed(2).await));
        limit(desk, spring, "").await;
        assert!(claimed(3).await >= 10);
    })
    .await;
}

#[tokio::test]
async fn campaign_of_another_provider_is_not_claimed() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        let claimed = async |provider: &str, is_default| {
            let claim = ProviderClaim {
                provider: provider.to_owned(),
                is_default,
                ..claim_of(&[(spring, 1)])
            };
            let claimed = desk.claim_route(worker.id, NOW, claim).await;
            (claimed.rows.len(), claimed.shortfalls)
        };
        let moved = || (0, vec![(spring, Shortfall::Moved)]);
        assert_eq!(claimed("cellar", false).await, moved());
        let provider = Some("attic".to_owned());
        let changes = CampaignChange {
            provider,
            ..CampaignChange::default()
        };
        change(desk, spring, changes).await;
        assert_eq!(claimed("cellar", true).await, moved());
        assert_eq!(claimed("attic", false).await.0, 1);
    })
    .await;
}
