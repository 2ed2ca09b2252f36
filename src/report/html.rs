//! The report as one self-contained HTML page that loads nothing and runs nothing. It is for readers without a shell,
//! so it names no commands. The layout is in `templates/report.html`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use indicatif::HumanCount;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, HtmlEscape, UndefinedBehavior, context, escape_formatter};
use serde::Serialize;
use smsq_message::sms::Timestamp;
use smsq_message::text::{duration, printable};
use smsq_store::report::{FailureRecord, FailureState, Outcomes, Totals};

use super::figures::{Fact, facts, percentages, rate};
use super::histogram::Histogram;
use super::local::LocalTime;
use super::reason::plain_reason;
use super::{Reason, Report, ReportError};

/// The most failed messages on the page; the CSV has all of them.
pub(super) const MAX_FAILURES: usize = 2_000;
const MAX_REASONS: usize = 50;
const MAX_COUNTRIES: usize = 20;
/// How many times are printed below the chart.
const TICKS: usize = 5;

const TEMPLATE: &str = include_str!("../../templates/report.html");
const SECTIONS: &str = include_str!("../../templates/sections.html");
const MACROS: &str = include_str!("../../templates/macros.html");
/// The style of all pages.
pub const STYLE: &str = include_str!("../../templates/style.css");

pub(super) fn write(
    report: &Report,
    failures: &[FailureRecord],
    out: &mut impl Write,
) -> Result<(), ReportError> {
    let status = report.status();
    let page = environment()?.get_template("report.html")?.render(context! {
        style => Value::from_safe_string(STYLE.to_owned()),
        practice => report.summaries.mode.is_practice(),
        title => report.campaign.as_deref().unwrap_or("All campaigns"),
        state => status.map(|status| status.state),
        state_reason => status.and_then(|status| status.state_reason.as_deref()),
        made_at => report.local.short(report.made_at),
        zone => report.local.name(report.made_at),
        ..Value::from(Serde(Sections::of(report, failures)))
    })?;
    out.write_all(page.as_bytes())?;
    Ok(())
}

/// The sections of a report, as the template `sections.html` shows them.
#[derive(Default, Serialize)]
pub struct Sections<'a> {
    imported: u64,
    states: Vec<StateShare>,
    delivery: Vec<DeliveryShare>,
    facts: Vec<Fact>,
    text: Option<&'a str>,
    campaigns: Vec<CampaignShares<'a>>,
    chart: Option<Chart>,
    countries: Vec<CountryRow<'a>>,
    more_countries: usize,
    has_cost: bool,
    purged: u64,
    purged_at: Option<String>,
    blocks: Vec<ReasonBlock<'a>>,
    more_reasons: usize,
    is_masked: bool,
}

impl<'a> Sections<'a> {
    pub fn of(report: &'a Report, failures: &'a [FailureRecord]) -> Self {
        let local = &report.local;
        let all_reasons = report.by_reason.len() + report.undelivered_by_reason.len();
        let countries = countries(report);
        Self {
            facts: page_facts(report),
            text: report.text.as_deref(),
            campaigns: campaigns(report),
            chart: report.histogram.as_ref().map(|histogram| Chart::of(histogram, local)),
            more_countries: report.bill.countries.len().saturating_sub(countries.len()),
            countries,
            has_cost: report.bill.cost.is_some(),
            purged: report.totals.purged,
            purged_at: report.purged_at.map(|at| local.short(at)),
            blocks: blocks(report, failures),
            more_reasons: all_reasons.saturating_sub(MAX_REASONS),
            is_masked: report.is_masked,
            ..Self::default()
        }
        .with_totals(&report.totals)
    }

    /// With other counts of the messages, such as newer ones.
    #[must_use]
    pub fn with_totals(self, totals: &Totals) -> Self {
        Self {
            imported: totals.imported,
            states: states(totals),
            delivery: delivery(totals),
            ..self
        }
    }
}

/// The number of messages in a state, and its share of all.
#[derive(Serialize)]
pub struct StateShare {
    state: &'static str,
    label: &'static str,
    count: u64,
    share: String,
}

/// The number of sent messages by what became of them.
#[derive(Serialize)]
pub struct DeliveryShare {
    label: String,
    count: u64,
    share: String,
}

