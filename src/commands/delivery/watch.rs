//! The sender under the eyes of the operator: the bar, the commentary, and the signals that stop it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::commands::signals::Signals;
use crate::commands::words::duration;
use crate::console::{Console, Talk};
use crate::exit::Exit;
use crate::sender::{Event, Progress, Sender, Summary};

/// How often the progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// An error that is older says nothing of what goes on now.
const OF_LATE: Duration = Duration::from_secs(60);

/// Runs the sender under the eyes of the operator. The first signal stops it gently, the second at once.
pub(super) async fn watched(
    console: &Console,
    sender: Sender,
    total: Option<u64>,
) -> anyhow::Result<(Summary, Option<Exit>)> {
    let mut signals = Signals::listen()?;
    let (stop, stopped) = watch::channel(false);
    let progress = Arc::new(Progress::default());
    let (events, shown) = match console.talk {
        Talk::Much => {
            let (events, received) = mpsc::unbounded_channel();
            (
                Some(events),
                Some(tokio::spawn(show(console.clone(), received))),
            )
        }
        _ => (None, None),
    };
    let bar = console.progress(total, "sending");
    let running = sender.run(stopped, Arc::clone(&progress), events);
    tokio::pin!(running);
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut signal = None;
    let summary = loop {
        tokio::select! {
            summary = &mut running => break summary?,
            exit = signals.next() => {
                if signal.replace(exit).is_some() {
                    return Err(Aborted::now(exit, &progress).into());
                }
                stop.send_replace(true);
                console.say("stopping: what is on its way is settled first (again: stop at once)");
            }
            _ = look.tick() => look_at(&progress, &bar, total),
        }
    };
    drop(bar);
    if let Some(shown) = shown {
        // It ends with the last event; a panic in it is in the log already.
        let _ = shown.await;
    }
    Ok((summary, signal))
}

fn look_at(progress: &Progress, bar: &crate::console::Progress, total: Option<u64>) {
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

/// The latest failure.
fn last_error(progress: &Progress) -> Option<String> {
    let (at, reason) = progress.last_error()?;
    let age = Duration::from_secs(at.elapsed().as_secs());
    let is_late = age < OF_LATE;
    is_late.then(|| match age.as_secs() {
        0 => format!("last error: {reason}"),
        _ => format!("last error {} ago: {reason}", duration(age)),
    })
}

/// One masked line per message.
async fn show(console: Console, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        console.detail(&format!("{} {}: {}", event.sms_id, event.phone, event.what));
    }
}

/// A second signal: nothing was waited for.
#[derive(Debug, thiserror::Error)]
#[error("{}", match .leaves_unknown {
    true => "aborted: the messages that were on their way are unknown",
    false => "aborted",
})]
pub(in crate::commands) struct Aborted {
    pub(in crate::commands) exit: Exit,
    leaves_unknown: bool,
}

impl Aborted {
    fn now(exit: Exit, progress: &Progress) -> Self {
        // While the database is away, answers wait in memory; that is a note too.
        let is_held_up = progress.note().is_some();
        Self {
            exit,
            leaves_unknown: is_held_up || progress.in_flight.load(Ordering::Relaxed) > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_aborts_hears_of_the_unknown_only_when_something_was_on_its_way() {
        let progress = Progress::default();
        let idle = Aborted::now(Exit::Interrupted, &progress);
        assert_eq!(idle.to_string(), "aborted");
        progress.in_flight.store(1, Ordering::Relaxed);
        let busy = Aborted::now(Exit::Interrupted, &progress);
        assert!(busy.to_string().contains("unknown"), "{busy}");
    }
}
