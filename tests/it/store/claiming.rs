//! Claiming: whose turn it is, when, how many, and the marks that a claim leaves.

use std::collections::BTreeSet;
use std::sync::Arc;

use smsq::limit::{Cost, Permit, Reservation};
use smsq::queue::ProviderClaim;
use smsq::sms::{Class, Timestamp};
use smsq::store::{
    Access, Batch, CampaignChange, CampaignStatus, CampaignStop, CommitBatch, ProviderPause,
    Shortfall, Store,
};

use super::desk::{
    Desk, NOW, after, again, at_every_desk, claim_of, released, round, row, rows, sent, unknown,
};

/// Imports one message that is due at a moment of its own.
async fn due_at(desk: &Desk, campaign_id: i64, line: u64, due_at: Timestamp) {
    let import_id = desk.begin(campaign_id).await;
    let batch = Batch {
        due_at,
        ..Desk::batch(import_id, campaign_id, vec![row(line)])
    };
    desk.store.enqueue(batch).await.expect("queued");
}

#[tokio::test]
async fn rows_are_claimed_in_the_order_in_which_they_are_due() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        for (line, seconds) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            due_at(desk, spring, line, after(seconds)).await;
        }
        let worker = desk.worker().await;
        let mut order = Vec::new();
        for want in [1, 3] {
            let claim = claim_of(&[(spring, want)]);
            let claimed = desk.claim_route(worker.id, after(60), claim).await;
            order.extend(claimed.rows.iter().map(|claimed| claimed.sms.id));
        }
        assert_eq!(order, [2, 4, 3, 1]);
    })
    .await;
}

#[tokio::test]
async fn no_more_rows_are_claimed_than_are_wanted() {
    at_every_desk(async |desk| {
        let spring = desk.queued(10).await;
        let autumn = desk.campaign("autumn").await;
        desk.import(autumn, rows(0..10)).await;
        let worker = desk.worker().await;
        let claim = ProviderClaim {
            max_messages: 5,
            ..claim_of(&[(spring, 3), (autumn, 4)])
        };
        let claimed = desk.claim_route(worker.id, NOW, claim).await;
        let of = |id| {
            claimed
                .rows
                .iter()
                .filter(|row| row.sms.campaign_id == id)
                .count()
        };
        assert_eq!((of(spring), of(autumn)), (3, 2));
        assert!(claimed.shortfalls.is_empty());
        assert!(desk.claim(worker.id, spring, 0).await.is_empty());
        assert_eq!(desk.count("sending"), 5);
    })
    .await;
}

#[tokio::test]
async fn nothing_is_claimed_before_it_is_due() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        due_at(desk, spring, 1, after(60)).await;
        let worker = desk.worker().await;
        let claim = || claim_of(&[(spring, 5)]);
        let early = desk.claim_route(worker.id, after(59), claim()).await;
        assert!(early.rows.is_empty());
        assert_eq!(
            early.shortfalls,
            [(spring, Shortfall::Until(Some(after(60))))]
        );
        let due = desk.claim_route(worker.id, after(60), claim()).await;
        assert_eq!(due.rows.len(), 1);
        assert_eq!(due.shortfalls, [(spring, Shortfall::Until(None))]);
    })
    .await;
}

#[tokio::test]
async fn every_claim_has_a_higher_number_and_the_same_reference() {
    at_every_desk(async |desk| {
        let spring = desk.queued(1).await;
        let worker = desk.worker().await;
        let first = desk.claim_one(worker.id, spring).await;
        assert_eq!((first.claim, first.attempts), (1, 0));
        assert!((1..=36).contains(&first.reference.len()));
        desk.settle(&first, again()).await;
        let second = desk.claim_one(worker.id, spring).await;
        assert_eq!((second.claim, second.attempts), (2, 1));
        desk.settle(&second, released()).await;
        let third = desk.claim_one(worker.id, spring).await;
        assert_eq!((third.claim, third.attempts), (3, 1));
        desk.settle(&third, sent()).await;
        let numbers = ["claim", "attempts"].map(|column| desk.number(column, third.id));
        assert_eq!(numbers, [3, 2]);
        for reference in [second.reference, third.reference.clone()] {
            assert_eq!(reference, first.reference);
        }
        assert_eq!(desk.reference(third.id), Some(first.reference));
    })
    .await;
}

