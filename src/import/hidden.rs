//! The rows of an XLSX sheet that somebody has hidden or filtered away, which the library does not tell:
//! who hid a row did not mean to write to it.

use std::collections::HashSet;
use std::io::{BufReader, Read, Seek};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use zip::ZipArchive;

/// Hidden rows, counted from 0.
#[derive(Default)]
pub(super) struct Hidden(HashSet<u32>);

impl Hidden {
    pub(super) fn has(&self, row: u32) -> bool {
        self.0.contains(&row)
    }

    /// Those of the sheet of that name. A workbook whose parts are laid out in another way has none.
    pub(super) fn of(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Self {
        part_of(archive, sheet)
            .and_then(|part| rows(archive, &part))
            .unwrap_or_default()
    }
}

/// The part of the archive that the sheet is in.
fn part_of(archive: &mut ZipArchive<impl Read + Seek>, sheet: &str) -> Option<String> {
    let mut id = None;
    each(archive, "xl/workbook.xml", |tag| {
        if tag.local_name().as_ref() == b"sheet"
            && attribute(tag, b"name").as_deref() == Some(sheet)
        {
            id = attribute(tag, b"id");
        }
    })?;
    let id = id?;
    let mut target = None;
    each(archive, "xl/_rels/workbook.xml.rels", |tag| {
        if attribute(tag, b"Id").as_ref() == Some(&id) {
            target = attribute(tag, b"Target");
        }
    })?;
    let target = target?;
    Some(match target.strip_prefix('/') {
        Some(absolute) => absolute.to_owned(),
        None => format!("xl/{target}"),
    })
}

fn rows(archive: &mut ZipArchive<impl Read + Seek>, part: &str) -> Option<Hidden> {
    let mut hidden = HashSet::new();
    let mut next = 0;
    each(archive, part, |tag| {
        if tag.local_name().as_ref() != b"row" {
            return;
        }
        let number = attribute(tag, b"r").and_then(|number| number.parse::<u32>().ok());
        let row = number.map_or(next, |number| number.saturating_sub(1));
        next = row + 1;
        if attribute(tag, b"hidden").is_some_and(|word| word == "1" || word == "true") {
            hidden.insert(row);
        }
    })?;
    Some(Hidden(hidden))
}

fn each(
    archive: &mut ZipArchive<impl Read + Seek>,
    part: &str,
    mut take: impl FnMut(&BytesStart<'_>),
) -> Option<()> {
    let part = archive.by_name(part).ok()?;
    let mut reader = Reader::from_reader(BufReader::with_capacity(1 << 16, part));
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        match reader.read_event_into(&mut buffer).ok()? {
            Event::Start(tag) | Event::Empty(tag) => take(&tag),
            Event::Eof => return Some(()),
            _ => {}
        }
    }
}

/// An attribute by its name without a prefix.
fn attribute(tag: &BytesStart<'_>, name: &[u8]) -> Option<String> {
    let found = tag
        .attributes()
        .flatten()
        .find(|found| found.key.local_name().as_ref() == name)?;
    let text = std::str::from_utf8(&found.value).ok()?;
    quick_xml::escape::unescape(text)
        .ok()
        .map(std::borrow::Cow::into_owned)
}
