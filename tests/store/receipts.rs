//! Delivery receipts: the inbox, what receipts do to sent, unknown and failed messages, and the lease of a provider.

use std::thread;
use std::time::Duration;

use smsq_lifecycle::Transition;
use smsq_message::receipt::{Receipt, ReceiptPart, ReceiptState};
use smsq_message::sms::{Acceptance, Class, Failure, Sms, Timestamp};
use smsq_store::{Audited, PullLease, Purge, ReceiptsApplied, ResendReason, TriedAt};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, again, failure, on_every_engine, phone, sent, unknown,
};

const KEEP: Duration = Duration::from_secs(72 * 3_600);

/// A receipt of the message, with our reference and the provider's id.
pub(super) fn receipt(sms: &Sms, state: ReceiptState) -> Receipt {
    Receipt {
        reference: Some(sms.reference.clone()),
        message_id: Some(format!("SM{}", sms.id)),
        phone: Some(sms.phone.clone()),
        state,
        failure: None,
        at: Some(after(5)),
        part: None,
    }
}

pub(super) fn undelivered(sms: &Sms, class: Class) -> Receipt {
    Receipt {
        failure: Some(failure(class).with_code("30003")),
        ..receipt(sms, ReceiptState::Undelivered)
    }
}

pub(super) fn accepted(sms: &Sms) -> Transition {
    Transition::Sent(Acceptance {
        message_id: Some(format!("SM{}", sms.id)),
        awaits_receipt: true,
        ..Acceptance::default()
    })
}

/// Claims messages of one campaign.
async fn claimed(queue: &TestQueue, count: u32) -> Vec<Sms> {
    let (spring, worker) = queue.queued_with_worker(count.into()).await;
    queue.claim(worker.id, spring, count).await
}

/// Messages that are sent and await a receipt.
pub(super) async fn awaiting(queue: &TestQueue, count: u32) -> Vec<Sms> {
    let all = claimed(queue, count).await;
    for sms in &all {
        queue.settle(sms, accepted(sms)).await;
    }
    all
}

async fn add(queue: &TestQueue, receipts: &[Receipt], now: Timestamp) -> ReceiptsApplied {
    let added = queue.store.receipts().add(PROVIDER, receipts, now).await;
    added.expect("stored")
}

pub(super) async fn apply(queue: &TestQueue, now: Timestamp) -> ReceiptsApplied {
    queue.store.receipts().apply(KEEP, now).await.expect("applied")
}

pub(super) async fn receive(queue: &TestQueue, receipts: &[Receipt]) -> ReceiptsApplied {
    add(queue, receipts, after(6)).await
}

fn stored(queue: &TestQueue) -> i64 {
    queue.db.number("SELECT count(*) AS value FROM receipt")
}

fn word(queue: &TestQueue, column: &str, id: i64) -> Option<String> {
    let sql = format!("SELECT {column} AS value FROM sms_sent WHERE id = {id}");
    queue.db.words(&sql).remove(0)
}

fn state(queue: &TestQueue, sms: &Sms) -> String {
    word(queue, "delivery_state", sms.id).unwrap_or_default()
}

#[expect(clippy::unnecessary_wraps, reason = "columns may be NULL")]
fn text(word: &str) -> Option<String> {
    Some(word.to_owned())
}

#[tokio::test]
async fn text_is_kept_until_the_message_is_delivered() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 3).await;
        for sms in &all {
            assert_eq!(state(queue, sms), "awaiting");
            assert_eq!(word(queue, "content", sms.id), text("hello"));
            assert_eq!(word(queue, "params", sms.id), text("{}"));
        }
        let failed = undelivered(&all[1], Class::Recipient);
        let delivered = receipt(&all[0], ReceiptState::Delivered);
        let applied = receive(queue, &[delivered, failed]).await;
        assert_eq!((applied.receipts, applied.matched), (2, 2));
        assert_eq!(state(queue, &all[0]), "delivered");
        assert_eq!(word(queue, "content", all[0].id), None);
        assert_eq!(word(queue, "params", all[0].id), None);
        assert_eq!(state(queue, &all[1]), "undelivered");
        assert_eq!(word(queue, "content", all[1].id), text("hello"));
        for (column, expected) in [
            ("delivery_class", "recipient"),
            ("delivery_code", "30003"),
            ("delivery_reason", "because"),
            ("delivery_at", &after(5).as_millis().to_string()),
        ] {
            assert_eq!(word(queue, column, all[1].id), text(expected), "{column}");
        }
        assert_eq!(state(queue, &all[2]), "awaiting");
    })
    .await;
}

