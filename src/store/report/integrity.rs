//! Checks that no message is lost: compares what each import accepted with the tables.

use std::collections::{BTreeMap, HashSet};

use diesel::dsl::{count_star, exists, not};
use diesel::sql_types::Integer;
use smsq_message::sms::State;
use smsq_process::boxed;

use super::all_purged;
use crate::connection::prelude::*;
use crate::error::StoreError;
use crate::queue::workers::Worker;
use crate::tables::campaign_filter::CampaignFilter;
use crate::tables::schema::{campaign, import, purged, sms, sms_failed, sms_sent};
use crate::tables::values::PLAIN;
use crate::{ReportStore, positive};

/// How many messages one import accepted, and how many of them the tables have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportCount {
    pub id: i64,
    pub campaign_id: i64,
    pub file: String,
    /// Accepted messages without those that a later import replaced.
    pub expected: u64,
    /// With the purged ones.
    pub found: u64,
    /// It was read to its end, or a later import of the same list into the same campaign was.
    pub finished: bool,
}

/// The result of comparing tables and imports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntegrityCheck {
    pub imports: Vec<ImportCount>,
    /// Messages that another program inserted.
    pub plain: u64,
    /// Messages of an import that is not in table `import`.
    pub without_import: u64,
    /// The number of messages by `campaign_id`, of campaigns that are not in table `campaign`. They are never sent.
    pub without_campaign: Vec<(i64, u64)>,
}

impl IntegrityCheck {
    /// Whether no message is lost and none is counted twice.
    pub fn is_sound(&self) -> bool {
        let is_complete = |import: &ImportCount| import.expected == import.found;
        self.without_import == 0
            && self.without_campaign.is_empty()
            && self.imports.iter().all(is_complete)
    }
}

/// What a row of the counts means.
const EXPECTED: i32 = 0;
const FOUND: i32 = 1;
const BY_CAMPAIGN: i32 = 2;

/// Counts the rows of a table by one of its columns.
macro_rules! counted {
    ($table:ident, $by:expr, $meaning:expr) => {
        $table::table.group_by($by).select((
            $by.nullable(),
            $meaning.into_sql::<Integer>(),
            count_star(),
        ))
    };
}

