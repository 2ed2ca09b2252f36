//! The cost of a claim does not grow with the table: its statements read one index and stop early, whatever statistics
//! the database has. Nor do others search a table that workers wait for.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use smsq_lifecycle::{Settled, Settlement};
use smsq_message::receipt::{Receipt, ReceiptState};
use smsq_message::sms::Timestamp;
use smsq_store::{
    Access, Audited, CampaignFilter, CampaignStatus, CommitBatch, ObservedStatement, Observer,
    SmsFilter, Store, TriedAt,
};

use super::server::on_every_server;
use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, again, claim_of, commit_batch, on_every_engine, phone, rows,
    sent,
};
use crate::support::client::Client;
use crate::support::databases::Kind;

const WANTED: i64 = 50;
/// Campaign, now, due time and id of the last key, limit, and lane.
const VALUES: [i64; 6] = [1, 1_000_000, 50, 10_000, WANTED, 0];

/// On MySQL and MariaDB, with all columns of the index.
const HINT: &str = " FORCE INDEX (sms_due)";

/// The statements of `src/store/queue/claim.rs` that find messages, and the most rows that each may read.
const STATEMENTS: [(&str, i64); 3] = [
    (
        "SELECT id, campaign_id, lane, import_id, phone, content, params, segments, in_doubt, expires_at, attempts, claim,
         reference, dedupe_key, created_at, due_at, doubt_since, doubt_claim, claimed_provider, resend_approved FROM sms
         WHERE campaign_id = $1 AND state = 0 AND lane = $6 AND due_at <= $2
         ORDER BY due_at, id LIMIT $5 FOR UPDATE SKIP LOCKED",
        WANTED,
    ),
    (
        "SELECT id, campaign_id, lane, import_id, phone, content, params, segments, in_doubt, expires_at, attempts, claim,
         reference, dedupe_key, created_at, due_at, doubt_since, doubt_claim, claimed_provider, resend_approved FROM sms FORCE INDEX (sms_due)
         WHERE campaign_id = $1 AND state = 0 AND lane = $6 AND due_at = $3 AND id > $4
         ORDER BY due_at, id LIMIT $5 FOR UPDATE SKIP LOCKED",
        WANTED,
    ),
    (
        "SELECT id, campaign_id, lane, import_id, phone, content, params, segments, in_doubt, expires_at, attempts, claim,
         reference, dedupe_key, created_at, due_at, doubt_since, doubt_claim, claimed_provider, resend_approved FROM sms FORCE INDEX (sms_due)
         WHERE campaign_id = $1 AND state = 0 AND lane = $6 AND due_at > $3 AND due_at <= $2
         ORDER BY due_at, id LIMIT $5 FOR UPDATE SKIP LOCKED",
        WANTED,
    ),
];

/// Twenty thousand messages without statistics for the planner: half of them are due, two hundred at each instant.
fn fill(queue: &TestQueue) -> Client {
    let mut client = queue.db.client();
    let row = "'+447400123456', 'hello', CASE WHEN n % 2 = 0 THEN n % 100 ELSE 2000000 END";
    let before = match queue.db.kind {
        Kind::Mysql => "ALTER TABLE sms STATS_AUTO_RECALC = 0",
        Kind::Sqlite | Kind::Postgres => "ALTER TABLE sms SET (autovacuum_enabled = off)",
    };
    let rows = queue.db.kind.series(20_000);
    client.run(before);
    client.run(&format!("INSERT INTO sms (phone, content, due_at) SELECT {row} FROM {rows}"));
    client
}

/// The numbers after a name in a plan.
fn numbers(plan: &str, name: &str) -> Vec<f64> {
    let pattern = regex::Regex::new(&format!(r"{name}([\d.]+)")).expect("a pattern");
    let found = pattern.captures_iter(plan);
    found.map(|found| found[1].parse().expect("a number")).collect()
}

