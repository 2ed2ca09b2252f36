//! Workers: heartbeats, and what becomes of the messages of the dead.

use std::time::Duration;

use smsq::queue::Settlement;
use smsq::store::{CampaignStatus, CommitBatch, Due, Unfinished};

use super::desk::{
    NOW, PROVIDER, after, again, at_every_desk, claim_of, released, round, row, rows, sent, unknown,
};

#[tokio::test]
async fn a_worker_is_on_the_list_until_it_leaves() {
    at_every_desk(async |desk| {
        let first = desk.worker().await;
        let beat = desk.store.heartbeat(first.id, after(3)).await;
        assert!(beat.expect("a heartbeat"));
        let rows = desk.store.worker_rows().await.expect("workers");
        assert_eq!(rows[0].heartbeat_at, after(3).as_millis());
        assert_eq!(rows[0].started_at, NOW.as_millis());
        desk.store.remove_worker(first.id).await.expect("removed");
        assert!(
            !desk
                .store
                .heartbeat(first.id, after(4))
                .await
                .expect("told")
        );
        assert!(desk.worker().await.id > first.id, "no id is used again");
    })
    .await;
}

#[tokio::test]
async fn what_a_dead_worker_was_sending_is_unknown() {
    at_every_desk(async |desk| {
        let spring = desk.queued(5).await;
        let dead = desk.worker().await;
        let living = desk.worker().await;
        let held = desk.claim(dead.id, spring, 2).await;
        let others = desk.claim(living.id, spring, 2).await;
        let parked = desk.store.park_dead(&dead, "its worker died", NOW).await;
        assert_eq!(parked.expect("parked"), 2);
        for sms in &held {
            assert_eq!(desk.place(sms.id), "unknown");
            assert_eq!(desk.number("attempts", sms.id), 1);
        }
        assert!(others.iter().all(|sms| desk.place(sms.id) == "sending"));
        let again = desk.store.park_dead(&dead, "its worker died", NOW).await;
        assert_eq!(again.expect("parked"), 0);
        assert!(!desk.store.heartbeat(dead.id, NOW).await.expect("told"));
        let reasons = "SELECT DISTINCT last_reason AS value FROM sms WHERE state = 2";
        assert_eq!(desk.db.words(reasons), [Some("its worker died".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn a_worker_whose_heart_has_beaten_meanwhile_is_not_dead() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let seen = desk.worker().await;
        let sms = desk.claim_one(seen.id, spring).await;
        desk.store
            .heartbeat(seen.id, after(1))
            .await
            .expect("a heartbeat");
        let parked = desk.store.park_dead(&seen, "its worker died", NOW).await;
        assert_eq!(parked.expect("told"), 0);
        assert_eq!(desk.place(sms.id), "sending");
        assert!(desk.store.heartbeat(seen.id, after(2)).await.expect("told"));
    })
    .await;
}

#[tokio::test]
async fn what_nobody_on_the_list_is_sending_is_unknown() {
    at_every_desk(async |desk| {
        let spring = desk.queued(3).await;
        let left = desk.worker().await;
        let living = desk.worker().await;
        desk.claim(left.id, spring, 1).await;
        desk.claim(living.id, spring, 1).await;
        desk.store.remove_worker(left.id).await.expect("removed");
        let parked = desk.store.park_nobodys(NOW).await;
        assert_eq!(parked.expect("parked"), 1);
        assert_eq!((desk.count("unknown"), desk.count("sending")), (1, 1));
        assert_eq!(desk.store.park_nobodys(NOW).await.expect("none"), 0);
    })
    .await;
}

#[tokio::test]
async fn a_worker_releases_only_claims_that_it_never_heard_of() {
    at_every_desk(async |desk| {
        let spring = desk.queued(4).await;
        let worker = desk.worker().await;
        let other = desk.worker().await;
        let mine = desk.claim(worker.id, spring, 2).await;
        let others = desk.claim(other.id, spring, 1).await;
        let early = desk.release(worker.id, Vec::new(), NOW, spring).await;
        assert_eq!(early, 0, "none is older than a lease");
        let known = vec![mine[0].id];
        assert_eq!(desk.release(worker.id, known, after(31), spring).await, 1);
        assert_eq!(desk.place(mine[0].id), "sending");
        assert_eq!(desk.place(mine[1].id), "ready");
        assert_eq!(
            desk.number("attempts", mine[1].id),
            0,
            "nothing was started"
        );
        assert_eq!(desk.place(others[0].id), "sending");
    })
    .await;
}

#[tokio::test]
async fn an_orphan_of_a_cancelled_campaign_is_not_left_in_its_queue() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        let cancelled = smsq::store::CampaignStatus::Cancelled;
        let set = desk.store.set_campaign_state(spring, cancelled, None);
        set.await.expect("cancelled");
        let orphans = desk.release(worker.id, Vec::new(), after(31), spring).await;
        assert_eq!(orphans, 1);
        assert_eq!((desk.place(sms.id).as_str(), desk.keys()), ("cancelled", 0));
    })
    .await;
}

