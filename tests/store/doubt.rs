//! Messages in doubt: the first doubt is kept, and how long after it a worker sends them again.

use std::time::Duration;

use smsq_lifecycle::resend::ResendRule;
use smsq_lifecycle::transition::REUSED_REFERENCE;
use smsq_lifecycle::{ProviderClaim, Settled, Transition};
use smsq_message::sms::{Class, Sms, Timestamp};
use smsq_store::{Audited, CampaignStatus, Due, ResendReason, RetryFilter, Unknown};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, again, claim_of, failed, failure, on_every_engine, released,
    unknown,
};

const SPAN: Duration = Duration::from_secs(60);

/// Queued again in doubt, as after an attempt at a provider that honours references.
pub(super) fn resend() -> Transition {
    Transition::Ready {
        due_at: NOW,
        failure: Some(failure(Class::Unknown)),
        counted: true,
        in_doubt: true,
    }
}

/// What a worker with this rule claims of the one message.
async fn claim(
    queue: &TestQueue,
    worker_id: i64,
    campaign_id: i64,
    now: Timestamp,
    rule: ResendRule,
) -> Option<Sms> {
    let claim = claim_of(&[(campaign_id, 2)]);
    let claimed = queue.claim_by(worker_id, now, claim, rule).await;
    claimed.rows.into_iter().map(|claimed| claimed.sms).next()
}

#[tokio::test]
async fn resends_do_not_change_the_first_doubt() {
    on_every_engine(async |queue| {
        let (spring, worker, first) = queue.one_claimed().await;
        assert_eq!(first.doubt_since, None);
        queue.settle(&first, resend()).await;
        for (seconds, end) in [(1, resend()), (2, again()), (3, released()), (4, unknown())] {
            let at = after(seconds);
            let sms = claim(queue, worker.id, spring, at, ResendRule::Within(SPAN)).await;
            let sms = sms.expect("within its span");
            assert_eq!((sms.in_doubt, sms.doubt_since), (true, Some(NOW)));
            queue.settle(&sms, end).await;
        }
        assert_eq!(queue.place(first.id), "unknown");
        let requeued = queue.store.requeue_unknown(spring, Some((PROVIDER, NOW)), 0, NOW).await;
        assert_eq!(requeued.expect("none"), 0);
        let before = Some((PROVIDER, NOW.minus(Duration::from_millis(1))));
        let requeued = queue.store.requeue_unknown(spring, before, 0, NOW).await;
        assert_eq!(requeued.expect("one"), 1);
    })
    .await;
}

#[tokio::test]
async fn message_in_doubt_past_its_span_becomes_unknown() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(1).await;
        let within = ResendRule::Within(SPAN);
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, resend()).await;
        let sms = claim(queue, worker.id, spring, after(59), within).await;
        queue.settle(&sms.expect("within"), released()).await;
        let sms = claim(queue, worker.id, spring, after(60), within).await;
        assert_eq!(sms, None);
        assert_eq!(queue.place(1), "unknown");
        assert_eq!(queue.number("attempts", 1), 1, "it was no attempt");
        let class = queue.db.words("SELECT last_class AS value FROM sms");
        assert_eq!(class, [Some("unknown".to_owned())]);
        let requeued = queue.store.requeue_unknown(spring, Some((PROVIDER, NOW)), 0, NOW).await;
        assert_eq!(requeued.expect("none"), 0);
        // A worker of an operator who takes the risk sends it again.
        assert_eq!(queue.requeue_unknown(spring).await, 1);
        let sms = claim(queue, worker.id, spring, after(90), ResendRule::Always).await;
        assert_eq!(sms.expect("it is claimed").doubt_since, Some(NOW));
    })
    .await;
}

#[tokio::test]
async fn worker_without_a_rule_resends_nothing_in_doubt() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(1).await;
        queue.put_in_doubt(worker.id, spring, 1).await;
        let sms = claim(queue, worker.id, spring, NOW, ResendRule::default()).await;
        assert_eq!(sms, None);
        assert_eq!(queue.place(1), "unknown");
    })
    .await;
}

#[tokio::test]
async fn retry_is_approved_until_the_next_doubt() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(1).await;
        let never = ResendRule::Never;
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, unknown()).await;
        let filter = RetryFilter::default();
        let retried = queue.store.retry_unknown(&filter, after(100), Audited::unrecorded()).await;
        assert_eq!(retried.expect("one"), 1);
        // Attempts that were certainly not accepted change nothing.
        for end in [released(), again(), resend()] {
            let sms = claim(queue, worker.id, spring, after(100), never).await;
            let sms = sms.expect("the operator approved it");
            assert!(sms.in_doubt && sms.resend_approved);
            queue.settle(&sms, end).await;
        }
        let sms = claim(queue, worker.id, spring, after(100), never).await;
        assert_eq!(sms, None);
        assert_eq!(queue.place(1), "unknown");
        // The first doubt still counts.
        let since = queue.db.number("SELECT doubt_since AS value FROM sms");
        assert_eq!(since, NOW.as_millis());
    })
    .await;
}

