//! Imports a list: writes its rows to the database in batches and counts what became of them.

use std::collections::BTreeMap;

use smsq_message::route::Division;
use smsq_message::sms::Timestamp;
use smsq_store::{Campaign, ImportApproval, ImportBatch, ImportTexts, Store};

use super::error::{ImportError, Rejection};
use super::estimate::{PriceOf, SegmentTotals};
use super::pipeline::{self, ParsedBatch};
use super::plan::Plan;
use super::row_mapper::MappedRow;
use super::summary::{SeenKeys, Summary};

/// Duplicates are reported with the row that they repeat if that is one of the first rows.
const MAX_SEEN: usize = 200_000;

/// Where messages are written to.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub store: &'a Store,
    pub campaign: &'a Campaign,
    /// Returns the schedule of messages that are imported now.
    pub schedule: &'a (dyn Fn(Timestamp) -> Schedule + Sync),
    /// The lanes of the campaign's senders; `None`: it has no pool of senders.
    pub division: Option<&'a Division>,
    /// The name of the token with which the list was uploaded.
    pub posted_by: Option<&'a str>,
    /// Whether the messages wait for approval.
    pub approval: &'a ImportApproval,
}

/// When the messages of an import become due, and until when they may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// `None`: at once.
    pub due_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

/// Imports a list into a campaign. If it is interrupted and run again, it adds what is missing. `progress`
/// gets the number of rows and an estimate of all rows.
pub async fn run(
    plan: &Plan,
    target: Target<'_>,
    price: PriceOf<'_>,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<Summary, ImportError> {
    let unique = plan.unique_in(target.campaign)?;
    let task = plan.task(&unique, true)?;
    let interrupted = match target.posted_by {
        Some(token) => {
            let (store, campaign) = (target.store, target.campaign);
            store.imports().interrupted_uploads(campaign.id, plan.hash(), token).await?
        }
        None => Vec::new(),
    };
    let mut importer = Importer::begin(target, plan.file(), plan.hash()).await?;
    for (_, accepted, last_line) in &interrupted {
        importer.stored += accepted;
        importer.stored_until = importer.stored_until.max(*last_line);
    }
    importer.price = price;
    importer.seen = SeenKeys::new(MAX_SEEN);
    let template = plan.template();
    importer.needs_sample = template.is_none();
    let note = ImportTexts { template, ..ImportTexts::default() };
    importer.note(note).await?;
    let mut dead = BTreeMap::new();
    let mut rejects = pipeline::stream::<_, ImportError>(task, async |parsed| {
        let bytes = parsed.bytes;
        dead.extend(importer.commit(parsed).await?);
        let rows = importer.summary.rows;
        let total = (rows * plan.list.text.length).checked_div(bytes);
        progress(rows, total.map(|total| total.max(rows)));
        Ok(())
    })
    .await?;
    if !dead.is_empty()
        && let Some(file) = rejects.take()
    {
        let records = plan.task(&unique, false)?.records;
        rejects = Some(pipeline::reject_lines(records, file, dead).await?);
    }
    plan.list.check_unchanged()?;
    if let Some(rejects) = rejects {
        importer.summary.rejects_file = rejects.finish()?;
    }
    for (id, ..) in interrupted {
        target.store.imports().finish(id, target.store.now().await?).await?;
    }
    importer.finish().await
}

/// One running import.
pub(super) struct Importer<'a> {
    target: Target<'a>,
    pub(super) id: i64,
    pub(super) summary: Summary,
    price: PriceOf<'a>,
    seen: SeenKeys,
    /// Messages that interrupted uploads of the same file have queued, and their last line. They count as accepted.
    stored: u64,
    stored_until: u64,
    /// The report shows the first accepted text, and none was accepted yet.
    needs_sample: bool,
}

impl<'a> Importer<'a> {
    /// Records the import under `name`. No sample text is kept: messages of programs can be one-time codes.
    pub(super) async fn begin(
        target: Target<'a>,
        name: &str,
        hash: &str,
    ) -> Result<Self, ImportError> {
        let now = target.store.now().await?;
        let imports = target.store.imports();
        let begun = imports.begin(target.campaign.id, name, hash, target.posted_by, now).await?;
        Ok(Self {
            target,
            id: begun,
            summary: Summary::default(),
            price: &|_| None,
            seen: SeenKeys::new(0),
            stored: 0,
            stored_until: 0,
            needs_sample: false,
        })
    }

