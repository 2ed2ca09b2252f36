//! Hooks: which process delivers their events, what waits, and what became of events.

use diesel::dsl::{count_star, max, min};
use diesel::{delete, update};
use smsq_message::event::EventKind;
use smsq_message::sms::Timestamp;
use smsq_process::boxed;

use super::outbox;
use crate::audit::in_chunks;
use crate::connection::prelude::*;
use crate::connection::{Chunk, Connection, NewRows, QueryResult, transaction};
use crate::error::StoreError;
use crate::tables::schema::{hook, hook_event};
use crate::{CHUNK, HookStore, positive};
use outbox::NewEvent;

/// The states of an event in column `state`.
const WAITING: i32 = 0;
const DELIVERED: i32 = 1;
const GIVEN_UP: i32 = 2;

/// What is known of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = hook)]
pub struct HookRow {
    pub name: String,
    /// Since when nothing is delivered; `None`: it is on.
    pub off_at: Option<Timestamp>,
    pub off_reason: Option<String>,
    /// The first failure since the last success.
    pub failing_since: Option<Timestamp>,
    pub last_error: Option<String>,
    delivered: i64,
    skipped: i64,
}

impl HookRow {
    /// A hook that had no event yet.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Events that were delivered, each as often as it was.
    pub fn delivered(&self) -> u64 {
        positive(self.delivered)
    }

    /// Events that were not stored, or deleted before they were delivered.
    pub fn skipped(&self) -> u64 {
        positive(self.skipped)
    }
}

/// An event that is to be delivered.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = hook_event)]
pub struct Outgoing {
    pub id: i64,
    pub event_id: String,
    pub kind: String,
    pub body: String,
    attempts: i32,
}

impl Outgoing {
    /// How often it was tried before.
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.attempts).unwrap_or(0)
    }
}

/// What became of an attempt to deliver an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    Done,
    /// It is tried again then.
    Again {
        at: Timestamp,
        error: String,
    },
    GivenUp {
        error: String,
    },
}

/// The events of a hook that are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxCounts {
    pub waiting: u64,
    /// When the oldest event that waits happened.
    pub oldest: Option<Timestamp>,
    pub delivered: u64,
    pub given_up: u64,
}

