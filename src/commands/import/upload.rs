//! The list of an upload: its fields are the flags of `smsq import` without `--`.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use super::args::{List, Upload, delimiter, sender};
use crate::commands::values::{assignment, campaign_name};
use crate::serve::UploadRequest;
use crate::text::printable_line;

impl List {
    /// Reads the fields of an upload. The error is a sentence.
    pub(in crate::commands) fn of_upload(
        file: &Path,
        request: &UploadRequest,
        rejects: Option<&Path>,
    ) -> Result<Self, String> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let mut list = Self {
            files: vec![file.to_owned()],
            name: Some(printable_line(&name).into_owned()),
            upload: Some(Upload {
                posted_by: request.posted_by.clone(),
                may_change: request.may_change,
            }),
            rejects: rejects.map(Path::to_owned),
            ..Self::default()
        };
        for (index, field) in request.fields.iter().enumerate() {
            let name = field.name.as_str();
            let mut earlier = request.fields[..index].iter();
            if name != "column" && earlier.any(|earlier| earlier.name == name) {
                return Err(format!("duplicate field `{name}`"));
            }
            list.set(name, &field.value)
                .map_err(|problem| format!("invalid `{name}`: {problem}"))?;
        }
        if list.numbers.international && list.numbers.national {
            return Err("invalid `national`: it cannot be used with `international`".to_owned());
        }
        Ok(list)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "campaign" => self.campaign = Some(campaign_name(value)?),
            "text" => self.text = Some(value.to_owned()),
            "column" => self.column.push(assignment(value)?),
            "region" => self.numbers.region = Some(parsed(value)?),
            "international" => self.numbers.international = switch(value)?,
            "national" => self.numbers.national = switch(value)?,
            "smart" => self.smart = switch(value)?,
            "unique" => self.unique = Some(parsed(value)?),
            "at" => self.at = Some(parsed(value)?),
            "expires" => self.expires = Some(parsed(value)?),
            "delimiter" => self.format.delimiter = Some(delimiter(value)?),
            "encoding" => self.format.encoding = Some(parsed(value)?),
            "sheet" => self.format.sheet = Some(value.to_owned()),
            "provider" => self.provider = Some(value.to_owned()),
            "from" => self.from = Some(sender(value)?),
            "max-rejects" => self.max_rejects = Some(parsed(value)?),
            "again" => self.again = switch(value)?,
            _ if self.window.set(name, value)? => {}
            _ => return Err("an upload has no such field".to_owned()),
        }
        Ok(())
    }
}

fn parsed<T: FromStr<Err: Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}

fn switch(value: &str) -> Result<bool, &'static str> {
    match value.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" | "" => Ok(false),
        _ => Err("use `true` or `false`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::ImportField;

    fn read(fields: &[(&str, &str)]) -> Result<List, String> {
        let request = UploadRequest {
            fields: fields
                .iter()
                .map(|(name, value)| ImportField {
                    name: (*name).to_owned(),
                    value: (*value).to_owned(),
                })
                .collect(),
            posted_by: "shop".to_owned(),
            may_change: false,
        };
        List::of_upload(Path::new("list.csv"), &request, None)
    }

    #[test]
    fn fields_of_an_upload_are_those_of_an_import() {
        let list = read(&[
            ("text", "--yes"),
            ("column", "who=name"),
            ("column", "phone=mobile"),
            ("national", " true "),
            ("smart", "0"),
            ("days", "mon-fri"),
        ])
        .expect("a list");
        assert_eq!(list.text.as_deref(), Some("--yes"));
        assert_eq!(list.column.len(), 2);
        assert!(list.numbers.national && !list.smart);
        for (fields, expected) in [
            (vec![("region", "Atlantis")], "invalid `region`: "),
            (vec![("smart", "yes")], "invalid `smart`: use `true` or"),
            (vec![("text", "a"), ("text", "b")], "duplicate field `text`"),
            (vec![("template", "a")], "invalid `template`: an upload has"),
            (
                vec![("national", "1"), ("international", "1")],
                "invalid `national`: it cannot",
            ),
        ] {
            let problem = read(&fields).expect_err("a problem");
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
