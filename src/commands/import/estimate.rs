//! What sending a list would be like, before it is imported: `--dry-run`, and the question that `run` asks
//! before a large campaign.

use std::collections::HashMap;

use serde_json::{Value, json};
use smsq_import::{Plan, SeenKeys};
use smsq_message::text::messages;
use smsq_operations::ListEstimate;
use smsq_process::exit::Exit;

use super::PreparedLists;
use super::output::{self, list_text, warn_of_numbers};

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
                context.console.print(&list_text(estimate))?;
            }
            warn_of_numbers(&estimate.list, &context.console);
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
            console.status(list_text(estimate).trim_end());
            warn_of_numbers(&estimate.list, console);
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
        let progress = self.context.console.progress(None, "checking");
        let store = self.store.as_ref();
        let rows = |rows| progress.set(rows);
        Ok(self.options.estimate(plan, seen, store, false, rows).await?)
    }
}
