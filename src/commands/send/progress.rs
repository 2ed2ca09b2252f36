//! Runs the sender with a progress bar, one line per message with `-v`, and signals that stop it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::HumanCount;
use smsq_message::text::duration;
use smsq_process::console::{self, Console, Verbosity};
use smsq_process::exit::Exit;
use smsq_process::service_manager::ServiceManager;
use smsq_sender::{MessageEvent, Progress, RunSummary, Sender};
use smsq_store::Mode;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::commands::signals::Signals;

const UPDATE_EVERY: Duration = Duration::from_millis(200);
/// How often the service manager gets a status line.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// How long an error is shown after it happened.
const ERROR_SHOWN_FOR: Duration = Duration::from_secs(60);

/// Runs the sender. The first signal lets requests in flight finish, the second one ends the process. Returns
/// the signal that stopped the run.
pub(super) async fn run_with_progress(
    console: &Console,
    sender: &Sender,
    total: Option<u64>,
    signals: &mut Signals,
    service: &mut ServiceManager,
) -> anyhow::Result<(RunSummary, Option<Exit>)> {
    let (stop, stopped) = watch::channel(false);
    let progress = Arc::new(Progress::default());
    let is_verbose = console.verbosity == Verbosity::Verbose;
    let printing = is_verbose.then(|| {
        let (events, received) = mpsc::unbounded_channel();
        (events, tokio::spawn(print_events(console.clone(), received)))
    });
    let (events, printer) = printing.unzip();
    let what = if sender.mode().is_practice() { "practice: sending" } else { "sending" };
    let bar = console.progress(total, what);
    let mut running = Box::pin(sender.run(stopped, Arc::clone(&progress), events));
    let mut update = tokio::time::interval(UPDATE_EVERY);
    let mut reports = ServiceReports::new(service, total, sender.mode());
    let mut signal = None;
    let summary = loop {
        tokio::select! {
            summary = &mut running => break summary?,
            exit = signals.next() => {
                if signal.replace(exit).is_some() {
                    return Err(Aborted::now(exit, &progress).into());
                }
                stop.send_replace(true);
                reports.service.stopping();
                console.status("stopping: requests in flight are settled first (again: stop at once)");
            }
            _ = update.tick() => {
                show(&progress, &bar, total);
                reports.update(&progress);
            }
        }
    };
    drop(bar);
    if let Some(printer) = printer {
        // It ends with the last event; a panic in it has been logged.
        let _ = printer.await;
    }
    Ok((summary, signal))
}

/// What the service manager gets to know of a run.
struct ServiceReports<'a> {
    service: &'a mut ServiceManager,
    total: Option<u64>,
    mode: Mode,
    heartbeats: u64,
    /// When the last status line was sent, and how many messages were sent by then.
    status: Option<(Instant, u64)>,
}

impl<'a> ServiceReports<'a> {
    fn new(service: &'a mut ServiceManager, total: Option<u64>, mode: Mode) -> Self {
        Self { service, total, mode, heartbeats: 0, status: None }
    }

    /// Once the worker has its lease it is ready, and it works as long as the lease is renewed.
    fn update(&mut self, progress: &Progress) {
        let heartbeats = progress.heartbeats.load(Ordering::Relaxed);
        if heartbeats != self.heartbeats {
            self.heartbeats = heartbeats;
            self.service.ready();
            self.service.alive();
        }
        self.update_status(progress);
    }

    fn update_status(&mut self, progress: &Progress) {
        let (now, sent) = (Instant::now(), progress.sent.load(Ordering::Relaxed));
        let rate = match self.status {
            Some((at, _)) if now.duration_since(at) < STATUS_EVERY => return,
            Some((at, before)) => {
                let new = u32::try_from(sent - before).map_or(f64::MAX, f64::from);
                new / now.duration_since(at).as_secs_f64()
            }
            None => 0.0,
        };
        self.status = Some((now, sent));
        let of = self.total.map(|total| format!(" of {}", HumanCount(total)));
        let of = of.unwrap_or_default();
        let note = progress.note().map(|note| format!("; {note}"));
        let note = note.unwrap_or_default();
        let sent = HumanCount(sent);
        let practice = if self.mode.is_practice() { "practice: " } else { "" };
        self.service.status(&format!("{practice}sent {sent}{of}, {rate:.0}/s{note}"));
    }
}

fn show(progress: &Progress, bar: &console::ProgressDisplay, total: Option<u64>) {
    let counts = [&progress.sent, &progress.failed, &progress.unknown];
    let done = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    if total.is_some_and(|total| done > total) {
        bar.set_total(done);
    }
    bar.set(done);
    bar.note(progress.note().or_else(|| last_failure(progress)).as_deref());
}

fn last_failure(progress: &Progress) -> Option<String> {
    let (at, reason) = progress.last_failure()?;
    let age = Duration::from_secs(at.elapsed().as_secs());
    match age.as_secs() {
        0 => Some(format!("last error: {reason}")),
        _ if age < ERROR_SHOWN_FOR => Some(format!("last error {} ago: {reason}", duration(age))),
        _ => None,
    }
}

/// Prints one line per message, with the phone masked.
async fn print_events(console: Console, mut events: mpsc::UnboundedReceiver<MessageEvent>) {
    while let Some(event) = events.recv().await {
        console.detail(&format!("{} {}: {}", event.sms_id, event.phone, event.what));
    }
}

/// A second signal ended the run without waiting for requests in flight.
#[derive(Debug, thiserror::Error)]
#[error("{}", match .leaves_unknown {
    true => "aborted: messages in flight are unknown",
    false => "aborted",
})]
pub(in crate::commands) struct Aborted {
    pub(in crate::commands) exit: Exit,
    leaves_unknown: bool,
}

impl Aborted {
    fn now(exit: Exit, progress: &Progress) -> Self {
        Self {
            exit,
            leaves_unknown: progress.has_unstored_results()
                || progress.in_flight.load(Ordering::Relaxed) > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abort_mentions_unknown_messages_only_with_requests_in_flight() {
        let progress = Progress::default();
        let idle = Aborted::now(Exit::Interrupted, &progress);
        assert_eq!(idle.to_string(), "aborted");
        progress.in_flight.store(1, Ordering::Relaxed);
        let busy = Aborted::now(Exit::Interrupted, &progress);
        assert!(busy.to_string().contains("unknown"), "{busy}");
    }
}
