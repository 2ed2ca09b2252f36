//! The report as one page that anybody can open, print and send on: everything is in it, it loads
//! nothing and runs nothing. What it says stands in `templates/report.html`, how it is reckoned here.

use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

use indicatif::HumanCount;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, escape_formatter};
use serde::Serialize;

use super::table::percent;
use super::{History, Report, ReportError, Step, steps};
use crate::sms::Timestamp;
use crate::store::inspect::{Failure, Totals};
use crate::text::printable;

/// A page with more rows than these is no fun in any browser; the csv has them all.
pub(super) const MOST_FAILURES: usize = 2_000;

/// More reasons than these say nothing to a person.
const MOST_REASONS: usize = 50;

const TEMPLATE: &str = include_str!("../../templates/report.html");

/// What the template may name.
#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    state: Option<&'static str>,
    state_reason: Option<&'a str>,
    made_at: String,
    imported: String,
    places: Vec<Place>,
    campaigns: Vec<Row<'a>>,
    chart: Option<Chart>,
    purged: Option<String>,
    purged_at: Option<String>,
    first_at: Option<String>,
    last_at: Option<String>,
    segments: Option<String>,
    repeated: Option<String>,
    reasons: Vec<ReasonRow<'a>>,
    more_reasons: usize,
    failures: Vec<FailureRow<'a>>,
    /// How many did not arrive.
    lost: String,
    /// How many of them are listed, where not all are.
    shown: Option<String>,
    steps: Vec<Step>,
}

/// A number in big letters, and a piece of the bar below.
#[derive(Serialize)]
struct Place {
    /// Its colour, too.
    label: &'static str,
    count: u64,
    shown: String,
    share: String,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    state: &'static str,
    places: Vec<Place>,
}

#[derive(Serialize)]
struct ReasonRow<'a> {
    count: String,
    /// Of the commonest reason, in percent: how long its bar is.
    length: u64,
    class: &'a str,
    code: Option<&'a str>,
    reason: &'a str,
    advice: &'static str,
}

#[derive(Serialize)]
struct FailureRow<'a> {
    campaign: Option<&'a str>,
    phone: &'a str,
    content: &'a str,
    state: &'static str,
    class: &'a str,
    code: Option<&'a str>,
    reason: &'a str,
    attempts: i32,
    last_attempt: Option<String>,
}

/// Sends over time: bars in a field that is `columns` wide and 100 high.
#[derive(Serialize)]
struct Chart {
    columns: usize,
    bars: Vec<Bar>,
    peak: String,
    width: String,
    ticks: [String; 3],
}

#[derive(Serialize)]
struct Bar {
    at: usize,
    height: u64,
    top: u64,
    title: String,
}

pub(super) fn write(
    report: &Report,
    failures: &[Failure],
    out: &mut impl Write,
) -> Result<(), ReportError> {
    let mut pages = Environment::new();
    pages.set_formatter(|out, state, value| match value.as_str().map(printable) {
        Some(Cow::Owned(shown)) if !value.is_safe() => {
            escape_formatter(out, state, &Value::from(shown))
        }
        _ => escape_formatter(out, state, value),
    });
    pages.add_template("report.html", TEMPLATE)?;
    let standing = report.standing();
    let totals = &report.totals;
    let lost = totals.failed + totals.unknown + totals.cancelled;
    let shown = failures.len() as u64;
    let reasons = reason_rows(report);
    let facts = &report.facts;
    let page = Page {
        title: report.campaign.as_deref().unwrap_or("All campaigns"),
        state: standing.map(|one| one.state),
        state_reason: standing.and_then(|one| one.state_reason.as_deref()),
        made_at: written(report.made_at),
        imported: HumanCount(totals.imported).to_string(),
        places: places(totals),
        campaigns: rows(report),
        chart: report.history.as_ref().map(chart),
        purged: (totals.purged > 0).then(|| HumanCount(totals.purged).to_string()),
        purged_at: report.purged_at.map(written),
        first_at: facts.first_at.map(written),
        last_at: facts.last_at.map(written),
        segments: (facts.segments > 0).then(|| HumanCount(facts.segments).to_string()),
        repeated: (facts.repeated > 0).then(|| HumanCount(facts.repeated).to_string()),
        more_reasons: report.by_reason.len().saturating_sub(reasons.len()),
        reasons,
        failures: failures
            .iter()
            .map(|one| failure_row(report, one))
            .collect(),
        lost: HumanCount(lost).to_string(),
        shown: (lost > shown).then(|| HumanCount(shown).to_string()),
        steps: steps(report),
    };
    let page = pages.get_template("report.html")?.render(Serde(&page))?;
    out.write_all(page.as_bytes())?;
    Ok(())
}

/// Where the messages are, without the places that are empty; how many were sent is always said.
fn places(totals: &Totals) -> Vec<Place> {
    [
        ("sent", totals.sent),
        ("failed", totals.failed),
        ("unknown", totals.unknown),
        ("cancelled", totals.cancelled),
        ("sending", totals.sending),
        ("queued", totals.queued),
    ]
    .into_iter()
    .filter(|(label, count)| *count > 0 || matches!(*label, "sent" | "failed"))
    .map(|(label, count)| Place {
        label,
        count,
        shown: HumanCount(count).to_string(),
        share: percent(count, totals.imported),
    })
    .collect()
}

