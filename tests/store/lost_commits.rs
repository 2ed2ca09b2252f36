//! Commits with a lost answer: the connection is cut before or after the commit, and a repetition changes nothing
//! twice.

use std::sync::Arc;

use smsq_lifecycle::{Settled, Settlement};
use smsq_store::{Access, CommitBatch, Store, StoreErrorKind};

use super::server::on_every_server;
use super::test_queue::{
    NOW, PROVIDER, TestQueue, again, claim_of, commit_batch, failed, rows, sent,
};
use crate::support::proxy::{proxy_to, url_through};
use crate::support::waiting::eventually;
use smsq_prove::proxy::{Cut, Proxy};

const CUTS: [&[Cut]; 4] = [
    &[Cut::BeforeCommit],
    &[Cut::AfterCommit],
    &[Cut::BeforeCommit, Cut::AfterCommit],
    &[Cut::AfterCommit, Cut::AfterCommit],
];

/// A store that is connected through a proxy and has probed the server.
async fn store_by(proxy: &Proxy, queue: &TestQueue) -> Store {
    let store = Store::open(&url_through(proxy, &queue.db), Access::Existing).await;
    let store = store.expect("a store");
    store.commit(&commit_batch(0, NOW)).await.expect("a commit");
    store
}

/// Repeats a commit until its answer arrives; each cut is an error of kind `Unavailable`.
async fn repeated(store: &Store, commit: CommitBatch, cuts: &[Cut], proxy: &Proxy) -> Vec<Settled> {
    let commit = Arc::new(commit);
    proxy.cut(cuts);
    for cut in cuts {
        let error = store.commit(&commit).await.err();
        let error = error.unwrap_or_else(|| panic!("{cut:?} is an error"));
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    assert!(proxy.has_cut());
    store.commit(&commit).await.expect("a commit").settled
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_settlement_counts_once() {
    for cuts in CUTS {
        on_every_server(async |queue| {
            let proxy = proxy_to(&queue.db);
            let store = store_by(&proxy, queue).await;
            let (_, worker, claimed) = queue.claimed(6).await;
            let transitions = [sent(), sent(), failed(), again(), sent(), failed()];
            let settlements = claimed.iter().zip(transitions).map(|(sms, transition)| Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: PROVIDER.to_owned(),
                transition,
            });
            let settling =
                CommitBatch { settlements: settlements.collect(), ..commit_batch(worker.id, NOW) };
            let settled = repeated(&store, settling, cuts, &proxy).await;
            // The message is in `sms_sent` because of this settlement.
            for (settled, sms) in settled.iter().zip(&claimed) {
                let is_sent = queue.place(sms.id) == "sent";
                assert!(!is_sent || *settled == Settled::Done, "{settled:?} {cuts:?}");
            }
            let places = ["sent", "recipient", "ready"].map(|place| queue.count(place));
            assert_eq!(places, [3, 2, 1], "{cuts:?}");
            for what in ["sum(accepted)", "sum(attempts)", "sum(claim)"] {
                let sql = format!("SELECT {what} AS value FROM sms_sent");
                assert_eq!(queue.db.number(&sql), 3, "{what}: {cuts:?}");
            }
            let waiting = claimed[3].id;
            assert_eq!(queue.number("attempts", waiting), 1, "{cuts:?}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_with_lost_answer_is_released_and_claimed_again() {
    on_every_server(async |queue| {
        let proxy = proxy_to(&queue.db);
        let store = store_by(&proxy, queue).await;
        let (spring, worker) = queue.queued_with_worker(5).await;
        let claiming = Arc::new(CommitBatch {
            claims: vec![claim_of(&[(spring, 5)])],
            ..commit_batch(worker.id, NOW)
        });
        proxy.cut(&[Cut::AfterCommit]);
        let error = store.commit(&claiming).await.err();
        assert_eq!(error.expect("it is cut").kind(), StoreErrorKind::Unavailable);
        eventually("it is claimed", || queue.count("sending") == 5);
        let again = store.commit(&claiming).await.expect("a commit");
        assert!(again.claims[0].rows.is_empty(), "it is claimed already");
        let released =
            queue.release(worker.id, Vec::new(), super::test_queue::after(1), spring).await;
        assert_eq!(released, 5);
        let claimed = queue.claim(worker.id, spring, 5).await;
        let numbers: Vec<i64> = claimed.iter().map(|sms| sms.claim).collect();
        assert_eq!(numbers, [2; 5]);
        assert!(claimed.iter().all(|sms| sms.attempts == 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_import_batch_is_queued_once() {
    for cuts in CUTS {
        on_every_server(async |queue| {
            let proxy = proxy_to(&queue.db);
            let store = store_by(&proxy, queue).await;
            let spring = queue.queued(5).await;
            let import_id = queue.begin(spring).await;
            for (lines, accepted, duplicates) in [(0..40, 35, 5), (40..60, 20, 0)] {
                proxy.cut(cuts);
                let batch = TestQueue::batch(import_id, spring, rows(lines));
                let done = store.imports().enqueue(&batch).await.expect("queued");
                assert!(proxy.has_cut());
                assert_eq!(
                    (done.accepted, done.duplicates.len()),
                    (accepted, duplicates),
                    "{cuts:?}"
                );
            }
            let finished = queue.store.imports().finish(import_id, NOW).await;
            finished.expect("finished");
            let columns = ["accepted", "duplicates", "row_count", "last_line"];
            let counts = columns.map(|column| queue.imported(column));
            assert_eq!(counts, [55, 5, 60, 59], "{cuts:?}");
            assert_eq!((queue.count("ready"), queue.keys()), (60, 60), "{cuts:?}");
        })
        .await;
    }
}
