//! SMS providers: a provider turns messages into an HTTP request and an HTTP response into outcomes. Both are pure
//! functions; the clock and randomness come in a [`RequestContext`], and only [`client`] does I/O.

mod capabilities;
mod china;
pub mod client;
mod codes;
mod config;
mod generic;
mod lossy_json;
mod posted_signature;
mod receipts;
mod redact;
mod registry;
mod response;
mod signing;
#[cfg(test)]
mod testing;
mod times;
mod units;
mod vendors;
mod webhook;

use std::collections::BTreeSet;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use smsq_message::budget;
use smsq_message::phone::Phone;
use smsq_message::prices::Prices;
use smsq_message::rate::Rates;
use smsq_message::route::sender_pool::SenderPool;
use smsq_message::route::{CONTENT, DeliveredShares, RouteMember};
use smsq_message::sms::{Acceptance, Class, Failure, Outcome, Timestamp};
use url::Host;

pub use capabilities::{
    AttemptSpan, Capabilities, ContentMode, Lookup, LookupResponses, LookupResult, Reference,
};
pub use codes::CodeRow;
pub use config::account::{SharedAccount, account_of, share_limits};
pub use config::section::ProviderError;
pub use receipts::{
    AwaitedMessage, PullShape, ReceiptCursor, ReceiptPage, ReceiptPath, ReceiptPull, ReceiptQuery,
    ReceiptSource,
};
pub use registry::{builtin, builtin_section, complete, with_overrides};
pub use webhook::{Posted, PostedRequest, Reply, Webhook, WebhookError, asks_to_stop};

use capabilities::LookupTarget;
use config::ProviderConfig;
use generic::{Receipts, WebhookReader};
use redact::Redactor;
use response::ResponseView;

/// One message, as far as a provider needs to know it.
#[derive(Clone, Debug)]
pub struct Message {
    pub phone: Phone,
    pub content: String,
    /// Our id for the message, the same in every automatic resend; at most 36 characters.
    pub reference: String,
    /// The campaign's sender; the provider's `from` is used where it is `None`.
    pub from: Option<String>,
    /// The imported columns.
    pub params: serde_json::Map<String, serde_json::Value>,
}

/// The clock and the randomness of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContext {
    pub now: Timestamp,
    pub nonce: u128,
}

/// What all messages of one request have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BatchKey(pub Vec<String>);

/// A request; `Err` is the outcome of its messages where none can be made.
pub type RequestResult = Result<Request<Bytes>, Outcome>;
/// The requests of one status lookup, like [`RequestResult`].
pub type Requests = Result<Vec<Request<Bytes>>, Outcome>;
type NewAdapter = Result<Box<dyn Adapter>, ProviderError>;

/// Has the settings that every provider has.
trait Configured {
    fn config(&self) -> &ProviderConfig;

    fn config_mut(&mut self) -> &mut ProviderConfig;
}

/// The API of one vendor.
trait Adapter: Configured + Send + Sync {
    /// Messages with equal keys can share a request. Fails where the message can never be sent.
    fn batch_key(&self, _message: &Message) -> Result<BatchKey, Outcome> {
        Ok(BatchKey(Vec::new()))
    }

    /// `messages` is not empty, and all have the same [`BatchKey`] and different phones.
    fn request(&self, messages: &[Message], context: &RequestContext) -> RequestResult;

