//! The queries against a real database in a scratch folder.

use smsq_message::sms::{NewSms, Timestamp};

use super::*;
use crate::campaigns::campaign::NewCampaign;

use crate::intake::imports::{ImportApproval, ImportBatch};
use crate::tables::campaign_filter::CampaignFilter;
use crate::{Access, Store};
use diesel::QueryableByName;

const NOW: Timestamp = Timestamp::from_millis(1_763_715_600_000);

async fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("smsq.db").display());
    let store = Store::open(&url, Access::Create).await.expect("a database");
    (folder, store)
}

async fn campaign(store: &Store, name: &str) -> i64 {
    let new = NewCampaign { name: name.to_owned(), ..NewCampaign::default() };
    store.open_campaign(&new, NOW).await.expect("a campaign").id
}

/// Imports `count` messages as one file; returns the import.
async fn imported(store: &Store, campaign_id: i64, count: u64) -> i64 {
    let import_id =
        store.imports().begin(campaign_id, "list.csv", "hash", None, NOW).await.expect("begun");
    let rows = (0..count)
        .map(|line| NewSms {
            line: line + 2,
            phone: format!("+1500555{line:04}"),
            content: "hello".to_owned(),
            params: r#"{"name":"Ann"}"#.to_owned(),
            segments: 1,
            dedupe_key: format!("{import_id}/{line}"),
            replaces: None,
        })
        .collect();
    let batch = ImportBatch {
        import_id,
        campaign_id,
        now: NOW,
        due_at: NOW,
        expires_at: None,
        window: None,
        division: None,
        approval: ImportApproval::OneByOne(String::new()),
        rows,
        row_count: count,
        rejected: 0,
        last_line: count + 1,
    };
    store.imports().enqueue(&batch).await.expect("queued");
    store.imports().finish(import_id, NOW).await.expect("finished");
    import_id
}

/// Runs statements as another program would.
async fn run(store: &Store, statements: &[&str]) {
    for statement in statements {
        let _: usize = store.write(diesel::sql_query(*statement)).await.expect("a statement");
    }
}

/// Moves messages of campaign 2 out of the queue: ids up to 5 are sent, 6 to 8 have failed, 9 is
/// cancelled, 10 and 11 are unknown, 12 is being sent.
async fn scatter(store: &Store) {
    run(
        store,
        &[
            "INSERT INTO sms_sent (id, campaign_id, import_id, phone, provider, segments, attempts, accepted, claim, created_at, sent_at)
             SELECT id, campaign_id, import_id, phone, 'cellar', 2, 1, CASE id WHEN 1 THEN 2 ELSE 1 END, 1, created_at, created_at + id * 1000
             FROM sms WHERE id <= 5",
            "INSERT INTO sms_failed (id, campaign_id, import_id, phone, content, params, class, code, reason, attempts, claim, created_at, failed_at)
             SELECT id, campaign_id, import_id, phone, content, params,
                    CASE id WHEN 9 THEN 'cancelled' WHEN 8 THEN 'expired' ELSE 'recipient' END,
                    CASE WHEN id < 8 THEN '21211' END, 'because', CASE id WHEN 9 THEN 0 ELSE 1 END, 1, created_at, created_at + 5
             FROM sms WHERE id BETWEEN 6 AND 9",
            "DELETE FROM sms WHERE id <= 9",
            "UPDATE sms SET state = 2, in_doubt = 1, attempts = 1, claimed_at = due_at + 7, last_reason = 'no answer' WHERE id IN (10, 11)",
            "UPDATE sms SET state = 1, worker_id = 1, claimed_at = due_at WHERE id = 12",
        ],
    )
    .await;
}

