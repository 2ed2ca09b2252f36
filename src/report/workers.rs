//! Who sends now: the workers on the list, as `status` shows them.

use comfy_table::{Cell, CellAlignment};
use indicatif::HumanCount;
use serde::Serialize;

use super::table::{ago, bare, push_table};
use crate::sms::Timestamp;
use crate::store::{Store, StoreError, Worker};
use crate::text::printable_line;

/// A worker, and how many messages it has claimed and not settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Active {
    id: i64,
    host: String,
    pid: i64,
    started_at: String,
    heartbeat_at: String,
    sending: u64,
    #[serde(skip)]
    beat: Timestamp,
}

impl Active {
    /// All workers on the list, oldest first: those that died lately may be among them.
    pub async fn all(store: &Store) -> Result<Vec<Self>, StoreError> {
        let workers = store.workers().await?;
        Ok(workers.into_iter().map(Self::from).collect())
    }

    /// One to a line; `now` is the database's.
    pub fn text(workers: &[Self], now: Timestamp) -> String {
        let right = |cell: Cell| cell.set_alignment(CellAlignment::Right);
        let mut table = bare();
        table.set_header(vec![
            Cell::new("worker"),
            Cell::new("host"),
            right(Cell::new("pid")),
            Cell::new("since"),
            right(Cell::new("heartbeat")),
            right(Cell::new("sending")),
        ]);
        for worker in workers {
            table.add_row(vec![
                Cell::new(worker.id),
                Cell::new(printable_line(&worker.host)),
                right(Cell::new(worker.pid)),
                Cell::new(&worker.started_at),
                right(Cell::new(ago(worker.beat, now))),
                right(Cell::new(HumanCount(worker.sending))),
            ]);
        }
        let mut text = String::new();
        push_table(&mut text, &table);
        text
    }
}

impl From<(Worker, u64)> for Active {
    fn from((worker, sending): (Worker, u64)) -> Self {
        let beat = Timestamp::from_millis(worker.heartbeat_at);
        Self {
            id: worker.id,
            host: worker.host,
            pid: worker.pid,
            started_at: Timestamp::from_millis(worker.started_at).to_string(),
            heartbeat_at: beat.to_string(),
            sending,
            beat,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_listed_with_the_age_of_their_heartbeat() {
        let worker = |id, heartbeat_at, sending| {
            let worker = Worker {
                id,
                host: "cellar\u{7}".to_owned(),
                boot_id: "boot".to_owned(),
                pid_namespace: String::new(),
                pid: 4_000 + id,
                process_started: 1,
                concurrency: 64,
                started_at: 1_763_715_600_000,
                heartbeat_at,
                lease_ms: 30_000,
            };
            Active::from((worker, sending))
        };
        let now = Timestamp::from_millis(1_763_715_730_000);
        let workers = [
            worker(7, 1_763_715_729_500, 64),
            worker(12, 1_763_715_721_000, 0),
            worker(13, 1_763_715_600_000, 1_234),
        ];
        insta::assert_snapshot!(Active::text(&workers, now), @r"
        worker  host      pid  since                  heartbeat  sending
        7       cellar   4007  2025-11-21T09:00:00Z         now       64
        12      cellar   4012  2025-11-21T09:00:00Z     9 s ago        0
        13      cellar   4013  2025-11-21T09:00:00Z  2m 10s ago    1,234
        ");
        let json = serde_json::to_string(&workers[0]).expect("json");
        insta::assert_snapshot!(json, @r#"{"id":7,"host":"cellar\u0007","pid":4007,"started_at":"2025-11-21T09:00:00Z","heartbeat_at":"2025-11-21T09:02:09Z","sending":64}"#);
    }
}
