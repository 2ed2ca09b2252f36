//! The cost of a claim does not grow with the table: its statements read one index and stop early, whatever statistics
//! the database has.

use std::collections::BTreeSet;
use std::sync::Mutex;

use diesel::connection::{Instrumentation, InstrumentationEvent};
use smsq::store::{Access, CommitBatch, Store};

use super::server::on_every_server;
use super::test_queue::{NOW, TestQueue, claim_of, commit_batch};
use crate::support::client::Client;
use crate::support::databases::Kind;

const WANTED: i64 = 50;
/// Campaign, state, now, due time and id of the last key, and limit.
const VALUES: [i64; 6] = [1, 0, 1_000_000, 50, 10_000, WANTED];

/// The statements of `src/store/claim.rs` that find messages, and the most rows that each may read.
const STATEMENTS: [(&str, i64); 4] = [
    (
        "SELECT id, campaign_id, import_id, phone, content, params, segments, in_doubt, expires_at, attempts, claim,
         reference, due_at, doubt_since, claimed_provider, resend_approved FROM sms WHERE campaign_id = $1 AND state = $2 AND due_at <= $3
         ORDER BY due_at, id LIMIT $6 FOR UPDATE SKIP LOCKED",
        WANTED,
    ),
    (
        "SELECT id, campaign_id, import_id, phone, content, params, segments, in_doubt, expires_at, attempts, claim,
         reference, due_at, doubt_since, claimed_provider, resend_approved FROM sms WHERE campaign_id = $1 AND state = $2 AND due_at = $4 AND id > $5
         ORDER BY due_at, id LIMIT $6 FOR UPDATE SKIP LOCKED",
        WANTED,
    ),
    (
        "SELECT id, campaign_id, import_id, phone, content, params, segments, in_doubt, expires_at, attempts, claim,
         reference, due_at, doubt_since, claimed_provider, resend_approved FROM sms WHERE campaign_id = $1 AND state = $2 AND due_at > $4 AND due_at <= $3
         ORDER BY due_at, id LIMIT $6 FOR UPDATE SKIP LOCKED",
        WANTED,
    ),
    // It also reads the hundred rows with the due time of the key that are before it.
    (
        "SELECT id FROM sms WHERE campaign_id = $1 AND state = $2 AND due_at <= $3 AND due_at >= $4
         AND (due_at > $4 OR id > $5) ORDER BY due_at, id LIMIT $6",
        WANTED + 100,
    ),
];

/// Twenty thousand messages without statistics for the planner: half of them are due, two hundred at each instant.
fn fill(queue: &TestQueue) -> Client {
    let mut client = queue.db.client();
    let row = "'+447400123456', 'hello', CASE WHEN n % 2 = 0 THEN n % 100 ELSE 2000000 END";
    let (before, rows) = match queue.db.kind {
        Kind::Mysql => (
            "ALTER TABLE sms STATS_AUTO_RECALC = 0",
            "(SELECT seq AS n FROM seq_1_to_20000) AS n",
        ),
        Kind::Sqlite | Kind::Postgres => (
            "ALTER TABLE sms SET (autovacuum_enabled = off)",
            "generate_series(1, 20000) AS n",
        ),
    };
    client.run(before);
    client.run(&format!(
        "INSERT INTO sms (phone, content, due_at) SELECT {row} FROM {rows}"
    ));
    client
}

/// The numbers after a name in a plan.
fn numbers(plan: &str, name: &str) -> Vec<f64> {
    let pattern = regex::Regex::new(&format!(r"{name}([\d.]+)")).expect("a pattern");
    let found = pattern.captures_iter(plan);
    found
        .map(|found| found[1].parse().expect("a number"))
        .collect()
}

fn look_at_postgres(client: &mut Client, said: &str) {
    for mode in ["force_custom_plan", "force_generic_plan"] {
        for (statement, most) in STATEMENTS {
            let values = VALUES.map(|value| value.to_string()).join(", ");
            let plan = client.run(&format!(
                "SET plan_cache_mode = {mode};
                 PREPARE due (bigint, integer, bigint, bigint, bigint, bigint) AS {statement};
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
            values
                .map(|(_, value)| value.parse::<i64>().expect("a count"))
                .sum()
        };
        let read = counted("Handler_read");
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

/// The statements that claims ran in this process, normalized.
static RUN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

#[expect(clippy::unnecessary_wraps, reason = "diesel takes it so")]
fn record() -> Option<Box<dyn Instrumentation>> {
    let noted = |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            let sql = plain(&query.to_string());
            if sql.contains("from sms where campaign_id") && sql.contains("limit") {
                RUN.lock().expect("no failures").insert(sql);
            }
        }
    };
    Some(Box::new(noted))
}

/// Removes the differences between engines, and the order of values.
fn plain(sql: &str) -> String {
    let sql = sql.split(" -- binds").next().unwrap_or_default();
    let sql = sql.to_lowercase().replace("sms.", "");
    let sql: String = sql.replace("`sms`.", "").replace("\"sms\".", "");
    let sql = sql.replace(['`', '"', '(', ')'], " ").replace(',', " , ");
    let value = regex::Regex::new(r"\$\d+").expect("a pattern");
    let sql = value.replace_all(&sql, "?");
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn explained_statements_are_those_of_claims() {
    diesel::connection::set_default_instrumentation(record).expect("no lock");
    on_every_server(async |queue| {
        let spring = queue.queued(20).await;
        let worker = queue.worker().await;
        RUN.lock().expect("no failures").clear();
        let comparing = format!("{}?skip_locked=off", queue.db.url);
        for url in [&queue.db.url, &comparing] {
            let store = Store::open(url, Access::Existing)
                .await
                .expect("a database");
            // More than the remaining messages with the same due time.
            for want in [2, 30] {
                let claiming = CommitBatch {
                    claims: vec![claim_of(&[(spring, want)])],
                    ..commit_batch(worker.id, NOW)
                };
                store.commit(&claiming).await.expect("a commit");
            }
        }
        for (statement, _) in STATEMENTS {
            let run = RUN.lock().expect("no failures");
            assert!(run.contains(&plain(statement)), "{statement}: {run:#?}");
        }
    })
    .await;
    // Stops recording sessions of other tests.
    diesel::connection::set_default_instrumentation(|| None).expect("no lock");
}
