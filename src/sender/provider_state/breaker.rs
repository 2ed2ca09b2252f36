//! Stops calling a provider that is unavailable, and finds out when it is available again: after consecutive failures
//! single messages probe it, and the attempts of those failures are refunded. A message that fails while
//! others are read is at fault itself: its attempts count, and it does not open the breaker.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::SignedDuration;
use serde::Deserialize;
use smsq_message::instant::SteadyMicros;
use smsq_message::sms::Timestamp;

/// Section `[circuit_breaker]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many consecutive failed requests open the breaker.
    pub failures: u32,
    /// The wait before the first probe; it doubles with every further one.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub first_probe: Duration,
    /// The longest wait between two probes.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub max_probe: Duration,
}

/// One failed request: a single sign of an outage, however many messages it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    pub started_at: SteadyMicros,
    /// The message that may be at fault: the only one of a request that was sent.
    pub message: Option<i64>,
    /// The answer may repeat the refusal of an earlier attempt with the same reference: it says nothing about the
    /// provider, and the attempt counts, or it would be repeated for ever.
    pub may_be_repeated: bool,
    /// Messages, each with its claim, that certainly did not reach the provider.
    pub refundable: Vec<(i64, i64)>,
}

/// How many messages may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    Any,
    /// One, to find out whether the provider is available again.
    One,
    /// None before this instant; without one, none before the running probe has ended.
    None(Option<Timestamp>),
}

/// Whether a failed attempt counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptCharge {
    Counted,
    /// It was part of an outage and does not count, nor do these earlier ones: messages with their claims.
    Free(Vec<(i64, i64)>),
}

#[derive(Debug)]
enum BreakerState {
    /// The failures since the last success.
    Closed(Vec<FailedRequest>),
    Open {
        /// When the first request of the outage started.
        since_steady: SteadyMicros,
        /// The same by the database's clock.
        since: Timestamp,
        waits: u32,
        probe_at: Timestamp,
        probing: bool,
    },
}

/// Watches one provider.
#[derive(Debug)]
pub struct CircuitBreaker {
    config: Config,
    state: BreakerState,
    /// The messages that failed and were not accepted since.
    failing: HashMap<i64, Failing>,
    /// The latest start of a request that the provider responded to.
    responded_start: SteadyMicros,
    /// The latest answer to such a request.
    responded_at: SteadyMicros,
}

/// The first failure of a message.
#[derive(Clone, Copy, Debug)]
struct Failing {
    started_at: SteadyMicros,
    failed_at: SteadyMicros,
}

/// How many failing messages are remembered; each further one counts as a sign of an outage.
const MOST_FAILING: usize = 100_000;
/// A message whose first attempt starts this soon after another's response may be at fault.
const SHORTLY: Duration = Duration::from_secs(1);
/// How many consecutive failures are remembered.
const LONGEST_RUN: usize = 1_000;

