//! What a look through a list shows: how it was understood, counts, costs and the messages themselves.

use std::fmt::Write as _;

use indicatif::HumanCount;
use serde_json::{Value, json};

use super::outlook::{CHARACTERS, Outlook, Pace, alphabet};
use super::{prices, tell};
use crate::import::{Mapping, Preview, Sample, Window};
use crate::text::{printable_line, smart};

/// A file, looked through.
pub(super) struct Look<'a> {
    pub(super) file: &'a str,
    pub(super) campaign: &'a str,
    pub(super) mapping: Mapping,
    pub(super) preview: Preview,
    pub(super) schedule: Window,
    /// What would hold.
    pub(super) pace: Pace,
    /// Of the prices, where the provider has any.
    pub(super) currency: Option<&'a str>,
}

impl Look<'_> {
    fn outlook(&self) -> Outlook<'_> {
        Outlook {
            messages: &self.preview.messages,
            count: self.preview.accepted,
            pace: &self.pace,
            currency: self.currency,
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
        tell::write_schedule(&mut text, self.schedule);
        self.outlook().write(&mut text);
        self.outlook().write_samples(&mut text);
        for (line, rejected) in &preview.rejects {
            let _ = writeln!(
                text,
                "\n  line {line} rejected: {}",
                printable_line(&rejected.reason)
            );
        }
        text
    }

    pub(super) fn object(&self) -> Value {
        let preview = &self.preview;
        let (all, outlook) = (&preview.messages, self.outlook());
        let samples: Vec<Value> = all.samples.iter().map(sample_object).collect();
        let countries: serde_json::Map<String, Value> = all
            .countries
            .iter()
            .map(|(country, count)| (country.clone(), json!(count)))
            .collect();
        let expensive: Vec<Value> = all.expensive.iter().take(CHARACTERS).map(|(character, count)| {
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
            "segments": all.segments,
            "cost": prices::object(all.cost, self.currency),
            "due_at": self.schedule.due_at.map(|at| at.to_string()),
            "expires_at": self.schedule.expires_at.map(|at| at.to_string()),
            "takes_ms": outlook.takes().map(crate::sms::millis),
            "ends_at": outlook.ends_at().map(|at| at.to_string()),
            "too_late": outlook.too_late().unwrap_or_default(),
            "countries": countries,
            "expensive": expensive,
            "saving": all.saving,
            "longest": all.longest.as_ref().map(sample_object),
            "dearest": all.dearest.as_ref().map(sample_object),
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
