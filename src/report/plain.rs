//! What a gateway said, in words: an answer in JSON is shortened to the sentence in it.

use std::borrow::Cow;

/// Names under which gateways put their words, the best first.
const WORDS: [&str; 10] = [
    "message",
    "error_message",
    "errorMessage",
    "error_description",
    "description",
    "detail",
    "title",
    "reason",
    "error",
    "text",
];

/// `the gateway answered 400 Bad Request: {"error":{"message":"no such sender"}}` without the JSON around
/// the words; the JSON may end in the middle. A reason without JSON is as it is.
pub(crate) fn reason(text: &str) -> Cow<'_, str> {
    let Some(at) = text.find(['{', '[']).filter(|at| text[*at..].contains('"')) else {
        return Cow::Borrowed(text);
    };
    let (before, json) = text.split_at(at);
    let strings = strings(json);
    let under = |name: &str| {
        let found = strings.windows(2).find(|pair| {
            pair[0].is_key && pair[0].text == name && !pair[1].is_key && !pair[1].text.is_empty()
        });
        found.map(|pair| pair[1].text.as_str())
    };
    let longest = || {
        let values = strings.iter().filter(|one| !one.is_key);
        values
            .map(|one| one.text.as_str())
            .max_by_key(|text| text.len())
    };
    let said = WORDS.iter().find_map(|name| under(name)).or_else(longest);
    let before = before.trim_end_matches([' ', ':']);
    match said.filter(|said| !said.trim().is_empty()) {
        Some(said) if before.is_empty() => Cow::Owned(said.to_owned()),
        Some(said) => Cow::Owned(format!("{before}: {said}")),
        None if before.is_empty() => Cow::Borrowed(text),
        None => Cow::Owned(before.to_owned()),
    }
}

struct Word {
    text: String,
    /// It is followed by a colon.
    is_key: bool,
}

/// The strings of a piece of JSON; one that does not end is a value.
fn strings(json: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '"' {
            continue;
        }
        let mut text = String::new();
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => match chars.next() {
                    Some('n' | 'r' | 't') => text.push(' '),
                    Some('u') => {
                        let digits: String = chars.by_ref().take(4).collect();
                        let code = u32::from_str_radix(&digits, 16).ok();
                        text.extend(code.and_then(char::from_u32));
                    }
                    Some(other) => text.push(other),
                    None => {}
                },
                other => text.push(other),
            }
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let is_key = chars.peek() == Some(&':');
        found.push(Word { text, is_key });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_a_gateway_is_shortened_to_its_words() {
        for (said, shown) in [
            (
                r#"the gateway answered 400 Bad Request: {"error":{"code":"x","message":"no such \"sender\""}}"#,
                r#"the gateway answered 400 Bad Request: no such "sender""#,
            ),
            (
                r#"the gateway answered 500 Internal Server Error: {"detail":"it is brok"#,
                "the gateway answered 500 Internal Server Error: it is brok",
            ),
            (
                r#"{"status":"3","error-text":"Invalid number"}"#,
                "Invalid number",
            ),
            (r#"answered 400: [{"code":7}]"#, "answered 400"),
            ("no answer within 10 s", "no answer within 10 s"),
            ("a {strange} reason", "a {strange} reason"),
        ] {
            assert_eq!(reason(said), shown);
        }
    }
}
