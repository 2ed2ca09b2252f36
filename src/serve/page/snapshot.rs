//! What the pages show: counted in the background, once for all viewers, and only while a page is open. Counting takes
//! a small part of the time, however many messages there are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::activity::{ActivityRow, ProviderActivity, SPAN, WorkerActivity, span_of};
use crate::report::{CampaignSummary, Histogram, PriceTables, Report, ReportOptions, Summaries};
use crate::serve::ServerState;
use crate::serve::intake::RejectedRows;
use crate::serve::problem::Problem;
use crate::sms::Timestamp;
use crate::store::report::{FailureRecord, Outcomes, Totals};
use crate::store::{AuditEntry, Campaign, FoundSms, ProviderPause, SmsFilter, Store, Worker};

/// The least time between two counts.
const EVERY: Duration = Duration::from_secs(1);
/// Counting takes at most one part in this many of the time.
const SHARE: u32 = 20;
/// Nothing is counted if no page was requested for this long.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// How long a page waits for a first or newer count, so that its first byte comes soon.
const PAGE_WAIT: Duration = Duration::from_millis(120);
/// How long a program waits for the first count.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The columns of the timeline, and the time of each.
const COLUMNS: u32 = 60;
const COLUMN: Duration = Duration::from_secs(60);
/// The last changes that the timeline can mark.
const CHANGES: i64 = 100;
/// Files that are written to clients at once.
const MAX_DOWNLOADS: usize = 8;
/// The failed messages on the page of a campaign.
const FAILURES: usize = 20;
/// How often a count is repeated at once because a campaign was changed meanwhile.
const COUNT_TRIES: u32 = 3;

/// All campaigns at one instant.
#[derive(Clone)]
pub(in crate::serve) struct Snapshot {
    /// Grows with every count; 0: nothing was counted yet.
    pub(in crate::serve) revision: u64,
    pub(in crate::serve) counted_at: Timestamp,
    /// Since when the database cannot be read.
    pub(super) unreadable_since: Option<Timestamp>,
    made: Instant,
    pub(in crate::serve) campaigns: Vec<CampaignSummary>,
    /// The settings of all campaigns.
    pub(super) settings: Vec<Campaign>,
    pub(super) totals: Totals,
    /// Each with the number of messages that it is sending.
    pub(in crate::serve) workers: Vec<(Worker, u64)>,
    pub(super) pauses: Vec<ProviderPause>,
    /// What the workers have published.
    pub(super) activities: BTreeMap<i64, WorkerActivity>,
    /// What happened in the last hour.
    pub(super) last_hour: Vec<ActivityRow>,
    /// The last changes.
    pub(super) changes: Vec<AuditEntry>,
}

impl Snapshot {
    pub(super) fn empty() -> Self {
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

    /// The settings of a campaign.
    pub(super) fn settings_of(&self, name: &str) -> Option<&Campaign> {
        self.settings.iter().find(|one| one.name == name)
    }

    /// The state and the counts of a campaign.
    pub(super) fn summary_of(&self, name: &str) -> Option<&CampaignSummary> {
        self.campaigns.iter().find(|one| one.campaign == name)
    }

    /// Whether the heartbeat of a worker is older than its lease, so that it counts as dead.
    pub(super) fn is_silent(&self, worker: &Worker) -> bool {
        let lease = u64::try_from(worker.lease_ms).unwrap_or(0);
        self.counted_at.since(worker.heartbeat_at) > Duration::from_millis(lease)
    }

    pub(super) fn alive_workers(&self) -> impl Iterator<Item = &Worker> {
        let workers = self.workers.iter().map(|(worker, _)| worker);
        workers.filter(|worker| !self.is_silent(worker))
    }

    /// The providers by name, as the workers see them that are alive.
    pub(super) fn providers(&self) -> BTreeMap<&str, Vec<&ProviderActivity>> {
        let mut providers: BTreeMap<&str, Vec<&ProviderActivity>> = BTreeMap::new();
        let activities = self.alive_workers();
        let activities = activities.filter_map(|worker| self.activities.get(&worker.id));
        for provider in activities.flat_map(|activity| &activity.providers) {
            providers.entry(&provider.name).or_default().push(provider);
        }
        for pause in &self.pauses {
            providers.entry(&pause.provider).or_default();
        }
        providers
    }

    /// The time now by the database's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.counted_at.plus(self.age())
    }

