//! The result of an import or of a dry run: text, JSON, and warnings.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};

use indicatif::HumanCount;
use serde_json::{Map, Value, json};

use crate::budget::Budget;
use crate::commands::Context;
use crate::config::Prices;
use crate::console::Console;
use crate::exit::Exit;
use crate::import::{
    Estimate, EstimatedCost, Interpretation, Rejection, Sample, Schedule, SegmentTotals, Summary,
};
use crate::operations::Imported;
use crate::rate::Rate;
use crate::report::shell_word;
use crate::route::{Route, RouteMember};
use crate::store::Store;
use crate::text::segments::Alphabet;
use crate::text::{counted, duration, is_printable, messages, printable_line, smart};
use crate::window::local_and_utc;

const SHOWN_CHARACTERS: usize = 5;
const SHOWN_COUNTRIES: usize = 5;

/// A file that would be imported, and what sending it would be like.
pub(super) struct ListEstimate {
    pub(super) list: Imported,
    pub(super) interpretation: Interpretation,
    /// Line and reason of the first rejected rows.
    pub(super) rejects: Vec<(u64, Rejection)>,
    /// What messages to numbers that do not exist would cost.
    pub(super) saved: EstimatedCost,
    pub(super) estimate: Estimate,
}

/// Prints the result, warnings, and the next command.
pub(super) async fn print(
    context: &Context,
    store: &Store,
    imported: &[Imported],
    has_rejects_on_stdout: bool,
) -> anyhow::Result<()> {
    let console = &context.console;
    if context.is_json() {
        context.print_json(&json(imported))?;
    } else {
        for list in imported {
            if has_rejects_on_stdout {
                console.status(list.text().trim_end());
            } else {
                console.print(&list.text())?;
            }
        }
    }
    warn_of_rows(context, imported);
    let mut campaigns: Vec<&str> = imported.iter().map(|list| list.campaign.as_str()).collect();
    campaigns.dedup();
    let mut queued = Vec::new();
    for name in campaigns {
        if let Some(campaign) = store.campaign(name).await?
            && store.report().first_due(campaign.id).await?.is_some()
        {
            queued.push(name);
        }
    }
    match queued.as_slice() {
        [] => {}
        [name] => console.status(&format!(
            "next: `smsq send --campaign {}`",
            shell_word(name)
        )),
        _ => console.status("next: `smsq send`"),
    }
    Ok(())
}

/// Prints how a file is read, if that was detected or if standard error is a terminal.
pub(in crate::commands) fn print_interpretation(
    console: &Console,
    file: &str,
    interpretation: &Interpretation,
) {
    if interpretation.is_plain && !console.is_terminal {
        return;
    }
    let Interpretation { format, phone, .. } = interpretation;
    let text = match interpretation.text.as_str() {
        "" => String::new(),
        text => format!("; text: {text}"),
    };
    console.status(&format!("`{file}`: {format}; phone: {phone}{text}"));
}

/// Warns about rejected rows, numbers that rarely receive messages, and files without new rows.
pub(in crate::commands) fn warn_of_rows(context: &Context, imported: &[Imported]) {
    let console = &context.console;
    for list in imported {
        let (file, summary) = (&list.file, &list.summary);
        if summary.rows == 0 {
            console.warn(&format!("`{file}` has a header and no rows"));
        }
        if !list.rejected_text().is_empty() {
            console.warn(&format!("`{file}`: {}", list.rejected_text().trim_end()));
            let command = &list.rejects_command;
            console.status(&format!("fix that file and import it: `{command}`"));
        }
        list.warn(console);
        let known = summary.duplicates - summary.unchanged;
        if known > 0 && known + summary.rejected == summary.rows {
            console.status(&format!(
                "`{file}`: nothing new, campaign `{}` already has {} of it",
                list.campaign,
                messages(known)
            ));
        }
    }
}

/// Whether every file has a usable row.
pub(super) fn exit<'s>(summaries: impl IntoIterator<Item = &'s Summary>) -> Exit {
    let mut summaries = summaries.into_iter();
    if summaries.all(|summary| summary.rows > summary.rejected) {
        Exit::Done
    } else {
        Exit::Incomplete
    }
}

