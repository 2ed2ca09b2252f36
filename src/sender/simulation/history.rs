//! The history of a simulation, and the checks on it: when each claim of a message was started by which worker,
//! what the provider did with it, and in which state the messages end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A request that was started. Times are since the start of the simulation, not by the clock of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) at: Duration,
    /// When its worker had or gave up the response; `None` while it runs, or if the worker died.
    pub(crate) ended: Option<Duration>,
    pub(crate) worker_id: i64,
    pub(crate) sms_id: i64,
    pub(crate) claim: i64,
    pub(crate) phone: String,
    pub(crate) reference: String,
    /// The provider sent its message.
    pub(crate) delivered: bool,
}

/// A claim whose worker learned of it. Times are since the start of the simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimCommit {
    pub(crate) sms_id: i64,
    pub(crate) claim: i64,
    /// When its commit began.
    pub(crate) began: Duration,
    /// When the worker had the answer.
    pub(crate) answered: Duration,
    /// Its worker's.
    pub(crate) lease: Duration,
}

/// The state in which a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Waiting,
    Sent,
    Unknown,
    Failed,
}

/// How much later than its deadline a request may start, because clocks drift.
const CLOCK_ERROR: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) starts: Vec<Start>,
    pub(crate) claims: Vec<ClaimCommit>,
    /// By phone, because each message has its own; an entry that occurs twice is a fault.
    pub(crate) places: Vec<(String, Place)>,
    pub(crate) imported: BTreeSet<String>,
    /// At most this many starts in any window of this length.
    pub(crate) limits: Vec<(usize, Duration)>,
    /// Periods in which no request should have started.
    pub(crate) quiet_periods: Vec<(Duration, Duration)>,
    /// No lease is valid for longer, and another worker waits that long before it takes over.
    pub(crate) lease: Duration,
}

impl History {
    /// Everything that must not have happened.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut starts: Vec<&Start> = self.starts.iter().collect();
        starts.sort_by_key(|start| start.at);
        let mut faults = Vec::new();
        claims(&starts, self.lease, &mut faults);
        deadlines(&starts, &self.claims, &mut faults);
        self.ends(&starts, &mut faults);
        for (limit, window) in &self.limits {
            windows(&starts, *limit, *window, &mut faults);
        }
        for (from, until) in &self.quiet_periods {
            let early = starts.iter().filter(|start| (*from..*until).contains(&start.at));
            faults.extend(early.map(|start| format!("{} started in a quiet period", start.sms_id)));
        }
        faults
    }

    /// Every message ends in exactly one state, and in one that its attempts allow.
    fn ends(&self, starts: &[&Start], faults: &mut Vec<String>) {
        let mut delivered: BTreeMap<&str, u32> = BTreeMap::new();
        for start in starts.iter().filter(|start| start.delivered) {
            *delivered.entry(&start.phone).or_default() += 1;
        }
        let twice = delivered.iter().filter(|(_, times)| **times > 1);
        faults.extend(twice.map(|(phone, times)| format!("{phone} was texted {times} times")));
        let mut placed = BTreeSet::new();
        for (phone, place) in &self.places {
            if !placed.insert(phone) {
                faults.push(format!("{phone} is in two places"));
            }
            if !self.imported.contains(phone) {
                faults.push(format!("{phone} was never imported"));
            }
            match (place, delivered.contains_key(phone.as_str())) {
                (Place::Sent, false) => faults.push(format!("{phone} is sent and never was")),
                (Place::Failed, true) => faults.push(format!("{phone} is failed and arrived")),
                _ => {}
            }
        }
        let lost = self.imported.iter().filter(|phone| !placed.contains(phone));
        faults.extend(lost.map(|phone| format!("{phone} is lost")));
    }
}

/// One claim is one attempt, claim numbers only grow, no two attempts overlap, and the reference does not change after an
/// attempt that the provider may have accepted.
fn claims(starts: &[&Start], lease: Duration, faults: &mut Vec<String>) {
    let mut last: BTreeMap<i64, &Start> = BTreeMap::new();
    for start in starts {
        let Some(before) = last.insert(start.sms_id, start) else {
            continue;
        };
        let id = start.sms_id;
        if start.claim == before.claim {
            faults.push(format!("claim {} of {id} was started twice", start.claim));
        }
        if start.claim < before.claim {
            faults.push(format!("{id} was started under a claim that had passed"));
        }
        let changed = start.reference != before.reference;
        if changed && before.delivered {
            faults.push(format!("{id} changed its reference"));
        }
        // When a dead worker ended is not known, so another worker waits for the lease.
        let ended = before.ended.unwrap_or(before.at);
        let is_early = before.ended.is_none() && start.at < before.at + lease / 2;
        if start.at < ended || is_early {
            faults.push(format!("{id} was started by two at once"));
        }
    }
}

