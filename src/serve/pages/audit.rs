//! The audit log.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use smsq_store::AuditEntry;

use super::ROWS;
use super::render::{View, problem_page, render};
use crate::guard::Visitor;
use crate::state::ServerState;

#[derive(Default, Serialize)]
pub(super) struct AuditPage {
    entries: Vec<AuditEntry>,
}

impl View for AuditPage {
    const TEMPLATE: &'static str = "audit.html";
    const SECTION: &'static str = "audit";
}

pub(super) async fn audit(State(shared): State<Arc<ServerState>>, visitor: Visitor) -> Response {
    match shared.store.audit_entries(ROWS).await {
        Ok(entries) => render(StatusCode::OK, &visitor, &AuditPage { entries }),
        Err(error) => problem_page(&visitor, &error.into(), "/"),
    }
}
