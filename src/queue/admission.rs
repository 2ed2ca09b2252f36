//! Whether a claimed message can be sent, and when.

use std::time::Duration;

use super::Admission;
use crate::phone::{Phone, Region};
use crate::sms::{Class, Failure, Sms, Timestamp};
use crate::text::{content, segments};
use crate::window::{Recipient, SendWindow, Span};

/// A message that is claimed later than this before its window closes could not start any more.
pub const CLOSING: Duration = Duration::from_millis(250);

/// What a claimed message is checked against.
pub struct AdmissionRules<'a> {
    pub now: Timestamp,
    /// At least twice the clock's error.
    pub tolerance: Duration,
    /// The region of phones without a country code.
    pub region: Option<Region>,
    /// The campaign's.
    pub window: Option<&'a SendWindow>,
    /// The recipient reads the message's text, not a template that the provider has.
    pub sends_content: bool,
}

impl AdmissionRules<'_> {
    pub fn admit(&self, sms: &Sms) -> Admission {
        let expires_by = |at: Timestamp| sms.expires_at.is_some_and(|expires_at| expires_at <= at);
        let fail = |class, reason: String| Admission::Fail(Failure::new(class, reason));
        if expires_by(self.now) {
            return fail(
                Class::Expired,
                "its time ran out before it was sent".to_owned(),
            );
        }
        let phone = match Phone::parse(&sms.phone, self.region) {
            Ok(phone) => phone,
            Err(error) => return fail(Class::Recipient, error.to_string()),
        };
        if self.sends_content
            && let Err(error) = content::check_characters(&sms.content)
        {
            return fail(Class::Content, error.to_string());
        }
        match self.opens_at(sms, &phone) {
            Some(until) if expires_by(until) => {
                let why = "its time runs out before its window opens again";
                fail(Class::Expired, why.to_owned())
            }
            Some(until) => Admission::Wait { phone, until },
            None => Admission::Send {
                phone,
                segments: sms
                    .segments
                    .unwrap_or_else(|| segments::count(&sms.content).count),
            },
        }
    }

    fn opens_at(&self, sms: &Sms, phone: &Phone) -> Option<Timestamp> {
        let window = self.window?;
        let recipient = Recipient {
            phone: phone.as_str(),
            params: &sms.params,
        };
        opens_at(|at| window.for_one(recipient, at), self.now, self.tolerance)
    }
}

/// When messages may start; `None`: now. Instants within `tolerance` of an edge of the window count as
/// outside.
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
