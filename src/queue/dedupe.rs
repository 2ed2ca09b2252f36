//! Decides which rows of an import are new, duplicate, suppressed or unchanged.

use std::collections::{HashMap, HashSet};

use crate::sms::NewSms;

/// What to do with one row of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    New {
        /// Its key must be added to the campaign.
        with_key: bool,
        /// The failed message that it replaces.
        replaces: Option<i64>,
    },
    Duplicate,
    Suppressed,
    /// A row that names a failed message, or one that did not arrive, and has its phone and text.
    Unchanged {
        was_sent: bool,
    },
}

/// A message that a row of a failures file names.
pub struct FailedOrigin {
    pub campaign_id: i64,
    pub(crate) import_id: Option<i64>,
    pub(crate) phone: String,
    /// `None` if it was sent, unless it was not delivered.
    pub(crate) content: Option<String>,
    /// `None` if it has no key; the phone if it was sent.
    pub(crate) dedupe_key: Option<String>,
    /// Otherwise it is queued again or sent.
    pub(crate) has_failed: bool,
    /// It was sent, and did not arrive: a row that replaces it is a message of its own.
    pub(crate) is_undelivered: bool,
}

impl FailedOrigin {
    /// Whether the row has the phone, the text or the key of the message. If not, the message belongs to another
    /// database and has the same id by chance.
    pub fn shares_with(&self, row: &NewSms) -> bool {
        self.phone == row.phone
            || self.content.as_ref() == Some(&row.content)
            || self.dedupe_key.as_ref() == Some(&row.dedupe_key)
    }
}

/// The rows of the database that a batch concerns.
#[derive(Default)]
pub(crate) struct ExistingRows {
    pub(crate) keys: HashSet<String>,
    pub(crate) suppressed: HashSet<String>,
    /// The messages that rows of the batch name.
    pub(crate) origins: HashMap<i64, FailedOrigin>,
}

/// Decides for each row; of rows with equal keys only the first is new.
pub(crate) fn decide(campaign_id: i64, rows: &[&NewSms], existing: &ExistingRows) -> Vec<Decision> {
    let mut taken: HashSet<&str> = HashSet::new();
    let mut replaced: HashSet<i64> = HashSet::new();
    let mut decisions = Vec::with_capacity(rows.len());
    for row in rows {
        let is_new = |taken: &HashSet<&str>| {
            !existing.keys.contains(&row.dedupe_key) && !taken.contains(row.dedupe_key.as_str())
        };
        let decision = if existing.suppressed.contains(&row.phone) {
            Decision::Suppressed
        } else if let Some(decision) = row
            .replaces
            .and_then(|id| replacing(campaign_id, existing, row, id, &replaced, is_new(&taken)))
        {
            decision
        } else if is_new(&taken) {
            Decision::New {
                with_key: true,
                replaces: None,
            }
        } else {
            Decision::Duplicate
        };
        if let Decision::New { with_key, replaces } = &decision {
            if *with_key {
                taken.insert(&row.dedupe_key);
            }
            replaced.extend(replaces);
        }
        decisions.push(decision);
    }
    decisions
}

/// Decides for a row that names a message; `None` if this database has no such message.
fn replacing(
    campaign_id: i64,
    existing: &ExistingRows,
    row: &NewSms,
    id: i64,
    replaced: &HashSet<i64>,
    is_new: bool,
) -> Option<Decision> {
    let origin = existing.origins.get(&id)?;
    if !origin.has_failed {
        // It was retried meanwhile.
        return origin.shares_with(row).then_some(Decision::Duplicate);
    }
    if replaced.contains(&id) {
        return None;
    }
    let same_phone = origin.phone == row.phone;
    let same_content = origin.content.as_ref() == Some(&row.content);
    if same_phone && same_content {
        return Some(Decision::Unchanged {
            was_sent: origin.is_undelivered,
        });
    }
    let same_key =
        origin.campaign_id == campaign_id && origin.dedupe_key.as_ref() == Some(&row.dedupe_key);
    if !same_phone && !same_content && !same_key {
        // The file is from another database, in which the id belongs to another message.
        return None;
    }
    // The old key is kept, so that another import of the original list does not add the old row.
    if same_key || is_new {
        Some(Decision::New {
            with_key: !same_key,
            replaces: Some(id),
        })
    } else {
        Some(Decision::Duplicate)
    }
}
