//! What sending messages will be like: what they cost, how long it takes, and the messages to look at. For a
//! list before it is imported, and for a queue before it is sent.

use std::fmt::Write as _;
use std::time::Duration;

use indicatif::HumanCount;

use super::{prices, tell};
use crate::commands::words::{counted, duration, messages};
use crate::import::{Messages, Sample};
use crate::rate::Rate;
use crate::sms::Timestamp;
use crate::text::segments::Alphabet;
use crate::text::{is_printable, printable_line, smart};
use crate::window::Window;

/// So many expensive characters are named.
pub(super) const CHARACTERS: usize = 5;
/// So many countries are named.
const COUNTRIES: usize = 5;

/// How fast messages may be sent, and when.
pub(in crate::commands) struct Pace {
    /// The limits that hold.
    pub(in crate::commands) limits: Vec<Rate>,
    /// How long the messages are worth sending and may be sent; `None`: without end.
    pub(in crate::commands) open_for: Option<Duration>,
    /// When they may be sent, and from when on they would be.
    pub(in crate::commands) window: Option<Window>,
    pub(in crate::commands) begins_at: Timestamp,
}

/// What sending messages will be like.
pub(in crate::commands) struct Outlook<'a> {
    pub(in crate::commands) messages: &'a Messages,
    /// How many are to be sent; more than were looked at, perhaps.
    pub(in crate::commands) count: u64,
    pub(in crate::commands) pace: &'a Pace,
    /// Of the prices, where the provider has any.
    pub(in crate::commands) currency: Option<&'a str>,
}

pub(super) fn alphabet(alphabet: Alphabet) -> &'static str {
    match alphabet {
        Alphabet::Gsm7 => "GSM-7",
        Alphabet::Ucs2 => "UCS-2",
    }
}

impl Outlook<'_> {
    /// How long sending takes under the narrowest limit.
    pub(super) fn takes(&self) -> Option<Duration> {
        let count = u32::try_from(self.count).map_or(f64::MAX, f64::from);
        let slowest = self
            .pace
            .limits
            .iter()
            .map(|limit| limit.per_second())
            .reduce(f64::min)?;
        Duration::try_from_secs_f64((count / slowest).ceil()).ok()
    }

    /// How many messages would expire before their turn.
    pub(super) fn too_late(&self) -> Option<u64> {
        let (takes, open_for) = (self.takes()?, self.pace.open_for?);
        let share = 1.0 - open_for.as_secs_f64() / takes.as_secs_f64();
        let count = u32::try_from(self.count).map_or(f64::MAX, f64::from);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the messages"
        )]
        let late = (share * count).ceil() as u64;
        Some(late).filter(|_| share > 0.0)
    }

    /// When all would be sent under the limits and within the window.
    pub(super) fn ends_at(&self) -> Option<Timestamp> {
        let takes = self.takes()?;
        Some(match &self.pace.window {
            Some(window) => window.end_of(self.pace.begins_at, takes),
            None => self.pace.begins_at.plus(takes),
        })
    }

    fn sending(&self) -> String {
        let hours = match (&self.pace.window, self.ends_at()) {
            (Some(window), Some(at)) => {
                format!(", {}: until about {}", window.told(), window.shown(at))
            }
            (Some(window), None) => format!(", {}", window.told()),
            (None, _) => String::new(),
        };
        let Some(takes) = self.takes() else {
            let hours = hours.replacen(", ", "; ", 1);
            return format!("as fast as it goes: no limit is set{hours}");
        };
        let limits: Vec<String> = self.pace.limits.iter().map(Rate::to_string).collect();
        let late = match self.too_late() {
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
    pub(in crate::commands) fn write(&self, text: &mut String) {
        let all = self.messages;
        let _ = writeln!(text, "  segments    {}", tell::segments(&all.segments));
        if let Some(currency) = self.currency {
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
        let _ = writeln!(text, "  sending     {}", self.sending());
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
    pub(in crate::commands) fn write_samples(&self, text: &mut String) {
        let all = self.messages;
        for sample in &all.samples {
            write_sample(text, "", sample);
        }
        let is_new = |sample: &&Sample| !all.samples.contains(sample);
        let longest = all.longest.as_ref().filter(is_new);
        if let Some(sample) = longest {
            write_sample(text, "longest: ", sample);
        }
        let is_other = |sample: &&Sample| longest != Some(*sample);
        let dearest = all.dearest.as_ref().filter(is_new).filter(is_other);
        // Where all cost the same, none is the most expensive one.
        let is_dear = |sample: &&Sample| {
            let shown = all.samples.iter().chain(longest);
            shown.map(|shown| shown.segments.count).max() < Some(sample.segments.count)
        };
        if let Some(sample) = dearest.filter(is_dear) {
            write_sample(text, "most expensive: ", sample);
        }
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
