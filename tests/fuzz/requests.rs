//! HTTP requests to `smsq serve` of every kind, and what holds for each however it was bent: the server continues, its
//! answers are whole and none is an error of the server, each answered message is queued once and nothing else is, and
//! nothing changes without a valid token.

mod exchange;
mod samples;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use smsq_store::{Access, SmsFilter, Store};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::Target;
use crate::mutation::Random;
use exchange::{Answer, exchange};
use samples::{Credentials, Request};

/// A new server with an empty queue is started after this many requests.
const REQUESTS_PER_SERVER: u64 = 2_000;
/// Behind a proxy, so that each request can be of another address.
const PUBLIC_URL: &str = "http://127.0.0.1";
const TOKEN: &str = "a token of role admin";
const VENDORS: [&str; 5] = ["clicksend", "kannel", "sandbox", "twilio", "yunpian"];
/// Secrets of the vendors. None of them is ever called.
const SECRETS: [&str; 7] = [
    "CLICKSEND_USERNAME",
    "CLICKSEND_API_KEY",
    "KANNEL_USERNAME",
    "KANNEL_PASSWORD",
    "TWILIO_ACCOUNT_SID",
    "TWILIO_AUTH_TOKEN",
    "YUNPIAN_API_KEY",
];

/// `smsq serve`, restarted from time to time.
pub(crate) struct Requests {
    runtime: Runtime,
    server: Server,
    sent: u64,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = Server::start(&runtime);
        Self { runtime, server, sent: 0 }
    }
}

/// A request as it is sent.
pub(crate) struct Input {
    bytes: Vec<u8>,
    is_head: bool,
    /// Whether its head was left as it was, so that it must be answered.
    is_whole: bool,
    /// Whether it has valid tokens.
    is_allowed: bool,
}

impl Target for Requests {
    const NAME: &'static str = "requests";
    const INPUTS: u64 = 1_000;
    type Input = Input;

    fn input(&mut self, random: &mut Random) -> Input {
        let is_bent = random.below(4) == 0;
        let is_allowed = random.below(5) != 0;
        let (valid, wrong) = (&self.server.valid, &self.server.wrong);
        let mut request = Request::sample(random, if is_allowed { valid } else { wrong });
        // An upload without an answer could not be counted.
        let is_bent = is_bent && !(is_allowed && request.is_upload());
        if !is_bent && random.below(6) == 0 {
            request.body = Request::sample(random, if is_allowed { valid } else { wrong }).body;
        }
        if !is_bent && random.below(5) < 3 {
            random.bend(&mut request.body, &samples::TOKENS);
        }
        Input {
            bytes: request.bytes(random, is_bent),
            is_head: request.method == "HEAD",
            is_whole: !is_bent,
            is_allowed,
        }
    }

    fn bytes(input: &Input) -> (&[u8], &str) {
        (&input.bytes, "request.http")
    }

    fn check(&mut self, input: &Input, _: &mut Random) -> Result<(), String> {
        self.sent += 1;
        if self.sent.is_multiple_of(REQUESTS_PER_SERVER) {
            self.server = Server::start(&self.runtime);
            // Its cookie is another one.
            return Ok(());
        }
        self.runtime.block_on(self.server.check(input))
    }
}