#[tokio::test]
async fn sent_message_without_receipts_awaits_none() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 1).await;
        queue.settle(&all[0], sent()).await;
        assert_eq!(word(queue, "delivery_state", all[0].id), None);
        assert_eq!(word(queue, "content", all[0].id), None);
        let applied = receive(queue, &[receipt(&all[0], ReceiptState::Delivered)]).await;
        assert_eq!((applied.receipts, applied.matched), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn receipt_is_matched_by_reference_or_by_id_and_phone() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 4).await;
        for sms in &all {
            // A provider may give all messages of a batch one id.
            let acceptance = Acceptance {
                message_id: text("B1"),
                awaits_receipt: true,
                ..Acceptance::default()
            };
            queue.settle(sms, Transition::Sent(acceptance)).await;
        }
        let delivered = |sms: &Sms| receipt(sms, ReceiptState::Delivered);
        let by_id = |phone: Option<String>| Receipt {
            reference: None,
            message_id: text("B1"),
            phone,
            ..delivered(&all[1])
        };
        let receipts = [
            Receipt { message_id: None, phone: None, ..delivered(&all[0]) },
            // Without the country code.
            by_id(text(&phone(1)[3..])),
            by_id(None),
            by_id(text("+447700900123")),
        ];
        let applied = receive(queue, &receipts).await;
        assert_eq!((applied.receipts, applied.matched), (4, 2));
        let states: Vec<String> = all.iter().map(|sms| state(queue, sms)).collect();
        assert_eq!(states, ["delivered", "delivered", "awaiting", "awaiting"]);
        // Another provider's ids and references are others.
        let others = [delivered(&all[2])];
        let other = queue.store.receipts().add("other", &others, after(6)).await;
        let other = other.expect("stored");
        assert_eq!((other.new, other.matched), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn doubled_receipt_is_stored_and_applied_once() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 1).await;
        let delivered = receipt(&all[0], ReceiptState::Delivered);
        let both = [delivered.clone(), delivered.clone()];
        assert_eq!(add(queue, &both, after(6)).await.new, 1);
        assert_eq!(add(queue, &[delivered], after(9)).await.new, 0);
        // It is in the row of its message.
        assert_eq!(stored(queue), 0);
    })
    .await;
}

#[tokio::test]
async fn final_state_never_goes_back() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 2).await;
        let one = &all[0];
        receive(queue, &[receipt(one, ReceiptState::Delivered)]).await;
        receive(queue, &[receipt(one, ReceiptState::Accepted)]).await;
        assert_eq!(state(queue, one), "delivered");
        assert_eq!(word(queue, "delivery_note", one.id), None);
        receive(queue, &[undelivered(one, Class::Recipient)]).await;
        assert_eq!(state(queue, one), "delivered");
        let note = word(queue, "delivery_note", one.id).expect("a note");
        assert!(note.contains("undelivered"), "{note}");
        assert_eq!(word(queue, "delivery_code", one.id), None);
        // All in one round, the other way round.
        let two = &all[1];
        let receipts = [
            undelivered(two, Class::Recipient),
            receipt(two, ReceiptState::Delivered),
            receipt(two, ReceiptState::Unlisted),
        ];
        for receipt in receipts {
            add(queue, &[receipt], after(6)).await;
        }
        assert_eq!(state(queue, two), "undelivered");
        assert!(word(queue, "delivery_note", two.id).is_some());
    })
    .await;
}

#[tokio::test]
async fn failed_part_wins_over_delivered_parts() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 2).await;
        let part = |sms: &Sms, number, state| Receipt {
            part: Some(ReceiptPart { number, total: 2 }),
            ..receipt(sms, state)
        };
        receive(queue, &[part(&all[0], 1, ReceiptState::Delivered)]).await;
        assert_eq!(state(queue, &all[0]), "awaiting");
        receive(queue, &[part(&all[0], 2, ReceiptState::Delivered)]).await;
        assert_eq!(state(queue, &all[0]), "delivered");
        receive(queue, &[part(&all[1], 1, ReceiptState::Undelivered)]).await;
        receive(queue, &[part(&all[1], 2, ReceiptState::Delivered)]).await;
        assert_eq!(state(queue, &all[1]), "undelivered");
        assert_eq!(word(queue, "delivery_note", all[1].id), None);
    })
    .await;
}

