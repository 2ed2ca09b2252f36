//! Answers that leave it open whether a message was accepted: redirects, cut errors to several messages, second answers on
//! kept connections, and texts that no table of codes has. What was accepted is counted at the gateways.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::Scratch;
use crate::support::databases::with_every_database;
use crate::support::practice::list;
use crate::support::timed_provider::{Received, Reply, TimedProvider, read};

const SEND: [&str; 4] = ["send", "--quiet", "--concurrency", "4"];

/// The settings of all tests: many attempts and probes within a short time.
const FAST: &str = "[circuit_breaker]\nfirst_probe = \"10ms\"\nmax_probe = \"20ms\"\n\
                    [retry]\nfirst_wait = \"10ms\"\nmax_wait = \"20ms\"\n";

/// How often each phone was accepted.
#[derive(Clone, Default)]
struct Accepted(Arc<Mutex<BTreeMap<String, u32>>>);

impl Accepted {
    fn add(&self, phone: &str) {
        let mut counts = self.0.lock().expect("not poisoned");
        *counts.entry(phone.to_owned()).or_default() += 1;
    }

    fn count(&self) -> usize {
        self.0.lock().expect("not poisoned").len()
    }

    fn assert_none_twice(&self) {
        let counts = self.0.lock().expect("not poisoned");
        let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}

/// The last part of the path of a request.
fn phone_of(received: &Received) -> &str {
    let path = received.line.split(' ').nth(1).unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

/// A provider that gets the phone in the path.
fn section(name: &str, url: &str) -> String {
    format!(
        r#"
[providers.{name}]
kind = "generic"
url = "{url}/{{{{ phone | digits }}}}"
json = {{ text = "{{{{ content }}}}" }}
message_id = "/id"
error_code = "/code"
codes = {{ 21211 = {{ class = "recipient", reason = "invalid number" }} }}
timeout = "5s"
"#
    )
}

fn send_twice(scratch: &Scratch) -> Value {
    for _ in 0..2 {
        let ran = scratch.run(SEND);
        assert!(matches!(ran.code(), Some(1 | 3)), "{ran}");
    }
    scratch.checked_status(Some("c"))
}

/// Accepts every message, and answers every third request with one of these statuses.
fn accepts_and_redirects(accepted: &Accepted) -> TimedProvider {
    const STATUSES: [&str; 10] = [
        "302 Found\r\nlocation: /thanks",
        "303 See Other\r\nlocation: /thanks",
        "300 Multiple Choices",
        "304 Not Modified",
        "305 Use Proxy",
        "306 Unused",
        "409 Conflict",
        "425 Too Early",
        "418 I'm a teapot",
        "499 Client Closed Request",
    ];
    let accepted = accepted.clone();
    TimedProvider::start(None, move |received, earlier| {
        accepted.add(phone_of(received));
        match earlier % 3 {
            2 => Reply::Status(STATUSES[earlier / 3 % STATUSES.len()]),
            _ => Reply::Json(format!(r#"{{"id":"m{earlier}"}}"#)),
        }
    })
}

#[test]
fn redirect_after_acceptance_is_not_sent_again() {
    with_every_database(|db| {
        let accepted = Accepted::default();
        let gateway = accepts_and_redirects(&accepted);
        let scratch = Scratch::at(&db.url);
        scratch.write("smsq.toml", &format!("{FAST}{}", section("a", &gateway.url())));
        scratch.import(&list(60));
        let status = send_twice(&scratch);
        assert_eq!(status["unknown"], 20, "{status}");
        assert_eq!(status["sent"], 40, "{status}");
        assert_eq!(gateway.sends(), 60);
        accepted.assert_none_twice();
    });
}

#[test]
fn redirect_after_acceptance_never_moves_on_a_route() {
    with_every_database(|db| {
        let accepted = Accepted::default();
        let gateways = [(); 2].map(|()| accepts_and_redirects(&accepted));
        let scratch = Scratch::at(&db.url);
        let mut text = FAST.to_owned();
        for (name, gateway) in ["a", "b"].into_iter().zip(&gateways) {
            text.push_str(&section(name, &gateway.url()));
        }
        let _ = write!(
            text,
            "[routes.main]\nelse = \"a\"\nfallback = [\"b\"]\nfallback_after = \"10ms\"\n"
        );
        scratch.write("smsq.toml", &text);
        scratch.write("list.csv", &list(60));
        scratch
            .run(
                "import list.csv --text Hello --campaign c --route main"
                    .split(' ')
                    .collect::<Vec<_>>(),
            )
            .assert_code(0);
        let status = send_twice(&scratch);
        assert_eq!(accepted.count(), 60);
        accepted.assert_none_twice();
        assert_eq!(status["failed"], 0, "{status}");
    });
}

/// How the answer to several messages ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Whole,
    /// Shorter than its header says.
    Cut,
    /// Without a length: nothing but its JSON shows that it is cut.
    Closed,
    /// The rest does not come in time.
    Slow,
    /// Longer than 1 MiB.
    Long,
}

impl Ending {
    fn reply(self, body: &str) -> Reply {
        let half = &body[..body.len() / 2];
        let answer = |length: usize, body: &str| {
            let head = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {length}\r\n\r\n");
            format!("{head}{body}").into_bytes()
        };
        match self {
            Self::Whole => Reply::Raw(answer(body.len(), body)),
            Self::Cut => Reply::Raw(answer(body.len(), half)),
            Self::Closed => {
                Reply::Raw(format!("HTTP/1.1 400 Bad Request\r\n\r\n{half}").into_bytes())
            }
            Self::Slow => Reply::Unfinished(answer(body.len(), half)),
            Self::Long => {
                let long = format!("{}{body}", " ".repeat(1 << 20));
                Reply::Raw(answer(long.len(), &long))
            }
        }
    }
}

/// Accepts messages that come alone. Of several it rejects the first one, and answers 400 with the list of all.
fn accepts_batches(accepted: &Accepted, ending: Ending) -> TimedProvider {
    let accepted = accepted.clone();
    TimedProvider::start(None, move |received, _| {
        let body: Value = serde_json::from_str(&received.body).expect("JSON");
        let messages = body["messages"].as_array().expect("a list");
        let is_batch = messages.len() > 1;
        let result = |(index, message): (usize, &Value)| {
            let to = message["to"].as_str().expect("a phone");
            if is_batch && index == 0 {
                return json!({ "to": to, "error": "blocked" });
            }
            accepted.add(to);
            json!({ "to": to, "id": format!("id-{to}") })
        };
        let results: Vec<Value> = messages.iter().enumerate().map(result).collect();
        let answer = json!({ "results": results }).to_string();
        if is_batch { ending.reply(&answer) } else { Reply::Json(answer) }
    })
}

#[test]
fn incomplete_error_to_several_messages_sends_none_twice() {
    for ending in [Ending::Whole, Ending::Cut, Ending::Closed, Ending::Slow, Ending::Long] {
        with_every_database(|db| {
            let accepted = Accepted::default();
            let gateway = accepts_batches(&accepted, ending);
            let scratch = Scratch::at(&db.url);
            let section = batch_section(&gateway.url());
            scratch.write("smsq.toml", &format!("{FAST}{section}"));
            scratch.import(&list(24));
            for _ in 0..2 {
                scratch.run(SEND);
            }
            let status = scratch.checked_status(Some("c"));
            accepted.assert_none_twice();
            let is_batch = |body: &String| body.matches("\"to\"").count() > 1;
            assert!(gateway.bodies().iter().any(is_batch), "{ending:?}");
            assert!(status["unknown"].as_u64() > Some(0), "{ending:?} {status}");
        });
    }
}

/// A provider that takes several messages at once.
fn batch_section(url: &str) -> String {
    format!(
        r#"
[providers.a]
kind = "generic"
url = "{url}"
json = {{ messages = [{{ to = "{{{{ phone }}}}", text = "{{{{ content }}}}" }}] }}
message_id = "/results/*/id"
error_code = "/results/*/error"
codes = {{ blocked = {{ class = "recipient" }} }}
timeout = "1s"
[providers.a.batch]
per_call = 8
repeat = "json.messages"
results = "/results"
matches = {{ "/to" = "{{{{ phone }}}}" }}
"#
    )
}

/// A gateway that keeps its connections, accepts every message, and answers every third request on a used connection with
/// a second answer to the request before.
struct AnswersTwice {
    address: SocketAddr,
    /// How many requests got such an answer.
    strays: Arc<Mutex<usize>>,
}

impl AnswersTwice {
    fn start(accepted: &Accepted) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let gateway =
            Self { address: listener.local_addr().expect("an address"), strays: Arc::default() };
        let (accepted, strays) = (accepted.clone(), Arc::clone(&gateway.strays));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (accepted, strays) = (accepted.clone(), Arc::clone(&strays));
                std::thread::spawn(move || converse(&stream, &accepted, &strays));
            }
        });
        gateway
    }

    fn strays(&self) -> usize {
        *self.strays.lock().expect("not poisoned")
    }
}

