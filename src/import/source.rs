//! The file as bytes: opened, or spooled from standard input so that it can be read twice; then looked
//! at once from end to end, so that what is wrong with the whole of it is known before the first row.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::digest;
use super::error::ImportError;
use super::reader::{Format, Reader};

const BOM: &[u8] = b"\xef\xbb\xbf";
const CHUNK: usize = 256 * 1024;
/// What is looked at to tell text from binary and one delimiter from another.
const HEAD: usize = 8 * 1024;
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// A file that is text, and what is known of it.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    /// As it was named, or `standard input`.
    pub(super) name: String,
    pub(super) stem: String,
    /// SHA-256 of its bytes, in lower-case hex.
    pub(super) hash: String,
    pub(super) bytes: u64,
    pub(super) format: Format,
    /// Bytes before the header: a byte order mark, a line `sep=;`.
    skipped: u64,
    skipped_lines: u64,
}

impl Source {
    /// Opens and inspects `path`; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Self, ImportError> {
        if path == Path::new("-") {
            let file = spooled(&mut io::stdin().lock()).map_err(|source| ImportError::Read {
                file: "standard input".to_owned(),
                source,
            })?;
            return Self::inspect(file, path, "standard input".to_owned(), "stdin".to_owned());
        }
        let name = path.display().to_string();
        let stem = path
            .file_stem()
            .map_or_else(|| name.clone(), |stem| stem.to_string_lossy().into_owned());
        let from_io = |source| ImportError::from_io(path, &name, source);
        if std::fs::metadata(path).map_err(from_io)?.is_dir() {
            return Err(ImportError::Folder { file: name });
        }
        let file = File::open(path).map_err(from_io)?;
        Self::inspect(file, path, name, stem)
    }

    fn inspect(
        mut file: File,
        path: &Path,
        name: String,
        stem: String,
    ) -> Result<Self, ImportError> {
        let facts = Facts::of(&mut file, &name).map_err(|fault| match fault {
            Fault::Io(source) => ImportError::from_io(path, &name, source),
            Fault::Text(error) => error,
        })?;
        let mut head = facts.head.as_slice();
        head = head.strip_prefix(BOM).unwrap_or(head);
        let terminator = if head.contains(&b'\n') || !head.contains(&b'\r') {
            b'\n'
        } else {
            b'\r'
        };
        let mut skipped = (facts.head.len() - head.len()) as u64;
        let line = head
            .iter()
            .position(|&byte| byte == terminator)
            .map_or(head.len(), |end| end + 1);
        let declared = declared_delimiter(&head[..line]);
        if declared.is_some() {
            skipped += line as u64;
        }
        let delimiter = declared.unwrap_or_else(|| likely_delimiter(&head[..line]));
        Ok(Self {
            file,
            name,
            stem,
            hash: facts.hash,
            bytes: facts.bytes,
            format: Format {
                delimiter,
                terminator,
            },
            skipped,
            skipped_lines: u64::from(declared.is_some()),
        })
    }

    /// The rows from the header on.
    pub(super) fn rows(&self) -> io::Result<Reader<File>> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(self.skipped))?;
        Ok(Reader::new(file, self.format, 1 + self.skipped_lines))
    }

    /// Whether the file is still as long as it was when it was inspected.
    pub(super) fn is_unchanged(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.len() == self.bytes)
    }
}

/// Standard input as a file that nobody else sees and that goes when it is closed.
fn spooled(input: &mut impl Read) -> io::Result<File> {
    let (path, mut file) = unnamed()?;
    // The file lives on through its handle where the system allows that, and is left in the
    // temporary folder where it does not.
    let _ = std::fs::remove_file(&path);
    io::copy(input, &mut file)?;
    file.flush()?;
    Ok(file)
}

fn unnamed() -> io::Result<(PathBuf, File)> {
    let folder = std::env::temp_dir();
    loop {
        let path = folder.join(format!("smsq-{:016x}", rand::random::<u64>()));
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return Ok((path, opened?)),
        }
    }
}

