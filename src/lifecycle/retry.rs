//! Decides from the outcome of an attempt whether its message is sent, has failed or is tried again.

use std::time::Duration;

use serde::Deserialize;
use smsq_message::sms::{Class, Failure, Outcome, Sms, Timestamp};

use super::Transition;
use super::transition::DUPLICATE;

/// Section `[retry]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The number of attempts before a message fails; 0: it is tried until it succeeds or expires.
    pub max_attempts: i32,
    /// The longest wait before the second attempt. It doubles with each further attempt.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub first_wait: Duration,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub max_wait: Duration,
    /// The longest `Retry-After` of a provider that is respected.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub max_retry_after: Duration,
    /// After this time without a success the campaign stops; its messages stay queued.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub give_up_after: Duration,
}

/// One attempt to send a message.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    pub sms: &'a Sms,
    /// The number of messages in the request.
    pub batch: usize,
    /// The provider is down, so a failure is not counted.
    pub is_outage: bool,
    /// A message that may have been accepted is sent again before this, with the same reference.
    pub resend_before: Option<Timestamp>,
}

/// Decides what to do with a message after an attempt. `jitter` is uniform in `0..1`.
///
/// A message in doubt stays in doubt, so it never fails.
#[expect(clippy::match_same_arms, reason = "the arms are in the order of the rules")]
pub fn decide(
    outcome: Outcome,
    attempt: &Attempt<'_>,
    config: &Config,
    now: Timestamp,
    jitter: f64,
) -> Transition {
    let sms = attempt.sms;
    let has_attempts_left =
        config.max_attempts == 0 || sms.attempts.saturating_add(1) < config.max_attempts;
    let wait = backoff(sms.attempts, config, jitter);
    let again = |after: Duration, failure: Failure, counted: bool| {
        let due_at = now.plus(after);
        Transition::Ready {
            due_at: sms.expires_at.map_or(due_at, |expires_at| due_at.min(expires_at)),
            failure: Some(failure),
            counted,
            in_doubt: false,
        }
    };
    match outcome {
        Outcome::Accepted(acceptance) => Transition::Sent(acceptance),
        Outcome::Duplicate(acceptance) if sms.in_doubt && !sms.is_reference_reused => {
            Transition::Sent(acceptance)
        }
        // It may be the reference of an attempt that was refused, or of none of ours.
        Outcome::Duplicate(_) => Transition::Unknown(unexplained_duplicate()),
        // The provider is paused for the time that it asked for. The message is due at once, because the pause may end
        // early.
        Outcome::Throttled { failure, .. } => again(Duration::ZERO, failure, false),
        Outcome::Deferred { failure, retry_after } => {
            again(retry_after.unwrap_or(config.max_wait), failure, false)
        }
        Outcome::Unavailable { failure, .. } if attempt.is_outage => {
            again(Duration::ZERO, failure, false)
        }
        Outcome::Unavailable { failure, retry_after } if has_attempts_left => {
            let asked = retry_after.unwrap_or(Duration::ZERO);
            again(wait.max(asked.min(config.max_retry_after)), failure, true)
        }
        Outcome::Unknown(failure) => {
            let mut transition = again(wait, failure.clone(), true);
            if let Transition::Ready { due_at, in_doubt, .. } = &mut transition {
                *in_doubt = true;
                let is_allowed =
                    attempt.resend_before.is_some_and(|before| now.max(*due_at) < before);
                if has_attempts_left && is_allowed {
                    return transition;
                }
            }
            Transition::Unknown(failure)
        }
        // A message with an attempt is sent alone next, so this attempt counts, but it is never the last one.
        Outcome::BatchRejected(failure) => again(Duration::ZERO, failure, true),
        Outcome::AccountError { failure, listed: true } => again(Duration::ZERO, failure, false),
        // One response to a batch says little about each message, so none of them fails.
        Outcome::AccountError { failure, .. } if has_attempts_left || attempt.batch > 1 => {
            again(Duration::ZERO, failure, true)
        }
        Outcome::Rejected(failure)
        | Outcome::Unavailable { failure, .. }
        | Outcome::AccountError { failure, .. } => {
            if sms.in_doubt {
                Transition::Unknown(failure)
            } else {
                Transition::Failed(failure)
            }
        }
    }
}

/// The provider says that it accepted a reference before, although no attempt with it was in doubt, or one was refused
/// since. It may be that a proxy has sent the request twice, or that the provider also remembers references of what it
/// refused.
fn unexplained_duplicate() -> Failure {
    let why = "the provider says that it accepted this reference before, which no earlier attempt explains";
    Failure::new(Class::Unknown, why).with_code(DUPLICATE)
}

