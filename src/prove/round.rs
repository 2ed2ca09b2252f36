//! Plays a round and judges it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::time::Duration;

use serde_json::Value;

use super::ProveError;
use super::chaos::Chaos;
use super::evidence::GatewayLog;
use super::judge::{Evidence, JudgedBudget, Verdict, judge};
use super::world::{ACCEPTED_LATE, LIMIT, Offer, SENDER_LIMIT, Tally, World, now_micros};

/// How a round ended.
pub(super) struct Played {
    pub(super) verdict: Verdict,
    pub(super) tally: Tally,
}

impl World {
    /// Plays the round and judges it.
    pub(super) async fn play(mut self) -> Result<(Played, Self), ProveError> {
        Chaos::new(&mut self).run().await?;
        let budget = self.lift_budget().await?;
        // A last worker has all the time that it needs, and nothing happens to it. Some messages fail.
        // If it does not end, the tables say nothing about what it would still do. What a paused campaign keeps is lost.
        self.must_end("send --yes", &[0, 1, 3]).await?;
        if let Err(error) = self.must_end("check --offline", &[0]).await {
            self.errors.push(error.to_string());
        }
        let listed = self.listed().await?;
        self.read_whole_log().await?;
        let evidence = Evidence {
            log: GatewayLog::of_all(self.logs.iter().map(|file| &file.log)),
            tables: self.tables().await?,
            asked: self.operators.asked.clone(),
            campaigns: self.campaigns.clone(),
            limit: LIMIT,
            sender_limit: self.has_pool.then_some(SENDER_LIMIT),
            budget,
            listed,
            thaws: self.thaws.clone(),
            threads: threads(),
            answers_lookups: self.offer == Offer::Lookups,
            honours_references: matches!(self.offer, Offer::References | Offer::References4s),
        };
        let played = Played { verdict: judge(&evidence), tally: self.tally };
        self.keep(&evidence)?;
        // Later rounds in this database send none of its messages, and may send to all of its phones.
        for campaign in &self.campaigns {
            let line = format!("cancel {}", campaign.name);
            self.must_end(&line, &[0]).await?;
        }
        for phone in &evidence.asked.suppressed {
            let line = format!("suppress remove {phone}");
            self.must_end(&line, &[0]).await?;
        }
        Ok((played, self))
    }

    /// Sends what the budget pays for, and lifts it. Returns what was accepted before.
    async fn lift_budget(&mut self) -> Result<Option<JudgedBudget>, ProveError> {
        let Some(messages) = self.budget else {
            return Ok(None);
        };
        self.must_end("send --yes", &[0, 1, 3]).await?;
        self.read_whole_log().await?;
        let campaign = self.campaigns[0].clone();
        let own: BTreeSet<&String> = campaign.phones.iter().collect();
        let files = self.logs.iter();
        let accepted = files.flat_map(|file| &file.log.accepted);
        let of_campaign = accepted.filter(|entry| own.contains(&entry.phone));
        let budget = JudgedBudget {
            messages,
            accepted: of_campaign.map(|entry| entry.phone.clone()).collect(),
            campaign: campaign.name.clone(),
        };
        let lift = format!("set {} --budget none", campaign.name);
        self.must_end(&lift, &[0]).await?;
        let resume = format!("resume {}", campaign.name);
        self.must_end(&resume, &[0]).await?;
        Ok(Some(budget))
    }

    /// The phones that the failure report lists as unknown.
    async fn listed(&self) -> Result<BTreeSet<String>, ProveError> {
        let mut listed = BTreeSet::new();
        for campaign in &self.campaigns {
            let line = format!("report --failed --format json --campaign {}", campaign.name);
            let report = self.must_end(&line, &[0]).await?;
            let report: Value = serde_json::from_str(&report.stdout).map_err(io::Error::from)?;
            let failures = report["failures"].as_array().into_iter().flatten();
            let unknown = failures.filter(|failure| failure["state"] == "unknown");
            listed
                .extend(unknown.filter_map(|failure| failure["phone"].as_str().map(str::to_owned)));
        }
        Ok(listed)
    }

    /// Reads the log until the gateway has written all of it: what arrived last may be accepted late.
    async fn read_whole_log(&mut self) -> Result<(), ProveError> {
        let patience = u64::try_from((ACCEPTED_LATE * 2).as_micros()).unwrap_or(u64::MAX);
        loop {
            self.update_logs()?;
            let files = self.logs.iter();
            let ends = files.filter_map(|file| Some(file.log.arrivals.last()?.at));
            let last = ends.max().unwrap_or(0);
            if now_micros() > last.saturating_add(patience) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Writes what happened beside the files of the round.
    fn keep(&mut self, evidence: &Evidence) -> io::Result<()> {
        let mut text = String::new();
        for line in &self.history {
            text += line;
            text.push('\n');
        }
        for row in &evidence.tables.rows {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{} {} {:?} {} {}",
                row.campaign, row.phone, row.place, row.accepted, row.reason
            );
        }
        fs::write(self.environment.folder.join("history"), text)
    }
}

/// A worker's threads that start requests.
fn threads() -> u64 {
    std::thread::available_parallelism().map_or(2, |count| count.get().max(2) as u64)
}
