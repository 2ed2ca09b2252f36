//! `smsq hooks`: what waits for hooks, a test event, and events that are delivered again; and the delivery of events by
//! commands that run for long.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use smsq_hooks::{DeliveryAttempt, Hook, HookRunner, ReceiverAnswer};
use smsq_import::When;
use smsq_message::event::{EventKind, NOTIFY, body};
use smsq_message::sms::Timestamp;
use smsq_message::text::{counted, did_you_mean, duration};
use smsq_process::exit::Exit;
use smsq_store::{HookRow, OutboxCounts, Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::values::span;
use super::{Context, with_hint};

/// How long a command that ends delivers what is due.
const LAST_EVENTS: Duration = Duration::from_secs(10);
/// Member `type` of a test event.
const TEST: &str = "smsq.test";

const EXAMPLES: &str = "\
Examples:
  smsq hooks list                                what waits, and what went wrong
  smsq hooks test crm                            posts an event `smsq.test` now
  smsq hooks replay crm --since 2h               delivers the events of the last two hours again

`smsq send`, `smsq run` and `smsq serve` deliver events; [[hooks]] in smsq.toml describes the hooks.";

/// Show hooks, test one, and deliver events again
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show each hook, its events that wait, and its last error
    #[command(after_help = "Example:\n  smsq hooks list")]
    List,
    /// Deliver a test event now; a hook that was switched off is on again if that succeeds
    #[command(after_help = "Example:\n  smsq hooks test crm")]
    Test {
        /// The hook
        name: String,
    },
    /// Deliver events again that were delivered or given up, with the same ids, and switch the hook on
    #[command(after_help = "Example:\n  smsq hooks replay crm --since 2h --kind message.failed")]
    Replay {
        /// The hook
        name: String,
        /// Only events that happened since this time, or within this duration: 2h, 2026-12-24 09:00
        #[arg(long, value_name = "TIME", value_parser = since)]
        since: Option<Since>,
        /// Only events of this kind
        #[arg(long, value_name = "KIND")]
        kind: Option<EventKind>,
    },
}

/// A time in the past.
#[derive(Clone, Copy, Debug)]
enum Since {
    At(Timestamp),
    Ago(Duration),
}

fn since(text: &str) -> Result<Since, &'static str> {
    match (span(text), text.parse()) {
        (Ok(ago), _) => Ok(Since::Ago(ago)),
        (Err(_), Ok(When::At(at))) => Ok(Since::At(at)),
        _ => Err("use a duration such as `2h`, or a time such as `2026-12-24 09:00`"),
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    match &args.action {
        Action::List => list(context).await,
        Action::Test { name } => test(name, context).await,
        Action::Replay { name, since, kind } => replay(name, *since, *kind, context).await,
    }
}

/// A hook as `list` shows it.
struct ListedHook {
    row: HookRow,
    counts: OutboxCounts,
    state: &'static str,
}

async fn list(context: &Context) -> anyhow::Result<Exit> {
    let configured: BTreeSet<String> = context
        .config
        .hooks
        .iter()
        .map(|hook| hook.name.clone())
        .chain((!context.config.notify.command.is_empty()).then(|| NOTIFY.to_owned()))
        .collect();
    let store = context.store_to_read().await?;
    let rows = store.hooks().rows().await?;
    let mut names = configured.clone();
    names.extend(rows.iter().map(|row| row.name.clone()));
    names.extend(store.hooks().names().await?);
    let now = store.now().await?;
    let mut hooks = Vec::new();
    for name in names {
        let counts = store.hooks().counts(&name).await?;
        let known = rows.iter().find(|row| row.name == name).cloned();
        let row = known.unwrap_or_else(|| HookRow::named(&name));
        let state = match (configured.contains(&name), &row) {
            (false, _) => "not configured",
            (true, row) if row.off_at.is_some() => "off",
            (true, row) if row.failing_since.is_some() => "failing",
            (true, _) => "on",
        };
        hooks.push(ListedHook { row, counts, state });
    }
    let mut text = String::new();
    for hook in &hooks {
        text.push_str(&hook.text(now));
    }
    if hooks.is_empty() {
        context.console.status("no hook is configured: describe one as [[hooks]] in smsq.toml");
    }
    let objects: Vec<Value> = hooks.iter().map(ListedHook::json).collect();
    context.print(&text, &json!({ "hooks": objects }))?;
    Ok(Exit::Done)
}

