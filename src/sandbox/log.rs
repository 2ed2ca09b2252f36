//! The log of the gateway: a line of JSON for each message that arrives and for each acceptance, so that another
//! program can tell what the gateway did without asking smsq.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

/// How often it is checked that the gateway runs.
const TICK: Duration = Duration::from_millis(5);

/// Instants are in microseconds since the Unix epoch, on a clock that is not set while the gateway runs.
pub(super) struct EventLog {
    file: Mutex<Arc<File>>,
    began: (Instant, SystemTime),
}

/// One line.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum LogEvent<'a> {
    /// A message was read from the network.
    Arrived {
        to: &'a str,
        reference: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<&'a str>,
    },
    /// A real gateway would text the phone now.
    Accepted { to: &'a str, reference: Option<&'a str>, id: &'a str },
    /// The gateway did not run for this long, so what arrived meanwhile is logged too late.
    Stalled { micros: u64 },
}

#[derive(Serialize)]
struct EventLine<'a> {
    at: u64,
    #[serde(flatten)]
    event: LogEvent<'a>,
}

impl EventLog {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file: Mutex::new(file), began: (Instant::now(), SystemTime::now()) }
    }

    /// Appends a line with one call, so that it is in the file before the gateway responds.
    pub(super) fn write(&self, at: Instant, event: LogEvent<'_>) {
        let (began, wall) = self.began;
        let at = wall + at.saturating_duration_since(began);
        let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH);
        let at = since_epoch.map_or(0, micros);
        let mut line = serde_json::to_vec(&EventLine { at, event }).unwrap_or_default();
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&line) {
            tracing::error!(%error, "cannot write the log of the gateway");
        }
    }

    /// Logs when the gateway did not run. Never ends.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            let asleep = Instant::now();
            tokio::time::sleep(TICK).await;
            let now = Instant::now();
            let late = now.duration_since(asleep).saturating_sub(TICK);
            if late > TICK {
                let micros = micros(late);
                self.write(now, LogEvent::Stalled { micros });
            }
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
