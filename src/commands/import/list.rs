//! The flags of `import` and `run` that say what a list is and what becomes of it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::commands::moment::Moment;
use crate::commands::window::WindowFlags;
use crate::commands::words::campaign_name;
use crate::import::consumer::EntryOptions;
use crate::import::{Encoding, Options, Plan, RejectLimit, Schedule, TextSource, Unique};
use crate::phone::Region;
use crate::report::shell_word;
use crate::store::Campaign;
use crate::window::{Clock, Days};

/// The flags that say how a list is written, where that is not to be found out.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::commands) struct FileFormat {
    /// What is between the fields [default: found in the header]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// The encoding of the list, like gb18030, utf-16 or windows-1252 [default: found in the list]
    #[arg(long, value_name = "NAME")]
    encoding: Option<Encoding>,
    /// The sheet of a workbook, by its name or number [default: the first]
    #[arg(long, value_name = "NAME")]
    sheet: Option<String>,
}

impl FileFormat {
    /// The options with these flags.
    pub(in crate::commands) fn applied_to(&self, options: Options) -> Options {
        Options {
            delimiter: self.delimiter,
            encoding: self.encoding,
            sheet: self.sheet.clone(),
            ..options
        }
    }
}

#[derive(Debug, clap::Args)]
pub(in crate::commands) struct List {
    /// CSV, XLSX, XLS, ODS or JSON lines, also as .gz or .zip; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(in crate::commands) files: Vec<PathBuf>,
    /// The campaign they belong to [default: that of the failures in it, else the file's name and a short hash of the text]
    #[arg(long, value_name = "NAME", value_parser = campaign_name)]
    pub(in crate::commands) campaign: Option<String>,
    /// The text, where {{ name }} is the column `name` [default: the column `content`]
    #[arg(long, value_name = "TEXT", conflicts_with = "template")]
    text: Option<String>,
    /// A file with the text
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Which column is what, like `phone=手机号`, `phone=mobile,home` or `name=first_name`; repeatable
    #[arg(long, value_name = "NAME=COLUMN", value_parser = column)]
    column: Vec<(String, String)>,
    #[command(flatten)]
    format: FileFormat,
    /// Replace typographic quotes, dashes and spaces where that makes a text cheaper
    #[arg(long)]
    smart: bool,
    /// Where numbers without a country code are at home, like GB [default: setting `default_region`]
    #[arg(long)]
    pub(in crate::commands) region: Option<Region>,
    /// What makes two rows the same message: columns with commas, or `none` [default: the phone]
    #[arg(long, value_name = "COLUMN,…|none")]
    pub(super) unique: Option<Unique>,
    /// Who sends the campaign [default: setting `default_provider`]
    #[arg(long, value_name = "NAME")]
    pub(in crate::commands) provider: Option<String>,
    /// The sender that recipients see
    #[arg(long, value_name = "SENDER", value_parser = sender)]
    pub(in crate::commands) from: Option<String>,
    /// Where rejected rows go [default: <file>.rejects.csv in the current folder]
    #[arg(long, value_name = "FILE")]
    pub(in crate::commands) rejects: Option<PathBuf>,
    /// Write nothing if more rows than that would be rejected: 5% or 100 [default: setting `import.max_rejects`]
    #[arg(long, value_name = "SHARE")]
    pub(in crate::commands) max_rejects: Option<RejectLimit>,
    /// The same file may go to another campaign within a day
    #[arg(long)]
    pub(in crate::commands) again: bool,
    /// Not before this moment: 2026-12-24T09:00:00Z, "2026-12-24 09:00" or +2h [default: at once]
    #[arg(long, value_name = "TIME")]
    pub(in crate::commands) at: Option<Moment>,
    /// Not after this moment, or a span counted from --at (+8h): a message still unsent then fails as expired
    #[arg(long, value_name = "TIME")]
    pub(in crate::commands) expires: Option<Moment>,
    #[command(flatten)]
    pub(in crate::commands) hours: WindowFlags,
}

impl List {
    /// What entries of a queue are made of.
    pub(super) fn entries(&self, region: Option<Region>) -> EntryOptions {
        EntryOptions {
            text: self.text_source(),
            columns: self.column.clone(),
            region,
            smart: self.smart,
        }
    }

