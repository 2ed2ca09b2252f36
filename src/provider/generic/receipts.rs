//! Section `receipts` of a provider of any kind: how its delivery receipts are requested page by page, or message by
//! message, and how they are read.

use http::{Method, Request, Uri};
use serde::Deserialize;
use smsq_message::phone::Phone;
use smsq_message::sms::{Outcome, Timestamp};
use toml::{Table, Value};
use url::Url;

use super::places::{Node, Pointers};
use super::reader::{EntrySource, ReceiptReader, is_full};
use super::request::{RequestSettings, RequestTemplate, Scope};
use super::template::{Extra, MESSAGE_ROOTS, Templates};
use crate::config::ProviderConfig;
use crate::config::section::{ProviderError, Section, with_overrides};
use crate::receipts::{
    PullShape, ReceiptCursor, ReceiptPage, ReceiptPath, ReceiptPull, ReceiptQuery, ReceiptSource,
};
use crate::response::ResponseView;
use crate::{Message, RequestResult, account_error, rejected};

/// The keys of the section that are not about one source.
#[derive(Deserialize)]
struct ReceiptSettings {
    enabled: Option<bool>,
    requires: Option<String>,
    /// A request after a drain was stored.
    confirm: Option<Table>,
    /// Merged over the section.
    recheck: Option<Table>,
}

/// The keys about the pages of one source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageRules {
    url: Option<String>,
    /// Where a response has a token or the URL for the next page.
    next: Option<Pointers>,
    /// A page with fewer entries is the last one.
    page_size: Option<usize>,
    #[serde(default = "one")]
    first_page: u32,
    error_code: Option<Pointers>,
    error_reason: Option<Pointers>,
}

fn one() -> u32 {
    1
}

/// The keys of `confirm`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfirmRules {
    url: Option<String>,
}

/// How receipts are requested and read.
pub(crate) struct Receipts {
    templates: Templates,
    pull: ReceiptRequests,
    recheck: Option<ReceiptRequests>,
    confirm: Option<RequestTemplate>,
}

/// One source of receipts.
struct ReceiptRequests {
    shape: PullShape,
    request: RequestTemplate,
    /// Whether the request differs from page to page.
    has_pages: bool,
    reader: ReceiptReader,
    rules: PageRules,
}

impl Receipts {
    /// Reads the section `table` of a provider with this configuration. `whole` is the provider's whole section, whose
    /// keys are placeholders `{{ setting.NAME }}`, and whose URL and headers are used where the section has none.
    pub(crate) fn read(
        section: &Section<'_>,
        config: &mut ProviderConfig,
        whole: &Table,
        table: Table,
    ) -> Result<Self, ProviderError> {
        let mut section = section.nested("receipts", table);
        let own: ReceiptSettings = section.take()?;
        let table = section.take_rest();
        let scalars: Table = whole
            .iter()
            .filter(|(_, value)| !value.is_table())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let required = whole.get("required").and_then(Value::as_array);
        let names = required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .chain(whole.keys().map(String::as_str))
            .map(str::to_owned)
            .collect();
        let mut templates = Templates::new(config, scalars, names);
        let mut read = |section: Section<'_>| ReceiptRequests::read(section, &mut templates, whole);
        let (source, pull) = read(section.with(table.clone()))?;
        let (recheck_source, recheck) = own
            .recheck
            .map(|above| read(section.nested("recheck", with_overrides(table, &above))))
            .transpose()?
            .unzip();
        if source.shape != PullShape::Drain && recheck.is_some() {
            let problem =
                "is only for `pull = \"drain\"`: other receipts can be fetched again anyway";
            return Err(section.invalid("recheck", problem));
        }
        let confirm = own.confirm.map(|table| {
            let mut section = section.nested("confirm", table);
            let mut settings: RequestSettings = section.take()?;
            let rules: ConfirmRules = section.rest()?;
            inherit(&mut settings, rules.url, whole);
            RequestTemplate::read(&section, &mut templates, &settings, Method::POST)
        });
        let confirm = confirm.transpose()?;
        templates.hide_derived_secrets(config);
        config.capabilities.pull = Some(ReceiptPull {
            source,
            recheck: recheck_source,
            requires: own.requires,
            is_enabled: own.enabled.unwrap_or(true),
        });
        Ok(Self { templates, pull, recheck, confirm })
    }

