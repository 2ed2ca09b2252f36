//! What a settlement does to its message, given the state of the message's row.

use std::collections::BTreeSet;

use super::{Settled, Settlement, Transition};
use crate::sms::{Acceptance, Class, Failure, State, Timestamp};

/// What the message's row in `sms` says of itself when its settlement comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowState {
    pub claim: i64,
    pub state: i32,
    pub in_doubt: bool,
    /// It is unknown because of this claim alone: no earlier attempt may have been accepted.
    pub is_only_doubt: bool,
    /// Older claims that were accepted while this one was sending.
    pub late_accepted: i32,
    pub late_message_id: Option<String>,
    /// The numbers of those claims, with commas.
    pub late_claims: Option<String>,
}

/// Where the message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedTransition {
    /// The row has a newer claim or none: nothing changes.
    Stale,
    /// An older claim was accepted while a newer one is sending: noted on the row, with these as
    /// `late_claims`. `None`: it is noted already.
    Noted(Option<String>),
    Sent {
        acceptance: Acceptance,
        /// Attempts that were not counted yet.
        counted: i32,
        /// Acceptances in addition to those that the row has noted.
        accepted: i32,
        /// `accepted_claims` of `sms_sent`.
        claims: Option<String>,
        settled: Settled,
    },
    Failed {
        failure: Failure,
        counted: i32,
    },
    /// Unknown, in doubt from now on.
    Unknown {
        failure: Failure,
        counted: i32,
    },
    Ready {
        due_at: Timestamp,
        failure: Option<Failure>,
        counted: i32,
        in_doubt: bool,
    },
    /// To the failed, and its key is given up.
    Cancelled {
        counted: i32,
    },
}

/// The code of messages that the database refuses to store where they belong: they stay unknown until an operator
/// settles them.
pub const NOT_STORED: &str = "not_stored";

/// The reason of messages whose number a failed message has.
pub fn number_taken() -> Failure {
    let why = "it cannot be listed as failed: another program gave it the number of another failed message";
    Failure::new(Class::Unknown, why).with_code(NOT_STORED)
}

/// The reason of messages whose campaign was cancelled.
pub fn cancelled() -> Failure {
    Failure::new(Class::Cancelled, "its campaign was cancelled")
}

/// Why a phone is on the suppression list that a provider rejected as opted out; `None` where it was not.
pub fn opted_out(settlement: &Settlement, failure: &Failure, now: Timestamp) -> Option<String> {
    let (provider, date) = (&settlement.provider, now.to_string());
    let date = date.split('T').next().unwrap_or_default();
    let is_one = failure.class == Class::OptedOut && !provider.is_empty();
    is_one.then(|| format!("`{provider}` said on {date} that they want no more messages"))
}

/// The reason of messages that will not live to see their window.
pub fn expired() -> Failure {
    Failure::new(
        Class::Expired,
        "its time runs out before its window opens again",
    )
}

/// Whether the settlement would put its message back into the queue, which a cancelled campaign forbids.
pub fn is_requeue(settlement: &Settlement) -> bool {
    matches!(settlement.transition, Transition::Ready { .. })
}

/// The `accepted_claims` of the ledger's row once this acceptance is counted; `None` where it is counted
/// already, because the answer to its commit was lost. One claim is at most one attempt, so it is accepted once.
pub fn with_accepted_claim(
    settlement: &Settlement,
    ledger_claim: i64,
    accepted: i32,
    claims: Option<&str>,
) -> Option<String> {
    let mut counted = numbers(claims);
    if claims.is_none() && accepted > 0 {
        counted.insert(ledger_claim);
    }
    counted.insert(settlement.claim).then(|| joined(&counted))
}

fn numbers(claims: Option<&str>) -> BTreeSet<i64> {
    let numbers = claims.unwrap_or_default().split(',');
    numbers.filter_map(|number| number.parse().ok()).collect()
}

fn joined(claims: &BTreeSet<i64>) -> String {
    let numbers: Vec<String> = claims.iter().map(i64::to_string).collect();
    numbers.join(",")
}

