//! Which column is the phone, the text, the id of a failed message, and by which names a text can refer to
//! the others.

use std::collections::{BTreeMap, HashSet};

use super::error::ImportError;
use super::phone_headers;
use crate::text::template::Template;
use crate::text::{closest, did_you_mean, listed, printable_line};
use crate::window::TIMEZONE;

/// The prefix of columns that smsq writes.
const OWN_PREFIX: &str = "smsq_";
const ID: &str = "smsq_id";

/// The columns of a file.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub(super) names: Vec<String>,
    /// The first of these with a valid phone counts; never empty.
    pub(super) phones: Vec<usize>,
    pub(super) content: Option<usize>,
    /// The column of a failures file with the id of the failed message.
    pub(super) id: Option<usize>,
    /// Names from `--column NAME=COLUMN` other than `phone` and `content`.
    aliases: BTreeMap<String, usize>,
}

impl Columns {
    /// Finds the columns of a header. `roles` are the flags `--column ROLE=COLUMN`; of `phone=mobile,home`
    /// the first valid one counts. `phone` is the phone column of a file without a header.
    pub(super) fn find(
        file: &str,
        header: &[&str],
        roles: &[(String, String)],
        phone: Option<usize>,
    ) -> Result<Self, ImportError> {
        let names: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        let mut seen = HashSet::new();
        let mut duplicates = names
            .iter()
            .filter(|name| !name.is_empty() && !seen.insert(*name));
        if let Some(name) = duplicates.next() {
            return Err(ImportError::hinted(
                format!("duplicate column `{}` in `{file}`", printable_line(name)),
                "give each column a different name",
            ));
        }
        let mut aliases = BTreeMap::new();
        let mut phones = Vec::new();
        let mut given = BTreeMap::new();
        for (role, column) in roles {
            if let Some(first) = given.insert(role, column) {
                let message = format!("`--column {role}=…` is given twice");
                return Err(match role.as_str() {
                    "phone" => ImportError::hinted(
                        message,
                        format!("`--column phone={first},{column}` uses the first valid one"),
                    ),
                    _ => ImportError::new(message),
                });
            }
            if role == "phone" && !names.iter().any(|name| name == column.trim()) {
                for one in column.split(',') {
                    phones.push(named(file, &names, role, one)?);
                }
            } else {
                aliases.insert(role.clone(), named(file, &names, role, column)?);
            }
        }
        let id = names.iter().position(|name| name == ID);
        phones.extend(aliases.remove("phone"));
        if phones.is_empty() {
            phones.push(match phone {
                Some(column) => column,
                None => find_phone(file, &names, id.is_some())?,
            });
        }
        let is_content = |name: &String| name.eq_ignore_ascii_case("content");
        let content = aliases.remove("content");
        let content = content.or_else(|| names.iter().position(is_content));
        Ok(Self {
            content: content.filter(|content| !phones.contains(content)),
            names,
            phones,
            id,
            aliases,
        })
    }

    /// Returns the columns whose values are stored with the message: not the phone, unless there are
    /// several, not the content, not those that smsq wrote.
    pub(super) fn stored(&self) -> Vec<usize> {
        (0..self.names.len())
            .filter(|&column| self.phones != [column] && Some(column) != self.content)
            .filter(|&column| !self.names[column].is_empty())
            .filter(|&column| !is_own(&self.names[column]))
            .collect()
    }

    pub(super) fn aliases(&self) -> impl Iterator<Item = (&str, usize)> {
        let aliases = self.aliases.iter();
        aliases.map(|(name, column)| (name.as_str(), *column))
    }

