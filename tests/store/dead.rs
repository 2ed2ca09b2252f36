//! Numbers that do not exist: who says so, for how long it counts, and what removes them.

use smsq_lifecycle::{Settled, Transition};
use smsq_message::age::Age;
use smsq_message::receipt::{Receipt, ReceiptState};
use smsq_message::sms::{Acceptance, Class, Failure, Sms, Timestamp};
use smsq_store::{Audited, Purge, RetryFilter, Store};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, claim_of, commit_batch, failed, failure, on_every_engine,
    phone, rows,
};

const DAY: u64 = 24 * 3_600;

fn age(age: &str) -> Age {
    age.parse().expect("an age")
}

pub(super) fn dead_failure() -> Failure {
    Failure { is_dead_number: true, ..failure(Class::Recipient).with_code("21211") }
}

/// The numbers that are known not to exist: phone, code, provider and instant.
fn dead(queue: &TestQueue) -> Vec<String> {
    let row = match queue.db.kind {
        crate::support::databases::Kind::Mysql => "concat_ws(' ', phone, code, provider, at)",
        _ => "phone || ' ' || coalesce(code, '-') || ' ' || provider || ' ' || at",
    };
    let sql = format!("SELECT {row} AS value FROM dead ORDER BY phone");
    let rows = queue.db.words(&sql).into_iter();
    rows.map(|row| row.expect("a row")).collect()
}

fn said(number: u64, at: Timestamp) -> String {
    let at = at.as_millis();
    format!("{} 21211 {PROVIDER} {at}", phone(number))
}

/// Claims messages of one campaign.
async fn claimed(queue: &TestQueue, count: u32) -> Vec<Sms> {
    let (spring, worker) = queue.queued_with_worker(count.into()).await;
    queue.claim(worker.id, spring, count).await
}

fn receipt(sms: &Sms, state: ReceiptState, failure: Option<Failure>) -> Receipt {
    Receipt {
        reference: Some(sms.reference.clone()),
        message_id: None,
        phone: None,
        state,
        failure,
        at: None,
        part: None,
    }
}

fn accepted() -> Transition {
    Transition::Sent(Acceptance { awaits_receipt: true, ..Acceptance::default() })
}

async fn receive(queue: &TestQueue, receipts: &[Receipt], now: Timestamp) {
    let added = queue.store.receipts().add(PROVIDER, receipts, now).await;
    added.expect("stored");
}

#[tokio::test]
async fn only_a_provider_says_that_a_number_is_dead() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 4).await;
        let not_admitted = Transition::NotAdmitted(failure(Class::Recipient));
        let rejected = || Transition::Failed(dead_failure());
        let transitions =
            [rejected(), failed(), not_admitted, Transition::Unknown(failure(Class::Unknown))];
        for (sms, transition) in all.iter().zip(transitions) {
            assert_eq!(queue.settle(sms, transition).await, Settled::Done);
        }
        assert_eq!(dead(queue), [said(0, NOW)]);
        // A provider is found to have rejected one whose outcome was unknown.
        let found = Transition::FoundRejected(dead_failure());
        assert_eq!(queue.settle(&all[3], found).await, Settled::Done);
        assert_eq!(dead(queue), [said(0, NOW), said(3, NOW)]);
    })
    .await;
}

#[tokio::test]
async fn receipts_record_and_remove_dead_numbers() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 4).await;
        let undelivered =
            |sms: &Sms, failure| receipt(sms, ReceiptState::Undelivered, Some(failure));
        // The first comes before the response to its message.
        receive(queue, &[undelivered(&all[0], dead_failure())], NOW).await;
        assert!(dead(queue).is_empty());
        for sms in &all {
            queue.settle(sms, accepted()).await;
        }
        let applied = queue.store.receipts().apply(std::time::Duration::MAX, after(2)).await;
        assert_eq!(applied.expect("applied").matched, 1);
        let others = [
            undelivered(&all[1], dead_failure()),
            undelivered(&all[2], failure(Class::Recipient)),
            receipt(&all[3], ReceiptState::Expired, Some(failure(Class::Expired))),
        ];
        receive(queue, &others, after(3)).await;
        assert_eq!(dead(queue), [said(0, after(2)), said(1, after(3))]);
        // What is repeated changes nothing.
        receive(queue, &others, after(9)).await;
        assert_eq!(dead(queue), [said(0, after(2)), said(1, after(3))]);

        let summer = queue.campaign("summer").await;
        queue.import(summer, rows(0..1)).await;
        let worker = queue.worker().await;
        let again = queue.claim_one(worker.id, summer).await;
        queue.settle(&again, accepted()).await;
        receive(queue, &[receipt(&again, ReceiptState::Delivered, None)], after(10)).await;
        assert_eq!(dead(queue), [said(1, after(3))]);
    })
    .await;
}