#[tokio::test]
async fn earlier_receipt_of_an_unsettled_message_counts_first() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 1).await;
        receive(queue, &[receipt(&all[0], ReceiptState::Delivered)]).await;
        queue.settle(&all[0], accepted(&all[0])).await;
        // Before the first one is tried again.
        receive(queue, &[undelivered(&all[0], Class::Recipient)]).await;
        assert_eq!(state(queue, &all[0]), "delivered");
        assert!(word(queue, "delivery_note", all[0].id).is_some());
        assert_eq!(stored(queue), 0);
    })
    .await;
}

#[tokio::test]
async fn waiting_receipts_of_a_message_are_applied_in_order() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 1).await;
        add(queue, &[receipt(&all[0], ReceiptState::Delivered)], NOW).await;
        assert_eq!(apply(queue, after(1)).await.matched, 0);
        // The first is due again after eight seconds, the second after three.
        let second = undelivered(&all[0], Class::Recipient);
        add(queue, &[second], after(2)).await;
        queue.settle(&all[0], accepted(&all[0])).await;
        assert_eq!(apply(queue, after(3)).await.matched, 2);
        assert_eq!(state(queue, &all[0]), "delivered");
        assert!(word(queue, "delivery_note", all[0].id).is_some());
        assert_eq!(stored(queue), 0);
    })
    .await;
}

#[tokio::test]
async fn receipt_that_cannot_settle_yet_is_tried_again() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 1).await;
        queue.settle(&all[0], unknown()).await;
        // Until this is settled, no rejection ends the doubt.
        queue.db.run("UPDATE sms SET late_accepted = 1");
        let rejected = [receipt(&all[0], ReceiptState::Rejected)];
        let applied = receive(queue, &rejected).await;
        assert_eq!((applied.new, applied.matched, applied.failed), (1, 0, 0));
        assert_eq!(queue.place(all[0].id), "unknown");
        let unattached = "SELECT count(*) AS value FROM receipt
                          WHERE due_at IS NOT NULL AND sms_id IS NULL";
        assert_eq!(queue.db.number(unattached), 1);
        queue.db.run("UPDATE sms SET late_accepted = 0");
        let applied = apply(queue, after(7)).await;
        assert_eq!((applied.matched, applied.failed), (1, 1));
        assert_eq!(queue.place(all[0].id), "recipient");
        // It stays, because its message may turn out to be sent.
        assert_eq!((stored(queue), queue.db.number(unattached)), (1, 0));
        assert_eq!(receive(queue, &rejected).await.new, 0);
    })
    .await;
}

#[tokio::test]
async fn receipt_of_a_message_claimed_meanwhile_is_kept() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 1).await;
        queue.settle(&all[0], unknown()).await;
        // It is claimed again after the receipt has found it, and before it is locked.
        let mut other = queue.db.client();
        other.run("BEGIN; UPDATE sms SET state = 1, claim = claim + 1");
        let committing = thread::spawn(move || {
            // Until then it waits for the lock; an earlier commit would only test less.
            thread::sleep(Duration::from_millis(500));
            other.run("COMMIT");
        });
        let receipts = [receipt(&all[0], ReceiptState::Delivered)];
        assert_eq!(receive(queue, &receipts).await.matched, 0);
        committing.join().expect("committed");
        assert_eq!((queue.place(all[0].id), stored(queue)), ("sending".to_owned(), 1));
        let again = Sms { claim: all[0].claim + 1, ..all[0].clone() };
        queue.settle(&again, accepted(&again)).await;
        assert_eq!(apply(queue, after(7)).await.matched, 1);
        assert_eq!(state(queue, &again), "delivered");
        assert_eq!(stored(queue), 0);
    })
    .await;
}

