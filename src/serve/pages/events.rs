//! What the timeline marks: what people and workers changed, and when a provider could not take messages.

use std::collections::BTreeSet;
use std::time::Duration;

use smsq_message::activity::{ActivityCounts, ActivityRow};
use smsq_message::sms::{Timestamp, millis};
use smsq_store::AuditEntry;

/// Earlier ones are not marked, so that the marks do not overlap.
const MAX_EVENTS: usize = 12;

/// Something that happened at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimelineEvent {
    pub(super) at: Timestamp,
    /// The name of a token, `worker`, or a provider.
    pub(super) who: String,
    pub(super) what: String,
}

/// The last events since `from`, the oldest first. `campaign`: only what concerns this one, given by id and name.
/// `width`: troubles of a provider that are closer than this are one event.
pub(super) fn events(
    audit: &[AuditEntry],
    activity: &[ActivityRow],
    campaign: Option<(i64, &str)>,
    from: Timestamp,
    width: Duration,
) -> Vec<TimelineEvent> {
    let concerns = |entry: &&AuditEntry| {
        let name = campaign.map(|(_, name)| name);
        name.is_none_or(|name| entry.campaign.as_deref() == Some(name))
    };
    let changes = audit.iter().filter(concerns).map(|entry| TimelineEvent {
        at: entry.at,
        who: entry.who.clone(),
        what: entry.detail.clone(),
    });
    let of_campaign = |row: &&ActivityRow| campaign.is_none_or(|(id, _)| row.campaign_id == id);
    let rows: Vec<&ActivityRow> = activity.iter().filter(of_campaign).collect();
    let throttled = troubles(&rows, width, "throttles requests", |counts| counts.throttled > 0);
    // A few attempts that fail are not an outage: they are repeated.
    let unavailable =
        troubles(&rows, width, "is unavailable", |counts| counts.unavailable > counts.sent);
    let mut events: Vec<TimelineEvent> = changes.chain(throttled).chain(unavailable).collect();
    events.retain(|event| event.at >= from);
    events.sort_by_key(|event| event.at);
    let surplus = events.len().saturating_sub(MAX_EVENTS);
    events.split_off(surplus)
}

/// When a trouble of each provider began.
fn troubles(
    rows: &[&ActivityRow],
    width: Duration,
    what: &str,
    is_troubled: impl Fn(&ActivityCounts) -> bool,
) -> Vec<TimelineEvent> {
    let troubled = rows.iter().filter(|row| is_troubled(&row.counts));
    let times: BTreeSet<(&str, i64)> =
        troubled.map(|row| (row.provider.as_str(), row.at.as_millis())).collect();
    let mut events = Vec::new();
    let mut last: Option<(&str, i64)> = None;
    for (provider, at) in times {
        let continues =
            last.is_some_and(|(known, before)| known == provider && at - before <= millis(width));
        if !continues {
            events.push(TimelineEvent {
                at: Timestamp::from_millis(at),
                who: provider.to_owned(),
                what: what.to_owned(),
            });
        }
        last = Some((provider, at));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Timestamp = Timestamp::from_millis(1_763_715_600_000);
    const MINUTE: Duration = Duration::from_secs(60);

    fn row(seconds: u64, campaign_id: i64, throttled: u64, unavailable: u64) -> ActivityRow {
        ActivityRow {
            at: FROM.plus(Duration::from_secs(seconds)),
            campaign_id,
            provider: "cellar".to_owned(),
            counts: ActivityCounts { throttled, unavailable, ..ActivityCounts::default() },
        }
    }

    fn paused(seconds: u64, campaign: &str) -> AuditEntry {
        AuditEntry {
            at: FROM.plus(Duration::from_secs(seconds)),
            who: "ann".to_owned(),
            what: "pause".to_owned(),
            campaign: Some(campaign.to_owned()),
            detail: format!("Paused `{campaign}`."),
        }
    }

    fn shown(events: &[TimelineEvent]) -> Vec<String> {
        let seconds = |event: &TimelineEvent| event.at.since(FROM).as_secs();
        let text = |event| format!("{} {} {}", seconds(event), event.who, event.what);
        events.iter().map(text).collect()
    }

    #[test]
    fn trouble_of_a_provider_is_one_event_until_it_ends() {
        let rows = [
            row(10, 1, 1, 0),
            row(20, 1, 5, 0),
            row(70, 1, 1, 0),
            row(200, 1, 1, 0),
            row(210, 2, 0, 3),
        ];
        assert_eq!(
            shown(&events(&[], &rows, None, FROM, MINUTE)),
            [
                "10 cellar throttles requests",
                "200 cellar throttles requests",
                "210 cellar is unavailable"
            ]
        );
        let first = events(&[], &rows, Some((2, "b")), FROM, MINUTE);
        assert_eq!(shown(&first), ["210 cellar is unavailable"]);
    }

    #[test]
    fn few_failed_attempts_are_not_an_outage() {
        let mut some = row(10, 1, 0, 2);
        some.counts.sent = 100;
        let most = row(20, 1, 0, 2);
        let marked = events(&[], &[some, most], None, FROM, MINUTE);
        assert_eq!(shown(&marked), ["20 cellar is unavailable"]);
    }

    #[test]
    fn changes_of_the_campaign_are_events() {
        let audit = [paused(30, "b"), paused(20, "a")];
        let all = events(&audit, &[row(25, 1, 1, 0)], None, FROM, MINUTE);
        assert_eq!(
            shown(&all),
            ["20 ann Paused `a`.", "25 cellar throttles requests", "30 ann Paused `b`."]
        );
        let one = events(&audit, &[], Some((1, "a")), FROM, MINUTE);
        assert_eq!(shown(&one), ["20 ann Paused `a`."]);
        let later = FROM.plus(Duration::from_secs(25));
        let recent = events(&audit, &[], None, later, MINUTE);
        assert_eq!(shown(&recent), ["30 ann Paused `b`."]);
    }

    #[test]
    fn only_the_last_events_are_marked() {
        let audit: Vec<AuditEntry> = (0..50).map(|second| paused(second, "a")).collect();
        let marked = events(&audit, &[], None, FROM, MINUTE);
        assert_eq!(marked.len(), MAX_EVENTS);
        assert_eq!(marked.last().map(|event| event.at.since(FROM).as_secs()), Some(49));
    }
}
