//! Clients of `smsq serve`, and the server that it is compared with. The clients write and read bytes themselves, so
//! that they take as little of the machine as possible.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::Json;
use axum::body::Bytes;
use axum::routing::post;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::workspace::Workspace;

/// The argument that makes this program the bare server.
pub(crate) const COMMAND: &str = "bare-server";

pub(crate) struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Response {
    pub(crate) fn expect_success(&self) -> anyhow::Result<()> {
        let body = String::from_utf8_lossy(&self.body);
        ensure!((200..300).contains(&self.status), "{}: {body}", self.head);
        Ok(())
    }
}

/// A kept connection.
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let read = Vec::with_capacity(4_096);
        Ok(Self { stream, read })
    }

    /// Sends a request and reads its response. `head`: the request line and the headers except `Content-Length`, each
    /// with its line end.
    pub(crate) async fn request(&mut self, head: &str, body: &[u8]) -> anyhow::Result<Response> {
        let mut request = format!("{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).await?;
        loop {
            if let Some((response, end)) = response(&self.read)? {
                self.read.drain(..end);
                return Ok(response);
            }
            let count = self.stream.read_buf(&mut self.read).await?;
            ensure!(count > 0, "the connection was closed");
        }
    }
}

/// A response and its length, if all of it has been read.
fn response(read: &[u8]) -> anyhow::Result<Option<(Response, usize)>> {
    let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&read[..end])?.to_owned();
    let status = head.split(' ').nth(1).context("missing status")?.parse()?;
    let length: usize = match field(&head, "content-length") {
        Some(length) => length.parse()?,
        None => 0,
    };
    let Some(body) = read.get(end + 4..end + 4 + length) else {
        return Ok(None);
    };
    let body = body.to_vec();
    Ok(Some((Response { status, head, body }, end + 4 + length)))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// A server as a process; it ends when it is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl Server {
    /// `smsq serve` in a workspace, whose configuration is `config` and a token that may do everything.
    pub(crate) fn smsq(workspace: &Workspace, config: &str) -> anyhow::Result<Self> {
        let made = workspace.json(&["serve", "token", "bench", "--role", "admin"])?;
        let text = |name: &str| made[name].as_str().context("it prints no token");
        let (token, line) = (text("token")?, text("config")?);
        let config = format!("{config}\n[serve]\ntokens = ['{line}']\nmax_waiting = 100000000\n");
        std::fs::write(workspace.path("smsq.toml"), config)?;
        let listen = ["serve", "--listen", "127.0.0.1:0", "-q", "--format", "json"];
        let mut command = workspace.smsq(&listen);
        command.stderr(Stdio::null());
        Self::start(command, token.to_owned(), |line| {
            let printed: Value = serde_json::from_str(line)?;
            let url = printed["url"].as_str().context("it prints no URL")?;
            Ok(url.trim_start_matches("http://").to_owned())
        })
    }

    /// The bare server: axum, which parses what is posted and answers, and stores nothing.
    pub(crate) fn bare() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::start(command, String::new(), |line| Ok(line.to_owned()))
    }

    fn start(
        mut command: Command,
        token: String,
        address: impl FnOnce(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<Self> {
        let mut process = command.spawn()?;
        let stdout = process.stdout.take().context("it has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(Self { address: address(line.trim())?.parse()?, process, token })
    }

    /// Logs a browser in; returns the head of its requests for the page.
    pub(crate) async fn log_in(&self) -> anyhow::Result<String> {
        let head = format!(
            "POST /login HTTP/1.1\r\nHost: {}\r\nSec-Fetch-Site: same-origin\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n",
            self.address
        );
        let mut connection = Connection::open(self.address).await?;
        let form = format!("token={}", self.token);
        let response = connection.request(&head, form.as_bytes()).await?;
        let cookie = field(&response.head, "set-cookie");
        let cookie = cookie.and_then(|cookie| cookie.split(';').next());
        let cookie = cookie.context("the log-in set no cookie")?;
        Ok(format!("GET / HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n", self.address))
    }

    /// The head of a request.
    pub(crate) fn head(&self, line: &str, kind: &str) -> String {
        format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: {kind}\r\n",
            self.address, self.token
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Posts the bodies with the numbers from `next` on over `clients` connections, until `body` has no more.
pub(crate) async fn post_all(
    server: &Server,
    clients: u32,
    (path, kind): (&str, &str),
    body: impl Fn(u64) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let (body, next) = (Arc::new(body), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let head = server.head(&format!("POST {path}"), kind);
        let (address, body, next) = (server.address, Arc::clone(&body), Arc::clone(&next));
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            while let Some(body) = body(next.fetch_add(1, Ordering::Relaxed)) {
                connection.request(&head, &body).await?.expect_success()?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// What the bare server makes of a message.
#[derive(Deserialize)]
struct Message {
    phone: String,
    text: String,
    campaign: String,
    dedupe_key: String,
}

impl Message {
    fn length(&self) -> usize {
        self.phone.len() + self.text.len() + self.campaign.len() + self.dedupe_key.len()
    }
}

/// Runs the bare server until its parent is gone.
pub(crate) fn serve() -> anyhow::Result<()> {
    std::thread::spawn(|| {
        // Whatever ends it, the parent is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::abort();
    });
    let one = |Json(message): Json<Message>| async move {
        let answer = json!({ "id": "1", "campaign": message.campaign, "state": "queued", "segments": message.length() / 160 });
        (StatusCode::ACCEPTED, Json(answer))
    };
    let many = |body: Bytes| async move {
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let parsed = lines.map(|line| {
            let message: Message = serde_json::from_slice(line)?;
            Ok(message.length().to_string())
        });
        let ids: Result<Vec<String>, serde_json::Error> = parsed.collect();
        let ids = ids.map_err(|_| StatusCode::BAD_REQUEST)?;
        Ok::<_, StatusCode>(Json(json!({ "accepted": ids.len(), "ids": ids })))
    };
    let router = axum::Router::new()
        .route("/v1/messages", post(one))
        .route("/v1/messages/batch", post(many))
        .layer(axum::extract::DefaultBodyLimit::disable());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
        axum::serve(listener, router).await?;
        Ok(())
    })
}

/// Runs clients on one thread, which is enough for all of them.
pub(crate) fn block_on<T>(clients: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let value = runtime.block_on(clients);
    runtime.shutdown_timeout(Duration::from_secs(1));
    value
}
