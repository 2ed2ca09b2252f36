//! Imports a list: writes its rows to the database in batches and counts what became of them.

use std::collections::HashSet;

use super::error::ImportError;
use super::estimate::PriceOf;
use super::pipeline::{self, ParsedBatch};
use super::plan::Plan;
use super::summary::{MAX_REPEATS, Summary};
use crate::sms::Timestamp;
use crate::store::{Batch, Campaign, Store, TextNote};
use crate::text::segments::Segments;

/// How many rows of a batch are candidates for the sample text of the report.
const MAX_SAMPLE_ROWS: usize = 100;

/// Where messages are written to.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub store: &'a Store,
    pub campaign: &'a Campaign,
    /// Returns the schedule of messages that are imported now.
    pub schedule: &'a (dyn Fn(Timestamp) -> Schedule + Sync),
}

/// When the messages of an import become due, and until when they may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// `None`: at once.
    pub due_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

/// The progress of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub bytes: u64,
    pub total_bytes: u64,
    pub rows: u64,
    pub rejected: u64,
}

/// Imports a file into a campaign. If it is interrupted and run again, it adds what is missing.
pub async fn run(
    plan: &Plan,
    target: Target<'_>,
    price: Option<PriceOf<'_>>,
    mut progress: impl FnMut(Progress),
) -> Result<Summary, ImportError> {
    let unique = plan.unique_in(target.campaign)?;
    let task = plan.task(&unique, true)?;
    let importer = Importer::begin(target, plan.file(), plan.hash()).await?;
    let mut importer = importer.with_price(price);
    importer.keep_text(plan.template()).await?;
    let rejects = pipeline::stream(task, async |parsed| {
        let bytes = parsed.bytes;
        importer.commit(parsed).await?;
        progress(Progress {
            bytes,
            total_bytes: plan.bytes(),
            rows: importer.summary.rows,
            rejected: importer.summary.rejected,
        });
        Ok(())
    })
    .await?;
    plan.check_unchanged()?;
    importer.summary.repeats = plan.find_repeats(&unique, &importer.repeated)?;
    importer.summary.rejects_file = match rejects {
        Some(rejects) => rejects.finish()?,
        None => None,
    };
    importer.finish().await
}

/// One running import.
pub(super) struct Importer<'a> {
    pub(super) target: Target<'a>,
    pub(super) id: i64,
    pub(super) summary: Summary,
    /// Line and key of the first duplicates.
    pub(super) repeated: Vec<(u64, String)>,
    price: Option<PriceOf<'a>>,
    /// The report shows the first accepted text, and none was accepted yet.
    needs_sample: bool,
}

/// What is remembered of a row while the database has its message.
struct RowFacts {
    line: u64,
    segments: Segments,
    non_mobile: Option<&'static str>,
    price: Option<u64>,
    /// Kept only while duplicates are reported by line.
    key: Option<String>,
}

impl<'a> Importer<'a> {
    /// Records the import under `name`. Messages of programs, such as one-time codes, are not kept as
    /// sample texts, so the default is without.
    pub(super) async fn begin(
        target: Target<'a>,
        name: &str,
        hash: &str,
    ) -> Result<Self, ImportError> {
        let Target {
            store, campaign, ..
        } = target;
        let now = store.now().await?;
        let id = store.begin_import(campaign.id, name, hash, now).await?;
        Ok(Self {
            target,
            id,
            summary: Summary::default(),
            repeated: Vec::new(),
            price: None,
            needs_sample: false,
        })
    }

    pub(super) fn with_price(mut self, price: Option<PriceOf<'a>>) -> Self {
        self.price = price;
        self
    }

    /// Stores the text of all messages for the report: the template, or else the first accepted text.
    pub(super) async fn keep_text(&mut self, template: Option<String>) -> Result<(), ImportError> {
        self.needs_sample = template.is_none();
        let note = TextNote {
            template: template.as_deref(),
            ..TextNote::default()
        };
        self.note(note).await
    }

    /// Commits a batch; its last line must be after that of the batch before.
    pub(super) async fn commit(&mut self, parsed: ParsedBatch) -> Result<(), ImportError> {
        let Target {
            store, campaign, ..
        } = self.target;
        let now = store.now().await?;
        let schedule = (self.target.schedule)(now);
        let candidates = if self.needs_sample {
            MAX_SAMPLE_ROWS
        } else {
            0
        };
        let candidates = parsed.rows.iter().take(candidates);
        let candidates: Vec<(u64, String)> = candidates
            .map(|row| (row.message.line, row.message.content.clone()))
            .collect();
        let (row_count, rejected) = (parsed.row_count(), parsed.rejected.len() as u64);
        let keeps_keys = self.repeated.len() < MAX_REPEATS;
        let (rows, facts): (Vec<_>, Vec<_>) = parsed
            .rows
            .into_iter()
            .map(|row| {
                let facts = RowFacts {
                    line: row.message.line,
                    segments: row.segments,
                    non_mobile: row.non_mobile,
                    price: self.price.and_then(|price| price(&row.message.phone)),
                    key: keeps_keys.then(|| row.message.dedupe_key.clone()),
                };
                (row.message, facts)
            })
            .unzip();
        let enqueued = store
            .enqueue(Batch {
                import_id: self.id,
                campaign_id: campaign.id,
                now,
                due_at: schedule.due_at.unwrap_or(now),
                expires_at: schedule.expires_at,
                window: campaign.window.clone(),
                rows,
                row_count,
                rejected,
                duplicates: 0,
                last_line: parsed.last_line,
            })
            .await?;
        let summary = &mut self.summary;
        summary.rows += row_count;
        summary.rejected += rejected;
        summary.reasons.add(&parsed.rejected);
        summary.accepted += enqueued.accepted;
        summary.duplicates += (enqueued.duplicates.len() + enqueued.unchanged.len()) as u64;
        summary.unchanged += enqueued.unchanged.len() as u64;
        summary.suppressed += enqueued.suppressed.len() as u64;
        let duplicates: HashSet<u64> = enqueued.duplicates.into_iter().collect();
        let others = enqueued.unchanged.into_iter().chain(enqueued.suppressed);
        let left_out: HashSet<u64> = duplicates.iter().copied().chain(others).collect();
        let before = summary.segments;
        for row in facts {
            if !left_out.contains(&row.line) {
                summary.segments.add(&row.segments);
                if self.price.is_some() {
                    summary.cost.add(row.price, row.segments.count);
                }
                if let Some(kind) = row.non_mobile {
                    summary.non_mobile.add(kind, row.line);
                }
            } else if let Some(key) = row.key
                && duplicates.contains(&row.line)
                && self.repeated.len() < MAX_REPEATS
            {
                self.repeated.push((row.line, key));
            }
        }
        let mut accepted = candidates
            .iter()
            .filter(|(line, _)| !left_out.contains(line));
        let sample = accepted.next().map(|(_, content)| content.as_str());
        self.needs_sample &= sample.is_none();
        let note = TextNote {
            template: None,
            sample,
            gsm7: summary.segments.gsm7 - before.gsm7,
            ucs2: summary.segments.ucs2 - before.ucs2,
        };
        self.note(note).await
    }

    async fn note(&self, note: TextNote<'_>) -> Result<(), ImportError> {
        if note != TextNote::default() {
            self.target.store.note_texts(self.id, note).await?;
        }
        Ok(())
    }

    pub(super) async fn finish(self) -> Result<Summary, ImportError> {
        let store = self.target.store;
        store.finish_import(self.id, store.now().await?).await?;
        Ok(self.summary)
    }
}
