//! Decides what became of a sent message, given all its receipts.

use std::collections::BTreeMap;

use smsq_message::receipt::{Receipt, ReceiptState};
use smsq_message::sms::{Failure, Timestamp};

/// What became of a sent message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryState {
    /// No receipt has decided yet.
    #[default]
    Awaiting,
    /// As the provider reports it.
    Delivered,
    Undelivered,
    Expired,
    /// No receipt came in time, or the provider does not know.
    NoReport,
}

impl DeliveryState {
    pub const ALL: [Self; 5] =
        [Self::Awaiting, Self::Delivered, Self::Undelivered, Self::Expired, Self::NoReport];

    /// The word in column `sms_sent.delivery_state` and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Awaiting => "awaiting",
            Self::Delivered => "delivered",
            Self::Undelivered => "undelivered",
            Self::Expired => "expired",
            Self::NoReport => "no_report",
        }
    }

    /// What a receipt means for its message or for its part; `None` where it decides nothing.
    fn decided_by(receipt: &Receipt) -> Option<Self> {
        match receipt.state {
            ReceiptState::Delivered => Some(Self::Delivered),
            ReceiptState::Undelivered | ReceiptState::Rejected => Some(Self::Undelivered),
            ReceiptState::Expired => Some(Self::Expired),
            ReceiptState::Accepted | ReceiptState::NoReport | ReceiptState::Unlisted => None,
        }
    }
}

/// What all receipts of a message say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    pub state: DeliveryState,
    pub failure: Option<Failure>,
    /// When the deciding receipt was reported.
    pub at: Option<Timestamp>,
    /// A later receipt that contradicts the state.
    pub note: Option<String>,
}

impl Delivery {
    fn of(receipt: &Receipt, state: DeliveryState) -> Self {
        Self {
            state,
            // A row of `sms_sent` does not say whether the number is dead.
            failure: receipt
                .failure
                .clone()
                .filter(|_| state != DeliveryState::Delivered)
                .map(|failure| Failure { is_dead_number: false, ..failure }),
            at: receipt.at,
            note: None,
        }
    }
}

/// The state of a message, given all its receipts in the order in which they came.
///
/// The first receipt that decides is final: a later one that contradicts it becomes a note. Of a message with several
/// parts, one that failed makes the message undelivered, and it is delivered when all of them are. `segments`: how many
/// parts the message has where its receipts do not say so; 0: not known.
pub fn delivery<'a>(
    receipts: impl Iterator<Item = &'a Receipt> + Clone,
    segments: u16,
) -> Delivery {
    let mut whole: Option<Delivery> = None;
    let mut parts: BTreeMap<(u16, Option<&str>), Delivery> = BTreeMap::new();
    let mut total = 0;
    let mut note = None;
    for receipt in receipts.clone() {
        let Some(state) = DeliveryState::decided_by(receipt) else {
            continue;
        };
        let decided = match receipt.part {
            None => whole.get_or_insert_with(|| Delivery::of(receipt, state)),
            Some(part) => {
                let has_number = part.number > 0;
                let id = receipt.message_id.as_deref().filter(|_| !has_number);
                let all = match part.total {
                    0 if !has_number => segments,
                    all => all,
                };
                total = total.max(all);
                let first = parts.entry((part.number, id));
                first.or_insert_with(|| Delivery::of(receipt, state))
            }
        };
        if decided.state != state {
            note.get_or_insert_with(|| {
                format!(
                    "reported as {} at {}, after that",
                    state.as_str(),
                    receipt.at.unwrap_or_default()
                )
            });
        }
    }
    let failed = parts.values().find(|part| part.state != DeliveryState::Delivered);
    let is_complete = !parts.is_empty() && parts.len() >= usize::from(total);
    let last = parts.values().max_by_key(|part| part.at);
    let decided = match (whole, failed) {
        (Some(whole), _) if whole.state != DeliveryState::Delivered => Some(whole),
        (_, Some(failed)) => Some(failed.clone()),
        (Some(whole), None) => Some(whole),
        (None, None) => last.filter(|_| is_complete).cloned(),
    };
    if let Some(decided) = decided {
        return Delivery { note, ..decided };
    }
    let mut receipts = receipts;
    let unknown = receipts.find(|receipt| receipt.state == ReceiptState::NoReport);
    unknown.map_or_else(Delivery::default, |receipt| Delivery::of(receipt, DeliveryState::NoReport))
}

#[cfg(test)]
mod tests {
    use smsq_message::receipt::ReceiptPart;
    use smsq_message::sms::Class;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn reported(state: ReceiptState, seconds: i64, part: Option<(u16, u16)>) -> Receipt {
        let failure = matches!(state, ReceiptState::Undelivered | ReceiptState::Expired)
            .then(|| Failure::new(Class::Recipient, format!("reason {seconds}")));
        Receipt {
            state,
            failure,
            at: Some(at(seconds)),
            reference: None,
            phone: None,
            part: part.map(|(number, total)| ReceiptPart { number, total }),
            message_id: None,
        }
    }

