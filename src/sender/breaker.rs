//! Stops sending to a provider that is away, and finds out when it is back: after a run of failures
//! one message at a time probes, and the attempts of that run are given back.

use std::time::Duration;

use serde::Deserialize;

use crate::sms::Timestamp;

/// Section `[breaker]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// So many requests in a row that failed open the breaker.
    pub failures: u32,
    /// The wait before the first probe; it doubles with every further one.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub first_probe: Duration,
    /// The longest wait between two probes.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub max_probe: Duration,
}

/// One request that failed: one witness, however many messages it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it started, in microseconds of the host's steady clock.
    pub started_us: i64,
    /// Messages, each with its claim, of which nothing reached the provider: their attempts can be given back.
    pub certain: Vec<(i64, i64)>,
}

/// How many messages may start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    Any,
    /// One, to see whether the provider is back.
    One,
    /// None before this moment, or, without one, before the probe that runs has ended.
    None(Option<Timestamp>),
}

/// What a failure means for the attempt that met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Toll {
    /// It counts.
    Counted,
    /// It was part of an outage and does not count; neither do these earlier ones, each message with its claim.
    Free(Vec<(i64, i64)>),
}

#[derive(Debug)]
enum State {
    /// The failures since the last success.
    Closed(Vec<Attempt>),
    Open {
        /// When the first request of the outage started.
        since_us: i64,
        waits: u32,
        probe_at: Timestamp,
        probing: bool,
    },
}

/// Watches one provider.
#[derive(Debug)]
pub struct Breaker {
    config: Config,
    state: State,
}

