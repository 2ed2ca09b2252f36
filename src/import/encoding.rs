//! The encodings of texts: their names, their marks, and text as bytes of one of them.

use std::fmt;
use std::str::FromStr;

use encoding_rs::{Decoder, EncoderResult, GB18030, GBK, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_874};

/// No byte of UTF-8: it stands before each byte that was no character.
pub(super) const MARK: u8 = 0xff;

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
    pub(super) fn of(encoding: &'static encoding_rs::Encoding) -> Self {
        Self(if encoding == GBK { GB18030 } else { encoding })
    }

    pub(super) fn is_utf8(self) -> bool {
        self.0 == UTF_8
    }

    pub(super) fn decoder(self) -> Decoder {
        self.0.new_decoder_without_bom_handling()
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

    /// Whether a row that was read in this encoding is UTF-8 in all its characters: in an encoding of
    /// single bytes one such character is hardly there by chance, in any other two long ones are not.
    pub(super) fn looks_like_utf8(self, cells: &[&str]) -> bool {
        if self.is_utf8() || self.is_wide() {
            return false;
        }
        let (mut short, mut long) = (0, 0);
        for cell in cells.iter().filter(|cell| !cell.is_ascii()) {
            let bytes = self.encode(cell.as_bytes());
            let Ok(text) = std::str::from_utf8(&bytes) else {
                return false;
            };
            for character in text.chars() {
                match character.len_utf8() {
                    1 => {}
                    2 => short += 1,
                    _ => long += 1,
                }
            }
        }
        if self.0.is_single_byte() && self.0 != WINDOWS_874 {
            short + long > 0
        } else {
            short == 0 && long > 1
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

#[cfg(test)]
#[path = "encoding_tests.rs"]
mod tests;
