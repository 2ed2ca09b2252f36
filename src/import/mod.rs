//! A list becomes messages in the queue: a stream of file, rows, phones, texts and batches of inserts,
//! in memory that does not depend on the file. [`Plan::prepare`] finds what is wrong with the whole
//! before anything is written; [`run`] rejects single rows, with their line and the reason.

mod cells;
mod columns;
mod config;
mod decoding;
mod digest;
mod encoding;
mod error;
mod guess;
mod header;
mod hidden;
mod home;
mod input;
mod json_lines;
mod keys;
mod mapping;
mod needs;
mod phone_list;
mod pipeline;
mod plan;
mod preview;
pub mod queue;
mod reader;
mod rejected;
mod rejects;
mod repeats;
mod rows;
mod sheet;
mod source;
mod spool;
mod survey;
mod tally;
mod unpack;
mod words;
mod workbook;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use serde::Serialize;

pub use self::config::{Allowance, Config};
pub use self::encoding::{Encoding, EncodingError};
pub use self::error::ImportError;
pub use self::keys::Unique;
pub use self::mapping::Mapping;
pub use self::needs::{Fits, Needs};
pub use self::phone_list::PhoneList;
use self::pipeline::Parsed;
pub use self::plan::{Options, Plan, TextSource};
pub use self::preview::{Preview, Seen};
pub use self::rejected::Rejected;
pub use self::rejects::is_stdout;
pub use self::tally::{Messages, Sample, Tally};
use crate::sms::Timestamp;
use crate::store::{Batch, Campaign, Store, TextNote};
use crate::text::segments::{Alphabet, Segments};

/// When the messages of an import are due, and until when they are worth sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// `None`: at once.
    pub due_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub bytes: u64,
    pub total_bytes: u64,
    pub rows: u64,
    pub rejected: u64,
}

/// What texts cost, counted over messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SegmentTotals {
    pub messages: u64,
    /// Segments of all of them.
    pub total: u64,
    /// Messages in either alphabet.
    pub gsm7: u64,
    pub ucs2: u64,
}

impl SegmentTotals {
    pub fn add(&mut self, segments: &Segments) {
        self.messages += 1;
        self.total += u64::from(segments.count.unsigned_abs());
        match segments.alphabet {
            Alphabet::Gsm7 => self.gsm7 += 1,
            Alphabet::Ucs2 => self.ucs2 += 1,
        }
    }
}

/// What became of the rows of a file: `rows = accepted + duplicates + suppressed + rejected`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub rows: u64,
    pub accepted: u64,
    /// Already in the campaign, from this file or an earlier one; the unchanged ones too.
    pub duplicates: u64,
    /// Dead letters of a failures file that came back as they were: `smsq retry` sends those again.
    pub unchanged: u64,
    pub suppressed: u64,
    pub rejected: u64,
    /// The rejected, by what is wrong with them.
    pub reasons: Reasons,
    pub rejects_file: Option<PathBuf>,
    /// The first duplicates, with what they repeat.
    pub repeats: Vec<Repeat>,
    /// Of the accepted.
    pub segments: SegmentTotals,
    /// The accepted whose numbers seldom take text messages.
    pub odd: Odd,
    /// Of the accepted.
    pub cost: Cost,
}

/// Millionths of a currency that a segment to a phone costs, where there is a price for it.
pub type PriceOf<'p> = &'p (dyn Fn(&str) -> Option<u64> + Sync);

/// What messages cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Millionths of the currency.
    pub amount: u64,
    /// Messages that no price is known for.
    pub unpriced: u64,
}

impl Cost {
    fn add(&mut self, price: Option<u64>, segments: i32) {
        match price {
            Some(price) => self.amount += price * u64::from(segments.unsigned_abs()),
            None => self.unpriced += 1,
        }
    }
}

/// Rejected rows by what is wrong with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons(BTreeMap<&'static str, u64>);

impl Reasons {
    fn add(&mut self, rejected: &[(u64, Rejected)]) {
        for (_, rejected) in rejected {
            *self.0.entry(rejected.kind).or_default() += 1;
        }
    }

    /// Those of several files.
    #[must_use]
    pub fn joined<'r>(all: impl Iterator<Item = &'r Self>) -> Self {
        let mut joined = Self::default();
        for (kind, count) in all.flat_map(|one| &one.0) {
            *joined.0.entry(kind).or_default() += count;
        }
        joined
    }

    /// The most frequent first.
    pub fn sorted(&self) -> Vec<(&'static str, u64)> {
        let mut all: Vec<_> = self.0.iter().map(|(kind, count)| (*kind, *count)).collect();
        all.sort_by_key(|&(kind, count)| (std::cmp::Reverse(count), kind));
        all
    }
}

/// Numbers of kinds that seldom take text messages: how many, and the line of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Odd(BTreeMap<&'static str, (u64, u64)>);

impl Odd {
    fn add(&mut self, kind: &'static str, line: u64) {
        self.0.entry(kind).or_insert((0, line)).0 += 1;
    }

    /// Kind, count and first line.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
        self.0
            .iter()
            .map(|(kind, (count, line))| (*kind, *count, *line))
    }
}

/// A row whose message was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    pub line: u64,
    /// The first row of the file with the same message; `None`: an earlier import had it.
    pub first: Option<u64>,
}

