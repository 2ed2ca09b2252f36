//! The flags of `import` and `run` that describe a list and its campaign.

use std::fmt::Write as _;
use std::path::PathBuf;

use smsq_import::{
    Encoding, Options, RejectLimit, Schedule, Summary, TextSource, Unique, When, assignment,
    campaign_name, delimiter, formats, sender,
};
use smsq_message::budget::Budget;
use smsq_message::phone::{Dialling, Numbers, Region};
use smsq_message::window::{Days, ZoneSource};
use smsq_operations::{Cancelled, ListOptions};
use smsq_process::atomic_file::is_stdout;
use smsq_report::shell_word;
use smsq_store::{Campaign, Store};

use crate::commands::values::WindowFlags;
use crate::commands::{Context, practice};
use crate::config::Config;

/// How to read a file, where that is not detected.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::commands) struct FileFormat {
    /// The character between fields [default: detected]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    pub(super) delimiter: Option<u8>,
    /// The encoding, such as gb18030, utf-16 or windows-1252 [default: detected]
    #[arg(long, value_name = "NAME")]
    pub(super) encoding: Option<Encoding>,
    /// The sheet of a workbook, by name or number [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(super) sheet: Option<String>,
}

impl FileFormat {
    pub(in crate::commands) fn applied_to(&self, options: Options) -> Options {
        Options {
            delimiter: self.delimiter,
            encoding: self.encoding,
            sheet: self.sheet.clone(),
            ..options
        }
    }
}

/// How to read numbers that do not begin with `+`.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(in crate::commands) struct NumberFlags {
    /// The country of numbers without a country code, such as GB [default: setting `default_region`]
    #[arg(long)]
    pub(in crate::commands) region: Option<Region>,
    /// Numbers without `+` begin with a country code [default: setting `import.numbers`]
    #[arg(long, conflicts_with = "national")]
    pub(super) international: bool,
    /// Numbers without `+` that can be mobiles of the region are, also if they can be of another country
    #[arg(long)]
    pub(super) national: bool,
}

impl NumberFlags {
    /// What numbers without `+` are; `None`: the setting.
    pub(in crate::commands) fn as_str(self) -> Option<&'static str> {
        match (self.international, self.national) {
            (true, _) => Some("international"),
            (_, true) => Some("national"),
            _ => None,
        }
    }

    pub(in crate::commands) fn dialling(self, config: &Config) -> Dialling {
        Dialling {
            region: self.region.or(config.default_region),
            numbers: match (self.international, self.national) {
                (true, _) => Numbers::International,
                (_, true) => Numbers::National,
                _ => config.import.numbers,
            },
            countries: config.limits.countries,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(in crate::commands) struct List {
    #[arg(required_unless_present = "query", value_name = "FILE", help = format!(
        "{}, also as .gz or .zip; `-` is standard input", formats()
    ))]
    pub(super) files: Vec<PathBuf>,
    /// A file with a query whose rows are the list, from the database of another program that --from names
    #[arg(long, value_name = "FILE", conflicts_with = "files", requires = "from")]
    pub(super) query: Option<PathBuf>,
    /// The campaign [default: for failed messages their own, else the file's name and a short hash of the text]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    pub(super) campaign: Option<String>,
    /// The text, in which {{ name }} is replaced by column `name` [default: column `content`]
    #[arg(long, value_name = "TEXT", conflicts_with = "template")]
    pub(super) text: Option<String>,
    /// A file with the text
    #[arg(long, value_name = "FILE")]
    pub(super) template: Option<PathBuf>,
    /// Map a field to a column of the list: `phone=手机号`, `phone=mobile,home` or `name=first_name`; repeatable
    #[arg(long, value_name = "NAME=COLUMN", value_parser = assignment)]
    pub(super) column: Vec<(String, String)>,
    #[command(flatten)]
    pub(super) format: FileFormat,
    /// Replace typographic quotes, dashes and spaces where that saves segments
    #[arg(long)]
    pub(super) smart: bool,
    #[command(flatten)]
    pub(super) numbers: NumberFlags,
    /// Columns that identify a duplicate row, with commas, or `none` [default: phone]
    #[arg(long, visible_alias = "key", value_name = "COLUMN,…|none")]
    pub(super) unique: Option<Unique>,
    /// The provider or route that sends the campaign [default: setting `default_provider`]
    #[arg(long, visible_alias = "route", value_name = "NAME")]
    pub(in crate::commands) provider: Option<String>,
    /// The sender that recipients see; with --query, the database: `postgres://user@host/database`, `mysql://…`,
    /// `sqlite:FILE`, or NAME of a section [sources.NAME]
    #[arg(long, value_name = "SENDER|DATABASE", value_parser = sender)]
    pub(super) from: Option<String>,
    /// The sender that recipients see, also with --query
    #[arg(long, value_name = "SENDER", value_parser = sender)]
    pub(super) sender: Option<String>,
    /// The file for rejected rows [default: <file>.rejects.csv in the current folder]
    #[arg(long, value_name = "FILE")]
    pub(super) rejects: Option<PathBuf>,
    /// Write nothing if more rows would be rejected: 5% or 100 [default: setting `import.max_rejects`]
    #[arg(long, value_name = "SHARE")]
    pub(super) max_rejects: Option<RejectLimit>,
    /// Import the file even if another campaign imported it in the last 24 hours
    #[arg(long)]
    pub(super) again: bool,
    /// When sending starts: 2026-12-24T09:00:00Z, "2026-12-24 09:00" or +2h [default: at once]
    #[arg(long, value_name = "TIME")]
    pub(super) at: Option<When>,
    /// When messages that were not sent fail as expired: a time, or +8h counted from --at
    #[arg(long, value_name = "TIME")]
    pub(super) expires: Option<When>,
    /// The most that its messages may cost, by the prices in `[prices.NAME]`: "500 EUR"; then the campaign is paused
    #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true)]
    pub(super) budget: Option<Budget>,
    #[command(flatten)]
    pub(super) window: WindowFlags,
}

