//! `smsq send`, and the run of the sender that `send` and `run` share: which campaigns are sent, with which
//! providers, and how the run ended.

mod confirm;
mod metrics_file;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use smsq_hooks::Hook;
use smsq_message::rate::Rates;
use smsq_message::route::{Route, RouteConfig};
use smsq_message::text::{duration, messages};
use smsq_message::window::local_and_utc;
use smsq_metrics::Metrics;
use smsq_operations::limit;
use smsq_process::console::Console;
use smsq_process::exit::Exit;
use smsq_process::service_manager::ServiceManager;
use smsq_provider::Provider;
use smsq_report::{CampaignSummary, Summaries, rate, shell_word};
use smsq_sender::{Bottleneck, Ended, RunSummary, Sender, Settings};
use smsq_store::report::Totals;
use smsq_store::{Access, ApprovalGate, Campaign, CampaignStatus, Store, StoreError};
use tokio::time::Instant;

use self::progress::run_with_progress;
use super::findings::warn_of_unsafe_settings;
use super::hooks::Delivering;
use super::practice::{self, Practice};
use super::receipts::{self, Waiting};
use super::schedule::RunningScheduler;
use super::signals::Signals;
use super::values::{campaign_name, positive, span};
use super::{Context, message_and_hint, providers, purge, status, temporary, with_hint};
use crate::config::{MANY_CONCURRENCY, MAX_CONCURRENCY};

pub(super) use self::confirm::describe;
pub(super) use self::metrics_file::MetricsFile;
pub(super) use self::progress::Aborted;

/// The wait, after a signal, for the counts of the summary, where requests in flight took all the time there was.
const LAST_COUNTS: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  smsq send                                    everything that is queued
  smsq send --campaign welcome-3f2a91 --rate 20/s
  smsq send --limit 10                         ten messages first, then look at the report
  smsq send --follow                           stay, and send what other programs queue

Ctrl-C stops it: requests in flight are settled first, and the next `send` continues from there. A \
second Ctrl-C does not wait; messages in flight are then unknown.";

/// Send what is queued until nothing is left to do
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this campaign [default: all that are neither paused nor cancelled]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    #[command(flatten)]
    pub(crate) flags: SendFlags,
    /// Wait for more messages when nothing is left to send, and run schedules (`smsq schedule`)
    #[arg(long, conflicts_with = "no_wait")]
    follow: bool,
    /// Do not ask before sending a large campaign
    #[arg(long, short)]
    yes: bool,
    #[arg(hide = true, value_name = "FILE", value_parser = refuse_file)]
    _file: Option<String>,
}

/// How a worker sends.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct WorkerFlags {
    /// A limit in addition to the provider's and the campaign's: 100/s, 300/min, 20000/day; several with commas
    #[arg(long, value_name = "RATE", value_parser = limit)]
    pub(crate) rate: Option<Rates>,
    /// Requests in flight at once [default: setting `sender.concurrency`, 64]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CONCURRENCY)))]
    pub(crate) concurrency: Option<u32>,
    /// What to do with a message that may have been accepted [default: setting `sender.on_unknown`, hold]
    #[arg(long, value_name = "ACTION", value_parser = ["hold", "resend"])]
    pub(crate) on_unknown: Option<String>,
    /// Practise: a gateway in this process accepts the messages, and no phone gets any; the database is
    /// `smsq-practice.db`, unless `--database` names another one
    #[arg(long)]
    pub(crate) practice: bool,
}

impl WorkerFlags {
    /// The first flag that is set.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        let flags = [
            (self.rate.is_some(), "--rate"),
            (self.concurrency.is_some(), "--concurrency"),
            (self.on_unknown.is_some(), "--on-unknown"),
            (self.practice, "--practice"),
        ];
        flags.into_iter().find_map(|(is_set, flag)| is_set.then_some(flag))
    }
}

/// How `send` and `run` send, and when they end.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct SendFlags {
    #[command(flatten)]
    pub(crate) worker: WorkerFlags,
    /// Stop after this number of messages was sent or failed
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) limit: Option<u64>,
    /// End instead of waiting for a sending window, for messages that are due later than any retry, or for a
    /// provider that asked for a longer wait than that
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// When everything is sent, wait for delivery receipts, no longer than this; messages that were not delivered make
    /// the exit status 1 [default: setting `receipts.wait`; without TIME: 10min]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "10min")]
    pub(crate) wait_receipts: Option<Duration>,
    /// Write metrics for Prometheus to this file, every 10 s and at the end: one of the folder that the textfile
    /// collector reads, such as /var/lib/prometheus/node-exporter/smsq.prom
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
}

