//! Fuzzes what every provider makes of an answer, for one message and for a call of several, of the answers to a look-up
//! and to a request for receipts, and of posted receipts: nothing panics, every message has its outcome, an error is
//! never an acceptance, an unsigned request is never believed, and no reason has a phone, a text or a secret.

#![no_main]

mod samples;

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use samples::{check_shown, lossy};
use smsq_message::phone::Phone;
use smsq_message::receipt::Receipt;
use smsq_message::sms::{Acceptance, Failure, Outcome, Timestamp};
use smsq_provider::{
    AttemptSpan, AwaitedMessage, LookupResponses, LookupResult, Message, PostedRequest, Provider,
    ReceiptCursor, ReceiptPath, ReceiptQuery, RequestContext, builtin,
};

struct Fuzzed {
    provider: Provider,
    secrets: Vec<String>,
    /// Answers and posted bodies of the vendor.
    samples: Vec<&'static [u8]>,
}

/// Every provider, and those whose posted receipts are signed once more without a check of the signature.
static PROVIDERS: LazyLock<Vec<Fuzzed>> = LazyLock::new(|| {
    let kinds = builtin().iter().map(|(kind, _)| *kind);
    let kinds = || kinds.clone().filter(|kind| *kind != "generic");
    let mut all: Vec<Fuzzed> = kinds().map(|kind| provider(kind, "")).collect();
    for (index, kind) in kinds().enumerate() {
        let webhook = all[index].provider.webhook();
        if webhook.is_some_and(|webhook| webhook.is_checked) {
            all.push(provider(kind, "webhook = { signature = 'none' }"));
        }
    }
    all
});

fn provider(kind: &'static str, more: &str) -> Fuzzed {
    let needed = match kind {
        "sandbox" => "url = 'http://127.0.0.1:1'",
        "sinch" => "batch = { per_call = 3 }",
        _ => "",
    };
    let section = format!("kind = '{kind}'\n{needed}\n{more}");
    let secrets = Mutex::new(Vec::new());
    let secret = |name: &str| {
        let secret = format!("{name}-f2c8d1");
        secrets.lock().expect("one thread").push(secret.clone());
        Some(secret)
    };
    let section = section.parse().expect("TOML");
    Fuzzed {
        provider: Provider::from_section(kind, &section, &secret).expect(kind),
        secrets: secrets.into_inner().expect("one thread"),
        samples: samples_of(kind),
    }
}

/// The texts of the vendor's example, as inputs without their first byte.
fn samples_of(kind: &str) -> Vec<&'static [u8]> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/providers");
    let example = std::fs::read_to_string(format!("{folder}/{kind}.example.toml"));
    let example: toml::Table = example.unwrap_or_default().parse().expect("TOML");
    let mut texts = Vec::new();
    collect(&toml::Value::Table(example), &mut texts);
    let inputs = texts.into_iter().map(|text| {
        let text = text.replace("@phone", "+8613812345670");
        let text = text.replace("@digits", "8613812345670").replace("@reference", "ref-0");
        let (head, body) = text.split_once("\n\n").unwrap_or(("", &text));
        let query = head.split_once('?').map_or("", |(_, query)| query);
        let query = query.lines().next().unwrap_or_default();
        let input = match query {
            "" => format!("\0\0{body}"),
            query => format!("\0\u{3}{query}\n{body}"),
        };
        &*input.into_bytes().leak()
    });
    inputs.chain([&b"\0\0"[..]]).collect()
}

fn collect(value: &toml::Value, texts: &mut Vec<String>) {
    match value {
        toml::Value::String(text) => texts.push(text.trim().to_owned()),
        toml::Value::Array(list) => list.iter().for_each(|value| collect(value, texts)),
        toml::Value::Table(table) => table.values().for_each(|value| collect(value, texts)),
        _ => {}
    }
}

static SAMPLES: LazyLock<Vec<&[&[u8]]>> =
    LazyLock::new(|| PROVIDERS.iter().map(|fuzzed| &*fuzzed.samples).collect());

const CONTENT: &str = "Hello Anna";
const STATUSES: [u16; 12] = [200, 201, 202, 204, 302, 400, 401, 404, 409, 429, 500, 503];
const NOW: RequestContext =
    RequestContext { now: Timestamp::from_millis(1_700_009_000_000), nonce: 7 };

