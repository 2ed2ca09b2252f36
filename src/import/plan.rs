//! What will be imported, and how: a file that was opened and understood, with nothing written yet.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::columns::{self, Columns};
use super::digest;
use super::encoding::Encoding;
use super::error::ImportError;
use super::header::Header;
use super::keys::{Keys, Unique};
use super::needs::ProviderRequirements;
use super::pipeline::Task;
use super::rejects::{self, Rejects};
use super::rows::{self, Rows, Text};
use super::source::{Asked, Form, Source};
use crate::phone::Region;
use crate::store::Campaign;
use crate::text::closest;
use crate::text::template::{LONGEST_SOURCE, Template, TemplateError};
use crate::text::{content, is_printable};
use crate::window::TIMEZONE;

/// The longest name of a campaign, in characters.
const LONGEST_NAME: usize = 100;

/// Where the texts come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TextSource {
    /// The column `content` of the file.
    #[default]
    Column,
    /// `--text`: a text, with placeholders.
    Text(String),
    /// `--template`: a file with such a text.
    Template(PathBuf),
}

/// What the operator asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `-` is standard input.
    pub file: PathBuf,
    pub text: TextSource,
    /// `--column NAME=COLUMN`: `phone`, `content`, or a name that the text uses.
    pub columns: Vec<(String, String)>,
    pub region: Option<Region>,
    /// `None`: as the campaign has it, else by phone.
    pub unique: Option<Unique>,
    /// `None`: `<file stem>.rejects.csv` in the current folder.
    pub rejects: Option<PathBuf>,
    /// `None`: found in the header.
    pub delimiter: Option<u8>,
    /// `None`: found in the text.
    pub encoding: Option<Encoding>,
    /// The sheet of a workbook by its name or number; `None`: the first.
    pub sheet: Option<String>,
    /// Typographic characters are replaced where that makes a text cheaper.
    pub smart: bool,
    /// The column `timezone`, or the one that is called so, has the recipients' zones.
    pub with_timezone: bool,
    /// The text of the provider's template, for a list that brings none.
    pub template: Option<String>,
}

/// A file that can be imported.
#[derive(Debug)]
pub struct Plan {
    pub(super) source: Source,
    pub(super) header: Header,
    pub(super) text: Text,
    campaign: String,
    region: Option<Region>,
    smart: bool,
    /// The column of the recipients' zones.
    timezone: Option<usize>,
    unique: Option<Unique>,
    rejects: PathBuf,
    needs: Option<ProviderRequirements>,
    provider_text: Option<String>,
}

impl Plan {
    /// Opens and reads the file once, understands its header, parses the text: every fault of the whole
    /// is found here, and nothing is written.
    pub fn prepare(options: Options) -> Result<Self, ImportError> {
        let source = open(&options)?;
        let header = Header::find(&source, &options.columns, options.region)?;
        let timezone = if options.with_timezone {
            Some(header.columns.timezone(&source.name)?)
        } else {
            None
        };
        let (text, campaign) = read_text(&options, &source, &header.columns)?;
        let rejects = rejects::place_for(options.rejects, &source)?;
        let plan = Self {
            source,
            header,
            text,
            campaign,
            region: options.region,
            smart: options.smart,
            timezone,
            unique: options.unique,
            rejects,
            needs: None,
            provider_text: options.template,
        };
        plan.keys(&plan.unique())?;
        Ok(plan)
    }

    /// The file, as it was named.
    pub fn file(&self) -> &str {
        &self.source.name
    }

    /// The text of all messages with its placeholders; `None` where the list brings the texts.
    pub(super) fn template(&self) -> Option<String> {
        match &self.text {
            Text::Template { template, .. } => template.source(),
            Text::Provider => self.provider_text.clone(),
            Text::Column(_) => None,
        }
    }

    /// SHA-256 of the file, in lower-case hex.
    pub fn hash(&self) -> &str {
        &self.source.hash
    }

    /// The size of the file.
    pub fn bytes(&self) -> u64 {
        self.source.bytes
    }

    /// The name of the campaign if nobody gives one: where [`Plan::resolve_campaign`] found the messages of a
    /// failures file; else the file's stem and a short hash of the text, so that another text for the
    /// same list is another campaign.
    pub fn default_campaign(&self) -> &str {
        &self.campaign
    }

    /// What a new campaign for this file tells its messages apart by.
    pub fn unique(&self) -> Unique {
        self.unique.clone().unwrap_or_default()
    }

