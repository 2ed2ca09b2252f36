//! What can be wrong with a configuration: which setting, where it was written, and what it wants.

use std::fmt;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file and, where it can be told, the line.
    File(String, Option<usize>),
    /// The name of an environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag(&'static str),
    /// The defaults that are built in.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file, Some(line)) => write!(f, "{file}:{line}"),
            Self::File(file, None) => f.write_str(file),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => f.write_str(flag),
            Self::Default => f.write_str("built-in defaults"),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("cannot read the configuration `{file}`: {source}")]
    Unreadable {
        file: String,
        source: std::io::Error,
    },
    #[error("{origin}: not valid TOML: {reason}")]
    Syntax { origin: Origin, reason: String },
    #[error("{origin}: `{key}` is not a setting")]
    UnknownKey {
        origin: Origin,
        key: String,
        closest: Option<String>,
    },
    /// `value` is `None` where it might be a secret.
    #[error("{origin}: `{key}` {}", refused(value.as_deref(), wanted))]
    Value {
        origin: Origin,
        key: String,
        value: Option<String>,
        wanted: String,
    },
}

fn refused(value: Option<&str>, wanted: &str) -> String {
    match value {
        Some(value) => format!("is `{value}`, but it must be {wanted}"),
        None => format!("must be {wanted}"),
    }
}

impl Fault {
    /// What the operator may do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unreadable { .. } => Some("`smsq init` writes one to start from".to_owned()),
            Self::UnknownKey {
                closest: Some(closest),
                ..
            } => Some(format!("did you mean `{closest}`?")),
            Self::UnknownKey { .. } => {
                Some("`smsq init` writes a file with the settings that there are".to_owned())
            }
            Self::Syntax { .. } | Self::Value { .. } => None,
        }
    }
}
