//! What the pages and the API show: counted in the background, once for all clients, and only while a page is open.
//! Counting takes a small part of the time, however many messages there are.

mod snapshot;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use smsq_report::{CampaignSummary, PriceTables, Report, ReportError, ReportOptions};
use smsq_store::report::{FailureRecord, Totals};
use smsq_store::{Store, StoreError};
use tokio::sync::{Notify, watch};

use super::intake::{RejectedRows, Uploads};
use super::problem::Problem;

pub(super) use snapshot::Snapshot;

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
/// The failed messages on the page of a campaign.
const FAILURES: usize = 20;
/// How often a count is repeated at once because a campaign was changed meanwhile.
const COUNT_TRIES: u32 = 3;

/// The report of one campaign.
pub(super) struct Details {
    pub(super) report: Report,
    pub(super) failures: Vec<FailureRecord>,
    /// With phones and texts hidden.
    pub(super) masked: Report,
    /// Of uploaded lists.
    pub(super) rejected: Vec<RejectedRows>,
}

/// The report of a campaign whose page is open.
struct Watched {
    wanted: Instant,
    made: Option<(Instant, Duration)>,
    details: Option<Arc<Details>>,
}

/// The counts that all clients share. One task counts, and makes the reports of the campaigns whose pages are open;
/// requests only read what it made last, so that many viewers cost no more than one.
pub(super) struct Counts {
    store: Store,
    prices: PriceTables,
    uploads: Arc<Uploads>,
    current: watch::Sender<Arc<Snapshot>>,
    wanted: Mutex<Instant>,
    /// Wakes the counting.
    wake: Notify,
    watched: Mutex<BTreeMap<String, Watched>>,
    /// The number of reports made.
    reports: watch::Sender<u64>,
    /// The number of changes that were shown at once.
    changes: AtomicU64,
}

