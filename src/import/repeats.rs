//! Which row a duplicate repeats. The database knows that a message is there and not where it came from, and
//! memory that remembered every row would grow with the list: so the file is read once more, as far as the
//! last duplicate that is named.

use std::collections::HashMap;

use super::error::ImportError;
use super::keys::Unique;
use super::plan::Plan;
use super::summary::Repeat;

/// The first rows with the same keys as these.
pub(super) fn find(
    plan: &Plan,
    unique: &Unique,
    repeated: &[(u64, String)],
) -> Result<Vec<Repeat>, ImportError> {
    let Some(last) = repeated.last().map(|(line, _)| *line) else {
        return Ok(Vec::new());
    };
    let mut firsts: HashMap<&str, Option<u64>> = repeated
        .iter()
        .map(|(_, key)| (key.as_str(), None))
        .collect();
    plan.task(unique, false)?.each(|message| {
        if let Some(first) = firsts.get_mut(message.dedupe_key.as_str())
            && first.is_none()
        {
            *first = Some(message.line);
        }
        message.line < last
    })?;
    let repeat = |(line, key): &(u64, String)| Repeat {
        line: *line,
        first: firsts
            .get(key.as_str())
            .copied()
            .flatten()
            .filter(|first| first < line),
    };
    Ok(repeated.iter().map(repeat).collect())
}
