//! A list that was opened and understood: what will be imported, and how. Nothing is written yet.

use std::collections::HashMap;
use std::path::PathBuf;

use super::columns::{self, Columns};
use super::dedupe::{DedupeKeys, Unique};
use super::encoding::Encoding;
use super::error::ImportError;
use super::file::{ListFile, ReadOptions};
use super::header::Header;
use super::interpretation::Interpretation;
use super::pipeline::Task;
use super::rejects_file::{self, RejectsFile};
use super::row_mapper::{Mapping, ProviderRequirements, RowMapper, Text};
use super::summary::Repeat;
use super::text_source::{TextSource, campaign_name};
use crate::phone::Region;
use crate::store::Campaign;
use crate::text::{closest, did_you_mean};
use crate::window::TIMEZONE;

/// What the operator asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `-` is standard input.
    pub file: PathBuf,
    pub text: TextSource,
    /// `--column NAME=COLUMN`: `phone`, `content`, or a name that the text uses.
    pub columns: Vec<(String, String)>,
    pub region: Option<Region>,
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
}

impl Options {
    pub(super) fn read_options(&self) -> ReadOptions<'_> {
        ReadOptions {
            encoding: self.encoding,
            delimiter: self.delimiter,
            sheet: self.sheet.as_deref(),
            region: self.region,
        }
    }
}

/// A list that can be imported.
#[derive(Debug)]
pub struct Plan {
    list: ListFile,
    header: Header,
    text: Text,
    campaign: String,
    region: Option<Region>,
    smart: bool,
    /// The column with the time zones of the recipients.
    timezone: Option<usize>,
    unique: Option<Unique>,
    rejects: PathBuf,
    requirements: Option<ProviderRequirements>,
    provider_template: Option<String>,
}

impl Plan {
    /// Reads the whole file once, understands its header and parses the text.
    pub fn prepare(options: Options) -> Result<Self, ImportError> {
        let list = ListFile::open(&options.file, options.read_options())?;
        let header = Header::find(&list, &options.columns, options.region)?;
        let timezone = options
            .with_timezone
            .then(|| header.columns.timezone(&list.name));
        let (text, campaign) = text_and_campaign(&options, &list, &header.columns)?;
        let plan = Self {
            timezone: timezone.transpose()?,
            text,
            campaign,
            region: options.region,
            smart: options.smart,
            unique: options.unique,
            rejects: rejects_file::path_for(options.rejects, &list)?,
            requirements: None,
            provider_template: options.template,
            header,
            list,
        };
        plan.keys(&plan.unique())?;
        Ok(plan)
    }

    /// Returns the path as given.
    pub fn file(&self) -> &str {
        &self.list.name
    }

    /// Returns the SHA-256 of the file in lower-case hex.
    pub fn hash(&self) -> &str {
        &self.list.hash
    }

    /// Returns the size of the file.
    pub fn bytes(&self) -> u64 {
        self.list.bytes
    }

    /// Returns the text of all messages with its placeholders, `None` if the list has the texts.
    pub(super) fn template(&self) -> Option<String> {
        match &self.text {
            Text::Template { template, .. } => template.source(),
            Text::Provider => self.provider_template.clone(),
            Text::Column(_) => None,
        }
    }

    /// Returns the campaign of the file if none is named: that of a failures file, or else the stem of the
    /// file and a hash of the text.
    pub fn default_campaign(&self) -> &str {
        &self.campaign
    }

    pub(super) fn set_default_campaign(&mut self, campaign: String) {
        self.campaign = campaign;
    }

    /// Returns `unique` for a new campaign.
    pub fn unique(&self) -> Unique {
        self.unique.clone().unwrap_or_default()
    }

    /// Returns `unique` of `campaign`. Fails if another one was asked for, or if the file lacks a column.
    pub fn unique_in(&self, campaign: &Campaign) -> Result<Unique, ImportError> {
        let unique = Unique::of_campaign(self.unique.as_ref(), Unique::default(), campaign)?;
        self.keys(&unique).map(|_| unique)
    }

    /// Sets what the provider needs. Fails if the file lacks a column for it.
    pub fn set_requirements(
        &mut self,
        requirements: Option<ProviderRequirements>,
    ) -> Result<(), ImportError> {
        let (file, columns) = (&self.list.name, &self.header.columns);
        let is_text = |name: &str| name == "content" && !matches!(self.text, Text::Provider);
        let exists = |name: &&String| is_text(name) || columns.named(name).is_some();
        if let Some(needed) = &requirements
            && let Some(name) = needed.columns.iter().find(|name| !exists(name))
        {
            let column = closest(name, columns.names.iter().map(String::as_str));
            return Err(ImportError::hinted(
                format!(
                    "missing column `{name}` in `{file}`, which the template of provider `{}` needs",
                    needed.provider
                ),
                format!(
                    "name it: `--column {name}={}`",
                    column.as_deref().unwrap_or("COLUMN")
                ),
            ));
        }
        let template = requirements
            .as_ref()
            .and_then(|needed| needed.template.as_ref());
        if matches!(self.text, Text::Provider) && template.is_none() {
            let file = file.clone();
            return Err(ImportError::NoText { file });
        }
        self.requirements = requirements;
        Ok(())
    }

