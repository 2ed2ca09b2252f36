//! Logs browsers in and out.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum_extra::extract::CookieJar;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::render::{View, render};
use crate::serve::access::AccessError;
use crate::serve::guard::{ClientAddress, Form, SameSite, Visitor};
use crate::serve::state::ServerState;
use crate::store::Mode;

#[derive(Default, Serialize)]
pub(super) struct LogInPage<'a> {
    problem: Option<&'a str>,
}

impl View for LogInPage<'_> {
    const TEMPLATE: &'static str = "login.html";
}

pub(super) fn log_in_page(mode: Mode, problem: Option<&str>) -> Response {
    render(StatusCode::UNAUTHORIZED, mode, &LogInPage { problem })
}

#[derive(Deserialize)]
pub(super) struct LogIn {
    token: String,
}

pub(super) async fn log_in(
    State(shared): State<Arc<ServerState>>,
    _: SameSite,
    ClientAddress(address): ClientAddress,
    cookies: CookieJar,
    Form(form): Form<LogIn>,
) -> Response {
    let mode = shared.store.mode();
    match shared.access.log_in(&form.token, address, Instant::now()) {
        Ok((who, cookie)) => {
            tracing::info!(who = who.name, "logged in");
            (cookies.add(cookie), Redirect::to("/")).into_response()
        }
        Err(AccessError::TooManyAttempts) => {
            let problem = "Too many attempts: try again in a minute.";
            let mut response = log_in_page(mode, Some(problem));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response
        }
        Err(AccessError::Forbidden) => {
            let problem = "This token only sends messages: it shows no pages.";
            log_in_page(mode, Some(problem))
        }
        Err(_) => {
            let problem = "Unknown token. The printed link works only once.";
            log_in_page(mode, Some(problem))
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
