//! The endpoints under `/v1`, a file for each resource. Their description, `openapi.json`, is made from the routes and
//! from the types of requests and responses.

mod batch;
mod campaigns;
mod imports;
mod messages;
mod schedules;

use std::sync::Arc;

use axum::middleware::from_fn;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::guard::{Program, limit_time};
use super::problem::ProblemBody;
use super::state::ServerState;
use super::tokens::Permission;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "smsq",
        version = "1",
        description = "Queue text messages, and see what became of them. A message is answered with 202 after its \
                       commit. Errors are problem+json (RFC 9457); `detail` says what to do.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "/")),
    tags(
        (name = "messages", description = "Queue messages and look them up"),
        (name = "imports", description = "Import files"),
        (name = "campaigns", description = "Watch and control campaigns")
    ),
    components(schemas(ProblemBody)),
    modifiers(&TokenScheme)
)]
struct Description;

struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        let mut bearer = Http::new(HttpAuthScheme::Bearer);
        bearer.description = Some("`smsq serve token NAME --role ROLE` makes one".to_owned());
        description
            .components
            .get_or_insert_default()
            .add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

/// The routes with their description.
pub(super) fn routes() -> OpenApiRouter<Arc<ServerState>> {
    let read_whole = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(messages::post_message, messages::find_messages))
        .routes(routes!(messages::get_message))
        .routes(routes!(imports::get_import))
        .routes(routes!(imports::get_rejects))
        .routes(routes!(campaigns::get_campaigns))
        .routes(routes!(campaigns::get_campaign, campaigns::change_campaign))
        .routes(routes!(campaigns::get_report))
        .routes(routes!(schedules::get_schedules))
        .layer(from_fn(limit_time));
    // What reads their bodies limits the time.
    let streamed = OpenApiRouter::default()
        .routes(routes!(batch::post_batch))
        .routes(routes!(imports::post_import));
    read_whole.merge(streamed)
}

/// Which messages a token may read: with role `send` those that were posted with it.
fn posted_by(program: &Program) -> Option<&str> {
    let is_viewer = program.0.may(Permission::View);
    (!is_viewer).then_some(program.0.name.as_str())
}
