//! Takes messages over HTTP: one, a batch of lines, or a file. A message is answered after its commit.

mod api;
mod campaigns;
mod message;
mod uploads;
mod writer;

use std::sync::Arc;

use crate::phone::Region;
use crate::store::Store;
use campaigns::Campaigns;
use message::MessageMapper;
use uploads::Uploads;
use writer::IntakeWriter;

pub(super) use api::{routes, unlimited_routes};
pub use uploads::{FileImporter, ImportField, ImportedFile};

/// What the endpoints share.
pub(super) struct Intake {
    mapper: MessageMapper,
    campaigns: Campaigns,
    writer: IntakeWriter,
    uploads: Uploads,
}

impl Intake {
    pub(super) fn new(
        store: Store,
        region: Option<Region>,
        max_waiting: u64,
        importer: Arc<dyn FileImporter>,
    ) -> Self {
        Self {
            mapper: MessageMapper::new(region),
            campaigns: Campaigns::new(store.clone(), max_waiting),
            writer: IntakeWriter::start(store),
            uploads: Uploads::new(importer),
        }
    }

    /// Commits what was taken, and ends the imports.
    pub(super) async fn finish(&self) {
        self.writer.finish().await;
    }
}
