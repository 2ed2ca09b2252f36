//! What other programs push becomes messages while they push it: entries of a Redis list, or lines of
//! standard input. An entry that is no message is set aside with its reason, and holds up no other.

mod drain;
mod entry;
mod error;
mod lines;
mod redis;

use std::path::Path;

use secrecy::SecretString;
use serde::Deserialize;

pub use self::drain::drain;
pub use self::entry::EntryOptions;
pub use self::error::QueueError;
pub use self::lines::{Lines, follow};
pub use self::redis::RedisList;
use super::error::ImportError;
use super::keys::Unique;
use super::pipeline::Parsed;
use super::plan::campaign_name;
use super::{Summary, Window, rejects};
use crate::sms::Timestamp;
use crate::store::{Batch, Campaign, Store};

/// Entries of one batch.
const BATCH: usize = 5_000;
/// A batch of long entries ends earlier.
const BATCH_BYTES: usize = 4 << 20;

/// Section `[redis]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// The server's password, where the url has none.
    pub password: SecretString,
}

/// Where the entries go.
pub struct Target<'a> {
    pub store: &'a Store,
    pub campaign: &'a Campaign,
    /// When messages that are imported at a moment are due, and until when.
    pub window: &'a (dyn Fn(Timestamp) -> Window + Sync),
}

/// How entries are read.
pub struct Reading {
    pub entries: EntryOptions,
    pub unique: Unique,
    /// Stay when nothing is left, and wait for more.
    pub follow: bool,
    /// Becomes true when it shall end after the batch that is running.
    pub stop: tokio::sync::watch::Receiver<bool>,
}

/// What happens meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// So many entries, and so many of them no messages.
    Progress {
        rows: u64,
        rejected: u64,
    },
    /// The server is away, and waited for.
    Away(String),
    Back,
    /// The server knows no command that keeps what it gives.
    Unsafe,
    /// Entries that an importer had taken which died.
    Inherited(u64),
    /// Other importers hold entries of the same list, or have held them when they were heard of last.
    Others(u64),
    /// Importers of another database hold entries of the same list.
    Strangers(u64),
}

/// Fails where lines that are no messages could not be written there.
pub fn check_rejects(wanted: &Path) -> Result<(), ImportError> {
    rejects::check_file(wanted)?;
    rejects::check_writable(wanted)
}

/// The name of the campaign if nobody gives one: that of the list and a short hash of the text.
pub fn default_campaign(list: &str, options: &EntryOptions) -> Result<String, ImportError> {
    let template = options.template()?;
    let text = template.as_ref().map(|(_, text)| text.as_str());
    Ok(campaign_name(list, text))
}

/// What a campaign tells its messages apart by; every entry is a message of its own where nobody says.
pub fn unique_in(asked: Option<&Unique>, campaign: &Campaign) -> Result<Unique, ImportError> {
    let Some(stands) = &campaign.unique_by else {
        return Ok(asked.cloned().unwrap_or(Unique::None));
    };
    let Ok(standing) = stands.parse::<Unique>();
    match asked {
        Some(asked) if *asked != standing => Err(ImportError::Unique {
            campaign: campaign.name.clone(),
            stands: stands.clone(),
            asked: asked.to_string(),
        }),
        _ => Ok(standing),
    }
}

/// What one import has written.
struct Import<'a> {
    target: Target<'a>,
    id: i64,
    summary: Summary,
    repeated: Vec<(u64, String)>,
}

impl<'a> Import<'a> {
    async fn begin(target: Target<'a>, name: &str, token: &str) -> Result<Self, ImportError> {
        let now = target.store.now().await?;
        let begun = target
            .store
            .begin_import(target.campaign.id, name, token, now);
        Ok(Self {
            id: begun.await?,
            target,
            summary: Summary::default(),
            repeated: Vec::new(),
        })
    }

    /// Commits a batch; `last_line` is larger than that of the batch before.
    async fn commit(&mut self, parsed: Parsed) -> Result<(), ImportError> {
        let now = self.target.store.now().await?;
        let window = (self.target.window)(now);
        let batch = Batch {
            import_id: self.id,
            campaign_id: self.target.campaign.id,
            now,
            due_at: window.due_at.unwrap_or(now),
            expires_at: window.expires_at,
            window: self.target.campaign.window.clone(),
            row_count: parsed.row_count(),
            rejected: parsed.rejected.len() as u64,
            duplicates: 0,
            last_line: parsed.last_line,
            rows: Vec::new(),
        };
        let store = self.target.store;
        let counts = (&mut self.summary, &mut self.repeated);
        // What programs send, such as codes, is kept nowhere but in its message.
        let mut texts = super::Texts {
            wants_sample: false,
        };
        super::enqueue(store, batch, parsed, None, &mut texts, counts).await
    }

    fn progress(&self) -> News {
        News::Progress {
            rows: self.summary.rows,
            rejected: self.summary.rejected,
        }
    }

    async fn finish(self) -> Result<Summary, ImportError> {
        let store = self.target.store;
        store.finish_import(self.id, store.now().await?).await?;
        Ok(self.summary)
    }
}
