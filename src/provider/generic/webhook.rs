//! Section `webhook` of a provider of any kind: how receipts and replies that the vendor posts are checked and read.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value as Json;
use smsq_message::phone::Region;
use toml::{Table, Value};
use url::form_urlencoded;

use super::places::{Node, Pointer, Pointers};
use super::reader::{EntrySource, ReadingRules, ReceiptReader, is_full};
use crate::config::section::{ProviderError, Section, field_names, with_overrides};
use crate::config::{ProviderConfig, SecretSource};
use crate::posted_signature::{SCHEMES, SignedRequest, Verify};
use crate::redact::{Redactor, cut};
use crate::response::{ResponseView, scalar};
use crate::webhook::{PLAIN_TEXT, Posted, PostedRequest, Reply, Webhook, WebhookError};
use crate::{lossy_json, units};

/// A longer number is cut.
const MAX_PHONE: usize = 64;

/// The keys of the section other than those about entries, which `receipts` has, too.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookSettings {
    /// Whether messages await posted receipts.
    #[serde(default)]
    enabled: bool,
    /// Without one, the request's method and content type decide.
    format: Option<PostedFormat>,
    /// Texts of the request that have the document as JSON; the first one that is there counts.
    #[serde(default)]
    json_text: Vec<Pointer>,
    /// The body of the answer.
    #[serde(default)]
    answer: String,
    /// The name of a scheme, or `none`.
    signature: Option<String>,
    secret: Option<Value>,
    #[serde(default = "max_age", deserialize_with = "units::span")]
    max_age: Duration,
    requires: Option<String>,
    /// The setting of the provider that each request gives the vendor as the address for receipts.
    url_setting: Option<String>,
    /// The address that the operator opens once, before the vendor posts anything else.
    confirm_url: Option<Pointer>,
    /// Where a message of a recipient has the recipient's number and the text.
    reply_phone: Option<Pointers>,
    reply_text: Option<Pointers>,
    /// The vendor's id of that message, and the number that it was sent to.
    reply_id: Option<Pointers>,
    reply_to: Option<Pointers>,
    /// The country of numbers that the vendor writes without a country code.
    reply_region: Option<Region>,
    /// What distinguishes a message of a recipient from a receipt; without it, that it has a text.
    #[serde(default)]
    reply_matches: BTreeMap<Pointer, String>,
}

fn max_age() -> Duration {
    Duration::from_secs(300)
}

/// How the document is posted.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PostedFormat {
    Json,
    Form,
    Query,
}

/// A scheme whose secret is set.
struct SignatureCheck {
    verify: Verify,
    secret: SecretString,
}

/// How posted requests are read.
pub(crate) struct WebhookReader {
    settings: WebhookSettings,
    reader: ReceiptReader,
    check: Option<SignatureCheck>,
}

/// The parts of a request, before the signature is checked.
struct PostedParts {
    query: Vec<(String, String)>,
    /// Empty where the body is not a form.
    form: Vec<(String, String)>,
    /// Where the body is JSON.
    json: Option<Result<Json, WebhookError>>,
}

