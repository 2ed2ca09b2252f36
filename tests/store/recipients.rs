//! When and how often a recipient may get a message: windows, caps per recipient, and opt-outs.

use std::sync::Arc;

use smsq_lifecycle::admission::AdmissionRules;
use smsq_lifecycle::{ProviderClaim, Settlement, Transition};
use smsq_limit::MIN_TOLERANCE;
use smsq_message::sms::{Class, NewSms, Sms, Timestamp};
use smsq_message::window::SendWindow;
use smsq_store::{
    Audited, CampaignChange, CampaignStatus, CommitBatch, ImportBatch, ProviderClaimed,
    WindowChange,
};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, claim_of, commit_batch, failure, on_every_engine, phone,
    released, row, rows, sent, unknown,
};

/// Another message to the phone of line 1.
fn to_the_same(line: u64) -> NewSms {
    NewSms { phone: phone(1), dedupe_key: format!("key {line}"), ..row(line) }
}

/// A campaign with `count` messages to one phone.
pub(super) async fn to_one_phone(queue: &TestQueue, name: &str, count: u64) -> i64 {
    let campaign_id = queue.campaign(name).await;
    queue.import(campaign_id, (1..=count).map(to_the_same).collect()).await;
    campaign_id
}

/// `NOW` is 09:00 in UTC.
fn window(campaign_id: i64, window: &str) -> Arc<AdmissionRules> {
    Arc::new(AdmissionRules {
        windows: [(campaign_id, window.parse().expect("a window"))].into(),
        ..AdmissionRules::default()
    })
}

pub(super) fn capped(caps: &str, now: Timestamp) -> CommitBatch {
    CommitBatch { caps: caps.parse().expect("rates"), ..commit_batch(1, now) }
}

pub(super) async fn claim(
    queue: &TestQueue,
    caps: &str,
    now: Timestamp,
    campaign_id: i64,
) -> Vec<Sms> {
    let commit = CommitBatch {
        worker_id: queue.worker().await.id,
        claims: vec![claim_of(&[(campaign_id, 10)])],
        ..capped(caps, now)
    };
    let mut done = queue.store.commit(&commit).await.expect("a commit");
    let claimed: ProviderClaimed = done.claims.remove(0);
    claimed.rows.into_iter().map(|row| row.sms).collect()
}

pub(super) async fn settle(
    queue: &TestQueue,
    caps: &str,
    now: Timestamp,
    sms: &Sms,
    transition: Transition,
) {
    let commit = CommitBatch {
        settlements: vec![Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: PROVIDER.to_owned(),
            transition,
        }],
        ..capped(caps, now)
    };
    queue.store.commit(&commit).await.expect("a commit");
}

fn due_at(queue: &TestQueue, id: i64) -> i64 {
    let sql = format!("SELECT due_at AS value FROM sms WHERE id = {id}");
    queue.db.number(&sql)
}

fn opted_out() -> Transition {
    Transition::Failed(failure(Class::OptedOut))
}

#[tokio::test]
async fn opt_out_at_the_provider_suppresses_the_phone() {
    on_every_engine(async |queue| {
        let spring = to_one_phone(queue, "spring", 2).await;
        let summer = to_one_phone(queue, "summer", 1).await;
        let worker = queue.worker().await;
        let first = queue.claim(worker.id, spring, 1).await.remove(0);
        queue.settle(&first, opted_out()).await;
        let listed = queue.store.suppression().page(None, 10).await.expect("a page");
        let listed: Vec<_> = listed.into_iter().map(|one| (one.phone, one.reason)).collect();
        let why = "`cellar` said on 2025-11-21 that they want no more messages";
        assert_eq!(listed, [(phone(1), Some(why.to_owned()))]);
        for campaign in [spring, summer] {
            assert!(queue.claim(worker.id, campaign, 2).await.is_empty());
        }
        assert_eq!((queue.count("opted_out"), queue.count("suppressed")), (1, 2));
        let again = queue.import(summer, vec![to_the_same(9)]).await;
        assert_eq!(again.suppressed, [9]);
    })
    .await;
}

