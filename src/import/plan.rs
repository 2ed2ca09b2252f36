//! A list that was opened and understood: what will be imported, and how. Nothing is written yet.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use smsq_message::route::{CONTENT, Route, needed_column};
use smsq_message::text::{closest, did_you_mean, listed};
use smsq_message::window::TIMEZONE;
use smsq_store::{Campaign, Store};

use super::columns::identifier;
use super::dedupe::{DedupeKeys, Unique};
use super::error::ImportError;
use super::file::ListFile;
use super::header::{Header, Interpretation};
use super::options::{Options, campaign_name};
use super::pipeline::{self, Task};
use super::rejects_file::{self, RejectsFile};
use super::row_mapper::{MappedRow, ProviderRequirements, RowMapper, Text};

/// How many campaigns an error lists.
const MAX_LISTED: usize = 5;

/// A list that can be imported.
pub struct Plan {
    pub(super) list: ListFile,
    header: Header,
    text: Text,
    campaign: String,
    /// The column with the time zones of the recipients.
    timezone: Option<usize>,
    rejects: PathBuf,
    requirements: Option<ProviderRequirements>,
    options: Options,
}

/// Messages, rejected rows with their numbers, and the path of the rejects file.
#[cfg(feature = "fuzz")]
type FuzzedRows =
    (Vec<smsq_message::sms::NewSms>, Vec<(u64, super::error::Rejection)>, Option<PathBuf>);

impl Plan {
    /// Reads the whole file, understands its header and parses the text.
    pub fn prepare(mut options: Options) -> Result<Self, ImportError> {
        let list = ListFile::open(&options)?;
        let header = Header::find(&list, &options.columns, options.dialling)?;
        options.dialling = header.detect_numbers(&list, options.dialling)?;
        let columns = &header.columns;
        let timezone = options
            .with_timezone
            .then(|| columns.required(TIMEZONE, "--timezone column"))
            .transpose()?;
        let (text, source) = match (options.load_text()?, columns.content, &options.template) {
            (Some(template), ..) => {
                let source = template.source().to_owned();
                let placeholders = columns.of_placeholders(&template)?;
                let text = Text::Template { template, placeholders };
                (text, Some(source))
            }
            (None, Some(column), _) => (Text::Column(column), None),
            (None, None, Some(template)) => (Text::Provider, Some(template.clone())),
            (None, None, None) => {
                return Err(ImportError::NoText { list: list.text.name });
            }
        };
        let plan = Self {
            text,
            campaign: campaign_name(&list.stem, source.as_deref()),
            timezone,
            rejects: rejects_file::path_for(options.rejects.as_ref(), &list)?,
            requirements: None,
            header,
            list,
            options,
        };
        plan.keys(&plan.unique())?;
        Ok(plan)
    }

    /// Returns what messages call the file: the path as given, unless it has a name of its own.
    pub fn file(&self) -> &str {
        self.list.name()
    }

    /// Returns the SHA-256 of the file in lower-case hex.
    pub fn hash(&self) -> &str {
        &self.list.hash
    }

    /// Returns what the same list has when it is imported again: the hash of its file, or that of its query, whose rows may
    /// differ.
    pub fn identity(&self) -> &str {
        let query = self.options.query.as_ref();
        query.map_or(self.hash(), |query| query.identity())
    }

    /// Returns the providers and senders that its messages are divided among.
    pub fn route(&self) -> Option<Arc<Route>> {
        self.requirements.as_ref()?.route.clone()
    }

    /// Returns the text of all messages with its placeholders, `None` if the list has the texts.
    pub(super) fn template(&self) -> Option<&str> {
        match &self.text {
            Text::Template { template, .. } => Some(template.source()),
            Text::Provider => self.options.template.as_deref(),
            Text::Column(_) => None,
        }
    }

    /// Returns the campaign of the file if none is named: that of a failures file, or else the stem of the
    /// file and a hash of the text.
    pub fn default_campaign(&self) -> &str {
        &self.campaign
    }

    /// Returns whether rows can name failed messages, which they replace.
    pub fn names_failed_messages(&self) -> bool {
        self.header.columns.id.is_some()
    }

