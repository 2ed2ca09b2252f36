//! What sending would be like: segments and why they are needed, cost, countries, duration, and the
//! messages worth looking at. For a list before it is imported and for queued messages before sending.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use smsq_message::budget::Budget;
use smsq_message::phone;
use smsq_message::rate::Rate;
use smsq_message::route::Route;
use smsq_message::sms::Timestamp;
use smsq_message::text::segments::{self, Alphabet, Segments};
use smsq_message::text::smart;
use smsq_message::window::SendWindow;

/// What sending messages would be like.
pub struct Estimate {
    /// Messages to send; may be more than were read for `stats`.
    pub messages: u64,
    pub stats: MessageStats,
    /// The currency of the costs; `None` without a price table.
    pub currency: Option<String>,
    /// The most that they may cost.
    pub budget: Option<Budget>,
    pub limits: Vec<Rate>,
    /// The providers and senders that the messages are divided among.
    pub route: Option<Arc<Route>>,
    /// For how long messages are worth sending and may be sent; `None`: without end.
    pub open_for: Option<Duration>,
    pub window: Option<SendWindow>,
    pub starts_at: Timestamp,
}

impl Estimate {
    /// How long sending takes at the lowest limit; `None` without a limit.
    pub fn duration(&self) -> Option<Duration> {
        let limits = self.limits.iter().map(|limit| limit.per_second());
        let all = limits.map(|rate| as_f64(self.messages) / rate);
        longest(all.chain(self.by_senders()))
    }

    /// How long sending would take with only one sender of the provider, the fastest; `None` if it has one or no limit.
    pub fn with_one_sender(&self) -> Option<Duration> {
        let pool = self.route.iter().filter(|route| !route.is_shared());
        let senders = pool.flat_map(|route| route.senders());
        let rates: Option<Vec<f64>> = senders.map(|(_, sender)| sender.rate.per_second()).collect();
        let fastest = rates?.into_iter().reduce(f64::max)?;
        longest([as_f64(self.messages) / fastest])
    }

    /// How many seconds each provider and each sender with a limit needs for its share of the messages.
    fn by_senders(&self) -> impl Iterator<Item = f64> {
        let read = as_f64(self.stats.segments.messages.max(1));
        let more = as_f64(self.messages) / read;
        let members = self.route.iter().flat_map(|route| route.members());
        let shares = members.zip(&self.stats.by_sender);
        let limits = shares.flat_map(|(member, counts)| {
            let senders = member.pool.senders().iter().map(|sender| &sender.rate);
            let of_senders = senders.zip(counts.iter().copied());
            of_senders.chain([(&member.rates, counts.iter().sum())])
        });
        limits.filter_map(move |(rate, count)| Some(as_f64(count) * more / rate.per_second()?))
    }

    /// When the last message would be sent, within the limits and the sending window.
    pub fn ends_at(&self) -> Option<Timestamp> {
        let (duration, starts_at) = (self.duration()?, self.starts_at);
        Some(match &self.window {
            Some(window) => window.end_of(starts_at, duration),
            None => starts_at.plus(duration),
        })
    }

    /// How many messages would expire before they are sent; `None` if all are sent in time.
    pub fn too_late(&self) -> Option<u64> {
        let share = 1.0 - self.open_for?.as_secs_f64() / self.duration()?.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the messages"
        )]
        let late = (share * as_f64(self.messages)).ceil() as u64;
        (share > 0.0).then_some(late)
    }

    /// The samples with their labels: the first messages, then the longest and the most expensive one
    /// where these differ from the others.
    pub fn labelled_samples(&self) -> Vec<(Option<&'static str>, &Sample)> {
        let stats = &self.stats;
        let mut shown: Vec<_> = stats.samples.iter().map(|sample| (None, sample)).collect();
        if let Some(longest) = &stats.longest
            && shown.iter().all(|(_, first)| *first != longest)
        {
            shown.push((Some("longest"), longest));
        }
        if let Some(sample) = &stats.most_expensive
            && shown.iter().all(|(_, first)| first.segments.count < sample.segments.count)
        {
            shown.push((Some("most expensive"), sample));
        }
        shown
    }
}

/// The longest of these spans, in whole seconds.
fn longest(seconds: impl IntoIterator<Item = f64>) -> Option<Duration> {
    let longest = seconds.into_iter().reduce(f64::max)?.ceil();
    Duration::try_from_secs_f64(longest).ok()
}

fn as_f64(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

/// A message as it would be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Sample {
    /// The line in the file; `None` for a queued message.
    pub line: Option<u64>,
    /// E.164 with `+`.
    pub phone: String,
    /// The text that the recipient sees.
    pub content: String,
    pub segments: Segments,
}

