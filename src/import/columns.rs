//! Which column is the phone, the text, the id of a failed message, and by which names a text can refer to
//! the others.

use std::collections::{BTreeMap, HashSet};

use smsq_message::phone::{Dialling, Phone, PhoneError};
use smsq_message::text::template::Template;
use smsq_message::text::{closest, did_you_mean, listed, printable_line};

use super::error::ImportError;

/// The prefix of columns that smsq writes.
const OWN_PREFIX: &str = "smsq_";
const ID: &str = "smsq_id";
/// The column of a rejects file with the text of a row that could not be split into columns.
pub(super) const TEXT_COLUMN: &str = "smsq_text";

/// The columns of a list.
#[derive(Clone, Debug)]
pub(super) struct ListColumns {
    /// What errors call the list.
    list: String,
    pub(super) names: Vec<String>,
    /// The first of these with a valid phone counts; never empty.
    pub(super) phones: Vec<usize>,
    pub(super) content: Option<usize>,
    /// The column of a failures file with the id of the failed message.
    pub(super) id: Option<usize>,
    /// Names from `--column NAME=COLUMN` other than `phone` and `content`.
    pub(super) aliases: BTreeMap<String, usize>,
}

impl ListColumns {
    /// Finds the columns of a header. `roles` are the flags `--column ROLE=COLUMN`; of `phone=mobile,home`
    /// the first valid one counts.
    pub(super) fn find(
        list: &str,
        header: &[&str],
        roles: &[(String, String)],
    ) -> Result<Self, ImportError> {
        let names: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        if let Some(name) = names.iter().find(|name| name.contains('\0')) {
            return Err(ImportError::hinted(
                format!("invalid column {} in `{list}`: it has a NUL character", listed([&**name])),
                "rename the column",
            ));
        }
        let mut seen = HashSet::new();
        let mut used = names.iter().filter(|name| !name.is_empty());
        if let Some(name) = used.find(|name| !seen.insert(*name)) {
            return Err(ImportError::hinted(
                format!("duplicate column `{}` in `{list}`", printable_line(name)),
                "give each column a different name",
            ));
        }
        let mut columns = Self {
            list: list.to_owned(),
            phones: Vec::new(),
            content: None,
            id: names.iter().position(|name| name == ID),
            aliases: BTreeMap::new(),
            names,
        };
        for (place, (role, column)) in roles.iter().enumerate() {
            if let Some((_, first)) = roles[..place].iter().find(|(other, _)| other == role) {
                let both = format!("`--column phone={first},{column}` uses the first valid one");
                return Err(ImportError::with_hint(
                    format!("`--column {role}=…` is given twice"),
                    (role == "phone").then_some(&both),
                ));
            }
            // The name of a column can contain a comma.
            let is_list = role == "phone" && columns.position(column.trim()).is_none();
            for name in column.split(|character| is_list && character == ',') {
                let column = columns.for_role(role, name)?;
                match role.as_str() {
                    "phone" => columns.phones.push(column),
                    "content" => columns.content = Some(column),
                    _ => {
                        columns.aliases.insert(role.clone(), column);
                    }
                }
            }
        }
        if columns.phones.is_empty() {
            columns.phones.push(columns.find_phone()?);
        }
        let is_content = |name: &String| name.eq_ignore_ascii_case("content");
        let content = columns.content;
        let content = content.or_else(|| columns.names.iter().position(is_content));
        columns.content = content.filter(|content| !columns.phones.contains(content));
        Ok(columns)
    }

    fn for_role(&self, role: &str, column: &str) -> Result<usize, ImportError> {
        let flag = format!("--column {role}={column}");
        if is_own(column) {
            return Err(ImportError::hinted(
                format!("`{flag}` names a column that smsq wrote"),
                "columns `smsq_…` are never part of a message: name another one",
            ));
        }
        let found = self.position(column.trim());
        found.ok_or_else(|| self.missing(column, &flag))
    }

