//! Requests and responses of every built-in vendor: no response causes a panic, and none counts as accepted
//! without proof.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::LazyLock;

use bytes::Bytes;
use http::Response;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use smsq_message::phone::Phone;
use smsq_message::sms::{Outcome, Timestamp};
use smsq_provider::{Message, Provider, PullShape, RequestContext, builtin, builtin_section};

use crate::support::repository;
use crate::support::tables::wrong_table;

/// What `config/providers/NAME.example.toml` says about a vendor.
#[derive(Deserialize)]
pub(crate) struct Example {
    /// What a section of this vendor needs to send.
    settings: String,
    accepted: Option<Accepted>,
    pub(crate) batch: Option<AcceptedBatch>,
    #[serde(default)]
    posted: Vec<toml::Table>,
    #[serde(default)]
    fetched: Vec<toml::Table>,
}

/// The response to a message that the vendor accepts, with `@phone`, `@digits` and `@reference` of the message.
#[derive(Deserialize)]
struct Accepted {
    status: u16,
    body: String,
}

/// The response to three messages that the vendor accepts.
#[derive(Deserialize)]
pub(crate) struct AcceptedBatch {
    #[serde(default)]
    settings: String,
    pub(crate) status: u16,
    /// The list of results; without one the result is that of all messages.
    pub(crate) list: Option<String>,
    /// What surrounds the list `@list`.
    pub(crate) whole: String,
    /// One result, with `@phone`, `@digits`, `@bare` (without `86`), `@reference` and `@id` of its message.
    #[serde(default)]
    pub(crate) entry: String,
}

/// The examples of all vendors by name; one without an example file is not among them.
pub(crate) static EXAMPLES: LazyLock<BTreeMap<&str, Example>> = LazyLock::new(|| {
    let read = |kind: &'static str| {
        let path = repository(&format!("config/providers/{kind}.example.toml"));
        let text = fs::read_to_string(&path).ok()?;
        let example = toml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        Some((kind, example))
    };
    builtin().iter().filter_map(|(kind, _)| read(kind)).collect()
});

/// Name, provider, and the accepted response of each vendor.
fn accepted() -> impl Iterator<Item = (&'static str, Provider, u16, &'static str)> {
    EXAMPLES.iter().filter_map(|(kind, example)| {
        let Accepted { status, body } = example.accepted.as_ref()?;
        Some((*kind, provider(kind), *status, body.trim_end()))
    })
}

pub(crate) fn provider(kind: &str) -> Provider {
    section(kind, &format!("kind = '{kind}'\n{}", EXAMPLES[kind].settings))
}

/// A provider that takes several messages per request.
pub(crate) fn batch_provider(kind: &str) -> Provider {
    let example = &EXAMPLES[kind];
    let more = example.batch.as_ref().map_or("", |batch| &batch.settings);
    section(kind, &format!("kind = '{kind}'\n{}\n{more}", example.settings))
}

fn section(kind: &str, source: &str) -> Provider {
    let section: toml::Table = source.parse().expect("TOML");
    let provider = Provider::from_section(kind, &section, &|name| Some(name.to_lowercase()));
    provider.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) static PROVIDERS: LazyLock<Vec<(&str, Provider)>> =
    LazyLock::new(|| accepted().map(|(kind, provider, ..)| (kind, provider)).collect());

pub(crate) fn message() -> Message {
    let params = json!({ "order": "4711" });
    Message {
        phone: Phone::parse("+8613812345678", None).expect("a phone"),
        content: "Hello Anna, 你好".to_owned(),
        reference: "0f7a-ref-1".to_owned(),
        from: None,
        params: params.as_object().expect("an object").clone(),
    }
}

pub(crate) fn context() -> RequestContext {
    RequestContext { now: Timestamp::from_millis(1_700_000_000_000), nonce: 7 }
}

fn filled(body: &str) -> String {
    let message = message();
    body.replace("@phone", message.phone.as_str())
        .replace("@digits", message.phone.digits())
        .replace("@reference", &message.reference)
}

fn answered(provider: &Provider, status: u16, body: impl Into<Bytes>) -> Outcome {
    let mut response = Response::new(body.into());
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    let mut outcomes = provider.parse(&[message()], &response, &context());
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

fn is_accepted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Accepted(_))
}

