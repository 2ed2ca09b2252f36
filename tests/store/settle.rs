//! Settlements: what each transition does to a message with the same claim.

use smsq_lifecycle::{Settled, Settlement, Transition};
use smsq_message::sms::{Acceptance, Class, Sms};
use smsq_store::{Audited, CampaignStatus, CommitBatch, ResendReason, RetryFilter};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, again, claim_of, commit_batch, failed, failure,
    on_every_engine, phone, released, sent, unknown,
};

fn unavailable() -> Transition {
    Transition::Failed(failure(Class::Unavailable))
}

#[tokio::test]
async fn each_transition_moves_to_its_table() {
    on_every_engine(async |queue| {
        let (_, _, claimed) = queue.claimed(6).await;
        for (sms, (transition, place, attempts)) in claimed.iter().zip([
            (sent(), "sent", 1),
            (failed(), "recipient", 1),
            (Transition::NotAdmitted(failure(Class::Expired)), "expired", 0),
            (again(), "ready", 1),
            (released(), "ready", 0),
            (unknown(), "unknown", 1),
        ]) {
            assert_eq!(
                queue.settle(sms, transition.clone()).await,
                Settled::Done,
                "{transition:?}"
            );
            assert_eq!(queue.place(sms.id), place, "{transition:?}");
            assert_eq!(queue.number("attempts", sms.id), attempts, "{transition:?}");
            assert_eq!(queue.number("claim", sms.id), 1, "{transition:?}");
            // What was refused gets another reference with its next claim.
            let is_kept = transition != again();
            assert_eq!(
                queue.reference(sms.id).as_ref(),
                is_kept.then_some(&sms.reference),
                "{transition:?}"
            );
        }
        let workers = "SELECT count(*) AS value FROM sms WHERE worker_id IS NOT NULL";
        assert_eq!(queue.db.number(workers), 0);
        assert_eq!(queue.keys(), 6);
    })
    .await;
}

#[tokio::test]
async fn sent_row_keeps_the_providers_answer() {
    on_every_engine(async |queue| {
        let (_, _, sms) = queue.one_claimed().await;
        let acceptance = Acceptance {
            message_id: Some("SM1".to_owned()),
            segments: Some(3),
            price: Some("0.05 EUR".to_owned()),
            awaits_receipt: false,
        };
        queue.settle(&sms, Transition::Sent(acceptance)).await;
        let row = queue.db.words(
            "SELECT concat_ws('|', provider, message_id, segments, price, accepted, phone, sent_at)
             AS value FROM sms_sent",
        );
        let expected = format!("cellar|SM1|3|0.05 EUR|1|{}|{}", phone(0), NOW.as_millis());
        assert_eq!(row, [Some(expected)]);
    })
    .await;
}

#[tokio::test]
async fn requeued_message_has_reason_and_due_time() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = queue.one_claimed().await;
        let transition = Transition::Ready {
            due_at: after(60),
            failure: Some(failure(Class::Unavailable).with_code("503")),
            counted: true,
            in_doubt: false,
        };
        queue.settle(&sms, transition).await;
        let row = queue
            .db
            .words("SELECT concat_ws('|', last_class, last_code, last_reason) AS value FROM sms");
        assert_eq!(row, [Some("unavailable|503|because".to_owned())]);
        assert_eq!(queue.store.next_due(spring).await.expect("read"), Some(after(60)));
    })
    .await;
}