impl ListedHook {
    fn text(&self, now: Timestamp) -> String {
        let (row, counts) = (&self.row, &self.counts);
        let mut text = format!("{}  {}", row.name, self.state);
        if let Some(at) = row.off_at.or(row.failing_since) {
            let _ = write!(text, " for {}", duration(now.since(at)));
        }
        let _ = write!(text, "\n  waiting    {}", counts.waiting);
        if let Some(oldest) = counts.oldest {
            let _ = write!(text, ", the oldest for {}", duration(now.since(oldest)));
        }
        let _ = write!(text, "\n  delivered  {}", row.delivered());
        for (count, word) in [(counts.given_up, "given up"), (row.skipped(), "not stored")] {
            if count > 0 {
                let _ = write!(text, "\n  {word:<9}  {count}");
            }
        }
        if let Some(reason) = row.off_reason.as_ref().or(row.last_error.as_ref()) {
            let _ = write!(text, "\n  last error {reason}");
        }
        text.push('\n');
        text
    }

    fn json(&self) -> Value {
        let (row, counts) = (&self.row, &self.counts);
        json!({
            "name": row.name,
            "state": self.state,
            "off_since": row.off_at.map(|at| at.to_string()),
            "off_reason": row.off_reason,
            "failing_since": row.failing_since.map(|at| at.to_string()),
            "last_error": row.last_error,
            "waiting": counts.waiting,
            "oldest_waiting": counts.oldest.map(|at| at.to_string()),
            "delivered": row.delivered(),
            "given_up": counts.given_up,
            "not_stored": row.skipped(),
        })
    }
}

/// The configured hook of that name.
fn hook(name: &str, context: &Context) -> anyhow::Result<Hook> {
    let hooks = context.hooks()?;
    let names: Vec<String> = hooks.iter().map(|hook| hook.name().to_owned()).collect();
    hooks.into_iter().find(|hook| hook.name() == name).ok_or_else(|| {
        let hint = did_you_mean(name, names.iter().map(String::as_str))
            .unwrap_or_else(|| "`smsq hooks list` lists the hooks".to_owned());
        with_hint(format!("unknown hook `{name}`"), hint)
    })
}

async fn test(name: &str, context: &Context) -> anyhow::Result<Exit> {
    let hook = hook(name, context)?;
    let at = Timestamp::from_millis(jiff::Timestamp::now().as_millisecond());
    let body = body(TEST, at, &json!({ "hook": name }));
    let id = format!("msg_{:032x}", rand::random::<u128>());
    let attempt = DeliveryAttempt { id: &id, body: &body, at };
    let began = Instant::now();
    let answer = hook.deliver(&attempt).await;
    let took = began.elapsed();
    let (summary, is_delivered) = match answer {
        ReceiverAnswer::Delivered { summary } => (summary, true),
        ReceiverAnswer::Failed { error, .. } => (error, false),
        ReceiverAnswer::Gone => ("410 Gone".to_owned(), false),
    };
    if is_delivered {
        turn_on(name, context).await?;
    }
    let verb = if is_delivered { "delivered" } else { "failed" };
    let millis = smsq_message::sms::millis(took);
    let object = json!({
        "hook": name,
        "id": id,
        "delivered": is_delivered,
        "answer": summary,
        "elapsed_ms": millis,
    });
    context.print(&format!("{verb}: {summary}, in {millis} ms\n"), &object)?;
    Ok(if is_delivered { Exit::Done } else { Exit::Incomplete })
}

