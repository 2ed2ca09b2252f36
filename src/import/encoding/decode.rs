//! Decodes a stream to UTF-8. Bytes that cannot be decoded are marked, so that only their row is rejected
//! and they can be written back unchanged.

use std::io::{self, Read};

use encoding_rs::DecoderResult;

use super::{Encoding, MARK};

const CHUNK: usize = 64 * 1024;

/// Reads text in any encoding as UTF-8.
pub(crate) struct Decoder<R> {
    source: R,
    /// `None` for UTF-8, which is passed through.
    inner: Option<encoding_rs::Decoder>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of `output` that were returned.
    returned: usize,
    ended: bool,
}

impl<R: Read> Decoder<R> {
    pub(crate) fn new(source: R, encoding: Encoding) -> Self {
        Self {
            source,
            inner: (!encoding.is_utf8()).then(|| encoding.0.new_decoder_without_bom_handling()),
            input: Vec::new(),
            output: Vec::new(),
            returned: 0,
            ended: false,
        }
    }
}

/// Decodes `input` into `output`.
fn decode(decoder: &mut encoding_rs::Decoder, input: &[u8], is_last: bool, output: &mut Vec<u8>) {
    let mut rest = input;
    loop {
        let start = output.len();
        let room = decoder.max_utf8_buffer_length_without_replacement(rest.len());
        output.resize(start + room.unwrap_or(rest.len() * 4 + 16), 0);
        let (result, read, written) =
            decoder.decode_to_utf8_without_replacement(rest, &mut output[start..], is_last);
        output.truncate(start + written);
        if let DecoderResult::Malformed(length, after) = result {
            let end = read.saturating_sub(usize::from(after));
            let raw = &rest[end.saturating_sub(usize::from(length))..end];
            let before = output.len();
            for &byte in raw.iter().filter(|byte| !byte.is_ascii()) {
                output.extend_from_slice(&[MARK, byte]);
            }
            if output.len() == before {
                output.extend_from_slice(&[MARK, MARK]);
            }
        }
        rest = &rest[read..];
        if result == DecoderResult::InputEmpty {
            return;
        }
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(decoder) = &mut self.inner else {
            return self.source.read(buffer);
        };
        while self.returned == self.output.len() && !self.ended {
            self.input.resize(CHUNK, 0);
            let read = self.source.read(&mut self.input)?;
            self.ended = read == 0;
            self.output.clear();
            self.returned = 0;
            decode(decoder, &self.input[..read], self.ended, &mut self.output);
        }
        let waiting = &self.output[self.returned..];
        let length = waiting.len().min(buffer.len());
        buffer[..length].copy_from_slice(&waiting[..length]);
        self.returned += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails before each piece, like a read that a signal interrupts.
    struct Interrupted<'t>(&'t [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let length = self.0.len().min(3).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    #[test]
    fn interrupted_reads_keep_the_encoding() {
        let encoding: Encoding = "gb18030".parse().expect("an encoding");
        let bytes = encoding.encode("手机号,姓名\n13800138000,王小明\n".as_bytes());
        let mut text = String::new();
        let read = Decoder::new(Interrupted(&bytes, false), encoding).read_to_string(&mut text);
        assert!(read.is_ok(), "{read:?}");
        assert_eq!(text, "手机号,姓名\n13800138000,王小明\n");
    }
}
