//! The page of a campaign: what is wrong, what can be done, and its report, with counts that are newer.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use smsq_message::text::ago;
use smsq_operations::{Actor, approval_subject};
use smsq_report::{BudgetStatus, CampaignSummary, Chart, Sections, hide};
use smsq_store::CampaignStatus;
use smsq_store::report::FailureRecord;

use super::action::Action;
use super::activity::Activity;
use super::live::{Live, ShownAlert, last_hour, now_facts, shown_alerts, unchanged};
use super::render::{View, path_of, problem_page, render};
use crate::counts::{Details, Snapshot};
use crate::guard::{Path, Query, Visitor};
use crate::intake::RejectedRows;
use crate::state::ServerState;
use crate::tokens::Permission;

#[derive(Default, Serialize)]
pub(super) struct CampaignPage<'a> {
    revision: u64,
    name: &'a str,
    path: String,
    state: Option<&'static str>,
    state_reason: Option<&'a str>,
    now: Vec<String>,
    counted: String,
    actions: Vec<Button>,
    /// What would change nothing now.
    more_actions: Vec<Button>,
    alerts: Vec<ShownAlert>,
    /// Whether there are counts to show.
    is_counted: bool,
    #[serde(flatten)]
    sections: Sections<'a>,
    last_hour: Option<Chart>,
    #[serde(flatten)]
    activity: Activity<'a>,
    rejected: &'a [RejectedRows],
}

impl View for CampaignPage<'_> {
    const TEMPLATE: &'static str = "campaign.html";
    const SECTION: &'static str = "campaign";
    const IS_LIVE: bool = true;
}

/// A link to the question before a change.
#[derive(Serialize)]
struct Button {
    name: &'static str,
    label: &'static str,
    is_dangerous: bool,
}

impl Button {
    fn of(action: Action) -> Self {
        Self { name: action.as_str(), label: action.label(), is_dangerous: action.is_dangerous() }
    }
}

pub(super) async fn campaign(
    State(shared): State<Arc<ServerState>>,
    visitor: Visitor,
    Path(name): Path<String>,
    Query(live): Query<Live>,
) -> Response {
    let snapshot = shared.counts.recent().await;
    // A new one is not counted yet.
    if snapshot.revision > 0
        && snapshot.settings_of(&name).is_none()
        && let Err(problem) = shared.campaign(&name).await
    {
        return problem_page(&visitor, &problem, "/");
    }
    let details = shared.counts.details(&name).await;
    if details.is_some()
        && let Some(response) = unchanged(live.live, &snapshot)
    {
        return response;
    }
    let may_operate = visitor.identity.may(Permission::Operate);
    let settings = snapshot.settings_of(&name);
    let summary = snapshot.summary_of(&name);
    let failures = details.as_ref().map(|details| failures(details, may_operate));
    let mut page = CampaignPage {
        revision: snapshot.revision,
        name: &name,
        path: path_of(&name),
        counted: ago(snapshot.age()),
        is_counted: summary.is_some() || details.is_some(),
        last_hour: settings.and_then(|settings| last_hour(&snapshot, Some(settings))),
        activity: Activity::of(&snapshot),
        ..CampaignPage::default()
    };
    if let (Some(details), Some(failures)) = (&details, &failures) {
        let report = if may_operate { &details.report } else { &details.masked };
        let status = report.status();
        page.state = status.map(|status| status.state);
        page.state_reason = status.and_then(|status| status.state_reason.as_deref());
        page.sections = Sections::of(report, failures);
        page.rejected = &details.rejected;
    }
    if let Some(summary) = summary {
        page.state = Some(summary.state);
        page.state_reason = summary.state_reason.as_deref();
        page.now = sent_now(&snapshot, summary);
        page.alerts = shown_alerts(&shared, &snapshot, Some(summary));
        // They are newer than those of the report.
        page.sections = page.sections.with_totals(&summary.totals);
        if may_operate && let Some(settings) = settings {
            let mut is_approver = false;
            if settings.approval.has_waiting() {
                let actor = Actor::of_token(&visitor.identity.name);
                let subject = approval_subject(&shared.store, settings, &actor).await;
                is_approver = subject.is_ok();
                if !is_approver {
                    page.now.insert(0, "another person has to approve it".to_owned());
                }
            }
            let is_later = |action: &Action| summary.is_over() && action.is_for_unsent();
            let (later, now): (Vec<Action>, Vec<Action>) =
                Action::possible(settings, &summary.totals, is_approver)
                    .into_iter()
                    .partition(is_later);
            page.actions = now.into_iter().map(Button::of).collect();
            page.more_actions = later.into_iter().map(Button::of).collect();
        }
    }
    render(StatusCode::OK, &visitor, &page)
}

/// What a campaign does now, as short phrases.
fn sent_now(snapshot: &Snapshot, summary: &CampaignSummary) -> Vec<String> {
    let settings = snapshot.settings_of(&summary.campaign);
    let rate = settings
        .filter(|settings| settings.state == CampaignStatus::Active && !summary.is_over())
        .and_then(|settings| snapshot.rate(Some(settings.id)));
    let limit = settings
        .filter(|settings| !settings.rate.0.is_empty())
        .map(|settings| settings.rate.to_string());
    let due = if summary.is_due() { summary.totals.queued } else { 0 };
    let mut now = now_facts(snapshot, rate, limit.as_deref(), due);
    now.extend(summary.next.describe());
    let window = summary.window.as_ref();
    now.extend(window.map(|window| format!("window {}", window.describe())));
    now.extend(summary.budget.as_ref().map(BudgetStatus::describe));
    now
}

/// The failed messages, as far as the role may see them.
fn failures(details: &Details, is_whole: bool) -> Vec<FailureRecord> {
    let mut failures = details.failures.clone();
    if !is_whole {
        failures.iter_mut().for_each(hide);
    }
    failures
}

#[cfg(test)]
mod tests {
    use smsq_message::sms::Timestamp;
    use smsq_report::{Histogram, LocalTime};
    use smsq_store::report::{Outcomes, Totals};

    use super::super::render::tests::assert_renders;
    use super::*;

    #[test]
    fn page_of_a_campaign_has_the_names_of_its_sections() {
        let at = Timestamp::from_millis(1_763_715_600_000);
        let histogram = Histogram {
            from: at,
            width: std::time::Duration::from_secs(60),
            first_at: at,
            last_at: at,
            spans: vec![Outcomes::default(); 2],
        };
        let totals = Totals {
            imported: 2,
            sent: 2,
            delivery: Some(smsq_store::report::DeliveryCounts::default()),
            ..Totals::default()
        };
        assert_renders(&CampaignPage {
            is_counted: true,
            sections: Sections::default().with_totals(&totals),
            last_hour: Some(Chart::of(&histogram, &LocalTime::system())),
            actions: vec![Button::of(Action::Pause)],
            ..CampaignPage::default()
        });
    }
}
