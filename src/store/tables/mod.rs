//! The tables: their columns, and the types and special values of these.

pub(super) mod campaign_filter;
pub(super) mod campaign_status;
pub(super) mod column_types;
pub(super) mod expressions;
pub(super) mod mode;
pub(super) mod schema;
pub(super) mod values;
