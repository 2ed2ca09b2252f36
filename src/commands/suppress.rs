//! `smsq suppress`: the list of phones that nothing is sent to.

use std::path::PathBuf;

use indicatif::HumanCount;
use serde_json::json;

use super::import::{FileFormat, column, explained, fault};
use super::words::counted;
use super::{Context, hinted};
use crate::exit::Exit;
use crate::import::{Options, PhoneList};
use crate::phone::{Phone, Region};
use crate::store::{Access, Store};
use crate::text::printable_line;

const EXAMPLES: &str = "\
Examples:
  smsq suppress add +8613812345678 --reason \"asked by phone\"
  smsq suppress import stop-list.csv --region GB
  smsq suppress list > suppressed.txt";

/// How many faulty lines are shown before the rest is only counted.
const SHOWN_FAULTS: u64 = 10;
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
    /// Put the phones of a file on the list: any file that `smsq import` reads
    Import(ImportArgs),
    /// Print the list, one phone a line
    List,
}

#[derive(Debug, clap::Args)]
struct ImportArgs {
    /// CSV, XLSX, XLS, ODS, JSON lines or one phone a line; `-` is standard input
    file: PathBuf,
    /// Why, for those who read the list
    #[arg(long)]
    reason: Option<String>,
    /// The region of numbers without a country code, like GB
    #[arg(long)]
    region: Option<Region>,
    /// Which column has the phones, like `phone=手机号`; of `phone=mobile,home` all are taken
    #[arg(long, value_name = "phone=COLUMN", value_parser = column)]
    column: Option<(String, String)>,
    #[command(flatten)]
    format: FileFormat,
    /// Where rejected rows go [default: <file>.rejects.csv in the current folder]
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
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
        Action::Import(args) => import(context, args).await?,
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
    let added = store
        .suppress(with_reason(phones, reason), store.now().await?)
        .await?;
    tell(context, added, given.saturating_sub(added), None)
}

fn with_reason(phones: Vec<Phone>, reason: Option<&str>) -> Vec<(String, Option<String>)> {
    let phones = phones.into_iter();
    phones
        .map(|phone| (phone.into_string(), reason.map(str::to_owned)))
        .collect()
}

/// What was added, and for a file how many of its lines were no phones.
fn tell(context: &Context, added: u64, known: u64, rejected: Option<u64>) -> anyhow::Result<()> {
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
        let mut object = json!({ "added": added, "known": known });
        if let Some(rejected) = rejected {
            object["rejected"] = rejected.into();
        }
        context.print_json(&object)?;
    }
    Ok(())
}

/// Puts the phones of a file on the list. A row without one is shown, left out, and kept in a file with the
/// reason; when no row has one, nothing is changed.
async fn import(context: &Context, args: &ImportArgs) -> anyhow::Result<()> {
    if let Some((name, column)) = args.column.as_ref().filter(|(name, _)| name != "phone") {
        return Err(hinted(
            format!("unknown name `{name}` in `--column {name}={column}`"),
            Some(format!(
                "only the phones are read: `--column phone={column}`"
            )),
        ));
    }
    let options = args.format.applied_to(Options {
        file: args.file.clone(),
        columns: args.column.iter().cloned().collect(),
        region: args.region.or(context.config.default_region),
        rejects: args.rejects.clone(),
        ..Options::default()
    });
    let list = PhoneList::open(options).map_err(fault)?;
    let shown = args.file.display();
    explained(&context.console, &shown.to_string(), &list.interpretation());
    let mut store: Option<Store> = None;
    let (mut given, mut added, mut rejected) = (0, 0, 0);
    let progress = context.console.progress(None, "suppressing");
    let mut rows = 0;
    let rejects = list
        .read(async |batch| {
            for (line, fault) in &batch.rejected {
                rejected += 1;
                if rejected <= SHOWN_FAULTS {
                    context.console.warn(&format!("{shown}:{line}: {fault}"));
                }
            }
            rows += batch.rows;
            if !batch.found.is_empty() {
                let store = match &mut store {
                    Some(store) => store,
                    none => none.insert(context.open(Access::Create).await?),
                };
                given += batch.found.len() as u64;
                let rows = with_reason(batch.found, args.reason.as_deref());
                added += store.suppress(rows, store.now().await?).await?;
            }
            progress.set(rows + rejected);
            anyhow::Ok(())
        })
        .await?;
    drop(progress);
    if rejected > SHOWN_FAULTS {
        let more = counted(rejected - SHOWN_FAULTS, "row");
        context
            .console
            .warn(&format!("{shown}: {more} more like these"));
    }
    if let Some(rejects) = rejects {
        context.console.warn(&format!(
            "`{shown}`: {}, with the reasons in `{}`",
            match rejected {
                1 => "1 row has no valid phone".to_owned(),
                _ => format!("{} rows have no valid phone", HumanCount(rejected)),
            },
            rejects.display()
        ));
    }
    if given == 0 {
        return Err(hinted(
            format!("`{shown}` has no phone that can be understood"),
            Some(
                "`--column phone=COLUMN` names the column; `--region GB` is for numbers without a country code",
            ),
        ));
    }
    tell(context, added, given.saturating_sub(added), Some(rejected))
}

async fn list(context: &Context) -> anyhow::Result<()> {
    let store = context.store_to_read().await?;
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
                Some(reason) => format!(
                    "{}\t{}\n",
                    printable_line(&row.phone),
                    printable_line(reason)
                ),
                None => format!("{}\n", printable_line(&row.phone)),
            });
            context.console.data(&lines.collect::<String>())?;
        }
    }
    if context.is_json() {
        context.print_json(&json!({ "suppressed": objects }))?;
    }
    Ok(())
}
