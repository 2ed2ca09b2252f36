//! What other programs push becomes messages while they push it: entries of a Redis list, or lines of
//! standard input. An entry that is no message is set aside with its reason, and holds up no other.

mod consume;
mod entry;
mod error;
mod lines;
mod redis;

use std::path::Path;

use secrecy::SecretString;
use serde::Deserialize;

pub use self::consume::consume;
pub use self::entry::EntryOptions;
pub use self::error::ConsumerError;
pub use self::lines::{Lines, follow};
pub use self::redis::RedisList;
use super::error::ImportError;
use super::importer::Importer;
use super::keys::Unique;
use super::plan::campaign_name;
use super::rejects;
use crate::store::Campaign;

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
pub enum Event {
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

fn progress(importer: &Importer<'_>) -> Event {
    Event::Progress {
        rows: importer.summary.rows,
        rejected: importer.summary.rejected,
    }
}
