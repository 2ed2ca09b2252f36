//! Files that nobody else sees: what cannot be read twice where it comes from is kept in one until the
//! import ends.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

/// All of `input`, to be read from its start.
pub(super) fn of(input: &mut impl Read) -> io::Result<File> {
    let mut file = empty()?;
    io::copy(input, &mut file)?;
    file.flush()?;
    file.rewind()?;
    Ok(file)
}

/// A file that goes when it is closed.
pub(super) fn empty() -> io::Result<File> {
    let (path, file) = unnamed()?;
    // The file lives on through its handle where the system allows that, and is left in the
    // temporary folder where it does not.
    let _ = std::fs::remove_file(&path);
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
