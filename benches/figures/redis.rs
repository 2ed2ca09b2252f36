//! Entries per second that `smsq import` takes from a list in Redis, compared with `redis-cli`, which reads the same
//! list and drops it; and the peak memory, compared with a list a hundredth as long.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use indicatif::HumanCount;

use crate::memory::mebibytes;
use crate::numbers::{median, per_second};
use crate::peak_memory::peak_kib;
use crate::workspace::{Workspace, finished, program};
use crate::{Figure, list, progress};

const ENTRIES: u64 = 1_000_000;
const FEW: u64 = 10_000;
const ROUNDS: usize = 3;

pub(crate) fn measure() -> anyhow::Result<Vec<Figure>> {
    let server = Server::start()?;
    let (mut smsq, mut baseline) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        server.push(ENTRIES)?;
        baseline.push(rate(|| server.read())?);
        let workspace = Workspace::new(program()?)?;
        smsq.push(rate(|| {
            let imported = workspace.json(&server.line())?;
            ensure!(imported["accepted"] == ENTRIES, "not all entries were accepted: {imported}");
            Ok(())
        })?);
        progress(&smsq, &baseline);
    }
    let (smsq, baseline) = (median(smsq), median(baseline));
    let (many, few) = (server.peak(ENTRIES)?, server.peak(FEW)?);
    Ok(vec![
        Figure {
            what: format!("entries of Redis per second, of {}", HumanCount(ENTRIES)),
            smsq: per_second(smsq),
            measured: per_second(baseline),
            baseline: "`redis-cli LRANGE` of the same list, read and dropped".to_owned(),
            ratio: smsq / baseline,
        },
        Figure {
            what: format!("peak memory importing {} entries", HumanCount(ENTRIES)),
            smsq: mebibytes(many),
            measured: mebibytes(few),
            baseline: format!("the same with {}", HumanCount(FEW)),
            ratio: many / few,
        },
    ])
}

fn rate(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(Duration::from_secs(ENTRIES).as_secs_f64() / began.elapsed().as_secs_f64())
}

/// A server without persistence; ends when it is dropped.
struct Server {
    process: Child,
    port: String,
    url: String,
}

impl Server {
    fn start() -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let port = port.to_string();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start redis-server")?;
        let url = format!("redis://127.0.0.1:{port}/0");
        let server = Self { process, port, url };
        let deadline = Instant::now() + Duration::from_secs(20);
        while server.connect().is_err() {
            ensure!(Instant::now() < deadline, "redis-server does not answer");
            std::thread::yield_now();
        }
        Ok(server)
    }

    fn connect(&self) -> ::redis::RedisResult<::redis::Connection> {
        ::redis::Client::open(self.url.as_str())?.get_connection()
    }

    fn push(&self, entries: u64) -> anyhow::Result<()> {
        let mut connection = self.connect()?;
        for first in (0..entries).step_by(10_000) {
            let mut pipeline = ::redis::pipe();
            for index in first..(first + 10_000).min(entries) {
                let entry = format!(
                    r#"{{"phone":"{}","name":"Maya","order":{}}}"#,
                    list::phone(index),
                    100_000 + index
                );
                pipeline.cmd("LPUSH").arg("tasks").arg(entry).ignore();
            }
            let () = pipeline.query(&mut connection)?;
        }
        Ok(())
    }

    fn read(&self) -> anyhow::Result<()> {
        let status = Command::new("redis-cli")
            .args(["-p", &self.port, "LRANGE", "tasks", "0", "-1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("cannot start redis-cli")?;
        ensure!(status.success(), "redis-cli: {status}");
        Ok(())
    }

    fn line(&self) -> [&str; 6] {
        ["import", &self.url, "--list", "tasks", "--text", list::TEXT]
    }

    fn peak(&self, entries: u64) -> anyhow::Result<f64> {
        self.push(entries)?;
        let workspace = Workspace::new(program()?)?;
        let line = [&self.line()[..], &["--format", "json"]].concat();
        let mut child = workspace.smsq(&line).spawn()?;
        let peak = peak_kib(&mut child)?;
        finished(child)?;
        Ok(peak)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
