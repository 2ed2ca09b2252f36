//! The report for a person at a terminal: how it stands, why some did not arrive, what to type next.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use indicatif::HumanCount;

use super::cost::{Cost, Part};
use super::shares::percentages;
use super::{Reason, Report, Standing, plain, steps};
use crate::sms::Timestamp;
use crate::store::report::{FailureRecord, SentMessage, Totals};
use crate::text::{counted, duration, messages, printable_line};

/// More reasons than these say nothing to a person; the csv has them all.
const MOST_REASONS: usize = 20;

/// So many countries are named.
const COUNTRIES: usize = 10;

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
    facts(report, &mut text);
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
pub(super) fn write_failures(page: &[FailureRecord], out: &mut impl Write) -> io::Result<()> {
    for failure in page {
        let code = failure.code.as_deref().map(|code| format!(" {code}"));
        let line = format!(
            "{:<16}  {}{}: {}",
            failure.phone,
            failure.class,
            code.unwrap_or_default(),
            plain::reason(&failure.reason),
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

/// One to a line: when, whom, by which id.
pub(super) fn write_sent(
    report: &Report,
    page: &[SentMessage],
    out: &mut impl Write,
) -> io::Result<()> {
    for message in page {
        let segments = message.segments.map_or(1, i32::unsigned_abs);
        let mut line = format!(
            "{}  {:<16}  {} {}, {}",
            report.local.exact(message.sent_at),
            message.phone,
            message.provider,
            message.message_id.as_deref().unwrap_or("-"),
            counted(segments.into(), "segment"),
        );
        if let Some(price) = &message.price {
            let _ = write!(line, ", {price}");
        }
        if message.accepted > 1 {
            let _ = write!(line, ", taken {} times", message.accepted);
        }
        writeln!(out, "{}", printable_line(&line))?;
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
    let places = places(&one.totals);
    let mut shares = vec![String::new()];
    let counts: Vec<u64> = places.iter().skip(1).map(|(_, count)| *count).collect();
    shares.extend(percentages(&counts));
    for ((label, count), share) in places.into_iter().zip(shares) {
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

/// What there is to say of the messages beside where they stand, one line each.
fn facts(report: &Report, text: &mut String) {
    let mut lines: Vec<(&str, String)> = Vec::new();
    if let Some(words) = &report.text {
        lines.push(("text", printable_line(words).into_owned()));
    }
    if let (Some(first), Some(last)) = (report.facts.first_at, report.facts.last_at) {
        let (first, last) = (report.local.exact(first), report.local.exact(last));
        lines.push(("sent", format!("{first} to {last}{}", pace(report))));
    }
    if let Some(providers) = report.providers() {
        let sender = report.sender.as_ref();
        let sender = sender.map(|sender| format!(" as {sender}"));
        let said = format!("{providers}{}", sender.unwrap_or_default());
        lines.push(("through", printable_line(&said).into_owned()));
    }
    if report.facts.segments > 0 {
        let alphabets = report.alphabets;
        let counted = match alphabets.gsm7 + alphabets.ucs2 {
            0 => String::new(),
            _ => format!(
                " (imported: {} in GSM-7, {} in UCS-2)",
                messages(alphabets.gsm7),
                HumanCount(alphabets.ucs2)
            ),
        };
        let segments = HumanCount(report.facts.segments);
        lines.push(("segments", format!("{segments}{counted}")));
    }
    if let Some(cost) = &report.bill.cost {
        lines.push(("cost", cost_text(cost)));
    }
    if report.bill.countries.len() > 1 || report.bill.cost.is_some() {
        let named = report.bill.countries.iter().take(COUNTRIES);
        for (at, part) in named.enumerate() {
            let label = if at == 0 { "countries" } else { "" };
            lines.push((label, country(part)));
        }
        if report.bill.countries.len() > COUNTRIES {
            lines.push(("", "…".to_owned()));
        }
    }
    let lists = &report.lists;
    if lists.count > 0 {
        let mut names = lists.names.join(", ");
        if lists.names.len() as u64 != lists.count {
            let _ = write!(names, " ({} imports)", HumanCount(lists.count));
        }
        let counts = format!(
            "{names}: {}, {} accepted, {}, {} suppressed, {} rejected",
            counted(lists.rows, "row"),
            HumanCount(lists.accepted),
            counted(lists.duplicates, "duplicate"),
            HumanCount(lists.suppressed),
            HumanCount(lists.rejected)
        );
        lines.push(("lists", printable_line(&counts).into_owned()));
    }
    if report.opted_out > 0 {
        let opted_out = HumanCount(report.opted_out);
        lines.push(("opted out", format!("{opted_out} of the failed")));
    }
    if report.facts.repeated > 0 {
        let said = format!(
            "{} more than once by the provider",
            messages(report.facts.repeated)
        );
        lines.push(("taken", said));
    }
    if !lines.is_empty() {
        text.push('\n');
    }
    for (label, said) in lines {
        let _ = writeln!(text, "  {label:<11} {said}");
    }
}

/// `, in 4m 5s (49/s)`.
pub(super) fn pace(report: &Report) -> String {
    let Some(took) = report.took() else {
        return String::new();
    };
    match report.rate() {
        Some(rate) => format!(", in {} ({})", duration(took), per_time(rate)),
        None => String::new(),
    }
}

/// Messages per second, or per minute where that is less than one.
pub(super) fn per_time(per_second: f64) -> String {
    match per_second {
        10.0.. => format!("{per_second:.0}/s"),
        1.0..10.0 => format!("{per_second:.1}/s"),
        _ => format!("{:.1}/min", per_second * 60.0),
    }
}

pub(super) fn cost_text(cost: &Cost) -> String {
    match cost.unpriced() {
        0 => cost.text(),
        unpriced => format!(
            "{}, without {} that no price is known for",
            cost.text(),
            messages(unpriced)
        ),
    }
}

/// `GB +44: 11 messages, 21 segments, 0.66 EUR`.
fn country(part: &Part) -> String {
    let cost = part.cost.as_ref();
    let cost = cost.filter(|cost| cost.unpriced() < part.sent);
    let cost = cost.map(|cost| format!(", {}", cost.text()));
    format!(
        "{}: {}, {}{}",
        part.name,
        messages(part.sent),
        counted(part.segments, "segment"),
        cost.unwrap_or_default()
    )
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

/// Why messages did not arrive; and apart from them those of which nobody knows.
fn reasons(report: &Report, text: &mut String) {
    let (unknown, lost): (Vec<&Reason>, Vec<&Reason>) =
        report.by_reason.iter().partition(|one| one.is_unknown());
    let mut shown = 0;
    for (title, some) in [
        ("Why they did not arrive", lost),
        ("Why they are not confirmed", unknown),
    ] {
        if some.is_empty() {
            continue;
        }
        let _ = write!(text, "\n{title}\n\n");
        let mut table = bare();
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(WIDTH);
        for one in some.into_iter().take(MOST_REASONS) {
            shown += 1;
            let code = one.code.as_deref().map(|code| format!(" {code}"));
            let code = code.unwrap_or_default();
            let why = format!("{} ({}{code})", plain::reason(&one.reason), one.class);
            let why = printable_line(&why);
            table.add_row(vec![
                Cell::new(format!("  {}", HumanCount(one.count)))
                    .set_alignment(CellAlignment::Right),
                Cell::new(format!("{why}\n→ {}", one.advice)),
            ]);
        }
        push_table(text, &table);
    }
    if report.by_reason.len() > shown {
        let more = report.by_reason.len() - shown;
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

/// How long ago it was; a clock that differs a little makes no future of it.
pub(super) fn ago(at: Timestamp, now: Timestamp) -> String {
    let age = now.since(at);
    match age.as_secs() {
        0 => "now".to_owned(),
        seconds => format!("{} ago", duration(Duration::from_secs(seconds))),
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
        insta::assert_snapshot!(text(|out| write(&sample::report(), out)), @r#"
        spring sale: done

           imported  12,345
           sent      12,032  97.5 %
           failed       300   2.4 %
           unknown       13   0.1 %

          text        Dear {{ name }}, "20 %" off, today only
          sent        2025-11-21 09:00:00 UTC to 2025-11-21 09:04:05 UTC, in 4m 5s (49/s)
          through     cellar as ACME
          segments    13,006 (imported: 12,300 messages in GSM-7, 45 in UCS-2)
          countries   GB +44: 12,000 messages, 12,974 segments
                      CN +86: 32 messages, 32 segments
          lists       spring.csv: 12,400 rows, 12,345 accepted, 40 duplicates, 10 suppressed, 5 rejected
          opted out   6 of the failed

        Why they did not arrive

           210  not a valid number (recipient 21211)
                → mend the number in the report's csv and import it again
            84  503: the service is busy (unavailable)
                → the provider was away: `smsq retry --class unavailable` when it is
                back, then `smsq send`
             6  unsubscribed <STOP> (opted_out 21610)
                → leave them alone: they asked for no more messages

        Why they are not confirmed

           13  no answer within 10 s (unknown)
               → ask the provider whether it arrived, then `smsq settle --unknown
               sent|failed`, or `smsq retry --unknown` to risk a second one

        Next
          smsq report --campaign 'spring sale' --failed --format csv --output failed.csv
              all of them as a file: mend it and import it again
          smsq retry --campaign 'spring sale' --class unavailable
              puts these back into the queue as they are
          smsq settle --campaign 'spring sale' --unknown sent
              your word that the unknown ones arrived (or `failed`)
          smsq retry --campaign 'spring sale' --unknown
              sends the unknown ones again; some may get it twice
        "#);
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
    fn sent_messages_are_one_to_a_line() {
        let message = SentMessage {
            campaign_id: 2,
            phone: "+447400301000".to_owned(),
            provider: "cellar".to_owned(),
            message_id: Some("SM\u{1b}1".to_owned()),
            segments: Some(1),
            price: Some("0.04".to_owned()),
            sent_at: Timestamp::from_millis(1_763_715_600_000),
            attempts: 1,
            accepted: 2,
        };
        let page = [message];
        insta::assert_snapshot!(
            text(|out| write_sent(&sample::report(), &page, out)),
            @"2025-11-21 09:00:00 UTC  +447400301000     cellar SM 1, 1 segment, 0.04, taken 2 times"
        );
    }

    #[test]
    fn failures_are_one_to_a_line() {
        insta::assert_snapshot!(text(|out| write_failures(&sample::failures(), out)), @r"
        +8613812345678    recipient 21211: not a valid number (1 attempt)
        +447700900123     unknown: no answer within 10 s (2 attempts)
        +15005550006      cancelled: the campaign was cancelled (never tried)
        ");
    }
}