#[tokio::test]
async fn message_in_doubt_never_fails() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(3).await;
        queue.put_in_doubt(worker.id, spring, 3).await;
        let claimed = queue.claim(worker.id, spring, 3).await;
        assert!(claimed.iter().all(|sms| sms.in_doubt));
        queue.settle(&claimed[0], failed()).await;
        queue.settle(&claimed[1], Transition::NotAdmitted(failure(Class::Expired))).await;
        queue.settle(&claimed[2], again()).await;
        let places = claimed.iter().map(|sms| queue.place(sms.id));
        assert_eq!(places.collect::<Vec<_>>(), ["unknown", "unknown", "ready"]);
        let attempts = claimed.iter().map(|sms| queue.number("attempts", sms.id));
        assert_eq!(attempts.collect::<Vec<_>>(), [2, 1, 2]);
        let sms = queue.claim_one(worker.id, spring).await;
        assert!(sms.in_doubt, "once in doubt, always in doubt");
        let reason = "SELECT last_class AS value FROM sms WHERE id = 1";
        assert_eq!(queue.db.words(reason), [Some("recipient".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn resend_is_in_doubt() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        let resend = Transition::Ready {
            due_at: NOW,
            failure: Some(failure(Class::Unknown)),
            counted: true,
            in_doubt: true,
        };
        queue.settle(&sms, resend).await;
        let again = queue.claim_one(worker.id, spring).await;
        assert!(again.in_doubt);
        assert_eq!((again.attempts, again.reference), (1, sms.reference));
    })
    .await;
}

#[tokio::test]
async fn attempt_of_an_outage_is_refunded() {
    on_every_engine(async |queue| {
        let (spring, _, claimed) = queue.claimed(2).await;
        queue.settle(&claimed[0], again()).await;
        queue.settle(&claimed[1], unavailable()).await;
        for sms in &claimed {
            assert_eq!(queue.settle(sms, Transition::Refunded).await, Settled::Done);
            assert_eq!(queue.place(sms.id), "ready");
            assert_eq!(queue.number("attempts", sms.id), 0);
            assert_eq!(queue.number("claim", sms.id), 1);
            assert_eq!(queue.reference(sms.id), None, "it was refused");
        }
        assert_eq!(queue.store.next_due(spring).await.expect("read"), Some(NOW));
    })
    .await;
}

#[tokio::test]
async fn only_attempts_of_an_outage_are_refunded_once() {
    on_every_engine(async |queue| {
        let (spring, worker, claimed) = queue.claimed(3).await;
        queue.settle(&claimed[0], failed()).await;
        queue.settle(&claimed[1], sent()).await;
        queue.settle(&claimed[2], again()).await;
        for sms in &claimed[..2] {
            assert_eq!(queue.settle(sms, Transition::Refunded).await, Settled::Stale);
        }
        assert_eq!(queue.place(claimed[0].id), "recipient");
        let newer = queue.claim_one(worker.id, spring).await;
        let stale = queue.settle(&claimed[2], Transition::Refunded).await;
        assert_eq!((stale, queue.number("attempts", newer.id)), (Settled::Stale, 1));
    })
    .await;
}

#[tokio::test]
async fn requeued_message_of_cancelled_campaign_is_cancelled() {
    on_every_engine(async |queue| {
        let (spring, _, claimed) = queue.claimed(5).await;
        queue.set_state(spring, CampaignStatus::Cancelled).await;
        queue.settle(&claimed[0], again()).await;
        queue.settle(&claimed[1], released()).await;
        queue.settle(&claimed[2], unknown()).await;
        queue.settle(&claimed[3], sent()).await;
        queue.settle(&claimed[4], failed()).await;
        let places = claimed.iter().map(|sms| queue.place(sms.id));
        let expected = ["cancelled", "cancelled", "unknown", "sent", "recipient"];
        assert_eq!(places.collect::<Vec<_>>(), expected);
        assert_eq!(queue.number("attempts", claimed[0].id), 1);
        assert_eq!(queue.keys(), 3, "who was never sent to can be imported again");
    })
    .await;
}

