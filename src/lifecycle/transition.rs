//! Decides what a settlement does to its message, given the state of the message's row.

use std::collections::BTreeSet;

use smsq_message::defect::Defect;
use smsq_message::sms::{Acceptance, Class, Failure, State, Timestamp};

use super::{Settled, Settlement, Transition};

/// The row in `sms` of the message that is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowState {
    pub claim: i64,
    pub state: i32,
    pub in_doubt: bool,
    /// The claim of the only attempt that may have been accepted, if it is the only one with its reference;
    /// [`REUSED_REFERENCE`] if one of the others was certainly not accepted.
    pub doubt_claim: Option<i64>,
    /// It is known when the last attempt was made that may have been accepted.
    pub has_doubt_end: bool,
    /// The number of older claims that were accepted while this one was sending.
    pub late_accepted: i32,
    /// The last of these acceptances, and its provider.
    pub late_acceptance: Acceptance,
    pub late_provider: Option<String>,
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
        provider: String,
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
    Failed(CertainFailure),
    Unknown(Failure, Doubt),
    Ready(Requeue),
    /// Failed with class `cancelled`, and its dedupe key is removed.
    Cancelled(CertainFailure),
}

/// The failure of a message that was certainly never accepted, or that an operator settled. No message is stored as
/// failed without one, and only this module makes them: whatever the reason, a message in doubt becomes unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertainFailure(Failure);

impl CertainFailure {
    /// `Err` with the failure if the message is in doubt: it may have been accepted.
    pub fn unless_in_doubt(failure: Failure, in_doubt: bool) -> Result<Self, Failure> {
        if in_doubt { Err(failure) } else { Ok(Self(failure)) }
    }

    /// The failure of an unknown message that the provider certainly did not accept: `is_proof` of the row.
    fn proved(failure: Failure, row: &RowState, is_proof: bool) -> Option<Self> {
        let is_unknown = row.state == State::Unknown.code();
        (is_proof && is_unknown && row.late_accepted == 0).then_some(Self(failure))
    }

    /// The failure of a message that an operator settled.
    pub fn by_operator() -> Self {
        let why = "an operator settled it as failed";
        Self(Failure::new(Class::Settled, why))
    }

    pub fn failure(&self) -> &Failure {
        &self.0
    }
}

impl NewState {
    /// The end of a message that is not sent again.
    fn ended(failure: Failure, doubt: Option<Doubt>) -> Self {
        match doubt {
            None => Self::Failed(CertainFailure(failure)),
            Some(doubt) => Self::Unknown(failure, doubt),
        }
    }

    /// The end of a message whose campaign was cancelled.
    fn cancelled(failure: Option<Failure>, doubt: Option<Doubt>) -> Self {
        match doubt {
            None => Self::Cancelled(CertainFailure(cancelled())),
            Some(doubt) => Self::Unknown(failure.unwrap_or_else(cancelled), doubt),
        }
    }
}

/// How a message goes back into the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requeue {
    pub due_at: Timestamp,
    pub failure: Option<Failure>,
    /// `None`: it was certainly never accepted.
    pub doubt: Option<Doubt>,
}

impl Requeue {
    /// Whether the next claim gets a new reference: the provider has answered an attempt with this one as not accepted,
    /// and may list it, report it or remember it. What it says of a reference is then about one attempt.
    pub const fn burns_reference(&self) -> bool {
        self.doubt.is_none() && self.failure.is_some()
    }
}

/// Which attempts of a message may have been accepted. The row keeps when the first of them was claimed and when the
/// last one was over, for lookups, and which claim it was if there is only one, for an answer that speaks of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// The same as before this claim, which made no attempt.
    Unchanged,
    /// The same as before this claim, whose attempt was not accepted. A provider may list either attempt.
    Earlier,
    /// Also the attempt of this claim.
    New,
}