#[tokio::test]
async fn opt_out_counts_in_doubt_but_not_for_an_older_claim() {
    on_every_engine(async |queue| {
        let (_, _, both) = queue.claimed(2).await;
        let doubtful = Transition::Unknown(failure(Class::OptedOut));
        queue.settle(&both[0], doubtful).await;
        assert_eq!(queue.place(both[0].id), "unknown");
        queue.settle(&both[1], released()).await;
        queue.settle(&both[1], opted_out()).await;
        assert_eq!(queue.place(both[1].id), "ready");
        let listed = queue.store.suppression().page(None, 10).await.expect("a page");
        let phones: Vec<_> = listed.into_iter().map(|one| one.phone).collect();
        assert_eq!(phones, [both[0].phone.clone()]);
    })
    .await;
}

#[tokio::test]
async fn phone_suppressed_during_a_campaign_gets_nothing_more() {
    on_every_engine(async |queue| {
        let spring = to_one_phone(queue, "spring", 3).await;
        let worker = queue.worker().await;
        let first = queue.claim(worker.id, spring, 1).await.remove(0);
        let listed = vec![(phone(1), None)];
        queue
            .store
            .suppression()
            .add(listed, NOW, &mut Audited::unrecorded())
            .await
            .expect("added");
        queue.settle(&first, sent()).await;
        assert!(queue.claim(worker.id, spring, 5).await.is_empty());
        assert_eq!((queue.count("sent"), queue.count("suppressed")), (1, 2));
    })
    .await;
}

#[tokio::test]
async fn delayed_message_has_no_attempt_and_blocks_no_other() {
    on_every_engine(async |queue| {
        let (spring, worker) = queue.queued_with_worker(40).await;
        // All except the last one wait; the last one is found after them in the same commit.
        queue.db.run(&format!(
            "UPDATE sms SET params = '{{\"timezone\":\"Asia/Shanghai\"}}' WHERE phone = '{}'",
            phone(39)
        ));
        let commit = CommitBatch {
            claims: vec![claim_of(&[(spring, 1)])],
            admission: window(spring, "09:10-20:00 daily column UTC"),
            ..commit_batch(worker.id, NOW)
        };
        let done = queue.store.commit(&commit).await.expect("a commit");
        let claimed = &done.claims[0];
        let phones: Vec<_> = claimed.rows.iter().map(|row| row.sms.phone.clone()).collect();
        assert_eq!((phones, claimed.refused), (vec![phone(39)], 0));
        assert_eq!((queue.count("ready"), queue.count("sending")), (39, 1));
        let sql =
            "SELECT count(*) AS value FROM sms WHERE state = 0 AND attempts = 0 AND due_at = ";
        let due_at = after(600).plus(MIN_TOLERANCE);
        let waiting = queue.db.number(&format!("{sql}{}", due_at.as_millis()));
        assert_eq!(waiting, 39);
        assert!(queue.claim(worker.id, spring, 5).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn campaign_with_invalid_window_is_paused() {
    on_every_engine(async |queue| {
        let spring = queue.queued(1).await;
        let window: SendWindow =
            "09:00-20:00 mon-fri recipient Asia/Shanghai".parse().expect("one");
        let change = |window: WindowChange| CampaignChange { window, ..CampaignChange::default() };
        let window_and_status = async || {
            let campaign = queue.store.campaign("spring").await.expect("read");
            let campaign = campaign.expect("a campaign");
            (campaign.window.clone(), campaign.state)
        };
        assert_eq!(window_and_status().await, (None, CampaignStatus::Active));
        let changed =
            queue.store.change_campaign(spring, &change(WindowChange::Set(window.clone()))).await;
        changed.expect("changed");
        assert_eq!(window_and_status().await, (Some(window), CampaignStatus::Active));
        queue.db.run("UPDATE campaign SET send_window = 'at night' WHERE name = 'spring'");
        assert_eq!(window_and_status().await, (None, CampaignStatus::Paused));
        queue.store.change_campaign(spring, &change(WindowChange::Lift)).await.expect("changed");
        assert_eq!(window_and_status().await, (None, CampaignStatus::Active));
    })
    .await;
}

#[tokio::test]
async fn import_sets_due_time_by_the_window_of_the_recipient() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let import_id = queue.begin(spring).await;
        // 09:00 UTC.
        let in_zone = |line, zone: &str| NewSms {
            params: format!(r#"{{"timezone":"{zone}"}}"#),
            ..row(line)
        };
        let rows = vec![in_zone(1, "UTC"), in_zone(2, "America/New_York"), row(3)];
        let batch = ImportBatch {
            window: Some("09:00-20:00 daily column Asia/Tokyo".parse().expect("a window")),
            ..TestQueue::batch(import_id, spring, rows)
        };
        queue.store.imports().enqueue(&batch).await.expect("queued");
        let due = queue.db.numbers("SELECT due_at AS value FROM sms ORDER BY id");
        let hours = |count: u64| after(count * 3_600).as_millis();
        assert_eq!(due, [NOW.as_millis(), hours(5), NOW.as_millis()]);
    })
    .await;
}

#[tokio::test]
async fn message_that_expires_before_its_window_fails() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        queue.import_expiring(spring, rows(0..3), after(60)).await;
        queue.import(spring, rows(10..12)).await;
        queue.db.run("UPDATE sms SET in_doubt = TRUE WHERE id = 1");
        let expire = async |by| {
            let expired = queue.store.expire_rows(spring, by, None, NOW).await;
            let expired = expired.expect("expired");
            assert_eq!(expired.reached, None);
            expired.rows
        };
        assert_eq!(expire(after(59)).await, 0);
        assert_eq!(expire(after(60)).await, 3);
        let counts = ["expired", "unknown", "ready"].map(|place| queue.count(place));
        assert_eq!(counts, [2, 1, 2]);
    })
    .await;
}

