//! The report as text for a terminal: counts, facts, reasons with advice, and the commands to run next.

use std::fmt::Write as _;
use std::io::{self, Write};

use comfy_table::{Cell, ContentArrangement};
use indicatif::HumanCount;
use smsq_message::text::{counted, duration, messages, printable_line};
use smsq_store::report::{DeliveryCounts, FailureRecord, SentMessage, Totals};

use super::advice::steps;
use super::figures::{facts, percentages, rate};
use super::reason::plain_reason;
use super::status::{CampaignSummary, Summaries};
use super::table::{plain_table, push_table, right};
use super::{Reason, Report};

/// The most reasons in the report; the CSV has all of them.
const MAX_REASONS: usize = 20;
const MAX_COUNTRIES: usize = 10;
/// The width of tables, the same on every terminal and in files.
const WIDTH: u16 = 80;

/// One campaign in detail, or a table of several; in practice below a line that says so.
pub fn summaries_text(summaries: &Summaries) -> String {
    let Summaries { mode, campaigns, removed } = summaries;
    let text = match campaigns.as_slice() {
        [] if removed.imported == 0 => "no campaigns yet\n".to_owned(),
        [campaign] if removed.imported == 0 => campaign_text(campaign),
        many => overview(many, removed),
    };
    format!("{}{text}", mode.notice())
}

pub(super) fn write(report: &Report, mut out: impl Write) -> io::Result<()> {
    let mut text = summaries_text(&report.summaries);
    push_facts(report, &mut text);
    if let Some(at) = report.purged_at {
        let count = HumanCount(report.totals.purged);
        let _ = writeln!(
            text,
            "\n{count} of them were purged, the last at {at}: only their counts are left"
        );
    }
    push_reasons(report, &mut text);
    let next = steps(report);
    if !next.is_empty() {
        text.push_str("\nNext\n");
        for step in next {
            let _ = write!(text, "  {}\n      {}\n", step.command, step.purpose);
        }
    }
    out.write_all(text.as_bytes())
}

/// The line above a list of messages, in practice.
pub(super) fn write_notice(report: &Report, out: &mut impl Write) -> io::Result<()> {
    out.write_all(report.summaries.mode.notice().as_bytes())
}

/// One line per failed message: phone, reason, attempts.
pub(super) fn write_failures(page: &[FailureRecord], out: &mut impl Write) -> io::Result<()> {
    for failure in page {
        let attempts = match failure.attempts {
            0 => "not attempted".to_owned(),
            attempts => counted(attempts.unsigned_abs().into(), "attempt"),
        };
        let line = format!(
            "{:<16}  {}: {} ({attempts})",
            failure.phone,
            class_and_code(&failure.class, failure.code.as_deref()),
            plain_reason(&failure.reason),
        );
        writeln!(out, "{}", printable_line(&line))?;
    }
    Ok(())
}

/// One line per sent message: time, phone, provider and its message id.
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
        if let Some(state) = &message.delivery_state {
            let _ = write!(line, ", {}", state.replace('_', " "));
        }
        if message.accepted > 1 {
            let _ = write!(line, ", accepted {} times", message.accepted);
        }
        writeln!(out, "{}", printable_line(&line))?;
    }
    Ok(())
}

fn campaign_text(campaign: &CampaignSummary) -> String {
    let mut text = format!("{}: ", printable_line(&campaign.campaign));
    match &campaign.state_reason {
        // `paused by smsq pause`.
        Some(reason) if reason.starts_with(&format!("{} by ", campaign.state)) => {
            text.push_str(&printable_line(reason));
        }
        Some(reason) => {
            let _ = write!(text, "{} ({})", campaign.state, printable_line(reason));
        }
        None => text.push_str(campaign.state),
    }
    if let Some(window) = &campaign.window {
        let _ = write!(text, "\nsent {}", printable_line(window.describe()));
    }
    if let Some(budget) = &campaign.budget {
        let _ = write!(text, "\n{}", budget.describe());
    }
    if let Some(next) = campaign.next.describe() {
        let _ = write!(text, "\n{next}");
    }
    text.push_str("\n\n");
    let rows = used_counts(&campaign.totals);
    let counts: Vec<u64> = rows.iter().skip(1).map(|(_, count)| *count).collect();
    // The first row, `imported`, is the whole.
    let shares = [String::new()].into_iter().chain(percentages(&counts));
    let mut table = plain_table();
    for ((label, count), share) in rows.into_iter().zip(shares) {
        table.add_row(vec![
            Cell::new(format!("  {label}")),
            right(HumanCount(count)),
            right(share),
        ]);
    }
    push_table(&mut text, &table);
    if let Some(delivery) = &campaign.totals.delivery {
        let line = delivery_line(delivery);
        // Below the line of the sent messages.
        let sent = text.find("\n   sent ").map_or(text.len(), |at| at + 1);
        let end = text[sent..].find('\n').map_or(text.len(), |at| sent + at + 1);
        text.insert_str(end, &line);
    }
    text
}

