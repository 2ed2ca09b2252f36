//! The signals that ask the process to stop.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::exit::Exit;
use crate::process;

/// `timeout`, a shell or a supervisor may send a signal to the process and to its group: the same signal within
/// this time counts once.
const SAME_WITHIN: Duration = Duration::from_secs(1);

/// SIGINT, SIGTERM and SIGHUP. Once this exists, they no longer end the process.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where the process was started with SIGHUP ignored, as by `nohup`.
    hang_up: Option<Signal>,
    last: Option<(Exit, Instant)>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let hang_up = (!process::ignores_hang_up()).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: hang_up.transpose()?,
            last: None,
        })
    }

    /// Waits for the next signal; returns the exit status of a command that it stops.
    pub(crate) async fn next(&mut self) -> Exit {
        loop {
            let exit = tokio::select! {
                _ = self.interrupt.recv() => Exit::Interrupted,
                _ = self.terminate.recv() => Exit::Terminated,
                Some(()) = received(&mut self.hang_up) => Exit::HungUp,
            };
            let received = (exit, Instant::now());
            if !is_same(received, self.last) {
                self.last = Some(received);
                return exit;
            }
        }
    }
}

fn is_same((exit, at): (Exit, Instant), last: Option<(Exit, Instant)>) -> bool {
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
        let after = |exit, millis| (exit, start + Duration::from_millis(millis));
        let first = Some(after(Exit::Interrupted, 0));
        assert!(!is_same(after(Exit::Interrupted, 0), None));
        assert!(is_same(after(Exit::Interrupted, 0), first));
        assert!(is_same(after(Exit::Interrupted, 999), first));
        assert!(!is_same(after(Exit::Interrupted, 1_000), first));
        assert!(!is_same(after(Exit::Terminated, 1), first));
    }
}
