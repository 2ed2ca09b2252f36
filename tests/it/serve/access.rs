//! Attacks on the server: without a token, with the wrong one, from pages of other sites, with too much of everything.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;

use sha2::{Digest as _, Sha256};
use smsq_sandbox::SandboxConfig;

use super::{Served, configure, request};
use crate::support::Scratch;
use crate::support::html::attribute;
use crate::support::practice::Practice;

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

fn campaign(scratch: &Scratch) {
    scratch.import("phone\n+447400123456\n");
}

#[test]
fn pages_need_a_log_in() {
    let scratch = Scratch::new();
    campaign(&scratch);
    let served = Served::start(&scratch);
    for path in [
        "/",
        "/campaigns/c",
        "/campaigns/c/pause",
        "/campaigns/c/failed.csv",
        "/campaigns/c/report.html",
        "/search?phone=%2B447400123456",
        "/suppression",
        "/audit",
    ] {
        for cookie in ["", "=", "=YXxhZG1pbnw5OTk5OTk5OTk5OXxh.AAAA", "=%00"] {
            let (_, port) = served.address.split_once(':').expect("a port");
            let answer = served.page(&format!("smsq-{port}{cookie}"), path);
            assert_eq!(answer.status, 401, "{path} {cookie}");
            assert!(answer.body.contains("Access token"), "{path}");
            assert!(!answer.body.contains("44740"), "{path}");
        }
    }
    // The token of a program is not a cookie.
    let answer = served.api("admin", "GET", "/", "");
    assert_eq!(answer.status, 401);
}

#[test]
fn api_needs_a_token_with_the_role() {
    let scratch = Scratch::new();
    campaign(&scratch);
    let served = Served::start(&scratch);
    let message = r#"{"phone":"+447400123456","text":"a"}"#;
    for (role, expected) in [("", 401), ("read", 403), ("operate", 403), ("send", 202)] {
        let answer = served.api(role, "POST", "/v1/messages", message);
        assert_eq!(answer.status, expected, "{role}: {}", answer.body);
    }
    let cookie = served.log_in("admin");
    let headers = [("Cookie", cookie.as_str()), ("Sec-Fetch-Site", "same-origin")];
    let answer = request(&served.address, "POST", "/v1/messages", &headers, message.as_bytes());
    assert_eq!(answer.expect("an answer").status, 401, "the API ignores cookies");
    for bad in ["Bearer", "Bearer ", "Basic YTpi", "Bearer wrong"] {
        let headers = [("Authorization", bad)];
        let answer = request(&served.address, "GET", "/v1/campaigns", &headers, b"");
        assert_eq!(answer.expect("an answer").status, 401, "{bad}");
    }
}

#[test]
fn viewer_changes_nothing_and_sees_no_phones() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").imported("phone\n+447400123456\n+15005551000\n");
    scratch.run(["send", "--quiet"]).assert_code(1);
    let served = Served::start(&scratch);
    let (viewer, operator) = (served.log_in("read"), served.log_in("operate"));
    let page = served.until_shown(&viewer, "/campaigns/c", "Who was not reached");
    assert!(page.contains("+150****1000"), "{page}");
    for path in [
        "/campaigns/c",
        "/campaigns/c/failed.csv",
        "/campaigns/c/sent.csv",
        "/campaigns/c/report.html",
    ] {
        let body = served.page(&viewer, path).body;
        assert!(!body.contains("5005551000") && !body.contains("447400123456"), "{path}: {body}");
        assert!(!body.contains("Hello"), "{path}: {body}");
    }
    served.until_shown(&operator, "/campaigns/c", "+15005551000");
    let csv = served.page(&operator, "/campaigns/c/failed.csv").body;
    assert!(csv.contains("+15005551000"), "{csv}");
    for path in ["/campaigns/c/pause", "/campaigns/c/cancel", "/campaigns/c/retry", "/suppression"]
    {
        let answer = served.submit(&viewer, path, "name=c&phone=%2B447400123499");
        assert_eq!(answer.status, 403, "{path}: {}", answer.body);
    }
    assert_eq!(served.page(&viewer, "/suppression").status, 403);
    assert_eq!(served.page(&viewer, "/campaigns/c/pause").status, 403);
    let refused = served.try_log_in(&served.tokens["send"]);
    assert_eq!(refused.status, 401, "a token that only sends shows no pages");
}

