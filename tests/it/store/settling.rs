//! Settling: what becomes of a claimed message under each fate, while its claim is its own.

use smsq::queue::{Settled, Settlement, Transition};
use smsq::sms::{Acceptance, Class};
use smsq::store::{CampaignStatus, CommitBatch};

use super::desk::{
    Desk, NOW, PROVIDER, after, again, at_every_desk, failed, failure, phone, released, round,
    sent, unknown,
};

async fn cancel(desk: &Desk, campaign_id: i64) {
    let state = CampaignStatus::Cancelled;
    let set = desk.store.set_campaign_state(campaign_id, state, None);
    set.await.expect("cancelled");
}

fn unavailable() -> Transition {
    Transition::Failed(failure(Class::Unavailable))
}

#[tokio::test]
async fn each_fate_has_its_place() {
    at_every_desk(async |desk| {
        let spring = desk.queued(6).await;
        let worker = desk.worker().await;
        let claimed = desk.claim(worker.id, spring, 6).await;
        for (sms, (transition, place, attempts)) in claimed.iter().zip([
            (sent(), "sent", 1),
            (failed(), "recipient", 1),
            (
                Transition::NotAdmitted(failure(Class::Expired)),
                "expired",
                0,
            ),
            (again(), "ready", 1),
            (released(), "ready", 0),
            (unknown(), "unknown", 1),
        ]) {
            assert_eq!(
                desk.settle(sms, transition.clone()).await,
                Settled::Done,
                "{transition:?}"
            );
            assert_eq!(desk.place(sms.id), place, "{transition:?}");
            assert_eq!(desk.number("attempts", sms.id), attempts, "{transition:?}");
            assert_eq!(desk.number("claim", sms.id), 1, "{transition:?}");
            assert_eq!(
                desk.reference(sms.id).as_ref(),
                Some(&sms.reference),
                "{transition:?}"
            );
        }
        let workers = "SELECT count(*) AS value FROM sms WHERE worker_id IS NOT NULL";
        assert_eq!(desk.db.number(workers), 0);
        assert_eq!(desk.keys(), 6);
    })
    .await;
}

#[tokio::test]
async fn the_ledger_keeps_what_the_provider_said() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        let acceptance = Acceptance {
            message_id: Some("SM1".to_owned()),
            segments: Some(3),
            price: Some("0.05 EUR".to_owned()),
        };
        desk.settle(&sms, Transition::Sent(acceptance)).await;
        let row = desk.db.words(
            "SELECT concat_ws('|', provider, message_id, segments, price, accepted, phone, sent_at)
             AS value FROM sms_sent",
        );
        let expected = format!("cellar|SM1|3|0.05 EUR|1|{}|{}", phone(0), NOW.as_millis());
        assert_eq!(row, [Some(expected)]);
    })
    .await;
}

#[tokio::test]
async fn a_row_that_waits_says_why_and_until_when() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        let transition = Transition::Ready {
            due_at: after(60),
            failure: Some(failure(Class::Unavailable).with_code("503")),
            counted: true,
            in_doubt: false,
        };
        desk.settle(&sms, transition).await;
        let row = desk
            .db
            .words("SELECT concat_ws('|', last_class, last_code, last_reason) AS value FROM sms");
        assert_eq!(row, [Some("unavailable|503|because".to_owned())]);
        assert_eq!(
            desk.store.next_due(spring).await.expect("read"),
            Some(after(60))
        );
    })
    .await;
}

