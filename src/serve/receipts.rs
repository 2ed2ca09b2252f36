//! Delivery receipts and replies that vendors post. They are applied or stored before they are answered.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use sha2::{Digest as _, Sha256};
use smsq_message::phone::{Phone, Region};
use smsq_message::secret::Secret;
use smsq_message::sms::Timestamp;
use smsq_provider::{PostedRequest, Provider, Reply, WebhookError, asks_to_stop};
use smsq_receipts::ReceiptPuller;
use smsq_store::{Audited, NewReply, StoreError};
use subtle::ConstantTimeEq as _;
use url::Url;

use super::body::WholeBody;
use super::problem::Problem;
use super::state::ServerState;

/// What a vendor waits before it posts again, in seconds.
const RETRY: u32 = 30;
/// The longest id of a reply by which it is known again, and the longest text of one, in characters.
const MAX_ID: usize = 200;
const MAX_TEXT: usize = 10_000;
const HOUR_MILLIS: i64 = 3_600_000;

pub(super) fn routes() -> Router<Arc<ServerState>> {
    Router::new().route("/receipts/{provider}/{token}", any(receive))
}

/// The URL that a vendor posts the receipts of a provider to. Its last part is a secret, made from `key` and the name.
pub fn receipt_url(base: &Url, key: &Secret<String>, provider: &str) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["receipts", provider, &receipt_token(key, provider)]);
    }
    url
}

/// The secret in the URL that a vendor posts the receipts of a provider to.
pub fn receipt_token(key: &Secret<String>, provider: &str) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key.expose().as_bytes()).expect("any length is good");
    mac.update(b"receipts/");
    mac.update(provider.as_bytes());
    URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
}

/// The provider whose address a request has. It is known before the body is read.
struct Addressed(Arc<Provider>);

impl FromRequestParts<Arc<ServerState>> for Addressed {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<ServerState>,
    ) -> Result<Self, Self::Rejection> {
        // The same answer for a wrong token and for an unknown provider.
        let unknown = || Problem::not_found("there is nothing at this address");
        let path = Path::<(String, String)>::from_request_parts(parts, shared).await;
        let Path((name, given)) = path.map_err(|_| unknown())?;
        let key = shared.config.receipt_key().ok_or_else(unknown)?;
        let expected = receipt_token(key, &name);
        let is_known = bool::from(expected.as_bytes().ct_eq(given.as_bytes()));
        let provider = shared.providers.get(&name).filter(|_| is_known);
        provider.cloned().map(Self).ok_or_else(unknown)
    }
}

async fn receive(
    State(shared): State<Arc<ServerState>>,
    Addressed(provider): Addressed,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<Response, Problem> {
    let name = provider.name();
    let url = public_url(&shared, &uri);
    let now = shared.store.now().await.map_err(unavailable)?;
    let posted = provider
        .parse_webhook(&PostedRequest {
            method: &method,
            url: &url,
            headers: &headers,
            body: &body,
            now,
        })
        .map_err(|error| refused(&provider, &error))?;
    let store = &shared.store;
    if !posted.receipts.is_empty() {
        let applied =
            store.receipts().add(name, &posted.receipts, now).await.map_err(unavailable)?;
        shared.metrics.count_receipts(name, applied.new);
    }
    let replies: Vec<NewReply> =
        posted.replies.iter().map(|reply| new_reply(reply, shared.default_region, now)).collect();
    if !replies.is_empty() {
        let added = store.replies().add(name, &replies, now).await;
        added.map_err(unavailable)?;
    }
    let mut unreadable = posted.unreadable;
    let mut stops: Vec<(String, Option<String>)> = Vec::new();
    for reply in posted.replies.iter().filter(|reply| asks_to_stop(&reply.text)) {
        let phones = reply.phones(shared.default_region);
        if phones.is_empty() {
            unreadable += 1;
        }
        let reason = format!("replied with a word that stops messages, to `{name}`");
        for phone in phones {
            stops.push((phone.into_string(), Some(reason.clone())));
        }
    }
    if unreadable > 0 {
        tracing::warn!(
            provider = name,
            "{unreadable} posted entries are neither a receipt nor a reply with a valid number"
        );
        shared.metrics.count_unreadable(name, unreadable);
    }
    if !stops.is_empty() {
        let added = store
            .suppression()
            .add(stops, now, &mut Audited::unrecorded())
            .await
            .map_err(unavailable)?;
        shared.metrics.count_opt_outs(name, added);
    }
    let (kind, text) = provider.webhook_answer();
    Ok(([(header::CONTENT_TYPE, kind)], text.to_owned()).into_response())
}

/// The reply as it is stored. Without an id, the same text of the same phone counts once an hour.
fn new_reply(reply: &Reply, default_region: Option<Region>, now: Timestamp) -> NewReply {
    let phones = reply.phones(default_region);
    let phone = phones.into_iter().next().map(Phone::into_string);
    let phone = phone.unwrap_or_else(|| reply.phone.trim().to_owned());
    let id = reply.id.as_ref().filter(|id| id.len() <= MAX_ID);
    let key = if let Some(id) = id {
        format!("id {id}")
    } else {
        let hour = now.as_millis().div_euclid(HOUR_MILLIS);
        let digest = Sha256::digest(format!("{phone}\n{hour}\n{}", reply.text));
        hex::encode(digest)
    };
    NewReply {
        sender: reply.to.clone(),
        content: reply.text.chars().take(MAX_TEXT).collect(),
        is_stop: asks_to_stop(&reply.text),
        key,
        phone,
    }
}

/// The URL as the vendor knows it, with the query.
fn public_url(shared: &ServerState, uri: &Uri) -> String {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    match &shared.config.public_url {
        Some(public) => {
            let base = public.as_str().trim_end_matches('/');
            format!("{base}{path}")
        }
        None => format!("http://{}{path}", shared.config.listen),
    }
}

fn unavailable(error: StoreError) -> Problem {
    Problem::from(error).after(RETRY)
}

fn refused(provider: &Provider, error: &WebhookError) -> Problem {
    let name = provider.name();
    tracing::warn!(provider = name, %error, "a posted receipt was refused");
    let status = match error {
        WebhookError::NotConfigured => StatusCode::NOT_FOUND,
        WebhookError::Signature(_) => StatusCode::FORBIDDEN,
        WebhookError::Unsigned => StatusCode::SERVICE_UNAVAILABLE,
        WebhookError::Unreadable(_) => StatusCode::BAD_REQUEST,
    };
    Problem::new(status, error.to_string())
}

/// Applies receipts that came before their message, and ends the wait for those that never came.
pub(super) async fn apply(shared: Arc<ServerState>) {
    let store = shared.patient_store.clone();
    // The caller drops this work when the server stops.
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    ReceiptPuller::applying(store, &shared.providers, shared.no_report_after, stopped).run().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_providers_have_different_secrets() {
        let base: Url = "https://sms.example.net/smsq/".parse().expect("a URL");
        let key = Secret::new("a long secret".to_owned());
        let url = receipt_url(&base, &key, "twilio");
        assert!(url.as_str().starts_with("https://sms.example.net/smsq/receipts/twilio/"), "{url}");
        assert_eq!(receipt_url(&base, &key, "twilio"), url);
        let last = |url: &Url| url.path_segments().and_then(Iterator::last).map(str::to_owned);
        assert_ne!(last(&receipt_url(&base, &key, "plivo")), last(&url));
        let other = Secret::new("another secret".to_owned());
        assert_ne!(receipt_url(&base, &other, "twilio"), url);
    }
}
