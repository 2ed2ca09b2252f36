//! `smsq serve`: a server on the database of the workers. It shows what they do, takes messages and delivery receipts
//! over HTTP, and has metrics. Sending never needs it.

mod access;
mod api;
mod body;
mod config;
mod connections;
mod counts;
mod downloads;
mod guard;
mod health;
mod intake;
mod pages;
mod problem;
mod receipts;
mod server_metrics;
mod state;
mod tokens;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use axum::{Json, Router};
use smsq_message::phone::{Dialling, Region};
use smsq_operations::{ListOptions, Scheduler};
use smsq_process::jobs::Jobs;
use smsq_provider::Provider;
use smsq_report::PriceTables;
use smsq_store::Store;
use tower_http::compression::predicate::{DefaultPredicate, Predicate as _, SizeAbove};
use tower_http::compression::{CompressionLayer, CompressionLevel};
use tower_http::trace::TraceLayer;

use counts::Counts;
use intake::{Drafts, Intake, IntakeLimits, Uploads};
use server_metrics::ServerMetrics;
use state::{ServerState, Turns};

pub use config::Config;
pub use connections::Listener;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use intake::fuzz_posted;
pub use receipts::{receipt_token, receipt_url};
pub use tokens::{AccessToken, AccessTokens, Role};

/// What the server works with.
pub struct ServerParts {
    pub config: Config,
    pub store: Store,
    /// Providers whose receipts are taken.
    pub providers: BTreeMap<String, Arc<Provider>>,
    pub default_region: Option<Region>,
    /// How the numbers of posted messages are read, and to which countries they may be sent.
    pub dialling: Dialling,
    pub default_provider: Option<String>,
    pub metrics: smsq_metrics::Config,
    /// What this process counts, also in addition to what the server does.
    pub counted: Arc<smsq_metrics::Metrics>,
    pub prices: PriceTables,
    /// Receipts that belong to no message are kept for this long.
    pub no_report_after: Duration,
    /// The folder for uploaded files, which is created if needed.
    pub uploads: PathBuf,
    /// What the fields of an upload change.
    pub lists: ListOptions,
    /// Their stop is that of the server.
    pub jobs: Jobs,
    pub scheduler: Arc<Scheduler>,
}

/// How long a query or transaction of a request may take, and one of a count or report, which takes longer with the
/// number of messages.
const QUERY_LIMIT: Duration = Duration::from_secs(10);
const REPORT_LIMIT: Duration = Duration::from_secs(600);
/// The least bytes of a response that is compressed.
const MIN_COMPRESSED: u16 = 1 << 10;
/// What a stopping server leaves for its last commit, after its last request.
const LAST_COMMIT: Duration = Duration::from_secs(2);

/// A server that listens.
pub struct Server {
    shared: Arc<ServerState>,
    listener: Listener,
}

impl Server {
    /// Takes requests from `listener` until the stop of the process begins.
    pub fn start(listener: Listener, parts: ServerParts) -> Self {
        let (config, access) = (parts.config, Arc::clone(&listener.access));
        let store = parts.store.limited(QUERY_LIMIT);
        let patient_store = parts.store.limited(REPORT_LIMIT);
        let metrics = Arc::new(ServerMetrics::new(
            store.clone(),
            patient_store.clone(),
            parts.metrics,
            parts.counted,
            parts.default_provider.clone(),
        ));
        // Without a limit: a batch of a list may take longer than a request.
        let lists = parts.lists;
        let (all, jobs) = (parts.store.clone(), parts.jobs);
        let uploads = Uploads::start(parts.uploads, all.clone(), lists.clone(), jobs.clone());
        let uploads = Arc::new(uploads);
        let drafts = Drafts::new(Arc::clone(&uploads), all, lists.clone(), jobs.clone());
        let intake = Intake::new(
            store.clone(),
            parts.dialling,
            IntakeLimits { max_waiting: config.max_waiting, max_campaigns: config.max_campaigns },
            Arc::clone(&metrics),
            Arc::clone(&uploads),
        );
        let counts = Counts::new(patient_store.clone(), parts.prices.clone(), uploads);
        let shared = Arc::new(ServerState {
            access,
            intake,
            counts: Arc::new(counts),
            metrics,
            turns: Turns::default(),
            prices: parts.prices,
            lists: lists.settings,
            drafts: Arc::new(drafts),
            scheduler: parts.scheduler,
            default_provider: parts.default_provider,
            config,
            store,
            patient_store,
            stop: jobs.stop().clone(),
            providers: parts.providers,
            no_report_after: parts.no_report_after,
            default_region: parts.default_region,
        });
        Self { shared, listener }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.address
    }

    /// A link that logs one browser in, once and soon. What is after `#` reaches no log.
    pub fn one_time_link(&self) -> String {
        let token = self.shared.access.issue_one_time(Instant::now());
        format!("http://{}/#token={token}", self.listener.address)
    }

    /// Serves until the server stops, then ends running requests and commits what was taken.
    pub async fn run(self) {
        let shared = self.shared;
        let tasks = [
            tokio::spawn(shared.until_stopped(Arc::clone(&shared.counts).refresh())),
            tokio::spawn(shared.until_stopped(receipts::apply(Arc::clone(&shared)))),
            tokio::spawn(shared.until_stopped(Arc::clone(&shared.drafts).prune())),
        ];
        let router = router(Arc::clone(&shared));
        let stop = shared.stop.clone();
        connections::serve(self.listener, router, &stop, LAST_COMMIT).await;
        if stop.within(shared.intake.finish()).await.is_none() {
            tracing::warn!("the database does not answer: what was not answered is not stored");
        }
        for task in tasks {
            // A panic in it has been logged.
            let _ = stop.within(task).await;
        }
    }
}

fn router(shared: Arc<ServerState>) -> Router {
    let (api, description) = api::routes().split_for_parts();
    let others = Router::new()
        .merge(pages::routes(&shared))
        .merge(receipts::routes())
        .merge(health::routes())
        .route("/openapi.json", get(async move || Json(description)))
        .layer(from_fn(guard::limit_time));
    Router::new()
        .merge(api)
        .merge(pages::upload_routes(&shared))
        .merge(others)
        .fallback(pages::not_found)
        .method_not_allowed_fallback(guard::method_not_allowed)
        .layer(from_fn(body::discard_body))
        .layer(from_fn_with_state(Arc::clone(&shared), guard::check))
        .layer(
            CompressionLayer::new()
                .quality(CompressionLevel::Fastest)
                .compress_when(DefaultPredicate::new().and(SizeAbove::new(MIN_COMPRESSED))),
        )
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(guard::span)
                .on_request(())
                .on_response(guard::log_response)
                .on_failure(()),
        )
        .with_state(shared)
}
