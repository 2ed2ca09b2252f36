//! The attempts of a message that were not accepted: which are kept, and how they are shown to have ended.

use smsq_lifecycle::Transition;
use smsq_message::sms::Class;
use smsq_store::{Audited, FailedAttempt, KEPT_ATTEMPTS, RetryFilter, SmsFilter};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, again, failed, failure, fixed, on_every_engine, phone,
    released, sent, unknown,
};

/// Outcome, class and provider of each attempt of a message, the oldest first.
async fn attempts(queue: &TestQueue, id: i64) -> Vec<[String; 3]> {
    let found = queue.store.failed_attempts(&[id]).await.expect("read");
    let shown = found.into_iter().map(|one| [one.outcome, one.class, one.provider]);
    shown.collect()
}

fn of_provider(ends: &[(&str, Class)]) -> Vec<[String; 3]> {
    let one =
        |(outcome, class): &(&str, Class)| [outcome, class.as_str(), PROVIDER].map(str::to_owned);
    ends.iter().map(one).collect()
}

fn no_attempts() -> Vec<[String; 3]> {
    Vec::new()
}

/// Ready and due again, after an attempt that does not count.
fn uncounted(class: Class) -> Transition {
    Transition::Ready {
        due_at: NOW,
        failure: Some(failure(class)),
        counted: false,
        in_doubt: false,
    }
}

#[tokio::test]
async fn every_attempt_that_was_not_accepted_is_kept() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        queue.settle(&sms, again()).await;
        let found = queue.store.failed_attempts(&[sms.id]).await.expect("read");
        let first = FailedAttempt {
            sms_id: sms.id,
            claim: sms.claim,
            at: NOW,
            provider: PROVIDER.to_owned(),
            outcome: "retry".to_owned(),
            class: "unavailable".to_owned(),
            code: None,
            reason: "because".to_owned(),
            reference: Some(sms.reference.clone()),
        };
        assert_eq!(found, [first]);
        let refused = sms.reference;
        let sms = queue.claim_one(worker.id, spring).await;
        assert_ne!(sms.reference, refused, "the provider may remember it");
        queue.settle(&sms, unknown()).await;
        let both = of_provider(&[("retry", Class::Unavailable), ("unknown", Class::Unknown)]);
        assert_eq!(attempts(queue, sms.id).await, both);
        // What is found out later is not an attempt.
        let absent = Transition::FoundAbsent(failure(Class::Recipient));
        queue.settle(&sms, absent).await;
        assert_eq!(queue.place(sms.id), "recipient");
        assert_eq!(attempts(queue, sms.id).await, both);
        let purge = queue.store.purge_person(&[phone(0)], NOW, Audited::unrecorded()).await;
        purge.expect("purged");
        assert_eq!(attempts(queue, sms.id).await, no_attempts());
    })
    .await;
}

#[tokio::test]
async fn sent_message_keeps_its_earlier_attempts() {
    on_every_engine(async |queue| {
        let (spring, worker, all) = queue.claimed(2).await;
        queue.settle(&all[0], sent()).await;
        assert_eq!(attempts(queue, all[0].id).await, no_attempts());
        queue.settle(&all[1], again()).await;
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, sent()).await;
        let once = of_provider(&[("retry", Class::Unavailable)]);
        assert_eq!(attempts(queue, sms.id).await, once);
    })
    .await;
}

#[tokio::test]
async fn attempts_before_and_after_a_retry_are_kept() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        queue.settle(&sms, uncounted(Class::Throttle)).await;
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, failed()).await;
        let both = of_provider(&[("throttled", Class::Throttle), ("failed", Class::Recipient)]);
        assert_eq!(attempts(queue, sms.id).await, both);
        let all = RetryFilter::default();
        let retried = queue.store.retry_failed(&all, NOW, Audited::unrecorded());
        assert_eq!(retried.await.expect("retried"), 1);
        assert_eq!(attempts(queue, sms.id).await, both);
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, sent()).await;
        assert_eq!(attempts(queue, sms.id).await, both);
        let found = queue.store.report().find_sms(SmsFilter::Id(sms.id), None, 1).await;
        let accepted = found.expect("found").remove(0).accepted_claims();
        assert_eq!(accepted.into_iter().collect::<Vec<_>>(), [sms.claim]);
    })
    .await;
}

