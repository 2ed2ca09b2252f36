//! A queue for the tests of the store: an open database, short functions for what workers and operators do, and a count
//! of all rows that does not use the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use smsq_lifecycle::admission::{AdmissionRules, ProviderRules};
use smsq_lifecycle::resend::ResendRule;
use smsq_lifecycle::{LaneClaim, ProviderClaim, Settled, Settlement, Transition};
use smsq_limit::Account;
use smsq_message::instant::DbMicros;
use smsq_message::sms::{Acceptance, Class, Failure, NewSms, Sms, Timestamp};
use smsq_store::{
    Audited, CampaignStatus, CommitBatch, Enqueued, ImportApproval, ImportBatch, NewCampaign,
    NewWorker, Orphans, ProviderClaimed, QueuedCampaign, Store, Worker,
};

use crate::support::databases::{Database, on_every_database};

pub(super) const NOW: Timestamp = Timestamp::from_millis(1_763_715_600_000);
pub(super) const PROVIDER: &str = "cellar";
/// All messages: id, campaign, import, key, and their state or class of failure.
const ROWS: &str = "
    SELECT id, campaign_id, import_id, dedupe_key, attempts, claim, reference,
           CASE state WHEN 0 THEN 'ready' WHEN 1 THEN 'sending' ELSE 'unknown' END AS place FROM sms
    UNION ALL SELECT id, campaign_id, import_id,
           CASE WHEN import_id IS NOT NULL THEN coalesce(dedupe_key, phone) END, attempts, claim, reference, 'sent'
           FROM sms_sent
    UNION ALL SELECT id, campaign_id, import_id, dedupe_key, attempts, claim, reference, class FROM sms_failed";

pub(super) struct TestQueue {
    pub(super) db: Database,
    pub(super) store: Store,
}

/// Runs a test with a new queue on every database, and counts all messages at its end.
pub(super) async fn on_every_engine(test: impl AsyncFn(&TestQueue)) {
    on_every_database(async |db| {
        let queue = TestQueue::new(db).await;
        test(&queue).await;
        queue.assert_nothing_is_lost().await;
    })
    .await;
}

