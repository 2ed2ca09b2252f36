//! Imports: new and duplicate rows, and the counts of an import.

use std::collections::BTreeSet;

use smsq_lifecycle::dedupe::Decision;
use smsq_message::sms::{Class, NewSms, Timestamp};
use smsq_store::{Audited, CampaignStatus, Enqueued, ImportBatch, StoreErrorKind};

use super::test_queue::{NOW, TestQueue, claim_of, on_every_engine, phone, row, rows, sent};

#[tokio::test]
async fn queued_messages_are_read_in_pages_in_order() {
    on_every_engine(async |queue| {
        let spring = queue.queued(6).await;
        let other = queue.campaign("other").await;
        queue.import(other, rows(7..9)).await;
        let worker = queue.worker().await;
        queue.claim(worker.id, spring, 1).await;
        let mut walk = queue.store.report().queue(spring, None).await.expect("read");
        let mut pages = Vec::new();
        loop {
            let page = queue.store.report().next_queued(&mut walk, 2).await.expect("a page");
            if page.is_empty() {
                break;
            }
            let phones: Vec<String> = page.into_iter().map(|one| one.phone).collect();
            pages.push(phones);
        }
        let expected = [[1, 2], [3, 4]].map(|page| page.map(phone).to_vec());
        assert_eq!(pages[..2], expected);
        assert_eq!(pages[2..], [[phone(5)]]);
    })
    .await;
}

#[tokio::test]
async fn plain_insert_is_complete() {
    on_every_engine(async |queue| {
        let mut other = queue.db.client();
        other.run("INSERT INTO sms (phone, content) VALUES ('+86 138 0013 8000', 'hello')");
        let now = queue.store.now().await.expect("a clock");
        let before = now.as_millis() - 60_000;
        assert_eq!(
            queue.db.number(&format!(
                "SELECT count(*) AS value FROM sms WHERE due_at BETWEEN {before} AND {0}
                 AND created_at BETWEEN due_at AND {0}",
                now.as_millis()
            )),
            1
        );
        let worker = queue.worker().await;
        let claimed = queue.claim_with(worker.id, now, claim_of(&[(1, 5)])).await;
        let sms = &claimed.rows[0].sms;
        assert_eq!((sms.campaign_id, sms.attempts, sms.claim), (1, 0, 1));
        assert_eq!((sms.params.as_str(), sms.in_doubt), ("{}", false));
        assert_eq!((sms.expires_at, sms.segments), (None, Some(1)));
        assert_eq!(sms.phone, "+8613800138000", "the row has it in E.164");
        assert!((1..=36).contains(&sms.reference.len()));
        queue.settle(sms, sent()).await;
        assert_eq!(queue.place(sms.id), "sent");
        let phones = queue.db.words("SELECT phone AS value FROM sms_sent");
        assert_eq!(phones, [Some("+8613800138000".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn plain_rows_are_never_duplicates() {
    on_every_engine(async |queue| {
        let insert = "INSERT INTO sms (phone, content) VALUES ('+8613800138000', 'hello');";
        queue.db.run(&insert.repeat(3));
        assert_eq!((queue.count("ready"), queue.keys()), (3, 0));
    })
    .await;
}

#[tokio::test]
async fn recipient_is_queued_once() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let twice = [rows(2..5), rows(3..6)].concat();
        let import_id = queue.begin(spring).await;
        let batch = TestQueue::batch(import_id, spring, twice);
        let done = queue.store.imports().enqueue(&batch).await.expect("queued");
        let expected = Enqueued { accepted: 4, duplicates: vec![3, 4], ..Enqueued::default() };
        assert_eq!(done, expected, "in one batch");
        let batch = TestQueue::batch(import_id, spring, rows(5..8));
        let done = queue.store.imports().enqueue(&batch).await.expect("queued");
        assert_eq!((done.accepted, done.duplicates), (2, vec![5]), "in two batches");
        let done = queue.import(spring, rows(7..9)).await;
        assert_eq!((done.accepted, done.duplicates), (1, vec![7]), "in two imports");
        let autumn = queue.campaign("autumn").await;
        let done = queue.import(autumn, rows(2..9)).await;
        assert_eq!(done.accepted, 7, "another campaign has no keys");
        let decided = [row(8), row(9)];
        let decided = queue.store.imports().decide(autumn, &decided.each_ref(), NOW).await;
        let new = Decision::New { with_key: true, replaces: None };
        assert_eq!(decided.expect("read"), [Decision::Duplicate, new]);
    })
    .await;
}

#[tokio::test]
async fn second_import_of_a_file_adds_nothing() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(4).await;
        let claimed = queue.claim(worker.id, spring, 3).await;
        queue.settle(&claimed[0], sent()).await;
        queue.settle(&claimed[1], super::test_queue::failed()).await;
        queue.settle(&claimed[2], super::test_queue::unknown()).await;
        let done = queue.import(spring, rows(0..4)).await;
        assert_eq!((done.accepted, done.duplicates), (0, vec![0, 1, 2, 3]));
    })
    .await;
}

