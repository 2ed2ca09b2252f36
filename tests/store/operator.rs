//! The operator's commands: retry, settle and cancel, by filters and in chunks.

use smsq_lifecycle::Transition;
use smsq_message::sms::{Class, Sms};
use smsq_message::text::messages;
use smsq_operations::{Actor, retry_failed};
use smsq_store::{Audited, CampaignStatus, RetryFilter};

use super::test_queue::{
    NOW, TestQueue, after, claim_of, failed, failure, on_every_engine, phone, rows, sent, unknown,
};

/// More than one chunk.
const MANY: u64 = 2_300;

/// A campaign whose messages were all settled with this transition.
async fn all(queue: &TestQueue, count: u64, transition: Transition) -> (i64, Vec<Sms>) {
    let (spring, worker) = queue.queued_with_worker(count).await;
    let claimed = queue.claim(worker.id, spring, 10_000).await;
    let commit = smsq_store::CommitBatch {
        settlements: claimed
            .iter()
            .map(|sms| smsq_lifecycle::Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: super::test_queue::PROVIDER.to_owned(),
                transition: transition.clone(),
            })
            .collect(),
        ..super::test_queue::commit_batch(worker.id, NOW)
    };
    let done = queue.store.commit(&commit).await;
    done.expect("settled");
    (spring, claimed)
}

async fn retried(queue: &TestQueue, filter: &RetryFilter) -> u64 {
    let retried = queue.store.retry_failed(filter, NOW, Audited::unrecorded()).await;
    retried.expect("retried")
}

