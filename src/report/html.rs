//! The report as one page that anybody can open, print and send on: everything is in it, it loads
//! nothing and runs nothing. What it says stands in `templates/report.html`, how it is reckoned here.
//! Whoever reads it has no shell: it names no commands.

use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

use indicatif::HumanCount;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, escape_formatter};
use serde::Serialize;

use super::advice::remedy;
use super::cost::{Cost, Part};
use super::shares::percentages;
use super::table::{cost_text, per_time};
use super::{History, Lists, Local, Reason, Report, ReportError, plain};
use crate::store::report::{FailureRecord, FailureState, Outcomes, Totals};
use crate::text::{counted, duration, messages, printable};

/// A page with more rows than these is no fun in any browser; the csv has them all.
pub(super) const MOST_FAILURES: usize = 2_000;

/// More reasons than these say nothing to a person.
const MOST_REASONS: usize = 50;

/// More countries than these make no table that is read.
const MOST_COUNTRIES: usize = 20;

const TEMPLATE: &str = include_str!("../../templates/report.html");

/// What the template may name.
#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    state: Option<&'static str>,
    state_reason: Option<&'a str>,
    made_at: String,
    zone: String,
    imported: String,
    places: Vec<Place>,
    facts: Vec<Fact>,
    text: Option<&'a str>,
    campaigns: Vec<Row<'a>>,
    chart: Option<Chart>,
    countries: Vec<PartRow<'a>>,
    more_countries: usize,
    has_cost: bool,
    purged: Option<String>,
    purged_at: Option<String>,
    /// What did not arrive, then what is not confirmed.
    blocks: Vec<Block<'a>>,
    more_reasons: usize,
    is_masked: bool,
}

/// A number in big letters, and a piece of the bar below.
#[derive(Serialize)]
struct Place {
    /// Its colour.
    kind: &'static str,
    label: &'static str,
    count: u64,
    shown: String,
    share: String,
}

/// Something else to know of the messages.
#[derive(Serialize)]
struct Fact {
    label: &'static str,
    value: String,
    more: String,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    state: &'static str,
    places: Vec<Place>,
}

#[derive(Serialize)]
struct PartRow<'a> {
    name: &'a str,
    sent: String,
    share: String,
    /// In percent of the first one: how long its bar is.
    length: u64,
    segments: String,
    cost: String,
}

/// Reasons, and the messages that they are of.
#[derive(Serialize)]
struct Block<'a> {
    /// Its colour.
    kind: &'static str,
    /// `Why 12 did not arrive`.
    why: String,
    reasons: Vec<ReasonRow<'a>>,
    /// `Who was not reached`.
    who: &'static str,
    failures: Vec<FailureRow<'a>>,
    count: String,
    /// How many are listed, where not all are.
    shown: Option<String>,
}

#[derive(Serialize)]
struct ReasonRow<'a> {
    count: String,
    /// Of the commonest reason, in percent: how long its bar is.
    length: u64,
    class: &'a str,
    code: Option<&'a str>,
    reason: Cow<'a, str>,
    remedy: &'static str,
}

#[derive(Serialize)]
struct FailureRow<'a> {
    campaign: Option<&'a str>,
    phone: &'a str,
    content: &'a str,
    class: &'a str,
    code: Option<&'a str>,
    reason: Cow<'a, str>,
    attempts: i32,
    last_attempt: Option<String>,
}

/// What ended over time: bars in a field that is `columns` wide and `top` high.
#[derive(Serialize)]
struct Chart {
    columns: usize,
    top: u64,
    bars: Vec<Bar>,
    kinds: Vec<(&'static str, &'static str)>,
    width: String,
    /// Label, and height in percent.
    levels: Vec<(String, u64)>,
    ticks: Vec<String>,
    label: String,
}

/// A piece of a column.
#[derive(Serialize)]
struct Bar {
    kind: &'static str,
    at: usize,
    y: u64,
    height: u64,
    title: String,
}

