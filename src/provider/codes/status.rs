//! The outcome that an HTTP status means where no code of the vendor says more. What matters is whether the message
//! was certainly not accepted: that is a list of statuses, and every other one leaves it open.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use jiff::tz::TimeZone;
use smsq_message::defect::Defect;
use smsq_message::sms::{Class, Failure, Outcome, Timestamp};

use crate::times;

/// A longer `Retry-After` is cut to this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// A status with which the request was certainly not accepted.
struct CertainStatus {
    status: u16,
    class: Class,
    /// The specification that says so, and its words.
    because: &'static str,
}

const fn certain(status: u16, class: Class, because: &'static str) -> CertainStatus {
    CertainStatus { status, class, because }
}

/// All statuses that are certain by their specification. Every other status leaves it open whether the message was
/// accepted, unless the vendor documents it: redirects answer requests that were processed, routers send 408 and 5xx
/// when the application already has the request, and 409 may mean that it has the message.
///
/// The class is account where every message would get the same status: credentials, credit, URL or form of the request.
const CERTAIN: [CertainStatus; 20] = [
    certain(
        301,
        Class::Account,
        "RFC 9110, 15.4.2: the target resource has been assigned a new permanent URI",
    ),
    certain(
        307,
        Class::Account,
        "RFC 9110, 15.4.8: the target resource resides temporarily under a different URI",
    ),
    certain(
        308,
        Class::Account,
        "RFC 9110, 15.4.9: the target resource has been assigned a new permanent URI",
    ),
    certain(
        400,
        Class::Content,
        "RFC 9110, 15.5.1: the server cannot or will not process the request",
    ),
    certain(
        401,
        Class::Account,
        "RFC 9110, 15.5.2: the request has not been applied because it lacks valid authentication credentials",
    ),
    certain(
        402,
        Class::Account,
        "RFC 9110, 15.5.3, reserves it for payments that are required before a request is processed",
    ),
    certain(
        403,
        Class::Account,
        "RFC 9110, 15.5.4: the server understood the request but refuses to fulfill it",
    ),
    certain(
        404,
        Class::Account,
        "RFC 9110, 15.5.5: the origin server did not find a current representation for the target resource",
    ),
    certain(
        405,
        Class::Account,
        "RFC 9110, 15.5.6: the method is known by the origin server but not supported by the target resource",
    ),
    certain(
        406,
        Class::Account,
        "RFC 9110, 15.5.7: the target resource does not have a current representation that would be acceptable",
    ),
    certain(
        410,
        Class::Account,
        "RFC 9110, 15.5.11: access to the target resource is no longer available at the origin server",
    ),
    certain(
        411,
        Class::Content,
        "RFC 9110, 15.5.12: the server refuses to accept the request without a defined Content-Length",
    ),
    certain(
        413,
        Class::Content,
        "RFC 9110, 15.5.14: the server is refusing to process a request because the request content is larger than it can process",
    ),
    certain(
        414,
        Class::Content,
        "RFC 9110, 15.5.15: the server is refusing to service the request because the target URI is longer than it interprets",
    ),
    certain(
        415,
        Class::Account,
        "RFC 9110, 15.5.16: the origin server is refusing to service the request because the content is in a format not supported",
    ),
    certain(
        422,
        Class::Content,
        "RFC 9110, 15.5.21: the server was unable to process the contained instructions",
    ),
    certain(
        426,
        Class::Account,
        "RFC 9110, 15.5.22: the server refuses to perform the request using the current protocol",
    ),
    certain(
        429,
        Class::Throttle,
        "RFC 6585, 4: the user has sent too many requests in a given amount of time",
    ),
    certain(
        431,
        Class::Content,
        "RFC 6585, 5: the server is unwilling to process the request because its header fields are too large",
    ),
    certain(
        451,
        Class::Content,
        "RFC 7725, 3: the server is denying access to the resource as a consequence of a legal demand",
    ),
];

fn find_certain(status: u16) -> Option<&'static CertainStatus> {
    CERTAIN.iter().find(|certain| certain.status == status)
}

/// Why a request with this status was certainly not accepted; `None`: the status leaves it open.
pub(crate) fn certain_because(status: u16) -> Option<&'static str> {
    find_certain(status).map(|certain| certain.because)
}

