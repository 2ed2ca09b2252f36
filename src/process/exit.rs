//! The exit status of a command. Scripts depend on these numbers.

use std::process::ExitCode;

/// The exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, and everything was sent. For `import` and `run` also when some rows of a list were rejected.
    Done = 0,
    /// Done, but some messages failed, expired or are unknown; or no row of a list was usable.
    Incomplete = 1,
    /// Could not run: usage, configuration, database, file; or the user answered no. Nothing was changed. For a worker:
    /// a newer smsq has changed the tables; the results are stored.
    CouldNotRun = 2,
    /// Stopped before the end: account error, auto-pause, paused, provider down too long, `--no-wait`, a database that
    /// lost commits. Nothing was lost by smsq.
    Halted = 3,
    /// Stopped by SIGHUP (the terminal was closed), after settling requests in flight.
    HungUp = 129,
    /// Stopped by SIGINT, after settling requests in flight.
    Interrupted = 130,
    /// Stopped by SIGTERM, after settling requests in flight.
    Terminated = 143,
}

impl Exit {
    /// The signal that ends a command with this status.
    pub const fn signal(self) -> &'static str {
        match self {
            Self::HungUp => "SIGHUP",
            Self::Interrupted => "SIGINT",
            Self::Terminated => "SIGTERM",
            Self::Done | Self::Incomplete | Self::CouldNotRun | Self::Halted => "no signal",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