/// `send` has no FILE: the user meant `run`.
fn refuse_file(file: &str) -> Result<String, String> {
    Err(format!("`send` sends what is queued and takes no file; did you mean `smsq run {file}`?"))
}

pub(crate) async fn run(args: &Args, mut context: Context) -> anyhow::Result<Exit> {
    let mut metrics = MetricsFile::open(args.flags.metrics_file.as_deref())?;
    let practice = if args.flags.worker.practice {
        Practice::start(&mut context, &practice::PracticeRequest::ASKED)?
    } else {
        None
    };
    let mut store = None;
    let ended = send(args, &context, &mut store, &mut metrics).await;
    let ended = metrics.end(&context, store.as_ref(), ended).await;
    if let Some(practice) = practice {
        practice.stop().await;
    }
    ended
}

/// Sends; `opened` is the database as soon as it is open.
async fn send(
    args: &Args,
    context: &Context,
    opened: &mut Option<Store>,
    metrics: &mut MetricsFile,
) -> anyhow::Result<Exit> {
    let open = async || {
        // `--follow` may be started before the programs that insert messages.
        let store = if args.follow && context.config.default_provider.is_some() {
            context.open(Access::Create).await?
        } else {
            context.store().await?
        };
        context.check_mode(&store)?;
        purge::apply_retention(context, &store).await?;
        Ok(store)
    };
    let store = opened.insert(context.when_available(args.follow, open).await?);
    metrics.begin(context, store);
    warn_of_unsafe_settings(context, store).await?;
    let options = SendOptions {
        campaign: args.campaign.as_deref(),
        flags: &args.flags,
        follow: args.follow,
        metrics: metrics.metrics(),
    };
    let prepared = PreparedRun::new(context, store, &options).await?;
    if !args.yes && !args.follow && !confirm::confirm(&prepared).await? {
        context.console.status("nothing was sent");
        return Ok(Exit::CouldNotRun);
    }
    let mut signals = context.signals.listen();
    let schedules =
        if args.follow { Some(RunningScheduler::start(context, store).await?) } else { None };
    // After an error the schedules stop without waiting for the database.
    let run = prepared.start(&mut signals).await?;
    if let Some(schedules) = schedules {
        schedules.stop().await;
    }
    context.print(&run.text(), &run.json(args.campaign.is_some()))?;
    run.explain(&context.console);
    Ok(run.exit())
}

/// What to send, and how.
pub(super) struct SendOptions<'a> {
    /// `None`: all campaigns.
    pub(super) campaign: Option<&'a str>,
    pub(super) flags: &'a SendFlags,
    pub(super) follow: bool,
    pub(super) metrics: &'a Arc<Metrics>,
}

/// A run whose campaigns can be sent, before it starts.
pub(super) struct PreparedRun<'a> {
    context: &'a Context,
    store: &'a Store,
    options: &'a SendOptions<'a>,
    /// Those that have something to do, or the one that was named.
    campaigns: Vec<(Campaign, Totals)>,
    /// The other ones, which may get messages during the run.
    idle: Vec<(Campaign, Totals)>,
    sender: Sender,
    hooks: Vec<Hook>,
}

impl<'a> PreparedRun<'a> {
    pub(super) async fn new(
        context: &'a Context,
        store: &'a Store,
        options: &'a SendOptions<'a>,
    ) -> anyhow::Result<Self> {
        context.check_mode(store)?;
        let (campaigns, idle) = campaigns(context, store, options).await?;
        let sender = sender(context, store, options, &campaigns).await?;
        Ok(Self { context, store, options, campaigns, idle, sender, hooks: context.hooks()? })
    }

