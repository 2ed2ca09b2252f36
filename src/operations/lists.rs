//! Imports lists of recipients: what is checked before anything is written, the campaign that a list goes to, and what
//! is reported. The command line and the server call it with the same options.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use smsq_import::{
    ImportError, KeptRows, Options, Plan, ProviderRequirements, RejectLimit, Schedule, SeenKeys,
    Summary, Target, When,
};
use smsq_message::budget::Budget;
use smsq_message::prices::Prices;
use smsq_message::rate::Rates;
use smsq_message::route::{Division, Route};
use smsq_message::sms::Timestamp;
use smsq_message::text::{Hinted, counted, did_you_mean, duration};
use smsq_message::window::{SendWindow, local_and_utc};
use smsq_process::boxed;
use smsq_store::{
    Campaign, CampaignChange, CampaignSettings, CampaignStatus, Mode, NewCampaign, SettingChange,
    Store, StoreError, StoreErrorKind,
};

use super::approval::{self, ListGate};
use super::budget::{COUNTED_LATER, check_priced, count_budget};
use super::campaign::{change_settings, change_state, check_spent};
use super::campaign_action::{CampaignAction, Refused};
use super::list_settings::{ListPrices, ListSettings};
use super::window::WindowRequest;
use super::{Actor, OperationError};

/// `at` may be this far in the past: it then means now.
const MAX_LATE: Duration = Duration::from_secs(60);
/// Providers are compared by what became of the messages of this time.
const COMPARED: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether an import makes a cancelled campaign active again. Each caller says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// A person imports at the command line.
    Resume,
    /// It takes no messages.
    Refuse,
}

/// The campaign of a schedule's period. The schedule alone adds messages to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeriodCampaign {
    pub name: String,
    /// No earlier run of the period has opened the campaign: its settings become those of the schedule.
    pub is_first: bool,
}

/// How to read lists, and what to do with their campaigns.
#[derive(Clone)]
pub struct ListOptions {
    /// The options of each list, which lack its file.
    pub list: Options,
    /// `None`: that of failed messages, or else named after the file and the text.
    pub campaign: Option<String>,
    /// `None`: that of the campaign, or else the default one.
    pub provider: Option<String>,
    /// `None`: that of the campaign, or else of the provider.
    pub sender: Option<String>,
    pub max_rejects: Option<RejectLimit>,
    pub at: Option<When>,
    /// Relative to `at`.
    pub expires: Option<When>,
    pub window: WindowRequest,
    /// `None`: that of the campaign.
    pub budget: Option<Budget>,
    /// The limit of the campaign; `None`: that which it has.
    pub rate: Option<Rates>,
    /// The name of the token with which the list was uploaded.
    pub posted_by: Option<String>,
    /// The list may replace failed messages.
    pub may_change: bool,
    pub cancelled: Cancelled,
    /// `None`: not a schedule imports the list, so its campaign is not a schedule's.
    pub period: Option<PeriodCampaign>,
    pub settings: ListSettings,
}

/// A file that was imported.
#[derive(Clone)]
pub struct Imported {
    pub file: String,
    /// What the database is for.
    pub mode: Mode,
    pub campaign: String,
    /// `None`: the provider has no prices.
    pub currency: Option<String>,
    /// That of the campaign.
    pub budget: Option<Budget>,
    pub schedule: Schedule,
    pub summary: Summary,
    /// Why its messages wait for approval.
    pub waits: Option<String>,
    /// Imports the rejects file after it was fixed.
    pub rejects_command: String,
}

/// The error for a provider that is not configured.
pub fn unknown_provider<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Hinted {
    let hint = did_you_mean(name, known).unwrap_or_else(|| {
        "describe it as `[providers.NAME]` in smsq.toml; `smsq init` writes an example".to_owned()
    });
    Hinted::new(format!("unknown provider `{name}`"), hint)
}

