//! The audit log.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use minijinja::context;
use minijinja::value::Value;

use super::ROWS;
use super::render::{path_of, problem_page, render, visitor_values};
use crate::report::LocalTime;
use crate::serve::guard::Visitor;
use crate::serve::state::ServerState;

pub(super) async fn audit(State(shared): State<Arc<ServerState>>, visitor: Visitor) -> Response {
    let entries = match shared.store.audit_entries(ROWS).await {
        Ok(entries) => entries,
        Err(error) => return problem_page(&visitor, &error.into(), "/"),
    };
    let local = LocalTime::system();
    let entries: Vec<Value> = entries
        .iter()
        .map(|one| {
            context! {
                at => local.seconds(one.at),
                path => one.campaign.as_deref().map(path_of),
                who => one.who.as_str(),
                what => one.what.as_str(),
                campaign => one.campaign.as_deref(),
                detail => one.detail.as_str(),
            }
        })
        .collect();
    let values = context! { entries, ..visitor_values(&visitor, "audit") };
    render(StatusCode::OK, "audit.html", values)
}
