//! Health and metrics: for probes, load balancers and Prometheus.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::middleware::{from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header;
use smsq_metrics::CONTENT_TYPE;

use super::body;
use super::guard::{self, Program};
use super::problem::Problem;
use super::state::ServerState;
use super::tokens::Permission;

pub(super) fn routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

/// What is answered until the database is open: the server runs, and is not ready.
pub(super) fn routes_without_database() -> Router {
    let waiting =
        || async { Problem::unavailable("the database is unavailable: the server waits for it") };
    Router::new()
        .route("/healthz", get(healthy))
        .fallback(waiting)
        .layer(from_fn(body::discard_body))
        .layer(map_response(guard::add_headers))
}

async fn healthy() -> &'static str {
    "ok\n"
}

async fn ready(State(shared): State<Arc<ServerState>>) -> Response {
    if shared.metrics.is_ready().await {
        "ok\n".into_response()
    } else {
        Problem::unavailable("the database does not answer, or cannot be written").into_response()
    }
}

/// For this machine without a token, unless a proxy hides who asks.
async fn metrics(
    State(shared): State<Arc<ServerState>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    program: Result<Program, Problem>,
) -> Result<Response, Problem> {
    let is_local = peer.ip().is_loopback() && !shared.config.is_open();
    if !is_local {
        program?.0.need(Permission::View)?;
    }
    let text = shared.metrics.text().await;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