/// The error if no sender is given to a provider that needs one.
pub fn sender_needed(provider: &str) -> Hinted {
    Hinted::new(
        format!("missing sender: provider `{provider}` needs one"),
        format!("name one with `--from`, or set `from` in [providers.{provider}]"),
    )
}

/// This machine's time, for checks before there is a database.
pub fn local_now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}

impl ListOptions {
    /// Reads the files as far as needed to find every error that concerns a whole file. Writes nothing. `store`: the
    /// database, if it exists.
    pub async fn prepare(
        &self,
        files: &[PathBuf],
        store: Option<&Store>,
    ) -> Result<Vec<Plan>, OperationError> {
        self.check_provider()?;
        // The import checks this again with the database's clock; this check comes before a database is created.
        self.schedule(local_now())?;
        let campaign = match (&self.campaign, store) {
            (Some(name), Some(store)) => store.campaign(name).await?,
            _ => None,
        };
        let requirements = self.requirements(campaign.as_ref())?;
        let mut plans = Vec::new();
        for file in files {
            let options = Options {
                file: file.clone(),
                template: requirements.as_ref().and_then(|needed| needed.template.clone()),
                ..self.list.clone()
            };
            let mut plan =
                Plan::prepare(options).map_err(|error| match (&error, &requirements) {
                    (ImportError::NoText { .. }, Some(needed)) if !needed.columns.is_empty() => {
                        let section = format!("[providers.{}]", needed.provider);
                        Hinted::new(
                            error.to_string(),
                            format!("set `template_text` in {section} to the text of its template"),
                        )
                        .into()
                    }
                    _ => OperationError::from(error),
                })?;
            self.check_campaign(&mut plan, store).await?;
            if plan.names_failed_messages() && !self.may_change {
                let file = plan.file();
                return Err(Hinted::new(
                    format!(
                        "column `smsq_id` in `{file}` replaces failed messages, which needs a token of role `admin`"
                    ),
                    "remove the column to add the rows as new messages",
                )
                .into());
            }
            plans.push(plan);
        }
        Ok(plans)
    }

    /// Fails if the provider that was asked for is not configured.
    pub fn check_provider(&self) -> Result<(), Hinted> {
        let known = &self.settings.providers;
        match &self.provider {
            Some(name) if !known.contains(name) => {
                Err(unknown_provider(name, known.iter().map(String::as_str)))
            }
            _ => Ok(()),
        }
    }

    /// Finds the campaign of a list, and checks the list against the campaign and its provider. A failures file
    /// belongs to the campaign that it came from.
    async fn check_campaign(
        &self,
        plan: &mut Plan,
        store: Option<&Store>,
    ) -> Result<(), OperationError> {
        let mut campaign = None;
        if let Some(store) = store {
            if self.campaign.is_none() {
                plan.resolve_campaign(store).await?;
            }
            let name = self.campaign_of(plan);
            self.check_name(store, name, plan.names_failed_messages()).await?;
            campaign = store.campaign(name).await?;
        }
        if let Some(campaign) = &campaign {
            plan.unique_in(campaign)?;
        }
        let now = local_now();
        if let Some(window) = self.window_in(campaign.as_ref())? {
            check_opens(&window, self.schedule(now)?, now)?;
        }
        self.check_sender(campaign.as_ref())?;
        self.check_budget(store, campaign.as_ref()).await?;
        plan.set_requirements(self.requirements(campaign.as_ref())?)?;
        Ok(plan.check_columns(campaign.as_ref())?)
    }

    /// The campaign of a list.
    pub fn campaign_of<'a>(&'a self, plan: &'a Plan) -> &'a str {
        self.campaign.as_deref().unwrap_or(plan.default_campaign())
    }

    /// Fails if the campaign belongs to a schedule, unless that imports the list, or the rows replace messages of the
    /// campaign.
    async fn check_name(
        &self,
        store: &Store,
        name: &str,
        replaces: bool,
    ) -> Result<(), OperationError> {
        if self.period.is_some() || (replaces && self.may_change) {
            return Ok(());
        }
        check_name(store, name).await
    }

