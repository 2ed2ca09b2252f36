//! What the sections of all providers have in common: the settings, and what the adapter of the kind can do.

pub(super) mod account;
pub(super) mod secrets;
pub(super) mod section;
pub(super) mod template_params;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use smsq_message::rate::Rates;
use smsq_message::route::sender_pool::{PoolSender, SenderPool};
use smsq_message::sms::Outcome;
use toml::Table;
use url::{Position, Url};

use super::capabilities::{Capabilities, ContentMode, Lookup, Reference};
use super::codes::Codes;
use super::codes::status::{certain_because, is_doubtful};
use super::units::{rates, span};
use super::{Message, account_error};
use secrets::{SecretFormat, Secrets};
use section::{ProviderError, Section};
use template_params::TemplateParams;

/// The settings that every provider has.
#[expect(clippy::struct_excessive_bools, reason = "each is a setting or a fact of its own")]
pub(super) struct ProviderConfig {
    pub(super) name: String,
    /// Whose limits are those of its messages.
    pub(super) account: String,
    pub(super) kind: &'static str,
    pub(super) url: Url,
    /// The sender of campaigns that name none.
    pub(super) from: Option<String>,
    /// The senders that its messages are divided among, instead of `from`.
    pub(super) senders: Option<Arc<SenderPool>>,
    pub(super) secrets: Secrets,
    pub(super) codes: Codes,
    pub(super) capabilities: Capabilities,
    /// Whether a message without a sender cannot be sent.
    pub(super) requires_sender: bool,
    /// Whether requests depend on imported columns.
    pub(super) reads_columns: bool,
    /// The columns without which no request can be made, in addition to those of the template.
    pub(super) needed_columns: BTreeSet<String>,
    /// About the settings; those about secrets are not among them.
    pub(super) warnings: Vec<String>,
    pub(super) timeout: Duration,
    pub(super) idle: Duration,
    pub(super) rates: Rates,
    pub(super) rates_count_segments: bool,
    /// A price of 0 means that the message was free.
    pub(super) believes_zero_price: bool,
    /// Keys that must be set and are not.
    pub(super) required: Vec<String>,
    /// Empty unless the API sends templates.
    pub(super) template: TemplateParams,
}

impl ProviderConfig {
    /// A secret; empty where it is optional and not set.
    pub(super) fn secret(&self, name: &str) -> &str {
        self.secrets.get(name).unwrap_or_default()
    }

    pub(super) fn sender<'a>(&'a self, message: &'a Message) -> Option<&'a str> {
        message.from.as_deref().or(self.from.as_deref())
    }

    pub(super) fn required_sender<'a>(&'a self, message: &'a Message) -> Result<&'a str, Outcome> {
        self.sender(message).ok_or_else(|| {
            account_error("needs a sender, and neither the campaign nor the provider has one")
        })
    }

    /// The URL with more path segments, each percent-encoded.
    pub(super) fn url_with(&self, segments: &[&str]) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// Host, and port where it is not the default one: the value of header `Host`, which some vendors have signed.
    pub(super) fn host(&self) -> &str {
        &self.url[Position::BeforeHost..Position::AfterPort]
    }
}

/// The keys that every kind of provider has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharedSettings {
    pub(super) url: Option<String>,
    pub(super) from: Option<String>,
    #[serde(default)]
    senders: Vec<SenderSettings>,
    #[serde(default)]
    secrets: BTreeMap<String, SecretSource>,
    #[serde(default)]
    secret_formats: BTreeMap<String, SecretFormat>,
    #[serde(default)]
    codes: Codes,
    /// Statuses in doubt by default with which the vendor certainly does not accept a message.
    #[serde(default)]
    certain_status: Vec<u16>,
    pub(super) lookup: Option<Table>,
    #[serde(default, deserialize_with = "span")]
    timeout: Option<Duration>,
    #[serde(default, deserialize_with = "span")]
    idle: Option<Duration>,
    #[serde(default, deserialize_with = "rates")]
    rate: Rates,
    #[serde(default)]
    rate_counts: Counted,
    account: Option<String>,
    #[serde(default)]
    zero_price: ZeroPrice,
    #[serde(default)]
    required: Vec<String>,
}

/// The value of `rate`.
#[derive(Default, Deserialize)]
pub(super) struct RateSetting(#[serde(deserialize_with = "rates")] pub(super) Rates);

/// One of `senders`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SenderSettings {
    from: String,
    #[serde(default, deserialize_with = "rates")]
    rate: Rates,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default)]
    prefix: Vec<String>,
}

const fn one() -> u32 {
    1
}

/// The pool of `senders`; `None` if there are none.
fn pool(
    section: &Section<'_>,
    senders: Vec<SenderSettings>,
    from: Option<&String>,
) -> Result<Option<Arc<SenderPool>>, ProviderError> {
    if senders.is_empty() {
        return Ok(None);
    }
    if from.is_some() {
        let problem = "`from` and `senders` are both set\nhint: add the sender `from` to `senders`, or remove one of the keys";
        return Err(section.error(problem.to_owned()));
    }
    let of_pool = senders.into_iter().map(|sender| PoolSender {
        from: sender.from.into(),
        rate: sender.rate,
        weight: sender.weight,
        prefixes: sender.prefix,
    });
    let pool = SenderPool::new(section.provider, of_pool.collect());
    pool.map(|pool| Some(Arc::new(pool))).map_err(|error| section.error(error.to_string()))
}

