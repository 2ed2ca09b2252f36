//! Metrics in the text format of Prometheus: what this process counts, and the state of the queue in the database. No
//! label has a phone, an id or an error text.

mod queue;
mod text;

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use smsq_message::rate::Rate;
use smsq_message::sms::{Outcome, Timestamp};
use smsq_store::Store;

pub use queue::QueueState;

/// The type of the text, for HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The prefix of all names.
const PREFIX: &str = "smsq";
/// How long the state of the queue may take to read. Without an answer the database counts as unreachable.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Values of label `outcome`.
const OUTCOMES: [&str; 8] = [
    "accepted",
    "rejected",
    "throttled",
    "deferred",
    "unavailable",
    "unknown",
    "account_error",
    "batch_rejected",
];
const REQUEST_SECONDS: [f64; 9] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const DELAY_SECONDS: [f64; 10] = [0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0];
const COMMIT_SECONDS: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

/// Section `[metrics]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many of the newest campaigns have metrics of their own.
    pub max_campaigns: u32,
}

/// Labels with their values.
type Labels<const COUNT: usize> = [(&'static str, String); COUNT];
type CounterFamily<const COUNT: usize> = Family<Labels<COUNT>, Counter>;
type GaugeFamily<const COUNT: usize> = Family<Labels<COUNT>, Gauge>;
type Seconds = Gauge<f64, AtomicU64>;
type HistogramFamily = Family<Labels<1>, Histogram, fn() -> Histogram>;

/// The metrics of a process.
pub struct Metrics {
    registry: Registry,
    attempts: CounterFamily<2>,
    request_duration: HistogramFamily,
    send_delay: HistogramFamily,
    segments: CounterFamily<1>,
    rate_limit: GaugeFamily<2>,
    breaker_open: GaugeFamily<1>,
    throttled_until: Family<Labels<1>, Seconds>,
    requests: GaugeFamily<1>,
    commit_duration: Histogram,
    database_retries: Counter,
    receipts: CounterFamily<2>,
    posted: CounterFamily<1>,
    opt_outs: CounterFamily<1>,
    unreadable_posts: CounterFamily<1>,
    run: Mutex<RunState>,
}

/// The ends of runs of `send` and `run`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunState {
    /// When a run ended last that tried to send everything.
    pub last_success_at: Option<Timestamp>,
    /// The exit code of the last run, which has ended.
    pub exit_code: Option<u8>,
}

/// The metrics of one provider.
pub struct ProviderMetrics {
    /// In the order of [`OUTCOMES`].
    attempts: [Counter; OUTCOMES.len()],
    request_duration: Histogram,
    send_delay: Histogram,
    segments: Counter,
    breaker_open: Gauge,
    throttled_until: Seconds,
}

impl Default for Metrics {
    #[expect(clippy::too_many_lines, reason = "it is the list of all metrics")]
    fn default() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        macro_rules! register {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
        }
        let build = GaugeFamily::<1>::default();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        build.get_or_create(&[("version", version)]).set(1);
        registry.register("build_info", "The version of smsq", build);
        Self {
            attempts: register!(
                "attempts",
                "Attempts to send a message, by outcome",
                CounterFamily::default()
            ),
            request_duration: register!(
                "request_duration_seconds",
                "How long requests to the provider took",
                HistogramFamily::new_with_constructor(|| Histogram::new(REQUEST_SECONDS))
            ),
            send_delay: register!(
                "send_delay_seconds",
                "The time from when a message was due to when the provider accepted it",
                HistogramFamily::new_with_constructor(|| Histogram::new(DELAY_SECONDS))
            ),
            segments: register!(
                "segments",
                "Segments of accepted messages",
                CounterFamily::default()
            ),
            rate_limit: register!(
                "rate_limit",
                "The most messages in any window of this length",
                GaugeFamily::default()
            ),
            breaker_open: register!(
                "breaker_open",
                "1 while the circuit breaker is open because the provider is unavailable",
                GaugeFamily::default()
            ),
            throttled_until: register!(
                "throttled_until_seconds",
                "Until when the provider asked to wait, in seconds since 1970; 0: it did not",
                Family::<Labels<1>, Seconds>::default()
            ),
            requests: register!(
                "requests",
                "Requests in flight, and how many more are allowed",
                GaugeFamily::default()
            ),
            commit_duration: register!(
                "commit_duration_seconds",
                "How long commits of results and claims took",
                Histogram::new(COMMIT_SECONDS)
            ),
            database_retries: register!(
                "database_retries",
                "Commits delayed by an unreachable database",
                Counter::default()
            ),
            receipts: register!(
                "receipts",
                "Delivery receipts that were new",
                CounterFamily::default()
            ),
            posted: register!(
                "posted_messages",
                "Messages that were posted to the server, by result",
                CounterFamily::default()
            ),
            opt_outs: register!(
                "opt_outs",
                "Phones that replied that they want no more messages",
                CounterFamily::default()
            ),
            unreadable_posts: register!(
                "unreadable_posts",
                "Posted entries that are neither a receipt nor a reply, and opt-outs without a valid number",
                CounterFamily::default()
            ),
            run: Mutex::default(),
            registry,
        }
    }
}

