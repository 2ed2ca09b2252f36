//! The steps that are forms: how the list is read, the text of the messages, and the settings of the campaign.

use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use smsq_import::identifier;
use smsq_message::text::Hinted;
use smsq_operations::{ListEstimate, ListOptions, local_now};

use super::fields::{FormField, same, set, value};
use super::{Given, Steps, see, working};
use crate::guard::Visitor;
use crate::intake::{
    Draft, DraftList, FieldError, ReadingState, ShownMessage, cannot_keep, has_text,
};
use crate::pages::render::{View, render, sentence};
use crate::problem::Problem;
use crate::state::ServerState;

/// Messages that are shown while the text is written.
const SHOWN: usize = 3;
/// Rows of an estimate that concern the text.
const ABOUT_TEXT: [&str; 2] = ["saving", "expensive"];

/// A step that is a form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DraftStep {
    List,
    Text,
    Settings,
}

/// What the text makes of the first rows.
#[derive(Default, Serialize)]
struct TextTrial {
    problem: Option<String>,
    samples: Vec<ShownMessage>,
    /// What makes the messages expensive.
    rows: Vec<(&'static str, String)>,
}

impl TextTrial {
    fn of(tried: Result<ListEstimate, String>) -> Self {
        let estimate = match tried {
            Ok(estimate) => estimate,
            Err(problem) => {
                return Self { problem: Some(sentence(&problem)), ..Self::default() };
            }
        };
        let samples = estimate.estimate.stats.samples.iter().take(SHOWN);
        let rows = estimate.rows().0.into_iter();
        let rejected = estimate.rejects.first();
        Self {
            problem: rejected
                .filter(|_| estimate.list.summary.accepted == 0)
                .map(|(line, rejection)| sentence(&format!("row {line}: {}", rejection.reason))),
            samples: samples.map(|sample| ShownMessage::of(None, sample)).collect(),
            rows: rows.filter(|(name, _)| ABOUT_TEXT.contains(name)).collect(),
        }
    }
}

/// What is shown below the text while it is typed.
#[derive(Default, Serialize)]
pub(super) struct TrialPart {
    trial: TextTrial,
}

impl View for TrialPart {
    const TEMPLATE: &'static str = "draft_trial.html";
}

/// A step with its form.
#[derive(Default, Serialize)]
pub(super) struct StepPage {
    steps: Steps,
    step: &'static str,
    title: &'static str,
    /// What is wrong with the list.
    problem: Option<String>,
    fields: Vec<FormField>,
    /// Some of the further fields is filled in, or wrong.
    has_more: bool,
    list: Option<DraftList>,
    /// Placeholders for the columns, with the names of these.
    placeholders: Vec<(String, String)>,
    trial: Option<TextTrial>,
}

impl View for StepPage {
    const TEMPLATE: &'static str = "draft_step.html";
    const SECTION: &'static str = "new";
}

impl DraftStep {
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::List, Self::Text, Self::Settings].into_iter().find(|step| step.name() == name)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Text => "text",
            Self::Settings => "settings",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::List => "The list",
            Self::Text => "The text",
            Self::Settings => "The settings",
        }
    }

    const fn next(self) -> &'static str {
        match self {
            Self::List => "text",
            Self::Text => "settings",
            Self::Settings => "check",
        }
    }

    /// The names of its fields.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::List => &["phone", "sheet", "region", "numbers", "delimiter", "encoding"],
            Self::Text => &["text", "content", "smart"],
            Self::Settings => &[
                "campaign",
                "provider",
                "from",
                "at",
                "expires",
                "rate",
                "budget",
                "window",
                "days",
                "timezone",
                "unique",
                "max-rejects",
            ],
        }
    }

    /// `is_checked`: also an empty form is checked.
    pub(super) async fn show(
        self,
        shared: &ServerState,
        visitor: &Visitor,
        draft: &Draft,
        is_checked: bool,
    ) -> Result<Response, Problem> {
        let list = match shared.drafts.list(draft).await {
            ReadingState::Done(list) => list,
            ReadingState::Running(rows) => return Ok(working(visitor, rows)),
        };
        if list.problem.is_some() && self != Self::List {
            return Ok(see(&draft.id, "list?checked=true"));
        }
        let is_filled = |name: &&str| !value(&draft.request, name).is_empty();
        let wrong = if is_checked || self.names().iter().any(is_filled) {
            self.check(shared, draft, true).await.err()
        } else {
            None
        };
        let lists = shared.drafts.lists();
        let mut fields = match self {
            Self::List => list_fields(draft, &list),
            Self::Text => text_fields(draft, &list),
            Self::Settings => settings_fields(draft, &list, lists),
        };
        let is_shown = self == Self::List && wrong.is_none();
        let mut problem = list.problem.clone().filter(|_| is_shown);
        if list.lacks_phone {
            let phone = fields.iter_mut().find(|field| field.name == "phone");
            if let Some(phone) = phone {
                phone.problem = problem.take().map(|problem| sentence(&problem));
            }
        }
        let is_wrong = wrong.is_some();
        if let Some(FieldError { field, message }) = wrong {
            let name = form_name(&field);
            let message = sentence(&message);
            match fields.iter_mut().find(|field| field.name == name) {
                Some(field) => field.problem = Some(message),
                None => problem = Some(message),
            }
        }
        let mut page = StepPage {
            steps: Steps::of(draft, self.name()),
            step: self.name(),
            title: self.title(),
            problem: problem.map(|problem| sentence(&problem)),
            has_more: fields
                .iter()
                .any(|field| field.is_more && !(field.value.is_empty() && field.problem.is_none())),
            fields,
            ..StepPage::default()
        };
        if self == Self::Text {
            let columns = list.columns.iter().filter(|name| !name.is_empty());
            page.placeholders = columns
                .map(|name| (format!("{{{{ {} }}}}", identifier(name)), name.clone()))
                .collect();
            let options = draft.text_options(lists);
            if !is_wrong && options.is_ok_and(|options| has_text(&options)) {
                page.trial = Some(TextTrial::of(shared.drafts.try_text(draft).await));
            }
        }
        page.list = (self == Self::List).then_some(list);
        Ok(render(StatusCode::OK, visitor, &page))
    }

    /// Stores what was entered, also if it cannot be used: then its page shows it again.
    pub(super) async fn save(
        self,
        shared: &ServerState,
        visitor: &Visitor,
        mut draft: Draft,
        given: &Given,
    ) -> Result<Response, Problem> {
        for name in self.names() {
            if let Some(entered) = given.get(*name) {
                set(&mut draft.request, name, entered);
            }
        }
        let then = given.get("then").map_or("", String::as_str);
        // The text is tried with the first rows.
        let list = shared.drafts.list(&draft).await;
        let is_read = matches!(list, ReadingState::Done(_));
        if then == "try" {
            let trial = if is_read {
                TextTrial::of(shared.drafts.try_text(&draft).await)
            } else {
                TextTrial::default()
            };
            return Ok(render(StatusCode::OK, visitor, &TrialPart { trial }));
        }
        draft.save().map_err(|error| cannot_keep(&error))?;
        let is_wrong = self.check(shared, &draft, is_read).await.is_err();
        // The next step shows that the list is read, and leads back here if it cannot be used.
        let is_unusable = match (self, shared.drafts.list(&draft).await) {
            (Self::List, ReadingState::Done(list)) => list.problem.is_some(),
            _ => false,
        };
        let stays = then == "stay" || is_wrong || is_unusable;
        let path =
            if stays { format!("{}?checked=true", self.name()) } else { self.next().to_owned() };
        Ok(see(&draft.id, &path))
    }

    /// Fails if a field cannot be used.
    async fn check(
        self,
        shared: &ServerState,
        draft: &Draft,
        is_read: bool,
    ) -> Result<(), FieldError> {
        let lists = shared.drafts.lists();
        let options = match self {
            Self::List => draft.read_options(lists),
            Self::Text => draft.text_options(lists),
            Self::Settings => draft.options(lists),
        }?;
        match self {
            Self::List => Ok(()),
            Self::Text if !is_read => Ok(()),
            Self::Text => match shared.drafts.try_text(draft).await {
                Ok(_) => Ok(()),
                Err(problem) => Err(FieldError::new("text", problem)),
            },
            Self::Settings => {
                let described = |error: Hinted| match &error.hint {
                    Some(hint) => format!("{error}; {hint}"),
                    None => error.to_string(),
                };
                let scheduled = options.schedule(local_now()).map(drop);
                let time = match &scheduled {
                    Err(error) if error.to_string().starts_with("`--expires`") => "expires",
                    _ => "at",
                };
                for (field, checked) in [
                    ("provider", options.check_provider()),
                    ("from", options.check_sender(None)),
                    (time, scheduled),
                    ("window", options.window_in(None).map(drop)),
                ] {
                    checked.map_err(|error| FieldError::new(field, described(error)))?;
                }
                let name = options.campaign.as_deref();
                if let Some(name) = name
                    && let Err(problem) = shared.intake.check_campaign(name).await
                {
                    return Err(FieldError::new("campaign", problem.detail));
                }
                Ok(())
            }
        }
    }
}