    /// Sends until nothing is left to do, or until a signal stops it.
    pub(super) async fn start(self, signals: &mut Signals) -> anyhow::Result<SendRun> {
        let Self { context, store, options, mut campaigns, idle, sender, hooks } = self;
        let hooks = Delivering::start(hooks, context, store);
        if options.follow {
            warn_of_missing_campaigns(&context.console, &store.report().without_campaign().await?);
        }
        announce(context, store, options, &campaigns).await?;
        let mut service = ServiceManager::default();
        let total: Totals = campaigns.iter().map(|(_, totals)| *totals).sum();
        let left = total.queued + total.sending;
        let is_done = left + total.unknown == 0 && !options.follow;
        let (mut summary, mut signal) = if is_done && !sender.has_left_files().await? {
            (RunSummary::default(), None)
        } else {
            let limit = options.flags.limit.unwrap_or(u64::MAX);
            let total = (!options.follow).then_some(left.min(limit));
            run_with_progress(&context.console, &sender, total, signals, &mut service).await?
        };
        // Also where there was nothing to send: a service that ends before it is ready has failed.
        service.ready();
        let wait = options.flags.wait_receipts;
        let wait = wait.unwrap_or(context.config.receipts.wait);
        let is_waiting = matches!(summary.ended, Ended::Done | Ended::Limit) && !wait.is_zero();
        if is_waiting {
            let only = campaigns.first().filter(|_| options.campaign.is_some());
            let only = only.map(|(campaign, _)| campaign.id);
            let until = Instant::now() + wait;
            let waiting = Waiting::until(until, only, &sender)?;
            let (fetched, stopped_by) = waiting.run(context, signals).await?;
            receipts::explain(context, &fetched);
            let settled = &fetched.applied;
            summary.sent += settled.sent;
            summary.failed += settled.failed;
            summary.unknown = summary.unknown.saturating_sub(settled.sent + settled.failed);
            signal = stopped_by;
        }
        service.stopping();
        if let Some(hooks) = hooks {
            hooks.end(signal.is_none(), context).await;
        }
        let counts = async {
            if options.campaign.is_none() {
                campaigns.extend(changed(store, &campaigns, &idle).await?);
            }
            let mut summaries = Vec::new();
            for (campaign, _) in &campaigns {
                // The run may have changed its state.
                let campaign = context.campaign(store, &campaign.name).await?;
                summaries.push(CampaignSummary::of(store, &campaign).await?);
            }
            let without_campaign = match options.campaign {
                Some(_) => Vec::new(),
                None => store.report().without_campaign().await?,
            };
            anyhow::Ok((summaries, without_campaign))
        };
        let (campaigns, without_campaign) = match signal {
            None => counts.await?,
            // The database may be the reason why the run was stopped.
            Some(exit) => match tokio::time::timeout(context.last_counts(), counts).await {
                Ok(Ok(counts)) => counts,
                Ok(Err(error)) if temporary(&error).is_none() => return Err(error),
                Ok(Err(_)) | Err(_) => return Err(StoppedWithoutCounts(exit).into()),
            },
        };
        Ok(SendRun {
            summary,
            summaries: Summaries::new(store.mode(), campaigns),
            practice: practice::flags(store),
            without_campaign,
            signal,
            is_waiting,
        })
    }
}

impl Context {
    /// How long, after a signal, the counts of the summary may take.
    fn last_counts(&self) -> Duration {
        self.jobs.stop().left().max(LAST_COUNTS)
    }
}

/// A signal stopped the run, and the database does not say what is left.
#[derive(Debug, thiserror::Error)]
#[error("stopped by {}; cannot read from the database how many messages are left", .0.signal())]
pub(super) struct StoppedWithoutCounts(pub(super) Exit);

/// A finished run of the sender.
pub(super) struct SendRun {
    pub(super) summary: RunSummary,
    summaries: Summaries,
    /// The flags with which `run` and `send` use a practice database again.
    practice: String,
    /// Counts of messages whose campaign does not exist; empty where one campaign was named.
    without_campaign: Vec<(i64, u64)>,
    /// The signal that stopped the run.
    signal: Option<Exit>,
    /// It waited for receipts.
    is_waiting: bool,
}

impl SendRun {
    /// The campaigns that had something to do, or the one that was named, after the run.
    pub(super) fn campaigns(&self) -> &[CampaignSummary] {
        &self.summaries.campaigns
    }

