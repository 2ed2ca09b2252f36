//! Nothing starts outside a window or above a cap: with several workers, through restarts, clock corrections and
//! the switches of daylight saving.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZoneDatabase;
use smsq_message::sms::{NewSms, Timestamp};
use smsq_store::{
    CampaignChange, CampaignFilter, ImportApproval, ImportBatch, NewCampaign, WindowChange,
};

use super::faults::SimClock;
use super::provider::{Faults, SimProvider};
use super::{START, Simulation, WorkerSpec};
use crate::Ended;

/// START is 07:06:40 UTC on 2 October 2096.
const SECOND: Duration = Duration::from_secs(1);

async fn set_window(simulation: &Simulation, campaign_id: i64, window: &str) {
    let change = CampaignChange {
        window: WindowChange::Set(window.parse().expect("a window")),
        ..CampaignChange::default()
    };
    let store = &simulation.store;
    store.change_campaign(campaign_id, &change).await.expect("changed");
}

/// A simulation of a campaign with a sending window.
async fn keeping(window: &str, rate: &str, count: usize) -> Simulation {
    let simulation = Simulation::new(SimProvider::new(1, Faults::default()), rate, count).await;
    set_window(&simulation, simulation.campaign_id, window).await;
    simulation
}

/// A worker whose database clock is set by `by` milliseconds at an instant.
fn corrected(simulation: &Simulation, at: Duration, by: i64) -> WorkerSpec {
    WorkerSpec {
        clock: SimClock { set: Some((at, by)), ..SimClock::right(simulation.world.began) },
        ..simulation.worker()
    }
}

/// When requests started, in milliseconds since the start of the simulation.
fn starts(simulation: &Simulation) -> Vec<u128> {
    let (starts, _) = simulation.world.history();
    let mut starts: Vec<u128> = starts.iter().map(|start| start.at.as_millis()).collect();
    starts.sort_unstable();
    starts
}

