//! What the workers and the providers do, as the pages show it.

use minijinja::context;
use minijinja::value::Value;

use super::live::ago;
use crate::activity::{Bottleneck, ProviderActivity};
use crate::report::{self, LocalTime};
use crate::serve::counts::Snapshot;

/// What the workers and the providers do.
pub(super) fn activity_values(snapshot: &Snapshot) -> Value {
    let now = snapshot.counted_at;
    let activity = |id: i64| snapshot.activities.get(&id);
    let workers: Vec<Value> = snapshot
        .workers
        .iter()
        .map(|(worker, sending)| {
            let age = now.since(worker.heartbeat_at);
            context! {
                id => worker.id,
                host => worker.host.as_str(),
                pid => worker.pid,
                concurrency => u64::try_from(worker.concurrency).unwrap_or(0),
                rate => activity(worker.id).filter(|one| one.rate > 0.0).map(|one| report::rate(one.rate)),
                limited_by => activity(worker.id).and_then(|one| one.bottleneck).map(limit_phrase),
                version => activity(worker.id).map(|one| one.version.as_str()),
                heartbeat => ago(age),
                is_silent => snapshot.is_silent(worker),
                sending,
            }
        })
        .collect();
    context! { workers, providers => provider_values(snapshot) }
}

/// What limits the worker that sends most.
pub(super) fn limited_by(snapshot: &Snapshot) -> Option<&'static str> {
    let activities = snapshot.alive_workers();
    let activities = activities.filter_map(|worker| snapshot.activities.get(&worker.id));
    let busiest = activities.max_by(|one, other| one.rate.total_cmp(&other.rate));
    busiest?.bottleneck.map(limit_phrase)
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
fn provider_values(snapshot: &Snapshot) -> Vec<Value> {
    let local = LocalTime::system();
    let now = snapshot.counted_at;
    let value = |(name, seen): (&str, Vec<&ProviderActivity>)| {
        let pause = snapshot.pauses.iter().find(|pause| pause.provider == name);
        let errors = seen.iter().filter_map(|one| one.last_error.as_ref());
        let error = errors.max_by_key(|error| error.at);
        let slowest = seen.iter().filter_map(|one| one.latency_ms);
        let slowest = slowest.max_by(|one, other| one.p95.total_cmp(&other.p95));
        let is_open = seen.iter().any(|one| one.breaker_open);
        let (state, words) = match pause {
            Some(pause) => (
                "waiting",
                format!("asked to wait until {}", local.short(pause.until)),
            ),
            None if is_open => ("open", "unavailable".to_owned()),
            None => ("closed", "working".to_owned()),
        };
        let limit = seen.iter().find(|one| !one.rate_limit.is_empty());
        let limit = limit.map(|one| format!("at most {}", one.rate_limit));
        let probing = is_open.then(|| "sending test messages one at a time".to_owned());
        let accepted_at = seen.iter().filter_map(|one| one.last_success_at).max();
        let accepted = accepted_at.map(|at| format!("last accepted {}", ago(now.since(at))));
        let facts: Vec<String> = probing.into_iter().chain(limit).chain(accepted).collect();
        let reason = pause.map(|pause| pause.reason.as_str());
        context! {
            name, state, words,
            facts => facts.join(" · "),
            latency => slowest.map(|one| format!("{:.0} ms, 95 % in {:.0} ms", one.p50, one.p95)),
            error_at => error.filter(|_| reason.is_none()).map(|error| ago(now.since(error.at))),
            error => reason
                .or(error.map(|error| error.reason.as_str()))
                .map(|reason| report::plain_reason(reason).into_owned()),
        }
    };
    snapshot.providers().into_iter().map(value).collect()
}
