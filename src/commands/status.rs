//! `smsq status`: the state of the campaigns and workers, once or every second.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use indicatif::HumanCount;
use serde_json::{Value, json};
use smsq_message::rate::Rates;
use smsq_message::route::sender_pool::SendersOff;
use smsq_message::sms::{Timestamp, millis};
use smsq_message::text::{duration, messages, printable_line};
use smsq_message::window::local_and_utc;
use smsq_process::exit::Exit;
use smsq_report::{
    BudgetStatus, CampaignSummary, LocalTime, MovedMessages, Summaries, plain_reason, shell_word,
    worker_json, workers_text,
};
use smsq_store::report::Totals;
use smsq_store::{CampaignFilter, ProviderPause, SenderQueue, Store, Worker};

use super::Context;
use super::values::campaign_name;

const EXAMPLES: &str = "\
Examples:
  smsq status
  smsq status --campaign welcome-3f2a91 --format json
  smsq status --watch                  print it every second until nothing is left to send";

const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Show how many messages are queued, sent, failed and unknown, by campaign
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this campaign [default: all]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    /// Print it every second until nothing is left to send, or until Ctrl-C
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let store = context.store_to_read().await?;
    let campaign = args.campaign.as_deref();
    if !args.watch {
        Status::read(campaign, context, &store).await?.print(context, "")?;
        return Ok(Exit::Done);
    }
    let mut signals = context.signals.listen();
    let mut throughput = Throughput::default();
    loop {
        let status = Status::read(campaign, context, &store).await?;
        if context.console.is_terminal && !context.is_json() {
            context.console.clear()?;
        }
        let totals = status.summaries.totals();
        status.print(context, &throughput.bar(&totals, status.now))?;
        let mut campaigns = status.summaries.campaigns.iter();
        if campaigns.all(CampaignSummary::is_over) {
            return Ok(Exit::Done);
        }
        tokio::select! {
            exit = signals.next() => return Ok(exit),
            () = tokio::time::sleep(WATCH_EVERY) => {}
        }
    }
}

struct Status {
    now: Timestamp,
    /// Whether one campaign was named.
    is_one: bool,
    summaries: Summaries,
    /// Counts of messages whose campaign does not exist.
    without_campaign: Vec<(i64, u64)>,
    /// Each with the number of messages that it is sending.
    workers: Vec<(Worker, u64)>,
    /// Providers that asked not to be called for a while.
    pauses: Vec<ProviderPause>,
    senders_off: SendersOff,
    /// For each campaign of several providers: how many messages wait for each of them.
    waiting: Vec<(String, BTreeMap<String, u64>)>,
    /// For each campaign: what went to another provider than its own.
    failovers: Vec<(String, MovedMessages)>,
    /// For each campaign that is divided among senders, the one that needs the longest: for how many messages, at which
    /// limit, and for how long.
    slowest: Vec<(String, SenderQueue, Rates, Duration)>,
    /// For each campaign, the last failure of a message that is tried again.
    failures: Vec<(String, String)>,
    /// The budgets of this month, for all campaigns.
    months: Vec<BudgetStatus>,
}

