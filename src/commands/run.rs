//! `smsq run`: the whole job, import, send, report. Without a provider it is practice: the gateway runs
//! inside this process, and the list goes to a database of its own.

use std::net::{Ipv4Addr, SocketAddr};

use super::delivery::Pace;
use super::delivery::{Delivery, Work};
use super::import::{self, Ended, Imported, List, Use};
use super::send;
use super::{Context, PRACTICE, check, hinted, report};
use crate::exit::Exit;
use crate::report::{Report, shell_word};
use crate::sandbox::{Behaviour, Sandbox};
use crate::store::{Access, Store};

const EXAMPLES: &str = "\
Examples:
  smsq run recipients.csv --template welcome.txt           practice, as long as no provider is set up
  smsq run list.csv --text \"Hi {{ name }}\" --provider cellar --rate 20/s

It may be interrupted and run again: what is in the campaign already is not added twice, and sending
goes on where it stopped.";

const SANDBOX: &str = "sandbox";

/// Import a list, send it, and report: the whole job
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    list: List,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Do not ask before a large campaign
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(args: &Args, mut context: Context) -> anyhow::Result<Exit> {
    let practice = match (&args.list.provider, &context.config.default_provider) {
        (None, None) => Some(practise(&mut context)?),
        _ => None,
    };
    let ended = work(args, &context, practice.is_some()).await;
    if let Some(sandbox) = practice {
        sandbox.stop().await;
    }
    ended
}

/// Starts the gateway and points the configuration to it.
fn practise(context: &mut Context) -> anyhow::Result<Sandbox> {
    if !context.config.own_providers.is_empty() {
        return Err(hinted(
            format!(
                "several providers are configured ({}), and none is chosen",
                context.config.own_providers.join(", ")
            ),
            Some("choose one with `--provider NAME`, or set `default_provider`"),
        ));
    }
    let sandbox = Sandbox::start(
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        Behaviour::default(),
    )?;
    let config = &mut context.config;
    let stanza = config.providers.entry(SANDBOX.to_owned()).or_default();
    stanza.insert("kind".to_owned(), SANDBOX.into());
    stanza.insert("url".to_owned(), sandbox.url().into());
    config.default_provider = Some(SANDBOX.to_owned());
    config.database.url = format!("sqlite://{PRACTICE}");
    context.console.say(
        "practice: nothing leaves this machine. No provider is configured, so a gateway inside this \
         process takes the messages, and their queue is `smsq-practice.db`.",
    );
    Ok(sandbox)
}

async fn work(args: &Args, context: &Context, is_practice: bool) -> anyhow::Result<Exit> {
    let plans = import::prepare(&args.list, context, Access::Existing).await?;
    let name = args
        .list
        .provider
        .as_ref()
        .or(context.config.default_provider.as_ref());
    if let Some(name) = name {
        // Before anything is written: what is imported shall be sent in the same breath.
        context.provider(name)?;
    }
    import::check_rejects(&args.list, &plans, context).await?;
    if !args.yes && !is_practice && !import::confirm(&args.list, &plans, context).await? {
        return Ok(Exit::CouldNotRun);
    }
    let store = context.open(Access::Create).await?;
    if let Some(finding) = check::unsafe_settings(&store).await? {
        context.console.warn(&finding);
    }
    let purpose = if is_practice {
        Use::Practice
    } else {
        Use::Real
    };
    let imported = match import::import(&args.list, &plans, context, &store, purpose).await? {
        Ended::Whole(imported) => imported,
        Ended::Stopped(_, signal) => return Ok(signal),
    };
    import::remarks(context, &imported);
    let mut campaigns: Vec<&str> = imported.iter().map(|one| one.campaign.as_str()).collect();
    campaigns.dedup();
    let mut deliveries = Vec::new();
    for campaign in campaigns {
        let work = Work {
            campaign: Some(campaign),
            pace: &args.pace,
            follow: false,
            // It was asked before the list was imported.
            asks: false,
        };
        let Some(delivery) = Delivery::run(context, &store, &work).await? else {
            return Ok(Exit::CouldNotRun);
        };
        let is_over = delivery.is_over();
        deliveries.push(delivery);
        if is_over {
            break;
        }
    }
    tell(context, &store, &imported, deliveries, is_practice).await
}

async fn tell(
    context: &Context,
    store: &Store,
    imported: &[Imported],
    deliveries: Vec<Delivery>,
    is_practice: bool,
) -> anyhow::Result<Exit> {
    let Some(delivery) = Delivery::joined(deliveries) else {
        return Ok(Exit::Done);
    };
    if context.is_json() {
        let is_one = delivery.standings.len() == 1;
        context.print_json(&send::object(is_one, &delivery)?)?;
    } else {
        for standing in &delivery.standings {
            let campaign = context.campaign(store, &standing.campaign).await?;
            let setting = report::setting(context);
            let gathered = Report::gather(store, Some(&campaign), &setting).await?;
            report::print(context, &gathered, store).await?;
        }
        context.console.data(&delivery.text())?;
        for one in imported {
            context.console.data(&one.rejected())?;
        }
    }
    delivery.explain(&context.console);
    if is_practice && let [first, ..] = imported {
        context.console.say(&format!(
            "that was practice; next: `smsq init`, describe your provider, `smsq check`, then \
             `smsq run {} …` again",
            shell_word(&first.file)
        ));
    }
    Ok(delivery.exit())
}
