//! `smsq serve` as a process: who may do what, the pages, messages over HTTP, receipts by webhook.

mod access;
mod approvals;
mod bodies;
mod browser;
mod drafts;
mod intake;
mod jobs;
mod kill;
mod many_campaigns;
mod openapi;
mod openapi_peers;
mod operations;
mod page;
mod practice;
mod schedules;
mod sending;
mod standstill;
mod webhooks;

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::Value;
use ureq::Agent;

use crate::support::Scratch;
use crate::support::html::attribute;
use crate::support::running::Running;
use crate::support::waiting::{PATIENCE, eventually};

/// A response, read to its end.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    #[track_caller]
    fn assert_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The cookie that it sets.
    fn cookie(&self) -> String {
        let set = self.header("set-cookie").expect("a cookie");
        set.split(';').next().expect("a pair").to_owned()
    }
}

/// Sends one request on a connection of its own. `None`: it cannot be sent, or it is not answered.
fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Answer> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .allow_non_standard_methods(true)
        .timeout_global(Some(PATIENCE))
        .build();
    let mut request =
        http::Request::builder().method(method).uri(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = Agent::new_with_config(config).run(request.body(body).ok()?);
    let (head, mut body) = response.ok()?.into_parts();
    let body = body.with_config().limit(u64::MAX).read_to_vec().ok()?;
    Some(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        // Templates escape slashes.
        body: String::from_utf8_lossy(&body).replace("&#x2f;", "/"),
    })
}

/// The status of an answer; `None` while nothing listens.
pub(crate) fn status_of(address: &str, path: &str) -> Option<u16> {
    request(address, "GET", path, &[], b"").map(|answer| answer.status)
}

/// A running server.
struct Served {
    process: Running,
    address: String,
    /// By role.
    tokens: BTreeMap<&'static str, String>,
}

const ROLES: [&str; 4] = ["read", "operate", "send", "admin"];

/// Adds a token of each role, and more settings of section `[serve]`, to the configuration.
fn configure(scratch: &Scratch, settings: &str) -> BTreeMap<&'static str, String> {
    let mut tokens = BTreeMap::new();
    let mut hashes = Vec::new();
    for role in ROLES {
        let line = ["serve", "token", role, "--role", role, "--format", "json"];
        let made = scratch.run(line).json();
        hashes.push(format!("{:?}", made["config"].as_str().expect("a line")));
        tokens.insert(role, made["token"].as_str().expect("a token").to_owned());
    }
    if !scratch.path("smsq.toml").exists() {
        // A provider that is never called.
        scratch.write_cellar("http://127.0.0.1:1");
    }
    let before = scratch.read("smsq.toml");
    let hashes = hashes.join(", ");
    let config = format!("{before}\n[serve]\ntokens = [{hashes}]\n{settings}\n");
    scratch.write("smsq.toml", &config);
    tokens
}

impl Served {
    fn start(scratch: &Scratch) -> Self {
        Self::with(scratch, "")
    }

    /// Starts it and logs a browser in; returns the cookie, too.
    fn logged_in(scratch: &Scratch, role: &str) -> (Self, String) {
        let served = Self::start(scratch);
        let cookie = served.log_in(role);
        (served, cookie)
    }

    /// With more settings of section `[serve]`.
    fn with(scratch: &Scratch, settings: &str) -> Self {
        let tokens = configure(scratch, settings);
        Self::again(scratch, tokens, "127.0.0.1:0")
    }

    fn again(scratch: &Scratch, tokens: BTreeMap<&'static str, String>, listen: &str) -> Self {
        Self::running(scratch, tokens, &["--listen", listen])
    }

    /// With more arguments.
    fn running(
        scratch: &Scratch,
        tokens: BTreeMap<&'static str, String>,
        arguments: &[&str],
    ) -> Self {
        let line = ["serve", "--format", "json"];
        let mut process = scratch.start(line.iter().chain(arguments).copied());
        let printed = process.first_line();
        let printed: Value = serde_json::from_str(&printed).expect("JSON");
        let url = printed["url"].as_str().expect("a URL");
        Self { process, address: url.trim_start_matches("http://").to_owned(), tokens }
    }

    /// A request of a program with the token of a role; an empty role has no token.
    fn api(&self, role: &str, method: &str, path: &str, body: &str) -> Answer {
        self.api_with(role, method, path, &[], body)
    }

    fn api_with(
        &self,
        role: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let bearer = self.tokens.get(role).map(|token| format!("Bearer {token}"));
        let mut all: Vec<(&str, &str)> = headers.to_vec();
        all.extend(bearer.as_ref().map(|value| ("Authorization", value.as_str())));
        let answer = request(&self.address, method, path, &all, body.as_bytes());
        answer.unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    fn post(&self, json: &str) -> Answer {
        self.api("send", "POST", "/v1/messages", json)
    }

    /// Logs a browser in; returns its cookie.
    fn log_in(&self, role: &str) -> String {
        let answer = self.try_log_in(&self.tokens[role]);
        assert_eq!(answer.status, 303, "{:?}", answer.headers);
        answer.cookie()
    }

    fn try_log_in(&self, token: &str) -> Answer {
        let origin = format!("http://{}", self.address);
        let headers =
            [("Origin", origin.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
        let body = format!("token={token}");
        let answer = request(&self.address, "POST", "/login", &headers, body.as_bytes());
        answer.expect("an answer")
    }

    fn page(&self, cookie: &str, path: &str) -> Answer {
        let answer = request(&self.address, "GET", path, &[("Cookie", cookie)], b"");
        answer.expect("an answer")
    }

    /// Sends a form of a page.
    fn submit(&self, cookie: &str, path: &str, form: &str) -> Answer {
        let headers = [
            ("Cookie", cookie),
            ("Sec-Fetch-Site", "same-origin"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        let answer = request(&self.address, "POST", path, &headers, form.as_bytes());
        answer.expect("an answer")
    }

    /// Answers the question of a campaign's page, with the messages that it names.
    fn confirm(&self, cookie: &str, path: &str, form: &str) -> Answer {
        let question = self.page(cookie, path).body;
        let form = match attribute(&question, "[name=named]", "value") {
            Some(named) => format!("{form}&named={named}"),
            None => form.to_owned(),
        };
        self.submit(cookie, path, &form)
    }

    /// Waits until a page has a text.
    fn until_shown(&self, cookie: &str, path: &str, text: &str) -> String {
        let mut body = String::new();
        eventually(&format!("`{text}` on {path}"), || {
            body = self.page(cookie, path).body;
            body.contains(text)
        });
        body
    }

    /// Ends it with SIGTERM.
    fn stop(mut self) -> crate::support::Ran {
        self.process.signal(rustix::process::Signal::TERM);
        self.process.ended()
    }
}