fn look_at_postgres(client: &mut Client, said: &str) {
    for mode in ["force_custom_plan", "force_generic_plan"] {
        for (statement, most) in STATEMENTS {
            let statement = statement.replace(HINT, "");
            let values = VALUES.map(|value| value.to_string()).join(", ");
            let plan = client.run(&format!(
                "SET plan_cache_mode = {mode};
                 PREPARE due (bigint, bigint, bigint, bigint, bigint, integer) AS {statement};
                 EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF)
                 EXECUTE due ({values});
                 DEALLOCATE due"
            ));
            let plan = plan.join("\n");
            assert!(plan.contains("sms_due"), "{said}, {mode}: {plan}");
            for slow in ["Sort", "Seq Scan", "Bitmap"] {
                assert!(!plan.contains(slow), "{said}, {mode}: {plan}");
            }
            let looked_at: f64 = numbers(&plan, "rows=").into_iter().fold(0.0, f64::max);
            let passed_over: f64 = numbers(&plan, "Rows Removed by Filter: ").iter().sum();
            #[expect(clippy::cast_precision_loss, reason = "it is small")]
            let most = most as f64;
            assert!(looked_at > 0.0, "{said}, {mode}: {plan}");
            assert!(looked_at + passed_over <= most, "{said}, {mode}: {plan}");
        }
    }
}

