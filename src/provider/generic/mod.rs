//! Any HTTP API that can be said in a few lines of TOML: url, headers, form or JSON body with placeholders,
//! what counts as accepted, where the id is, which codes mean what.

mod batch;
mod body;
mod headers;
mod lookup;
mod matches;
mod pattern;
mod template;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use url::Url;

use super::answer::Answer;
use super::capabilities::{
    Answers, Attempt, Capabilities, LookupResult, Reference, SHARED, Sought, Writes,
};
use super::codes::Codes;
use super::forms::Forms;
use super::quote::Private;
use super::reading::Reading;
use super::secrets::Secrets;
use super::stanza::{Connection, Stanza};
use super::vendor::{all, refused, unclear};
use super::{Message, ProviderError, RequestContext};
use crate::sms::{Outcome, Timestamp};
use batch::{Batch, Place};
use body::Scope;
use lookup::Question;
use pattern::Pattern;

/// A provider as a stanza of `kind = "generic"` describes it.
pub struct Generic {
    name: String,
    pattern: Pattern,
    batch: Option<Batch>,
    reading: Reading,
    honoured_for: Option<Duration>,
    /// The stanza names a sender.
    has_sender: bool,
    receipts: bool,
    question: Option<Question>,
    connection: Connection,
    secrets: Secrets,
}

/// The secrets are in its templates, so it shows its name only.
impl fmt::Debug for Generic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generic")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

const KEYS: [&str; 13] = [
    "url",
    "method",
    "headers",
    "json",
    "form",
    "query",
    "secrets",
    "from",
    "batch",
    "honours_reference",
    "honoured_for",
    "receipts",
    "lookup",
];

/// Where a stanza does not say how long a vendor remembers references.
const HONOURED_FOR: Duration = Duration::from_secs(30 * 86_400);