/// Properties of a set of messages, which are added one at a time.
#[derive(Default)]
pub struct MessageStats {
    max_samples: usize,
    /// The first messages.
    pub samples: Vec<Sample>,
    pub segments: SegmentTotals,
    /// Characters outside GSM-7 with the number of messages that have them.
    characters: HashMap<char, u64>,
    /// The message with the most characters.
    pub longest: Option<Sample>,
    /// The message with the most segments.
    pub most_expensive: Option<Sample>,
    countries: HashMap<String, u64>,
    /// Segments that `--smart` would save.
    pub saving: u64,
    pub cost: EstimatedCost,
    route: Option<Arc<Route>>,
    /// How many messages each sender of each provider of the route sends.
    by_sender: Vec<Vec<u64>>,
}

impl MessageStats {
    /// Keeps the first `max_samples` messages as samples.
    pub fn new(max_samples: usize) -> Self {
        Self { max_samples, ..Self::default() }
    }

    /// Counts the messages of each sender of a route.
    #[must_use]
    pub fn with_route(self, route: Option<Arc<Route>>) -> Self {
        let members = route.iter().flat_map(|route| route.members());
        let counts = members.map(|member| vec![0; member.pool.senders().len()]);
        Self { by_sender: counts.collect(), route, ..self }
    }

    /// Adds a message, where `price` is that of a segment.
    pub fn add(&mut self, sample: Sample, price: Option<u64>) {
        let (content, segments) = (&sample.content, sample.segments);
        self.segments.add(&segments);
        self.cost.add(price, segments.count);
        let route = self.route.as_ref();
        let chosen = route.and_then(|route| route.choose(&sample.phone, |_, _| true));
        if let Some((provider, sender)) = chosen {
            self.by_sender[provider][sender] += 1;
        }
        if segments.alphabet == Alphabet::Ucs2 {
            let cheaper = segments::count(&smart::cheaper(content)).count;
            self.saving += u64::from((segments.count - cheaper).unsigned_abs());
        }
        let country = phone::country(&sample.phone).unwrap_or_else(|| "elsewhere".to_owned());
        *self.countries.entry(country).or_default() += 1;
        let characters: HashSet<char> = segments::outside_gsm7(content).collect();
        for character in characters {
            *self.characters.entry(character).or_default() += 1;
        }
        let is_longer = |than: &Sample| content.chars().count() > than.content.chars().count();
        if self.longest.as_ref().is_none_or(is_longer) {
            self.longest = Some(sample.clone());
        }
        let most = self.most_expensive.as_ref();
        if most.is_none_or(|most| segments.count > most.segments.count) {
            self.most_expensive = Some(sample.clone());
        }
        if self.samples.len() < self.max_samples {
            self.samples.push(sample);
        }
    }

    /// Returns the characters outside GSM-7 with the number of messages that have them, most frequent
    /// first.
    pub fn expensive(&self) -> Vec<(char, u64)> {
        most_frequent_first(&self.characters)
    }

    /// Returns the recipients by country, most frequent first.
    pub fn countries(&self) -> Vec<(String, u64)> {
        most_frequent_first(&self.countries)
    }
}

pub(super) fn most_frequent_first<'c, K: Ord + Clone + 'c>(
    counts: impl IntoIterator<Item = (&'c K, &'c u64)>,
) -> Vec<(K, u64)> {
    let mut sorted: Vec<(K, u64)> =
        counts.into_iter().map(|(key, count)| (key.clone(), *count)).collect();
    sorted.sort_by(|(left, fewer), (right, more)| (more, left).cmp(&(fewer, right)));
    sorted
}

/// Messages and their segments by alphabet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SegmentTotals {
    pub messages: u64,
    /// Segments of all messages.
    pub total: u64,
    /// Messages in GSM-7.
    pub gsm7: u64,
    /// Messages in UCS-2.
    pub ucs2: u64,
}

impl SegmentTotals {
    pub(super) fn add(&mut self, segments: &Segments) {
        self.messages += 1;
        self.total += u64::from(segments.count.unsigned_abs());
        match segments.alphabet {
            Alphabet::Gsm7 => self.gsm7 += 1,
            Alphabet::Ucs2 => self.ucs2 += 1,
        }
    }
}

/// Returns the price of a segment to a phone in millionths of the currency, if it is known.
pub type PriceOf<'p> = &'p (dyn Fn(&str) -> Option<u64> + Sync);

/// The cost of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EstimatedCost {
    /// In millionths of the currency.
    pub amount: u64,
    /// Messages without a known price.
    pub unpriced: u64,
}

impl EstimatedCost {
    pub(super) fn add(&mut self, price: Option<u64>, segments: i32) {
        match price {
            Some(price) => self.amount += price * u64::from(segments.unsigned_abs()),
            None => self.unpriced += 1,
        }
    }
}