fn look_at_mysql(client: &mut Client, said: &str) {
    for (statement, most) in STATEMENTS {
        let mut statement = statement.to_owned();
        for (place, value) in VALUES.iter().enumerate() {
            statement = statement.replace(&format!("${}", place + 1), &value.to_string());
        }
        let lines = client.run(&format!(
            "FLUSH STATUS; {statement};
             SHOW SESSION STATUS WHERE variable_name LIKE 'Handler_read%' OR variable_name LIKE 'Sort%'"
        ));
        let counted = |prefix: &str| -> i64 {
            let lines = lines.iter().filter(|line| line.starts_with(prefix));
            let values = lines.filter_map(|line| line.rsplit_once('\t'));
            values.map(|(_, value)| value.parse::<i64>().expect("a count")).sum()
        };
        let read = counted("Handler_read");
        if statement.contains(HINT) {
            // The deleted entries of earlier claims are not counted, so the whole key must be used.
            let plan = client.run(&format!("EXPLAIN {statement}")).join("\n");
            // A column of a table, or in a tree, as MySQL 9 explains by default.
            let is_range = plan.split('\t').any(|column| column == "range")
                || plan.contains("Index range scan");
            assert!(is_range, "{said}: {plan}");
        }
        assert!(read > 0, "{said}: {lines:?}");
        assert!(read <= 2 * most + 5, "{said}: {read} rows for {statement}");
        assert_eq!(counted("Sort"), 0, "{said}: {statement}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn claim_reads_only_its_messages_without_sorting() {
    on_every_server(async |queue| {
        let mut client = fill(queue);
        let (look, analyze): (fn(&mut Client, &str), _) = match queue.db.kind {
            Kind::Mysql => (look_at_mysql, "ANALYZE TABLE sms"),
            Kind::Sqlite | Kind::Postgres => (look_at_postgres, "ANALYZE sms"),
        };
        look(&mut client, "without statistics");
        client.run(analyze);
        look(&mut client, "with statistics");
    })
    .await;
}

/// A statement that ran, and whether it ran in a transaction.
#[derive(Clone, Debug)]
struct Run {
    statement: ObservedStatement,
    in_transaction: bool,
}

impl Deref for Run {
    type Target = ObservedStatement;

    fn deref(&self) -> &ObservedStatement {
        &self.statement
    }
}

/// No other test has phones from this number on.
const OWN: u64 = 5_000_000;

/// A store, and the statements that it runs.
struct RecordedStore {
    store: Store,
    ran: Arc<Mutex<Vec<Run>>>,
}

impl RecordedStore {
    async fn open(queue: &TestQueue) -> Self {
        let store = Store::open(&queue.db.url, Access::Existing).await.expect("a database");
        let ran = Arc::<Mutex<Vec<Run>>>::default();
        let runs = Arc::clone(&ran);
        store.observe(move || record(Arc::clone(&runs)));
        Self { store, ran }
    }

    /// The statements since the last call.
    fn ran(&self) -> Vec<Run> {
        std::mem::take(&mut *self.ran.lock().expect("no failures"))
    }
}

impl Deref for RecordedStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

/// Records the statements of one session.
fn record(runs: Arc<Mutex<Vec<Run>>>) -> Observer {
    let in_transaction = AtomicBool::new(false);
    Arc::new(move |statement: ObservedStatement| {
        match statement.sql.split_whitespace().next().unwrap_or_default() {
            "BEGIN" | "START" => in_transaction.store(true, Ordering::Relaxed),
            "COMMIT" | "ROLLBACK" => in_transaction.store(false, Ordering::Relaxed),
            _ => {
                let in_transaction = in_transaction.load(Ordering::Relaxed);
                runs.lock().expect("no failures").push(Run { statement, in_transaction });
            }
        }
    })
}

impl Run {
    /// Whether one of its values is this text.
    fn has(&self, text: &str) -> bool {
        let literal = format!("'{text}'");
        self.values.iter().any(|value| value.contains(&literal))
    }

    /// The statement with its values, for the database's own client.
    fn with_values(&self) -> String {
        let place = regex::Regex::new(r"\$\d+|\?").expect("a pattern");
        let mut values = self.values.iter();
        let filled = place.replace_all(&self.sql, |_: &regex::Captures<'_>| {
            values.next().expect("a value for each place").clone()
        });
        filled.into_owned()
    }
}

/// How the database executes a statement.
fn plan(queue: &TestQueue, run: &Run) -> String {
    let explain = match queue.db.kind {
        Kind::Sqlite => "EXPLAIN QUERY PLAN",
        Kind::Postgres | Kind::Mysql => "EXPLAIN",
    };
    let mut client = queue.db.client();
    let lines = client.run(&format!("{explain} {}", run.with_values()));
    lines.join("\n")
}

/// Collects the statistics of a table.
fn analyze(client: &mut Client, kind: Kind, table: &str) {
    client.run(&match kind {
        Kind::Mysql => format!("ANALYZE TABLE {table}"),
        Kind::Sqlite | Kind::Postgres => format!("ANALYZE {table}"),
    });
}

/// How many rows MariaDB reads for a statement.
fn rows_read(client: &mut Client, run: &Run) -> usize {
    let lines = client.run(&format!(
        "FLUSH STATUS; {}; SHOW SESSION STATUS LIKE 'Handler_read%'",
        run.with_values()
    ));
    lines
        .iter()
        .filter(|line| line.starts_with("Handler_read"))
        .filter_map(|line| line.rsplit_once('\t'))
        .map(|(_, value)| value.parse::<usize>().expect("a count"))
        .sum()
}

/// A campaign with twenty thousand ready and as many unknown messages.
async fn many_unknown(queue: &TestQueue) -> i64 {
    let spring = queue.campaign("spring").await;
    let rows = queue.db.kind.series(40_000);
    let mut client = queue.db.client();
    client.run(&format!(
        "INSERT INTO sms (campaign_id, phone, content, state, in_doubt, claim, claimed_at, doubt_claim, claimed_provider, \
         reference) SELECT {spring}, '+447400123456', 'hello', 2 * (n % 2), n % 2 = 1, n % 2, \
         {at} + n, 1, '{PROVIDER}', CASE WHEN n % 2 = 1 THEN {reference} END FROM {rows}",
        at = NOW.as_millis(),
        reference = match queue.db.kind {
            Kind::Mysql => "concat('reference-', n)",
            Kind::Sqlite | Kind::Postgres => "'reference-' || n",
        },
    ));
    analyze(&mut client, queue.db.kind, "sms");
    spring
}

/// Forty thousand sent messages that await a receipt, every second with a reference of another program, and as many
/// receipts that came before their message.
async fn many_awaiting(queue: &TestQueue) {
    let spring = queue.campaign("spring").await;
    let kind = queue.db.kind;
    let rows = kind.series(40_000);
    let joined = |name: &str| match kind {
        Kind::Mysql => format!("concat('{name}', n + {OWN})"),
        Kind::Sqlite | Kind::Postgres => format!("'{name}' || (n + {OWN})"),
    };
    let (own, other, sent, early) =
        (joined("0123456789abcdef"), joined("other-"), joined("SM"), joined("early-"));
    let mut client = queue.db.client();
    client.run(&format!(
        "INSERT INTO sms_sent (id, campaign_id, phone, reference, provider, message_id, attempts, claim, delivery_state, \
         created_at, sent_at) SELECT {OWN} + n, {spring}, '+447400123456', CASE WHEN n % 2 = 0 THEN {own} ELSE {other} END, \
         '{PROVIDER}', {sent}, 1, 1, 'awaiting', n, n FROM {rows}"
    ));
    client.run(&format!(
        "INSERT INTO receipt (provider, message_key, state, part, parts, reference, message_id, received_at, due_at) \
         SELECT '{PROVIDER}', {early}, 'delivered', 0, 0, {early}, {early}, 0, {} FROM {rows}",
        i64::MAX
    ));
    // SQLite has no statistics, unless another program collects them.
    if kind != Kind::Sqlite {
        analyze(&mut client, kind, "sms_sent");
        analyze(&mut client, kind, "receipt");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn receipts_find_sent_messages_and_each_other_by_an_index() {
    on_every_engine(async |queue| {
        many_awaiting(queue).await;
        let store = RecordedStore::open(queue).await;
        let named = |reference: Option<&str>, message_id: Option<&str>, state| Receipt {
            reference: reference.map(str::to_owned),
            message_id: message_id.map(str::to_owned),
            phone: None,
            state,
            failure: None,
            at: None,
            part: None,
        };
        let receipts = [
            named(Some("0123456789abcdef5000008"), None, ReceiptState::Delivered),
            named(Some("other-5000009"), None, ReceiptState::Delivered),
            named(None, Some("SM5000011"), ReceiptState::Undelivered),
        ];
        let added = store.receipts().add(PROVIDER, &receipts, NOW).await;
        assert_eq!(added.expect("applied").matched, 3);
        let mut pages = store.report().undelivered(CampaignFilter::All).await.expect("read");
        let page = store.report().next_undelivered(&mut pages, 10).await.expect("read");
        assert_eq!(page.len(), 1);
        let is_own = |run: &Run| {
            let values = format!("{:?}", run.values);
            let has_value =
                ["5000008", "5000009", "5000011"].iter().any(|value| values.contains(value));
            has_value || run.sql.contains("delivery_state = '")
        };
        let plans: Vec<String> = store
            .ran()
            .iter()
            .filter(|run| run.sql.starts_with("SELECT") && is_own(run))
            .map(|run| plan(queue, run))
            .collect();
        for found in &plans {
            for slow in
                ["Seq Scan", "SCAN ", "\tALL\t", "Table scan on sms", "Table scan on receipt"]
            {
                assert!(!found.contains(slow), "{plans:#?}");
            }
        }
        let (other, undelivered) = match queue.db.kind {
            Kind::Sqlite => ("sms_sent_other_reference", "sms_sent_delivery"),
            Kind::Postgres => ("sms_sent_other_reference", "sms_sent_undelivered"),
            // MySQL prefers the second one.
            Kind::Mysql => ("sms_sent_reference", "sms_sent_delivery|sms_sent_awaiting"),
        };
        for index in [
            other,
            undelivered,
            "sms_sent_message",
            "receipt_due_reference",
            "receipt_due_message_id",
        ] {
            let mut indexes = index.split('|');
            let is_used = indexes.any(|name| plans.iter().any(|found| found.contains(name)));
            assert!(is_used, "{index}: {plans:#?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn receipts_find_unknown_messages_by_an_index() {
    on_every_engine(async |queue| {
        many_unknown(queue).await;
        let store = RecordedStore::open(queue).await;
        let receipts = ["reference-7", "reference-39999"].map(|reference| Receipt {
            reference: Some(reference.to_owned()),
            message_id: None,
            phone: None,
            state: ReceiptState::Delivered,
            failure: None,
            at: None,
            part: None,
        });
        let added = store.receipts().add(PROVIDER, &receipts, after(90)).await;
        assert_eq!(added.expect("applied").sent, 2);
        let ran = store.ran();
        let of_queue = |run: &&Run| run.has("reference-7") && run.sql.contains("state = 2");
        let ran: Vec<&Run> = ran.iter().filter(of_queue).collect();
        assert_eq!(ran.len(), 1, "{ran:?}");
        let found = plan(queue, ran[0]);
        assert!(found.contains("sms_unknown_reference"), "{found}");
        // The time span is asked for each pass.
        let tried = TriedAt { provider: PROVIDER, is_default: true };
        let ever = Timestamp::from_millis(0)..=after(3_600);
        let span = store.receipts().unknown_span(tried, None, &ever).await;
        assert!(span.expect("a span").is_some());
        let ran = store.ran();
        let of_queue = |run: &&Run| run.has(PROVIDER) && run.sql.contains("state = 2");
        let ran: Vec<&Run> = ran.iter().filter(of_queue).collect();
        assert_eq!(ran.len(), 2, "{ran:?}");
        for run in ran {
            let found = plan(queue, run);
            assert!(found.contains("sms_unknown_claimed"), "{found}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn message_is_found_in_any_table_by_its_id() {
    on_every_engine(async |queue| {
        many_awaiting(queue).await;
        let mut client = queue.db.client();
        client.run(
            "INSERT INTO sms_failed (id, campaign_id, phone, content, params, class, reason, attempts, claim, \
             created_at, failed_at) SELECT id + 100000, 1, phone, 'hello', '{}', 'recipient', 'why', 1, 1, 1, 1 \
             FROM sms_sent",
        );
        client.run(
            "INSERT INTO sms (id, phone, content, due_at, created_at) SELECT id + 200000, phone, 'hello', 1, 1 \
             FROM sms_sent",
        );
        for table in ["sms", "sms_failed"] {
            analyze(&mut client, queue.db.kind, table);
        }
        let store = RecordedStore::open(queue).await;
        let own = i64::try_from(OWN).expect("a number");
        let ids = [own + 8, own + 100_008, own + 200_008];
        for id in ids {
            for posted_by in [None, Some("ann")] {
                let found = store.report().find_sms(SmsFilter::Id(id), posted_by, 1).await;
                let expected = usize::from(posted_by.is_none());
                assert_eq!(found.expect("read").len(), expected);
            }
        }
        assert_eq!(store.imports().origins(&ids).await.expect("read").len(), 3);
        let at = Timestamp::from_millis(0);
        assert_eq!(store.created_after(&ids, at).await.expect("read").len(), 3);
        let ran = store.ran();
        let is_own = |run: &&Run| {
            let values = format!("{:?}", run.values);
            run.sql.contains("message") && ["5000008", "5100008", "5200008"]
                .iter()
                .any(|id| values.contains(id))
        };
        let ran: Vec<&Run> = ran.iter().filter(is_own).collect();
        assert!(ran.len() >= 8, "{ran:#?}");
        for run in ran {
            if queue.db.kind == Kind::Mysql {
                let read = rows_read(&mut client, run);
                assert!(read < 50, "{read} rows: {}", run.sql);
            } else {
                // The rows that the view returns are read one by one.
                let found = plan(queue, run).replace("SCAN sms_message", "");
                for slow in ["Seq Scan on sms", "SCAN sms"] {
                    assert!(!found.contains(slow), "{found}");
                }
            }
        }
    })
    .await;
}

/// Neither the messages nor the campaigns without messages are read one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn queued_campaigns_are_found_by_an_index() {
    const IDLE: usize = 500;
    on_every_engine(async |queue| {
        let spring = many_unknown(queue).await;
        let mut client = queue.db.client();
        client.run(&format!(
            "INSERT INTO campaign (name) SELECT DISTINCT CAST(id % {IDLE} AS CHAR(9)) FROM sms"
        ));
        let autumn = queue.campaign("autumn").await;
        queue.import(autumn, rows(0..20)).await;
        let store = RecordedStore::open(queue).await;
        let queued = store.queued_campaigns().await.expect("read");
        let queued: Vec<(i64, bool, bool)> = queued
            .iter()
            .map(|queued| (queued.campaign.id, queued.is_unfinished(), queued.has_unknown))
            .collect();
        assert_eq!(queued, [(spring, true, true), (autumn, true, false)]);
        let ran = store.ran();
        let [run] = ran.iter().filter(|run| run.sql.contains("AS queue")).collect::<Vec<_>>()[..]
        else {
            panic!("{ran:?}");
        };
        match queue.db.kind {
            Kind::Sqlite => {
                let found = plan(queue, run);
                for line in found.lines().filter(|line| line.contains("sms")) {
                    assert!(line.contains("USING COVERING INDEX sms_due"), "{found}");
                }
            }
            Kind::Postgres => {
                let explain = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF)";
                let found = client.run(&format!("{explain} {}", run.with_values()));
                let found = found.join("\n");
                assert!(!found.contains("Seq Scan on sms"), "{found}");
                let most: f64 = numbers(&found, "rows=").into_iter().fold(0.0, f64::max);
                assert!((1.0..=3.0).contains(&most), "{found}");
                let passed_over: f64 = numbers(&found, "Rows Removed by Filter: ").iter().sum();
                assert!(passed_over <= 1.0, "{found}");
            }
            Kind::Mysql => {
                let read = rows_read(&mut client, run);
                assert!(read < 3 * IDLE, "{read} rows: {}", run.sql);
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn late_acceptance_searches_no_queue_for_its_key() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        queue.import(spring, rows(OWN..OWN + 1)).await;
        let worker = queue.worker().await;
        let sms = queue.claim_one(worker.id, spring).await;
        queue.settle(&sms, again()).await;
        queue.cancel(spring).await;
        queue.set_state(spring, CampaignStatus::Active).await;
        // With the same key.
        queue.import(spring, rows(OWN..OWN + 1)).await;
        let store = RecordedStore::open(queue).await;
        let late = Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: PROVIDER.to_owned(),
            transition: sent(),
        };
        let commit = CommitBatch { settlements: vec![late], ..commit_batch(worker.id, NOW) };
        let done = store.commit(&commit).await.expect("a commit");
        assert_eq!(done.settled, [Settled::Late]);
        let ran = store.ran();
        let by_key = ran.iter().filter(|run| run.has(&phone(OWN)));
        let by_key: Vec<&Run> = by_key.filter(|run| !run.sql.starts_with("INSERT")).collect();
        assert!(!by_key.is_empty());
        for run in by_key {
            assert!(run.sql.contains("UPDATE") && run.sql.contains("sms_key"), "{run:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn purge_of_a_person_searches_without_a_lock() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        queue.import(spring, rows(OWN..OWN + 9)).await;
        let store = RecordedStore::open(queue).await;
        let person = store.purge_person(&[phone(OWN + 7)], NOW, Audited::unrecorded()).await;
        assert_eq!(person.expect("deleted").cancelled, 1);
        let ran = store.ran();
        let (mut searched, mut locked) = (0, 0);
        for run in ran.iter().filter(|run| run.has(&phone(OWN + 7))) {
            // Only the dedupe key and the starts, by their primary keys.
            let by_key = run.sql.contains("sms_key") || run.sql.contains("recipient_start");
            locked += usize::from(run.in_transaction && !by_key);
            searched += usize::from(!run.in_transaction);
        }
        assert_eq!(locked, 0, "{ran:#?}");
        assert!(searched >= 4, "{ran:#?}");
    })
    .await;
}

/// Removes the differences between engines, and the order of values.
fn plain(sql: &str) -> String {
    let sql = sql.to_lowercase().replace("sms.", "");
    let sql: String = sql.replace("`sms`.", "").replace("\"sms\".", "");
    let sql = sql.replace(['`', '"', '(', ')'], " ").replace(',', " , ");
    let value = regex::Regex::new(r"\$\d+").expect("a pattern");
    let sql = value.replace_all(&sql, "?");
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn explained_statements_are_those_of_claims() {
    on_every_server(async |queue| {
        let (spring, worker) = queue.queued_with_worker(20).await;
        let store = RecordedStore::open(queue).await;
        // More than the remaining messages with the same due time.
        for want in [2, 30] {
            let claiming = CommitBatch {
                claims: vec![claim_of(&[(spring, want)])],
                ..commit_batch(worker.id, NOW)
            };
            store.commit(&claiming).await.expect("a commit");
        }
        let run: BTreeSet<String> = store.ran().iter().map(|run| plain(&run.sql)).collect();
        for (statement, _) in STATEMENTS {
            let statement = match queue.db.kind {
                Kind::Mysql => statement.to_owned(),
                Kind::Sqlite | Kind::Postgres => statement.replace(HINT, ""),
            };
            assert!(run.contains(&plain(&statement)), "{statement}: {run:#?}");
        }
    })
    .await;
}
