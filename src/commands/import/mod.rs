//! `smsq import`: puts the messages of lists into the queue. All files are checked before anything is written;
//! then each is imported into its campaign.

mod args;
mod consumer;
mod estimate;
mod output;

use std::sync::Arc;

use smsq_import::{Plan, QueryRows, read_query};
use smsq_operations::{Imported, ListOptions};
use smsq_process::exit::Exit;
use smsq_process::jobs::Until;
use smsq_store::{Access, Store, StoreErrorKind};

use super::signals::Signals;
use super::{Context, purge, user_of, with_hint};

pub(super) use self::args::{FileFormat, List, NumberFlags};
pub(super) use self::output::{
    exit, print_interpretation, queue_text, rejected_summary, warn_of_rows,
};

const EXAMPLES: &str = "\
Examples:
  smsq import list.csv --text \"Hi {{ name }}, your table is ready\" --dry-run
  smsq import list.csv --template welcome.txt --region GB
  smsq import 名单.csv --column phone=手机号 --region CN --campaign 夏季促销 --template summer.txt
  smsq import invoices.csv --unique phone,invoice --text \"Invoice {{ invoice }} is due\"
  smsq import 名单.xlsx --column phone=手机,电话 --max-rejects 5% --template summer.txt
  smsq import list.csv --template offer.txt --at \"2026-12-24 09:00\" --expires +8h
  smsq import list.csv --template offer.txt --window 09:00-20:00 --timezone Europe/Berlin
  smsq import --from postgres://reader@crm/db --query due.sql --key customer_id --template remind.txt
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

    /// The database whose query is imported.
    pub(crate) fn source(&self) -> Option<&str> {
        self.list.source().map(|(_, from)| from)
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
    let access = if args.dry_run { Access::Read } else { Access::Existing };
    let mut lists = PreparedLists::prepare(list, context, access).await?;
    if args.dry_run {
        return lists.dry_run().await;
    }
    lists.check_rejects().await?;
    context.say_which_database();
    let store = lists.open().await?;
    purge::apply_retention(context, &store).await?;
    lists.check_again(&store).await?;
    let mut signals = context.signals.listen();
    let (imported, signal) = lists.import(&store, &mut signals).await?;
    output::print(context, &store, &imported, list.has_rejects_on_stdout()).await?;
    Ok(signal.unwrap_or_else(|| output::exit(imported.iter().map(|list| &list.summary))))
}

/// Lists that can be imported.
pub(super) struct PreparedLists<'a> {
    list: &'a List,
    context: &'a Context,
    options: ListOptions,
    plans: Vec<Plan>,
    /// The database, if it exists.
    store: Option<Store>,
}

impl<'a> PreparedLists<'a> {
    /// Reads the files as far as needed to find every error that concerns a whole file. Writes nothing.
    pub(super) async fn prepare(
        list: &'a List,
        context: &'a Context,
        access: Access,
    ) -> anyhow::Result<Self> {
        if list.redis_url().is_some() {
            return Err(with_hint(
                "`run` reads files, not a list in Redis",
                "use `smsq import redis://… --list KEY`, and `smsq send` in another process",
            ));
        }
        let mut options = list.options(context);
        options.check_provider()?;
        if list.rejects.is_some() && list.files.len() > 1 {
            return Err(with_hint(
                "`--rejects` names one file, but several lists are imported",
                "omit it: each list gets a rejects file named after it",
            ));
        }
        let store = match context.configured_store(access).await {
            Ok(store) => Some(store),
            Err(error) => match error.kind() {
                StoreErrorKind::Missing | StoreErrorKind::NoTables => None,
                _ => return Err(error.into()),
            },
        };
        let mut files = list.files.clone();
        if let Some((query, from)) = list.source() {
            let progress = context.console.progress(None, "reading");
            let database = options.settings.source(from)?;
            let (text, until) = (read_query(query)?, Until::default());
            let asked = options.settings.query(&text, &until);
            let rows = QueryRows::read(&database, &asked, |rows| progress.set(rows)).await?;
            options.list.query = Some(Arc::new(rows));
            files.push(query.clone());
        }
        let plans = options.prepare(&files, store.as_ref()).await?;
        for plan in &plans {
            for warning in plan.warnings() {
                let file = plan.file();
                context.console.warn(&format!("`{file}`: {warning}"));
            }
        }
        Ok(Self { list, context, options, plans, store })
    }

    /// Fails if the database exists and is not for what the command does.
    pub(super) fn check_mode(&self) -> anyhow::Result<()> {
        let store = self.store.as_ref();
        store.map_or(Ok(()), |store| self.context.check_mode(store))
    }

    /// The database, which is created if it is missing.
    pub(super) async fn open(&mut self) -> anyhow::Result<Store> {
        match self.store.take() {
            Some(store) => Ok(store),
            None => self.context.open(Access::Create).await,
        }
    }

    /// Fails if rejected rows could not be written, or if there would be more of them than allowed.
    pub(super) async fn check_rejects(&self) -> anyhow::Result<()> {
        let progress = self.context.console.progress(None, "checking");
        let checked = self.options.check_rejects(&self.plans, |rows| progress.set(rows));
        Ok(checked.await?)
    }

    /// Fails if another campaign has imported one of the lists within a day, unless the user confirms it.
    pub(super) async fn check_again(&self, store: &Store) -> anyhow::Result<()> {
        let console = &self.context.console;
        let confirm = |question: &str| console.can_ask() && console.confirm(question);
        if !self.list.again {
            self.options.check_again(&self.plans, store, confirm).await?;
        }
        Ok(())
    }

    /// Imports the files one after the other, each into its campaign; returns the files that were imported whole,
    /// and the signal that interrupted the import.
    pub(super) async fn import(
        &self,
        store: &Store,
        signals: &mut Signals,
    ) -> anyhow::Result<(Vec<Imported>, Option<Exit>)> {
        let (console, actor) = (&self.context.console, user_of("import"));
        let schedule = self.options.schedule(store.now().await?)?;
        for plan in &self.plans {
            print_interpretation(console, plan.file(), &plan.interpretation());
        }
        let mut imported = Vec::new();
        for plan in &self.plans {
            let progress = console.progress(None, "importing");
            let tell = |message: &str| console.status(message);
            let set = |rows, total: Option<u64>| {
                progress.set(rows);
                if let Some(total) = total {
                    progress.set_total(total);
                }
            };
            let running = self.options.import(plan, schedule, store, &actor, tell, set);
            let (mut list, campaign) = tokio::select! {
                done = running => done?,
                signal = signals.next() => {
                    drop(progress);
                    let file = plan.file();
                    console.status(&format!(
                        "interrupted while importing `{file}`: import it again to add the missing rows"
                    ));
                    return Ok((imported, Some(signal)));
                }
            };
            list.rejects_command =
                self.list.rejects_command(store, &list.summary, &campaign, schedule);
            imported.push(list);
        }
        Ok((imported, None))
    }
}