#[tokio::test]
async fn import_skips_what_died_within_the_age() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 1).await;
        queue.settle(&all[0], Transition::Failed(dead_failure())).await;
        let summer = queue.campaign("summer").await;
        let import_id = queue.begin(summer).await;
        let imported = async |store: &Store, seconds| {
            let mut batch = TestQueue::batch(import_id, summer, rows(0..2));
            batch.now = after(seconds);
            store.imports().enqueue(&batch).await.expect("queued")
        };
        let skipping = |age| queue.store.clone().skipping_dead(age);
        let reason = "the number does not exist, as `cellar` said on 2025-11-21 (code 21211)";
        let done = imported(&skipping(Some(age("2d"))), 2 * DAY).await;
        assert_eq!((done.accepted, done.dead), (1, vec![(0, reason.to_owned())]));
        let done = imported(&skipping(Some(age("2d"))), 2 * DAY + 1).await;
        assert_eq!((done.accepted, done.dead.len()), (1, 0), "it was long ago");
        let done = imported(&skipping(Some(age("2d"))), DAY).await;
        assert_eq!((done.duplicates.len(), done.dead.len()), (2, 0), "they are queued");
        let rejected = format!("SELECT rejected AS value FROM import WHERE id = {import_id}");
        assert_eq!(queue.db.number(&rejected), 1);
        let autumn = queue.campaign("autumn").await;
        let done = queue.import(autumn, rows(0..2)).await;
        assert_eq!((done.accepted, done.dead.len()), (2, 0), "none is skipped");
    })
    .await;
}

#[tokio::test]
async fn inserted_message_to_a_dead_number_fails_until_a_retry() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 2).await;
        queue
            .settle(&all[0], Transition::Failed(dead_failure()))
            .await;
        queue.settle(&all[1], accepted()).await;
        let summer = queue.campaign("summer").await;
        queue.import(summer, rows(0..1)).await;
        queue.db.run(&format!(
            "INSERT INTO sms (campaign_id, phone, content, due_at) VALUES ({summer}, '{}', 'Hi', 0)",
            phone(0)
        ));
        let store = queue.store.clone().skipping_dead(Some(age("1d")));
        let worker = queue.worker().await;
        let claim = async |seconds| {
            let mut commit = commit_batch(worker.id, after(seconds));
            commit.claims = vec![claim_of(&[(summer, 9)])];
            let mut done = store.commit(&commit).await.expect("a commit");
            done.claims.remove(0)
        };
        let claimed = claim(1).await;
        assert_eq!(
            (claimed.rows.len(), claimed.refused),
            (1, 1),
            "only the imported one"
        );
        assert_eq!(queue.count("recipient"), 2);
        let filter = RetryFilter {
            campaign_id: Some(summer),
            ..RetryFilter::default()
        };
        let retried = store.retry_failed(&filter, after(2), Audited::unrecorded());
        assert_eq!(retried.await.expect("retried"), 1);
        assert!(dead(queue).is_empty());
        assert_eq!(claim(3).await.rows.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn purge_deletes_dead_numbers() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 2).await;
        for sms in &all {
            queue.settle(sms, Transition::Failed(dead_failure())).await;
        }
        let person = [phone(0)];
        let purged = queue.store.purge_person(&person, NOW, Audited::unrecorded());
        purged.await.expect("purged");
        assert_eq!(dead(queue), [said(1, NOW)]);
        for (before, left) in [(NOW, 1), (after(1), 0)] {
            let mut purge = Purge::before(before, None);
            let mut audited = Audited::unrecorded();
            while queue
                .store
                .next_purge(&mut purge, NOW, &mut audited)
                .await
                .expect("purged")
                .is_some()
            {}
            assert_eq!(dead(queue).len(), left);
        }
    })
    .await;
}
