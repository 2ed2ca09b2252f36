//! What all requests share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smsq_message::phone::Region;
use smsq_operations::{ListSettings, ScheduleReport, Scheduler, schedule_reports};
use smsq_process::jobs::Stop;
use smsq_provider::Provider;
use smsq_report::PriceTables;
use smsq_store::{Campaign, FoundSms, SmsFilter, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::AccessControl;
use super::config::Config;
use super::counts::Counts;
use super::intake::{Drafts, Intake};
use super::problem::{Problem, unknown_campaign};
use super::server_metrics::ServerMetrics;
use super::tokens::{Identity, Permission};

/// Files that are written to clients at once.
pub(super) const MAX_DOWNLOADS: usize = 8;

/// What all requests share.
pub(super) struct ServerState {
    pub(super) config: Config,
    pub(super) access: Arc<AccessControl>,
    /// For requests.
    pub(super) store: Store,
    /// For reports, and what else is not done while a client waits.
    pub(super) patient_store: Store,
    /// Begins when the server stops.
    pub(super) stop: Stop,
    pub(super) providers: BTreeMap<String, Arc<Provider>>,
    pub(super) no_report_after: Duration,
    pub(super) default_region: Option<Region>,
    pub(super) default_provider: Option<String>,
    pub(super) prices: PriceTables,
    /// What is known of providers and routes for estimates.
    pub(super) lists: ListSettings,
    /// Runs schedules, and those that are asked for on a page.
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) intake: Intake,
    pub(super) drafts: Arc<Drafts>,
    pub(super) counts: Arc<Counts>,
    pub(super) metrics: Arc<ServerMetrics>,
    pub(super) turns: Turns,
}

/// Limits what reads much at the same time.
pub(super) struct Turns {
    searches: Semaphore,
    downloads: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { searches: Semaphore::new(1), downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)) }
    }
}

impl ServerState {
    /// Runs `work` until the server stops: also while the database stands still.
    pub(super) fn until_stopped<W: Future>(
        &self,
        work: W,
    ) -> impl Future<Output = Option<W::Output>> + use<W> {
        let stop = self.stop.clone();
        async move { stop.unless_begun(work).await }
    }

    /// The campaign of that name. Fails if it is unknown.
    pub(super) async fn campaign(&self, name: &str) -> Result<Campaign, Problem> {
        let campaign = self.store.campaign(name).await?;
        campaign.ok_or_else(|| unknown_campaign(name))
    }

    /// All schedules with their last runs, as far as `who` may see them.
    pub(super) async fn schedule_reports(
        &self,
        who: &Identity,
    ) -> Result<Vec<ScheduleReport>, Problem> {
        let reports = schedule_reports(&self.store).await?;
        Ok(if who.may(Permission::Operate) {
            reports
        } else {
            let hidden = reports.into_iter().map(ScheduleReport::without_words);
            hidden.collect()
        })
    }

    /// Looks for messages. One search runs at a time, because it may read whole tables.
    pub(super) async fn search(
        &self,
        filter: SmsFilter<'_>,
        posted_by: Option<&str>,
        most: i64,
    ) -> Result<Vec<FoundSms>, Problem> {
        let Ok(_turn) = self.turns.searches.try_acquire() else {
            return Err(Problem::busy("another search is running: try again in a moment"));
        };
        Ok(self.store.report().find_sms(filter, posted_by, most).await?)
    }

    /// Held while a file is written to a client.
    pub(super) fn download_turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.turns.downloads)
            .try_acquire_owned()
            .map_err(|_| Problem::busy("other files are being downloaded: try again in a moment"))
    }
}
