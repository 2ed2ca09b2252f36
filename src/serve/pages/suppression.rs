//! The suppression list, and adding a number to it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use minijinja::context;
use minijinja::value::Value;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::ROWS;
use super::render::{problem_page, render, visitor_values};
use super::search::{phone_example, phone_problem};
use crate::operations::{self, Actor};
use crate::phone::Phone;
use crate::report::LocalTime;
use crate::serve::guard::{Form, Query, Visitor};
use crate::serve::problem::Problem;
use crate::serve::state::ServerState;
use crate::serve::tokens::Permission;
use crate::sms::Timestamp;
use crate::text::printable_line;

#[derive(Deserialize)]
pub(super) struct SuppressionQuery {
    after: Option<String>,
}

pub(super) async fn suppression(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Query(query): Query<SuppressionQuery>,
) -> Response {
    let after = query.after.as_deref();
    match suppression_page(&shared, &visitor, after, context! {}).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, "/"),
    }
}

async fn suppression_page(
    shared: &ServerState,
    visitor: &Visitor,
    after: Option<&str>,
    added: Value,
) -> Result<Response, Problem> {
    visitor.0.need(Permission::Operate)?;
    let local = LocalTime::system();
    let entries = shared.store.suppressed(after, ROWS).await?;
    let has_more = i64::try_from(entries.len()).is_ok_and(|count| count == ROWS);
    let last = entries.last().filter(|_| has_more);
    let last = last.map(|one| utf8_percent_encode(&one.phone, NON_ALPHANUMERIC).to_string());
    let entries: Vec<Value> = entries
        .iter()
        .map(|one| {
            let since = local.short(Timestamp::from_millis(one.created_at));
            context! { phone => one.phone.as_str(), reason => one.reason.as_deref(), since }
        })
        .collect();
    let is_invalid = added
        .get_attr("problem")
        .is_ok_and(|problem| !problem.is_undefined());
    let status = if is_invalid {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    let example = phone_example(shared);
    let values = context! { entries, example, after => last, ..added };
    let values = context! { ..values, ..visitor_values(visitor, "suppression") };
    Ok(render(status, "suppression.html", values))
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
    match add_suppressed(&shared, &visitor, &form).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, "/suppression"),
    }
}

async fn add_suppressed(
    shared: &ServerState,
    visitor: &Visitor,
    form: &Suppress,
) -> Result<Response, Problem> {
    visitor.0.need(Permission::Operate)?;
    let phone = match Phone::parse(&form.phone, shared.default_region) {
        Ok(phone) => phone,
        Err(error) => {
            let problem = phone_problem(&error);
            let (phone, reason) = (form.phone.as_str(), form.reason.as_str());
            let entered = context! { problem, phone, reason };
            return suppression_page(shared, visitor, None, entered).await;
        }
    };
    let who = &visitor.0.name;
    let reason = match printable_line(form.reason.trim()) {
        reason if reason.is_empty() => format!("added by {who}"),
        reason => reason.into_owned(),
    };
    let actor = Actor::of_token(who);
    let is_new = operations::suppress(&shared.store, &phone, &reason, &actor).await?;
    let phone = phone.as_str();
    let message = if is_new {
        format!("Added {phone}.")
    } else {
        format!("{phone} was on the list already.")
    };
    suppression_page(shared, visitor, None, context! { message }).await
}
