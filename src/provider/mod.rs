//! A provider is a third-party SMS API, and here it is two pure functions: a message becomes an HTTP
//! request, and an HTTP response becomes an outcome. No clock, no network, no randomness: what they
//! need of those comes in a [`RequestContext`], and [`client`] alone does HTTP.

mod aliyun;
mod answer;
mod aws;
mod aws_sms;
mod aws_sns;
mod builtin;
mod calls;
mod capabilities;
pub mod client;
#[cfg(test)]
mod code_tests;
mod codes;
mod forms;
mod generic;
mod huawei;
mod infobip;
mod kannel;
mod mainland;
mod parameters;
mod quote;
mod reading;
mod sandbox;
mod secrets;
mod sign;
mod sms_gate;
mod stanza;
mod telnyx;
mod tencent;
#[cfg(test)]
mod testing;
mod twilio;
mod vendor;
pub mod verdict;
mod vonage;
mod yunpian;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use crate::phone::Phone;
use crate::rate::Rates;
use crate::sms::{Failure, Outcome, Timestamp};
pub use builtin::{builtin, complete, over};
pub use capabilities::{Answers, Attempt, Capabilities, Lookup, LookupResult, Reference, Writes};
pub use codes::Listed;
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
pub struct RequestContext {
    pub now: Timestamp,
    pub nonce: u128,
}

/// A configured provider.
#[derive(Debug)]
pub enum Provider {
    Generic(Box<generic::Generic>),
    Sandbox(Box<sandbox::Sandbox>),
    Vendor(Box<vendor::Vendor>),
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
    #[error(
        "provider `{provider}`: cannot read secret `{secret}` from `{path}`: {problem}\n\
         hint: write the secret into that file, or name another file or an environment variable in `secrets`",
        path = path.display()
    )]
    SecretFile {
        provider: String,
        secret: String,
        path: PathBuf,
        problem: std::io::Error,
    },
}

impl Provider {
    /// Reads table `[providers.NAME]`. `environment` looks a variable up, for the secrets.
    pub fn from_stanza(
        name: &str,
        stanza: &toml::Table,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let table = &complete(stanza);
        let stanza = Stanza { name, table };
        let kind: String = stanza.required("kind")?;
        let vendor = vendor::KINDS.into_iter().find(|known| *known == kind);
        match (kind.as_str(), vendor) {
            (_, Some(kind)) => vendor::Vendor::read(&stanza, kind, environment)
                .map(|it| Self::Vendor(Box::new(it))),
            ("generic", _) => {
                generic::Generic::read(&stanza, environment).map(|it| Self::Generic(Box::new(it)))
            }
            ("sandbox", _) => sandbox::Sandbox::read(&stanza).map(|it| Self::Sandbox(Box::new(it))),
            _ => {
                let known: Vec<&str> = builtin().iter().map(|(kind, _)| *kind).collect();
                Err(ProviderError::UnknownKind {
                    provider: name.to_owned(),
                    hint: stanza::closest(&kind, &known),
                    kind,
                })
            }
        }
    }

    /// The name of its stanza.
    pub fn name(&self) -> &str {
        match self {
            Self::Generic(generic) => generic.name(),
            Self::Sandbox(sandbox) => sandbox.name(),
            Self::Vendor(vendor) => vendor.name(),
        }
    }

    /// The word in `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Generic(_) => "generic",
            Self::Sandbox(_) => "sandbox",
            Self::Vendor(vendor) => vendor.kind(),
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

    /// Whether the vendor accepts at most one message per reference; [`Capabilities::honoured_for`] says how long.
    pub fn honours_reference(&self) -> bool {
        self.capabilities().honoured_for().is_some()
    }

    /// How many messages one request can carry.
    pub fn most_per_call(&self) -> usize {
        match self {
            Self::Generic(generic) => generic.capabilities().most_per_call,
            Self::Vendor(vendor) => vendor.capabilities().most_per_call,
            Self::Sandbox(sandbox) => sandbox.capabilities().most_per_call,
        }
    }

