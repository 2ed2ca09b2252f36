//! Delivery receipts and replies that are posted to the server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use base64::Engine as _;

use super::{Served, configure, request};
use crate::support::databases::with_every_database;
use crate::support::practice::list;
use crate::support::receiver::{Receiver, SECRET};
use crate::support::scripted::Scripted;
use crate::support::waiting::eventually;
use crate::support::{Gateway, Scratch};

pub(super) const SETTINGS: &str = "receipt_key = \"a long random text\"";

/// A free port, for a server that must be named before it runs.
pub(super) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").to_string()
}

pub(super) fn sandbox_section(gateway: &str) -> String {
    format!(
        "default_provider = \"sandbox\"\n[providers.sandbox]\nurl = \"{gateway}\"\n\
         [providers.sandbox.webhook]\nenabled = true\n[providers.sandbox.receipts]\nenabled = false\n"
    )
}

/// The path of the URL for the receipts of a provider.
pub(super) fn path_of(scratch: &Scratch, provider: &str) -> String {
    let urls = scratch.run(["serve", "urls", "--format", "json"]).json();
    let url = urls[provider].as_str().unwrap_or_else(|| panic!("{urls}"));
    let (_, path) = url.split_once("/receipts/").expect("a path");
    format!("/receipts/{path}")
}

#[test]
fn posted_receipts_decide_what_became_of_messages() {
    with_every_database(|db| {
        let scratch = Scratch::at(&db.url);
        let address = free_address();
        scratch.write("smsq.toml", &sandbox_section("http://127.0.0.1:1"));
        let tokens = configure(&scratch, &format!("{SETTINGS}\nlisten = \"{address}\""));
        let url = format!("http://{address}{}", path_of(&scratch, "sandbox"));
        scratch.write("faults.toml", "[receipts]\ndoubled = \"every 3\"\nundelivered = \"every 5\"\nintermediate = \"every 2\"\n");
        let gateway = Gateway::start(&scratch, &["--receipts-to", &url, "--faults", "faults.toml"]);
        let config = scratch.read("smsq.toml").replace("http://127.0.0.1:1", &gateway.url);
        scratch.write("smsq.toml", &config);
        let served = Served::again(&scratch, tokens, &address);
        scratch.import(&list(20));
        scratch.run(["send", "--quiet"]).assert_code(0);
        eventually("every receipt is applied", || {
            let delivery = scratch.checked_status(Some("c"))["delivery"].clone();
            delivery["awaiting"] == 0
                && delivery["delivered"].as_u64().unwrap_or(0) > 0
                && delivery["undelivered"].as_u64().unwrap_or(0) > 0
        });
        let metrics = served.api("", "GET", "/metrics", "").body;
        assert!(
            metrics.contains(r#"smsq_receipts_total{provider="sandbox",via="webhook"}"#),
            "{metrics}"
        );
    });
}

#[test]
fn secret_of_the_url_is_in_no_reason() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", &sandbox_section("http://127.0.0.1:1"));
    configure(&scratch, SETTINGS);
    let path = path_of(&scratch, "sandbox");
    let (_, token) = path.rsplit_once('/').expect("a token");
    // Vendors quote the address that they refuse.
    let answer = format!(
        r#"{{"error":{{"code":"x21","message":"bad callback https://sms.example.net{path}"}}}}"#
    );
    let gateway = Scripted::start("400 Bad Request", &answer);
    let config = scratch.read("smsq.toml");
    let config = config.replace("http://127.0.0.1:1", &gateway.url());
    scratch.write("smsq.toml", &config);
    scratch.import(&list(1));
    scratch.run(["send", "--quiet"]).assert_code(1);
    let failures = scratch.failures("c");
    assert_eq!(failures[0]["code"], "x21", "{failures:?}");
    assert!(!format!("{failures:?}").contains(token), "{failures:?}");
}

#[test]
fn receipts_without_the_secret_of_the_url_are_refused() {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", &sandbox_section("http://127.0.0.1:1"));
    let served = Served::with(&scratch, SETTINGS);
    let path = path_of(&scratch, "sandbox");
    let json = [("Content-Type", "application/json")];
    let post = |path: &str, body: &str| {
        let answer = request(&served.address, "POST", path, &json, body.as_bytes());
        answer.expect("an answer").status
    };
    assert_eq!(post(&path, "[]"), 200);
    for wrong in ["/receipts/sandbox/x", "/receipts/other/x", &path.replace("sandbox", "twilio")] {
        assert_eq!(post(wrong, "[]"), 404, "{wrong}");
    }
    assert_eq!(post(&path, "{"), 400);
}