#[tokio::test]
async fn retry_has_a_new_reference() {
    on_every_engine(async |queue| {
        let (spring, old) = all(queue, 1, failed()).await;
        assert_eq!(retried(queue, &RetryFilter::default()).await, 1);
        let worker = queue.worker().await;
        let new = queue.claim_one(worker.id, spring).await;
        assert_eq!((new.id, new.attempts, new.claim), (old[0].id, 0, 2));
        assert_ne!(new.reference, old[0].reference);
        assert!(!new.in_doubt);
        assert_eq!(queue.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn retry_moves_every_chunk_of_failed_messages() {
    on_every_engine(async |queue| {
        let (spring, _) = all(queue, MANY, failed()).await;
        assert_eq!(retried(queue, &RetryFilter::default()).await, MANY);
        assert_eq!(retried(queue, &RetryFilter::default()).await, 0);
        assert_eq!(queue.cancel(spring).await, MANY);
        assert_eq!(queue.cancel(spring).await, 0);
        assert_eq!(queue.keys(), 0);
        queue.set_state(spring, CampaignStatus::Active).await;
        let cancelled = RetryFilter { class: Some(Class::Cancelled), ..RetryFilter::default() };
        assert_eq!(retried(queue, &cancelled).await, MANY);
    })
    .await;
}

#[tokio::test]
async fn retry_moves_every_chunk_of_unknown_messages() {
    on_every_engine(async |queue| {
        let (spring, _) = all(queue, MANY, unknown()).await;
        let moved =
            queue.store.retry_unknown(&RetryFilter::default(), NOW, Audited::unrecorded()).await;
        assert_eq!(moved.expect("retried"), MANY);
        assert_eq!(queue.cancel(spring).await, MANY, "all in doubt");
        assert_eq!(queue.count("unknown"), i64::try_from(MANY).expect("a count"));
        let settled =
            queue.store.settle_unknown(spring, true, None, NOW, Audited::unrecorded()).await;
        assert_eq!(settled.expect("settled"), MANY);
    })
    .await;
}

#[tokio::test]
async fn retry_selects_messages_by_filter() {
    on_every_engine(async |queue| {
        let spring = queue.queued(4).await;
        let autumn = queue.campaign("autumn").await;
        queue.import(autumn, rows(10..11)).await;
        let worker = queue.worker().await;
        let transitions = [
            Transition::Failed(failure(Class::Recipient).with_code("21211")),
            Transition::Failed(failure(Class::Recipient)),
            Transition::Failed(failure(Class::Content)),
            Transition::Failed(failure(Class::Content)),
        ];
        let claimed = queue.claim(worker.id, spring, 4).await;
        for (sms, transition) in claimed.iter().zip(transitions) {
            queue.settle(sms, transition).await;
        }
        let other = queue.claim_one(worker.id, autumn).await;
        queue.settle(&other, Transition::Failed(failure(Class::Content))).await;
        let of = |filter: RetryFilter| async move { retried(queue, &filter).await };
        let any = RetryFilter::default;
        assert_eq!(of(RetryFilter { code: Some("1".to_owned()), ..any() }).await, 0);
        assert_eq!(of(RetryFilter { code: Some("21211".to_owned()), ..any() }).await, 1);
        assert_eq!(of(RetryFilter { class: Some(Class::Recipient), ..any() }).await, 1);
        assert_eq!(of(RetryFilter { phone: Some(phone(3)), ..any() }).await, 1);
        assert_eq!(of(RetryFilter { campaign_id: Some(autumn), ..any() }).await, 1);
        assert_eq!(queue.place(claimed[2].id), "content");
    })
    .await;
}

#[tokio::test]
async fn expired_message_is_retried_only_with_a_new_expiry() {
    on_every_engine(async |queue| {
        let (spring, old) = all(queue, 1, Transition::NotAdmitted(failure(Class::Expired))).await;
        let expire = format!("UPDATE sms_failed SET expires_at = {}", NOW.as_millis());
        queue.db.run(&expire);
        assert_eq!(retried(queue, &RetryFilter::default()).await, 0);
        let later = RetryFilter { expires_at: Some(after(60)), ..RetryFilter::default() };
        assert_eq!(retried(queue, &later).await, 1);
        let worker = queue.worker().await;
        let new = queue.claim_one(worker.id, spring).await;
        assert_eq!((new.id, new.expires_at), (old[0].id, Some(after(60))));
    })
    .await;
}

#[tokio::test]
async fn cancelled_messages_are_retried_only_by_their_class() {
    on_every_engine(async |queue| {
        let spring = queue.queued(2).await;
        queue.cancel(spring).await;
        queue.set_state(spring, CampaignStatus::Active).await;
        assert_eq!(retried(queue, &RetryFilter::default()).await, 0);
        let cancelled = RetryFilter { class: Some(Class::Cancelled), ..RetryFilter::default() };
        assert_eq!(retried(queue, &cancelled).await, 2);
        assert_eq!(queue.import(spring, rows(0..2)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn retry_skips_cancelled_campaigns() {
    on_every_engine(async |queue| {
        let spring = queue.queued(MANY).await;
        let autumn = queue.campaign("autumn").await;
        queue.import(autumn, rows(3_000..3_003)).await;
        let worker = queue.worker().await;
        for (campaign_id, count) in [(spring, 2), (autumn, 2)] {
            let claimed = queue.claim(worker.id, campaign_id, count).await;
            queue.settle(&claimed[0], failed()).await;
            queue.settle(&claimed[1], unknown()).await;
        }
        assert_eq!(queue.cancel(spring).await, MANY - 2);
        for campaign_id in [Some(spring), None] {
            for class in [None, Some(Class::Cancelled)] {
                let filter = RetryFilter { campaign_id, class, ..RetryFilter::default() };
                let open = u64::from(campaign_id.is_none() && class.is_none());
                assert_eq!(retried(queue, &filter).await, open, "{filter:?}");
            }
            let filter = RetryFilter { campaign_id, ..RetryFilter::default() };
            let moved = queue.store.retry_unknown(&filter, NOW, Audited::unrecorded()).await;
            assert_eq!(moved.expect("retried"), u64::from(campaign_id.is_none()));
        }
        let of_spring = |table: &str| {
            let sql = format!("SELECT count(*) AS value FROM {table} WHERE campaign_id = {spring}");
            queue.db.number(&sql)
        };
        let failed = i64::try_from(MANY - 1).expect("a count");
        assert_eq!((of_spring("sms"), of_spring("sms_failed")), (1, failed));
        assert_eq!((queue.count("unknown"), queue.count("ready")), (1, 3));
    })
    .await;
}

#[tokio::test]
async fn cancelled_message_imported_again_is_not_retried() {
    on_every_engine(async |queue| {
        let spring = queue.queued(MANY).await;
        queue.cancel(spring).await;
        queue.set_state(spring, CampaignStatus::Active).await;
        assert_eq!(queue.import(spring, rows(0..1_500)).await.accepted, 1_500);
        let cancelled = RetryFilter { class: Some(Class::Cancelled), ..RetryFilter::default() };
        assert_eq!(retried(queue, &cancelled).await, MANY - 1_500);
        assert_eq!(queue.count("cancelled"), 1_500);
    })
    .await;
}

#[tokio::test]
async fn unknown_message_is_retried_in_doubt_with_all_attempts() {
    on_every_engine(async |queue| {
        let (spring, old) = all(queue, 3, unknown()).await;
        assert_eq!(retried(queue, &RetryFilter::default()).await, 0, "they have not failed");
        let one = RetryFilter { phone: Some(phone(1)), ..RetryFilter::default() };
        let moved = queue.store.retry_unknown(&one, NOW, Audited::unrecorded()).await;
        assert_eq!(moved.expect("retried"), 1);
        let worker = queue.worker().await;
        let new = queue.claim_one(worker.id, spring).await;
        assert_eq!((new.id, new.attempts, new.in_doubt), (old[1].id, 0, true));
        assert_eq!(new.reference, old[1].reference);
    })
    .await;
}

#[tokio::test]
async fn expired_unknown_message_is_retried_only_with_new_expiry() {
    on_every_engine(async |queue| {
        let (spring, _) = all(queue, 1, unknown()).await;
        queue.db.run(&format!("UPDATE sms SET expires_at = {}", NOW.as_millis()));
        let moved =
            queue.store.retry_unknown(&RetryFilter::default(), NOW, Audited::unrecorded()).await;
        assert_eq!(moved.expect("none"), 0);
        let later = RetryFilter {
            campaign_id: Some(spring),
            expires_at: Some(after(60)),
            ..RetryFilter::default()
        };
        let moved = queue.store.retry_unknown(&later, NOW, Audited::unrecorded()).await;
        assert_eq!(moved.expect("one"), 1);
        let worker = queue.worker().await;
        let claimed = queue.claim_with(worker.id, NOW, claim_of(&[(spring, 1)])).await;
        assert_eq!(claimed.rows[0].sms.expires_at, Some(after(60)));
    })
    .await;
}

#[tokio::test]
async fn operator_settles_unknown_messages() {
    on_every_engine(async |queue| {
        let (spring, old) = all(queue, 3, unknown()).await;
        let of = |as_sent, phone: Option<String>| async move {
            let settled = queue.store.settle_unknown(
                spring,
                as_sent,
                phone.as_deref(),
                NOW,
                Audited::unrecorded(),
            );
            settled.await.expect("settled")
        };
        assert_eq!(of(true, Some(phone(9))).await, 0);
        assert_eq!(of(true, Some(phone(0))).await, 1);
        assert_eq!(of(false, None).await, 2);
        assert_eq!(queue.place(old[0].id), "sent");
        let failed = [1, 2].map(|index: usize| queue.place(old[index].id));
        assert_eq!(failed, ["settled", "settled"]);
        assert!(old.iter().all(|sms| queue.number("attempts", sms.id) == 1));
        assert_eq!(queue.import(spring, rows(0..3)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn cancel_keeps_sending_and_settled_messages() {
    on_every_engine(async |queue| {
        let spring = queue.queued(4).await;
        let autumn = queue.campaign("autumn").await;
        queue.import(autumn, rows(0..2)).await;
        let worker = queue.worker().await;
        let claimed = queue.claim(worker.id, spring, 3).await;
        queue.settle(&claimed[0], sent()).await;
        queue.settle(&claimed[1], failed()).await;
        assert_eq!(queue.cancel(spring).await, 1);
        let places = claimed.iter().map(|sms| queue.place(sms.id));
        assert_eq!(places.collect::<Vec<_>>(), ["sent", "recipient", "sending"]);
        assert_eq!((queue.count("cancelled"), queue.count("ready")), (1, 2));
    })
    .await;
}

#[tokio::test]
async fn audit_entry_says_what_was_changed_before_a_failure() {
    on_every_engine(async |queue| {
        let (_, claimed) = all(queue, MANY, failed()).await;
        let actor = Actor::of_token("ann");
        let retry = || retry_failed(&queue.store, None, RetryFilter::default(), &actor);
        // The second chunk fails: the queue has another message with an id of it.
        let taken = claimed[1_500].id;
        queue.db.run(&format!(
            "INSERT INTO sms (id, phone, content) VALUES ({taken}, '+447400123456', 'hello')"
        ));
        assert!(retry().await.is_err());
        queue.db.run(&format!("DELETE FROM sms WHERE id = {taken}"));
        assert_eq!(retry().await.expect("retried"), MANY - 1_000);
        let entries = queue.store.audit_entries(10).await.expect("read");
        let details: Vec<&str> = entries.iter().map(|entry| entry.detail.as_str()).collect();
        let expected = [MANY - 1_000, 1_000]
            .map(|count| format!("put {} back into the queue", messages(count)));
        assert_eq!(details, expected);
    })
    .await;
}
