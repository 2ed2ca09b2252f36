//! Campaigns: named sets of messages with a provider, a sender, a rate limit and a window.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Deref;

use smsq_message::budget::Budget;
use smsq_message::rate::Rates;
use smsq_message::sms::Timestamp;
use smsq_message::window::SendWindow;
use smsq_process::boxed;

use super::approvals::{self, ApprovalGate};
use crate::audit::AuditEntry;
use crate::connection::prelude::*;
use crate::connection::{
    Connection, DatabaseError, NewRows, QueryResult, ROWS, in_list, querying, transaction,
};
use crate::error::{StoreError, StoreErrorKind};
use crate::limits::budget_count;
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::schema::campaign;
use crate::{Store, positive};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaign {
    pub id: i64,
    pub name: String,
    pub settings: CampaignSettings,
    pub state: CampaignStatus,
    /// Why it is paused or stopped.
    pub state_reason: Option<String>,
    pub approval: ApprovalGate,
    /// What waits for approval.
    pub approval_reason: Option<String>,
    pub created_at: Timestamp,
}

impl Campaign {
    /// Whether it is active, and some or all of its messages wait for approval.
    pub fn has_waiting(&self) -> bool {
        self.state == CampaignStatus::Unapproved
    }

    /// Whether workers send its messages, except those that wait for approval.
    pub fn may_send(&self) -> bool {
        match self.state {
            CampaignStatus::Active => true,
            CampaignStatus::Unapproved => self.approval != ApprovalGate::AllWait,
            CampaignStatus::Paused | CampaignStatus::Stopped | CampaignStatus::Cancelled => false,
        }
    }
}

impl Deref for Campaign {
    type Target = CampaignSettings;

    fn deref(&self) -> &CampaignSettings {
        &self.settings
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewCampaign {
    pub name: String,
    pub settings: CampaignSettings,
}

/// What people set of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CampaignSettings {
    /// `None`: the configuration's default.
    pub provider: Option<String>,
    pub sender: Option<String>,
    /// Its own limit, in addition to the provider's. Empty also if the stored one cannot be read: it is paused then.
    pub rate: Rates,
    /// Higher goes first.
    pub priority: i32,
    /// The parts of its dedupe keys: `phone`, `none`, or columns separated by commas.
    pub unique_by: Option<String>,
    /// When its messages may start; `None`: at any time.
    pub window: Option<SendWindow>,
    /// The most that its messages may cost.
    pub budget: Option<Budget>,
}

impl CampaignSettings {
    #[must_use]
    pub fn with(self, change: CampaignChange) -> Self {
        Self {
            provider: change.provider.applied_to(self.provider),
            sender: change.sender.applied_to(self.sender),
            rate: change.rate.unwrap_or(self.rate),
            priority: change.priority.unwrap_or(self.priority),
            unique_by: change.unique_by.or(self.unique_by),
            window: change.window.applied_to(self.window),
            budget: change.budget.applied_to(self.budget),
        }
    }
}

/// Changes of a campaign; `None` changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CampaignChange {
    pub provider: SettingChange<String>,
    pub sender: SettingChange<String>,
    pub rate: Option<Rates>,
    pub priority: Option<i32>,
    pub unique_by: Option<String>,
    pub window: WindowChange,
    pub budget: BudgetChange,
}

impl CampaignChange {
    /// Whether it changes what is looked at when messages are approved.
    pub(super) fn needs_approval(&self) -> bool {
        let Self {
            provider,
            sender,
            rate,
            // The order of campaigns and the keys of later lists change no message.
            priority: _,
            unique_by: _,
            window,
            budget,
        } = self;
        let is_sent_otherwise = *provider != SettingChange::Keep || *sender != SettingChange::Keep;
        let is_limited = *window != SettingChange::Keep || *budget != SettingChange::Keep;
        rate.is_some() || is_sent_otherwise || is_limited
    }
}

/// A change of a setting that a campaign may lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SettingChange<T> {
    #[default]
    Keep,
    Lift,
    Set(T),
}

pub type BudgetChange = SettingChange<Budget>;
pub type WindowChange = SettingChange<SendWindow>;

impl<T> SettingChange<T> {
    /// The setting of a campaign that had `setting`.
    #[must_use]
    pub fn applied_to(self, setting: Option<T>) -> Option<T> {
        match self {
            Self::Keep => setting,
            Self::Lift => None,
            Self::Set(setting) => Some(setting),
        }
    }

