//! Hidden rows of XLSX: attribute `hidden` of element `row`.

use std::io::{Read, Seek};

use zip::ZipArchive;

use super::{Hidden, attribute, each, target};

pub(super) fn rows(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Option<Hidden> {
    let mut id = None;
    each(archive, "xl/workbook.xml", |tag| {
        if tag.local_name().as_ref() == b"sheet"
            && attribute(tag, b"name").as_deref() == Some(sheet)
        {
            id = attribute(tag, b"id");
        }
    })?;
    let part = target(archive, "xl/_rels/workbook.xml.rels", &id?)?;
    let mut hidden = Hidden::default();
    let mut next = 0;
    each(archive, &part, |tag| {
        if tag.local_name().as_ref() != b"row" {
            return;
        }
        let number = attribute(tag, b"r").and_then(|number| number.parse::<u32>().ok());
        let row = number.map_or(next, |number| number.saturating_sub(1));
        next = row.saturating_add(1);
        if attribute(tag, b"hidden").is_some_and(|word| word == "1" || word == "true") {
            hidden.hide(row..next);
        }
    })?;
    Some(hidden)
}
