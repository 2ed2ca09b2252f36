//! Logs browsers in and out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum_extra::extract::CookieJar;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use smsq_store::Mode;

use super::render::{View, render};
use crate::access::AccessError;
use crate::body::Form;
use crate::guard::{ClientAddress, SameSite, Visitor};
use crate::state::ServerState;

#[derive(Default, Serialize)]
pub(super) struct LogInPage<'a> {
    problem: Option<&'a str>,
    /// The page to show afterwards.
    next: &'a str,
    /// Fields of a form that was posted when the log-in had ended.
    typed: Vec<(&'a str, &'a str)>,
}

impl View for LogInPage<'_> {
    const TEMPLATE: &'static str = "login.html";
}

/// `next`: the page to show afterwards.
pub(super) fn log_in_page(mode: Mode, next: &str) -> Response {
    AfterLogIn::page(next).ask(mode, None)
}

/// A page of this server; the overview instead of an address that may lead elsewhere.
fn page_of(next: &str) -> &str {
    let is_path = next.starts_with('/') && !next.starts_with("//");
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_path && is_plain && !next.starts_with("/log") { next } else { "/" }
}

/// What follows a log-in: a page, or the form that was posted to its address, which is posted again.
#[derive(Deserialize)]
pub(super) struct AfterLogIn {
    #[serde(default)]
    next: String,
    #[serde(flatten)]
    typed: BTreeMap<String, String>,
}

impl AfterLogIn {
    fn page(next: &str) -> Self {
        Self::form(next, BTreeMap::new())
    }

    pub(super) fn form(next: &str, typed: BTreeMap<String, String>) -> Self {
        Self { next: next.to_owned(), typed }
    }

    pub(super) fn ask(&self, mode: Mode, problem: Option<&str>) -> Response {
        let page = LogInPage {
            problem,
            next: page_of(&self.next),
            typed: self.typed.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        };
        render(StatusCode::UNAUTHORIZED, mode, &page)
    }

    fn follow(&self) -> Redirect {
        let next = page_of(&self.next);
        if self.typed.is_empty() {
            Redirect::to(next)
        } else {
            // The browser posts the fields again.
            Redirect::temporary(next)
        }
    }
}

#[derive(Deserialize)]
pub(super) struct LogIn {
    token: String,
    #[serde(flatten)]
    after: AfterLogIn,
}

pub(super) async fn log_in(
    State(shared): State<Arc<ServerState>>,
    _: SameSite,
    ClientAddress(address): ClientAddress,
    cookies: CookieJar,
    Form(LogIn { token, after }): Form<LogIn>,
) -> Response {
    let mode = shared.store.mode();
    match shared.access.log_in(&token, address, Instant::now()) {
        Ok((who, cookie)) => {
            tracing::info!(who = who.name, "logged in");
            (cookies.add(cookie), after.follow()).into_response()
        }
        Err(AccessError::TooManyAttempts) => {
            let problem = "Too many attempts: try again in a minute.";
            let mut response = after.ask(mode, Some(problem));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response
        }
        Err(AccessError::Forbidden) => {
            let problem = "This token only sends messages: it shows no pages.";
            after.ask(mode, Some(problem))
        }
        Err(_) => {
            let problem = "Unknown token. The printed link works only once.";
            after.ask(mode, Some(problem))
        }
    }
}

pub(super) async fn log_out(
    State(shared): State<Arc<ServerState>>,
    _: Visitor,
    cookies: CookieJar,
) -> impl IntoResponse {
    (shared.access.log_out(cookies), Redirect::to("/"))
}

#[cfg(test)]
mod tests {
    use super::page_of;

    #[test]
    fn log_in_leads_to_pages_of_this_server_only() {
        for page in ["/new/abc/text", "/campaigns/c?x=1"] {
            assert_eq!(page_of(page), page);
        }
        for other in ["", "//evil", "/\\evil", "https://evil", "/logout", "/a b", "/\r\nx"] {
            assert_eq!(page_of(other), "/", "{other:?}");
        }
    }
}
