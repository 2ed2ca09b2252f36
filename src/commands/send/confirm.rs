//! Shows what a large run would send, cost and take, and asks whether to send it.

use smsq_message::rate::Rates;
use smsq_message::sms::LaneId;
use smsq_message::text::messages;
use smsq_operations::{EstimatedQueue, estimate_queue};
use smsq_store::{Campaign, Store};

use super::PreparedRun;
use crate::commands::{Context, import};

/// How many messages of a campaign are read for the estimate.
const MAX_READ: u64 = 1_000_000;

/// Whether to send: asks only before a large run, and only if standard input is a terminal.
pub(super) async fn confirm(run: &PreparedRun<'_>) -> anyhow::Result<bool> {
    let (context, options) = (run.context, run.options);
    let limit = options.flags.limit.unwrap_or(u64::MAX);
    let total: u64 = run.campaigns.iter().map(|(_, totals)| totals.queued).sum();
    let total = total.min(limit);
    let ask_from = context.config.import.ask_from;
    if ask_from == 0 || total < ask_from || !context.console.can_ask() {
        return Ok(true);
    }
    for (campaign, totals) in run.campaigns.iter().filter(|(_, totals)| totals.queued > 0) {
        let count = totals.queued.min(limit);
        let rate = options.flags.worker.rate.as_ref();
        let text = describe(context, run.store, campaign, None, count, rate).await?;
        context.console.status(text.trim_end());
    }
    let question = format!("send {}?", messages(total));
    Ok(context.console.confirm(&question))
}

/// Describes the first `count` messages in these lanes of a campaign, `None`: in all. `rate`: a further limit of the run.
pub(in crate::commands) async fn describe(
    context: &Context,
    store: &Store,
    campaign: &Campaign,
    lanes: Option<&[LaneId]>,
    count: u64,
    rate: Option<&Rates>,
) -> anyhow::Result<String> {
    let progress = context.console.progress(None, "reading");
    let read = |read, of| {
        progress.set_total(of);
        progress.set(read);
    };
    let (settings, region) = (context.list_settings(), context.config.default_region);
    let queue = EstimatedQueue { campaign, lanes, count, max_read: MAX_READ, rate };
    let estimate = estimate_queue(&settings, store, queue, region, read).await?;
    drop(progress);
    Ok(import::queue_text(&campaign.name, &estimate))
}
