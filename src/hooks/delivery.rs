//! What follows from the answer of a receiver: when an event is tried again, and when its hook is switched off.

use std::time::Duration;

use smsq_message::sms::Timestamp;
use smsq_store::Delivered;

/// The waits after each failure of an event, as multiples of the first one. With the first one of a minute they are
/// almost 24 hours together.
const WAITS: [u32; 8] = [1, 5, 15, 60, 120, 240, 480, 480];
/// A hook that fails for this multiple of the first wait is switched off: 24 hours.
const OFF_AFTER: u32 = 1_440;
/// The longest `Retry-After` that is obeyed, as a multiple of the first wait.
const LONGEST_WAIT: u32 = 480;

/// An event that is delivered now.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryAttempt<'a> {
    pub id: &'a str,
    pub body: &'a str,
    pub at: Timestamp,
}

/// What a receiver answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverAnswer {
    Delivered {
        /// What it answered, for people: `204`.
        summary: String,
    },
    Failed {
        error: String,
        retry_after: Option<Duration>,
    },
    /// It wants no more events.
    Gone,
}

/// What is done after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AfterAnswer {
    pub(super) result: Delivered,
    /// Why the hook is switched off.
    pub(super) off: Option<String>,
}

/// What is known of an event and its hook before an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// How often the event was tried.
    pub(super) attempts: u32,
    pub(super) first_wait: Duration,
    /// The first failure of the hook since its last success.
    pub(super) failing_since: Option<Timestamp>,
}

/// Decides what is done after an answer. `jitter`: 0 to 1.
pub(super) fn decide(
    answer: ReceiverAnswer,
    before: Before,
    now: Timestamp,
    jitter: f64,
) -> AfterAnswer {
    let (error, retry_after) = match answer {
        ReceiverAnswer::Delivered { .. } => {
            return AfterAnswer { result: Delivered::Done, off: None };
        }
        ReceiverAnswer::Gone => {
            let error = "410 Gone".to_owned();
            return AfterAnswer {
                result: Delivered::Again { at: now, error },
                off: Some("the receiver answered 410: it wants no more events".to_owned()),
            };
        }
        ReceiverAnswer::Failed { error, retry_after } => (error, retry_after),
    };
    let failing = before.failing_since.unwrap_or(now);
    if now.since(failing) >= before.first_wait * OFF_AFTER {
        return AfterAnswer {
            off: Some(format!("no event was delivered since {failing}: {error}")),
            result: Delivered::Again { at: now, error },
        };
    }
    let index = usize::try_from(before.attempts).unwrap_or(usize::MAX);
    let Some(multiple) = WAITS.get(index) else {
        return AfterAnswer { result: Delivered::GivenUp { error }, off: None };
    };
    let planned = (before.first_wait * *multiple).mul_f64(0.8 + 0.2 * jitter.clamp(0.0, 1.0));
    let longest = before.first_wait * LONGEST_WAIT;
    let wait = planned.max(retry_after.unwrap_or_default().min(longest));
    AfterAnswer { result: Delivered::Again { at: now.plus(wait), error }, off: None }
}

/// How long nothing is delivered after this number of failures in a row, so that a receiver that is down gets one event
/// at a time.
pub(super) fn pause(failures: u32, first_wait: Duration) -> Duration {
    let shortest = first_wait / 60;
    (shortest * 2_u32.saturating_pow(failures.saturating_sub(1).min(10))).min(first_wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const NOW: Timestamp = Timestamp::from_millis(1_763_715_600_000);

    fn failed(attempts: u32, retry_after: Option<Duration>) -> AfterAnswer {
        let answer = ReceiverAnswer::Failed { error: "500".to_owned(), retry_after };
        let before =
            Before { attempts, first_wait: MINUTE, failing_since: Some(NOW.minus(MINUTE)) };
        decide(answer, before, NOW, 1.0)
    }

    fn wait(verdict: &AfterAnswer) -> Option<Duration> {
        match &verdict.result {
            Delivered::Again { at, .. } => Some(at.since(NOW)),
            Delivered::Done | Delivered::GivenUp { .. } => None,
        }
    }

    #[test]
    fn waits_grow_to_24_hours_together() {
        let waits: Vec<Duration> = (0..20).filter_map(|tried| wait(&failed(tried, None))).collect();
        assert_eq!(waits[..4], [1, 5, 15, 60].map(|count| MINUTE * count));
        let sum: Duration = waits.iter().sum();
        assert!(sum <= Duration::from_secs(24 * 3_600), "{sum:?}");
        assert!(sum > Duration::from_secs(23 * 3_600), "{sum:?}");
        let last = failed(8, None);
        assert!(matches!(last.result, Delivered::GivenUp { .. }), "{last:?}");
        assert_eq!(last.off, None);
    }

    #[test]
    fn longer_wait_that_the_receiver_asks_for_is_obeyed_within_limits() {
        let hour = Duration::from_secs(3_600);
        assert_eq!(wait(&failed(0, Some(hour))), Some(hour));
        assert_eq!(wait(&failed(2, Some(MINUTE))), Some(MINUTE * 15));
        assert_eq!(wait(&failed(0, Some(hour * 100))), Some(hour * 8));
    }

    #[test]
    fn hook_is_off_after_410_and_after_a_day_of_failures() {
        let before = Before {
            attempts: 3,
            first_wait: MINUTE,
            failing_since: Some(NOW.minus(MINUTE * 1_440)),
        };
        let answer = ReceiverAnswer::Failed { error: "timeout".to_owned(), retry_after: None };
        for answer in [answer, ReceiverAnswer::Gone] {
            let verdict = decide(answer, before, NOW, 0.0);
            assert!(verdict.off.is_some(), "{verdict:?}");
            // It waits until the hook is on again.
            assert!(matches!(verdict.result, Delivered::Again { .. }), "{verdict:?}");
        }
        let summary = "204".to_owned();
        let verdict = decide(ReceiverAnswer::Delivered { summary }, before, NOW, 0.0);
        assert_eq!(verdict.result, Delivered::Done);
        assert_eq!(verdict.off, None);
    }

    #[test]
    fn pause_doubles_up_to_the_first_wait() {
        let seconds = |failures| pause(failures, MINUTE).as_secs();
        assert_eq!([1, 2, 3, 7, 50].map(seconds), [1, 2, 4, 60, 60]);
    }
}
