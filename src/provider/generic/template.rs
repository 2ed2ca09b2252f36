//! Texts with placeholders such as `{{ phone }}`. They are compiled and tried once, when the section is read, so that
//! mistakes are errors of the configuration.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::machinery::parse;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Object, Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value as Json;
use smsq_message::sms::{Outcome, Timestamp};
use smsq_message::text::names::{self, Namespace};
use smsq_message::text::segments::outside_gsm7;

use crate::config::ProviderConfig;
use crate::config::section::{ProviderError, Section};
use crate::signing::percent_encoded;
use crate::{Message, account_error, rejected, units};

/// The first names of placeholders that differ from message to message.
pub(super) const MESSAGE_ROOTS: [&str; 5] = ["phone", "content", "reference", "from", "params"];
/// The first names of the others.
const CONSTANT_ROOTS: [&str; 2] = ["secret", "setting"];
/// Placeholders that are filled without the template engine where they are the whole text.
const FIELDS: [&str; 4] = ["phone", "content", "reference", "from"];
/// A placeholder that only some sections have, and its value.
pub(super) type Extra = (&'static str, String);
/// In lookups: a day before the attempt.
const LOOKUP: [&str; 1] = ["since"];
/// In section `receipts`: spans of time and places in lists, and ids and instants of messages.
const RECEIPTS: [&str; 7] = ["since", "until", "page", "offset", "next", "message_id", "sent_at"];
/// The detail of the error that leaves a text out.
const OMITTED: &str = "omitted";

/// All templates of one provider. Their names are their keys in the section.
pub(super) struct Templates {
    environment: Environment<'static>,
    secret_names: Vec<String>,
    secret_values: Value,
    settings: toml::Table,
    setting_values: Value,
    setting_names: Vec<String>,
    default_from: Option<String>,
    reads_params: bool,
    /// Whether a message without a sender cannot be filled in.
    pub(super) requires_sender: bool,
    /// The columns without which a message cannot be filled in.
    pub(super) needed_columns: BTreeSet<String>,
    /// What templates make of secrets alone.
    derived_secrets: Vec<SecretString>,
}

/// A text of the section.
#[derive(Clone, Debug)]
pub(super) enum SectionText {
    /// Without placeholders.
    Plain(String),
    /// Only one of [`FIELDS`].
    Field { key: String, root: &'static str, is_optional: bool },
    Template {
        key: String,
        /// Like `phone` and `params.COLUMN`.
        placeholders: BTreeSet<String>,
    },
}

impl SectionText {
    pub(super) fn uses(&self, name: &str) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Field { root, .. } => *root == name,
            Self::Template { placeholders, .. } => {
                placeholders.iter().any(|placeholder| root_of(placeholder) == name)
            }
        }
    }

    /// Whether it is the same for all messages.
    pub(super) fn is_constant(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Field { .. } => false,
            Self::Template { placeholders, .. } => placeholders
                .iter()
                .all(|placeholder| CONSTANT_ROOTS.contains(&root_of(placeholder))),
        }
    }
}

