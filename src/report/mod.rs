//! Says exactly who was not reached and why. A [`Report`] is the head: totals, reasons, facts, small
//! whatever the campaign's size. The list of failures may be millions long, so it flows through a
//! writer page by page and is never held.

pub mod advice;
mod cost;
mod csv;
mod file;
mod history;
mod html;
mod json;
mod local;
mod plain;
mod shares;
mod table;
mod workers;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use serde::Serialize;

use crate::phone::mask;
use crate::sms::{Class, Timestamp};
use crate::store::report::{
    ClassCount, FailureRecord, FirstDue, ListCount, REASONS, SentFacts, SentMessage, SentWalk,
    Totals,
};
use crate::store::{Campaign, CampaignStatus, Store, StoreError};
use crate::window::{Clock, Window, local_and_utc};

pub use advice::{Step, advice, shell_word, steps};
pub use cost::{Bill, Cost, Part, PriceOf, Tariff, Tariffs};
pub use file::to_file;
pub use history::History;
pub use local::Local;
pub(crate) use plain::reason as in_words;
pub use table::standings as standings_text;
pub use workers::Active;

/// Failures that are read, and held, at a time.
const PAGE: usize = 1_000;

/// What a report looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For a person at a terminal.
    #[default]
    Text,
    /// The failures for mending and importing; without `--failed` one line per campaign.
    Csv,
    /// One object with everything.
    Json,
    /// One self-contained page.
    Html,
}

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("could not write the report")]
    Write(#[from] io::Error),
    #[error("could not write `{path}`")]
    File { path: String, source: io::Error },
    #[error("could not fill `report.html`")]
    Page(#[from] minijinja::Error),
}

/// How a campaign stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    pub campaign: String,
    /// `active`, `paused`, `stopped`, `cancelled`, `done`.
    pub state: &'static str,
    /// Why it is paused or stopped.
    pub state_reason: Option<String>,
    /// When its messages may start, where it keeps hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Hours>,
    #[serde(flatten)]
    pub schedule: Schedule,
    #[serde(flatten)]
    pub totals: Totals,
}

/// When the first waiting message of a campaign is due, if that is later than now, and when it expires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Schedule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// For people; empty where there is nothing to say.
    #[serde(skip)]
    told: String,
}

impl Schedule {
    async fn of(store: &Store, campaign: &Campaign, totals: &Totals) -> Result<Self, StoreError> {
        let first = match totals.queued {
            0 => None,
            _ => store.first_due(campaign.id).await?,
        };
        let now = store.now().await?;
        Ok(first.map(|first| Self::at(first, now)).unwrap_or_default())
    }

    /// A message that waits for its next attempt has no start to announce.
    pub fn at(first: FirstDue, now: Timestamp) -> Self {
        let due_at = Some(first.due_at).filter(|at| *at > now && first.attempts == 0);
        let told = [("starts", due_at), ("expires", first.expires_at)];
        let told = told.into_iter().filter_map(|(word, at)| Some((word, at?)));
        let told: Vec<String> = told
            .map(|(word, at)| format!("{word} {}", local_and_utc(at)))
            .collect();
        Self {
            due_at: due_at.map(|at| at.to_string()),
            expires_at: first.expires_at.map(|at| at.to_string()),
            told: told.join(", "),
        }
    }

    /// `starts 2026-12-24 09:00 CET (08:00 UTC), expires 2026-12-24 17:00 CET (16:00 UTC)`.
    pub fn told(&self) -> &str {
        &self.told
    }
}

/// When a campaign's messages may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hours {
    /// `09:00-20:00`.
    pub hours: String,
    /// `mon-fri`, `daily`.
    pub days: String,
    /// A zone, `column` or `recipient`.
    pub timezone: String,
    /// The zone of those whose own is not known.
    pub fallback_timezone: Option<String>,
    /// When it opens, where it is closed for all.
    pub opens_at: Option<String>,
    /// For people.
    #[serde(skip)]
    told: String,
}

