//! A list in Redis as other programs fill it. What is taken goes to a list of this importer's own, in the
//! same step, and leaves it only once it is committed: whoever dies in between has it there for the next.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value,
};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::error::ConsumerError;

/// No answer for so long means that the connection is gone.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECTING: Duration = Duration::from_secs(10);
/// So long an importer is taken to live that says nothing.
const LEASE: Duration = Duration::from_secs(15);
const FEWEST: usize = 16;
const MOST: usize = 1_000;
/// Entries that are moved at once have about so many bytes.
const BYTES: usize = 1 << 20;

/// What the server can do to move an entry from one list to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moving {
    Lmove,
    Rpoplpush,
    /// It can only give an entry away: what was not committed when the importer dies is lost.
    Rpop,
}

/// Which list is meant, and how its server is reached.
#[derive(Clone)]
pub struct RedisList {
    client: Client,
    /// The server, without a password.
    place: String,
    key: String,
}

impl RedisList {
    /// `url` is `redis://host:6379/0` or, encrypted, `rediss://…`.
    pub fn new(url: &str, key: &str, password: &SecretString) -> Result<Self, ConsumerError> {
        let fault = |reason: &str| ConsumerError::Url {
            reason: reason.to_owned(),
        };
        let mut url = Url::parse(url).map_err(|error| fault(&error.to_string()))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(fault("names no host"));
        }
        let password = password.expose_secret();
        if url.password().is_none() && !password.is_empty() {
            url.set_password(Some(password))
                .map_err(|()| fault("can have no password"))?;
        }
        if url.scheme() == "rediss" {
            // Where another library has chosen one before, that one serves as well.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let client = Client::open(url.as_str()).map_err(|error| fault(&said(&error)))?;
        let mut bare = url;
        let _ = bare.set_password(None);
        let _ = bare.set_username("");
        bare.set_query(None);
        Ok(Self {
            client,
            place: bare.to_string(),
            key: key.to_owned(),
        })
    }

    /// As messages and the table of imports name it.
    pub fn name(&self) -> String {
        format!("{} list {}", self.place, self.key)
    }

    /// Fails where the server does not answer, or the key is no list.
    pub async fn check(&self) -> Result<(), ConsumerError> {
        let mut connection = Connection::open(self, "", "").await?;
        connection.waiting().await.map(drop)
    }

    fn dead(&self) -> String {
        format!("{}:dead", self.key)
    }

    /// The tokens of importers that may hold entries.
    fn index(&self) -> String {
        format!("{}:smsq", self.key)
    }

    fn lease(&self, token: &str) -> String {
        format!("{}:smsq:{token}", self.key)
    }

    fn held(&self, token: &str, batch: u64) -> String {
        format!("{}:smsq:{token}:{batch}", self.key)
    }

    /// What is wrong with it, for the operator.
    fn fault(&self, error: &RedisError) -> ConsumerError {
        let place = self.place.clone();
        let code = error.code().unwrap_or_default();
        let text = said(error);
        match error.kind() {
            _ if code == "WRONGTYPE" => ConsumerError::WrongType {
                place,
                key: self.key.clone(),
            },
            ErrorKind::AuthenticationFailed => ConsumerError::Denied { place },
            _ if matches!(code, "NOAUTH" | "WRONGPASS") => ConsumerError::Denied { place },
            ErrorKind::Server(
                ServerErrorKind::Moved | ServerErrorKind::CrossSlot | ServerErrorKind::Ask,
            ) => ConsumerError::Cluster { place },
            _ => ConsumerError::Server {
                place,
                reason: text,
                is_away: is_away(error),
            },
        }
    }
}

/// The server may be back in a moment.
fn is_away(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::TryAgain
                    | ServerErrorKind::ReadOnly
            )
        )
}

/// What an error says, cut to what a line of a terminal takes.
fn said(error: &RedisError) -> String {
    let text = error
        .detail()
        .map_or_else(|| error.to_string(), str::to_owned);
    text.chars().take(200).collect()
}

fn is_unknown_command(error: &RedisError) -> bool {
    said(error).to_lowercase().contains("unknown command")
}

/// One importer's connection. Its batches are numbered from 1, and it holds one at a time.
pub(super) struct Connection {
    list: RedisList,
    link: MultiplexedConnection,
    token: String,
    /// What other importers may know of this one.
    owner: String,
    pub(super) moving: Moving,
    chunk: usize,
}

