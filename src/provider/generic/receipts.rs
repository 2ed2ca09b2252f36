//! Section `receipts` of a provider of any kind: how its delivery receipts are requested page by page, or message by
//! message, and how they are read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::{Method, Request, Uri};
use jiff::civil;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::Value as Json;
use toml::{Table, Value};
use url::Url;

use super::request::{RequestSettings, RequestTemplate, Scope};
use super::response::{Pointer, Pointers, first};
use super::template::{Extra, Templates};
use crate::phone::Phone;
use crate::provider::codes::{Codes, matches_glob};
use crate::provider::config::ProviderConfig;
use crate::provider::receipts::{
    PullShape, ReceiptCursor, ReceiptPage, ReceiptPull, ReceiptQuery, ReceiptRoad, ReceiptSource,
};
use crate::provider::redact::cut;
use crate::provider::response::{ResponseView, cut_id, short_code};
use crate::provider::section::{ProviderError, Section, over};
use crate::provider::{Message, RequestResult, account_error, rejected};
use crate::receipt::{Receipt, ReceiptPart, ReceiptState};
use crate::sms::{Class, Failure, Outcome, Timestamp};

/// Longer entries are cut.
const MAX_RAW: usize = 4_096;
/// Numbers above this are milliseconds since 1970, others seconds.
const MIN_MILLIS: i64 = 100_000_000_000;

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

/// The keys about pages and entries of one source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReceiptRules {
    url: Option<String>,
    /// The list of receipts; without one the response is the receipt.
    list: Option<Pointer>,
    /// A list in each entry of it, whose entries are receipts of their own: `/item` in the other pointers.
    items: Option<Pointer>,
    message_id: Option<Pointers>,
    reference: Option<Pointers>,
    phone: Option<Pointers>,
    state: Pointers,
    code: Option<Pointers>,
    reason: Option<Pointers>,
    at: Option<Pointers>,
    /// The zone of times without an offset; UTC by default.
    zone: Option<String>,
    part: Option<Pointers>,
    parts: Option<Pointers>,
    /// Where a response has a token or the URL for the next page.
    next: Option<Pointers>,
    /// A page with fewer entries is the last one.
    page_size: Option<usize>,
    #[serde(default = "one")]
    first_page: u32,
    states: BTreeMap<String, ReceiptState>,
    #[serde(default)]
    codes: Codes,
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
pub(in crate::provider) struct Receipts {
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
    zone: TimeZone,
    rules: ReceiptRules,
}

impl Receipts {
    /// Reads the section `table` of a provider with this configuration. `whole` is the provider's whole section, whose
    /// keys are placeholders `{{ setting.NAME }}`, and whose URL and headers are used where the section has none.
    pub(in crate::provider) fn read(
        section: &Section<'_>,
        config: &mut ProviderConfig,
        whole: &Table,
        mut table: Table,
    ) -> Result<Self, ProviderError> {
        let mut settings = Section::nested(section, "receipts", table.clone());
        let own: ReceiptSettings = settings.take()?;
        for key in ["enabled", "requires", "confirm", "recheck"] {
            table.remove(key);
        }
        let scalars = whole.iter().filter(|(_, value)| !value.is_table());
        let scalars: Table = scalars
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let required = whole.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let names = whole
            .keys()
            .cloned()
            .chain(required.map(str::to_owned))
            .collect();
        let mut templates = Templates::new(config, scalars, names);
        let recheck = own.recheck.map(|above| over(table.clone(), &above));
        let (source, pull) =
            ReceiptRequests::read(section.nested("receipts", table), &mut templates, whole)?;
        let recheck = recheck.map(|table| {
            let nested = section.nested("receipts", Table::new());
            ReceiptRequests::read(nested.nested("recheck", table), &mut templates, whole)
        });
        let (recheck_source, recheck) = recheck.transpose()?.unzip();
        if source.shape != PullShape::Drain && recheck.is_some() {
            let problem =
                "is only for `pull = \"drain\"`: other receipts can be fetched again anyway";
            return Err(section.invalid("receipts.recheck", problem));
        }
        let confirm = own.confirm.map(|table| {
            let nested = section.nested("receipts", Table::new());
            let mut section = nested.nested("confirm", table);
            let mut settings: RequestSettings = section.take()?;
            let rules: ConfirmRules = section.rest()?;
            inherit(&mut settings, rules.url, whole);
            RequestTemplate::read(&section, &mut templates, &settings, Method::POST)
        });
        for derived in &templates.derived_secrets {
            let derived = secrecy::ExposeSecret::expose_secret(derived);
            config.secrets.forms.add_derived(derived);
        }
        config.capabilities.pull = Some(ReceiptPull {
            source,
            recheck: recheck_source,
            requires: own.requires,
            is_enabled: own.enabled.unwrap_or(true),
        });
        Ok(Self {
            templates,
            pull,
            recheck,
            confirm: confirm.transpose()?,
        })
    }

