//! Section `webhook` of a provider of any kind: how receipts and replies that the vendor posts are checked and read.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};
use url::form_urlencoded;

use super::reader::{EntrySource, READING_KEYS, ReceiptReader, is_full, raw_text};
use super::response::{Pointer, Pointers};
use crate::phone::Region;
use crate::provider::config::{ProviderConfig, SecretSource};
use crate::provider::posted_signature::{SignedRequest, verify};
use crate::provider::redact::{Redactor, cut};
use crate::provider::response::{ResponseView, scalar};
use crate::provider::section::{ProviderError, Section, over};
use crate::provider::units;
use crate::provider::webhook::{
    PLAIN_TEXT, Posted, PostedRequest, Reply, SignatureScheme, Webhook, WebhookError,
};

/// How old a signed time may be, unless the section says otherwise.
const MAX_AGE: Duration = Duration::from_secs(300);
/// A longer number is cut.
const MAX_PHONE: usize = 64;

/// The keys of the section besides those about entries, which `receipts` has, too.
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
    /// A scheme, or `none`.
    signature: Option<String>,
    secret: Option<Value>,
    #[serde(default, deserialize_with = "units::span")]
    max_age: Option<Duration>,
    requires: Option<String>,
    /// The setting of the provider that each request gives the vendor as the address for receipts.
    url_setting: Option<String>,
    /// The address that the operator opens once, before the vendor posts anything else.
    confirm_url: Option<Pointer>,
    /// Where a message of a recipient has the recipient's number and the text.
    reply_phone: Option<Pointers>,
    reply_text: Option<Pointers>,
    /// The country of numbers that the vendor writes without a country code.
    reply_region: Option<Region>,
    /// What distinguishes a message of a recipient from a receipt; without it, that it has a text.
    #[serde(default)]
    reply_matches: BTreeMap<String, String>,
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
    scheme: SignatureScheme,
    secret: SecretString,
    max_age: Duration,
}

/// How posted requests are read.
pub(in crate::provider) struct WebhookReader {
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
    pub(in crate::provider) fn read(
        root: &Section<'_>,
        config: &mut ProviderConfig,
        receipts: Option<&Table>,
        table: &Table,
    ) -> Result<Self, ProviderError> {
        let is_shared = |(key, _): &(&String, &Value)| READING_KEYS.contains(&key.as_str());
        let shared = receipts.into_iter().flatten().filter(is_shared);
        let shared = shared.map(|(key, value)| (key.clone(), value.clone()));
        let mut section = root.nested("webhook", over(shared.collect(), table));
        let reader = ReceiptReader::read(&mut section)?;
        let mut settings: WebhookSettings = section.rest()?;
        if settings.reply_phone.is_some() != settings.reply_text.is_some() {
            let has_phone = settings.reply_phone.is_some();
            return Err(section.missing(if has_phone {
                "reply_text"
            } else {
                "reply_phone"
            }));
        }
        if let Some(place) = settings
            .reply_matches
            .keys()
            .find(|pointer| !pointer.starts_with('/'))
        {
            let key = format!("reply_matches.{place}");
            return Err(section.invalid(&key, "must be a JSON pointer like `/event`"));
        }
        let scheme = scheme(&section, settings.signature.as_deref())?;
        let secret = settings.secret.take();
        let (check, problem) = match scheme {
            None => (None, None),
            Some(scheme) => {
                let secret = secret.ok_or_else(|| section.missing("secret"))?;
                match read_secret(&section, config, scheme, secret)? {
                    Ok(secret) => {
                        let max_age = settings.max_age.unwrap_or(MAX_AGE);
                        let secret = SecretString::from(secret);
                        (
                            Some(SignatureCheck {
                                scheme,
                                secret,
                                max_age,
                            }),
                            None,
                        )
                    }
                    Err(problem) => (None, Some(problem)),
                }
            }
        };
        if let Some(check) = &check {
            let secret = check.secret.expose_secret();
            config.secrets.forms.add_derived(secret);
        }
        config.capabilities.receipts = true;
        config.capabilities.webhook = Some(Webhook {
            signature: scheme,
            is_enabled: settings.enabled,
            is_checked: check.is_some(),
            unchecked_because: problem,
            has_replies: settings.reply_text.is_some(),
            requires: settings.requires.clone(),
            url_setting: settings.url_setting.clone(),
        });
        Ok(Self {
            settings,
            reader,
            check,
        })
    }

    /// Content type and body.
    pub(in crate::provider) fn answer(&self) -> (&'static str, &str) {
        let body = self.settings.answer.as_str();
        let is_json = body.starts_with('{');
        (
            if is_json {
                "application/json"
            } else {
                PLAIN_TEXT
            },
            body,
        )
    }

