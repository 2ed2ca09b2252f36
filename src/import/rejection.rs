//! Why a single row is not imported: a kind to count by, and the reason for the operator.

use crate::phone::PhoneError;
use crate::text::content::ContentError;

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
        Self {
            kind,
            reason: reason.into(),
        }
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
            PhoneError::NoRegion(_) => "no country code",
            PhoneError::Invalid(..) => "not a valid phone number",
            PhoneError::Ambiguous(_) => "with or without country code",
        };
        Self::new(kind, error.to_string())
    }
}