    /// Whether the run was stopped before it sent everything.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.summary.ended, Ended::Stopped | Ended::Limit)
    }

    /// Adds a later run.
    #[must_use]
    pub(super) fn followed_by(mut self, next: Self) -> Self {
        let (sum, later) = (&mut self.summary, next.summary);
        sum.elapsed += later.elapsed;
        sum.attempts += later.attempts;
        sum.sent += later.sent;
        sum.failed += later.failed;
        sum.unknown += later.unknown;
        sum.retried += later.retried;
        sum.trouble = later.trouble.or(sum.trouble.take());
        if !later.bottlenecks.is_empty() {
            sum.bottlenecks = later.bottlenecks;
        }
        sum.ended = match (std::mem::take(&mut sum.ended), later.ended) {
            (Ended::Halted(halted), Ended::Halted(more)) => Ended::Halted([halted, more].concat()),
            (Ended::Waiting(all), Ended::Waiting(more)) => Ended::Waiting([all, more].concat()),
            (halted @ Ended::Halted(_), Ended::Done | Ended::Limit | Ended::Waiting(_))
            | (halted @ Ended::Waiting(_), Ended::Done | Ended::Limit) => halted,
            (_, ended) => ended,
        };
        self.summaries.campaigns.extend(next.summaries.campaigns);
        self.signal = self.signal.or(next.signal);
        self
    }

    /// Messages sent per second.
    fn rate(&self) -> f64 {
        let sent = u32::try_from(self.summary.sent).map_or(f64::MAX, f64::from);
        sent / self.summary.elapsed.as_secs_f64().max(0.001)
    }

    pub(super) fn exit(&self) -> Exit {
        let totals = self.summaries.totals();
        let is_halted = |summary: &CampaignSummary| {
            matches!(summary.state, "paused" | "stopped" | "unapproved")
                && summary.totals.queued > 0
        };
        let delivery = totals.delivery.filter(|_| self.is_waiting).unwrap_or_default();
        let not_reached = totals.failed + totals.unknown + delivery.undelivered + delivery.expired;
        let has_failures = not_reached > 0 || !self.without_campaign.is_empty();
        match &self.summary.ended {
            Ended::Stopped => self.signal.unwrap_or(Exit::Interrupted),
            Ended::Halted(_) | Ended::Waiting(_) => Exit::Halted,
            // While it waited for receipts.
            Ended::Done | Ended::Limit if let Some(signal) = self.signal => signal,
            Ended::Done | Ended::Limit if self.campaigns().iter().any(is_halted) => Exit::Halted,
            Ended::Done | Ended::Limit if has_failures => Exit::Incomplete,
            Ended::Done | Ended::Limit => Exit::Done,
        }
    }

    /// The state of the campaigns, and the run. `is_one`: as one campaign, without totals.
    pub(super) fn json(&self, is_one: bool) -> Value {
        let mut object = status::json(is_one, &self.summaries, &self.without_campaign);
        object["elapsed_ms"] = json!(smsq_message::sms::millis(self.summary.elapsed));
        object["rate"] = json!((self.rate() * 10.0).round() / 10.0);
        object["attempts"] = json!(self.summary.attempts);
        object["limited_by"] = json!(self.summary.bottlenecks.first());
        object
    }

    /// `sent 487 messages in 12 s (40/s), 3 failed`, in practice below a line that says so.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.summaries.mode.notice(), self.sentence(true))
    }

    /// The same without that line, below a report. `with_rate`: the report does not have it.
    pub(super) fn sentence(&self, with_rate: bool) -> String {
        let summary = &self.summary;
        if summary.attempts == 0 && summary.sent + summary.failed + summary.unknown == 0 {
            return "nothing was sent\n".to_owned();
        }
        let sent = messages(summary.sent);
        let mut text = format!("sent {sent} in {}", duration(summary.elapsed));
        if summary.sent > 0 && with_rate {
            let _ = write!(text, " ({})", rate(self.rate()));
        }
        for (count, word) in [
            (summary.retried, "tried again"),
            (summary.failed, "failed"),
            (summary.unknown, "unknown"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {word}");
            }
        }
        text.push('\n');
        text
    }

    /// Why the run ended early, and what to do next.
    pub(super) fn explain(&self, console: &Console) {
        let queued = self.summaries.totals().queued;
        let left = messages(queued);
        let practice = &self.practice;
        if let Some(trouble) = &self.summary.trouble {
            console.status(&format!(
                "{trouble}; is its `url` right? `smsq providers test` shows the request and the response"
            ));
        }
        if let Some(text) = limited_by(&self.summary.bottlenecks) {
            console.status(&text);
        }
        match &self.summary.ended {
            Ended::Stopped if queued == 0 => console.status("stopped"),
            Ended::Stopped => {
                console.status(&format!("stopped; {left} left: `smsq send{practice}` continues"));
            }
            Ended::Limit if queued > 0 => console.status(&format!("limit reached; {left} left")),
            Ended::Halted(campaigns) => {
                for (campaign, reason) in campaigns {
                    let hint = self.next_command(campaign);
                    console.error(&format!("campaign `{campaign}`: {reason}"), Some(&hint));
                }
            }
            Ended::Waiting(campaigns) => {
                for (campaign, until) in campaigns {
                    console.status(&format!(
                        "campaign `{campaign}` waits until {until}; nothing was lost: run `smsq send{practice}` then"
                    ));
                }
            }
            Ended::Done | Ended::Limit => {}
        }
        warn_of_missing_campaigns(console, &self.without_campaign);
        for campaign in self.campaigns() {
            if campaign.totals.failed + campaign.totals.unknown > 0 {
                console.status(&format!(
                    "`smsq report --campaign {} --failed` lists who was not reached and why",
                    shell_word(&campaign.campaign)
                ));
            }
        }
    }

    /// How to continue with a campaign that stopped.
    fn next_command(&self, campaign: &str) -> String {
        let practice = &self.practice;
        let mut campaigns = self.campaigns().iter();
        let summary = campaigns.find(|summary| summary.campaign == campaign);
        let word = shell_word(campaign);
        match summary.map(|summary| summary.state) {
            Some("paused") => {
                format!(
                    "nothing was lost; `smsq resume --campaign {word}`, then `smsq send{practice}`"
                )
            }
            Some("unapproved") => {
                format!(
                    "another person looks at it with `smsq approve --campaign {word}`, then `smsq send{practice}`"
                )
            }
            _ => format!("nothing was lost; fix the cause, then `smsq send{practice}` again"),
        }
    }
}