#[tokio::test]
async fn an_unknown_message_is_asked_for_by_one_worker_at_a_time_and_acquitted_once() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        desk.settle(&sms, unknown()).await;
        let store = &desk.store;
        let due = |by, claimed_by| Due {
            campaign_id: spring,
            by,
            claimed_by,
        };
        let now = after(60);
        let young = store
            .unknown_due(due(now, NOW.minus(Duration::from_millis(1))), 9)
            .await;
        assert!(young.expect("none").is_empty(), "it is too young");
        let found = store.unknown_due(due(now, now), 9).await.expect("one");
        assert_eq!((found.len(), found[0].id), (1, sms.id));
        let taken = store.postpone_unknown(&found[0], after(90)).await;
        assert!(taken.expect("taken"));
        let again = store.postpone_unknown(&found[0], after(90)).await;
        assert!(!again.expect("told"), "another worker has taken it");
        assert!(!store.is_unknown_due(due(now, now)).await.expect("told"));
        let later = due(after(90), now);
        assert!(store.is_unknown_due(later).await.expect("told"));
        let acquit = async |claim, most| {
            let done = store.ready_unknown((sms.id, claim), false, most, now).await;
            done.expect("told")
        };
        assert!(!acquit(sms.claim + 1, 0).await, "that is not its claim");
        assert!(!acquit(sms.claim, 1).await, "it has no attempts left");
        assert!(acquit(sms.claim, 2).await);
        assert!(!acquit(sms.claim, 2).await, "it is unknown no more");
        let claim = super::desk::claim_of(&[(spring, 1)]);
        let claimed = desk.claim_route(worker.id, now, claim).await;
        assert!(!claimed.rows[0].sms.in_doubt);
        assert_eq!(claimed.rows[0].sms.reference, sms.reference);
    })
    .await;
}

#[tokio::test]
async fn an_unknown_message_is_queued_again_while_its_reference_is_honoured() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        desk.settle(&sms, unknown()).await;
        let requeued = async |since| {
            let done = desk.store.requeue_honoured(spring, since, 0, after(60));
            done.await.expect("told")
        };
        assert_eq!(requeued(after(60)).await, 0);
        assert_eq!(requeued(NOW.minus(Duration::from_millis(1))).await, 1);
        let claim = super::desk::claim_of(&[(spring, 1)]);
        let claimed = desk.claim_route(worker.id, after(60), claim).await;
        assert!(claimed.rows[0].sms.in_doubt);
    })
    .await;
}

#[tokio::test]
async fn unknown_messages_are_queued_again_while_they_have_attempts() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let first = desk.claim_one(worker.id, spring).await;
        desk.settle(&first, unknown()).await;
        let autumn = desk.campaign("autumn").await;
        assert_eq!(
            desk.store
                .requeue_unknown(autumn, 0, NOW)
                .await
                .expect("none"),
            0
        );
        assert_eq!(
            desk.store
                .requeue_unknown(spring, 2, after(5))
                .await
                .expect("one"),
            1
        );
        assert_eq!(
            desk.store.next_due(spring).await.expect("read"),
            Some(after(5))
        );
        let claim = super::desk::claim_of(&[(spring, 1)]);
        let second = desk.claim_route(worker.id, after(5), claim).await;
        let second = &second.rows[0].sms;
        assert_eq!((second.in_doubt, second.attempts), (true, 1));
        assert_eq!(second.reference, first.reference);
        desk.settle(second, unknown()).await;
        assert_eq!(
            desk.store
                .requeue_unknown(spring, 2, NOW)
                .await
                .expect("none"),
            0
        );
        assert_eq!(
            desk.store
                .requeue_unknown(spring, 0, NOW)
                .await
                .expect("one"),
            1
        );
    })
    .await;
}

