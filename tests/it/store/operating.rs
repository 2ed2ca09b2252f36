//! The operator's moves: retry, settle, cancel, by filters and in chunks.

use smsq::queue::Transition;
use smsq::sms::{Class, Sms};
use smsq::store::{CampaignStatus, RetryFilter};

use super::desk::{
    Desk, NOW, after, at_every_desk, claim_of, failed, failure, phone, rows, sent, unknown,
};

/// More than fits into one chunk.
const MANY: u64 = 2_300;

/// A campaign of which every message has got the fate.
async fn all(desk: &Desk, count: u64, transition: Transition) -> (i64, Vec<Sms>) {
    let spring = desk.queued(count).await;
    let worker = desk.worker().await;
    let claimed = desk.claim(worker.id, spring, 10_000).await;
    let round = smsq::store::CommitBatch {
        settlements: claimed
            .iter()
            .map(|sms| smsq::queue::Settlement {
                id: sms.id,
                claim: sms.claim,
                provider: super::desk::PROVIDER.to_owned(),
                transition: transition.clone(),
            })
            .collect(),
        ..super::desk::round(worker.id, NOW)
    };
    let done = desk.store.commit(&round).await;
    done.expect("settled");
    (spring, claimed)
}

async fn retried(desk: &Desk, filter: &RetryFilter) -> u64 {
    let retried = desk.store.retry_failed(filter, NOW).await;
    retried.expect("retried")
}

async fn set_state(desk: &Desk, campaign_id: i64, state: CampaignStatus) {
    let set = desk.store.set_campaign_state(campaign_id, state, None);
    set.await.expect("a state");
}

async fn cancel(desk: &Desk, campaign_id: i64) -> u64 {
    set_state(desk, campaign_id, CampaignStatus::Cancelled).await;
    let cancelled = desk.store.cancel_rows(campaign_id, NOW).await;
    cancelled.expect("cancelled")
}

