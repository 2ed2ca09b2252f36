//! Reads and changes campaigns.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use smsq_message::text::printable_line;
use smsq_operations::{
    Actor, CampaignAction, approve, change_settings, change_state, limit, reject,
};
use smsq_report::CampaignSummary;
use smsq_store::{CampaignChange, Mode, WindowChange};
use utoipa::{IntoParams, ToSchema};

use crate::body::{MAX_BODY, WholeBody};
use crate::downloads::{READ_TIMEOUT, report_csv};
use crate::guard::{Path, Program, Query};
use crate::problem::{Fails, Problem};
use crate::state::{MAX_DOWNLOADS, ServerState};
use crate::tokens::Permission;

#[derive(Serialize, ToSchema)]
pub(super) struct CountedCampaigns {
    #[schema(format = DateTime)]
    counted_at: String,
    /// Whether no phone gets any message of this database
    #[schema(value_type = bool)]
    practice: Mode,
    campaigns: Vec<CampaignSummary>,
}

/// All campaigns with their counts
#[utoipa::path(
    get,
    path = "/v1/campaigns",
    operation_id = "getCampaigns",
    tag = "campaigns",
    security(("token" = ["read", "operate", "admin"])),
    responses(
        (status = 200, description = "As they were counted last", body = inline(CountedCampaigns)),
        Fails::<401>, Fails::<403>, Fails::<429>, Fails::<503>
    )
)]
pub(super) async fn get_campaigns(
    State(shared): State<Arc<ServerState>>,
    program: Program,
) -> Result<Json<CountedCampaigns>, Problem> {
    program.0.need(Permission::View)?;
    let snapshot = shared.counts.counted().await?;
    Ok(Json(CountedCampaigns {
        counted_at: snapshot.counted_at.to_string(),
        practice: shared.store.mode(),
        campaigns: snapshot.campaigns.clone(),
    }))
}

/// A campaign with its settings.
#[derive(Serialize, ToSchema)]
#[schema(as = Campaign)]
pub(super) struct CampaignDetails {
    #[serde(flatten)]
    summary: CampaignSummary,
    rate: String,
    priority: i32,
    provider: Option<String>,
    from: Option<String>,
    window: Option<String>,
    /// What waits for approval
    approval: Option<ApprovalDetails>,
}

/// Messages that another person has to approve.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
struct ApprovalDetails {
    /// Differs where the campaign has other messages or settings
    fingerprint: String,
    /// How many messages this token can approve; above 10,000: as many as were added
    messages: u64,
    /// How many wait for another person, because this token added them or changed the settings
    own_messages: u64,
    /// Who added messages or changed settings: each can approve only what others added
    wanted_by: BTreeSet<String>,
    /// What they wait for
    reason: Option<String>,
}

impl CampaignDetails {
    /// `who`: the name of the token, for which the approval is shown.
    async fn read(shared: &ServerState, name: &str, who: &str) -> Result<Json<Self>, Problem> {
        let campaign = shared.campaign(name).await?;
        let approval = if campaign.approval.has_waiting() {
            let subject = shared.store.approval_subject(campaign.id, who).await?;
            Some(ApprovalDetails {
                wanted_by: subject.authors(),
                fingerprint: subject.fingerprint,
                messages: subject.messages,
                own_messages: subject.own_messages,
                reason: campaign.approval_reason.clone(),
            })
        } else {
            None
        };
        Ok(Json(Self {
            approval,
            summary: CampaignSummary {
                // It is a setting here.
                window: None,
                ..CampaignSummary::quick(&shared.store, &campaign, shared.counts.known(name))
                    .await?
            },
            rate: campaign.rate.to_string(),
            priority: campaign.priority,
            provider: campaign.provider.clone(),
            from: campaign.sender.clone(),
            window: campaign.window.as_ref().map(ToString::to_string),
        }))
    }
}

/// One campaign
#[utoipa::path(
    get,
    path = "/v1/campaigns/{name}",
    operation_id = "getCampaign",
    tag = "campaigns",
    security(("token" = ["read", "operate", "admin"])),
    params(("name" = String, Path, description = "The name of the campaign", example = "codes")),
    responses(
        (status = 200, description = "Its settings and counts; those of more than 100,000 messages as they were counted last, \
            and before the first count as if all were queued",
            body = CampaignDetails),
        Fails::<400>, Fails::<401>, Fails::<403>, Fails::<404>, Fails::<429>, Fails::<503>
    )
)]
pub(super) async fn get_campaign(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(name): Path<String>,
) -> Result<Json<CampaignDetails>, Problem> {
    program.0.need(Permission::View)?;
    CampaignDetails::read(&shared, &name, &program.0.name).await
}

/// What is missing or null stays
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CampaignChange)]
struct CampaignPatch {
    /// Such as `20/s,5000/day`; `none`: no limit of its own
    rate: Option<String>,
    #[schema(minimum = -2_147_483_648, maximum = 2_147_483_647)]
    priority: Option<i32>,
    paused: Option<bool>,
    /// Such as `09:00-20:00 mon-fri Europe/Berlin`; empty: at any time
    window: Option<String>,
    /// The `fingerprint` of what is approved
    approve: Option<String>,
    /// Why it is not approved
    reject: Option<String>,
}

