//! Importing: who is new, who is there already, and what the counters say.

use std::collections::BTreeSet;

use smsq::sms::{Class, NewSms, Timestamp};
use smsq::store::report::Queue;
use smsq::store::{Batch, CampaignStatus, Enqueued};

use super::desk::{Desk, NOW, at_every_desk, claim_of, phone, row, rows, sent};

#[tokio::test]
async fn what_waits_is_told_page_by_page_in_its_order() {
    at_every_desk(async |desk| {
        let spring = desk.queued(6).await;
        let other = desk.campaign("other").await;
        desk.import(other, rows(7..9)).await;
        let worker = desk.worker().await;
        desk.claim(worker.id, spring, 1).await;
        let mut walk = Queue::of(spring);
        let mut pages = Vec::new();
        loop {
            let page = desk.store.next_queued(&mut walk, 2).await.expect("a page");
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
async fn a_plain_insert_is_a_complete_order() {
    at_every_desk(async |desk| {
        let mut other = desk.db.client();
        other.run("INSERT INTO sms (phone, content) VALUES ('+86 138 0013 8000', 'hello')");
        let now = desk.store.now().await.expect("a clock");
        let before = now.as_millis() - 60_000;
        assert_eq!(
            desk.db.number(&format!(
                "SELECT count(*) AS value FROM sms WHERE due_at BETWEEN {before} AND {0}
                 AND created_at BETWEEN due_at AND {0}",
                now.as_millis()
            )),
            1
        );
        let worker = desk.worker().await;
        let claimed = desk.claim_route(worker.id, now, claim_of(&[(1, 5)])).await;
        let sms = &claimed.rows[0].sms;
        assert_eq!((sms.campaign_id, sms.attempts, sms.claim), (1, 0, 1));
        assert_eq!((sms.params.as_str(), sms.in_doubt), ("{}", false));
        assert_eq!((sms.expires_at, sms.segments), (None, Some(1)));
        assert_eq!(sms.phone, "+8613800138000", "the row has it in E.164");
        assert!((1..=36).contains(&sms.reference.len()));
        desk.settle(sms, sent()).await;
        assert_eq!(desk.place(sms.id), "sent");
        let phones = desk.db.words("SELECT phone AS value FROM sms_sent");
        assert_eq!(phones, [Some("+8613800138000".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn plain_rows_are_never_taken_for_duplicates() {
    at_every_desk(async |desk| {
        let insert = "INSERT INTO sms (phone, content) VALUES ('+8613800138000', 'hello');";
        desk.db.run(&insert.repeat(3));
        assert_eq!((desk.count("ready"), desk.keys()), (3, 0));
    })
    .await;
}

#[tokio::test]
async fn a_recipient_is_queued_once() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let twice = [rows(2..5), rows(3..6)].concat();
        let import_id = desk.begin(spring).await;
        let batch = Desk::batch(import_id, spring, twice);
        let done = desk.store.enqueue(batch).await.expect("queued");
        let expected = Enqueued {
            accepted: 4,
            duplicates: vec![3, 4],
            ..Enqueued::default()
        };
        assert_eq!(done, expected, "in one batch");
        let batch = Desk::batch(import_id, spring, rows(5..8));
        let done = desk.store.enqueue(batch).await.expect("queued");
        assert_eq!(
            (done.accepted, done.duplicates),
            (2, vec![5]),
            "in two batches"
        );
        let done = desk.import(spring, rows(7..9)).await;
        assert_eq!(
            (done.accepted, done.duplicates),
            (1, vec![7]),
            "in two imports"
        );
        let autumn = desk.campaign("autumn").await;
        let done = desk.import(autumn, rows(2..9)).await;
        assert_eq!(done.accepted, 7, "another campaign knows nobody");
        let known = desk
            .store
            .known_keys(autumn, vec![phone(2), phone(99)])
            .await;
        assert_eq!(
            known.expect("keys").into_iter().collect::<Vec<_>>(),
            [phone(2)]
        );
    })
    .await;
}

#[tokio::test]
async fn the_same_file_twice_adds_nothing_wherever_its_messages_stand() {
    at_every_desk(async |desk| {
        let spring = desk.queued(4).await;
        let worker = desk.worker().await;
        let claimed = desk.claim(worker.id, spring, 3).await;
        desk.settle(&claimed[0], sent()).await;
        desk.settle(&claimed[1], super::desk::failed()).await;
        desk.settle(&claimed[2], super::desk::unknown()).await;
        let done = desk.import(spring, rows(0..4)).await;
        assert_eq!((done.accepted, done.duplicates), (0, vec![0, 1, 2, 3]));
    })
    .await;
}

#[tokio::test]
async fn after_a_crash_between_batches_the_rest_is_added() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let crashed = desk.begin(spring).await;
        let batch = Desk::batch(crashed, spring, rows(2..52));
        desk.store.enqueue(batch).await.expect("queued");
        let store = desk.db.open().await.expect("a database");
        let again = desk.begin(spring).await;
        let batch = Desk::batch(again, spring, rows(2..102));
        let done = store.enqueue(batch).await.expect("queued");
        assert_eq!((done.accepted, done.duplicates.len()), (50, 50));
        let audit = store.check_counts().await.expect("an audit");
        let counts: Vec<(u64, bool)> = audit
            .imports
            .iter()
            .map(|import| (import.found, import.finished))
            .collect();
        assert_eq!(counts, [(50, false), (50, false)]);
    })
    .await;
}

#[tokio::test]
async fn counters_are_summed_over_the_batches() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let import_id = desk.begin(spring).await;
        for (lines, last_line) in [(2..6, 9), (5..8, 12)] {
            let batch = Batch {
                row_count: 7,
                rejected: 2,
                duplicates: 1,
                last_line,
                ..Desk::batch(import_id, spring, rows(lines))
            };
            desk.store.enqueue(batch).await.expect("queued");
        }
        let unfinished = "SELECT count(*) AS value FROM import WHERE finished_at IS NULL";
        assert_eq!(desk.db.number(unfinished), 1);
        let finished = desk.store.finish_import(import_id, NOW);
        finished.await.expect("finished");
        assert_eq!(desk.imported("finished_at"), NOW.as_millis());
        let columns = [
            "row_count",
            "accepted",
            "duplicates",
            "rejected",
            "last_line",
        ];
        assert_eq!(
            columns.map(|column| desk.imported(column)),
            [14, 6, 3, 4, 12]
        );
    })
    .await;
}

#[tokio::test]
async fn a_batch_gives_its_rows_their_moments() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let import_id = desk.begin(spring).await;
        let batch = Batch {
            due_at: super::desk::after(60),
            expires_at: Some(super::desk::after(120)),
            ..Desk::batch(import_id, spring, vec![row(2)])
        };
        desk.store.enqueue(batch).await.expect("queued");
        let due = desk.store.next_due(spring).await.expect("a moment");
        assert_eq!(due, Some(super::desk::after(60)));
        let expiring = "SELECT expires_at AS value FROM sms";
        let expires_at = Timestamp::from_millis(desk.db.number(expiring));
        assert_eq!(expires_at, super::desk::after(120));
    })
    .await;
}

