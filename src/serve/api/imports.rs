//! Takes files to import, and says what became of them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

use super::posted_by;
use crate::body::{FileForm, PART_TIMEOUT};
use crate::downloads::rejected_rows;
use crate::guard::{Path, Program};
use crate::intake::{
    ImportStatus, MAX_FILE, MAX_UPLOADS, UploadField, UploadForm, UploadRequest, cannot_keep,
};
use crate::problem::{Fails, Problem};
use crate::state::ServerState;
use crate::tokens::Permission;

/// The most bytes of the other fields of an upload.
const MAX_FIELD: usize = 64 << 10;

#[derive(Serialize, ToSchema)]
struct AcceptedUpload {
    import: String,
}

/// Import a file
///
/// Role `send`. Field `file` has the list; the other fields are flags of `smsq import` without `--`. Fields that can
/// change a campaign need role `admin`. The campaign keeps its state, and is not resumed if it is cancelled.
#[utoipa::path(
    post,
    path = "/v1/imports",
    operation_id = "postImport",
    tag = "imports",
    security(("token" = ["send", "admin"])),
    request_body(content = inline(UploadForm), content_type = "multipart/form-data"),
    responses(
        (status = 202, description = "The file is stored, and imported in the background, also after a restart",
            headers(("Location" = String, description = "Where its state is")), body = inline(AcceptedUpload)),
        Fails::<400>, Fails::<401>, Fails::<403>, Fails::<408>, Fails::<409>, Fails::<413>, Fails::<429>,
        Fails::<503>, Fails::<507>
    ),
    extensions(("x-limits" = json!(format!(
        "a file of {} GiB, {} KiB for each other field; {} s for each part; {MAX_UPLOADS} files wait",
        MAX_FILE >> 30, MAX_FIELD >> 10, PART_TIMEOUT.as_secs()
    ))))
)]
pub(super) async fn post_import(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    form: Result<FileForm, Problem>,
) -> Result<Response, Problem> {
    program.0.need(Permission::Send)?;
    let uploads = &shared.intake.uploads;
    let form = uploads.read_form(form?, MAX_FIELD, |name| check_field(name, &program));
    let (fields, file) = form.await?;
    let Some(file) = file else {
        return Err(Problem::invalid("missing field `file`: the list to import"));
    };
    let request = UploadRequest { fields, ..UploadRequest::of(&program.0) };
    uploads.check(&request).map_err(|error| Problem::invalid(error.message))?;
    let campaign = request
        .fields
        .iter()
        .find(|field| field.name == "campaign")
        .map(|field| field.value.clone());
    if let Some(campaign) = &campaign {
        shared.intake.check_campaign(campaign.trim()).await?;
    }
    let id = uploads.accept(file, request).await.map_err(|error| cannot_keep(&error))?;
    let detail = format!("uploaded a list as `{id}`");
    // The file is taken, whether or not that can be recorded.
    let recorded = shared.store.record(&program.0.name, "upload", campaign.as_deref(), &detail);
    if let Err(error) = recorded.await {
        tracing::warn!(%error, who = program.0.name, id, "an upload was not recorded");
    }
    let location = [(header::LOCATION, format!("/v1/imports/{id}"))];
    let accepted = Json(AcceptedUpload { import: id });
    Ok((StatusCode::ACCEPTED, location, accepted).into_response())
}

/// Fails if the field is unknown, or if the role may not use it.
fn check_field(name: &str, program: &Program) -> Result<(), Problem> {
    match UploadField::named(name) {
        Some(UploadField::Change) if !UploadRequest::may_change(&program.0) => {
            let needed = [Permission::Send, Permission::Operate];
            let problem = Problem::forbidden(&needed, program.0.role);
            let detail = format!("field `{name}`: {}", problem.detail);
            Err(Problem::new(problem.status, detail))
        }
        Some(UploadField::List | UploadField::Change) => Ok(()),
        None => Err(Problem::invalid(format!(
            "unknown field `{}`: an upload has `file` and {}",
            name.escape_debug(),
            UploadField::names()
        ))),
    }
}

fn unknown_import() -> Problem {
    Problem::not_found(
        "import not found: results are kept for 7 days, at most 100, on the host that took the file",
    )
}

/// The state of an import
///
/// The host that took the file keeps the last 100 results, each for a week. Role `send` finds only what was uploaded
/// with the same token.
#[utoipa::path(
    get,
    path = "/v1/imports/{id}",
    operation_id = "getImport",
    tag = "imports",
    security(("token" = ["send", "admin"])),
    params(("id" = String, Path, description = "The id of the import", example = "019ab3c4d5e6f0a1b2c3")),
    responses(
        (status = 200, description = "With the counts that `smsq import --format json` prints, once it is done",
            body = ImportStatus),
        Fails::<400>, Fails::<401>, Fails::<403>, Fails::<404>, Fails::<429>
    )
)]
pub(super) async fn get_import(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(id): Path<String>,
) -> Result<Json<ImportStatus>, Problem> {
    program.0.need(Permission::Send)?;
    let status = shared.intake.uploads.status(&id, posted_by(&program));
    status.map(Json).ok_or_else(unknown_import)
}

/// The rejected rows, with line and reason
///
/// Role `send` finds only what was uploaded with the same token.
#[utoipa::path(
    get,
    path = "/v1/imports/{id}/rejects.csv",
    operation_id = "getRejects",
    tag = "imports",
    security(("token" = ["send", "admin"])),
    params(("id" = String, Path, description = "The id of the import", example = "019ab3c4d5e6f0a1b2c3")),
    responses(
        (status = 200, description = "A list that can be fixed and imported", body = String, content_type = "text/csv"),
        Fails::<400>, Fails::<401>, Fails::<403>, Fails::<404>, Fails::<429>, Fails::<503>
    )
)]
pub(super) async fn get_rejects(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    program.0.need(Permission::Send)?;
    let status = shared.intake.uploads.status(&id, posted_by(&program));
    status.ok_or_else(unknown_import)?;
    rejected_rows(&shared, &program.0, &id).await
}
