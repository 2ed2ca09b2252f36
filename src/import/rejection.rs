//! Why a row was not imported: in the operator's words, and in a word under which such rows are counted.

use crate::phone::PhoneError;
use crate::text::content::ContentError;

/// Why a row was not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What rows with the same fault are counted under.
    pub kind: &'static str,
    /// What is wrong with this one and what to do about it.
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
            ContentError::Empty | ContentError::Blank => "an empty text",
            ContentError::Control(_) => "a control character",
            ContentError::TooLong(_) => "the text too long",
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
