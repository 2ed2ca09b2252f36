//! `smsq import --dry-run`, and the look that `run` takes before a large campaign: what would be sent, what it
//! costs and how long it takes; nothing is written.

use std::collections::HashMap;

use serde_json::json;

use super::look::Look;
use super::needs::provider_of;
use super::{List, existing, fault, prices, tell, unchanged_hint, window};
use crate::commands::window::check_opens;
use crate::commands::words::messages;
use crate::commands::{Context, providers};
use crate::exit::Exit;
use crate::import::{Estimate, Pace, Plan, Preview, PriceOf, SeenKeys};
use crate::rate::Rate;
use crate::report::shell_word;
use crate::store::{Access, Campaign, Store};

/// So many messages are shown, and so many rejected rows.
pub(in crate::commands) const SAMPLES: usize = 5;

pub(super) async fn run(list: &List, plans: &[Plan], context: &Context) -> anyhow::Result<Exit> {
    let store = existing(context, Access::Read).await?;
    let mut objects = Vec::new();
    let mut is_usable = true;
    let mut seen = HashMap::new();
    for plan in plans {
        let look = look(list, plan, context, store.as_ref(), &mut seen).await?;
        is_usable &= look.summary.rows > look.summary.rejected;
        if context.is_json() {
            objects.push(look.object());
        } else {
            context.console.data(&look.text())?;
        }
        tell::warn_of(&context.console, look.file, &look.summary.non_mobile);
        if look.summary.unchanged > 0 {
            let hint = unchanged_hint(look.summary.unchanged, shell_word(look.campaign));
            context.console.say(&hint);
        }
    }
    if context.is_json() {
        let object = match objects.as_mut_slice() {
            [one] => one.take(),
            _ => json!({ "dry_run": true, "files": objects }),
        };
        context.print_json(&object)?;
    }
    context.console.say("dry run: nothing was written");
    Ok(if is_usable {
        Exit::Done
    } else {
        Exit::Incomplete
    })
}

/// Shows a large campaign and asks whether to send it, where somebody is there to be asked.
pub(in crate::commands) async fn confirm(
    list: &List,
    plans: &[Plan],
    context: &Context,
) -> anyhow::Result<bool> {
    let ask_from = context.config.import.ask_from;
    if ask_from == 0 || !context.console.can_ask() {
        return Ok(true);
    }
    let store = existing(context, Access::Read).await?;
    let mut looks = Vec::new();
    let mut seen = HashMap::new();
    for plan in plans {
        looks.push(look(list, plan, context, store.as_ref(), &mut seen).await?);
    }
    let total = looks.iter().map(|look| look.summary.accepted).sum();
    if total < ask_from {
        return Ok(true);
    }
    for look in &looks {
        context.console.say(look.text().trim_end());
        tell::warn_of(&context.console, look.file, &look.summary.non_mobile);
    }
    let is_meant = context.console.ask(&format!("send {}?", messages(total)));
    if !is_meant {
        context.console.say("nothing was written");
    }
    Ok(is_meant)
}

async fn look<'a>(
    list: &'a List,
    plan: &'a Plan,
    context: &'a Context,
    store: Option<&Store>,
    seen: &mut HashMap<String, SeenKeys>,
) -> anyhow::Result<Look<'a>> {
    let name = list.campaign_for(plan);
    let seen = seen.entry(name.to_owned()).or_default();
    let campaign = match store {
        Some(store) => store.campaign(name).await?,
        None => None,
    };
    let known = store.map(|store| (store, campaign.as_ref()));
    let prices = prices::of(list, campaign.as_ref(), context);
    let price = |phone: &str| prices?.of(phone);
    let price = prices.is_some().then_some(&price as PriceOf<'_>);
    let now = super::this_moment();
    let moments = window(list, now)?;
    let standing = campaign
        .as_ref()
        .and_then(|campaign| campaign.window.clone());
    let hours = list.hours.change(None)?.applied_to(standing);
    if let Some(hours) = &hours {
        check_opens(hours, moments, now)?;
    }
    let begins_at = moments.due_at.unwrap_or(now);
    let open_for = moments.expires_at.map(|until| match &hours {
        Some(hours) => hours.open_between(begins_at, until),
        None => until.since(begins_at),
    });
    let progress = context.console.progress(None, "looking");
    let Preview {
        summary,
        stats,
        rejects,
    } = plan
        .preview(seen, SAMPLES, known, price, |done| progress.set(done.rows))
        .await
        .map_err(fault)?;
    Ok(Look {
        file: plan.file(),
        campaign: name,
        interpretation: plan.interpretation(),
        estimate: Estimate {
            messages: summary.accepted,
            stats,
            pace: Pace {
                limits: limits(list, campaign.as_ref(), context)?,
                open_for,
                window: hours,
                starts_at: begins_at,
            },
            currency: prices.map(|prices| prices.currency.clone()),
        },
        summary,
        rejects,
        schedule: moments,
    })
}

/// The provider's limits and the campaign's own.
fn limits(
    list: &List,
    campaign: Option<&Campaign>,
    context: &Context,
) -> anyhow::Result<Vec<Rate>> {
    let mut limits = match provider_of(list, campaign, context) {
        Some(name) => providers::without_secrets(context, name)?.rates().0.clone(),
        None => Vec::new(),
    };
    limits.extend(campaign.iter().flat_map(|campaign| campaign.rate.0.clone()));
    Ok(limits)
}