    /// Returns one outcome per message, in the same order.
    fn parse(&self, messages: &[Message], response: &ResponseView<'_>) -> Vec<Outcome>;

    /// The requests of a status lookup; none where the vendor has no lookup.
    fn lookup(&self, _: &Message, _: AttemptSpan, _: &RequestContext) -> Requests {
        Ok(Vec::new())
    }

    /// The ids in a lookup's response that may belong to other messages.
    fn lookup_ids(&self, _: &ResponseView<'_>) -> Vec<String> {
        Vec::new()
    }

    /// What one response of a lookup says. `Absent`: the list is complete and no entry can be the message.
    fn parse_lookup(&self, _: &LookupTarget<'_>, _: &ResponseView<'_>) -> LookupResult {
        unclear("this provider has no status lookup")
    }

    /// Signs a request for receipts, where the vendor wants that.
    fn sign(&self, request: Request<Bytes>, _: &RequestContext) -> RequestResult {
        Ok(request)
    }
}

/// A configured provider.
pub struct Provider {
    adapter: Box<dyn Adapter>,
    receipts: Option<Receipts>,
    webhook: Option<WebhookReader>,
    secret_keys: BTreeSet<String>,
}

/// Secrets are part of the adapter, so only the name is printed.
impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Provider").field(&self.name()).finish()
    }
}

impl Provider {
    /// Reads section `[providers.NAME]`; `environment` returns the value of an environment variable.
    pub fn from_section(
        name: &str,
        section: &toml::Table,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let parts = registry::read(name, section, environment)?;
        Ok(Self {
            adapter: parts.adapter,
            receipts: parts.receipts,
            webhook: parts.webhook,
            secret_keys: parts.secret_keys,
        })
    }

    /// Keeps a value out of all reasons, as if it were a secret of the section.
    pub fn hide(&mut self, value: &str) {
        self.adapter.config_mut().secrets.forms.add_derived(value);
    }

    /// The keys of the section whose values are never shown, like `receipts.headers`.
    pub fn secret_keys(&self) -> &BTreeSet<String> {
        &self.secret_keys
    }

    /// The NAME in `[providers.NAME]`.
    pub fn name(&self) -> &str {
        &self.config().name
    }

