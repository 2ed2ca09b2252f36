//! What a worker has learned and not committed yet.

use crate::queue::Settlement;
use crate::sms::Timestamp;
use crate::store::{CampaignStop, ProviderPause};

/// The results for the next commit.
#[derive(Default)]
pub(super) struct Results {
    /// When they are decided.
    pub(super) now: Timestamp,
    pub(super) settlements: Vec<Settlement>,
    pub(super) campaign_stops: Vec<CampaignStop>,
    pub(super) pauses: Vec<ProviderPause>,
}
