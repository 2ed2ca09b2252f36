//! The stanzas that come with smsq, and how one is completed by the stanza of its kind: whoever writes
//! `kind = "twilio"` gets that vendor's address, limits and codes, and says only what differs.

use toml::{Table, Value};

/// Every stanza that comes with smsq, by the kind it shows: complete TOML with comments, each a table
/// `[providers.NAME]`. `generic` is an example to copy, and the others work once their secrets are set.
pub fn builtin() -> &'static [(&'static str, &'static str)] {
    macro_rules! stanzas {
        ($($name:literal),* $(,)?) => {
            &[$((
                $name,
                include_str!(concat!("../../config/providers/", $name, ".toml")),
            )),*]
        };
    }
    stanzas![
        "sandbox",
        "generic",
        "46elks",
        "aliyun",
        "aws-sms",
        "aws-sns",
        "clicksend",
        "huawei",
        "infobip",
        "jasmin",
        "kannel",
        "messagebird",
        "plivo",
        "sinch",
        "sms-gate",
        "telnyx",
        "tencent",
        "twilio",
        "vonage",
        "vonage-messages",
        "yunpian",
    ]
}

/// The stanza of a vendor that comes with smsq.
pub(super) fn stanza_of(kind: &str) -> Option<Table> {
    if matches!(kind, "generic" | "sandbox") {
        return None;
    }
    let (_, source) = builtin().iter().find(|(name, _)| *name == kind)?;
    let mut source: Table = source.parse().expect("a test parses it");
    let mut providers = source.remove("providers")?;
    match providers.as_table_mut()?.remove(kind)? {
        Value::Table(stanza) => Some(stanza),
        _ => None,
    }
}

/// `stanza` over the one of its kind that comes with smsq.
pub fn complete(stanza: &Table) -> Table {
    let kind = stanza.get("kind").and_then(Value::as_str);
    let Some(whole) = kind.and_then(stanza_of) else {
        return stanza.clone();
    };
    let mut own = stanza.clone();
    own.remove("kind");
    over(whole, &own)
}

/// `upper` over `lower`, both of one provider. Tables are merged key by key; a code and a secret are replaced as a
/// whole, and so is every other value.
pub fn over(mut lower: Table, upper: &Table) -> Table {
    let url = |table: &Table| Some(table.get("url")?.as_str()?.to_owned());
    if let (Some(from), Some(to)) = (url(&lower), url(upper))
        && let Some(lookup) = lower.get_mut("lookup").and_then(Value::as_table_mut)
        && let Some(asked) = url(lookup)
    {
        // The secrets go along, so it must not stay at a host that the operator has left.
        lookup.insert("url".to_owned(), moved(&asked, &from, &to).into());
    }
    for (key, value) in upper {
        match (lower.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => {
                if matches!(key.as_str(), "codes" | "secrets") {
                    below.extend(above.clone());
                } else {
                    *below = over(std::mem::take(below), above);
                }
            }
            _ => {
                lower.insert(key.clone(), value.clone());
            }
        }
    }
    lower
}

