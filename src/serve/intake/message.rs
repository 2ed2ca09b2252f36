//! A posted message: its JSON, and the message that an import would make of it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::import::consumer::MessageReader;
use crate::import::{Options, TextSource, Unique};
use crate::phone::{Dialling, Region};
use crate::sms::{NewSms, Timestamp};
use crate::store::IntakeKey;

/// Texts with placeholders that are remembered.
const MAX_READERS: usize = 1_000;
/// The longest `dedupe_key` and `Idempotency-Key`, in bytes.
pub(super) const MAX_KEY: usize = 255;
const MAX_CAMPAIGN: usize = 100;
const MAX_SENDER: usize = 100;

/// The JSON of a message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PostedMessage {
    phone: String,
    /// The text as it is sent.
    text: Option<String>,
    /// A text with placeholders, which `params` fill.
    template: Option<String>,
    params: Option<Map<String, Value>>,
    #[serde(default = "default_campaign")]
    pub(super) campaign: String,
    dedupe_key: Option<String>,
    due_at: Option<String>,
    expires_at: Option<String>,
    /// The sender of the campaign.
    pub(super) from: Option<String>,
}

fn default_campaign() -> String {
    "default".to_owned()
}

/// A message that can be queued.
pub(super) struct MappedMessage {
    pub(super) sms: NewSms,
    pub(super) due_at: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
    /// SHA-256 of its own key, if it has one.
    pub(super) own_key: Option<String>,
    /// SHA-256 of what was posted.
    pub(super) fingerprint: String,
}

impl MappedMessage {
    /// The keys that a repeated request has too.
    pub(super) fn keys(&self, campaign_id: i64, header: Option<&IntakeKey>) -> Vec<IntakeKey> {
        let own = self.own_key.clone().map(|key| IntakeKey {
            scope: format!("campaign/{campaign_id}"),
            key,
        });
        own.into_iter().chain(header.cloned()).collect()
    }
}

/// SHA-256 in hex.
pub(super) fn digest(bytes: impl AsRef<[u8]>) -> String {
    hex::encode(Sha256::digest(bytes))
}

impl PostedMessage {
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let message: Self =
            serde_json::from_slice(json).map_err(|error| format!("invalid message: {error}"))?;
        let name = message.campaign.trim();
        let is_long = name.chars().count() > MAX_CAMPAIGN;
        if name.is_empty() || is_long || name.chars().any(|c| !crate::text::is_printable(c)) {
            return Err(format!(
                "invalid `campaign`: use a printable name of up to {MAX_CAMPAIGN} characters"
            ));
        }
        if let Some(sender) = &message.from
            && (sender.trim().is_empty()
                || sender.chars().count() > MAX_SENDER
                || sender.chars().any(char::is_control))
        {
            return Err(format!(
                "invalid `from`: use up to {MAX_SENDER} characters without control characters"
            ));
        }
        Ok(message)
    }
}

/// Makes messages of posted ones, by the rules of imports.
pub(super) struct MessageMapper {
    region: Option<Region>,
    /// Numbers the messages of this process.
    count: AtomicU64,
    /// By the text with placeholders (`None`: the message has its text) and by what makes messages different.
    readers: Mutex<HashMap<(Option<String>, String), MessageReader>>,
}

impl MessageMapper {
    pub(super) fn new(region: Option<Region>) -> Self {
        Self {
            region,
            count: AtomicU64::new(0),
            readers: Mutex::default(),
        }
    }

    /// Maps a message for a campaign, whose duplicates are found by `unique`.
    pub(super) fn map(
        &self,
        posted: &PostedMessage,
        json: &[u8],
        unique: &Unique,
    ) -> Result<MappedMessage, String> {
        let template = match (&posted.text, &posted.template) {
            (Some(_), Some(_)) => {
                return Err("invalid message: it has both `text` and `template`".to_owned());
            }
            (None, None) => {
                return Err(
                    "missing `text`, or `template` with placeholders that `params` fill".to_owned(),
                );
            }
            (Some(_), None) => None,
            (None, Some(template)) => Some(template.clone()),
        };
        if let Some(key) = &posted.dedupe_key
            && (key.is_empty() || key.len() > MAX_KEY)
        {
            return Err(format!("invalid `dedupe_key`: use 1 to {MAX_KEY} bytes"));
        }
        let entry = entry(posted, template.is_none())?;
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let sms = self.read(template, unique, number, entry.as_bytes())?;
        let (due_at, expires_at) = (
            instant("due_at", posted.due_at.as_deref())?,
            instant("expires_at", posted.expires_at.as_deref())?,
        );
        if let (Some(due_at), Some(expires_at)) = (due_at, expires_at)
            && expires_at <= due_at
        {
            return Err("invalid `expires_at`: it is not after `due_at`".to_owned());
        }
        Ok(MappedMessage {
            sms,
            due_at,
            expires_at,
            own_key: posted.dedupe_key.as_ref().map(digest),
            fingerprint: digest(json),
        })
    }

