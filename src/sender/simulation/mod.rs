//! The sender in a world that misbehaves, under a clock that only waiting moves: seeded faults,
//! outages and crashes, and what must hold after each of them.

mod tests;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::clock::Clock;
use super::slot::Transport;
use super::{BrakeConfig, Config, OnUnknown, Progress, Sender, Settings, Summary};
use super::{breaker, retry};
use crate::provider::Provider;
use crate::rate::Rates;
use crate::sms::{NewSms, Timestamp};
use crate::store::inspect::Totals;
use crate::store::{Access, Batch, NewCampaign, Store};

pub(super) use world::World;

/// Far enough in the future that nothing the database dates by itself is due later.
const START: Timestamp = Timestamp::from_millis(4_000_000_000_000);
/// No simulated campaign may take longer.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// A campaign, its database, and who sends it.
struct Simulation {
    world: Arc<World>,
    store: Store,
    campaign_id: i64,
    count: usize,
    settings: Settings,
    rate: Rates,
    _folder: tempfile::TempDir,
}

impl Simulation {
    async fn new(world: World, rate: &str, count: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("queue.db").display());
        let store = Store::open(&url, Access::Create).await.expect("a database");
        let new = NewCampaign {
            name: "simulated".to_owned(),
            ..NewCampaign::default()
        };
        let campaign = store.open_campaign(&new, START).await.expect("a campaign");
        let simulation = Self {
            world: Arc::new(world),
            store,
            campaign_id: campaign.id,
            count,
            settings: settings(),
            rate: rate.parse().expect("a rate"),
            _folder: folder,
        };
        simulation.import(None).await;
        simulation
    }

    async fn import(&self, expires_at: Option<Timestamp>) {
        let import_id = self
            .store
            .begin_import(self.campaign_id, "simulated.csv", "00", START)
            .await
            .expect("an import");
        let rows = (0..self.count).map(row).collect();
        let batch = Batch {
            import_id,
            campaign_id: self.campaign_id,
            now: START,
            due_at: START,
            expires_at,
            rows,
            row_count: self.count as u64,
            rejected: 0,
            duplicates: 0,
            last_line: self.count as u64,
        };
        self.store.enqueue(batch).await.expect("queued");
    }

    fn now(&self) -> Timestamp {
        START.plus(self.world.began.elapsed())
    }

    /// Runs a worker for `life`, then kills it; without, until it ends.
    async fn work(&self, life: Option<Duration>) -> Option<Summary> {
        let (_stop, stopped) = watch::channel(false);
        self.work_until(life, stopped).await
    }

    async fn work_until(
        &self,
        life: Option<Duration>,
        stopped: watch::Receiver<bool>,
    ) -> Option<Summary> {
        let stanza = format!(
            "kind = 'generic'\nurl = 'http://world.invalid/'\nmessage_id = '/id'\n\
             json = {{ to = '{{{{ phone }}}}', ref = '{{{{ reference }}}}' }}\n\
             honours_reference = {}\nrate = '{}'",
            self.world.honours_reference, self.rate
        );
        let stanza: toml::Table = if self.rate.0.is_empty() {
            toml::from_str(&stanza.replace("\nrate = ''", "")).expect("a stanza")
        } else {
            toml::from_str(&stanza).expect("a stanza")
        };
        let provider = Provider::from_stanza("world", &stanza, &|_| None).expect("a provider");
        let providers = BTreeMap::from([("world".to_owned(), provider)]);
        let transport = Transport::Simulated(Arc::clone(&self.world));
        let transports = BTreeMap::from([("world".to_owned(), transport)]);
        let sender = Sender::new(self.store.clone(), providers, self.settings.clone());
        let clock = Arc::new(Clock::apart(self.now()));
        let progress = Arc::new(Progress::default());
        let run = sender.run_with(transports, clock, stopped, progress, None);
        let ended = tokio::time::timeout(life.unwrap_or(LONGEST), run).await;
        let Ok(summary) = ended else {
            assert!(life.is_some(), "a run must end");
            return None;
        };
        Some(summary.expect("a run that ends well"))
    }

    async fn attempts_in_ledger(&self) -> u64 {
        let facts = self.store.sent_facts(&[self.campaign_id]).await;
        facts.expect("facts").attempts
    }

    /// What must hold after every run: each message stands in one place, and nobody was texted twice.
    async fn check(&self) -> Totals {
        let totals = self
            .store
            .totals(Some(self.campaign_id))
            .await
            .expect("totals");
        let placed = totals.queued
            + totals.sending
            + totals.sent
            + totals.failed
            + totals.unknown
            + totals.cancelled;
        assert_eq!(totals.imported, placed, "{totals:?}");
        let delivered = self.world.delivered();
        for (phone, times) in &delivered {
            assert_eq!(*times, 1, "{phone} was texted more than once");
        }
        let certain = delivered.len() as u64;
        assert!(
            totals.sent <= certain,
            "{totals:?}: {certain} were delivered"
        );
        let left = totals.unknown + totals.queued + totals.sending;
        assert!(
            certain <= totals.sent + left,
            "{totals:?}: {certain} were delivered"
        );
        for rate in &self.rate.0 {
            let most = self.world.fullest(rate.window);
            assert!(
                most <= rate.limit.get() as usize,
                "{most} in a window of {rate}"
            );
        }
        totals
    }
}

fn settings() -> Settings {
    Settings {
        sender: Config {
            slots: 16,
            lease: Duration::from_secs(30),
            on_unknown: OnUnknown::Hold,
        },
        retry: retry::Config {
            max_attempts: 8,
            first_wait: Duration::from_secs(5),
            max_wait: Duration::from_secs(600),
            give_up_after: Duration::from_secs(86_400),
        },
        breaker: breaker::Config {
            failures: 5,
            first_probe: Duration::from_secs(1),
            max_probe: Duration::from_secs(30),
        },
        brake: BrakeConfig {
            window: 100,
            rejected: 50,
        },
        default_provider: Some("world".to_owned()),
        default_region: None,
        campaign: None,
        rate: None,
        limit: None,
        follow: false,
    }
}

fn row(index: usize) -> NewSms {
    let phone = format!("+86138{index:08}");
    NewSms {
        line: index as u64 + 2,
        dedupe_key: phone.clone(),
        phone,
        content: "hello".to_owned(),
        params: "{}".to_owned(),
        segments: 1,
        replaces: None,
    }
}
