//! Valid requests of every kind.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::mutation::Random;

/// What requests are made of, and what they should not be.
pub(super) const TOKENS: [&[u8]; 34] = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\0",
    b"\xff",
    b"%00",
    b"%FF",
    b"%2F",
    b"/",
    b"?",
    b"&",
    b"=",
    b"+",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"-1",
    b"1e999",
    b"99999999999999999999",
    b"{\"phone\":",
    b"+447400123456",
    b"{{ name }}",
    b"--x\r\n",
    b"--x--",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"GET / HTTP/1.1\r\n",
];

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
const FORM: &str = "application/x-www-form-urlencoded";
const UPLOAD: &str = "multipart/form-data; boundary=x";

const PAGES: [&str; 36] = [
    "/",
    "/?live=0",
    "/login",
    "/search?phone=%2B447400100001",
    "/suppression?after=%2B4474",
    "/audit",
    "/campaigns/codes",
    "/campaigns/codes?live=1",
    "/campaigns/default/report.html",
    "/campaigns/codes/failed.csv",
    "/campaigns/codes/undelivered.csv",
    "/campaigns/codes/sent.csv",
    "/campaigns/codes/pause",
    "/campaigns/codes/rate?rate=5/s",
    "/campaigns/codes/retry?class=unavailable&code=7",
    "/campaigns/codes/cancel?name=codes",
    "/campaigns/unknown/cancel",
    "/style.css",
    "/page.js",
    "/robots.txt",
    "/metrics",
    "/readyz",
    "/openapi.json",
    "/v1/messages/1",
    "/v1/messages/none",
    "/v1/messages?phone=%2B447400100001",
    "/v1/messages?reference=abc",
    "/v1/messages",
    "/v1/messages/batch",
    "/v1/campaigns",
    "/v1/campaigns/codes",
    "/v1/campaigns/codes/report.csv?list=figures",
    "/v1/campaigns/codes/report.csv?list=sent",
    "/v1/imports/1",
    "/v1/imports/1/rejects.csv",
    "/nothing",
];

/// Addresses and forms of the pages.
const FORMS: [(&str, &str); 12] = [
    ("/campaigns/codes/pause", ""),
    ("/campaigns/codes/resume", ""),
    ("/campaigns/codes/rate", "rate=20%2Fs,5000/day"),
    ("/campaigns/codes/rate", "rate=none"),
    ("/campaigns/codes/retry", "class=unavailable&code=E7"),
    ("/campaigns/codes/retry-unknown", ""),
    ("/campaigns/codes/settle-sent", ""),
    ("/campaigns/codes/settle-failed", ""),
    ("/campaigns/gone/cancel", "name=gone"),
    ("/campaigns/unknown/nothing", "a=b"),
    ("/suppression", "phone=%2B447400100007&reason=asked"),
    ("/logout", ""),
];

/// What a client proves its identity with.
pub(super) struct Credentials {
    pub(super) token: String,
    /// The name and the value.
    pub(super) cookie: String,
    /// The paths that vendors post to, by their names in order.
    pub(super) receipts: Vec<String>,
}

impl Credentials {
    /// Invalid ones of the same length.
    pub(super) fn wrong(&self) -> Self {
        let wrong = |text: &String| {
            let (start, end) = text.split_at(text.len() - 8);
            format!("{start}{}", end.chars().map(|_| 'x').collect::<String>())
        };
        Self {
            token: wrong(&self.token),
            cookie: wrong(&self.cookie),
            receipts: self.receipts.iter().map(wrong).collect(),
        }
    }
}

