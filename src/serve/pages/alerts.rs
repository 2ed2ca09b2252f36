//! What keeps messages from being sent, and since when: the first thing on a page.

use std::collections::BTreeSet;
use std::time::Duration;

use smsq_message::sms::Timestamp;
use smsq_message::text::{duration, messages};
use smsq_report::{CampaignSummary, LocalTime, plain_reason};
use smsq_store::{AuditEntry, STATE_VERBS};

use crate::counts::Snapshot;

/// Campaigns that are named one by one.
const MAX_NAMED: usize = 3;
/// Without an accepted message for this long, though some were tried, something is wrong.
const NOTHING_ACCEPTED: Duration = Duration::from_secs(120);

/// Something that is wrong, with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alert {
    pub(super) text: String,
    pub(super) since: Option<Timestamp>,
}

/// What is wrong with one campaign, or with all.
pub(super) fn alerts(
    snapshot: &Snapshot,
    campaign: Option<&CampaignSummary>,
    default_provider: Option<&str>,
) -> Vec<Alert> {
    let mut alerts = Vec::new();
    if let Some(since) = snapshot.unreadable_since {
        alerts.push(Alert {
            text: "The database cannot be read: this page shows the last known state.".to_owned(),
            since: Some(since),
        });
    }
    alerts.extend(stopped(snapshot, campaign));
    let due: Vec<&CampaignSummary> =
        shown(snapshot, campaign).filter(|summary| summary.is_due()).collect();
    if due.is_empty() {
        return alerts;
    }
    if let Some(alert) = no_worker(snapshot, &due) {
        alerts.push(alert);
        return alerts;
    }
    alerts.extend(silent_workers(snapshot));
    let id = campaign.and_then(|campaign| Some(snapshot.settings_of(&campaign.campaign)?.id));
    let used = campaign.map(|campaign| providers_of(snapshot, campaign, default_provider));
    let troubles = providers(snapshot, used.as_ref());
    if troubles.is_empty() {
        alerts.extend(nothing_accepted(snapshot, id));
    }
    alerts.extend(troubles);
    alerts
}

/// The campaigns that a page is about: one, or all.
fn shown<'a>(
    snapshot: &'a Snapshot,
    campaign: Option<&CampaignSummary>,
) -> impl DoubleEndedIterator<Item = &'a CampaignSummary> {
    snapshot.campaigns.iter().filter(move |summary| {
        campaign.is_none_or(|campaign| campaign.campaign == summary.campaign)
    })
}

/// `14:02 (12m)`, or with the date.
pub(super) fn since(at: Timestamp, now: Timestamp, local: &LocalTime) -> String {
    const MINUTE: Duration = Duration::from_secs(60);
    let age = now.since(at).as_secs();
    let age = if age < 60 { age } else { age - age % 60 };
    let at = match age {
        0..43_200 => local.tick(at, MINUTE),
        _ => local.short(at),
    };
    format!("{at} ({})", duration(Duration::from_secs(age.max(1))))
}

/// Campaigns that workers have stopped or paused.
fn stopped(snapshot: &Snapshot, campaign: Option<&CampaignSummary>) -> Vec<Alert> {
    let change_of = |summary: &CampaignSummary| {
        let name = Some(summary.campaign.as_str());
        snapshot.changes.iter().find(|entry| {
            entry.campaign.as_deref() == name && STATE_VERBS.contains(&entry.what.as_str())
        })
    };
    // A pause by a person is intended, and the state shows it.
    let is_stopped = |summary: &&CampaignSummary| {
        let is_by_worker = || change_of(summary).is_some_and(AuditEntry::is_by_worker);
        summary.state == "stopped" || summary.state == "paused" && is_by_worker()
    };
    let stopped: Vec<&CampaignSummary> =
        shown(snapshot, campaign).rev().filter(is_stopped).collect();
    let alert = |summary: &&CampaignSummary| {
        let reason = reason_text(summary.state_reason.as_deref());
        Alert {
            text: match campaign {
                Some(_) => format!("The campaign is {}{reason}", summary.state),
                None => format!("Campaign `{}` is {}{reason}", summary.campaign, summary.state),
            },
            since: change_of(summary).map(|entry| entry.at),
        }
    };
    let mut alerts: Vec<Alert> = stopped.iter().take(MAX_NAMED).map(alert).collect();
    let more = stopped.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        alerts.push(Alert {
            text: format!("{more} more campaigns are stopped or paused."),
            since: None,
        });
    }
    alerts
}