impl Imported {
    /// Warns of numbers that rarely receive text messages and of failed messages that were not changed.
    pub(super) fn warn(&self, console: &Console) {
        for (kind, (count, line)) in &self.summary.non_mobile {
            console.warn(&format!(
                "`{}`: {}, the first in line {line}: such numbers rarely receive text messages",
                self.file,
                counted(*count, kind)
            ));
        }
        let sent = self.summary.unchanged_sent;
        let failed = self.summary.unchanged - sent;
        if failed > 0 {
            let count = messages(failed);
            let campaign = shell_word(&self.campaign);
            console.status(&format!(
                "{count} failed before and did not change: `smsq retry --campaign {campaign}` sends such messages again"
            ));
        }
        if sent > 0 {
            let count = messages(sent);
            console.status(&format!(
                "{count} did not arrive before and did not change: change the phone or the text of a row to send it"
            ));
        }
    }

    fn head(&self) -> String {
        format!("{} into campaign `{}`\n", self.file, self.campaign)
    }

    fn text(&self) -> String {
        let mut text = self.head();
        self.write_counts(&mut text, "accepted");
        write_schedule(&mut text, self.schedule);
        write_segments(&mut text, &self.summary.segments);
        let (cost, currency) = (self.summary.cost, self.currency.as_deref());
        write_cost(&mut text, cost, currency, self.budget.as_ref());
        text
    }

    /// Where the rejected rows are; empty if there are none.
    pub(in crate::commands) fn rejected_text(&self) -> String {
        let Some(file) = &self.summary.rejects_file else {
            return String::new();
        };
        let (rejected, file) = (counted(self.summary.rejected, "row"), file.display());
        format!("rejected {rejected}, with the reasons in `{file}`\n")
    }

    /// Why rows were rejected, and where they are; empty if none was.
    pub(in crate::commands) fn rejected_summary(&self) -> String {
        let text = self.rejected_text();
        let Some((count, place)) = text.split_once(", ") else {
            return text;
        };
        format!("{count} ({}), {place}", self.reasons().join(", "))
    }

    /// `3 no phone`, the most frequent first.
    fn reasons(&self) -> Vec<String> {
        let reasons = self.summary.frequent_reasons().into_iter();
        reasons
            .map(|(kind, count)| format!("{} {kind}", HumanCount(count)))
            .collect()
    }

    /// Counts of rows, followed by which rows are duplicates and why rows were rejected.
    fn write_counts(&self, text: &mut String, accepted: &str) {
        let summary = &self.summary;
        let repeats = summary.repeats.iter();
        let repeats = repeats.map(|(line, first)| format!("line {line} repeats line {first}"));
        for (name, count, details) in [
            ("rows", summary.rows, Vec::new()),
            (accepted, summary.accepted, Vec::new()),
            ("duplicates", summary.duplicates, repeats.collect()),
            ("suppressed", summary.suppressed, Vec::new()),
            ("rejected", summary.rejected, self.reasons()),
        ] {
            let count = HumanCount(count);
            match details.as_slice() {
                [] => write_row(text, name, count),
                details => write_row(text, name, format!("{count} ({})", details.join(", "))),
            }
        }
    }
}

impl ListEstimate {
    pub(super) fn text(&self) -> String {
        let mut text = self.list.head();
        write_row(&mut text, "list", &self.interpretation.format);
        write_row(&mut text, "phone", &self.interpretation.phone);
        write_row(&mut text, "text", &self.interpretation.text);
        self.list.write_counts(&mut text, "would send");
        self.write_skipped(&mut text);
        write_schedule(&mut text, self.list.schedule);
        write_estimate(&mut text, &self.estimate);
        for (line, rejection) in &self.rejects {
            let reason = printable_line(&rejection.reason);
            let _ = writeln!(text, "\n  line {line} rejected: {reason}");
        }
        text
    }

    /// How many numbers do not exist, and what that saves.
    fn write_skipped(&self, text: &mut String) {
        let (count, currency) = (self.list.summary.dead(), self.list.currency.as_deref());
        let numbers = match count {
            0 => return,
            1 => "1 number that does not exist".to_owned(),
            _ => format!("{} numbers that do not exist", HumanCount(count)),
        };
        let saved = amount(self.saved, currency).map(|amount| format!(", which saves {amount}"));
        let skipped = numbers + &saved.unwrap_or_default();
        write_row(text, "skipped", skipped);
    }

