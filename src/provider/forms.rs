//! Finds secrets in what another program wrote, also in the forms in which requests carry them: percent-encoded,
//! as form values, escaped in JSON or HTML, in base64 at any offset, in hexadecimal.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};

use super::quote::cut;
use crate::text::is_printable;

/// A shorter text is not looked for: too many words have it in them.
const SHORTEST: usize = 4;
/// A shorter text is not looked for in base64 and hexadecimal.
const SHORTEST_ENCODED: usize = 6;
/// Of a longer text each piece of this many bytes is looked for, so that a part of it is found too.
const PIECE: usize = 32;
/// Pieces of one text that are looked for.
const PIECES: usize = 8;
/// Encodings within each other that are undone.
const DEPTH: usize = 3;
/// A text that can be decoded in more ways is taken to hold a secret.
const READINGS: usize = 24;

/// What is looked for. It has no `Debug`, and wipes its memory.
#[derive(Clone, Default)]
pub(super) struct Forms(Vec<SecretString>);

impl Forms {
    pub(super) fn of<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let mut forms = Self::default();
        for secret in secrets {
            for piece in pieces(&packed(secret)) {
                forms.add_one(piece);
            }
        }
        forms
    }

    /// Adds a value that was made of secrets by a template, as a whole and without its first word.
    pub(super) fn add_made(&mut self, value: &str) {
        for part in [Some(value), value.split_once(' ').map(|(_, rest)| rest)] {
            let part = packed(part.unwrap_or_default());
            if part.len() >= SHORTEST_ENCODED && !self.occur_in(&part) {
                self.0.push(SecretString::from(part));
            }
        }
    }

    fn add_one(&mut self, piece: &str) {
        if piece.len() < SHORTEST {
            return;
        }
        self.0.push(SecretString::from(piece));
        if piece.len() < SHORTEST_ENCODED {
            return;
        }
        for encoded in in_base64(piece).into_iter().chain(in_hex(piece)) {
            if self.0.iter().all(|known| known.expose_secret() != encoded) {
                self.0.push(SecretString::from(encoded));
            }
        }
    }

    /// Whether `text` holds a secret in any form.
    pub(super) fn occur_in(&self, text: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Some(readings) = readings(text) else {
            return true;
        };
        readings.iter().any(|reading| {
            let reading = packed(reading);
            let is_in = |form: &SecretString| reading.contains(form.expose_secret());
            self.0.iter().any(is_in)
        })
    }
}

/// Without white space and what is not printed: line breaks and invisible characters hide nothing.
fn packed(text: &str) -> String {
    let keeps = |c: &char| is_printable(*c) && !c.is_whitespace();
    text.chars().filter(keeps).collect()
}

/// The whole of a short text; pieces of a long one, the last of them its end.
fn pieces(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = (0..text.len()).step_by(PIECE).collect();
    if text.len() > PIECE {
        starts.truncate(PIECES);
        starts.push(text.len() - PIECE);
    }
    let piece = |start: usize| {
        let boundary = |at| cut(text, at).len();
        &text[boundary(start)..boundary(start + PIECE)]
    };
    starts.into_iter().map(piece).collect()
}

/// The characters that stand for `text` and nothing else, wherever it stands in what was encoded.
fn in_base64(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for offset in 0..3 {
        let mut bytes = vec![0; offset];
        bytes.extend_from_slice(text.as_bytes());
        let (start, end) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            all.push(engine.encode(&bytes)[start..end].to_owned());
        }
    }
    all
}

fn in_hex(text: &str) -> [String; 2] {
    let lower = super::sign::hex(text.as_bytes());
    let upper = lower.to_ascii_uppercase();
    [lower, upper]
}

/// The text, and what it says when encodings are undone; `None` where there are too many ways.
fn readings(text: &str) -> Option<Vec<String>> {
    let mut all = vec![text.to_owned()];
    let mut done = 0;
    for _ in 0..DEPTH {
        let known = all.len();
        for at in done..known {
            for decode in [from_percent, from_form, from_json, from_html] {
                if let Some(decoded) = decode(&all[at])
                    && !all.contains(&decoded)
                {
                    all.push(decoded);
                }
            }
            if all.len() > READINGS {
                return None;
            }
        }
        done = known;
    }
    Some(all)
}

