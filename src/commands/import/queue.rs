//! `smsq import` of what other programs push: a list in Redis, or JSON lines on standard input with `--follow`.

use std::path::{Path, PathBuf};

use tokio::sync::watch;

use super::needs::check_sender;
use super::{Args, Imported, List, fault, open_named, schedule, tell, window};
use crate::commands::signals::Signals;
use crate::commands::words::counted;
use crate::commands::{Context, hinted, purge};
use crate::exit::Exit;
use crate::import::consumer::{self, Event, Lines, Reading, RedisList};
use crate::import::{ImportError, Schedule, Summary, Target, Unique};
use crate::sms::Timestamp;
use crate::store::{Access, Store};

/// What other programs push to.
pub(super) enum Source {
    Redis { url: String, key: String },
    Stdin,
}

/// The first FILE that is the url of a Redis server.
pub(super) fn redis_url(list: &List) -> Option<&str> {
    let files = list.files.iter().filter_map(|file| file.to_str());
    files
        .into_iter()
        .find(|text| text.starts_with("redis://") || text.starts_with("rediss://"))
}

/// Where the entries come from; `None`: from files.
pub(super) fn source(args: &Args, context: &Context) -> anyhow::Result<Option<Source>> {
    let list = &args.list;
    let is_stdin = list.files == [Path::new("-")];
    let source = match (redis_url(list), &args.key) {
        (Some(url), Some(key)) => Source::Redis {
            url: url.to_owned(),
            key: key.clone(),
        },
        (Some(_), None) => {
            return Err(hinted(
                "`redis://…` is a server, and no list of it is named",
                Some("name the key that programs push to: `--list KEY`"),
            ));
        }
        (None, Some(_)) => {
            return Err(hinted(
                "`--list` names a list in Redis, and no server is named",
                Some("write it like `smsq import redis://localhost/0 --list tasks`"),
            ));
        }
        (None, None) if args.follow && is_stdin => Source::Stdin,
        (None, None) if args.follow => {
            return Err(hinted(
                "`--follow` is for a list in Redis and for standard input, not for a file",
                Some("`tail -f FILE | smsq import - --follow` follows one of JSON lines"),
            ));
        }
        (None, None) => return Ok(None),
    };
    if matches!(source, Source::Redis { .. }) && list.files.len() > 1 {
        return Err(hinted(
            "a list in Redis cannot be imported together with files",
            Some("import the files with a second command"),
        ));
    }
    if args.dry_run {
        return Err(hinted(
            "`--dry-run` cannot look at what is taken away by looking",
            Some("`redis-cli LRANGE KEY -5 -1` shows the entries that come first"),
        ));
    }
    if let Some(provider) = &list.provider {
        context.stanza(provider)?;
    }
    Ok(Some(source))
}

/// Fails where a list in Redis is named to a command that reads files.
pub(super) fn refuse_in(list: &List) -> anyhow::Result<()> {
    if redis_url(list).is_some() {
        return Err(hinted(
            "a list in Redis can be imported, not run",
            Some("`smsq import redis://… --list KEY`, and `smsq send` beside it"),
        ));
    }
    Ok(())
}