    fn find_phone(&self) -> Result<usize, ImportError> {
        if let Some(phone) = self.id.and_then(|_| self.position("phone")) {
            return Ok(phone);
        }
        let matching = |is_phone: fn(&str) -> bool| -> Vec<&str> {
            let names = self.names.iter().map(String::as_str);
            names.filter(|name| is_phone(name)).collect()
        };
        let mut candidates = matching(is_phone);
        if candidates.is_empty() {
            candidates = matching(may_be_phone);
        }
        match candidates[..] {
            [phone] => Ok(self.position(phone).unwrap_or_default()),
            [] if self.names.iter().any(|name| looks_like_a_value(name)) => {
                Err(missing_header(&self.list, &self.names.join(",")))
            }
            [] => Err(ImportError::NoPhone {
                list: self.list.clone(),
                columns: listed(matching(|name| !name.is_empty())),
                likely: None,
                sheet: None,
            }),
            _ => Err(several_phones(&self.list, &candidates)),
        }
    }

    /// Returns the columns whose values are stored with the message: not the phone, unless there are
    /// several, not the content, not those that smsq wrote.
    pub(super) fn stored(&self) -> impl Iterator<Item = usize> {
        (0..self.names.len())
            .filter(|&column| self.phones != [column] && Some(column) != self.content)
            .filter(|&column| is_usable(&self.names[column]))
    }

    /// Returns the valid phones of a row, at least one, or what is wrong with the first one.
    pub(super) fn parse_phones(
        &self,
        cells: &[&str],
        dialling: Dialling,
    ) -> Result<Vec<Phone>, PhoneError> {
        let mut phones = Vec::new();
        let mut invalid = PhoneError::Empty;
        for &column in &self.phones {
            match Phone::parse(cells.get(column).copied().unwrap_or_default(), dialling) {
                Ok(phone) => phones.push(phone),
                Err(error) if invalid == PhoneError::Empty => invalid = error,
                Err(_) => {}
            }
        }
        if phones.is_empty() {
            return Err(invalid);
        }
        Ok(phones)
    }

    /// Returns the column with exactly this name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|column| column == name)
    }

    /// Returns the column with this name or alias; `phone` is always the phone.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        let column = self.position(name).filter(|_| !is_own(name));
        let column = column.or_else(|| self.aliases.get(name).copied());
        column.or(match self.phones[..] {
            [only] if name == "phone" => Some(only),
            _ => None,
        })
    }

    /// Like [`named`](Self::named); the error names the `flag` that asked for the column.
    pub(super) fn required(&self, name: &str, flag: &str) -> Result<usize, ImportError> {
        let column = self.named(name);
        column.ok_or_else(|| self.missing(name, flag))
    }

    fn missing(&self, column: &str, flag: &str) -> ImportError {
        ImportError::with_hint(
            format!("missing column `{column}` in `{}`, which `{flag}` names", self.list),
            did_you_mean(column, self.names.iter().map(String::as_str)).as_deref(),
        )
    }

    /// Returns a column for each placeholder of a text, by its name or by its name as an identifier.
    pub(super) fn of_placeholders(
        &self,
        template: &Template,
    ) -> Result<BTreeMap<String, usize>, ImportError> {
        let placeholders = template.placeholders().iter();
        placeholders
            .map(|name| Ok((name.to_string(), self.of_placeholder(template.name(), name)?)))
            .collect()
    }

    fn of_placeholder(&self, text: &str, name: &str) -> Result<usize, ImportError> {
        let alias = self.aliases.get(name).copied();
        if let Some(column) = alias.or_else(|| self.position(name).filter(|_| !is_own(name))) {
            return Ok(column);
        }
        let usable = || {
            let columns = self.names.iter().map(String::as_str);
            columns.filter(|name| is_usable(name))
        };
        let alike = usable().filter(|column| identifier(column) == name);
        let list = &self.list;
        match alike.collect::<Vec<_>>()[..] {
            [column] => Ok(self.position(column).unwrap_or_default()),
            [] => Err(ImportError::hinted(
                format!("unknown column `{name}` in `{text}`: `{list}` does not have it"),
                match closest(name, usable()) {
                    Some(column) => format!("did you mean `{}`?", identifier(&column)),
                    None => format!("its columns are {}", listed(usable())),
                },
            )),
            ref several => Err(ImportError::new(format!(
                "`{name}` in `{text}` can be column {} of `{list}`",
                listed(several.iter().copied())
            ))),
        }
    }
}

