//! When and how often somebody may be texted: rows that wait, recipients that got enough, and those who want no
//! more.

use std::sync::Arc;

use smsq::phone::Phone;
use smsq::queue::{Admission, ProviderClaim, Settlement, Transition};
use smsq::sms::{Class, NewSms, Sms, Timestamp};
use smsq::store::{
    Batch, CampaignChange, CampaignStatus, CommitBatch, ProviderClaimed, WindowChange,
};
use smsq::window::SendWindow;

use super::desk::{
    Desk, NOW, PROVIDER, after, at_every_desk, claim_of, failure, phone, released, round, row,
    rows, sent, unknown,
};

/// One more message to the phone of line 1.
fn to_the_same(line: u64) -> NewSms {
    NewSms {
        phone: phone(1),
        dedupe_key: format!("key {line}"),
        ..row(line)
    }
}

/// A campaign with so many messages to one phone.
async fn to_one_phone(desk: &Desk, name: &str, count: u64) -> i64 {
    let campaign_id = desk.campaign(name).await;
    desk.import(campaign_id, (1..=count).map(to_the_same).collect())
        .await;
    campaign_id
}

fn capped(caps: &str, now: Timestamp) -> CommitBatch {
    CommitBatch {
        caps: caps.parse().expect("rates"),
        ..round(1, now)
    }
}

async fn claim(desk: &Desk, caps: &str, now: Timestamp, campaign_id: i64) -> Vec<Sms> {
    let round = CommitBatch {
        worker_id: desk.worker().await.id,
        claims: vec![claim_of(&[(campaign_id, 10)])],
        ..capped(caps, now)
    };
    let mut done = desk.store.commit(&round).await.expect("a round");
    let claimed: ProviderClaimed = done.claims.remove(0);
    claimed.rows.into_iter().map(|row| row.sms).collect()
}

async fn settle(desk: &Desk, caps: &str, now: Timestamp, sms: &Sms, transition: Transition) {
    let round = CommitBatch {
        settlements: vec![Settlement {
            id: sms.id,
            claim: sms.claim,
            provider: PROVIDER.to_owned(),
            transition,
        }],
        ..capped(caps, now)
    };
    desk.store.commit(&round).await.expect("a round");
}

fn due_at(desk: &Desk, id: i64) -> i64 {
    let sql = format!("SELECT due_at AS value FROM sms WHERE id = {id}");
    desk.db.number(&sql)
}

fn opted_out() -> Transition {
    Transition::Failed(failure(Class::OptedOut))
}

#[tokio::test]
async fn who_opted_out_at_the_provider_gets_nothing_more_from_any_campaign() {
    at_every_desk(async |desk| {
        let spring = to_one_phone(desk, "spring", 2).await;
        let summer = to_one_phone(desk, "summer", 1).await;
        let worker = desk.worker().await;
        let first = desk.claim(worker.id, spring, 1).await.remove(0);
        desk.settle(&first, opted_out()).await;
        let listed = desk.store.suppressed(None, 10).await.expect("a page");
        let listed: Vec<_> = listed
            .into_iter()
            .map(|one| (one.phone, one.reason))
            .collect();
        let why = "`cellar` said on 2025-11-21 that they want no more messages";
        assert_eq!(listed, [(phone(1), Some(why.to_owned()))]);
        for campaign in [spring, summer] {
            assert!(desk.claim(worker.id, campaign, 2).await.is_empty());
        }
        assert_eq!((desk.count("opted_out"), desk.count("suppressed")), (1, 2));
        let again = desk.import(summer, vec![to_the_same(9)]).await;
        assert_eq!(again.suppressed, [9]);
    })
    .await;
}