#[tokio::test]
async fn settled_message_keeps_its_first_doubt() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        queue.settle(&sms, unknown()).await;
        let settled =
            queue.store.settle_unknown(spring, false, None, after(1), Audited::unrecorded());
        assert_eq!(settled.await.expect("one"), 1);
        let filter = RetryFilter::default();
        let retried = queue.store.retry_failed(&filter, after(2), Audited::unrecorded()).await;
        assert_eq!(retried.expect("one"), 1);
        let sms = claim(queue, worker.id, spring, after(3), ResendRule::Never).await;
        let sms = sms.expect("the operator approved it");
        assert_eq!((sms.in_doubt, sms.doubt_since), (true, Some(NOW)));
        queue.settle(&sms, resend()).await;
        let sms = claim(queue, worker.id, spring, after(4), ResendRule::Never).await;
        assert_eq!(sms, None);
    })
    .await;
}

#[tokio::test]
async fn end_of_doubt_clears_its_beginning() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        queue.settle(&sms, unknown()).await;
        let store = &queue.store;
        let requeued = store.requeue_message(sms.id, sms.claim, ResendReason::Absent, 0, NOW).await;
        assert!(requeued.expect("requeued"), "the provider never had it");
        let sms = claim(queue, worker.id, spring, after(9), ResendRule::Never).await;
        let sms = sms.expect("it is not in doubt");
        assert_eq!((sms.in_doubt, sms.doubt_since), (false, None));
        queue.settle(&sms, resend()).await;
        let rule = ResendRule::Within(SPAN);
        let sms = claim(queue, worker.id, spring, after(10), rule).await;
        assert_eq!(sms.expect("in doubt").doubt_since, Some(after(9)));
    })
    .await;
}

/// What a lookup is asked for, long after.
async fn to_look_up(queue: &TestQueue, campaign_id: i64, provider: &str) -> Vec<Unknown> {
    let due = Due { campaign_id, provider, by: after(1_000), claimed_by: after(1_000) };
    queue.store.unknown_due(due, 9).await.expect("read")
}

/// Whether a proof puts the message back into the queue.
async fn requeue(queue: &TestQueue, unknown: &Unknown, reason: ResendReason) -> bool {
    let store = &queue.store;
    let requeued = store.requeue_message(unknown.id, unknown.claim, reason, 0, NOW).await;
    requeued.expect("asked")
}

#[tokio::test]
async fn message_retried_and_cancelled_without_an_attempt_is_as_before() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        queue.settle(&sms, unknown()).await;
        let before = to_look_up(queue, spring, PROVIDER).await.remove(0);
        assert_eq!(before.doubt_claim, Some(sms.claim));
        for is_claimed in [false, true] {
            let retried = queue
                .store
                .retry_unknown(&RetryFilter::default(), NOW, Audited::unrecorded())
                .await;
            assert_eq!(retried.expect("one"), 1);
            if is_claimed {
                let again = queue.claim_one(worker.id, spring).await;
                queue.settle(&again, released()).await;
            }
            queue.cancel(spring).await;
            assert_eq!(queue.place(sms.id), "unknown");
            queue.set_state(spring, CampaignStatus::Active).await;
            let now = to_look_up(queue, spring, PROVIDER).await.remove(0);
            assert_eq!(
                (now.unknown_at, now.doubt_since, now.doubt_claim),
                (before.unknown_at, before.doubt_since, before.doubt_claim)
            );
            if is_claimed {
                // The answer to its commit was lost, so it is repeated: it says nothing about the first attempt.
                let repeated = queue.settle_claim(sms.id, now.claim, released()).await;
                assert_eq!(repeated, Settled::Stale);
            }
        }
        let now = to_look_up(queue, spring, PROVIDER).await.remove(0);
        assert!(requeue(queue, &now, ResendReason::NotAccepted).await);
        let again = queue.claim_one(worker.id, spring).await;
        assert!(!again.in_doubt);
    })
    .await;
}