/// `     delivered 9,120  92.9 %   undelivered 301   expired 17   no report 44   awaiting 330`.
fn delivery_line(delivery: &DeliveryCounts) -> String {
    let rest = delivery.awaited() - delivery.delivered;
    let share = percentages(&[delivery.delivered, rest]).swap_remove(0);
    let delivered = HumanCount(delivery.delivered);
    let mut line = format!("     delivered {delivered}  {share}");
    for (label, count) in delivery.by_state().into_iter().skip(1) {
        if count > 0 {
            let _ = write!(line, "   {} {}", label.replace('_', " "), HumanCount(count));
        }
    }
    line.push('\n');
    line
}

/// A line per campaign, one for those that were removed, and one for the sum.
fn overview(campaigns: &[CampaignSummary], removed: &Totals) -> String {
    let all = campaigns.iter().map(|campaign| campaign.totals).chain([*removed]);
    let sum: Totals = all.sum();
    let used: Vec<&str> = used_counts(&sum).iter().map(|(label, _)| *label).collect();
    let mut table = plain_table();
    let mut header = vec![Cell::new("campaign"), Cell::new("state")];
    header.extend(used.iter().map(right));
    table.set_header(header);
    let mut row = |name: &str, state: &str, totals: &Totals| {
        let mut cells = vec![Cell::new(name), Cell::new(state)];
        let counts = counts(totals).into_iter();
        let counts = counts.filter(|(label, _)| used.contains(label));
        cells.extend(counts.map(|(_, count)| right(HumanCount(count))));
        table.add_row(cells);
    };
    for campaign in campaigns {
        row(&printable_line(&campaign.campaign), campaign.state, &campaign.totals);
    }
    if removed.imported > 0 {
        row("removed campaigns", "", removed);
    }
    row("all", "", &sum);
    let mut text = String::new();
    push_table(&mut text, &table);
    for campaign in campaigns {
        if let Some(next) = campaign.next.describe() {
            let _ = writeln!(text, "{}: {next}", printable_line(&campaign.campaign));
        }
    }
    text
}

fn push_facts(report: &Report, text: &mut String) {
    let mut lines: Vec<(&str, String)> = Vec::new();
    if let Some(template) = &report.text {
        lines.push(("text", template.clone()));
    }
    if let (Some(first), Some(last)) = (report.first_sent_at, report.last_sent_at) {
        let (first, last) = (report.local.exact(first), report.local.exact(last));
        let pace = match (report.took, report.rate) {
            (Some(took), Some(per_second)) => {
                format!(", in {} ({})", duration(took), rate(per_second))
            }
            _ => String::new(),
        };
        lines.push(("sent", format!("{first} to {last}{pace}")));
    }
    for fact in facts(report) {
        let more = match fact.more.as_str() {
            "" => String::new(),
            more => format!(" ({more})"),
        };
        lines.push((fact.label, fact.value + &more));
    }
    let countries = &report.bill.countries;
    if countries.len() > 1 || report.bill.cost.is_some() {
        for (at, part) in countries.iter().take(MAX_COUNTRIES).enumerate() {
            let label = if at == 0 { "countries" } else { "" };
            let amount = part.amount().map(|amount| format!(", {amount}"));
            let line = format!(
                "{}: {}, {}{}",
                part.name,
                messages(part.sent),
                counted(part.segments, "segment"),
                amount.unwrap_or_default()
            );
            lines.push((label, line));
        }
        if countries.len() > MAX_COUNTRIES {
            lines.push(("", "…".to_owned()));
        }
    }
    if !lines.is_empty() {
        text.push('\n');
    }
    for (label, line) in lines {
        let _ = writeln!(text, "  {label:<11} {}", printable_line(&line));
    }
}

/// The reasons of the failed messages, then those of the unknown ones.
fn push_reasons(report: &Report, text: &mut String) {
    let (unknown, failed): (Vec<&Reason>, Vec<&Reason>) =
        report.by_reason.iter().partition(|reason| reason.is_unknown());
    let undelivered: Vec<&Reason> = report.undelivered_by_reason.iter().collect();
    let mut shown = 0;
    for (title, reasons) in [
        ("Why they did not arrive", failed),
        ("Why they are unknown", unknown),
        ("Why they were sent and not delivered", undelivered),
    ] {
        if reasons.is_empty() {
            continue;
        }
        let _ = write!(text, "\n{title}\n\n");
        let mut table = plain_table();
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
        for row in reasons.into_iter().take(MAX_REASONS) {
            shown += 1;
            let class = class_and_code(&row.class, row.code.as_deref());
            let reason = format!("{} ({class})", plain_reason(&row.reason));
            table.add_row(vec![
                right(format!("  {}", HumanCount(row.count))),
                Cell::new(format!("{}\n→ {}", printable_line(&reason), row.advice)),
            ]);
        }
        push_table(text, &table);
    }
    let all = report.by_reason.len() + report.undelivered_by_reason.len();
    if all > shown {
        let more = all - shown;
        let _ = writeln!(text, "  … and {more} more reasons; the CSV has all of them");
    }
}

fn class_and_code(class: &str, code: Option<&str>) -> String {
    match code {
        Some(code) => format!("{class} {code}"),
        None => class.to_owned(),
    }
}

