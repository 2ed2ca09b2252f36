//! Numbers that do not exist, as providers said when they rejected a message or in a delivery receipt. They are always
//! recorded, and messages to them are skipped if `limits.skip_dead` is set.

use std::collections::{BTreeMap, HashMap};

use diesel::delete;
use diesel::upsert::excluded;
use smsq_lifecycle::transition::dead_reason;
use smsq_message::age::Age;
use smsq_message::sms::{Failure, Timestamp};

use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, ROWS, in_list};
use crate::tables::schema::{dead, sms};
use crate::{CHUNK, Store};

/// Who said that a number does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadNumber {
    code: Option<String>,
    provider: String,
}

/// What providers said, by phone.
pub(crate) type DeadNumbers = BTreeMap<String, DeadNumber>;

impl DeadNumber {
    pub(crate) fn new(provider: &str, failure: &Failure) -> Self {
        Self { code: failure.code.clone(), provider: provider.to_owned() }
    }
}

impl Store {
    /// Skips messages to numbers that do not exist, as a provider said within this age; `None`: none is skipped.
    #[must_use]
    pub fn skipping_dead(mut self, age: Option<Age>) -> Self {
        self.skip_dead = age;
        self
    }
}

/// Stores that these numbers do not exist, in the place of what was known about them.
pub(crate) async fn record(
    connection: &mut Connection,
    numbers: DeadNumbers,
    now: Timestamp,
) -> QueryResult<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = numbers
        .into_iter()
        .map(|(phone, number)| {
            (
                dead::phone.eq(phone),
                dead::code.eq(number.code),
                dead::provider.eq(number.provider),
                dead::at.eq(now),
            )
        })
        .collect();
    NewRows::of(dead::table, &rows)
        .replace(connection, |insert| {
            insert.on_conflict(dead::phone).do_update().set((
                dead::code.eq(excluded(dead::code)),
                dead::provider.eq(excluded(dead::provider)),
                dead::at.eq(excluded(dead::at)),
            ))
        })
        .await?;
    Ok(())
}

/// Those of the phones, at most one statement of them, whose number does not exist, as a provider said since an instant;
/// and the reason.
pub(crate) async fn among<'a>(
    connection: &mut Connection,
    phones: impl IntoIterator<Item = &'a str>,
    since: Timestamp,
) -> QueryResult<HashMap<String, String>> {
    let phones = in_list(phones);
    let found: Vec<(String, Option<String>, String, Timestamp)> = dead::table
        .filter(dead::phone.eq_any(&phones))
        .filter(dead::at.ge(since))
        .select((dead::phone, dead::code, dead::provider, dead::at))
        .kept()
        .load(connection)
        .await?;
    let reason = |(phone, code, provider, at): (String, Option<String>, String, Timestamp)| {
        (phone, dead_reason(&provider, code.as_deref(), at))
    };
    Ok(found.into_iter().map(reason).collect())
}

/// Since when what was said counts; `None`: no message is skipped.
pub(crate) async fn since(
    connection: &mut Connection,
    skip: Option<Age>,
    now: Timestamp,
) -> QueryResult<Option<Timestamp>> {
    match skip {
        Some(age) if has_any(connection).await? => Ok(Some(age.before(now))),
        _ => Ok(None),
    }
}

/// Whether any number is known not to exist. Without `EXISTS`, which is false on MariaDB if the query is killed.
async fn has_any(connection: &mut Connection) -> QueryResult<bool> {
    let first: Vec<String> = dead::table.limit(1).select(dead::phone).load(connection).await?;
    Ok(!first.is_empty())
}

/// Removes numbers that a message reached.
pub(crate) async fn forget(connection: &mut Connection, phones: &[String]) -> QueryResult<()> {
    if phones.is_empty() || !has_any(connection).await? {
        return Ok(());
    }
    for phones in phones.chunks(ROWS) {
        delete(dead::table.filter(dead::phone.eq_any(phones))).execute(connection).await?;
    }
    Ok(())
}

/// Removes the numbers of queued messages that an operator sends again.
pub(crate) async fn forget_of(connection: &mut Connection, messages: &[i64]) -> QueryResult<()> {
    if messages.is_empty() || !has_any(connection).await? {
        return Ok(());
    }
    let phones = sms::table.filter(sms::id.eq_any(messages)).select(sms::phone);
    delete(dead::table.filter(dead::phone.eq_any(phones))).execute(connection).await?;
    Ok(())
}

/// Removes at most a chunk of what was said before an instant; returns whether there was any.
pub(crate) async fn purge(connection: &mut Connection, before: Timestamp) -> QueryResult<bool> {
    let old: Vec<String> = dead::table
        .filter(dead::at.lt(before))
        .order(dead::phone)
        .limit(CHUNK)
        .select(dead::phone)
        .load(connection)
        .await?;
    forget(connection, &old).await?;
    Ok(!old.is_empty())
}