#[tokio::test]
async fn absence_counts_for_all_attempts_and_a_rejection_for_one() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(2).await;
        // The second attempts: one may have been accepted, too, and one was not.
        queue.put_in_doubt(worker.id, spring, 2).await;
        let ends = [unknown(), failed()];
        for (sms, end) in queue.claim(worker.id, spring, 2).await.iter().zip(ends) {
            queue.settle(sms, end).await;
        }
        let several = [None, Some(REUSED_REFERENCE)];
        for (unknown, doubt_claim) in to_look_up(queue, spring, PROVIDER).await.iter().zip(several)
        {
            assert_eq!(unknown.doubt_claim, doubt_claim);
            assert!(unknown.unknown_at.is_some());
            assert!(!requeue(queue, unknown, ResendReason::NotAccepted).await);
            let rejected = Transition::FoundRejected(failure(Class::Recipient));
            let settled = queue.settle_claim(unknown.id, unknown.claim, rejected);
            assert_eq!(settled.await, Settled::Stale);
        }
        let found = to_look_up(queue, spring, PROVIDER).await;
        let absent = Transition::FoundAbsent(failure(Class::Unavailable));
        let settled = queue.settle_claim(found[0].id, found[0].claim, absent);
        assert_eq!(settled.await, Settled::Done);
        assert_eq!(queue.place(found[0].id), "unavailable");
        assert!(requeue(queue, &found[1], ResendReason::Absent).await);
        let sms = queue.claim_one(worker.id, spring).await;
        assert_eq!((sms.in_doubt, sms.doubt_since), (false, None));
    })
    .await;
}

#[tokio::test]
async fn message_settled_as_failed_can_be_found_absent_later() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = queue.one_claimed().await;
        queue.settle(&sms, unknown()).await;
        let settled =
            queue.store.settle_unknown(spring, false, None, after(1), Audited::unrecorded());
        assert_eq!(settled.await.expect("one"), 1);
        let retried = queue
            .store
            .retry_failed(&RetryFilter::default(), after(2), Audited::unrecorded())
            .await;
        assert_eq!(retried.expect("one"), 1);
        queue.cancel(spring).await;
        queue.set_state(spring, CampaignStatus::Active).await;
        assert!(to_look_up(queue, spring, "other").await.is_empty());
        let found = to_look_up(queue, spring, PROVIDER).await.remove(0);
        assert_eq!(found.doubt_since, Some(NOW.as_millis()));
        assert!(!requeue(queue, &found, ResendReason::NotAccepted).await);
        assert!(requeue(queue, &found, ResendReason::Absent).await);
    })
    .await;
}

#[tokio::test]
async fn message_in_doubt_is_not_sent_through_another_provider() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(3).await;
        let within = ResendRule::Within(SPAN);
        let other = || ProviderClaim { provider: "other".to_owned(), ..claim_of(&[(spring, 3)]) };
        // One is queued in doubt, one is unknown, one is not in doubt.
        let ends = [resend(), unknown(), again()];
        for (sms, end) in queue.claim(worker.id, spring, 3).await.iter().zip(ends) {
            queue.settle(sms, end).await;
        }
        let before = NOW.minus(Duration::from_millis(1));
        let honoured = Some(("other", before));
        let requeued = queue.store.requeue_unknown(spring, honoured, 0, NOW).await;
        assert_eq!(requeued.expect("none"), 0);
        let claimed = queue.claim_by(worker.id, after(9), other(), within).await;
        let ids: Vec<i64> = claimed.rows.iter().map(|row| row.sms.id).collect();
        assert_eq!((ids, claimed.refused), (vec![3], 1));
        assert_eq!((queue.place(1), queue.place(2)), ("unknown".to_owned(), "unknown".to_owned()));
        // The other one cannot know what became of them.
        assert!(to_look_up(queue, spring, "other").await.is_empty());
        assert_eq!(to_look_up(queue, spring, PROVIDER).await.len(), 2);
        // That an operator sends them again does not say that another provider may.
        let retry = async |by_any_provider| {
            let filter = RetryFilter { by_any_provider, ..RetryFilter::default() };
            let retried = queue.store.retry_unknown(&filter, NOW, Audited::unrecorded()).await;
            assert_eq!(retried.expect("two"), 2);
            queue.claim_by(worker.id, after(9), other(), within).await
        };
        let claimed = retry(false).await;
        assert_eq!((claimed.rows.len(), claimed.refused), (0, 2));
        assert_eq!(to_look_up(queue, spring, PROVIDER).await.len(), 2);
        // An operator takes the risk: then neither of the two can prove anything.
        let claimed = retry(true).await;
        assert_eq!(claimed.rows.len(), 2);
        for row in &claimed.rows {
            queue.settle(&row.sms, unknown()).await;
        }
        for provider in ["other", PROVIDER] {
            assert!(to_look_up(queue, spring, provider).await.is_empty());
        }
    })
    .await;
}
