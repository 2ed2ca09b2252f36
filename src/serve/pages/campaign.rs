//! The page of a campaign: what is wrong, what can be done, and its report, with counts that are newer.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use minijinja::context;
use minijinja::value::{Serde, Value};

use super::action::Action;
use super::activity::activity_values;
use super::live::{Live, ago, alert_values, last_hour, now_facts, unchanged};
use super::render::{path_of, problem_page, render, visitor_values};
use crate::report::{self, CampaignSummary, delivery, hide, states};
use crate::serve::counts::{Details, Snapshot};
use crate::serve::guard::{Path, Query, Visitor};
use crate::serve::problem::unknown_campaign;
use crate::serve::state::ServerState;
use crate::serve::tokens::Permission;
use crate::store::report::FailureRecord;

pub(super) async fn campaign(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(name): Path<String>,
    Query(live): Query<Live>,
) -> Response {
    let snapshot = shared.counts.recent().await;
    if snapshot.revision > 0 && snapshot.settings_of(&name).is_none() {
        return problem_page(&visitor, &unknown_campaign(&name), "/");
    }
    let details = shared.counts.details(&name).await;
    if details.is_some()
        && let Some(response) = unchanged(live.live, &snapshot)
    {
        return response;
    }
    let may_operate = visitor.0.may(Permission::Operate);
    let summary = snapshot.summary_of(&name);
    let rejected = details.as_ref().map(|details| details.rejected.clone());
    let report = details
        .as_ref()
        .map(|details| report_values(details, may_operate));
    let counts = summary.map(|one| {
        context! {
            imported => one.totals.imported,
            states => states(&one.totals),
            delivery => delivery(&one.totals),
        }
    });
    let values = context! {
        is_live => true,
        path => path_of(&name),
        revision => snapshot.revision,
        name => name.as_str(),
        is_counted => counts.is_some() || report.is_some(),
        counted => ago(snapshot.age()),
        rejected => Value::from(Serde(rejected)),
        last_hour => snapshot.settings_of(&name).and_then(|one| last_hour(&snapshot, Some(one))),
        alerts => summary.map(|one| alert_values(&shared, &snapshot, Some(one))),
        ..state_values(&snapshot, summary)
    };
    let actions = summary.filter(|_| may_operate);
    let actions = actions.map(|one| action_values(&snapshot, one));
    let values = context! { ..values, ..actions.unwrap_or_else(|| context! {}) };
    let values = context! { ..values, ..activity_values(&snapshot) };
    let values = context! { ..values, ..visitor_values(&visitor, "campaign") };
    // The counts are read more often than the rest.
    let values = context! { ..values, ..counts.unwrap_or_else(|| context! {}) };
    let values = context! { ..values, ..report.unwrap_or_else(|| context! {}) };
    render(StatusCode::OK, "campaign.html", values)
}

/// Its state, and what it does now.
fn state_values(snapshot: &Snapshot, summary: Option<&CampaignSummary>) -> Value {
    let Some(summary) = summary else {
        return context! {};
    };
    let settings = snapshot.settings_of(&summary.campaign);
    let id = settings.map(|one| one.id).filter(|_| !summary.is_over());
    let rate = id.and_then(|id| snapshot.rate(Some(id)));
    let limit = settings.filter(|one| !one.rate.0.is_empty());
    let limit = limit.map(|one| one.rate.to_string());
    let due = if summary.is_due() {
        summary.totals.queued
    } else {
        0
    };
    let mut now = now_facts(snapshot, rate, limit.as_deref(), due);
    now.extend(summary.next.describe());
    let window = summary.window.as_ref();
    now.extend(window.map(|window| format!("window {}", window.describe())));
    context! {
        state => summary.state,
        state_reason => summary.state_reason.as_deref(),
        now,
    }
}

/// What can be done with it; apart from it, what would change nothing now.
fn action_values(snapshot: &Snapshot, summary: &CampaignSummary) -> Value {
    let campaign = snapshot.settings_of(&summary.campaign);
    let possible = campaign.map(|one| Action::possible(one, &summary.totals));
    let (later, now): (Vec<Action>, Vec<Action>) = possible
        .unwrap_or_default()
        .into_iter()
        .partition(|action| summary.is_over() && action.is_for_unsent());
    let values = |actions: Vec<Action>| -> Vec<Value> {
        let actions = actions.into_iter();
        actions
            .map(|action| {
                context! {
                    name => action.as_str(),
                    label => action.label(),
                    is_dangerous => action.is_dangerous(),
                }
            })
            .collect()
    };
    context! { actions => values(now), more_actions => values(later) }
}

/// The sections of a report.
fn report_values(details: &Details, is_whole: bool) -> Value {
    let mut failures: Vec<FailureRecord> = details.failures.clone();
    let report = if is_whole {
        &details.report
    } else {
        failures.iter_mut().for_each(hide);
        &details.masked
    };
    report::view(report, &failures)
}
