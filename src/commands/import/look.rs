//! What a look through a list shows: how it was understood, counts, costs and the messages themselves.

use std::fmt::Write as _;

use indicatif::HumanCount;
use serde_json::{Value, json};

use super::outlook::{self, CHARACTERS, alphabet};
use super::{prices, tell};
use crate::import::{Estimate, Interpretation, Rejection, Sample, Schedule, Summary};
use crate::text::{printable_line, smart};

/// A file, looked through.
pub(super) struct Look<'a> {
    pub(super) file: &'a str,
    pub(super) campaign: &'a str,
    pub(super) interpretation: Interpretation,
    pub(super) summary: Summary,
    /// The first rejected rows: line and reason.
    pub(super) rejects: Vec<(u64, Rejection)>,
    pub(super) schedule: Schedule,
    pub(super) estimate: Estimate,
}

impl Look<'_> {
    pub(super) fn text(&self) -> String {
        let summary = &self.summary;
        let Interpretation {
            form, phone, text, ..
        } = &self.interpretation;
        let mut text = format!(
            "{} into campaign `{}`\n  list        {form}\n  phone       {phone}\n  text        {text}\n",
            self.file, self.campaign
        );
        for (word, count) in [
            ("rows", summary.rows),
            ("would send", summary.accepted),
            ("duplicates", summary.duplicates),
            ("suppressed", summary.suppressed),
            ("rejected", summary.rejected),
        ] {
            let _ = writeln!(text, "  {word:<11} {}", HumanCount(count));
        }
        tell::explain(&mut text, &summary.repeats, &summary.reasons);
        tell::write_schedule(&mut text, self.schedule);
        outlook::write_estimate(&mut text, &self.estimate);
        outlook::write_samples(&mut text, &self.estimate);
        for (line, rejected) in &self.rejects {
            let _ = writeln!(
                text,
                "\n  line {line} rejected: {}",
                printable_line(&rejected.reason)
            );
        }
        text
    }

    pub(super) fn object(&self) -> Value {
        let summary = &self.summary;
        let (estimate, all) = (&self.estimate, &self.estimate.stats);
        let samples: Vec<Value> = all.samples.iter().map(sample_object).collect();
        let countries: serde_json::Map<String, Value> = all
            .countries
            .iter()
            .map(|(country, count)| (country.clone(), json!(count)))
            .collect();
        let expensive: Vec<Value> = all.expensive.iter().take(CHARACTERS).map(|(character, count)| {
            json!({ "character": character, "messages": count, "instead": smart::plain(*character) })
        }).collect();
        let rejects: Vec<Value> = self
            .rejects
            .iter()
            .map(|(line, rejected)| json!({ "line": line, "reason": rejected.reason }))
            .collect();
        json!({
            "dry_run": true,
            "file": self.file,
            "campaign": self.campaign,
            "rows": summary.rows,
            "accepted": summary.accepted,
            "duplicates": summary.duplicates,
            "suppressed": summary.suppressed,
            "rejected": summary.rejected,
            "segments": all.segments,
            "cost": prices::object(all.cost, estimate.currency.as_deref()),
            "due_at": self.schedule.due_at.map(|at| at.to_string()),
            "expires_at": self.schedule.expires_at.map(|at| at.to_string()),
            "takes_ms": estimate.duration().map(crate::sms::millis),
            "ends_at": estimate.ends_at().map(|at| at.to_string()),
            "too_late": estimate.too_late().unwrap_or_default(),
            "countries": countries,
            "expensive": expensive,
            "saving": all.saving,
            "longest": all.longest.as_ref().map(sample_object),
            "most_expensive": all.most_expensive.as_ref().map(sample_object),
            "samples": samples,
            "rejects": rejects,
            "by_reason": tell::by_reason(&summary.reasons),
            "list": self.interpretation.form,
            "phone": self.interpretation.phone,
            "text": self.interpretation.text,
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
