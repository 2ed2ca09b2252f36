//! What sending a list would be like, before it is imported: `--dry-run`, and the question that `run` asks
//! before a large campaign.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::output::{self, Imported, ListEstimate};
use super::{List, existing, local_now};
use crate::commands::{Context, providers};
use crate::exit::Exit;
use crate::import::{Estimate, Plan, SeenKeys};
use crate::rate::Rate;
use crate::store::{Access, Campaign, Store};
use crate::text::messages;

/// How many messages and rejected rows are shown.
pub(in crate::commands) const SAMPLES: usize = 5;

/// Prints what an import would do.
pub(super) async fn dry_run(
    list: &List,
    plans: &[Plan],
    context: &Context,
) -> anyhow::Result<Exit> {
    let estimates = estimates(list, plans, context).await?;
    if context.is_json() {
        context.print_json(&match estimates.as_slice() {
            [one] => one.json(),
            all => {
                let files: Value = all.iter().map(ListEstimate::json).collect();
                json!({ "dry_run": true, "files": files })
            }
        })?;
    }
    for one in &estimates {
        if !context.is_json() {
            context.console.print(&one.text())?;
        }
        one.list.warn(&context.console);
    }
    context.console.status("dry run: nothing was written");
    Ok(output::exit(estimates.iter().map(|one| &one.list.summary)))
}

/// Shows a large campaign and asks whether to send it, if standard input is a terminal.
pub(in crate::commands) async fn confirm(
    list: &List,
    plans: &[Plan],
    context: &Context,
) -> anyhow::Result<bool> {
    let console = &context.console;
    let ask_from = context.config.import.ask_from;
    if ask_from == 0 || !console.can_ask() {
        return Ok(true);
    }
    let estimates = estimates(list, plans, context).await?;
    let total = estimates.iter().map(|one| one.list.summary.accepted).sum();
    if total < ask_from {
        return Ok(true);
    }
    for one in &estimates {
        console.status(one.text().trim_end());
        one.list.warn(console);
    }
    let is_confirmed = console.confirm(&format!("send {}?", messages(total)));
    if !is_confirmed {
        console.status("nothing was written");
    }
    Ok(is_confirmed)
}

async fn estimates(
    list: &List,
    plans: &[Plan],
    context: &Context,
) -> anyhow::Result<Vec<ListEstimate>> {
    let store = existing(context, Access::Read).await?;
    // By campaign: the same key in two files is one message.
    let mut seen: HashMap<&str, SeenKeys> = HashMap::new();
    let mut estimates = Vec::new();
    for plan in plans {
        let seen = seen.entry(list.campaign_for(plan)).or_default();
        estimates.push(estimate(list, plan, context, store.as_ref(), seen).await?);
    }
    Ok(estimates)
}

async fn estimate(
    list: &List,
    plan: &Plan,
    context: &Context,
    store: Option<&Store>,
    seen: &mut SeenKeys,
) -> anyhow::Result<ListEstimate> {
    let name = list.campaign_for(plan);
    let campaign = match store {
        Some(store) => store.campaign(name).await?,
        None => None,
    };
    let campaign = campaign.as_ref();
    let now = local_now();
    let schedule = list.schedule(now)?;
    let window = list.window_for(campaign)?;
    let starts_at = schedule.due_at.unwrap_or(now);
    let open_for = schedule.expires_at.map(|until| match &window {
        Some(window) => window.open_between(starts_at, until),
        None => until.since(starts_at),
    });
    let prices = list.prices(campaign, context);
    let currency = prices.map(|prices| prices.currency.clone());
    let price = |phone: &str| prices?.of(phone);
    let known = store.map(|store| (store, campaign));
    let progress = context.console.progress(None, "checking");
    let preview = plan.preview(seen, SAMPLES, known, &price, |rows| progress.set(rows));
    let preview = preview.await?;
    Ok(ListEstimate {
        interpretation: plan.interpretation(),
        rejects: preview.rejects,
        estimate: Estimate {
            messages: preview.summary.accepted,
            stats: preview.stats,
            currency: currency.clone(),
            limits: limits(list.provider_for(campaign, context), campaign, context)?,
            open_for,
            window,
            starts_at,
        },
        list: Imported {
            file: plan.file().to_owned(),
            campaign: name.to_owned(),
            currency,
            schedule,
            summary: preview.summary,
            rejects_command: String::new(),
        },
    })
}

/// The limits of the provider and of the campaign.
pub(in crate::commands) fn limits(
    provider: Option<&String>,
    campaign: Option<&Campaign>,
    context: &Context,
) -> anyhow::Result<Vec<Rate>> {
    let mut limits = match provider {
        Some(name) => providers::without_secrets(context, name)?.rates().0.clone(),
        None => Vec::new(),
    };
    limits.extend(campaign.iter().flat_map(|campaign| campaign.rate.0.clone()));
    Ok(limits)
}