/// Replaces what `decode` reads at the beginning of the text behind each `mark`: the character, and the length of
/// what stood for it. `None` where nothing is replaced.
fn replaced(
    text: &str,
    mark: char,
    decode: fn(&[u8], &mut Vec<u8>) -> Option<usize>,
) -> Option<String> {
    let bytes = text.as_bytes();
    let mark = u8::try_from(mark).ok()?;
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let mut is_changed = false;
    while let Some(byte) = bytes.get(at) {
        let found = (*byte == mark)
            .then(|| decode(&bytes[at + 1..], &mut out))
            .flatten();
        if let Some(length) = found {
            at += 1 + length;
            is_changed = true;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    is_changed.then(|| String::from_utf8_lossy(&out).into_owned())
}

fn hex_number(bytes: Option<&[u8]>) -> Option<u32> {
    let digits = std::str::from_utf8(bytes?).ok()?;
    let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| all_hex)
}

fn push(out: &mut Vec<u8>, code: u32) -> Option<()> {
    let c = char::from_u32(code)?;
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Some(())
}

fn from_percent(text: &str) -> Option<String> {
    replaced(text, '%', |rest, out| {
        out.push(u8::try_from(hex_number(rest.get(..2))?).ok()?);
        Some(2)
    })
}

fn from_form(text: &str) -> Option<String> {
    let text = text.contains('+').then(|| text.replace('+', " "))?;
    Some(from_percent(&text).unwrap_or(text))
}

fn from_json(text: &str) -> Option<String> {
    replaced(text, '\\', |rest, out| {
        match rest.first()? {
            b'u' => {
                let unit = hex_number(rest.get(1..5))?;
                if let (0xd800..=0xdbff, Some(b"\\u")) = (unit, rest.get(5..7)) {
                    let low = hex_number(rest.get(7..11))?;
                    let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                    push(out, 0x10000 + ((unit - 0xd800) << 10) + low)?;
                    return Some(11);
                }
                push(out, unit)?;
                return Some(5);
            }
            byte @ (b'"' | b'\\' | b'/' | b'\'') => out.push(*byte),
            b'n' | b'r' | b't' | b'b' | b'f' => out.push(b' '),
            _ => return None,
        }
        Some(1)
    })
}

fn from_html(text: &str) -> Option<String> {
    const NAMES: [(&str, u8); 5] = [
        ("amp", b'&'),
        ("lt", b'<'),
        ("gt", b'>'),
        ("quot", b'"'),
        ("apos", b'\''),
    ];
    replaced(text, '&', |rest, out| {
        let end = rest.iter().take(10).position(|byte| *byte == b';')?;
        let name = std::str::from_utf8(&rest[..end]).ok()?;
        if let Some((_, byte)) = NAMES.into_iter().find(|(known, _)| *known == name) {
            out.push(byte);
        } else {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            push(out, code.ok()?)?;
        }
        Some(end + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use proptest::prelude::*;

    use crate::provider::sign::{hex, percent_encoded};
    use crate::provider::vendor::form;

    /// The ways in which a request, or a gateway that quotes it, writes a value.
    const ENCODERS: [fn(&str) -> String; 9] = [
        str::to_owned,
        percent_encoded,
        |text| {
            let bytes = text.bytes();
            bytes
                .flat_map(|byte| ["%".to_owned(), hex(&[byte])])
                .collect()
        },
        |text| form([("key", text)]),
        |text| serde_json::Value::from(text).to_string(),
        |text| {
            let units = text.encode_utf16();
            units
                .flat_map(|unit| ["\\u".to_owned(), hex(&unit.to_be_bytes())])
                .collect()
        },
        |text| {
            text.replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('"', "&quot;")
                .replace('\'', "&#39;")
        },
        |text| STANDARD.encode(text),
        |text| hex(text.as_bytes()),
    ];

    proptest! {
        #[test]
        fn a_secret_is_found_in_every_form(
            secret in "[!-~]{8,100}",
            before in "[ -~]{0,8}",
            after in "[ -~]{0,8}",
            inner in 0..ENCODERS.len(),
            outer in 0..ENCODERS.len() - 2,
            url_safe: bool,
        ) {
            let forms = Forms::of([secret.as_str()].into_iter());
            let carried = format!("{before}{secret}{after}");
            let carried = if url_safe {
                URL_SAFE.encode(carried)
            } else {
                ENCODERS[inner](&carried)
            };
            let quoted = ENCODERS[outer](&carried);
            prop_assert!(forms.occur_in(&quoted), "{quoted}");
        }

        #[test]
        fn other_words_hold_no_secret(secret in "[!-~]{12,40}", text in "[a-z]{1,10}( [a-z]{1,10}){0,9}") {
            let forms = Forms::of([secret.as_str()].into_iter());
            prop_assert!(!forms.occur_in(&text));
        }
    }

    #[test]
    fn a_part_of_a_long_secret_is_found() {
        let bytes: Vec<u8> = (0..=255).collect();
        let secret = hex(&bytes);
        let forms = Forms::of([secret.as_str()].into_iter());
        assert!(forms.occur_in(&secret[..70]));
        assert!(forms.occur_in(&secret[secret.len() - 40..]));
        assert!(!forms.occur_in(&secret[..20]));
    }

    #[test]
    fn a_value_that_a_template_made_is_found() {
        let mut forms = Forms::of(["hunter2!"].into_iter());
        let known = forms.0.len();
        forms.add_made("Bearer hunter2!");
        assert_eq!(forms.0.len(), known, "the secret is found anyway");
        forms.add_made("Bearer !2RETNUH");
        assert!(forms.occur_in("bad token !2RETNUH"));
    }

    #[test]
    fn text_with_endless_encodings_is_taken_to_hold_a_secret() {
        let forms = Forms::of(["hunter2!"].into_iter());
        assert!(forms.occur_in(&"%2541+&amp;amp;\\u0026%26amp;+".repeat(3)));
        assert!(!Forms::default().occur_in("hunter2!"));
    }
}
