//! All campaigns at one instant, with what happened in the last hour.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use smsq_message::activity::{ActivityRow, ProviderActivity, SPAN, WorkerActivity, span_of};
use smsq_message::sms::{Timestamp, millis};
use smsq_report::{CampaignSummary, Histogram, Summaries};
use smsq_store::report::{Outcomes, Totals};
use smsq_store::{AuditEntry, Campaign, ProviderPause, Store, StoreError, Worker};

/// The columns of the timeline, and the time of each.
const COLUMNS: u32 = 60;
const COLUMN: Duration = Duration::from_secs(60);
/// The last changes that the timeline can mark.
const CHANGES: i64 = 100;

/// All campaigns at one instant.
#[derive(Clone)]
pub(crate) struct Snapshot {
    /// Grows with every count; 0: nothing was counted yet.
    pub(crate) revision: u64,
    pub(crate) counted_at: Timestamp,
    /// Since when the database cannot be read.
    pub(crate) unreadable_since: Option<Timestamp>,
    made: Instant,
    pub(crate) campaigns: Vec<CampaignSummary>,
    /// The settings of all campaigns.
    pub(crate) settings: Vec<Campaign>,
    pub(crate) totals: Totals,
    /// Each with the number of messages that it is sending.
    pub(crate) workers: Vec<(Worker, u64)>,
    pub(crate) pauses: Vec<ProviderPause>,
    /// What the workers have published.
    pub(crate) activities: BTreeMap<i64, WorkerActivity>,
    /// What happened in the last hour.
    pub(crate) last_hour: Vec<ActivityRow>,
    /// The last changes.
    pub(crate) changes: Vec<AuditEntry>,
}

impl Snapshot {
    pub(crate) fn empty() -> Self {
        Self {
            revision: 0,
            counted_at: Timestamp::default(),
            unreadable_since: None,
            made: Instant::now(),
            campaigns: Vec::new(),
            settings: Vec::new(),
            totals: Totals::default(),
            workers: Vec::new(),
            pauses: Vec::new(),
            activities: BTreeMap::new(),
            last_hour: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Reads all campaigns. The revision is that of an empty page.
    pub(super) async fn read(store: &Store) -> Result<Self, StoreError> {
        let summaries = Summaries::all(store).await?;
        let settings = store.campaigns().await?;
        let workers = store.report().worker_loads().await?;
        let now = store.now().await?;
        let pauses = store.provider_pauses(now).await?;
        let from = now.minus(COLUMN * (COLUMNS + 1));
        Ok(Self {
            revision: 0,
            counted_at: now,
            unreadable_since: None,
            made: Instant::now(),
            last_hour: store.activity(from, now.plus(SPAN)).await?,
            changes: store.audit_entries(CHANGES).await?,
            activities: store.worker_activities().await?,
            totals: summaries.totals(),
            campaigns: summaries.campaigns,
            settings,
            workers,
            pauses,
        })
    }

    /// The settings of a campaign.
    pub(crate) fn settings_of(&self, name: &str) -> Option<&Campaign> {
        self.settings.iter().find(|campaign| campaign.name == name)
    }

    /// The counts of a campaign, if it was counted.
    pub(super) fn totals_of(&self, name: &str) -> Option<Totals> {
        self.summary_of(name).map(|summary| summary.totals)
    }

    /// The state and the counts of a campaign.
    pub(crate) fn summary_of(&self, name: &str) -> Option<&CampaignSummary> {
        self.campaigns.iter().find(|summary| summary.campaign == name)
    }

    /// Whether the heartbeat of a worker is older than its lease, so that it counts as dead.
    pub(crate) fn is_silent(&self, worker: &Worker) -> bool {
        let lease = u64::try_from(worker.lease_ms).unwrap_or(0);
        self.counted_at.since(worker.heartbeat_at) > Duration::from_millis(lease)
    }

    pub(crate) fn alive_workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().map(|(worker, _)| worker).filter(|worker| !self.is_silent(worker))
    }

    /// The providers by name, as the workers see them that are alive.
    pub(crate) fn providers(&self) -> BTreeMap<&str, Vec<&ProviderActivity>> {
        let mut providers: BTreeMap<&str, Vec<&ProviderActivity>> = BTreeMap::new();
        for worker in self.alive_workers() {
            let activity = self.activities.get(&worker.id);
            for provider in activity.iter().flat_map(|activity| &activity.providers) {
                providers.entry(&provider.name).or_default().push(provider);
            }
        }
        for pause in &self.pauses {
            providers.entry(pause.account.name()).or_default();
        }
        providers
    }

    /// The time now by the database's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.counted_at.plus(self.age())
    }