    /// The campaign whose settings the list leaves as they are.
    fn kept<'a>(&self, campaign: Option<&'a Campaign>) -> Option<&'a Campaign> {
        let is_whole = self.period.as_ref().is_some_and(|period| period.is_first);
        campaign.filter(|_| !is_whole)
    }

    /// The provider that sends the list, if one is configured.
    pub fn provider_in<'a>(&'a self, campaign: Option<&'a Campaign>) -> Option<&'a str> {
        let kept = self.kept(campaign);
        let of_campaign = kept.and_then(|campaign| campaign.provider.as_ref());
        let default = self.settings.default_provider.as_ref();
        self.provider.as_ref().or(of_campaign).or(default).map(String::as_str)
    }

    fn sender_in(&self, campaign: Option<&Campaign>) -> Option<String> {
        let kept = self.kept(campaign);
        let of_campaign = kept.and_then(|campaign| campaign.sender.as_ref());
        self.sender.as_ref().or(of_campaign).cloned()
    }

    /// The sending window after the import.
    pub fn window_in(&self, campaign: Option<&Campaign>) -> Result<Option<SendWindow>, Hinted> {
        let kept = self.kept(campaign);
        let current = kept.and_then(|campaign| campaign.window.clone());
        Ok(self.window.change(None)?.applied_to(current))
    }

    /// The budget of the campaign after the import.
    pub fn budget_in(&self, campaign: Option<&Campaign>) -> Option<Budget> {
        let current = campaign.and_then(|campaign| campaign.budget.as_ref());
        self.budget.as_ref().or(current).cloned()
    }

    /// Fails if its messages have no prices, or if more is spent already.
    async fn check_budget(
        &self,
        store: Option<&Store>,
        campaign: Option<&Campaign>,
    ) -> Result<(), OperationError> {
        if let Some(provider) = self.provider_in(campaign) {
            let budget = self.budget_in(campaign);
            check_priced(&self.settings, budget.as_ref(), provider)?;
        }
        if let (Some(budget), Some(store), Some(campaign)) = (&self.budget, store, campaign) {
            check_spent(store, campaign, budget).await?;
        }
        Ok(())
    }

    /// What a list costs, by what is known of its provider or route.
    pub fn prices(&self, plan: &Plan, campaign: Option<&Campaign>) -> ListPrices<'_> {
        let provider = self.provider_in(campaign);
        ListPrices::new(&self.settings.prices, provider, plan.route())
    }

    /// What the provider of a list requires of its rows; `None` if it is not configured.
    pub fn requirements(
        &self,
        campaign: Option<&Campaign>,
    ) -> Result<Option<ProviderRequirements>, Hinted> {
        let is_known = |name: &&str| self.settings.providers.iter().any(|known| known == name);
        self.provider_in(campaign)
            .filter(is_known)
            .map(|name| (self.settings.requirements)(name, self.sender_in(campaign)))
            .transpose()
    }

    /// The lanes of the senders that messages of any columns are divided among; `None`: they are not divided, or their
    /// columns decide who sends them.
    #[boxed]
    pub async fn division(
        &self,
        store: &Store,
        campaign: &Campaign,
    ) -> Result<Option<Division>, OperationError> {
        let requirements = self.requirements(Some(campaign))?;
        match requirements.and_then(|needed| needed.route) {
            Some(route) if !route.needs_columns() => opened(route, store, campaign).await,
            _ => Ok(None),
        }
    }

    /// Fails if the provider needs a sender and none is set: it would reject every message.
    pub fn check_sender(&self, campaign: Option<&Campaign>) -> Result<(), Hinted> {
        if self.sender_in(campaign).is_some() {
            return Ok(());
        }
        let requirements = self.requirements(campaign)?;
        let Some(needed) = requirements.filter(|needed| needed.needs_sender) else {
            return Ok(());
        };
        Err(sender_needed(&needed.provider))
    }

    /// When the messages are due and expire; an error if that is in the past.
    pub fn schedule(&self, now: Timestamp) -> Result<Schedule, Hinted> {
        let schedule = self.unchecked_schedule(now);
        if let Some(at) = schedule.due_at.filter(|at| now.since(*at) > MAX_LATE) {
            return Err(Hinted::new(
                format!("`--at` {} is in the past", local_and_utc(at)),
                "omit `--at` to send at once",
            ));
        }
        let Some(expires_at) = schedule.expires_at else {
            return Ok(schedule);
        };
        let problem = match schedule.due_at {
            _ if expires_at <= now => "is in the past".to_owned(),
            Some(due_at) if expires_at <= due_at => {
                format!("is not after `--at` {}", local_and_utc(due_at))
            }
            _ => return Ok(schedule),
        };
        let message = format!("`--expires` {} {problem}", local_and_utc(expires_at));
        Err(Hinted::new(message, "nothing would be sent"))
    }

    pub fn unchecked_schedule(&self, now: Timestamp) -> Schedule {
        let due_at = self.at.map(|time| time.after(now));
        let start = due_at.unwrap_or(now);
        Schedule { due_at, expires_at: self.expires.map(|time| time.after(start)) }
    }

    /// Fails if rejected rows could not be written, or if there would be more of them than allowed. `progress` gets the
    /// number of rows of a list.
    pub async fn check_rejects(
        &self,
        plans: &[Plan],
        progress: impl Fn(u64),
    ) -> Result<(), OperationError> {
        for plan in plans {
            plan.check_rejects()?;
        }
        let Some(limit) = self.max_rejects else {
            return Ok(());
        };
        for plan in plans {
            let mut seen = SeenKeys::default();
            let keep = KeptRows { max_samples: 0, rejects_file: false };
            let preview = plan.preview(&mut seen, keep, None, &|_| None, &progress);
            let summary = preview.await?.summary;
            if !limit.allows(summary.rejected, summary.rows) {
                let (file, rejected, rows) = (plan.file(), summary.rejected, summary.rows);
                let reasons = summary.frequent_reasons();
                let (kind, count) = reasons.first().copied().unwrap_or_default();
                let count = counted(count, "row");
                return Err(Hinted::new(
                    format!(
                        "`{file}`: {rejected} of {rows} rows would be rejected, and `max_rejects` is {limit}"
                    ),
                    format!(
                        "nothing was written; most frequent: {kind} ({count}); `--dry-run` shows some of them"
                    ),
                )
                .into());
            }
        }
        Ok(())
    }

    /// Fails if another campaign has imported one of the lists within a day, unless `confirm` says yes to a question.
    pub async fn check_again(
        &self,
        plans: &[Plan],
        store: &Store,
        confirm: impl Fn(&str) -> bool,
    ) -> Result<(), OperationError> {
        for plan in plans {
            let (name, now) = (self.campaign_of(plan), store.now().await?);
            let other =
                store.imports().imported_elsewhere(plan.hash(), name, now.minus(DAY)).await?;
            let Some((campaign, at)) = other else {
                continue;
            };
            let (file, ago) = (plan.file(), duration(now.since(at)));
            let again = format!("`{file}` was imported into campaign `{campaign}` {ago} ago");
            if !confirm(&format!("{again}. Import it into `{name}` too?")) {
                return Err(Hinted::new(
                    again,
                    "every recipient in it would get a message of this campaign too: add `--again` to do that",
                )
                .into());
            }
        }
        Ok(())
    }

    /// Creates the campaign `name`, or applies the options to an existing one. `tell` gets what is done to it.
    pub async fn open_campaign(
        &self,
        store: &Store,
        name: &str,
        unique: String,
        actor: &Actor,
        tell: impl Fn(&str),
    ) -> Result<Campaign, OperationError> {
        let window = self.window.change(None)?;
        let new = NewCampaign {
            name: name.to_owned(),
            settings: CampaignSettings {
                provider: self.provider.clone(),
                sender: self.sender.clone(),
                unique_by: Some(unique.clone()),
                window: window.clone().applied_to(None),
                budget: self.budget.clone(),
                rate: self.rate.clone().unwrap_or_default(),
                ..CampaignSettings::default()
            },
        };
        let mut campaign = store.open_campaign(&new, store.now().await?).await?;
        if campaign.state == CampaignStatus::Cancelled {
            match self.cancelled {
                Cancelled::Refuse => return Err(Refused::takes_no_messages(name).into()),
                Cancelled::Resume => {
                    change_state(store, &campaign, CampaignAction::Resume, actor).await?;
                }
            }
            tell(&format!("campaign `{name}` was cancelled: it is active again"));
            campaign.state = CampaignStatus::Active;
        }
        if campaign.unique_by.is_none() {
            let change = CampaignChange { unique_by: Some(unique), ..CampaignChange::default() };
            store.change_campaign(campaign.id, &change).await?;
        }
        let change = self.change_of(&campaign)?;
        if let SettingChange::Set(provider) = &change.provider {
            tell(&format!("campaign `{name}` is sent by `{provider}` from now on"));
        }
        change_settings(store, &self.settings, &campaign, &change, actor).await?;
        if let SettingChange::Set(budget) = &change.budget
            && !count_budget(store, &self.settings, &campaign, budget, actor).await?
        {
            tell(COUNTED_LATER);
        }
        Ok(store.campaign(name).await?.unwrap_or(campaign))
    }

    /// What the options change of an existing campaign.
    fn change_of(&self, campaign: &Campaign) -> Result<CampaignChange, Hinted> {
        let is_whole = self.kept(Some(campaign)).is_none();
        let changed = |asked: &Option<String>, current: &Option<String>| match asked {
            _ if asked == current => SettingChange::Keep,
            None if is_whole => SettingChange::Lift,
            asked => asked.clone().into(),
        };
        let window = self.window_in(Some(campaign))?;
        Ok(CampaignChange {
            provider: changed(&self.provider, &campaign.provider),
            sender: changed(&self.sender, &campaign.sender),
            window: if window == campaign.window {
                SettingChange::Keep
            } else {
                window.map_or(SettingChange::Lift, SettingChange::Set)
            },
            budget: match self.budget.clone() {
                asked if asked == campaign.budget => SettingChange::Keep,
                asked => asked.into(),
            },
            rate: self.rate.clone().filter(|rate| *rate != campaign.rate),
            ..CampaignChange::default()
        })
    }

    /// Imports a list into its campaign; imported again after an interruption, it adds what is missing. `progress` gets
    /// the number of rows and an estimate of all rows.
    pub async fn import(
        &self,
        plan: &Plan,
        schedule: Schedule,
        store: &Store,
        actor: &Actor,
        tell: impl Fn(&str),
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<(Imported, Campaign), OperationError> {
        let (name, unique) = (self.campaign_of(plan), plan.unique().to_string());
        self.check_name(store, name, plan.names_failed_messages()).await?;
        let campaign = self.open_campaign(store, name, unique, actor, tell).await?;
        let rules = &self.settings.approval;
        let gate = ListGate::of(store, rules, plan.identity(), &actor.who).await?;
        let prices = self.prices(plan, Some(&campaign));
        let division = match plan.route() {
            Some(route) => opened(route, store, &campaign).await?,
            None => None,
        };
        let target = Target {
            store,
            campaign: &campaign,
            schedule: &|_| schedule,
            division: division.as_ref(),
            posted_by: self.posted_by.as_deref(),
            approval: &gate.approval,
        };
        let price = |phone: &str| prices.of(phone);
        let imported = smsq_import::run(plan, target, &price, progress).await;
        let summary = imported.map_err(|error| match error {
            ImportError::Store(error) if error.kind() == StoreErrorKind::Cancelled => {
                Refused::takes_no_messages(name).into()
            }
            error => OperationError::from(error),
        })?;
        let currency = prices.currency();
        let facts = approval::facts(&summary, currency.as_deref());
        let waits = gate.decide(store, campaign.id, &facts).await?;
        let imported = Imported {
            file: plan.file().to_owned(),
            mode: store.mode(),
            campaign: campaign.name.clone(),
            currency,
            budget: campaign.budget.clone(),
            schedule,
            summary,
            waits,
            rejects_command: String::new(),
        };
        Ok((imported, campaign))
    }
}

