//! Tests of fires in time zones whose clocks change.

use jiff::civil::datetime;

use super::*;

fn time(cron: &str, zone: &str) -> CronTime {
    CronTime::new(cron, zone.parse().expect("a zone")).expect("a cron expression")
}

fn local(text: &str) -> DateTime {
    text.parse().expect("a local time")
}

/// The next `count` fires after a local time, as local times and instants.
fn fires(cron: &str, zone: &str, after: &str, count: usize) -> Vec<(String, String)> {
    let time = time(cron, zone);
    let mut after = local(after);
    let mut fires = Vec::new();
    for _ in 0..count {
        let fire = time.next(after).expect("a fire");
        fires.push((written(fire.local), fire.at.to_string()));
        after = fire.local;
    }
    fires
}

fn pairs<const COUNT: usize>(pairs: [(&str, &str); COUNT]) -> Vec<(String, String)> {
    let pairs = pairs.map(|(local, at)| (local.to_owned(), at.to_owned()));
    pairs.to_vec()
}

fn at(text: &str) -> Timestamp {
    let at: jiff::Timestamp = text.parse().expect("an instant");
    Timestamp::from_millis(at.as_millisecond())
}

#[test]
fn daily_time_stays_local_when_the_clock_changes() {
    assert_eq!(
        fires("0 9 * * *", "Europe/Berlin", "2026-03-27T09:00", 3),
        pairs([
            ("2026-03-28T09:00", "2026-03-28T08:00:00Z"),
            ("2026-03-29T09:00", "2026-03-29T07:00:00Z"),
            ("2026-03-30T09:00", "2026-03-30T07:00:00Z"),
        ])
    );
    assert_eq!(
        fires("0 9 * * *", "America/New_York", "2026-10-31T08:59", 2),
        pairs([
            ("2026-10-31T09:00", "2026-10-31T13:00:00Z"),
            ("2026-11-01T09:00", "2026-11-01T14:00:00Z"),
        ])
    );
}

#[test]
fn skipped_time_fires_when_the_clock_has_skipped_it() {
    // 02:00 to 03:00 does not exist; 03:00 in Berlin is 01:00 UTC.
    assert_eq!(
        fires("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00", 3),
        pairs([
            ("2026-03-28T02:30", "2026-03-28T01:30:00Z"),
            ("2026-03-29T02:30", "2026-03-29T01:00:00Z"),
            ("2026-03-30T02:30", "2026-03-30T00:30:00Z"),
        ])
    );
    // Half an hour on Lord Howe Island: 02:00 to 02:30.
    assert_eq!(
        fires("15 2 4 10 *", "Australia/Lord_Howe", "2026-10-01T00:00", 1),
        pairs([("2026-10-04T02:15", "2026-10-03T15:30:00Z")])
    );
    // A day that Samoa left out.
    assert_eq!(
        fires("0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00", 1),
        pairs([("2011-12-30T09:00", "2011-12-30T10:00:00Z")])
    );
}

#[test]
fn times_that_are_skipped_together_fire_once() {
    assert_eq!(
        fires("*/20 1-3 * * *", "Europe/Berlin", "2026-03-29T01:20", 4),
        pairs([
            ("2026-03-29T01:40", "2026-03-29T00:40:00Z"),
            // 02:00, 02:20, 02:40 and 03:00.
            ("2026-03-29T03:00", "2026-03-29T01:00:00Z"),
            ("2026-03-29T03:20", "2026-03-29T01:20:00Z"),
            ("2026-03-29T03:40", "2026-03-29T01:40:00Z"),
        ])
    );
}

#[test]
fn repeated_time_fires_once() {
    // 02:00 to 03:00 is shown twice: at 00:00 and at 01:00 UTC.
    assert_eq!(
        fires("30 2 * * *", "Europe/Berlin", "2026-10-24T03:00", 2),
        pairs([
            ("2026-10-25T02:30", "2026-10-25T00:30:00Z"),
            ("2026-10-26T02:30", "2026-10-26T01:30:00Z"),
        ])
    );
    assert_eq!(
        fires("0,30 * * * *", "Europe/Berlin", "2026-10-25T01:30", 4),
        pairs([
            ("2026-10-25T02:00", "2026-10-25T00:00:00Z"),
            ("2026-10-25T02:30", "2026-10-25T00:30:00Z"),
            ("2026-10-25T03:00", "2026-10-25T02:00:00Z"),
            ("2026-10-25T03:30", "2026-10-25T02:30:00Z"),
        ])
    );
}

