//! `smsq report`: who was not reached and why, as text, CSV, JSON or an HTML page.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use smsq_process::console::closed;
use smsq_process::exit::Exit;
use smsq_report::{Format, Listing, LocalTime, Report, ReportError, ReportOptions};
use smsq_store::Store;

use super::values::campaign_name;
use super::{Context, with_hint};

const EXAMPLES: &str = "\
Examples:
  smsq report                                              all campaigns, and what to do next
  smsq report --campaign welcome-3f2a91 --failed           everyone who was not reached
  smsq report --failed --format csv --output failed.csv    fix it and `smsq import failed.csv`
  smsq report --undelivered --format csv --output undelivered.csv   sent and not delivered
  smsq report --sent --format csv --output sent.csv        every sent message, for the invoice
  smsq report --format html --mask --output report.html    one page without phones and texts";

/// Show how many messages arrived, and who was not reached and why
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Args {
    /// Only this campaign [default: all]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    /// List the messages that failed, expired or are unknown
    #[arg(long)]
    failed: bool,
    /// List the messages that were sent and not delivered, by the provider's receipts
    #[arg(long, conflicts_with = "failed")]
    undelivered: bool,
    /// List the messages that were sent: phone, provider, message id, segments, price, time
    #[arg(long, conflicts_with_all = ["failed", "undelivered"])]
    sent: bool,
    /// Hide phones and texts
    #[arg(long)]
    mask: bool,
    /// Write to a file instead of standard output (`-`)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let listing = match args {
        Args { failed: true, .. } => Listing::Failed,
        Args { undelivered: true, .. } => Listing::Undelivered,
        Args { sent: true, .. } => Listing::Sent,
        _ => Listing::Figures,
    };
    if listing == Listing::Sent && context.format == Format::Html {
        return Err(with_hint(
            "`--sent` cannot be combined with `--format html`",
            "`--format csv` or `--format json` writes the list",
        ));
    }
    let store = context.store_to_read().await?;
    let output = args.output.as_deref();
    let output = output.filter(|file| *file != Path::new("-"));
    if let Some(file) = output {
        check_output(file, args.force, context, &store).await?;
    }
    let campaign = context.optional_campaign(&store, args.campaign.as_deref()).await?;
    let options = ReportOptions { mask: args.mask, ..options(context) };
    let report = Report::gather(&store, campaign.as_ref(), &options).await?;
    if context.format == Format::Csv && store.mode().is_practice() {
        // A line of the file would be a row when it is imported.
        context.console.warn(store.mode().notice().trim_end());
    }
    if let Some(file) = output {
        report.write_file(&store, context.format, listing, file).await?;
        let console = &context.console;
        console.status(&format!("wrote `{}`", file.display()));
    } else {
        write(context, &report, listing, &store).await?;
    }
    Ok(Exit::Done)
}

/// Fails if the report would overwrite the database, the configuration or an imported list, or, without
/// `--force`, any other file.
async fn check_output(
    file: &Path,
    is_forced: bool,
    context: &Context,
    store: &Store,
) -> anyhow::Result<()> {
    let mut kept: Vec<(PathBuf, &str)> = Vec::new();
    if let Some(database) = store.file() {
        for ending in ["", "-wal", "-shm", "-journal"] {
            let mut name = database.as_os_str().to_owned();
            name.push(ending);
            kept.push((name.into(), "the database"));
        }
    }
    if let Some(configuration) = &context.config.file {
        kept.push((configuration.clone(), "the configuration"));
    }
    // A device or a pipe has no content to lose.
    let exists = file.is_file();
    if exists {
        let lists = store.imports().imported_files().await?.into_iter();
        kept.extend(lists.map(|list| (list.into(), "a list that was imported")));
    }
    let shown = file.display();
    if let Some((_, what)) = kept.iter().find(|(path, _)| is_same_file(file, path)) {
        let message = format!("cannot overwrite `{shown}`: it is {what}");
        return Err(with_hint(message, "name another file"));
    }
    if exists && !is_forced {
        let message = format!("`{shown}` already exists");
        return Err(with_hint(message, "`--force` replaces it"));
    }
    Ok(())
}

/// Whether both paths name the same file, or the same place if neither exists.
fn is_same_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => one.file_name() == other.file_name() && folder(one) == folder(other),
        _ => false,
    }
}

fn folder(file: &Path) -> Option<PathBuf> {
    let folder = match file.parent()? {
        folder if folder.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    folder.canonicalize().ok()
}

/// The configured prices, and the time zone of this machine.
pub(super) fn options(context: &Context) -> ReportOptions {
    ReportOptions { prices: context.config.prices.clone(), local: LocalTime::system(), mask: false }
}

/// Writes a report to standard output.
pub(super) async fn write(
    context: &Context,
    report: &Report,
    listing: Listing,
    store: &Store,
) -> Result<(), ReportError> {
    let mut out = context.console.output();
    match report.write(store, context.format, listing, &mut out).await {
        Err(error) if closed(&error) => Ok(()),
        written => written,
    }
}
