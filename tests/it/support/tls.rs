//! A TLS proxy in front of the practice gateway, with its own certificate: its handshakes are slow, and it closes each
//! connection after one response, like many vendors.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Scratch;
use super::practice::Practice;

/// Listens until the test ends.
pub(crate) struct TlsFront {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl TlsFront {
    /// Waiting handshakes are answered together at every full `period`. The certificate is `authority.pem` in the
    /// scratch folder, which the program trusts while the file exists.
    pub(crate) fn start(scratch: &Scratch, gateway: &Practice, period: Duration) -> Self {
        let config = Arc::new(config(scratch));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let front =
            Self { address: listener.local_addr().expect("an address"), is_over: Arc::default() };
        let (is_over, gateway) = (Arc::clone(&front.is_over), gateway.address());
        let began = Instant::now();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (client, config) = (client.expect("a connection"), Arc::clone(&config));
                std::thread::spawn(move || {
                    // The slow handshake.
                    std::thread::sleep(until_next(period, began.elapsed()));
                    // The client may have disconnected.
                    let _ = answer_one(client, config, gateway);
                });
            }
        });
        front
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

fn until_next(period: Duration, elapsed: Duration) -> Duration {
    if period.is_zero() {
        return period;
    }
    let into = elapsed.as_micros() % period.as_micros();
    period.saturating_sub(Duration::from_micros(u64::try_from(into).expect("less than a period")))
}

fn config(scratch: &Scratch) -> ServerConfig {
    let (certificate, key) = (scratch.path("authority.pem"), scratch.path("server.key"));
    let made = Command::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split(' '))
        .args(["-subj", "/CN=127.0.0.1"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output()
        .expect("openssl (`tests/run` installs it)");
    assert!(made.status.success(), "{made:?}");
    let chain = vec![CertificateDer::from_pem_file(&certificate).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(&key).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a configuration")
}

/// Passes one request to the gateway and its response back.
fn answer_one(client: TcpStream, config: Arc<ServerConfig>, gateway: SocketAddr) -> io::Result<()> {
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut client = StreamOwned::new(connection, client);
    let request = message(&mut client)?;
    let mut gateway = TcpStream::connect(gateway)?;
    gateway.write_all(&request)?;
    let response = message(&mut gateway)?;
    let line = response.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
    client.write_all(&response[..line])?;
    client.write_all(b"connection: close\r\n")?;
    client.write_all(&response[line..])?;
    client.conn.send_close_notify();
    client.flush()
}

/// Reads a head and its body.
fn message(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    loop {
        if let Some(at) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..at]).to_ascii_lowercase();
            let length = head.split("content-length:").nth(1).unwrap_or("0");
            let length = length.lines().next().unwrap_or_default().trim();
            let length: usize = length.parse().map_err(io::Error::other)?;
            if read.len() >= at + 4 + length {
                return Ok(read);
            }
        }
        let mut more = [0; 4_096];
        let count = stream.read(&mut more)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&more[..count]);
    }
}