impl ReportStore<'_> {
    /// Compares the tables with the imports. Reads all rows, so it is slow for millions of messages.
    #[boxed]
    pub async fn check_counts(&self) -> Result<IntegrityCheck, StoreError> {
        // In one statement, because workers may be moving messages.
        let counts: Vec<(Option<i64>, i32, i64)> = self
            .read(
                import::table
                    .select((
                        import::id.nullable(),
                        EXPECTED.into_sql::<Integer>(),
                        import::accepted - import::replaced,
                    ))
                    .union_all(counted!(sms, sms::import_id, FOUND))
                    .union_all(counted!(sms_sent, sms_sent::import_id, FOUND))
                    .union_all(counted!(sms_failed, sms_failed::import_id, FOUND))
                    .union_all(purged::table.select((
                        purged::import_id.nullable(),
                        FOUND.into_sql::<Integer>(),
                        all_purged!(),
                    )))
                    .union_all(counted!(sms, sms::campaign_id, BY_CAMPAIGN))
                    .union_all(counted!(sms_sent, sms_sent::campaign_id, BY_CAMPAIGN))
                    .union_all(counted!(sms_failed, sms_failed::campaign_id, BY_CAMPAIGN)),
            )
            .await?;
        // Rows of these tables are never deleted.
        let imports: Vec<ImportRow> =
            self.read(import::table.order(import::id).select(ImportRow::as_select())).await?;
        let campaigns = self.campaign_ids().await?;
        Ok(compare(counts, imports, &campaigns.into_iter().collect()))
    }

    /// Counts queued messages of campaigns that do not exist, by `campaign_id`. Reads an index once for each campaign
    /// that has messages.
    #[boxed]
    pub async fn without_campaign(&self) -> Result<Vec<(i64, u64)>, StoreError> {
        let campaigns: HashSet<i64> = self.campaign_ids().await?.into_iter().collect();
        let mut found = Vec::new();
        let mut last = i64::MIN;
        loop {
            let next: Option<i64> = self
                .read_first(
                    sms::table
                        .filter(sms::campaign_id.gt(last))
                        .select(diesel::dsl::min(sms::campaign_id)),
                )
                .await?;
            let Some(id) = next else {
                return Ok(found);
            };
            last = id;
            if !campaigns.contains(&id) {
                // It may have been added since: a campaign is there before its messages.
                let is_there = exists(campaign::table.filter(campaign::id.eq(id)));
                let of_campaign = sms::table.filter(sms::campaign_id.eq(id));
                let count: i64 = self.read_one(of_campaign.filter(not(is_there)).count()).await?;
                if count > 0 {
                    found.push((id, positive(count)));
                }
            }
        }
    }

    /// All workers, oldest first, and how many messages each has claimed and not settled.
    #[boxed]
    pub async fn worker_loads(&self) -> Result<Vec<(Worker, u64)>, StoreError> {
        let workers = self.workers().all().await?;
        let sending: Vec<(Option<i64>, i64)> = self
            .read(
                sms::table
                    .filter(CampaignFilter::All.on(sms::campaign_id))
                    .filter(sms::state.eq(State::Sending.code()))
                    .group_by(sms::worker_id)
                    .select((sms::worker_id, count_star())),
            )
            .await?;
        let sending: BTreeMap<Option<i64>, i64> = sending.into_iter().collect();
        let with_count = workers.into_iter().map(|worker| {
            let count = sending.get(&Some(worker.id)).copied().unwrap_or(0);
            (worker, positive(count))
        });
        Ok(with_count.collect())
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = import)]
struct ImportRow {
    id: i64,
    campaign_id: i64,
    file: String,
    hash: String,
    finished_at: Option<i64>,
}

fn compare(
    counts: Vec<(Option<i64>, i32, i64)>,
    imports: Vec<ImportRow>,
    campaigns: &HashSet<i64>,
) -> IntegrityCheck {
    let mut expected = BTreeMap::new();
    let mut found: BTreeMap<Option<i64>, u64> = BTreeMap::new();
    let mut without_campaign: BTreeMap<i64, u64> = BTreeMap::new();
    for (id, meaning, count) in counts {
        let count = positive(count);
        match (meaning, id) {
            (EXPECTED, Some(import)) => drop(expected.insert(import, count)),
            (BY_CAMPAIGN, Some(campaign)) if !campaigns.contains(&campaign) => {
                *without_campaign.entry(campaign).or_default() += count;
            }
            (FOUND, import) => {
                let import = import.filter(|id| *id != PLAIN);
                *found.entry(import).or_default() += count;
            }
            _ => {}
        }
    }
    let plain = found.remove(&None).unwrap_or(0);
    // The files and hashes of finished imports.
    let mut lists: HashSet<(i64, String)> = HashSet::new();
    // The last import first, because a later one of the same list finishes an earlier one.
    let imports = imports.into_iter().rev().filter_map(|row| {
        let keys = [&row.file, &row.hash].map(|list| (row.campaign_id, list.clone()));
        let finished = row.finished_at.is_some() || keys.iter().any(|key| lists.contains(key));
        if row.finished_at.is_some() {
            lists.extend(keys);
        }
        Some(ImportCount {
            id: row.id,
            campaign_id: row.campaign_id,
            finished,
            // An import that began after the count has none.
            expected: expected.remove(&row.id)?,
            found: found.remove(&Some(row.id)).unwrap_or(0),
            file: row.file,
        })
    });
    let mut imports: Vec<ImportCount> = imports.collect();
    imports.reverse();
    IntegrityCheck {
        imports,
        plain,
        without_import: found.into_values().sum(),
        without_campaign: without_campaign.into_iter().collect(),
    }
}
