//! Messages in doubt: the first doubt is kept, and how long after it a worker sends them again.

use std::time::Duration;

use smsq::queue::Transition;
use smsq::queue::resend::ResendRule;
use smsq::sms::{Class, Sms, Timestamp};
use smsq::store::RetryFilter;

use super::test_queue::{
    NOW, TestQueue, after, again, claim_of, failure, on_every_engine, released, unknown,
};

const SPAN: Duration = Duration::from_secs(60);

/// Queued again in doubt, as after an attempt at a provider that honours references.
fn resend() -> Transition {
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
        let spring = queue.queued(1).await;
        let worker = queue.worker().await;
        let first = queue.claim_one(worker.id, spring).await;
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
        let requeued = queue.store.requeue_unknown(spring, Some(NOW), 0, NOW).await;
        assert_eq!(requeued.expect("none"), 0);
        let before = Some(NOW.minus(Duration::from_millis(1)));
        let requeued = queue.store.requeue_unknown(spring, before, 0, NOW).await;
        assert_eq!(requeued.expect("one"), 1);
    })
    .await;
}

#[tokio::test]
async fn message_in_doubt_past_its_span_becomes_unknown() {
    on_every_engine(async |queue| {
        let spring = queue.queued(1).await;
        let worker = queue.worker().await;
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
        let requeued = queue.store.requeue_unknown(spring, Some(NOW), 0, NOW).await;
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
        let spring = queue.queued(1).await;
        let worker = queue.worker().await;
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
        let spring = queue.queued(1).await;
        let worker = queue.worker().await;
        let never = ResendRule::Never;
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, unknown()).await;
        let filter = RetryFilter::default();
        let retried = queue.store.retry_unknown(&filter, after(100)).await;
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
        let spring = queue.queued(1).await;
        let worker = queue.worker().await;
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, unknown()).await;
        let settled = queue.store.settle_unknown(spring, false, None, after(1));
        assert_eq!(settled.await.expect("one"), 1);
        let filter = RetryFilter::default();
        let retried = queue.store.retry_failed(&filter, after(2)).await;
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
        let spring = queue.queued(1).await;
        let worker = queue.worker().await;
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, unknown()).await;
        let message = (sms.id, sms.claim);
        let requeued = queue.store.requeue_message(message, false, 0, NOW).await;
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
