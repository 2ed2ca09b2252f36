//! Some vendors send no text of ours: they send a template that they have approved, filled with a message's
//! columns. Whether a message has those columns, and whether they fit, is known before anything is sent.

use super::stanza::Stanza;
use super::{Message, ProviderError};
use crate::sms::{Cause, Class, Outcome};

/// The vendor's template, and which column fills which of its parameters.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    /// The vendor's id of the template; `None` until the operator sets it.
    pub(super) template: Option<String>,
    /// Parameter and column, in the template's order.
    columns: Vec<(String, String)>,
    /// The most characters of one value.
    longest: Option<usize>,
    /// Values may hold web addresses.
    may_link: bool,
    /// The template's text, to show what the recipient will see.
    text: Option<String>,
}

impl Parameters {
    pub(super) const KEYS: [&'static str; 5] = [
        "template",
        "params",
        "param_length",
        "param_urls",
        "template_text",
    ];

    /// `params` is a table (parameter = "column") or, where they have no names, a list of columns.
    pub(super) fn read(stanza: &Stanza<'_>) -> Result<Self, ProviderError> {
        let text = |key: &str, value: &toml::Value| {
            let value = value.as_str().map(str::to_owned);
            value.ok_or_else(|| stanza.fault(key, "must be the name of a column"))
        };
        let columns = match stanza.table.get("params") {
            None => Vec::new(),
            Some(toml::Value::Table(table)) => table
                .iter()
                .map(|(name, column)| Ok((name.clone(), text(&format!("params.{name}"), column)?)))
                .collect::<Result<_, _>>()?,
            Some(toml::Value::Array(list)) => list
                .iter()
                .enumerate()
                .map(|(at, column)| {
                    let name = (at + 1).to_string();
                    Ok((name, text(&format!("params[{at}]"), column)?))
                })
                .collect::<Result<_, _>>()?,
            Some(_) => {
                return Err(stanza.fault(
                    "params",
                    "must be a table like `{ name = \"column\" }` or a list like `[\"column\"]`",
                ));
            }
        };
        Ok(Self {
            template: stanza.optional("template")?,
            columns,
            longest: stanza.optional("param_length")?,
            may_link: stanza.optional("param_urls")?.unwrap_or(true),
            text: stanza.optional("template_text")?,
        })
    }

    /// The columns that fill them.
    pub(super) fn columns(&self) -> Vec<&str> {
        self.columns
            .iter()
            .map(|(_, column)| column.as_str())
            .collect()
    }

    /// The template's text, where the operator gave it.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The parameters of one message, in the template's order.
    pub(super) fn fill(&self, message: &Message) -> Result<Vec<(&str, String)>, Outcome> {
        self.columns
            .iter()
            .map(|(name, column)| {
                let missing = || {
                    let lack = if message.params.contains_key(column) {
                        "has nothing in"
                    } else {
                        "lacks"
                    };
                    rejected(&format!("{lack} column `{column}`"), name)
                };
                let value = column_of(message, column).ok_or_else(missing)?;
                self.check(name, &value)?;
                Ok((name.as_str(), value))
            })
            .collect()
    }

    pub(super) fn values(&self, message: &Message) -> Result<Vec<String>, Outcome> {
        Ok(self
            .fill(message)?
            .into_iter()
            .map(|(_, value)| value)
            .collect())
    }

    fn check(&self, name: &str, value: &str) -> Result<(), Outcome> {
        let length = value.chars().count();
        match self.longest {
            Some(longest) if length > longest => {
                return Err(rejected(
                    &format!("has {length} characters for it, where {longest} are allowed"),
                    name,
                ));
            }
            _ if self.may_link => return Ok(()),
            _ => {}
        }
        let lower = value.to_ascii_lowercase();
        if lower.contains("://") || lower.contains("www.") {
            return Err(rejected(
                "has a web address for it, which the vendor forbids",
                name,
            ));
        }
        Ok(())
    }

    /// What the recipient will see, where the operator gave the template's text.
    pub(super) fn preview(&self, message: &Message) -> Option<Result<String, Outcome>> {
        let mut text = self.text.clone()?;
        let filled = match self.fill(message) {
            Ok(filled) => filled,
            Err(outcome) => return Some(Err(outcome)),
        };
        for (name, value) in filled {
            for written in [
                format!("${{{name}}}"),
                format!("{{{{{name}}}}}"),
                format!("{{{name}}}"),
            ] {
                text = text.replace(&written, &value);
            }
        }
        Some(Ok(text))
    }
}

/// An imported column, or the text of the message as `content`.
fn column_of(message: &Message, column: &str) -> Option<String> {
    let value = match message.params.get(column) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Null) => return None,
        Some(other) => other.to_string(),
        None if column == "content" => message.content.clone(),
        None => return None,
    };
    (!value.trim().is_empty()).then_some(value)
}

fn rejected(what: &str, name: &str) -> Outcome {
    let reason = format!("the template needs parameter `{name}`, and the message {what}");
    Outcome::Rejected(Cause::new(Class::Content, reason))
}

#[cfg(test)]
mod tests {
    use super::super::testing::message;
    use super::*;

    fn read(source: &str) -> Result<Parameters, String> {
        let table: toml::Table = source.parse().expect("toml");
        let stanza = Stanza {
            name: "cellar",
            table: &table,
        };
        Parameters::read(&stanza).map_err(|error| error.to_string())
    }

    fn fault(source: &str) -> String {
        match read(source).expect(source).fill(&message()) {
            Err(Outcome::Rejected(cause)) => {
                assert_eq!(cause.class, Class::Content);
                cause.reason
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn columns_fill_parameters_by_name_or_by_place() {
        let named = read("params = { code = 'order' }").expect("named");
        assert_eq!(
            named.fill(&message()),
            Ok(vec![("code", "4711".to_owned())])
        );
        let placed = read("params = ['order', 'name']").expect("placed");
        let values = ["4711".to_owned(), "Anna & \"Bob\"".to_owned()];
        assert_eq!(placed.values(&message()), Ok(values.to_vec()));
    }

    #[test]
    fn what_does_not_fit_is_rejected_before_anything_is_sent() {
        assert!(fault("params = { code = 'missing' }").contains("lacks column `missing`"));
        assert!(fault("params = ['order']\nparam_length = 3").contains("4 characters"));
        let mut message = message();
        message.params["order"] = "see HTTPS://x.example".into();
        let strict = read("params = ['order']\nparam_urls = false").expect("strict");
        assert!(matches!(strict.fill(&message), Err(Outcome::Rejected(_))));
        message.params["order"] = " ".into();
        let plain = read("params = ['order']").expect("plain");
        let Err(Outcome::Rejected(cause)) = plain.fill(&message) else {
            panic!("nothing fills it");
        };
        assert!(cause.reason.ends_with("has nothing in column `order`"));
    }

    #[test]
    fn a_preview_shows_what_the_recipient_will_see() {
        for source in [
            "params = { code = 'order' }\ntemplate_text = 'order ${code}!'",
            "params = ['order']\ntemplate_text = 'order {1}!'",
            "params = { 1 = 'order' }\ntemplate_text = 'order {{1}}!'",
        ] {
            let preview = read(source).expect(source).preview(&message());
            assert_eq!(preview, Some(Ok("order 4711!".to_owned())), "{source}");
        }
    }

    #[test]
    fn parameters_are_named_by_texts() {
        for source in ["params = 7", "params = [7]", "params = { a = 7 }"] {
            assert!(read(source).expect_err(source).contains("`params"));
        }
    }
}
