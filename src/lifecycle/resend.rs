//! Until when a message that may have been accepted may be sent again. The time is counted from its first doubt, so no
//! resend restarts it.

use std::time::Duration;

use smsq_message::defect::Defect;
use smsq_message::sms::{Class, Failure, Sms, Timestamp};

/// When a worker sends messages in doubt again, unless an operator has approved it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResendRule {
    /// Its provider may accept a reference twice.
    #[default]
    Never,
    /// From the first doubt, while a request certainly arrives before the provider forgets its reference.
    Within(Duration),
    /// The operator takes the risk of a second message.
    Always,
}

impl ResendRule {
    /// Until when a message may be sent again that is in doubt since then. Where that is not known, it may not.
    pub fn end(self, doubt_since: Option<Timestamp>) -> Timestamp {
        let never = Timestamp::from_millis(i64::MIN);
        match self {
            Self::Never => never,
            Self::Within(_) if Defect::LateResend.is_on() => Self::Always.end(doubt_since),
            Self::Within(span) => doubt_since.map_or(never, |since| since.plus(span)),
            Self::Always => Timestamp::from_millis(i64::MAX),
        }
    }

    /// Whether the message may be sent now, as far as an earlier attempt matters.
    pub fn allows(self, sms: &Sms, now: Timestamp) -> bool {
        let knows_reference = !sms.tried_elsewhere || self == Self::Always;
        let may_repeat = sms.resend_approved || now < self.end(sms.doubt_since);
        !sms.in_doubt || (knows_reference && may_repeat)
    }

    /// Why a message must not be sent again.
    pub fn refusal(self, sms: &Sms) -> Failure {
        let reason = match (self, sms.doubt_since) {
            _ if sms.tried_elsewhere => {
                "an attempt through another provider may have been accepted".to_owned()
            }
            (Self::Within(_), Some(since)) => format!(
                "it may have been accepted at {since}, and its provider does not remember its reference for longer"
            ),
            _ => "an earlier attempt may have been accepted, and its provider may accept it again"
                .to_owned(),
        };
        Failure::new(Class::Unknown, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const SPAN: Duration = Duration::from_secs(60);

    fn sms(doubt_since: Option<i64>) -> Sms {
        Sms {
            in_doubt: true,
            doubt_since: doubt_since.map(Timestamp::from_millis),
            ..testing::sms()
        }
    }

    #[test]
    fn message_in_doubt_is_resent_only_within_its_span() {
        let at = Timestamp::from_millis;
        let within = ResendRule::Within(SPAN);
        assert!(within.allows(&sms(Some(1_000)), at(60_999)));
        assert!(!within.allows(&sms(Some(1_000)), at(61_000)));
        assert!(!within.allows(&sms(None), at(0)));
        assert!(!ResendRule::Never.allows(&sms(Some(1_000)), at(1_000)));
        assert!(ResendRule::Always.allows(&sms(None), at(i64::MAX - 1)));
    }

    #[test]
    fn message_tried_elsewhere_is_resent_only_at_the_operators_risk() {
        let elsewhere = Sms { tried_elsewhere: true, ..sms(Some(1_000)) };
        let now = Timestamp::from_millis(1_000);
        assert!(!ResendRule::Within(SPAN).allows(&elsewhere, now));
        assert!(ResendRule::Always.allows(&elsewhere, now));
    }

    #[test]
    fn certain_or_approved_message_is_always_allowed() {
        let certain = Sms { in_doubt: false, ..sms(None) };
        let approved = Sms { resend_approved: true, ..sms(Some(0)) };
        let elsewhere = Sms { tried_elsewhere: true, ..approved.clone() };
        assert!(!ResendRule::Within(SPAN).allows(&elsewhere, Timestamp::default()));
        for sms in [certain, approved] {
            for rule in [ResendRule::Never, ResendRule::Within(SPAN)] {
                assert!(rule.allows(&sms, Timestamp::from_millis(1_000_000)));
            }
        }
    }

    #[test]
    fn resend_ends_a_span_after_the_first_doubt() {
        let ends = |rule: ResendRule| {
            [None, Some(1_000)].map(|since| rule.end(since.map(Timestamp::from_millis)).as_millis())
        };
        assert_eq!(ends(ResendRule::Never), [i64::MIN; 2]);
        assert_eq!(ends(ResendRule::Within(SPAN)), [i64::MIN, 61_000]);
        assert_eq!(ends(ResendRule::Always), [i64::MAX; 2]);
    }

    #[test]
    fn refusal_says_what_may_have_been_accepted() {
        let elsewhere = Sms { tried_elsewhere: true, ..sms(Some(1_000)) };
        let within = ResendRule::Within(SPAN);
        for (rule, sms, expected) in [
            (within, &elsewhere, "through another provider"),
            (within, &sms(Some(1_000)), "at 1970-01-01T00:00:01Z"),
            (within, &sms(None), "an earlier attempt"),
            (ResendRule::Never, &sms(Some(1_000)), "an earlier attempt"),
        ] {
            let refusal = rule.refusal(sms);
            assert_eq!(refusal.class, Class::Unknown);
            assert!(refusal.reason.contains(expected), "{}", refusal.reason);
        }
    }
}
