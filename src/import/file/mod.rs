//! Opens a list: from a path or standard input, unpacked, as text of a detected encoding or as rows of a
//! workbook. The whole file is read once, so that its faults are known before the first row.

mod archive;
mod sniff;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::SystemTime;

use encoding_rs::{DecoderResult, UTF_8};
use sha2::{Digest, Sha256};

use super::encoding::{Decoder, Detected, Encoding, detect};
use super::error::ImportError;
use super::options::Options;
use super::record::{
    CsvFormat, CsvReader, JsonReader, RecordReader, Rows, SheetReader, json_keys, workbook,
};
use crate::text::printable_line;

const CHUNK: usize = 256 * 1024;
/// How much is read to recognize the kind of file and the delimiter.
const HEAD: u64 = 8 * 1024;
/// Archives in archives are unpacked up to this depth.
const MAX_LAYERS: usize = 2;

/// The format of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListFormat {
    Csv(CsvFormat),
    /// The temporary file has the rows of a sheet. The note says which sheet.
    Sheet {
        note: String,
    },
    /// Objects, with all their keys.
    JsonLines {
        keys: Vec<String>,
    },
}

/// An opened list.
#[derive(Debug)]
pub(super) struct ListFile {
    file: File,
    /// See [`Options::name`].
    pub(super) name: String,
    pub(super) stem: String,
    /// SHA-256 of the bytes in lower-case hex.
    pub(super) hash: String,
    pub(super) bytes: u64,
    pub(super) format: ListFormat,
    pub(super) encoding: Encoding,
    /// The encoding was guessed from the text.
    pub(super) is_detected: bool,
    /// The file begins with a byte order mark.
    pub(super) has_mark: bool,
    modified_at: Option<SystemTime>,
    /// Bytes before the header: a byte order mark, a line `sep=;`.
    skipped_bytes: u64,
    skipped_lines: u64,
}

impl ListFile {
    pub(super) fn open(options: &Options) -> Result<Self, ImportError> {
        let is_stdin = options.file == Path::new("-");
        let (mut file, path) = open(&options.file)?;
        let name = options.name.clone().unwrap_or(path);
        let mut stem = if is_stdin {
            "stdin".to_owned()
        } else {
            stem_of(&name)
        };
        for layer in 0.. {
            let magic = head(&mut file).map_err(ImportError::read(&name))?;
            let is_compressed = magic.starts_with(b"\x1f\x8b");
            let is_archive = magic.starts_with(b"PK\x03\x04") || magic.starts_with(b"PK\x05\x06");
            if layer == MAX_LAYERS && (is_compressed || is_archive) {
                return Err(archive::too_large(&name));
            }
            if is_compressed {
                file = archive::gunzip(&file, &name)?;
                stem = stem_of(&stem);
            } else if is_archive {
                let Some((inner, entry)) = archive::unzip(&file, &name)? else {
                    return Self::open_workbook(file, name, stem, options);
                };
                file = inner;
                stem = stem_of(if is_stdin { &entry } else { &stem });
            } else if magic.starts_with(b"\xd0\xcf\x11\xe0") {
                return Self::open_workbook(file, name, stem, options);
            } else {
                break;
            }
        }
        Self::open_text(file, name, stem, options)
    }

    fn open_workbook(
        mut file: File,
        name: String,
        stem: String,
        options: &Options,
    ) -> Result<Self, ImportError> {
        let (rows, note) = workbook::read(&file, &name, options.sheet.as_deref())?;
        let scan = FileScan::of(&mut file).map_err(ImportError::read(&name))?;
        let bytes = rows.metadata().map_err(ImportError::read(&name))?.len();
        Ok(Self {
            file: rows,
            name,
            stem,
            hash: scan.hash,
            bytes,
            format: ListFormat::Sheet { note },
            encoding: Encoding::UTF8,
            is_detected: false,
            has_mark: true,
            modified_at: None,
            skipped_bytes: 0,
            skipped_lines: 0,
        })
    }

