//! Lanes: the parts of a campaign's queue, each of which one sender sends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use smsq_lifecycle::admission::{AdmissionRules, ProviderRules};
use smsq_lifecycle::resend::ResendRule;
use smsq_lifecycle::{LaneClaim, ProviderClaim, Transition};
use smsq_message::rate::Rates;
use smsq_message::route::sender_pool::{PoolSender, SenderPool, SendersOff};
use smsq_message::route::{
    DeliveredShares, Division, LaneNumbers, ProviderOutage, Route, RouteConfig, RouteMember,
};
use smsq_message::sms::{Class, LaneId};
use smsq_store::{CampaignFilter, CommitBatch, ImportApproval, ImportBatch, ProviderClaimed};

use super::test_queue::{
    NOW, PROVIDER, TestQueue, after, claim_of, commit_batch, failure, on_every_engine, rows,
};

/// `A` sends to China, `B` to the rest of its neighbours: the list has only Chinese phones.
fn pool(senders: &[(&str, &str, &str)]) -> Arc<SenderPool> {
    let senders = senders.iter().map(|(from, rate, prefix)| PoolSender {
        from: (*from).into(),
        rate: rate.parse().unwrap_or_else(|_| Rates::default()),
        weight: 1,
        prefixes: prefix
            .split(',')
            .filter(|prefix| !prefix.is_empty())
            .map(str::to_owned)
            .collect(),
    });
    Arc::new(SenderPool::new(PROVIDER, senders.collect()).expect("a pool"))
}

/// The lanes of the pool's senders.
async fn numbers(
    queue: &TestQueue,
    campaign_id: i64,
    pool: &Arc<SenderPool>,
) -> BTreeMap<String, i32> {
    let route = Route::of_pool(Arc::clone(pool));
    let opened = queue.store.open_lanes(campaign_id, &route).await;
    let numbers = opened.expect("lanes").into_iter();
    numbers.map(|((_, sender), number)| (sender, number)).collect()
}

fn divided(pool: &Arc<SenderPool>, numbers: &BTreeMap<String, i32>, off: &[&str]) -> Division {
    let numbers: LaneNumbers = numbers
        .iter()
        .map(|(sender, number)| ((PROVIDER.to_owned(), sender.clone()), *number))
        .collect();
    let off = off.iter().map(|sender| (PROVIDER.to_owned(), (*sender).to_owned()));
    let off = SendersOff(off.collect::<BTreeSet<_>>());
    let route = Arc::new(Route::of_pool(Arc::clone(pool)));
    Division::new(route, &numbers, &off).expect("all have lanes")
}

/// Claims from these lanes; those that are divided by `division`.
pub(super) async fn claim(
    queue: &TestQueue,
    worker_id: i64,
    lanes: Vec<LaneClaim>,
    division: Option<Division>,
) -> ProviderClaimed {
    let campaign = lanes.first().map_or(0, |lane| lane.id.campaign_id);
    let divisions: HashMap<i64, Arc<Division>> =
        division.map(|division| (campaign, Arc::new(division))).into_iter().collect();
    let commit = CommitBatch {
        claims: vec![ProviderClaim {
            max_messages: 100,
            max_requests: 100,
            lanes,
            ..claim_of(&[])
        }],
        admission: Arc::new(AdmissionRules { divisions, ..AdmissionRules::default() }),
        ..commit_batch(worker_id, NOW)
    };
    let done = queue.store.commit(&commit).await.expect("a commit");
    done.claims.into_iter().next().expect("one claim")
}

/// Imports the first `count` rows into the lanes of this division.
pub(super) async fn import(queue: &TestQueue, campaign_id: i64, division: Division, count: u64) {
    let import_id = queue.begin(campaign_id).await;
    let batch = ImportBatch {
        division: Some(division),
        approval: ImportApproval::OneByOne(String::new()),
        ..TestQueue::batch(import_id, campaign_id, rows(0..count))
    };
    let imports = queue.store.imports();
    imports.enqueue(&batch).await.expect("queued");
    imports.finish(import_id, NOW).await.expect("finished");
}

fn lane(pool: &SenderPool, campaign_id: i64, number: i32, from: &str) -> LaneClaim {
    LaneClaim {
        id: LaneId { campaign_id, lane: number },
        sender: pool.sender(from).cloned(),
        ..LaneClaim::undivided(campaign_id, 50)
    }
}

pub(super) fn undivided(campaign_id: i64) -> LaneClaim {
    LaneClaim { is_divided: true, ..LaneClaim::undivided(campaign_id, 1_000) }
}