#[tokio::test]
async fn receipt_of_the_whole_message_is_stored_with_its_parts() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 1).await;
        let part = |number, state| Receipt {
            part: Some(ReceiptPart { number, total: 2 }),
            ..receipt(&all[0], state)
        };
        receive(queue, &[receipt(&all[0], ReceiptState::Delivered)]).await;
        assert_eq!(stored(queue), 0);
        receive(queue, &[part(2, ReceiptState::Undelivered)]).await;
        assert_eq!(stored(queue), 2);
        assert_eq!(state(queue, &all[0]), "undelivered");
        receive(queue, &[part(1, ReceiptState::Delivered)]).await;
        let again = [receipt(&all[0], ReceiptState::Delivered), part(1, ReceiptState::Delivered)];
        assert_eq!(receive(queue, &again).await.new, 0);
        assert_eq!(stored(queue), 3);
        assert_eq!(state(queue, &all[0]), "undelivered");
        assert_eq!(word(queue, "delivery_note", all[0].id), None);
    })
    .await;
}

#[tokio::test]
async fn receipt_that_overtakes_its_answer_is_applied_later() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 2).await;
        let receipts =
            [receipt(&all[0], ReceiptState::Delivered), undelivered(&all[1], Class::Recipient)];
        assert_eq!(receive(queue, &receipts).await.matched, 0);
        // They are due again after their age, and at least a second.
        assert_eq!(apply(queue, after(6)).await.receipts, 0);
        for sms in &all {
            queue.settle(sms, accepted(sms)).await;
        }
        let due = queue.store.receipts().next_due().await.expect("an instant");
        assert_eq!(due, Some(after(7)));
        assert_eq!(apply(queue, after(7)).await.matched, 2);
        assert_eq!(state(queue, &all[0]), "delivered");
        assert_eq!(state(queue, &all[1]), "undelivered");
        assert_eq!(word(queue, "delivery_code", all[1].id), text("30003"));
        assert_eq!(stored(queue), 0);
        assert_eq!(receive(queue, &receipts).await.new, 0);
    })
    .await;
}

#[tokio::test]
async fn receipt_without_a_message_is_deleted_in_the_end() {
    on_every_engine(async |queue| {
        let foreign = Receipt {
            reference: text("another-account"),
            message_id: text("X1"),
            phone: None,
            state: ReceiptState::Delivered,
            failure: None,
            at: None,
            part: None,
        };
        let mut now = after(6);
        assert_eq!(add(queue, &[foreign], now).await.new, 1);
        let unmatched = async || queue.store.receipts().count_unmatched().await.expect("a count");
        let mut tries = 1;
        while let Some(due) = queue.store.receipts().next_due().await.expect("an instant") {
            assert_eq!(unmatched().await, 1);
            now = due;
            assert_eq!(apply(queue, now).await.receipts, 1);
            tries += 1;
        }
        assert_eq!(unmatched().await, 0);
        assert!((6..=8).contains(&tries), "{tries}");
        assert_eq!(queue.db.number("SELECT count(*) AS value FROM receipt"), 0);
    })
    .await;
}

#[tokio::test]
async fn receipt_settles_an_unknown_message() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 5).await;
        for sms in &all {
            queue.settle(sms, unknown()).await;
        }
        let receipts = [
            receipt(&all[0], ReceiptState::Delivered),
            undelivered(&all[1], Class::Recipient),
            receipt(&all[2], ReceiptState::Accepted),
            Receipt {
                failure: Some(Failure::new(Class::Content, "blocked")),
                ..receipt(&all[3], ReceiptState::Rejected)
            },
            receipt(&all[4], ReceiptState::Unlisted),
        ];
        let applied = receive(queue, &receipts).await;
        assert_eq!((applied.sent, applied.failed), (3, 1));
        let places: Vec<String> = all.iter().map(|sms| queue.place(sms.id)).collect();
        assert_eq!(places, ["sent", "sent", "sent", "content", "unknown"]);
        let states: Vec<String> = all[..3].iter().map(|sms| state(queue, sms)).collect();
        assert_eq!(states, ["delivered", "undelivered", "awaiting"]);
        let ids = word(queue, "message_id", all[0].id);
        assert_eq!(ids, Some(format!("SM{}", all[0].id)));
        assert_eq!(word(queue, "accepted", all[0].id), text("1"));
        assert_eq!(word(queue, "attempts", all[0].id), text("1"));
        assert_eq!(word(queue, "content", all[1].id), text("hello"));
    })
    .await;
}

