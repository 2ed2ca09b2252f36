//! Posts one message, and looks messages up.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{posted_by, respond};
use crate::phone::{Phone, mask};
use crate::serve::guard::{Path, Program, Query, WholeBody};
use crate::serve::intake::{MAX_KEY, NewMessages, digest, invalid_phone};
use crate::serve::problem::Problem;
use crate::serve::state::ServerState;
use crate::serve::tokens::{Identity, Permission};
use crate::store::{FoundSms, IntakeKey, PostResult, SmsFilter};

/// The most messages of one look-up.
const MAX_FOUND: i64 = 100;

/// The key of header `Idempotency-Key`, with or without quotation marks.
fn idempotency_key(headers: &HeaderMap, who: &Identity) -> Result<Option<IntakeKey>, Problem> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    let text = text.strip_prefix('"').unwrap_or(text);
    let text = text.strip_suffix('"').unwrap_or(text);
    if text.is_empty() || text.len() > MAX_KEY {
        let detail = format!("invalid `Idempotency-Key`: use 1 to {MAX_KEY} visible characters");
        return Err(Problem::invalid(detail));
    }
    Ok(Some(IntakeKey {
        scope: format!("token/{}", who.name),
        key: digest(text),
    }))
}

pub(super) async fn post_message(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<Response, Problem> {
    program.0.need(Permission::Send)?;
    let header = idempotency_key(&headers, &program.0)?;
    let (campaign, mapped) = shared.intake.read(&body).await?;
    let keys = mapped.keys(campaign.id, header.as_ref());
    let segments = mapped.sms.segments;
    let new = NewMessages {
        campaign: Arc::clone(&campaign),
        posted_by: program.0.name,
        due_at: mapped.due_at,
        expires_at: mapped.expires_at,
        messages: vec![(mapped, keys)],
    };
    let results = shared.intake.commit(new).await?;
    let result = results.first().copied().unwrap_or(PostResult::NoCampaign);
    let found = |id: Option<i64>, state: &str| {
        json!({
            "id": id.map(|id| id.to_string()),
            "campaign": campaign.name,
            "state": state,
            "segments": segments,
        })
    };
    match result {
        PostResult::Queued(id) => {
            let mut response = respond(StatusCode::ACCEPTED, &found(Some(id), "queued"));
            if let Ok(location) = HeaderValue::from_str(&format!("/v1/messages/{id}")) {
                response.headers_mut().insert(header::LOCATION, location);
            }
            Ok(response)
        }
        PostResult::Suppressed => {
            let mut object = found(None, "failed");
            object["class"] = json!("suppressed");
            object["reason"] = json!("the recipient is on the suppression list");
            Ok(respond(StatusCode::ACCEPTED, &object))
        }
        PostResult::Repeated(id) => {
            let filter = SmsFilter::Id(id);
            let known = shared.store.find_sms(filter, None, 1).await?;
            let state = known.first().map_or("purged", |sms| sms.state.as_str());
            Ok(respond(StatusCode::OK, &found(Some(id), state)))
        }
        refused => Err(shared.intake.refusal(&campaign.name, refused)),
    }
}

/// A message, as far as the role may see it.
fn message_json(found: &FoundSms, campaign: Option<&String>, whole: bool) -> Value {
    json!({
        "id": found.id.to_string(),
        "campaign": campaign,
        "phone": if whole { found.phone.clone() } else { mask(&found.phone) },
        "state": found.state,
        "segments": found.segments,
        "attempts": found.attempts,
        "reference": found.reference,
        "provider": found.provider,
        "message_id": found.message_id,
        "class": found.class,
        "code": found.code,
        "reason": found.reason,
        "delivery": found.delivery,
        "created_at": found.created_at.to_string(),
        "at": found.at.to_string(),
    })
}

async fn found_json(
    shared: &ServerState,
    found: &[FoundSms],
    program: &Program,
) -> Result<Vec<Value>, Problem> {
    let store = &shared.store;
    let ids: BTreeSet<i64> = found.iter().map(|sms| sms.campaign_id).collect();
    let ids: Vec<i64> = ids.into_iter().collect();
    let names = store.campaign_names(&ids).await?;
    let own = match posted_by(program) {
        None => BTreeSet::new(),
        Some(token) => {
            let imports: BTreeSet<i64> = found.iter().filter_map(|sms| sms.import_id).collect();
            let imports: Vec<i64> = imports.into_iter().collect();
            store.imports_of_token(token, &imports).await?
        }
    };
    let sees_all = program.0.role.may(Permission::Operate);
    let is_own = |sms: &FoundSms| sms.import_id.is_some_and(|id| own.contains(&id));
    Ok(found
        .iter()
        .map(|sms| message_json(sms, names.get(&sms.campaign_id), sees_all || is_own(sms)))
        .collect())
}

pub(super) async fn get_message(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id: i64 = id
        .parse()
        .map_err(|_| Problem::not_found("a message's id is a number"))?;
    let posted_by = posted_by(&program);
    let found = shared.store.find_sms(SmsFilter::Id(id), posted_by, 1);
    let mut found = found_json(&shared, &found.await?, &program).await?;
    found
        .pop()
        .map(|message| respond(StatusCode::OK, &message))
        .ok_or_else(|| {
            Problem::not_found(match posted_by {
                None => "no message has this id, or it was purged",
                Some(_) => {
                    "no message that was posted with this token has this id, or it was purged"
                }
            })
        })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageQuery {
    phone: Option<String>,
    reference: Option<String>,
}

pub(super) async fn find_messages(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Query(query): Query<MessageQuery>,
) -> Result<Response, Problem> {
    let phone;
    let filter = match (&query.phone, &query.reference) {
        (Some(text), None) => {
            let text = text.replace(' ', "+");
            phone = Phone::parse(&text, None)
                .map_err(|error| Problem::invalid(invalid_phone(&text, &error)))?;
            SmsFilter::Phone(phone.as_str())
        }
        (None, Some(reference)) => SmsFilter::Reference(reference),
        _ => {
            return Err(Problem::invalid(
                "name what to look for: `?phone=%2B447400123456` or `?reference=…`",
            ));
        }
    };
    let posted_by = posted_by(&program);
    let found = shared.search(filter, posted_by, MAX_FOUND);
    let messages = found_json(&shared, &found.await?, &program).await?;
    Ok(respond(StatusCode::OK, &json!({ "messages": messages })))
}
