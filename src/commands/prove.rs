//! `smsq prove`: plays rounds of faults on a database, and says whether a promise was broken.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use comfy_table::{Table, presets};
use serde_json::json;
use smsq_process::console::Console;
use smsq_process::exit::Exit;
use smsq_process::logging;
use smsq_prove::{ProveConfig, ProveError, RoundReport};
use tempfile::TempDir;
use tokio::task::JoinSet;
use url::Url;

use super::signals::SignalWatch;
use super::{json_text, with_hint};

const EXAMPLES: &str = "\
Examples:
  smsq prove                                        20 rounds on SQLite, in a temporary folder
  smsq prove --database postgres://me@localhost/smsq_prove --rounds 100
  smsq prove --seed 8817 --rounds 1                 one round again
  smsq prove --gateway http://127.0.0.1:8025 --log gateway.jsonl

Each round starts a practice gateway that misbehaves, and two to four workers, which are killed, stopped for longer than \
their lease, and cut off from the database before, in and after a commit, while operators run commands. Then the log of \
the gateway is compared with the tables. No phone gets a message.

The database must have no campaigns; a new one, such as `CREATE DATABASE smsq_prove`, is best, and can be dropped \
afterwards.

Exit status: 0 all promises held; 1 a promise was broken, and a folder has what happened; 2 could not run.";

/// Prove on your database that nothing is lost or sent twice and that limits hold, whatever fails
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// How many rounds
    #[arg(long, value_name = "N", default_value = "20")]
    rounds: NonZeroU64,
    /// The seed of the first round; the following rounds count up [default: random]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 40))]
    seed: Option<u64>,
    /// Messages of each round
    #[arg(long, value_name = "N", default_value = "300")]
    #[arg(value_parser = clap::value_parser!(u64).range(20..=20_000))]
    messages: u64,
    /// How many rounds at once, each on a SQLite file of its own [default: twice the number of processors]
    #[arg(long, value_name = "N", conflicts_with = "database")]
    parallel: Option<NonZeroU64>,
    /// A running gateway with the interface of `smsq sandbox`, in place of one that each round starts
    #[arg(long, value_name = "URL", requires = "log")]
    gateway: Option<Url>,
    /// The log that this gateway writes, as `smsq sandbox --log` does
    #[arg(long, value_name = "FILE", requires = "gateway")]
    log: Option<PathBuf>,
    /// Stop after the first round in which a promise was broken
    #[arg(long)]
    fail_fast: bool,
    /// Keep the files of all rounds, not only of those that broke a promise
    #[arg(long)]
    keep: bool,
}

fn keep(folder: TempDir, console: &Console) {
    let path = folder.keep();
    console.status(&format!("what happened is in `{}`", path.display()));
}

/// Whether a round has ended whose files were not deleted.
fn has_broken_round(folder: &Path) -> bool {
    let rounds = std::fs::read_dir(folder).into_iter().flatten().flatten();
    rounds.map(|round| round.path().join("history")).any(|history| history.exists())
}

/// A round mostly waits.
fn default_parallel() -> u64 {
    std::thread::available_parallelism().map_or(2, |count| 2 * count.get() as u64)
}

/// `database`: the flag; the configured database is never used.
pub(crate) async fn run(
    args: &Args,
    database: Option<String>,
    console: &Console,
    signals: &SignalWatch,
) -> anyhow::Result<Exit> {
    logging::start(logging::Config::default(), console);
    let folder = tempfile::Builder::new()
        .prefix("smsq-prove-")
        .tempdir()
        .context("cannot create a temporary folder")?;
    let gateway = match (&args.gateway, &args.log) {
        (Some(url), Some(log)) => {
            let log = std::path::absolute(log).context("invalid `--log`")?;
            if !log.exists() {
                return Err(with_hint(
                    format!("cannot read `{}`: the file does not exist", log.display()),
                    "start the gateway first, such as `smsq sandbox --log FILE`",
                ));
            }
            Some((url.clone(), log))
        }
        _ => None,
    };
    let config = ProveConfig {
        database,
        rounds: args.rounds.get(),
        seed: args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        messages: args.messages,
        gateway,
        folder: folder.path().to_owned(),
        keep: args.keep,
    };
    config.check_database().await.map_err(|error| match error {
        ProveError::NotEmpty => with_hint(
            error,
            "use a database of its own, such as a new one made by `CREATE DATABASE smsq_prove`",
        ),
        error => error.into(),
    })?;
    if config.database.is_some() && !config.cuts_connections() {
        console.warn(
            "connections are not cut, because that needs one server without TLS, such as \
             `postgres://me@localhost/smsq_prove`; workers are only killed, stopped and restarted",
        );
    }
    let parallel = match config.database {
        // Workers would send the messages of all rounds in a database.
        Some(_) => 1,
        None => args.parallel.map_or_else(default_parallel, NonZeroU64::get),
    };
    let config = Arc::new(config);
    let mut signals = signals.listen();
    let total = tokio::select! {
        total = prove(Arc::clone(&config), parallel, args.fail_fast, console) => total,
        // What it started ends with it.
        exit = signals.next() => {
            if has_broken_round(folder.path()) {
                keep(folder, console);
            }
            return Ok(exit);
        }
    };
    let kept = args.keep || total.as_ref().map_or(true, RoundReport::is_broken);
    if kept {
        keep(folder, console);
    }
    let total = total?;
    print(&total, console)?;
    Ok(if total.is_broken() { Exit::Incomplete } else { Exit::Done })
}

/// Plays all rounds, `parallel` at once; their sum.
async fn prove(
    config: Arc<ProveConfig>,
    parallel: u64,
    fail_fast: bool,
    console: &Console,
) -> anyhow::Result<RoundReport> {
    let mut total = RoundReport::first(config.seed);
    let mut playing = JoinSet::new();
    let mut next = 0;
    for played in 1..=config.rounds {
        while next < config.rounds && (playing.len() as u64) < parallel {
            let config = Arc::clone(&config);
            playing.spawn(async move { config.round(next).await });
            next += 1;
        }
        let Some(report) = playing.join_next().await else {
            break;
        };
        let report = report??;
        console.status(&format!("round {played}/{}  {report}", config.rounds));
        for problem in report.problems() {
            console.error(problem, None);
        }
        total.add(&report);
        if fail_fast && total.is_broken() {
            break;
        }
    }
    Ok(total)
}

fn print(total: &RoundReport, console: &Console) -> std::io::Result<()> {
    if console.is_json {
        return console.print(&json_text(&json!(total.to_json())));
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in total.figures() {
        table.add_row([name.to_owned(), value]);
    }
    console.print(&format!("{}\n", table.trim_fmt()))
}
