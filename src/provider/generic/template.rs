//! The placeholders of a stanza: texts with `{{ phone }}` and the like in them, compiled once. What can be
//! known to be wrong beforehand is a fault of the configuration, found when the stanza is read.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use minijinja::value::{Object, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use secrecy::{ExposeSecret, SecretString};

use crate::provider::secrets::Secrets;
use crate::provider::stanza::{Stanza, closest};
use crate::provider::{Message, ProviderError};
use crate::sms::{Class, Failure, Outcome, Timestamp};

/// The first words of a placeholder.
const ROOTS: [&str; 6] = ["phone", "content", "reference", "from", "params", "secret"];
/// A look-up has one more: a little before the attempt.
const SINCE: &str = "since";

/// All templates of one stanza, each under the key it stands at.
pub(super) struct Templates {
    environment: Environment<'static>,
    secret: Value,
    secret_names: Vec<String>,
    default_from: Option<String>,
    has_moment: bool,
    /// The roots that any template names.
    roots: BTreeSet<&'static str>,
    /// What the templates make that name secrets and nothing else.
    made_of_secrets: Vec<SecretString>,
}

/// A text of the stanza.
#[derive(Clone, Debug)]
pub(super) enum Text {
    /// Without placeholders.
    Plain(String),
    Template(Arc<Placed>),
}

/// A compiled text.
#[derive(Debug)]
pub(super) struct Placed {
    /// `json.to`: where it stands in the stanza, and its name among the templates.
    key: String,
    roots: BTreeSet<&'static str>,
    /// Columns that it names.
    columns: Vec<String>,
}

impl Text {
    pub(super) fn names(&self, root: &str) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Template(placed) => placed.roots.contains(root),
        }
    }

    /// The same for every message of this stanza.
    pub(super) fn is_constant(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Template(placed) => placed.roots.iter().all(|root| *root == "secret"),
        }
    }
}

/// A message, and what its placeholders stand for.
pub(super) struct Values<'a> {
    message: &'a Message,
    context: Value,
}

