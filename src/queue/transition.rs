//! Decides what a settlement does to its message, given the state of the message's row.

use std::collections::BTreeSet;

use super::{Settled, Settlement, Transition};
use crate::sms::{Acceptance, Class, Failure, State, Timestamp};

/// The row in `sms` of the message that is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowState {
    pub claim: i64,
    pub state: i32,
    pub in_doubt: bool,
    /// It is unknown because of this claim alone: no earlier attempt may have been accepted.
    pub is_only_doubt: bool,
    /// The number of older claims that were accepted while this one was sending.
    pub late_accepted: i32,
    pub late_message_id: Option<String>,
    /// The numbers of those claims, separated by commas.
    pub late_claims: Option<String>,
}

/// What a settlement does to its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedTransition {
    /// Nothing: the row has another claim.
    Stale,
    /// An older claim was accepted while a newer one is sending: the row gets these `late_claims`, or `None` if it has
    /// them already.
    Noted(Option<String>),
    Sent {
        acceptance: Acceptance,
        counts: SentCounts,
        settled: Settled,
    },
    Changed(RowChange),
}

/// What a move to `sms_sent` adds to the counts of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentCounts {
    /// Attempts that were not counted yet.
    pub attempts: i32,
    /// Acceptances that the row does not count yet.
    pub accepted: i32,
    /// Column `accepted_claims`.
    pub claims: Option<String>,
}

/// A change of a row that was not accepted. Rows with equal changes are written at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowChange {
    pub to: NewState,
    /// How many attempts are counted.
    pub counted: i32,
}

/// The new state of a message that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NewState {
    Failed(Failure),
    /// In doubt from now on.
    Unknown(Failure),
    Ready(Requeue),
    /// Failed with class `cancelled`, and its dedupe key is removed.
    Cancelled,
}

/// How a message goes back into the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requeue {
    pub due_at: Timestamp,
    pub failure: Option<Failure>,
    pub in_doubt: bool,
}

/// The code of messages whose result the database rejects: they stay unknown until an operator settles them.
pub const NOT_STORED: &str = "not_stored";

/// The failure of a message whose id a failed message has already.
pub fn number_taken() -> Failure {
    let why = "it cannot be listed as failed: another program gave it the number of another failed message";
    Failure::new(Class::Unknown, why).with_code(NOT_STORED)
}

/// The failure of messages whose campaign was cancelled.
pub fn cancelled() -> Failure {
    Failure::new(Class::Cancelled, "its campaign was cancelled")
}

/// The failure of messages that expire before their window opens.
pub fn expired() -> Failure {
    Failure::new(
        Class::Expired,
        "its time runs out before its window opens again",
    )
}

/// The reason on the suppression list if the provider reports that the recipient opted out.
pub fn opted_out(settlement: &Settlement, failure: &Failure, now: Timestamp) -> Option<String> {
    let is_opted_out = failure.class == Class::OptedOut && !settlement.provider.is_empty();
    is_opted_out.then(|| opt_out_reason(&settlement.provider, now))
}

/// The reason on the suppression list of a recipient who opted out at a provider.
pub fn opt_out_reason(provider: &str, now: Timestamp) -> String {
    let date = now.to_string();
    let date = date.split('T').next().unwrap_or_default();
    format!("`{provider}` said on {date} that they want no more messages")
}

/// Whether the settlement puts its message back into the queue, unless its campaign is cancelled.
pub fn is_requeue(settlement: &Settlement) -> bool {
    matches!(settlement.transition, Transition::Ready { .. })
}

/// Column `sms_sent.accepted_claims` with this acceptance. `None` if it is counted already, because the answer to its
/// commit was lost: a claim is accepted at most once.
pub fn with_accepted_claim(
    settlement: &Settlement,
    sent_claim: i64,
    accepted: i32,
    claims: Option<&str>,
) -> Option<String> {
    let mut counted = accepted_claims(sent_claim, accepted, claims);
    counted.insert(settlement.claim).then(|| joined(&counted))
}

/// The claims of a sent message that were accepted, from the columns of `sms_sent`. None is known of one that the
/// operator settled.
pub fn accepted_claims(sent_claim: i64, accepted: i32, claims: Option<&str>) -> BTreeSet<i64> {
    match claims {
        None if accepted > 0 => BTreeSet::from([sent_claim]),
        claims => numbers(claims),
    }
}

fn numbers(claims: Option<&str>) -> BTreeSet<i64> {
    let numbers = claims.unwrap_or_default().split(',');
    numbers.filter_map(|number| number.parse().ok()).collect()
}

