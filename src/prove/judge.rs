//! Compares what a gateway logged with the tables. It uses no other part of smsq, so that a fault there is not
//! repeated here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::evidence::{GatewayEvent, GatewayLog, MessagePlace, StoredRow, Tables};

const SECOND: u64 = 1_000_000;
/// How much later than it started a request may be logged, in microseconds, apart from the stalls of the gateway: the
/// way from the worker's last look at its clock to the gateway's first.
const ON_THE_WAY: u64 = 50_000;

/// What operators asked for, by phone: what they allow is not a fault.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// May be sent again.
    pub(super) resend: BTreeSet<String>,
    pub(super) settled_sent: BTreeSet<String>,
    /// May be reported as failed, and sent again.
    pub(super) settled_failed: BTreeSet<String>,
    pub(super) purged: BTreeSet<String>,
    pub(super) suppressed: BTreeSet<String>,
}

/// A campaign of a round.
#[derive(Clone, Debug)]
pub(super) struct JudgedCampaign {
    pub(super) name: String,
    /// Everybody in its lists.
    pub(super) phones: Vec<String>,
    /// The highest limit that it ever had, in messages a second.
    pub(super) limit: u64,
}

/// A campaign that could pay for some of its messages only.
#[derive(Clone, Debug)]
pub(super) struct JudgedBudget {
    pub(super) campaign: String,
    /// How many messages it could pay for.
    pub(super) messages: u64,
    /// The phones of the messages that were accepted before the budget was lifted.
    pub(super) accepted: Vec<String>,
}

/// What a round is judged by.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) log: GatewayLog,
    pub(super) tables: Tables,
    pub(super) asked: Asked,
    pub(super) campaigns: Vec<JudgedCampaign>,
    /// The limit of each provider, in messages a second.
    pub(super) limit: u64,
    /// The limit of each sender of the pool, in messages a second.
    pub(super) sender_limit: Option<u64>,
    /// What a campaign with a budget got for it.
    pub(super) budget: Option<JudgedBudget>,
    /// The phones that the failure report lists as unknown.
    pub(super) listed: BTreeSet<String>,
    /// When stopped workers continued, in microseconds since the Unix epoch.
    pub(super) thaws: Vec<u64>,
    /// How many requests a worker may start at the same instant: its threads.
    pub(super) threads: u64,
    /// Whether the provider says what became of a message, so that nothing stays unknown in an active campaign.
    pub(super) answers_lookups: bool,
    /// Whether the provider takes each reference once: it then says again that it accepted a message.
    pub(super) honours_references: bool,
}

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Promise {
    NothingLost,
    NothingTwice,
    LimitsHold,
    BudgetHolds,
    /// Each message is in one place, which is the right one, with a reason where it was not sent.
    TruthfulReport,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub(super) promise: Promise,
    pub(super) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let promise = match self.promise {
            Promise::NothingLost => "lost",
            Promise::NothingTwice => "twice",
            Promise::LimitsHold => "limit",
            Promise::BudgetHolds => "budget",
            Promise::TruthfulReport => "report",
        };
        write!(f, "{promise}: {}", self.what)
    }
}

/// The verdict on a round, or the sum of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) messages: u64,
    /// Acceptances, by the gateway.
    pub(super) accepted: u64,
    pub(super) lost: u64,
    /// Messages that were accepted more than once, although no operator asked for that.
    pub(super) twice: u64,
    /// Messages that an operator had sent again, and that were accepted again.
    pub(super) twice_asked: u64,
    pub(super) unknown: u64,
    /// Of these, how many the failure report lists.
    pub(super) unknown_listed: u64,
    /// Of these, how many the gateway accepted.
    pub(super) unknown_accepted: u64,
    /// The most arrivals at one gateway in any second.
    pub(super) most_in_a_second: u64,
    pub(super) findings: Vec<Finding>,
}

