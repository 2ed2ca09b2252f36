//! Detects the encoding of text that is not all UTF-8, line by line: a file put together from two encodings
//! is reported, because half of it would be sent as gibberish.

use std::io::{self, BufRead, Read};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{BIG5, EUC_JP, EUC_KR, GBK, SHIFT_JIS};
use smsq_message::phone::Region;

use super::Encoding;

/// The part of a longer line that is used, in bytes.
const MAX_LINE: u64 = 64 * 1024;
/// The detector is slow, and is certain after fewer bytes than this.
const MAX_SAMPLE: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detected {
    Encoding(Encoding),
    /// The first line in UTF-8 and the first line that is not.
    Mixed {
        utf8: u64,
        other: u64,
    },
}

/// Reads all of `text`, which contains bytes that are not UTF-8.
pub(crate) fn detect(mut text: impl BufRead, region: Option<Region>) -> io::Result<Detected> {
    let mut sample = Vec::new();
    let (mut utf8, mut other) = (LineCount::default(), LineCount::default());
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if (&mut text).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if !line.ends_with(b"\n") {
            text.skip_until(b'\n')?;
        }
        if line.is_ascii() && !line.contains(&0x1b) {
            continue;
        }
        match std::str::from_utf8(&line) {
            Ok(text) if is_certain(text) => utf8.count(number),
            Ok(_) => {}
            Err(_) => {
                other.count(number);
                if sample.len() < MAX_SAMPLE {
                    sample.extend_from_slice(&line);
                }
            }
        }
    }
    Ok(if utf8.count > other.count {
        Detected::Encoding(Encoding::UTF8)
    } else if utf8.count * 20 > other.count {
        // In a long list of two-byte characters, a few lines look like UTF-8 by chance.
        Detected::Mixed { utf8: utf8.first, other: other.first }
    } else {
        Detected::Encoding(guess(&sample, region).into())
    })
}

#[derive(Default)]
struct LineCount {
    count: u64,
    first: u64,
}

impl LineCount {
    fn count(&mut self, line: u64) {
        if self.count == 0 {
            self.first = line;
        }
        self.count += 1;
    }
}

/// One broken character makes the detector rule out a multi-byte encoding. So where at most a tenth of the
/// lines is broken in such an encoding, the other lines are examined again.
fn guess(sample: &[u8], region: Option<Region>) -> &'static encoding_rs::Encoding {
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
    let second = [GBK, BIG5, SHIFT_JIS, EUC_KR, EUC_JP].into_iter().find(|encoding| {
        let is_whole = |line: &&[u8]| {
            let text = encoding.decode_without_bom_handling_and_without_replacement(line);
            text.is_some()
        };
        let whole: Vec<&[u8]> = lines.iter().copied().filter(is_whole).collect();
        let broken = lines.len() - whole.len();
        broken > 0 && broken * 10 <= lines.len() && guess(&whole) == *encoding
    });
    second.unwrap_or(first)
}

/// Two bytes can be UTF-8 by chance; three, or two pairs, hardly.
fn is_certain(text: &str) -> bool {
    let wide = text.chars().filter(|character| !character.is_ascii());
    wide.map(|character| character.len_utf8() - 1).sum::<usize>() >= 2
}