fn warn_of_missing_campaigns(console: &Console, without_campaign: &[(i64, u64)]) {
    for (campaign, count) in without_campaign {
        console.error(
            &status::missing_campaign(*campaign, *count),
            Some("set their `campaign_id` to the `id` of a campaign in table `campaign`"),
        );
    }
}

/// The campaigns to send and their counts: the one that was named, or all that have something to do; and the others.
async fn campaigns(
    context: &Context,
    store: &Store,
    options: &SendOptions<'_>,
) -> anyhow::Result<(Vec<(Campaign, Totals)>, Vec<(Campaign, Totals)>)> {
    if let Some(name) = options.campaign {
        let campaign = context.campaign(store, name).await?;
        if campaign.state == CampaignStatus::Cancelled {
            return Err(with_hint(
                format!("campaign `{name}` is cancelled"),
                "import its list again, or `smsq resume` it",
            ));
        }
        let totals = store.report().totals(Some(campaign.id)).await?;
        return Ok((vec![(campaign, totals)], Vec::new()));
    }
    let all = store.report().campaign_totals().await?.campaigns;
    Ok(all.into_iter().partition(|(campaign, totals)| {
        let has_work = totals.queued + totals.sending + totals.unknown > 0;
        has_work && campaign.state != CampaignStatus::Cancelled
    }))
}

/// The campaigns that got messages during the run: new ones, and those that were idle.
async fn changed(
    store: &Store,
    sent: &[(Campaign, Totals)],
    idle: &[(Campaign, Totals)],
) -> Result<Vec<(Campaign, Totals)>, StoreError> {
    let of = |campaigns: &[(Campaign, Totals)], id| {
        let mut campaigns = campaigns.iter();
        campaigns.find_map(|(campaign, totals)| (campaign.id == id).then_some(*totals))
    };
    let mut all = store.report().campaign_totals().await?.campaigns;
    all.retain(|(campaign, totals)| {
        let before = of(idle, campaign.id).unwrap_or_default();
        of(sent, campaign.id).is_none() && *totals != before
    });
    Ok(all)
}

