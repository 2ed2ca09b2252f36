//! Any HTTP API that a section of the configuration can describe: URL, headers, a form or JSON body with placeholders,
//! what counts as accepted, where the id is, and what the codes mean.

mod batch;
mod lookup;
mod places;
mod reader;
mod receipts;
mod request;
mod response;
mod template;
#[cfg(test)]
mod tests;
mod webhook;

use std::mem;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value as Json;
use smsq_message::sms::Outcome;
use smsq_message::text::Hinted;
use toml::{Table, Value};

use super::capabilities::{
    AttemptSpan, ContentMode, LookupResult, LookupTarget, Reference, SHARED_REFERENCE,
};
use super::config::section::{ProviderError, Section};
use super::config::{ProviderConfig, SharedSettings};
use super::response::ResponseView;
use super::units::span;
use super::{
    Adapter, BatchKey, Configured, Message, NewAdapter, RequestContext, RequestResult, Requests,
    unclear,
};
use batch::{BatchResults, ResultLocation};
use lookup::StatusLookup;
use request::{RequestSettings, RequestTemplate, Scope};
use response::{ResponseParser, ResponseRules};
use template::{Templates, Values};

pub(super) use receipts::Receipts;
pub(super) use webhook::WebhookReader;

/// The keys other than those of requests, responses and all providers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenericSettings {
    /// `true`, `false`, or the name of a setting that must be set.
    honours_reference: Option<Value>,
    #[serde(default, deserialize_with = "span")]
    honoured_for: Option<Duration>,
    #[serde(default)]
    receipts: bool,
    batch: Option<Table>,
}

/// The names of the vendor's own settings.
#[derive(Deserialize)]
struct SettingNames {
    #[serde(default)]
    settings: Vec<String>,
}

/// How long a vendor remembers references, unless its section says otherwise.
const HONOURED_FOR: Duration = Duration::from_secs(30 * 86_400);

struct Generic {
    config: ProviderConfig,
    templates: Templates,
    request: RequestTemplate,
    batch: Option<BatchResults>,
    response: ResponseParser,
    lookup: Option<StatusLookup>,
}

pub(super) fn new(mut section: Section<'_>, mut shared: SharedSettings) -> NewAdapter {
    let setting_names = section.take::<SettingNames>()?.settings;
    let own = section.take_keys(&setting_names);
    let mut sending: RequestSettings = section.take()?;
    sending.url.clone_from(&shared.url);
    let rules: ResponseRules = section.take()?;
    let settings: GenericSettings = section.rest()?;
    let shared_lookup = shared.lookup.take();
    let declared = settings.honours_reference.as_ref();
    let honouring = honours_reference(&section, declared, &setting_names, &own)?;
    if settings.honoured_for.is_some() && honouring.is_none() {
        return Err(section.invalid("honoured_for", "needs `honours_reference = true`"));
    }
    let honours_reference = honouring.unwrap_or(false);

    // The URL is read below: it may have secrets in placeholders.
    let placeholder = section.url("url", "http://localhost")?;
    let mut config = shared.into_config(&section, Some(placeholder))?;
    let mut templates = Templates::new(&config, own, setting_names);
    let mut request = RequestTemplate::read(&section, &mut templates, &sending, Method::POST)?;
    config.url = request.base.clone();
    let batch = settings
        .batch
        .map(|table| {
            let section = section.nested("batch", table);
            BatchResults::read(section, &mut templates, &mut request)
        })
        .transpose()?;
    if !request.uses("phone", Scope::Anywhere) {
        let hint = "put `{{ phone }}` into `json`, `form` or `query`";
        let problem = Hinted::new("is not in the request", hint).joined();
        return Err(section.invalid("phone", problem));
    }
    if batch.is_some() && request.uses("phone", Scope::Outside) {
        let problem = "`{{ phone }}` is outside of it, so messages cannot share a request";
        return Err(section.invalid("batch.repeat", problem));
    }
    let max_batch = batch.as_ref().map_or(1, |batch| batch.settings.per_call);
    let shares_reference = max_batch > 1 && request.uses("reference", Scope::Outside);
    if shares_reference && honours_reference {
        let problem = "is impossible where several messages share a reference\n\
             hint: put `{{ reference }}` into what `batch` repeats";
        return Err(section.invalid("honours_reference", problem));
    }
    let (plan, lookup) = shared_lookup
        .map(|table| {
            let section = section.nested("lookup", table);
            StatusLookup::read(section, &mut templates, &sending)
        })
        .transpose()?
        .unzip();
    let capabilities = &mut config.capabilities;
    capabilities.lookup = plan;
    // A message that shared its reference with others is not found by its own.
    if let (Some(plan), Some(lookup)) = (&mut capabilities.lookup, &lookup)
        && shares_reference
        && lookup.is_by_reference()
    {
        plan.absent_after = None;
    }
    capabilities.max_batch = max_batch;
    capabilities.receipts = settings.receipts;
    let span = settings.honoured_for.unwrap_or(HONOURED_FOR);
    if span <= config.timeout {
        return Err(section.invalid("honoured_for", "must be longer than `timeout`"));
    }
    describe(&mut config, &request, honours_reference.then_some(span));
    config.requires_sender = templates.requires_sender;
    config.needed_columns = mem::take(&mut templates.needed_columns);
    templates.hide_derived_secrets(&mut config);
    let codes = config.codes.clone();
    Ok(Box::new(Generic {
        response: ResponseParser::new(&section, rules, codes, honours_reference)?,
        config,
        templates,
        request,
        batch,
        lookup,
    }))
}

