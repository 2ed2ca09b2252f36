//! What sending would be like: of a list before it is imported, and of a campaign before it is sent or approved. The
//! command line and the page show the same rows.

use std::collections::BTreeSet;
use std::fmt::Display;

use indicatif::HumanCount;
use serde_json::{Map, Value, json};
use smsq_import::{
    Estimate, EstimatedCost, Interpretation, KeptRows, MessageStats, Plan, ProviderRequirements,
    Rejection, Sample, Schedule, SeenKeys, SegmentTotals, Summary,
};
use smsq_message::budget::Budget;
use smsq_message::phone::{Phone, Region};
use smsq_message::prices::Prices;
use smsq_message::rate::{Rate, Rates};
use smsq_message::route::{Route, RouteMember};
use smsq_message::sms::{LaneId, NewSms};
use smsq_message::text::segments::{self, Alphabet};
use smsq_message::text::{Hinted, counted, duration, is_printable, messages, smart};
use smsq_message::window::local_and_utc;
use smsq_store::report::Queued;
use smsq_store::{Campaign, Store};

use super::OperationError;
use super::approval;
use super::list_settings::{ListPrices, ListSettings};
use super::lists::{Imported, ListOptions, local_now};

/// How many messages and rejected rows are shown.
pub const SAMPLES: usize = 5;
const PAGE: usize = 5_000;
const SHOWN_CHARACTERS: usize = 5;
const SHOWN_COUNTRIES: usize = 5;

/// A file that would be imported, and what sending it would be like.
pub struct ListEstimate {
    pub list: Imported,
    pub interpretation: Interpretation,
    /// Line and reason of the first rejected rows.
    pub rejects: Vec<(u64, Rejection)>,
    /// What messages to numbers that do not exist would cost.
    pub saved: EstimatedCost,
    /// Why a second person would have to approve it.
    pub approval: Option<String>,
    pub estimate: Estimate,
}

impl ListOptions {
    /// Reads a list as an import would, without writing to the database; with `keep_rejects` it writes the file with the
    /// rejected rows. `seen` has the keys of other lists for the same campaign; `store` is the database, if it exists;
    /// `progress` gets the number of rows.
    pub async fn estimate(
        &self,
        plan: &Plan,
        seen: &mut SeenKeys,
        store: Option<&Store>,
        keep_rejects: bool,
        progress: impl FnMut(u64),
    ) -> Result<ListEstimate, OperationError> {
        let name = self.campaign_of(plan);
        let campaign = match store {
            Some(store) => store.campaign(name).await?,
            None => None,
        };
        let campaign = campaign.as_ref();
        let now = local_now();
        let schedule = self.schedule(now)?;
        let window = self.window_in(campaign)?;
        let starts_at = schedule.due_at.unwrap_or(now);
        let open_for = schedule.expires_at.map(|until| match &window {
            Some(window) => window.open_between(starts_at, until),
            None => until.since(starts_at),
        });
        let prices = self.prices(plan, campaign);
        let currency = prices.currency();
        let price = |phone: &str| prices.of(phone);
        let known = store.map(|store| (store, campaign));
        let keep = KeptRows { max_samples: SAMPLES, rejects_file: keep_rejects };
        let preview = plan.preview(seen, keep, known, &price, progress).await?;
        let facts = approval::facts(&preview.summary, currency.as_deref());
        Ok(ListEstimate {
            approval: approval::expected(&self.settings, store, campaign, &facts).await?,
            interpretation: plan.interpretation(),
            rejects: preview.rejects,
            saved: preview.saved,
            estimate: Estimate {
                messages: preview.summary.accepted,
                stats: preview.stats,
                currency: currency.clone(),
                budget: self.budget_in(campaign),
                route: plan.route(),
                limits: self.limits(campaign)?,
                open_for,
                window,
                starts_at,
            },
            list: Imported {
                file: plan.file().to_owned(),
                mode: store.map_or(self.settings.created_for, Store::mode),
                campaign: name.to_owned(),
                currency,
                budget: self.budget_in(campaign),
                schedule,
                summary: preview.summary,
                waits: None,
                rejects_command: String::new(),
            },
        })
    }
}

