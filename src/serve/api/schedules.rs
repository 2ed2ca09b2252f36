//! Reads schedules.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use smsq_operations::ScheduleReport;
use smsq_store::Mode;
use utoipa::ToSchema;

use crate::guard::Program;
use crate::problem::{Fails, Problem};
use crate::state::ServerState;
use crate::tokens::Permission;

#[derive(Serialize, ToSchema)]
pub(super) struct ListedSchedules {
    /// Whether no phone gets any message of this database
    #[schema(value_type = bool)]
    practice: Mode,
    schedules: Vec<ScheduleReport>,
}

/// All schedules with their last runs
#[utoipa::path(
    get,
    path = "/v1/schedules",
    operation_id = "getSchedules",
    tag = "campaigns",
    security(("token" = ["read", "operate", "admin"])),
    responses(
        (status = 200, description = "In the order of their names", body = inline(ListedSchedules)),
        Fails::<401>, Fails::<403>, Fails::<429>, Fails::<503>
    )
)]
pub(super) async fn get_schedules(
    State(shared): State<Arc<ServerState>>,
    program: Program,
) -> Result<Json<ListedSchedules>, Problem> {
    program.0.need(Permission::View)?;
    let schedules = shared.schedule_reports(&program.0).await?;
    Ok(Json(ListedSchedules { practice: shared.store.mode(), schedules }))
}
