//! The styles and scripts of the pages.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};

const SCRIPT: &str = include_str!("../../../templates/serve/page.js");
/// Changes what differs between two versions of a page; see the licence in the file.
const MORPH: &str = include_str!("../../../templates/serve/idiomorph.js");
const STYLE: &str = include_str!("../../../templates/serve/serve.css");

fn asset(kind: &'static str, text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        // Another version of the program may have other files at the same address.
        (header::CACHE_CONTROL, HeaderValue::from_static("max-age=60")),
    ];
    (headers, text).into_response()
}

pub(super) async fn style() -> Response {
    asset("text/css; charset=utf-8", format!("{}{STYLE}", smsq_report::STYLE))
}

pub(super) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT.to_owned())
}

pub(super) async fn morph() -> Response {
    asset("text/javascript; charset=utf-8", MORPH.to_owned())
}

pub(super) async fn robots() -> Response {
    asset("text/plain; charset=utf-8", "User-agent: *\nDisallow: /\n".to_owned())
}
