//! `smsq serve`: a server on the database of the workers. It shows what they do, takes messages and delivery receipts
//! over HTTP, and has metrics. Sending never needs it.

mod access;
mod connections;
mod downloads;
mod guard;
mod health;
mod intake;
mod page;
mod problem;
mod receipts;
mod tokens;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower_http::trace::TraceLayer;
use url::Url;

use crate::metrics;
use crate::phone::Region;
use crate::provider::Provider;
use crate::report::PriceTables;
use crate::secret::Secret;
use crate::store::Store;
use access::AccessControl;
use intake::{Intake, IntakeLimits};
use page::Page;
use tokens::Texts;

pub use intake::{FileImporter, ImportField, UploadRequest};
pub use receipts::{receipt_token, receipt_url};
pub use tokens::{AccessToken, AccessTokens, Role};

/// Section `[serve]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Where others reach the server, if it is behind a proxy.
    #[serde(deserialize_with = "url")]
    pub public_url: Option<Url>,
    /// Proxies that tell the address of their client in `X-Forwarded-For`.
    #[serde(deserialize_with = "networks")]
    pub trusted_proxies: Vec<IpNet>,
    pub tokens: Secret<AccessTokens>,
    /// No more messages are taken for a campaign while this many of it are due.
    pub max_waiting: u64,
    /// No more campaigns are created for clients while there are this many.
    pub max_campaigns: u64,
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

/// A list, or a text with commas from the environment, of addresses and networks.
fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Texts::deserialize(deserializer)?.into_vec();
    let network = |text: &String| {
        let address = text.parse::<IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse::<IpNet>())
    };
    let networks: Result<Vec<IpNet>, _> = texts.iter().map(network).collect();
    networks.map_err(serde::de::Error::custom)
}

/// The shortest secret for the URLs of receipts, in characters: a vendor that knows its own URL could guess a shorter
/// one, and post receipts of other vendors.
const MIN_RECEIPT_KEY: usize = 16;

impl Config {
    /// What is wrong with the access tokens, as what is expected of them.
    pub fn tokens_problem(&self) -> Option<String> {
        self.tokens.expose().problem()
    }

    /// Whether the secret for the URLs of receipts is not set, or long enough.
    pub fn is_receipt_key_valid(&self) -> bool {
        let length = self.receipt_key.expose().chars().count();
        length == 0 || length >= MIN_RECEIPT_KEY
    }

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

/// How long a query or transaction of a request may take, and one of a count or report, which takes longer with the
/// number of messages.
const QUERY_LIMIT: Duration = Duration::from_secs(10);
const REPORT_LIMIT: Duration = Duration::from_secs(600);
/// How long a stopping server waits for its last commit, after its last request.
const LAST_COMMIT: Duration = Duration::from_secs(5);

/// What all requests share.
struct ServerState {
    config: Config,
    access: AccessControl,
    /// For requests.
    store: Store,
    /// For counts, reports, and what else is not done while a client waits.
    patient_store: Store,
    /// Becomes true when the server stops.
    stop: watch::Receiver<bool>,
    providers: BTreeMap<String, Arc<Provider>>,
    no_report_after: Duration,
    default_region: Option<Region>,
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
    /// It stops when `stop` becomes true.
    pub async fn start(parts: ServerParts, stop: watch::Receiver<bool>) -> io::Result<Self> {
        let listener = TcpListener::bind(parts.config.listen).await?;
        let address = listener.local_addr()?;
        let config = parts.config;
        let access = AccessControl::new(&config, address.port());
        let store = parts.store.limited(QUERY_LIMIT);
        let page = Page::new(parts.prices);
        let intake = Intake::new(
            store.clone(),
            parts.default_region,
            IntakeLimits {
                max_waiting: config.max_waiting,
                max_campaigns: config.max_campaigns,
            },
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
            store,
            patient_store: parts.store.limited(REPORT_LIMIT),
            stop,
            providers: parts.providers,
            no_report_after: parts.no_report_after,
            default_region: parts.default_region,
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

    /// A link that logs one browser in, once and soon. What is after `#` reaches no log.
    pub fn one_time_link(&self) -> String {
        let token = self.shared.access.issue_one_time(Instant::now());
        format!("http://{}/#token={token}", self.address)
    }

    /// Serves until the server stops, then ends running requests and commits what was taken.
    pub async fn run(self) {
        let shared = self.shared;
        let tasks = [
            tokio::spawn(until_stopped(&shared, page::refresh(Arc::clone(&shared)))),
            tokio::spawn(until_stopped(&shared, receipts::apply(Arc::clone(&shared)))),
        ];
        let router = router(Arc::clone(&shared));
        let stop = shared.stop.clone();
        connections::serve(self.listener, router, Arc::clone(&shared), stop).await;
        let finished = tokio::time::timeout(LAST_COMMIT, shared.intake.finish()).await;
        if finished.is_err() {
            tracing::warn!("the database does not answer: what was not answered is not stored");
        }
        for task in tasks {
            // A panic in it has been logged.
            drop(task.await);
        }
    }
}

/// Runs `work` until the server stops: also while the database stands still.
fn until_stopped<W: Future>(
    shared: &ServerState,
    work: W,
) -> impl Future<Output = Option<W::Output>> + use<W> {
    let mut stop = shared.stop.clone();
    async move {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => None,
            done = work => Some(done),
        }
    }
}

fn router(shared: Arc<ServerState>) -> Router {
    let limited = Router::new()
        .merge(page::routes().layer(DefaultBodyLimit::max(guard::MAX_FORM)))
        .merge(receipts::routes())
        .merge(health::routes())
        .merge(intake::routes())
        .layer(DefaultBodyLimit::max(guard::MAX_BODY))
        .layer(from_fn(guard::limit_time));
    Router::new()
        .merge(limited)
        .merge(intake::unlimited_routes())
        .fallback(page::not_found)
        .method_not_allowed_fallback(guard::method_not_allowed)
        .layer(from_fn(guard::discard_body))
        .layer(from_fn_with_state(Arc::clone(&shared), guard::check))
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(guard::span)
                .on_request(())
                .on_response(guard::log_response)
                .on_failure(()),
        )
        .with_state(shared)
}
