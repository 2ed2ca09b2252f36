//! Begins a campaign with a list, lists what was begun, and shows the import of what was started.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use indicatif::HumanCount;
use serde::Serialize;
use smsq_message::text::ago;

use super::{Steps, WorkingPage, find, see};
use crate::body::FileForm;
use crate::guard::{Path, Visitor};
use crate::intake::{Draft, ImportState, MAX_DRAFTS, PartialUpload, UploadRequest, cannot_keep};
use crate::pages::render::{View, path_of, problem_page, render, sentence};
use crate::problem::Problem;
use crate::state::ServerState;
use crate::tokens::Permission;

/// The most bytes of numbers that are pasted.
const MAX_PASTED: usize = 1 << 20;
/// The field with numbers that are pasted, and the name of the list that they become.
const NUMBERS: &str = "numbers";
const PASTED: &str = "numbers.csv";

#[derive(Default, Serialize)]
pub(super) struct BeginPage {
    problem: Option<String>,
    numbers: String,
    drafts: Vec<BegunDraft>,
}

impl View for BeginPage {
    const TEMPLATE: &'static str = "new.html";
    const SECTION: &'static str = "new";
}

/// A draft that can be continued.
#[derive(Serialize)]
struct BegunDraft {
    id: String,
    file: String,
    campaign: Option<String>,
    changed: String,
}

impl BeginPage {
    fn of(shared: &ServerState, visitor: &Visitor, problem: Option<&Problem>) -> Self {
        let drafts = shared.drafts.of(&visitor.identity.name).into_iter();
        let begun = |draft: Draft| BegunDraft {
            campaign: draft.request.value("campaign").map(str::to_owned),
            changed: ago(draft.changed.elapsed().unwrap_or_default()),
            id: draft.id,
            file: draft.file,
        };
        Self {
            problem: problem.map(|problem| sentence(&problem.detail)),
            numbers: String::new(),
            drafts: drafts.map(begun).collect(),
        }
    }
}

pub(super) async fn begin(State(shared): State<Arc<ServerState>>, visitor: Visitor) -> Response {
    match visitor.identity.need(Permission::Operate) {
        Ok(()) => {
            let page = BeginPage::of(&shared, &visitor, None);
            render(StatusCode::OK, &visitor, &page)
        }
        Err(problem) => problem_page(&visitor, &problem, "/"),
    }
}

pub(super) async fn upload(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    form: Result<FileForm, Problem>,
) -> Response {
    if let Err(problem) = visitor.identity.need(Permission::Operate) {
        return problem_page(&visitor, &problem, "/");
    }
    match take(&shared, &visitor, form).await {
        Ok(id) => see(&id, "list"),
        Err(problem) => {
            let page = BeginPage::of(&shared, &visitor, Some(&problem));
            render(problem.status, &visitor, &page)
        }
    }
}

async fn take(
    shared: &ServerState,
    visitor: &Visitor,
    form: Result<FileForm, Problem>,
) -> Result<String, Problem> {
    let uploads = &shared.intake.uploads;
    if shared.drafts.of(&visitor.identity.name).len() >= MAX_DRAFTS {
        let detail = format!("{MAX_DRAFTS} campaigns are begun: start or delete one of them");
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
    }
    let form = uploads.read_form(form?, MAX_PASTED, |name| {
        if name == NUMBERS {
            Ok(())
        } else {
            let name = name.escape_debug();
            Err(Problem::invalid(format!(
                "unknown field `{name}`: a list is in `file` or `numbers`"
            )))
        }
    });
    let (fields, file) = form.await?;
    let pasted = fields.iter().map(|field| field.value.trim()).rfind(|text| !text.is_empty());
    let upload = match (file, pasted) {
        (Some(_), Some(_)) => {
            return Err(Problem::invalid(
                "choose a file or paste numbers, not both: a campaign is made of one list",
            ));
        }
        (Some(file), None) => file,
        (None, Some(text)) => keep(uploads.create(PASTED), &lines(text))?,
        (None, None) => {
            return Err(Problem::invalid("missing list: choose a file, or paste numbers"));
        }
    };
    let request = UploadRequest { is_draft: true, ..UploadRequest::of(&visitor.identity) };
    let drafts = Arc::clone(&shared.drafts);
    let created = tokio::task::spawn_blocking(move || drafts.create(upload, &request));
    match created.await {
        Ok(Ok(id)) => {
            record_upload(shared, visitor, &id).await;
            Ok(id)
        }
        Ok(Err(error)) => Err(cannot_keep(&error)),
        Err(_) => Err(Problem::unavailable("the upload ended unexpectedly")),
    }
}

