//! What a hook costs a worker that posts its events on the same machine: every twentieth message fails, and each failure
//! is an event.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::ensure;
use axum::Router;
use axum::routing::post;
use http::StatusCode;
use tokio::net::TcpListener;

use crate::list;
use crate::numbers::{median, per_second};
use crate::practice::Gateway;
use crate::workspace::{Workspace, program};
use crate::{Figure, progress};

const ROUNDS: u32 = 5;
const MESSAGES: u64 = 20_000;
/// One of this many messages goes to a number that the gateway rejects.
const FAILS: u64 = 20;
/// The key of signatures: 32 zeros.
const SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

pub(crate) fn measure() -> anyhow::Result<Figure> {
    let received = Arc::new(AtomicU64::new(0));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let address = runtime.block_on(receive(&received))?;
    let (mut hooked, mut plain) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        plain.push(send(None)?);
        hooked.push(send(Some(address))?);
        progress(&hooked, &plain);
        let events = received.load(Ordering::Relaxed);
        let expected = u64::from(round + 1) * (MESSAGES / FAILS + 1);
        ensure!(events == expected, "{events} events of {expected}");
    }
    let (hooked, plain) = (median(hooked), median(plain));
    Ok(Figure {
        what: format!("messages sent per second, with a hook; 1 of {FAILS} fails"),
        smsq: per_second(hooked),
        measured: per_second(plain),
        baseline: "the same without a hook".to_owned(),
        ratio: hooked / plain,
    })
}

/// Counts the events that are posted.
async fn receive(received: &Arc<AtomicU64>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, received) = (listener.local_addr()?, Arc::clone(received));
    let count = async move || {
        received.fetch_add(1, Ordering::Relaxed);
        StatusCode::NO_CONTENT
    };
    tokio::spawn(axum::serve(listener, Router::new().route("/", post(count))).into_future());
    Ok(address)
}

/// Messages per second of a worker, whose events are all delivered before it ends.
#[expect(clippy::cast_precision_loss, reason = "the counts are small")]
fn send(hook: Option<SocketAddr>) -> anyhow::Result<f64> {
    let gateway = Gateway::start(&["--latency", "20ms"])?;
    let workspace = Workspace::new(program()?)?;
    let mut config =
        format!("default_provider = 'sandbox'\n[providers.sandbox]\nurl = '{}'\n", gateway.url);
    if let Some(address) = hook {
        write!(
            config,
            "[[hooks]]\nname = 'bench'\nurl = 'http://{address}/'\nevents = ['campaign.done', 'message.failed']\n\
             insecure = true\nallow_private = true\nsecret = {{ env = 'HOOK_SECRET' }}\n"
        )?;
    }
    std::fs::write(workspace.path("smsq.toml"), config)?;
    let mut rows = "phone\n".to_owned();
    for index in 0..MESSAGES {
        let phone = if index % FAILS == 0 {
            format!("+1500555{:04}", 1_000 + index / FAILS)
        } else {
            list::phone(index)
        };
        writeln!(rows, "{phone}")?;
    }
    std::fs::write(workspace.path("list.csv"), rows)?;
    let imported = workspace.json(&["import", "list.csv", "--text", "Hello"])?;
    ensure!(imported["accepted"] == MESSAGES, "{imported}");
    let mut sending = workspace.smsq(&["send", "-q", "--format", "json", "--concurrency", "64"]);
    sending.env("HOOK_SECRET", SECRET);
    let began = Instant::now();
    let ended = sending.output()?;
    let elapsed = began.elapsed();
    let sent: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
    ensure!(sent["failed"] == MESSAGES / FAILS, "{sent}");
    Ok(MESSAGES as f64 / elapsed.as_secs_f64())
}
