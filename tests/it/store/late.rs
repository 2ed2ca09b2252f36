//! Late results: the answer to a claim that is no longer the row's. What was accepted is the truth.

use smsq::queue::{Settled, Transition};
use smsq::sms::Sms;
use smsq::store::{CampaignStatus, RetryFilter};

use super::desk::{
    Desk, NOW, again, at_every_desk, failed, failure, released, rows, sent, unknown,
};

/// One message whose claim was parked: the claim, with a campaign and a worker.
async fn parked(desk: &Desk) -> (i64, i64, Sms) {
    let spring = desk.queued(1).await;
    let worker = desk.worker().await;
    let sms = desk.claim_one(worker.id, spring).await;
    let parked = desk.store.park_dead(&worker, "its worker died", NOW).await;
    assert_eq!(parked.expect("parked"), 1);
    (spring, desk.worker().await.id, sms)
}

/// Parked, back in the queue, and claimed again.
async fn sending_again(desk: &Desk) -> (Sms, Sms) {
    let (spring, worker_id, old) = parked(desk).await;
    desk.store
        .requeue_unknown(spring, 0, NOW)
        .await
        .expect("requeued");
    let new = desk.claim_one(worker_id, spring).await;
    assert_eq!((new.claim, new.in_doubt), (2, true));
    (old, new)
}

fn accepted(desk: &Desk) -> i64 {
    desk.db.number("SELECT accepted AS value FROM sms_sent")
}

fn message_ids(desk: &Desk) -> Vec<Option<String>> {
    desk.db.words("SELECT message_id AS value FROM sms_sent")
}

/// Every fate that is no acceptance.
fn refusals() -> [Transition; 6] {
    let refused = Transition::NotAdmitted(failure(smsq::sms::Class::Expired));
    [
        failed(),
        refused,
        again(),
        released(),
        unknown(),
        Transition::Refunded,
    ]
}