/// Returns the name by which a text can refer to a column: `First_name` for `First name`.
pub fn identifier(name: &str) -> String {
    let allowed = |c: char| if c.is_alphanumeric() { c } else { '_' };
    let mut identifier: String = name.chars().map(allowed).collect();
    if identifier.starts_with(|first: char| first.is_numeric()) {
        identifier.insert(0, '_');
    }
    identifier
}

/// The first line may have personal data, so only its start is shown.
pub(super) fn missing_header(list: &str, first_line: &str) -> ImportError {
    let start: String = printable_line(first_line).chars().take(8).collect();
    ImportError::NoHeader { list: list.to_owned(), first: format!("{start}…") }
}

pub(super) fn several_phones(list: &str, columns: &[&str]) -> ImportError {
    let first = columns.first().copied().unwrap_or_default();
    let columns = listed(columns.iter().copied());
    ImportError::hinted(
        format!("several phone columns in `{list}`: {columns}"),
        format!("name one: `--column phone={}`", printable_line(first)),
    )
}

/// Whether smsq wrote the column: its values are never part of a message.
pub(super) fn is_own(name: &str) -> bool {
    name.trim().starts_with(OWN_PREFIX)
}

fn is_usable(name: &str) -> bool {
    !name.is_empty() && !is_own(name)
}

/// A column name with at least seven digits and no letters is a phone, so the list has no header.
pub(super) fn looks_like_a_value(name: &str) -> bool {
    let digits = name.chars().filter(char::is_ascii_digit).count();
    digits >= 7 && !name.chars().any(char::is_alphabetic)
}

/// Names that always mean a phone; lower case, without spaces and punctuation.
#[rustfmt::skip]
const PHONE: &[&str] = &[
    "phone", "phones", "phonenumber", "phoneno", "phonenr", "mobile", "mobilephone", "mobilenumber", "mobileno",
    "mobilephonenumber", "msisdn", "tel", "telno", "telnumber", "telephone", "telephonenumber", "cell", "cellphone",
    "cellnumber", "cellphonenumber", "cellular", "contactnumber", "smsnumber", "whatsapp",
    // Chinese
    "手机", "手机号", "手机号码", "手机电话", "电话", "电话号码", "联系电话", "联系手机", "移动电话", "联系人电话",
    "手機", "手機號", "手機號碼", "電話", "電話號碼", "聯絡電話", "聯繫電話", "行動電話",
    // Japanese, Korean
    "電話番号", "携帯", "携帯電話", "携帯番号", "携帯電話番号", "전화", "전화번호", "휴대폰", "휴대폰번호", "휴대전화", "핸드폰", "핸드폰번호",
    // German, Dutch, Scandinavian, Finnish
    "telefon", "telefonnummer", "telefonnr", "handy", "handynummer", "handynr", "mobil", "mobilnummer", "mobilnr",
    "mobiltelefon", "rufnummer", "mobilfunknummer", "telefoon", "telefoonnummer", "mobiel", "mobielnummer", "gsm",
    "gsmnummer", "mobilnummeret", "telefonnumret", "puhelin", "puhelinnumero", "matkapuhelin",
    // French, Spanish, Portuguese, Italian, Romanian
    "téléphone", "numérodetéléphone", "numerodetelephone", "téléphoneportable", "portable", "teléfono", "telefono",
    "teléfonomóvil", "móvil", "movil", "celular", "númerodeteléfono", "telefone", "telemóvel", "telemovel",
    "númerodetelefone", "cellulare", "numeroditelefono", "telefonmobil", "numărdetelefon",
    // Polish, Czech, Hungarian, Turkish, Greek
    "numertelefonu", "nrtelefonu", "komórka", "telefonkomórkowy", "telefonníčíslo", "telefonszám", "ceptelefonu",
    "cep", "telefonnumarası", "τηλέφωνο", "κινητό",
    // Russian, Ukrainian
    "телефон", "номертелефона", "мобильный", "мобильныйтелефон", "сотовый", "номертелефону", "мобільний",
    // Arabic, Persian, Hebrew, Hindi
    "هاتف", "الهاتف", "رقمالهاتف", "جوال", "الجوال", "رقمالجوال", "موبايل", "تلفن", "موبایل", "شمارهتلفن", "טלפון", "נייד", "फोन", "मोबाइल",
    // Vietnamese, Thai, Indonesian
    "điệnthoại", "sốđiệnthoại", "sdt", "โทรศัพท์", "เบอร์โทร", "เบอร์โทรศัพท์", "มือถือ", "telepon", "nomortelepon", "nohp", "nomorhp", "hp",
];

