//! `smsq check`: whether providers can be reached, and settings that cannot work together.

use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use smsq_sandbox::SandboxConfig;

use crate::support::practice::{Practice, list};
use crate::support::tls::TlsFront;
use crate::support::{Scratch, snapshot};

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address.to_string())
}

/// An address where nothing listens.
fn refusing() -> String {
    listener().1
}

/// A section for a provider at this URL, which needs no secrets.
fn section(name: &str, url: &str) -> String {
    format!("[providers.{name}]\nkind = 'sandbox'\nurl = '{url}'\ntimeout = '5s'\n")
}

/// Accepts one connection, and returns what came on it until it was closed.
fn received(listener: TcpListener) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("it is closed");
        bytes
    })
}

fn provider<'a>(checked: &'a Value, name: &str) -> &'a Value {
    let providers = checked["providers"].as_array().expect("a list");
    let found = providers.iter().find(|provider| provider["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {checked}"))
}

#[test]
fn check_connects_to_each_provider_and_sends_nothing() {
    let (scratch, stranger) = (Scratch::new(), Scratch::new());
    let gateway = Practice::start(SandboxConfig::default());
    let trusted = TlsFront::start(&scratch, &gateway, Duration::ZERO);
    let (plain, address) = listener();
    let (resetting, broken) = listener();
    let resets = std::thread::spawn(move || drop(resetting.accept()));
    let urls = [
        ("plain", format!("http://{address}"), None),
        ("trusted", trusted.url(), None),
        ("refused", format!("http://{}", refusing()), Some("refused")),
        ("broken", format!("https://{broken}"), Some("")),
        ("nowhere", "https://gateway.invalid".to_owned(), Some("dns error")),
    ];
    let sections: String = urls.iter().map(|(name, url, _)| section(name, url)).collect();
    scratch.write("smsq.toml", &format!("default_provider = 'refused'\n{sections}"));
    let bytes = received(plain);
    let ran = scratch.run(["check", "--format", "json"]).assert_code(2);
    let checked = ran.json();
    for (name, url, reason) in &urls {
        let provider = provider(&checked, name);
        assert_eq!(provider["address"], *url, "{ran}");
        assert_eq!(provider["reachable"], reason.is_none(), "{name}: {ran}");
        if let Some(reason) = reason {
            let text = provider["reason"].as_str().expect("a reason");
            assert!(text.starts_with(&format!("cannot reach `{name}` at {url}: ")), "{text}");
            assert!(text.contains(reason), "{text}");
        }
    }
    // Only the default provider would send something now.
    assert_eq!(checked["problems"].as_array().expect("a list").len(), 1, "{ran}");
    assert_eq!(bytes.join().expect("it ends"), b"");
    resets.join().expect("it ends");
    // A folder whose commands do not trust the authority.
    stranger.write("smsq.toml", &section("untrusted", &trusted.url()));
    let ran = stranger.run(["check"]).assert_code(2);
    let hint = "hint: until it is valid, `smsq send` stops its campaigns";
    for text in ["was issued by an authority that this machine does not trust", hint] {
        assert!(ran.stdout().contains(text), "{ran}");
    }
    assert_eq!(gateway.requests(), 0);
}

#[test]
fn unreachable_provider_is_a_problem_where_it_is_used() {
    let scratch = Scratch::new();
    let gateway = Practice::start(SandboxConfig::default());
    let sections =
        [section("cellar", &gateway.url()), section("spare", &format!("http://{}", refusing()))];
    scratch.write("smsq.toml", &format!("default_provider = 'cellar'\n{}", sections.concat()));
    let ran = scratch.run(["check"]).assert_code(0);
    let note = "note     provider       cannot reach `spare` at http://127.0.0.1:";
    assert!(ran.stdout().contains(note), "{ran}");

    scratch.write("list.csv", &list(1));
    let import = ["import", "list.csv", "--text", "Hi", "--campaign", "c", "--provider", "spare"];
    scratch.run(import).assert_code(0);
    let ran = scratch.run(["check"]).assert_code(2);
    let problem = note.replace("note   ", "problem");
    assert!(ran.stdout().contains(&problem), "{ran}");
    assert!(ran.stdout().contains("hint: check `url` in [providers.spare]"), "{ran}");

    // What is not sent because of its campaign is noted.
    scratch.run(["pause", "c"]).assert_code(0);
    let ran = scratch.run(["check"]);
    let note = "note     campaign       campaign `c` has 1 message and sends nothing: paused by `smsq pause`";
    assert!(ran.stdout().contains(note), "{ran}");
}

