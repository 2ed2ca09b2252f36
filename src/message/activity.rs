//! What workers publish while they send: counts of what happened to messages, in spans of time, and what each worker
//! does now.

use std::ops::AddAssign;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::sms::{Timestamp, millis};

/// The length of a span.
pub const SPAN: Duration = Duration::from_secs(10);

/// How many messages had which outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityCounts {
    pub sent: u64,
    pub failed: u64,
    /// The provider may have accepted them.
    pub unknown: u64,
    /// Attempts that were too fast for the provider.
    pub throttled: u64,
    /// Attempts that certainly did not reach the provider.
    pub unavailable: u64,
}

impl ActivityCounts {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for ActivityCounts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.throttled += other.throttled;
        self.unavailable += other.unavailable;
    }
}

/// What happened to the messages of a campaign at a provider within one span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityRow {
    /// When the span begins, by the database's clock.
    pub at: Timestamp,
    pub campaign_id: i64,
    pub provider: String,
    pub counts: ActivityCounts,
}

/// When the span of an instant begins.
pub fn span_of(at: Timestamp) -> Timestamp {
    let length = millis(SPAN);
    Timestamp::from_millis(at.as_millis().div_euclid(length) * length)
}

/// What a worker does now. Of a worker of another version, fields may be missing, and a field that is not understood
/// counts as missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerActivity {
    /// The version of smsq.
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    /// Requests in flight.
    #[serde(deserialize_with = "or_default")]
    pub in_flight: u32,
    /// The most requests in flight.
    #[serde(deserialize_with = "or_default")]
    pub concurrency: u32,
    /// Messages sent per second, over the last ten seconds.
    #[serde(deserialize_with = "or_default")]
    pub rate: f64,
    /// What limited it over the last ten seconds; `None`: nothing did most of the time.
    #[serde(deserialize_with = "or_default")]
    pub bottleneck: Option<Bottleneck>,
    /// The providers of its campaigns.
    #[serde(deserialize_with = "or_default")]
    pub providers: Vec<ProviderActivity>,
}

/// What a worker knows of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderActivity {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Requests in flight.
    #[serde(deserialize_with = "or_default")]
    pub in_flight: u32,
    /// The circuit breaker is open: the provider is down.
    #[serde(deserialize_with = "or_default")]
    pub breaker_open: bool,
    /// When the first of the requests began that opened it.
    #[serde(deserialize_with = "or_default")]
    pub unavailable_since: Option<Timestamp>,
    /// When the next message probes whether the provider is back.
    #[serde(deserialize_with = "or_default")]
    pub probing_at: Option<Timestamp>,
    /// Until when the provider asked to wait.
    #[serde(deserialize_with = "or_default")]
    pub throttled_until: Option<Timestamp>,
    /// When it last accepted a message.
    #[serde(deserialize_with = "or_default")]
    pub last_success_at: Option<Timestamp>,
    /// Not of a single recipient.
    #[serde(deserialize_with = "or_default")]
    pub last_error: Option<LastError>,
    /// How long requests took, over the last minute; `None`: there were none.
    #[serde(deserialize_with = "or_default")]
    pub latency_ms: Option<LatencyMillis>,
    /// Its rate limit, such as `100/s`; empty without one.
    #[serde(deserialize_with = "or_default")]
    pub rate_limit: String,
}

/// Why a provider did not accept a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    pub at: Timestamp,
    /// Without phones, texts and secrets.
    pub reason: String,
}

/// Half of the requests took at most `p50` milliseconds, and 95 % at most `p95`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyMillis {
    pub p50: f64,
    pub p95: f64,
}

/// What limited a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// A rate limit gave fewer permits than there were messages.
    RateLimit,
    /// As many requests as allowed were in flight, and each takes as long as the provider needs.
    Concurrency,
    /// The provider asked to slow down, or was away.
    Provider,
    /// Requests waited for a commit.
    Database,
    /// The processors of this machine were busy.
    Cpu,
}

/// The value, or the default if it cannot be read.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_begins_at_a_multiple_of_its_length() {
        for (at, begins) in [(20_000, 20_000), (29_999, 20_000), (30_000, 30_000), (-1, -10_000)] {
            let begins = Timestamp::from_millis(begins);
            assert_eq!(span_of(Timestamp::from_millis(at)), begins, "{at}");
        }
    }

    #[test]
    fn activity_is_read_as_it_was_written() {
        let activity = WorkerActivity {
            version: "1.2.3".to_owned(),
            in_flight: 3,
            concurrency: 64,
            rate: 12.5,
            bottleneck: Some(Bottleneck::RateLimit),
            providers: vec![ProviderActivity {
                name: "cellar".to_owned(),
                in_flight: 3,
                breaker_open: true,
                unavailable_since: Some(Timestamp::from_millis(2)),
                probing_at: Some(Timestamp::from_millis(3)),
                throttled_until: Some(Timestamp::from_millis(4)),
                last_success_at: Some(Timestamp::from_millis(5)),
                last_error: Some(LastError {
                    at: Timestamp::from_millis(6),
                    reason: "status 500".to_owned(),
                }),
                latency_ms: Some(LatencyMillis { p50: 1.5, p95: 9.0 }),
                rate_limit: "100/s".to_owned(),
            }],
        };
        let json = serde_json::to_string(&activity).expect("JSON");
        let read: WorkerActivity = serde_json::from_str(&json).expect("activity");
        assert_eq!(read, activity);
    }

    #[test]
    fn activity_of_another_version_is_read_as_far_as_it_is_known() {
        let json = r#"{"version": "9.0.0", "in_flight": "many", "bottleneck": "moon", "new": [1],
            "providers": [{"name": "cellar", "breaker_open": 7, "new": {}, "rate_limit": "5/s"}]}"#;
        let read: WorkerActivity = serde_json::from_str(json).expect("activity");
        let provider = ProviderActivity {
            name: "cellar".to_owned(),
            rate_limit: "5/s".to_owned(),
            ..ProviderActivity::default()
        };
        let expected = WorkerActivity {
            version: "9.0.0".to_owned(),
            providers: vec![provider],
            ..WorkerActivity::default()
        };
        assert_eq!(read, expected);
    }
}