/// Column `doubt_claim` of a message whose reference was also used by an attempt that was certainly not accepted: by one
/// while another was in doubt, or by one that the provider did not list. What the provider says of the reference may be
/// about that attempt.
pub const REUSED_REFERENCE: i64 = -1;

/// The claim of the only attempt with its reference that the provider may have accepted or refused, from column
/// `doubt_claim`: what the provider says of the reference is about this attempt. `None` if there are several.
pub fn only_doubt(doubt_claim: Option<i64>) -> Option<i64> {
    doubt_claim.filter(|claim| *claim != REUSED_REFERENCE)
}

/// The code of messages whose result the database rejects: they stay unknown until an operator settles them.
pub const NOT_STORED: &str = "not_stored";

/// The code of messages in doubt that cannot be sent, such as those to a suppressed phone: they stay unknown until a
/// lookup, a receipt or an operator settles them, or an operator sends them again.
pub const NOT_ADMITTED: &str = "not_sent_again";

/// The code of messages of which the provider says that it accepted them before, although no attempt with their reference
/// was in doubt: they stay unknown until a lookup, a receipt or an operator settles them.
pub const DUPLICATE: &str = "duplicate_reference";

/// The failure of a message whose id a failed message has already.
pub fn number_taken() -> Failure {
    let why = "cannot store it as failed: another failed message has its id";
    Failure::new(Class::Unknown, why).with_code(NOT_STORED)
}

/// The failure of messages whose campaign was cancelled.
pub fn cancelled() -> Failure {
    Failure::new(Class::Cancelled, "its campaign was cancelled")
}

/// Why a message fails that expires while its window is closed.
pub const BEFORE_WINDOW: &str = "expires before its window opens again";

/// The failure of messages that expire before their window opens.
pub fn expired() -> Failure {
    Failure::new(Class::Expired, BEFORE_WINDOW)
}

/// The reason on the suppression list if the provider reports that the recipient opted out.
pub fn opted_out(settlement: &Settlement, failure: &Failure, now: Timestamp) -> Option<String> {
    let is_opted_out = failure.class == Class::OptedOut && !settlement.provider.is_empty();
    is_opted_out.then(|| opt_out_reason(&settlement.provider, now))
}

/// The reason on the suppression list of a recipient who opted out at a provider.
pub fn opt_out_reason(provider: &str, now: Timestamp) -> String {
    let date = date(now);
    format!("`{provider}` said on {date} that they want no more messages")
}

/// Why no message is sent to a number that does not exist, as a provider said at an instant.
pub fn dead_reason(provider: &str, code: Option<&str>, at: Timestamp) -> String {
    let code = code.map(|code| format!(" (code {code})"));
    format!(
        "the number does not exist, as `{provider}` said on {}{}",
        date(at),
        code.unwrap_or_default()
    )
}

/// The day in UTC: `2026-06-01`.
fn date(at: Timestamp) -> String {
    let instant = at.to_string();
    let date = instant.split('T').next();
    date.unwrap_or_default().to_owned()
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
    let mut counted = match claims {
        None if accepted > 0 => BTreeSet::from([sent_claim]),
        claims => claim_numbers(claims),
    };
    let is_new = counted.insert(settlement.claim) || Defect::SettleTwice.is_on();
    is_new.then(|| joined(&counted))
}

