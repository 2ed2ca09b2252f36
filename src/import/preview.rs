//! What an import would do, with nothing written: the first messages as they will arrive, and what all
//! of them cost.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::error::ImportError;
use super::pipeline::{self, Parsed};
use super::plan::Plan;
use super::rejected::Rejected;
use super::repeats::NAMED;
use super::tally::{Messages, Tally};
use super::{Odd, PriceOf, Progress, Reasons, Repeat};
use crate::sms::NewSms;
use crate::store::inspect::Origin;
use crate::store::{Campaign, Store, StoreError};

/// Duplicates within a file are looked for among so many messages; memory stays bounded.
const REMEMBERED: usize = 1_000_000;

/// What would become of the rows of a file.
#[derive(Default)]
pub struct Preview {
    /// Those that would be sent.
    pub messages: Messages,
    pub rows: u64,
    /// Rows that would be sent.
    pub accepted: u64,
    /// Rows whose message the campaign has already, or an earlier row of the file; the unchanged ones too.
    pub duplicates: u64,
    /// Dead letters of a failures file that came back as they were.
    pub unchanged: u64,
    pub suppressed: u64,
    pub rejected: u64,
    pub reasons: Reasons,
    /// The first duplicates, with what they repeat.
    pub repeats: Vec<Repeat>,
    pub odd: Odd,
    /// The first rejected rows: line and reason.
    pub rejects: Vec<(u64, Rejected)>,
}

impl Plan {
    /// Reads the whole file; keeps the first `samples` messages and rejected rows. `known` is the database
    /// that it would go to, and the campaign there, where they exist.
    pub async fn preview(
        &self,
        samples: usize,
        known: Option<(&Store, Option<&Campaign>)>,
        price: Option<PriceOf<'_>>,
        progress: impl FnMut(Progress),
    ) -> Result<Preview, ImportError> {
        let mut seen = Seen::default();
        self.preview_after(&mut seen, samples, known, price, progress)
            .await
    }

    /// The same after other files for the same campaign.
    pub async fn preview_after(
        &self,
        seen: &mut Seen,
        samples: usize,
        known: Option<(&Store, Option<&Campaign>)>,
        price: Option<PriceOf<'_>>,
        mut progress: impl FnMut(Progress),
    ) -> Result<Preview, ImportError> {
        seen.file += 1;
        let unique = match known {
            Some((_, Some(campaign))) => self.unique_in(campaign)?,
            _ => self.unique(),
        };
        let mut counting = Counting {
            preview: Preview::default(),
            seen,
            tally: Tally::new(samples, price),
            samples,
        };
        pipeline::stream(self.task(&unique, false)?, async |parsed| {
            let bytes = parsed.bytes;
            let known = match known {
                Some((store, campaign)) => Known::of(&parsed.rows, store, campaign).await?,
                None => Known::default(),
            };
            counting.take(parsed, &known);
            let Preview { rows, rejected, .. } = counting.preview;
            progress(Progress {
                bytes,
                total_bytes: self.bytes(),
                rows,
                rejected,
            });
            Ok(())
        })
        .await?;
        let mut preview = counting.preview;
        preview.messages = counting.tally.finish();
        Ok(preview)
    }
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
    async fn of(
        rows: &[NewSms],
        store: &Store,
        campaign: Option<&Campaign>,
    ) -> Result<Self, StoreError> {
        let campaign = campaign.map(|campaign| campaign.id);
        let keys = match campaign {
            Some(id) => {
                let keys = rows.iter().map(|row| row.dedupe_key.clone()).collect();
                store.known_keys(id, keys).await?
            }
            None => HashSet::new(),
        };
        let ids: Vec<i64> = rows.iter().filter_map(|row| row.replaces).collect();
        let phones: Vec<&str> = rows.iter().map(|row| row.phone.as_str()).collect();
        Ok(Self {
            campaign,
            keys,
            origins: store.origins(&ids).await?,
            suppressed: store.suppressed_among(&phones).await?,
        })
    }

