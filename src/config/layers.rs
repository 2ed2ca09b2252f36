//! The layers of a configuration, each as it was written, so that every value can be traced to the
//! file and line, the variable or the flag that it came from.

use std::collections::BTreeMap;
use std::path::Path;

use ::config::{File, FileFormat};
use toml::{Table, Value};

use super::DEFAULT;
use super::fault::{Fault, Origin};
use super::prices::Prices;
use crate::provider;
use crate::text::{closest, did_you_mean};

/// Every variable whose name starts so is a setting.
const PREFIX: &str = "SMSQ__";
const PROVIDERS: &str = "providers";
const PRICES: &str = "prices";

pub(super) struct Layers {
    defaults: Table,
    file: Option<Written>,
    environment: Vec<Variable>,
    flags: Vec<(&'static str, &'static str, String)>,
}

struct Written {
    name: String,
    text: String,
    table: Table,
}

struct Variable {
    name: String,
    path: Vec<String>,
    value: String,
}

impl Layers {
    pub(super) fn read(
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, Fault> {
        let defaults = defaults();
        let file = file.map(Written::read).transpose()?;
        if let Some(file) = &file {
            file.check(&file.table, &defaults, "")?;
        }
        let mut layers = Self {
            defaults,
            file,
            environment: Vec::new(),
            flags: Vec::new(),
        };
        for (name, value) in environment {
            if let Some(path) = name.strip_prefix(PREFIX).filter(|_| !value.is_empty()) {
                let path = path.to_ascii_lowercase();
                let path: Vec<String> = path.split("__").map(str::to_owned).collect();
                layers.add_variable(name, path, value)?;
            }
        }
        Ok(layers)
    }

    fn add_variable(&mut self, name: &str, path: Vec<String>, value: &str) -> Result<(), Fault> {
        let key = path.join(".");
        let is_provider = path.len() >= 3 && path[0] == PROVIDERS;
        if !is_provider && !keys(&self.defaults).contains(&key) {
            return Err(Fault::UnknownKey {
                origin: Origin::Environment(name.to_owned()),
                closest: closest_key(&key),
                key,
            });
        }
        self.environment.push(Variable {
            name: name.to_owned(),
            path,
            value: value.to_owned(),
        });
        Ok(())
    }

    pub(super) fn add_flag(&mut self, flag: &'static str, key: &'static str, value: String) {
        self.flags.push((flag, key, value));
    }

    /// Everything but the providers, the highest layer on top.
    pub(super) fn merged(&self) -> Result<::config::Config, ::config::ConfigError> {
        let mut builder =
            ::config::Config::builder().add_source(File::from_str(DEFAULT, FileFormat::Toml));
        if let Some(file) = &self.file {
            builder = builder.add_source(File::from_str(&file.text, FileFormat::Toml));
        }
        for variable in &self.environment {
            if variable.path[0] != PROVIDERS {
                builder = builder.set_override(variable.path.join("."), variable.value.as_str())?;
            }
        }
        for (_, key, value) in &self.flags {
            builder = builder.set_override(key, value.as_str())?;
        }
        builder.build()
    }

    /// The stanzas of the providers: `builtin` below, the file and the environment on top. They do
    /// not go through the `config` crate because the case of their keys matters and the environment
    /// has none.
    pub(super) fn stanzas(
        &self,
        builtin: BTreeMap<String, Table>,
    ) -> Result<BTreeMap<String, Table>, Fault> {
        let mut stanzas = builtin;
        for (name, stanza) in self.written_stanzas() {
            let lower = if stanza.contains_key("kind") {
                Table::new()
            } else {
                stanzas.remove(name).unwrap_or_default()
            };
            stanzas.insert(name.clone(), provider::over(lower, stanza));
        }
        for variable in &self.environment {
            if variable.path[0] == PROVIDERS {
                variable.set(&mut stanzas)?;
            }
        }
        Ok(stanzas)
    }

    /// The providers that the operator describes, not those that are built in.
    pub(super) fn own_providers(&self) -> impl Iterator<Item = &String> {
        self.written_stanzas().map(|(name, _)| name)
    }

    /// What providers charge. The defaults know no prices, so that the file alone has them.
    pub(super) fn prices(
        &self,
        providers: &BTreeMap<String, Table>,
    ) -> Result<BTreeMap<String, Prices>, Fault> {
        let tables = self.file.iter().filter_map(|file| file.table.get(PRICES));
        let mut prices = BTreeMap::new();
        for (name, table) in tables.filter_map(Value::as_table).flatten() {
            let key = format!("{PRICES}.{name}");
            if !providers.contains_key(name) {
                let closest = did_you_mean(name, providers.keys().map(String::as_str))
                    .map_or(String::new(), |hint| format!("; {hint}"));
                return Err(Fault::Value {
                    origin: self.written(&key).0,
                    key,
                    value: None,
                    wanted: format!(
                        "a section named after a provider; unknown provider `{name}`{closest}"
                    ),
                });
            }
            let table = table.as_table();
            let table = table.ok_or_else(|| self.fault(&key, "a section `[prices.NAME]`"))?;
            let read = Prices::read(table)
                .map_err(|wrong| self.fault(&format!("{key}.{}", wrong.key), wrong.wanted))?;
            prices.insert(name.clone(), read);
        }
        Ok(prices)
    }

    fn written_stanzas(&self) -> impl Iterator<Item = (&String, &Table)> {
        self.file
            .iter()
            .filter_map(|file| file.table.get(PROVIDERS)?.as_table())
            .flatten()
            .filter_map(|(name, stanza)| Some((name, stanza.as_table()?)))
    }

    /// The fault that the value of `key`, wherever it was written, is not what is `wanted`.
    pub(super) fn fault(&self, key: &str, wanted: impl Into<String>) -> Fault {
        let (origin, value) = self.written(key);
        Fault::Value {
            origin,
            key: key.to_owned(),
            value: value.filter(|_| !may_be_secret(key)),
            wanted: wanted.into(),
        }
    }

    /// Whether nobody has written the setting.
    pub(super) fn is_default(&self, key: &str) -> bool {
        self.written(key).0 == Origin::Default
    }

    /// Where the highest layer that has `key` wrote it, and what it says there.
    fn written(&self, key: &str) -> (Origin, Option<String>) {
        if let Some((flag, _, value)) = self.flags.iter().rev().find(|(_, k, _)| *k == key) {
            return (Origin::Flag(flag), Some(value.clone()));
        }
        if let Some(variable) = self.environment.iter().find(|v| v.path.join(".") == key) {
            let origin = Origin::Environment(variable.name.clone());
            return (origin, Some(variable.value.clone()));
        }
        if let Some(file) = &self.file
            && let Some(value) = find(&file.table, key)
        {
            return (file.origin(key), Some(shown(value)));
        }
        (Origin::Default, find(&self.defaults, key).map(shown))
    }
}

impl Written {
    fn read(path: &Path) -> Result<Self, Fault> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| Fault::Unreadable {
            file: name.clone(),
            source,
        })?;
        // Windows editors put a byte order mark in front.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
        let table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map(|span| line_at(&text, span.start));
            Fault::Syntax {
                origin: Origin::File(name.clone(), line),
                reason: error.message().replace('\n', ", "),
            }
        })?;
        Ok(Self { name, text, table })
    }

    fn origin(&self, key: &str) -> Origin {
        Origin::File(self.name.clone(), line_of(&self.text, key))
    }

    /// Every key must be one of the defaults', of the same type.
    fn check(&self, table: &Table, defaults: &Table, section: &str) -> Result<(), Fault> {
        for (name, value) in table {
            let key = match section {
                "" => name.clone(),
                section => format!("{section}.{name}"),
            };
            let wrong = |wanted: &str, value: Option<String>| Fault::Value {
                origin: self.origin(&key),
                key: key.clone(),
                value: value.filter(|_| !may_be_secret(&key)),
                wanted: wanted.to_owned(),
            };
            if key == PRICES && value.is_table() {
                continue;
            }
            if key == PROVIDERS {
                let stanzas = value
                    .as_table()
                    .ok_or_else(|| wrong("sections like `[providers.NAME]`", None))?;
                if let Some((stanza, _)) = stanzas.iter().find(|(_, value)| !value.is_table()) {
                    return Err(Fault::Value {
                        origin: self.origin(&format!("{PROVIDERS}.{stanza}")),
                        key: format!("{PROVIDERS}.{stanza}"),
                        value: None,
                        wanted: "a section `[providers.NAME]`".to_owned(),
                    });
                }
                continue;
            }
            match (defaults.get(name), value) {
                (None, _) => {
                    return Err(Fault::UnknownKey {
                        origin: self.origin(&key),
                        closest: closest_key(&key),
                        key,
                    });
                }
                (Some(Value::Table(inner)), Value::Table(value)) => {
                    self.check(value, inner, &key)?;
                }
                (Some(default), value) if default.same_type(value) => {}
                (Some(_), value) => {
                    return Err(wrong(super::wanted(&key), Some(shown(value))));
                }
            }
        }
        Ok(())
    }
}