#[tokio::test]
async fn receipt_for_another_phone_settles_nothing() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 2).await;
        queue.settle(&all[0], unknown()).await;
        let rejected = Transition::Failed(failure(Class::Recipient));
        queue.settle(&all[1], rejected).await;
        let other = |sms| Receipt {
            phone: Some("+33612345678".to_owned()),
            ..receipt(sms, ReceiptState::Delivered)
        };
        let applied = receive(queue, &[other(&all[0]), other(&all[1])]).await;
        assert_eq!((applied.matched, applied.sent), (0, 0));
        let places: Vec<String> = all.iter().map(|sms| queue.place(sms.id)).collect();
        assert_eq!(places, ["unknown", "recipient"]);
    })
    .await;
}

#[tokio::test]
async fn rejection_proves_nothing_about_several_attempts() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(1).await;
        queue.put_in_doubt(worker.id, spring, 1).await;
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, unknown()).await;
        let rejected = receipt(&sms, ReceiptState::Rejected);
        assert_eq!(receive(queue, &[rejected]).await.matched, 0);
        assert_eq!(queue.place(sms.id), "unknown");
        let delivered = receipt(&sms, ReceiptState::Delivered);
        assert_eq!(receive(queue, &[delivered]).await.sent, 1);
        assert_eq!(queue.place(sms.id), "sent");
    })
    .await;
}

#[tokio::test]
async fn rejection_speaks_only_of_the_attempt_with_its_reference() {
    on_every_engine(async |queue| {
        let (spring, worker, first) = queue.one_claimed().await;
        queue.settle(&first, again()).await;
        let second = queue.claim_one(worker.id, spring).await;
        assert_ne!(second.reference, first.reference);
        queue.settle(&second, unknown()).await;
        let rejected = |sms: &Sms| receipt(sms, ReceiptState::Rejected);
        assert_eq!(receive(queue, &[rejected(&first)]).await.matched, 0);
        assert_eq!(queue.place(second.id), "unknown");
        assert_eq!(receive(queue, &[rejected(&second)]).await.failed, 1);
        assert_eq!(queue.place(second.id), "recipient");
    })
    .await;
}

#[tokio::test]
async fn receipt_of_another_provider_settles_nothing() {
    on_every_engine(async |queue| {
        let (_, _, sms) = queue.one_claimed().await;
        queue.settle(&sms, unknown()).await;
        let receipts = queue.store.receipts();
        for state in [ReceiptState::Rejected, ReceiptState::Delivered] {
            let of_other = receipt(&sms, state);
            let added = receipts.add("another", &[of_other], after(6)).await;
            let added = added.expect("stored");
            assert_eq!((added.matched, added.sent, added.failed), (0, 0, 0));
            assert_eq!(queue.place(sms.id), "unknown");
        }
        let own = receipt(&sms, ReceiptState::Rejected);
        assert_eq!(receive(queue, &[own]).await.failed, 1);
    })
    .await;
}

#[tokio::test]
async fn receipt_of_a_refused_attempt_shows_that_it_was_accepted() {
    on_every_engine(async |queue| {
        let (spring, worker, first) = queue.claimed(3).await;
        for sms in &first {
            queue.settle(sms, again()).await;
        }
        let second = queue.claim(worker.id, spring, 2).await;
        queue.settle(&second[0], sent()).await;
        queue.settle(&second[1], unknown()).await;
        let delivered: Vec<Receipt> =
            first.iter().map(|sms| receipt(sms, ReceiptState::Delivered)).collect();
        let received = receive(queue, &delivered).await;
        assert_eq!((received.contradictions, received.sent), (3, 3));
        for sms in &first {
            assert_eq!(queue.place(sms.id), "sent", "it is not sent again");
        }
        let accepted = |sms: &Sms| {
            let sql = format!("SELECT accepted AS value FROM sms_sent WHERE id = {}", sms.id);
            queue.db.number(&sql)
        };
        let counts: Vec<i64> = first.iter().map(accepted).collect();
        assert_eq!(counts, [2, 1, 1], "the first one was sent twice");
        assert_eq!(receive(queue, &delivered).await.sent, 0, "it is counted once");
        assert_eq!(first.iter().map(accepted).collect::<Vec<_>>(), counts);
    })
    .await;
}

