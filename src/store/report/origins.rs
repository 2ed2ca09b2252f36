//! The messages that the rows of a failures file name, in all tables.

use std::collections::{BTreeMap, HashMap, HashSet};

use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use diesel_async::RunQueryDsl;

use crate::sms::{Class, NewSms};
use crate::store::column_types::LossyText;
use crate::store::connection::{ROWS, reading};
use crate::store::schema::{campaign, import, sms, sms_failed, sms_sent, suppression};
use crate::store::{Store, StoreError};

/// A message that a row of a failures file names.
#[derive(Clone, PartialEq, Eq)]
pub struct Origin {
    pub campaign_id: i64,
    pub phone: String,
    /// `None` if it was sent: `sms_sent` has no texts.
    pub content: Option<String>,
    /// `None` if it has no key or was sent.
    pub dedupe_key: Option<String>,
    /// Otherwise it is queued again or sent.
    pub has_failed: bool,
}

impl Origin {
    /// Whether the row has the phone, the text or the key of the message. If not, the message belongs to another
    /// database and has the same id by chance.
    pub fn shares_with(&self, row: &NewSms) -> bool {
        self.phone == row.phone
            || self.content.as_ref() == Some(&row.content)
            || self.dedupe_key.as_ref() == Some(&row.dedupe_key)
    }
}

impl Store {
    /// The messages with these ids.
    pub async fn origins(&self, ids: &[i64]) -> Result<HashMap<i64, Origin>, StoreError> {
        /// Id, campaign, phone, content, dedupe key and class of failure.
        type Row = (
            i64,
            i64,
            LossyText,
            Option<LossyText>,
            Option<LossyText>,
            Option<String>,
        );
        let null = || None::<String>.into_sql::<Nullable<Text>>();
        macro_rules! rows {
            ($table:ident, $ids:expr, $content:expr, $key:expr, $class:expr) => {{
                let rows: Vec<Row> = reading!(self, |conn| $table::table
                    .filter($table::id.eq_any($ids))
                    .select((
                        $table::id,
                        $table::campaign_id,
                        $table::phone,
                        $content,
                        $key,
                        $class,
                    ))
                    .load(conn))?;
                rows
            }};
        }
        let mut origins = HashMap::new();
        for ids in ids.chunks(ROWS) {
            // In the order in which a message moves, so that one that moves meanwhile is found.
            let (content, key) = (sms_failed::content.nullable(), sms_failed::dedupe_key);
            let failed = rows!(sms_failed, ids, content, key, sms_failed::class.nullable());
            let queued = rows!(sms, ids, sms::content.nullable(), sms::dedupe_key, null());
            let sent = rows!(sms_sent, ids, null(), null(), null());
            for (id, campaign_id, phone, content, key, class) in
                failed.into_iter().chain(queued).chain(sent)
            {
                // A cancelled message has lost its key, which another message may have now.
                let is_cancelled = class.as_deref() == Some(Class::Cancelled.as_str());
                let origin = Origin {
                    campaign_id,
                    phone: phone.text,
                    content: content.map(String::from),
                    dedupe_key: key.filter(|_| !is_cancelled).map(String::from),
                    has_failed: class.is_some(),
                };
                origins.insert(id, origin);
            }
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

    /// Those of the phones that are on the suppression list.
    pub async fn suppressed_among(&self, phones: &[&str]) -> Result<HashSet<String>, StoreError> {
        let mut found = HashSet::new();
        for phones in phones.chunks(ROWS) {
            let suppressed: Vec<String> = reading!(self, |conn| suppression::table
                .filter(suppression::phone.eq_any(phones))
                .select(suppression::phone)
                .load(conn))?;
            found.extend(suppressed);
        }
        Ok(found)
    }
}
