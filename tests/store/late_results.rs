//! Late results: results of a claim that is not the current one. A late acceptance always counts.

use std::collections::HashMap;

use smsq_lifecycle::{Settled, Settlement, Transition};
use smsq_message::sms::{Acceptance, Sms};
use smsq_store::{Audited, CampaignFilter, CampaignStatus, CommitBatch, RetryFilter};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, again, commit_batch, failed, failure, on_every_engine, released,
    rows, sent, unknown,
};

/// Reclaims the one message of the oldest worker.
async fn reclaim(queue: &TestQueue) {
    let workers = queue.store.workers().all().await.expect("workers");
    let reclaimed = queue.store.workers().reclaim(&workers[0], "its worker died", NOW).await;
    assert_eq!(reclaimed.expect("reclaimed"), 1);
}

/// One message that was reclaimed from its worker: its campaign, a new worker and its claim.
async fn reclaimed(queue: &TestQueue) -> (i64, i64, Sms) {
    let (spring, _, sms) = queue.one_claimed().await;
    reclaim(queue).await;
    (spring, queue.worker().await.id, sms)
}

/// The same, put back into the queue and claimed again.
async fn sending_again(queue: &TestQueue) -> (Sms, Sms) {
    let (spring, worker_id, old) = reclaimed(queue).await;
    queue.requeue_unknown(spring).await;
    let new = queue.claim_one(worker_id, spring).await;
    assert_eq!((new.claim, new.in_doubt), (2, true));
    (old, new)
}

/// Checks that results other than acceptances change nothing.
async fn assert_stale(queue: &TestQueue, sms: &Sms, transitions: &[Transition]) {
    for transition in transitions {
        let settled = queue.settle(sms, transition.clone()).await;
        assert_eq!(settled, Settled::Stale, "{transition:?}");
    }
}

/// Where a message is, and how many of its attempts are counted.
fn place_and_attempts(queue: &TestQueue, sms: &Sms) -> (String, i64) {
    (queue.place(sms.id), queue.number("attempts", sms.id))
}

