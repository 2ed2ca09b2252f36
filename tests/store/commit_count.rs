//! The count of a worker's commits: one that is repeated counts once, and a database that was put back is noticed.

use std::sync::Arc;

use smsq_store::{
    Access, CommitBatch, CommitCount, CommitResult, Store, StoreError, StoreErrorKind, Worker,
};

use super::server::on_every_server;
use super::test_queue::{NOW, TestQueue, after, claim_of, commit_batch, on_every_engine};
use crate::support::proxy::{proxy_to, url_through};
use smsq_prove::proxy::Cut;

fn count(worker: &Worker, confirmed: i64, is_uncertain: bool) -> CommitCount {
    CommitCount { confirmed, is_uncertain, ..CommitCount::new(worker.id, worker.token.clone()) }
}

/// Commits one claim of a message.
async fn commit(
    store: &Store,
    worker: &Worker,
    campaign_id: i64,
    count: &CommitCount,
) -> Result<CommitResult, StoreError> {
    let batch =
        CommitBatch { claims: vec![claim_of(&[(campaign_id, 1)])], ..commit_batch(worker.id, NOW) };
    store.commit_counted(&batch, count).await
}

fn commits(queue: &TestQueue, worker: &Worker) -> i64 {
    let sql = format!("SELECT commits AS value FROM worker WHERE id = {}", worker.id);
    queue.db.number(&sql)
}

#[tokio::test]
async fn database_that_was_put_back_rejects_commits() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(9).await;
        for confirmed in 0..4 {
            let counted =
                commit(&queue.store, &worker, spring, &count(&worker, confirmed, false)).await;
            assert!(!counted.expect("a commit").is_worker_missing);
        }
        assert_eq!(commits(queue, &worker), 4);
        // The rows as they were two commits before, and one of another registration.
        for (change, expected) in [
            ("commits = 2", "lost the last 2 of 4 commits of worker"),
            ("commits = 4, token = 'another'", "lost worker"),
            ("commits = 5, token = '{token}'", "runs twice"),
        ] {
            let change = change.replace("{token}", &worker.token);
            queue.db.run(&format!("UPDATE worker SET {change} WHERE id = {}", worker.id));
            let before = queue.count("sending");
            let error = commit(&queue.store, &worker, spring, &count(&worker, 4, false)).await;
            let error = error.expect_err("it is put back");
            assert_eq!(error.kind(), StoreErrorKind::LostCommits, "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(queue.count("sending"), before, "nothing is claimed");
        }
        let beat = queue.store.workers().heartbeat(worker.id, "another token", after(1)).await;
        assert!(!beat.expect("a result"));
    })
    .await;
}

#[tokio::test]
async fn worker_that_was_declared_dead_is_not_taken_for_a_lost_one() {
    on_every_engine(async |queue| {
        let (spring, dead) = queue.queued_with_worker(9).await;
        let gone = queue.worker().await;
        for worker in [&dead, &gone] {
            let counted = commit(&queue.store, worker, spring, &count(worker, 0, false)).await;
            counted.expect("a commit");
        }
        let reclaimed = queue.store.workers().reclaim(&dead, "it died", NOW).await;
        assert_eq!(reclaimed.expect("reclaimed"), 1);
        let counted = commit(&queue.store, &dead, spring, &count(&dead, 1, false)).await;
        let counted = counted.expect("a commit");
        assert!(counted.is_worker_missing && counted.claims[0].rows.is_empty());
        let workers = queue.store.workers().all().await.expect("workers");
        let checked = queue.store.workers().check_count(&count(&dead, 1, false), &workers).await;
        checked.expect("it may register again");

        queue.db.run(&format!("DELETE FROM worker WHERE id = {}", gone.id));
        let error = commit(&queue.store, &gone, spring, &count(&gone, 1, false)).await;
        let error = error.expect_err("its row is lost");
        assert_eq!(error.kind(), StoreErrorKind::LostCommits, "{error}");
        queue.db.run("UPDATE sms SET state = 0 WHERE state = 1");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_whose_answer_was_lost_counts_once() {
    for cuts in [
        &[Cut::AfterCommit][..],
        &[Cut::BeforeCommit],
        &[Cut::AfterCommit, Cut::AfterCommit],
        &[Cut::AfterCommit, Cut::BeforeCommit],
    ] {
        on_every_server(async |queue| {
            let proxy = proxy_to(&queue.db);
            let store = Store::open(&url_through(&proxy, &queue.db), Access::Existing).await;
            let store = Arc::new(store.expect("a store"));
            let (spring, worker) = queue.queued_with_worker(9).await;
            let first = commit(&store, &worker, spring, &count(&worker, 0, false)).await;
            first.expect("a commit");
            proxy.cut(cuts);
            for (index, cut) in cuts.iter().enumerate() {
                let error = commit(&store, &worker, spring, &count(&worker, 1, index > 0)).await;
                let error = error.err().unwrap_or_else(|| panic!("{cut:?} is an error"));
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
            }
            let repeated = commit(&store, &worker, spring, &count(&worker, 1, true)).await;
            repeated.expect("a commit");
            assert_eq!(commits(queue, &worker), 2, "{cuts:?}");
            let next = commit(&store, &worker, spring, &count(&worker, 2, false)).await;
            next.expect("a commit");
            assert_eq!(commits(queue, &worker), 3, "{cuts:?}");
        })
        .await;
    }
}
