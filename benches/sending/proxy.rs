//! A proxy to a database server that counts round trips: how often a client writes after the server has. It can also
//! put a distance between them.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use url::Url;

/// Listens until this process ends.
pub(crate) struct Proxy {
    /// The URL of the database through the proxy.
    pub(crate) url: String,
    round_trips: Arc<AtomicU32>,
}

impl Proxy {
    /// Starts a proxy to the server of a database.
    pub(crate) fn start(url: &str) -> anyhow::Result<Self> {
        Self::start_away(url, Duration::ZERO)
    }

    /// The same, with a round trip that takes longer by `distance`.
    pub(crate) fn start_away(url: &str, distance: Duration) -> anyhow::Result<Self> {
        let mut url = Url::parse(url)?;
        let host = url.host_str().context("a URL without a host")?;
        let server = format!("{host}:{}", url.port().context("a URL without a port")?);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        url.set_port(Some(port)).ok().context("a URL without a port")?;
        let round_trips = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&round_trips);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // The client sees that its connection is closed.
                let _ = client.and_then(|client| join(&client, &server, &counter, distance / 2));
            }
        });
        Ok(Self { url: url.into(), round_trips })
    }

    pub(crate) fn round_trips(&self) -> u32 {
        self.round_trips.load(Ordering::Relaxed)
    }
}

/// Copies in both directions until one side disconnects.
fn join(
    client: &TcpStream,
    server: &str,
    round_trips: &Arc<AtomicU32>,
    one_way: Duration,
) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let server_was_last = Arc::new(AtomicBool::new(true));
    let (was_last, round_trips) = (Arc::clone(&server_was_last), Arc::clone(round_trips));
    carry(client.try_clone()?, server.try_clone()?, move || {
        if was_last.swap(false, Ordering::SeqCst) {
            round_trips.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(one_way);
    });
    carry(server, client.try_clone()?, move || {
        server_was_last.store(true, Ordering::SeqCst);
        std::thread::sleep(one_way);
    });
    Ok(())
}

/// Copies what one side writes; `note` is called before each write.
fn carry(mut from: TcpStream, mut to: TcpStream, note: impl Fn() + Send + 'static) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            note();
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        // Either may be closed already.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