#[tokio::test]
async fn doubtful_message_of_cancelled_campaign_becomes_unknown() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(2).await;
        queue.put_in_doubt(worker.id, spring, 2).await;
        let claimed = queue.claim(worker.id, spring, 1).await;
        queue.set_state(spring, CampaignStatus::Cancelled).await;
        queue.settle(&claimed[0], released()).await;
        assert_eq!(queue.store.cancel_rows(spring, NOW).await.expect("cancelled"), 1);
        assert_eq!((queue.count("unknown"), queue.keys()), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn refund_in_a_cancelled_campaign_queues_nothing() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = queue.one_claimed().await;
        queue.settle(&sms, unavailable()).await;
        queue.set_state(spring, CampaignStatus::Cancelled).await;
        queue.settle(&sms, Transition::Refunded).await;
        assert_ne!(queue.place(sms.id), "ready");
    })
    .await;
}

#[tokio::test]
async fn repeated_refund_counts_once() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(2).await;
        for sms in queue.claim(worker.id, spring, 2).await {
            queue.settle(&sms, again()).await;
        }
        let claimed = queue.claim(worker.id, spring, 2).await;
        queue.settle(&claimed[0], again()).await;
        queue.settle(&claimed[1], unavailable()).await;
        for _ in 0..3 {
            for sms in &claimed {
                queue.settle(sms, Transition::Refunded).await;
                assert_eq!(queue.place(sms.id), "ready");
                assert_eq!(queue.number("attempts", sms.id), 1);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn commit_settles_more_messages_than_one_statement() {
    on_every_engine(async |queue| {
        let (_, worker, sms) = queue.one_claimed().await;
        let settlement =
            |id, transition| Settlement { id, claim: 1, provider: PROVIDER.to_owned(), transition };
        let unknown = (1_000..71_000).map(|id| settlement(id, released()));
        let settling = CommitBatch {
            settlements: unknown.chain([settlement(sms.id, sent())]).collect(),
            ..commit_batch(worker.id, NOW)
        };
        let done = queue.store.commit(&settling).await.expect("settled");
        assert_eq!(done.settled.last(), Some(&Settled::Done));
        assert_eq!(queue.place(sms.id), "sent");
    })
    .await;
}

#[tokio::test]
async fn message_with_id_of_a_failed_one_becomes_unknown() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(2).await;
        let sms = queue.claim(worker.id, spring, 1).await.remove(0);
        queue.settle(&sms, failed()).await;
        queue.db.run(&format!(
            "INSERT INTO sms (id, campaign_id, phone, content, due_at)
             VALUES ({}, {spring}, 'nothing', 'x', 0)",
            sms.id
        ));
        let claimed = queue.claim(worker.id, spring, 5).await;
        assert_eq!(claimed.len(), 1, "the other one can be claimed");
        let reason =
            format!("SELECT last_code AS value FROM sms WHERE id = {} AND state = 2", sms.id);
        assert_eq!(queue.db.words(&reason), [Some("not_stored".to_owned())]);
        let requeued = queue.requeue_unknown(spring).await;
        assert_eq!(requeued, 0, "it is not sent automatically");
        queue.db.run(&format!("DELETE FROM sms WHERE id = {}", sms.id));
    })
    .await;
}

#[tokio::test]
async fn counts_of_other_programs_do_not_overflow() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(2).await;
        queue.db.run("UPDATE sms SET attempts = 2147483647, claim = 9223372036854775807");
        let claimed = queue.claim(worker.id, spring, 2).await;
        assert_eq!(claimed.len(), 2);
        assert_eq!(claimed[0].claim, i64::MAX);
        queue.settle(&claimed[0], again()).await;
        queue.settle(&claimed[1], failed()).await;
        for sms in &claimed {
            assert_eq!(queue.number("attempts", sms.id), 2_000_000_001);
            assert_eq!(queue.number("claim", sms.id), i64::MAX);
        }
    })
    .await;
}

/// A message whose first attempt is unknown, and which is claimed a second time, in doubt.
async fn second_attempt_in_doubt(queue: &TestQueue) -> (i64, Sms) {
    let (spring, worker) = queue.queued_with_worker(1).await;
    queue.put_in_doubt(worker.id, spring, 1).await;
    (spring, queue.claim_one(worker.id, spring).await)
}

