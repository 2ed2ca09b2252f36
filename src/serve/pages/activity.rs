//! What the workers and the providers do, as the pages show it.

use serde::Serialize;
use smsq_message::activity::{Bottleneck, ProviderActivity};
use smsq_message::text::ago;
use smsq_report::LocalTime;
use smsq_store::Worker;

use crate::counts::Snapshot;

/// What the workers and the providers do.
#[derive(Default, Serialize)]
pub(super) struct Activity<'a> {
    workers: Vec<WorkerRow<'a>>,
    providers: Vec<ProviderRow<'a>>,
}

#[derive(Serialize)]
struct WorkerRow<'a> {
    id: i64,
    host: &'a str,
    pid: i64,
    concurrency: u64,
    rate: Option<String>,
    limited_by: Option<&'static str>,
    version: Option<&'a str>,
    heartbeat: String,
    is_silent: bool,
    sending: u64,
}

#[derive(Serialize)]
struct ProviderRow<'a> {
    name: &'a str,
    state: &'static str,
    words: String,
    facts: String,
    latency: Option<String>,
    error: Option<String>,
    error_at: Option<String>,
}

impl<'a> Activity<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let worker = |(worker, sending): &'a (Worker, u64)| {
            let activity = snapshot.activities.get(&worker.id);
            let rate = activity.map(|activity| activity.rate);
            WorkerRow {
                id: worker.id,
                host: &worker.host,
                pid: worker.pid,
                concurrency: u64::try_from(worker.concurrency).unwrap_or(0),
                rate: rate.filter(|rate| *rate > 0.0).map(smsq_report::rate),
                limited_by: activity.and_then(|activity| activity.bottleneck).map(limit_phrase),
                version: activity.map(|activity| activity.version.as_str()),
                heartbeat: ago(snapshot.counted_at.since(worker.heartbeat_at)),
                is_silent: snapshot.is_silent(worker),
                sending: *sending,
            }
        };
        Self {
            workers: snapshot.workers.iter().map(worker).collect(),
            providers: providers(snapshot),
        }
    }
}

/// What limits the worker that sends most.
pub(super) fn limited_by(snapshot: &Snapshot) -> Option<&'static str> {
    snapshot
        .alive_workers()
        .filter_map(|worker| snapshot.activities.get(&worker.id))
        .max_by(|left, right| left.rate.total_cmp(&right.rate))?
        .bottleneck
        .map(limit_phrase)
}

/// What limits a worker, as a phrase after "limited by".
fn limit_phrase(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::RateLimit => "the rate limit",
        Bottleneck::Concurrency => "how fast the provider answers (all requests are in flight)",
        Bottleneck::Provider => "the provider (unavailable or throttling)",
        Bottleneck::Database => "the commits of the database",
        Bottleneck::Cpu => "the processors of its machine",
    }
}

/// The providers as their workers see them: the worst state, the slowest answers, the last error.
fn providers<'a>(snapshot: &'a Snapshot) -> Vec<ProviderRow<'a>> {
    let local = LocalTime::system();
    let now = snapshot.counted_at;
    let row = |(name, seen): (&'a str, Vec<&'a ProviderActivity>)| {
        let pause = snapshot.pauses.iter().find(|pause| pause.is_of(name));
        let error = seen
            .iter()
            .filter_map(|activity| activity.last_error.as_ref())
            .max_by_key(|error| error.at);
        let slowest = seen
            .iter()
            .filter_map(|activity| activity.latency_ms)
            .max_by(|left, right| left.p95.total_cmp(&right.p95));
        let is_open = seen.iter().any(|activity| activity.breaker_open);
        let (state, words) = match pause {
            Some(pause) => ("waiting", format!("asked to wait until {}", local.short(pause.until))),
            None if is_open => ("open", "unavailable".to_owned()),
            None => ("closed", "working".to_owned()),
        };
        let probing = is_open.then(|| "sending test messages one at a time".to_owned());
        let limit = seen
            .iter()
            .find(|activity| !activity.rate_limit.is_empty())
            .map(|activity| format!("at most {}", activity.rate_limit));
        let accepted = seen
            .iter()
            .filter_map(|activity| activity.last_success_at)
            .max()
            .map(|at| format!("last accepted {}", ago(now.since(at))));
        let facts: Vec<String> = [probing, limit, accepted].into_iter().flatten().collect();
        let reason = pause.map(|pause| pause.reason.as_str());
        ProviderRow {
            name,
            state,
            words,
            facts: facts.join(" · "),
            latency: slowest
                .map(|latency| format!("{:.0} ms, 95 % in {:.0} ms", latency.p50, latency.p95)),
            error_at: error.filter(|_| reason.is_none()).map(|error| ago(now.since(error.at))),
            error: reason
                .or(error.map(|error| error.reason.as_str()))
                .map(|reason| smsq_report::plain_reason(reason).into_owned()),
        }
    };
    snapshot.providers().into_iter().map(row).collect()
}
