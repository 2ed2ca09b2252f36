//! Unpacks `.gz` and `.zip` of one file into a temporary file, with a limit on the size.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek};

use flate2::read::MultiGzDecoder;
use zip::ZipArchive;

use crate::import::error::ImportError;
use crate::import::zip_error;
use crate::text::listed;

/// Text is compressed to a tenth, a list of one repeated line to a hundredth.
const MAX_RATIO: u64 = 200;
/// Archives that unpack to less than this are never too large.
const ALWAYS_ALLOWED: u64 = 64 << 20;
/// How many files of an archive are listed.
const MAX_LISTED: usize = 5;

pub(super) fn gunzip(file: &File, name: &str) -> Result<File, ImportError> {
    let unpacked = || {
        let packed_size = file.metadata()?.len();
        let mut source = file.try_clone()?;
        source.rewind()?;
        unpack(MultiGzDecoder::new(BufReader::new(source)), packed_size)
    };
    checked(unpacked(), name)
}

/// Returns the one file of the archive and its name, `None` for a workbook.
pub(super) fn unzip(file: &File, name: &str) -> Result<Option<(File, String)>, ImportError> {
    let source = file.try_clone().map_err(ImportError::read(name))?;
    let invalid = |error| match zip_error::reason(&error) {
        None => protected(name),
        Some(reason) => cannot_unpack(name, &reason),
    };
    let mut archive = ZipArchive::new(BufReader::new(source)).map_err(invalid)?;
    if is_workbook(&mut archive) {
        return Ok(None);
    }
    let is_content = |entry: &&str| {
        !entry.ends_with('/') && !entry.starts_with("__MACOSX/") && !entry.ends_with(".DS_Store")
    };
    let entries = archive.file_names().filter(is_content);
    let entries: Vec<String> = entries.map(str::to_owned).collect();
    let [entry] = entries.as_slice() else {
        let listed = listed(entries.iter().take(MAX_LISTED).map(String::as_str));
        return Err(ImportError::hinted(
            format!(
                "`{name}` is an archive of {} files: {listed}",
                entries.len()
            ),
            "unpack it and name the files: several are imported at once",
        ));
    };
    let packed = archive.by_name(entry).map_err(invalid)?;
    let packed_size = packed.compressed_size();
    let unpacked = checked(unpack(packed, packed_size), name)?;
    Ok(Some((unpacked, entry.clone())))
}

fn is_workbook<R: Read + Seek>(archive: &mut ZipArchive<R>) -> bool {
    let is_book = |entry: &str| entry.ends_with("workbook.xml") || entry.ends_with("workbook.bin");
    if archive.index_for_name("[Content_Types].xml").is_some() && archive.file_names().any(is_book)
    {
        return true;
    }
    let mut kind = String::new();
    let mimetype = archive.by_name("mimetype");
    let read = mimetype.map(|entry| entry.take(100).read_to_string(&mut kind));
    read.is_ok() && kind.contains("opendocument.spreadsheet")
}

/// Returns `None` if the content is too large.
fn unpack(mut packed: impl Read, packed_size: u64) -> io::Result<Option<File>> {
    let limit = ALWAYS_ALLOWED.max(packed_size.saturating_mul(MAX_RATIO));
    let mut target = BufWriter::with_capacity(1 << 18, tempfile::tempfile()?);
    let length = io::copy(&mut (&mut packed).take(limit), &mut target)?;
    if length == limit && packed.read(&mut [0])? > 0 {
        return Ok(None);
    }
    let file = target.into_inner();
    let mut file = file.map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(Some(file))
}

fn checked(unpacked: io::Result<Option<File>>, name: &str) -> Result<File, ImportError> {
    match unpacked {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(too_large(name)),
        Err(error) => Err(cannot_unpack(name, &zip_error::io_reason(&error))),
    }
}

fn cannot_unpack(name: &str, reason: &str) -> ImportError {
    ImportError::hinted(
        format!("cannot unpack `{name}`: {reason}"),
        "unpack it yourself and import the result",
    )
}

pub(super) fn too_large(name: &str) -> ImportError {
    cannot_unpack(name, "its content is too large for its size")
}

fn protected(name: &str) -> ImportError {
    ImportError::hinted(
        format!("`{name}` is protected with a password"),
        "open it, save it without the password and import that",
    )
}
