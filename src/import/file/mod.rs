//! Opens a list: from a path or standard input, unpacked, as text of a detected encoding or as rows of a
//! workbook. The whole file is read once, so that its faults are known before the first row.

mod archive;
mod sniff;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::SystemTime;

use encoding_rs::{DecoderResult, UTF_8};
use sha2::{Digest, Sha256};
use smsq_message::text::printable_line;
use smsq_process::jobs::Until;

use super::encoding::{Detected, Encoding, detect};
use super::error::ImportError;
use super::options::Options;
use super::query::QueryRows;
use super::record::{FileHead, RecordReader, RowLayout, TextFile};

const CHUNK: usize = 256 * 1024;
/// Archives in archives are unpacked up to this depth.
const MAX_LAYERS: usize = 2;

/// An opened list.
#[derive(Debug)]
pub(super) struct ListFile {
    pub(super) text: TextFile,
    pub(super) layout: RowLayout,
    pub(super) stem: String,
    /// SHA-256 of the bytes in lower-case hex.
    pub(super) hash: String,
    /// The encoding was guessed from the text.
    pub(super) is_detected: bool,
    /// The file begins with a byte order mark.
    pub(super) has_mark: bool,
    modified_at: Option<SystemTime>,
}

impl ListFile {
    pub(super) fn open(options: &Options) -> Result<Self, ImportError> {
        if let Some(query) = &options.query {
            return Self::of_query(query, options);
        }
        let is_stdin = options.file == Path::new("-");
        let (mut file, path) = open(&options.file)?;
        let name = options.name.clone().unwrap_or(path);
        let mut stem = if is_stdin { "stdin".to_owned() } else { stem_of(&name) };
        for layer in 0.. {
            let mut head = head(&mut file).map_err(ImportError::read(&name))?;
            let is_compressed = head.bytes.starts_with(b"\x1f\x8b");
            let is_archive =
                head.bytes.starts_with(b"PK\x03\x04") || head.bytes.starts_with(b"PK\x05\x06");
            if layer == MAX_LAYERS && (is_compressed || is_archive) {
                return Err(archive::too_large(&name));
            }
            if is_compressed {
                file = archive::gunzip(&file, &name, &options.until)?;
                stem = stem_of(&stem);
                continue;
            }
            let mut archive = None;
            if is_archive {
                archive = Some(archive::open(&file, &name, &mut head)?);
            }
            let sheet = options.sheet.as_deref();
            if let Some((text, layout)) =
                RowLayout::of_workbook(&file, &head, &name, sheet, &options.until)?
            {
                let scan =
                    FileScan::of(&mut file, &options.until).map_err(ImportError::read(&name))?;
                return Ok(Self {
                    text,
                    layout,
                    stem,
                    hash: scan.hash,
                    is_detected: false,
                    has_mark: true,
                    modified_at: None,
                });
            }
            let Some(archive) = archive else {
                break;
            };
            let entry;
            (file, entry) = archive::unzip(archive, &head, &name, &options.until)?;
            stem = stem_of(if is_stdin { &entry } else { &stem });
        }
        Self::open_text(file, name, stem, options)
    }

    fn of_query(query: &QueryRows, options: &Options) -> Result<Self, ImportError> {
        let path = printable_line(&options.file.display().to_string()).into_owned();
        let name = options.name.clone().unwrap_or(path);
        let unreadable = ImportError::read(&name);
        let mut file = query.file().map_err(unreadable)?;
        let scan = FileScan::of(&mut file, &options.until).map_err(unreadable)?;
        Ok(Self {
            layout: RowLayout::of_objects(query.columns().to_vec()),
            stem: stem_of(&name),
            hash: scan.hash,
            is_detected: false,
            has_mark: false,
            modified_at: None,
            text: TextFile { file, name, encoding: Encoding::UTF8, start: 0, length: scan.bytes },
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
        let head = head(&mut file).map_err(unreadable)?.bytes;
        if let Some(what) = sniff::binary(&head, options.encoding) {
            return Err(ImportError::hinted(
                format!("`{name}` is not a text file: it {what}"),
                "save it as CSV, in UTF-8",
            ));
        }
        let scan = FileScan::of(&mut file, &options.until).map_err(unreadable)?;
        let mark = Encoding::of_mark(&head);
        let stated = options
            .encoding
            .or(mark.map(|(encoding, _)| encoding))
            .or_else(|| Encoding::utf16_by_nuls(&head))
            .or(scan.is_utf8.then_some(Encoding::UTF8));
        let encoding = if let Some(encoding) = stated {
            encoding
        } else {
            file.rewind().map_err(unreadable)?;
            let text = BufReader::with_capacity(CHUNK, options.until.reading(&file));
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
        let text = TextFile {
            file,
            encoding,
            start: mark.map_or(0, |(_, length)| length as u64),
            length: scan.bytes,
            name,
        };
        Ok(Self {
            layout: RowLayout::of_text(&text, options.delimiter)?,
            text,
            stem,
            hash: scan.hash,
            is_detected: stated.is_none(),
            has_mark: mark.is_some(),
            modified_at: modified_at.ok(),
        })
    }

    /// What messages call the list; see [`Options::name`].
    pub(super) fn name(&self) -> &str {
        &self.text.name
    }

    /// Returns the rows from the header on.
    pub(super) fn records(&self) -> Result<RecordReader, ImportError> {
        self.layout.records(&self.text)
    }

    /// Fails if the file was changed since it was opened.
    pub(super) fn check_unchanged(&self) -> Result<(), ImportError> {
        let name = self.name();
        let metadata = self.text.file.metadata().map_err(ImportError::read(name))?;
        let is_modified =
            self.modified_at.is_some() && metadata.modified().ok() != self.modified_at;
        if metadata.len() == self.text.length && !is_modified {
            return Ok(());
        }
        Err(ImportError::hinted(
            format!("`{name}` was changed while it was imported"),
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
        return Err(ImportError::new(format!("`{name}` is a device, not a file")));
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

fn head(file: &mut File) -> io::Result<FileHead> {
    file.rewind()?;
    FileHead::read(file)
}

/// The result of one pass over all bytes.
struct FileScan {
    hash: String,
    bytes: u64,
    is_utf8: bool,
}

impl FileScan {
    fn of(file: &mut File, until: &Until) -> io::Result<Self> {
        file.rewind()?;
        let mut hasher = Sha256::new();
        let mut decoder = UTF_8.new_decoder_without_bom_handling();
        let (mut chunk, mut text) = (vec![0; CHUNK], vec![0; CHUNK + 16]);
        let (mut bytes, mut is_utf8) = (0, true);
        loop {
            until.check()?;
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
                return Ok(Self { hash, bytes, is_utf8 });
            }
        }
    }
}

#[cfg(test)]
mod tests;
