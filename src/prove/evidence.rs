//! What the judge knows: the log of the gateway, and the tables, read with SQL that no other part of smsq uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde::Deserialize;
use smsq_message::text::listed;
use smsq_store::{Store, StoreError};

/// What a gateway logged, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GatewayLog {
    pub(super) arrivals: Vec<GatewayEvent>,
    pub(super) accepted: Vec<GatewayEvent>,
    /// When the gateway began to run again, and for how long it had not, in microseconds.
    pub(super) stalls: Vec<(u64, u64)>,
}

/// An arrival, or an acceptance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GatewayEvent {
    /// In microseconds since the Unix epoch.
    pub(super) at: u64,
    pub(super) phone: String,
    pub(super) reference: Option<String>,
    /// The sender, of an arrival.
    pub(super) from: Option<String>,
    /// Which gateway it is, by its index.
    pub(super) gateway: usize,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum LoggedEvent {
    Arrived { at: u64, to: String, reference: Option<String>, from: Option<String> },
    Accepted { at: u64, to: String, reference: Option<String> },
    Stalled { at: u64, micros: u64 },
}

impl GatewayLog {
    /// What several gateways logged.
    pub(super) fn of_all<'a>(logs: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for log in logs {
            all.arrivals.extend(log.arrivals.iter().cloned());
            all.accepted.extend(log.accepted.iter().cloned());
            all.stalls.extend(&log.stalls);
        }
        all.arrivals.sort_by_key(|entry| entry.at);
        all
    }

    /// Adds a line of JSON; the error says what is wrong with it.
    fn add(&mut self, line: &str, gateway: usize) -> Result<(), serde_json::Error> {
        let entry = |at, to: String, reference, from| GatewayEvent {
            at,
            phone: to,
            reference,
            from,
            gateway,
        };
        match serde_json::from_str(line)? {
            LoggedEvent::Arrived { at, to, reference, from } => {
                self.arrivals.push(entry(at, to, reference, from));
            }
            LoggedEvent::Accepted { at, to, reference } => {
                self.accepted.push(entry(at, to, reference, None));
            }
            LoggedEvent::Stalled { at, micros } => self.stalls.push((at, micros)),
        }
        Ok(())
    }
}

/// The log file of a gateway, which grows.
pub(super) struct LogFile {
    gateway: usize,
    path: PathBuf,
    read_to: u64,
    /// The start of a line that is not complete.
    rest: Vec<u8>,
    /// Other phones are left out, because the gateway has other clients.
    phones: Option<BTreeSet<String>>,
    pub(super) log: GatewayLog,
}

impl LogFile {
    /// Reads what the file of a gateway will get from now on, about these phones or about all.
    pub(super) fn from_end(
        gateway: usize,
        path: PathBuf,
        phones: Option<BTreeSet<String>>,
    ) -> Self {
        let read_to = path.metadata().map_or(0, |metadata| metadata.len());
        Self { gateway, path, read_to, rest: Vec::new(), phones, log: GatewayLog::default() }
    }

    /// Reads what is new.
    pub(super) fn update(&mut self) -> io::Result<()> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(self.read_to))?;
        self.read_to += file.read_to_end(&mut self.rest)? as u64;
        self.add_lines()
    }

    /// Adds the complete lines of what was read.
    fn add_lines(&mut self) -> io::Result<()> {
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        let rest = self.rest.split_off(end + 1);
        let lines = String::from_utf8_lossy(&self.rest);
        for line in lines.lines() {
            self.log.add(line, self.gateway).map_err(|error| {
                // The error may repeat the line.
                let reason = error.to_string();
                let problem = format!(
                    "{} is not a line of a gateway's log: {}",
                    listed([line]),
                    listed([&*reason])
                );
                io::Error::new(io::ErrorKind::InvalidData, problem)
            })?;
        }
        if let Some(phones) = &self.phones {
            let is_ours = |entry: &GatewayEvent| phones.contains(&entry.phone);
            self.log.arrivals.retain(is_ours);
            self.log.accepted.retain(is_ours);
        }
        self.rest = rest;
        Ok(())
    }
}

