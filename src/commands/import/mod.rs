//! `smsq import`: puts the messages of lists into the queue. All files are checked before anything is written;
//! then each is imported into its campaign.

mod args;
mod consumer;
mod estimate;
mod output;
mod preflight;
mod upload;

use std::time::Duration;

use super::signals::Signals;
use super::window::check_opens;
use super::{Context, purge, user_of, with_hint};
use crate::exit::Exit;
use crate::import::{ImportError, Options, Plan, Schedule, Target};
use crate::operations::{
    Actor, CampaignAction, OperationError, Refused, change_settings, change_state,
};
use crate::sms::Timestamp;
use crate::store::{
    Access, Campaign, CampaignChange, CampaignStatus, NewCampaign, Store, StoreErrorKind,
    WindowChange,
};
use crate::window::local_and_utc;

pub(super) use self::args::{FileFormat, List, NumberFlags};
pub(super) use self::estimate::{SAMPLES, confirm, limits};
pub(super) use self::output::{
    Imported, print_interpretation, warn_of_rows, write_estimate, write_row, write_schedule,
};
pub(super) use self::preflight::{check_again, check_rejects, queue_check};

/// `--at` may be this far in the past: it then means now.
const MAX_LATE: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "\
Examples:
  smsq import list.csv --text \"Hi {{ name }}, your table is ready\" --dry-run
  smsq import list.csv --template welcome.txt --region GB
  smsq import 名单.csv --column phone=手机号 --region CN --campaign 夏季促销 --template summer.txt
  smsq import invoices.csv --unique phone,invoice --text \"Invoice {{ invoice }} is due\"
  smsq import 名单.xlsx --column phone=手机,电话 --max-rejects 5% --template summer.txt
  smsq import list.csv --template offer.txt --at \"2026-12-24 09:00\" --expires +8h
  smsq import list.csv --template offer.txt --window 09:00-20:00 --timezone Europe/Berlin
  smsq import redis://localhost/0 --list tasks --follow   entries of a Redis list
  tail -f tasks.jsonl | smsq import - --follow --campaign codes
  smsq import list.rejects.csv --template welcome.txt --campaign welcome-3f2a91   the fixed rows

Importing a file again adds only what is missing. Rows that cannot be used go to a file of their own, \
with line and reason: fix it and import it.";

/// Put the messages of a list into the queue; sends nothing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    list: List,
    /// Write nothing: show the first messages, segments, cost, and how long sending would take
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// The Redis list that programs push to, where FILE is `redis://host:6379/0`
    #[arg(long = "list", value_name = "KEY")]
    key: Option<String>,
    /// Wait for more entries of the Redis list, or for more JSON lines on standard input
    #[arg(long)]
    follow: bool,
}

