//! The state of campaigns and workers, as `status`, `send` and `report` show it.

use comfy_table::Cell;
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::{Value, json};
use smsq_message::budget::Budget;
use smsq_message::prices::Prices;
use smsq_message::sms::Timestamp;
use smsq_message::text::{duration, printable_line};
use smsq_message::window::{SendWindow, ZoneSource, local_and_utc};
use smsq_process::boxed;
use smsq_store::report::{FirstDue, Totals};
use smsq_store::{Campaign, CampaignStatus, Mode, Store, StoreError, Worker};
use utoipa::ToSchema;

use super::as_text;
use super::table::{plain_table, push_table, right};

/// The campaign of messages without one; it always exists.
const DEFAULT_CAMPAIGN: i64 = 1;

/// The state of a campaign and the counts of its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CampaignSummary {
    pub campaign: String,
    /// Whether no phone gets any of its messages.
    #[serde(rename = "practice")]
    #[schema(rename = "practice", value_type = bool)]
    pub mode: Mode,
    /// `active`, `paused`, `stopped`, `cancelled` or `done`: active with nothing left to send.
    #[schema(value_type = ShownState)]
    pub state: &'static str,
    /// Why it is paused or stopped.
    pub state_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub window: Option<WindowStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetStatus>,
    #[serde(flatten)]
    pub next: NextDue,
    #[serde(flatten)]
    pub totals: Totals,
}

/// The state of a campaign, as it is shown.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes texts")]
enum ShownState {
    Active,
    Paused,
    Stopped,
    Cancelled,
    Unapproved,
    Done,
}

/// The messages of a campaign with at most this number are counted within a fraction of a second.
const COUNTED_AT_ONCE: u64 = 100_000;

impl CampaignSummary {
    #[boxed]
    pub async fn of(store: &Store, campaign: &Campaign) -> Result<Self, StoreError> {
        let totals = store.report().totals(Some(campaign.id)).await?;
        Self::with_totals(store, campaign, totals, store.now().await?).await
    }

    /// The same within a second: a large campaign has the counts `known` from before; without them, all that was imported
    /// counts as queued, if any of it is.
    #[boxed]
    pub async fn quick(
        store: &Store,
        campaign: &Campaign,
        known: Option<Totals>,
    ) -> Result<Self, StoreError> {
        let imported = store.imported(campaign.id).await?;
        if imported <= COUNTED_AT_ONCE {
            return Self::of(store, campaign).await;
        }
        let totals = match known {
            Some(known) => known,
            None => Totals {
                imported,
                queued: match store.next_due(campaign.id).await? {
                    Some(_) => imported,
                    None => 0,
                },
                ..Totals::default()
            },
        };
        Self::with_totals(store, campaign, totals, store.now().await?).await
    }

    async fn with_totals(
        store: &Store,
        campaign: &Campaign,
        totals: Totals,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let first = match totals.queued {
            0 => None,
            _ => store.report().first_due(campaign.id).await?,
        };
        let is_idle = totals.queued == 0 && totals.sending == 0;
        let window = campaign.window.as_ref();
        let budget = match &campaign.budget {
            Some(budget) => Some(BudgetStatus::read(store, campaign.id, budget).await?),
            None => None,
        };
        Ok(Self {
            campaign: campaign.name.clone(),
            mode: store.mode(),
            state: match campaign.state {
                CampaignStatus::Active if is_idle => "done",
                state => state.as_str(),
            },
            state_reason: campaign.state_reason.clone(),
            window: window.map(|window| WindowStatus::at(window, now)),
            budget,
            next: first.map(|first| NextDue::at(first, now)).unwrap_or_default(),
            totals,
        })
    }

    /// Whether it has messages that a worker could send now, or after a retry's wait.
    pub fn is_due(&self) -> bool {
        let is_closed = |window: &WindowStatus| window.opens_at.is_some();
        self.state == CampaignStatus::Active.as_str()
            && self.totals.queued > 0
            && self.next.due_at.is_none()
            && !self.window.as_ref().is_some_and(is_closed)
    }

    /// Whether nothing more will be sent.
    pub fn is_over(&self) -> bool {
        matches!(self.state, "done" | "cancelled") && self.totals.sending == 0
    }
}

/// One campaign or all, and the messages of campaigns that were removed; with what the database is for, which is shown
/// wherever they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summaries {
    pub mode: Mode,
    pub campaigns: Vec<CampaignSummary>,
    /// Purged messages of campaigns that were removed after that.
    pub removed: Totals,
}

impl Summaries {
    #[boxed]
    pub async fn of(store: &Store, campaign: &Campaign) -> Result<Self, StoreError> {
        Ok(Self::new(store.mode(), vec![CampaignSummary::of(store, campaign).await?]))
    }