    /// Messages per second of one campaign, or of all, over the last ten to twenty seconds; `None`: nothing was sent.
    pub(super) fn rate(&self, campaign: Option<i64>) -> Option<f64> {
        rate(&self.last_hour, campaign, self.counted_at)
    }

    /// What happened in the last hour, minute by minute; `None`: nothing.
    pub(super) fn timeline(&self, campaign: Option<i64>) -> Option<Histogram> {
        timeline(&self.last_hour, campaign, self.counted_at)
    }

    pub(in crate::serve) fn age(&self) -> Duration {
        self.made.elapsed()
    }
}

/// The report of one campaign.
pub(super) struct Details {
    pub(super) report: Report,
    pub(super) failures: Vec<FailureRecord>,
    /// With phones and texts hidden.
    pub(super) masked: Report,
    /// Of uploaded lists.
    pub(super) rejected: Vec<RejectedRows>,
}

/// The report of a campaign that somebody looks at.
struct Watched {
    wanted: Instant,
    made: Option<(Instant, Duration)>,
    details: Option<Arc<Details>>,
}

/// The counts that all viewers share.
pub(in crate::serve) struct Page {
    prices: PriceTables,
    current: watch::Sender<Arc<Snapshot>>,
    wanted: Mutex<Instant>,
    /// Wakes the counting.
    wake: Notify,
    watched: Mutex<BTreeMap<String, Watched>>,
    /// The number of reports made.
    reports: watch::Sender<u64>,
    /// The number of changes that were shown at once.
    changes: AtomicU64,
    searching: Semaphore,
    downloads: Arc<Semaphore>,
}

impl Page {
    pub(in crate::serve) fn new(prices: PriceTables) -> Self {
        Self {
            prices,
            current: watch::Sender::new(Arc::new(Snapshot::empty())),
            wanted: Mutex::new(Instant::now()),
            wake: Notify::new(),
            watched: Mutex::default(),
            reports: watch::Sender::new(0),
            changes: AtomicU64::new(0),
            searching: Semaphore::new(1),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
        }
    }

    /// The last counts. Somebody looks: they are counted again soon.
    fn snapshot(&self) -> Arc<Snapshot> {
        self.want();
        Arc::clone(&self.current.borrow())
    }

    pub(in crate::serve) fn prices(&self) -> &PriceTables {
        &self.prices
    }

    fn want(&self) {
        if let Ok(mut wanted) = self.wanted.lock() {
            *wanted = Instant::now();
        }
        self.wake.notify_one();
    }

    fn is_wanted(&self) -> bool {
        let wanted = self.wanted.lock();
        wanted.is_ok_and(|wanted| wanted.elapsed() < IDLE_AFTER)
    }

    /// The last counts; if they are old, waits a moment for newer ones.
    pub(in crate::serve) async fn recent(&self) -> Arc<Snapshot> {
        let snapshot = self.snapshot();
        if snapshot.revision > 0 && snapshot.age() < IDLE_AFTER {
            return snapshot;
        }
        let mut changes = self.current.subscribe();
        let newer = changes.wait_for(|one| one.revision > snapshot.revision);
        match tokio::time::timeout(PAGE_WAIT, newer).await {
            Ok(Ok(newer)) => Arc::clone(&newer),
            _ => snapshot,
        }
    }

    /// The last counts, as [`recent`](Self::recent); waits longer for the first ones, and fails without any.
    pub(in crate::serve) async fn counted(&self) -> Result<Arc<Snapshot>, Problem> {
        let snapshot = self.recent().await;
        if snapshot.revision > 0 {
            return Ok(snapshot);
        }
        let mut changes = self.current.subscribe();
        let first = changes.wait_for(|one| one.revision > 0);
        if let Ok(Ok(first)) = tokio::time::timeout(FIRST_WAIT, first).await {
            return Ok(Arc::clone(&first));
        }
        let detail = "the messages have not been counted yet: try again in a moment";
        let status = http::StatusCode::SERVICE_UNAVAILABLE;
        Err(Problem::new(status, detail).after(2))
    }

    /// The report of a campaign, if it was made already.
    pub(super) async fn details(&self, name: &str) -> Option<Arc<Details>> {
        let find = || {
            let mut watched = self.watched.lock().ok()?;
            let one = watched.entry(name.to_owned()).or_insert_with(|| Watched {
                wanted: Instant::now(),
                made: None,
                details: None,
            });
            one.wanted = Instant::now();
            one.details.clone()
        };
        let mut reports = self.reports.subscribe();
        if let Some(details) = find() {
            return Some(details);
        }
        self.want();
        let made = async {
            loop {
                reports.changed().await.ok()?;
                if let Some(details) = find() {
                    return Some(details);
                }
            }
        };
        let made = tokio::time::timeout(PAGE_WAIT, made).await;
        made.ok().flatten()
    }