impl Templates {
    /// `url` percent-encodes every value that is put in; else values go in as they are.
    pub(super) fn new(secrets: &Secrets, default_from: Option<String>, url: bool) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_debug(false);
        environment.set_fuel(Some(100_000));
        environment.add_filter("digits", digits);
        environment.add_filter("base64", base64);
        environment.add_filter("utf16_hex", utf16_hex);
        if url {
            environment.set_formatter(|out, _, value| {
                let text = percent_encoded(&value.to_string())?;
                out.write_str(&text).map_err(Error::from)
            });
        }
        Self {
            environment,
            secret: Value::from_pairs(secrets.exposed()),
            secret_names: secrets.names().into_iter().map(str::to_owned).collect(),
            default_from,
            has_moment: false,
            roots: BTreeSet::new(),
            made_of_secrets: Vec::new(),
        }
    }

    pub(super) fn made_of_secrets(&self) -> impl Iterator<Item = &str> {
        self.made_of_secrets.iter().map(ExposeSecret::expose_secret)
    }

    /// Those of a look-up.
    pub(super) fn with_moment(self) -> Self {
        Self {
            has_moment: true,
            ..self
        }
    }

    /// Compiles `source`, which stands at `key`.
    pub(super) fn add(
        &mut self,
        stanza: &Stanza<'_>,
        key: &str,
        source: &str,
    ) -> Result<Text, ProviderError> {
        if !source.contains("{{") && !source.contains("{%") && !source.contains("{#") {
            return Ok(Text::Plain(source.to_owned()));
        }
        let fault = |error: &Error| stanza.fault(key, described(error));
        self.environment
            .add_template_owned(key.to_owned(), source.to_owned())
            .map_err(|error| fault(&error))?;
        let template = self
            .environment
            .get_template(key)
            .map_err(|error| fault(&error))?;
        let mut placed = Placed {
            key: key.to_owned(),
            roots: BTreeSet::new(),
            columns: Vec::new(),
        };
        for name in template.undeclared_variables(true) {
            let mut parts = name.split('.');
            let root = parts.next().unwrap_or_default();
            let root = self.known_root(stanza, key, root, parts.next(), &mut placed.columns)?;
            placed.roots.insert(root);
        }
        match template.render(self.trial()) {
            Ok(made) if placed.roots.iter().eq(["secret"].iter()) => {
                self.made_of_secrets.push(SecretString::from(made));
            }
            Err(error) if is_certain(error.kind()) || !placed.roots.contains("params") => {
                return Err(fault(&error));
            }
            _ => {}
        }
        self.roots.extend(placed.roots.iter().copied());
        Ok(Text::Template(Arc::new(placed)))
    }

    fn known_root(
        &self,
        stanza: &Stanza<'_>,
        key: &str,
        root: &str,
        name: Option<&str>,
        columns: &mut Vec<String>,
    ) -> Result<&'static str, ProviderError> {
        let roots = ROOTS.into_iter().chain(self.has_moment.then_some(SINCE));
        let Some(known) = roots.into_iter().find(|known| *known == root) else {
            let mut hint = closest(root, &ROOTS);
            hint.push_str("; a column is `params.COLUMN`");
            return Err(stanza.fault(key, format!("`{root}` is no placeholder{hint}")));
        };
        match (known, name) {
            ("secret", Some(name)) if !self.secret_names.iter().any(|known| known == name) => {
                let problem = format!("`secret.{name}` is not among `secrets`");
                return Err(stanza.fault(key, problem));
            }
            ("secret", None) => {
                return Err(stanza.fault(key, "a secret is named like `secret.token`"));
            }
            ("params", Some(name)) => columns.push(name.to_owned()),
            _ => {}
        }
        Ok(known)
    }

    /// Values as no real message has them, to find out whether a template can be filled at all.
    fn trial(&self) -> Value {
        self.context(
            "+15550100",
            "text",
            "reference",
            Some("sender"),
            Some(Value::from_object(AnyColumn)),
            self.has_moment.then_some(Timestamp::default()),
        )
    }

    /// `since` is for the templates of a look-up.
    pub(super) fn values<'a>(&self, message: &'a Message, since: Option<Timestamp>) -> Values<'a> {
        let params = self.roots.contains("params").then(|| {
            let columns = message.params.iter().filter(|(_, value)| !value.is_null());
            Value::from_pairs(columns.map(|(column, value)| (column.as_str(), column_value(value))))
        });
        let from = message.from.as_deref().or(self.default_from.as_deref());
        let phone = message.phone.as_str();
        Values {
            message,
            context: self.context(
                phone,
                &message.content,
                &message.reference,
                from,
                params,
                since,
            ),
        }
    }

    fn context(
        &self,
        phone: &str,
        content: &str,
        reference: &str,
        from: Option<&str>,
        params: Option<Value>,
        since: Option<Timestamp>,
    ) -> Value {
        let always = [
            ("phone", Value::from(phone)),
            ("content", Value::from(content)),
            ("reference", Value::from(reference)),
            ("secret", self.secret.clone()),
        ];
        let since = since.map(|since| Value::from(since.to_string()));
        let sometimes = [
            ("from", from.map(Value::from)),
            ("params", params),
            (SINCE, since),
        ];
        let sometimes = sometimes
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        Value::from_pairs(always.into_iter().chain(sometimes))
    }

    /// The text with its placeholders filled.
    pub(super) fn fill(&self, text: &Text, values: &Values<'_>) -> Result<String, Outcome> {
        self.render(text, &values.context)
            .map_err(|error| self.failed(text, values.message, &error))
    }

    /// The text where it needs no message.
    pub(super) fn constant(
        &self,
        stanza: &Stanza<'_>,
        key: &str,
        text: &Text,
    ) -> Result<String, ProviderError> {
        self.render(text, &self.trial())
            .map_err(|error| stanza.fault(key, described(&error)))
    }

    fn render(&self, text: &Text, context: &Value) -> Result<String, Error> {
        match text {
            Text::Plain(text) => Ok(text.clone()),
            Text::Template(placed) => self.environment.get_template(&placed.key)?.render(context),
        }
    }

    fn failed(&self, text: &Text, message: &Message, error: &Error) -> Outcome {
        let Text::Template(placed) = text else {
            return rejected("the request cannot be made".to_owned());
        };
        let key = &placed.key;
        let missing = |column: &&String| {
            message
                .params
                .get(*column)
                .is_none_or(serde_json::Value::is_null)
        };
        if error.kind() != ErrorKind::UndefinedError {
            return rejected(format!("`{key}` cannot be filled: {}", error.kind()));
        }
        if let Some(column) = placed.columns.iter().find(missing) {
            return rejected(format!(
                "`{key}` needs column `{column}`, which the message lacks"
            ));
        }
        if placed.roots.contains("from") && message.from.is_none() && self.default_from.is_none() {
            let reason = format!(
                "`{key}` needs a sender, and neither the campaign nor the provider has one"
            );
            return Outcome::AccountError {
                failure: Failure::new(Class::Account, reason),
                listed: true,
            };
        }
        rejected(format!("`{key}` needs a column that the message lacks"))
    }
}

pub(super) fn rejected(reason: String) -> Outcome {
    Outcome::Rejected(Failure::new(Class::Content, reason))
}

/// Wrong whatever the values are.
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

/// The details of other kinds may repeat values.
fn described(error: &Error) -> String {
    match error.detail() {
        Some(detail) if is_certain(error.kind()) => format!("{}: {detail}", error.kind()),
        _ => error.kind().to_string(),
    }
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Big-endian, as SMS centres have it.
fn utf16_hex(text: &str) -> String {
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    crate::provider::sign::hex(&bytes)
}

/// Everything but unreserved characters is encoded. A dot segment cannot be: it would change the path.
fn percent_encoded(text: &str) -> Result<String, Error> {
    use fmt::Write as _;
    if matches!(text, "." | "..") {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "a dot segment in a url",
        ));
    }
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}")?;
        }
    }
    Ok(out)
}

/// Imported columns are texts; what another program wrote into the row may be anything.
fn column_value(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::String(text) => Value::from(text.as_str()),
        other => Value::from(other.to_string()),
    }
}

/// Has every column.
#[derive(Debug)]
struct AnyColumn;

impl Object for AnyColumn {
    fn get_value(self: &Arc<Self>, _: &Value) -> Option<Value> {
        Some(Value::from("1"))
    }
}