pub(super) async fn run(args: &Args, source: Source, context: &Context) -> anyhow::Result<Exit> {
    let list = &args.list;
    let entries = list.entries(list.region.or(context.config.default_region));
    let stem = match &source {
        Source::Redis { key, .. } => key.as_str(),
        Source::Stdin => "stdin",
    };
    let default = consumer::default_campaign(stem, &entries).map_err(fault)?;
    let name = list.campaign.as_deref().unwrap_or(&default);
    let redis = match &source {
        Source::Redis { url, key } => {
            let made = RedisList::new(url, key, &context.config.redis.password);
            Some(made.map_err(ImportError::from).map_err(fault)?)
        }
        Source::Stdin => None,
    };
    let at_start = window(list, super::this_moment())?;
    if let Some(redis) = &redis {
        // A database shall not be made for a server that is not there.
        redis
            .check()
            .await
            .map_err(ImportError::from)
            .map_err(fault)?;
    }
    let rejects = list.rejects.clone();
    let rejects = rejects.unwrap_or_else(|| PathBuf::from("stdin.rejects.jsonl"));
    if redis.is_none() {
        consumer::check_rejects(&rejects).map_err(fault)?;
    }
    let store = context.open(Access::Create).await?;
    purge::by_the_way(context, &store).await?;
    let standing = store.campaign(name).await?;
    if let Some(campaign) = &standing {
        consumer::unique_in(list.unique.as_ref(), campaign).map_err(fault)?;
    }
    let unique = list.unique.clone().unwrap_or(Unique::None);
    check_sender(list, standing.as_ref(), context)?;
    let campaign = open_named(list, name, unique.to_string(), context, &store).await?;
    let unique = consumer::unique_in(list.unique.as_ref(), &campaign).map_err(fault)?;
    let at = |now: Timestamp| schedule(list, now);
    let target = Target {
        store: &store,
        campaign: &campaign,
        schedule: &at,
    };
    let (stop, stopped) = watch::channel(false);
    let reading = Reading {
        entries,
        unique,
        follow: args.follow,
        stop: stopped,
    };
    let file = redis
        .as_ref()
        .map_or("standard input".to_owned(), RedisList::name);
    if args.follow {
        context.console.say(&format!(
            "following {file}; Ctrl-C ends it after the running batch"
        ));
    }
    let lines = || Lines {
        name: file.clone(),
        input: Box::new(std::io::stdin()),
        rejects,
    };
    let progress = context.console.progress(None, "importing");
    let told = |news: Event| match news {
        Event::Progress { rows, .. } => progress.set(rows),
        news => said(context, &news),
    };
    let running = Box::pin(async {
        match &redis {
            Some(redis) => consumer::consume(redis, target, reading, told).await,
            None => consumer::follow(lines(), target, reading, told).await,
        }
    });
    let (summary, signal) = until_stopped(running, &stop).await?;
    let Some(summary) = summary else {
        return Ok(signal.unwrap_or(Exit::Done));
    };
    drop(progress);
    let fix = match &summary.rejects_file {
        Some(rejects) => list.command(rejects, &campaign, Schedule::default()),
        None => String::new(),
    };
    let imported = Imported {
        file,
        campaign: campaign.name.clone(),
        currency: None,
        schedule: at_start,
        summary,
        fix,
    };
    finish(context, &store, args, imported).await?;
    Ok(signal.unwrap_or(Exit::Done))
}

/// Runs to the end; a signal stops it after the batch that is running, a second one at once.
async fn until_stopped(
    mut running: impl Future<Output = Result<Summary, ImportError>> + Unpin,
    stop: &watch::Sender<bool>,
) -> anyhow::Result<(Option<Summary>, Option<Exit>)> {
    let mut signals = Signals::listen()?;
    let mut signal = None;
    loop {
        tokio::select! {
            summary = &mut running => {
                return Ok((Some(summary.map_err(fault)?), signal));
            }
            again = signals.next() => {
                if signal.is_some() {
                    // What is running is committed or not, and Redis has it until it is.
                    return Ok((None, signal));
                }
                signal = Some(again);
                stop.send_replace(true);
            }
        }
    }
}

/// Says on standard error what happens meanwhile.
fn said(context: &Context, news: &Event) {
    let console = &context.console;
    match news {
        Event::Progress { .. } => {}
        Event::Away(why) => console.warn(&format!("{why}; waiting for it, nothing is lost")),
        Event::Back => console.say("the server is back"),
        Event::Unsafe => console.warn(
            "the server knows neither LMOVE nor RPOPLPUSH: entries are taken with RPOP, and those \
             that are not committed when smsq is killed are lost, some thousands at most",
        ),
        Event::Inherited(count) => console.say(&format!(
            "took up {} that an importer had taken before it died",
            entries(*count)
        )),
        Event::Others(count) => console.say(&format!(
            "{} at work on this list too",
            match count {
                1 => "another importer is".to_owned(),
                many => format!("{many} other importers are"),
            }
        )),
        Event::Strangers(count) => console.warn(&format!(
            "{} of another database {} entries of this list: import it with that database, too",
            counted(*count, "importer"),
            if *count == 1 { "holds" } else { "hold" },
        )),
    }
}

fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        _ => format!("{} entries", indicatif::HumanCount(count)),
    }
}

async fn finish(
    context: &Context,
    store: &Store,
    args: &Args,
    imported: Imported,
) -> anyhow::Result<()> {
    let rejected = imported.summary.rejected;
    if imported.summary.rows == 0 && !context.is_json() {
        let file = &imported.file;
        context.console.say(&format!("{file}: nothing there"));
        return Ok(());
    }
    let is_on_stdout = super::list_to_stdout(&args.list);
    tell::tell(context, store, &[imported], is_on_stdout).await?;
    if let Some(key) = args.key.as_ref().filter(|_| rejected > 0) {
        context.console.warn(&format!(
            "{}, with the reasons in list `{key}:dead`",
            match rejected {
                1 => "1 entry is no message".to_owned(),
                _ => format!("{} are no messages", entries(rejected)),
            }
        ));
    }
    Ok(())
}