/// The address `url`, which belongs to the address `from`, as it belongs to the address `to`.
fn moved(url: &str, from: &str, to: &str) -> String {
    if url == from {
        return to.to_owned();
    }
    let shared = url.bytes().zip(from.bytes()).take_while(|(a, b)| a == b);
    let shared = url[..shared.count()].rfind('/').map_or(0, |at| at + 1);
    match to.strip_suffix(&from[shared..]) {
        Some(base) if base.ends_with('/') => format!("{base}{}", &url[shared..]),
        _ => {
            let path_at = |url: &str| {
                let host_at = url.find("://").map_or(0, |at| at + 3);
                let path = url[host_at..].find(['/', '?']);
                path.map_or(url.len(), |at| host_at + at)
            };
            format!("{}{}", &to[..path_at(to)], &url[path_at(url)..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Provider;

    fn completed(source: &str) -> Table {
        complete(&source.parse().expect("toml"))
    }

    #[test]
    fn a_stanza_says_only_what_differs_from_its_kind() {
        let whole = completed(
            "kind = 'twilio'\nfrom = 'SHOP'\nsecrets = { auth_token = { file = '/t' } }\n\
             codes = { 21211 = { class = 'content' } }",
        );
        assert_eq!(whole["url"].as_str(), Some("https://api.twilio.com"));
        assert_eq!(whole["from"].as_str(), Some("SHOP"));
        assert_eq!(
            whole["secrets"]["auth_token"].as_table().map(Table::len),
            Some(1)
        );
        assert!(whole["secrets"].get("account_sid").is_some());
        assert_eq!(whole["codes"]["21211"]["class"].as_str(), Some("content"));
        assert!(whole["codes"].get("21610").is_some());
    }

    #[test]
    fn a_section_with_kind_is_merged_like_one_without() {
        for (kind, more) in [
            ("plivo", "json = { src = 'X' }"),
            (
                "plivo",
                "headers = { X-Trace = '1' }\nlook_up = { rate = '1/s' }",
            ),
            ("plivo", "lookup = { query = { limit = 5 } }"),
            ("plivo", "secrets = { auth_token = { file = '/t' } }"),
            (
                "clicksend",
                "batch = { per_call = 5 }\nrate = ['1/s', '9/day']",
            ),
            (
                "tencent",
                "codes = { 'FailedOperation.MissingSignature' = { class = 'content' } }",
            ),
        ] {
            let source: Table = more.parse().expect("toml");
            let without_kind = over(stanza_of(kind).expect(kind), &source);
            let with_kind = completed(&format!("kind = '{kind}'\n{more}"));
            assert_eq!(with_kind, without_kind, "{kind}: {more}");
        }
        let whole = completed("kind = 'plivo'\njson = { src = 'X' }");
        assert_eq!(whole["json"]["src"].as_str(), Some("X"));
        assert_eq!(whole["json"]["dst"].as_str(), Some("{{ phone }}"));
    }

    #[test]
    fn look_up_follows_an_overridden_url() {
        for (kind, url, expected) in [
            ("sinch", "https://us.sms.api.sinch.com/xms/v1/p/batches", ""),
            ("plivo", "http://127.0.0.1:9/v1/Account/me/Message/", ""),
            ("messagebird", "https://proxy.example.net/bird/messages", ""),
            ("46elks", "http://127.0.0.1:9/a1/sms", ""),
            (
                "clicksend",
                "http://127.0.0.1:9/v3/sms/send",
                "http://127.0.0.1:9/v3/sms/history",
            ),
            (
                "clicksend",
                "http://127.0.0.1:9/proxy/v3/sms/send",
                "http://127.0.0.1:9/proxy/v3/sms/history",
            ),
            (
                "clicksend",
                "http://127.0.0.1:9",
                "http://127.0.0.1:9/v3/sms/history",
            ),
        ] {
            let whole = completed(&format!("kind = '{kind}'\nurl = '{url}'"));
            let expected = if expected.is_empty() { url } else { expected };
            assert_eq!(whole["lookup"]["url"].as_str(), Some(expected), "{kind}");
        }
        let own = completed(
            "kind = 'sinch'\nurl = 'http://127.0.0.1:9'\nlook_up = { url = 'http://127.0.0.2:9' }",
        );
        assert_eq!(own["lookup"]["url"].as_str(), Some("http://127.0.0.2:9"));
    }

    #[test]
    fn a_vendor_of_a_stanza_can_be_the_kind_of_another() {
        let whole = completed("kind = 'plivo'\nrate = '5/s'");
        assert_eq!(whole["kind"].as_str(), Some("generic"));
        assert_eq!(whole["rate"].as_str(), Some("5/s"));
    }

    #[test]
    fn every_stanza_that_comes_with_smsq_is_read() {
        for (kind, source) in builtin() {
            let table: Table = source.parse().expect(kind);
            let providers = table["providers"].as_table().expect(kind);
            for (name, stanza) in providers {
                let stanza = stanza.as_table().expect(kind);
                let provider = Provider::from_stanza(name, stanza, &|_| Some("t".to_owned()));
                let provider = provider.unwrap_or_else(|error| panic!("{error}"));
                assert!([*kind, "generic"].contains(&provider.kind()));
                assert_eq!(provider.name(), name);
                assert_eq!(*kind == "generic", name == "cellar");
            }
        }
    }

    #[test]
    fn a_kind_without_a_stanza_is_left_alone() {
        for source in [
            "kind = 'generic'",
            "kind = 'sandbox'",
            "kind = 'other'",
            "a = 1",
        ] {
            assert_eq!(completed(source), source.parse().expect("toml"), "{source}");
        }
    }
}
