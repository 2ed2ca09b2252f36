//! Claims that the database has lost are made again: what a worker wrote down about them decides.

use smsq_lifecycle::Settled;
use smsq_message::sms::Sms;
use smsq_store::StartedClaim;

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, again, failed, on_every_engine, sent, unknown,
};

/// The claim after this one, which the database does not have.
pub(super) fn later(sms: &Sms) -> StartedClaim {
    StartedClaim {
        id: sms.id,
        claim: sms.claim + 1,
        provider: PROVIDER.to_owned(),
        reference: "later".to_owned(),
        created_at: sms.stored.created_at,
        claimed_at: NOW,
    }
}

/// Makes the claim again; returns whether the message is sending under it, and whether it is contested.
async fn redo(queue: &TestQueue, claim: &StartedClaim) -> (bool, bool) {
    let claims = std::slice::from_ref(claim);
    let redone = queue.store.workers().redo(claims).await.expect("redone");
    (redone.sending.contains(&(claim.id, claim.claim)), redone.contested.contains(&claim.id))
}

#[tokio::test]
async fn lost_claim_supersedes_the_one_that_the_database_has() {
    on_every_engine(async |queue| {
        let (_, _, first) = queue.one_claimed().await;
        let lost = later(&first);
        // The first one was answered, or its worker claimed it after the database was put back.
        assert_eq!(redo(queue, &lost).await, (true, true));
        assert_eq!(queue.settle(&first, again()).await, Settled::Stale);
        assert_eq!(queue.place(first.id), "sending");
        // A refusal of the lost one does not prove that the other was refused, too.
        queue.settle_claim(lost.id, lost.claim, failed()).await;
        assert_eq!(queue.place(first.id), "unknown");
        assert_eq!(redo(queue, &lost).await, (false, false));
    })
    .await;
}

#[tokio::test]
async fn lost_claim_of_a_queued_message_is_made_again() {
    on_every_engine(async |queue| {
        let (_, _, first) = queue.one_claimed().await;
        queue.settle(&first, again()).await;
        let lost = later(&first);
        let another = StartedClaim { created_at: after(1), ..lost.clone() };
        assert_eq!(redo(queue, &another).await, (false, false));
        assert_eq!(redo(queue, &lost).await, (true, false));
        queue.settle_claim(lost.id, lost.claim, sent()).await;
        assert_eq!(queue.place(first.id), "sent");
    })
    .await;
}

#[tokio::test]
async fn lost_claim_of_a_failed_message_is_made_again() {
    on_every_engine(async |queue| {
        let (_, _, first) = queue.one_claimed().await;
        queue.settle(&first, failed()).await;
        assert_eq!(queue.place(first.id), "recipient");
        // An operator had it tried again.
        let lost = later(&first);
        assert_eq!(redo(queue, &lost).await, (true, false));
        queue.settle_claim(lost.id, lost.claim, unknown()).await;
        assert_eq!(queue.place(first.id), "unknown");
    })
    .await;
}
