//! In which encoding a text is, and its rows as UTF-8. A file is UTF-8 if it can be; what is not is
//! surveyed line by line, because a file that was pasted together of two encodings must not reach
//! anybody as gibberish. Bytes that are no character come through marked, so that they cost their row
//! and no other, and can be written back as they were.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{
    BIG5, Decoder, DecoderResult, EUC_JP, EUC_KR, EncoderResult, GB18030, GBK, SHIFT_JIS, UTF_8,
    UTF_16BE, UTF_16LE,
};

use crate::phone::Region;

const CHUNK: usize = 64 * 1024;
/// No byte of UTF-8: it stands before each byte that was no character.
const MARK: u8 = 0xff;
/// The detector is slow, and certain long before so many bytes.
const SURVEYED: usize = 1 << 20;

/// An encoding of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding(&'static encoding_rs::Encoding);

/// Not the name of an encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no encoding that is known here: write it like `gb18030`, `utf-16`, `shift-jis` or `windows-1252`"
)]
pub struct EncodingError(String);

impl FromStr for Encoding {
    type Err = EncodingError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let label = word.trim().to_ascii_lowercase();
        let known = |label: &str| encoding_rs::Encoding::for_label_no_replacement(label.as_bytes());
        let bare: String = label.chars().filter(char::is_ascii_alphanumeric).collect();
        let found = match bare.as_str() {
            "utf16" | "utf16le" => Some(UTF_16LE),
            "utf16be" => Some(UTF_16BE),
            "gb2312" | "cp936" | "ms936" => Some(GBK),
            "cp932" | "ms932" => known("shift_jis"),
            "cp949" | "ms949" => known("euc-kr"),
            _ => known(&label)
                .or_else(|| known(&bare))
                .or_else(|| known(&format!("windows-{}", bare.strip_prefix("cp")?))),
        };
        found
            .map(Self::of)
            .ok_or_else(|| EncodingError(word.to_owned()))
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == GB18030 {
            "GB18030"
        } else {
            self.0.name()
        })
    }
}

impl Encoding {
    pub(super) const UTF8: Self = Self(UTF_8);

    /// GB18030 has all that GBK has, byte for byte.
    fn of(encoding: &'static encoding_rs::Encoding) -> Self {
        Self(if encoding == GBK { GB18030 } else { encoding })
    }

    pub(super) fn is_utf8(self) -> bool {
        self.0 == UTF_8
    }

    fn is_wide(self) -> bool {
        self.0 == UTF_16LE || self.0 == UTF_16BE
    }

    /// Of a byte order mark, and how long that is.
    pub(super) fn of_mark(head: &[u8]) -> Option<(Self, usize)> {
        encoding_rs::Encoding::for_bom(head).map(|(encoding, length)| (Self(encoding), length))
    }

    /// UTF-16 without a mark: what is ASCII in it has a NUL in every other byte.
    pub(super) fn wide_by_nuls(head: &[u8]) -> Option<Self> {
        let nuls = |from: usize| {
            head.iter()
                .skip(from)
                .step_by(2)
                .filter(|byte| **byte == 0)
                .count()
        };
        let (even, odd, half) = (nuls(0), nuls(1), head.len() / 2);
        if odd * 4 > half && even * 20 < odd {
            return Some(Self(UTF_16LE));
        }
        (even * 4 > half && odd * 20 < even).then_some(Self(UTF_16BE))
    }

    /// The bytes of a text in this encoding; what it has no character for is `?`. Marked bytes come out
    /// as they were.
    pub(super) fn encode(self, text: &[u8]) -> Vec<u8> {
        if self.is_utf8() {
            return text.to_vec();
        }
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.iter().position(|&byte| byte == MARK) {
            self.encode_piece(&rest[..at], &mut bytes);
            match rest.get(at + 1) {
                Some(&raw) if !self.is_wide() => bytes.push(raw),
                _ => self.encode_piece("\u{fffd}".as_bytes(), &mut bytes),
            }
            rest = rest.get(at + 2..).unwrap_or_default();
        }
        self.encode_piece(rest, &mut bytes);
        bytes
    }

