//! Merges the layers of a configuration (defaults, file, environment, flags) and remembers where each value was set.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ::config::{Config, File, FileFormat};
use serde::de::DeserializeOwned;
use smsq_hooks::HookConfig;
use smsq_message::prices::Prices;
use smsq_message::route::RouteConfig;
use smsq_message::secret::secret_keys;
use smsq_message::text::did_you_mean;
use smsq_store::SourceConfig;
use toml::{Table, Value};

use super::error::{ConfigError, Origin};
use super::{Config as Settings, DEFAULT, Flags, expected};

/// The prefix of environment variables that are settings.
const PREFIX: &str = "SMSQ__";
const PROVIDERS: &str = "providers";
const PRICES: &str = "prices";
const ROUTES: &str = "routes";
const HOOKS: &str = "hooks";
const SOURCES: &str = "sources";

pub(super) struct Layers {
    /// The settings of environment and flags by key, and where they were set.
    overrides: BTreeMap<String, (String, Origin)>,
    file: Option<ConfigFile>,
    /// The variables of providers, with their paths in lower case.
    provider_variables: Vec<(String, Vec<String>, String)>,
    /// Those of sources.
    source_variables: Vec<(String, Vec<String>, String)>,
}

struct ConfigFile {
    name: String,
    text: String,
    table: Table,
}

impl Layers {
    pub(super) fn read(
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let mut layers = Self {
            overrides: BTreeMap::new(),
            file: file.map(ConfigFile::read).transpose()?,
            provider_variables: Vec::new(),
            source_variables: Vec::new(),
        };
        if let Some(file) = &layers.file {
            layers.check_keys(&file.table, &default_settings(), "")?;
        }
        for (name, value) in environment {
            let Some(path) = name.strip_prefix(PREFIX).filter(|_| !value.is_empty()) else {
                continue;
            };
            let path = path.to_ascii_lowercase();
            let path: Vec<String> = path.split("__").map(str::to_owned).collect();
            if path.len() >= 3 && path[0] == PROVIDERS {
                let variable = (name.clone(), path, value.clone());
                layers.provider_variables.push(variable);
            } else if path.len() == 3 && path[0] == SOURCES {
                let variable = (name.clone(), path, value.clone());
                layers.source_variables.push(variable);
            } else {
                layers.set(&path.join("."), value, Origin::Variable(name.clone()))?;
            }
        }
        Ok(layers)
    }