/// Where a secret comes from.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SecretSource {
    Env(String),
    File(PathBuf),
}

impl SecretSource {
    /// The secret; `Err` has the environment variable where it is not set. A file must exist.
    pub(super) fn read_optional(
        self,
        section: &Section<'_>,
        name: &str,
    ) -> Result<Result<String, String>, ProviderError> {
        if let Self::Env(variable) = &self {
            let value = (section.environment)(variable).filter(|value| !value.is_empty());
            if value.is_none() {
                return Ok(Err(variable.clone()));
            }
        }
        read_secret(section, name, self).map(Ok)
    }
}

/// What the rate limits count.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Counted {
    #[default]
    Messages,
    Segments,
}

/// What a price of 0 in an answer means. Queues write it before they bill.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ZeroPrice {
    /// The price is not known yet.
    #[default]
    Unknown,
    Free,
}

impl SharedSettings {
    const TIMEOUT: Duration = Duration::from_secs(10);
    const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);
    /// Shorter than the keep-alive of common gateways, so that they do not close a connection first.
    const IDLE: Duration = Duration::from_secs(3);

    /// `url` replaces the key of this name.
    pub(super) fn into_config(
        self,
        section: &Section<'_>,
        url: Option<Url>,
    ) -> Result<ProviderConfig, ProviderError> {
        let timeout = self.timeout.unwrap_or(Self::TIMEOUT);
        if timeout.is_zero() || timeout > Self::MAX_TIMEOUT {
            return Err(section.invalid("timeout", "must be longer than 0 and at most an hour"));
        }
        let url = match (url, &self.url) {
            (Some(url), _) => url,
            (None, Some(text)) => section.url("url", text)?,
            (None, None) => return Err(section.missing("url")),
        };
        let account = self.account.unwrap_or_else(|| section.provider.to_owned());
        if account.trim().is_empty() || account.contains('/') {
            let problem = "must be a name without a slash, the same in each section of the account";
            return Err(section.invalid("account", problem));
        }
        let mut secrets = BTreeMap::new();
        for (name, source) in self.secrets {
            let secret = read_secret(section, &name, source)?;
            secrets.insert(name, secret);
        }
        let lookup = |table| {
            let mut section = section.nested("lookup", table);
            let lookup = section.rest()?;
            check_lookup(&section, &lookup)?;
            Ok(lookup)
        };
        let mut codes = self.codes;
        for status in self.certain_status {
            if !is_doubtful(status) {
                let because = certain_because(status).map_or_else(
                    || "list statuses from 300 to 599".to_owned(),
                    |because| format!("remove it, it is certain without: {because}"),
                );
                let problem = format!("{status} is not in doubt\nhint: {because}");
                return Err(section.invalid("certain_status", problem));
            }
            codes.add_certain_status(status);
        }
        Ok(ProviderConfig {
            senders: pool(section, self.senders, self.from.as_ref())?,
            name: section.provider.to_owned(),
            account,
            kind: section.kind,
            url,
            from: self.from,
            secrets: Secrets::new(secrets, self.secret_formats),
            codes,
            capabilities: Capabilities {
                sends: ContentMode::Text,
                max_batch: 1,
                reference: Reference::None,
                lookup: self.lookup.map(lookup).transpose()?,
                receipts: true,
                pull: None,
                webhook: None,
            },
            requires_sender: false,
            reads_columns: false,
            needed_columns: BTreeSet::new(),
            warnings: Vec::new(),
            timeout,
            idle: self.idle.unwrap_or(Self::IDLE),
            rates: self.rate,
            rates_count_segments: matches!(self.rate_counts, Counted::Segments),
            believes_zero_price: matches!(self.zero_price, ZeroPrice::Free),
            required: self.required,
            template: TemplateParams::default(),
        })
    }
}

fn read_secret(
    section: &Section<'_>,
    name: &str,
    source: SecretSource,
) -> Result<String, ProviderError> {
    let (text, place) = match source {
        SecretSource::Env(variable) => {
            let value = (section.environment)(&variable).filter(|value| !value.is_empty()).ok_or_else(|| {
                section.error(format!(
                    "secret `{name}` is not set: the environment variable `{variable}` is missing or empty\n\
                     hint: `export {variable}=…` sets it for this shell"
                ))
            });
            (value?, variable)
        }
        SecretSource::File(path) => {
            let place = path.display().to_string();
            let text = std::fs::read_to_string(&path).map_err(|error| {
                section.error(format!(
                    "cannot read secret `{name}` from `{place}`: {error}\n\
                     hint: write the secret into that file, or name another file or an environment variable in `secrets`"
                ))
            });
            (text?, place)
        }
    };
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(section.invalid(&format!("secrets.{name}"), format!("`{place}` is empty")));
    }
    Ok(text.to_owned())
}

pub(super) fn check_lookup(section: &Section<'_>, lookup: &Lookup) -> Result<(), ProviderError> {
    if lookup.absent_after.is_some() && lookup.horizon.is_none() {
        let problem =
            "needs `horizon`: how far back the provider's answer reaches, like `\"720h\"`";
        return Err(section.invalid("absent_after", problem));
    }
    Ok(())
}
