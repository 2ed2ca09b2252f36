//! What live pages share: what is wrong, what is sent now, and the last hour.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use smsq_message::text::duration;
use smsq_report::{CampaignSummary, Chart, ChartEvent, LocalTime};
use smsq_store::Campaign;

use super::activity::limited_by;
use super::alerts::{alerts, since};
use super::events::{TimelineEvent, events};
use crate::counts::Snapshot;
use crate::state::ServerState;

#[derive(Deserialize)]
pub(super) struct Live {
    pub(super) live: Option<u64>,
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
    let at_most = limit.map_or_else(String::new, |limit| format!(", at most {limit}"));
    match rate {
        Some(rate) => [
            Some(format!("{} now{at_most}", smsq_report::rate(rate))),
            limited_by(snapshot).filter(|_| due > 0).map(|reason| format!("limited by {reason}")),
            eta(due, rate).map(|eta| format!("done in about {eta}")),
        ]
        .into_iter()
        .flatten()
        .collect(),
        None if due > 0 => vec![format!("0/s now{at_most}")],
        None => Vec::new(),
    }
}

/// Something that is wrong, and since when.
#[derive(Serialize)]
pub(super) struct ShownAlert {
    text: String,
    since: Option<String>,
}

/// What is wrong with a campaign, or with any.
pub(super) fn shown_alerts(
    shared: &ServerState,
    snapshot: &Snapshot,
    campaign: Option<&CampaignSummary>,
) -> Vec<ShownAlert> {
    let local = LocalTime::system();
    alerts(snapshot, campaign, shared.default_provider.as_deref())
        .into_iter()
        .map(|alert| ShownAlert {
            text: alert.text,
            since: alert.since.map(|at| since(at, snapshot.now(), &local)),
        })
        .collect()
}

/// The chart of the last hour, with its events.
pub(super) fn last_hour(snapshot: &Snapshot, campaign: Option<&Campaign>) -> Option<Chart> {
    let timeline = snapshot.timeline(campaign.map(|campaign| campaign.id))?;
    let local = LocalTime::system();
    let (from, width) = (timeline.from, timeline.width);
    let found = events(
        &snapshot.changes,
        &snapshot.last_hour,
        campaign.map(|campaign| (campaign.id, campaign.name.as_str())),
        from,
        width,
    );
    let mark = |TimelineEvent { at, who, what }| {
        let columns = at.since(from).as_secs_f64() / width.as_secs_f64();
        ChartEvent { x: format!("{:.1}", columns * 10.0), at: local.tick(at, width), who, what }
    };
    let mut chart = Chart::of(&timeline, &local);
    chart.events = found.into_iter().map(mark).collect();
    Some(chart)
}
