//! Purges delete settled messages in chunks and keep their counts.

use smsq_lifecycle::Settled;
use smsq_message::sms::{Class, NewSms, Timestamp};
use smsq_store::{Audited, CampaignFilter, Purge, Purged, Removal, RetryFilter};

use super::test_queue::{
    NOW, TestQueue, after, again, failed, failure, on_every_engine, phone, row, rows, sent, unknown,
};

/// More than one chunk.
const MANY: u64 = 2_300;

/// A campaign of which a third each is sent, failed and unknown; the rest is queued.
async fn mixed(queue: &TestQueue, settled: u64, waiting: u64) -> i64 {
    let (spring, worker) = queue.queued_with_worker(settled + waiting).await;
    let want = u32::try_from(settled).expect("a few");
    let claimed = queue.claim(worker.id, spring, want).await;
    let transitions = [sent(), failed(), unknown()];
    let settlements = claimed.iter().zip(transitions.into_iter().cycle());
    let commit = smsq_store::CommitBatch {
        settlements: settlements
            .map(|(sms, transition)| smsq_lifecycle::Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: super::test_queue::PROVIDER.to_owned(),
                transition,
            })
            .collect(),
        ..super::test_queue::commit_batch(worker.id, NOW)
    };
    let done = queue.store.commit(&commit).await;
    done.expect("settled");
    spring
}

async fn purged(queue: &TestQueue, before: Timestamp) -> Purged {
    let mut purge = Purge::before(before, None);
    let mut all = Purged::default();
    while let Some(step) =
        queue.store.next_purge(&mut purge, NOW, &mut Audited::unrecorded()).await.expect("purged")
    {
        assert!(step.total() <= 1_000, "{step:?}");
        all += step;
        queue.assert_nothing_is_lost().await;
    }
    all
}

async fn purged_at(queue: &TestQueue, campaign_id: i64) -> Option<Timestamp> {
    let last = queue.store.purged_at(CampaignFilter::One(campaign_id)).await;
    last.expect("an instant")
}

#[tokio::test]
async fn purge_deletes_settled_messages_and_keeps_counts() {
    on_every_engine(async |queue| {
        let spring = mixed(queue, MANY, 7).await;
        let before = queue.store.report().totals(Some(spring)).await.expect("totals");
        let sent = queue.store.report().sent(CampaignFilter::One(spring), 0).await;
        let facts = sent.expect("counts").facts;
        assert_eq!(purged(queue, NOW).await, Purged::default(), "nothing is older");
        assert_eq!(purged_at(queue, spring).await, None);
        let found = queue.store.count_older(after(1)).await.expect("a count");
        let gone = purged(queue, after(1)).await;
        assert_eq!((gone, gone.total()), (found, MANY));
        let totals = queue.store.report().totals(Some(spring)).await.expect("totals");
        assert_eq!(totals.purged, MANY);
        assert_eq!(smsq_store::report::Totals { purged: 0, ..totals }, before);
        assert_eq!(queue.count("ready"), 7, "what is to be sent stays");
        assert_eq!(purged_at(queue, spring).await, Some(NOW));
        let sent = queue.store.report().sent(CampaignFilter::One(spring), 0).await;
        let left = sent.expect("counts").facts;
        assert_eq!((left.segments, left.attempts), (facts.segments, facts.attempts));
        assert_eq!(purged(queue, after(1)).await, Purged::default());
    })
    .await;
}

#[tokio::test]
async fn purge_deletes_only_the_key_of_its_message() {
    on_every_engine(async |queue| {
        let spring = mixed(queue, 3, 2).await;
        purged(queue, after(1)).await;
        assert_eq!(queue.keys(), 2, "those of the waiting ones");
        let again = queue.import(spring, rows(0..5)).await;
        assert_eq!((again.accepted, again.duplicates.len()), (3, 2));
    })
    .await;
}

