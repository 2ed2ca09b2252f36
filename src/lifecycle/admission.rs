//! Whether a claimed message can be sent, and when.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use smsq_message::phone::{Dialling, Phone};
use smsq_message::route::Division;
use smsq_message::sms::{Class, Failure, Sms, Timestamp};
use smsq_message::text::{content, segments};
use smsq_message::window::{Recipient, SendWindow, Span};

use super::Admission;
use super::resend::ResendRule;
use super::transition::BEFORE_WINDOW;

/// A message that is claimed later than this before its window closes could not start any more.
pub const CLOSING: Duration = Duration::from_millis(250);

/// The rules that claimed messages are checked against.
#[derive(Clone, Debug, Default)]
pub struct AdmissionRules {
    /// How phones are read that another program wrote, and to which countries messages are sent.
    pub dialling: Dialling,
    /// By campaign. A campaign without a window may send at any time.
    pub windows: HashMap<i64, SendWindow>,
    /// By the name of the provider.
    pub providers: HashMap<String, ProviderRules>,
    /// By campaign: the lanes of its senders.
    pub divisions: HashMap<i64, Arc<Division>>,
}

/// The rules for the messages that one provider sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProviderRules {
    pub resends: ResendRule,
    /// Recipients get a template of the provider instead of the text of the message.
    pub by_template: bool,
}

impl AdmissionRules {
    /// Checks a message for its provider. An import has parsed the phones of its messages. `tolerance` is at least twice
    /// the error of the clock.
    pub fn admit(
        &self,
        sms: &Sms,
        provider: &str,
        is_imported: bool,
        now: Timestamp,
        tolerance: Duration,
    ) -> Admission {
        let expires_by = |at: Timestamp| sms.expires_at.is_some_and(|expires_at| expires_at <= at);
        let fail = |class, reason: String| Admission::Fail(Failure::new(class, reason));
        if expires_by(now) {
            return fail(Class::Expired, "expired before it was sent".to_owned());
        }
        let rules = self.providers.get(provider).copied().unwrap_or_default();
        let resends = rules.resends;
        if !resends.allows(sms, now) {
            return Admission::Fail(resends.refusal(sms));
        }
        let stored = is_imported.then(|| Phone::stored(&sms.phone)).flatten();
        let phone = match stored.map_or_else(|| Phone::parse(&sms.phone, self.dialling), Ok) {
            Ok(phone) => phone,
            Err(error) => return fail(Class::Recipient, error.to_string()),
        };
        if !rules.by_template
            && let Err(error) = content::check_characters(&sms.content)
        {
            return fail(Class::Content, error.to_string());
        }
        let opens_at = self.windows.get(&sms.campaign_id).and_then(|window| {
            let recipient = Recipient { phone: phone.as_str(), params: &sms.params };
            opens_at(|at| window.for_one(recipient, at), now, tolerance)
        });
        match opens_at {
            Some(until) if expires_by(until) => fail(Class::Expired, BEFORE_WINDOW.to_owned()),
            Some(until) => Admission::Wait { phone, until },
            None => Admission::Send {
                phone,
                segments: sms.segments.unwrap_or_else(|| segments::count(&sms.content).count),
            },
        }
    }
}

