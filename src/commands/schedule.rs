//! `smsq schedule`: campaigns that are imported from a query again and again. They run in `smsq send --follow` and
//! `smsq serve`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use smsq_import::{Options, RejectLimit, Unique, read_query, read_template, sender};
use smsq_message::text::{counted, printable_line};
use smsq_message::window::{Days, Hours, SendWindow, Zone, ZoneSource};
use smsq_operations::{
    Cancelled, ListOptions, Per, RunCountsReport, RunReport, ScheduleOptions, ScheduleReport,
    ScheduleRequest, Scheduler, WindowRequest, add_schedule, pause_schedule, remove_schedule,
    resume_schedule, schedule_name, schedule_named, schedule_reports,
};
use smsq_process::exit::Exit;
use smsq_store::{Access, ScheduleRow, Store};
use tokio::task::JoinHandle;

use super::import::NumberFlags;
use super::values::{assignment, span};
use super::{Context, data_folder, user_of, with_hint};

const EXAMPLES: &str = "\
Examples:
  smsq schedule add birthday --cron \"0 9 * * *\" --timezone Europe/Berlin --from crm --query birthday.sql --key customer_id --template birthday.txt
  smsq schedule list
  smsq schedule run birthday
  smsq send --follow                             runs schedules, and sends their messages

Each value of the key gets at most one message per day, or per --per, whatever fails. `smsq serve` runs schedules, too.";

/// Import a query again and again, at times that a cron expression says
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Add a schedule; its query is run once, without importing the rows
    Add(Box<AddArgs>),
    /// Print the schedules with their last runs
    List,
    /// Import what the query returns now, in addition to the scheduled runs
    Run(Name),
    /// Stop running a schedule until it is resumed
    Pause(Name),
    /// Continue a paused schedule with its next run
    Resume(Name),
    /// Remove a schedule; its campaigns stay
    Remove(Name),
}

#[derive(Debug, clap::Args)]
struct Name {
    #[arg(value_name = "NAME", value_parser = schedule_name)]
    name: String,
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    #[command(flatten)]
    name: Name,
    /// When it runs: minute, hour, day, month and weekday, such as "0 9 * * mon-fri"
    #[arg(long, value_name = "EXPRESSION")]
    cron: String,
    /// The time zone of the times and of the periods [default: that of this machine]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<Zone>,
    /// The database: `postgres://user@host/database`, `mysql://…`, `sqlite:FILE`, or NAME of a section [sources.NAME]
    #[arg(long, value_name = "DATABASE")]
    from: String,
    /// A file with the query, which is copied
    #[arg(long, value_name = "FILE")]
    query: PathBuf,
    /// The columns that identify a recipient, with commas: each value gets one message per period
    #[arg(long, value_name = "COLUMN,…")]
    key: Unique,
    /// The period in which a key gets at most one message: day, week (from Monday on), month, or run
    #[arg(long, value_name = "PERIOD", default_value = "day")]
    per: Per,
    /// Run also each time that was missed while no process was there [default: only the last one]
    #[arg(long)]
    catch_up: bool,
    /// The text, in which {{ name }} is replaced by column `name` [default: column `content`]
    #[arg(long, value_name = "TEXT", conflicts_with = "template")]
    text: Option<String>,
    /// A file with the text, which is copied
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Map a field to a column of the query: `phone=mobile` or `name=first_name`; repeatable
    #[arg(long, value_name = "NAME=COLUMN", value_parser = assignment)]
    column: Vec<(String, String)>,
    #[command(flatten)]
    numbers: NumberFlags,
    /// Replace typographic quotes, dashes and spaces where that saves segments
    #[arg(long)]
    smart: bool,
    /// The provider or route that sends the campaigns [default: setting `default_provider`]
    #[arg(long, visible_alias = "route", value_name = "NAME")]
    provider: Option<String>,
    /// The sender that recipients see
    #[arg(long, value_name = "SENDER", value_parser = sender)]
    sender: Option<String>,
    /// Send only between these hours in the time zone of the schedule, such as 09:00-20:00 [default: at any hour]
    #[arg(long, value_name = "HOURS")]
    window: Option<Hours>,
    /// On these days, such as mon-fri or mon,wed,sat-sun [default: daily]
    #[arg(long, value_name = "DAYS", requires = "window")]
    days: Option<Days>,
    /// How long after the start of a run its messages expire: 6h
    #[arg(long, value_name = "TIME", value_parser = span)]
    expires: Option<Duration>,
    /// Import nothing if more rows would be rejected: 5% or 100 [default: setting `import.max_rejects`]
    #[arg(long, value_name = "SHARE")]
    max_rejects: Option<RejectLimit>,
}