    pub fn kind(&self) -> &'static str {
        self.config().kind
    }

    /// Scheme, host and port of the URL.
    pub fn origin(&self) -> String {
        self.config().url.origin().ascii_serialization()
    }

    /// Whether the URL is on the loopback interface.
    pub fn is_on_this_host(&self) -> bool {
        match self.config().url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }

    /// The rate limits of the account.
    pub fn rates(&self) -> &Rates {
        &self.config().rates
    }

    /// The account whose limits are those of its messages.
    pub fn account(&self) -> &str {
        &self.config().account
    }

    /// Whether the rates count segments instead of messages.
    pub fn rates_count_segments(&self) -> bool {
        self.config().rates_count_segments
    }

    /// For a whole request, from connecting to the last byte of the response.
    pub fn timeout(&self) -> Duration {
        self.config().timeout
    }

    /// The most messages of one request.
    pub fn max_batch(&self) -> usize {
        self.capabilities().max_batch
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.config().capabilities
    }

    /// The meaning of the vendor's codes, sorted by code.
    pub fn codes(&self) -> Vec<CodeRow> {
        self.config().codes.listed()
    }

    /// Whether the table of codes has `code` itself; a matching pattern is not enough.
    pub fn knows_code(&self, code: &str) -> bool {
        self.config().codes.names(code)
    }

    /// The required settings that are not set. Without them nothing can be sent.
    pub fn missing_settings(&self) -> &[String] {
        &self.config().required
    }

    /// Whether every campaign must name a sender.
    pub fn needs_sender(&self) -> bool {
        let config = self.config();
        config.from.is_none() && config.senders.is_none() && config.requires_sender
    }

    /// The senders that the messages of campaigns without a sender are divided among.
    pub fn senders(&self) -> Option<&Arc<SenderPool>> {
        self.config().senders.as_ref()
    }

    /// What a route needs to know of it.
    pub fn route_member(&self, prices: Option<&Prices>) -> RouteMember {
        let config = self.config();
        let unlisted = || Arc::new(SenderPool::unlisted(self.name(), ""));
        RouteMember {
            pool: config.senders.clone().unwrap_or_else(unlisted),
            rates: self.rates().clone(),
            own_sender: config.from.clone(),
            prices: prices.cloned().map(Arc::new),
            columns: self.needed_columns(),
            delivered: DeliveredShares::default(),
        }
    }

    /// The sender of its pool for a phone, whether or not that is switched off.
    pub fn pool_sender(&self, phone: &Phone) -> Option<String> {
        let pool = self.senders()?;
        let chosen = pool.choose(phone.as_str(), |_| true)?;
        Some(pool.senders()[chosen].from.to_string())
    }

    /// Whether `code` is about the sender, not about the account.
    pub fn blames_sender(&self, code: &str) -> bool {
        self.config().codes.blames_sender(code)
    }

    /// Warnings about the settings and the format of the secrets; nothing is sent.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.config().secrets.warnings();
        warnings.extend(self.config().warnings.iter().cloned());
        warnings
    }

    /// The text of the vendor's template, filled for `message`; `None` where the text is not configured or cannot be
    /// filled.
    pub fn preview(&self, message: &Message) -> Option<String> {
        self.config().template.preview(message)
    }

    /// The columns that fill the parameters of the vendor's template.
    pub fn columns(&self) -> Vec<&str> {
        self.config().template.columns()
    }

    /// The columns without which no message can be sent; `content` is the text.
    fn needed_columns(&self) -> BTreeSet<String> {
        let config = self.config();
        let sends_text = config.capabilities.sends == ContentMode::Text;
        let text = sends_text.then(|| CONTENT.to_owned());
        let of_template = config.template.columns().into_iter().map(str::to_owned);
        let of_request = config.needed_columns.iter().cloned();
        text.into_iter().chain(of_template).chain(of_request).collect()
    }

    /// The text of the vendor's template, where it is configured.
    pub fn template_text(&self) -> Option<&str> {
        self.config().template.text()
    }

    /// Whether the imported columns matter to [`Provider::validate`] and [`Provider::preview`].
    pub fn reads_columns(&self) -> bool {
        self.config().reads_columns
    }

    /// Fails where the message can never be sent, for example because a column is missing or a value is too long.
    pub fn validate(&self, message: &Message) -> Result<(), Failure> {
        match self.adapter.batch_key(message) {
            Err(Outcome::Rejected(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Messages with equal keys and different phones can share a request; `None`: the message is sent alone.
    pub fn batch_key(&self, message: &Message) -> Option<BatchKey> {
        self.adapter.batch_key(message).ok()
    }

    /// The request that sends `messages`, which must have equal batch keys; `Err` is their outcome where none can
    /// be made.
    pub fn request(&self, messages: &[Message], context: &RequestContext) -> RequestResult {
        if let Some(key) = self.missing_settings().first() {
            return Err(account_error(format!("`{key}` is not set")));
        }
        self.adapter.request(messages, context)
    }

    /// The outcome of each of `messages`, in their order.
    pub fn parse(
        &self,
        messages: &[Message],
        response: &Response<Bytes>,
        context: &RequestContext,
    ) -> Vec<Outcome> {
        if messages.is_empty() {
            return Vec::new();
        }
        let redactor = self.redactor(messages);
        let view = ResponseView::new(response, &redactor, context.now);
        let mut outcomes = self.adapter.parse(messages, &view);
        for outcome in &mut outcomes {
            if let Some(doubt) = self.doubt(messages, &view, outcome) {
                let failure = outcome.failure().cloned();
                *outcome = Outcome::Unknown(Failure {
                    code: failure.and_then(|failure| failure.code),
                    ..Failure::new(Class::Unknown, view.reason(doubt, None))
                });
            }
            response::remove_secrets(outcome, &self.config().secrets.forms);
            if let Outcome::Accepted(acceptance) | Outcome::Duplicate(acceptance) = outcome {
                self.complete(acceptance);
            }
        }
        outcomes
    }

    /// Why the outcome that this response seems to have is not certain.
    fn doubt(
        &self,
        messages: &[Message],
        response: &ResponseView<'_>,
        outcome: &Outcome,
    ) -> Option<&'static str> {
        if matches!(outcome, Outcome::Unknown(_)) {
            return None;
        }
        if response.is_cut {
            return Some(" with a body that breaks off");
        }
        if let Outcome::Accepted(acceptance) = outcome
            && acceptance.message_id.as_deref().is_some_and(response::is_no_id)
        {
            return Some(" with `false`, zero or a negative number in place of an id");
        }
        let code = outcome.failure().and_then(|failure| failure.code.as_ref());
        let is_listed = code.is_some_and(|code| self.config().codes.is_of_body(code));
        let is_unreadable = response.json.is_none() && !response.is_certainly_empty();
        let is_batch = messages.len() > 1;
        if is_batch
            && is_unreadable
            && !is_listed
            && codes::status::may_be_of_a_part(response.status)
        {
            return Some(
                " to several messages with a body that is not JSON, which may hide results",
            );
        }
        let stray = response.stray?;
        (!stray.is_habit || !is_listed).then_some(
            " and ended the connection, which was used before: it may have answered the request before this one twice",
        )
    }

    /// The text with the names of the secrets in place of their values. A line that contains one in encoded form is
    /// hidden, and the whole text where a secret continues on another line.
    pub fn hide_secrets(&self, text: &str) -> String {
        self.config().secrets.hide(text)
    }

    /// The requests that look up a message with an unknown outcome; `None` where the vendor has no status lookup.
    /// [`Capabilities::lookup`] says when and how often to ask.
    pub fn lookup(
        &self,
        message: &Message,
        attempt: AttemptSpan,
        context: &RequestContext,
    ) -> Option<Requests> {
        self.capabilities().lookup.as_ref()?;
        match self.adapter.lookup(message, attempt, context) {
            Ok(requests) if requests.is_empty() => None,
            requests => Some(requests),
        }
    }

    /// The ids in the responses to [`Provider::lookup`] that may belong to other messages.
    pub fn lookup_ids(&self, responses: &[Response<Bytes>]) -> Vec<String> {
        let redactor = self.redactor(&[]);
        let view = |response| ResponseView::new(response, &redactor, Timestamp::default());
        responses.iter().flat_map(|response| self.adapter.lookup_ids(&view(response))).collect()
    }

    /// What the responses to [`Provider::lookup`] say about the message.
    pub fn parse_lookup(
        &self,
        message: &Message,
        attempt: AttemptSpan,
        answers: &LookupResponses<'_>,
    ) -> LookupResult {
        let Some(lookup) = &self.capabilities().lookup else {
            return unclear("this provider has no status lookup");
        };
        let redactor = self.redactor(slice::from_ref(message));
        let mut result = lookup.combine(answers, attempt, &redactor, |response| {
            if response.stray.is_some() {
                return unclear(response.reason(" and ended the connection", None));
            }
            let target = LookupTarget::new(message, attempt, response.date, answers);
            self.adapter.parse_lookup(&target, response)
        });
        match &mut result {
            LookupResult::NotAccepted(outcome) => {
                response::remove_secrets(outcome, &self.config().secrets.forms);
            }
            LookupResult::Found(acceptance) | LookupResult::FoundRefused { acceptance, .. } => {
                self.complete(acceptance);
            }
            _ => {}
        }
        result
    }

    /// Adds what the settings say of an acceptance. A price of 0 is one only if the provider says so.
    fn complete(&self, acceptance: &mut Acceptance) {
        acceptance.awaits_receipt = self.awaits_receipts();
        if !self.config().believes_zero_price {
            acceptance.price.take_if(|price| budget::is_zero(price));
        }
    }

    /// How receipts are fetched, where that is switched on.
    pub fn pull(&self) -> Option<&ReceiptPull> {
        let pull = self.capabilities().pull.as_ref();
        pull.filter(|pull| pull.is_enabled)
    }

    /// Whether a receipt is expected for each message that the vendor accepts: they are fetched, or posted.
    pub fn awaits_receipts(&self) -> bool {
        self.pull().is_some() || self.webhook().is_some_and(|webhook| webhook.is_enabled)
    }

    /// The request for receipts; `Err` is its outcome where none can be made.
    pub fn receipts(
        &self,
        path: ReceiptPath,
        query: &ReceiptQuery<'_>,
        context: &RequestContext,
    ) -> RequestResult {
        if let Some(key) = self.missing_settings().first() {
            return Err(account_error(format!("`{key}` is not set")));
        }
        let request = self.listed_receipts()?.request(path, query)?;
        self.adapter.sign(request, context)
    }

    /// The receipts in the response to [`Provider::receipts`]; its outcome where it has none to read.
    pub fn parse_receipts(
        &self,
        path: ReceiptPath,
        query: &ReceiptQuery<'_>,
        response: &Response<Bytes>,
        context: &RequestContext,
    ) -> Result<ReceiptPage, Outcome> {
        let redactor = self.redactor(&[]);
        let view = ResponseView::new(response, &redactor, context.now);
        self.listed_receipts()?.parse(path, query, self.config(), &view).map_err(|mut outcome| {
            response::remove_secrets(&mut outcome, &self.config().secrets.forms);
            outcome
        })
    }

    fn listed_receipts(&self) -> Result<&Receipts, Outcome> {
        let receipts = self.receipts.as_ref();
        receipts.ok_or_else(|| rejected("has no list of receipts"))
    }

    /// The request that tells the vendor that all receipts which it returned until `fetched_at` were stored; `None`
    /// where none is needed.
    pub fn confirm_receipts(
        &self,
        fetched_at: Timestamp,
        context: &RequestContext,
    ) -> Option<RequestResult> {
        let request = self.receipts.as_ref()?.confirm(fetched_at)?;
        Some(request.and_then(|request| self.adapter.sign(request, context)))
    }

    /// How posted receipts are read and checked; `None` where the vendor posts none.
    pub fn webhook(&self) -> Option<&Webhook> {
        self.capabilities().webhook.as_ref()
    }

    /// The receipts and replies in a request that the vendor posted. What the section does not describe is left out.
    pub fn parse_webhook(&self, posted: &PostedRequest<'_>) -> Result<Posted, WebhookError> {
        let webhook = self.webhook.as_ref().ok_or(WebhookError::NotConfigured)?;
        webhook.parse(posted, self.config(), &self.redactor(&[]))
    }

    /// Content type and body of the answer that the vendor wants with status 200.
    pub fn webhook_answer(&self) -> (&'static str, &str) {
        let webhook = self.webhook.as_ref();
        webhook.map_or((webhook::PLAIN_TEXT, ""), WebhookReader::answer)
    }

    fn config(&self) -> &ProviderConfig {
        self.adapter.config()
    }

    fn redactor<'a>(&'a self, messages: &'a [Message]) -> Redactor<'a> {
        let contents = messages.iter().map(|message| message.content.as_str());
        Redactor::new(contents, &self.config().secrets.forms)
    }
}

/// A failure that affects every message: the account or the settings must be changed first.
fn account_error(reason: impl Into<String>) -> Outcome {
    codes::status::outcome_of(Failure::new(Class::Account, reason), None, true)
}

fn rejected(reason: impl Into<String>) -> Outcome {
    Outcome::Rejected(Failure::new(Class::Content, reason))
}

/// The message was accepted with this id.
fn found(message_id: &str) -> LookupResult {
    LookupResult::Found(response::acceptance(Some(message_id), None, None))
}

fn unclear(reason: impl Into<String>) -> LookupResult {
    LookupResult::Unclear(Failure::new(Class::Unknown, reason))
}
