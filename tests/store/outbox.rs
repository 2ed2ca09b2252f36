//! Events for hooks: they are stored with what they are about, only for hooks that want them.

use std::sync::Arc;

use smsq_lifecycle::Transition;
use smsq_message::event::{BodyParts, EventKind, Subscription, Subscriptions};
use smsq_message::receipt::{Receipt, ReceiptState};
use smsq_message::sms::{Acceptance, Sms};
use smsq_store::{Audited, Delivered, NewReply, Store};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, failed, on_every_engine, phone, sent, unknown,
};

pub(super) const HOOK: &str = "crm";

/// The store of a program with a hook that wants these kinds.
pub(super) fn hooked(queue: &TestQueue, kinds: &[EventKind], has_phones: bool) -> Store {
    let kinds = kinds.iter().copied().collect();
    let subscription = Subscription::new(
        HOOK.to_owned(),
        kinds,
        BodyParts { phones: has_phones, texts: has_phones },
    );
    let subscriptions = Arc::new(Subscriptions::new(vec![subscription]));
    queue.store.clone().with_subscriptions(subscriptions)
}

pub(super) async fn settle(store: &Store, worker: i64, sms: &Sms, transition: Transition) {
    use smsq_lifecycle::Settlement;
    use smsq_store::CommitBatch;
    let batch = CommitBatch {
        settlements: vec![Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: PROVIDER.to_owned(),
            transition,
        }],
        ..CommitBatch::new(worker, NOW)
    };
    store.commit(&batch).await.expect("committed");
}

fn kinds(queue: &TestQueue) -> Vec<String> {
    let rows = queue.db.words("SELECT kind AS value FROM hook_event ORDER BY id");
    rows.into_iter().map(|kind| kind.expect("a kind")).collect()
}

pub(super) fn receipt(sms: &Sms, state: ReceiptState) -> Receipt {
    Receipt {
        reference: Some(sms.reference.clone()),
        message_id: None,
        phone: None,
        state,
        failure: None,
        at: None,
        part: None,
    }
}

pub(super) fn reply(phone: &str, key: &str) -> NewReply {
    NewReply {
        phone: phone.to_owned(),
        sender: Some("12345".to_owned()),
        content: "yes".to_owned(),
        key: key.to_owned(),
        is_stop: false,
    }
}