impl Counts {
    /// `store` may take as long as a report does.
    pub(super) fn new(store: Store, prices: PriceTables, uploads: Arc<Uploads>) -> Self {
        Self {
            store,
            prices,
            uploads,
            current: watch::Sender::new(Arc::new(Snapshot::empty())),
            wanted: Mutex::new(Instant::now()),
            wake: Notify::new(),
            watched: Mutex::default(),
            reports: watch::Sender::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// The last counts. A page is open: they are counted again soon.
    fn snapshot(&self) -> Arc<Snapshot> {
        self.want();
        Arc::clone(&self.current.borrow())
    }

    /// The counts of a campaign, as far as they were made.
    pub(super) fn known(&self, name: &str) -> Option<Totals> {
        self.snapshot().totals_of(name)
    }

    fn want(&self) {
        if let Ok(mut wanted) = self.wanted.lock() {
            *wanted = Instant::now();
        }
        self.wake.notify_one();
    }

    fn is_wanted(&self) -> bool {
        self.wanted.lock().is_ok_and(|wanted| wanted.elapsed() < IDLE_AFTER)
    }

    /// The last counts; if they are old, waits a moment for newer ones.
    pub(super) async fn recent(&self) -> Arc<Snapshot> {
        let snapshot = self.snapshot();
        if snapshot.revision > 0 && snapshot.age() < IDLE_AFTER {
            return snapshot;
        }
        let mut changes = self.current.subscribe();
        let newer = changes.wait_for(|newer| newer.revision > snapshot.revision);
        match tokio::time::timeout(PAGE_WAIT, newer).await {
            Ok(Ok(newer)) => Arc::clone(&newer),
            _ => snapshot,
        }
    }

    /// The last counts, as [`recent`](Self::recent); waits longer for the first ones, and fails without any.
    pub(super) async fn counted(&self) -> Result<Arc<Snapshot>, Problem> {
        let snapshot = self.recent().await;
        if snapshot.revision > 0 {
            return Ok(snapshot);
        }
        let mut changes = self.current.subscribe();
        let first = changes.wait_for(|first| first.revision > 0);
        if let Ok(Ok(first)) = tokio::time::timeout(FIRST_WAIT, first).await {
            return Ok(Arc::clone(&first));
        }
        let detail = "the messages have not been counted yet: try again in a moment";
        Err(Problem::unavailable(detail).after(2))
    }

    /// The report of a campaign, if it was made already.
    pub(super) async fn details(&self, name: &str) -> Option<Arc<Details>> {
        let find = || {
            let mut watched = self.watched.lock().ok()?;
            let campaign = watched.entry(name.to_owned()).or_insert_with(|| Watched {
                wanted: Instant::now(),
                made: None,
                details: None,
            });
            campaign.wanted = Instant::now();
            campaign.details.clone()
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
        tokio::time::timeout(PAGE_WAIT, made).await.ok().flatten()
    }

    /// Shows a change of a campaign without waiting for the next count.
    pub(super) async fn show_change(&self, store: &Store, name: &str) {
        // A count that runs now may have read the campaign before.
        self.changes.fetch_add(1, Ordering::SeqCst);
        let read = async {
            let Some(campaign) = store.campaign(name).await? else {
                return Ok(None);
            };
            let known = self.current.borrow().totals_of(name);
            let summary = CampaignSummary::quick(store, &campaign, known).await?;
            Ok::<_, StoreError>(Some((campaign, summary)))
        };
        if let Ok(Some((campaign, summary))) = read.await {
            self.current.send_modify(|current| {
                let mut changed = Snapshot::clone(current);
                for known in &mut changed.settings {
                    if known.id == campaign.id {
                        known.clone_from(&campaign);
                    }
                }
                for known in &mut changed.campaigns {
                    if known.campaign == name {
                        known.clone_from(&summary);
                    }
                }
                changed.totals = changed.campaigns.iter().map(|known| known.totals).sum();
                changed.revision += u64::from(changed.revision > 0);
                *current = Arc::new(changed);
            });
        }
        if let Ok(mut watched) = self.watched.lock()
            && let Some(campaign) = watched.get_mut(name)
        {
            campaign.made = None;
        }
        self.want();
    }

    /// The next campaign whose report is wanted and old.
    fn next_watched(&self) -> Option<String> {
        let mut watched = self.watched.lock().ok()?;
        watched.retain(|_, campaign| campaign.wanted.elapsed() < IDLE_AFTER);
        let is_due = |campaign: &Watched| {
            campaign.made.is_none_or(|(made, took)| made.elapsed() >= (took * SHARE).max(EVERY))
        };
        watched.iter().find(|(_, campaign)| is_due(campaign)).map(|(name, _)| name.clone())
    }

    /// Counts while a page is open, without end.
    pub(super) async fn refresh(self: Arc<Self>) {
        loop {
            let began = Instant::now();
            if let Err(error) = self.count().await {
                tracing::warn!(%error, "the messages could not be counted");
                self.current.send_modify(|current| {
                    let mut unreadable = Snapshot::clone(current);
                    let now = Some(unreadable.now()).filter(|_| unreadable.revision > 0);
                    unreadable.unreadable_since = unreadable.unreadable_since.or(now);
                    // The page shows how old the counts are.
                    unreadable.revision += u64::from(unreadable.revision > 0);
                    *current = Arc::new(unreadable);
                });
            }
            let next = Instant::now() + (began.elapsed() * SHARE).max(EVERY);
            // Reports of campaigns are made between two counts.
            loop {
                let watched = self.next_watched();
                if Instant::now() >= next && self.is_wanted() {
                    break;
                }
                if let Some(name) = watched {
                    self.report(&name).await;
                    continue;
                }
                let wait = next.saturating_duration_since(Instant::now());
                tokio::select! {
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep(wait.clamp(Duration::from_millis(10), EVERY)) => {}
                }
            }
        }
    }

    async fn count(&self) -> Result<(), StoreError> {
        for tries in 1.. {
            let changes = self.changes.load(Ordering::SeqCst);
            let mut snapshot = Snapshot::read(&self.store).await?;
            if self.changes.load(Ordering::SeqCst) == changes || tries >= COUNT_TRIES {
                self.current.send_modify(|current| {
                    snapshot.revision = current.revision + 1;
                    *current = Arc::new(snapshot);
                });
                break;
            }
        }
        Ok(())
    }

    /// Makes the report of a campaign.
    async fn report(&self, name: &str) {
        let began = Instant::now();
        let details = self.gather(name).await.inspect_err(|error| {
            tracing::warn!(%error, campaign = name, "the report could not be made");
        });
        if let Ok(mut watched) = self.watched.lock()
            && let Some(campaign) = watched.get_mut(name)
        {
            campaign.made = Some((Instant::now(), began.elapsed()));
            if let Ok(Some(details)) = details {
                campaign.details = Some(Arc::new(details));
            }
        }
        self.reports.send_modify(|reports| *reports += 1);
    }

    async fn gather(&self, name: &str) -> Result<Option<Details>, ReportError> {
        let store = &self.store;
        let Some(campaign) = store.campaign(name).await? else {
            return Ok(None);
        };
        let options = ReportOptions { prices: self.prices.clone(), ..ReportOptions::default() };
        let report = Report::gather(store, Some(&campaign), &options).await?;
        Ok(Some(Details {
            failures: report.failures(store, FAILURES).await?,
            masked: report.masked(),
            rejected: self.uploads.rejected_of(name),
            report,
        }))
    }
}
