//! A text in any encoding as UTF-8, piece by piece. Bytes that are no character come through marked, so that
//! they cost their row and no other, and can be written back as they were.

use std::io::{self, Read};

use encoding_rs::{Decoder, DecoderResult};

use super::encoding::{Encoding, MARK};

const CHUNK: usize = 64 * 1024;

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
            decoder: (!encoding.is_utf8()).then(|| encoding.decoder()),
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

    fn fill(&mut self, decoder: &mut Decoder) -> io::Result<()> {
        self.output.clear();
        self.given = 0;
        while self.output.is_empty() && !self.ended {
            self.input.resize(CHUNK, 0);
            let read = self.source.read(&mut self.input)?;
            self.input.truncate(read);
            self.taken += read as u64;
            self.ended = read == 0;
            self.decode(decoder);
        }
        Ok(())
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
                Some(mut decoder) => {
                    // A read that was interrupted is tried again, with the same decoder.
                    let filled = self.fill(&mut decoder);
                    self.decoder = Some(decoder);
                    filled?;
                }
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
mod tests {
    use super::*;

    /// Fails before each piece, as a read that a signal interrupts.
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
        let read = Decoding::new(Interrupted(&bytes, false), encoding).read_to_string(&mut text);
        assert!(read.is_ok(), "{read:?}");
        assert_eq!(text, "手机号,姓名\n13800138000,王小明\n");
    }
}
