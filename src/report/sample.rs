//! A sample report for the tests of the formats.

use std::collections::BTreeMap;
use std::time::Duration;

use smsq_message::sms::Timestamp;
use smsq_store::report::{DeliveryCounts, FailureRecord, FailureState, Outcomes, Totals};
use smsq_store::{CampaignFilter, Mode};

use super::advice::{advice, undelivered_advice};
use super::cost::{Bill, Part};
use super::histogram::Histogram;
use super::local::LocalTime;
use super::status::{CampaignSummary, NextDue, Summaries};
use super::{Alphabets, DeliveryTime, Lists, Reason, Report};

const NINE: Timestamp = Timestamp::from_millis(1_763_715_600_000);

#[expect(clippy::too_many_lines, reason = "it is one value")]
pub(super) fn report() -> Report {
    let totals = Totals {
        purged: 0,
        imported: 12_345,
        queued: 0,
        sending: 0,
        sent: 12_032,
        failed: 300,
        unknown: 13,
        cancelled: 0,
        delivery: None,
    };
    let reason = |class: &str, code: Option<&str>, reason: &str, count| Reason {
        class: class.to_owned(),
        code: code.map(str::to_owned),
        reason: reason.to_owned(),
        advice: advice(class, code),
        count,
    };
    Report {
        campaign: Some("spring sale".to_owned()),
        made_at: NINE.plus(Duration::from_secs(3_600)),
        totals,
        summaries: Summaries::new(
            Mode::Real,
            vec![CampaignSummary {
                campaign: "spring sale".to_owned(),
                mode: Mode::Real,
                state: "done",
                state_reason: None,
                window: None,
                budget: None,
                next: NextDue::default(),
                totals,
            }],
        ),
        by_reason: vec![
            reason("recipient", Some("21211"), "not a valid number", 210),
            reason("unavailable", None, "503: the service is busy", 84),
            reason("unknown", None, "no answer within 10 s", 13),
            reason("opted_out", Some("21610"), "unsubscribed <STOP>", 6),
        ],
        undelivered_by_reason: Vec::new(),
        delivery_time: None,
        purged_at: None,
        first_sent_at: Some(NINE),
        last_sent_at: Some(NINE.plus(Duration::from_millis(245_300))),
        took: Some(Duration::from_millis(245_300)),
        rate: Some(49.05),
        segments: 13_006,
        repeated: 0,
        bill: Bill {
            sent: 12_032,
            cost: None,
            countries: vec![part("GB +44", 12_000, 12_974), part("CN +86", 32, 32)],
            providers: vec![part("cellar", 12_032, 13_006)],
        },
        failovers: Vec::new(),
        sender: Some("ACME".to_owned()),
        lists: Lists {
            names: vec!["spring.csv".to_owned()],
            count: 1,
            rows: 12_400,
            accepted: 12_345,
            duplicates: 40,
            suppressed: 10,
            rejected: 5,
        },
        alphabets: Alphabets { gsm7: 12_300, ucs2: 45 },
        text: Some("Dear {{ name }}, \"20 %\" off, today only".to_owned()),
        opted_out: 6,
        replies: None,
        local: LocalTime::default(),
        is_masked: false,
        filter: CampaignFilter::One(1),
        histogram: Some(Histogram {
            from: NINE,
            width: Duration::from_secs(5),
            first_at: NINE,
            last_at: NINE.plus(Duration::from_millis(245_300)),
            spans: (0..50)
                .map(|at: u64| Outcomes {
                    sent: match at {
                        20..24 => 12,
                        24..28 => 90 * (at - 23),
                        49 => 32,
                        _ => 270 + (at * 7) % 5,
                    },
                    failed: u64::from(at.is_multiple_of(10)) * 30,
                    unknown: u64::from(at == 22) * 13,
                })
                .collect(),
        }),
        names: BTreeMap::from([(2, "spring sale".to_owned())]),
    }
}

/// The same with receipts.
pub(super) fn with_receipts() -> Report {
    let mut report = report();
    let delivery = DeliveryCounts {
        delivered: 11_000,
        undelivered: 700,
        expired: 0,
        no_report: 32,
        not_awaited: 0,
        awaiting: 300,
    };
    report.totals.delivery = Some(delivery);
    report.summaries.campaigns[0].totals.delivery = Some(delivery);
    report.undelivered_by_reason = vec![Reason {
        class: "recipient".to_owned(),
        code: Some("30005".to_owned()),
        reason: "the number is not in use".to_owned(),
        advice: undelivered_advice("recipient", Some("30005")),
        count: 700,
    }];
    report.delivery_time =
        Some(DeliveryTime { median: Duration::from_millis(4_200), p95: Duration::from_secs(95) });
    report
}

fn part(name: &str, sent: u64, segments: u64) -> Part {
    Part { name: name.to_owned(), sent, segments, cost: None }
}

pub(super) fn failures() -> Vec<FailureRecord> {
    let failure = |id: i64, phone: &str, params: &str| FailureRecord {
        id,
        campaign_id: 2,
        phone: phone.to_owned(),
        content: "Dear Ann, \"20 %\" off, today only".to_owned(),
        params: params.to_owned(),
        state: FailureState::Failed,
        class: "recipient".to_owned(),
        code: Some("21211".to_owned()),
        reason: "not a valid number".to_owned(),
        attempts: 1,
        last_attempt_at: Some(NINE),
    };
    vec![
        failure(7, "+8613812345678", r#"{"name":"Ann","城市":"北京"}"#),
        FailureRecord {
            content: "Dear <b>Bob</b>,\nhello".to_owned(),
            state: FailureState::Unknown,
            class: "unknown".to_owned(),
            code: None,
            reason: "no answer within 10 s".to_owned(),
            attempts: 2,
            ..failure(9, "+447700900123", r#"{"name":"=Bob","vip":true}"#)
        },
        FailureRecord {
            state: FailureState::Cancelled,
            class: "cancelled".to_owned(),
            code: None,
            reason: "the campaign was cancelled".to_owned(),
            attempts: 0,
            last_attempt_at: None,
            ..failure(12, "+15005550006", "{}")
        },
    ]
}
