//! Messages per second that `smsq serve` takes over HTTP and commits on SQLite, compared with a bare axum server that
//! parses them and stores nothing. Every message has a `dedupe_key`.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use indicatif::HumanCount;

use crate::http::{Server, block_on, post_all};
use crate::list::phone;
use crate::numbers::{median, per_second};
use crate::workspace::{Workspace, program};
use crate::{Figure, progress};

const ROUNDS: u32 = 3;
const CLIENTS: u32 = 64;
const SINGLE: u64 = 30_000;
const BATCHED: u64 = 200_000;
const LINES: u64 = 5_000;
const BATCH_CLIENTS: u32 = 4;
const BASELINE: &str = "bare axum, which parses them and answers";

pub(crate) fn measure() -> anyhow::Result<Vec<Figure>> {
    let rounds = |measure: &dyn Fn(&Server) -> anyhow::Result<f64>, messages: u64| {
        let (mut smsq, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            smsq.push(queued(measure, messages)?);
            bare.push(measure(&Server::bare()?)?);
            progress(&smsq, &bare);
        }
        anyhow::Ok((median(smsq), median(bare)))
    };
    let what = format!("messages posted per second, one in a request, {CLIENTS} connections");
    let single = figure(what, rounds(&post_single, SINGLE)?);
    let what = format!(
        "messages posted per second, {} in a request, {BATCH_CLIENTS} connections",
        HumanCount(LINES)
    );
    let batched = figure(what, rounds(&post_batches, BATCHED)?);
    Ok(vec![single, batched])
}

fn figure(what: String, (smsq, bare): (f64, f64)) -> Figure {
    Figure {
        what,
        smsq: per_second(smsq),
        measured: per_second(bare),
        baseline: BASELINE.to_owned(),
        ratio: smsq / bare,
    }
}

/// Measures a server with an empty database, which must have all messages at the end.
fn queued(measure: &dyn Fn(&Server) -> anyhow::Result<f64>, messages: u64) -> anyhow::Result<f64> {
    let workspace = Workspace::new(program()?)?;
    let server = Server::smsq(&workspace, "")?;
    let rate = measure(&server)?;
    let status = workspace.json(&["status"])?;
    let queued = &status["campaigns"][0]["queued"];
    ensure!(*queued == messages, "not all messages are queued: {status}");
    Ok(rate)
}

/// A posted message, as JSON.
pub(crate) fn message(number: u64) -> String {
    format!(
        r#"{{"phone":"{}","text":"Hi Victor, your order {number} is on its way. Reply STOP to opt out.","campaign":"orders","dedupe_key":"order-{number}"}}"#,
        phone(number)
    )
}

fn post_single(server: &Server) -> anyhow::Result<f64> {
    let bodies: Arc<[String]> = (0..SINGLE).map(message).collect();
    let body =
        move |index: u64| Some(bodies.get(usize::try_from(index).ok()?)?.clone().into_bytes());
    rate(SINGLE, || block_on(post_all(server, CLIENTS, ("/v1/messages", "application/json"), body)))
}

fn post_batches(server: &Server) -> anyhow::Result<f64> {
    let batch = |index: u64| {
        let lines = index * LINES..(index + 1) * LINES;
        lines.map(|number| message(number) + "\n").collect::<String>()
    };
    let bodies: Arc<[String]> = (0..BATCHED / LINES).map(batch).collect();
    let body =
        move |index: u64| Some(bodies.get(usize::try_from(index).ok()?)?.clone().into_bytes());
    rate(BATCHED, || {
        let to = ("/v1/messages/batch", "application/x-ndjson");
        block_on(post_all(server, BATCH_CLIENTS, to, body))
    })
}

#[expect(clippy::cast_precision_loss, reason = "the counts are small")]
fn rate(messages: u64, post: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let began = Instant::now();
    post()?;
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}
