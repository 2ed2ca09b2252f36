//! A Redis list that other programs push to. Entries are moved to a processing list of this importer, and
//! deleted from there once they are committed, so that another importer can reclaim them after a crash.
//!
//! Keys: `KEY:smsq` has the tokens of importers with a processing list, `KEY:smsq:TOKEN` is the lease of an
//! importer, `KEY:smsq:TOKEN:BATCH` its processing list, `KEY:dead` has the rejected entries.

use std::time::Duration;

use redis::Direction::{Left, Right};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError,
    RetryMethod, Value, cmd,
};
use smsq_message::secret::Secret;
use smsq_process::identity::ProcessIdentity;
use url::Url;

use crate::error::ImportError;

/// How long to wait for an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An importer that is silent for longer is considered dead.
const LEASE: Duration = Duration::from_secs(15);
/// Entries that are moved in one round trip.
const CHUNK: usize = 500;

/// A list and its server.
#[derive(Clone)]
pub struct RedisList {
    client: Client,
    /// The url of the server without user and password.
    server: String,
    pub key: String,
}

impl RedisList {
    /// `url` is `redis://host:6379/0`, or `rediss://…` with TLS.
    pub fn new(url: &str, key: &str, password: &Secret<String>) -> Result<Self, ImportError> {
        let invalid = |reason: &str| {
            ImportError::new(format!("invalid Redis url: {reason}; use `redis://host:6379/0`"))
        };
        let mut url = Url::parse(url).map_err(|error| invalid(&error.to_string()))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(invalid("it names no host"));
        }
        let password = password.expose();
        if url.password().is_none() && !password.is_empty() {
            let set = url.set_password(Some(password));
            set.map_err(|()| invalid("it cannot have a password"))?;
        }
        if url.scheme() == "rediss" {
            // An error means that a provider is installed already, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = Client::open(url.as_str()).map_err(|error| invalid(&reason(&error)))?;
        let mut server = url;
        let _ = server.set_password(None);
        let _ = server.set_username("");
        server.set_query(None);
        Ok(Self { client, server: server.to_string(), key: key.to_owned() })
    }

    /// Returns the name in messages and in the table of imports.
    pub fn name(&self) -> String {
        format!("{} list {}", self.server, self.key)
    }

    /// Fails if the server does not answer or the key is not a list.
    pub async fn check(&self) -> Result<(), ImportError> {
        let mut connection = RedisConnection::open(self, "").await?;
        connection.length().await.map(drop)
    }

    /// The set of tokens.
    fn importers(&self) -> String {
        format!("{}:smsq", self.key)
    }

    fn lease(&self, token: &str) -> String {
        format!("{}:smsq:{token}", self.key)
    }

    fn processing(&self, token: &str, batch: u64) -> String {
        format!("{}:smsq:{token}:{batch}", self.key)
    }

    fn error(&self, error: &RedisError) -> ImportError {
        let Self { server, key, .. } = self;
        let code = error.code().unwrap_or_default();
        if error.kind() == ErrorKind::AuthenticationFailed
            || ["NOAUTH", "WRONGPASS"].contains(&code)
        {
            return ImportError::hinted(
                format!("`{server}` refuses the login: it needs another user or password"),
                "set the password as SMSQ__REDIS__PASSWORD, the user in the url: `redis://user@host/0`",
            );
        }
        match code {
            "WRONGTYPE" => ImportError::hinted(
                format!("key `{key}` of `{server}` is not a list"),
                "`redis-cli TYPE KEY` shows what it is",
            ),
            "MOVED" | "CROSSSLOT" | "ASK" => ImportError::new(format!(
                "`{server}` is a cluster, and the keys of the list are on several of its nodes"
            )),
            _ => {
                // This includes a server that is still loading its data, or that is a replica at the moment.
                let is_unavailable =
                    error.is_io_error() || !matches!(error.retry_method(), RetryMethod::NoRetry);
                let (server, reason) = (server.clone(), reason(error));
                if is_unavailable {
                    return ImportError::ServerUnavailable { server, reason };
                }
                ImportError::new(format!("cannot use `{server}`: {reason}"))
            }
        }
    }
}

