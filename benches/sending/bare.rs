//! The bare loop: the same requests with the same HTTP client at the same concurrency, without a queue, a database or a
//! limit. Nothing built on this client can be faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::gateway::Gateway;
use crate::list;
use crate::process::own_cpu;
use crate::queue::TOKEN;

pub(crate) struct Bare {
    pub(crate) per_second: f64,
    /// Processor time per message.
    pub(crate) cpu: Duration,
}

pub(crate) fn measure(concurrency: u32, latency: Duration, messages: u32) -> anyhow::Result<Bare> {
    let gateway = Gateway::start(latency)?;
    // With as many threads as smsq.
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let cpu = own_cpu();
    let elapsed = runtime.block_on(send_all(&gateway, concurrency, messages))?;
    let cpu = own_cpu().saturating_sub(cpu);
    let stats = gateway.stats()?;
    ensure!(stats.requests == messages, "not all was sent: {stats:?}");
    Ok(Bare { per_second: f64::from(messages) / elapsed.as_secs_f64(), cpu: cpu / messages })
}

async fn send_all(gateway: &Gateway, concurrency: u32, messages: u32) -> anyhow::Result<Duration> {
    let client = client(usize::try_from(concurrency)?)?;
    let url: Arc<str> = gateway.url().into();
    let next = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    let started_at = Instant::now();
    for _ in 0..concurrency {
        let (client, url, next) = (client.clone(), Arc::clone(&url), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= messages {
                    return anyhow::Ok(());
                }
                send(&client, &url, index).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(started_at.elapsed())
}

/// A client with the settings of smsq's own.
fn client(concurrency: usize) -> anyhow::Result<reqwest::Client> {
    // No certificate is needed, because the gateway is at `http://`.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent("smsq/bench")
        .http1_only()
        .timeout(Duration::from_secs(10))
        .connect_timeout(Duration::from_secs(5))
        .pool_idle_timeout(Duration::from_secs(3))
        .pool_max_idle_per_host(concurrency)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .no_proxy()
        .build()?)
}

async fn send(client: &reqwest::Client, url: &str, index: u32) -> anyhow::Result<()> {
    let order = json!({
        "to": list::phone(u64::from(index)),
        "text": "Hi Victor, your order 100000 is on its way. Reply STOP to opt out.",
        "ref": format!("bare-loop-{index:022}"),
    });
    let answer = client
        .post(url)
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("content-type", "application/json")
        .body(order.to_string())
        .send()
        .await?;
    ensure!(answer.status() == 201, "answered {}", answer.status());
    let answer: Value = serde_json::from_slice(&answer.bytes().await?)?;
    answer["id"].as_str().context("an answer without an id")?;
    Ok(())
}
