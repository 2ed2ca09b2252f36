//! Fuzzes the reader of lists with damaged files: valid lists of every kind, cut, mixed and changed. `cargo test`
//! makes the same few thousand files every time; `cargo test --test fuzz -- --seconds 600` makes new ones for that
//! time. A file that breaks a promise is kept, and its path is printed.

mod lists;
mod mutation;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mutation::Random;

/// Files of the short run.
const FILES: u64 = 3_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| {
        let place = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(place + 1)?.parse::<u64>().ok()
    };
    let (seconds, seed) = (after("--seconds"), after("--seed"));
    let is_filter =
        |argument: &&String| !argument.starts_with('-') && argument.parse::<u64>().is_err();
    if arguments.iter().any(|argument| argument == "--list")
        || arguments
            .iter()
            .filter(is_filter)
            .any(|filter| !"fuzz".contains(filter.as_str()))
    {
        return ExitCode::SUCCESS;
    }
    let first = seed.unwrap_or_else(|| if seconds.is_some() { now() } else { 1 });
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut tried = 0;
    while end.map_or(tried < FILES, |end| Instant::now() < end) {
        let mut random = Random::new(first.wrapping_add(tried));
        let (name, bytes) = lists::any(&mut random);
        let path = folder.path().join(name);
        std::fs::write(&path, &bytes).expect("writes");
        if let Err(broken) = lists::check(&path, &runtime, &mut random) {
            let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("fuzz-{}-{name}", first.wrapping_add(tried)));
            std::fs::write(&kept, &bytes).expect("keeps the file");
            say(&format!(
                "seed {}: {broken}: {}",
                first.wrapping_add(tried),
                kept.display()
            ));
            return ExitCode::FAILURE;
        }
        tried += 1;
    }
    say(&format!("{tried} files, first seed {first}"));
    ExitCode::SUCCESS
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs() << 20)
}

fn say(line: &str) {
    // A failure to write to stderr cannot be reported.
    let _ = writeln!(std::io::stderr(), "{line}");
}
