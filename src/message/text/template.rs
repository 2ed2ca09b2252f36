//! Message templates with a placeholder for each column. An empty cell is undefined, so that no message is sent
//! without it: `{{ name }}` fails for such a row, `{{ name | default("friend") }}` does not.

use std::fmt;
use std::io;
use std::sync::Arc;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

pub use super::bounds::MAX_SOURCE;
use super::bounds::{self, detail, with_line};
use super::content;
use super::display::printable_line;
use super::names::Namespace;

/// The most steps of the engine for one row; a text message needs far fewer.
const FUEL: u64 = 20_000;

/// A parsed template.
pub struct Template {
    name: String,
    source: String,
    environment: Environment<'static>,
    /// In alphabetical order.
    placeholders: Vec<Arc<str>>,
}

/// Why a row has no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A placeholder without a value.
    #[error("an empty value")]
    MissingValue,
    /// Longer than the longest text of a row.
    #[error("{}", bounds::text_too_long())]
    TooLong,
    #[error("{0}")]
    Other(String),
}

impl Template {
    /// Parses `source`. `name` is the file or flag that errors mention. Line ends at the end are removed.
    pub fn parse(name: &str, source: &str) -> Result<Self, String> {
        // It may have parts of the template.
        Self::read(name, source)
            .map_err(|problem| printable_line(&format!("`{name}`: {problem}")).into_owned())
    }

    fn read(name: &str, source: &str) -> Result<Self, String> {
        if source.len() > MAX_SOURCE {
            return Err(too_long());
        }
        for (line, text) in (1..).zip(source.split('\n')) {
            if let Some(character) = content::control(text) {
                let code = u32::from(character);
                return Err(format!("line {line}: control character U+{code:04X}"));
            }
        }
        let source = source
            .strip_prefix('\u{feff}')
            .unwrap_or(source)
            .replace("\r\n", "\n")
            // As the engine does, also in a text without placeholders.
            .replace('\r', "\n")
            .trim_end_matches('\n')
            .to_owned();
        if source.trim().is_empty() {
            return Err("no text".to_owned());
        }
        let checked = bounds::check(&source)?;
        let mut environment = environment();
        environment
            .add_template_owned(name.to_owned(), checked.source)
            .map_err(|error| with_line(&error))?;
        if let Some(name) = checked.names.iter().find(|name| name.contains('.')) {
            return Err(format!("`{name}` is not a column: a column is plain text without parts"));
        }
        let parsed =
            Self { name: name.to_owned(), source, placeholders: checked.names, environment };
        parsed.probe()?;
        Ok(parsed)
    }

    /// The names of the columns that the template uses.
    pub fn placeholders(&self) -> &[Arc<str>] {
        &self.placeholders
    }

