//! The request of an upload: its fields, which role each needs, and who imports the file.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::text::listed;

/// A field of an upload: a flag of `smsq import` without `--`, and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportField {
    pub name: String,
    pub value: String,
}

/// What a field of an upload concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum UploadField {
    /// The list and its messages: role `send` is enough.
    List,
    /// The settings of the campaign, or a check that protects from mistakes: needs role `operate` too.
    Change,
}

/// All fields of an upload besides `file`. Other flags of `smsq import` name files, or belong to a terminal.
const UPLOAD_FIELDS: [(&str, UploadField); 21] = [
    ("campaign", UploadField::List),
    ("text", UploadField::List),
    ("column", UploadField::List),
    ("region", UploadField::List),
    ("international", UploadField::List),
    ("national", UploadField::List),
    ("smart", UploadField::List),
    ("unique", UploadField::List),
    ("at", UploadField::List),
    ("expires", UploadField::List),
    ("delimiter", UploadField::List),
    ("encoding", UploadField::List),
    ("sheet", UploadField::List),
    ("provider", UploadField::Change),
    ("from", UploadField::Change),
    ("window", UploadField::Change),
    ("days", UploadField::Change),
    ("timezone", UploadField::Change),
    ("fallback-timezone", UploadField::Change),
    ("max-rejects", UploadField::Change),
    ("again", UploadField::Change),
];

impl UploadField {
    pub(in crate::serve) fn named(name: &str) -> Option<Self> {
        let mut fields = UPLOAD_FIELDS.iter();
        fields
            .find(|(known, _)| *known == name)
            .map(|(_, field)| *field)
    }

    /// The names of all fields, as an error lists them.
    pub(in crate::serve) fn names() -> String {
        listed(UPLOAD_FIELDS.iter().map(|(name, _)| *name))
    }
}

/// What was posted with a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UploadRequest {
    pub fields: Vec<ImportField>,
    /// The name of the token.
    pub posted_by: String,
    /// Its role may change campaigns and replace failed messages.
    pub may_change: bool,
}

impl UploadRequest {
    /// Reads what the folder of an upload has. An older smsq wrote only the fields.
    pub(super) fn read(file: &File) -> io::Result<Self> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Stored {
            Request(UploadRequest),
            Fields(Vec<ImportField>),
        }
        Ok(match serde_json::from_reader(file)? {
            Stored::Request(request) => request,
            Stored::Fields(fields) => Self {
                fields,
                posted_by: String::new(),
                may_change: true,
            },
        })
    }
}

/// Imports a file as `smsq import` does.
pub trait FileImporter: Send + Sync {
    /// Checks the fields before the file is taken. An error is a sentence that says what to do.
    fn check(&self, request: &UploadRequest) -> Result<(), String>;

    /// Blocks until the file is imported, also while the database is away; returns the object that
    /// `smsq import --format json` prints, or `None` if `stop` became true before the end. Rejected rows are written to
    /// `rejects`. Imported again, it adds what is missing.
    fn import(
        &self,
        file: &Path,
        request: &UploadRequest,
        rejects: &Path,
        stop: watch::Receiver<bool>,
    ) -> Result<Option<Value>, String>;
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn request_of_an_older_smsq_is_read() {
        let mut file = tempfile::tempfile().expect("a file");
        let old = br#"[{"name":"text","value":"Hi"}]"#;
        file.write_all(old).expect("written");
        io::Seek::rewind(&mut file).expect("rewound");
        let request = UploadRequest::read(&file).expect("a request");
        assert_eq!((request.fields.len(), request.posted_by.as_str()), (1, ""));
    }
}
