//! A queue of messages in a new database, and runs of `smsq send` that empty it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;

use crate::engine::Engine;
use crate::gateway::{Gateway, Stats};
use crate::list;
use crate::process::{Ended, cpu_of_tree, run};
use crate::workspace::Workspace;

/// The secret of the provider.
pub(crate) const TOKEN: &str = "b3f0c7d29a5e4861";

pub(crate) struct Queue {
    engine: Engine,
    pub(crate) workspace: Workspace,
    pub(crate) url: String,
    messages: u32,
}

/// One run of `smsq send` until the queue was empty.
pub(crate) struct Sent {
    pub(crate) messages: u32,
    pub(crate) sender: Ended,
    /// Processor time of the database server, where there is one and its process is known.
    pub(crate) server: Option<Duration>,
    pub(crate) stats: Stats,
}

impl Queue {
    /// Imports messages for a provider of the kind `generic`; `rate`: its limit.
    pub(crate) fn new(
        program: &Path,
        engine: Engine,
        messages: u32,
        gateway: &Gateway,
        rate: Option<&str>,
    ) -> anyhow::Result<Self> {
        let workspace = Workspace::new(program.to_owned())?;
        let url = engine.create(&workspace.path("."))?;
        let queue = Self { engine, workspace, url, messages };
        let workspace = &queue.workspace;
        let token = workspace.path("token");
        std::fs::write(&token, TOKEN)?;
        let rate = rate.map_or_else(String::new, |rate| format!("rate = '{rate}'"));
        let settings = format!(
            "[database]\nurl = '{}'\n\
             [providers.gateway]\nkind = 'generic'\nurl = '{}'\nmessage_id = '/id'\n{rate}\n\
             headers = {{ Authorization = 'Bearer {{{{ secret.token }}}}' }}\n\
             json = {{ to = '{{{{ phone }}}}', text = '{{{{ content }}}}', ref = '{{{{ reference }}}}' }}\n\
             secrets = {{ token = {{ file = '{}' }} }}\n",
            queue.url,
            gateway.url(),
            token.display(),
        );
        std::fs::write(workspace.path("smsq.toml"), settings)?;
        list::write(&workspace.path("list.csv"), u64::from(messages))?;
        let imported = workspace.json(&["import", "list.csv", "--text", list::TEXT])?;
        ensure!(imported["accepted"] == messages, "not all was imported: {imported}");
        // What the import has left to write must not delay the commits that are measured.
        rustix::fs::sync();
        Ok(queue)
    }

    /// The command that sends.
    pub(crate) fn sender(&self, concurrency: u32) -> Command {
        let concurrency = concurrency.to_string();
        self.workspace.smsq(&["send", "-q", "--format", "json", "--concurrency", &concurrency])
    }

    pub(crate) fn send(&self, gateway: &Gateway, concurrency: u32) -> anyhow::Result<Sent> {
        let server = self.engine.server_process();
        let cpu = server.map(cpu_of_tree).transpose()?;
        let sender = run(self.sender(concurrency))?;
        let server = match (server.map(cpu_of_tree).transpose()?, cpu) {
            (Some(after), Some(before)) => Some(after.saturating_sub(before)),
            _ => None,
        };
        let stats = self.check(gateway)?;
        ensure!(
            sender.output["sent"] == self.messages,
            "not all messages were sent: {}",
            sender.output
        );
        Ok(Sent { messages: self.messages, sender, server, stats })
    }

    /// The gateway's statistics, if it has received each message once.
    pub(crate) fn check(&self, gateway: &Gateway) -> anyhow::Result<Stats> {
        let stats = gateway.stats()?;
        let distinct = stats.recorded.as_ref();
        let distinct = distinct.map(|recorded| recorded.distinct_references);
        ensure!(
            stats.requests == self.messages
                && distinct.is_none_or(|distinct| u32::try_from(distinct) == Ok(self.messages)),
            "the gateway did not receive each of {} messages once: {stats:?}",
            self.messages
        );
        Ok(stats)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The server deletes it with its other databases otherwise.
        let _ = self.engine.delete(&self.url);
    }
}

impl Sent {
    /// Messages per second of the whole process, with its start and its end.
    pub(crate) fn per_second(&self) -> f64 {
        let elapsed = Duration::from_micros(self.sender.exited_us - self.sender.started_us);
        f64::from(self.messages) / elapsed.as_secs_f64()
    }

    /// Messages per second from the first arrival at the gateway to its last answer.
    pub(crate) fn per_second_between(&self) -> f64 {
        let elapsed = self.stats.last_answer_us - self.stats.first_arrival_us;
        f64::from(self.messages) / Duration::from_micros(elapsed).as_secs_f64()
    }

    /// Processor time of the sender per message.
    pub(crate) fn cpu(&self) -> Duration {
        self.sender.cpu / self.messages
    }
}
