//! The delivery receipts of accepted messages: what becomes of each, and which receipts say so. Both follow from the
//! number of the message, so that nothing is stored until receipts are asked for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use serde::Serialize;

use super::faults::{FaultRate, ReceiptFaults, mix};

/// How long receipts that follow the final one come after it.
const AFTERWARDS: Duration = Duration::from_millis(100);

/// What became of a message, with the code and the reason of a message that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinalState {
    pub(super) state: &'static str,
    pub(super) code: Option<&'static str>,
}

impl FinalState {
    const ACCEPTED: Self = Self::new("accepted", None);
    const DELIVERED: Self = Self::new("delivered", None);
    const UNDELIVERED: Self = Self::new("undelivered", Some("absent"));
    const REJECTED: Self = Self::new("rejected", Some("rejected_before_sending"));

    const fn new(state: &'static str, code: Option<&'static str>) -> Self {
        Self { state, code }
    }

    /// Whether the message arrived, or will not.
    pub(super) fn is_final(self) -> bool {
        !matches!(self.state, "accepted" | "limbo")
    }

    pub(super) fn reason(self) -> Option<&'static str> {
        match self.code? {
            "absent" => Some("absent subscriber"),
            "opted_out" => Some("the recipient has opted out"),
            "too_late" => Some("validity period expired"),
            _ => Some("blocked by a filter"),
        }
    }
}

/// One receipt of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// After the acceptance.
    pub(super) after: Duration,
    pub(super) final_state: FinalState,
    /// Its number, of two.
    pub(super) part: Option<u8>,
    /// About a message that was never sent here.
    pub(super) is_foreign: bool,
}

/// A receipt as the gateway returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SandboxReceipt {
    pub(super) id: String,
    pub(super) reference: Option<String>,
    pub(super) to: String,
    pub(super) state: &'static str,
    pub(super) code: Option<&'static str>,
    pub(super) reason: Option<&'static str>,
    /// RFC 3339.
    pub(super) at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parts: Option<u8>,
}

/// Whether a fault applies to the message with this number. Each fault has a salt of its own.
fn applies(rate: FaultRate, salt: u64, seed: u64, number: u64) -> bool {
    rate.applies_to(number, mix(seed ^ mix(100 + salt)))
}

impl ReceiptFaults {
    /// Whether the message with this number is rejected although its connection is dropped.
    pub(super) fn rejects(&self, seed: u64, number: u64) -> bool {
        applies(self.reject_late, 1, seed, number)
    }

    pub(super) fn is_early(&self, seed: u64, number: u64) -> bool {
        applies(self.early, 2, seed, number)
    }

    /// What becomes of the accepted message with this number; `None`: no receipt ever says.
    pub(super) fn final_state(&self, seed: u64, number: u64) -> Option<FinalState> {
        let choices = [
            (self.missing, None),
            (self.opted_out, Some(FinalState::new("undelivered", Some("opted_out")))),
            (self.expired, Some(FinalState::new("expired", Some("too_late")))),
            (self.undelivered, Some(FinalState::UNDELIVERED)),
            (self.failed_part, Some(FinalState::UNDELIVERED)),
        ];
        choices
            .into_iter()
            .zip(3_u64..)
            .find(|((rate, _), salt)| applies(*rate, *salt, seed, number))
            .map_or(Some(FinalState::DELIVERED), |((_, state), _)| state)
    }

    /// When it is known what became of a message.
    pub(super) fn known_after(&self, seed: u64, number: u64) -> Duration {
        if self.is_early(seed, number) { Duration::ZERO } else { self.delay }
    }

    /// All receipts of the accepted message with this number.
    pub(super) fn receipts(&self, seed: u64, number: u64) -> Vec<Planned> {
        let applies = |rate, salt| applies(rate, salt, seed, number);
        let known = self.known_after(seed, number);
        let planned =
            |after, final_state, part| Planned { after, final_state, part, is_foreign: false };
        let mut receipts = Vec::new();
        if applies(self.intermediate, 10) {
            receipts.push(planned(known / 2, FinalState::ACCEPTED, None));
        }
        if applies(self.unlisted, 11) {
            receipts.push(planned(known / 2, FinalState::new("limbo", None), None));
        }
        if applies(self.foreign, 12) {
            receipts
                .push(Planned { is_foreign: true, ..planned(known, FinalState::DELIVERED, None) });
        }
        let Some(final_state) = self.final_state(seed, number) else {
            return receipts;
        };
        let is_failed_part = final_state == FinalState::UNDELIVERED && applies(self.failed_part, 7);
        if is_failed_part {
            // The failed part comes first or last.
            let failed = 1 + u8::from(number.is_multiple_of(2));
            for part in [1, 2] {
                let final_state = if part == failed { final_state } else { FinalState::DELIVERED };
                receipts.push(planned(known, final_state, Some(part)));
            }
            return receipts;
        }
        if final_state == FinalState::DELIVERED && applies(self.per_part, 13) {
            receipts.extend([1, 2].map(|part| planned(known, final_state, Some(part))));
            return receipts;
        }
        receipts.push(planned(known, final_state, None));
        let later = known + AFTERWARDS;
        if applies(self.doubled, 14) {
            receipts.push(planned(later, final_state, None));
        }
        if applies(self.out_of_order, 15) {
            receipts.push(planned(later, FinalState::ACCEPTED, None));
        }
        if applies(self.contradicting, 16) {
            let other = if final_state == FinalState::DELIVERED {
                FinalState::UNDELIVERED
            } else {
                FinalState::DELIVERED
            };
            receipts.push(planned(later, other, None));
        }
        receipts
    }