/// Reads a gateway's log that arrives in two parts; returns its arrivals and acceptances.
#[cfg(feature = "fuzz")]
pub fn fuzz_gateway_log(parts: [&[u8]; 2]) -> io::Result<[Vec<(u64, String)>; 2]> {
    let mut file = LogFile::from_end(0, PathBuf::new(), None);
    for part in parts {
        file.rest.extend_from_slice(part);
        file.add_lines()?;
    }
    let events = |events: Vec<GatewayEvent>| {
        events.into_iter().map(|event| (event.at, event.phone)).collect()
    };
    Ok([file.log.arrivals, file.log.accepted].map(events))
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MessagePlace {
    /// In `sms`, ready or sending; `in_doubt`: an attempt may have been accepted.
    Queued {
        in_doubt: bool,
    },
    Unknown,
    Sent,
    Failed,
    Cancelled,
}

/// One message in one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredRow {
    pub(super) campaign: String,
    pub(super) phone: String,
    pub(super) place: MessagePlace,
    /// How often it was accepted, by the row.
    pub(super) accepted: u64,
    /// Why it was not sent.
    pub(super) reason: String,
}

/// The messages of a round's campaigns, and the sums of the whole database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tables {
    pub(super) rows: Vec<StoredRow>,
    /// The state of each campaign; 0 is active.
    pub(super) campaigns: BTreeMap<String, i64>,
    pub(super) imported: i64,
    pub(super) stored: i64,
    pub(super) purged: i64,
    /// Messages whose id is in several tables.
    pub(super) with_two_rows: i64,
}

impl Tables {
    /// Reads the messages of these campaigns.
    pub(super) async fn read(store: &Store, campaigns: &[String]) -> Result<Self, StoreError> {
        let names: Vec<String> = campaigns.iter().map(|name| format!("'{name}'")).collect();
        let names = names.join(", ");
        let mut tables = Self::default();
        for (table, columns) in [
            ("sms", "m.state, CASE WHEN m.in_doubt THEN 1 ELSE 0 END, m.last_reason"),
            ("sms_sent", "m.accepted, '', ''"),
            ("sms_failed", "m.class, '', m.reason"),
        ] {
            let sql = format!(
                "SELECT concat_ws('|', c.name, m.phone, {columns}) AS value \
                 FROM {table} m JOIN campaign c ON c.id = m.campaign_id WHERE c.name IN ({names})"
            );
            for line in store.query(&sql).await? {
                tables.rows.extend(row(table, &line));
            }
        }
        let states = format!(
            "SELECT concat_ws('|', state, name) AS value FROM campaign WHERE name IN ({names})"
        );
        for line in store.query(&states).await? {
            if let Some((state, name)) = line.split_once('|') {
                tables.campaigns.insert(name.to_owned(), state.parse().unwrap_or(-1));
            }
        }
        let sum = async |sql: &str| -> Result<i64, StoreError> {
            let sql = format!("SELECT concat_ws('', coalesce(sum(n), 0)) AS value FROM ({sql}) t");
            let found = store.query(&sql).await?;
            Ok(found.iter().filter_map(|sum| sum.parse::<i64>().ok()).sum())
        };
        tables.imported = sum("SELECT accepted - replaced AS n FROM import").await?;
        tables.purged = sum("SELECT sent + failed + unknown + cancelled AS n FROM purged").await?;
        let all = "SELECT id FROM sms UNION ALL SELECT id FROM sms_sent UNION ALL SELECT id FROM sms_failed";
        tables.stored = sum(&format!("SELECT count(*) AS n FROM ({all}) a")).await?;
        let twice = format!("SELECT 1 AS n FROM ({all}) a GROUP BY id HAVING count(*) > 1");
        tables.with_two_rows = sum(&twice).await?;
        Ok(tables)
    }
}

/// The row of a line `campaign|phone|a|b|reason`.
fn row(table: &str, line: &str) -> Option<StoredRow> {
    let mut fields = line.splitn(5, '|');
    let campaign = fields.next()?.to_owned();
    let phone = fields.next()?.to_owned();
    let first = fields.next()?;
    let in_doubt = fields.next()? == "1";
    let reason = fields.next().unwrap_or_default().to_owned();
    let place = match (table, first) {
        ("sms", "2") => MessagePlace::Unknown,
        ("sms", _) => MessagePlace::Queued { in_doubt },
        ("sms_sent", _) => MessagePlace::Sent,
        (_, "cancelled") => MessagePlace::Cancelled,
        _ => MessagePlace::Failed,
    };
    let accepted = match place {
        MessagePlace::Sent => first.parse().unwrap_or(0),
        _ => 0,
    };
    Some(StoredRow { campaign, phone, place, accepted, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_about_a_line_is_short_and_printable() {
        let mut file = LogFile::from_end(0, PathBuf::new(), None);
        let long = "\u{1b}x".repeat(1_000);
        file.rest = format!("{{\"event\":\"{long}\"}}\n").into_bytes();
        let error = file.add_lines().expect_err("not an event").to_string();
        assert!(error.len() < 300, "{error}");
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }
}