#[tokio::test]
async fn suppressed_message_in_doubt_stays_unknown() {
    on_every_engine(async |queue| {
        let (spring, worker, first) = queue.one_claimed().await;
        queue.settle(&first, unknown()).await;
        let listed = queue
            .store
            .suppression()
            .add(vec![(phone(0), None)], NOW, &mut Audited::unrecorded())
            .await;
        assert_eq!(listed.expect("listed"), 1);
        // An operator sends it again, or a provider that honours references does.
        for _ in 0..3 {
            let all = RetryFilter::default();
            let retried = queue.store.retry_unknown(&all, NOW, Audited::unrecorded()).await;
            assert_eq!(retried.expect("retried"), 1);
            let claim = claim_of(&[(spring, 1)]);
            let claimed = queue.claim_with(worker.id, NOW, claim).await;
            assert_eq!((claimed.rows.len(), claimed.refused), (0, 1));
            assert_eq!(queue.place(first.id), "unknown");
        }
        // No worker queues it again: it would not be admitted, for ever.
        assert_eq!(queue.requeue_unknown(spring).await, 0);
        // A lookup finds that it was never accepted: then it fails.
        let claim = queue.number("claim", first.id);
        let store = &queue.store;
        let requeued = store.requeue_message(first.id, claim, ResendReason::Absent, 0, NOW);
        assert!(requeued.await.expect("asked"));
        let claimed = queue.claim_with(worker.id, NOW, claim_of(&[(spring, 1)])).await;
        assert_eq!((claimed.rows.len(), claimed.refused), (0, 1));
        assert_eq!(queue.place(first.id), "suppressed");
    })
    .await;
}

#[tokio::test]
async fn rejected_resend_of_a_message_in_doubt_is_unknown() {
    on_every_engine(async |queue| {
        let (spring, sms) = second_attempt_in_doubt(queue).await;
        assert_eq!(queue.settle(&sms, failed()).await, Settled::Done);
        assert_eq!(queue.place(sms.id), "unknown");
        // Neither a lookup nor a receipt of this attempt says anything about the first one.
        let found = Transition::FoundRejected(failure(Class::Recipient));
        assert_eq!(queue.settle(&sms, found).await, Settled::Stale);
        let reason = ResendReason::NotAccepted;
        let requeued = queue.store.requeue_message(sms.id, sms.claim, reason, 0, NOW).await;
        assert!(!requeued.expect("asked"));
        assert_eq!(queue.place(sms.id), "unknown");
        queue.cancel(spring).await;
        assert_eq!(queue.place(sms.id), "unknown");
    })
    .await;
}

#[tokio::test]
async fn retry_of_a_message_settled_as_failed_is_in_doubt() {
    on_every_engine(async |queue| {
        let (spring, sms) = second_attempt_in_doubt(queue).await;
        queue.settle(&sms, unknown()).await;
        assert_eq!(queue.settle_unknown_as_failed(spring).await, 1);
        assert_eq!(queue.place(sms.id), "settled");
        let retried =
            queue.store.retry_failed(&RetryFilter::default(), NOW, Audited::unrecorded()).await;
        assert_eq!(retried.expect("retried"), 1);
        let worker = queue.worker().await;
        let again = queue.claim_one(worker.id, spring).await;
        assert_eq!(again.reference, sms.reference);
        assert_eq!(queue.settle(&again, failed()).await, Settled::Done);
        assert_eq!(queue.place(sms.id), "unknown");
    })
    .await;
}

#[tokio::test]
async fn unknown_message_is_looked_up_whenever_it_was_due() {
    on_every_engine(async |queue| {
        let (spring, sms) = second_attempt_in_doubt(queue).await;
        // Until its window opens, or until a late retry.
        let wait = Transition::wait_until(after(1_000_000));
        queue.settle(&sms, wait).await;
        queue.cancel(spring).await;
        assert_eq!(queue.place(sms.id), "unknown");
        let due = queue.db.number("SELECT due_at AS value FROM sms");
        assert_eq!(due, NOW.as_millis());
    })
    .await;
}
