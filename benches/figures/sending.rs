//! Messages per second of `smsq send`, compared with a loop that only makes the same requests: no queue, no database,
//! no limit. Nothing built on the same HTTP client can be faster than that loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::workspace::{Gateway, Workspace};
use crate::{Figure, list, median, per_second, progress};

const CONCURRENCY: usize = 256;
const MESSAGES: u64 = 100_000;
const ROUNDS: u64 = 5;

pub(crate) fn measure() -> anyhow::Result<Figure> {
    let runtime = runtime()?;
    let (mut smsq, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let gateway = Gateway::start(&[])?;
        // The gateway stores more in the second measurement, so the order alternates.
        if round % 2 == 0 {
            smsq.push(send(&gateway)?);
            bare.push(runtime.block_on(loop_alone(&gateway))?);
        } else {
            bare.push(runtime.block_on(loop_alone(&gateway))?);
            smsq.push(send(&gateway)?);
        }
        progress(&smsq, &bare);
        let stats = runtime.block_on(stats(&gateway))?;
        ensure!(
            stats["accepted"] == 2 * MESSAGES,
            "the gateway did not accept every message: {stats}"
        );
    }
    let (smsq, bare) = (median(smsq), median(bare));
    Ok(Figure {
        what: format!("messages sent per second, {CONCURRENCY} at once, no limit"),
        smsq: per_second(smsq),
        measured: per_second(bare),
        baseline: "a bare loop of reqwest at the same concurrency".to_owned(),
        ratio: smsq / bare,
    })
}

/// With as many threads as smsq.
fn runtime() -> anyhow::Result<Runtime> {
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?)
}

/// Runs the whole process.
fn send(gateway: &Gateway) -> anyhow::Result<f64> {
    let workspace = Workspace::new()?;
    workspace.queue(MESSAGES, gateway, "")?;
    let started_at = Instant::now();
    let sent = workspace.json(&["send", "--concurrency", &CONCURRENCY.to_string()])?;
    let elapsed = started_at.elapsed();
    ensure!(
        sent["sent"] == MESSAGES,
        "not all messages were sent: {sent}"
    );
    Ok(rate(elapsed))
}

async fn loop_alone(gateway: &Gateway) -> anyhow::Result<f64> {
    let client = client()?;
    let url: Arc<str> = format!("{}/messages", gateway.url).into();
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let started_at = Instant::now();
    for _ in 0..CONCURRENCY {
        let (client, url, next) = (client.clone(), Arc::clone(&url), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= MESSAGES {
                    return anyhow::Ok(());
                }
                request(&client, &url, index).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(rate(started_at.elapsed()))
}

/// A client with the settings of smsq's own.
fn client() -> anyhow::Result<reqwest::Client> {
    Ok(reqwest::Client::builder()
        .user_agent("smsq/bench")
        .http1_only()
        .timeout(Duration::from_secs(10))
        .connect_timeout(Duration::from_secs(5))
        .pool_idle_timeout(Duration::from_secs(3))
        .pool_max_idle_per_host(CONCURRENCY)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .no_proxy()
        .build()?)
}

async fn request(client: &reqwest::Client, url: &str, index: u64) -> anyhow::Result<()> {
    let order = json!({
        "to": list::phone(index),
        "text": "Hi Victor, your order 100000 is on its way. Reply STOP to opt out.",
        "reference": format!("bare-loop-{index:016}"),
    });
    let answer = client
        .post(url)
        .header("content-type", "application/json")
        .body(order.to_string())
        .send()
        .await?;
    ensure!(answer.status() == 201, "answered {}", answer.status());
    let answer: Value = serde_json::from_slice(&answer.bytes().await?)?;
    answer["id"].as_str().context("an answer without an id")?;
    Ok(())
}

async fn stats(gateway: &Gateway) -> anyhow::Result<Value> {
    let answer = client()?
        .get(format!("{}/stats", gateway.url))
        .send()
        .await?;
    Ok(serde_json::from_slice(&answer.bytes().await?)?)
}

fn rate(elapsed: Duration) -> f64 {
    Duration::from_secs(MESSAGES).as_secs_f64() / elapsed.as_secs_f64()
}