#[test]
fn every_vendor_builds_a_request_and_accepts_its_response() {
    for (kind, provider, status, body) in accepted() {
        let request = provider.request(&[message()], &context());
        let request = request.unwrap_or_else(|outcome| panic!("{kind}: {outcome:?}"));
        let again = provider.request(&[message()], &context()).expect("a request");
        assert_eq!(request.uri(), again.uri(), "{kind}");
        assert_eq!(request.headers(), again.headers(), "{kind}");
        assert_eq!(request.body(), again.body(), "{kind}");
        let outcome = answered(&provider, status, filled(body));
        let Outcome::Accepted(acceptance) = outcome else {
            panic!("{kind}: {outcome:?}");
        };
        assert_eq!(acceptance.message_id.is_some(), kind != "kannel", "{kind}");
    }
}

#[test]
fn cut_response_is_never_accepted() {
    for (kind, provider, status, body) in accepted() {
        let body = filled(body);
        for end in 0..body.len() {
            let outcome =
                answered(&provider, status, Bytes::copy_from_slice(&body.as_bytes()[..end]));
            assert!(matches!(outcome, Outcome::Unknown(_)), "{kind} {end}: {outcome:?}");
        }
    }
}

#[test]
fn response_of_a_proxy_is_never_accepted() {
    let html = "<html><body><h1>200 OK</h1>Success, message accepted, id 4711</body></html>";
    let large = format!("[{}0]", "0,".repeat(1 << 16));
    let deep = "[".repeat(100_000);
    for (kind, provider, status, _) in accepted() {
        for body in [html, "", "null", "[]", "{}", "\"OK\"", "0", "\u{0}\u{0}", &large, &deep] {
            for status in [status, 200] {
                let outcome = answered(&provider, status, body.to_owned());
                assert!(matches!(outcome, Outcome::Unknown(_)), "{kind} {status}: {outcome:?}");
            }
            for status in [400, 404, 429, 500, 502, 503, 504] {
                assert!(
                    !is_accepted(&answered(&provider, status, body.to_owned())),
                    "{kind} {status}"
                );
            }
        }
    }
}

/// Every place of the document, as pointers.
fn places(json: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match json {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            places(value, &format!("{at}/{key}"), all);
        }),
        Value::Array(list) => list.iter().enumerate().for_each(|(index, value)| {
            places(value, &format!("{at}/{index}"), all);
        }),
        _ => {}
    }
}

#[test]
fn wrong_type_is_accepted_only_with_a_message_id() {
    let wrong = [json!(null), json!({}), json!([]), json!([[7]]), json!({ "a": 1 }), json!("")];
    for (kind, provider, status, body) in accepted() {
        let Ok(whole) = serde_json::from_str::<Value>(&filled(body)) else {
            continue;
        };
        let Outcome::Accepted(right) = answered(&provider, status, whole.to_string()) else {
            panic!("{kind}");
        };
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        for place in all {
            for wrong in &wrong {
                let mut broken = whole.clone();
                *broken.pointer_mut(&place).expect("a place") = wrong.clone();
                match answered(&provider, status, broken.to_string()) {
                    Outcome::Accepted(acceptance) => {
                        assert_eq!(
                            acceptance.message_id, right.message_id,
                            "{kind} {place} {wrong}"
                        );
                    }
                    Outcome::Unknown(_) => {}
                    outcome => panic!("{kind} {place} {wrong}: {outcome:?}"),
                }
            }
        }
    }
}

