//! Windows in local time, through changes of daylight saving.

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    let instant: jiff::Timestamp = text.parse().expect("an instant");
    Timestamp::from_millis(instant.as_millisecond())
}

fn window(text: &str) -> SendWindow {
    text.parse().expect("a window")
}

/// The span of a message without a known recipient.
fn span(text: &str, now: &str) -> (String, String) {
    let recipient = Recipient { phone: "", params: "{}" };
    instants(window(text).for_one(recipient, at(now)))
}

fn instants(span: Span) -> (String, String) {
    (span.opens_at.to_string(), span.closes_at.to_string())
}

fn pair(opens: &str, closes: &str) -> (String, String) {
    (opens.to_owned(), closes.to_owned())
}

#[test]
fn window_opens_and_closes_in_its_time_zone() {
    let shanghai = "09:00-20:00 daily Asia/Shanghai";
    let day = pair("2026-11-21T01:00:00Z", "2026-11-21T12:00:00Z");
    assert_eq!(span(shanghai, "2026-11-20T12:00:00Z"), day);
    assert_eq!(span(shanghai, "2026-11-21T00:59:59.999Z"), day);
    let (from, until) = span(shanghai, "2026-11-21T11:59:59.999Z");
    assert_eq!((from.as_str(), until), ("2026-11-21T11:59:59Z", day.1));
    assert_eq!(span(shanghai, "2026-11-21T12:00:00Z").0, "2026-11-22T01:00:00Z");
}

#[test]
fn window_stays_closed_on_other_days() {
    // 21 November 2026 is a Saturday.
    assert_eq!(
        span("09:00-20:00 mon-fri UTC", "2026-11-20T20:00:00Z"),
        pair("2026-11-23T09:00:00Z", "2026-11-23T20:00:00Z")
    );
    assert_eq!(
        span("00:00-24:00 mon-tue UTC", "2026-11-20T20:00:00Z"),
        pair("2026-11-23T00:00:00Z", "2026-11-25T00:00:00Z")
    );
}

#[test]
fn window_in_skipped_hour_opens_when_next_hour_begins() {
    // Berlin goes from 02:00 to 03:00 on 29 March 2026, at 01:00 UTC.
    assert_eq!(
        span("02:30-12:00 daily Europe/Berlin", "2026-03-29T00:00:00Z"),
        pair("2026-03-29T01:00:00Z", "2026-03-29T10:00:00Z")
    );
    // All of it is skipped: it opens a day later.
    assert_eq!(
        span("02:00-03:00 daily Europe/Berlin", "2026-03-29T00:00:00Z").0,
        "2026-03-30T00:00:00Z"
    );
    // It closes in the skipped hour.
    assert_eq!(
        span("01:00-02:30 daily Europe/Berlin", "2026-03-29T00:00:00Z").1,
        "2026-03-29T01:00:00Z"
    );
}

#[test]
fn repeated_hour_counts_twice() {
    // Berlin goes from 03:00 back to 02:00 on 25 October 2026, at 01:00 UTC.
    let berlin = "02:00-02:30 daily Europe/Berlin";
    assert_eq!(
        span(berlin, "2026-10-24T12:00:00Z"),
        pair("2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z")
    );
    assert_eq!(
        span(berlin, "2026-10-25T00:30:00Z"),
        pair("2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z")
    );
    // With both inside, there is no gap between them.
    assert_eq!(
        span("01:00-04:00 daily Europe/Berlin", "2026-10-24T12:00:00Z"),
        pair("2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z")
    );
}

