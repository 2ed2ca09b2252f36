//! Renders pages from their templates.

use std::sync::LazyLock;

use smsq_store::Mode;

use crate::guard::Visitor;
use crate::problem::Problem;
use crate::tokens::{Identity, Permission};
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use minijinja::Environment;
use minijinja::value::{Serde, Value};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../templates/serve/", $name)))),*]
    };
}

/// All templates. They are checked by a test, so they can be rendered.
static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = smsq_report::environment().expect("a test renders the report");
    environment.add_filter("middle", |name: &str| shortened(name));
    environment.add_filter("path", |campaign: &str| path_of(campaign));
    for (name, source) in templates![
        "layout.html",
        "login.html",
        "overview.html",
        "alerts.html",
        "workers.html",
        "campaign.html",
        "confirm.html",
        "done.html",
        "search.html",
        "suppression.html",
        "audit.html",
        "new.html",
        "working.html",
        "draft_steps.html",
        "draft_step.html",
        "draft_trial.html",
        "draft_check.html",
        "draft_delete.html",
        "replies.html",
        "schedules.html",
    ] {
        let added = environment.add_template(name, source);
        added.expect("a test parses every template");
    }
    environment
});

/// The pages have attributes `style` with numbers that this program has computed.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; style-src-attr 'unsafe-inline'; \
     script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'";

/// What a template shows. A name that it has and this does not is an error.
pub(super) trait View: Serialize {
    const TEMPLATE: &'static str;
    /// The entry of the navigation that it belongs to.
    const SECTION: &'static str = "";
    /// Whether its script asks for it again.
    const IS_LIVE: bool = false;
}

/// Who reads a page, and of which database.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    /// `None`: somebody who is not logged in.
    identity: Option<&'a Identity>,
    mode: Mode,
}

impl<'a> From<&'a Visitor> for Reader<'a> {
    fn from(visitor: &'a Visitor) -> Self {
        Self { identity: Some(&visitor.identity), mode: visitor.mode }
    }
}

impl From<Mode> for Reader<'_> {
    fn from(mode: Mode) -> Self {
        Self { identity: None, mode }
    }
}

/// A view with what the layout of all pages shows.
#[derive(Serialize)]
struct Page<'a, V> {
    practice: Mode,
    is_live: bool,
    section: &'static str,
    who: Option<&'a str>,
    role: Option<&'static str>,
    may_operate: bool,
    #[serde(flatten)]
    view: &'a V,
}

fn html<V: View>(reader: Reader<'_>, view: &V) -> Result<String, minijinja::Error> {
    let identity = reader.identity;
    let page = Page {
        practice: reader.mode,
        is_live: V::IS_LIVE,
        section: V::SECTION,
        who: identity.map(|identity| identity.name.as_str()),
        role: identity.map(|identity| identity.role.as_str()),
        may_operate: identity.is_some_and(|identity| identity.may(Permission::Operate)),
        view,
    };
    TEMPLATES.get_template(V::TEMPLATE)?.render(Value::from(Serde(page)))
}

/// A page with its security policy.
pub(super) fn render<'v, V: View>(
    status: StatusCode,
    reader: impl Into<Reader<'v>>,
    view: &V,
) -> Response {
    let policy = HeaderValue::from_static(PAGE_POLICY);
    let headers = [(header::CONTENT_SECURITY_POLICY, policy)];
    match html(reader.into(), view) {
        Ok(page) => (status, headers, Html(page)).into_response(),
        Err(error) => {
            tracing::error!(%error, page = V::TEMPLATE, "a page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A message, and a link to go on.
#[derive(Default, Serialize)]
pub(super) struct MessagePage<'a> {
    pub(super) title: &'a str,
    pub(super) message: &'a str,
    pub(super) back: &'a str,
    pub(super) back_label: &'a str,
}

impl View for MessagePage<'_> {
    const TEMPLATE: &'static str = "done.html";
}

/// A problem as a page.
pub(super) fn problem_page<'v>(
    reader: impl Into<Reader<'v>>,
    problem: &Problem,
    back: &str,
) -> Response {
    let view = MessagePage {
        title: problem.status.canonical_reason().unwrap_or_default(),
        message: &sentence(&problem.detail),
        back,
        back_label: if back == "/" { "All campaigns" } else { "Back" },
    };
    render(problem.status, reader, &view)
}

/// An error as a sentence.
pub(super) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase);
    let sentence: String = first.into_iter().flatten().chain(characters).collect();
    if sentence.ends_with(['.', '!', '?']) { sentence } else { sentence + "." }
}

/// The address of a campaign's page.
pub(super) fn path_of(name: &str) -> String {
    format!("/campaigns/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// Cuts a long name in the middle, where names of a series are alike.
fn shortened(name: &str) -> String {
    const HEAD: usize = 24;
    const TAIL: usize = 15;
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= HEAD + TAIL + 1 {
        return name.to_owned();
    }
    let head = characters[..HEAD].iter();
    let tail = characters[characters.len() - TAIL..].iter();
    head.chain(&['…']).chain(tail).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::actions::ConfirmPage;
    use super::super::audit::AuditPage;
    use super::super::campaign::CampaignPage;
    use super::super::login::LogInPage;
    use super::super::overview::OverviewPage;
    use super::super::replies::RepliesPage;
    use super::super::schedules::SchedulesPage;
    use super::super::search::SearchPage;
    use super::super::suppression::SuppressionPage;
    use super::*;
    use crate::tokens::Role;

    #[test]
    fn long_name_is_cut_in_the_middle() {
        assert_eq!(shortened("spring sale"), "spring sale");
        let name = "customers of the northern branches, spring sale, part 7";
        let short = shortened(name);
        assert_eq!(short, "customers of the norther…ng sale, part 7");
        assert_eq!(short.chars().count(), 40);
        assert_eq!(shortened(&short), short);
    }

    /// Renders a page without and with a visitor; fails if a template has a name that its view does not, or if the page
    /// of a practice database does not say so.
    pub(in super::super) fn assert_renders<V: View>(view: &V) {
        let operator = Identity { name: "ann".to_owned(), role: Role::Operate };
        for mode in [Mode::Real, Mode::Practice] {
            for identity in [None, Some(&operator)] {
                let reader = Reader { identity, mode };
                let page = html(reader, view).unwrap_or_else(|error| panic!("{error:#}"));
                assert!(page.contains("</html>"), "{}", V::TEMPLATE);
                let has_band = page.contains(r#"class="practice""#);
                assert_eq!(has_band, mode.is_practice(), "{}", V::TEMPLATE);
            }
        }
    }

    #[test]
    fn every_page_has_the_names_of_its_template() {
        assert_renders(&LogInPage::default());
        assert_renders(&MessagePage::default());
        assert_renders(&ConfirmPage::default());
        assert_renders(&SearchPage::default());
        assert_renders(&SuppressionPage::default());
        assert_renders(&AuditPage::default());
        assert_renders(&RepliesPage::default());
        assert_renders(&SchedulesPage::default());
        assert_renders(&CampaignPage::default());
        assert_renders(&OverviewPage::default());
    }

    #[test]
    fn error_is_shown_as_a_sentence() {
        assert_eq!(sentence("unknown campaign `c`"), "Unknown campaign `c`.");
        assert_eq!(sentence("`c` is cancelled."), "`c` is cancelled.");
    }
}
