//! What `smsq serve` costs a worker on the same machine and database, with 50 people who look at its page and 64
//! clients that post messages; and how soon its page comes while many messages are queued.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use indicatif::HumanCount;
use tokio::task::JoinSet;

use crate::http::{Connection, Server, block_on};
use crate::intake::message;
use crate::numbers::{median, per_second};
use crate::practice::{Gateway, queue};
use crate::workspace::{Workspace, program};
use crate::{Figure, progress};

const ROUNDS: u32 = 3;
const VIEWERS: u32 = 50;
const CLIENTS: u32 = 64;
/// How often a page asks for its changing part.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often each client posts a message.
const POST_EVERY: Duration = Duration::from_millis(100);
const MESSAGES: u64 = 20_000;
const SHORT: u64 = 10_000;
const LONG: u64 = 10_000_000;
const LOOKS: u32 = 60;

pub(crate) fn measure_worker() -> anyhow::Result<Figure> {
    let (mut served, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(send(false)?);
        served.push(send(true)?);
        progress(&served, &alone);
    }
    let (served, alone) = (median(served), median(alone));
    Ok(Figure {
        what: format!(
            "messages sent per second, with a server, {VIEWERS} viewers and {CLIENTS} clients"
        ),
        smsq: per_second(served),
        measured: per_second(alone),
        baseline: "the same without a server".to_owned(),
        ratio: served / alone,
    })
}

/// Messages per second of a worker.
#[expect(clippy::cast_precision_loss, reason = "the counts are small")]
fn send(is_served: bool) -> anyhow::Result<f64> {
    let gateway = Gateway::start(&["--latency", "20ms"])?;
    let workspace = Workspace::new(program()?)?;
    queue(&workspace, MESSAGES, &gateway, "")?;
    let config = std::fs::read_to_string(workspace.path("smsq.toml"))?;
    let server = is_served.then(|| Server::smsq(&workspace, &config));
    let server = server.transpose()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let users = server.as_ref().map(|server| users(server, &is_over));
    let users = users.transpose()?;
    let began = Instant::now();
    // With a server there are more: those that are posted meanwhile.
    let limit = MESSAGES.to_string();
    let sent = workspace.json(&["send", "-q", "--limit", &limit, "--concurrency", "64"])?;
    let elapsed = began.elapsed();
    is_over.store(true, Ordering::Relaxed);
    if let Some(users) = users {
        let posted = users.join().ok().context("a client panicked")??;
        ensure!(posted > 0, "nothing was posted meanwhile");
    }
    ensure!(sent["sent"] == MESSAGES, "not all was sent: {sent}");
    Ok(MESSAGES as f64 / elapsed.as_secs_f64())
}

/// Looks and posts on a thread of its own until it is over; returns how many messages were posted.
fn users(
    server: &Server,
    is_over: &Arc<AtomicBool>,
) -> anyhow::Result<std::thread::JoinHandle<anyhow::Result<u64>>> {
    let address = server.address;
    let look = block_on(server.log_in())?;
    let post = server.head("POST /v1/messages", "application/json");
    let is_over = Arc::clone(is_over);
    Ok(std::thread::spawn(move || {
        block_on(async move {
            let mut tasks: JoinSet<anyhow::Result<u64>> = JoinSet::new();
            for viewer in 0..VIEWERS {
                let (head, is_over) = (look.clone(), Arc::clone(&is_over));
                tasks.spawn(async move {
                    let mut connection = Connection::open(address).await?;
                    let mut ticks =
                        tokio::time::interval_at(start(viewer, VIEWERS, LOOK_EVERY), LOOK_EVERY);
                    while !is_over.load(Ordering::Relaxed) {
                        ticks.tick().await;
                        connection.request(&head, b"").await?.expect_success()?;
                    }
                    Ok(0)
                });
            }
            for client in 0..CLIENTS {
                let (head, is_over) = (post.clone(), Arc::clone(&is_over));
                tasks.spawn(async move {
                    let mut connection = Connection::open(address).await?;
                    let mut ticks =
                        tokio::time::interval_at(start(client, CLIENTS, POST_EVERY), POST_EVERY);
                    let mut posted = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        ticks.tick().await;
                        let body = message(u64::from(client) + u64::from(CLIENTS) * posted);
                        let posting = connection.request(&head, body.as_bytes());
                        posting.await?.expect_success()?;
                        posted += 1;
                    }
                    Ok(posted)
                });
            }
            let mut posted = 0;
            while let Some(ended) = tasks.join_next().await {
                posted += ended??;
            }
            Ok(posted)
        })
    }))
}

/// The first request of one of `count`: not all at once.
fn start(index: u32, count: u32, every: Duration) -> tokio::time::Instant {
    tokio::time::Instant::now() + every * index / count
}

pub(crate) fn measure_page() -> anyhow::Result<Figure> {
    let (short, long) = (slowest_page(SHORT)?, slowest_page(LONG)?);
    Ok(Figure {
        what: format!(
            "slowest of {LOOKS} pages with {} queued, the first at once",
            HumanCount(LONG)
        ),
        smsq: milliseconds(long),
        measured: milliseconds(short),
        baseline: format!("the same with {}", HumanCount(SHORT)),
        ratio: long / short,
    })
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1_000.0)
}

/// The longest time between a request for the page and its response, in seconds.
fn slowest_page(queued: u64) -> anyhow::Result<f64> {
    let gateway = Gateway::start(&[])?;
    let workspace = Workspace::new(program()?)?;
    queue(&workspace, queued, &gateway, "")?;
    let server = Server::smsq(&workspace, "")?;
    block_on(async {
        let head = server.log_in().await?;
        let mut connection = Connection::open(server.address).await?;
        let mut slowest = 0_f64;
        for _ in 0..LOOKS {
            let began = Instant::now();
            connection.request(&head, b"").await?.expect_success()?;
            slowest = slowest.max(began.elapsed().as_secs_f64());
            tokio::time::sleep(LOOK_EVERY / 2).await;
        }
        Ok(slowest)
    })
}
