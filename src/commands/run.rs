//! `smsq run`: imports a list, sends it and reports. Without a provider it practises: the sandbox runs inside
//! this process, and the messages go to a database of their own.

use super::import::{self, List, PreparedLists};
use super::practice::{self, Practice};
use super::send::{MetricsFile, PreparedRun, SendFlags, SendOptions, SendRun};
use super::{Context, check, report};
use crate::exit::Exit;
use crate::operations::Imported;
use crate::report::{Listing, Report, shell_word};
use crate::store::{Access, Store};

const EXAMPLES: &str = "\
Examples:
  smsq run recipients.csv --template welcome.txt           practice, while no provider is configured
  smsq run list.csv --text \"Hi {{ name }}\" --provider cellar --rate 20/s

It can be interrupted and run again: messages that are in the campaign are not added twice, and \
sending continues where it stopped.";

/// Import a list, send it and print the report
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    list: List,
    #[command(flatten)]
    pub(crate) flags: SendFlags,
    /// Do not ask before sending a large campaign
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(args: &Args, mut context: Context) -> anyhow::Result<Exit> {
    let mut metrics = MetricsFile::open(args.flags.metrics_file.as_deref())?;
    let practice = match (&args.list.provider, &context.config.default_provider) {
        (None, None) => Some(Practice::start(&mut context)?),
        _ => None,
    };
    let mut store = None;
    let ended = import_and_send(args, &context, practice.is_some(), &mut store, &mut metrics).await;
    let ended = metrics.end(&context, store.as_ref(), ended).await;
    if let Some(practice) = practice {
        practice.stop().await;
    }
    ended
}

async fn import_and_send(
    args: &Args,
    context: &Context,
    is_practice: bool,
    store: &mut Option<Store>,
    metrics: &mut MetricsFile,
) -> anyhow::Result<Exit> {
    let list = &args.list;
    let mut lists = PreparedLists::prepare(list, context, Access::Existing).await?;
    if is_practice {
        context.console.status(&practice::notice());
    }
    let default = context.config.default_provider.as_ref();
    if let Some(name) = list.provider.as_ref().or(default) {
        // Fails before anything is written if a provider cannot send.
        for provider in context.config.providers_of(name) {
            context.provider(provider)?;
        }
    }
    lists.check_rejects().await?;
    if !args.yes && !is_practice && !lists.confirm().await? {
        return Ok(Exit::CouldNotRun);
    }
    let store = store.insert(lists.open().await?);
    metrics.begin(context, store);
    check::warn_of_unsafe_settings(context, store).await?;
    if !is_practice {
        lists.check_again(store).await?;
    }
    let mut signals = context.signals.listen();
    let (imported, signal) = lists.import(store, &mut signals).await?;
    if let Some(signal) = signal {
        return Ok(signal);
    }
    import::warn_of_rows(context, &imported);
    let mut campaigns: Vec<&str> = imported.iter().map(|list| list.campaign.as_str()).collect();
    campaigns.dedup();
    let mut run: Option<SendRun> = None;
    for campaign in campaigns {
        let options = SendOptions {
            campaign: Some(campaign),
            flags: &args.flags,
            follow: false,
            metrics: metrics.metrics(),
        };
        let prepared = PreparedRun::new(context, store, &options).await?;
        let next = prepared.start(&mut signals).await?;
        let is_stopped = next.is_stopped();
        run = Some(match run {
            Some(run) => run.followed_by(next),
            None => next,
        });
        if is_stopped {
            break;
        }
    }
    match run {
        Some(run) => print(context, store, &imported, &run, is_practice).await,
        None => Ok(Exit::Done),
    }
}

async fn print(
    context: &Context,
    store: &Store,
    imported: &[Imported],
    run: &SendRun,
    is_practice: bool,
) -> anyhow::Result<Exit> {
    if context.is_json() {
        context.print_json(&run.json(run.campaigns.len() == 1))?;
    } else {
        for summary in &run.campaigns {
            let campaign = context.campaign(store, &summary.campaign).await?;
            let options = report::options(context);
            let report = Report::gather(store, Some(&campaign), &options).await?;
            report::write(context, &report, Listing::Figures, store).await?;
        }
        // The report of one campaign has the rate.
        context.console.print(&run.text(run.campaigns.len() != 1))?;
        for list in imported {
            context.console.print(&list.rejected_summary())?;
        }
    }
    run.explain(&context.console);
    if is_practice && let [first, ..] = imported {
        context.console.status(&format!(
            "that was practice; next: `smsq init`, describe your provider, `smsq check`, then \
             `smsq run {} …` again",
            shell_word(&first.file)
        ));
    }
    Ok(run.exit())
}
