//! `smsq import` of entries that programs push to a Redis list, or of JSON lines on standard input with
//! `--follow`.

use std::path::{Path, PathBuf};

use tokio::sync::watch;

use super::preflight::check_sender;
use super::{Args, Imported, explain_import_error, local_now, open_campaign, output};
use crate::commands::signals::Signals;
use crate::commands::{Context, purge, with_hint};
use crate::console::Console;
use crate::exit::Exit;
use crate::import::consumer::{self, ConsumeOptions, Event, Lines, RedisList};
use crate::import::{ImportError, Schedule, Summary, Target, Unique};
use crate::sms::Timestamp;
use crate::store::Access;

/// Where entries are read from.
pub(super) enum Source {
    Redis { url: String, key: String },
    Stdin,
}

/// The source of entries; `None` for files.
pub(super) fn source(args: &Args, context: &Context) -> anyhow::Result<Option<Source>> {
    let list = &args.list;
    let is_stdin = list.files == [Path::new("-")];
    let source = match (list.redis_url(), &args.key) {
        (Some(url), Some(key)) => Source::Redis {
            url: url.to_owned(),
            key: key.clone(),
        },
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
    if matches!(source, Source::Redis { .. }) && list.files.len() > 1 {
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
    if let Some(provider) = &list.provider {
        context.provider_section(provider)?;
    }
    Ok(Some(source))
}

pub(super) async fn run(args: &Args, source: Source, context: &Context) -> anyhow::Result<Exit> {
    let (list, console) = (&args.list, &context.console);
    let explain = |error| explain_import_error(ImportError::from(error));
    let messages = list.message_options(list.region.or(context.config.default_region));
    let (stem, redis) = match &source {
        Source::Redis { url, key } => {
            let redis = RedisList::new(url, key, &context.config.redis.password);
            (key.as_str(), Some(redis.map_err(explain)?))
        }
        Source::Stdin => ("stdin", None),
    };
    let default = consumer::default_campaign(stem, &messages).map_err(explain_import_error)?;
    let name = list.campaign.as_deref().unwrap_or(&default);
    let first_schedule = list.schedule(local_now())?;
    let rejects = list.rejects.clone();
    let rejects = rejects.unwrap_or_else(|| PathBuf::from("stdin.rejects.jsonl"));
    // Before a database is created.
    match &redis {
        Some(redis) => redis.check().await.map_err(explain)?,
        None => consumer::check_rejects(&rejects).map_err(explain_import_error)?,
    }
    let store = context.open(Access::Create).await?;
    purge::apply_retention(context, &store).await?;
    let unique_in = |campaign| {
        consumer::unique_in(list.unique.as_ref(), campaign).map_err(explain_import_error)
    };
    let existing = store.campaign(name).await?;
    if let Some(campaign) = &existing {
        unique_in(campaign)?;
    }
    check_sender(list, existing.as_ref(), context)?;
    let unique = list.unique.clone().unwrap_or(Unique::None).to_string();
    let campaign = open_campaign(list, name, unique, context, &store).await?;
    let schedule = |now: Timestamp| list.unchecked_schedule(now);
    let target = Target {
        store: &store,
        campaign: &campaign,
        schedule: &schedule,
    };
    let (stop, stopped) = watch::channel(false);
    let options = ConsumeOptions {
        messages,
        unique: unique_in(&campaign)?,
        follow: args.follow,
        stop: stopped,
    };
    let file = redis
        .as_ref()
        .map_or("standard input".to_owned(), RedisList::name);
    if args.follow {
        console.status(&format!(
            "following {file}; Ctrl-C stops after the current batch"
        ));
    }
    let progress = console.progress(None, "importing");
    let on_event = |event: Event| match event {
        Event::Progress { rows, .. } => progress.set(rows),
        event => print_event(console, &event),
    };
    let running = Box::pin(async {
        if let Some(redis) = &redis {
            return consumer::consume(redis, target, options, on_event).await;
        }
        let lines = Lines {
            name: file.clone(),
            input: Box::new(std::io::stdin()),
            rejects,
        };
        consumer::follow(lines, target, options, on_event).await
    });
    let (summary, signal) = until_stopped(running, &stop).await?;
    drop(progress);
    let exit = signal.unwrap_or(Exit::Done);
    let Some(summary) = summary else {
        return Ok(exit);
    };
    if summary.rows == 0 && !context.is_json() {
        console.status(&format!("{file}: no entries"));
        return Ok(exit);
    }
    let rejected = summary.rejected;
    let imported = Imported {
        rejects_command: list.rejects_command(&summary, &campaign, Schedule::default()),
        file,
        campaign: campaign.name,
        currency: None,
        schedule: first_schedule,
        summary,
    };
    let has_rejects_on_stdout = list.has_rejects_on_stdout();
    output::print(context, &store, &[imported], has_rejects_on_stdout).await?;
    if let Some(key) = args.key.as_ref().filter(|_| rejected > 0) {
        console.warn(&format!(
            "rejected {}, with the reasons in list `{key}:dead`",
            entries_text(rejected)
        ));
    }
    Ok(exit)
}

/// Runs until the import ends. A signal stops it after the current batch. A second signal stops it at once,
/// without a summary; Redis keeps the entries that were not committed.
async fn until_stopped(
    mut running: impl Future<Output = Result<Summary, ImportError>> + Unpin,
    stop: &watch::Sender<bool>,
) -> anyhow::Result<(Option<Summary>, Option<Exit>)> {
    let mut signals = Signals::listen()?;
    let mut signal = None;
    loop {
        tokio::select! {
            summary = &mut running => {
                return Ok((Some(summary.map_err(explain_import_error)?), signal));
            }
            received = signals.next() => {
                if signal.is_some() {
                    return Ok((None, signal));
                }
                signal = Some(received);
                stop.send_replace(true);
            }
        }
    }
}

fn print_event(console: &Console, event: &Event) {
    match event {
        Event::Progress { .. } => {}
        Event::ServerLost(reason) => {
            console.warn(&format!("{reason}; waiting for it, nothing is lost"));
        }
        Event::ServerBack => console.status("the server is back"),
        Event::UnsafeServer => console.warn(
            "the server has neither LMOVE nor RPOPLPUSH: entries are taken with RPOP, and those that are not \
             committed when smsq is killed are lost (a few thousand at most)",
        ),
        Event::Reclaimed(count) => console.status(&format!(
            "recovered {} of an importer that died",
            entries_text(*count)
        )),
        Event::OtherImporters(count) => console.status(&match count {
            1 => "another importer reads this list too".to_owned(),
            _ => format!("{count} other importers read this list too"),
        }),
    }
}

fn entries_text(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        _ => format!("{} entries", indicatif::HumanCount(count)),
    }
}
