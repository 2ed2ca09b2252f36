//! Imports of failures files: a fixed row replaces its failed message, and nothing else.

use smsq_message::sms::NewSms;
use smsq_store::{Audited, CampaignStatus, Enqueued, RetryFilter};

use super::test_queue::{NOW, TestQueue, failed, fixed, on_every_engine, phone, row, rows, sent};

/// A campaign of three messages with ids 1, 2 and 3, of which the first two have failed.
async fn two_failed(queue: &TestQueue) -> i64 {
    let (spring, worker) = queue.queued_with_worker(3).await;
    for sms in queue.claim(worker.id, spring, 2).await {
        queue.settle(&sms, failed()).await;
    }
    spring
}

async fn cancel(queue: &TestQueue, campaign_id: i64) {
    queue.cancel(campaign_id).await;
    queue.set_state(campaign_id, CampaignStatus::Active).await;
}

fn accepted(count: u64) -> Enqueued {
    Enqueued { accepted: count, ..Enqueued::default() }
}

fn duplicate(line: u64) -> Enqueued {
    Enqueued { duplicates: vec![line], ..Enqueued::default() }
}

#[tokio::test]
async fn fixed_phone_replaces_failed_message_for_good() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let row = fixed(2, 1, &phone(77), "hello");
        assert_eq!(queue.import(spring, vec![row.clone()]).await, accepted(1));
        assert_eq!((queue.count("recipient"), queue.count("ready")), (1, 2));
        assert_eq!(queue.import(spring, vec![row]).await, duplicate(2), "once only");
        let original = NewSms { replaces: None, ..fixed(5, 1, &phone(0), "hello") };
        assert_eq!(queue.import(spring, vec![original]).await, duplicate(5));
    })
    .await;
}

#[tokio::test]
async fn fixed_text_replaces_failed_message_under_the_same_key() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let row = fixed(2, 1, &phone(0), "hello again");
        assert_eq!(queue.import(spring, vec![row]).await, accepted(1));
        let texts = queue.db.words("SELECT content AS value FROM sms ORDER BY id");
        assert_eq!(texts[1].as_deref(), Some("hello again"));
        assert_eq!(queue.import(spring, rows(0..3)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn unchanged_row_is_not_a_duplicate() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let rows = vec![fixed(2, 1, &phone(0), "hello"), row(1)];
        let done = queue.import(spring, rows).await;
        assert_eq!((done.unchanged, done.duplicates), (vec![2], vec![1]));
        assert_eq!(queue.imported("duplicates"), 2);
        assert_eq!(queue.count("recipient"), 2);
    })
    .await;
}

#[tokio::test]
async fn retried_message_is_not_replaced() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let retried =
            queue.store.retry_failed(&RetryFilter::default(), NOW, Audited::unrecorded()).await;
        assert_eq!(retried.expect("retried"), 2);
        let row = fixed(2, 1, &phone(0), "hello again");
        assert_eq!(queue.import(spring, vec![row.clone()]).await, duplicate(2));
        let worker = queue.worker().await;
        for sms in queue.claim(worker.id, spring, 3).await {
            queue.settle(&sms, sent()).await;
        }
        assert_eq!(queue.import(spring, vec![row]).await, duplicate(2));
    })
    .await;
}

#[tokio::test]
async fn fixed_phone_that_exists_is_a_duplicate() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let row = fixed(2, 1, &phone(2), "hello");
        assert_eq!(queue.import(spring, vec![row]).await, duplicate(2));
        assert_eq!(queue.place(1), "recipient", "the failed message stays");
    })
    .await;
}

#[tokio::test]
async fn failures_file_can_be_imported_into_another_campaign() {
    on_every_engine(async |queue| {
        two_failed(queue).await;
        let autumn = queue.campaign("autumn").await;
        let row = fixed(2, 1, &phone(77), "hello");
        assert_eq!(queue.import(autumn, vec![row]).await, accepted(1));
        assert_eq!(queue.count("recipient"), 1);
    })
    .await;
}

#[tokio::test]
async fn file_of_another_database_replaces_nothing() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let row = fixed(2, 4_711, &phone(77), "hello");
        assert_eq!(queue.import(spring, vec![row]).await, accepted(1));
        assert_eq!(queue.count("recipient"), 2);
    })
    .await;
}