    /// Commits a batch; its last line must be after that of the batch before. Returns the lines of rows whose number does
    /// not exist, and the reasons.
    pub(super) async fn commit(
        &mut self,
        mut parsed: ParsedBatch<MappedRow>,
    ) -> Result<Vec<(u64, String)>, ImportError> {
        let Target { store, campaign, .. } = self.target;
        let now = store.now().await?;
        let schedule = (self.target.schedule)(now);
        let rows = parsed.rows.iter_mut();
        let messages = rows.map(|row| std::mem::take(&mut row.message)).collect();
        let batch = ImportBatch {
            import_id: self.id,
            campaign_id: campaign.id,
            now,
            due_at: schedule.due_at.unwrap_or(now),
            expires_at: schedule.expires_at,
            window: campaign.window.clone(),
            division: self.target.division.cloned(),
            approval: self.target.approval.clone(),
            row_count: parsed.row_count(),
            rejected: parsed.rejected.len() as u64,
            last_line: parsed.last_line,
            rows: messages,
        };
        let enqueued = store.imports().enqueue(&batch).await?;
        let summary = &mut self.summary;
        let before = summary.segments;
        summary.rows += batch.row_count;
        summary.add_rejected(&parsed.rejected);
        summary.accepted += enqueued.accepted;
        summary.duplicates += enqueued.unchanged.len() as u64;
        summary.unchanged += enqueued.unchanged.len() as u64;
        summary.unchanged_sent += enqueued.unchanged_sent;
        summary.suppressed += enqueued.suppressed.len() as u64;
        let (dead, rejected): (Vec<u64>, Vec<_>) = enqueued
            .dead
            .iter()
            .map(|(line, reason)| (*line, (*line, Rejection::dead(reason))))
            .unzip();
        summary.add_rejected(&rejected);
        let (mut sample, mut earlier) = (None, SegmentTotals::default());
        for (message, row) in batch.rows.iter().zip(&parsed.rows) {
            let line = message.line;
            // The lines of a batch are in ascending order.
            let is_among = |lines: &[u64]| lines.binary_search(&line).is_ok();
            let (_, first) = self.seen.insert(&message.dedupe_key, line);
            let is_duplicate = is_among(&enqueued.duplicates);
            let is_stored =
                is_duplicate && first.is_none() && line <= self.stored_until && self.stored > 0;
            if is_stored {
                self.stored -= 1;
                summary.accepted += 1;
                earlier.add(&row.segments);
            }
            if is_duplicate && !is_stored {
                summary.add_duplicate(line, first);
            } else if ![&enqueued.unchanged, &enqueued.suppressed, &dead]
                .into_iter()
                .any(|lines| is_among(lines))
            {
                let price = (self.price)(&message.phone);
                summary.segments.add(&row.segments);
                summary.cost.add(price, row.segments.count);
                if let Some(kind) = row.non_mobile {
                    summary.add_non_mobile(kind, line);
                }
                sample.get_or_insert(message.content.as_str());
            }
        }
        let note = ImportTexts {
            template: None,
            sample: sample.filter(|_| self.needs_sample),
            gsm7: summary.segments.gsm7 - before.gsm7 - earlier.gsm7,
            ucs2: summary.segments.ucs2 - before.ucs2 - earlier.ucs2,
        };
        self.needs_sample &= sample.is_none();
        self.note(note).await?;
        Ok(enqueued.dead)
    }

    async fn note(&self, note: ImportTexts<'_>) -> Result<(), ImportError> {
        if note != ImportTexts::default() {
            self.target.store.imports().add_texts(self.id, note).await?;
        }
        Ok(())
    }

    pub(super) async fn finish(self) -> Result<Summary, ImportError> {
        let store = self.target.store;
        store.imports().finish(self.id, store.now().await?).await?;
        Ok(self.summary)
    }
}