    /// Checks that each setting in the file's `table` is in `defaults`, with the same type.
    fn check_keys(
        &self,
        table: &Table,
        defaults: &Table,
        section: &str,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = match section {
                "" => name.clone(),
                section => format!("{section}.{name}"),
            };
            match (key.as_str(), defaults.get(name), value) {
                (PROVIDERS | PRICES | ROUTES | SOURCES, _, Value::Table(sections)) => {
                    if let Some((name, _)) = sections.iter().find(|(_, value)| !value.is_table()) {
                        return Err(self.invalid(&format!("{key}.{name}"), None));
                    }
                }
                (HOOKS, _, Value::Array(sections)) if sections.iter().all(Value::is_table) => {}
                (_, Some(Value::Table(defaults)), Value::Table(inner)) => {
                    self.check_keys(inner, defaults, &key)?;
                }
                (_, Some(default), value) if default.same_type(value) => {}
                (PROVIDERS | PRICES | ROUTES | HOOKS | SOURCES, ..) | (_, Some(_), _) => {
                    return Err(self.invalid(&key, None));
                }
                (_, None, _) => return Err(unknown(&key, self.origin(&key))),
            }
        }
        Ok(())
    }

    /// Sets a value from the environment or the command line.
    pub(super) fn set(&mut self, key: &str, text: &str, origin: Origin) -> Result<(), ConfigError> {
        if find(&default_settings(), key).is_none_or(Value::is_table) {
            return Err(unknown(key, origin));
        }
        self.overrides.insert(key.to_owned(), (text.to_owned(), origin));
        Ok(())
    }

    /// Merges the layers, the highest last, and deserializes the settings.
    pub(super) fn settings<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        use ::config::ConfigError::{At, NotFound, Type};
        self.merged().and_then(Config::try_deserialize).map_err(|error| match &error {
            Type { key: Some(key), .. } | At { key: Some(key), .. } | NotFound(key) => {
                self.invalid(key, None)
            }
            other => ConfigError::Syntax { origin: Origin::Default, reason: other.to_string() },
        })
    }

    fn merged(&self) -> Result<Config, ::config::ConfigError> {
        let mut builder = Config::builder().add_source(File::from_str(DEFAULT, FileFormat::Toml));
        if let Some(file) = &self.file {
            builder = builder.add_source(File::from_str(&file.text, FileFormat::Toml));
        }
        for (key, (text, _)) in &self.overrides {
            builder = builder.set_override(key, text.as_str())?;
        }
        builder.build()
    }

    /// The error that the value of `key` is not what is expected.
    pub(super) fn invalid(&self, key: &str, expectation: Option<&str>) -> ConfigError {
        let defaults = default_settings();
        let value = match (self.overrides.get(key), self.file_value(key)) {
            (Some((text, _)), _) => Some(text.clone()),
            (None, value) => {
                value.or(find(&defaults, key)).filter(|value| !value.is_table()).map(plain)
            }
        };
        ConfigError::Value {
            origin: self.origin(key),
            key: key.to_owned(),
            value: value.filter(|_| is_shown(&defaults, key)),
            expected: expectation.unwrap_or_else(|| expected(key)).to_owned(),
        }
    }

    /// Where `key` was set.
    pub(super) fn origin(&self, key: &str) -> Origin {
        match (self.overrides.get(key), &self.file) {
            (Some((_, origin)), _) => origin.clone(),
            (None, Some(file)) => Origin::File(file.name.clone(), file.line_of(key)),
            (None, None) => Origin::Default,
        }
    }

    /// The first thing that names a database, providers or a configuration.
    pub(super) fn named(&self, flags: &Flags) -> Option<String> {
        let of_database = |(key, (_, origin)): (&String, &(String, Origin))| match origin {
            Origin::Variable(name) if key.starts_with("database.") => Some(name.clone()),
            _ => None,
        };
        let flag = [(flags.database.is_some(), "--database"), (flags.config.is_some(), "--config")];
        let flag = flag.into_iter().find(|(is_set, _)| *is_set);
        let file = self.file.as_ref().map(|file| &file.name);
        let provider = self.provider_variables.first();
        flag.map(|(_, flag)| flag.to_owned())
            .or_else(|| self.overrides.iter().find_map(of_database))
            .or_else(|| file.cloned())
            .or_else(|| provider.map(|(name, ..)| name.clone()))
    }

    pub(super) fn is_default(&self, key: &str) -> bool {
        !self.overrides.contains_key(key) && self.file_value(key).is_none()
    }

    fn file_value(&self, key: &str) -> Option<&Value> {
        find(&self.file.as_ref()?.table, key)
    }

    /// The provider sections: the built-in ones, changed by the file and the environment.
    pub(super) fn providers(&self) -> Result<BTreeMap<String, Table>, ConfigError> {
        let builtin = smsq_provider::builtin().iter();
        let mut sections: BTreeMap<String, Table> = builtin
            .filter_map(|(kind, _)| {
                Some(((*kind).to_owned(), smsq_provider::builtin_section(kind)?))
            })
            .collect();
        for (name, section) in self.file_sections(PROVIDERS) {
            let lower = if section.contains_key("kind") {
                Table::new()
            } else {
                sections.remove(name).unwrap_or_default()
            };
            sections.insert(name.clone(), smsq_provider::with_overrides(lower, section));
        }
        for (name, path, value) in &self.provider_variables {
            set_in_provider(&mut sections, path, value).map_err(|expected| ConfigError::Value {
                origin: Origin::Variable(name.clone()),
                key: path.join("."),
                value: None,
                expected,
            })?;
        }
        Ok(sections)
    }

    /// The names of the providers in the file.
    pub(super) fn own_providers(&self) -> impl Iterator<Item = &String> {
        self.file_sections(PROVIDERS).map(|(name, _)| name)
    }

    /// The routes in the file.
    pub(super) fn routes(
        &self,
        providers: &BTreeMap<String, Table>,
        prices: &BTreeMap<String, Prices>,
    ) -> Result<BTreeMap<String, RouteConfig>, ConfigError> {
        let mut routes = BTreeMap::new();
        for (name, section) in self.file_sections(ROUTES) {
            let invalid = |reason: String| ConfigError::Route {
                origin: self.origin(&format!("{ROUTES}.{name}")),
                name: name.clone(),
                reason,
            };
            if providers.contains_key(name) {
                return Err(invalid(
                    "a provider has this name: give the route another one".to_owned(),
                ));
            }
            let route = RouteConfig::from_toml(section).map_err(invalid)?;
            for provider in route.providers() {
                if !providers.contains_key(provider) {
                    let hint = did_you_mean(provider, providers.keys().map(String::as_str))
                        .map_or_else(String::new, |hint| format!("; {hint}"));
                    return Err(invalid(format!("unknown provider `{provider}`{hint}")));
                }
            }
            if route.is_cheapest() {
                let without = |provider: &&str| !prices.contains_key(*provider);
                if let Some(provider) = route.providers().into_iter().find(without) {
                    return Err(invalid(format!(
                        "`choose = \"cheapest\"` needs a section `[prices.{provider}]`"
                    )));
                }
                let currencies: BTreeSet<&str> = route
                    .providers()
                    .into_iter()
                    .map(|provider| prices[provider].currency.as_str())
                    .collect();
                if currencies.len() > 1 {
                    let currencies: Vec<&str> = currencies.into_iter().collect();
                    return Err(invalid(format!(
                        "prices in {} cannot be compared: write them in one currency",
                        currencies.join(" and ")
                    )));
                }
            }
            routes.insert(name.clone(), route);
        }
        Ok(routes)
    }

    /// The hooks in the file. Their names differ.
    pub(super) fn hooks(&self) -> Result<Vec<HookConfig>, ConfigError> {
        let mut hooks: Vec<HookConfig> = Vec::new();
        let file = self.file.as_ref();
        let sections = file.and_then(|file| file.table.get(HOOKS)?.as_array());
        for (index, section) in sections.into_iter().flatten().enumerate() {
            let name = section.get("name").and_then(Value::as_str);
            let invalid = |reason: String| ConfigError::Hook {
                origin: match file {
                    Some(file) => Origin::File(file.name.clone(), file.line_of_entry(HOOKS, index)),
                    None => Origin::Default,
                },
                name: name.map_or_else(|| (index + 1).to_string(), str::to_owned),
                reason,
            };
            let table = section.as_table().cloned().unwrap_or_default();
            let hook = HookConfig::from_toml(&table).map_err(invalid)?;
            if hooks.iter().any(|other| other.name == hook.name) {
                return Err(invalid(
                    "`name`: another hook has this name: give it another one".to_owned(),
                ));
            }
            hooks.push(hook);
        }
        Ok(hooks)
    }

    /// The price tables in the file.
    pub(super) fn prices(
        &self,
        providers: &BTreeMap<String, Table>,
    ) -> Result<BTreeMap<String, Prices>, ConfigError> {
        let mut prices = BTreeMap::new();
        for (name, table) in self.file_sections(PRICES) {
            let key = format!("{PRICES}.{name}");
            if !providers.contains_key(name) {
                let hint = did_you_mean(name, providers.keys().map(String::as_str))
                    .map_or_else(String::new, |hint| format!("; {hint}"));
                let expectation = format!("the name of a provider{hint}");
                return Err(self.invalid(&key, Some(&expectation)));
            }
            let table = Prices::from_toml(table).map_err(|invalid| {
                self.invalid(&format!("{key}.{}", invalid.key), Some(invalid.expected))
            })?;
            prices.insert(name.clone(), table);
        }
        Ok(prices)
    }

    /// The databases of other programs: those in the file, changed by the environment.
    pub(super) fn sources(&self) -> Result<BTreeMap<String, SourceConfig>, ConfigError> {
        let mut tables: BTreeMap<String, Table> = self
            .file_sections(SOURCES)
            .map(|(name, table)| (name.clone(), table.clone()))
            .collect();
        for (_, path, value) in &self.source_variables {
            let name = existing_name(tables.keys(), &path[1]);
            let table = tables.entry(name).or_default();
            table.insert(path[2].clone(), Value::String(value.clone()));
        }
        let mut sources = BTreeMap::new();
        for (name, table) in tables {
            let key = format!("{SOURCES}.{name}");
            let source = table.try_into().map_err(|_| ConfigError::Value {
                origin: self.origin(&key),
                key,
                value: None,
                expected: "a section with `url`, and if it needs one `password` or `password_file`"
                    .to_owned(),
            })?;
            sources.insert(name, source);
        }
        Ok(sources)
    }

    /// The tables of the file below `section`.
    fn file_sections(&self, section: &str) -> impl Iterator<Item = (&String, &Table)> {
        self.file
            .iter()
            .filter_map(move |file| file.table.get(section)?.as_table())
            .flatten()
            .filter_map(|(name, table)| Some((name, table.as_table()?)))
    }
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { file: name.clone(), source })?;
        // Some editors on Windows write a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
        let table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map(|span| line_at(&text, span.start));
            ConfigError::Syntax {
                origin: Origin::File(name.clone(), line),
                reason: error.message().replace('\n', ", "),
            }
        })?;
        Ok(Self { name, text, table })
    }

    /// The line where an entry of a list of tables begins.
    fn line_of_entry(&self, key: &str, index: usize) -> Option<usize> {
        let document = toml::de::DeTable::parse(&self.text).ok()?;
        let (_, value) =
            document.get_ref().iter().find(|(name, _)| name.get_ref().as_ref() == key)?;
        let toml::de::DeValue::Array(entries) = value.get_ref() else {
            return None;
        };
        Some(line_at(&self.text, entries.get(index)?.span().start))
    }

    /// The line that sets `key` or the section that it is in.
    fn line_of(&self, key: &str) -> Option<usize> {
        let document = toml::de::DeTable::parse(&self.text).ok()?;
        let mut table = document.get_ref();
        let mut line = None;
        for part in key.split('.') {
            let (name, value) = table.iter().find(|(name, _)| name.get_ref().as_ref() == part)?;
            line = Some(line_at(&self.text, name.span().start));
            match value.get_ref() {
                toml::de::DeValue::Table(inner) => table = inner,
                _ => break,
            }
        }
        line
    }
}

