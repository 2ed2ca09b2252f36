//! Reads and changes campaigns.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::respond;
use crate::operations::{Actor, CampaignAction, change_settings, change_state, limit};
use crate::report::CampaignSummary;
use crate::serve::downloads::report_csv;
use crate::serve::guard::{Path, Program, Query, WholeBody};
use crate::serve::problem::Problem;
use crate::serve::state::ServerState;
use crate::serve::tokens::Permission;
use crate::store::{CampaignChange, WindowChange};

pub(super) async fn get_campaigns(
    State(shared): State<Arc<ServerState>>,
    program: Program,
) -> Result<Response, Problem> {
    program.0.need(Permission::View)?;
    let snapshot = shared.counts.counted().await?;
    let campaigns = &snapshot.campaigns;
    Ok(respond(
        StatusCode::OK,
        &json!({ "counted_at": snapshot.counted_at.to_string(), "campaigns": campaigns }),
    ))
}

async fn campaign_json(shared: &ServerState, name: &str) -> Result<Value, Problem> {
    let campaign = shared.campaign(name).await?;
    let mut object = json!(CampaignSummary::of(&shared.store, &campaign).await?);
    object["rate"] = json!(campaign.rate.to_string());
    object["priority"] = json!(campaign.priority);
    object["provider"] = json!(campaign.provider);
    object["from"] = json!(campaign.sender);
    object["window"] = json!(campaign.window.as_ref().map(ToString::to_string));
    Ok(object)
}

pub(super) async fn get_campaign(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    program.0.need(Permission::View)?;
    let object = campaign_json(&shared, &name).await?;
    Ok(respond(StatusCode::OK, &object))
}

/// Changes of a campaign; what is missing stays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CampaignPatch {
    rate: Option<String>,
    priority: Option<i32>,
    paused: Option<bool>,
    /// `09:00-20:00 mon-fri Europe/Berlin`; empty: at any time.
    window: Option<String>,
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

    /// The change of the state that it asks for.
    fn action(&self) -> Option<CampaignAction> {
        self.paused.map(|paused| {
            if paused {
                CampaignAction::Pause
            } else {
                CampaignAction::Resume
            }
        })
    }
}

pub(super) async fn change_campaign(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(name): Path<String>,
    WholeBody(body): WholeBody,
) -> Result<Response, Problem> {
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
    let mut campaign = shared.campaign(&name).await?;
    let change = patch.change()?;
    let actor = Actor::of_token(&program.0.name);
    // The state first: a cancelled campaign takes settings when it is resumed.
    if let Some(action) = patch.action() {
        change_state(&shared.store, &campaign, action, &actor).await?;
        campaign = shared.campaign(&name).await?;
    }
    change_settings(&shared.store, &campaign, &change, &actor).await?;
    let object = campaign_json(&shared, &name).await?;
    Ok(respond(StatusCode::OK, &object))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportQuery {
    list: Option<String>,
}

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
