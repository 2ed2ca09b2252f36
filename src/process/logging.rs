//! The log: `tracing` events on standard error, as text or JSON. Events contain no whole phone, no text and no secret,
//! because the types that are logged mask them.

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use super::console::Console;

/// Section `[log]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub level: Level,
    pub format: LogFormat,
}

/// The log of commands without a configuration.
impl Default for Config {
    fn default() -> Self {
        Self { level: Level::Warn, format: LogFormat::Text }
    }
}

/// The least important events that are logged.
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

/// The format of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

impl Level {
    /// The level after `verbose` times `-v`, or `-q`.
    #[must_use]
    pub fn adjusted(self, verbose: u8, quiet: bool) -> Self {
        match (quiet, verbose) {
            (true, _) => self.min(Self::Error),
            (false, 0) => self,
            (false, 1) => self.max(Self::Info),
            (false, _) => self.max(Self::Debug),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// This level for smsq, and at most `warn` for other crates, which may log what smsq masks. smsq reports rejected
    /// certificates itself.
    fn directives(self) -> String {
        let (others, own) = (self.min(Self::Warn).as_str(), self.as_str());
        format!("{others},rustls_platform_verifier=off,smsq={own}")
    }
}

/// Starts the log on standard error. Further calls in the same process have no effect.
pub fn start(config: Config, console: &Console) {
    let console = console.clone();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(config.level.directives()))
        .with_ansi(console.is_terminal)
        // It is the path of a module, which changes with the source.
        .with_target(false)
        .with_writer(move || console.log());
    let started = match config.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if started.is_err() {
        tracing::debug!("the log was started already");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_change_the_configured_level() {
        assert_eq!(Level::Warn.adjusted(0, false), Level::Warn);
        assert_eq!(Level::Warn.adjusted(1, false), Level::Info);
        assert_eq!(Level::Warn.adjusted(2, false), Level::Debug);
        assert_eq!(Level::Trace.adjusted(1, false), Level::Trace);
        assert_eq!(Level::Info.adjusted(0, true), Level::Error);
        assert_eq!(Level::Off.adjusted(0, true), Level::Off);
    }

    #[test]
    fn other_crates_log_at_most_warnings() {
        assert_eq!(Level::Debug.directives(), "warn,rustls_platform_verifier=off,smsq=debug");
        assert_eq!(Level::Error.directives(), "error,rustls_platform_verifier=off,smsq=error");
    }
}
