//! What stands still: the database, and clients that do not read or do not send. The server answers, and ends in time.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use smsq_prove::proxy::Proxy;

use super::{Served, configure, request};
use crate::support::Scratch;
use crate::support::databases::{Database, Kind, with_every_database};
use crate::support::practice::{Practice, list, with_latency};
use crate::support::proxy::{proxy_to, url_through};
use crate::support::shell::Lock;
use crate::support::waiting::{PATIENCE, eventually};

/// A database that another program or a stalled disk brings to a stand.
enum Standstill {
    Locked(Option<Lock>),
    Still(Proxy),
}

impl Standstill {
    /// A folder whose configuration names the database.
    fn of(db: &Database) -> (Scratch, Self) {
        if db.kind == Kind::Sqlite {
            return (Scratch::new(), Self::Locked(None));
        }
        let proxy = proxy_to(db);
        (Scratch::at(&url_through(&proxy, db)), Self::Still(proxy))
    }

    fn begin(&mut self, scratch: &Scratch) {
        match self {
            Self::Locked(lock) => *lock = Some(Lock::hold(scratch)),
            Self::Still(proxy) => proxy.stand_still(),
        }
    }

    fn end(&mut self) {
        match self {
            Self::Locked(lock) => *lock = None,
            Self::Still(proxy) => proxy.go_on(),
        }
    }
}

fn message(number: usize) -> String {
    format!(
        r#"{{"phone":"+4474001{number:05}","text":"a","dedupe_key":"{number}","campaign":"new-{number}"}}"#
    )
}

#[test]
fn standstill_of_the_database_is_answered_and_loses_nothing() {
    const CLIENTS: usize = 8;
    with_every_database(|db| {
        let (scratch, mut standstill) = Standstill::of(db);
        let tokens = configure(&scratch, "");
        let mut served = Served::again(&scratch, tokens.clone(), "127.0.0.1:0");
        assert_eq!(served.post(&message(0)).status, 202);
        assert_eq!(served.api("", "GET", "/readyz", "").status, 200);
        standstill.begin(&scratch);
        std::thread::scope(|scope| {
            let posts = (1..=CLIENTS).map(|number| {
                let served = &served;
                scope.spawn(move || served.post(&message(number)))
            });
            for answer in posts.collect::<Vec<_>>() {
                let answer = answer.join().expect("an answer").assert_status(503);
                assert!(answer.header("retry-after").is_some(), "{:?}", answer.headers);
                assert_eq!(answer.json()["status"], 503);
            }
        });
        assert_eq!(served.api("", "GET", "/readyz", "").status, 503);
        assert_eq!(served.api("", "GET", "/healthz", "").status, 200);
        // It ends although the database does not answer, and while a request waits for it.
        let address = served.address.clone();
        let last = message(CLIENTS + 1);
        let bearer = format!("Bearer {}", tokens["send"]);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let headers = [("Authorization", bearer.as_str())];
                request(&address, "POST", "/v1/messages", &headers, last.as_bytes())
            });
            served.process.signal(Signal::TERM);
            served.process.ended().assert_code(0);
            let answer = waiting.join().expect("no panic");
            assert!(answer.is_none_or(|answer| answer.status == 503));
        });
        standstill.end();
        // What was not answered is posted again: each message is there once.
        let served = Served::again(&scratch, tokens, "127.0.0.1:0");
        let mut ids = BTreeSet::new();
        for number in 0..=CLIENTS + 1 {
            let answer = served.post(&message(number));
            assert!([200, 202].contains(&answer.status), "{}", answer.body);
            ids.insert(answer.json()["id"].as_str().expect("an id").to_owned());
        }
        assert_eq!(ids.len(), CLIENTS + 2);
        assert_eq!(scratch.checked_status(None)["imported"], CLIENTS + 2);
    });
}

