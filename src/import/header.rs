//! Where the header is, and what stands for it in a file that has none. A list may begin with a title; a list
//! without a header has columns `1`, `2`, …, and its phones are found by what they look like.

use std::io;

use super::columns::{Columns, is_own, looks_like_a_value};
use super::error::ImportError;
use super::input::Input;
use super::reader::{Next, Record};
use super::source::{Form, Source};
use super::words;
use crate::phone::{Phone, PhoneError, Region};
use crate::text::listed;
use crate::text::{printable_line, spreadsheet};

/// Rows that are looked at.
const SAMPLE: usize = 200;
/// Bytes of them.
const SAMPLE_BYTES: usize = 1 << 20;
/// A title takes no more rows than that.
const TITLE: usize = 10;

/// What the first rows of a file say.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) columns: Columns,
    /// Rows before the first row of the list.
    pub(super) skipped: usize,
    /// The line of the header; `None` where there is none.
    pub(super) line: Option<u64>,
    /// The file was written by smsq: its cells are guarded against formulas.
    pub(super) is_guarded: bool,
    /// In how many of how many rows the phone looks like one, where it was found so.
    pub(super) by_content: Option<(usize, usize)>,
}

impl Header {
    pub(super) fn find(
        source: &Source,
        asked: &[(String, String)],
        region: Option<Region>,
    ) -> Result<Self, ImportError> {
        let file = &source.name;
        let rows = sample(source)?;
        let header = place(&rows, asked);
        let is_named = matches!(source.form, Form::JsonLines(_));
        let has_none = !is_named
            && !has_phone(&rows[header].cells)
            && rows[header]
                .cells
                .iter()
                .any(|cell| looks_like_a_value(cell));
        let values = |from: usize| Values::of(&rows[from.min(rows.len())..], region);
        if has_none {
            let mut names: Vec<String> = (1..=rows[0].cells.len())
                .map(|number| number.to_string())
                .collect();
            let is_asked = asked.iter().any(|(role, _)| role == "phone");
            let found = if is_asked {
                None
            } else {
                Some(values(0).only(file, &rows[0].cells)?)
            };
            if let Some(found) = &found {
                // The rejects file has a header, and shall be understood without a guess.
                "phone".clone_into(&mut names[found.column]);
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let by_content = found.as_ref().map(|found| (found.like, found.rows));
            return Ok(Self {
                columns: Columns::find(file, &names, asked, found.map(|found| found.column))?,
                skipped: 0,
                line: None,
                is_guarded: false,
                by_content,
            });
        }
        let cells = rows[header].cells.iter().map(String::as_str);
        let is_guarded = !is_named && cells.clone().any(is_own);
        let names: Vec<&str> = cells
            .map(|name| {
                &name[usize::from(is_guarded && spreadsheet::is_guarded(name.as_bytes()))..]
            })
            .collect();
        let columns = Columns::find(file, &names, asked, None).map_err(|error| match error {
            ImportError::NoPhone { file, columns, .. } => ImportError::NoPhone {
                likely: values(header + 1)
                    .likely()
                    .map(|found| names[found.column].trim().to_owned()),
                file,
                columns,
            },
            other => other,
        })?;
        Ok(Self {
            columns,
            skipped: header + 1,
            line: Some(rows[header].line).filter(|&line| line > 0),
            is_guarded,
            by_content: None,
        })
    }
}

struct Row {
    line: u64,
    cells: Vec<String>,
}

/// The first rows; at least one.
fn sample(source: &Source) -> Result<Vec<Row>, ImportError> {
    let from_io = |error: io::Error| ImportError::Read {
        file: source.name.clone(),
        source: error,
    };
    let mut input = source.rows().map_err(from_io)?;
    let mut record = Record::default();
    let mut rows = Vec::new();
    let mut size = 0;
    while rows.len() < SAMPLE && size < SAMPLE_BYTES {
        let next = input.next(&mut record).map_err(from_io)?;
        let fields = record
            .fields()
            .map(|fields| fields.map(str::to_owned).collect());
        let reason = match (next, fields) {
            (Next::Row, Some(cells)) => {
                size += record.raw().map(<[u8]>::len).sum::<usize>();
                rows.push(Row {
                    line: record.line,
                    cells,
                });
                continue;
            }
            (Next::End, _) => break,
            (Next::Row, None) => format!("it is not {}", source.encoding),
            (Next::Malformed(why), _) => why.to_string(),
            (Next::Unusable(why), _) => why.reason,
        };
        if rows.is_empty() {
            return Err(ImportError::Header {
                file: source.name.clone(),
                line: record.line,
                reason,
            });
        }
        // The rows before the list are counted, so that none of them may be missing.
        if rows.len() < TITLE {
            rows.push(Row {
                line: record.line,
                cells: Vec::new(),
            });
        }
    }
    if rows.is_empty() {
        return Err(ImportError::Empty {
            file: source.name.clone(),
        });
    }
    Ok(rows)
}

/// Which row is the header: the first, unless only a later one names what is looked for.
fn place(rows: &[Row], asked: &[(String, String)]) -> usize {
    let columns: Vec<&str> = asked
        .iter()
        .flat_map(|(role, column)| {
            if role == "phone" {
                column.split(',').map(str::trim).collect()
            } else {
                vec![column.trim()]
            }
        })
        .collect();
    let has_value = |row: &Row| row.cells.iter().any(|cell| looks_like_a_value(cell));
    let is_header = |row: &&Row| {
        let has = |name: &&str| row.cells.iter().any(|cell| cell.trim() == *name);
        if columns.is_empty() {
            has_phone(&row.cells)
        } else {
            columns.iter().all(has)
        }
    };
    let start = &rows[..rows.len().min(TITLE)];
    let title = start.iter().take_while(|row| !has_value(row));
    title
        .enumerate()
        .find(|(_, row)| is_header(row))
        .map_or(0, |(place, _)| place)
}

fn has_phone(cells: &[String]) -> bool {
    cells.iter().any(|cell| words::is_phone(cell))
}

/// How much the values of each column look like phones.
struct Values {
    rows: usize,
    like: Vec<usize>,
}

struct Found {
    column: usize,
    like: usize,
    rows: usize,
}

impl Values {
    fn of(rows: &[Row], region: Option<Region>) -> Self {
        let width = rows.first().map_or(0, |row| row.cells.len());
        let mut like = vec![0; width];
        for row in rows {
            for (column, cell) in row.cells.iter().enumerate().take(width) {
                like[column] += usize::from(is_like_a_phone(cell, region));
            }
        }
        Self {
            rows: rows.len(),
            like,
        }
    }