#[tokio::test]
async fn what_is_in_doubt_never_fails() {
    at_every_desk(async |desk| {
        let spring = desk.queued(3).await;
        let worker = desk.worker().await;
        for sms in desk.claim(worker.id, spring, 3).await {
            desk.settle(&sms, unknown()).await;
        }
        desk.store
            .requeue_unknown(spring, 0, NOW)
            .await
            .expect("requeued");
        let claimed = desk.claim(worker.id, spring, 3).await;
        assert!(claimed.iter().all(|sms| sms.in_doubt));
        desk.settle(&claimed[0], failed()).await;
        desk.settle(
            &claimed[1],
            Transition::NotAdmitted(failure(Class::Expired)),
        )
        .await;
        desk.settle(&claimed[2], again()).await;
        let places = claimed.iter().map(|sms| desk.place(sms.id));
        assert_eq!(places.collect::<Vec<_>>(), ["unknown", "unknown", "ready"]);
        let attempts = claimed.iter().map(|sms| desk.number("attempts", sms.id));
        assert_eq!(attempts.collect::<Vec<_>>(), [2, 1, 2]);
        let sms = desk.claim_one(worker.id, spring).await;
        assert!(sms.in_doubt, "once in doubt, always in doubt");
        let reason = "SELECT last_class AS value FROM sms WHERE id = 1";
        assert_eq!(desk.db.words(reason), [Some("recipient".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn a_resend_is_marked_as_in_doubt() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        let resend = Transition::Ready {
            due_at: NOW,
            failure: Some(failure(Class::Unknown)),
            counted: true,
            in_doubt: true,
        };
        desk.settle(&sms, resend).await;
        let again = desk.claim_one(worker.id, spring).await;
        assert!(again.in_doubt);
        assert_eq!((again.attempts, again.reference), (1, sms.reference));
    })
    .await;
}

#[tokio::test]
async fn an_attempt_of_an_outage_is_given_back() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        let claimed = desk.claim(worker.id, spring, 2).await;
        desk.settle(&claimed[0], again()).await;
        desk.settle(&claimed[1], unavailable()).await;
        for sms in &claimed {
            assert_eq!(desk.settle(sms, Transition::Refunded).await, Settled::Done);
            assert_eq!(desk.place(sms.id), "ready");
            assert_eq!(desk.number("attempts", sms.id), 0);
            assert_eq!(desk.number("claim", sms.id), 1);
            assert_eq!(desk.reference(sms.id).as_ref(), Some(&sms.reference));
        }
        assert_eq!(desk.store.next_due(spring).await.expect("read"), Some(NOW));
    })
    .await;
}

#[tokio::test]
async fn only_an_outages_attempt_is_given_back_and_only_once() {
    at_every_desk(async |desk| {
        let spring = desk.queued(3).await;
        let worker = desk.worker().await;
        let claimed = desk.claim(worker.id, spring, 3).await;
        desk.settle(&claimed[0], failed()).await;
        desk.settle(&claimed[1], sent()).await;
        desk.settle(&claimed[2], again()).await;
        for sms in &claimed[..2] {
            assert_eq!(desk.settle(sms, Transition::Refunded).await, Settled::Stale);
        }
        assert_eq!(desk.place(claimed[0].id), "recipient");
        let newer = desk.claim_one(worker.id, spring).await;
        let stale = desk.settle(&claimed[2], Transition::Refunded).await;
        assert_eq!(
            (stale, desk.number("attempts", newer.id)),
            (Settled::Stale, 1)
        );
    })
    .await;
}

#[tokio::test]
async fn in_a_cancelled_campaign_what_would_wait_is_cancelled() {
    at_every_desk(async |desk| {
        let spring = desk.queued(5).await;
        let worker = desk.worker().await;
        let claimed = desk.claim(worker.id, spring, 5).await;
        cancel(desk, spring).await;
        desk.settle(&claimed[0], again()).await;
        desk.settle(&claimed[1], released()).await;
        desk.settle(&claimed[2], unknown()).await;
        desk.settle(&claimed[3], sent()).await;
        desk.settle(&claimed[4], failed()).await;
        let places = claimed.iter().map(|sms| desk.place(sms.id));
        let expected = ["cancelled", "cancelled", "unknown", "sent", "recipient"];
        assert_eq!(places.collect::<Vec<_>>(), expected);
        assert_eq!(desk.number("attempts", claimed[0].id), 1);
        assert_eq!(
            desk.keys(),
            3,
            "who was never sent to can be imported again"
        );
    })
    .await;
}

