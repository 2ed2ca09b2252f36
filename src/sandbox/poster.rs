//! Posts receipts to a URL, as gateways do.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::watch;
use url::{Position, Url};

use super::Shared;

const EVERY: Duration = Duration::from_millis(100);
/// The most receipts of one request.
const BATCH: usize = 100;
/// How often a request is sent that is not answered 2xx, and the first pause, which doubles.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Posts the receipts that are due until `stopped` changes or its sender is dropped.
pub(super) async fn post_receipts(state: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let Some(url) = state.config.receipts_to.clone() else {
        return;
    };
    loop {
        let receipts = state.counters().receipts(true, BATCH, Instant::now());
        let post = async {
            if receipts.is_empty() {
                tokio::time::sleep(EVERY).await;
            } else {
                post_until_accepted(&url, json!(receipts).to_string().into()).await;
            }
        };
        tokio::select! {
            _ = stopped.changed() => return,
            () = post => {}
        }
    }
}

/// Sends one request until it is answered 2xx, but not for ever.
async fn post_until_accepted(url: &Url, body: Bytes) {
    for attempt in 0..ATTEMPTS {
        let done = tokio::time::timeout(TIMEOUT, post(url, body.clone())).await;
        if matches!(done, Ok(Ok(true))) {
            return;
        }
        tokio::time::sleep(PAUSE * (1 << attempt)).await;
    }
}

/// Whether the request is answered 2xx.
async fn post(url: &Url, body: Bytes) -> io::Result<bool> {
    let address = url.socket_addrs(|| None)?;
    let stream = TcpStream::connect(&address[..]).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = Request::post(&url[Position::BeforePath..])
        .header(header::HOST, &url[Position::BeforeHost..Position::AfterPort])
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(io::Error::other)?;
    let response = sender.send_request(request).await;
    connection.abort();
    Ok(response.map_err(io::Error::other)?.status().is_success())
}
