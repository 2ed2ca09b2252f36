//! Text encodings: names and byte order marks, detection, decoding with marked errors, encoding.

mod decode;
mod detect;

use std::fmt;
use std::str::FromStr;

use encoding_rs::{EUC_KR, GB18030, GBK, SHIFT_JIS, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_874};

pub(super) use self::decode::Decoder;
pub(super) use self::detect::{Detected, detect};

/// Precedes each byte that could not be decoded. It never occurs in UTF-8.
const MARK: u8 = 0xff;

/// A text encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding(&'static encoding_rs::Encoding);

impl FromStr for Encoding {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let label = name.trim().to_ascii_lowercase();
        let bare: String = label.chars().filter(char::is_ascii_alphanumeric).collect();
        let known = |label: &str| encoding_rs::Encoding::for_label_no_replacement(label.as_bytes());
        let found = match bare.as_str() {
            "utf16" | "utf16le" => Some(UTF_16LE),
            "utf16be" => Some(UTF_16BE),
            "cp936" | "ms936" => Some(GBK),
            "cp874" => Some(WINDOWS_874),
            "cp932" => Some(SHIFT_JIS),
            "cp949" | "ms949" => Some(EUC_KR),
            _ => known(&label).or_else(|| known(&bare)),
        };
        found.map(Self::from).ok_or_else(|| {
            format!(
                "unknown encoding `{name}`: use a name such as `gb18030`, `utf-16`, `shift-jis` or `windows-1252`"
            )
        })
    }
}

/// GBK becomes its superset GB18030.
impl From<&'static encoding_rs::Encoding> for Encoding {
    fn from(encoding: &'static encoding_rs::Encoding) -> Self {
        Self(if encoding == GBK { GB18030 } else { encoding })
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == GB18030 { "GB18030" } else { self.0.name() })
    }
}

impl Encoding {
    pub(super) const UTF8: Self = Self(UTF_8);

    pub(super) fn is_utf8(self) -> bool {
        self.0 == UTF_8
    }

    fn is_utf16(self) -> bool {
        self.0 == UTF_16LE || self.0 == UTF_16BE
    }

    /// Returns the encoding of a byte order mark and the length of the mark.
    pub(super) fn of_mark(head: &[u8]) -> Option<(Self, usize)> {
        encoding_rs::Encoding::for_bom(head).map(|(encoding, length)| (Self(encoding), length))
    }

    /// Recognizes UTF-16 without a mark: its ASCII characters have a NUL in every other byte.
    pub(super) fn utf16_by_nuls(head: &[u8]) -> Option<Self> {
        let nuls = |from: usize| {
            let bytes = head.iter().skip(from).step_by(2);
            bytes.filter(|byte| **byte == 0).count()
        };
        let (even, odd, half) = (nuls(0), nuls(1), head.len() / 2);
        if odd * 4 > half && even * 20 < odd {
            return Some(Self(UTF_16LE));
        }
        (even * 4 > half && odd * 20 < even).then_some(Self(UTF_16BE))
    }

    /// Encodes decoded text. Unknown characters become `?`, marked bytes are written as they were.
    pub(super) fn encode(self, text: &[u8]) -> Vec<u8> {
        if self.is_utf8() {
            return text.to_vec();
        }
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.iter().position(|&byte| byte == MARK) {
            self.encode_piece(&rest[..at], &mut bytes);
            match rest.get(at + 1) {
                Some(&raw) if !self.is_utf16() => bytes.push(raw),
                _ => self.encode_piece("\u{fffd}".as_bytes(), &mut bytes),
            }
            rest = rest.get(at + 2..).unwrap_or_default();
        }
        self.encode_piece(rest, &mut bytes);
        bytes
    }

    fn encode_piece(self, piece: &[u8], bytes: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(piece);
        if self.0 == UTF_16LE {
            return bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        }
        if self.0 == UTF_16BE {
            return bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes));
        }
        let (encoded, _, has_unknown) = self.0.encode(&text);
        if !has_unknown {
            return bytes.extend_from_slice(&encoded);
        }
        for character in text.chars() {
            let mut buffer = [0; 4];
            let (encoded, _, is_unknown) = self.0.encode(character.encode_utf8(&mut buffer));
            bytes.extend_from_slice(if is_unknown { b"?" } else { &encoded });
        }
    }

    /// Whether the bytes of a row that was read in this encoding are valid UTF-8. One such character is
    /// enough in an encoding of single bytes; in others it needs two long ones, because short ones occur
    /// by chance.
    pub(super) fn looks_like_utf8(self, cells: &[&str]) -> bool {
        if self.is_utf8() || self.is_utf16() {
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

    /// Returns the byte order mark of a file in this encoding, empty if it has none.
    pub(super) fn mark(self) -> &'static [u8] {
        match self.0 {
            encoding if encoding == UTF_8 => b"\xef\xbb\xbf",
            encoding if encoding == UTF_16LE => b"\xff\xfe",
            encoding if encoding == UTF_16BE => b"\xfe\xff",
            _ => b"",
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
