//! Reports on campaigns: totals, reasons, costs and the messages that were not delivered, as text, CSV, JSON or HTML.
//! A [`Report`] is small for every size of campaign; the list of messages is read and written page by page.

pub mod advice;
mod cost;
mod csv;
mod figures;
mod histogram;
mod html;
mod json;
mod local;
mod moved;
mod reason;
mod status;
mod table;
mod text;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Serialize, Serializer};
use smsq_message::phone::mask;
use smsq_message::sms::{Class, Timestamp, millis};
use smsq_process::atomic_file::AtomicFile;
use smsq_process::boxed;
use smsq_store::report::{
    ClassCount, FailureRecord, Failures, ListCount, REASONS, ReasonCount, SentFacts, SentMessage,
    Totals, Undelivered,
};
use smsq_store::{Campaign, CampaignFilter, Store, StoreError};

pub use advice::{Step, advice, steps, undelivered_advice};
pub use cost::{Bill, Cost, Part, PriceTables};
pub use figures::rate;
pub use histogram::Histogram;
pub use html::{
    Chart, ChartEvent, DeliveryShare, STYLE, Sections, StateShare, delivery, environment, states,
};
pub use local::LocalTime;
pub use moved::MovedMessages;
pub use reason::plain_reason;
pub use smsq_message::text::shell_word;
pub use status::{
    BudgetStatus, CampaignSummary, NextDue, Summaries, WindowStatus, worker_json, workers_text,
};
pub use text::summaries_text;

/// How many messages are read at a time.
const PAGE: usize = 1_000;

/// The format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    /// Messages, or one line per campaign.
    Csv,
    /// One object with everything.
    Json,
    /// One self-contained page.
    Html,
}

/// Why a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write the report")]
    Write(#[from] io::Error),
    #[error("cannot write `{path}`")]
    File { path: String, source: io::Error },
    #[error("cannot render `report.html`")]
    Page(#[from] minijinja::Error),
}

/// Settings of a report.
#[derive(Default)]
pub struct ReportOptions {
    pub prices: PriceTables,
    pub local: LocalTime,
    /// Whether phones and texts are hidden.
    pub mask: bool,
}

/// Which messages the report lists in addition to its figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listing {
    /// None as text and CSV; failed messages as JSON and HTML.
    #[default]
    Figures,
    /// Messages that failed, expired or are unknown.
    Failed,
    /// Sent messages that were not delivered, and that no import has fixed.
    Undelivered,
    Sent,
}

/// Why `count` messages were not delivered, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub class: String,
    pub code: Option<String>,
    pub reason: String,
    pub advice: &'static str,
    pub count: u64,
}

impl Reason {
    /// Whether the messages may have arrived.
    fn is_unknown(&self) -> bool {
        self.class == Class::Unknown.as_str()
    }
}

/// How long delivered messages took from the provider's acceptance to the phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeliveryTime {
    #[serde(serialize_with = "as_millis")]
    pub median: Duration,
    #[serde(serialize_with = "as_millis")]
    pub p95: Duration,
}

impl DeliveryTime {
    /// Of times in milliseconds in ascending order, each with the number of its messages.
    fn of(times: &[(u64, u64)]) -> Option<Self> {
        let all: u64 = times.iter().map(|(_, count)| count).sum();
        let percentile = |percent: u64| {
            let wanted = (all * percent).div_ceil(100);
            let mut seen = 0;
            let mut times = times.iter();
            let found = times.find(|(_, count)| {
                seen += count;
                seen >= wanted
            });
            found.map(|(took, _)| Duration::from_millis(*took))
        };
        Some(Self { median: percentile(50)?, p95: percentile(95)? })
    }
}

/// The sum of the imports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lists {
    /// The first `Lists::MAX_NAMES` different ones.
    pub names: Vec<String>,
    pub count: u64,
    pub rows: u64,
    pub accepted: u64,
    pub duplicates: u64,
    pub suppressed: u64,
    pub rejected: u64,
}

impl Lists {
    const MAX_NAMES: usize = 20;

