//! What live pages share: what is wrong, what is sent now, and the last hour.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use minijinja::context;
use minijinja::value::Value;
use serde::Deserialize;

use super::activity::limited_by;
use super::alerts::{alerts, since};
use super::events::{TimelineEvent, events};
use crate::report::{self, CampaignSummary, LocalTime};
use crate::serve::counts::Snapshot;
use crate::serve::state::ServerState;
use crate::store::Campaign;
use crate::text::duration;

#[derive(Deserialize)]
pub(super) struct Live {
    pub(super) live: Option<u64>,
}

pub(super) fn ago(age: Duration) -> String {
    match age.as_secs() {
        0..3 => "now".to_owned(),
        seconds => format!("{} ago", duration(Duration::from_secs(seconds))),
    }
}

/// How long a queue lasts at this rate.
fn eta(queued: u64, rate: f64) -> Option<String> {
    let queued = u32::try_from(queued).map_or(f64::MAX, f64::from);
    if queued == 0.0 || rate <= 0.0 {
        return None;
    }
    let seconds = (queued / rate).min(1e9);
    Some(duration(Duration::from_secs_f64(seconds.max(1.0).round())))
}

/// Nothing, if a page that asks for its changing part has it already.
pub(super) fn unchanged(live: Option<u64>, snapshot: &Snapshot) -> Option<Response> {
    let is_same = snapshot.revision > 0 && live == Some(snapshot.revision);
    is_same.then(|| StatusCode::NO_CONTENT.into_response())
}

/// What is sent now, as short phrases. `rate`: messages per second; `due`: messages that could be sent.
pub(super) fn now_facts(
    snapshot: &Snapshot,
    rate: Option<f64>,
    limit: Option<&str>,
    due: u64,
) -> Vec<String> {
    let limit = limit.map_or_else(String::new, |limit| format!(", at most {limit}"));
    let mut facts = Vec::new();
    match rate {
        Some(rate) => {
            facts.push(format!("{} now{limit}", report::rate(rate)));
            let reason = limited_by(snapshot).filter(|_| due > 0);
            facts.extend(reason.map(|reason| format!("limited by {reason}")));
            facts.extend(eta(due, rate).map(|eta| format!("done in about {eta}")));
        }
        None if due > 0 => facts.push(format!("0/s now{limit}")),
        None => {}
    }
    facts
}

/// What is wrong, for a template.
pub(super) fn alert_values(
    shared: &ServerState,
    snapshot: &Snapshot,
    campaign: Option<&CampaignSummary>,
) -> Vec<Value> {
    let local = LocalTime::system();
    let found = alerts(snapshot, campaign, shared.default_provider.as_deref());
    let found = found.into_iter();
    found
        .map(|alert| {
            let at = alert.since;
            let since = at.map(|at| since(at, snapshot.now(), &local));
            context! { text => alert.text, since }
        })
        .collect()
}

/// The chart of the last hour, with its events.
pub(super) fn last_hour(snapshot: &Snapshot, campaign: Option<&Campaign>) -> Option<Value> {
    let timeline = snapshot.timeline(campaign.map(|one| one.id))?;
    let local = LocalTime::system();
    let campaign = campaign.map(|one| (one.id, one.name.as_str()));
    let (from, width) = (timeline.from, timeline.width);
    let found = events(
        &snapshot.changes,
        &snapshot.last_hour,
        campaign,
        from,
        width,
    );
    let events: Vec<Value> = found
        .into_iter()
        .map(|event| {
            let columns = event.at.since(from).as_secs_f64() / width.as_secs_f64();
            let TimelineEvent { at, who, what } = event;
            context! { x => format!("{:.1}", columns * 10.0), at => local.tick(at, width), who, what }
        })
        .collect();
    Some(context! { events, ..report::chart(&timeline, &local) })
}
