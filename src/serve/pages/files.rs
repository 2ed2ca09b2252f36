//! The files of a campaign: its report, lists of messages, rejected rows.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use http::{HeaderValue, header};

use super::render::problem_page;
use crate::downloads::{rejected_rows, report_csv, report_html};
use crate::guard::{Path, Visitor};
use crate::state::ServerState;
use crate::tokens::Permission;

pub(super) async fn report_page(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    report_html(&shared, &visitor.identity, &name)
        .await
        .unwrap_or_else(|problem| problem_page(&visitor, &problem, "/"))
}

/// The messages of one list as CSV.
pub(super) fn csv(list: &'static str) -> MethodRouter<Arc<ServerState>> {
    let handler = async move |State(shared): State<Arc<ServerState>>,
                              visitor: Visitor,
                              Path(name): Path<String>| {
        report_csv(&shared, &visitor.identity, &name, list)
            .await
            .unwrap_or_else(|problem| problem_page(&visitor, &problem, "/"))
    };
    get(handler)
}

/// The rejected rows of an uploaded list.
pub(super) async fn rejects_csv(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Response {
    let rows = async {
        visitor.identity.need(Permission::Operate)?;
        rejected_rows(&shared, &visitor.identity, &id).await
    };
    match rows.await {
        Ok(mut response) => {
            let attachment = HeaderValue::from_static("attachment; filename=\"rejects.csv\"");
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_DISPOSITION, attachment);
            response
        }
        Err(problem) => problem_page(&visitor, &problem, "/"),
    }
}