    /// What `campaign` tells its messages apart by; an error where the operator asked for something else,
    /// or where the file lacks a column for it.
    pub fn unique_in(&self, campaign: &Campaign) -> Result<Unique, ImportError> {
        let Some(stands) = &campaign.unique_by else {
            return Ok(self.unique());
        };
        let Ok(standing) = stands.parse::<Unique>();
        match &self.unique {
            Some(asked) if *asked != standing => Err(ImportError::Unique {
                campaign: campaign.name.clone(),
                stands: stands.clone(),
                asked: asked.to_string(),
            }),
            _ => self.keys(&standing).map(|_| standing),
        }
    }

    /// The rows must be what the provider needs; an error where the file lacks a column for it.
    pub fn set_requirements(
        &mut self,
        needs: Option<ProviderRequirements>,
    ) -> Result<(), ImportError> {
        let columns = &self.header.columns;
        let is_there = |name: &str| match (&self.text, name) {
            (Text::Column(_) | Text::Template { .. }, "content") => true,
            _ => columns.called(name).is_some(),
        };
        if let Some(needs) = &needs
            && let Some(name) = needs.columns.iter().find(|name| !is_there(name))
        {
            let names = columns.names.iter().map(String::as_str);
            return Err(ImportError::NoParameter {
                file: self.source.name.clone(),
                column: name.clone(),
                provider: needs.provider.clone(),
                closest: closest(name, names),
            });
        }
        let template = needs.as_ref().and_then(|needs| needs.template.as_ref());
        if matches!(self.text, Text::Provider) && template.is_none() {
            let file = self.source.name.clone();
            return Err(ImportError::NoText { file });
        }
        self.needs = needs;
        Ok(())
    }

    /// Fails where `--column` names something that neither the text nor `campaign` nor the provider uses.
    pub fn check_columns(&self, campaign: Option<&Campaign>) -> Result<(), ImportError> {
        let mut used: Vec<String> = match &self.text {
            Text::Template { placeholders, .. } => placeholders.keys().cloned().collect(),
            Text::Column(_) | Text::Provider => Vec::new(),
        };
        let needs = self.needs.iter();
        used.extend(needs.flat_map(|needs| needs.columns.iter().cloned()));
        let standing = campaign.and_then(|campaign| campaign.unique_by.clone());
        for unique in [Some(self.unique().to_string()), standing]
            .into_iter()
            .flatten()
        {
            used.extend(unique.split(',').map(str::to_owned));
        }
        used.push(TIMEZONE.to_owned());
        let columns = &self.header.columns;
        match columns
            .aliases()
            .find(|(name, _)| !used.iter().any(|one| one == name))
        {
            Some((name, column)) => Err(ImportError::UnusedColumn {
                name: name.to_owned(),
                column: columns.names[column].clone(),
                closest: closest(name, used.iter().map(String::as_str)),
            }),
            None => Ok(()),
        }
    }

    /// What looks wrong and is not certainly: placeholders that are none.
    pub fn doubts(&self) -> Vec<String> {
        let Text::Template { template, .. } = &self.text else {
            return Vec::new();
        };
        let names = self.header.columns.names.iter().map(String::as_str);
        let found = template.foreign_placeholders(names).into_iter();
        let doubt = |word: String| {
            let name = word.trim_matches(|c: char| "{}*|%[]<>«»".contains(c));
            let name = columns::identifier(name);
            format!(
                "the text has `{word}`, which is sent as it is: write `{{{{ {name} }}}}` for the column"
            )
        };
        found.map(doubt).collect()
    }

    /// Fails where rejected rows could not be written.
    pub fn check_rejects(&self) -> Result<(), ImportError> {
        rejects::check_writable(&self.rejects)
    }

    fn keys(&self, unique: &Unique) -> Result<Keys, ImportError> {
        let columns = &self.header.columns;
        Keys::of(unique, &self.source.name, &self.source.hash, columns)
    }

    /// The work of reading the file from the first row on, for a thread of its own.
    pub(super) fn task(&self, unique: &Unique, keep_rejects: bool) -> Result<Task, ImportError> {
        let input = self
            .source
            .rows()
            .map_err(|source| self.read_error(source))?;
        let columns = &self.header.columns;
        let rejects = Rejects::new(self.rejects.clone(), &self.source, &self.header);
        Ok(Task {
            file: self.source.name.clone(),
            input,
            skipped: self.header.skipped,
            width: columns.names.len(),
            rows: Rows::new(
                columns.clone(),
                self.text.clone(),
                self.keys(unique)?,
                self.region,
                self.smart,
            )
            .written_in(self.source.encoding, self.source.is_detected)
            .guarded(self.header.is_guarded)
            .with_timezone(self.timezone)
            .set_requirements(self.needs.clone()),
            rejects: keep_rejects.then_some(rejects),
        })
    }