/// When messages may start; `None`: now. Instants within `tolerance` of an edge of the window count as outside.
pub fn opens_at(
    span_at: impl Fn(Timestamp) -> Span,
    now: Timestamp,
    tolerance: Duration,
) -> Option<Timestamp> {
    let mut span = span_at(now.minus(tolerance));
    if now.plus(CLOSING) >= span.closes_at {
        span = span_at(span.closes_at);
    }
    let opens_at = span.opens_at.plus(tolerance);
    (now < opens_at).then_some(opens_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sms;

    const TOLERANCE: Duration = Duration::from_millis(10);
    const HOUR: i64 = 3_600_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn admit(rules: &AdmissionRules, sms: &Sms, now: i64) -> Admission {
        rules.admit(sms, "cellar", false, at(now), TOLERANCE)
    }

    fn rules_of(provider: &str, rules: ProviderRules) -> AdmissionRules {
        AdmissionRules {
            providers: HashMap::from([(provider.to_owned(), rules)]),
            ..AdmissionRules::default()
        }
    }

    /// The class of its failure; `None` if it is sent.
    fn refused(rules: &AdmissionRules, sms: &Sms, now: i64) -> Option<Class> {
        match admit(rules, sms, now) {
            Admission::Fail(failure) => Some(failure.class),
            Admission::Send { .. } => None,
            waits @ Admission::Wait { .. } => panic!("{waits:?}"),
        }
    }

    fn waits_until(admission: &Admission) -> Option<Timestamp> {
        match admission {
            Admission::Wait { until, .. } => Some(*until),
            Admission::Send { .. } => None,
            Admission::Fail(failure) => panic!("{failure:?}"),
        }
    }

    #[test]
    fn message_has_its_stored_segments_or_those_of_its_text() {
        for (segments, content, expected) in [
            (Some(3), "hello".to_owned(), 3),
            (None, "hello".to_owned(), 1),
            (None, "x".repeat(161), 2),
        ] {
            let sms = Sms { content, segments, ..sms() };
            let Admission::Send { phone, segments } = admit(&AdmissionRules::default(), &sms, 0)
            else {
                panic!("not sent");
            };
            assert_eq!((phone.as_str(), segments), ("+12025550123", expected));
        }
    }

    #[test]
    fn message_fails_from_the_instant_at_which_it_expires() {
        let sms = Sms { expires_at: Some(at(1_000)), ..sms() };
        let rules = AdmissionRules::default();
        assert_eq!(refused(&rules, &sms, 999), None);
        assert_eq!(refused(&rules, &sms, 1_000), Some(Class::Expired));
        assert_eq!(refused(&rules, &sms, 1_001), Some(Class::Expired));
    }

    #[test]
    fn message_in_doubt_is_admitted_by_the_rule_of_its_provider() {
        let sms = Sms { in_doubt: true, doubt_since: Some(at(0)), ..sms() };
        let rules = |provider| {
            rules_of(
                provider,
                ProviderRules {
                    resends: ResendRule::Within(Duration::from_secs(1)),
                    ..ProviderRules::default()
                },
            )
        };
        assert_eq!(refused(&rules("cellar"), &sms, 999), None);
        let late = refused(&rules("cellar"), &sms, 1_000);
        assert_eq!(late, Some(Class::Unknown));
        assert_eq!(refused(&rules("attic"), &sms, 999), Some(Class::Unknown));
    }

    #[test]
    fn imported_phone_is_not_parsed_again() {
        let rules = AdmissionRules::default();
        let sms = Sms { phone: "+199999".to_owned(), ..sms() };
        assert_eq!(refused(&rules, &sms, 0), Some(Class::Recipient));
        let imported = rules.admit(&sms, "cellar", true, at(0), TOLERANCE);
        assert!(matches!(imported, Admission::Send { .. }), "{imported:?}");
    }

    #[test]
    fn phone_without_a_country_code_is_of_the_region() {
        let sms = Sms { phone: "07400 123456".to_owned(), ..sms() };
        let rules = AdmissionRules {
            dialling: Dialling::from("GB".parse().ok()),
            ..AdmissionRules::default()
        };
        let Admission::Send { phone, .. } = admit(&rules, &sms, 0) else {
            panic!("not sent");
        };
        assert_eq!(phone.as_str(), "+447400123456");
        let without = AdmissionRules::default();
        assert_eq!(refused(&without, &sms, 0), Some(Class::Recipient));
    }

    #[test]
    fn invalid_text_fails_unless_the_provider_has_a_template() {
        let rules = AdmissionRules::default();
        let by_template =
            rules_of("cellar", ProviderRules { by_template: true, ..ProviderRules::default() });
        for content in ["", " ", "a\u{0}b"] {
            let sms = Sms { content: content.to_owned(), ..sms() };
            assert_eq!(refused(&rules, &sms, 0), Some(Class::Content), "{content:?}");
            assert_eq!(refused(&by_template, &sms, 0), None, "{content:?}");
        }
    }

    #[test]
    fn message_waits_for_its_window_with_tolerance_at_both_edges() {
        // In UTC it is open from 1:00 to 12:00.
        let window = "09:00-20:00 daily Asia/Shanghai".parse().expect("a window");
        let rules =
            AdmissionRules { windows: HashMap::from([(1, window)]), ..AdmissionRules::default() };
        let opens = HOUR + 10;
        let closes = 12 * HOUR - 250;
        for (now, until) in [
            (0, Some(opens)),
            (opens - 1, Some(opens)),
            (opens, None),
            (closes - 1, None),
            (closes, Some(opens + 24 * HOUR)),
        ] {
            let admission = admit(&rules, &sms(), now);
            assert_eq!(waits_until(&admission), until.map(at), "{now}");
        }
        let elsewhere = Sms { campaign_id: 2, ..sms() };
        assert_eq!(refused(&rules, &elsewhere, 0), None);
        let expires = |expires_at| Sms { expires_at: Some(at(expires_at)), ..sms() };
        let later = admit(&rules, &expires(opens + 1), 0);
        assert_eq!(waits_until(&later), Some(at(opens)));
        let Admission::Fail(failure) = admit(&rules, &expires(opens), 0) else {
            panic!("it does not fail");
        };
        assert_eq!((failure.class, failure.reason.as_str()), (Class::Expired, BEFORE_WINDOW));
    }
}
