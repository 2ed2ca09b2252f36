//! Rows per second of `smsq import` beside what two of its libraries alone make of the same file: reading the
//! rows and parsing their phone numbers, on one thread, with no text made and nothing stored.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use indicatif::HumanCount;

use crate::scene::Scene;
use crate::{Figure, list, median, per_second, progress};

const ROWS: u64 = 1_000_000;
const ROUNDS: usize = 3;

pub(crate) fn measure() -> anyhow::Result<Figure> {
    let (mut smsq, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let scene = Scene::new()?;
        let file = scene.path("list.csv");
        list::write(&file, ROWS)?;
        smsq.push(rate(|| import(&scene))?);
        alone.push(rate(|| read(&file))?);
        progress(&smsq, &alone);
    }
    let (smsq, alone) = (median(smsq), median(alone));
    Ok(Figure {
        what: format!("rows imported per second, of {}", HumanCount(ROWS)),
        smsq: per_second(smsq),
        measured: per_second(alone),
        beside: "crates csv and phonenumber alone, one thread".to_owned(),
        ratio: smsq / alone,
    })
}

fn rate(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let started_at = Instant::now();
    work()?;
    let elapsed = started_at.elapsed();
    Ok(Duration::from_secs(ROWS).as_secs_f64() / elapsed.as_secs_f64())
}

/// The whole process, from its start to its end.
fn import(scene: &Scene) -> anyhow::Result<()> {
    let imported = scene.json(&["import", "list.csv", "--text", list::TEXT])?;
    ensure!(
        imported["accepted"] == ROWS,
        "not all was imported: {imported}"
    );
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<()> {
    let mut reader = csv::Reader::from_path(file)?;
    let mut row = csv::StringRecord::new();
    let mut rows = 0;
    while reader.read_record(&mut row)? {
        let number = phonenumber::parse(None, &row[0])?;
        ensure!(number.is_valid(), "`{}` is no valid number", &row[0]);
        let phone = number.format().mode(phonenumber::Mode::E164).to_string();
        std::hint::black_box(phone);
        rows += 1;
    }
    ensure!(rows == ROWS, "{rows} rows");
    Ok(())
}
