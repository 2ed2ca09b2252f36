//! The report for a person at a terminal: how it stands, why some did not arrive, what to type next.

use std::fmt::Write as _;
use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use indicatif::HumanCount;

use super::{Report, Standing, steps};
use crate::store::inspect::{Failure, Totals};
use crate::text::printable_line;

/// More reasons than these say nothing to a person; the csv has them all.
const MOST_REASONS: usize = 20;

/// Whatever the terminal, so that a report reads the same in a file and in a mail.
const WIDTH: u16 = 80;

/// How campaigns stand, one block each.
pub fn standings(standings: &[Standing]) -> String {
    let blocks: Vec<String> = match standings {
        [one] => vec![standing(one)],
        many => vec![overview(many)],
    };
    blocks.join("\n")
}

pub(super) fn write(report: &Report, mut out: impl Write) -> io::Result<()> {
    let mut text = standings(&report.standings);
    sent_line(report, &mut text);
    purged_line(report, &mut text);
    reasons(report, &mut text);
    let next = steps(report);
    if !next.is_empty() {
        text.push_str("\nNext\n");
        for step in next {
            let _ = write!(text, "  {}\n      {}\n", step.command, step.purpose);
        }
    }
    out.write_all(text.as_bytes())
}

/// One to a line: phone, why, how often it was tried.
pub(super) fn write_failures(page: &[Failure], out: &mut impl Write) -> io::Result<()> {
    for failure in page {
        let code = failure.code.as_deref().map(|code| format!(" {code}"));
        let line = format!(
            "{:<16}  {}{}: {}",
            failure.phone,
            failure.class,
            code.unwrap_or_default(),
            failure.reason,
        );
        let tried = match failure.attempts {
            0 => "never tried".to_owned(),
            1 => "1 attempt".to_owned(),
            many => format!("{many} attempts"),
        };
        writeln!(out, "{} ({tried})", printable_line(&line))?;
    }
    Ok(())
}

fn standing(one: &Standing) -> String {
    let mut text = format!("{}: {}", printable_line(&one.campaign), one.state);
    if let Some(reason) = &one.state_reason {
        let _ = write!(text, " ({})", printable_line(reason));
    }
    if let Some(hours) = &one.window {
        let _ = write!(text, "\nsent {}", printable_line(hours.told()));
    }
    if !one.schedule.told().is_empty() {
        let _ = write!(text, "\n{}", one.schedule.told());
    }
    text.push_str("\n\n");
    let mut table = bare();
    for (label, count) in places(&one.totals) {
        let share = match label {
            "imported" => String::new(),
            _ => percent(count, one.totals.imported),
        };
        table.add_row(vec![
            Cell::new(format!("  {label}")),
            Cell::new(HumanCount(count)).set_alignment(CellAlignment::Right),
            Cell::new(share).set_alignment(CellAlignment::Right),
        ]);
    }
    push_table(&mut text, &table);
    text
}

/// A line per campaign and one for all.
fn overview(all: &[Standing]) -> String {
    if all.is_empty() {
        return "no campaigns yet\n".to_owned();
    }
    let sum: Totals = all.iter().map(|one| one.totals).sum();
    let used: Vec<&str> = places(&sum).iter().map(|(label, _)| *label).collect();
    let mut table = bare();
    let right = |cell: Cell| cell.set_alignment(CellAlignment::Right);
    let mut row = |name: &str, state: &str, totals: &Totals| {
        let mut cells = vec![Cell::new(name), Cell::new(state)];
        let counts = all_places(totals).into_iter();
        let counts = counts.filter(|(label, _)| used.contains(label));
        cells.extend(counts.map(|(_, count)| right(Cell::new(HumanCount(count)))));
        table.add_row(cells);
    };
    for one in all {
        row(&printable_line(&one.campaign), one.state, &one.totals);
    }
    row("all", "", &sum);
    let mut header = vec![Cell::new("campaign"), Cell::new("state")];
    header.extend(used.iter().map(|label| right(Cell::new(label))));
    table.set_header(header);
    let mut text = String::new();
    push_table(&mut text, &table);
    for one in all.iter().filter(|one| !one.schedule.told().is_empty()) {
        let _ = writeln!(
            text,
            "{}: {}",
            printable_line(&one.campaign),
            one.schedule.told()
        );
    }
    text
}

fn sent_line(report: &Report, text: &mut String) {
    let facts = &report.facts;
    if let (Some(first), Some(last)) = (facts.first_at, facts.last_at) {
        let _ = write!(text, "\nSent from {first} to {last}");
        if facts.segments > 0 {
            let _ = write!(text, ", {} segments", HumanCount(facts.segments));
        }
        text.push('\n');
    }
    if facts.repeated > 0 {
        let count = HumanCount(facts.repeated);
        let _ = writeln!(text, "Taken more than once by the provider: {count}");
    }
}

/// Of what was purged only the counts are left.
fn purged_line(report: &Report, text: &mut String) {
    if let Some(at) = report.purged_at {
        let count = HumanCount(report.totals.purged);
        let _ = writeln!(
            text,
            "\n{count} of them were purged, the last at {at}: only their counts are left"
        );
    }
}

