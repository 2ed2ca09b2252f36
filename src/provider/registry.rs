//! The kinds of providers and their built-in sections. A vendor that the generic adapter can describe has only a file
//! in `config/providers`. A section is merged over the built-in one of its kind: an operator who writes
//! `kind = "twilio"` gets that vendor's URL, limits and codes, and sets only what differs.

use std::cell::RefCell;
use std::collections::BTreeSet;

use smsq_message::text::closest;
use toml::{Table, Value};

use super::config::SharedSettings;
pub use super::config::section::with_overrides;
use super::config::section::{ProviderError, ReadVariable, Section};
use super::generic::{Receipts, WebhookReader};
use super::vendors::{aliyun, aws, huawei, signed, tencent, twilio, yunpian};
use super::{Adapter, NewAdapter, generic, units};

type New = fn(Section<'_>, SharedSettings) -> NewAdapter;

const ADAPTERS: [(&str, New); 11] = [
    ("generic", generic::new),
    ("aliyun", aliyun::new),
    ("aws-sms", aws::new_sms),
    ("aws-sns", aws::new_sns),
    ("azure", signed::new_azure),
    ("huawei", huawei::new),
    ("ovh", signed::new_ovh),
    ("smsglobal", signed::new_smsglobal),
    ("tencent", tencent::new),
    ("twilio", twilio::new),
    ("yunpian", yunpian::new),
];

/// A provider's adapter, and how its receipts are fetched and read.
pub(super) struct ProviderParts {
    pub(super) adapter: Box<dyn Adapter>,
    pub(super) receipts: Option<Receipts>,
    pub(super) webhook: Option<WebhookReader>,
    /// The keys of the section that hold secret values, with dots between their parts.
    pub(super) secret_keys: BTreeSet<String>,
}

/// Reads section `[providers.NAME]` over the built-in section of its kind.
pub(super) fn read(
    name: &str,
    section: &Table,
    environment: ReadVariable<'_>,
) -> Result<ProviderParts, ProviderError> {
    let mut section = complete(section);
    let mut table = |key: &str| match section.remove(key)? {
        Value::Table(table) => Some(table),
        other => {
            section.insert(key.to_owned(), other);
            None
        }
    };
    let (receipts, webhook) = (table("receipts"), table("webhook"));
    let kind = section.get("kind").and_then(Value::as_str);
    let Some((kind, new)) = kind.and_then(|kind| ADAPTERS.iter().find(|adapter| adapter.0 == kind))
    else {
        let (provider, problem) = (name.to_owned(), kind_problem(&section));
        return Err(ProviderError { provider, problem });
    };
    let whole = section.clone();
    let secret_keys = RefCell::default();
    let root = Section::new(name, kind, Table::new(), environment, &secret_keys);
    let mut section = Section::new(name, kind, section, environment, &secret_keys);
    let shared: SharedSettings = section.take()?;
    let mut adapter = new(section, shared)?;
    let config = adapter.config_mut();
    let webhook = webhook
        .map(|table| WebhookReader::read(&root, config, receipts.as_ref(), &table))
        .transpose()?;
    let receipts =
        receipts.map(|table| Receipts::read(&root, config, &whole, table)).transpose()?;
    Ok(ProviderParts { adapter, receipts, webhook, secret_keys: secret_keys.take() })
}

fn kind_problem(section: &Table) -> String {
    match section.get("kind") {
        Some(Value::String(kind)) => {
            let known: Vec<&str> = builtin().iter().map(|(kind, _)| *kind).collect();
            units::unknown(format!("unknown kind `{kind}`"), kind, &known).joined()
        }
        Some(_) => "invalid `kind`: must be a text in quotation marks".to_owned(),
        None => match closest("kind", section.keys().map(String::as_str)) {
            Some(key) => units::unknown(format!("unknown key `{key}`"), &key, &["kind"]).joined(),
            None => "missing key `kind`".to_owned(),
        },
    }
}

/// The built-in sections by kind, which `build.rs` finds in `config/providers`: TOML with comments, each with a table
/// `[providers.KIND]`. `generic` is an example to copy; the others work once their secrets are set.
pub fn builtin() -> &'static [(&'static str, &'static str)] {
    include!(concat!(env!("OUT_DIR"), "/providers.rs"))
}

