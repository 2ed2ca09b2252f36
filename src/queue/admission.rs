//! Whether a claimed message can be sent, and when.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::Admission;
use super::resend::ResendRule;
use super::transition::BEFORE_WINDOW;
use crate::phone::{Phone, Region};
use crate::sms::{Class, Failure, Sms, Timestamp};
use crate::text::{content, segments};
use crate::window::{Recipient, SendWindow, Span};

/// A message that is claimed later than this before its window closes could not start any more.
pub const CLOSING: Duration = Duration::from_millis(250);

/// The rules that claimed messages are checked against.
#[derive(Clone, Debug, Default)]
pub struct AdmissionRules {
    /// The region of phones without a country code.
    pub region: Option<Region>,
    /// By campaign. A campaign without a window may send at any time.
    pub windows: HashMap<i64, SendWindow>,
    /// By campaign. Without a rule, no message in doubt is sent again.
    pub resends: HashMap<i64, ResendRule>,
    /// Campaigns whose recipients get a template of the provider instead of the text of the message.
    pub by_template: HashSet<i64>,
}

impl AdmissionRules {
    /// Checks a message. An import has parsed the phones of its messages. `tolerance` is at least twice the error of
    /// the clock.
    pub fn admit(
        &self,
        sms: &Sms,
        is_imported: bool,
        now: Timestamp,
        tolerance: Duration,
    ) -> Admission {
        let expires_by = |at: Timestamp| sms.expires_at.is_some_and(|expires_at| expires_at <= at);
        let fail = |class, reason: String| Admission::Fail(Failure::new(class, reason));
        if expires_by(now) {
            return fail(Class::Expired, "expired before it was sent".to_owned());
        }
        let resends = self.resends.get(&sms.campaign_id).copied();
        let resends = resends.unwrap_or_default();
        if !resends.allows(sms, now) {
            return Admission::Fail(resends.refusal(sms));
        }
        let stored = is_imported.then(|| Phone::stored(&sms.phone)).flatten();
        let phone = match stored.map_or_else(|| Phone::parse(&sms.phone, self.region), Ok) {
            Ok(phone) => phone,
            Err(error) => return fail(Class::Recipient, error.to_string()),
        };
        if !self.by_template.contains(&sms.campaign_id)
            && let Err(error) = content::check_characters(&sms.content)
        {
            return fail(Class::Content, error.to_string());
        }
        let opens_at = self.windows.get(&sms.campaign_id).and_then(|window| {
            let recipient = Recipient {
                phone: phone.as_str(),
                params: &sms.params,
            };
            opens_at(|at| window.for_one(recipient, at), now, tolerance)
        });
        match opens_at {
            Some(until) if expires_by(until) => fail(Class::Expired, BEFORE_WINDOW.to_owned()),
            Some(until) => Admission::Wait { phone, until },
            None => Admission::Send {
                phone,
                segments: sms
                    .segments
                    .unwrap_or_else(|| segments::count(&sms.content).count),
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
