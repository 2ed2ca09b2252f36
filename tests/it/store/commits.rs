//! Commits whose answer is lost: the connection is cut before or after the server has done them, and
//! whoever repeats what was asked for has it done once.

use std::sync::Arc;

use smsq::queue::{Settled, Settlement};
use smsq::store::{Access, CommitBatch, Fault, Store};

use super::desk::{Desk, NOW, PROVIDER, again, claim_of, failed, round, rows, sent};
use super::server::at_every_server;
use crate::support::proxy::{Cut, Proxy};
use crate::support::running::eventually;

const CUTS: [&[Cut]; 4] = [
    &[Cut::BeforeCommit],
    &[Cut::AfterCommit],
    &[Cut::BeforeCommit, Cut::AfterCommit],
    &[Cut::AfterCommit, Cut::AfterCommit],
];

/// A store that has its connections by way of a proxy, and has probed the server.
async fn store_by(proxy: &Proxy, desk: &Desk) -> Store {
    let store = Store::open(&proxy.url(&desk.db), Access::Existing).await;
    let store = store.expect("a store");
    store.commit(&round(0, NOW)).await.expect("a round");
    store
}

/// Repeats a round until its answer arrives; every cut is told as a database that is away.
async fn repeated(store: &Store, round: CommitBatch, cuts: &[Cut], proxy: &Proxy) -> Vec<Settled> {
    let round = Arc::new(round);
    proxy.cut(cuts);
    for cut in cuts {
        let error = store.commit(&round).await.err();
        let error = error.unwrap_or_else(|| panic!("{cut:?} was not told"));
        assert_eq!(error.fault(), Fault::Away, "{error}");
    }
    assert!(proxy.has_cut());
    store.commit(&round).await.expect("a round").settled
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_that_is_repeated_counts_once() {
    for cuts in CUTS {
        at_every_server(async |desk| {
            let proxy = Proxy::start(&desk.db);
            let store = store_by(&proxy, desk).await;
            let spring = desk.queued(6).await;
            let worker = desk.worker().await;
            let claimed = desk.claim(worker.id, spring, 6).await;
            let fates = [sent(), sent(), failed(), again(), sent(), failed()];
            let settlements = claimed
                .iter()
                .zip(fates)
                .map(|(sms, transition)| Settlement {
                    id: sms.id,
                    claim: sms.claim,
                    provider: PROVIDER.to_owned(),
                    transition,
                });
            let settling = CommitBatch {
                settlements: settlements.collect(),
                ..round(worker.id, NOW)
            };
            let settled = repeated(&store, settling, cuts, &proxy).await;
            // What is no more in the queue but in the ledger is there by this very settlement.
            for (settled, sms) in settled.iter().zip(&claimed) {
                let is_sent = desk.place(sms.id) == "sent";
                assert!(
                    !is_sent || *settled == Settled::Done,
                    "{settled:?} {cuts:?}"
                );
            }
            let places = ["sent", "recipient", "ready"].map(|place| desk.count(place));
            assert_eq!(places, [3, 2, 1], "{cuts:?}");
            for what in ["sum(accepted)", "sum(attempts)", "sum(claim)"] {
                let sql = format!("SELECT {what} AS value FROM sms_sent");
                assert_eq!(desk.db.number(&sql), 3, "{what}: {cuts:?}");
            }
            let waiting = claimed[3].id;
            assert_eq!(desk.number("attempts", waiting), 1, "{cuts:?}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_is_lost_is_given_back_and_numbered_anew() {
    at_every_server(async |desk| {
        let proxy = Proxy::start(&desk.db);
        let store = store_by(&proxy, desk).await;
        let spring = desk.queued(5).await;
        let worker = desk.worker().await;
        let claiming = Arc::new(CommitBatch {
            claims: vec![claim_of(&[(spring, 5)])],
            ..round(worker.id, NOW)
        });
        proxy.cut(&[Cut::AfterCommit]);
        let error = store.commit(&claiming).await.err();
        assert_eq!(error.expect("it is cut").fault(), Fault::Away);
        eventually("it is claimed", || desk.count("sending") == 5);
        let again = store.commit(&claiming).await.expect("a round");
        assert!(again.claims[0].rows.is_empty(), "it is claimed already");
        let released = desk
            .release(worker.id, Vec::new(), super::desk::after(1), spring)
            .await;
        assert_eq!(released, 5);
        let claimed = desk.claim(worker.id, spring, 5).await;
        let numbers: Vec<i64> = claimed.iter().map(|sms| sms.claim).collect();
        assert_eq!(numbers, [2; 5]);
        assert!(claimed.iter().all(|sms| sms.attempts == 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_an_import_is_queued_once() {
    for cuts in CUTS {
        at_every_server(async |desk| {
            let proxy = Proxy::start(&desk.db);
            let store = store_by(&proxy, desk).await;
            let spring = desk.queued(5).await;
            let import_id = desk.begin(spring).await;
            for (lines, accepted, duplicates) in [(0..40, 35, 5), (40..60, 20, 0)] {
                proxy.cut(cuts);
                let batch = Desk::batch(import_id, spring, rows(lines));
                let done = store.enqueue(batch).await.expect("queued");
                assert!(proxy.has_cut());
                assert_eq!(
                    (done.accepted, done.duplicates.len()),
                    (accepted, duplicates),
                    "{cuts:?}"
                );
            }
            let finished = desk.store.finish_import(import_id, NOW);
            finished.await.expect("finished");
            let columns = ["accepted", "duplicates", "row_count", "last_line"];
            let counts = columns.map(|column| desk.imported(column));
            assert_eq!(counts, [55, 5, 60, 59], "{cuts:?}");
            assert_eq!((desk.count("ready"), desk.keys()), (60, 60), "{cuts:?}");
        })
        .await;
    }
}
