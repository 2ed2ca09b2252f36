//! Hidden rows of XLS and XLSB sheets, which calamine does not report, and the memory that it needs for an
//! XLS workbook. Both are streams of records: a type, a length, and that many bytes.

use std::io::{Read, Seek};

use zip::ZipArchive;

use super::hidden_rows::{CELL_BYTES, HiddenRows, related_part};

/// What an XLS workbook says about its sheets. [MS-XLS] 2.4.28, 2.4.221.
pub(super) struct XlsSheets {
    /// Memory that calamine needs for the cells of all sheets, with the empty ones between them and a copy
    /// of its text for every cell.
    pub(super) bytes: u64,
    /// Per sheet, in the order of the workbook.
    pub(super) hidden: Vec<HiddenRows>,
}

const FORMULA: u16 = 0x0006;
const END: u16 = 0x000A;
const NAME: u16 = 0x0018;
const CONTINUE: u16 = 0x003C;
const BOUND_SHEET: u16 = 0x0085;
const MUL_RK: u16 = 0x00BD;
const MUL_BLANK: u16 = 0x00BE;
const SHARED_TEXTS: u16 = 0x00FC;
const SHARED_TEXT_CELL: u16 = 0x00FD;
const DIMENSIONS: u16 = 0x0200;
const ROW: u16 = 0x0208;
const ROW_IS_HIDDEN: u16 = 0x0020;
/// Records that begin with row and column of a cell, or of the first of several.
const CELLS: [u16; 11] = [
    FORMULA,
    MUL_RK,
    MUL_BLANK,
    0x00D6,
    SHARED_TEXT_CELL,
    0x0201,
    0x0203,
    0x0204,
    0x0205,
    0x027E,
    0x0406,
];

impl XlsSheets {
    /// Returns `None` if the workbook is damaged.
    pub(super) fn read(book: &mut cfb::CompoundFile<impl Read + Seek>) -> Option<Self> {
        let mut stream = Vec::new();
        let mut names = ["/Workbook", "/Book"].into_iter();
        let name = names.find(|name| book.is_stream(name))?;
        book.open_stream(name).ok()?.read_to_end(&mut stream).ok()?;
        let mut texts = Vec::new();
        let mut globals = xls_records(&stream).peekable();
        while let Some((kind, data)) = globals.next() {
            if kind == SHARED_TEXTS {
                let more = std::iter::from_fn(|| globals.next_if(|(kind, _)| *kind == CONTINUE));
                texts = shared_text_sizes(data, more.map(|(_, data)| data))?;
            }
        }
        // calamine renders formulas, where a few bytes become the name of a sheet or a range.
        let name_lengths = xls_records(&stream).filter_map(|(kind, data)| match kind {
            BOUND_SHEET => data.get(6),
            NAME => data.get(3),
            _ => None,
        });
        let longest_name = name_lengths.max().map_or(0, |length| 3 * u64::from(*length));
        let (mut bytes, mut hidden) = (0_u64, Vec::new());
        for (_, sheet) in xls_records(&stream).filter(|(kind, _)| *kind == BOUND_SHEET) {
            let mut rows = HiddenRows::default();
            let start = usize::try_from(u32_at(sheet, 0)?).ok()?;
            let mut bounds: Option<[u64; 4]> = None;
            for (kind, data) in xls_records(stream.get(start..)?) {
                let (Some(row), Some(first)) = (u16_at(data, 0), u16_at(data, 2)) else {
                    continue;
                };
                let more = match kind {
                    DIMENSIONS => reserved_bytes(data),
                    FORMULA => data.len() as u64 / 5 * longest_name,
                    SHARED_TEXT_CELL => u32_at(data, 6)
                        .and_then(|index| texts.get(usize::try_from(index).ok()?).copied())
                        .unwrap_or(0),
                    _ => 0,
                };
                bytes = bytes.saturating_add(more);
                if kind == ROW && u16_at(data, 12).is_some_and(|flags| flags & ROW_IS_HIDDEN != 0) {
                    rows.add(u32::from(row)..u32::from(row) + 1);
                }
                if !CELLS.contains(&kind) {
                    continue;
                }
                // The last word of a record with several cells is the last column.
                let end = data.len().checked_sub(2).and_then(|at| u16_at(data, at));
                let last = end.filter(|_| matches!(kind, MUL_RK | MUL_BLANK)).unwrap_or(first);
                let [row, first, last] = [row, first, last.max(first)].map(u64::from);
                let [top, bottom, left, right] = bounds.get_or_insert([row, row, first, last]);
                (*top, *bottom) = ((*top).min(row), (*bottom).max(row));
                (*left, *right) = ((*left).min(first), (*right).max(last));
            }
            if let Some([top, bottom, left, right]) = bounds {
                bytes = bytes.saturating_add((bottom - top + 1) * (right - left + 1) * CELL_BYTES);
            }
            hidden.push(rows);
        }
        Some(Self { bytes, hidden })
    }
}

