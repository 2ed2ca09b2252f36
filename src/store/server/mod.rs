//! PostgreSQL, MySQL and MariaDB: servers that many workers on many hosts may use at once. What they share
//! is written once over both kinds of connection; what differs stands in `postgres.rs` and `mysql.rs`,
//! the same names in each.

mod address;
mod claim;
mod insert;
mod known;
mod ledger;
pub(super) mod link;
mod moves;
mod mysql;
mod pace;
mod pool;
mod postgres;
mod probe;
mod purge;
mod recipients;
mod round;
mod schema;
mod search;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use diesel::QueryableByName;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;
use rand::RngExt;

use super::{Access, Fault, StoreError};
use crate::sms::Timestamp;
use address::Address;
use claim::Floors;
use link::{Doing, Link, on};
use pool::{Pool, Reservation};
use tokio::sync::OnceCell;

pub(super) use address::{Engine, with_password};
pub use probe::{Probe, SkipLocked};

/// So often a transaction that met another's is begun again before the caller hears of it.
const TRIES: u32 = 20;
/// And so often one that failed for a reason that may have passed: a statement that was cancelled, say.
const OTHERS: u32 = 2;
/// A transaction that takes longer is taken as lost with its connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database on a server, with smsq's tables.
#[derive(Clone)]
pub struct Server {
    pool: Arc<Pool>,
    floors: Arc<Floors>,
    probed: Arc<OnceCell<SkipLocked>>,
}

/// What an error of a server tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symptom {
    /// Another transaction was in the way: the same again may succeed.
    Conflict,
    /// The connection is gone, and nobody knows what became of its last statement.
    Lost,
    /// The server has become a replica.
    ReadOnly,
    Full,
    /// A rule of a table, such as a number that is taken, forbids the row: the same again fails again.
    Refused,
    /// It was more than the server takes at once.
    TooLarge,
    /// Anything else that the server answered, in whichever language: the same again may succeed.
    Other,
}

/// Why a host was not taken.
#[derive(Clone, Debug)]
struct Refusal {
    fault: Fault,
    reason: String,
}

impl Refusal {
    fn new(fault: Fault, reason: impl Into<String>) -> Self {
        Self {
            fault,
            reason: reason.into(),
        }
    }

    fn read_only() -> Self {
        Self::new(Fault::Replica, "can be read only: it is a replica")
    }
}

impl Server {
    pub(super) async fn open(
        engine: Engine,
        url: &str,
        access: Access,
    ) -> Result<Self, StoreError> {
        let mut address = Address::parse(engine, url).map_err(|reason| {
            let scheme = url.split(':').next().unwrap_or_default();
            StoreError::new(format!("{scheme}:…"), Fault::Url, reason)
        })?;
        address.is_only_read = access == Access::Read;
        let server = Self {
            pool: Arc::new(Pool::new(address)),
            floors: Arc::default(),
            probed: Arc::default(),
        };
        server.refuse_pooler().await?;
        schema::bring_up_to_date(&server, access).await?;
        Ok(server)
    }

    pub(super) fn place(&self) -> &str {
        self.pool.place()
    }

    /// The server's own clock.
    pub(super) async fn now(&self) -> Result<Timestamp, StoreError> {
        let mut attempts = Attempts::default();
        loop {
            let mut held = self.link().await?;
            let clock = match held.link() {
                Link::Postgres(_) => postgres::CLOCK,
                Link::Mysql(_) => mysql::CLOCK,
            };
            let asked = ask_number(held.link(), clock).await;
            if let Some(told) = attempts.judge(self, held, asked).await {
                return told.map(Timestamp::from_millis);
            }
        }
    }

    /// A connection; it goes back to the others once what was done on it is known.
    pub(super) async fn link(&self) -> Result<Reservation<'_>, StoreError> {
        self.pool.take().await
    }

    /// Does `work` in one transaction, again and again while only other transactions are in its way.
    ///
    /// Where the answer to its commit was lost, the error passes, and whether it was committed must be
    /// looked up by whoever repeats it.
    async fn transaction<T: Send>(
        &self,
        work: impl for<'c> Fn(&'c mut Link) -> Doing<'c, T> + Send + Sync,
    ) -> Result<T, StoreError> {
        let mut attempts = Attempts::default();
        loop {
            let mut held = self.link().await?;
            let attempt = attempt(held.link(), &work);
            let done = match tokio::time::timeout(PATIENCE, attempt).await {
                Ok(done) => done,
                Err(_) => Err(Failed::at_commit(lost("it does not answer"))),
            };
            let done = match done {
                Ok(done) => Ok(done),
                Err(failed) => {
                    attempts.may_be_committed = failed.at_commit;
                    Err(failed.error)
                }
            };
            if let Some(told) = attempts.judge(self, held, done).await {
                return told;
            }
        }
    }

    fn fault(&self, symptom: Symptom, error: &Error) -> StoreError {
        let fault = match symptom {
            Symptom::Conflict => Fault::Busy,
            Symptom::Lost => Fault::Away,
            Symptom::ReadOnly => Fault::Replica,
            Symptom::Full => Fault::Full,
            Symptom::Refused => Fault::Refused,
            Symptom::TooLarge | Symptom::Other => Fault::Other,
        };
        let reason = match error {
            Error::DatabaseError(_, information) => information.message().to_owned(),
            other => other.to_string(),
        };
        StoreError::new(self.place(), fault, reason)
    }
}