#[tokio::test]
async fn import_after_a_crash_adds_the_rest() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let crashed = queue.begin(spring).await;
        let batch = TestQueue::batch(crashed, spring, rows(2..52));
        queue.store.imports().enqueue(&batch).await.expect("queued");
        let store = queue.db.open().await.expect("a database");
        let again = queue.begin(spring).await;
        let batch = TestQueue::batch(again, spring, rows(2..102));
        let done = store.imports().enqueue(&batch).await.expect("queued");
        assert_eq!((done.accepted, done.duplicates.len()), (50, 50));
        let audit = store.report().check_counts().await.expect("an audit");
        let counts: Vec<(u64, bool)> =
            audit.imports.iter().map(|import| (import.found, import.finished)).collect();
        assert_eq!(counts, [(50, false), (50, false)]);
    })
    .await;
}

#[tokio::test]
async fn import_counts_are_summed_over_batches() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let import_id = queue.begin(spring).await;
        for (lines, last_line) in [(2..6, 9), (5..8, 12)] {
            let batch = ImportBatch {
                row_count: 7,
                rejected: 2,
                last_line,
                ..TestQueue::batch(import_id, spring, rows(lines))
            };
            queue.store.imports().enqueue(&batch).await.expect("queued");
        }
        let unfinished = "SELECT count(*) AS value FROM import WHERE finished_at IS NULL";
        assert_eq!(queue.db.number(unfinished), 1);
        let finished = queue.store.imports().finish(import_id, NOW).await;
        finished.expect("finished");
        assert_eq!(queue.imported("finished_at"), NOW.as_millis());
        let columns = ["row_count", "accepted", "duplicates", "rejected", "last_line"];
        assert_eq!(columns.map(|column| queue.imported(column)), [14, 6, 1, 4, 12]);
        let files = queue.store.imports().imported_files().await;
        assert_eq!(files.expect("files"), ["list.csv"]);
    })
    .await;
}

/// A person cancels the campaign while a list is added.
#[tokio::test]
async fn cancelled_campaign_takes_no_further_batch_of_an_import() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let import_id = queue.begin(spring).await;
        let first = TestQueue::batch(import_id, spring, vec![row(2)]);
        queue.store.imports().enqueue(&first).await.expect("queued");
        let cancelled = queue
            .store
            .change_campaign_state(
                spring,
                &CampaignStatus::ALL,
                CampaignStatus::Cancelled,
                None,
                None,
            )
            .await;
        assert!(cancelled.expect("a change"));
        let second = TestQueue::batch(import_id, spring, vec![row(3)]);
        let refused = queue.store.imports().enqueue(&second).await;
        let refused = refused.expect_err("it is cancelled");
        assert_eq!(refused.kind(), StoreErrorKind::Cancelled);
        assert_eq!(queue.db.number("SELECT count(*) AS value FROM sms"), 1);
    })
    .await;
}

#[tokio::test]
async fn batch_sets_due_time_and_expiry() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let import_id = queue.begin(spring).await;
        let batch = ImportBatch {
            due_at: super::test_queue::after(60),
            expires_at: Some(super::test_queue::after(120)),
            ..TestQueue::batch(import_id, spring, vec![row(2)])
        };
        queue.store.imports().enqueue(&batch).await.expect("queued");
        let due = queue.store.next_due(spring).await.expect("an instant");
        assert_eq!(due, Some(super::test_queue::after(60)));
        let expiring = "SELECT expires_at AS value FROM sms";
        let expires_at = Timestamp::from_millis(queue.db.number(expiring));
        assert_eq!(expires_at, super::test_queue::after(120));
    })
    .await;
}

#[tokio::test]
async fn suppressed_phones_are_not_queued_and_get_no_key() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let listed = vec![(phone(3), Some("asked".to_owned())), (phone(9), None)];
        assert_eq!(
            queue
                .store
                .suppression()
                .add(listed, NOW, &mut Audited::unrecorded())
                .await
                .expect("added"),
            2
        );
        let done = queue.import(spring, rows(2..5)).await;
        assert_eq!((done.accepted, done.suppressed), (2, vec![3]));
        assert_eq!((queue.imported("suppressed"), queue.keys()), (1, 2));
        let removed = queue
            .store
            .suppression()
            .remove(vec![phone(3), phone(4)], NOW, Audited::unrecorded())
            .await;
        assert_eq!(removed.expect("removed"), 1);
        assert_eq!(queue.import(spring, rows(2..5)).await.accepted, 1);
    })
    .await;
}

