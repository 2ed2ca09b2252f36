//! How a command ended, as the shell sees it. Scripts branch on these numbers: they do not change.

use std::process::ExitCode;

/// The exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, and everything was sent. For `import`: something usable was imported, also when rows
    /// were rejected.
    Done = 0,
    /// Done, but some messages failed, expired or are unknown, nothing of a list could be used, or `--limit` was
    /// reached and nothing was sent.
    Incomplete = 1,
    /// Could not run: usage, configuration, database, file; or the operator answered no. Nothing was changed.
    CouldNotRun = 2,
    /// Stopped before the end: account refused, brake, paused, provider away too long. Nothing was
    /// lost: mend it and `send` again.
    Halted = 3,
    /// Stopped by SIGHUP (the terminal was closed, the connection lost), after settling what was running.
    HungUp = 129,
    /// Stopped by SIGINT, after settling what was running.
    Interrupted = 130,
    /// Stopped by SIGTERM, after settling what was running.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