#[test]
fn requests_have_the_address_for_receipts() {
    let gateway = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = gateway.local_addr().expect("an address");
    let scratch = Scratch::new();
    let config = format!(
        "default_provider = \"kannel\"\n[providers.kannel]\nurl = \"http://{address}/cgi-bin/sendsms\"\n\
         from = \"SHOP\"\nwebhook = {{ enabled = true }}\n\
         secrets = {{ username = {{ file = \"secret\" }}, password = {{ file = \"secret\" }} }}\n\
         [serve]\n{SETTINGS}\npublic_url = \"https://sms.example.net/smsq\"\n"
    );
    scratch.write("smsq.toml", &config);
    scratch.write("secret", "s");
    scratch.import(&list(1));
    let path = path_of(&scratch, "kannel");
    let sending = scratch.start(["send", "--quiet"]);
    let (mut client, _) = gateway.accept().expect("a request");
    let mut request = BufReader::new(client.try_clone().expect("a handle"));
    let mut line = String::new();
    request.read_line(&mut line).expect("the first line");
    let answer = "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 25\r\n\r\n0: Accepted for delivery\n";
    client.write_all(answer.as_bytes()).expect("an answer");
    sending.ended().assert_code(0);
    let line = percent_encoding::percent_decode_str(&line).decode_utf8_lossy();
    let expected = format!("dlr-url=https://sms.example.net/smsq{path}?reference=");
    assert!(line.contains(&expected), "{line}");
}

#[test]
fn signature_is_checked_and_a_reply_with_stop_suppresses() {
    let scratch = Scratch::new();
    scratch.write(
        "smsq.toml",
        "[providers.twilio]\nfrom = \"+15005550006\"\nsecrets = { account_sid = { file = \"sid\" }, auth_token = { file = \"token\" } }\n",
    );
    scratch.write("sid", &format!("AC{}", "0".repeat(32)));
    scratch.write("token", "12345");
    let served =
        Served::with(&scratch, &format!("{SETTINGS}\npublic_url = \"https://sms.example.net\""));
    let path = path_of(&scratch, "twilio");
    let body = "From=%2B447400123456&Body=%20stop.%20&MessageSid=SM1&SmsStatus=received";
    let post = |signature: &str, body: &str| {
        let headers = [
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("X-Twilio-Signature", signature),
        ];
        let answer = request(&served.address, "POST", &path, &headers, body.as_bytes());
        answer.expect("an answer").status
    };
    assert_eq!(post("AAAA", body), 403);
    // Base64 of HMAC-SHA1 of the URL and the sorted pairs, as the vendor documents it.
    let text = format!(
        "https://sms.example.net{path}Body stop. From+447400123456MessageSidSM1SmsStatusreceived"
    );
    let signature = hmac_sha1("12345", &text);
    assert_eq!(post(&signature, body), 200);
    assert_eq!(post(&signature, &body.replace("123456", "123457")), 403);
    let listed = scratch.run(["suppress", "list"]);
    assert_eq!(listed.stdout().matches("+44").count(), 1, "{listed}");
}

#[test]
fn unchecked_signatures_are_warned_of_until_the_secret_is_set() {
    let scratch = Scratch::new();
    scratch.write("secret", "s");
    let section = "[providers.sinch]\nfrom = \"SHOP\"\n\
                   secrets = { service_plan = { file = \"secret\" }, api_token = { file = \"secret\" } }\n";
    let settings = format!("{section}[serve]\n{SETTINGS}\n");
    let warning = "signatures of receipts for `sinch` are not checked";
    // Receipts can be posted as soon as the server has their key, also where `webhook.enabled` is not set.
    scratch.write("smsq.toml", &settings);
    for line in ["serve urls", "check --offline"] {
        let ran = scratch.run(line.split(' '));
        assert!(ran.to_string().contains(warning), "{line}: {ran}");
    }
    let mut process = scratch.start(["serve", "--listen", "127.0.0.1:0"]);
    process.first_line();
    process.signal(rustix::process::Signal::TERM);
    let ran = process.ended();
    assert!(ran.stderr().contains(warning), "{ran}");

    let secret = "[providers.sinch.webhook]\nsecret = { file = \"secret\" }\n";
    scratch.write("smsq.toml", &format!("{settings}{secret}"));
    for line in ["serve urls", "check --offline"] {
        let ran = scratch.run(line.split(' '));
        assert!(!ran.to_string().contains(warning), "{line}: {ran}");
    }
}