impl Hours {
    pub fn of(window: &Window) -> Self {
        let zone = window.clock.zone().to_string();
        let (timezone, fallback_timezone) = match &window.clock {
            Clock::Of(_) => (zone, None),
            Clock::Row(_) => ("column".to_owned(), Some(zone)),
            Clock::Recipient(_) => ("recipient".to_owned(), Some(zone)),
        };
        Self {
            hours: window.hours.to_string(),
            days: window.days.to_string(),
            timezone,
            fallback_timezone,
            opens_at: None,
            told: window.told(),
        }
    }

    fn at(window: &Window, now: Timestamp) -> Self {
        let mut hours = Self::of(window);
        let closed = window.for_all(now).filter(|span| !span.contains(now));
        if let Some(span) = closed {
            hours.opens_at = Some(span.opens_at.to_string());
            hours.told = format!("{}; opens {}", hours.told, window.shown(span.opens_at));
        }
        hours
    }

    /// `09:00-20:00 daily by the clock of Asia/Shanghai; opens 2026-11-22 09:00 Asia/Shanghai`.
    pub fn told(&self) -> &str {
        &self.told
    }
}

impl Standing {
    /// An active campaign with nothing left to send is done.
    pub fn new(campaign: &Campaign, totals: Totals, now: Timestamp) -> Self {
        let idle = totals.queued == 0 && totals.sending == 0;
        Self {
            campaign: campaign.name.clone(),
            state: match campaign.state {
                CampaignStatus::Active if idle => "done",
                state => state.as_str(),
            },
            state_reason: campaign.state_reason.clone(),
            window: campaign
                .window
                .as_ref()
                .map(|window| Hours::at(window, now)),
            schedule: Schedule::default(),
            totals,
        }
    }

    /// Nothing more will be sent.
    pub fn is_over(&self) -> bool {
        matches!(self.state, "done" | "cancelled") && self.totals.sending == 0
    }

    pub async fn of(store: &Store, campaign: &Campaign) -> Result<Self, StoreError> {
        let totals = store.totals(Some(campaign.id)).await?;
        let standing = Self::new(campaign, totals, store.now().await?);
        Ok(Self {
            schedule: Schedule::of(store, campaign, &totals).await?,
            ..standing
        })
    }

    /// Of all campaigns but the one called `default` while nothing was ever in it.
    pub async fn all(store: &Store) -> Result<Vec<Self>, StoreError> {
        let totals = store.campaign_totals().await?;
        let now = store.now().await?;
        let mut all = Vec::new();
        for (campaign, totals) in &totals {
            if campaign.id != DEFAULT || *totals != Totals::default() {
                all.push(Self {
                    schedule: Schedule::of(store, campaign, totals).await?,
                    ..Self::new(campaign, *totals, now)
                });
            }
        }
        Ok(all)
    }
}

/// The campaign that is always there.
const DEFAULT: i64 = 1;

/// Why so many messages did not arrive, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub class: String,
    pub code: Option<String>,
    pub reason: String,
    pub advice: &'static str,
    pub count: u64,
}

/// What a report is made with, beside the database.
#[derive(Default)]
pub struct Setting {
    pub tariffs: Tariffs,
    /// Whose clock moments are shown by.
    pub local: Local,
    /// Phones and texts are hidden.
    pub mask: bool,
}

/// What the report lists beside its figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listing {
    #[default]
    Figures,
    /// Messages that failed, expired or are unknown: text and csv are the list.
    Failed,
    /// Messages that were sent.
    Sent,
}

/// The lists of the imports, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lists {
    /// The first ones.
    pub names: Vec<String>,
    pub count: u64,
    pub rows: u64,
    pub accepted: u64,
    pub duplicates: u64,
    pub suppressed: u64,
    pub rejected: u64,
}