impl Breaker {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: State::Closed(Vec::new()),
        }
    }

    pub fn allowed(&self, now: Timestamp) -> Allowed {
        match self.state {
            State::Closed(_) => Allowed::Any,
            State::Open { probing: true, .. } => Allowed::None(None),
            State::Open { probe_at, .. } if now >= probe_at => Allowed::One,
            State::Open { probe_at, .. } => Allowed::None(Some(probe_at)),
        }
    }

    /// When the next probe may start, while the breaker is open.
    pub fn probe_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Closed(_) => None,
            State::Open { probe_at, .. } => Some(probe_at),
        }
    }

    /// The database's clock was set: the next probe waits as long as before.
    pub fn shift(&mut self, by_us: i64) {
        if let State::Open { probe_at, .. } = &mut self.state {
            let shifted = probe_at.as_millis().saturating_add(by_us / 1_000);
            *probe_at = Timestamp::from_millis(shifted);
        }
    }

    /// A message starts although the breaker is open.
    pub fn probe(&mut self) {
        if let State::Open { probing, .. } = &mut self.state {
            *probing = true;
        }
    }

    /// The probe came back without having asked the provider.
    pub fn probe_released(&mut self) {
        if let State::Open { probing, .. } = &mut self.state {
            *probing = false;
        }
    }

    /// The provider answered, in its right mind, a request that started at `started_us`. One that
    /// started before the failures did says nothing of them. Returns whether it had been away.
    pub fn answered(&mut self, started_us: i64) -> bool {
        let (since_us, was_open) = match &self.state {
            State::Closed(run) => (run.first().map(|first| first.started_us), false),
            State::Open { since_us, .. } => (Some(*since_us), true),
        };
        if since_us.is_some_and(|since_us| started_us < since_us) {
            return false;
        }
        self.state = State::Closed(Vec::new());
        was_open
    }

    /// The provider did not answer, or as one that is away. `jitter` is uniform in `0..1`.
    pub fn failed(&mut self, attempt: Attempt, now: Timestamp, jitter: f64) -> Toll {
        let wait = self.wait(0, jitter);
        match &mut self.state {
            State::Closed(run) => {
                if run.len() + 1 < self.config.failures.max(1) as usize {
                    run.push(attempt);
                    return Toll::Counted;
                }
                let since_us = run
                    .first()
                    .map_or(attempt.started_us, |first| first.started_us);
                let refunds = run.drain(..).flat_map(|earlier| earlier.certain).collect();
                self.state = State::Open {
                    since_us,
                    waits: 0,
                    probe_at: now.plus(wait),
                    probing: false,
                };
                Toll::Free(refunds)
            }
            State::Open { probing: false, .. } => Toll::Free(Vec::new()),
            State::Open {
                since_us, waits, ..
            } => {
                let (since_us, waits) = (*since_us, waits.saturating_add(1));
                self.state = State::Open {
                    since_us,
                    waits,
                    probe_at: now.plus(self.wait(waits, jitter)),
                    probing: false,
                };
                Toll::Free(Vec::new())
            }
        }
    }

    /// Between half and the whole of a wait that doubles, so that workers do not probe in step.
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

    fn breaker() -> Breaker {
        Breaker::new(Config {
            failures: 3,
            first_probe: Duration::from_secs(1),
            max_probe: Duration::from_secs(30),
        })
    }

    fn attempt(id: i64) -> Attempt {
        Attempt {
            started_us: id,
            certain: vec![(id, 1)],
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_run_of_failures_opens_it_and_is_given_back() {
        let mut breaker = breaker();
        assert_eq!(breaker.failed(attempt(1), at(0), 1.0), Toll::Counted);
        let unsure = Attempt {
            certain: Vec::new(),
            ..attempt(2)
        };
        assert_eq!(breaker.failed(unsure, at(0), 1.0), Toll::Counted);
        assert_eq!(
            breaker.failed(attempt(3), at(0), 1.0),
            Toll::Free(vec![(1, 1)])
        );
        assert_eq!(breaker.failed(attempt(4), at(0), 1.0), Toll::Free(vec![]));
        assert_eq!(breaker.allowed(at(0)), Allowed::None(Some(at(1))));
    }

    #[test]
    fn a_request_is_one_failure_however_many_messages_it_held_and_all_of_them_get_their_attempt_back()
     {
        let mut breaker = breaker();
        let call = |first: i64| Attempt {
            started_us: first,
            certain: (first..first + 100).map(|id| (id, 1)).collect(),
        };
        assert_eq!(breaker.failed(call(0), at(0), 1.0), Toll::Counted);
        assert_eq!(breaker.failed(call(100), at(0), 1.0), Toll::Counted);
        let refunds = (0..200).map(|id| (id, 1)).collect();
        assert_eq!(breaker.failed(call(200), at(0), 1.0), Toll::Free(refunds));
    }

    #[test]
    fn a_success_in_between_starts_the_run_anew() {
        let mut breaker = breaker();
        for id in 0..10 {
            assert_eq!(breaker.failed(attempt(id), at(0), 1.0), Toll::Counted);
            assert_eq!(breaker.failed(attempt(id), at(0), 1.0), Toll::Counted);
            assert!(!breaker.answered(id));
        }
    }

    #[test]
    fn an_answer_to_an_older_request_says_nothing_of_an_outage() {
        let mut breaker = breaker();
        breaker.failed(attempt(10), at(0), 1.0);
        breaker.failed(attempt(11), at(0), 1.0);
        assert!(!breaker.answered(9));
        let refunds = vec![(10, 1), (11, 1)];
        assert_eq!(breaker.failed(attempt(12), at(0), 1.0), Toll::Free(refunds));
        assert!(!breaker.answered(9));
        assert_eq!(breaker.allowed(at(0)), Allowed::None(Some(at(1))));
        assert!(breaker.answered(13));
    }

    #[test]
    fn one_probe_at_a_time_at_most_max_probe_apart() {
        let mut breaker = breaker();
        for id in 0..3 {
            breaker.failed(attempt(id), at(0), 1.0);
        }
        let mut now = at(1);
        for _ in 0..20 {
            assert_eq!(breaker.allowed(now), Allowed::One);
            breaker.probe();
            assert_eq!(breaker.allowed(now), Allowed::None(None));
            assert_eq!(breaker.failed(attempt(9), now, 1.0), Toll::Free(vec![]));
            let next = breaker.probe_at().expect("it is open");
            assert!(next.since(now) <= Duration::from_secs(30));
            now = next;
        }
        breaker.probe();
        assert!(breaker.answered(9));
        assert_eq!(breaker.allowed(now), Allowed::Any);
    }
}