    fn read(
        &self,
        template: Option<String>,
        unique: &Unique,
        number: u64,
        entry: &[u8],
    ) -> Result<NewSms, String> {
        let mut readers = self
            .readers
            .lock()
            .map_err(|_| "an earlier error".to_owned())?;
        let key = (template, unique.to_string());
        if !readers.contains_key(&key) {
            let text = match &key.0 {
                None => TextSource::Column,
                Some(template) => TextSource::Text(template.clone()),
            };
            let options = Options {
                text,
                dialling: Dialling::from(self.region),
                ..Options::default()
            };
            let reader = MessageReader::new(options, unique.clone());
            let reader = reader.map_err(|error| error.to_string().replace("--text", "template"))?;
            if readers.len() >= MAX_READERS {
                readers.clear();
            }
            readers.insert(key.clone(), reader);
        }
        let reader = readers.get_mut(&key).expect("it was just added");
        let sms = reader.message(number, entry);
        sms.map_err(|rejection| {
            let reason = rejection.reason.replace("`--text`", "`template`");
            reason.replace("`content`", "`text`")
        })
    }
}

/// The message as an entry of an import.
fn entry(posted: &PostedMessage, has_text: bool) -> Result<String, String> {
    let mut fields = Map::new();
    fields.insert("phone".to_owned(), json!(posted.phone));
    if has_text {
        fields.insert("content".to_owned(), json!(posted.text));
    }
    if let Some(key) = &posted.dedupe_key {
        fields.insert("dedupe_key".to_owned(), json!(key));
    }
    for (name, value) in posted.params.iter().flatten() {
        if fields.insert(name.clone(), value.clone()).is_some() {
            return Err(format!(
                "invalid `params`: `{}` is a field of the message",
                name.escape_debug()
            ));
        }
    }
    Ok(Value::Object(fields).to_string())
}

fn instant(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, String> {
    let Some(text) = text else {
        return Ok(None);
    };
    let instant: Result<jiff::Timestamp, _> = text.parse();
    let instant = instant.map_err(|_| {
        format!("invalid `{name}`: use an instant with its offset, like `2026-12-24T09:00:00Z`")
    })?;
    Ok(Some(Timestamp::from_millis(instant.as_millisecond())))
}

/// The messages of a JSON array, each as it was written.
pub(super) fn array(json: &[u8]) -> Result<Vec<Box<RawValue>>, String> {
    serde_json::from_slice(json).map_err(|error| format!("invalid list of messages: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(json: &str) -> Result<MappedMessage, String> {
        let mapper = MessageMapper::new("GB".parse().ok());
        let posted = PostedMessage::parse(json.as_bytes())?;
        mapper.map(&posted, json.as_bytes(), &Unique::None)
    }

    fn error(json: &str) -> String {
        map(json).err().expect("not a message")
    }

    #[test]
    fn message_has_a_text_or_a_filled_template() {
        let sms = map(r#"{"phone":"07400 123456","text":"Hi 😀"}"#)
            .expect("a message")
            .sms;
        assert_eq!(
            (sms.phone.as_str(), sms.content.as_str()),
            ("+447400123456", "Hi 😀")
        );
        let json = r#"{"phone":"+447400123456","template":"Hi {{ name }}, {{ n }}","params":{"name":"Ann","n":7}}"#;
        let sms = map(json).expect("a message").sms;
        assert_eq!(sms.content, "Hi Ann, 7");
        assert_eq!(sms.params, r#"{"name":"Ann","n":"7"}"#);
    }

    #[test]
    fn errors_are_those_of_an_import() {
        for (json, expected) in [
            (r#"{"phone":"+447400123456"}"#, "missing `text`"),
            (
                r#"{"phone":"+447400123456","text":"a","template":"b"}"#,
                "both `text` and `template`",
            ),
            (r#"{"phone":"12","text":"a"}"#, "not a valid phone number"),
            (r#"{"phone":"+447400123456","text":""}"#, "empty"),
            (
                r#"{"phone":"+447400123456","txt":"a"}"#,
                "unknown field `txt`",
            ),
            (
                r#"{"phone":"+447400123456","template":"{{ name }}"}"#,
                "`name`",
            ),
            (
                r#"{"phone":"+447400123456","template":"{{ name"}"#,
                "template",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","params":{"phone":"1"}}"#,
                "`phone` is a field",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","due_at":"tomorrow"}"#,
                "invalid `due_at`",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","dedupe_key":""}"#,
                "invalid `dedupe_key`",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","campaign":" "}"#,
                "invalid `campaign`",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","due_at":"2026-12-24T09:00:00Z","expires_at":"2026-12-24T08:00:00Z"}"#,
                "not after `due_at`",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","from":" "}"#,
                "invalid `from`",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","from":"SHOP\u0000"}"#,
                "invalid `from`",
            ),
            ("[]", "invalid message"),
            ("{", "invalid message"),
        ] {
            let found = error(json);
            assert!(found.contains(expected), "{json}: {found}");
        }
    }

    #[test]
    fn messages_without_a_key_are_different() {
        let mapper = MessageMapper::new(None);
        let json = r#"{"phone":"+447400123456","text":"a"}"#;
        let posted = PostedMessage::parse(json.as_bytes()).expect("a message");
        let key = || {
            let made = mapper.map(&posted, json.as_bytes(), &Unique::None);
            made.expect("a message").sms.dedupe_key
        };
        assert_ne!(key(), key());
    }
}