#[derive(Serialize)]
struct CampaignShares<'a> {
    name: &'a str,
    state: &'static str,
    states: Vec<StateShare>,
}

#[derive(Serialize)]
struct CountryRow<'a> {
    name: &'a str,
    sent: u64,
    share: String,
    segments: u64,
    cost: Option<String>,
    length: u64,
}

/// Reasons of one kind, and the first messages with them.
#[derive(Serialize)]
struct ReasonBlock<'a> {
    state: &'static str,
    why: String,
    who: &'static str,
    count: u64,
    reasons: Vec<ReasonRow<'a>>,
    failures: Vec<ShownFailure<'a>>,
}

#[derive(Serialize)]
struct ReasonRow<'a> {
    length: u64,
    #[serde(flatten)]
    reason: &'a Reason,
}

#[derive(Serialize)]
struct ShownFailure<'a> {
    campaign: Option<&'a str>,
    last_attempt: Option<String>,
    #[serde(flatten)]
    record: &'a FailureRecord,
}

/// Stacked bars over time in a field of 10 × 1000 units per column.
#[derive(Serialize)]
pub struct Chart {
    columns: usize,
    bars: Vec<Bar>,
    legend: Vec<LegendEntry>,
    levels: Vec<ChartLevel>,
    ticks: Vec<String>,
    width: String,
    label: String,
    /// What happened at an instant, marked in the chart and listed below it.
    pub events: Vec<ChartEvent>,
}

#[derive(Serialize)]
struct Bar {
    state: &'static str,
    column: usize,
    y: u64,
    height: u64,
    title: String,
}

#[derive(Serialize)]
struct LegendEntry {
    state: &'static str,
    label: &'static str,
}

#[derive(Serialize)]
struct ChartLevel {
    count: u64,
    /// In percent.
    height: u64,
}

#[derive(Serialize)]
pub struct ChartEvent {
    /// In the units of the chart.
    pub x: String,
    pub at: String,
    pub who: String,
    pub what: String,
}

/// The templates of reports. Text is escaped, without characters that are unsafe to print.
pub fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_formatter(|out, state, value| match value.as_str().map(printable) {
        Some(Cow::Owned(cleaned)) if !value.is_safe() => {
            escape_formatter(out, state, &Value::from(cleaned))
        }
        _ => escape_formatter(out, state, value),
    });
    environment.add_filter("number", |count: u64| HumanCount(count).to_string());
    environment.add_filter("plain_reason", |reason: &str| plain_reason(reason).into_owned());
    environment.add_filter("code", |text: &str| with_code(text));
    environment
        .add_filter("short", |at: i64| LocalTime::system().short(Timestamp::from_millis(at)));
    environment
        .add_filter("seconds", |at: i64| LocalTime::system().seconds(Timestamp::from_millis(at)));
    environment.add_template("report.html", TEMPLATE)?;
    environment.add_template("sections.html", SECTIONS)?;
    environment.add_template("macros.html", MACROS)?;
    Ok(environment)
}

/// HTML of a text, in which what is between backticks is code. Without characters that are unsafe to print.
fn with_code(text: &str) -> Value {
    let text = printable(text);
    let parts: Vec<&str> = text.split('`').collect();
    let last = parts.len() - 1;
    let mut html = String::new();
    for (index, part) in parts.into_iter().enumerate() {
        let part = HtmlEscape(part);
        let _ = match index % 2 {
            0 => write!(html, "{part}"),
            _ if index == last => write!(html, "`{part}"),
            _ => write!(html, "<code>{part}</code>"),
        };
    }
    Value::from_safe_string(html)
}

/// The counts above 0; sent and failed are always shown.
pub fn states(totals: &Totals) -> Vec<StateShare> {
    let states: Vec<_> = [
        ("sent", "sent", totals.sent),
        ("failed", "failed", totals.failed),
        ("unknown", "unknown", totals.unknown),
        ("cancelled", "cancelled", totals.cancelled),
        ("sending", "sending", totals.sending),
        ("queued", "queued", totals.queued),
    ]
    .into_iter()
    .filter(|(state, _, count)| *count > 0 || matches!(*state, "sent" | "failed"))
    .collect();
    let counts: Vec<u64> = states.iter().map(|(_, _, count)| *count).collect();
    states
        .into_iter()
        .zip(percentages(&counts))
        .map(|((state, label, count), share)| StateShare { state, label, count, share })
        .collect()
}

