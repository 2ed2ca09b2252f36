//! The gain of more workers: one, two and four `smsq send` on one database, with a gateway that responds after
//! 100 ms, so that a worker waits most of its time.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;
use smsq::sandbox::{Sandbox, SandboxConfig};

use crate::database::{Database, Kind};
use crate::{per_second, say};

const WORKERS: [u64; 3] = [1, 2, 4];
/// A worker sends 64 requests at once: at most 640 messages per second.
const MESSAGES: u64 = 5_000;

pub(crate) async fn rates(kind: Kind) -> anyhow::Result<Vec<String>> {
    say(&format!("workers on {}", kind.name()));
    let mut rates = Vec::new();
    for workers in WORKERS {
        rates.push(rate(kind, workers).await?);
    }
    let ratio = rates[2] / rates[0];
    let mut row: Vec<String> = rates.into_iter().map(per_second).collect();
    row.push(format!("{ratio:.2}"));
    Ok(row)
}

async fn rate(kind: Kind, workers: u64) -> anyhow::Result<f64> {
    let database = Database::new(kind).await?;
    let now = database.store.now().await?;
    let messages = MESSAGES * workers;
    database.fill(messages, now).await?;
    let behaviour = SandboxConfig {
        latency: Duration::from_millis(100),
        ..SandboxConfig::default()
    };
    let gateway = Sandbox::start(SocketAddr::from(([127, 0, 0, 1], 0)), behaviour)?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let settings = folder.path().join("smsq.toml");
    std::fs::write(&settings, database.settings(&gateway.url()))?;
    let began = Instant::now();
    let sending: Vec<_> = (0..workers)
        .map(|_| {
            Command::new(env!("CARGO_BIN_EXE_smsq"))
                .args(["send", "-q", "--format", "json"])
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
        })
        .collect::<Result<_, _>>()?;
    for worker in sending {
        let ended = tokio::task::spawn_blocking(|| worker.wait_with_output()).await??;
        let output = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "{}: {output}", ended.status);
    }
    let elapsed = began.elapsed();
    let stats = gateway.stats();
    gateway.stop().await;
    ensure!(
        stats.accepted == messages && stats.repeated == 0,
        "the gateway accepted {} of {messages}, {} repeatedly",
        stats.accepted,
        stats.repeated
    );
    Ok(f64::from(u32::try_from(messages)?) / elapsed.as_secs_f64())
}
