//! Advice: what to do about a failure, and which commands come next.

use serde::Serialize;
use smsq_message::sms::Class;
use smsq_message::text::shell_word;

use super::Report;

/// What to do about failures of this class and code, for readers with and without a shell.
pub fn advice(class: &str, code: Option<&str>) -> &'static str {
    let Ok(class) = class.parse::<Class>() else {
        return "look up the code in the provider's documentation";
    };
    match class {
        Class::Account => "check the account with the provider: credit, credentials, sender",
        Class::Recipient => "fix the number and import it again",
        Class::Content => "change the text, or register it with the provider, and import it again",
        Class::OptedOut => "do not send again: they asked for no more messages",
        Class::Throttle => "it was too fast for the provider: send again at a lower rate",
        Class::Cap => "the provider's cap was reached: send again later",
        Class::Unavailable => "the provider was unavailable: send again later",
        Class::Unknown if code == Some("not_stored") => {
            "the result could not be stored: the reason says what it was"
        }
        Class::Unknown | Class::Suppressed | Class::Expired | Class::Cancelled
            if code == Some("not_sent_again") =>
        {
            "an earlier attempt may have arrived: look in the provider's records"
        }
        Class::Unknown => "look in the provider's records whether it arrived",
        Class::Expired => "it expired before it could be sent: send again with a later expiry",
        Class::Cancelled => "the campaign was cancelled: import the list again to send it",
        Class::Suppressed => "the number is on the suppression list",
        Class::Settled => "settled as failed by an operator",
    }
}

/// What to do about messages that were sent and not delivered.
pub fn undelivered_advice(class: &str, code: Option<&str>) -> &'static str {
    match class.parse::<Class>() {
        Ok(Class::Recipient) => "check the number, and import the fixed row",
        Ok(Class::Expired) => "the phone was off or without a network: try again another day",
        Ok(Class::Content) => "change the text, or register it with the provider, and import it",
        Ok(Class::Unavailable | Class::Throttle | Class::Cap) => {
            "the network failed: it may work another day"
        }
        _ => advice(class, code),
    }
}

/// A command to run next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub command: String,
    pub purpose: &'static str,
}

/// Classes of failed messages that `smsq retry --class` may help, with its other flags.
const RETRIES: [(Class, &str); 6] = [
    (Class::Unavailable, ""),
    (Class::Throttle, ""),
    (Class::Cap, ""),
    (Class::Account, ""),
    (Class::Settled, ""),
    (Class::Expired, " --expires TIME"),
];

/// The commands to run next, the most useful first.
pub fn steps(report: &Report) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut step = |command: String, purpose| steps.push(Step { command, purpose });
    let campaign = report.campaign.as_deref();
    let flag = campaign.map_or_else(String::new, campaign_flag);
    let state = report.status().map(|status| status.state);
    let has_class =
        |class: Class| report.by_reason.iter().any(|reason| reason.class == class.as_str());
    if state == Some("paused") {
        step(format!("smsq resume{flag}"), "resumes the campaign");
    }
    if state == Some("unapproved") {
        step(format!("smsq approve{flag}"), "lets another person approve the campaign");
    }
    if report.totals.queued > 0 && state != Some("cancelled") {
        let practice = if report.summaries.mode.is_practice() { " --practice" } else { "" };
        let command = format!("smsq send{flag}{practice}");
        step(command, "sends the queued messages");
    }
    let new_file = |stem: &str| new_file(stem, &report.lists.names);
    if report.by_reason.iter().any(|reason| !reason.is_unknown()) {
        let file = new_file("failed");
        step(
            format!("smsq report{flag} --failed --format csv --output {file}"),
            "writes the failed messages to a file: fix it and import it again",
        );
    } else if !report.by_reason.is_empty() {
        let file = new_file("unknown");
        step(
            format!("smsq report{flag} --failed --format csv --output {file}"),
            "writes the unknown messages to a file, to look them up in the provider's records",
        );
    }
    if !report.undelivered_by_reason.is_empty() {
        let file = new_file("undelivered");
        step(
            format!("smsq report{flag} --undelivered --format csv --output {file}"),
            "writes who was sent to and not reached: fix it and import it",
        );
    }
    if report.totals.delivery.is_some_and(|counts| counts.awaiting > 0) {
        step(format!("smsq receipts{flag} --follow"), "waits for the receipts that are missing");
    }
    for (class, more) in RETRIES {
        if has_class(class) {
            step(format!("smsq retry{flag} --class {class}{more}"), "queues these messages again");
        }
    }
    if has_class(Class::Unknown) {
        let flag = campaign_flag(campaign_with_unknown(report).unwrap_or("NAME"));
        step(
            format!("smsq settle{flag} --unknown sent"),
            "records that the unknown messages arrived (or `failed`)",
        );
        step(
            format!("smsq retry{flag} --unknown"),
            "sends the unknown messages again; some recipients may get two",
        );
    }
    if campaign.is_none() && report.summaries.campaigns.len() > 1 {
        step("smsq report --campaign NAME".to_owned(), "shows one campaign in detail");
    }
    steps
}