impl Status {
    async fn read(
        campaign: Option<&str>,
        context: &Context,
        store: &Store,
    ) -> anyhow::Result<Self> {
        let now = store.now().await?;
        let campaign = context.optional_campaign(store, campaign).await?;
        let mut status = Self {
            now,
            is_one: campaign.is_some(),
            summaries: match &campaign {
                Some(campaign) => Summaries::of(store, campaign).await?,
                None => Summaries::all(store).await?,
            },
            without_campaign: Vec::new(),
            workers: store.report().worker_loads().await?,
            pauses: store.provider_pauses(now).await?,
            senders_off: store.senders_off().await?,
            failures: Vec::new(),
            slowest: Vec::new(),
            waiting: Vec::new(),
            failovers: Vec::new(),
            months: Vec::new(),
        };
        for budget in &context.config.limits.budget.0 {
            let month = BudgetStatus::of_month(store, budget, now).await?;
            status.months.push(month);
        }
        let filter = CampaignFilter::from(campaign.as_ref().map(|campaign| campaign.id));
        if campaign.is_none() {
            status.without_campaign = store.report().without_campaign().await?;
        }
        let requirements = context.list_settings().requirements;
        let campaigns = status.summaries.campaigns.iter();
        for campaign in campaigns.filter(|campaign| campaign.totals.queued > 0) {
            if let Some(known) = store.campaign(&campaign.campaign).await? {
                let queues = store.waiting_by_sender(known.id).await?;
                let mut waiting: BTreeMap<String, u64> = BTreeMap::new();
                for queue in &queues {
                    *waiting.entry(queue.provider.clone()).or_default() += queue.waiting;
                }
                if waiting.len() > 1 {
                    status.waiting.push((campaign.campaign.clone(), waiting));
                }
                let slowest = queues.into_iter().filter_map(|queue| {
                    let route = requirements(&queue.provider, None).ok()?.route?;
                    let mut senders = route.senders();
                    let (_, sender) = senders.find(|(_, known)| *known.from == *queue.sender)?;
                    let rate = sender.rate.clone();
                    let span = rate.span_of(queue.waiting)?;
                    Some((campaign.campaign.clone(), queue, rate, span))
                });
                status.slowest.extend(slowest.max_by_key(|slowest| slowest.3));
            }
            if let Some(reason) = store.report().last_failure(&campaign.campaign).await? {
                status.failures.push((campaign.campaign.clone(), reason));
            }
        }
        let moved = MovedMessages::of(store.failovers(filter).await?);
        let ids: Vec<i64> = moved.iter().map(|moved| moved.campaign_id).collect();
        let names = store.campaign_names(&ids).await?;
        let of_campaigns = moved.into_iter().filter_map(|moved| {
            let campaign = names.get(&moved.campaign_id)?;
            Some((campaign.clone(), moved))
        });
        status.failovers = of_campaigns.collect();
        Ok(status)
    }

    fn print(&self, context: &Context, bar: &str) -> anyhow::Result<()> {
        if !context.is_json() && self.is_empty() {
            let line = "no campaigns yet: `smsq import` creates one";
            context.console.status(line);
            return Ok(());
        }
        context.print(&self.text(bar), &self.json())
    }

    /// Whether there is nothing to show.
    fn is_empty(&self) -> bool {
        let Summaries { campaigns, removed, .. } = &self.summaries;
        campaigns.is_empty() && removed.imported == 0 && self.without_campaign.is_empty()
    }

    fn json(&self) -> Value {
        let mut object = json(self.is_one, &self.summaries, &self.without_campaign);
        object["workers"] =
            self.workers.iter().map(|(worker, sending)| worker_json(worker, *sending)).collect();
        let pauses = self.pauses.iter().map(|pause| {
            json!({
                "provider": pause.account.name(),
                "sender": pause.sender,
                "until": pause.until.to_string(),
                "reason": pause.reason,
            })
        });
        object["stops"] = pauses.collect();
        let senders_off = self.senders_off.0.iter();
        let slowest = self.slowest.iter().map(|(campaign, queue, rate, span)| {
            json!({
                "campaign": campaign,
                "provider": queue.provider,
                "sender": queue.sender,
                "queued": queue.waiting,
                "rate": rate.to_string(),
                "takes_ms": millis(*span),
            })
        });
        let waiting = self.waiting.iter().flat_map(|(campaign, providers)| {
            providers.iter().map(move |(provider, queued)| {
                json!({ "campaign": campaign, "provider": provider, "queued": queued })
            })
        });
        object["waiting_by_provider"] = waiting.collect();
        let failovers = self.failovers.iter().map(|(campaign, moved)| {
            let mut moved = json!(moved);
            moved["campaign"] = json!(campaign);
            moved
        });
        object["failovers"] = failovers.collect();
        object["slowest_senders"] = slowest.collect();
        object["senders_off"] = senders_off
            .map(|(provider, sender)| json!({ "provider": provider, "sender": sender }))
            .collect();
        if !self.months.is_empty() {
            object["month_budgets"] = json!(self.months);
        }
        let failures = self.failures.iter();
        object["last_failures"] = failures
            .map(|(campaign, reason)| json!({ "campaign": campaign, "reason": reason }))
            .collect();
        object
    }