impl AddArgs {
    fn request(&self) -> anyhow::Result<ScheduleRequest> {
        let found = self.timezone.clone().or_else(Zone::of_machine);
        let zone = found.ok_or_else(|| {
            with_hint(
                "missing time zone: that of this machine has no name",
                "name one, such as `--timezone Europe/Berlin`",
            )
        })?;
        let text = match (&self.text, &self.template) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(file)) => Some(read_template(file)?),
            (None, None) => None,
        };
        let window = self.window.map(|hours| SendWindow {
            hours,
            days: self.days.unwrap_or(Days::DAILY),
            zone: ZoneSource::Fixed(zone.clone()),
        });
        Ok(ScheduleRequest {
            name: self.name.name.clone(),
            cron: self.cron.clone(),
            zone,
            source: absolute(&self.from)?,
            query: read_query(&self.query)?,
            key: self.key.clone(),
            per: self.per,
            catch_up: self.catch_up,
            options: ScheduleOptions {
                query_name: printable_line(&self.query.display().to_string()).into_owned(),
                text,
                columns: self.column.clone(),
                region: self.numbers.region.map(|region| region.to_string()),
                numbers: self.numbers.as_str().map(str::to_owned),
                smart: self.smart,
                provider: self.provider.clone(),
                sender: self.sender.clone(),
                window: window.map(|window| window.to_string()),
                expires_after: self.expires.and_then(|span| u64::try_from(span.as_millis()).ok()),
                max_rejects: self.max_rejects.map(|limit| limit.to_string()),
            },
        })
    }
}

/// A file is found from every folder.
fn absolute(from: &str) -> anyhow::Result<String> {
    let Some(path) = from.strip_prefix("sqlite:") else {
        return Ok(from.to_owned());
    };
    let path = std::path::absolute(path.strip_prefix("//").unwrap_or(path))?;
    Ok(format!("sqlite:{}", path.display()))
}