    fn text_source(&self) -> TextSource {
        match (&self.text, &self.template) {
            (Some(text), _) => TextSource::Text(text.clone()),
            (None, Some(file)) => TextSource::Template(file.clone()),
            (None, None) => TextSource::Column,
        }
    }

    pub(super) fn options(&self, file: &Path, region: Option<Region>) -> Options {
        self.format.applied_to(Options {
            file: file.to_owned(),
            text: self.text_source(),
            columns: self.column.clone(),
            region,
            unique: self.unique.clone(),
            rejects: self.rejects.clone(),
            smart: self.smart,
            with_timezone: self.hours.is_by_column(),
            ..Options::default()
        })
    }

    /// The command that imports the fixed rows of a rejects file.
    pub(super) fn command(&self, rejects: &Path, campaign: &Campaign, window: Schedule) -> String {
        let mut command = format!("smsq import {}", shell_word(&rejects.display().to_string()));
        let mut flag = |name: &str, value: &str| {
            let _ = write!(command, " {name} {}", shell_word(value));
        };
        flag("--campaign", &campaign.name);
        match (&self.text, &self.template) {
            (Some(text), _) => flag("--text", text),
            (None, Some(file)) => flag("--template", &file.display().to_string()),
            (None, None) => {}
        }
        for (name, column) in &self.column {
            flag("--column", &format!("{name}={column}"));
        }
        if let Some(region) = self.region {
            flag("--region", &region.to_string());
        }
        if let Some(encoding) = self.format.encoding {
            flag("--encoding", &encoding.to_string());
        }
        if let Some(at) = window.due_at {
            flag("--at", &at.to_string());
        }
        if let Some(at) = window.expires_at {
            flag("--expires", &at.to_string());
        }
        // Rows bring their zones with them only where the flags say so.
        if let (true, Some(hours)) = (self.hours.is_by_column(), &campaign.window)
            && let Clock::Row(fallback) = &hours.clock
        {
            flag("--window", &hours.hours.to_string());
            flag("--timezone", "column");
            flag("--fallback-timezone", &fallback.to_string());
            if hours.days != Days::DAILY {
                flag("--days", &hours.days.to_string());
            }
        }
        if self.smart {
            command.push_str(" --smart");
        }
        command
    }

    /// The name of the campaign that a file goes to.
    pub(in crate::commands) fn campaign_for<'a>(&'a self, plan: &'a Plan) -> &'a str {
        self.campaign.as_deref().unwrap_or(plan.default_campaign())
    }
}

pub(in crate::commands) fn column(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, column)) if !name.trim().is_empty() && !column.trim().is_empty() => {
            Ok((name.trim().to_owned(), column.trim().to_owned()))
        }
        _ => Err("write it like `phone=手机号`: what it is, `=`, the column".to_owned()),
    }
}

/// Providers differ in what a sender may be; it is some text.
fn sender(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the sender is empty: leave the flag out for the provider's own".to_owned()),
        sender if sender.chars().any(char::is_control) => {
            Err("the sender has a control character".to_owned())
        }
        sender => Ok(sender.to_owned()),
    }
}

pub(in crate::commands) fn delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(b'\t'),
        (_, [byte]) if byte.is_ascii_punctuation() || *byte == b'\t' => Ok(*byte),
        _ => Err("one character like `;` or `|`, or `tab`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_named_with_what_it_is() {
        let read = column("phone=手机号");
        assert_eq!(read, Ok(("phone".to_owned(), "手机号".to_owned())));
        for bad in ["phone", "=x", "phone=", ""] {
            assert!(column(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_empty_sender_is_refused() {
        assert_eq!(sender(" ACME "), Ok("ACME".to_owned()));
        for bad in ["", " ", "A\u{1b}"] {
            assert!(sender(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_delimiter_is_one_character() {
        assert_eq!(delimiter(";"), Ok(b';'));
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        for bad in ["", ";;", "a", "；"] {
            assert!(delimiter(bad).is_err(), "{bad}");
        }
    }
}