#[tokio::test]
async fn a_late_acceptance_counts_where_the_message_is_unknown() {
    at_every_desk(async |desk| {
        let (_, _, sms) = parked(desk).await;
        assert_eq!(desk.settle(&sms, sent()).await, Settled::Late);
        assert_eq!(desk.place(sms.id), "sent");
        assert_eq!((accepted(desk), desk.number("attempts", sms.id)), (1, 1));
        assert_eq!(message_ids(desk), [Some("SM1".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn a_late_acceptance_counts_where_the_message_is_ready() {
    at_every_desk(async |desk| {
        let (spring, worker_id, sms) = parked(desk).await;
        desk.store
            .requeue_unknown(spring, 0, NOW)
            .await
            .expect("requeued");
        assert_eq!(desk.settle(&sms, sent()).await, Settled::Late);
        assert_eq!(desk.place(sms.id), "sent");
        assert!(desk.claim(worker_id, spring, 1).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_late_acceptance_counts_where_the_message_has_failed() {
    at_every_desk(async |desk| {
        let (spring, _, sms) = parked(desk).await;
        let settled = desk.store.settle_unknown(spring, false, None, NOW).await;
        assert_eq!(settled.expect("settled"), 1);
        assert_eq!(desk.place(sms.id), "settled");
        assert_eq!(desk.settle(&sms, sent()).await, Settled::Late);
        assert_eq!((desk.place(sms.id).as_str(), accepted(desk)), ("sent", 1));
        assert_eq!(desk.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn a_late_acceptance_counts_where_the_message_is_cancelled_and_is_remembered() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        let set = desk
            .store
            .set_campaign_state(spring, CampaignStatus::Cancelled, None);
        set.await.expect("cancelled");
        desk.settle(&sms, released()).await;
        assert_eq!((desk.place(sms.id).as_str(), desk.keys()), ("cancelled", 0));
        assert_eq!(desk.settle(&sms, sent()).await, Settled::Late);
        assert_eq!(desk.place(sms.id), "sent");
        assert_eq!(desk.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn a_late_acceptance_is_noted_while_the_message_is_sent_again() {
    for transition in refusals() {
        at_every_desk(async |desk| {
            if transition == Transition::Refunded {
                return;
            }
            let (old, new) = sending_again(desk).await;
            assert_eq!(desk.settle(&old, sent()).await, Settled::Late);
            assert_eq!(desk.place(old.id), "sending");
            assert_eq!(desk.settle(&new, transition.clone()).await, Settled::Done);
            assert_eq!(desk.place(old.id), "sent", "{transition:?}");
            assert_eq!(accepted(desk), 1, "{transition:?}");
            assert_eq!(
                message_ids(desk),
                [Some("SM1".to_owned())],
                "{transition:?}"
            );
        })
        .await;
    }
}

#[tokio::test]
async fn two_acceptances_are_counted_as_two() {
    at_every_desk(async |desk| {
        let (old, new) = sending_again(desk).await;
        desk.settle(&old, sent()).await;
        assert_eq!(desk.settle(&new, sent()).await, Settled::Done);
        assert_eq!((accepted(desk), desk.number("attempts", new.id)), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn an_acceptance_after_the_ledger_has_it_is_counted() {
    at_every_desk(async |desk| {
        let (old, new) = sending_again(desk).await;
        desk.settle(&new, sent()).await;
        assert_eq!(desk.settle(&old, sent()).await, Settled::Late);
        assert_eq!((desk.place(new.id).as_str(), accepted(desk)), ("sent", 2));
        let facts = desk
            .store
            .sent_facts(&[desk.campaign("spring").await])
            .await;
        assert_eq!(facts.expect("facts").repeated, 1);
    })
    .await;
}

#[tokio::test]
async fn a_noted_acceptance_outlives_its_worker() {
    at_every_desk(async |desk| {
        let (old, new) = sending_again(desk).await;
        desk.settle(&old, sent()).await;
        let workers = desk.store.worker_rows().await.expect("workers");
        let parked = desk
            .store
            .park_dead(&workers[0], "its worker died", NOW)
            .await;
        assert_eq!(parked.expect("parked"), 1);
        assert_eq!(desk.place(new.id), "sent");
        assert_eq!((accepted(desk), desk.number("attempts", new.id)), (1, 2));
        assert_eq!(message_ids(desk), [Some("SM1".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn a_noted_acceptance_is_not_sent_again_when_its_claim_was_lost() {
    at_every_desk(async |desk| {
        let (old, new) = sending_again(desk).await;
        desk.settle(&old, sent()).await;
        let workers = desk.store.worker_rows().await.expect("workers");
        let spring = desk.campaign("spring").await;
        let later = super::desk::after(60);
        desk.release(workers[0].id, Vec::new(), later, spring).await;
        assert_eq!((desk.place(new.id).as_str(), accepted(desk)), ("sent", 1));
    })
    .await;
}

#[tokio::test]
async fn a_late_answer_that_is_no_acceptance_changes_nothing() {
    at_every_desk(async |desk| {
        let (spring, worker_id, old) = parked(desk).await;
        let refused = Transition::NotAdmitted(failure(smsq::sms::Class::Expired));
        for transition in [refused, unknown(), Transition::Refunded] {
            assert_eq!(
                desk.settle(&old, transition.clone()).await,
                Settled::Stale,
                "{transition:?}"
            );
        }
        assert_eq!(
            (desk.place(old.id).as_str(), desk.number("attempts", old.id)),
            ("unknown", 1)
        );
        desk.store
            .requeue_unknown(spring, 0, NOW)
            .await
            .expect("requeued");
        let new = desk.claim_one(worker_id, spring).await;
        for transition in refusals() {
            assert_eq!(
                desk.settle(&old, transition.clone()).await,
                Settled::Stale,
                "{transition:?}"
            );
        }
        assert_eq!(desk.place(old.id), "sending");
        desk.settle(&new, sent()).await;
        for transition in refusals() {
            assert_eq!(
                desk.settle(&old, transition.clone()).await,
                Settled::Stale,
                "{transition:?}"
            );
        }
        assert_eq!(accepted(desk), 1);
    })
    .await;
}

#[tokio::test]
async fn late_rejection_of_a_parked_claim_counts() {
    for (transition, place, attempts) in [
        (failed(), "recipient", 1),
        (again(), "ready", 1),
        (released(), "ready", 0),
    ] {
        at_every_desk(async |desk| {
            let (spring, worker_id, sms) = parked(desk).await;
            for settled in [Settled::Done, Settled::Stale] {
                assert_eq!(
                    desk.settle(&sms, transition.clone()).await,
                    settled,
                    "{transition:?}"
                );
                assert_eq!(desk.place(sms.id), place, "{transition:?}");
                assert_eq!(desk.number("attempts", sms.id), attempts, "{transition:?}");
            }
            if place == "ready" {
                assert!(!desk.claim_one(worker_id, spring).await.in_doubt);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn late_rejection_is_stale_where_an_earlier_claim_is_in_doubt() {
    at_every_desk(async |desk| {
        let (old, new) = sending_again(desk).await;
        let workers = desk.store.worker_rows().await.expect("workers");
        let parked = desk
            .store
            .park_dead(&workers[0], "its worker died", NOW)
            .await;
        assert_eq!(parked.expect("parked"), 1);
        for sms in [&old, &new] {
            for transition in refusals() {
                assert_eq!(desk.settle(sms, transition.clone()).await, Settled::Stale);
            }
        }
        assert_eq!(desk.place(new.id), "unknown");
        assert_eq!(desk.number("attempts", new.id), 2);
    })
    .await;
}

#[tokio::test]
async fn late_release_in_a_cancelled_campaign_cancels() {
    at_every_desk(async |desk| {
        let (spring, _, sms) = parked(desk).await;
        let set = desk
            .store
            .set_campaign_state(spring, CampaignStatus::Cancelled, None);
        set.await.expect("cancelled");
        assert_eq!(desk.settle(&sms, released()).await, Settled::Done);
        assert_eq!((desk.place(sms.id).as_str(), desk.keys()), ("cancelled", 0));
        assert_eq!(desk.number("attempts", sms.id), 0);
    })
    .await;
}

#[tokio::test]
async fn a_late_acceptance_stands_after_a_retry_too() {
    at_every_desk(async |desk| {
        let (spring, worker_id, old) = parked(desk).await;
        desk.store
            .settle_unknown(spring, false, None, NOW)
            .await
            .expect("settled");
        let retried = desk.store.retry_failed(&RetryFilter::default(), NOW).await;
        assert_eq!(retried.expect("retried"), 1);
        let new = desk.claim_one(worker_id, spring).await;
        assert_ne!(new.reference, old.reference);
        assert!(new.claim > old.claim);
        assert_eq!(desk.settle(&old, sent()).await, Settled::Late);
        desk.settle(&new, failed()).await;
        assert_eq!(desk.place(new.id), "sent");
    })
    .await;
}

#[tokio::test]
async fn an_answer_for_a_message_that_was_replaced_is_stale() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        desk.settle(&sms, failed()).await;
        let row = super::desk::mended(2, sms.id, &super::desk::phone(0), "hello again");
        assert_eq!(desk.import(spring, vec![row]).await.accepted, 1);
        assert_eq!(desk.settle(&sms, sent()).await, Settled::Stale);
    })
    .await;
}

#[tokio::test]
async fn repeated_late_acceptance_counts_once() {
    at_every_desk(async |desk| {
        let (old, new) = sending_again(desk).await;
        for _ in 0..2 {
            assert_eq!(desk.settle(&old, sent()).await, Settled::Late);
        }
        desk.settle(&new, sent()).await;
        for _ in 0..2 {
            assert_eq!(desk.settle(&new, sent()).await, Settled::Done);
            assert_eq!(desk.settle(&old, sent()).await, Settled::Done);
        }
        assert_eq!((accepted(desk), desk.number("attempts", new.id)), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn acceptances_of_two_claims_count_in_any_order() {
    at_every_desk(async |desk| {
        let (old, new) = sending_again(desk).await;
        desk.settle(&new, unknown()).await;
        assert_eq!(desk.settle(&old, sent()).await, Settled::Late);
        assert_eq!(desk.settle(&old, sent()).await, Settled::Done);
        assert_eq!(accepted(desk), 1);
        assert_eq!(desk.settle(&new, sent()).await, Settled::Late);
        assert_eq!(desk.settle(&new, sent()).await, Settled::Done);
        assert_eq!(accepted(desk), 2);
    })
    .await;
}

#[tokio::test]
async fn late_acceptance_of_failed_message_counts_once() {
    at_every_desk(async |desk| {
        let (spring, _, sms) = parked(desk).await;
        let settled = desk.store.settle_unknown(spring, false, None, NOW).await;
        settled.expect("settled");
        for settled in [Settled::Late, Settled::Done, Settled::Done] {
            assert_eq!(desk.settle(&sms, sent()).await, settled);
        }
        assert_eq!(accepted(desk), 1);
    })
    .await;
}
