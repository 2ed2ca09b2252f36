//! Table `import`: the imported files, their last lines, and the counts of their rows.

use std::collections::BTreeSet;

use smsq_message::route::Division;
use smsq_message::sms::{NewSms, Timestamp};
use smsq_message::window::SendWindow;
use smsq_process::boxed;

use crate::campaigns::approvals::{self, ApprovalGate, ListApproval};
use crate::connection::prelude::*;
use crate::connection::{Connection, NewRows, QueryResult, transaction};
use crate::error::{StoreError, StoreErrorKind};
use crate::queue::results::settle;
use crate::tables::schema::{campaign, import};
use crate::{ImportStore, positive, signed};

/// The texts of an import, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportTexts<'a> {
    /// The text of all its messages, with placeholders.
    pub template: Option<&'a str>,
    /// The text of its first message, if there is no template.
    pub sample: Option<&'a str>,
    /// Accepted messages in each alphabet, since the last time.
    pub gsm7: u64,
    pub ucs2: u64,
}

/// The rows of a file that are queued in one transaction.
#[derive(Clone)]
pub struct ImportBatch {
    pub import_id: i64,
    pub campaign_id: i64,
    pub now: Timestamp,
    pub due_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// The campaign's window. If it differs by recipient, a message is due when the window of its recipient opens.
    pub window: Option<SendWindow>,
    /// The lanes of the campaign's senders; `None`: workers divide its messages.
    pub division: Option<Division>,
    pub approval: ImportApproval,
    pub rows: Vec<NewSms>,
    /// Rows of the file since the last batch, including rejected ones.
    pub row_count: u64,
    pub rejected: u64,
    /// The last line of the file that this batch covers.
    pub last_line: u64,
}

/// Whether messages wait for approval that an import adds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ImportApproval {
    /// They are a list, which waits at least until it is whole.
    OfList(ListApproval),
    /// They are added one by one, by this person: they wait only if the campaign is guarded.
    OneByOne(String),
}

impl ImportBatch {
    /// The lane in which all its messages wait for approval. `gate`: whether new messages of its campaign need it.
    pub(super) async fn held_in(
        &self,
        connection: &mut Connection,
        gate: ApprovalGate,
    ) -> QueryResult<Option<i32>> {
        let campaign_id = self.campaign_id;
        Ok(match &self.approval {
            ImportApproval::OfList(list) => {
                Some(approvals::lane_of_list(connection, campaign_id, list, self.now).await?)
            }
            ImportApproval::OneByOne(who) if gate.is_guarded() => {
                let (authors, reason) = (BTreeSet::from([who.clone()]), "messages were added");
                let lane = approvals::lane_of_others(connection, campaign_id, &authors, reason);
                Some(lane.await?)
            }
            ImportApproval::OneByOne(_) => None,
        })
    }

    /// The lane that a message to this phone waits in. Without a sender it waits for a worker, which fails it.
    pub(super) fn lane_of(&self, phone: &str) -> i32 {
        let division = self.division.as_ref();
        let divided = division.and_then(|division| division.lane_of(phone));
        divided.unwrap_or(0)
    }
}

