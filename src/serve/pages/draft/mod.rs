//! A new campaign, made in steps: its list, its text, its settings, and a check before it starts. Each step is a page
//! with a form, so that back and reload lose nothing; what is entered is kept with the list.

mod begin;
mod check;
mod fields;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::StatusCode;
use indicatif::HumanCount;
use serde::Serialize;

use super::login::AfterLogIn;
use super::render::{View, problem_page, render};
use crate::body::Form;
use crate::guard::{Path, Query, SameSite, Visitor};
use crate::intake::Draft;
use crate::problem::Problem;
use crate::state::ServerState;
use crate::tokens::Permission;
use steps::DraftStep;

type Given = BTreeMap<String, String>;

pub(super) fn routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/new/{id}", get(begin::resume))
        .route("/new/{id}/rejects.csv", get(check::rejects))
        .route("/new/{id}/{step}", get(show).post(save))
}

/// The routes of which the body is limited by their handler.
pub(super) fn upload_routes() -> Router<Arc<ServerState>> {
    Router::new().route("/new", get(begin::begin).merge(post(begin::upload)))
}

/// The steps, as each page lists them.
#[derive(Default, Serialize)]
struct Steps {
    id: String,
    /// The name of the list.
    file: String,
    /// Name, title, and whether it is the present one.
    all: Vec<(&'static str, &'static str, bool)>,
}

impl Steps {
    fn of(draft: &Draft, present: &str) -> Self {
        let steps = [
            ("list", "List"),
            ("text", "Text"),
            ("settings", "Settings"),
            ("check", "Check and start"),
        ];
        Self {
            id: draft.id.clone(),
            file: draft.file.clone(),
            all: steps.into_iter().map(|(name, title)| (name, title, name == present)).collect(),
        }
    }
}

/// Shown while a list is read.
#[derive(Default, Serialize)]
pub(super) struct WorkingPage {
    revision: u64,
    title: &'static str,
    what: String,
    /// Rows of all rows, in percent, if that is known.
    percent: Option<u64>,
    follow: Option<String>,
    /// What happens when the page is left.
    note: &'static str,
}

impl View for WorkingPage {
    const TEMPLATE: &'static str = "working.html";
    const SECTION: &'static str = "new";
    const IS_LIVE: bool = true;
}

fn working(visitor: &Visitor, rows: u64) -> Response {
    let page = WorkingPage {
        revision: rows,
        title: "Reading the list",
        what: match rows {
            0 => "Reading the list …".to_owned(),
            rows => format!("Read {} rows …", HumanCount(rows)),
        },
        note: "It continues for three minutes when this page is closed.",
        ..WorkingPage::default()
    };
    render(StatusCode::OK, visitor, &page)
}

fn unknown_draft() -> Problem {
    Problem::not_found(
        "draft not found: it is deleted 7 days after its last change, and only the server that took its list has it",
    )
}

fn find(shared: &ServerState, visitor: &Visitor, id: &str) -> Result<Draft, Problem> {
    visitor.identity.need(Permission::Operate)?;
    let found = shared.drafts.find(id, &visitor.identity.name);
    found.ok_or_else(unknown_draft)
}

async fn show(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path((id, step)): Path<(String, String)>,
    Query(query): Query<Given>,
) -> Response {
    let page = async {
        let draft = find(&shared, &visitor, &id)?;
        let is_checked = query.contains_key("checked");
        match (DraftStep::named(&step), step.as_str()) {
            (Some(step), _) => step.show(&shared, &visitor, &draft, is_checked).await,
            (None, "check") => check::show(&shared, &visitor, &draft, None).await,
            (None, "delete") => Ok(begin::ask_to_delete(&visitor, &draft)),
            // Where a form was posted.
            (None, "test" | "start") => Ok(see(&id, "check")),
            (None, _) => Err(Problem::not_found("there is nothing at this address")),
        }
    };
    answered(&shared, &visitor, &id, page.await)
}

async fn save(
    State(shared): State<Arc<ServerState>>,
    _: SameSite,
    visitor: Result<Visitor, Problem>,
    Path((id, step)): Path<(String, String)>,
    Form(given): Form<Given>,
) -> Response {
    let Ok(visitor) = visitor else {
        let after = AfterLogIn::form(&format!("/new/{id}/{step}"), given);
        return after.ask(shared.store.mode(), None);
    };
    let page = async {
        let draft = find(&shared, &visitor, &id)?;
        match (DraftStep::named(&step), step.as_str()) {
            (Some(step), _) => step.save(&shared, &visitor, draft, &given).await,
            (None, "check") => {
                shared.drafts.forget_check(&draft);
                Ok(see(&id, "check"))
            }
            (None, "test") => check::test(&shared, &visitor, &draft, &given).await,
            (None, "start") => check::start(&shared, &visitor, draft, &given).await,
            (None, "delete") => begin::delete(&shared, &visitor, &draft),
            (None, _) => Err(Problem::not_found("there is nothing at this address")),
        }
    };
    answered(&shared, &visitor, &id, page.await)
}

/// A started draft is not found any more: its import is shown.
fn answered(
    shared: &ServerState,
    visitor: &Visitor,
    id: &str,
    page: Result<Response, Problem>,
) -> Response {
    page.unwrap_or_else(|problem| {
        let is_started = problem.status == StatusCode::NOT_FOUND
            && shared.intake.uploads.status(id, Some(&visitor.identity.name)).is_some();
        if is_started {
            Redirect::to(&format!("/new/{id}")).into_response()
        } else {
            problem_page(visitor, &problem, "/new")
        }
    })
}

/// Shows a step with a request of its own, so that it can be reloaded.
fn see(id: &str, step: &str) -> Response {
    Redirect::to(&format!("/new/{id}/{step}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::super::render::tests::assert_renders;
    use super::*;
    use crate::intake::{DraftList, UploadRequest};
    use crate::tokens::{Identity, Role};

    #[test]
    fn every_step_has_the_names_of_its_template() {
        assert_renders(&WorkingPage::default());
        assert_renders(&begin::BeginPage::default());
        assert_renders(&begin::DeletePage::default());
        let request = UploadRequest::of(&Identity { name: "ann".to_owned(), role: Role::Operate });
        for step in DraftStep::ALL {
            assert_renders(&step.page(&request, DraftList::default(), None));
        }
        assert_renders(&check::CheckPage::default());
    }
}
