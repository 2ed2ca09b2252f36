//! What is wrong with settings that are used: `check` lists it, and the commands that use them warn of it.

use smsq_provider::Provider;
use smsq_store::{Store, StoreError};

use super::{Context, with_hint};

/// The error if others can reach the server without a token.
pub(super) fn open_without_token(config: &smsq_serve::Config) -> Option<anyhow::Error> {
    (config.is_open() && config.tokens.expose().is_empty()).then(|| {
        with_hint(
            format!("others can reach `{}`, and no token is set", config.listen),
            "`smsq serve token NAME --role ROLE` makes one; or listen on 127.0.0.1",
        )
    })
}

/// The warning if others reach the server without HTTPS.
pub(super) fn unencrypted(config: &smsq_serve::Config) -> Option<&'static str> {
    let url = config.public_url.as_ref();
    let is_unencrypted =
        !config.listen.ip().is_loopback() && url.is_none_or(|url| url.scheme() != "https");
    is_unencrypted.then_some(
        "tokens and phones are sent without encryption: put a proxy with HTTPS in front, and set `serve.public_url`",
    )
}

/// Why posted receipts of a provider are taken without a check of their signature, although the vendor signs them.
pub(super) fn unchecked_receipts(context: &Context, provider: &Provider) -> Option<String> {
    context.config.serve.receipt_key()?;
    let problem = provider.webhook()?.unchecked_because.as_ref()?;
    let name = provider.name();
    Some(format!("signatures of receipts for `{name}` are not checked: {problem}"))
}

/// Settings of the database server that weaken the promises of smsq.
pub(super) async fn unsafe_settings(store: &Store) -> Result<Option<String>, StoreError> {
    let settings = store.unsafe_settings().await?.join(", ");
    let mut notes = Vec::new();
    if !settings.is_empty() {
        notes.push(format!("{settings}: after a crash of its host messages may be sent twice"));
    }
    if store.commits_early().await? {
        notes.push(
            "the default of the database is synchronous_commit = off: smsq commits with `on`, but a crash may undo what \
             other programs have just inserted"
                .to_owned(),
        );
    }
    Ok((!notes.is_empty()).then(|| notes.join("; ")))
}

/// Warns of settings of the database server that weaken the promises.
pub(super) async fn warn_of_unsafe_settings(
    context: &Context,
    store: &Store,
) -> Result<(), StoreError> {
    if let Some(settings) = unsafe_settings(store).await? {
        context.console.warn(&settings);
    }
    Ok(())
}
