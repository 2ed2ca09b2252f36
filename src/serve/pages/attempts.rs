//! The attempts of a message, as the search shows them: those that were not accepted, and the one that was.

use serde::Serialize;
use smsq_message::sms::Timestamp;
use smsq_store::{FailedAttempt, FoundSms, KEPT_ATTEMPTS};

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct AttemptLine<'a> {
    /// When its result was stored.
    pub(super) at: Timestamp,
    /// `retry`, `throttled`, `failed`, `unknown` or `sent`.
    pub(super) outcome: &'a str,
    /// It was unknown at first, and was found to be accepted later.
    pub(super) is_found_accepted: bool,
    /// Empty: it is not known.
    pub(super) provider: &'a str,
    pub(super) class: Option<&'a str>,
    pub(super) code: Option<&'a str>,
    pub(super) reason: Option<&'a str>,
}

/// The attempts of a message, the oldest first. `failed` are those of this message that were not accepted.
pub(super) fn attempts<'a>(
    message: &'a FoundSms,
    failed: impl Iterator<Item = &'a FailedAttempt>,
) -> Vec<AttemptLine<'a>> {
    let accepted = message.accepted_claims();
    let mut lines: Vec<AttemptLine<'a>> = failed
        .map(|attempt| AttemptLine {
            at: attempt.at,
            outcome: &attempt.outcome,
            is_found_accepted: accepted.contains(&attempt.claim),
            provider: &attempt.provider,
            class: Some(&attempt.class),
            code: attempt.code.as_deref(),
            reason: Some(&attempt.reason),
        })
        .collect();
    if message.state == "sent" && !lines.iter().any(|line| line.is_found_accepted) {
        lines.push(AttemptLine {
            at: message.at,
            outcome: "sent",
            is_found_accepted: false,
            provider: message.provider.as_deref().unwrap_or_default(),
            class: None,
            code: None,
            reason: None,
        });
    }
    lines
}

/// Whether there may be earlier attempts that are not kept.
pub(super) fn may_have_earlier(lines: &[AttemptLine<'_>]) -> bool {
    let failed = lines.iter().filter(|line| line.class.is_some());
    failed.count() >= usize::from(KEPT_ATTEMPTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_763_715_600_000);

    fn message(state: &str, accepted_claims: Option<&str>) -> FoundSms {
        FoundSms {
            id: 1,
            campaign_id: 1,
            import_id: None,
            phone: "+447400123456".to_owned(),
            content: None,
            state: state.to_owned(),
            segments: Some(1),
            attempts: 2,
            reference: None,
            provider: Some("cellar".to_owned()).filter(|_| state == "sent"),
            message_id: None,
            accepted_claims: accepted_claims.map(str::to_owned),
            class: None,
            code: None,
            reason: None,
            delivery: None,
            created_at: NOW,
            at: NOW,
        }
    }

    fn failed(claim: i64, outcome: &str) -> FailedAttempt {
        FailedAttempt {
            sms_id: 1,
            claim,
            at: NOW,
            provider: "cellar".to_owned(),
            outcome: outcome.to_owned(),
            class: "unavailable".to_owned(),
            code: None,
            reason: "busy".to_owned(),
            reference: None,
        }
    }

    fn outcomes(message: &FoundSms, failed: &[FailedAttempt]) -> Vec<String> {
        let lines = attempts(message, failed.iter());
        let shown = lines.iter().map(|line| {
            let later = if line.is_found_accepted { ", accepted" } else { "" };
            format!("{}{later}", line.outcome)
        });
        shown.collect()
    }

    #[test]
    fn accepted_attempt_is_the_last_one() {
        let before = [failed(1, "throttled"), failed(3, "failed")];
        let all = outcomes(&message("sent", Some("4")), &before);
        assert_eq!(all, ["throttled", "failed", "sent"]);
        assert_eq!(outcomes(&message("queued", None), &before), all[..2]);
        assert_eq!(outcomes(&message("sent", Some("1")), &[]), ["sent"]);
        assert_eq!(outcomes(&message("sending", None), &[]), [""; 0]);
    }

    #[test]
    fn unknown_attempt_that_was_accepted_is_shown_once() {
        let before = [failed(1, "retry"), failed(2, "unknown")];
        let found = outcomes(&message("sent", Some("2")), &before);
        assert_eq!(found, ["retry", "unknown, accepted"]);
        // Which attempt was accepted is not known where an operator settled the message.
        let settled = outcomes(&message("sent", None), &before);
        assert_eq!(settled, ["retry", "unknown", "sent"]);
    }

    #[test]
    fn full_list_may_have_earlier_attempts() {
        let sent = message("sent", Some("99"));
        let before: Vec<_> = (0..20).map(|claim| failed(claim, "retry")).collect();
        assert!(may_have_earlier(&attempts(&sent, before.iter())));
        assert!(!may_have_earlier(&attempts(&sent, before[1..].iter())));
    }
}
