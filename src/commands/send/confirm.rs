//! Shows what a large run would send, cost and take, and asks whether to send it.

use indicatif::HumanCount;

use super::PreparedRun;
use crate::commands::Context;
use crate::commands::import::{self, SAMPLES};
use crate::import::{Estimate, MessageStats, Sample, Schedule};
use crate::operations::ListPrices;
use crate::phone::Phone;
use crate::sms::NewSms;
use crate::store::Campaign;
use crate::store::report::Queued;
use crate::text::{messages, segments};

/// How many messages of a campaign are read for the estimate.
const MAX_READ: u64 = 1_000_000;
const PAGE: usize = 5_000;

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
        let text = describe(run, campaign, count).await?;
        context.console.status(text.trim_end());
    }
    let question = format!("send {}?", messages(total));
    Ok(context.console.confirm(&question))
}

/// Describes the first `count` messages of a campaign.
async fn describe(
    run: &PreparedRun<'_>,
    campaign: &Campaign,
    count: u64,
) -> anyhow::Result<String> {
    let (context, store, options) = (run.context, run.store, run.options);
    let provider = context.provider_of(campaign);
    let requirements = provider
        .map(|name| (context.list_settings().requirements)(name, campaign.sender.clone()))
        .transpose()?;
    let check = requirements
        .as_ref()
        .and_then(|needed| needed.check.as_ref());
    let all = &context.config.prices;
    let route = requirements
        .as_ref()
        .and_then(|needed| needed.route.clone());
    let prices = ListPrices::new(all, provider.map(String::as_str), route.clone());
    let to_read = count.min(MAX_READ);
    let progress = context.console.progress(Some(to_read), "reading");
    let mut stats = MessageStats::new(SAMPLES).with_route(route.clone());
    let mut queue = store.report().queue(campaign.id).await?;
    let (mut read, mut suppressed) = (0, 0);
    while read < to_read {
        let page = PAGE.min(usize::try_from(to_read - read).unwrap_or(PAGE));
        let queued = store.report().next_queued(&mut queue, page).await?;
        if queued.is_empty() {
            break;
        }
        read += queued.len() as u64;
        let rows: Vec<NewSms> = queued
            .into_iter()
            .map(|queued| row(queued, context))
            .collect();
        let phones: Vec<&str> = rows.iter().map(|row| row.phone.as_str()).collect();
        let suppressed_phones = store.suppression().among(&phones).await?;
        for row in rows {
            if suppressed_phones.contains(&row.phone) {
                suppressed += 1;
                continue;
            }
            let shown = check.and_then(|check| check(&row, route.as_deref()).ok().flatten());
            let shown = shown.unwrap_or(row.content);
            let price = prices.of(&row.phone);
            let sample = Sample {
                line: None,
                segments: segments::count(&shown),
                phone: row.phone,
                content: shown,
            };
            stats.add(sample, price);
        }
        progress.set(read);
    }
    drop(progress);
    // `--smart` works only during an import.
    stats.saving = 0;
    let now = store.now().await?;
    let mut text = format!(
        "campaign `{}` by {} `{}`\n",
        campaign.name,
        if provider.is_some_and(|name| context.config.routes.contains_key(name)) {
            "route"
        } else {
            "provider"
        },
        provider.map_or("", String::as_str)
    );
    import::write_row(&mut text, "would send", HumanCount(count - suppressed));
    import::write_row(&mut text, "suppressed", HumanCount(suppressed));
    if let Some(first) = store.report().first_due(campaign.id).await? {
        let schedule = Schedule {
            due_at: Some(first.due_at).filter(|at| *at > now && first.attempts == 0),
            expires_at: first.expires_at,
        };
        import::write_schedule(&mut text, schedule);
    }
    if read < count {
        let read = HumanCount(read);
        import::write_row(&mut text, "estimated", format!("from the first {read}"));
    }
    let mut limits = import::limits(requirements, Some(campaign));
    limits.extend(
        options
            .flags
            .worker
            .rate
            .iter()
            .flat_map(|rates| rates.0.clone()),
    );
    let estimate = Estimate {
        messages: count - suppressed,
        stats,
        currency: prices.currency(),
        budget: campaign.budget.clone(),
        limits,
        route,
        open_for: None,
        window: campaign.window.clone(),
        starts_at: now,
    };
    import::write_estimate(&mut text, &estimate);
    Ok(text)
}

/// The properties of a queued message that an estimate needs. A phone that another program inserted is parsed as
/// it will be when it is sent.
fn row(queued: Queued, context: &Context) -> NewSms {
    let phone = match Phone::parse(&queued.phone, context.config.default_region) {
        Ok(phone) if !queued.phone.starts_with('+') => phone.into_string(),
        _ => queued.phone,
    };
    NewSms {
        phone,
        content: queued.content,
        params: queued.params,
        ..NewSms::default()
    }
}
