//! A receiver of events over HTTP, which refuses, stalls and redirects as a test wants, and remembers every request.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

/// The secret of all hooks: 32 bytes.
pub(crate) const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

/// What the receiver does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    /// Answers with this status and these further headers.
    Answer(u16, &'static str),
    /// Answers nothing for this time, and then closes the connection.
    Stall(Duration),
}

/// An event as it was posted.
#[derive(Clone, Debug)]
pub(crate) struct PostedEvent {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) body: Value,
    pub(crate) headers: BTreeMap<String, String>,
    /// Whether it was answered with success.
    pub(crate) is_taken: bool,
}

impl PostedEvent {
    pub(crate) fn kind(&self) -> &str {
        self.body["type"].as_str().expect("a type")
    }

    /// The signature, computed as the specification says, without the program.
    fn expected_signature(&self) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(KEY).expect("any length is good");
        let at = &self.headers["webhook-timestamp"];
        mac.update(format!("{}.{at}.{}", self.id, self.text).as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }

    pub(crate) fn assert_is_signed(&self) {
        assert_eq!(self.headers["webhook-signature"], self.expected_signature());
    }
}

type React = dyn Fn(&PostedEvent) -> Reaction + Send + Sync;

/// Listens until the test ends.
pub(crate) struct Receiver {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<PostedEvent>>>,
}

impl Receiver {
    /// Takes every event.
    pub(crate) fn start() -> Self {
        Self::with(|_| Reaction::Answer(204, ""))
    }

    pub(crate) fn with(react: impl Fn(&PostedEvent) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let receiver = Self {
            address: listener.local_addr().expect("an address"),
            is_over: Arc::default(),
            events: Arc::default(),
        };
        let react: Arc<React> = Arc::new(react);
        let (is_over, events) = (Arc::clone(&receiver.is_over), Arc::clone(&receiver.events));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (react, events) = (Arc::clone(&react), Arc::clone(&events));
                std::thread::spawn(move || {
                    // The client may have disconnected.
                    let _ = client.and_then(|mut client| converse(&mut client, &*react, &events));
                });
            }
        });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// All events so far, also those that were posted again.
    pub(crate) fn events(&self) -> Vec<PostedEvent> {
        self.events.lock().expect("not poisoned").clone()
    }

    /// The events that were taken, by id; fails if one came with another body.
    pub(crate) fn taken(&self) -> BTreeMap<String, PostedEvent> {
        let mut taken: BTreeMap<String, PostedEvent> = BTreeMap::new();
        let mut bodies: BTreeMap<String, String> = BTreeMap::new();
        for event in self.events() {
            event.assert_is_signed();
            let body = bodies.entry(event.id.clone()).or_insert_with(|| event.text.clone());
            assert_eq!(*body, event.text, "{} has two bodies", event.id);
            if event.is_taken {
                taken.insert(event.id.clone(), event);
            }
        }
        taken
    }

    /// The section of a hook with this name that posts to this receiver. Its secret is in the file `hook`.
    pub(crate) fn section(&self, name: &str, kinds: &[&str], more: &str) -> String {
        let url = self.url();
        format!(
            "\n[[hooks]]\nname = \"{name}\"\nurl = \"{url}\"\nsecret = {{ file = \"hook\" }}\n\
             events = {kinds:?}\nallow_private = true\ninsecure = true\n{more}\n"
        )
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

/// Reads one request and reacts to it.
fn converse(
    client: &mut TcpStream,
    react: &React,
    events: &Mutex<Vec<PostedEvent>>,
) -> std::io::Result<()> {
    let mut request = BufReader::new(client.try_clone()?);
    let mut first = String::new();
    if request.read_line(&mut first)? == 0 {
        return Ok(());
    }
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        request.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length =
        headers.get("content-length").map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    request.read_exact(&mut body)?;
    let text = String::from_utf8(body).expect("UTF-8");
    let mut event = PostedEvent {
        id: headers.get("webhook-id").cloned().unwrap_or_default(),
        body: serde_json::from_str(&text).unwrap_or_default(),
        text,
        headers,
        is_taken: false,
    };
    let reaction = react(&event);
    event.is_taken = matches!(reaction, Reaction::Answer(status, _) if status < 300);
    events.lock().expect("not poisoned").push(event);
    match reaction {
        Reaction::Answer(status, more) => client.write_all(
            format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n{more}\r\n")
                .as_bytes(),
        ),
        Reaction::Stall(time) => {
            std::thread::sleep(time);
            Ok(())
        }
    }
}