impl Verdict {
    fn find(&mut self, promise: Promise, what: String) {
        match promise {
            Promise::NothingLost => self.lost += 1,
            Promise::NothingTwice => self.twice += 1,
            Promise::LimitsHold | Promise::BudgetHolds | Promise::TruthfulReport => {}
        }
        self.findings.push(Finding { promise, what });
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.accepted += other.accepted;
        self.lost += other.lost;
        self.twice += other.twice;
        self.twice_asked += other.twice_asked;
        self.unknown += other.unknown;
        self.unknown_listed += other.unknown_listed;
        self.unknown_accepted += other.unknown_accepted;
        self.most_in_a_second = self.most_in_a_second.max(other.most_in_a_second);
        self.findings.extend(other.findings.iter().cloned());
    }
}

/// Judges a round that is over: no worker is running.
pub(super) fn judge(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict::default();
    judge_sums(&evidence.tables, &mut verdict);
    judge_limits(evidence, &mut verdict);
    judge_budget(evidence, &mut verdict);
    let mut accepted: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &evidence.log.accepted {
        *accepted.entry(&entry.phone).or_default() += 1;
    }
    let mut rows: BTreeMap<(&str, &str), Vec<&StoredRow>> = BTreeMap::new();
    for row in &evidence.tables.rows {
        let key = (row.campaign.as_str(), row.phone.as_str());
        rows.entry(key).or_default().push(row);
    }
    let mut known = BTreeSet::new();
    for campaign in &evidence.campaigns {
        for phone in &campaign.phones {
            known.insert(phone.as_str());
            let message = JudgedMessage {
                evidence,
                campaign: &campaign.name,
                phone,
                accepted: accepted.get(phone.as_str()).copied().unwrap_or(0),
                rows: rows
                    .get(&(campaign.name.as_str(), phone.as_str()))
                    .map_or(&[], Vec::as_slice),
            };
            message.judge(&mut verdict);
        }
    }
    for phone in accepted.keys().filter(|phone| !known.contains(*phone)) {
        let what = format!("{phone} is in no list, and was accepted");
        verdict.find(Promise::TruthfulReport, what);
    }
    verdict
}

/// One message, and where it is.
struct JudgedMessage<'a> {
    evidence: &'a Evidence,
    campaign: &'a str,
    phone: &'a str,
    /// How often the gateway accepted it.
    accepted: u64,
    rows: &'a [&'a StoredRow],
}

