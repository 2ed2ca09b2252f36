//! Imports what other programs write while they write it: entries of a Redis list, or JSON lines on standard
//! input. An entry that is not a valid message is kept with the reason, and delays no other.

mod consume;
mod jsonl;
mod message;
mod redis;

use std::path::Path;

use secrecy::SecretString;
use serde::Deserialize;

pub use self::consume::consume;
pub use self::jsonl::{Lines, follow};
pub use self::message::MessageOptions;
pub use self::redis::RedisList;
use super::dedupe::Unique;
pub use super::error::ConsumerError;
use super::error::ImportError;
use super::rejects_file;
use super::summary::Summary;
use super::text_source::campaign_name;
use crate::store::Campaign;

/// Section `[redis]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// The password of the server, if the url has none.
    pub password: SecretString,
}

/// How entries are consumed.
pub struct ConsumeOptions {
    pub messages: MessageOptions,
    pub unique: Unique,
    /// Wait for more entries when none is left.
    pub follow: bool,
    /// Set to true to stop after the current batch.
    pub stop: tokio::sync::watch::Receiver<bool>,
}

/// What happens during consumption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Counts of all entries and of the rejected ones.
    Progress {
        rows: u64,
        rejected: u64,
    },
    /// The server cannot be reached; the consumer waits for it.
    ServerLost(String),
    ServerBack,
    /// The server has no command that moves entries, so a crash can lose some.
    UnsafeServer,
    /// Entries of an importer that died are imported.
    Reclaimed(u64),
    /// Other importers of the same list.
    OtherImporters(u64),
}

/// Fails if rejected lines cannot be written.
pub fn check_rejects(path: &Path) -> Result<(), ImportError> {
    rejects_file::check_is_file(path)?;
    rejects_file::check_writable(path)
}

/// Returns the default campaign: the name of the list and a short hash of the text.
pub fn default_campaign(list: &str, options: &MessageOptions) -> Result<String, ImportError> {
    let text = options.text.load(options.smart)?;
    Ok(campaign_name(
        list,
        text.as_ref().map(|text| text.source.as_str()),
    ))
}

/// Returns `unique` of the campaign; by default every entry is a message.
pub fn unique_in(asked: Option<&Unique>, campaign: &Campaign) -> Result<Unique, ImportError> {
    Unique::of_campaign(asked, Unique::None, campaign)
}

impl Event {
    fn progress(summary: &Summary) -> Self {
        Self::Progress {
            rows: summary.rows,
            rejected: summary.rejected,
        }
    }
}