fn assert_within(starts: &[u128], from: u128, until: u128) {
    assert!(!starts.is_empty());
    let outside = starts.iter().filter(|at| !(from..until).contains(at));
    assert_eq!(outside.count(), 0, "{starts:?}");
    // The window is used from its opening to its end.
    assert!(starts[0] < from + 1_200, "{}", starts[0]);
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_outside_the_window_across_kills() {
    let simulation = keeping("07:07-07:08 daily UTC", "5/s", 600).await;
    for life in [15_000, 25_000, 2_000, 61_000] {
        tokio::join!(
            simulation.work(Some(Duration::from_millis(life))),
            simulation.work(Some(Duration::from_millis(life / 2))),
        );
        simulation.check().await;
    }
    let starts = starts(&simulation);
    assert_within(&starts, 20_000, 80_000);
    assert!(starts.len() > 200, "{}", starts.len());
    let totals = simulation.check().await;
    assert!(totals.queued >= 300 && totals.failed == 0, "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn corrected_clock_moves_the_window() {
    // The correction is known before the window opens or closes.
    for (at, by, opens, closes) in
        [(25, 15_000, 20_000, 65_000), (3, 10_000, 10_000, 70_000), (3, -15_000, 35_000, 95_000)]
    {
        let simulation = keeping("07:07-07:08 daily UTC", "5/s", 600).await;
        let worker =
            || WorkerSpec { life: Some(SECOND * 120), ..corrected(&simulation, SECOND * at, by) };
        tokio::join!(simulation.work_as(worker()), simulation.work_as(worker()));
        let starts = starts(&simulation);
        // A worker learns of it at a heartbeat.
        let learns = 10_000;
        let inside = starts.iter().filter(|at| (opens..closes).contains(*at)).count();
        assert!(inside * 100 >= starts.len() * 99, "{by}: {starts:?}");
        assert!(starts[0] >= opens && starts[0] < opens + learns, "{by}: {starts:?}");
        assert!(starts[starts.len() - 1] < closes, "{by}: {starts:?}");
        simulation.check().await;
    }
}

/// Starts of a run in which the database's clock shows `began` at its beginning, as local times of day.
async fn switched(window: &str, began: &str, zone: &str, life: Duration) -> Vec<String> {
    let simulation = keeping(window, "1/5s", 1_000).await;
    let began: jiff::Timestamp = began.parse().expect("an instant");
    let by = began.as_millisecond() - START.as_millis();
    let worker = WorkerSpec { life: Some(life), ..corrected(&simulation, Duration::ZERO, by) };
    simulation.work_as(worker).await;
    let zone = TimeZoneDatabase::bundled().get(zone).expect("a zone");
    let local = |at: u128| {
        let millis = START.as_millis() + by + i64::try_from(at).expect("small");
        let instant = jiff::Timestamp::from_millisecond(millis).expect("an instant");
        instant.to_zoned(zone.clone()).strftime("%H:%M%:z").to_string()
    };
    let mut local_times: Vec<String> = starts(&simulation).into_iter().map(local).collect();
    local_times.dedup();
    local_times
}

#[tokio::test(start_paused = true)]
async fn repeated_hour_is_used_twice() {
    // Berlin goes from 03:00 back to 02:00 at 01:00 UTC.
    let began = "2096-10-27T23:59:30Z";
    let window = "02:00-02:02 daily Europe/Berlin";
    let local_times = switched(window, began, "Europe/Berlin", SECOND * 2 * 3_600).await;
    let both = ["02:00+02:00", "02:01+02:00", "02:00+01:00", "02:01+01:00"];
    assert_eq!(local_times, both);
}

#[tokio::test(start_paused = true)]
async fn skipped_hour_opens_with_the_next() {
    // Berlin goes from 02:00 to 03:00 at 01:00 UTC.
    let began = "2097-03-31T00:59:30Z";
    let window = "02:30-03:02 daily Europe/Berlin";
    let local_times = switched(window, began, "Europe/Berlin", SECOND * 600).await;
    assert_eq!(local_times, ["03:00+02:00", "03:01+02:00"]);
}

#[tokio::test(start_paused = true)]
async fn run_without_waiting_ends_and_names_the_opening() {
    let mut simulation = keeping("09:00-20:00 daily Europe/Berlin", "", 10).await;
    set_window(&simulation, simulation.campaign_id, "12:00-20:00 daily UTC").await;
    simulation.settings.wait = false;
    let summary = simulation.work(None).await.expect("it ends");
    let until = "2096-10-02 12:00 UTC".to_owned();
    let waiting = vec![("simulated".to_owned(), until)];
    assert_eq!(summary.ended, Ended::Waiting(waiting));
    assert_eq!(simulation.check().await.queued, 10);
    // Half of the messages do not expire before the window opens; the others fail at once.
    simulation
        .import_into(simulation.campaign_id, 10..15, START, Some(START.plus(SECOND * 60)))
        .await;
    let summary = simulation.work(None).await.expect("it ends");
    assert!(matches!(summary.ended, Ended::Waiting(_)), "{summary:?}");
    let totals =
        simulation.store.report().totals(Some(simulation.campaign_id)).await.expect("totals");
    assert_eq!((totals.queued, totals.failed, summary.failed), (10, 5, 5));
    let reasons = simulation
        .store
        .report()
        .failures_by_reason(CampaignFilter::One(simulation.campaign_id))
        .await;
    assert_eq!(reasons.expect("reasons")[0].class, "expired");
    assert!(simulation.world.history().0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn changed_window_applies_at_once() {
    let simulation = keeping("07:00-20:00 daily UTC", "10/s", 1_000).await;
    let worker = simulation.work(Some(SECOND * 40));
    let operator = async {
        tokio::time::sleep(SECOND * 10).await;
        set_window(&simulation, simulation.campaign_id, "07:30-20:00 daily UTC").await;
        tokio::time::sleep(SECOND * 10).await;
        set_window(&simulation, simulation.campaign_id, "07:00-20:00 daily UTC").await;
    };
    tokio::join!(worker, operator);
    let starts = starts(&simulation);
    let between = starts.iter().filter(|at| (12_000..20_000).contains(*at)).count();
    assert_eq!(between, 0, "{starts:?}");
    let after = starts.iter().filter(|at| (22_000..40_000).contains(*at)).count();
    assert!(after > 150, "{after}");
    simulation.check().await;
}

/// A message with its own key to one of `phones` phones.
fn to_one_of(phones: usize, number: usize, params: &str) -> NewSms {
    NewSms {
        phone: format!("+86139{:08}", number % phones),
        dedupe_key: format!("key {number}"),
        params: params.to_owned(),
        ..super::row(number)
    }
}

async fn import_rows(simulation: &Simulation, rows: Vec<NewSms>, window: Option<&str>) {
    let campaign_id = simulation.campaign_id;
    let begun = simulation.store.imports().begin(campaign_id, "more.csv", "01", None, START).await;
    let count = rows.len() as u64;
    let batch = ImportBatch {
        import_id: begun.expect("an import"),
        campaign_id,
        now: START,
        due_at: START,
        expires_at: None,
        window: window.map(|window| window.parse().expect("a window")),
        division: None,
        approval: ImportApproval::OneByOne(String::new()),
        rows,
        row_count: count,
        rejected: 0,
        last_line: count,
    };
    simulation.store.imports().enqueue(&batch).await.expect("queued");
}

#[tokio::test(start_paused = true)]
async fn closed_window_of_a_recipient_delays_no_other() {
    let window = "07:00-07:30 daily column UTC";
    // The import does not know the window, so the worker finds out which messages have to wait.
    for known in [None, Some(window)] {
        let simulation = keeping(window, "50/s", 0).await;
        let later = |number| to_one_of(5_000, number, r#"{"timezone":"Atlantic/Cape_Verde"}"#);
        import_rows(&simulation, (0..3_000).map(later).collect(), known).await;
        let now = |number| to_one_of(5_000, number, r#"{"timezone":"Africa/Abidjan"}"#);
        import_rows(&simulation, (3_000..3_200).map(now).collect(), known).await;
        simulation.work(Some(SECOND * 120)).await;
        let open = starts(&simulation);
        assert_eq!(open.len(), 200);
        assert!(open[199] < 8_000, "{}", open[199]);
        // Cape Verde is an hour behind.
        simulation.work(Some(SECOND * 3_400)).await;
        let all = starts(&simulation);
        assert!(all.len() > 1_000, "{}", all.len());
        assert!(all[200] >= 3_200_000, "{}", all[200]);
        let totals = simulation.store.report().totals(None).await.expect("totals");
        assert_eq!(totals.failed + totals.cancelled, 0, "{totals:?}");
    }
}

/// Checks that no phone has more requests, or delivered messages, in any span than its cap allows.
fn assert_capped(simulation: &Simulation, caps: &[(usize, Duration)], delivered: bool) {
    let (starts, _) = simulation.world.history();
    let mut by_phone: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for start in starts.iter().filter(|start| !delivered || start.delivered) {
        by_phone.entry(start.phone.clone()).or_default().push(start.at);
    }
    for (phone, mut starts) in by_phone {
        starts.sort_unstable();
        for (limit, window) in caps {
            let full = starts.windows(limit + 1).find(|some| some[*limit] < some[0] + *window);
            assert_eq!(full, None, "{phone} got more than {limit} in {window:?}");
        }
    }
}

async fn capped(world: SimProvider, caps: &str, phones: usize, count: usize) -> Simulation {
    let mut simulation = Simulation::new(world, "40/s", 0).await;
    simulation.settings.sender.max_per_recipient = caps.parse().expect("rates");
    let rows = (0..count).map(|number| to_one_of(phones, number, "{}"));
    import_rows(&simulation, rows.collect(), None).await;
    simulation
}

#[tokio::test(start_paused = true)]
async fn recipient_cap_holds_across_workers() {
    let simulation = capped(SimProvider::new(2, Faults::default()), "2/10s,5/min", 5, 60).await;
    tokio::join!(simulation.work(None), simulation.work(None), simulation.work(Some(SECOND * 7)),);
    assert_capped(&simulation, &[(2, SECOND * 10), (5, SECOND * 60)], false);
    let totals = simulation.store.report().totals(None).await.expect("totals");
    assert_eq!(totals.sent + totals.unknown, 60, "{totals:?}");
    // Twelve each: five in each of two minutes, and two more, so the cap is used up.
    let last = *starts(&simulation).last().expect("some");
    assert!((120_000..135_000).contains(&last), "{last}");
}

#[tokio::test(start_paused = true)]
async fn recipient_cap_survives_restarts_and_unknown_outcomes() {
    for seed in 0..4 {
        let mut world = SimProvider::new(seed, Faults::some_of_everything());
        world.honours_reference = true;
        world.faults.rejected = 0.0;
        let mut simulation = capped(world, "1/5s,4/min", 6, 40).await;
        let other = NewCampaign { name: "other".to_owned(), ..NewCampaign::default() };
        let other = simulation.store.open_campaign(&other, START).await.expect("a campaign");
        simulation.campaign_id = other.id;
        let rows = (0..20).map(|number| to_one_of(6, number, "{}"));
        import_rows(&simulation, rows.collect(), None).await;
        for life in [900, 4_000, 20_000, 1] {
            simulation.work(Some(Duration::from_millis(life))).await;
        }
        let summary = simulation.work(None).await.expect("it ends");
        assert_eq!(summary.ended, Ended::Done);
        assert_capped(&simulation, &[(1, SECOND * 5), (4, SECOND * 60)], true);
        let totals = simulation.store.report().totals(None).await.expect("totals");
        assert_eq!(totals.sent, 60, "seed {seed}: {totals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn clock_jump_fills_every_recipient_cap() {
    for by in [3_600_000, -3_600_000] {
        let simulation = capped(SimProvider::new(3, Faults::default()), "2/30s", 3, 12).await;
        let worker =
            WorkerSpec { life: Some(SECOND * 600), ..corrected(&simulation, SECOND * 12, by) };
        simulation.work_as(worker).await;
        assert_capped(&simulation, &[(2, SECOND * 30)], false);
    }
}

#[tokio::test(start_paused = true)]
async fn recipient_over_the_cap_delays_no_other() {
    let mut simulation = capped(SimProvider::new(4, Faults::default()), "1/hour", 1, 3).await;
    simulation.settings.wait = false;
    let rows = (0..100).map(|number| to_one_of(5_000, 100 + number, "{}"));
    import_rows(&simulation, rows.collect(), None).await;
    let summary = simulation.work(None).await.expect("it ends");
    assert!(matches!(summary.ended, Ended::Waiting(_)), "{summary:?}");
    let starts = starts(&simulation);
    assert_eq!(starts.len(), 101);
    assert!(starts[100] < 4_000, "{}", starts[100]);
    let due = simulation.store.next_due(simulation.campaign_id).await.expect("an instant");
    let wait = due.map(|due: Timestamp| due.since(START)).expect("two wait");
    assert!((3_600..3_605).contains(&wait.as_secs()), "{wait:?}");
}