static MESSAGES: LazyLock<Vec<Message>> = LazyLock::new(|| {
    let one = |at: u32| Message {
        phone: Phone::parse(&format!("+861381234567{at}"), None).expect("a phone"),
        content: CONTENT.to_owned(),
        reference: format!("ref-{at}"),
        from: None,
        params: serde_json::Map::new(),
    };
    (0..3).map(one).collect()
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    samples::mutate(&SAMPLES, &mut data[..max_size], size, seed)
});

// A provider, a status, bits, and where the first bit is set the value of some headers and the query before the body.
fuzz_target!(|data: &[u8]| {
    let [which, status, bits, rest @ ..] = data else {
        return;
    };
    let fuzzed = &PROVIDERS[usize::from(*which) % PROVIDERS.len()];
    let status = STATUSES[usize::from(*status) % STATUSES.len()];
    let end = rest.iter().position(|byte| *byte == b'\n');
    let (head, body) = match end.filter(|_| bits & 1 != 0) {
        Some(end) => (&rest[..end], &rest[end + 1..]),
        None => (&rest[..0], rest),
    };
    let mut response = Response::new(Bytes::copy_from_slice(body));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    if let Ok(value) = HeaderValue::from_bytes(head) {
        response.headers_mut().insert(header::RETRY_AFTER, value.clone());
        response.headers_mut().insert(header::DATE, value);
    }
    match bits >> 1 & 3 {
        0 => fuzzed.send(status, &response),
        1 => fuzzed.post(head, body, bits >> 3),
        2 => fuzzed.fetch(&response),
        _ => fuzzed.look_up(status, response),
    }
});

impl Fuzzed {
    fn send(&self, status: u16, response: &Response<Bytes>) {
        let provider = &self.provider;
        let count = if provider.max_batch() > 1 { 3 } else { 1 };
        for messages in [&MESSAGES[..1], &MESSAGES[..count]] {
            let outcomes = provider.parse(messages, response, &NOW);
            assert_eq!(outcomes.len(), messages.len());
            // Some say by a code of their own that they have a message already; an error of the server never does.
            let is_taken = |outcome: &Outcome| matches!(outcome, Outcome::Accepted(_));
            let has_codes = ["generic", "sandbox"].contains(&provider.kind());
            assert!(status < 500 || has_codes || !outcomes.iter().any(is_taken));
            let body = response.body();
            assert!(!body.is_empty() || status == 409 || !outcomes.iter().any(is_taken));
            for outcome in &outcomes {
                self.check_outcome(outcome);
                check_text(outcome.failure());
            }
        }
    }

    fn look_up(&self, status: u16, response: Response<Bytes>) {
        let sent_at = Timestamp::from_millis(1_700_000_000_000);
        let attempt =
            AttemptSpan { started_after: sent_at, started_before: Some(sent_at), is_only: true };
        let responses = [response];
        let answers = LookupResponses {
            responses: &responses,
            asked_at: NOW.now,
            others: &BTreeSet::new(),
            unsettled: &[],
        };
        let result = self.provider.parse_lookup(&MESSAGES[0], attempt, &answers);
        assert!(status < 300 || status == 404 || matches!(result, LookupResult::Unclear(_)));
        match &result {
            LookupResult::Unclear(failure) => {
                self.check_failure(failure);
                check_text(Some(failure));
            }
            LookupResult::NotAccepted(outcome) => {
                check_text(outcome.failure());
                assert!(!matches!(outcome, Outcome::Accepted(_) | Outcome::Unknown(_)));
                self.check_outcome(outcome);
            }
            LookupResult::Found(acceptance) => check_acceptance(acceptance),
            LookupResult::Absent | LookupResult::TooSoon(_) => {}
        }
        for id in self.provider.lookup_ids(&responses) {
            check_shown(&id, 4_096);
        }
    }

    /// Reads receipts that were asked for, page by page. A page is asked for at the provider only.
    fn fetch(&self, response: &Response<Bytes>) {
        if self.provider.pull().is_none() {
            return;
        }
        let (since, until) = (NOW.now.minus(std::time::Duration::from_secs(60)), NOW.now);
        let page = ReceiptCursor::default();
        let first = ReceiptQuery::Page { since, until, page: &page };
        let awaited = AwaitedMessage {
            phone: &MESSAGES[0].phone,
            reference: "ref-0",
            message_id: Some("SM1"),
            sent_at: since,
        };
        for path in [ReceiptPath::Pull, ReceiptPath::Recheck] {
            for query in [first, ReceiptQuery::Message(&awaited)] {
                let read = self.provider.parse_receipts(path, &query, response, &NOW);
                let page = match read {
                    Ok(page) => page,
                    Err(outcome) => {
                        assert!(!matches!(outcome, Outcome::Accepted(_)));
                        self.check_outcome(&outcome);
                        continue;
                    }
                };
                page.receipts.iter().for_each(|receipt| self.check_receipt(receipt));
                let Some(next) = page.next else { continue };
                assert!(next.page == 1 && next.offset > 0, "{next:?}");
                let query = ReceiptQuery::Page { since, until, page: &next };
                let requests =
                    [first, query].map(|query| self.provider.receipts(path, &query, &NOW));
                let [Ok(first), next] = requests else {
                    continue;
                };
                match next {
                    Ok(next) => assert_eq!(next.uri().authority(), first.uri().authority()),
                    Err(outcome) => self.check_outcome(&outcome),
                }
            }
        }
    }

