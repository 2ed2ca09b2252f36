//! The result of an import: text, JSON, and warnings.

use indicatif::HumanCount;
use serde_json::{Value, json};

use super::estimate::{write_row, write_schedule};
use crate::commands::Context;
use crate::config::Prices;
use crate::console::Console;
use crate::exit::Exit;
use crate::import::{
    Cost, Interpretation, NonMobileCounts, RejectionCounts, Schedule, SegmentTotals, Summary,
};
use crate::report::shell_word;
use crate::store::Store;
use crate::text::{counted, messages};

/// A file that was imported.
pub(in crate::commands) struct Imported {
    pub(in crate::commands) file: String,
    pub(in crate::commands) campaign: String,
    /// `None`: the provider has no prices.
    pub(super) currency: Option<String>,
    pub(super) schedule: Schedule,
    pub(super) summary: Summary,
    /// Imports the rejects file after it was fixed.
    pub(super) rejects_command: String,
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
        for one in imported {
            if has_rejects_on_stdout {
                console.status(one.text().trim_end());
            } else {
                console.print(&one.text())?;
            }
        }
    }
    warn_of_rows(context, imported);
    let mut campaigns: Vec<&str> = imported.iter().map(|one| one.campaign.as_str()).collect();
    campaigns.dedup();
    let mut queued = Vec::new();
    for name in campaigns {
        if let Some(campaign) = store.campaign(name).await?
            && store.first_due(campaign.id).await?.is_some()
        {
            queued.push(name);
        }
    }
    match queued.as_slice() {
        [] => {}
        [one] => console.status(&format!("next: `smsq send --campaign {}`", shell_word(one))),
        _ => console.status("next: `smsq send`"),
    }
    Ok(())
}

/// Prints how a file was understood, if that was a guess, or if a person is watching.
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

/// Warns about rejected, unlikely, unchanged and known rows.
pub(in crate::commands) fn warn_of_rows(context: &Context, imported: &[Imported]) {
    let console = &context.console;
    for one in imported {
        let (file, summary) = (&one.file, &one.summary);
        if summary.rows == 0 {
            console.warn(&format!("`{file}` has a header and no rows"));
        }
        if !one.rejected_text().is_empty() {
            console.warn(&format!("`{file}`: {}", one.rejected_text().trim_end()));
            let command = &one.rejects_command;
            console.status(&format!("fix that file and import it: `{command}`"));
        }
        warn_of_non_mobile(console, file, &summary.non_mobile);
        hint_at_unchanged(console, summary, &one.campaign);
        let known = summary.duplicates - summary.unchanged;
        if known > 0 && known + summary.rejected == summary.rows {
            console.status(&format!(
                "`{file}`: nothing new, campaign `{}` already has {} of it",
                one.campaign,
                messages(known)
            ));
        }
    }
}

/// Numbers that rarely receive text messages.
pub(super) fn warn_of_non_mobile(console: &Console, file: &str, counts: &NonMobileCounts) {
    for (kind, count, line) in counts.all() {
        console.warn(&format!(
            "`{file}`: {}, the first in line {line}: such numbers rarely receive text messages",
            counted(count, kind)
        ));
    }
}

/// Rows of a failures file that were not changed are not sent again.
pub(super) fn hint_at_unchanged(console: &Console, summary: &Summary, campaign: &str) {
    if summary.unchanged > 0 {
        let count = messages(summary.unchanged);
        let campaign = shell_word(campaign);
        console.status(&format!(
            "{count} failed before and did not change: `smsq retry --campaign {campaign}` sends such messages again"
        ));
    }
}

/// Whether every file had a usable row.
pub(super) fn exit(imported: &[Imported]) -> Exit {
    let is_usable = |one: &Imported| one.summary.rows > one.summary.rejected;
    if imported.iter().all(is_usable) {
        Exit::Done
    } else {
        Exit::Incomplete
    }
}

impl Imported {
    fn text(&self) -> String {
        let mut text = format!("{} into campaign `{}`\n", self.file, self.campaign);
        write_counts(&mut text, &self.summary, "accepted");
        write_schedule(&mut text, self.schedule);
        write_segments(&mut text, &self.summary.segments);
        write_cost(&mut text, self.summary.cost, self.currency.as_deref());
        text
    }

    /// Where the rejected rows are; empty if there are none.
    pub(in crate::commands) fn rejected_text(&self) -> String {
        match &self.summary.rejects_file {
            Some(file) => format!(
                "rejected {}, with the reasons in `{}`\n",
                counted(self.summary.rejected, "row"),
                file.display()
            ),
            None => String::new(),
        }
    }

    fn json(&self) -> Value {
        let currency = self.currency.as_deref();
        summary_json(Some(&self.campaign), &self.summary, currency, self.schedule)
    }
}