#[tokio::test]
async fn in_a_cancelled_campaign_what_is_in_doubt_becomes_unknown() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        for sms in desk.claim(worker.id, spring, 2).await {
            desk.settle(&sms, unknown()).await;
        }
        desk.store
            .requeue_unknown(spring, 0, NOW)
            .await
            .expect("requeued");
        let claimed = desk.claim(worker.id, spring, 1).await;
        cancel(desk, spring).await;
        desk.settle(&claimed[0], released()).await;
        assert_eq!(
            desk.store
                .cancel_rows(spring, NOW)
                .await
                .expect("cancelled"),
            1
        );
        assert_eq!((desk.count("unknown"), desk.keys()), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn a_refund_puts_nothing_into_a_cancelled_campaigns_queue() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        desk.settle(&sms, unavailable()).await;
        cancel(desk, spring).await;
        desk.settle(&sms, Transition::Refunded).await;
        assert_ne!(desk.place(sms.id), "ready");
    })
    .await;
}

#[tokio::test]
async fn repeated_refund_gives_one_attempt_back() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        for sms in desk.claim(worker.id, spring, 2).await {
            desk.settle(&sms, again()).await;
        }
        let claimed = desk.claim(worker.id, spring, 2).await;
        desk.settle(&claimed[0], again()).await;
        desk.settle(&claimed[1], unavailable()).await;
        for _ in 0..3 {
            for sms in &claimed {
                desk.settle(sms, Transition::Refunded).await;
                assert_eq!(desk.place(sms.id), "ready");
                assert_eq!(desk.number("attempts", sms.id), 1);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn round_settles_more_messages_than_a_statement_holds() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        let settlement = |id, transition| Settlement {
            id,
            claim: 1,
            provider: PROVIDER.to_owned(),
            transition,
        };
        let unknown = (1_000..71_000).map(|id| settlement(id, released()));
        let settling = CommitBatch {
            settlements: unknown.chain([settlement(sms.id, sent())]).collect(),
            ..round(worker.id, NOW)
        };
        let done = desk.store.commit(&settling).await.expect("settled");
        assert_eq!(done.settled.last(), Some(&Settled::Done));
        assert_eq!(desk.place(sms.id), "sent");
    })
    .await;
}

#[tokio::test]
async fn message_with_number_of_failed_one_is_set_aside() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        let sms = desk.claim(worker.id, spring, 1).await.remove(0);
        desk.settle(&sms, failed()).await;
        desk.db.run(&format!(
            "INSERT INTO sms (id, campaign_id, phone, content, due_at)
             VALUES ({}, {spring}, 'nobody', 'x', 0)",
            sms.id
        ));
        let claimed = desk.claim(worker.id, spring, 5).await;
        assert_eq!(claimed.len(), 1, "the other one can be claimed");
        let reason = format!(
            "SELECT last_code AS value FROM sms WHERE id = {} AND state = 2",
            sms.id
        );
        assert_eq!(desk.db.words(&reason), [Some("not_stored".to_owned())]);
        let requeued = desk.store.requeue_unknown(spring, 0, NOW).await;
        assert_eq!(requeued.expect("read"), 0, "nobody sends it unasked");
        desk.db
            .run(&format!("DELETE FROM sms WHERE id = {}", sms.id));
    })
    .await;
}

#[tokio::test]
async fn counts_of_other_programs_do_not_overflow() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        desk.db
            .run("UPDATE sms SET attempts = 2147483647, claim = 9223372036854775807");
        let claimed = desk.claim(worker.id, spring, 2).await;
        assert_eq!(claimed.len(), 2);
        assert_eq!(claimed[0].claim, i64::MAX);
        desk.settle(&claimed[0], again()).await;
        desk.settle(&claimed[1], failed()).await;
        for sms in &claimed {
            assert_eq!(desk.number("attempts", sms.id), 2_000_000_001);
            assert_eq!(desk.number("claim", sms.id), i64::MAX);
        }
    })
    .await;
}