/// A reason after what it explains.
fn reason_text(reason: Option<&str>) -> String {
    reason.map(plain_reason).map_or_else(String::new, |reason| format!(": {reason}"))
}

fn no_worker(snapshot: &Snapshot, due: &[&CampaignSummary]) -> Option<Alert> {
    if snapshot.alive_workers().next().is_some() {
        return None;
    }
    let queued = messages(due.iter().map(|summary| summary.totals.queued).sum());
    Some(Alert {
        text: format!("No worker is running. Queued: {queued}. `smsq send` starts a worker."),
        since: snapshot.workers.iter().map(|(worker, _)| worker.heartbeat_at).max(),
    })
}

/// Workers that died while they were sending.
fn silent_workers(snapshot: &Snapshot) -> Vec<Alert> {
    snapshot
        .workers
        .iter()
        .filter(|(worker, sending)| *sending > 0 && snapshot.is_silent(worker))
        .map(|(worker, sending)| Alert {
            text: format!(
                "Worker {} on `{}` is silent: the {} that it was sending become unknown when another worker notices.",
                worker.id,
                worker.host,
                messages(*sending)
            ),
            since: Some(worker.heartbeat_at),
        })
        .collect()
}

/// The providers that a campaign uses.
fn providers_of<'a>(
    snapshot: &'a Snapshot,
    campaign: &CampaignSummary,
    default_provider: Option<&'a str>,
) -> BTreeSet<&'a str> {
    let settings = snapshot.settings_of(&campaign.campaign);
    let own = settings.and_then(|settings| settings.provider.as_deref().or(default_provider));
    let id = settings.map(|settings| settings.id);
    snapshot
        .last_hour
        .iter()
        .filter(|row| Some(row.campaign_id) == id)
        .map(|row| row.provider.as_str())
        .chain(own)
        .collect()
}

/// Senders of the provider that wait.
fn waiting_senders<'a>(snapshot: &'a Snapshot, provider: &'a str) -> impl Iterator<Item = Alert> {
    let own = snapshot.pauses.iter().filter(move |pause| pause.account.name() == provider);
    own.filter_map(move |pause| {
        let sender = pause.sender.as_ref()?;
        let until = LocalTime::system().short(pause.until);
        let reason = reason_text(Some(&pause.reason));
        Some(Alert {
            text: format!("Sender `{sender}` of `{provider}` waits until {until}{reason}"),
            since: None,
        })
    })
}

/// Providers that are unavailable or asked to wait, and senders that wait. `used`: only these.
fn providers(snapshot: &Snapshot, used: Option<&BTreeSet<&str>>) -> Vec<Alert> {
    let is_used = |name: &str| used.is_none_or(|used| used.contains(name));
    let mut alerts = Vec::new();
    for (name, seen) in snapshot.providers() {
        if !is_used(name) {
            continue;
        }
        alerts.extend(waiting_senders(snapshot, name));
        if let Some(pause) = snapshot.pauses.iter().find(|pause| pause.is_of(name)) {
            let until = LocalTime::system().short(pause.until);
            let reason = reason_text(Some(&pause.reason));
            alerts.push(Alert {
                text: format!("Provider `{name}` asked to wait until {until}{reason}"),
                since: None,
            });
        } else if seen.iter().any(|activity| activity.breaker_open) {
            let error = seen
                .iter()
                .filter_map(|activity| activity.last_error.as_ref())
                .max_by_key(|error| error.at);
            let reason = reason_text(error.map(|error| error.reason.as_str()));
            alerts.push(Alert {
                text: format!("Provider `{name}` is unavailable{reason}"),
                since: seen.iter().filter_map(|activity| activity.unavailable_since).min(),
            });
        }
    }
    alerts
}

/// Messages are tried, and none is accepted.
fn nothing_accepted(snapshot: &Snapshot, campaign: Option<i64>) -> Option<Alert> {
    let rows =
        snapshot.last_hour.iter().filter(|row| campaign.is_none_or(|id| id == row.campaign_id));
    let accepted_at = rows.clone().filter(|row| row.counts.sent > 0).map(|row| row.at).max();
    let tried = rows.filter(|row| {
        let counts = &row.counts;
        let tried = counts.failed + counts.unknown + counts.throttled + counts.unavailable;
        tried > 0 && accepted_at.is_none_or(|at| row.at > at)
    });
    let (mut failed, mut unknown, mut others, mut first) = (0, 0, 0, None);
    for row in tried {
        failed += row.counts.failed;
        unknown += row.counts.unknown;
        others += row.counts.throttled + row.counts.unavailable;
        first = first.min(Some(row.at)).or(Some(row.at));
    }
    let since = accepted_at.or(first)?;
    if first.is_none() || snapshot.counted_at.since(since) < NOTHING_ACCEPTED {
        return None;
    }
    let parts = [(failed, "failed"), (unknown, "unknown"), (others, "to be tried again")];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    Some(Alert {
        text: format!("No message was accepted: {}", parts.join(", ")),
        since: Some(since),
    })
}