impl Variable {
    /// Puts the value where it belongs; names are found without regard to case, because the names of
    /// variables have none.
    fn set(&self, stanzas: &mut BTreeMap<String, Table>) -> Result<(), Fault> {
        let provider = resolve(stanzas.keys(), &self.path[1]);
        let mut table = stanzas.entry(provider).or_default();
        let (last, inner) = self.path[2..]
            .split_last()
            .expect("a provider's variable has three parts at least");
        for part in inner {
            let name = resolve(table.keys(), part);
            let entry = table
                .entry(name)
                .or_insert_with(|| Value::Table(Table::new()));
            table = entry.as_table_mut().ok_or_else(|| Fault::Value {
                origin: Origin::Environment(self.name.clone()),
                key: self.path.join("."),
                value: None,
                wanted: format!("inside a section, and `{part}` is none"),
            })?;
        }
        let name = resolve(table.keys(), last);
        let value = typed(&self.value, table.get(&name));
        table.insert(name, value);
        Ok(())
    }
}

/// Lists, tables and truth values are taken as TOML, numbers where a number stood, all else as text.
fn typed(text: &str, below: Option<&Value>) -> Value {
    let written = format!("value = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"));
    match (written, below) {
        (Some(value @ (Value::Array(_) | Value::Table(_) | Value::Boolean(_))), _) => value,
        (Some(value), Some(below)) if value.same_type(below) => value,
        _ => Value::String(text.to_owned()),
    }
}