    /// Returns the column with exactly this name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|column| column == name)
    }

    /// Returns the column with this name or alias; `phone` is always the phone.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        let alias = || self.aliases.get(name).copied();
        let phone = || match self.phones[..] {
            [only] if name == "phone" => Some(only),
            _ => None,
        };
        let column = self.position(name).filter(|_| !is_own(name));
        column.or_else(alias).or_else(phone)
    }

    /// Like [`named`](Self::named); the error names the `flag` that asked for the column.
    pub(super) fn required(
        &self,
        file: &str,
        name: &str,
        flag: &str,
    ) -> Result<usize, ImportError> {
        let column = self.named(name);
        column.ok_or_else(|| missing_column(file, &self.names, name, flag))
    }

    /// Returns the column with the time zones of the recipients.
    pub(super) fn timezone(&self, file: &str) -> Result<usize, ImportError> {
        self.required(file, TIMEZONE, "--timezone column")
    }

    /// Returns a column for each placeholder of a text, by its name or by its name as an identifier.
    pub(super) fn of_placeholders(
        &self,
        file: &str,
        text: &str,
        template: &Template,
    ) -> Result<BTreeMap<String, usize>, ImportError> {
        let placeholders = template.placeholders().iter();
        placeholders
            .map(|name| Ok((name.clone(), self.of_placeholder(file, text, name)?)))
            .collect()
    }

    fn of_placeholder(&self, file: &str, text: &str, name: &str) -> Result<usize, ImportError> {
        if let Some(&column) = self.aliases.get(name) {
            return Ok(column);
        }
        if let Some(column) = self.position(name).filter(|_| !is_own(name)) {
            return Ok(column);
        }
        let is_usable = |column: &&String| !column.is_empty() && !is_own(column);
        let usable = || self.names.iter().filter(is_usable).map(String::as_str);
        let alike: Vec<&str> = usable()
            .filter(|column| identifier(column) == name)
            .collect();
        match alike[..] {
            [column] => Ok(self.position(column).unwrap_or(self.phones[0])),
            [] => Err(ImportError::hinted(
                format!("unknown column `{name}` in `{text}`: `{file}` does not have it"),
                match closest(name, usable()) {
                    Some(column) => format!("did you mean `{}`?", identifier(&column)),
                    None => format!("its columns are {}", listed(usable())),
                },
            )),
            _ => Err(ImportError::new(format!(
                "`{name}` in `{text}` can be column {} of `{file}`",
                listed(alike)
            ))),
        }
    }
}

/// Returns the name by which a text can refer to a column: `First_name` for `First name`.
pub(super) fn identifier(name: &str) -> String {
    let allowed = |c: char| if c.is_alphanumeric() { c } else { '_' };
    let mut identifier: String = name.chars().map(allowed).collect();
    if identifier.starts_with(|first: char| first.is_numeric()) {
        identifier.insert(0, '_');
    }
    identifier
}

fn named(file: &str, names: &[String], role: &str, column: &str) -> Result<usize, ImportError> {
    let flag = format!("--column {role}={column}");
    if is_own(column) {
        return Err(ImportError::hinted(
            format!("`{flag}` names a column that smsq wrote"),
            "columns `smsq_…` are never part of a message: name another one",
        ));
    }
    let position = names.iter().position(|name| name == column.trim());
    position.ok_or_else(|| missing_column(file, names, column, &flag))
}

fn missing_column(file: &str, names: &[String], column: &str, flag: &str) -> ImportError {
    ImportError::Invalid {
        message: format!("missing column `{column}` in `{file}`, which `{flag}` names"),
        hint: did_you_mean(column, names.iter().map(String::as_str)),
    }
}

fn find_phone(file: &str, names: &[String], is_failures_file: bool) -> Result<usize, ImportError> {
    if is_failures_file && let Some(phone) = names.iter().position(|name| name == "phone") {
        return Ok(phone);
    }
    let matching = |is_phone: fn(&str) -> bool| -> Vec<usize> {
        let columns = 0..names.len();
        columns.filter(|&column| is_phone(&names[column])).collect()
    };
    let mut candidates = matching(phone_headers::is_phone);
    if candidates.is_empty() {
        candidates = matching(phone_headers::may_be_phone);
    }
    match candidates[..] {
        [phone] => Ok(phone),
        [] if names.iter().any(|name| looks_like_a_value(name)) => {
            Err(missing_header(file, &names.join(",")))
        }
        [] => {
            let header = names.iter().filter(|name| !name.is_empty());
            Err(ImportError::NoPhone {
                file: file.to_owned(),
                columns: listed(header.map(String::as_str)),
                likely: None,
            })
        }
        _ => {
            let candidates = candidates.iter().map(|&column| names[column].as_str());
            Err(several_phones(file, candidates))
        }
    }
}

/// The first line may have personal data, so only its start is shown.
pub(super) fn missing_header(file: &str, first_line: &str) -> ImportError {
    let start: String = printable_line(first_line).chars().take(8).collect();
    ImportError::NoHeader {
        file: file.to_owned(),
        first: format!("{start}…"),
    }
}

pub(super) fn several_phones<'n>(
    file: &str,
    candidates: impl Iterator<Item = &'n str> + Clone,
) -> ImportError {
    let first = candidates.clone().next().unwrap_or_default();
    ImportError::hinted(
        format!("several phone columns in `{file}`: {}", listed(candidates)),
        format!("name one: `--column phone={}`", printable_line(first)),
    )
}