#[tokio::test]
async fn references_are_not_repeated() {
    at_every_desk(async |desk| {
        let spring = desk.queued(200).await;
        let worker = desk.worker().await;
        let claimed = desk.claim(worker.id, spring, 200).await;
        let references: BTreeSet<String> = claimed.into_iter().map(|sms| sms.reference).collect();
        assert_eq!(references.len(), 200);
    })
    .await;
}

#[tokio::test]
async fn a_reference_that_another_program_chose_is_kept() {
    at_every_desk(async |desk| {
        desk.db.run(
            "INSERT INTO sms (phone, content, reference, due_at)
             VALUES ('+8613800138000', 'hello', 'order-17', 0)",
        );
        let worker = desk.worker().await;
        assert_eq!(desk.claim_one(worker.id, 1).await.reference, "order-17");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_without_an_attempt() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let import_id = desk.begin(spring).await;
        let batch = Batch {
            expires_at: Some(after(60)),
            ..Desk::batch(import_id, spring, rows(0..3))
        };
        desk.store.enqueue(batch).await.expect("queued");
        desk.db.run(&format!(
            "INSERT INTO sms (campaign_id, phone, content, due_at) VALUES ({spring}, '+4479', 'hello', 0)"
        ));
        due_at(desk, spring, 9, NOW).await;
        let worker = desk.worker().await;
        let claim = claim_of(&[(spring, 3)]);
        let claimed = desk.claim_route(worker.id, after(60), claim).await;
        assert_eq!((claimed.rows.len(), claimed.refused), (1, 4));
        assert_eq!((desk.count("expired"), desk.count("recipient")), (3, 1));
        for id in 1..=4 {
            assert_eq!(desk.number("attempts", id), 0);
        }
        assert_eq!(desk.keys(), 4, "whoever was refused stays in the campaign");
    })
    .await;
}

#[tokio::test]
async fn what_is_in_doubt_does_not_expire() {
    at_every_desk(async |desk| {
        let spring = desk.campaign("spring").await;
        let import_id = desk.begin(spring).await;
        let batch = Batch {
            expires_at: Some(after(60)),
            ..Desk::batch(import_id, spring, rows(0..1))
        };
        desk.store.enqueue(batch).await.expect("queued");
        let worker = desk.worker().await;
        let sms = desk.claim_one(worker.id, spring).await;
        desk.settle(&sms, unknown()).await;
        let requeued = desk.store.requeue_unknown(spring, 0, NOW).await;
        assert_eq!(requeued.expect("requeued"), 1);
        let claim = claim_of(&[(spring, 3)]);
        let claimed = desk.claim_route(worker.id, after(60), claim).await;
        assert_eq!((claimed.rows.len(), claimed.refused), (0, 1));
        assert_eq!(desk.place(sms.id), "unknown");
        assert_eq!(desk.number("attempts", sms.id), 1);
    })
    .await;
}

#[tokio::test]
async fn a_campaign_that_is_not_active_gives_nothing() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        for state in [
            CampaignStatus::Paused,
            CampaignStatus::Stopped,
            CampaignStatus::Cancelled,
        ] {
            let set = desk.store.set_campaign_state(spring, state, Some("why"));
            set.await.expect("a state");
            let claimed = desk
                .claim_route(worker.id, NOW, claim_of(&[(spring, 2)]))
                .await;
            assert!(claimed.rows.is_empty());
            let halted = Shortfall::Halted(state, Some("why".to_owned()));
            assert_eq!(claimed.shortfalls, [(spring, halted)]);
        }
    })
    .await;
}

#[tokio::test]
async fn a_halt_holds_in_its_own_round_and_overrules_no_operator() {
    at_every_desk(async |desk| {
        let spring = desk.queued(2).await;
        let worker = desk.worker().await;
        let halting = |state| {
            Arc::new(CommitBatch {
                campaign_stops: vec![CampaignStop {
                    campaign_id: spring,
                    state,
                    reason: "the account is suspended".to_owned(),
                }],
                claims: vec![claim_of(&[(spring, 2)])],
                ..round(worker.id, NOW)
            })
        };
        let done = desk.store.commit(&halting(CampaignStatus::Stopped)).await;
        assert!(done.expect("a round").claims[0].rows.is_empty());
        let later = desk.store.commit(&halting(CampaignStatus::Paused)).await;
        later.expect("a round");
        let campaign = desk
            .store
            .campaign("spring")
            .await
            .expect("read")
            .expect("there");
        assert_eq!(campaign.state, CampaignStatus::Stopped);
        assert_eq!(
            campaign.state_reason.as_deref(),
            Some("the account is suspended")
        );
    })
    .await;
}