impl ListOptions {
    /// The limits of the provider, and of the campaign after the import.
    fn limits(&self, campaign: Option<&Campaign>) -> Result<Vec<Rate>, Hinted> {
        let of_campaign = campaign.map(|campaign| &campaign.rate);
        let rates = self.rate.as_ref().or(of_campaign);
        Ok(limits(self.requirements(campaign)?, rates))
    }
}

impl ListEstimate {
    pub fn rows(&self) -> EstimateRows {
        let (list, mut rows) = (&self.list, EstimateRows::default());
        rows.add("list", &self.interpretation.format);
        rows.add("phone", &self.interpretation.phone);
        rows.add("text", &self.interpretation.text);
        rows.add_counts(&list.summary, "would send");
        rows.add_skipped(list.summary.dead(), self.saved, list.currency.as_deref());
        rows.add_schedule(list.schedule);
        rows.add_estimate(&self.estimate);
        if let Some(reason) = &self.approval {
            let value = format!("a second person has to approve it: {reason}");
            rows.add("approval", value);
        }
        rows
    }

    /// What `--dry-run --format json` prints.
    pub fn json(&self) -> Value {
        let (estimate, stats) = (&self.estimate, &self.estimate.stats);
        let countries = stats.countries().into_iter();
        let countries = countries.map(|(country, count)| (country, json!(count)));
        let expensive = stats.expensive().into_iter().take(SHOWN_CHARACTERS).map(|(character, count)| {
            json!({ "character": character, "messages": count, "instead": smart::plain(character) })
        });
        let rejects = self.rejects.iter();
        let rejects =
            rejects.map(|(line, rejection)| json!({ "line": line, "reason": rejection.reason }));
        let mut object = self.list.json();
        let added = json!({
            "dry_run": true,
            "file": self.list.file,
            "takes_ms": estimate.duration().map(smsq_message::sms::millis),
            "ends_at": estimate.ends_at().map(|at| at.to_string()),
            "too_late": estimate.too_late().unwrap_or_default(),
            "countries": countries.collect::<Map<String, Value>>(),
            "expensive": expensive.collect::<Value>(),
            "saving": stats.saving,
            "longest": stats.longest.as_ref().map(sample_json),
            "most_expensive": stats.most_expensive.as_ref().map(sample_json),
            "samples": stats.samples.iter().map(sample_json).collect::<Value>(),
            "rejects": rejects.collect::<Value>(),
            "list": self.interpretation.format,
            "phone": self.interpretation.phone,
            "text": self.interpretation.text,
            "needs_approval": self.approval,
        });
        if let (Value::Object(object), Value::Object(added)) = (&mut object, added) {
            object.extend(added);
        }
        object
    }
}

/// What sending the queued messages of a campaign would be like.
pub struct QueueEstimate {
    /// Its provider or route, as it is named in a sentence.
    pub by: String,
    pub rows: EstimateRows,
    pub estimate: Estimate,
}

/// The messages that an estimate of a queue is about.
pub struct EstimatedQueue<'a> {
    pub campaign: &'a Campaign,
    /// `None`: all.
    pub lanes: Option<&'a [LaneId]>,
    /// The number of messages in these lanes.
    pub count: u64,
    /// Not more than this many are read.
    pub max_read: u64,
    /// A further limit.
    pub rate: Option<&'a Rates>,
}