#[tokio::test]
async fn imported_messages_are_in_the_lanes_of_their_senders() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let pool = pool(&[("A", "", ""), ("B", "", "")]);
        let known = numbers(queue, spring, &pool).await;
        assert_eq!(known, numbers(queue, spring, &pool).await);
        import(queue, spring, divided(&pool, &known, &[]), 40).await;
        let queued = queue.queued_campaign(spring).await.expect("queued");
        assert!(queued.is_unfinished() && queued.ready_at.is_none());
        assert!(queued.lanes.iter().all(|lane| lane.ready_at == Some(NOW)), "{queued:?}");
        let worker = queue.worker().await;
        let mut all = BTreeSet::new();
        for from in ["A", "B"] {
            let lanes = vec![lane(&pool, spring, known[from], from)];
            let claimed = claim(queue, worker.id, lanes, None).await;
            assert!((8..=32).contains(&claimed.rows.len()), "{}", claimed.rows.len());
            for row in claimed.rows {
                let chosen = pool.choose(&row.sms.phone, |_| true).expect("a sender");
                assert_eq!(&*pool.senders()[chosen].from, from);
                all.insert(row.sms.id);
            }
        }
        assert_eq!(all.len(), 40);
    })
    .await;
}

#[tokio::test]
async fn undivided_messages_are_moved_to_the_lanes_of_their_senders() {
    on_every_engine(async |queue| {
        let spring = queue.queued(30).await;
        let pool = pool(&[("A", "", "86"), ("B", "", "86")]);
        let known = numbers(queue, spring, &pool).await;
        let worker = queue.worker().await;
        let moved =
            claim(queue, worker.id, vec![undivided(spring)], Some(divided(&pool, &known, &[])))
                .await;
        assert!(moved.rows.is_empty() && moved.held.is_empty());
        assert_eq!(moved.exhausted, [LaneId::undivided(spring)]);
        assert_eq!(moved.divided.len(), 2);
        let lanes = ["A", "B"].map(|from| lane(&pool, spring, known[from], from));
        let claimed = claim(queue, worker.id, lanes.to_vec(), None).await;
        assert_eq!(claimed.rows.len(), 30);
    })
    .await;
}

#[tokio::test]
async fn message_without_a_sender_fails_and_of_one_that_is_off_waits() {
    on_every_engine(async |queue| {
        let spring = queue.queued(3).await;
        let pool = pool(&[("A", "", "86"), ("B", "", "44")]);
        let known = numbers(queue, spring, &pool).await;
        let worker = queue.worker().await;
        let off = divided(&pool, &known, &["A"]);
        let moved = claim(queue, worker.id, vec![undivided(spring)], Some(off.clone())).await;
        // They wait in the lane of their sender, which is divided, too.
        let in_a = LaneId { campaign_id: spring, lane: known["A"] };
        assert_eq!(moved.divided, [in_a]);
        let stays = LaneClaim { id: in_a, ..undivided(spring) };
        let waits = claim(queue, worker.id, vec![stays.clone()], Some(off)).await;
        assert!(waits.divided.is_empty() && waits.rows.is_empty());
        let queued = queue.queued_campaign(spring).await.expect("queued");
        let of_a = queued.lanes.iter().find(|lane| lane.sender == "A").expect("its lane");
        assert_eq!(of_a.ready_at, Some(after(60)));

        // Without any sender for these phones they fail.
        queue.import(spring, rows(10..12)).await;
        let britain = self::pool(&[("B", "", "44")]);
        let known = numbers(queue, spring, &britain).await;
        let none = divided(&britain, &known, &[]);
        let failed = claim(queue, worker.id, vec![undivided(spring)], Some(none)).await;
        assert_eq!(failed.refused, 2);
        assert_eq!(queue.count("recipient"), 2);
    })
    .await;
}

#[tokio::test]
async fn limit_of_a_sender_delays_only_its_lane() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let pool = pool(&[("A", "1/s", ""), ("B", "", "")]);
        let known = numbers(queue, spring, &pool).await;
        import(queue, spring, divided(&pool, &known, &[]), 40).await;
        let (one, other) = (queue.worker().await, queue.worker().await);
        let lanes = || ["A", "B"].map(|from| lane(&pool, spring, known[from], from)).to_vec();
        let first = claim(queue, one.id, lanes(), None).await;
        let of = |claimed: &ProviderClaimed, from: &str| {
            let rows = claimed.rows.iter();
            rows.filter(|row| row.sms.lane == known[from]).count()
        };
        assert_eq!(of(&first, "A"), 1);
        assert!(of(&first, "B") >= 8);
        let in_a = LaneId { campaign_id: spring, lane: known["A"] };
        let second = claim(queue, other.id, lanes(), None).await;
        assert_eq!((of(&second, "A"), of(&second, "B")), (0, 0));
        let next_at = second.limited.iter().find(|(id, _)| *id == in_a);
        assert!(next_at.is_some_and(|(_, at)| *at > after(1).into()), "{:?}", second.limited);
        assert_eq!(second.next_at, None);
    })
    .await;
}

