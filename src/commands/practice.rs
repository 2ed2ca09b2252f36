//! Practice: while no provider is configured, the sandbox runs inside this process, and the messages go to a database of
//! their own.

use std::net::{Ipv4Addr, SocketAddr};

use super::{Context, PRACTICE, providers};
use crate::sandbox::{Sandbox, SandboxConfig};
use crate::secret::Secret;

const SANDBOX: &str = "sandbox";

/// The gateway of a command that practises.
pub(super) struct Practice(Sandbox);

impl Practice {
    /// Starts the sandbox, and configures it as the provider. Fails if providers are configured and none is the default.
    pub(super) fn start(context: &mut Context) -> anyhow::Result<Self> {
        if !context.config.own_providers.is_empty() {
            let hint = "choose one with `--provider NAME`, or set `default_provider`";
            return Err(providers::ambiguous(&context.config, hint));
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sandbox = Sandbox::start(address, SandboxConfig::default())?;
        let config = &mut context.config;
        let section = config.providers.entry(SANDBOX.to_owned()).or_default();
        section.insert("kind".to_owned(), SANDBOX.into());
        section.insert("url".to_owned(), sandbox.url().into());
        config.default_provider = Some(SANDBOX.to_owned());
        // Nothing leaves this machine.
        config.hooks.clear();
        config.notify.command.clear();
        config.database.url = Secret::new(format!("sqlite://{PRACTICE}"));
        Ok(Self(sandbox))
    }

    pub(super) async fn stop(self) {
        self.0.stop().await;
    }
}

/// Says what practice is.
pub(super) fn notice() -> String {
    format!(
        "practice: no provider is configured, so a practice gateway in this process accepts the messages, \
         and nothing leaves this machine. The database is `{PRACTICE}`."
    )
}