/// Whether the status leaves it open if the message was accepted, and a vendor can document that it was not.
pub(crate) fn is_doubtful(status: u16) -> bool {
    matches!(status, 300..=599) && find_certain(status).is_none()
}

/// Whether an application may answer a request of several messages with this status if it rejects some of them: then
/// only the body shows which.
pub(crate) fn may_be_of_a_part(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 422)
}

/// Whether routers send the status while an application is unavailable: then it says nothing about a message.
fn is_of_outage(status: u16) -> bool {
    matches!(status, 408 | 500..=599)
}

/// The outcome of a message that no status accepts.
pub(crate) fn outcome(
    status: StatusCode,
    retry_after: Option<Duration>,
    reason: String,
) -> Outcome {
    let status = status.as_u16();
    let class = match find_certain(status) {
        Some(certain) => certain.class,
        None if status == 503 && Defect::CertainStatus.is_on() => Class::Unavailable,
        None => Class::Unknown,
    };
    let failure = Failure {
        is_answer: class == Class::Unknown && !is_of_outage(status),
        ..Failure::new(class, reason)
    };
    outcome_of(failure, retry_after, false)
}

/// The outcome of a message that was not accepted, by the class of its failure.
pub(crate) fn outcome_of(failure: Failure, retry_after: Option<Duration>, listed: bool) -> Outcome {
    match failure.class {
        Class::Account => Outcome::AccountError { failure, listed },
        Class::Throttle => Outcome::Throttled { failure, retry_after },
        Class::Cap => Outcome::Deferred { failure, retry_after },
        Class::Unavailable => Outcome::Unavailable { failure, retry_after },
        Class::Recipient | Class::Content | Class::OptedOut => Outcome::Rejected(failure),
        _ => Outcome::Unknown(failure),
    }
}

/// Header `Retry-After`, in seconds or as an HTTP date, counted from `now`; at most a day.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is longer than the maximum.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        times::parse(text, &TimeZone::UTC)?.since(now)
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// When the vendor made the response by its own clock: header `Date`, less the `Age` of one from a cache, which may have
/// written `Date` itself.
pub(crate) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let date = times::parse(headers.get(header::DATE)?.to_str().ok()?, &TimeZone::UTC)?;
    let age = headers.get(header::AGE).map(|age| age.to_str().ok());
    let seconds = age.map(|age| age?.trim().parse::<u32>().ok());
    match seconds {
        None => Some(date),
        Some(seconds) => Some(date.minus(Duration::from_secs(seconds?.into()))),
    }
}

/// Whether header `Link` names a next page (RFC 8288).
pub(crate) fn has_next(headers: &HeaderMap) -> bool {
    let is_next = |parameter: &str| {
        let (name, value) = parameter.split_once('=').unwrap_or_default();
        let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
        name.trim().eq_ignore_ascii_case("rel")
            && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
    };
    headers
        .get_all(header::LINK)
        .iter()
        .map(|links| String::from_utf8_lossy(links.as_bytes()))
        .any(|links| links.split([',', ';']).any(is_next))
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
    fn statuses_are_unknown_except_those_of_the_list() {
        let mut others: Vec<u16> = (100..1_000).collect();
        for (statuses, expected) in [
            (vec![301, 307, 308], "account error"),
            (vec![400, 411, 413, 414, 422, 431, 451], "content"),
            (vec![401, 402, 403], "account error"),
            (vec![404, 405, 406, 410, 415, 426], "account error"),
            (vec![429], "throttled"),
        ] {
            for status in statuses {
                assert_eq!(word_of(status), expected, "{status}");
                assert!(!is_doubtful(status), "{status}");
                others.retain(|other| *other != status);
            }
        }
        assert_eq!(others.len(), 900 - CERTAIN.len());
        for status in others {
            assert_eq!(word_of(status), "unknown", "{status}");
        }
    }

    #[test]
    fn certain_statuses_name_their_specification() {
        for CertainStatus { status, because, .. } in CERTAIN {
            assert!(because.starts_with("RFC "), "{status}");
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
        assert_eq!(date(&headers), Some(Timestamp::from_millis(784_111_777_000)));
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