#[tokio::test]
async fn totals_count_every_message_by_its_state() {
    let (_folder, store) = store().await;
    let first = campaign(&store, "first").await;
    let second = campaign(&store, "second").await;
    imported(&store, first, 20).await;
    imported(&store, second, 3).await;
    scatter(&store).await;
    let expected = Totals {
        purged: 0,
        imported: 20,
        queued: 8,
        sending: 1,
        sent: 5,
        failed: 3,
        unknown: 2,
        cancelled: 1,
        delivery: None,
    };
    assert_eq!(store.report().totals(Some(first)).await.expect("totals"), expected);
    let sum = store.report().totals(None).await.expect("totals");
    assert_eq!((sum.imported, sum.queued), (23, 11));
    let each = store.report().campaign_totals().await.expect("totals").campaigns;
    let names: Vec<(&str, u64)> =
        each.iter().map(|(campaign, totals)| (campaign.name.as_str(), totals.imported)).collect();
    assert_eq!(names, [("default", 0), ("first", 20), ("second", 3)]);
}

#[tokio::test]
async fn plain_insert_counts_as_imported_in_every_table() {
    let (_folder, store) = store().await;
    let insert = "INSERT INTO sms (phone, content) VALUES ('+15005550006', 'hello')";
    run(&store, &[insert, insert]).await;
    let before = store.report().totals(Some(1)).await.expect("totals");
    assert_eq!((before.imported, before.queued), (2, 2));
    run(
        &store,
        &[
            "INSERT INTO sms_sent (id, campaign_id, phone, provider, attempts, claim, created_at, sent_at) VALUES (1, 1, '+15005550006', 'cellar', 1, 1, 0, 0)",
            "DELETE FROM sms WHERE id = 1",
        ],
    )
    .await;
    let after = store.report().totals(Some(1)).await.expect("totals");
    assert_eq!((after.imported, after.queued, after.sent), (2, 1, 1));
}

#[tokio::test]
async fn reasons_include_unknown_messages() {
    let (_folder, store) = store().await;
    let id = campaign(&store, "first").await;
    imported(&store, id, 20).await;
    scatter(&store).await;
    let reasons =
        store.report().failures_by_reason(CampaignFilter::One(id)).await.expect("reasons");
    let found: Vec<(&str, Option<&str>, &str, u64)> = reasons
        .iter()
        .map(|one| (one.class.as_str(), one.code.as_deref(), one.reason.as_str(), one.count))
        .collect();
    assert_eq!(
        found,
        [
            ("recipient", Some("21211"), "because", 2),
            ("unknown", None, "no answer", 2),
            ("cancelled", None, "because", 1),
            ("expired", None, "because", 1),
        ]
    );
}

