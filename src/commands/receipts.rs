//! `smsq receipts`: fetches delivery receipts and applies them; and the wait for them after `send` and `run`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use smsq_message::text::{counted, duration, listed};
use smsq_process::exit::Exit;
use smsq_provider::Provider;
use smsq_receipts::{PullMode, PullSummary, ReceiptPuller};
use smsq_report::{Summaries, summaries_text};
use smsq_sender::Sender;
use smsq_store::Store;
use tokio::sync::watch;
use tokio::time::Instant;

use super::signals::Signals;
use super::values::{campaign_name, span};
use super::{Context, status, with_hint};

const EXAMPLES: &str = "\
Examples:
  smsq receipts                        fetch what is there now, and show the counts
  smsq receipts --follow               until no message awaits a receipt, for up to three days
  smsq receipts --for 30min            the same, for half an hour at most
  smsq receipts --recheck              ask again for what is missing

A receipt never sends a message again. `smsq report --undelivered` lists who was not reached.";

/// Fetch delivery receipts: what became of the messages that were sent
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only wait for, and show, the messages of this campaign [default: all]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    campaign: Option<String>,
    /// Only ask this provider [default: all whose receipts can be fetched]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Continue until no message awaits a receipt
    #[arg(long)]
    follow: bool,
    /// Continue until no message awaits a receipt, but no longer than this: 30min, 2h
    #[arg(long = "for", value_name = "TIME", value_parser = span, conflicts_with = "follow")]
    at_most: Option<Duration>,
    /// First ask for everything that is awaited, from the list that the provider keeps
    #[arg(long)]
    recheck: bool,
}

pub(crate) async fn run(args: &Args, context: &Context) -> anyhow::Result<Exit> {
    let open = async || Ok(context.store().await?);
    let store = context.when_available(args.follow, open).await?;
    context.check_mode(&store)?;
    let campaign = context.optional_campaign(&store, args.campaign.as_deref()).await?;
    let providers = providers(args, context, &store).await?;
    let (stop, stopped) = watch::channel(false);
    let puller = ReceiptPuller::new(store.clone(), &providers, &context.config.receipts, stopped)?
        .with_default(context.config.default_provider.clone());
    let mut signals = context.signals.listen();
    let waiting = Waiting {
        puller,
        stop,
        campaign: campaign.as_ref().map(|campaign| campaign.id),
        mode: if args.recheck { PullMode::Recheck } else { PullMode::Now },
        until: args.at_most.map(|span| Instant::now() + span),
        is_once: !args.follow && args.at_most.is_none(),
    };
    let (summary, signal) = waiting.run(context, &mut signals).await?;
    let summaries = match &campaign {
        Some(campaign) => Summaries::of(&store, campaign).await?,
        None => Summaries::all(&store).await?,
    };
    let mut object = status::json(campaign.is_some(), &summaries, &[]);
    let unmatched = store.receipts().count_unmatched().await?;
    object["receipts"] = json(&summary);
    object["receipts"]["unmatched"] = unmatched.into();
    context.print(&summaries_text(&summaries), &object)?;
    explain(context, &summary);
    if unmatched > 0 {
        let receipts = counted(unmatched, "receipt");
        context.console.status(&format!(
            "{receipts} without a message in this database: of another program with this account, or of a message \
             whose result is not stored yet"
        ));
    }
    let is_asked = summary.failed.is_empty();
    Ok(match signal {
        Some(signal) => signal,
        None if is_asked => Exit::Done,
        None => Exit::Halted,
    })
}

/// The providers to ask: the one that was named, or all whose receipts are awaited or can be fetched.
async fn providers(
    args: &Args,
    context: &Context,
    store: &Store,
) -> anyhow::Result<BTreeMap<String, Arc<Provider>>> {
    let mut providers = BTreeMap::new();
    if let Some(name) = &args.provider {
        let provider = context.provider(name)?;
        if provider.pull().is_none() {
            return Err(not_fetched(&provider));
        }
        providers.insert(name.clone(), provider);
        return Ok(providers);
    }
    let mut names = store.receipts().awaiting_providers().await?;
    names.extend(context.config.own_providers.iter().cloned());
    let default = context.config.default_provider.clone();
    names.extend(default.filter(|name| !context.config.routes.contains_key(name)));
    for name in names {
        // One that is misconfigured must not stop the others.
        match context.provider(&name) {
            Ok(provider) => {
                providers.extend(provider.pull().is_some().then(|| (name, Arc::clone(&provider))));
            }
            Err(error) => context.console.warn(&format!("{error:#}")),
        }
    }
    if providers.is_empty() {
        return Err(with_hint(
            "no receipts can be fetched: no configured provider has a list of them that is switched on",
            "`smsq providers list` shows how receipts come; section `receipts` of a provider switches them on",
        ));
    }
    Ok(providers)
}

