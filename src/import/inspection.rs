//! What a list looks like before the text of its messages is known: how it is read, its columns and its first rows.

use super::error::ImportError;
use super::file::ListFile;
use super::header::{Header, Interpretation};
use super::options::Options;

/// How a list is read, and what it begins with.
pub struct ListInspection {
    /// Or why its header cannot be used, such as a missing phone column.
    pub interpretation: Result<Interpretation, ImportError>,
    pub columns: Vec<String>,
    /// The phone columns, of which the first valid number counts; empty if there is an error.
    pub phones: Vec<String>,
    /// The first rows after the header, at most 200; each has any number of fields.
    pub rows: Vec<Vec<String>>,
    /// The sheets of a workbook.
    pub sheets: Vec<String>,
}

impl ListInspection {
    /// Reads the whole file. Fails if it cannot be read as a list.
    pub fn of(options: &Options) -> Result<Self, ImportError> {
        let list = ListFile::open(options)?;
        let header = Header::find(&list, &options.columns, options.dialling);
        let (columns, rows) = Header::first_rows(&list, header.as_ref().ok(), &options.columns)?;
        let phones = header.as_ref().map_or_else(|_| Vec::new(), Header::phones);
        Ok(Self {
            phones,
            interpretation: header.map(|header| header.interpretation(&list, String::new())),
            columns,
            rows,
            sheets: list.layout.sheets,
        })
    }
}
