//! Unpacks `.gz` and `.zip` of one file into a temporary file, with a limit on the size.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};

use flate2::read::MultiGzDecoder;
use smsq_message::text::listed;
use smsq_process::jobs::Until;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::error::{ImportError, unpack_reason, zip_reason};
use crate::record::FileHead;

/// Text is compressed to a tenth, a list of one repeated line to a hundredth.
const MAX_RATIO: u64 = 200;
/// Archives that unpack to less than this are never too large.
const ALWAYS_ALLOWED: u64 = 64 << 20;
/// How many files of an archive are listed.
const MAX_LISTED: usize = 5;

type Archive = ZipArchive<BufReader<File>>;

pub(super) fn gunzip(file: &File, name: &str, until: &Until) -> Result<File, ImportError> {
    let source = file.try_clone().and_then(|mut source| {
        source.rewind()?;
        Ok((source.metadata()?.len(), source))
    });
    let (packed_size, source) = source.map_err(ImportError::read(name))?;
    let unpacked = MultiGzDecoder::new(BufReader::new(source));
    unpack(unpacked, packed_size, name, until)
}

/// Opens a zip archive, and adds its entries to `head`.
pub(super) fn open(file: &File, name: &str, head: &mut FileHead) -> Result<Archive, ImportError> {
    let source = file.try_clone().map_err(ImportError::read(name))?;
    let mut archive = ZipArchive::new(BufReader::new(source)).map_err(invalid(name))?;
    head.entries = archive.file_names().map(str::to_owned).collect();
    if let Ok(entry) = archive.by_name("mimetype") {
        // What is damaged is not a workbook.
        let _ = entry.take(100).read_to_string(&mut head.mimetype);
    }
    Ok(archive)
}

fn invalid(name: &str) -> impl Fn(ZipError) -> ImportError + Copy {
    move |error| match zip_reason(&error) {
        None => ImportError::protected(name),
        Some(reason) => cannot_unpack(name, &reason),
    }
}

/// Unpacks the one file of the archive; also returns its name.
pub(super) fn unzip(
    mut archive: Archive,
    head: &FileHead,
    name: &str,
    until: &Until,
) -> Result<(File, String), ImportError> {
    let is_content = |entry: &&String| {
        !entry.ends_with('/') && !entry.starts_with("__MACOSX/") && !entry.ends_with(".DS_Store")
    };
    let entries: Vec<&String> = head.entries.iter().filter(is_content).collect();
    let [entry] = entries[..] else {
        let listed = listed(entries.iter().take(MAX_LISTED).map(|entry| entry.as_str()));
        return Err(ImportError::hinted(
            format!("`{name}` is an archive of {} files: {listed}", entries.len()),
            "unpack it and name the files: several are imported at once",
        ));
    };
    let packed = archive.by_name(entry).map_err(invalid(name))?;
    let packed_size = packed.compressed_size();
    Ok((unpack(packed, packed_size, name, until)?, entry.clone()))
}

fn unpack(
    packed: impl Read,
    packed_size: u64,
    name: &str,
    until: &Until,
) -> Result<File, ImportError> {
    let mut packed = until.reading(packed);
    let limit = ALWAYS_ALLOWED.max(packed_size.saturating_mul(MAX_RATIO));
    let unpacked = tempfile::tempfile().and_then(|mut target| {
        let length = io::copy(&mut (&mut packed).take(limit), &mut target)?;
        target.rewind()?;
        let is_complete = length < limit || packed.read(&mut [0])? == 0;
        Ok(is_complete.then_some(target))
    });
    match unpacked {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(too_large(name)),
        Err(error) => Err(cannot_unpack(name, &unpack_reason(&error))),
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
