//! A proxy to a database server that cuts a connection at its commit, so that the client cannot know whether it was
//! committed; holds the answer back; cuts all connections; or stands still, like a server whose disk does.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The server never receives the commit, and rolls back.
    BeforeCommit,
    /// The server receives half of the commit, and rolls back.
    InCommit,
    /// The server has committed; its response is lost.
    AfterCommit,
    /// The server has committed; its response arrives this much later.
    Late(Duration),
}

/// Listens until it is dropped.
pub struct Proxy {
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
        *locked(&self.is_still) = is_still;
        self.changed.notify_all();
    }

    /// Waits while nothing passes.
    fn pass(&self) {
        let passed = self.changed.wait_while(locked(&self.is_still), |is_still| *is_still);
        drop(passed);
    }
}

/// Ignores poisoning: no value is changed in several steps.
fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Starts a proxy to a server, `HOST:PORT`, on a free port of loopback.
    pub fn start(server: &str) -> io::Result<Self> {
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let proxy = Self {
            address: listener.local_addr()?,
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
                if is_refusing.load(Ordering::SeqCst) {
                    continue;
                }
                // A server that is not running refuses the client, too.
                let Ok((client, server)) =
                    client.and_then(|client| Ok((client, TcpStream::connect(&server)?)))
                else {
                    continue;
                };
                if join(&client, &server, &cuts, &still).is_ok() {
                    locked(&connections).extend([client, server]);
                }
            }
        });
        Ok(proxy)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the next commits, one after the other.
    pub fn cut(&self, cuts: &[Cut]) {
        locked(&self.cuts).extend(cuts);
    }

    /// Lets nothing pass any more, and accepts connections that get no answer.
    pub fn stand_still(&self) {
        self.still.set(true);
    }

    pub fn go_on(&self) {
        self.still.set(false);
    }

    /// Cuts every connection, and closes new ones until it accepts them again.
    pub fn refuse(&self) {
        self.is_refusing.store(true, Ordering::SeqCst);
        self.cut_all();
    }

    pub fn accept(&self) {
        self.is_refusing.store(false, Ordering::SeqCst);
    }

    /// Cuts every connection.
    pub fn cut_all(&self) {
        for connection in locked(&self.connections).drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Forgets the cuts that have not been made, and returns them.
    pub fn forget_cuts(&self) -> Vec<Cut> {
        locked(&self.cuts).drain(..).collect()
    }

    /// Whether every cut has been made.
    pub fn has_cut(&self) -> bool {
        locked(&self.cuts).is_empty()
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
) -> io::Result<()> {
    let is_cut = Arc::new(AtomicBool::new(false));
    let late_until: Arc<Mutex<Option<Instant>>> = Arc::default();
    let cuts = Arc::clone(cuts);
    let (cut, late) = (Arc::clone(&is_cut), Arc::clone(&late_until));
    let (asked, answered) = (Arc::clone(still), Arc::clone(still));
    carry(client, server, move |bytes_read| {
        asked.pass();
        if !is_commit(bytes_read) {
            return bytes_read.len();
        }
        match locked(&cuts).pop_front() {
            Some(Cut::BeforeCommit) => return 0,
            Some(Cut::InCommit) => return bytes_read.len() - "MIT".len(),
            Some(Cut::AfterCommit) => cut.store(true, Ordering::SeqCst),
            Some(Cut::Late(span)) => *locked(&late) = Some(Instant::now() + span),
            None => {}
        }
        bytes_read.len()
    })?;
    carry(server, client, move |bytes_read| {
        answered.pass();
        let until = locked(&late_until).take();
        if let Some(until) = until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        if is_cut.load(Ordering::SeqCst) {
            return 0;
        }
        bytes_read.len()
    })
}

/// Looks for the whole word: transactions also begin as READ COMMITTED.
fn is_commit(bytes_read: &[u8]) -> bool {
    bytes_read.ends_with(b"COMMIT") || bytes_read.windows(7).any(|word| word == b"COMMIT\0")
}

/// Copies in one direction until either side disconnects, or until `passes` says that less passes than was read, in
/// bytes.
pub fn carry(
    from: &TcpStream,
    to: &TcpStream,
    passes: impl Fn(&[u8]) -> usize + Send + 'static,
) -> io::Result<()> {
    let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(read) = from.read(&mut bytes) {
            let passing = passes(&bytes[..read]);
            if read == 0 || to.write_all(&bytes[..passing]).is_err() || passing < read {
                break;
            }
        }
        // Either may be closed already.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
    Ok(())
}