    fn source(&self, path: ReceiptPath) -> &ReceiptRequests {
        match (path, &self.recheck) {
            (ReceiptPath::Recheck, Some(recheck)) => recheck,
            _ => &self.pull,
        }
    }

    pub(crate) fn request(&self, path: ReceiptPath, query: &ReceiptQuery<'_>) -> RequestResult {
        self.source(path).request(&self.templates, query)
    }

    pub(crate) fn parse(
        &self,
        path: ReceiptPath,
        query: &ReceiptQuery<'_>,
        config: &ProviderConfig,
        response: &ResponseView<'_>,
    ) -> Result<ReceiptPage, Outcome> {
        self.source(path).parse(query, config, response)
    }

    /// The request that confirms all receipts which were fetched until this instant.
    pub(crate) fn confirm(&self, fetched_at: Timestamp) -> Option<RequestResult> {
        let confirm = self.confirm.as_ref()?;
        let message = no_message();
        let mut values = self.templates.values(&message);
        values.extra = vec![("until", fetched_at.to_string())];
        Some(confirm.fill(&values, &[]))
    }
}

/// A request takes URL and headers of the provider's section where it has none.
fn inherit(settings: &mut RequestSettings, url: Option<String>, whole: &Table) {
    let text = |key: &str| whole.get(key).and_then(Value::as_str).map(str::to_owned);
    if url.is_none() && settings.path.is_none() {
        settings.path = text("path");
    }
    settings.url = url.or_else(|| text("url"));
    let inherited = whole.get("headers").and_then(Value::as_table);
    for (name, value) in inherited.into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        // Such as a key that makes a request unique.
        if !MESSAGE_ROOTS.iter().any(|root| text.contains(root)) {
            let headers = settings.headers.expose_mut();
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }
}

/// Requests for pages are about no message.
fn no_message() -> Message {
    Message {
        phone: Phone::stored("+10000000").expect("five digits or more"),
        content: String::new(),
        reference: String::new(),
        from: None,
        params: serde_json::Map::new(),
    }
}

impl ReceiptRequests {
    fn read(
        mut section: Section<'_>,
        templates: &mut Templates,
        whole: &Table,
    ) -> Result<(ReceiptSource, Self), ProviderError> {
        let source: ReceiptSource = section.take()?;
        let mut settings: RequestSettings = section.take()?;
        let reader = ReceiptReader::read(&mut section)?;
        let rules: PageRules = section.rest()?;
        inherit(&mut settings, rules.url.clone(), whole);
        let request = RequestTemplate::read(&section, templates, &settings, Method::GET)?;
        let uses = |name: &str| request.uses(name, Scope::Anywhere);
        let is_about_message = ["message_id", "reference", "phone"].into_iter().any(uses);
        if (source.shape == PullShape::Ask) != is_about_message {
            let problem = if is_about_message {
                "`{{ message_id }}`, `{{ reference }}` and `{{ phone }}` are only for `\"ask\"`"
            } else {
                "`\"ask\"` needs `{{ message_id }}`, `{{ reference }}` or `{{ phone }}` in the request"
            };
            return Err(section.invalid("pull", problem));
        }
        if source.rate.0.is_empty() {
            return Err(section.missing("rate"));
        }
        let has_pages = ["page", "offset", "next"].into_iter().any(uses) || rules.next.is_some();
        let requests = Self { shape: source.shape, request, has_pages, reader, rules };
        Ok((source, requests))
    }

