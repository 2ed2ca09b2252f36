//! What an answer means when its provider says nothing more of it than the HTTP status. Total and pure.
//! The question behind every line is whether the message was certainly not accepted.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};

use crate::sms::{Acceptance, Class, Failure, Outcome, Timestamp};

/// The longest wait that an answer can ask for.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// The outcome by status alone: `accepted` and `unknown` are the provider's own lists, and `retry_after`
/// is what the answer asked for.
pub fn by_status(
    status: StatusCode,
    accepted: &[u16],
    unknown: &[u16],
    retry_after: Option<Duration>,
    reason: String,
) -> Outcome {
    let failure = |class| Failure::new(class, reason);
    if accepted.contains(&status.as_u16()) {
        return Outcome::Accepted(Acceptance::default());
    }
    if unknown.contains(&status.as_u16()) {
        return Outcome::Unknown(failure(Class::Unknown));
    }
    match status.as_u16() {
        // The credentials, the credit, the address or the form of the request: every message gets the same.
        300..=399 | 401..=407 | 410 | 415 | 421 | 426 | 501 | 505 => Outcome::AccountError {
            failure: failure(Class::Account),
            listed: false,
        },
        408 | 503 => Outcome::Unavailable {
            failure: failure(Class::Unavailable),
            retry_after,
        },
        425 | 429 => Outcome::Throttled {
            failure: failure(Class::Throttle),
            retry_after,
        },
        400..=499 => Outcome::Rejected(failure(Class::Content)),
        _ => Outcome::Unknown(failure(Class::Unknown)),
    }
}

/// Header `Retry-After`, in seconds or as an HTTP date, counted from `now`; at most a day.
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a wait beyond the cap.
        Duration::from_secs(
            text.parse()
                .ok()
                .or((!text.is_empty()).then_some(u64::MAX))?,
        )
    } else {
        moment(text)?.since(now)
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// Header `Date`: the vendor's clock.
pub(super) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    moment(headers.get(header::DATE)?.to_str().ok()?)
}

/// An HTTP date.
fn moment(text: &str) -> Option<Timestamp> {
    let instant = httpdate::parse_http_date(text.trim()).ok()?;
    let instant = instant.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(crate::sms::millis(instant)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Accepted(_) => "accepted",
            Outcome::Rejected(failure) => failure.class.as_str(),
            Outcome::BatchRejected(_) => "apart",
            Outcome::Throttled { .. } => "throttled",
            Outcome::Deferred { .. } => "capped",
            Outcome::Unavailable { .. } => "unavailable",
            Outcome::Unknown(_) => "unknown",
            Outcome::AccountError { listed: true, .. } => "refused at once",
            Outcome::AccountError { listed: false, .. } => "refused",
        }
    }

    fn verdict(status: u16) -> &'static str {
        let status = StatusCode::from_u16(status).expect("a status");
        word(&by_status(status, &[200, 201], &[503], None, String::new()))
    }

    #[test]
    fn every_status_has_its_verdict() {
        for (statuses, expected) in [
            (vec![200, 201], "accepted"),
            (vec![100, 101, 199, 202, 204, 226, 299], "unknown"),
            (vec![301, 302, 304, 307, 308], "refused"),
            (vec![400, 409, 413, 414, 418, 422, 451, 499], "content"),
            (vec![401, 402, 403, 407], "refused"),
            (vec![404, 405, 406, 410, 415, 421, 426, 501, 505], "refused"),
            (vec![408], "unavailable"),
            (vec![425, 429], "throttled"),
            (vec![500, 502, 504, 507, 520, 599, 600, 999], "unknown"),
            (vec![503], "unknown"),
        ] {
            for status in statuses {
                assert_eq!(verdict(status), expected, "{status}");
            }
        }
        let plain = by_status(
            StatusCode::SERVICE_UNAVAILABLE,
            &[],
            &[],
            None,
            String::new(),
        );
        assert_eq!(word(&plain), "unavailable");
    }

    fn asked(value: &str, now: i64) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, value.parse().expect("a header value"));
        retry_after(&headers, Timestamp::from_millis(now))
    }

    #[test]
    fn a_wait_is_read_in_seconds_and_as_a_date() {
        // 1994-11-06T08:49:37Z
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let at = 784_111_777_000;
        assert_eq!(asked("7", 0), Some(Duration::from_secs(7)));
        assert_eq!(asked(" 0 ", 0), Some(Duration::ZERO));
        assert_eq!(asked(date, at - 1_500), Some(Duration::from_millis(1_500)));
        assert_eq!(asked(date, at + 1), Some(Duration::ZERO));
        assert_eq!(asked(date, 0), Some(MAX_RETRY_AFTER));
        assert_eq!(asked("99999999999999999999999", 0), Some(MAX_RETRY_AFTER));
        for nonsense in ["", "-1", "soon", "1.5"] {
            assert_eq!(asked(nonsense, 0), None, "{nonsense}");
        }
    }

    proptest! {
        #[test]
        fn only_a_listed_status_is_accepted(status in 100_u16..1000) {
            prop_assert_eq!(verdict(status) == "accepted", [200, 201].contains(&status));
        }

        #[test]
        fn a_wait_is_never_longer_than_a_day(text in "[ -~]{0,30}", now in any::<i64>()) {
            prop_assert!(asked(&text, now).is_none_or(|wait| wait <= MAX_RETRY_AFTER));
        }
    }
}
