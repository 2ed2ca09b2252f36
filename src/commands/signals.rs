//! The signals that ask a process to end.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::exit::Exit;
use crate::process;

/// A signal that comes again so soon is the same one: `timeout`, a shell or a supervisor may send it to
/// the process and to its group.
const SAME_WITHIN: Duration = Duration::from_secs(1);

/// SIGINT, SIGTERM and SIGHUP, from the moment this is made: none ends the process by itself any more.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where the process was started with this signal ignored, as by `nohup`.
    hang_up: Option<Signal>,
    last: Option<Received>,
}

#[derive(Clone, Copy, Debug)]
struct Received {
    exit: Exit,
    at: Instant,
}

impl Received {
    fn is_again(self, earlier: Option<Self>) -> bool {
        earlier.is_some_and(|earlier| {
            earlier.exit == self.exit && self.at.duration_since(earlier.at) < SAME_WITHIN
        })
    }
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: if process::ignores_hang_up() {
                None
            } else {
                Some(signal(SignalKind::hangup())?)
            },
            last: None,
        })
    }

    /// Waits for the next of them, and tells how a command that it stopped ends.
    pub(crate) async fn next(&mut self) -> Exit {
        loop {
            let exit = tokio::select! {
                _ = self.interrupt.recv() => Exit::Interrupted,
                _ = self.terminate.recv() => Exit::Terminated,
                Some(()) = received(&mut self.hang_up) => Exit::HungUp,
            };
            let at = Instant::now();
            let received = Received { exit, at };
            if !received.is_again(self.last) {
                self.last = Some(received);
                return exit;
            }
        }
    }
}

async fn received(signal: &mut Option<Signal>) -> Option<()> {
    signal.as_mut()?.recv().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_signal_within_a_second_is_one_signal() {
        let start = Instant::now();
        let received = |exit, millis| Received {
            exit,
            at: start + Duration::from_millis(millis),
        };
        let first = received(Exit::Interrupted, 0);
        assert!(!first.is_again(None));
        assert!(received(Exit::Interrupted, 0).is_again(Some(first)));
        assert!(received(Exit::Interrupted, 999).is_again(Some(first)));
        assert!(!received(Exit::Interrupted, 1_000).is_again(Some(first)));
        assert!(!received(Exit::Terminated, 1).is_again(Some(first)));
    }
}