#[tokio::test]
async fn recipient_cap_delays_the_next_message() {
    on_every_engine(async |queue| {
        let caps = "1/30s";
        let spring = to_one_phone(queue, "spring", 1).await;
        let summer = to_one_phone(queue, "summer", 2).await;
        let first = claim(queue, caps, NOW, spring).await.remove(0);
        // As long as it may still start, its start is unknown.
        assert!(claim(queue, caps, NOW, summer).await.is_empty());
        let waiting =
            queue.db.numbers("SELECT due_at AS value FROM sms WHERE state = 0 ORDER BY id");
        let waits = |at: &i64| at - NOW.as_millis();
        let waits: Vec<i64> = waiting.iter().map(waits).collect();
        assert!((30_000..30_100).contains(&waits[0]), "{waits:?}");
        assert!((60_000..60_100).contains(&waits[1]), "{waits:?}");
        settle(queue, caps, after(20), &first, sent()).await;
        assert!(claim(queue, caps, after(45), summer).await.is_empty());
        let second = claim(queue, caps, after(61), summer).await.remove(0);
        assert_eq!(second.attempts, 0);
        // It may have been accepted, so it counts.
        settle(queue, caps, after(61), &second, unknown()).await;
        assert!(claim(queue, caps, after(80), summer).await.is_empty());
        assert_eq!(claim(queue, caps, after(200), summer).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn recipient_cap_holds_for_two_providers_in_one_commit() {
    on_every_engine(async |queue| {
        let caps = "1/30s";
        let spring = to_one_phone(queue, "spring", 1).await;
        let summer = to_one_phone(queue, "summer", 1).await;
        let autumn = to_one_phone(queue, "autumn", 1).await;
        let other = CampaignChange {
            provider: Some("other".to_owned()).into(),
            ..CampaignChange::default()
        };
        let changed = queue.store.change_campaign(autumn, &other).await;
        changed.expect("changed");
        assert_eq!(claim(queue, caps, NOW, spring).await.len(), 1);
        let of_other = ProviderClaim {
            provider: "other".to_owned(),
            is_default: false,
            routes: Arc::default(),
            ..claim_of(&[(autumn, 10)])
        };
        let both = CommitBatch {
            worker_id: queue.worker().await.id,
            claims: vec![claim_of(&[(summer, 10)]), of_other],
            ..capped(caps, NOW)
        };
        let done = queue.store.commit(&both).await.expect("a commit");
        assert!(done.claims.iter().all(|claimed| claimed.rows.is_empty()));
        let waiting =
            queue.db.numbers("SELECT due_at AS value FROM sms WHERE state = 0 ORDER BY due_at");
        let waits: Vec<i64> = waiting.iter().map(|at| at - NOW.as_millis()).collect();
        assert!((30_000..30_100).contains(&waits[0]), "{waits:?}");
        assert!((60_000..60_100).contains(&waits[1]), "{waits:?}");
    })
    .await;
}

#[tokio::test]
async fn rejected_message_does_not_count_for_the_recipient_cap() {
    on_every_engine(async |queue| {
        let spring = to_one_phone(queue, "spring", 4).await;
        let transitions = [released(), Transition::Failed(failure(Class::Content)), released()];
        for (at, transition) in (0..).zip(transitions) {
            let claimed = claim(queue, "1/day", after(at), spring).await;
            assert_eq!(claimed.len(), 1, "{transition:?}");
            settle(queue, "1/day", after(at), &claimed[0], transition).await;
            queue.db.run(&format!("UPDATE sms SET due_at = {}", NOW.as_millis()));
        }
        assert_eq!(queue.db.number("SELECT count(*) AS value FROM recipient_start"), 0);
    })
    .await;
}

#[tokio::test]
async fn start_without_end_counts_from_its_discovery() {
    on_every_engine(async |queue| {
        let spring = to_one_phone(queue, "spring", 2).await;
        let worker = queue.worker().await;
        let first = CommitBatch {
            worker_id: worker.id,
            claims: vec![claim_of(&[(spring, 1)])],
            ..capped("1/30s", NOW)
        };
        queue.store.commit(&first).await.expect("a commit");
        let reclaimed = queue.store.workers().reclaim(&worker, "it died", after(100)).await;
        assert_eq!(reclaimed.expect("reclaimed"), 1);
        assert!(claim(queue, "1/30s", after(100), spring).await.is_empty());
        assert_eq!(claim(queue, "1/30s", after(131), spring).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn message_that_expires_before_the_cap_allows_it_fails() {
    on_every_engine(async |queue| {
        let spring = to_one_phone(queue, "spring", 1).await;
        queue.import_expiring(spring, vec![to_the_same(5)], after(20)).await;
        assert_eq!(claim(queue, "1/30s", NOW, spring).await.len(), 1);
        assert_eq!((queue.count("sending"), queue.count("expired")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn clock_jump_fills_all_recipient_caps() {
    on_every_engine(async |queue| {
        let spring = to_one_phone(queue, "spring", 2).await;
        let first = claim(queue, "1/30s", NOW, spring).await.remove(0);
        settle(queue, "1/30s", NOW, &first, sent()).await;
        let jumped = CommitBatch { fill_limits: true, ..capped("1/30s", after(3_600)) };
        queue.store.commit(&jumped).await.expect("a commit");
        assert!(claim(queue, "1/30s", after(3_610), spring).await.is_empty());
        assert_eq!(claim(queue, "1/30s", after(3_650), spring).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn old_recipient_starts_are_deleted() {
    on_every_engine(async |queue| {
        let spring = queue.queued(3).await;
        let claimed = claim(queue, "5/day", NOW, spring).await;
        settle(queue, "5/day", NOW, &claimed[0], sent()).await;
        settle(queue, "5/day", after(60), &claimed[1], sent()).await;
        let prune =
            async |before| queue.store.prune_recipient_starts(before).await.expect("deleted");
        assert_eq!(prune(NOW).await, 0);
        assert_eq!(prune(after(30)).await, 1);
        assert_eq!(prune(after(30)).await, 0);
        assert_eq!(queue.db.number("SELECT count(*) AS value FROM recipient_start"), 2);
        assert!(due_at(queue, claimed[2].id) <= NOW.as_millis());
    })
    .await;
}

#[tokio::test]
async fn purge_of_a_person_keeps_only_running_starts() {
    on_every_engine(async |queue| {
        let spring = queue.queued(1).await;
        let claimed = claim(queue, "5/day", NOW, spring).await;
        let phones = std::slice::from_ref(&claimed[0].phone);
        for left in [1, 0] {
            queue.store.purge_person(phones, NOW, Audited::unrecorded()).await.expect("deleted");
            let starts = "SELECT count(*) AS value FROM recipient_start";
            assert_eq!(queue.db.number(starts), left);
            settle(queue, "5/day", NOW, &claimed[0], sent()).await;
        }
        queue.store.purge_person(phones, NOW, Audited::unrecorded()).await.expect("deleted");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_workers_keep_the_recipient_cap() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let rows = (0..60).map(|line| NewSms {
            phone: phone(line % 4),
            dedupe_key: format!("key {line}"),
            ..row(line)
        });
        queue.import(spring, rows.collect()).await;
        let mut workers = Vec::new();
        for _ in 0..8 {
            workers.push(queue.worker().await.id);
        }
        let claiming: Vec<_> = workers
            .into_iter()
            .map(|worker_id| {
                let store = queue.store.clone();
                tokio::spawn(async move {
                    let mut claimed = 0;
                    for _ in 0..5 {
                        let commit = CommitBatch {
                            worker_id,
                            claims: vec![claim_of(&[(spring, 2)])],
                            ..capped("3/hour", NOW)
                        };
                        let done = store.commit(&commit).await.expect("a commit");
                        claimed += done.claims[0].rows.len();
                    }
                    claimed
                })
            })
            .collect();
        let mut claimed = 0;
        for one in claiming {
            claimed += one.await.expect("no panic");
        }
        assert_eq!(claimed, 12);
        let most = "SELECT max(n) AS value FROM (SELECT count(*) AS n FROM recipient_start GROUP BY phone) AS t";
        assert_eq!(queue.db.number(most), 3);
        assert_eq!(queue.count("sending"), 12);
    })
    .await;
}

#[tokio::test]
async fn phone_of_a_delayed_plain_row_is_normalised() {
    on_every_engine(async |queue| {
        queue
            .db
            .run("INSERT INTO sms (phone, content, due_at) VALUES ('+86 138 0000 0000', 'x', 0)");
        let worker = queue.worker().await;
        let waiting = CommitBatch {
            claims: vec![claim_of(&[(1, 1)])],
            admission: window(1, "09:10-20:00 daily UTC"),
            ..commit_batch(worker.id, NOW)
        };
        queue.store.commit(&waiting).await.expect("a commit");
        let phones = queue.db.words("SELECT phone AS value FROM sms");
        assert_eq!(phones, [Some("+8613800000000".to_owned())]);
        assert_eq!(queue.count("ready"), 1);
    })
    .await;
}

#[tokio::test]
async fn expiry_reads_one_chunk_of_the_queue_at_a_time() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        queue.import(spring, rows(0..1_200)).await;
        queue.import_expiring(spring, rows(2_000..2_500), after(60)).await;
        let mut after_place = None;
        let mut moved = Vec::new();
        loop {
            let expired = queue.store.expire_rows(spring, after(60), after_place, NOW).await;
            let expired = expired.expect("expired");
            moved.push(expired.rows);
            after_place = expired.reached;
            if after_place.is_none() {
                break;
            }
        }
        assert_eq!(moved, [0, 500]);
        assert_eq!((queue.count("expired"), queue.count("ready")), (500, 1_200));
    })
    .await;
}