    /// What `column` makes of the new setting; `None`: it stays as it is.
    fn map<'a, C>(&'a self, column: impl FnOnce(Option<&'a T>) -> C) -> Option<C> {
        match self {
            Self::Keep => None,
            Self::Lift => Some(column(None)),
            Self::Set(setting) => Some(column(Some(setting))),
        }
    }
}

impl<T> From<Option<T>> for SettingChange<T> {
    /// `None` keeps the setting.
    fn from(setting: Option<T>) -> Self {
        setting.map_or(Self::Keep, Self::Set)
    }
}

/// The columns of the settings of a campaign.
#[derive(Clone, Queryable, Selectable, Insertable)]
#[diesel(table_name = campaign, treat_none_as_default_value = false)]
pub(crate) struct SettingsColumns {
    provider: Option<String>,
    sender: Option<String>,
    rate: String,
    priority: i32,
    unique_by: Option<String>,
    send_window: String,
    budget: String,
}

impl From<&CampaignSettings> for SettingsColumns {
    fn from(settings: &CampaignSettings) -> Self {
        Self {
            provider: settings.provider.clone(),
            sender: settings.sender.clone(),
            rate: settings.rate.to_string(),
            priority: settings.priority,
            unique_by: settings.unique_by.clone(),
            send_window: stored(settings.window.as_ref()),
            budget: stored(settings.budget.as_ref()),
        }
    }
}

impl SettingsColumns {
    /// Whether a campaign without messages is as if it had never been: the next import or message of its name would be
    /// sent in the same way.
    pub(crate) fn are_default(&self) -> bool {
        let Self {
            provider,
            sender,
            rate,
            priority,
            // Its keys are gone with its messages, and the next import decides again what they are.
            unique_by: _,
            send_window,
            budget,
        } = self;
        let is_chosen = provider.is_some() || sender.is_some() || *priority != 0;
        let is_limited = !rate.is_empty() || !send_window.is_empty() || !budget.is_empty();
        !is_chosen && !is_limited
    }

    /// What is looked at when messages are approved, as in [`CampaignChange::needs_approval`].
    pub(super) fn looked_at(&self) -> impl Debug + use<> {
        let Self { provider, sender, rate, priority: _, unique_by: _, send_window, budget } =
            self.clone();
        [provider, sender, Some(rate), Some(send_window), Some(budget)]
    }

    /// The settings, and why one of them cannot be read.
    fn read(self) -> (CampaignSettings, Option<String>) {
        let rate = self.rate.parse::<Rates>().map_err(|error| error.to_string());
        let window = Some(self.send_window)
            .filter(|text| !text.is_empty())
            .map(|text| text.parse::<SendWindow>())
            .transpose();
        let budget = Budget::stored(&self.budget).map_err(|error| error.to_string());
        let errors = [rate.as_ref().err(), window.as_ref().err(), budget.as_ref().err()];
        let error = errors.into_iter().flatten().next().cloned();
        let settings = CampaignSettings {
            provider: self.provider,
            sender: self.sender,
            rate: rate.unwrap_or_default(),
            priority: self.priority,
            unique_by: self.unique_by,
            window: window.unwrap_or_default(),
            budget: budget.unwrap_or_default(),
        };
        (settings, error)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = campaign)]
struct CampaignRow {
    id: i64,
    name: String,
    #[diesel(embed)]
    settings: SettingsColumns,
    state: CampaignStatus,
    state_reason: Option<String>,
    approval: ApprovalGate,
    approval_reason: Option<String>,
    created_at: Timestamp,
}

impl From<CampaignRow> for Campaign {
    fn from(row: CampaignRow) -> Self {
        let (mut state, mut state_reason) = (row.state, row.state_reason);
        // With an invalid limit, window or budget nothing is sent until a valid one is set.
        let (settings, error) = row.settings.read();
        if let (Some(error), CampaignStatus::Active) = (error, state) {
            state = CampaignStatus::Paused;
            state_reason = Some(error);
        }
        if row.approval.has_waiting() && state == CampaignStatus::Active {
            state = CampaignStatus::Unapproved;
            state_reason.clone_from(&row.approval_reason);
        }
        Self {
            id: row.id,
            name: row.name,
            settings,
            state,
            state_reason,
            approval: row.approval,
            approval_reason: row.approval_reason,
            created_at: row.created_at,
        }
    }
}

