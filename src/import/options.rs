//! What the operator asked for: the list, how to read it, and where the texts of its messages come from.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use smsq_message::phone::Dialling;
use smsq_message::text::template::{self, MAX_SOURCE, Template};
use smsq_message::text::{content, is_printable, smart};
use smsq_process::jobs::Until;

use super::dedupe::Unique;
use super::encoding::Encoding;
use super::error::ImportError;
use super::query::QueryRows;

/// The longest name of a campaign, in characters.
const MAX_NAME: usize = 100;
/// The longest query, in bytes.
const MAX_QUERY: usize = 64 * 1024;

/// What the operator asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `-` is standard input.
    pub file: PathBuf,
    /// The rows that the query in `file` has returned; `None`: the file itself is the list.
    pub query: Option<Arc<QueryRows>>,
    /// What messages call the file; `None`: the path as given, or `standard input`.
    pub name: Option<String>,
    pub text: TextSource,
    /// `--column NAME=COLUMN`: `phone`, `content`, or a name that the text uses.
    pub columns: Vec<(String, String)>,
    pub dialling: Dialling,
    /// `None`: that of the campaign, or else the phone.
    pub unique: Option<Unique>,
    /// `None`: `<file stem>.rejects.csv` in the current folder.
    pub rejects: Option<PathBuf>,
    /// `None`: detected.
    pub delimiter: Option<u8>,
    /// `None`: detected.
    pub encoding: Option<Encoding>,
    /// The sheet of a workbook by its name or number; `None`: the first.
    pub sheet: Option<String>,
    /// Replace typographic characters where that saves segments.
    pub smart: bool,
    /// The list has a column with the time zones of the recipients.
    pub with_timezone: bool,
    /// The text of the provider's template, for a list without texts.
    pub template: Option<String>,
    /// Until when the list may be read.
    pub until: Until,
}

/// Where the text of the messages comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TextSource {
    /// The column `content` of the list.
    #[default]
    Column,
    /// `--text`
    Text(String),
    /// `--template`
    Template(PathBuf),
}

impl Options {
    /// Parses the text of all messages; `None` if the list has the texts. Fails if a text without
    /// placeholders cannot be sent.
    pub(super) fn load_text(&self) -> Result<Option<Arc<Template>>, ImportError> {
        let (name, source) = match &self.text {
            TextSource::Column => return Ok(None),
            TextSource::Text(text) => ("--text".to_owned(), text.clone()),
            TextSource::Template(path) => (path.display().to_string(), read_template(path)?),
        };
        let template = Template::parse(&name, &source).map_err(ImportError::new)?;
        if template.placeholders().is_empty() {
            let text = template.render(|_| None).map_err(|error| error.to_string());
            let check = |text| content::check(&self.simplified(text)).map_err(|e| e.to_string());
            let cannot = |reason| ImportError::new(format!("cannot send `{name}`: {reason}"));
            text.and_then(check).map_err(cannot)?;
        }
        Ok(Some(Arc::new(template)))
    }

    /// Replaces typographic characters if that was asked for.
    pub(super) fn simplified(&self, text: String) -> String {
        if self.smart { smart::cheaper(&text).into_owned() } else { text }
    }
}

/// Reads a file with a text, which has at most [`MAX_SOURCE`] bytes.
pub fn read_template(path: &Path) -> Result<String, ImportError> {
    let name = path.display().to_string();
    let text = read_text(path, MAX_SOURCE)?;
    text.ok_or_else(|| ImportError::new(format!("`{name}`: {}", template::too_long())))
}

/// Reads a file with a query.
pub fn read_query(path: &Path) -> Result<String, ImportError> {
    let name = path.display().to_string();
    let text = read_text(path, MAX_QUERY)?;
    text.ok_or_else(|| ImportError::new(format!("`{name}`: a query has at most {MAX_QUERY} bytes")))
}

/// Reads a file of UTF-8; `None` if it is longer than `limit` bytes.
fn read_text(path: &Path, limit: usize) -> Result<Option<String>, ImportError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| {
        let limit = limit as u64 + 1;
        file.take(limit).read_to_end(&mut bytes)
    });
    read.map_err(|error| ImportError::open(path, &name, error))?;
    if bytes.len() > limit {
        return Ok(None);
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let line = bytes[..at].split(|&byte| byte == b'\n').count();
        ImportError::hinted(
            format!("`{name}` is not UTF-8: 0x{:02x} at byte {at}, line {line}", bytes[at]),
            "save it as UTF-8 and import it again",
        )
    })
}

/// Returns the name of a list and a hash of the text, because another text makes another campaign. A list
/// with its own texts has no hash: a corrected copy belongs to the same campaign.
pub(super) fn campaign_name(stem: &str, text: Option<&str>) -> String {
    let hash = text.map(|text| hex::encode(Sha256::digest(text.trim_end())));
    let hash = hash.as_deref().map_or("", |hash| &hash[..6]);
    let printable = stem.chars().filter(|character| is_printable(*character));
    let stem: String = printable.take(MAX_NAME - hash.len() - 1).collect();
    match (stem.trim(), hash) {
        // `.` and `..` are folders in URLs.
        ("" | "." | "..", "") => "import".to_owned(),
        ("", hash) => format!("import-{hash}"),
        (stem, "") => stem.to_owned(),
        (stem, hash) => format!("{stem}-{hash}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn campaign_is_named_after_list_and_text() {
        assert_eq!(campaign_name("list", None), "list");
        let name = campaign_name("list", Some("Hi"));
        assert!(name.starts_with("list-") && name.len() == 11, "{name}");
        assert_eq!(campaign_name("list", Some("Hi\n")), name);
        assert_ne!(campaign_name("list", Some("Ho")), name);
        let long = campaign_name(&"名\u{7}".repeat(300), Some("Hi"));
        assert_eq!(long.chars().count(), 100);
        assert!(!long.contains(char::is_control));
        assert_eq!(campaign_name(" ", None), "import");
        assert_eq!(campaign_name("..", None), "import");
    }
}
