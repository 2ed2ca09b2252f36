//! Reads a list as an import would, without writing: counts, statistics of the messages, and the first
//! rejected rows.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::error::ImportError;
use super::estimate::{MessageStats, PriceOf, StatsBuilder};
use super::importer::Progress;
use super::pipeline::{self, ParsedBatch};
use super::plan::Plan;
use super::rejection::Rejection;
use super::summary::{MAX_REPEATS, Repeat, Summary};
use crate::sms::NewSms;
use crate::store::report::Origin;
use crate::store::{Campaign, Store, StoreError};

/// Duplicates are looked for among this many messages, so that memory is bounded.
const MAX_SEEN: usize = 1_000_000;

/// What an import would do.
#[derive(Default)]
pub struct Preview {
    pub summary: Summary,
    /// Of the messages that would be accepted.
    pub stats: MessageStats,
    /// The first rejected rows with their lines.
    pub rejects: Vec<(u64, Rejection)>,
}

/// The keys of the files read so far for one campaign, and where each was first.
#[derive(Default)]
pub struct SeenKeys {
    rows: HashMap<u64, (usize, u64)>,
    /// The number of the current file.
    file: usize,
    hasher: RandomState,
}

impl SeenKeys {
    /// Returns the file and line where the key was seen before.
    fn insert(&mut self, key: &str, line: u64) -> Option<(usize, u64)> {
        let hash = self.hasher.hash_one(key);
        if let Some(first) = self.rows.get(&hash) {
            return Some(*first);
        }
        if self.rows.len() < MAX_SEEN {
            self.rows.insert(hash, (self.file, line));
        }
        None
    }
}

impl Plan {
    /// Reads the whole file and keeps the first `max_samples` messages and rejected rows. `seen` has the
    /// keys of other files for the same campaign; `known` is the database and the campaign, if they exist.
    pub async fn preview(
        &self,
        seen: &mut SeenKeys,
        max_samples: usize,
        known: Option<(&Store, Option<&Campaign>)>,
        price: Option<PriceOf<'_>>,
        mut progress: impl FnMut(Progress),
    ) -> Result<Preview, ImportError> {
        seen.file += 1;
        let unique = match known {
            Some((_, Some(campaign))) => self.unique_in(campaign)?,
            _ => self.unique(),
        };
        let mut preview = Preview::default();
        let mut stats = StatsBuilder::new(max_samples, price);
        pipeline::stream(self.task(&unique, false)?, async |mut parsed| {
            let known = match known {
                Some((store, campaign)) => Known::load(&parsed, store, campaign).await?,
                None => Known::default(),
            };
            preview.summary.rows += parsed.row_count();
            preview.summary.rejected += parsed.rejected.len() as u64;
            preview.summary.reasons.add(&parsed.rejected);
            let room = max_samples.saturating_sub(preview.rejects.len());
            preview.rejects.extend(parsed.rejected.drain(..).take(room));
            for row in &parsed.rows {
                let message = &row.message;
                if preview
                    .summary
                    .count(known.classify(message), message, seen)
                {
                    if let Some(kind) = row.non_mobile {
                        preview.summary.non_mobile.add(kind, message.line);
                    }
                    let content = row.shown.as_deref().unwrap_or(&message.content);
                    stats.add(Some(message.line), &message.phone, content, row.segments);
                }
            }
            progress(Progress {
                bytes: parsed.bytes,
                total_bytes: self.bytes(),
                rows: preview.summary.rows,
                rejected: preview.summary.rejected,
            });
            Ok(())
        })
        .await?;
        preview.stats = stats.finish();
        preview.summary.segments = preview.stats.segments;
        preview.summary.cost = preview.stats.cost;
        Ok(preview)
    }
}

impl Summary {
    /// Counts a row; returns whether it would be sent.
    fn count(&mut self, class: RowClass, row: &NewSms, seen: &mut SeenKeys) -> bool {
        let first = match class {
            RowClass::Suppressed => {
                self.suppressed += 1;
                return false;
            }
            RowClass::Unchanged => {
                self.unchanged += 1;
                self.duplicates += 1;
                return false;
            }
            RowClass::Duplicate => None,
            RowClass::New => {
                if let Some((file, line)) = seen.insert(&row.dedupe_key, row.line) {
                    (file == seen.file).then_some(line)
                } else {
                    self.accepted += 1;
                    return true;
                }
            }
        };
        self.duplicates += 1;
        if self.repeats.len() < MAX_REPEATS {
            let line = row.line;
            self.repeats.push(Repeat { line, first });
        }
        false
    }
}

/// What an import would do with a row.
#[derive(Clone, Copy)]
enum RowClass {
    New,
    Duplicate,
    Unchanged,
    Suppressed,
}

/// What the database has of the messages of a batch.
#[derive(Default)]
struct Known {
    campaign: Option<i64>,
    keys: HashSet<String>,
    origins: HashMap<i64, Origin>,
    suppressed: HashSet<String>,
}

impl Known {
    async fn load(
        parsed: &ParsedBatch,
        store: &Store,
        campaign: Option<&Campaign>,
    ) -> Result<Self, StoreError> {
        let rows = || parsed.rows.iter().map(|row| &row.message);
        let keys = match campaign {
            Some(campaign) => {
                let keys = rows().map(|row| row.dedupe_key.clone()).collect();
                store.known_keys(campaign.id, keys).await?
            }
            None => HashSet::new(),
        };
        let ids: Vec<i64> = rows().filter_map(|row| row.replaces).collect();
        let phones: Vec<&str> = rows().map(|row| row.phone.as_str()).collect();
        Ok(Self {
            campaign: campaign.map(|campaign| campaign.id),
            keys,
            origins: store.origins(&ids).await?,
            suppressed: store.suppressed_among(&phones).await?,
        })
    }

    /// Decides as the database would, apart from earlier rows with the same key.
    fn classify(&self, row: &NewSms) -> RowClass {
        if self.suppressed.contains(&row.phone) {
            return RowClass::Suppressed;
        }
        let origin = row.replaces.and_then(|id| self.origins.get(&id));
        if let Some(origin) = origin {
            if !origin.has_failed && origin.shares_with(row) {
                return RowClass::Duplicate;
            }
            let is_same =
                origin.phone == row.phone && origin.content.as_ref() == Some(&row.content);
            if origin.has_failed && is_same {
                return RowClass::Unchanged;
            }
            let has_key = Some(origin.campaign_id) == self.campaign
                && origin.dedupe_key.as_ref() == Some(&row.dedupe_key);
            if origin.has_failed && has_key {
                return RowClass::New;
            }
        }
        if self.keys.contains(&row.dedupe_key) {
            RowClass::Duplicate
        } else {
            RowClass::New
        }
    }
}
