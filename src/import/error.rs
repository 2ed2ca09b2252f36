//! Why a list cannot be imported, which is found before anything is written, and why a single row is not.

use std::io;
use std::path::Path;

use smsq_message::phone::PhoneError;
use smsq_message::text::content::ContentError;
use smsq_message::text::printable_line;
use smsq_process::jobs::Over;
use smsq_store::{SourceError, StoreError};
use zip::result::ZipError;

/// Why a list cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{message}")]
    Invalid { message: String, hint: Option<String> },
    #[error("missing header in `{list}`: its first line is `{first}`")]
    NoHeader { list: String, first: String },
    #[error("missing phone column in `{list}`: it has only {columns}")]
    NoPhone {
        list: String,
        columns: String,
        /// The column whose values look like phones.
        likely: Option<String>,
        /// Which sheet of a workbook it is, and which others there are.
        sheet: Option<String>,
    },
    #[error("missing column `content` in `{list}`, and no text is given")]
    NoText { list: String },
    /// The list was not read to its end.
    #[error("cannot read the list: {0}")]
    Over(#[from] Over),
    /// The Redis server may come back soon.
    #[error("cannot use `{server}`: {reason}")]
    ServerUnavailable { server: String, reason: String },
    /// The database that a list is read from may be available again soon.
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ImportError {
    pub(super) fn new(message: impl AsRef<str>) -> Self {
        Self::with_hint(message, None)
    }

    pub(super) fn hinted(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::with_hint(message, Some(hint.as_ref()))
    }

    /// On one line each: they may have parts of a list.
    pub(super) fn with_hint(message: impl AsRef<str>, hint: Option<&str>) -> Self {
        Self::Invalid {
            message: printable_line(message.as_ref()).into_owned(),
            hint: hint.map(|hint| printable_line(hint).into_owned()),
        }
    }

    pub(super) fn read(list: &str) -> impl Fn(io::Error) -> Self + Copy + '_ {
        move |error| Self::new(format!("cannot read `{list}`: {error}"))
    }

    /// An error of opening `path`, which messages call `name`.
    pub(super) fn open(path: &Path, name: &str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::new(format!("`{name}` does not exist")),
            _ if path.is_dir() => Self::new(format!("`{name}` is a folder")),
            _ => Self::read(name)(error),
        }
    }

    pub(super) fn protected(list: &str) -> Self {
        Self::hinted(
            format!("`{list}` is protected with a password"),
            "open it, save it without the password and import that",
        )
    }

    /// Returns what to do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. } => hint.clone(),
            Self::NoHeader { .. } => Some(
                "add a first line with the names of the columns, such as `phone,name`".to_owned(),
            ),
            Self::NoPhone { likely: None, sheet: Some(sheet), .. } => {
                Some(format!("name it: `--column phone=COLUMN`; this is {sheet}"))
            }
            Self::NoPhone { likely, .. } => Some(format!(
                "name it: `--column phone={}`",
                printable_line(likely.as_deref().unwrap_or("COLUMN"))
            )),
            Self::NoText { .. } => Some("give the text with `--text` or `--template`".to_owned()),
            Self::ServerUnavailable { .. } => Some(
                "nothing is lost: run it again when the server is back; use `rediss://` for TLS"
                    .to_owned(),
            ),
            Self::Over(_) => None,
            Self::Source(error) => error.hint.clone(),
            Self::Store(error) => error.hint().map(str::to_owned),
        }
    }
}

/// What is wrong with an archive that ends too early or has invalid bytes.
pub(super) const DAMAGED: &str = "it is damaged or cut off";

/// Returns what is wrong with an archive, `None` if it needs a password.
pub(super) fn zip_reason(error: &ZipError) -> Option<String> {
    Some(match error {
        ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) => return None,
        ZipError::UnsupportedArchive(_) => "its compression is not supported".to_owned(),
        ZipError::InvalidArchive(_) | ZipError::FileNotFound => DAMAGED.to_owned(),
        ZipError::Io(error) => unpack_reason(error),
        other => other.to_string(),
    })
}

/// Returns what is wrong with compressed data.
pub(super) fn unpack_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            DAMAGED.to_owned()
        }
        _ => error.to_string(),
    }
}

/// The kind of rows whose number does not exist.
pub(super) const DEAD: &str = "no such number";

/// Why a row is not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Rows of the same kind are counted together.
    pub kind: &'static str,
    /// What is wrong with this row and how to fix it.
    pub reason: String,
}

impl Rejection {
    pub(super) fn new(kind: &'static str, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    /// The row of a number that does not exist, and who said so.
    pub(super) fn dead(reason: impl Into<String>) -> Self {
        Self::new(DEAD, reason)
    }
}

impl From<ContentError> for Rejection {
    fn from(error: ContentError) -> Self {
        let kind = match error {
            ContentError::Empty | ContentError::Blank => "empty text",
            ContentError::Control(_) => "control character",
            ContentError::TooLong(_) => "text too long",
        };
        Self::new(kind, error.to_string())
    }
}

impl From<PhoneError> for Rejection {
    fn from(error: PhoneError) -> Self {
        let kind = match &error {
            PhoneError::Empty => "no phone",
            PhoneError::NotANumber(_) => "not a phone number",
            PhoneError::Scientific(_) => "scientific notation",
            PhoneError::Several(_) => "several numbers in one field",
            PhoneError::NoRegion(_) | PhoneError::NoCountryCode(_) => "no country code",
            PhoneError::Invalid(..) | PhoneError::Unassigned(..) => "not a valid phone number",
            PhoneError::Ambiguous(..) | PhoneError::AmbiguousMobile(..) => {
                "of two countries without `+`"
            }
            PhoneError::OtherCountry(..) => "of another country without `+`",
            PhoneError::Excluded(..) => "not one of your countries",
        };
        Self::new(kind, error.to_string())
    }
}
