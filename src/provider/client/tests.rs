//! The client over real sockets: servers that refuse, fall silent, break off and close too early.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use smsq_message::sms::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::connections::{Connections, MAX_OPENING, MaybeStray};
use super::{Client, MAX_ANSWER, Unanswered};
use crate::Provider;

fn client(url: &str, settings: &str) -> Client {
    let section = format!("kind = 'sandbox'\nurl = '{url}'\n{settings}");
    let section = section.parse().expect("toml");
    let provider = Provider::from_section("cellar", &section, &|_| None).expect("a provider");
    Client::new(&provider).expect("a client")
}

fn order(address: SocketAddr) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from_static(b"{}"));
    *request.method_mut() = http::Method::POST;
    let uri = format!("http://{address}/messages?token=hunter2");
    *request.uri_mut() = uri.parse().expect("a url");
    request
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// Reads one request and returns what came.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"{}") {
        let read = stream.read_buf(&mut request).await.expect("a request");
        assert_ne!(read, 0, "the client closed the connection");
    }
    String::from_utf8(request).expect("a text")
}

/// A server that reads one request, writes these bytes, and closes the connection.
async fn send_to(response: Vec<u8>, settings: &str) -> Result<Response<Bytes>, Outcome> {
    let (listener, address) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        read_request(&mut stream).await;
        // A client that has read enough may be gone already.
        let _ = stream.write_all(&response).await;
    });
    let client = client(&format!("http://{address}"), settings);
    let answer = client.send(order(address)).await;
    server.await.expect("the server ends");
    answer
}

fn reason(answer: Result<Response<Bytes>, Outcome>) -> (&'static str, String) {
    let (word, failure) = match answer {
        Err(Outcome::Unavailable { failure, .. }) => ("unavailable", failure),
        Err(Outcome::Unknown(failure)) => ("unknown", failure),
        other => panic!("{other:?}"),
    };
    assert!(!failure.reason.contains("hunter2"), "{}", failure.reason);
    (word, failure.reason)
}

#[tokio::test]
async fn answer_is_returned_whole() {
    let (listener, address) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let request = read_request(&mut stream).await;
        let response = b"HTTP/1.1 429 Slow\r\nretry-after: 3\r\ncontent-length: 4\r\n\r\nbusy";
        stream.write_all(response).await.expect("write");
        request
    });
    let client = client(&format!("http://{address}"), "");
    let answer = client.send(order(address)).await.expect("an answer");
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "3");
    assert_eq!(answer.body(), "busy");
    let request = server.await.expect("the server ends");
    let version = concat!("user-agent: smsq/", env!("CARGO_PKG_VERSION"));
    assert!(request.contains(version), "{request}");
}

#[tokio::test]
async fn refused_connection_is_reported_as_not_sent() {
    let (listener, address) = listener().await;
    drop(listener);
    let client = client(&format!("http://{address}"), "");
    let (word, reason) = reason(client.send(order(address)).await);
    assert_eq!(word, "unavailable");
    assert!(reason.contains("refused"), "{reason}");
}

#[tokio::test]
async fn unresolved_host_is_reported_as_not_sent() {
    let client = client("http://gateway.invalid", "");
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = http::Uri::from_static("http://gateway.invalid/");
    assert_eq!(reason(client.send(request).await).0, "unavailable");
}

#[tokio::test]
async fn server_without_tls_is_reported_as_not_sent() {
    let (listener, address) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let response = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(response).await.expect("write");
    });
    let client = client(&format!("https://{address}"), "");
    let mut request = order(address);
    *request.uri_mut() = format!("https://{address}/").parse().expect("a url");
    let (word, reason) = reason(client.send(request).await);
    assert_eq!(word, "unavailable", "{reason}");
    server.await.expect("the server ends");
}

#[tokio::test]
async fn slow_connection_is_reported_as_not_sent() {
    let (listener, address) = listener().await;
    let client = client(&format!("https://{address}"), "timeout = '2s'");
    let mut request = order(address);
    *request.uri_mut() = format!("https://{address}/").parse().expect("a url");
    let (word, reason) = reason(client.send(request).await);
    assert_eq!(word, "unavailable");
    assert_eq!(reason, "no connection: not within 1.8 s");
    drop(listener);
}

#[tokio::test]
async fn connection_closed_before_the_answer_is_unknown() {
    let (word, reason) = reason(send_to(Vec::new(), "").await);
    assert_eq!(reason, "no answer: connection closed before message completed");
    assert_eq!(word, "unknown");
}

