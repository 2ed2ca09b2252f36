//! Errors of the API as `application/problem+json` (RFC 9457).

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use smsq_operations::{OperationError, Refused};
use smsq_store::{StoreError, StoreErrorKind};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{ContentBuilder, HeaderBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use super::access::AccessError;
use super::tokens::{Permission, Role};

/// What a client may wait before it tries again, in seconds.
const RETRY_NOW: u32 = 2;
const RETRY_SOON: u32 = 5;
const RETRY_LOGIN: u32 = 60;

/// Why a request failed, and what the client can do about it.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) detail: String,
    /// In seconds.
    retry_after: Option<u32>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemBody {
    #[serde(rename = "type")]
    kind: &'static str,
    #[schema(required)]
    title: Option<&'static str>,
    status: u16,
    detail: String,
}

/// In the description of a route: it may answer with a problem of this status.
pub(super) struct Fails<const STATUS: u16>;

impl<const STATUS: u16> IntoResponses for Fails<STATUS> {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let description = match STATUS {
            400 => "The request cannot be used",
            401 => "Missing or unknown token",
            403 => "The role of the token does not allow it",
            404 => "Unknown",
            408 => "The body did not arrive in time",
            409 => {
                "The campaign is cancelled, or has a message with this `dedupe_key` whose id is not known any more"
            }
            413 => "The body is too large",
            415 => "Another content type is needed",
            422 => "The key belongs to a message with another content",
            429 => "Too much waits, or too many attempts; see `Retry-After`",
            503 => "The database is unavailable; see `Retry-After`",
            507 => "The disk of the server is nearly full",
            _ => unreachable!("no route is described with it"),
        };
        let schema = Ref::from_schema_name("Problem");
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let mut response = ResponseBuilder::new()
            .description(description)
            .content("application/problem+json", content);
        if matches!(STATUS, 429 | 503) {
            let seconds = ObjectBuilder::new().schema_type(Type::Integer);
            response =
                response.header("Retry-After", HeaderBuilder::new().schema(Some(seconds)).build());
        }
        BTreeMap::from([(STATUS.to_string(), response.build().into())])
    }
}

impl Problem {
    pub(super) fn body(&self) -> ProblemBody {
        ProblemBody {
            kind: "about:blank",
            title: self.status.canonical_reason(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
        }
    }

    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), retry_after: None }
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).after(RETRY_SOON)
    }

    /// The token's role lacks one of `needed`.
    pub(super) fn forbidden(needed: &[Permission], role: Role) -> Self {
        let roles: Vec<String> = Role::ALL
            .into_iter()
            .filter(|role| needed.iter().all(|permission| role.may(*permission)))
            .map(|role| format!("`{}`", role.as_str()))
            .collect();
        let detail = format!(
            "this needs a token of role {}; the role of this token is `{}`",
            roles.join(" or "),
            role.as_str()
        );
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// Another request of the same kind is running.
    pub(super) fn busy(detail: &str) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail).after(RETRY_NOW)
    }

    pub(super) fn stopping() -> Self {
        Self::unavailable("the server stops; nothing was stored")
    }

    pub(super) fn after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

pub(super) fn unknown_campaign(name: &str) -> Problem {
    Problem::not_found(format!("unknown campaign `{}`", name.escape_debug()))
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::TooLarge | StoreErrorKind::Constraint => {
                tracing::warn!(%error, "a message cannot be stored");
                Self::invalid("the database cannot store it")
            }
            _ => {
                tracing::warn!(%error, "the database could not be used");
                Self::unavailable(
                    "the database is unavailable; the message may have been stored: repeat the request \
                     with the same key to find out",
                )
            }
        }
    }
}

impl From<OperationError> for Problem {
    fn from(error: OperationError) -> Self {
        let status = match error {
            OperationError::Refused(Refused::OwnMessages { .. }) => StatusCode::FORBIDDEN,
            OperationError::Refused(_) => StatusCode::CONFLICT,
            OperationError::Invalid(_) => StatusCode::BAD_REQUEST,
            OperationError::Store(error) => return error.into(),
        };
        let hint = error.hint().map(|hint| format!("; {hint}"));
        Self::new(status, error.to_string() + &hint.unwrap_or_default())
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Host => Self::new(
                StatusCode::MISDIRECTED_REQUEST,
                "unknown host: use the address of this server, or set `serve.public_url`",
            ),
            AccessError::CrossSite => {
                Self::new(StatusCode::FORBIDDEN, "the request came from a page of another site")
            }
            AccessError::Unknown => Self::new(
                StatusCode::UNAUTHORIZED,
                "missing or unknown token: send `Authorization: Bearer TOKEN`; `smsq serve token` \
                 makes one",
            ),
            AccessError::Forbidden => {
                Self::new(StatusCode::FORBIDDEN, "the role of this token does not allow it")
            }
            AccessError::TooManyAttempts => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many attempts with unknown tokens from this address",
            )
            .after(RETRY_LOGIN),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        // For pages, which show it as HTML.
        response.extensions_mut().insert(self.clone());
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
