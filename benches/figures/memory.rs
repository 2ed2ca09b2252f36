//! Peak memory of `smsq send` with a short and a long queue, sending the same number of messages: queued messages
//! must not be in memory.

use anyhow::ensure;
use indicatif::HumanCount;

use crate::Figure;
use crate::peak_memory::peak_kib;
use crate::practice::{Gateway, queue};
use crate::workspace::{Workspace, finished, program};

const SHORT: u64 = 10_000;
const LONG: u64 = 1_000_000;

pub(crate) fn measure() -> anyhow::Result<Figure> {
    let short = peak_sending(SHORT)?;
    let long = peak_sending(LONG)?;
    Ok(Figure {
        what: format!("peak memory sending {} of {}", HumanCount(SHORT), HumanCount(LONG)),
        smsq: mebibytes(long),
        measured: mebibytes(short),
        baseline: format!("the same, sending {0} of {0}", HumanCount(SHORT)),
        ratio: long / short,
    })
}

fn peak_sending(queued: u64) -> anyhow::Result<f64> {
    let gateway = Gateway::start(&[])?;
    let workspace = Workspace::new(program()?)?;
    queue(&workspace, queued, &gateway, "")?;
    let limit = SHORT.to_string();
    let arguments = ["send", "--concurrency", "256", "--limit", &limit, "--format", "json"];
    let mut child = workspace.smsq(&arguments).spawn()?;
    let peak = peak_kib(&mut child)?;
    let sent = finished(child)?;
    ensure!(sent["sent"] == SHORT, "not as many as asked for: {sent}");
    Ok(peak)
}

pub(crate) fn mebibytes(kib: f64) -> String {
    format!("{:.1} MiB", kib / 1024.0)
}
