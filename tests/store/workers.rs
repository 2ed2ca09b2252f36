//! Workers: heartbeats, messages of dead workers, and lookups of unknown messages.

use std::time::Duration;

use smsq_lifecycle::Settlement;
use smsq_store::{CampaignStatus, CommitBatch, Due, QueuedCampaign, ResendReason, SendingMessage};

use super::test_queue::{
    NOW, PROVIDER, after, again, claim_of, commit_batch, on_every_engine, released, row, rows,
    sent, unknown,
};

#[tokio::test]
async fn worker_is_listed_until_it_is_removed() {
    on_every_engine(async |queue| {
        let first = queue.worker().await;
        let beat = queue.store.workers().heartbeat(first.id, &first.token, after(3)).await;
        assert!(beat.expect("a heartbeat"));
        let rows = queue.store.workers().all().await.expect("workers");
        assert_eq!(rows[0].heartbeat_at, after(3));
        assert_eq!(rows[0].started_at, NOW);
        queue.store.workers().remove(first.id, &first.token).await.expect("removed");
        assert!(
            !queue
                .store
                .workers()
                .heartbeat(first.id, &first.token, after(4))
                .await
                .expect("a result")
        );
        assert!(queue.worker().await.id > first.id, "no id is used again");
    })
    .await;
}

#[tokio::test]
async fn messages_of_a_dead_worker_become_unknown() {
    on_every_engine(async |queue| {
        let (spring, dead) = queue.queued_with_worker(5).await;
        let living = queue.worker().await;
        let held = queue.claim(dead.id, spring, 2).await;
        let others = queue.claim(living.id, spring, 2).await;
        let reclaimed = queue.store.workers().reclaim(&dead, "its worker died", NOW).await;
        assert_eq!(reclaimed.expect("reclaimed"), 2);
        for sms in &held {
            assert_eq!(queue.place(sms.id), "unknown");
            assert_eq!(queue.number("attempts", sms.id), 1);
        }
        assert!(others.iter().all(|sms| queue.place(sms.id) == "sending"));
        let again = queue.store.workers().reclaim(&dead, "its worker died", NOW).await;
        assert_eq!(again.expect("reclaimed"), 0);
        assert!(
            !queue.store.workers().heartbeat(dead.id, &dead.token, NOW).await.expect("a result")
        );
        let reasons = "SELECT DISTINCT last_reason AS value FROM sms WHERE state = 2";
        assert_eq!(queue.db.words(reasons), [Some("its worker died".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn sending_messages_are_listed_by_worker() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(5).await;
        let other = queue.worker().await;
        let held = queue.claim(worker.id, spring, 3).await;
        queue.claim(other.id, spring, 1).await;
        queue.settle(&held[0], sent()).await;
        queue.settle(&held[1], released()).await;
        let rows = queue.store.workers().sending(worker.id).await;
        let expected = SendingMessage {
            id: held[2].id,
            claim: held[2].claim,
            worker_id: Some(worker.id),
            due_at: held[2].due_at,
        };
        assert_eq!(rows.expect("rows"), [expected]);
    })
    .await;
}

#[tokio::test]
async fn worker_with_a_new_heartbeat_is_not_reclaimed() {
    on_every_engine(async |queue| {
        let (_, seen, sms) = queue.one_claimed().await;
        queue.store.workers().heartbeat(seen.id, &seen.token, after(1)).await.expect("a heartbeat");
        let reclaimed = queue.store.workers().reclaim(&seen, "its worker died", NOW).await;
        assert_eq!(reclaimed.expect("a result"), 0);
        assert_eq!(queue.place(sms.id), "sending");
        assert!(
            queue
                .store
                .workers()
                .heartbeat(seen.id, &seen.token, after(2))
                .await
                .expect("a result")
        );
    })
    .await;
}

#[tokio::test]
async fn messages_without_a_worker_become_unknown() {
    on_every_engine(async |queue| {
        let (spring, left) = queue.queued_with_worker(3).await;
        let living = queue.worker().await;
        queue.claim(left.id, spring, 1).await;
        queue.claim(living.id, spring, 1).await;
        queue.store.workers().remove(left.id, &left.token).await.expect("removed");
        let reclaimed = queue.store.workers().reclaim_without_worker(NOW).await;
        assert_eq!(reclaimed.expect("reclaimed"), 1);
        assert_eq!((queue.count("unknown"), queue.count("sending")), (1, 1));
        assert_eq!(queue.store.workers().reclaim_without_worker(NOW).await.expect("none"), 0);
    })
    .await;
}

#[tokio::test]
async fn worker_releases_only_claims_that_it_does_not_know() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(4).await;
        let other = queue.worker().await;
        let mine = queue.claim(worker.id, spring, 2).await;
        let others = queue.claim(other.id, spring, 1).await;
        let early = queue.release(worker.id, Vec::new(), NOW, spring).await;
        assert_eq!(early, 0, "none is older than a lease");
        let known = vec![(mine[0].id, mine[0].claim)];
        assert_eq!(queue.release(worker.id, known, after(31), spring).await, 1);
        assert_eq!(queue.place(mine[0].id), "sending");
        assert_eq!(queue.place(mine[1].id), "ready");
        assert_eq!(queue.number("attempts", mine[1].id), 0, "nothing was started");
        assert_eq!(queue.place(others[0].id), "sending");
        let earlier = vec![(mine[0].id, mine[0].claim - 1)];
        assert_eq!(queue.release(worker.id, earlier, after(31), spring).await, 1);
    })
    .await;
}

