//! Good and bad histories for the judge.

use std::collections::{BTreeMap, BTreeSet};

use super::super::evidence::{GatewayEvent, GatewayLog, MessagePlace, StoredRow, Tables};
use super::*;

const SENT: &str = "+447400000000";
const FAILED: &str = "+447400000001";
const UNKNOWN: &str = "+447400000002";
/// Unknown, and never accepted.
const UNHEARD: &str = "+447400000003";
const LIMIT: u64 = 10;

fn entry(at: u64, phone: &str) -> GatewayEvent {
    GatewayEvent { at, phone: phone.to_owned(), from: None, reference: None, gateway: 0 }
}

fn row(phone: &str, place: MessagePlace) -> StoredRow {
    StoredRow {
        campaign: "c".to_owned(),
        phone: phone.to_owned(),
        place,
        accepted: u64::from(place == MessagePlace::Sent),
        reason: "why".to_owned(),
    }
}

/// A round in which every promise held.
fn good() -> Evidence {
    let phones = [SENT, FAILED, UNKNOWN, UNHEARD].map(str::to_owned);
    let arrivals = (1..).zip(&phones);
    Evidence {
        log: GatewayLog {
            arrivals: arrivals.map(|(second, phone)| entry(second * SECOND, phone)).collect(),
            accepted: vec![entry(SECOND, SENT), entry(3 * SECOND, UNKNOWN)],
            stalls: Vec::new(),
        },
        tables: Tables {
            rows: vec![
                row(SENT, MessagePlace::Sent),
                row(FAILED, MessagePlace::Failed),
                row(UNKNOWN, MessagePlace::Unknown),
                row(UNHEARD, MessagePlace::Unknown),
            ],
            campaigns: BTreeMap::from([("c".to_owned(), 0)]),
            imported: 5,
            stored: 4,
            purged: 1,
            with_two_rows: 0,
        },
        asked: Asked::default(),
        campaigns: vec![JudgedCampaign {
            name: "c".to_owned(),
            phones: phones.to_vec(),
            limit: LIMIT,
        }],
        limit: LIMIT + 5,
        sender_limit: None,
        budget: None,
        listed: BTreeSet::from([UNKNOWN, UNHEARD].map(str::to_owned)),
        thaws: Vec::new(),
        threads: 2,
        answers_lookups: false,
        honours_references: false,
    }
}

/// The row of a phone.
fn row_of<'a>(evidence: &'a mut Evidence, phone: &str) -> &'a mut StoredRow {
    let mut rows = evidence.tables.rows.iter_mut();
    rows.find(|row| row.phone == phone).expect("a row")
}

/// As many arrivals of a phone, within this time of the tenth second.
fn arrive(evidence: &mut Evidence, phone: &str, count: u64, within: u64) {
    let at = (0..count).map(|index| 10 * SECOND + index * within / count);
    let arrivals = at.map(|at| entry(at, phone));
    evidence.log.arrivals.extend(arrivals);
}

#[test]
fn round_without_faults_has_no_findings() {
    let verdict = judge(&good());
    assert_eq!(verdict.findings, []);
    let Verdict {
        messages,
        accepted,
        unknown,
        unknown_listed,
        unknown_accepted,
        most_in_a_second,
        ..
    } = verdict;
    assert_eq!((messages, accepted, most_in_a_second), (4, 2, 1));
    assert_eq!((unknown, unknown_listed, unknown_accepted), (2, 2, 1));
}

