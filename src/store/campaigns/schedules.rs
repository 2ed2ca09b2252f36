//! Schedules: campaigns that are imported from a query again and again, their leases and their runs.

use std::ops::Deref;
use std::time::Duration;

use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::sql_types::Integer;
use diesel::{AsChangeset, delete, update};
use smsq_message::sms::Timestamp;
use smsq_process::boxed;

use crate::audit::AuditEntry;
use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, transaction};
use crate::error::StoreError;
use crate::tables::column_types::stored_as_number;
use crate::tables::schema::{campaign, import, schedule, schedule_run};
use crate::{ScheduleStore, signed};

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = schedule)]
pub struct ScheduleRow {
    pub id: i64,
    #[diesel(embed)]
    pub settings: ScheduleSettings,
    pub is_paused: bool,
    /// The local time of the run that is next or in progress.
    pub fire: String,
    pub next_at: Timestamp,
    /// How often that run failed.
    pub attempts: i32,
    pub created_at: Timestamp,
    /// Who added it.
    pub created_by: String,
}

impl Deref for ScheduleRow {
    type Target = ScheduleSettings;

    fn deref(&self) -> &ScheduleSettings {
        &self.settings
    }
}

/// What people set of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = schedule)]
pub struct ScheduleSettings {
    pub name: String,
    pub cron: String,
    pub timezone: String,
    /// A URL without a password, or the name of a source.
    pub source: String,
    pub query: String,
    /// The columns of the key, as in `campaign.unique_by`.
    pub unique_by: String,
    pub per: String,
    /// The text and how messages are made, as JSON.
    pub options: String,
    pub catch_up: bool,
}

/// A run that is to be, and when it is due.
#[derive(Clone, Debug, PartialEq, Eq, Insertable, AsChangeset)]
#[diesel(table_name = schedule)]
pub struct NextRun {
    /// Local time.
    pub fire: String,
    pub period: String,
    pub next_at: Timestamp,
}

/// Fires that no process ran.
#[derive(Clone, Debug, PartialEq, Eq, Insertable)]
#[diesel(table_name = schedule_run)]
pub struct MissedRun {
    /// The last of them, in local time.
    pub fire: String,
    pub period: String,
    pub campaign: String,
    /// Why.
    pub error: String,
}

/// A run that begins.
#[derive(Clone, Debug, PartialEq, Eq, Insertable)]
#[diesel(table_name = schedule_run, treat_none_as_default_value = false)]
pub struct NewRun {
    pub schedule_id: i64,
    /// Local time.
    pub fire: String,
    pub period: String,
    pub campaign: String,
    /// Before this instant no purge forgets who got a message of the campaign.
    pub keys_until: Timestamp,
    /// Of a run that somebody asked for: it was interrupted if this is not renewed in time. `None`: the lease of the
    /// schedule says so.
    pub asked_until: Option<Timestamp>,
}

/// Why a run ended that somebody asked for, and whose process ended before.
pub const INTERRUPTED: &str = "the run was interrupted";

#[derive(Clone, Copy, Debug, PartialEq, Eq, AsExpression, FromSqlRow)]
#[diesel(sql_type = Integer)]
pub enum ScheduleRunState {
    InProgress = 0,
    Done = 1,
    Missed = 2,
}

impl ScheduleRunState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in progress",
            Self::Done => "done",
            Self::Missed => "missed",
        }
    }

    const fn of(code: i32) -> Self {
        match code {
            0 => Self::InProgress,
            1 => Self::Done,
            _ => Self::Missed,
        }
    }
}

stored_as_number!(ScheduleRunState);

/// What became of the rows of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = schedule_run)]
pub struct RunCounts {
    #[diesel(column_name = row_count)]
    pub rows: u64,
    pub accepted: u64,
    pub suppressed: u64,
    pub rejected: u64,
    /// Why rows were rejected.
    pub reasons: Option<String>,
}

impl RunCounts {
    /// Rows whose key has a message of the period already.
    pub fn duplicates(&self) -> u64 {
        self.rows.saturating_sub(self.accepted + self.suppressed + self.rejected)
    }
}