/// Sets a value in a provider section. Names are found without regard to case, which variables do not have. Returns
/// what was expected if a part of the path is not a table.
fn set_in_provider(
    sections: &mut BTreeMap<String, Table>,
    path: &[String],
    text: &str,
) -> Result<(), String> {
    let provider = existing_name(sections.keys(), &path[1]);
    let mut table = sections.entry(provider).or_default();
    if let Some(Value::Array(required)) = table.get_mut("required") {
        required.retain(|key| key.as_str() != Some(&path[2]));
    }
    let (last, inner) = path[2..].split_last().expect("at least three parts");
    for part in inner {
        let name = existing_name(table.keys(), part);
        let entry = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
        table = entry.as_table_mut().ok_or_else(|| format!("`{part}` to be a section"))?;
    }
    let name = existing_name(table.keys(), last);
    let value = typed(text, table.get(&name));
    table.insert(name, value);
    Ok(())
}

fn existing_name<'a>(mut names: impl Iterator<Item = &'a String>, part: &str) -> String {
    names.find(|name| name.eq_ignore_ascii_case(part)).map_or_else(|| part.to_owned(), Clone::clone)
}

/// Parses lists, tables and booleans as TOML, and numbers if the value below is a number; else returns the text.
fn typed(text: &str, below: Option<&Value>) -> Value {
    let parsed =
        format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    match (parsed, below) {
        (Some(value @ (Value::Array(_) | Value::Table(_) | Value::Boolean(_))), _) => value,
        (Some(value), Some(below)) if value.same_type(below) => value,
        _ => Value::String(text.to_owned()),
    }
}

