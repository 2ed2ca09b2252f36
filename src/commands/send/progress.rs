//! Runs the sender with a progress bar, one line per message with `-v`, and signals that stop it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::commands::signals::Signals;
use crate::console::{self, Console, Verbosity};
use crate::exit::Exit;
use crate::sender::{MessageEvent, Progress, RunSummary, Sender};
use crate::text::duration;

const UPDATE_EVERY: Duration = Duration::from_millis(200);

/// How long an error is shown after it happened.
const ERROR_SHOWN_FOR: Duration = Duration::from_secs(60);

/// Runs the sender. The first signal lets requests in flight finish, the second one ends the process. Returns
/// the signal that stopped the run.
pub(super) async fn run_with_progress(
    console: &Console,
    sender: &Sender,
    total: Option<u64>,
    signals: &mut Signals,
) -> anyhow::Result<(RunSummary, Option<Exit>)> {
    let (stop, stopped) = watch::channel(false);
    let progress = Arc::new(Progress::default());
    let is_verbose = console.verbosity == Verbosity::Verbose;
    let printing = is_verbose.then(|| {
        let (events, received) = mpsc::unbounded_channel();
        (
            events,
            tokio::spawn(print_events(console.clone(), received)),
        )
    });
    let (events, printer) = printing.unzip();
    let bar = console.progress(total, "sending");
    let running = sender.run(stopped, Arc::clone(&progress), events);
    tokio::pin!(running);
    let mut update = tokio::time::interval(UPDATE_EVERY);
    let mut signal = None;
    let summary = loop {
        tokio::select! {
            summary = &mut running => break summary?,
            exit = signals.next() => {
                if signal.replace(exit).is_some() {
                    return Err(Aborted::now(exit, &progress).into());
                }
                stop.send_replace(true);
                console.status("stopping: requests in flight are settled first (again: stop at once)");
            }
            _ = update.tick() => show(&progress, &bar, total),
        }
    };
    drop(bar);
    if let Some(printer) = printer {
        // It ends with the last event; a panic in it has been logged.
        let _ = printer.await;
    }
    Ok((summary, signal))
}

fn show(progress: &Progress, bar: &console::ProgressDisplay, total: Option<u64>) {
    let counts = [&progress.sent, &progress.failed, &progress.unknown];
    let done = counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .sum();
    if total.is_some_and(|total| done > total) {
        bar.set_total(done);
    }
    bar.set(done);
    bar.note(progress.note().or_else(|| last_error(progress)).as_deref());
}

fn last_error(progress: &Progress) -> Option<String> {
    let (at, reason) = progress.last_error()?;
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
        // While the database cannot be reached, results wait in memory, and there is a note.
        let has_unsaved_results = progress.note().is_some();
        Self {
            exit,
            leaves_unknown: has_unsaved_results || progress.in_flight.load(Ordering::Relaxed) > 0,
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