pub(super) fn after(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

pub(super) fn phone(number: u64) -> String {
    format!("+86138{number:08}")
}

/// A row of a file with its phone as its key.
pub(super) fn row(line: u64) -> NewSms {
    NewSms {
        line,
        phone: phone(line),
        content: "hello".to_owned(),
        params: "{}".to_owned(),
        segments: 1,
        dedupe_key: phone(line),
        replaces: None,
    }
}

pub(super) fn rows(lines: std::ops::Range<u64>) -> Vec<NewSms> {
    lines.map(row).collect()
}

/// A row of a failures file with a phone and a text that may have been fixed.
pub(super) fn fixed(line: u64, replaces: i64, phone: &str, content: &str) -> NewSms {
    NewSms {
        phone: phone.to_owned(),
        content: content.to_owned(),
        dedupe_key: phone.to_owned(),
        replaces: Some(replaces),
        ..row(line)
    }
}

pub(super) fn failure(class: Class) -> Failure {
    Failure::new(class, "because")
}

pub(super) fn sent() -> Transition {
    Transition::Sent(Acceptance { message_id: Some("SM1".to_owned()), ..Acceptance::default() })
}

pub(super) fn failed() -> Transition {
    Transition::Failed(failure(Class::Recipient))
}

pub(super) fn unknown() -> Transition {
    Transition::Unknown(failure(Class::Unknown))
}

/// Ready and due again, after an attempt.
pub(super) fn again() -> Transition {
    Transition::Ready {
        due_at: NOW,
        failure: Some(failure(Class::Unavailable)),
        counted: true,
        in_doubt: false,
    }
}

pub(super) fn released() -> Transition {
    Transition::Ready { due_at: NOW, failure: None, counted: false, in_doubt: false }
}

pub(super) fn claim_of(asks: &[(i64, u32)]) -> ProviderClaim {
    ProviderClaim {
        provider: PROVIDER.to_owned(),
        account: Account::new(PROVIDER),
        is_default: true,
        routes: Arc::default(),
        limits: Vec::new(),
        by_segments: false,
        from: NOW.into(),
        until: DbMicros::from(NOW).plus(Duration::from_millis(50)),
        released: Vec::new(),
        held: Vec::new(),
        max_messages: asks.iter().map(|(_, max_messages)| max_messages).sum(),
        max_requests: asks.iter().map(|(_, max_messages)| max_messages).sum(),
        lanes: asks
            .iter()
            .map(|&(campaign_id, max_messages)| LaneClaim::undivided(campaign_id, max_messages))
            .collect(),
        pool: None,
        prices: Arc::default(),
    }
}

pub(super) fn commit_batch(worker_id: i64, now: Timestamp) -> CommitBatch {
    CommitBatch::new(worker_id, now)
}

impl TestQueue {
    pub(super) async fn new(db: Database) -> Self {
        let store = db.open().await.expect("a database");
        Self { db, store }
    }

    pub(super) async fn campaign(&self, name: &str) -> i64 {
        let new = NewCampaign { name: name.to_owned(), ..NewCampaign::default() };
        let campaign = self.store.open_campaign(&new, NOW).await;
        campaign.expect("a campaign").id
    }

    pub(super) async fn begin(&self, campaign_id: i64) -> i64 {
        let begun = self.store.imports().begin(campaign_id, "list.csv", "hash", None, NOW).await;
        begun.expect("an import")
    }

    /// A batch of rows without other counts.
    pub(super) fn batch(import_id: i64, campaign_id: i64, rows: Vec<NewSms>) -> ImportBatch {
        ImportBatch {
            import_id,
            campaign_id,
            now: NOW,
            due_at: NOW,
            expires_at: None,
            window: None,
            division: None,
            approval: ImportApproval::OneByOne(String::new()),
            row_count: rows.len() as u64,
            rejected: 0,
            last_line: rows.last().map_or(0, |row| row.line),
            rows,
        }
    }

    /// Imports the rows as a file with one batch. As at the command line, a cancelled campaign is active again.
    pub(super) async fn import(&self, campaign_id: i64, rows: Vec<NewSms>) -> Enqueued {
        let state = format!("SELECT state AS value FROM campaign WHERE id = {campaign_id}");
        if self.db.number(&state) == CampaignStatus::Cancelled as i64 {
            self.set_state(campaign_id, CampaignStatus::Active).await;
        }
        let import_id = self.begin(campaign_id).await;
        let batch = Self::batch(import_id, campaign_id, rows);
        let done = self.store.imports().enqueue(&batch).await.expect("queued");
        let finished = self.store.imports().finish(import_id, NOW).await;
        finished.expect("finished");
        done
    }

    /// What the queue has of a campaign.
    pub(super) async fn queued_campaign(&self, campaign_id: i64) -> Option<QueuedCampaign> {
        let queued = self.store.queued_campaigns().await.expect("read");
        queued.into_iter().find(|queued| queued.campaign.id == campaign_id)
    }

    /// When the first ready message of a campaign is due.
    pub(super) async fn ready_at(&self, campaign_id: i64) -> Option<Timestamp> {
        self.queued_campaign(campaign_id).await?.ready_at
    }

    /// Queues rows of an unfinished import that expire.
    pub(super) async fn import_expiring(
        &self,
        campaign_id: i64,
        rows: Vec<NewSms>,
        expires_at: Timestamp,
    ) {
        let import_id = self.begin(campaign_id).await;
        let batch = ImportBatch {
            expires_at: Some(expires_at),
            ..Self::batch(import_id, campaign_id, rows)
        };
        self.store.imports().enqueue(&batch).await.expect("queued");
    }

    /// Makes the next `count` messages unknown and queues them again, in doubt.
    pub(super) async fn put_in_doubt(&self, worker_id: i64, campaign_id: i64, count: u32) {
        for sms in self.claim(worker_id, campaign_id, count).await {
            self.settle(&sms, unknown()).await;
        }
        self.requeue_unknown(campaign_id).await;
    }

    /// An operator settles all unknown messages of a campaign as failed; returns how many.
    pub(super) async fn settle_unknown_as_failed(&self, campaign_id: i64) -> u64 {
        let audited = Audited::unrecorded();
        let settled = self.store.settle_unknown(campaign_id, false, None, NOW, audited).await;
        settled.expect("settled")
    }

    /// Puts all unknown messages of a campaign back into the queue; returns how many.
    pub(super) async fn requeue_unknown(&self, campaign_id: i64) -> u64 {
        let requeued = self.store.requeue_unknown(campaign_id, None, 0, NOW);
        requeued.await.expect("requeued")
    }

    pub(super) async fn set_state(&self, campaign_id: i64, state: CampaignStatus) {
        let (all, store) = (&CampaignStatus::ALL, &self.store);
        let set = store.change_campaign_state(campaign_id, all, state, None, None);
        assert!(set.await.expect("a state"));
    }

    /// Cancels a campaign and its ready messages; returns how many.
    pub(super) async fn cancel(&self, campaign_id: i64) -> u64 {
        self.set_state(campaign_id, CampaignStatus::Cancelled).await;
        let cancelled = self.store.cancel_rows(campaign_id, NOW).await;
        cancelled.expect("cancelled")
    }

    /// A campaign with `count` messages.
    pub(super) async fn queued(&self, count: u64) -> i64 {
        let campaign_id = self.campaign("spring").await;
        self.import(campaign_id, rows(0..count)).await;
        campaign_id
    }

    /// A campaign with `count` messages, and a worker.
    pub(super) async fn queued_with_worker(&self, count: u64) -> (i64, Worker) {
        (self.queued(count).await, self.worker().await)
    }

    /// A campaign, and a worker that has claimed its `count` messages.
    pub(super) async fn claimed(&self, count: u32) -> (i64, Worker, Vec<Sms>) {
        let (campaign_id, worker) = self.queued_with_worker(count.into()).await;
        let claimed = self.claim(worker.id, campaign_id, count).await;
        (campaign_id, worker, claimed)
    }

    /// A campaign, and a worker that has claimed its one message.
    pub(super) async fn one_claimed(&self) -> (i64, Worker, Sms) {
        let (campaign_id, worker) = self.queued_with_worker(1).await;
        let sms = self.claim_one(worker.id, campaign_id).await;
        (campaign_id, worker, sms)
    }

    pub(super) async fn worker(&self) -> Worker {
        let new = NewWorker {
            host: "host".to_owned(),
            boot_id: "boot".to_owned(),
            pid_namespace: "namespace".to_owned(),
            pid: 1,
            process_started: 1,
            concurrency: 1,
            lease_ms: 30_000,
            machine_id: String::new(),
            token: format!("{:032x}", rand::random::<u128>()),
        };
        let id = self.store.workers().register(&new, NOW).await.expect("an id");
        let workers = self.store.workers().all().await.expect("workers");
        let worker = workers.into_iter().find(|worker| worker.id == id);
        worker.expect("the worker")
    }

    /// Commits one claim of a provider.
    pub(super) async fn claim_with(
        &self,
        worker_id: i64,
        now: Timestamp,
        claim: ProviderClaim,
    ) -> ProviderClaimed {
        self.claim_by(worker_id, now, claim, ResendRule::Always).await
    }

    /// The same with a rule for messages in doubt.
    pub(super) async fn claim_by(
        &self,
        worker_id: i64,
        now: Timestamp,
        claim: ProviderClaim,
        resends: ResendRule,
    ) -> ProviderClaimed {
        let of_provider = ProviderRules { resends, ..ProviderRules::default() };
        let rules = AdmissionRules {
            providers: HashMap::from([(claim.provider.clone(), of_provider)]),
            ..AdmissionRules::default()
        };
        let commit = CommitBatch {
            claims: vec![claim],
            admission: Arc::new(rules),
            ..commit_batch(worker_id, now)
        };
        let done = self.store.commit(&commit).await.expect("a commit");
        done.claims.into_iter().next().expect("an answer per claim")
    }

    pub(super) async fn claim(&self, worker_id: i64, campaign_id: i64, want: u32) -> Vec<Sms> {
        let claim = claim_of(&[(campaign_id, want)]);
        let claimed = self.claim_with(worker_id, NOW, claim).await;
        claimed.rows.into_iter().map(|claimed| claimed.sms).collect()
    }

    /// Claims the one message that is due.
    pub(super) async fn claim_one(&self, worker_id: i64, campaign_id: i64) -> Sms {
        let mut rows = self.claim(worker_id, campaign_id, 2).await;
        assert_eq!(rows.len(), 1, "one is due");
        rows.remove(0)
    }

    pub(super) async fn settle(&self, sms: &Sms, transition: Transition) -> Settled {
        self.settle_claim(sms.id, sms.claim, transition).await
    }

    pub(super) async fn settle_claim(
        &self,
        id: i64,
        claim: i64,
        transition: Transition,
    ) -> Settled {
        let commit = CommitBatch {
            settlements: vec![Settlement { id, claim, provider: PROVIDER.to_owned(), transition }],
            ..commit_batch(0, NOW)
        };
        let done = self.store.commit(&commit).await.expect("a commit");
        done.settled[0]
    }

    /// Releases the claims of a worker from before an instant, except the known ones.
    pub(super) async fn release(
        &self,
        worker_id: i64,
        known: Vec<(i64, i64)>,
        before: Timestamp,
        campaign_id: i64,
    ) -> usize {
        let commit = CommitBatch {
            orphans: Some(Orphans {
                known: known.into_iter().collect(),
                claimed_before: before,
                campaigns: vec![campaign_id],
            }),
            ..commit_batch(worker_id, before)
        };
        let done = self.store.commit(&commit).await.expect("a commit");
        done.released
    }

    /// The state of a message: `ready`, `sending`, `unknown`, `sent`, or the class of its failure.
    pub(super) fn place(&self, id: i64) -> String {
        let states =
            self.db.words(&format!("SELECT place AS value FROM ({ROWS}) AS t WHERE id = {id}"));
        assert_eq!(states.len(), 1, "message {id} is in {states:?}");
        states[0].clone().expect("a state")
    }

    /// A column of a message in any table.
    pub(super) fn number(&self, column: &str, id: i64) -> i64 {
        let sql = format!("SELECT {column} AS value FROM ({ROWS}) AS t WHERE id = {id}");
        self.db.number(&sql)
    }

    pub(super) fn reference(&self, id: i64) -> Option<String> {
        let sql = format!("SELECT reference AS value FROM ({ROWS}) AS t WHERE id = {id}");
        self.db.words(&sql).remove(0)
    }

    /// The number of messages in a state.
    pub(super) fn count(&self, place: &str) -> i64 {
        self.db
            .number(&format!("SELECT count(*) AS value FROM ({ROWS}) AS t WHERE place = '{place}'"))
    }

    pub(super) fn keys(&self) -> i64 {
        self.db.number("SELECT count(*) AS value FROM sms_key")
    }

    /// A column of the newest import.
    pub(super) fn imported(&self, column: &str) -> i64 {
        self.db.number(&format!("SELECT {column} AS value FROM import ORDER BY id DESC LIMIT 1"))
    }

    /// Checks row by row that each imported message is in exactly one table, under its key.
    pub(super) async fn assert_nothing_is_lost(&self) {
        let none = |sql: &str, what: &str| {
            let found = self.db.numbers(sql);
            assert!(found.is_empty(), "{what}: {found:?}");
        };
        none(
            &format!("SELECT id AS value FROM ({ROWS}) AS t GROUP BY id HAVING count(*) > 1"),
            "messages in two tables",
        );
        none(
            &format!(
                "SELECT id AS value FROM import WHERE accepted - replaced
                 <> (SELECT count(*) FROM ({ROWS}) AS t WHERE t.import_id = import.id)
                 + (SELECT coalesce(sum(sent + failed + unknown + cancelled), 0) FROM purged
                    WHERE import_id = import.id)"
            ),
            "imports with missing messages",
        );
        none(
            &format!(
                "SELECT id AS value FROM ({ROWS}) AS t WHERE dedupe_key IS NOT NULL
                 AND place <> 'cancelled' AND NOT EXISTS (SELECT 1 FROM sms_key AS k
                     WHERE k.campaign_id = t.campaign_id AND k.dedupe_key = t.dedupe_key)"
            ),
            "messages without their key",
        );
        none(
            &format!(
                "SELECT min(id) AS value FROM ({ROWS}) AS t WHERE dedupe_key IS NOT NULL
                 AND place <> 'cancelled' AND NOT EXISTS (SELECT 1 FROM sms_key AS k
                     WHERE k.campaign_id = t.campaign_id AND k.dedupe_key = t.dedupe_key AND k.is_sent)
                 GROUP BY campaign_id, dedupe_key HAVING count(*) > 1"
            ),
            "messages with the same key",
        );
        none(
            &format!(
                "SELECT sms_id AS value FROM attempt WHERE sms_id NOT IN (SELECT id FROM ({ROWS}) AS t)"
            ),
            "attempts of missing messages",
        );
        let audit = self.store.report().check_counts().await.expect("an audit");
        assert!(audit.is_sound(), "{audit:?}");
        let totals = self.store.report().totals(None).await.expect("totals");
        let sum = totals.queued
            + totals.sending
            + totals.sent
            + totals.failed
            + totals.unknown
            + totals.cancelled;
        assert_eq!(totals.imported, sum, "{totals:?}");
        let counted = self.db.number(&format!("SELECT count(*) AS value FROM ({ROWS}) AS t"));
        let stored = i64::try_from(sum - totals.purged).expect("a count");
        assert_eq!(stored, counted);
    }
}
