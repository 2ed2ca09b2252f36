//! How long something takes, in words.

use std::time::Duration;

/// `142 ms`, `4.1 s`, `2m 5s`: as exact as people want it.
pub fn duration(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{} ms", span.as_millis()),
        1..60 => {
            let tenths = (span.as_millis() + 50) / 100;
            match tenths % 10 {
                0 => format!("{} s", tenths / 10),
                rest => format!("{}.{rest} s", tenths / 10),
            }
        }
        seconds => {
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            format!("{:#}", jiff::SignedDuration::from_secs(seconds))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_as_exact_as_people_want_it() {
        for (millis, told) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (4_142, "4.1 s"),
            (59_999, "60 s"),
            (125_700, "2m 5s"),
            (90_000_000, "25h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), told);
        }
    }
}