/// The campaigns with these ids, as far as they exist.
pub(crate) async fn by_id(
    connection: &mut Connection,
    ids: &[i64],
) -> QueryResult<BTreeMap<i64, Campaign>> {
    let mut campaigns = BTreeMap::new();
    for ids in ids.chunks(ROWS) {
        let ids = in_list(ids.iter().copied());
        let rows: Vec<CampaignRow> = campaign::table
            .filter(campaign::id.eq_any(&ids))
            .select(CampaignRow::as_select())
            .kept()
            .load(connection)
            .await?;
        campaigns.extend(rows.into_iter().map(|row| (row.id, Campaign::from(row))));
    }
    Ok(campaigns)
}

/// The ids of all campaigns, oldest first.
pub(super) async fn ids(connection: &mut Connection) -> QueryResult<Vec<i64>> {
    campaign::table.order(campaign::id).select(campaign::id).load(connection).await
}

/// The states of the campaigns that exist, and whether new messages need approval, locked until the transaction ends, so that none is cancelled or removed
/// while messages are added to it.
pub(crate) async fn lock_states(
    connection: &mut Connection,
    ids: &BTreeSet<i64>,
) -> QueryResult<BTreeMap<i64, (CampaignStatus, ApprovalGate)>> {
    let ids: Vec<i64> = ids.iter().copied().collect();
    let mut states = BTreeMap::new();
    for ids in ids.chunks(ROWS) {
        let found: Vec<(i64, (CampaignStatus, ApprovalGate))> = campaign::table
            .filter(campaign::id.eq_any(ids))
            .order(campaign::id)
            .select((campaign::id, (campaign::state, campaign::approval)))
            .locked()
            .load(connection)
            .await?;
        states.extend(found);
    }
    Ok(states)
}