#[tokio::test]
async fn suppression_list_is_read_in_pages() {
    on_every_engine(async |queue| {
        let listed = |reason: &str| {
            let reason = Some(reason.to_owned());
            (0..2_500).map(|number| (phone(number), reason.clone())).collect()
        };
        let added =
            queue.store.suppression().add(listed("first"), NOW, &mut Audited::unrecorded()).await;
        assert_eq!(added.expect("added"), 2_500);
        let again =
            queue.store.suppression().add(listed("second"), NOW, &mut Audited::unrecorded()).await;
        assert_eq!(again.expect("known"), 0);
        let first = queue.store.suppression().page(None, 2).await.expect("a page");
        assert_eq!(first[1].phone, phone(1));
        assert_eq!(first[1].reason.as_deref(), Some("first"));
        let next = queue.store.suppression().page(Some(&first[1].phone), 2).await;
        assert_eq!(next.expect("a page")[0].phone, phone(2));
        let all = (0..2_500).map(phone).collect();
        assert_eq!(
            queue
                .store
                .suppression()
                .remove(all, NOW, Audited::unrecorded())
                .await
                .expect("removed"),
            2_500
        );
    })
    .await;
}

#[tokio::test]
async fn phone_suppressed_after_import_fails_at_the_claim() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(3).await;
        let listed = vec![(phone(1), None)];
        queue
            .store
            .suppression()
            .add(listed, NOW, &mut Audited::unrecorded())
            .await
            .expect("added");
        let claimed = queue.claim_with(worker.id, NOW, claim_of(&[(spring, 5)])).await;
        assert_eq!((claimed.rows.len(), claimed.refused), (2, 1));
        assert_eq!(queue.count(Class::Suppressed.as_str()), 1);
        assert_eq!(queue.number("attempts", 2), 0);
    })
    .await;
}

#[tokio::test]
async fn cancelled_message_can_be_imported_again() {
    on_every_engine(async |queue| {
        let spring = queue.queued(5).await;
        assert_eq!(queue.cancel(spring).await, 5);
        assert_eq!((queue.count("cancelled"), queue.keys()), (5, 0));
        let (all, active) = (&CampaignStatus::ALL, CampaignStatus::Active);
        let resumed = queue.store.change_campaign_state(spring, all, active, None, None);
        assert!(resumed.await.expect("a change"));
        assert_eq!(queue.import(spring, rows(0..5)).await.accepted, 5);
    })
    .await;
}

#[tokio::test]
async fn keys_that_differ_in_one_byte_are_different() {
    on_every_engine(async |queue| {
        let keys =
            ["ann", "Ann", "ANN", "ann ", " ann", "änn", "a\u{308}nn", "ann\t", "安", "ａnn"];
        let of = |(line, key): (u64, &str)| NewSms { dedupe_key: key.to_owned(), ..row(line) };
        let all: Vec<_> = (2..).zip(keys).map(of).collect();
        let spring = queue.campaign("spring").await;
        let done = queue.import(spring, all.clone()).await;
        assert_eq!((done.accepted, done.duplicates), (keys.len() as u64, vec![]));
        let done = queue.import(spring, all).await;
        assert_eq!((done.accepted, done.duplicates.len()), (0, keys.len()));
        let names = ["ann", "Ann", "ann ", "änn"];
        let mut ids = BTreeSet::new();
        for name in names {
            ids.insert(queue.campaign(name).await);
        }
        assert_eq!(ids.len(), names.len(), "campaigns too");
    })
    .await;
}

#[tokio::test]
async fn text_in_any_script_is_stored_unchanged() {
    on_every_engine(async |queue| {
        let texts = [
            "grüß Gott",
            "您的验证码是 4711",
            "\u{1f389} 🧑‍🚀",
            "a\\'b\"c%_`",
            "line\r\nline\t",
            " a ",
        ];
        let of = |(line, text): (u64, &&str)| NewSms {
            content: (*text).to_owned(),
            params: format!("{{\"姓名\":\"{line}\"}}"),
            ..row(line)
        };
        let spring = queue.campaign("春节 🎉").await;
        queue.import(spring, (2..).zip(&texts).map(of).collect()).await;
        let worker = queue.worker().await;
        let claimed = queue.claim(worker.id, spring, 10).await;
        let back: Vec<&str> = claimed.iter().map(|sms| sms.content.as_str()).collect();
        assert_eq!(back, texts);
        assert_eq!(claimed[0].params, "{\"姓名\":\"2\"}");
        let found = queue.store.campaign("春节 🎉").await.expect("read");
        assert_eq!(found.map(|campaign| campaign.id), Some(spring));
    })
    .await;
}
