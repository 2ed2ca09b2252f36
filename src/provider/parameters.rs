//! Some vendors send no text of ours: they send a template that they have approved, filled with a message's
//! columns. Whether a message has those columns, and whether they fit, is known before anything is sent.

use super::stanza::Stanza;
use super::{Message, ProviderError};
use crate::sms::{Class, Failure, Outcome};

/// How a vendor assigns values to the parameters of its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// By the parameter's name.
    Named,
    /// By position: the request carries a list of values without names.
    Positional,
}

/// The vendor's template, and which column fills which of its parameters.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    /// The vendor's id of the template; `None` until the operator sets it.
    pub(super) template: Option<String>,
    /// Parameter and column, in the order in which they are sent.
    columns: Vec<(String, String)>,
    order: Order,
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

    /// `params` is a table (parameter = "column") or a list of columns. For a vendor that takes them by position a
    /// table must have the keys 1 to n, because TOML tables have no order.
    pub(super) fn read(stanza: &Stanza<'_>, order: Order) -> Result<Self, ProviderError> {
        let text = |key: &str, value: &toml::Value| {
            let value = value.as_str().map(str::to_owned);
            value.ok_or_else(|| stanza.fault(key, "must be the name of a column"))
        };
        let columns = match stanza.table.get("params") {
            None => Vec::new(),
            Some(toml::Value::Table(table)) if order == Order::Positional => (1..=table.len())
                .map(|position| {
                    let name = position.to_string();
                    let column = table.get(&name).ok_or_else(|| {
                        stanza.fault(
                            "params",
                            "this provider fills its template by position, and a table has no order\n\
                             hint: write the columns as a list, in the order of the template's parameters: \
                             `params = [\"COLUMN\", \"COLUMN\"]`",
                        )
                    })?;
                    let column = text(&format!("params.{name}"), column)?;
                    Ok((name, column))
                })
                .collect::<Result<_, _>>()?,
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
            order,
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

    /// What the recipient will see, where the operator gave the template's text. A placeholder that no parameter
    /// fills stays as it is.
    pub(super) fn preview(&self, message: &Message) -> Option<Result<String, Outcome>> {
        let text = self.text.as_deref()?;
        Some(
            self.fill(message)
                .map(|filled| self.substitute(text, &filled)),
        )
    }

    /// Replaces the placeholders in one pass: a value that looks like a placeholder is not replaced again.
    fn substitute(&self, text: &str, filled: &[(&str, String)]) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut position = 0;
        while let Some((before, name, after)) = placeholder(rest) {
            out.push_str(before);
            let named = filled.iter().find(|(known, _)| *known == name);
            // Names like `${NUM_6}` give the type: the first one takes the first value.
            let is_numbered = name.bytes().all(|byte| byte.is_ascii_digit());
            let placed = || match self.order {
                Order::Positional if !is_numbered => filled.get(position),
                _ => None,
            };
            match named.or_else(placed) {
                Some((_, value)) => out.push_str(value),
                None => out.push_str(&rest[before.len()..rest.len() - after.len()]),
            }
            position += 1;
            rest = after;
        }
        out + rest
    }
}

/// The text before the first `${name}`, `{{name}}` or `{name}`, its name, and the text behind it.
fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let open = from + text[from..].find('{')?;
        let (inner, close) = match text[open..].strip_prefix("{{") {
            Some(inner) => (inner, "}}"),
            None => (&text[open + 1..], "}"),
        };
        let name = inner.split_once(close).map(|(name, _)| name);
        match name.filter(|name| !name.is_empty() && !name.contains(['{', '}', '\n'])) {
            Some(name) => {
                let before = &text[..open];
                let before = before.strip_suffix('$').unwrap_or(before);
                return Some((before, name.trim(), &inner[name.len() + close.len()..]));
            }
            None => from = open + 1,
        }
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
    Outcome::Rejected(Failure::new(Class::Content, reason))
}

#[cfg(test)]
mod tests {
    use super::super::testing::message;
    use super::*;

    fn read(source: &str) -> Result<Parameters, String> {
        read_in(source, Order::Named)
    }

    fn read_in(source: &str, order: Order) -> Result<Parameters, String> {
        let table: toml::Table = source.parse().expect("toml");
        let stanza = Stanza {
            name: "cellar",
            table: &table,
        };
        Parameters::read(&stanza, order).map_err(|error| error.to_string())
    }

    fn fault(source: &str) -> String {
        match read(source).expect(source).fill(&message()) {
            Err(Outcome::Rejected(failure)) => {
                assert_eq!(failure.class, Class::Content);
                failure.reason
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
        let Err(Outcome::Rejected(failure)) = plain.fill(&message) else {
            panic!("nothing fills it");
        };
        assert!(failure.reason.ends_with("has nothing in column `order`"));
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
    fn positional_parameters_reject_a_table_with_names() {
        for source in [
            "params = { name = 'name', code = 'order' }",
            "params = { 1 = 'name', 3 = 'order' }",
            "params = { 0 = 'name', 1 = 'order' }",
            "params = { 01 = 'name' }",
        ] {
            let error = read_in(source, Order::Positional).expect_err(source);
            assert!(error.contains("`params`"), "{error}");
            assert!(
                error.contains(r#"`params = ["COLUMN", "COLUMN"]`"#),
                "{error}"
            );
            assert!(read(source).is_ok(), "{source}");
        }
    }

    #[test]
    fn positional_parameters_sort_a_numbered_table_by_number() {
        let table: Vec<String> = (1..=12).map(|at| format!("{at} = 'c{at}'")).collect();
        let source = format!("params = {{ {} }}", table.join(", "));
        let parameters = read_in(&source, Order::Positional).expect("positions");
        let expected: Vec<String> = (1..=12).map(|at| format!("c{at}")).collect();
        assert_eq!(parameters.columns(), expected);
    }

    #[test]
    fn preview_of_positional_parameters_shows_what_is_sent() {
        let columns = "params = ['order', 'name']";
        for text in ["{1} {2}", "${1} ${2}", "${NUM_6} ${TXT_20}"] {
            let source = format!("{columns}\ntemplate_text = '{text}'");
            let parameters = read_in(&source, Order::Positional).expect("read");
            let sent = parameters.values(&message()).expect("values").join(" ");
            assert_eq!(parameters.preview(&message()), Some(Ok(sent)), "{text}");
        }
        let source = format!("{columns}\ntemplate_text = '{{1}} {{3}} {{x'");
        let short = read_in(&source, Order::Positional).expect("read");
        assert_eq!(
            short.preview(&message()),
            Some(Ok("4711 {3} {x".to_owned()))
        );
    }

    #[test]
    fn preview_keeps_a_value_that_looks_like_a_placeholder() {
        let source = "params = { a = 'order', b = 'name' }\ntemplate_text = '${a}/${b}'";
        let mut message = message();
        message.params["order"] = "${b}".into();
        message.params["name"] = "${a}".into();
        let preview = read(source).expect("read").preview(&message);
        assert_eq!(preview, Some(Ok("${b}/${a}".to_owned())));
    }

    #[test]
    fn parameters_are_named_by_texts() {
        for source in ["params = 7", "params = [7]", "params = { a = 7 }"] {
            assert!(read(source).expect_err(source).contains("`params"));
        }
    }
}