/// A bad history: its name, what breaks a good one, and the promise that is broken.
type BadHistory = (&'static str, fn(&mut Evidence), Promise);

const BAD: [BadHistory; 21] = [
    (
        "a message is in no table",
        |evidence| evidence.tables.rows.retain(|row| row.phone != SENT),
        Promise::NothingLost,
    ),
    (
        "a message counts as sent, and no gateway has it",
        |evidence| evidence.log.accepted.remove(0).at = 0,
        Promise::NothingLost,
    ),
    (
        "a run ends with a queued message",
        |evidence| row_of(evidence, FAILED).place = MessagePlace::Queued { in_doubt: false },
        Promise::NothingLost,
    ),
    ("a row was deleted", |evidence| evidence.tables.stored = 3, Promise::NothingLost),
    (
        "a message is accepted twice",
        |evidence| evidence.log.accepted.push(entry(4 * SECOND, SENT)),
        Promise::NothingTwice,
    ),
    (
        "an unknown message is accepted again",
        |evidence| evidence.log.accepted.push(entry(4 * SECOND, UNKNOWN)),
        Promise::NothingTwice,
    ),
    (
        "an accepted message is reported as failed",
        |evidence| evidence.log.accepted.push(entry(4 * SECOND, FAILED)),
        Promise::TruthfulReport,
    ),
    (
        "an accepted message is reported as cancelled",
        |evidence| row_of(evidence, UNKNOWN).place = MessagePlace::Cancelled,
        Promise::TruthfulReport,
    ),
    (
        "an accepted message is queued as if it were not",
        |evidence| {
            evidence.tables.campaigns.insert("c".to_owned(), 1);
            row_of(evidence, UNKNOWN).place = MessagePlace::Queued { in_doubt: false };
        },
        Promise::TruthfulReport,
    ),
    (
        "a row counts an acceptance twice",
        |evidence| row_of(evidence, SENT).accepted = 2,
        Promise::TruthfulReport,
    ),
    (
        "a message is in two places",
        |evidence| evidence.tables.rows.push(row(SENT, MessagePlace::Unknown)),
        Promise::TruthfulReport,
    ),
    (
        "an id is in two tables",
        |evidence| evidence.tables.with_two_rows = 1,
        Promise::TruthfulReport,
    ),
    (
        "a message failed without a reason",
        |evidence| row_of(evidence, FAILED).reason = " ".to_owned(),
        Promise::TruthfulReport,
    ),
    (
        "an unknown message is not in the report",
        |evidence| evidence.listed.clear(),
        Promise::TruthfulReport,
    ),
    (
        "an unknown message is not looked up",
        |evidence| evidence.answers_lookups = true,
        Promise::TruthfulReport,
    ),
    (
        "a phone gets a message that is in no list",
        |evidence| evidence.log.accepted.push(entry(SECOND, "+447400999999")),
        Promise::TruthfulReport,
    ),
    (
        "a campaign is too fast",
        |evidence| arrive(evidence, SENT, LIMIT + 1, SECOND * 9 / 10),
        Promise::LimitsHold,
    ),
    (
        "all campaigns together are too fast",
        |evidence| {
            evidence.campaigns[0].limit = 100;
            arrive(evidence, SENT, LIMIT + 6, SECOND * 9 / 10);
        },
        Promise::LimitsHold,
    ),
    (
        "one of two providers is too fast",
        |evidence| {
            evidence.campaigns[0].limit = 2 * LIMIT;
            arrive(evidence, SENT, LIMIT + 6, SECOND * 9 / 10);
            let arrivals = evidence.log.arrivals.iter_mut();
            arrivals.for_each(|entry| entry.gateway = 1);
        },
        Promise::LimitsHold,
    ),
    (
        "a campaign gets more than its budget pays for",
        |evidence| {
            evidence.budget = Some(JudgedBudget {
                campaign: "c".to_owned(),
                messages: 1,
                accepted: vec![SENT.to_owned(), UNKNOWN.to_owned()],
            });
        },
        Promise::BudgetHolds,
    ),
    (
        "a sender of the pool is too fast",
        |evidence| {
            evidence.sender_limit = Some(2);
            arrive(evidence, SENT, 3, SECOND * 9 / 10);
        },
        Promise::LimitsHold,
    ),
];

#[test]
fn every_bad_history_is_found() {
    for (name, spoil, promise) in BAD {
        let mut evidence = good();
        spoil(&mut evidence);
        let verdict = judge(&evidence);
        let found = verdict.findings.iter();
        let promises: BTreeSet<Promise> = found.map(|finding| finding.promise).collect();
        assert!(promises.contains(&promise), "{name}: {verdict:?}");
    }
}

/// What an operator asked for, and a change of a good history that it allows.
type Allowed = (&'static str, fn(&mut Evidence));

#[test]
fn what_an_operator_asked_for_is_not_a_finding() {
    let allowed: [Allowed; 5] = [
        ("resent", |evidence| {
            evidence.log.accepted.push(entry(4 * SECOND, UNKNOWN));
            evidence.asked.resend.insert(UNKNOWN.to_owned());
        }),
        ("settled as sent", |evidence| {
            *row_of(evidence, UNHEARD) = row(UNHEARD, MessagePlace::Sent);
            evidence.asked.settled_sent.insert(UNHEARD.to_owned());
        }),
        ("settled as failed", |evidence| {
            row_of(evidence, UNKNOWN).place = MessagePlace::Failed;
            evidence.asked.settled_failed.insert(UNKNOWN.to_owned());
        }),
        ("purged", |evidence| {
            evidence.tables.rows.retain(|row| row.phone != SENT);
            evidence.tables.stored -= 1;
            evidence.tables.purged += 1;
            evidence.asked.purged.insert(SENT.to_owned());
        }),
        ("suppressed before its import", |evidence| {
            evidence.tables.rows.retain(|row| row.phone != FAILED);
            evidence.tables.imported -= 1;
            evidence.tables.stored -= 1;
            evidence.asked.suppressed.insert(FAILED.to_owned());
        }),
    ];
    for (name, change) in allowed {
        let mut evidence = good();
        change(&mut evidence);
        assert_eq!(judge(&evidence).findings, [], "{name}");
    }
}

#[test]
fn arrivals_exactly_a_second_apart_are_within_the_limit() {
    let mut evidence = good();
    evidence.log.arrivals.clear();
    for second in 10..20 {
        for _ in 0..LIMIT {
            evidence.log.arrivals.push(entry(second * SECOND, SENT));
        }
    }
    let verdict = judge(&evidence);
    assert_eq!((verdict.findings, verdict.most_in_a_second), (vec![], LIMIT));
}

#[test]
fn burst_is_a_finding_unless_the_gateway_or_a_worker_stood_still() {
    let burst = || {
        let mut evidence = good();
        // The last of one second with the first of the next, logged 300 ms later than they arrived.
        arrive(&mut evidence, SENT, LIMIT + 2, SECOND * 8 / 10);
        evidence
    };
    assert_ne!(judge(&burst()).findings, []);
    let mut stalled = burst();
    stalled.log.stalls.push((10 * SECOND, 300_000));
    assert_eq!(judge(&stalled).findings, []);
    let mut thawed = burst();
    thawed.thaws.push(10 * SECOND);
    assert_eq!(judge(&thawed).findings, []);
    let mut earlier = burst();
    earlier.log.stalls.push((5 * SECOND, 300_000));
    earlier.thaws.push(5 * SECOND);
    assert_ne!(judge(&earlier).findings, []);
}