pub(super) fn write(
    report: &Report,
    failures: &[FailureRecord],
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
    let local = &report.local;
    let blocks = blocks(report, failures);
    let reasons: usize = blocks.iter().map(|block| block.reasons.len()).sum();
    let countries = countries(report);
    let page = Page {
        title: report.campaign.as_deref().unwrap_or("All campaigns"),
        state: standing.map(|one| one.state),
        state_reason: standing.and_then(|one| one.state_reason.as_deref()),
        made_at: local.short(report.made_at),
        zone: local.name(report.made_at),
        imported: HumanCount(totals.imported).to_string(),
        places: places(totals),
        facts: facts(report),
        text: report.text.as_deref(),
        campaigns: rows(report),
        chart: report.history.as_ref().map(|history| chart(history, local)),
        more_countries: report.bill.countries.len().saturating_sub(countries.len()),
        countries,
        has_cost: report.bill.cost.is_some(),
        purged: (totals.purged > 0).then(|| HumanCount(totals.purged).to_string()),
        purged_at: report.purged_at.map(|at| local.short(at)),
        more_reasons: report.by_reason.len().saturating_sub(reasons),
        blocks,
        is_masked: report.is_masked,
    };
    let page = pages.get_template("report.html")?.render(Serde(&page))?;
    out.write_all(page.as_bytes())?;
    Ok(())
}

/// Where the messages are, without the places that are empty; how many were sent is always said.
fn places(totals: &Totals) -> Vec<Place> {
    let places: Vec<_> = [
        ("sent", "sent", totals.sent),
        ("failed", "failed", totals.failed),
        ("unknown", "not confirmed", totals.unknown),
        ("cancelled", "cancelled", totals.cancelled),
        ("sending", "being sent", totals.sending),
        ("queued", "waiting", totals.queued),
    ]
    .into_iter()
    .filter(|(kind, _, count)| *count > 0 || matches!(*kind, "sent" | "failed"))
    .collect();
    let counts: Vec<u64> = places.iter().map(|(_, _, count)| *count).collect();
    places
        .into_iter()
        .zip(percentages(&counts))
        .map(|((kind, label, count), share)| Place {
            kind,
            label,
            count,
            shown: HumanCount(count).to_string(),
            share,
        })
        .collect()
}

fn facts(report: &Report) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut fact = |label, value: String, more: String| facts.push(Fact { label, value, more });
    if let Some(cost) = &report.bill.cost {
        let (value, more) = cost_of(cost, report.bill.sent);
        fact("Cost", value, more);
    }
    let segments = report.facts.segments;
    if segments > 0 {
        let alphabets = report.alphabets;
        let more = match alphabets.gsm7 + alphabets.ucs2 {
            0 => String::new(),
            _ => format!(
                "{} imported in GSM-7, {} in UCS-2",
                messages(alphabets.gsm7),
                HumanCount(alphabets.ucs2)
            ),
        };
        fact("Segments", HumanCount(segments).to_string(), more);
    }
    if let (Some(first), Some(last), Some(took)) =
        (report.facts.first_at, report.facts.last_at, report.took())
    {
        let rate = report.rate();
        let rate = rate.map(|rate| format!(" · {} on average", per_time(rate)));
        let more = report.local.span(first, last);
        let value = format!("{}{}", duration(took), rate.unwrap_or_default());
        fact("Time", value, more);
    }
    if let Some(providers) = report.providers() {
        let sender = report.sender.as_ref();
        let sender = sender.map(|sender| format!("sender {sender}"));
        fact("Provider", providers, sender.unwrap_or_default());
    }
    if report.totals.sent + report.totals.failed > 0 {
        let more = "asked for no more messages; of the failed";
        let more = if report.opted_out > 0 { more } else { "" };
        let value = HumanCount(report.opted_out).to_string();
        fact("Opted out", value, more.to_owned());
    }
    if report.facts.repeated > 0 {
        let value = HumanCount(report.facts.repeated).to_string();
        fact("Taken more than once", value, "by the provider".to_owned());
    }
    if report.lists.count > 0 {
        let (value, more) = lists_of(&report.lists);
        fact("List", value, more);
    }
    facts
}

fn cost_of(cost: &Cost, sent: u64) -> (String, String) {
    let more = match cost.unpriced() {
        0 => String::new(),
        unpriced if unpriced >= sent => "no price is known for any message".to_owned(),
        _ => cost_text(cost)
            .split_once(", ")
            .map(|(_, rest)| rest.to_owned())
            .unwrap_or_default(),
    };
    (cost.text(), more)
}

fn lists_of(lists: &Lists) -> (String, String) {
    let value = match lists.names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    };
    let more = format!(
        "{}: {} accepted, {}, {} suppressed, {} rejected",
        counted(lists.rows, "row"),
        HumanCount(lists.accepted),
        counted(lists.duplicates, "duplicate"),
        HumanCount(lists.suppressed),
        HumanCount(lists.rejected)
    );
    (value, more)
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

