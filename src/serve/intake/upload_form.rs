//! Reads the form of an upload part by part, from a program or a browser, and keeps its file.

use std::io;
use std::time::Duration;

use axum::extract::Multipart;
use axum::extract::multipart::MultipartError;
use http::StatusCode;
use tokio::io::AsyncWriteExt as _;

use super::upload_request::ImportField;
use super::uploads::{PartialUpload, Uploads};
use crate::serve::problem::Problem;

/// How long the next part of a body may take.
pub(in crate::serve) const PART_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest file that can be uploaded, in bytes.
pub(in crate::serve) const MAX_FILE: u64 = 4 << 30;
/// After how many bytes of a file the room on the disk is looked at again.
const ROOM_EVERY: u64 = 16 << 20;

/// The next part of a form, within its time.
async fn in_time<T>(part: impl Future<Output = Result<T, MultipartError>>) -> Result<T, Problem> {
    tokio::time::timeout(PART_TIMEOUT, part)
        .await
        .map_err(|_| {
            let detail = "the file did not arrive in time";
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
        })?
        .map_err(|error| Problem::new(error.status(), error.body_text()))
}

/// The problem if a file cannot be kept.
pub(in crate::serve) fn cannot_keep(error: &io::Error) -> Problem {
    tracing::warn!(%error, "an uploaded file cannot be kept");
    Problem::unavailable("the file cannot be kept on the server")
}

impl Uploads {
    /// Reads a form: its fields of at most `max_field` bytes, and the file, if it has one. `check` gets the name of each
    /// field before its value is read.
    pub(in crate::serve) async fn read_form(
        &self,
        mut form: Multipart,
        max_field: usize,
        check: impl Fn(&str) -> Result<(), Problem>,
    ) -> Result<(Vec<ImportField>, Option<PartialUpload>), Problem> {
        let failed = |error: io::Error| cannot_keep(&error);
        self.check_room()?;
        let mut fields = Vec::new();
        let mut file = None;
        while let Some(mut field) = in_time(form.next_field()).await? {
            let name = field.name().unwrap_or_default().to_owned();
            if name != "file" {
                check(&name)?;
                let mut value = Vec::new();
                while let Some(part) = in_time(field.chunk()).await? {
                    if value.len() + part.len() > max_field {
                        let detail = format!(
                            "invalid `{name}`: it is longer than {} KiB",
                            max_field >> 10
                        );
                        return Err(Problem::invalid(detail));
                    }
                    value.extend_from_slice(&part);
                }
                let value = String::from_utf8(value)
                    .map_err(|_| Problem::invalid(format!("invalid `{name}`: it is not UTF-8")))?;
                fields.push(ImportField { name, value });
                continue;
            }
            let name = field.file_name().unwrap_or("list.csv").to_owned();
            let uploaded = self.create(&name).map_err(failed)?;
            let mut output = tokio::fs::File::create(&uploaded.path)
                .await
                .map_err(failed)?;
            let mut size = 0;
            while let Some(part) = in_time(field.chunk()).await? {
                size += part.len() as u64;
                if size > MAX_FILE {
                    return Err(Problem::new(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "the file is larger than 4 GiB",
                    ));
                }
                if size / ROOM_EVERY != (size - part.len() as u64) / ROOM_EVERY {
                    self.check_room()?;
                }
                output.write_all(&part).await.map_err(failed)?;
            }
            output.flush().await.map_err(failed)?;
            // A browser sends an empty file without a name if none is chosen.
            file = (size > 0 || !name.is_empty()).then_some(uploaded);
        }
        Ok((fields, file))
    }
}
