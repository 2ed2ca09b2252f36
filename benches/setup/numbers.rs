//! How the benchmarks summarise and print numbers.

use std::io::Write as _;

/// Prints a line to standard error.
pub(crate) fn say(what: &str) {
    // A failure to write to stderr cannot be reported.
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// The middle value; of an even number, the upper one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// `31,200/s`
pub(crate) fn per_second(rate: f64) -> String {
    format!("{}/s", indicatif::HumanFloatCount(rate.round()))
}
