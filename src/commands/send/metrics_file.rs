//! The file of `--metrics-file`: the metrics of a run for the textfile collector of Prometheus, written at intervals and
//! at the end.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use smsq_message::sms::{Timestamp, millis};
use smsq_metrics::{Metrics, RunState};
use smsq_process::atomic_file::{AtomicFile, is_device};
use smsq_process::exit::Exit;
use smsq_store::Store;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::commands::{Context, exit_of, with_hint};

/// How often the file is written.
const EVERY: Duration = Duration::from_secs(10);
/// The state of a large queue is read less often, so that reading takes at most this part of the time.
const READING_SHARE: u32 = 20;
/// How long the end of the program waits for the state of the queue.
const LAST_READING: Duration = Duration::from_secs(5);
/// Other users may read a new file, because the collector is one of them.
const MODE: u32 = 0o644;

/// The metrics of a run, and their file if there is one.
pub(in crate::commands) struct MetricsFile {
    metrics: Arc<Metrics>,
    path: Option<PathBuf>,
    run: RunState,
    /// The task that writes the file at intervals, until its channel is closed.
    writer: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl MetricsFile {
    /// Fails if the file cannot be written.
    pub(in crate::commands) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::default());
        let mut run = RunState::default();
        if let Some(path) = path {
            if is_device(path) {
                return Err(with_hint(
                    format!("invalid metrics file `{}`: it is not a file", path.display()),
                    "use a path such as `/var/lib/prometheus/node-exporter/smsq.prom`",
                ));
            }
            run = RunState::read(&fs::read_to_string(path).unwrap_or_default());
            metrics.set_run(run);
            write(path, &metrics.text(None)).map_err(|error| cannot_write(path, &error))?;
        }
        Ok(Self { metrics, path: path.map(Path::to_owned), run, writer: None })
    }

    pub(in crate::commands) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Writes the file at intervals from now on.
    pub(in crate::commands) fn begin(&mut self, context: &Context, store: &Store) {
        let Some(path) = self.path.clone() else {
            return;
        };
        let (metrics, store) = (Arc::clone(&self.metrics), store.clone());
        let config = context.config.metrics;
        let default_provider = context.config.default_provider.clone();
        let (running, mut ended) = oneshot::channel();
        let writing = tokio::spawn(async move {
            let mut is_failing = false;
            loop {
                let began = Instant::now();
                let text = tokio::select! {
                    text = metrics.scrape(&store, config, default_provider.as_deref()) => text,
                    _ = &mut ended => return,
                };
                let took = began.elapsed();
                // Not interrupted: a write that continues could replace the last one.
                let written = write_elsewhere(path.clone(), text).await;
                if let Err(error) = &written
                    && !is_failing
                {
                    tracing::warn!(%error, "the metrics file could not be written");
                }
                is_failing = written.is_err();
                tokio::select! {
                    () = tokio::time::sleep(EVERY.max(took * READING_SHARE)) => {}
                    _ = &mut ended => return,
                }
            }
        });
        self.writer = Some((running, writing));
    }

    /// Writes the file a last time, with the end of the run. Returns how it ended.
    pub(in crate::commands) async fn end(
        mut self,
        context: &Context,
        store: Option<&Store>,
        ended: anyhow::Result<Exit>,
    ) -> anyhow::Result<Exit> {
        let Some(path) = self.path else {
            return ended;
        };
        if let Some((running, writing)) = self.writer {
            drop(running);
            // A panic in it has been logged.
            drop(writing.await);
        }
        let exit = ended.as_ref().map_or_else(exit_of, |exit| *exit);
        if matches!(exit, Exit::Done | Exit::Incomplete) {
            self.run.last_success_at = Some(now());
        }
        self.run.exit_code = Some(exit as u8);
        self.metrics.set_run(self.run);
        let config = &context.config;
        let mut text = self.metrics.text(None);
        if let Some(store) = store {
            let default_provider = config.default_provider.as_deref();
            let scrape = self.metrics.scrape(store, config.metrics, default_provider);
            if let Ok(whole) = tokio::time::timeout(LAST_READING, scrape).await {
                text = whole;
            }
        }
        if let Err(error) = write_elsewhere(path.clone(), text).await {
            context.console.warn(&cannot_write(&path, &error).to_string());
        }
        ended
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot write metrics file `{}`: {error}", path.display())
}

/// By the clock of this machine, as Prometheus reads it.
fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::UNIX_EPOCH.elapsed();
    Timestamp::from_millis(since_epoch.map_or(0, millis))
}

/// Writes the file on a thread that nothing else waits for.
async fn write_elsewhere(path: PathBuf, text: String) -> io::Result<()> {
    let written = tokio::task::spawn_blocking(move || write(&path, &text)).await;
    written.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let is_new = !path.exists();
    let mut file = AtomicFile::create(path)?;
    file.write_all(text.as_bytes())?;
    file.replace()?;
    if is_new {
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
    }
    Ok(())
}
