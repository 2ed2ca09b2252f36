//! Kannel's smsbox: a `GET` with the message in its query, answered with a line of text and no message id. It
//! replaces what GSM 03.38 cannot write without a word, so the alphabet is chosen here.
//! <https://kannel.org/download/1.4.5/userguide-1.4.5/userguide.html>

use bytes::Bytes;
use http::Request;

use super::answer::Answer;
use super::capabilities::Reference;
use super::stanza::Stanza;
use super::vendor::{Calls, Common, all, form, get};
use super::{Message, ProviderError, RequestContext};
use crate::sms::{Acceptance, Outcome};
use crate::text::segments::outside_gsm7;

pub(super) const KEYS: &[&str] = &["smsc", "dlr_url", "dlr_mask"];

/// What smsbox says of a message that it took.
const TAKEN: [&str; 3] = [
    "0: Accepted for delivery",
    "3: Queued for later delivery",
    "Sent.",
];

pub(super) struct Kannel {
    smsc: Option<String>,
    dlr_url: Option<String>,
    dlr_mask: u32,
}

impl Kannel {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            smsc: stanza.optional("smsc")?,
            dlr_url: stanza.optional("dlr_url")?,
            // Delivered, not delivered, rejected by the centre.
            dlr_mask: stanza.optional("dlr_mask")?.unwrap_or(19),
        })
    }
}

impl Calls for Kannel {
    fn reference(&self) -> Reference {
        match self.dlr_url {
            Some(_) => Reference::Echoed,
            None => Reference::None,
        }
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        _stamp: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let message = &messages[0];
        let is_gsm = outside_gsm7(&message.content).next().is_none();
        let mut pairs = vec![
            ("username", common.secret("username")),
            ("password", common.secret("password")),
            ("to", message.phone.as_str()),
            ("text", &message.content),
            ("charset", "UTF-8"),
            ("coding", if is_gsm { "0" } else { "2" }),
        ];
        pairs.extend(common.from(message).map(|from| ("from", from)));
        pairs.extend(self.smsc.as_deref().map(|smsc| ("smsc", smsc)));
        let wanted = self.dlr_mask.to_string();
        let dlr = self.dlr_url.as_ref().map(|url| {
            let mark = if url.contains('?') { '&' } else { '?' };
            format!("{url}{mark}reference={}&type=%d", message.reference)
        });
        if let Some(url) = &dlr {
            pairs.extend([("dlr-mask", wanted.as_str()), ("dlr-url", url)]);
        }
        let mut url = common.base.clone();
        url.set_query(Some(&form(pairs)));
        get(&url, &[])
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let text = answer.text();
        let said = text.trim();
        let is_taken = TAKEN.iter().any(|words| said.starts_with(words));
        let outcome = match answer.status.as_u16() {
            200 | 202 if is_taken => Outcome::Accepted(Acceptance::default()),
            200..=299 => answer.unknown(" without a word of acceptance"),
            // The line may repeat what it was given, so only what the table has of it is kept.
            _ => {
                let code = common.codes.beginning(said);
                answer.failed(&common.codes, code, None)
            }
        };
        all(messages, &outcome)
    }
}

#[cfg(test)]
mod tests;
