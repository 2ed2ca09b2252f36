//! Hidden rows of ODS: attribute `table:visibility` of element `table:table-row`, which may stand for many
//! equal rows. ODF 1.3, part 3, 19.749.

use std::io::{BufReader, Read, Seek};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use zip::ZipArchive;

use super::{CELL, Hidden, attribute, each};

pub(super) fn rows(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Option<Hidden> {
    let mut hidden = Hidden::default();
    let mut is_here = false;
    let mut next = 0_u32;
    each(archive, "content.xml", |tag| {
        match tag.local_name().as_ref() {
            b"table" => {
                is_here = attribute(tag, b"name").as_deref() == Some(sheet);
                next = 0;
            }
            b"table-row" if is_here => {
                let repeated = attribute(tag, b"number-rows-repeated");
                let count = repeated.and_then(|count| count.parse().ok()).unwrap_or(1);
                let rows = next..next.saturating_add(count);
                next = rows.end;
                let visibility = attribute(tag, b"visibility");
                if matches!(visibility.as_deref(), Some("collapse" | "filter")) {
                    hidden.hide(rows);
                }
            }
            _ => {}
        }
    })?;
    Some(hidden)
}

/// The largest sheet that the library makes of repeated rows and columns.
const ROWS: u64 = 1 << 20;
const COLUMNS: u64 = 1 << 14;

/// Bytes that the library takes for the cells of all sheets: a cell that stands for many equal ones is copied,
/// with its text, and all rows are as wide as the widest.
pub(in crate::import) fn cells(archive: &mut ZipArchive<impl Read + Seek>) -> Option<u64> {
    let part = archive.by_name("content.xml").ok()?;
    let mut reader = Reader::from_reader(BufReader::with_capacity(1 << 16, part));
    let mut buffer = Vec::new();
    let mut sheets = Sheets::default();
    loop {
        buffer.clear();
        match reader.read_event_into(&mut buffer).ok()? {
            Event::Start(tag) => sheets.open(&tag),
            Event::Empty(tag) => {
                sheets.open(&tag);
                sheets.close(tag.local_name().as_ref());
            }
            Event::End(tag) => sheets.close(tag.local_name().as_ref()),
            Event::Text(text) => sheets.text += text.len() as u64,
            Event::CData(text) => sheets.text += text.len() as u64,
            Event::GeneralRef(_) => sheets.text += 4,
            Event::Eof => return Some(sheets.bytes),
            _ => {}
        }
    }
}

/// What the sheets read so far will take.
#[derive(Default)]
struct Sheets {
    bytes: u64,
    /// Of the sheet that is open: bytes of texts, rows, and columns of the widest row.
    texts: u64,
    rows: u64,
    width: u64,
    /// Bytes of that sheet.
    used: u64,
    /// Of the row that is open: how often it is repeated, its columns, bytes of their texts.
    repeated: u64,
    columns: u64,
    row: u64,
    /// Empty columns that count only when there is a cell after them.
    gap: u64,
    /// Of the cell that is open: how often it is repeated, and bytes of its text and formula.
    cells: u64,
    text: u64,
}

impl Sheets {
    fn open(&mut self, tag: &BytesStart<'_>) {
        let count = |name| {
            let count = attribute(tag, name).and_then(|count| count.parse().ok());
            count.unwrap_or(1_u64)
        };
        match tag.local_name().as_ref() {
            b"table-row" => {
                self.repeated = count(b"number-rows-repeated").min(ROWS);
                (self.columns, self.row, self.gap) = (0, 0, 0);
            }
            b"table-cell" | b"covered-table-cell" => {
                self.cells = count(b"number-columns-repeated").min(COLUMNS);
                self.text = tag.len() as u64;
                let has_value = tag.attributes().flatten().any(|found| {
                    let name = found.key.local_name();
                    matches!(name.as_ref(), b"value-type" | b"formula")
                });
                if !has_value {
                    self.text = 0;
                }
            }
            // A tab, a line end, several spaces.
            b"tab" | b"line-break" => self.text += 1,
            b"s" => self.text = self.text.saturating_add(count(b"c")),
            _ => {}
        }
    }

    fn close(&mut self, tag: &[u8]) {
        match tag {
            b"table-cell" | b"covered-table-cell" if self.text == 0 => self.gap += self.cells,
            b"table-cell" | b"covered-table-cell" => {
                self.columns += self.gap + self.cells;
                self.gap = 0;
                self.row = self
                    .row
                    .saturating_add(self.cells.saturating_mul(self.text));
                self.text = 0;
            }
            b"table-row" => {
                self.rows += self.repeated;
                // Empty rows at the end are left out.
                if self.columns > 0 {
                    self.width = self.width.max(self.columns.min(COLUMNS));
                    self.texts = self
                        .texts
                        .saturating_add(self.row.saturating_mul(self.repeated));
                    let used = self.rows.min(ROWS).saturating_mul(self.width);
                    self.sheet(used);
                }
            }
            b"table" => {
                self.bytes = self.bytes.saturating_add(self.used);
                (self.texts, self.rows, self.width, self.used) = (0, 0, 0, 0);
            }
            _ => {}
        }
    }

    /// Cells are copied once more when the empty ones are put between them.
    fn sheet(&mut self, cells: u64) {
        let texts = self.texts.saturating_mul(2);
        self.used = cells.saturating_mul(2 * CELL).saturating_add(texts);
    }
}