impl List {
    /// The first FILE that is the url of a Redis server.
    pub(super) fn redis_url(&self) -> Option<&str> {
        let mut files = self.files.iter().filter_map(|file| file.to_str());
        files.find(|file| file.starts_with("redis://") || file.starts_with("rediss://"))
    }

    /// The query and the database that it reads; `None` for files.
    pub(super) fn source(&self) -> Option<(&PathBuf, &str)> {
        self.query.as_ref().zip(self.from.as_deref())
    }

    fn sender(&self) -> Option<String> {
        let from = self.from.as_ref().filter(|_| self.query.is_none());
        self.sender.as_ref().or(from).cloned()
    }

    pub(super) fn has_rejects_on_stdout(&self) -> bool {
        self.rejects.as_deref().is_some_and(is_stdout)
    }

    /// The options of the import, with the settings.
    pub(super) fn options(&self, context: &Context) -> ListOptions {
        let window = self.window.request();
        ListOptions {
            list: self.format.applied_to(Options {
                text: match (&self.text, &self.template) {
                    (Some(text), _) => TextSource::Text(text.clone()),
                    (None, Some(file)) => TextSource::Template(file.clone()),
                    (None, None) => TextSource::Column,
                },
                columns: self.column.clone(),
                dialling: self.numbers.dialling(&context.config),
                unique: self.unique.clone(),
                rejects: self.rejects.clone(),
                smart: self.smart,
                with_timezone: window.is_by_column(),
                ..Options::default()
            }),
            campaign: self.campaign.clone(),
            provider: self.provider.clone(),
            sender: self.sender(),
            max_rejects: self.max_rejects.or(context.config.import.max_rejects),
            at: self.at,
            expires: self.expires,
            window,
            budget: self.budget.clone(),
            rate: None,
            posted_by: None,
            may_change: true,
            cancelled: Cancelled::Resume,
            period: None,
            settings: context.list_settings(),
        }
    }

    /// The command that imports the rejects file after it was fixed; empty if there is none. In practice it also sends
    /// the messages, to the same database.
    pub(super) fn rejects_command(
        &self,
        store: &Store,
        summary: &Summary,
        campaign: &Campaign,
        schedule: Schedule,
    ) -> String {
        let Some(rejects) = &summary.rejects_file else {
            return String::new();
        };
        let name = if store.mode().is_practice() { "run" } else { "import" };
        let rejects = shell_word(&rejects.display().to_string());
        let mut command = format!("smsq {name} {rejects}");
        let mut flag = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = write!(command, " {name} {}", shell_word(&value));
            }
        };
        flag("--campaign", Some(campaign.name.clone()));
        flag("--text", self.text.clone());
        let template = self.template.as_ref();
        flag("--template", template.map(|file| file.display().to_string()));
        for (name, column) in &self.column {
            flag("--column", Some(format!("{name}={column}")));
        }
        let region = self.numbers.region;
        flag("--region", region.map(|region| region.to_string()));
        let encoding = self.format.encoding;
        flag("--encoding", encoding.map(|encoding| encoding.to_string()));
        flag("--at", schedule.due_at.map(|at| at.to_string()));
        flag("--expires", schedule.expires_at.map(|at| at.to_string()));
        // The campaign keeps its window; only the time zones of rows have to be asked for again.
        if let (true, Some(window)) = (self.window.request().is_by_column(), &campaign.window)
            && let ZoneSource::Column(fallback) = &window.zone
        {
            flag("--window", Some(window.hours.to_string()));
            flag("--timezone", Some("column".to_owned()));
            flag("--fallback-timezone", Some(fallback.to_string()));
            let days = Some(window.days).filter(|days| *days != Days::DAILY);
            flag("--days", days.map(|days| days.to_string()));
        }
        for (is_set, switch) in [
            (self.numbers.international, " --international"),
            (self.numbers.national, " --national"),
            (self.smart, " --smart"),
        ] {
            command += if is_set { switch } else { "" };
        }
        command + &practice::flags(store)
    }
}