    /// Makes the campaign of a failures file the default one, if the database knows any of its messages.
    /// Fails if they are of several campaigns.
    pub async fn resolve_campaign(&mut self, store: &Store) -> Result<(), ImportError> {
        if self.header.columns.id.is_none() {
            return Ok(());
        }
        let mut found = BTreeSet::new();
        let task = self.task(&self.unique(), false)?;
        pipeline::stream::<_, ImportError>(task, async |parsed| {
            let rows = || parsed.rows.iter().map(|row| &row.message);
            let ids: Vec<i64> = rows().filter_map(|row| row.replaces).collect();
            let origins = store.imports().origins(&ids).await?;
            found.extend(rows().filter_map(|row| {
                let origin = origins.get(&row.replaces?)?;
                origin.shares_with(row).then_some(origin.campaign_id)
            }));
            Ok(())
        })
        .await?;
        if found.is_empty() {
            // All were replaced by an earlier import: the same file again goes to the same campaign.
            found.extend(store.imports().campaign_of_file(self.hash()).await?);
        }
        let ids: Vec<i64> = found.into_iter().collect();
        let names = store.campaign_names(&ids).await?;
        if names.len() > 1 {
            let is_cut = names.len() > MAX_LISTED;
            let more = if is_cut { ", …" } else { "" };
            let listed = listed(names.values().take(MAX_LISTED).map(String::as_str));
            let list = self.list.name();
            return Err(ImportError::hinted(
                format!("the rows of `{list}` are messages of several campaigns: {listed}{more}"),
                "choose one with `--campaign NAME`, or import one campaign at a time: \
                 `smsq report --campaign NAME --failed` has the failures of one",
            ));
        }
        if let Some(name) = names.into_values().next() {
            self.campaign = name;
        }
        Ok(())
    }

    /// Returns `unique` for a new campaign.
    pub fn unique(&self) -> Unique {
        self.options.unique.clone().unwrap_or_default()
    }

    /// Returns `unique` of `campaign`. Fails if another one was asked for, or if the file lacks a column.
    pub fn unique_in(&self, campaign: &Campaign) -> Result<Unique, ImportError> {
        let asked = self.options.unique.as_ref();
        let unique = Unique::of_campaign(asked, Unique::default(), campaign)?;
        self.keys(&unique).map(|_| unique)
    }

