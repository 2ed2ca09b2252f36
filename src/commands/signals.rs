//! The signals that ask the process to stop. They are watched from its start: until a command listens to them, they
//! end the process with the documented exit status.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smsq_process::console::Console;
use smsq_process::exit::Exit;
use smsq_process::identity;
use smsq_process::jobs::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// `timeout`, a shell or a supervisor may send a signal to the process and to its group: the same signal within
/// this time counts once, whether a command listens or has just ended.
const SAME_WITHIN: Duration = Duration::from_secs(1);

/// How long a command may take to end after a second signal: it writes down results that are not stored.
const ABORT_WITHIN: Duration = Duration::from_secs(5);

/// A signal ended the process while no command listened to it.
#[derive(Debug, thiserror::Error)]
#[error("stopped by {}", .0.signal())]
pub(super) struct Stopped(pub(super) Exit);

/// SIGINT, SIGTERM and SIGHUP of this process. The first one that a command listens to begins the stop of the process, the
/// second one ends the time for it.
#[derive(Clone, Default)]
pub(crate) struct SignalWatch {
    listener: Arc<Mutex<Option<mpsc::UnboundedSender<Exit>>>>,
    stop: Stop,
}

impl SignalWatch {
    /// Watches the signals in a task of the current runtime, which continues while a command blocks its thread.
    pub(crate) fn start(console: Console, stop: Stop) -> io::Result<Self> {
        let hang_up = (!identity::ignores_hang_up()).then(|| signal(SignalKind::hangup()));
        let mut received = Received {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: hang_up.transpose()?,
        };
        let watch = Self { stop, ..Self::default() };
        let listener = watch.clone();
        tokio::spawn(async move {
            let mut last = None;
            loop {
                let exit = received.next().await;
                let now = Instant::now();
                if is_same(exit, now, last) {
                    continue;
                }
                last = Some((exit, now));
                // Before the command hears of it, and begins the stop, too.
                let is_stopping = listener.stop.has_begun();
                listener.stop.begin();
                let is_heard =
                    listener.lock().as_ref().is_some_and(|sender| sender.send(exit).is_ok());
                if !is_heard {
                    end_process(&console, exit);
                }
                if is_stopping {
                    listener.stop.abort();
                    let console = console.clone();
                    tokio::spawn(async move {
                        // A statement may block the thread of the command.
                        tokio::time::sleep(ABORT_WITHIN).await;
                        end_process(&console, exit);
                    });
                }
            }
        });
        Ok(watch)
    }

    /// From now on, until the returned value is dropped, signals do not end the process.
    pub(crate) fn listen(&self) -> Signals {
        let (sender, received) = mpsc::unbounded_channel();
        *self.lock() = Some(sender);
        tracing::debug!("signals stop the command in order");
        Signals { watch: self.clone(), received }
    }

    fn lock(&self) -> MutexGuard<'_, Option<mpsc::UnboundedSender<Exit>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a command has done is committed, as if it had been killed.
#[expect(clippy::exit, reason = "the command may block its thread, and has nothing to finish")]
fn end_process(console: &Console, exit: Exit) -> ! {
    super::report_error(console, &Stopped(exit).into());
    std::process::exit(i32::from(exit as u8))
}

struct Received {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where the process was started with SIGHUP ignored, as by `nohup`.
    hang_up: Option<Signal>,
}

impl Received {
    async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
            Some(()) = received(&mut self.hang_up) => Exit::HungUp,
        }
    }
}

/// The signals while a command listens to them.
pub(crate) struct Signals {
    watch: SignalWatch,
    received: mpsc::UnboundedReceiver<Exit>,
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.watch.lock().take();
    }
}

impl Signals {
    /// Waits for the next signal; returns the exit status of a command that it stops.
    pub(crate) async fn next(&mut self) -> Exit {
        match self.received.recv().await {
            Some(exit) => exit,
            // Another listener has replaced this one.
            None => std::future::pending().await,
        }
    }
}

fn is_same(exit: Exit, at: Instant, last: Option<(Exit, Instant)>) -> bool {
    last.is_some_and(|(last, last_at)| last == exit && at.duration_since(last_at) < SAME_WITHIN)
}

async fn received(signal: &mut Option<Signal>) -> Option<()> {
    signal.as_mut()?.recv().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_signal_within_a_second_counts_once() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let first = Some((Exit::Interrupted, start));
        assert!(!is_same(Exit::Interrupted, start, None));
        assert!(is_same(Exit::Interrupted, start, first));
        assert!(is_same(Exit::Interrupted, after(999), first));
        assert!(!is_same(Exit::Interrupted, after(1_000), first));
        assert!(!is_same(Exit::Terminated, after(1), first));
    }
}
