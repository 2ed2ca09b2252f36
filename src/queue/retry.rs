//! What becomes of a message after an attempt: a pure function of the outcome, the row and the policy.

use std::time::Duration;

use serde::Deserialize;

use super::Transition;
use crate::sms::{Failure, Outcome, Sms, Timestamp};

/// Section `[retry]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Attempts before a message fails; 0 means until it succeeds or expires.
    pub max_attempts: i32,
    /// The longest wait before the second attempt; it doubles with every further one.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub first_wait: Duration,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub max_wait: Duration,
    /// The longest that a provider's `Retry-After` is obeyed.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub max_retry_after: Duration,
    /// No success for so long stops the campaign, its rows kept.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub give_up_after: Duration,
}

/// Decides what becomes of a claimed message. `resend`: a message that was perhaps accepted may be
/// sent again with the same reference. `jitter` is uniform in `0..1`.
///
/// Who was in doubt stays in doubt: such a message is never failed.
pub fn decide(
    outcome: &Outcome,
    sms: &Sms,
    config: &Config,
    resend: bool,
    now: Timestamp,
    jitter: f64,
) -> Transition {
    let attempts_left =
        config.max_attempts == 0 || sms.attempts.saturating_add(1) < config.max_attempts;
    let wait = backoff(sms.attempts, config, jitter);
    let again = |after: Duration, failure: &Failure, counted: bool| {
        let due_at = now.plus(after);
        Transition::Ready {
            due_at: sms
                .expires_at
                .map_or(due_at, |expires_at| due_at.min(expires_at)),
            failure: Some(failure.clone()),
            counted,
            in_doubt: false,
        }
    };
    match outcome {
        Outcome::Accepted(acceptance) => Transition::Sent(acceptance.clone()),
        Outcome::Throttled {
            failure,
            retry_after,
        } => again(retry_after.unwrap_or(Duration::ZERO), failure, false),
        Outcome::Deferred {
            failure,
            retry_after,
        } => again(retry_after.unwrap_or(config.max_wait), failure, false),
        Outcome::Unavailable {
            failure,
            retry_after,
        } if attempts_left => {
            let asked = retry_after.unwrap_or(Duration::ZERO);
            again(wait.max(asked.min(config.max_retry_after)), failure, true)
        }
        Outcome::Unknown(failure) if resend && attempts_left => match again(wait, failure, true) {
            Transition::Ready {
                due_at,
                failure,
                counted,
                ..
            } => Transition::Ready {
                due_at,
                failure,
                counted,
                in_doubt: true,
            },
            transition => transition,
        },
        Outcome::Unknown(failure) => Transition::Unknown(failure.clone()),
        // Whoever was tried goes alone, so it is an attempt; but none that may be the last.
        Outcome::BatchRejected(failure) => again(Duration::ZERO, failure, true),
        Outcome::AccountError {
            failure,
            listed: true,
        } => again(Duration::ZERO, failure, false),
        Outcome::AccountError {
            failure,
            listed: false,
        } if attempts_left => again(Duration::ZERO, failure, true),
        Outcome::Rejected(failure)
        | Outcome::Unavailable { failure, .. }
        | Outcome::AccountError { failure, .. } => ended(sms, failure),
    }
}

fn ended(sms: &Sms, failure: &Failure) -> Transition {
    if sms.in_doubt {
        Transition::Unknown(failure.clone())
    } else {
        Transition::Failed(failure.clone())
    }
}

/// Exponential with full jitter: anything up to `first_wait` after the first attempt, doubling with
/// every further one, up to `max_wait`.
pub fn backoff(attempts_before: i32, config: &Config, jitter: f64) -> Duration {
    let doublings = u32::try_from(attempts_before).unwrap_or(0).min(30);
    let longest = config
        .first_wait
        .saturating_mul(2_u32.saturating_pow(doublings))
        .min(config.max_wait);
    longest.mul_f64(jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sms::{Acceptance, Class};
    use proptest::prelude::*;

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
            id: 1,
            campaign_id: 1,
            phone: "+12025550123".to_owned(),
            content: "hello".to_owned(),
            params: "{}".to_owned(),
            segments: Some(1),
            in_doubt,
            expires_at: expires_at.map(Timestamp::from_millis),
            attempts,
            claim: 1,
            reference: "r".to_owned(),
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
                2 => Outcome::Throttled {
                    failure,
                    retry_after,
                },
                3 => Outcome::Deferred {
                    failure,
                    retry_after,
                },
                4 => Outcome::Unavailable {
                    failure,
                    retry_after,
                },
                5 => unknown.clone(),
                6 => Outcome::BatchRejected(failure),
                _ => Outcome::AccountError { failure, listed },
            }
        })
    }

    proptest! {
        #[test]
        fn a_backoff_is_bounded(attempts in 0_i32.., jitter in 0.0_f64..=1.0) {
            let wait = backoff(attempts, &config(8), jitter);
            prop_assert!(wait <= Duration::from_secs(600));
            let longest = 5_u64.saturating_mul(2_u64.saturating_pow(attempts.unsigned_abs()));
            prop_assert!(wait <= Duration::from_secs(longest));
        }

        #[test]
        fn who_was_in_doubt_is_never_failed_and_nobody_outlives_their_time(
            outcome in outcomes(),
            attempts in 0_i32..10,
            in_doubt: bool,
            expires_at in prop::option::of(1_000_i64..10_000_000),
            max_attempts in 0_i32..10,
            resend: bool,
            jitter in 0.0_f64..=1.0,
        ) {
            let sms = sms(attempts, in_doubt, expires_at);
            let now = Timestamp::from_millis(1_000);
            match decide(&outcome, &sms, &config(max_attempts), resend, now, jitter) {
                Transition::Failed(_) => prop_assert!(!in_doubt),
                Transition::Ready { due_at, counted, in_doubt: doubt, .. } => {
                    prop_assert!(due_at >= now);
                    prop_assert!(sms.expires_at.is_none_or(|expires_at| due_at <= expires_at));
                    let is_last = max_attempts > 0 && attempts + 1 >= max_attempts;
                    prop_assert!(!counted || !is_last || matches!(outcome, Outcome::BatchRejected(_)));
                    prop_assert_eq!(doubt, matches!(outcome, Outcome::Unknown(_)));
                    prop_assert!(!doubt || resend);
                }
                Transition::Sent(_) => prop_assert!(matches!(outcome, Outcome::Accepted(_))),
                Transition::Unknown(_) => prop_assert!(in_doubt || matches!(outcome, Outcome::Unknown(_))),
                transition => prop_assert!(false, "{transition:?}"),
            }
        }
    }
}