    pub(super) fn json(&self) -> Value {
        let (estimate, stats) = (&self.estimate, &self.estimate.stats);
        let countries = stats.countries().into_iter();
        let countries = countries.map(|(country, count)| (country, json!(count)));
        let expensive = stats.expensive().into_iter().take(SHOWN_CHARACTERS).map(|(character, count)| {
            json!({ "character": character, "messages": count, "instead": smart::plain(character) })
        });
        let rejects = self.rejects.iter();
        let rejects =
            rejects.map(|(line, rejection)| json!({ "line": line, "reason": rejection.reason }));
        let mut object = self.list.json();
        let added = json!({
            "dry_run": true,
            "file": self.list.file,
            "takes_ms": estimate.duration().map(crate::sms::millis),
            "ends_at": estimate.ends_at().map(|at| at.to_string()),
            "too_late": estimate.too_late().unwrap_or_default(),
            "countries": countries.collect::<Map<String, Value>>(),
            "expensive": expensive.collect::<Value>(),
            "saving": stats.saving,
            "longest": stats.longest.as_ref().map(sample_json),
            "most_expensive": stats.most_expensive.as_ref().map(sample_json),
            "samples": stats.samples.iter().map(sample_json).collect::<Value>(),
            "rejects": rejects.collect::<Value>(),
            "list": self.interpretation.format,
            "phone": self.interpretation.phone,
            "text": self.interpretation.text,
        });
        if let (Value::Object(object), Value::Object(added)) = (&mut object, added) {
            object.extend(added);
        }
        object
    }
}

pub(in crate::commands) fn write_row(text: &mut String, name: &str, value: impl Display) {
    let _ = writeln!(text, "  {name:<11} {value}");
}

pub(in crate::commands) fn write_schedule(text: &mut String, schedule: Schedule) {
    for (name, at) in [
        ("starts", schedule.due_at),
        ("expires", schedule.expires_at),
    ] {
        if let Some(at) = at {
            write_row(text, name, local_and_utc(at));
        }
    }
}

/// `612 (480 messages in GSM-7, 7 in UCS-2)`.
fn write_segments(text: &mut String, totals: &SegmentTotals) {
    let (total, gsm7) = (HumanCount(totals.total), messages(totals.gsm7));
    let ucs2 = HumanCount(totals.ucs2);
    let value = format!("{total} ({gsm7} in GSM-7, {ucs2} in UCS-2)");
    write_row(text, "segments", value);
}

/// `12.34 EUR`, and how many messages have no price; `None` without a currency.
fn amount(cost: EstimatedCost, currency: Option<&str>) -> Option<String> {
    let amount = format!("{} {}", Prices::rounded(cost.amount), currency?);
    let mut value = amount.trim_end().to_owned();
    if cost.unpriced > 0 {
        let unpriced = messages(cost.unpriced);
        value = format!("{value}, excluding {unpriced} without a price");
    }
    Some(value)
}

/// The cost, and whether it is above the budget; nothing without a currency.
fn write_cost(
    text: &mut String,
    cost: EstimatedCost,
    currency: Option<&str>,
    budget: Option<&Budget>,
) {
    let Some(mut value) = amount(cost, currency) else {
        return;
    };
    if let Some(budget) = budget.filter(|budget| cost.amount > budget.amount.unsigned_abs()) {
        value = format!("{value}; above the budget of {budget}");
    }
    write_row(text, "cost", value);
}

