//! The outcome that an HTTP status means where no code of the vendor says more. What matters is whether the message
//! was certainly not accepted.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use jiff::tz::TimeZone;

use super::times;
use crate::broken::Defect;
use crate::sms::{Class, Failure, Outcome, Timestamp};

/// A longer `Retry-After` is cut to this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// Whether the status leaves it open if the message was accepted, and a vendor can document that it was not. Routers in
/// front of an application send these also when the application already has the request.
pub(super) fn is_doubtful(status: u16) -> bool {
    matches!(status, 408 | 500..=599) && !matches!(status, 501 | 505)
}

/// The outcome of a message that no status accepts.
pub(super) fn outcome(
    status: StatusCode,
    retry_after: Option<Duration>,
    reason: String,
) -> Outcome {
    let class = match status.as_u16() {
        503 if Defect::CertainStatus.is_on() => Class::Unavailable,
        status if is_doubtful(status) => Class::Unknown,
        // Credentials, credit, URL or form of the request: every message would get the same status.
        300..=399 | 401..=407 | 410 | 415 | 421 | 426 | 501 | 505 => Class::Account,
        425 | 429 => Class::Throttle,
        400..=499 => Class::Content,
        _ => Class::Unknown,
    };
    outcome_of(Failure::new(class, reason), retry_after, false)
}

/// The outcome of a message that was not accepted, by the class of its failure.
pub(super) fn outcome_of(failure: Failure, retry_after: Option<Duration>, listed: bool) -> Outcome {
    match failure.class {
        Class::Account => Outcome::AccountError { failure, listed },
        Class::Throttle => Outcome::Throttled {
            failure,
            retry_after,
        },
        Class::Cap => Outcome::Deferred {
            failure,
            retry_after,
        },
        Class::Unavailable => Outcome::Unavailable {
            failure,
            retry_after,
        },
        Class::Recipient | Class::Content | Class::OptedOut => Outcome::Rejected(failure),
        _ => Outcome::Unknown(failure),
    }
}

/// Header `Retry-After`, in seconds or as an HTTP date, counted from `now`; at most a day.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is longer than the maximum.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        times::parse(text, &TimeZone::UTC)?.since(now)
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// Header `Date`, the vendor's clock.
pub(super) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(header::DATE)?.to_str().ok()?;
    times::parse(text, &TimeZone::UTC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Accepted(_) => "accepted",
            Outcome::Duplicate(_) => "duplicate",
            Outcome::Rejected(failure) => failure.class.as_str(),
            Outcome::BatchRejected(_) => "batch_rejected",
            Outcome::Throttled { .. } => "throttled",
            Outcome::Deferred { .. } => "deferred",
            Outcome::Unavailable { .. } => "unavailable",
            Outcome::Unknown(_) => "unknown",
            Outcome::AccountError { listed: true, .. } => "account error, listed",
            Outcome::AccountError { listed: false, .. } => "account error",
        }
    }

    fn word_of(status: u16) -> &'static str {
        let status = StatusCode::from_u16(status).expect("a status");
        word(&outcome(status, None, String::new()))
    }

    #[test]
    fn every_status_has_an_outcome() {
        for (statuses, expected) in [
            (vec![100, 101, 199, 200, 202, 204, 226, 299], "unknown"),
            (vec![301, 302, 304, 307, 308], "account error"),
            (vec![400, 409, 413, 414, 418, 422, 451, 499], "content"),
            (vec![401, 402, 403, 407], "account error"),
            (
                vec![404, 405, 406, 410, 415, 421, 426, 501, 505],
                "account error",
            ),
            (vec![425, 429], "throttled"),
            (vec![408, 500, 502, 503, 504, 507, 520, 599], "unknown"),
            (vec![600, 999], "unknown"),
        ] {
            for status in statuses {
                assert_eq!(word_of(status), expected, "{status}");
            }
        }
    }

    fn wait(value: &str, now: i64) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, value.parse().expect("a header value"));
        retry_after(&headers, Timestamp::from_millis(now))
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date() {
        // 1994-11-06T08:49:37Z
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let at = 784_111_777_000;
        assert_eq!(wait("7", 0), Some(Duration::from_secs(7)));
        assert_eq!(wait(" 0 ", 0), Some(Duration::ZERO));
        assert_eq!(wait(date, at - 1_500), Some(Duration::from_millis(1_500)));
        assert_eq!(wait(date, at + 1), Some(Duration::ZERO));
        assert_eq!(wait(date, 0), Some(MAX_RETRY_AFTER));
        assert_eq!(wait("99999999999999999999999", 0), Some(MAX_RETRY_AFTER));
        for invalid in ["", "-1", "soon", "1.5"] {
            assert_eq!(wait(invalid, 0), None, "{invalid}");
        }
    }

    #[test]
    fn date_is_the_clock_of_the_vendor() {
        let mut headers = HeaderMap::new();
        assert_eq!(date(&headers), None);
        let value = "Sun, 06 Nov 1994 08:49:37 GMT".parse();
        headers.insert(header::DATE, value.expect("a header value"));
        assert_eq!(
            date(&headers),
            Some(Timestamp::from_millis(784_111_777_000))
        );
    }

    proptest! {
        #[test]
        fn status_alone_never_accepts(status in 100_u16..1000) {
            prop_assert_ne!(word_of(status), "accepted");
        }

        #[test]
        fn retry_after_is_never_longer_than_a_day(text in "[ -~]{0,30}", now in any::<i64>()) {
            prop_assert!(wait(&text, now).is_none_or(|wait| wait <= MAX_RETRY_AFTER));
        }
    }
}
