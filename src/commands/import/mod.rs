//! `smsq import`: lists become messages in the queue. All files are looked through before anything is
//! written; then each is imported into its campaign.

mod checks;
mod dry_run;
mod list;
mod look;
mod needs;
mod outlook;
mod prices;
mod queue;
mod tell;

use std::fmt::Display;
use std::time::Duration;

pub(super) use self::checks::check_rejects;
pub(super) use self::dry_run::{SAMPLES, confirm};
pub(super) use self::list::{FileFormat, List, column};
pub(super) use self::needs::of_queue as seen_by_recipients;
pub(super) use self::outlook::{write_estimate, write_samples};
pub(super) use self::tell::{Imported, interpretation as explained, remarks, write_schedule};

use super::signals::Signals;
use super::window::check_opens;
use super::words::messages;
use super::{Context, hinted, purge};
use crate::exit::Exit;
use crate::import::{ImportError, Options, Plan, PriceOf, Schedule, Target, is_stdout};
use crate::sms::Timestamp;
use crate::store::{
    Access, Campaign, CampaignChange, CampaignStatus, Fault, NewCampaign, Store, WindowChange,
};
use crate::window::local_and_utc;

/// How far in the past `--at` may be to count as now.
const LATE: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "\
Examples:
  smsq import list.csv --text \"Hi {{ name }}, your table is ready\" --dry-run
  smsq import list.csv --template welcome.txt --region GB
  smsq import 名单.csv --column phone=手机号 --region CN --campaign 夏季促销 --template summer.txt
  smsq import invoices.csv --unique phone,invoice --text \"Invoice {{ invoice }} is due\"
  smsq import 名单.xlsx --column phone=手机,电话 --max-rejects 5% --template summer.txt
  smsq import list.csv --template offer.txt --at \"2026-12-24 09:00\" --expires +8h
  smsq import list.csv --template offer.txt --window 09:00-20:00 --days mon-fri --timezone Europe/Berlin
  smsq import redis://localhost/0 --list tasks --follow   what programs push to a list in Redis
  tail -f tasks.jsonl | smsq import - --follow --campaign codes
  smsq import list.rejects.csv --template welcome.txt --campaign welcome-3f2a91   the mended rows

Importing a file again adds only what is missing. Rows that cannot be used go to a file of their own,
with line and reason, to be mended and imported.";

/// Put the messages of a list into the queue; nothing is sent yet
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    list: List,
    /// Write nothing: show the first messages, their segments, and how long sending would take
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// The list that other programs push to, where FILE is `redis://host:6379/0`
    #[arg(long = "list", value_name = "KEY")]
    key: Option<String>,
    /// Stay, and import what comes into the Redis list, or as JSON lines into standard input
    #[arg(long)]
    follow: bool,
}

impl Args {
    pub(crate) fn redis_url(&self) -> Option<&str> {
        queue::redis_url(&self.list)
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    if list_to_stdout(&args.list) && context.is_json() {
        return Err(hinted(
            "`--rejects -` and `--format json` both write to standard output",
            Some("name a file: `--rejects FILE`"),
        ));
    }
    if let Some(source) = queue::source(args, context)? {
        return queue::run(args, source, context).await;
    }
    let access = if args.dry_run {
        Access::Read
    } else {
        Access::Existing
    };
    let plans = prepare(&args.list, context, access).await?;
    if args.dry_run {
        return dry_run::run(&args.list, &plans, context).await;
    }
    check_rejects(&args.list, &plans, context).await?;
    let store = context.open(Access::Create).await?;
    purge::by_the_way(context, &store).await?;
    let imported = import(&args.list, &plans, context, &store, Use::Real).await?;
    let (imported, signal) = match imported {
        Ended::Whole(imported) => (imported, None),
        Ended::Stopped(imported, signal) => (imported, Some(signal)),
    };
    tell::tell(context, &store, &imported, list_to_stdout(&args.list)).await?;
    if let Some(signal) = signal {
        return Ok(signal);
    }
    Ok(tell::exit(&imported))
}

/// The rejected rows go to standard output.
fn list_to_stdout(list: &List) -> bool {
    list.rejects.as_deref().is_some_and(is_stdout)
}

/// What the messages are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Real,
    /// Nobody gets them, however often.
    Practice,
}

/// How an import ended: all files, or those before a signal came.
pub(super) enum Ended {
    Whole(Vec<Imported>),
    Stopped(Vec<Imported>, Exit),
}