    /// Fails if `--column` names something that neither the text nor `campaign` nor the provider uses.
    pub fn check_columns(&self, campaign: Option<&Campaign>) -> Result<(), ImportError> {
        let mut used: Vec<String> = match &self.text {
            Text::Template { placeholders, .. } => placeholders.keys().cloned().collect(),
            Text::Column(_) | Text::Provider => Vec::new(),
        };
        used.extend(
            self.requirements
                .iter()
                .flat_map(|needed| needed.columns.clone()),
        );
        let of_campaign = campaign.and_then(|campaign| campaign.unique_by.clone());
        for unique in of_campaign.iter().chain([&self.unique().to_string()]) {
            used.extend(unique.split(',').map(str::to_owned));
        }
        used.push(TIMEZONE.to_owned());
        let columns = &self.header.columns;
        let mut aliases = columns.aliases();
        match aliases.find(|(name, _)| !used.iter().any(|used| used == name)) {
            Some((name, column)) => Err(ImportError::hinted(
                format!(
                    "unknown name `{name}` in `--column {name}={}`: nothing uses it",
                    columns.names[column]
                ),
                did_you_mean(name, used.iter().map(String::as_str)).unwrap_or_else(|| {
                    "leave it out, or use it in the text: `{{ NAME }}`".to_owned()
                }),
            )),
            None => Ok(()),
        }
    }

    /// Returns warnings about the text, such as placeholders in another syntax.
    pub fn warnings(&self) -> Vec<String> {
        let Text::Template { template, .. } = &self.text else {
            return Vec::new();
        };
        let names = self.header.columns.names.iter().map(String::as_str);
        let found = template.literal_placeholders(names).into_iter();
        let warning = |word: String| {
            let name = word.trim_matches(|c: char| "{}*|%[]<>«»".contains(c));
            let name = columns::identifier(name);
            format!(
                "the text has `{word}`, which is sent unchanged: write `{{{{ {name} }}}}` for the column"
            )
        };
        found.map(warning).collect()
    }

    /// Describes how the list is read.
    pub fn interpretation(&self) -> Interpretation {
        let text = self.text.describe(&self.header.columns);
        Interpretation::new(&self.list, &self.header, text)
    }

    /// Fails if rejected rows cannot be written.
    pub fn check_rejects(&self) -> Result<(), ImportError> {
        rejects_file::check_writable(&self.rejects)
    }

    fn keys(&self, unique: &Unique) -> Result<DedupeKeys, ImportError> {
        let columns = &self.header.columns;
        DedupeKeys::new(unique, &self.list.name, &self.list.hash, columns)
    }

    /// Returns the task that reads the file from its first row.
    pub(super) fn task(&self, unique: &Unique, keep_rejects: bool) -> Result<Task, ImportError> {
        let rejects = || RejectsFile::new(self.rejects.clone(), &self.list, &self.header);
        Ok(Task {
            records: self.header.records(&self.list)?,
            mapper: RowMapper::new(Mapping {
                columns: self.header.columns.clone(),
                text: self.text.clone(),
                keys: self.keys(unique)?,
                region: self.region,
                smart: self.smart,
                encoding: self.list.encoding,
                is_detected: self.list.is_detected,
                is_guarded: self.header.is_guarded,
                timezone: self.timezone,
                requirements: self.requirements.clone(),
            }),
            rejects: keep_rejects.then(rejects),
        })
    }

    /// Returns for each duplicate the first row with the same key. The file is read again, because keeping
    /// the lines of all rows would need memory in proportion to the list.
    pub(super) fn find_repeats(
        &self,
        unique: &Unique,
        duplicates: &[(u64, String)],
    ) -> Result<Vec<Repeat>, ImportError> {
        let Some((last, _)) = duplicates.last() else {
            return Ok(Vec::new());
        };
        let keys = duplicates.iter().map(|(_, key)| (key.as_str(), None));
        let mut firsts: HashMap<&str, Option<u64>> = keys.collect();
        self.task(unique, false)?.for_each(|message| {
            if let Some(first) = firsts.get_mut(message.dedupe_key.as_str()) {
                first.get_or_insert(message.line);
            }
            message.line < *last
        })?;
        let repeat = |(line, key): &(u64, String)| Repeat {
            line: *line,
            first: firsts[key.as_str()].filter(|first| first < line),
        };
        Ok(duplicates.iter().map(repeat).collect())
    }

    /// Whether rows can name the failed messages that they replace.
    pub(super) fn is_failures_file(&self) -> bool {
        self.header.columns.id.is_some()
    }

    pub(super) fn check_unchanged(&self) -> Result<(), ImportError> {
        self.list.check_unchanged()
    }
}

fn text_and_campaign(
    options: &Options,
    list: &ListFile,
    columns: &Columns,
) -> Result<(Text, String), ImportError> {
    let Some(loaded) = options.text.load(options.smart)? else {
        return match (columns.content, &options.template) {
            (Some(column), _) => Ok((Text::Column(column), campaign_name(&list.stem, None))),
            (None, Some(template)) => {
                Ok((Text::Provider, campaign_name(&list.stem, Some(template))))
            }
            (None, None) => Err(ImportError::NoText {
                file: list.name.clone(),
            }),
        };
    };
    let placeholders = columns.of_placeholders(&list.name, &loaded.name, &loaded.template)?;
    let text = Text::Template {
        template: loaded.template,
        placeholders,
    };
    Ok((text, campaign_name(&list.stem, Some(&loaded.source))))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
