//! Looks up all messages to one phone, with their attempts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use minijinja::context;
use minijinja::value::Value;
use serde::Deserialize;

use super::ROWS;
use super::attempts::{AttemptLine, attempts, may_have_earlier};
use super::render::{path_of, render, sentence, visitor_values};
use crate::phone::{Phone, PhoneError};
use crate::report::LocalTime;
use crate::serve::guard::{Query, Visitor};
use crate::serve::problem::Problem;
use crate::serve::state::ServerState;
use crate::serve::tokens::Permission;
use crate::store::SmsFilter;

#[derive(Deserialize)]
pub(super) struct SearchQuery {
    phone: Option<String>,
}

pub(super) async fn search(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Query(query): Query<SearchQuery>,
) -> Response {
    let example = phone_example(&shared);
    let base = context! { example, ..visitor_values(&visitor, "search") };
    let Some(text) = query.phone else {
        return render(StatusCode::OK, "search.html", base);
    };
    let found = match Phone::parse(&text, shared.default_region) {
        Ok(phone) => look_up(&shared, &visitor, &phone).await,
        Err(error) => Err(Problem::invalid(phone_problem(&error))),
    };
    match found {
        Ok(found) => {
            let values = context! { phone => text, ..found };
            render(StatusCode::OK, "search.html", context! { ..values, ..base })
        }
        Err(problem) => {
            let values = context! { phone => text, problem => sentence(&problem.detail), ..base };
            render(problem.status, "search.html", values)
        }
    }
}

/// What to enter as a phone.
pub(super) fn phone_example(shared: &ServerState) -> String {
    match shared.default_region {
        Some(region) => format!("+447400123456, or a number of {region}"),
        None => "+447400123456".to_owned(),
    }
}

pub(super) fn phone_problem(error: &PhoneError) -> String {
    sentence(&error.plain())
}

/// All messages to a phone.
async fn look_up(shared: &ServerState, visitor: &Visitor, phone: &Phone) -> Result<Value, Problem> {
    let store = &shared.store;
    let filter = SmsFilter::Phone(phone.as_str());
    let found = shared.search(filter, None, ROWS).await?;
    let ids: Vec<i64> = found.iter().map(|one| one.campaign_id).collect();
    let names = store.campaign_names(&ids).await?;
    let suppressed = store.suppressed_among(&[phone.as_str()]).await?;
    let ids: Vec<i64> = found.iter().map(|one| one.id).collect();
    let failed = store.failed_attempts(&ids).await?;
    let may_operate = visitor.0.may(Permission::Operate);
    let local = LocalTime::system();
    let found: Vec<Value> = found
        .iter()
        .rev()
        .map(|one| {
            let tried = attempts(
                one,
                failed.iter().filter(|attempt| attempt.sms_id == one.id),
            );
            context! {
                id => one.id.to_string(),
                content => one.content.as_deref().filter(|_| may_operate),
                campaign => names.get(&one.campaign_id),
                path => names.get(&one.campaign_id).map(|name| path_of(name)),
                state => &one.state,
                delivery => one.delivery.as_deref(),
                reason => one.reason.as_deref(),
                class => one.class.as_deref(),
                code => one.code.as_deref(),
                attempts => one.attempts,
                provider => one.provider.as_deref(),
                message_id => one.message_id.as_deref().filter(|_| may_operate),
                at => local.short(one.at),
                tried => tried.iter().map(|line| attempt_value(line, &local)).collect::<Vec<_>>(),
                may_have_earlier => may_have_earlier(&tried),
            }
        })
        .collect();
    Ok(context! { found, suppressed => !suppressed.is_empty() })
}

fn attempt_value(line: &AttemptLine<'_>, local: &LocalTime) -> Value {
    context! {
        at => local.seconds(line.at),
        outcome => line.outcome,
        is_found_accepted => line.is_found_accepted,
        provider => line.provider,
        class => line.class,
        code => line.code,
        reason => line.reason,
    }
}
