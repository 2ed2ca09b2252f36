//! Masks what may be of a person in the words of other programs: of providers, and of the databases of others.

/// A number with this many digits may be a phone.
const PHONE_DIGITS: usize = 7;

/// Replaces the digits of every number that may be a phone by `*`, however it is grouped.
pub fn mask_numbers(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(char::is_numeric) {
        masked.push_str(&rest[..start]);
        rest = &rest[start..];
        let is_part = |c: char| c.is_numeric() || matches!(c, ' ' | '-' | '.' | '(' | ')');
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let number = rest[..end].trim_end_matches(|c: char| !c.is_numeric());
        let is_phone = number.chars().filter(|c| c.is_numeric()).count() >= PHONE_DIGITS;
        let mask = |c: char| if is_phone && c.is_numeric() { '*' } else { c };
        masked.extend(number.chars().map(mask));
        rest = &rest[number.len()..];
    }
    masked + rest
}

/// The same, and hides what is in quotes: a database quotes the value that it cannot use. A quote within a word, as in
/// `can't`, begins nothing.
pub fn mask_values(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        masked.push(c);
        if matches!(c, '"' | '\'' | '`') && !before.is_alphanumeric() {
            // A value may have quotes itself, so all is hidden up to the last one.
            let left = rest.as_str();
            masked.push('…');
            rest = match left.rfind(c) {
                Some(end) => left[end..].chars(),
                None => "".chars(),
            };
            masked.extend(rest.next());
        }
        before = c;
    }
    mask_numbers(&masked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_values_and_long_numbers_are_hidden() {
        for (text, expected) in [
            (
                r#"value "+447400000001" is out of range for type integer"#,
                r#"value "…" is out of range for type integer"#,
            ),
            ("Truncated incorrect value: 'Ann O'Hara'", "Truncated incorrect value: '…'"),
            ("Incorrect value: 'Ann", "Incorrect value: '…"),
            (
                "the server can't be reached at port 5432",
                "the server can't be reached at port 5432",
            ),
            ("row 447400000001 is bad", "row ************ is bad"),
        ] {
            assert_eq!(mask_values(text), expected);
        }
    }
}