impl HookStore<'_> {
    /// What is known of all hooks that had events, by name.
    #[boxed]
    pub async fn rows(&self) -> Result<Vec<HookRow>, StoreError> {
        self.read(hook::table.order(hook::name).select(HookRow::as_select())).await
    }

    /// What is known of a hook, if it had events.
    #[boxed]
    pub async fn row(&self, name: &str) -> Result<Option<HookRow>, StoreError> {
        self.read_first(hook::table.find(name).select(HookRow::as_select())).optional().await
    }

    /// How many events of a hook wait.
    #[boxed]
    pub async fn waiting(&self, name: &str) -> Result<u64, StoreError> {
        let waiting: i64 = self
            .read_one(
                hook_event::table
                    .filter(hook_event::hook.eq(name))
                    .filter(hook_event::state.eq(WAITING))
                    .count(),
            )
            .await?;
        Ok(positive(waiting))
    }

    /// The names of the hooks with events, also of those that are not configured any more.
    #[boxed]
    pub async fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let after = names.last().cloned().unwrap_or_default();
            let next: Option<String> = self
                .read_first(
                    hook_event::table
                        .filter(hook_event::hook.gt(&after))
                        .select(min(hook_event::hook)),
                )
                .await?;
            match next {
                Some(next) => names.push(next),
                None => return Ok(names),
            }
        }
    }

    /// Leases a hook to one process until an instant, or renews its lease. `None` if another process has it.
    #[boxed]
    pub async fn lease(
        &self,
        name: &str,
        holder: i64,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<HookRow>, StoreError> {
        transaction!(self, |connection| async {
            let row = [hook::name.eq(name)];
            NewRows::of(hook::table, &row).insert_new(connection).await?;
            let found: Vec<(i64, Timestamp, HookRow)> = hook::table
                .find(name)
                .select((hook::holder, hook::leased_until, HookRow::as_select()))
                .locked()
                .load(connection)
                .await?;
            let free = found.into_iter().find(|(by, until, _)| *by == holder || *until < now);
            let Some((.., row)) = free else {
                return QueryResult::Ok(None);
            };
            update(hook::table.find(name))
                .set((hook::holder.eq(holder), hook::leased_until.eq(until)))
                .execute(connection)
                .await?;
            Ok(Some(row))
        })
    }

    /// Ends the lease of this process.
    #[boxed]
    pub async fn release(&self, name: &str, holder: i64) -> Result<(), StoreError> {
        let _: usize = self
            .write(
                update(hook::table.find(name).filter(hook::holder.eq(holder)))
                    .set(hook::leased_until.eq(0)),
            )
            .await?;
        Ok(())
    }

    /// When the first event that waits is due.
    #[boxed]
    pub async fn next_due(&self, name: &str) -> Result<Option<Timestamp>, StoreError> {
        self.read_first(
            hook_event::table
                .filter(hook_event::hook.eq(name))
                .filter(hook_event::state.eq(WAITING))
                .select(min(hook_event::at)),
        )
        .await
    }

    /// The first events that are due, in the order in which they are.
    #[boxed]
    pub async fn due(
        &self,
        name: &str,
        now: Timestamp,
        limit: i64,
    ) -> Result<Vec<Outgoing>, StoreError> {
        self.read(
            hook_event::table
                .filter(hook_event::hook.eq(name))
                .filter(hook_event::state.eq(WAITING))
                .filter(hook_event::at.le(now))
                .order((hook_event::at, hook_event::id))
                .limit(limit)
                .select(Outgoing::as_select()),
        )
        .await
    }

    /// Stores what became of events. `off`: why nothing more is delivered.
    #[boxed]
    pub async fn finish(
        &self,
        name: &str,
        results: &[(i64, Delivered)],
        off: Option<&str>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut done: Vec<i64> = results
            .iter()
            .filter(|(_, result)| *result == Delivered::Done)
            .map(|(id, _)| *id)
            .collect();
        done.sort_unstable();
        let error = results.iter().rev().find_map(|(_, result)| match result {
            Delivered::Again { error, .. } | Delivered::GivenUp { error } => Some(error.as_str()),
            Delivered::Done => None,
        });
        let ends_well = matches!(results.last(), Some((_, Delivered::Done)));
        transaction!(self, |connection| async {
            let mut delivered = 0;
            if !done.is_empty() {
                delivered = update(
                    hook_event::table
                        .filter(hook_event::id.eq_any(&done))
                        .filter(hook_event::state.eq(WAITING)),
                )
                .set((
                    hook_event::state.eq(DELIVERED),
                    hook_event::at.eq(now),
                    hook_event::attempts.eq(hook_event::attempts + 1),
                ))
                .execute(connection)
                .await?;
            }
            for (id, result) in results {
                let (state, at, error) = match result {
                    Delivered::Done => continue,
                    Delivered::Again { at, error } => (WAITING, *at, error),
                    Delivered::GivenUp { error } => (GIVEN_UP, now, error),
                };
                update(hook_event::table.find(*id).filter(hook_event::state.eq(WAITING)))
                    .set((
                        hook_event::state.eq(state),
                        hook_event::at.eq(at),
                        hook_event::attempts.eq(hook_event::attempts + 1),
                        hook_event::last_error.eq(error),
                    ))
                    .execute(connection)
                    .await?;
            }
            let delivered = i64::try_from(delivered).unwrap_or(i64::MAX);
            update(hook::table.find(name))
                .set((
                    hook::delivered.eq(hook::delivered + delivered),
                    error.map(|error| hook::last_error.eq(error)),
                ))
                .execute(connection)
                .await?;
            if ends_well || delivered > 0 {
                update(hook::table.find(name))
                    .set(hook::failing_since.eq(None::<i64>))
                    .execute(connection)
                    .await?;
            }
            if error.is_some() && !ends_well {
                update(hook::table.find(name).filter(hook::failing_since.is_null()))
                    .set(hook::failing_since.eq(now))
                    .execute(connection)
                    .await?;
            }
            if let Some(reason) = off {
                update(hook::table.find(name))
                    .set((hook::off_at.eq(now), hook::off_reason.eq(reason)))
                    .execute(connection)
                    .await?;
            }
            QueryResult::Ok(())
        })
    }

    /// Delivers the events of a hook again, if it is off.
    #[boxed]
    pub async fn turn_on(&self, name: &str) -> Result<(), StoreError> {
        let _: usize = self
            .write(update(hook::table.find(name)).set((
                hook::off_at.eq(None::<i64>),
                hook::off_reason.eq(None::<String>),
                hook::failing_since.eq(None::<i64>),
            )))
            .await?;
        Ok(())
    }

    /// Lets events that were delivered or given up wait again, of those that happened since an instant and have this
    /// kind; returns how many.
    #[boxed]
    pub async fn replay(
        &self,
        name: &str,
        since: Timestamp,
        kind: Option<EventKind>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let most: Option<i64> = self
            .read_first(
                hook_event::table.filter(hook_event::hook.eq(name)).select(max(hook_event::id)),
            )
            .await?;
        let mut after = i64::MIN;
        let mut replayed = 0;
        loop {
            let (moved, last): (u64, Option<i64>) = transaction!(self, |connection| async {
                let ids: Vec<i64> = {
                    let query = hook_event::table
                        .filter(hook_event::hook.eq(name))
                        .filter(hook_event::state.ne(WAITING))
                        .filter(hook_event::created_at.ge(since))
                        .filter(hook_event::id.gt(after))
                        .filter(hook_event::id.le(most.unwrap_or_default()))
                        .order(hook_event::id)
                        .limit(CHUNK)
                        .select(hook_event::id)
                        .into_boxed();
                    match kind {
                        Some(kind) => {
                            query.filter(hook_event::kind.eq(kind.as_str())).load(connection)
                        }
                        None => query.load(connection),
                    }
                }
                .await?;
                let moved = update(hook_event::table.filter(hook_event::id.eq_any(&ids)))
                    .set((
                        hook_event::state.eq(WAITING),
                        hook_event::at.eq(now),
                        hook_event::attempts.eq(0),
                    ))
                    .execute(connection)
                    .await?;
                QueryResult::Ok((moved as u64, ids.last().copied()))
            })?;
            replayed += moved;
            match last {
                Some(last) => after = last,
                None => return Ok(replayed),
            }
        }
    }

    /// Whether more events of a hook wait than this.
    #[boxed]
    pub async fn has_more_waiting(&self, name: &str, than: i64) -> Result<bool, StoreError> {
        let further: Vec<i64> = self
            .read(
                hook_event::table
                    .filter(hook_event::hook.eq(name))
                    .filter(hook_event::state.eq(WAITING))
                    .order(hook_event::at)
                    .offset(than)
                    .limit(1)
                    .select(hook_event::id),
            )
            .await?;
        Ok(!further.is_empty())
    }

    /// The events of a hook that are stored.
    #[boxed]
    pub async fn counts(&self, name: &str) -> Result<OutboxCounts, StoreError> {
        type Row = (i32, i64, Option<Timestamp>);
        let rows: Vec<Row> = self
            .read(
                hook_event::table
                    .filter(hook_event::hook.eq(name))
                    .group_by(hook_event::state)
                    .select((hook_event::state, count_star(), min(hook_event::created_at))),
            )
            .await?;
        let mut counts = OutboxCounts::default();
        for (state, count, oldest) in rows {
            match state {
                WAITING => (counts.waiting, counts.oldest) = (positive(count), oldest),
                DELIVERED => counts.delivered = positive(count),
                _ => counts.given_up = positive(count),
            }
        }
        Ok(counts)
    }

    /// Stores events.
    #[boxed]
    pub async fn add(&self, events: &[NewEvent], now: Timestamp) -> Result<(), StoreError> {
        transaction!(self, |connection| outbox::insert(connection, events, now))
    }

    /// Deletes events of a hook that ended before an instant, and those that happened before another one and were never
    /// delivered, which are counted as skipped.
    #[boxed]
    pub async fn purge(
        &self,
        name: &str,
        ended_before: Timestamp,
        created_before: Timestamp,
    ) -> Result<u64, StoreError> {
        in_chunks!(self, |connection| async {
            let mut ids: Vec<i64> = hook_event::table
                .filter(hook_event::hook.eq(name))
                .filter(hook_event::state.eq_any([DELIVERED, GIVEN_UP]))
                .filter(hook_event::at.lt(ended_before))
                .limit(CHUNK)
                .select(hook_event::id)
                .load(connection)
                .await?;
            let waiting: Vec<i64> = hook_event::table
                .filter(hook_event::hook.eq(name))
                .filter(hook_event::state.eq(WAITING))
                .filter(hook_event::created_at.lt(created_before))
                .limit(CHUNK)
                .select(hook_event::id)
                .load(connection)
                .await?;
            let skipped = i64::try_from(waiting.len()).unwrap_or(i64::MAX);
            if skipped > 0 {
                update(hook::table.find(name))
                    .set(hook::skipped.eq(hook::skipped + skipped))
                    .execute(connection)
                    .await?;
            }
            ids.extend(waiting);
            delete_events(connection, &ids).await?;
            QueryResult::Ok(Chunk::all(ids.len()))
        })
    }
}

pub(crate) async fn delete_events(connection: &mut Connection, ids: &[i64]) -> QueryResult<()> {
    if !ids.is_empty() {
        delete(hook_event::table.filter(hook_event::id.eq_any(ids))).execute(connection).await?;
    }
    Ok(())
}

/// Deletes at most a chunk of the events that happened before an instant; returns whether there were any.
pub(crate) async fn purge_before(
    connection: &mut Connection,
    before: Timestamp,
) -> QueryResult<bool> {
    // The first ones are the oldest.
    let first: Vec<(i64, Timestamp)> = hook_event::table
        .order(hook_event::id)
        .limit(CHUNK)
        .select((hook_event::id, hook_event::created_at))
        .load(connection)
        .await?;
    let old: Vec<i64> =
        first.into_iter().filter(|(_, at)| *at < before).map(|(id, _)| id).collect();
    delete_events(connection, &old).await?;
    Ok(!old.is_empty())
}
