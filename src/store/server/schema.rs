//! A server's tables: made where they are missing, and refused where another smsq has made newer ones.

use std::time::Duration;

use diesel::result::{DatabaseErrorKind, Error};
use diesel::{QueryDsl, insert_into, prelude::*};
use diesel_async::RunQueryDsl;

use super::link::{Link, on};
use super::{Server, Symptom, ask_number};
use crate::store::{Access, Fault, StoreError};

/// A version, and what makes it of the one before.
type Migration = (&'static str, &'static str);

const POSTGRES: [Migration; 3] = [
    (
        "0001",
        include_str!("../../../migrations/postgres/0001_queue/up.sql"),
    ),
    (
        "0002",
        include_str!("../../../migrations/postgres/0002_windows/up.sql"),
    ),
    (
        "0003",
        include_str!("../../../migrations/postgres/0003_keep/up.sql"),
    ),
];
const MYSQL: [Migration; 3] = [
    (
        "0001",
        include_str!("../../../migrations/mysql/0001_queue/up.sql"),
    ),
    (
        "0002",
        include_str!("../../../migrations/mysql/0002_windows/up.sql"),
    ),
    (
        "0003",
        include_str!("../../../migrations/mysql/0003_keep/up.sql"),
    ),
];

/// As diesel's own tool keeps it.
const HISTORY: &str = "CREATE TABLE IF NOT EXISTS __diesel_schema_migrations (
    version VARCHAR(50) PRIMARY KEY NOT NULL,
    run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
)";

/// Two processes may make the same tables at once: one of them looks again.
const LOOKS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

diesel::table! {
    __diesel_schema_migrations (version) {
        version -> Text,
    }
}

pub(super) async fn bring_up_to_date(server: &Server, access: Access) -> Result<(), StoreError> {
    let mut look = 0;
    loop {
        let mut held = server.link().await?;
        let done = step(held.link(), access).await;
        let error = match done {
            Ok(Step::UpToDate) => {
                held.give_back();
                return Ok(());
            }
            Ok(Step::Refused(fault, reason)) => {
                return Err(StoreError::new(server.place(), fault, reason));
            }
            Err(error) => error,
        };
        look += 1;
        if look == LOOKS || !met_another(&error, held.symptom(&error)) {
            return Err(server.fault(held.symptom(&error), &error));
        }
        drop(held);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether somebody else may be making the tables at this moment.
fn met_another(error: &Error, symptom: Symptom) -> bool {
    let exists = match error {
        Error::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => true,
        Error::DatabaseError(_, information) => {
            let said = information.message().to_lowercase();
            said.contains("already exists") || said.contains("duplicate column")
        }
        _ => false,
    };
    exists || matches!(symptom, Symptom::Conflict | Symptom::Lost)
}

enum Step {
    UpToDate,
    Refused(Fault, String),
}

async fn step(link: &mut Link, access: Access) -> Result<Step, Error> {
    let (migrations, schema) = match link {
        Link::Postgres(_) => (&POSTGRES, "current_schema()"),
        Link::Mysql(_) => (&MYSQL, "database()"),
    };
    let count = |names: &str| {
        format!(
            "(SELECT count(*) FROM information_schema.tables \
             WHERE table_schema = {schema} AND table_name IN ({names}))"
        )
    };
    if ask_number(link, &count("'__diesel_schema_migrations'")).await? == 0 {
        if ask_number(
            link,
            &count("'campaign', 'sms', 'import', 'worker', 'pace'"),
        )
        .await?
            > 0
        {
            let reason = "has tables of another program with the names that smsq needs";
            return Ok(Step::Refused(Fault::Foreign, reason.to_owned()));
        }
        if access != Access::Create {
            let reason = "has no tables of smsq yet";
            return Ok(Step::Refused(Fault::NoTables, reason.to_owned()));
        }
        link.run(HISTORY).await?;
    }
    let applied = applied(link).await?;
    let known = |version: &&String| migrations.iter().any(|(known, _)| known == version);
    if let Some(version) = applied.iter().find(|version| !known(version)) {
        let reason = format!("was written by a newer smsq (schema {version})");
        return Ok(Step::Refused(Fault::Newer, reason));
    }
    let is_older = |(version, _): &Migration| !applied.iter().any(|done| done == version);
    if access == Access::Read && migrations.iter().any(is_older) {
        let reason = "has tables of an older smsq";
        return Ok(Step::Refused(Fault::Older, reason.to_owned()));
    }
    for (version, sql) in migrations {
        if !applied.iter().any(|done| done == version) {
            migrate(link, version, sql).await?;
        }
    }
    Ok(Step::UpToDate)
}

async fn applied(link: &mut Link) -> Result<Vec<String>, Error> {
    use __diesel_schema_migrations as history;
    on!(link, |conn| history::table
        .order(history::version)
        .select(history::version)
        .load(conn))
}

/// On `PostgreSQL` all or nothing; elsewhere each statement stands alone and can be repeated.
async fn migrate(link: &mut Link, version: &str, sql: &str) -> Result<(), Error> {
    use __diesel_schema_migrations as history;
    link.run("BEGIN").await?;
    link.run(sql).await?;
    on!(link, |conn| insert_into(history::table)
        .values(history::version.eq(version))
        .execute(conn))?;
    link.run("COMMIT").await
}
