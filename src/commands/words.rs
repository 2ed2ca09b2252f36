//! What several commands say in the same words, and how they read a value of the command line.

use std::time::Duration;

use crate::rate::Rates;
pub(crate) use crate::text::{counted, duration, messages};

use crate::text::is_printable;

/// A limit of a campaign or a worker; `none` lifts it.
pub(crate) fn rates(text: &str) -> Result<Rates, String> {
    match text {
        "none" => Ok(Rates::default()),
        _ if text.trim().is_empty() => Err("a limit is written like `100/s`".to_owned()),
        _ => text
            .parse()
            .map_err(|error: crate::rate::RateError| error.to_string()),
    }
}

/// A count of the command line that leaves something to do.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("must be 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

/// A duration of the command line: `80ms`, `30s`, `2h`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|span| Duration::try_from(span).ok())
        .ok_or_else(|| format!("`{text}` is no duration; write it like `80ms`, `30s` or `2h`"))
}

/// A campaign's name: printable, at most 100 characters.
pub(crate) fn campaign_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() {
        return Err("the name of a campaign is empty".to_owned());
    }
    if !name.chars().all(is_printable) {
        return Err("the name of a campaign holds a character that cannot be printed".to_owned());
    }
    if name.chars().count() > 100 {
        return Err("the name of a campaign is longer than 100 characters".to_owned());
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_and_lifted() {
        assert_eq!(
            rates("100/s,2000/day").expect("rates").to_string(),
            "100/s,2000/day"
        );
        assert_eq!(rates("none").expect("no limit"), Rates::default());
        assert!(rates(" ").is_err());
        assert!(rates("fast").is_err());
    }

    #[test]
    fn a_name_of_a_campaign_is_printable_and_short() {
        assert_eq!(campaign_name(" 夏季促销 ").as_deref(), Ok("夏季促销"));
        for bad in ["", "  ", "a\nb", "a\u{202e}b", &"x".repeat(101)] {
            assert!(campaign_name(bad).is_err(), "{bad:?}");
        }
    }
}