fn reasons(report: &Report, text: &mut String) {
    if report.by_reason.is_empty() {
        return;
    }
    text.push_str("\nWhy they did not arrive\n\n");
    let mut table = bare();
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    for one in report.by_reason.iter().take(MOST_REASONS) {
        let code = one.code.as_deref().map(|code| format!(" {code}"));
        let code = code.unwrap_or_default();
        let why = format!("{} ({}{code})", one.reason, one.class);
        let why = printable_line(&why);
        table.add_row(vec![
            Cell::new(format!("  {}", HumanCount(one.count))).set_alignment(CellAlignment::Right),
            Cell::new(format!("{why}\n→ {}", one.advice)),
        ]);
    }
    push_table(text, &table);
    if report.by_reason.len() > MOST_REASONS {
        let more = report.by_reason.len() - MOST_REASONS;
        let _ = writeln!(text, "  … and {more} more reasons; the csv has them all");
    }
}

/// The places where something stands, and those that everybody asks for.
fn places(totals: &Totals) -> Vec<(&'static str, u64)> {
    let always = ["imported", "sent", "failed"];
    all_places(totals)
        .into_iter()
        .filter(|(label, count)| *count > 0 || always.contains(label))
        .collect()
}

fn all_places(totals: &Totals) -> [(&'static str, u64); 7] {
    [
        ("imported", totals.imported),
        ("queued", totals.queued),
        ("sending", totals.sending),
        ("sent", totals.sent),
        ("failed", totals.failed),
        ("unknown", totals.unknown),
        ("cancelled", totals.cancelled),
    ]
}

/// Never `100.0 %` of what is not all of it, never `0.0 %` of what is not nothing.
pub(super) fn percent(count: u64, of: u64) -> String {
    match (count.saturating_mul(1_000)).checked_div(of) {
        None => String::new(),
        Some(0) if count > 0 => "< 0.1 %".to_owned(),
        Some(permille) => format!("{}.{} %", permille / 10, permille % 10),
    }
}

pub(super) fn bare() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

pub(super) fn push_table(text: &mut String, table: &Table) {
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Schedule, sample};

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes).expect("written");
        String::from_utf8(bytes).expect("all of it is text")
    }

    #[test]
    fn a_report_says_how_it_stands_why_and_what_next() {
        insta::assert_snapshot!(text(|out| write(&sample::report(), out)), @r"
        spring sale: done

           imported  12,345
           sent      12,032  97.4 %
           failed       300   2.4 %
           unknown       13   0.1 %

        Sent from 2025-11-21T09:00:00Z to 2025-11-21T09:04:05Z, 13,006 segments

        Why they did not arrive

           210  not a valid number (recipient 21211)
                → mend the number in the report's csv and import it again
            84  503: the service is busy (unavailable)
                → the provider was away: `smsq retry --class unavailable` when it is
                back, then `smsq send`
            13  no answer within 10 s (unknown)
                → ask the provider whether it arrived, then `smsq settle --unknown
                sent|failed`, or `smsq retry --unknown` to risk a second one
             6  unsubscribed <STOP> (opted_out 21610)
                → leave them alone: they asked for no more messages

        Next
          smsq report --campaign 'spring sale' --failed --format csv --output failed.csv
              all of them as a file: mend it and import it again
          smsq retry --campaign 'spring sale' --class unavailable
              puts these back into the queue as they are
          smsq settle --campaign 'spring sale' --unknown sent
              your word that the unknown ones arrived (or `failed`)
          smsq retry --campaign 'spring sale' --unknown
              sends the unknown ones again; some may get it twice
        ");
    }

    #[test]
    fn several_campaigns_are_an_overview() {
        let mut report = sample::report();
        report.campaign = None;
        report.standings.push(Standing {
            campaign: "reminders".to_owned(),
            state: "paused",
            state_reason: Some("50 of the last 100 were rejected".to_owned()),
            window: None,
            schedule: Schedule::default(),
            totals: Totals {
                imported: 80,
                queued: 30,
                failed: 50,
                ..Totals::default()
            },
        });
        insta::assert_snapshot!(standings(&report.standings), @r"
        campaign     state   imported  queued    sent  failed  unknown
        spring sale  done      12,345       0  12,032     300       13
        reminders    paused        80      30       0      50        0
        all                    12,425      30  12,032     350       13
        ");
    }

    #[test]
    fn failures_are_one_to_a_line() {
        insta::assert_snapshot!(text(|out| write_failures(&sample::failures(), out)), @r"
        +8613812345678    recipient 21211: not a valid number (1 attempt)
        +447700900123     unknown: no answer within 10 s (2 attempts)
        +15005550006      cancelled: the campaign was cancelled (never tried)
        ");
    }

    #[test]
    fn a_share_is_never_rounded_to_all_or_nothing() {
        assert_eq!(percent(999_999, 1_000_000), "99.9 %");
        assert_eq!(percent(1, 1_000_000), "< 0.1 %");
        assert_eq!(percent(0, 0), "");
        assert_eq!(percent(5, 5), "100.0 %");
    }
}
