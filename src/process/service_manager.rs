//! What a process reports to the service manager that started it, which is systemd: that it is ready, what it does, and
//! that it still works. Without one, nothing is reported.

use sd_notify::NotifyState;

/// The most characters of a status line.
const STATUS_LENGTH: usize = 200;

/// The service manager of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceManager {
    is_ready: bool,
    is_stopping: bool,
}

impl ServiceManager {
    /// Reports once that the service does its work.
    pub fn ready(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            report(NotifyState::Ready);
        }
    }

    /// Reports what the service does, in one line for people.
    pub fn status(&self, line: &str) {
        let line: String =
            line.replace(char::is_control, " ").chars().take(STATUS_LENGTH).collect();
        report(NotifyState::Status(&line));
    }

    /// Reports that the service still works, for `WatchdogSec=`.
    pub fn alive(&self) {
        report(NotifyState::Watchdog);
    }

    /// Reports once that the service ends.
    pub fn stopping(&mut self) {
        if !self.is_stopping {
            self.is_stopping = true;
            report(NotifyState::Stopping);
        }
    }
}

fn report(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager could not be notified");
    }
}