fn page_facts(report: &Report) -> Vec<Fact> {
    let mut facts = facts(report);
    if let (Some(first), Some(last), Some(took)) =
        (report.first_sent_at, report.last_sent_at, report.took)
    {
        let pace = report.rate.map(|per_second| format!(" · {} on average", rate(per_second)));
        let time = Fact {
            label: "time",
            value: duration(took) + &pace.unwrap_or_default(),
            more: report.local.span(first, last),
        };
        facts.insert(0, time);
    }
    facts
}

fn campaigns(report: &Report) -> Vec<CampaignShares<'_>> {
    if report.campaign.is_some() {
        return Vec::new();
    }
    report
        .summaries
        .campaigns
        .iter()
        .map(|summary| CampaignShares {
            name: &summary.campaign,
            state: summary.state,
            states: states(&summary.totals),
        })
        .collect()
}

/// The countries, if there are several or their cost is known.
fn countries(report: &Report) -> Vec<CountryRow<'_>> {
    let parts = &report.bill.countries;
    if parts.len() < 2 && report.bill.cost.is_none() {
        return Vec::new();
    }
    let counts: Vec<u64> = parts.iter().map(|part| part.sent).collect();
    let most = counts.iter().copied().max().unwrap_or(0);
    parts
        .iter()
        .zip(percentages(&counts))
        .take(MAX_COUNTRIES)
        .map(|(part, share)| CountryRow {
            name: &part.name,
            sent: part.sent,
            share,
            segments: part.segments,
            cost: part.amount(),
            length: bar_length(part.sent, most),
        })
        .collect()
}

/// Percent of the longest bar, at least 1.
fn bar_length(count: u64, most: u64) -> u64 {
    (count * 100 / most.max(1)).max(1)
}

/// The failed messages, the unknown ones and the undelivered ones, each with their reasons.
fn blocks<'a>(report: &'a Report, failures: &'a [FailureRecord]) -> Vec<ReasonBlock<'a>> {
    let mut room = MAX_REASONS;
    let mut block = |kind: FailureState| {
        let reasons: Vec<&Reason> = match kind {
            FailureState::Undelivered => report.undelivered_by_reason.iter().collect(),
            kind => {
                let is_unknown = kind == FailureState::Unknown;
                let reasons = report.by_reason.iter();
                reasons.filter(|reason| reason.is_unknown() == is_unknown).collect()
            }
        };
        let count: u64 = reasons.iter().map(|reason| reason.count).sum();
        let most = reasons.iter().map(|reason| reason.count).max().unwrap_or(0);
        let rows: Vec<ReasonRow> = reasons
            .into_iter()
            .take(room)
            .map(|reason| ReasonRow { length: bar_length(reason.count, most), reason })
            .collect();
        room -= rows.len();
        let kind_of = |state| match state {
            FailureState::Cancelled => FailureState::Failed,
            state => state,
        };
        let failures: Vec<ShownFailure> = failures
            .iter()
            .filter(|failure| kind_of(failure.state) == kind)
            .map(|record| failure(report, record))
            .collect();
        let (state, why, who) = match (kind, count) {
            (FailureState::Unknown, 1) => ("unknown", "is unknown", "Who may have been reached"),
            (FailureState::Unknown, _) => ("unknown", "are unknown", "Who may have been reached"),
            (FailureState::Undelivered, 1) => {
                ("failed", "was sent and not delivered", "Whose phone was not reached")
            }
            (FailureState::Undelivered, _) => {
                ("failed", "were sent and not delivered", "Whose phone was not reached")
            }
            _ => ("failed", "did not arrive", "Who was not reached"),
        };
        let has_reasons = !rows.is_empty();
        let why = format!("Why {} {why}", HumanCount(count));
        has_reasons.then_some(ReasonBlock { state, why, who, count, reasons: rows, failures })
    };
    let kinds = [FailureState::Failed, FailureState::Unknown, FailureState::Undelivered];
    kinds.into_iter().filter_map(&mut block).collect()
}

