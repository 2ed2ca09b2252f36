//! What a look through a list shows: how it was understood, counts, costs and the messages themselves.

use std::fmt::Write as _;
use std::time::Duration;

use indicatif::HumanCount;
use serde_json::{Value, json};

use super::{prices, tell};
use crate::commands::words::{counted, duration, messages};
use crate::import::{Mapping, Preview, Sample};
use crate::rate::Rate;
use crate::sms::Timestamp;
use crate::text::segments::Alphabet;
use crate::text::smart;
use crate::window::Window;

/// So many expensive characters are named.
const CHARACTERS: usize = 5;
/// So many countries are named.
const COUNTRIES: usize = 5;

/// A file, looked through.
pub(super) struct Look<'a> {
    pub(super) file: &'a str,
    pub(super) campaign: &'a str,
    pub(super) mapping: Mapping,
    pub(super) preview: Preview,
    /// The limits that would hold.
    pub(super) limits: Vec<Rate>,
    /// Of the prices, where the provider has any.
    pub(super) currency: Option<&'a str>,
    /// How long the messages are worth sending and may be sent; `None`: without end.
    pub(super) open_for: Option<Duration>,
    /// When they may be sent, and from when on they would be.
    pub(super) window: Option<Window>,
    pub(super) begins_at: Timestamp,
}

fn alphabet(alphabet: Alphabet) -> &'static str {
    match alphabet {
        Alphabet::Gsm7 => "GSM-7",
        Alphabet::Ucs2 => "UCS-2",
    }
}

