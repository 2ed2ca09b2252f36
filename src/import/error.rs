//! A fault of the whole: the file, its columns, the text. Found before anything is written.

use std::io;
use std::path::{Path, PathBuf};

use super::consumer::ConsumerError;
use crate::store::StoreError;
use crate::text::template::TemplateError;

/// Why a file cannot be imported at all.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("`{file}` does not exist")]
    Missing { file: String },
    #[error("`{file}` is a folder")]
    Folder { file: String },
    #[error(transparent)]
    Queue(#[from] ConsumerError),
    #[error("`{file}` is empty")]
    Empty { file: String },
    #[error("`{file}` cannot be read")]
    Read { file: String, source: io::Error },
    #[error("`{file}` is not a text file: {what}")]
    Binary { file: String, what: &'static str },
    #[error("`{file}` is a device, not a file")]
    Device { file: String },
    #[error("`{file}` is not UTF-8: {what} at byte {byte}, line {line}")]
    Encoding {
        file: String,
        what: String,
        byte: u64,
        line: u64,
    },
    #[error("`{file}` mixes encodings: line {utf8} is UTF-8, line {other} is not")]
    Mixed { file: String, utf8: u64, other: u64 },
    #[error("`{file}` cannot be unpacked: {reason}")]
    Unpack { file: String, reason: String },
    #[error("`{file}` grows without measure when it is unpacked")]
    Bomb { file: String },
    #[error("`{file}` is an archive of {count} files: {files}")]
    ManyFiles {
        file: String,
        count: usize,
        files: String,
    },
    #[error("`{file}` cannot be read as a workbook: {reason}")]
    Workbook { file: String, reason: String },
    #[error("`{file}` is protected with a password")]
    Protected { file: String },
    #[error("`{file}` is too large for a workbook: {what}")]
    TooLarge { file: String, what: &'static str },
    #[error("`{file}` has no sheet `{sheet}`")]
    NoSheet {
        file: String,
        sheet: String,
        closest: Option<String>,
        sheets: String,
    },
    #[error("`{file}` is no workbook, and `--sheet` names a sheet")]
    NoWorkbook { file: String },
    #[error("`{file}` is one JSON array")]
    JsonArray { file: String },
    #[error("`{file}` has no JSON objects with a thousand keys or fewer, one on each line")]
    NoKeys { file: String },
    #[error(
        "`{file}`: {rejected} of {rows} rows would be rejected, and `max_rejects` allows {allowed}"
    )]
    TooManyRejects {
        file: String,
        rejected: u64,
        rows: u64,
        allowed: String,
        most: String,
    },
    #[error("`{file}` was imported into campaign `{campaign}` {ago}")]
    Again {
        file: String,
        campaign: String,
        ago: String,
    },
    #[error("`{file}`: line {line}: {reason}")]
    Header {
        file: String,
        line: u64,
        reason: String,
    },
    #[error("`{file}` has no header: its first line is `{first}`")]
    NoHeader { file: String, first: String },
    #[error("`{file}` has column `{column}` twice")]
    ColumnTwice { file: String, column: String },
    #[error("`{file}` has no phone column, only {columns}")]
    NoPhone {
        file: String,
        columns: String,
        /// The column whose values look like phones.
        likely: Option<String>,
    },
    #[error("`{file}` has more than one column that may hold the phone: {candidates}")]
    TwoPhones {
        file: String,
        candidates: String,
        first: String,
    },
    #[error("`--column {name}=…` is given twice")]
    RoleTwice {
        name: String,
        first: String,
        second: String,
    },
    #[error("`{flag}` names a column that smsq wrote")]
    OwnColumn { flag: String },
    #[error("unknown name `{name}` in `--column {name}={column}`: nothing uses it")]
    UnusedColumn {
        name: String,
        column: String,
        closest: Option<String>,
    },
    #[error("`{file}` has no column `{column}`, which `{flag}` names")]
    NoColumn {
        file: String,
        column: String,
        flag: String,
        closest: Option<String>,
    },
    #[error("`{placeholder}` in `{text}` is no column of `{file}`")]
    NoPlaceholder {
        placeholder: String,
        text: String,
        file: String,
        closest: Option<String>,
        columns: String,
    },
    #[error("`{placeholder}` in `{text}` may be column {columns} of `{file}`")]
    TwoPlaceholders {
        placeholder: String,
        text: String,
        file: String,
        columns: String,
    },
    #[error("`{file}` has no column `{column}`, which fills the template of provider `{provider}`")]
    NoParameter {
        file: String,
        column: String,
        provider: String,
        closest: Option<String>,
    },
    #[error("`{file}` has no column `content`, and no text was given")]
    NoText { file: String },
    #[error("`{name}` cannot be sent: {reason}")]
    Text { name: String, reason: String },
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("campaign `{campaign}` tells messages apart by `{stands}`, not by `{asked}`")]
    Unique {
        campaign: String,
        stands: String,
        asked: String,
    },
    #[error("the rejected rows cannot be written to `{}`", .file.display())]
    Rejects { file: PathBuf, source: io::Error },
    #[error("`--rejects` names a folder, `{}`", .folder.display())]
    RejectsFolder { folder: PathBuf },
    #[error("the rows of `{file}` are messages of several campaigns: {campaigns}")]
    Campaigns { file: String, campaigns: String },
    #[error("`{file}` was changed while it was imported")]
    Changed { file: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ImportError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        let closest =
            |word: &Option<String>| word.as_ref().map(|word| format!("did you mean `{word}`?"));
        match self {
            Self::Queue(fault) => fault.hint().map(str::to_owned),
            Self::Binary { .. } => Some("save it as CSV, in UTF-8".to_owned()),
            Self::Encoding { .. } => Some(
                "save it as UTF-8 (in a spreadsheet: save as, `CSV UTF-8`) and import it again"
                    .to_owned(),
            ),
            Self::NoHeader { .. } => {
                Some("put a line with the names of the columns first, `phone,name` say".to_owned())
            }
            Self::ColumnTwice { .. } => Some("give each column a name of its own".to_owned()),
            Self::NoPhone { likely, .. } => Some(format!(
                "say which one it is: `--column phone={}`",
                likely.as_deref().unwrap_or("COLUMN")
            )),
            Self::Mixed { .. } => Some(
                "save it in one encoding; or name one with `--encoding`, and the lines that are not in it are rejected"
                    .to_owned(),
            ),
            Self::Bomb { .. } | Self::Unpack { .. } => {
                Some("unpack it yourself and import what comes out".to_owned())
            }
            Self::ManyFiles { .. } => {
                Some("unpack it and name the files: several are imported at once".to_owned())
            }
            Self::Protected { .. } => {
                Some("open it, save it without the password and import that".to_owned())
            }
            Self::Workbook { .. } => Some("save the sheet as CSV and import that".to_owned()),
            Self::TooLarge { .. } => {
                Some("save the sheet as CSV: a CSV file may have any size".to_owned())
            }
            Self::NoSheet {
                closest: word,
                sheets,
                ..
            } => closest(word).or_else(|| Some(format!("its sheets are {sheets}"))),
            Self::JsonArray { .. } => Some(
                "write one object on each line: `jq -c '.[]' FILE | smsq import - …`".to_owned(),
            ),
            Self::TooManyRejects { most, .. } => Some(format!(
                "nothing was written; {most}; `--dry-run` shows some of them"
            )),
            Self::Again { .. } => Some(
                "everybody in it would get a message of this campaign too: `--again` if that is meant"
                    .to_owned(),
            ),
            Self::TwoPhones { first, .. } => {
                Some(format!("say which one it is: `--column phone={first}`"))
            }
            Self::RoleTwice {
                name,
                first,
                second,
            } if name == "phone" => Some(format!(
                "`--column phone={first},{second}` takes the first valid one"
            )),
            Self::OwnColumn { .. } => {
                Some("columns `smsq_…` are never part of a message: name another one".to_owned())
            }
            Self::UnusedColumn { closest: word, .. } => closest(word).or_else(|| {
                Some("leave it out, or use it in the text: `{{ NAME }}`".to_owned())
            }),
            Self::Rejects { .. } => {
                Some("name a file that can be written: `--rejects FILE`".to_owned())
            }
            Self::NoColumn { closest: word, .. } => closest(word),
            Self::NoPlaceholder {
                closest: word,
                columns,
                ..
            } => closest(word).or_else(|| Some(format!("its columns are {columns}"))),
            Self::NoParameter {
                column, closest, ..
            } => Some(format!(
                "say which one it is: `--column {column}={}`",
                closest.as_deref().unwrap_or("COLUMN")
            )),
            Self::NoText { .. } => Some("give the text with `--text` or `--template`".to_owned()),
            Self::Unique { stands, .. } => Some(format!(
                "import with `--unique {stands}`, or into another campaign"
            )),
            Self::RejectsFolder { folder } => Some(format!(
                "name a file in it: `--rejects {}`",
                folder.join("rejects.csv").display()
            )),
            Self::Campaigns { .. } => Some(
                "choose one with `--campaign NAME`, or import one campaign at a time: \
                 `smsq report --campaign NAME --failed` has the failures of one"
                    .to_owned(),
            ),
            Self::Changed { .. } => {
                Some("import it again: what is already there is not added twice".to_owned())
            }
            _ => None,
        }
    }

    pub(super) fn from_io(file: &Path, name: &str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing {
                file: name.to_owned(),
            },
            _ if file.is_dir() => Self::Folder {
                file: name.to_owned(),
            },
            _ => Self::Read {
                file: name.to_owned(),
                source,
            },
        }
    }
}
