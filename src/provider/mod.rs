//! A provider is a third-party SMS API, and here it is two pure functions: a message becomes an HTTP
//! request, and an HTTP response becomes an outcome. No clock, no network, no randomness: what they
//! need of those comes in a [`Stamp`], and [`gateway`] alone does HTTP.

mod codes;
pub mod gateway;
mod generic;
mod quote;
mod reading;
mod sandbox;
mod secrets;
mod stanza;
#[cfg(test)]
mod testing;
pub mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use crate::phone::Phone;
use crate::rate::Rates;
use crate::sms::{Outcome, Timestamp};
use stanza::{Connection, Stanza};

/// One message as a provider needs to know it.
#[derive(Clone, Debug)]
pub struct Message {
    pub phone: Phone,
    pub content: String,
    /// Our id for the message, the same through every automatic resend; at most 36 characters.
    pub reference: String,
    /// The sender that the campaign asks for; else the provider's own setting decides.
    pub from: Option<String>,
    /// The imported columns.
    pub params: serde_json::Map<String, serde_json::Value>,
}

/// What a request may know of the moment in which it is made.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub now: Timestamp,
    pub nonce: u128,
}

/// A configured provider.
#[derive(Debug)]
pub enum Provider {
    Generic(Box<generic::Generic>),
    Sandbox(Box<sandbox::Sandbox>),
}

/// Why a stanza describes no provider; the message names the provider and the key.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("provider `{provider}`: `kind = \"{kind}\"` is no kind of provider{hint}")]
    UnknownKind {
        provider: String,
        kind: String,
        hint: String,
    },
    #[error("provider `{provider}`: unknown key `{key}`{hint}")]
    UnknownKey {
        provider: String,
        key: String,
        hint: String,
    },
    #[error("provider `{provider}`: `{key}` is missing")]
    MissingKey { provider: String, key: String },
    #[error("provider `{provider}`: `{key}`: {problem}")]
    Key {
        provider: String,
        key: String,
        problem: String,
    },
    #[error(
        "provider `{provider}`: secret `{secret}` is not set: the environment variable `{variable}` is missing or empty"
    )]
    UnsetSecret {
        provider: String,
        secret: String,
        variable: String,
    },
    #[error("provider `{provider}`: secret `{secret}` cannot be read from `{path}`: {source}", path = path.display())]
    SecretFile {
        provider: String,
        secret: String,
        path: PathBuf,
        source: std::io::Error,
    },
}

/// What `kind` can be.
const KINDS: [&str; 2] = ["generic", "sandbox"];

impl Provider {
    /// Reads table `[providers.NAME]`. `environment` looks a variable up, for the secrets.
    pub fn from_stanza(
        name: &str,
        stanza: &toml::Table,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let stanza = Stanza {
            name,
            table: stanza,
        };
        match stanza.required::<String>("kind")?.as_str() {
            "generic" => {
                generic::Generic::read(&stanza, environment).map(|it| Self::Generic(Box::new(it)))
            }
            "sandbox" => sandbox::Sandbox::read(&stanza).map(|it| Self::Sandbox(Box::new(it))),
            kind => Err(ProviderError::UnknownKind {
                provider: name.to_owned(),
                kind: kind.to_owned(),
                hint: stanza::closest(kind, &KINDS),
            }),
        }
    }

    /// The name of its stanza.
    pub fn name(&self) -> &str {
        match self {
            Self::Generic(generic) => generic.name(),
            Self::Sandbox(sandbox) => sandbox.name(),
        }
    }

    /// The word in `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Generic(_) => "generic",
            Self::Sandbox(_) => "sandbox",
        }
    }

    /// Scheme, host and port, without path and query.
    pub fn origin(&self) -> String {
        self.base().origin().ascii_serialization()
    }

    /// The limits of the account.
    pub fn rates(&self) -> &Rates {
        &self.connection().rates
    }

    /// Whether the rates count segments, not messages.
    pub fn rates_count_segments(&self) -> bool {
        self.connection().by_segments
    }

    /// For a whole request, from the connection to the last byte of the answer.
    pub fn timeout(&self) -> Duration {
        self.connection().timeout
    }

    /// How long a connection is kept without use.
    pub fn idle(&self) -> Duration {
        self.connection().idle
    }

    /// Whether the vendor accepts at most one message per reference.
    pub fn honours_reference(&self) -> bool {
        match self {
            Self::Generic(generic) => generic.honours_reference(),
            Self::Sandbox(_) => true,
        }
    }

    /// How many messages one request can carry.
    pub fn batch(&self) -> usize {
        1
    }

    /// The request that sends `messages`, or what becomes of them where there can be none.
    pub fn request(
        &self,
        messages: &[Message],
        stamp: &Stamp,
    ) -> Result<http::Request<Bytes>, Outcome> {
        match self {
            Self::Generic(generic) => generic.request(messages, stamp),
            Self::Sandbox(sandbox) => sandbox.request(messages),
        }
    }

    /// What the response means for each of `messages`, in their order; always as many.
    pub fn answer(
        &self,
        messages: &[Message],
        response: &http::Response<Bytes>,
        stamp: &Stamp,
    ) -> Vec<Outcome> {
        match self {
            Self::Generic(generic) => generic.answer(messages, response, stamp),
            Self::Sandbox(sandbox) => sandbox.answer(messages, response, stamp),
        }
    }

    fn connection(&self) -> &Connection {
        match self {
            Self::Generic(generic) => generic.connection(),
            Self::Sandbox(sandbox) => sandbox.connection(),
        }
    }

    fn base(&self) -> &url::Url {
        match self {
            Self::Generic(generic) => generic.base(),
            Self::Sandbox(sandbox) => sandbox.base(),
        }
    }
}

/// The stanzas that come with smsq, by the kind they show: complete TOML with comments, each a table
/// `[providers.NAME]` to copy. `generic` is an example and `sandbox` works as it stands.
pub fn builtin() -> &'static [(&'static str, &'static str)] {
    &[
        (
            "sandbox",
            include_str!("../../config/providers/sandbox.toml"),
        ),
        (
            "generic",
            include_str!("../../config/providers/generic.toml"),
        ),
    ]
}
