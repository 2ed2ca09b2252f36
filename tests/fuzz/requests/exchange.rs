//! Sends bytes to a server, and reads its answers by the rules of HTTP/1.1.

use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long a damaged request may wait for its answer. Then its end is sent, which the server need not answer.
const DAMAGED: Duration = Duration::from_millis(50);
/// Longer than an answer takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A whole answer.
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {:?} {body}", self.status, self.headers)
    }
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body, if it is JSON.
    pub(super) fn json(&self) -> Result<Option<Value>, String> {
        let kind = self.header("content-type").unwrap_or_default();
        let is_problem = kind == "application/problem+json";
        if self.body.is_empty() || !(is_problem || kind == "application/json") {
            return Ok(None);
        }
        let json: Value = serde_json::from_slice(&self.body)
            .map_err(|error| format!("not JSON: {error}: {self}"))?;
        if is_problem && json["status"] != self.status {
            return Err(format!("the problem has another status: {self}"));
        }
        Ok(Some(json))
    }
}

/// Sends bytes and returns the answers. A request that `is_whole` is waited for; any other ends with its bytes.
pub(super) fn exchange(
    address: SocketAddr,
    bytes: &[u8],
    is_head: bool,
    is_whole: bool,
) -> Result<Vec<Answer>, String> {
    let failed = |error: std::io::Error| format!("cannot reach the server: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let patience = if is_whole { PATIENCE } else { DAMAGED };
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    // The server may refuse the request before it has read it.
    let _ = stream.write_all(bytes);
    let (mut read, mut part) = (Vec::new(), [0; 16 << 10]);
    let mut is_ended = false;
    loop {
        let (answers, rest) = answers(&read, is_head)?;
        let is_answered = !answers.is_empty();
        if is_answered && !is_ended {
            // There may be answers to what a damaged head was followed by.
            let _ = stream.shutdown(Shutdown::Write);
            is_ended = true;
        }
        match stream.read(&mut part) {
            Ok(count) if count > 0 => read.extend_from_slice(&part[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if is_whole || is_ended {
                    return Err("the answer does not end".to_owned());
                }
                stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
                if read.is_empty() {
                    let _ = stream.shutdown(Shutdown::Write);
                    is_ended = true;
                }
            }
            // The server closes the connection, at once if it has not read all of it.
            Ok(_) | Err(_) => {
                // Further requests may be cut by the end of the bytes.
                return if rest.is_empty() || (is_answered && !is_whole) {
                    Ok(answers)
                } else {
                    let rest = String::from_utf8_lossy(rest);
                    Err(format!("the answer is cut: {rest}"))
                };
            }
        }
    }
}

/// The whole answers, and what follows them.
fn answers(mut bytes: &[u8], is_head: bool) -> Result<(Vec<Answer>, &[u8]), String> {
    let mut answers = Vec::new();
    while let Some((answer, rest)) = answer(bytes, is_head)? {
        bytes = rest;
        // `100 Continue` and the like are followed by the answer.
        if answer.status >= 200 {
            answers.push(answer);
        }
    }
    Ok((answers, bytes))
}

/// The first answer; `None` if it is not there or not whole yet.
fn answer(bytes: &[u8], is_head: bool) -> Result<Option<(Answer, &[u8])>, String> {
    let Some((head, rest)) = split(bytes, b"\r\n\r\n") else {
        return Ok(None);
    };
    let invalid = || format!("not HTTP: {}", String::from_utf8_lossy(bytes));
    let head = std::str::from_utf8(head).map_err(|_| invalid())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let status = status.strip_prefix("HTTP/1.1 ").or_else(|| status.strip_prefix("HTTP/1.0 "));
    let status = status.and_then(|status| status.get(..3)?.parse().ok());
    let status: u16 = status.ok_or_else(invalid)?;
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(": ").ok_or_else(invalid)?;
        if value.chars().any(char::is_control) {
            return Err(invalid());
        }
        headers.push((name.to_owned(), value.to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new() };
    if is_head || status < 200 || status == 204 || status == 304 {
        return Ok(Some((answer, rest)));
    }
    let is_chunked = answer.header("transfer-encoding") == Some("chunked");
    let body = if is_chunked {
        chunks(rest).map_err(|()| invalid())?
    } else {
        let length = answer.header("content-length").ok_or_else(invalid)?;
        let length: usize = length.parse().map_err(|_| invalid())?;
        rest.split_at_checked(length).map(|(body, rest)| (body.to_vec(), rest))
    };
    Ok(body.map(|(body, rest)| {
        answer.body = body;
        (answer, rest)
    }))
}

/// A body, and what follows it.
type Body<'a> = (Vec<u8>, &'a [u8]);

/// A body in chunks; `None` if it is not whole yet.
fn chunks(mut bytes: &[u8]) -> Result<Option<Body<'_>>, ()> {
    let mut body = Vec::new();
    loop {
        let Some((length, rest)) = split(bytes, b"\r\n") else {
            return Ok(None);
        };
        let length = std::str::from_utf8(length).map_err(|_| ())?;
        let length = usize::from_str_radix(length, 16).map_err(|_| ())?;
        let Some((chunk, rest)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        let Some((end, rest)) = rest.split_at_checked(2) else {
            return Ok(None);
        };
        if end != b"\r\n" {
            return Err(());
        }
        if length == 0 {
            return Ok(Some((body, rest)));
        }
        bytes = rest;
    }
}

/// What is before and after the first `separator`.
fn split<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut windows = bytes.windows(separator.len());
    let at = windows.position(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}
