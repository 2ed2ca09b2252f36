//! Commits posted messages: what arrives while one transaction commits, or soon after, goes into the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smsq_message::sms::Timestamp;
use smsq_store::{
    Campaign, ImportApproval, ImportBatch, IntakeKey, POSTED, PostResult, PostedBatch, PostedKeys,
    Store, StoreError,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::mapper::MappedMessage;
use crate::tokens::random_token;

/// The most messages of one transaction, unless one request has more.
const MAX_ROWS: usize = 2_000;
/// Commits begin at least this long after each other, unless as many messages wait: every commit takes time from the
/// workers of the database.
const COMMIT_EVERY: Duration = Duration::from_millis(10);
const ENOUGH_ROWS: usize = 32;
/// Requests that wait for a commit. Further ones wait to be taken.
const MAX_WAITING: usize = 1_024;
/// How long keys are remembered.
const KEEP_KEYS: Duration = Duration::from_secs(24 * 3600);
/// How often expired keys are deleted.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// The messages of one request that are of one campaign and schedule.
struct Submission {
    new: NewMessages,
    reply: oneshot::Sender<Result<Vec<PostResult>, StoreError>>,
}

/// The end of a queue to the task that commits.
pub(super) struct IntakeWriter {
    queue: Mutex<Option<mpsc::Sender<Submission>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Messages that are committed together and were posted by one request.
pub(crate) struct NewMessages {
    pub(crate) campaign: Arc<Campaign>,
    /// The name of the token.
    pub(crate) posted_by: String,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) approval: ImportApproval,
    /// Each with the keys that a repeated request has too.
    pub(crate) messages: Vec<(MappedMessage, Vec<IntakeKey>)>,
}

impl NewMessages {
    fn import_key(&self) -> ImportKey {
        (self.campaign.id, self.posted_by.clone())
    }
}

impl IntakeWriter {
    pub(super) fn start(store: Store) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let task = WriterTask { store, imports: HashMap::new(), pruned_at: Instant::now() };
        Self {
            queue: Mutex::new(Some(sender)),
            task: Mutex::new(Some(tokio::spawn(task.run(receiver)))),
        }
    }

    /// Commits messages; returns what became of each, in their order. `None`: the server stops.
    pub(super) async fn commit(
        &self,
        new: NewMessages,
    ) -> Option<Result<Vec<PostResult>, StoreError>> {
        let queue = self.queue.lock().ok()?.clone()?;
        let (reply, answer) = oneshot::channel();
        queue.send(Submission { new, reply }).await.ok()?;
        drop(queue);
        answer.await.ok()
    }

    /// Commits what was taken; nothing more is taken after it.
    pub(super) async fn finish(&self) {
        let queue = self.queue.lock().ok().and_then(|mut queue| queue.take());
        drop(queue);
        let task = self.task.lock().ok().and_then(|mut task| task.take());
        if let Some(task) = task {
            // A panic in it has been logged.
            drop(task.await);
        }
    }
}

/// The campaign and the token of an import.
type ImportKey = (i64, String);

/// An import that counts the posted messages of one campaign and token.
struct OpenImport {
    id: i64,
    lines: u64,
}

struct WriterTask {
    store: Store,
    imports: HashMap<ImportKey, OpenImport>,
    pruned_at: Instant,
}

impl WriterTask {
    async fn run(mut self, mut queue: mpsc::Receiver<Submission>) {
        let mut next_at = Instant::now();
        while let Some(first) = queue.recv().await {
            let mut rows = first.new.messages.len();
            let mut group = vec![first];
            while rows < MAX_ROWS {
                let next = match queue.try_recv() {
                    Ok(next) => Some(next),
                    Err(_) if rows >= ENOUGH_ROWS => None,
                    Err(_) => timeout_at(next_at, queue.recv()).await.ok().flatten(),
                };
                let Some(next) = next else { break };
                rows += next.new.messages.len();
                group.push(next);
            }
            next_at = Instant::now() + COMMIT_EVERY;
            self.commit(group).await;
            self.prune().await;
        }
        for import in self.imports.values() {
            let now = self.store.now().await;
            if let Ok(now) = now
                && let Err(error) = self.store.imports().finish(import.id, now).await
            {
                tracing::warn!(%error, "an import was not ended");
            }
        }
    }

