//! Hooks: other programs that get events. Events are read from the outbox in the database and posted, in the
//! form of [Standard Webhooks](https://www.standardwebhooks.com), or passed to the program of section `[notify]`.
//! [`HookRunner`] does this in every process that sends or serves; the lease of a hook keeps two of them from delivering
//! the same event at once. An event is delivered at least once, always with the same id and body.

mod address;
mod client;
mod command;
mod config;
mod delivery;
mod runner;
mod signature;
mod stuck;

use std::sync::Arc;
use std::time::Duration;

use client::HookClient;
use command::NotifyProgram;
use smsq_message::event::{BodyParts, NOTIFY, Subscription, Subscriptions};

pub use client::HookError;
pub use config::{HookConfig, Included, NotifyConfig};
pub use delivery::{DeliveryAttempt, ReceiverAnswer};
pub use runner::{Drained, HookRunner};

/// How events of a hook leave this process.
enum HookTarget {
    Url(HookClient),
    Program(NotifyProgram),
}

/// A hook that events can be delivered to.
pub struct Hook {
    name: String,
    target: HookTarget,
    /// The wait after the first failure, of which the others are multiples.
    first_wait: Duration,
}

impl Hook {
    /// Reads the secret of a hook. `environment` returns the value of a variable.
    pub fn new(
        config: &HookConfig,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, HookError> {
        Ok(Self {
            name: config.name.clone(),
            target: HookTarget::Url(HookClient::new(config, environment)?),
            first_wait: config.first_wait,
        })
    }

    /// The program of section `[notify]`, if it is set.
    pub fn of_program(config: &NotifyConfig) -> Option<Self> {
        Some(Self {
            name: NOTIFY.to_owned(),
            target: HookTarget::Program(NotifyProgram::new(&config.command)?),
            first_wait: config::FIRST_WAIT,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many events are delivered at once.
    fn width(&self) -> usize {
        match self.target {
            HookTarget::Url(_) => 8,
            HookTarget::Program(_) => 1,
        }
    }

    /// Delivers an event once.
    pub async fn deliver(&self, attempt: &DeliveryAttempt<'_>) -> ReceiverAnswer {
        match &self.target {
            HookTarget::Url(client) => client.post(attempt).await,
            HookTarget::Program(program) => program.run(attempt.body).await,
        }
    }
}

/// What the configured hooks want to know.
pub fn subscriptions(hooks: &[HookConfig], notify: &NotifyConfig) -> Arc<Subscriptions> {
    let mut all: Vec<Subscription> = hooks
        .iter()
        .map(|hook| {
            let kinds = hook.events.iter().copied().collect();
            let included = |part| hook.include.contains(&part);
            let parts =
                BodyParts { phones: included(Included::Phone), texts: included(Included::Text) };
            Subscription::new(hook.name.clone(), kinds, parts)
        })
        .collect();
    if !notify.command.is_empty() {
        let kinds = notify.events.iter().copied().collect();
        all.push(Subscription::new(NOTIFY.to_owned(), kinds, BodyParts::default()));
    }
    Arc::new(Subscriptions::new(all))
}