#[test]
fn page_of_another_site_cannot_change_anything() {
    let scratch = Scratch::new();
    campaign(&scratch);
    let (served, cookie) = Served::logged_in(&scratch, "admin");
    let own = format!("http://{}", served.address);
    let pause = |headers: &[(&str, &str)]| {
        let mut all = vec![("Cookie", cookie.as_str()), FORM];
        all.extend(headers);
        let answer = request(&served.address, "POST", "/campaigns/c/pause", &all, b"");
        answer.expect("an answer").status
    };
    for headers in [
        vec![],
        vec![("Sec-Fetch-Site", "cross-site")],
        vec![("Sec-Fetch-Site", "same-site")],
        vec![("Sec-Fetch-Site", "cross-site"), ("Origin", own.as_str())],
        vec![("Origin", "http://evil.example")],
        vec![("Origin", "null")],
        vec![("Referer", own.as_str())],
    ] {
        assert_eq!(pause(&headers), 403, "{headers:?}");
    }
    assert_eq!(scratch.checked_status(Some("c"))["state"], "active");
    assert_eq!(pause(&[("Origin", own.as_str())]), 200);
    assert_eq!(scratch.checked_status(Some("c"))["state"], "paused");
    // A log-in from another site would put its visitor into another's session.
    let body = format!("token={}", served.tokens["admin"]);
    let headers = [("Sec-Fetch-Site", "cross-site"), FORM];
    let answer = request(&served.address, "POST", "/login", &headers, body.as_bytes());
    assert_eq!(answer.expect("an answer").status, 403);
}

#[test]
fn name_of_another_host_is_refused() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    for host in ["evil.example", "evil.example:8026", "localhost.evil.example", "a b", ""] {
        let answer = request(&served.address, "GET", "/", &[("Host", host)], b"");
        let status = answer.map_or(400, |answer| answer.status);
        assert!([400, 421].contains(&status), "{host}: {status}");
    }
    let port = served.address.rsplit(':').next().expect("a port");
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}")] {
        let answer = request(&served.address, "GET", "/", &[("Host", &host)], b"");
        assert_eq!(answer.expect("an answer").status, 401, "{host}");
    }
    // Probes name what they like.
    let answer = request(&served.address, "GET", "/healthz", &[("Host", "pod")], b"");
    assert_eq!(answer.expect("an answer").status, 200);
}

#[test]
fn wrong_tokens_are_logged_and_delay_no_right_one() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let refused = (0..5).map(|index| served.try_log_in(&format!("wrong{index}")).status);
    assert_eq!(refused.collect::<Vec<_>>(), [401; 5]);
    assert_eq!(served.try_log_in("wrong").status, 429);
    let headers = [("Authorization", "Bearer wrong")];
    let answer = request(&served.address, "GET", "/v1/campaigns", &headers, b"");
    assert_eq!(answer.expect("an answer").status, 429);
    // Others at the address of an attacker are not locked out.
    assert_eq!(served.try_log_in(&served.tokens["admin"]).status, 303);
    assert_eq!(served.api("read", "GET", "/v1/campaigns", "").status, 200);
    let ran = served.stop();
    let log = ran.stderr();
    assert_eq!(log.matches("access token was refused").count(), 5, "{ran}");
    assert!(log.contains("127.0.0.1"), "{ran}");
    assert!(!log.contains("wrong"), "{ran}");
}

#[test]
fn proxy_on_another_machine_tells_the_address_of_its_client() {
    let scratch = Scratch::new();
    // A program of this machine, in the place of the proxy.
    let served = Served::with(&scratch, "trusted_proxies = [\"10.0.0.0/8\", \"127.0.0.1\"]");
    let headers = [
        ("Authorization", "Bearer wrong"),
        ("X-Forwarded-For", "198.51.100.1, 203.0.113.7, 10.0.0.9"),
    ];
    let answer = request(&served.address, "GET", "/v1/campaigns", &headers, b"");
    assert_eq!(answer.expect("an answer").status, 401);
    let ran = served.stop();
    assert!(ran.stderr().contains("203.0.113.7"), "{ran}");
}

