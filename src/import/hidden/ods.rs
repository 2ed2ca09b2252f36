//! Hidden rows of ODS: attribute `table:visibility` of element `table:table-row`, which may stand for many
//! equal rows. ODF 1.3, part 3, 19.749.

use std::io::{Read, Seek};

use zip::ZipArchive;

use super::{Hidden, attribute, each};

pub(super) fn rows(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Option<Hidden> {
    let mut hidden = Hidden::default();
    let mut is_here = false;
    let mut next = 0_u32;
    each(archive, "content.xml", |tag| {
        match tag.local_name().as_ref() {
            b"table" => {
                is_here = attribute(tag, b"name").as_deref() == Some(sheet);
                next = 0;
            }
            b"table-row" if is_here => {
                let repeated = attribute(tag, b"number-rows-repeated");
                let count = repeated.and_then(|count| count.parse().ok()).unwrap_or(1);
                let rows = next..next.saturating_add(count);
                next = rows.end;
                let visibility = attribute(tag, b"visibility");
                if matches!(visibility.as_deref(), Some("collapse" | "filter")) {
                    hidden.hide(rows);
                }
            }
            _ => {}
        }
    })?;
    Some(hidden)
}
