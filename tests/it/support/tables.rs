//! Tables of the documentation that are made from the program.

use std::fs;

use super::repository;

/// What is wrong if the first table below this heading of a page is another one; `SMSQ_DOCS=update` writes it instead.
pub(crate) fn wrong_table(page: &str, heading: &str, table: &str) -> Option<String> {
    let path = repository(page);
    let written = fs::read_to_string(&path).expect("a page");
    let updated = with_table(&written, heading, table);
    if updated == written {
        return None;
    }
    if std::env::var_os("SMSQ_DOCS").is_some_and(|value| value == "update") {
        fs::write(&path, updated).expect("the page is written");
        return None;
    }
    Some(format!(
        "the table below `{heading}` in {page} is old: `SMSQ_DOCS=update tests/run` writes it\n"
    ))
}

/// The page with `table` in place of the first table below the heading.
fn with_table(page: &str, heading: &str, table: &str) -> String {
    let below = page.find(&format!("\n## {heading}\n")).expect(heading);
    let start = below + page[below..].find("\n| ").expect("a table") + 1;
    let length = page[start..].find("\n\n").expect("its end") + 1;
    format!("{}{table}{}", &page[..start], &page[start + length..])
}