impl Args {
    pub(crate) fn redis_url(&self) -> Option<&str> {
        self.list.redis_url()
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let list = &args.list;
    if list.has_rejects_on_stdout() && context.is_json() {
        return Err(with_hint(
            "`--rejects -` and `--format json` both write to standard output",
            "name a file: `--rejects FILE`",
        ));
    }
    if let Some(source) = consumer::source(args, context)? {
        return consumer::run(args, source, context).await;
    }
    let access = if args.dry_run {
        Access::Read
    } else {
        Access::Existing
    };
    let plans = prepare(list, context, access).await?;
    if args.dry_run {
        return estimate::dry_run(list, &plans, context).await;
    }
    check_rejects(list, &plans, context).await?;
    let store = context.open(Access::Create).await?;
    purge::apply_retention(context, &store).await?;
    check_again(list, &plans, context, &store).await?;
    let mut signals = context.signals.listen();
    let (imported, signal) = import(list, &plans, context, &store, Some(&mut signals)).await?;
    output::print(context, &store, &imported, list.has_rejects_on_stdout()).await?;
    Ok(signal.unwrap_or_else(|| output::exit(imported.iter().map(|one| &one.summary))))
}

/// Reads the files as far as needed to find every error that concerns a whole file. Writes nothing.
pub(super) async fn prepare(
    list: &List,
    context: &Context,
    access: Access,
) -> anyhow::Result<Vec<Plan>> {
    if list.redis_url().is_some() {
        return Err(with_hint(
            "`run` reads files, not a list in Redis",
            "use `smsq import redis://… --list KEY`, and `smsq send` in another process",
        ));
    }
    if let Some(provider) = &list.provider {
        context.provider_section(provider)?;
    }
    if list.rejects.is_some() && list.files.len() > 1 {
        return Err(with_hint(
            "`--rejects` names one file, but several lists are imported",
            "omit it: each list gets a rejects file named after it",
        ));
    }
    // The import checks this again with the database's clock; this check comes before a database is created.
    list.schedule(local_now())?;
    let dialling = list.numbers.dialling(&context.config);
    let store = existing(context, access).await?;
    let campaign = match (&list.campaign, &store) {
        (Some(name), Some(store)) => store.campaign(name).await?,
        _ => None,
    };
    let requirements = preflight::requirements(list, campaign.as_ref(), context)?;
    let mut plans = Vec::new();
    for file in &list.files {
        let template = requirements.as_ref().and_then(|one| one.template.clone());
        let options = Options {
            template,
            ..list.options(file, dialling)
        };
        let mut plan = Plan::prepare(options).map_err(|error| match (&error, &requirements) {
            (ImportError::NoText { .. }, Some(requirements))
                if !requirements.columns.is_empty() =>
            {
                let provider = &requirements.provider;
                with_hint(
                    &error,
                    format!(
                        "set `template_text` in [providers.{provider}] to the text of its template"
                    ),
                )
            }
            _ => error.into(),
        })?;
        check_campaign(list, &mut plan, context, store.as_ref()).await?;
        for warning in plan.warnings() {
            context
                .console
                .warn(&format!("`{}`: {warning}", plan.file()));
        }
        plans.push(plan);
    }
    Ok(plans)
}

/// The database, if it exists.
async fn existing(context: &Context, access: Access) -> anyhow::Result<Option<Store>> {
    match Store::of(&context.config.database, access).await {
        Ok(store) => Ok(Some(store)),
        Err(error) => match error.kind() {
            StoreErrorKind::Missing | StoreErrorKind::NoTables => Ok(None),
            _ => Err(error.into()),
        },
    }
}

/// Finds the campaign of a list, and checks the list against the campaign and its provider. A failures file
/// belongs to the campaign that it came from.
async fn check_campaign(
    list: &List,
    plan: &mut Plan,
    context: &Context,
    store: Option<&Store>,
) -> anyhow::Result<()> {
    let mut campaign = None;
    if let Some(store) = store {
        if list.campaign.is_none() {
            plan.resolve_campaign(store).await?;
        }
        campaign = store.campaign(list.campaign_for(plan)).await?;
    }
    if let Some(campaign) = &campaign {
        plan.unique_in(campaign)?;
    }
    let now = local_now();
    if let Some(window) = list.window_for(campaign.as_ref())? {
        check_opens(&window, list.schedule(now)?, now)?;
    }
    preflight::check_sender(list, campaign.as_ref(), context)?;
    let requirements = preflight::requirements(list, campaign.as_ref(), context)?;
    plan.set_requirements(requirements)?;
    Ok(plan.check_columns(campaign.as_ref())?)
}

/// Imports the files one after the other, each into its campaign; returns the files that were imported whole,
/// and the signal that interrupted the import. Without `signals` it is not interrupted.
pub(super) async fn import(
    list: &List,
    plans: &[Plan],
    context: &Context,
    store: &Store,
    mut signals: Option<&mut Signals>,
) -> anyhow::Result<(Vec<Imported>, Option<Exit>)> {
    let schedule = list.schedule(store.now().await?)?;
    for plan in plans {
        print_interpretation(&context.console, plan.file(), &plan.interpretation());
    }
    let mut imported = Vec::new();
    for plan in plans {
        let (name, unique) = (list.campaign_for(plan), plan.unique().to_string());
        let campaign = open_campaign(list, name, unique, context, store).await?;
        let progress = context.console.progress(None, "importing");
        let prices = list.prices(Some(&campaign), context);
        let price = |phone: &str| prices?.of(phone);
        let target = Target {
            store,
            campaign: &campaign,
            schedule: &|_| schedule,
            posted_by: list.upload.as_ref().map(|upload| upload.posted_by.as_str()),
        };
        let running = crate::import::run(plan, target, &price, |rows, total| {
            progress.set(rows);
            if let Some(total) = total {
                progress.set_total(total);
            }
        });
        let signal = async {
            match &mut signals {
                Some(signals) => signals.next().await,
                None => std::future::pending().await,
            }
        };
        let summary = tokio::select! {
            summary = running => summary?,
            signal = signal => {
                drop(progress);
                let file = plan.file();
                context.console.status(&format!(
                    "interrupted while importing `{file}`: import it again to add the missing rows"
                ));
                return Ok((imported, Some(signal)));
            }
        };
        imported.push(Imported {
            file: plan.file().to_owned(),
            currency: prices.map(|prices| prices.currency.clone()),
            rejects_command: list.rejects_command(&summary, &campaign, schedule),
            campaign: campaign.name,
            schedule,
            summary,
        });
    }
    Ok((imported, None))
}

/// Creates the campaign, or applies the flags to an existing one.
async fn open_campaign(
    list: &List,
    name: &str,
    unique: String,
    context: &Context,
    store: &Store,
) -> anyhow::Result<Campaign> {
    let window = list.window.change(None)?;
    let new = NewCampaign {
        name: name.to_owned(),
        provider: list.provider.clone(),
        sender: list.from.clone(),
        unique_by: Some(unique.clone()),
        window: window.clone().applied_to(None),
        ..NewCampaign::default()
    };
    let mut campaign = store.open_campaign(&new, store.now().await?).await?;
    let actor = match &list.upload {
        Some(upload) => Actor::of_token(&upload.posted_by),
        None => user_of("import"),
    };
    if campaign.state == CampaignStatus::Cancelled {
        if list.upload.is_some() {
            let refused = Refused::takes_no_messages(name);
            return Err(OperationError::Refused(refused).into());
        }
        change_state(store, &campaign, CampaignAction::Resume, &actor).await?;
        let message = format!("campaign `{name}` was cancelled: it is active again");
        context.console.status(&message);
        campaign = context.campaign(store, name).await?;
    }
    if campaign.unique_by.is_none() {
        let change = CampaignChange {
            unique_by: Some(unique),
            ..CampaignChange::default()
        };
        store.change_campaign(campaign.id, &change).await?;
    }
    let changed = |flag: &Option<String>, current: &Option<String>| {
        flag.clone().filter(|flag| current.as_ref() != Some(flag))
    };
    let is_same_window = window.clone().applied_to(campaign.window.clone()) == campaign.window;
    let change = CampaignChange {
        provider: changed(&list.provider, &campaign.provider),
        sender: changed(&list.from, &campaign.sender),
        window: if is_same_window {
            WindowChange::Keep
        } else {
            window
        },
        ..CampaignChange::default()
    };
    if let Some(provider) = &change.provider {
        let message = format!("campaign `{name}` is sent by `{provider}` from now on");
        context.console.status(&message);
    }
    change_settings(store, &campaign, &change, &actor).await?;
    context.campaign(store, name).await
}

fn local_now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}