enum Fault {
    Io(io::Error),
    Text(ImportError),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What one pass over all bytes finds.
struct Facts {
    head: Vec<u8>,
    hash: String,
    bytes: u64,
}

impl Facts {
    fn of(file: &mut File, name: &str) -> Result<Self, Fault> {
        file.rewind()?;
        let mut head = Vec::new();
        let mut hasher = Sha256::new();
        let mut text = Utf8::default();
        let mut chunk = vec![0; CHUNK];
        let mut bytes = 0;
        loop {
            let read = file.read(&mut chunk)?;
            if read == 0 {
                break;
            }
            if bytes == 0 {
                head.extend_from_slice(&chunk[..read.min(HEAD)]);
                if let Some(what) = binary(&head) {
                    return Err(Fault::Text(ImportError::Binary {
                        file: name.to_owned(),
                        what,
                    }));
                }
            }
            bytes += read as u64;
            hasher.update(&chunk[..read]);
            text.take(&chunk[..read])
                .map_err(|found| Fault::Text(found.named(name)))?;
        }
        text.finish()
            .map_err(|found| Fault::Text(found.named(name)))?;
        if head
            .strip_prefix(BOM)
            .unwrap_or(&head)
            .iter()
            .all(u8::is_ascii_whitespace)
            && bytes <= HEAD as u64
        {
            return Err(Fault::Text(ImportError::Empty {
                file: name.to_owned(),
            }));
        }
        let hash = digest::hex(hasher);
        Ok(Self { head, hash, bytes })
    }
}

/// Says what a file is that is not text.
fn binary(head: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 7] = [
        (b"PK\x03\x04", "it is a workbook or another ZIP archive"),
        (b"\xd0\xcf\x11\xe0", "it is an old workbook"),
        (b"\x1f\x8b", "it is compressed"),
        (b"%PDF", "it is a PDF"),
        (b"SQLite format 3\0", "it is a database"),
        (b"\x89PNG", "it is a picture"),
        (b"\x7fELF", "it is a program"),
    ];
    if let Some((_, what)) = known.into_iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(what);
    }
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return None;
    }
    let control = |byte: &&u8| matches!(byte, 0..=8 | 14..=26 | 28..=31 | 127);
    let controls = head.iter().filter(control).count();
    let first_line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
    (first_line.contains(&0) || controls * 10 > head.len())
        .then_some("it holds bytes that no text has")
}

/// The first byte that is not UTF-8.
struct NotUtf8 {
    what: String,
    byte: u64,
    line: u64,
}

impl NotUtf8 {
    fn named(self, name: &str) -> ImportError {
        ImportError::Encoding {
            file: name.to_owned(),
            what: self.what,
            byte: self.byte,
            line: self.line,
        }
    }
}

/// Checks text that comes in pieces.
#[derive(Default)]
struct Utf8 {
    /// The start of a character whose end has not come yet.
    pending: Vec<u8>,
    checked: u64,
    newlines: u64,
}

impl Utf8 {
    fn take(&mut self, chunk: &[u8]) -> Result<(), NotUtf8> {
        let mut rest = chunk;
        while !self.pending.is_empty() && !rest.is_empty() {
            self.pending.push(rest[0]);
            rest = &rest[1..];
            let pending = std::mem::take(&mut self.pending);
            self.check(&pending)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.check(rest)
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), NotUtf8> {
        let error = std::str::from_utf8(bytes).err();
        let valid = error.map_or(bytes.len(), |error| error.valid_up_to());
        self.checked += valid as u64;
        self.newlines += newlines(&bytes[..valid]);
        match error {
            Some(error) if error.error_len().is_some() => Err(self.fault(bytes[valid])),
            _ => {
                self.pending = bytes[valid..].to_vec();
                Ok(())
            }
        }
    }

    fn finish(&mut self) -> Result<(), NotUtf8> {
        match self.pending.first() {
            Some(&byte) => Err(self.fault(byte)),
            None => Ok(()),
        }
    }

    fn fault(&self, byte: u8) -> NotUtf8 {
        let utf16 = self.checked == 0 && byte >= 0xfe;
        let what = if utf16 {
            "it is UTF-16, as it says".to_owned()
        } else {
            format!("0x{byte:02x}")
        };
        NotUtf8 {
            what,
            byte: self.checked,
            line: self.newlines + 1,
        }
    }
}

pub(super) fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte == b'\n')).sum()
}

/// A first line `sep=;`, which spreadsheets write and read.
fn declared_delimiter(line: &[u8]) -> Option<u8> {
    let line = line.trim_ascii_end();
    match line
        .strip_prefix(b"sep=")
        .or_else(|| line.strip_prefix(b"SEP="))?
    {
        [delimiter] => Some(*delimiter),
        [] => Some(b'\t'),
        _ => None,
    }
}

/// The delimiter that the header has most of, outside of quotes; `,` where it has none.
fn likely_delimiter(header: &[u8]) -> u8 {
    let mut counts = [0; DELIMITERS.len()];
    let mut quoted = false;
    for byte in header {
        match DELIMITERS.iter().position(|delimiter| delimiter == byte) {
            Some(which) if !quoted => counts[which] += 1,
            _ if *byte == b'"' => quoted = !quoted,
            _ => {}
        }
    }
    let most = counts.iter().max().copied().unwrap_or(0);
    counts
        .iter()
        .position(|&count| count == most && most > 0)
        .map_or(b',', |which| DELIMITERS[which])
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
