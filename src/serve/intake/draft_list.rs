//! What is recognised in the list of a draft.

use std::sync::atomic::AtomicU64;

use serde::Serialize;
use smsq_import::{ImportError, ListInspection, Options};
use smsq_operations::ListOptions;
use smsq_store::Store;

use super::draft::Draft;
use super::readings::Reading;

/// Rows that are shown, and by which a text is tried.
const ROWS: usize = 20;

/// What is recognised in a list, or why it cannot be read.
#[derive(Clone, Default, Serialize)]
pub(crate) struct DraftList {
    /// What is wrong with the list, as a sentence.
    pub(crate) problem: Option<String>,
    /// The problem may be over when the list is read again.
    #[serde(skip)]
    is_temporary: bool,
    /// The list is read, but has no phone column.
    pub(crate) lacks_phone: bool,
    pub(crate) format: String,
    pub(crate) phone: String,
    pub(crate) columns: Vec<String>,
    pub(crate) phones: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) sheets: Vec<String>,
}

impl DraftList {
    fn of(options: &Options, draft: &Draft) -> Result<Self, String> {
        let described = |error: &ImportError| {
            let hint = error.hint().map(|hint| format!("; {hint}"));
            format!("{error}{}", hint.unwrap_or_default())
        };
        let mut inspected = ListInspection::of(options).map_err(|error| described(&error))?;
        inspected.rows.truncate(ROWS);
        if let Err(error) = draft.write_sample(&inspected.columns, &inspected.rows) {
            return Ok(Self::failed(format!("cannot keep the first rows: {error}")));
        }
        let mut list = Self {
            columns: inspected.columns,
            phones: inspected.phones,
            rows: inspected.rows,
            sheets: inspected.sheets,
            ..Self::default()
        };
        match inspected.interpretation {
            Ok(found) => (list.format, list.phone) = (found.format, found.phone),
            Err(error) => {
                list.lacks_phone = matches!(error, ImportError::NoPhone { .. });
                list.problem = Some(match list.sheets.len() {
                    _ if !list.lacks_phone => described(&error),
                    0 | 1 => format!("{error}; choose one"),
                    _ => format!("{error}; choose one, or another sheet"),
                });
            }
        }
        Ok(list)
    }
}

impl Reading for DraftList {
    fn depends_on(draft: &Draft) -> String {
        draft.reading()
    }

    async fn make(draft: &Draft, lists: &ListOptions, _: &Store, _: &AtomicU64) -> Self {
        let made = match draft.read_options(lists) {
            Ok(options) => {
                let options = Options { file: draft.list(), ..options.list };
                Self::of(&options, draft)
            }
            Err(error) => Err(error.message),
        };
        made.unwrap_or_else(|problem| Self { problem: Some(problem), ..Self::default() })
    }

    fn failed(problem: String) -> Self {
        Self { problem: Some(problem), is_temporary: true, ..Self::default() }
    }

    fn is_temporary(&self) -> bool {
        self.is_temporary
    }
}
