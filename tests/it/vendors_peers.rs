//! Compares requests with the vendors' own SDKs, which sign the same bytes and send the same content, and sends
//! campaigns to real gateways. `tests/vendors` installs what these tests need, and runs them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use smsq_message::phone::Phone;
use smsq_message::sms::Timestamp;
use smsq_provider::{Message, Provider, RequestContext};

use crate::support::Scratch;
use crate::support::waiting::eventually;

/// The folder that `tests/vendors` made.
fn peers() -> PathBuf {
    let folder = std::env::var_os("SMSQ_PEERS").expect("`tests/vendors` sets SMSQ_PEERS");
    PathBuf::from(folder)
}

/// Runs `tests/peers/sdk.py`, and reads the JSON that it prints.
fn sdk(action: &str, name: &str, input: &Value) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/sdk.py");
    let mut python = Command::new(peers().join("venv/bin/python"))
        .args([script, action, name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut stdin = python.stdin.take().expect("its standard input is piped");
    stdin.write_all(input.to_string().as_bytes()).expect("writes");
    drop(stdin);
    let output = python.wait_with_output().expect("python ends");
    assert!(output.status.success(), "{action} {name}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// As the script has them.
const TEXT: &str = "Hello Anna, 你好 & \"bye\" ~*'()!\n";
const REFERENCE: &str = "0f7a-ref-1";

const SECRETS: [(&str, &str); 18] = [
    ("ALIYUN_ACCESS_KEY_ID", "LTAIid"),
    ("ALIYUN_ACCESS_KEY_SECRET", "secret"),
    ("TENCENT_SECRET_ID", "AKIDid"),
    ("TENCENT_SECRET_KEY", "secret"),
    ("AWS_ACCESS_KEY_ID", "AKIAIDIDIDIDIDID"),
    ("AWS_SECRET_ACCESS_KEY", "secret"),
    ("TWILIO_ACCOUNT_SID", "AC00000000000000000000000000000000"),
    ("TWILIO_AUTH_TOKEN", "token"),
    ("CLICKSEND_USERNAME", "user"),
    ("CLICKSEND_API_KEY", "key"),
    ("INFOBIP_API_KEY", "key"),
    ("PLIVO_AUTH_ID", "MAXXXXXXXXXXXXXXXXXX"),
    ("PLIVO_AUTH_TOKEN", "token"),
    ("SINCH_SERVICE_PLAN", "plan"),
    ("SINCH_API_TOKEN", "token"),
    ("TELNYX_API_KEY", "KEYkey"),
    ("VONAGE_API_KEY", "abcd1234"),
    ("VONAGE_API_SECRET", "secret"),
];

/// Those that sign what they send.
const SIGNERS: [&str; 5] = ["aliyun", "aliyun-batch", "tencent", "aws-sns", "aws-sms"];

/// Those whose SDK is given two messages; the others get the first.
const BATCHES: [&str; 4] = ["aliyun-batch", "clicksend", "infobip", "sinch"];

const PEERS: [(&str, &str); 12] = [
    ("aliyun", "kind = 'aliyun'\nfrom = '阿里云'\ntemplate = 'SMS_1'\nparams = { code = 'order' }"),
    (
        "aliyun-batch",
        "kind = 'aliyun'\nfrom = '阿里云'\ntemplate = 'SMS_1'\nparams = { code = 'order' }",
    ),
    (
        "tencent",
        "kind = 'tencent'\nfrom = '腾讯云'\nsdk_app_id = '1400'\ntemplate = '1110'\nparams = ['order']",
    ),
    ("aws-sns", "kind = 'aws-sns'\nregion = 'eu-west-1'"),
    ("aws-sms", "kind = 'aws-sms'\nregion = 'eu-west-1'"),
    ("twilio", "kind = 'twilio'\nfrom = '+15005550006'"),
    ("clicksend", "kind = 'clicksend'"),
    ("infobip", "kind = 'infobip'\nurl = 'https://x1.api.infobip.com'\nfrom = 'SHOP'"),
    ("plivo", "kind = 'plivo'"),
    ("sinch", "kind = 'sinch'\nbatch = { per_call = 2 }"),
    ("telnyx", "kind = 'telnyx'\nfrom = 'SHOP'"),
    ("vonage", "kind = 'vonage'\nfrom = 'SHOP'"),
];

fn request(name: &str, section: &str) -> http::Request<bytes::Bytes> {
    let section: toml::Table = section.parse().expect("TOML");
    let secrets: BTreeMap<_, _> = SECRETS.into_iter().collect();
    let secret = |name: &str| secrets.get(name).map(|secret| (*secret).to_owned());
    let provider = Provider::from_section("peer", &section, &secret).expect("a provider");
    let message = |phone: &str, order: &str| Message {
        phone: Phone::parse(phone, None).expect("a phone"),
        content: TEXT.to_owned(),
        reference: REFERENCE.to_owned(),
        from: None,
        params: json!({ "order": order }).as_object().expect("an object").clone(),
    };
    let mut messages = vec![message("+8613812345678", "4711")];
    if BATCHES.contains(&name) {
        messages.push(message("+8613812345679", "4712 ~*"));
    }
    let context = RequestContext {
        now: Timestamp::from_millis(1_700_000_000_000),
        nonce: 0x2700_0000_0000_0000_0000_0000_0000_0508,
    };
    provider.request(&messages, &context).expect("a request")
}

fn headers(request: &http::Request<bytes::Bytes>) -> BTreeMap<String, String> {
    let text = |value: &http::HeaderValue| value.to_str().expect("text").to_owned();
    let headers = request.headers().iter();
    headers.map(|(name, value)| (name.to_string(), text(value))).collect()
}

/// Posts a request as `tests/peers/sdk.py` prints it.
fn post(
    provider: &Provider,
    request: &Value,
    now: i64,
) -> Result<smsq_provider::Posted, smsq_provider::WebhookError> {
    let text = |key: &str| request[key].as_str().expect("a text");
    let mut headers = http::HeaderMap::new();
    for (name, value) in request["headers"].as_object().expect("headers") {
        let name: http::HeaderName = name.parse().expect("a name");
        headers.insert(name, value.as_str().expect("a text").parse().expect("a value"));
    }
    provider.parse_webhook(&smsq_provider::PostedRequest {
        method: &text("method").parse().expect("a method"),
        url: text("url"),
        headers: &headers,
        body: text("body").as_bytes(),
        now: Timestamp::from_millis(1_000 * now),
    })
}

#[test]
#[ignore = "needs the vendors' SDKs: run tests/vendors"]
fn sdks_accept_the_same_posted_receipts() {
    for (name, count) in [
        ("twilio", 7),
        ("plivo", 3),
        ("vonage", 12),
        ("vonage-messages", 1),
        ("messagebird", 6),
        ("telnyx", 1),
    ] {
        let found = sdk("post", name, &Value::Null);
        let now = found["now"].as_i64().expect("a time");
        let requests = found["requests"].as_array().expect("requests");
        assert_eq!(requests.len(), count, "{name}");
        for request in requests {
            let section =
                format!("kind = '{name}'\nwebhook = {{ secret = {{ env = 'WEBHOOK' }} }}");
            let section: toml::Table = section.parse().expect("TOML");
            let secret = |secret: &str, variable: &str| {
                let is_webhook = variable == "WEBHOOK";
                Some(if is_webhook { secret } else { "other" }.to_owned())
            };
            let provider = |secret_text: &str| {
                let environment = |variable: &str| secret(secret_text, variable);
                Provider::from_section("peer", &section, &environment).expect("a provider")
            };
            let right = request["secret"].as_str().expect("a secret");
            let posted = post(&provider(right), request, now);
            let posted = posted.unwrap_or_else(|error| panic!("{error}: {request}"));
            assert_eq!(posted.receipts.len(), 1, "{request}");
            assert!(post(&provider("hunter3"), request, now).is_err(), "{request}");
            let mut changed = request.clone();
            for key in ["url", "body"] {
                let text = request[key].as_str().expect("a text");
                changed[key] = text.replace("delivered", "expired").into();
            }
            assert!(post(&provider(right), &changed, now).is_err(), "{changed}");
        }
    }
}

#[test]
#[ignore = "needs the vendors' SDKs: run tests/vendors"]
fn sdks_sign_requests_like_smsq() {
    for (name, section) in PEERS.into_iter().filter(|(name, _)| SIGNERS.contains(name)) {
        let request = request(name, section);
        let uri = request.uri();
        let host = uri.authority().expect("a host").as_str();
        let body = std::str::from_utf8(request.body()).expect("text");
        let signed = sdk(
            "sign",
            name,
            &json!({
                "host": host, "query": uri.query().unwrap_or_default(),
                "headers": headers(&request), "body": body,
            }),
        );
        assert_eq!(signed["authorization"], headers(&request)["authorization"], "{name}");
    }
}

/// The pairs of a form or the values of a document, without their order and their writing.
fn content(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|_| {
        let pairs: BTreeSet<_> =
            url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        json!(pairs)
    })
}

#[test]
#[ignore = "needs the vendors' SDKs: run tests/vendors"]
fn sdks_send_the_same_content() {
    for (name, section) in PEERS {
        let ours = request(name, section);
        let theirs = sdk("send", name, &Value::Null);
        let target = ours.uri().path_and_query().expect("a target").as_str();
        assert_eq!(theirs["target"], target, "{name}");
        let body = std::str::from_utf8(ours.body()).expect("text");
        let (mut body, mut their_body) =
            (content(body), content(theirs["body"].as_str().expect("text")));
        if name == "aws-sns" {
            // What our section adds.
            let is_own = |pair: &Value| {
                !pair[0].as_str().is_some_and(|name| name.starts_with("MessageAttr"))
            };
            body.as_array_mut().expect("pairs").retain(is_own);
        }
        if name == "aws-sms" {
            body.as_object_mut().expect("an object").remove("MessageType");
        }
        if name == "plivo" {
            // Defaults of the vendor that the SDK sends.
            let theirs = their_body.as_object_mut().expect("an object");
            theirs.retain(|key, _| body.get(key).is_some());
        }
        assert_eq!(body, their_body, "{name}");
        for (header, value) in headers(&ours) {
            let changes = [
                "authorization",
                // Both forms are equal.
                "x-acs-content-sha256",
                "x-acs-date",
                "x-acs-signature-nonce",
                "x-amz-date",
                "x-tc-timestamp",
            ];
            if !SIGNERS.contains(&name) || !changes.contains(&header.as_str()) {
                let theirs = theirs["headers"][&header].as_str().unwrap_or_default();
                assert_eq!(theirs.split(';').next(), Some(value.as_str()), "{name} {header}");
            }
        }
    }
}

/// How many messages are sent, in Greek and Latin letters, all different.
const CAMPAIGN: usize = 200;

/// Imports a campaign and sends it with a provider section; every message must be accepted.
fn sends_a_campaign(section: &str, environment: &[(&str, &str)]) {
    let scratch = Scratch::new();
    scratch.write("smsq.toml", section);
    let name = |at: usize| {
        if at.is_multiple_of(2) { "Ann" } else { "Αννα" }
    };
    let row = |at: usize| format!("+4474001{at:05},{}", name(at));
    let rows: Vec<String> = (0..CAMPAIGN).map(row).collect();
    let rows = rows.join("\n");
    scratch.write("list.csv", &format!("phone,name\n{rows}"));
    let text = "Hello {{ name }}, it is 5 € & \"new\"";
    scratch.run(["import", "list.csv", "--text", text, "--campaign", "c"]).assert_code(0);
    let ran = scratch.run_with(["send", "--format", "json"], environment).assert_code(0);
    assert_eq!(ran.json()["sent"], CAMPAIGN, "{ran}");
}

#[test]
#[ignore = "needs Kannel: run tests/vendors"]
fn kannel_receives_each_message_once() {
    let port = std::env::var("SMSQ_KANNEL_PORT").expect("`tests/vendors` sets SMSQ_KANNEL_PORT");
    let section = format!(
        "[providers.cellar]\nkind = 'kannel'\nurl = 'http://127.0.0.1:{port}/cgi-bin/sendsms'\nfrom = 'SHOP'\n"
    );
    let secrets = [("KANNEL_USERNAME", "tester"), ("KANNEL_PASSWORD", "foobar")];
    sends_a_campaign(&section, &secrets);
    // What the centre received.
    let centre = peers().join("kannel/centre.log");
    let got = || {
        let log = std::fs::read(&centre).expect("the log");
        let log = String::from_utf8_lossy(&log).into_owned();
        let words = |line: &str| {
            let (_, message) = line.split_once(": <SHOP ")?;
            let mut words = message.split(' ').map(str::to_owned);
            Some((words.next()?, words.next()?))
        };
        let got = log.lines().filter(|line| line.contains("Got message"));
        got.filter_map(words).collect::<Vec<(String, String)>>()
    };
    eventually("the centre has every message", || got().len() >= CAMPAIGN);
    let got = got();
    let phones: BTreeSet<&str> = got.iter().map(|(phone, _)| phone.as_str()).collect();
    assert_eq!((got.len(), phones.len()), (CAMPAIGN, CAMPAIGN));
    let greek = got.iter().filter(|(_, coding)| coding == "ucs-2").count();
    assert_eq!(greek, CAMPAIGN / 2, "half of them need UCS-2");
    let wrong = [("KANNEL_USERNAME", "tester"), ("KANNEL_PASSWORD", "wrong")];
    let scratch = Scratch::new();
    scratch.write("smsq.toml", &section);
    let ran = scratch.run_with(
        ["providers", "test", "cellar", "--to", "+447400100000", "--format", "json"],
        &wrong,
    );
    assert_eq!(ran.json()["outcome"], "account error", "{ran}");
    assert!(!ran.to_string().contains("password=wrong"), "{ran}");
}

/// `tests/peers/moto_sns.py`; ends with the test.
struct Moto {
    process: Child,
    lines: BufReader<ChildStdout>,
    port: String,
}

impl Moto {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/moto_sns.py");
        let mut process = Command::new(peers().join("venv/bin/python"))
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python starts");
        let stdout = process.stdout.take().expect("its standard output is piped");
        let mut moto = Self { process, lines: BufReader::new(stdout), port: String::new() };
        moto.port = moto.line();
        moto
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// Messages and phones.
    fn counts(&mut self) -> String {
        let stdin = self.process.stdin.as_mut().expect("it is piped");
        stdin.write_all(b"\n").expect("asks");
        self.line()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "needs moto: run tests/vendors"]
fn moto_accepts_a_campaign_for_sns() {
    let mut moto = Moto::start();
    let url = format!("http://127.0.0.1:{}/", moto.port);
    let section = format!("[providers.cellar]\nkind = 'aws-sns'\nurl = '{url}'\nrate = '500/s'\n");
    let secrets = [("AWS_ACCESS_KEY_ID", "AKIAIDIDIDIDIDID"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    sends_a_campaign(&section, &secrets);
    assert_eq!(moto.counts(), format!("{CAMPAIGN} {CAMPAIGN}"));
}
