//! Fuzzes what every provider makes of an answer, for one message and for a call of several, and of the answer to a
//! look-up: nothing panics, every message has its outcome, and an error is never an acceptance.

#![no_main]

use std::sync::LazyLock;

use bytes::Bytes;
use http::{Response, StatusCode};
use libfuzzer_sys::fuzz_target;
use smsq::phone::Phone;
use smsq::provider::{
    AttemptSpan, LookupResponses, LookupResult, Message, Provider, RequestContext, builtin,
};
use smsq::sms::{Outcome, Timestamp};

static PROVIDERS: LazyLock<Vec<Provider>> = LazyLock::new(|| {
    builtin()
        .iter()
        .filter(|(kind, _)| *kind != "generic")
        .map(|(kind, _)| {
            let more = match *kind {
                "sandbox" => "url = 'http://127.0.0.1:1'",
                "sinch" => "batch = { per_call = 3 }",
                _ => "",
            };
            let section = format!("kind = '{kind}'\n{more}").parse().expect("TOML");
            Provider::from_section(kind, &section, &|name| Some(name.to_owned())).expect(kind)
        })
        .collect()
});

static MESSAGES: LazyLock<Vec<Message>> = LazyLock::new(|| {
    let one = |at: u32| Message {
        phone: Phone::parse(&format!("+861381234567{at}"), None).expect("a phone"),
        content: "Hello Anna".to_owned(),
        reference: format!("ref-{at}"),
        from: None,
        params: serde_json::Map::new(),
    };
    (0..3).map(one).collect()
});

const STATUSES: [u16; 12] = [200, 201, 202, 204, 302, 400, 401, 404, 409, 429, 500, 503];

fuzz_target!(|data: &[u8]| {
    let [which, status, body @ ..] = data else {
        return;
    };
    let provider = &PROVIDERS[usize::from(*which) % PROVIDERS.len()];
    let status = STATUSES[usize::from(*status) % STATUSES.len()];
    let mut response = Response::new(Bytes::copy_from_slice(body));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    let stamp = RequestContext {
        now: Timestamp::from_millis(1_700_009_000_000),
        nonce: 7,
    };
    let count = if provider.max_batch() > 1 { 3 } else { 1 };
    for messages in [&MESSAGES[..1], &MESSAGES[..count]] {
        let outcomes = provider.parse(messages, &response, &stamp);
        assert_eq!(outcomes.len(), messages.len());
        // Some say by a code of their own that they have a message already; an error of the server never does.
        let is_taken = |outcome: &Outcome| matches!(outcome, Outcome::Accepted(_));
        let has_codes = ["generic", "sandbox"].contains(&provider.kind());
        assert!(status < 500 || has_codes || !outcomes.iter().any(is_taken));
        assert!(!body.is_empty() || status == 409 || !outcomes.iter().any(is_taken));
    }
    let sent_at = Timestamp::from_millis(1_700_000_000_000);
    let attempt = AttemptSpan {
        started_after: sent_at,
        started_before: Some(sent_at),
    };
    let answers = LookupResponses {
        responses: &[response],
        asked_at: stamp.now,
        others: &std::collections::BTreeSet::new(),
        unsettled: &[],
    };
    let finding = provider.parse_lookup(&MESSAGES[0], attempt, &answers);
    assert!(status < 300 || status == 404 || matches!(finding, LookupResult::Unclear(_)));
});