#[test]
fn row_with_a_time_zone_uses_it() {
    let window = window("09:00-20:00 daily column Asia/Shanghai");
    let now = at("2026-11-21T00:00:00Z");
    let of = |params| {
        let recipient = Recipient { phone: "", params };
        window.for_one(recipient, now).opens_at.to_string()
    };
    assert_eq!(window.for_all(now), None);
    assert_eq!(of(r#"{"timezone":"Europe/Berlin"}"#), "2026-11-21T08:00:00Z");
    for unknown in ["{}", r#"{"timezone":"Mars"}"#, r#"{"timezone":7}"#, "["] {
        assert_eq!(of(unknown), "2026-11-21T01:00:00Z", "{unknown}");
    }
}

#[test]
fn recipient_window_needs_all_zones_of_the_country() {
    let of = |text: &str, phone| {
        let recipient = Recipient { phone, params: "{}" };
        instants(window(text).for_one(recipient, at("2026-11-20T23:30:00Z")))
    };
    let recipient = "09:00-20:00 daily recipient Europe/Berlin";
    // From 09:00 in Honolulu to 20:00 in New York.
    assert_eq!(of(recipient, "+12025550123"), pair("2026-11-20T23:30:00Z", "2026-11-21T01:00:00Z"));
    assert_eq!(
        of(recipient, "+8613812345678"),
        pair("2026-11-21T01:00:00Z", "2026-11-21T12:00:00Z")
    );
    // A satellite phone has no country.
    assert_eq!(
        of(recipient, "+870773111632"),
        pair("2026-11-21T08:00:00Z", "2026-11-21T19:00:00Z")
    );
    // Kaliningrad and Kamchatka are never inside at once.
    assert_eq!(
        of("09:00-12:00 daily recipient Europe/Moscow", "+79161234567"),
        pair("2026-11-21T06:00:00Z", "2026-11-21T09:00:00Z")
    );
}

#[test]
fn sending_pauses_outside_the_window() {
    let window = window("09:00-20:00 mon-fri UTC");
    let friday = at("2026-11-20T19:00:00Z");
    let end = |hours: u64| {
        let left = Duration::from_secs(hours * 3_600);
        window.end_of(friday, left).to_string()
    };
    assert_eq!(end(1), "2026-11-20T20:00:00Z");
    assert_eq!(end(2), "2026-11-23T10:00:00Z");
    assert_eq!(end(13), "2026-11-24T10:00:00Z");
    let open = window.open_between(friday, at("2026-11-24T10:00:00Z"));
    assert_eq!(open, Duration::from_secs(13 * 3_600));
}

#[test]
fn window_is_printed_and_parsed_back() {
    for text in [
        "09:00-20:00 daily Asia/Shanghai",
        "09:00-20:00 mon-fri column Europe/Berlin",
        "00:00-24:00 sat-sun recipient America/Argentina/Buenos_Aires",
    ] {
        assert_eq!(window(text).to_string(), text);
    }
    for text in ["", "09:00-20:00", "9-20 daily Mars", "9-20 daily each UTC"] {
        let error = text.parse::<SendWindow>().expect_err(text);
        assert!(error.contains(text), "{error}");
    }
}

proptest! {
    #[test]
    fn span_is_the_first_time_inside_the_window(
        minutes in (0_i64..1_439).prop_flat_map(|opens| (Just(opens), opens + 1..=1_440)),
        days in prop::array::uniform7(any::<bool>()),
        zone in prop::sample::select(vec![
            "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
            "Africa/Casablanca", "UTC",
        ]),
        second in 1_767_225_600_i64..1_861_920_000,
    ) {
        prop_assume!(days.contains(&true));
        let clock = |minute: i64| format!("{:02}:{:02}", minute / 60, minute % 60);
        let names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let named: Vec<&str> = names.iter().zip(days).filter(|(_, has)| *has).map(|(name, _)| *name).collect();
        let text = format!("{}-{} {} {zone}", clock(minutes.0), clock(minutes.1), named.join(","));
        let window = window(&text);
        let now = Timestamp::from_millis(second * 1_000);
        let span = window.for_all(now).expect("one zone for all");
        let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone).expect("a zone");
        let inside = |second: i64| {
            let instant = jiff::Timestamp::from_second(second).expect("an instant");
            let local = instant.to_zoned(zone.clone());
            let minute = i64::from(local.hour()) * 60 + i64::from(local.minute());
            let day = usize::try_from(local.weekday().to_monday_zero_offset()).expect("a day");
            days[day] && (minutes.0..minutes.1).contains(&minute)
        };
        let (opens, closes) = (span.opens_at.as_millis() / 1_000, span.closes_at.as_millis() / 1_000);
        prop_assert!(opens >= second && closes >= opens);
        // A window inside a skipped hour of its only day may not open this week.
        if closes > opens {
            prop_assert!(inside(opens) && inside(closes - 1));
        }
        if closes < opens + 9 * DAY {
            prop_assert!(!inside(closes) || closes == opens);
        }
        for step in 0..200 {
            let between = second + (opens - second) * step / 200;
            prop_assert!(between == opens || !inside(between), "{between}");
        }
    }
}