impl CampaignPatch {
    /// The settings that it changes.
    fn change(&self) -> Result<CampaignChange, Problem> {
        let invalid = |name: &'static str| {
            move |problem: String| Problem::invalid(format!("invalid `{name}`: {problem}"))
        };
        // An empty text was `none` in earlier versions.
        let rate = self.rate.as_deref().map(|rate| match rate.trim() {
            "" => limit("none"),
            rate => limit(rate),
        });
        Ok(CampaignChange {
            rate: rate.transpose().map_err(invalid("rate"))?,
            priority: self.priority,
            window: match self.window.as_deref() {
                None => WindowChange::Keep,
                Some("") => WindowChange::Lift,
                Some(window) => WindowChange::Set(window.parse().map_err(invalid("window"))?),
            },
            ..CampaignChange::default()
        })
    }

    /// Fails if it approves and does something else, which would be done with or without what was approved.
    fn check_decision(&self, change: &CampaignChange) -> Result<(), Problem> {
        let others = self.paused.is_some() || *change != CampaignChange::default();
        match (&self.approve, &self.reject) {
            (Some(_), Some(_)) => Err(Problem::invalid(
                "invalid change: `approve` and `reject` contradict each other",
            )),
            (Some(_), None) | (None, Some(_)) if others => Err(Problem::invalid(
                "invalid change: `approve` and `reject` stand alone; change other members in another request",
            )),
            _ => Ok(()),
        }
    }

    /// The change of the state that it asks for.
    fn action(&self) -> Option<CampaignAction> {
        self.paused.map(
            |paused| {
                if paused { CampaignAction::Pause } else { CampaignAction::Resume }
            },
        )
    }
}

/// Change a campaign
///
/// Role `operate`. Running workers see it within seconds.
#[utoipa::path(
    patch,
    path = "/v1/campaigns/{name}",
    operation_id = "changeCampaign",
    tag = "campaigns",
    security(("token" = ["operate", "admin"])),
    params(("name" = String, Path, description = "The name of the campaign", example = "codes")),
    request_body(content = CampaignPatch, content_type = "application/json",
        example = json!({"rate": "20/s", "paused": false})),
    responses(
        (status = 200, description = "Its new settings", body = CampaignDetails),
        Fails::<400>, Fails::<401>, Fails::<403>, Fails::<404>, Fails::<409>, Fails::<413>, Fails::<429>, Fails::<503>
    ),
    extensions(("x-limits" = json!(format!("a change of {} MiB", MAX_BODY >> 20))))
)]
pub(super) async fn change_campaign(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(name): Path<String>,
    WholeBody(body): WholeBody,
) -> Result<Json<CampaignDetails>, Problem> {
    program.0.need(Permission::Operate)?;
    let mut json = serde_json::Deserializer::from_slice(&body);
    let patch: CampaignPatch = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (field, error) = (error.path().to_string(), error.into_inner());
        let (line, column) = (error.line(), error.column());
        Problem::invalid(if !error.is_data() {
            format!("invalid change: it is not JSON (line {line}, column {column})")
        } else if field == "." {
            error.to_string()
        } else {
            format!("invalid `{field}`: {error}")
        })
    })?;
    let change = patch.change()?;
    patch.check_decision(&change)?;
    let mut campaign = shared.campaign(&name).await?;
    let actor = Actor::of_token(&program.0.name);
    if let Some(fingerprint) = &patch.approve {
        approve(&shared.store, &campaign, fingerprint, &actor).await?;
    }
    if let Some(reason) = &patch.reject {
        let reason = printable_line(reason);
        reject(&shared.store, &campaign, &reason, &actor).await?;
    }
    // The state first: a cancelled campaign takes settings when it is resumed.
    if let Some(action) = patch.action() {
        change_state(&shared.store, &campaign, action, &actor).await?;
        campaign = shared.campaign(&name).await?;
    }
    change_settings(&shared.store, &shared.lists, &campaign, &change, &actor).await?;
    CampaignDetails::read(&shared, &name, &program.0.name).await
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase", default = "failed")]
#[expect(dead_code, reason = "describes texts")]
enum ReportList {
    Failed,
    Undelivered,
    Sent,
    Figures,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReportQuery {
    #[param(value_type = ReportList, required = false, inline)]
    list: Option<String>,
}

/// A list of messages, or the counts, as CSV
///
/// Phones and texts are hidden from role `read`.
#[utoipa::path(
    get,
    path = "/v1/campaigns/{name}/report.csv",
    operation_id = "getReport",
    tag = "campaigns",
    security(("token" = ["read", "operate", "admin"])),
    params(("name" = String, Path, description = "The name of the campaign", example = "codes"), ReportQuery),
    responses(
        (status = 200, description = "The list", body = String, content_type = "text/csv"),
        Fails::<400>, Fails::<401>, Fails::<403>, Fails::<404>, Fails::<429>, Fails::<503>
    ),
    extensions(("x-limits" = json!(format!(
        "{MAX_DOWNLOADS} downloads at once; {} s for each part", READ_TIMEOUT.as_secs()
    ))))
)]
pub(super) async fn get_report(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(name): Path<String>,
    Query(query): Query<ReportQuery>,
) -> Result<Response, Problem> {
    program.0.need(Permission::View)?;
    let list = query.list.as_deref().unwrap_or("failed");
    report_csv(&shared, &program.0, &name, list).await
}