#[tokio::test]
async fn a_limit_gives_each_message_a_moment_of_its_own() {
    at_every_desk(async |desk| {
        let spring = desk.queued(100).await;
        let worker = desk.worker().await;
        let limits: smsq::rate::Rates = "100/s".parse().expect("a rate");
        let claim = ProviderClaim {
            limits: limits.0,
            ..claim_of(&[(spring, 100)])
        };
        let claimed = desk.claim_route(worker.id, NOW, claim.clone()).await;
        let moments: Vec<i64> = claimed
            .rows
            .iter()
            .map(|row| match row.permit {
                Permit {
                    start_at_us: Some(moment),
                } => moment,
                Permit::AT_ONCE => 0,
            })
            .collect();
        assert!((4..=5).contains(&moments.len()), "{moments:?}");
        for pair in moments.windows(2) {
            assert!(pair[1] - pair[0] >= 10_000, "{moments:?}");
        }
        assert!(claimed.next_us.expect("a next one") >= claim.until_us);
        let nothing = desk.claim_route(worker.id, NOW, claim.clone()).await;
        assert!(nothing.rows.is_empty(), "another claim of the same moments");
        let held = vec![Reservation {
            campaign_id: spring,
            cost: Cost::of_message(1),
            unused_us: None,
        }];
        let later = ProviderClaim {
            from_us: claim.from_us + 100_000,
            until_us: claim.until_us + 100_000,
            held,
            max_messages: 1,
            ..claim
        };
        let given = desk.claim_route(worker.id, NOW, later.clone()).await;
        assert_eq!(
            given.held,
            [Some(Permit::at(later.from_us))],
            "the held one is first"
        );
        assert_eq!(given.rows.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_campaigns_own_limit_holds_beside_the_providers() {
    at_every_desk(async |desk| {
        let spring = desk.queued(100).await;
        let change = CampaignChange {
            rate: Some("1/s".parse().expect("a rate")),
            ..CampaignChange::default()
        };
        desk.store
            .change_campaign(spring, &change)
            .await
            .expect("changed");
        let worker = desk.worker().await;
        assert_eq!(desk.claim(worker.id, spring, 100).await.len(), 1);
        assert_eq!(desk.claim(worker.id, spring, 100).await.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_stopped_provider_gives_no_moments() {
    at_every_desk(async |desk| {
        let spring = desk.queued(3).await;
        let stop = CommitBatch {
            pauses: vec![ProviderPause {
                provider: super::desk::PROVIDER.to_owned(),
                until: after(30),
                reason: "429".to_owned(),
            }],
            ..round(1, NOW)
        };
        desk.store.commit(&stop).await.expect("a round");
        let worker = desk.worker().await;
        let claimed = desk
            .claim_route(worker.id, NOW, claim_of(&[(spring, 3)]))
            .await;
        assert!(claimed.rows.is_empty());
        assert_eq!(claimed.next_us, Some(after(30).as_millis() * 1_000));
        let from_us = after(30).as_millis() * 1_000;
        let later = ProviderClaim {
            from_us,
            until_us: from_us + 50_000,
            ..claim_of(&[(spring, 3)])
        };
        let claimed = desk.claim_route(worker.id, after(30), later).await;
        assert_eq!(claimed.rows.len(), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_claim_at_once_never_get_the_same_row() {
    at_every_desk(async |desk| {
        let spring = desk.queued(300).await;
        let mut claiming = Vec::new();
        for _ in 0..4 {
            let worker = desk.worker().await;
            let url = desk.db.url.clone();
            claiming.push(tokio::spawn(async move {
                let store = Store::open(&url, Access::Existing).await.expect("a store");
                let mut ids = Vec::new();
                loop {
                    let round = CommitBatch {
                        claims: vec![claim_of(&[(spring, 7)])],
                        ..round(worker.id, NOW)
                    };
                    let done = store.commit(&round).await.expect("a round");
                    if done.claims[0].rows.is_empty() {
                        return ids;
                    }
                    ids.extend(done.claims[0].rows.iter().map(|row| row.sms.id));
                }
            }));
        }
        let mut all = Vec::new();
        for claimed in claiming {
            all.extend(claimed.await.expect("no panic"));
        }
        let distinct: BTreeSet<i64> = all.iter().copied().collect();
        assert_eq!((all.len(), distinct.len()), (300, 300));
        assert_eq!(desk.count("sending"), 300);
        assert_eq!(desk.count(Class::Unknown.as_str()), 0);
    })
    .await;
}
