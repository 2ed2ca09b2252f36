//! Hidden rows of XLS: flag `fDyZero` of record `Row`. The book is a stream of records in a compound file,
//! each of them a type, a length and that many bytes; what belongs to a sheet begins where `BoundSheet8`
//! says. [MS-XLS] 2.4.28, 2.4.221.

use std::io::{Read, Seek};

use super::{CELL, Hidden};

pub(in crate::import) type Compound<F> = cfb::CompoundFile<F>;

const BOUND_SHEET: u16 = 0x0085;
const ROW: u16 = 0x0208;
const BEGIN: u16 = 0x0809;
const END: u16 = 0x000A;
const HIDDEN: u16 = 0x0020;
/// Records that begin with the row and the column of a cell, or of the first of several.
const CELLS: [u16; 11] = [
    0x0006, 0x00BD, 0x00BE, 0x00D6, 0x00FD, 0x0201, 0x0203, 0x0204, 0x0205, 0x027E, 0x0406,
];

pub(super) fn rows(book: &mut Compound<impl Read + Seek>, place: usize) -> Option<Hidden> {
    let stream = stream(book)?;
    let (_, sheet) = records(&stream)
        .filter(|(kind, _)| *kind == BOUND_SHEET)
        .nth(place)?;
    let start = u32::from_le_bytes(sheet.first_chunk().copied()?);
    let mut hidden = Hidden::default();
    for (kind, data) in records(stream.get(usize::try_from(start).ok()?..)?) {
        let (Some(row), Some(flags)) = (word(data, 0), word(data, 12)) else {
            continue;
        };
        if kind == ROW && flags & HIDDEN != 0 {
            let row = u32::from(row);
            hidden.hide(row..row + 1);
        }
    }
    Some(hidden)
}

/// Bytes that the library takes for the cells of all sheets, with the empty ones between them.
pub(in crate::import) fn cells(book: &mut Compound<impl Read + Seek>) -> Option<u64> {
    let stream = stream(book)?;
    let mut bytes = 0_u64;
    for (_, sheet) in all(&stream)
        .take_while(|(kind, _)| *kind != END)
        .filter(|(kind, _)| *kind == BOUND_SHEET)
    {
        let start = usize::try_from(u32::from_le_bytes(sheet.first_chunk().copied()?)).ok()?;
        let mut bounds: Option<[u64; 4]> = None;
        for (kind, data) in all(stream.get(start..)?).take_while(|(kind, _)| *kind != END) {
            let (Some(row), Some(first)) = (word(data, 0), word(data, 2)) else {
                continue;
            };
            if !CELLS.contains(&kind) {
                continue;
            }
            // Of several cells in a row, the last word is the last column.
            let end = data.len().checked_sub(2).and_then(|at| word(data, at));
            let last = end
                .filter(|_| matches!(kind, 0x00BD | 0x00BE))
                .unwrap_or(first);
            let [row, first, last] = [row, first, last.max(first)].map(u64::from);
            let [top, bottom, left, right] = bounds.unwrap_or([row, row, first, last]);
            bounds = Some([
                top.min(row),
                bottom.max(row),
                left.min(first),
                right.max(last),
            ]);
        }
        if let Some([top, bottom, left, right]) = bounds {
            bytes = bytes.saturating_add((bottom - top + 1) * (right - left + 1) * CELL);
        }
    }
    Some(bytes)
}

fn stream(book: &mut Compound<impl Read + Seek>) -> Option<Vec<u8>> {
    let mut stream = Vec::new();
    let name = ["/Workbook", "/Book"]
        .into_iter()
        .find(|name| book.is_stream(name))?;
    let mut source = book.open_stream(name).ok()?;
    source.read_to_end(&mut stream).ok()?;
    Some(stream)
}

/// The records in their order, whatever part they belong to.
fn all(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, length) = (word(bytes, 0)?, word(bytes, 2)?);
        let data = bytes.get(4..4 + usize::from(length))?;
        bytes = &bytes[4 + data.len()..];
        Some((kind, data))
    })
}

/// The records up to the end of the part that begins here, without those of the parts within it.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut depth = 0_u32;
    std::iter::from_fn(move || {
        loop {
            let (kind, length) = (word(bytes, 0)?, word(bytes, 2)?);
            let data = bytes.get(4..4 + usize::from(length))?;
            bytes = &bytes[4 + data.len()..];
            match kind {
                BEGIN => depth += 1,
                END if depth <= 1 => return None,
                END => depth -= 1,
                _ if depth == 1 => return Some((kind, data)),
                _ => {}
            }
        }
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes([pair[0], pair[1]]))
}
