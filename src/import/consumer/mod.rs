//! Imports what other programs write while they write it: entries of a Redis list, or JSON lines on standard
//! input. An entry that is not a valid message is kept with the reason, and does not delay the others.

mod consume;
mod jsonl;
mod message;
mod redis;

use std::path::Path;

use serde::Deserialize;
use smsq_message::secret::Secret;
use smsq_store::Campaign;

pub use self::consume::consume;
pub use self::jsonl::{STDIN, follow};
pub use self::redis::RedisList;
use super::dedupe::Unique;
use super::error::ImportError;
use super::options::{Options, campaign_name};
use super::rejects_file;

/// Section `[redis]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// The password of the server, if the url has none.
    pub password: Secret<String>,
}

/// How entries are consumed.
pub struct ConsumeOptions {
    /// How entries become messages.
    pub messages: Options,
    /// Wait for more entries when none is left.
    pub follow: bool,
    /// Set to true to stop after the current batch.
    pub stop: tokio::sync::watch::Receiver<bool>,
}

/// What happens during consumption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The number of entries so far.
    Progress(u64),
    Status(String),
    Warning(String),
}

/// Fails if rejected lines cannot be written.
pub fn check_rejects(path: &Path) -> Result<(), ImportError> {
    rejects_file::check_is_file(path)?;
    rejects_file::check_writable(path)
}

/// Returns the default campaign: the name of the list and a short hash of the text.
pub fn default_campaign(list: &str, options: &Options) -> Result<String, ImportError> {
    let text = options.load_text()?;
    Ok(campaign_name(list, text.as_ref().map(|text| text.source())))
}

/// Maps an entry to a message, or returns why it is rejected.
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub fn fuzz_entry(
    options: Options,
    entry: &[u8],
) -> Result<smsq_message::sms::NewSms, super::error::Rejection> {
    let mut reader = message::MessageReader::new(options, Unique::Phone)
        .map_err(|error| super::error::Rejection::new("options", error.to_string()))?;
    reader.map(1, entry).map(|row| row.message)
}

/// `1 entry`, `12,345 entries`.
pub fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        _ => format!("{} entries", indicatif::HumanCount(count)),
    }
}

/// Returns `unique` of the campaign; by default every entry is a message.
pub fn unique_in(asked: Option<&Unique>, campaign: &Campaign) -> Result<Unique, ImportError> {
    Unique::of_campaign(asked, Unique::None, campaign)
}