    /// What an import would do with a row, unless an earlier row has its key.
    fn fate(&self, row: &NewSms) -> Fate {
        if self.suppressed.contains(&row.phone) {
            return Fate::Suppressed;
        }
        let by_key = || {
            if self.keys.contains(&row.dedupe_key) {
                Fate::Duplicate
            } else {
                Fate::New
            }
        };
        match row.replaces.and_then(|id| self.origins.get(&id)) {
            Some(origin) if !origin.is_dead && origin.shares_with(row) => Fate::Duplicate,
            Some(origin) if origin.is_dead => {
                let has_phone = origin.phone == row.phone;
                let has_content = origin.content.as_ref() == Some(&row.content);
                let has_key = Some(origin.campaign_id) == self.campaign
                    && origin.dedupe_key.as_ref() == Some(&row.dedupe_key);
                match (has_phone && has_content, has_key) {
                    (true, _) => Fate::Unchanged,
                    (false, true) => Fate::New,
                    (false, false) => by_key(),
                }
            }
            _ => by_key(),
        }
    }
}

enum Fate {
    New,
    Duplicate,
    Unchanged,
    Suppressed,
}

struct Counting<'p> {
    preview: Preview,
    seen: &'p mut Seen,
    tally: Tally<'p>,
    /// So many rejected rows are kept.
    samples: usize,
}

/// The keys of the files so far, and where each was first.
#[derive(Default)]
pub struct Seen {
    rows: HashMap<u64, (usize, u64)>,
    /// The number of the file that is read.
    file: usize,
    hasher: RandomState,
}

impl Seen {
    /// The file and the line where the key was before, if it was.
    fn before(&mut self, key: &str, line: u64) -> Option<(usize, u64)> {
        let hash = self.hasher.hash_one(key);
        if let Some(first) = self.rows.get(&hash) {
            return Some(*first);
        }
        if self.rows.len() < REMEMBERED {
            self.rows.insert(hash, (self.file, line));
        }
        None
    }
}

impl Preview {
    fn repeat(&mut self, line: u64, first: Option<u64>) {
        self.duplicates += 1;
        if self.repeats.len() < NAMED {
            self.repeats.push(Repeat { line, first });
        }
    }
}

impl Counting<'_> {
    fn take(&mut self, parsed: Parsed, known: &Known) {
        let preview = &mut self.preview;
        preview.rows += parsed.row_count();
        preview.rejected += parsed.rejected.len() as u64;
        preview.reasons.add(&parsed.rejected);
        let odd: HashMap<u64, &'static str> = parsed.odd.into_iter().collect();
        let room = self.samples.saturating_sub(preview.rejects.len());
        preview
            .rejects
            .extend(parsed.rejected.into_iter().take(room));
        let made = parsed.rows.into_iter().zip(parsed.segments);
        for ((row, segments), seen) in made.zip(parsed.seen) {
            match known.fate(&row) {
                Fate::Suppressed => {
                    preview.suppressed += 1;
                    continue;
                }
                Fate::Unchanged => {
                    preview.unchanged += 1;
                    preview.duplicates += 1;
                    continue;
                }
                Fate::Duplicate => {
                    preview.repeat(row.line, None);
                    continue;
                }
                Fate::New => match self.seen.before(&row.dedupe_key, row.line) {
                    Some((file, first)) => {
                        let is_here = file == self.seen.file;
                        preview.repeat(row.line, is_here.then_some(first));
                        continue;
                    }
                    None => preview.accepted += 1,
                },
            }
            if let Some(kind) = odd.get(&row.line) {
                preview.odd.add(kind, row.line);
            }
            let content = seen.as_deref().unwrap_or(&row.content);
            self.tally
                .add(Some(row.line), &row.phone, content, segments);
        }
    }
}
