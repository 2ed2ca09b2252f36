//! The state of the queue, read from the database.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use smsq_message::sms::Timestamp;
use smsq_store::report::{CampaignTotals, DeliveryCounts, ImportedRows, Totals};
use smsq_store::{Campaign, CampaignStatus, Mode, Store, StoreError};

use super::{Config, CounterFamily, GaugeFamily, Seconds};

/// The label of all campaigns that have no metrics of their own, and of their providers.
const OTHER: &str = "other";

/// Counts of messages, workers and imported rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    mode: Mode,
    campaigns: Vec<CampaignCounts>,
    /// How long the oldest message is due that may be sent now.
    oldest_due: Duration,
    alive_workers: u64,
    dead_workers: u64,
    suppressed: u64,
    unmatched_receipts: u64,
    imported: ImportedRows,
    hooks: Vec<HookCounts>,
}

/// The events of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HookCounts {
    hook: String,
    waiting: u64,
    delivered: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CampaignCounts {
    campaign: String,
    provider: String,
    totals: Totals,
}

impl QueueState {
    /// Reads it. `default_provider` sends the campaigns that name none.
    pub async fn read(
        store: &Store,
        config: Config,
        default_provider: Option<&str>,
    ) -> Result<Self, StoreError> {
        let now = store.now().await?;
        let CampaignTotals { campaigns, removed } = store.report().campaign_totals().await?;
        let mut oldest_due = Duration::ZERO;
        for (campaign, totals) in &campaigns {
            if totals.queued > 0
                && is_open(campaign, now)
                && let Some(first) = store.report().first_due(campaign.id).await?
            {
                oldest_due = oldest_due.max(now.since(first.due_at));
            }
        }
        let workers = store.workers().all().await?;
        let silent_since = |at: Timestamp| now.as_millis().saturating_sub(at.as_millis());
        let alive_workers = workers
            .iter()
            .filter(|worker| silent_since(worker.heartbeat_at) <= worker.lease_ms)
            .count() as u64;
        Ok(Self {
            mode: store.mode(),
            campaigns: limited(campaigns, removed, config.max_campaigns, default_provider),
            oldest_due,
            alive_workers,
            dead_workers: workers.len() as u64 - alive_workers,
            suppressed: store.suppression().count().await?,
            unmatched_receipts: store.receipts().count_unmatched().await?,
            imported: store.report().imported_rows().await?,
            hooks: hooks(store).await?,
        })
    }