/// Reads the first messages of the queue. `region` is the default for numbers that other programs inserted. `progress` gets
/// the number of messages that were read, and how many will be.
pub async fn estimate_queue(
    settings: &ListSettings,
    store: &Store,
    queue: EstimatedQueue<'_>,
    region: Option<Region>,
    mut progress: impl FnMut(u64, u64),
) -> Result<QueueEstimate, OperationError> {
    let EstimatedQueue { campaign, lanes, count, max_read, rate } = queue;
    let provider = campaign.provider.as_ref().or(settings.default_provider.as_ref());
    let requirements =
        provider.map(|name| (settings.requirements)(name, campaign.sender.clone())).transpose()?;
    let needed = requirements.as_ref();
    let route = needed.and_then(|needed| needed.route.clone());
    let prices = ListPrices::new(&settings.prices, provider.map(String::as_str), route.clone());
    let to_read = count.min(max_read);
    let mut stats = MessageStats::new(SAMPLES).with_route(route.clone());
    let mut queue = store.report().queue(campaign.id, lanes).await?;
    let (mut read, mut suppressed) = (0, 0);
    while read < to_read {
        let page = PAGE.min(usize::try_from(to_read - read).unwrap_or(PAGE));
        let queued = store.report().next_queued(&mut queue, page).await?;
        if queued.is_empty() {
            break;
        }
        read += queued.len() as u64;
        let messages: Vec<_> = queued.into_iter().map(|queued| message(queued, region)).collect();
        let count = messages.len();
        let messages = not_suppressed(store, messages).await?;
        suppressed += (count - messages.len()) as u64;
        for message in messages {
            let price = prices.of(&message.phone);
            stats.add(sample(message, needed, route.as_deref()), price);
        }
        progress(read, to_read);
    }
    // `--smart` works only during an import.
    stats.saving = 0;
    let now = store.now().await?;
    let word = match &route {
        Some(route) if !route.is_pool() => "route",
        _ => "provider",
    };
    let by = format!("{word} `{}`", provider.map_or("", String::as_str));
    let mut rows = EstimateRows::default();
    rows.add("would send", HumanCount(count - suppressed));
    rows.add("suppressed", HumanCount(suppressed));
    if let Some(first) = store.report().first_due(campaign.id).await? {
        rows.add_schedule(Schedule {
            due_at: Some(first.due_at).filter(|at| *at > now && first.attempts == 0),
            expires_at: first.expires_at,
        });
    }
    if read < count {
        rows.add("estimated", format!("from the first {}", HumanCount(read)));
    }
    let mut limits = limits(requirements, Some(&campaign.rate));
    limits.extend(rate.iter().flat_map(|rates| rates.0.clone()));
    let estimate = Estimate {
        messages: count - suppressed,
        stats,
        currency: prices.currency(),
        budget: campaign.budget.clone(),
        limits,
        route,
        open_for: None,
        window: campaign.window.clone(),
        starts_at: now,
    };
    rows.add_estimate(&estimate);
    Ok(QueueEstimate { by, rows, estimate })
}

async fn not_suppressed(
    store: &Store,
    mut messages: Vec<NewSms>,
) -> Result<Vec<NewSms>, OperationError> {
    let phones: Vec<&str> = messages.iter().map(|message| message.phone.as_str()).collect();
    let suppressed = store.suppression().among(&phones).await?;
    messages.retain(|message| !suppressed.contains(&message.phone));
    Ok(messages)
}

/// A message as the recipient sees it.
fn sample(
    message: NewSms,
    requirements: Option<&ProviderRequirements>,
    route: Option<&Route>,
) -> Sample {
    let check = requirements.and_then(|needed| needed.check.as_ref());
    let shown =
        check.and_then(|check| check(&message, route).ok().flatten()).unwrap_or(message.content);
    Sample { line: None, segments: segments::count(&shown), phone: message.phone, content: shown }
}

/// The properties of a queued message that an estimate needs. A phone that another program inserted is parsed as it will
/// be when it is sent.
fn message(queued: Queued, region: Option<Region>) -> NewSms {
    let phone = match Phone::parse(&queued.phone, region) {
        Ok(phone) if !queued.phone.starts_with('+') => phone.into_string(),
        _ => queued.phone,
    };
    NewSms { phone, content: queued.content, params: queued.params, ..NewSms::default() }
}

