//! A provider over HTTP whose every answer a test decides, and whose clock may be wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

/// What is done with a request.
pub(crate) enum Reply {
    /// Status 200 with this JSON.
    Json(String),
    /// The connection is closed without an answer.
    Lost,
    /// No answer comes while the test runs.
    Never,
    /// The same as `Json`, once so many look-ups were asked.
    AfterLookups(usize, String),
}

/// The first line of a request.
pub(crate) struct Asked {
    pub(crate) line: String,
}

impl Asked {
    pub(crate) fn is_lookup(&self) -> bool {
        self.line.starts_with("GET ")
    }
}

pub(crate) struct Dated {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Dated {
    /// `ahead` is by how many seconds its clock differs; `None`: its answers have no date. `reply` gets the number of
    /// earlier requests of the same method.
    pub(crate) fn start(
        ahead: Option<i64>,
        reply: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (log, reply) = (Arc::clone(&asked), Arc::new(reply));
        let more: Arc<Condvar> = Arc::default();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, more, reply) = (Arc::clone(&log), Arc::clone(&more), Arc::clone(&reply));
                std::thread::spawn(move || {
                    let Some(asked) = read(&stream) else { return };
                    let mut all = log.lock().expect("not poisoned");
                    let earlier = all.iter().filter(|it| it.is_lookup() == asked.is_lookup());
                    let reply = reply(&asked, earlier.count());
                    all.push(asked);
                    drop(all);
                    more.notify_all();
                    match reply {
                        Reply::Json(body) => answer(stream, ahead, &body),
                        Reply::Lost => drop(stream),
                        Reply::Never => std::thread::park(),
                        Reply::AfterLookups(count, body) => {
                            let are_too_few = |all: &mut Vec<Asked>| {
                                all.iter().filter(|it| it.is_lookup()).count() < count
                            };
                            let all = log.lock().expect("not poisoned");
                            drop(more.wait_while(all, are_too_few));
                            answer(stream, ahead, &body);
                        }
                    }
                });
            }
        });
        Self { address, asked }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many requests were to send a message.
    pub(crate) fn sends(&self) -> usize {
        self.count(false)
    }

    pub(crate) fn lookups(&self) -> usize {
        self.count(true)
    }

    fn count(&self, lookups: bool) -> usize {
        let all = self.asked.lock().expect("not poisoned");
        all.iter().filter(|it| it.is_lookup() == lookups).count()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let all = self.asked.lock().expect("not poisoned");
        all.iter().map(|asked| asked.line.clone()).collect()
    }
}

/// This machine's clock, so many seconds ahead, as RFC 3339.
pub(crate) fn clock(ahead: i64) -> String {
    let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(ahead);
    format!("{now:.0}")
}

fn read(stream: &TcpStream) -> Option<Asked> {
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
    reader.read_exact(&mut vec![0; length]).ok()?;
    Some(Asked {
        line: line.trim().to_owned(),
    })
}

fn answer(mut stream: TcpStream, ahead: Option<i64>, body: &str) {
    let date = ahead.map(|ahead| {
        let seconds = Duration::from_secs(ahead.unsigned_abs());
        let now = SystemTime::now();
        let now = if ahead < 0 {
            now - seconds
        } else {
            now + seconds
        };
        format!("date: {}\r\n", httpdate::fmt_http_date(now))
    });
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n{}\r\n",
        body.len(),
        date.unwrap_or_default()
    );
    // Nobody may be left to read it.
    drop(stream.write_all(format!("{head}{body}").as_bytes()));
}
