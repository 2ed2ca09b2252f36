//! Values of settings: durations and rate limits; and hints for unknown words.

use std::time::Duration;

use jiff::fmt::serde::unsigned_duration::friendly::compact::required;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smsq_message::rate::Rates;
use smsq_message::text::{Hinted, did_you_mean, listed};
use toml::Value;

/// A duration such as `10s`, `500ms` or `2 minutes`, also for an optional field.
pub(super) fn span<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<Duration>,
{
    required::deserialize(deserializer).map(T::from)
}

/// One limit or several. An empty text is an error: it is more likely a mistake than a wish for no limit.
pub(super) fn rates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rates, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    let is_valid = match &value {
        Value::Array(list) => list.iter().all(is_text),
        value => is_text(value),
    };
    if !is_valid {
        let problem = Hinted::new(
            "must be a limit in quotation marks like `\"100/s\"`, or several: `[\"100/s\", \"20000/day\"]`",
            "leave it out for no limit",
        );
        return Err(D::Error::custom(problem.joined()));
    }
    value.try_into().map_err(|error: toml::de::Error| D::Error::custom(error.message()))
}

/// A span, also an optional one, in seconds.
pub(super) fn seconds<S: Serializer>(
    span: &(impl Copy + Into<Option<Duration>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let span: Option<Duration> = (*span).into();
    span.map(|span| span.as_secs()).serialize(serializer)
}

pub(super) fn serialize_rates<S: Serializer>(
    rates: &Rates,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(rates)
}

/// The message about an unknown word, with the known one that is probably meant, or with all of them.
pub(super) fn unknown(message: String, word: &str, known: &[&str]) -> Hinted {
    let all =
        || (!known.is_empty()).then(|| format!("known are {}", listed(known.iter().copied())));
    let hint = did_you_mean(word, known.iter().copied()).or_else(all);
    Hinted { message, hint }
}
