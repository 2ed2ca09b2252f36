//! `smsq init`: writes a configuration to start from, in which every line is a comment.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};

use super::with_hint;
use crate::config::{self, DEFAULT};
use crate::console::Console;
use crate::exit::Exit;
use crate::provider;

const EXAMPLES: &str = "\
Examples:
  smsq init                              write ./smsq.toml
  smsq init ~/.config/smsq/smsq.toml     for every folder";

const HEAD: &str = "\
# The configuration of smsq: your provider, and settings that differ from the defaults. Every line is
# a comment: remove the `#` of the lines you need, then run `smsq check`. Keep secrets out of this
# file: in the environment, or in a file of their own.
";

/// Write a commented smsq.toml to start from; never overwrites a file
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to write
    #[arg(value_name = "FILE", default_value = config::FILE)]
    file: PathBuf,
}

pub(crate) fn run(args: &Args, console: &Console) -> anyhow::Result<Exit> {
    let file = args.file.display();
    let opened = std::fs::File::create_new(&args.file);
    let mut opened = opened.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => with_hint(
            format!("`{file}` already exists"),
            "name another file, such as `smsq init smsq.example.toml`",
        ),
        _ => anyhow!("cannot write `{file}`: {error}"),
    })?;
    opened
        .write_all(text().as_bytes())
        .with_context(|| format!("cannot write `{file}`"))?;
    console.status(&format!("wrote `{file}`"));
    console.status("next: describe your provider in it, then `smsq check`");
    Ok(Exit::Done)
}

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
            let is_comment = line.is_empty() || line.starts_with('#');
            let mark = if is_comment { "" } else { "# " };
            let _ = writeln!(text, "{mark}{line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_sets_nothing() {
        let table: toml::Table = text().parse().expect("valid TOML");
        assert!(table.is_empty());
    }

    #[test]
    fn text_contains_all_settings() {
        let text = text();
        let settings: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.starts_with('[') || line.contains(" = "))
            .collect();
        let settings = settings.join("\n");
        assert!(
            settings.contains("[sender]") && settings.contains("kind = \"generic\""),
            "{settings}"
        );
    }
}