#[tokio::test]
async fn lanes_that_are_opened_at_once_are_the_same() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let names: Vec<String> = (0..40).map(|number| format!("+1202555{number:04}")).collect();
        let some = |range: std::ops::Range<usize>| {
            let senders = names[range].iter().map(|name| (name.as_str(), "", ""));
            pool(&senders.collect::<Vec<_>>())
        };
        let (first, last, all) = (some(0..30), some(10..40), some(0..40));
        let (one, other) =
            tokio::join!(numbers(queue, spring, &first), numbers(queue, spring, &last));
        let known = numbers(queue, spring, &all).await;
        let distinct: BTreeSet<i32> = known.values().copied().collect();
        assert_eq!((known.len(), distinct.len()), (40, 40));
        for (sender, number) in one.iter().chain(&other) {
            assert_eq!(known[sender], *number, "{sender}");
        }
    })
    .await;
}

/// A route from provider `cellar` to `attic`, each with its own sender.
pub(super) fn route() -> Arc<Route> {
    let section = format!("else = \"{PROVIDER}\"\nfallback = [\"attic\"]");
    let config = RouteConfig::from_toml(&section.parse().expect("TOML")).expect("a route");
    let member = |name: &str| {
        Ok::<_, ()>(RouteMember {
            pool: Arc::new(SenderPool::unlisted(name, "")),
            rates: Rates::default(),
            own_sender: None,
            prices: None,
            columns: BTreeSet::new(),
            delivered: DeliveredShares::default(),
        })
    };
    Arc::new(Route::new("main", &config, member).expect("both are known"))
}

/// The division while provider `cellar` is unavailable.
pub(super) fn unavailable(division: Division) -> Division {
    division.with_outages(|name| {
        (name == PROVIDER).then(|| ProviderOutage { since: NOW, reason: "refused".to_owned() })
    })
}

#[tokio::test]
async fn fallback_takes_what_is_certain_and_leaves_what_is_in_doubt() {
    on_every_engine(async |queue| {
        let spring = queue.campaign("spring").await;
        let route = route();
        let opened = queue.store.open_lanes(spring, &route).await;
        let numbers = opened.expect("lanes");
        let of = |name: &str| LaneId {
            campaign_id: spring,
            lane: numbers[&(name.to_owned(), String::new())],
        };
        let division = Division::new(Arc::clone(&route), &numbers, &SendersOff::default());
        let division = division.expect("all have lanes");
        import(queue, spring, division.clone(), 10).await;
        let worker = queue.worker().await;
        let own = LaneClaim { id: of(PROVIDER), ..LaneClaim::undivided(spring, 1) };
        let tried = claim(queue, worker.id, vec![own], None).await;
        let in_doubt = tried.rows.first().expect("one").sms.clone();
        let resend = Transition::Ready {
            due_at: NOW,
            failure: Some(failure(Class::Unknown)),
            counted: true,
            in_doubt: true,
        };
        queue.settle(&in_doubt, resend).await;

        let away = unavailable(division);
        let moves = |count| LaneClaim {
            id: of(PROVIDER),
            is_divided: true,
            ..LaneClaim::undivided(spring, count)
        };
        // The first one is in doubt, so it stays.
        for (count, expected) in [(3, 2..=3), (20, 9..=9)] {
            let commit = CommitBatch {
                claims: vec![ProviderClaim {
                    provider: "attic".to_owned(),
                    is_default: true,
                    max_messages: 100,
                    lanes: vec![moves(count)],
                    ..claim_of(&[])
                }],
                admission: Arc::new(AdmissionRules {
                    providers: HashMap::from([(
                        PROVIDER.to_owned(),
                        ProviderRules { resends: ResendRule::Always, by_template: false },
                    )]),
                    divisions: HashMap::from([(spring, Arc::new(away.clone()))]),
                    ..AdmissionRules::default()
                }),
                ..commit_batch(worker.id, NOW)
            };
            let done = queue.store.commit(&commit).await.expect("a commit");
            assert_eq!(done.claims[0].divided, [of("attic")]);
            let in_attic = queue.db.numbers(&format!(
                "SELECT count(*) AS value FROM sms WHERE lane = {}",
                of("attic").lane
            ));
            assert!(expected.contains(&in_attic[0]), "{in_attic:?}");
        }
        assert_eq!(queue.place(in_doubt.id), "ready");
        let sql = format!("SELECT lane AS value FROM sms WHERE id = {}", in_doubt.id);
        assert_eq!(queue.db.numbers(&sql), [i64::from(of(PROVIDER).lane)]);
        assert_eq!(queue.number("attempts", in_doubt.id), 1);
        let failovers = queue.store.failovers(CampaignFilter::One(spring)).await;
        let failovers = failovers.expect("they are read");
        let counts = failovers
            .iter()
            .map(|moved| (moved.provider.as_str(), moved.fallback.as_str(), moved.messages));
        assert_eq!(counts.collect::<Vec<_>>(), [(PROVIDER, "attic", 9)]);
        queue.assert_nothing_is_lost().await;
    })
    .await;
}