#[tokio::test]
async fn suppressed_phones_are_neither_queued_nor_remembered() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let listed = vec![(phone(3), Some("asked".to_owned())), (phone(9), None)];
        assert_eq!(desk.store.suppress(listed, NOW).await.expect("added"), 2);
        let done = desk.import(spring, rows(2..5)).await;
        assert_eq!((done.accepted, done.suppressed), (2, vec![3]));
        assert_eq!((desk.imported("suppressed"), desk.keys()), (1, 2));
        let removed = desk.store.unsuppress(vec![phone(3), phone(4)]).await;
        assert_eq!(removed.expect("removed"), 1);
        assert_eq!(desk.import(spring, rows(2..5)).await.accepted, 1);
    })
    .await;
}

#[tokio::test]
async fn the_suppression_list_is_read_in_pages() {
    at_every_desk(async |desk| {
        let listed = |reason: &str| {
            let reason = Some(reason.to_owned());
            (0..2_500)
                .map(|number| (phone(number), reason.clone()))
                .collect()
        };
        let added = desk.store.suppress(listed("first"), NOW).await;
        assert_eq!(added.expect("added"), 2_500);
        let again = desk.store.suppress(listed("second"), NOW).await;
        assert_eq!(again.expect("known"), 0);
        let first = desk.store.suppressed(None, 2).await.expect("a page");
        assert_eq!(first[1].phone, phone(1));
        assert_eq!(first[1].reason.as_deref(), Some("first"));
        let next = desk.store.suppressed(Some(&first[1].phone), 2).await;
        assert_eq!(next.expect("a page")[0].phone, phone(2));
        let all = (0..2_500).map(phone).collect();
        assert_eq!(desk.store.unsuppress(all).await.expect("removed"), 2_500);
    })
    .await;
}

