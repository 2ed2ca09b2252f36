//! When to ask for receipts that are missing.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::sms::Timestamp;

const HOUR: Duration = Duration::from_secs(3_600);
/// No message is asked for later.
const LAST: Duration = Duration::from_secs(72 * 3_600);

/// How old a message is each time it is asked for.
pub(super) fn ask_ages() -> Vec<Duration> {
    let minutes = [1, 5, 30, 120, 12 * 60, 24 * 60, 72 * 60];
    minutes
        .map(|minutes| Duration::from_secs(minutes * 60))
        .to_vec()
}

/// How old a message is each time it is swept: at this interval for an hour, then at intervals that grow with its age.
pub(super) fn sweep_ages(every: Duration) -> Vec<Duration> {
    let every = every.max(Duration::from_secs(1));
    let next =
        |age: &Duration| Some((*age + every).max(if *age < HOUR { *age } else { *age * 5 / 4 }));
    let ages = std::iter::successors(Some(every), next);
    ages.take_while(|age| *age <= LAST).collect()
}

/// The messages to ask for now, as spans of when they were sent: those that reached one of these ages since the last
/// pass.
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
    ages.iter().enumerate().filter_map(span).collect()
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
    fn first_pass_asks_for_all_that_are_old_enough() {
        let spans = due_spans(&ask_ages(), None, at(1_000));
        assert_eq!(spans, [at(0)..=at(940)]);
        assert_eq!(due_spans(&ask_ages(), Some(at(1_000)), at(1_000)), []);
    }
}
