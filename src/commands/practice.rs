//! Practice: the practice gateway runs inside this process, and the messages go to a database that is marked as
//! practice. Nothing that was named is replaced by it: without a provider, only a command without any configuration
//! practises unasked.

use std::net::{Ipv4Addr, SocketAddr};

use smsq_message::secret::Secret;
use smsq_report::shell_word;
use smsq_sandbox::{Sandbox, SandboxConfig};
use smsq_store::{Mode, Store};

use super::{Context, PRACTICE, providers, with_hint};
use crate::config::{Config, Origin};

const SANDBOX: &str = "sandbox";

/// The gateway of a command that practises.
pub(super) struct Practice {
    sandbox: Sandbox,
    /// `--practice` was given.
    is_asked: bool,
}

/// What decides whether a command that sends practises.
pub(super) struct PracticeRequest<'a> {
    /// `--practice`.
    pub(super) is_asked: bool,
    /// The provider that the command names.
    pub(super) provider: Option<&'a str>,
    /// What shows that the command is not a first try, as errors quote it.
    pub(super) unattended: Option<&'static str>,
}

impl PracticeRequest<'_> {
    /// `--practice`, and nothing else that matters.
    pub(super) const ASKED: Self = Self { is_asked: true, provider: None, unattended: None };

    /// Whether the command practises. Fails where it can neither do that nor send to a provider.
    fn decide(&self, config: &Config) -> anyhow::Result<Mode> {
        if self.is_asked {
            return self.check_named(config).map(|()| Mode::Practice);
        }
        if self.provider.is_some() || config.default_provider.is_some() {
            return Ok(Mode::Real);
        }
        if !config.own_providers.is_empty() {
            let hint = "choose one with `--provider NAME`, or set `default_provider`";
            return Err(providers::ambiguous(config, hint));
        }
        match config.named.as_deref().or(self.unattended) {
            None => Ok(Mode::Practice),
            Some(named) => Err(no_provider(Some(named))),
        }
    }

    /// Fails if the command names what practice would replace.
    fn check_named(&self, config: &Config) -> anyhow::Result<()> {
        if let Some(provider) = self.provider {
            return Err(with_hint(
                format!("`--practice` sends nothing through provider `{provider}`"),
                "omit `--provider`, or `--practice`",
            ));
        }
        match &config.database_origin {
            Origin::Default | Origin::Flag(_) => Ok(()),
            origin @ (Origin::File(..) | Origin::Variable(_)) => Err(with_hint(
                format!(
                    "`--practice` uses a database of its own, and {origin} sets `database.url`"
                ),
                format!("add `--database sqlite://{PRACTICE}`"),
            )),
        }
    }
}

/// The error where no provider is configured. `named`: why the command does not practise unasked.
pub(super) fn no_provider(named: Option<&str>) -> anyhow::Error {
    let because = named.map(|named| format!("; with `{named}` smsq practises only if asked"));
    with_hint(
        format!("no provider is configured{}", because.unwrap_or_default()),
        "`smsq init` writes a file that describes one; `--practice` practises, and no phone gets a message",
    )
}

impl Practice {
    /// Starts the gateway if the command practises, and makes it the only provider.
    pub(super) fn start(
        context: &mut Context,
        request: &PracticeRequest<'_>,
    ) -> anyhow::Result<Option<Self>> {
        if request.decide(&context.config)? == Mode::Real {
            return Ok(None);
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sandbox = Sandbox::start(address, SandboxConfig::default())?;
        context.mode = Mode::Practice;
        configure(&mut context.config, sandbox.url());
        Ok(Some(Self { sandbox, is_asked: request.is_asked }))
    }

    /// Says what practice is.
    pub(super) fn notice(&self, store: &Store) -> String {
        let because = if self.is_asked {
            "a practice gateway"
        } else {
            "no provider is configured, so a practice gateway"
        };
        format!(
            "practice: {because} in this process accepts the messages, and nothing leaves this machine. \
             The database is `{}`.",
            store.location()
        )
    }

    pub(super) async fn stop(self) {
        self.sandbox.stop().await;
    }
}

/// Makes the gateway the only one that gets anything: no other provider and no hook can be reached.
fn configure(config: &mut Config, url: String) {
    let mut section = toml::Table::new();
    section.insert("kind".to_owned(), SANDBOX.into());
    section.insert("url".to_owned(), url.into());
    config.providers = [(SANDBOX.to_owned(), section)].into();
    config.own_providers.clear();
    config.routes.clear();
    config.default_provider = Some(SANDBOX.to_owned());
    config.hooks.clear();
    config.notify.command.clear();
    if config.database_origin == Origin::Default {
        config.database.url = Secret::new(format!("sqlite://{PRACTICE}"));
    }
}

/// The flags with which `run` and `send` use this database again; empty for one that is not for practice.
pub(super) fn flags(store: &Store) -> String {
    match (store.mode(), store.location(), store.file()) {
        (Mode::Real, ..) => String::new(),
        (Mode::Practice, PRACTICE, _) => " --practice".to_owned(),
        (Mode::Practice, location, file) => {
            let scheme = file.map_or("", |_| "sqlite://");
            let url = shell_word(&format!("{scheme}{location}"));
            format!(" --practice --database {url}")
        }
    }
}

impl Context {
    /// Fails if messages of the database would go to a provider although they are practice, or to the practice gateway
    /// although they are not.
    pub(super) fn check_mode(&self, store: &Store) -> anyhow::Result<()> {
        let location = store.location();
        match (self.mode, store.mode()) {
            (Mode::Real, Mode::Real) | (Mode::Practice, Mode::Practice) => Ok(()),
            (Mode::Real, Mode::Practice) => Err(with_hint(
                format!(
                    "`{location}` is a practice database: its messages are not sent to a provider"
                ),
                "name another database, or add `--practice` to `run`, `send` or `serve`",
            )),
            (Mode::Practice, Mode::Real) => Err(with_hint(
                format!(
                    "`{location}` is not a practice database: `--practice` sends none of its messages"
                ),
                if location == PRACTICE {
                    "remove it if an earlier version made it, or name a new one with `--practice --database`"
                } else {
                    "name a new database with `--database`, or omit `--practice`"
                },
            )),
        }
    }
}