impl Templates {
    /// `settings` are the vendor's own settings that are set, `setting_names` all that it has.
    pub(super) fn new(
        config: &ProviderConfig,
        settings: toml::Table,
        setting_names: Vec<String>,
    ) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_debug(false);
        environment.set_fuel(Some(100_000));
        environment
            .add_filter("digits", |text: &str| text.replace(|c: char| !c.is_ascii_digit(), ""));
        environment.add_filter("base64", |text: &str| STANDARD.encode(text));
        environment.add_filter("utf16_hex", utf16_hex);
        environment.add_filter("optional", optional);
        environment.add_filter("date", date);
        environment.add_filter("epoch", |at: &str| Ok::<_, Error>(instant(at)?.as_second()));
        environment
            .add_filter("epoch_ms", |at: &str| Ok::<_, Error>(instant(at)?.as_millisecond()));
        environment.add_test("gsm7", |text: &str| outside_gsm7(text).next().is_none());
        // Values in URLs are percent-encoded, all others are inserted unchanged.
        environment.set_auto_escape_callback(|key| match key {
            key if is_url(key) => AutoEscape::Custom("url".into()),
            _ => AutoEscape::None,
        });
        environment.set_formatter(|out, state, value| match state.auto_escape() {
            AutoEscape::None => minijinja::escape_formatter(out, state, value),
            _ => Ok(out.write_str(&encoded(&value.to_string())?)?),
        });
        Self {
            environment,
            secret_names: config.secrets.exposed().map(|(name, _)| name.to_owned()).collect(),
            secret_values: Value::from_pairs(config.secrets.exposed()),
            setting_values: Value::from(Serde(&settings)),
            settings,
            setting_names,
            default_from: config.from.clone(),
            reads_params: false,
            requires_sender: false,
            needed_columns: BTreeSet::new(),
            derived_secrets: Vec::new(),
        }
    }

    /// Keeps what templates make of secrets out of all reasons.
    pub(super) fn hide_derived_secrets(&self, config: &mut ProviderConfig) {
        for derived in &self.derived_secrets {
            config.secrets.forms.add_derived(derived.expose_secret());
        }
    }

    /// Compiles the text at `key`; `None` where an optional placeholder has no value in this section.
    pub(super) fn add(
        &mut self,
        section: &Section<'_>,
        key: &str,
        source: &str,
    ) -> Result<Option<SectionText>, ProviderError> {
        if !source.contains("{{") && !source.contains("{%") && !source.contains("{#") {
            return Ok(Some(SectionText::Plain(source.to_owned())));
        }
        let name = section.key(key);
        if let Some((root, is_optional)) = single_placeholder(source)
            && let Some(root) = FIELDS.into_iter().find(|known| *known == root)
            && !is_url(&name)
        {
            self.requires_sender |= root == "from" && !is_optional;
            let key = name;
            return Ok(Some(SectionText::Field { key, root, is_optional }));
        }
        let invalid = |error: Error| section.invalid(key, described(&error));
        let tree = parse(source, &name, SyntaxConfig::default()).map_err(invalid)?;
        let placeholders = names::find(&tree, &mut |_| Ok(()));
        let placeholders = placeholders.map_err(|problem| section.invalid(key, problem))?;
        let (owned_name, source) = (name.clone(), source.to_owned());
        self.environment.add_template_owned(owned_name, source).map_err(invalid)?;
        let template = self.environment.get_template(&name).map_err(invalid)?;
        for placeholder in &placeholders {
            self.check_placeholder(section, key, placeholder)?;
        }
        let roots: BTreeSet<&str> =
            placeholders.iter().map(|placeholder| root_of(placeholder)).collect();
        let columns =
            placeholders.iter().filter_map(|placeholder| placeholder.strip_prefix("params."));
        let is_needed = |column: &&str| {
            let without = template.render(self.trial_without(&name, column));
            without.is_err_and(|error| error.kind() == ErrorKind::UndefinedError)
        };
        let needed: Vec<String> = columns.filter(is_needed).map(str::to_owned).collect();
        self.needed_columns.extend(needed);
        match template.render(self.trial(&name, Some("sender"))) {
            Ok(made) if roots == BTreeSet::from(["secret"]) => {
                self.derived_secrets.push(SecretString::from(made));
            }
            Err(error) if is_omitted(&error) => return Ok(None),
            Err(error) if is_certain(error.kind()) || !roots.contains("params") => {
                return Err(invalid(error));
            }
            _ if roots.contains("from") => {
                let without = template.render(self.trial(&name, None));
                self.requires_sender |= without.is_err_and(|error| !is_omitted(&error));
            }
            _ => {}
        }
        self.reads_params |= roots.contains("params");
        let key = name;
        Ok(Some(SectionText::Template { key, placeholders }))
    }

    /// Like [`Templates::add`], for a text that cannot be left out.
    pub(super) fn add_required(
        &mut self,
        section: &Section<'_>,
        key: &str,
        source: &str,
    ) -> Result<SectionText, ProviderError> {
        let text = self.add(section, key, source)?;
        text.ok_or_else(|| section.invalid(key, "cannot be left out"))
    }

    /// The value of a text that is only `{{ setting.NAME }}`, with its own type. The inner `None`: it is optional and
    /// not set.
    #[expect(clippy::option_option, reason = "an optional setting may be unset")]
    pub(super) fn setting(&self, source: &str) -> Option<Option<Json>> {
        let (name, is_optional) = single_placeholder(source)?;
        let value = self
            .settings
            .get(name.strip_prefix("setting.")?)
            .and_then(|value| serde_json::to_value(value).ok());
        (value.is_some() || is_optional).then_some(value)
    }

    fn check_placeholder(
        &self,
        section: &Section<'_>,
        key: &str,
        placeholder: &str,
    ) -> Result<(), ProviderError> {
        let root = root_of(placeholder);
        let has_value = extra_names(&section.key(key)).contains(&root);
        let roots = [&MESSAGE_ROOTS[..], &CONSTANT_ROOTS].concat();
        if !has_value && !roots.contains(&root) {
            let problem = units::unknown(format!("unknown placeholder `{root}`"), root, &roots);
            let problem = format!("{}; a column is `params.COLUMN`", problem.joined());
            return Err(section.invalid(key, problem));
        }
        let (names, list) = match root {
            "secret" => (&self.secret_names, "secrets"),
            "setting" => (&self.setting_names, "settings"),
            _ => return Ok(()),
        };
        let problem = match placeholder.split('.').nth(1) {
            Some(name) if names.iter().any(|known| known == name) => return Ok(()),
            Some(name) => format!("`{root}.{name}` is not in `{list}`"),
            None => format!("`{root}` needs a name, like `{root}.token`"),
        };
        Err(section.invalid(key, problem))
    }

    /// Fills a text that is the same for all messages, or any text with trial values.
    pub(super) fn constant(
        &self,
        section: &Section<'_>,
        key: &str,
        text: &SectionText,
    ) -> Result<String, ProviderError> {
        match text {
            SectionText::Plain(text) => Ok(text.clone()),
            SectionText::Field { .. } => Ok(String::new()),
            SectionText::Template { key: name, .. } => self
                .render(name, &self.trial(name, Some("sender")))
                .map_err(|error| section.invalid(key, described(&error))),
        }
    }

    fn render(&self, key: &str, context: &Value) -> Result<String, Error> {
        self.environment.get_template(key)?.render(context)
    }

    /// The one object that templates ask for their placeholders. `params` is left out where no template uses it.
    fn given(
        &self,
        [phone, content, reference]: [&str; 3],
        from: Option<&str>,
        params: Option<Value>,
        extra: &[Extra],
    ) -> Value {
        let of_section = LOOKUP.iter().chain(&RECEIPTS).map(|name| (*name, None));
        let extra = extra.iter().map(|(name, value)| (*name, Some(Value::from(value.as_str()))));
        let of_message = [
            ("phone", Some(Value::from(phone))),
            ("content", Some(Value::from(content))),
            ("reference", Some(Value::from(reference))),
            ("from", from.map(Value::from)),
            ("secret", Some(self.secret_values.clone())),
            ("setting", Some(self.setting_values.clone())),
        ];
        let params = params.map(|params| ("params", Some(params)));
        let given: Namespace<&'static str> =
            of_section.chain(extra).chain(of_message).chain(params).collect();
        Value::from_object(given)
    }

    /// Values to find out whether the template at `key` can be filled at all.
    fn trial(&self, key: &str, from: Option<&str>) -> Value {
        self.trial_with(key, from, AnyColumn::default())
    }

    /// The values of a message that lacks a column.
    fn trial_without(&self, key: &str, column: &str) -> Value {
        let except = Some(column.to_owned());
        self.trial_with(key, Some("sender"), AnyColumn { except })
    }

    fn trial_with(&self, key: &str, from: Option<&str>, columns: AnyColumn) -> Value {
        let instant = Timestamp::default().to_string();
        let names = extra_names(key).iter();
        let extra: Vec<Extra> = names.map(|name| (*name, instant.clone())).collect();
        self.given(
            ["+15550100", "text", "reference"],
            from,
            Some(Value::from_object(columns)),
            &extra,
        )
    }

    /// Fills texts for one message.
    pub(super) fn values<'a>(&'a self, message: &'a Message) -> Values<'a> {
        Values {
            templates: self,
            message,
            reference: &message.reference,
            extra: Vec::new(),
            context: OnceCell::new(),
        }
    }
}

