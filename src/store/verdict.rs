//! What a settlement means for its message: pure, and the same on every database.

use super::queue::{Fate, Settled, Settlement};
use crate::sms::{Cause, Class, Receipt, State, Timestamp};

/// What the message's row in `sms` says of itself when its settlement comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) claim: i64,
    pub(super) state: i32,
    pub(super) in_doubt: bool,
    /// Older claims that were accepted while this one was sending.
    pub(super) late_accepted: i32,
    pub(super) late_message_id: Option<String>,
}

/// Where the message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The claim is no longer the row's: nothing changes.
    Stale,
    /// An older claim was accepted while a newer one is sending: noted on the row.
    Noted,
    Sent {
        receipt: Receipt,
        /// Attempts that were not counted yet.
        counted: i32,
        /// Acceptances beside those that the row has noted.
        accepted: i32,
        settled: Settled,
    },
    Failed {
        cause: Cause,
        counted: i32,
    },
    /// Unknown, in doubt from now on.
    Parked {
        cause: Cause,
        counted: i32,
    },
    Ready {
        due_at: Timestamp,
        cause: Option<Cause>,
        counted: i32,
        in_doubt: bool,
    },
    /// To the failed, and its key is given up.
    Cancelled {
        counted: i32,
    },
}

/// The reason of messages whose campaign was cancelled.
pub(super) fn cancelled() -> Cause {
    Cause::new(Class::Cancelled, "its campaign was cancelled")
}

/// Why a phone is on the suppression list that a provider rejected as opted out; `None` where it was not.
pub(super) fn opted_out(settlement: &Settlement, cause: &Cause, now: Timestamp) -> Option<String> {
    let (provider, date) = (&settlement.provider, now.to_string());
    let date = date.split('T').next().unwrap_or_default();
    let is_one = cause.class == Class::OptedOut && !provider.is_empty();
    is_one.then(|| format!("`{provider}` said on {date} that they want no more messages"))
}

/// The reason of messages that will not live to see their window.
pub(super) fn expired() -> Cause {
    Cause::new(
        Class::Expired,
        "its time runs out before its window opens again",
    )
}

/// Whether the settlement would put its message back into the queue, which a cancelled campaign forbids.
pub(super) fn would_wait(settlement: &Settlement) -> bool {
    matches!(settlement.fate, Fate::Ready { .. })
}

/// Whether the ledger's row is what this very settlement wrote, the answer to whose commit was lost: one
/// claim is at most one attempt, so it is accepted once.
pub(super) fn is_repeated(settlement: &Settlement, ledger_claim: i64, accepted: i32) -> bool {
    ledger_claim == settlement.claim && accepted > 0
}

/// What becomes of the message whose row stands as `standing`; `is_cancelled` need only be right where
/// the settlement [`would_wait`]. A refund is no settlement of this kind.
pub(super) fn of(settlement: &Settlement, standing: &Standing, is_cancelled: bool) -> Verdict {
    let sending = standing.state == State::Sending.code();
    let is_own = standing.claim == settlement.claim;
    if let Fate::Sent(receipt) = &settlement.fate {
        if sending && !is_own {
            return Verdict::Noted;
        }
        // A parked row's attempt was counted when it was parked.
        return Verdict::Sent {
            receipt: receipt.clone(),
            counted: i32::from(sending),
            accepted: 1,
            settled: if sending {
                Settled::Done
            } else {
                Settled::Late
            },
        };
    }
    if !sending || !is_own {
        return Verdict::Stale;
    }
    if standing.late_accepted > 0 {
        // An older claim was accepted meanwhile: that is the truth, whatever this one's answer says.
        let never_started = matches!(
            settlement.fate,
            Fate::Refused(_) | Fate::Ready { counted: false, .. }
        );
        return Verdict::Sent {
            receipt: Receipt {
                message_id: standing.late_message_id.clone(),
                ..Receipt::default()
            },
            counted: i32::from(!never_started),
            accepted: 0,
            settled: Settled::Done,
        };
    }
    not_accepted(settlement, standing.in_doubt, is_cancelled)
}

fn not_accepted(settlement: &Settlement, was_in_doubt: bool, is_cancelled: bool) -> Verdict {
    match &settlement.fate {
        Fate::Failed(cause) | Fate::Refused(cause) => {
            let counted = i32::from(matches!(settlement.fate, Fate::Failed(_)));
            let cause = cause.clone();
            if was_in_doubt {
                Verdict::Parked { cause, counted }
            } else {
                Verdict::Failed { cause, counted }
            }
        }
        Fate::Unknown(cause) => Verdict::Parked {
            cause: cause.clone(),
            counted: 1,
        },
        Fate::Ready {
            due_at,
            cause,
            counted,
            in_doubt,
        } => {
            let in_doubt = *in_doubt || was_in_doubt;
            let counted = i32::from(*counted);
            if !is_cancelled {
                return Verdict::Ready {
                    due_at: *due_at,
                    cause: cause.clone(),
                    counted,
                    in_doubt,
                };
            }
            if in_doubt {
                let cause = cause.clone().unwrap_or_else(cancelled);
                return Verdict::Parked { cause, counted };
            }
            Verdict::Cancelled { counted }
        }
        Fate::Sent(_) | Fate::Refunded => Verdict::Stale,
    }
}