    /// The text of the most messages; of equals, the last one.
    fn text(all: &[ListCount]) -> Option<String> {
        let mut accepted: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
        for (at, list) in all.iter().enumerate() {
            if let Some(text) = &list.text {
                let (sum, last) = accepted.entry(text).or_default();
                *sum += list.accepted;
                *last = at;
            }
        }
        let most = accepted.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(text, _)| text.to_owned())
    }

    fn sum(all: &[ListCount]) -> Self {
        let mut lists = Self::default();
        for list in all {
            if lists.names.len() < Self::MAX_NAMES && !lists.names.contains(&list.name) {
                lists.names.push(list.name.clone());
            }
            lists.count += 1;
            lists.rows += list.rows;
            lists.accepted += list.accepted;
            lists.duplicates += list.duplicates;
            lists.suppressed += list.suppressed;
            lists.rejected += list.rejected;
        }
        lists
    }
}

/// Imported messages by alphabet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Alphabets {
    pub gsm7: u64,
    pub ucs2: u64,
}

/// Hides the phone and the text of a message.
pub fn hide(failure: &mut FailureRecord) {
    failure.phone = mask(&failure.phone);
    failure.content.clear();
    "{}".clone_into(&mut failure.params);
}

/// Everything in a report except for its list of messages. JSON has these figures after the status of the campaign, or
/// after the sums of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `None` for all campaigns.
    #[serde(skip)]
    pub campaign: Option<String>,
    #[serde(skip)]
    pub made_at: Timestamp,
    #[serde(skip)]
    pub totals: Totals,
    #[serde(skip)]
    pub summaries: Summaries,
    /// When messages were purged last.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub purged_at: Option<Timestamp>,
    #[serde(serialize_with = "as_text")]
    pub first_sent_at: Option<Timestamp>,
    #[serde(serialize_with = "as_text")]
    pub last_sent_at: Option<Timestamp>,
    /// The time from the first sent message to the last.
    #[serde(rename = "took_ms", serialize_with = "as_millis")]
    pub took: Option<Duration>,
    /// Messages per second on average; `None` below one second.
    pub rate: Option<f64>,
    pub segments: u64,
    /// Messages that the provider accepted more than once.
    pub repeated: u64,
    pub alphabets: Alphabets,
    /// Of the messages that were not purged.
    #[serde(flatten)]
    pub bill: Bill,
    /// What went to another provider than its own.
    pub failovers: Vec<MovedMessages>,
    /// The sender in the campaign's settings.
    pub sender: Option<String>,
    /// The template of the most messages, or the text of the first of them, of a single campaign that is not masked.
    pub text: Option<String>,
    pub lists: Lists,
    /// How many of the failed opted out.
    pub opted_out: u64,
    /// How many messages recipients sent back; `None`: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replies: Option<u64>,
    #[serde(rename = "over_time")]
    pub histogram: Option<Histogram>,
    pub by_reason: Vec<Reason>,
    /// Why sent messages were not delivered.
    pub undelivered_by_reason: Vec<Reason>,
    /// `None` before the first one is delivered.
    #[serde(rename = "delivery_ms")]
    pub delivery_time: Option<DeliveryTime>,
    #[serde(skip)]
    local: LocalTime,
    #[serde(skip)]
    is_masked: bool,
    #[serde(skip)]
    filter: CampaignFilter,
    /// Ids and names, to look up the campaign of a message.
    #[serde(skip)]
    names: BTreeMap<i64, String>,
}