/// Says which stopped campaigns are tried again, which campaigns the run has to wait for, and warns of a high
/// concurrency.
async fn announce(
    context: &Context,
    store: &Store,
    options: &SendOptions<'_>,
    campaigns: &[(Campaign, Totals)],
) -> anyhow::Result<()> {
    let console = &context.console;
    let now = store.now().await?;
    for (campaign, totals) in campaigns {
        let name = &campaign.name;
        if campaign.state == CampaignStatus::Stopped {
            let reason = campaign.state_reason.as_deref().unwrap_or("unknown reason");
            console.status(&format!("campaign `{name}` was stopped ({reason}): trying again"));
        }
        if totals.queued == 0 || options.flags.no_wait {
            continue;
        }
        let (start, at) = if let Some(window) = &campaign.window {
            let Some(span) = window.for_all(now).filter(|span| !span.contains(now)) else {
                continue;
            };
            let opens = window.format_local(span.opens_at);
            let start = format!("is sent {}: waiting until {opens}, for", window.describe());
            (start, span.opens_at)
        } else {
            match store.report().first_due(campaign.id).await? {
                Some(first) if first.attempts == 0 && first.due_at > now => {
                    let start = format!("starts {}: waiting for", local_and_utc(first.due_at));
                    (start, first.due_at)
                }
                _ => continue,
            }
        };
        console.status(&format!(
            "campaign `{name}` {start} {} (`--no-wait` ends instead)",
            duration(at.since(now))
        ));
    }
    let concurrency = context.config.sender.concurrency;
    if concurrency > MANY_CONCURRENCY {
        console.warn(&format!(
            "{concurrency} requests in flight at once are many: most providers allow fewer connections"
        ));
    }
    Ok(())
}

/// The providers of a run, by their names.
type Providers = BTreeMap<String, Arc<Provider>>;

async fn sender(
    context: &Context,
    store: &Store,
    options: &SendOptions<'_>,
    campaigns: &[(Campaign, Totals)],
) -> anyhow::Result<Sender> {
    let config = &context.config;
    let sent = sent_now(context, campaigns)?;
    let names = sent.iter().map(|(name, _)| *name);
    let mut needed: BTreeSet<&str> = names.flat_map(|name| config.providers_of(name)).collect();
    if options.follow {
        needed.extend(config.providers_of(default_provider(context)?));
    }
    let mut providers = BTreeMap::new();
    for name in needed {
        providers.insert(name.to_owned(), context.provider(name)?);
    }
    if let Some(error) =
        providers.values().find_map(|provider| providers::missing_settings(provider))
    {
        return Err(error);
    }
    check_senders(context, options, &sent, &providers)?;
    // A message that is queued during the run may need one of these; one that is misconfigured must not stop
    // the others.
    for name in &config.own_providers {
        if !providers.contains_key(name)
            && let Ok(provider) = context.provider(name)
        {
            providers.insert(name.clone(), provider);
        }
    }
    let settings = Settings {
        routes: routes(context, store, &providers).await?,
        sender: config.sender.clone(),
        retry: config.retry.clone(),
        breaker: config.circuit_breaker.clone(),
        auto_pause: config.auto_pause,
        default_provider: config.default_provider.clone(),
        default_region: config.default_region,
        countries: config.limits.countries,
        budgets: config.limits.budgets(),
        prices: config.prices.clone(),
        campaign: options.campaign.map(str::to_owned),
        rate: options.flags.worker.rate.clone(),
        limit: options.flags.limit,
        follow: options.follow,
        wait: !options.flags.no_wait,
        receipts: config.receipts,
        state_folder: context.state_folder(),
    };
    let sender = Sender::new(store.clone(), providers, settings);
    Ok(sender.with_metrics(Arc::clone(options.metrics)))
}

/// The campaigns that are sent now, each with the name of its provider or route.
fn sent_now<'a>(
    context: &'a Context,
    campaigns: &'a [(Campaign, Totals)],
) -> anyhow::Result<Vec<(&'a str, &'a Campaign)>> {
    let mut sent = Vec::new();
    for (campaign, totals) in campaigns {
        let has_work = totals.queued + totals.sending > 0;
        let is_held = matches!(campaign.state, CampaignStatus::Paused | CampaignStatus::Cancelled);
        if has_work && !is_held && campaign.approval != ApprovalGate::AllWait {
            let named = campaign.provider.as_deref();
            sent.push((named.map_or_else(|| default_provider(context), Ok)?, campaign));
        }
    }
    Ok(sent)
}