/// Whether smsq wrote the column: its values are never part of a message.
pub(super) fn is_own(name: &str) -> bool {
    name.trim().starts_with(OWN_PREFIX)
}

/// A column name with at least seven digits and no letters is a phone, so the file has no header.
pub(super) fn looks_like_a_value(name: &str) -> bool {
    let digits = name.chars().filter(char::is_ascii_digit).count();
    digits >= 7 && !name.chars().any(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(header: &[&str], roles: &[(&str, &str)]) -> Result<Columns, ImportError> {
        let roles: Vec<(String, String)> = roles
            .iter()
            .map(|(role, column)| ((*role).to_owned(), (*column).to_owned()))
            .collect();
        Columns::find("list.csv", header, &roles, None)
    }

    fn message(result: Result<Columns, ImportError>) -> (String, String) {
        let error = result.expect_err("an error");
        (error.to_string(), error.hint().unwrap_or_default())
    }

    #[test]
    fn phone_is_found_by_name_in_many_languages() {
        for name in [
            "phone",
            "Mobile Phone",
            "MSISDN",
            "手机号",
            " 手機號碼 ",
            "電話番号",
            "Téléphone",
            "Телефон",
            "Handynummer",
            "e-mail phone_number".split(' ').next_back().unwrap_or(""),
        ] {
            let columns = find(&["name", name, "city"], &[])
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(columns.phones, [1], "{name}");
        }
        assert_eq!(
            find(&["name", "Number"], &[])
                .expect("a weak name alone")
                .phones,
            [1]
        );
        assert_eq!(
            find(&["number", "phone"], &[])
                .expect("a strong name wins")
                .phones,
            [1]
        );
    }

    #[test]
    fn header_without_one_phone_column_is_an_error() {
        assert_eq!(
            message(find(&["name", "city"], &[])),
            (
                "missing phone column in `list.csv`: it has only `name`, `city`".into(),
                "name it: `--column phone=COLUMN`".into()
            )
        );
        assert_eq!(
            message(find(&["mobile", "tel"], &[])),
            (
                "several phone columns in `list.csv`: `mobile`, `tel`".into(),
                "name one: `--column phone=mobile`".into()
            )
        );
        assert_eq!(
            message(find(&["a", "a"], &[])).0,
            "duplicate column `a` in `list.csv`"
        );
        assert_eq!(
            message(find(&["13800138000", "Ann"], &[])).0,
            "missing header in `list.csv`: its first line is `13800138…`"
        );
        assert_eq!(
            message(find(&["who", "number to call"], &[("phone", "number to cal")])),
            ("missing column `number to cal` in `list.csv`, which `--column phone=number to cal` names".into(), "did you mean `number to call`?".into())
        );
        assert_eq!(
            find(&["mobile", "tel"], &[("phone", "tel")])
                .expect("named")
                .phones,
            [1]
        );
    }

    #[test]
    fn columns_of_a_failures_file_are_known() {
        let header = ["phone", "content", "mobile", "", "smsq_id", "smsq_state"];
        let columns = find(&header, &[]).expect("a failures file");
        assert_eq!(
            (columns.phones[0], columns.content, columns.id),
            (0, Some(1), Some(4))
        );
        assert_eq!(columns.stored(), [2]);
    }

    #[test]
    fn placeholders_find_columns_or_the_closest_name() {
        let columns = find(
            &["phone", "First name", "2nd", "城市", "a b", "a-b"],
            &[("who", "First name")],
        )
        .expect("columns");
        let of = |text: &str| {
            let template = Template::parse("t.txt", text).expect("a text");
            columns.of_placeholders("list.csv", "t.txt", &template)
        };
        let found = of("{{ First_name }}{{ _2nd }}{{ 城市 }}{{ who }}").expect("all are columns");
        assert_eq!(found.into_values().collect::<Vec<_>>(), [1, 2, 1, 3]);
        let error = of("{{ firstname }}").expect_err("an unknown column");
        assert_eq!(
            error.to_string(),
            "unknown column `firstname` in `t.txt`: `list.csv` does not have it"
        );
        assert_eq!(error.hint().as_deref(), Some("did you mean `First_name`?"));
        assert_eq!(
            of("{{ a_b }}").expect_err("two columns").to_string(),
            "`a_b` in `t.txt` can be column `a b`, `a-b` of `list.csv`"
        );
    }
}