/// `failed.csv`, or `failed-2.csv` if that was imported: a report does not overwrite an imported list.
fn new_file(stem: &str, imported: &[String]) -> String {
    let is_new = |name: &String| imported.iter().all(|list| !list.ends_with(name.as_str()));
    let numbered = (2..).map(|number| format!("{stem}-{number}.csv"));
    let mut names = std::iter::once(format!("{stem}.csv")).chain(numbered);
    names.find(is_new).expect("there is no end of numbers")
}

fn campaign_flag(name: &str) -> String {
    format!(" --campaign {}", shell_word(name))
}

/// The campaign with unknown messages, if there is exactly one.
fn campaign_with_unknown(report: &Report) -> Option<&str> {
    let mut found = report.summaries.campaigns.iter().filter(|summary| summary.totals.unknown > 0);
    match (found.next(), found.next()) {
        (Some(only), None) => Some(&only.campaign),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Reason, sample};
    use super::*;

    #[test]
    fn every_class_has_different_advice() {
        let all: std::collections::BTreeSet<_> =
            Class::ALL.iter().map(|class| advice(class.as_str(), None)).collect();
        assert_eq!(all.len(), Class::ALL.len());
        assert!(!all.contains(advice("unknown class", None)));
    }

    #[test]
    fn only_campaign_with_unknown_messages_is_named() {
        let commands = |report: &Report| {
            let commands = steps(report).into_iter().map(|step| step.command);
            commands.filter(|command| command.contains("unknown")).collect::<Vec<_>>()
        };
        let mut report = sample::report();
        report.campaign = None;
        let mut other = report.summaries.campaigns[0].clone();
        other.campaign = "autumn".to_owned();
        other.totals.unknown = 0;
        report.summaries.campaigns.push(other);
        assert_eq!(
            commands(&report),
            [
                "smsq settle --campaign 'spring sale' --unknown sent",
                "smsq retry --campaign 'spring sale' --unknown",
            ]
        );
        report.summaries.campaigns[1].totals.unknown = 1;
        assert!(commands(&report)[0].contains("--campaign NAME "));
    }

    #[test]
    fn files_that_were_imported_are_not_named_again() {
        let mut report = sample::report();
        let command = |report: &Report| steps(report)[0].command.clone();
        assert!(command(&report).ends_with("--output failed.csv"));
        report.lists.names.push("./failed.csv".to_owned());
        report.lists.names.push("failed-2.csv".to_owned());
        assert!(command(&report).ends_with("--output failed-3.csv"));
    }

    #[test]
    fn report_with_only_unknown_messages_asks_for_no_fix() {
        let mut report = sample::report();
        report.by_reason.retain(Reason::is_unknown);
        let first = steps(&report).swap_remove(0);
        assert!(first.command.ends_with("--failed --format csv --output unknown.csv"));
        assert!(first.purpose.contains("the provider's records"), "{first:?}");
    }
}