/// Fails if the name of a campaign belongs to a schedule, which alone adds messages to it.
#[boxed]
pub async fn check_name(store: &Store, name: &str) -> Result<(), OperationError> {
    match store.schedules().owner_of(name).await? {
        Some(schedule) => Err(Refused::OfSchedule { campaign: name.to_owned(), schedule }.into()),
        None => Ok(()),
    }
}

/// The lanes of a route in a campaign, which are created where they are missing.
async fn opened(
    route: Arc<Route>,
    store: &Store,
    campaign: &Campaign,
) -> Result<Option<Division>, OperationError> {
    let route = informed(route, store).await?;
    let numbers = store.open_lanes(campaign.id, &route).await?;
    let off = store.senders_off().await?;
    Ok(Division::new(route, &numbers, &off))
}

/// The route, with what became of the messages of its providers if that decides which of them sends.
#[boxed]
pub async fn informed(route: Arc<Route>, store: &Store) -> Result<Arc<Route>, StoreError> {
    if !route.is_cheapest() {
        return Ok(route);
    }
    let since = store.now().await?.minus(COMPARED);
    let counts = store.report().delivered(since, route.longest_prefix()).await?;
    Ok(Arc::new(route.with_delivered(&counts)))
}

/// Fails if the messages expire before the window opens.
fn check_opens(window: &SendWindow, schedule: Schedule, now: Timestamp) -> Result<(), Hinted> {
    let span = window.for_all(schedule.due_at.unwrap_or(now));
    match (span, schedule.expires_at) {
        (Some(span), Some(expires_at)) if expires_at <= span.opens_at => Err(Hinted::new(
            format!(
                "nothing would be sent: the window {} opens at {}, and `--expires` is {}",
                window.describe(),
                window.format_local(span.opens_at),
                window.format_local(expires_at)
            ),
            "set a later `--expires`, or widen the window",
        )),
        _ => Ok(()),
    }
}

impl Imported {
    /// What `--format json` prints, and the result of an upload.
    pub fn json(&self) -> Value {
        let (summary, schedule) = (&self.summary, self.schedule);
        let cost = self.currency.as_ref().map(|currency| {
            json!({
                "amount": Prices::exact(summary.cost.amount),
                "currency": currency,
                "unpriced": summary.cost.unpriced,
            })
        });
        let by_reason: Value = summary
            .frequent_reasons()
            .into_iter()
            .map(|(reason, count)| json!({ "reason": reason, "count": count }))
            .collect();
        json!({
            "campaign": self.campaign,
            "practice": self.mode,
            "rows": summary.rows,
            "accepted": summary.accepted,
            "duplicates": summary.duplicates,
            "suppressed": summary.suppressed,
            "rejected": summary.rejected,
            "rejects_file": summary.rejects_file,
            "segments": summary.segments,
            "cost": cost,
            "due_at": schedule.due_at.map(|at| at.to_string()),
            "expires_at": schedule.expires_at.map(|at| at.to_string()),
            "by_reason": by_reason,
            "waits_for_approval": self.waits,
        })
    }
}
