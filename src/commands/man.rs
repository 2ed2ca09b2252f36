//! `smsq man`: the manual pages of all commands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;
use smsq_process::console::Console;
use smsq_process::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  smsq man | man -l -
  smsq man --output /usr/local/share/man/man1";

/// Print the manual pages of all commands, or write them to files
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Write a file for each page into this folder: `smsq.1`, `smsq-send.1` …
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, console: &Console, command: Command) -> anyhow::Result<Exit> {
    let mut pages = Vec::new();
    // Without the command `help`, which has no page.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    add_pages(&command, "smsq", &mut pages)?;
    match &args.output {
        Some(folder) => {
            for (name, page) in &pages {
                write(folder, name, page)
                    .with_context(|| format!("cannot write `{}`", folder.join(name).display()))?;
            }
            let folder = folder.display();
            console.status(&format!("wrote {} manual pages to `{folder}`", pages.len()));
        }
        None => {
            for (_, page) in &pages {
                console.print(&String::from_utf8_lossy(page))?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Adds the page of a command and those of its commands, with the names of their files.
fn add_pages(command: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let mut page = Vec::new();
    // It is named like its file.
    let man = Man::new(command.clone()).manual("smsq manual");
    man.render(&mut page)?;
    // A long list of alternatives may be broken after each of them.
    let text = String::from_utf8_lossy(&page).replace(r"\fR|\fB", r"\fR|\:\fB");
    pages.push((format!("{name}.1"), text.into_bytes()));
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        add_pages(below, &format!("{name}-{}", below.get_name()), pages)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, page: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(name), page)
}
