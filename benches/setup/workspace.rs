//! The environment of the measurements: a folder in the build folder, so that it is on a real disk, and the program as
//! a process in it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::results::option;

/// The program that is measured: `--smsq PATH`, by default the one of this build.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    Ok(option("--smsq")?.unwrap_or_else(|| env!("CARGO_BIN_EXE_smsq").into()))
}

/// A folder to run a program in; removed when it is dropped.
pub(crate) struct Workspace {
    folder: TempDir,
    program: PathBuf,
}

impl Workspace {
    pub(crate) fn new(program: PathBuf) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        Ok(Self { folder, program })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program with an empty environment.
    pub(crate) fn smsq(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program and parses the JSON object that it prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let child = self.smsq(&[arguments, &["--format", "json"]].concat()).spawn()?;
        finished(child)
    }
}

/// The output of the program; an error if it failed.
pub(crate) fn finished(child: Child) -> anyhow::Result<Value> {
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).context("standard output is not JSON")
}