impl JudgedMessage<'_> {
    fn is_in(&self, is_place: impl Fn(MessagePlace) -> bool) -> bool {
        self.rows.iter().any(|row| is_place(row.place))
    }

    fn judge(&self, verdict: &mut Verdict) {
        let asked = &self.evidence.asked;
        let has = |phones: &BTreeSet<String>| phones.contains(self.phone);
        verdict.messages += 1;
        verdict.accepted += self.accepted;
        // An operator may have it deleted, and import it again.
        if has(&asked.purged) {
            return;
        }
        let may_repeat = has(&asked.resend) || has(&asked.settled_failed);
        if self.accepted > 1 && may_repeat {
            verdict.twice_asked += 1;
        }
        let mut find = |promise, what: &str| {
            let (campaign, phone) = (self.campaign, self.phone);
            verdict.find(promise, format!("{campaign} {phone} {what}"));
        };
        if self.accepted > 1 && !may_repeat {
            let what = format!("was accepted {} times", self.accepted);
            find(Promise::NothingTwice, &what);
        }
        let is_sent = self.is_in(|place| place == MessagePlace::Sent);
        let is_unknown = self.is_in(|place| place == MessagePlace::Unknown);
        let is_failed = self.is_in(|place| place == MessagePlace::Failed);
        let is_cancelled = self.is_in(|place| place == MessagePlace::Cancelled);
        let is_queued = self.is_in(|place| matches!(place, MessagePlace::Queued { .. }));
        if self.accepted == 0 && is_sent && !has(&asked.settled_sent) {
            find(Promise::NothingLost, "is reported as sent, and was never accepted");
        }
        if self.rows.is_empty() && !has(&asked.suppressed) {
            find(Promise::NothingLost, "is in no table");
        }
        let is_active = self.evidence.tables.campaigns.get(self.campaign) == Some(&0);
        if is_active && is_queued {
            find(Promise::NothingLost, "is still queued, and the run has ended");
        }
        let is_elsewhere = is_sent || is_unknown || is_queued;
        if self.accepted > 0 && is_failed && !is_sent && !has(&asked.settled_failed) {
            find(Promise::TruthfulReport, "is reported as failed, and was accepted");
        }
        if self.accepted > 0 && is_cancelled && !is_elsewhere && !may_repeat {
            find(Promise::TruthfulReport, "is reported as cancelled, and was accepted");
        }
        let is_certain = self.is_in(|place| place == MessagePlace::Queued { in_doubt: false });
        if self.accepted > 0 && is_certain && !may_repeat {
            find(Promise::TruthfulReport, "is queued as never accepted, and was accepted");
        }
        // A message that was cancelled and imported again has two rows.
        let live = self.rows.iter().filter(|row| row.place != MessagePlace::Cancelled);
        if live.count() > 1 && !may_repeat {
            find(Promise::TruthfulReport, "is in two places");
        }
        for row in self.rows {
            let is_counted =
                row.place == MessagePlace::Sent && !has(&asked.settled_sent) && !may_repeat;
            if is_counted && row.accepted != self.accepted && !self.evidence.honours_references {
                let what = format!(
                    "was accepted {} times, and its row says {}",
                    self.accepted, row.accepted
                );
                find(Promise::TruthfulReport, &what);
            }
            let is_unsent = matches!(row.place, MessagePlace::Failed | MessagePlace::Unknown);
            if is_unsent && row.reason.trim().is_empty() {
                find(Promise::TruthfulReport, "was not sent, without a reason");
            }
        }
        if is_active && is_unknown && self.evidence.answers_lookups {
            find(
                Promise::TruthfulReport,
                "is still unknown, although its provider answers lookups",
            );
        }
        if is_unknown {
            let is_listed = self.evidence.listed.contains(self.phone);
            if !is_listed {
                find(Promise::TruthfulReport, "is unknown, and the report does not list it");
            }
            verdict.unknown += 1;
            verdict.unknown_listed += u64::from(is_listed);
            verdict.unknown_accepted += u64::from(self.accepted > 0);
        }
    }
}

/// What was imported is stored once.
fn judge_sums(tables: &Tables, verdict: &mut Verdict) {
    if tables.imported != tables.stored + tables.purged {
        let what = format!(
            "{} messages were imported, {} are stored and {} were purged",
            tables.imported, tables.stored, tables.purged
        );
        verdict.find(Promise::NothingLost, what);
    }
    if tables.with_two_rows != 0 {
        let what = format!("{} messages are in two tables", tables.with_two_rows);
        verdict.find(Promise::TruthfulReport, what);
    }
}

