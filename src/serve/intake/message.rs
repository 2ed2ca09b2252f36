//! A posted message: its JSON, and the message that is queued for it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::import::{JsonObject, cell, identifier, is_nested, own_key};
use crate::phone::{Dialling, Phone, PhoneError, Region};
use crate::sms::{NewSms, Timestamp};
use crate::store::{FINGERPRINT, IntakeKey};
use crate::text::template::{RenderError, Template};
use crate::text::{content, listed, segments};

/// The longest message, in bytes of its JSON.
pub(super) const MAX_MESSAGE: usize = 64 << 10;
/// Texts with placeholders that are remembered.
const MAX_TEMPLATES: usize = 1_000;
/// The longest `dedupe_key` and `Idempotency-Key`, in bytes.
pub(super) const MAX_KEY: usize = 255;
const MAX_CAMPAIGN: usize = 100;
const MAX_SENDER: usize = 100;
/// The most characters of a phone that an error shows.
const MAX_SHOWN: usize = 40;
/// The start of the names of columns that smsq writes and reads.
const RESERVED: &str = "smsq_";

/// The fields of a message.
const FIELDS: [&str; 9] = [
    "phone",
    "text",
    "template",
    "params",
    "campaign",
    "dedupe_key",
    "due_at",
    "expires_at",
    "from",
];

/// A message as a program posted it.
#[derive(Debug)]
pub(super) struct PostedMessage {
    phone: String,
    text: PostedText,
    params: Vec<Param>,
    pub(super) campaign: String,
    dedupe_key: Option<String>,
    due_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    /// The sender of the campaign.
    pub(super) from: Option<String>,
}

#[derive(Debug)]
enum PostedText {
    /// The text as it is sent.
    Text(String),
    /// A text with placeholders, which `params` fill.
    Template(String),
}

/// A field of `params`.
#[derive(Debug)]
struct Param {
    name: String,
    /// A number or an object as it was written.
    value: String,
    is_nested: bool,
}

/// A message that can be queued.
pub(super) struct MappedMessage {
    pub(super) sms: NewSms,
    pub(super) due_at: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
    /// SHA-256 of its own key, if it has one.
    pub(super) own_key: Option<String>,
    /// Equal for messages whose fields are equal, however they are written.
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

/// The fields of an object that were not taken yet.
struct PostedFields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> PostedFields<'a> {
    /// Reads an object that errors call `name`.
    fn parse(name: &str, json: &'a [u8]) -> Result<Self, String> {
        let JsonObject(fields) = serde_json::from_slice(json).map_err(|error| {
            if error.is_data() {
                format!("invalid {name}: it is not a JSON object")
            } else {
                let (line, column) = (error.line(), error.column());
                format!("invalid {name}: it is not JSON (line {line}, column {column})")
            }
        })?;
        let mut seen = HashSet::new();
        let mut fields_seen = fields.iter().map(|(field, _)| field.trim());
        if let Some(field) = fields_seen.find(|field| !seen.insert(*field)) {
            let shown = field.escape_debug();
            return Err(format!("duplicate field `{shown}` in {name}"));
        }
        Ok(Self(fields))
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let index = self.0.iter().position(|(field, _)| field == name)?;
        Some(self.0.remove(index).1.get())
    }

    /// A field that is a text; `None` if it is missing or null.
    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.take(name) {
            None | Some("null") => Ok(None),
            Some(text) if text.starts_with('"') => serde_json::from_str(text)
                .map(Some)
                .map_err(|_| format!("invalid `{name}`: it is not Unicode text")),
            Some(_) => Err(format!("invalid `{name}`: use a text in quotation marks")),
        }
    }

    fn instant(&mut self, name: &str) -> Result<Option<Timestamp>, String> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let instant: jiff::Timestamp = text.parse().map_err(|_| {
            format!("invalid `{name}`: use an instant with its offset, like `2026-12-24T09:00:00Z`")
        })?;
        Ok(Some(Timestamp::from_millis(instant.as_millisecond())))
    }

    fn params(&mut self) -> Result<Vec<Param>, String> {
        let params = self.take("params");
        let Some(params) = params.filter(|params| *params != "null") else {
            return Ok(Vec::new());
        };
        let fields = PostedFields::parse("`params`", params.as_bytes())?;
        let params = fields.0.into_iter().map(|(name, value)| {
            let shown = name.escape_debug();
            if ["phone", "content", "dedupe_key"].contains(&name.as_str()) {
                return Err(format!("invalid `params`: `{shown}` is a field of the message"));
            }
            if name.trim().starts_with(RESERVED) {
                return Err(format!(
                    "invalid `params`: names such as `{shown}`, which begin with `{RESERVED}`, are reserved"
                ));
            }
            if name.trim().is_empty() || name.contains('\0') {
                return Err(format!("invalid `params`: invalid name `{shown}`"));
            }
            let text = cell(value).into_owned();
            if text.contains('\0') {
                return Err(format!("invalid `params`: `{shown}` has a NUL character"));
            }
            Ok(Param {
                name,
                value: text,
                is_nested: is_nested(value),
            })
        });
        params.collect()
    }
}

