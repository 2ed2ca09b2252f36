//! Random operations of workers, operators and imports in any order, with late results: each message is always in
//! exactly one table, under the same key.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use smsq_lifecycle::{Settled, Transition};
use smsq_message::receipt::{Receipt, ReceiptState};
use smsq_message::sms::{Acceptance, Class, NewSms, Sms};
use smsq_store::{Audited, CampaignStatus, Purge, ResendReason, RetryFilter};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, again, failed, failure, fixed, phone, released, row, sent,
    unknown,
};
use crate::support::databases::{Database, Kind, on_every_database};

/// One operation. Claims are counted from the newest, which are rarely stale; an index selects one of all failed
/// messages, modulo their number.
#[derive(Clone, Debug)]
enum Move {
    Import {
        first: u64,
        count: u64,
    },
    PlainInsert,
    /// A message with a key of its own.
    Post {
        key: u64,
        number: u64,
    },
    Fix {
        index: usize,
        number: Option<u64>,
    },
    Claim {
        want: u32,
    },
    Settle {
        claim: usize,
        transition: Transition,
    },
    Die,
    Release {
        known: usize,
    },
    Requeue,
    RetryFailed {
        cancelled: bool,
    },
    RetryUnknown,
    SettleByWord {
        as_sent: bool,
    },
    /// A lookup or a receipt proves that an unknown message was not accepted.
    Prove {
        index: usize,
        reason: ResendReason,
        is_resent: bool,
    },
    Suppress {
        number: u64,
    },
    Unsuppress,
    Expire,
    Cancel,
    Resume,
    Receipt {
        claim: usize,
        state: ReceiptState,
    },
    Purge,
    PurgePerson {
        number: u64,
    },
}

fn awaiting() -> Transition {
    Transition::Sent(Acceptance { awaits_receipt: true, ..Acceptance::default() })
}

fn transitions() -> impl Strategy<Value = Transition> {
    let resend = Transition::Ready { due_at: NOW, failure: None, counted: true, in_doubt: true };
    prop_oneof![
        2 => Just(sent()),
        2 => Just(awaiting()),
        2 => Just(failed()),
        2 => Just(Transition::Failed(failure(Class::Unavailable))),
        1 => Just(Transition::NotAdmitted(failure(Class::Expired))),
        2 => Just(again()),
        1 => Just(released()),
        1 => Just(resend),
        3 => Just(unknown()),
        2 => Just(Transition::Refunded),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    let reasons = prop::sample::select(vec![ResendReason::Absent, ResendReason::NotAccepted]);
    let receipt_states = prop::sample::select(vec![
        ReceiptState::Accepted,
        ReceiptState::Delivered,
        ReceiptState::Undelivered,
    ]);
    prop_oneof![
        2 => (0_u64..8, 1_u64..4).prop_map(|(first, count)| Move::Import { first, count }),
        1 => Just(Move::PlainInsert),
        1 => (0_u64..4, 0_u64..8).prop_map(|(key, number)| Move::Post { key, number }),
        1 => (any::<usize>(), proptest::option::of(0_u64..12))
            .prop_map(|(index, number)| Move::Fix { index, number }),
        6 => (1_u32..4).prop_map(|want| Move::Claim { want }),
        10 => (prop_oneof![3 => 0_usize..3, 1 => 0_usize..20], transitions()).prop_map(|(claim, transition)| Move::Settle { claim, transition }),
        1 => Just(Move::Die),
        1 => any::<usize>().prop_map(|known| Move::Release { known }),
        3 => Just(Move::Requeue),
        2 => any::<bool>().prop_map(|cancelled| Move::RetryFailed { cancelled }),
        1 => Just(Move::RetryUnknown),
        1 => any::<bool>().prop_map(|as_sent| Move::SettleByWord { as_sent }),
        3 => (any::<usize>(), reasons, any::<bool>())
            .prop_map(|(index, reason, is_resent)| Move::Prove { index, reason, is_resent }),
        1 => (0_u64..8).prop_map(|number| Move::Suppress { number }),
        1 => Just(Move::Unsuppress),
        1 => Just(Move::Expire),
        1 => Just(Move::Cancel),
        2 => Just(Move::Resume),
        3 => (0_usize..6, receipt_states).prop_map(|(claim, state)| Move::Receipt { claim, state }),
        1 => Just(Move::Purge),
        1 => (0_u64..8).prop_map(|number| Move::PurgePerson { number }),
    ]
}

/// A campaign, and what must always hold for it.
struct Life<'a> {
    queue: &'a TestQueue,
    campaign_id: i64,
    worker_id: i64,
    claims: Vec<Sms>,
    /// The messages that the provider accepted.
    accepted: BTreeSet<i64>,
    /// The claims with which messages may have been accepted, without a known result.
    in_doubt: BTreeMap<i64, BTreeSet<i64>>,
    keys: BTreeMap<i64, String>,
}