#[tokio::test]
async fn file_of_another_database_keeps_equal_id() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let other = fixed(2, 1, &phone(77), "another text");
        assert_eq!(queue.import(spring, vec![other]).await, accepted(1));
        assert_eq!(queue.place(1), "recipient", "of another database");
    })
    .await;
}

#[tokio::test]
async fn file_of_another_database_is_queued_despite_equal_id() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let worker = queue.worker().await;
        let queued = fixed(2, 3, &phone(77), "another text");
        assert_eq!(queue.import(spring, vec![queued]).await, accepted(1));
        let sms = queue.claim(worker.id, spring, 1).await.remove(0);
        queue.settle(&sms, sent()).await;
        let in_the_ledger = fixed(3, sms.id, &phone(78), "another text");
        assert_eq!(queue.import(spring, vec![in_the_ledger]).await, accepted(1));
    })
    .await;
}

#[tokio::test]
async fn phone_and_text_can_be_fixed_if_the_key_is_equal() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        queue.db.run("UPDATE sms_failed SET dedupe_key = 'invoice 1' WHERE id = 1");
        queue.db.run(&format!(
            "UPDATE sms_key SET dedupe_key = 'invoice 1' WHERE dedupe_key = '{}'",
            phone(0)
        ));
        let row = NewSms {
            dedupe_key: "invoice 1".to_owned(),
            ..fixed(2, 1, &phone(77), "another text")
        };
        assert_eq!(queue.import(spring, vec![row]).await, accepted(1));
        assert_eq!(queue.count("recipient"), 1);
    })
    .await;
}

#[tokio::test]
async fn fixed_row_of_cancelled_message_gets_its_key() {
    on_every_engine(async |queue| {
        let spring = queue.queued(1).await;
        cancel(queue, spring).await;
        let row = fixed(2, 1, &phone(0), "hello again");
        assert_eq!(queue.import(spring, vec![row]).await, accepted(1));
        assert_eq!(queue.import(spring, rows(0..1)).await, duplicate(0));
    })
    .await;
}

#[tokio::test]
async fn key_of_cancelled_message_imported_again_is_kept() {
    on_every_engine(async |queue| {
        let spring = queue.queued(1).await;
        cancel(queue, spring).await;
        assert_eq!(queue.import(spring, rows(0..1)).await, accepted(1));
        let text = fixed(2, 1, &phone(0), "hello again");
        assert_eq!(queue.import(spring, vec![text]).await, duplicate(2));
        let number = fixed(2, 1, &phone(77), "hello");
        assert_eq!(queue.import(spring, vec![number]).await, accepted(1));
        assert_eq!(queue.import(spring, rows(0..1)).await, duplicate(0));
    })
    .await;
}

#[tokio::test]
async fn failed_plain_message_can_be_fixed() {
    on_every_engine(async |queue| {
        queue.db.run("INSERT INTO sms (phone, content, due_at) VALUES ('+4479', 'hello', 0)");
        let worker = queue.worker().await;
        assert!(queue.claim(worker.id, 1, 1).await.is_empty());
        assert_eq!(queue.count("recipient"), 1);
        let row = fixed(2, 1, &phone(5), "hello");
        assert_eq!(queue.import(1, vec![row]).await, accepted(1));
        let totals = queue.store.report().totals(Some(1)).await.expect("totals");
        assert_eq!((totals.imported, totals.queued), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn second_row_for_a_replaced_message_is_new() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let fixed = vec![
            fixed(2, 1, &phone(90), "hello"),
            fixed(3, 1, &phone(80), "hello"),
            fixed(4, 1, &phone(80), "hello"),
        ];
        let done = queue.import(spring, fixed).await;
        assert_eq!((done.accepted, done.duplicates), (2, vec![4]));
        let replaced = "SELECT sum(replaced) AS value FROM import";
        assert_eq!((queue.db.number(replaced), queue.count("recipient")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn first_row_of_the_file_replaces_the_message() {
    on_every_engine(async |queue| {
        let spring = two_failed(queue).await;
        let fixed = vec![fixed(2, 1, &phone(90), "hello"), fixed(3, 1, &phone(0), "hello again")];
        let done = queue.import(spring, fixed).await;
        assert_eq!((done.accepted, done.duplicates), (1, vec![3]));
    })
    .await;
}