impl Metrics {
    /// The metrics of a provider with these rate limits.
    pub fn provider(&self, name: &str, limits: &[Rate]) -> ProviderMetrics {
        let label = || ("provider", name.to_owned());
        for limit in limits {
            let window = format!("{}s", limit.window.as_secs());
            let labels = [label(), ("window", window)];
            let gauge = self.rate_limit.get_or_create_owned(&labels);
            gauge.set(i64::from(limit.limit.get()));
        }
        let labels = [label()];
        ProviderMetrics {
            attempts: OUTCOMES.map(|outcome| {
                let labels = [label(), ("outcome", outcome.to_owned())];
                self.attempts.get_or_create_owned(&labels)
            }),
            request_duration: self.request_duration.get_or_create_owned(&labels),
            send_delay: self.send_delay.get_or_create_owned(&labels),
            segments: self.segments.get_or_create_owned(&labels),
            breaker_open: self.breaker_open.get_or_create_owned(&labels),
            throttled_until: self.throttled_until.get_or_create_owned(&labels),
        }
    }

    /// Sets how many requests are in flight, and how many more may be.
    pub fn set_requests(&self, busy: u32, free: u32) {
        for (state, count) in [("busy", busy), ("free", free)] {
            let labels = [("state", state.to_owned())];
            self.requests.get_or_create(&labels).set(i64::from(count));
        }
    }

    pub fn record_commit(&self, took: Duration) {
        self.commit_duration.observe(took.as_secs_f64());
    }

    /// Counts a commit that waits for the database.
    pub fn record_database_retry(&self) {
        self.database_retries.inc();
    }

    /// Counts new receipts; `via` is how they came, `pull` or `webhook`.
    pub fn record_receipts(&self, provider: &str, via: &str, count: u64) {
        let labels = [("provider", provider.to_owned()), ("via", via.to_owned())];
        self.receipts.get_or_create(&labels).inc_by(count);
    }

    /// Counts messages that were posted to the server; `result` is one of few words.
    pub fn record_posted(&self, result: &str, count: u64) {
        let labels = [("result", result.to_owned())];
        self.posted.get_or_create(&labels).inc_by(count);
    }

    /// Counts phones that were suppressed because they replied so.
    pub fn record_opt_outs(&self, provider: &str, count: u64) {
        let labels = [("provider", provider.to_owned())];
        self.opt_outs.get_or_create(&labels).inc_by(count);
    }

    /// Counts what was posted and could not be read.
    pub fn record_unreadable_posts(&self, provider: &str, count: u64) {
        let labels = [("provider", provider.to_owned())];
        self.unreadable_posts.get_or_create(&labels).inc_by(count);
    }

    pub fn set_run(&self, run: RunState) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = run;
    }

    /// All metrics. If the state of the queue cannot be read, its metrics are left out, and `smsq_database_up` is 0.
    /// `default_provider` sends the campaigns that name none.
    pub async fn scrape(
        &self,
        store: &Store,
        config: Config,
        default_provider: Option<&str>,
    ) -> String {
        let reading = QueueState::read(store, config, default_provider);
        let queue = match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(Ok(queue)) => Some(queue),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the state of the queue could not be read");
                None
            }
            Err(_) => None,
        };
        self.text(queue.as_ref())
    }

    /// All metrics; without the state of the queue, the database counts as unreachable.
    pub fn text(&self, queue: Option<&QueueState>) -> String {
        let mut text = String::new();
        let mut now = Registry::with_prefix(PREFIX);
        let up = Gauge::<i64>::default();
        up.set(i64::from(queue.is_some()));
        now.register("database_up", "1 if the database could be read", up);
        if let Some(queue) = queue {
            queue.register(&mut now);
        }
        let run = *self.run.lock().unwrap_or_else(PoisonError::into_inner);
        run.register(&mut now);
        for registry in [&self.registry, &now] {
            encode_registry(&mut text, registry).expect("a string can be written");
        }
        text::without_open_metrics(&text)
    }
}

impl RunState {
    /// What an earlier text says.
    pub fn read(text: &str) -> Self {
        let value = |name: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            value.parse::<f64>().ok()
        };
        Self {
            // A number of milliseconds may be a little less as a number of seconds.
            last_success_at: value("smsq_run_last_success_timestamp_seconds")
                .map(|seconds| (seconds * 1_000.0).round() / 1_000.0 + 0.000_5)
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .map(|since| Timestamp::default().plus(since)),
            exit_code: None,
        }
    }

    fn register(self, registry: &mut Registry) {
        if let Some(at) = self.last_success_at {
            let gauge = Seconds::default();
            gauge.set(seconds(at));
            let help = "When a run last tried to send everything, in seconds since 1970";
            registry.register("run_last_success_timestamp_seconds", help, gauge);
        }
        if let Some(code) = self.exit_code {
            let gauge = Gauge::<i64>::default();
            gauge.set(i64::from(code));
            registry.register("run_exit_code", "The exit code of the last run", gauge);
        }
    }
}

