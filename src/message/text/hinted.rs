//! What is wrong, and what can be done about it.

/// A message for people. The command line prints the hint on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Hinted {
    pub message: String,
    pub hint: Option<String>,
}

impl Hinted {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()) }
    }

    /// A message that needs no hint.
    pub fn plain(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// Both in one text, for errors that pass through other types: `Hinted::from` separates them again.
    pub fn joined(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}{SEPARATOR}{hint}", self.message),
            None => self.message.clone(),
        }
    }
}

/// Between message and hint in one text.
const SEPARATOR: &str = "\nhint: ";

impl From<String> for Hinted {
    fn from(text: String) -> Self {
        match text.split_once(SEPARATOR) {
            Some((message, hint)) => Self::new(message, hint),
            None => Self::plain(text),
        }
    }
}
