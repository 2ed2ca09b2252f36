//! Errors of a whole list: of the file, its columns or the text, found before anything is written.

use std::io;
use std::path::{Path, PathBuf};

use super::summary::Summary;
use crate::store::StoreError;
use crate::text::counted;
use crate::text::template::TemplateError;

/// Why a list cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{message}")]
    Invalid {
        message: String,
        hint: Option<String>,
    },
    #[error("cannot read `{file}`")]
    Read { file: String, source: io::Error },
    #[error("cannot write rejected rows to `{}`", .file.display())]
    Rejects { file: PathBuf, source: io::Error },
    #[error("missing header in `{file}`: its first line is `{first}`")]
    NoHeader { file: String, first: String },
    #[error("missing phone column in `{file}`: it has only {columns}")]
    NoPhone {
        file: String,
        columns: String,
        /// The column whose values look like phones.
        likely: Option<String>,
    },
    #[error("missing column `content` in `{file}`, and no text is given")]
    NoText { file: String },
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ImportError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn hinted(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    /// More rows would be rejected than `limit` allows.
    pub fn too_many_rejects(file: &str, summary: &Summary, limit: &str) -> Self {
        let (kind, count) = summary
            .reasons
            .sorted()
            .first()
            .copied()
            .unwrap_or_default();
        Self::hinted(
            format!(
                "`{file}`: {} of {} rows would be rejected, and `max_rejects` is {limit}",
                summary.rejected, summary.rows
            ),
            format!(
                "nothing was written; most frequent: {kind} ({}); `--dry-run` shows some of them",
                counted(count, "row")
            ),
        )
    }

    /// Another campaign has the list already.
    pub fn already_imported(file: &str, campaign: &str, ago: &str) -> Self {
        Self::hinted(
            format!("`{file}` was imported into campaign `{campaign}` {ago} ago"),
            "every recipient in it would get a message of this campaign too: add `--again` to do that",
        )
    }

    /// Returns what to do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. } => hint.clone(),
            Self::Rejects { .. } => {
                Some("name a file that can be written: `--rejects FILE`".to_owned())
            }
            Self::NoHeader { .. } => Some(
                "add a first line with the names of the columns, such as `phone,name`".to_owned(),
            ),
            Self::NoPhone { likely, .. } => Some(format!(
                "name it: `--column phone={}`",
                likely.as_deref().unwrap_or("COLUMN")
            )),
            Self::NoText { .. } => Some("give the text with `--text` or `--template`".to_owned()),
            Self::Consumer(error) => error.hint().map(str::to_owned),
            Self::Store(error) => error.hint().map(str::to_owned),
            Self::Read { .. } | Self::Template(_) => None,
        }
    }

    pub(super) fn read(file: &str) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Read {
            file: file.to_owned(),
            source,
        }
    }

    /// An error of opening `path`, which messages call `name`.
    pub(super) fn open(path: &Path, name: &str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::new(format!("`{name}` does not exist")),
            _ if path.is_dir() => Self::new(format!("`{name}` is a folder")),
            _ => Self::read(name)(source),
        }
    }
}

/// Why a Redis list cannot be consumed.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    #[error("invalid Redis url: {reason}; use `redis://host:6379/0`")]
    Url { reason: String },
    #[error("`{server}` refuses the login: it needs another user or password")]
    Login { server: String },
    #[error("key `{key}` of `{server}` is not a list")]
    NotAList { server: String, key: String },
    #[error("`{server}` is a cluster, and the keys of the list are on several of its nodes")]
    Cluster { server: String },
    #[error("cannot use `{server}`: {reason}")]
    Server {
        server: String,
        reason: String,
        /// The server may come back soon.
        is_away: bool,
    },
    #[error("another importer took over from this one, which was silent for too long")]
    TakenOver,
}

impl ConsumerError {
    pub(super) fn is_away(&self) -> bool {
        matches!(self, Self::Server { is_away: true, .. })
    }

    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Login { .. } => Some(
                "set the password as SMSQ__REDIS__PASSWORD, the user in the url: `redis://user@host/0`",
            ),
            Self::NotAList { .. } => Some("`redis-cli TYPE KEY` shows what it is"),
            Self::Server { is_away: true, .. } => Some(
                "nothing is lost: run it again when the server is back; use `rediss://` for TLS",
            ),
            Self::TakenOver => Some("nothing is lost or duplicated: run it again"),
            Self::Url { .. } | Self::Cluster { .. } | Self::Server { .. } => None,
        }
    }
}