/// Every fault of a file, its columns or the text is found here, and nothing is written.
pub(super) async fn prepare(
    list: &List,
    context: &Context,
    access: Access,
) -> anyhow::Result<Vec<Plan>> {
    queue::refuse_in(list)?;
    if let Some(provider) = &list.provider {
        context.stanza(provider)?;
    }
    if list.rejects.is_some() && list.files.len() > 1 {
        return Err(hinted(
            "`--rejects` names one file, but several are imported",
            Some("leave it out: each list gets a file of its own, named after it"),
        ));
    }
    // The database's clock decides, but a database shall not be made for a moment long past.
    let moments = window(list, this_moment())?;
    if let WindowChange::Set(hours) = list.hours.change(None)? {
        check_opens(&hours, moments, this_moment())?;
    }
    let region = list.region.or(context.config.default_region);
    let store = existing(context, access).await?;
    let campaign = match (&list.campaign, &store) {
        (Some(name), Some(store)) => store.campaign(name).await?,
        _ => None,
    };
    let needs = needs::of(list, campaign.as_ref(), context)?;
    let mut plans = Vec::new();
    for file in &list.files {
        let options = Options {
            template: needs.as_ref().and_then(|needs| needs.template.clone()),
            ..list.options(file, region)
        };
        let mut plan = Plan::prepare(options).map_err(|error| match (&error, &needs) {
            (ImportError::NoText { .. }, Some(needs)) if !needs.columns.is_empty() => hinted(
                &error,
                Some(format!(
                    "set `template_text` in [providers.{}] to the text of its template",
                    needs.provider
                )),
            ),
            _ => fault(error),
        })?;
        acquaint(list, &mut plan, context, store.as_ref()).await?;
        for doubt in plan.doubts() {
            context.console.warn(&format!("`{}`: {doubt}", plan.file()));
        }
        plans.push(plan);
    }
    Ok(plans)
}

/// The database, if there is one yet.
async fn existing(context: &Context, access: Access) -> anyhow::Result<Option<Store>> {
    match Store::of(&context.config.database, access).await {
        Ok(store) => Ok(Some(store)),
        Err(error) if matches!(error.fault(), Fault::Missing | Fault::NoTables) => Ok(None),
        Err(error) => Err(hinted(&error, error.hint())),
    }
}

