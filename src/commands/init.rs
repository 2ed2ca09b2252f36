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
# The configuration of smsq: your provider, and settings that differ from the defaults. `#name = value`
# is a setting that is switched off: remove its `#`. `# Text` is a comment. Then run `smsq check`.
# Keep secrets out of this file: in the environment, or in a file of their own.

# With a built-in vendor (`smsq providers list`), this is all. `smsq providers show twilio` says which
# secrets it needs and where they come from.

#default_region = \"GB\"                         # numbers without a country code are British
#[providers.twilio]
#from = \"+15005550006\"                         # your sender

# Everything below is a reference: all settings with their defaults, and a provider of your own.
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
            let bare = line.strip_prefix("# ").filter(|bare| is_setting(bare));
            match bare.or(Some(line).filter(|line| !line.is_empty() && !line.starts_with('#'))) {
                Some(setting) => {
                    let _ = writeln!(text, "#{setting}");
                }
                None => {
                    let _ = writeln!(text, "{line}");
                }
            }
        }
    }
    text
}

/// Whether this is a setting or the head of a section, not a sentence.
fn is_setting(line: &str) -> bool {
    let is_word = |word: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_.\"-".contains(c);
        !word.is_empty() && word.chars().all(is_part)
    };
    let section = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let name = line.split_once(" = ").map(|(name, _)| name);
    section.map(|(name, _)| name).or(name).is_some_and(is_word)
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
    fn lines_without_their_mark_are_settings_and_the_others_are_sentences() {
        for line in text().lines().filter(|line| !line.is_empty()) {
            let line = line.strip_prefix('#').expect("a comment or a setting");
            match line.strip_prefix(' ') {
                Some(sentence) => assert!(!is_setting(sentence), "{sentence}"),
                None => assert!(
                    line.starts_with(|c: char| c.is_ascii_alphanumeric() || "[\"]} ".contains(c)),
                    "{line}"
                ),
            }
        }
    }

    #[test]
    fn settings_of_the_first_part_configure_a_vendor() {
        let (first, _) = HEAD.split_once("# Everything below").expect("two parts");
        let settings = first.lines().filter_map(|line| line.strip_prefix('#'));
        let settings: Vec<&str> = settings.filter(|line| !line.starts_with(' ')).collect();
        let table: toml::Table = settings.join("\n").parse().expect("valid TOML");
        let vendors = table["providers"].as_table().expect("a section");
        let is_built_in =
            |name: &String| provider::builtin().iter().any(|(known, _)| known == name);
        assert!(vendors.keys().all(is_built_in), "{table}");
    }

    #[test]
    fn text_contains_all_settings() {
        let text = text();
        let settings: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| !line.starts_with(' '))
            .filter(|line| line.starts_with('[') || line.contains(" = "))
            .collect();
        let settings = settings.join("\n");
        assert!(
            settings.contains("[sender]") && settings.contains("kind = \"generic\""),
            "{settings}"
        );
    }
}
