//! The process: parses the arguments, runs the command, and turns errors into a message and an exit status.

use std::process::ExitCode;

use smsq::cli::{self, Cli};
use smsq::commands;

fn main() -> ExitCode {
    let cli = match Cli::parse_arguments() {
        Ok(cli) => cli,
        Err(error) => return commands::usage(&error, cli::wants_json()).into(),
    };
    let console = cli.console();
    cli.warn_of_passwords(&console);
    let ended = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(std::thread::available_parallelism().map_or(2, |n| n.get().max(2)))
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(cli.run(console.clone())));
    let exit = ended.unwrap_or_else(|error| commands::report_error(&console, &error));
    exit.into()
}