/// What a settlement does to the message with this row. `is_cancelled` matters only where the message would
/// become ready again. Refunds are settled elsewhere.
pub fn resolve(settlement: &Settlement, row: &RowState, is_cancelled: bool) -> ResolvedTransition {
    let sending = row.state == State::Sending.code();
    let is_own = row.claim == settlement.claim;
    if let Transition::Sent(acceptance) = &settlement.transition {
        let mut claims = numbers(row.late_claims.as_deref());
        let is_new = claims.insert(settlement.claim);
        if sending && !is_own {
            return ResolvedTransition::Noted(is_new.then(|| joined(&claims)));
        }
        let is_only = claims.len() == 1 && is_own;
        // A parked row's attempt was counted when it was parked.
        return ResolvedTransition::Sent {
            acceptance: acceptance.clone(),
            counted: i32::from(sending),
            accepted: i32::from(is_new),
            claims: (!is_only).then(|| joined(&claims)),
            settled: if sending {
                Settled::Done
            } else {
                Settled::Late
            },
        };
    }
    if let Transition::FoundRejected(failure) = &settlement.transition {
        // Its attempt was counted when it became unknown.
        let is_proven = row.state == State::Unknown.code() && is_own;
        if !is_proven || row.late_accepted > 0 {
            return ResolvedTransition::Stale;
        }
        return ResolvedTransition::Failed {
            failure: failure.clone(),
            counted: 0,
        };
    }
    if !is_own {
        return ResolvedTransition::Stale;
    }
    if !sending {
        return late_answer(settlement, row, is_cancelled);
    }
    if row.late_accepted > 0 {
        // An older claim was accepted meanwhile: that is the truth, whatever this one's answer says.
        let never_started = matches!(
            settlement.transition,
            Transition::NotAdmitted(_) | Transition::Ready { counted: false, .. }
        );
        return ResolvedTransition::Sent {
            acceptance: Acceptance {
                message_id: row.late_message_id.clone(),
                ..Acceptance::default()
            },
            counted: i32::from(!never_started),
            accepted: 0,
            claims: row.late_claims.clone(),
            settled: Settled::Done,
        };
    }
    not_accepted(settlement, row.in_doubt, is_cancelled)
}

/// The claim was parked before its answer came, which counted an attempt. An answer that is certainly no acceptance
/// ends the doubt, where no earlier attempt is in doubt.
fn late_answer(settlement: &Settlement, row: &RowState, is_cancelled: bool) -> ResolvedTransition {
    let is_parked = row.state == State::Unknown.code();
    if !is_parked || !row.is_only_doubt || row.late_accepted > 0 {
        return ResolvedTransition::Stale;
    }
    let is_certain = matches!(
        settlement.transition,
        Transition::Failed(_)
            | Transition::Ready {
                in_doubt: false,
                ..
            }
    );
    if !is_certain {
        return ResolvedTransition::Stale;
    }
    let mut resolved = not_accepted(settlement, false, is_cancelled);
    if let ResolvedTransition::Failed { counted, .. }
    | ResolvedTransition::Ready { counted, .. }
    | ResolvedTransition::Cancelled { counted } = &mut resolved
    {
        *counted -= 1;
    }
    resolved
}

fn not_accepted(
    settlement: &Settlement,
    was_in_doubt: bool,
    is_cancelled: bool,
) -> ResolvedTransition {
    match &settlement.transition {
        Transition::Failed(failure) | Transition::NotAdmitted(failure) => {
            let counted = i32::from(matches!(settlement.transition, Transition::Failed(_)));
            let failure = failure.clone();
            if was_in_doubt {
                ResolvedTransition::Unknown { failure, counted }
            } else {
                ResolvedTransition::Failed { failure, counted }
            }
        }
        Transition::Unknown(failure) => ResolvedTransition::Unknown {
            failure: failure.clone(),
            counted: 1,
        },
        Transition::Ready {
            due_at,
            failure,
            counted,
            in_doubt,
        } => {
            let in_doubt = *in_doubt || was_in_doubt;
            let counted = i32::from(*counted);
            if !is_cancelled {
                return ResolvedTransition::Ready {
                    due_at: *due_at,
                    failure: failure.clone(),
                    counted,
                    in_doubt,
                };
            }
            if in_doubt {
                let failure = failure.clone().unwrap_or_else(cancelled);
                return ResolvedTransition::Unknown { failure, counted };
            }
            ResolvedTransition::Cancelled { counted }
        }
        Transition::Sent(_) | Transition::FoundRejected(_) | Transition::Refunded => {
            ResolvedTransition::Stale
        }
    }
}