impl Look<'_> {
    /// How long sending takes under the narrowest limit.
    fn takes(&self) -> Option<Duration> {
        let count = u32::try_from(self.preview.accepted).map_or(f64::MAX, f64::from);
        let slowest = self
            .limits
            .iter()
            .map(|limit| limit.per_second())
            .reduce(f64::min)?;
        Duration::try_from_secs_f64((count / slowest).ceil()).ok()
    }

    /// How many messages would expire before their turn.
    fn too_late(&self) -> Option<u64> {
        let (takes, open_for) = (self.takes()?, self.open_for?);
        let share = 1.0 - open_for.as_secs_f64() / takes.as_secs_f64();
        let count = u32::try_from(self.preview.accepted).map_or(f64::MAX, f64::from);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the messages"
        )]
        let late = (share * count).ceil() as u64;
        Some(late).filter(|_| share > 0.0)
    }

    /// When all would be sent under the limits and within the window.
    fn ends_at(&self) -> Option<Timestamp> {
        let takes = self.takes()?;
        Some(match &self.window {
            Some(window) => window.end_of(self.begins_at, takes),
            None => self.begins_at.plus(takes),
        })
    }

    fn sending(&self) -> String {
        let hours = match (&self.window, self.ends_at()) {
            (Some(window), Some(at)) => {
                format!(", {}: until about {}", window.told(), window.shown(at))
            }
            (Some(window), None) => format!(", {}", window.told()),
            (None, _) => String::new(),
        };
        let Some(takes) = self.takes() else {
            return format!("as fast as it goes: no limit is set{hours}");
        };
        let limits: Vec<String> = self.limits.iter().map(Rate::to_string).collect();
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

    /// What the segments cost and would not have to, and where they go.
    fn costs(&self, text: &mut String) {
        let preview = &self.preview;
        if let Some(currency) = self.currency {
            let _ = writeln!(
                text,
                "  cost        {}",
                prices::text(preview.cost, currency)
            );
        }
        if preview.saving > 0 {
            let _ = writeln!(
                text,
                "  saving      {} with `--smart`",
                counted(preview.saving, "segment")
            );
        }
        let named = preview.countries.iter().take(COUNTRIES);
        let named: Vec<String> = named
            .map(|(country, count)| format!("{country}: {}", HumanCount(*count)))
            .collect();
        if preview.countries.len() > 1 {
            let more = if preview.countries.len() > COUNTRIES {
                ", …"
            } else {
                ""
            };
            let _ = writeln!(text, "  countries   {}{more}", named.join(", "));
        }
    }

    pub(super) fn text(&self) -> String {
        let preview = &self.preview;
        let Mapping {
            form, phone, text, ..
        } = &self.mapping;
        let mut text = format!(
            "{} into campaign `{}`\n  list        {form}\n  phone       {phone}\n  text        {text}\n",
            self.file, self.campaign
        );
        for (word, count) in [
            ("rows", preview.rows),
            ("would send", preview.accepted),
            ("duplicates", preview.duplicates),
            ("suppressed", preview.suppressed),
            ("rejected", preview.rejected),
        ] {
            let _ = writeln!(text, "  {word:<11} {}", HumanCount(count));
        }
        tell::explain(&mut text, &preview.repeats, &preview.reasons);
        let _ = writeln!(text, "  segments    {}", tell::segments(&preview.segments));
        self.costs(&mut text);
        let _ = writeln!(text, "  sending     {}", self.sending());
        for (character, count) in preview.expensive.iter().take(CHARACTERS) {
            let code = u32::from(*character);
            let is_shown = !character.is_control() && !character.is_whitespace();
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
        for sample in &preview.samples {
            write_sample(&mut text, "", sample);
        }
        let is_new = |sample: &&Sample| {
            preview
                .samples
                .iter()
                .all(|shown| shown.line != sample.line)
        };
        let longest = preview.longest.as_ref().filter(is_new);
        if let Some(sample) = longest {
            write_sample(&mut text, "longest: ", sample);
        }
        let is_other = |sample: &&Sample| longest.is_none_or(|longest| longest.line != sample.line);
        let dearest = preview.dearest.as_ref().filter(is_new).filter(is_other);
        // Where all cost the same, none is the most expensive one.
        let is_dear = |sample: &&Sample| {
            let shown = preview.samples.iter().chain(longest);
            shown.map(|shown| shown.segments.count).max() < Some(sample.segments.count)
        };
        if let Some(sample) = dearest.filter(is_dear) {
            write_sample(&mut text, "most expensive: ", sample);
        }
        for (line, rejected) in &preview.rejects {
            let _ = writeln!(text, "\n  line {line} rejected: {}", rejected.reason);
        }
        text
    }

    pub(super) fn object(&self) -> Value {
        let preview = &self.preview;
        let samples: Vec<Value> = preview.samples.iter().map(sample_object).collect();
        let countries: serde_json::Map<String, Value> = preview
            .countries
            .iter()
            .map(|(country, count)| (country.clone(), json!(count)))
            .collect();
        let expensive: Vec<Value> = preview.expensive.iter().take(CHARACTERS).map(|(character, count)| {
            json!({ "character": character, "messages": count, "instead": smart::plain(*character) })
        }).collect();
        let rejects: Vec<Value> = preview
            .rejects
            .iter()
            .map(|(line, rejected)| json!({ "line": line, "reason": rejected.reason }))
            .collect();
        json!({
            "dry_run": true,
            "file": self.file,
            "campaign": self.campaign,
            "rows": preview.rows,
            "accepted": preview.accepted,
            "duplicates": preview.duplicates,
            "suppressed": preview.suppressed,
            "rejected": preview.rejected,
            "segments": preview.segments,
            "cost": prices::object(preview.cost, self.currency),
            "takes_ms": self.takes().map(crate::sms::millis),
            "ends_at": self.ends_at().map(|at| at.to_string()),
            "too_late": self.too_late().unwrap_or_default(),
            "countries": countries,
            "expensive": expensive,
            "saving": preview.saving,
            "longest": preview.longest.as_ref().map(sample_object),
            "dearest": preview.dearest.as_ref().map(sample_object),
            "samples": samples,
            "rejects": rejects,
            "by_reason": tell::by_reason(&preview.reasons),
            "list": self.mapping.form,
            "phone": self.mapping.phone,
            "text": self.mapping.text,
        })
    }
}

fn sample_object(sample: &Sample) -> Value {
    json!({
        "line": sample.line, "phone": sample.phone, "content": sample.content,
        "segments": sample.segments.count,
        "alphabet": alphabet(sample.segments.alphabet),
    })
}

fn write_sample(text: &mut String, what: &str, sample: &Sample) {
    let _ = writeln!(
        text,
        "\n  {what}line {} to {}: {} × {}\n    {}",
        sample.line,
        sample.phone,
        sample.segments.count,
        alphabet(sample.segments.alphabet),
        sample.content.replace('\n', "\n    ")
    );
}