impl PostedMessage {
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let json = json.trim_ascii();
        if json.len() > MAX_MESSAGE {
            return Err("invalid message: it is longer than 64 KiB".to_owned());
        }
        let mut fields = PostedFields::parse("message", json)?;
        let is_unknown = |(name, _): &&(String, _)| !FIELDS.contains(&name.as_str());
        if let Some((name, _)) = fields.0.iter().find(is_unknown) {
            return Err(format!(
                "unknown field `{}`: a message has {}",
                name.escape_debug(),
                listed(FIELDS)
            ));
        }
        let phone = fields.text("phone")?;
        let (text, template) = (fields.text("text")?, fields.text("template")?);
        let message = Self {
            phone: phone.ok_or("missing field `phone`: the number of the recipient")?,
            text: match (text, template) {
                (Some(text), None) => PostedText::Text(text),
                (None, Some(template)) => PostedText::Template(template),
                (Some(_), Some(_)) => {
                    return Err("invalid message: it has both `text` and `template`".to_owned());
                }
                (None, None) => {
                    return Err(
                        "missing field `text`, or `template` with placeholders that `params` fill"
                            .to_owned(),
                    );
                }
            },
            params: fields.params()?,
            campaign: match fields.text("campaign")? {
                Some(name) => name.trim().to_owned(),
                None => "default".to_owned(),
            },
            dedupe_key: fields.text("dedupe_key")?,
            due_at: fields.instant("due_at")?,
            expires_at: fields.instant("expires_at")?,
            from: fields.text("from")?,
        };
        message.check().map(|()| message)
    }

    fn check(&self) -> Result<(), String> {
        let name = &self.campaign;
        let is_long = name.chars().count() > MAX_CAMPAIGN;
        if name.is_empty() || is_long || name.chars().any(|c| !crate::text::is_printable(c)) {
            return Err(format!(
                "invalid `campaign`: use a printable name of up to {MAX_CAMPAIGN} characters"
            ));
        }
        if matches!(name.as_str(), "." | "..") {
            return Err(
                "invalid `campaign`: the name is part of URLs, where `.` and `..` are folders"
                    .to_owned(),
            );
        }
        if let Some(sender) = &self.from
            && (sender.trim().is_empty()
                || sender.chars().count() > MAX_SENDER
                || sender.chars().any(char::is_control))
        {
            return Err(format!(
                "invalid `from`: use up to {MAX_SENDER} characters without control characters"
            ));
        }
        if let Some(key) = &self.dedupe_key
            && (key.is_empty() || key.len() > MAX_KEY || key.contains('\0'))
        {
            return Err(format!(
                "invalid `dedupe_key`: use 1 to {MAX_KEY} bytes without NUL characters"
            ));
        }
        match (self.due_at, self.expires_at) {
            (Some(due_at), Some(expires_at)) if expires_at <= due_at => {
                Err("invalid `expires_at`: it is not after `due_at`".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The value of a placeholder: a field of `params` by its name, or by its name as an identifier.
    fn value(&self, placeholder: &str) -> Option<&Param> {
        let mut params = self.params.iter();
        let exact = params.find(|param| param.name == placeholder);
        exact.or_else(|| {
            let mut params = self.params.iter();
            params.find(|param| identifier(param.name.trim()) == placeholder)
        })
    }

    /// The text that is sent.
    fn render(&self, template: &Template) -> Result<String, String> {
        let value = |name: &str| match name {
            "phone" => Some(self.phone.trim()),
            _ => self.value(name).map(|param| param.value.trim()),
        };
        let value = |name: &str| value(name).filter(|value| !value.is_empty());
        let placeholders = || template.placeholders().iter().map(String::as_str);
        let is_nested = |name: &&str| self.value(name).is_some_and(|param| param.is_nested);
        if let Some(name) = placeholders().find(is_nested) {
            return Err(format!(
                "invalid `params`: `{name}` is an object or an array, and `template` needs a text"
            ));
        }
        template.render(value).map_err(|error| match error {
            RenderError::MissingValue => {
                let missing = listed(placeholders().filter(|name| value(name).is_none()));
                format!("missing `params`: no value for {missing}, and `template` needs it")
            }
            RenderError::TooLong => format!(
                "invalid `template`: the text is too long: at most {} characters",
                content::LONGEST
            ),
            RenderError::Other(detail) => format!("invalid `template`: {detail}"),
        })
    }

    /// The values that are stored with the message, as JSON.
    fn stored(&self) -> String {
        let own = self.dedupe_key.as_deref();
        let own = own.map(|key| ("dedupe_key".to_owned(), json!(key)));
        let params = self.params.iter();
        let params = params.map(|param| (param.name.trim().to_owned(), json!(param.value)));
        Value::Object(own.into_iter().chain(params).collect::<Map<_, _>>()).to_string()
    }

    /// Does not depend on the order of fields, spaces, or how the phone is written.
    fn fingerprint(&self, phone: &Phone) -> String {
        let (kind, text) = match &self.text {
            PostedText::Text(text) => ("text", text),
            PostedText::Template(text) => ("template", text),
        };
        let mut params: Vec<(&str, &str)> = self
            .params
            .iter()
            .map(|param| (param.name.as_str(), param.value.as_str()))
            .collect();
        params.sort_unstable();
        let fields = json!([
            phone.as_str(),
            kind,
            text,
            params,
            self.campaign,
            self.dedupe_key,
            self.due_at.map(Timestamp::as_millis),
            self.expires_at.map(Timestamp::as_millis),
            self.from,
        ]);
        format!("{FINGERPRINT}{}", &digest(fields.to_string())[1..])
    }
}

/// Makes messages of posted ones.
pub(super) struct MessageMapper {
    region: Option<Region>,
    /// Makes messages without a key different from all others.
    token: String,
    count: AtomicU64,
    /// By their source.
    templates: Mutex<HashMap<String, Arc<Template>>>,
}

impl MessageMapper {
    pub(super) fn new(region: Option<Region>) -> Self {
        Self {
            region,
            token: format!("{:016x}", rand::random::<u64>()),
            count: AtomicU64::new(0),
            templates: Mutex::default(),
        }
    }

    /// Maps a message. One without a `dedupe_key` is never a duplicate.
    pub(super) fn map(&self, posted: &PostedMessage) -> Result<MappedMessage, String> {
        let phone = Phone::parse(&posted.phone, Dialling::from(self.region))
            .map_err(|error| invalid_phone(&posted.phone, &error))?;
        let (name, content) = match &posted.text {
            PostedText::Text(text) => ("text", text.trim().to_owned()),
            PostedText::Template(source) => ("template", posted.render(&*self.template(source)?)?),
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
        let templates = || {
            self.templates
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
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

/// Shows a value only to the client that sent it.
pub(super) fn invalid_phone(raw: &str, error: &PhoneError) -> String {
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
    };
    format!("invalid `phone`: `{shown}` {problem}")
}

/// The messages of a JSON array, each as it was written.
pub(super) fn array(json: &[u8]) -> Result<Vec<Box<RawValue>>, String> {
    serde_json::from_slice(json).map_err(|error| {
        if error.is_data() {
            "invalid list of messages: it is not a JSON array".to_owned()
        } else {
            let (line, column) = (error.line(), error.column());
            format!("invalid list of messages: it is not JSON (line {line}, column {column})")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(json: &str) -> Result<MappedMessage, String> {
        let mapper = MessageMapper::new("GB".parse().ok());
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
    fn params_keep_numbers_as_written_and_any_name() {
        let json = r#"{"phone":"+447400123456","text":"a","dedupe_key":"k",
            "params":{"mobile":"1","tel":2,"First name":"Ann","n":1.10,"big":12345678901234567890123,"list":[1]}}"#;
        let sms = map(json).expect("a message").sms;
        let stored: Value = serde_json::from_str(&sms.params).expect("JSON");
        let expected = json!({"dedupe_key": "k", "mobile": "1", "tel": "2", "First name": "Ann", "n": "1.10",
            "big": "12345678901234567890123", "list": "[1]"});
        assert_eq!(stored, expected);
        let json = r#"{"phone":"+447400123456","template":"{{ First_name }} {{ phone }}","params":{"First name":"Ann"}}"#;
        assert_eq!(
            map(json).expect("a message").sms.content,
            "Ann +447400123456"
        );
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
            (
                "{\"phone",
                "{\"expires_at\":\"2099-01-01T00:00:00Z\",\"phone",
            ),
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
                r#"{"phone":"+447400123456","text":"a","params":{" smsq_id":"1"}}"#,
                "are reserved",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","params":[]}"#,
                "invalid `params`: it is not a JSON object",
            ),
            (
                r#"{"phone":"+447400123456","template":"{{ a }}","params":{"a":{}}}"#,
                "`a` is an object or an array",
            ),
            (
                r#"{"phone":"garbage 7","text":"a"}"#,
                "invalid `phone`: `garbage 7`",
            ),
            (
                r#"{"phone":447400123456,"text":"a"}"#,
                "invalid `phone`: use a text in quotation marks",
            ),
            (
                r#"{"phone":"+447400123456","text":"a","text":"b"}"#,
                "duplicate field `text` in message",
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
            ("[]", "invalid message: it is not a JSON object"),
            ("{", "invalid message: it is not JSON (line 1, column 1)"),
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
        let key = || mapper.map(&posted).expect("a message").sms.dedupe_key;
        assert_ne!(key(), key());
    }
}
