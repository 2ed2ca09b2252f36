//! The schedules with their last runs, and pausing, resuming and running one.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use smsq_message::text::counted;
use smsq_operations::{Actor, OperationError, Per, RunReport, pause_schedule, resume_schedule};
use smsq_store::{ScheduleRow, ScheduleSettings};

use super::actions::ConfirmPage;
use super::render::{MessagePage, View, problem_page, render};
use crate::guard::{Path, Visitor};
use crate::problem::Problem;
use crate::state::ServerState;
use crate::tokens::Permission;

const PATH: &str = "/schedules";
/// How long a page waits for a run before it says that the run continues.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Default, Serialize)]
pub(super) struct SchedulesPage {
    schedules: Vec<ScheduleView>,
}

impl View for SchedulesPage {
    const TEMPLATE: &'static str = "schedules.html";
    const SECTION: &'static str = "schedules";
}

#[derive(Serialize)]
struct ScheduleView {
    name: String,
    description: String,
    next: Option<String>,
    path: String,
    is_paused: bool,
    runs: Vec<RunReport>,
}

pub(super) async fn schedules(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
) -> Response {
    match shared.schedule_reports(&visitor.identity).await {
        Ok(reports) => {
            let views = reports.into_iter().map(|report| ScheduleView {
                description: report.describe(),
                path: path_of(&report.name),
                is_paused: report.next.is_none(),
                runs: report.runs,
                name: report.name,
                next: report.next,
            });
            let page = SchedulesPage { schedules: views.collect() };
            render(StatusCode::OK, &visitor, &page)
        }
        Err(problem) => problem_page(&visitor, &problem, "/"),
    }
}

/// The schedule of that name. Fails if it is unknown.
async fn found(shared: &ServerState, name: &str) -> Result<ScheduleRow, Problem> {
    let schedule = shared.store.schedules().named(name).await?;
    schedule
        .ok_or_else(|| Problem::not_found(format!("unknown schedule `{}`", name.escape_debug())))
}

fn path_of(name: &str) -> String {
    format!("{PATH}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// A change of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScheduleAction {
    Pause,
    Resume,
    Run,
}

impl ScheduleAction {
    const ALL: [Self; 3] = [Self::Pause, Self::Resume, Self::Run];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Run => "run",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Run => "Run now",
        }
    }

    fn of(name: &str) -> Result<Self, Problem> {
        Self::ALL
            .into_iter()
            .find(|action| action.as_str() == name)
            .ok_or_else(|| Problem::not_found("there is nothing at this address"))
    }

    fn question(self, schedule: &ScheduleRow) -> String {
        let ScheduleSettings { name, per, .. } = &schedule.settings;
        match self {
            Self::Pause => format!("Pause schedule `{name}`? It does not run until it is resumed."),
            Self::Resume => format!("Resume schedule `{name}` with its next run?"),
            Self::Run if per == Per::Run.as_str() => format!(
                "Import what the query of schedule `{name}` returns now? Each key gets a message, also if an earlier run gave \
                 it one."
            ),
            Self::Run => format!(
                "Import what the query of schedule `{name}` returns now? A key that has a message of this {per} gets no other one."
            ),
        }
    }

    /// Makes the change; returns what was done.
    async fn run(
        self,
        shared: &ServerState,
        schedule: ScheduleRow,
        actor: Actor,
    ) -> Result<String, OperationError> {
        let name = schedule.name.clone();
        Ok(match self {
            Self::Pause => {
                pause_schedule(&shared.store, &schedule, &actor).await?;
                format!("Paused schedule `{name}`.")
            }
            Self::Resume => {
                resume_schedule(&shared.store, &schedule, &actor).await?;
                format!("Resumed schedule `{name}`.")
            }
            Self::Run => {
                let running = Arc::clone(&shared.scheduler).run_now(schedule, actor);
                let (campaign, counts) = running.await?;
                let (rows, accepted) = (counted(counts.rows, "row"), counts.accepted);
                format!(
                    "Ran schedule `{name}`: {rows}, {accepted} accepted into campaign `{campaign}`."
                )
            }
        })
    }
}

/// Asks whether to make a change.
pub(super) async fn ask(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path((name, action)): Path<(String, String)>,
) -> Response {
    let page = async {
        visitor.identity.need(Permission::Operate)?;
        let action = ScheduleAction::of(&action)?;
        let schedule = found(&shared, &name).await?;
        let question = action.question(&schedule);
        let page =
            ConfirmPage::plain(action.as_str(), action.label(), question, path_of(&name), PATH);
        Ok(render(StatusCode::OK, &visitor, &page))
    };
    page.await.unwrap_or_else(|problem: Problem| problem_page(&visitor, &problem, PATH))
}

/// Makes a change.
pub(super) async fn act(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path((name, action)): Path<(String, String)>,
) -> Response {
    match change(&shared, &visitor, &name, &action).await {
        Ok(page) => page,
        Err(problem) => problem_page(&visitor, &problem, PATH),
    }
}

async fn change(
    shared: &Arc<ServerState>,
    visitor: &Visitor,
    name: &str,
    action_name: &str,
) -> Result<Response, Problem> {
    visitor.identity.need(Permission::Operate)?;
    let action = ScheduleAction::of(action_name)?;
    let schedule = found(shared, name).await?;
    let (actor, state) = (Actor::of_token(&visitor.identity.name), Arc::clone(shared));
    // A task of its own: a run is not cut off when its client disconnects.
    let changing = tokio::spawn(async move { action.run(&state, schedule, actor).await });
    let (status, message) = match tokio::time::timeout(ANSWER_WITHIN, changing).await {
        Ok(Ok(done)) => (StatusCode::OK, done?),
        // A panic, which has been logged.
        Ok(Err(_)) => return Err(Problem::unavailable("the change ended unexpectedly")),
        Err(_) => {
            let message =
                "This takes longer, and continues. The page Schedules shows when it is done.";
            (StatusCode::ACCEPTED, message.to_owned())
        }
    };
    let page = MessagePage {
        title: action.label(),
        message: &message,
        back: PATH,
        back_label: "Back to the schedules",
    };
    Ok(render(status, visitor, &page))
}
