//! An HTTP provider whose responses a test decides, and whose clock may be wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use jiff::fmt::rfc2822::DateTimePrinter;

/// How a request is answered.
pub(crate) enum Reply {
    /// Status 200 with this JSON.
    Json(String),
    /// This status, such as `503 Service Unavailable`, perhaps with headers after it, and an empty body.
    Status(&'static str),
    /// This status and this body.
    Full(&'static str, String),
    /// These bytes, whatever they are; then the connection is closed.
    Raw(Vec<u8>),
    /// These bytes; then nothing comes while the test runs.
    Unfinished(Vec<u8>),
    /// The connection is closed without a response.
    Lost,
    /// No response comes while the test runs.
    Never,
    /// The same as `Json`, after this number of lookups.
    AfterLookups(usize, String),
}

/// A request, and when it was read.
#[derive(Clone)]
pub(crate) struct Received {
    /// Its first line.
    pub(crate) line: String,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

impl Received {
    pub(crate) fn is_lookup(&self) -> bool {
        self.line.starts_with("GET ")
    }
}

pub(crate) struct TimedProvider {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl TimedProvider {
    /// `ahead`: by how many seconds its clock differs; `None`: its responses have no date. `reply` gets the number of
    /// earlier requests of the same method.
    pub(crate) fn start(
        ahead: Option<i64>,
        reply: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (log, reply) = (Arc::clone(&received), Arc::new(reply));
        let more: Arc<Condvar> = Arc::default();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, more, reply) = (Arc::clone(&log), Arc::clone(&more), Arc::clone(&reply));
                std::thread::spawn(move || {
                    let Some(received) = read(&stream) else {
                        return;
                    };
                    let mut all = log.lock().expect("not poisoned");
                    let earlier =
                        all.iter().filter(|request| request.is_lookup() == received.is_lookup());
                    let reply = reply(&received, earlier.count());
                    all.push(received);
                    drop(all);
                    more.notify_all();
                    match reply {
                        Reply::Json(body) => answer(stream, "200 OK", ahead, &body),
                        Reply::Status(status) => answer(stream, status, ahead, ""),
                        Reply::Full(status, body) => answer(stream, status, ahead, &body),
                        // The client may have disconnected.
                        Reply::Raw(bytes) => drop((&stream).write_all(&bytes)),
                        Reply::Unfinished(bytes) => {
                            drop((&stream).write_all(&bytes));
                            std::thread::park();
                        }
                        Reply::Lost => drop(stream),
                        Reply::Never => std::thread::park(),
                        Reply::AfterLookups(count, body) => {
                            let has_too_few = |all: &mut Vec<Received>| {
                                all.iter().filter(|request| request.is_lookup()).count() < count
                            };
                            let all = log.lock().expect("not poisoned");
                            drop(more.wait_while(all, has_too_few));
                            answer(stream, "200 OK", ahead, &body);
                        }
                    }
                });
            }
        });
        Self { address, received }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bodies of the requests that sent messages.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let all = self.received().into_iter();
        let sends = all.filter(|request| !request.is_lookup());
        sends.map(|request| request.body).collect()
    }

    /// How many requests sent a message.
    pub(crate) fn sends(&self) -> usize {
        self.count(false)
    }

    pub(crate) fn lookups(&self) -> usize {
        self.count(true)
    }

    fn count(&self, lookups: bool) -> usize {
        let all = self.received.lock().expect("not poisoned");
        all.iter().filter(|request| request.is_lookup() == lookups).count()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let all = self.received();
        all.into_iter().map(|received| received.line).collect()
    }

    /// All requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("not poisoned").clone()
    }
}

/// This machine's clock, `ahead` seconds later, as RFC 3339.
pub(crate) fn clock(ahead: i64) -> String {
    let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(ahead);
    format!("{now:.0}")
}

/// Reads one request.
pub(crate) fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).ok()? == 0 {
            return None;
        }
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Received {
        line: line.trim().to_owned(),
        body: String::from_utf8_lossy(&body).into_owned(),
        at: Instant::now(),
    })
}

fn answer(mut stream: TcpStream, status: &str, ahead: Option<i64>, body: &str) {
    let date = ahead.map(|ahead| {
        let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(ahead);
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
        format!("date: {}\r\n", date.expect("a date"))
    });
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{}\r\n",
        body.len(),
        date.unwrap_or_default()
    );
    // The client may have disconnected.
    drop(stream.write_all(format!("{head}{body}").as_bytes()));
}