fn converse(mut stream: &TcpStream, accepted: &Accepted, strays: &Mutex<usize>) {
    // A proxy's page, and a code of the table.
    const STRAYS: [&str; 2] = ["<h1>Bad Request</h1>", r#"{"code":"21211"}"#];
    let mut earlier = 0;
    while let Some(received) = read(stream) {
        accepted.add(phone_of(&received));
        if earlier % 3 == 2 {
            let mut strays = strays.lock().expect("not poisoned");
            let body = STRAYS[*strays % STRAYS.len()];
            *strays += 1;
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 400 Bad Request\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            drop(stream.write_all(answer.as_bytes()));
            return;
        }
        let answer = "HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\n{\"id\":\"m\"}";
        drop(stream.write_all(answer.as_bytes()));
        earlier += 1;
    }
}

#[test]
fn second_answer_on_a_kept_connection_fails_no_message() {
    with_every_database(|db| {
        let accepted = Accepted::default();
        let gateway = AnswersTwice::start(&accepted);
        let scratch = Scratch::at(&db.url);
        let section = section("a", &format!("http://{}", gateway.address));
        scratch.write("smsq.toml", &format!("{FAST}{section}"));
        scratch.import(&list(60));
        let status = send_twice(&scratch);
        let strays = gateway.strays();
        assert!(strays > 0);
        assert_eq!(status["failed"], 0, "{status}");
        assert_eq!(status["unknown"], strays, "{status}");
        assert_eq!(status["sent"], 60 - strays, "{status}");
        accepted.assert_none_twice();
    });
}

/// Sends 200 messages through a provider that accepts none, and returns the campaign's status.
fn send_in_vain(database: &str, section: &str) -> Value {
    let scratch = Scratch::at(database);
    scratch.write("smsq.toml", &format!("{FAST}{section}"));
    scratch.write("key", "key");
    scratch.import(&list(200));
    scratch.run(SEND).assert_code(3);
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["state"], "stopped", "{status}");
    status
}

