//! `smsq suppress`: the list of phones that no campaign sends to.

use std::path::PathBuf;

use indicatif::HumanCount;
use serde_json::json;
use smsq_import::{Options, ParsedBatch, PhoneList, formats};
use smsq_message::phone::{Countries, Dialling, Phone, Region};
use smsq_message::text::{counted, printable_line};
use smsq_operations::{Suppressing, unsuppress};
use smsq_process::exit::Exit;
use smsq_store::Access;
use tokio::sync::OnceCell;

use super::import::{FileFormat, NumberFlags, print_interpretation};
use super::values::assignment;
use super::{Context, user_of, with_hint};

const EXAMPLES: &str = "\
Examples:
  smsq suppress add +8613812345678 --reason \"asked by phone\"
  smsq suppress import stop-list.csv --region GB
  smsq suppress list > suppressed.txt";

/// How many rejected rows are shown; the rest is counted.
const SHOWN_REJECTS: u64 = 10;
const PAGE: i64 = 1_000;

/// Manage the phones that no campaign sends to
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Add phones to the list
    Add {
        #[command(flatten)]
        phones: Phones,
        /// A note for readers of the list
        #[arg(long)]
        reason: Option<String>,
    },
    /// Remove phones from the list
    Remove(Phones),
    /// Add the phones of a file: any file that `smsq import` reads
    Import(ImportArgs),
    /// Print the list, one phone per line
    List,
}

#[derive(Debug, clap::Args)]
struct Phones {
    #[arg(required = true, value_name = "PHONE")]
    phones: Vec<String>,
    /// The country of numbers without a country code, such as GB
    #[arg(long)]
    region: Option<Region>,
}

#[derive(Debug, clap::Args)]
struct ImportArgs {
    #[arg(help = format!(
        "{}, or one phone per line; `-` is standard input", formats()
    ))]
    file: PathBuf,
    /// A note for readers of the list
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    numbers: NumberFlags,
    /// The column with the phones, such as `phone=手机号`; `phone=mobile,home` reads both
    #[arg(long, value_name = "phone=COLUMN", value_parser = assignment)]
    column: Option<(String, String)>,
    #[command(flatten)]
    format: FileFormat,
    /// The file for rejected rows [default: <file>.rejects.csv in the current folder]
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    match &args.action {
        Action::Add { phones, reason } => {
            let phones = phones.parsed(context)?;
            let store = context.open(Access::Create).await?;
            let actor = user_of("suppress");
            let mut suppressing = Suppressing::new(&store, reason.as_deref(), &actor);
            suppressing.add(phones).await?;
            report_added(context, &suppressing, None)
        }
        Action::Remove(phones) => {
            let phones = phones.parsed(context)?;
            let store = context.store().await?;
            let actor = user_of("suppress");
            let removed = unsuppress(&store, phones, &actor).await?;
            let count = counted(removed, "number");
            let message = format!("removed {count} from the suppression list");
            context.report(&message, &json!({ "removed": removed }))
        }
        Action::Import(args) => import(context, args).await,
        Action::List => list(context).await,
    }
}

impl Phones {
    fn parsed(&self, context: &Context) -> anyhow::Result<Vec<Phone>> {
        self.phones.iter().map(|raw| context.phone(raw, self.region)).collect()
    }
}

/// `rejected`: the rows of a file without a valid phone.
fn report_added(
    context: &Context,
    suppressing: &Suppressing<'_>,
    rejected: Option<u64>,
) -> anyhow::Result<Exit> {
    let (added, known) = suppressing.counts();
    let mut message = format!("added {} to the suppression list", counted(added, "number"));
    if known > 0 {
        let were = if known == 1 { "was" } else { "were" };
        message = format!("{message}; {} {were} already on it", HumanCount(known));
    }
    let mut object = json!({ "added": added, "known": known });
    if let Some(rejected) = rejected {
        object["rejected"] = rejected.into();
    }
    context.report(&message, &object)
}

/// Adds the phones of a file. Rows without a valid phone are shown and written to the rejects file. Fails if no
/// row has one.
async fn import(context: &Context, args: &ImportArgs) -> anyhow::Result<Exit> {
    if let Some((name, column)) = args.column.as_ref().filter(|(name, _)| name != "phone") {
        return Err(with_hint(
            format!("unknown name `{name}` in `--column {name}={column}`"),
            format!("only phones are read: `--column phone={column}`"),
        ));
    }
    let options = args.format.applied_to(Options {
        file: args.file.clone(),
        columns: args.column.iter().cloned().collect(),
        // Phones of all countries can be suppressed.
        dialling: Dialling {
            countries: Countries::default(),
            ..args.numbers.dialling(&context.config)
        },
        rejects: args.rejects.clone(),
        ..Options::default()
    });
    let console = &context.console;
    let list = PhoneList::open(&options)?;
    let file = args.file.display();
    print_interpretation(console, &file.to_string(), &list.interpretation());
    let store = OnceCell::new();
    let mut suppressing: Option<Suppressing<'_>> = None;
    let actor = user_of("suppress");
    let (mut rows, mut rejected) = (0, 0);
    let progress = console.progress(None, "suppressing");
    let rejects = list
        .read(async |batch: ParsedBatch<Vec<Phone>>| {
            for (line, rejection) in &batch.rejected {
                rejected += 1;
                if rejected <= SHOWN_REJECTS {
                    console.warn(&format!("{file}:{line}: {}", rejection.reason));
                }
            }
            rows += batch.rows.len() as u64;
            let phones: Vec<Phone> = batch.rows.into_iter().flatten().collect();
            if !phones.is_empty() {
                // A list without a phone creates no database.
                let store = store.get_or_try_init(|| context.open(Access::Create)).await?;
                suppressing
                    .get_or_insert_with(|| Suppressing::new(store, args.reason.as_deref(), &actor))
                    .add(phones)
                    .await?;
            }
            progress.set(rows + rejected);
            anyhow::Ok(())
        })
        .await?;
    drop(progress);
    if rejected > SHOWN_REJECTS {
        let more = counted(rejected - SHOWN_REJECTS, "more row");
        console.warn(&format!("{file}: {more} without a valid phone"));
    }
    if let Some(rejects) = rejects {
        console.warn(&format!(
            "`{file}`: rejected {}, with the reasons in `{}`",
            counted(rejected, "row"),
            rejects.display()
        ));
    }
    let Some(suppressing) = suppressing else {
        return Err(with_hint(
            format!("`{file}` contains no valid phone"),
            "`--column phone=COLUMN` names the column; `--region GB` is for numbers without a country code",
        ));
    };
    report_added(context, &suppressing, Some(rejected))
}

async fn list(context: &Context) -> anyhow::Result<Exit> {
    let store = context.store_to_read().await?;
    let mut after: Option<String> = None;
    let mut objects = Vec::new();
    loop {
        let page = store.suppression().page(after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.phone.clone());
        let mut text = String::new();
        for row in page {
            if context.is_json() {
                objects.push(json!({
                    "phone": row.phone, "reason": row.reason, "created_at": row.created_at
                }));
                continue;
            }
            text += &printable_line(&row.phone);
            if let Some(reason) = &row.reason {
                text.push('\t');
                text += &printable_line(reason);
            }
            text.push('\n');
        }
        context.console.print(&text)?;
    }
    if context.is_json() {
        context.print_json(&json!({ "suppressed": objects }))?;
    }
    Ok(Exit::Done)
}