#[test]
fn long_message_id_is_truncated() {
    for (kind, provider, status, body) in accepted() {
        let id = "x".repeat(10_000);
        let long = [r#""m1""#, r#""s1""#, r#""t1""#, r#""b1""#, r#""SM1""#]
            .iter()
            .fold(filled(body), |body, old| body.replace(old, &format!("\"{id}\"")));
        let outcome = answered(&provider, status, long);
        let Outcome::Accepted(acceptance) = outcome else {
            panic!("{kind}: {outcome:?}");
        };
        assert!(acceptance.message_id.is_none_or(|id| id.len() <= 255), "{kind}");
    }
}

/// The tables of vendors in docs/receipts.md, by the heading above each.
fn tables() -> [(&'static str, String); 2] {
    let mut fetched = String::from(
        "| provider | fetched | switched on | repaired | note |\n| --- | --- | --- | --- | --- |\n",
    );
    let mut posted = String::from(
        "| provider | signature | secret of the webhook | note |\n| --- | --- | --- | --- |\n",
    );
    for (kind, _) in builtin().iter().filter(|(kind, _)| !["generic", "sandbox"].contains(kind)) {
        let Some(section) = builtin_section(kind) else {
            continue;
        };
        let Ok(provider) = Provider::from_section(kind, &section, &|name| Some(name.to_owned()))
        else {
            continue;
        };
        let capabilities = provider.capabilities();
        if let Some(pull) = &capabilities.pull {
            let note = pull.requires.as_deref().unwrap_or_default();
            let shape = pull.source.shape.as_str();
            let is_on = if pull.is_enabled { "yes" } else { "no" };
            let repaired = if pull.recheck.is_some() { "yes" } else { "" };
            let _ = writeln!(fetched, "| `{kind}` | {shape} | {is_on} | {repaired} | {note} |");
        } else {
            let note = if capabilities.receipts {
                "only [posted](#posted-receipts)"
            } else {
                "no receipts"
            };
            let _ = writeln!(fetched, "| `{kind}` | | | | {note} |");
        }
        if let Some(webhook) = &capabilities.webhook {
            let scheme =
                webhook.signature.map_or_else(|| "none".to_owned(), |scheme| format!("`{scheme}`"));
            let secret = section["webhook"].get("secret").map_or_else(String::new, |secret| {
                let name = secret.get("env").unwrap_or(secret).as_str();
                format!("`{}`", name.unwrap_or_default())
            });
            let note = webhook.requires.as_deref().unwrap_or_default();
            let _ = writeln!(posted, "| `{kind}` | {scheme} | {secret} | {note} |");
        }
    }
    [("Providers", fetched), ("Posted receipts", posted)]
}

/// What is missing of a vendor. A new file in `config/providers` needs nothing else.
#[test]
fn every_vendor_has_its_examples_and_its_documentation() {
    let mut missing = String::new();
    for (kind, source) in builtin().iter().filter(|(kind, _)| *kind != "generic") {
        let file = format!("config/providers/{kind}.example.toml");
        let Some(example) = EXAMPLES.get(kind) else {
            let _ = writeln!(
                missing,
                "- {file}: what it answers; config/providers/plivo.example.toml shows how"
            );
            continue;
        };
        let sections: toml::Table = source.parse().expect("TOML");
        let names: Vec<&String> =
            sections["providers"].as_table().expect("a table").keys().collect();
        if names != [kind] {
            let _ = writeln!(
                missing,
                "- config/providers/{kind}.toml: only the section [providers.{kind}]"
            );
        }
        let provider = provider(kind);
        let capabilities = provider.capabilities();
        let pull = capabilities.pull.as_ref();
        let is_listed = pull.is_some_and(|pull| pull.source.shape != PullShape::Ask);
        for (is_missing, part) in [
            (example.accepted.is_none(), "[accepted]: its answer to a message that it accepts"),
            (
                capabilities.max_batch > 1 && *kind != "sandbox" && example.batch.is_none(),
                "[batch]: its answer to several messages",
            ),
            (
                capabilities.webhook.is_some() && example.posted.is_empty(),
                "[[posted]]: receipts and replies that it posts",
            ),
            (
                is_listed && *kind != "sandbox" && example.fetched.is_empty(),
                "[[fetched]]: its answer to the request for receipts",
            ),
        ] {
            if is_missing {
                let _ = writeln!(missing, "- {file}: {part}");
            }
        }
    }
    for (heading, table) in tables() {
        let wrong = wrong_table("docs/receipts.md", heading, &table);
        missing.extend(wrong.map(|wrong| format!("- {wrong}")));
    }
    assert!(missing.is_empty(), "missing for vendors:\n{missing}");
}

pub(crate) fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(OK|Ok|0|000000|SUCCESS|[a-zA-Z0-9+.]{0,12})".prop_map(Value::from),
    ];
    let key = "(Code|code|Response|Error|messages|message|data|errors|id|status|result|items|to|sid|[a-z]{1,4})";
    leaf.prop_recursive(4, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn error_status_never_accepts_and_nothing_panics(
        document in documents(),
        noise in prop::collection::vec(any::<u8>(), 0..200),
        status in prop_oneof![Just(200_u16), Just(201), Just(202), 400_u16..600],
        as_noise: bool,
    ) {
        let body = if as_noise { noise } else { document.to_string().into_bytes() };
        for (kind, provider) in PROVIDERS.iter() {
            let outcome = answered(provider, status, body.clone());
            // With any status, a vendor's code may mean that it already has the message.
            let may_be_known = ["sandbox", "clicksend", "yunpian"].contains(kind);
            prop_assert!(status < 300 || may_be_known || !is_accepted(&outcome), "{}: {:?}", kind, outcome);
        }
    }
}