/// A run of a schedule, or fires that were missed.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = schedule_run)]
pub struct ScheduleRun {
    pub fire: String,
    pub period: String,
    pub campaign: String,
    pub state: ScheduleRunState,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    #[diesel(embed)]
    pub counts: RunCounts,
    /// Of the last attempt, or why it was missed.
    pub error: Option<String>,
    asked_until: Option<Timestamp>,
}

impl ScheduleRun {
    /// The run as it is at `now`: it was missed if its process ended before it.
    fn at(self, now: Timestamp) -> Self {
        let is_interrupted = self.state == ScheduleRunState::InProgress
            && self.asked_until.is_some_and(|until| until < now);
        if !is_interrupted {
            return self;
        }
        Self { state: ScheduleRunState::Missed, error: Some(INTERRUPTED.to_owned()), ..self }
    }
}

/// How long runs are kept.
const KEEP_RUNS: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Runs before this local time are not kept.
fn old_fire(now: Timestamp) -> String {
    now.minus(KEEP_RUNS).to_string()
}

/// Locks a schedule until the end of the transaction; returns its fire and the holder and end of its lease.
async fn lock(
    connection: &mut Connection,
    id: i64,
) -> QueryResult<Option<(String, i64, Timestamp)>> {
    let found: Vec<(String, i64, Timestamp)> = schedule::table
        .find(id)
        .select((schedule::fire, schedule::holder, schedule::leased_until))
        .locked()
        .load(connection)
        .await?;
    Ok(found.into_iter().next())
}

