//! When to ask for receipts that are missing.

use std::ops::RangeInclusive;
use std::time::Duration;

use smsq_message::sms::Timestamp;

const HOUR: Duration = Duration::from_secs(3_600);
/// No message is asked for later.
const LAST: Duration = Duration::from_secs(72 * 3_600);

/// How old a message is each time it is asked for.
pub(super) fn ask_ages() -> Vec<Duration> {
    let minutes = [1, 5, 30, 120, 12 * 60, 24 * 60, 72 * 60];
    minutes.map(|minutes| Duration::from_secs(minutes * 60)).to_vec()
}

/// How old a message is each time it is swept: at this interval, but for an hour not more often than after a twelfth of
/// its age, so that there are few of them, and then after a quarter.
pub(super) fn sweep_ages(every: Duration) -> Vec<Duration> {
    let every = every.max(Duration::from_secs(1));
    let growth = |age: Duration| age / if age < HOUR { 12 } else { 4 };
    let next = |age: &Duration| Some(*age + every.max(growth(*age)));
    let ages = std::iter::successors(Some(every), next);
    ages.take_while(|age| *age <= LAST).collect()
}

/// The messages to ask for now, as spans of when they were sent, the latest first: those that reached one of these ages
/// since the last pass. Spans that meet are one.
pub(super) fn due_spans(
    ages: &[Duration],
    last: Option<Timestamp>,
    now: Timestamp,
) -> Vec<RangeInclusive<Timestamp>> {
    let span = |(index, age): (usize, &Duration)| {
        let from = match last {
            Some(last) => Timestamp::from_millis(last.minus(*age).as_millis() + 1),
            // All that were sent before the first age.
            None if index == 0 => Timestamp::from_millis(0),
            None => return None,
        };
        let to = now.minus(*age);
        (from <= to).then_some(from..=to)
    };
    let mut spans: Vec<RangeInclusive<Timestamp>> = Vec::new();
    for span in ages.iter().enumerate().filter_map(span) {
        match spans.last_mut() {
            Some(later) if span.end().as_millis() + 1 >= later.start().as_millis() => {
                *later = *span.start()..=*later.end();
            }
            _ => spans.push(span),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn message_is_asked_for_once_at_each_age() {
        let ages = ask_ages();
        let sent = 1_000_000;
        let mut last = None;
        let mut asked = Vec::new();
        for now in (sent..sent + 80 * 3_600).step_by(20) {
            let spans = due_spans(&ages, last, at(now));
            if spans.iter().any(|span| span.contains(&at(sent))) {
                asked.push(now - sent);
            }
            last = Some(at(now));
        }
        assert_eq!(asked, [60, 300, 1_800, 7_200, 43_200, 86_400, 259_200]);
    }

    #[test]
    fn sweeps_of_a_message_grow_rarer_with_its_age() {
        let ages = sweep_ages(Duration::from_secs(300));
        let seconds: Vec<u64> = ages.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds[..3], [300, 600, 900]);
        assert!(ages.len() < 40, "{seconds:?}");
        assert!(seconds.windows(2).all(|pair| pair[0] + 300 <= pair[1]));
        assert!(seconds.last().is_some_and(|last| *last > 50 * 3_600));
    }

    #[test]
    fn spans_that_meet_are_one() {
        let ages = sweep_ages(Duration::from_secs(1));
        let (last, now) = (at(999_000), at(999_002));
        let spans = due_spans(&ages, Some(last), now);
        assert!(ages.len() < 110, "{}", ages.len());
        assert!(spans.len() < ages.len() - 10, "{}", spans.len());
        for pair in spans.windows(2) {
            assert!(pair[1].end() < pair[0].start(), "{pair:?}");
        }
        for age in ages {
            let reached = last.minus(age).plus(Duration::from_millis(1))..=now.minus(age);
            let has = |at| spans.iter().filter(|span| span.contains(at)).count() == 1;
            assert!(has(reached.start()) && has(reached.end()), "{age:?}");
        }
    }

    #[test]
    fn first_pass_asks_for_all_that_are_old_enough() {
        let spans = due_spans(&ask_ages(), None, at(1_000));
        assert_eq!(spans, [at(0)..=at(940)]);
        assert_eq!(due_spans(&ask_ages(), Some(at(1_000)), at(1_000)), []);
    }
}
