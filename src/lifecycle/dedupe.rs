//! Decides which rows of an import are new, duplicate, suppressed, dead or unchanged.

use std::collections::{HashMap, HashSet};

use smsq_message::sms::NewSms;

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
    /// It is new, but its number does not exist: why no message is queued.
    Dead(String),
    /// A row that names a failed message, or one that did not arrive, and has its phone and text.
    Unchanged {
        was_sent: bool,
    },
}

/// A message that a row of a failures file names.
pub struct FailedOrigin {
    pub campaign_id: i64,
    pub import_id: Option<i64>,
    pub phone: String,
    /// `None` if it was sent, unless it was not delivered.
    pub content: Option<String>,
    /// `None` if it has no key; the phone if it was sent.
    pub dedupe_key: Option<String>,
    /// Otherwise it is queued again or sent.
    pub has_failed: bool,
    /// It was sent, and did not arrive: a row that replaces it is a message of its own.
    pub is_undelivered: bool,
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
pub struct ExistingRows {
    pub keys: HashSet<String>,
    pub suppressed: HashSet<String>,
    /// Phones whose number does not exist, and the reason.
    pub dead: HashMap<String, String>,
    /// The messages that rows of the batch name.
    pub origins: HashMap<i64, FailedOrigin>,
}

/// Decides for each row; of rows with equal keys only the first is new.
pub fn decide(campaign_id: i64, rows: &[&NewSms], existing: &ExistingRows) -> Vec<Decision> {
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
            Decision::New { with_key: true, replaces: None }
        } else {
            Decision::Duplicate
        };
        let dead = existing.dead.get(&row.phone);
        let decision = match (decision, dead) {
            (Decision::New { .. }, Some(reason)) => Decision::Dead(reason.clone()),
            (decision, _) => decision,
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
        return Some(Decision::Unchanged { was_sent: origin.is_undelivered });
    }
    let same_key =
        origin.campaign_id == campaign_id && origin.dedupe_key.as_ref() == Some(&row.dedupe_key);
    if !same_phone && !same_content && !same_key {
        // The file is from another database, in which the id belongs to another message.
        return None;
    }
    // The old key is kept, so that another import of the original list does not add the old row.
    if same_key || is_new {
        Some(Decision::New { with_key: !same_key, replaces: Some(id) })
    } else {
        Some(Decision::Duplicate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAMPAIGN: i64 = 1;

    /// A row whose key is its phone.
    fn row(phone: &str, content: &str, replaces: Option<i64>) -> NewSms {
        NewSms {
            phone: phone.to_owned(),
            content: content.to_owned(),
            dedupe_key: phone.to_owned(),
            replaces,
            ..NewSms::default()
        }
    }

    /// The failed message 7, to phone `a`.
    fn origin() -> FailedOrigin {
        FailedOrigin {
            campaign_id: CAMPAIGN,
            import_id: None,
            phone: "a".to_owned(),
            content: Some("old".to_owned()),
            dedupe_key: Some("a".to_owned()),
            has_failed: true,
            is_undelivered: false,
        }
    }

    fn with_origin(origin: FailedOrigin) -> ExistingRows {
        ExistingRows {
            keys: HashSet::from(["a".to_owned()]),
            origins: HashMap::from([(7, origin)]),
            ..ExistingRows::default()
        }
    }

    fn decide_all(rows: &[NewSms], existing: &ExistingRows) -> Vec<Decision> {
        let rows: Vec<&NewSms> = rows.iter().collect();
        decide(CAMPAIGN, &rows, existing)
    }

    fn decide_one(row: NewSms, existing: &ExistingRows) -> Decision {
        decide_all(&[row], existing).remove(0)
    }

    const NEW: Decision = Decision::New { with_key: true, replaces: None };

    fn replaces(with_key: bool) -> Decision {
        Decision::New { with_key, replaces: Some(7) }
    }

    #[test]
    fn only_the_first_row_of_a_key_is_new() {
        let existing = ExistingRows {
            keys: HashSet::from(["b".to_owned()]),
            suppressed: HashSet::from(["c".to_owned()]),
            ..ExistingRows::default()
        };
        let rows = ["a", "b", "c", "a", "d"].map(|phone| row(phone, "text", None));
        let expected = [NEW, Decision::Duplicate, Decision::Suppressed, Decision::Duplicate, NEW];
        assert_eq!(decide_all(&rows, &existing), expected);
    }

    #[test]
    fn dead_number_is_skipped_where_its_row_would_be_new() {
        let existing = ExistingRows {
            keys: HashSet::from(["b".to_owned()]),
            suppressed: HashSet::from(["c".to_owned()]),
            dead: ["a", "b", "c"].map(|phone| (phone.to_owned(), "why".to_owned())).into(),
            ..ExistingRows::default()
        };
        let rows = ["a", "b", "c", "a", "d"].map(|phone| row(phone, "text", None));
        let dead = || Decision::Dead("why".to_owned());
        let expected = [dead(), Decision::Duplicate, Decision::Suppressed, dead(), NEW];
        assert_eq!(decide_all(&rows, &existing), expected);
        let existing = ExistingRows { dead: existing.dead, ..with_origin(origin()) };
        let unchanged = Decision::Unchanged { was_sent: false };
        assert_eq!(decide_one(row("a", "old", Some(7)), &existing), unchanged);
        assert_eq!(decide_one(row("a", "new", Some(7)), &existing), dead());
    }

    #[test]
    fn row_replaces_a_failed_message_that_it_shares_something_with() {
        let existing = with_origin(origin());
        let decided = |phone, content| decide_one(row(phone, content, Some(7)), &existing);
        let unchanged = Decision::Unchanged { was_sent: false };
        assert_eq!(decided("a", "old"), unchanged);
        assert_eq!(decided("a", "new"), replaces(false));
        assert_eq!(decided("b", "old"), replaces(true));
        // It shares nothing, so the id is from another database.
        assert_eq!(decided("b", "new"), NEW);
        let by_key = NewSms { dedupe_key: "a".to_owned(), ..row("b", "new", Some(7)) };
        assert_eq!(decide_one(by_key, &existing), replaces(false));
        assert_eq!(decide_one(row("a", "old", Some(8)), &existing), Decision::Duplicate);
    }

    #[test]
    fn message_of_another_campaign_keeps_its_key() {
        let elsewhere = FailedOrigin { campaign_id: 2, ..origin() };
        let mut existing = with_origin(elsewhere);
        let changed = row("a", "new", Some(7));
        assert_eq!(decide_one(changed.clone(), &existing), Decision::Duplicate);
        existing.keys.clear();
        assert_eq!(decide_one(changed, &existing), replaces(true));
    }

    #[test]
    fn undelivered_message_is_unchanged_as_sent() {
        let undelivered = FailedOrigin { is_undelivered: true, ..origin() };
        let decided = decide_one(row("a", "old", Some(7)), &with_origin(undelivered));
        assert_eq!(decided, Decision::Unchanged { was_sent: true });
    }

    #[test]
    fn failed_message_is_replaced_once() {
        let rows = [row("a", "new", Some(7)), row("a", "newer", Some(7))];
        let decided = decide_all(&rows, &with_origin(origin()));
        assert_eq!(decided, [replaces(false), Decision::Duplicate]);
    }

    #[test]
    fn message_retried_meanwhile_is_not_replaced() {
        let queued = || FailedOrigin { has_failed: false, ..origin() };
        let mut existing = with_origin(queued());
        existing.keys.clear();
        let decided = |row| decide_one(row, &existing);
        assert_eq!(decided(row("a", "new", Some(7))), Decision::Duplicate);
        assert_eq!(decided(row("b", "old", Some(7))), Decision::Duplicate);
        let by_key = NewSms { dedupe_key: "a".to_owned(), ..row("b", "new", Some(7)) };
        assert_eq!(decided(by_key), Decision::Duplicate);
        assert_eq!(decided(row("b", "new", Some(7))), NEW);
    }
}
