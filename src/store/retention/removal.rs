//! Removes campaigns that are done and empty: their messages were purged, or they never had any. The counts of their
//! imports stay, so that no message seems lost.

use diesel::dsl::{exists, not};
use diesel::{delete, update};
use smsq_limit::campaign_scope;
use smsq_message::budget::campaign_budgets;
use smsq_message::sms::Timestamp;
use smsq_process::boxed;

use crate::Store;
use crate::campaigns::campaign::SettingsColumns;
use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult};
use crate::error::StoreError;
use crate::queue::lanes;
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::schema::{
    campaign, import, intake_key, purged, rate_limit, sms, sms_failed, sms_key, sms_sent,
};
use crate::tables::values::{PLAIN, POSTED, REMOVED_CAMPAIGNS};

/// The campaign of messages without one, which is never removed.
const DEFAULT_CAMPAIGN: i64 = 1;
/// The most campaigns that one transaction removes.
pub(super) const CAMPAIGNS: usize = 100;

/// Which empty campaigns are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// All that are done.
    Asked,
    /// Those whose messages were imported or posted, and whose settings are the defaults: a later import under the same
    /// name would be sent without others.
    Retention,
}

impl Store {
    /// The campaigns that may be removed, by all conditions that can be checked without locks: they are not paused,
    /// were created before the instant, and have no messages and no keys.
    #[boxed]
    pub async fn removable_campaigns(
        &self,
        before: Timestamp,
        removal: Removal,
    ) -> Result<Vec<i64>, StoreError> {
        macro_rules! has_none {
            ($table:ident) => {
                not(exists($table::table.filter($table::campaign_id.eq(campaign::id))))
            };
        }
        let found: Vec<(i64, SettingsColumns)> = self
            .read(
                campaign::table
                    .filter(campaign::id.gt(DEFAULT_CAMPAIGN))
                    .filter(campaign::state.ne(CampaignStatus::Paused))
                    .filter(campaign::created_at.lt(before))
                    .filter(has_none!(sms))
                    .filter(has_none!(sms_failed))
                    .filter(has_none!(sms_sent))
                    .filter(has_none!(sms_key))
                    .order(campaign::id)
                    .select((campaign::id, SettingsColumns::as_select())),
            )
            .await?;
        let is_selected = |(_, settings): &(i64, SettingsColumns)| {
            removal == Removal::Asked || settings.are_default()
        };
        Ok(found.into_iter().filter(is_selected).map(|(id, _)| id).collect())
    }
}

/// Removes those of the campaigns that are still done and empty; returns how many.
pub(super) async fn remove(
    connection: &mut Connection,
    campaigns: &[i64],
    before: Timestamp,
    removal: Removal,
    now: Timestamp,
) -> QueryResult<u64> {
    let mut removed = 0;
    for &id in campaigns {
        if is_removable(connection, id, before, removal, now).await? {
            delete_campaign(connection, id, now).await?;
            removed += 1;
        }
    }
    Ok(removed)
}

#[derive(Queryable)]
struct OwnImport {
    id: i64,
    file: String,
    accepted: i64,
    replaced: i64,
    created_at: i64,
    finished_at: Option<i64>,
}