fn resolve<'a>(names: impl Iterator<Item = &'a String>, part: &str) -> String {
    names
        .into_iter()
        .find(|name| name.eq_ignore_ascii_case(part))
        .cloned()
        .unwrap_or_else(|| part.to_owned())
}

fn find<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((section, rest)) => find(table.get(section)?.as_table()?, rest),
        None => table.get(key),
    }
}

/// Whether a value may have a password in it, whatever its type: these sections have urls and passwords.
fn may_be_secret(key: &str) -> bool {
    matches!(key.split('.').next(), Some("database" | "redis"))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn defaults() -> Table {
    DEFAULT
        .parse()
        .expect("the embedded defaults are valid, a test says so")
}

/// Every setting, as `section.key`.
fn keys(table: &Table) -> Vec<String> {
    let mut all = Vec::new();
    for (name, value) in table {
        match value {
            Value::Table(inner) => {
                all.extend(keys(inner).into_iter().map(|key| format!("{name}.{key}")));
            }
            _ => all.push(name.clone()),
        }
    }
    all
}

/// The setting that was probably meant: one that is spelled alike, or one of that name in another
/// section.
fn closest_key(key: &str) -> Option<String> {
    let keys = keys(&defaults());
    let last = key.rsplit('.').next().unwrap_or(key);
    keys.iter()
        .find(|known| known.rsplit('.').next() == Some(last))
        .cloned()
        .or_else(|| closest(key, keys.iter().map(String::as_str)))
}

fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|byte| **byte == b'\n').count()
}

/// The line where `key` is written.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = toml::de::DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let mut line = None;
    for part in key.split('.') {
        let (name, value) = table
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == part)?;
        line = Some(line_at(text, name.span().start));
        match value.get_ref() {
            toml::de::DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    line
}