#[tokio::test]
async fn receipt_of_a_reference_that_is_sent_again_counts_once() {
    on_every_engine(async |queue| {
        let (spring, worker, first) = queue.one_claimed().await;
        queue.settle(&first, unknown()).await;
        let (id, claim) = (first.id, first.claim);
        let absent = queue.store.requeue_message(id, claim, ResendReason::Absent, 0, NOW);
        assert!(absent.await.expect("put back"));
        let second = queue.claim_one(worker.id, spring).await;
        assert_eq!((&second.reference, second.claim), (&first.reference, first.claim + 1));
        // It overtakes the answer.
        let delivered = [receipt(&second, ReceiptState::Delivered)];
        let applied = receive(queue, &delivered).await;
        assert_eq!((applied.matched, applied.sent, stored(queue)), (0, 0, 1));
        queue.settle(&second, accepted(&second)).await;
        assert_eq!(apply(queue, after(7)).await.matched, 1);
        assert_eq!(state(queue, &second), "delivered");
        assert_eq!(word(queue, "accepted", second.id), text("1"));
    })
    .await;
}

#[tokio::test]
async fn delivered_message_that_had_failed_becomes_sent() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 1).await;
        queue.settle(&all[0], unknown()).await;
        let settled = Transition::FoundRejected(failure(Class::Settled));
        queue.settle(&all[0], settled).await;
        assert_eq!(queue.place(all[0].id), "settled");
        let applied = receive(queue, &[receipt(&all[0], ReceiptState::Delivered)]).await;
        assert_eq!(applied.sent, 1);
        assert_eq!(queue.place(all[0].id), "sent");
        assert_eq!(state(queue, &all[0]), "delivered");
    })
    .await;
}

#[tokio::test]
async fn opted_out_recipient_is_suppressed() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 2).await;
        let receipts =
            [undelivered(&all[0], Class::OptedOut), undelivered(&all[1], Class::Recipient)];
        receive(queue, &receipts).await;
        let suppressed = queue.db.words("SELECT phone AS value FROM suppression");
        assert_eq!(suppressed, [text(&phone(0))]);
    })
    .await;
}

#[tokio::test]
async fn message_without_a_receipt_in_time_is_no_report() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 3).await;
        receive(queue, &[receipt(&all[0], ReceiptState::Delivered)]).await;
        let none = queue.store.receipts().end_awaiting(PROVIDER, NOW).await;
        assert_eq!(none.expect("ended"), 0);
        let two = queue.store.receipts().end_awaiting(PROVIDER, after(1)).await;
        assert_eq!(two.expect("ended"), 2);
        let states: Vec<String> = all.iter().map(|sms| state(queue, sms)).collect();
        assert_eq!(states, ["delivered", "no_report", "no_report"]);
        assert_eq!(word(queue, "content", all[1].id), None);
        let awaiting = queue.store.receipts().awaiting_providers().await;
        assert!(awaiting.expect("providers").is_empty());
        // Better late than never.
        receive(queue, &[receipt(&all[1], ReceiptState::Delivered)]).await;
        receive(queue, &[receipt(&all[2], ReceiptState::Accepted)]).await;
        let states: Vec<String> = all.iter().map(|sms| state(queue, sms)).collect();
        assert_eq!(states, ["delivered", "delivered", "no_report"]);
    })
    .await;
}

#[tokio::test]
async fn awaiting_messages_are_found_by_provider_and_time() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 5).await;
        let store = &queue.store;
        assert_eq!(store.receipts().awaiting_providers().await.expect("names"), [PROVIDER]);
        let spring = all[0].campaign_id;
        for (campaign, expected) in [(None, true), (Some(spring), true), (Some(99), false)] {
            let found = store.receipts().is_awaiting(PROVIDER, campaign).await;
            assert_eq!(found.expect("an answer"), expected, "{campaign:?}");
        }
        let span = NOW..=NOW;
        let found = store.receipts().awaiting_span(PROVIDER, &span).await.expect("a span");
        assert_eq!(found, Some((NOW, NOW)));
        let later = after(1)..=after(9);
        let found = store.receipts().awaiting_span(PROVIDER, &later).await.expect("a span");
        assert_eq!(found, None);
        let mut seen = Vec::new();
        let (mut last_at, mut last_id) = (Timestamp::from_millis(0), 0);
        loop {
            let page = store.receipts().awaiting(PROVIDER, &span, last_at, last_id, 2).await;
            let page = page.expect("a page");
            let Some(end) = page.last() else { break };
            (last_at, last_id) = (end.sent_at, end.id);
            seen.extend(page.iter().map(|one| one.id));
        }
        let ids: Vec<i64> = all.iter().map(|sms| sms.id).collect();
        assert_eq!(seen, ids);
    })
    .await;
}