impl ScheduleStore<'_> {
    /// Adds a schedule; false if another one has its name.
    #[boxed]
    pub async fn add(
        &self,
        settings: &ScheduleSettings,
        next: &NextRun,
        entry: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let rows = [(
            settings.clone(),
            next.clone(),
            schedule::created_at.eq(entry.at),
            schedule::created_by.eq(&entry.who),
        )];
        transaction!(self, |connection| async {
            let added = NewRows::of(schedule::table, &rows).insert_new(connection).await?;
            if added > 0 {
                entry.insert(connection).await?;
            }
            QueryResult::Ok(added > 0)
        })
    }

    /// All schedules in the order of their names.
    #[boxed]
    pub async fn all(&self) -> Result<Vec<ScheduleRow>, StoreError> {
        self.read(schedule::table.order(schedule::name).select(ScheduleRow::as_select())).await
    }

    #[boxed]
    pub async fn named(&self, name: &str) -> Result<Option<ScheduleRow>, StoreError> {
        self.read_first(
            schedule::table.filter(schedule::name.eq(name)).select(ScheduleRow::as_select()),
        )
        .optional()
        .await
    }

    /// The schedule to which the name of a campaign belongs: `NAME/…` is of schedule `NAME`.
    #[boxed]
    pub async fn owner_of(&self, campaign: &str) -> Result<Option<String>, StoreError> {
        let Some((name, _)) = campaign.split_once('/') else {
            return Ok(None);
        };
        let schedule = self.named(name).await?;
        Ok(schedule.map(|schedule| schedule.settings.name))
    }

    /// Whether a run of the schedule, or an attempt at one, has opened the campaign: it has imported rows into it. Others
    /// than the schedule only post messages to a campaign of that name.
    #[boxed]
    pub async fn has_opened(&self, schedule_id: i64, campaign: &str) -> Result<bool, StoreError> {
        let runs: Vec<(Timestamp, i64, i64)> = self
            .read(
                schedule_run::table
                    .filter(schedule_run::schedule_id.eq(schedule_id))
                    .filter(schedule_run::campaign.eq(campaign))
                    .order(schedule_run::started_at)
                    .select((
                        schedule_run::started_at,
                        schedule_run::row_count,
                        schedule_run::accepted,
                    )),
            )
            .await?;
        if runs.iter().any(|(_, rows, accepted)| rows + accepted > 0) {
            return Ok(true);
        }
        let Some((first, ..)) = runs.first() else {
            return Ok(false);
        };
        let imports: i64 = self
            .read_one(
                import::table
                    .inner_join(campaign::table.on(campaign::id.eq(import::campaign_id)))
                    .filter(campaign::name.eq(campaign))
                    .filter(import::posted_by.is_null())
                    .filter(import::created_at.ge(*first))
                    .count(),
            )
            .await?;
        Ok(imports > 0)
    }

    /// The last `most` runs, the newest first.
    #[boxed]
    pub async fn runs(
        &self,
        id: i64,
        most: i64,
        now: Timestamp,
    ) -> Result<Vec<ScheduleRun>, StoreError> {
        let runs: Vec<ScheduleRun> = self
            .read(
                schedule_run::table
                    .filter(schedule_run::schedule_id.eq(id))
                    .order((schedule_run::fire.desc(), schedule_run::id.desc()))
                    .limit(most)
                    .select(ScheduleRun::as_select()),
            )
            .await?;
        Ok(runs.into_iter().map(|run| run.at(now)).collect())
    }

    /// Pauses a schedule, or with its next run resumes it; false if it is in that state already or was removed.
    #[boxed]
    pub async fn set_paused(
        &self,
        id: i64,
        next: Option<&NextRun>,
        entry: &AuditEntry,
    ) -> Result<bool, StoreError> {
        transaction!(self, |connection| async {
            let is_paused = next.is_none();
            let row = schedule::table.find(id).filter(schedule::is_paused.ne(is_paused));
            let changed = update(row)
                .set((
                    schedule::is_paused.eq(is_paused),
                    next.map(|next| (next, schedule::attempts.eq(0))),
                ))
                .execute(connection)
                .await?;
            if changed > 0 {
                entry.insert(connection).await?;
            }
            QueryResult::Ok(changed > 0)
        })
    }

    /// Removes a schedule; its campaigns stay. False if it was removed already. Its runs are forgotten when no schedule of
    /// the same name could repeat their period.
    #[boxed]
    pub async fn remove(&self, id: i64, entry: &AuditEntry) -> Result<bool, StoreError> {
        transaction!(self, |connection| async {
            let removed = delete(schedule::table.find(id)).execute(connection).await?;
            if removed > 0 {
                let present: Vec<i64> =
                    schedule::table.select(schedule::id).load(connection).await?;
                delete(
                    schedule_run::table
                        .filter(schedule_run::schedule_id.ne_all(&present))
                        .filter(schedule_run::keys_until.le(entry.at)),
                )
                .execute(connection)
                .await?;
                entry.insert(connection).await?;
            }
            QueryResult::Ok(removed > 0)
        })
    }

    /// Leases one schedule that is due to a process until an instant. `None`: none is due that no other process has.
    #[boxed]
    pub async fn lease_due(
        &self,
        holder: i64,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<ScheduleRow>, StoreError> {
        let due: Vec<i64> = self
            .read(
                schedule::table
                    .filter(schedule::is_paused.eq(false))
                    .filter(schedule::next_at.le(now))
                    .filter(schedule::leased_until.lt(now))
                    .order((schedule::next_at, schedule::id))
                    .select(schedule::id),
            )
            .await?;
        for id in due {
            let leased = transaction!(self, |connection| async {
                if lock(connection, id)
                    .await?
                    .is_none_or(|(_, _, leased_until)| leased_until >= now)
                {
                    return QueryResult::Ok(None);
                }
                let row = schedule::table
                    .find(id)
                    .filter(schedule::is_paused.eq(false))
                    .filter(schedule::next_at.le(now));
                let leased = update(row)
                    .set((schedule::holder.eq(holder), schedule::leased_until.eq(until)))
                    .execute(connection)
                    .await?;
                if leased == 0 {
                    return Ok(None);
                }
                schedule::table
                    .find(id)
                    .select(ScheduleRow::as_select())
                    .first(connection)
                    .optional()
                    .await
            })?;
            if leased.is_some() {
                return Ok(leased);
            }
        }
        Ok(None)
    }

    /// Renews a lease; false if another process has it now.
    #[boxed]
    pub async fn renew(&self, id: i64, holder: i64, until: Timestamp) -> Result<bool, StoreError> {
        let renewed = self
            .write(
                update(
                    schedule::table
                        .find(id)
                        .filter(schedule::holder.eq(holder))
                        .filter(schedule::leased_until.gt(0)),
                )
                .set(schedule::leased_until.eq(until)),
            )
            .await?;
        Ok(renewed > 0)
    }

    /// Says that a run which somebody asked for is in progress, and when it is to be said again.
    #[boxed]
    pub async fn renew_run(&self, run: &NewRun, until: Timestamp) -> Result<(), StoreError> {
        self.write(
            update(
                schedule_run::table
                    .filter(schedule_run::schedule_id.eq(run.schedule_id))
                    .filter(schedule_run::fire.eq(&run.fire)),
            )
            .set(schedule_run::asked_until.eq(until)),
        )
        .await
        .map(drop)
    }

    /// Ends the leases of a process, so that another one continues its runs.
    #[boxed]
    pub async fn release_all(&self, holder: i64) -> Result<(), StoreError> {
        self.write(
            update(schedule::table.filter(schedule::holder.eq(holder)))
                .set(schedule::leased_until.eq(0)),
        )
        .await
        .map(drop)
    }

    /// Begins a run, or another attempt at one. With `after`, the fire that its schedule had and the fires that were missed
    /// since, it becomes the current run. Returns false if the schedule has another one by now, or was removed.
    #[boxed]
    pub async fn begin_run(
        &self,
        run: &NewRun,
        after: Option<(&str, Option<&MissedRun>)>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let rows = [(
            run.clone(),
            schedule_run::state.eq(ScheduleRunState::InProgress),
            schedule_run::started_at.eq(now),
        )];
        transaction!(self, |connection| async {
            let Some((fire, ..)) = lock(connection, run.schedule_id).await? else {
                return QueryResult::Ok(false);
            };
            if let Some((expected, missed)) = after {
                if fire != expected {
                    return Ok(false);
                }
                if let Some(missed) = missed {
                    record_missed(connection, run.schedule_id, missed, now).await?;
                }
                end_earlier(connection, run.schedule_id, &run.fire, now).await?;
                update(schedule::table.find(run.schedule_id))
                    .set((schedule::fire.eq(&run.fire), schedule::period.eq(&run.period)))
                    .execute(connection)
                    .await?;
            }
            NewRows::of(schedule_run::table, &rows).insert_new(connection).await?;
            Ok(true)
        })
    }

    /// Ends a run. `next` is the run after it; `None`: it was asked for, and changes nothing about the next one. Returns
    /// whether the run was still in progress.
    #[boxed]
    pub async fn finish_run(
        &self,
        run: &NewRun,
        outcome: Result<&RunCounts, &str>,
        next: Option<&NextRun>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        transaction!(self, |connection| async {
            let Some((fire, ..)) = lock(connection, run.schedule_id).await? else {
                return QueryResult::Ok(false);
            };
            if let Some(next) = next {
                if fire != run.fire {
                    return Ok(false);
                }
                update(schedule::table.find(run.schedule_id))
                    .set((next, schedule::attempts.eq(0), schedule::leased_until.eq(0)))
                    .execute(connection)
                    .await?;
            }
            let (state, counts, error) = match outcome {
                Ok(counts) => (ScheduleRunState::Done, counts.clone(), None),
                Err(error) => (ScheduleRunState::Missed, RunCounts::default(), Some(error)),
            };
            let started_at: Option<Timestamp> = schedule_run::table
                .filter(schedule_run::schedule_id.eq(run.schedule_id))
                .filter(schedule_run::fire.eq(&run.fire))
                .select(schedule_run::started_at)
                .first(connection)
                .optional()
                .await?;
            let accepted = accepted(connection, &run.campaign, started_at.unwrap_or(now)).await?;
            let row = schedule_run::table
                .filter(schedule_run::schedule_id.eq(run.schedule_id))
                .filter(schedule_run::fire.eq(&run.fire))
                .filter(schedule_run::state.ne(ScheduleRunState::Done));
            let finished = update(row)
                .set((
                    schedule_run::state.eq(state),
                    schedule_run::finished_at.eq(now),
                    schedule_run::row_count.eq(signed(counts.rows)),
                    schedule_run::accepted.eq(accepted),
                    schedule_run::suppressed.eq(signed(counts.suppressed)),
                    schedule_run::rejected.eq(signed(counts.rejected)),
                    schedule_run::reasons.eq(counts.reasons),
                    schedule_run::error.eq(error),
                ))
                .execute(connection)
                .await?;
            let old = old_fire(now);
            delete(
                schedule_run::table
                    .filter(schedule_run::schedule_id.eq(run.schedule_id))
                    .filter(schedule_run::fire.lt(&old))
                    .filter(schedule_run::keys_until.le(now)),
            )
            .execute(connection)
            .await?;
            Ok(finished > 0)
        })
    }

    /// Records that an attempt at a run failed; another one is due at `again_at`.
    #[boxed]
    pub async fn postpone_run(
        &self,
        run: &NewRun,
        error: &str,
        again_at: Timestamp,
    ) -> Result<(), StoreError> {
        transaction!(self, |connection| async {
            let row = schedule::table.find(run.schedule_id).filter(schedule::fire.eq(&run.fire));
            update(row)
                .set((
                    schedule::next_at.eq(again_at),
                    schedule::attempts.eq(schedule::attempts + 1),
                    schedule::leased_until.eq(0),
                ))
                .execute(connection)
                .await?;
            let row = schedule_run::table
                .filter(schedule_run::schedule_id.eq(run.schedule_id))
                .filter(schedule_run::fire.eq(&run.fire));
            update(row).set(schedule_run::error.eq(error)).execute(connection).await?;
            QueryResult::Ok(())
        })
    }
}

