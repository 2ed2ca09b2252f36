//! `smsq suppress`: the list of phones that nothing is sent to.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use indicatif::HumanCount;
use serde_json::json;

use super::words::counted;
use super::{Context, hinted};
use crate::exit::Exit;
use crate::phone::{Phone, Region};
use crate::store::{Access, Store};

const EXAMPLES: &str = "\
Examples:
  smsq suppress add +8613812345678 --reason \"asked by phone\"
  smsq suppress import stop-list.csv --region GB
  smsq suppress list > suppressed.txt";

/// How many faulty lines are shown before the rest is only counted.
const SHOWN_FAULTS: usize = 10;
const PAGE: i64 = 1_000;

/// Keep the list of phones that nothing is sent to, in any campaign
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Put phones on the list
    Add {
        #[arg(required = true, value_name = "PHONE", allow_hyphen_values = false)]
        phones: Vec<String>,
        /// Why, for those who read the list
        #[arg(long)]
        reason: Option<String>,
        /// Where numbers without a country code are at home, like GB
        #[arg(long)]
        region: Option<Region>,
    },
    /// Take phones off the list
    Remove {
        #[arg(required = true, value_name = "PHONE")]
        phones: Vec<String>,
        /// Where numbers without a country code are at home, like GB
        #[arg(long)]
        region: Option<Region>,
    },
    /// Put a file of phones on the list: one a line, or a CSV file with the phones in its first column
    Import {
        file: PathBuf,
        /// Why, for those who read the list
        #[arg(long)]
        reason: Option<String>,
        /// Where numbers without a country code are at home, like GB
        #[arg(long)]
        region: Option<Region>,
    },
    /// Print the list, one phone a line
    List,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    match &args.action {
        Action::Add {
            phones,
            reason,
            region,
        } => {
            let phones = parsed(context, phones, *region)?;
            let store = context.open(Access::Create).await?;
            add(context, &store, phones, reason.as_deref()).await?;
        }
        Action::Remove { phones, region } => {
            let phones = parsed(context, phones, *region)?;
            let store = context.store().await?;
            let phones = phones.into_iter().map(Phone::into_string).collect();
            let removed = store.unsuppress(phones).await?;
            let said = format!("took {} off the list", counted(removed, "phone"));
            context.console.say(&said);
            if context.is_json() {
                context.print_json(&json!({ "removed": removed }))?;
            }
        }
        Action::Import {
            file,
            reason,
            region,
        } => {
            let phones = read(context, file, *region)?;
            let store = context.open(Access::Create).await?;
            add(context, &store, phones, reason.as_deref()).await?;
        }
        Action::List => list(context).await?,
    }
    Ok(Exit::Done)
}

fn parsed(
    context: &Context,
    phones: &[String],
    region: Option<Region>,
) -> anyhow::Result<Vec<Phone>> {
    phones
        .iter()
        .map(|raw| context.phone(raw, region))
        .collect()
}

async fn add(
    context: &Context,
    store: &Store,
    phones: Vec<Phone>,
    reason: Option<&str>,
) -> anyhow::Result<()> {
    let given = phones.len() as u64;
    let rows = phones
        .into_iter()
        .map(|phone| (phone.into_string(), reason.map(str::to_owned)))
        .collect();
    let added = store.suppress(rows, store.now().await?).await?;
    let known = given.saturating_sub(added);
    let were = if known == 1 { "was" } else { "were" };
    context.console.say(&match (added, known) {
        (_, 0) => format!("put {} on the list", counted(added, "phone")),
        (0, _) => format!("{} {were} on the list already", counted(known, "phone")),
        _ => format!(
            "put {} on the list; {} {were} on it already",
            counted(added, "phone"),
            HumanCount(known)
        ),
    });
    if context.is_json() {
        context.print_json(&json!({ "added": added, "known": known }))?;
    }
    Ok(())
}

/// The phones of a file. A line without one is shown and left out; when no line has one, nothing is
/// changed. A first line without a digit is the header.
fn read(context: &Context, file: &Path, region: Option<Region>) -> anyhow::Result<Vec<Phone>> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read `{shown}`"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut phones = Vec::new();
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let first = line.split([',', ';', '\t']).next().unwrap_or_default();
        let raw = first.trim().trim_matches('"');
        let is_header = index == 0 && !raw.chars().any(|c| c.is_ascii_digit());
        if raw.is_empty() || is_header {
            continue;
        }
        match Phone::parse(raw, region.or(context.config.default_region)) {
            Ok(phone) => phones.push(phone),
            Err(error) => faults.push(format!("{shown}:{}: {error}", index + 1)),
        }
    }
    for fault in faults.iter().take(SHOWN_FAULTS) {
        context.console.warn(fault);
    }
    if faults.len() > SHOWN_FAULTS {
        let more = (faults.len() - SHOWN_FAULTS) as u64;
        context.console.warn(&format!(
            "{shown}: {} more like these",
            counted(more, "line")
        ));
    }
    if phones.is_empty() {
        return Err(hinted(
            format!("`{shown}` has no phone that can be understood"),
            Some("one phone a line; `--region GB` where they have no country code"),
        ));
    }
    Ok(phones)
}

async fn list(context: &Context) -> anyhow::Result<()> {
    let store = context.store().await?;
    let mut after: Option<String> = None;
    let mut objects = Vec::new();
    loop {
        let page = store.suppressed(after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.phone.clone());
        if context.is_json() {
            objects.extend(page.into_iter().map(|row| {
                json!({ "phone": row.phone, "reason": row.reason, "created_at": row.created_at })
            }));
        } else {
            let lines = page.iter().map(|row| match &row.reason {
                Some(reason) => format!("{}\t{reason}\n", row.phone),
                None => format!("{}\n", row.phone),
            });
            context.console.data(&lines.collect::<String>())?;
        }
    }
    if context.is_json() {
        context.print_json(&json!({ "suppressed": objects }))?;
    }
    Ok(())
}
