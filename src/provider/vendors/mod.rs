//! Vendors whose APIs the generic adapter cannot describe: signatures, templates with parameters, special
//! lookups.

pub(super) mod aliyun;
pub(super) mod aws;
pub(super) mod huawei;
pub(super) mod signed;
pub(super) mod tencent;
pub(super) mod twilio;
pub(super) mod yunpian;

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use smsq_message::phone::may_be_written_as;
use url::Url;

use super::config::section::{ProviderError, Section};
use super::config::template_params::{Order, TemplateParams};
use super::config::{ProviderConfig, SharedSettings};
use super::response::{ResponseView, scalar};
use super::{Configured, Message, RequestResult, account_error};

/// A vendor with the settings that only this vendor has.
struct Vendor<S> {
    config: ProviderConfig,
    settings: S,
}

impl<S: DeserializeOwned> Vendor<S> {
    /// Reads the section of a vendor that sends templates.
    fn with_template(
        mut section: Section<'_>,
        shared: SharedSettings,
        order: Order,
    ) -> Result<Self, ProviderError> {
        let template = TemplateParams::read(&mut section, order)?;
        let settings = section.rest()?;
        let mut config = shared.into_config(&section, None)?;
        config.reads_columns = !template.columns().is_empty() || template.text().is_some();
        config.template = template;
        Ok(Self { config, settings })
    }
}

impl<S> Configured for Vendor<S> {
    fn config(&self) -> &ProviderConfig {
        &self.config
    }

    fn config_mut(&mut self) -> &mut ProviderConfig {
        &mut self.config
    }
}

const FORM: &str = "application/x-www-form-urlencoded";

/// A `POST` of a form; `authorization` is empty where the form has the secrets.
fn post_form(url: &Url, authorization: &str, form: String) -> RequestResult {
    let headers = [("content-type", FORM), ("authorization", authorization)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty());
    request(Method::POST, url, headers, form)
}

/// Names of headers are in lower case.
fn request<'a>(
    method: Method,
    url: &Url,
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: impl Into<Bytes>,
) -> RequestResult {
    let mut request = Request::builder().method(method).uri(url.as_str());
    for (name, text) in headers {
        let mut value = HeaderValue::from_str(text)
            .map_err(|_| account_error(format!("this value is not allowed in header `{name}`")))?;
        value.set_sensitive(name == "authorization");
        request = request.header(name, value);
    }
    request.body(body.into()).map_err(|_| account_error("the request's URL is too long"))
}

/// A header of a request that is signed; empty where it has none.
fn header<'a>(request: &'a Request<Bytes>, name: &str) -> &'a str {
    let value = request.headers().get(name);
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Encodes the pairs of a form.
pub(super) fn form<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut encoded = url::form_urlencoded::Serializer::new(String::new());
    encoded.extend_pairs(pairs);
    encoded.finish()
}

/// A delivery receipt URL with our reference in its query.
fn callback_url(url: &str, message: &Message) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}reference={}", message.reference)
}

/// Whether the vendor's answer is about another phone than that of the message. One that names no phone is not.
fn names_another_phone(message: &Message, number: Option<String>) -> bool {
    number.is_some_and(|number| !may_be_written_as(message.phone.as_str(), &number))
}

/// Whether the vendor's number, with or without `+` and, in China, country code, is that of the message.
fn is_phone_of(message: &Message, number: Option<String>) -> bool {
    let number = number.unwrap_or_default();
    let number = number.trim_start_matches('+');
    number == message.phone.digits() || number == super::china::national_number(&message.phone)
}

/// The ids in all entries of a list.
fn ids_in(response: &ResponseView<'_>, list: &str, id: &str) -> Vec<String> {
    let entries = response.list(list).iter();
    entries.filter_map(|entry| scalar(entry, id)).collect()
}

/// The only result for the message. The only result of a request with one message is about it, however the vendor
/// writes its number, unless that is certainly another one.
fn result_of<'a>(
    message: &Message,
    messages: &[Message],
    results: &'a [Value],
    phone: &str,
) -> Option<&'a Value> {
    let is_its = |result: &&Value| is_phone_of(message, scalar(result, phone));
    let mut matching = results.iter().filter(is_its);
    match (matching.next(), matching.next(), messages, results) {
        (Some(result), None, ..) => Some(result),
        (None, None, [_], [result]) => {
            let is_another = names_another_phone(message, scalar(result, phone));
            (!is_another).then_some(result)
        }
        _ => None,
    }
}