/// Ends the runs before a fire that were not finished.
async fn end_earlier(
    connection: &mut Connection,
    schedule_id: i64,
    fire: &str,
    now: Timestamp,
) -> QueryResult<()> {
    let unfinished: Vec<(i64, String, Timestamp)> = {
        schedule_run::table
            .filter(schedule_run::schedule_id.eq(schedule_id))
            .filter(schedule_run::fire.lt(fire))
            .filter(schedule_run::state.eq(ScheduleRunState::InProgress))
            .select((schedule_run::id, schedule_run::campaign, schedule_run::started_at))
            .load(connection)
    }
    .await?;
    for (id, campaign, started_at) in unfinished {
        let accepted = accepted(connection, &campaign, started_at).await?;
        update(schedule_run::table.find(id))
            .set((
                schedule_run::state.eq(ScheduleRunState::Missed),
                schedule_run::finished_at.eq(now),
                schedule_run::accepted.eq(accepted),
            ))
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// Records fires that no process ran.
async fn record_missed(
    connection: &mut Connection,
    schedule_id: i64,
    missed: &MissedRun,
    now: Timestamp,
) -> QueryResult<()> {
    let rows = [(
        schedule_run::schedule_id.eq(schedule_id),
        missed.clone(),
        schedule_run::keys_until.eq(0),
        schedule_run::state.eq(ScheduleRunState::Missed),
        schedule_run::started_at.eq(now),
        schedule_run::finished_at.eq(now),
    )];
    NewRows::of(schedule_run::table, &rows).insert_new(connection).await?;
    Ok(())
}

/// How many messages the attempts at a run have queued, also those that were interrupted.
async fn accepted(
    connection: &mut Connection,
    campaign: &str,
    started_at: Timestamp,
) -> QueryResult<i64> {
    let imports: Vec<i64> = import::table
        .inner_join(campaign::table.on(campaign::id.eq(import::campaign_id)))
        .filter(campaign::name.eq(campaign))
        .filter(import::created_at.ge(started_at))
        .select(import::accepted)
        .load(connection)
        .await?;
    Ok(imports.iter().sum())
}

/// Whether a purge must not forget who got a message of a campaign: another run of its period is possible.
pub(crate) async fn keeps_keys(
    connection: &mut Connection,
    campaign_id: i64,
    now: Timestamp,
) -> QueryResult<bool> {
    let of_campaign = || {
        schedule_run::table
            .inner_join(campaign::table.on(campaign::name.eq(schedule_run::campaign)))
            .filter(campaign::id.eq(campaign_id))
    };
    let unended: Vec<i64> = of_campaign()
        .filter(schedule_run::keys_until.gt(now))
        .limit(1)
        .select(schedule_run::id)
        .load(connection)
        .await?;
    if !unended.is_empty() {
        return Ok(true);
    }
    let open: Vec<i64> = of_campaign()
        .inner_join(schedule::table.on(schedule::id.eq(schedule_run::schedule_id)))
        .filter(schedule_run::period.ge(schedule::period))
        .limit(1)
        .select(schedule_run::id)
        .load(connection)
        .await?;
    Ok(!open.is_empty())
}