#[test]
fn session_ends_on_the_server_when_its_browser_logs_out() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let (cookie, other) = (served.log_in("read"), served.log_in("read"));
    assert_eq!(served.page(&cookie, "/audit").status, 200);
    assert_eq!(served.submit(&cookie, "/logout", "").status, 303);
    assert_eq!(served.page(&cookie, "/audit").status, 401);
    assert_eq!(served.page(&other, "/audit").status, 200);
}

/// Reads a terminal up to the end of the first line.
fn first_line(terminal: &mut File) -> String {
    let (mut line, mut piece) = (String::new(), [0; 1024]);
    while !line.contains('\n') {
        let read = terminal.read(&mut piece).expect("a line");
        line.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    line.lines().next().unwrap_or_default().trim().to_owned()
}

#[test]
fn link_is_printed_at_a_terminal_and_logs_in_once() {
    let scratch = Scratch::new();
    let (_process, mut terminal) = scratch.start_at_terminal(["serve", "--listen", "127.0.0.1:0"]);
    let line = first_line(&mut terminal);
    let (url, token) = line.split_once("/#token=").expect("a link");
    let address = url.trim_start_matches("http://");
    let log_in = || {
        let form = format!("token={token}");
        let headers = [FORM, ("Sec-Fetch-Site", "same-origin")];
        request(address, "POST", "/login", &headers, form.as_bytes()).expect("an answer")
    };
    let answer = log_in();
    assert_eq!(answer.status, 303);
    let cookie = answer.cookie();
    let page = request(address, "GET", "/", &[("Cookie", cookie.as_str())], b"");
    let page = page.expect("a page").body;
    assert!(page.contains("local (admin)"), "{page}");
    assert_eq!(log_in().status, 401);
}

#[test]
fn link_is_in_no_file_and_not_for_others() {
    let scratch = Scratch::new();
    let mut process = scratch.start(["serve", "--listen", "127.0.0.1:0"]);
    assert!(!process.first_line().contains("token"));
    process.signal(rustix::process::Signal::TERM);
    let ran = process.ended();
    assert!(ran.stderr().contains("no log-in is possible yet"), "{ran}");
    // Others could use it before the person at the terminal.
    configure(&scratch, "");
    let (mut process, mut terminal) = scratch.start_at_terminal(["serve", "--listen", "0.0.0.0:0"]);
    let line = first_line(&mut terminal);
    assert!(line.starts_with("http://") && !line.contains("token"), "{line}");
    process.signal(rustix::process::Signal::TERM);
    let ran = process.ended();
    assert!(ran.stderr().contains("log in with a token"), "{ran}");
}

#[test]
fn log_in_leads_back_to_the_page_that_asked_for_it() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let page = served.page("", "/campaigns/c/pause").assert_status(401);
    let next = attribute(&page.body, "[name=next]", "value");
    assert_eq!(next.as_deref(), Some("/campaigns/c/pause"));
    for (next, leads_to) in [("/campaigns/c/pause", "/campaigns/c/pause"), ("//evil", "/")] {
        let form = format!("token={}&next={next}", served.tokens["operate"]);
        let answer = served.submit("", "/login", &form).assert_status(303);
        assert_eq!(answer.header("location"), Some(leads_to));
    }
}

#[test]
fn downloads_of_phones_are_in_the_audit_log() {
    let scratch = Scratch::new();
    campaign(&scratch);
    let (served, cookie) = Served::logged_in(&scratch, "operate");
    assert_eq!(served.page(&cookie, "/campaigns/c/sent.csv").status, 200);
    let failed = served.api("admin", "GET", "/v1/campaigns/c/report.csv", "");
    assert_eq!(failed.status, 200);
    // A viewer gets no phones.
    let viewer = served.log_in("read");
    assert_eq!(served.page(&viewer, "/campaigns/c/sent.csv").status, 200);
    let audit = served.page(&viewer, "/audit").body;
    assert_eq!(audit.matches("<td>download</td>").count(), 2, "{audit}");
    for detail in [
        "downloaded the sent messages of <code>c</code>",
        "downloaded the failed messages of <code>c</code>",
    ] {
        assert!(audit.contains(detail), "{detail}: {audit}");
    }
}