    fn source(&self, road: ReceiptRoad) -> &ReceiptRequests {
        let recheck = self
            .recheck
            .as_ref()
            .filter(|_| road == ReceiptRoad::Recheck);
        recheck.unwrap_or(&self.pull)
    }

    pub(in crate::provider) fn request(
        &self,
        road: ReceiptRoad,
        query: &ReceiptQuery<'_>,
    ) -> RequestResult {
        self.source(road).request(&self.templates, query)
    }

    pub(in crate::provider) fn parse(
        &self,
        road: ReceiptRoad,
        query: &ReceiptQuery<'_>,
        config: &ProviderConfig,
        response: &ResponseView<'_>,
    ) -> Result<ReceiptPage, Outcome> {
        self.source(road).parse(query, config, response)
    }

    /// The request that confirms all receipts which were fetched until this instant.
    pub(in crate::provider) fn confirm(&self, fetched_at: Timestamp) -> Option<RequestResult> {
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
        // Such as a key that makes a request unique.
        let of_message = ["phone", "content", "reference", "params", "from"];
        let text = value.as_str().unwrap_or_default();
        if of_message.iter().any(|root| text.contains(root)) {
            continue;
        }
        settings
            .headers
            .entry(name.clone())
            .or_insert_with(|| value.clone());
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
        let rules: ReceiptRules = section.rest()?;
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
        if rules.message_id.is_none() && rules.reference.is_none() {
            return Err(section.missing("message_id"));
        }
        if source.rate.0.is_empty() {
            return Err(section.missing("rate"));
        }
        let zone = match &rules.zone {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name)
                .map_err(|_| section.invalid("zone", format!("unknown time zone `{name}`")))?,
        };
        let has_pages = ["page", "offset", "next"].into_iter().any(uses) || rules.next.is_some();
        let requests = Self {
            shape: source.shape,
            request,
            has_pages,
            zone,
            rules,
        };
        Ok((source, requests))
    }

    fn request(&self, templates: &Templates, query: &ReceiptQuery<'_>) -> RequestResult {
        let mut message = no_message();
        let mut extra: Vec<Extra> = Vec::new();
        match query {
            ReceiptQuery::Page { since, until, page } => {
                if let Some(url) = page.next.as_deref().filter(|next| is_url(next)) {
                    let filled = self.request.fill(&templates.values(&message), &[])?;
                    return follow(filled, url);
                }
                extra.push(("since", since.to_string()));
                extra.push(("until", until.to_string()));
                extra.push(("page", (page.page + self.rules.first_page).to_string()));
                extra.push(("offset", page.offset.to_string()));
                extra.extend(page.next.clone().map(|next| ("next", next)));
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
        self.request.fill(&values, &[])
    }

    fn parse(
        &self,
        query: &ReceiptQuery<'_>,
        config: &ProviderConfig,
        response: &ResponseView<'_>,
    ) -> Result<ReceiptPage, Outcome> {
        let code = first(self.rules.error_code.as_ref(), response, None);
        let words = first(self.rules.error_reason.as_ref(), response, None);
        let json = response
            .json
            .as_ref()
            .filter(|_| response.status.is_success());
        let entries = json.and_then(|json| match &self.rules.list {
            Some(list) => Some(json.pointer(list)?.as_array()?.as_slice()),
            None => Some(std::slice::from_ref(json)),
        });
        let Some(entries) = entries else {
            if response.status.is_success() && code.is_none() {
                return Err(response.unknown(" without a list of receipts"));
            }
            return Err(response.failed(&config.codes, code.as_deref(), words));
        };
        let mut receipts = Vec::with_capacity(entries.len());
        for entry in entries {
            for entry in self.items(entry) {
                receipts.extend(self.receipt(&entry, query, config, response));
            }
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
        let next = first(self.rules.next.as_ref(), response, None);
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

    /// An entry of the list, or one for each of its items.
    fn items<'a>(&self, entry: &'a Json) -> Vec<Cow<'a, Json>> {
        let items = self.rules.items.as_ref();
        let items = items.map(|items| entry.pointer(items).and_then(Json::as_array));
        match items {
            None => vec![Cow::Borrowed(entry)],
            Some(items) => {
                let with = |item: &Json| {
                    let mut entry = entry.clone();
                    entry["item"] = item.clone();
                    Cow::Owned(entry)
                };
                items.into_iter().flatten().map(with).collect()
            }
        }
    }

    /// One entry; `None` where it can belong to no message.
    fn receipt(
        &self,
        entry: &Json,
        query: &ReceiptQuery<'_>,
        config: &ProviderConfig,
        response: &ResponseView<'_>,
    ) -> Option<Receipt> {
        let rules = &self.rules;
        let value = |places: &Option<Pointers>| {
            let places = places.as_ref()?;
            places.values(Some(entry), None).into_iter().next()
        };
        let message_id = value(&rules.message_id).map(|id| cut_id(&id));
        let message_id = match query {
            // The answer is about the message that was asked for.
            ReceiptQuery::Message(asked) if message_id.is_none() => {
                asked.message_id.map(str::to_owned)
            }
            _ => message_id,
        };
        let reference = value(&rules.reference).map(|reference| cut_id(&reference));
        if message_id.is_none() && reference.is_none() {
            tracing::debug!(provider = config.name, "a receipt has no id");
            return None;
        }
        let word = rules.state.values(Some(entry), None).into_iter().next();
        let word = word.unwrap_or_default();
        let state = self.state(&word);
        if state == ReceiptState::Unlisted {
            tracing::debug!(
                provider = config.name,
                state = word,
                "a receipt has an unlisted state"
            );
        }
        let number = |places: &Option<Pointers>| value(places)?.parse::<u16>().ok();
        let part = number(&rules.part).filter(|number| *number > 0);
        Some(Receipt {
            reference,
            message_id,
            phone: value(&rules.phone).map(|phone| cut(&phone, 64).to_owned()),
            state,
            failure: self.failure(state, &word, entry, config, response),
            at: value(&rules.at).and_then(|at| parse_time(&at, &self.zone)),
            part: part.map(|part| ReceiptPart {
                number: part,
                total: number(&rules.parts).unwrap_or(0),
            }),
            raw: cut(&entry.to_string(), MAX_RAW).to_owned(),
        })
    }

    fn state(&self, word: &str) -> ReceiptState {
        let states = &self.rules.states;
        let exact = states.get(word).copied();
        let pattern = || {
            let fitting = states
                .iter()
                .filter(|(pattern, _)| matches_glob(pattern, word));
            let longest = fitting.max_by_key(|(pattern, _)| pattern.len());
            longest.map(|(_, state)| *state)
        };
        exact.or_else(pattern).unwrap_or(ReceiptState::Unlisted)
    }

    /// Why the message was not delivered: what the code means, else the provider's words.
    fn failure(
        &self,
        state: ReceiptState,
        word: &str,
        entry: &Json,
        config: &ProviderConfig,
        response: &ResponseView<'_>,
    ) -> Option<Failure> {
        let class = match state {
            ReceiptState::Undelivered | ReceiptState::Rejected => Class::Recipient,
            ReceiptState::Expired => Class::Expired,
            _ => return None,
        };
        let values = |places: &Option<Pointers>| {
            let places = places.as_ref();
            places.map_or_else(Vec::new, |places| places.values(Some(entry), None))
        };
        let codes: Vec<String> = values(&self.rules.code);
        let words = values(&self.rules.reason).into_iter().next();
        let words = words.or_else(|| Some(word.to_owned()).filter(|word| !word.is_empty()));
        let listed = codes.iter().find_map(|code| {
            let tables = [&self.rules.codes, &config.codes];
            tables.into_iter().find_map(|table| {
                let outcome = response.outcome_of_code(table, code, words.clone())?;
                // A code of acceptance explains nothing.
                outcome.failure().cloned()
            })
        });
        let mut failure = listed.unwrap_or_else(|| {
            let reason = words
                .as_deref()
                .map_or(Cow::Borrowed("not delivered"), |words| {
                    response.redacted(words).into()
                });
            let code = codes.first().map(|code| short_code(code));
            Failure {
                code,
                ..Failure::new(class, reason)
            }
        });
        if state == ReceiptState::Expired {
            failure.class = Class::Expired;
        }
        Some(failure)
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with('/') || text.starts_with("http://") || text.starts_with("https://")
}

/// The request for the page at this URL, which must be on the same host: the request carries credentials.
fn follow(mut request: Request<bytes::Bytes>, next: &str) -> RequestResult {
    let wrong = |problem: &str| {
        Err(account_error(format!(
            "the next page of receipts {problem}"
        )))
    };
    let base = Url::parse(&request.uri().to_string());
    let Some(url) = base
        .ok()
        .and_then(|base| Some((base.join(next).ok()?, base)))
    else {
        return wrong("has an invalid URL");
    };
    let (url, base) = url;
    if url.origin() != base.origin() {
        return wrong("is on another host");
    }
    let uri: Result<Uri, _> = url.as_str().parse();
    *request.uri_mut() = uri.map_err(|_| rejected("the URL of the next page is too long"))?;
    Ok(request)
}

/// RFC 3339, RFC 2822, `2026-11-23 09:00:00`, `20261123090000`, `2611230900` with or without seconds, or a number of
/// seconds or milliseconds since 1970.
fn parse_time(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let text = text.trim();
    let millis = |instant: jiff::Timestamp| Timestamp::from_millis(instant.as_millisecond());
    let local = |time: civil::DateTime| Some(millis(time.to_zoned(zone.clone()).ok()?.timestamp()));
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        return Some(millis(instant));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let format = match text.len() {
            14 => Some("%Y%m%d%H%M%S"),
            12 => Some("%y%m%d%H%M%S"),
            10 if text.starts_with('2') => Some("%y%m%d%H%M"),
            _ => None,
        };
        if let Some(time) = format.and_then(|format| civil::DateTime::strptime(format, text).ok()) {
            return local(time);
        }
        let number: i64 = text.parse().ok()?;
        let factor = if number >= MIN_MILLIS { 1 } else { 1_000 };
        return Some(Timestamp::from_millis(number.checked_mul(factor)?));
    }
    if let Ok(zoned) = jiff::fmt::rfc2822::parse(text) {
        return Some(millis(zoned.timestamp()));
    }
    let with_offset = ["%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%d %H:%M:%S%.f%z"];
    for format in with_offset {
        if let Ok(instant) = jiff::Timestamp::strptime(format, text) {
            return Some(millis(instant));
        }
    }
    text.parse().ok().and_then(local)
}
