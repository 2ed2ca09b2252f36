//! Caps on how many messages of all campaigns and workers one recipient gets.

use super::{Admission, Settlement, Transition};
use std::time::Duration;

use smsq_message::phone::Phone;
use smsq_message::rate::Rates;
use smsq_message::sms::{Class, Failure, Sms, Timestamp, millis};

/// The caps, and the instant at which they are checked.
#[derive(Clone, Copy)]
pub struct RecipientCap<'a> {
    pub caps: &'a Rates,
    pub now: Timestamp,
    /// The error of the starts is at most this.
    pub tolerance: Duration,
}

impl RecipientCap<'_> {
    /// Checks a message against earlier starts to its phone. `None`: it may start. Otherwise returns what to do with
    /// it, and the instant that counts as its start.
    pub fn check(self, sms: &Sms, phone: &Phone, starts: &[i64]) -> Option<(Admission, i64)> {
        let at = self.earliest(starts)?;
        if at <= self.now.minus(self.tolerance).as_millis() {
            return None;
        }
        let until = Timestamp::from_millis(at).plus(self.tolerance);
        let admission = if sms.expires_at.is_some_and(|expires_at| expires_at <= until) {
            let why = "expires before the recipient cap allows it";
            Admission::Fail(Failure::new(Class::Expired, why))
        } else {
            let phone = phone.clone();
            Admission::Wait { phone, until }
        };
        Some((admission, until.as_millis()))
    }

    /// The first instant at which a start exceeds no cap; `None`: any.
    fn earliest(self, starts: &[i64]) -> Option<i64> {
        let mut newest_first = starts.to_vec();
        newest_first.sort_unstable_by(|one, other| other.cmp(one));
        let caps = self.caps.0.iter();
        caps.filter_map(|cap| {
            let nth = usize::try_from(cap.limit.get()).ok()?.checked_sub(1)?;
            let start = newest_first.get(nth)?;
            Some(start.saturating_add(millis(cap.window)))
        })
        .max()
    }
}

/// Whether the request of the claim may have reached the recipient; `None` if it has no result.
pub fn may_have_reached(settlement: &Settlement) -> Option<bool> {
    match &settlement.transition {
        Transition::Sent(_) | Transition::Unknown(_) | Transition::Ready { in_doubt: true, .. } => {
            Some(true)
        }
        Transition::Failed(_)
        | Transition::FoundRejected(_)
        | Transition::FoundAbsent(_)
        | Transition::Ready { .. } => Some(false),
        Transition::NotAdmitted(_) | Transition::Refunded => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smsq_limit::MIN_TOLERANCE;
    use smsq_message::sms::Acceptance;

    use super::*;
    use crate::testing::sms;

    fn earliest(caps: &str, starts: &[i64]) -> Option<i64> {
        let caps = caps.parse().expect("rates");
        let cap = RecipientCap {
            caps: &caps,
            now: Timestamp::from_millis(100_000),
            tolerance: MIN_TOLERANCE,
        };
        cap.earliest(starts)
    }

    #[test]
    fn strictest_cap_decides() {
        let starts = [10_000, 60_000, 90_000];
        for (caps, at) in [
            ("1/30s", Some(120_000)),
            ("2/30s", Some(90_000)),
            ("3/60s", Some(70_000)),
            ("4/day", None),
            ("1/30s,3/60s", Some(120_000)),
        ] {
            assert_eq!(earliest(caps, &starts), at, "{caps}");
        }
    }

    #[test]
    fn message_waits_until_a_cap_allows_it_or_expires() {
        let caps = "1/30s".parse().expect("rates");
        let check = |now: i64, expires_at: Option<i64>, starts: &[i64]| {
            let cap = RecipientCap {
                caps: &caps,
                now: Timestamp::from_millis(now),
                tolerance: MIN_TOLERANCE,
            };
            let sms = Sms { expires_at: expires_at.map(Timestamp::from_millis), ..sms() };
            let phone = Phone::stored(&sms.phone).expect("a phone");
            cap.check(&sms, &phone, starts)
                .map(|(admission, at)| (matches!(admission, Admission::Wait { .. }), at))
        };
        assert_eq!(check(0, None, &[]), None);
        for (now, expires_at, expected) in [
            (120_010, None, None),
            (120_010, Some(1), None),
            (120_009, None, Some((true, 120_010))),
            (120_009, Some(120_011), Some((true, 120_010))),
            (120_009, Some(120_010), Some((false, 120_010))),
        ] {
            assert_eq!(check(now, expires_at, &[90_000]), expected, "{now}");
        }
    }

    #[test]
    fn only_certain_results_have_not_reached_the_recipient() {
        let failure = || Failure::new(Class::Recipient, "why");
        let ready = |in_doubt| Transition::Ready {
            due_at: Timestamp::default(),
            failure: Some(failure()),
            counted: true,
            in_doubt,
        };
        for (transition, expected) in [
            (Transition::Sent(Acceptance::default()), Some(true)),
            (Transition::Unknown(failure()), Some(true)),
            (ready(true), Some(true)),
            (ready(false), Some(false)),
            (Transition::Failed(failure()), Some(false)),
            (Transition::FoundRejected(failure()), Some(false)),
            (Transition::FoundAbsent(failure()), Some(false)),
            (Transition::NotAdmitted(failure()), None),
            (Transition::Refunded, None),
        ] {
            let settlement = Settlement { id: 1, claim: 1, provider: String::new(), transition };
            assert_eq!(may_have_reached(&settlement), expected, "{settlement:?}");
        }
    }

    proptest! {
        #[test]
        fn starts_at_the_permitted_instants_never_exceed_a_cap(
            count in 1_u32..4,
            window in 1_i64..20,
            waits in prop::collection::vec(0_i64..30_000, 1..30),
        ) {
            let caps = format!("{count}/{window}s");
            let mut starts: Vec<i64> = Vec::new();
            let mut now = 0;
            for wait in waits {
                now = earliest(&caps, &starts).map_or(now + wait, |at| at.max(now + wait));
                starts.push(now);
            }
            let count = count as usize;
            let full = starts.windows(count + 1).any(|some| some[count] < some[0] + window * 1_000);
            prop_assert!(!full, "{starts:?}");
        }
    }
}
