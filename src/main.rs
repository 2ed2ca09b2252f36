//! The process: parses the arguments, runs the command, and turns errors into a message and an exit status.

use std::process::ExitCode;

use smsq::cli::{self, Cli};
use smsq::commands;

/// Sending takes a tenth less CPU than with the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::parse_arguments() {
        Ok(cli) => cli,
        Err(error) => return commands::usage(&error, cli::wants_json()).into(),
    };
    let console = cli.console();
    cli.warn_of_passwords(&console);
    let ended = cli.run(console.clone());
    let exit = ended.unwrap_or_else(|error| commands::report_error(&console, &error));
    exit.into()
}