#[tokio::test]
async fn timeout_after_the_request_is_unknown() {
    let (listener, address) = listener().await;
    let client = client(&format!("http://{address}"), "timeout = '50ms'");
    let silent = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        read_request(&mut stream).await;
        std::future::pending::<()>().await;
    };
    let answer = tokio::select! {
        answer = client.send(order(address)) => answer,
        () = silent => unreachable!("it stays silent"),
    };
    let (word, reason) = reason(answer);
    assert_eq!(word, "unknown");
    assert_eq!(reason, "no answer: not within 0.05 s");
}

#[tokio::test]
async fn incomplete_answer_is_unknown_whatever_its_status() {
    for status in [201, 303, 400, 401, 429, 503] {
        for frame in [
            "content-length: 20\r\n\r\n{\"id\":",
            "transfer-encoding: chunked\r\n\r\n6\r\n{\"id\":\r\n",
        ] {
            let response = format!("HTTP/1.1 {status} Status\r\n{frame}");
            let (word, reason) = reason(send_to(response.into_bytes(), "").await);
            assert_eq!(word, "unknown", "{status}");
            let expected = format!("the answer {status} is incomplete: ");
            assert!(reason.starts_with(&expected), "{reason}");
        }
    }
}

#[tokio::test]
async fn answer_that_comes_too_slowly_is_unknown() {
    let (listener, address) = listener().await;
    let client = client(&format!("http://{address}"), "timeout = '50ms'");
    let slow = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        read_request(&mut stream).await;
        let head = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 20\r\n\r\n[";
        stream.write_all(head).await.expect("write");
        std::future::pending::<()>().await;
    };
    let answer = tokio::select! {
        answer = client.send(order(address)) => answer,
        () = slow => unreachable!("it stays silent"),
    };
    let (word, reason) = reason(answer);
    assert_eq!(word, "unknown");
    let expected =
        ["the answer 400 is incomplete: not within 0.05 s", "no answer: not within 0.05 s"];
    assert!(expected.contains(&reason.as_str()), "{reason}");
}

fn huge(status: &str, more: usize) -> Vec<u8> {
    let length = MAX_ANSWER + more;
    let mut response =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n").into_bytes();
    response.resize(response.len() + length, b'x');
    response
}

#[tokio::test]
async fn answer_is_read_up_to_a_mebibyte() {
    for status in [200, 400] {
        let (word, reason) = reason(send_to(huge(&format!("{status} Status"), 1), "").await);
        let expected = format!("the answer {status} is incomplete: longer than 1 MiB");
        assert_eq!((word, reason), ("unknown", expected));
    }
    let answer = send_to(huge("400 Bad Request", 0), "").await;
    assert_eq!(answer.expect("an answer").body().len(), MAX_ANSWER);
}

#[tokio::test]
async fn redirect_is_returned_and_not_followed() {
    let (elsewhere, target) = listener().await;
    let response = format!(
        "HTTP/1.1 307 Elsewhere\r\nlocation: http://{target}/\r\ncontent-length: 0\r\n\r\n"
    );
    let answer = send_to(response.into_bytes(), "").await.expect("an answer");
    assert_eq!(answer.status(), 307);
    let visit = tokio::time::timeout(Duration::from_millis(20), elsewhere.accept()).await;
    assert!(visit.is_err(), "the redirect is not followed");
}

const CREATED: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn connection_closed_between_requests_loses_nothing() {
    let (listener, address) = listener().await;
    let (closed, hung_up) = oneshot::channel();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        read_request(&mut stream).await;
        stream.write_all(CREATED).await.expect("write");
        drop(stream);
        closed.send(()).expect("the client waits");
        let (mut stream, _) = listener.accept().await.expect("a second connection");
        read_request(&mut stream).await;
        stream.write_all(CREATED).await.expect("write");
    });
    let client = client(&format!("http://{address}"), "");
    client.send(order(address)).await.expect("an answer");
    hung_up.await.expect("the server hung up");
    match client.send(order(address)).await {
        Ok(answer) => {
            assert_eq!(answer.status(), 201);
            server.await.expect("the server ends");
        }
        // The request went out before the client saw the end of the connection.
        Err(outcome) => {
            assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
            server.abort();
        }
    }
}