    /// Sets what the provider needs. Fails if the file lacks a column for it.
    pub fn set_requirements(
        &mut self,
        mut requirements: Option<ProviderRequirements>,
    ) -> Result<(), ImportError> {
        let (list, columns) = (self.list.name(), &self.header.columns);
        let is_text = |name: &str| name == CONTENT && !matches!(self.text, Text::Provider);
        let exists = |name: &str| is_text(name) || columns.named(name).is_some();
        let missing = requirements.as_mut().and_then(|needed| {
            let Some(route) = needed.route.as_ref().filter(|route| !route.is_pool()) else {
                let name = needed.columns.iter().find(|name| !exists(name))?;
                return Some((needed.provider.clone(), name.clone()));
            };
            let route = Arc::new(route.with_columns(exists));
            let (provider, name) = route.lacking().next()?;
            let missing = (provider.to_owned(), name.to_owned());
            let is_sent = route.lacking().count() < route.members().len();
            needed.route = Some(Arc::clone(&route));
            (!is_sent).then_some(missing)
        });
        if let Some((provider, name)) = missing {
            let column = closest(&name, columns.names.iter().map(String::as_str));
            let column = column.as_deref().unwrap_or("COLUMN");
            return Err(ImportError::hinted(
                format!(
                    "missing column `{name}` in `{list}`, which the template of provider `{provider}` needs"
                ),
                format!("name it: `--column {name}={column}`"),
            ));
        }
        let template = requirements.as_ref().and_then(|needed| needed.template.as_ref());
        if matches!(self.text, Text::Provider) && template.is_none() {
            return Err(ImportError::NoText { list: list.to_owned() });
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
        let requirements = self.requirements.iter();
        used.extend(requirements.flat_map(|needed| needed.columns.clone()));
        let of_campaign = campaign.and_then(|campaign| campaign.unique_by.clone());
        for unique in of_campaign.iter().chain([&self.unique().to_string()]) {
            used.extend(unique.split(',').map(str::to_owned));
        }
        used.push(TIMEZONE.to_owned());
        let columns = &self.header.columns;
        let mut aliases = columns.aliases.iter();
        let Some((name, column)) = aliases.find(|(name, _)| !used.contains(name)) else {
            return Ok(());
        };
        let column = &columns.names[*column];
        let hint = did_you_mean(name, used.iter().map(String::as_str));
        Err(ImportError::hinted(
            format!("unknown name `{name}` in `--column {name}={column}`: nothing uses it"),
            hint.unwrap_or("leave it out, or use it in the text: `{{ NAME }}`".to_owned()),
        ))
    }

    /// Returns warnings about providers that send none of its messages, and about the text, such as placeholders in
    /// another syntax.
    pub fn warnings(&self) -> Vec<String> {
        let route = self.requirements.iter().flat_map(|needed| &needed.route);
        let lacking = route.flat_map(|route| route.lacking());
        let unused = lacking.map(|(provider, column)| {
            let needed = needed_column(column);
            format!("provider `{provider}` sends none of its messages: it needs {needed}, which the list lacks")
        });
        unused.chain(self.text_warnings()).collect()
    }

    fn text_warnings(&self) -> Vec<String> {
        let Text::Template { template, .. } = &self.text else {
            return Vec::new();
        };
        let names = self.header.columns.names.iter().map(String::as_str);
        let warning = |word: String| {
            let name = identifier(word.trim_matches(|c: char| "{}*|%[]<>«»".contains(c)));
            format!(
                "the text has `{word}`, which is sent unchanged: write `{{{{ {name} }}}}` for the column"
            )
        };
        let found = template.literal_placeholders(names).into_iter();
        found.map(warning).collect()
    }

    /// Describes how the list is read.
    pub fn interpretation(&self) -> Interpretation {
        let names = &self.header.columns.names;
        let text = match &self.text {
            Text::Column(column) => format!("column `{}`", names[*column]),
            Text::Provider => "the provider's template".to_owned(),
            Text::Template { placeholders, .. } if placeholders.is_empty() => {
                "the same for all".to_owned()
            }
            Text::Template { placeholders, .. } => {
                let placeholders = placeholders.iter();
                let described = placeholders.map(|(placeholder, &column)| match &names[column] {
                    name if name == placeholder => format!("`{name}`"),
                    name => format!("`{placeholder}` from `{name}`"),
                });
                format!("with {}", described.collect::<Vec<_>>().join(", "))
            }
        };
        self.header.interpretation(&self.list, text)
    }

    /// Fails if rejected rows cannot be written.
    pub fn check_rejects(&self) -> Result<(), ImportError> {
        rejects_file::check_writable(&self.rejects)
    }

    fn keys(&self, unique: &Unique) -> Result<DedupeKeys, ImportError> {
        DedupeKeys::new(unique, &self.list.hash, &self.header.columns)
    }

    /// Reads all rows on this thread; returns also the path of the rejects file, if it is kept and any row is rejected.
    #[cfg(feature = "fuzz")]
    #[doc(hidden)]
    pub fn fuzz_rows(&self, keep_rejects: bool) -> Result<FuzzedRows, ImportError> {
        let task = self.task(&self.unique(), keep_rejects)?;
        let (parsed, rejects) = task.fuzz_rows()?;
        let rows = parsed.rows.into_iter().map(|row| row.message).collect();
        Ok((rows, parsed.rejected, rejects))
    }

    /// Returns the task that reads the list from its first row.
    pub(super) fn task(
        &self,
        unique: &Unique,
        keep_rejects: bool,
    ) -> Result<Task<MappedRow>, ImportError> {
        let Self { list, header, text, options, .. } = self;
        let columns = header.columns.clone();
        let keys = self.keys(unique)?;
        let mut mapper = RowMapper::new(columns, text.clone(), keys, options.clone());
        mapper.set_needs(self.timezone, self.requirements.clone());
        mapper.encoding = list.text.encoding;
        mapper.is_detected = list.is_detected;
        mapper.is_guarded = header.is_guarded;
        let rejects = || RejectsFile::new(self.rejects.clone(), list, header);
        Ok(Task {
            records: header.records(list)?,
            map: Box::new(move |record| {
                let row = mapper.map(record)?;
                let size = row.message.content.len() + row.message.params.len();
                Ok((row, size))
            }),
            rejects: keep_rejects.then(rejects),
            until: options.until.clone(),
        })
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