/// What became of the sent messages, with their shares of those whose receipts are or were awaited.
pub fn delivery(totals: &Totals) -> Vec<DeliveryShare> {
    let Some(delivery) = &totals.delivery else {
        return Vec::new();
    };
    let mut counts = delivery.by_state().to_vec();
    counts.retain(|(state, count)| *count > 0 || *state == "delivered");
    let awaited = counts.iter().filter(|(state, _)| *state != "not_awaited");
    let mut shares = percentages(&awaited.map(|(_, count)| *count).collect::<Vec<_>>());
    shares.resize(counts.len(), String::new());
    counts
        .into_iter()
        .zip(shares)
        .map(|((state, count), share)| DeliveryShare {
            label: state.replace('_', " "),
            count,
            share,
        })
        .collect()
}

fn failure<'a>(report: &'a Report, record: &'a FailureRecord) -> ShownFailure<'a> {
    let names_campaign = report.campaign.is_none();
    let campaign = report.campaign_name(record.campaign_id).filter(|_| names_campaign);
    ShownFailure {
        campaign,
        last_attempt: record.last_attempt_at.map(|at| report.local.short(at)),
        record,
    }
}

impl Chart {
    pub fn of(histogram: &Histogram, local: &LocalTime) -> Self {
        let columns = histogram.spans.len();
        let counts = |span: &Outcomes| [span.sent, span.failed, span.unknown];
        let sums = histogram.spans.iter().map(|span| counts(span).iter().sum());
        let peak: u64 = sums.max().unwrap_or(0);
        let step = level_step(peak);
        let top = peak.div_ceil(step).max(1) * step;
        let time_of = |column: usize| {
            let spans = u32::try_from(column).unwrap_or(u32::MAX);
            let from = histogram.from.plus(histogram.width.saturating_mul(spans));
            local.tick(from, histogram.width)
        };
        let mut bars = Vec::new();
        for (column, span) in histogram.spans.iter().enumerate() {
            let mut filled = 0;
            for ((state, label), count) in CHART_STATES.into_iter().zip(counts(span)) {
                if count == 0 {
                    continue;
                }
                // A single message is visible, too.
                let height = (count * 1_000 / top).max(8);
                filled += height;
                bars.push(Bar {
                    state,
                    column,
                    y: 1_000_u64.saturating_sub(filled),
                    height,
                    title: format!("{}: {} {label}", time_of(column), HumanCount(count)),
                });
            }
        }
        let is_shown = |index: usize| histogram.spans.iter().any(|span| counts(span)[index] > 0);
        let legend = CHART_STATES
            .into_iter()
            .enumerate()
            .filter(|(index, _)| is_shown(*index))
            .map(|(_, (state, label))| LegendEntry { state, label })
            .collect();
        let levels = (0..=top / step)
            .map(|level| ChartLevel { count: level * step, height: level * step * 100 / top })
            .collect();
        let ticks = TICKS.min(columns);
        let ticks: Vec<String> = (0..ticks)
            .map(|tick| match tick {
                0 => local.tick(histogram.first_at, histogram.width),
                // The last message, not the end of its span.
                _ if tick == ticks - 1 => local.tick(histogram.last_at, histogram.width),
                _ => time_of(columns * tick / (ticks - 1)),
            })
            .collect();
        let span = local.span(histogram.first_at, histogram.last_at);
        Self {
            columns,
            bars,
            legend,
            levels,
            ticks,
            width: width_text(histogram.width),
            label: format!("Messages over time, {span}"),
            events: Vec::new(),
        }
    }
}

const CHART_STATES: [(&str, &str); 3] =
    [("sent", "sent"), ("failed", "failed"), ("unknown", "unknown")];

