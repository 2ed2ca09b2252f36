//! Makes messages of posted ones: phone, text, keys.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use smsq_import::own_key;
#[cfg(feature = "fuzz")]
use smsq_message::phone::Region;
use smsq_message::phone::{Dialling, Phone, PhoneError};
use smsq_message::sms::{NewSms, Timestamp};
use smsq_message::text::template::Template;
use smsq_message::text::{content, segments};
use smsq_store::IntakeKey;

use super::message::{PostedMessage, digest};

/// Texts with placeholders that are remembered.
const MAX_TEMPLATES: usize = 1_000;
/// The most characters of a phone that an error shows.
const MAX_SHOWN: usize = 40;

/// A message that can be queued.
pub(crate) struct MappedMessage {
    pub(crate) sms: NewSms,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    /// SHA-256 of its own key, if it has one.
    pub(crate) own_key: Option<String>,
    /// Equal for messages whose fields are equal, however they are written.
    pub(crate) fingerprint: String,
}

impl MappedMessage {
    /// The keys that a repeated request has too.
    pub(crate) fn keys(&self, campaign_id: i64, header: Option<&IntakeKey>) -> Vec<IntakeKey> {
        let own = self
            .own_key
            .clone()
            .map(|key| IntakeKey { scope: format!("campaign/{campaign_id}"), key });
        own.into_iter().chain(header.cloned()).collect()
    }
}

/// Makes messages of posted ones.
pub(super) struct MessageMapper {
    /// How numbers without `+` are read.
    dialling: Dialling,
    /// Makes messages without a key different from all others.
    token: String,
    count: AtomicU64,
    /// By their source.
    templates: Mutex<HashMap<String, Arc<Template>>>,
}

impl MessageMapper {
    pub(super) fn new(dialling: Dialling) -> Self {
        Self {
            dialling,
            token: format!("{:016x}", rand::random::<u64>()),
            count: AtomicU64::new(0),
            templates: Mutex::default(),
        }
    }

    /// Maps a message. One without a `dedupe_key` is never a duplicate.
    pub(super) fn map(&self, posted: &PostedMessage) -> Result<MappedMessage, String> {
        let phone = Phone::parse(&posted.phone, self.dialling)
            .map_err(|error| invalid_phone(&posted.phone, &error))?;
        let (name, content) = match (&posted.text, &posted.template) {
            (None, Some(source)) => ("template", posted.render(&*self.template(source)?)?),
            (text, _) => ("text", text.as_deref().unwrap_or_default().trim().to_owned()),
        };
        content::check(&content).map_err(|error| format!("invalid `{name}`: {error}"))?;
        let dedupe_key = if let Some(key) = &posted.dedupe_key {
            own_key(key)
        } else {
            let number = self.count.fetch_add(1, Ordering::Relaxed);
            format!("{}:{number}", self.token)
        };
        Ok(MappedMessage {
            fingerprint: posted.fingerprint(&phone),
            own_key: posted.dedupe_key.as_ref().map(digest),
            due_at: posted.due_at,
            expires_at: posted.expires_at,
            sms: NewSms {
                line: 0,
                segments: segments::count(&content).count,
                phone: phone.into_string(),
                content,
                params: posted.stored(),
                dedupe_key,
                replaces: None,
            },
        })
    }

    fn template(&self, source: &str) -> Result<Arc<Template>, String> {
        let templates = || self.templates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = templates().get(source) {
            return Ok(Arc::clone(known));
        }
        let parsed = Template::parse("template", source);
        let parsed = Arc::new(parsed.map_err(|problem| format!("invalid {problem}"))?);
        let mut templates = templates();
        if templates.len() >= MAX_TEMPLATES {
            templates.clear();
        }
        templates.insert(source.to_owned(), Arc::clone(&parsed));
        Ok(parsed)
    }
}

/// Maps a posted message, or returns why it cannot be queued.
#[cfg(feature = "fuzz")]
pub fn fuzz_posted(json: &[u8], region: Option<Region>) -> Result<(NewSms, String), String> {
    let mapper = MessageMapper {
        dialling: region.into(),
        token: "token".to_owned(),
        count: AtomicU64::new(0),
        templates: Mutex::default(),
    };
    let message = mapper.map(&PostedMessage::parse(json)?)?;
    Ok((message.sms, message.fingerprint))
}

