//! What limits a run: the reason for which the dispatcher waits most of the time.

use std::cmp::Reverse;
use std::time::Duration;

use smsq_message::activity::Bottleneck;

/// The processors are the bottleneck if they are busy for more than this part of the time.
const BUSY: f64 = 0.9;

/// How long the dispatcher waited, by reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitTimes(Vec<(Option<Bottleneck>, Duration)>);

impl WaitTimes {
    /// Adds a wait; `None`: there was nothing to send.
    pub(super) fn add(&mut self, reason: Option<Bottleneck>, took: Duration) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum += took,
            None => self.0.push((reason, took)),
        }
    }

    /// The waits since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut waits = self.0.clone();
        for (reason, took) in &mut waits {
            if let Some((_, before)) = earlier.0.iter().find(|(known, _)| known == reason) {
                *took = took.saturating_sub(*before);
            }
        }
        Self(waits)
    }

    /// The reasons for at least a tenth of the waits, the longest first; `busy` as for [`Self::bottleneck`].
    pub(crate) fn bottlenecks(&self, busy: Option<f64>) -> Vec<Bottleneck> {
        let all: Duration = self.0.iter().map(|(_, took)| *took).sum();
        let mut waits = self.0.clone();
        waits.sort_by_key(|(_, took)| Reverse(*took));
        let is_large = |took: Duration| took * 10 >= all && !took.is_zero();
        // The first one explains the run only if nothing to send was not the most frequent reason.
        let mut reasons: Vec<Bottleneck> = Vec::new();
        if waits.first().is_some_and(|(reason, _)| reason.is_some()) {
            let large = waits.iter().filter(|(_, took)| is_large(*took));
            for reason in large.filter_map(|(reason, _)| *reason) {
                let reason = cause(reason, busy);
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        reasons
    }

    /// The reason for more than half of the waits; `busy` is the part of the time for which the processors of the
    /// machine were busy.
    pub(super) fn bottleneck(&self, busy: Option<f64>) -> Option<Bottleneck> {
        let all: Duration = self.0.iter().map(|(_, took)| *took).sum();
        let (longest, took) = self.0.iter().max_by_key(|(_, took)| *took)?;
        let cause = longest.map(|reason| cause(reason, busy));
        cause.filter(|cause| *cause == Bottleneck::Cpu || *took * 2 > all)
    }
}

/// Busy processors make the provider and the database seem slow.
fn cause(reason: Bottleneck, busy: Option<f64>) -> Bottleneck {
    let is_symptom = matches!(reason, Bottleneck::Concurrency | Bottleneck::Database);
    if is_symptom && busy.is_some_and(|busy| busy > BUSY) {
        return Bottleneck::Cpu;
    }
    reason
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

    #[test]
    fn reasons_for_waits_are_in_the_order_of_their_time() {
        let mut waits = WaitTimes::default();
        assert_eq!(waits.bottlenecks(None), []);
        waits.add(Some(Bottleneck::RateLimit), Duration::from_secs(17));
        waits.add(Some(Bottleneck::Provider), Duration::from_secs(20));
        waits.add(Some(Bottleneck::Database), Duration::from_secs(1));
        waits.add(None, Duration::from_secs(5));
        let expected = [Bottleneck::Provider, Bottleneck::RateLimit];
        assert_eq!(waits.bottlenecks(Some(0.95)), expected);
        waits.add(None, Duration::from_secs(60));
        assert_eq!(waits.bottlenecks(None), []);
    }

    #[test]
    fn recent_bottleneck_ignores_earlier_waits() {
        let mut waits = WaitTimes::default();
        waits.add(Some(Bottleneck::Provider), Duration::from_secs(60));
        let earlier = waits.clone();
        assert_eq!(waits.since(&earlier).bottleneck(None), None);
        waits.add(Some(Bottleneck::Provider), Duration::from_secs(1));
        waits.add(Some(Bottleneck::Database), Duration::from_secs(2));
        let recent = waits.since(&earlier);
        assert_eq!(recent.bottleneck(None), Some(Bottleneck::Database));
    }
}
