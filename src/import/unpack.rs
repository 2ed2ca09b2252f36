//! Lists that come compressed: `.gz`, and a `.zip` of one file. They are unpacked into a file that nobody
//! else sees, and no further than a list can be packed.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

use flate2::read::MultiGzDecoder;
use zip::ZipArchive;
use zip::result::ZipError;

use super::error::ImportError;
use super::spool;
use crate::text::listed;

/// Text packs to a tenth, a list of one line again and again to a hundredth.
const RATIO: u64 = 200;
/// Below so many bytes nobody is harmed.
const HARMLESS: u64 = 64 << 20;
/// So many files of an archive are named.
const NAMED: usize = 5;

/// What a ZIP archive is.
pub(super) enum Archive {
    /// The one file in it.
    File(File, String),
    /// A workbook: an archive of its own kind.
    Workbook,
}

pub(super) fn gzip(file: &File, name: &str) -> Result<File, ImportError> {
    let packed = file.metadata().map_or(0, |metadata| metadata.len());
    let fault = |error: &io::Error| faulty(name, error);
    let mut source = file.try_clone().map_err(|error| fault(&error))?;
    source.rewind().map_err(|error| fault(&error))?;
    unpacked(MultiGzDecoder::new(BufReader::new(source)), packed, name)
}

pub(super) fn zip(file: &File, name: &str) -> Result<Archive, ImportError> {
    let source = file.try_clone().map_err(|error| faulty(name, &error))?;
    let mut archive =
        ZipArchive::new(BufReader::new(source)).map_err(|error| broken(name, &error))?;
    if is_workbook(&mut archive) {
        return Ok(Archive::Workbook);
    }
    let is_content = |entry: &&str| {
        !entry.ends_with('/') && !entry.starts_with("__MACOSX/") && !entry.ends_with(".DS_Store")
    };
    let entries: Vec<String> = archive
        .file_names()
        .filter(is_content)
        .map(str::to_owned)
        .collect();
    let [entry] = entries.as_slice() else {
        return Err(ImportError::ManyFiles {
            file: name.to_owned(),
            count: entries.len(),
            files: listed(entries.iter().take(NAMED).map(String::as_str)),
        });
    };
    let packed = archive
        .by_name(entry)
        .map_err(|error| broken(name, &error))?;
    let size = packed.compressed_size();
    let file = unpacked(packed, size, name)?;
    Ok(Archive::File(file, entry.clone()))
}

fn is_workbook<R: Read + Seek>(archive: &mut ZipArchive<R>) -> bool {
    let has = |entry: &str| archive.index_for_name(entry).is_some();
    if has("[Content_Types].xml")
        && archive
            .file_names()
            .any(|entry| entry.ends_with("workbook.xml") || entry.ends_with("workbook.bin"))
    {
        return true;
    }
    let mut kind = String::new();
    let mimetype = archive
        .by_name("mimetype")
        .map(|entry| entry.take(100).read_to_string(&mut kind));
    mimetype.is_ok() && kind.contains("opendocument.spreadsheet")
}

fn unpacked(mut packed: impl Read, size: u64, name: &str) -> Result<File, ImportError> {
    let limit = HARMLESS.max(size.saturating_mul(RATIO));
    let file = spool::empty().map_err(|error| faulty(name, &error))?;
    let mut target = BufWriter::with_capacity(1 << 18, file);
    let length = io::copy(&mut (&mut packed).take(limit), &mut target)
        .map_err(|error| faulty(name, &error))?;
    if length == limit {
        let more = packed
            .read(&mut [0])
            .map_err(|error| faulty(name, &error))?;
        if more > 0 {
            return Err(ImportError::Bomb {
                file: name.to_owned(),
            });
        }
    }
    let mut file = target
        .into_inner()
        .map_err(|error| faulty(name, error.error()))?;
    file.flush()
        .and_then(|()| file.rewind())
        .map_err(|error| faulty(name, &error))?;
    Ok(file)
}

fn faulty(name: &str, error: &io::Error) -> ImportError {
    ImportError::Unpack {
        file: name.to_owned(),
        reason: match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData => DAMAGED.to_owned(),
            _ => error.to_string(),
        },
    }
}

const DAMAGED: &str = "it is damaged or cut off";

/// What is wrong with an archive.
pub(super) fn in_words(error: &ZipError) -> String {
    match error {
        ZipError::InvalidArchive(_) | ZipError::FileNotFound => DAMAGED.to_owned(),
        ZipError::UnsupportedArchive(_) => "it is packed in a way that is not supported".to_owned(),
        ZipError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => DAMAGED.to_owned(),
        other => other.to_string(),
    }
}

fn broken(name: &str, error: &ZipError) -> ImportError {
    match error {
        ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) => ImportError::Protected {
            file: name.to_owned(),
        },
        error => ImportError::Unpack {
            file: name.to_owned(),
            reason: in_words(error),
        },
    }
}