impl Args {
    /// The database of a schedule that is added.
    pub(crate) fn source(&self) -> Option<&str> {
        match &self.action {
            Action::Add(args) => Some(&args.from),
            _ => None,
        }
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let actor = user_of("schedule");
    match &args.action {
        Action::Add(args) => add(args, context).await,
        Action::List => list(context).await,
        Action::Run(name) => run_now(&name.name, context).await,
        Action::Pause(name) => {
            let (store, schedule) = found(&name.name, context).await?;
            let is_changed = pause_schedule(&store, &schedule, &actor).await?;
            let done = if is_changed { "paused" } else { "was paused already:" };
            context.report(
                &format!("{done} schedule `{}`", schedule.name),
                &json!({ "schedule": schedule.name, "state": "paused" }),
            )
        }
        Action::Resume(name) => {
            let (store, schedule) = found(&name.name, context).await?;
            let is_changed = resume_schedule(&store, &schedule, &actor).await?;
            let schedule = schedule_named(&store, &schedule.name).await?;
            let done = if is_changed { "resumed" } else { "was active already:" };
            context.report(
                &format!("{done} schedule `{}`; {}", schedule.name, next_run(&schedule)),
                &json!({
                    "schedule": schedule.name,
                    "state": "active",
                    "next_at": schedule.next_at.to_string(),
                }),
            )
        }
        Action::Remove(name) => {
            let (store, schedule) = found(&name.name, context).await?;
            remove_schedule(&store, &schedule, &actor).await?;
            context.report(
                &format!("removed schedule `{}`; its campaigns stay", schedule.name),
                &json!({ "schedule": schedule.name, "state": "removed" }),
            )
        }
    }
}

async fn found(name: &str, context: &Context) -> anyhow::Result<(Store, ScheduleRow)> {
    let store = context.store().await?;
    let schedule = schedule_named(&store, name).await?;
    Ok((store, schedule))
}

/// `next run: 2026-11-28 09:00 Europe/Berlin`.
fn next_run(schedule: &ScheduleRow) -> String {
    let zone: Option<Zone> = schedule.timezone.parse().ok();
    let at = zone
        .map_or_else(|| schedule.next_at.to_string(), |zone| zone.format_local(schedule.next_at));
    format!("next run: {at}")
}

async fn add(args: &AddArgs, context: &Context) -> anyhow::Result<Exit> {
    let (request, lists) = (args.request()?, list_options(context));
    let store = context.open(Access::Create).await?;
    let progress = context.console.progress(None, "reading");
    let warn = |warning: &str| context.console.warn(warning);
    let count = |rows| progress.set(rows);
    let actor = user_of("schedule");
    let (schedule, rows) = add_schedule(&store, &lists, &request, &actor, count, warn).await?;
    drop(progress);
    let (name, next) = (&schedule.name, next_run(&schedule));
    context.report(
        &format!("added schedule `{name}`: its query returns {} now; {next}", counted(rows, "row")),
        &json!({
            "schedule": name,
            "rows": rows,
            "next_at": schedule.next_at.to_string(),
        }),
    )?;
    context.console.status("`smsq send --follow` or `smsq serve` runs it");
    Ok(Exit::Done)
}

async fn list(context: &Context) -> anyhow::Result<Exit> {
    let store = context.store_to_read().await?;
    let reports = schedule_reports(&store).await?;
    let mut text = String::new();
    for report in &reports {
        write_report(&mut text, report);
    }
    if reports.is_empty() {
        context.console.status("no schedules yet: `smsq schedule add --help` shows how to add one");
    }
    context.print(&text, &json!({ "schedules": reports }))?;
    Ok(Exit::Done)
}

fn write_report(text: &mut String, report: &ScheduleReport) {
    let next = report.next.as_deref().unwrap_or("paused");
    let _ = writeln!(text, "{}: {}", report.name, report.describe());
    let _ = writeln!(text, "  next run  {next}");
    for run in &report.runs {
        let _ = writeln!(text, "  {}  {}", run.time.replace('T', " "), outcome(run));
    }
}

/// `done: 12 rows, 10 accepted, 2 duplicates`, or why it was missed.
fn outcome(run: &RunReport) -> String {
    match run.error.as_deref().map(printable_line) {
        Some(error) => format!("{}: {error}", run.state),
        None if run.finished_at.is_some() => {
            format!("{}: {}", run.state, count_text(&run.counts))
        }
        None => run.state.to_owned(),
    }
}

fn count_text(counts: &RunCountsReport) -> String {
    let mut text = format!("{}, {} accepted", counted(counts.rows, "row"), counts.accepted);
    for (count, word) in [
        (counts.duplicates, "duplicates"),
        (counts.suppressed, "suppressed"),
        (counts.rejected, "rejected"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {word}");
        }
    }
    if let Some(reasons) = &counts.reasons {
        let _ = write!(text, ": {reasons}");
    }
    text
}

async fn run_now(name: &str, context: &Context) -> anyhow::Result<Exit> {
    let (store, schedule) = found(name, context).await?;
    let scheduler = scheduler(context, &store).await?;
    let mut signals = context.signals.listen();
    let running = Arc::clone(&scheduler).run_now(schedule, user_of("schedule"));
    let mut running = std::pin::pin!(running);
    let (done, signal) = tokio::select! {
        done = &mut running => (done, None),
        // The stop of the process interrupts the run.
        signal = signals.next() => (running.await, Some(signal)),
    };
    if let Some(signal) = signal {
        context.console.status("interrupted: run it again to add the missing rows");
        return Ok(signal);
    }
    let (campaign, counts) = done?;
    let counts = RunCountsReport::from(counts);
    let mut object = json!(counts);
    object["schedule"] = json!(name);
    object["campaign"] = json!(campaign);
    context.report(&format!("campaign `{campaign}`: {}", count_text(&counts)), &object)
}

/// What the configuration says about the lists of schedules, uploads and other imports without flags.
pub(super) fn list_options(context: &Context) -> ListOptions {
    let config = &context.config;
    ListOptions {
        list: Options { dialling: NumberFlags::default().dialling(config), ..Options::default() },
        campaign: None,
        provider: None,
        sender: None,
        max_rejects: config.import.max_rejects,
        at: None,
        expires: None,
        window: WindowRequest::default(),
        budget: None,
        rate: None,
        posted_by: None,
        may_change: false,
        cancelled: Cancelled::Refuse,
        period: None,
        settings: context.list_settings(),
    }
}

pub(super) async fn scheduler(context: &Context, store: &Store) -> anyhow::Result<Arc<Scheduler>> {
    let folder = data_folder(context, store, "schedules").await?;
    let lists = list_options(context);
    Ok(Arc::new(Scheduler::new(store.clone(), lists, folder, context.jobs.clone())))
}

/// The task that runs schedules while a process sends or serves.
pub(super) struct RunningScheduler {
    pub(super) scheduler: Arc<Scheduler>,
    task: JoinHandle<()>,
}

impl RunningScheduler {
    pub(super) async fn start(context: &Context, store: &Store) -> anyhow::Result<Self> {
        let scheduler = scheduler(context, store).await?;
        let task = tokio::spawn(Arc::clone(&scheduler).run());
        Ok(Self { scheduler, task })
    }

    /// Interrupts its runs, which another process or the next one repeats.
    pub(super) async fn stop(mut self) {
        let stop = self.scheduler.jobs().stop();
        stop.begin();
        // A panic in it has been logged.
        let _ = stop.within(&mut self.task).await;
    }
}

impl Drop for RunningScheduler {
    fn drop(&mut self) {
        self.scheduler.jobs().stop().begin();
        self.task.abort();
    }
}
