//! What the provider of a campaign needs of the rows of a list, in the import's words.

use std::sync::Arc;

use super::List;
use crate::commands::{Context, hinted, providers};
use crate::import::{ProviderRequirements, RowCheck};
use crate::phone::Phone;
use crate::provider::{Message, Provider};
use crate::store::Campaign;

/// As long as the references that messages get when they are claimed.
const REFERENCE: &str = "00000000-0000-0000-0000-000000000000";

/// The provider that would send a list: the one that is asked for, else the campaign's, else the default one.
pub(super) fn provider_of<'a>(
    list: &'a List,
    campaign: Option<&'a Campaign>,
    context: &'a Context,
) -> Option<&'a String> {
    let of_campaign = campaign.and_then(|campaign| campaign.provider.as_ref());
    let default = context.config.default_provider.as_ref();
    list.provider.as_ref().or(of_campaign).or(default)
}

/// `None` where the provider takes any text, or where none is configured.
pub(super) fn of(
    list: &List,
    campaign: Option<&Campaign>,
    context: &Context,
) -> anyhow::Result<Option<ProviderRequirements>> {
    let Some(provider) = described(provider_of(list, campaign, context), context)? else {
        return Ok(None);
    };
    let sender = list
        .from
        .clone()
        .or_else(|| campaign.and_then(|campaign| campaign.sender.clone()));
    if !provider.reads_columns() {
        return Ok(None);
    }
    Ok(Some(ProviderRequirements {
        provider: provider.name().to_owned(),
        columns: provider.columns().into_iter().map(str::to_owned).collect(),
        template: provider.template_text().map(str::to_owned),
        fits: fits(provider, sender),
    }))
}

/// Fails where the provider needs a sender and none is set: every message would be refused.
pub(super) fn check_sender(
    list: &List,
    campaign: Option<&Campaign>,
    context: &Context,
) -> anyhow::Result<()> {
    let of_campaign = campaign.and_then(|campaign| campaign.sender.as_ref());
    if list.from.as_ref().or(of_campaign).is_some() {
        return Ok(());
    }
    match described(provider_of(list, campaign, context), context)? {
        Some(provider) if provider.needs_sender() => {
            let name = provider.name();
            Err(hinted(
                format!("provider `{name}` needs a sender, and none is set"),
                Some(format!(
                    "name one with `--from`, or set `from` in [providers.{name}]"
                )),
            ))
        }
        _ => Ok(()),
    }
}

/// What the recipients of a campaign see, where the provider makes that of their columns.
pub(in crate::commands) fn of_queue(
    campaign: &Campaign,
    context: &Context,
) -> anyhow::Result<Option<RowCheck>> {
    let default = context.config.default_provider.as_ref();
    let name = campaign.provider.as_ref().or(default);
    let provider = described(name, context)?.filter(Provider::reads_columns);
    Ok(provider.map(|provider| fits(provider, campaign.sender.clone())))
}

/// The provider of that name if it is described.
fn described(name: Option<&String>, context: &Context) -> anyhow::Result<Option<Provider>> {
    match name.filter(|name| context.config.providers.contains_key(*name)) {
        Some(name) => providers::without_secrets(context, name).map(Some),
        None => Ok(None),
    }
}

fn fits(provider: Provider, sender: Option<String>) -> RowCheck {
    Arc::new(move |row| {
        let message = Message {
            phone: Phone::parse(&row.phone, None).map_err(|error| error.to_string())?,
            content: row.content.clone(),
            reference: REFERENCE.to_owned(),
            from: sender.clone(),
            params: serde_json::from_str(&row.params).unwrap_or_default(),
        };
        provider.fits(&message).map_err(|failure| failure.reason)?;
        Ok(provider.preview(&message).and_then(Result::ok))
    })
}
