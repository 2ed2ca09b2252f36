//! The kinds of providers. A vendor that the generic adapter can describe has only a file in `config/providers`.

use toml::{Table, Value};

use super::config::{Environment, ProviderError, Section, SharedSettings};
use super::vendors::{aliyun, aws, huawei, tencent, twilio, yunpian};
use super::{NewAdapter, builtin, complete, generic, units};
use crate::text::closest;

type New = fn(Section<'_>, SharedSettings) -> NewAdapter;

const ADAPTERS: [(&str, New); 8] = [
    ("generic", generic::new),
    ("aliyun", aliyun::new),
    ("aws-sms", aws::new_sms),
    ("aws-sns", aws::new_sns),
    ("huawei", huawei::new),
    ("tencent", tencent::new),
    ("twilio", twilio::new),
    ("yunpian", yunpian::new),
];

/// Reads section `[providers.NAME]` over the built-in section of its kind.
pub(super) fn read(name: &str, section: &Table, environment: Environment<'_>) -> NewAdapter {
    let section = complete(section);
    let kind = section.get("kind").and_then(Value::as_str);
    let Some((kind, new)) = kind.and_then(|kind| ADAPTERS.iter().find(|it| it.0 == kind)) else {
        let (provider, problem) = (name.to_owned(), kind_problem(&section));
        return Err(ProviderError { provider, problem });
    };
    let mut section = Section::new(name, kind, section, environment);
    let shared: SharedSettings = section.take()?;
    new(section, shared)
}

fn kind_problem(section: &Table) -> String {
    match section.get("kind") {
        Some(Value::String(kind)) => {
            let known: Vec<&str> = builtin().iter().map(|(kind, _)| *kind).collect();
            format!("unknown kind `{kind}`{}", units::hint(kind, &known))
        }
        Some(_) => "invalid `kind`: must be a text in quotation marks".to_owned(),
        None => match closest("kind", section.keys().map(String::as_str)) {
            Some(key) => format!("unknown key `{key}`{}", units::hint(&key, &["kind"])),
            None => "missing key `kind`".to_owned(),
        },
    }
}