/// The values of the placeholders for one message.
pub(super) struct Values<'a> {
    templates: &'a Templates,
    message: &'a Message,
    pub(super) reference: &'a str,
    pub(super) extra: Vec<Extra>,
    context: OnceCell<Value>,
}

impl<'a> Values<'a> {
    fn sender(&self) -> Option<&'a str> {
        let from = self.message.from.as_deref();
        from.or(self.templates.default_from.as_deref())
    }

    /// Fills the text; `None` where an optional placeholder has no value.
    pub(super) fn fill(&self, text: &SectionText) -> Result<Option<String>, Outcome> {
        match text {
            SectionText::Plain(text) => Ok(Some(text.clone())),
            SectionText::Field { key, root, is_optional } => {
                let value = match *root {
                    "phone" => Some(self.message.phone.as_str()),
                    "content" => Some(self.message.content.as_str()),
                    "reference" => Some(self.reference),
                    _ => self.sender(),
                };
                match value {
                    None if !is_optional => Err(missing_sender(key)),
                    value => Ok(value.map(str::to_owned)),
                }
            }
            SectionText::Template { key, placeholders } => {
                let context = self.context.get_or_init(|| self.context());
                match self.templates.render(key, context) {
                    Ok(text) => Ok(Some(text)),
                    Err(error) if is_omitted(&error) => Ok(None),
                    Err(error) if error.kind() != ErrorKind::UndefinedError => {
                        let kind = error.kind();
                        Err(rejected(format!("`{key}` cannot be filled: {kind}")))
                    }
                    Err(_) => Err(self.missing_value(key, placeholders)),
                }
            }
        }
    }

    pub(super) fn fill_required(&self, text: &SectionText) -> Result<String, Outcome> {
        let filled = self.fill(text)?;
        filled.ok_or_else(|| rejected("an optional value is missing"))
    }

    fn context(&self) -> Value {
        let Message { phone, content, .. } = self.message;
        let params = self.templates.reads_params.then(|| columns(self.message));
        self.templates.given(
            [phone.as_str(), content, self.reference],
            self.sender(),
            params,
            &self.extra,
        )
    }

    fn missing_value(&self, key: &str, placeholders: &BTreeSet<String>) -> Outcome {
        let is_missing = |column: &&str| {
            let value = self.message.params.get(*column);
            value.is_none_or(Json::is_null)
        };
        let mut columns =
            placeholders.iter().filter_map(|placeholder| placeholder.strip_prefix("params."));
        match columns.find(is_missing) {
            Some(column) => {
                rejected(format!("`{key}` needs column `{column}`, which the message lacks"))
            }
            None if placeholders.contains("from") && self.sender().is_none() => missing_sender(key),
            None => rejected(format!("`{key}` needs a column that the message lacks")),
        }
    }
}