fn find<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((section, rest)) => find(table.get(section)?.as_table()?, rest),
        None => table.get(key),
    }
}

/// Whether an error shows the value of `key`: it is a price, or a setting that neither is nor contains a secret.
fn is_shown(defaults: &Table, key: &str) -> bool {
    let is_below = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_public = || {
        let secrets = secret_keys::<Settings>(&Value::Table(defaults.clone()));
        let is_related = |secret: &String| is_below(secret, key) || is_below(key, secret);
        !secrets.iter().any(is_related)
    };
    is_below(key, PRICES) || (find(defaults, key).is_some() && is_public())
}

/// A value without the quotes of a string.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn default_settings() -> Table {
    DEFAULT.parse().expect("the embedded defaults are valid")
}

/// The error for an unknown key. Suggests the setting of that name in another section, or a similar one.
fn unknown(key: &str, origin: Origin) -> ConfigError {
    let mut known = Vec::new();
    for (name, value) in &default_settings() {
        match value {
            Value::Table(inner) => known.extend(inner.keys().map(|key| format!("{name}.{key}"))),
            _ => known.push(name.clone()),
        }
    }
    let last = key.rsplit('.').next().unwrap_or(key);
    let hint = did_you_mean(last, known.iter().map(String::as_str));
    ConfigError::UnknownKey {
        origin,
        key: key.to_owned(),
        hint: hint.unwrap_or_else(|| "`smsq init --reference` prints all settings".to_owned()),
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|byte| **byte == b'\n').count()
}