    /// Commits a group of requests, without those that are given up, which were answered that nothing is stored. If the
    /// database refuses them together, each is tried alone, so that one bad message does not fail the others.
    async fn commit(&mut self, mut group: Vec<Submission>) {
        group.retain(|submission| !submission.reply.is_closed());
        if group.is_empty() {
            return;
        }
        match self.try_commit(&group).await {
            Ok(results) => reply(group, results),
            Err(error) if group.len() == 1 || !error.is_rejection() => {
                for submission in group {
                    // A disconnected client gets no answer.
                    let _ = submission.reply.send(Err(error.clone()));
                }
            }
            Err(_) => {
                for submission in group {
                    let alone = vec![submission];
                    match self.try_commit(&alone).await {
                        Ok(results) => reply(alone, results),
                        Err(error) => {
                            for submission in alone {
                                let _ = submission.reply.send(Err(error.clone()));
                            }
                        }
                    }
                }
            }
        }
    }

    async fn try_commit(
        &mut self,
        group: &[Submission],
    ) -> Result<Vec<Vec<PostResult>>, StoreError> {
        let now = self.store.now().await?;
        for Submission { new, .. } in group {
            self.open_import(new, now).await?;
        }
        // The requests of one campaign, token and schedule are one batch of rows.
        let mut batches: Vec<PostedBatch> = Vec::new();
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(group.len());
        let mut known: HashMap<_, usize> = HashMap::new();
        for Submission { new, .. } in group {
            let campaign = &new.campaign;
            let import = self.imports.get_mut(&new.import_key());
            let import = import.expect("it was opened");
            let key = (import.id, new.due_at, new.expires_at, &new.approval);
            let index = *known.entry(key).or_insert_with(|| {
                batches.push(PostedBatch {
                    batch: ImportBatch {
                        import_id: import.id,
                        campaign_id: campaign.id,
                        now,
                        due_at: new.due_at.unwrap_or(now),
                        expires_at: new.expires_at,
                        window: campaign.window.clone(),
                        division: None,
                        approval: new.approval.clone(),
                        rows: Vec::new(),
                        row_count: 0,
                        rejected: 0,
                        last_line: 0,
                    },
                    keys: Vec::new(),
                });
                batches.len() - 1
            });
            let posted = &mut batches[index];
            places.push((index, posted.batch.rows.len()));
            for (message, keys) in &new.messages {
                import.lines += 1;
                let mut sms = message.sms.clone();
                sms.line = import.lines;
                posted.batch.rows.push(sms);
                posted.keys.push(PostedKeys {
                    keys: keys.clone(),
                    fingerprint: message.fingerprint.clone(),
                });
            }
            posted.batch.last_line = import.lines;
        }
        let expires_at = now.plus(KEEP_KEYS);
        let results = self.store.post(&batches, expires_at).await?;
        let of_group = group.iter().zip(places);
        Ok(of_group
            .map(|(submission, (index, start))| {
                results[index][start..start + submission.new.messages.len()].to_vec()
            })
            .collect())
    }

    async fn open_import(&mut self, new: &NewMessages, now: Timestamp) -> Result<(), StoreError> {
        let key = new.import_key();
        if !self.imports.contains_key(&key) {
            let (campaign_id, posted_by) = (new.campaign.id, new.posted_by.as_str());
            let hash = random_token();
            let begun =
                self.store.imports().begin(campaign_id, POSTED, &hash, Some(posted_by), now).await;
            let import = OpenImport { id: begun?, lines: 0 };
            self.imports.insert(key, import);
        }
        Ok(())
    }

    async fn prune(&mut self) {
        if self.pruned_at.elapsed() < PRUNE_EVERY {
            return;
        }
        self.pruned_at = Instant::now();
        let pruned = match self.store.now().await {
            Ok(now) => self.store.prune_intake_keys(now).await,
            Err(error) => Err(error),
        };
        if let Err(error) = pruned {
            tracing::debug!(%error, "expired keys were not deleted");
        }
    }
}

fn reply(group: Vec<Submission>, results: Vec<Vec<PostResult>>) {
    for (submission, results) in group.into_iter().zip(results) {
        // A disconnected client gets no answer.
        let _ = submission.reply.send(Ok(results));
    }
}
