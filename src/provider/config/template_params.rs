//! Parameters of vendor templates. Some vendors send only texts that they approved, filled with the columns of a
//! message; missing columns and invalid values are found before anything is sent.

use serde::Deserialize;
use smsq_message::sms::Outcome;
use toml::Value;

use super::section::{ProviderError, Section};
use crate::{Message, rejected};

/// How a vendor assigns values to the parameters of its template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// By the parameter's name.
    #[default]
    Named,
    /// By position: the request carries a list of values without names.
    Positional,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct TemplateSettings {
    /// The vendor's id of the template.
    pub(crate) template: Option<String>,
    params: Option<Value>,
    /// The most characters of one value.
    param_length: Option<usize>,
    param_urls: Option<bool>,
    /// The template's text, for previews.
    template_text: Option<String>,
}

/// The vendor's template and the columns that fill its parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct TemplateParams {
    pub(crate) settings: TemplateSettings,
    /// Parameters and columns in the order in which they are sent.
    columns: Vec<(String, String)>,
    order: Order,
}

impl TemplateParams {
    /// Reads the keys of a template. A vendor that takes parameters by position needs a list, or a table with the keys
    /// 1 to n, because TOML tables have no order.
    pub(crate) fn read(section: &mut Section<'_>, order: Order) -> Result<Self, ProviderError> {
        let mut settings: TemplateSettings = section.take()?;
        let number = |index: usize| (index + 1).to_string();
        let columns: Vec<(String, Value)> = match settings.params.take() {
            None => Vec::new(),
            Some(Value::Array(columns)) => (0..).map(number).zip(columns).collect(),
            Some(Value::Table(mut table)) if order == Order::Positional => {
                let numbers = (0..table.len()).map(number);
                let columns = numbers.map(|number| table.remove_entry(&number));
                columns.collect::<Option<_>>().ok_or_else(|| {
                    section.invalid(
                        "params",
                        "this provider fills its template by position, and a table has no order\n\
                         hint: write the columns as a list, in the order of the template's parameters: \
                         `params = [\"COLUMN\", \"COLUMN\"]`",
                    )
                })?
            }
            Some(Value::Table(table)) => table.into_iter().collect(),
            Some(_) => {
                return Err(section.invalid(
                    "params",
                    "must be a table like `{ name = \"column\" }` or a list like `[\"column\"]`",
                ));
            }
        };
        let column = |(name, column): (String, Value)| match column {
            Value::String(column) => Ok((name, column)),
            _ => Err(section.invalid(&format!("params.{name}"), "must be the name of a column")),
        };
        Ok(Self {
            settings,
            columns: columns.into_iter().map(column).collect::<Result<_, _>>()?,
            order,
        })
    }

    /// The vendor's id of the template; empty where it is not set.
    pub(crate) fn id(&self) -> &str {
        self.settings.template.as_deref().unwrap_or_default()
    }

    pub(crate) fn columns(&self) -> Vec<&str> {
        let columns = self.columns.iter();
        columns.map(|(_, column)| column.as_str()).collect()
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.settings.template_text.as_deref()
    }

    /// The parameters and values of one message, in the template's order.
    pub(crate) fn fill(&self, message: &Message) -> Result<Vec<(&str, String)>, Outcome> {
        let values = self.columns.iter().map(|(name, column)| {
            let value = self.value(message, column).map_err(|problem| {
                rejected(format!(
                    "the template needs parameter `{name}`, and the message {problem}"
                ))
            })?;
            Ok((name.as_str(), value))
        });
        values.collect()
    }

    pub(crate) fn values(&self, message: &Message) -> Result<Vec<String>, Outcome> {
        let filled = self.fill(message)?.into_iter();
        Ok(filled.map(|(_, value)| value).collect())
    }

    /// The parameters and values of one message as a JSON object.
    pub(crate) fn json(&self, message: &Message) -> Result<String, Outcome> {
        let filled = self.fill(message)?.into_iter();
        let pairs = filled.map(|(name, value)| (name.to_owned(), value.into()));
        Ok(serde_json::Value::Object(pairs.collect()).to_string())
    }