    /// Campaigns of a database, of which none was removed.
    pub fn new(mode: Mode, campaigns: Vec<CampaignSummary>) -> Self {
        Self { mode, campaigns, removed: Totals::default() }
    }

    /// All campaigns, without an unused default campaign.
    #[boxed]
    pub async fn all(store: &Store) -> Result<Self, StoreError> {
        let counted = store.report().campaign_totals().await?;
        let now = store.now().await?;
        let mut campaigns = Vec::new();
        for (campaign, totals) in &counted.campaigns {
            if campaign.id != DEFAULT_CAMPAIGN || *totals != Totals::default() {
                let summary = CampaignSummary::with_totals(store, campaign, *totals, now);
                campaigns.push(summary.await?);
            }
        }
        Ok(Self { mode: store.mode(), campaigns, removed: counted.removed })
    }

    /// The totals and all campaigns; with `is_one` the only campaign.
    pub fn json(&self, is_one: bool) -> Value {
        if let ([campaign], true) = (self.campaigns.as_slice(), is_one) {
            return json!(campaign);
        }
        let mut object = json!(self.sums());
        object["campaigns"] = json!(self.campaigns);
        if self.removed.imported > 0 {
            object["removed_campaigns"] = json!(self.removed);
        }
        object
    }

    /// The counts of all campaigns.
    pub(super) fn sums(&self) -> Sums {
        Sums { mode: self.mode, totals: self.totals() }
    }

    pub fn totals(&self) -> Totals {
        let campaigns = self.campaigns.iter().map(|campaign| campaign.totals);
        campaigns.chain([self.removed]).sum()
    }
}

/// The counts of all campaigns.
#[derive(Serialize)]
pub(super) struct Sums {
    #[serde(rename = "practice")]
    mode: Mode,
    #[serde(flatten)]
    totals: Totals,
}

/// When the first queued message of a campaign is due, if that is in the future, and when it expires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct NextDue {
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    #[schema(value_type = Option<String>, format = DateTime)]
    due_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

impl NextDue {
    /// Without a start for a message that waits for another attempt.
    fn at(first: FirstDue, now: Timestamp) -> Self {
        Self {
            due_at: Some(first.due_at).filter(|at| *at > now && first.attempts == 0),
            expires_at: first.expires_at,
        }
    }

    /// `starts 2026-12-24 09:00 CET (08:00 UTC), expires 2026-12-24 17:00 CET (16:00 UTC)`; `None` if neither is
    /// known.
    pub fn describe(&self) -> Option<String> {
        let parts = [("starts", self.due_at), ("expires", self.expires_at)].into_iter();
        let parts: Vec<String> =
            parts.filter_map(|(verb, at)| Some(format!("{verb} {}", local_and_utc(at?)))).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// A budget, and what is spent of it: exact decimal numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BudgetStatus {
    #[schema(example = "500.00")]
    pub amount: String,
    /// Also what messages may have cost that are being sent or unknown. None while it is counted: nothing is sent before.
    #[schema(example = "499.96")]
    pub spent: Option<String>,
    #[schema(example = "EUR")]
    pub currency: String,
    /// Of a month: when the first message took from a budget in this currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_from: Option<String>,
}

impl BudgetStatus {
    async fn read(store: &Store, campaign_id: i64, budget: &Budget) -> Result<Self, StoreError> {
        let spent = store.spent(campaign_id, &budget.currency).await?;
        Ok(Self::new(budget, spent))
    }

    /// The budget of all campaigns for the calendar month.
    #[boxed]
    pub async fn of_month(
        store: &Store,
        budget: &Budget,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let month = store.month_spent(now, &budget.currency).await?;
        Ok(Self {
            counted_from: month.counted_from.map(|at| at.to_string()),
            ..Self::new(budget, Some(month.spent))
        })
    }

    fn new(budget: &Budget, spent: Option<i64>) -> Self {
        Self {
            amount: Prices::exact(budget.amount.unsigned_abs()),
            spent: spent.map(|spent| Prices::exact(u64::try_from(spent).unwrap_or_default())),
            currency: budget.currency.clone(),
            counted_from: None,
        }
    }