    fn request(&self, templates: &Templates, query: &ReceiptQuery<'_>) -> RequestResult {
        let mut message = no_message();
        let mut extra: Vec<Extra> = Vec::new();
        let mut next_url = None;
        match query {
            ReceiptQuery::Page { since, until, page } => {
                extra.push(("since", since.to_string()));
                extra.push(("until", until.to_string()));
                extra.push(("page", (page.page + self.rules.first_page).to_string()));
                extra.push(("offset", page.offset.to_string()));
                match &page.next {
                    Some(next) if is_url(next) => next_url = Some(next),
                    Some(next) => extra.push(("next", next.clone())),
                    None => {}
                }
            }
            ReceiptQuery::Message(asked) => {
                message.phone = asked.phone.clone();
                asked.reference.clone_into(&mut message.reference);
                extra.extend(asked.message_id.map(|id| ("message_id", id.to_owned())));
                extra.push(("sent_at", asked.sent_at.to_string()));
            }
        }
        let mut values = templates.values(&message);
        values.extra = extra;
        let filled = self.request.fill(&values, &[])?;
        match next_url {
            Some(url) => follow(filled, url),
            None => Ok(filled),
        }
    }

    fn parse(
        &self,
        query: &ReceiptQuery<'_>,
        config: &ProviderConfig,
        response: &ResponseView<'_>,
    ) -> Result<ReceiptPage, Outcome> {
        let document = Node::of_response(response, None);
        let code = document.first(self.rules.error_code.as_ref());
        let is_success = response.status.is_success();
        let entries = document.entries(self.reader.list());
        let Some(entries) = entries.filter(|_| is_success && response.json.is_some()) else {
            if is_success && code.is_none() {
                return Err(response.unknown(" without a list of receipts"));
            }
            let words = document.first(self.rules.error_reason.as_ref());
            return Err(match response.failed(&config.codes, code.as_deref(), words) {
                // Codes of acceptance are about messages.
                Outcome::Accepted(_) | Outcome::Duplicate(_) => {
                    response.unknown(" without a list of receipts")
                }
                failed => failed,
            });
        };
        // The answer to a question is about the message that was asked for.
        let asked = match query {
            ReceiptQuery::Message(asked) => asked.message_id,
            ReceiptQuery::Page { .. } => None,
        };
        let source = EntrySource { asked, config, response };
        let mut receipts = Vec::new();
        for entry in entries {
            if is_full(&receipts, config) {
                break;
            }
            self.reader.read_entry(Node::new(entry), &source, &mut receipts);
        }
        Ok(ReceiptPage {
            receipts,
            next: match query {
                ReceiptQuery::Page { page, .. } => self.next(page, entries.len(), response),
                ReceiptQuery::Message(_) => None,
            },
        })
    }

    /// Where the next page begins; `None` after the last one.
    fn next(
        &self,
        page: &ReceiptCursor,
        entries: usize,
        response: &ResponseView<'_>,
    ) -> Option<ReceiptCursor> {
        let is_short = self.rules.page_size.is_some_and(|size| entries < size);
        let next = Node::of_response(response, None).first(self.rules.next.as_ref());
        let is_last = match &self.rules.next {
            // The same place again would never end.
            Some(_) => next.is_none() || next == page.next,
            None => is_short || !(self.has_pages || self.shape == PullShape::Drain),
        };
        (entries > 0 && !is_last).then(|| ReceiptCursor {
            page: page.page + 1,
            offset: page.offset + entries,
            next,
        })
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with('/') || text.starts_with("http://") || text.starts_with("https://")
}

/// The request for the page at this URL, which must be on the same host: the request carries credentials.
fn follow(mut request: Request<bytes::Bytes>, next: &str) -> RequestResult {
    let wrong = |problem: &str| Err(account_error(format!("the next page of receipts {problem}")));
    let base = Url::parse(&request.uri().to_string());
    let url = base.as_ref().map(|base| base.join(next));
    let (Ok(base), Ok(Ok(url))) = (&base, url) else {
        return wrong("has an invalid URL");
    };
    if url.origin() != base.origin() {
        return wrong("is on another host");
    }
    let uri: Result<Uri, _> = url.as_str().parse();
    *request.uri_mut() = uri.map_err(|_| rejected("the URL of the next page is too long"))?;
    Ok(request)
}