/// The limits of the provider and of the campaign.
fn limits(provider: Option<ProviderRequirements>, campaign: Option<&Rates>) -> Vec<Rate> {
    let of_provider = provider.map(|needed| needed.rates.0).unwrap_or_default();
    let of_campaign = campaign.iter().flat_map(|rates| rates.0.clone());
    of_provider.into_iter().chain(of_campaign).collect()
}

/// Names and values, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EstimateRows(pub Vec<(&'static str, String)>);

impl EstimateRows {
    pub fn add(&mut self, name: &'static str, value: impl Display) {
        self.0.push((name, value.to_string()));
    }

    /// Adds counts of rows, with the lines of duplicates and the reasons of rejections.
    pub fn add_counts(&mut self, summary: &Summary, accepted: &'static str) {
        let repeats = summary.repeats.iter();
        let repeats = repeats.map(|(line, first)| format!("line {line} repeats line {first}"));
        for (name, count, details) in [
            ("rows", summary.rows, Vec::new()),
            (accepted, summary.accepted, Vec::new()),
            ("duplicates", summary.duplicates, repeats.collect()),
            ("suppressed", summary.suppressed, Vec::new()),
            ("rejected", summary.rejected, reasons(summary)),
        ] {
            let count = HumanCount(count);
            match details.as_slice() {
                [] => self.add(name, count),
                details => self.add(name, format!("{count} ({})", details.join(", "))),
            }
        }
    }

    /// Adds how many numbers do not exist, and what that saves.
    fn add_skipped(&mut self, count: u64, saved: EstimatedCost, currency: Option<&str>) {
        let numbers = match count {
            0 => return,
            1 => "1 number that does not exist".to_owned(),
            _ => format!("{} numbers that do not exist", HumanCount(count)),
        };
        let saved = amount(saved, currency).map(|amount| format!(", which saves {amount}"));
        self.add("skipped", numbers + &saved.unwrap_or_default());
    }

    pub fn add_schedule(&mut self, schedule: Schedule) {
        for (name, at) in [("starts", schedule.due_at), ("expires", schedule.expires_at)] {
            if let Some(at) = at {
                self.add(name, local_and_utc(at));
            }
        }
    }

    /// Adds a row like `612 (480 messages in GSM-7, 7 in UCS-2)`.
    pub fn add_segments(&mut self, totals: &SegmentTotals) {
        let (total, gsm7) = (HumanCount(totals.total), messages(totals.gsm7));
        let ucs2 = HumanCount(totals.ucs2);
        let value = format!("{total} ({gsm7} in GSM-7, {ucs2} in UCS-2)");
        self.add("segments", value);
    }

    /// Adds the cost, and whether it is above the budget; nothing without a currency.
    pub fn add_cost(
        &mut self,
        cost: EstimatedCost,
        currency: Option<&str>,
        budget: Option<&Budget>,
    ) {
        let Some(mut value) = amount(cost, currency) else {
            return;
        };
        if let Some(budget) = budget.filter(|budget| cost.amount > budget.amount.unsigned_abs()) {
            value = format!("{value}; above the budget of {budget}");
        }
        self.add("cost", value);
    }

    /// Adds segments, cost, recipients by country, the duration, and expensive characters.
    fn add_estimate(&mut self, estimate: &Estimate) {
        let stats = &estimate.stats;
        self.add_segments(&stats.segments);
        let currency = estimate.currency.as_deref();
        self.add_cost(stats.cost, currency, estimate.budget.as_ref());
        if stats.saving > 0 {
            let saving = counted(stats.saving, "segment");
            self.add("saving", format!("{saving} with `--smart`"));
        }
        let countries = stats.countries();
        if countries.len() > 1 {
            let mut shown = countries
                .iter()
                .take(SHOWN_COUNTRIES)
                .map(|(country, count)| format!("{country}: {}", HumanCount(*count)))
                .collect::<Vec<_>>()
                .join(", ");
            if countries.len() > SHOWN_COUNTRIES {
                shown.push_str(", …");
            }
            self.add("countries", shown);
        }
        self.add("sending", sending(estimate));
        for (character, count) in stats.expensive().into_iter().take(SHOWN_CHARACTERS) {
            let code = u32::from(character);
            let is_shown = is_printable(character) && !character.is_whitespace();
            let shown = if is_shown { character } else { ' ' };
            let instead = match smart::plain(character) {
                Some("") => ", and can be removed".to_owned(),
                Some(plain) => format!(", `{plain}` would not"),
                None => String::new(),
            };
            let count = messages(count);
            let value = format!("`{shown}` (U+{code:04X}) makes {count} UCS-2{instead}");
            self.add("expensive", value);
        }
    }
}

