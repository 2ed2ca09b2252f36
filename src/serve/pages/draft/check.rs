//! The last step: what starting the campaign would do, a test message, and the start.

use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use serde::Serialize;
use smsq_message::phone::Phone;
use smsq_message::text::messages;

use super::fields::set;
use super::{Given, Steps, find, see, working};
use crate::downloads::rejected_rows_of_draft;
use crate::guard::{Path, Visitor};
use crate::intake::{Draft, DraftCheck, ReadingState, cannot_keep};
use crate::pages::render::{View, path_of, problem_page, render, sentence};
use crate::pages::search::{phone_example, phone_problem};
use crate::problem::Problem;
use crate::state::ServerState;

#[derive(Default, Serialize)]
pub(super) struct CheckPage {
    steps: Steps,
    check: DraftCheck,
    /// Why the campaign cannot be started, or was not.
    problem: Option<String>,
    may_start: bool,
    /// `1 message`
    messages: String,
    has_rejects: bool,
    test: TestForm,
}

impl View for CheckPage {
    const TEMPLATE: &'static str = "draft_check.html";
    const SECTION: &'static str = "new";
}

/// A test message, and what became of those before.
#[derive(Default, Serialize)]
struct TestForm {
    phone: String,
    example: String,
    problem: Option<String>,
    /// The address of the campaign of test messages.
    path: Option<String>,
    states: String,
}

/// What is wrong with a form of this step.
pub(super) enum Wrong {
    Start(String),
    Test { phone: String, problem: String },
}

pub(super) async fn show(
    shared: &ServerState,
    visitor: &Visitor,
    draft: &Draft,
    wrong: Option<Wrong>,
) -> Result<Response, Problem> {
    let check = match shared.drafts.check(draft).await {
        ReadingState::Done(check) => check,
        ReadingState::Running(rows) => return Ok(working(visitor, rows)),
    };
    let mut page = CheckPage {
        steps: Steps::of(draft, "check"),
        may_start: check.problem.is_none() && check.messages > 0,
        messages: messages(check.messages),
        has_rejects: draft.rejects_file().is_some(),
        problem: check.problem.clone().or_else(|| draft.problem()),
        test: TestForm { example: phone_example(shared), ..TestForm::default() },
        check,
    };
    if let Some(name) = shared.drafts.test_campaign(draft)
        && let Some(campaign) = shared.store.campaign(&name).await?
    {
        let totals = shared.store.report().totals(Some(campaign.id)).await?;
        let states = [
            (totals.queued + totals.sending, "queued"),
            (totals.sent, "sent"),
            (totals.failed, "failed"),
            (totals.unknown, "unknown"),
        ];
        let shown: Vec<String> = states
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, state)| format!("{count} {state}"))
            .collect();
        page.test.path = Some(path_of(&name));
        page.test.states = shown.join(", ");
    }
    let status = match wrong {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    match wrong {
        Some(Wrong::Start(problem)) => page.problem = Some(problem),
        Some(Wrong::Test { phone, problem }) => {
            page.test.phone = phone;
            page.test.problem = Some(sentence(&problem));
        }
        None => {}
    }
    page.problem = page.problem.map(|problem| sentence(&problem));
    Ok(render(status, visitor, &page))
}

/// Sends the first message to the person who makes the campaign.
pub(super) async fn test(
    shared: &Arc<ServerState>,
    visitor: &Visitor,
    draft: &Draft,
    given: &Given,
) -> Result<Response, Problem> {
    let entered = given.get("phone").map_or("", String::as_str);
    let wrong = |problem: String| Wrong::Test { phone: entered.to_owned(), problem };
    let list = match shared.drafts.list(draft).await {
        ReadingState::Done(list) => list,
        ReadingState::Running(rows) => return Ok(working(visitor, rows)),
    };
    let phone = match Phone::parse(entered, shared.default_region) {
        Ok(phone) => phone,
        Err(error) => {
            let problem = wrong(phone_problem(&error));
            return show(shared, visitor, draft, Some(problem)).await;
        }
    };
    let sent = shared.drafts.send_test(draft, list, phone, &visitor.identity.name);
    match sent.await {
        Ok(campaign) => {
            let detail = format!("queued a test message in `{campaign}`");
            let who = &visitor.identity.name;
            let store = &shared.store;
            store.record(who, "test", Some(&campaign), &detail).await?;
            shared.counts.show_change(store, &campaign).await;
            Ok(see(&draft.id, "check"))
        }
        Err(problem) => show(shared, visitor, draft, Some(wrong(problem))).await,
    }
}

/// Starts the campaign that was checked.
pub(super) async fn start(
    shared: &Arc<ServerState>,
    visitor: &Visitor,
    mut draft: Draft,
    given: &Given,
) -> Result<Response, Problem> {
    let check = match shared.drafts.check(&draft).await {
        ReadingState::Done(check) => check,
        ReadingState::Running(rows) => return Ok(working(visitor, rows)),
    };
    let problem = if given.get("fingerprint") != Some(&check.fingerprint) {
        Some("the campaign was changed after this page was shown: look at it again, and start it")
    } else if check.messages == 0 || check.problem.is_some() {
        Some("it cannot be started")
    } else if check.again.is_some() && given.get("again").is_none() {
        Some("the list was imported into another campaign already: confirm that it is sent again")
    } else {
        None
    };
    if let Some(problem) = problem {
        let wrong = Wrong::Start(check.problem.unwrap_or_else(|| problem.to_owned()));
        return show(shared, visitor, &draft, Some(wrong)).await;
    }
    if check.again.is_some() {
        set(&mut draft.request, "again", "true");
    }
    // The name that the page shows.
    set(&mut draft.request, "campaign", &check.campaign);
    let drafts = Arc::clone(&shared.drafts);
    let id = draft.id.clone();
    let started = tokio::task::spawn_blocking(move || drafts.start(&draft)).await;
    match started {
        Ok(Ok(())) => {}
        // Another request started it.
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(see_import(&id)),
        Ok(Err(error)) => return Err(cannot_keep(&error)),
        Err(_) => return Err(Problem::unavailable("the start ended unexpectedly")),
    }
    let detail = format!("started a campaign of {} as `{id}`", messages(check.messages));
    let who = &visitor.identity.name;
    let recorded = shared.store.record(who, "start", Some(&check.campaign), &detail);
    // It is started, whether or not that can be recorded.
    if let Err(error) = recorded.await {
        tracing::warn!(%error, who, id, "a start was not recorded");
    }
    Ok(see_import(&id))
}

fn see_import(id: &str) -> Response {
    Redirect::to(&format!("/new/{id}")).into_response()
}

/// The rejected rows that the check found.
pub(super) async fn rejects(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Response {
    let file = async {
        let draft = find(&shared, &visitor, &id)?;
        rejected_rows_of_draft(&shared, &visitor.identity, &draft).await
    };
    file.await.unwrap_or_else(|problem: Problem| problem_page(&visitor, &problem, "/new"))
}