/// No second has more arrivals than a limit allows, of all messages, of each campaign's and of each sender's.
fn judge_limits(evidence: &Evidence, verdict: &mut Verdict) {
    let arrivals: Vec<&GatewayEvent> = evidence.log.arrivals.iter().collect();
    let instants = |entries: &[&GatewayEvent]| -> Vec<u64> {
        let mut instants: Vec<u64> = entries.iter().map(|entry| entry.at).collect();
        instants.sort_unstable();
        instants
    };
    let mut grouped: BTreeMap<usize, Vec<&GatewayEvent>> = BTreeMap::new();
    for entry in &arrivals {
        grouped.entry(entry.gateway).or_default().push(entry);
    }
    let by_gateway: Vec<(usize, Vec<u64>)> =
        grouped.into_iter().map(|(gateway, own)| (gateway, instants(&own))).collect();
    let seconds = by_gateway.iter().flat_map(|(_, own)| windows(own, |_| SECOND));
    verdict.most_in_a_second = seconds.map(|(count, _)| count).max().unwrap_or(0);
    let mut check = |name: &str, arrivals: &[u64], limit: u64| {
        // Requests of a window that is shorter by all delays started within one second.
        let length = |last| SECOND - evidence.delay_before(last);
        let excess = windows(arrivals, length)
            .filter(|(count, last)| {
                *count > limit + evidence.thawed_before(*last) * evidence.threads
            })
            .max();
        if let Some((count, last)) = excess {
            let window = Duration::from_micros(length(last));
            let what =
                format!("{count} messages of {name} arrived within {window:?} at {limit} a second");
            verdict.find(Promise::LimitsHold, what);
        }
    };
    for (gateway, own) in &by_gateway {
        check(&format!("provider {}", gateway + 1), own, evidence.limit);
    }
    for campaign in &evidence.campaigns {
        let phones: BTreeSet<&str> = campaign.phones.iter().map(String::as_str).collect();
        let own: Vec<&GatewayEvent> = arrivals
            .iter()
            .filter(|entry| phones.contains(entry.phone.as_str()))
            .copied()
            .collect();
        check(&campaign.name, &instants(&own), campaign.limit);
    }
    let Some(limit) = evidence.sender_limit else {
        return;
    };
    let mut by_sender: BTreeMap<(usize, &str), Vec<&GatewayEvent>> = BTreeMap::new();
    for entry in arrivals {
        let from = entry.from.as_deref().unwrap_or("no sender");
        let owner = (entry.gateway, from);
        by_sender.entry(owner).or_default().push(entry);
    }
    for ((_, from), own) in by_sender {
        check(&format!("sender {from}"), &instants(&own), limit);
    }
}

/// A campaign gets no more messages accepted than it can pay for, apart from those that an operator declared as not
/// accepted, had sent again or had deleted.
fn judge_budget(evidence: &Evidence, verdict: &mut Verdict) {
    let Some(budget) = &evidence.budget else {
        return;
    };
    let asked = &evidence.asked;
    let free = [&asked.resend, &asked.settled_failed, &asked.purged];
    let is_paid = |phone: &&String| free.iter().all(|phones| !phones.contains(*phone));
    let accepted = budget.accepted.iter().filter(is_paid).count() as u64;
    if accepted > budget.messages {
        let (campaign, messages) = (&budget.campaign, budget.messages);
        let what = format!(
            "{accepted} messages of {campaign} were accepted, and its budget is for {messages}"
        );
        verdict.find(Promise::BudgetHolds, what);
    }
}

impl Evidence {
    /// How much later than they started the requests of the second before this instant may be logged.
    fn delay_before(&self, last: u64) -> u64 {
        let window = last.saturating_sub(2 * SECOND)..=last + 2 * ON_THE_WAY;
        let stalls = self.log.stalls.iter();
        let longest = stalls.filter(|(at, _)| window.contains(at)).map(|(_, micros)| *micros).max();
        (longest.unwrap_or(0) + ON_THE_WAY).min(SECOND)
    }

    /// How many stopped workers continued in the second before this instant.
    fn thawed_before(&self, last: u64) -> u64 {
        let window = last.saturating_sub(SECOND + ON_THE_WAY)..=last + ON_THE_WAY;
        self.thaws.iter().filter(|at| window.contains(at)).count() as u64
    }
}

/// For each instant: how many are in the window that ends with it, whose length may depend on it. They are sorted.
fn windows(instants: &[u64], length: impl Fn(u64) -> u64) -> impl Iterator<Item = (u64, u64)> {
    instants.iter().enumerate().map(move |(index, last)| {
        let begin = last.saturating_sub(length(*last));
        let earlier = instants[..index].partition_point(|at| *at <= begin);
        ((index + 1 - earlier) as u64, *last)
    })
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
