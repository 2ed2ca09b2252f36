//! Schedules: leases, runs that are repeated, and fires that were missed.

use smsq_message::sms::Timestamp;
use smsq_store::{
    AuditEntry, MissedRun, NewRun, NextRun, RunCounts, ScheduleRow, ScheduleRun, ScheduleRunState,
    ScheduleSettings, Store,
};

use super::test_queue::{NOW, after, on_every_engine, rows};

pub(super) fn fire(day: u64, seconds: u64) -> NextRun {
    NextRun {
        fire: format!("2026-11-{day:02}T09:00"),
        period: format!("2026-11-{day:02}"),
        next_at: after(seconds),
    }
}

pub(super) fn run(schedule_id: i64, day: u64) -> NewRun {
    NewRun {
        schedule_id,
        fire: format!("2026-11-{day:02}T09:00"),
        period: format!("2026-11-{day:02}"),
        campaign: format!("daily/2026-11-{day:02}"),
        keys_until: after(86_400 * day),
        asked_until: None,
    }
}

pub(super) fn missed(day: u64) -> MissedRun {
    let NewRun { fire, period, campaign, .. } = run(0, day);
    MissedRun { fire, period, campaign, error: "no process ran it".to_owned() }
}

pub(super) fn entry() -> AuditEntry {
    AuditEntry {
        at: NOW,
        who: "ann".to_owned(),
        what: "schedule".to_owned(),
        campaign: None,
        detail: "changed a schedule".to_owned(),
    }
}

/// A schedule that is due on day 1, after 10 seconds.
pub(super) async fn daily(store: &Store) -> ScheduleRow {
    let new = ScheduleSettings {
        name: "daily".to_owned(),
        cron: "0 9 * * *".to_owned(),
        timezone: "UTC".to_owned(),
        source: "crm".to_owned(),
        query: "SELECT 1 AS phone".to_owned(),
        unique_by: "id".to_owned(),
        per: "day".to_owned(),
        options: "{}".to_owned(),
        catch_up: false,
    };
    let add = async || store.schedules().add(&new, &fire(1, 10), &entry()).await;
    assert!(add().await.expect("added"));
    assert!(!add().await.expect("known"));
    found(store).await
}

async fn found(store: &Store) -> ScheduleRow {
    let found = store.schedules().named("daily").await.expect("read");
    found.expect("a schedule")
}

async fn runs(store: &Store, id: i64) -> Vec<ScheduleRun> {
    store.schedules().runs(id, 100, NOW).await.expect("runs")
}

async fn leased(store: &Store, holder: i64, seconds: u64) -> bool {
    let (now, until) = (after(seconds), after(seconds + 60));
    let leased = store.schedules().lease_due(holder, now, until).await;
    leased.expect("looked").is_some()
}

#[tokio::test]
async fn schedule_is_leased_to_one_process_until_its_lease_ends() {
    on_every_engine(async |queue| {
        let store = &queue.store;
        let schedule = daily(store).await;
        assert!(!leased(store, 1, 9).await, "it is not due");
        assert!(leased(store, 1, 10).await);
        assert!(!leased(store, 2, 70).await, "another process has it");
        let schedules = store.schedules();
        let renewed = |holder, seconds| schedules.renew(schedule.id, holder, after(seconds));
        assert!(renewed(1, 200).await.expect("renewed"));
        assert!(!leased(store, 2, 200).await);
        assert!(leased(store, 2, 201).await, "its lease has ended");
        assert!(!renewed(1, 999).await.expect("looked"));
        store.schedules().release_all(2).await.expect("released");
        assert!(leased(store, 1, 202).await);
        let entry = entry();
        let pause = store.schedules().set_paused(schedule.id, None, &entry).await;
        assert!(pause.expect("paused"));
        assert!(!leased(store, 2, 9_999).await, "it is paused");
        let resume = async |next: NextRun| {
            let resumed = store.schedules().set_paused(schedule.id, Some(&next), &entry).await;
            resumed.expect("resumed")
        };
        assert!(resume(fire(3, 500)).await);
        assert!(!resume(fire(4, 500)).await);
        assert_eq!(found(store).await.fire, "2026-11-03T09:00");
    })
    .await;
}

#[tokio::test]
async fn process_that_lost_its_lease_does_not_end_the_next_run() {
    on_every_engine(async |queue| {
        let store = &queue.store;
        let id = daily(store).await.id;
        let first = run(id, 1);
        let begin = |run: NewRun, fire: &'static str| async move {
            let begun = store.schedules().begin_run(&run, Some((fire, None)), after(11)).await;
            begun.expect("begun")
        };
        assert!(begin(first.clone(), "2026-11-01T09:00").await);
        // It is repeated by another process.
        assert!(begin(first.clone(), "2026-11-01T09:00").await);
        let counts = RunCounts {
            rows: 7,
            rejected: 2,
            reasons: Some("no phone (2)".to_owned()),
            ..RunCounts::default()
        };
        let finish = |next: NextRun| {
            let (first, counts) = (first.clone(), counts.clone());
            async move {
                let outcome = Ok(&counts);
                let finished = store.schedules();
                let finished = finished.finish_run(&first, outcome, Some(&next), after(20));
                finished.await.expect("finished")
            }
        };
        assert!(finish(fire(2, 100)).await);
        assert!(!finish(fire(2, 999)).await);
        let schedule = found(store).await;
        assert_eq!((schedule.fire.as_str(), schedule.next_at), ("2026-11-02T09:00", after(100)));
        let postponed = store.schedules().postpone_run(&first, "late", after(5)).await;
        postponed.expect("nothing to do");
        assert_eq!(found(store).await.next_at, after(100));
        assert!(!begin(first.clone(), "2026-11-01T09:00").await);
        let all = runs(store, id).await;
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].state, all[0].finished_at), (ScheduleRunState::Done, Some(after(20))));
        assert_eq!((all[0].counts.rows, all[0].counts.duplicates()), (7, 5));
    })
    .await;
}

