//! Why a configuration is invalid, and where the value was set.

use std::fmt;

/// Where a value was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A file, and the line if it is known.
    File(String, Option<usize>),
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
    #[default]
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file, Some(line)) => write!(f, "{file}:{line}"),
            Self::File(file, None) => f.write_str(file),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => f.write_str(flag),
            Self::Default => f.write_str("built-in defaults"),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration `{file}`: {source}")]
    Unreadable { file: String, source: std::io::Error },
    #[error("{origin}: invalid TOML: {reason}")]
    Syntax { origin: Origin, reason: String },
    #[error("{origin}: unknown setting `{key}`")]
    UnknownKey { origin: Origin, key: String, hint: String },
    #[error("{origin}: invalid {}`{key}`: expected {expected}", value_of(value.as_deref()))]
    Value {
        origin: Origin,
        key: String,
        /// `None` if it may be a secret.
        value: Option<String>,
        expected: String,
    },
    #[error("{origin}: invalid hook `{name}`: {reason}")]
    Hook { origin: Origin, name: String, reason: String },
    #[error("{origin}: invalid route `{name}`: {reason}")]
    Route { origin: Origin, name: String, reason: String },
}

fn value_of(value: Option<&str>) -> String {
    value.map_or_else(String::new, |value| format!("value `{value}` of "))
}

impl ConfigError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unreadable { .. } => Some("`smsq init` writes an example"),
            Self::UnknownKey { hint, .. } => Some(hint),
            Self::Syntax { .. } | Self::Value { .. } | Self::Hook { .. } | Self::Route { .. } => {
                None
            }
        }
    }
}