/// An importer that may hold entries.
pub(super) struct Other {
    pub(super) token: String,
    /// What it said of itself; `None` when it has not been heard of for a while.
    pub(super) owner: Option<String>,
}

impl Connection {
    pub(super) async fn open(
        list: &RedisList,
        token: &str,
        owner: &str,
    ) -> Result<Self, ConsumerError> {
        let fault = |error: RedisError| list.fault(&error);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECTING))
            .set_response_timeout(Some(PATIENCE));
        let opening = list
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let mut link = opening.await.map_err(fault)?;
        let moving = moving(&mut link, list).await.map_err(fault)?;
        Ok(Self {
            list: list.clone(),
            link,
            token: token.to_owned(),
            owner: owner.to_owned(),
            moving,
            chunk: FEWEST,
        })
    }

    /// How many entries wait.
    pub(super) async fn waiting(&mut self) -> Result<u64, ConsumerError> {
        let key = self.list.key.clone();
        self.ask(redis::cmd("LLEN").arg(key)).await
    }

    /// Waits until there is an entry, or for about a second. Moving one to where it was changes nothing.
    pub(super) async fn wait(&mut self) -> Result<(), ConsumerError> {
        if self.moving == Moving::Lmove {
            let key = &self.list.key;
            let mut wait = redis::cmd("BLMOVE");
            wait.arg(key).arg(key).arg("RIGHT").arg("RIGHT").arg(1);
            let _: Option<Vec<u8>> = self.ask(&wait).await?;
        } else {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        Ok(())
    }

    /// What the batch holds already, the oldest first.
    pub(super) async fn held(&mut self, batch: u64) -> Result<Vec<Vec<u8>>, ConsumerError> {
        let held = self.list.held(&self.token, batch);
        let mut entries: Vec<Vec<u8>> = self
            .ask(redis::cmd("LRANGE").arg(held).arg(0).arg(-1))
            .await?;
        entries.reverse();
        Ok(entries)
    }

    /// Moves some entries into the batch, the oldest first; an empty answer says that none wait.
    pub(super) async fn take(&mut self, batch: u64) -> Result<Vec<Vec<u8>>, ConsumerError> {
        let held = self.list.held(&self.token, batch);
        let mut pipeline = self.signed();
        for _ in 0..self.chunk {
            let key = &self.list.key;
            match self.moving {
                Moving::Lmove => {
                    let moved = pipeline.cmd("LMOVE").arg(key).arg(&held);
                    moved.arg("RIGHT").arg("LEFT")
                }
                Moving::Rpoplpush => pipeline.cmd("RPOPLPUSH").arg(key).arg(&held),
                Moving::Rpop => pipeline.cmd("RPOP").arg(key),
            };
        }
        let answers: Vec<Option<Vec<u8>>> = self.ask_all(&pipeline).await?;
        let entries: Vec<Vec<u8>> = answers.into_iter().flatten().collect();
        let bytes: usize = entries.iter().map(Vec::len).sum();
        if !entries.is_empty() {
            // Next time as many as have about so many bytes.
            let each = bytes / entries.len() + 1;
            self.chunk = (BYTES / each).clamp(FEWEST, MOST);
        }
        Ok(entries)
    }

    /// Says that this importer lives, and holds a batch: in the same step as what follows.
    fn signed(&self) -> Pipeline {
        let mut pipeline = redis::pipe();
        if self.moving == Moving::Rpop {
            return pipeline;
        }
        let lease = self.list.lease(&self.token);
        pipeline
            .atomic()
            .cmd("SADD")
            .arg(self.list.index())
            .arg(&self.token)
            .ignore()
            .cmd("SET")
            .arg(lease)
            .arg(&self.owner)
            .arg("PX")
            .arg(crate::sms::millis(LEASE))
            .ignore();
        pipeline
    }

    /// Moves an entry of the batch to the dead list, where it is a letter that has the reason.
    pub(super) async fn bury(
        &mut self,
        batch: u64,
        entry: &[u8],
        letter: &str,
    ) -> Result<(), ConsumerError> {
        let mut pipeline = redis::pipe();
        let push = pipeline.atomic().cmd("LPUSH").arg(self.list.dead());
        push.arg(letter).ignore();
        if self.moving != Moving::Rpop {
            let held = self.list.held(&self.token, batch);
            pipeline.cmd("LREM").arg(held).arg(-1).arg(entry).ignore();
        }
        self.ask_all(&pipeline).await
    }

    /// The batch is committed.
    pub(super) async fn let_go(&mut self, batch: u64) -> Result<(), ConsumerError> {
        if self.moving == Moving::Rpop {
            return Ok(());
        }
        let held = self.list.held(&self.token, batch);
        let _: u64 = self.ask(redis::cmd("DEL").arg(held)).await?;
        Ok(())
    }

    /// Puts entries back where they were: only where the server could not keep them.
    pub(super) async fn put_back(&mut self, entries: &[Vec<u8>]) -> Result<(), ConsumerError> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut push = redis::cmd("RPUSH");
        push.arg(&self.list.key);
        for entry in entries.iter().rev() {
            push.arg(entry);
        }
        let _: u64 = self.ask(&push).await?;
        Ok(())
    }

    /// The other importers that may hold entries.
    pub(super) async fn others(&mut self) -> Result<Vec<Other>, ConsumerError> {
        if self.moving == Moving::Rpop {
            return Ok(Vec::new());
        }
        let tokens: Vec<String> = self
            .ask(redis::cmd("SMEMBERS").arg(self.list.index()))
            .await?;
        let mut others = Vec::new();
        for token in tokens {
            if token == self.token {
                continue;
            }
            let lease = self.list.lease(&token);
            let owner: Option<String> = self.ask(redis::cmd("GET").arg(lease)).await?;
            others.push(Other { token, owner });
        }
        Ok(others)
    }

    /// Makes an empty batch of this importer what a dead one has taken and not committed; `done` is the last
    /// batch that it has. False when there was nothing, and the dead importer is forgotten.
    pub(super) async fn inherit(
        &mut self,
        dead: &str,
        done: u64,
        batch: u64,
    ) -> Result<bool, ConsumerError> {
        let committed = self.list.held(dead, done);
        let left = self.list.held(dead, done + 1);
        let _: u64 = self.ask(redis::cmd("DEL").arg(committed)).await?;
        // Should it live after all and take more at this moment, it is not forgotten.
        let () = self.ask(redis::cmd("WATCH").arg(&left)).await?;
        let is_there: bool = self.ask(redis::cmd("EXISTS").arg(&left)).await?;
        let mut pipeline = if is_there {
            self.signed()
        } else {
            let mut pipeline = redis::pipe();
            pipeline.atomic();
            pipeline
        };
        if is_there {
            let own = self.list.held(&self.token, batch);
            pipeline.cmd("RENAMENX").arg(&left).arg(own);
        } else {
            let index = self.list.index();
            pipeline.cmd("SREM").arg(index).arg(dead);
            pipeline.cmd("DEL").arg(self.list.lease(dead)).ignore();
        }
        let done: Option<Value> = self.ask_all(&pipeline).await?;
        Ok(is_there && done.is_some())
    }

    /// This importer holds nothing any more.
    pub(super) async fn leave(&mut self) -> Result<(), ConsumerError> {
        if self.moving == Moving::Rpop {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        pipeline
            .atomic()
            .cmd("SREM")
            .arg(self.list.index())
            .arg(&self.token)
            .ignore()
            .cmd("DEL")
            .arg(self.list.lease(&self.token))
            .ignore();
        self.ask_all(&pipeline).await
    }

    async fn ask<T: redis::FromRedisValue>(
        &mut self,
        command: &redis::Cmd,
    ) -> Result<T, ConsumerError> {
        let asked = command.query_async(&mut self.link).await;
        asked.map_err(|error| self.list.fault(&error))
    }

    async fn ask_all<T: redis::FromRedisValue>(
        &mut self,
        pipeline: &Pipeline,
    ) -> Result<T, ConsumerError> {
        let asked = pipeline.query_async(&mut self.link).await;
        asked.map_err(|error| self.list.fault(&error))
    }
}

/// Tried on lists that do not exist, which changes nothing.
async fn moving(link: &mut MultiplexedConnection, list: &RedisList) -> Result<Moving, RedisError> {
    let nowhere = format!("{}:smsq:nowhere", list.key);
    let mut lmove = redis::cmd("LMOVE");
    lmove.arg(&nowhere).arg(&nowhere).arg("RIGHT").arg("LEFT");
    let mut rpoplpush = redis::cmd("RPOPLPUSH");
    rpoplpush.arg(&nowhere).arg(&nowhere);
    for (command, moving) in [(lmove, Moving::Lmove), (rpoplpush, Moving::Rpoplpush)] {
        match command.query_async::<Option<Vec<u8>>>(link).await {
            Ok(_) => return Ok(moving),
            Err(error) if is_unknown_command(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Moving::Rpop)
}