    /// Columns of which half or more look like phones.
    fn candidates(&self) -> Vec<usize> {
        (0..self.like.len())
            .filter(|&column| self.like[column] > 0 && self.like[column] * 2 >= self.rows)
            .collect()
    }

    fn likely(&self) -> Option<Found> {
        match self.candidates()[..] {
            [column] => Some(self.found(column)),
            _ => None,
        }
    }

    fn found(&self, column: usize) -> Found {
        Found {
            column,
            like: self.like[column],
            rows: self.rows,
        }
    }

    fn only(&self, file: &str, first: &[String]) -> Result<Found, ImportError> {
        let file = file.to_owned();
        match self.candidates()[..] {
            [column] => Ok(self.found(column)),
            [] => {
                let first = first.join(",");
                let first: String = printable_line(&first).chars().take(8).collect();
                Err(ImportError::NoHeader {
                    file,
                    first: format!("{first}…"),
                })
            }
            [one, ..] => {
                let names: Vec<String> = self
                    .candidates()
                    .iter()
                    .map(|column| (column + 1).to_string())
                    .collect();
                Err(ImportError::TwoPhones {
                    file,
                    candidates: listed(names.iter().map(String::as_str)),
                    first: (one + 1).to_string(),
                })
            }
        }
    }
}

fn is_like_a_phone(cell: &str, region: Option<Region>) -> bool {
    match Phone::parse(cell, region) {
        Ok(_) => true,
        Err(PhoneError::NoRegion(_)) => cell.bytes().filter(u8::is_ascii_digit).count() >= 9,
        Err(_) => false,
    }
}

/// Skips what stands before the list.
pub(super) fn skip(input: &mut Input, rows: usize) -> io::Result<()> {
    let mut record = Record::default();
    for _ in 0..rows {
        input.next(&mut record)?;
    }
    Ok(())
}