/// Without a database there is nothing that is off.
async fn turn_on(name: &str, context: &Context) -> Result<(), StoreError> {
    match context.configured_store(smsq_store::Access::Existing).await {
        Ok(store) => store.hooks().turn_on(name).await,
        Err(error) if error.kind() == smsq_store::StoreErrorKind::Missing => Ok(()),
        Err(error) if error.kind() == smsq_store::StoreErrorKind::NoTables => Ok(()),
        Err(error) => Err(error),
    }
}

async fn replay(
    name: &str,
    since: Option<Since>,
    kind: Option<EventKind>,
    context: &Context,
) -> anyhow::Result<Exit> {
    let hook = hook(name, context)?;
    let store = context.store().await?;
    let now = store.now().await?;
    let since = match since {
        Some(Since::At(at)) => at,
        Some(Since::Ago(ago)) => now.minus(ago),
        None => Timestamp::default(),
    };
    let replayed = store.hooks().replay(name, since, kind, now).await?;
    store.hooks().turn_on(name).await?;
    let stuck_after = context.config.notify.stuck_after;
    let runner = HookRunner::new(store, vec![hook], stuck_after);
    let left = runner.drain(LAST_EVENTS).await?.left;
    let mut message = format!("{} of `{name}` delivered again", counted(replayed, "event"));
    if left > 0 {
        let _ = write!(message, "; {}", later(left));
    }
    let object = json!({ "hook": name, "replayed": replayed, "waiting": left });
    context.report(&message, &object)
}

fn later(left: u64) -> String {
    format!(
        "{} still to be delivered: the next `smsq send` or `smsq serve` does it",
        counted(left, "event")
    )
}

impl Context {
    /// The configured hooks with their secrets, and the program of section `[notify]`.
    pub(super) fn hooks(&self) -> anyhow::Result<Vec<Hook>> {
        let environment = |name: &str| self.variable(name);
        let mut hooks = Vec::new();
        for config in &self.config.hooks {
            let hook = Hook::new(config, &environment).map_err(|error| match &error.hint {
                Some(hint) => with_hint(&error, hint),
                None => anyhow::anyhow!("{error}"),
            })?;
            hooks.push(hook);
        }
        hooks.extend(Hook::of_program(&self.config.notify));
        Ok(hooks)
    }
}

/// The delivery of events while a command runs.
pub(super) struct Delivering {
    runner: Arc<HookRunner>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Delivering {
    /// Begins to deliver; `None` if there are no hooks, or if the database is for practice.
    pub(super) fn start(hooks: Vec<Hook>, context: &Context, store: &Store) -> Option<Self> {
        if hooks.is_empty() || store.mode().is_practice() {
            return None;
        }
        let stuck_after = context.config.notify.stuck_after;
        let runner = Arc::new(HookRunner::new(store.clone(), hooks, stuck_after));
        let (stop, stopped) = watch::channel(false);
        let running = Arc::clone(&runner);
        let task = tokio::spawn(async move { running.run(stopped).await });
        Some(Self { runner, stop, task })
    }

    /// Ends it. `drains`: after it has delivered what is due, for a limited time.
    pub(super) async fn end(mut self, drains: bool, context: &Context) {
        self.stop.send_replace(true);
        let ended = tokio::time::timeout(LAST_EVENTS, &mut self.task);
        if !matches!(context.jobs.stop().within(ended).await, Some(Ok(_))) {
            self.task.abort();
        }
        let console = &context.console;
        if !drains {
            return;
        }
        match self.runner.drain(LAST_EVENTS).await {
            Ok(drained) if drained.left > 0 => console.warn(&later(drained.left)),
            Ok(_) => {}
            Err(error) => console.warn(&format!(
                "events could not be delivered: {error}; the next `smsq send` or `smsq serve` does it"
            )),
        }
    }
}