    /// Literal text that looks like a placeholder of another program for one of `columns`: `{name}`, `[name]`,
    /// `%name%`.
    pub fn literal_placeholders<'c>(&self, columns: impl Iterator<Item = &'c str>) -> Vec<String> {
        const FORMS: [(&str, &str); 6] =
            [("{", "}"), ("*|", "|*"), ("%", "%"), ("[", "]"), ("<", ">"), ("«", "»")];
        let tokens = tokenize(&self.source, false, SyntaxConfig::default());
        let literal = tokens
            .filter_map(|token| match token {
                Ok((Token::TemplateData(text), _)) => Some(text),
                _ => None,
            })
            .collect::<String>()
            .to_lowercase()
            .replace(' ', "");
        let named = columns.filter(|column| column.contains(char::is_alphabetic));
        let found = named.filter_map(|column| {
            let bare = column.to_lowercase().replace(' ', "");
            let form = FORMS
                .iter()
                .find(|(open, close)| literal.contains(&format!("{open}{bare}{close}")));
            form.map(|(open, close)| format!("{open}{column}{close}"))
        });
        found.collect()
    }

    /// The file or flag that the template comes from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source, with its placeholders.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text, if it has no placeholders and no logic.
    pub fn constant(&self) -> Option<&str> {
        (!self.source.contains(['{', '}'])).then_some(&self.source)
    }

    /// Renders the text of one row. `value` returns the row's value of a placeholder; `None` is undefined.
    pub fn render<'r>(
        &self,
        value: impl Fn(&str) -> Option<&'r str>,
    ) -> Result<String, RenderError> {
        let rendered = self.render_values(|name| value(name).map(Value::from));
        rendered.map_err(|error| match error.kind() {
            ErrorKind::WriteFailure => RenderError::TooLong,
            ErrorKind::UndefinedError => RenderError::MissingValue,
            ErrorKind::OutOfFuel => {
                RenderError::Other("the template takes too many steps".to_owned())
            }
            _ => RenderError::Other(detail(&error)),
        })
    }

    fn render_values(&self, value: impl Fn(&str) -> Option<Value>) -> Result<String, Error> {
        let names = self.placeholders.iter();
        let row: Namespace<Arc<str>> = names.map(|name| (Arc::clone(name), value(name))).collect();
        let mut text = Bounded::default();
        let template = self.environment.get_template(&self.name)?;
        template.render_captured_to(Value::from_object(row), &mut text)?;
        String::from_utf8(text.0).map_err(|_| Error::from(ErrorKind::WriteFailure))
    }

    /// Finds errors that are the same for every row: an unknown test, a loop that takes too many steps.
    fn probe(&self) -> Result<(), String> {
        match self.render_values(|_| Some(Value::from("1"))) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnknownTest
                        | ErrorKind::OutOfFuel
                        | ErrorKind::TooManyArguments
                        | ErrorKind::MissingArgument
                        | ErrorKind::WriteFailure
                ) =>
            {
                Err(with_line(&error))
            }
            _ => Ok(()),
        }
    }
}

/// A text of at most [`MAX_SOURCE`] bytes.
#[derive(Default)]
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_SOURCE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Leaves out the text, which may be personal data.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("placeholders", &self.placeholders).finish_non_exhaustive()
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    // `if name` may test for an undefined value; printing or joining one fails.
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    // Debug errors would contain the text and the values of the row.
    environment.set_debug(false);
    for global in ["range", "dict", "debug", "namespace"] {
        environment.remove_global(global);
    }
    bounds::add_filters(&mut environment);
    environment
}

