//! What an import says of itself.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{prices, unchanged_hint};
use crate::commands::Context;
use crate::commands::words::{counted, messages};
use crate::console::Console;
use crate::exit::Exit;
use crate::import::{
    Cost, Interpretation, NonMobileCounts, RejectionCounts, Repeat, Schedule, SegmentTotals,
    Summary,
};
use crate::report::shell_word;
use crate::store::Store;
use crate::window::local_and_utc;

/// A file that was imported.
pub(in crate::commands) struct Imported {
    pub(in crate::commands) file: String,
    pub(in crate::commands) campaign: String,
    /// `None`: the provider has no price table.
    pub(in crate::commands) currency: Option<String>,
    pub(in crate::commands) schedule: Schedule,
    pub(in crate::commands) summary: Summary,
    /// The command that imports the rejected rows once they are fixed.
    pub(super) fix: String,
}

/// The result on standard output, and what to type next.
pub(super) async fn tell(
    context: &Context,
    store: &Store,
    imported: &[Imported],
    has_rejects_on_stdout: bool,
) -> anyhow::Result<()> {
    if context.is_json() {
        context.print_json(&object(imported))?;
    } else {
        for one in imported {
            if has_rejects_on_stdout {
                context.console.say(one.text().trim_end());
            } else {
                context.console.data(&one.text())?;
            }
        }
    }
    remarks(context, imported);
    let mut campaigns: Vec<&str> = imported.iter().map(|one| one.campaign.as_str()).collect();
    campaigns.dedup();
    let mut to_send = Vec::new();
    for name in campaigns {
        if let Some(campaign) = store.campaign(name).await?
            && store.first_due(campaign.id).await?.is_some()
        {
            to_send.push(name);
        }
    }
    match to_send.as_slice() {
        [] => {}
        [one] => context
            .console
            .say(&format!("next: `smsq send --campaign {}`", shell_word(one))),
        _ => context.console.say("next: `smsq send`"),
    }
    Ok(())
}

/// How a list was understood: where that took a guess, or where somebody is watching.
pub(in crate::commands) fn interpretation(
    console: &Console,
    file: &str,
    interpretation: &Interpretation,
) {
    if !interpretation.is_plain || console.terminal {
        let Interpretation {
            form, phone, text, ..
        } = interpretation;
        let text = match text.as_str() {
            "" => String::new(),
            text => format!("; text: {text}"),
        };
        console.say(&format!("`{file}`: {form}; phone: {phone}{text}"));
    }
}

/// What deserves a second look.
pub(in crate::commands) fn remarks(context: &Context, imported: &[Imported]) {
    for one in imported {
        let (file, summary) = (&one.file, &one.summary);
        if summary.rows == 0 {
            context
                .console
                .warn(&format!("`{file}` has a header and no rows"));
        }
        if let Some(rejects) = &summary.rejects_file {
            context.console.warn(&format!(
                "`{file}`: {} rejected, with the reasons in `{}`",
                counted(summary.rejected, "row"),
                rejects.display()
            ));
            context
                .console
                .say(&format!("fix that file and import it: `{}`", one.fix));
        }
        warn_of(&context.console, file, &summary.non_mobile);
        if summary.unchanged > 0 {
            let hint = unchanged_hint(summary.unchanged, shell_word(&one.campaign));
            context.console.say(&hint);
        }
        let known = one.known();
        if known > 0 && known + summary.rejected == summary.rows {
            context.console.say(&format!(
                "`{file}`: nothing new, campaign `{}` has {} of it already",
                one.campaign,
                messages(known)
            ));
        }
    }
}

/// Something usable was in every file.
pub(super) fn exit(imported: &[Imported]) -> Exit {
    let is_usable = |one: &Imported| one.summary.rows > one.summary.rejected;
    if imported.iter().all(is_usable) {
        Exit::Done
    } else {
        Exit::Incomplete
    }
}

impl Imported {
    /// Rows whose message is in the campaign already, sent or not.
    fn known(&self) -> u64 {
        self.summary.duplicates - self.summary.unchanged
    }

    fn text(&self) -> String {
        let summary = &self.summary;
        let mut text = format!("{} into campaign `{}`\n", self.file, self.campaign);
        for (word, count) in [
            ("rows", summary.rows),
            ("accepted", summary.accepted),
            ("duplicates", summary.duplicates),
            ("suppressed", summary.suppressed),
            ("rejected", summary.rejected),
        ] {
            let _ = writeln!(text, "  {word:<11} {}", indicatif::HumanCount(count));
        }
        explain(&mut text, &summary.repeats, &summary.reasons);
        let _ = writeln!(text, "  segments    {}", segments(&summary.segments));
        if let Some(currency) = &self.currency {
            let _ = writeln!(
                text,
                "  cost        {}",
                prices::text(summary.cost, currency)
            );
        }
        write_schedule(&mut text, self.schedule);
        text
    }

    /// Where the rejected rows are, if there are any.
    pub(in crate::commands) fn rejected(&self) -> String {
        match &self.summary.rejects_file {
            Some(file) => format!(
                "rejected {}, with the reasons in `{}`\n",
                counted(self.summary.rejected, "row"),
                file.display()
            ),
            None => String::new(),
        }
    }

