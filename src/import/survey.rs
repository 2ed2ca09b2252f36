//! Which encoding a text is in. A file is UTF-8 if it can be; what is not is surveyed line by line, because a
//! file that was pasted together of two encodings must not reach anybody as gibberish.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{BIG5, EUC_JP, EUC_KR, GBK, SHIFT_JIS};

use super::encoding::Encoding;
use crate::phone::Region;

/// The longest line that is looked at.
const LINE: usize = 64 * 1024;
/// The detector is slow, and certain long before so many bytes.
const SURVEYED: usize = 1 << 20;

/// Checks whether text that comes in pieces is UTF-8.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    /// The start of a character whose end has not come yet.
    pending: Vec<u8>,
    broken: bool,
}

impl Utf8 {
    pub(super) fn take(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while !self.broken && !self.pending.is_empty() && !rest.is_empty() {
            self.pending.push(rest[0]);
            rest = &rest[1..];
            let pending = std::mem::take(&mut self.pending);
            self.check(&pending);
        }
        if !self.broken && !rest.is_empty() {
            self.check(rest);
        }
    }

    fn check(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(_) => {}
            Err(error) if error.error_len().is_some() => self.broken = true,
            Err(error) => self.pending = bytes[error.valid_up_to()..].to_vec(),
        }
    }

    pub(super) fn holds(&self) -> bool {
        !self.broken && self.pending.is_empty()
    }
}

/// What a text is in that is not all UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    One(Encoding),
    /// Lines of UTF-8 and lines of something else, and the first of either.
    Mixed {
        utf8: u64,
        other: u64,
    },
}

/// Looks at the lines of a text that have more than ASCII.
pub(super) struct Survey {
    /// Lines that are not UTF-8.
    sample: Vec<u8>,
    line: Vec<u8>,
    lines: u64,
    /// Lines that are UTF-8 and hardly anything else, and the first one.
    utf8: (u64, u64),
    /// Lines that are not UTF-8, and the first one.
    other: (u64, u64),
}

impl Survey {
    pub(super) fn new() -> Self {
        Self {
            sample: Vec::new(),
            line: Vec::new(),
            lines: 0,
            utf8: (0, 0),
            other: (0, 0),
        }
    }

    pub(super) fn take(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            if self.line.len() < LINE {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        self.lines += 1;
        let line = std::mem::take(&mut self.line);
        if !line.is_ascii() || line.contains(&0x1b) {
            match std::str::from_utf8(&line) {
                Ok(text) if is_certain(text) => count(&mut self.utf8, self.lines),
                Ok(_) => {}
                Err(_) => {
                    count(&mut self.other, self.lines);
                    if self.sample.len() < SURVEYED {
                        self.sample.extend_from_slice(&line);
                    }
                }
            }
        }
        self.line = line;
        self.line.clear();
    }

    pub(super) fn finish(mut self, region: Option<Region>) -> Verdict {
        if !self.line.is_empty() {
            self.end_line();
        }
        let (utf8, other) = (self.utf8.0, self.other.0);
        if utf8 > other {
            return Verdict::One(Encoding::UTF8);
        }
        // In a long list of two-byte characters, some line happens to look like UTF-8.
        if utf8 * 20 > other {
            return Verdict::Mixed {
                utf8: self.utf8.1,
                other: self.other.1,
            };
        }
        Verdict::One(Encoding::of(detect(&self.sample, region)))
    }
}

/// One broken character makes the detector give up an encoding of characters that take several bytes, and
/// all the rest would be gibberish: so where few lines are broken in one, the others are asked again.
fn detect(sample: &[u8], region: Option<Region>) -> &'static encoding_rs::Encoding {
    let region = region.map(|region| region.to_string().to_ascii_lowercase());
    let guess = |lines: &[&[u8]]| {
        let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
        for line in lines {
            detector.feed(line, false);
        }
        detector.feed(b"", true);
        detector.guess(region.as_deref().map(str::as_bytes), Utf8Detection::Deny)
    };
    let lines: Vec<&[u8]> = sample.split_inclusive(|&byte| byte == b'\n').collect();
    let first = guess(&lines);
    if !first.is_single_byte() {
        return first;
    }
    let of_several_bytes = [GBK, BIG5, SHIFT_JIS, EUC_KR, EUC_JP];
    let second = of_several_bytes.into_iter().find(|encoding| {
        let is_whole = |line: &&[u8]| {
            encoding
                .decode_without_bom_handling_and_without_replacement(line)
                .is_some()
        };
        let whole: Vec<&[u8]> = lines.iter().copied().filter(is_whole).collect();
        let broken = lines.len() - whole.len();
        broken > 0 && broken * 10 <= lines.len() && guess(&whole) == *encoding
    });
    second.unwrap_or(first)
}

fn count((lines, first): &mut (u64, u64), line: u64) {
    if *lines == 0 {
        *first = line;
    }
    *lines += 1;
}

/// Two bytes may be UTF-8 by chance; three that are, or two such pairs, hardly are.
fn is_certain(text: &str) -> bool {
    let wide = text.chars().filter(|character| !character.is_ascii());
    wide.map(|character| character.len_utf8() - 1)
        .sum::<usize>()
        >= 2
}