    #[test]
    fn first_final_receipt_decides() {
        use ReceiptState as R;
        let cases: [(&[ReceiptState], DeliveryState, bool); 12] = [
            (&[], DeliveryState::Awaiting, false),
            (&[R::Accepted], DeliveryState::Awaiting, false),
            (&[R::Unlisted, R::Accepted], DeliveryState::Awaiting, false),
            (&[R::Delivered, R::Accepted], DeliveryState::Delivered, false),
            (&[R::Delivered, R::Delivered], DeliveryState::Delivered, false),
            (&[R::Delivered, R::Undelivered], DeliveryState::Delivered, true),
            (&[R::Undelivered, R::Delivered], DeliveryState::Undelivered, true),
            (&[R::Expired, R::Delivered], DeliveryState::Expired, true),
            (&[R::NoReport], DeliveryState::NoReport, false),
            (&[R::NoReport, R::Delivered], DeliveryState::Delivered, false),
            (&[R::Delivered, R::NoReport], DeliveryState::Delivered, false),
            (&[R::Rejected], DeliveryState::Undelivered, false),
        ];
        for (states, expected, has_note) in cases {
            let receipts: Vec<Receipt> = states
                .iter()
                .zip(1..)
                .map(|(state, second)| reported(*state, second, None))
                .collect();
            let decided = delivery(receipts.iter(), 0);
            assert_eq!(decided.state, expected, "{states:?}");
            assert_eq!(decided.note.is_some(), has_note, "{states:?}");
        }
    }

    #[test]
    fn failed_part_makes_the_message_undelivered_in_any_order() {
        use ReceiptState::{Delivered, Undelivered};
        let one = reported(Delivered, 5, Some((1, 2)));
        let two = reported(Delivered, 4, Some((2, 2)));
        let failed = reported(Undelivered, 4, Some((2, 2)));
        assert_eq!(delivery([&one].into_iter(), 0).state, DeliveryState::Awaiting);
        let both = delivery([&one, &two].into_iter(), 0);
        assert_eq!((both.state, both.at), (DeliveryState::Delivered, Some(at(5))));
        for receipts in [[one.clone(), failed.clone()], [failed.clone(), one]] {
            let decided = delivery(receipts.iter(), 0);
            assert_eq!(decided.state, DeliveryState::Undelivered);
            assert_eq!(decided.failure, failed.failure);
            assert_eq!(decided.note, None);
        }
        let whole = reported(Delivered, 3, None);
        assert_eq!(delivery([&whole, &failed].into_iter(), 0).state, DeliveryState::Undelivered);
    }

    #[test]
    fn failure_of_the_whole_message_is_that_of_the_report() {
        let part = reported(ReceiptState::Undelivered, 4, Some((2, 2)));
        let whole = reported(ReceiptState::Expired, 5, None);
        for receipts in [[&part, &whole], [&whole, &part]] {
            let decided = delivery(receipts.into_iter(), 0);
            assert_eq!(decided.state, DeliveryState::Expired);
            assert_eq!(decided.failure, whole.failure);
        }
    }

    #[test]
    fn parts_with_ids_of_their_own_decide_together() {
        use ReceiptState::{Delivered, Undelivered};
        let part = |state, id: &str, total| Receipt {
            message_id: Some(id.to_owned()),
            ..reported(state, 1, Some((0, total)))
        };
        let (one, two) = (part(Delivered, "a", 0), part(Delivered, "b", 0));
        let failed = part(Undelivered, "b", 0);
        let state =
            |receipts: &[&Receipt], segments| delivery(receipts.iter().copied(), segments).state;
        assert_eq!(state(&[&one], 1), DeliveryState::Delivered);
        assert_eq!(state(&[&one], 2), DeliveryState::Awaiting);
        assert_eq!(state(&[&one, &one], 2), DeliveryState::Awaiting);
        assert_eq!(state(&[&one, &two], 2), DeliveryState::Delivered);
        for receipts in [[&one, &failed], [&failed, &one]] {
            assert_eq!(state(&receipts, 2), DeliveryState::Undelivered);
        }
        // The provider's own count is better than ours.
        assert_eq!(state(&[&part(Delivered, "a", 2)], 1), DeliveryState::Awaiting);
    }

    #[test]
    fn every_state_has_its_word() {
        let words = DeliveryState::ALL.map(DeliveryState::as_str);
        let expected = ["awaiting", "delivered", "undelivered", "expired", "no_report"];
        assert_eq!(words, expected);
    }

    #[test]
    fn contradiction_is_noted_with_its_state_and_instant() {
        use ReceiptState::{Delivered, Expired, Undelivered};
        let receipts = [
            reported(Expired, 1, None),
            reported(Delivered, 2, None),
            reported(Undelivered, 3, None),
        ];
        let decided = delivery(receipts.iter(), 0);
        let note = "reported as delivered at 1970-01-01T00:00:02Z, after that";
        assert_eq!(decided.note.as_deref(), Some(note));
        assert_eq!(decided.at, Some(at(1)));
        assert_eq!(decided.failure, receipts[0].failure);
    }

    #[test]
    fn delivered_message_has_no_failure() {
        let failure = Some(Failure::new(Class::Recipient, "why"));
        let with_failure = |state| Receipt { failure: failure.clone(), ..reported(state, 1, None) };
        let delivered = with_failure(ReceiptState::Delivered);
        assert_eq!(delivery([&delivered].into_iter(), 0).failure, None);
        let unreported = with_failure(ReceiptState::NoReport);
        assert_eq!(delivery([&unreported].into_iter(), 0).failure, failure);
    }

    #[test]
    fn numbered_parts_are_complete_by_the_largest_total() {
        let part = |number, total| reported(ReceiptState::Delivered, 1, Some((number, total)));
        let state = |receipts: &[Receipt], segments| delivery(receipts.iter(), segments).state;
        // Our number of segments is only for parts without numbers.
        assert_eq!(state(&[part(1, 0)], 2), DeliveryState::Delivered);
        assert_eq!(state(&[part(1, 3), part(2, 2)], 0), DeliveryState::Awaiting);
        let all = [part(1, 3), part(2, 3), part(3, 3)];
        assert_eq!(state(&all, 0), DeliveryState::Delivered);
        let whole = reported(ReceiptState::Delivered, 1, None);
        assert_eq!(state(&[whole, part(1, 3)], 0), DeliveryState::Delivered);
    }
}
