//! Another program at the same database: the sqlite3 shell, which inserts, reads and locks.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::Scratch;
use super::waiting::eventually;

const MISSING: &str = "the sqlite3 shell is needed; `tests/run` installs it";

/// Runs SQL on `smsq.db`; returns what it prints.
pub(crate) fn sqlite(scratch: &Scratch, sql: &str) -> String {
    try_sqlite(scratch, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Runs SQL on `smsq.db`; returns what it prints, or the error message.
pub(crate) fn try_sqlite(scratch: &Scratch, sql: &str) -> Result<String, String> {
    let output = Command::new("sqlite3")
        .args(["-bail", "-cmd", ".timeout 5000", "smsq.db", sql])
        .current_dir(scratch.path("."))
        .output()
        .expect(MISSING);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// A transaction of another program that blocks all other writers.
pub(crate) struct Lock(Child);

impl Lock {
    pub(crate) fn hold(scratch: &Scratch) -> Self {
        Self::run(scratch, "BEGIN IMMEDIATE;")
    }

    /// Blocks readers, too.
    pub(crate) fn hold_alone(scratch: &Scratch) -> Self {
        Self::run(scratch, "PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE;")
    }

    fn run(scratch: &Scratch, statements: &str) -> Self {
        let lines = format!(".timeout 30000\n{statements}\n.system touch held\n");
        let mut process = Command::new("sqlite3")
            .args(["-bail", "smsq.db"])
            .current_dir(scratch.path("."))
            .stdin(Stdio::piped())
            .spawn()
            .expect(MISSING);
        process
            .stdin
            .as_mut()
            .expect("piped")
            .write_all(lines.as_bytes())
            .expect("the shell listens");
        eventually("the lock is held", || scratch.path("held").exists());
        Self(process)
    }
}

impl Drop for Lock {
    /// Closing its input ends the shell and its transaction.
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
