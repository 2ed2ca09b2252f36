//! `smsq serve`: a server on the database of the workers. It shows what they do, takes messages and delivery receipts
//! over HTTP, and has metrics. Sending never needs it.

mod access;
mod connections;
mod guard;
mod health;
mod intake;
mod page;
mod problem;
mod receipts;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde::{Deserialize, Deserializer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use url::Url;

use crate::metrics;
use crate::phone::Region;
use crate::provider::Provider;
use crate::report::PriceTables;
use crate::secret::Secret;
use crate::store::Store;
use access::AccessControl;
use intake::Intake;
use page::Page;

pub use access::{AccessToken, AccessTokens, Role};
pub use intake::{FileImporter, ImportField};
pub use receipts::receipt_url;

/// Section `[serve]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Where others reach the server, if it is behind a proxy.
    #[serde(deserialize_with = "url")]
    pub public_url: Option<Url>,
    pub tokens: Secret<AccessTokens>,
    /// No more messages are taken for a campaign while this many of it are due.
    pub max_waiting: u64,
    /// The secret from which the URLs for receipts are made.
    pub receipt_key: Secret<String>,
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    let url = Url::parse(&text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
    url.map(Some)
        .ok_or_else(|| serde::de::Error::custom("not a URL of http or https"))
}

impl Config {
    /// Whether others than this machine can reach the server.
    pub fn is_open(&self) -> bool {
        !self.listen.ip().is_loopback() || self.public_url.is_some()
    }

    /// `None`: receipts are not taken.
    pub fn receipt_key(&self) -> Option<&Secret<String>> {
        let key = &self.receipt_key;
        Some(key).filter(|key| !key.expose().is_empty())
    }
}

/// What the server works with.
pub struct ServerParts {
    pub config: Config,
    pub store: Store,
    /// Providers whose receipts are taken.
    pub providers: BTreeMap<String, Arc<Provider>>,
    pub default_region: Option<Region>,
    pub default_provider: Option<String>,
    pub metrics: metrics::Config,
    pub prices: PriceTables,
    /// Receipts that belong to no message are kept for this long.
    pub no_report_after: Duration,
    /// The folder for uploaded files, which is created if needed.
    pub uploads: PathBuf,
    /// Imports files that are uploaded.
    pub importer: Arc<dyn FileImporter>,
}

/// What all requests share.
struct ServerState {
    config: Config,
    access: AccessControl,
    store: Store,
    providers: BTreeMap<String, Arc<Provider>>,
    no_report_after: Duration,
    intake: Intake,
    page: Page,
    metrics: health::ServerMetrics,
    metrics_config: metrics::Config,
    default_provider: Option<String>,
}

/// A server that listens.
pub struct Server {
    shared: Arc<ServerState>,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Listens, and reads the counts of all campaigns once.
    pub async fn start(parts: ServerParts) -> io::Result<Self> {
        let listener = TcpListener::bind(parts.config.listen).await?;
        let address = listener.local_addr()?;
        let config = parts.config;
        let access = AccessControl::new(config.tokens.expose().clone(), config.public_url.clone());
        let page = Page::new(parts.prices);
        let intake = Intake::new(
            parts.store.clone(),
            parts.default_region,
            config.max_waiting,
            parts.uploads,
            parts.importer,
        );
        let shared = Arc::new(ServerState {
            access,
            intake,
            page,
            metrics: health::ServerMetrics::default(),
            metrics_config: parts.metrics,
            default_provider: parts.default_provider,
            config,
            store: parts.store,
            providers: parts.providers,
            no_report_after: parts.no_report_after,
        });
        Ok(Self {
            shared,
            listener,
            address,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A link that logs one browser in, once. What is after `#` reaches no log.
    pub fn one_time_link(&self) -> String {
        let token = self.shared.access.issue_one_time();
        format!("http://{}/#token={token}", self.address)
    }

    /// Serves until `stop` is true, then ends running requests and commits what was taken.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let shared = self.shared;
        let tasks = [
            tokio::spawn(page::refresh(Arc::clone(&shared), stop.clone())),
            tokio::spawn(receipts::apply(Arc::clone(&shared), stop.clone())),
        ];
        connections::serve(self.listener, router(Arc::clone(&shared)), stop).await;
        shared.intake.finish().await;
        for task in tasks {
            // A panic in it has been logged.
            drop(task.await);
        }
    }
}

fn router(shared: Arc<ServerState>) -> Router {
    let limited = Router::new()
        .merge(page::routes())
        .merge(receipts::routes())
        .merge(health::routes())
        .merge(intake::routes())
        .layer(axum::middleware::from_fn(guard::read_body));
    Router::new()
        .merge(limited)
        .merge(intake::unlimited_routes())
        .fallback(guard::not_found)
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&shared),
            guard::check,
        ))
        .with_state(shared)
}