#[tokio::test]
async fn an_opt_out_counts_of_a_message_in_doubt_and_not_of_a_claim_that_has_passed() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        let both = desk.claim(worker.id, spring, 2).await;
        let doubtful = Transition::Unknown(failure(Class::OptedOut));
        desk.settle(&both[0], doubtful).await;
        assert_eq!(desk.place(both[0].id), "unknown");
        desk.settle(&both[1], released()).await;
        desk.settle(&both[1], opted_out()).await;
        assert_eq!(desk.place(both[1].id), "ready");
        let listed = desk.store.suppressed(None, 10).await.expect("a page");
        let phones: Vec<_> = listed.into_iter().map(|one| one.phone).collect();
        assert_eq!(phones, [both[0].phone.clone()]);
    })
    .await;
}

#[tokio::test]
async fn a_stop_during_the_campaign_counts_for_the_rest_of_it() {
    at_every_desk(async |desk| {
        let spring = to_one_phone(desk, "spring", 3).await;
        let worker = desk.worker().await;
        let first = desk.claim(worker.id, spring, 1).await.remove(0);
        let listed = vec![(phone(1), None)];
        desk.store.suppress(listed, NOW).await.expect("added");
        desk.settle(&first, sent()).await;
        assert!(desk.claim(worker.id, spring, 5).await.is_empty());
        assert_eq!((desk.count("sent"), desk.count("suppressed")), (1, 2));
    })
    .await;
}

#[tokio::test]
async fn what_has_to_wait_goes_back_without_an_attempt_and_holds_up_nobody() {
    at_every_desk(async |desk| {
        let spring = desk.queued(40).await;
        let worker = desk.worker().await;
        // All but the last one wait; that one is found behind them in the same round.
        let last = phone(39);
        let round = CommitBatch {
            claims: vec![claim_of(&[(spring, 1)])],
            admit: Arc::new(move |sms| {
                let phone = Phone::parse(&sms.phone, None).expect("a phone");
                if sms.phone == last {
                    Admission::Send { phone, segments: 1 }
                } else {
                    let until = after(600);
                    Admission::Wait { phone, until }
                }
            }),
            ..round(worker.id, NOW)
        };
        let done = desk.store.commit(&round).await.expect("a round");
        let claimed = &done.claims[0];
        let phones: Vec<_> = claimed
            .rows
            .iter()
            .map(|row| row.sms.phone.clone())
            .collect();
        assert_eq!((phones, claimed.refused), (vec![phone(39)], 0));
        assert_eq!((desk.count("ready"), desk.count("sending")), (39, 1));
        let sql =
            "SELECT count(*) AS value FROM sms WHERE state = 0 AND attempts = 0 AND due_at = ";
        let waiting = desk.db.number(&format!("{sql}{}", after(600).as_millis()));
        assert_eq!(waiting, 39);
        assert!(desk.claim(worker.id, spring, 5).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_campaign_keeps_its_window_and_one_that_cannot_be_read_pauses_it() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let window: SendWindow = "09:00-20:00 mon-fri recipient Asia/Shanghai"
            .parse()
            .expect("one");
        let change = |window: WindowChange| CampaignChange {
            window,
            ..CampaignChange::default()
        };
        let stands = async || {
            let campaign = desk.store.campaign("spring").await.expect("read");
            let campaign = campaign.expect("a campaign");
            (campaign.window, campaign.state)
        };
        assert_eq!(stands().await, (None, CampaignStatus::Active));
        let changed = desk
            .store
            .change_campaign(spring, &change(WindowChange::Set(window.clone())))
            .await;
        changed.expect("changed");
        assert_eq!(stands().await, (Some(window), CampaignStatus::Active));
        desk.db
            .run("UPDATE campaign SET send_window = 'at night' WHERE name = 'spring'");
        assert_eq!(stands().await, (None, CampaignStatus::Paused));
        desk.store
            .change_campaign(spring, &change(WindowChange::Lift))
            .await
            .expect("changed");
        assert_eq!(stands().await, (None, CampaignStatus::Active));
    })
    .await;
}

#[tokio::test]
async fn an_import_knows_when_each_recipient_may_be_texted() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let import_id = desk.begin(spring).await;
        // It is nine in the morning, UTC.
        let in_zone = |line, zone: &str| NewSms {
            params: format!(r#"{{"timezone":"{zone}"}}"#),
            ..row(line)
        };
        let rows = vec![in_zone(1, "UTC"), in_zone(2, "America/New_York"), row(3)];
        let batch = Batch {
            window: Some(
                "09:00-20:00 daily column Asia/Tokyo"
                    .parse()
                    .expect("a window"),
            ),
            ..Desk::batch(import_id, spring, rows)
        };
        desk.store.enqueue(batch).await.expect("queued");
        let due = desk
            .db
            .numbers("SELECT due_at AS value FROM sms ORDER BY id");
        let hours = |count: u64| after(count * 3_600).as_millis();
        assert_eq!(due, [NOW.as_millis(), hours(5), NOW.as_millis()]);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_live_to_see_its_window_is_told_to_have_expired() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let import_id = desk.begin(spring).await;
        let batch = Batch {
            expires_at: Some(after(60)),
            ..Desk::batch(import_id, spring, rows(0..3))
        };
        desk.store.enqueue(batch).await.expect("queued");
        desk.import(spring, rows(10..12)).await;
        desk.db.run("UPDATE sms SET in_doubt = TRUE WHERE id = 1");
        let expire = async |by| {
            let expired = desk.store.expire_rows(spring, by, None, NOW).await;
            let expired = expired.expect("expired");
            assert_eq!(expired.reached, None);
            expired.rows
        };
        assert_eq!(expire(after(59)).await, 0);
        assert_eq!(expire(after(60)).await, 3);
        let counts = ["expired", "unknown", "ready"].map(|place| desk.count(place));
        assert_eq!(counts, [2, 1, 2]);
    })
    .await;
}