#[test]
fn providers_are_connected_to_at_the_same_time() {
    let scratch = Scratch::new();
    let ((first, first_at), (second, second_at)) = (listener(), listener());
    // Neither handshake ends before both have begun.
    let both = std::thread::spawn(move || {
        let connections: [std::io::Result<(TcpStream, _)>; 2] = [first.accept(), second.accept()];
        drop(connections);
    });
    let urls = [first_at, second_at].map(|address| format!("https://{address}"));
    scratch.write("smsq.toml", &(section("a", &urls[0]) + &section("b", &urls[1])));
    let checked = scratch.run(["check", "--format", "json"]).json();
    for name in ["a", "b"] {
        let reason = provider(&checked, name)["reason"].as_str().expect("a reason");
        assert!(!reason.contains("not within"), "{reason}");
    }
    both.join().expect("it ends");
}

#[test]
fn silent_provider_is_given_up_after_a_while() {
    let scratch = Scratch::new();
    let (_listener, address) = listener();
    let section = section("cellar", &format!("https://{address}")).replace("5s", "1s");
    scratch.write("smsq.toml", &section);
    snapshot!(scratch.run(["check"]), @r"
    exit 2
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       does not exist yet: `smsq import` creates it
    problem  provider       cannot reach `cellar` at https://127.0.0.1:[PORT]: not within 0.9 s
                            hint: check `url` in [providers.cellar] and the network of this machine; until it is reached, its messages wait; `--offline` does not connect
    ");
}

#[test]
fn offline_check_connects_to_no_provider() {
    let scratch = Scratch::new();
    let (listener, address) = listener();
    listener.set_nonblocking(true).expect("it does not wait");
    scratch.write("smsq.toml", &section("cellar", &format!("http://{address}")));
    let ran = scratch.run(["check", "--offline", "--format", "json"]).assert_code(0);
    assert_eq!(provider(&ran.json(), "cellar")["reachable"], Value::Null, "{ran}");
    let accepted = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(accepted, Err(ErrorKind::WouldBlock));
    snapshot!(scratch.run(["check", "--offline"]), @r"
    exit 0
    ----- stdout
    ok       configuration  smsq.toml
    ok       database       does not exist yet: `smsq import` creates it
    ok       provider       `cellar` at http://127.0.0.1:[PORT], not connected (`--offline`)
    ");
}

#[test]
fn posted_receipts_without_a_server_are_noted() {
    let scratch = Scratch::new();
    let gateway = Practice::start(SandboxConfig::default());
    let configure = |settings: &str| {
        let webhook = "webhook = { enabled = true }\n";
        scratch.write(
            "smsq.toml",
            &format!("{settings}{}{webhook}", section("cellar", &gateway.url())),
        );
        scratch.run(["check"])
    };
    let ran = configure("").assert_code(2);
    assert!(ran.stdout().contains("`serve.receipt_key` is not set"), "{ran}");

    let (server, address) = listener();
    let settings =
        format!("serve = {{ receipt_key = '{}', listen = '{address}' }}\n", "k".repeat(32));
    let note = "posts receipts to `smsq serve`, which does not run";
    let ran = configure(&settings);
    assert!(!ran.stdout().contains(note), "{ran}");
    drop(server);
    let ran = configure(&settings);
    assert!(ran.stdout().contains(note), "{ran}");
}

#[test]
fn rate_of_zero_is_an_error() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", &(section("cellar", "http://127.0.0.1:1") + "rate = '0/s'\n"));
    let ran = scratch.run(["check"]).assert_code(2);
    assert!(ran.stdout().contains("invalid `rate`"), "{ran}");
}