    fn text(&self, bar: &str) -> String {
        let Summaries { mode, campaigns, removed } = &self.summaries;
        let mut text = if campaigns.is_empty() && removed.imported == 0 {
            mode.notice().to_owned()
        } else {
            smsq_report::summaries_text(&self.summaries)
        };
        for (campaign, count) in &self.without_campaign {
            let _ = writeln!(text, "{}", missing_campaign(*campaign, *count));
        }
        let with_budget = campaigns.iter().filter(|_| campaigns.len() > 1);
        for campaign in with_budget {
            if let Some(budget) = &campaign.budget {
                let name = printable_line(&campaign.campaign);
                let _ = writeln!(text, "`{name}`: {}", budget.describe());
            }
        }
        for month in &self.months {
            let _ = writeln!(text, "all campaigns this month: {}", month.describe());
        }
        if !bar.is_empty() {
            let _ = write!(text, "\n{bar}");
        }
        if !self.workers.is_empty() {
            let _ = write!(text, "\n{}", workers_text(&self.workers, self.now));
        }
        let has_senders = !self.senders_off.0.is_empty() || !self.slowest.is_empty();
        let has_routes = !self.waiting.is_empty() || !self.failovers.is_empty();
        if !self.failures.is_empty() || !self.pauses.is_empty() || has_senders || has_routes {
            text.push('\n');
        }
        for (campaign, reason) in &self.failures {
            let reason = plain_reason(reason);
            let _ = writeln!(text, "`{campaign}`: the last attempt failed: {reason}");
        }
        for (campaign, providers) in &self.waiting {
            let counts: Vec<String> = providers
                .iter()
                .map(|(provider, queued)| format!("{} for `{provider}`", messages(*queued)))
                .collect();
            let _ = writeln!(text, "`{campaign}`: waiting: {}", counts.join(", "));
        }
        for (campaign, moved) in &self.failovers {
            let (what, span) = moved.describe(&LocalTime::system());
            let _ = writeln!(text, "`{campaign}`: {what} ({span})");
        }
        for pause in &self.pauses {
            let (provider, until) = (pause.account.name(), local_and_utc(pause.until));
            let left = duration(pause.until.since(self.now));
            let reason = plain_reason(&pause.reason);
            if let Some(sender) = &pause.sender {
                let word = shell_word(sender);
                let _ = writeln!(
                    text,
                    "`{provider}`: sender `{sender}` waits ({reason}): next attempt in {left}, {until}; `smsq set --sender {word} off` moves its messages to other senders"
                );
                continue;
            }
            let _ = writeln!(
                text,
                "`{provider}` asked to slow down ({reason}): next attempt in {left}, {until}; `smsq providers resume {provider}` ends the wait"
            );
        }
        for (campaign, queue, rate, span) in &self.slowest {
            let (sender, waiting) = (&queue.sender, messages(queue.waiting));
            let span = duration(*span);
            let _ = writeln!(
                text,
                "`{campaign}`: the slowest sender is `{sender}`: {waiting} at {rate}, about {span}"
            );
        }
        for (provider, sender) in &self.senders_off.0 {
            let word = shell_word(sender);
            let _ = writeln!(
                text,
                "`{provider}`: sender `{sender}` is switched off; `smsq set --sender {word} on` switches it on"
            );
        }
        text
    }
}

/// `3 messages of campaign 77, which does not exist: they are not sent`.
pub(super) fn missing_campaign(campaign: i64, count: u64) -> String {
    let are = if count == 1 { "it is" } else { "they are" };
    format!("{} of campaign {campaign}, which does not exist: {are} not sent", messages(count))
}

