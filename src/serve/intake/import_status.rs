//! The status of an import, as the API shows it and the folder of the upload keeps it.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smsq_process::atomic_file::AtomicFile;
use utoipa::ToSchema;

/// The file that has the status when the import has ended.
pub(super) const RESULT: &str = "result.json";

/// The status of an import, which is stored when it ends.
#[derive(Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Import)]
pub(crate) struct ImportStatus {
    #[serde(default)]
    #[schema(required)]
    pub(super) import: String,
    #[serde(default)]
    #[schema(required)]
    pub(super) state: ImportState,
    /// Why it failed
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    detail: Option<String>,
    /// The name of the file
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub(super) file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(super) rejects_file: Option<Value>,
    /// The other fields of the object that `smsq import --format json` prints.
    #[serde(flatten)]
    #[schema(ignore)]
    pub(super) counts: Map<String, Value>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ImportState {
    #[default]
    Running,
    Done,
    Failed,
}

impl ImportStatus {
    /// `printed`: the object that `smsq import --format json` prints.
    pub(super) fn done(file: String, printed: Value) -> serde_json::Result<Self> {
        Ok(Self { state: ImportState::Done, file: Some(file), ..serde_json::from_value(printed)? })
    }

    pub(super) fn failed(reason: &str) -> Self {
        Self { state: ImportState::Failed, detail: Some(reason.to_owned()), ..Self::default() }
    }

    pub(crate) const fn state(&self) -> ImportState {
        self.state
    }

    /// Why it failed.
    pub(crate) fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// The campaign of the messages, once it is done.
    pub(crate) fn campaign(&self) -> Option<&str> {
        self.counts.get("campaign")?.as_str()
    }

    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(RESULT)).ok()?).ok()
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut file = AtomicFile::create(&folder.join(RESULT))?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.replace()
    }
}