#[tokio::test]
async fn released_message_of_cancelled_campaign_is_cancelled() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        queue.set_state(spring, CampaignStatus::Cancelled).await;
        let orphans = queue.release(worker.id, Vec::new(), after(31), spring).await;
        assert_eq!(orphans, 1);
        assert_eq!((queue.place(sms.id).as_str(), queue.keys()), ("cancelled", 0));
    })
    .await;
}

#[tokio::test]
async fn unknown_message_is_looked_up_by_one_worker() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        queue.settle(&sms, unknown()).await;
        let store = &queue.store;
        let due = |by, claimed_by| Due { campaign_id: spring, provider: PROVIDER, by, claimed_by };
        let now = after(60);
        let young = store.unknown_due(due(now, NOW.minus(Duration::from_millis(1))), 9).await;
        assert!(young.expect("none").is_empty(), "it is too young");
        let found = store.unknown_due(due(now, now), 9).await.expect("one");
        assert_eq!((found.len(), found[0].id), (1, sms.id));
        let taken = store.postpone_lookup(&found[0], after(90)).await;
        assert!(taken.expect("taken"));
        let again = store.postpone_lookup(&found[0], after(90)).await;
        assert!(!again.expect("a result"), "another worker has taken it");
        assert!(!store.is_unknown_due(due(now, now)).await.expect("a result"));
        let later = due(after(90), now);
        assert!(store.is_unknown_due(later).await.expect("a result"));
        let acquit = async |claim, most| {
            let done =
                store.requeue_message(sms.id, claim, ResendReason::NotAccepted, most, now).await;
            done.expect("a result")
        };
        assert!(!acquit(sms.claim + 1, 0).await, "that is not its claim");
        assert!(!acquit(sms.claim, 1).await, "it has no attempts left");
        assert!(acquit(sms.claim, 2).await);
        assert!(!acquit(sms.claim, 2).await, "it is unknown no more");
        let claim = super::test_queue::claim_of(&[(spring, 1)]);
        let claimed = queue.claim_with(worker.id, now, claim).await;
        assert!(!claimed.rows[0].sms.in_doubt);
        // What the provider says of the old reference is about the attempt that it did not accept.
        assert_ne!(claimed.rows[0].sms.reference, sms.reference);
    })
    .await;
}

#[tokio::test]
async fn unknown_message_is_requeued_only_after_claimed_after() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        queue.settle(&sms, unknown()).await;
        let requeued = async |since| {
            let done = queue.store.requeue_unknown(spring, Some((PROVIDER, since)), 0, after(60));
            done.await.expect("a result")
        };
        assert_eq!(requeued(after(60)).await, 0);
        assert_eq!(requeued(NOW.minus(Duration::from_millis(1))).await, 1);
        let claim = super::test_queue::claim_of(&[(spring, 1)]);
        let claimed = queue.claim_with(worker.id, after(60), claim).await;
        assert!(claimed.rows[0].sms.in_doubt);
    })
    .await;
}

#[tokio::test]
async fn unknown_messages_are_requeued_while_attempts_are_left() {
    on_every_engine(async |queue| {
        let (spring, worker, first) = queue.one_claimed().await;
        queue.settle(&first, unknown()).await;
        let autumn = queue.campaign("autumn").await;
        assert_eq!(queue.requeue_unknown(autumn).await, 0);
        let limited = queue.store.requeue_unknown(spring, None, 2, after(5));
        assert_eq!(limited.await.expect("one"), 1);
        assert_eq!(queue.store.next_due(spring).await.expect("read"), Some(after(5)));
        let claim = super::test_queue::claim_of(&[(spring, 1)]);
        let second = queue.claim_with(worker.id, after(5), claim).await;
        let second = &second.rows[0].sms;
        assert_eq!((second.in_doubt, second.attempts), (true, 1));
        assert_eq!(second.reference, first.reference);
        queue.settle(second, unknown()).await;
        let limited = queue.store.requeue_unknown(spring, None, 2, NOW);
        assert_eq!(limited.await.expect("none"), 0);
        assert_eq!(queue.requeue_unknown(spring).await, 1);
    })
    .await;
}

