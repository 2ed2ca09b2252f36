//! Reads the form of an upload part by part, from a program or a browser, and keeps its file.

use std::io;

use http::StatusCode;
use tokio::io::AsyncWriteExt as _;

use super::folder::PartialUpload;
use super::upload_request::ImportField;
use super::uploads::Uploads;
use crate::body::{FileForm, FormPart};
use crate::problem::Problem;

/// The largest file that can be uploaded, in bytes.
pub(crate) const MAX_FILE: u64 = 4 << 30;
/// After how many bytes of a file the room on the disk is looked at again.
const ROOM_EVERY: u64 = 16 << 20;

/// The problem if a file cannot be kept.
pub(crate) fn cannot_keep(error: &io::Error) -> Problem {
    tracing::warn!(%error, "an uploaded file cannot be kept");
    Problem::unavailable("the file cannot be kept on the server")
}

impl Uploads {
    /// Reads a form: its fields of at most `max_field` bytes, and the file, if it has one. `check` gets the name of each
    /// field before its value is read.
    pub(crate) async fn read_form(
        &self,
        mut form: FileForm,
        max_field: usize,
        check: impl Fn(&str) -> Result<(), Problem>,
    ) -> Result<(Vec<ImportField>, Option<PartialUpload>), Problem> {
        self.check_room()?;
        let mut fields: Vec<ImportField> = Vec::new();
        let (mut has_file, mut file) = (false, None);
        while let Some(part) = form.next().await? {
            let name = part.name().to_owned();
            let is_file = name == "file";
            if !is_file {
                check(&name)?;
            }
            // Each column is a field of its own.
            let is_known = has_file && is_file || fields.iter().any(|field| field.name == name);
            if is_known && name != "column" {
                return Err(Problem::invalid(format!("duplicate field `{name}`")));
            }
            if is_file {
                has_file = true;
                file = self.keep_file(part).await?;
            } else {
                let value = part.value(max_field).await?;
                fields.push(ImportField { name, value });
            }
        }
        Ok((fields, file))
    }

    /// Writes a file of a form to the disk; `None` if the browser has sent none.
    async fn keep_file(&self, mut part: FormPart<'_>) -> Result<Option<PartialUpload>, Problem> {
        let failed = |error: io::Error| cannot_keep(&error);
        let name = part.file_name().unwrap_or("list.csv").to_owned();
        let uploaded = self.create(&name).map_err(failed)?;
        let mut output = tokio::fs::File::create(&uploaded.path).await.map_err(failed)?;
        let mut size = 0;
        while let Some(bytes) = part.next_of_file().await? {
            size += bytes.len() as u64;
            if size > MAX_FILE {
                return Err(Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the file is larger than 4 GiB",
                ));
            }
            if size / ROOM_EVERY != (size - bytes.len() as u64) / ROOM_EVERY {
                self.check_room()?;
            }
            output.write_all(&bytes).await.map_err(failed)?;
        }
        output.flush().await.map_err(failed)?;
        // A browser sends an empty file without a name if none is chosen.
        Ok((size > 0 || !name.is_empty()).then_some(uploaded))
    }
}