    fn encode_piece(self, piece: &[u8], bytes: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(piece);
        if self.is_wide() {
            for unit in text.encode_utf16() {
                let pair = if self.0 == UTF_16LE {
                    unit.to_le_bytes()
                } else {
                    unit.to_be_bytes()
                };
                bytes.extend_from_slice(&pair);
            }
            return;
        }
        let mut encoder = self.0.new_encoder();
        let mut rest: &str = &text;
        loop {
            let room = encoder.max_buffer_length_from_utf8_without_replacement(rest.len());
            let start = bytes.len();
            bytes.resize(start + room.unwrap_or(rest.len() * 4 + 16), 0);
            let (result, read, written) =
                encoder.encode_from_utf8_without_replacement(rest, &mut bytes[start..], true);
            bytes.truncate(start + written);
            rest = &rest[read..];
            match result {
                EncoderResult::InputEmpty => return,
                EncoderResult::Unmappable(_) => bytes.push(b'?'),
                EncoderResult::OutputFull => {}
            }
        }
    }

    /// The byte order mark with which a file of this encoding begins.
    pub(super) fn mark(self) -> &'static [u8] {
        match self {
            Self(encoding) if encoding == UTF_8 => b"\xef\xbb\xbf",
            Self(encoding) if encoding == UTF_16LE => b"\xff\xfe",
            Self(encoding) if encoding == UTF_16BE => b"\xfe\xff",
            _ => b"",
        }
    }
}

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
            if self.line.len() < CHUNK {
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

/// A text as UTF-8, whatever it is in.
pub(super) struct Decoding<R> {
    source: R,
    /// `None`: the text is UTF-8 and passes as it is.
    decoder: Option<Decoder>,
    input: Vec<u8>,
    output: Vec<u8>,
    given: usize,
    ended: bool,
    /// Bytes of the source that were read.
    taken: u64,
}

impl<R: Read> Decoding<R> {
    pub(super) fn new(source: R, encoding: Encoding) -> Self {
        Self {
            source,
            decoder: (!encoding.is_utf8()).then(|| encoding.0.new_decoder_without_bom_handling()),
            input: Vec::new(),
            output: Vec::new(),
            given: 0,
            ended: false,
            taken: 0,
        }
    }

    pub(super) fn is_decoding(&self) -> bool {
        self.decoder.is_some()
    }

    /// Bytes of the source that were read.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    fn fill(&mut self, mut decoder: Decoder) -> io::Result<Decoder> {
        self.output.clear();
        self.given = 0;
        while self.output.is_empty() && !self.ended {
            self.input.resize(CHUNK, 0);
            let read = self.source.read(&mut self.input)?;
            self.input.truncate(read);
            self.taken += read as u64;
            self.ended = read == 0;
            self.decode(&mut decoder);
        }
        Ok(decoder)
    }

    fn decode(&mut self, decoder: &mut Decoder) {
        let mut rest = self.input.as_slice();
        loop {
            let start = self.output.len();
            let room = decoder.max_utf8_buffer_length_without_replacement(rest.len());
            self.output
                .resize(start + room.unwrap_or(rest.len() * 4 + 16), 0);
            let (result, read, written) = decoder.decode_to_utf8_without_replacement(
                rest,
                &mut self.output[start..],
                self.ended,
            );
            self.output.truncate(start + written);
            if let DecoderResult::Malformed(length, after) = result {
                let end = read.saturating_sub(usize::from(after));
                let raw = &rest[end.saturating_sub(usize::from(length))..end];
                let before = self.output.len();
                for &byte in raw.iter().filter(|byte| !byte.is_ascii()) {
                    self.output.extend_from_slice(&[MARK, byte]);
                }
                if self.output.len() == before {
                    self.output.extend_from_slice(&[MARK, MARK]);
                }
            }
            rest = &rest[read..];
            if result == DecoderResult::InputEmpty {
                return;
            }
        }
    }
}

impl<R: Read> Read for Decoding<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.output.len() && !self.ended {
            match self.decoder.take() {
                None => {
                    let read = self.source.read(buffer)?;
                    self.taken += read as u64;
                    return Ok(read);
                }
                Some(decoder) => self.decoder = Some(self.fill(decoder)?),
            }
        }
        let waiting = &self.output[self.given..];
        let length = waiting.len().min(buffer.len());
        buffer[..length].copy_from_slice(&waiting[..length]);
        self.given += length;
        Ok(length)
    }
}

#[cfg(test)]
#[path = "encoding_tests.rs"]
mod tests;
