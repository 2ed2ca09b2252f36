//! Campaigns that a worker pauses or stops.

use smsq_message::sms::Timestamp;

use crate::audit::AuditEntry;
use crate::connection::prelude::*;
use crate::connection::{Connection, QueryResult};
use crate::tables::campaign_status::CampaignStatus;
use crate::tables::schema::campaign;

/// An active campaign that is paused or stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignStop {
    pub campaign_id: i64,
    pub state: CampaignStatus,
    pub reason: String,
}

/// Pauses or stops campaigns that are active, and notes it among the changes.
pub(super) async fn stop_campaigns(
    connection: &mut Connection,
    stops: &[CampaignStop],
    now: Timestamp,
) -> QueryResult<()> {
    for stop in stops {
        let stopped = diesel::update(campaign::table.find(stop.campaign_id))
            .filter(campaign::state.eq(CampaignStatus::Active))
            .set((campaign::state.eq(stop.state), campaign::state_reason.eq(&stop.reason)))
            .execute(connection)
            .await?;
        if stopped > 0 {
            let name = campaign::table
                .find(stop.campaign_id)
                .select(campaign::name)
                .first(connection)
                .await?;
            let entry = AuditEntry::of_worker(now, name, stop.state.as_str(), &stop.reason);
            entry.insert(connection).await?;
        }
    }
    Ok(())
}
