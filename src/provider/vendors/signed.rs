//! Vendors that the generic adapter describes, and whose requests are signed in a header. Their files in
//! `config/providers` say everything but the signature.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use serde_json::Value;
use sha1::{Digest, Sha1};
use smsq_message::sms::{Class, Failure, Outcome, Timestamp};

use crate::capabilities::{AttemptSpan, LookupResult, LookupTarget};
use crate::config::section::Section;
use crate::config::{ProviderConfig, SharedSettings};
use crate::response::ResponseView;
use crate::signing::{hmac_sha256, sha256};
use crate::times::utc;
use crate::{
    Adapter, BatchKey, Configured, Message, NewAdapter, RequestContext, RequestResult, Requests,
    account_error, generic,
};

/// The headers that sign a request.
type Sign = fn(&ProviderConfig, &Request<Bytes>, &RequestContext) -> Vec<(&'static str, String)>;

/// What an answer means that the vendor's file cannot describe.
type Judge = fn(&ResponseView<'_>) -> Option<Outcome>;

struct Signed {
    inner: Box<dyn Adapter>,
    sign: Sign,
    judge: Judge,
}

/// The kind `smsglobal`: a MAC of the method, the path and the host.
/// <https://www.smsglobal.com/rest-api/>
pub(crate) fn new_smsglobal(section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    Ok(Box::new(Signed { inner: generic::new(section, shared)?, sign: smsglobal, judge: |_| None }))
}

/// The kind `ovh`: a hash of the method, the URL, the body and the time.
/// <https://help.ovhcloud.com/csm/en-gb-api-getting-started-ovhcloud-api?id=kb_article_view&sysparm_article=KB0042777>
pub(crate) fn new_ovh(section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    Ok(Box::new(Signed {
        inner: generic::new(section, shared)?,
        sign: ovh,
        judge: invalid_receiver,
    }))
}

/// The kind `azure`: an HMAC of the method, the path, the time, the host and a hash of the body.
/// <https://learn.microsoft.com/en-us/azure/communication-services/tutorials/hmac-header-tutorial>
pub(crate) fn new_azure(section: Section<'_>, shared: SharedSettings) -> NewAdapter {
    Ok(Box::new(Signed { inner: generic::new(section, shared)?, sign: azure, judge: |_| None }))
}

fn smsglobal(
    config: &ProviderConfig,
    request: &Request<Bytes>,
    context: &RequestContext,
) -> Vec<(&'static str, String)> {
    let at = seconds(context.now);
    let nonce = context.nonce % 1_000_000_000;
    let key = config.secret("api_key");
    let mac = smsglobal_mac(config.secret("api_secret"), request, at, nonce);
    let value = format!(r#"MAC id="{key}", ts="{at}", nonce="{nonce}", mac="{mac}""#);
    vec![("authorization", value)]
}

fn smsglobal_mac(secret: &str, request: &Request<Bytes>, at: i64, nonce: u128) -> String {
    let (method, uri) = (request.method(), request.uri());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.host().unwrap_or_default();
    let is_plain = uri.scheme_str() == Some("http");
    let port = uri.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
    let text = format!("{at}\n{nonce}\n{method}\n{path}\n{host}\n{port}\n\n");
    STANDARD.encode(hmac_sha256(secret.as_bytes(), text.as_bytes()))
}

fn ovh(
    config: &ProviderConfig,
    request: &Request<Bytes>,
    context: &RequestContext,
) -> Vec<(&'static str, String)> {
    let at = seconds(context.now);
    let keys = ["application_secret", "consumer_key"].map(|name| config.secret(name));
    let signature = ovh_signature(keys, request, at);
    vec![("x-ovh-timestamp", at.to_string()), ("x-ovh-signature", signature)]
}

fn ovh_signature([secret, consumer]: [&str; 2], request: &Request<Bytes>, at: i64) -> String {
    let (method, url) = (request.method(), request.uri());
    let mut hash = Sha1::new();
    hash.update(format!("{secret}+{consumer}+{method}+{url}+"));
    hash.update(request.body());
    hash.update(format!("+{at}"));
    format!("$1${}", hex::encode(hash.finalize()))
}

fn azure(
    config: &ProviderConfig,
    request: &Request<Bytes>,
    context: &RequestContext,
) -> Vec<(&'static str, String)> {
    let date = utc(context.now, "%a, %d %b %Y %H:%M:%S GMT");
    let hash = STANDARD.encode(sha256(request.body()));
    let signature = azure_signature(config.secret("access_key"), request, &date, &hash);
    let headers = "x-ms-date;host;x-ms-content-sha256";
    let value = format!("HMAC-SHA256 SignedHeaders={headers}&Signature={signature}");
    vec![("x-ms-date", date), ("x-ms-content-sha256", hash), ("authorization", value)]
}

/// A key that is not base64 makes a signature that the vendor rejects.
fn azure_signature(key: &str, request: &Request<Bytes>, date: &str, hash: &str) -> String {
    let (method, uri) = (request.method(), request.uri());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |host| host.as_str());
    let text = format!("{method}\n{path}\n{date};{host};{hash}");
    let key = STANDARD.decode(key).unwrap_or_default();
    STANDARD.encode(hmac_sha256(&key, text.as_bytes()))
}

/// An answer that names an invalid number and has no id: nothing was sent.
fn invalid_receiver(response: &ResponseView<'_>) -> Option<Outcome> {
    let list = |pointer: &str| {
        let list = response.json.as_ref()?.pointer(pointer);
        list.and_then(Value::as_array)
    };
    let has_ids = list("/ids").is_none_or(|ids| !ids.is_empty());
    let is_invalid = list("/invalidReceivers").is_some_and(|invalid| !invalid.is_empty());
    (response.status.is_success() && is_invalid && !has_ids).then(|| {
        Outcome::Rejected(Failure {
            is_dead_number: true,
            ..Failure::new(Class::Recipient, "not a valid number")
        })
    })
}

fn seconds(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(1_000)
}

impl Signed {
    fn signed(&self, mut request: Request<Bytes>, context: &RequestContext) -> RequestResult {
        for (name, text) in (self.sign)(self.config(), &request, context) {
            let value = HeaderValue::from_str(&text);
            let mut value =
                value.map_err(|_| account_error("a secret is not allowed in a header"))?;
            value.set_sensitive(true);
            let name = HeaderName::from_static(name);
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }
}

impl Configured for Signed {
    fn config(&self) -> &ProviderConfig {
        self.inner.config()
    }

    fn config_mut(&mut self) -> &mut ProviderConfig {
        self.inner.config_mut()
    }
}

impl Adapter for Signed {
    fn batch_key(&self, message: &Message) -> Result<BatchKey, Outcome> {
        self.inner.batch_key(message)
    }

    fn request(&self, messages: &[Message], context: &RequestContext) -> RequestResult {
        self.signed(self.inner.request(messages, context)?, context)
    }

    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        match (self.judge)(response) {
            Some(outcome) => outcome.of_all(messages.len()),
            None => self.inner.parse(messages, response),
        }
    }

    fn lookup(
        &self,
        message: &Message,
        attempt: AttemptSpan,
        context: &RequestContext,
    ) -> Requests {
        let requests = self.inner.lookup(message, attempt, context)?;
        let signed = |request| self.signed(request, context);
        requests.into_iter().map(signed).collect()
    }

    fn lookup_ids(&self, response: &ResponseView<'_>) -> Vec<String> {
        self.inner.lookup_ids(response)
    }

    fn parse_lookup(&self, target: &LookupTarget<'_>, response: &ResponseView<'_>) -> LookupResult {
        self.inner.parse_lookup(target, response)
    }

    fn sign(&self, request: Request<Bytes>, context: &RequestContext) -> RequestResult {
        self.signed(request, context)
    }
}

#[cfg(test)]
mod tests;
