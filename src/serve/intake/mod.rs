//! Takes messages over HTTP: one, a batch of lines, or a file. A message is answered after its commit.

mod api;
mod campaigns;
mod message;
mod uploads;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use crate::phone::Region;
use crate::store::Store;
use campaigns::Campaigns;
use message::MessageMapper;
use uploads::Uploads;
use writer::IntakeWriter;

pub(super) use api::{routes, unlimited_routes};
pub(super) use campaigns::IntakeLimits;
pub(super) use uploads::RejectedRows;
pub use uploads::{FileImporter, ImportField, UploadRequest};

/// What the endpoints share.
pub(super) struct Intake {
    mapper: MessageMapper,
    campaigns: Campaigns,
    writer: IntakeWriter,
    pub(super) uploads: Uploads,
}

impl Intake {
    pub(super) fn new(
        store: Store,
        region: Option<Region>,
        limits: IntakeLimits,
        uploads: PathBuf,
        importer: Arc<dyn FileImporter>,
    ) -> Self {
        Self {
            mapper: MessageMapper::new(region),
            campaigns: Campaigns::new(store.clone(), limits),
            writer: IntakeWriter::start(store),
            uploads: Uploads::start(uploads, importer),
        }
    }

    /// Commits what was taken, and interrupts the imports.
    pub(super) async fn finish(&self) {
        self.uploads.finish().await;
        self.writer.finish().await;
    }
}
