//! The gateway of the measurements: a process of its own with a small HTTP/1.1 server that shares no code with the
//! program. It accepts every message after a latency, and counts.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use rustix::process::setpriority_process;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The argument that makes this program the gateway.
pub(crate) const COMMAND: &str = "gateway";
const RECORD: &str = "record";
const SECOND_US: u64 = 1_000_000;
const PRIORITY: i32 = -15;
/// As many connections may wait to be accepted: a client whose connection is dropped waits for a second.
const BACKLOG: u32 = 4_096;

/// What the gateway has counted. Instants are microseconds since 1970 on the system's clock.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Stats {
    pub(crate) requests: u32,
    pub(crate) first_arrival_us: u64,
    pub(crate) last_arrival_us: u64,
    pub(crate) last_answer_us: u64,
    /// Only where the gateway records them.
    pub(crate) recorded: Option<Recorded>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Recorded {
    pub(crate) distinct_references: usize,
    /// The most arrivals in any sliding second.
    pub(crate) max_in_any_second: usize,
    /// How late the gateway may have noticed an arrival, because the processors were busy.
    pub(crate) max_delay_us: u64,
}

/// The process; it ends when this is dropped, or when its parent is killed.
pub(crate) struct Gateway {
    process: Child,
    address: SocketAddr,
}

impl Gateway {
    pub(crate) fn start(latency: Duration) -> anyhow::Result<Self> {
        Self::start_with(latency, &[])
    }

    /// A gateway that records each reference and arrival, which takes more of its time.
    pub(crate) fn recording(latency: Duration) -> anyhow::Result<Self> {
        Self::start_with(latency, &[RECORD])
    }

    fn start_with(latency: Duration, more: &[&str]) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([COMMAND, &latency.as_millis().to_string()])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        let stdout = process.stdout.take().context("it has no standard output")?;
        BufReader::new(stdout).read_line(&mut address)?;
        let address = address.trim().parse().context("the gateway did not start");
        let address = address.inspect_err(|_| drop(process.kill()))?;
        Ok(Self { process, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/send", self.address)
    }

    pub(crate) fn stats(&self) -> anyhow::Result<Stats> {
        let mut stream = std::net::TcpStream::connect(self.address)?;
        stream.write_all(b"GET /stats HTTP/1.1\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, stats) = answer.split_once("\r\n\r\n").context("no statistics")?;
        Ok(serde_json::from_str(stats)?)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the gateway until its standard input is closed: `gateway MILLISECONDS [record]`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let latency = arguments.first().context("missing latency")?.parse()?;
    let counts = Arc::new(Counts {
        latency: Duration::from_millis(latency),
        requests: AtomicU32::new(0),
        first_arrival_us: AtomicU64::new(u64::MAX),
        last_arrival_us: AtomicU64::new(0),
        last_answer_us: AtomicU64::new(0),
        records: (arguments.get(1).map(String::as_str) == Some(RECORD)).then(Mutex::default),
    });
    // One thread: it takes less of the machine than several that wake each other.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (closed, is_over) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        // Whatever ends it, the parent is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(closed);
    });
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, 1], 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
        if counts.records.is_some() {
            // An arrival should be noticed when it happens. Only root may have a higher priority.
            let _ = setpriority_process(None, PRIORITY);
            tokio::spawn(note_delays(Arc::clone(&counts)));
        }
        tokio::select! {
            ended = accept(&listener, &counts) => ended,
            _ = is_over => Ok(()),
        }
    })
}

/// Notes how late this process is, from the first arrival on.
async fn note_delays(counts: Arc<Counts>) {
    let Some(records) = &counts.records else {
        return;
    };
    loop {
        let before = Instant::now();
        tokio::time::sleep(Duration::from_millis(1)).await;
        // A timer has whole milliseconds, rounded up.
        let delay = before.elapsed().saturating_sub(Duration::from_millis(2));
        let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
        if !records.arrivals_us.is_empty() {
            let delay = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
            records.max_delay_us = records.max_delay_us.max(delay);
        }
    }
}

