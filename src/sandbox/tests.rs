//! The gateway over the loopback interface, used through its provider.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use smsq_message::phone::Phone;
use smsq_message::sms::{Class, Outcome, Timestamp};
use smsq_provider::client::Client as HttpClient;
use smsq_provider::{Message, Provider, RequestContext};

use super::counters::Stats;
use super::faults::{FaultRate, Faults, Outage};
use super::{Sandbox, SandboxConfig};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

struct Client {
    provider: Provider,
    gateway: HttpClient,
}

impl Client {
    fn of(sandbox: &Sandbox) -> Self {
        let url = sandbox.url();
        let section = format!("kind = 'sandbox'\nurl = '{url}'\ntimeout = '300ms'");
        let section = section.parse().expect("toml");
        let provider = Provider::from_section("sandbox", &section, &|_| None).expect("a provider");
        let gateway = HttpClient::new(&provider).expect("a gateway");
        Self { provider, gateway }
    }

    async fn send(&self, to: &str, reference: &str) -> Outcome {
        let message = [Message {
            phone: Phone::parse(to, None).expect("a phone"),
            content: "hello".to_owned(),
            reference: reference.to_owned(),
            from: None,
            params: serde_json::Map::new(),
        }];
        let context = RequestContext { now: Timestamp::from_millis(0), nonce: 0 };
        let request = self.provider.request(&message, &context).expect("a request");
        match self.gateway.send(request).await {
            Ok(answer) => {
                let mut outcomes = self.provider.parse(&message, &answer, &context);
                outcomes.pop().expect("one outcome")
            }
            Err(outcome) => outcome,
        }
    }

    async fn look(&self, sandbox: &Sandbox, path: &str) -> Response<Bytes> {
        let mut request = Request::new(Bytes::new());
        let uri = format!("{}{path}", sandbox.url());
        *request.uri_mut() = uri.parse().expect("a url");
        self.gateway.send(request).await.expect("a response")
    }
}

fn start(faults: Faults) -> (Sandbox, Client) {
    let config = SandboxConfig { faults, ..SandboxConfig::default() };
    let sandbox = Sandbox::start(ANY, config).expect("a free port");
    let client = Client::of(&sandbox);
    (sandbox, client)
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Accepted(acceptance) => format!("accepted {}", acceptance.segments.unwrap_or(0)),
        Outcome::Duplicate(_) => "duplicate".to_owned(),
        Outcome::Rejected(failure) => failure.class.to_string(),
        Outcome::Throttled { retry_after, .. } => format!("throttled {retry_after:?}"),
        Outcome::Deferred { .. } => "deferred".to_owned(),
        Outcome::BatchRejected(_) => "batch rejected".to_owned(),
        Outcome::Unavailable { .. } => "unavailable".to_owned(),
        Outcome::Unknown(_) => Class::Unknown.to_string(),
        Outcome::AccountError { listed, .. } => format!("account error {listed}"),
    }
}

#[tokio::test]
async fn reserved_numbers_trigger_their_faults() {
    let (sandbox, client) = start(Faults::default());
    for (digits, first, second) in [
        ("0", "unknown", "accepted 1"),
        ("1", "recipient", "recipient"),
        ("2", "opted_out", "opted_out"),
        ("3", "unavailable", "accepted 1"),
        ("4", "throttled Some(1s)", "accepted 1"),
        ("5", "unknown", "accepted 1"),
        ("6", "unknown", "accepted 1"),
        ("7", "unknown", "accepted 1"),
        ("8", "unavailable", "unavailable"),
        ("9", "account error true", "account error true"),
    ] {
        let to = format!("+1500555{digits}000");
        let outcomes = [client.send(&to, digits).await, client.send(&to, digits).await];
        assert_eq!(outcomes.each_ref().map(word), [first, second], "{digits}");
    }
    let seen = sandbox.stats();
    let stats = Stats {
        requests: 20,
        accepted: 6,
        distinct_references: 6,
        distinct_recipients: 6,
        repeated: 0,
        max_in_any_second: seen.max_in_any_second,
        calls: 20,
        ..Stats::default()
    };
    assert_eq!(seen, stats);
    sandbox.stop().await;
}