/// Imports the files one after the other, each into its campaign.
pub(super) async fn import(
    list: &List,
    plans: &[Plan],
    context: &Context,
    store: &Store,
    purpose: Use,
) -> anyhow::Result<Ended> {
    let schedule = window(list, store.now().await?)?;
    for plan in plans {
        let campaign = store.campaign(list.campaign_for(plan)).await?;
        if let Some(campaign) = &campaign {
            plan.unique_in(campaign).map_err(fault)?;
        }
        let standing = campaign.and_then(|campaign| campaign.window);
        let hours = list.hours.change(None)?.applied_to(standing);
        if let Some(hours) = hours {
            check_opens(&hours, schedule, store.now().await?)?;
        }
        if purpose == Use::Real {
            checks::check_again(list, plan, context, store).await?;
        }
    }
    for plan in plans {
        tell::interpretation(&context.console, plan.file(), &plan.interpretation());
    }
    let mut signals = Signals::listen()?;
    let mut imported = Vec::new();
    for plan in plans {
        let campaign = open_campaign(list, plan, context, store).await?;
        let progress = context.console.progress(None, "importing");
        let prices = prices::of(list, Some(&campaign), context);
        let price = |phone: &str| prices?.of(phone);
        let price = prices.is_some().then_some(&price as PriceOf<'_>);
        let target = Target {
            store,
            campaign: &campaign,
            schedule: &|_| schedule,
        };
        let running = crate::import::run(plan, target, price, |done| {
            progress.set(done.rows);
            if let Some(total) = (done.rows * done.total_bytes).checked_div(done.bytes) {
                progress.set_total(total.max(done.rows));
            }
        });
        let summary = tokio::select! {
            summary = running => summary.map_err(fault)?,
            signal = signals.next() => {
                drop(progress);
                let file = plan.file();
                context.console.say(&format!(
                    "stopped in the middle of `{file}`: import it again, and what is missing is added"
                ));
                return Ok(Ended::Stopped(imported, signal));
            }
        };
        imported.push(Imported {
            file: plan.file().to_owned(),
            currency: prices.map(|prices| prices.currency.clone()),
            fix: match &summary.rejects_file {
                Some(rejects) => list.command(rejects, &campaign, schedule),
                None => String::new(),
            },
            campaign: campaign.name,
            schedule,
            summary,
        });
    }
    Ok(Ended::Whole(imported))
}

/// What is known of the list's campaign: without `--campaign`, failures go back to the one that they come from;
/// and every row must be what the campaign's provider needs.
async fn acquaint(
    list: &List,
    plan: &mut Plan,
    context: &Context,
    store: Option<&Store>,
) -> anyhow::Result<()> {
    let mut campaign = None;
    if let Some(store) = store {
        if list.campaign.is_none() {
            plan.resolve_campaign(store).await.map_err(fault)?;
        }
        campaign = store.campaign(list.campaign_for(plan)).await?;
    }
    needs::check_sender(list, campaign.as_ref(), context)?;
    let needs = needs::of(list, campaign.as_ref(), context)?;
    plan.set_requirements(needs).map_err(fault)?;
    plan.check_columns(campaign.as_ref()).map_err(fault)
}

/// The campaign of a file, new or as it stands, with what the flags say of it.
async fn open_campaign(
    list: &List,
    plan: &Plan,
    context: &Context,
    store: &Store,
) -> anyhow::Result<Campaign> {
    let unique = plan.unique().to_string();
    open_named(list, list.campaign_for(plan), unique, context, store).await
}

async fn open_named(
    list: &List,
    name: &str,
    unique: String,
    context: &Context,
    store: &Store,
) -> anyhow::Result<Campaign> {
    let new = NewCampaign {
        name: name.to_owned(),
        provider: list.provider.clone(),
        sender: list.from.clone(),
        unique_by: Some(unique.clone()),
        ..NewCampaign::default()
    };
    let campaign = store.open_campaign(&new, store.now().await?).await?;
    let differing = |asked: &Option<String>, stands: &Option<String>| {
        asked.clone().filter(|asked| stands.as_ref() != Some(asked))
    };
    let change = CampaignChange {
        provider: differing(&list.provider, &campaign.provider),
        sender: differing(&list.from, &campaign.sender),
        unique_by: campaign.unique_by.is_none().then_some(unique),
        window: list.hours.change(None)?,
        ..CampaignChange::default()
    };
    if let Some(provider) = &change.provider {
        let said = format!(
            "campaign `{}` is sent through `{provider}` from now on",
            campaign.name
        );
        context.console.say(&said);
    }
    store.change_campaign(campaign.id, &change).await?;
    if campaign.state == CampaignStatus::Cancelled {
        store
            .set_campaign_state(campaign.id, CampaignStatus::Active, None)
            .await?;
        let said = format!(
            "campaign `{}` was cancelled: it is active again",
            campaign.name
        );
        context.console.say(&said);
    }
    context.campaign(store, &campaign.name).await
}

fn this_moment() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}

/// When the messages are due and expire. A relative `--expires` counts from `--at`.
fn schedule(list: &List, now: Timestamp) -> Schedule {
    let due_at = list.at.map(|moment| moment.resolve(now));
    let base = due_at.unwrap_or(now);
    Schedule {
        due_at,
        expires_at: list.expires.map(|moment| moment.resolve(base)),
    }
}

/// The schedule, unless it lies in the past or expires before it starts.
fn window(list: &List, now: Timestamp) -> anyhow::Result<Schedule> {
    let window = schedule(list, now);
    if let Some(at) = window.due_at.filter(|at| now.since(*at) > LATE) {
        return Err(hinted(
            format!("`--at` {} is in the past", local_and_utc(at)),
            Some("leave `--at` out to send at once"),
        ));
    }
    let Some(expires_at) = window.expires_at else {
        return Ok(window);
    };
    let expiry = format!("`--expires` {}", local_and_utc(expires_at));
    let hint = Some("nothing would be sent");
    match window.due_at {
        _ if expires_at <= now => Err(hinted(format!("{expiry} is in the past"), hint)),
        Some(due_at) if expires_at <= due_at => {
            let start = local_and_utc(due_at);
            Err(hinted(
                format!("{expiry} is not after `--at` {start}"),
                hint,
            ))
        }
        _ => Ok(window),
    }
}

/// A fault of an import, with its hint.
pub(super) fn fault(error: ImportError) -> anyhow::Error {
    let hint = match &error {
        ImportError::Store(fault) => fault.hint().map(str::to_owned),
        other => other.hint(),
    };
    let message = anyhow::Error::from(error);
    hinted(format!("{message:#}"), hint)
}

/// What the operator does with rows that came back as they were.
fn unchanged_hint(count: u64, campaign: impl Display) -> String {
    format!(
        "{} came back unchanged: `smsq retry --campaign {campaign}` sends such a failure again",
        messages(count)
    )
}
