//! `smsq init`: writes a short configuration to start from, in which every line is a comment; or prints the reference.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use smsq_process::console::Console;
use smsq_process::exit::Exit;

use super::with_hint;
use crate::config::{self, DEFAULT};

const EXAMPLES: &str = "\
Examples:
  smsq init                              write ./smsq.toml
  smsq init ~/.config/smsq/smsq.toml     for every folder
  smsq init --reference                  print every setting with its default, and every key of a provider";

const TEXT: &str = "\
# The configuration of smsq: your provider, and settings that differ from the defaults. `#name = value`
# is a setting that is switched off: remove its `#`. `# Text` is a comment. Then run `smsq check`.
# `smsq init --reference` prints every setting. Keep secrets out of this file: in the environment, or in
# a file of their own.

#default_region = \"GB\"                         # numbers without a country code are British

# With a built-in vendor (`smsq providers list`), this is all. `smsq providers show twilio` says which
# secrets it needs and where they come from.
#[providers.twilio]
#from = \"+15005550006\"                         # your sender

# Any other HTTP API.
#[providers.cellar]
#kind = \"generic\"
#url = \"https://sms.example.net/v1/send\"
#headers = { Authorization = \"Bearer {{ secret.token }}\" }
#json = { to = \"{{ phone }}\", text = \"{{ content }}\", ref = \"{{ reference }}\" }
#secrets = { token = { env = \"CELLAR_TOKEN\" } }   # or { file = \"…\" }
#message_id = \"/id\"                            # where the response has the message's id
#error_code = \"/error/code\"
#rate = \"100/s\"                                # or [\"100/s\", \"20000/day\"]
#[providers.cellar.codes]                       # the vendor's code -> what it means
#\"21211\" = { class = \"recipient\", reason = \"not a valid number\" }
";

/// Write a short smsq.toml to start from, or print all settings; never overwrites a file
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to write
    #[arg(value_name = "FILE", default_value = config::FILE)]
    file: PathBuf,
    /// Print every setting with its default and its comment, and a provider with every key, instead
    #[arg(long, conflicts_with = "file")]
    reference: bool,
}

pub(crate) fn run(args: &Args, console: &Console) -> anyhow::Result<Exit> {
    if args.reference {
        let generic = smsq_provider::builtin().iter().find(|(name, _)| *name == "generic");
        let (_, keys) = generic.expect("a built-in provider");
        console.print(&format!("{DEFAULT}\n{keys}"))?;
        return Ok(Exit::Done);
    }
    let file = args.file.display();
    let mut opened = std::fs::File::create_new(&args.file).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => with_hint(
            format!("`{file}` already exists"),
            "name another file, such as `smsq init smsq.example.toml`",
        ),
        _ => anyhow!("cannot write `{file}`: {error}"),
    })?;
    opened.write_all(TEXT.as_bytes()).with_context(|| format!("cannot write `{file}`"))?;
    console.status(&format!("wrote `{file}`"));
    console.status("next: describe your provider in it, then `smsq check`");
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use smsq_provider::Provider;

    use super::*;

    #[test]
    fn text_sets_nothing() {
        let table: toml::Table = TEXT.parse().expect("valid TOML");
        assert!(table.is_empty());
    }

    #[test]
    fn settings_of_the_text_configure_providers() {
        let settings: Vec<&str> = TEXT
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| !line.starts_with(' '))
            .collect();
        let table: toml::Table = settings.join("\n").parse().expect("valid TOML");
        let sections = table["providers"].as_table().expect("sections");
        for (name, written) in sections {
            let written = written.as_table().expect("a section");
            let section = match smsq_provider::builtin_section(name) {
                Some(known) => smsq_provider::with_overrides(known, written),
                None => written.clone(),
            };
            let secret = |_: &str| Some("secret".to_owned());
            Provider::from_section(name, &section, &secret).expect(name);
        }
        assert_eq!(sections.len(), 2);
    }
}
