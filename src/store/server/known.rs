//! What an import's batch meets in the database, and what becomes of each of its rows: read first, decided
//! without any more asking.

use std::collections::{BTreeSet, HashMap, HashSet};

use diesel::QueryResult;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::insert::ROWS;
use super::link::{Link, on};
use crate::sms::{Class, NewSms};
use crate::store::Batch;
use crate::store::foreign::LossyText;
use crate::store::schema::{sms, sms_failed, sms_key, sms_sent, suppression};

/// What became of one row of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Enqueuing {
    New {
        /// Its key is not the campaign's yet.
        with_key: bool,
        /// The dead letter that it takes the place of.
        replaces: Option<i64>,
    },
    Duplicate,
    Suppressed,
    Unchanged,
}

/// A dead letter that a row may replace.
#[derive(Queryable, Selectable)]
#[diesel(table_name = sms_failed)]
pub(super) struct Letter {
    pub(super) id: i64,
    pub(super) campaign_id: i64,
    pub(super) import_id: Option<i64>,
    #[diesel(deserialize_as = LossyText)]
    pub(super) phone: String,
    #[diesel(deserialize_as = LossyText)]
    pub(super) content: String,
    pub(super) class: String,
    pub(super) dedupe_key: Option<LossyText>,
}

/// What the database knows of a batch's rows.
#[derive(Default)]
pub(super) struct Known {
    pub(super) keys: HashSet<String>,
    pub(super) suppressed: HashSet<String>,
    pub(super) letters: HashMap<i64, Letter>,
    /// Phone, text and key of queued messages that rows name.
    pub(super) queued: HashMap<i64, (String, String, Option<String>)>,
    pub(super) sent: HashMap<i64, String>,
}

impl Known {
    pub(super) async fn read(link: &mut Link, batch: &Batch) -> QueryResult<Self> {
        let mut known = Self::default();
        let is_suppressing = is_suppressing(link).await?;
        for rows in batch.rows.chunks(ROWS) {
            let keys: Vec<&str> = rows.iter().map(|row| row.dedupe_key.as_str()).collect();
            let found: Vec<String> = on!(link, |conn| sms_key::table
                .filter(sms_key::campaign_id.eq(batch.campaign_id))
                .filter(sms_key::dedupe_key.eq_any(&keys))
                .select(sms_key::dedupe_key)
                .load(conn))?;
            known.keys.extend(found);
            if is_suppressing {
                let phones: Vec<&str> = rows.iter().map(|row| row.phone.as_str()).collect();
                let found: Vec<String> = on!(link, |conn| suppression::table
                    .filter(suppression::phone.eq_any(&phones))
                    .select(suppression::phone)
                    .load(conn))?;
                known.suppressed.extend(found);
            }
            let named: BTreeSet<i64> = rows.iter().filter_map(|row| row.replaces).collect();
            if !named.is_empty() {
                known.read_named(link, &named).await?;
            }
        }
        Ok(known)
    }

    async fn read_named(&mut self, link: &mut Link, ids: &BTreeSet<i64>) -> QueryResult<()> {
        let letters: Vec<Letter> = on!(link, |conn| sms_failed::table
            .filter(sms_failed::id.eq_any(ids))
            .order(sms_failed::id)
            .select(Letter::as_select())
            .for_update()
            .load(conn))?;
        let queued: Vec<(i64, LossyText, LossyText, Option<LossyText>)> =
            on!(link, |conn| sms::table
                .filter(sms::id.eq_any(ids))
                .select((sms::id, sms::phone, sms::content, sms::dedupe_key))
                .load(conn))?;
        let sent: Vec<(i64, LossyText)> = on!(link, |conn| sms_sent::table
            .filter(sms_sent::id.eq_any(ids))
            .select((sms_sent::id, sms_sent::phone))
            .load(conn))?;
        let letters = letters.into_iter().map(|letter| (letter.id, letter));
        self.letters.extend(letters);
        let queued = queued.into_iter().map(|(id, phone, content, key)| {
            (id, (phone.text, content.text, key.map(String::from)))
        });
        self.queued.extend(queued);
        let sent = sent.into_iter().map(|(id, phone)| (id, phone.text));
        self.sent.extend(sent);
        Ok(())
    }

    /// Whether the message that the row names was retried meanwhile; one of the same id that shares
    /// nothing with the row is another database's.
    fn stands_elsewhere(&self, row: &NewSms, id: i64) -> bool {
        let queued = self.queued.get(&id).is_some_and(|(phone, content, key)| {
            *phone == row.phone || *content == row.content || key.as_ref() == Some(&row.dedupe_key)
        });
        queued || self.sent.get(&id).is_some_and(|phone| *phone == row.phone)
    }
}

/// Whether the suppression list has a phone. No `EXISTS`: MariaDB may take one that is killed for false.
pub(super) async fn is_suppressing(link: &mut Link) -> QueryResult<bool> {
    let first: Vec<String> = on!(link, |conn| suppression::table
        .limit(1)
        .select(suppression::phone)
        .load(conn))?;
    Ok(!first.is_empty())
}

/// What becomes of each row; of equal keys the first row of the file has it.
pub(super) fn decide(batch: &Batch, known: &Known) -> Vec<Enqueuing> {
    let mut taken: HashSet<&str> = HashSet::new();
    let mut replaced: HashSet<i64> = HashSet::new();
    let mut fates = Vec::with_capacity(batch.rows.len());
    for row in &batch.rows {
        let is_new = |taken: &HashSet<&str>| {
            !known.keys.contains(&row.dedupe_key) && !taken.contains(row.dedupe_key.as_str())
        };
        let transition = if known.suppressed.contains(&row.phone) {
            Enqueuing::Suppressed
        } else if let Some(transition) = row
            .replaces
            .and_then(|id| replacing(batch, known, row, id, &replaced, is_new(&taken)))
        {
            transition
        } else if is_new(&taken) {
            Enqueuing::New {
                with_key: true,
                replaces: None,
            }
        } else {
            Enqueuing::Duplicate
        };
        if let Enqueuing::New { with_key, replaces } = &transition {
            if *with_key {
                taken.insert(&row.dedupe_key);
            }
            replaced.extend(replaces);
        }
        fates.push(transition);
    }
    fates
}

/// Handles a row that names the message it comes from; `None` when there is no such message.
fn replacing(
    batch: &Batch,
    known: &Known,
    row: &NewSms,
    id: i64,
    replaced: &HashSet<i64>,
    is_new: bool,
) -> Option<Enqueuing> {
    let letter = known.letters.get(&id).filter(|_| !replaced.contains(&id));
    let Some(letter) = letter else {
        return known
            .stands_elsewhere(row, id)
            .then_some(Enqueuing::Duplicate);
    };
    if letter.phone == row.phone && letter.content == row.content {
        return Some(Enqueuing::Unchanged);
    }
    // A cancelled message has given up its key; who has it now is somebody else.
    let key = letter.dedupe_key.as_ref().map(|key| &key.text);
    let key = key.filter(|_| letter.class != Class::Cancelled.as_str());
    let same_key = letter.campaign_id == batch.campaign_id && key == Some(&row.dedupe_key);
    if letter.phone != row.phone && letter.content != row.content && !same_key {
        // The file is of another database, where the id was somebody else's.
        return None;
    }
    // The old key stays: the list that the letter came from, imported again, must not bring it back.
    if same_key || is_new {
        Some(Enqueuing::New {
            with_key: !same_key,
            replaces: Some(id),
        })
    } else {
        Some(Enqueuing::Duplicate)
    }
}
