//! `smsq completions`: a script that completes the command line in a shell.

use clap::Command;
use clap_complete::Shell;
use smsq_process::console::Console;
use smsq_process::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  smsq completions bash > ~/.local/share/bash-completion/completions/smsq
  smsq completions zsh  > ~/.zfunc/_smsq
  smsq completions fish > ~/.config/fish/completions/smsq.fish";

/// Print the completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, console: &Console, command: &mut Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "smsq", &mut script);
    console.print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