impl WebhookReader {
    /// Reads the section `table` of a provider with this configuration, over the keys about entries of `receipts`.
    pub(crate) fn read(
        root: &Section<'_>,
        config: &mut ProviderConfig,
        receipts: Option<&Table>,
        table: &Table,
    ) -> Result<Self, ProviderError> {
        let reading = field_names::<ReadingRules>();
        let shared: Table = receipts
            .into_iter()
            .flatten()
            .filter(|(key, _)| reading.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let mut section = root.nested("webhook", with_overrides(shared, table));
        let reader = ReceiptReader::read(&mut section)?;
        let mut settings: WebhookSettings = section.rest()?;
        match (&settings.reply_phone, &settings.reply_text) {
            (Some(_), None) => return Err(section.missing("reply_text")),
            (None, Some(_)) => return Err(section.missing("reply_phone")),
            _ => {}
        }
        let scheme = scheme(&section, settings.signature.as_deref())?;
        let (mut check, mut unchecked_because) = (None, None);
        if let Some((name, verify)) = scheme {
            let secret = settings.secret.take();
            let secret = secret.ok_or_else(|| section.missing("secret"))?;
            match read_secret(&section, config, name, secret)? {
                Ok(secret) => {
                    config.secrets.forms.add_derived(&secret);
                    let secret = SecretString::from(secret);
                    check = Some(SignatureCheck { verify, secret });
                }
                Err(problem) => unchecked_because = Some(problem),
            }
        }
        config.capabilities.receipts = true;
        config.capabilities.webhook = Some(Webhook {
            signature: scheme.map(|(name, _)| name),
            is_enabled: settings.enabled,
            is_checked: check.is_some(),
            unchecked_because,
            has_replies: settings.reply_text.is_some(),
            requires: settings.requires.clone(),
            url_setting: settings.url_setting.clone(),
        });
        Ok(Self { settings, reader, check })
    }

    /// Content type and body.
    pub(crate) fn answer(&self) -> (&'static str, &str) {
        match self.settings.answer.as_str() {
            json if json.starts_with('{') => ("application/json", json),
            text => (PLAIN_TEXT, text),
        }
    }

    /// What the request contains.
    pub(crate) fn parse(
        &self,
        posted: &PostedRequest<'_>,
        config: &ProviderConfig,
        redactor: &Redactor<'_>,
    ) -> Result<Posted, WebhookError> {
        let parts = self.parts(posted);
        if let Some(check) = &self.check {
            (check.verify)(&SignedRequest {
                posted,
                query: &parts.query,
                form: &parts.form,
                json: parts.json.as_ref().and_then(|json| json.as_ref().ok()),
                secret: check.secret.expose_secret(),
                max_age: self.settings.max_age,
            })?;
        }
        let query = object(&parts.query);
        let document = match parts.json {
            Some(json) => json?,
            None if parts.form.is_empty() => query.clone(),
            None => object(&parts.form),
        };
        let document = self.inner(document)?;
        let response = Response::new(Bytes::new());
        let response = ResponseView::new(&response, redactor, posted.now);
        let source = EntrySource { asked: None, config, response: &response };
        let mut found = Posted::default();
        for json in self.entries(&document)? {
            if is_full(&found.receipts, config) {
                break;
            }
            let entry = match self.settings.format {
                Some(PostedFormat::Query) => Node::new(json),
                _ => Node::new(json).with_query(&query),
            };
            let before = (found.receipts.len(), found.replies.len());
            if self.is_reply(entry) {
                found.replies.extend(self.reply(entry));
            } else if json.is_object() {
                self.reader.read_entry(entry, &source, &mut found.receipts);
            }
            if before == (found.receipts.len(), found.replies.len()) {
                found.unreadable += 1;
            }
        }
        Ok(found)
    }

    /// The entries of a document: those of its list, or the only one.
    fn entries<'a>(&self, document: &'a Json) -> Result<&'a [Json], WebhookError> {
        let place = self.reader.list().map_or("", |list| list);
        match document.pointer(place) {
            Some(Json::Array(entries)) => Ok(entries),
            Some(entry @ Json::Object(keys)) if !keys.is_empty() => Ok(slice::from_ref(entry)),
            Some(_) => Err(unreadable("the request has no receipt")),
            None => {
                let problem = format!("the request has no list at `{place}`");
                Err(WebhookError::Unreadable(problem))
            }
        }
    }

    fn parts(&self, posted: &PostedRequest<'_>) -> PostedParts {
        let (_, query) = posted.url.split_once('?').unwrap_or_default();
        let query = query.split('#').next().unwrap_or_default();
        let content_type = posted.headers.get(CONTENT_TYPE);
        let is_form = content_type
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| kind.to_ascii_lowercase().contains("x-www-form-urlencoded"));
        let format = match self.settings.format {
            _ if *posted.method == Method::GET => PostedFormat::Query,
            Some(format) => format,
            None if is_form => PostedFormat::Form,
            None if posted.body.is_empty() => PostedFormat::Query,
            None => PostedFormat::Json,
        };
        PostedParts {
            query: pairs(query.as_bytes()),
            form: match format {
                PostedFormat::Form => pairs(posted.body),
                PostedFormat::Json | PostedFormat::Query => Vec::new(),
            },
            json: (format == PostedFormat::Json).then(|| parse_json(posted.body)),
        }
    }

    /// The JSON document in a text of `document`, or `document` where it has no such text.
    fn inner(&self, document: Json) -> Result<Json, WebhookError> {
        let place = self.settings.confirm_url.as_ref();
        let address = place.and_then(|place| scalar(&document, place));
        if let Some(address) = address.filter(|address| address.starts_with("https://")) {
            return Err(WebhookError::Unreadable(format!(
                "the vendor posts nothing until its subscription is confirmed: open {address} once"
            )));
        }
        let mut texts = self.settings.json_text.iter();
        let text = texts.find_map(|place| document.pointer(place)?.as_str());
        match text {
            Some(text) => parse_json(text.as_bytes()),
            None => Ok(document),
        }
    }

    fn is_reply(&self, entry: Node<'_>) -> bool {
        let Some(text) = &self.settings.reply_text else {
            return false;
        };
        let mut matches = self.settings.reply_matches.iter().peekable();
        if matches.peek().is_none() {
            return entry.first(Some(text)).is_some();
        }
        matches.all(|(place, value)| entry.scalar(place).as_ref() == Some(value))
    }

    fn reply(&self, entry: Node<'_>) -> Option<Reply> {
        let phone = entry.first(self.settings.reply_phone.as_ref())?;
        Some(Reply {
            phone: cut(&phone, MAX_PHONE).to_owned(),
            region: self.settings.reply_region,
            text: entry.first(self.settings.reply_text.as_ref())?,
            id: entry.first(self.settings.reply_id.as_ref()),
            to: entry
                .first(self.settings.reply_to.as_ref())
                .map(|to| cut(&to, MAX_PHONE).to_owned()),
        })
    }
}