/// The numbers in a column of claims.
pub fn claim_numbers(claims: Option<&str>) -> BTreeSet<i64> {
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
    let is_own = row.claim == settlement.claim || Defect::Fence.is_on();
    if let Transition::Sent(acceptance) = &settlement.transition {
        let mut claims = claim_numbers(row.late_claims.as_deref());
        let is_new = claims.insert(settlement.claim);
        if is_sending && !is_own {
            return ResolvedTransition::Noted(is_new.then(|| joined(&claims)));
        }
        let is_only = claims.len() == 1 && is_own;
        return ResolvedTransition::Sent {
            provider: settlement.provider.clone(),
            acceptance: acceptance.clone(),
            counts: SentCounts {
                // The attempt of an unknown or ready message was counted before.
                attempts: i32::from(is_sending),
                accepted: i32::from(is_new),
                claims: (!is_only).then(|| joined(&claims)),
            },
            settled: if is_sending { Settled::Done } else { Settled::Late },
        };
    }
    if !is_own {
        return ResolvedTransition::Stale;
    }
    let proved = match &settlement.transition {
        Transition::FoundRejected(failure) => {
            // No other attempt had its reference.
            Some((failure, only_doubt(row.doubt_claim).is_some()))
        }
        Transition::FoundAbsent(failure) => Some((failure, row.has_doubt_end)),
        _ => None,
    };
    if let Some((failure, is_proof)) = proved {
        let Some(certain) = CertainFailure::proved(failure.clone(), row, is_proof) else {
            return ResolvedTransition::Stale;
        };
        // Its attempt was counted when it became unknown.
        return ResolvedTransition::Changed(RowChange {
            to: NewState::Failed(certain),
            counted: 0,
        });
    }
    if is_sending && row.late_accepted > 0 {
        // An older claim was accepted meanwhile, so the message is sent whatever the result of this one is.
        let was_attempted = !matches!(
            settlement.transition,
            Transition::NotAdmitted(_) | Transition::Ready { counted: false, .. }
        );
        let provider = row.late_provider.as_ref();
        return ResolvedTransition::Sent {
            provider: provider.unwrap_or(&settlement.provider).clone(),
            acceptance: row.late_acceptance.clone(),
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
        Transition::Failed(_) | Transition::Ready { in_doubt: false, .. }
    );
    let is_only_doubt = row.doubt_claim == Some(settlement.claim);
    if is_unknown && is_only_doubt && row.late_accepted == 0 && is_rejection {
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
    let earlier = |doubt| was_in_doubt.then_some(doubt);
    let (to, is_counted) = match settlement.transition.clone() {
        Transition::Failed(failure) => (NewState::ended(failure, earlier(Doubt::Earlier)), true),
        Transition::NotAdmitted(failure) => {
            // A worker with another rule for resends may queue it again. Otherwise no worker may: it would not be
            // admitted again.
            let failure = if was_in_doubt && failure.class != Class::Unknown {
                failure.with_code(NOT_ADMITTED)
            } else {
                failure
            };
            (NewState::ended(failure, earlier(Doubt::Unchanged)), false)
        }
        Transition::Unknown(failure) => (NewState::Unknown(failure, Doubt::New), true),
        Transition::Ready { due_at, failure, counted, in_doubt } => {
            // Without a failure no request was started.
            let doubt = if in_doubt {
                Some(Doubt::New)
            } else if counted || failure.is_some() {
                earlier(Doubt::Earlier)
            } else {
                earlier(Doubt::Unchanged)
            };
            let to = if is_cancelled {
                NewState::cancelled(failure, doubt)
            } else {
                NewState::Ready(Requeue { due_at, failure, doubt })
            };
            (to, counted)
        }
        Transition::Sent(_)
        | Transition::FoundRejected(_)
        | Transition::FoundAbsent(_)
        | Transition::Refunded => return ResolvedTransition::Stale,
    };
    ResolvedTransition::Changed(RowChange { to, counted: i32::from(is_counted) - counted_before })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message that is sending with claim 2, and was never in doubt.
    fn sending() -> RowState {
        RowState {
            claim: 2,
            state: State::Sending.code(),
            in_doubt: false,
            doubt_claim: None,
            has_doubt_end: false,
            late_accepted: 0,
            late_acceptance: Acceptance::default(),
            late_provider: None,
            late_claims: None,
        }
    }

    /// A message that is unknown since claim 2, its only attempt that may have been accepted.
    fn unknown() -> RowState {
        RowState {
            state: State::Unknown.code(),
            in_doubt: true,
            doubt_claim: Some(2),
            has_doubt_end: true,
            ..sending()
        }
    }

    fn in_doubt() -> RowState {
        RowState { in_doubt: true, doubt_claim: Some(1), ..sending() }
    }

    /// Claim 1 was accepted while claim 2 was sending.
    fn accepted_late(row: &RowState) -> RowState {
        RowState {
            late_accepted: 1,
            late_acceptance: accepted(),
            late_provider: Some("late".to_owned()),
            late_claims: Some("1".to_owned()),
            ..row.clone()
        }
    }

    fn accepted() -> Acceptance {
        Acceptance { message_id: Some("m".to_owned()), ..Acceptance::default() }
    }

    fn failure() -> Failure {
        Failure::new(Class::Recipient, "why")
    }

    fn ready(failure: Option<Failure>, counted: bool, in_doubt: bool) -> Transition {
        Transition::Ready { due_at: Timestamp::from_millis(1), failure, counted, in_doubt }
    }

    fn settlement(claim: i64, transition: Transition) -> Settlement {
        Settlement { id: 1, claim, provider: "own".to_owned(), transition }
    }

    /// What the result of claim 2 changes, and how many attempts it counts; `None` if it is stale.
    fn changed(
        transition: Transition,
        row: &RowState,
        is_cancelled: bool,
    ) -> Option<(NewState, i32)> {
        match resolve(&settlement(2, transition), row, is_cancelled) {
            ResolvedTransition::Changed(change) => Some((change.to, change.counted)),
            ResolvedTransition::Stale => None,
            resolved => panic!("{resolved:?}"),
        }
    }

    fn failed(failure: Failure) -> NewState {
        NewState::Failed(CertainFailure(failure))
    }

    fn requeued(failure: Option<Failure>, doubt: Option<Doubt>) -> NewState {
        NewState::Ready(Requeue { due_at: Timestamp::from_millis(1), failure, doubt })
    }

    #[test]
    fn result_of_a_sending_message_counts_its_attempt() {
        use Transition as T;
        let certain = |transition| changed(transition, &sending(), false);
        let doubtful = |transition| changed(transition, &in_doubt(), false);
        let why = || Some(failure());
        assert_eq!(certain(T::Failed(failure())), Some((failed(failure()), 1)));
        assert_eq!(
            doubtful(T::Failed(failure())),
            Some((NewState::Unknown(failure(), Doubt::Earlier), 1))
        );
        for row in [sending(), in_doubt()] {
            let unknown = NewState::Unknown(failure(), Doubt::New);
            assert_eq!(changed(T::Unknown(failure()), &row, false), Some((unknown, 1)));
            let again = requeued(why(), Some(Doubt::New));
            assert_eq!(changed(ready(why(), true, true), &row, false), Some((again, 1)));
            for transition in [T::FoundRejected(failure()), T::FoundAbsent(failure()), T::Refunded]
            {
                assert_eq!(changed(transition, &row, false), None);
            }
        }
        for (failure, counted, doubt) in [
            (why(), true, Doubt::Earlier),
            (why(), false, Doubt::Earlier),
            (None, true, Doubt::Earlier),
            (None, false, Doubt::Unchanged),
        ] {
            let transition = || ready(failure.clone(), counted, false);
            let count = i32::from(counted);
            assert_eq!(certain(transition()), Some((requeued(failure.clone(), None), count)));
            let again = requeued(failure.clone(), Some(doubt));
            assert_eq!(doubtful(transition()), Some((again, count)));
        }
    }

    #[test]
    fn message_that_is_not_admitted_ends_without_an_attempt() {
        let of = |class, row: &RowState| {
            let failure = Failure::new(class, "why");
            changed(Transition::NotAdmitted(failure), row, false)
        };
        assert_eq!(of(Class::Recipient, &sending()), Some((failed(failure()), 0)));
        let not_admitted = NewState::Unknown(failure().with_code(NOT_ADMITTED), Doubt::Unchanged);
        assert_eq!(of(Class::Recipient, &in_doubt()), Some((not_admitted, 0)));
        // Another worker may have a rule by which it is sent again.
        let refused = NewState::Unknown(Failure::new(Class::Unknown, "why"), Doubt::Unchanged);
        assert_eq!(of(Class::Unknown, &in_doubt()), Some((refused, 0)));
        let class = Failure::new(Class::Unknown, "why");
        assert_eq!(of(Class::Unknown, &sending()), Some((failed(class), 0)));
    }

    #[test]
    fn ready_message_of_a_cancelled_campaign_is_cancelled() {
        let cancel = |failure, row: &RowState| changed(ready(failure, false, false), row, true);
        let end = NewState::Cancelled(CertainFailure(cancelled()));
        assert_eq!(cancel(Some(failure()), &sending()), Some((end, 0)));
        let unknown = NewState::Unknown(failure(), Doubt::Earlier);
        assert_eq!(cancel(Some(failure()), &in_doubt()), Some((unknown, 0)));
        let unattempted = NewState::Unknown(cancelled(), Doubt::Unchanged);
        assert_eq!(cancel(None, &in_doubt()), Some((unattempted, 0)));
    }

    #[test]
    fn late_rejection_ends_only_the_doubt_of_its_own_claim() {
        use Transition as T;
        let late = |transition, row: &RowState| changed(transition, row, false);
        let rejections = || [T::Failed(failure()), ready(Some(failure()), true, false)];
        let ends = [failed(failure()), requeued(Some(failure()), None)];
        for (rejection, end) in rejections().into_iter().zip(ends) {
            // Its attempt was counted when it became unknown.
            assert_eq!(late(rejection, &unknown()), Some((end, 0)));
        }
        let uncounted = ready(Some(failure()), false, false);
        let requeued = requeued(Some(failure()), None);
        assert_eq!(late(uncounted, &unknown()), Some((requeued, -1)));
        for row in [
            RowState { doubt_claim: Some(1), ..unknown() },
            RowState { doubt_claim: None, ..unknown() },
            RowState { state: State::Ready.code(), ..unknown() },
            RowState { claim: 3, ..unknown() },
            accepted_late(&unknown()),
        ] {
            for rejection in rejections() {
                assert_eq!(late(rejection, &row), None, "{row:?}");
            }
        }
        for other in [
            T::Unknown(failure()),
            T::NotAdmitted(failure()),
            T::Refunded,
            ready(Some(failure()), true, true),
        ] {
            assert_eq!(late(other, &unknown()), None);
        }
    }

    #[test]
    fn lookup_ends_only_a_doubt_that_it_can_speak_of() {
        let found = |transition: fn(Failure) -> Transition, row: &RowState| {
            changed(transition(failure()), row, false)
        };
        let end = || Some((failed(failure()), 0));
        assert_eq!(found(Transition::FoundRejected, &unknown()), end());
        assert_eq!(found(Transition::FoundAbsent, &unknown()), end());
        let several = RowState { doubt_claim: None, ..unknown() };
        assert_eq!(found(Transition::FoundRejected, &several), None);
        assert_eq!(found(Transition::FoundAbsent, &several), end());
        let endless = RowState { has_doubt_end: false, ..unknown() };
        assert_eq!(found(Transition::FoundRejected, &endless), end());
        assert_eq!(found(Transition::FoundAbsent, &endless), None);
        let newer = RowState { claim: 3, ..unknown() };
        let ready = RowState { state: State::Ready.code(), ..unknown() };
        for row in [newer, ready, accepted_late(&unknown())] {
            assert_eq!(found(Transition::FoundRejected, &row), None, "{row:?}");
            assert_eq!(found(Transition::FoundAbsent, &row), None, "{row:?}");
        }
    }

    fn sent(claim: i64, row: &RowState) -> ResolvedTransition {
        resolve(&settlement(claim, Transition::Sent(accepted())), row, true)
    }

    fn sent_as(
        settled: Settled,
        attempts: i32,
        accepted_count: i32,
        claims: Option<&str>,
    ) -> ResolvedTransition {
        ResolvedTransition::Sent {
            provider: "own".to_owned(),
            acceptance: accepted(),
            counts: SentCounts {
                attempts,
                accepted: accepted_count,
                claims: claims.map(str::to_owned),
            },
            settled,
        }
    }

    #[test]
    fn acceptance_counts_once_whatever_became_of_its_row() {
        use Settled::{Done, Late};
        assert_eq!(sent(2, &sending()), sent_as(Done, 1, 1, None));
        assert_eq!(sent(2, &unknown()), sent_as(Late, 0, 1, None));
        // The row has a newer claim, so the claims are listed.
        assert_eq!(sent(1, &unknown()), sent_as(Late, 0, 1, Some("1")));
        let both = accepted_late(&sending());
        assert_eq!(sent(2, &both), sent_as(Done, 1, 1, Some("1,2")));
        let late = accepted_late(&unknown());
        assert_eq!(sent(1, &late), sent_as(Late, 0, 0, Some("1")));
    }

    #[test]
    fn older_acceptance_is_noted_once_while_newer_claim_is_sending() {
        let noted = |claims: Option<&str>| ResolvedTransition::Noted(claims.map(str::to_owned));
        assert_eq!(sent(1, &sending()), noted(Some("1")));
        assert_eq!(sent(1, &accepted_late(&sending())), noted(None));
        assert_eq!(sent(0, &accepted_late(&sending())), noted(Some("0,1")));
    }

    #[test]
    fn message_accepted_late_is_sent_whatever_its_result() {
        let row = accepted_late(&sending());
        for (transition, attempts) in [
            (Transition::Failed(failure()), 1),
            (Transition::Unknown(failure()), 1),
            (ready(Some(failure()), true, false), 1),
            (ready(Some(failure()), false, false), 0),
            (Transition::NotAdmitted(failure()), 0),
        ] {
            let resolved = |row: &RowState| resolve(&settlement(2, transition.clone()), row, true);
            let sent = |provider: &str| ResolvedTransition::Sent {
                provider: provider.to_owned(),
                acceptance: accepted(),
                counts: SentCounts { attempts, accepted: 0, claims: Some("1".to_owned()) },
                settled: Settled::Done,
            };
            assert_eq!(resolved(&row), sent("late"));
            let unnamed = RowState { late_provider: None, ..row.clone() };
            assert_eq!(resolved(&unnamed), sent("own"));
        }
    }

    #[test]
    fn accepted_claim_is_added_once() {
        let sent = |claim| settlement(claim, Transition::Sent(accepted()));
        let added =
            |claim, accepted, claims| with_accepted_claim(&sent(claim), 5, accepted, claims);
        // Without a list, the claim of the row was accepted, if any was.
        assert_eq!(added(4, 1, None).as_deref(), Some("4,5"));
        assert_eq!(added(5, 1, None), None);
        assert_eq!(added(5, 0, None).as_deref(), Some("5"));
        assert_eq!(added(4, 0, None).as_deref(), Some("4"));
        assert_eq!(added(4, 2, Some("3,5")).as_deref(), Some("3,4,5"));
        assert_eq!(added(3, 2, Some("3,5")), None);
    }

    #[test]
    fn only_a_provider_reports_that_a_recipient_opted_out() {
        let now = Timestamp::from_millis(86_400_000);
        let reason = |provider: &str, class| {
            let settlement =
                Settlement { provider: provider.to_owned(), ..settlement(2, Transition::Refunded) };
            opted_out(&settlement, &Failure::new(class, "why"), now)
        };
        assert_eq!(
            reason("own", Class::OptedOut).as_deref(),
            Some("`own` said on 1970-01-02 that they want no more messages")
        );
        assert_eq!(reason("", Class::OptedOut), None);
        assert_eq!(reason("own", Class::Content), None);
    }

    #[test]
    fn reason_of_a_dead_number_has_provider_day_and_code() {
        let at = Timestamp::from_millis(86_400_000);
        let reason = |code| dead_reason("own", code, at);
        let expected = "the number does not exist, as `own` said on 1970-01-02";
        assert_eq!(reason(None), expected);
        assert_eq!(reason(Some("7")), format!("{expected} (code 7)"));
    }

    #[test]
    fn only_ready_is_a_requeue() {
        let is = |transition| is_requeue(&settlement(2, transition));
        assert!(is(ready(None, false, false)));
        assert!(!is(Transition::Failed(failure())));
    }

    #[test]
    fn failure_is_certain_unless_the_message_is_in_doubt() {
        let certain = CertainFailure::unless_in_doubt(failure(), false);
        assert_eq!(certain.as_ref().map(CertainFailure::failure), Ok(&failure()));
        assert_eq!(CertainFailure::unless_in_doubt(failure(), true), Err(failure()));
        assert_eq!(CertainFailure::by_operator().failure().class, Class::Settled);
    }

    fn transitions() -> impl Strategy<Value = Transition> {
        let failure = Failure::new(Class::Recipient, "why");
        (0..8, any::<bool>(), any::<bool>()).prop_map(move |(kind, counted, in_doubt)| {
            let failure = failure.clone();
            match kind {
                0 => Transition::Sent(Acceptance::default()),
                1 => Transition::Failed(failure),
                2 => Transition::NotAdmitted(failure),
                3 => Transition::Unknown(failure),
                4 => Transition::FoundRejected(failure),
                5 => Transition::FoundAbsent(failure),
                6 => Transition::Refunded,
                _ => Transition::Ready {
                    due_at: Timestamp::from_millis(1),
                    failure: Some(failure),
                    counted,
                    in_doubt,
                },
            }
        })
    }

    fn rows() -> impl Strategy<Value = RowState> {
        let states = [State::Ready, State::Sending, State::Unknown].map(State::code);
        let state = prop::sample::select(states.to_vec());
        let doubt_claim = prop::option::of(1_i64..4);
        (state, 1_i64..4, doubt_claim, any::<bool>(), 0..2).prop_map(
            |(state, claim, doubt_claim, has_doubt_end, late_accepted)| RowState {
                claim,
                state,
                in_doubt: doubt_claim.is_some() || has_doubt_end,
                doubt_claim,
                has_doubt_end,
                late_accepted,
                late_acceptance: Acceptance::default(),
                late_provider: None,
                late_claims: (late_accepted > 0).then(|| "1".to_owned()),
            },
        )
    }

    proptest! {
        #[test]
        fn message_in_doubt_fails_only_by_the_end_of_that_doubt(
            transition in transitions(),
            row in rows(),
            claim in 1_i64..4,
            is_cancelled: bool,
        ) {
            let settlement = Settlement { id: 1, claim, provider: String::new(), transition };
            let resolved = resolve(&settlement, &row, is_cancelled);
            let is_proof = match &settlement.transition {
                Transition::FoundAbsent(_) => row.has_doubt_end,
                Transition::FoundRejected(_) => row.doubt_claim.is_some(),
                _ => row.doubt_claim == Some(claim),
            };
            let ends_doubt = row.state == State::Unknown.code() && row.claim == claim && is_proof;
            let may_be_accepted = row.late_accepted > 0 || (row.in_doubt && !ends_doubt);
            match &resolved {
                ResolvedTransition::Changed(RowChange { to, .. }) => match to {
                    NewState::Failed(_) | NewState::Cancelled(_) => {
                        prop_assert!(!may_be_accepted, "{row:?} -> {resolved:?}");
                    }
                    NewState::Ready(requeue) => {
                        prop_assert!(requeue.doubt.is_some() || !may_be_accepted, "{row:?} -> {resolved:?}");
                    }
                    NewState::Unknown(..) => {}
                },
                ResolvedTransition::Stale
                | ResolvedTransition::Noted(_)
                | ResolvedTransition::Sent { .. } => {}
            }
        }
    }
}