#[test]
fn national_number_of_a_reply_is_suppressed() {
    let scratch = Scratch::new();
    scratch.write(
        "smsq.toml",
        "default_region = \"GB\"\n[providers.kannel]\nurl = \"http://127.0.0.1:1/cgi-bin/sendsms\"\n\
         secrets = { username = { file = \"secret\" }, password = { file = \"secret\" } }\n",
    );
    scratch.write("secret", "s");
    let served = Served::with(&scratch, SETTINGS);
    let path = path_of(&scratch, "kannel");
    for (from, text) in [("07400123456", "STOP"), ("447400123457", "stop"), ("SHOP", "STOP")] {
        let path = format!("{path}?from={from}&text={text}");
        let answer = request(&served.address, "GET", &path, &[], b"").expect("an answer");
        assert_eq!(answer.status, 200, "{from}");
    }
    let listed = scratch.run(["suppress", "list", "--format", "json"]).stdout();
    for phone in ["+447400123456", "+447400123457"] {
        assert!(listed.contains(phone), "{listed}");
    }
    let metrics = served.api("", "GET", "/metrics", "").body;
    let unreadable = r#"smsq_unreadable_posts_total{provider="kannel"} 1"#;
    assert!(metrics.contains(unreadable), "{metrics}");
}

#[test]
fn replies_are_kept_shown_and_posted_to_hooks() {
    with_every_database(|db| {
        let receiver = Receiver::start();
        let scratch = Scratch::at(&db.url);
        let hook = receiver.section("crm", &["reply.received"], "include = [\"phone\", \"text\"]");
        scratch.write("hook", SECRET);
        scratch.write(
            "smsq.toml",
            &format!(
                "default_provider = \"own\"\n[providers.own]\nkind = \"generic\"\nurl = \"http://127.0.0.1:1/\"\n\
                 json = {{ to = \"{{{{ phone }}}}\" }}\n[providers.own.webhook]\nmessage_id = \"/id\"\nstate = \"/state\"\n\
                 states = {{ ok = \"delivered\" }}\nreply_phone = \"/from\"\nreply_text = \"/text\"\nreply_id = \"/id\"\n\
                 reply_to = \"/to\"\n{hook}"
            ),
        );
        let served = Served::with(&scratch, SETTINGS);
        scratch.import(&list(1));
        let path = path_of(&scratch, "own");
        let post = |body: &str| {
            let answer = request(&served.address, "POST", &path, &[], body.as_bytes());
            assert_eq!(answer.expect("an answer").status, 200);
        };
        let reply = r#"{"from":"+447400010010","to":"12345","text":"yes <b>","id":"7"}"#;
        for _ in 0..3 {
            post(reply);
        }
        // Without an id.
        let nameless = r#"{"from":"+447400010011","text":"STOP"}"#;
        post(nameless);
        post(nameless);
        eventually("both are posted", || receiver.taken().len() == 2);
        let events = receiver.taken();
        let with_id = events.values().find(|event| event.text.contains("yes"));
        let data = &with_id.expect("the reply").body["data"];
        assert_eq!(data["campaign"], "c");
        assert_eq!(data["phone"], "+447400010010");
        assert_eq!(data["text"], "yes <b>");
        assert_eq!(data["to"], "12345");
        assert_eq!(data["is_stop"], false);
        let cookie = served.log_in("operate");
        let page = served.page(&cookie, "/replies").body;
        assert!(page.contains("+447400010010") && page.contains("yes &lt;b&gt;"), "{page}");
        let cookie = served.log_in("read");
        let page = served.page(&cookie, "/replies").body;
        assert!(page.contains("****0010") && !page.contains("yes"), "{page}");
        scratch.run(["purge", "--phone", "+447400010010", "--yes"]).assert_code(0);
        assert_eq!(db.number("SELECT count(*) AS value FROM reply"), 1);
        let left = "SELECT count(*) AS value FROM hook_event WHERE body LIKE '%0010010%'";
        assert_eq!(db.number(left), 0);
    });
}

/// By the openssl command, so that the check is independent.
fn hmac_sha1(key: &str, text: &str) -> String {
    let line = ["dgst", "-sha1", "-hmac", key, "-binary"];
    let mut process = Command::new("openssl")
        .args(line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl");
    let mut stdin = process.stdin.take().expect("piped");
    stdin.write_all(text.as_bytes()).expect("written");
    drop(stdin);
    let output = process.wait_with_output().expect("its output").stdout;
    base64::engine::general_purpose::STANDARD.encode(output)
}
