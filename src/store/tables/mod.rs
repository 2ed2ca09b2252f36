//! The tables: their columns, the types and special values of these, and what is known of errors.

pub(super) mod campaign_filter;
pub(super) mod campaign_status;
pub(super) mod column_types;
pub(super) mod error;
pub(super) mod expressions;
pub(super) mod mode;
pub(super) mod schema;
pub(super) mod values;
