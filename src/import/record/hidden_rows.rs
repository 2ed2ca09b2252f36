//! Hidden and filtered rows of XLSX and ODS sheets, which calamine does not report, and the memory that it
//! needs for an ODS sheet. Sheets with an unknown layout have no hidden rows.

use std::collections::HashMap;
use std::io::{BufReader, Read, Seek};
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use zip::ZipArchive;

/// Memory for a cell without its text: a value and a formula.
pub(super) const CELL_BYTES: u64 = (size_of::<calamine::Data>() + size_of::<String>()) as u64;

/// Hidden rows, counted from 0.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HiddenRows {
    /// Ascending and disjoint.
    ranges: Vec<Range<u32>>,
}

impl HiddenRows {
    pub(super) fn contains(&self, row: u32) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= row);
        after > 0 && self.ranges[after - 1].contains(&row)
    }

    /// Adds rows after those that were added before; others are ignored.
    pub(super) fn add(&mut self, rows: Range<u32>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            Some(last) if last.end > rows.start => {}
            _ => self.ranges.push(rows),
        }
    }

    pub(super) fn of_xlsx(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Option<Self> {
        let mut id = None;
        for_each_tag(archive, "xl/workbook.xml", |tag| {
            let is_sheet = tag.local_name().as_ref() == b"sheet";
            if is_sheet && attribute(tag, b"name").as_deref() == Some(sheet) {
                id = attribute(tag, b"id");
            }
        })?;
        let part = related_part(archive, "xl/_rels/workbook.xml.rels", &id?)?;
        let mut hidden = Self::default();
        let mut next = 0;
        for_each_tag(archive, &part, |tag| {
            if tag.local_name().as_ref() != b"row" {
                return;
            }
            let number = attribute(tag, b"r").and_then(|number| number.parse::<u32>().ok());
            let row = number.map_or(next, |number| number.saturating_sub(1));
            next = row.saturating_add(1);
            let value = attribute(tag, b"hidden");
            if matches!(value.as_deref(), Some("1" | "true")) {
                hidden.add(row..next);
            }
        })?;
        Some(hidden)
    }
}

/// Returns the part of folder `xl` with relation `id`.
pub(super) fn related_part(
    archive: &mut ZipArchive<impl Read + Seek>,
    relations: &str,
    id: &str,
) -> Option<String> {
    let mut target = None;
    for_each_tag(archive, relations, |tag| {
        if attribute(tag, b"Id").as_deref() == Some(id) {
            target = attribute(tag, b"Target");
        }
    })?;
    let target = target?;
    let absolute = target.strip_prefix('/').map(str::to_owned);
    Some(absolute.unwrap_or_else(|| format!("xl/{target}")))
}