pub fn too_long() -> String {
    format!("longer than {} KiB", MAX_SOURCE / 1024)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::names::tests::expression;

    fn parse(source: &str) -> Result<Template, String> {
        Template::parse("welcome.txt", source)
    }

    fn render(source: &str, row: &[(&str, &'static str)]) -> Result<String, RenderError> {
        let template = parse(source).expect("a text of the test");
        template
            .render(|name| row.iter().find(|(column, _)| *column == name).map(|(_, value)| *value))
    }

    #[test]
    fn render_fills_placeholders_without_escaping() {
        let row = [("name", "<Ann & Bob>"), ("城市", "上海")];
        assert_eq!(
            render("Hi {{ name }} of {{ 城市 }}\r\nBye\r\n\n", &row),
            Ok("Hi <Ann & Bob> of 上海\nBye".to_owned())
        );
        assert_eq!(render("plain", &[]), Ok("plain".to_owned()));
    }

    #[test]
    fn render_fails_for_empty_values() {
        for source in [
            "Hi {{ name }}",
            "Hi {{ name | upper }}",
            "Hi {{ name ~ '!' }}",
            "Hi {{ 'dear ' ~ name }}",
            "Hi {{ name | trim | title }}",
            "Hi {{ name | replace('a', 'b') }}",
            "Hi {{ [name, 'b'] | join }}",
            "Hi {{ name | join(', ') }}",
            "Hi {{ '%s' | format(name) }}",
            "Hi {% for part in name %}{{ part }}{% endfor %}",
            "Hi {% for part in name | split %}{{ part }}{% endfor %}",
        ] {
            assert_eq!(render(source, &[]), Err(RenderError::MissingValue), "{source}");
        }
    }

    #[test]
    fn part_of_an_empty_value_is_a_missing_value() {
        for source in [
            "{{ a[:2] }}",
            "{{ a [ : 2 ] }}",
            "{{ a[:2][1:] }}",
            "{{ a[:2] | default('x') }}",
            "{{ 'x[' ~ a[:2] ~ ']' }}",
            "{{ (a)[:2] }}",
            "{{ (b or a)[:2] }}",
            "{{ (a if b else a)[:2] }}",
            "{{ ('x' if b)[:2] }}",
            "{{ (a | default(b))[:2] }}",
            "{{ ('' | first)[:2] }}",
            "{{ none[:2] }}",
            "{{ 'x'[:a[:2] | length] }}",
            "{{ 'x' is startingwith a[:1] }}",
            "{{ 'x' is eq(a[:1]) }}",
            "{% if a[:1] == 'x' %}{% endif %}",
            "{% if b %}{{ b[:1] }}{% elif a[:1] %}{% endif %}",
            "{% for part in c if part == a[:1] %}{% endfor %}",
            "{{ [a[:1], 'x'] | join }}",
        ] {
            let rendered = render(source, &[("c", "x")]);
            assert_eq!(rendered, Err(RenderError::MissingValue), "{source}");
        }
    }

    #[test]
    fn parts_of_values_are_rendered() {
        let row = [("a", "tea"), ("城市", "上海市"), ("n", "2")];
        for (source, expected) in [
            ("{{ a[:2] }}{{ 城市[1:] }}", "te海市"),
            ("{{ a[:n | int] }}{{ a[-1:] }}{{ a[1:2] }}{{ a[5:] }}", "teae"),
            ("{{ a[:2][1:] }}{{ (a[1:])[:1] }}{{ (a ~ 城市)[2:4] }}", "eea上"),
            ("{{ 'x[:1]' ~ \"](\" ~ a[:1] }}", "x[:1]](t"),
            ("{{ (a | split('e'))[:1] | join }}{{ ['x', a][1:] | join }}", "ttea"),
            ("{{ 'abc'[:2] }}{{ 'a' 'bc'[1:] }}", "abbc"),
            ("{{ (b | default(a))[:2] }}{{ (b or a)[:1] }}", "tet"),
            ("{% if b %}{{ b[:2] }}{% else %}{{ a[:2] }}{% endif %}", "te"),
            ("{{ 1 if 'tea' is startingwith a[:2] else 2 }}", "1"),
            ("{% for part in a[:2] | split('e') %}{{ part[:1] }}.{% endfor %}", "t.."),
            ("{{ (a[0])[:1] }}{{ -(n[:1] | int) }}", "t-2"),
            ("\n{{\n  a[\n:2]\n}} {# a[:2] #}{% raw %}a[:2]{% endraw %}", "\nte a[:2]"),
        ] {
            assert_eq!(render(source, &row), Ok(expected.to_owned()), "{source}");
        }
        for source in ["{{ a[0][:1] }}", "{% for b in a %}{{ loop.index[:1] }}{% endfor %}"] {
            let error = parse(source).expect_err(source);
            assert!(error.contains("line 1: put `(` and `)` around"), "{error}");
        }
    }

    proptest! {
        /// What is inserted before the engine gets the text changes nothing but the error for empty values.
        #[test]
        fn guarded_parts_are_what_the_engine_makes(expression in expression()) {
            let source = format!("{{{{ {expression} }}}}");
            // Some of the language is not available.
            if let Ok(template) = parse(&source) {
                let rendered = template.render(|_| Some("tea"));
                let row = template.placeholders().iter().map(|name| (Arc::clone(name), "tea"));
                let expected = environment().render_str(&source, Value::from_pairs(row));
                if rendered != Err(RenderError::MissingValue) {
                    prop_assert_eq!(rendered.ok(), expected.ok(), "{}", source);
                }
            }
        }
    }

    #[test]
    fn default_replaces_an_empty_value() {
        assert_eq!(render("Hi {{ name | default('friend') }}", &[]), Ok("Hi friend".to_owned()));
        let condition = "Hi{% if name %} {{ name }}{% endif %}";
        assert_eq!(render(condition, &[]), Ok("Hi".to_owned()));
        assert_eq!(render(condition, &[("name", "Ann")]), Ok("Hi Ann".to_owned()));
    }

    #[test]
    fn line_ends_are_the_same_with_and_without_placeholders() {
        for (source, text) in [("a\rb\r", "a\nb"), ("a\r\nb\n\r", "a\nb")] {
            let template = parse(source).expect("a template");
            assert_eq!(template.constant(), Some(text));
            assert_eq!(template.render(|_| None).as_deref(), Ok(text));
        }
    }

    #[test]
    fn error_of_a_template_is_one_line() {
        let error = render("{{ '%\n' | format(name) }}", &[("name", "Ann")]).expect_err("a format");
        assert!(!error.to_string().contains('\n'), "{error:?}");
        let error = parse("{{ name | a.\n\tb }}").expect_err("no filter");
        assert!(!error.contains(['\n', '\t']), "{error:?}");
    }

    #[test]
    fn parse_rejects_invalid_templates() {
        for (source, expected) in [
            ("Hi {{ name", "`welcome.txt`: line 1: "),
            ("Hi\n{% if name %}", "`welcome.txt`: line 2: "),
            ("Hi {{ name | shout }}", "`welcome.txt`: line 1: unknown filter `shout`"),
            ("Hi {{ name.first }}", "`welcome.txt`: `name.first` is not a column"),
            (
                "{% include 'other' %}",
                "`welcome.txt`: line 1: `{% include %}` is not available in a template",
            ),
            ("{{ name[:0][::-1] }}", "`welcome.txt`: line 1: a part of a text cannot have a step"),
            ("  \n", "`welcome.txt`: no text"),
        ] {
            let error = parse(source).expect_err(source);
            assert!(error.starts_with(expected), "{source}: {error}");
        }
        let long = parse(&"a".repeat(70_000)).expect_err("too long");
        assert_eq!(long, "`welcome.txt`: longer than 64 KiB");
    }

    #[test]
    fn placeholders_exclude_loop_variables() {
        let template = parse("{{ a }}{% for c in d %}{{ c }}{% endfor %}{{ range }}");
        let names = template.expect("parses").placeholders().to_vec();
        assert_eq!(names, ["a", "d", "range"].map(Arc::from));
    }

    #[test]
    fn literal_placeholders_are_found() {
        let columns = ["name", "First Name", "code", "1"];
        let found = |source: &str| {
            let template = parse(source).expect("a text of the test");
            template.literal_placeholders(columns.into_iter())
        };
        assert_eq!(found("Hi {Name}, {firstname}"), ["{name}", "{First Name}"]);
        assert_eq!(found("Hi *|NAME|*, %code%"), ["*|name|*", "%code%"]);
        assert_eq!(found("Hi [name] {other} [1] 100%"), ["[name]"]);
        let own = "Hi {{name}}{% if name %}{# {name} #}[{{ name }}]{% endif %}";
        assert_eq!(found(own), Vec::<String>::new());
    }

    #[test]
    fn parse_rejects_control_characters() {
        for source in ["a\u{1b}[2J", "a\0", "{{ name }}\u{9b}"] {
            let error = parse(&format!("Hi\n{source}")).expect_err(source);
            let expected = "`welcome.txt`: line 2: control character U+";
            assert!(error.starts_with(expected), "{source:?}: {error}");
        }
        assert!(parse("a\tb\r\nc").is_ok());
    }

    #[test]
    fn render_supports_conditions_loops_and_filters() {
        let row = [("name", "ann"), ("items", "tea,cake"), ("price", "2.5")];
        for (source, expected) in [
            ("{{ name | title | default('you') }}", "Ann"),
            (
                "{% for item in items | split(',') %}{{ loop.index }}. {{ item }}; {% endfor %}",
                "1. tea; 2. cake; ",
            ),
            ("{{ items | split(',') | join(' + ') }}", "tea + cake"),
            ("{{ items | replace(',', ' and ') }}", "tea and cake"),
            ("{{ '%.2f' | format(price | float * 2) }} EUR", "5.00 EUR"),
            ("{{ 'Hi ' ~ name ~ '!' }}", "Hi ann!"),
            ("{% if name in ['ann', 'bob'] %}x{% else %}y{% endif %}", "x"),
            ("{{ name[:1] | upper }}{{ 'r' if name is defined }}", "Ar"),
            ("{% raw %}{{ name }}{% endraw %}", "{{ name }}"),
        ] {
            assert_eq!(render(source, &row), Ok(expected.to_owned()), "{source}");
        }
    }

    #[test]
    fn templates_cannot_grow_without_bounds() {
        for (source, expected) in [
            ("{% set a = b %}", "`{% set %}` is not available in a template"),
            ("{% set a %}b{% endset %}", "`{% set %}` is not available"),
            ("{%- with a = b %}{% endwith %}", "`{% with %}` is not"),
            ("{% macro a() %}{% endmacro %}", "`{% macro %}` is not"),
            ("{% filter upper %}a{% endfilter %}", "`{% filter %}` is not"),
            ("{% block a %}{% endblock %}", "`{% block %}` is not"),
            ("{% for a in b recursive %}{{ loop(a) }}{% endfor %}", "a loop needs"),
            ("{% for a in [b ~ b] %}{% endfor %}", "a loop needs a column"),
            ("{% for a in b if range(9) %}{% endfor %}", "a template cannot call"),
            ("{{ 'a' * 9 }}", "`*` needs a number on both sides"),
            ("{{ a * 9 }}", "`*` needs a number on both sides"),
            ("{{ 9 * a | int(default=a) }}", "`*` needs a number"),
            ("{{ a | list }}", "unknown filter `list`: known are abs, "),
            ("{{ {'a': a} }}", "`{…: …}` is not available"),
            (&format!("{{{{ a{} }}}}", " ~ a".repeat(65)), "more than 64 values"),
            (
                &format!("{{{{ a{} }}}}", " or a".repeat(200)),
                "more than 256 names, values and operators",
            ),
        ] {
            let error = parse(&format!("Hi\n{source}")).expect_err(source);
            let expected = format!("`welcome.txt`: line 2: {expected}");
            assert!(error.starts_with(&expected), "{source}: {error}");
        }
        let long: &'static str = "x".repeat(60_000).leak();
        for source in [
            "{{ a | replace('x', a) }}",
            "{{ a | replace('', a) }}",
            "{{ a | split('') | join(a) }}",
            "{{ (a ~ a) | split('x') }}",
        ] {
            assert_eq!(render(source, &[("a", long)]), Err(RenderError::TooLong), "{source}");
        }
        for source in ["{{ '%999999999d' | format(1) }}", "{{ '%*d' | format(9, 1) }}"] {
            let refused = render(source, &[]);
            assert!(matches!(refused, Err(RenderError::Other(_))), "{source}: {refused:?}");
        }
    }

    /// A text with `times` levels of nesting, in every way in which the language nests.
    fn nested(times: usize) -> [String; 9] {
        let around = |open: &str, inner: &str, close: &str| {
            format!("{}{inner}{}", open.repeat(times), close.repeat(times))
        };
        [
            format!("{{{{ {} }}}}", around("- ", "1", "")),
            format!("{{{{ {} }}}}", around("not ", "a", "")),
            format!("{{{{ {} }}}}", around("(", "a", ")")),
            format!("{{{{ {} }}}}", around("[", "a", "]")),
            format!("{{{{ {} }}}}", around("1 - ", "1", "")),
            format!("{{{{ {} }}}}", around("1 if a else ", "1", "")),
            format!("{{{{ {} }}}}", around("", "a", " | trim")),
            around("{% if a %}", "b", "{% endif %}"),
            format!("{{% if a %}}b{}{{% endif %}}", "{% elif a %}c".repeat(times)),
        ]
    }

    #[test]
    fn deep_nesting_is_an_error_and_fits_a_small_stack() {
        let check = || {
            for source in (1..=100).chain([100_usize.pow(2)]).flat_map(nested) {
                let parsed = parse(&source);
                if let (true, Ok(_)) = (source.len() > 9_000, &parsed) {
                    panic!("{} is accepted", &source[..40]);
                }
            }
        };
        // Half of what threads of the server have.
        let small = std::thread::Builder::new().stack_size(1 << 20);
        let checked = small.spawn(check).expect("a thread").join();
        assert!(checked.is_ok());
    }

    #[test]
    fn nested_loops_run_out_of_steps() {
        let source = "{% for a in x %}{% for b in x %}{% for c in x %}{{ a }}{% endfor %}{% endfor %}{% endfor %}";
        let long: &'static str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        assert!(matches!(render(source, &[("x", long)]), Err(RenderError::Other(_))));
    }
}