    fn open_text(
        mut file: File,
        name: String,
        stem: String,
        options: &Options,
    ) -> Result<Self, ImportError> {
        if options.sheet.is_some() {
            return Err(ImportError::new(format!(
                "`{name}` is not a workbook, and `--sheet` names a sheet"
            )));
        }
        let unreadable = ImportError::read(&name);
        let head = head(&mut file).map_err(unreadable)?;
        if let Some(what) = sniff::binary(&head, options.encoding) {
            return Err(ImportError::hinted(
                format!("`{name}` is not a text file: it {what}"),
                "save it as CSV, in UTF-8",
            ));
        }
        let scan = FileScan::of(&mut file).map_err(unreadable)?;
        let mark = Encoding::of_mark(&head);
        let stated = options.encoding.or(mark.map(|(encoding, _)| encoding));
        let stated = stated.or_else(|| Encoding::utf16_by_nuls(&head));
        let stated = stated.or(scan.is_utf8.then_some(Encoding::UTF8));
        let encoding = if let Some(encoding) = stated {
            encoding
        } else {
            file.rewind().map_err(unreadable)?;
            let text = BufReader::with_capacity(CHUNK, &file);
            match detect(text, options.dialling.region).map_err(unreadable)? {
                Detected::Encoding(encoding) => encoding,
                Detected::Mixed { utf8, other } => {
                    return Err(ImportError::hinted(
                        format!(
                            "`{name}` mixes encodings: line {utf8} is UTF-8, line {other} is not"
                        ),
                        "save it in one encoding; or name one with `--encoding`, and lines in others are rejected",
                    ));
                }
            }
        };
        let modified_at = file.metadata().and_then(|metadata| metadata.modified());
        let mut list = Self {
            file,
            stem,
            hash: scan.hash,
            bytes: scan.bytes,
            format: ListFormat::JsonLines { keys: Vec::new() },
            encoding,
            is_detected: stated.is_none(),
            has_mark: mark.is_some(),
            modified_at: modified_at.ok(),
            skipped_bytes: mark.map_or(0, |(_, length)| length as u64),
            skipped_lines: 0,
            name,
        };
        list.format = list.find_format(options.delimiter)?;
        Ok(list)
    }

    /// Recognizes the format from the beginning of the text.
    fn find_format(&mut self, delimiter: Option<u8>) -> Result<ListFormat, ImportError> {
        let name = &self.name;
        let unreadable = ImportError::read(name);
        let mut head = Vec::new();
        let text = self.text().map_err(unreadable)?;
        let read = text.take(HEAD).read_to_end(&mut head);
        read.map_err(unreadable)?;
        let start = head.trim_ascii_start();
        if start.is_empty() && self.bytes <= HEAD {
            return Err(ImportError::new(format!("`{name}` is empty")));
        }
        if start.starts_with(b"[") && start[1..].trim_ascii_start().starts_with(b"{") {
            return Err(ImportError::hinted(
                format!("`{name}` is one JSON array"),
                "write one object per line: `jq -c '.[]' FILE | smsq import - …`",
            ));
        }
        if start.starts_with(b"{") {
            let keys = self.text().and_then(json_keys).map_err(unreadable)?;
            let keys = keys.filter(|keys| !keys.is_empty()).ok_or_else(|| {
                ImportError::new(format!(
                    "`{name}` has no JSON objects with at most a thousand keys, one per line"
                ))
            })?;
            return Ok(ListFormat::JsonLines { keys });
        }
        let has_only_cr = head.contains(&b'\r') && !head.contains(&b'\n');
        let terminator = if has_only_cr { b'\r' } else { b'\n' };
        let line = head.iter().position(|&byte| byte == terminator);
        let line = line.map_or(head.len(), |end| end + 1);
        let declared = sniff::declared_delimiter(&head[..line]);
        if declared.is_some() {
            self.skipped_bytes += self.encoding.encode(&head[..line]).len() as u64;
            self.skipped_lines = 1;
        }
        let likely = || sniff::likely_delimiter(&head, line);
        Ok(ListFormat::Csv(CsvFormat {
            delimiter: delimiter.or(declared).unwrap_or_else(likely),
            terminator,
        }))
    }