/// The distance between the at most five levels of a chart: 1, 2 or 5 times a power of ten.
fn level_step(peak: u64) -> u64 {
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

/// The width of a column, a whole number of one of these units.
fn width_text(width: Duration) -> String {
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
    use crate::sample;

    fn written(report: &Report, failures: &[FailureRecord]) -> String {
        let mut bytes = Vec::new();
        write(report, failures, &mut bytes).expect("written");
        String::from_utf8(bytes).expect("all of it is text")
    }

    /// The contrast of two colours such as `#1b7a50`, from 1 to 21 (WCAG 2.2, "contrast ratio").
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour: &str| {
            let part = |at: usize| {
                let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("a colour");
                let value = f64::from(value) / 255.0;
                if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn texts_can_be_read_in_light_and_dark_mode() {
        let parts: Vec<&str> = STYLE.split(":root {").collect();
        let [_, light, dark, _print] = parts[..] else {
            panic!("{} parts", parts.len());
        };
        for mode in [light, dark] {
            let colour = |name: &str| {
                let (_, rest) = mode.split_once(&format!("--{name}: ")).expect("a colour");
                &rest[..7]
            };
            for text in ["ink", "soft", "sent", "failed", "unknown", "sending"] {
                for ground in ["paper", "card"] {
                    let found = contrast(colour(text), colour(ground));
                    assert!(found >= 4.5, "{text} on {ground}: {found:.2}");
                }
            }
        }
    }

    #[test]
    fn page_has_what_became_of_sent_messages() {
        let page = written(&sample::with_receipts(), &sample::failures());
        for words in [
            "11,000 delivered (91.4 %)",
            "700 undelivered (5.8 %)",
            "32 no report",
            "Why 700 were sent and not delivered",
            "the number is not in use",
            "half within 4.2 s",
        ] {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn page_has_the_figures_of_the_report() {
        let page = written(&sample::report(), &sample::failures());
        for words in [
            "spring sale",
            "12,032",
            "97.5 %",
            "not a valid number",
            "fix the number and import it again",
            "+8613812345678",
            "Why 300 did not arrive",
            "Why 13 are unknown",
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
        for words in ["smsq report", "smsq retry", "smsq settle", "smsq send", "--", "type next"] {
            let (_, shown) = page.split_once("</style>").expect("a style");
            assert!(!shown.contains(words), "{words}");
        }
    }

    #[test]
    fn chart_has_labelled_levels_and_ends_with_the_last_message() {
        let page = written(&sample::report(), &[]);
        for level in ["0", "100", "200", "300", "400"] {
            assert!(page.contains(&format!("%\">{level}</span>")), "{level}");
        }
        assert!(page.contains(r#"<div class="ticks"><span>09:00:00</span>"#));
        assert!(page.contains("<span>09:04:05</span></div>"));
        for (peak, expected) in [(0, 1), (1, 1), (4, 1), (5, 2), (9, 5), (400, 100), (401, 200)] {
            assert_eq!(level_step(peak), expected, "{peak}");
        }
    }

    #[test]
    fn text_from_other_programs_is_escaped() {
        let page = written(&sample::report(), &sample::failures());
        assert!(page.contains("Dear &lt;b&gt;Bob"), "{page}");
        assert!(page.contains("unsubscribed &lt;STOP&gt;"), "{page}");
    }

    #[test]
    fn page_loads_nothing_and_runs_nothing() {
        let page = written(&sample::report(), &sample::failures());
        for fault in ["<script", "<link", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(fault), "{fault}");
        }
    }

    #[test]
    fn shortened_list_says_where_the_rest_is() {
        let page = written(&sample::report(), &sample::failures());
        assert!(page.contains("The first 2 of 300"), "{page}");
        assert!(page.contains("The first 1 of 13"), "{page}");
    }

    #[test]
    fn backticks_become_code_and_the_rest_is_escaped() {
        for (text, html) in [
            ("plain", "plain"),
            ("Pause `a<b`?", "Pause <code>a&lt;b</code>?"),
            ("`a` & `b", "<code>a</code> &amp; `b"),
            ("", ""),
        ] {
            assert_eq!(with_code(text).to_string(), html);
        }
    }

    #[test]
    fn empty_report_is_a_page() {
        let mut report = sample::report();
        report.totals = Totals::default();
        report.summaries.campaigns.clear();
        report.campaign = None;
        report.by_reason.clear();
        report.histogram = None;
        (report.first_sent_at, report.last_sent_at, report.took) = (None, None, None);
        (report.rate, report.segments) = (None, 0);
        let page = written(&report, &[]);
        assert!(page.contains("All campaigns"));
        assert!(!page.contains("<svg"));
    }
}