    fn post(&self, head: &[u8], body: &[u8], bits: u8) {
        let mut headers = HeaderMap::new();
        let kinds = ["application/json", "application/x-www-form-urlencoded", "text/plain"];
        let kind = kinds[usize::from(bits) % kinds.len()];
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Ok(value) = HeaderValue::from_bytes(head) {
            for name in [
                "authorization",
                "x-twilio-signature",
                "messagebird-signature-jwt",
                "telnyx-signature-ed25519",
                "x-plivo-signature-v2",
                "x-sinch-webhook-signature",
                "x-signature",
            ] {
                headers.insert(name, value.clone());
            }
            for name in ["telnyx-timestamp", "x-timestamp", "x-sinch-webhook-signature-timestamp"] {
                headers.insert(name, HeaderValue::from_static("1700009000"));
            }
        }
        let url = format!("https://e.example/r/x/t?{}", lossy(head));
        let posted = PostedRequest {
            method: if bits & 4 == 0 { &Method::POST } else { &Method::GET },
            url: &url,
            headers: &headers,
            body,
            now: NOW.now,
        };
        match self.provider.parse_webhook(&posted) {
            Ok(posted) => {
                // The secrets are not in any input.
                let webhook = self.provider.webhook().expect("it reads posted receipts");
                assert!(!webhook.is_checked, "believed without a signature");
                posted.receipts.iter().for_each(|receipt| self.check_receipt(receipt));
                for reply in &posted.replies {
                    check_shown(&reply.phone, 64);
                    reply.phones("GB".parse().ok());
                    assert!(reply.text.len() <= 4_096);
                }
            }
            Err(error) => check_shown(&error.to_string(), 4_400),
        }
    }

    fn check_receipt(&self, receipt: &Receipt) {
        for id in [&receipt.reference, &receipt.message_id].into_iter().flatten() {
            check_shown(id, 255);
        }
        if let Some(phone) = &receipt.phone {
            check_shown(phone, 64);
        }
        if let Some(failure) = &receipt.failure {
            self.check_failure(failure);
        }
    }

    fn check_outcome(&self, outcome: &Outcome) {
        match (outcome, outcome.failure()) {
            (Outcome::Accepted(acceptance), _) => check_acceptance(acceptance),
            (_, Some(failure)) => self.check_failure(failure),
            _ => {}
        }
        if let Outcome::Throttled { retry_after, .. }
        | Outcome::Deferred { retry_after, .. }
        | Outcome::Unavailable { retry_after, .. } = outcome
        {
            assert!(retry_after.is_none_or(|wait| wait.as_secs() <= 40 * 86_400));
        }
    }

    /// A reason is short, and has no phone or secret.
    fn check_failure(&self, failure: &Failure) {
        check_shown(&failure.reason, 800);
        let digits = failure.reason.split(|c: char| !c.is_ascii_digit());
        assert!(digits.map(str::len).max() < Some(7), "{}", failure.reason);
        if let Some(code) = &failure.code {
            check_shown(code, 64);
        }
        let texts = [Some(&failure.reason), failure.code.as_ref()];
        for text in texts.into_iter().flatten() {
            assert!(!self.secrets.iter().any(|secret| text.contains(secret)), "{text}");
        }
    }
}

/// The reason of a failure does not have the text of the message.
fn check_text(failure: Option<&Failure>) {
    let reason = failure.map_or("", |failure| &failure.reason);
    assert!(!reason.contains(CONTENT), "{reason}");
}

fn check_acceptance(acceptance: &Acceptance) {
    check_shown(acceptance.message_id.as_deref().unwrap_or_default(), 255);
    check_shown(acceptance.price.as_deref().unwrap_or_default(), 32);
    assert!(acceptance.segments.is_none_or(|segments| segments > 0));
}
