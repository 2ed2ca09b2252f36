//! Reads a list as an import would, without writing: counts, statistics of the messages, and the first
//! rejected rows.

use smsq_lifecycle::dedupe::Decision;
use smsq_store::{Campaign, Store};

use super::error::{ImportError, Rejection};
use super::estimate::{EstimatedCost, MessageStats, PriceOf, Sample};
use super::pipeline;
use super::plan::Plan;
use super::row_mapper::MappedRow;
use super::summary::{SeenKeys, Summary};

/// Duplicates are looked for among this many messages, so that memory is bounded.
const MAX_SEEN: usize = 1_000_000;

/// The decision for a row without a database.
const NEW: Decision = Decision::New { with_key: true, replaces: None };

/// What an import would do.
#[derive(Default)]
pub struct Preview {
    pub summary: Summary,
    /// Of the messages that would be accepted.
    pub stats: MessageStats,
    /// The first rejected rows with their lines.
    pub rejects: Vec<(u64, Rejection)>,
    /// What messages to numbers that do not exist would cost.
    pub saved: EstimatedCost,
}

impl Default for SeenKeys {
    fn default() -> Self {
        Self::new(MAX_SEEN)
    }
}

/// What a preview keeps of a list.
#[derive(Clone, Copy, Debug)]
pub struct KeptRows {
    /// The first messages, and the first rejected rows.
    pub max_samples: usize,
    /// A file with all rejected rows.
    pub rejects_file: bool,
}

impl Preview {
    /// Adds rows with the decisions of the database. `price`: of one segment to a phone.
    fn add(
        &mut self,
        rows: Vec<MappedRow>,
        decisions: Vec<Decision>,
        seen: &mut SeenKeys,
        max_samples: usize,
        price: PriceOf<'_>,
    ) {
        let Self { summary, stats, rejects, saved } = self;
        for (row, decision) in rows.into_iter().zip(decisions) {
            let message = row.message;
            if decision == Decision::Suppressed {
                summary.suppressed += 1;
                continue;
            }
            if let Decision::Dead(reason) = decision {
                saved.add(price(&message.phone), row.segments.count);
                let rejected = [(message.line, Rejection::dead(reason))];
                summary.add_rejected(&rejected);
                if rejects.len() < max_samples {
                    rejects.extend(rejected);
                }
                continue;
            }
            if let Decision::Unchanged { was_sent } = decision {
                summary.unchanged += 1;
                summary.unchanged_sent += u64::from(was_sent);
                summary.duplicates += 1;
                continue;
            }
            let (is_new, first) = seen.insert(&message.dedupe_key, message.line);
            if decision == Decision::Duplicate || !is_new {
                summary.add_duplicate(message.line, first);
                continue;
            }
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
    }
}

impl Plan {
    /// Reads the whole file. `seen` has the keys of other files for the same campaign; `known` is the database and the campaign, if they exist.
    /// `progress` gets the number of rows.
    pub async fn preview(
        &self,
        seen: &mut SeenKeys,
        keep: KeptRows,
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
            stats: MessageStats::new(keep.max_samples).with_route(self.route()),
            ..Preview::default()
        };
        let task = self.task(&unique, keep.rejects_file)?;
        let rejects = pipeline::stream::<_, ImportError>(task, async |mut parsed| {
            let decisions = match known {
                Some((store, campaign)) => {
                    // No campaign has the id 0.
                    let campaign = campaign.map_or(0, |campaign| campaign.id);
                    let rows: Vec<_> = parsed.rows.iter().map(|row| &row.message).collect();
                    let now = store.now().await?;
                    store.imports().decide(campaign, &rows, now).await?
                }
                None => vec![NEW; parsed.rows.len()],
            };
            preview.summary.rows += parsed.row_count();
            preview.summary.add_rejected(&parsed.rejected);
            let room = keep.max_samples.saturating_sub(preview.rejects.len());
            preview.rejects.extend(parsed.rejected.drain(..).take(room));
            preview.add(parsed.rows, decisions, seen, keep.max_samples, price);
            progress(preview.summary.rows);
            Ok(())
        })
        .await?;
        // Those whose number does not exist are found last of their batch.
        preview.rejects.sort_by_key(|(line, _)| *line);
        preview.summary.segments = preview.stats.segments;
        preview.summary.cost = preview.stats.cost;
        preview.summary.rejects_file = match rejects {
            Some(rejects) => rejects.finish()?,
            None => None,
        };
        Ok(preview)
    }
}
