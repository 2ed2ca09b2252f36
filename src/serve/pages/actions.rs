//! Asks whether to change a campaign, and changes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use minijinja::context;
use minijinja::value::{Serde, Value};

use super::action::{Action, ActionError};
use super::render::{path_of, problem_page, render, visitor_values};
use crate::serve::guard::{Form, Path, Query, Visitor};
use crate::serve::problem::Problem;
use crate::serve::state::ServerState;
use crate::serve::tokens::Permission;

/// How long a page waits for a change before it says that the change continues; shorter than a request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Asks whether to make a change.
pub(super) async fn ask(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path((name, action)): Path<(String, String)>,
    Query(given): Query<BTreeMap<String, String>>,
) -> Response {
    match question(&shared, &visitor, &name, &action, &given, None).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, &path_of(&name)),
    }
}

async fn question(
    shared: &ServerState,
    visitor: &Visitor,
    name: &str,
    action: &str,
    given: &BTreeMap<String, String>,
    problem: Option<(StatusCode, &str)>,
) -> Result<Response, Problem> {
    visitor.0.need(Permission::Operate)?;
    let action = Action::of(action);
    let action = action.ok_or_else(|| Problem::not_found("there is nothing at this address"))?;
    let campaign = shared.campaign(name).await?;
    action.operation().check(&campaign)?;
    let totals = shared.store.totals(Some(campaign.id)).await?;
    let named = action.named(&shared.store, &campaign).await?;
    let values = context! {
        named => named.map(|named| format!("{}-{}", named.count, named.newest)),
        action => action.as_str(),
        label => action.label(),
        is_dangerous => action.is_dangerous(),
        question => action.question(&campaign, &totals),
        warning => action.warning(),
        fields => Value::from(Serde(action.fields(&campaign, given))),
        path => path_of(name),
        problem => problem.map(|(_, problem)| problem),
        ..visitor_values(visitor, "campaign")
    };
    let status = problem.map_or(StatusCode::OK, |(status, _)| status);
    Ok(render(status, "confirm.html", values))
}

/// Makes a change.
pub(super) async fn act(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path((name, action)): Path<(String, String)>,
    Form(given): Form<BTreeMap<String, String>>,
) -> Response {
    match change(&shared, &visitor, &name, &action, &given).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, &path_of(&name)),
    }
}

async fn change(
    shared: &Arc<ServerState>,
    visitor: &Visitor,
    name: &str,
    action_name: &str,
    given: &BTreeMap<String, String>,
) -> Result<Response, Problem> {
    visitor.0.need(Permission::Operate)?;
    let action = Action::of(action_name);
    let action = action.ok_or_else(|| Problem::not_found("there is nothing at this address"))?;
    let campaign = shared.campaign(name).await?;
    let done_page = |status: StatusCode, message: &str| {
        let values = context! {
            title => action.label(),
            message,
            back => path_of(name),
            back_label => "Back to the campaign",
            ..visitor_values(visitor, "campaign")
        };
        render(status, "done.html", values)
    };
    // A task of its own: a change of many messages is not cut off when its client is answered or goes away.
    let (who, state) = (visitor.0.name.clone(), Arc::clone(shared));
    let given_now = given.clone();
    let changing = tokio::spawn(shared.until_stopped(async move {
        let changed = action
            .run(&state.patient_store, &campaign, &given_now, &who)
            .await;
        let campaign = &campaign.name;
        match &changed {
            Ok(_) => {
                tracing::info!(who, campaign, action = action.as_str(), "changed");
                state.counts.show_change(&state.store, campaign).await;
            }
            Err(ActionError::Operation(error)) => {
                tracing::warn!(who, campaign, action = action.as_str(), %error, "not changed");
            }
            Err(_) => {}
        }
        changed
    }));
    let changed = match tokio::time::timeout(ANSWER_WITHIN, changing).await {
        Ok(Ok(Some(changed))) => changed,
        Ok(Ok(None)) => {
            return Err(Problem::unavailable(
                "the server stops; check what was done",
            ));
        }
        // A panic, which has been logged.
        Ok(Err(_)) => return Err(Problem::unavailable("the change ended unexpectedly")),
        Err(_) => {
            let message =
                "This takes longer, and continues. The page Audit log shows when it is done.";
            return Ok(done_page(StatusCode::ACCEPTED, message));
        }
    };
    match changed {
        Ok(done) => Ok(done_page(StatusCode::OK, &done)),
        Err(ActionError::Invalid(problem)) => {
            let problem = Some((StatusCode::BAD_REQUEST, problem.as_str()));
            question(shared, visitor, name, action_name, given, problem).await
        }
        Err(ActionError::Grown(problem)) => {
            let problem = Some((StatusCode::CONFLICT, problem.as_str()));
            question(shared, visitor, name, action_name, given, problem).await
        }
        Err(ActionError::Operation(error)) => Err(error.into()),
    }
}