/// Imports a file into a campaign. Interrupted anywhere and run again, it adds what is missing.
pub async fn run(
    plan: &Plan,
    store: &Store,
    campaign: &Campaign,
    window: Window,
    price: Option<PriceOf<'_>>,
    mut progress: impl FnMut(Progress),
) -> Result<Summary, ImportError> {
    let unique = plan.unique_in(campaign)?;
    let task = plan.task(&unique, true)?;
    let started_at = store.now().await?;
    let import_id = store
        .begin_import(campaign.id, plan.file(), plan.hash(), started_at)
        .await?;
    let template = plan.template();
    if template.is_some() {
        let note = TextNote {
            template: template.as_deref(),
            ..TextNote::default()
        };
        store.note_texts(import_id, note).await?;
    }
    let mut texts = Texts {
        wants_sample: template.is_none(),
    };
    let mut summary = Summary::default();
    let mut repeated = Vec::new();
    let rejects = pipeline::stream(task, async |parsed| {
        let bytes = parsed.bytes;
        let now = store.now().await?;
        let batch = Batch {
            import_id,
            campaign_id: campaign.id,
            now,
            due_at: window.due_at.unwrap_or(now),
            expires_at: window.expires_at,
            window: campaign.window.clone(),
            row_count: parsed.row_count(),
            rejected: parsed.rejected.len() as u64,
            duplicates: 0,
            last_line: parsed.last_line,
            rows: Vec::new(),
        };
        let counts = (&mut summary, &mut repeated);
        enqueue(store, batch, parsed, price, &mut texts, counts).await?;
        progress(Progress {
            bytes,
            total_bytes: plan.bytes(),
            rows: summary.rows,
            rejected: summary.rejected,
        });
        Ok(())
    })
    .await?;
    plan.check_unchanged()?;
    summary.repeats = repeats::find(plan, &unique, &repeated)?;
    summary.rejects_file = match rejects {
        Some(rejects) => rejects.finish()?,
        None => None,
    };
    store.finish_import(import_id, store.now().await?).await?;
    Ok(summary)
}

/// What is kept of the texts of an import.
struct Texts {
    /// The list brings the texts, and none of them is kept yet.
    wants_sample: bool,
}

impl Texts {
    /// So many messages of a batch may be the first that is accepted.
    const LOOKED_AT: usize = 100;

    fn candidates(&self, parsed: &Parsed) -> Vec<(u64, String)> {
        let looked_at = if self.wants_sample {
            Self::LOOKED_AT
        } else {
            0
        };
        let rows = parsed.rows.iter().take(looked_at);
        rows.map(|row| (row.line, row.content.clone())).collect()
    }
}

async fn enqueue(
    store: &Store,
    mut batch: Batch,
    parsed: Parsed,
    price: Option<PriceOf<'_>>,
    texts: &mut Texts,
    (summary, repeated): (&mut Summary, &mut Vec<(u64, String)>),
) -> Result<(), ImportError> {
    let import_id = batch.import_id;
    let candidates = texts.candidates(&parsed);
    let before = summary.segments;
    summary.rows += batch.row_count;
    summary.rejected += batch.rejected;
    summary.reasons.add(&parsed.rejected);
    let lines: Vec<u64> = parsed.rows.iter().map(|row| row.line).collect();
    let prices: Option<Vec<Option<u64>>> =
        price.map(|price| parsed.rows.iter().map(|row| price(&row.phone)).collect());
    let mut keys: Vec<String> = Vec::new();
    if repeated.len() < repeats::NAMED {
        keys.extend(parsed.rows.iter().map(|row| row.dedupe_key.clone()));
    }
    batch.rows = parsed.rows;
    let enqueued = store.enqueue(batch).await?;
    summary.accepted += enqueued.accepted;
    summary.duplicates += (enqueued.duplicates.len() + enqueued.unchanged.len()) as u64;
    summary.unchanged += enqueued.unchanged.len() as u64;
    summary.suppressed += enqueued.suppressed.len() as u64;
    let of_line: HashSet<u64> = enqueued.duplicates.iter().copied().collect();
    let keys = lines
        .iter()
        .zip(keys)
        .filter(|(line, _)| of_line.contains(line));
    repeated.extend(
        keys.take(repeats::NAMED.saturating_sub(repeated.len()))
            .map(|(&line, key)| (line, key)),
    );
    let left_out = [enqueued.duplicates, enqueued.unchanged, enqueued.suppressed];
    let left_out: HashSet<u64> = left_out.into_iter().flatten().collect();
    for (row, (line, segments)) in lines.iter().zip(&parsed.segments).enumerate() {
        if !left_out.contains(line) {
            summary.segments.add(segments);
            if let Some(prices) = &prices {
                summary.cost.add(prices[row], segments.count);
            }
        }
    }
    for (line, kind) in parsed.odd {
        if !left_out.contains(&line) {
            summary.odd.add(kind, line);
        }
    }
    let sample = candidates
        .iter()
        .find(|(line, _)| !left_out.contains(line))
        .map(|(_, content)| content.as_str());
    texts.wants_sample &= sample.is_none();
    let note = TextNote {
        template: None,
        sample,
        gsm7: summary.segments.gsm7 - before.gsm7,
        ucs2: summary.segments.ucs2 - before.ucs2,
    };
    if note != TextNote::default() {
        store.note_texts(import_id, note).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
