//! Imports lists of recipients into the queue, in memory that does not depend on the size of the file.
//!
//! The way of a row: `file` opens the list, `record` reads a row, `row_mapper` makes a message of it,
//! `pipeline` collects batches, `importer` writes them. [`Plan::prepare`] finds faults of the whole list
//! before anything is written; [`run`] rejects single rows with line and reason.

mod columns;
mod config;
pub mod consumer;
mod dedupe;
mod encoding;
mod error;
mod estimate;
mod file;
mod header;
mod importer;
mod inspection;
mod options;
mod phone_list;
mod pipeline;
mod plan;
mod preview;
mod query;
mod record;
mod rejects_file;
mod row_mapper;
mod summary;
mod values;
mod when;

pub use self::columns::identifier;
pub use self::config::{Config, RejectLimit};
pub use self::dedupe::{Unique, own_key};
pub use self::encoding::Encoding;
pub use self::error::{ImportError, Rejection};
pub use self::estimate::{Estimate, EstimatedCost, MessageStats, PriceOf, Sample, SegmentTotals};
pub use self::header::Interpretation;
pub use self::importer::{Schedule, Target, run};
pub use self::inspection::ListInspection;
pub use self::options::{Options, TextSource, read_query, read_template};
pub use self::phone_list::PhoneList;
pub use self::pipeline::ParsedBatch;
pub use self::plan::Plan;
pub use self::preview::{KeptRows, Preview};
pub use self::query::QueryRows;
pub use self::record::{JsonObject, cell, formats, is_nested};
pub use self::row_mapper::{ProviderRequirements, RowCheck};
pub use self::summary::{SeenKeys, Summary};
pub use self::values::{assignment, campaign_name, delimiter, sender};
pub use self::when::When;

#[cfg(test)]
mod tests;
