//! Checks before an import writes anything: what the provider requires, how many rows would be rejected,
//! whether another campaign has the list.

use std::sync::Arc;
use std::time::Duration;

use super::List;
use crate::commands::{Context, providers, with_hint};
use crate::import::{Plan, ProviderRequirements, RowCheck, SeenKeys};
use crate::phone::Phone;
use crate::provider::{Message, Provider};
use crate::store::{Campaign, Store};
use crate::text::{counted, duration};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A placeholder as long as the references that messages get when they are claimed.
const REFERENCE: &str = "00000000-0000-0000-0000-000000000000";

/// What the provider of a list requires of its rows; `None` if it sends any text, or is not configured.
pub(super) fn requirements(
    list: &List,
    campaign: Option<&Campaign>,
    context: &Context,
) -> anyhow::Result<Option<ProviderRequirements>> {
    let provider = configured(list.provider_for(campaign, context), context)?;
    let Some(provider) = provider.filter(Provider::reads_columns) else {
        return Ok(None);
    };
    let columns = provider.columns().into_iter();
    Ok(Some(ProviderRequirements {
        provider: provider.name().to_owned(),
        columns: columns.map(str::to_owned).collect(),
        template: provider.template_text().map(str::to_owned),
        check: row_check(provider, list.sender_for(campaign).cloned()),
    }))
}

/// Returns the check for queued messages, which returns the text that the recipient sees.
pub(in crate::commands) fn queue_check(
    campaign: &Campaign,
    provider: Option<&String>,
    context: &Context,
) -> anyhow::Result<Option<RowCheck>> {
    let provider = configured(provider, context)?.filter(Provider::reads_columns);
    Ok(provider.map(|provider| row_check(provider, campaign.sender.clone())))
}

fn row_check(provider: Provider, sender: Option<String>) -> RowCheck {
    Arc::new(move |row| {
        let message = Message {
            phone: Phone::parse(&row.phone, None).map_err(|error| error.to_string())?,
            content: row.content.clone(),
            reference: REFERENCE.to_owned(),
            from: sender.clone(),
            params: serde_json::from_str(&row.params).unwrap_or_default(),
        };
        provider
            .validate(&message)
            .map_err(|failure| failure.reason)?;
        Ok(provider.preview(&message))
    })
}

/// The provider of that name if it is configured. Its secrets are not needed to check messages.
fn configured(name: Option<&String>, context: &Context) -> anyhow::Result<Option<Provider>> {
    let name = name.filter(|name| context.config.providers.contains_key(*name));
    name.map(|name| providers::without_secrets(context, name))
        .transpose()
}

/// Fails if the provider needs a sender and none is set: it would reject every message.
pub(super) fn check_sender(
    list: &List,
    campaign: Option<&Campaign>,
    context: &Context,
) -> anyhow::Result<()> {
    if list.sender_for(campaign).is_some() {
        return Ok(());
    }
    let provider = configured(list.provider_for(campaign, context), context)?;
    let Some(provider) = provider.filter(Provider::needs_sender) else {
        return Ok(());
    };
    Err(providers::sender_needed(provider.name()))
}

/// Fails if rejected rows could not be written, or if there would be more of them than allowed.
pub(in crate::commands) async fn check_rejects(
    list: &List,
    plans: &[Plan],
    context: &Context,
) -> anyhow::Result<()> {
    for plan in plans {
        plan.check_rejects()?;
    }
    let Some(limit) = list.max_rejects.or(context.config.import.max_rejects) else {
        return Ok(());
    };
    for plan in plans {
        let progress = context.console.progress(None, "checking");
        let mut seen = SeenKeys::default();
        let preview = plan.preview(&mut seen, 0, None, &|_| None, |rows| progress.set(rows));
        let summary = preview.await?.summary;
        if !limit.allows(summary.rejected, summary.rows) {
            let (file, rejected, rows) = (plan.file(), summary.rejected, summary.rows);
            let reasons = summary.frequent_reasons();
            let (kind, count) = reasons.first().copied().unwrap_or_default();
            let count = counted(count, "row");
            return Err(with_hint(
                format!(
                    "`{file}`: {rejected} of {rows} rows would be rejected, and `max_rejects` is {limit}"
                ),
                format!(
                    "nothing was written; most frequent: {kind} ({count}); `--dry-run` shows some of them"
                ),
            ));
        }
    }
    Ok(())
}

/// Fails if another campaign has imported one of the lists within a day, unless the user confirms it.
pub(in crate::commands) async fn check_again(
    list: &List,
    plans: &[Plan],
    context: &Context,
    store: &Store,
) -> anyhow::Result<()> {
    if list.again {
        return Ok(());
    }
    for plan in plans {
        let (name, now) = (list.campaign_for(plan), store.now().await?);
        let other = store
            .imported_elsewhere(plan.hash(), name, now.minus(DAY))
            .await?;
        let Some((campaign, at)) = other else {
            continue;
        };
        let (file, ago) = (plan.file(), duration(now.since(at)));
        let again = format!("`{file}` was imported into campaign `{campaign}` {ago} ago");
        let question = format!("{again}. Import it into `{name}` too?");
        if !context.console.can_ask() || !context.console.confirm(&question) {
            return Err(with_hint(
                again,
                "every recipient in it would get a message of this campaign too: add `--again` to do that",
            ));
        }
    }
    Ok(())
}