#[test]
fn next_fire_after_an_instant_is_later_in_the_repeated_hour() {
    let hourly = time("0,30 * * * *", "Europe/Berlin");
    for (now, next) in [
        ("2026-10-25T00:29:59Z", "2026-10-25T00:30:00Z"),
        ("2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"),
        ("2026-10-25T01:10:00Z", "2026-10-25T02:00:00Z"),
        ("2026-10-25T02:00:00Z", "2026-10-25T02:30:00Z"),
        ("2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"),
        ("2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"),
    ] {
        let fire = hourly.next_after(at(now)).expect("a fire");
        assert_eq!(fire.at, at(next), "{now}");
    }
}

/// Over every zone with a change in these years, fires are in order, and none is left out or doubled.
#[test]
fn every_local_time_fires_once_in_every_zone() {
    for zone in [
        "Europe/Berlin",
        "America/New_York",
        "America/Santiago",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Tehran",
        "Asia/Kolkata",
        "Pacific/Chatham",
        "UTC",
    ] {
        let daily = time("30 2 * * *", zone);
        let (mut day, mut last) = (datetime(2022, 1, 1, 0, 0, 0, 0), None);
        for _ in 0..(5 * 365) {
            let fire = daily.next(day).expect("a fire");
            assert_eq!(fire.local.date(), day.date(), "{zone}");
            assert!(last.is_none_or(|last| last < fire.at), "{zone} {day}");
            let known = daily.fire(read_local(&written(fire.local)).expect("a local time"));
            assert_eq!(known, fire);
            (last, day) = (Some(fire.at), day.tomorrow().expect("a day"));
        }
        // Each instant finds the same fires.
        let mut now = at("2024-01-01T00:00:00Z");
        for _ in 0..500 {
            let fire = daily.next_after(now).expect("a fire");
            let same = daily.next_after(Timestamp::from_millis(fire.at.as_millis() - 1));
            assert_eq!(same, Some(fire), "{zone}");
            now = fire.at;
        }
    }
}

#[test]
fn missed_fires_are_one_run_of_the_last_one() {
    let daily = time("0 9 * * *", "Europe/Berlin");
    let due = daily.fire(local("2026-03-27T09:00"));
    assert_eq!(daily.latest(due, due.at), (due, None));
    assert_eq!(daily.latest(due, at("2026-03-28T07:59:59Z")), (due, None));
    let last = daily.fire(local("2026-03-29T09:00"));
    let missed = Missed { first: due, last: daily.fire(local("2026-03-28T09:00")), count: 2 };
    let later = at("2026-03-29T07:00:00Z");
    assert_eq!(daily.latest(due, later), (last, Some(missed)));
}

#[test]
fn periods_are_named_by_local_time_and_in_order() {
    for (moment, day, week, month) in [
        ("2026-11-24T09:00", "2026-11-24", "2026-W48", "2026-11"),
        ("2026-12-31T23:59", "2026-12-31", "2026-W53", "2026-12"),
        ("2027-01-01T00:00", "2027-01-01", "2026-W53", "2027-01"),
        ("2027-01-04T00:00", "2027-01-04", "2027-W01", "2027-01"),
    ] {
        let names = [Per::Day, Per::Week, Per::Month].map(|per| per.period(local(moment)));
        assert_eq!(names, [day, week, month], "{moment}");
        assert_eq!(Per::Run.period(local(moment)), moment);
    }
}

#[test]
fn period_ends_when_the_next_one_begins() {
    let berlin = time("0 9 * * *", "Europe/Berlin");
    let end = |per, moment: &str| berlin.period_end(per, local(moment)).to_string();
    assert_eq!(end(Per::Day, "2026-03-29T01:00"), "2026-03-29T22:00:00Z");
    assert_eq!(end(Per::Week, "2026-03-29T09:00"), "2026-03-29T22:00:00Z");
    assert_eq!(end(Per::Week, "2026-03-30T00:00"), "2026-04-05T22:00:00Z");
    assert_eq!(end(Per::Month, "2026-12-31T23:00"), "2026-12-31T23:00:00Z");
    assert_eq!(end(Per::Run, "2026-03-28T09:00"), "2026-03-28T08:00:00Z");
}

#[test]
fn cron_expression_has_five_fields_and_a_date() {
    for valid in ["0 9 * * *", " 0 9 * * MON-FRI ", "*/5 8-18 1,15 * *", "@daily", "0 9 L * *"] {
        assert!(CronTime::new(valid, "UTC".parse().expect("a zone")).is_ok(), "{valid}");
    }
    for (bad, said) in [
        ("0 0 9 * * *", "it has 6 fields; seconds and years are not possible"),
        ("0 9 * *", "invalid cron expression `0 9 * *`"),
        ("61 9 * * *", "invalid cron expression"),
        ("0 9 * * someday", "invalid cron expression"),
        ("0 9 30 2 *", "it has no date"),
        ("", "invalid cron expression"),
    ] {
        let error = CronTime::new(bad, "UTC".parse().expect("a zone"));
        let error = error.err().expect("an error").to_string();
        assert!(error.contains(said), "{bad}: {error}");
    }
}
