//! What an import would do, with nothing written: the first messages as they will arrive, and what all
//! of them cost.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::error::ImportError;
use super::pipeline::{self, Parsed};
use super::plan::Plan;
use super::rejected::Rejected;
use super::repeats::NAMED;
use super::{Cost, Odd, PriceOf, Progress, Reasons, Repeat, SegmentTotals};
use crate::phone;
use crate::sms::NewSms;
use crate::store::inspect::Origin;
use crate::store::{Campaign, Store, StoreError};
use crate::text::segments::{self, Alphabet, Segments};
use crate::text::smart;

/// Duplicates within a file are looked for among so many messages; memory stays bounded.
const REMEMBERED: usize = 1_000_000;
/// Different characters that are counted one by one.
const CHARACTERS: usize = 10_000;

/// A message as it would be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Sample {
    pub line: u64,
    /// E.164 with `+`.
    pub phone: String,
    pub content: String,
    pub segments: Segments,
}

/// What would become of the rows of a file.
#[derive(Default)]
pub struct Preview {
    pub samples: Vec<Sample>,
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
    /// Of the accepted.
    pub segments: SegmentTotals,
    /// The characters that make messages expensive, with the number of messages that have them; the
    /// most frequent first.
    pub expensive: Vec<(char, u64)>,
    /// The message with the most characters, and the one with the most segments.
    pub longest: Option<Sample>,
    pub dearest: Option<Sample>,
    /// Recipients by the country of their code, the most frequent first.
    pub countries: Vec<(String, u64)>,
    /// Segments that plain characters instead of typographic ones would save.
    pub saving: u64,
    pub cost: Cost,
}

impl Plan {
    /// Reads the whole file; keeps the first `samples` messages and rejected rows. `known` is the database
    /// that it would go to, and the campaign there, where they exist.
    pub async fn preview(
        &self,
        samples: usize,
        known: Option<(&Store, Option<&Campaign>)>,
        price: Option<PriceOf<'_>>,
        mut progress: impl FnMut(Progress),
    ) -> Result<Preview, ImportError> {
        let unique = match known {
            Some((_, Some(campaign))) => self.unique_in(campaign)?,
            _ => self.unique(),
        };
        let mut counting = Counting::default();
        pipeline::stream(self.task(&unique, false)?, async |parsed| {
            let bytes = parsed.bytes;
            let known = match known {
                Some((store, campaign)) => Known::of(&parsed.rows, store, campaign).await?,
                None => Known::default(),
            };
            counting.take(parsed, &known, samples, price);
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
        Ok(counting.finish())
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

#[derive(Default)]
struct Counting {
    preview: Preview,
    seen: Seen,
    characters: HashMap<char, u64>,
    countries: HashMap<String, u64>,
    longest: usize,
}

impl Sample {
    fn of(row: &NewSms, segments: Segments) -> Self {
        Self {
            line: row.line,
            phone: row.phone.clone(),
            content: row.content.clone(),
            segments,
        }
    }
}

/// The keys of the file so far.
#[derive(Default)]
struct Seen {
    lines: HashMap<u64, u64>,
    hasher: RandomState,
}

impl Seen {
    /// The line that had the key before, if any.
    fn first(&mut self, key: &str, line: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        if let Some(first) = self.lines.get(&hash) {
            return Some(*first);
        }
        if self.lines.len() < REMEMBERED {
            self.lines.insert(hash, line);
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

/// Phones of the two largest plans are told apart without the library, which takes far longer.
fn country_code(phone: &str) -> String {
    match phone.as_bytes() {
        [b'+', b'1', ..] => "US +1".to_owned(),
        [b'+', b'8', b'6', ..] => "CN +86".to_owned(),
        _ => phone::country(phone).unwrap_or_else(|| "elsewhere".to_owned()),
    }
}

impl Counting {
    fn take(&mut self, parsed: Parsed, known: &Known, samples: usize, price: Option<PriceOf<'_>>) {
        let preview = &mut self.preview;
        preview.rows += parsed.row_count();
        preview.rejected += parsed.rejected.len() as u64;
        preview.reasons.add(&parsed.rejected);
        let odd: HashMap<u64, &'static str> = parsed.odd.into_iter().collect();
        let room = samples.saturating_sub(preview.rejects.len());
        preview
            .rejects
            .extend(parsed.rejected.into_iter().take(room));
        for (row, segments) in parsed.rows.into_iter().zip(parsed.segments) {
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
                Fate::New => match self.seen.first(&row.dedupe_key, row.line) {
                    Some(first) => {
                        preview.repeat(row.line, Some(first));
                        continue;
                    }
                    None => preview.accepted += 1,
                },
            }
            if let Some(kind) = odd.get(&row.line) {
                preview.odd.add(kind, row.line);
            }
            preview.segments.add(&segments);
            if let Some(price) = price {
                preview.cost.add(price(&row.phone), segments.count);
            }
            if segments.alphabet == Alphabet::Ucs2 {
                let cheaper = segments::count(&smart::cheaper(&row.content)).count;
                preview.saving += u64::from((segments.count - cheaper).unsigned_abs());
            }
            *self.countries.entry(country_code(&row.phone)).or_default() += 1;
            let length = row.content.chars().count();
            if length > self.longest {
                self.longest = length;
                preview.longest = Some(Sample::of(&row, segments));
            }
            let dearest = preview.dearest.as_ref();
            if dearest.is_none_or(|dearest| segments.count > dearest.segments.count) {
                preview.dearest = Some(Sample::of(&row, segments));
            }
            let characters: HashSet<char> = segments::outside_gsm7(&row.content).collect();
            for character in characters {
                if self.characters.len() < CHARACTERS || self.characters.contains_key(&character) {
                    *self.characters.entry(character).or_default() += 1;
                }
            }
            if preview.samples.len() < samples {
                preview.samples.push(Sample::of(&row, segments));
            }
        }
    }

    fn finish(self) -> Preview {
        let mut preview = self.preview;
        preview.expensive = self.characters.into_iter().collect();
        preview.countries = self.countries.into_iter().collect();
        preview
            .countries
            .sort_by(|(one, fewer), (other, more)| (more, one).cmp(&(fewer, other)));
        preview
            .expensive
            .sort_by_key(|&(character, messages)| (std::cmp::Reverse(messages), character));
        preview
    }
}