/// Counts of rows; behind them, which rows are duplicates and why rows were rejected.
pub(super) fn write_counts(text: &mut String, summary: &Summary, accepted: &str) {
    let repeats = summary.repeats.iter().filter_map(|repeat| {
        let first = repeat.first?;
        Some(format!("line {} repeats line {first}", repeat.line))
    });
    let reasons = summary.reasons.sorted().into_iter();
    let reasons = reasons.map(|(kind, count)| format!("{} {kind}", HumanCount(count)));
    for (name, count, details) in [
        ("rows", summary.rows, Vec::new()),
        (accepted, summary.accepted, Vec::new()),
        ("duplicates", summary.duplicates, repeats.collect()),
        ("suppressed", summary.suppressed, Vec::new()),
        ("rejected", summary.rejected, reasons.collect()),
    ] {
        let count = HumanCount(count);
        match details.as_slice() {
            [] => write_row(text, name, count),
            details => write_row(text, name, format!("{count} ({})", details.join(", "))),
        }
    }
}

/// `612 (480 messages in GSM-7, 7 in UCS-2)`.
pub(super) fn write_segments(text: &mut String, totals: &SegmentTotals) {
    let (total, gsm7) = (HumanCount(totals.total), messages(totals.gsm7));
    let ucs2 = HumanCount(totals.ucs2);
    write_row(
        text,
        "segments",
        format!("{total} ({gsm7} in GSM-7, {ucs2} in UCS-2)"),
    );
}

/// `12.34 EUR`, and how many messages have no price; nothing without a currency.
pub(super) fn write_cost(text: &mut String, cost: Cost, currency: Option<&str>) {
    let Some(currency) = currency else { return };
    let amount = format!("{} {currency}", Prices::rounded(cost.amount));
    let amount = amount.trim_end();
    match cost.unpriced {
        0 => write_row(text, "cost", amount),
        unpriced => {
            let unpriced = messages(unpriced);
            write_row(
                text,
                "cost",
                format!("{amount}, excluding {unpriced} without a price"),
            );
        }
    }
}

pub(super) fn summary_json(
    campaign: Option<&str>,
    summary: &Summary,
    currency: Option<&str>,
    schedule: Schedule,
) -> Value {
    let cost = currency.map(|currency| {
        json!({
            "amount": Prices::exact(summary.cost.amount),
            "currency": currency,
            "unpriced": summary.cost.unpriced,
        })
    });
    let reasons = summary.reasons.sorted().into_iter();
    let reasons = reasons.map(|(reason, count)| json!({ "reason": reason, "count": count }));
    json!({
        "campaign": campaign,
        "rows": summary.rows,
        "accepted": summary.accepted,
        "duplicates": summary.duplicates,
        "suppressed": summary.suppressed,
        "rejected": summary.rejected,
        "rejects_file": summary.rejects_file,
        "segments": summary.segments,
        "cost": cost,
        "due_at": schedule.due_at.map(|at| at.to_string()),
        "expires_at": schedule.expires_at.map(|at| at.to_string()),
        "by_reason": reasons.collect::<Value>(),
    })
}

/// The counts of one file; of several files the sums, and each file under `files`.
fn json(imported: &[Imported]) -> Value {
    let [first, rest @ ..] = imported else {
        return json!({ "files": [] });
    };
    if rest.is_empty() {
        return first.json();
    }
    let mut sum = Summary {
        reasons: RejectionCounts::sum(imported.iter().map(|one| &one.summary.reasons)),
        ..Summary::default()
    };
    for Imported { summary, .. } in imported {
        sum.rows += summary.rows;
        sum.accepted += summary.accepted;
        sum.duplicates += summary.duplicates;
        sum.suppressed += summary.suppressed;
        sum.rejected += summary.rejected;
        sum.segments.messages += summary.segments.messages;
        sum.segments.total += summary.segments.total;
        sum.segments.gsm7 += summary.segments.gsm7;
        sum.segments.ucs2 += summary.segments.ucs2;
        sum.cost.amount += summary.cost.amount;
        sum.cost.unpriced += summary.cost.unpriced;
    }
    let campaign = Some(first.campaign.as_str());
    let campaign = campaign.filter(|_| rest.iter().all(|one| one.campaign == first.campaign));
    // Amounts of different currencies have no sum.
    let currency = first.currency.as_deref();
    let currency = currency.filter(|_| rest.iter().all(|one| one.currency == first.currency));
    // All files have the schedule of the command.
    let mut object = summary_json(campaign, &sum, currency, first.schedule);
    let files = imported.iter().map(|one| {
        let mut object = one.json();
        object["file"] = json!(one.file);
        object
    });
    object["files"] = files.collect();
    object
}
