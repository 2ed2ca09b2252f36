//! What sending a list would be like, before it is imported: `--dry-run`, and the question that `run` asks
//! before a large campaign.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::PreparedLists;
use super::output::{self, ListEstimate};
use crate::exit::Exit;
use crate::import::{Estimate, Plan, ProviderRequirements, SeenKeys};
use crate::operations::{Imported, local_now};
use crate::rate::Rate;
use crate::store::Campaign;
use crate::text::messages;

/// How many messages and rejected rows are shown.
pub(in crate::commands) const SAMPLES: usize = 5;

impl PreparedLists<'_> {
    /// Prints what an import would do.
    pub(super) async fn dry_run(&self) -> anyhow::Result<Exit> {
        let context = self.context;
        let estimates = self.estimates().await?;
        if context.is_json() {
            context.print_json(&match estimates.as_slice() {
                [estimate] => estimate.json(),
                all => {
                    let files: Value = all.iter().map(ListEstimate::json).collect();
                    json!({ "dry_run": true, "files": files })
                }
            })?;
        }
        for estimate in &estimates {
            if !context.is_json() {
                context.console.print(&estimate.text())?;
            }
            estimate.list.warn(&context.console);
        }
        context.console.status("dry run: nothing was written");
        let summaries = estimates.iter().map(|estimate| &estimate.list.summary);
        Ok(output::exit(summaries))
    }

    /// Shows a large campaign and asks whether to send it, if standard input is a terminal.
    pub(in crate::commands) async fn confirm(&self) -> anyhow::Result<bool> {
        let console = &self.context.console;
        let ask_from = self.context.config.import.ask_from;
        if ask_from == 0 || !console.can_ask() {
            return Ok(true);
        }
        let estimates = self.estimates().await?;
        let accepted = |estimate: &ListEstimate| estimate.list.summary.accepted;
        let total = estimates.iter().map(accepted).sum();
        if total < ask_from {
            return Ok(true);
        }
        for estimate in &estimates {
            console.status(estimate.text().trim_end());
            estimate.list.warn(console);
        }
        let is_confirmed = console.confirm(&format!("send {}?", messages(total)));
        if !is_confirmed {
            console.status("nothing was written");
        }
        Ok(is_confirmed)
    }

    async fn estimates(&self) -> anyhow::Result<Vec<ListEstimate>> {
        // By campaign: the same key in two files is one message.
        let mut seen: HashMap<&str, SeenKeys> = HashMap::new();
        let mut estimates = Vec::new();
        for plan in &self.plans {
            let keys = seen.entry(self.options.campaign_of(plan)).or_default();
            estimates.push(self.estimate(plan, keys).await?);
        }
        Ok(estimates)
    }

    async fn estimate(&self, plan: &Plan, seen: &mut SeenKeys) -> anyhow::Result<ListEstimate> {
        let (options, store) = (&self.options, self.store.as_ref());
        let name = options.campaign_of(plan);
        let campaign = match store {
            Some(store) => store.campaign(name).await?,
            None => None,
        };
        let campaign = campaign.as_ref();
        let now = local_now();
        let schedule = options.schedule(now)?;
        let window = options.window_in(campaign)?;
        let starts_at = schedule.due_at.unwrap_or(now);
        let open_for = schedule.expires_at.map(|until| match &window {
            Some(window) => window.open_between(starts_at, until),
            None => until.since(starts_at),
        });
        let prices = options.prices(plan, campaign);
        let currency = prices.currency();
        let price = |phone: &str| prices.of(phone);
        let known = store.map(|store| (store, campaign));
        let progress = self.context.console.progress(None, "checking");
        let preview = plan
            .preview(seen, SAMPLES, known, &price, |rows| progress.set(rows))
            .await?;
        let requirements = options.requirements(campaign)?;
        Ok(ListEstimate {
            interpretation: plan.interpretation(),
            rejects: preview.rejects,
            saved: preview.saved,
            estimate: Estimate {
                messages: preview.summary.accepted,
                stats: preview.stats,
                currency: currency.clone(),
                budget: options.budget_in(campaign),
                route: plan.route(),
                limits: limits(requirements, campaign),
                open_for,
                window,
                starts_at,
            },
            list: Imported {
                file: plan.file().to_owned(),
                campaign: name.to_owned(),
                currency,
                budget: options.budget_in(campaign),
                schedule,
                summary: preview.summary,
                rejects_command: String::new(),
            },
        })
    }
}

/// The limits of the provider and of the campaign.
pub(in crate::commands) fn limits(
    provider: Option<ProviderRequirements>,
    campaign: Option<&Campaign>,
) -> Vec<Rate> {
    let of_provider = provider.map(|needed| needed.rates.0).unwrap_or_default();
    let of_campaign = campaign.iter().flat_map(|campaign| campaign.rate.0.clone());
    of_provider.into_iter().chain(of_campaign).collect()
}