/// One campaign, or the totals and all campaigns; and messages whose campaign does not exist.
pub(super) fn json(is_one: bool, summaries: &Summaries, without_campaign: &[(i64, u64)]) -> Value {
    let mut object = summaries.json(is_one);
    if !without_campaign.is_empty() {
        let counts = without_campaign.iter();
        object["without_campaign"] = counts
            .map(|(campaign, count)| json!({ "campaign_id": campaign, "messages": count }))
            .collect();
    }
    object
}

/// Measures how fast messages are settled.
#[derive(Default)]
struct Throughput {
    /// How many messages were settled at which time, over the last [`MEASURED`].
    samples: VecDeque<(Timestamp, u64)>,
}

const MEASURED: Duration = Duration::from_secs(10);
/// Width of the bar in characters.
const BAR: u64 = 40;

impl Throughput {
    /// Adds a sample; returns `━━━━──── 45.0 %  1,234 of 2,743, 98/s, 15 s left`.
    fn bar(&mut self, totals: &Totals, now: Timestamp) -> String {
        let settled = totals.sent + totals.failed + totals.unknown + totals.cancelled;
        let left = totals.queued + totals.sending;
        self.samples.push_back((now, settled));
        // The newest sample that is old enough stays: the rate is measured from there.
        while matches!(self.samples.get(1), Some((at, _)) if now.since(*at) >= MEASURED) {
            self.samples.pop_front();
        }
        let all = settled + left;
        let filled = (settled * BAR).checked_div(all).unwrap_or(BAR);
        let bar: String = (0..BAR).map(|at| if at < filled { '━' } else { '─' }).collect();
        // Rounded down: 100 % means nothing is left.
        let tenths = (settled * 1_000).checked_div(all).unwrap_or(1_000);
        let mut line = format!(
            "{bar} {}.{} %  {} of {}",
            tenths / 10,
            tenths % 10,
            HumanCount(settled),
            HumanCount(all)
        );
        let (since, before) = self.samples.front().copied().unwrap_or((now, settled));
        let millis = now.since(since).as_millis();
        let done = u128::from(settled.saturating_sub(before));
        if millis > 0 && left > 0 {
            let _ = write!(line, ", {}/s", done * 1_000 / millis);
            if let Some(wait) = (u128::from(left) * millis).checked_div(done) {
                let seconds = u64::try_from(wait / 1_000).unwrap_or(u64::MAX).max(1);
                let _ = write!(line, ", {} left", duration(Duration::from_secs(seconds)));
            }
        }
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_shows_rate_and_time_left() {
        let mut throughput = Throughput::default();
        let at = |seconds: i64| Timestamp::from_millis(1_763_715_600_000 + seconds * 1_000);
        let totals =
            |sent, queued| Totals { imported: sent + queued, sent, queued, ..Totals::default() };
        let bar = |filled: usize| "━".repeat(filled) + &"─".repeat(40 - filled);
        assert_eq!(
            throughput.bar(&totals(0, 2_000), at(0)),
            format!("{} 0.0 %  0 of 2,000\n", bar(0))
        );
        assert_eq!(
            throughput.bar(&totals(900, 1_100), at(5)),
            format!("{} 45.0 %  900 of 2,000, 180/s, 6 s left\n", bar(18))
        );
        // Samples older than the measured time do not count.
        throughput.bar(&totals(910, 1_090), at(10));
        throughput.bar(&totals(920, 1_080), at(20));
        assert_eq!(
            throughput.bar(&totals(930, 1_070), at(30)),
            format!("{} 46.5 %  930 of 2,000, 1/s, 17m 50s left\n", bar(18))
        );
        assert_eq!(
            throughput.bar(&totals(2_000, 0), at(31)),
            format!("{} 100.0 %  2,000 of 2,000\n", bar(40))
        );
    }
}