/// Segments, cost, recipients by country, duration, expensive characters, and the messages worth looking at.
pub(in crate::commands) fn write_estimate(text: &mut String, estimate: &Estimate) {
    let stats = &estimate.stats;
    write_segments(text, &stats.segments);
    let currency = estimate.currency.as_deref();
    write_cost(text, stats.cost, currency, estimate.budget.as_ref());
    if stats.saving > 0 {
        let saving = counted(stats.saving, "segment");
        write_row(text, "saving", format!("{saving} with `--smart`"));
    }
    let countries = stats.countries();
    if countries.len() > 1 {
        let shown = countries.iter().take(SHOWN_COUNTRIES);
        let shown = shown.map(|(country, count)| format!("{country}: {}", HumanCount(*count)));
        let mut shown = shown.collect::<Vec<_>>().join(", ");
        if countries.len() > SHOWN_COUNTRIES {
            shown.push_str(", …");
        }
        write_row(text, "countries", shown);
    }
    write_row(text, "sending", sending(estimate));
    for (character, count) in stats.expensive().into_iter().take(SHOWN_CHARACTERS) {
        let code = u32::from(character);
        let is_shown = is_printable(character) && !character.is_whitespace();
        let shown = if is_shown { character } else { ' ' };
        let instead = match smart::plain(character) {
            Some("") => ", and can be removed".to_owned(),
            Some(plain) => format!(", `{plain}` would not"),
            None => String::new(),
        };
        let count = messages(count);
        let value = format!("`{shown}` (U+{code:04X}) makes {count} UCS-2{instead}");
        write_row(text, "expensive", value);
    }
    for (label, sample) in estimate.labelled_samples() {
        let label = label.map(|label| format!("{label}: ")).unwrap_or_default();
        let line = sample.line.map(|line| format!("line {line} "));
        let _ = writeln!(
            text,
            "\n  {label}{}to {}: {} × {}\n    {}",
            line.unwrap_or_default(),
            printable_line(&sample.phone),
            sample.segments.count,
            alphabet(sample),
            sample.content.replace('\n', "\n    ")
        );
    }
}

/// How long sending takes, and until when.
fn sending(estimate: &Estimate) -> String {
    let window = estimate.window.as_ref().map(|window| {
        let until = estimate.ends_at().map(|at| window.format_local(at));
        let until = until.map(|at| format!(": until about {at}"));
        format!(", {}{}", window.describe(), until.unwrap_or_default())
    });
    let window = window.unwrap_or_default();
    let Some(span) = estimate.duration() else {
        return format!("without a rate limit{window}");
    };
    let mut limits: Vec<String> = estimate.limits.iter().map(Rate::to_string).collect();
    limits.extend(estimate.route.iter().map(|route| describe(route)));
    let alone = estimate
        .with_one_sender()
        .map(|alone| format!("; with one sender {}", duration(alone)));
    let (span, limits) = (
        duration(span),
        limits.join(", ") + &alone.unwrap_or_default(),
    );
    let late = estimate.too_late().map(messages);
    let late = late.map(|late| format!("; about {late} would expire before they are sent"));
    let late = late.unwrap_or_default();
    format!("about {span} at {limits}{window}{late}")
}

/// `50 senders at 2/s`, or `50 senders` if their limits differ; the providers of a route with several.
fn describe(route: &Route) -> String {
    if route.is_shared() {
        let limited = |member: &RouteMember| {
            let name = member.pool.provider();
            match member.rates.0.as_slice() {
                [] => format!("`{name}`"),
                _ => format!("`{name}` at {}", member.rates),
            }
        };
        let members: Vec<String> = route.members().iter().map(limited).collect();
        return members.join(" and ");
    }
    let rates: BTreeSet<String> = route
        .senders()
        .map(|(_, sender)| sender.rate.to_string())
        .collect();
    let count = counted(route.senders().count() as u64, "sender");
    match rates
        .first()
        .filter(|rate| rates.len() == 1 && !rate.is_empty())
    {
        Some(rate) => format!("{count} at {rate}"),
        None => count,
    }
}

fn alphabet(sample: &Sample) -> &'static str {
    match sample.segments.alphabet {
        Alphabet::Gsm7 => "GSM-7",
        Alphabet::Ucs2 => "UCS-2",
    }
}

fn sample_json(sample: &Sample) -> Value {
    json!({
        "line": sample.line, "phone": sample.phone, "content": sample.content,
        "segments": sample.segments.count, "alphabet": alphabet(sample),
    })
}

/// The counts of one file; of several files the sums, and each file under `files`.
pub(super) fn json(imported: &[Imported]) -> Value {
    let [first, rest @ ..] = imported else {
        return json!({ "files": [] });
    };
    if rest.is_empty() {
        return first.json();
    }
    let mut all = first.clone();
    all.summary.rejects_file = None;
    for list in rest {
        all.summary.add(&list.summary);
    }
    let mut object = all.json();
    if rest.iter().any(|list| list.campaign != first.campaign) {
        object["campaign"] = Value::Null;
    }
    // Amounts of different currencies have no sum.
    if rest.iter().any(|list| list.currency != first.currency) {
        object["cost"] = Value::Null;
    }
    let files = imported.iter().map(|list| {
        let mut object = list.json();
        object["file"] = json!(list.file);
        object
    });
    object["files"] = files.collect();
    object
}
