//! How SQLite runs the statements of a commit: prepared once, by indexes, without sorting.

use crate::connection::QueryResult;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::Text;
use smsq_lifecycle::{LaneClaim, Settlement, Transition};
use smsq_limit::Account;
use smsq_message::instant::DbMicros;
use smsq_message::rate::Rates;
use smsq_message::sms::{Acceptance, NewSms, Timestamp};

use super::*;
use crate::Access;
use crate::connection::ObservedStatement;
use crate::connection::pool::Purpose;
use crate::intake::imports::{ImportApproval, ImportBatch};
use crate::queue::workers::NewWorker;

const NOW: Timestamp = Timestamp::from_millis(1_763_715_600_000);

#[derive(QueryableByName)]
struct QueryPlanRow {
    #[diesel(sql_type = Text)]
    detail: String,
}

fn batch(worker_id: i64, want: u32) -> CommitBatch {
    let start_at = DbMicros::from(NOW);
    CommitBatch {
        claims: vec![ProviderClaim {
            provider: "cellar".to_owned(),
            account: Account::new("cellar"),
            is_default: true,
            routes: Arc::default(),
            limits: "1000/s".parse::<Rates>().expect("rates").0,
            by_segments: false,
            from: start_at,
            until: start_at.plus(Duration::from_secs(1)),
            released: Vec::new(),
            held: Vec::new(),
            max_messages: want,
            max_requests: want,
            lanes: vec![LaneClaim::undivided(1, want)],
            pool: None,
            prices: Arc::default(),
        }],
        ..CommitBatch::new(worker_id, NOW)
    }
}

/// The statements of a connection.
type Observed = Arc<Mutex<Vec<ObservedStatement>>>;

/// Observes the connections of a store.
fn observe(store: &Store) -> Observed {
    let observed = Observed::default();
    let seen = Arc::clone(&observed);
    store.observe(move || {
        let seen = Arc::clone(&seen);
        Arc::new(move |statement| seen.lock().expect("one thread").push(statement))
    });
    observed
}

/// The statements that stay prepared, each once.
fn kept(statements: &[ObservedStatement]) -> BTreeSet<String> {
    let kept = statements.iter().filter(|statement| statement.is_kept);
    kept.map(|statement| statement.sql.clone()).collect()
}

/// A database with `count` messages, the id of a worker, and the statements so far.
async fn queued(count: u64) -> (Store, i64, Observed, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("smsq.db").display());
    let store = Store::open(&url, Access::Create).await.expect("a database");
    let observed = observe(&store);
    let worker = NewWorker {
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
    let worker_id = store.workers().register(&worker, NOW).await.expect("an id");
    let begun = store.imports().begin(1, "list.csv", "hash", None, NOW).await;
    let row = |line: u64| NewSms {
        line,
        phone: format!("+447400{line:06}"),
        content: "hello".to_owned(),
        params: "{}".to_owned(),
        segments: 1,
        dedupe_key: line.to_string(),
        replaces: None,
    };
    let rows = ImportBatch {
        import_id: begun.expect("an import"),
        campaign_id: 1,
        now: NOW,
        due_at: NOW,
        expires_at: None,
        window: None,
        division: None,
        approval: ImportApproval::OneByOne(String::new()),
        rows: (0..count).map(row).collect(),
        row_count: count,
        rejected: 0,
        last_line: count,
    };
    store.imports().enqueue(&rows).await.expect("queued");
    (store, worker_id, observed, folder)
}

/// Claims as many messages as `wanted` says, commit by commit, and settles each claim in the next commit.
async fn claim_and_settle(store: &Store, worker_id: i64, wanted: &[u32]) {
    let mut settlements = Vec::new();
    for want in wanted {
        let claiming = CommitBatch {
            settlements: std::mem::take(&mut settlements),
            ..batch(worker_id, *want)
        };
        let done = store.commit(&claiming).await.expect("committed");
        settlements.extend(done.claims[0].rows.iter().map(|row| Settlement {
            id: row.sms.id,
            claim: row.sms.claim,
            provider: "cellar".to_owned(),
            transition: Transition::Sent(Acceptance::default()),
        }));
    }
}

async fn plan(store: &Store, sql: &str) -> Vec<String> {
    let mut pooled = store.pool.take(Purpose::Read).await.expect("a connection");
    let sql = format!("EXPLAIN QUERY PLAN {sql}");
    let plan: QueryResult<Vec<QueryPlanRow>> =
        diesel::sql_query(sql).load(pooled.connection()).await;
    pooled.give_back();
    plan.expect("a plan").into_iter().map(|step| step.detail).collect()
}

#[tokio::test]
async fn sqlite_finds_next_messages_by_index_without_sorting() {
    let (store, worker_id, observed, _folder) = queued(10).await;
    claim_and_settle(&store, worker_id, &[2, 2, 2, 2, 4]).await;
    let run = observed.lock().expect("one thread").clone();
    let find = |is_it: fn(&str) -> bool| {
        let found = run.iter().find(|statement| is_it(&statement.sql));
        &found.expect("a claim").sql
    };
    let next = find(|sql| sql.contains("ORDER BY `sms`.`due_at`"));
    let text = plan(&store, next).await.join("\n");
    let index = "USING INDEX sms_due (campaign_id=? AND state=? AND lane=? AND due_at<?)";
    assert!(text.contains(index), "{text}");
    assert!(!text.contains("TEMP B-TREE"), "{text}");
    assert!(!text.contains("SCAN"), "{text}");
    let marking = find(|sql| sql.starts_with("UPDATE `sms`"));
    let text = plan(&store, marking).await.join("\n");
    assert!(text.contains("USING INTEGER PRIMARY KEY (rowid=?)"), "{text}");
}

#[tokio::test]
async fn sqlite_prepares_the_statements_of_commits_once() {
    let (store, worker_id, observed, _folder) = queued(400).await;
    // Lists of ids are padded to a power of two, so there are few different statements.
    claim_and_settle(&store, worker_id, &[1, 2, 4, 8, 16, 32, 64, 1]).await;
    let before = kept(&observed.lock().expect("one thread"));
    assert!(!before.is_empty());
    observed.lock().expect("one thread").clear();
    claim_and_settle(&store, worker_id, &[1, 1, 3, 7, 13, 29, 64, 50, 2, 1]).await;
    let after = observed.lock().expect("one thread");
    let new: Vec<_> = kept(&after).difference(&before).cloned().collect();
    assert!(new.is_empty(), "prepared again: {new:?}");
    let transaction = ["BEGIN IMMEDIATE", "COMMIT"];
    for statement in after.iter().filter(|statement| !statement.is_kept) {
        let is_of_transaction = transaction.contains(&statement.sql.as_str());
        assert!(is_of_transaction, "prepared each time: {}", statement.sql);
    }
}
