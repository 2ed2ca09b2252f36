//! What to do about a failure, in the operator's words: one sentence per class, some of them sharpened
//! by the vendor's code, and the commands that come next.

use crate::sms::Class;
use crate::store::report::Totals;

use super::{Reason, Report};

/// What the operator can do about failures of this class and code.
pub fn advice(class: &str, code: Option<&str>) -> &'static str {
    let Ok(class) = class.parse::<Class>() else {
        return "look the code up in the provider's documentation";
    };
    match (class, code) {
        (Class::Account, Some("401")) => {
            "mend the account's credentials in the configuration, then `smsq send` again"
        }
        (Class::Account, Some("402")) => "top up the account's credit, then `smsq send` again",
        (Class::Account, Some("403")) => {
            "ask the provider what the account may do (sender, template, address), then `smsq send` again"
        }
        (Class::Account, _) => {
            "mend the account (credit, credentials, sender), then `smsq retry --class account` and `smsq send`"
        }
        (Class::Recipient, _) => "mend the number in the report's csv and import it again",
        (Class::Content, _) => {
            "mend the text in the report's csv and import it again; the provider may want it registered first"
        }
        (Class::OptedOut, _) => "leave them alone: they asked for no more messages",
        (Class::Throttle, _) => {
            "lower the rate (`smsq set --rate`), then `smsq retry --class throttle` and `smsq send`"
        }
        (Class::Cap, _) => {
            "wait until the provider's cap is over, then `smsq retry --class cap` and `smsq send`"
        }
        (Class::Unavailable, _) => {
            "the provider was away: `smsq retry --class unavailable` when it is back, then `smsq send`"
        }
        (Class::Unknown, Some("not_stored")) => {
            "the database could not store what became of it: read the reason, then `smsq settle --unknown sent|failed --phone PHONE`"
        }
        (Class::Unknown, _) => {
            "ask the provider whether it arrived, then `smsq settle --unknown sent|failed`, or `smsq retry --unknown` to risk a second one"
        }
        (Class::Expired, _) => {
            "its time ran out: `smsq retry --class expired --expires TIME` gives it a new one"
        }
        (Class::Cancelled, _) => {
            "the campaign was cancelled; if they shall have it after all, import the list again"
        }
        (Class::Suppressed, _) => {
            "the number is on the suppression list; `smsq suppress remove` takes it off"
        }
        (Class::Settled, _) => {
            "you settled it as failed; `smsq retry --class settled` sends it again"
        }
    }
}

/// What can be done about failures of this class, for people who type no commands.
pub(super) fn remedy(class: &str) -> &'static str {
    let Ok(class) = class.parse::<Class>() else {
        return "the provider's documentation explains the code";
    };
    match class {
        Class::Account => {
            "the account with the provider needs attention: credit, credentials or sender"
        }
        Class::Recipient => "the number needs correcting",
        Class::Content => "the text needs changing, or registering with the provider",
        Class::OptedOut => "leave them alone: they asked for no more messages",
        Class::Throttle => "it was too fast for the provider: send these again more slowly",
        Class::Cap => "the provider's cap was reached: send these again later",
        Class::Unavailable => "the provider was away: send these again",
        Class::Unknown => "the provider's records say whether these arrived",
        Class::Expired => "their time ran out before they could be sent",
        Class::Cancelled => "the campaign was cancelled before they were sent",
        Class::Suppressed => "the number is on the suppression list",
        Class::Settled => "settled as failed by hand",
    }
}

/// A command to type next, and what it is good for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Step {
    pub command: String,
    pub purpose: &'static str,
}

/// Classes of messages that may well arrive when they are tried again as they are.
const WORTH_A_RETRY: [Class; 4] = [
    Class::Unavailable,
    Class::Throttle,
    Class::Cap,
    Class::Account,
];

/// What to type next, the most useful first.
pub fn steps(report: &Report) -> Vec<Step> {
    let totals = &report.totals;
    let campaign = report.campaign.as_deref();
    let named = campaign
        .map(|name| format!(" --campaign {}", shell_word(name)))
        .unwrap_or_default();
    let mut steps = Vec::new();
    let mut step = |command: String, purpose| steps.push(Step { command, purpose });
    if report.standing().is_some_and(|one| one.state == "paused") {
        step(format!("smsq resume{named}"), "lets the campaign go on");
    }
    if totals.queued > 0 && report.standing().is_none_or(|one| one.state != "cancelled") {
        step(format!("smsq send{named}"), "sends what is still queued");
    }
    // What was purged is counted, and nothing can be done about it.
    if !report.by_reason.is_empty() {
        step(
            format!("smsq report{named} --failed --format csv --output failed.csv"),
            "all of them as a file: mend it and import it again",
        );
    }
    for class in WORTH_A_RETRY {
        if report
            .by_reason
            .iter()
            .any(|one| one.class == class.as_str())
        {
            step(
                format!("smsq retry{named} --class {class}"),
                "puts these back into the queue as they are",
            );
        }
    }
    let is_unknown = |one: &Reason| one.class == Class::Unknown.as_str();
    if report.by_reason.iter().any(is_unknown) {
        let name = concerned(report, |totals| totals.unknown > 0)
            .map_or_else(|| "NAME".to_owned(), shell_word);
        let named = format!(" --campaign {name}");
        step(
            format!("smsq settle{named} --unknown sent"),
            "your word that the unknown ones arrived (or `failed`)",
        );
        step(
            format!("smsq retry{named} --unknown"),
            "sends the unknown ones again; some may get it twice",
        );
    }
    if campaign.is_none() && report.standings.len() > 1 {
        step(
            "smsq report --campaign NAME".to_owned(),
            "one campaign in detail",
        );
    }
    steps
}

/// The only campaign with such messages.
fn concerned(report: &Report, has_some: impl Fn(&Totals) -> bool) -> Option<&str> {
    let mut all = report.standings.iter().filter(|one| has_some(&one.totals));
    match (all.next(), all.next()) {
        (Some(one), None) => Some(&one.campaign),
        _ => None,
    }
}

/// `word` as a shell reads it back.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@%+,".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn every_class_has_advice_of_its_own() {
        let all: std::collections::BTreeSet<_> = Class::ALL
            .iter()
            .map(|class| advice(class.as_str(), None))
            .collect();
        assert_eq!(all.len(), Class::ALL.len());
        assert!(!all.contains(advice("of a newer version", None)));
    }

    #[test]
    fn the_only_campaign_with_unknown_messages_is_named() {
        let settled = |report: &Report| {
            let found = steps(report).into_iter().map(|step| step.command);
            found
                .filter(|line| line.contains("unknown"))
                .collect::<Vec<_>>()
        };
        let mut report = sample::report();
        report.campaign = None;
        let mut other = report.standings[0].clone();
        other.campaign = "autumn".to_owned();
        other.totals.unknown = 0;
        report.standings.push(other);
        let named = [
            "smsq settle --campaign 'spring sale' --unknown sent",
            "smsq retry --campaign 'spring sale' --unknown",
        ];
        assert_eq!(settled(&report), named);
        report.standings[1].totals.unknown = 1;
        assert!(settled(&report)[0].contains("--campaign NAME "));
    }

    #[test]
    fn a_name_survives_the_shell() {
        assert_eq!(shell_word("春节-2026"), "春节-2026");
        assert_eq!(shell_word("it's on"), r"'it'\''s on'");
        assert_eq!(shell_word("$(rm)"), "'$(rm)'");
    }
}
