//! Many at one table: claims and settlements from every side at once, with nothing claimed twice and
//! nothing of it surfacing.

use std::collections::BTreeSet;

use smsq::queue::{Settled, Settlement};
use smsq::store::{Access, CommitBatch, Shortfall, Store};

use super::desk::{Desk, NOW, PROVIDER, at_every_desk, claim_of, round, sent};
use crate::support::databases::Kind;

const STORES: usize = 4;
const TASKS_OF_EACH: usize = 4;
const WANT: u32 = 7;

/// Claims, and settles in the next round what the last one gave, until nothing is ready.
async fn claim_and_settle(store: Store, worker_id: i64, campaign_id: i64) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut settlements = Vec::new();
    loop {
        let settling = settlements.len();
        let round = CommitBatch {
            settlements: std::mem::take(&mut settlements),
            claims: vec![claim_of(&[(campaign_id, WANT)])],
            ..round(worker_id, NOW)
        };
        let done = store.commit(&round).await.expect("a round");
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
        // What others hold, and have not marked yet, is still ready.
        if claimed.rows.is_empty() && claimed.shortfalls == [(campaign_id, Shortfall::Until(None))]
        {
            return ids;
        }
    }
}

async fn crowd(desk: &Desk, url: &str) {
    const ROWS: u64 = 1_000;
    let spring = desk.queued(ROWS).await;
    let mut tasks = Vec::new();
    for _ in 0..STORES {
        let store = Store::open(url, Access::Existing).await.expect("a store");
        for _ in 0..TASKS_OF_EACH {
            let worker = desk.worker().await;
            tasks.push(tokio::spawn(claim_and_settle(
                store.clone(),
                worker.id,
                spring,
            )));
        }
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("no panic"));
    }
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!((all.len() as u64, distinct.len() as u64), (ROWS, ROWS));
    for what in ["count(*)", "sum(accepted)", "sum(claim)", "sum(attempts)"] {
        let number = desk
            .db
            .number(&format!("SELECT {what} AS value FROM sms_sent"));
        assert_eq!(number.unsigned_abs(), ROWS, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_that_claim_and_settle_at_once_get_each_message_once() {
    at_every_desk(async |desk| crowd(desk, &desk.db.url).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_do_sixteen_where_locked_rows_are_not_to_be_skipped() {
    at_every_desk(async |desk| {
        if desk.db.kind != Kind::Sqlite {
            crowd(desk, &format!("{}?skip_locked=off", desk.db.url)).await;
        }
    })
    .await;
}
