//! Reasons for readers: the JSON of a provider's response is shortened to the message in it, and reasons that differ
//! only in ids are one.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use super::Reason;

/// The keys of error messages, the most specific first.
const MESSAGE_KEYS: [&str; 10] = [
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

/// Replaces JSON with the message in it: `the gateway answered 400: {"error":{"message":"no such sender"}}` becomes
/// `the gateway answered 400: no such sender`. The JSON may be cut off. A reason without JSON is unchanged.
pub fn plain_reason(text: &str) -> Cow<'_, str> {
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
        let values = strings.iter().filter(|string| !string.is_key);
        values.map(|string| string.text.as_str()).max_by_key(|text| text.len())
    };
    let message = MESSAGE_KEYS.iter().find_map(|name| under(name)).or_else(longest);
    let before = before.trim_end_matches([' ', ':']);
    match message.filter(|message| !message.trim().is_empty()) {
        Some(message) if before.is_empty() => Cow::Owned(message.to_owned()),
        Some(message) => Cow::Owned(format!("{before}: {message}")),
        None if before.is_empty() => Cow::Borrowed(text),
        None => Cow::Owned(before.to_owned()),
    }
}

/// Sums reasons that differ only in ids, such as those in the excerpt of a response. The first of them is the example.
pub(super) fn merged(reasons: Vec<Reason>) -> Vec<Reason> {
    let mut places = HashMap::new();
    let mut merged: Vec<Reason> = Vec::new();
    for reason in reasons {
        let key = (reason.class.clone(), reason.code.clone(), without_ids(&reason.reason));
        let place = *places.entry(key).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(example) => example.count += reason.count,
            None => merged.push(reason),
        }
    }
    merged.sort_by_key(|reason| Reverse(reason.count));
    merged
}

/// Replaces words of four and more characters with a digit, which a status and a port of few digits are not.
fn without_ids(reason: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let words = reason.split_inclusive(|c| !is_word(c));
    words
        .map(|word| {
            let bare = word.trim_end_matches(|c| !is_word(c));
            let is_id = bare.len() >= 4 && bare.contains(|c: char| c.is_ascii_digit());
            if is_id { &word[bare.len()..] } else { word }
        })
        .collect()
}

struct JsonString {
    text: String,
    /// Whether a colon follows.
    is_key: bool,
}

/// The strings of JSON that may be cut off.
fn strings(json: &str) -> Vec<JsonString> {
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
        found.push(JsonString { text, is_key });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_ids_are_one() {
        let reason = |reason: &str, code: Option<&str>, count| Reason {
            class: "unknown".to_owned(),
            code: code.map(str::to_owned),
            reason: reason.to_owned(),
            advice: "",
            count,
        };
        let answered = |status: u16, id: u32| {
            let id = format!("{id:08x}-17ab-4c02");
            format!(
                "the gateway answered {status}: {{\"id\":\"{id}\",\"to\":\"+44740****{}\"}}",
                id.len()
            )
        };
        let mut all: Vec<Reason> = (0..23).map(|id| reason(&answered(503, id), None, 1)).collect();
        all.extend([
            reason(&answered(500, 1), None, 1),
            reason(&answered(503, 1), Some("7"), 30),
            reason("no answer: not within 10 s", None, 2),
        ]);
        let merged = merged(all);
        let counts: Vec<(u64, &str)> =
            merged.iter().map(|reason| (reason.count, reason.reason.as_str())).collect();
        assert_eq!(
            counts,
            [
                (30, answered(503, 1).as_str()),
                (23, &answered(503, 0)),
                (2, "no answer: not within 10 s"),
                (1, &answered(500, 1)),
            ]
        );
    }

    #[test]
    fn json_is_shortened_to_its_message() {
        for (reason, expected) in [
            (
                r#"the gateway answered 400 Bad Request: {"error":{"code":"x","message":"no such \"sender\""}}"#,
                r#"the gateway answered 400 Bad Request: no such "sender""#,
            ),
            (
                r#"the gateway answered 500 Internal Server Error: {"detail":"it is brok"#,
                "the gateway answered 500 Internal Server Error: it is brok",
            ),
            (r#"{"status":"3","error-text":"Invalid number"}"#, "Invalid number"),
            (r#"answered 400: [{"code":7}]"#, "answered 400"),
            ("no answer within 10 s", "no answer within 10 s"),
            ("a {strange} reason", "a {strange} reason"),
        ] {
            assert_eq!(plain_reason(reason), expected);
        }
    }
}
