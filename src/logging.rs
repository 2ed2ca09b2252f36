//! The log: `tracing` events to standard error, as text or JSON. It never holds a whole phone, a text
//! or a secret: those who log see to that with the masked types of their modules.

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::console::Console;

/// Section `[log]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub level: Level,
    pub format: Format,
}

/// What a command without a configuration logs.
impl Default for Config {
    fn default() -> Self {
        Self {
            level: Level::Warn,
            format: Format::Text,
        }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Text,
    Json,
}

impl Level {
    /// The level after `-v` was given `verbose` times, or `-q`.
    #[must_use]
    pub fn adjusted(self, verbose: u8, quiet: bool) -> Self {
        match (quiet, verbose) {
            (true, _) => self.min(Self::Error),
            (false, 0) => self,
            (false, 1) => self.max(Self::Info),
            (false, _) => self.max(Self::Debug),
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// smsq at this level, every other crate at most at `warn`: theirs may print what ours mask. A certificate that
    /// is refused is an error that smsq reports itself.
    fn directives(self) -> String {
        let (others, own) = (self.min(Self::Warn).word(), self.word());
        format!("{others},rustls_platform_verifier=off,smsq={own}")
    }
}

/// Starts the log, on the console's standard error; a second call in one process changes nothing.
pub fn start(config: Config, console: &Console) {
    let console = console.clone();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(config.level.directives()))
        .with_ansi(console.is_terminal)
        .with_writer(move || console.log());
    let started = match config.format {
        Format::Text => builder.with_target(false).try_init(),
        Format::Json => builder.json().try_init(),
    };
    if started.is_err() {
        tracing::debug!("the log was started already");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbose_raises_and_quiet_lowers_what_the_configuration_says() {
        assert_eq!(Level::Warn.adjusted(0, false), Level::Warn);
        assert_eq!(Level::Warn.adjusted(1, false), Level::Info);
        assert_eq!(Level::Warn.adjusted(2, false), Level::Debug);
        assert_eq!(Level::Trace.adjusted(1, false), Level::Trace);
        assert_eq!(Level::Info.adjusted(0, true), Level::Error);
        assert_eq!(Level::Off.adjusted(0, true), Level::Off);
    }

    #[test]
    fn other_crates_never_log_below_warn() {
        assert_eq!(
            Level::Debug.directives(),
            "warn,rustls_platform_verifier=off,smsq=debug"
        );
        assert_eq!(
            Level::Error.directives(),
            "error,rustls_platform_verifier=off,smsq=error"
        );
    }
}
