//! Several workers on one database keep one limit: with latency, wrong clocks, crashes and lost connections.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use smsq_store::CampaignChange;
use tokio::time::Instant;

use super::faults::{DbFaults, Delays, SimClock};
use super::provider::{Faults, SimProvider};
use super::{START, Simulation, WorkerSpec};
use crate::{Ended, SendError};

const SECOND: Duration = Duration::from_secs(1);

/// The part of the limit that was used between the first start and the last.
fn used(simulation: &Simulation) -> f64 {
    let count = u32::try_from(simulation.world.starts()).expect("some thousands");
    let allowed = simulation.rate.0[0].per_second() * simulation.world.span().as_secs_f64();
    f64::from(count - 1) / allowed
}

/// A worker whose requests to the database take `there` ms, and their responses `back` ms.
fn far(simulation: &Simulation, there: u64, back: u64, drift: i64) -> WorkerSpec {
    let way = |ms| Duration::from_millis(ms);
    WorkerSpec {
        clock: SimClock {
            drift,
            there: way(there),
            back: way(back),
            ..SimClock::right(simulation.world.began)
        },
        db_faults: Arc::new(DbFaults { slow: way(there + back), ..DbFaults::default() }),
        ..simulation.worker()
    }
}

#[tokio::test(start_paused = true)]
async fn workers_with_different_clocks_keep_every_window() {
    for seed in 0..6 {
        let simulation =
            Simulation::new(SimProvider::new(seed, Faults::default()), "30/s", 400).await;
        let mut random = StdRng::seed_from_u64(seed);
        // One worker reads the time too late and the other too early, both as much as possible.
        let mut worker = |there, back| {
            let drift = random.random_range(-50..=50);
            far(&simulation, there, back, drift)
        };
        let (late, early, near) = (worker(24, 0), worker(0, 24), worker(0, 0));
        let near = WorkerSpec { life: Some(SECOND * 4), ..near };
        tokio::join!(simulation.work_as(late), simulation.work_as(early), simulation.work_as(near),);
        let totals = simulation.check().await;
        assert_eq!(totals.sent + totals.unknown, 400, "{totals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn database_50_ms_away_costs_at_most_5_percent() {
    for rate in ["1/s", "50/s", "300/s"] {
        let count = if rate == "1/s" { 60 } else { 1_500 };
        let mut simulation =
            Simulation::new(SimProvider::new(1, Faults::default()), rate, count).await;
        simulation.settings.sender.concurrency = 256;
        let worker = far(&simulation, 25, 25, 20);
        simulation.work_as(worker).await;
        simulation.check().await;
        let part = used(&simulation);
        assert!(part >= 0.95, "{rate}: {part}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_busy_and_one_idle_worker_use_at_least_95_percent() {
    for (rate, count) in [("1/s", 60), ("3000/s", 15_000)] {
        let mut simulation =
            Simulation::new(SimProvider::new(2, Faults::default()), rate, count).await;
        simulation.settings.sender.concurrency = 500;
        let mut idle = simulation.worker();
        // It polls a campaign without messages.
        idle.settings.follow = true;
        idle.settings.campaign = Some("default".to_owned());
        idle.life = Some(SECOND * 70);
        tokio::join!(simulation.work(None), simulation.work_as(idle));
        simulation.check().await;
        let part = used(&simulation);
        assert!(part >= 0.95, "{rate}: {part}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_busy_workers_use_at_least_95_percent() {
    for (rate, count) in [("1/s", 60), ("200/s", 2_000)] {
        let simulation = Simulation::new(SimProvider::new(3, Faults::default()), rate, count).await;
        tokio::join!(simulation.work(None), simulation.work(None));
        simulation.check().await;
        let part = used(&simulation);
        assert!(part >= 0.95, "{rate}: {part}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_worker_is_reclaimed_within_two_leases() {
    let mut world = SimProvider::new(4, Faults::default());
    world.latency = SECOND * 60;
    let mut simulation = Simulation::new(world, "", 8).await;
    simulation.settings.sender.lease = SECOND * 5;
    let killed_after = SECOND * 12;
    let mut heir = simulation.worker();
    heir.settings.follow = true;
    heir.life = Some(killed_after + SECOND * 10);
    tokio::join!(simulation.work(Some(killed_after)), async {
        tokio::time::sleep(SECOND).await;
        simulation.work_as(heir).await;
    });
    let totals = simulation.check().await;
    assert_eq!((totals.sending, totals.unknown), (0, 8), "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_while_the_database_is_away() {
    let simulation = Simulation::new(SimProvider::new(5, Faults::default()), "50/s", 300).await;
    let began = simulation.world.began;
    let (from, until) = (SECOND * 2, SECOND * 122);
    let worker = WorkerSpec {
        db_faults: Arc::new(DbFaults {
            away: vec![(began + from, began + until)],
            ..DbFaults::default()
        }),
        ..simulation.worker()
    };
    let summary = simulation.work_as(worker).await.expect("it ends");
    assert_eq!(summary.ended, Ended::Done);
    let totals = simulation.check().await;
    assert_eq!(totals.sent, 300, "{totals:?}");
    let (starts, _) = simulation.world.history();
    // Requests that were claimed before may still start.
    let meanwhile = from + Duration::from_millis(200)..until;
    let count = starts.iter().filter(|start| meanwhile.contains(&start.at));
    assert_eq!(count.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn run_waits_for_the_database_before_it_ends() {
    for away_after in [100, 200, 300, 500, 1_000, 1_500] {
        let simulation = Simulation::new(SimProvider::new(6, Faults::default()), "", 10).await;
        let from = simulation.world.began + Duration::from_millis(away_after);
        let worker = WorkerSpec {
            db_faults: Arc::new(DbFaults {
                away: vec![(from, from + SECOND * 300)],
                ..DbFaults::default()
            }),
            ..simulation.worker()
        };
        let summary = simulation.work_as(worker).await.expect("it ends");
        assert_eq!(summary.ended, Ended::Done, "{away_after}");
        assert_eq!(simulation.check().await.sent, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn database_that_never_comes_back_loses_no_result() {
    let simulation = Simulation::new(SimProvider::new(7, Faults::default()), "", 100).await;
    let from = simulation.world.began + Duration::from_millis(60);
    let worker = WorkerSpec {
        db_faults: Arc::new(DbFaults {
            away: vec![(from, from + SECOND * 86_400)],
            ..DbFaults::default()
        }),
        ..simulation.worker()
    };
    let began = Instant::now();
    let ended = simulation.try_work_as(worker).await;
    assert!(matches!(ended, Some(Err(SendError::Store(_)))), "{ended:?}");
    assert!(began.elapsed() >= SECOND * 600);
    simulation.check().await;
    // Results that came meanwhile were left to the next worker.
    let summary = simulation.work(None).await.expect("it ends");
    assert_eq!(summary.ended, Ended::Done);
    let totals = simulation.check().await;
    assert_eq!((totals.sent, totals.unknown), (100, 0), "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn result_that_the_database_rejects_is_set_aside_and_delays_no_other() {
    // A constraint that is violated, and a reason of another program.
    for reason in ["INSERT INTO refused VALUES (NULL)", "SELECT RAISE(ABORT, 'another error')"] {
        let simulation = Simulation::new(SimProvider::new(8, Faults::default()), "2/s", 100).await;
        let rejects = format!(
            "CREATE TABLE refused (reason TEXT NOT NULL); \
             CREATE TRIGGER refuse BEFORE INSERT ON sms_sent WHEN NEW.id = 7 BEGIN {reason}; END"
        );
        simulation.store.execute(&rejects).await;
        let summary = simulation.work(None).await.expect("it ends");
        assert_eq!(summary.ended, Ended::Done, "{reason}");
        let totals = simulation.check().await;
        assert_eq!((totals.sent, totals.unknown), (99, 1), "{reason}");
        assert!(simulation.world.span() <= SECOND * 51, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn commit_with_a_lost_answer_is_applied_once() {
    for seed in 0..4 {
        let mut world = SimProvider::new(seed, Faults::some_of_everything());
        // The other worker learns of a 429 from a commit, which starts only after the repetitions of an earlier one.
        world.quiet_after = SECOND;
        let mut simulation = Simulation::new(world, "50/s", 200).await;
        simulation.settings.sender.lease = SECOND * 5;
        let losing = |seed| WorkerSpec {
            db_faults: Arc::new(DbFaults::losing(seed, 0.1)),
            ..simulation.worker()
        };
        tokio::join!(simulation.work_as(losing(seed)), simulation.work_as(losing(seed + 100)),);
        let totals = simulation.check().await;
        assert_eq!(totals.queued + totals.sending, 0, "{totals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn database_clock_that_is_set_breaks_no_window() {
    let large = (0..12).map(|turn| (3_600_000, 2_000 + turn * 9));
    let others = [(-3_600_000, 2_000), (-150, 2_000), (120, 2_000)];
    for (by_ms, at_ms) in large.chain(others) {
        let mut simulation =
            Simulation::new(SimProvider::new(8, Faults::default()), "20/s", 0).await;
        simulation.count = 120;
        // Due at any time that the clock may show.
        let due_at = START.minus(SECOND * 86_400);
        simulation.import_into(simulation.campaign_id, 0..120, due_at, None).await;
        let worker = |there, back| {
            let mut worker = far(&simulation, there, back, 0);
            worker.clock.set = Some((Duration::from_millis(at_ms), by_ms));
            worker
        };
        tokio::join!(simulation.work_as(worker(0, 2)), simulation.work_as(worker(1, 0)));
        let totals = simulation.check().await;
        assert_eq!(totals.sent, 120, "{by_ms}: {totals:?}");
        let (starts, _) = simulation.world.history();
        let late: Vec<_> = starts.iter().filter(|start| start.at > SECOND * 60).collect();
        assert!(late.is_empty(), "{by_ms}: {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn clock_jump_fills_the_limits_though_its_commit_fails() {
    // With this lease the worker reads the time at 3,334 ms, and its next commit fails.
    for from_ms in [3_335, 3_400, 3_500, 3_700, 3_900] {
        let mut simulation =
            Simulation::new(SimProvider::new(16, Faults::default()), "20/hour", 0).await;
        simulation.settings.sender.lease = SECOND * 5;
        simulation.count = 60;
        let due_at = START.minus(SECOND * 86_400);
        simulation.import_into(simulation.campaign_id, 0..60, due_at, None).await;
        let from = simulation.world.began + Duration::from_millis(from_ms);
        let worker = WorkerSpec {
            life: Some(SECOND * 60),
            clock: SimClock {
                set: Some((SECOND * 2, 3_700_000)),
                ..SimClock::right(simulation.world.began)
            },
            db_faults: Arc::new(DbFaults {
                away: vec![(from, from + SECOND)],
                ..DbFaults::default()
            }),
            ..simulation.worker()
        };
        simulation.work_as(worker).await;
        simulation.check().await;
        assert_eq!(simulation.world.starts(), 20, "away from {from_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn permits_are_given_back_once_when_the_answer_is_lost() {
    for seed in 0..4 {
        let world = SimProvider::new(seed, Faults::default());
        let simulation = Simulation::new(world, "2/s,60/hour", 200).await;
        let worker = || WorkerSpec {
            life: Some(SECOND * 120),
            db_faults: Arc::new(DbFaults {
                late: Some(Delays {
                    random: Mutex::new(StdRng::seed_from_u64(seed)),
                    part: 0.3,
                    span: SECOND / 3..=SECOND / 3,
                }),
                loses_returns: true,
                ..DbFaults::default()
            }),
            ..simulation.worker()
        };
        tokio::join!(simulation.work_as(worker()), simulation.work_as(worker()));
        // No hour has more than 60 starts.
        simulation.check().await;
        assert!(simulation.world.starts() >= 40);
    }
}

#[tokio::test(start_paused = true)]
async fn resumed_host_starts_nothing_before_its_lease_is_renewed() {
    for at_ms in [1_000, 1_010, 1_020, 1_030] {
        let mut simulation =
            Simulation::new(SimProvider::new(13, Faults::default()), "", 400).await;
        simulation.settings.sender.lease = SECOND * 5;
        let at = Duration::from_millis(at_ms);
        let mut worker = far(&simulation, 10, 10, 0);
        worker.clock.slept = Some((at, SECOND * 20));
        let summary = simulation.work_as(worker).await.expect("it ends");
        assert_eq!((summary.ended, summary.sent), (Ended::Done, 400));
        simulation.check().await;
        // Its timers do not count the suspend: the lease is renewed a third of its length after the last time.
        let (starts, _) = simulation.world.history();
        let asleep = at..Duration::from_millis(1_600);
        let early: Vec<_> = starts.iter().filter(|start| asleep.contains(&start.at)).collect();
        assert!(early.is_empty(), "{early:?}");
        assert!(starts.iter().any(|start| start.at < at), "it was busy");
    }
}

#[tokio::test(start_paused = true)]
async fn stopped_virtual_machine_starts_nothing_before_it_asks() {
    for at_ms in [4_000, 4_050, 4_100, 4_150, 4_200, 4_250] {
        let mut simulation =
            Simulation::new(SimProvider::new(14, Faults::default()), "", 400).await;
        simulation.settings.sender.lease = SECOND * 5;
        let at = Duration::from_millis(at_ms);
        let mut worker = far(&simulation, 100, 100, 0);
        worker.clock.paused = Some((at, SECOND * 20));
        let summary = simulation.work_as(worker).await.expect("it ends");
        assert_eq!((summary.ended, summary.sent), (Ended::Done, 400));
        simulation.check().await;
        let (starts, _) = simulation.world.history();
        // It reads the time and then renews its lease, which takes 200 ms each.
        let asking = at..at + Duration::from_millis(350);
        let early = starts.iter().filter(|start| asking.contains(&start.at)).count();
        assert_eq!(early, 0, "stopped at {at:?}");
        assert!(starts.iter().any(|start| start.at < at), "it was busy");
    }
}

#[tokio::test(start_paused = true)]
async fn workers_with_different_leases_leave_each_other_alone() {
    for seed in 0..3 {
        let faults = Faults { unavailable: 0.4, ..Faults::default() };
        let mut simulation = Simulation::new(SimProvider::new(seed, faults), "5/s", 300).await;
        simulation.settings.sender.lease = SECOND * 5;
        let mut patient = simulation.worker();
        patient.settings.sender.lease = SECOND * 100;
        tokio::join!(simulation.work_as(patient), simulation.work(None));
        let totals = simulation.check().await;
        assert_eq!(totals.unknown, 0, "{totals:?}");
        let (starts, _) = simulation.world.history();
        let ids: BTreeSet<i64> = starts.iter().map(|start| start.worker_id).collect();
        assert_eq!(ids.len(), 2, "{ids:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn used_up_limit_of_a_living_worker_binds_a_new_one() {
    let mut simulation =
        Simulation::new(SimProvider::new(15, Faults::default()), "5/hour", 60).await;
    simulation.settings.sender.lease = SECOND * 5;
    let generous = WorkerSpec {
        rate: "1000/s".parse().expect("a rate"),
        life: Some(SECOND * 500),
        ..simulation.worker()
    };
    tokio::join!(simulation.work(Some(SECOND * 600)), async {
        tokio::time::sleep(SECOND * 60).await;
        simulation.work_as(generous).await;
    });
    assert_eq!(simulation.check().await.sent, 5);
}

/// Works after another worker has started a request: no worker knows the limits of one that has not claimed yet.
async fn work_beside_another(simulation: &Simulation, worker: WorkerSpec) {
    let starts = || simulation.world.history().0.len();
    let before = starts();
    while starts() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    simulation.work_as(worker).await;
}

#[tokio::test(start_paused = true)]
async fn smallest_limit_of_all_workers_applies() {
    let mut simulation = Simulation::new(SimProvider::new(9, Faults::default()), "20/s", 150).await;
    let generous = WorkerSpec { rate: "200/s".parse().expect("a rate"), ..simulation.worker() };
    let thrifty = simulation.work(None);
    tokio::join!(thrifty, work_beside_another(&simulation, generous));
    simulation.check().await;
    simulation.rate = "30/s,100/hour".parse().expect("rates");
    simulation.count += 150;
    let numbers = 150..300;
    simulation.import_into(simulation.campaign_id, numbers, START, None).await;
    let began = simulation.world.began.elapsed();
    let generous = WorkerSpec {
        rate: "200/s,1000/hour".parse().expect("rates"),
        life: Some(SECOND * 60),
        ..simulation.worker()
    };
    let thrifty = simulation.work(Some(SECOND * 60));
    tokio::join!(thrifty, work_beside_another(&simulation, generous));
    let (starts, _) = simulation.world.history();
    let count = starts.iter().filter(|start| start.at >= began).count();
    assert!((1..=100).contains(&count), "{count} in an hour");
}

#[tokio::test(start_paused = true)]
async fn changed_limit_reaches_all_workers_within_seconds() {
    let simulation = Simulation::new(SimProvider::new(10, Faults::default()), "", 4_000).await;
    let set = async |rate: &str| {
        let change = CampaignChange {
            rate: Some(rate.parse().expect("a rate")),
            ..CampaignChange::default()
        };
        let changed = simulation.store.change_campaign(simulation.campaign_id, &change);
        changed.await.expect("changed");
    };
    set("5/s").await;
    let operator = async {
        tokio::time::sleep(SECOND * 10).await;
        set("200/s,5000/day").await;
    };
    let workers = async { tokio::join!(simulation.work(None), simulation.work(None)) };
    tokio::join!(workers, operator);
    simulation.check().await;
    let (starts, _) = simulation.world.history();
    let within = |from: u64, until: u64| {
        let span = SECOND * u32::try_from(from).expect("small")
            ..SECOND * u32::try_from(until).expect("small");
        starts.iter().filter(|start| span.contains(&start.at)).count()
    };
    assert!(within(0, 10) <= 51);
    assert!(within(13, 14) >= 150, "{}", within(13, 14));
}

#[tokio::test(start_paused = true)]
async fn throttling_of_one_worker_pauses_all() {
    let mut world = SimProvider::new(11, Faults::default());
    world.faults.throttled = 0.01;
    let simulation = Simulation::new(world, "100/s", 400).await;
    tokio::join!(simulation.work(None), simulation.work(None), simulation.work(None));
    // The check of the history finds starts that should have waited.
    let totals = simulation.check().await;
    assert_eq!(totals.sent, 400, "{totals:?}");
    let (_, quiet_periods) = simulation.world.history();
    assert!(!quiet_periods.is_empty());
}

#[tokio::test(start_paused = true)]
async fn day_and_second_limits_survive_worker_restarts() {
    let world = SimProvider::new(12, Faults::default());
    let simulation = Simulation::new(world, "40/s,150/hour", 400).await;
    for life in [1_300, 700, 2_100] {
        let life = Some(Duration::from_millis(life));
        tokio::join!(simulation.work(life), simulation.work(None.or(life)));
        simulation.check().await;
    }
    tokio::join!(simulation.work(None), simulation.work(None));
    let totals = simulation.check().await;
    assert_eq!(totals.queued + totals.sending, 0, "{totals:?}");
    let hours = simulation.world.span().as_secs_f64() / 3_600.0;
    assert!(hours < 400.0 / 150.0 + 0.2, "{hours} hours");
}

#[tokio::test(start_paused = true)]
async fn worker_cut_off_beyond_its_lease_returns_under_a_new_id() {
    for seed in 0..4 {
        let world = SimProvider::new(seed, Faults::default());
        let mut simulation = Simulation::new(world, "20/s", 600).await;
        simulation.settings.sender.lease = SECOND * 5;
        let from = simulation.world.began + SECOND * 2;
        let cut_off = WorkerSpec {
            db_faults: Arc::new(DbFaults {
                away: vec![(from, from + SECOND * 17)],
                ..DbFaults::default()
            }),
            ..simulation.worker()
        };
        tokio::join!(simulation.work_as(cut_off), simulation.work(None));
        let totals = simulation.check().await;
        assert_eq!(totals.sent + totals.unknown, 600, "{totals:?}");
        let (starts, _) = simulation.world.history();
        let ids: BTreeSet<i64> = starts.iter().map(|start| start.worker_id).collect();
        assert_eq!(ids.len(), 3, "{ids:?}");
    }
}