#[test]
fn same_unlisted_text_in_unknown_answers_stops_the_campaign() {
    with_every_database(|db| {
        let gateway = TimedProvider::start(None, |_, earlier| {
            let trace = earlier * 7_919;
            Reply::Json(format!(r#"{{"trace":"t-{trace:x}0","error":"sender not allowed"}}"#))
        });
        let status = send_in_vain(&db.url, &section("a", &gateway.url()));
        // Those in flight at the last one, of at most four, end as it does.
        let unknown = status["unknown"].as_u64().expect("a count");
        assert!((20..=23).contains(&unknown), "{status}");
        assert_eq!(gateway.sends() as u64, unknown);
        let reason = status["state_reason"].as_str().unwrap_or_default();
        let expected = "`a` gave the same unlisted answer 20 times in a row: ";
        assert!(reason.starts_with(expected), "{status}");
        assert!(reason.contains("sender not allowed"), "{status}");
    });
}

#[test]
fn outage_of_a_provider_does_not_stop_the_campaign() {
    let gateway = TimedProvider::start(None, |_, earlier| match earlier {
        0..=40 => Reply::Status("502 Bad Gateway"),
        _ => Reply::Json(format!(r#"{{"id":"m{earlier}"}}"#)),
    });
    let scratch = Scratch::new();
    let section = section("a", &gateway.url());
    scratch.write("smsq.toml", &format!("{FAST}{section}"));
    scratch.import(&list(60));
    scratch.run(SEND).assert_code(1);
    let status = scratch.checked_status(Some("c"));
    assert_eq!(status["unknown"], 41, "{status}");
    assert_eq!(status["sent"], 19, "{status}");
}

#[test]
fn message_without_recipients_refuses_the_account() {
    with_every_database(|db| {
        let gateway = TimedProvider::start(None, |_, _| {
            let body =
                json!({ "SMSMessageData": { "Message": "InvalidSenderId", "Recipients": [] } });
            Reply::Full("201 Created", body.to_string())
        });
        let section = format!(
            "[providers.africas-talking]\nurl = \"{}\"\nfrom = \"SHOP\"\n\
             secrets = {{ username = {{ file = \"key\" }}, api_key = {{ file = \"key\" }} }}\n",
            gateway.url()
        );
        let status = send_in_vain(&db.url, &section);
        assert_eq!(status["queued"], 200, "{status}");
        assert!(gateway.sends() <= 4, "{}", gateway.sends());
        let reason = status["state_reason"].as_str().unwrap_or_default();
        assert!(reason.contains("the sender is not allowed"), "{status}");
    });
}