/// Warns of campaigns that need a sender and have none. Fails if no other campaign can be sent.
fn check_senders(
    context: &Context,
    options: &SendOptions<'_>,
    sent: &[(&str, &Campaign)],
    providers: &Providers,
) -> anyhow::Result<()> {
    let config = &context.config;
    let has_sender = |name: &str, campaign: &Campaign| {
        let needs = |name: &&str| providers[*name].needs_sender();
        campaign.sender.is_some() || !config.providers_of(name).iter().any(needs)
    };
    let can_send = options.follow || sent.iter().any(|(name, campaign)| has_sender(name, campaign));
    for &(name, campaign) in sent {
        if has_sender(name, campaign) {
            continue;
        }
        let error = providers::missing_sender(name, &campaign.name);
        if !can_send {
            return Err(error);
        }
        // The sender stops this campaign; the others continue.
        let (message, hint) = message_and_hint(&error);
        let hint = hint.unwrap_or_default();
        context.console.warn(&format!("{message}: {hint}"));
    }
    Ok(())
}

/// The routes whose providers are all known.
async fn routes(
    context: &Context,
    store: &Store,
    providers: &Providers,
) -> anyhow::Result<BTreeMap<String, Arc<Route>>> {
    let config = &context.config;
    let route = |(name, route): (&String, &RouteConfig)| {
        let member = |name: &str| {
            let provider: Option<&Arc<Provider>> = providers.get(name);
            let prices = config.prices.get(name);
            provider.map(|provider| provider.route_member(prices)).ok_or(())
        };
        let route = Route::new(name, route, member).ok()?;
        Some((name.clone(), Arc::new(route)))
    };
    let mut routes: BTreeMap<String, Arc<Route>> = BTreeMap::new();
    for (name, route) in config.routes.iter().filter_map(route) {
        routes.insert(name, smsq_operations::informed(route, store).await?);
    }
    Ok(routes)
}

fn default_provider(context: &Context) -> anyhow::Result<&str> {
    let config = &context.config;
    match (&config.default_provider, config.own_providers.is_empty()) {
        (Some(name), _) => Ok(name),
        (None, false) => {
            let hint = "set `default_provider` in smsq.toml";
            Err(providers::ambiguous(config, hint))
        }
        (None, true) => Err(practice::no_provider(None)),
    }
}

/// What limited the run for the longest time, what did next, and what to change about the first.
fn limited_by(bottlenecks: &[Bottleneck]) -> Option<String> {
    let name = |bottleneck: &Bottleneck| match bottleneck {
        Bottleneck::RateLimit => "the rate limit",
        Bottleneck::Concurrency => "the requests in flight, which wait for the provider",
        Bottleneck::Provider => "the provider (unreachable or throttling)",
        Bottleneck::Database => "the commits of the database",
        Bottleneck::Cpu => "the processors of this machine",
    };
    let advice = match bottlenecks.first()? {
        Bottleneck::RateLimit if bottlenecks.contains(&Bottleneck::Provider) => "",
        Bottleneck::RateLimit => {
            ": raise `rate` of the provider or the campaign if the provider allows more"
        }
        Bottleneck::Concurrency => ": raise `--concurrency`",
        Bottleneck::Provider => "",
        Bottleneck::Database => ": use a faster disk, or a server that is nearer",
        Bottleneck::Cpu => ": start workers on others, with a database server",
    };
    let names: Vec<&str> = bottlenecks.iter().take(2).map(name).collect();
    Some(format!("limited by {}{advice}", names.join(", then by ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_provider_is_not_answered_with_a_higher_rate() {
        let (rate, provider) = (Bottleneck::RateLimit, Bottleneck::Provider);
        let text = |bottlenecks: &[Bottleneck]| limited_by(bottlenecks).unwrap_or_default();
        assert_eq!(
            text(&[provider, rate]),
            "limited by the provider (unreachable or throttling), then by the rate limit"
        );
        assert_eq!(
            text(&[rate, provider]),
            "limited by the rate limit, then by the provider (unreachable or throttling)"
        );
        assert!(text(&[rate]).contains("raise `rate`"));
        assert_eq!(text(&[]), "");
    }
}
