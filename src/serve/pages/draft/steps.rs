//! The steps that are forms: how the list is read, the text of the messages, and the settings of the campaign.

use std::collections::BTreeMap;

use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use smsq_import::identifier;
use smsq_message::text::Hinted;
use smsq_operations::{ListEstimate, local_now};

use super::fields::{set, value};
use super::{Given, Steps, see, working};
use crate::guard::Visitor;
use crate::intake::{
    Draft, DraftList, FieldError, ReadingState, ShownMessage, UploadRequest, cannot_keep, has_text,
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
    /// What was entered in the fields that are shown, by their names.
    values: BTreeMap<&'static str, String>,
    /// What is wrong with the list or with what was entered.
    problem: Option<String>,
    /// The field that has the problem.
    wrong: Option<String>,
    list: DraftList,
    default_provider: Option<String>,
    providers: Vec<String>,
    /// Placeholders for the columns, with the names of these.
    placeholders: Vec<(String, String)>,
    trial: Option<TextTrial>,
}

impl View for StepPage {
    const TEMPLATE: &'static str = "draft_step.html";
    const SECTION: &'static str = "new";
}

impl DraftStep {
    pub(super) const ALL: [Self; 3] = [Self::List, Self::Text, Self::Settings];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
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
        let has_trial = self == Self::Text
            && wrong.is_none()
            && draft.text_options(lists).is_ok_and(|options| has_text(&options));
        let trial =
            if has_trial { Some(TextTrial::of(shared.drafts.try_text(draft).await)) } else { None };
        let page = StepPage {
            steps: Steps::of(draft, self.name()),
            default_provider: lists.settings.default_provider.clone(),
            providers: lists.settings.providers.clone(),
            trial,
            ..self.page(&draft.request, list, wrong)
        };
        Ok(render(StatusCode::OK, visitor, &page))
    }

    /// The page of what was entered for a list; `wrong`: what cannot be used of it.
    pub(super) fn page(
        self,
        request: &UploadRequest,
        list: DraftList,
        wrong: Option<FieldError>,
    ) -> StepPage {
        let is_workbook = !list.sheets.is_empty() || !value(request, "sheet").is_empty();
        let is_shown = |name: &&str| match *name {
            "sheet" => is_workbook,
            "delimiter" | "encoding" => !is_workbook,
            _ => true,
        };
        let shown = self.names().iter().copied().filter(is_shown);
        let values: BTreeMap<_, _> = shown.map(|name| (name, value(request, name))).collect();
        let of_list = |problem: &String| {
            FieldError::new(if list.lacks_phone { "phone" } else { "" }, problem.clone())
        };
        let error = wrong.or_else(|| list.problem.as_ref().map(of_list));
        let wrong = error.as_ref().map(|error| form_name(&error.field));
        let columns = list.columns.iter().filter(|name| !name.is_empty());
        StepPage {
            step: self.name(),
            title: self.title(),
            wrong: wrong.filter(|name| values.contains_key(name)).map(str::to_owned),
            problem: error.as_ref().map(|error| sentence(&error.message)),
            placeholders: columns
                .map(|name| (format!("{{{{ {} }}}}", identifier(name)), name.clone()))
                .collect(),
            values,
            list,
            ..StepPage::default()
        }
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