/// The field of a form for a field of an upload.
fn form_name(field: &str) -> &str {
    match field {
        "column" => "phone",
        "national" | "international" => "numbers",
        "fallback-timezone" => "timezone",
        field => field,
    }
}

fn columns(list: &DraftList) -> impl Iterator<Item = (String, String)> {
    let names = list.columns.iter().filter(|name| !name.trim().is_empty());
    names.map(|name| same(name.trim()))
}

fn list_fields(draft: &Draft, list: &DraftList) -> Vec<FormField> {
    let field = |name, label, hint: &str| FormField::new(&draft.request, name, label, hint);
    let recognised = match list.phones.as_slice() {
        [] => "choose a column".to_owned(),
        phones => format!("as recognised: {}", phones.join(", ")),
    };
    let mut fields = Vec::new();
    let is_workbook = !list.sheets.is_empty() || !value(&draft.request, "sheet").is_empty();
    if is_workbook {
        let sheets = list.sheets.iter().map(|sheet| same(sheet));
        fields.push(field("sheet", "Sheet", "").choice("the first visible one", sheets));
    }
    let numbers = [
        ("national", "are numbers of that country"),
        ("international", "begin with a country code"),
    ]
    .map(|(value, label)| (value.to_owned(), label.to_owned()));
    fields.extend([
        field("phone", "Phone column", "").choice(recognised, columns(list)),
        field(
            "region",
            "Country of numbers without a country code",
            "Two letters, such as GB. Empty: as configured",
        ),
        field("numbers", "Numbers without `+`", "").choice("as recognised", numbers),
    ]);
    if !is_workbook {
        let characters =
            [(",", "comma"), (";", "semicolon"), ("tab", "tab"), ("|", "vertical bar")];
        let characters =
            characters.map(|(character, name)| (character.to_owned(), name.to_owned()));
        fields
            .push(field("delimiter", "Between the fields", "").choice("as recognised", characters));
        fields.push(field(
            "encoding",
            "Encoding",
            "Such as UTF-8, windows-1252 or gb18030. Empty: as recognised",
        ));
    }
    fields
}