#[tokio::test]
async fn a_retry_is_a_new_message_to_the_provider() {
    at_every_desk(async |desk| {
        let (spring, old) = all(desk, 1, failed()).await;
        assert_eq!(retried(desk, &RetryFilter::default()).await, 1);
        let worker = desk.worker().await;
        let new = desk.claim_one(worker.id, spring).await;
        assert_eq!((new.id, new.attempts, new.claim), (old[0].id, 0, 2));
        assert_ne!(new.reference, old[0].reference);
        assert!(!new.in_doubt);
        assert_eq!(desk.import(spring, rows(0..1)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn every_chunk_of_a_long_list_is_moved() {
    at_every_desk(async |desk| {
        let (spring, _) = all(desk, MANY, failed()).await;
        assert_eq!(retried(desk, &RetryFilter::default()).await, MANY);
        assert_eq!(retried(desk, &RetryFilter::default()).await, 0);
        assert_eq!(cancel(desk, spring).await, MANY);
        assert_eq!(cancel(desk, spring).await, 0);
        assert_eq!(desk.keys(), 0);
        set_state(desk, spring, CampaignStatus::Active).await;
        let cancelled = RetryFilter {
            class: Some(Class::Cancelled),
            ..RetryFilter::default()
        };
        assert_eq!(retried(desk, &cancelled).await, MANY);
    })
    .await;
}

#[tokio::test]
async fn every_chunk_of_the_unknown_is_moved() {
    at_every_desk(async |desk| {
        let (spring, _) = all(desk, MANY, unknown()).await;
        let moved = desk.store.retry_unknown(&RetryFilter::default(), NOW).await;
        assert_eq!(moved.expect("retried"), MANY);
        assert_eq!(cancel(desk, spring).await, MANY, "all in doubt");
        assert_eq!(desk.count("unknown"), i64::try_from(MANY).expect("a count"));
        let settled = desk.store.settle_unknown(spring, true, None, NOW).await;
        assert_eq!(settled.expect("settled"), MANY);
    })
    .await;
}

#[tokio::test]
async fn a_retry_takes_what_the_filter_names() {
    at_every_desk(async |desk| {
        let spring = desk.queued(4).await;
        let autumn = desk.campaign("autumn").await;
        desk.import(autumn, rows(10..11)).await;
        let worker = desk.worker().await;
        let fates = [
            Transition::Failed(failure(Class::Recipient).with_code("21211")),
            Transition::Failed(failure(Class::Recipient)),
            Transition::Failed(failure(Class::Content)),
            Transition::Failed(failure(Class::Content)),
        ];
        let claimed = desk.claim(worker.id, spring, 4).await;
        for (sms, transition) in claimed.iter().zip(fates) {
            desk.settle(sms, transition).await;
        }
        let other = desk.claim_one(worker.id, autumn).await;
        desk.settle(&other, Transition::Failed(failure(Class::Content)))
            .await;
        let of = |filter: RetryFilter| async move { retried(desk, &filter).await };
        let any = RetryFilter::default;
        assert_eq!(
            of(RetryFilter {
                code: Some("1".to_owned()),
                ..any()
            })
            .await,
            0
        );
        assert_eq!(
            of(RetryFilter {
                code: Some("21211".to_owned()),
                ..any()
            })
            .await,
            1
        );
        assert_eq!(
            of(RetryFilter {
                class: Some(Class::Recipient),
                ..any()
            })
            .await,
            1
        );
        assert_eq!(
            of(RetryFilter {
                phone: Some(phone(3)),
                ..any()
            })
            .await,
            1
        );
        assert_eq!(
            of(RetryFilter {
                campaign_id: Some(autumn),
                ..any()
            })
            .await,
            1
        );
        assert_eq!(desk.place(claimed[2].id), "content");
    })
    .await;
}

#[tokio::test]
async fn what_has_expired_is_retried_only_with_a_new_last_moment() {
    at_every_desk(async |desk| {
        let (spring, old) = all(desk, 1, Transition::NotAdmitted(failure(Class::Expired))).await;
        let expire = format!("UPDATE sms_failed SET expires_at = {}", NOW.as_millis());
        desk.db.run(&expire);
        assert_eq!(retried(desk, &RetryFilter::default()).await, 0);
        let later = RetryFilter {
            expires_at: Some(after(60)),
            ..RetryFilter::default()
        };
        assert_eq!(retried(desk, &later).await, 1);
        let worker = desk.worker().await;
        let new = desk.claim_one(worker.id, spring).await;
        assert_eq!((new.id, new.expires_at), (old[0].id, Some(after(60))));
    })
    .await;
}

#[tokio::test]
async fn cancelled_messages_are_retried_only_when_they_are_named() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        cancel(desk, spring).await;
        set_state(desk, spring, CampaignStatus::Active).await;
        assert_eq!(retried(desk, &RetryFilter::default()).await, 0);
        let cancelled = RetryFilter {
            class: Some(Class::Cancelled),
            ..RetryFilter::default()
        };
        assert_eq!(retried(desk, &cancelled).await, 2);
        assert_eq!(desk.import(spring, rows(0..2)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn retry_puts_nothing_back_into_a_cancelled_campaign() {
    at_every_desk(async |desk| {
        let spring = desk.queued(MANY).await;
        let autumn = desk.campaign("autumn").await;
        desk.import(autumn, rows(3_000..3_003)).await;
        let worker = desk.worker().await;
        for (campaign_id, count) in [(spring, 2), (autumn, 2)] {
            let claimed = desk.claim(worker.id, campaign_id, count).await;
            desk.settle(&claimed[0], failed()).await;
            desk.settle(&claimed[1], unknown()).await;
        }
        assert_eq!(cancel(desk, spring).await, MANY - 2);
        for campaign_id in [Some(spring), None] {
            for class in [None, Some(Class::Cancelled)] {
                let filter = RetryFilter {
                    campaign_id,
                    class,
                    ..RetryFilter::default()
                };
                let open = u64::from(campaign_id.is_none() && class.is_none());
                assert_eq!(retried(desk, &filter).await, open, "{filter:?}");
            }
            let filter = RetryFilter {
                campaign_id,
                ..RetryFilter::default()
            };
            let moved = desk.store.retry_unknown(&filter, NOW).await;
            assert_eq!(moved.expect("retried"), u64::from(campaign_id.is_none()));
        }
        let of_spring = |table: &str| {
            let sql = format!("SELECT count(*) AS value FROM {table} WHERE campaign_id = {spring}");
            desk.db.number(&sql)
        };
        let failed = i64::try_from(MANY - 1).expect("a count");
        assert_eq!((of_spring("sms"), of_spring("sms_failed")), (1, failed));
        assert_eq!((desk.count("unknown"), desk.count("ready")), (1, 3));
    })
    .await;
}

#[tokio::test]
async fn what_was_cancelled_and_imported_again_is_not_retried() {
    at_every_desk(async |desk| {
        let spring = desk.queued(MANY).await;
        cancel(desk, spring).await;
        set_state(desk, spring, CampaignStatus::Active).await;
        assert_eq!(desk.import(spring, rows(0..1_500)).await.accepted, 1_500);
        let cancelled = RetryFilter {
            class: Some(Class::Cancelled),
            ..RetryFilter::default()
        };
        assert_eq!(retried(desk, &cancelled).await, MANY - 1_500);
        assert_eq!(desk.count("cancelled"), 1_500);
    })
    .await;
}

#[tokio::test]
async fn unknown_messages_are_retried_in_doubt_with_all_their_attempts() {
    at_every_desk(async |desk| {
        let (spring, old) = all(desk, 3, unknown()).await;
        assert_eq!(
            retried(desk, &RetryFilter::default()).await,
            0,
            "they have not failed"
        );
        let one = RetryFilter {
            phone: Some(phone(1)),
            ..RetryFilter::default()
        };
        let moved = desk.store.retry_unknown(&one, NOW).await;
        assert_eq!(moved.expect("retried"), 1);
        let worker = desk.worker().await;
        let new = desk.claim_one(worker.id, spring).await;
        assert_eq!((new.id, new.attempts, new.in_doubt), (old[1].id, 0, true));
        assert_eq!(new.reference, old[1].reference);
    })
    .await;
}

#[tokio::test]
async fn unknown_messages_past_their_last_moment_stay_unless_it_is_moved() {
    at_every_desk(async |desk| {
        let (spring, _) = all(desk, 1, unknown()).await;
        desk.db
            .run(&format!("UPDATE sms SET expires_at = {}", NOW.as_millis()));
        let moved = desk.store.retry_unknown(&RetryFilter::default(), NOW).await;
        assert_eq!(moved.expect("none"), 0);
        let later = RetryFilter {
            campaign_id: Some(spring),
            expires_at: Some(after(60)),
            ..RetryFilter::default()
        };
        let moved = desk.store.retry_unknown(&later, NOW).await;
        assert_eq!(moved.expect("one"), 1);
        let worker = desk.worker().await;
        let claimed = desk
            .claim_route(worker.id, NOW, claim_of(&[(spring, 1)]))
            .await;
        assert_eq!(claimed.rows[0].sms.expires_at, Some(after(60)));
    })
    .await;
}

#[tokio::test]
async fn the_operators_word_settles_unknown_messages() {
    at_every_desk(async |desk| {
        let (spring, old) = all(desk, 3, unknown()).await;
        let of = |as_sent, phone: Option<String>| async move {
            let settled = desk
                .store
                .settle_unknown(spring, as_sent, phone.as_deref(), NOW);
            settled.await.expect("settled")
        };
        assert_eq!(of(true, Some(phone(9))).await, 0);
        assert_eq!(of(true, Some(phone(0))).await, 1);
        assert_eq!(of(false, None).await, 2);
        assert_eq!(desk.place(old[0].id), "sent");
        let failed = [1, 2].map(|index: usize| desk.place(old[index].id));
        assert_eq!(failed, ["settled", "settled"]);
        assert!(old.iter().all(|sms| desk.number("attempts", sms.id) == 1));
        assert_eq!(desk.import(spring, rows(0..3)).await.accepted, 0);
    })
    .await;
}

#[tokio::test]
async fn a_cancel_leaves_alone_what_is_being_sent_and_what_has_ended() {
    at_every_desk(async |desk| {
        let spring = desk.queued(4).await;
        let autumn = desk.campaign("autumn").await;
        desk.import(autumn, rows(0..2)).await;
        let worker = desk.worker().await;
        let claimed = desk.claim(worker.id, spring, 3).await;
        desk.settle(&claimed[0], sent()).await;
        desk.settle(&claimed[1], failed()).await;
        assert_eq!(cancel(desk, spring).await, 1);
        let places = claimed.iter().map(|sms| desk.place(sms.id));
        assert_eq!(places.collect::<Vec<_>>(), ["sent", "recipient", "sending"]);
        assert_eq!((desk.count("cancelled"), desk.count("ready")), (1, 2));
    })
    .await;
}