fn for_each_tag(
    archive: &mut ZipArchive<impl Read + Seek>,
    part: &str,
    mut take: impl FnMut(&BytesStart<'_>),
) -> Option<()> {
    for_each_event(archive, part, |event| {
        if let Event::Start(tag) | Event::Empty(tag) = event {
            take(tag);
        }
    })
}

fn for_each_event(
    archive: &mut ZipArchive<impl Read + Seek>,
    part: &str,
    mut take: impl FnMut(&Event<'_>),
) -> Option<()> {
    let part = archive.by_name(part).ok()?;
    let mut reader = Reader::from_reader(BufReader::with_capacity(1 << 16, part));
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        match reader.read_event_into(&mut buffer).ok()? {
            Event::Eof => return Some(()),
            event => take(&event),
        }
    }
}

/// Returns an attribute by its name without a prefix.
fn attribute(tag: &BytesStart<'_>, name: &[u8]) -> Option<String> {
    let mut attributes = tag.attributes().flatten();
    let found = attributes.find(|found| found.key.local_name().as_ref() == name)?;
    let text = std::str::from_utf8(&found.value).ok()?;
    let text = quick_xml::escape::unescape(text).ok()?;
    Some(text.into_owned())
}

/// The largest sheet that calamine expands repeated rows and columns to.
const MAX_ROWS: u64 = 1 << 20;
const MAX_COLUMNS: u64 = 1 << 14;

/// What `content.xml` of an ODS workbook says about its sheets. ODF 1.3, part 3, 9.1 and 19.749.
#[derive(Default)]
pub(super) struct OdsSheets {
    /// Memory that calamine needs for all cells. A repeated cell is copied with its text, and all rows are
    /// as wide as the widest.
    pub(super) bytes: u64,
    pub(super) hidden: HashMap<String, HiddenRows>,
    /// The current sheet: its name, next row, memory, bytes of texts, rows, columns of the widest row.
    name: String,
    next_row: u32,
    used: u64,
    texts: u64,
    rows: u64,
    width: u64,
    /// The current row: repetitions, columns, bytes of texts, empty columns that count if a cell follows.
    repeated: u64,
    columns: u64,
    row: u64,
    gap: u64,
    /// The current cell: repetitions, bytes of its text and formula.
    cells: u64,
    text: u64,
}

impl OdsSheets {
    pub(super) fn read(archive: &mut ZipArchive<impl Read + Seek>) -> Option<Self> {
        let mut sheets = Self::default();
        for_each_event(archive, "content.xml", |event| match event {
            Event::Start(tag) => sheets.open(tag),
            Event::Empty(tag) => {
                sheets.open(tag);
                sheets.close(tag.local_name().as_ref());
            }
            Event::End(tag) => sheets.close(tag.local_name().as_ref()),
            Event::Text(text) => sheets.text += text.len() as u64,
            Event::CData(text) => sheets.text += text.len() as u64,
            Event::GeneralRef(_) => sheets.text += 4,
            _ => {}
        })?;
        Some(sheets)
    }

    fn open(&mut self, tag: &BytesStart<'_>) {
        let count = |name| {
            let count = attribute(tag, name).and_then(|count| count.parse().ok());
            count.unwrap_or(1_u64)
        };
        match tag.local_name().as_ref() {
            b"table" => {
                self.name = attribute(tag, b"name").unwrap_or_default();
                self.next_row = 0;
            }
            b"table-row" => {
                let repeated = count(b"number-rows-repeated");
                self.repeated = repeated.min(MAX_ROWS);
                (self.columns, self.row, self.gap) = (0, 0, 0);
                let rows = u32::try_from(repeated).unwrap_or(u32::MAX);
                let rows = self.next_row..self.next_row.saturating_add(rows);
                self.next_row = rows.end;
                let visibility = attribute(tag, b"visibility");
                if matches!(visibility.as_deref(), Some("collapse" | "filter")) {
                    let hidden = self.hidden.entry(self.name.clone());
                    hidden.or_default().add(rows);
                }
            }
            b"table-cell" | b"covered-table-cell" => {
                self.cells = count(b"number-columns-repeated").min(MAX_COLUMNS);
                let has_value = tag.attributes().flatten().any(|found| {
                    let name = found.key.local_name();
                    matches!(name.as_ref(), b"value-type" | b"formula")
                });
                self.text = if has_value { tag.len() as u64 } else { 0 };
            }
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
                let texts = self.cells.saturating_mul(self.text);
                self.row = self.row.saturating_add(texts);
                self.text = 0;
            }
            b"table-row" => {
                self.rows += self.repeated;
                // Empty rows at the end are left out.
                if self.columns > 0 {
                    self.width = self.width.max(self.columns.min(MAX_COLUMNS));
                    let texts = self.row.saturating_mul(self.repeated);
                    self.texts = self.texts.saturating_add(texts);
                    // Cells are copied once more when the empty ones are put between them.
                    let cells = self.rows.min(MAX_ROWS).saturating_mul(self.width);
                    let cells = cells.saturating_mul(2 * CELL_BYTES);
                    self.used = cells.saturating_add(self.texts.saturating_mul(2));
                }
            }
            b"table" => {
                self.bytes = self.bytes.saturating_add(self.used);
                (self.texts, self.rows, self.width, self.used) = (0, 0, 0, 0);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_rows_are_joined_to_ranges() {
        let mut hidden = HiddenRows::default();
        for rows in [1..2, 2..3, 5..1_000_000, 7..8] {
            hidden.add(rows);
        }
        let found: Vec<u32> = (0..8).filter(|&row| hidden.contains(row)).collect();
        assert_eq!(found, [1, 2, 5, 6, 7]);
        assert!(hidden.contains(999_999) && !hidden.contains(1_000_000));
        assert_eq!(hidden.ranges.len(), 2);
    }
}
