//! The practice gateway as a process, and a queue that is sent to it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::list;
use crate::workspace::{Workspace, program};

/// Imports `messages` messages, and writes the configuration that sends them to `gateway`; `more`: further keys of
/// its section.
pub(crate) fn queue(
    workspace: &Workspace,
    messages: u64,
    gateway: &Gateway,
    more: &str,
) -> anyhow::Result<()> {
    let section = format!(
        "default_provider = 'sandbox'\n[providers.sandbox]\nurl = '{}'\n{more}\n",
        gateway.url
    );
    std::fs::write(workspace.path("smsq.toml"), section)?;
    let list = workspace.path("list.csv");
    list::write(&list, messages)?;
    let imported = workspace.json(&["import", "list.csv", "--text", list::TEXT])?;
    ensure!(imported["accepted"] == messages, "not all was imported: {imported}");
    Ok(())
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
        let mut process = Command::new(program()?)
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
        Ok(Self { process, url: url.trim().to_owned() })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
