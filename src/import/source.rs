//! The file as bytes: opened, unpacked, or kept where it cannot be read twice; then looked at once from end
//! to end, so that what is wrong with the whole of it is known before the first row.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::decoding::Decoding;
use super::digest;
use super::encoding::Encoding;
use super::error::ImportError;
use super::guess::{binary, declared_delimiter, likely_delimiter};
use super::input::{Input, Text};
use super::json_lines::{self, JsonLines};
use super::reader::{Format, Reader};
use super::sheet::Sheet;
use super::survey::{Survey, Utf8, Verdict};
use super::unpack::{self, Archive};
use super::{spool, workbook};
use crate::phone::Region;
use crate::text::printable_line;

const CHUNK: usize = 256 * 1024;
/// What is looked at to tell text from binary and one delimiter from another.
const HEAD: usize = 8 * 1024;
/// A list in an archive in an archive is a joke.
const LAYERS: usize = 2;

/// What the operator says about a file, and what helps to understand it.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked<'a> {
    pub(super) encoding: Option<Encoding>,
    pub(super) sheet: Option<&'a str>,
    pub(super) region: Option<Region>,
}

/// What the rows of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Separated(Format),
    /// The file holds the rows of a sheet; in words, which one.
    Sheet(String),
    /// Objects, with the keys that they have.
    JsonLines(Vec<String>),
}

/// A list, and what is known of it.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    /// As it was named, or `standard input`.
    pub(super) name: String,
    pub(super) stem: String,
    /// SHA-256 of its bytes, in lower-case hex.
    pub(super) hash: String,
    pub(super) bytes: u64,
    pub(super) form: Form,
    pub(super) encoding: Encoding,
    /// The encoding is a guess by the characters of the text.
    pub(super) is_detected: bool,
    /// The file begins with a byte order mark.
    pub(super) is_marked: bool,
    changed_at: Option<SystemTime>,
    /// Bytes before the header: a byte order mark, a line `sep=;`.
    skipped: u64,
    skipped_lines: u64,
}

impl Source {
    /// Opens and inspects `path`; `-` is standard input.
    pub(super) fn open(path: &Path, asked: Asked<'_>) -> Result<Self, ImportError> {
        let (mut file, name) = opened(path)?;
        let is_piped = path == Path::new("-");
        let mut stem = if is_piped {
            "stdin".to_owned()
        } else {
            stem_of(&name)
        };
        for layer in 0.. {
            let head =
                head_of(&mut file).map_err(|source| ImportError::from_io(path, &name, source))?;
            let is_gzip = head.starts_with(b"\x1f\x8b");
            let is_archive = head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06");
            let is_old_book = head.starts_with(b"\xd0\xcf\x11\xe0");
            if layer == LAYERS && (is_gzip || is_archive) {
                return Err(ImportError::Bomb { file: name });
            }
            if is_gzip {
                file = unpack::gzip(&file, &name)?;
                stem = stem_of(&stem);
            } else if is_archive {
                match unpack::zip(&file, &name)? {
                    Archive::Workbook => return Self::sheet(&mut file, name, stem, asked),
                    Archive::File(inner, entry) => {
                        file = inner;
                        stem = stem_of(if is_piped { &entry } else { &stem });
                    }
                }
            } else if is_old_book {
                return Self::sheet(&mut file, name, stem, asked);
            } else {
                break;
            }
        }
        Self::inspect(file, name, stem, asked)
    }

    fn sheet(
        file: &mut File,
        name: String,
        stem: String,
        asked: Asked<'_>,
    ) -> Result<Self, ImportError> {
        let read = workbook::read(file, &name, asked.sheet)?;
        let fault = |source| ImportError::Read {
            file: name.clone(),
            source,
        };
        let hash = Facts::of(file).map_err(fault)?.hash;
        let bytes = read.rows.metadata().map_err(fault)?.len();
        Ok(Self {
            file: read.rows,
            name,
            stem,
            hash,
            bytes,
            form: Form::Sheet(read.note),
            encoding: Encoding::UTF8,
            is_detected: false,
            is_marked: true,
            changed_at: None,
            skipped: 0,
            skipped_lines: 0,
        })
    }

    fn inspect(
        mut file: File,
        name: String,
        stem: String,
        asked: Asked<'_>,
    ) -> Result<Self, ImportError> {
        if asked.sheet.is_some() {
            return Err(ImportError::NoWorkbook { file: name });
        }
        let from_io = |source| ImportError::Read {
            file: name.clone(),
            source,
        };
        let head = head_of(&mut file).map_err(from_io)?;
        if let Some(what) = binary(&head, asked.encoding) {
            return Err(ImportError::Binary { file: name, what });
        }
        let facts = Facts::of(&mut file).map_err(from_io)?;
        let marked = Encoding::of_mark(&head);
        let mut is_detected = false;
        let encoding = match (asked.encoding, marked) {
            (Some(encoding), _) | (None, Some((encoding, _))) => encoding,
            (None, None) => match Encoding::wide_by_nuls(&head) {
                Some(encoding) => encoding,
                None if facts.is_utf8 => Encoding::UTF8,
                None => {
                    is_detected = true;
                    survey(&mut file, &name, asked.region)?
                }
            },
        };
        let mut source = Self {
            changed_at: file
                .metadata()
                .and_then(|metadata| metadata.modified())
                .ok(),
            file,
            stem,
            hash: facts.hash,
            bytes: facts.bytes,
            form: Form::JsonLines(Vec::new()),
            encoding,
            is_detected,
            is_marked: marked.is_some(),
            skipped: marked.map_or(0, |(_, length)| length as u64),
            skipped_lines: 0,
            name,
        };
        source.find_form()?;
        Ok(source)
    }

