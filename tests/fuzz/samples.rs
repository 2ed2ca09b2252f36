//! Valid inputs from which the search starts, so that no corpus is kept, and what all targets check.
#![allow(dead_code, reason = "each target uses some of it")]

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// A file in memory, which no other process sees, for code that reads a path.
pub(crate) struct MemoryFile {
    file: File,
    pub(crate) path: PathBuf,
    /// A path in the same folder for what is written meanwhile.
    pub(crate) beside: PathBuf,
}

impl MemoryFile {
    pub(crate) fn create() -> Self {
        let folder = ["/dev/shm", "/tmp"]
            .map(Path::new)
            .into_iter()
            .find(|folder| folder.is_dir())
            .expect("a folder");
        let path = folder.join(format!("smsq-fuzz-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("a file");
        std::fs::remove_file(&path).expect("it was created");
        Self {
            path: PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
            beside: path.with_extension("csv"),
            file,
        }
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        self.file.set_len(0).expect("a file in memory");
        self.file.write_all_at(bytes, 0).expect("a file in memory");
    }
}

/// Changes an input of `size` bytes and returns its new size: it begins again with a sample, gets a part of one, or is
/// changed as libFuzzer does. The first byte of an input selects one of `rows`; the samples of a row are without it.
pub(crate) fn mutate(rows: &[&[&[u8]]], data: &mut [u8], size: usize, seed: u32) -> usize {
    let most = data.len();
    let mut size = size.min(most);
    let mut random = seed;
    let mut below = |end: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % end.max(1)
    };
    match below(16) {
        0 | 1 if most > 1 => {
            let row = below(rows.len());
            let samples = rows[row];
            let sample = samples[below(samples.len())];
            let length = sample.len().min(most - 1);
            data[0] = u8::try_from(row).expect("fewer rows");
            data[1..=length].copy_from_slice(&sample[..length]);
            size = 1 + length;
        }
        2..=4 if size > 0 => {
            let samples = rows[usize::from(data[0]) % rows.len()];
            let sample = samples[below(samples.len())];
            let from = below(sample.len());
            let longest = (1 + below(24)).min(most - size);
            let part = &sample[from..sample.len().min(from + longest)];
            let at = (1 + below(size)).min(size);
            data.copy_within(at..size, at + part.len());
            data[at..at + part.len()].copy_from_slice(part);
            size += part.len();
        }
        _ => {}
    }
    libfuzzer_sys::fuzzer_mutate(data, size, most)
}

/// The text of an input.
pub(crate) fn lossy(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

/// Fails where what is shown to people has more than `most` bytes or characters that a terminal must not get.
pub(crate) fn check_shown(shown: &str, most: usize) {
    assert!(shown.len() <= most, "{} bytes: {shown}", shown.len());
    assert!(shown.chars().all(smsq_message::text::is_printable), "{shown:?}");
}

/// Fails unless the values of a message are an object of texts that every database can store.
pub(crate) fn check_params(params: &str) {
    let values: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(params).expect("an object");
    for (name, value) in values {
        let value = value.as_str().expect("a text");
        assert!(!name.contains('\0') && !value.contains('\0'), "{params}");
    }
}
