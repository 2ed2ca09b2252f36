//! Amazon SNS: `Publish` to a phone, in the query protocol, answered in XML. It takes no reference and cannot be
//! asked, so a message without an answer stays unknown.
//! <https://docs.aws.amazon.com/sns/latest/api/API_Publish.html>

use bytes::Bytes;
use http::Request;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::answer::{Answer, taken};
use super::capabilities::Reference;
use super::stanza::Stanza;
use super::vendor::{Calls, Common, FORM, all, form};
use super::{Message, ProviderError, RequestContext, aws};
use crate::sms::Outcome;

pub(super) const KEYS: &[&str] = &["region", "sms_type", "max_price"];

pub(super) struct AwsSns {
    region: String,
    sms_type: Option<String>,
    max_price: Option<String>,
}

impl AwsSns {
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        Ok(Self {
            region: stanza.required("region")?,
            sms_type: stanza.optional("sms_type")?,
            max_price: stanza.optional("max_price")?,
        })
    }
}

impl Calls for AwsSns {
    fn reference(&self) -> Reference {
        Reference::None
    }

    fn doubts(&self, common: &Common) -> Vec<String> {
        aws::doubts(common)
    }

    fn request(
        &self,
        common: &Common,
        messages: &[Message],
        context: &RequestContext,
    ) -> Result<Request<Bytes>, Outcome> {
        let message = &messages[0];
        let attributes = [
            ("AWS.SNS.SMS.SMSType", "String", self.sms_type.as_deref()),
            ("AWS.SNS.SMS.SenderID", "String", common.from(message)),
            ("AWS.SNS.SMS.MaxPrice", "Number", self.max_price.as_deref()),
        ];
        let attributes = attributes
            .into_iter()
            .filter_map(|(name, kind, value)| Some((name, kind, value?)))
            .enumerate();
        let attributes: Vec<(String, &str)> = attributes
            .flat_map(|(at, (name, kind, value))| {
                let entry = format!("MessageAttributes.entry.{}", at + 1);
                [
                    (format!("{entry}.Name"), name),
                    (format!("{entry}.Value.DataType"), kind),
                    (format!("{entry}.Value.StringValue"), value),
                ]
            })
            .collect();
        let pairs = [
            ("Action", "Publish"),
            ("Version", "2010-03-31"),
            ("PhoneNumber", message.phone.as_str()),
            ("Message", &message.content),
        ];
        let attributes = attributes
            .iter()
            .map(|(name, value)| (name.as_str(), *value));
        let body = form(pairs.into_iter().chain(attributes));
        aws::signed(common, &self.region, "sns", context.now, FORM, &[], body)
    }

    fn answer(&self, common: &Common, messages: &[Message], answer: &Answer<'_>) -> Vec<Outcome> {
        let found = elements(&answer.text());
        let outcome = match found {
            Some(Found { id: Some(id), .. }) if answer.status.is_success() => {
                taken(&id, None, None)
            }
            _ if answer.status.is_success() => answer.unknown(" without a `MessageId`"),
            Some(Found { code, words, .. }) => {
                // One code for two things, and the words tell them apart.
                let is_phone = words.as_ref().is_some_and(|words| {
                    words
                        .trim_start_matches("Invalid parameter: ")
                        .starts_with("PhoneNumber")
                });
                let suffix = if is_phone { " PhoneNumber" } else { "" };
                let code = code.map(|code| match code.as_str() {
                    "InvalidParameter" => code + suffix,
                    _ => code,
                });
                answer.failed(&common.codes, code.as_deref(), words)
            }
            None => answer.failed(&common.codes, None, None),
        };
        all(messages, &outcome)
    }
}

#[derive(Default)]
struct Found {
    id: Option<String>,
    code: Option<String>,
    words: Option<String>,
}

/// What stands in the elements that matter; `None` where the whole is not XML.
fn elements(text: &str) -> Option<Found> {
    let mut reader = Reader::from_str(text);
    let mut found = Found::default();
    let mut path: Vec<String> = Vec::new();
    loop {
        match reader.read_event().ok()? {
            Event::Eof => return path.is_empty().then_some(found),
            Event::Start(start) => {
                if path.len() > 16 {
                    return None;
                }
                path.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
            }
            Event::End(_) => drop(path.pop()),
            Event::Text(text) => {
                let text = text.decode().ok()?.trim().to_owned();
                let place: Vec<&str> = path.iter().rev().take(2).map(String::as_str).collect();
                let slot = match place.as_slice() {
                    ["MessageId", "PublishResult"] => &mut found.id,
                    ["Code", "Error"] => &mut found.code,
                    ["Message", "Error"] => &mut found.words,
                    _ => continue,
                };
                if !text.is_empty() {
                    slot.get_or_insert(text);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
