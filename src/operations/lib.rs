//! What people change. The command line, the page and the API call the same functions, so all of them refuse the same
//! in the same words. Nothing here prints, parses flags or knows HTTP.

mod approval;
mod budget;
mod campaign;
mod campaign_action;
mod estimate;
mod list_settings;
mod lists;
mod messages;
mod provider;
mod purge;
mod schedule;
mod suppression;
mod window;

pub use approval::{
    ListGate, add_message, approval_subject, approve, reject, replace_approval_rules,
};
pub use budget::{COUNTED_LATER, budget, check_priced, count_budget};
pub use campaign::{cancel, change_settings, change_state, limit};
pub use campaign_action::{CampaignAction, Permitted, Refused};
pub use estimate::{
    EstimateRows, EstimatedQueue, ListEstimate, QueueEstimate, SAMPLES, alphabet, estimate_queue,
    reasons,
};
pub use list_settings::{ListPrices, ListSettings, Requirements, is_url};
pub use lists::{
    Cancelled, Imported, ListOptions, PeriodCampaign, check_name, informed, local_now,
    sender_needed, unknown_provider,
};
pub use messages::{SettledAs, retry_failed, retry_unknown, settle};
pub use provider::{resume_provider, switch_sender};
pub use purge::{apply_retention, purge, purge_person};
pub use schedule::{
    CronTime, Per, RunCountsReport, RunReport, ScheduleOptions, ScheduleReport, ScheduleRequest,
    Scheduler, add_schedule, pause_schedule, remove_schedule, resume_schedule, schedule_name,
    schedule_named, schedule_reports,
};
use smsq_import::ImportError;
use smsq_message::text::{Hinted, messages};
use smsq_store::{AuditEntry, Audited, Campaign, Store, StoreError, StoreErrorKind};
pub use suppression::{Suppressing, suppress, unsuppress};
pub use window::{HoursChoice, WindowRequest, ZoneChoice};

/// Who makes a change.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The name in the audit log.
    pub who: String,
    /// Who or what did it, as a campaign's state explains it.
    pub by: String,
}

impl Actor {
    /// The owner of a token.
    pub fn of_token(name: &str) -> Self {
        Self { who: name.to_owned(), by: name.to_owned() }
    }

    /// The entry in the audit log for a change that this actor makes now. `what`: a verb; `detail`: without phones and
    /// texts.
    async fn entry(
        &self,
        store: &Store,
        what: &str,
        campaign: Option<&str>,
        detail: String,
    ) -> Result<AuditEntry, StoreError> {
        Ok(AuditEntry {
            at: store.now().await?,
            who: self.who.clone(),
            what: what.to_owned(),
            campaign: campaign.map(str::to_owned),
            detail,
        })
    }

    /// The results in a file that a worker left are stored.
    pub fn of_journal(&self, file: &str) -> Audited {
        let file = file.to_owned();
        self.audited("settle", None, move |count| {
            format!("settled {} by `{file}`", messages(count))
        })
    }

    /// A change of rows, which `describe` puts into words for their number.
    fn audited(
        &self,
        what: &str,
        campaign: Option<&Campaign>,
        describe: impl Fn(u64) -> String + Send + Sync + 'static,
    ) -> Audited {
        let campaign = campaign.map(|campaign| campaign.name.as_str());
        Audited::new(&self.who, what, campaign, move |&count| (count > 0).then(|| describe(count)))
    }
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The state of the campaign does not allow it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// What was asked for is invalid.
    #[error(transparent)]
    Invalid(#[from] Hinted),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ImportError> for OperationError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Store(error) => Self::Store(error),
            error => Self::Invalid(Hinted { message: error.to_string(), hint: error.hint() }),
        }
    }
}

impl OperationError {
    /// Whether the database may be used again later.
    pub fn is_temporary(&self) -> bool {
        use StoreErrorKind::{Busy, Full, Replica, Unavailable};
        matches!(self, Self::Store(error) if matches!(error.kind(), Busy | Full | Replica | Unavailable))
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused(refused) => refused.hint(),
            Self::Invalid(invalid) => invalid.hint.clone(),
            Self::Store(error) => error.hint().map(str::to_owned),
        }
    }
}