#[cfg(test)]
mod tests {
    use smsq_limit::Account;
    use smsq_message::activity::{ActivityCounts, ActivityRow};
    use smsq_store::ProviderPause;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_763_715_600_000);

    fn before(seconds: u64) -> Timestamp {
        NOW.minus(Duration::from_secs(seconds))
    }

    fn row(seconds: u64, sent: u64, unknown: u64) -> ActivityRow {
        ActivityRow {
            at: before(seconds),
            campaign_id: 1,
            provider: "cellar".to_owned(),
            counts: ActivityCounts { sent, unknown, ..ActivityCounts::default() },
        }
    }

    fn entry(seconds: u64, who: &str, what: &str) -> AuditEntry {
        AuditEntry {
            at: before(seconds),
            who: who.to_owned(),
            what: what.to_owned(),
            campaign: Some("c".to_owned()),
            detail: String::new(),
        }
    }

    fn summary(state: &'static str) -> CampaignSummary {
        CampaignSummary {
            mode: smsq_store::Mode::Real,
            campaign: "c".to_owned(),
            state,
            state_reason: Some("most messages were rejected".to_owned()),
            window: None,
            budget: None,
            next: smsq_report::NextDue::default(),
            totals: smsq_store::report::Totals::default(),
        }
    }

    #[test]
    fn sender_that_waits_is_shown_and_its_provider_is_not() {
        let mut snapshot = Snapshot::empty();
        snapshot.counted_at = NOW;
        snapshot.pauses = vec![ProviderPause {
            account: Account::new("cellar"),
            sender: Some("SHOP".to_owned()),
            until: before(0),
            reason: "its queue is full".to_owned(),
        }];
        let texts: Vec<String> =
            providers(&snapshot, None).into_iter().map(|alert| alert.text).collect();
        let [text] = &texts[..] else {
            panic!("{texts:?}");
        };
        assert!(text.starts_with("Sender `SHOP` of `cellar` waits until "), "{text}");
        assert!(text.contains("its queue is full"), "{text}");
    }

    #[test]
    fn tries_without_acceptance_are_shown_since_the_last_one() {
        let mut snapshot = Snapshot::empty();
        snapshot.counted_at = NOW;
        snapshot.last_hour = vec![row(600, 5, 1), row(300, 7, 0), row(200, 0, 3), row(30, 0, 1)];
        let alert = nothing_accepted(&snapshot, Some(1)).expect("an alert");
        assert_eq!(alert.text, "No message was accepted: 4 unknown");
        assert_eq!(alert.since, Some(before(300)));
        assert_eq!(nothing_accepted(&snapshot, Some(2)), None);
        snapshot.last_hour.push(row(10, 1, 0));
        assert_eq!(nothing_accepted(&snapshot, None), None);
        snapshot.last_hour = vec![row(60, 0, 3)];
        assert_eq!(nothing_accepted(&snapshot, None), None, "too short");
    }

    #[test]
    fn pause_is_a_problem_only_if_a_worker_made_it() {
        let mut snapshot = Snapshot::empty();
        snapshot.counted_at = NOW;
        snapshot.campaigns = vec![summary("paused")];
        snapshot.changes = vec![entry(50, "worker", "paused")];
        let found = alerts(&snapshot, None, None);
        assert_eq!(
            found,
            [Alert {
                text: "Campaign `c` is paused: most messages were rejected".to_owned(),
                since: Some(before(50)),
            }]
        );
        // A person resumed it, and paused it later.
        snapshot.changes.insert(0, entry(20, "ann", "resume"));
        snapshot.changes.insert(0, entry(10, "ann", "pause"));
        assert_eq!(alerts(&snapshot, None, None), []);
        snapshot.campaigns = vec![summary("done")];
        assert_eq!(alerts(&snapshot, None, None), []);
    }
}
