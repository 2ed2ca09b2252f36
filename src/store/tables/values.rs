//! Values of columns with a meaning of their own.

/// The name of the imports that count posted messages. They have no end.
pub const POSTED: &str = "HTTP";

/// In place of an import: the messages were inserted by another program.
pub(crate) const PLAIN: i64 = 0;

/// The campaign in tables `import` and `purged` of the counts of campaigns that were removed. No campaign has this id.
pub const REMOVED_CAMPAIGNS: i64 = 0;

/// Column `claimed_provider` of a message in doubt that was sent through several providers.
pub(crate) const SEVERAL: &str = "";