/// No request starts later than half a lease after its claim was planned, and no message is claimed again while the
/// commit of its claim runs.
fn deadlines(starts: &[&Start], claims: &[ClaimCommit], faults: &mut Vec<String>) {
    let mut by_message: BTreeMap<i64, Vec<&ClaimCommit>> = BTreeMap::new();
    for claim in claims {
        by_message.entry(claim.sms_id).or_default().push(claim);
    }
    for start in starts {
        let (id, own) = (start.sms_id, start.claim);
        for claim in by_message.get(&id).into_iter().flatten() {
            let start_by = claim.began + claim.lease / 2 + CLOCK_ERROR;
            if claim.claim == own && start.at > start_by {
                faults.push(format!("claim {own} of {id} was started after its deadline"));
            }
            if claim.claim < own && (claim.began..claim.answered).contains(&start.at) {
                faults.push(format!("{id} was released while its claim was being committed"));
            }
        }
    }
}

fn windows(starts: &[&Start], limit: usize, window: Duration, faults: &mut Vec<String>) {
    let full = starts.windows(limit + 1).filter(|some| {
        let first = some.first().expect("one more than the limit");
        let last = some.last().expect("one more than the limit");
        last.at < first.at + window
    });
    faults.extend(full.map(|some| {
        let at = some[0].at;
        format!("more than {limit} in {window:?} from {at:?}")
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn start(sms_id: i64, claim: i64, at_ms: u64) -> Start {
        Start {
            at: Duration::from_millis(at_ms),
            ended: Some(Duration::from_millis(at_ms + 80)),
            worker_id: 1,
            sms_id,
            claim,
            phone: format!("+{sms_id}"),
            reference: format!("r{sms_id}"),
            delivered: true,
        }
    }

    fn claim(sms_id: i64, claim: i64, began_ms: u64) -> ClaimCommit {
        ClaimCommit {
            sms_id,
            claim,
            began: Duration::from_millis(began_ms),
            answered: Duration::from_millis(began_ms + 10),
            lease: SECOND * 5,
        }
    }

    /// A history without faults: three messages, one of them with two attempts.
    fn good() -> History {
        let failed = Start { delivered: false, ..start(2, 1, 500) };
        History {
            starts: vec![start(1, 1, 0), failed, start(3, 1, 1_000), start(2, 2, 1_500)],
            claims: vec![claim(2, 1, 490), claim(2, 2, 1_490)],
            places: (1..=3).map(|id| (format!("+{id}"), Place::Sent)).collect(),
            imported: (1..=3).map(|id| format!("+{id}")).collect(),
            limits: vec![(2, SECOND)],
            quiet_periods: vec![(SECOND / 10, SECOND / 4)],
            lease: SECOND * 5,
        }
    }

    #[test]
    fn valid_history_has_no_faults() {
        assert_eq!(good().faults(), Vec::<String>::new());
    }

    #[test]
    fn every_invalid_history_is_detected() {
        type Change = fn(&mut History);
        let bad: [(&str, Change); 15] = [
            ("claim 2 of 2 was started after its deadline", |history| {
                history.claims[1].lease = SECOND / 100;
                history.starts[3].at += SECOND / 10;
            }),
            ("2 was released while its claim was being committed", |history| {
                history.claims[0].answered = SECOND * 2;
            }),
            ("claim 1 of 2 was started twice", |history| {
                history.starts[3].claim = 1;
            }),
            ("2 was started under a claim that had passed", |history| {
                history.starts[1].claim = 3;
            }),
            ("2 was started by two at once", |history| {
                history.starts[1].ended = Some(SECOND * 2);
            }),
            ("2 was started by two at once", |history| {
                history.starts[1].ended = None;
            }),
            ("2 changed its reference", |history| {
                history.starts[1].delivered = true;
                history.starts[3].reference.push('!');
            }),
            ("+2 was texted 2 times", |history| {
                history.starts[1].delivered = true;
            }),
            ("+3 is in two places", |history| {
                history.places.push(("+3".to_owned(), Place::Unknown));
            }),
            ("+9 was never imported", |history| {
                history.places.push(("+9".to_owned(), Place::Waiting));
            }),
            ("+1 is lost", |history| drop(history.places.remove(0))),
            ("+1 is sent and never was", |history| {
                history.starts[0].delivered = false;
            }),
            ("+1 is failed and arrived", |history| {
                history.places[0].1 = Place::Failed;
            }),
            ("more than 2 in 1s from 500ms", |history| {
                history.starts[3].at = SECOND * 149 / 100;
            }),
            ("2 started in a quiet period", |history| {
                history.quiet_periods.push((SECOND / 2, SECOND));
            }),
        ];
        for (expected, change) in bad {
            let mut history = good();
            change(&mut history);
            let faults = history.faults();
            assert!(faults.iter().any(|fault| fault == expected), "{expected}: {faults:?}");
        }
    }
}
