//! `smsq report`: who was not reached and why, for people, spreadsheets, programs and managers.

use std::path::PathBuf;

use super::Context;
use super::words::campaign_name;
use crate::console::closed;
use crate::exit::Exit;
use crate::report::{Format, Report, ReportError, to_file};

const EXAMPLES: &str = "\
Examples:
  smsq report                                              all campaigns, and what to type next
  smsq report --campaign welcome-3f2a91 --failed           everybody who was not reached
  smsq report --failed --format csv --output failed.csv    mend it and `smsq import failed.csv`
  smsq report --format html --output report.html           one page for your manager";

/// Say how many messages arrived, and who was not reached and why
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this campaign [default: all]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    /// The list of messages that failed, expired or are unknown
    #[arg(long)]
    failed: bool,
    /// Write it to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store().await?;
    let campaign = match &args.campaign {
        Some(name) => Some(context.campaign(&store, name).await?),
        None => None,
    };
    let report = Report::gather(&store, campaign.as_ref()).await?;
    let format = format(context.format);
    if let Some(file) = &args.output {
        let write = async |out: &mut _| report.write(&store, format, args.failed, out).await;
        to_file(file, write).await?;
        context.console.say(&format!("wrote `{}`", file.display()));
        return Ok(Exit::Done);
    }
    let mut out = context.console.output();
    let written = report.write(&store, format, args.failed, &mut out).await;
    match written {
        Err(error) if closed(&error) => Ok(Exit::Done),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(Exit::Done),
    }
}

/// The report of all that a command did, on standard output.
pub(super) async fn print(
    context: &Context,
    report: &Report,
    store: &crate::store::Store,
) -> Result<(), ReportError> {
    let mut out = context.console.output();
    match report
        .write(store, format(context.format), false, &mut out)
        .await
    {
        Err(error) if closed(&error) => Ok(()),
        written => written,
    }
}

fn format(format: super::Format) -> Format {
    match format {
        super::Format::Text => Format::Text,
        super::Format::Json => Format::Json,
        super::Format::Csv => Format::Csv,
        super::Format::Html => Format::Html,
    }
}
