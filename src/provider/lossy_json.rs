//! JSON of programs that cut texts: half of a character becomes U+FFFD instead of an error, so that the rest is read.

use serde_json::Value;

/// Reads JSON, also if a text in it has bytes that are not UTF-8, or an escape of half a character such as `\ud83d`.
pub(super) fn parse(json: &[u8]) -> serde_json::Result<Value> {
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    let read = serde_json::from_slice(json);
    match &read {
        // An error that whole characters do not change is the one of what was sent.
        Err(error) if error.is_syntax() => {
            let whole = whole_characters(&String::from_utf8_lossy(json));
            serde_json::from_str(&whole).or(read)
        }
        _ => read,
    }
}

/// The text with `\ufffd` in the place of escapes of halves.
fn whole_characters(json: &str) -> String {
    let mut whole = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((before, escape)) = rest.split_once('\\') {
        whole.push_str(before);
        let next = || unit(escape.get(5..)?.strip_prefix('\\')?);
        let length = match unit(escape) {
            Some(0xD800..=0xDBFF) if matches!(next(), Some(0xDC00..=0xDFFF)) => 11,
            Some(0xD800..=0xDFFF) => {
                whole.push_str("\\ufffd");
                rest = &escape[5..];
                continue;
            }
            Some(_) => 5,
            // The character after a backslash, which may be another backslash.
            None => escape.chars().next().map_or(0, char::len_utf8),
        };
        whole.push('\\');
        whole.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    whole.push_str(rest);
    whole
}

/// The value of an escape, without its backslash, that names a UTF-16 code unit.
fn unit(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix('u')?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_character_is_replaced() {
        for (json, text) in [
            (r#""STOP \ud83d""#, "STOP \u{fffd}"),
            (r#""\ude00STOP""#, "\u{fffd}STOP"),
            (r#""\ud83d\ude00 \ud83d\ud83d\ude00""#, "😀 \u{fffd}😀"),
            (r#""\\ud83d \ud83d""#, "\\ud83d \u{fffd}"),
            (r#""é\ud83d\n""#, "é\u{fffd}\n"),
        ] {
            let read = parse(json.as_bytes()).expect("JSON");
            assert_eq!(read, Value::from(text), "{json}");
        }
        let cut = parse(b"\"STOP \xf0\x9f\"").expect("JSON");
        assert_eq!(cut, Value::from("STOP \u{fffd}"));
    }

    #[test]
    fn other_errors_stay() {
        for json in [r#"{"a":1"#, r#"{"a":"\ud83d""#, "\"\\x\"", ""] {
            assert!(parse(json.as_bytes()).is_err(), "{json}");
        }
    }
}
