//! Many workers claim and settle at once: no message is claimed twice, and no conflict becomes an error.

use std::collections::BTreeSet;

use smsq_lifecycle::{Settled, Settlement};
use smsq_store::{Access, CommitBatch, Store};

use super::test_queue::{NOW, PROVIDER, TestQueue, claim_of, commit_batch, on_every_engine, sent};

const STORES: usize = 4;
const TASKS_OF_EACH: usize = 4;
const WANT: u32 = 7;

/// Claims messages, and settles them in the next commit, until none is ready.
async fn claim_and_settle(store: Store, worker_id: i64, campaign_id: i64) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut settlements = Vec::new();
    loop {
        let settling = settlements.len();
        let commit = CommitBatch {
            settlements: std::mem::take(&mut settlements),
            claims: vec![claim_of(&[(campaign_id, WANT)])],
            ..commit_batch(worker_id, NOW)
        };
        let done = store.commit(&commit).await.expect("a commit");
        assert_eq!(done.settled, vec![Settled::Done; settling]);
        let [claimed] = done.claims.as_slice() else {
            panic!("an answer per claim");
        };
        assert!(claimed.rows.len() <= WANT as usize);
        for row in &claimed.rows {
            assert_eq!(row.sms.claim, 1, "message {} was claimed twice", row.sms.id);
            ids.push(row.sms.id);
            settlements.push(Settlement {
                id: row.sms.id,
                claim: row.sms.claim,
                provider: PROVIDER.to_owned(),
                transition: sent(),
            });
        }
        // Messages that other workers have locked but not marked yet are still ready.
        let is_empty = async || {
            let queued = store.queued_campaigns().await.expect("read");
            queued.iter().all(|queued| queued.ready_at.is_none())
        };
        if claimed.rows.is_empty() && is_empty().await {
            return ids;
        }
    }
}

async fn crowd(queue: &TestQueue, url: &str) {
    const ROWS: u64 = 1_000;
    let spring = queue.queued(ROWS).await;
    let mut tasks = Vec::new();
    for _ in 0..STORES {
        let store = Store::open(url, Access::Existing).await.expect("a store");
        for _ in 0..TASKS_OF_EACH {
            let worker = queue.worker().await;
            tasks.push(tokio::spawn(claim_and_settle(store.clone(), worker.id, spring)));
        }
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("no panic"));
    }
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!((all.len() as u64, distinct.len() as u64), (ROWS, ROWS));
    for what in ["count(*)", "sum(accepted)", "sum(claim)", "sum(attempts)"] {
        let number = queue.db.number(&format!("SELECT {what} AS value FROM sms_sent"));
        assert_eq!(number.unsigned_abs(), ROWS, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_concurrent_workers_settle_each_message_once() {
    on_every_engine(async |queue| crowd(queue, &queue.db.url).await).await;
}
