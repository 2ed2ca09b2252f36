//! The request of an upload: its fields are the flags of `smsq import` without `--`, and each needs a role.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smsq_import::{Options, TextSource, assignment, campaign_name, delimiter, sender};
use smsq_message::phone::Numbers;
use smsq_message::text::{listed, printable_line};
use smsq_operations::{Cancelled, ListOptions, limit};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{
    AdditionalProperties, KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type,
};
use utoipa::{PartialSchema, ToSchema};

use crate::tokens::{Identity, Permission};

/// A field of an upload: a flag of `smsq import` without `--`, and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImportField {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// What a field of an upload concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadField {
    /// The list and its messages: role `send` is enough.
    List,
    /// The settings of the campaign, or a check that protects from mistakes: needs role `operate` too.
    Change,
}

/// The fields of each kind, except `file`. Other flags of `smsq import` name files, or belong to a terminal.
const LIST: &str = "campaign text column region international national smart unique at expires delimiter encoding sheet";
const CHANGE: &str =
    "provider from rate budget window days timezone fallback-timezone max-rejects again";

impl UploadField {
    pub(crate) fn named(name: &str) -> Option<Self> {
        let is_in = |names: &str| names.split(' ').any(|known| known == name);
        let list = is_in(LIST).then_some(Self::List);
        list.or_else(|| is_in(CHANGE).then_some(Self::Change))
    }

    /// The names of all fields, as an error lists them.
    pub(crate) fn names() -> String {
        listed(LIST.split(' ').chain(CHANGE.split(' ')))
    }
}

fn set(options: &mut ListOptions, name: &str, value: &str) -> Result<(), String> {
    let (list, window) = (&mut options.list, &mut options.window);
    match name {
        "campaign" => options.campaign = Some(campaign_name(value)?),
        "text" => list.text = TextSource::Text(value.to_owned()),
        "column" => list.columns.push(assignment(value)?),
        "region" => list.dialling.region = Some(parsed(value)?),
        "international" if switch(value)? => list.dialling.numbers = Numbers::International,
        "national" if switch(value)? => list.dialling.numbers = Numbers::National,
        "smart" => list.smart = switch(value)?,
        "unique" => list.unique = Some(parsed(value)?),
        "at" => options.at = Some(parsed(value)?),
        "expires" => options.expires = Some(parsed(value)?),
        "delimiter" => list.delimiter = Some(delimiter(value)?),
        "encoding" => list.encoding = Some(parsed(value)?),
        "sheet" => list.sheet = Some(value.to_owned()),
        "provider" => options.provider = Some(value.to_owned()),
        "from" => options.sender = Some(sender(value)?),
        "rate" => options.rate = Some(limit(value)?),
        "budget" => options.budget = Some(parsed(value)?),
        "window" => window.hours = Some(parsed(value)?),
        "days" => window.days = Some(parsed(value)?),
        "timezone" => window.zone = Some(parsed(value)?),
        "fallback-timezone" => window.fallback = Some(parsed(value)?),
        "max-rejects" => options.max_rejects = Some(parsed(value)?),
        // `again` is read by the import.
        "international" | "national" | "again" => drop(switch(value)?),
        _ => return Err("an upload has no such field".to_owned()),
    }
    Ok(())
}

fn parsed<T: FromStr<Err: Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}

fn switch(value: &str) -> Result<bool, String> {
    match value.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" | "" => Ok(false),
        _ => Err("use `true` or `false`".to_owned()),
    }
}

/// Why a field cannot be used, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) message: String,
}

impl FieldError {
    pub(crate) fn new(field: &str, message: String) -> Self {
        Self { field: field.to_owned(), message }
    }

    fn invalid(field: &str, problem: &str) -> Self {
        let message = match problem.strip_prefix("invalid ") {
            Some(_) => problem.to_owned(),
            None => format!("invalid `{field}`: {problem}"),
        };
        Self::new(field, message)
    }
}

/// The fields of an upload, as the API describes them.
pub(crate) struct UploadForm;

impl PartialSchema for UploadForm {
    fn schema() -> RefOr<Schema> {
        let file = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
            .content_media_type("application/octet-stream");
        let mut form = ObjectBuilder::new()
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .property("file", file)
            .required("file");
        let list = LIST.split(' ').map(|name| (name, None));
        let change = CHANGE.split(' ').map(|name| (name, Some("Role `admin`")));
        for (name, needs) in list.chain(change) {
            let is_switch = ["international", "national", "smart", "again"].contains(&name);
            let kind = if is_switch { Type::Boolean } else { Type::String };
            let field = ObjectBuilder::new().schema_type(kind).description(needs);
            form = form.property(name, field);
        }
        form.into()
    }
}

impl ToSchema for UploadForm {}