    /// Nothing where there are no hooks.
    fn register_hooks(&self, registry: &mut Registry) {
        if self.hooks.is_empty() {
            return;
        }
        let waiting = GaugeFamily::<1>::default();
        let delivered = CounterFamily::<1>::default();
        for hook in &self.hooks {
            let labels = [("hook", hook.hook.clone())];
            waiting.get_or_create(&labels).set(signed(hook.waiting));
            let counter: Counter = delivered.get_or_create_owned(&labels);
            counter.inc_by(hook.delivered);
        }
        registry.register("hook_waiting_events", "Events that wait for a hook", waiting);
        let help = "Events that were delivered to a hook";
        registry.register("hook_delivered_events", help, delivered);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let practice = Gauge::<i64>::default();
        practice.set(self.mode.is_practice().into());
        let help = "1: this is a practice database, and no phone gets any of its messages";
        registry.register("practice", help, practice);
        let messages = GaugeFamily::<3>::default();
        let deliveries = GaugeFamily::<3>::default();
        for one in &self.campaigns {
            let labels = |state: &str| {
                [
                    ("campaign", one.campaign.clone()),
                    ("provider", one.provider.clone()),
                    ("state", state.to_owned()),
                ]
            };
            for (state, count) in by_state(&one.totals) {
                let gauge = messages.get_or_create_owned(&labels(state));
                gauge.inc_by(signed(count));
            }
            let delivery = one.totals.delivery.as_ref();
            for (state, count) in delivery.into_iter().flat_map(DeliveryCounts::by_state) {
                let gauge = deliveries.get_or_create_owned(&labels(state));
                gauge.inc_by(signed(count));
            }
        }
        registry.register("messages", "Messages by state", messages);
        let help = "Sent messages by what their receipts say";
        registry.register("deliveries", help, deliveries);
        let oldest_due = Seconds::default();
        oldest_due.set(self.oldest_due.as_secs_f64());
        let help = "How long the oldest message is due that may be sent now; 0: none is due";
        registry.register("oldest_due_seconds", help, oldest_due);
        let workers = GaugeFamily::<1>::default();
        for (state, count) in [("alive", self.alive_workers), ("dead", self.dead_workers)] {
            let labels = [("state", state.to_owned())];
            workers.get_or_create(&labels).set(signed(count));
        }
        let help = "Workers; a dead one has not renewed its lease in time";
        registry.register("workers", help, workers);
        let suppressed = Gauge::<i64>::default();
        suppressed.set(signed(self.suppressed));
        let help = "Numbers on the suppression list";
        registry.register("suppressed_numbers", help, suppressed);
        let unmatched = Gauge::<i64>::default();
        unmatched.set(signed(self.unmatched_receipts));
        let help = "Receipts that belong to no message so far";
        registry.register("unmatched_receipts", help, unmatched);
        let imported = CounterFamily::<1>::default();
        for (result, count) in [
            ("accepted", self.imported.accepted),
            ("duplicate", self.imported.duplicates),
            ("suppressed", self.imported.suppressed),
            ("rejected", self.imported.rejected),
        ] {
            let counter: Counter = imported.get_or_create_owned(&[("result", result.to_owned())]);
            counter.inc_by(count);
        }
        registry.register("import_rows", "Rows of imported lists", imported);
        self.register_hooks(registry);
    }
}

/// The hooks that had events.
async fn hooks(store: &Store) -> Result<Vec<HookCounts>, StoreError> {
    let mut hooks = Vec::new();
    for row in store.hooks().rows().await? {
        hooks.push(HookCounts {
            waiting: store.hooks().waiting(&row.name).await?,
            delivered: row.delivered(),
            hook: row.name,
        });
    }
    Ok(hooks)
}

/// The newest campaigns, and the sum of the others.
fn limited(
    mut campaigns: Vec<(Campaign, Totals)>,
    removed: Totals,
    max_campaigns: u32,
    default_provider: Option<&str>,
) -> Vec<CampaignCounts> {
    let others = campaigns.len().saturating_sub(max_campaigns as usize);
    let mut others: Vec<Totals> = campaigns.drain(..others).map(|(_, totals)| totals).collect();
    if removed.imported > 0 {
        others.push(removed);
    }
    let own = campaigns.into_iter().map(|(campaign, totals)| {
        let provider = campaign.provider.as_deref().or(default_provider);
        CampaignCounts {
            provider: provider.unwrap_or_default().to_owned(),
            campaign: campaign.name,
            totals,
        }
    });
    let mut counts: Vec<_> = own.collect();
    if !others.is_empty() {
        counts.push(CampaignCounts {
            campaign: OTHER.to_owned(),
            provider: OTHER.to_owned(),
            totals: others.into_iter().sum(),
        });
    }
    counts
}

/// Whether messages of the campaign may be sent now. A window that depends on the recipient counts as closed.
fn is_open(campaign: &Campaign, now: Timestamp) -> bool {
    let is_inside = campaign.window.as_ref().is_none_or(|window| {
        let span = window.for_all(now);
        span.is_some_and(|span| span.contains(now))
    });
    campaign.state == CampaignStatus::Active && is_inside
}

fn by_state(totals: &Totals) -> [(&'static str, u64); 6] {
    [
        ("queued", totals.queued),
        ("sending", totals.sending),
        ("sent", totals.sent),
        ("failed", totals.failed),
        ("unknown", totals.unknown),
        ("cancelled", totals.cancelled),
    ]
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
