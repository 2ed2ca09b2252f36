//! The endpoints under `/v1`, which `openapi.json` describes. A file for each resource.

mod batch;
mod campaigns;
mod imports;
mod messages;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, patch, post};
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::guard::Program;
use super::state::ServerState;
use super::tokens::Permission;

/// The API's description.
const OPENAPI: &str = include_str!("../../../templates/openapi.json");
/// How long the next part of a body may take.
const PART_TIMEOUT: Duration = Duration::from_secs(30);

/// A method and a path, as the description has them, and the handler.
type Endpoint = (&'static str, &'static str, MethodRouter<Arc<ServerState>>);

fn endpoints() -> Vec<Endpoint> {
    vec![
        ("get", "/openapi.json", get(openapi)),
        ("post", "/v1/messages", post(messages::post_message)),
        ("get", "/v1/messages", get(messages::find_messages)),
        ("get", "/v1/messages/{id}", get(messages::get_message)),
        ("get", "/v1/campaigns", get(campaigns::get_campaigns)),
        ("get", "/v1/campaigns/{name}", get(campaigns::get_campaign)),
        (
            "patch",
            "/v1/campaigns/{name}",
            patch(campaigns::change_campaign),
        ),
        (
            "get",
            "/v1/campaigns/{name}/report.csv",
            get(campaigns::get_report),
        ),
        ("get", "/v1/imports/{id}", get(imports::get_import)),
        (
            "get",
            "/v1/imports/{id}/rejects.csv",
            get(imports::get_rejects),
        ),
    ]
}

/// Streamed bodies, which the handlers limit.
fn unlimited_endpoints() -> Vec<Endpoint> {
    vec![
        ("post", "/v1/messages/batch", post(batch::post_batch)),
        ("post", "/v1/imports", post(imports::post_import)),
    ]
}

fn router(endpoints: Vec<Endpoint>) -> Router<Arc<ServerState>> {
    endpoints
        .into_iter()
        .fold(Router::new(), |router, (_, path, handler)| {
            router.route(path, handler)
        })
}

pub(super) fn routes() -> Router<Arc<ServerState>> {
    router(endpoints())
}

pub(super) fn unlimited_routes() -> Router<Arc<ServerState>> {
    router(unlimited_endpoints()).layer(DefaultBodyLimit::disable())
}

async fn openapi() -> Response {
    json_text(StatusCode::OK, OPENAPI.to_owned())
}

fn json_text(status: StatusCode, text: String) -> Response {
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json)], text).into_response()
}

fn respond(status: StatusCode, value: &Value) -> Response {
    json_text(status, value.to_string())
}

/// Which messages a token may read: with role `send` those that were posted with it. Older ones, of which that is not
/// known, are read without their phones.
fn posted_by(program: &Program) -> Option<&str> {
    let is_viewer = program.0.may(Permission::View);
    (!is_viewer).then_some(program.0.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn description_has_exactly_the_routes_of_the_server() {
        let described: Value = serde_json::from_str(OPENAPI).expect("JSON");
        let paths = described["paths"].as_object().expect("paths");
        let described: BTreeSet<(&str, &str)> = paths
            .iter()
            .flat_map(|(path, item)| {
                let methods = item.as_object().expect("methods").keys();
                methods.map(move |method| (method.as_str(), path.as_str()))
            })
            .collect();
        let served = endpoints().into_iter().chain(unlimited_endpoints());
        let served: BTreeSet<(&str, &str)> = served
            .map(|(method, path, _)| (method, path))
            .filter(|(_, path)| *path != "/openapi.json")
            .collect();
        assert_eq!(described, served);
    }
}
