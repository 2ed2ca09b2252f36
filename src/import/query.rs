//! The rows of a query on another program's database. They are copied to a temporary file before the first one is
//! imported, so that the database is not kept busy by the import.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use smsq_store::{SourceDatabase, SourceQuery};

use super::error::ImportError;

/// The rows that a query has returned: JSON lines in a file without a name, which only this process can read.
#[derive(Debug)]
pub struct QueryRows {
    file: File,
    identity: String,
    columns: Vec<String>,
    count: u64,
}

impl QueryRows {
    /// Runs a query and reads its rows; `progress` gets their number.
    pub async fn read(
        source: &SourceDatabase,
        query: &SourceQuery<'_>,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Self, ImportError> {
        let failed =
            |error: io::Error| ImportError::new(format!("cannot write a temporary file: {error}"));
        let mut output = BufWriter::new(tempfile::tempfile().map_err(failed)?);
        let mut count = 0;
        let mut write = |names: &[String], cells: &[Option<&str>]| {
            let object: Map<String, Value> = names
                .iter()
                .zip(cells)
                .map(|(name, cell)| (name.clone(), cell.map_or(Value::Null, Value::from)))
                .collect();
            serde_json::to_writer(&mut output, &object)?;
            output.write_all(b"\n")?;
            count += 1;
            progress(count);
            Ok(())
        };
        let columns: Vec<String> = source.read(query, &mut write).await?;
        let file = output.into_inner().map_err(|error| failed(error.into_error()))?;
        let asked = format!("{}\n{}", source.name(), query.text);
        Ok(Self {
            file,
            identity: format!("query {}", hex::encode(Sha256::digest(asked))),
            columns,
            count,
        })
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns what a repetition of the query has, too, although its rows may differ.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the number of rows.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}