/// Imported messages by the alphabet of their text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Alphabets {
    pub gsm7: u64,
    pub ucs2: u64,
}

/// All of a report but the list of failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// `None`: all campaigns.
    pub campaign: Option<String>,
    pub made_at: Timestamp,
    pub totals: Totals,
    /// One per campaign.
    pub standings: Vec<Standing>,
    pub by_reason: Vec<Reason>,
    pub facts: SentFacts,
    /// Of the messages that are still in the ledger.
    pub bill: Bill,
    /// The sender that the campaign names.
    pub sender: Option<String>,
    pub lists: Lists,
    pub alphabets: Alphabets,
    /// The text with its placeholders, or that of the first message; only of one campaign, and not masked.
    pub text: Option<String>,
    /// Of the failed.
    pub opted_out: u64,
    /// When some of them were purged last.
    pub purged_at: Option<Timestamp>,
    pub history: Option<History>,
    local: Local,
    is_masked: bool,
    /// The names behind the ids of the failures.
    campaigns: Vec<(i64, String)>,
}

impl Report {
    /// Counts one campaign, or all of them.
    pub async fn gather(
        store: &Store,
        campaign: Option<&Campaign>,
        setting: &Setting,
    ) -> Result<Self, StoreError> {
        let (standings, known) = match campaign {
            Some(campaign) => (
                vec![Standing::of(store, campaign).await?],
                vec![campaign.clone()],
            ),
            None => (Standing::all(store).await?, store.campaigns().await?),
        };
        // What holds for one campaign is said where there is only one.
        let only = match standings.as_slice() {
            [one] => known.iter().find(|campaign| campaign.name == one.campaign),
            _ => None,
        };
        let (has_one, sender) = (only.is_some(), only.and_then(|only| only.sender.clone()));
        let campaigns: Vec<(i64, String)> = known
            .into_iter()
            .map(|campaign| (campaign.id, campaign.name))
            .collect();
        let ids: Vec<i64> = campaigns.iter().map(|(id, _)| *id).collect();
        let digits = setting.tariffs.values().map(|tariff| tariff.digits).max();
        let sent = store.sent(&ids, digits.unwrap_or(0)).await?;
        let totals: Totals = standings.iter().map(|standing| standing.totals).sum();
        let kept: u64 = sent.counts.iter().map(|count| count.messages).sum();
        let bill = Bill::of(
            &sent.counts,
            totals.sent.saturating_sub(kept),
            &setting.tariffs,
        );
        let classes = store.failed_by_class(&ids).await?;
        let opted_out = classes
            .iter()
            .filter(|count| count.class == Class::OptedOut.as_str());
        let ends = ends(&sent.facts, &classes);
        let offset = ends.map_or(Duration::ZERO, |(first, _)| setting.local.offset(first));
        let lists = store.lists(&ids).await?;
        let texts = lists.iter().rev().filter_map(|list| list.text.clone());
        let text = texts.take(usize::from(has_one)).next();
        Ok(Self {
            campaign: campaign.map(|campaign| campaign.name.clone()),
            made_at: store.now().await?,
            by_reason: reasons(store, &ids, &classes).await?,
            history: History::read(store, &ids, ends, offset).await?,
            purged_at: store.purged_at(&ids).await?,
            opted_out: opted_out.map(|count| count.messages).sum(),
            alphabets: Alphabets {
                gsm7: lists.iter().map(|list| list.gsm7).sum(),
                ucs2: lists.iter().map(|list| list.ucs2).sum(),
            },
            lists: Lists::of(&lists),
            text: text.filter(|_| !setting.mask),
            sender,
            facts: sent.facts,
            totals,
            standings,
            bill,
            local: setting.local.clone(),
            is_masked: setting.mask,
            campaigns,
        })
    }

