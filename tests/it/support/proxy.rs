//! A proxy to a database server that cuts a connection at its commit, so that the client cannot know whether it was
//! committed; holds the answer back; cuts all connections; or stands still, like a server whose disk does.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use url::Url;

use super::databases::Database;

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The server never receives the commit, and rolls back.
    BeforeCommit,
    /// The server has committed; its response is lost.
    AfterCommit,
    /// The server has committed; its response arrives this much later.
    Late(Duration),
}

/// Listens until the test ends.
pub(crate) struct Proxy {
    address: SocketAddr,
    cuts: Arc<Mutex<VecDeque<Cut>>>,
    still: Arc<Still>,
    /// Both ends of every connection.
    connections: Arc<Mutex<Vec<TcpStream>>>,
    is_refusing: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

/// Whether nothing passes.
#[derive(Default)]
struct Still {
    is_still: Mutex<bool>,
    changed: Condvar,
}

impl Still {
    fn set(&self, is_still: bool) {
        *self.is_still.lock().expect("no panic") = is_still;
        self.changed.notify_all();
    }

    /// Waits while nothing passes.
    fn pass(&self) {
        let is_still = self.is_still.lock().expect("no panic");
        let passed = self.changed.wait_while(is_still, |is_still| *is_still);
        drop(passed.expect("no panic"));
    }
}

impl Proxy {
    /// Starts a proxy to the server of this database.
    pub(crate) fn start(db: &Database) -> Self {
        let url = Url::parse(&db.url).expect("a URL");
        let server = format!(
            "{}:{}",
            url.host_str().expect("a host"),
            url.port().expect("a port")
        );
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Self {
            address: listener.local_addr().expect("an address"),
            cuts: Arc::default(),
            still: Arc::default(),
            connections: Arc::default(),
            is_refusing: Arc::default(),
            is_over: Arc::default(),
        };
        let (cuts, is_over) = (Arc::clone(&proxy.cuts), Arc::clone(&proxy.is_over));
        let still = Arc::clone(&proxy.still);
        let is_refusing = Arc::clone(&proxy.is_refusing);
        let connections = Arc::clone(&proxy.connections);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let client = client.expect("a connection");
                if is_refusing.load(Ordering::SeqCst) {
                    continue;
                }
                // A server that is not running refuses the client, too.
                let Ok(server) = TcpStream::connect(&server) else {
                    continue;
                };
                join(&client, &server, &cuts, &still);
                let mut connections = connections.lock().expect("no panic");
                connections.extend([client, server]);
            }
        });
        proxy
    }

    /// The URL of the database through the proxy.
    pub(crate) fn url(&self, db: &Database) -> String {
        let mut url = Url::parse(&db.url).expect("a URL");
        url.set_port(Some(self.address.port())).expect("a port");
        url.into()
    }

    /// Cuts the next commits, one after the other.
    pub(crate) fn cut(&self, cuts: &[Cut]) {
        self.cuts.lock().expect("no panic").extend(cuts);
    }

    /// Lets nothing pass any more, and accepts connections that get no answer.
    pub(crate) fn stand_still(&self) {
        self.still.set(true);
    }

    pub(crate) fn go_on(&self) {
        self.still.set(false);
    }

    /// Cuts every connection, and closes new ones until it accepts them again.
    pub(crate) fn refuse(&self) {
        self.is_refusing.store(true, Ordering::SeqCst);
        self.cut_all();
    }

    pub(crate) fn accept(&self) {
        self.is_refusing.store(false, Ordering::SeqCst);
    }

    /// Cuts every connection.
    pub(crate) fn cut_all(&self) {
        for connection in self.connections.lock().expect("no panic").drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Forgets the cuts that have not been made, and returns them.
    pub(crate) fn forget_cuts(&self) -> Vec<Cut> {
        self.cuts.lock().expect("no panic").drain(..).collect()
    }

    /// Whether every cut has been made.
    pub(crate) fn has_cut(&self) -> bool {
        self.cuts.lock().expect("no panic").is_empty()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.go_on();
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

/// Copies in both directions until one side disconnects, or a commit is cut.
fn join(
    client: &TcpStream,
    server: &TcpStream,
    cuts: &Arc<Mutex<VecDeque<Cut>>>,
    still: &Arc<Still>,
) {
    let is_cut = Arc::new(AtomicBool::new(false));
    let late_until: Arc<Mutex<Option<Instant>>> = Arc::default();
    let cuts = Arc::clone(cuts);
    let (cut, late) = (Arc::clone(&is_cut), Arc::clone(&late_until));
    let (asked, answered) = (Arc::clone(still), Arc::clone(still));
    carry(client, server, move |bytes_read| {
        asked.pass();
        if !is_commit(bytes_read) {
            return true;
        }
        match cuts.lock().expect("no panic").pop_front() {
            Some(Cut::BeforeCommit) => return false,
            Some(Cut::AfterCommit) => cut.store(true, Ordering::SeqCst),
            Some(Cut::Late(span)) => {
                *late.lock().expect("no panic") = Some(Instant::now() + span);
            }
            None => {}
        }
        true
    });
    carry(server, client, move |_| {
        answered.pass();
        let until = late_until.lock().expect("no panic").take();
        if let Some(until) = until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        !is_cut.load(Ordering::SeqCst)
    });
}

/// Looks for the whole word: transactions also begin as READ COMMITTED.
fn is_commit(bytes_read: &[u8]) -> bool {
    bytes_read.ends_with(b"COMMIT") || bytes_read.windows(7).any(|word| word == b"COMMIT\0")
}

/// Copies in one direction until either side disconnects, or `may_pass` refuses what was read.
pub(crate) fn carry(
    from: &TcpStream,
    to: &TcpStream,
    may_pass: impl Fn(&[u8]) -> bool + Send + 'static,
) {
    let mut from = from.try_clone().expect("a handle");
    let mut to = to.try_clone().expect("a handle");
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(read) = from.read(&mut bytes) {
            let bytes_read = &bytes[..read];
            if read == 0 || !may_pass(bytes_read) || to.write_all(bytes_read).is_err() {
                break;
            }
        }
        // Either may be closed already.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