#[tokio::test]
async fn a_recipient_gets_one_at_a_time_and_the_next_when_the_window_allows() {
    at_every_desk(async |desk| {
        let caps = "1/30s";
        let spring = to_one_phone(desk, "spring", 1).await;
        let summer = to_one_phone(desk, "summer", 2).await;
        let first = claim(desk, caps, NOW, spring).await.remove(0);
        // While it may still start, nobody knows when.
        assert!(claim(desk, caps, NOW, summer).await.is_empty());
        let waiting = desk
            .db
            .numbers("SELECT due_at AS value FROM sms WHERE state = 0 ORDER BY id");
        let waits = |at: &i64| at - NOW.as_millis();
        let waits: Vec<i64> = waiting.iter().map(waits).collect();
        assert!((30_000..30_100).contains(&waits[0]), "{waits:?}");
        assert!((60_000..60_100).contains(&waits[1]), "{waits:?}");
        settle(desk, caps, after(20), &first, sent()).await;
        assert!(claim(desk, caps, after(45), summer).await.is_empty());
        let second = claim(desk, caps, after(61), summer).await.remove(0);
        assert_eq!(second.attempts, 0);
        // Perhaps it was accepted: that counts as well.
        settle(desk, caps, after(61), &second, unknown()).await;
        assert!(claim(desk, caps, after(80), summer).await.is_empty());
        assert_eq!(claim(desk, caps, after(200), summer).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn claims_of_two_providers_in_one_round_wait_for_each_other() {
    at_every_desk(async |desk| {
        let caps = "1/30s";
        let spring = to_one_phone(desk, "spring", 1).await;
        let summer = to_one_phone(desk, "summer", 1).await;
        let autumn = to_one_phone(desk, "autumn", 1).await;
        let other = CampaignChange {
            provider: Some("other".to_owned()),
            ..CampaignChange::default()
        };
        let changed = desk.store.change_campaign(autumn, &other).await;
        changed.expect("changed");
        assert_eq!(claim(desk, caps, NOW, spring).await.len(), 1);
        let of_other = ProviderClaim {
            provider: "other".to_owned(),
            is_default: false,
            ..claim_of(&[(autumn, 10)])
        };
        let both = CommitBatch {
            worker_id: desk.worker().await.id,
            claims: vec![claim_of(&[(summer, 10)]), of_other],
            ..capped(caps, NOW)
        };
        let done = desk.store.commit(&both).await.expect("a round");
        assert!(done.claims.iter().all(|claimed| claimed.rows.is_empty()));
        let waiting = desk
            .db
            .numbers("SELECT due_at AS value FROM sms WHERE state = 0 ORDER BY due_at");
        let waits: Vec<i64> = waiting.iter().map(|at| at - NOW.as_millis()).collect();
        assert!((30_000..30_100).contains(&waits[0]), "{waits:?}");
        assert!((60_000..60_100).contains(&waits[1]), "{waits:?}");
    })
    .await;
}

#[tokio::test]
async fn what_was_certainly_not_accepted_gives_its_start_back() {
    at_every_desk(async |desk| {
        let spring = to_one_phone(desk, "spring", 4).await;
        let fates = [
            released(),
            Transition::Failed(failure(Class::Content)),
            released(),
        ];
        for (at, transition) in (0..).zip(fates) {
            let claimed = claim(desk, "1/day", after(at), spring).await;
            assert_eq!(claimed.len(), 1, "{transition:?}");
            settle(desk, "1/day", after(at), &claimed[0], transition).await;
            desk.db
                .run(&format!("UPDATE sms SET due_at = {}", NOW.as_millis()));
        }
        assert_eq!(
            desk.db
                .number("SELECT count(*) AS value FROM recipient_start"),
            0
        );
    })
    .await;
}

#[tokio::test]
async fn a_start_that_nobody_ended_counts_from_when_that_is_found_out() {
    at_every_desk(async |desk| {
        let spring = to_one_phone(desk, "spring", 2).await;
        let worker = desk.worker().await;
        let first = CommitBatch {
            worker_id: worker.id,
            claims: vec![claim_of(&[(spring, 1)])],
            ..capped("1/30s", NOW)
        };
        desk.store.commit(&first).await.expect("a round");
        let parked = desk.store.park_dead(&worker, "it died", after(100)).await;
        assert_eq!(parked.expect("parked"), 1);
        assert!(claim(desk, "1/30s", after(100), spring).await.is_empty());
        assert_eq!(claim(desk, "1/30s", after(131), spring).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn what_expires_before_its_turn_is_not_queued_any_longer() {
    at_every_desk(async |desk| {
        let spring = to_one_phone(desk, "spring", 1).await;
        let import_id = desk.begin(spring).await;
        let batch = Batch {
            expires_at: Some(after(20)),
            ..Desk::batch(import_id, spring, vec![to_the_same(5)])
        };
        desk.store.enqueue(batch).await.expect("queued");
        assert_eq!(claim(desk, "1/30s", NOW, spring).await.len(), 1);
        assert_eq!((desk.count("sending"), desk.count("expired")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_clock_that_jumped_fills_the_windows_of_all_recipients() {
    at_every_desk(async |desk| {
        let spring = to_one_phone(desk, "spring", 2).await;
        let first = claim(desk, "1/30s", NOW, spring).await.remove(0);
        settle(desk, "1/30s", NOW, &first, sent()).await;
        let jumped = CommitBatch {
            fill_limits: true,
            ..capped("1/30s", after(3_600))
        };
        desk.store.commit(&jumped).await.expect("a round");
        assert!(claim(desk, "1/30s", after(3_610), spring).await.is_empty());
        assert_eq!(claim(desk, "1/30s", after(3_650), spring).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn starts_that_no_window_holds_any_more_are_forgotten() {
    at_every_desk(async |desk| {
        let spring = desk.queued(3).await;
        let claimed = claim(desk, "5/day", NOW, spring).await;
        settle(desk, "5/day", NOW, &claimed[0], sent()).await;
        settle(desk, "5/day", after(60), &claimed[1], sent()).await;
        let forget = async |before| desk.store.forget_starts(before).await.expect("forgotten");
        assert_eq!(forget(NOW).await, 0);
        assert_eq!(forget(after(30)).await, 1);
        assert_eq!(forget(after(30)).await, 0);
        assert_eq!(
            desk.db
                .number("SELECT count(*) AS value FROM recipient_start"),
            2
        );
        assert!(due_at(desk, claimed[2].id) <= NOW.as_millis());
    })
    .await;
}

#[tokio::test]
async fn who_is_forgotten_leaves_no_start_but_one_that_still_runs() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let claimed = claim(desk, "5/day", NOW, spring).await;
        let phones = std::slice::from_ref(&claimed[0].phone);
        for left in [1, 0] {
            desk.store.forget(phones, NOW).await.expect("forgotten");
            let starts = "SELECT count(*) AS value FROM recipient_start";
            assert_eq!(desk.db.number(starts), left);
            settle(desk, "5/day", NOW, &claimed[0], sent()).await;
        }
        desk.store.forget(phones, NOW).await.expect("forgotten");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_workers_claim_no_more_for_a_recipient_than_the_cap() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let rows = (0..60).map(|line| NewSms {
            phone: phone(line % 4),
            dedupe_key: format!("key {line}"),
            ..row(line)
        });
        desk.import(spring, rows.collect()).await;
        let mut workers = Vec::new();
        for _ in 0..8 {
            workers.push(desk.worker().await.id);
        }
        let claiming: Vec<_> = workers
            .into_iter()
            .map(|worker_id| {
                let store = desk.store.clone();
                tokio::spawn(async move {
                    let mut claimed = 0;
                    for _ in 0..5 {
                        let round = CommitBatch {
                            worker_id,
                            claims: vec![claim_of(&[(spring, 2)])],
                            ..capped("3/hour", NOW)
                        };
                        let done = store.commit(&round).await.expect("a round");
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
        assert_eq!(desk.db.number(most), 3);
        assert_eq!(desk.count("sending"), 12);
    })
    .await;
}

#[tokio::test]
async fn phone_of_a_waiting_plain_row_is_normalised() {
    at_every_desk(async |desk| {
        desk.db
            .run("INSERT INTO sms (phone, content, due_at) VALUES ('+86 138 0000 0000', 'x', 0)");
        let worker = desk.worker().await;
        let waiting = CommitBatch {
            claims: vec![claim_of(&[(1, 1)])],
            admit: Arc::new(|sms| Admission::Wait {
                phone: Phone::parse(&sms.phone, None).expect("a phone"),
                until: after(60),
            }),
            ..round(worker.id, NOW)
        };
        desk.store.commit(&waiting).await.expect("a round");
        let phones = desk.db.words("SELECT phone AS value FROM sms");
        assert_eq!(phones, [Some("+8613800000000".to_owned())]);
        assert_eq!(desk.count("ready"), 1);
    })
    .await;
}

#[tokio::test]
async fn expiry_looks_at_one_chunk_of_the_queue_at_a_time() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        desk.import(spring, rows(0..1_200)).await;
        let import_id = desk.begin(spring).await;
        let batch = Batch {
            expires_at: Some(after(60)),
            ..Desk::batch(import_id, spring, rows(2_000..2_500))
        };
        desk.store.enqueue(batch).await.expect("queued");
        let mut after_place = None;
        let mut moved = Vec::new();
        loop {
            let expired = desk
                .store
                .expire_rows(spring, after(60), after_place, NOW)
                .await;
            let expired = expired.expect("expired");
            moved.push(expired.rows);
            after_place = expired.reached;
            if after_place.is_none() {
                break;
            }
        }
        assert_eq!(moved, [0, 500]);
        assert_eq!((desk.count("expired"), desk.count("ready")), (500, 1_200));
    })
    .await;
}