impl Generic {
    pub(super) fn read(
        stanza: &Stanza<'_>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        stanza.check_keys(&[&KEYS[..], &Reading::KEYS[..], &Connection::KEYS[..]].concat())?;
        let connection = Connection::read(stanza)?;
        let mut secrets = Secrets::read(stanza, environment)?;
        let mut pattern = Pattern::send(stanza, &secrets)?;
        let batch = Batch::read(stanza, &secrets)?;
        if let Some(batch) = &batch {
            let repeated = pattern.repeat(&batch.repeat, batch.separator.as_deref());
            repeated.map_err(|problem| {
                stanza.fault("batch.repeat", format!("`{}` {problem}", batch.repeat))
            })?;
        }
        if !pattern.names("phone", Scope::Anywhere) {
            return Err(stanza.fault(
                "phone",
                "no part of the request says to whom\nhint: put `{{ phone }}` into `json`, `form` or `query`",
            ));
        }
        if batch.is_some() && pattern.names("phone", Scope::Outside) {
            let problem =
                "`{{ phone }}` stands outside of it, so no two messages could go together";
            return Err(stanza.fault("batch.repeat", problem));
        }
        for made in pattern.made_of_secrets() {
            secrets.hide(made);
        }
        let honoured_for = read_honoured(stanza)?;
        let joins = batch.as_ref().is_some_and(|batch| batch.per_call > 1);
        let is_shared = joins && pattern.names("reference", Scope::Outside);
        if is_shared && honoured_for.is_some() {
            let problem = "cannot hold where several messages share a reference\nhint: put `{{ reference }}` into what `batch` repeats";
            return Err(stanza.fault("honours_reference", problem));
        }
        Ok(Self {
            name: stanza.name.to_owned(),
            pattern,
            batch,
            reading: Reading::read(stanza)?,
            honoured_for,
            has_sender: stanza.table.contains_key("from"),
            receipts: stanza.optional("receipts")?.unwrap_or(false),
            question: Question::read(stanza, &secrets, is_shared)?,
            connection,
            secrets,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn base(&self) -> &Url {
        &self.pattern.base
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn codes(&self) -> &Codes {
        &self.reading.codes
    }

    pub(super) fn secrets(&self) -> &Forms {
        self.secrets.forms()
    }

    pub(super) fn doubts(&self) -> Vec<String> {
        let names = |root| self.pattern.names(root, Scope::Anywhere);
        let is_textless = !names("content") && !names("params");
        let doubt = "no part of the request carries the text: put `{{ content }}` into `json`, `form` or `query`";
        let mut doubts = self.secrets.doubts();
        doubts.extend(is_textless.then(|| doubt.to_owned()));
        doubts
    }

    pub(super) fn needs_sender(&self) -> bool {
        !self.has_sender && self.pattern.names("from", Scope::Anywhere)
    }

    pub(super) fn reads_columns(&self) -> bool {
        self.pattern.names("params", Scope::Anywhere)
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let names = |root| self.pattern.names(root, Scope::Anywhere);
        Capabilities {
            writes: if names("content") || !names("params") {
                Writes::Text
            } else {
                Writes::Template
            },
            most_per_call: self.batch.as_ref().map_or(1, |batch| batch.per_call),
            reference: match self.honoured_for {
                Some(span) => Reference::Honoured { span },
                None if names("reference") => Reference::Echoed,
                None => Reference::None,
            },
            lookup: self.question.as_ref().map(|question| question.plan.clone()),
            receipts: self.receipts,
        }
    }

    pub(super) fn lookup(
        &self,
        message: &Message,
        attempt: Attempt,
    ) -> Option<Result<Vec<Request<Bytes>>, Outcome>> {
        let request = self.question.as_ref()?.request(message, attempt);
        Some(request.map(|request| vec![request]))
    }

    pub(super) fn ids(&self, responses: &[Response<Bytes>]) -> Vec<String> {
        let private = self.private(&[]);
        let read = |response| Answer::read(response, &private, Timestamp::default());
        let ids = |response| Some(self.question.as_ref()?.ids(&read(response)));
        responses.iter().filter_map(ids).flatten().collect()
    }

    pub(super) fn found(
        &self,
        message: &Message,
        attempt: Attempt,
        answers: &Answers<'_>,
    ) -> LookupResult {
        let Some(question) = &self.question else {
            return unclear("this provider cannot be asked".to_owned());
        };
        let private = self.private(std::slice::from_ref(message));
        question.plan.found(answers, attempt, &private, |answer| {
            let sought = Sought::new(message, attempt, answer.date, answers);
            question.found(&self.reading.codes, &sought, answer)
        })
    }

    fn private<'a>(&'a self, messages: &'a [Message]) -> Private<'a> {
        let contents = messages.iter().map(|it| it.content.as_str());
        Private::new(contents, Some(self.secrets.forms()))
    }

    /// Messages go together whose requests differ only in what is repeated, and in the reference that they share.
    pub(super) fn joins(&self, taken: &[Message], next: &Message) -> bool {
        let Some(first) = taken.first() else {
            return true;
        };
        let most = self.batch.as_ref().map_or(1, |batch| batch.per_call);
        if taken.len() >= most || taken.iter().any(|one| one.phone == next.phone) {
            return false;
        }
        let frame = |message: &Message| {
            let outside = with_reference(message, String::new());
            let whole = self.pattern.fill(message, None);
            whole.and_then(|_| self.pattern.fill_all(&outside, &[], None))
        };
        match (frame(first), frame(next)) {
            (Ok(first), Ok(next)) => {
                first.uri() == next.uri()
                    && first.headers() == next.headers()
                    && first.body() == next.body()
            }
            _ => false,
        }
    }

    pub(super) fn request(
        &self,
        messages: &[Message],
        _stamp: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let fit = || (1..messages.len()).all(|at| self.joins(&messages[..at], &messages[at]));
        match messages {
            [message] => self.pattern.fill(message, None),
            [first, ..] if fit() => {
                let outside = with_reference(first, format!("{SHARED}{}", first.reference));
                self.pattern.fill_all(&outside, messages, None)
            }
            _ => Err(not_one(messages.len())),
        }
    }

    pub(super) fn answer(
        &self,
        messages: &[Message],
        response: &Response<Bytes>,
        context: &RequestContext,
    ) -> Vec<Outcome> {
        let private = self.private(messages);
        let answer = Answer::read(response, &private, context.now);
        let whole = self.reading.outcome_of(&answer, None);
        let is_one = messages.len() == 1;
        let is_taken = matches!(whole, Outcome::Accepted(_));
        let is_error = !self.reading.accepted.contains(&answer.status.as_u16());
        if is_error && is_taken && !is_one {
            // A code by which the vendor has one message already says nothing of the others.
            return all(messages, &answer.unknown(" to several messages at once"));
        }
        let Some(batch) = &self.batch else {
            return all(messages, &whole);
        };
        if is_error && !is_one {
            return self.failed_batch(batch, &answer, messages, &whole);
        }
        let of_all = || all(messages, &whole).swap_remove(0);
        let one = |place| match place {
            Place::Entry(at) => self.reading.outcome_of(&answer, Some(at)),
            Place::Unclear(fault) if !is_error => answer.unknown(fault),
            Place::NoList if is_taken && !is_one => answer.unknown(" without a list of results"),
            Place::Unclear(_) | Place::NoList | Place::Whole => of_all(),
        };
        let places = batch.places(&answer, messages);
        places.into_iter().map(one).collect()
    }

    /// Several messages whose answer is an error: rejected as a whole, unless the answer shows accepted messages.
    fn failed_batch(
        &self,
        batch: &Batch,
        answer: &Answer<'_>,
        messages: &[Message],
        whole: &Outcome,
    ) -> Vec<Outcome> {
        let mut entries = 0..batch.results(answer).len();
        if !entries.any(|at| self.reading.may_accept(answer, Some(at)))
            && !self.reading.may_accept(answer, None)
        {
            return all(messages, whole);
        }
        let one = |place| match place {
            Place::Entry(at) if !self.reading.may_accept(answer, Some(at)) => {
                self.reading.outcome_of(answer, Some(at))
            }
            _ => answer.unknown(" beside an error"),
        };
        batch
            .places(answer, messages)
            .into_iter()
            .map(one)
            .collect()
    }
}

/// A fault of smsq itself, on which it had better stop than guess.
pub(super) fn not_one(count: usize) -> Outcome {
    refused(format!(
        "a request that carries one message was given {count}"
    ))
}

fn with_reference(message: &Message, reference: String) -> Message {
    Message {
        reference,
        ..message.clone()
    }
}

/// How long the vendor accepts one message per reference, where it does.
fn read_honoured(stanza: &Stanza<'_>) -> Result<Option<Duration>, ProviderError> {
    let is_honoured = stanza.optional("honours_reference")?.unwrap_or(false);
    match stanza.span("honoured_for")? {
        Some(_) if !is_honoured => {
            Err(stanza.fault("honoured_for", "needs `honours_reference = true`"))
        }
        span => Ok(is_honoured.then_some(span.unwrap_or(HONOURED_FOR))),
    }
}