    /// Looks at the beginning of the text.
    fn find_form(&mut self) -> Result<(), ImportError> {
        let from_io = |name: &str| {
            let file = name.to_owned();
            move |source| ImportError::Read { file, source }
        };
        let mut head = Vec::new();
        let text = self.text().map_err(from_io(&self.name))?;
        text.take(HEAD as u64)
            .read_to_end(&mut head)
            .map_err(from_io(&self.name))?;
        let start = head.trim_ascii_start();
        if start.is_empty() && self.bytes <= HEAD as u64 {
            return Err(ImportError::Empty {
                file: self.name.clone(),
            });
        }
        if start.starts_with(b"[{")
            || (start.starts_with(b"[") && start[1..].trim_ascii_start().starts_with(b"{"))
        {
            return Err(ImportError::JsonArray {
                file: self.name.clone(),
            });
        }
        if start.starts_with(b"{") {
            let text = self.text().map_err(from_io(&self.name))?;
            let keys = json_lines::keys(text).map_err(from_io(&self.name))?;
            let keys = keys
                .filter(|keys| !keys.is_empty())
                .ok_or_else(|| ImportError::NoKeys {
                    file: self.name.clone(),
                })?;
            self.form = Form::JsonLines(keys);
            return Ok(());
        }
        let terminator = if head.contains(&b'\n') || !head.contains(&b'\r') {
            b'\n'
        } else {
            b'\r'
        };
        let line = head
            .iter()
            .position(|&byte| byte == terminator)
            .map_or(head.len(), |end| end + 1);
        let declared = declared_delimiter(&head[..line]);
        if declared.is_some() {
            self.skipped += self.encoding.encode(&head[..line]).len() as u64;
            self.skipped_lines = 1;
        }
        self.form = Form::Separated(Format {
            delimiter: declared.unwrap_or_else(|| likely_delimiter(&head, line)),
            terminator,
        });
        Ok(())
    }

    /// The rows from the header on.
    pub(super) fn rows(&self) -> io::Result<Input> {
        Ok(match &self.form {
            Form::Separated(format) => {
                Input::Separated(Reader::new(self.text()?, *format, 1 + self.skipped_lines))
            }
            Form::Sheet(_) => {
                let mut file = self.file.try_clone()?;
                file.rewind()?;
                Input::Sheet(Sheet::new(file))
            }
            Form::JsonLines(keys) => Input::JsonLines(JsonLines::new(self.text()?, keys)),
        })
    }

    /// Only what was there when it was inspected: a file that grows is no longer the one that was looked at.
    fn text(&self) -> io::Result<Text> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(self.skipped))?;
        let left = self.bytes.saturating_sub(self.skipped);
        Ok(Decoding::new(file.take(left), self.encoding))
    }

    /// Whether the file is still as it was when it was inspected.
    pub(super) fn is_unchanged(&self) -> io::Result<bool> {
        let metadata = self.file.metadata()?;
        Ok(metadata.len() == self.bytes
            && (self.changed_at.is_none() || metadata.modified().ok() == self.changed_at))
    }
}

/// The file itself, or what a pipe gives; and its name.
fn opened(path: &Path) -> Result<(File, String), ImportError> {
    if path == Path::new("-") {
        let name = "standard input".to_owned();
        return match spool::of(&mut io::stdin().lock()) {
            Ok(file) => Ok((file, name)),
            Err(source) => Err(ImportError::Read { file: name, source }),
        };
    }
    let name = printable_line(&path.display().to_string()).into_owned();
    let from_io = |source| ImportError::from_io(path, &name, source);
    let kind = std::fs::metadata(path).map_err(from_io)?.file_type();
    if kind.is_dir() {
        return Err(ImportError::Folder { file: name });
    }
    if is_device(kind) {
        return Err(ImportError::Device { file: name });
    }
    let mut file = File::open(path).map_err(from_io)?;
    if !kind.is_file() {
        file = spool::of(&mut file).map_err(from_io)?;
    }
    Ok((file, name))
}

#[cfg(unix)]
fn is_device(kind: std::fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_char_device() || kind.is_block_device() || kind.is_socket()
}

#[cfg(not(unix))]
fn is_device(_: std::fs::FileType) -> bool {
    false
}

/// `list` of `list.csv`.
fn stem_of(name: &str) -> String {
    let stem = Path::new(name).file_stem();
    stem.map_or_else(
        || name.to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    )
}

fn head_of(file: &mut File) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.rewind()?;
    file.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// What one pass over all bytes finds.
struct Facts {
    hash: String,
    bytes: u64,
    is_utf8: bool,
}

impl Facts {
    fn of(file: &mut File) -> io::Result<Self> {
        file.rewind()?;
        let mut hasher = Sha256::new();
        let mut text = Utf8::default();
        let mut chunk = vec![0; CHUNK];
        let mut bytes = 0;
        loop {
            let read = file.read(&mut chunk)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            hasher.update(&chunk[..read]);
            text.take(&chunk[..read]);
        }
        Ok(Self {
            hash: digest::hex(hasher),
            bytes,
            is_utf8: text.holds(),
        })
    }
}

/// The encoding of a text that is not all UTF-8.
fn survey(file: &mut File, name: &str, region: Option<Region>) -> Result<Encoding, ImportError> {
    let from_io = |source| ImportError::Read {
        file: name.to_owned(),
        source,
    };
    file.rewind().map_err(from_io)?;
    let mut survey = Survey::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = file.read(&mut chunk).map_err(from_io)?;
        if read == 0 {
            break;
        }
        survey.take(&chunk[..read]);
    }
    match survey.finish(region) {
        Verdict::One(encoding) => Ok(encoding),
        Verdict::Mixed { utf8, other } => Err(ImportError::Mixed {
            file: name.to_owned(),
            utf8,
            other,
        }),
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