/// Records who uploads phones.
async fn record_upload(shared: &ServerState, visitor: &Visitor, id: &str) {
    let who = &visitor.identity.name;
    let detail = format!("uploaded a list as draft `{id}`");
    let recorded = shared.store.record(who, "upload", None, &detail);
    // It is kept, whether or not that can be recorded.
    if let Err(error) = recorded.await {
        tracing::warn!(%error, who, id, "an upload was not recorded");
    }
}

fn keep(upload: std::io::Result<PartialUpload>, text: &str) -> Result<PartialUpload, Problem> {
    let upload = upload.map_err(|error| cannot_keep(&error))?;
    std::fs::write(&upload.path, text).map_err(|error| cannot_keep(&error))?;
    Ok(upload)
}

/// Numbers in one line become lines.
fn lines(text: &str) -> String {
    if text.contains('\n') {
        return format!("{text}\n");
    }
    let numbers: Vec<&str> =
        text.split([',', ';', '\t']).map(str::trim).filter(|number| !number.is_empty()).collect();
    numbers.join("\n") + "\n"
}

/// Continues a draft with the first step that is not done, or shows its import.
pub(super) async fn resume(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Response {
    let draft = match find(&shared, &visitor, &id) {
        Ok(draft) => draft,
        Err(problem) if problem.status == StatusCode::NOT_FOUND => {
            return match import_page(&shared, &visitor, &id) {
                Some(page) => page,
                None => problem_page(&visitor, &problem, "/new"),
            };
        }
        Err(problem) => return problem_page(&visitor, &problem, "/"),
    };
    let is_checked = draft.problem().is_some();
    let has_text = draft.request.value("text").is_some();
    see(
        &id,
        match (is_checked, has_text) {
            (true, _) => "check",
            (false, true) => "settings",
            (false, false) => "list",
        },
    )
}

/// How far the import of a started draft is; `None`: unknown.
fn import_page(shared: &ServerState, visitor: &Visitor, id: &str) -> Option<Response> {
    let uploads = &shared.intake.uploads;
    let status = uploads.status(id, Some(&visitor.identity.name))?;
    let campaign = match status.state() {
        ImportState::Done => status.campaign().map(str::to_owned),
        ImportState::Running => None,
        ImportState::Failed => {
            let detail = status.detail().unwrap_or("the import failed");
            let problem = Problem::invalid(detail);
            return Some(problem_page(visitor, &problem, "/new"));
        }
    };
    if let Some(campaign) = campaign {
        return Some(Redirect::to(&path_of(&campaign)).into_response());
    }
    let progress = uploads.progress(id);
    let rows = HumanCount(progress.rows);
    let all = progress.all.filter(|all| *all > 0);
    let page = WorkingPage {
        revision: progress.rows,
        title: "Starting the campaign",
        what: match all {
            Some(all) => format!("Queued {rows} of about {} rows …", HumanCount(all)),
            None => format!("Queued {rows} rows …"),
        },
        percent: all.map(|all| (progress.rows * 100 / all).min(100)),
        follow: None,
        note: "You can leave this page: it continues.",
    };
    Some(render(StatusCode::OK, visitor, &page))
}

/// The question whether to delete a draft.
#[derive(Default, Serialize)]
pub(super) struct DeletePage {
    steps: Steps,
}

impl View for DeletePage {
    const TEMPLATE: &'static str = "draft_delete.html";
    const SECTION: &'static str = "new";
}

pub(super) fn ask_to_delete(visitor: &Visitor, draft: &Draft) -> Response {
    let page = DeletePage { steps: Steps::of(draft, "") };
    render(StatusCode::OK, visitor, &page)
}

pub(super) fn delete(
    shared: &ServerState,
    visitor: &Visitor,
    draft: &Draft,
) -> Result<Response, Problem> {
    let deleted = shared.drafts.delete(draft);
    deleted.map_err(|error| cannot_keep(&error))?;
    tracing::info!(who = visitor.identity.name, draft = draft.id, "deleted a draft");
    Ok(Redirect::to("/new").into_response())
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn pasted_numbers_become_lines() {
        assert_eq!(lines("+44 7400 123456, 07400123457;"), "+44 7400 123456\n07400123457\n");
        assert_eq!(lines("phone,name\n1,Ann"), "phone,name\n1,Ann\n");
    }
}
