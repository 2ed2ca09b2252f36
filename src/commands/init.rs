//! `smsq init`: a configuration to start from, every line of it a comment until it is wanted.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};

use super::hinted;
use crate::config::{self, DEFAULT};
use crate::console::Console;
use crate::exit::Exit;
use crate::provider;

const EXAMPLES: &str = "\
Examples:
  smsq init                              write ./smsq.toml
  smsq init ~/.config/smsq/smsq.toml     … for every folder you work in";

const HEAD: &str = "\
# The configuration of smsq: your provider, and what differs from the defaults. Everything here is a
# comment, so nothing changes before you take a `#` away. Look the result over with `smsq check`.
# Secrets stay outside: in the environment, or in a file.
";

/// Write a commented smsq.toml to start from; an existing file is never overwritten
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where it is written
    #[arg(value_name = "FILE", default_value = config::FILE)]
    file: PathBuf,
}

pub(crate) fn run(args: &Args, console: &Console) -> anyhow::Result<Exit> {
    let file = args.file.display();
    let opened = std::fs::File::create_new(&args.file);
    let mut opened = opened.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => hinted(
            format!("`{file}` exists, and is left as it is"),
            Some("name another file, like `smsq init smsq.example.toml`"),
        ),
        _ => anyhow!("cannot write `{file}`: {error}"),
    })?;
    opened
        .write_all(text().as_bytes())
        .with_context(|| format!("cannot write `{file}`"))?;
    console.say(&format!("wrote `{file}`"));
    console.say("next: describe your provider in it, then `smsq check`");
    Ok(Exit::Done)
}

/// Every default with the example of a provider among them, all of it commented out. What belongs to
/// no section comes first: below a section's head it would belong to that.
fn text() -> String {
    let example = provider::builtin()
        .iter()
        .find(|(name, _)| *name == "generic")
        .map_or("", |(_, example)| *example);
    let mut text = HEAD.to_owned();
    let (root, sections) = DEFAULT.split_once("\n[").unwrap_or((DEFAULT, ""));
    let (_, root) = root.split_once("\n\n").unwrap_or(("", root));
    let sections = format!("[{sections}");
    for part in [root, example, &sections] {
        text.push('\n');
        for line in part.lines() {
            let mark = match line {
                "" => "",
                line if line.starts_with('#') => "",
                _ => "# ",
            };
            let _ = writeln!(text, "{mark}{line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_changes_nothing_before_it_is_edited() {
        let table: toml::Table = text().parse().expect("valid TOML");
        assert!(table.is_empty());
    }

    #[test]
    fn without_its_marks_the_text_is_a_configuration() {
        let text = text();
        let bare: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.starts_with('[') || line.contains(" = "))
            .collect();
        let bare = bare.join("\n");
        assert!(
            bare.contains("[sender]") && bare.contains("kind = \"generic\""),
            "{bare}"
        );
    }
}