fn text_fields(draft: &Draft, list: &DraftList) -> Vec<FormField> {
    let field = |name, label, hint: &str| FormField::new(&draft.request, name, label, hint);
    let text = FormField { is_long: true, ..field("text", "Text of the messages", "") };
    vec![
        text,
        field(
            "content",
            "Or a column of the list with the text of each message",
            "Leave the text above empty",
        )
        .choice("none", columns(list)),
        field("smart", "Typographic characters that make messages expensive", "").choice(
            "send them as they are",
            [("true".to_owned(), "replace them where that saves segments".to_owned())],
        ),
    ]
}

fn settings_fields(draft: &Draft, list: &DraftList, lists: &ListOptions) -> Vec<FormField> {
    let field = |name, label, hint: &str| FormField::new(&draft.request, name, label, hint);
    let default = match &lists.settings.default_provider {
        Some(name) => format!("as configured: {name}"),
        None => "as configured".to_owned(),
    };
    let providers = lists.settings.providers.iter().map(|name| same(name));
    let recipients = columns(list)
        .filter(|(name, _)| !list.phones.contains(name))
        .map(|(name, label)| (name, format!("column {label}")))
        .chain([("none".to_owned(), "nothing: every row is a message".to_owned())]);
    let mut fields = vec![
        field(
            "campaign",
            "Name of the campaign",
            "Empty: that of the list, and a hash of the text",
        ),
        field("provider", "Provider or route", "").choice(default, providers),
        field("from", "Sender that recipients see", "Empty: that of the provider"),
        field(
            "at",
            "Start",
            "Such as 2026-12-24 09:00 (time of the server) or +2h. Empty: at once",
        ),
        field(
            "expires",
            "Expires",
            "What is not sent by then is not sent at all, such as +8h. Empty: never",
        ),
        field(
            "rate",
            "Rate limit",
            "Such as 20/s or 100/min,5000/day. Empty: that of the provider",
        ),
    ];
    let more = [
        field("budget", "Budget", "Such as 500 EUR; the campaign pauses there. Empty: none"),
        field("window", "Hours in which messages may start", "Such as 09:00-20:00. Empty: any"),
        field("days", "Days", "Such as mon-fri. Empty: every day"),
        field(
            "timezone",
            "Time zone of these hours",
            "Such as Europe/Berlin; country: that of each number. Empty: the server's",
        ),
        field("unique", "A recipient is known by", "")
            .choice("the phone: one message per number", recipients),
        field(
            "max-rejects",
            "Start only if at most this many rows are rejected",
            "Such as 100 or 5%. Empty: as configured",
        ),
    ];
    fields.extend(more.map(|field| FormField { is_more: true, ..field }));
    fields
}
