//! The values of several rounds.

use std::time::Duration;

use serde_json::{Value, json};

use crate::numbers::{median, per_second};

#[derive(Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds a time in microseconds.
    pub(crate) fn push_us(&mut self, time: Duration) {
        self.push(time.as_secs_f64() * 1e6);
    }

    pub(crate) fn last(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        if self.0.is_empty() {
            return f64::NAN;
        }
        median(self.0.clone())
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// `31,200/s (30,110–31,870)`
    pub(crate) fn rates(&self) -> String {
        let bare = |rate| per_second(rate).trim_end_matches("/s").to_owned();
        format!("{} ({}–{})", per_second(self.median()), bare(self.min()), bare(self.max()))
    }

    /// `0.981 (0.975–0.985)`, with this many decimals.
    pub(crate) fn decimals(&self, decimals: usize) -> String {
        let (median, min, max) = (self.median(), self.min(), self.max());
        format!("{median:.decimals$} ({min:.decimals$}–{max:.decimals$})")
    }

    /// The median without decimals, or a dash without values.
    pub(crate) fn rounded(&self) -> String {
        if self.0.is_empty() {
            return "–".to_owned();
        }
        format!("{:.0}", self.median())
    }

    pub(crate) fn json(&self) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        json!({ "median": self.median(), "min": self.min(), "max": self.max(), "rounds": self.0 })
    }
}
