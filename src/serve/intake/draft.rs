//! One campaign that is being made: its list, and the fields that were filled in so far.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::{Map, Value};
use smsq_operations::{ListOptions, OperationError};
use smsq_process::atomic_file::AtomicFile;

use super::folder::{FILE, PROBLEM, REJECTS, REQUEST, SAMPLE, names};
use super::message::digest;
use super::upload_request::{FieldError, UploadRequest};

/// The fields of a draft that decide how its list is read.
const READ: &str = "column region international national delimiter encoding sheet";

/// The fields that decide what the messages are, in addition to those that decide how the list is read.
const TEXT: &str = "text smart provider from";

/// A campaign that is being made.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(super) folder: PathBuf,
    /// The name of the list.
    pub(crate) file: String,
    pub(crate) request: UploadRequest,
    pub(crate) changed: SystemTime,
}

impl Draft {
    pub(super) fn read(folder: PathBuf) -> Option<Self> {
        let request = File::open(folder.join(REQUEST)).ok()?;
        let changed = request.metadata().and_then(|found| found.modified()).ok()?;
        Some(Self {
            id: folder.file_name()?.to_str()?.to_owned(),
            file: names(&folder.join(FILE)).next()?,
            request: UploadRequest::read(&request).ok()?,
            changed,
            folder,
        })
    }

    pub(super) fn list(&self) -> PathBuf {
        self.folder.join(FILE).join(&self.file)
    }

    pub(super) fn rejects(&self) -> PathBuf {
        self.folder.join(REJECTS)
    }

    /// The file with the rejected rows that the check found.
    pub(crate) fn rejects_file(&self) -> Option<PathBuf> {
        Some(self.rejects()).filter(|path| path.exists())
    }

    /// Why the import failed after the draft was started.
    pub(crate) fn problem(&self) -> Option<String> {
        fs::read_to_string(self.folder.join(PROBLEM)).ok()
    }

    /// The options of its import.
    pub(crate) fn options(&self, lists: &ListOptions) -> Result<ListOptions, FieldError> {
        self.request.options(lists, &self.list(), Some(&self.rejects()))
    }

    /// The draft with only these fields, by their names.
    fn with_fields(&self, names: &str) -> Self {
        let mut draft = self.clone();
        let fields = &mut draft.request.fields;
        fields.retain(|field| names.split(' ').any(|name| name == field.name));
        draft
    }

    /// The options that decide how the list is read.
    pub(crate) fn read_options(&self, lists: &ListOptions) -> Result<ListOptions, FieldError> {
        self.with_fields(READ).options(lists)
    }

    /// The options that decide what the messages are.
    pub(crate) fn text_options(&self, lists: &ListOptions) -> Result<ListOptions, FieldError> {
        self.with_fields(&format!("{READ} {TEXT}")).options(lists)
    }

    /// These options for a list with its first rows.
    pub(super) fn for_sample(mut options: ListOptions) -> ListOptions {
        let list = &mut options.list;
        (list.delimiter, list.encoding, list.sheet) = (None, None, None);
        (options.at, options.expires, options.max_rejects) = (None, None, None);
        options
    }

    /// Identifies how its list is read.
    pub(super) fn reading(&self) -> String {
        let reading = self.with_fields(READ);
        digest(serde_json::to_vec(&reading.request.fields).unwrap_or_default())
    }

    /// Stores its fields.
    pub(crate) fn save(&self) -> io::Result<()> {
        // A started draft has another folder, and is not changed any more.
        self.write(REQUEST, &serde_json::to_vec(&self.request)?)?;
        match fs::remove_file(self.folder.join(PROBLEM)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = AtomicFile::create(&self.folder.join(name))?;
        file.write_all(content)?;
        file.replace()
    }

    /// Stores the first rows of the list.
    pub(super) fn write_sample(&self, columns: &[String], rows: &[Vec<String>]) -> io::Result<()> {
        self.write(SAMPLE, &json_lines(columns, rows, &[]))
    }
}

/// The rows as JSON lines, with values that replace or follow theirs.
pub(super) fn json_lines(
    columns: &[String],
    rows: &[Vec<String>],
    more: &[(&str, &str)],
) -> Vec<u8> {
    let mut lines = Vec::new();
    for row in rows {
        let cells = columns.iter().zip(row);
        let named = cells.filter(|(name, _)| !name.is_empty());
        let mut object: Map<String, Value> =
            named.map(|(name, cell)| (name.clone(), Value::from(cell.as_str()))).collect();
        for (name, value) in more {
            object.insert((*name).to_owned(), Value::from(*value));
        }
        lines.extend_from_slice(Value::from(object).to_string().as_bytes());
        lines.push(b'\n');
    }
    lines
}

/// An error with its hint, as a sentence.
pub(super) fn described(error: &OperationError) -> String {
    let hint = error.hint().map(|hint| format!("; {hint}"));
    format!("{error}{}", hint.unwrap_or_default())
}
