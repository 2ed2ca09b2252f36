//! Failures files that come back: a mended row replaces its dead letter, and nothing else.

use smsq::sms::NewSms;
use smsq::store::{CampaignStatus, Enqueued, RetryFilter};

use super::desk::{Desk, NOW, at_every_desk, failed, mended, phone, row, rows, sent};

/// A campaign of three, of which the first two have failed; their ids are 1, 2 and 3.
async fn two_failed(desk: &Desk) -> i64 {
    let spring = desk.queued(3).await;
    let worker = desk.worker().await;
    for sms in desk.claim(worker.id, spring, 2).await {
        desk.settle(&sms, failed()).await;
    }
    spring
}

async fn cancel(desk: &Desk, campaign_id: i64) {
    let state = desk
        .store
        .set_campaign_state(campaign_id, CampaignStatus::Cancelled, None);
    state.await.expect("cancelled");
    desk.store
        .cancel_rows(campaign_id, NOW)
        .await
        .expect("cancelled");
    let state = desk
        .store
        .set_campaign_state(campaign_id, CampaignStatus::Active, None);
    state.await.expect("active");
}

fn accepted(count: u64) -> Enqueued {
    Enqueued {
        accepted: count,
        ..Enqueued::default()
    }
}

fn duplicate(line: u64) -> Enqueued {
    Enqueued {
        duplicates: vec![line],
        ..Enqueued::default()
    }
}

#[tokio::test]
async fn a_mended_phone_replaces_the_dead_letter_and_the_old_list_does_not_bring_it_back() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let row = mended(2, 1, &phone(77), "hello");
        assert_eq!(desk.import(spring, vec![row.clone()]).await, accepted(1));
        assert_eq!((desk.count("recipient"), desk.count("ready")), (1, 2));
        assert_eq!(
            desk.import(spring, vec![row]).await,
            duplicate(2),
            "once only"
        );
        let original = NewSms {
            replaces: None,
            ..mended(5, 1, &phone(0), "hello")
        };
        assert_eq!(desk.import(spring, vec![original]).await, duplicate(5));
    })
    .await;
}

#[tokio::test]
async fn a_mended_text_replaces_the_dead_letter_under_the_same_key() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let row = mended(2, 1, &phone(0), "hello again");
        assert_eq!(desk.import(spring, vec![row]).await, accepted(1));
        let texts = desk
            .db
            .words("SELECT content AS value FROM sms ORDER BY id");
        assert_eq!(texts[1].as_deref(), Some("hello again"));
        assert_eq!(desk.import(spring, rows(0..3)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn an_unchanged_row_is_told_from_a_duplicate() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let rows = vec![mended(2, 1, &phone(0), "hello"), row(1)];
        let done = desk.import(spring, rows).await;
        assert_eq!((done.unchanged, done.duplicates), (vec![2], vec![1]));
        assert_eq!(desk.imported("duplicates"), 2);
        assert_eq!(desk.count("recipient"), 2);
    })
    .await;
}

#[tokio::test]
async fn what_was_retried_meanwhile_is_not_replaced() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let retried = desk.store.retry_failed(&RetryFilter::default(), NOW).await;
        assert_eq!(retried.expect("retried"), 2);
        let row = mended(2, 1, &phone(0), "hello again");
        assert_eq!(desk.import(spring, vec![row.clone()]).await, duplicate(2));
        let worker = desk.worker().await;
        for sms in desk.claim(worker.id, spring, 3).await {
            desk.settle(&sms, sent()).await;
        }
        assert_eq!(desk.import(spring, vec![row]).await, duplicate(2));
    })
    .await;
}

#[tokio::test]
async fn a_mended_phone_that_the_campaign_has_already_is_a_duplicate() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let row = mended(2, 1, &phone(2), "hello");
        assert_eq!(desk.import(spring, vec![row]).await, duplicate(2));
        assert_eq!(desk.place(1), "recipient", "the dead letter stays");
    })
    .await;
}

#[tokio::test]
async fn a_failures_file_may_go_to_another_campaign() {
    at_every_desk(async |desk| {
        two_failed(desk).await;
        let autumn = desk.campaign("autumn").await;
        let row = mended(2, 1, &phone(77), "hello");
        assert_eq!(desk.import(autumn, vec![row]).await, accepted(1));
        assert_eq!(desk.count("recipient"), 1);
    })
    .await;
}