#[tokio::test]
async fn pages_of_any_size_list_each_failure_once() {
    let (_folder, store) = store().await;
    let id = campaign(&store, "first").await;
    imported(&store, id, 20).await;
    scatter(&store).await;
    run(&store, &["UPDATE sms SET due_at = due_at + 1 WHERE id = 10"]).await;
    for limit in [1, 2, 3, 100] {
        let mut walk = store.report().failures(CampaignFilter::All).await.expect("a walk");
        let mut all = Vec::new();
        loop {
            let page = store.report().next_failures(&mut walk, limit).await.expect("a page");
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        let found: Vec<(i64, FailureState)> = all.iter().map(|one| (one.id, one.state)).collect();
        assert_eq!(
            found,
            [
                (6, FailureState::Failed),
                (7, FailureState::Failed),
                (8, FailureState::Failed),
                (9, FailureState::Cancelled),
                (11, FailureState::Unknown),
                (10, FailureState::Unknown),
            ]
        );
        assert_eq!(all[3].last_attempt_at, None);
        assert!(all[4].last_attempt_at.is_some());
    }
}

#[derive(QueryableByName)]
struct QueryPlanRow {
    #[diesel(sql_type = diesel::sql_types::Text)]
    detail: String,
}

#[tokio::test]
async fn pages_are_read_by_index() {
    let (_folder, store) = store().await;
    for (query, index) in [
        (
            "SELECT * FROM sms_failed WHERE campaign_id = 2 AND class = 'x' AND id > 5 ORDER BY id LIMIT 10",
            "INDEX sms_failed_class (campaign_id=? AND class=? AND rowid>?)",
        ),
        (
            "SELECT * FROM sms WHERE campaign_id = 2 AND state = 2 AND lane = 1 AND due_at = 3 AND id > 5 ORDER BY id LIMIT 10",
            "INDEX sms_due (campaign_id=? AND state=? AND lane=? AND due_at=? AND rowid>?)",
        ),
        (
            "SELECT * FROM sms WHERE campaign_id = 2 AND state = 2 AND lane = 1 AND due_at > 3 ORDER BY due_at, id LIMIT 10",
            "INDEX sms_due (campaign_id=? AND state=? AND lane=? AND due_at>?)",
        ),
    ] {
        let plan: Vec<QueryPlanRow> = store
            .read(diesel::sql_query(format!("EXPLAIN QUERY PLAN {query}")))
            .await
            .expect("a plan");
        let plan: Vec<String> = plan.into_iter().map(|step| step.detail).collect();
        assert_eq!(plan.len(), 1, "no sorting: {plan:?}");
        assert!(plan[0].ends_with(index), "{plan:?}");
    }
}

#[tokio::test]
async fn sent_facts_have_times_and_sums() {
    let (_folder, store) = store().await;
    let id = campaign(&store, "first").await;
    assert_eq!(
        store.report().sent(CampaignFilter::One(id), 0).await.expect("counts").facts,
        SentFacts::default()
    );
    imported(&store, id, 20).await;
    scatter(&store).await;
    let facts = store.report().sent(CampaignFilter::All, 0).await.expect("counts").facts;
    let second = std::time::Duration::from_secs(1);
    assert_eq!(facts.first_at, Some(NOW.plus(second)));
    assert_eq!(facts.last_at, Some(NOW.plus(second * 5)));
    assert_eq!((facts.segments, facts.repeated), (10, 1));
    let spans = store
        .report()
        .outcomes_over_time(CampaignFilter::One(id), NOW, second * 2, 3)
        .await
        .expect("counts");
    let sent: Vec<u64> = spans.iter().map(|span| span.sent).collect();
    assert_eq!(sent, [1, 2, 2]);
    assert_eq!((spans[0].failed, spans[0].unknown), (3, 2));
}

#[tokio::test]
async fn audit_finds_lost_and_unassigned_messages() {
    let (_folder, store) = store().await;
    let id = campaign(&store, "first").await;
    let import = imported(&store, id, 20).await;
    scatter(&store).await;
    let sound = store.report().check_counts().await.expect("an audit");
    assert!(sound.is_sound(), "{sound:?}");
    assert_eq!((sound.imports[0].expected, sound.imports[0].found), (20, 20));
    run(
        &store,
        &[
            "DELETE FROM sms_sent WHERE id = 3",
            "INSERT INTO sms (phone, content) VALUES ('+15005550006', 'hello')",
            "INSERT INTO sms (phone, content, campaign_id) VALUES ('+15005550006', 'hello', 99)",
            "INSERT INTO sms (phone, content, import_id) VALUES ('+15005550006', 'hello', 98)",
        ],
    )
    .await;
    let audit = store.report().check_counts().await.expect("an audit");
    assert!(!audit.is_sound());
    let lost = &audit.imports[0];
    assert_eq!((lost.id, lost.expected, lost.found), (import, 20, 19));
    assert!(lost.finished);
    assert_eq!((audit.plain, audit.without_import), (2, 1));
    assert_eq!(audit.without_campaign, [(99, 1)]);
}

#[tokio::test]
async fn workers_are_listed_with_their_messages() {
    let (_folder, store) = store().await;
    let id = campaign(&store, "first").await;
    imported(&store, id, 20).await;
    scatter(&store).await;
    run(
        &store,
        &["INSERT INTO worker (id, host, boot_id, pid_namespace, pid, process_started, concurrency, started_at, heartbeat_at, lease_ms)
           VALUES (1, 'here', 'b', 'n', 7, 0, 64, 0, 0, 30000), (2, 'there', 'b', 'n', 8, 0, 64, 0, 0, 30000)"],
    )
    .await;
    let workers = store.report().worker_loads().await.expect("workers");
    let found: Vec<(&str, u64)> =
        workers.iter().map(|(worker, sending)| (worker.host.as_str(), *sending)).collect();
    assert_eq!(found, [("here", 1), ("there", 0)]);
}