#[tokio::test]
async fn campaign_is_finished_without_ready_or_sending_messages() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(1).await;
        // Whether it has ready, sending and unknown messages.
        let states = async || {
            let queued = queue.queued_campaign(spring).await?;
            assert_eq!(queued.campaign.name, "spring");
            Some((queued.ready_at.is_some(), queued.is_sending, queued.has_unknown))
        };
        assert_eq!(states().await, Some((true, false, false)));
        let sms = queue.claim_one(worker.id, spring).await;
        assert_eq!(states().await, Some((false, true, false)));
        queue.settle(&sms, again()).await;
        assert_eq!(states().await, Some((true, false, false)));
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, unknown()).await;
        assert_eq!(states().await, Some((false, false, true)));
        assert_eq!(queue.queued_campaign(queue.campaign("idle").await).await, None);
    })
    .await;
}

#[tokio::test]
async fn messages_of_each_worker_are_counted() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        queue.import(spring, rows(0..3)).await;
        queue.import(spring, vec![row(9)]).await;
        let idle = queue.worker().await;
        let busy = queue.worker().await;
        let claimed = queue.claim(busy.id, spring, 3).await;
        queue.settle(&claimed[0], sent()).await;
        queue.settle(&claimed[1], released()).await;
        let workers = queue.store.report().worker_loads().await.expect("workers");
        let counted: Vec<(i64, u64)> = workers.iter().map(|(one, held)| (one.id, *held)).collect();
        assert_eq!(counted, [(idle.id, 0), (busy.id, 1)]);
    })
    .await;
}

#[tokio::test]
async fn unknown_messages_of_cancelled_campaign_are_not_requeued() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(3).await;
        for sms in queue.claim(worker.id, spring, 2).await {
            queue.settle(&sms, unknown()).await;
        }
        queue.cancel(spring).await;
        let long_ago = smsq_message::sms::Timestamp::from_millis(0);
        assert_eq!(queue.requeue_unknown(spring).await, 0);
        let honoured =
            queue.store.requeue_unknown(spring, Some((PROVIDER, long_ago)), 0, NOW).await;
        assert_eq!(honoured.expect("read"), 0);
        let one = queue.store.requeue_message(1, 1, ResendReason::MayBeSentTwice, 0, NOW).await;
        assert!(!one.expect("read"));
        assert_eq!((queue.count("ready"), queue.count("unknown")), (0, 2));
    })
    .await;
}

#[tokio::test]
async fn requeue_moves_more_than_one_chunk() {
    on_every_engine(async |queue| {
        let spring = queue.queued(2_300).await;
        queue.db.run("UPDATE sms SET state = 2, in_doubt = TRUE WHERE id > 10");
        assert_eq!(queue.requeue_unknown(spring).await, 2_290);
        assert_eq!(queue.count("ready"), 2_300);
    })
    .await;
}

#[tokio::test]
async fn orphans_are_released_among_many_known_messages() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(3).await;
        queue.claim(worker.id, spring, 2).await;
        let known = (2..70_000).map(|id| (id, 1)).collect();
        assert_eq!(queue.release(worker.id, known, after(1), spring).await, 1);
        assert_eq!((queue.count("sending"), queue.count("ready")), (1, 2));
    })
    .await;
}

/// A message that another worker claims and releases is always ready or sending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_that_changes_its_state_is_never_overlooked() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(1).await;
        let (store, peer) = (queue.store.clone(), queue.db.open().await.expect("a store"));
        let looking = tokio::spawn(async move {
            for _ in 0..400 {
                let found = store.queued_campaigns().await.expect("read");
                assert!(found.iter().any(QueuedCampaign::is_unfinished), "it is nowhere");
            }
        });
        while !looking.is_finished() {
            let claiming = CommitBatch {
                claims: vec![claim_of(&[(spring, 1)])],
                ..commit_batch(worker.id, NOW)
            };
            let done = peer.commit(&claiming).await.expect("claimed");
            let claimed = done.claims[0].rows.iter().map(|one| Settlement {
                id: one.sms.id,
                claim: one.sms.claim,
                provider: PROVIDER.to_owned(),
                transition: released(),
            });
            let releasing =
                CommitBatch { settlements: claimed.collect(), ..commit_batch(worker.id, NOW) };
            peer.commit(&releasing).await.expect("released");
        }
        looking.await.expect("it was always somewhere");
    })
    .await;
}
