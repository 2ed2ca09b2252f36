//! Bodies of any size: no route keeps more of one in memory than it needs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use regex::Regex;

use super::drafts::upload;
use super::webhooks::{SETTINGS, path_of, sandbox_section};
use super::{Served, configure, request};
use crate::support::{Scratch, repository};

const METHODS: [&str; 5] = ["POST", "PUT", "PATCH", "DELETE", "GET"];
/// What a client sends unless it is stopped: more than the memory that the server may use.
const ENDLESS: usize = 160 << 20;
/// What the server may use while it reads bodies, above what it uses when it is idle.
const ALLOWED: u64 = 64 << 10;

/// An endless body: its content type, its start, and what is repeated.
struct Endless {
    kind: &'static str,
    start: String,
    repeated: String,
}

fn endless() -> Vec<Endless> {
    let multipart = "multipart/form-data; boundary=x";
    let field = |name: &str, value: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let part =
        |kind, start: &str, repeated: String| Endless { kind, start: start.to_owned(), repeated };
    let long = "x".repeat(60 << 10);
    let file =
        "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\nphone\n";
    let text = r#"{"campaign":"c","phone":"+447400123456","text":""#;
    vec![
        part("application/x-www-form-urlencoded", "a=", long.clone()),
        part("application/x-www-form-urlencoded", "", "a=b&".repeat(9_000)),
        part(multipart, "", field("numbers", &long)),
        part(multipart, "", field("text", &long)),
        part(multipart, "", field("column", &long)),
        part(multipart, "", field("column", "a=b").repeat(500)),
        part(multipart, file, "+447400123456\n".repeat(4_000)),
        part(multipart, "--x\r\nContent-Disposition: ", long.clone()),
        part(multipart, "", long.clone()),
        part("application/json", text, long.clone()),
        part("application/json", "[", "[".repeat(60 << 10)),
        part("application/json", "[", format!("{text}x\"}},").repeat(900)),
        part("application/x-ndjson", text, long.clone()),
        part("application/x-ndjson", "", format!("{text}{}\"}}\n", &long[..50 << 10])),
        part("application/octet-stream", "", long),
    ]
}

/// The addresses of all routes, with names and ids that exist where that is possible. `draft`, `receipts`: the addresses
/// of a draft and of posted receipts.
fn addresses(served: &Served, draft: &str, receipts: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let route = Regex::new(r#"\.route\(\s*"([^"]+)""#).expect("a pattern");
    for folder in ["src/serve", "src/serve/pages", "src/serve/pages/draft"] {
        let folder = repository(folder);
        for entry in fs::read_dir(Path::new(&folder)).expect("a folder") {
            let text = fs::read_to_string(entry.expect("an entry").path()).unwrap_or_default();
            paths.extend(route.captures_iter(&text).map(|found| found[1].to_owned()));
        }
    }
    let description = served.api("", "GET", "/openapi.json", "").json();
    let described = description["paths"].as_object().expect("paths");
    paths.extend(described.keys().cloned());
    assert!(paths.len() > 35, "{paths:?}");
    let path = |path: String| {
        path.replace("/new/{id}", draft)
            .replace("/receipts/{provider}/{token}", receipts)
            .replace("{name}", "c")
            .replace("{action}", "pause")
            .replace("{step}", "text")
            .replace("{id}", "1")
    };
    paths.into_iter().map(path).collect()
}

/// Sends a request with an endless body until it is answered; returns whether it was.
fn post(head: &str, body: &Endless, address: &str) -> bool {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let mut output = stream.try_clone().expect("a second handle");
    let is_answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut input = &stream;
            let answered = input.read(&mut [0; 12]).is_ok_and(|read| read > 0);
            is_answered.store(answered, Ordering::Relaxed);
            // Ends a write that waits.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
        let mut sent = 0;
        let mut going = output.write_all(head.as_bytes()).is_ok();
        if !body.start.is_empty() {
            going = going && output.write_all(chunk(&body.start).as_bytes()).is_ok();
        }
        let repeated = chunk(&body.repeated);
        while going && sent < ENDLESS && !is_answered.load(Ordering::Relaxed) {
            going = output.write_all(repeated.as_bytes()).is_ok();
            sent += repeated.len();
        }
        // Whoever has read everything answers, or the end of the connection is the answer.
        let _ = output.shutdown(std::net::Shutdown::Write);
    });
    is_answered.into_inner()
}

/// A line of `/proc/PID/status`, in KiB.
fn memory(served: &Served, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", served.process.id()));
    let status = status.expect("a process");
    let line = status.lines().find(|line| line.starts_with(name));
    let words = line.and_then(|line| line.split_whitespace().nth(1));
    words.and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn endless_bodies_use_little_memory_at_every_route() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", &sandbox_section("http://127.0.0.1:1"));
    let tokens = configure(&scratch, &format!("{SETTINGS}\nlisten = \"127.0.0.1:1\""));
    let receipts = path_of(&scratch, "sandbox");
    let served = Served::again(&scratch, tokens, "127.0.0.1:0");
    let cookie = served.log_in("admin");
    let address = &served.address;
    let draft = upload(&served, &cookie, "list.csv", "phone\n+447400123456\n");
    assert_eq!(request(address, "POST", &receipts, &[], b"x").expect("an answer").status, 400);
    let addresses = addresses(&served, &draft, &receipts);
    assert_eq!(served.page(&cookie, "/").status, 200);
    let idle = memory(&served, "VmRSS:");
    let mut largest = (memory(&served, "VmHWM:"), String::new());
    for path in &addresses {
        for method in METHODS {
            for body in endless() {
                let token = &served.tokens["admin"];
                let head = format!(
                    "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
                     Cookie: {cookie}\r\nOrigin: http://{address}\r\nSec-Fetch-Site: same-origin\r\n\
                     Content-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
                    body.kind
                );
                post(&head, &body, address);
                let peak = memory(&served, "VmHWM:");
                if peak > largest.0 {
                    largest = (peak, format!("{method} {path} {}", body.kind));
                }
            }
        }
    }
    assert_eq!(served.api("", "GET", "/healthz", "").status, 200);
    let (peak, by) = largest;
    assert!(peak < idle + ALLOWED, "{idle} KiB idle, {peak} KiB: {by}");
}

#[test]
fn fields_of_a_form_are_limited_together() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let kind = [("Content-Type", "multipart/form-data; boundary=x")];
    let field = |name: &str, value: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\nphone\n+447400123456\n\r\n--x--\r\n";
    let post =
        |fields: String| served.api_with("send", "POST", "/v1/imports", &kind, &(fields + file));
    let answer = post(field("text", "Hello") + &field("text", "Again")).assert_status(400);
    assert!(answer.body.contains("duplicate field `text`"), "{}", answer.body);
    let column = field("column", &format!("a={}", "b".repeat(60 << 10)));
    let answer = post(column.repeat(30)).assert_status(413);
    assert!(answer.body.contains("larger than 1 MiB together"), "{}", answer.body);
    post(field("text", "Hello") + &field("campaign", "c")).assert_status(202);
}