/// The first name of a placeholder.
fn root_of(placeholder: &str) -> &str {
    placeholder.split('.').next().unwrap_or_default()
}

/// The placeholders that only the section of this key has.
fn extra_names(key: &str) -> &'static [&'static str] {
    match key.split('.').next() {
        Some("lookup") => &LOOKUP,
        Some("receipts") => &RECEIPTS,
        _ => &[],
    }
}

fn is_url(key: &str) -> bool {
    key.split('.').next_back() == Some("url")
}

/// The instant of a placeholder like `since`.
fn instant(text: &str) -> Result<jiff::Timestamp, Error> {
    let instant = text.parse();
    instant.map_err(|_| Error::new(ErrorKind::InvalidOperation, "not an instant"))
}

/// An instant in another format, like `%Y%m%d`, and in a time zone; in UTC by default.
fn date(at: &str, format: &str, zone: Option<&str>) -> Result<String, Error> {
    let wrong = |_| Error::new(ErrorKind::InvalidOperation, "unknown time zone or format");
    let zone = jiff::tz::TimeZone::get(zone.unwrap_or("UTC")).map_err(wrong)?;
    let local = instant(at)?.to_zoned(zone);
    jiff::fmt::strtime::format(format, &local).map_err(wrong)
}

fn missing_sender(key: &str) -> Outcome {
    account_error(format!(
        "`{key}` needs a sender, and neither the campaign nor the provider has one"
    ))
}

/// The name in a text like `{{ from }}` or `{{ from | optional }}`, and whether it is optional.
fn single_placeholder(source: &str) -> Option<(&str, bool)> {
    let inner = source.strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let (name, is_optional) = match inner.split_once('|') {
        Some((name, filter)) if filter.trim() == "optional" => (name.trim(), true),
        Some(_) => return None,
        None => (inner, false),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    name.chars().all(is_name).then_some((name, is_optional))
}

/// Wrong with any values.
fn is_certain(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::SyntaxError
            | ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownFunction
            | ErrorKind::UnknownMethod
            | ErrorKind::OutOfFuel
    )
}

fn is_omitted(error: &Error) -> bool {
    error.detail() == Some(OMITTED)
}

/// Without details that may repeat values.
fn described(error: &Error) -> String {
    match error.detail() {
        Some(detail) if is_certain(error.kind()) => format!("{}: {detail}", error.kind()),
        _ => error.kind().to_string(),
    }
}

/// UTF-16 in big-endian order, as SMS centres expect it.
fn utf16_hex(text: &str) -> String {
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    hex::encode(bytes)
}

/// Leaves the whole text out where `value` is undefined and `condition` holds.
fn optional(value: Value, condition: Option<bool>) -> Result<Value, Error> {
    if value.is_undefined() && condition.unwrap_or(true) {
        return Err(Error::new(ErrorKind::UndefinedError, OMITTED));
    }
    Ok(value)
}

/// A dot segment cannot be encoded: it would change the path.
fn encoded(text: &str) -> Result<String, Error> {
    if matches!(text, "." | "..") {
        return Err(Error::new(ErrorKind::InvalidOperation, "a dot segment in a url"));
    }
    Ok(percent_encoded(text))
}

fn columns(message: &Message) -> Value {
    let columns = message.params.iter().filter(|(_, value)| !value.is_null());
    Value::from_pairs(columns.map(|(column, value)| {
        let value = match value {
            Json::String(text) => Value::from(text.as_str()),
            other => Value::from(other.to_string()),
        };
        (column.as_str(), value)
    }))
}

/// Has every column, except one.
#[derive(Debug, Default)]
struct AnyColumn {
    except: Option<String>,
}

impl Object for AnyColumn {
    fn get_value(self: &Arc<Self>, column: &Value) -> Option<Value> {
        let is_absent = |except| column.as_str() == Some(except);
        let has = !self.except.as_deref().is_some_and(is_absent);
        has.then(|| Value::from("1"))
    }
}