/// Names that may mean a phone if no column has a better one.
#[rustfmt::skip]
const POSSIBLE: &[&str] = &[
    "number", "numbers", "recipient", "recipients", "to", "destination", "contact", "nummer", "numéro", "numero",
    "número", "номер", "号码", "號碼", "番号", "번호", "联系方式", "聯絡方式", "رقم",
];

pub(super) fn is_phone(column: &str) -> bool {
    PHONE.contains(&bare(column).as_str())
}

pub(super) fn may_be_phone(column: &str) -> bool {
    POSSIBLE.contains(&bare(column).as_str())
}

fn bare(column: &str) -> String {
    let kept = |character: &char| {
        !character.is_whitespace()
            && !character.is_ascii_punctuation()
            && !"（）：．・".contains(*character)
    };
    column.chars().filter(kept).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(header: &[&str], roles: &[(&str, &str)]) -> Result<ListColumns, ImportError> {
        let roles: Vec<(String, String)> =
            roles.iter().map(|(role, column)| ((*role).to_owned(), (*column).to_owned())).collect();
        ListColumns::find("list.csv", header, &roles)
    }

    fn message(result: Result<ListColumns, ImportError>) -> (String, String) {
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
        assert_eq!(find(&["name", "Number"], &[]).expect("a weak name alone").phones, [1]);
        assert_eq!(find(&["number", "phone"], &[]).expect("a strong name wins").phones, [1]);
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
        assert_eq!(message(find(&["a", "a"], &[])).0, "duplicate column `a` in `list.csv`");
        assert_eq!(
            message(find(&["phone", "a\0b"], &[])).0,
            "invalid column `a b` in `list.csv`: it has a NUL character"
        );
        assert_eq!(
            message(find(&["13800138000", "Ann"], &[])).0,
            "missing header in `list.csv`: its first line is `13800138…`"
        );
        assert_eq!(
            message(find(&["who", "number to call"], &[("phone", "number to cal")])),
            ("missing column `number to cal` in `list.csv`, which `--column phone=number to cal` names".into(), "did you mean `number to call`?".into())
        );
        assert_eq!(find(&["mobile", "tel"], &[("phone", "tel")]).expect("named").phones, [1]);
    }

    #[test]
    fn columns_of_a_failures_file_are_known() {
        let header = ["phone", "content", "mobile", "", "smsq_id", "smsq_state"];
        let columns = find(&header, &[]).expect("a failures file");
        assert_eq!((columns.phones[0], columns.content, columns.id), (0, Some(1), Some(4)));
        assert_eq!(columns.stored().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn placeholders_find_columns_or_the_closest_name() {
        let columns =
            find(&["phone", "First name", "2nd", "城市", "a b", "a-b"], &[("who", "First name")])
                .expect("columns");
        let of = |text: &str| {
            let template = Template::parse("t.txt", text).expect("a text");
            columns.of_placeholders(&template)
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

    #[test]
    fn names_are_in_normal_form() {
        for name in PHONE.iter().chain(POSSIBLE) {
            assert_eq!(&bare(name), name);
        }
    }

    #[test]
    fn other_columns_are_not_phones() {
        for word in
            ["name", "email", "city", "invoice number", "phone model", "content", "smsq_line"]
        {
            assert!(!is_phone(word) && !may_be_phone(word), "{word}");
        }
    }
}
