//! Finds the header. It may follow a title. A list without a header has columns `1`, `2`, …, and its phone
//! column is found by the values.

use super::columns::{Columns, is_own, looks_like_a_value, missing_header, several_phones};
use super::error::ImportError;
use super::file::{Format, ListFile};
use super::phone_headers;
use super::record::{Next, Record, RecordReader};
use crate::phone::{Phone, PhoneError, Region};
use crate::text::spreadsheet;

/// How much of the file is examined: rows, and bytes of these.
const SAMPLE_ROWS: usize = 200;
const SAMPLE_BYTES: usize = 1 << 20;
/// The most rows of a title.
const TITLE_ROWS: usize = 10;

/// The header of a file.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) columns: Columns,
    /// Rows before the first row of the list.
    pub(super) skipped: usize,
    /// The line of the header, `None` without one.
    pub(super) line: Option<u64>,
    /// The file was written by smsq: its cells are protected against formulas.
    pub(super) is_guarded: bool,
    /// The phone column was found by this many phones in this many rows.
    pub(super) by_content: Option<(usize, usize)>,
}

impl Header {
    pub(super) fn find(
        list: &ListFile,
        roles: &[(String, String)],
        region: Option<Region>,
    ) -> Result<Self, ImportError> {
        let file = &list.name;
        let rows = sample(list)?;
        let is_json = matches!(list.format, Format::JsonLines { .. });
        let place = find_header(&rows, roles);
        let header = &rows[place].cells;
        if !is_json && !has_phone(header) && header.iter().any(|cell| looks_like_a_value(cell)) {
            return Self::without_header(file, &rows, roles, region);
        }
        let is_guarded = !is_json && header.iter().any(|name| is_own(name));
        let bare = |name: &str| usize::from(is_guarded && spreadsheet::is_guarded(name.as_bytes()));
        let names: Vec<&str> = header.iter().map(|name| &name[bare(name)..]).collect();
        let columns = Columns::find(file, &names, roles, None).map_err(|error| match error {
            ImportError::NoPhone { file, columns, .. } => {
                let found = PhoneCounts::of(&rows[place + 1..], region).candidates();
                ImportError::NoPhone {
                    likely: match found[..] {
                        [column] => Some(names[column].trim().to_owned()),
                        _ => None,
                    },
                    file,
                    columns,
                }
            }
            other => other,
        })?;
        Ok(Self {
            columns,
            skipped: place + 1,
            line: Some(rows[place].line).filter(|&line| line > 0),
            is_guarded,
            by_content: None,
        })
    }

    fn without_header(
        file: &str,
        rows: &[Row],
        roles: &[(String, String)],
        region: Option<Region>,
    ) -> Result<Self, ImportError> {
        let first = &rows[0].cells;
        let mut names: Vec<String> = (1..=first.len()).map(|number| number.to_string()).collect();
        let (mut phone, mut by_content) = (None, None);
        if !roles.iter().any(|(role, _)| role == "phone") {
            let counts = PhoneCounts::of(rows, region);
            match counts.candidates()[..] {
                [column] => {
                    phone = Some(column);
                    by_content = Some((counts.phones[column], counts.rows));
                    // The rejects file has a header, and can be imported without examining its values.
                    "phone".clone_into(&mut names[column]);
                }
                [] => return Err(missing_header(file, &first.join(","))),
                ref several => {
                    let numbers = several.iter().map(|&column| names[column].as_str());
                    return Err(several_phones(file, numbers));
                }
            }
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(Self {
            columns: Columns::find(file, &names, roles, phone)?,
            skipped: 0,
            line: None,
            is_guarded: false,
            by_content,
        })
    }

    /// Opens the rows after the header.
    pub(super) fn records(&self, list: &ListFile) -> Result<RecordReader, ImportError> {
        let mut records = list.records()?;
        records.skip_header(self.skipped, self.columns.names.len())?;
        Ok(records)
    }
}

struct Row {
    line: u64,
    cells: Vec<String>,
}

/// Reads the first rows; at least one.
fn sample(list: &ListFile) -> Result<Vec<Row>, ImportError> {
    let name = &list.name;
    let mut records = list.records()?;
    let mut record = Record::default();
    let mut rows = Vec::new();
    let mut size = 0;
    while rows.len() < SAMPLE_ROWS && size < SAMPLE_BYTES {
        let next = records.next(&mut record)?;
        let line = record.line;
        let fields = record
            .fields()
            .map(|fields| fields.map(str::to_owned).collect());
        let reason = match (next, fields) {
            (Next::Row, Some(cells)) => {
                size += record.raw().map(<[u8]>::len).sum::<usize>();
                rows.push(Row { line, cells });
                continue;
            }
            (Next::End, _) => break,
            (Next::Row, None) => format!("it is not {}", list.encoding),
            (Next::Malformed(why), _) => why.to_string(),
            (Next::Unusable(why), _) => why.reason,
        };
        if rows.is_empty() {
            return Err(ImportError::new(format!("`{name}`: line {line}: {reason}")));
        }
        // The rows before the header are counted, so none of them may be missing.
        if rows.len() < TITLE_ROWS {
            let cells = Vec::new();
            rows.push(Row { line, cells });
        }
    }
    if rows.is_empty() {
        return Err(ImportError::new(format!("`{name}` is empty")));
    }
    Ok(rows)
}

/// Returns the first row, unless only a later one has the columns that are looked for.
fn find_header(rows: &[Row], roles: &[(String, String)]) -> usize {
    let columns = |(role, column): &'_ (String, String)| -> Vec<String> {
        let separator = if role == "phone" { ',' } else { '\n' };
        let columns = column.split(separator);
        columns.map(|column| column.trim().to_owned()).collect()
    };
    let columns: Vec<String> = roles.iter().flat_map(columns).collect();
    let has_value = |row: &Row| row.cells.iter().any(|cell| looks_like_a_value(cell));
    let is_header = |row: &Row| {
        let has = |name: &String| row.cells.iter().any(|cell| cell.trim() == name);
        if columns.is_empty() {
            has_phone(&row.cells)
        } else {
            columns.iter().all(has)
        }
    };
    let title = rows
        .iter()
        .take(TITLE_ROWS)
        .take_while(|row| !has_value(row));
    let mut title = title.map(is_header);
    title.position(|is_header| is_header).unwrap_or(0)
}

fn has_phone(cells: &[String]) -> bool {
    cells.iter().any(|cell| phone_headers::is_phone(cell))
}

/// How many values of each column look like phones.
struct PhoneCounts {
    rows: usize,
    phones: Vec<usize>,
}

impl PhoneCounts {
    fn of(rows: &[Row], region: Option<Region>) -> Self {
        let width = rows.first().map_or(0, |row| row.cells.len());
        let count = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.cells.get(column));
            cells
                .filter(|cell| looks_like_a_phone(cell, region))
                .count()
        };
        Self {
            rows: rows.len(),
            phones: (0..width).map(count).collect(),
        }
    }

    /// Returns the columns of which at least half look like phones.
    fn candidates(&self) -> Vec<usize> {
        (0..self.phones.len())
            .filter(|&column| self.phones[column] > 0 && self.phones[column] * 2 >= self.rows)
            .collect()
    }
}

fn looks_like_a_phone(cell: &str, region: Option<Region>) -> bool {
    match Phone::parse(cell, region) {
        Ok(_) => true,
        Err(PhoneError::NoRegion(_)) => cell.bytes().filter(u8::is_ascii_digit).count() >= 9,
        Err(_) => false,
    }
}