impl ImportStore<'_> {
    /// The names of all imported files.
    #[boxed]
    pub async fn imported_files(&self) -> Result<Vec<String>, StoreError> {
        self.read(import::table.select(import::file).distinct()).await
    }

    /// Starts an import of the file with this name and hash; returns its id. `posted_by`: the name of the token with
    /// which its messages are posted or uploaded. Fails if the campaign was removed.
    #[boxed]
    pub async fn begin(
        &self,
        campaign_id: i64,
        file: &str,
        hash: &str,
        posted_by: Option<&str>,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let rows = [(
            import::campaign_id.eq(campaign_id),
            import::file.eq(file),
            import::hash.eq(hash),
            import::posted_by.eq(posted_by),
            import::created_at.eq(now),
        )];
        let begun = transaction!(self, |connection| async {
            connection.prepare_import().await?;
            // Its removal waits for this transaction, and finds the import.
            let campaign = [(0, campaign_id)];
            if settle::lock_campaigns(connection, &campaign, |_| true).await?.is_empty() {
                return QueryResult::Ok(None);
            }
            NewRows::of(import::table, &rows).insert(connection).await?;
            connection.last_id().await.map(Some)
        })?;
        begun.ok_or_else(|| {
            let reason = "the campaign was removed meanwhile: run the same command again";
            StoreError::new(self.location(), StoreErrorKind::Other, reason)
        })
    }

    /// Adds to the texts of an import; `None` changes nothing.
    #[boxed]
    pub async fn add_texts<'a>(
        &'a self,
        import_id: i64,
        note: ImportTexts<'a>,
    ) -> Result<(), StoreError> {
        self.write(diesel::update(import::table.find(import_id)).set((
            note.template.map(|text| import::template.eq(text)),
            note.sample.map(|text| import::sample.eq(text)),
            import::gsm7.eq(import::gsm7 + signed(note.gsm7)),
            import::ucs2.eq(import::ucs2 + signed(note.ucs2)),
        )))
        .await?;
        Ok(())
    }

    /// The uploads of a file with this hash and token that did not end: their ids, how many messages they have queued,
    /// and their last lines.
    #[boxed]
    pub async fn interrupted_uploads(
        &self,
        campaign_id: i64,
        hash: &str,
        posted_by: &str,
    ) -> Result<Vec<(i64, u64, u64)>, StoreError> {
        let found: Vec<(i64, i64, i64)> = self
            .read(
                import::table
                    .filter(import::campaign_id.eq(campaign_id))
                    .filter(import::hash.eq(hash))
                    .filter(import::posted_by.eq(posted_by))
                    .filter(import::finished_at.is_null())
                    .select((import::id, import::accepted, import::last_line)),
            )
            .await?;
        let count = |(id, accepted, line)| (id, positive(accepted), positive(line));
        Ok(found.into_iter().map(count).collect())
    }

    #[boxed]
    pub async fn finish(&self, import_id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.write(diesel::update(import::table.find(import_id)).set(import::finished_at.eq(now)))
            .await?;
        Ok(())
    }

    /// Ends the import with this hash, so that it can queue nothing more; returns its last line, or `None` if there
    /// is no such import.
    #[boxed]
    pub async fn end(&self, hash: &str, now: Timestamp) -> Result<Option<u64>, StoreError> {
        self.write(
            diesel::update(
                import::table.filter(import::hash.eq(hash)).filter(import::finished_at.is_null()),
            )
            .set(import::finished_at.eq(now)),
        )
        .await?;
        let last_line: Option<i64> = self
            .read_first(import::table.filter(import::hash.eq(hash)).select(import::last_line))
            .optional()
            .await?;
        Ok(last_line.map(positive))
    }

    /// The campaign that a file with this hash was last imported into.
    #[boxed]
    pub async fn campaign_of_file(&self, hash: &str) -> Result<Option<i64>, StoreError> {
        self.read_first(
            import::table
                .filter(import::hash.eq(hash))
                .order(import::id.desc())
                .select(import::campaign_id),
        )
        .optional()
        .await
    }

    #[boxed]
    pub async fn is_ended(&self, import_id: i64) -> Result<bool, StoreError> {
        let open: Vec<i64> = self
            .read(
                import::table
                    .filter(import::id.eq(import_id))
                    .filter(import::finished_at.is_null())
                    .select(import::id),
            )
            .await?;
        Ok(open.is_empty())
    }

    /// Another campaign into which a file with this hash was imported since an instant, and when.
    #[boxed]
    pub async fn imported_elsewhere(
        &self,
        hash: &str,
        name: &str,
        since: Timestamp,
    ) -> Result<Option<(String, Timestamp)>, StoreError> {
        self.read_first(
            import::table
                .inner_join(campaign::table.on(campaign::id.eq(import::campaign_id)))
                .filter(import::hash.eq(hash))
                .filter(import::created_at.ge(since))
                .filter(import::accepted.gt(0))
                .filter(campaign::name.ne(name))
                .order(import::id.desc())
                .select((campaign::name, import::created_at)),
        )
        .optional()
        .await
    }
}