/// A request in parts, so that the length of a changed body is right.
pub(super) struct Request {
    pub(super) method: &'static str,
    target: String,
    kind: &'static str,
    headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// A valid request, apart from its credentials.
    pub(super) fn sample(random: &mut Random, credentials: &Credentials) -> Self {
        let (method, target, kind, body) = match random.below(13) {
            0 | 1 => ("POST", "/v1/messages".to_owned(), JSON, message(random)),
            2 => ("POST", "/v1/messages/batch".to_owned(), NDJSON, batch(random)),
            3 => {
                let list = format!("[{}, {}]", message(random), message(random));
                ("POST", "/v1/messages/batch".to_owned(), JSON, list)
            }
            4 => ("POST", "/v1/imports".to_owned(), UPLOAD, upload(random)),
            5 => {
                let change = r#"{"rate":"20/s,5000/day","priority":3,"paused":false,"window":"09:00-20:00 mon-fri Europe/Berlin"}"#;
                ("PATCH", "/v1/campaigns/codes".to_owned(), JSON, change.to_owned())
            }
            6 => {
                let token = credentials.token.replace(' ', "+");
                ("POST", "/login".to_owned(), FORM, format!("token={token}"))
            }
            7 | 8 => {
                let (target, form) = *random.pick(&FORMS);
                ("POST", target.to_owned(), FORM, form.to_owned())
            }
            9 | 10 => receipt(random, &credentials.receipts),
            _ => {
                let method = *random.pick(&["GET", "GET", "GET", "HEAD", "DELETE"]);
                let target = (*random.pick(&PAGES)).to_owned();
                (method, target, "text/plain", String::new())
            }
        };
        let address = Ipv4Addr::from(
            [10, 0, 0, 0].map(|byte| byte + u8::try_from(random.below(200)).unwrap_or(0)),
        );
        let mut headers = vec![
            ("Host", "127.0.0.1".to_owned()),
            // Of another address, so that no log-in is refused for the number of wrong ones.
            ("X-Forwarded-For", address.to_string()),
            ("Authorization", format!("Bearer {}", credentials.token)),
            ("Cookie", credentials.cookie.clone()),
            ("Sec-Fetch-Site", "same-origin".to_owned()),
        ];
        if target == "/v1/messages" && random.below(3) == 0 {
            headers.push(("Idempotency-Key", random.below(40).to_string()));
        }
        Self { method, target, kind, headers, body: body.into_bytes() }
    }

    pub(super) fn is_upload(&self) -> bool {
        self.kind == UPLOAD
    }

    /// The bytes to send. With `is_bent`, also the head is changed, or the whole request.
    pub(super) fn bytes(&self, random: &mut Random, is_bent: bool) -> Vec<u8> {
        let is_chunked = random.below(6) == 0;
        let part = if is_bent { random.below(4) } else { 4 };
        let mut bend = |bytes: &str, is_this: bool| {
            let mut bytes = bytes.as_bytes().to_vec();
            if is_this {
                random.bend(&mut bytes, &TOKENS);
            }
            bytes
        };
        let mut bytes = format!("{} ", self.method).into_bytes();
        bytes.extend(bend(&self.target, part == 0));
        bytes.extend_from_slice(b" HTTP/1.1\r\n");
        let mut headers = format!("Content-Type: {}\r\n", self.kind);
        for (name, value) in &self.headers {
            let _ = write!(headers, "{name}: {value}\r\n");
        }
        bytes.extend(bend(&headers, part == 1));
        if is_chunked {
            bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            let mut chunks = Vec::new();
            for chunk in self.body.chunks(7 + self.body.len() / 3) {
                chunks.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                chunks.extend_from_slice(chunk);
                chunks.extend_from_slice(b"\r\n");
            }
            chunks.extend_from_slice(b"0\r\n\r\n");
            if part == 2 {
                random.bend(&mut chunks, &TOKENS);
            }
            bytes.extend(chunks);
        } else {
            let length = self.body.len();
            bytes.extend(format!("Content-Length: {length}\r\n\r\n").into_bytes());
            bytes.extend_from_slice(&self.body);
        }
        if part == 3 || (part == 2 && !is_chunked) {
            random.bend(&mut bytes, &TOKENS);
        }
        bytes
    }
}