#[tokio::test]
async fn who_is_suppressed_after_the_import_is_refused_at_the_claim() {
    at_every_desk(async |desk| {
        let spring = desk.queued(3).await;
        let worker = desk.worker().await;
        let listed = vec![(phone(1), None)];
        desk.store.suppress(listed, NOW).await.expect("added");
        let claimed = desk
            .claim_route(worker.id, NOW, claim_of(&[(spring, 5)]))
            .await;
        assert_eq!((claimed.rows.len(), claimed.refused), (2, 1));
        assert_eq!(desk.count(Class::Suppressed.as_str()), 1);
        assert_eq!(desk.number("attempts", 2), 0);
    })
    .await;
}

#[tokio::test]
async fn what_was_cancelled_unsent_can_be_imported_again() {
    at_every_desk(async |desk| {
        let spring = desk.queued(5).await;
        let cancel = desk
            .store
            .set_campaign_state(spring, CampaignStatus::Cancelled, None);
        cancel.await.expect("cancelled");
        let cancelled = desk.store.cancel_rows(spring, NOW).await;
        assert_eq!(cancelled.expect("cancelled"), 5);
        assert_eq!((desk.count("cancelled"), desk.keys()), (5, 0));
        assert_eq!(desk.import(spring, rows(0..5)).await.accepted, 5);
    })
    .await;
}

#[tokio::test]
async fn keys_that_differ_in_one_byte_are_two_recipients() {
    at_every_desk(async |desk| {
        let keys = [
            "ann",
            "Ann",
            "ANN",
            "ann ",
            " ann",
            "änn",
            "a\u{308}nn",
            "ann\t",
            "安",
            "ａnn",
        ];
        let of = |(line, key): (u64, &str)| NewSms {
            dedupe_key: key.to_owned(),
            ..row(line)
        };
        let all: Vec<_> = (2..).zip(keys).map(of).collect();
        let spring = desk.campaign("spring").await;
        let done = desk.import(spring, all.clone()).await;
        assert_eq!(
            (done.accepted, done.duplicates),
            (keys.len() as u64, vec![])
        );
        let done = desk.import(spring, all).await;
        assert_eq!((done.accepted, done.duplicates.len()), (0, keys.len()));
        let names = ["ann", "Ann", "ann ", "änn"];
        let mut ids = BTreeSet::new();
        for name in names {
            ids.insert(desk.campaign(name).await);
        }
        assert_eq!(ids.len(), names.len(), "campaigns too");
    })
    .await;
}

#[tokio::test]
async fn a_text_in_any_script_comes_back_as_it_was() {
    at_every_desk(async |desk| {
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
        let spring = desk.campaign("春节 🎉").await;
        desk.import(spring, (2..).zip(&texts).map(of).collect())
            .await;
        let worker = desk.worker().await;
        let claimed = desk.claim(worker.id, spring, 10).await;
        let back: Vec<&str> = claimed.iter().map(|sms| sms.content.as_str()).collect();
        assert_eq!(back, texts);
        assert_eq!(claimed[0].params, "{\"姓名\":\"2\"}");
        let found = desk.store.campaign("春节 🎉").await.expect("read");
        assert_eq!(found.map(|campaign| campaign.id), Some(spring));
    })
    .await;
}