/// Whether the provider recognises a repeated reference; `None` if it cannot. `own` has the settings of the section.
fn honours_reference(
    section: &Section<'_>,
    declared: Option<&Value>,
    setting_names: &[String],
    own: &Table,
) -> Result<Option<bool>, ProviderError> {
    match declared {
        None | Some(Value::Boolean(false)) => Ok(None),
        Some(Value::Boolean(true)) => Ok(Some(true)),
        Some(Value::String(name)) if setting_names.contains(name) => {
            Ok(Some(own.contains_key(name)))
        }
        Some(_) => {
            let problem = "must be `true`, `false` or the name of a setting";
            Err(section.invalid("honours_reference", problem))
        }
    }
}

/// Sets what the request shows about the API.
fn describe(
    config: &mut ProviderConfig,
    request: &RequestTemplate,
    honoured_for: Option<Duration>,
) {
    let uses = |root| request.uses(root, Scope::Anywhere);
    config.reads_columns = uses("params");
    config.capabilities.sends = match (uses("content"), uses("params")) {
        (false, true) => ContentMode::Template,
        _ => ContentMode::Text,
    };
    config.capabilities.reference = match honoured_for {
        Some(span) => Reference::Honoured { span },
        None if uses("reference") => Reference::Echoed,
        None => Reference::None,
    };
    if !uses("content") && !uses("params") {
        let warning = "the request has no text: put `{{ content }}` into `json`, `form` or `query`";
        config.warnings.push(warning.to_owned());
    }
}

impl Configured for Generic {
    fn config(&self) -> &ProviderConfig {
        &self.config
    }

    fn config_mut(&mut self) -> &mut ProviderConfig {
        &mut self.config
    }
}

impl Adapter for Generic {
    /// The request without its repeated part, and without the reference that all messages share.
    fn batch_key(&self, message: &Message) -> Result<BatchKey, Outcome> {
        self.request(std::slice::from_ref(message), &RequestContext::default())?;
        let mut outside = self.templates.values(message);
        outside.reference = "";
        let frame = self.request.fill(&outside, &[])?;
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = frame.headers().values().map(HeaderValue::as_bytes).map(lossy);
        let rest = [frame.uri().to_string(), lossy(frame.body())];
        Ok(BatchKey(headers.chain(rest).collect()))
    }