fn joined(claims: &BTreeSet<i64>) -> String {
    let numbers: Vec<String> = claims.iter().map(i64::to_string).collect();
    numbers.join(",")
}

/// Decides what a settlement does to its row. `is_cancelled` only matters if the message would become ready again.
/// Refunds are settled elsewhere.
pub fn resolve(settlement: &Settlement, row: &RowState, is_cancelled: bool) -> ResolvedTransition {
    let is_sending = row.state == State::Sending.code();
    let is_unknown = row.state == State::Unknown.code();
    let is_own = row.claim == settlement.claim;
    if let Transition::Sent(acceptance) = &settlement.transition {
        let mut claims = numbers(row.late_claims.as_deref());
        let is_new = claims.insert(settlement.claim);
        if is_sending && !is_own {
            return ResolvedTransition::Noted(is_new.then(|| joined(&claims)));
        }
        let is_only = claims.len() == 1 && is_own;
        return ResolvedTransition::Sent {
            acceptance: acceptance.clone(),
            counts: SentCounts {
                // The attempt of an unknown or ready message was counted before.
                attempts: i32::from(is_sending),
                accepted: i32::from(is_new),
                claims: (!is_only).then(|| joined(&claims)),
            },
            settled: if is_sending {
                Settled::Done
            } else {
                Settled::Late
            },
        };
    }
    if !is_own {
        return ResolvedTransition::Stale;
    }
    if let Transition::FoundRejected(failure) = &settlement.transition {
        if !is_unknown || row.late_accepted > 0 {
            return ResolvedTransition::Stale;
        }
        // Its attempt was counted when it became unknown.
        return ResolvedTransition::Changed(RowChange {
            to: NewState::Failed(failure.clone()),
            counted: 0,
        });
    }
    if is_sending && row.late_accepted > 0 {
        // An older claim was accepted meanwhile, so the message is sent whatever the result of this one is.
        let was_attempted = !matches!(
            settlement.transition,
            Transition::NotAdmitted(_) | Transition::Ready { counted: false, .. }
        );
        return ResolvedTransition::Sent {
            acceptance: Acceptance {
                message_id: row.late_message_id.clone(),
                ..Acceptance::default()
            },
            counts: SentCounts {
                attempts: i32::from(was_attempted),
                accepted: 0,
                claims: row.late_claims.clone(),
            },
            settled: Settled::Done,
        };
    }
    if is_sending {
        return not_accepted(settlement, row.in_doubt, is_cancelled, 0);
    }
    // The message became unknown, with an attempt, before its result. A result that is certainly not an acceptance
    // ends the doubt if no earlier attempt may have been accepted.
    let is_rejection = matches!(
        settlement.transition,
        Transition::Failed(_)
            | Transition::Ready {
                in_doubt: false,
                ..
            }
    );
    if is_unknown && row.is_only_doubt && row.late_accepted == 0 && is_rejection {
        return not_accepted(settlement, false, is_cancelled, 1);
    }
    ResolvedTransition::Stale
}

/// `counted_before`: how many of the attempts are counted already.
fn not_accepted(
    settlement: &Settlement,
    was_in_doubt: bool,
    is_cancelled: bool,
    counted_before: i32,
) -> ResolvedTransition {
    let (to, is_counted) = match settlement.transition.clone() {
        Transition::Failed(failure) if !was_in_doubt => (NewState::Failed(failure), true),
        Transition::NotAdmitted(failure) if !was_in_doubt => (NewState::Failed(failure), false),
        Transition::NotAdmitted(failure) => (NewState::Unknown(failure), false),
        Transition::Failed(failure) | Transition::Unknown(failure) => {
            (NewState::Unknown(failure), true)
        }
        Transition::Ready {
            due_at,
            failure,
            counted,
            in_doubt,
        } => {
            let in_doubt = in_doubt || was_in_doubt;
            let to = match (is_cancelled, in_doubt) {
                (false, _) => NewState::Ready(Requeue {
                    due_at,
                    failure,
                    in_doubt,
                }),
                (true, true) => NewState::Unknown(failure.unwrap_or_else(cancelled)),
                (true, false) => NewState::Cancelled,
            };
            (to, counted)
        }
        Transition::Sent(_) | Transition::FoundRejected(_) | Transition::Refunded => {
            return ResolvedTransition::Stale;
        }
    };
    ResolvedTransition::Changed(RowChange {
        to,
        counted: i32::from(is_counted) - counted_before,
    })
}