/// The built-in section of a kind; `generic` has none.
pub fn builtin_section(kind: &str) -> Option<Table> {
    let (_, source) = builtin().iter().find(|(name, _)| *name == kind)?;
    let source: Table = source.parse().expect("a test parses it");
    source.get("providers")?.get(kind)?.as_table().cloned()
}

/// Merges `section` over the built-in section of its kind.
pub fn complete(section: &Table) -> Table {
    let kind = section.get("kind").and_then(Value::as_str);
    let Some(lower) = kind.and_then(builtin_section) else {
        return section.clone();
    };
    let mut upper = section.clone();
    // The built-in section names the adapter.
    upper.remove("kind");
    with_overrides(lower, &upper)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Provider;

    fn completed(source: &str) -> Table {
        complete(&source.parse().expect("toml"))
    }

    #[test]
    fn section_sets_only_what_differs_from_its_kind() {
        let whole = completed(
            "kind = 'twilio'\nfrom = 'SHOP'\nsecrets = { auth_token = { file = '/t' } }\n\
             codes = { 21211 = { class = 'content' } }",
        );
        assert_eq!(whole["url"].as_str(), Some("https://api.twilio.com"));
        assert_eq!(whole["from"].as_str(), Some("SHOP"));
        assert_eq!(whole["secrets"]["auth_token"].as_table().map(Table::len), Some(1));
        assert!(whole["secrets"].get("account_sid").is_some());
        assert_eq!(whole["codes"]["21211"]["class"].as_str(), Some("content"));
        assert!(whole["codes"].get("21610").is_some());
    }

    #[test]
    fn section_with_kind_is_merged_like_one_without() {
        for (kind, more) in [
            ("plivo", "json = { src = 'X' }"),
            ("plivo", "headers = { X-Trace = '1' }\nlookup = { rate = '1/s' }"),
            ("plivo", "lookup = { query = { limit = 5 } }"),
            ("plivo", "secrets = { auth_token = { file = '/t' } }"),
            ("clicksend", "batch = { per_call = 5 }\nrate = ['1/s', '9/day']"),
            ("tencent", "codes = { 'FailedOperation.MissingSignature' = { class = 'content' } }"),
        ] {
            let source: Table = more.parse().expect("toml");
            let without_kind = with_overrides(builtin_section(kind).expect(kind), &source);
            let with_kind = completed(&format!("kind = '{kind}'\n{more}"));
            assert_eq!(with_kind, without_kind, "{kind}: {more}");
        }
        let whole = completed("kind = 'plivo'\njson = { src = 'X' }");
        assert_eq!(whole["json"]["src"].as_str(), Some("X"));
        assert_eq!(whole["json"]["dst"].as_str(), Some("{{ phone }}"));
    }

    #[test]
    fn key_that_is_set_is_no_longer_required() {
        let whole = completed("kind = 'infobip'");
        assert_eq!(whole["required"].as_array().map(Vec::len), Some(1));
        let whole = completed("kind = 'infobip'\nurl = 'https://x1.api.infobip.com'");
        assert_eq!(whole["required"].as_array().map(Vec::len), Some(0));
    }

    #[test]
    fn generic_vendor_can_be_the_kind_of_another_section() {
        let whole = completed("kind = 'plivo'\nrate = '5/s'");
        assert_eq!(whole["kind"].as_str(), Some("generic"));
        assert_eq!(whole["rate"].as_str(), Some("5/s"));
    }

    #[test]
    fn every_builtin_section_is_valid() {
        for (kind, source) in builtin() {
            let table: Table = source.parse().expect(kind);
            let providers = table["providers"].as_table().expect(kind);
            for (name, section) in providers {
                let section = section.as_table().expect(kind);
                let provider = Provider::from_section(name, section, &|_| Some("t".to_owned()));
                let provider = provider.unwrap_or_else(|error| panic!("{error}"));
                assert!([*kind, "generic"].contains(&provider.kind()));
                assert_eq!(provider.name(), name);
                assert_eq!(*kind == "generic", name == "cellar");
            }
        }
    }

    #[test]
    fn kind_without_builtin_section_is_not_changed() {
        for source in ["kind = 'generic'", "kind = 'other'", "a = 1"] {
            assert_eq!(completed(source), source.parse().expect("toml"), "{source}");
        }
    }
}
