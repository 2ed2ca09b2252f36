//! Errors of the API as `application/problem+json` (RFC 9457).

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use super::access::AccessError;
use super::tokens::{Permission, Role};
use crate::operations::OperationError;
use crate::store::{StoreError, StoreErrorKind};

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

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            retry_after: None,
        }
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
        let roles = Role::ALL
            .into_iter()
            .filter(|role| needed.iter().all(|permission| role.may(*permission)))
            .map(|role| format!("`{}`", role.as_str()));
        let roles = roles.collect::<Vec<_>>().join(" or ");
        let detail = format!(
            "this needs a token of role {roles}; the role of this token is `{}`",
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
            AccessError::CrossSite => Self::new(
                StatusCode::FORBIDDEN,
                "the request came from a page of another site",
            ),
            AccessError::Unknown => Self::new(
                StatusCode::UNAUTHORIZED,
                "missing or unknown token: send `Authorization: Bearer TOKEN`; `smsq serve token` \
                 makes one",
            ),
            AccessError::Forbidden => Self::new(
                StatusCode::FORBIDDEN,
                "the role of this token does not allow it",
            ),
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
        let body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = (self.status, body.to_string()).into_response();
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