    /// Shows a change of a campaign without waiting for the next count.
    pub(super) async fn show_change(&self, store: &Store, name: &str) {
        // A count that runs now may have read the campaign before.
        self.changes.fetch_add(1, Ordering::SeqCst);
        let read = async {
            let Some(campaign) = store.campaign(name).await? else {
                return Ok(None);
            };
            let summary = CampaignSummary::of(store, &campaign).await?;
            Ok::<_, crate::store::StoreError>(Some((campaign, summary)))
        };
        if let Ok(Some((campaign, summary))) = read.await {
            self.current.send_modify(|current| {
                let mut changed = Snapshot::clone(current);
                let settings = changed.settings.iter_mut();
                settings
                    .filter(|one| one.id == campaign.id)
                    .for_each(|one| one.clone_from(&campaign));
                let summaries = changed.campaigns.iter_mut();
                summaries
                    .filter(|one| one.campaign == name)
                    .for_each(|one| one.clone_from(&summary));
                changed.totals = changed.campaigns.iter().map(|one| one.totals).sum();
                changed.revision += u64::from(changed.revision > 0);
                *current = Arc::new(changed);
            });
        }
        if let Ok(mut watched) = self.watched.lock()
            && let Some(one) = watched.get_mut(name)
        {
            one.made = None;
        }
        self.want();
    }

    /// Looks for messages. One search runs at a time, because it may read whole tables.
    pub(in crate::serve) async fn search(
        &self,
        store: &Store,
        filter: SmsFilter<'_>,
        posted_by: Option<&str>,
        most: i64,
    ) -> Result<Vec<FoundSms>, Problem> {
        let Ok(_turn) = self.searching.try_acquire() else {
            return Err(busy("another search is running: try again in a moment"));
        };
        Ok(store.find_sms(filter, posted_by, most).await?)
    }

    /// Held while a file is written to a client.
    pub(in crate::serve) fn download_turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let turn = Arc::clone(&self.downloads).try_acquire_owned();
        turn.map_err(|_| busy("other files are being downloaded: try again in a moment"))
    }

    /// The next campaign whose report is wanted and old.
    fn next_watched(&self) -> Option<String> {
        let mut watched = self.watched.lock().ok()?;
        watched.retain(|_, one| one.wanted.elapsed() < IDLE_AFTER);
        let is_due = |one: &Watched| {
            one.made
                .is_none_or(|(made, took)| made.elapsed() >= (took * SHARE).max(EVERY))
        };
        let due = watched.iter().find(|(_, one)| is_due(one));
        due.map(|(name, _)| name.clone())
    }
}

fn busy(detail: &str) -> Problem {
    Problem::new(http::StatusCode::TOO_MANY_REQUESTS, detail).after(2)
}

fn is_of(row: &ActivityRow, campaign: Option<i64>) -> bool {
    campaign.is_none_or(|id| id == row.campaign_id)
}

fn rate(rows: &[ActivityRow], campaign: Option<i64>, now: Timestamp) -> Option<f64> {
    let from = span_of(now).minus(SPAN);
    let recent = rows
        .iter()
        .filter(|row| row.at >= from && is_of(row, campaign));
    let count: u64 = recent
        .map(|row| row.counts.sent + row.counts.failed + row.counts.unknown)
        .sum();
    let count = u32::try_from(count).map_or(f64::MAX, f64::from);
    (count > 0.0).then(|| count / now.since(from).as_secs_f64().max(1.0))
}

fn timeline(rows: &[ActivityRow], campaign: Option<i64>, now: Timestamp) -> Option<Histogram> {
    let width = crate::sms::millis(COLUMN);
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
    (!is_empty).then_some(Histogram {
        from,
        width: COLUMN,
        first_at: from,
        last_at: now,
        spans,
    })
}

