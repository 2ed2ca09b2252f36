//! The environment of the measurements: a folder in the build folder, so that it is on a real disk, the program as a
//! process in it, and the practice gateway as another.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;

/// A folder to run the program in; removed when it is dropped.
pub(crate) struct Workspace(TempDir);

impl Workspace {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program with an empty environment.
    pub(crate) fn smsq(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_smsq"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env_clear()
            .env("HOME", self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program and parses the JSON object that it prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let child = self
            .smsq(&[arguments, &["--format", "json"]].concat())
            .spawn()?;
        finished(child)
    }

    /// Imports `messages` messages, and writes the configuration that sends them to `gateway`; `more`: further keys of
    /// its section.
    pub(crate) fn queue(&self, messages: u64, gateway: &Gateway, more: &str) -> anyhow::Result<()> {
        let section = format!(
            "default_provider = 'sandbox'\n[providers.sandbox]\nurl = '{}'\n{more}\n",
            gateway.url
        );
        std::fs::write(self.path("smsq.toml"), section)?;
        let list = self.path("list.csv");
        crate::list::write(&list, messages)?;
        let imported = self.json(&["import", "list.csv", "--text", crate::list::TEXT])?;
        ensure!(
            imported["accepted"] == messages,
            "not all was imported: {imported}"
        );
        Ok(())
    }
}

/// The output of the program; an error if it failed.
pub(crate) fn finished(child: Child) -> anyhow::Result<Value> {
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).context("standard output is not JSON")
}

/// `smsq sandbox` as a process; ends when it is dropped.
pub(crate) struct Gateway {
    process: Child,
    pub(crate) url: String,
}

impl Gateway {
    /// `more`: further flags.
    pub(crate) fn start(more: &[&str]) -> anyhow::Result<Self> {
        let workspace = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let mut process = Command::new(env!("CARGO_BIN_EXE_smsq"))
            .args(["sandbox", "--listen", "127.0.0.1:0"])
            .args(more)
            .current_dir(workspace)
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut url = String::new();
        let stdout = process.stdout.take().context("it has no standard output")?;
        BufReader::new(stdout).read_line(&mut url)?;
        Ok(Self {
            process,
            url: url.trim().to_owned(),
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
