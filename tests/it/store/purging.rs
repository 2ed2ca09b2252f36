//! What is purged: whole messages, in chunks, with their counts kept, and nothing that is still to be sent.

use smsq::sms::{Class, Timestamp};
use smsq::store::{Person, Purged, RetryFilter};

use super::desk::{Desk, NOW, after, at_every_desk, failed, failure, phone, rows, sent, unknown};

/// More than fits into one chunk.
const MANY: u64 = 2_300;

/// A campaign of which a third each is sent, failed and unknown, and the rest is still to be sent.
async fn mixed(desk: &Desk, settled: u64, waiting: u64) -> i64 {
    let spring = desk.queued(settled + waiting).await;
    let worker = desk.worker().await;
    let want = u32::try_from(settled).expect("a few");
    let claimed = desk.claim(worker.id, spring, want).await;
    let fates = [sent(), failed(), unknown()];
    let settlements = claimed.iter().zip(fates.into_iter().cycle());
    let round = smsq::store::CommitBatch {
        settlements: settlements
            .map(|(sms, transition)| smsq::queue::Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: super::desk::PROVIDER.to_owned(),
                transition,
            })
            .collect(),
        ..super::desk::round(worker.id, NOW)
    };
    let done = desk.store.commit(&round).await;
    done.expect("settled");
    spring
}

async fn purged(desk: &Desk, before: Timestamp) -> Purged {
    let mut purge = desk.store.begin_purge(before).await.expect("begun");
    let mut all = Purged::default();
    while let Some(step) = desk
        .store
        .next_purge(&mut purge, NOW)
        .await
        .expect("purged")
    {
        assert!(step.total() <= 1_000, "{step:?}");
        all += step;
        desk.assert_nothing_is_lost().await;
    }
    all
}

async fn purged_at(desk: &Desk, campaign_id: i64) -> Option<Timestamp> {
    let last = desk.store.purged_at(&[campaign_id]).await;
    last.expect("a moment")
}

#[tokio::test]
async fn what_was_settled_goes_in_chunks_and_its_counts_stay() {
    at_every_desk(async |desk| {
        let spring = mixed(desk, MANY, 7).await;
        let before = desk.store.totals(Some(spring)).await.expect("totals");
        let facts = desk.store.sent_facts(&[spring]).await.expect("facts");
        assert_eq!(
            purged(desk, NOW).await,
            Purged::default(),
            "nothing is older"
        );
        assert_eq!(purged_at(desk, spring).await, None);
        let found = desk.store.older_than(after(1)).await.expect("a count");
        let gone = purged(desk, after(1)).await;
        assert_eq!((gone, gone.total()), (found, MANY));
        let totals = desk.store.totals(Some(spring)).await.expect("totals");
        assert_eq!(totals.purged, MANY);
        assert_eq!(
            smsq::store::report::Totals {
                purged: 0,
                ..totals
            },
            before
        );
        assert_eq!(desk.count("ready"), 7, "what is to be sent stays");
        assert_eq!(purged_at(desk, spring).await, Some(NOW));
        let left = desk.store.sent_facts(&[spring]).await.expect("facts");
        assert_eq!(
            (left.segments, left.attempts),
            (facts.segments, facts.attempts)
        );
        assert_eq!(purged(desk, after(1)).await, Purged::default());
    })
    .await;
}

#[tokio::test]
async fn a_key_goes_with_its_message_and_no_other() {
    at_every_desk(async |desk| {
        let spring = mixed(desk, 3, 2).await;
        purged(desk, after(1)).await;
        assert_eq!(desk.keys(), 2, "those of the waiting ones");
        let again = desk.import(spring, rows(0..5)).await;
        assert_eq!((again.accepted, again.duplicates.len()), (3, 2));
    })
    .await;
}

#[tokio::test]
async fn the_key_of_a_cancelled_message_may_be_another_ones() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        desk.store
            .cancel_rows(spring, NOW)
            .await
            .expect("cancelled");
        assert_eq!(desk.import(spring, rows(0..1)).await.accepted, 1);
        let gone = purged(desk, after(1)).await;
        assert_eq!((gone.cancelled, gone.total()), (1, 1));
        assert_eq!(desk.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn keys_that_are_no_phones_go_with_the_last_message() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let mut keyed = rows(0..2);
        for (row, key) in keyed.iter_mut().zip(["a", "b"]) {
            key.clone_into(&mut row.dedupe_key);
        }
        desk.import(spring, keyed).await;
        let worker = desk.worker().await;
        let first = desk.claim(worker.id, spring, 1).await.remove(0);
        desk.settle(&first, sent()).await;
        purged(desk, after(1)).await;
        assert_eq!(desk.keys(), 2, "a message is left");
        let second = desk.claim_one(worker.id, spring).await;
        desk.settle(&second, sent()).await;
        purged(desk, after(1)).await;
        assert_eq!(desk.keys(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_person_is_forgotten_wherever_they_stand() {
    at_every_desk(async |desk| {
        let spring = mixed(desk, 3, 2).await;
        let autumn = desk.campaign("autumn").await;
        desk.import(autumn, rows(0..5)).await;
        let plain = format!(
            "INSERT INTO sms (phone, content) VALUES ('{}', 'hi')",
            phone(1).trim_start_matches('+')
        );
        desk.db.run(&plain);
        let spellings = |number| {
            let phone = phone(number);
            vec![phone.trim_start_matches('+').to_owned(), phone]
        };
        let known = desk.store.known_of(&spellings(1)).await.expect("counts");
        let person = desk
            .store
            .forget(&spellings(1), NOW)
            .await
            .expect("forgotten");
        let expected = Person {
            messages: Purged {
                failed: 1,
                cancelled: 2,
                ..Purged::default()
            },
            sending: 0,
        };
        assert_eq!((known, person), (expected, expected));
        desk.assert_nothing_is_lost().await;
        let nobody = desk.store.known_of(&spellings(1)).await.expect("counts");
        assert_eq!(nobody, Person::default());
        let keys = format!(
            "SELECT count(*) AS value FROM sms_key WHERE dedupe_key = '{}'",
            phone(1)
        );
        assert_eq!(desk.db.number(&keys), 0);
        assert_eq!(desk.keys(), 8, "everybody else's");
        let retried = desk.store.retry_failed(&RetryFilter::default(), NOW).await;
        assert_eq!(retried.expect("retried"), 0);
        assert_eq!(desk.import(spring, rows(0..5)).await.accepted, 1);
    })
    .await;
}

#[tokio::test]
async fn what_is_being_sent_is_left_alone_and_what_is_in_doubt_is_unknown() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        let phones = [phone(0)];
        let person = desk.store.forget(&phones, NOW).await.expect("forgotten");
        assert_eq!((person.messages.total(), person.sending), (0, 1));
        desk.settle(
            &sms,
            smsq::queue::Transition::Unknown(failure(Class::Unknown)),
        )
        .await;
        let retried = desk.store.retry_unknown(&RetryFilter::default(), NOW).await;
        assert_eq!(retried.expect("retried"), 1);
        let person = desk.store.forget(&phones, NOW).await.expect("forgotten");
        assert_eq!((person.messages.unknown, person.messages.total()), (1, 1));
    })
    .await;
}