fn countries(report: &Report) -> Vec<PartRow<'_>> {
    let parts: &[Part] = &report.bill.countries;
    if parts.len() < 2 && report.bill.cost.is_none() {
        return Vec::new();
    }
    let counts: Vec<u64> = parts.iter().map(|part| part.sent).collect();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    parts
        .iter()
        .zip(percentages(&counts))
        .take(MOST_COUNTRIES)
        .map(|(part, share)| PartRow {
            name: &part.name,
            sent: HumanCount(part.sent).to_string(),
            share,
            length: (part.sent * 100 / most).max(1),
            segments: HumanCount(part.segments).to_string(),
            cost: match &part.cost {
                Some(cost) if cost.unpriced() < part.sent => cost.text(),
                _ => "–".to_owned(),
            },
        })
        .collect()
}

fn blocks<'a>(report: &'a Report, failures: &'a [FailureRecord]) -> Vec<Block<'a>> {
    let (lost, unknown) = report.lost();
    let is_unknown = |failure: &FailureRecord| failure.state == FailureState::Unknown;
    let mut room = MOST_REASONS;
    let mut block = |title: &str, who, count: u64, is_wanted: bool| {
        let reasons = reason_rows(report, is_wanted, room);
        room -= reasons.len();
        let failures: Vec<_> = failures
            .iter()
            .filter(|failure| is_unknown(failure) == is_wanted)
            .map(|one| failure_row(report, one))
            .collect();
        let shown = failures.len() as u64;
        Block {
            kind: if is_wanted { "unknown" } else { "failed" },
            why: format!("Why {} {title}", HumanCount(count)),
            reasons,
            who,
            failures,
            count: HumanCount(count).to_string(),
            shown: (count > shown).then(|| HumanCount(shown).to_string()),
        }
    };
    let is = if unknown == 1 { "is" } else { "are" };
    let mut blocks = vec![
        block("did not arrive", "Who was not reached", lost, false),
        block(
            &format!("{is} not confirmed"),
            "Who may have been reached",
            unknown,
            true,
        ),
    ];
    blocks.retain(|block| !block.reasons.is_empty());
    blocks
}

fn reason_rows(report: &Report, is_unknown: bool, room: usize) -> Vec<ReasonRow<'_>> {
    let wanted = |one: &&Reason| one.is_unknown() == is_unknown;
    let most = report.by_reason.iter().filter(wanted);
    let most = most.map(|one| one.count).max().unwrap_or(0).max(1);
    report
        .by_reason
        .iter()
        .filter(wanted)
        .take(room)
        .map(|one| ReasonRow {
            count: HumanCount(one.count).to_string(),
            length: (one.count * 100 / most).max(1),
            class: &one.class,
            code: one.code.as_deref(),
            reason: plain::reason(&one.reason),
            remedy: remedy(&one.class),
        })
        .collect()
}

fn failure_row<'a>(report: &'a Report, one: &'a FailureRecord) -> FailureRow<'a> {
    FailureRow {
        campaign: match report.campaign {
            Some(_) => None,
            None => report.campaign_name(one.campaign_id),
        },
        phone: &one.phone,
        content: &one.content,
        class: &one.class,
        code: one.code.as_deref(),
        reason: plain::reason(&one.reason),
        attempts: one.attempts,
        last_attempt: one.last_attempt_at.map(|at| report.local.short(at)),
    }
}

/// So many moments are named below the chart.
const TICKS: usize = 5;

