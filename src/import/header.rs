//! Finds the header. It may follow a title. A list without a header has columns `1`, `2`, …, and its phone
//! column is found by the values.

use smsq_message::phone::{Dialling, NumberSurvey, Numbers, Phone, PhoneError};
use smsq_message::text::spreadsheet;

use super::columns::{
    ListColumns, is_own, is_phone, looks_like_a_value, missing_header, several_phones,
};
use super::error::ImportError;
use super::file::ListFile;
use super::record::{Next, Record, RecordReader};

/// How much of the list is examined: rows, and bytes of these.
const SAMPLE_ROWS: usize = 200;
const SAMPLE_BYTES: usize = 1 << 20;
/// The most rows of a title.
const TITLE_ROWS: usize = 10;

/// The header of a file.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) columns: ListColumns,
    /// Rows before the first row of the list.
    pub(super) skipped: usize,
    /// The line of the header, `None` without one.
    pub(super) line: Option<u64>,
    /// The file was written by smsq: its cells are protected against formulas.
    pub(super) is_guarded: bool,
    /// The phone column was found by this many phones in this many rows.
    pub(super) by_content: Option<(usize, usize)>,
}

/// How a list is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpretation {
    /// `CSV in GB18030, ; between the fields, header in line 1`
    pub format: String,
    /// Which column is the phone, and why.
    pub phone: String,
    /// Where the text comes from.
    pub text: String,
    /// Nothing was guessed: CSV in UTF-8 whose header names the phone.
    pub is_plain: bool,
}