/// The counts above 0, and those that are always shown.
fn used_counts(totals: &Totals) -> Vec<(&'static str, u64)> {
    let always = ["imported", "sent", "failed"];
    counts(totals)
        .into_iter()
        .filter(|(label, count)| *count > 0 || always.contains(label))
        .collect()
}

/// All counts, with the names of their columns.
pub(super) fn counts(totals: &Totals) -> [(&'static str, u64); 7] {
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

#[cfg(test)]
mod tests {
    use smsq_message::sms::Timestamp;
    use smsq_store::Mode;

    use super::*;
    use crate::sample;
    use crate::status::NextDue;

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes).expect("written");
        String::from_utf8(bytes).expect("all of it is text")
    }

    #[test]
    fn report_has_counts_facts_reasons_and_next_steps() {
        insta::assert_snapshot!(text(|out| write(&sample::report(), out)), @r#"
        spring sale: done

           imported  12,345
           sent      12,032  97.5 %
           failed       300   2.4 %
           unknown       13   0.1 %

          text        Dear {{ name }}, "20 %" off, today only
          sent        2025-11-21 09:00:00 UTC to 2025-11-21 09:04:05 UTC, in 4m 5s (49/s)
          provider    cellar (sender ACME)
          segments    13,006 (12,300 messages imported in GSM-7, 45 in UCS-2)
          opted out   6 (of the failed)
          lists       spring.csv (12,400 rows: 12,345 accepted, 40 duplicates, 10 suppressed, 5 rejected)
          countries   GB +44: 12,000 messages, 12,974 segments
                      CN +86: 32 messages, 32 segments

        Why they did not arrive

           210  not a valid number (recipient 21211)
                → fix the number and import it again
            84  503: the service is busy (unavailable)
                → the provider was unavailable: send again later
             6  unsubscribed <STOP> (opted_out 21610)
                → do not send again: they asked for no more messages

        Why they are unknown

           13  no answer within 10 s (unknown)
               → look in the provider's records whether it arrived

        Next
          smsq report --campaign 'spring sale' --failed --format csv --output failed.csv
              writes the failed messages to a file: fix it and import it again
          smsq retry --campaign 'spring sale' --class unavailable
              queues these messages again
          smsq settle --campaign 'spring sale' --unknown sent
              records that the unknown messages arrived (or `failed`)
          smsq retry --campaign 'spring sale' --unknown
              sends the unknown messages again; some recipients may get two
        "#);
    }

    #[test]
    fn receipts_say_what_became_of_sent_messages() {
        let shown = text(|out| write(&sample::with_receipts(), out));
        for expected in [
            "   sent      12,032  97.5 %\n     delivered 11,000  91.4 %   undelivered 700   no report 32   awaiting 300\n",
            "  delivered   half within 4.2 s (95 % within 1m 35s)\n",
            "Why they were sent and not delivered\n\n",
            "700  the number is not in use (recipient 30005)\n",
            "→ check the number, and import the fixed row",
            "smsq report --campaign 'spring sale' --undelivered --format csv --output undelivered.csv",
            "smsq receipts --campaign 'spring sale' --follow",
        ] {
            assert!(shown.contains(expected), "{expected}\nis not in\n{shown}");
        }
    }

    #[test]
    fn several_campaigns_are_a_table() {
        let mut report = sample::report();
        report.campaign = None;
        report.summaries.campaigns.push(CampaignSummary {
            campaign: "reminders".to_owned(),
            mode: Mode::Real,
            state: "paused",
            state_reason: Some("50 of the last 100 were rejected".to_owned()),
            window: None,
            budget: None,
            next: NextDue::default(),
            totals: Totals { imported: 80, queued: 30, failed: 50, ..Totals::default() },
        });
        insta::assert_snapshot!(summaries_text(&report.summaries), @r"
        campaign     state   imported  queued    sent  failed  unknown
        spring sale  done      12,345       0  12,032     300       13
        reminders    paused        80      30       0      50        0
        all                    12,425      30  12,032     350       13
        ");
    }

    #[test]
    fn sent_messages_are_one_per_line() {
        let message = SentMessage {
            id: 1,
            campaign_id: 2,
            phone: "+447400301000".to_owned(),
            provider: "cellar".to_owned(),
            message_id: Some("SM\u{1b}1".to_owned()),
            segments: Some(1),
            price: Some("0.04".to_owned()),
            sent_at: Timestamp::from_millis(1_763_715_600_000),
            attempts: 1,
            accepted: 2,
            delivery_state: None,
            delivery_at: None,
        };
        let page = [message];
        insta::assert_snapshot!(
            text(|out| write_sent(&sample::report(), &page, out)),
            @"2025-11-21 09:00:00 UTC  +447400301000     cellar SM 1, 1 segment, 0.04, accepted 2 times"
        );
    }

    #[test]
    fn failures_are_one_per_line() {
        insta::assert_snapshot!(text(|out| write_failures(&sample::failures(), out)), @r"
        +8613812345678    recipient 21211: not a valid number (1 attempt)
        +447700900123     unknown: no answer within 10 s (2 attempts)
        +15005550006      cancelled: the campaign was cancelled (not attempted)
        ");
    }
}