fn not_fetched(provider: &Provider) -> anyhow::Error {
    let name = provider.name();
    match &provider.capabilities().pull {
        Some(pull) => with_hint(
            format!("provider `{name}`: fetching receipts is switched off"),
            format!(
                "set `enabled = true` in [providers.{name}.receipts]{}",
                pull.requires.as_ref().map(|requires| format!("; {requires}")).unwrap_or_default()
            ),
        ),
        None => with_hint(
            format!("provider `{name}` has no list of receipts"),
            format!("describe it in [providers.{name}.receipts] if the vendor has one"),
        ),
    }
}

/// Fetches receipts while messages await them.
pub(super) struct Waiting {
    puller: ReceiptPuller,
    stop: watch::Sender<bool>,
    /// Only its messages are waited for.
    campaign: Option<i64>,
    /// Of the first pass.
    mode: PullMode,
    until: Option<Instant>,
    /// Ends after the first pass.
    is_once: bool,
}

impl Waiting {
    /// After a run of the sender, for its providers.
    pub(super) fn until(
        until: Instant,
        campaign: Option<i64>,
        sender: &Sender,
    ) -> anyhow::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        Ok(Self {
            puller: sender.receipts(stopped)?,
            stop,
            campaign,
            mode: PullMode::Now,
            until: Some(until),
            is_once: false,
        })
    }

    /// Returns what was fetched, and the signal that ended it.
    pub(super) async fn run(
        mut self,
        context: &Context,
        signals: &mut Signals,
    ) -> anyhow::Result<(PullSummary, Option<Exit>)> {
        let bar = context.console.progress(None, "fetching receipts");
        let stop = self.stop.clone();
        let work = self.fetch(&bar);
        tokio::pin!(work);
        let mut signal = None;
        loop {
            tokio::select! {
                summary = &mut work => return Ok((summary?, signal)),
                exit = signals.next() => {
                    if signal.replace(exit).is_some() {
                        return Ok((PullSummary::default(), signal));
                    }
                    stop.send_replace(true);
                }
            }
        }
    }

    async fn fetch(
        &mut self,
        bar: &smsq_process::console::ProgressDisplay,
    ) -> anyhow::Result<PullSummary> {
        let mut all = PullSummary::default();
        let mut mode = self.mode;
        loop {
            all += self.puller.pass(mode, false).await?;
            mode = PullMode::Due;
            bar.set(all.applied.new);
            let is_over = self.is_once
                || *self.stop.borrow()
                || self.until.is_some_and(|until| Instant::now() >= until);
            if is_over || !self.puller.is_awaiting(self.campaign).await? {
                return Ok(all);
            }
            if let Some(until) = self.until {
                let left = until.saturating_duration_since(Instant::now());
                let left = Duration::from_secs(left.as_secs() + 1);
                bar.note(Some(&format!("for up to {}", duration(left))));
            }
            self.puller.wait(self.until).await;
        }
    }
}

fn json(summary: &PullSummary) -> Value {
    let failed = summary.failed.iter();
    let failed =
        failed.map(|(provider, failure)| json!({ "provider": provider, "failure": failure }));
    json!({
        "fetched": summary.fetched,
        "new": summary.applied.new,
        "settled": summary.applied.sent + summary.applied.failed,
        "failed": failed.collect::<Vec<_>>(),
    })
}

/// Says what was fetched, and what could not be.
pub(super) fn explain(context: &Context, summary: &PullSummary) {
    let console = &context.console;
    let settled = summary.applied.sent + summary.applied.failed;
    let mut text =
        format!("fetched {} receipts, {} of them new", summary.fetched, summary.applied.new);
    if settled > 0 {
        let messages = counted(settled, "unknown message");
        let _ = write!(text, "; they settled {messages}");
    }
    console.status(&text);
    if !summary.busy.is_empty() {
        let names = listed(summary.busy.iter().map(String::as_str));
        console.status(&format!("another process fetches the receipts of {names}"));
    }
    for (provider, failure) in &summary.failed {
        let hint = "nothing was lost: `smsq receipts` asks again";
        console.error(&format!("`{provider}`: {}", failure.reason), Some(hint));
    }
}