/// Locks a campaign and its imports, so that no message comes into it, and checks all conditions.
async fn is_removable(
    connection: &mut Connection,
    id: i64,
    before: Timestamp,
    removal: Removal,
    now: Timestamp,
) -> QueryResult<bool> {
    type Row = (CampaignStatus, SettingsColumns);
    let found: Vec<Row> = campaign::table
        .find(id)
        .filter(campaign::created_at.lt(before))
        .select((campaign::state, SettingsColumns::as_select()))
        .locked()
        .load(connection)
        .await?;
    let Some((state, settings)) = found.into_iter().next() else {
        return Ok(false);
    };
    let imports: Vec<OwnImport> = import::table
        .filter(import::campaign_id.eq(id))
        .order(import::id)
        .select((
            import::id,
            import::file,
            import::accepted,
            import::replaced,
            import::created_at,
            import::finished_at,
        ))
        .locked()
        .load(connection)
        .await?;
    if state == CampaignStatus::Paused {
        return Ok(false);
    }
    if removal == Removal::Retention && (imports.is_empty() || !settings.are_default()) {
        return Ok(false);
    }
    // A server that still has its import open begins another one when it cannot store messages in this one.
    let is_over = |import: &OwnImport| {
        let finished_at = import.finished_at.or((import.file == POSTED).then_some(0));
        import.created_at < before.as_millis()
            && finished_at.is_some_and(|at| at < before.as_millis())
    };
    if !imports.iter().all(is_over) {
        return Ok(false);
    }
    let keys: Vec<i64> = sms_key::table
        .filter(sms_key::campaign_id.eq(id))
        .limit(1)
        .select(sms_key::campaign_id)
        .load(connection)
        .await?;
    let posted: Vec<i64> = intake_key::table
        .filter(intake_key::scope.eq(campaign_scope(id)))
        .filter(intake_key::expires_at.ge(now))
        .limit(1)
        .select(intake_key::sms_id)
        .load(connection)
        .await?;
    if !keys.is_empty() || !posted.is_empty() || has_messages(connection, id).await? {
        return Ok(false);
    }
    let purged: Vec<(i64, i64, i64, i64, i64)> = purged::table
        .filter(purged::campaign_id.eq(id))
        .select((
            purged::import_id,
            purged::sent,
            purged::failed,
            purged::unknown,
            purged::cancelled,
        ))
        .load(connection)
        .await?;
    let of = |import_id: i64| -> i64 {
        let rows = purged.iter().filter(|row| row.0 == import_id);
        rows.map(|(_, sent, failed, unknown, cancelled)| sent + failed + unknown + cancelled).sum()
    };
    // Other programs insert into it by its id. And `check` continues to report what is lost.
    let is_sound = |import: &OwnImport| import.accepted - import.replaced == of(import.id);
    Ok(of(PLAIN) == 0 && imports.iter().all(is_sound))
}

/// Deletes a campaign that is locked and empty. Its imports and counts become those of removed campaigns.
async fn delete_campaign(connection: &mut Connection, id: i64, now: Timestamp) -> QueryResult<()> {
    // An import that has ended takes nothing more.
    update(import::table)
        .filter(import::campaign_id.eq(id))
        .filter(import::finished_at.is_null())
        .set(import::finished_at.eq(now))
        .execute(connection)
        .await?;
    update(import::table)
        .filter(import::campaign_id.eq(id))
        .set(import::campaign_id.eq(REMOVED_CAMPAIGNS))
        .execute(connection)
        .await?;
    update(purged::table)
        .filter(purged::campaign_id.eq(id))
        .filter(purged::import_id.ne(PLAIN))
        .set(purged::campaign_id.eq(REMOVED_CAMPAIGNS))
        .execute(connection)
        .await?;
    delete(purged::table).filter(purged::campaign_id.eq(id)).execute(connection).await?;
    let scope = campaign_scope(id);
    delete(rate_limit::table.find(&scope)).execute(connection).await?;
    delete(intake_key::table).filter(intake_key::scope.eq(&scope)).execute(connection).await?;
    let budgets = format!("{}%", campaign_budgets(id));
    delete(rate_limit::table)
        .filter(diesel::TextExpressionMethods::like(rate_limit::scope, &budgets))
        .execute(connection)
        .await?;
    lanes::delete_of(connection, id).await?;
    delete(campaign::table.find(id)).execute(connection).await?;
    Ok(())
}

/// Whether a campaign has any message, in the order in which messages move. Without `EXISTS`, which is false on
/// MariaDB if the query is killed.
pub(super) async fn has_messages(
    connection: &mut Connection,
    campaign_id: i64,
) -> QueryResult<bool> {
    macro_rules! first_id {
        ($table:ident) => {
            $table::table
                .filter($table::campaign_id.eq(campaign_id))
                .limit(1)
                .select($table::id)
                .load::<i64>(connection)
                .await?
        };
    }
    let is_empty = first_id!(sms).is_empty()
        && first_id!(sms_failed).is_empty()
        && first_id!(sms_sent).is_empty();
    Ok(!is_empty)
}
