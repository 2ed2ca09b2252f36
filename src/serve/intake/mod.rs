//! Takes messages and files. A message is answered after its commit.

mod campaigns;
mod draft;
mod draft_check;
mod draft_list;
mod drafts;
mod folder;
mod import_status;
mod mapper;
mod message;
mod readings;
mod upload_form;
mod upload_request;
mod uploads;
mod writer;

use std::sync::Arc;

use http::StatusCode;
use smsq_message::phone::Dialling;
use smsq_operations::{OperationError, Refused};
use smsq_store::{Campaign, CampaignStatus, PostResult, Store};

use super::problem::Problem;
use super::server_metrics::ServerMetrics;
use campaigns::Campaigns;
use mapper::MessageMapper;
use writer::IntakeWriter;

pub(super) use campaigns::IntakeLimits;
pub(super) use draft::Draft;
pub(super) use draft_check::{DraftCheck, ShownMessage};
pub(super) use draft_list::DraftList;
pub(super) use drafts::{Drafts, MAX_DRAFTS, has_text};
pub(super) use folder::PartialUpload;
pub(super) use import_status::{ImportState, ImportStatus};
#[cfg(feature = "fuzz")]
pub use mapper::fuzz_posted;
pub(super) use mapper::{MappedMessage, invalid_phone};
pub(super) use message::{MAX_KEY, MAX_MESSAGE, PostedMessage, digest};
pub(super) use readings::ReadingState;
pub(super) use upload_form::{MAX_FILE, cannot_keep};
pub(super) use upload_request::{FieldError, ImportField, UploadField, UploadForm, UploadRequest};
pub(super) use uploads::{MAX_UPLOADS, RejectedRows, Uploads};
pub(super) use writer::NewMessages;

/// What takes messages and files.
pub(super) struct Intake {
    mapper: MessageMapper,
    campaigns: Campaigns,
    writer: IntakeWriter,
    metrics: Arc<ServerMetrics>,
    pub(super) uploads: Arc<Uploads>,
}

impl Intake {
    pub(super) fn new(
        store: Store,
        dialling: Dialling,
        limits: IntakeLimits,
        metrics: Arc<ServerMetrics>,
        uploads: Arc<Uploads>,
    ) -> Self {
        Self {
            mapper: MessageMapper::new(dialling),
            campaigns: Campaigns::new(store.clone(), limits),
            writer: IntakeWriter::start(store),
            metrics,
            uploads,
        }
    }

    /// Reads a message from its JSON, and opens its campaign.
    pub(super) async fn read(
        &self,
        json: &[u8],
    ) -> Result<(Arc<Campaign>, MappedMessage), Problem> {
        let posted = PostedMessage::parse(json).map_err(Problem::invalid)?;
        let mapped = self.mapper.map(&posted).map_err(Problem::invalid)?;
        let campaign = self.campaigns.open(&posted.campaign, posted.from.as_deref()).await?;
        Ok((campaign, mapped))
    }

    /// Commits messages; returns what became of each, in their order.
    pub(super) async fn commit(&self, new: NewMessages) -> Result<Vec<PostResult>, Problem> {
        let results = self.writer.commit(new).await.ok_or_else(Problem::stopping)??;
        self.metrics.count_posted(&results);
        Ok(results)
    }

    /// Fails if a list cannot be imported into the campaign of that name.
    pub(super) async fn check_campaign(&self, name: &str) -> Result<(), Problem> {
        match self.campaigns.find(name).await? {
            Some(campaign) if campaign.state == CampaignStatus::Cancelled => {
                Err(self.refusal(&campaign.name, PostResult::Cancelled))
            }
            _ => Ok(()),
        }
    }

    /// Why a message was not queued.
    pub(super) fn refusal(&self, campaign: &str, result: PostResult) -> Problem {
        match result {
            PostResult::Cancelled => {
                OperationError::from(Refused::takes_no_messages(campaign)).into()
            }
            PostResult::NoCampaign => {
                self.campaigns.forget(campaign);
                Problem::unavailable(format!(
                    "campaign `{campaign}` was removed just now; nothing was stored: post the message again"
                ))
            }
            PostResult::Expired => Problem::invalid(
                "invalid `expires_at`: it is in the past, so nothing would be sent",
            ),
            PostResult::Dead => Problem::invalid(
                "invalid `phone`: the number does not exist, as a provider said; nothing was queued",
            ),
            PostResult::Known => Problem::new(
                StatusCode::CONFLICT,
                format!(
                    "duplicate `dedupe_key`: campaign `{campaign}` has a message with this key, which was imported \
                     or posted more than a day ago; nothing was queued"
                ),
            ),
            PostResult::Conflict
            | PostResult::Queued(_)
            | PostResult::Repeated(_)
            | PostResult::Suppressed => Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "this `Idempotency-Key` or `dedupe_key` was already used for a different message",
            ),
        }
    }

    /// Commits what was taken.
    pub(super) async fn finish(&self) {
        self.writer.finish().await;
    }
}