/// The name and the check of a scheme.
fn scheme(
    section: &Section<'_>,
    word: Option<&str>,
) -> Result<Option<(&'static str, Verify)>, ProviderError> {
    let Some(word) = word.filter(|word| *word != "none") else {
        return Ok(None);
    };
    let scheme = SCHEMES.into_iter().find(|(name, _)| *name == word);
    if scheme.is_none() {
        let known = SCHEMES.map(|(name, _)| name);
        let problem = units::unknown(format!("unknown value `{word}`"), word, &known);
        return Err(section.invalid("signature", problem.joined()));
    }
    Ok(scheme)
}

/// The secret of a signature; `Err` says why there is none.
fn read_secret(
    section: &Section<'_>,
    config: &ProviderConfig,
    scheme: &str,
    secret: Value,
) -> Result<Result<String, String>, ProviderError> {
    // The text is not printed: it may be the secret.
    let wrong = || {
        let problem = "must be the name of one of `secrets`, `{ env = \"VARIABLE\" }` or `{ file = \"PATH\" }`";
        section.invalid("secret", problem)
    };
    if let Value::String(name) = &secret {
        let known = config.secrets.get(name).ok_or_else(wrong)?;
        // Then `auth_token` is the secret of the API key, which signs nothing.
        if scheme == "twilio" && config.secrets.get("api_key").is_some() {
            let problem = "`webhook.secret` is not set to the auth token of the account";
            return Ok(Err(problem.to_owned()));
        }
        return Ok(Ok(known.to_owned()));
    }
    let source: SecretSource = secret.try_into().map_err(|_| wrong())?;
    let secret = source.read_optional(section, "webhook.secret")?;
    Ok(secret.map_err(|variable| format!("the environment variable `{variable}` is not set")))
}

fn unreadable(problem: &str) -> WebhookError {
    WebhookError::Unreadable(problem.to_owned())
}

/// The error says where the fault is, but nothing of the text.
fn parse_json(text: &[u8]) -> Result<Json, WebhookError> {
    if text.trim_ascii().is_empty() {
        return Err(unreadable("the request is empty"));
    }
    lossy_json::parse(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        WebhookError::Unreadable(format!("invalid JSON at line {line}, column {column}"))
    })
}

/// The pairs of a form or a query.
fn pairs(text: &[u8]) -> Vec<(String, String)> {
    form_urlencoded::parse(text).into_owned().collect()
}

/// Of several values with one name the last one counts.
fn object(pairs: &[(String, String)]) -> Json {
    pairs.iter().map(|(name, value)| (name.clone(), Json::from(value.as_str()))).collect()
}