    /// The value of an imported column; `content` is also the text of the message.
    fn value(&self, message: &Message, column: &str) -> Result<String, String> {
        let value = match message.params.get(column) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(serde_json::Value::Null) => String::new(),
            Some(other) => other.to_string(),
            None if column == "content" => message.content.clone(),
            None => return Err(format!("lacks column `{column}`")),
        };
        if value.trim().is_empty() {
            return Err(format!("has nothing in column `{column}`"));
        }
        let length = value.chars().count();
        if let Some(max) = self.settings.param_length.filter(|max| length > *max) {
            return Err(format!("has {length} characters for it, where {max} are allowed"));
        }
        let lower = value.to_ascii_lowercase();
        if self.settings.param_urls == Some(false)
            && (lower.contains("://") || lower.contains("www."))
        {
            return Err("has a web address for it, which the vendor forbids".to_owned());
        }
        Ok(value)
    }

    /// The template's text with the values of one message. A placeholder without a parameter is left unchanged.
    pub(crate) fn preview(&self, message: &Message) -> Option<String> {
        let text = self.text()?;
        let filled = self.fill(message).ok()?;
        Some(self.substitute(text, &filled))
    }

    /// Replaces the placeholders in one pass: a value that looks like a placeholder is not replaced again.
    fn substitute(&self, text: &str, filled: &[(&str, String)]) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut position = 0;
        while let Some((before, name, after)) = placeholder(rest) {
            out.push_str(before);
            let named = filled.iter().find(|(known, _)| *known == name);
            // Names like `${NUM_6}` are types: the first placeholder gets the first value.
            let is_numbered = name.bytes().all(|byte| byte.is_ascii_digit());
            let at_position = || match self.order {
                Order::Positional if !is_numbered => filled.get(position),
                _ => None,
            };
            match named.or_else(at_position) {
                Some((_, value)) => out.push_str(value),
                None => out.push_str(&rest[before.len()..rest.len() - after.len()]),
            }
            position += 1;
            rest = after;
        }
        out + rest
    }
}

/// The text before the first `${name}`, `{{name}}` or `{name}`, its name, and the text after it.
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

#[cfg(test)]
mod tests {
    use smsq_message::sms::Class;

    use super::*;
    use crate::testing::message;

    fn read(source: &str) -> Result<TemplateParams, String> {
        read_in(source, Order::Named)
    }

    fn read_in(source: &str, order: Order) -> Result<TemplateParams, String> {
        let table = source.parse().expect("toml");
        let secret_keys = std::cell::RefCell::default();
        let mut section = Section::new("cellar", "tencent", table, &|_| None, &secret_keys);
        TemplateParams::read(&mut section, order).map_err(|error| error.to_string())
    }

    fn rejection(source: &str) -> String {
        match read(source).expect(source).fill(&message()) {
            Err(Outcome::Rejected(failure)) => {
                assert_eq!(failure.class, Class::Content);
                failure.reason
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn columns_fill_parameters_by_name_or_position() {
        let named = read("params = { code = 'order' }").expect("named");
        assert_eq!(named.fill(&message()), Ok(vec![("code", "4711".to_owned())]));
        let placed = read("params = ['order', 'name']").expect("placed");
        let values = ["4711".to_owned(), "Anna & \"Bob\"".to_owned()];
        assert_eq!(placed.values(&message()), Ok(values.to_vec()));
    }

    #[test]
    fn invalid_values_are_rejected() {
        assert!(rejection("params = { code = 'missing' }").contains("lacks column `missing`"));
        assert!(rejection("params = ['order']\nparam_length = 3").contains("4 characters"));
        let mut message = message();
        message.params["order"] = "see HTTPS://x.example".into();
        let strict = read("params = ['order']\nparam_urls = false").expect("strict");
        assert!(matches!(strict.fill(&message), Err(Outcome::Rejected(_))));
        message.params["order"] = " ".into();
        let plain = read("params = ['order']").expect("plain");
        let Err(Outcome::Rejected(failure)) = plain.fill(&message) else {
            panic!("not rejected");
        };
        assert!(failure.reason.ends_with("has nothing in column `order`"));
    }

    #[test]
    fn preview_fills_the_template_text() {
        for source in [
            "params = { code = 'order' }\ntemplate_text = 'order ${code}!'",
            "params = ['order']\ntemplate_text = 'order {1}!'",
            "params = { 1 = 'order' }\ntemplate_text = 'order {{1}}!'",
        ] {
            let preview = read(source).expect(source).preview(&message());
            assert_eq!(preview, Some("order 4711!".to_owned()), "{source}");
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
            assert!(error.contains(r#"`params = ["COLUMN", "COLUMN"]`"#), "{error}");
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
    fn positional_preview_shows_what_is_sent() {
        let columns = "params = ['order', 'name']";
        for text in ["{1} {2}", "${1} ${2}", "${NUM_6} ${TXT_20}"] {
            let source = format!("{columns}\ntemplate_text = '{text}'");
            let parameters = read_in(&source, Order::Positional).expect("read");
            let sent = parameters.values(&message()).expect("values").join(" ");
            assert_eq!(parameters.preview(&message()), Some(sent), "{text}");
        }
        let source = format!("{columns}\ntemplate_text = '{{1}} {{3}} {{x'");
        let short = read_in(&source, Order::Positional).expect("read");
        assert_eq!(short.preview(&message()), Some("4711 {3} {x".to_owned()));
    }

    #[test]
    fn preview_keeps_a_value_that_looks_like_a_placeholder() {
        let source = "params = { a = 'order', b = 'name' }\ntemplate_text = '${a}/${b}'";
        let mut message = message();
        message.params["order"] = "${b}".into();
        message.params["name"] = "${a}".into();
        let preview = read(source).expect("read").preview(&message);
        assert_eq!(preview, Some("${b}/${a}".to_owned()));
    }

    #[test]
    fn columns_must_be_texts() {
        for source in ["params = 7", "params = [7]", "params = { a = 7 }"] {
            assert!(read(source).expect_err(source).contains("`params"));
        }
    }
}
