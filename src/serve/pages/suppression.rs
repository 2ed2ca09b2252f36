//! The suppression list, and adding a number to it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use smsq_message::phone::Phone;
use smsq_message::text::printable_line;
use smsq_operations::Actor;
use smsq_store::Suppressed;

use super::ROWS;
use super::render::{View, problem_page, render};
use super::search::{phone_example, phone_problem};
use crate::body::Form;
use crate::guard::{Query, Visitor};
use crate::problem::Problem;
use crate::state::ServerState;
use crate::tokens::Permission;

#[derive(Deserialize)]
pub(super) struct SuppressionQuery {
    after: Option<String>,
}

#[derive(Default, Serialize)]
pub(super) struct SuppressionPage<'a> {
    entries: Vec<Suppressed>,
    example: String,
    /// The last phone, if there are more.
    after: Option<String>,
    /// What was entered, if it cannot be used.
    phone: &'a str,
    reason: &'a str,
    problem: Option<String>,
    /// What was done.
    message: Option<String>,
}

impl View for SuppressionPage<'_> {
    const TEMPLATE: &'static str = "suppression.html";
    const SECTION: &'static str = "suppression";
}

impl SuppressionPage<'_> {
    async fn respond(
        self,
        shared: &ServerState,
        visitor: &Visitor,
        after: Option<&str>,
    ) -> Result<Response, Problem> {
        let entries = shared.store.suppression().page(after, ROWS).await?;
        let has_more = i64::try_from(entries.len()).is_ok_and(|count| count == ROWS);
        let status = match self.problem {
            Some(_) => StatusCode::BAD_REQUEST,
            None => StatusCode::OK,
        };
        let page = Self {
            example: phone_example(shared),
            after: entries
                .last()
                .filter(|_| has_more)
                .map(|entry| utf8_percent_encode(&entry.phone, NON_ALPHANUMERIC).to_string()),
            entries,
            ..self
        };
        Ok(render(status, visitor, &page))
    }
}

pub(super) async fn suppression(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Query(query): Query<SuppressionQuery>,
) -> Response {
    let page = async {
        visitor.identity.need(Permission::Operate)?;
        SuppressionPage::default().respond(&shared, &visitor, query.after.as_deref()).await
    };
    page.await.unwrap_or_else(|problem| problem_page(&visitor, &problem, "/"))
}

#[derive(Deserialize)]
pub(super) struct Suppress {
    phone: String,
    #[serde(default)]
    reason: String,
}

pub(super) async fn suppress(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Form(form): Form<Suppress>,
) -> Response {
    add(&shared, &visitor, &form)
        .await
        .unwrap_or_else(|problem| problem_page(&visitor, &problem, "/suppression"))
}

async fn add(
    shared: &ServerState,
    visitor: &Visitor,
    form: &Suppress,
) -> Result<Response, Problem> {
    visitor.identity.need(Permission::Operate)?;
    let mut page = SuppressionPage::default();
    match Phone::parse(&form.phone, shared.default_region) {
        Ok(phone) => {
            let who = &visitor.identity.name;
            let reason = match printable_line(form.reason.trim()) {
                reason if reason.is_empty() => format!("added by {who}"),
                reason => reason.into_owned(),
            };
            let actor = Actor::of_token(who);
            let is_new = smsq_operations::suppress(&shared.store, &phone, &reason, &actor).await?;
            let phone = phone.as_str();
            page.message = Some(if is_new {
                format!("Added {phone}.")
            } else {
                format!("{phone} was on the list already.")
            });
        }
        Err(error) => {
            page.problem = Some(phone_problem(&error));
            (page.phone, page.reason) = (&form.phone, &form.reason);
        }
    }
    page.respond(shared, visitor, None).await
}