/// Settles a message as accepted, by what its worker has in memory since the claim.
async fn settle_as_claimed(queue: &TestQueue, worker_id: i64, sms: &Sms) -> Settled {
    let settlement = Settlement {
        id: sms.id,
        claim: sms.claim,
        provider: PROVIDER.to_owned(),
        transition: Transition::Sent(Acceptance::default()),
    };
    let batch = CommitBatch {
        settlements: vec![settlement],
        claimed: HashMap::from([(sms.id, sms.clone())]),
        ..commit_batch(worker_id, NOW)
    };
    let committed = queue.store.commit(&batch).await.expect("a commit");
    committed.settled[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn acceptance_by_the_claim_in_memory_finds_a_changed_row() {
    on_every_engine(async |queue| {
        let (_, worker, sms) = queue.one_claimed().await;
        for repetition in 0..2 {
            // The answer to the first commit may have been lost.
            let settled = settle_as_claimed(queue, worker.id, &sms).await;
            assert_eq!(settled, Settled::Done, "{repetition}");
        }
        assert_eq!((queue.place(sms.id), accepted(queue)), ("sent".to_owned(), 1));
    })
    .await;
    on_every_engine(async |queue| {
        let (_, worker_id, sms) = reclaimed(queue).await;
        let settled = settle_as_claimed(queue, worker_id, &sms).await;
        assert_eq!(settled, Settled::Late);
        assert_eq!((queue.place(sms.id), accepted(queue)), ("sent".to_owned(), 1));
    })
    .await;
}

fn accepted(queue: &TestQueue) -> i64 {
    queue.db.number("SELECT accepted AS value FROM sms_sent")
}

fn message_ids(queue: &TestQueue) -> Vec<Option<String>> {
    queue.db.words("SELECT message_id AS value FROM sms_sent")
}

/// All transitions except acceptances.
fn refusals() -> [Transition; 6] {
    let refused = Transition::NotAdmitted(failure(smsq_message::sms::Class::Expired));
    [failed(), refused, again(), released(), unknown(), Transition::Refunded]
}

#[tokio::test]
async fn late_acceptance_of_unknown_message_counts() {
    on_every_engine(async |queue| {
        let (_, _, sms) = reclaimed(queue).await;
        assert_eq!(queue.settle(&sms, sent()).await, Settled::Late);
        assert_eq!(queue.place(sms.id), "sent");
        assert_eq!((accepted(queue), queue.number("attempts", sms.id)), (1, 1));
        assert_eq!(message_ids(queue), [Some("SM1".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn late_acceptance_of_ready_message_counts() {
    on_every_engine(async |queue| {
        let (spring, worker_id, sms) = reclaimed(queue).await;
        queue.requeue_unknown(spring).await;
        assert_eq!(queue.settle(&sms, sent()).await, Settled::Late);
        assert_eq!(queue.place(sms.id), "sent");
        assert!(queue.claim(worker_id, spring, 1).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn late_acceptance_of_failed_message_counts() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = reclaimed(queue).await;
        assert_eq!(queue.settle_unknown_as_failed(spring).await, 1);
        assert_eq!(queue.place(sms.id), "settled");
        assert_eq!(queue.settle(&sms, sent()).await, Settled::Late);
        assert_eq!((queue.place(sms.id).as_str(), accepted(queue)), ("sent", 1));
        assert_eq!(queue.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn late_acceptance_of_cancelled_message_restores_its_key() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = queue.one_claimed().await;
        queue.set_state(spring, CampaignStatus::Cancelled).await;
        queue.settle(&sms, released()).await;
        assert_eq!((queue.place(sms.id).as_str(), queue.keys()), ("cancelled", 0));
        assert_eq!(queue.settle(&sms, sent()).await, Settled::Late);
        assert_eq!(queue.place(sms.id), "sent");
        assert_eq!(queue.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn late_acceptance_keeps_its_key_from_a_second_cancellation() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = queue.one_claimed().await;
        queue.settle(&sms, again()).await;
        queue.cancel(spring).await;
        assert_eq!(queue.import(spring, rows(0..1)).await.accepted, 1);
        assert_eq!(queue.settle(&sms, sent()).await, Settled::Late);
        assert_eq!(queue.cancel(spring).await, 1);
        assert_eq!(queue.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn late_acceptance_is_noted_while_message_is_sending_again() {
    for transition in refusals() {
        on_every_engine(async |queue| {
            if transition == Transition::Refunded {
                return;
            }
            let (old, new) = sending_again(queue).await;
            assert_eq!(queue.settle(&old, sent()).await, Settled::Late);
            assert_eq!(queue.place(old.id), "sending");
            assert_eq!(queue.settle(&new, transition.clone()).await, Settled::Done);
            assert_eq!(queue.place(old.id), "sent", "{transition:?}");
            assert_eq!(accepted(queue), 1, "{transition:?}");
            assert_eq!(message_ids(queue), [Some("SM1".to_owned())], "{transition:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn two_acceptances_count_as_two() {
    on_every_engine(async |queue| {
        let (old, new) = sending_again(queue).await;
        queue.settle(&old, sent()).await;
        assert_eq!(queue.settle(&new, sent()).await, Settled::Done);
        assert_eq!((accepted(queue), queue.number("attempts", new.id)), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn acceptance_of_sent_message_is_counted() {
    on_every_engine(async |queue| {
        let (old, new) = sending_again(queue).await;
        queue.settle(&new, sent()).await;
        assert_eq!(queue.settle(&old, sent()).await, Settled::Late);
        assert_eq!((queue.place(new.id).as_str(), accepted(queue)), ("sent", 2));
        let spring = queue.campaign("spring").await;
        let sent = queue.store.report().sent(CampaignFilter::One(spring), 0).await.expect("counts");
        assert_eq!(sent.facts.repeated, 1);
    })
    .await;
}

#[tokio::test]
async fn noted_acceptance_counts_after_its_worker_died() {
    on_every_engine(async |queue| {
        let (old, new) = sending_again(queue).await;
        queue.settle(&old, sent()).await;
        reclaim(queue).await;
        assert_eq!(queue.place(new.id), "sent");
        assert_eq!((accepted(queue), queue.number("attempts", new.id)), (1, 2));
        assert_eq!(message_ids(queue), [Some("SM1".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn noted_acceptance_is_not_sent_again_after_lost_claim() {
    on_every_engine(async |queue| {
        let (old, new) = sending_again(queue).await;
        queue.settle(&old, sent()).await;
        let workers = queue.store.workers().all().await.expect("workers");
        let spring = queue.campaign("spring").await;
        let later = super::test_queue::after(60);
        queue.release(workers[0].id, Vec::new(), later, spring).await;
        assert_eq!((queue.place(new.id).as_str(), accepted(queue)), ("sent", 1));
    })
    .await;
}

#[tokio::test]
async fn late_result_without_acceptance_changes_nothing() {
    on_every_engine(async |queue| {
        let (spring, worker_id, old) = reclaimed(queue).await;
        let refused = Transition::NotAdmitted(failure(smsq_message::sms::Class::Expired));
        assert_stale(queue, &old, &[refused, unknown(), Transition::Refunded]).await;
        assert_eq!(place_and_attempts(queue, &old), ("unknown".to_owned(), 1));
        queue.requeue_unknown(spring).await;
        let new = queue.claim_one(worker_id, spring).await;
        assert_stale(queue, &old, &refusals()).await;
        assert_eq!(queue.place(old.id), "sending");
        queue.settle(&new, sent()).await;
        assert_stale(queue, &old, &refusals()).await;
        assert_eq!(accepted(queue), 1);
    })
    .await;
}

#[tokio::test]
async fn late_rejection_of_a_reclaimed_message_counts() {
    for (transition, place, attempts) in
        [(failed(), "recipient", 1), (again(), "ready", 1), (released(), "ready", 0)]
    {
        on_every_engine(async |queue| {
            let (spring, worker_id, sms) = reclaimed(queue).await;
            for settled in [Settled::Done, Settled::Stale] {
                let done = queue.settle(&sms, transition.clone()).await;
                assert_eq!(done, settled, "{transition:?}");
                let expected = (place.to_owned(), attempts);
                assert_eq!(place_and_attempts(queue, &sms), expected, "{transition:?}");
            }
            if place == "ready" {
                assert!(!queue.claim_one(worker_id, spring).await.in_doubt);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn late_rejection_is_stale_if_an_earlier_claim_is_in_doubt() {
    on_every_engine(async |queue| {
        let (old, new) = sending_again(queue).await;
        reclaim(queue).await;
        assert_stale(queue, &old, &refusals()).await;
        assert_stale(queue, &new, &refusals()).await;
        assert_eq!(place_and_attempts(queue, &new), ("unknown".to_owned(), 2));
    })
    .await;
}

#[tokio::test]
async fn late_release_in_a_cancelled_campaign_cancels() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = reclaimed(queue).await;
        queue.set_state(spring, CampaignStatus::Cancelled).await;
        assert_eq!(queue.settle(&sms, released()).await, Settled::Done);
        assert_eq!((queue.place(sms.id).as_str(), queue.keys()), ("cancelled", 0));
        assert_eq!(queue.number("attempts", sms.id), 0);
    })
    .await;
}

#[tokio::test]
async fn late_acceptance_after_a_retry_counts() {
    on_every_engine(async |queue| {
        let (spring, worker_id, old) = reclaimed(queue).await;
        queue.settle_unknown_as_failed(spring).await;
        let retried =
            queue.store.retry_failed(&RetryFilter::default(), NOW, Audited::unrecorded()).await;
        assert_eq!(retried.expect("retried"), 1);
        let new = queue.claim_one(worker_id, spring).await;
        assert_eq!(new.reference, old.reference);
        assert!(new.claim > old.claim);
        assert_eq!(queue.settle(&old, sent()).await, Settled::Late);
        queue.settle(&new, failed()).await;
        assert_eq!(queue.place(new.id), "sent");
    })
    .await;
}

#[tokio::test]
async fn result_for_a_replaced_message_is_stale() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = queue.one_claimed().await;
        queue.settle(&sms, failed()).await;
        let row = super::test_queue::fixed(2, sms.id, &super::test_queue::phone(0), "hello again");
        assert_eq!(queue.import(spring, vec![row]).await.accepted, 1);
        assert_eq!(queue.settle(&sms, sent()).await, Settled::Stale);
    })
    .await;
}

#[tokio::test]
async fn repeated_late_acceptance_counts_once() {
    on_every_engine(async |queue| {
        let (old, new) = sending_again(queue).await;
        for _ in 0..2 {
            assert_eq!(queue.settle(&old, sent()).await, Settled::Late);
        }
        queue.settle(&new, sent()).await;
        for _ in 0..2 {
            assert_eq!(queue.settle(&new, sent()).await, Settled::Done);
            assert_eq!(queue.settle(&old, sent()).await, Settled::Done);
        }
        assert_eq!((accepted(queue), queue.number("attempts", new.id)), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn acceptances_of_two_claims_count_in_any_order() {
    on_every_engine(async |queue| {
        let (old, new) = sending_again(queue).await;
        queue.settle(&new, unknown()).await;
        assert_eq!(queue.settle(&old, sent()).await, Settled::Late);
        assert_eq!(queue.settle(&old, sent()).await, Settled::Done);
        assert_eq!(accepted(queue), 1);
        assert_eq!(queue.settle(&new, sent()).await, Settled::Late);
        assert_eq!(queue.settle(&new, sent()).await, Settled::Done);
        assert_eq!(accepted(queue), 2);
    })
    .await;
}

#[tokio::test]
async fn late_acceptance_of_failed_message_counts_once() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = reclaimed(queue).await;
        queue.settle_unknown_as_failed(spring).await;
        for settled in [Settled::Late, Settled::Done, Settled::Done] {
            assert_eq!(queue.settle(&sms, sent()).await, settled);
        }
        assert_eq!(accepted(queue), 1);
    })
    .await;
}

/// However the newer claim ends: it fails, or its worker dies.
#[tokio::test]
async fn late_acceptance_awaits_the_receipt_of_its_provider() {
    for worker_dies in [false, true] {
        on_every_engine(async |queue| {
            let (old, new) = sending_again(queue).await;
            let late =
                Transition::Sent(Acceptance { awaits_receipt: true, ..Acceptance::default() });
            assert_eq!(queue.settle(&old, late).await, Settled::Late);
            if worker_dies {
                reclaim(queue).await;
            } else {
                queue.settle(&new, failed()).await;
            }
            for (column, expected) in [("provider", PROVIDER), ("delivery_state", "awaiting")] {
                let sql = format!("SELECT {column} AS value FROM sms_sent");
                assert_eq!(queue.db.words(&sql), [Some(expected.to_owned())]);
            }
        })
        .await;
    }
}
