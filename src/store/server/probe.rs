//! What a server can do, found out by trying: several accept `SKIP LOCKED` and do not skip.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use diesel::QueryResult;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::address::Engine;
use super::link::{Link, on};
use super::{Server, Symptom, ask_word, mysql, pace, postgres};
use crate::store::schema::pace as paces;
use crate::store::{Fault, StoreError};

/// The row that the probe locks.
const SCRATCH: &str = "probe";
/// A lock that is not skipped within this is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was found out of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The server as it names itself.
    pub version: String,
    /// The host that was taken, of several.
    pub host: String,
    pub skip_locked: SkipLocked,
    pub is_encrypted: bool,
}

/// Whether rows that another transaction holds are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipLocked {
    Honoured,
    /// A held row was handed out.
    Ignored,
    /// A held row was waited for.
    Waits,
    /// The server does not know the words.
    Unknown,
    /// The url says not to use it.
    Off,
    /// Nothing may be written, and there is no row to lock, or this user may not lock it.
    Untried,
}

impl fmt::Display for SkipLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Honoured => "locked rows are skipped",
            Self::Ignored => "locked rows are not skipped: rows are claimed by comparing",
            Self::Waits => "locked rows are waited for: rows are claimed by comparing",
            Self::Unknown => "locked rows cannot be skipped: rows are claimed by comparing",
            Self::Untried => "nothing: this user may not lock rows",
            Self::Off => "locked rows are not to be skipped: rows are claimed by comparing",
        })
    }
}

impl Server {
    /// Tries what the claims depend on.
    pub(in crate::store) async fn probe(&self) -> Result<Probe, StoreError> {
        let skip_locked = *self.probed.get_or_try_init(|| self.try_to_skip()).await?;
        let mut held = self.link().await?;
        let version = ask_word(held.link(), "version()").await;
        let version = version.map_err(|error| self.fault(held.symptom(&error), &error))?;
        held.give_back();
        Ok(Probe {
            // PostgreSQL goes on with its compiler.
            version: version.split(" on ").next().unwrap_or_default().to_owned(),
            host: self.pool.host(),
            skip_locked,
            is_encrypted: self.pool.address().encrypted,
        })
    }

    /// Settings by which a crash of the host may undo what was committed.
    pub(in crate::store) async fn unsafe_settings(&self) -> Result<Vec<String>, StoreError> {
        let mut held = self.link().await?;
        let settings = unsafe_settings(held.link()).await;
        let settings = settings.map_err(|error| self.fault(held.symptom(&error), &error))?;
        held.give_back();
        Ok(settings)
    }

    pub(super) async fn skips_locked(&self) -> Result<bool, StoreError> {
        let probed = self.probed.get_or_try_init(|| self.try_to_skip()).await?;
        Ok(*probed == SkipLocked::Honoured)
    }

    /// Refuses a pooler that hands each transaction of a client to any session and keeps no prepared statements:
    /// one of another process could be executed.
    pub(super) async fn refuse_pooler(&self) -> Result<(), StoreError> {
        if self.pool.address().engine != Engine::Postgres {
            return Ok(());
        }
        let fault = |symptom, error| self.fault(symptom, &error);
        let pooler = || {
            let reason = "is reached by a pooler that keeps no prepared statements of its clients";
            StoreError::new(self.place(), Fault::Pooler, reason)
        };
        let mut first = self.link().await?;
        if let Err(error) = prepared(first.link()).await {
            // Another client's statement may have the name.
            let symptom = first.symptom(&error);
            return Err(match symptom {
                Symptom::Lost | Symptom::ReadOnly => fault(symptom, error),
                _ => pooler(),
            });
        }
        // A pooler gives it the session in which the statement was prepared, and the first one another.
        let mut other = self.link().await?;
        let begun = other.link().run("BEGIN").await;
        begun.map_err(|error| fault(other.symptom(&error), error))?;
        let again = prepared(first.link()).await;
        other.roll_back().await;
        if let Err(error) = again {
            if first.symptom(&error) == Symptom::Lost {
                return Err(fault(Symptom::Lost, error));
            }
            return Err(pooler());
        }
        first.give_back();
        Ok(())
    }

    /// Two connections: one holds a row, the other asks for it.
    async fn try_to_skip(&self) -> Result<SkipLocked, StoreError> {
        if !self.pool.address().skips_locked {
            return Ok(SkipLocked::Off);
        }
        let is_only_read = self.pool.address().is_only_read;
        if !is_only_read {
            let made = self.transaction(|link| Box::pin(make_row(link))).await;
            made?;
        }
        let mut holder = self.link().await?;
        if is_only_read {
            if !matches!(lock_row(holder.link()).await, Ok(1..)) {
                holder.roll_back().await;
                return Ok(SkipLocked::Untried);
            }
        } else {
            let held = hold_row(holder.link()).await;
            held.map_err(|error| self.fault(holder.symptom(&error), &error))?;
        }
        let mut other = self.link().await?;
        let seen = tokio::time::timeout(PATIENCE, skip_row(other.link())).await;
        let found = match seen {
            Ok(Ok(0)) => SkipLocked::Honoured,
            Ok(Ok(_)) => SkipLocked::Ignored,
            Ok(Err(_)) => SkipLocked::Unknown,
            Err(_) => SkipLocked::Waits,
        };
        holder.roll_back().await;
        if found != SkipLocked::Waits {
            other.roll_back().await;
        }
        if found != SkipLocked::Honoured {
            tracing::warn!("at `{}` {found}, which is slower", self.place());
        }
        Ok(found)
    }
}

/// A statement that stays prepared on its connection.
async fn prepared(link: &mut Link) -> QueryResult<i32> {
    use diesel::sql_types::Integer;
    on!(link, |conn| diesel::select(1.into_sql::<Integer>())
        .get_result(conn))
}

/// Settings that a session cannot change, where a crash may undo what was committed.
async fn unsafe_settings(link: &mut Link) -> QueryResult<Vec<String>> {
    let settings = match link {
        Link::Postgres(_) => postgres::CRASH_SAFE,
        Link::Mysql(_) => mysql::CRASH_SAFE,
    };
    let mut found = Vec::new();
    for (name, expression, safe) in settings {
        let value = ask_word(link, expression).await?;
        if value != safe {
            found.push(format!("{name} = {value}"));
        }
    }
    Ok(found)
}

async fn make_row(link: &mut Link) -> QueryResult<()> {
    let scope = BTreeSet::from([SCRATCH.to_owned()]);
    pace::hold(link, &scope).await.map(drop)
}

async fn hold_row(link: &mut Link) -> QueryResult<()> {
    link.run("BEGIN").await?;
    make_row(link).await
}

/// Locks the row if it is there.
async fn lock_row(link: &mut Link) -> QueryResult<usize> {
    link.run("BEGIN").await?;
    let rows: Vec<String> = on!(link, |conn| paces::table
        .filter(paces::scope.eq(SCRATCH))
        .select(paces::scope)
        .for_update()
        .load(conn))?;
    Ok(rows.len())
}

async fn skip_row(link: &mut Link) -> QueryResult<usize> {
    link.run("BEGIN").await?;
    let rows: Vec<String> = on!(link, |conn| paces::table
        .filter(paces::scope.eq(SCRATCH))
        .select(paces::scope)
        .for_update()
        .skip_locked()
        .load(conn))?;
    Ok(rows.len())
}
