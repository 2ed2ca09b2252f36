//! What sending messages will be like: what they cost, how long it takes, and the messages to look at. For a
//! list before it is imported, and for a queue before it is sent.

use std::fmt::Write as _;

use indicatif::HumanCount;

use super::{prices, tell};
use crate::commands::words::{counted, duration, messages};
use crate::import::{Estimate, Sample};
use crate::rate::Rate;
use crate::text::segments::Alphabet;
use crate::text::{is_printable, printable_line, smart};

/// So many expensive characters are named.
pub(super) const CHARACTERS: usize = 5;
/// So many countries are named.
const COUNTRIES: usize = 5;

pub(super) fn alphabet(alphabet: Alphabet) -> &'static str {
    match alphabet {
        Alphabet::Gsm7 => "GSM-7",
        Alphabet::Ucs2 => "UCS-2",
    }
}

fn sending(estimate: &Estimate) -> String {
    let hours = match (&estimate.pace.window, estimate.ends_at()) {
        (Some(window), Some(at)) => {
            format!(", {}: until about {}", window.told(), window.shown(at))
        }
        (Some(window), None) => format!(", {}", window.told()),
        (None, _) => String::new(),
    };
    let Some(takes) = estimate.duration() else {
        let hours = hours.replacen(", ", "; ", 1);
        return format!("as fast as it goes: no limit is set{hours}");
    };
    let limits: Vec<String> = estimate.pace.limits.iter().map(Rate::to_string).collect();
    let late = match estimate.too_late() {
        Some(late) => format!("; about {} would expire before their turn", messages(late)),
        None => String::new(),
    };
    format!(
        "about {} at {}{hours}{late}",
        duration(takes),
        limits.join(", ")
    )
}

/// What the segments cost and would not have to, where they go, and how long that takes.
pub(in crate::commands) fn write_estimate(text: &mut String, estimate: &Estimate) {
    let all = &estimate.stats;
    let _ = writeln!(text, "  segments    {}", tell::segments(&all.segments));
    if let Some(currency) = &estimate.currency {
        let _ = writeln!(text, "  cost        {}", prices::text(all.cost, currency));
    }
    if all.saving > 0 {
        let _ = writeln!(
            text,
            "  saving      {} with `--smart`",
            counted(all.saving, "segment")
        );
    }
    let named = all.countries.iter().take(COUNTRIES);
    let named: Vec<String> = named
        .map(|(country, count)| format!("{country}: {}", HumanCount(*count)))
        .collect();
    if all.countries.len() > 1 {
        let more = if all.countries.len() > COUNTRIES {
            ", …"
        } else {
            ""
        };
        let _ = writeln!(text, "  countries   {}{more}", named.join(", "));
    }
    let _ = writeln!(text, "  sending     {}", sending(estimate));
    for (character, count) in all.expensive.iter().take(CHARACTERS) {
        let code = u32::from(*character);
        let is_shown = is_printable(*character) && !character.is_whitespace();
        let shown = if is_shown { *character } else { ' ' };
        let instead = match smart::plain(*character) {
            Some("") => ", and nothing would be missed without it".to_owned(),
            Some(plain) => format!(", `{plain}` would not"),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "  expensive   `{shown}` (U+{code:04X}) makes {} UCS-2{instead}",
            messages(*count)
        );
    }
}

/// The first messages, the longest one and the most expensive one.
pub(in crate::commands) fn write_samples(text: &mut String, estimate: &Estimate) {
    for (label, sample) in estimate.labelled_samples() {
        let label = label.map(|label| format!("{label}: ")).unwrap_or_default();
        write_sample(text, &label, sample);
    }
}

fn write_sample(text: &mut String, what: &str, sample: &Sample) {
    let line = match sample.line {
        Some(line) => format!("line {line} "),
        None => String::new(),
    };
    let _ = writeln!(
        text,
        "\n  {what}{line}to {}: {} × {}\n    {}",
        printable_line(&sample.phone),
        sample.segments.count,
        alphabet(sample.segments.alphabet),
        sample.content.replace('\n', "\n    ")
    );
}
