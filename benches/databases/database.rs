//! An empty database of each kind with a queue, and transactions like those of a worker's dispatcher.

use std::io::{BufRead as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use smsq_lifecycle::{ClaimedSms, LaneClaim, ProviderClaim, Settlement, Transition};
use smsq_limit::Account;
use smsq_message::instant::DbMicros;
use smsq_message::sms::{Acceptance, NewSms, Timestamp};
use smsq_store::{
    Access, CommitBatch, CommitCount, CommitResult, ImportApproval, ImportBatch, NewCampaign,
    NewWorker, Store,
};
use tempfile::TempDir;

use crate::engine::Engine;

/// Rows of one transaction of an import.
const BATCH: u64 = 20_000;

/// A database with one campaign and one worker. A file is deleted with it, a server's database with the server.
pub(crate) struct Database {
    engine: Engine,
    pub(crate) store: Store,
    url: String,
    pub(crate) campaign_id: i64,
    worker_id: i64,
    count: CommitCount,
    /// The database's clock, and when it was read.
    clock: (Timestamp, Instant),
    _folder: TempDir,
}

impl Database {
    pub(crate) async fn new(engine: Engine) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let url = engine.create(folder.path())?;
        let store = Store::open(&url, Access::Create).await?;
        let now = store.now().await?;
        let campaign = NewCampaign { name: "bench".to_owned(), ..NewCampaign::default() };
        let campaign_id = store.open_campaign(&campaign, now).await?.id;
        let worker = NewWorker {
            host: "bench".to_owned(),
            boot_id: String::new(),
            pid_namespace: String::new(),
            pid: 1,
            process_started: 0,
            concurrency: 64,
            lease_ms: 30_000,
            machine_id: String::new(),
            token: "bench".to_owned(),
        };
        let worker_id = store.workers().register(&worker, now).await?;
        Ok(Self {
            engine,
            store,
            url,
            campaign_id,
            worker_id,
            count: CommitCount::new(worker_id, worker.token),
            clock: (now, Instant::now()),
            _folder: folder,
        })
    }

    /// Queues `count` messages that are due at an instant.
    pub(crate) async fn fill(&self, messages: u64, due_at: Timestamp) -> anyhow::Result<()> {
        let one_by_one = ImportApproval::OneByOne(String::new());
        self.fill_as(&one_by_one, messages, due_at).await
    }

    /// The same, as messages that wait for approval or not.
    pub(crate) async fn fill_as(
        &self,
        approval: &ImportApproval,
        messages: u64,
        due_at: Timestamp,
    ) -> anyhow::Result<()> {
        let now = self.store.now().await?;
        let import_id =
            self.store.imports().begin(self.campaign_id, "bench.csv", "", None, now).await?;
        let mut line = 1;
        while line <= messages {
            let until = (line + BATCH).min(messages + 1);
            let batch = ImportBatch {
                import_id,
                campaign_id: self.campaign_id,
                now,
                due_at,
                expires_at: None,
                window: None,
                division: None,
                approval: approval.clone(),
                rows: (line..until).map(|line| message(import_id, line)).collect(),
                row_count: until - line,
                rejected: 0,
                last_line: until - 1,
            };
            self.store.imports().enqueue(&batch).await?;
            line = until;
        }
        Ok(())
    }

    /// One transaction: settles these as sent, and claims others.
    pub(crate) async fn round(
        &self,
        sent: Vec<ClaimedSms>,
        max_messages: u32,
    ) -> anyhow::Result<Vec<ClaimedSms>> {
        claimed(self.store.commit(&self.batch(sent, max_messages)).await?)
    }

    /// The same, and it raises the worker's count of commits.
    pub(crate) async fn counted_round(
        &mut self,
        sent: Vec<ClaimedSms>,
        max_messages: u32,
    ) -> anyhow::Result<Vec<ClaimedSms>> {
        let batch = self.batch(sent, max_messages);
        let done = self.store.commit_counted(&batch, &self.count).await?;
        self.count.confirmed += 1;
        claimed(done)
    }

    fn batch(&self, sent: Vec<ClaimedSms>, max_messages: u32) -> CommitBatch {
        let now = self.clock.0.plus(self.clock.1.elapsed());
        let settlements = sent.into_iter().map(|claimed| Settlement {
            id: claimed.sms.id,
            claim: claimed.sms.claim,
            provider: "bench".to_owned(),
            transition: Transition::Sent(Acceptance {
                message_id: Some(format!("bench-{}", claimed.sms.id)),
                ..Acceptance::default()
            }),
        });
        let claim = ProviderClaim {
            provider: "bench".to_owned(),
            account: Account::new("bench"),
            routes: Arc::default(),
            prices: Arc::default(),
            is_default: true,
            limits: Vec::new(),
            by_segments: false,
            from: now.into(),
            until: DbMicros::from(now).plus(Duration::from_millis(50)),
            released: Vec::new(),
            held: Vec::new(),
            max_messages,
            max_requests: max_messages,
            lanes: vec![LaneClaim::undivided(self.campaign_id, max_messages)],
            pool: None,
        };
        CommitBatch {
            settlements: settlements.collect(),
            claims: vec![claim],
            ..CommitBatch::new(self.worker_id, now)
        }
    }

    /// The database's own shell, which holds an old snapshot until it ends.
    pub(crate) fn old_view(&self) -> anyhow::Result<Option<OldView>> {
        if self.engine == Engine::Sqlite {
            return Ok(None);
        }
        let begin = match self.engine {
            Engine::Postgres => {
                "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sms;\n"
            }
            _ => "START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT count(*) FROM campaign;\n",
        };
        let mut shell =
            self.engine.shell(&self.url).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = shell.stdin.take().context("no input")?;
        input.write_all(begin.as_bytes())?;
        input.flush()?;
        let output = shell.stdout.take().context("no output")?;
        let mut line = String::new();
        std::io::BufReader::new(output).read_line(&mut line)?;
        Ok(Some(OldView(shell, input)))
    }
}

fn claimed(done: CommitResult) -> anyhow::Result<Vec<ClaimedSms>> {
    let claimed = done.claims.into_iter().next().context("no claim")?;
    Ok(claimed.rows)
}

/// Ends when it is dropped.
pub(crate) struct OldView(
    Child,
    #[expect(dead_code, reason = "held open")] std::process::ChildStdin,
);

impl Drop for OldView {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn message(import_id: i64, line: u64) -> NewSms {
    let number = 3_800_000_000 + line / 9_000 * 10_000 + 1_000 + line % 9_000;
    let phone = format!("+861{number:010}");
    NewSms {
        line,
        phone: phone.clone(),
        content: "Hi Victor, your order 100000 is on its way. Reply STOP to opt out.".to_owned(),
        params: r#"{"name":"Victor","order":"100000"}"#.to_owned(),
        segments: 1,
        dedupe_key: format!("{import_id}{phone}"),
        replaces: None,
    }
}