/// Shows a value only to the client that sent it.
pub(crate) fn invalid_phone(raw: &str, error: &PhoneError) -> String {
    let shown: String = raw.chars().take(MAX_SHOWN).collect();
    let shown = shown.escape_debug();
    let problem = match error {
        PhoneError::Empty => return "invalid `phone`: it is empty".to_owned(),
        PhoneError::NotANumber(_) => "is not a phone number".to_owned(),
        PhoneError::Scientific(_) => {
            "is in scientific notation: give the number as a text with all its digits".to_owned()
        }
        PhoneError::Several(_) => "seems to contain more than one number: keep one".to_owned(),
        PhoneError::Invalid(_, why) => format!("is not a valid phone number: {why}"),
        PhoneError::Unassigned(_, region) => format!(
            "is not a valid phone number: neither a number of {region} nor one with a country code"
        ),
        PhoneError::AmbiguousMobile(_, region, other) | PhoneError::Ambiguous(_, region, other) => {
            format!(
                "can be a number of {region}, or one of {other} without its `+`: write it with `+` and \
                 its country code"
            )
        }
        PhoneError::NoRegion(_) | PhoneError::OtherCountry(..) | PhoneError::NoCountryCode(_) => {
            "has no `+`: write it with `+` and its country code".to_owned()
        }
        PhoneError::Excluded(_, country) => {
            format!("is a number of {country}, to which this server sends no messages")
        }
    };
    format!("invalid `phone`: `{shown}` {problem}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn map(json: &str) -> Result<MappedMessage, String> {
        let mapper = MessageMapper::new(Dialling::from("GB".parse().ok()));
        mapper.map(&PostedMessage::parse(json.as_bytes())?)
    }

    fn error(json: &str) -> String {
        map(json).err().expect("not a message")
    }

    fn fingerprint(json: &str) -> String {
        map(json).expect("a message").fingerprint
    }

    #[test]
    fn message_has_a_text_or_a_filled_template() {
        let sms = map(r#"{"phone":"07400 123456","text":"Hi 😀"}"#).expect("a message").sms;
        assert_eq!((sms.phone.as_str(), sms.content.as_str()), ("+447400123456", "Hi 😀"));
        let json = r#"{"phone":"+447400123456","template":"Hi {{ name }}, {{ n }}","params":{"name":"Ann","n":7}}"#;
        let sms = map(json).expect("a message").sms;
        assert_eq!(sms.content, "Hi Ann, 7");
        assert_eq!(sms.params, r#"{"name":"Ann","n":"7"}"#);
    }

    #[test]
    fn params_keep_numbers_as_written_and_any_name() {
        let json = r#"{"phone":"+447400123456","text":"a","dedupe_key":"k",
            "params":{"mobile":"1","tel":2,"First name":"Ann","n":1.10,"big":12345678901234567890123,"list":[1]}}"#;
        let sms = map(json).expect("a message").sms;
        let stored: Value = serde_json::from_str(&sms.params).expect("JSON");
        let expected = json!({"dedupe_key": "k", "mobile": "1", "tel": "2", "First name": "Ann", "n": "1.10",
            "big": "12345678901234567890123", "list": "[1]"});
        assert_eq!(stored, expected);
        let json = r#"{"phone":"+447400123456","template":"{{ First_name }} {{ phone }}","params":{"First name":"Ann"}}"#;
        assert_eq!(map(json).expect("a message").sms.content, "Ann +447400123456");
    }

    #[test]
    fn fingerprint_depends_on_fields_not_on_their_form() {
        let one = r#"{"phone":"+447400123456","text":"a","params":{"x":"1","y":"2"},"campaign":"c","dedupe_key":"k"}"#;
        for same in [
            r#" {"dedupe_key":"k","campaign":"c","params":{"y":"2","x":"1"},"text":"a","phone":"+447400123456"}
"#,
            r#"{"phone":"07400 123456","text":"a","params":{"x":1,"y":"2"},"campaign":" c ","dedupe_key":"k","from":null}"#,
        ] {
            assert_eq!(fingerprint(one), fingerprint(same), "{same}");
        }
        for (before, after) in [
            ("+447400123456", "+447400123457"),
            ("text", "template"),
            (":\"a\"", ":\"b\""),
            ("\"x\":\"1\"", "\"x\":\"3\""),
            ("\"c\"", "\"d\""),
            ("\"k\"", "\"l\""),
            ("{\"phone", "{\"from\":\"A\",\"phone"),
            ("{\"phone", "{\"due_at\":\"2099-01-01T00:00:00Z\",\"phone"),
            ("{\"phone", "{\"expires_at\":\"2099-01-01T00:00:00Z\",\"phone"),
        ] {
            let other = one.replacen(before, after, 1);
            assert_ne!(fingerprint(one), fingerprint(&other), "{other}");
        }
        assert_eq!(fingerprint(one).len(), 64);
    }

    #[test]
    fn errors_name_the_field_and_the_value_of_the_client() {
        for (json, expected) in [
            (r#"{"phone":"+447400123456"}"#, "missing field `text`"),
            (
                r#"{"phone":"+447400123456","text":"a","template":"b"}"#,
                "both `text` and `template`",
            ),
            (r#"{"phone":"12","text":"a"}"#, "not a valid phone number"),
            (r#"{"phone":"+447400123456","text":""}"#, "empty"),
            (r#"{"phone":"+447400123456","txt":"a"}"#, "unknown field `txt`"),
            (r#"{"phone":"+447400123456","template":"{{ name }}"}"#, "`name`"),
            (r#"{"phone":"+447400123456","template":"{{ name"}"#, "template"),
            (
                r#"{"phone":"+447400123456","text":"a","params":{"phone":"1"}}"#,
                "`phone` is a field",
            ),
            (r#"{"phone":"+447400123456","text":"a","params":{" smsq_id":"1"}}"#, "are reserved"),
            (
                r#"{"phone":"+447400123456","text":"a","params":[]}"#,
                "invalid `params`: it is not a JSON object",
            ),
            (
                r#"{"phone":"+447400123456","template":"{{ a }}","params":{"a":{}}}"#,
                "`a` is an object or an array",
            ),
            (r#"{"phone":"garbage 7","text":"a"}"#, "invalid `phone`: `garbage 7`"),
            (
                r#"{"phone":447400123456,"text":"a"}"#,
                "invalid `phone`: use a text in quotation marks",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","text":"b"}"#,
                "duplicate field `text` in message",
            ),
            (r#"{"phone":"+447400123456","text":"a","due_at":"tomorrow"}"#, "invalid `due_at`"),
            (r#"{"phone":"+447400123456","text":"a","dedupe_key":""}"#, "invalid `dedupe_key`"),
            (r#"{"phone":"+447400123456","text":"a","campaign":" "}"#, "invalid `campaign`"),
            (
                r#"{"phone":"+447400123456","text":"a","due_at":"2026-12-24T09:00:00Z","expires_at":"2026-12-24T08:00:00Z"}"#,
                "not after `due_at`",
            ),
            (r#"{"phone":"+447400123456","text":"a","from":" "}"#, "invalid `from`"),
            (r#"{"phone":"+447400123456","text":"a","from":"SHOP\u0000"}"#, "invalid `from`"),
            (
                r#"{"phone":"+447400123456","text":"a","\u001b[31m":1}"#,
                "unknown field ` [31m`: a message has",
            ),
            ("[]", "invalid message: it is not a JSON object"),
            ("{", "invalid message: it is not JSON (line 1, column 1)"),
        ] {
            let found = error(json);
            assert!(found.contains(expected), "{json}: {found}");
        }
    }

    #[test]
    fn messages_without_a_key_are_different() {
        let mapper = MessageMapper::new(Dialling::from(None));
        let json = r#"{"phone":"+447400123456","text":"a"}"#;
        let posted = PostedMessage::parse(json.as_bytes()).expect("a message");
        let key = || mapper.map(&posted).expect("a message").sms.dedupe_key;
        assert_ne!(key(), key());
    }
}
