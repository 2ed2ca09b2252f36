//! Fuzzes what operators write: sections of providers and whole configuration files. What is accepted makes requests and
//! reads answers, and what is wrong is said without secrets.

#![no_main]

mod samples;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use samples::{MemoryFile, lossy};
use smsq::config::{Config, Flags};
use smsq_message::phone::Phone;
use smsq_message::sms::Timestamp;
use smsq_provider::{
    AttemptSpan, LookupResponses, Message, PostedRequest, Provider, RequestContext, builtin,
};

const SECRET: &str = "f2c8d1-secret";

const FILES: &[&[u8]] = &[
    b"default_region = 'GB'\n[sender]\nconcurrency = 4\n[providers.x]\nkind = 'sandbox'\nurl = 'http://127.0.0.1:1'\n[prices.x]\nother = 0.1\n",
    b"[database]\nurl = 'sqlite://a.db'\n[retry]\nmax_attempts = 5\n[serve]\nlisten = '127.0.0.1:0'\npublic_url = 'http://a'\ntokens = ['a:read:00']\n",
    b"[receipts]\n[log]\n[import]\nmax_rejects = '5%'\nnumbers = 'national'\n[retention]\nolder_than = '90d'\n[redis]\npassword = 'f2c8d1-secret'\n",
];

/// The sections of all vendors in parts, which are samples of sections.
static SAMPLES: LazyLock<[&[&[u8]]; 2]> = LazyLock::new(|| {
    let sections = builtin().iter().filter_map(|(kind, _)| {
        let section = smsq_provider::builtin_section(kind)?;
        let text = toml::to_string(&section).expect("TOML").into_bytes();
        Some(&*text.leak())
    });
    let whole = [
        &b"url = 'http://a/send'\nmethod = 'POST'\nform = { to = '{{ phone }}', text = '{{ content }}' }\nmessage_id = '/id'\ncodes = { 1 = 'accepted' }\n"[..],
        b"kind = 'generic'\nurl = 'http://a/{{ secret.key }}'\nsecrets = { key = 'f2c8d1-secret' }\njson = '{\"a\":\"{{ content }}\"}'\n[webhook]\nsignature = 'twilio'\nsecret = 'key'\n",
    ];
    let sections: Vec<&[u8]> = whole.into_iter().chain(sections.map(|text| &*text)).collect();
    [sections.leak(), FILES]
});

static FILE: LazyLock<MemoryFile> = LazyLock::new(MemoryFile::create);

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    samples::mutate(&*SAMPLES, &mut data[..max_size], size, seed)
});

fuzz_target!(|data: &[u8]| match data {
    [which, text @ ..] if which % 2 == 0 => section(&lossy(text)),
    [_, text @ ..] => file(text),
    [] => {}
});

fn section(text: &str) {
    let Ok(section) = text.parse::<toml::Table>() else {
        return;
    };
    let is_used = Cell::new(false);
    let environment = |name: &str| {
        let value = name.len().is_multiple_of(2).then(|| SECRET.to_owned());
        is_used.set(is_used.get() || value.is_some());
        value
    };
    match Provider::from_section("x", &section, &environment) {
        Ok(provider) => {
            work(&provider);
            assert!(!is_used.get() || !provider.hide_secrets(SECRET).contains(SECRET));
        }
        Err(error) => check_error(&error.to_string(), text),
    }
}

/// Sends a message, and reads an answer, a look-up and a posted receipt.
fn work(provider: &Provider) {
    let message = Message {
        phone: Phone::parse("+447400123456", None).expect("a phone"),
        content: "Hello Anna".to_owned(),
        reference: "ref-1".to_owned(),
        from: None,
        params: serde_json::Map::new(),
    };
    let messages = std::slice::from_ref(&message);
    let context = RequestContext { now: Timestamp::from_millis(1_700_000_000_000), nonce: 7 };
    if let Ok(request) = provider.request(messages, &context) {
        assert!(request.uri().host().is_some());
    }
    let body = r#"{"id":"SM1","to":"447400123456","status":"sent","code":1,"messages":[{"id":"a","status":"0"}]}"#;
    let response = Response::new(Bytes::from_static(body.as_bytes()));
    assert_eq!(provider.parse(messages, &response, &context).len(), 1);
    let attempt = AttemptSpan {
        started_after: context.now,
        started_before: Some(context.now),
        is_only: true,
    };
    let _ = provider.lookup(&message, attempt, &context);
    let responses = [response];
    let answers = LookupResponses {
        responses: &responses,
        asked_at: context.now,
        others: &std::collections::BTreeSet::new(),
        unsettled: &[],
    };
    let _ = provider.parse_lookup(&message, attempt, &answers);
    let posted = PostedRequest {
        method: &Method::POST,
        url: "https://e.example/r/x/t?id=SM1&status=sent",
        headers: &HeaderMap::new(),
        body: body.as_bytes(),
        now: context.now,
    };
    let _ = provider.parse_webhook(&posted);
}

fn file(text: &[u8]) {
    FILE.write(text);
    let flags = Flags { config: Some(FILE.path.clone()), ..Flags::default() };
    match Config::load(&flags, &BTreeMap::new()) {
        Ok(config) => assert!(config.providers.len() >= builtin().len() - 1),
        Err(error) => check_error(&error.to_string(), &lossy(text)),
    }
}

/// An error is short, and has no value of a secret.
fn check_error(error: &str, text: &str) {
    assert!(error.len() <= 1_500 + text.len(), "{error}");
    let is_secret = |line: &str| {
        line.contains(SECRET)
            && ["password", "key", "secrets"].iter().any(|key| line.trim_start().starts_with(key))
    };
    let has_only_secret =
        text.matches(SECRET).count() == text.lines().filter(|line| is_secret(line)).count();
    assert!(!error.contains(SECRET) || !has_only_secret, "{error}");
}