    /// Whether rows may name the messages that they come from.
    pub(super) fn is_failures_file(&self) -> bool {
        self.header.columns.id.is_some()
    }

    pub(super) fn belongs_to(&mut self, campaign: String) {
        self.campaign = campaign;
    }

    pub(super) fn check_unchanged(&self) -> Result<(), ImportError> {
        match self.source.is_unchanged() {
            Ok(true) => Ok(()),
            Ok(false) => Err(ImportError::Changed {
                file: self.source.name.clone(),
            }),
            Err(source) => Err(self.read_error(source)),
        }
    }

    fn read_error(&self, source: std::io::Error) -> ImportError {
        ImportError::Read {
            file: self.source.name.clone(),
            source,
        }
    }
}

/// The file, as the options say to read it.
pub(super) fn open(options: &Options) -> Result<Source, ImportError> {
    let asked = Asked {
        encoding: options.encoding,
        sheet: options.sheet.as_deref(),
        region: options.region,
    };
    let mut source = Source::open(&options.file, asked)?;
    if let (Some(delimiter), Form::Separated(format)) = (options.delimiter, &mut source.form) {
        format.delimiter = delimiter;
    }
    Ok(source)
}

/// The text, and the name of a campaign for it.
fn read_text(
    options: &Options,
    source: &Source,
    columns: &Columns,
) -> Result<(Text, String), ImportError> {
    let (name, content) = match &options.text {
        TextSource::Column => {
            return match (columns.content, &options.template) {
                (Some(column), _) => Ok((Text::Column(column), campaign_name(&source.stem, None))),
                (None, Some(template)) => {
                    Ok((Text::Provider, campaign_name(&source.stem, Some(template))))
                }
                (None, None) => Err(ImportError::NoText {
                    file: source.name.clone(),
                }),
            };
        }
        TextSource::Text(text) => ("--text".to_owned(), text.clone()),
        TextSource::Template(path) => (path.display().to_string(), read_template(path)?),
    };
    let template = Template::parse(&name, &content)?;
    check_constant(&name, &template, options.smart)?;
    let placeholders = columns.of_placeholders(&source.name, &name, &template)?;
    let campaign = campaign_name(&source.stem, Some(&content));
    Ok((
        Text::Template {
            template: Arc::new(template),
            placeholders,
        },
        campaign,
    ))
}

/// Fails where the text is the same for all rows and cannot be sent.
pub(super) fn check_constant(
    name: &str,
    template: &Template,
    smart: bool,
) -> Result<(), ImportError> {
    if !template.placeholders().is_empty() {
        return Ok(());
    }
    let reason = match template.render(|_| None) {
        Ok(text) => match content::check(&rows::written(text, smart)) {
            Ok(()) => return Ok(()),
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    Err(ImportError::Text {
        name: name.to_owned(),
        reason,
    })
}

/// The template's source; a file that is longer than any is read no further.
pub(super) fn read_template(path: &Path) -> Result<String, ImportError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| {
            let most = LONGEST_SOURCE as u64 + 1;
            file.take(most).read_to_end(&mut bytes)
        })
        .map_err(|source| ImportError::from_io(path, &name, source))?;
    if bytes.len() > LONGEST_SOURCE {
        return Err(TemplateError::TooLong { name }.into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        ImportError::Encoding {
            file: name,
            what: format!("0x{:02x}", bytes[byte]),
            byte: byte as u64,
            line: 1 + bytes[..byte]
                .iter()
                .map(|&byte| u64::from(byte == b'\n'))
                .sum::<u64>(),
        }
    })
}

/// A printable name. A file that brings its texts with it has no hash: a corrected copy of it belongs to
/// the same campaign, else everybody would get their message again.
pub(super) fn campaign_name(stem: &str, text: Option<&str>) -> String {
    let mut hash = text
        .map(|text| digest::of(text.trim_end()))
        .unwrap_or_default();
    hash.truncate(6);
    let room = LONGEST_NAME - hash.len() - 1;
    let stem: String = stem
        .chars()
        .filter(|character| is_printable(*character))
        .take(room)
        .collect();
    let stem = stem.trim();
    match (stem, hash.as_str()) {
        ("", "") => "import".to_owned(),
        ("", hash) => format!("import-{hash}"),
        (stem, "") => stem.to_owned(),
        (stem, hash) => format!("{stem}-{hash}"),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
