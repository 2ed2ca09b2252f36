//! Imports lists of recipients into the queue: file, encoding, rows, phones, texts, batches of inserts, in
//! memory that does not depend on the size of the file. [`Plan::prepare`] finds faults of the whole file
//! before anything is written; [`run`] rejects single rows with line and reason.

mod cells;
mod columns;
mod config;
pub mod consumer;
mod decoding;
mod digest;
mod encoding;
mod error;
mod estimate;
mod guess;
mod header;
mod hidden;
mod importer;
mod input;
mod interpretation;
mod json_lines;
mod keys;
mod needs;
mod phone_list;
mod pipeline;
mod plan;
mod preview;
mod reader;
mod rejection;
mod rejects;
mod repeats;
mod resolve_campaign;
mod rows;
mod sheet;
mod source;
mod spool;
mod summary;
mod survey;
mod unpack;
mod words;
mod workbook;

pub use self::config::{Config, RejectLimit};
pub use self::encoding::{Encoding, EncodingError};
pub use self::error::ImportError;
pub use self::estimate::{
    Cost, Estimate, MessageStats, Pace, PriceOf, Sample, SegmentTotals, StatsBuilder,
};
pub use self::importer::Target;
pub use self::interpretation::Interpretation;
pub use self::keys::Unique;
pub use self::needs::{ProviderRequirements, RowCheck};
pub use self::phone_list::PhoneList;
pub use self::plan::{Options, Plan, TextSource};
pub use self::preview::{Preview, SeenKeys};
pub use self::rejection::Rejection;
pub use self::rejects::is_stdout;
pub use self::summary::{NonMobileCounts, RejectionCounts, Repeat, Summary};

use self::importer::Importer;
use crate::sms::Timestamp;

/// When the messages of an import become due, and until when they may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// `None`: at once.
    pub due_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

/// The progress of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub bytes: u64,
    pub total_bytes: u64,
    pub rows: u64,
    pub rejected: u64,
}

/// Imports a file into a campaign. If it is interrupted and run again, it adds what is missing.
pub async fn run(
    plan: &Plan,
    target: Target<'_>,
    price: Option<PriceOf<'_>>,
    mut progress: impl FnMut(Progress),
) -> Result<Summary, ImportError> {
    let unique = plan.unique_in(target.campaign)?;
    let task = plan.task(&unique, true)?;
    let importer = Importer::begin(target, plan.file(), plan.hash()).await?;
    let mut importer = importer.with_price(price);
    importer.keep_text(plan.template()).await?;
    let rejects = pipeline::stream(task, async |parsed| {
        let bytes = parsed.bytes;
        importer.commit(parsed).await?;
        progress(Progress {
            bytes,
            total_bytes: plan.bytes(),
            rows: importer.summary.rows,
            rejected: importer.summary.rejected,
        });
        Ok(())
    })
    .await?;
    plan.check_unchanged()?;
    importer.summary.repeats = repeats::find(plan, &unique, &importer.repeated)?;
    importer.summary.rejects_file = match rejects {
        Some(rejects) => rejects.finish()?,
        None => None,
    };
    importer.finish().await
}

#[cfg(test)]
mod tests;
