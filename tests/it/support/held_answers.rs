//! A relay in front of a gateway that holds its answers until the test lets them go. A test that needs requests in
//! flight does not depend on the speed of the machine then, as it would with a gateway that is slow.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// How many more answers go to the clients.
#[derive(Default)]
struct Allowance {
    answers: Mutex<u64>,
    changed: Condvar,
}

impl Allowance {
    /// Waits until one more answer may go.
    fn take(&self) {
        let answers = self.answers.lock().expect("not poisoned");
        let mut answers =
            self.changed.wait_while(answers, |answers| *answers == 0).expect("not poisoned");
        *answers -= 1;
    }

    fn set(&self, answers: u64) {
        *self.answers.lock().expect("not poisoned") = answers;
        self.changed.notify_all();
    }
}

/// Listens until the test ends.
pub(crate) struct HeldAnswers {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    allowance: Arc<Allowance>,
}

impl HeldAnswers {
    /// Passes requests on to `gateway`, and its first `answers` back.
    pub(crate) fn start(gateway: SocketAddr, answers: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let held = Self {
            address: listener.local_addr().expect("an address"),
            is_over: Arc::default(),
            allowance: Arc::default(),
        };
        held.allowance.set(answers);
        let (is_over, allowance) = (Arc::clone(&held.is_over), Arc::clone(&held.allowance));
        thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let allowance = Arc::clone(&allowance);
                // Either may have disconnected.
                let _ = client.and_then(|client| relay(client, gateway, allowance));
            }
        });
        held
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets all answers go, now and later.
    pub(crate) fn release(&self) {
        self.allowance.set(u64::MAX);
    }
}

impl Drop for HeldAnswers {
    fn drop(&mut self) {
        self.release();
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

fn relay(client: TcpStream, gateway: SocketAddr, allowance: Arc<Allowance>) -> std::io::Result<()> {
    let gateway = TcpStream::connect(gateway)?;
    let (requests, answers) = (client.try_clone()?, gateway.try_clone()?);
    thread::spawn(move || pass(requests, &gateway, || ()));
    thread::spawn(move || pass(answers, &client, || allowance.take()));
    Ok(())
}

/// Passes on what it reads until one side has closed, after `wait` where an answer begins.
fn pass(mut from: TcpStream, mut to: &TcpStream, wait: impl Fn()) {
    let mut piece = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if piece.starts_with(b"HTTP/1.1 ") {
            wait();
        }
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    // It may be closed already.
    let _ = to.shutdown(Shutdown::Write);
}