#[test]
fn every_response_forbids_scripts_and_frames_of_others() {
    let scratch = Scratch::new();
    campaign(&scratch);
    let (served, cookie) = Served::logged_in(&scratch, "admin");
    for path in [
        "/",
        "/style.css",
        "/page.js",
        "/campaigns/c",
        "/campaigns/c/report.html",
        "/nothing",
        "/healthz",
    ] {
        let answer = served.page(&cookie, path);
        let policy = answer.header("content-security-policy").expect(path);
        assert!(policy.contains("default-src 'none'"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(!policy.contains("script-src 'unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
    }
    let page = served.page(&cookie, "/");
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert!(!page.body.contains("<script>") && !page.body.contains("onclick"), "{}", page.body);
}

#[test]
fn texts_of_others_are_escaped_everywhere() {
    let gateway = Practice::start(SandboxConfig::default());
    let scratch = gateway.without_references("").scratch();
    let evil = "<script>alert(1)</script>";
    let name = "a\"><script>alert(2)</script>";
    let list = format!("phone,name\n+15005551000,{evil}\n+15005551001,\"=cmd|' /C calc'!A0\"\n");
    scratch.write("list.csv", &list);
    scratch.run(["import", "list.csv", "--text", "{{ name }}", "--campaign", name]).assert_code(0);
    scratch.run(["send", "--quiet"]).assert_code(1);
    let (served, cookie) = Served::logged_in(&scratch, "operate");
    let path = "/campaigns/a%22%3E%3Cscript%3Ealert%282%29%3C%2Fscript%3E";
    let page = served.until_shown(&cookie, path, "Who was not reached");
    assert!(page.contains("&lt;script&gt;"), "{page}");
    for path in ["/", path, &format!("{path}/cancel"), &format!("{path}/report.html"), "/audit"] {
        let body = served.page(&cookie, path).body;
        assert!(!body.contains("<script>alert"), "{path}: {body}");
    }
    let wrong = served.submit(&cookie, &format!("{path}/cancel"), "name=%3Cscript%3Ealert(3)");
    assert_eq!(wrong.status, 400);
    assert!(!wrong.body.contains("<script>alert"), "{}", wrong.body);
    let csv = served.page(&cookie, &format!("{path}/failed.csv"));
    assert!(csv.body.contains("'=cmd"), "{}", csv.body);
    let disposition = csv.header("content-disposition").expect("an attachment");
    assert!(!disposition.contains('<') && !disposition.contains("\"><"), "{disposition}");
    let search = served.page(&cookie, "/search?phone=%3Cscript%3Ealert(4)%3C%2Fscript%3E");
    assert_eq!(search.status, 400);
    assert!(!search.body.contains("<script>alert"), "{}", search.body);
}

#[test]
fn too_large_requests_are_refused() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let large = "x".repeat(2 << 20);
    served.api("send", "POST", "/v1/messages", &large).assert_status(413);
    // A head that never ends.
    let mut stream = TcpStream::connect(&served.address).expect("connects");
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    let part = vec![b'a'; 64 << 10];
    let closed = (0..160).any(|_| stream.write_all(&part).is_err());
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let is_refused = String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 431");
    assert!(closed || is_refused || read.is_err(), "10 MB were taken");
    let many: Vec<(String, String)> =
        (0..200).map(|n| (format!("X-{n}"), "1".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let answer = request(&served.address, "GET", "/", &many, b"");
    assert_eq!(answer.map_or(431, |answer| answer.status), 431);
    let long = format!("/search?phone={}", "1".repeat(70_000));
    let answer = request(&served.address, "GET", &long, &[], b"");
    assert!(answer.is_none_or(|answer| [414, 431].contains(&answer.status)));
    assert_eq!(served.post(r#"{"phone":"+447400123456","text":"a"}"#).status, 202);
}

#[test]
fn unfinished_requests_do_not_stop_others() {
    let scratch = Scratch::new();
    let served = Served::start(&scratch);
    let idle: Vec<TcpStream> = (0..600)
        .map_while(|_| {
            let mut stream = TcpStream::connect(&served.address).ok()?;
            stream.write_all(b"GET / HTT").ok()?;
            Some(stream)
        })
        .collect();
    // They are closed after a while, and then others are served.
    assert_eq!(served.post(r#"{"phone":"+447400123456","text":"a"}"#).status, 202);
    drop(idle);
}

#[test]
fn address_for_others_needs_a_token() {
    let scratch = Scratch::new();
    let ran = scratch.run(["serve", "--listen", "0.0.0.0:0"]);
    crate::support::snapshot!(ran, @r"
    exit 2
    ----- stderr
    error: others can reach `0.0.0.0:0`, and no token is set
    hint: `smsq serve token NAME --role ROLE` makes one; or listen on 127.0.0.1
    ");
    let tokens = configure(&scratch, "");
    let served = Served::again(&scratch, tokens, "0.0.0.0:0");
    let port = served.address.rsplit(':').next().expect("a port").to_owned();
    let answer = request(&format!("127.0.0.1:{port}"), "GET", "/metrics", &[], b"");
    assert_eq!(answer.expect("an answer").status, 401, "metrics need a token");
}

#[test]
fn tokens_are_in_no_log() {
    let scratch = Scratch::new();
    let tokens = configure(&scratch, "receipt_key = \"a long random text\"");
    let mut process = scratch.start(["serve", "--listen", "127.0.0.1:0", "-vv"]);
    let url = process.first_line();
    let address = url.trim_start_matches("http://");
    let bearer = format!("Bearer {}", tokens["send"]);
    let headers = [("Authorization", bearer.as_str())];
    for path in ["/v1/campaigns", "/receipts/cellar/wrong-token"] {
        request(address, "GET", path, &headers, b"").expect("an answer");
    }
    let form = format!("token={}", tokens["admin"]);
    request(address, "POST", "/login", &[FORM, ("Sec-Fetch-Site", "same-origin")], form.as_bytes());
    process.signal(rustix::process::Signal::TERM);
    let ran = process.ended().assert_code(0);
    for secret in
        [tokens["send"].as_str(), tokens["admin"].as_str(), "a long random text", "wrong-token"]
    {
        assert!(!ran.stderr().contains(secret), "{ran}");
    }
}

#[test]
fn wrong_settings_and_arguments_are_explained() {
    let scratch = Scratch::new();
    let token = |name: &str, text: &str| {
        let hash = hex::encode(Sha256::digest(text));
        format!("tokens = [\"{name}:read:{hash}\"]")
    };
    for (setting, expected) in [
        ("tokens = [\"ann\"]", "serve.tokens"),
        ("listen = \"here\"", "serve.listen"),
        ("public_url = \"ftp://x\"", "serve.public_url"),
        ("max_waiting = 0", "serve.max_waiting"),
        ("max_campaigns = 0", "serve.max_campaigns"),
        ("port = 1", "serve.port"),
        ("trusted_proxies = [\"proxy\"]", "serve.trusted_proxies"),
        ("receipt_key = \"short\"", "at least 16 characters"),
        (&token("ann", "test"), "that of `ann` is a word that anybody can guess"),
        (&token("worker", "x"), "a name other than `worker`"),
        ("tokens = [\"ann:read:{hash}\", \"ann:send:{hash}\"]", "two tokens are named `ann`"),
    ] {
        let setting = setting.replace("{hash}", &"ab".repeat(32));
        scratch.write("smsq.toml", &format!("[serve]\n{setting}\n"));
        let ran = scratch.run(["serve"]);
        assert_eq!(ran.code(), Some(2), "{setting}: {ran}");
        assert!(ran.stderr().contains(expected), "{setting}: {ran}");
    }
    scratch.write("smsq.toml", "");
    for line in [
        vec!["serve", "token", "a b", "--role", "read"],
        vec!["serve", "token", "ann"],
        vec!["serve", "token", "local", "--role", "read"],
        vec!["serve", "token", "ann", "--role", "root"],
        vec!["serve", "urls"],
        vec!["serve", "--listen", "nowhere"],
    ] {
        let ran = scratch.run(line.iter().copied());
        assert_eq!(ran.code(), Some(2), "{line:?}: {ran}");
    }
}
