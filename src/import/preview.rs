//! Reads a list as an import would, without writing: counts, statistics of the messages, and the first
//! rejected rows.

use std::collections::{HashMap, HashSet};

use super::error::{ImportError, Rejection};
use super::estimate::{MessageStats, PriceOf, Sample};
use super::pipeline::{self, ParsedBatch};
use super::plan::Plan;
use super::row_mapper::MappedRow;
use super::summary::{SeenKeys, Summary};
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

impl Default for SeenKeys {
    fn default() -> Self {
        Self::new(MAX_SEEN)
    }
}

impl Plan {
    /// Reads the whole file and keeps the first `max_samples` messages and rejected rows. `seen` has the
    /// keys of other files for the same campaign; `known` is the database and the campaign, if they exist.
    /// `progress` gets the number of rows.
    pub async fn preview(
        &self,
        seen: &mut SeenKeys,
        max_samples: usize,
        known: Option<(&Store, Option<&Campaign>)>,
        price: PriceOf<'_>,
        mut progress: impl FnMut(u64),
    ) -> Result<Preview, ImportError> {
        seen.next_file();
        let unique = match known {
            Some((_, Some(campaign))) => self.unique_in(campaign)?,
            _ => self.unique(),
        };
        let mut preview = Preview {
            stats: MessageStats::new(max_samples),
            ..Preview::default()
        };
        pipeline::stream::<_, ImportError>(self.task(&unique, false)?, async |mut parsed| {
            let known = match known {
                Some((store, campaign)) => Known::load(&parsed, store, campaign).await?,
                None => Known::default(),
            };
            let Preview {
                summary,
                stats,
                rejects,
            } = &mut preview;
            summary.rows += parsed.row_count();
            summary.add_rejected(&parsed.rejected);
            let room = max_samples.saturating_sub(rejects.len());
            rejects.extend(parsed.rejected.drain(..).take(room));
            for row in parsed.rows {
                let message = row.message;
                let class = known.classify(&message);
                let (is_new, first) = match class {
                    RowClass::Suppressed | RowClass::Unchanged => (false, None),
                    _ => seen.insert(&message.dedupe_key, message.line),
                };
                match class {
                    RowClass::Suppressed => summary.suppressed += 1,
                    RowClass::Unchanged => {
                        summary.unchanged += 1;
                        summary.duplicates += 1;
                    }
                    RowClass::New if is_new => {
                        summary.accepted += 1;
                        if let Some(kind) = row.non_mobile {
                            summary.add_non_mobile(kind, message.line);
                        }
                        let price = price(&message.phone);
                        let sample = Sample {
                            line: Some(message.line),
                            phone: message.phone,
                            content: row.shown.unwrap_or(message.content),
                            segments: row.segments,
                        };
                        stats.add(sample, price);
                    }
                    RowClass::New | RowClass::Duplicate => {
                        summary.add_duplicate(message.line, first);
                    }
                }
            }
            progress(summary.rows);
            Ok(())
        })
        .await?;
        preview.summary.segments = preview.stats.segments;
        preview.summary.cost = preview.stats.cost;
        Ok(preview)
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
        parsed: &ParsedBatch<MappedRow>,
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
