//! The time to load a suppression list, compared with the sqlite3 shell, which inserts the same phones into a table
//! without checks.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use indicatif::HumanCount;

use crate::Figure;
use crate::numbers::{per_second, say};
use crate::workspace::{Workspace, program};

const SIZES: [u64; 2] = [1_000_000, 6_000_000];
/// One of this many lines is not a phone number.
const FAULTY: u64 = 1_000;

pub(crate) fn measure() -> anyhow::Result<Vec<Figure>> {
    SIZES.into_iter().map(of_size).collect()
}

fn of_size(phones: u64) -> anyhow::Result<Figure> {
    let workspace = Workspace::new(program()?)?;
    write(&workspace, phones)?;
    let faulty = phones / FAULTY;
    let began = Instant::now();
    let imported = workspace.json(&["suppress", "import", "stop.csv"])?;
    let smsq = began.elapsed().as_secs_f64();
    ensure!(
        imported["added"] == phones && imported["rejected"] == faulty,
        "not all phones were added: {imported}"
    );
    let began = Instant::now();
    let status = Command::new("sqlite3")
        .args([
            "-bail",
            "-batch",
            "shell.db",
            "CREATE TABLE stop(phone TEXT PRIMARY KEY) WITHOUT ROWID;",
            ".import --csv --skip 1 stop.csv stop",
        ])
        .current_dir(workspace.path("."))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start the sqlite3 shell")?;
    let shell = began.elapsed().as_secs_f64();
    ensure!(status.success(), "the sqlite3 shell: {status}");
    say(&format!("  {smsq:.1} s, the shell {shell:.1} s"));
    let rate = |seconds: f64| f64::from(u32::try_from(phones).unwrap_or(u32::MAX)) / seconds;
    Ok(Figure {
        what: format!("phones suppressed per second, of {}", HumanCount(phones)),
        smsq: per_second(rate(smsq)),
        measured: per_second(rate(shell)),
        baseline: "the sqlite3 shell's `.import` into a table with that key".to_owned(),
        ratio: rate(smsq) / rate(shell),
    })
}

/// Writes phones in no order, and some lines that are not phone numbers.
fn write(workspace: &Workspace, phones: u64) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(workspace.path("stop.csv"))?);
    writeln!(file, "phone")?;
    for index in 0..phones {
        let number = index * 7_368_787 % 100_000_000;
        writeln!(file, "+86139{number:08}")?;
        if index % FAULTY == 0 {
            writeln!(file, "invalid {index}")?;
        }
    }
    Ok(file.flush()?)
}
