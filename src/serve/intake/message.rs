//! A message as a program posts it in JSON.

use std::collections::HashSet;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use smsq_import::{JsonObject, cell, identifier, is_nested};
use smsq_message::phone::Phone;
use smsq_message::sms::Timestamp;
use smsq_message::text::template::{RenderError, Template};
use smsq_message::text::{content, listed};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};

/// The longest message, in bytes of its JSON.
pub(crate) const MAX_MESSAGE: usize = 64 << 10;
/// The longest `dedupe_key` and `Idempotency-Key`, in bytes.
pub(crate) const MAX_KEY: usize = 255;
const MAX_CAMPAIGN: usize = 100;
const MAX_SENDER: usize = 100;
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

/// With `text` or `template`; null is the same as missing
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewMessage)]
pub(crate) struct PostedMessage {
    /// With its country code, or of the server's `default_region`
    #[schema(examples("+447400123456"))]
    pub(super) phone: String,
    /// As it is sent
    pub(super) text: Option<String>,
    /// A text with placeholders, instead of `text`
    pub(super) template: Option<String>,
    #[schema(schema_with = params_schema, required = false)]
    params: Vec<Param>,
    /// Created if it is missing
    #[schema(min_length = 1, max_length = 100, default = "default", required = false)]
    pub(super) campaign: String,
    /// Another message with this key in the campaign is not queued. Without it no message is a duplicate
    #[schema(min_length = 1, max_length = 255)]
    pub(super) dedupe_key: Option<String>,
    /// Not before
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(super) due_at: Option<Timestamp>,
    /// Not after; must be in the future
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(super) expires_at: Option<Timestamp>,
    /// The sender of a new campaign; must agree with that of an existing one
    #[schema(min_length = 1, max_length = 100)]
    pub(super) from: Option<String>,
}

fn params_schema() -> Object {
    let value = [Type::String, Type::Number, Type::Boolean, Type::Null];
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some(
            "The values of placeholders; kept with the message. Names that begin with `smsq_` are reserved",
        ))
        .additional_properties(Some(
            ObjectBuilder::new().schema_type(SchemaType::from_iter(value)),
        ))
        .build()
}

/// A field of `params`.
#[derive(Debug)]
struct Param {
    name: String,
    /// A number or an object as it was written.
    value: String,
    is_nested: bool,
}

/// SHA-256 in hex.
pub(crate) fn digest(bytes: impl AsRef<[u8]>) -> String {
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
            return Err(format!("duplicate field {} in {name}", listed([field])));
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
            let shown = || listed([&*name]);
            if ["phone", "content", "dedupe_key"].contains(&name.as_str()) {
                return Err(format!("invalid `params`: {} is a field of the message", shown()));
            }
            if name.trim().starts_with(RESERVED) {
                return Err(format!(
                    "invalid `params`: names such as {}, which begin with `{RESERVED}`, are reserved",
                    shown()
                ));
            }
            if name.trim().is_empty() || name.contains('\0') {
                return Err(format!("invalid `params`: invalid name {}", shown()));
            }
            let text = cell(value).into_owned();
            if text.contains('\0') {
                return Err(format!("invalid `params`: {} has a NUL character", shown()));
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
                "unknown field {}: a message has {}",
                listed([&**name]),
                listed(FIELDS)
            ));
        }
        let phone = fields.text("phone")?;
        let (text, template) = (fields.text("text")?, fields.text("template")?);
        let phone = phone.ok_or("missing field `phone`: the number of the recipient")?;
        match (&text, &template) {
            (Some(_), Some(_)) => Err("invalid message: it has both `text` and `template`"),
            (None, None) => {
                Err("missing field `text`, or `template` with placeholders that `params` fill")
            }
            _ => Ok(()),
        }?;
        let message = Self {
            phone,
            text,
            template,
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
        if name.is_empty() || is_long || name.chars().any(|c| !smsq_message::text::is_printable(c))
        {
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
        let exact = self.params.iter().find(|param| param.name == placeholder);
        exact.or_else(|| {
            self.params.iter().find(|param| identifier(param.name.trim()) == placeholder)
        })
    }

    /// The text that is sent.
    pub(super) fn render(&self, template: &Template) -> Result<String, String> {
        let value = |name: &str| match name {
            "phone" => Some(self.phone.trim()),
            _ => self.value(name).map(|param| param.value.trim()),
        };
        let value = |name: &str| value(name).filter(|value| !value.is_empty());
        let placeholders = || template.placeholders().iter().map(AsRef::as_ref);
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
    pub(super) fn stored(&self) -> String {
        let own = self.dedupe_key.iter().map(|key| ("dedupe_key", key));
        let params = self.params.iter().map(|param| (param.name.trim(), &param.value));
        let stored: Map<String, Value> =
            own.chain(params).map(|(name, value)| (name.to_owned(), json!(value))).collect();
        Value::Object(stored).to_string()
    }

    /// Does not depend on the order of fields, spaces, or how the phone is written.
    pub(super) fn fingerprint(&self, phone: &Phone) -> String {
        let kind = if self.text.is_some() { "text" } else { "template" };
        let text = self.text.as_ref().or(self.template.as_ref());
        let mut params: Vec<(&str, &str)> =
            self.params.iter().map(|param| (param.name.as_str(), param.value.as_str())).collect();
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
        digest(fields.to_string())
    }
}