/// Counts while somebody looks, without end.
pub(in crate::serve) async fn refresh(shared: Arc<ServerState>) {
    let page = &shared.page;
    loop {
        let began = Instant::now();
        if let Err(error) = count(&shared).await {
            tracing::warn!(%error, "the messages could not be counted");
            page.current.send_modify(|current| {
                let mut unreadable = Snapshot::clone(current);
                let now = Some(unreadable.now()).filter(|_| unreadable.revision > 0);
                unreadable.unreadable_since = unreadable.unreadable_since.or(now);
                // The page shows how old the counts are.
                unreadable.revision += u64::from(unreadable.revision > 0);
                *current = Arc::new(unreadable);
            });
        }
        let pause = (began.elapsed() * SHARE).max(EVERY);
        let next = Instant::now() + pause;
        // Reports of campaigns are made between two counts.
        loop {
            let watched = page.next_watched();
            let is_due = Instant::now() >= next && page.is_wanted();
            if is_due {
                break;
            }
            if let Some(name) = watched {
                report(&shared, &name).await;
                continue;
            }
            let wait = next.saturating_duration_since(Instant::now());
            let wait = wait.clamp(Duration::from_millis(10), EVERY);
            tokio::select! {
                () = page.wake.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

async fn count(shared: &ServerState) -> Result<(), crate::store::StoreError> {
    let page = &shared.page;
    for tries in 1.. {
        let changes = page.changes.load(Ordering::SeqCst);
        let snapshot = read(&shared.patient_store).await?;
        let is_current = page.changes.load(Ordering::SeqCst) == changes;
        if is_current || tries >= COUNT_TRIES {
            page.current.send_modify(|current| {
                let revision = current.revision + 1;
                *current = Arc::new(Snapshot {
                    revision,
                    ..snapshot
                });
            });
            break;
        }
    }
    Ok(())
}

/// Reads all campaigns. The revision is that of an empty page.
async fn read(store: &Store) -> Result<Snapshot, crate::store::StoreError> {
    let summaries = Summaries::all(store).await?;
    let settings = store.campaigns().await?;
    let workers = store.workers().await?;
    let now = store.now().await?;
    let pauses = store.provider_pauses(now).await?;
    let hour = store.activity(now.minus(COLUMN * (COLUMNS + 1)), now.plus(SPAN));
    Ok(Snapshot {
        revision: 0,
        counted_at: now,
        unreadable_since: None,
        made: Instant::now(),
        last_hour: hour.await?,
        changes: store.audit_entries(CHANGES).await?,
        activities: store.worker_activities().await?,
        totals: summaries.totals(),
        campaigns: summaries.campaigns,
        settings,
        workers,
        pauses,
    })
}

/// Makes the report of a campaign.
async fn report(shared: &ServerState, name: &str) {
    let began = Instant::now();
    let details = gather(shared, name).await;
    let details = details.inspect_err(|error| {
        tracing::warn!(%error, campaign = name, "the report could not be made");
    });
    if let Ok(mut watched) = shared.page.watched.lock()
        && let Some(one) = watched.get_mut(name)
    {
        one.made = Some((Instant::now(), began.elapsed()));
        if let Ok(Some(details)) = details {
            one.details = Some(Arc::new(details));
        }
    }
    shared.page.reports.send_modify(|reports| *reports += 1);
}

async fn gather(
    shared: &ServerState,
    name: &str,
) -> Result<Option<Details>, crate::report::ReportError> {
    let store = &shared.patient_store;
    let Some(campaign) = store.campaign(name).await? else {
        return Ok(None);
    };
    let options = ReportOptions {
        prices: shared.page.prices.clone(),
        ..ReportOptions::default()
    };
    let report = Report::gather(store, Some(&campaign), &options).await?;
    Ok(Some(Details {
        failures: report.failures(store, FAILURES).await?,
        masked: report.masked(),
        rejected: shared.intake.uploads.rejected_of(name),
        report,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::ActivityCounts;

    const NOW: Timestamp = Timestamp::from_millis(1_763_715_605_000);

    fn row(before: u64, campaign_id: i64, sent: u64) -> ActivityRow {
        ActivityRow {
            at: span_of(NOW.minus(Duration::from_secs(before))),
            campaign_id,
            provider: "cellar".to_owned(),
            counts: ActivityCounts {
                sent,
                ..ActivityCounts::default()
            },
        }
    }

    #[test]
    fn rate_is_that_of_the_last_seconds() {
        // The span of now began 5 s ago, the one before 15 s ago.
        let rows = [
            row(0, 1, 50),
            row(10, 1, 100),
            row(10, 2, 15),
            row(30, 1, 9_999),
        ];
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
