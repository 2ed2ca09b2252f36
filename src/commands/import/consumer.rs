//! `smsq import` of entries that programs push to a Redis list, or of JSON lines on standard input with
//! `--follow`.

use std::path::{Path, PathBuf};

use smsq_import::consumer::{self, ConsumeOptions, Event, RedisList};
use smsq_import::{ImportError, Options, Schedule, Summary, Target, Unique};
use smsq_lifecycle::approval::ListFacts;
use smsq_message::sms::Timestamp;
use smsq_operations::{Imported, ListGate, check_name, local_now};
use smsq_process::console::Console;
use smsq_process::exit::Exit;
use smsq_store::{Access, Store};
use tokio::sync::watch;

use super::{Args, output};
use crate::commands::signals::Signals;
use crate::commands::{Context, purge, user_of, with_hint};

/// Where entries are read from.
pub(super) enum Source {
    Redis(Box<RedisList>),
    Stdin,
}

/// The source of entries; `None` for files.
pub(super) fn source(args: &Args, context: &Context) -> anyhow::Result<Option<Source>> {
    let list = &args.list;
    let is_stdin = list.files == [Path::new("-")];
    let source = match (list.redis_url(), &args.key) {
        (Some(url), Some(key)) => {
            let password = &context.config.redis.password;
            Source::Redis(Box::new(RedisList::new(url, key, password)?))
        }
        (Some(_), None) => {
            return Err(with_hint(
                "missing `--list`: `redis://…` is a server",
                "name the list that programs push to: `--list KEY`",
            ));
        }
        (None, Some(_)) => {
            return Err(with_hint(
                "`--list` needs a Redis server",
                "write it as `smsq import redis://localhost/0 --list tasks`",
            ));
        }
        (None, None) if args.follow && is_stdin => Source::Stdin,
        (None, None) if args.follow => {
            return Err(with_hint(
                "`--follow` needs a Redis list or standard input, not a file",
                "`tail -f FILE | smsq import - --follow` follows a file of JSON lines",
            ));
        }
        (None, None) => return Ok(None),
    };
    if matches!(source, Source::Redis(_)) && list.files.len() > 1 {
        return Err(with_hint(
            "a list in Redis cannot be imported together with files",
            "import the files with a second command",
        ));
    }
    if args.dry_run {
        return Err(with_hint(
            "`--dry-run` cannot read entries without removing them",
            "`redis-cli LRANGE KEY -5 -1` shows the next entries",
        ));
    }
    Ok(Some(source))
}

pub(super) async fn run(args: &Args, source: Source, context: &Context) -> anyhow::Result<Exit> {
    let (list, console) = (&args.list, &context.console);
    let options = list.options(context);
    options.check_provider()?;
    let messages = Options { dialling: options.list.dialling.of_single(), ..options.list.clone() };
    let (stem, file) = match &source {
        Source::Redis(redis) => (redis.key.as_str(), redis.name()),
        Source::Stdin => ("stdin", consumer::STDIN.to_owned()),
    };
    let default = consumer::default_campaign(stem, &messages)?;
    let name = list.campaign.as_deref().unwrap_or(&default);
    let first_schedule = options.schedule(local_now())?;
    let rejects = list.rejects.clone().unwrap_or_else(|| "stdin.rejects.jsonl".into());
    // Before a database is created.
    match &source {
        Source::Redis(redis) => redis.check().await?,
        Source::Stdin => consumer::check_rejects(&rejects)?,
    }
    let store = open_store(context, args.follow).await?;
    let existing = store.campaign(name).await?;
    if let Some(campaign) = &existing {
        consumer::unique_in(list.unique.as_ref(), campaign)?;
    }
    check_name(&store, name).await?;
    options.check_sender(existing.as_ref())?;
    let unique = list.unique.clone().unwrap_or(Unique::None).to_string();
    let actor = user_of("import");
    let tell = |message: &str| console.status(message);
    let campaign = options.open_campaign(&store, name, unique, &actor, tell).await?;
    let schedule = |now: Timestamp| options.unchecked_schedule(now);
    let division = options.division(&store, &campaign).await?;
    let gate = if args.follow {
        // It has no end, so its messages are added one by one.
        ListGate::one_by_one(&actor.who)
    } else {
        ListGate::of(&store, &options.settings.approval, &file, &actor.who).await?
    };
    let target = Target {
        store: &store,
        campaign: &campaign,
        schedule: &schedule,
        division: division.as_ref(),
        posted_by: None,
        approval: &gate.approval,
    };
    let (stop, stopped) = watch::channel(false);
    let consuming = ConsumeOptions { messages, follow: args.follow, stop: stopped };
    if args.follow {
        console.status(&format!("following {file}; Ctrl-C stops after the current batch"));
    }
    let running = Box::pin(consume(&source, rejects, target, consuming, console));
    let (summary, signal) = until_stopped(running, &stop, context.signals.listen()).await?;
    let exit = signal.unwrap_or(Exit::Done);
    let Some(summary) = summary else {
        return Ok(exit);
    };
    if summary.rows == 0 && !context.is_json() {
        console.status(&format!("{file}: no entries"));
        return Ok(exit);
    }
    let facts = ListFacts::of_unknown_cost(summary.accepted);
    let waits = gate.decide(&store, campaign.id, &facts).await?;
    let rejected = summary.rejected;
    let imported = Imported {
        rejects_command: list.rejects_command(&store, &summary, &campaign, Schedule::default()),
        file,
        mode: store.mode(),
        campaign: campaign.name,
        currency: None,
        budget: None,
        schedule: first_schedule,
        summary,
        waits,
    };
    let has_rejects_on_stdout = list.has_rejects_on_stdout();
    output::print(context, &store, &[imported], has_rejects_on_stdout).await?;
    if let Some(key) = args.key.as_ref().filter(|_| rejected > 0) {
        let entries = consumer::entries(rejected);
        console.warn(&format!("rejected {entries}, with the reasons in list `{key}:dead`"));
    }
    Ok(exit)
}

async fn open_store(context: &Context, waits: bool) -> anyhow::Result<Store> {
    context.say_which_database();
    let open = async || {
        let store = context.open(Access::Create).await?;
        purge::apply_retention(context, &store).await?;
        Ok(store)
    };
    context.when_available(waits, open).await
}

async fn consume(
    source: &Source,
    rejects: PathBuf,
    target: Target<'_>,
    options: ConsumeOptions,
    console: &Console,
) -> Result<Summary, ImportError> {
    let progress = console.progress(None, "importing");
    let on_event = |event: Event| match event {
        Event::Progress(rows) => progress.set(rows),
        Event::Status(message) => console.status(&message),
        Event::Warning(message) => console.warn(&message),
    };
    match source {
        Source::Redis(redis) => consumer::consume(redis, target, options, on_event).await,
        Source::Stdin => consumer::follow(rejects, target, options, on_event).await,
    }
}

/// Runs until the import ends. A signal stops it after the current batch. A second signal stops it at once,
/// without a summary; Redis keeps the entries that were not committed.
async fn until_stopped(
    mut running: impl Future<Output = Result<Summary, ImportError>> + Unpin,
    stop: &watch::Sender<bool>,
    mut signals: Signals,
) -> anyhow::Result<(Option<Summary>, Option<Exit>)> {
    let signal = tokio::select! {
        summary = &mut running => return Ok((Some(summary?), None)),
        signal = signals.next() => Some(signal),
    };
    stop.send_replace(true);
    tokio::select! {
        summary = running => Ok((Some(summary?), signal)),
        _ = signals.next() => Ok((None, signal)),
    }
}