impl<'a> Life<'a> {
    async fn new(queue: &'a TestQueue) -> Self {
        Self {
            queue,
            campaign_id: queue.campaign("spring").await,
            worker_id: queue.worker().await.id,
            claims: Vec::new(),
            accepted: BTreeSet::new(),
            in_doubt: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    async fn make(&mut self, made: &Move) {
        let (queue, campaign_id) = (self.queue, self.campaign_id);
        match made {
            Move::Import { first, count } => {
                let rows = (*first..first + count).map(row).collect();
                queue.import(campaign_id, rows).await;
            }
            Move::PlainInsert => queue.db.run(&format!(
                "INSERT INTO sms (campaign_id, phone, content, due_at)
                 VALUES ({campaign_id}, '+8613800138000', 'hello', 0)"
            )),
            Move::Post { key, number } => {
                let posted = NewSms { dedupe_key: format!("own {key}"), ..row(*number) };
                queue.import(campaign_id, vec![posted]).await;
            }
            Move::Fix { index, number } => self.fix(*index, *number).await,
            Move::Claim { want } => {
                let claimed = queue.claim(self.worker_id, campaign_id, *want).await;
                self.claims.extend(claimed);
            }
            Move::Settle { claim, transition } => self.settle(*claim, transition.clone()).await,
            Move::Die => self.die().await,
            Move::Release { known } => {
                let known =
                    self.claims.iter().skip(known % 3).map(|sms| (sms.id, sms.claim)).collect();
                queue.release(self.worker_id, known, after(60), campaign_id).await;
            }
            Move::Requeue => {
                let requeued = queue.store.requeue_unknown(campaign_id, None, 0, NOW).await;
                requeued.expect("requeued");
            }
            Move::RetryFailed { cancelled } => self.retry_failed(*cancelled).await,
            Move::RetryUnknown => {
                let all = RetryFilter::default();
                let retried = queue.store.retry_unknown(&all, NOW, Audited::unrecorded());
                retried.await.expect("retried");
            }
            Move::SettleByWord { as_sent } => {
                let settled = queue.store.settle_unknown(
                    campaign_id,
                    *as_sent,
                    None,
                    NOW,
                    Audited::unrecorded(),
                );
                settled.await.expect("settled");
            }
            Move::Prove { index, reason, is_resent } => {
                self.prove(*index, *reason, *is_resent).await;
            }
            Move::Suppress { number } => self.suppress(*number).await,
            Move::Unsuppress => {
                let all = (0..8).map(phone).collect();
                queue
                    .store
                    .suppression()
                    .remove(all, NOW, Audited::unrecorded())
                    .await
                    .expect("removed");
            }
            Move::Expire => {
                queue.db.run("UPDATE sms SET expires_at = due_at WHERE state = 0");
                let expired = queue.store.expire_rows(campaign_id, after(1), None, NOW);
                expired.await.expect("expired");
            }
            Move::Cancel => {
                self.set(CampaignStatus::Cancelled).await;
                let cancelled = queue.store.cancel_rows(campaign_id, NOW).await;
                cancelled.expect("cancelled");
            }
            Move::Resume => self.set(CampaignStatus::Active).await,
            Move::Receipt { claim, state } => self.receive(*claim, *state).await,
            Move::Purge => self.purge().await,
            Move::PurgePerson { number } => self.purge_person(*number).await,
        }
    }

    async fn retry_failed(&self, cancelled: bool) {
        let filter =
            RetryFilter { class: cancelled.then_some(Class::Cancelled), ..RetryFilter::default() };
        self.queue.store.retry_failed(&filter, NOW, Audited::unrecorded()).await.expect("retried");
    }

    async fn suppress(&self, number: u64) {
        let mut audited = Audited::unrecorded();
        let listed = vec![(phone(number), None)];
        let listed = self.queue.store.suppression().add(listed, NOW, &mut audited).await;
        listed.expect("listed");
    }

    async fn purge(&mut self) {
        let mut purge = Purge::before(after(1), None);
        let mut audited = Audited::unrecorded();
        let store = &self.queue.store;
        while let Some(_chunk) =
            store.next_purge(&mut purge, NOW, &mut audited).await.expect("purged")
        {}
        self.forget_purged();
    }

    async fn purge_person(&mut self, number: u64) {
        let store = &self.queue.store;
        store.purge_person(&[phone(number)], NOW, Audited::unrecorded()).await.expect("purged");
        self.forget_purged();
    }

    /// Forgets what is in no table any more.
    fn forget_purged(&mut self) {
        let left: BTreeSet<i64> = self
            .queue
            .db
            .numbers(
                "SELECT id AS value FROM sms UNION SELECT id FROM sms_failed UNION SELECT id FROM sms_sent",
            )
            .into_iter()
            .collect();
        self.claims.retain(|sms| left.contains(&sms.id));
        self.accepted.retain(|id| left.contains(id));
        self.in_doubt.retain(|id, _| left.contains(id));
        self.keys.retain(|id, _| left.contains(id));
    }

    /// A receipt of a message that was claimed.
    async fn receive(&mut self, claim: usize, state: ReceiptState) {
        if self.claims.is_empty() {
            return;
        }
        let newest = self.claims.len() - 1;
        let sms = &self.claims[newest - claim % self.claims.len()];
        let receipt = Receipt {
            reference: Some(sms.reference.clone()),
            message_id: None,
            phone: Some(sms.phone.clone()),
            state,
            failure: (state == ReceiptState::Undelivered).then(|| failure(Class::Recipient)),
            at: Some(NOW),
            part: None,
        };
        self.queue.store.receipts().add(PROVIDER, &[receipt], after(2)).await.expect("stored");
        // It may have been replaced.
        let sent = format!("SELECT id AS value FROM sms_sent WHERE id = {}", sms.id);
        self.accepted.extend(self.queue.db.numbers(&sent));
    }

    async fn set(&self, state: CampaignStatus) {
        self.queue.set_state(self.campaign_id, state).await;
    }

    async fn fix(&mut self, index: usize, number: Option<u64>) {
        let failed_ids = self.queue.db.numbers("SELECT id AS value FROM sms_failed ORDER BY id");
        if failed_ids.is_empty() {
            return;
        }
        let id = failed_ids[index % failed_ids.len()];
        let sql = format!("SELECT phone AS value FROM sms_failed WHERE id = {id}");
        let old = self.queue.db.words(&sql).remove(0).expect("a phone");
        let fixed: NewSms = match number {
            Some(number) => fixed(2, id, &phone(number), "hello"),
            None => fixed(2, id, &old, "hello again"),
        };
        let done = self.queue.import(self.campaign_id, vec![fixed]).await;
        if done.accepted == 1 {
            self.keys.remove(&id);
            // An operator had settled it as failed.
            self.in_doubt.remove(&id);
        }
    }

    async fn settle(&mut self, claim: usize, transition: Transition) {
        if self.claims.is_empty() {
            return;
        }
        let newest = self.claims.len() - 1;
        let sms = &self.claims[newest - claim % self.claims.len()];
        let unknown = format!("SELECT id AS value FROM sms WHERE state = 2 AND id = {}", sms.id);
        let was_unknown = !self.queue.db.numbers(&unknown).is_empty();
        let settled = self.queue.settle(sms, transition.clone()).await;
        if settled == Settled::Stale {
            return;
        }
        if matches!(transition, Transition::Sent(_)) {
            self.accepted.insert(sms.id);
        }
        if matches!(transition, Transition::Unknown(_) | Transition::Ready { in_doubt: true, .. }) {
            let doubts = self.in_doubt.entry(sms.id).or_default();
            doubts.insert(sms.claim);
        } else if was_unknown && let Some(doubts) = self.in_doubt.get_mut(&sms.id) {
            doubts.remove(&sms.claim);
        }
        self.in_doubt.retain(|_, doubts| !doubts.is_empty());
    }

    /// Absence is proved for all attempts, a rejection for one: then only that one may have been accepted.
    async fn prove(&mut self, index: usize, reason: ResendReason, is_resent: bool) {
        let unknown = "SELECT id AS value FROM sms WHERE state = 2 ORDER BY id";
        let ids = self.queue.db.numbers(unknown);
        if ids.is_empty() {
            return;
        }
        let id = ids[index % ids.len()];
        let claim = self.queue.number("claim", id);
        let is_changed = if is_resent {
            let store = &self.queue.store;
            let requeued = store.requeue_message(id, claim, reason, 0, NOW);
            requeued.await.expect("asked")
        } else {
            let failure = failure(Class::Recipient);
            let found = match reason {
                ResendReason::Absent => Transition::FoundAbsent(failure),
                _ => Transition::FoundRejected(failure),
            };
            self.queue.settle_claim(id, claim, found).await == Settled::Done
        };
        if is_changed && let Some(doubts) = self.in_doubt.remove(&id) {
            assert!(reason == ResendReason::Absent || doubts.len() <= 1);
        }
    }

    async fn die(&mut self) {
        let workers = self.queue.store.workers().all().await.expect("workers");
        let held = self.queue.db.numbers("SELECT id AS value FROM sms WHERE state = 1");
        let reclaimed =
            self.queue.store.workers().reclaim(&workers[0], "its worker died", NOW).await;
        assert_eq!(reclaimed.expect("reclaimed"), held.len() as u64);
        for id in held {
            let claim = self.queue.number("claim", id);
            self.in_doubt.entry(id).or_default().insert(claim);
        }
        self.worker_id = self.queue.worker().await.id;
    }

    async fn assert_sound(&mut self) {
        self.queue.assert_nothing_is_lost().await;
        for id in &self.accepted {
            let place = self.queue.place(*id);
            let noted = format!("SELECT late_accepted AS value FROM sms WHERE id = {id}");
            let holds = place == "sent" || (place == "sending" && self.queue.db.number(&noted) > 0);
            assert!(holds, "message {id} was accepted and is {place}");
        }
        for id in self.in_doubt.keys() {
            let place = self.queue.place(*id);
            // An operator may settle it; a retry of that is in doubt again.
            let places = ["ready", "sending", "unknown", "sent", "settled"];
            let holds = places.contains(&place.as_str());
            assert!(holds, "message {id} was in doubt and is {place}");
        }
        self.assert_keys_are_kept();
    }

    /// Checks that messages have their original keys, and that the campaign has all of them.
    fn assert_keys_are_kept(&mut self) {
        let known: BTreeSet<String> = self
            .queue
            .db
            .words("SELECT dedupe_key AS value FROM sms_key")
            .into_iter()
            .flatten()
            .collect();
        for table in ["sms", "sms_failed"] {
            let wanted = format!("{table} WHERE dedupe_key IS NOT NULL ORDER BY id");
            let ids = self.queue.db.numbers(&format!("SELECT id AS value FROM {wanted}"));
            let keys = self.queue.db.words(&format!("SELECT dedupe_key AS value FROM {wanted}"));
            for (id, key) in ids.into_iter().zip(keys.into_iter().flatten()) {
                let first = self.keys.entry(id).or_insert_with(|| key.clone());
                assert_eq!(*first, key, "message {id} has another key");
            }
        }
        for id in &self.accepted {
            if let Some(key) = self.keys.get(id) {
                assert!(known.contains(key), "message {id} was sent and its key is lost");
            }
        }
    }
}

/// Runs the operations, and checks after each.
async fn live(db: Database, moves: &[Move]) {
    let queue = TestQueue::new(db).await;
    let mut life = Life::new(&queue).await;
    for made in moves {
        life.make(made).await;
        life.assert_sound().await;
    }
}

fn block_on(lives: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(lives);
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn random_operations_lose_and_duplicate_nothing(
        moves in prop::collection::vec(moves(), 1..50)
    ) {
        block_on(live(Database::in_a_file(), &moves));
    }
}

proptest! {
    // Fewer, because a check on a server takes longer.
    #![proptest_config(cases(12))]

    #[test]
    fn random_operations_on_a_server_lose_nothing(
        moves in prop::collection::vec(moves(), 1..50)
    ) {
        block_on(on_every_database(async |db| {
            if db.kind != Kind::Sqlite {
                live(db, &moves).await;
            }
        }));
    }
}