#[tokio::test]
async fn receipts_of_a_provider_are_leased_to_one_process() {
    on_every_engine(async |queue| {
        let lease = async |holder, now: Timestamp| {
            let until = now.plus(Duration::from_secs(30));
            let leased = queue.store.receipts().lease(PROVIDER, holder, now, until, None).await;
            leased.expect("an answer").map(|lease| lease.pulled_at)
        };
        assert_eq!(lease(1, NOW).await, Some(None));
        assert_eq!(lease(2, after(1)).await, None);
        assert_eq!(lease(1, after(20)).await, Some(None));
        // The first one has died.
        assert_eq!(lease(2, after(45)).await, None);
        assert_eq!(lease(2, after(51)).await, Some(None));
        assert_eq!(lease(1, after(52)).await, None);
        let release = queue.store.receipts().release(PROVIDER, 1, Some(after(52)), None).await;
        release.expect("released");
        assert_eq!(lease(1, after(53)).await, None);
        let release = queue.store.receipts().release(PROVIDER, 2, Some(after(51)), None).await;
        release.expect("released");
        assert_eq!(lease(1, after(54)).await, Some(Some(after(51))));
    })
    .await;
}

#[tokio::test]
async fn position_of_a_pass_is_kept_until_it_is_complete() {
    on_every_engine(async |queue| {
        let lease = async |at: u64, position| {
            let (now, until) = (after(at), after(at + 30));
            let leased = queue.store.receipts().lease(PROVIDER, 1, now, until, position).await;
            leased.expect("an answer").expect("a lease").position
        };
        let release = async |pulled_at, position| {
            let released = queue.store.receipts().release(PROVIDER, 1, pulled_at, position).await;
            released.expect("released");
        };
        assert_eq!(lease(1, None).await, None);
        // Renewed, then killed.
        assert_eq!(lease(2, Some("page 7")).await, text("page 7"));
        assert_eq!(lease(3, None).await, text("page 7"));
        release(None, Some("page 9")).await;
        assert_eq!(lease(4, None).await, text("page 9"));
        release(Some(after(4)), None).await;
        let leased = queue.store.receipts().lease(PROVIDER, 1, after(5), after(9), None).await;
        let expected = PullLease { pulled_at: Some(after(4)), position: None };
        assert_eq!(leased.expect("an answer"), Some(expected));
    })
    .await;
}

#[tokio::test]
async fn reused_message_id_belongs_to_each_reference() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 2).await;
        for sms in &all {
            let acceptance = Acceptance {
                message_id: text("SB000001"),
                awaits_receipt: true,
                ..Acceptance::default()
            };
            queue.settle(sms, Transition::Sent(acceptance)).await;
        }
        let of = |sms| Receipt {
            message_id: text("SB000001"),
            phone: None,
            ..receipt(sms, ReceiptState::Delivered)
        };
        assert_eq!(receive(queue, &[of(&all[0])]).await.matched, 1);
        // After the provider was started again.
        assert_eq!(receive(queue, &[of(&all[1]), of(&all[1])]).await.matched, 1);
        let states: Vec<String> = all.iter().map(|sms| state(queue, sms)).collect();
        assert_eq!(states, ["delivered", "delivered"]);
        let again = add(queue, &[of(&all[0]), of(&all[1])], after(9)).await;
        assert_eq!(again.new, 0);
    })
    .await;
}

#[tokio::test]
async fn reference_identifies_a_message_with_a_masked_phone() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 3).await;
        let written = |sms: &Sms, phone: String| Receipt {
            phone: Some(phone),
            message_id: None,
            ..receipt(sms, ReceiptState::Delivered)
        };
        let last = |sms: &Sms, digits: usize| sms.phone[sms.phone.len() - digits..].to_owned();
        let receipts = [
            written(&all[0], format!("138****{}", last(&all[0], 4))),
            written(&all[1], format!("0 15 {}", last(&all[1], 8))),
            written(&all[2], "hidden".to_owned()),
        ];
        assert_eq!(receive(queue, &receipts).await.matched, 3);
    })
    .await;
}