impl CircuitBreaker {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: BreakerState::Closed(Vec::new()),
            failing: HashMap::new(),
            responded_start: SteadyMicros::MIN,
            responded_at: SteadyMicros::MIN,
        }
    }

    /// The provider responded to a request that started at `started_at`, at `at`.
    pub fn responded(&mut self, started_at: SteadyMicros, at: SteadyMicros) {
        self.responded_start = self.responded_start.max(started_at);
        self.responded_at = self.responded_at.max(at);
    }

    /// The message needs no further attempt.
    pub fn forget(&mut self, message: i64) {
        if !self.failing.is_empty() {
            self.failing.remove(&message);
        }
    }

    pub fn allowed(&self, now: Timestamp) -> Allowed {
        match self.state {
            BreakerState::Closed(_) => Allowed::Any,
            BreakerState::Open { probing: true, .. } => Allowed::None(None),
            BreakerState::Open { probe_at, .. } if now >= probe_at => Allowed::One,
            BreakerState::Open { probe_at, .. } => Allowed::None(Some(probe_at)),
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, BreakerState::Open { .. })
    }

    /// When the first request of the outage started, while the breaker is open.
    pub fn open_since(&self) -> Option<Timestamp> {
        match self.state {
            BreakerState::Closed(_) => None,
            BreakerState::Open { since, .. } => Some(since),
        }
    }

    /// Whether a probe has been due for this long, and none was started: there was no message for it.
    pub fn lacks_probe(&self, now: Timestamp, patience: Duration) -> bool {
        match self.state {
            BreakerState::Open { probe_at, probing: false, .. } => now >= probe_at.plus(patience),
            BreakerState::Open { probing: true, .. } | BreakerState::Closed(_) => false,
        }
    }

    /// When the next probe may start, while the breaker is open.
    pub fn probe_at(&self) -> Option<Timestamp> {
        match self.state {
            BreakerState::Closed(_) => None,
            BreakerState::Open { probe_at, .. } => Some(probe_at),
        }
    }

    /// Follows a clock that was set.
    pub fn shift(&mut self, by: SignedDuration) {
        if let BreakerState::Open { since, probe_at, .. } = &mut self.state {
            for at in [since, probe_at] {
                *at = at.shifted(by);
            }
        }
    }

    /// A request starts, which is a probe while the breaker is open.
    pub fn probe(&mut self) {
        if let BreakerState::Open { probing, .. } = &mut self.state {
            *probing = true;
        }
    }

    /// A probe was not started.
    pub fn probe_released(&mut self) {
        if let BreakerState::Open { probing, .. } = &mut self.state {
            *probing = false;
        }
    }

    /// Records an answer to a request that started at `started_at`. One that started before the failures
    /// proves nothing. Returns whether the breaker was open.
    pub fn answered(&mut self, started_at: SteadyMicros) -> bool {
        let (since, was_open) = match &self.state {
            BreakerState::Closed(run) => (run.first().map(|first| first.started_at), false),
            BreakerState::Open { since_steady, .. } => (Some(*since_steady), true),
        };
        if since.is_some_and(|since| started_at < since) {
            return false;
        }
        self.state = BreakerState::Closed(Vec::new());
        was_open
    }

    /// Records a request that failed at `failed_at`. `jitter` is uniform in `0..1`.
    pub fn failed(
        &mut self,
        attempt: FailedRequest,
        failed_at: SteadyMicros,
        now: Timestamp,
        jitter: f64,
    ) -> AttemptCharge {
        let wait = self.wait(0, jitter);
        if let Some(message) = attempt.message.filter(|_| self.failing.len() < MOST_FAILING) {
            self.failing
                .entry(message)
                .or_insert(Failing { started_at: attempt.started_at, failed_at });
        }
        let is_at_fault = attempt.may_be_repeated || self.is_proven(attempt.message);
        let charge = if attempt.may_be_repeated {
            AttemptCharge::Counted
        } else {
            AttemptCharge::Free(Vec::new())
        };
        let is_outage = self.is_outage(&attempt);
        match &mut self.state {
            BreakerState::Closed(_) if is_at_fault => AttemptCharge::Counted,
            BreakerState::Closed(run) => {
                if !is_outage {
                    run.push(attempt);
                    let surplus = run.len().saturating_sub(LONGEST_RUN);
                    run.drain(..surplus);
                    return AttemptCharge::Counted;
                }
                let since_steady = run.first().map_or(attempt.started_at, |first| first.started_at);
                let refunds = run.drain(..).flat_map(|earlier| earlier.refundable).collect();
                self.state = BreakerState::Open {
                    since_steady,
                    since: now.minus(failed_at.since(since_steady)),
                    waits: 0,
                    probe_at: now.plus(wait),
                    probing: false,
                };
                AttemptCharge::Free(refunds)
            }
            BreakerState::Open { probing: false, .. } => charge,
            BreakerState::Open { waits, .. } => {
                let next = waits.saturating_add(1);
                let wait = self.wait(next, jitter);
                if let BreakerState::Open { waits, probe_at, probing, .. } = &mut self.state {
                    (*waits, *probe_at, *probing) = (next, now.plus(wait), false);
                }
                charge
            }
        }
    }

    /// Whether the message is at fault: the provider has responded to others that were sent after its first failure.
    fn is_proven(&self, message: Option<i64>) -> bool {
        let failing = message.and_then(|message| self.failing.get(&message));
        failing.is_some_and(|failing| failing.failed_at < self.responded_start)
    }

    /// Whether the message may be at fault: others got a response shortly before its first attempt, or later.
    fn is_suspect(&self, message: Option<i64>) -> bool {
        let failing = message.and_then(|message| self.failing.get(&message));
        failing.is_some_and(|failing| failing.started_at <= self.responded_at.plus(SHORTLY))
    }

    /// Whether the failures up to this one are an outage, not the fault of a few messages.
    fn is_outage(&self, last: &FailedRequest) -> bool {
        let BreakerState::Closed(run) = &self.state else {
            return true;
        };
        let failures = self.config.failures.max(1) as usize;
        if run.len() + 1 < failures {
            return false;
        }
        // A message that may be at fault counts once, however often it failed.
        let mut suspects = HashSet::new();
        let mut others = 0;
        // An older request proves nothing: the provider has responded to one that started later.
        let is_evidence = |attempt: &&FailedRequest| attempt.started_at >= self.responded_start;
        for attempt in run.iter().chain([last]).filter(is_evidence) {
            if self.is_suspect(attempt.message) {
                suspects.insert(attempt.message);
            } else {
                others += 1;
            }
        }
        suspects.len() + others >= if others == 0 { failures.max(2) } else { failures }
    }

    /// Half to all of a wait that doubles, so that workers do not probe at the same time.
    fn wait(&self, waits: u32, jitter: f64) -> Duration {
        let longest = self
            .config
            .first_probe
            .saturating_mul(2_u32.saturating_pow(waits.min(30)))
            .min(self.config.max_probe);
        longest.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> CircuitBreaker {
        CircuitBreaker::new(Config {
            failures: 3,
            first_probe: Duration::from_secs(1),
            max_probe: Duration::from_secs(30),
        })
    }

    fn attempt(id: i64) -> FailedRequest {
        FailedRequest {
            may_be_repeated: false,
            started_at: instant(id),
            message: Some(id),
            refundable: vec![(id, 1)],
        }
    }

    fn fail(breaker: &mut CircuitBreaker, attempt: FailedRequest, now: Timestamp) -> AttemptCharge {
        let failed_at = attempt.started_at;
        breaker.failed(attempt, failed_at, now, 1.0)
    }

    /// Instants that are far apart.
    fn instant(number: i64) -> SteadyMicros {
        SteadyMicros::new(number * 10_000_000)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn requests_older_than_an_answered_one_do_not_open_it() {
        let mut breaker = breaker();
        // They time out while nothing else is sent, because the provider has asked for a pause.
        breaker.responded(instant(10), instant(11));
        for id in 1..=9 {
            let charge = breaker.failed(attempt(id), instant(20), Timestamp::default(), 1.0);
            assert_eq!(charge, AttemptCharge::Counted);
        }
        assert!(!breaker.is_open());
        // In an outage their attempts are refunded, too.
        for id in 11..=12 {
            fail(&mut breaker, attempt(id), Timestamp::default());
        }
        let AttemptCharge::Free(refunds) = fail(&mut breaker, attempt(13), Timestamp::default())
        else {
            panic!("it is an outage");
        };
        assert!(breaker.is_open());
        assert_eq!(refunds.len(), 11);
    }

    #[test]
    fn consecutive_failures_open_it_and_are_refunded() {
        let mut breaker = breaker();
        assert_eq!(fail(&mut breaker, attempt(1), at(0)), AttemptCharge::Counted);
        let unsure = FailedRequest { refundable: Vec::new(), ..attempt(2) };
        assert_eq!(fail(&mut breaker, unsure, at(0)), AttemptCharge::Counted);
        assert_eq!(fail(&mut breaker, attempt(3), at(0)), AttemptCharge::Free(vec![(1, 1)]));
        assert_eq!(fail(&mut breaker, attempt(4), at(0)), AttemptCharge::Free(vec![]));
        assert_eq!(breaker.allowed(at(0)), Allowed::None(Some(at(1))));
    }

    #[test]
    fn batch_is_one_failure_and_all_its_messages_are_refunded() {
        let mut breaker = breaker();
        let call = |first: i64| FailedRequest {
            may_be_repeated: false,
            started_at: instant(first),
            message: None,
            refundable: (first..first + 100).map(|id| (id, 1)).collect(),
        };
        assert_eq!(fail(&mut breaker, call(0), at(0)), AttemptCharge::Counted);
        assert_eq!(fail(&mut breaker, call(100), at(0)), AttemptCharge::Counted);
        let refunds = (0..200).map(|id| (id, 1)).collect();
        assert_eq!(fail(&mut breaker, call(200), at(0)), AttemptCharge::Free(refunds));
    }

    #[test]
    fn success_ends_a_series_of_failures() {
        let mut breaker = breaker();
        for id in 0..10 {
            assert_eq!(fail(&mut breaker, attempt(id), at(0)), AttemptCharge::Counted);
            assert_eq!(fail(&mut breaker, attempt(id), at(0)), AttemptCharge::Counted);
            assert!(!breaker.answered(instant(id)));
        }
    }

    #[test]
    fn answer_to_an_older_request_does_not_end_an_outage() {
        let mut breaker = breaker();
        fail(&mut breaker, attempt(10), at(0));
        fail(&mut breaker, attempt(11), at(0));
        assert!(!breaker.answered(instant(9)));
        let refunds = vec![(10, 1), (11, 1)];
        assert_eq!(fail(&mut breaker, attempt(12), at(0)), AttemptCharge::Free(refunds));
        assert!(!breaker.answered(instant(9)));
        assert_eq!(breaker.allowed(at(0)), Allowed::None(Some(at(1))));
        assert!(breaker.answered(instant(13)));
    }

    #[test]
    fn one_probe_at_a_time_at_most_max_probe_apart() {
        let mut breaker = breaker();
        for id in 0..3 {
            fail(&mut breaker, attempt(id), at(0));
        }
        let mut now = at(1);
        for _ in 0..20 {
            assert_eq!(breaker.allowed(now), Allowed::One);
            breaker.probe();
            assert_eq!(breaker.allowed(now), Allowed::None(None));
            assert_eq!(fail(&mut breaker, attempt(9), now), AttemptCharge::Free(vec![]));
            let next = breaker.probe_at().expect("it is open");
            assert!(next.since(now) <= Duration::from_secs(30));
            now = next;
        }
        breaker.probe();
        assert!(breaker.answered(instant(9)));
        assert_eq!(breaker.allowed(now), Allowed::Any);
    }

    #[test]
    fn breaker_lacks_a_probe_that_is_due_until_one_starts() {
        let mut breaker = breaker();
        let patience = Duration::from_secs(2);
        assert!(!breaker.lacks_probe(at(9), patience));
        for id in 0..3 {
            fail(&mut breaker, attempt(id), at(0));
        }
        assert!(!breaker.lacks_probe(at(2), patience));
        assert!(breaker.lacks_probe(at(3), patience));
        breaker.probe();
        assert!(!breaker.lacks_probe(at(9), patience));
        breaker.probe_released();
        assert!(breaker.lacks_probe(at(9), patience));
        breaker.probe();
        fail(&mut breaker, attempt(4), at(9));
        assert!(!breaker.lacks_probe(at(9), patience));
    }

    #[test]
    fn answer_that_may_be_repeated_opens_nothing_and_counts() {
        let mut breaker = breaker();
        let repeated = |id| FailedRequest { may_be_repeated: true, ..attempt(id) };
        for id in 0..9 {
            let charge = fail(&mut breaker, repeated(id), at(0));
            assert_eq!(charge, AttemptCharge::Counted);
        }
        assert_eq!(breaker.allowed(at(0)), Allowed::Any);
        for id in 0..3 {
            fail(&mut breaker, attempt(id), at(0));
        }
        breaker.probe();
        let charge = fail(&mut breaker, repeated(4), at(1));
        assert_eq!(charge, AttemptCharge::Counted);
        assert!(matches!(breaker.allowed(at(1)), Allowed::None(Some(_))));
    }

    /// Message `id` fails for the `n`th time, each time 10 steps later.
    fn again(breaker: &mut CircuitBreaker, id: i64, n: i64) -> AttemptCharge {
        let attempt = FailedRequest {
            may_be_repeated: false,
            started_at: instant(n * 10),
            message: Some(id),
            refundable: vec![(id, n)],
        };
        breaker.failed(attempt, instant(n * 10 + 1), at(0), 1.0)
    }

    #[test]
    fn message_that_fails_while_others_are_read_is_charged() {
        let mut breaker = breaker();
        assert_eq!(again(&mut breaker, 1, 0), AttemptCharge::Counted);
        // Sent at the same time, answered later: enough for one message, not for many.
        breaker.responded(instant(0), instant(2));
        for n in 1..50 {
            assert_eq!(again(&mut breaker, 1, n), AttemptCharge::Counted, "{n}");
        }
        assert_eq!(breaker.allowed(at(0)), Allowed::Any);
        assert_eq!(again(&mut breaker, 2, 50), AttemptCharge::Counted);
    }

    #[test]
    fn last_message_is_at_fault_shortly_after_a_response() {
        for (later, is_charged) in [(SHORTLY, true), (SHORTLY * 2, false)] {
            let mut breaker = breaker();
            breaker.responded(instant(0), instant(1));
            let mut started_at = instant(1).plus(later);
            let mut charges = Vec::new();
            for claim in 0..9 {
                let attempt = FailedRequest {
                    may_be_repeated: false,
                    started_at,
                    message: Some(1),
                    refundable: vec![(1, claim)],
                };
                charges.push(breaker.failed(attempt, started_at, at(0), 1.0));
                started_at = started_at.plus(SHORTLY * 10);
            }
            let are_counted = charges.iter().all(|charge| *charge == AttemptCharge::Counted);
            assert_eq!(are_counted, is_charged, "{later:?}");
        }
    }

    #[test]
    fn messages_that_failed_before_others_were_read_are_charged() {
        let mut breaker = breaker();
        for id in 0..6 {
            again(&mut breaker, id, id);
            let read = id * 10 + 5;
            breaker.responded(instant(read), instant(read + 1));
            breaker.answered(instant(read));
        }
        for n in 6..60 {
            assert_eq!(again(&mut breaker, n % 6, n), AttemptCharge::Counted, "{n}");
        }
        assert_eq!(breaker.allowed(at(0)), Allowed::Any);
        // Those that were never tried before are a sign of an outage.
        for id in 100..102 {
            assert_eq!(again(&mut breaker, id, id), AttemptCharge::Counted);
        }
        assert!(matches!(again(&mut breaker, 102, 102), AttemptCharge::Free(_)));
        assert!(matches!(again(&mut breaker, 1, 103), AttemptCharge::Free(_)));
    }

    #[test]
    fn outage_right_after_acceptances_is_refunded() {
        let mut breaker = breaker();
        // All started together; some got a response, then the provider was unavailable.
        breaker.responded(instant(0), instant(5));
        let mut refunds = Vec::new();
        for id in 0..20 {
            let attempt = FailedRequest {
                may_be_repeated: false,
                started_at: instant(0),
                message: Some(id),
                refundable: vec![(id, 1)],
            };
            match breaker.failed(attempt, instant(6), at(0), 1.0) {
                AttemptCharge::Counted => assert!(id < 2, "{id}"),
                AttemptCharge::Free(given_back) => refunds.extend(given_back),
            }
        }
        assert_eq!(refunds, vec![(0, 1), (1, 1)]);
    }

    #[test]
    fn failed_connection_is_never_the_fault_of_a_message() {
        let mut breaker = breaker();
        breaker.responded(instant(0), instant(1_000));
        for n in 0..3 {
            let attempt = FailedRequest {
                may_be_repeated: false,
                started_at: instant(n),
                message: None,
                refundable: vec![(1, n)],
            };
            let charge = breaker.failed(attempt, instant(n), at(0), 1.0);
            assert_eq!(matches!(charge, AttemptCharge::Free(_)), n == 2);
        }
    }

    /// What happens next to one of two messages, or to a third one that is read.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum TestStep {
        Fails(i64),
        Unreached(i64),
        Read,
    }

    #[test]
    fn every_history_charges_only_messages_at_fault() {
        const STEPS: [TestStep; 5] = [
            TestStep::Fails(1),
            TestStep::Fails(2),
            TestStep::Unreached(1),
            TestStep::Unreached(2),
            TestStep::Read,
        ];
        for number in 0..5_usize.pow(7) {
            let history: Vec<TestStep> =
                (0..7).map(|at| STEPS[number / 5_usize.pow(at) % 5]).collect();
            let mut breaker = breaker();
            let mut first = HashMap::new();
            let mut last_read = None;
            // Failures since the last answer that are not a message's own fault.
            let mut signs = Vec::new();
            for (index, step) in (0_i64..).zip(&history) {
                if breaker.probe_at().is_some() {
                    break;
                }
                let (started, ended) = (index * 10, index * 10 + 1);
                let (id, message) = match *step {
                    TestStep::Read => {
                        breaker.responded(instant(started), instant(ended));
                        breaker.answered(instant(started));
                        last_read = Some(index);
                        signs.clear();
                        continue;
                    }
                    TestStep::Fails(id) => (id, Some(id)),
                    TestStep::Unreached(id) => (id, None),
                };
                if message.is_some() {
                    first.entry(id).or_insert(index);
                }
                let attempt = FailedRequest {
                    may_be_repeated: false,
                    started_at: instant(started),
                    message,
                    refundable: vec![(id, index)],
                };
                let is_own_fault = message.is_some() && last_read > first.get(&id).copied();
                if !is_own_fault {
                    signs.push((id, index));
                }
                let expected = match signs.split_last() {
                    Some((_, earlier)) if !is_own_fault && signs.len() == 3 => {
                        AttemptCharge::Free(earlier.to_vec())
                    }
                    _ => AttemptCharge::Counted,
                };
                let charge = breaker.failed(attempt, instant(ended), at(0), 1.0);
                assert_eq!(charge, expected, "{history:?} at {index}");
            }
        }
    }
}