#[tokio::test]
async fn numbers_that_only_end_like_reserved_ones_are_accepted() {
    let (sandbox, client) = start(Faults::default());
    for to in ["+447400120009", "+447405551000", "+12025559000", "+8613800000001", "+8615005559000"]
    {
        assert_eq!(word(&client.send(to, to).await), "accepted 1", "{to}");
    }
    sandbox.stop().await;
}

#[tokio::test]
async fn stats_and_messages_are_returned() {
    let (sandbox, client) = start(Faults::default());
    for reference in ["a", "b", "b"] {
        client.send("+8613800001234", reference).await;
    }
    let stats = client.look(&sandbox, "/stats").await;
    let keys: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(stats.body()).expect("JSON");
    let keys: Vec<(&str, u64)> =
        keys.iter().map(|(key, value)| (key.as_str(), value.as_u64().expect("a count"))).collect();
    assert_eq!(
        keys,
        [
            ("requests", 3),
            ("accepted", 2),
            ("distinct_references", 2),
            ("distinct_recipients", 1),
            ("repeated", 1),
            ("max_in_any_second", sandbox.stats().max_in_any_second),
            ("calls", 3),
            ("receipts", 0),
            ("receipts_posted", 0),
        ]
    );
    let page = client.look(&sandbox, "/messages?reference=b").await;
    let page: serde_json::Value = serde_json::from_slice(page.body()).expect("JSON");
    assert_eq!(page.as_array().map(Vec::len), Some(1));
    assert_eq!(page[0]["reference"], "b");
    assert_eq!(page[0]["to"], "+8613800001234");
    assert_eq!(page[0]["id"], "SB000002");
    assert_eq!(client.look(&sandbox, "/nowhere").await.status(), 404);
    assert_eq!(sandbox.stats().requests, 3);
    sandbox.stop().await;
}

#[tokio::test]
async fn port_in_use_is_an_error() {
    let (sandbox, _) = start(Faults::default());
    let address = sandbox.address();
    let error = Sandbox::start(address, SandboxConfig::default()).err();
    let kind = error.map(|error| error.kind());
    assert_eq!(kind, Some(std::io::ErrorKind::AddrInUse));
    sandbox.stop().await;
    let again = Sandbox::start(address, SandboxConfig::default()).expect("free again");
    again.stop().await;
}

#[tokio::test]
async fn invalid_messages_are_rejected_and_counted() {
    let (sandbox, client) = start(Faults::default());
    for body in ["", "{", "[]", r#"{"to":"+8613800001234"}"#, r#"{"to":"x","text":"a"}"#] {
        let mut request = Request::new(Bytes::from_static(body.as_bytes()));
        *request.method_mut() = http::Method::POST;
        let uri = format!("{}/messages", sandbox.url());
        *request.uri_mut() = uri.parse().expect("a url");
        let answer = client.gateway.send(request).await.expect("a response");
        assert_eq!(answer.status(), 400, "{body}");
    }
    let stats = sandbox.stats();
    assert_eq!((stats.requests, stats.accepted), (5, 0));
    sandbox.stop().await;
}

#[tokio::test]
async fn faults_by_rate_apply_to_messages() {
    let always = || FaultRate::Part(1.0);
    let none = Faults::default;
    for (faults, expected, accepted) in [
        (Faults { unavailable: always(), ..none() }, "unavailable", 0),
        (Faults { throttle: always(), ..none() }, "throttled Some(1s)", 0),
        (Faults { no_answer: always(), ..none() }, "unknown", 1),
        (Faults { slow: always(), ..none() }, "unknown", 1),
        (Faults { broken: always(), ..none() }, "unknown", 1),
        (Faults { account_from: Some(1), ..none() }, "account error true", 0),
        (
            Faults { outage: Outage::try_from("1 for 1min".to_owned()).ok(), ..none() },
            "unavailable",
            0,
        ),
    ] {
        let (sandbox, client) = start(faults);
        let outcome = client.send("+8613800001234", "r").await;
        assert_eq!(word(&outcome), expected);
        assert_eq!(sandbox.stats().accepted, accepted, "{expected}");
        sandbox.stop().await;
    }
}