#[tokio::test]
async fn accepted_messages_of_interrupted_attempts_are_counted() {
    on_every_engine(async |queue| {
        let store = &queue.store;
        let id = daily(store).await.id;
        let first = run(id, 1);
        let begun = store.schedules();
        let begun = begun.begin_run(&first, Some(("2026-11-01T09:00", None)), NOW);
        assert!(begun.await.expect("begun"));
        let campaign = queue.campaign("daily/2026-11-01").await;
        queue.import(campaign, rows(0..4)).await;
        queue.import(campaign, rows(0..6)).await;
        let counts = RunCounts { rows: 6, ..RunCounts::default() };
        let next = fire(2, 100);
        let finished = store.schedules();
        let finished = finished.finish_run(&first, Ok(&counts), Some(&next), after(20));
        assert!(finished.await.expect("finished"));
        assert_eq!(runs(store, id).await[0].counts.accepted, 6);
    })
    .await;
}

#[tokio::test]
async fn missed_fires_are_recorded_and_end_earlier_runs() {
    on_every_engine(async |queue| {
        let store = &queue.store;
        let id = daily(store).await.id;
        let begin = |day, expected: &'static str, missed: Option<MissedRun>, now: Timestamp| async move {
            let begun = store.schedules();
            let run = run(id, day);
            let begun = begun.begin_run(&run, Some((expected, missed.as_ref())), now);
            begun.await.expect("begun")
        };
        assert!(begin(1, "2026-11-01T09:00", None, after(11)).await);
        let first = run(id, 1);
        let postponed = store
            .schedules()
            .postpone_run(&first, "the source is unavailable", after(50)).await;
        postponed.expect("postponed");
        let schedule = found(store).await;
        assert_eq!((schedule.attempts, schedule.next_at), (1, after(50)));
        assert!(begin(4, "2026-11-01T09:00", Some(missed(3)), after(60)).await);
        let all: Vec<_> = runs(store, id)
            .await
            .into_iter()
            .map(|run| (run.fire, run.state, run.error))
            .collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            all,
            [
                ("2026-11-04T09:00".to_owned(), ScheduleRunState::InProgress, None),
                ("2026-11-03T09:00".to_owned(), ScheduleRunState::Missed, some("no process ran it")),
                ("2026-11-01T09:00".to_owned(), ScheduleRunState::Missed, some("the source is unavailable")),
            ]
        );
        let next = fire(5, 100);
        let finished = store.schedules();
        let late = run(id, 4);
        let finished = finished.finish_run(&late, Err("too late"), Some(&next), after(70));
        assert!(finished.await.expect("finished"));
        assert_eq!(runs(store, id).await[0].error, some("too late"));
        assert!(store.schedules().remove(id, &entry()).await.expect("removed"));
        assert!(!store.schedules().remove(id, &entry()).await.expect("gone"));
        // Another schedule of this name could repeat their periods.
        assert_eq!(queue.db.number("SELECT count(*) AS value FROM schedule_run"), 2);
    })
    .await;
}

#[tokio::test]
async fn asked_run_that_is_not_renewed_was_interrupted() {
    on_every_engine(async |queue| {
        let store = &queue.store;
        let id = daily(store).await.id;
        let asked = NewRun { asked_until: Some(after(60)), ..run(id, 1) };
        let schedules = || store.schedules();
        let begun = schedules().begin_run(&asked, None, NOW).await;
        assert!(begun.expect("begun"));
        let state_at = async |seconds| {
            let runs = schedules().runs(id, 1, after(seconds)).await;
            let run = runs.expect("runs").remove(0);
            (run.state, run.error)
        };
        assert_eq!(state_at(60).await, (ScheduleRunState::InProgress, None));
        let interrupted = Some("the run was interrupted".to_owned());
        assert_eq!(state_at(61).await, (ScheduleRunState::Missed, interrupted.clone()));
        let renewed = schedules().renew_run(&asked, after(120)).await;
        renewed.expect("renewed");
        assert_eq!(state_at(61).await, (ScheduleRunState::InProgress, None));
        let counts = RunCounts::default();
        let finished = schedules().finish_run(&asked, Ok(&counts), None, after(70)).await;
        assert!(finished.expect("finished"));
        assert_eq!(state_at(500).await, (ScheduleRunState::Done, None));
    })
    .await;
}
