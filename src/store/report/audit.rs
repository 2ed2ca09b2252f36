//! Checks that no message is lost: what each import accepted against what the tables have.

use std::collections::{BTreeMap, HashMap};

use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::sql_types::Integer;
use diesel_async::RunQueryDsl;

use super::{PLAIN, all_gone, positive};
use crate::sms::State;
use crate::store::connection::reading;
use crate::store::schema::{campaign, import, purged, sms, sms_failed, sms_sent};
use crate::store::{Store, StoreError, Worker};

/// What one import accepted, and how many of those messages the tables have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportCount {
    pub id: i64,
    pub campaign_id: i64,
    pub file: String,
    /// Accepted, less those that a later import replaced.
    pub expected: u64,
    /// With those that were purged.
    pub found: u64,
    /// It was read to its end, or a later import of the same list into the campaign was.
    pub finished: bool,
}

/// The tables against the imports, counted in one statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    pub imports: Vec<ImportCount>,
    /// Messages that another program inserted.
    pub plain: u64,
    /// Messages of an import that is not in table `import`.
    pub strangers: u64,
    /// Messages of campaigns that are not in table `campaign` and are never sent: `campaign_id` and number.
    pub homeless: Vec<(i64, u64)>,
}

impl Audit {
    /// Whether no message is lost and none is there twice.
    pub fn is_sound(&self) -> bool {
        let even = |import: &ImportCount| import.expected == import.found;
        self.strangers == 0 && self.homeless.is_empty() && self.imports.iter().all(even)
    }
}

/// What a row of the count means.
const EXPECTED: i32 = 0;
const FOUND: i32 = 1;
const LIVES_IN: i32 = 2;

/// Rows of a table by one of its columns, marked with what they mean.
macro_rules! counted {
    ($table:ident, $by:expr, $meaning:expr) => {
        $table::table.group_by($by).select((
            $by.nullable(),
            $meaning.into_sql::<Integer>(),
            count_star(),
        ))
    };
}

impl Store {
    /// Reads every row's import: slow where there are millions.
    pub async fn check_counts(&self) -> Result<Audit, StoreError> {
        // In one statement, because workers may be moving messages.
        let counts: Vec<(Option<i64>, i32, i64)> = reading!(self, |conn| import::table
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
                all_gone!(),
            )))
            .union_all(counted!(sms, sms::campaign_id, LIVES_IN))
            .union_all(counted!(sms_sent, sms_sent::campaign_id, LIVES_IN))
            .union_all(counted!(sms_failed, sms_failed::campaign_id, LIVES_IN))
            .load(conn))?;
        // These tables never lose a row, so all that was counted is still there.
        let imports: Vec<ImportRow> = reading!(self, |conn| import::table
            .order(import::id)
            .select((
                import::id,
                import::campaign_id,
                import::file,
                import::hash,
                import::finished_at,
            ))
            .load(conn))?;
        let campaigns: Vec<i64> =
            reading!(self, |conn| campaign::table.select(campaign::id).load(conn))?;
        Ok(audit(counts, imports, &campaigns))
    }

    /// Messages to send of campaigns that do not exist: `campaign_id` and how many. One seek in an index
    /// for each campaign that has messages.
    pub async fn without_campaign(&self) -> Result<Vec<(i64, u64)>, StoreError> {
        let campaigns: Vec<i64> =
            reading!(self, |conn| campaign::table.select(campaign::id).load(conn))?;
        let mut found = Vec::new();
        let mut last = i64::MIN;
        loop {
            let next: Option<i64> = reading!(self, |conn| sms::table
                .filter(sms::campaign_id.gt(last))
                .select(diesel::dsl::min(sms::campaign_id))
                .first(conn))?;
            let Some(id) = next else {
                return Ok(found);
            };
            last = id;
            if !campaigns.contains(&id) {
                let count: i64 = reading!(self, |conn| sms::table
                    .filter(sms::campaign_id.eq(id))
                    .count()
                    .get_result(conn))?;
                found.push((id, positive(count)));
            }
        }
    }

    /// All workers, oldest first, and how many messages each has claimed and not settled.
    pub async fn workers(&self) -> Result<Vec<(Worker, u64)>, StoreError> {
        let workers = self.worker_rows().await?;
        let campaigns: Vec<i64> =
            reading!(self, |conn| campaign::table.select(campaign::id).load(conn))?;
        let sending: Vec<(Option<i64>, i64)> = reading!(self, |conn| sms::table
            .filter(sms::campaign_id.eq_any(&campaigns))
            .filter(sms::state.eq(State::Sending.code()))
            .group_by(sms::worker_id)
            .select((sms::worker_id, count_star()))
            .load(conn))?;
        let sending: BTreeMap<Option<i64>, i64> = sending.into_iter().collect();
        let of = |id| positive(sending.get(&Some(id)).copied().unwrap_or(0));
        Ok(workers
            .into_iter()
            .map(|worker| (of(worker.id), worker))
            .map(|(sending, worker)| (worker, sending))
            .collect())
    }
}

/// Id, campaign, file, hash, end.
type ImportRow = (i64, i64, String, String, Option<i64>);

fn audit(
    counts: Vec<(Option<i64>, i32, i64)>,
    imports: Vec<ImportRow>,
    campaigns: &[i64],
) -> Audit {
    let mut expected = BTreeMap::new();
    let mut found: BTreeMap<Option<i64>, u64> = BTreeMap::new();
    let mut homeless: BTreeMap<i64, u64> = BTreeMap::new();
    for (id, meaning, count) in counts {
        let count = positive(count);
        match (meaning, id) {
            (EXPECTED, Some(import)) => drop(expected.insert(import, count)),
            (LIVES_IN, Some(campaign)) if !campaigns.contains(&campaign) => {
                *homeless.entry(campaign).or_default() += count;
            }
            (FOUND, import) => {
                let import = import.filter(|id| *id != PLAIN);
                *found.entry(import).or_default() += count;
            }
            _ => {}
        }
    }
    let plain = found.remove(&None).unwrap_or(0);
    let mut finished = HashMap::new();
    for (id, campaign_id, file, hash, finished_at) in &imports {
        if finished_at.is_some() {
            finished.insert((*campaign_id, file.clone()), *id);
            finished.insert((*campaign_id, hash.clone()), *id);
        }
    }
    let imports = imports
        .into_iter()
        .filter_map(|(id, campaign_id, file, hash, finished_at)| {
            let is_later = |list: &str| {
                finished
                    .get(&(campaign_id, list.to_owned()))
                    .is_some_and(|later| *later > id)
            };
            let finished = finished_at.is_some() || is_later(&file) || is_later(&hash);
            // What began after the count is not judged by it.
            let expected = expected.remove(&id)?;
            Some(ImportCount {
                id,
                campaign_id,
                file,
                expected,
                found: found.remove(&Some(id)).unwrap_or(0),
                finished,
            })
        })
        .collect();
    Audit {
        imports,
        plain,
        strangers: found.into_values().sum(),
        homeless: homeless.into_iter().collect(),
    }
}
