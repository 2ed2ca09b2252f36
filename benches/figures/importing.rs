//! Rows per second of `smsq import`, compared with two of its libraries alone, with the sqlite3 shell, which inserts
//! the same rows into an empty table, with numbers of two countries, and with other file formats; and the peak memory of each, compared with a list a
//! fifth as long, which is enough to fill all batches in progress.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use indicatif::HumanCount;
use rlibphonenumber::{PHONE_NUMBER_UTIL, PhoneNumberFormat};

use crate::formats::{self, Kind};
use crate::memory::mebibytes;
use crate::numbers::{median, per_second};
use crate::peak_memory::peak_kib;
use crate::workspace::{Workspace, finished, program};
use crate::{Figure, list, progress};

const ROWS: u64 = 1_000_000;
const FEW: u64 = 200_000;
const ROUNDS: usize = 3;

pub(crate) fn measure() -> anyhow::Result<Vec<Figure>> {
    let (mut smsq, mut alone, mut shell) = (Vec::new(), Vec::new(), Vec::new());
    let mut kinds = [Kind::TwoCountries, Kind::Xlsx, Kind::Gb18030].map(|kind| (kind, Vec::new()));
    for _ in 0..ROUNDS {
        let workspace = Workspace::new(program()?)?;
        let file = workspace.path("list.csv");
        list::write(&file, ROWS)?;
        smsq.push(rate(|| import(&workspace, "list.csv"))?);
        alone.push(rate(|| read(&file))?);
        progress(&smsq, &alone);
        shell.push(rate(|| import_by_shell(&workspace))?);
        progress(&smsq, &shell);
        for (kind, rates) in &mut kinds {
            let workspace = Workspace::new(program()?)?;
            formats::write_as(&workspace.path(kind.file()), ROWS, *kind)?;
            rates.push(rate(|| import(&workspace, kind.file()))?);
            progress(rates, &smsq);
        }
    }
    let csv = median(smsq);
    let rows = format!("rows imported per second, of {}, twenty countries", HumanCount(ROWS));
    let baseline = |what: &str, measured: f64, smsq: f64, baseline: &str| Figure {
        what: what.to_owned(),
        smsq: per_second(smsq),
        measured: per_second(measured),
        baseline: baseline.to_owned(),
        ratio: smsq / measured,
    };
    let mut figures = vec![
        baseline(&rows, median(alone), csv, "crates csv and rlibphonenumber alone, one thread"),
        baseline(
            "the same",
            median(shell),
            csv,
            "the sqlite3 shell's `.import` into an empty table",
        ),
    ];
    for (kind, rates) in kinds {
        figures.push(baseline(
            &format!("the same as {}", kind.name()),
            csv,
            median(rates),
            "as CSV in UTF-8, twenty countries",
        ));
    }
    for kind in [Kind::Csv, Kind::Xlsx, Kind::Gb18030] {
        figures.push(memory(kind)?);
    }
    Ok(figures)
}

/// How much more memory five times the rows take.
fn memory(kind: Kind) -> anyhow::Result<Figure> {
    let (many, few) = (peak(kind, ROWS)?, peak(kind, FEW)?);
    Ok(Figure {
        what: format!("peak memory importing {} as {}", HumanCount(ROWS), kind.name()),
        smsq: mebibytes(many),
        measured: mebibytes(few),
        baseline: format!("the same with {}", HumanCount(FEW)),
        ratio: many / few,
    })
}

fn peak(kind: Kind, rows: u64) -> anyhow::Result<f64> {
    let workspace = Workspace::new(program()?)?;
    formats::write_as(&workspace.path(kind.file()), rows, kind)?;
    let line = ["import", kind.file(), "--text", list::TEXT, "--format", "json"];
    let mut child = workspace.smsq(&line).spawn()?;
    let peak = peak_kib(&mut child)?;
    finished(child)?;
    Ok(peak)
}

fn rate(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let started_at = Instant::now();
    work()?;
    let elapsed = started_at.elapsed();
    Ok(Duration::from_secs(ROWS).as_secs_f64() / elapsed.as_secs_f64())
}

/// Runs the whole process.
fn import(workspace: &Workspace, file: &str) -> anyhow::Result<()> {
    let imported = workspace.json(&["import", file, "--text", list::TEXT])?;
    ensure!(imported["accepted"] == ROWS, "not all was imported: {imported}");
    Ok(())
}

/// Inserts the rows into one table without checks.
fn import_by_shell(workspace: &Workspace) -> anyhow::Result<()> {
    let status = Command::new("sqlite3")
        .args([
            "-bail",
            "-batch",
            "shell.db",
            "CREATE TABLE list(phone, name, \"order\");",
            ".import --csv --skip 1 list.csv list",
        ])
        .current_dir(workspace.path("."))
        .stdin(Stdio::null())
        .status()
        .context("cannot start the sqlite3 shell")?;
    ensure!(status.success(), "the sqlite3 shell: {status}");
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<()> {
    let mut reader = csv::Reader::from_path(file)?;
    let mut row = csv::StringRecord::new();
    let mut rows = 0;
    while reader.read_record(&mut row)? {
        let number = PHONE_NUMBER_UTIL.parse(&row[0], None)?;
        ensure!(number.is_valid(), "`{}` is not a valid number", &row[0]);
        std::hint::black_box(number.format_as(PhoneNumberFormat::E164));
        rows += 1;
    }
    ensure!(rows == ROWS, "{rows} rows");
    Ok(())
}