/// Exponential backoff with full jitter: up to `first_wait` after the first attempt, doubled after each further one, at
/// most `max_wait`.
pub fn backoff(attempts_before: i32, config: &Config, jitter: f64) -> Duration {
    let doublings = u32::try_from(attempts_before).unwrap_or(0).min(30);
    let longest =
        config.first_wait.saturating_mul(2_u32.saturating_pow(doublings)).min(config.max_wait);
    longest.mul_f64(jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;
    use smsq_message::sms::{Acceptance, Class};

    fn config(max_attempts: i32) -> Config {
        Config {
            max_attempts,
            first_wait: Duration::from_secs(5),
            max_wait: Duration::from_secs(600),
            max_retry_after: Duration::from_secs(3_600),
            give_up_after: Duration::from_secs(86_400),
        }
    }

    fn sms(attempts: i32, in_doubt: bool, expires_at: Option<i64>) -> Sms {
        Sms {
            in_doubt,
            expires_at: expires_at.map(Timestamp::from_millis),
            attempts,
            ..testing::sms()
        }
    }

    fn outcomes() -> impl Strategy<Value = Outcome> {
        let failure = Failure::new(Class::Unavailable, "why");
        let after = prop::option::of((0_u64..100_000).prop_map(Duration::from_secs));
        let rejected = Outcome::Rejected(failure.clone());
        let unknown = Outcome::Unknown(failure.clone());
        (0..8, after, any::<bool>()).prop_map(move |(kind, retry_after, listed)| {
            let failure = failure.clone();
            match kind {
                0 => Outcome::Accepted(Acceptance::default()),
                1 => rejected.clone(),
                2 => Outcome::Throttled { failure, retry_after },
                3 => Outcome::Deferred { failure, retry_after },
                4 => Outcome::Unavailable { failure, retry_after },
                5 => unknown.clone(),
                6 => Outcome::BatchRejected(failure),
                _ => Outcome::AccountError { failure, listed },
            }
        })
    }

    /// Decides after the second attempt, in one request with `batch - 1` others.
    fn decided(outcome: Outcome, max_attempts: i32, batch: usize, is_outage: bool) -> Transition {
        let attempt = Attempt {
            sms: &sms(1, false, None),
            batch,
            is_outage,
            resend_before: Some(Timestamp::from_millis(10_000)),
        };
        let now = Timestamp::from_millis(1_000);
        decide(outcome, &attempt, &config(max_attempts), now, 0.5)
    }

    fn failure() -> Failure {
        Failure::new(Class::Unavailable, "why")
    }

    fn again(due_at: i64, counted: bool) -> Transition {
        Transition::Ready {
            due_at: Timestamp::from_millis(due_at),
            failure: Some(failure()),
            counted,
            in_doubt: false,
        }
    }

    fn unavailable(retry_after: Option<u64>) -> Outcome {
        Outcome::Unavailable {
            failure: failure(),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    #[test]
    fn unavailable_provider_is_tried_again_after_the_longer_wait() {
        // Half of the ten seconds after a second attempt.
        assert_eq!(decided(unavailable(None), 3, 1, false), again(6_000, true));
        assert_eq!(decided(unavailable(Some(4)), 3, 1, false), again(6_000, true));
        assert_eq!(decided(unavailable(Some(7)), 3, 1, false), again(8_000, true));
        // A provider may ask for an hour at most.
        let capped = again(3_601_000, true);
        assert_eq!(decided(unavailable(Some(9_999)), 3, 1, false), capped);
        let failed = Transition::Failed(failure());
        assert_eq!(decided(unavailable(None), 2, 1, false), failed);
        assert_eq!(decided(unavailable(None), 2, 2, false), failed);
        assert_eq!(decided(unavailable(None), 0, 1, false), again(6_000, true));
        assert_eq!(decided(unavailable(Some(7)), 2, 1, true), again(1_000, false));
    }

    #[test]
    fn throttled_or_deferred_message_keeps_its_attempts() {
        let throttled =
            Outcome::Throttled { failure: failure(), retry_after: Some(Duration::from_secs(7)) };
        assert_eq!(decided(throttled, 2, 1, false), again(1_000, false));
        let deferred = |retry_after: Option<u64>| Outcome::Deferred {
            failure: failure(),
            retry_after: retry_after.map(Duration::from_secs),
        };
        assert_eq!(decided(deferred(Some(7)), 2, 1, false), again(8_000, false));
        assert_eq!(decided(deferred(None), 2, 1, false), again(601_000, false));
    }

    #[test]
    fn duplicate_is_accepted_only_where_the_reference_was_in_doubt() {
        for (in_doubt, is_reference_reused, is_sent) in
            [(true, false, true), (true, true, false), (false, false, false), (false, true, false)]
        {
            let sms = Sms { is_reference_reused, ..sms(1, in_doubt, None) };
            let attempt = Attempt { sms: &sms, batch: 1, is_outage: false, resend_before: None };
            let duplicate = Outcome::Duplicate(Acceptance::default());
            let after = decide(duplicate, &attempt, &config(3), Timestamp::default(), 0.5);
            let sent = Transition::Sent(Acceptance::default());
            let expected =
                if is_sent { sent } else { Transition::Unknown(unexplained_duplicate()) };
            assert_eq!(after, expected, "{in_doubt} {is_reference_reused}");
        }
    }

    #[test]
    fn account_error_fails_only_the_last_attempt_of_a_lone_message() {
        let error = |listed| Outcome::AccountError { failure: failure(), listed };
        assert_eq!(decided(error(true), 2, 1, false), again(1_000, false));
        assert_eq!(decided(error(false), 3, 1, false), again(1_000, true));
        assert_eq!(decided(error(false), 2, 2, false), again(1_000, true));
        let failed = Transition::Failed(failure());
        assert_eq!(decided(error(false), 2, 1, false), failed);
        assert_eq!(decided(Outcome::Rejected(failure()), 9, 2, false), failed);
        let rejected = Outcome::BatchRejected(failure());
        assert_eq!(decided(rejected, 2, 2, false), again(1_000, true));
    }

    #[test]
    fn message_in_doubt_is_sent_again_only_while_that_is_allowed() {
        let unknown = |attempts, now, resend_before: Option<i64>| {
            let attempt = Attempt {
                sms: &sms(attempts, false, None),
                batch: 1,
                is_outage: false,
                resend_before: resend_before.map(Timestamp::from_millis),
            };
            let now = Timestamp::from_millis(now);
            // The wait after the first attempt is 5 s, and after the second one 10 s.
            match decide(Outcome::Unknown(failure()), &attempt, &config(3), now, 1.0) {
                Transition::Ready { due_at, counted: true, in_doubt: true, .. } => {
                    Some(due_at.as_millis())
                }
                Transition::Unknown(_) => None,
                transition => panic!("{transition:?}"),
            }
        };
        assert_eq!(unknown(0, 1_000, Some(6_001)), Some(6_000));
        assert_eq!(unknown(0, 1_000, Some(6_000)), None);
        assert_eq!(unknown(1, 1_000, Some(11_001)), Some(11_000));
        assert_eq!(unknown(2, 1_000, Some(100_000)), None);
        assert_eq!(unknown(0, 1_000, None), None);
    }

    #[test]
    fn backoff_doubles_up_to_its_maximum() {
        let waits =
            [-1, 0, 1, 2, 6, 7, i32::MAX].map(|before| backoff(before, &config(8), 1.0).as_secs());
        assert_eq!(waits, [5, 5, 10, 20, 320, 600, 600]);
        assert_eq!(backoff(0, &config(8), 0.5), Duration::from_millis(2_500));
        assert_eq!(backoff(0, &config(8), 7.0), Duration::from_secs(5));
        let endless = Config { max_wait: Duration::MAX, ..config(8) };
        assert_eq!(backoff(31, &endless, 1.0), backoff(30, &endless, 1.0));
    }

    proptest! {
        #[test]
        fn backoff_is_bounded(attempts in 0_i32.., jitter in 0.0_f64..=1.0) {
            let wait = backoff(attempts, &config(8), jitter);
            prop_assert!(wait <= Duration::from_secs(600));
            let longest = 5_u64.saturating_mul(2_u64.saturating_pow(attempts.unsigned_abs()));
            prop_assert!(wait <= Duration::from_secs(longest));
        }

        #[test]
        fn message_in_doubt_never_fails_and_none_is_due_after_it_expires(
            outcome in outcomes(),
            attempts in 0_i32..10,
            in_doubt: bool,
            expires_at in prop::option::of(1_000_i64..10_000_000),
            max_attempts in 0_i32..10,
            batch in 1_usize..3,
            is_outage: bool,
            resend_before in prop::option::of(0_i64..10_000_000),
            jitter in 0.0_f64..=1.0,
        ) {
            let sms = sms(attempts, in_doubt, expires_at);
            let now = Timestamp::from_millis(1_000);
            let attempt = Attempt {
                sms: &sms,
                batch,
                is_outage,
                resend_before: resend_before.map(Timestamp::from_millis),
            };
            match decide(outcome.clone(), &attempt, &config(max_attempts), now, jitter) {
                Transition::Failed(_) => prop_assert!(!in_doubt),
                Transition::Ready { due_at, counted, in_doubt: doubt, .. } => {
                    prop_assert!(due_at >= now);
                    prop_assert!(sms.expires_at.is_none_or(|expires_at| due_at <= expires_at));
                    let is_last = max_attempts > 0 && attempts + 1 >= max_attempts;
                    let is_of_batch = matches!(outcome, Outcome::BatchRejected(_))
                        || batch > 1 && matches!(outcome, Outcome::AccountError { .. });
                    prop_assert!(!counted || !is_last || is_of_batch);
                    prop_assert_eq!(doubt, matches!(outcome, Outcome::Unknown(_)));
                    prop_assert!(!doubt || resend_before.is_some_and(|before| due_at.as_millis() < before));
                    let is_free = is_outage && matches!(outcome, Outcome::Unavailable { .. });
                    prop_assert!(!(is_free && counted));
                }
                Transition::Sent(_) => prop_assert!(matches!(outcome, Outcome::Accepted(_))),
                Transition::Unknown(_) => prop_assert!(in_doubt || matches!(outcome, Outcome::Unknown(_))),
                transition => prop_assert!(false, "{transition:?}"),
            }
        }
    }
}
