//! A gateway whose responses are written down beforehand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Listens until the test ends.
pub(crate) struct Scripted {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    /// The first line and the headers of each request.
    heads: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    /// Responds to every request with this status, such as `400 Bad Request`, and this body.
    pub(crate) fn start(status: &str, body: &str) -> Self {
        Self::in_order(&[(status, body)])
    }

    /// Responds to each request with the next status and body, and to all further ones with the last.
    pub(crate) fn in_order(responses: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let gateway = Self {
            address: listener.local_addr().expect("an address"),
            is_over: Arc::default(),
            heads: Arc::default(),
        };
        let is_over = Arc::clone(&gateway.is_over);
        let heads = Arc::clone(&gateway.heads);
        let answers = responses.iter().map(|(status, body)| {
            format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            )
        });
        let answers: Arc<[String]> = answers.collect();
        let next = Arc::new(AtomicUsize::new(0));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (answers, next) = (Arc::clone(&answers), Arc::clone(&next));
                let heads = Arc::clone(&heads);
                std::thread::spawn(move || {
                    // The client may have disconnected.
                    let _ = client
                        .and_then(|mut client| converse(&mut client, &answers, &next, &heads));
                });
            }
        });
        gateway
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The methods and paths of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        let first = |head: &String| {
            let line = head.lines().next().unwrap_or_default();
            line.trim_end_matches(" HTTP/1.1").to_owned()
        };
        self.heads().iter().map(first).collect()
    }

    /// The first lines and headers of all requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("not poisoned").clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

/// Reads one request and answers it.
fn converse(
    client: &mut TcpStream,
    answers: &[String],
    next: &AtomicUsize,
    heads: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut request = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    if request.read_line(&mut head)? == 0 {
        return Ok(());
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        request.read_line(&mut line)?;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    heads.lock().expect("not poisoned").push(head);
    request.read_exact(&mut vec![0; length])?;
    let index = next.fetch_add(1, Ordering::Relaxed);
    let last = answers.len() - 1;
    client.write_all(answers[index.min(last)].as_bytes())
}
