//! A database that is put back to an earlier state, as after a restore or when a standby takes over.

use super::databases::{Database, Kind};
use super::waiting::eventually;

/// The tables that a worker changes.
const TABLES: [&str; 13] = [
    "sms",
    "sms_sent",
    "sms_failed",
    "sms_key",
    "campaign",
    "import",
    "worker",
    "reclaimed_worker",
    "rate_limit",
    "lane",
    "recipient_start",
    "attempt",
    "campaign_watch",
];

impl Database {
    /// Keeps a copy of all rows, for [`Self::rewind`].
    pub(crate) fn keep_copy(&self) {
        let lines = |line: &dyn Fn(&str, &str) -> String| -> String {
            let lines = TABLES.map(|table| line(table, &self.columns(table)));
            lines.concat()
        };
        let create = lines(&|table, columns| {
            format!("CREATE TABLE old_{table} AS SELECT {columns} FROM {table} WHERE 1 = 0;")
        });
        let fill = lines(&|table, columns| {
            format!("INSERT INTO old_{table} SELECT {columns} FROM {table};")
        });
        self.at_one_instant(&create, &fill);
    }

    /// Puts all rows back to what they were, and ends the sessions of a server.
    pub(crate) fn rewind(&self) {
        let lines = TABLES.map(|table| {
            let columns = self.columns(table);
            format!(
                "DELETE FROM {table}; INSERT INTO {table} ({columns}) SELECT {columns} FROM old_{table};"
            )
        });
        self.at_one_instant("", &lines.concat());
        self.end_sessions();
    }

    fn at_one_instant(&self, before: &str, statements: &str) {
        let all = match self.kind {
            Kind::Sqlite => format!("BEGIN IMMEDIATE; {before} {statements} COMMIT"),
            Kind::Postgres => {
                let tables = TABLES.join(", ");
                format!("BEGIN; {before} LOCK TABLE {tables}; {statements} COMMIT")
            }
            Kind::Mysql => {
                let locks = TABLES.map(|table| format!("{table} WRITE, old_{table} WRITE"));
                let locks = locks.join(", ");
                let before = before.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS");
                format!("{before} LOCK TABLES {locks}; {statements} UNLOCK TABLES")
            }
        };
        // Another transaction may be in the way.
        eventually("its statements run", || self.client().try_run(&all).is_ok());
    }

    /// The columns of a table that can be written.
    fn columns(&self, table: &str) -> String {
        let columns = self.words(&match self.kind {
            Kind::Sqlite => format!("SELECT name AS value FROM pragma_table_info('{table}')"),
            Kind::Postgres => format!(
                "SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' \
                 AND table_schema = current_schema() AND is_generated = 'NEVER'"
            ),
            Kind::Mysql => format!(
                "SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' \
                 AND table_schema = database() AND extra NOT LIKE '% GENERATED%'"
            ),
        });
        let columns: Vec<String> = columns.into_iter().flatten().collect();
        columns.join(", ")
    }
}
