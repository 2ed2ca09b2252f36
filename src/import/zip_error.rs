//! Errors of compressed files, in one sentence for the operator.

use std::io;

use zip::result::ZipError;

pub(super) const DAMAGED: &str = "it is damaged or cut off";

/// Returns the reason, `None` if a password is needed.
pub(super) fn reason(error: &ZipError) -> Option<String> {
    Some(match error {
        ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) => return None,
        ZipError::UnsupportedArchive(_) => "its compression is not supported".to_owned(),
        ZipError::InvalidArchive(_) | ZipError::FileNotFound => DAMAGED.to_owned(),
        ZipError::Io(error) => io_reason(error),
        other => other.to_string(),
    })
}

pub(super) fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            DAMAGED.to_owned()
        }
        _ => error.to_string(),
    }
}
