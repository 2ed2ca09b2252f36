//! How SQLite runs the statements of a commit: on indexes, without sorting.

use std::sync::Mutex;

use diesel::connection::InstrumentationEvent;
use diesel::sql_types::Text;

use super::*;
use crate::limit::MIN_TOLERANCE;
use crate::phone::Phone;
use crate::queue::{CampaignClaim, Transition};
use crate::sms::{Acceptance, NewSms};
use crate::store::connection::Lane;
use crate::store::{Access, Batch, NewWorker};

const NOW: Timestamp = Timestamp::from_millis(1_763_715_600_000);

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

fn batch(worker_id: i64, want: u32) -> CommitBatch {
    let start_us = NOW.as_millis() * 1_000;
    CommitBatch {
        worker_id,
        now: NOW,
        tolerance: MIN_TOLERANCE,
        settlements: Vec::new(),
        campaign_stops: Vec::new(),
        pauses: Vec::new(),
        fill_limits: false,
        claims: vec![ProviderClaim {
            provider: "cellar".to_owned(),
            is_default: true,
            limits: "1000/s".parse::<Rates>().expect("rates").0,
            by_segments: false,
            from_us: start_us,
            until_us: start_us + 1_000_000,
            released: Vec::new(),
            held: Vec::new(),
            max_messages: want,
            max_requests: want,
            campaigns: vec![CampaignClaim {
                campaign_id: 1,
                max_messages: want,
                max_batch: 1,
            }],
        }],
        caps: Rates::default(),
        admit: Arc::new(|sms| Admission::Send {
            phone: Phone::parse(&sms.phone, None).expect("a phone"),
            segments: 1,
        }),
        fill: Arc::new(batch::alone),
    }
}

/// Claims and settles eight messages, two at a time, and all that are left; returns the statements of that.
async fn observed() -> (Store, Arc<Mutex<Vec<String>>>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("smsq.db").display());
    let store = Store::open(&url, Access::Create).await.expect("a database");
    let worker = NewWorker {
        host: "host".to_owned(),
        boot_id: "boot".to_owned(),
        pid_namespace: "namespace".to_owned(),
        pid: 1,
        process_started: 1,
        concurrency: 1,
        lease_ms: 30_000,
    };
    let worker_id = store.register_worker(&worker, NOW).await.expect("an id");
    let begun = store.begin_import(1, "list.csv", "hash", NOW).await;
    let row = |line: u64| NewSms {
        line,
        phone: format!("+4474001234{line:02}"),
        content: "hello".to_owned(),
        params: "{}".to_owned(),
        segments: 1,
        dedupe_key: line.to_string(),
        replaces: None,
    };
    let rows = Batch {
        import_id: begun.expect("an import"),
        campaign_id: 1,
        now: NOW,
        due_at: NOW,
        expires_at: None,
        window: None,
        rows: (0..10).map(row).collect(),
        row_count: 10,
        rejected: 0,
        duplicates: 0,
        last_line: 9,
    };
    store.enqueue(rows).await.expect("queued");
    let statements = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&statements);
    let mut pooled = store.pool.take(Lane::Write).await.expect("a connection");
    if let Connection::Sqlite(conn) = pooled.connection() {
        conn.observe(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event {
                let sql = query.to_string();
                let sql = sql.split(" -- binds").next().unwrap_or_default();
                seen.lock().expect("one thread").push(sql.to_owned());
            }
        });
    }
    pooled.give_back();
    let mut settlements = Vec::new();
    for want in [2, 2, 2, 2, 4] {
        let claiming = CommitBatch {
            settlements: std::mem::take(&mut settlements),
            ..batch(worker_id, want)
        };
        let done = store.commit(&claiming).await.expect("committed");
        settlements.extend(done.claims[0].rows.iter().map(|row| Settlement {
            id: row.sms.id,
            claim: row.sms.claim,
            provider: "cellar".to_owned(),
            transition: Transition::Sent(Acceptance::default()),
        }));
    }
    assert_eq!(settlements.len(), 2, "all were claimed");
    (store, statements, folder)
}

async fn plan(store: &Store, sql: &str) -> Vec<String> {
    let mut pooled = store.pool.take(Lane::Read).await.expect("a connection");
    let sql = format!("EXPLAIN QUERY PLAN {sql}");
    let plan: QueryResult<Vec<Step>> =
        with_conn!(pooled.connection(), |conn| diesel::sql_query(sql)
            .load(conn));
    pooled.give_back();
    plan.expect("a plan")
        .into_iter()
        .map(|step| step.detail)
        .collect()
}

#[tokio::test]
async fn sqlite_finds_next_messages_by_index_without_sorting() {
    let (store, statements, _folder) = observed().await;
    let run = statements.lock().expect("one thread").clone();
    let next = run
        .iter()
        .find(|sql| sql.contains("ORDER BY `sms`.`due_at`"));
    let text = plan(&store, next.expect("a claim")).await.join("\n");
    let index = "USING INDEX sms_due (campaign_id=? AND state=? AND due_at<?)";
    assert!(text.contains(index), "{text}");
    assert!(!text.contains("TEMP B-TREE"), "{text}");
    assert!(!text.contains("SCAN"), "{text}");
    let due = run.iter().find(|sql| sql.contains("min(`sms`.`due_at`)"));
    let index = "SEARCH sms USING COVERING INDEX sms_due (campaign_id=? AND state=?)";
    assert_eq!(plan(&store, due.expect("the next instant")).await, [index]);
    let marking = run.iter().find(|sql| sql.starts_with("UPDATE `sms`"));
    let text = plan(&store, marking.expect("a claim")).await.join("\n");
    assert!(
        text.contains("USING INTEGER PRIMARY KEY (rowid=?)"),
        "{text}"
    );
}