impl List {
    /// When the messages are due and expire; an error if that is in the past. A relative `--expires` counts from
    /// `--at`.
    fn schedule(&self, now: Timestamp) -> anyhow::Result<Schedule> {
        let schedule = self.unchecked_schedule(now);
        if let Some(at) = schedule.due_at.filter(|at| now.since(*at) > MAX_LATE) {
            return Err(with_hint(
                format!("`--at` {} is in the past", local_and_utc(at)),
                "omit `--at` to send at once",
            ));
        }
        let Some(expires_at) = schedule.expires_at else {
            return Ok(schedule);
        };
        let problem = match schedule.due_at {
            _ if expires_at <= now => "is in the past".to_owned(),
            Some(due_at) if expires_at <= due_at => {
                format!("is not after `--at` {}", local_and_utc(due_at))
            }
            _ => return Ok(schedule),
        };
        let expiry = local_and_utc(expires_at);
        let message = format!("`--expires` {expiry} {problem}");
        Err(with_hint(message, "nothing would be sent"))
    }

    fn unchecked_schedule(&self, now: Timestamp) -> Schedule {
        let due_at = self.at.map(|time| time.after(now));
        let start = due_at.unwrap_or(now);
        Schedule {
            due_at,
            expires_at: self.expires.map(|time| time.after(start)),
        }
    }
}

/// Imports an uploaded file; returns what `--format json` prints.
pub(in crate::commands) async fn import_upload(
    list: &List,
    context: &Context,
) -> anyhow::Result<serde_json::Value> {
    let plans = prepare(list, context, Access::Existing).await?;
    let may_replace = list.upload.as_ref().is_none_or(|upload| upload.may_change);
    if let Some(plan) = plans.iter().find(|plan| plan.names_failed_messages())
        && !may_replace
    {
        return Err(with_hint(
            format!(
                "column `smsq_id` in `{}` replaces failed messages, which needs a token of role `admin`",
                plan.file()
            ),
            "remove the column to add the rows as new messages",
        ));
    }
    check_rejects(list, &plans, context).await?;
    let store = context.open(Access::Existing).await?;
    check_again(list, &plans, context, &store).await?;
    let (imported, _) = import(list, &plans, context, &store, None).await?;
    Ok(output::json(&imported))
}