fn message(random: &mut Random) -> String {
    let phone = format!("+4474001{:05}", random.below(30));
    let key = random.below(60);
    match random.below(5) {
        0 => format!(
            r#"{{"phone":"{phone}","template":"Hi {{{{ name }}}}","params":{{"name":"Zoë","n":7,"b":null}},"campaign":"codes"}}"#
        ),
        1 => format!(r#"{{"phone":"{phone}","text":"Number {key}","dedupe_key":"{key}"}}"#),
        2 => format!(
            r#"{{"phone":"{phone}","text":"你好 😀","campaign":"codes","due_at":"2099-12-24T09:00:00Z","expires_at":"2099-12-25T09:00:00+01:00"}}"#
        ),
        3 => format!(r#"{{"phone":"{phone}","text":"a","campaign":"gone","from":"SHOP"}}"#),
        _ => format!(r#"{{"phone":"07400 1{:05}","text":"Hello"}}"#, random.below(30)),
    }
}

fn batch(random: &mut Random) -> String {
    let mut lines = String::new();
    for _ in 0..random.below(6) {
        lines.push_str(&message(random));
        let end: &&str = random.pick(&["\n", "\r\n", "\n\n"]);
        lines.push_str(end);
    }
    lines
}

fn upload(random: &mut Random) -> String {
    let name = *random.pick(&["list.csv", "rejects.csv", "../../list.csv", ""]);
    format!(
        "--x\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nHi {{{{ name }}}}\r\n\
         --x\r\nContent-Disposition: form-data; name=\"campaign\"\r\n\r\nup{}\r\n\
         --x\r\nContent-Disposition: form-data; name=\"unique\"\r\n\r\nnone\r\n\
         --x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: text/csv\r\n\r\nphone,name\n07400 1{:05},Ann\n12,Bob\n+447400123457,Zoë\n\r\n--x--\r\n",
        random.below(1_000),
        random.below(30),
    )
}

/// A receipt or a reply, as a vendor posts it.
fn receipt(random: &mut Random, paths: &[String]) -> (&'static str, String, &'static str, String) {
    let vendor = random.below(paths.len());
    let path = paths[vendor].clone();
    match vendor {
        0 => {
            let form = *random.pick(&[
                "message_id=m-1&status_code=201&custom_string=r-1&timestamp=1700000000",
                "from=%2B447400100011&body=STOP",
            ]);
            ("POST", path, FORM, form.to_owned())
        }
        1 => {
            let query = *random.pick(&[
                "reference=r-1&type=1",
                "reference=r-1&type=2&code=7",
                "from=%2B447400100012&text=stop",
            ]);
            ("GET", format!("{path}?{query}"), FORM, String::new())
        }
        2 => {
            let body = *random.pick(&[
                r#"[{"id":"m-1","reference":"r-1","to":"+447400100001","state":"delivered","at":"2026-01-01T00:00:00Z","part":1,"parts":2}]"#,
                r#"[{"id":"m-2","state":"undelivered","code":"absent","reason":"off"}]"#,
                r#"<receipts><receipt id="m-1">delivered</receipt></receipts>"#,
            ]);
            let kind = *random.pick(&[JSON, "text/xml"]);
            ("POST", path, kind, body.to_owned())
        }
        3 => {
            let form = "MessageSid=SM1&MessageStatus=delivered&To=%2B447400100001&ErrorCode=0";
            ("POST", path, FORM, form.to_owned())
        }
        _ => {
            let form = *random.pick(&[
                "sms_status=%5B%7B%22sid%22%3A1%2C%22uid%22%3A%22r-1%22%2C%22mobile%22%3A%2213812345678%22%2C%22report_status%22%3A%22SUCCESS%22%2C%22user_receive_time%22%3A%222026-01-01+00%3A00%3A00%22%7D%5D",
                "sms_reply=%7B%22mobile%22%3A%2213812345678%22%2C%22text%22%3A%22TD%22%7D",
            ]);
            ("POST", path, FORM, form.to_owned())
        }
    }
}
