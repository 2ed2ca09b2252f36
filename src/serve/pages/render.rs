//! Renders pages from their templates.

use std::sync::LazyLock;

use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use minijinja::value::Value;
use minijinja::{Environment, context};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::report;
use crate::serve::guard::Visitor;
use crate::serve::problem::Problem;
use crate::serve::tokens::Permission;

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../templates/serve/", $name)))),*]
    };
}

/// All templates. They are checked by a test, so they can be rendered.
static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = report::environment().expect("a test renders the report");
    environment.add_filter("middle", |name: &str| shortened(name));
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

/// A page with its security policy.
pub(super) fn render(status: StatusCode, name: &str, values: Value) -> Response {
    let page = TEMPLATES
        .get_template(name)
        .and_then(|page| page.render(values));
    match page {
        Ok(page) => {
            let policy = HeaderValue::from_static(PAGE_POLICY);
            (
                status,
                [(header::CONTENT_SECURITY_POLICY, policy)],
                Html(page),
            )
                .into_response()
        }
        Err(error) => {
            tracing::error!(%error, page = name, "a page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

pub(super) fn log_in_page(problem: Option<&str>) -> Response {
    render(StatusCode::UNAUTHORIZED, "login.html", context! { problem })
}

/// A problem as a page.
pub(super) fn problem_page<'v>(
    visitor: impl Into<Option<&'v Visitor>>,
    problem: &Problem,
    back: &str,
) -> Response {
    let visitor = visitor.into();
    let visitor = visitor.map(|visitor| visitor_values(visitor, ""));
    let values = context! {
        title => problem.status.canonical_reason(),
        message => sentence(&problem.detail),
        back,
        back_label => if back == "/" { "All campaigns" } else { "Back" },
        ..visitor.unwrap_or_else(|| context! {})
    };
    render(problem.status, "done.html", values)
}

/// An error as a sentence.
pub(super) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase);
    let sentence: String = first.into_iter().flatten().chain(characters).collect();
    if sentence.ends_with(['.', '!', '?']) {
        sentence
    } else {
        sentence + "."
    }
}

pub(super) fn visitor_values(visitor: &Visitor, section: &str) -> Value {
    context! {
        who => visitor.0.name.as_str(),
        role => visitor.0.role.as_str(),
        may_operate => visitor.0.may(Permission::Operate),
        section,
    }
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
mod tests {
    use super::*;

    #[test]
    fn long_name_is_cut_in_the_middle() {
        assert_eq!(shortened("spring sale"), "spring sale");
        let name = "customers of the northern branches, spring sale, part 7";
        let short = shortened(name);
        assert_eq!(short, "customers of the norther…ng sale, part 7");
        assert_eq!(short.chars().count(), 40);
        assert_eq!(shortened(&short), short);
    }

    #[test]
    fn error_is_shown_as_a_sentence() {
        assert_eq!(sentence("unknown campaign `c`"), "Unknown campaign `c`.");
        assert_eq!(sentence("`c` is cancelled."), "`c` is cancelled.");
    }
}