    /// The names of the providers that took messages.
    fn providers(&self) -> Option<String> {
        let providers = self.bill.providers.iter();
        let names: Vec<&str> = providers.map(|part| part.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// From the first message that was sent to the last one.
    pub fn took(&self) -> Option<Duration> {
        let (first, last) = (self.facts.first_at?, self.facts.last_at?);
        Some(last.since(first))
    }

    /// Messages sent in a second, on average; `None` where they took less than one.
    pub fn rate(&self) -> Option<f64> {
        let took = self.took().filter(|took| took.as_secs() > 0)?;
        let sent = u32::try_from(self.bill.sent).map_or(f64::MAX, f64::from);
        Some(sent / took.as_secs_f64())
    }

    /// What did not arrive, and is still listed: how many, and for how many of them that is not sure.
    fn lost(&self) -> (u64, u64) {
        let count = |is_unknown: bool| -> u64 {
            let of_kind = self
                .by_reason
                .iter()
                .filter(|one| one.is_unknown() == is_unknown);
            of_kind.map(|one| one.count).sum()
        };
        (count(false), count(true))
    }

    /// How the one campaign stands that the report is about.
    pub fn standing(&self) -> Option<&Standing> {
        self.campaign.as_ref().and(self.standings.first())
    }

    /// Writes the report, its list of messages page by page.
    pub async fn write(
        &self,
        store: &Store,
        format: Format,
        listing: Listing,
        out: &mut (impl io::Write + Send),
    ) -> Result<(), ReportError> {
        match (format, listing) {
            (Format::Text, Listing::Figures) => table::write(self, &mut *out)?,
            (Format::Csv, Listing::Figures) => csv::write_standings(&self.standings, &mut *out)?,
            (Format::Text, Listing::Failed) => {
                self.each_failure(store, |page| Ok(table::write_failures(page, out)?))
                    .await?;
            }
            (Format::Csv, Listing::Failed) => {
                let mut columns = csv::Columns::default();
                self.each_failure(store, |page| {
                    columns.gather(page);
                    Ok(())
                })
                .await?;
                let mut writer = csv::Writer::begin(columns, &mut *out)?;
                self.each_failure(store, |page| Ok(writer.page(page)?))
                    .await?;
                writer.finish()?;
            }
            (Format::Json, Listing::Figures | Listing::Failed) => {
                let mut writer = json::Writer::begin(self, "failures", &mut *out)?;
                self.each_failure(store, |page| Ok(writer.page(page)?))
                    .await?;
                writer.finish()?;
            }
            (Format::Text, Listing::Sent) => {
                self.each_sent(store, |page| Ok(table::write_sent(self, page, out)?))
                    .await?;
            }
            (Format::Csv, Listing::Sent) => {
                let mut writer = csv::SentWriter::begin(&mut *out)?;
                self.each_sent(store, |page| Ok(writer.page(self, page)?))
                    .await?;
                writer.finish()?;
            }
            (Format::Json, Listing::Sent) => {
                let mut writer = json::Writer::begin(self, "messages", &mut *out)?;
                self.each_sent(store, |page| Ok(writer.sent(page)?)).await?;
                writer.finish()?;
            }
            (Format::Html, _) => {
                let mut shown = Vec::new();
                let mut walk = store.failures(&self.ids()).await?;
                while shown.len() < html::MOST_FAILURES {
                    let left = html::MOST_FAILURES - shown.len();
                    let page = store.next_failures(&mut walk, left.min(PAGE)).await?;
                    if page.is_empty() {
                        break;
                    }
                    shown.extend(self.masked(page));
                }
                html::write(self, &shown, &mut *out)?;
            }
        }
        out.flush()?;
        Ok(())
    }

    fn ids(&self) -> Vec<i64> {
        self.campaigns.iter().map(|(id, _)| *id).collect()
    }

    async fn each_failure(
        &self,
        store: &Store,
        mut take: impl FnMut(&[FailureRecord]) -> Result<(), ReportError>,
    ) -> Result<(), ReportError> {
        let mut walk = store.failures(&self.ids()).await?;
        loop {
            let page = store.next_failures(&mut walk, PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            take(&self.masked(page))?;
        }
    }

    async fn each_sent(
        &self,
        store: &Store,
        mut take: impl FnMut(&[SentMessage]) -> Result<(), ReportError>,
    ) -> Result<(), ReportError> {
        let mut walk = SentWalk::of(&self.ids());
        loop {
            let mut page = store.next_sent(&mut walk, PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            if self.is_masked {
                for message in &mut page {
                    message.phone = mask(&message.phone);
                }
            }
            take(&page)?;
        }
    }

    /// Without phones and texts, where they are hidden.
    fn masked(&self, mut page: Vec<FailureRecord>) -> Vec<FailureRecord> {
        if self.is_masked {
            for failure in &mut page {
                failure.phone = mask(&failure.phone);
                failure.content.clear();
                "{}".clone_into(&mut failure.params);
            }
        }
        page
    }

    fn campaign_name(&self, id: i64) -> Option<&str> {
        let found = self.campaigns.iter().find(|(known, _)| *known == id);
        found.map(|(_, name)| name.as_str())
    }
}

/// The imported columns; what another program wrote that is no object has none.
fn columns_of(failure: &FailureRecord) -> serde_json::Map<String, serde_json::Value> {
    serde_json::from_str(&failure.params).unwrap_or_default()
}

impl Reason {
    /// Nobody knows whether these arrived.
    fn is_unknown(&self) -> bool {
        self.class == Class::Unknown.as_str()
    }
}

impl Lists {
    /// So many lists are named.
    const NAMED: usize = 20;

    fn of(all: &[ListCount]) -> Self {
        let mut names: Vec<String> = Vec::new();
        for list in all {
            if names.len() < Self::NAMED && !names.contains(&list.name) {
                names.push(list.name.clone());
            }
        }
        let sum = |count: fn(&ListCount) -> u64| all.iter().map(count).sum();
        Self {
            names,
            count: all.len() as u64,
            rows: sum(|list| list.rows),
            accepted: sum(|list| list.accepted),
            duplicates: sum(|list| list.duplicates),
            suppressed: sum(|list| list.suppressed),
            rejected: sum(|list| list.rejected),
        }
    }
}

/// When the first message ended and when the last one did, the cancelled left out.
fn ends(facts: &SentFacts, classes: &[ClassCount]) -> Option<(Timestamp, Timestamp)> {
    let ended = classes
        .iter()
        .filter(|count| count.class != Class::Cancelled.as_str());
    let first = ended.clone().map(|count| count.first_at);
    let last = ended.map(|count| count.last_at);
    Some((
        first.chain(facts.first_at).min()?,
        last.chain(facts.last_at).max()?,
    ))
}

/// The reasons with advice; where there are too many to tell apart, the rest of the failed is summed up.
async fn reasons(
    store: &Store,
    campaigns: &[i64],
    classes: &[ClassCount],
) -> Result<Vec<Reason>, StoreError> {
    let counts = store.failures_by_reason(campaigns).await?;
    let failed = counts
        .iter()
        .filter(|one| one.class != Class::Unknown.as_str());
    let listed: u64 = failed.map(|one| one.count).sum();
    let all: u64 = classes.iter().map(|count| count.messages).sum();
    let rest = all.saturating_sub(listed);
    let many = counts.len() >= REASONS && rest > 0;
    let mut reasons: Vec<Reason> = counts
        .into_iter()
        .map(|one| Reason {
            advice: advice(&one.class, one.code.as_deref()),
            class: one.class,
            code: one.code,
            reason: one.reason,
            count: one.count,
        })
        .collect();
    if many {
        reasons.push(Reason {
            class: "other".to_owned(),
            code: None,
            reason: "all other reasons".to_owned(),
            advice: "see the csv, which has them all",
            count: rest,
        });
    }
    Ok(reasons)
}