fn rows(report: &Report) -> Vec<Row<'_>> {
    if report.campaign.is_some() {
        return Vec::new();
    }
    report
        .standings
        .iter()
        .map(|one| Row {
            name: &one.campaign,
            state: one.state,
            places: places(&one.totals),
        })
        .collect()
}

fn reason_rows(report: &Report) -> Vec<ReasonRow<'_>> {
    let most = report.by_reason.iter().map(|one| one.count).max();
    let most = most.unwrap_or(0).max(1);
    report
        .by_reason
        .iter()
        .take(MOST_REASONS)
        .map(|one| ReasonRow {
            count: HumanCount(one.count).to_string(),
            length: (one.count * 100 / most).max(1),
            class: &one.class,
            code: one.code.as_deref(),
            reason: &one.reason,
            advice: one.advice,
        })
        .collect()
}

fn failure_row<'a>(report: &'a Report, one: &'a Failure) -> FailureRow<'a> {
    FailureRow {
        campaign: match report.campaign {
            Some(_) => None,
            None => report.campaign_name(one.campaign_id),
        },
        phone: &one.phone,
        content: &one.content,
        state: one.state.as_str(),
        class: &one.class,
        code: one.code.as_deref(),
        reason: &one.reason,
        attempts: one.attempts,
        last_attempt: one.last_attempt_at.map(written),
    }
}

fn chart(history: &History) -> Chart {
    /// A campaign of a second shall not be one bar as wide as the page.
    const FEWEST_COLUMNS: usize = 30;
    let peak = history.counts.iter().copied().max().unwrap_or(0);
    let columns = history.counts.len().max(FEWEST_COLUMNS);
    let moment = |column: usize| {
        let spans = u32::try_from(column).unwrap_or(u32::MAX);
        let far = history.width.saturating_mul(spans);
        clock(history.from.plus(far), history.width)
    };
    let bars = history
        .counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(at, count)| {
            let height = (count * 100 / peak.max(1)).max(1);
            Bar {
                at,
                height,
                top: 100 - height,
                title: format!("{}: {} sent", moment(at), HumanCount(*count)),
            }
        })
        .collect();
    Chart {
        columns,
        bars,
        peak: HumanCount(peak).to_string(),
        width: span(history.width),
        ticks: [moment(0), moment(columns / 2), moment(columns)],
    }
}

/// A day and a minute, in UTC.
fn written(moment: Timestamp) -> String {
    format(moment, "%-d %b %Y, %H:%M UTC")
}

/// A tick of the chart: the narrower the columns, the finer.
fn clock(moment: Timestamp, width: Duration) -> String {
    match width.as_secs() {
        0..60 => format(moment, "%H:%M:%S"),
        60..3_600 => format(moment, "%H:%M"),
        3_600..86_400 => format(moment, "%-d %b, %H:%M"),
        _ => format(moment, "%-d %b %Y"),
    }
}

fn format(moment: Timestamp, pattern: &str) -> String {
    match jiff::Timestamp::from_millisecond(moment.as_millis()) {
        Ok(instant) => instant.strftime(pattern).to_string(),
        Err(_) => moment.to_string(),
    }
}

/// The width of a column, which is a whole number of one of these units.
fn span(width: Duration) -> String {
    let seconds = width.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        86_400 => "1 day".to_owned(),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn written(report: &Report, failures: &[Failure]) -> String {
        let mut bytes = Vec::new();
        write(report, failures, &mut bytes).expect("written");
        String::from_utf8(bytes).expect("all of it is text")
    }

    #[test]
    fn the_page_says_what_the_report_says() {
        let page = written(&sample::report(), &sample::failures());
        for words in [
            "spring sale",
            "12,032",
            "97.4 %",
            "not a valid number",
            "mend the number",
            "+8613812345678",
            "smsq retry",
            "<svg",
            "09:01:40: 12 sent",
        ] {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn what_others_wrote_is_never_taken_for_html() {
        let page = written(&sample::report(), &sample::failures());
        assert!(page.contains("Dear &lt;b&gt;Bob"), "{page}");
        assert!(page.contains("unsubscribed &lt;STOP&gt;"), "{page}");
    }

    #[test]
    fn the_page_loads_nothing_and_runs_nothing() {
        let page = written(&sample::report(), &sample::failures());
        for fault in ["<script", "<link", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(fault), "{fault}");
        }
    }

    #[test]
    fn a_list_that_is_not_whole_says_where_the_rest_is() {
        let page = written(&sample::report(), &sample::failures());
        assert!(page.contains("The first 3 of 313"), "{page}");
    }

    #[test]
    fn an_empty_report_is_a_page_too() {
        let mut report = sample::report();
        report.totals = Totals::default();
        report.standings.clear();
        report.campaign = None;
        report.by_reason.clear();
        report.history = None;
        report.facts = crate::store::inspect::SentFacts::default();
        let page = written(&report, &[]);
        assert!(page.contains("All campaigns"));
        assert!(!page.contains("<svg"));
    }
}