    fn object(&self) -> Value {
        let summary = &self.summary;
        json!({
            "campaign": self.campaign,
            "rows": summary.rows,
            "accepted": summary.accepted,
            "duplicates": summary.duplicates,
            "suppressed": summary.suppressed,
            "rejected": summary.rejected,
            "rejects_file": summary.rejects_file,
            "segments": summary.segments,
            "cost": prices::object(summary.cost, self.currency.as_deref()),
            "due_at": self.schedule.due_at.map(|at| at.to_string()),
            "expires_at": self.schedule.expires_at.map(|at| at.to_string()),
            "by_reason": by_reason(&summary.reasons),
        })
    }
}

/// Behind the counts of duplicates and rejected rows: what they repeat, and what is wrong with them.
pub(super) fn explain(text: &mut String, repeats: &[Repeat], reasons: &RejectionCounts) {
    let mut after = |word: &str, said: String| {
        let line = text
            .find(&format!("  {word} "))
            .and_then(|at| Some(at + text[at..].find('\n')?));
        if let Some(end) = line.filter(|_| !said.is_empty()) {
            text.insert_str(end, &format!(" ({said})"));
        }
    };
    let within = repeats
        .iter()
        .filter_map(|repeat| Some((repeat.line, repeat.first?)));
    let within: Vec<String> = within
        .map(|(line, first)| format!("line {line} repeats line {first}"))
        .collect();
    after("duplicates", within.join(", "));
    let kinds = reasons.sorted().into_iter();
    let kinds: Vec<String> = kinds
        .map(|(kind, count)| format!("{} {kind}", indicatif::HumanCount(count)))
        .collect();
    after("rejected", kinds.join(", "));
}

pub(super) fn by_reason(reasons: &RejectionCounts) -> Value {
    let reasons = reasons.sorted().into_iter();
    reasons
        .map(|(reason, count)| json!({ "reason": reason, "count": count }))
        .collect()
}

/// Numbers that text messages seldom reach.
pub(super) fn warn_of(console: &Console, file: &str, odd: &NonMobileCounts) {
    for (kind, count, line) in odd.all() {
        console.warn(&format!(
            "`{file}`: {}, the first in line {line}: text messages seldom reach such numbers",
            counted(count, kind)
        ));
    }
}

/// When the messages are due and expire, where the import says so.
pub(in crate::commands) fn write_schedule(text: &mut String, schedule: Schedule) {
    let moments = [
        ("starts", schedule.due_at),
        ("expires", schedule.expires_at),
    ];
    for (word, at) in moments {
        if let Some(at) = at {
            let _ = writeln!(text, "  {word:<11} {}", local_and_utc(at));
        }
    }
}

/// `612 (480 messages in GSM-7, 7 in UCS-2)`.
pub(super) fn segments(totals: &SegmentTotals) -> String {
    format!(
        "{} ({} in GSM-7, {} in UCS-2)",
        indicatif::HumanCount(totals.total),
        messages(totals.gsm7),
        indicatif::HumanCount(totals.ucs2)
    )
}

/// One file's counts; of several the sums, and each of them under `files`.
fn object(imported: &[Imported]) -> Value {
    if let [one] = imported {
        return one.object();
    }
    let sum = |count: fn(&Summary) -> u64| -> u64 {
        imported.iter().map(|one| count(&one.summary)).sum()
    };
    let campaign = match imported {
        [first, rest @ ..] if rest.iter().all(|one| one.campaign == first.campaign) => {
            Some(&first.campaign)
        }
        _ => None,
    };
    let mut currencies = imported.iter().map(|one| one.currency.as_deref());
    // Amounts of two currencies make no sum.
    let currency = currencies.next().flatten();
    let currency = currency.filter(|first| currencies.all(|one| one == Some(*first)));
    let cost = Cost {
        amount: sum(|one| one.cost.amount),
        unpriced: sum(|one| one.cost.unpriced),
    };
    // One command has one schedule.
    let schedule = imported.first().map(|one| one.schedule).unwrap_or_default();
    let files: Vec<Value> = imported
        .iter()
        .map(|one| {
            let mut object = one.object();
            object["file"] = json!(one.file);
            object
        })
        .collect();
    json!({
        "campaign": campaign,
        "rows": sum(|one| one.rows),
        "accepted": sum(|one| one.accepted),
        "duplicates": sum(|one| one.duplicates),
        "suppressed": sum(|one| one.suppressed),
        "rejected": sum(|one| one.rejected),
        "rejects_file": null,
        "segments": {
            "messages": sum(|one| one.segments.messages),
            "total": sum(|one| one.segments.total),
            "gsm7": sum(|one| one.segments.gsm7),
            "ucs2": sum(|one| one.segments.ucs2),
        },
        "cost": prices::object(cost, currency),
        "due_at": schedule.due_at.map(|at| at.to_string()),
        "expires_at": schedule.expires_at.map(|at| at.to_string()),
        "by_reason": by_reason(&RejectionCounts::sum(imported.iter().map(|one| &one.summary.reasons))),
        "files": files,
    })
}