async fn accept(listener: &TcpListener, counts: &Arc<Counts>) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let counts = Arc::clone(counts);
        tokio::spawn(async move {
            // The client has closed the connection.
            let _ = serve(stream, &counts).await;
        });
    }
}

/// Answers the requests of one connection, one after the other.
async fn serve(mut stream: TcpStream, counts: &Counts) -> std::io::Result<()> {
    let mut read = Vec::with_capacity(4_096);
    loop {
        let length = loop {
            if let Some(length) = complete(&read) {
                break length;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        if read.starts_with(b"GET ") {
            let stats = serde_json::to_vec(&counts.stats())?;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            return stream.write_all(&stats).await;
        }
        let number = counts.note_arrival(&read[..length]);
        read.drain(..length);
        if !counts.latency.is_zero() {
            tokio::time::sleep(counts.latency).await;
        }
        let answer = format!(
            "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 21\r\n\r\n\
             {{\"id\":\"m-{number:010}\"}}"
        );
        stream.write_all(answer.as_bytes()).await?;
        counts.last_answer_us.fetch_max(now_us(), Ordering::Relaxed);
    }
}

/// The length of the first request, if all of it has been read.
fn complete(read: &[u8]) -> Option<usize> {
    const LENGTH: &[u8] = b"content-length:";
    let end = read.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let header = read[..end].split(|byte| *byte == b'\n').find(|line| {
        let name = line.get(..LENGTH.len());
        name.is_some_and(|name| name.eq_ignore_ascii_case(LENGTH))
    });
    let body = match header {
        None => 0,
        Some(line) => {
            let value = std::str::from_utf8(&line[LENGTH.len()..]).ok()?;
            value.trim().parse().ok()?
        }
    };
    let length = end + 4 + body;
    (read.len() >= length).then_some(length)
}

struct Counts {
    latency: Duration,
    requests: AtomicU32,
    first_arrival_us: AtomicU64,
    last_arrival_us: AtomicU64,
    last_answer_us: AtomicU64,
    records: Option<Mutex<Records>>,
}

#[derive(Default)]
struct Records {
    references: HashSet<Vec<u8>>,
    arrivals_us: Vec<u64>,
    max_delay_us: u64,
}

impl Counts {
    /// Returns the number of the message.
    fn note_arrival(&self, request: &[u8]) -> u32 {
        let now = now_us();
        self.first_arrival_us.fetch_min(now, Ordering::Relaxed);
        self.last_arrival_us.fetch_max(now, Ordering::Relaxed);
        if let Some(records) = &self.records {
            let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
            records.arrivals_us.push(now);
            records.references.insert(reference(request).to_owned());
        }
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    fn stats(&self) -> Stats {
        Stats {
            requests: self.requests.load(Ordering::Relaxed),
            first_arrival_us: self.first_arrival_us.load(Ordering::Relaxed),
            last_arrival_us: self.last_arrival_us.load(Ordering::Relaxed),
            last_answer_us: self.last_answer_us.load(Ordering::Relaxed),
            recorded: self.records.as_ref().map(|records| {
                let records = records.lock().unwrap_or_else(PoisonError::into_inner);
                Recorded {
                    distinct_references: records.references.len(),
                    max_in_any_second: max_in_any_second(&records.arrivals_us),
                    max_delay_us: records.max_delay_us,
                }
            }),
        }
    }
}

/// The value of `"ref":"…"`.
fn reference(request: &[u8]) -> &[u8] {
    const KEY: &[u8] = b"\"ref\":\"";
    let start = request.windows(KEY.len()).position(|bytes| bytes == KEY);
    let value = &request[start.map_or(request.len(), |start| start + KEY.len())..];
    let end = value.iter().position(|byte| *byte == b'"');
    &value[..end.unwrap_or(value.len())]
}

fn max_in_any_second(arrivals_us: &[u64]) -> usize {
    let mut first = 0;
    let mut max = 0;
    for (last, arrival) in arrivals_us.iter().enumerate() {
        while arrivals_us[first] + SECOND_US <= *arrival {
            first += 1;
        }
        max = max.max(last + 1 - first);
    }
    max
}

/// Microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