    /// What the request contains.
    pub(in crate::provider) fn parse(
        &self,
        posted: &PostedRequest<'_>,
        config: &ProviderConfig,
        redactor: &Redactor<'_>,
    ) -> Result<Posted, WebhookError> {
        let parts = self.parts(posted);
        if let Some(check) = &self.check {
            let request = SignedRequest {
                posted,
                query: &parts.query,
                form: &parts.form,
                json: parts.json.as_ref().and_then(|json| json.as_ref().ok()),
            };
            let secret = check.secret.expose_secret();
            verify(check.scheme, secret, check.max_age, &request)?;
        }
        let query = object(&parts.query);
        let document = match parts.json {
            Some(json) => json?,
            None if parts.form.is_empty() => Json::Object(query.clone()),
            None => Json::Object(object(&parts.form)),
        };
        let document = self.inner(document)?;
        let entries = self.entries(document)?;
        let response = Response::new(Bytes::new());
        let response = ResponseView::new(&response, redactor, posted.now);
        let source = EntrySource {
            asked: None,
            config,
            response: &response,
        };
        let has_query = !query.is_empty() && self.settings.format != Some(PostedFormat::Query);
        // Lent to one entry after the other, because it may be long.
        let mut query = has_query.then_some(Json::Object(query));
        let mut found = Posted::default();
        for mut entry in entries {
            if is_full(&found.receipts, config) {
                break;
            }
            let raw = raw_text(&entry);
            let Json::Object(keys) = &mut entry else {
                found.unreadable += 1;
                continue;
            };
            let lends = query.is_some() && !keys.contains_key("query");
            if lends && let Some(query) = query.take() {
                keys.insert("query".to_owned(), query);
            }
            let before = (found.receipts.len(), found.replies.len());
            if self.is_reply(&entry) {
                found.replies.extend(self.reply(&entry));
            } else {
                let receipts = &mut found.receipts;
                self.reader.read_entry(&mut entry, raw, &source, receipts);
            }
            if before == (found.receipts.len(), found.replies.len()) {
                found.unreadable += 1;
            }
            if lends && let Json::Object(keys) = &mut entry {
                query = keys.remove("query");
            }
        }
        Ok(found)
    }

    /// The entries of a document: those of its list, or the only one.
    fn entries(&self, mut document: Json) -> Result<Vec<Json>, WebhookError> {
        let list = match self.reader.list() {
            None => document,
            Some(place) => document.pointer_mut(place).map(Json::take).ok_or_else(|| {
                WebhookError::Unreadable(format!("the request has no list at `{place}`"))
            })?,
        };
        match list {
            Json::Array(entries) => Ok(entries),
            Json::Object(entry) if !entry.is_empty() => Ok(vec![Json::Object(entry)]),
            _ => Err(unreadable("the request has no receipt")),
        }
    }

    fn parts(&self, posted: &PostedRequest<'_>) -> PostedParts {
        let (_, query) = posted.url.split_once('?').unwrap_or_default();
        let query = query.split('#').next().unwrap_or_default();
        let content_type = posted.headers.get(CONTENT_TYPE);
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let is_form = content_type
            .to_ascii_lowercase()
            .contains("x-www-form-urlencoded");
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
        let address = self.settings.confirm_url.as_ref();
        let address = address.and_then(|place| scalar(&document, place));
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

    fn is_reply(&self, entry: &Json) -> bool {
        let Some(text) = &self.settings.reply_text else {
            return false;
        };
        let matches = &self.settings.reply_matches;
        if matches.is_empty() {
            return !text.values(Some(entry), None).is_empty();
        }
        let mut matches = matches.iter();
        matches.all(|(place, value)| scalar(entry, place).as_ref() == Some(value))
    }

    fn reply(&self, entry: &Json) -> Option<Reply> {
        let value = |places: &Option<Pointers>| {
            let values = places.as_ref()?.values(Some(entry), None);
            values.into_iter().next()
        };
        let phone = value(&self.settings.reply_phone)?;
        Some(Reply {
            phone: cut(&phone, MAX_PHONE).to_owned(),
            region: self.settings.reply_region,
            text: value(&self.settings.reply_text)?,
        })
    }
}

fn scheme(
    section: &Section<'_>,
    word: Option<&str>,
) -> Result<Option<SignatureScheme>, ProviderError> {
    let Some(word) = word.filter(|word| *word != "none") else {
        return Ok(None);
    };
    let all = SignatureScheme::ALL;
    let scheme = all.into_iter().find(|scheme| scheme.as_str() == word);
    let scheme = scheme.ok_or_else(|| {
        let known = all.map(SignatureScheme::as_str);
        let hint = units::hint(word, &known);
        section.invalid("signature", format!("unknown value `{word}`{hint}"))
    });
    scheme.map(Some)
}

/// The secret of a signature; `Err` says why there is none.
fn read_secret(
    section: &Section<'_>,
    config: &ProviderConfig,
    scheme: SignatureScheme,
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
        if scheme == SignatureScheme::Twilio && config.secrets.get("api_key").is_some() {
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
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    serde_json::from_slice(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        WebhookError::Unreadable(format!("invalid JSON at line {line}, column {column}"))
    })
}

/// The pairs of a form or a query.
fn pairs(text: &[u8]) -> Vec<(String, String)> {
    form_urlencoded::parse(text).into_owned().collect()
}

/// Of several values with one name the last one counts.
fn object(pairs: &[(String, String)]) -> Map<String, Json> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.clone(), Json::from(value.as_str())))
        .collect()
}