/// Returns the most bytes that calamine needs for each shared text. A text continues in the next record
/// after a byte of flags. [MS-XLS] 2.4.265, 2.5.293.
fn shared_text_sizes<'a>(
    first: &'a [u8],
    mut more: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<u64>> {
    let mut data = first.get(8..)?;
    let mut sizes = Vec::new();
    loop {
        while data.is_empty() {
            match more.next() {
                Some(next) => data = next,
                None => return Some(sizes),
            }
        }
        let (count, flags) = (u16_at(data, 0)?, *data.get(2)?);
        data = &data[3..];
        // Formats and phonetics after the characters.
        let mut behind = 0;
        if flags & 8 != 0 {
            behind += 4 * usize::from(u16_at(data, 0)?);
            data = &data[2..];
        }
        if flags & 4 != 0 {
            behind += usize::try_from(u32_at(data, 0)?).ok()?;
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
        // A character of any code page has at most three bytes per unit in UTF-8.
        sizes.push(3 * u64::from(count));
    }
}

/// Returns what calamine reserves for the stated size of a sheet: nothing up to the largest possible sheet,
/// because that memory is never touched, and too much for any larger one.
fn reserved_bytes(dimensions: &[u8]) -> u64 {
    let word = |at| u16_at(dimensions, at).map(u32::from);
    let bounds = match dimensions.len() {
        10 => [word(0), word(2), word(4), word(6)],
        14 => [u32_at(dimensions, 0), u32_at(dimensions, 4), word(8), word(10)],
        _ => return 0,
    };
    let [Some(top), Some(bottom), Some(left), Some(right)] = bounds else {
        return 0;
    };
    if bottom == 0 || right == 0 {
        return 0;
    }
    let left = if left > 0xFF || right < left { 0 } else { left };
    // calamine's arithmetic wraps around where a sheet ends before it begins.
    let (rows, columns) = (bottom.wrapping_sub(top), right.wrapping_sub(left));
    let cells = u64::from(rows).saturating_mul(u64::from(columns));
    if cells > 1 << 24 { u64::MAX } else { 0 }
}

/// The records up to the end of the substream.
fn xls_records(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, length) = (u16_at(bytes, 0)?, u16_at(bytes, 2)?);
        let data = bytes.get(4..4 + usize::from(length))?;
        bytes = &bytes[4 + data.len()..];
        (kind != END).then_some((kind, data))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

const XLSB_SHEET: u32 = 156;
const XLSB_ROW: u32 = 0;
const XLSB_ROW_IS_HIDDEN: u8 = 0x10;

/// Returns the hidden rows of an XLSB sheet, `None` if the sheet is not found or has cells that calamine
/// skips: cells without a column and cells with rich text. [MS-XLSB] 2.3, 2.4.
pub(super) fn xlsb_hidden_rows(
    archive: &mut ZipArchive<impl Read + Seek>,
    sheet: &str,
) -> Option<HiddenRows> {
    let book = part(archive, "xl/workbook.bin")?;
    let mut sheets = xlsb_records(&book).filter(|(kind, _)| *kind == XLSB_SHEET);
    let id = sheets.find_map(|(_, data)| {
        let (id, rest) = xlsb_text(data.get(8..)?)?;
        let (name, _) = xlsb_text(rest)?;
        (name == sheet).then_some(id)
    })?;
    let path = related_part(archive, "xl/_rels/workbook.bin.rels", &id)?;
    let cells = part(archive, &path)?;
    let mut hidden = HiddenRows::default();
    for (kind, data) in xlsb_records(&cells) {
        if matches!(kind, 12..=18 | 62) {
            return None;
        }
        if kind == XLSB_ROW
            && let (Some(row), Some(flags)) = (u32_at(data, 0), data.get(11))
            && flags & XLSB_ROW_IS_HIDDEN != 0
        {
            hidden.add(row..row.saturating_add(1));
        }
    }
    Some(hidden)
}

/// The caller has checked the sizes of all parts.
fn part(archive: &mut ZipArchive<impl Read + Seek>, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut part = archive.by_name(name).ok()?;
    part.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn xlsb_records(mut bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let kind = xlsb_number(&mut bytes, 2)?;
        let length = xlsb_number(&mut bytes, 4)?;
        let (data, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        bytes = rest;
        Some((kind, data))
    })
}

/// Seven bits per byte, the lowest first; the eighth says that another byte follows.
fn xlsb_number(bytes: &mut &[u8], max_bytes: u32) -> Option<u32> {
    let mut number = 0;
    for place in 0..max_bytes {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

/// A length in UTF-16 units, and these.
fn xlsb_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let (wide, rest) = bytes[4..].split_at_checked(length.checked_mul(2)?)?;
    let (pairs, _) = wide.as_chunks();
    let units: Vec<u16> = pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    Some((String::from_utf16(&units).ok()?, rest))
}
