//! Parses single options of an import, for flags and for fields of an upload.

use smsq_message::text::is_printable;

/// The name of a campaign: printable, at most 100 characters.
pub fn campaign_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let problem = if name.is_empty() {
        "the name is empty"
    } else if !name.chars().all(is_printable) {
        "the name contains a character that cannot be printed"
    } else if name.chars().count() > 100 {
        "the name is longer than 100 characters"
    } else if matches!(name, "." | "..") {
        "the name is part of URLs, where `.` and `..` are folders"
    } else {
        return Ok(name.to_owned());
    };
    Err(problem.to_owned())
}

/// `NAME=VALUE`, both without surrounding spaces and not empty.
pub fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write it as `NAME=COLUMN`, such as `phone=手机号`".to_owned()),
    }
}

/// Providers accept different senders; any text is allowed here.
pub fn sender(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("the sender is empty: omit `--from` to use the provider's"),
        sender if sender.chars().any(char::is_control) => {
            Err("the sender contains a control character")
        }
        sender => Ok(sender.to_owned()),
    }
}

pub fn delimiter(text: &str) -> Result<u8, &'static str> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(b'\t'),
        (_, [byte]) if is_delimiter(*byte) => Ok(*byte),
        _ => Err("use one character such as `;` or `|`, or `tab`"),
    }
}

/// Whether fields can be separated by this byte: not by a quotation mark, which encloses fields, nor by a character that
/// numbers and words are made of.
pub(super) fn is_delimiter(byte: u8) -> bool {
    byte == b'\t' || (byte.is_ascii_punctuation() && byte != b'"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sender_is_not_empty_and_has_no_control_characters() {
        assert_eq!(sender(" ACME "), Ok("ACME".to_owned()));
        for bad in ["", " ", "A\u{1b}"] {
            assert!(sender(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn delimiter_is_one_character_or_tab() {
        assert_eq!(delimiter(";"), Ok(b';'));
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        for bad in ["", ";;", "a", "；", "\"", "\n"] {
            assert!(delimiter(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn campaign_name_is_printable_and_short() {
        assert_eq!(campaign_name(" 夏季促销 ").as_deref(), Ok("夏季促销"));
        for bad in ["", "  ", ".", " ..", "a\nb", "a\u{202e}b", &"x".repeat(101)] {
            assert!(campaign_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn assignment_needs_name_and_value() {
        let read = assignment("phone=手机号");
        assert_eq!(read, Ok(("phone".to_owned(), "手机号".to_owned())));
        for bad in ["phone", "=x", "phone=", ""] {
            assert!(assignment(bad).is_err(), "{bad}");
        }
    }
}