/// A worker that sends stores nothing for as long, so that it ends in time only if it does not wait for its commit.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn worker_ends_while_its_database_stands_still() {
    const MESSAGES: u64 = 300;
    with_every_database(|db| {
        for line in ["serve --listen 127.0.0.1:0 --send", "send --follow"] {
            let (scratch, mut standstill) = Standstill::of(db);
            let gateway = Practice::start(with_latency(100));
            gateway.without_references("").configure(&scratch);
            let campaign = line.split(' ').next().expect("a command");
            scratch.write("list.csv", &list(MESSAGES));
            let import =
                ["import", "--again", "list.csv", "--text", "Hello", "--campaign", campaign];
            scratch.run(import).assert_code(0);
            let mut running = scratch.start(line.split(' ').chain(["--rate", "50/s"]));
            eventually("it sends", || gateway.accepted() >= 20);
            standstill.begin(&scratch);
            let before = gateway.accepted();
            running.signal(Signal::TERM);
            let began = Instant::now();
            let ran = running.ended();
            assert!(began.elapsed() < ENDS_WITHIN, "{line}: {ran}");
            assert!(gateway.accepted() < MESSAGES && gateway.accepted() >= before);
            standstill.end();
            // What it knew and could not store is beside the database.
            let ran = scratch.run(["send", "--campaign", campaign]);
            assert_eq!(ran.code(), Some(0), "{line}: {ran}");
            gateway.assert_each_once(MESSAGES);
        }
    });
}

#[test]
fn health_is_answered_while_clients_read_nothing() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    // As many as may be connected, each with more responses than the system buffers.
    let head = format!("GET /style.css HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
    let requests = head.repeat(1_000);
    let deaf: Vec<TcpStream> = (0..512)
        .map(|_| {
            let mut stream = TcpStream::connect(&served.address).expect("connects");
            stream.set_nonblocking(true).expect("does not block");
            // The server stops to read when it cannot write.
            let _ = stream.write(requests.as_bytes());
            stream
        })
        .collect();
    // Whatever has been accepted meanwhile.
    let health = || request(&served.address, "GET", "/healthz", &[], b"");
    for _ in 0..20 {
        eventually("the health is answered", || {
            health().is_some_and(|answer| answer.status == 200)
        });
    }
    // Clients that take nothing are disconnected, and then others have their places.
    eventually("a message is taken", || {
        let answer = request(
            &served.address,
            "POST",
            "/v1/messages",
            &[("Authorization", &format!("Bearer {}", served.tokens["send"]))],
            br#"{"phone":"+447400123456","text":"a"}"#,
        );
        answer.is_some_and(|answer| answer.status == 202)
    });
    drop(deaf);
}

/// Sends a head that announces a body, but no body; returns the response.
fn announce(address: &str, head: &str, length: usize) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let head = format!("{head}Host: {address}\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the head");
    let mut answer = Vec::new();
    // It may be closed with bytes that were not read.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn token_and_address_are_checked_before_a_body() {
    let scratch = Scratch::new();
    let served = Served::with(&scratch, "receipt_key = \"a long random text\"");
    for (head, expected) in [
        ("POST /v1/messages HTTP/1.1\r\n", "401"),
        ("POST /v1/messages HTTP/1.1\r\nAuthorization: Bearer wrong\r\n", "401"),
        ("POST /receipts/cellar/wrong HTTP/1.1\r\n", "404"),
        ("POST /nothing HTTP/1.1\r\n", "404"),
        ("POST /suppression HTTP/1.1\r\n", "401"),
        ("POST /login HTTP/1.1\r\n", "403"),
    ] {
        for length in [100, 1_000_000] {
            let answer = announce(&served.address, head, length);
            let status = answer.split(' ').nth(1);
            assert_eq!(status, Some(expected), "{head}: {answer}");
        }
    }
}

#[test]
fn small_body_is_read_although_it_is_refused() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let mut stream = TcpStream::connect(&served.address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let body = "x".repeat(10_000);
    let post = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{body}",
        served.address,
        body.len()
    );
    // The connection stays usable.
    for _ in 0..3 {
        stream.write_all(post.as_bytes()).expect("a request");
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).expect("an answer");
            assert_ne!(read, 0, "it was closed: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..read]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&answer));
    }
}

#[test]
fn form_is_limited_to_the_size_of_forms() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let answer = served.try_log_in(&"x".repeat(100_000)).assert_status(413);
    let detail: Value = answer.json();
    assert!(detail["detail"].as_str().expect("a text").contains("64 KiB"), "{detail}");
}