    /// `budget 500.00 EUR, of which 499.96 EUR is spent`.
    pub fn describe(&self) -> String {
        let (amount, currency) = (&self.amount, &self.currency);
        let Some(spent) = &self.spent else {
            return format!("budget {amount} {currency}; what is spent of it is being counted");
        };
        let since = self.counted_from.as_ref();
        let since = since.map_or_else(String::new, |at| format!(", counted since {at}"));
        format!("budget {amount} {currency}, of which {spent} {currency} is spent{since}")
    }
}

/// A campaign's sending window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowStatus {
    /// `09:00-20:00`.
    pub hours: String,
    /// `mon-fri` or `daily`.
    pub days: String,
    /// A zone, `column` or `recipient`.
    pub timezone: String,
    /// The zone of recipients without a known one.
    pub fallback_timezone: Option<String>,
    /// When it opens, if it is closed for every recipient.
    pub opens_at: Option<String>,
    #[serde(skip)]
    description: String,
}

impl WindowStatus {
    pub fn of(window: &SendWindow) -> Self {
        let zone = window.zone.zone().to_string();
        let (timezone, fallback_timezone) = match &window.zone {
            ZoneSource::Fixed(_) => (zone, None),
            ZoneSource::Column(_) => ("column".to_owned(), Some(zone)),
            ZoneSource::Recipient(_) => ("recipient".to_owned(), Some(zone)),
        };
        Self {
            hours: window.hours.to_string(),
            days: window.days.to_string(),
            timezone,
            fallback_timezone,
            opens_at: None,
            description: window.describe(),
        }
    }

    fn at(window: &SendWindow, now: Timestamp) -> Self {
        let mut status = Self::of(window);
        let closed = window.for_all(now).filter(|span| !span.contains(now));
        if let Some(span) = closed {
            status.opens_at = Some(span.opens_at.to_string());
            let opens = window.format_local(span.opens_at);
            status.description = format!("{}; opens {opens}", status.description);
        }
        status
    }

    /// `09:00-20:00 daily in Asia/Shanghai; opens 2026-11-22 09:00 Asia/Shanghai`.
    pub fn describe(&self) -> &str {
        &self.description
    }
}

/// A worker, and how many messages it has claimed and not settled.
pub fn worker_json(worker: &Worker, sending: u64) -> Value {
    json!({
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "started_at": worker.started_at.to_string(),
        "heartbeat_at": worker.heartbeat_at.to_string(),
        "sending": sending,
    })
}

/// A table of the workers, among them workers that died recently; `now` is the database's time.
pub fn workers_text(workers: &[(Worker, u64)], now: Timestamp) -> String {
    let mut table = plain_table();
    table.set_header(vec![
        Cell::new("worker"),
        Cell::new("host"),
        right("pid"),
        Cell::new("since"),
        right("heartbeat"),
        right("sending"),
    ]);
    for (worker, sending) in workers {
        table.add_row(vec![
            Cell::new(worker.id),
            Cell::new(printable_line(&worker.host)),
            right(worker.pid),
            Cell::new(worker.started_at),
            right(age(worker.heartbeat_at, now)),
            right(HumanCount(*sending)),
        ]);
    }
    let mut text = String::new();
    push_table(&mut text, &table);
    text
}

/// `9 s ago`, in whole seconds.
fn age(at: Timestamp, now: Timestamp) -> String {
    match now.since(at).as_secs() {
        0 => "now".to_owned(),
        seconds => format!("{} ago", duration(std::time::Duration::from_secs(seconds))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_listed_with_the_age_of_their_heartbeat() {
        let worker = |id, heartbeat_at, sending| {
            let worker = Worker {
                id,
                host: "cellar\u{7}".to_owned(),
                boot_id: "boot".to_owned(),
                pid_namespace: String::new(),
                pid: 4_000 + id,
                process_started: 1,
                concurrency: 64,
                started_at: Timestamp::from_millis(1_763_715_600_000),
                heartbeat_at: Timestamp::from_millis(heartbeat_at),
                lease_ms: 30_000,
                machine_id: String::new(),
                token: String::new(),
                commits: 0,
            };
            (worker, sending)
        };
        let now = Timestamp::from_millis(1_763_715_730_000);
        let workers = [
            worker(7, 1_763_715_729_500, 64),
            worker(12, 1_763_715_721_000, 0),
            worker(13, 1_763_715_600_000, 1_234),
        ];
        insta::assert_snapshot!(workers_text(&workers, now), @r"
        worker  host      pid  since                  heartbeat  sending
        7       cellar   4007  2025-11-21T09:00:00Z         now       64
        12      cellar   4012  2025-11-21T09:00:00Z     9 s ago        0
        13      cellar   4013  2025-11-21T09:00:00Z  2m 10s ago    1,234
        ");
        insta::assert_snapshot!(worker_json(&workers[0].0, workers[0].1), @r#"{"id":7,"host":"cellar\u0007","pid":4007,"started_at":"2025-11-21T09:00:00Z","heartbeat_at":"2025-11-21T09:02:09Z","sending":64}"#);
    }
}