/// A running server with an empty queue in a scratch folder. It ends with this value.
struct Server {
    process: Child,
    address: SocketAddr,
    errors: File,
    store: Store,
    valid: Credentials,
    wrong: Credentials,
    /// The ids of all messages that were answered.
    ids: HashSet<i64>,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(runtime: &Runtime) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let hash = hex::encode(Sha256::digest(TOKEN));
        let vendor = |name| format!("[providers.{name}]\nurl = 'http://127.0.0.1:1'\n");
        let vendors = VENDORS.map(vendor).concat();
        let config = format!(
            "default_region = 'GB'\n{vendors}\n[serve]\npublic_url = '{PUBLIC_URL}'\n\
             receipt_key = 'a long random text'\ntokens = ['fuzz:admin:{hash}']\n"
        );
        std::fs::write(folder.path().join("smsq.toml"), config).expect("a configuration");
        let command = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_smsq"));
            command
                .args(arguments)
                .args(["--format", "json"])
                .current_dir(folder.path())
                .env_clear()
                .env("HOME", folder.path())
                // Where uploads are kept: a killed server leaves them.
                .env("TMPDIR", folder.path())
                .envs(SECRETS.map(|name| (name, "AC00000000000000000000000000000000")))
                .stdin(Stdio::null());
            command
        };
        let urls = command(&["serve", "urls"]).output().expect("it starts");
        let urls: BTreeMap<String, String> =
            serde_json::from_slice(&urls.stdout).expect("the URLs for receipts");
        assert!(urls.keys().eq(VENDORS), "{urls:?}");
        let errors = folder.path().join("errors");
        let mut process = command(&["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).expect("a file"))
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let printed: Value = serde_json::from_str(&line).expect("the address as JSON");
        let url = printed["url"].as_str().expect("a URL");
        let address = url.trim_start_matches("http://");
        let address: SocketAddr = address.parse().expect("an address");
        let database = format!("sqlite://{}", folder.path().join("smsq.db").display());
        let store = runtime.block_on(Store::open(&database, Access::Existing));
        let valid = Credentials {
            token: TOKEN.to_owned(),
            cookie: log_in(address),
            receipts: urls.values().map(|url| url.replace(PUBLIC_URL, "")).collect(),
        };
        Self {
            process,
            address,
            errors: File::open(&errors).expect("a file"),
            store: store.expect("the queue"),
            wrong: valid.wrong(),
            valid,
            ids: HashSet::new(),
            _folder: folder,
        }
    }

    async fn check(&mut self, input: &Input) -> Result<(), String> {
        let before = self.state().await?;
        let answers = exchange(self.address, &input.bytes, input.is_head, input.is_whole)?;
        if input.is_whole && answers.is_empty() {
            return Err("it is not answered".to_owned());
        }
        let mut queued = 0;
        for answer in &answers {
            queued += self.check_answer(answer).await?;
        }
        // A message may be queued and the answer lost if the end of the request is damaged.
        let unanswered = if input.is_whole {
            0
        } else {
            // What was posted before this message is committed with it, or before it.
            queued += self.post().await?;
            let words = input.bytes.windows(5).filter(|word| word == b"phone");
            words.count() as u64
        };
        self.check_process()?;
        let after = self.state().await?;
        let added = after.imported - before.imported;
        if added < queued || added > queued + unanswered {
            return Err(format!("{queued} messages are answered, {added} are queued"));
        }
        let is_changed = after.rest != before.rest || (added > 0 && input.is_whole);
        if is_changed && !input.is_allowed {
            return Err("something changed without a valid token".to_owned());
        }
        Ok(())
    }

    /// Checks an answer; returns how many new messages it has.
    async fn check_answer(&mut self, answer: &Answer) -> Result<u64, String> {
        if answer.status >= 500 {
            return Err(format!("an error of the server: {answer}"));
        }
        let Some(json) = answer.json()? else {
            return Ok(0);
        };
        let id = |id: &Value| id.as_str().and_then(|id| id.parse::<i64>().ok());
        if json.get("segments").is_some() && json.get("phone").is_none() {
            let Some(id) = id(&json["id"]) else {
                return Ok(0);
            };
            let is_new = self.is_new(id).await?;
            if is_new != (answer.status == 202) {
                return Err(format!("a message has two ids, or an id two messages: {answer}"));
            }
            return Ok(u64::from(is_new));
        }
        if let Some(ids) = json.get("ids") {
            let mut new = 0;
            for id in ids.as_array().into_iter().flatten().filter_map(id) {
                new += u64::from(self.is_new(id).await?);
            }
            if Some(new) != json["accepted"].as_u64() {
                return Err(format!("{new} new ids: {answer}"));
            }
            return Ok(new);
        }
        match json["import"].as_str().filter(|_| answer.status == 202) {
            Some(import) => self.imported(import),
            None => Ok(0),
        }
    }

    /// Notes the id of an answer; fails if no message has it.
    async fn is_new(&mut self, id: i64) -> Result<bool, String> {
        let found = self.store.report().find_sms(SmsFilter::Id(id), None, 2).await;
        match found.map_err(|error| error.to_string())?.len() {
            1 => Ok(self.ids.insert(id)),
            count => Err(format!("{count} messages have the answered id {id}")),
        }
    }

    /// Waits until an upload is imported; returns the number of its messages.
    fn imported(&self, import: &str) -> Result<u64, String> {
        let head = format!("GET /v1/imports/{import} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
        loop {
            let answer = self.request(&head, "")?;
            let state = answer.json()?.unwrap_or_default();
            match state["state"].as_str() {
                Some("running") => {}
                Some("done") => return Ok(state["accepted"].as_u64().unwrap_or(0)),
                Some("failed") => return Ok(0),
                _ => return Err(format!("the import has no state: {answer}")),
            }
        }
    }

    /// Queues a message.
    async fn post(&mut self) -> Result<u64, String> {
        let head = format!("POST /v1/messages HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
        let body = r#"{"phone":"+447400100000","text":"a","campaign":"after"}"#;
        let answer = self.request(&head, body)?;
        self.check_answer(&answer).await
    }

    fn request(&self, head: &str, body: &str) -> Result<Answer, String> {
        request(self.address, head, body)
    }

    /// Whether the server still works.
    fn check_process(&mut self) -> Result<(), String> {
        let mut errors = String::new();
        let read = self.errors.read_to_string(&mut errors);
        read.map_err(|error| error.to_string())?;
        if errors.contains("panicked") {
            return Err(format!("it panics: {errors}"));
        }
        if let Ok(Some(status)) = self.process.try_wait() {
            return Err(format!("the server ended: {status}\n{errors}"));
        }
        let answer = self.request("GET /healthz HTTP/1.1", "")?;
        if answer.status == 200 {
            Ok(())
        } else {
            Err(format!("the server is not healthy: {answer}"))
        }
    }

    async fn state(&self) -> Result<QueueState, String> {
        let (store, most) = (&self.store, 1_000);
        let read = async {
            let totals = store.report().totals(None).await?;
            let changes = store.audit_entries(1).await?;
            let suppressed = store.suppression().page(None, most).await?;
            let campaigns = store.campaigns().await?;
            let campaigns = campaigns.iter().filter(|one| one.name != "after");
            let campaigns: Vec<_> = campaigns.collect();
            Ok(QueueState {
                imported: totals.imported,
                rest: format!("{changes:?} {} {campaigns:?}", suppressed.len()),
            })
        };
        let state: Result<QueueState, smsq_store::StoreError> = read.await;
        state.map_err(|error| error.to_string())
    }
}

/// What requests change.
struct QueueState {
    /// All messages, whatever became of them.
    imported: u64,
    /// Changes of people, the suppression list, and the campaigns.
    rest: String,
}

/// Sends a request that must be answered.
fn request(address: SocketAddr, head: &str, body: &str) -> Result<Answer, String> {
    let length = body.len();
    let bytes = format!(
        "{head}\r\nHost: 127.0.0.1\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut answers = exchange(address, bytes.as_bytes(), false, true)?;
    answers.pop().ok_or_else(|| "no answer".to_owned())
}

/// The cookie of a browser.
fn log_in(address: SocketAddr) -> String {
    let body = format!("token={}", TOKEN.replace(' ', "+"));
    let answer = request(address, "POST /login HTTP/1.1", &body).expect("an answer");
    let cookie = answer.header("set-cookie").expect("a cookie");
    let (pair, _) = cookie.split_once(';').expect("a pair");
    pair.to_owned()
}