#[tokio::test]
async fn a_file_of_another_database_finds_no_dead_letter() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let row = mended(2, 4_711, &phone(77), "hello");
        assert_eq!(desk.import(spring, vec![row]).await, accepted(1));
        assert_eq!(desk.count("recipient"), 2);
    })
    .await;
}

#[tokio::test]
async fn a_file_of_another_database_replaces_no_strangers_letter() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let stranger = mended(2, 1, &phone(77), "another text");
        assert_eq!(desk.import(spring, vec![stranger]).await, accepted(1));
        assert_eq!(desk.place(1), "recipient", "of somebody else");
    })
    .await;
}

#[tokio::test]
async fn a_file_of_another_database_is_not_skipped_for_a_strangers_message() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let worker = desk.worker().await;
        let queued = mended(2, 3, &phone(77), "another text");
        assert_eq!(desk.import(spring, vec![queued]).await, accepted(1));
        let sms = desk.claim(worker.id, spring, 1).await.remove(0);
        desk.settle(&sms, sent()).await;
        let in_the_ledger = mended(3, sms.id, &phone(78), "another text");
        assert_eq!(desk.import(spring, vec![in_the_ledger]).await, accepted(1));
    })
    .await;
}

#[tokio::test]
async fn both_phone_and_text_may_be_mended_where_the_key_says_who_it_is() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        desk.db
            .run("UPDATE sms_failed SET dedupe_key = 'invoice 1' WHERE id = 1");
        desk.db.run(&format!(
            "UPDATE sms_key SET dedupe_key = 'invoice 1' WHERE dedupe_key = '{}'",
            phone(0)
        ));
        let row = NewSms {
            dedupe_key: "invoice 1".to_owned(),
            ..mended(2, 1, &phone(77), "another text")
        };
        assert_eq!(desk.import(spring, vec![row]).await, accepted(1));
        assert_eq!(desk.count("recipient"), 1);
    })
    .await;
}

#[tokio::test]
async fn a_mended_row_of_a_cancelled_message_is_remembered() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        cancel(desk, spring).await;
        let row = mended(2, 1, &phone(0), "hello again");
        assert_eq!(desk.import(spring, vec![row]).await, accepted(1));
        assert_eq!(desk.import(spring, rows(0..1)).await, duplicate(0));
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_message_that_was_imported_again_gives_its_key_to_nobody() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        cancel(desk, spring).await;
        assert_eq!(desk.import(spring, rows(0..1)).await, accepted(1));
        let text = mended(2, 1, &phone(0), "hello again");
        assert_eq!(desk.import(spring, vec![text]).await, duplicate(2));
        let number = mended(2, 1, &phone(77), "hello");
        assert_eq!(desk.import(spring, vec![number]).await, accepted(1));
        assert_eq!(desk.import(spring, rows(0..1)).await, duplicate(0));
    })
    .await;
}

#[tokio::test]
async fn a_plain_dead_letter_can_be_mended_too() {
    at_every_desk(async |desk| {
        desk.db
            .run("INSERT INTO sms (phone, content, due_at) VALUES ('+4479', 'hello', 0)");
        let worker = desk.worker().await;
        assert!(desk.claim(worker.id, 1, 1).await.is_empty());
        assert_eq!(desk.count("recipient"), 1);
        let row = mended(2, 1, &phone(5), "hello");
        assert_eq!(desk.import(1, vec![row]).await, accepted(1));
        let totals = desk.store.totals(Some(1)).await.expect("totals");
        assert_eq!((totals.imported, totals.queued), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn second_row_of_a_replaced_message_is_a_row_of_its_own() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let fixed = vec![
            mended(2, 1, &phone(90), "hello"),
            mended(3, 1, &phone(80), "hello"),
            mended(4, 1, &phone(80), "hello"),
        ];
        let done = desk.import(spring, fixed).await;
        assert_eq!((done.accepted, done.duplicates), (2, vec![4]));
        let replaced = "SELECT sum(replaced) AS value FROM import";
        assert_eq!((desk.db.number(replaced), desk.count("recipient")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn first_row_of_the_file_replaces_the_message() {
    at_every_desk(async |desk| {
        let spring = two_failed(desk).await;
        let fixed = vec![
            mended(2, 1, &phone(90), "hello"),
            mended(3, 1, &phone(0), "hello again"),
        ];
        let done = desk.import(spring, fixed).await;
        assert_eq!((done.accepted, done.duplicates), (1, vec![3]));
    })
    .await;
}