#[tokio::test]
async fn only_the_last_attempts_are_kept() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(1).await;
        let kept = i64::from(KEPT_ATTEMPTS);
        let mut last = None;
        for _ in 0..kept + 3 {
            let sms = queue.claim_one(worker.id, spring).await;
            queue.settle(&sms, uncounted(Class::Throttle)).await;
            last = Some(sms);
        }
        let last = last.expect("an attempt");
        let found = queue.store.failed_attempts(&[last.id]).await.expect("read");
        let claims: Vec<i64> = found.iter().map(|one| one.claim).collect();
        let expected: Vec<i64> = (last.claim - kept + 1..=last.claim).collect();
        assert_eq!(claims, expected);
    })
    .await;
}

#[tokio::test]
async fn released_claim_is_not_an_attempt() {
    on_every_engine(async |queue| {
        let (spring, worker, sms) = queue.one_claimed().await;
        queue.settle(&sms, released()).await;
        assert_eq!(attempts(queue, sms.id).await, no_attempts());
        let sms = queue.claim_one(worker.id, spring).await;
        let expired = Transition::NotAdmitted(failure(Class::Expired));
        queue.settle(&sms, expired).await;
        assert_eq!(queue.place(sms.id), "expired");
        assert_eq!(attempts(queue, sms.id).await, no_attempts());
    })
    .await;
}

#[tokio::test]
async fn refunded_attempt_is_shown_as_retried() {
    on_every_engine(async |queue| {
        let (_, _, sms) = queue.one_claimed().await;
        let down = Transition::Failed(failure(Class::Unavailable));
        queue.settle(&sms, down).await;
        let failed = of_provider(&[("failed", Class::Unavailable)]);
        assert_eq!(attempts(queue, sms.id).await, failed);
        queue.settle(&sms, Transition::Refunded).await;
        assert_eq!(queue.place(sms.id), "ready");
        let retried = of_provider(&[("retry", Class::Unavailable)]);
        assert_eq!(attempts(queue, sms.id).await, retried);
    })
    .await;
}

#[tokio::test]
async fn late_result_replaces_that_of_a_dead_worker() {
    on_every_engine(async |queue| {
        let (_, worker, all) = queue.claimed(2).await;
        let reclaimed = queue.store.workers().reclaim(&worker, "it died", after(1)).await;
        assert_eq!(reclaimed.expect("reclaimed"), 2);
        queue.settle(&all[0], again()).await;
        let late = of_provider(&[("retry", Class::Unavailable)]);
        assert_eq!(attempts(queue, all[0].id).await, late);
        // Its one attempt was accepted.
        queue.settle(&all[1], sent()).await;
        let unknown = queue.store.failed_attempts(&[all[1].id]).await;
        let claims: Vec<i64> = unknown.expect("read").iter().map(|one| one.claim).collect();
        let found = queue.store.report().find_sms(SmsFilter::Id(all[1].id), None, 1).await;
        let accepted = found.expect("found").remove(0).accepted_claims();
        assert_eq!(accepted.into_iter().collect::<Vec<_>>(), claims);
    })
    .await;
}

#[tokio::test]
async fn attempt_of_a_dead_worker_has_no_provider() {
    on_every_engine(async |queue| {
        let (_, worker, sms) = queue.one_claimed().await;
        let reclaimed = queue.store.workers().reclaim(&worker, "it died", after(1)).await;
        assert_eq!(reclaimed.expect("reclaimed"), 1);
        let gone = [["unknown", "unknown", ""].map(str::to_owned)];
        assert_eq!(attempts(queue, sms.id).await, gone);
    })
    .await;
}

#[tokio::test]
async fn replaced_message_loses_its_attempts() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = queue.one_claimed().await;
        queue.settle(&sms, failed()).await;
        assert_eq!(attempts(queue, sms.id).await.len(), 1);
        let row = fixed(2, sms.id, &phone(77), "hello");
        queue.import(spring, vec![row]).await;
        assert_eq!(attempts(queue, sms.id).await, no_attempts());
    })
    .await;
}