    fn request(&self, messages: &[Message], _context: &RequestContext) -> RequestResult {
        let values = |message| self.templates.values(message);
        let each: Vec<Values<'_>> = messages.iter().map(values).collect();
        if let [only] = each.as_slice() {
            return self.request.fill(only, &each);
        }
        let shared = format!("{SHARED_REFERENCE}{}", messages[0].reference);
        let mut outside = values(&messages[0]);
        outside.reference = &shared;
        self.request.fill(&outside, &each)
    }

    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome> {
        let whole = self.response.outcome_of_message(response, &messages[0]);
        let is_accepted = whole.acceptance().is_some();
        let is_error = !self.response.is_accepted_status(response);
        let is_batch = messages.len() > 1;
        if is_batch && is_error && is_accepted {
            // "Already accepted" can only be about one of the messages.
            let outcome = response.unknown(" to several messages at once");
            return outcome.of_all(messages.len());
        }
        let Some(batch) = &self.batch else {
            return whole.clone().of_all(messages.len());
        };
        // Several messages with an error are rejected as a whole, unless the response shows accepted ones, or lists
        // the results of some messages and not of others.
        let may_accept = |entry| self.response.may_accept(response, entry);
        let locations = batch.locations(&self.templates, response, messages);
        let has_no_results = batch.results(response).is_empty();
        let is_refused = !is_accepted && !matches!(whole, Outcome::Unknown(_));
        let mut entries = (0..batch.results(response).len()).map(Some);
        if is_batch && is_error && !may_accept(None) && !entries.any(may_accept) {
            let is_all = batch.lists_nothing(response) || self.response.has_listed_code(response);
            let outcome = |location| match location {
                ResultLocation::Unclear(problem) if !is_all => response.unknown(problem),
                _ => whole.clone().of_all(messages.len()).swap_remove(0),
            };
            return locations.into_iter().map(outcome).collect();
        }
        let outcome = |(message, location): (&Message, ResultLocation)| match location {
            ResultLocation::Entry(index)
                if batch.settings.like_single && !(is_batch && is_error) =>
            {
                let entry = &batch.results(response)[index];
                self.parse_like_single(message, entry, response)
            }
            // An error that shows accepted messages says nothing about others: only their own codes do.
            ResultLocation::Entry(index)
                if !(is_batch && is_error) || self.response.refuses(response, index) =>
            {
                self.response.outcome(response, Some(index), message)
            }
            _ if is_batch && is_error => response.unknown(" together with an error"),
            // The whole says why there is no result.
            ResultLocation::Unclear(_) if has_no_results && is_refused => {
                whole.clone().of_all(messages.len()).swap_remove(0)
            }
            ResultLocation::Unclear(problem) if !is_error => response.unknown(problem),
            ResultLocation::NoList if is_batch && is_accepted => {
                response.unknown(" without a list of results")
            }
            _ => whole.clone().of_all(messages.len()).swap_remove(0),
        };
        messages.iter().zip(locations).map(outcome).collect()
    }

    fn lookup(&self, message: &Message, attempt: AttemptSpan, _: &RequestContext) -> Requests {
        self.lookup.iter().map(|lookup| lookup.request(&self.templates, message, attempt)).collect()
    }

    fn lookup_ids(&self, response: &ResponseView<'_>) -> Vec<String> {
        self.lookup.iter().flat_map(|lookup| lookup.ids(response)).collect()
    }

    fn parse_lookup(&self, target: &LookupTarget<'_>, response: &ResponseView<'_>) -> LookupResult {
        let Some(lookup) = &self.lookup else {
            return unclear("this provider has no status lookup");
        };
        match lookup.parse(&self.templates, &self.config.codes, target, response) {
            LookupResult::Absent if self.response.has_failed(response) => {
                unclear(response.reason(" and a code that is not one of success", None))
            }
            result => result,
        }
    }
}

impl Generic {
    /// Reads a result as the response that its message would have had alone.
    fn parse_like_single(
        &self,
        message: &Message,
        entry: &Json,
        response: &ResponseView<'_>,
    ) -> Outcome {
        let status = entry["status"].as_u64().and_then(|status| {
            let status = u16::try_from(status).ok()?;
            StatusCode::from_u16(status).ok()
        });
        let Some(status) = status else {
            return response.unknown(" without a result for this message");
        };
        let mut single = Response::new(Bytes::from(entry.to_string()));
        *single.status_mut() = status;
        if let Some(seconds) = entry["retry_after"].as_u64() {
            single.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        let single = ResponseView::new(&single, response.redactor, response.now);
        self.response.outcome_of_message(&single, message)
    }
}
