//! The look before a large round: what would be sent, what it costs and how long it takes, and the question
//! whether that is meant, where somebody is there to be asked.

use std::fmt::Write as _;

use indicatif::HumanCount;

use super::Work;
use crate::commands::import::{self, SAMPLES};
use crate::commands::words::messages;
use crate::commands::{Context, providers};
use crate::import::{Estimate, Pace, PriceOf, Schedule, StatsBuilder};
use crate::phone::Phone;
use crate::rate::Rate;
use crate::sms::NewSms;
use crate::store::inspect::{Queue, Queued, Totals};
use crate::store::{Campaign, Store};
use crate::text::segments;

/// Messages of a campaign that are looked at; more than that take too long to be looked at one by one.
const LOOKED_AT: u64 = 1_000_000;
/// Messages of one query.
const PAGE: u32 = 5_000;

/// Whether a round is meant.
pub(super) async fn is_meant(
    context: &Context,
    store: &Store,
    work: &Work<'_>,
    campaigns: &[(Campaign, Totals)],
) -> anyhow::Result<bool> {
    let limit = work.pace.limit.unwrap_or(u64::MAX);
    let total: u64 = campaigns.iter().map(|(_, totals)| totals.queued).sum();
    let total = total.min(limit);
    let ask_from = context.config.import.ask_from;
    if ask_from == 0 || total < ask_from || !context.console.can_ask() {
        return Ok(true);
    }
    for (campaign, totals) in campaigns.iter().filter(|(_, totals)| totals.queued > 0) {
        let count = totals.queued.min(limit);
        let look = look(context, store, work, campaign, count).await?;
        context.console.say(look.trim_end());
    }
    Ok(context.console.ask(&format!("send {}?", messages(total))))
}

/// What sending the first `count` messages of a campaign will be like, in words.
async fn look(
    context: &Context,
    store: &Store,
    work: &Work<'_>,
    campaign: &Campaign,
    count: u64,
) -> anyhow::Result<String> {
    let default = context.config.default_provider.as_ref();
    let provider = campaign.provider.as_ref().or(default);
    let prices = provider.and_then(|name| context.config.prices.get(name));
    let price = |phone: &str| prices?.of(phone);
    let price = prices.is_some().then_some(&price as PriceOf<'_>);
    let fits = import::seen_by_recipients(campaign, context)?;
    let looked_at = count.min(LOOKED_AT);
    let progress = context.console.progress(Some(looked_at), "looking");
    let mut stats = StatsBuilder::new(SAMPLES, price);
    let (mut walk, mut seen, mut suppressed) = (Queue::of(campaign.id), 0, 0);
    while seen < looked_at {
        let page = PAGE.min(u32::try_from(looked_at - seen).unwrap_or(PAGE));
        let queued = store.next_queued(&mut walk, page).await?;
        if queued.is_empty() {
            break;
        }
        seen += queued.len() as u64;
        let rows: Vec<NewSms> = queued.into_iter().map(|one| row(one, context)).collect();
        let phones: Vec<&str> = rows.iter().map(|row| row.phone.as_str()).collect();
        let kept_out = store.suppressed_among(&phones).await?;
        for row in &rows {
            if kept_out.contains(&row.phone) {
                suppressed += 1;
                continue;
            }
            let shown = fits.as_ref().and_then(|fits| fits(row).ok().flatten());
            let text = shown.as_deref().unwrap_or(&row.content);
            stats.add(None, &row.phone, text, segments::count(text));
        }
        progress.set(seen);
    }
    drop(progress);
    let mut stats = stats.finish();
    // The texts are in the queue: it is too late for `--smart`.
    stats.saving = 0;
    let through = provider.map_or("", String::as_str);
    let mut text = format!("campaign `{}` through `{through}`\n", campaign.name);
    let _ = writeln!(text, "  would send  {}", HumanCount(count - suppressed));
    let _ = writeln!(text, "  suppressed  {}", HumanCount(suppressed));
    if let Some(first) = store.first_due(campaign.id).await? {
        let now = store.now().await?;
        import::write_schedule(
            &mut text,
            Schedule {
                due_at: Some(first.due_at).filter(|at| *at > now && first.attempts == 0),
                expires_at: first.expires_at,
            },
        );
    }
    if seen < count {
        let _ = writeln!(text, "  looked at   the first {}", HumanCount(seen));
    }
    let estimate = Estimate {
        messages: count - suppressed,
        stats,
        pace: Pace {
            limits: limits(context, work, campaign, provider)?,
            open_for: None,
            window: campaign.window.clone(),
            starts_at: store.now().await?,
        },
        currency: prices.map(|prices| prices.currency.clone()),
    };
    import::write_estimate(&mut text, &estimate);
    import::write_samples(&mut text, &estimate);
    Ok(text)
}

/// As far as a message shows what it will be like. The phone of one that another program wrote is read as it
/// will be when it is sent.
fn row(queued: Queued, context: &Context) -> NewSms {
    let phone = match queued.phone {
        phone if phone.starts_with('+') => phone,
        raw => match Phone::parse(&raw, context.config.default_region) {
            Ok(phone) => phone.into_string(),
            Err(_) => raw,
        },
    };
    NewSms {
        line: 0,
        phone,
        content: queued.content,
        params: queued.params,
        segments: 0,
        dedupe_key: String::new(),
        replaces: None,
    }
}

/// The provider's limits, the campaign's, and that of this round.
fn limits(
    context: &Context,
    work: &Work<'_>,
    campaign: &Campaign,
    provider: Option<&String>,
) -> anyhow::Result<Vec<Rate>> {
    let mut limits = match provider {
        Some(name) => providers::without_secrets(context, name)?.rates().0.clone(),
        None => Vec::new(),
    };
    let of_round = work.pace.rate.iter().flat_map(|rates| &rates.0);
    limits.extend(campaign.rate.0.iter().chain(of_round).copied());
    Ok(limits)
}