#[tokio::test]
async fn events_are_stored_only_for_hooks_that_want_them() {
    on_every_engine(async |queue| {
        let (_, worker, all) = queue.claimed(8).await;
        let without = queue.store.clone();
        let other = hooked(queue, &[EventKind::CampaignDone], false);
        for (store, sms) in [(&without, &all[0]), (&other, &all[1])] {
            settle(store, worker.id, sms, failed()).await;
        }
        settle(&without, worker.id, &all[2], unknown()).await;
        assert_eq!(kinds(queue), [""; 0]);
        let hooked = hooked(queue, &[EventKind::MessageFailed, EventKind::MessageUnknown], false);
        settle(&hooked, worker.id, &all[3], failed()).await;
        settle(&hooked, worker.id, &all[4], unknown()).await;
        settle(&hooked, worker.id, &all[5], sent()).await;
        // A commit whose answer was lost is repeated.
        settle(&hooked, worker.id, &all[3], failed()).await;
        settle(&hooked, worker.id, &all[4], unknown()).await;
        assert_eq!(kinds(queue), ["message.failed", "message.unknown"]);
        let bodies = queue.db.words("SELECT body AS value FROM hook_event ORDER BY id");
        let body = bodies[0].as_ref().expect("a body");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        let data = &body["data"];
        assert_eq!(data["message"], all[3].id.to_string());
        assert_eq!(data["class"], "recipient");
        // The words of a provider may repeat the text.
        assert_eq!(data["reason"], serde_json::Value::Null);
        assert_eq!(data["provider"], PROVIDER);
        assert!(data.get("phone").is_none(), "{body}");
        let personal = self::hooked(queue, &[EventKind::MessageFailed], true);
        settle(&personal, worker.id, &all[6], failed()).await;
        let bodies = queue.db.words("SELECT body AS value FROM hook_event ORDER BY id DESC");
        let body = bodies[0].as_ref().expect("a body");
        assert!(body.contains(r#""reason":"because""#), "{body}");
    })
    .await;
}

#[tokio::test]
async fn messages_of_dead_workers_and_of_operators_have_events() {
    on_every_engine(async |queue| {
        let kinds_wanted = [EventKind::MessageFailed, EventKind::MessageUnknown];
        let hooked = hooked(queue, &kinds_wanted, false);
        let (spring, worker) = queue.queued_with_worker(3).await;
        queue.claim(worker.id, spring, 2).await;
        let reclaimed = hooked.workers().reclaim(&worker, "it died", NOW).await;
        assert_eq!(reclaimed.expect("reclaimed"), 2);
        assert_eq!(kinds(queue), ["message.unknown"; 2]);
        let audited = Audited::unrecorded();
        let settled = hooked.settle_unknown(spring, false, None, NOW, audited);
        assert_eq!(settled.await.expect("settled"), 2);
        assert_eq!(kinds(queue)[2..], ["message.failed"; 2]);
        // What is cancelled is not a failure.
        queue.cancel(spring).await;
        let cancelled = hooked.cancel_rows(spring, NOW).await.expect("cancelled");
        assert!(cancelled <= 1);
        assert_eq!(kinds(queue).len(), 4);
    })
    .await;
}

#[tokio::test]
async fn deliveries_have_events_once() {
    on_every_engine(async |queue| {
        let wanted = [EventKind::MessageDelivered, EventKind::MessageUndelivered];
        let hooked = hooked(queue, &wanted, true);
        let (_, worker, all) = queue.claimed(3).await;
        for sms in &all {
            let accepted =
                Transition::Sent(Acceptance { awaits_receipt: true, ..Acceptance::default() });
            settle(&hooked, worker.id, sms, accepted).await;
        }
        let receipts = [
            receipt(&all[0], ReceiptState::Delivered),
            receipt(&all[1], ReceiptState::Undelivered),
            receipt(&all[2], ReceiptState::Accepted),
        ];
        for _ in 0..2 {
            let added = hooked.receipts().add(PROVIDER, &receipts, after(1)).await;
            added.expect("stored");
        }
        assert_eq!(kinds(queue), ["message.delivered", "message.undelivered"]);
        let phones = queue.db.words("SELECT phone AS value FROM hook_event ORDER BY id");
        assert_eq!(phones[0].as_deref(), Some(all[0].phone.as_str()));
        // A full hook counts.
        hooked.hooks().lease(HOOK, 1, NOW, after(10)).await.expect("leased");
        hooked.subscriptions().all()[0].set_full(true);
        let late = [receipt(&all[2], ReceiptState::Delivered)];
        let added = hooked.receipts().add(PROVIDER, &late, after(2)).await;
        added.expect("stored");
        assert_eq!(kinds(queue).len(), 2);
        let row = hooked.hooks().row(HOOK).await.expect("read").expect("a row");
        assert_eq!(row.skipped(), 1);
        // Events with data of a person are deleted with their messages.
        let person = [all[0].phone.clone()];
        let purged = hooked.purge_person(&person, after(3), Audited::unrecorded());
        purged.await.expect("purged");
        assert_eq!(kinds(queue), ["message.undelivered"]);
    })
    .await;
}

#[tokio::test]
async fn one_process_at_a_time_delivers_and_results_are_kept() {
    on_every_engine(async |queue| {
        let hooked = hooked(queue, &[EventKind::MessageFailed], false);
        let (spring, worker) = queue.queued_with_worker(4).await;
        for sms in queue.claim(worker.id, spring, 4).await {
            settle(&hooked, worker.id, &sms, failed()).await;
        }
        let hooks = hooked.hooks();
        let lease = async |holder, at, until| {
            let lease = hooks.lease(HOOK, holder, after(at), after(until)).await;
            lease.expect("asked").is_some()
        };
        assert!(lease(1, 0, 10).await);
        assert!(!lease(2, 5, 15).await);
        assert!(lease(1, 6, 16).await);
        assert!(lease(2, 17, 27).await);
        hooks.release(HOOK, 2).await.expect("released");
        assert!(lease(1, 18, 28).await);
        assert_eq!(hooks.next_due(HOOK).await.expect("read"), Some(NOW));
        let due = hooks.due(HOOK, NOW, 10).await.expect("read");
        assert_eq!(due.len(), 4);
        let error = || "500".to_owned();
        let again = Delivered::Again { at: after(60), error: error() };
        let results = [
            (due[0].id, Delivered::Done),
            (due[1].id, again),
            (due[2].id, Delivered::GivenUp { error: error() }),
        ];
        let finished = hooks.finish(HOOK, &results, None, after(20)).await;
        finished.expect("stored");
        let counts = hooks.counts(HOOK).await.expect("counted");
        assert_eq!((counts.waiting, counts.delivered, counts.given_up), (2, 1, 1));
        let due = hooks.due(HOOK, after(20), 10).await.expect("read");
        assert_eq!(due.len(), 1);
        let row = hooks.row(HOOK).await.expect("read").expect("a row");
        assert_eq!(row.delivered(), 1);
        assert_eq!(row.last_error.as_deref(), Some("500"));
        let off = [(due[0].id, Delivered::Done)];
        let finished = hooks.finish(HOOK, &off, Some("gone"), after(21)).await;
        finished.expect("stored");
        let row = hooks.row(HOOK).await.expect("read").expect("a row");
        assert_eq!(row.off_at, Some(after(21)));
        assert_eq!(row.failing_since, None);
        hooks.turn_on(HOOK).await.expect("on");
        let replayed = hooks.replay(HOOK, NOW, None, after(30)).await;
        assert_eq!(replayed.expect("replayed"), 3);
        let due = hooks.due(HOOK, after(30), 10).await.expect("read");
        assert_eq!(due.len(), 3);
        assert!(!hooks.has_more_waiting(HOOK, 4).await.expect("read"));
        assert!(hooks.has_more_waiting(HOOK, 3).await.expect("read"));
        let purged = hooks.purge(HOOK, NOW, after(1)).await.expect("purged");
        assert_eq!(purged, 4);
        let row = hooks.row(HOOK).await.expect("read").expect("a row");
        assert_eq!(row.skipped(), 4);
        assert_eq!(hooks.names().await.expect("read"), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn watch_of_a_campaign_ends_once() {
    on_every_engine(async |queue| {
        let hooked = hooked(queue, &[EventKind::CampaignDone], false);
        let hooks = hooked.hooks();
        let spring = queue.queued(1).await;
        let queued = hooked.queued_campaigns().await.expect("read");
        let watch = async || hooks.watch(&queued, NOW).await.expect("watched");
        watch().await;
        watch().await;
        assert_eq!(hooks.watched().await.expect("read").len(), 1);
        let end = async || hooks.end_watch(spring, &[], NOW).await.expect("asked");
        assert!(!end().await);
        let worker = queue.worker().await;
        let sms = queue.claim_one(worker.id, spring).await;
        assert!(!end().await);
        settle(&hooked, worker.id, &sms, sent()).await;
        assert!(end().await);
        assert!(!end().await);
        // Without hooks nothing is watched.
        let without = queue.store.hooks();
        without.watch(&queued, NOW).await.expect("nothing");
        assert_eq!(without.watched().await.expect("read"), []);
    })
    .await;
}

#[tokio::test]
async fn reply_is_stored_once_with_its_campaign() {
    on_every_engine(async |queue| {
        let hooked = hooked(queue, &[EventKind::ReplyReceived], true);
        let spring = queue.queued(2).await;
        let known = queue.db.words("SELECT phone AS value FROM sms LIMIT 1");
        let known = known[0].clone().expect("a phone");
        let other = phone(77_777);
        let replies = [reply(&known, "a"), reply(&other, "b"), reply(&known, "a")];
        let add = hooked.replies().add(PROVIDER, &replies, NOW).await;
        assert_eq!(add.expect("stored"), 2);
        let again = hooked.replies().add(PROVIDER, &replies, NOW).await;
        assert_eq!(again.expect("stored"), 0);
        let kept = hooked.replies().page(None, 10).await.expect("read");
        assert_eq!(kept.len(), 2);
        assert_eq!(kept[0].campaign_id, None);
        assert_eq!(kept[1].campaign_id, Some(spring));
        let count = hooked.replies().count(Some(spring)).await;
        assert_eq!(count.expect("counted"), 1);
        assert_eq!(kinds(queue), ["reply.received"; 2]);
        let person = [other];
        let purged = hooked.purge_person(&person, after(3), Audited::unrecorded());
        purged.await.expect("purged");
        assert_eq!(hooked.replies().count(None).await.expect("counted"), 1);
        assert_eq!(kinds(queue).len(), 1);
    })
    .await;
}
