//! `smsq run`: imports a list, sends it and reports. With `--practice`, or without any configuration, it practises.

use smsq_operations::Imported;
use smsq_process::console::Verbosity;
use smsq_process::exit::Exit;
use smsq_report::{Listing, Report, shell_word};
use smsq_store::{Access, Store};

use super::import::{self, List, PreparedLists, rejected_summary};
use super::practice::{Practice, PracticeRequest};
use super::send::{MetricsFile, PreparedRun, SendFlags, SendOptions, SendRun};
use super::{Context, findings, report};

const EXAMPLES: &str = "\
Examples:
  smsq run --practice recipients.csv --template welcome.txt           try it: no phone gets a message
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
    let is_silent = args.yes && context.console.verbosity == Verbosity::Quiet;
    let request = PracticeRequest {
        is_asked: args.flags.worker.practice,
        provider: args.list.provider.as_deref(),
        unattended: is_silent.then_some("--yes -q"),
    };
    let practice = Practice::start(&mut context, &request)?;
    let mut store = None;
    let ended = import_and_send(args, &context, practice.as_ref(), &mut store, &mut metrics).await;
    let ended = metrics.end(&context, store.as_ref(), ended).await;
    if let Some(practice) = practice {
        practice.stop().await;
    }
    ended
}

async fn import_and_send(
    args: &Args,
    context: &Context,
    practice: Option<&Practice>,
    store: &mut Option<Store>,
    metrics: &mut MetricsFile,
) -> anyhow::Result<Exit> {
    let list = &args.list;
    let mut lists = PreparedLists::prepare(list, context, Access::Existing).await?;
    lists.check_mode()?;
    let default = context.config.default_provider.as_ref();
    if let Some(name) = list.provider.as_ref().or(default) {
        // Fails before anything is written if a provider cannot send.
        for provider in context.config.providers_of(name) {
            context.provider(provider)?;
        }
    }
    lists.check_rejects().await?;
    if !args.yes && practice.is_none() && !lists.confirm().await? {
        return Ok(Exit::CouldNotRun);
    }
    let store = store.insert(lists.open().await?);
    context.check_mode(store)?;
    match practice {
        Some(practice) => context.console.status(&practice.notice(store)),
        None => lists.check_again(store).await?,
    }
    metrics.begin(context, store);
    findings::warn_of_unsafe_settings(context, store).await?;
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
    let usable = import::exit(imported.iter().map(|list| &list.summary));
    let Some(run) = run else {
        return Ok(usable);
    };
    print(context, store, &imported, &run).await?;
    Ok(match run.exit() {
        Exit::Done => usable,
        exit => exit,
    })
}

async fn print(
    context: &Context,
    store: &Store,
    imported: &[Imported],
    run: &SendRun,
) -> anyhow::Result<()> {
    let campaigns = run.campaigns();
    if context.is_json() {
        context.print_json(&run.json(campaigns.len() == 1))?;
    } else {
        for summary in campaigns {
            let campaign = context.campaign(store, &summary.campaign).await?;
            let options = report::options(context);
            let report = Report::gather(store, Some(&campaign), &options).await?;
            report::write(context, &report, Listing::Figures, store).await?;
        }
        // The report of one campaign has the rate.
        context.console.print(&run.sentence(campaigns.len() != 1))?;
        for list in imported {
            context.console.print(&rejected_summary(list))?;
        }
    }
    run.explain(&context.console);
    if store.mode().is_practice()
        && let [first, ..] = imported
    {
        context.console.status(&format!(
            "that was practice; next: `smsq init`, describe your provider, `smsq check`, then \
             `smsq run {} …` again",
            shell_word(&first.file)
        ));
    }
    Ok(())
}
