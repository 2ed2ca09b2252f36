//! Posted messages: keys, races of several servers, and what a campaign's state says.

use std::time::Duration;

use smsq_message::sms::{NewSms, Timestamp};
use smsq_store::{
    Access, CampaignStatus, IntakeKey, POSTED, PostResult, PostedBatch, PostedKeys, Store,
};

use super::test_queue::{NOW, TestQueue, after, on_every_engine, row};

/// Messages with keys of their own, as a server posts them.
pub(super) async fn posted(
    queue: &TestQueue,
    campaign_id: i64,
    keys: std::ops::Range<u64>,
    content: &str,
) -> PostedBatch {
    let begun = queue.store.imports().begin(campaign_id, POSTED, "hash", Some("shop"), NOW).await;
    let import_id = begun.expect("an import");
    let message = |key: u64| NewSms {
        dedupe_key: format!("own {key}"),
        content: content.to_owned(),
        ..row(key + 1)
    };
    let rows: Vec<NewSms> = keys.clone().map(message).collect();
    let own = |key: u64| PostedKeys {
        keys: vec![IntakeKey {
            scope: format!("campaign/{campaign_id}"),
            key: format!("{key:064}"),
        }],
        fingerprint: format!("{content:0>64}"),
    };
    PostedBatch {
        batch: TestQueue::batch(import_id, campaign_id, rows),
        keys: keys.map(own).collect(),
    }
}

pub(super) async fn post(store: &Store, batch: PostedBatch) -> Vec<PostResult> {
    let done = store.post(&[batch], after(86_400)).await;
    done.expect("an answer").swap_remove(0)
}

fn later(mut batch: PostedBatch, now: Timestamp) -> PostedBatch {
    batch.batch.now = now;
    batch
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_posts_of_one_key_get_one_id() {
    on_every_engine(async |queue| {
        let other = Store::open(&queue.db.url, Access::Existing).await;
        let other = other.expect("a second server");
        let codes = queue.campaign("codes").await;
        for round in 0..20 {
            let keys = round * 10..round * 10 + 10;
            let one = posted(queue, codes, keys.clone(), "a").await;
            let two = posted(queue, codes, keys.clone(), "a").await;
            let three = posted(queue, codes, keys, "b").await;
            let (one, two, three) =
                tokio::join!(post(&queue.store, one), post(&other, two), post(&other, three));
            for ((one, two), three) in one.into_iter().zip(two).zip(three) {
                let id = |result| match result {
                    PostResult::Queued(id) => Some((true, id)),
                    PostResult::Repeated(id) => Some((false, id)),
                    PostResult::Conflict => None,
                    other => panic!("{other:?}"),
                };
                let queued = [one, two, three].into_iter().filter_map(id);
                let queued: Vec<(bool, i64)> = queued.collect();
                let is_first = |(first, _): &&(bool, i64)| *first;
                assert_eq!(queued.iter().filter(is_first).count(), 1, "{queued:?}");
                assert!(queued.iter().all(|(_, id)| *id == queued[0].1), "{queued:?}");
                let results = [one, two, three];
                assert!(results.contains(&PostResult::Conflict), "{results:?}");
            }
        }
        assert_eq!(queue.db.numbers("SELECT count(*) AS value FROM sms"), [200]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn post_to_a_cancelled_or_removed_campaign_adds_nothing() {
    on_every_engine(async |queue| {
        let codes = queue.campaign("codes").await;
        let first = post(&queue.store, posted(queue, codes, 0..2, "a").await).await;
        assert!(matches!(first[..], [PostResult::Queued(_), PostResult::Queued(_)]));
        let changed = queue.store.change_campaign_state(
            codes,
            &[CampaignStatus::Active],
            CampaignStatus::Cancelled,
            None,
            None,
        );
        assert!(changed.await.expect("changed"));
        let again = post(&queue.store, posted(queue, codes, 0..3, "a").await).await;
        let known = |result: &PostResult| match result {
            PostResult::Queued(id) => PostResult::Repeated(*id),
            other => panic!("{other:?}"),
        };
        let expected = [known(&first[0]), known(&first[1]), PostResult::Cancelled];
        assert_eq!(again, expected);
        let mut removed = posted(queue, codes, 5..6, "a").await;
        removed.batch.campaign_id = codes + 1_000;
        assert_eq!(post(&queue.store, removed).await, [PostResult::NoCampaign]);
        queue.db.run(&format!("DELETE FROM import WHERE campaign_id = {}", codes + 1_000));
        assert_eq!(queue.db.numbers("SELECT count(*) AS value FROM sms"), [2]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_post_is_refused_unless_it_is_known() {
    on_every_engine(async |queue| {
        let codes = queue.campaign("codes").await;
        let batch = async |keys| {
            let mut batch = posted(queue, codes, keys, "a").await;
            batch.batch.expires_at = Some(NOW.plus(Duration::from_secs(60)));
            batch
        };
        let first = post(&queue.store, batch(0..1).await).await;
        let [PostResult::Queued(id)] = first[..] else {
            panic!("{first:?}");
        };
        let again = post(&queue.store, later(batch(0..2).await, after(60))).await;
        assert_eq!(again, [PostResult::Repeated(id), PostResult::Expired]);
    })
    .await;
}