    /// Returns the rows from the header on.
    pub(super) fn records(&self) -> Result<RecordReader, ImportError> {
        let text = self.text().map_err(ImportError::read(&self.name))?;
        let rows = match &self.format {
            ListFormat::Csv(format) => {
                Rows::Csv(CsvReader::new(text, *format, 1 + self.skipped_lines))
            }
            ListFormat::Sheet { .. } => Rows::Sheet(SheetReader::new(text)),
            ListFormat::JsonLines { keys } => Rows::JsonLines(JsonReader::new(text, keys)),
        };
        let list = self.name.clone();
        Ok(RecordReader { list, rows })
    }

    /// Reads only the bytes that were there when the file was opened: it may grow meanwhile.
    fn text(&self) -> io::Result<Decoder<io::Take<File>>> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(self.skipped_bytes))?;
        let left = self.bytes.saturating_sub(self.skipped_bytes);
        Ok(Decoder::new(file.take(left), self.encoding))
    }

    /// Fails if the file was changed since it was opened.
    pub(super) fn check_unchanged(&self) -> Result<(), ImportError> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(ImportError::read(&self.name))?;
        let is_modified =
            self.modified_at.is_some() && metadata.modified().ok() != self.modified_at;
        if metadata.len() == self.bytes && !is_modified {
            return Ok(());
        }
        Err(ImportError::hinted(
            format!("`{}` was changed while it was imported", self.name),
            "import it again: only what is missing is added",
        ))
    }
}

/// Returns the file and its name. Standard input and pipes are copied to a temporary file first.
fn open(path: &Path) -> Result<(File, String), ImportError> {
    if path == Path::new("-") {
        let name = "standard input".to_owned();
        let file = buffered(&mut io::stdin().lock()).map_err(ImportError::read(&name))?;
        return Ok((file, name));
    }
    let name = printable_line(&path.display().to_string()).into_owned();
    let cannot_open = |error| ImportError::open(path, &name, error);
    let kind = std::fs::metadata(path).map_err(cannot_open)?.file_type();
    if kind.is_char_device() || kind.is_block_device() || kind.is_socket() {
        return Err(ImportError::new(format!(
            "`{name}` is a device, not a file"
        )));
    }
    let mut file = File::open(path).map_err(cannot_open)?;
    if !kind.is_file() {
        file = buffered(&mut file).map_err(cannot_open)?;
    }
    Ok((file, name))
}

/// Copies `input` to a temporary file.
fn buffered(input: &mut impl Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(input, &mut file)?;
    file.rewind()?;
    Ok(file)
}

/// `list` for `list.csv`.
fn stem_of(name: &str) -> String {
    let stem = Path::new(name).file_stem();
    stem.map_or_else(|| name.to_owned(), |stem| stem.display().to_string())
}

fn head(file: &mut File) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.rewind()?;
    file.take(HEAD).read_to_end(&mut head)?;
    Ok(head)
}

/// The result of one pass over all bytes.
struct FileScan {
    hash: String,
    bytes: u64,
    is_utf8: bool,
}

impl FileScan {
    fn of(file: &mut File) -> io::Result<Self> {
        file.rewind()?;
        let mut hasher = Sha256::new();
        let mut decoder = UTF_8.new_decoder_without_bom_handling();
        let (mut chunk, mut text) = (vec![0; CHUNK], vec![0; CHUNK + 16]);
        let (mut bytes, mut is_utf8) = (0, true);
        loop {
            let read = file.read(&mut chunk)?;
            let piece = &chunk[..read];
            hasher.update(piece);
            bytes += read as u64;
            if is_utf8 {
                let is_last = read == 0;
                let (result, ..) =
                    decoder.decode_to_utf8_without_replacement(piece, &mut text, is_last);
                is_utf8 = result == DecoderResult::InputEmpty;
            }
            if read == 0 {
                let hash = hex::encode(hasher.finalize());
                return Ok(Self {
                    hash,
                    bytes,
                    is_utf8,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
