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
const DIMENSIONS: u16 = 0x0200;
const FORMULA: u16 = 0x0006;
const NAME: u16 = 0x0018;
const SHARED: u16 = 0x00FC;
const SHARED_CELL: u16 = 0x00FD;
const CONTINUE: u16 = 0x003C;
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

/// Bytes that the library takes for the cells of all sheets, with the empty ones between them and a copy of its
/// text for every cell. `None` where the texts cannot be followed.
pub(in crate::import) fn cells(book: &mut Compound<impl Read + Seek>) -> Option<u64> {
    let stream = stream(book)?;
    let globals = || all(&stream).take_while(|(kind, _)| *kind != END);
    let mut texts = Vec::new();
    let mut records = globals().peekable();
    while let Some((kind, data)) = records.next() {
        if kind == SHARED {
            let more = std::iter::from_fn(|| records.next_if(|(kind, _)| *kind == CONTINUE));
            texts = shared(data, more.map(|(_, data)| data))?;
        }
    }
    // A formula of the library is a text, in which a few bytes become the name of a sheet or a range.
    let longest_name = globals()
        .filter_map(|(kind, data)| match kind {
            BOUND_SHEET => data.get(6),
            NAME => data.get(3),
            _ => None,
        })
        .max()
        .map_or(0, |length| 3 * u64::from(*length));
    let mut bytes = 0_u64;
    for (_, sheet) in globals().filter(|(kind, _)| *kind == BOUND_SHEET) {
        let start = usize::try_from(u32::from_le_bytes(sheet.first_chunk().copied()?)).ok()?;
        let mut bounds: Option<[u64; 4]> = None;
        for (kind, data) in all(stream.get(start..)?).take_while(|(kind, _)| *kind != END) {
            let (Some(row), Some(first)) = (word(data, 0), word(data, 2)) else {
                continue;
            };
            let more = match kind {
                DIMENSIONS => reserved(data),
                FORMULA => data.len() as u64 / 5 * longest_name,
                SHARED_CELL => double(data, 6)
                    .and_then(|index| texts.get(usize::try_from(index).ok()?).copied())
                    .unwrap_or(0),
                _ => 0,
            };
            bytes = bytes.saturating_add(more);
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

/// Bytes of each shared text as the library holds it, at most. A text goes on in the next part where one ends within
/// its characters, behind a byte of flags. [MS-XLS] 2.4.265, 2.5.293.
fn shared<'a>(first: &'a [u8], mut more: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u64>> {
    let mut data = first.get(8..)?;
    let mut lengths = Vec::new();
    loop {
        while data.is_empty() {
            match more.next() {
                Some(next) => data = next,
                None => return Some(lengths),
            }
        }
        let (count, flags) = (word(data, 0)?, *data.get(2)?);
        data = &data[3..];
        let mut behind = 0;
        if flags & 8 != 0 {
            behind += 4 * usize::from(word(data, 0)?);
            data = &data[2..];
        }
        if flags & 4 != 0 {
            behind += usize::try_from(double(data, 0)?).ok()?;
            data = &data[4..];
        }
        let (mut left, mut is_wide) = (usize::from(count), flags & 1 != 0);
        loop {
            let width = if is_wide { 2 } else { 1 };
            let here = left.min(data.len() / width);
            (left, data) = (left - here, &data[here * width..]);
            if left == 0 {
                break;
            }
            let (flags, rest) = more.next()?.split_first()?;
            (is_wide, data) = (flags & 1 != 0, rest);
        }
        while behind > data.len() {
            behind -= data.len();
            data = more.next()?;
        }
        data = &data[behind..];
        // No character of a code page or of UTF-16 takes more bytes for each of its units.
        lengths.push(3 * u64::from(count));
    }
}

/// Bytes that the library asks for because a sheet says how many rows and columns it has; those of the largest
/// possible sheet are never touched unless it has as many cells.
fn reserved(dimensions: &[u8]) -> u64 {
    let at = |at| word(dimensions, at).map(u32::from);
    let (first_row, end_row, first, end) = match dimensions.len() {
        10 => (at(0), at(2), at(4), at(6)),
        14 => (double(dimensions, 0), double(dimensions, 4), at(8), at(10)),
        _ => return 0,
    };
    let (Some(top), Some(bottom), Some(left), Some(right)) = (first_row, end_row, first, end)
    else {
        return 0;
    };
    let left = if left > 0xFF || right < left { 0 } else { left };
    if bottom == 0 || right == 0 {
        return 0;
    }
    // The library wraps around where the sheet ends before it begins.
    let rows = u64::from(bottom.wrapping_sub(top));
    let columns = u64::from(right.wrapping_sub(left));
    let cells = rows.saturating_mul(columns);
    if cells > 1 << 24 { u64::MAX } else { 0 }
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

fn double(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*four))
}