#[tokio::test]
async fn message_is_delivered_when_parts_with_own_ids_are() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 2).await;
        for sms in &all {
            let acceptance = Acceptance {
                message_id: Some(format!("{}-1", sms.id)),
                segments: Some(2),
                awaits_receipt: true,
                ..Acceptance::default()
            };
            queue.settle(sms, Transition::Sent(acceptance)).await;
        }
        let part = |sms: &Sms, number: u8, state| Receipt {
            message_id: Some(format!("{}-{number}", sms.id)),
            part: Some(ReceiptPart { number: 0, total: 0 }),
            ..receipt(sms, state)
        };
        receive(queue, &[part(&all[0], 1, ReceiptState::Delivered)]).await;
        receive(queue, &[part(&all[0], 1, ReceiptState::Delivered)]).await;
        assert_eq!(state(queue, &all[0]), "awaiting");
        receive(queue, &[part(&all[0], 2, ReceiptState::Delivered)]).await;
        assert_eq!(state(queue, &all[0]), "delivered");
        receive(queue, &[part(&all[1], 1, ReceiptState::Delivered)]).await;
        receive(queue, &[part(&all[1], 2, ReceiptState::Undelivered)]).await;
        assert_eq!(state(queue, &all[1]), "undelivered");
        assert_eq!(word(queue, "delivery_note", all[1].id), None);
    })
    .await;
}

#[tokio::test]
async fn unknown_messages_are_awaited_from_who_tried_them() {
    on_every_engine(async |queue| {
        let all = claimed(queue, 1).await;
        queue.settle(&all[0], unknown()).await;
        let ever = Timestamp::from_millis(0)..=after(3_600);
        let awaits = async |provider, is_default| {
            let tried = TriedAt { provider, is_default };
            let span = queue.store.receipts().unknown_span(tried, None, &ever).await;
            span.expect("a span").is_some()
        };
        let tried = async || {
            [
                awaits(PROVIDER, true).await,
                awaits(PROVIDER, false).await,
                awaits("other", true).await,
                awaits("other", false).await,
            ]
        };
        assert_eq!(tried().await, [true, true, false, false]);
        // Neither a killed worker nor another provider of the campaign changes that.
        queue.db.run("UPDATE attempt SET provider = ''");
        queue.db.run("UPDATE campaign SET provider = 'other'");
        assert_eq!(tried().await, [true, true, false, false]);
        // Through both.
        queue.db.run("UPDATE sms SET claimed_provider = ''");
        assert_eq!(tried().await, [true; 4]);
        // It was claimed before the column was added, so only its campaign says it.
        queue.db.run("UPDATE sms SET claimed_provider = NULL");
        queue.db.run("UPDATE campaign SET provider = NULL");
        assert_eq!(tried().await, [true, false, true, false]);
        queue.db.run(&format!("UPDATE campaign SET provider = '{PROVIDER}'"));
        assert_eq!(tried().await, [true, true, false, false]);
    })
    .await;
}

#[tokio::test]
async fn receipts_are_purged_with_their_message() {
    on_every_engine(async |queue| {
        let all = awaiting(queue, 3).await;
        let foreign = Receipt {
            reference: text("another-account"),
            message_id: text("X1"),
            // Without `+`.
            phone: Some(phone(2)[1..].to_owned()),
            ..receipt(&all[2], ReceiptState::Delivered)
        };
        let part = Some(ReceiptPart { number: 1, total: 1 });
        let receipts = [
            Receipt { part, ..receipt(&all[0], ReceiptState::Delivered) },
            Receipt { part, ..undelivered(&all[1], Class::Recipient) },
            foreign,
        ];
        receive(queue, &receipts).await;
        assert_eq!(stored(queue), 3);
        let delivery = async || {
            let totals = queue.store.report().totals(None).await.expect("totals");
            totals.delivery.expect("receipts are awaited")
        };
        let before = delivery().await;
        assert_eq!((before.delivered, before.undelivered, before.awaiting), (1, 1, 1));
        let purged = queue.store.purge_person(&[phone(2)], NOW, Audited::unrecorded()).await;
        assert_eq!(purged.expect("purged").sent, 1);
        assert_eq!(stored(queue), 2);
        let mut purge = Purge::before(after(1), None);
        while let Some(_step) = queue
            .store
            .next_purge(&mut purge, NOW, &mut Audited::unrecorded())
            .await
            .expect("purged")
        {}
        assert_eq!(stored(queue), 0);
        // What was awaited when it was purged will never be known.
        let after = delivery().await;
        assert_eq!((after.delivered, after.undelivered, after.no_report), (1, 1, 1));
    })
    .await;
}
