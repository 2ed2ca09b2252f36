//! The result of an import or of a dry run: text, JSON, and warnings.

use std::fmt::Write as _;

use serde_json::{Value, json};
use smsq_import::{Estimate, Interpretation, Summary};
use smsq_message::text::{counted, messages, printable_line};
use smsq_operations::{EstimateRows, Imported, ListEstimate, QueueEstimate, alphabet, reasons};
use smsq_process::console::Console;
use smsq_process::exit::Exit;
use smsq_report::shell_word;
use smsq_store::Store;

use crate::commands::{Context, practice};

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
                console.status(text(list).trim_end());
            } else {
                console.print(&text(list))?;
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
    for list in imported {
        if let Some(why) = &list.waits {
            let (name, word) = (&list.campaign, shell_word(&list.campaign));
            console.status(&format!(
                "campaign `{name}` waits for approval: {why}; another person looks at it with `smsq approve --campaign {word}`"
            ));
            queued.retain(|queued| queued != name);
        }
    }
    let practice = practice::flags(store);
    match queued.as_slice() {
        [] => {}
        [name] => {
            console.status(&format!("next: `smsq send --campaign {}{practice}`", shell_word(name)));
        }
        _ => console.status(&format!("next: `smsq send{practice}`")),
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
            console.warn(&format!("`{file}` has no rows"));
        } else if summary.rows == summary.rejected {
            console.warn(&format!("`{file}`: none of its rows can be used"));
        }
        if !rejected_text(list).is_empty() {
            console.warn(&format!("`{file}`: {}", rejected_text(list).trim_end()));
            let command = &list.rejects_command;
            console.status(&format!("fix that file and import it: `{command}`"));
        }
        warn_of_numbers(list, console);
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
pub(in crate::commands) fn exit<'s>(summaries: impl IntoIterator<Item = &'s Summary>) -> Exit {
    let mut summaries = summaries.into_iter();
    if summaries.all(|summary| summary.rows > summary.rejected) {
        Exit::Done
    } else {
        Exit::Incomplete
    }
}

/// Warns of numbers that rarely receive text messages and of failed messages that were not changed.
pub(super) fn warn_of_numbers(list: &Imported, console: &Console) {
    for (kind, (count, line)) in &list.summary.non_mobile {
        console.warn(&format!(
            "`{}`: {}, the first in line {line}: such numbers rarely receive text messages",
            list.file,
            counted(*count, kind)
        ));
    }
    let sent = list.summary.unchanged_sent;
    let failed = list.summary.unchanged - sent;
    if failed > 0 {
        let count = messages(failed);
        let campaign = shell_word(&list.campaign);
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

fn head(list: &Imported) -> String {
    format!("{} into campaign `{}`\n", list.file, list.campaign)
}

/// The result of the import, in practice below a line that says so.
fn text(list: &Imported) -> String {
    let (summary, mut rows) = (&list.summary, EstimateRows::default());
    rows.add_counts(summary, "accepted");
    rows.add_schedule(list.schedule);
    rows.add_segments(&summary.segments);
    let currency = list.currency.as_deref();
    rows.add_cost(summary.cost, currency, list.budget.as_ref());
    let mut text = list.mode.notice().to_owned() + &head(list);
    write_rows(&mut text, &rows);
    text
}

/// Where the rejected rows are; empty if there are none.
fn rejected_text(list: &Imported) -> String {
    let Some(file) = &list.summary.rejects_file else {
        return String::new();
    };
    let (rejected, file) = (counted(list.summary.rejected, "row"), file.display());
    format!("rejected {rejected}, with the reasons in `{file}`\n")
}

/// Why rows were rejected, and where they are; empty if none was.
pub(in crate::commands) fn rejected_summary(list: &Imported) -> String {
    let text = rejected_text(list);
    let Some((count, place)) = text.split_once(", ") else {
        return text;
    };
    format!("{count} ({}), {place}", reasons(&list.summary).join(", "))
}

/// What an import would do, as text.
pub(super) fn list_text(estimate: &ListEstimate) -> String {
    let mut text = estimate.list.mode.notice().to_owned() + &head(&estimate.list);
    write_rows(&mut text, &estimate.rows());
    write_samples(&mut text, &estimate.estimate);
    for (line, rejection) in &estimate.rejects {
        let reason = printable_line(&rejection.reason);
        let _ = writeln!(text, "\n  line {line} rejected: {reason}");
    }
    text
}

/// What sending a campaign would be like, as text.
pub(in crate::commands) fn queue_text(campaign: &str, estimate: &QueueEstimate) -> String {
    let mut text = format!("campaign `{campaign}` by {}\n", estimate.by);
    write_rows(&mut text, &estimate.rows);
    write_samples(&mut text, &estimate.estimate);
    text
}

fn write_rows(text: &mut String, rows: &EstimateRows) {
    for (name, value) in &rows.0 {
        let _ = writeln!(text, "  {name:<11} {value}");
    }
}

/// Writes the messages worth looking at.
fn write_samples(text: &mut String, estimate: &Estimate) {
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
