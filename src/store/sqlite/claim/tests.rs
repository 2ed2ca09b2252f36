//! How SQLite finds the rows of a claim: however long the queue is, it may look at no others.

use std::sync::Arc;
use std::sync::Mutex;

use diesel::connection::{Connection, InstrumentationEvent};
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;

use super::super::round::{keep, load};
use super::super::settle;
use super::*;
use crate::limit::{MIN_TOLERANCE, SharedLimit};
use crate::queue::{Admission, Settlement, Transition};
use crate::sms::{Class, Failure};

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

fn no_round() -> CommitBatch {
    CommitBatch {
        worker_id: 1,
        now: Timestamp::from_millis(1),
        tolerance: MIN_TOLERANCE,
        settlements: Vec::new(),
        campaign_stops: Vec::new(),
        pauses: Vec::new(),
        fill_limits: false,
        claims: Vec::new(),
        fill: Arc::new(crate::queue::batch::alone),
        caps: crate::rate::Rates::default(),
        admit: Arc::new(|_| Admission::Fail(Failure::new(Class::Recipient, "never asked"))),
    }
}

/// The plan of the last statement that `work` runs.
fn plan_of(work: impl FnOnce(&mut SqliteConnection)) -> Vec<String> {
    let mut conn = SqliteConnection::establish(":memory:").expect("a database");
    conn.run_pending_migrations(super::super::MIGRATIONS)
        .expect("tables");
    let seen = Arc::new(Mutex::new(String::new()));
    let last = Arc::clone(&seen);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            *last.lock().expect("one thread") = query.to_string();
        }
    });
    work(&mut conn);
    let sql = seen.lock().expect("one thread").clone();
    let (sql, _binds) = sql.split_once(" -- binds").expect("a statement with binds");
    let plan: Vec<Step> = diesel::sql_query(format!("EXPLAIN QUERY PLAN {sql}"))
        .load(&mut conn)
        .expect("a plan");
    plan.into_iter().map(|step| step.detail).collect()
}

#[test]
fn the_next_messages_are_found_by_index_and_not_sorted() {
    let plan = plan_of(|conn| {
        claim_rows(conn, 1, &no_round(), 5).expect("a claim");
    });
    let text = plan.join("\n");
    let index = "USING COVERING INDEX sms_due (campaign_id=? AND state=? AND due_at<?)";
    assert!(text.contains(index), "{text}");
    assert!(
        text.contains("SEARCH sms USING INTEGER PRIMARY KEY (rowid=?)"),
        "{text}"
    );
    assert!(!text.contains("TEMP B-TREE"), "{text}");
    assert!(!text.contains("SCAN sms"), "{text}");
}

#[test]
fn the_next_due_moment_is_found_by_index() {
    let plan = plan_of(|conn| {
        next_due(conn, 1).expect("a moment");
    });
    let index = "SEARCH sms USING COVERING INDEX sms_due (campaign_id=? AND state=?)";
    assert_eq!(plan, [index]);
}

/// The statements that a round runs, without those that stay prepared.
fn prepared_each_time(work: impl Fn(&mut SqliteConnection)) -> Vec<String> {
    let mut conn = SqliteConnection::establish(":memory:").expect("a database");
    conn.run_pending_migrations(super::super::MIGRATIONS)
        .expect("tables");
    let (run, kept) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(Vec::new())),
    );
    let (run_now, kept_now) = (Arc::clone(&run), Arc::clone(&kept));
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| match event {
        InstrumentationEvent::StartQuery { query, .. } => {
            let sql = query.to_string();
            let sql = sql.split(" -- binds").next().unwrap_or_default().to_owned();
            run_now.lock().expect("one thread").push(sql);
        }
        InstrumentationEvent::CacheQuery { sql, .. } => {
            kept_now.lock().expect("one thread").push(sql.to_owned());
        }
        _ => {}
    });
    work(&mut conn);
    let kept = kept.lock().expect("one thread").clone();
    let run = run.lock().expect("one thread").clone();
    run.into_iter().filter(|sql| !kept.contains(sql)).collect()
}

#[test]
fn what_is_hot_stays_prepared() {
    let again = prepared_each_time(|conn| {
        diesel::insert_into(sms::table)
            .values((
                sms::phone.eq("+447400123456"),
                sms::content.eq("hello"),
                sms::due_at.eq(0),
            ))
            .execute(conn)
            .expect("a message");
        let claimed = claim_rows(conn, 1, &no_round(), 5).expect("a claim");
        next_due(conn, 1).expect("a moment");
        load(conn, "provider/a").expect("a pace");
        keep(conn, "provider/a", &SharedLimit::default()).expect("kept");
        let settlement = Settlement {
            id: claimed[0].sms.id,
            claim: claimed[0].sms.claim,
            provider: "a".to_owned(),
            transition: Transition::Sent(crate::sms::Acceptance::default()),
        };
        settle::settle(conn, &settlement, Timestamp::from_millis(1)).expect("settled");
    });
    assert_eq!(again, Vec::<String>::new());
}