    /// What the vendor can do.
    pub fn capabilities(&self) -> Capabilities {
        match self {
            Self::Generic(generic) => generic.capabilities(),
            Self::Sandbox(sandbox) => sandbox.capabilities(),
            Self::Vendor(vendor) => vendor.capabilities(),
        }
    }

    /// What the vendor's codes mean, in their order.
    pub fn codes(&self) -> Vec<Listed> {
        match self {
            Self::Generic(generic) => generic.codes().listed(),
            Self::Sandbox(sandbox) => sandbox.codes().listed(),
            Self::Vendor(vendor) => vendor.codes().listed(),
        }
    }

    /// Whether its table names the code; a pattern that covers it is not enough.
    pub fn lists(&self, code: &str) -> bool {
        let codes = match self {
            Self::Generic(generic) => generic.codes(),
            Self::Sandbox(sandbox) => sandbox.codes(),
            Self::Vendor(vendor) => vendor.codes(),
        };
        codes.names(code)
    }

    /// The settings without which every message would be refused.
    pub fn missing(&self) -> Vec<&'static str> {
        match self {
            Self::Generic(_) | Self::Sandbox(_) => Vec::new(),
            Self::Vendor(vendor) => vendor.missing(),
        }
    }

    /// Whether no message can be sent unless its campaign names a sender.
    pub fn needs_sender(&self) -> bool {
        match self {
            Self::Generic(generic) => generic.needs_sender(),
            Self::Sandbox(_) => false,
            Self::Vendor(vendor) => vendor.needs_sender(),
        }
    }

    /// What looks wrong about the request, or about the credentials by their shape; nothing is sent to find out.
    pub fn doubts(&self) -> Vec<String> {
        match self {
            Self::Generic(generic) => generic.doubts(),
            Self::Sandbox(_) => Vec::new(),
            Self::Vendor(vendor) => vendor.doubts(),
        }
    }

    /// What the recipient will see where that is a template of the vendor's, and its text was given.
    pub fn preview(&self, message: &Message) -> Option<Result<String, Outcome>> {
        match self {
            Self::Generic(_) | Self::Sandbox(_) => None,
            Self::Vendor(vendor) => vendor.preview(message),
        }
    }

    /// The columns without which no message can be sent: they fill the parameters of the vendor's template.
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Self::Generic(_) | Self::Sandbox(_) => Vec::new(),
            Self::Vendor(vendor) => vendor.parameters().columns(),
        }
    }

    /// The text of the vendor's template, where the operator gave it.
    pub fn template_text(&self) -> Option<&str> {
        match self {
            Self::Generic(_) | Self::Sandbox(_) => None,
            Self::Vendor(vendor) => vendor.parameters().text(),
        }
    }

    /// Whether the columns of a message have a say in [`Provider::fits`] and [`Provider::preview`].
    pub fn reads_columns(&self) -> bool {
        match self {
            Self::Generic(generic) => generic.reads_columns(),
            Self::Sandbox(_) => false,
            Self::Vendor(_) => !self.columns().is_empty() || self.template_text().is_some(),
        }
    }

    /// Why the message itself could never be sent: a column that is missing or empty, a value that is too long
    /// or has an address in it that the vendor forbids.
    pub fn fits(&self, message: &Message) -> Result<(), Failure> {
        let context = RequestContext {
            now: Timestamp::default(),
            nonce: 0,
        };
        let outcome = match self {
            Self::Generic(generic) => {
                let made = generic.request(std::slice::from_ref(message), &context);
                made.map(drop)
            }
            Self::Sandbox(_) => Ok(()),
            Self::Vendor(vendor) => vendor.fits(message),
        };
        match outcome {
            Err(Outcome::Rejected(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Whether `next` may go in one request with those `taken`. False for a message that cannot be sent at all:
    /// it goes alone, and [`Provider::request`] says why.
    pub fn joins(&self, taken: &[Message], next: &Message) -> bool {
        match self {
            Self::Generic(generic) => generic.joins(taken, next),
            Self::Sandbox(sandbox) => sandbox.joins(taken, next),
            Self::Vendor(vendor) => vendor.joins(taken, next),
        }
    }

    /// The request that sends `messages`, or what becomes of them where there can be none. Several messages are
    /// such as [`Provider::joins`] allows.
    pub fn request(
        &self,
        messages: &[Message],
        context: &RequestContext,
    ) -> Result<http::Request<Bytes>, Outcome> {
        match self {
            Self::Generic(generic) => generic.request(messages, context),
            Self::Sandbox(sandbox) => sandbox.request(messages),
            Self::Vendor(vendor) => vendor.request(messages, context),
        }
    }

    /// What the response means for each of `messages`, in their order; always as many.
    pub fn answer(
        &self,
        messages: &[Message],
        response: &http::Response<Bytes>,
        context: &RequestContext,
    ) -> Vec<Outcome> {
        let mut outcomes = match self {
            Self::Generic(generic) => generic.answer(messages, response, context),
            Self::Sandbox(sandbox) => sandbox.answer(messages, response, context),
            Self::Vendor(vendor) => vendor.answer(messages, response, context.now),
        };
        if let Some(secrets) = self.secrets() {
            for outcome in &mut outcomes {
                answer::without_secrets(outcome, secrets);
            }
        }
        outcomes
    }

    /// Whether a text of another program repeats a secret of this provider, also in encoded form.
    pub fn is_repeated_in(&self, text: &str) -> bool {
        self.secrets().is_some_and(|secrets| secrets.occur_in(text))
    }

    fn secrets(&self) -> Option<&forms::Forms> {
        match self {
            Self::Generic(generic) => Some(generic.secrets()),
            Self::Sandbox(_) => None,
            Self::Vendor(vendor) => Some(vendor.secrets()),
        }
    }

    /// The requests that ask the vendor for a message of which an attempt had no clear outcome; `None` where it
    /// cannot be asked. When and how often to ask is in [`Capabilities::lookup`].
    pub fn lookup(
        &self,
        message: &Message,
        attempt: Attempt,
        context: &RequestContext,
    ) -> Option<Result<Vec<http::Request<Bytes>>, Outcome>> {
        match self {
            Self::Generic(generic) => generic.lookup(message, attempt),
            Self::Sandbox(_) => None,
            Self::Vendor(vendor) => vendor.lookup(message, attempt, context),
        }
    }

    /// The ids in the responses to [`Provider::lookup`] that may be those of other messages.
    pub fn ids(&self, responses: &[http::Response<Bytes>]) -> Vec<String> {
        match self {
            Self::Generic(generic) => generic.ids(responses),
            Self::Sandbox(_) => Vec::new(),
            Self::Vendor(vendor) => vendor.ids(responses),
        }
    }

    /// What the responses to [`Provider::lookup`] say of the message.
    pub fn found(
        &self,
        message: &Message,
        attempt: Attempt,
        answers: &Answers<'_>,
    ) -> LookupResult {
        let mut finding = match self {
            Self::Generic(generic) => generic.found(message, attempt, answers),
            Self::Sandbox(_) => vendor::unclear("this provider cannot be asked".to_owned()),
            Self::Vendor(vendor) => vendor.found(message, attempt, answers),
        };
        if let (LookupResult::NotAccepted(outcome), Some(secrets)) = (&mut finding, self.secrets())
        {
            answer::without_secrets(outcome, secrets);
        }
        finding
    }

    fn connection(&self) -> &Connection {
        match self {
            Self::Generic(generic) => generic.connection(),
            Self::Sandbox(sandbox) => sandbox.connection(),
            Self::Vendor(vendor) => vendor.connection(),
        }
    }

    fn base(&self) -> &url::Url {
        match self {
            Self::Generic(generic) => generic.base(),
            Self::Sandbox(sandbox) => sandbox.base(),
            Self::Vendor(vendor) => vendor.base(),
        }
    }
}

/// Host, and port where it is not the scheme's own: as it stands in header `Host`, which some vendors have signed.
fn authority(url: &url::Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