    /// Messages per second of one campaign, or of all, over the last ten to twenty seconds; `None`: nothing was sent.
    pub(crate) fn rate(&self, campaign: Option<i64>) -> Option<f64> {
        rate(&self.last_hour, campaign, self.counted_at)
    }

    /// What happened in the last hour, minute by minute; `None`: nothing.
    pub(crate) fn timeline(&self, campaign: Option<i64>) -> Option<Histogram> {
        timeline(&self.last_hour, campaign, self.counted_at)
    }

    pub(crate) fn age(&self) -> Duration {
        self.made.elapsed()
    }
}

fn is_of(row: &ActivityRow, campaign: Option<i64>) -> bool {
    campaign.is_none_or(|id| id == row.campaign_id)
}

fn rate(rows: &[ActivityRow], campaign: Option<i64>, now: Timestamp) -> Option<f64> {
    let from = span_of(now).minus(SPAN);
    let count: u64 = rows
        .iter()
        .filter(|row| row.at >= from && is_of(row, campaign))
        .map(|row| row.counts.sent + row.counts.failed + row.counts.unknown)
        .sum();
    let count = u32::try_from(count).map_or(f64::MAX, f64::from);
    (count > 0.0).then(|| count / now.since(from).as_secs_f64().max(1.0))
}

fn timeline(rows: &[ActivityRow], campaign: Option<i64>, now: Timestamp) -> Option<Histogram> {
    let width = millis(COLUMN);
    let end = now.as_millis().div_euclid(width) * width + width;
    let from = Timestamp::from_millis(end).minus(COLUMN * COLUMNS);
    let mut spans = vec![Outcomes::default(); COLUMNS as usize];
    let mut is_empty = true;
    for row in rows.iter().filter(|row| is_of(row, campaign)) {
        let column = (row.at.as_millis() - from.as_millis()).div_euclid(width);
        let column = usize::try_from(column).unwrap_or(usize::MAX);
        if let Some(span) = spans.get_mut(column) {
            span.sent += row.counts.sent;
            span.failed += row.counts.failed;
            span.unknown += row.counts.unknown;
            is_empty = false;
        }
    }
    (!is_empty).then_some(Histogram { from, width: COLUMN, first_at: from, last_at: now, spans })
}

#[cfg(test)]
mod tests {
    use smsq_message::activity::ActivityCounts;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_763_715_605_000);

    fn row(before: u64, campaign_id: i64, sent: u64) -> ActivityRow {
        ActivityRow {
            at: span_of(NOW.minus(Duration::from_secs(before))),
            campaign_id,
            provider: "cellar".to_owned(),
            counts: ActivityCounts { sent, ..ActivityCounts::default() },
        }
    }

    #[test]
    fn rate_is_that_of_the_last_seconds() {
        // The span of now began 5 s ago, the one before 15 s ago.
        let rows = [row(0, 1, 50), row(10, 1, 100), row(10, 2, 15), row(30, 1, 9_999)];
        assert_eq!(rate(&rows, Some(1), NOW), Some(10.0));
        assert_eq!(rate(&rows, None, NOW), Some(11.0));
        assert_eq!(rate(&rows, Some(3), NOW), None);
    }

    #[test]
    fn timeline_has_the_minutes_of_the_last_hour() {
        let rows = [row(0, 1, 3), row(70, 1, 4), row(75, 1, 5), row(4_000, 1, 6)];
        let shown = timeline(&rows, None, NOW).expect("something was sent");
        let sent: Vec<u64> = shown.spans.iter().map(|span| span.sent).collect();
        assert_eq!(sent.len(), 60);
        assert_eq!(&sent[57..], [4 + 5, 0, 3]);
        assert_eq!(sent.iter().sum::<u64>(), 12);
        assert_eq!(timeline(&rows, Some(2), NOW), None);
    }
}
