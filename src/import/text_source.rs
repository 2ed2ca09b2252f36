//! Where the text of the messages comes from, and the name of the campaign that follows from it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::error::ImportError;
use super::row_mapper::simplified;
use crate::text::template::{self, MAX_SOURCE, Template, TemplateError};
use crate::text::{content, is_printable};

/// The longest name of a campaign, in characters.
const MAX_NAME: usize = 100;

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

/// A template and its source.
pub(super) struct LoadedText {
    /// The file or flag of the template.
    pub(super) name: String,
    pub(super) source: String,
    pub(super) template: Arc<Template>,
}

impl TextSource {
    /// Parses the template; `None` if the list has the texts. Fails if a text without placeholders cannot
    /// be sent.
    pub(super) fn load(&self, smart: bool) -> Result<Option<LoadedText>, ImportError> {
        let (name, source) = match self {
            Self::Column => return Ok(None),
            Self::Text(text) => ("--text".to_owned(), text.clone()),
            Self::Template(path) => (path.display().to_string(), read_template(path)?),
        };
        let template = Template::parse(&name, &source)?;
        if template.placeholders().is_empty() {
            let cannot_send =
                |reason: String| ImportError::new(format!("cannot send `{name}`: {reason}"));
            let text = template.render(|_| None);
            let text = text.map_err(|error| cannot_send(error.to_string()))?;
            let checked = content::check(&simplified(text, smart));
            checked.map_err(|error| cannot_send(error.to_string()))?;
        }
        Ok(Some(LoadedText {
            name,
            source,
            template: Arc::new(template),
        }))
    }
}

fn read_template(path: &Path) -> Result<String, ImportError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| {
        let limit = MAX_SOURCE as u64 + 1;
        file.take(limit).read_to_end(&mut bytes)
    });
    read.map_err(|source| ImportError::open(path, &name, source))?;
    if bytes.len() > MAX_SOURCE {
        let problem = template::too_long();
        return Err(TemplateError { name, problem }.into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let line = bytes[..at].split(|&byte| byte == b'\n').count();
        ImportError::hinted(
            format!(
                "`{name}` is not UTF-8: 0x{:02x} at byte {at}, line {line}",
                bytes[at]
            ),
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
        ("", "") => "import".to_owned(),
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
    }
}