/// `3 no phone`, the most frequent first.
pub fn reasons(summary: &Summary) -> Vec<String> {
    let reasons = summary.frequent_reasons().into_iter();
    reasons.map(|(kind, count)| format!("{} {kind}", HumanCount(count))).collect()
}

/// `12.34 EUR`, and how many messages have no price; `None` without a currency.
fn amount(cost: EstimatedCost, currency: Option<&str>) -> Option<String> {
    let amount = format!("{} {}", Prices::rounded(cost.amount), currency?);
    let mut value = amount.trim_end().to_owned();
    if cost.unpriced > 0 {
        let unpriced = messages(cost.unpriced);
        value = format!("{value}, excluding {unpriced} without a price");
    }
    Some(value)
}

/// How long sending takes, and until when.
fn sending(estimate: &Estimate) -> String {
    let window = estimate.window.as_ref().map_or_else(String::new, |window| {
        let until =
            estimate.ends_at().map(|at| format!(": until about {}", window.format_local(at)));
        format!(", {}{}", window.describe(), until.unwrap_or_default())
    });
    let Some(span) = estimate.duration() else {
        return format!("without a rate limit{window}");
    };
    let mut limits: Vec<String> = estimate.limits.iter().map(Rate::to_string).collect();
    limits.extend(estimate.route.iter().map(|route| describe(route)));
    let alone =
        estimate.with_one_sender().map(|alone| format!("; with one sender {}", duration(alone)));
    let (span, limits) = (duration(span), limits.join(", ") + &alone.unwrap_or_default());
    let late = estimate.too_late().map_or_else(String::new, |late| {
        let late = messages(late);
        format!("; about {late} would expire before they are sent")
    });
    format!("about {span} at {limits}{window}{late}")
}

/// `50 senders at 2/s`, or `50 senders` if their limits differ; the providers of a route with several.
fn describe(route: &Route) -> String {
    if route.is_shared() {
        let limited = |member: &RouteMember| {
            let name = member.pool.provider();
            match member.rates.0.as_slice() {
                [] => format!("`{name}`"),
                _ => format!("`{name}` at {}", member.rates),
            }
        };
        let lacking: BTreeSet<&str> = route.lacking().map(|(provider, _)| provider).collect();
        let sends = |member: &&RouteMember| !lacking.contains(member.pool.provider());
        let members = route.members().iter().filter(sends).map(limited);
        return members.collect::<Vec<_>>().join(" and ");
    }
    let rates: BTreeSet<String> =
        route.senders().map(|(_, sender)| sender.rate.to_string()).collect();
    let count = counted(route.senders().count() as u64, "sender");
    match rates.first().filter(|rate| rates.len() == 1 && !rate.is_empty()) {
        Some(rate) => format!("{count} at {rate}"),
        None => count,
    }
}

/// The name of the alphabet of a message.
pub fn alphabet(sample: &Sample) -> &'static str {
    match sample.segments.alphabet {
        Alphabet::Gsm7 => "GSM-7",
        Alphabet::Ucs2 => "UCS-2",
    }
}

fn sample_json(sample: &Sample) -> Value {
    json!({
        "line": sample.line, "phone": sample.phone, "content": sample.content,
        "segments": sample.segments.count, "alphabet": alphabet(sample),
    })
}
