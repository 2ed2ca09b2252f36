//! The pages. They work without JavaScript, on phones, in dark mode and by keyboard. The script of a live page asks for
//! it again and changes what differs.

mod action;
mod actions;
mod activity;
mod alerts;
mod assets;
mod attempts;
mod audit;
mod campaign;
mod draft;
mod events;
mod files;
mod live;
mod login;
mod overview;
mod render;
mod replies;
mod schedules;
mod search;
mod suppression;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode, header};
use smsq_store::Mode;

use super::guard::{self, Visitor};
use super::problem::Problem;
use super::state::ServerState;
use login::log_in_page;
use render::problem_page;

/// Rows of lists on a page.
const ROWS: i64 = 200;

pub(super) fn routes(shared: &Arc<ServerState>) -> Router<Arc<ServerState>> {
    Router::new()
        .route("/", get(overview::overview))
        .route("/style.css", get(assets::style))
        .route("/page.js", get(assets::script))
        .route("/idiomorph.js", get(assets::morph))
        .route("/robots.txt", get(assets::robots))
        .route("/login", get(overview::overview).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/search", get(search::search))
        .route("/replies", get(replies::replies))
        .route("/suppression", get(suppression::suppression).post(suppression::suppress))
        .route("/audit", get(audit::audit))
        .route("/schedules", get(schedules::schedules))
        .route("/schedules/{name}/{action}", get(schedules::ask).post(schedules::act))
        .route("/campaigns/{name}", get(campaign::campaign))
        .route("/campaigns/{name}/report.html", get(files::report_page))
        .route("/campaigns/{name}/failed.csv", files::csv("failed"))
        .route("/campaigns/{name}/undelivered.csv", files::csv("undelivered"))
        .route("/campaigns/{name}/sent.csv", files::csv("sent"))
        .route("/campaigns/{name}/{action}", get(actions::ask).post(actions::act))
        .route("/imports/{id}/rejects.csv", get(files::rejects_csv))
        .merge(draft::routes())
        .method_not_allowed_fallback(guard::method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(shared), show_problems))
}

/// The pages of which the body is limited by their handler.
pub(super) fn upload_routes(shared: &Arc<ServerState>) -> Router<Arc<ServerState>> {
    draft::upload_routes()
        .method_not_allowed_fallback(guard::method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(shared), show_problems))
}

/// Shows problems as pages: the log-in to who is not logged in.
async fn show_problems(
    State(shared): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let mode = shared.store.mode();
    let wants_html = wants_html(request.headers());
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    match response.extensions().get::<Problem>() {
        Some(problem) if problem.status == StatusCode::UNAUTHORIZED => log_in_page(mode, &path),
        Some(problem) if wants_html => problem_response(mode, problem, &response),
        _ => response,
    }
}

/// Whether it is a browser that asks.
fn wants_html(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|accepted| accepted.to_str().ok())
        .is_some_and(|accepted| accepted.contains("text/html"))
}

fn problem_response(mode: Mode, problem: &Problem, response: &Response) -> Response {
    let mut page = problem_page(mode, problem, "/");
    for name in [header::RETRY_AFTER, header::ALLOW] {
        if let Some(value) = response.headers().get(&name) {
            page.headers_mut().insert(name, value.clone());
        }
    }
    page
}

/// Answers requests to addresses without a route.
pub(super) async fn not_found(
    State(shared): State<Arc<ServerState>>,
    visitor: Result<Visitor, Problem>,
    headers: HeaderMap,
) -> Response {
    let problem = Problem::not_found("there is nothing at this address");
    match visitor {
        _ if !wants_html(&headers) => problem.into_response(),
        Ok(visitor) => problem_page(&visitor, &problem, "/"),
        Err(_) => problem_page(shared.store.mode(), &problem, "/"),
    }
}
