//! Asks whether to change a campaign, and changes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use smsq_operations::{Actor, EstimatedQueue, approval_subject, estimate_queue};
use smsq_store::report::Totals;
use smsq_store::{ApprovalSubject, Campaign};

use super::action::{Action, ActionError, Field};
use super::render::{MessagePage, View, path_of, problem_page, render};
use crate::body::Form;
use crate::guard::{Path, Query, Visitor};
use crate::intake::ShownMessage;
use crate::problem::Problem;
use crate::state::ServerState;
use crate::tokens::Permission;

/// How long a page waits for a change before it says that the change continues; shorter than a request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How many messages of a campaign are read for the question whether to approve it.
const MOST_READ: u64 = 20_000;

/// The question before a change.
#[derive(Default, Serialize)]
pub(super) struct ConfirmPage<'a> {
    /// The messages that it is about.
    named: Option<String>,
    /// What is approved.
    estimate: Option<EstimateView>,
    action: &'static str,
    label: &'static str,
    is_dangerous: bool,
    question: String,
    warning: Option<&'static str>,
    fields: Vec<Field>,
    path: String,
    /// The page to return to.
    back: String,
    problem: Option<&'a str>,
}

impl ConfirmPage<'_> {
    /// A question without fields. `action`: the last part of the address below `path`; `back`: the page to return to.
    pub(super) fn plain(
        action: &'static str,
        label: &'static str,
        question: String,
        path: String,
        back: &str,
    ) -> Self {
        Self { action, label, question, path, back: back.to_owned(), ..Self::default() }
    }
}

impl View for ConfirmPage<'_> {
    const TEMPLATE: &'static str = "confirm.html";
}

/// What sending a campaign would be like.
#[derive(Serialize)]
struct EstimateView {
    rows: Vec<(&'static str, String)>,
    samples: Vec<ShownMessage>,
    /// What waits, why, and by whom it was added.
    waiting: Vec<String>,
}

impl EstimateView {
    async fn of(
        shared: &ServerState,
        campaign: &Campaign,
        subject: &ApprovalSubject,
    ) -> Result<Self, Problem> {
        let queue = EstimatedQueue {
            campaign,
            lanes: subject.lanes.as_deref(),
            count: subject.messages,
            max_read: MOST_READ,
            rate: None,
        };
        let (store, region) = (&shared.store, shared.default_region);
        let estimate = estimate_queue(&shared.lists, store, queue, region, |_, _| ()).await?;
        let samples = estimate.estimate.labelled_samples().into_iter();
        Ok(Self {
            samples: samples.map(|(label, sample)| ShownMessage::of(label, sample)).collect(),
            rows: estimate.rows.0,
            waiting: subject.waiting.iter().map(ToString::to_string).collect(),
        })
    }
}

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
    visitor.identity.need(Permission::Operate)?;
    let action = Action::of(action)?;
    let campaign = shared.campaign(name).await?;
    action.check(&campaign)?;
    let (mut totals, mut estimate) = (Totals::default(), None);
    let named = if action.is_of_approval() {
        let actor = Actor::of_token(&visitor.identity.name);
        let subject = approval_subject(&shared.store, &campaign, &actor).await?;
        // Before the estimate: what is added meanwhile was not looked at.
        estimate = Some(EstimateView::of(shared, &campaign, &subject).await?);
        totals.queued = subject.messages;
        Some(subject.fingerprint)
    } else {
        totals = shared.store.report().totals(Some(campaign.id)).await?;
        action.named(&shared.store, &campaign).await?
    };
    let page = ConfirmPage {
        named,
        estimate,
        action: action.as_str(),
        label: action.label(),
        is_dangerous: action.is_dangerous(),
        question: action.question(&campaign, &totals),
        warning: action.warning(),
        fields: action.fields(&campaign, given),
        path: path_of(name),
        back: path_of(name),
        problem: problem.map(|(_, problem)| problem),
    };
    let status = problem.map_or(StatusCode::OK, |(status, _)| status);
    Ok(render(status, visitor, &page))
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
    visitor.identity.need(Permission::Operate)?;
    let action = Action::of(action_name)?;
    let campaign = shared.campaign(name).await?;
    let done_page = |status: StatusCode, message: &str| {
        let page = MessagePage {
            title: action.label(),
            message,
            back: &path_of(name),
            back_label: "Back to the campaign",
        };
        render(status, visitor, &page)
    };
    // A task of its own: a change of many messages is not cut off when its client is answered or disconnects.
    let (who, state) = (visitor.identity.name.clone(), Arc::clone(shared));
    let given_now = given.clone();
    let changing = tokio::spawn(shared.until_stopped(async move {
        let changed =
            action.run(&state.patient_store, &state.lists, &campaign, &given_now, &who).await;
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
            return Err(Problem::unavailable("the server stops; check what was done"));
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
        Err(ActionError::AskAgain(status, problem)) => {
            let problem = Some((status, problem.as_str()));
            question(shared, visitor, name, action_name, given, problem).await
        }
        Err(ActionError::Operation(error)) => Err(error.into()),
    }
}
