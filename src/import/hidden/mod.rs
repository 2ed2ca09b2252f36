//! What the library does not say of a workbook: the rows of a sheet that somebody has hidden or filtered away,
//! because a hidden row is not meant to be written to, and how much memory its cells will take. A workbook whose
//! parts are laid out in another way than known here has no hidden rows.

mod ods;
mod xls;
mod xlsb;
mod xlsx;

use std::io::{BufReader, Read, Seek};
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use zip::ZipArchive;

pub(super) use self::ods::cells as cells_of_ods;
pub(super) use self::xls::{Compound, cells as cells_of_xls};

/// Bytes that the library takes for a cell, its text not counted: a value and a formula.
const CELL: u64 = (size_of::<calamine::Data>() + size_of::<String>()) as u64;

/// Hidden rows, counted from 0.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hidden {
    /// In their order, none touching another.
    rows: Vec<Range<u32>>,
}

impl Hidden {
    pub(super) fn has(&self, row: u32) -> bool {
        let after = self.rows.partition_point(|range| range.start <= row);
        after > 0 && self.rows[after - 1].contains(&row)
    }

    /// Those of the sheet of that name.
    pub(super) fn of_xlsx(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Self {
        xlsx::rows(archive, sheet).unwrap_or_default()
    }

    /// `None` where the sheet has cells that the library does not read.
    pub(super) fn of_xlsb(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Option<Self> {
        xlsb::rows(archive, sheet)
    }

    pub(super) fn of_ods(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Self {
        ods::rows(archive, sheet).unwrap_or_default()
    }

    /// Those of the sheet at that place, the first being 0.
    pub(super) fn of_xls(book: &mut Compound<impl Read + Seek>, place: usize) -> Self {
        xls::rows(book, place).unwrap_or_default()
    }

    /// Rows are told in their order; one that is not is a fault of the file, for whoever reads its cells.
    fn hide(&mut self, rows: Range<u32>) {
        match self.rows.last_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            Some(last) if last.end > rows.start => {}
            _ => self.rows.push(rows),
        }
    }
}

/// The part that the relation `id` of `relations` leads to, from folder `xl`.
fn target(archive: &mut ZipArchive<impl Read + Seek>, relations: &str, id: &str) -> Option<String> {
    let mut target = None;
    each(archive, relations, |tag| {
        if attribute(tag, b"Id").as_deref() == Some(id) {
            target = attribute(tag, b"Target");
        }
    })?;
    let target = target?;
    Some(match target.strip_prefix('/') {
        Some(absolute) => absolute.to_owned(),
        None => format!("xl/{target}"),
    })
}

/// Every tag that opens, of a part that is XML.
fn each(
    archive: &mut ZipArchive<impl Read + Seek>,
    part: &str,
    mut take: impl FnMut(&BytesStart<'_>),
) -> Option<()> {
    let part = archive.by_name(part).ok()?;
    let mut reader = Reader::from_reader(BufReader::with_capacity(1 << 16, part));
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        match reader.read_event_into(&mut buffer).ok()? {
            Event::Start(tag) | Event::Empty(tag) => take(&tag),
            Event::Eof => return Some(()),
            _ => {}
        }
    }
}

/// An attribute by its name without a prefix.
fn attribute(tag: &BytesStart<'_>, name: &[u8]) -> Option<String> {
    let found = tag
        .attributes()
        .flatten()
        .find(|found| found.key.local_name().as_ref() == name)?;
    let text = std::str::from_utf8(&found.value).ok()?;
    quick_xml::escape::unescape(text)
        .ok()
        .map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_hidden_one_by_one_and_in_ranges() {
        let mut hidden = Hidden::default();
        for rows in [1..2, 2..3, 5..1_000_000, 7..8] {
            hidden.hide(rows);
        }
        let seen: Vec<u32> = (0..8).filter(|&row| hidden.has(row)).collect();
        assert_eq!(seen, [1, 2, 5, 6, 7]);
        assert!(hidden.has(999_999) && !hidden.has(1_000_000));
        assert_eq!(hidden.rows.len(), 2);
    }
}