/// What was posted with a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UploadRequest {
    pub(crate) fields: Vec<ImportField>,
    /// The name of the token.
    pub(crate) posted_by: String,
    /// Its role may change campaigns and replace failed messages.
    pub(crate) may_change: bool,
    /// It is a draft, or was one: it becomes one again if its import fails.
    #[serde(default)]
    pub(crate) is_draft: bool,
}

impl UploadRequest {
    /// Without fields yet.
    pub(crate) fn of(who: &Identity) -> Self {
        Self {
            fields: Vec::new(),
            posted_by: who.name.clone(),
            may_change: Self::may_change(who),
            is_draft: false,
        }
    }

    /// Whether a person may change a campaign with a list, lift a check, and replace failed messages: on the page, as
    /// over the API.
    pub(crate) fn may_change(who: &Identity) -> bool {
        who.role.may(Permission::Operate)
    }

    /// Reads what `PartialUpload::accept` wrote.
    pub(crate) fn read(file: &File) -> io::Result<Self> {
        Ok(serde_json::from_reader(file)?)
    }

    /// Whether a switch is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|field| field.name == name && switch(&field.value) == Ok(true))
    }

    /// The first value of a field.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|field| field.name == name).map(|field| field.value.as_str())
    }

    /// The options of the import of `file`.
    pub(crate) fn options(
        &self,
        defaults: &ListOptions,
        file: &Path,
        rejects: Option<&Path>,
    ) -> Result<ListOptions, FieldError> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let mut options = ListOptions {
            list: Options {
                name: Some(printable_line(&name).into_owned()),
                rejects: rejects.map(Path::to_owned),
                ..defaults.list.clone()
            },
            posted_by: Some(self.posted_by.clone()),
            may_change: self.may_change,
            cancelled: Cancelled::Refuse,
            period: None,
            ..defaults.clone()
        };
        for (index, field) in self.fields.iter().enumerate() {
            let name = field.name.as_str();
            let mut earlier = self.fields[..index].iter();
            if name != "column" && earlier.any(|earlier| earlier.name == name) {
                return Err(FieldError::new(name, format!("duplicate field `{name}`")));
            }
            set(&mut options, name, &field.value)
                .map_err(|problem| FieldError::invalid(name, &problem))?;
        }
        if self.is_on("international") && self.is_on("national") {
            let problem = "it cannot be used with `international`";
            return Err(FieldError::invalid("national", problem));
        }
        options.list.with_timezone = options.window.is_by_column();
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use smsq_lifecycle::approval::ApprovalRules;
    use smsq_message::text::Hinted;
    use smsq_operations::{ListSettings, WindowRequest};
    use smsq_store::Mode;

    use super::*;

    fn read(fields: &[(&str, &str)]) -> Result<ListOptions, FieldError> {
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
            is_draft: false,
        };
        let defaults = ListOptions {
            list: Options::default(),
            campaign: None,
            provider: None,
            sender: None,
            max_rejects: None,
            at: None,
            expires: None,
            window: WindowRequest::default(),
            budget: None,
            rate: None,
            posted_by: None,
            may_change: false,
            cancelled: Cancelled::Refuse,
            period: None,
            settings: ListSettings {
                created_for: Mode::Real,
                default_provider: None,
                providers: Vec::new(),
                requirements: Arc::new(|name, _| Err(Hinted::plain(name))),
                prices: BTreeMap::new(),
                budgets: Arc::default(),
                approval: ApprovalRules::default(),
                sources: BTreeMap::new(),
                query_timeout: Duration::ZERO,
            },
        };
        request.options(&defaults, Path::new("list.csv"), None)
    }

    #[test]
    fn fields_of_an_upload_are_those_of_an_import() {
        let options = read(&[
            ("text", "--yes"),
            ("column", "who=name"),
            ("column", "phone=mobile"),
            ("national", " true "),
            ("smart", "0"),
            ("window", "9-20"),
            ("days", "mon-fri"),
        ]);
        let list = options.map(|options| options.list).expect("options");
        assert_eq!(list.text, TextSource::Text("--yes".to_owned()));
        assert_eq!(list.columns.len(), 2);
        assert_eq!(list.dialling.numbers, Numbers::National);
        assert!(!list.smart);
        for (fields, expected) in [
            (vec![("region", "Atlantis")], "invalid region `Atlantis`"),
            (vec![("smart", "yes")], "invalid `smart`: use `true` or"),
            (vec![("text", "a"), ("text", "b")], "duplicate field `text`"),
            (vec![("template", "a")], "invalid `template`: an upload has"),
            (vec![("national", "1"), ("international", "1")], "invalid `national`: it cannot"),
        ] {
            let problem = read(&fields).err().expect("a problem");
            assert!(problem.message.starts_with(expected), "{problem}");
        }
    }
}