    /// The only receipt of a rejected message.
    pub(super) fn rejection(&self) -> Planned {
        Planned {
            after: self.delay,
            final_state: FinalState::REJECTED,
            part: None,
            is_foreign: false,
        }
    }
}

/// Receipts in the order in which they are due, each of which is returned once.
#[derive(Default)]
pub(super) struct ReceiptQueue {
    /// How many messages have been added.
    pub(super) added: usize,
    /// Milliseconds since the gateway started, the index of the message, and that of its receipt.
    due: BinaryHeap<Reverse<(u64, usize, usize)>>,
    returned: u64,
}

impl ReceiptQueue {
    /// Adds the receipts of the next message, which was accepted at this time.
    pub(super) fn add(&mut self, accepted_ms: u64, receipts: &[Planned]) {
        for (index, receipt) in receipts.iter().enumerate() {
            let after = u64::try_from(receipt.after.as_millis()).unwrap_or(u64::MAX);
            let due = accepted_ms.saturating_add(after);
            self.due.push(Reverse((due, self.added, index)));
        }
        self.added += 1;
    }

    /// The message and the receipt that are due next, if they are due by now.
    pub(super) fn next(&mut self, now_ms: u64) -> Option<(u64, usize, usize)> {
        let Reverse((due, ..)) = self.due.peek()?;
        if *due > now_ms {
            return None;
        }
        self.returned += 1;
        self.due.pop().map(|Reverse(next)| next)
    }

    /// How many receipts were returned.
    pub(super) fn returned(&self) -> u64 {
        self.returned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states of the receipts, with the number of the part.
    fn states(faults: &ReceiptFaults) -> Vec<String> {
        let receipts = faults.receipts(0, 1);
        let name = |receipt: &Planned| match (receipt.part, receipt.is_foreign) {
            (Some(part), _) => format!("{} {part}", receipt.final_state.state),
            (None, true) => format!("foreign {}", receipt.final_state.state),
            (None, false) => receipt.final_state.state.to_owned(),
        };
        receipts.iter().map(name).collect()
    }

    #[test]
    fn each_fault_has_its_receipts() {
        let always = FaultRate::Part(1.0);
        let none = ReceiptFaults::default;
        for (faults, final_state, expected) in [
            (none(), "delivered", &["delivered"][..]),
            (ReceiptFaults { undelivered: always, ..none() }, "undelivered", &["undelivered"]),
            (ReceiptFaults { expired: always, ..none() }, "expired", &["expired"]),
            (ReceiptFaults { missing: always, ..none() }, "no report", &[]),
            (ReceiptFaults { opted_out: always, ..none() }, "undelivered", &["undelivered"]),
            (
                ReceiptFaults { intermediate: always, ..none() },
                "delivered",
                &["accepted", "delivered"],
            ),
            (
                ReceiptFaults { out_of_order: always, ..none() },
                "delivered",
                &["delivered", "accepted"],
            ),
            (ReceiptFaults { doubled: always, ..none() }, "delivered", &["delivered", "delivered"]),
            (
                ReceiptFaults { per_part: always, ..none() },
                "delivered",
                &["delivered 1", "delivered 2"],
            ),
            (
                ReceiptFaults { failed_part: always, ..none() },
                "undelivered",
                &["undelivered 1", "delivered 2"],
            ),
            (
                ReceiptFaults { contradicting: always, ..none() },
                "delivered",
                &["delivered", "undelivered"],
            ),
            (
                ReceiptFaults { foreign: always, ..none() },
                "delivered",
                &["foreign delivered", "delivered"],
            ),
            (ReceiptFaults { unlisted: always, ..none() }, "delivered", &["limbo", "delivered"]),
        ] {
            assert_eq!(states(&faults), expected, "{faults:?}");
            let state =
                faults.final_state(0, 1).map_or("no report", |final_state| final_state.state);
            assert_eq!(state, final_state, "{faults:?}");
        }
    }

    #[test]
    fn receipts_are_returned_once_in_the_order_in_which_they_are_due() {
        let slow = ReceiptFaults { delay: Duration::from_millis(50), ..ReceiptFaults::default() };
        let mut queue = ReceiptQueue::default();
        queue.add(10, &slow.receipts(0, 1));
        queue.add(20, &ReceiptFaults::default().receipts(0, 2));
        assert_eq!(queue.next(19), None);
        assert_eq!(queue.next(60), Some((20, 1, 0)));
        assert_eq!(queue.next(60), Some((60, 0, 0)));
        assert_eq!(queue.next(1_000), None);
        assert_eq!(queue.returned(), 2);
    }
}