#[tokio::test]
async fn gateway_reopens_its_port_after_refusing() {
    let (sandbox, client) = start(Faults {
        refuse: Outage::try_from("1 for 200ms".to_owned()).ok(),
        ..Faults::default()
    });
    let started_at = Instant::now();
    assert_eq!(word(&client.send("+8613800001234", "a").await), "accepted 1");
    let mut refused = 0_u32;
    loop {
        match word(&client.send("+8613800001234", "b").await).as_str() {
            "accepted 1" if refused > 0 => break,
            // It responds until it closes the connection, which may cut off a request.
            "accepted 1" | "unknown" => {}
            "unavailable" => refused += 1,
            other => panic!("{other}"),
        }
        assert!(started_at.elapsed() < Duration::from_secs(20));
    }
    assert!(started_at.elapsed() >= Duration::from_millis(200));
    assert_eq!(sandbox.stats().accepted, 2);
    sandbox.stop().await;
}

#[tokio::test]
async fn messages_over_the_limit_are_throttled() {
    let config = SandboxConfig {
        limit: NonZeroU32::new(2),
        latency: Duration::from_millis(1),
        jitter: Duration::from_millis(1),
        ..SandboxConfig::default()
    };
    let sandbox = Sandbox::start(ANY, config).expect("a free port");
    let client = Client::of(&sandbox);
    let mut words = Vec::new();
    for reference in ["a", "b", "c"] {
        words.push(word(&client.send("+8613800001234", reference).await));
    }
    assert_eq!(words, ["accepted 1", "accepted 1", "throttled Some(1s)"]);
    sandbox.stop().await;
}

#[tokio::test]
async fn stop_does_not_wait_for_slow_responses() {
    let (sandbox, client) = start(Faults {
        slow: FaultRate::Part(1.0),
        slow_for: Some(Duration::from_secs(3_600)),
        ..Faults::default()
    });
    let address = sandbox.address();
    client.send("+8613800001234", "a").await;
    sandbox.stop().await;
    assert_eq!(word(&client.send("+8613800001234", "b").await), "unavailable");
    assert!(tokio::net::TcpListener::bind(address).await.is_ok());
}

#[tokio::test]
async fn receipts_and_states_are_returned() {
    let faults = Faults::from_toml("f", "[receipts]\nundelivered = 'every 2'\n").expect("faults");
    let (sandbox, client) = start(faults);
    for reference in ["a", "b", "c"] {
        client.send("+8613800001234", reference).await;
    }
    let json = async |path: &str| -> serde_json::Value {
        let answer = client.look(&sandbox, path).await;
        serde_json::from_slice(answer.body()).expect("JSON")
    };
    let states = |list: &serde_json::Value| -> Vec<String> {
        let all = list.as_array().expect("a list").iter();
        all.map(|one| format!("{} {}", one["reference"].as_str().unwrap_or("-"), one["state"]))
            .collect()
    };
    let expected = [r#"a "delivered""#, r#"b "undelivered""#, r#"c "delivered""#];
    // In two pages, and each receipt once.
    let first = json("/receipts?limit=2").await;
    assert_eq!(states(&first["receipts"]), expected[..2]);
    assert_eq!(first["receipts"][1]["code"], "absent");
    let second = json("/receipts").await;
    assert_eq!(states(&second["receipts"]), expected[2..]);
    assert_eq!(json("/receipts").await["receipts"], serde_json::json!([]));
    // The same from the repeatable list.
    let page = json("/messages?since=0&limit=2").await;
    assert_eq!(states(&page["messages"]), expected[..2]);
    assert_eq!(page["next"], 2);
    let page = json("/messages?since=0&limit=2&page=2").await;
    assert_eq!(states(&page["messages"]), expected[2..]);
    assert_eq!(page["next"], serde_json::Value::Null);
    let none = json("/messages?since=2999-01-01T00:00:00Z").await;
    assert_eq!(none["messages"], serde_json::json!([]));
    assert_eq!(json("/messages/SB000002").await["state"], "undelivered");
    assert_eq!(client.look(&sandbox, "/messages/SB9").await.status(), 404);
    assert_eq!(client.look(&sandbox, "/messages?since=x").await.status(), 400);
    assert_eq!(states(&json("/outcomes").await), expected);
    sandbox.stop().await;
}
