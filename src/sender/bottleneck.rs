//! What limits a run: the reason for which the dispatcher waits most of the time.

use std::time::Duration;

use serde::Serialize;

/// What limited a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// A rate limit gave fewer permits than there were messages.
    RateLimit,
    /// As many requests as allowed were in flight, and each takes as long as the provider needs.
    Concurrency,
    /// The provider asked to slow down, or was away.
    Provider,
    /// Requests waited for a commit.
    Database,
    /// The processors of this machine were busy.
    Cpu,
}

/// The processors are the bottleneck if they are busy for more than this part of the time.
const BUSY: f64 = 0.9;

/// How long the dispatcher waited, by reason.
#[derive(Debug, Default)]
pub(super) struct WaitTimes(Vec<(Option<Bottleneck>, Duration)>);

impl WaitTimes {
    /// Adds a wait; `None`: there was nothing to send.
    pub(super) fn add(&mut self, reason: Option<Bottleneck>, took: Duration) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum += took,
            None => self.0.push((reason, took)),
        }
    }

    /// The reason for more than half of the waits; `busy` is the part of the time for which the processors of the
    /// machine were busy.
    pub(super) fn bottleneck(&self, busy: Option<f64>) -> Option<Bottleneck> {
        let all: Duration = self.0.iter().map(|(_, took)| *took).sum();
        let (longest, took) = self.0.iter().max_by_key(|(_, took)| *took)?;
        let is_symptom = matches!(
            longest,
            Some(Bottleneck::Concurrency | Bottleneck::Database)
        );
        if is_symptom && busy.is_some_and(|busy| busy > BUSY) {
            return Some(Bottleneck::Cpu);
        }
        longest.filter(|_| *took * 2 > all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_for_most_waits_is_the_bottleneck() {
        let mut waits = WaitTimes::default();
        assert_eq!(waits.bottleneck(None), None);
        waits.add(Some(Bottleneck::Database), Duration::from_secs(3));
        waits.add(None, Duration::from_secs(4));
        assert_eq!(waits.bottleneck(None), None);
        waits.add(Some(Bottleneck::Database), Duration::from_secs(2));
        assert_eq!(waits.bottleneck(Some(0.5)), Some(Bottleneck::Database));
        assert_eq!(waits.bottleneck(Some(0.95)), Some(Bottleneck::Cpu));
        waits.add(Some(Bottleneck::RateLimit), Duration::from_secs(60));
        assert_eq!(waits.bottleneck(Some(0.95)), Some(Bottleneck::RateLimit));
    }
}