#[tokio::test]
async fn purge_keeps_key_that_a_cancelled_message_has_lost() {
    on_every_engine(async |queue| {
        let spring = queue.queued(1).await;
        queue.store.cancel_rows(spring, NOW).await.expect("cancelled");
        assert_eq!(queue.import(spring, rows(0..1)).await.accepted, 1);
        let gone = purged(queue, after(1)).await;
        assert_eq!((gone.cancelled, gone.total()), (1, 1));
        assert_eq!(queue.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn purge_of_a_sent_message_keeps_the_key_of_another() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let own = NewSms { dedupe_key: "order-7".to_owned(), ..row(4) };
        queue.import(spring, vec![own]).await;
        let worker = queue.worker().await;
        let sms = queue.claim_one(worker.id, spring).await;
        assert_eq!(queue.import(spring, rows(4..5)).await.accepted, 1);
        queue.settle(&sms, sent()).await;
        assert_eq!(purged(queue, after(1)).await.sent, 1);
        assert_eq!(queue.import(spring, rows(4..5)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn purge_keeps_a_key_that_two_messages_have() {
    on_every_engine(async |queue| {
        let (spring, _, sms) = queue.one_claimed().await;
        queue.settle(&sms, again()).await;
        // Its request was accepted after all, when another one has its key.
        queue.cancel(spring).await;
        assert_eq!(queue.import(spring, rows(0..1)).await.accepted, 1);
        assert_eq!(queue.settle(&sms, sent()).await, Settled::Late);
        assert_eq!(purged(queue, after(1)).await.sent, 1);
        assert_eq!(queue.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn purge_deletes_the_own_key_of_a_sent_message() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let mut keyed = rows(0..2);
        for (row, key) in keyed.iter_mut().zip(["a", "b"]) {
            key.clone_into(&mut row.dedupe_key);
        }
        queue.import(spring, keyed).await;
        let worker = queue.worker().await;
        let first = queue.claim(worker.id, spring, 1).await.remove(0);
        queue.settle(&first, sent()).await;
        purged(queue, after(1)).await;
        assert_eq!(queue.keys(), 1, "that of the other message");
        let second = queue.claim_one(worker.id, spring).await;
        queue.settle(&second, sent()).await;
        purged(queue, after(1)).await;
        assert_eq!(queue.keys(), 0);
    })
    .await;
}

#[tokio::test]
async fn purge_of_a_person_covers_all_tables() {
    on_every_engine(async |queue| {
        let spring = mixed(queue, 3, 2).await;
        let autumn = queue.campaign("autumn").await;
        queue.import(autumn, rows(0..5)).await;
        let plain = format!(
            "INSERT INTO sms (phone, content) VALUES ('{}', 'hi')",
            phone(1).trim_start_matches('+')
        );
        queue.db.run(&plain);
        let spellings = |number| {
            let phone = phone(number);
            vec![phone.trim_start_matches('+').to_owned(), phone]
        };
        let known = queue.store.count_person(&spellings(1)).await.expect("counts");
        let person = queue
            .store
            .purge_person(&spellings(1), NOW, Audited::unrecorded())
            .await
            .expect("deleted");
        let expected = Purged { failed: 1, cancelled: 2, ..Purged::default() };
        assert_eq!((known, person), (expected, expected));
        queue.assert_nothing_is_lost().await;
        let none = queue.store.count_person(&spellings(1)).await.expect("counts");
        assert_eq!(none, Purged::default());
        let keys =
            format!("SELECT count(*) AS value FROM sms_key WHERE dedupe_key = '{}'", phone(1));
        assert_eq!(queue.db.number(&keys), 0);
        assert_eq!(queue.keys(), 8, "everybody else's");
        let retried =
            queue.store.retry_failed(&RetryFilter::default(), NOW, Audited::unrecorded()).await;
        assert_eq!(retried.expect("retried"), 0);
        assert_eq!(queue.import(spring, rows(0..5)).await.accepted, 1);
    })
    .await;
}

#[tokio::test]
async fn purge_keeps_sending_and_counts_doubt_as_unknown() {
    on_every_engine(async |queue| {
        let (_, _, sms) = queue.one_claimed().await;
        let phones = [phone(0)];
        let person =
            queue.store.purge_person(&phones, NOW, Audited::unrecorded()).await.expect("deleted");
        assert_eq!((person.total(), person.sending), (0, 1));
        queue.settle(&sms, smsq_lifecycle::Transition::Unknown(failure(Class::Unknown))).await;
        let retried =
            queue.store.retry_unknown(&RetryFilter::default(), NOW, Audited::unrecorded()).await;
        assert_eq!(retried.expect("retried"), 1);
        let person =
            queue.store.purge_person(&phones, NOW, Audited::unrecorded()).await.expect("deleted");
        assert_eq!((person.unknown, person.total()), (1, 1));
    })
    .await;
}

/// The times of the tests before this one are of long ago.
const LATER: Timestamp = Timestamp::from_millis(NOW.as_millis() + 90 * 24 * 3_600 * 1_000);

async fn removed(queue: &TestQueue) -> Vec<i64> {
    let found = queue.store.removable_campaigns(LATER, Removal::Asked).await;
    let found = found.expect("found");
    let mut purge = Purge::of_campaigns(LATER);
    let mut count = 0;
    while let Some(step) = queue
        .store
        .next_purge(&mut purge, LATER, &mut Audited::unrecorded())
        .await
        .expect("removed")
    {
        count += step.campaigns;
    }
    assert!(count <= found.len() as u64);
    queue.db.numbers("SELECT id AS value FROM campaign ORDER BY id")
}

#[tokio::test]
async fn removed_campaign_keeps_its_counts_and_takes_nothing() {
    on_every_engine(async |queue| {
        let spring = mixed(queue, 30, 6).await;
        let before = queue.store.report().totals(None).await.expect("totals");
        let with_messages = removed(queue).await;
        assert!(with_messages.contains(&spring), "it has messages");
        let done = purged(queue, LATER).await;
        assert!(done.total() > 0);
        // Its other messages are still to be sent.
        queue.cancel(spring).await;
        purged(queue, LATER).await;
        assert_eq!(removed(queue).await, [1]);
        let after = queue.store.report().totals(None).await.expect("totals");
        assert_eq!((after.imported, after.sent), (before.imported, before.sent));
        assert_eq!(after.purged, after.imported);
        let counted = queue.store.report().campaign_totals().await.expect("totals");
        assert_eq!(counted.removed, after);
        let checked = queue.store.report().check_counts().await.expect("counts");
        assert!(checked.is_sound(), "{checked:?}");
        assert!(queue.store.imports().begin(spring, "late.csv", "01", None, LATER).await.is_err());
        assert_ne!(queue.campaign("spring").await, spring);
    })
    .await;
}

#[tokio::test]
async fn retention_keeps_campaigns_with_settings() {
    on_every_engine(async |queue| {
        let mut kept = vec![1];
        let settings = [
            "provider = 'attic'",
            "sender = 'SHOP'",
            "rate = '5/s'",
            "priority = 1",
            "send_window = '09:00-20:00 mon-fri UTC'",
            "budget = '5.00 EUR'",
        ];
        for (number, setting) in settings.into_iter().enumerate() {
            let id = queue.campaign(&format!("c{number}")).await;
            queue.import(id, Vec::new()).await;
            queue.db.run(&format!("UPDATE campaign SET {setting} WHERE id = {id}"));
            kept.push(id);
        }
        let plain = queue.campaign("plain").await;
        queue.import(plain, Vec::new()).await;
        let mut purge = Purge::before(LATER, Some(Removal::Retention));
        while let Some(_step) = queue
            .store
            .next_purge(&mut purge, LATER, &mut Audited::unrecorded())
            .await
            .expect("removed")
        {}
        let left = queue.db.numbers("SELECT id AS value FROM campaign ORDER BY id");
        assert_eq!(left, kept);
    })
    .await;
}

#[tokio::test]
async fn paused_used_or_plain_campaigns_are_not_removed() {
    on_every_engine(async |queue| {
        let (paused, plain, running) = (
            queue.campaign("paused").await,
            queue.campaign("plain").await,
            queue.campaign("running").await,
        );
        let limited = queue.campaign("limited").await;
        queue.set_state(paused, smsq_store::CampaignStatus::Paused).await;
        queue.begin(running).await;
        queue.db.run(&format!(
            "UPDATE campaign SET rate = '5/s' WHERE id = {limited};
             INSERT INTO purged (campaign_id, import_id, sent) VALUES ({plain}, 0, 1);"
        ));
        let kept = queue.store.removable_campaigns(LATER, Removal::Retention).await;
        assert!(!kept.expect("found").contains(&limited));
        assert_eq!(removed(queue).await, [1, paused, plain, running]);
    })
    .await;
}
