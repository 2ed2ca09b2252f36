//! Fuzzes what comes from outside with damaged inputs: valid ones of every kind, cut, mixed and changed. `fuzz::lists`
//! reads files, `fuzz::requests` sends HTTP requests to `smsq serve`. `cargo test` makes the same few thousand inputs
//! every time; `cargo test --test fuzz -- --seconds 600` makes new ones of each kind for that time, and
//! `cargo test --test fuzz requests` only requests. An input that breaks a promise is kept, and its path is printed.

mod lists;
mod mutation;
mod requests;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mutation::Random;

/// What is fuzzed.
trait Target {
    const NAME: &'static str;
    /// Inputs of the short run.
    const INPUTS: u64;
    type Input;

    fn input(&mut self, random: &mut Random) -> Self::Input;

    /// The bytes to keep, and the end of the file's name.
    fn bytes(input: &Self::Input) -> (&[u8], &str);

    /// An error says which promise is broken.
    fn check(&mut self, input: &Self::Input, random: &mut Random) -> Result<(), String>;
}

/// How much is fuzzed, and from which seed.
struct Plan {
    first_seed: u64,
    /// `None`: the short run.
    time: Option<Duration>,
    filters: Vec<String>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| {
        let place = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(place + 1)?.parse::<u64>().ok()
    };
    let (seconds, seed) = (after("--seconds"), after("--seed"));
    let is_filter =
        |argument: &&String| !argument.starts_with('-') && argument.parse::<u64>().is_err();
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let plan = Plan {
        first_seed: seed.unwrap_or_else(|| if seconds.is_some() { now() } else { 1 }),
        time: seconds.map(Duration::from_secs),
        filters: arguments.iter().filter(is_filter).cloned().collect(),
    };
    if run(&plan, lists::Lists::new) && run(&plan, requests::Requests::new) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Makes and checks inputs; returns false if one breaks a promise.
fn run<T: Target>(plan: &Plan, target: impl FnOnce() -> T) -> bool {
    let name = format!("fuzz::{}", T::NAME);
    if !plan.filters.is_empty() && !plan.filters.iter().any(|filter| name.contains(filter)) {
        return true;
    }
    let mut target = target();
    let end = plan.time.map(|time| Instant::now() + time);
    let mut tried = 0;
    while end.map_or(tried < T::INPUTS, |end| Instant::now() < end) {
        let seed = plan.first_seed.wrapping_add(tried);
        let mut random = Random::new(seed);
        let input = target.input(&mut random);
        if let Err(broken) = target.check(&input, &mut random) {
            let (bytes, ending) = T::bytes(&input);
            let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
            let kept = kept.join(format!("fuzz-{}-{seed}-{ending}", T::NAME));
            std::fs::write(&kept, bytes).expect("keeps the input");
            say(&format!("{name}, seed {seed}: {broken}: {}", kept.display()));
            return false;
        }
        tried += 1;
    }
    let first = plan.first_seed;
    say(&format!("{name}: {tried} inputs, first seed {first}"));
    true
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs() << 20)
}

fn say(line: &str) {
    // A failure to write to stderr cannot be reported.
    let _ = writeln!(std::io::stderr(), "{line}");
}