impl ProviderMetrics {
    /// Counts the outcomes of one request.
    pub fn record_outcomes(&self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let index = match outcome {
                Outcome::Accepted(_) | Outcome::Duplicate(_) => 0,
                Outcome::Rejected(_) => 1,
                Outcome::Throttled { .. } => 2,
                Outcome::Deferred { .. } => 3,
                Outcome::Unavailable { .. } => 4,
                Outcome::Unknown(_) => 5,
                Outcome::AccountError { .. } => 6,
                Outcome::BatchRejected(_) => 7,
            };
            self.attempts[index].inc();
        }
    }

    pub fn record_request(&self, took: Duration) {
        self.request_duration.observe(took.as_secs_f64());
    }

    /// Counts an accepted message; `delay` is the time since it was due.
    pub fn record_accepted(&self, segments: u64, delay: Duration) {
        self.segments.inc_by(segments);
        self.send_delay.observe(delay.as_secs_f64());
    }

    pub fn set_state(&self, is_breaker_open: bool, throttled_until: Option<Timestamp>) {
        self.breaker_open.set(i64::from(is_breaker_open));
        self.throttled_until.set(throttled_until.map_or(0.0, seconds));
    }
}

/// In seconds since 1970.
#[expect(clippy::cast_precision_loss, reason = "exact for thousands of years")]
fn seconds(at: Timestamp) -> f64 {
    at.as_millis() as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use smsq_message::sms::{Acceptance, Class, Failure};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn text_has_what_was_noted() {
        let metrics = Metrics::default();
        let limits = ["100/s", "5000/hour"].map(|rate| rate.parse().expect("a rate"));
        let provider = metrics.provider("cellar", &limits);
        provider.record_outcomes(&[
            Outcome::Accepted(Acceptance::default()),
            Outcome::Accepted(Acceptance::default()),
            Outcome::Rejected(Failure::new(Class::Recipient, "invalid")),
        ]);
        provider.record_request(Duration::from_millis(300));
        provider.record_accepted(2, Duration::from_secs(4));
        provider.set_state(true, Some(at(1_700_000_000)));
        metrics.set_requests(3, 61);
        metrics.record_commit(Duration::from_millis(4));
        metrics.record_database_retry();
        metrics.record_receipts("cellar", "pull", 7);
        let text = metrics.text(None);
        for line in [
            "# TYPE smsq_attempts_total counter",
            "smsq_attempts_total{provider=\"cellar\",outcome=\"accepted\"} 2",
            "smsq_attempts_total{provider=\"cellar\",outcome=\"rejected\"} 1",
            "smsq_attempts_total{provider=\"cellar\",outcome=\"unknown\"} 0",
            "smsq_request_duration_seconds_bucket{le=\"0.25\",provider=\"cellar\"} 0",
            "smsq_request_duration_seconds_bucket{le=\"0.5\",provider=\"cellar\"} 1",
            "smsq_send_delay_seconds_count{provider=\"cellar\"} 1",
            "smsq_segments_total{provider=\"cellar\"} 2",
            "smsq_rate_limit{provider=\"cellar\",window=\"1s\"} 100",
            "smsq_rate_limit{provider=\"cellar\",window=\"3600s\"} 5000",
            "smsq_breaker_open{provider=\"cellar\"} 1",
            "smsq_throttled_until_seconds{provider=\"cellar\"} 1700000000.0",
            "smsq_requests{state=\"busy\"} 3",
            "smsq_requests{state=\"free\"} 61",
            "smsq_commit_duration_seconds_count 1",
            "smsq_database_retries_total 1",
            "smsq_receipts_total{provider=\"cellar\",via=\"pull\"} 7",
            "smsq_database_up 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("smsq_run_"), "{text}");
    }

    #[test]
    fn last_success_is_read_from_an_earlier_text() {
        let metrics = Metrics::default();
        assert_eq!(RunState::read(&metrics.text(None)), RunState::default());
        let run = RunState { last_success_at: Some(at(1_763_715_600)), exit_code: Some(3) };
        metrics.set_run(run);
        let text = metrics.text(None);
        assert!(text.contains("\nsmsq_run_exit_code 3\n"), "{text}");
        let read = RunState::read(&text);
        assert_eq!(read.last_success_at, run.last_success_at);
        assert_eq!(read.exit_code, None);
        assert_eq!(RunState::read("not metrics"), RunState::default());
    }
}
