//! The messages that the rows of a failures file come from, looked up by id in all tables.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::sms::{Class, NewSms};
use crate::store::connection::reading;
use crate::store::lossy_text::LossyText;
use crate::store::schema::{campaign, import, sms, sms_failed, sms_sent, suppression};
use crate::store::{Store, StoreError};

/// The most ids or phones of one query.
const CHUNK: usize = 1_000;

/// A message that a row of a failures file names.
#[derive(Clone, PartialEq, Eq)]
pub struct Origin {
    pub campaign_id: i64,
    pub phone: String,
    /// `None` where it was sent: `sms_sent` has no texts.
    pub content: Option<String>,
    /// `None` where it has none, or was sent.
    pub dedupe_key: Option<String>,
    /// It failed; anything else is queued again or sent.
    pub is_dead: bool,
}

/// Phones and texts are personal data: neither is printed.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin")
            .field("campaign_id", &self.campaign_id)
            .field("phone", &crate::phone::mask(&self.phone))
            .field("is_dead", &self.is_dead)
            .finish_non_exhaustive()
    }
}

impl Origin {
    /// Whether the row shares anything with the message. A message with the same id that shares nothing belongs to
    /// another database.
    pub fn shares_with(&self, row: &NewSms) -> bool {
        self.phone == row.phone
            || self.content.as_ref() == Some(&row.content)
            || self.dedupe_key.as_ref() == Some(&row.dedupe_key)
    }
}

type FailedRow = (i64, i64, LossyText, LossyText, String, Option<LossyText>);
type QueuedRow = (i64, i64, LossyText, LossyText, Option<LossyText>);

impl Store {
    /// The messages of these ids, as far as this database knows them.
    pub async fn origins(&self, ids: &[i64]) -> Result<HashMap<i64, Origin>, StoreError> {
        let mut origins = HashMap::new();
        for ids in ids.chunks(CHUNK) {
            // In the order in which a message moves, so that one that is retried or sent meanwhile is found.
            let failed: Vec<FailedRow> = reading!(self, |conn| sms_failed::table
                .filter(sms_failed::id.eq_any(ids))
                .select((
                    sms_failed::id,
                    sms_failed::campaign_id,
                    sms_failed::phone,
                    sms_failed::content,
                    sms_failed::class,
                    sms_failed::dedupe_key,
                ))
                .load(conn))?;
            let queued: Vec<QueuedRow> = reading!(self, |conn| sms::table
                .filter(sms::id.eq_any(ids))
                .select((
                    sms::id,
                    sms::campaign_id,
                    sms::phone,
                    sms::content,
                    sms::dedupe_key
                ))
                .load(conn))?;
            let sent: Vec<(i64, i64, LossyText)> = reading!(self, |conn| sms_sent::table
                .filter(sms_sent::id.eq_any(ids))
                .select((sms_sent::id, sms_sent::campaign_id, sms_sent::phone))
                .load(conn))?;
            origins.extend(failed.into_iter().map(from_failed));
            origins.extend(queued.into_iter().map(from_queued));
            origins.extend(sent.into_iter().map(from_sent));
        }
        Ok(origins)
    }

    /// The campaign that a file with this hash was last imported into.
    pub async fn campaign_of_file(&self, hash: &str) -> Result<Option<i64>, StoreError> {
        let last: Vec<i64> = reading!(self, |conn| import::table
            .filter(import::hash.eq(hash))
            .order(import::id.desc())
            .select(import::campaign_id)
            .limit(1)
            .load(conn))?;
        Ok(last.into_iter().next())
    }

    /// The names of campaigns, by id.
    pub async fn campaign_names(&self, ids: &[i64]) -> Result<BTreeMap<i64, String>, StoreError> {
        let names: Vec<(i64, String)> = reading!(self, |conn| campaign::table
            .filter(campaign::id.eq_any(ids))
            .select((campaign::id, campaign::name))
            .load(conn))?;
        Ok(names.into_iter().collect())
    }

    /// Which of these phones are on the suppression list.
    pub async fn suppressed_among(&self, phones: &[&str]) -> Result<HashSet<String>, StoreError> {
        let mut found = HashSet::new();
        for phones in phones.chunks(CHUNK) {
            let suppressed: Vec<String> = reading!(self, |conn| suppression::table
                .filter(suppression::phone.eq_any(phones))
                .select(suppression::phone)
                .load(conn))?;
            found.extend(suppressed);
        }
        Ok(found)
    }
}

fn from_failed((id, campaign_id, phone, content, class, key): FailedRow) -> (i64, Origin) {
    let origin = Origin {
        campaign_id,
        phone: phone.text,
        content: Some(content.text),
        // A cancelled message has lost its key, which another message may have now.
        dedupe_key: key
            .filter(|_| class != Class::Cancelled.as_str())
            .map(String::from),
        is_dead: true,
    };
    (id, origin)
}

fn from_queued((id, campaign_id, phone, content, dedupe_key): QueuedRow) -> (i64, Origin) {
    let origin = Origin {
        campaign_id,
        phone: phone.text,
        content: Some(content.text),
        dedupe_key: dedupe_key.map(String::from),
        is_dead: false,
    };
    (id, origin)
}

fn from_sent((id, campaign_id, phone): (i64, i64, LossyText)) -> (i64, Origin) {
    let origin = Origin {
        campaign_id,
        phone: phone.text,
        content: None,
        dedupe_key: None,
        is_dead: false,
    };
    (id, origin)
}
