//! What messages are like, counted one by one as they go by: which alphabets they need and why, what they
//! cost, where they go, and the ones to look at.

use std::collections::{HashMap, HashSet};

use super::{Cost, PriceOf, SegmentTotals};
use crate::phone;
use crate::text::segments::{self, Alphabet, Segments};
use crate::text::smart;

/// Different characters that are counted one by one.
const CHARACTERS: usize = 10_000;

/// A message as it would be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Sample {
    /// In the file; `None`: it is in the queue already.
    pub line: Option<u64>,
    /// E.164 with `+`.
    pub phone: String,
    /// As the recipient will see it.
    pub content: String,
    pub segments: Segments,
}

/// What messages are like, and what they cost.
#[derive(Default)]
pub struct Messages {
    /// The first ones.
    pub samples: Vec<Sample>,
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

/// Counts messages.
pub struct Tally<'p> {
    messages: Messages,
    kept: usize,
    price: Option<PriceOf<'p>>,
    characters: HashMap<char, u64>,
    countries: HashMap<String, u64>,
    longest: usize,
}

impl<'p> Tally<'p> {
    /// Keeps the first `kept` messages.
    #[must_use]
    pub fn new(kept: usize, price: Option<PriceOf<'p>>) -> Self {
        Self {
            messages: Messages::default(),
            kept,
            price,
            characters: HashMap::new(),
            countries: HashMap::new(),
            longest: 0,
        }
    }

    /// One more message, as the recipient will see it.
    pub fn add(&mut self, line: Option<u64>, phone: &str, content: &str, segments: Segments) {
        let messages = &mut self.messages;
        let sample = || Sample {
            line,
            phone: phone.to_owned(),
            content: content.to_owned(),
            segments,
        };
        messages.segments.add(&segments);
        if let Some(price) = self.price {
            messages.cost.add(price(phone), segments.count);
        }
        if segments.alphabet == Alphabet::Ucs2 {
            let cheaper = segments::count(&smart::cheaper(content)).count;
            messages.saving += u64::from((segments.count - cheaper).unsigned_abs());
        }
        *self
            .countries
            .entry(phone::country(phone).unwrap_or_else(|| "elsewhere".to_owned()))
            .or_default() += 1;
        let length = content.chars().count();
        if length > self.longest {
            self.longest = length;
            messages.longest = Some(sample());
        }
        let dearest = messages.dearest.as_ref();
        if dearest.is_none_or(|dearest| segments.count > dearest.segments.count) {
            messages.dearest = Some(sample());
        }
        let characters: HashSet<char> = segments::outside_gsm7(content).collect();
        for character in characters {
            if self.characters.len() < CHARACTERS || self.characters.contains_key(&character) {
                *self.characters.entry(character).or_default() += 1;
            }
        }
        if messages.samples.len() < self.kept {
            messages.samples.push(sample());
        }
    }

    #[must_use]
    pub fn finish(self) -> Messages {
        let mut messages = self.messages;
        messages.expensive = self.characters.into_iter().collect();
        messages
            .expensive
            .sort_by_key(|&(character, count)| (std::cmp::Reverse(count), character));
        messages.countries = self.countries.into_iter().collect();
        messages
            .countries
            .sort_by(|(one, fewer), (other, more)| (more, one).cmp(&(fewer, other)));
        messages
    }
}