#[tokio::test]
async fn a_campaign_is_finished_when_nothing_waits_and_nobody_sends() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let unfinished = async || desk.store.unfinished(spring).await.expect("read");
        let ready = Unfinished {
            ready: true,
            sending: false,
        };
        let sending = Unfinished {
            ready: false,
            sending: true,
        };
        assert_eq!(unfinished().await, ready);
        let sms = desk.claim_one(worker.id, spring).await;
        assert_eq!(unfinished().await, sending);
        desk.settle(&sms, again()).await;
        assert_eq!(unfinished().await, ready);
        let sms = desk.claim_one(worker.id, spring).await;
        desk.settle(&sms, unknown()).await;
        assert_eq!(unfinished().await, Unfinished::default());
    })
    .await;
}

#[tokio::test]
async fn what_each_worker_is_sending_is_told() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        desk.import(spring, rows(0..3)).await;
        desk.import(spring, vec![row(9)]).await;
        let idle = desk.worker().await;
        let busy = desk.worker().await;
        let claimed = desk.claim(busy.id, spring, 3).await;
        desk.settle(&claimed[0], sent()).await;
        desk.settle(&claimed[1], released()).await;
        let workers = desk.store.workers().await.expect("workers");
        let told: Vec<(i64, u64)> = workers.iter().map(|(one, held)| (one.id, *held)).collect();
        assert_eq!(told, [(idle.id, 0), (busy.id, 1)]);
    })
    .await;
}

#[tokio::test]
async fn unknown_messages_stay_in_a_cancelled_campaign() {
    at_every_desk(async |desk| {
        let spring = desk.queued(3).await;
        let worker = desk.worker().await;
        for sms in desk.claim(worker.id, spring, 2).await {
            desk.settle(&sms, unknown()).await;
        }
        let cancelled = CampaignStatus::Cancelled;
        let set = desk.store.set_campaign_state(spring, cancelled, None);
        set.await.expect("cancelled");
        desk.store
            .cancel_rows(spring, NOW)
            .await
            .expect("cancelled");
        let long_ago = smsq::sms::Timestamp::from_millis(0);
        let requeued = desk.store.requeue_unknown(spring, 0, NOW).await;
        assert_eq!(requeued.expect("read"), 0);
        let honoured = desk.store.requeue_honoured(spring, long_ago, 0, NOW).await;
        assert_eq!(honoured.expect("read"), 0);
        assert!(
            !desk
                .store
                .ready_unknown((1, 1), true, 0, NOW)
                .await
                .expect("read")
        );
        assert_eq!((desk.count("ready"), desk.count("unknown")), (0, 2));
    })
    .await;
}

#[tokio::test]
async fn requeue_moves_more_than_one_chunk() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2_300).await;
        desk.db
            .run("UPDATE sms SET state = 2, in_doubt = TRUE WHERE id > 10");
        let requeued = desk.store.requeue_unknown(spring, 0, NOW).await;
        assert_eq!(requeued.expect("requeued"), 2_290);
        assert_eq!(desk.count("ready"), 2_300);
    })
    .await;
}

#[tokio::test]
async fn orphans_are_released_however_many_messages_are_known() {
    at_every_desk(async |desk| {
        let spring = desk.queued(3).await;
        let worker = desk.worker().await;
        desk.claim(worker.id, spring, 2).await;
        let known = (2..70_000).collect();
        assert_eq!(desk.release(worker.id, known, after(1), spring).await, 1);
        assert_eq!((desk.count("sending"), desk.count("ready")), (1, 2));
    })
    .await;
}

/// A message that another worker claims and puts back is always in one of the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_sees_a_message_that_changes_its_state() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let (store, peer) = (desk.store.clone(), desk.db.open().await.expect("a store"));
        let looking = tokio::spawn(async move {
            for _ in 0..400 {
                let found = store.unfinished(spring).await.expect("read");
                assert!(found.ready || found.sending, "it is nowhere");
            }
        });
        while !looking.is_finished() {
            let claiming = CommitBatch {
                claims: vec![claim_of(&[(spring, 1)])],
                ..round(worker.id, NOW)
            };
            let done = peer.commit(&claiming).await.expect("claimed");
            let claimed = done.claims[0].rows.iter().map(|one| Settlement {
                id: one.sms.id,
                claim: one.sms.claim,
                provider: PROVIDER.to_owned(),
                transition: released(),
            });
            let releasing = CommitBatch {
                settlements: claimed.collect(),
                ..round(worker.id, NOW)
            };
            peer.commit(&releasing).await.expect("released");
        }
        looking.await.expect("it was always somewhere");
    })
    .await;
}