fn chart(history: &History, local: &Local) -> Chart {
    let columns = history.spans.len();
    let sum = |one: &Outcomes| one.sent + one.failed + one.unknown;
    let peak = history.spans.iter().map(sum).max().unwrap_or(0);
    let step = step(peak);
    let top = peak.div_ceil(step).max(1) * step;
    let at = |column: usize| {
        let spans = u32::try_from(column).unwrap_or(u32::MAX);
        let from = history.from.plus(history.width.saturating_mul(spans));
        local.tick(from, history.width)
    };
    let mut bars = Vec::new();
    for (column, one) in history.spans.iter().enumerate() {
        let mut filled = 0;
        for (kind, label, count) in [
            ("sent", "sent", one.sent),
            ("failed", "failed", one.failed),
            ("unknown", "not confirmed", one.unknown),
        ] {
            if count == 0 {
                continue;
            }
            // Thousandths of the height; what is there can be seen.
            let height = (count * 1_000 / top).max(8);
            filled += height;
            bars.push(Bar {
                kind,
                at: column,
                y: 1_000_u64.saturating_sub(filled),
                height,
                title: format!("{}: {} {label}", at(column), HumanCount(count)),
            });
        }
    }
    let ticks = TICKS.min(columns);
    let ticks = (0..ticks).map(|tick| match tick {
        0 => local.tick(history.first_at, history.width),
        // The chart ends when the last message did, not with its span.
        _ if tick == ticks - 1 => local.tick(history.last_at, history.width),
        _ => at(columns * tick / (ticks - 1)),
    });
    let kinds = [
        ("sent", "sent", history.spans.iter().any(|one| one.sent > 0)),
        (
            "failed",
            "failed",
            history.spans.iter().any(|one| one.failed > 0),
        ),
        (
            "unknown",
            "not confirmed",
            history.spans.iter().any(|one| one.unknown > 0),
        ),
    ];
    Chart {
        columns,
        top,
        bars,
        kinds: kinds
            .into_iter()
            .filter(|(.., is_there)| *is_there)
            .map(|(kind, label, _)| (kind, label))
            .collect(),
        width: span(history.width),
        levels: (0..=top / step)
            .map(|level| {
                let height = level * step;
                (HumanCount(height).to_string(), height * 100 / top)
            })
            .collect(),
        ticks: ticks.collect(),
        label: format!(
            "Messages over time, {}",
            local.span(history.first_at, history.last_at)
        ),
    }
}

/// The distance between the levels of a chart up to `peak`: 1, 2 or 5 and noughts, at most five of them.
fn step(peak: u64) -> u64 {
    let mut unit = 1_u64;
    loop {
        for factor in [1, 2, 5] {
            let step = unit.saturating_mul(factor);
            if peak <= step.saturating_mul(4) {
                return step;
            }
        }
        unit = unit.saturating_mul(10);
    }
}

/// The width of a column, which is a whole number of one of these units.
fn span(width: Duration) -> String {
    let seconds = width.as_secs();
    match seconds {
        0 => format!("{} ms", width.as_millis()),
        1..60 => format!("{seconds} s"),
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

    fn written(report: &Report, failures: &[FailureRecord]) -> String {
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
            "97.5 %",
            "not a valid number",
            "the number needs correcting",
            "+8613812345678",
            "Why 300 did not arrive",
            "Why 13 are not confirmed",
            "13,006",
            "12,300 messages imported in GSM-7, 45 in UCS-2",
            "spring.csv",
            "12,400 rows: 12,345 accepted, 40 duplicates, 10 suppressed, 5 rejected",
            "sender ACME",
            "4m 5s · 49&#x2f;s on average",
            "Dear {{ name }}",
            "GB +44",
            "Times are in UTC",
            "<svg",
            "09:01:40: 12 sent",
            "09:01:40: 30 failed",
        ] {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn page_names_no_commands() {
        let page = written(&sample::report(), &sample::failures());
        for words in [
            "smsq report",
            "smsq retry",
            "smsq settle",
            "smsq send",
            "--",
            "type next",
        ] {
            let (_, shown) = page.split_once("</style>").expect("a style");
            assert!(!shown.contains(words), "{words}");
        }
    }

    #[test]
    fn chart_has_labelled_levels_and_ends_with_the_last_message() {
        let chart = chart(
            &sample::report().history.expect("a history"),
            &Local::default(),
        );
        let levels: Vec<&str> = chart
            .levels
            .iter()
            .map(|(label, _)| label.as_str())
            .collect();
        assert_eq!(levels, ["0", "100", "200", "300", "400"]);
        assert_eq!(chart.ticks.first().map(String::as_str), Some("09:00:00"));
        assert_eq!(chart.ticks.last().map(String::as_str), Some("09:04:05"));
        for (peak, expected) in [
            (0, 1),
            (1, 1),
            (4, 1),
            (5, 2),
            (9, 5),
            (400, 100),
            (401, 200),
        ] {
            assert_eq!(step(peak), expected, "{peak}");
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
        assert!(page.contains("The first 2 of 300"), "{page}");
        assert!(page.contains("The first 1 of 13"), "{page}");
    }

    #[test]
    fn an_empty_report_is_a_page_too() {
        let mut report = sample::report();
        report.totals = Totals::default();
        report.standings.clear();
        report.campaign = None;
        report.by_reason.clear();
        report.history = None;
        report.facts = crate::store::report::SentFacts::default();
        let page = written(&report, &[]);
        assert!(page.contains("All campaigns"));
        assert!(!page.contains("<svg"));
    }
}