/// An instant, also an optional one, as a text.
fn as_text<S: Serializer>(
    at: &(impl Copy + Into<Option<Timestamp>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let at: Option<Timestamp> = (*at).into();
    at.map(|at| at.to_string()).serialize(serializer)
}

/// A span, also an optional one, in milliseconds.
fn as_millis<S: Serializer>(
    span: &(impl Copy + Into<Option<Duration>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let span: Option<Duration> = (*span).into();
    span.map(millis).serialize(serializer)
}

impl Report {
    /// Collects the figures of one campaign, or of all.
    #[boxed]
    pub async fn gather(
        store: &Store,
        campaign: Option<&Campaign>,
        options: &ReportOptions,
    ) -> Result<Self, StoreError> {
        let filter = CampaignFilter::from(campaign.map(|campaign| campaign.id));
        let (summaries, known) = match campaign {
            Some(campaign) => (Summaries::of(store, campaign).await?, vec![campaign.clone()]),
            None => (Summaries::all(store).await?, store.campaigns().await?),
        };
        let totals = summaries.totals();
        let campaigns = &summaries.campaigns;
        let only = match campaigns.as_slice() {
            [one] => known.iter().find(|campaign| campaign.name == one.campaign),
            _ => None,
        };

        let digits = options.prices.values().map(smsq_message::prices::Prices::longest_prefix);
        let sent = store.report().sent(filter, digits.max().unwrap_or(0)).await?;
        let kept: u64 = sent.counts.iter().map(|count| count.messages).sum();
        let purged = totals.sent.saturating_sub(kept);

        let classes = store.report().failed_by_class(filter).await?;
        let opted_out = classes.iter().filter(|count| count.class == Class::OptedOut.as_str());
        let made_at = store.now().await?;
        let ends = settled_between(&sent.facts, &classes);
        // A time without messages shows in the chart of a campaign that should be sending.
        let is_running = campaigns.iter().any(|summary| summary.state == "active");
        let open_end = Some(made_at).filter(|_| is_running);
        let ends = ends.map(|(first, last)| (first, open_end.unwrap_or(last).max(last)));
        let offset = ends.map_or(Duration::ZERO, |(first, _)| options.local.offset(first));

        let bill = Bill::new(&sent.counts, purged, &options.prices);
        let took = sent.facts.first_at.zip(sent.facts.last_at);
        let took = took.map(|(first, last)| last.since(first));
        let lists = store.report().lists(filter).await?;
        let text = Lists::text(&lists);
        let of_campaign = campaign.map(|campaign| campaign.id);
        let replies = store.replies().count(of_campaign).await?;
        Ok(Self {
            campaign: campaign.map(|campaign| campaign.name.clone()),
            made_at,
            by_reason: reasons(store, filter, &classes).await?,
            undelivered_by_reason: undelivered_reasons(store, filter, &totals).await?,
            delivery_time: match totals.delivery {
                Some(counts) if counts.delivered > 0 => {
                    DeliveryTime::of(&store.report().delivery_times(filter).await?)
                }
                _ => None,
            },
            histogram: Histogram::read(store, filter, ends, offset).await?,
            purged_at: store.purged_at(filter).await?,
            opted_out: opted_out.map(|count| count.messages).sum(),
            replies: Some(replies).filter(|count| *count > 0),
            first_sent_at: sent.facts.first_at,
            last_sent_at: sent.facts.last_at,
            rate: took.filter(|took| took.as_secs() > 0).map(|took| {
                let sent = u32::try_from(bill.sent).map_or(f64::MAX, f64::from);
                (sent / took.as_secs_f64() * 1_000.0).round() / 1_000.0
            }),
            took,
            segments: sent.facts.segments,
            repeated: sent.facts.repeated,
            bill,
            failovers: MovedMessages::of(store.failovers(filter).await?),
            sender: only.and_then(|campaign| campaign.sender.clone()),
            text: text.filter(|_| only.is_some() && !options.mask),
            alphabets: Alphabets {
                gsm7: lists.iter().map(|list| list.gsm7).sum(),
                ucs2: lists.iter().map(|list| list.ucs2).sum(),
            },
            lists: Lists::sum(&lists),
            totals,
            summaries,
            local: options.local.clone(),
            is_masked: options.mask,
            filter,
            names: known.into_iter().map(|campaign| (campaign.id, campaign.name)).collect(),
        })
    }

    /// The status of the campaign in a report on one campaign.
    pub fn status(&self) -> Option<&CampaignSummary> {
        self.campaign.as_ref().and(self.summaries.campaigns.first())
    }

    /// Writes the report, and its list of messages page by page.
    pub async fn write(
        &self,
        store: &Store,
        format: Format,
        listing: Listing,
        out: &mut (impl io::Write + Send),
    ) -> Result<(), ReportError> {
        match (format, listing) {
            (Format::Text, Listing::Figures) => text::write(self, &mut *out)?,
            (Format::Text, Listing::Failed | Listing::Undelivered) => {
                text::write_notice(self, out)?;
                let write = |page: &[_]| text::write_failures(page, out);
                self.each_failure(store, listing, usize::MAX, write).await?;
            }
            (Format::Text, Listing::Sent) => {
                text::write_notice(self, out)?;
                self.each_sent(store, |page| text::write_sent(self, page, out)).await?;
            }
            (Format::Csv, Listing::Figures) => {
                csv::write_campaigns(&self.summaries.campaigns, &mut *out)?;
            }
            (Format::Csv, Listing::Failed | Listing::Undelivered) => {
                let mut columns = csv::ImportedColumns::default();
                let collect = |page: &[FailureRecord]| {
                    columns.collect(page);
                    Ok(())
                };
                self.each_failure(store, listing, usize::MAX, collect).await?;
                let mut writer = columns.begin(&mut *out)?;
                let write = |page: &[_]| columns.write(page, &mut writer);
                self.each_failure(store, listing, usize::MAX, write).await?;
                writer.flush()?;
            }
            (Format::Csv, Listing::Sent) => {
                let mut writer = csv::begin_sent(&mut *out)?;
                self.each_sent(store, |page| csv::write_sent(self, page, &mut writer)).await?;
                writer.flush()?;
            }
            (Format::Json, Listing::Figures | Listing::Failed | Listing::Undelivered) => {
                let list = match listing {
                    Listing::Undelivered => "undelivered",
                    _ => "failures",
                };
                let mut writer = json::Writer::begin(self, list, &mut *out)?;
                self.each_failure(store, listing, usize::MAX, |page| writer.failures(page)).await?;
                writer.finish()?;
            }
            (Format::Json, Listing::Sent) => {
                let mut writer = json::Writer::begin(self, "messages", &mut *out)?;
                self.each_sent(store, |page| writer.sent(page)).await?;
                writer.finish()?;
            }
            (Format::Html, _) => {
                let failures = self.failures(store, html::MAX_FAILURES).await?;
                html::write(self, &failures, &mut *out)?;
            }
        }
        out.flush()?;
        Ok(())
    }

    /// Writes the report to a file, which is replaced only if that succeeds.
    #[boxed]
    pub async fn write_file(
        &self,
        store: &Store,
        format: Format,
        listing: Listing,
        path: &Path,
    ) -> Result<(), ReportError> {
        let failed = |source| ReportError::File { path: path.display().to_string(), source };
        let mut file = AtomicFile::create(path).map_err(failed)?;
        match self.write(store, format, listing, &mut file).await {
            Err(ReportError::Write(source)) => return Err(failed(source)),
            written => written?,
        }
        file.replace().map_err(failed)
    }

    /// The same report without phones and texts.
    #[must_use]
    pub fn masked(&self) -> Self {
        Self { text: None, is_masked: true, ..self.clone() }
    }

    /// The first `most` messages that failed, and as many that were not delivered.
    #[boxed]
    pub async fn failures(
        &self,
        store: &Store,
        most: usize,
    ) -> Result<Vec<FailureRecord>, ReportError> {
        let mut failures = Vec::new();
        for listing in [Listing::Failed, Listing::Undelivered] {
            let collect = |page: &[_]| {
                failures.extend_from_slice(page);
                Ok(())
            };
            self.each_failure(store, listing, most, collect).await?;
        }
        Ok(failures)
    }

    /// Passes on the first `most` failures, or undelivered messages, page by page.
    async fn each_failure(
        &self,
        store: &Store,
        listing: Listing,
        most: usize,
        mut write: impl FnMut(&[FailureRecord]) -> io::Result<()>,
    ) -> Result<(), ReportError> {
        let mut failures = Failures::default();
        let mut undelivered = Undelivered::default();
        match listing {
            Listing::Undelivered => undelivered = store.report().undelivered(self.filter).await?,
            _ => failures = store.report().failures(self.filter).await?,
        }
        let mut left = most;
        while left > 0 {
            let size = PAGE.min(left);
            let mut page = match listing {
                Listing::Undelivered => {
                    store.report().next_undelivered(&mut undelivered, size).await?
                }
                _ => store.report().next_failures(&mut failures, size).await?,
            };
            if page.is_empty() {
                break;
            }
            left -= page.len();
            for failure in page.iter_mut().filter(|_| self.is_masked) {
                hide(failure);
            }
            write(&page)?;
        }
        Ok(())
    }

    async fn each_sent(
        &self,
        store: &Store,
        mut write: impl FnMut(&[SentMessage]) -> io::Result<()>,
    ) -> Result<(), ReportError> {
        let mut sent = store.report().sent_messages(self.filter).await?;
        loop {
            let mut page = store.report().next_sent(&mut sent, PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            for message in page.iter_mut().filter(|_| self.is_masked) {
                message.phone = mask(&message.phone);
            }
            write(&page)?;
        }
    }

    fn campaign_name(&self, id: i64) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }
}

/// The imported columns; empty if another program wrote something else.
fn columns_of(failure: &FailureRecord) -> serde_json::Map<String, serde_json::Value> {
    serde_json::from_str(&failure.params).unwrap_or_default()
}

/// When the first and the last message was settled, cancelled messages excluded.
fn settled_between(facts: &SentFacts, classes: &[ClassCount]) -> Option<(Timestamp, Timestamp)> {
    let failed = classes.iter().filter(|count| count.class != Class::Cancelled.as_str());
    let first = failed.clone().map(|count| count.first_at);
    let last = failed.map(|count| count.last_at);
    Some((first.chain(facts.first_at).min()?, last.chain(facts.last_at).max()?))
}

/// The reasons of messages that were sent and not delivered, with advice.
async fn undelivered_reasons(
    store: &Store,
    campaigns: CampaignFilter,
    totals: &Totals,
) -> Result<Vec<Reason>, StoreError> {
    let delivery = totals.delivery.unwrap_or_default();
    if delivery.undelivered + delivery.expired == 0 {
        return Ok(Vec::new());
    }
    let reasons = store.report().undelivered_by_reason(campaigns).await?;
    Ok(reason::merged(with_advice(reasons, undelivered_advice)))
}

fn with_advice(
    reasons: Vec<ReasonCount>,
    advice: fn(&str, Option<&str>) -> &'static str,
) -> Vec<Reason> {
    let reasons = reasons.into_iter();
    reasons
        .map(|reason| Reason {
            advice: advice(&reason.class, reason.code.as_deref()),
            class: reason.class,
            code: reason.code,
            reason: reason.reason,
            count: reason.count,
        })
        .collect()
}

/// The reasons with advice. If there are too many to list, the last one is the sum of the others.
async fn reasons(
    store: &Store,
    campaigns: CampaignFilter,
    classes: &[ClassCount],
) -> Result<Vec<Reason>, StoreError> {
    let mut reasons = with_advice(store.report().failures_by_reason(campaigns).await?, advice);
    let failed = reasons.iter().filter(|reason| !reason.is_unknown());
    let listed: u64 = failed.map(|reason| reason.count).sum();
    let all: u64 = classes.iter().map(|count| count.messages).sum();
    let others = all.saturating_sub(listed);
    let is_incomplete = reasons.len() >= REASONS && others > 0;
    reasons = reason::merged(reasons);
    if is_incomplete {
        reasons.push(Reason {
            class: "other".to_owned(),
            code: None,
            reason: "all other reasons".to_owned(),
            advice: "the CSV has all of them",
            count: others,
        });
    }
    Ok(reasons)
}
