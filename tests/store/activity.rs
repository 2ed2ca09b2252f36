//! What workers publish: counts in spans of time, and what each worker does.

use smsq_message::activity::{
    ActivityCounts, ActivityRow, Bottleneck, ProviderActivity, WorkerActivity,
};

use super::test_queue::{NOW, TestQueue, after, on_every_engine};

fn counts(sent: u64) -> ActivityCounts {
    ActivityCounts { sent, failed: 2, unknown: 3, throttled: 4, unavailable: 5 }
}

pub(super) fn row(seconds: u64, campaign_id: i64, provider: &str, sent: u64) -> ActivityRow {
    ActivityRow {
        at: after(seconds),
        campaign_id,
        provider: provider.to_owned(),
        counts: counts(sent),
    }
}

pub(super) fn doing(in_flight: u32) -> WorkerActivity {
    WorkerActivity {
        version: "1.0.0".to_owned(),
        in_flight,
        concurrency: 64,
        rate: 12.5,
        bottleneck: Some(Bottleneck::Provider),
        providers: vec![ProviderActivity {
            name: "cellar's \"best\" \u{1f4e8}".to_owned(),
            breaker_open: true,
            ..ProviderActivity::default()
        }],
    }
}

async fn publish(queue: &TestQueue, worker_id: i64, rows: &[ActivityRow]) {
    let published = queue.store.publish(worker_id, &doing(1), rows).await;
    published.expect("published");
}

#[tokio::test]
async fn counts_of_the_same_span_are_added() {
    on_every_engine(async |queue| {
        let (one, other) = (queue.worker().await, queue.worker().await);
        publish(queue, one.id, &[row(0, 1, "a", 1), row(0, 1, "b", 10)]).await;
        publish(queue, other.id, &[row(0, 1, "a", 100), row(10, 2, "a", 7)]).await;
        publish(queue, one.id, &[]).await;
        let found = queue.store.activity(NOW, after(60)).await;
        let sum = |sent, times: u64| {
            let single = counts(sent);
            ActivityCounts {
                sent,
                failed: single.failed * times,
                unknown: single.unknown * times,
                throttled: single.throttled * times,
                unavailable: single.unavailable * times,
            }
        };
        let expected = [
            ActivityRow { counts: sum(101, 2), ..row(0, 1, "a", 0) },
            row(0, 1, "b", 10),
            row(10, 2, "a", 7),
        ];
        assert_eq!(found.expect("activity"), expected);
    })
    .await;
}

#[tokio::test]
async fn activity_is_read_by_time_and_pruned() {
    on_every_engine(async |queue| {
        let worker = queue.worker().await;
        let rows = [0, 10, 20, 30].map(|seconds| row(seconds, 1, "a", 1));
        publish(queue, worker.id, &rows).await;
        let found = queue.store.activity(after(10), after(30)).await;
        assert_eq!(found.expect("activity"), rows[1..3]);
        let pruned = queue.store.prune_activity(after(20)).await;
        assert_eq!(pruned.expect("pruned"), 2);
        let found = queue.store.activity(NOW, after(60)).await;
        assert_eq!(found.expect("activity"), rows[2..]);
    })
    .await;
}

#[tokio::test]
async fn worker_activity_is_that_of_the_last_publication() {
    on_every_engine(async |queue| {
        let (one, other) = (queue.worker().await, queue.worker().await);
        let activities = queue.store.worker_activities().await;
        assert!(activities.expect("activities").is_empty());
        for in_flight in [3, 7] {
            let published = queue.store.publish(one.id, &doing(in_flight), &[]).await;
            published.expect("published");
        }
        let activities = queue.store.worker_activities().await;
        let activities = activities.expect("activities");
        assert_eq!(activities.get(&one.id), Some(&doing(7)));
        assert_eq!(activities.get(&other.id), None);

        let newer = r#"{"version": "9.0.0", "rate": "fast", "moon": [1, 2]}"#;
        for (worker, text) in [(&one, newer), (&other, "not JSON")] {
            let id = worker.id;
            let sql = format!("UPDATE worker SET activity = '{text}' WHERE id = {id}");
            queue.db.run(&sql);
        }
        let activities = queue.store.worker_activities().await;
        let activities = activities.expect("activities");
        assert_eq!(activities[&one.id].version, "9.0.0");
        assert_eq!(activities.len(), 1, "one that cannot be read is left out");
    })
    .await;
}

#[tokio::test]
async fn counts_of_a_worker_without_a_row_are_added() {
    on_every_engine(async |queue| {
        publish(queue, 1_000, &[row(0, 1, "a", 1)]).await;
        let found = queue.store.activity(NOW, after(1)).await;
        assert_eq!(found.expect("activity"), [row(0, 1, "a", 1)]);
    })
    .await;
}

#[tokio::test]
async fn workers_that_publish_at_once_lose_no_counts() {
    on_every_engine(async |queue| {
        const WORKERS: u64 = 4;
        const SPANS: u64 = 20;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..WORKERS {
            let worker = queue.worker().await;
            // As in processes of their own.
            let store = queue.db.open().await.expect("a database");
            tasks.spawn(async move {
                for span in 0..SPANS {
                    let rows = ["a", "b", "c"].map(|name| row(span / 2 * 10, 1, name, 1));
                    let published = store.publish(worker.id, &doing(1), &rows).await;
                    published.expect("published");
                    tokio::task::yield_now().await;
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no panic");
        }
        let found = queue.store.activity(NOW, after(1_000)).await;
        let found = found.expect("activity");
        assert_eq!(found.len() as u64, SPANS / 2 * 3);
        let sent: u64 = found.iter().map(|row| row.counts.sent).sum();
        assert_eq!(sent, WORKERS * SPANS * 3);
    })
    .await;
}