impl Header {
    pub(super) fn find(
        list: &ListFile,
        roles: &[(String, String)],
        dialling: Dialling,
    ) -> Result<Self, ImportError> {
        let rows = sample(list)?;
        let has_keys = list.layout.delimiter.is_none();
        let place = if has_keys { 0 } else { find_header(&rows, roles) };
        let header = &rows[place].cells;
        if !has_keys && !has_phone(header) && header.iter().any(|cell| looks_like_a_value(cell)) {
            return Self::without_header(list.name(), &rows, roles, dialling);
        }
        let is_guarded = !has_keys && header.iter().any(|name| is_own(name));
        let bare = |name: &str| usize::from(is_guarded && spreadsheet::is_guarded(name.as_bytes()));
        let names: Vec<&str> = header.iter().map(|name| &name[bare(name)..]).collect();
        let columns = ListColumns::find(list.name(), &names, roles).map_err(|mut error| {
            if let ImportError::NoPhone { likely, sheet, .. } = &mut error {
                // A title can have fewer fields than the rows after it.
                if let [(column, _)] = phone_columns(&rows[place + 1..], dialling)[..]
                    && let Some(name) = names.get(column)
                {
                    *likely = Some(name.trim().to_owned());
                }
                sheet.clone_from(&list.layout.sheet);
            }
            error
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
        list: &str,
        rows: &[Row],
        roles: &[(String, String)],
        dialling: Dialling,
    ) -> Result<Self, ImportError> {
        let first = &rows[0].cells;
        let mut names: Vec<String> = (1..=first.len()).map(|number| number.to_string()).collect();
        let mut by_content = None;
        if !roles.iter().any(|(role, _)| role == "phone") {
            match phone_columns(rows, dialling)[..] {
                [(column, phones)] => {
                    by_content = Some((phones, rows.len()));
                    // The rejects file has a header, and can be imported without examining its values.
                    "phone".clone_into(&mut names[column]);
                }
                [] => return Err(missing_header(list, &first.join(","))),
                ref several => {
                    let name = |(column, _): &(usize, usize)| names[*column].as_str();
                    let names: Vec<&str> = several.iter().map(name).collect();
                    return Err(several_phones(list, &names));
                }
            }
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(Self {
            columns: ListColumns::find(list, &names, roles)?,
            skipped: 0,
            line: None,
            is_guarded: false,
            by_content,
        })
    }

    /// The names of the phone columns.
    pub(super) fn phones(&self) -> Vec<String> {
        let columns = self.columns.phones.iter();
        columns.map(|&column| self.columns.names[column].clone()).collect()
    }

    /// The names of the columns and the first rows of a list, also if no header was found that can be used.
    pub(super) fn first_rows(
        list: &ListFile,
        found: Option<&Self>,
        roles: &[(String, String)],
    ) -> Result<(Vec<String>, Vec<Vec<String>>), ImportError> {
        let rows = sample(list)?;
        let (names, skipped) = if let Some(header) = found {
            (header.columns.names.clone(), header.skipped)
        } else {
            let place = find_header(&rows, roles);
            (rows[place].cells.clone(), place + 1)
        };
        let rows = rows.into_iter().skip(skipped).map(|row| row.cells);
        Ok((names, rows.collect()))
    }

    /// Describes how the list is read; `text` says where the texts come from.
    pub(super) fn interpretation(&self, list: &ListFile, text: String) -> Interpretation {
        let ListColumns { names, phones, .. } = &self.columns;
        let layout = &list.layout;
        let description = &layout.description;
        let format = match (layout.delimiter, self.line) {
            (None, _) => description.clone(),
            (_, Some(line)) => format!("{description}, header in line {line}"),
            (_, None) => format!("{description}, no header"),
        };
        let phone = if let Some((values, rows)) = self.by_content {
            let column = phones[0] + 1;
            format!("column {column}, where {values} of {rows} values look like phones")
        } else {
            let columns = phones.iter().map(|&column| format!("`{}`", names[column]));
            columns.collect::<Vec<_>>().join(", else ")
        };
        Interpretation {
            format,
            phone,
            text,
            is_plain: layout.delimiter.is_some()
                && layout.sheet.is_none()
                && list.text.encoding.is_utf8()
                && self.skipped == 1
                && phones.len() == 1,
        }
    }

    /// Decides what the numbers without `+` are that can be mobiles of two countries: national if the whole list
    /// shows it.
    pub(super) fn detect_numbers(
        &self,
        list: &ListFile,
        dialling: Dialling,
    ) -> Result<Dialling, ImportError> {
        let (Numbers::Detect, Some(region)) = (dialling.numbers, dialling.region) else {
            return Ok(dialling);
        };
        let mut survey = NumberSurvey::new(region);
        let mut records = self.records(list)?;
        let mut record = Record::default();
        loop {
            match records.next(&mut record)? {
                Next::End => break,
                Next::Row => {}
                Next::Malformed(_) | Next::Unusable(_) => continue,
            }
            let Some(fields) = record.fields() else {
                continue;
            };
            let phones = &self.columns.phones;
            let mut cells = fields.enumerate();
            if !cells.all(|(column, cell)| !phones.contains(&column) || survey.add(cell)) {
                break;
            }
        }
        let numbers = if survey.is_national() { Numbers::National } else { Numbers::Detect };
        Ok(Dialling { numbers, ..dialling })
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
    let name = list.name();
    let mut records = list.records()?;
    let mut record = Record::default();
    let mut rows = Vec::new();
    let mut size = 0;
    while rows.len() < SAMPLE_ROWS && size < SAMPLE_BYTES {
        let next = records.next(&mut record)?;
        let line = record.line;
        let fields = record.fields();
        let fault = match (next, fields) {
            (Next::Row, Some(fields)) => {
                let cells: Vec<String> = fields.map(str::to_owned).collect();
                size += cells.iter().map(String::len).sum::<usize>();
                rows.push(Row { line, cells });
                continue;
            }
            (Next::End, _) => break,
            (Next::Row, None) => format!("it is not {}", list.text.encoding),
            (Next::Malformed(why), _) => why.to_string(),
            (Next::Unusable(why), _) => why.reason,
        };
        if rows.is_empty() {
            return Err(ImportError::new(format!("`{name}`: line {line}: {fault}")));
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
    let columns: Vec<&str> = roles
        .iter()
        .flat_map(|(role, column)| column.split(move |c| role == "phone" && c == ','))
        .map(str::trim)
        .collect();
    let is_header = |row: &Row| {
        let has = |name: &&str| row.cells.iter().any(|cell| cell.trim() == *name);
        if columns.is_empty() { has_phone(&row.cells) } else { columns.iter().all(has) }
    };
    let has_value = |row: &&Row| row.cells.iter().any(|cell| looks_like_a_value(cell));
    let mut title = rows.iter().take(TITLE_ROWS).take_while(|row| !has_value(row));
    title.position(is_header).unwrap_or(0)
}

fn has_phone(cells: &[String]) -> bool {
    cells.iter().any(|cell| is_phone(cell))
}

/// Returns the columns of which at least half of the values look like phones, and how many do.
fn phone_columns(rows: &[Row], dialling: Dialling) -> Vec<(usize, usize)> {
    let looks_like_a_phone = |cell: &&String| match Phone::parse(cell, dialling) {
        Ok(_) => true,
        Err(
            PhoneError::NoRegion(_)
            | PhoneError::Ambiguous(..)
            | PhoneError::AmbiguousMobile(..)
            | PhoneError::OtherCountry(..)
            | PhoneError::Excluded(..),
        ) => cell.bytes().filter(u8::is_ascii_digit).count() >= 9,
        Err(_) => false,
    };
    let count = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(column));
        cells.filter(looks_like_a_phone).count()
    };
    let width = rows.first().map_or(0, |row| row.cells.len());
    (0..width)
        .map(|column| (column, count(column)))
        .filter(|&(_, phones)| phones > 0 && phones * 2 >= rows.len())
        .collect()
}