/// A transaction that failed, and how far it had come.
struct Failed {
    error: Error,
    at_commit: bool,
}

impl Failed {
    fn at_commit(error: Error) -> Self {
        Self {
            error,
            at_commit: true,
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self {
            error,
            at_commit: false,
        }
    }
}

async fn attempt<T: Send>(
    link: &mut Link,
    work: &(impl for<'c> Fn(&'c mut Link) -> Doing<'c, T> + Send + Sync),
) -> Result<T, Failed> {
    let begin = match link {
        Link::Postgres(_) => postgres::BEGIN,
        Link::Mysql(_) => mysql::BEGIN,
    };
    link.run(begin).await?;
    let done = work(link).await?;
    link.run("COMMIT").await.map_err(Failed::at_commit)?;
    Ok(done)
}

/// What has become of the same statement or transaction so far.
#[derive(Default)]
pub(super) struct Attempts {
    conflicts: u32,
    losses: u32,
    others: u32,
    /// The connection was lost after the commit had been asked for.
    may_be_committed: bool,
}

impl Attempts {
    /// Gives the connection back, or drops what cannot be used any more; `None` says: once more.
    pub(super) async fn judge<T>(
        &mut self,
        server: &Server,
        held: Reservation<'_>,
        done: Result<T, Error>,
    ) -> Option<Result<T, StoreError>> {
        let error = match done {
            Ok(done) => {
                held.give_back();
                return Some(Ok(done));
            }
            Err(error) => error,
        };
        let may_be_committed = std::mem::take(&mut self.may_be_committed);
        let mut held = held;
        let mut symptom = held.symptom(&error);
        // What the server says may be in any language; a connection that is gone says it in all of them.
        let is_told = matches!(
            symptom,
            Symptom::Lost | Symptom::ReadOnly | Symptom::TooLarge
        );
        if !is_told && !held.can_roll_back().await {
            symptom = Symptom::Lost;
        }
        if may_be_committed && symptom != Symptom::Conflict {
            // A commit that failed for any other reason may have been done all the same.
            held.drop_all();
            return Some(Err(server.fault(Symptom::Lost, &error)));
        }
        let fault = || Some(Err(server.fault(symptom, &error)));
        match symptom {
            Symptom::Conflict if self.conflicts < TRIES => {
                self.conflicts += 1;
                held.give_back();
                let most = 10 * u64::from(self.conflicts);
                let wait = rand::rng().random_range(0..=most);
                tokio::time::sleep(Duration::from_millis(wait)).await;
                None
            }
            // Idle connections die with their server: the next one is a new one.
            Symptom::Lost | Symptom::ReadOnly => {
                held.drop_all();
                if self.losses > 0 {
                    return fault();
                }
                self.losses += 1;
                None
            }
            // Another connection, in case it is this one that is at fault.
            Symptom::Other if self.others < OTHERS => {
                self.others += 1;
                let most = 20 * u64::from(self.others);
                let wait = rand::rng().random_range(0..=most);
                tokio::time::sleep(Duration::from_millis(wait)).await;
                None
            }
            _ => {
                held.roll_back().await;
                fault()
            }
        }
    }
}

/// Another transaction was in the way of this one.
fn conflict(why: &str) -> Error {
    Error::DatabaseError(
        DatabaseErrorKind::SerializationFailure,
        Box::new(why.to_owned()),
    )
}

/// Fails where a statement removed fewer rows than this transaction has locked: MariaDB reports success when a `DELETE`
/// is killed or reaches its time limit before its first row.
fn all_removed(removed: usize, locked: usize) -> Result<(), Error> {
    if removed == locked {
        Ok(())
    } else {
        Err(conflict("rows were to be removed, and are still there"))
    }
}

fn lost(why: &str) -> Error {
    Error::DatabaseError(
        DatabaseErrorKind::UnableToSendCommand,
        Box::new(why.to_owned()),
    )
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    value: i64,
}

#[derive(QueryableByName)]
struct Word {
    #[diesel(sql_type = Text)]
    value: String,
}

/// The value of an expression.
async fn ask_number(link: &mut Link, expression: &str) -> Result<i64, Error> {
    let sql = format!("SELECT {expression} AS value");
    let row: Number = on!(link, |conn| diesel::sql_query(sql).get_result(conn))?;
    Ok(row.value)
}

/// The value of an expression.
async fn ask_word(link: &mut Link, expression: &str) -> Result<String, Error> {
    let sql = format!("SELECT {expression} AS value");
    let row: Word = on!(link, |conn| diesel::sql_query(sql).get_result(conn))?;
    Ok(row.value)
}
