//! What a vendor's file says, and the settings that all vendors have.

use bytes::Bytes;
use http::Request;
use url::Url;

use super::answer::Answer;
use super::capabilities::{Attempt, Lookup, LookupResult, Reference, Sought, Writes};
use super::codes::Codes;
use super::parameters::Parameters;
use super::quote::Private;
use super::secrets::Secrets;
use super::stanza::Connection;
use super::vendor::{refused, unclear};
use super::{Message, RequestContext};
use crate::sms::Outcome;

/// The settings that every vendor has.
pub(super) struct Common {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) base: Url,
    pub(super) from: Option<String>,
    pub(super) secrets: Secrets,
    pub(super) codes: Codes,
    pub(super) parameters: Parameters,
    pub(super) lookup: Option<Lookup>,
    pub(super) connection: Connection,
}

/// What a vendor's file says.
pub(super) trait Calls {
    fn writes(&self, _common: &Common) -> Writes {
        Writes::Text
    }

    fn most_per_call(&self) -> usize {
        1
    }

    fn reference(&self) -> Reference {
        Reference::Echoed
    }

    fn receipts(&self) -> bool {
        true
    }

    /// The settings without which nothing can be sent.
    fn missing(&self, _common: &Common) -> Vec<&'static str> {
        Vec::new()
    }

    /// Whether every message needs a sender.
    fn needs_sender(&self) -> bool {
        false
    }

    /// What looks wrong about the credentials, by their shape.
    fn doubts(&self, _common: &Common) -> Vec<String> {
        Vec::new()
    }

    /// What all messages of one request must have in common, or why this one cannot be sent at all.
    fn in_common(&self, _common: &Common, _message: &Message) -> Result<Vec<String>, Outcome> {
        Ok(Vec::new())
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        context: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome>;

    /// One outcome for each message, in their order.
    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome>;

    fn lookup(
        &self,
        _common: &Common,
        _message: &Message,
        _attempt: Attempt,
        _stamp: &RequestContext,
    ) -> Option<Result<Vec<Request<Bytes>>, Outcome>> {
        None
    }

    /// The ids in the answer to a look-up that may be those of other messages.
    fn ids(&self, _answer: &Answer<'_>) -> Vec<String> {
        Vec::new()
    }

    /// What one answer says of the message. `Absent`: it is complete, and nothing in it could be the message.
    fn found(&self, _common: &Common, _sought: &Sought<'_>, answer: &Answer<'_>) -> LookupResult {
        unclear(answer.reason("", None))
    }
}

impl Common {
    pub(super) fn secret(&self, name: &str) -> &str {
        self.secrets.named(name).unwrap_or_default()
    }

    pub(super) fn from<'a>(&'a self, message: &'a Message) -> Option<&'a str> {
        message.from.as_deref().or(self.from.as_deref())
    }

    /// The sender, for a vendor that needs one.
    pub(super) fn sender<'a>(&'a self, message: &'a Message) -> Result<&'a str, Outcome> {
        self.from(message).ok_or_else(|| {
            refused("needs a sender, and neither the campaign nor the provider has one".to_owned())
        })
    }

    /// The address with more behind it, each part encoded.
    pub(super) fn at(&self, parts: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(parts);
        }
        url
    }

    pub(super) fn private<'a>(&'a self, messages: &'a [Message]) -> Private<'a> {
        let contents = messages.iter().map(|it| it.content.as_str());
        Private::new(contents, Some(self.secrets.forms()))
    }

    /// `` `account_sid` does not look like … `` where the secret has another shape.
    pub(super) fn doubt(&self, secret: &str, wanted: &str, fits: fn(&str) -> bool) -> Vec<String> {
        if fits(self.secret(secret)) {
            return Vec::new();
        }
        vec![format!("secret `{secret}` does not look like {wanted}")]
    }
}