/// Whether the first refusal of this server may be a second answer to the request before. Each of its connections answers
/// with these, one after the other, and stays open.
async fn stray(answers: &'static [&'static str]) -> Option<MaybeStray> {
    let (listener, address) = listener().await;
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(async move {
                for answer in answers {
                    read_request(&mut stream).await;
                    let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
                    stream.write_all(answer.as_bytes()).await.expect("write");
                }
                // Open until the client closes it.
                let _ = stream.read(&mut [0; 1]).await;
            });
        }
    });
    let client = client(&format!("http://{address}"), "");
    let refusal = loop {
        let answer = client.send(order(address)).await.expect("an answer");
        if answer.status().is_client_error() {
            break answer;
        }
    };
    server.abort();
    refusal.extensions().get().copied()
}

#[tokio::test]
async fn refusal_that_ends_a_used_connection_may_be_a_second_answer() {
    const CLOSE: &str = "400 Bad Request\r\nconnection: x, Close";
    assert!(stray(&["201 Created", CLOSE]).await.is_some());
    assert!(stray(&["201 Created", "400 Bad Request"]).await.is_none());
    assert!(stray(&[CLOSE]).await.is_none());
}

#[test]
fn server_that_ends_new_connections_with_refusals_is_known() {
    let connections = Connections::new(Duration::ZERO);
    let stray = |was_used, status| {
        let status = http::StatusCode::from_u16(status).expect("a status");
        let stray = connections.stray(was_used, status);
        stray.map(|stray| stray.is_habit)
    };
    assert_eq!(stray(true, 400), Some(false));
    // It comes to connections without a request, too.
    assert_eq!(stray(false, 408), None);
    assert_eq!(stray(true, 400), Some(false));
    assert_eq!(stray(false, 400), None);
    assert_eq!(stray(true, 400), Some(true));
}

#[tokio::test]
async fn connection_is_not_used_after_its_idle_time() {
    let (listener, address) = listener().await;
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            read_request(&mut stream).await;
            stream.write_all(CREATED).await.expect("write");
            tokio::spawn(async move {
                // Open until the client closes it.
                let _ = stream.read(&mut [0; 1]).await;
            });
        }
    });
    let client = client(&format!("http://{address}"), "idle = '0s'");
    for _ in 0..2 {
        let answer = client.send(order(address)).await.expect("an answer");
        assert_eq!(answer.status(), 201);
    }
    server.await.expect("each request had its own connection");
}

#[tokio::test]
async fn connections_are_opened_ahead_for_what_the_rate_allows() {
    let (listener, address) = listener().await;
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(async move {
                read_request(&mut stream).await;
                stream.write_all(CREATED).await.expect("write");
                // Open until the client closes it.
                let _ = stream.read(&mut [0; 1]).await;
            });
        }
    });
    let client = client(&format!("http://{address}"), "");
    let ahead = Duration::from_millis(50);
    while client.prepare(64, Some(20.0), ahead) == 0 {
        tokio::task::yield_now().await;
    }
    let reservation = client.reserve();
    assert_eq!(client.prepare(0, Some(20.0), ahead), 0, "it is reserved");
    drop(reservation);
    let request = order(address);
    let open =
        client.connect(request.uri()).now_or_never().expect("one is open").expect("a connection");
    let answer = client.exchange(open, request.clone()).await;
    assert_eq!(answer.expect("an answer").status(), 201);
    let open = client.connect(request.uri()).now_or_never();
    drop(open.expect("it is open still, and used again"));
    let open = client.connect(request.uri()).now_or_never();
    assert!(open.is_some(), "a request that was not sent gives it back");
    server.abort();
}

#[tokio::test]
async fn connection_closed_before_its_first_request_is_not_used() {
    let (listener, address) = listener().await;
    let client = client(&format!("http://{address}"), "");
    let request = order(address);
    let unsent = loop {
        let (opened, accepted) = tokio::join!(client.connect(request.uri()), listener.accept());
        drop(accepted);
        // The end of a connection is seen when the runtime looks at its sockets.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let connection = opened.expect("it opens");
        match client.exchange(connection, request.clone()).await {
            // Not seen yet.
            Err(Unanswered::Ended(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(unsent, Err(Unanswered::NotConnected)), "{unsent:?}");
}

#[tokio::test]
async fn connections_are_opened_a_hundred_at_once() {
    let (listener, address) = listener().await;
    let client = client(&format!("https://{address}"), "");
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = format!("https://{address}/").parse().expect("a url");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..MAX_OPENING + 50 {
        let (client, request) = (client.clone(), request.clone());
        tasks.spawn(async move { client.connect(request.uri()).await.map(drop) });
    }
    let mut opening = Vec::new();
    for _ in 0..MAX_OPENING {
        opening.push(listener.accept().await.expect("a connection"));
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(listener.accept().now_or_never().is_none());
    opening.pop();
    listener.accept().await.expect("the next connection");
}
