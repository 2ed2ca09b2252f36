//! Which column is what: the phone, the content, those that smsq itself wrote, and the names by which
//! a text may call the others.

use std::collections::{BTreeMap, HashSet};

use super::error::ImportError;
use super::words;
use crate::text::printable_line;
use crate::text::template::Template;
use crate::text::{closest, listed};
use crate::window::TIMEZONE;

/// Columns of this prefix were written by smsq.
const OWN_PREFIX: &str = "smsq_";
const OWN_ID: &str = "smsq_id";

/// The columns of a file.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub(super) names: Vec<String>,
    /// Where the phone is: the first of these with a valid one; never empty.
    pub(super) phones: Vec<usize>,
    /// The column `content`, or the one that was named as such.
    pub(super) content: Option<usize>,
    /// `smsq_id`, the dead letter that a row of a failures file stands for.
    pub(super) id: Option<usize>,
    /// Names from `--column NAME=COLUMN` that are neither `phone` nor `content`.
    aliases: BTreeMap<String, usize>,
}

impl Columns {
    /// Understands a header. `asked` is what the operator said: `phone=手机号`, or `phone=mobile,home` where
    /// the first valid one counts. `by_content` is the phone where the names are made up.
    pub(super) fn find(
        file: &str,
        header: &[&str],
        asked: &[(String, String)],
        by_content: Option<usize>,
    ) -> Result<Self, ImportError> {
        let names: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        let mut seen = HashSet::new();
        if let Some(twice) = names
            .iter()
            .find(|name| !name.is_empty() && !seen.insert(name.as_str()))
        {
            return Err(ImportError::ColumnTwice {
                file: file.to_owned(),
                column: printable_line(twice).into_owned(),
            });
        }
        let mut aliases = BTreeMap::new();
        let mut phones = Vec::new();
        let mut roles = BTreeMap::new();
        for (role, column) in asked {
            if let Some(first) = roles.insert(role, column) {
                return Err(ImportError::RoleTwice {
                    name: role.clone(),
                    first: first.clone(),
                    second: column.clone(),
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
        let id = names.iter().position(|name| name == OWN_ID);
        phones.extend(aliases.remove("phone"));
        if phones.is_empty() {
            phones.push(match by_content {
                Some(column) => column,
                None => phone_among(file, &names, id.is_some())?,
            });
        }
        let content = aliases.remove("content").or_else(|| {
            names
                .iter()
                .position(|name| name.eq_ignore_ascii_case("content"))
        });
        Ok(Self {
            content: content.filter(|content| !phones.contains(content)),
            names,
            phones,
            id,
            aliases,
        })
    }

    /// The columns that travel with the message: not the phone, unless there are several to choose from,
    /// not the content, not smsq's own.
    pub(super) fn travelling(&self) -> Vec<usize> {
        (0..self.names.len())
            .filter(|&column| self.phones != [column] && Some(column) != self.content)
            .filter(|&column| !self.names[column].is_empty())
            .filter(|&column| !is_own(&self.names[column]))
            .collect()
    }

    /// The names that `--column` gave to columns, but for `phone` and `content`.
    pub(super) fn aliases(&self) -> impl Iterator<Item = (&str, usize)> {
        self.aliases
            .iter()
            .map(|(name, column)| (name.as_str(), *column))
    }

    /// The column of this exact name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|column| column == name)
    }

    /// The column of this exact name, or the one that `--column` calls so; `phone` is always the phone.
    pub(super) fn called(&self, name: &str) -> Option<usize> {
        let alias = || self.aliases.get(name).copied();
        let phone = || match self.phones[..] {
            [only] if name == "phone" => Some(only),
            _ => None,
        };
        let column = self.position(name).filter(|_| !is_own(name));
        column.or_else(alias).or_else(phone)
    }

    /// The column with the recipients' time zones: the one that `--column` calls so, or that is named so.
    pub(super) fn timezone(&self, file: &str) -> Result<usize, ImportError> {
        let alias = self.aliases.get(TIMEZONE).copied();
        let column = alias.or_else(|| self.position(TIMEZONE));
        column.ok_or_else(|| ImportError::NoColumn {
            file: file.to_owned(),
            column: TIMEZONE.to_owned(),
            flag: "--timezone column".to_owned(),
            closest: closest(TIMEZONE, self.names.iter().map(String::as_str)),
        })
    }

    /// A column for each placeholder of a text, by its name or by its name made an identifier.
    pub(super) fn of_placeholders(
        &self,
        file: &str,
        text: &str,
        template: &Template,
    ) -> Result<BTreeMap<String, usize>, ImportError> {
        let wanted = template.placeholders().iter();
        wanted
            .map(|placeholder| {
                Ok((
                    placeholder.clone(),
                    self.of_placeholder(file, text, placeholder)?,
                ))
            })
            .collect()
    }

    fn of_placeholder(
        &self,
        file: &str,
        text: &str,
        placeholder: &str,
    ) -> Result<usize, ImportError> {
        let usable = || {
            self.names
                .iter()
                .filter(|name| !name.is_empty() && !is_own(name))
        };
        if let Some(&column) = self.aliases.get(placeholder) {
            return Ok(column);
        }
        if let Some(column) = self.position(placeholder).filter(|_| !is_own(placeholder)) {
            return Ok(column);
        }
        let alike: Vec<&String> = usable()
            .filter(|name| identifier(name) == placeholder)
            .collect();
        match alike[..] {
            [name] => Ok(self.position(name).unwrap_or(self.phones[0])),
            [] => Err(ImportError::NoPlaceholder {
                placeholder: placeholder.to_owned(),
                text: text.to_owned(),
                file: file.to_owned(),
                closest: closest(placeholder, usable().map(String::as_str))
                    .map(|name| identifier(&name)),
                columns: listed(usable().map(String::as_str)),
            }),
            _ => Err(ImportError::TwoPlaceholders {
                placeholder: placeholder.to_owned(),
                text: text.to_owned(),
                file: file.to_owned(),
                columns: listed(alike.into_iter().map(String::as_str)),
            }),
        }
    }
}

/// The name by which a text can call a column: `First name` is `First_name`.
pub(super) fn identifier(name: &str) -> String {
    let mut identifier: String = name
        .chars()
        .map(|character| {
            if character.is_alphanumeric() {
                character
            } else {
                '_'
            }
        })
        .collect();
    if identifier.starts_with(|first: char| first.is_numeric()) {
        identifier.insert(0, '_');
    }
    identifier
}

fn named(file: &str, names: &[String], role: &str, column: &str) -> Result<usize, ImportError> {
    if is_own(column) {
        return Err(ImportError::OwnColumn {
            flag: format!("--column {role}={column}"),
        });
    }
    names
        .iter()
        .position(|name| name == column.trim())
        .ok_or_else(|| ImportError::NoColumn {
            file: file.to_owned(),
            column: column.to_owned(),
            flag: format!("--column {role}={column}"),
            closest: closest(column, names.iter().map(String::as_str)),
        })
}

fn phone_among(file: &str, names: &[String], is_own_report: bool) -> Result<usize, ImportError> {
    if is_own_report && let Some(phone) = names.iter().position(|name| name == "phone") {
        return Ok(phone);
    }
    let called = |is_phone: fn(&str) -> bool| -> Vec<usize> {
        (0..names.len())
            .filter(|&column| is_phone(&names[column]))
            .collect()
    };
    let mut candidates = called(words::is_phone);
    if candidates.is_empty() {
        candidates = called(words::may_be_phone);
    }
    match candidates[..] {
        [phone] => Ok(phone),
        [] if names.iter().any(|name| looks_like_a_value(name)) => {
            let first = names.join(",");
            let first: String = printable_line(&first).chars().take(8).collect();
            Err(ImportError::NoHeader {
                file: file.to_owned(),
                first: format!("{first}…"),
            })
        }
        [] => Err(ImportError::NoPhone {
            file: file.to_owned(),
            columns: listed(
                names
                    .iter()
                    .map(String::as_str)
                    .filter(|name| !name.is_empty()),
            ),
            likely: None,
        }),
        [first, ..] => Err(ImportError::TwoPhones {
            file: file.to_owned(),
            candidates: listed(candidates.iter().map(|&column| names[column].as_str())),
            first: printable_line(&names[first]).into_owned(),
        }),
    }
}

/// Whether smsq wrote the column: its values are never part of a message.
pub(super) fn is_own(name: &str) -> bool {
    name.trim().starts_with(OWN_PREFIX)
}

/// A name of at least seven digits is somebody's phone: the file has no header.
pub(super) fn looks_like_a_value(name: &str) -> bool {
    name.chars().filter(char::is_ascii_digit).count() >= 7 && !name.chars().any(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(header: &[&str], asked: &[(&str, &str)]) -> Result<Columns, ImportError> {
        let asked: Vec<(String, String)> = asked
            .iter()
            .map(|(role, column)| ((*role).to_owned(), (*column).to_owned()))
            .collect();
        Columns::find("list.csv", header, &asked, None)
    }

    fn message(result: Result<Columns, ImportError>) -> (String, String) {
        let error = result.expect_err("a fault of the header");
        (error.to_string(), error.hint().unwrap_or_default())
    }

    #[test]
    fn the_phone_is_found_by_its_name_in_many_languages() {
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
    fn a_header_that_does_not_say_which_is_the_phone_is_a_fault() {
        assert_eq!(
            message(find(&["name", "city"], &[])),
            (
                "`list.csv` has no phone column, only `name`, `city`".into(),
                "say which one it is: `--column phone=COLUMN`".into()
            )
        );
        assert_eq!(
            message(find(&["mobile", "tel"], &[])),
            (
                "`list.csv` has more than one column that may hold the phone: `mobile`, `tel`"
                    .into(),
                "say which one it is: `--column phone=mobile`".into()
            )
        );
        assert_eq!(
            message(find(&["a", "a"], &[])).0,
            "`list.csv` has column `a` twice"
        );
        assert_eq!(
            message(find(&["13800138000", "Ann"], &[])).0,
            "`list.csv` has no header: its first line is `13800138…`"
        );
        assert_eq!(
            message(find(&["who", "number to call"], &[("phone", "number to cal")])),
            ("`list.csv` has no column `number to cal`, which `--column phone=number to cal` names".into(), "did you mean `number to call`?".into())
        );
        assert_eq!(
            find(&["mobile", "tel"], &[("phone", "tel")])
                .expect("named")
                .phones,
            [1]
        );
    }

    #[test]
    fn the_columns_of_a_report_are_known() {
        let header = ["phone", "content", "mobile", "", "smsq_id", "smsq_state"];
        let columns = find(&header, &[]).expect("a failures file");
        assert_eq!(
            (columns.phones[0], columns.content, columns.id),
            (0, Some(1), Some(4))
        );
        assert_eq!(columns.travelling(), [2]);
    }

    #[test]
    fn placeholders_find_their_columns_or_the_closest_name() {
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
        let error = of("{{ firstname }}").expect_err("no column");
        assert_eq!(
            error.to_string(),
            "`firstname` in `t.txt` is no column of `list.csv`"
        );
        assert_eq!(error.hint().as_deref(), Some("did you mean `First_name`?"));
        assert!(matches!(
            of("{{ a_b }}"),
            Err(ImportError::TwoPlaceholders { .. })
        ));
    }
}