/// The value of column `send_window` or `budget`.
fn stored(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

impl Store {
    /// All campaigns, oldest first.
    #[boxed]
    pub async fn campaigns(&self) -> Result<Vec<Campaign>, StoreError> {
        let rows: Vec<CampaignRow> =
            self.read(campaign::table.order(campaign::id).select(CampaignRow::as_select())).await?;
        Ok(rows.into_iter().map(Campaign::from).collect())
    }

    /// The ids of all campaigns, oldest first.
    pub(crate) async fn campaign_ids(&self) -> Result<Vec<i64>, StoreError> {
        querying!(self, Read, |connection| ids(connection))
    }

    /// The names of campaigns, by id.
    #[boxed]
    pub async fn campaign_names(&self, ids: &[i64]) -> Result<BTreeMap<i64, String>, StoreError> {
        let mut names = BTreeMap::new();
        for ids in ids.chunks(ROWS) {
            let found: Vec<(i64, String)> = self
                .read(
                    campaign::table
                        .filter(campaign::id.eq_any(ids))
                        .select((campaign::id, campaign::name)),
                )
                .await?;
            names.extend(found);
        }
        Ok(names)
    }

    #[boxed]
    pub async fn campaign(&self, name: &str) -> Result<Option<Campaign>, StoreError> {
        let row: Option<CampaignRow> = self
            .read_first(
                campaign::table.filter(campaign::name.eq(name)).select(CampaignRow::as_select()),
            )
            .optional()
            .await?;
        Ok(row.map(Campaign::from))
    }

    #[boxed]
    pub async fn count_campaigns(&self) -> Result<u64, StoreError> {
        let count: i64 = self.read_one(campaign::table.count()).await?;
        Ok(positive(count))
    }

    /// Creates the campaign, or returns the one that has its name, unchanged.
    #[boxed]
    pub async fn open_campaign(
        &self,
        new: &NewCampaign,
        now: Timestamp,
    ) -> Result<Campaign, StoreError> {
        if let Some(campaign) = self.campaign(&new.name).await? {
            return Ok(campaign);
        }
        let rows = [(
            campaign::name.eq(&new.name),
            SettingsColumns::from(&new.settings),
            campaign::created_at.eq(now),
        )];
        let created: Result<(), StoreError> = transaction!(self, |connection| async {
            NewRows::of(campaign::table, &rows).insert(connection).await?;
            if let Some(budget) = &new.settings.budget {
                let id = connection.last_id().await?;
                budget_count::open_counted(connection, id, budget).await?;
            }
            QueryResult::Ok(())
        });
        let campaign = self.campaign(&new.name).await?;
        match (created, campaign) {
            // Another import may have created it at the same time.
            (_, Some(campaign)) => Ok(campaign),
            (Err(error), None) => Err(error),
            (Ok(()), None) => {
                let reason = "the campaign was removed meanwhile: run the same command again";
                Err(StoreError::new(self.location(), StoreErrorKind::Other, reason))
            }
        }
    }

    #[boxed]
    pub async fn change_campaign(
        &self,
        id: i64,
        change: &CampaignChange,
    ) -> Result<(), StoreError> {
        if *change == CampaignChange::default() {
            return Ok(());
        }
        let all = &CampaignStatus::ALL;
        transaction!(self, |connection| async {
            update(connection, id, all, change).await.map(drop)
        })
    }

    /// Changes the campaign if it is in one of the states `from`, and records it; returns whether it was. Its messages
    /// wait for approval again if they were approved with other settings.
    #[boxed]
    pub async fn change_campaign_in(
        &self,
        id: i64,
        from: &[CampaignStatus],
        change: &CampaignChange,
        needed: Option<&str>,
        entry: &AuditEntry,
    ) -> Result<bool, StoreError> {
        transaction!(self, |connection| async {
            let changed = update(connection, id, from, change).await? > 0;
            if changed {
                if change.needs_approval() {
                    approvals::hold_settings(connection, id, &entry.who, needed).await?;
                }
                entry.insert(connection).await?;
            }
            Ok(changed)
        })
    }

    /// Changes the state of the campaign if it is one of `from`, and records it; returns whether it was.
    #[boxed]
    pub async fn change_campaign_state(
        &self,
        id: i64,
        from: &[CampaignStatus],
        to: CampaignStatus,
        reason: Option<&str>,
        entry: Option<&AuditEntry>,
    ) -> Result<bool, StoreError> {
        transaction!(self, |connection| async {
            let changed = diesel::update(
                campaign::table.find(id).filter(campaign::state.ne_all(others(from))),
            )
            .set((campaign::state.eq(to), campaign::state_reason.eq(reason)))
            .execute(connection)
            .await?;
            if let (Some(entry), true) = (entry, changed > 0) {
                entry.insert(connection).await?;
            }
            Ok(changed > 0)
        })
    }
}

/// The states that are not in `states`. The code of an unknown one, which counts as paused, is never among theirs.
fn others(states: &[CampaignStatus]) -> Vec<CampaignStatus> {
    CampaignStatus::ALL.into_iter().filter(|state| !states.contains(state)).collect()
}

/// Marks the counter of a campaign that gets a budget in another currency, or its first one. Returns the budget that
/// must not change meanwhile, if the campaign is counted already.
async fn open_budget(
    connection: &mut Connection,
    id: i64,
    change: &BudgetChange,
) -> QueryResult<Option<String>> {
    let BudgetChange::Set(budget) = change else {
        return Ok(None);
    };
    let stored: Vec<String> =
        campaign::table.find(id).select(campaign::budget).load(connection).await?;
    let stored = stored.into_iter().next().unwrap_or_default();
    if !budget_count::is_needed(&stored, budget) {
        return Ok(Some(stored));
    }
    // Before the campaign, as commits of workers lock them.
    budget_count::open(connection, id, budget, &stored).await?;
    Ok(None)
}

/// Changes a campaign in one of the states `from`; returns 1, or 0 if it is in another state.
async fn update(
    connection: &mut Connection,
    id: i64,
    from: &[CampaignStatus],
    change: &CampaignChange,
) -> QueryResult<usize> {
    let CampaignChange { provider, sender, rate, priority, unique_by, window, budget } = change;
    let window = window.map(stored);
    let rate = rate.as_ref().map(ToString::to_string);
    let unchanged = open_budget(connection, id, budget).await?;
    let budget = budget.map(stored);
    if let Some(unchanged) = unchanged {
        let present: Vec<String> = campaign::table
            .filter(campaign::id.eq(id))
            .select(campaign::budget)
            .locked()
            .load(connection)
            .await?;
        if present.first() != Some(&unchanged) {
            return Err(DatabaseError::conflict("the budget was changed meanwhile"));
        }
    }
    diesel::update(campaign::table.find(id).filter(campaign::state.ne_all(others(from))))
        .set((
            provider.map(|new| campaign::provider.eq(new)),
            sender.map(|new| campaign::sender.eq(new)),
            rate.as_ref().map(|new| campaign::rate.eq(new)),
            priority.map(|new| campaign::priority.eq(new)),
            unique_by.as_ref().map(|new| campaign::unique_by.eq(new)),
            window.as_ref().map(|new| campaign::send_window.eq(new)),
            budget.as_ref().map(|new| campaign::budget.eq(new)),
        ))
        .execute(connection)
        .await
}