/// Returns the text of an error, cut to a line of a terminal.
fn reason(error: &RedisError) -> String {
    let detail = error.detail().map(str::to_owned);
    let text = detail.unwrap_or_else(|| error.to_string());
    text.chars().take(200).collect()
}

/// The connection of one importer, which holds one batch at a time.
pub(super) struct RedisConnection {
    list: RedisList,
    link: MultiplexedConnection,
    token: String,
    /// Identifies the process to other importers.
    owner: String,
    /// The server can move an entry to another list. If it can only remove entries, those that are taken and
    /// not committed are lost in a crash.
    pub(super) can_move: bool,
    /// The server has LMOVE, and BLMOVE, which waits for an entry.
    has_lmove: bool,
}

impl RedisConnection {
    pub(super) async fn open(list: &RedisList, token: &str) -> Result<Self, ImportError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let client = &list.client;
        let link = client.get_multiplexed_async_connection_with_config(&config);
        let mut link = link.await.map_err(|error| list.error(&error))?;
        let nowhere = format!("{}:smsq:nowhere", list.key);
        let lmove = Cmd::lmove(&nowhere, &nowhere, Right, Left);
        let has_lmove = has_command(&mut link, list, &lmove).await?;
        let rpoplpush = Cmd::rpoplpush(&nowhere, &nowhere);
        let can_move = has_lmove || has_command(&mut link, list, &rpoplpush).await?;
        Ok(Self {
            list: list.clone(),
            link,
            token: token.to_owned(),
            owner: ProcessIdentity::current().to_string(),
            can_move,
            has_lmove,
        })
    }

    /// Returns how many entries wait in the list.
    pub(super) async fn length(&mut self) -> Result<u64, ImportError> {
        self.query(&Cmd::llen(&self.list.key)).await
    }

    /// Waits for an entry, at most about a second. The entry is moved to where it was.
    pub(super) async fn wait(&mut self) -> Result<(), ImportError> {
        if !self.has_lmove {
            tokio::time::sleep(Duration::from_millis(250)).await;
            return Ok(());
        }
        let key = &self.list.key;
        let mut wait = cmd("BLMOVE");
        wait.arg(key).arg(key).arg("RIGHT").arg("RIGHT").arg(1);
        let _: Option<Vec<u8>> = self.query(&wait).await?;
        Ok(())
    }

    /// Returns the processing list of the batch, the oldest entry first.
    pub(super) async fn processing(&mut self, batch: u64) -> Result<Vec<Vec<u8>>, ImportError> {
        let key = self.list.processing(&self.token, batch);
        let mut entries: Vec<Vec<u8>> = self.query(&Cmd::lrange(key, 0, -1)).await?;
        entries.reverse();
        Ok(entries)
    }

    /// Moves some entries to the processing list of the batch, the oldest first; none if the list is empty.
    pub(super) async fn take(&mut self, batch: u64) -> Result<Vec<Vec<u8>>, ImportError> {
        let key = &self.list.key;
        let processing = self.list.processing(&self.token, batch);
        let mut pipeline = self.register();
        for _ in 0..CHUNK {
            if self.has_lmove {
                pipeline.lmove(key, &processing, Right, Left);
            } else if self.can_move {
                pipeline.rpoplpush(key, &processing);
            } else {
                pipeline.rpop(key, None);
            }
        }
        let entries: Vec<Option<Vec<u8>>> = self.run(&pipeline).await?;
        Ok(entries.into_iter().flatten().collect())
    }

    /// Begins a transaction that registers this importer and renews its lease.
    fn register(&self) -> Pipeline {
        let mut pipeline = redis::pipe();
        if self.can_move {
            let lease = self.list.lease(&self.token);
            let milliseconds = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
            pipeline.atomic();
            pipeline.sadd(self.list.importers(), &self.token).ignore();
            pipeline.pset_ex(lease, &self.owner, milliseconds).ignore();
        }
        pipeline
    }

    /// Moves entries of the batch to the dead list, where each has its reason.
    pub(super) async fn dead_letter(
        &mut self,
        batch: u64,
        letters: &[(Vec<u8>, String)],
    ) -> Result<(), ImportError> {
        let dead = format!("{}:dead", self.list.key);
        let processing = self.list.processing(&self.token, batch);
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        for (entry, letter) in letters {
            pipeline.lpush(&dead, letter).ignore();
            pipeline.lrem(&processing, -1, entry).ignore();
        }
        self.run(&pipeline).await
    }

    /// Deletes the processing list of a committed batch.
    pub(super) async fn ack(&mut self, batch: u64) -> Result<(), ImportError> {
        let key = self.list.processing(&self.token, batch);
        self.query(cmd("DEL").arg(key)).await
    }

    /// Pushes entries back to the list, of a server that cannot move them.
    pub(super) async fn put_back(&mut self, entries: &[Vec<u8>]) -> Result<(), ImportError> {
        if self.can_move || entries.is_empty() {
            return Ok(());
        }
        let entries: Vec<&Vec<u8>> = entries.iter().rev().collect();
        self.query(&Cmd::rpush(&self.list.key, entries)).await
    }

    /// Returns the tokens and owners of other importers; the owner is `None` if the lease has expired.
    pub(super) async fn others(&mut self) -> Result<Vec<(String, Option<String>)>, ImportError> {
        let importers = self.list.importers();
        let mut tokens: Vec<String> = self.query(cmd("SMEMBERS").arg(importers)).await?;
        tokens.retain(|token| *token != self.token);
        let mut others = Vec::new();
        for token in tokens {
            let lease = self.list.lease(&token);
            let owner = self.query(cmd("GET").arg(lease)).await?;
            others.push((token, owner));
        }
        Ok(others)
    }

    /// Makes the batch after `committed` of a dead importer the `batch` of this one. Returns false if there
    /// is none; the dead importer is removed then.
    pub(super) async fn reclaim(
        &mut self,
        dead: &str,
        committed: u64,
        batch: u64,
    ) -> Result<bool, ImportError> {
        let done = self.list.processing(dead, committed);
        let left = self.list.processing(dead, committed + 1);
        let () = self.query(&Cmd::del(done)).await?;
        // If it is alive and takes more entries meanwhile, nothing is changed.
        let () = self.query(cmd("WATCH").arg(&left)).await?;
        let exists: bool = self.query(cmd("EXISTS").arg(&left)).await?;
        let mut pipeline = if exists { self.register() } else { redis::pipe() };
        pipeline.atomic();
        if exists {
            pipeline.rename_nx(&left, self.list.processing(&self.token, batch));
        } else {
            pipeline.srem(self.list.importers(), dead);
            pipeline.del(self.list.lease(dead));
        }
        let done: Option<Value> = self.run(&pipeline).await?;
        Ok(exists && done.is_some())
    }

    /// Removes this importer, which holds no batch.
    pub(super) async fn unregister(&mut self) -> Result<(), ImportError> {
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        pipeline.srem(self.list.importers(), &self.token).ignore();
        pipeline.del(self.list.lease(&self.token)).ignore();
        self.run(&pipeline).await
    }

    async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, ImportError> {
        let answer = command.query_async(&mut self.link).await;
        answer.map_err(|error| self.list.error(&error))
    }

    async fn run<T: FromRedisValue>(&mut self, pipeline: &Pipeline) -> Result<T, ImportError> {
        let answer = pipeline.query_async(&mut self.link).await;
        answer.map_err(|error| self.list.error(&error))
    }
}

/// Whether the server has a command, which is tried on a list that does not exist.
async fn has_command(
    link: &mut MultiplexedConnection,
    list: &RedisList,
    command: &Cmd,
) -> Result<bool, ImportError> {
    match command.query_async::<Option<Vec<u8>>>(link).await {
        Ok(_) => Ok(true),
        Err(error) if reason(&error).to_lowercase().contains("unknown command") => Ok(false),
        Err(error) => Err(list.error(&error)),
    }
}
