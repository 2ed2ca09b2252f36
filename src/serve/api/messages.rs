//! Posts one message, and looks messages up.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use smsq_message::phone::{Phone, mask};
use smsq_store::{FoundSms, ImportApproval, IntakeKey, Mode, PostResult, SmsFilter};
use utoipa::{IntoParams, ToSchema};

use super::posted_by;
use crate::body::WholeBody;
use crate::guard::{Path, Program, Query};
use crate::intake::{MAX_KEY, MAX_MESSAGE, NewMessages, PostedMessage, digest, invalid_phone};
use crate::problem::{Fails, Problem};
use crate::state::ServerState;
use crate::tokens::{Identity, Permission};

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
    Ok(Some(IntakeKey { scope: format!("token/{}", who.name), key: digest(text) }))
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes texts")]
enum MessageState {
    Queued,
    Sending,
    Unknown,
    Sent,
    Failed,
    Cancelled,
    Purged,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes texts")]
enum ReportedDelivery {
    Awaiting,
    Delivered,
    Undelivered,
    Expired,
    NoReport,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PostedMessage)]
struct PostedResult {
    /// Null if it was not queued
    #[schema(required)]
    id: Option<String>,
    /// Whether no phone gets any message of this database
    #[schema(value_type = bool)]
    practice: Mode,
    campaign: String,
    /// `queued` for a message that is stored now; what became of it for a repeated one
    #[schema(value_type = MessageState)]
    state: String,
    segments: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    reason: Option<&'static str>,
}

/// Queue one message
///
/// Role `send`. 202 means that the message is stored. A message without a `dedupe_key` or `Idempotency-Key` is never a
/// duplicate. The same message again under the same key, however it is written, is answered with 200, the id of the
/// first one and its present state for a day, and after that, for a `dedupe_key`, with 409; another content under that
/// key with 422.
#[utoipa::path(
    post,
    path = "/v1/messages",
    operation_id = "postMessage",
    tag = "messages",
    security(("token" = ["send", "admin"])),
    params((
        "Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255,
        description = "Any text of up to 255 bytes; kept for a day", example = "8e03978e-40d5-43dd-bc93-6894a57f9324"
    )),
    request_body(content = PostedMessage, content_type = "application/json", examples(
        ("text" = (value = json!({"phone": "+447400123456", "text": "Your table is ready"}))),
        ("template" = (value = json!({
            "phone": "+447400123456", "template": "Hi {{ name }}, your code is {{ code }}",
            "params": {"name": "Ann", "code": "4711"}, "campaign": "codes", "dedupe_key": "order-7"
        })))
    )),
    responses(
        (status = 202, description = "Queued, or `failed` where the phone is on the suppression list",
            headers(("Location" = String, description = "Where the message can be looked up")), body = PostedResult),
        (status = 200, description = "It was posted before", body = PostedResult),
        Fails::<400>, Fails::<401>, Fails::<403>, Fails::<409>, Fails::<413>, Fails::<422>, Fails::<429>, Fails::<503>
    ),
    extensions(("x-limits" = json!(format!("a message of {} KiB", MAX_MESSAGE >> 10))))
)]
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
    let mut posted = PostedResult {
        id: None,
        practice: shared.store.mode(),
        campaign: campaign.name.clone(),
        state: "queued".to_owned(),
        segments: mapped.sms.segments,
        class: None,
        reason: None,
    };
    let new = NewMessages {
        campaign,
        approval: ImportApproval::OneByOne(program.0.name.clone()),
        posted_by: program.0.name,
        due_at: mapped.due_at,
        expires_at: mapped.expires_at,
        messages: vec![(mapped, keys)],
    };
    let results = shared.intake.commit(new).await?;
    match results.first().copied().unwrap_or(PostResult::NoCampaign) {
        PostResult::Queued(id) => {
            posted.id = Some(id.to_string());
            let location = [(header::LOCATION, format!("/v1/messages/{id}"))];
            Ok((StatusCode::ACCEPTED, location, Json(posted)).into_response())
        }
        PostResult::Suppressed => {
            "failed".clone_into(&mut posted.state);
            posted.class = Some("suppressed");
            posted.reason = Some("the recipient is on the suppression list");
            Ok((StatusCode::ACCEPTED, Json(posted)).into_response())
        }
        PostResult::Repeated(id) => {
            let known = shared.store.report().find_sms(SmsFilter::Id(id), None, 1).await?;
            posted.id = Some(id.to_string());
            posted.state = match known.first() {
                Some(sms) => sms.state.clone(),
                None => "purged".to_owned(),
            };
            Ok(Json(posted).into_response())
        }
        refused => Err(shared.intake.refusal(&posted.campaign, refused)),
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
pub(super) struct FoundMessage {
    id: String,
    /// Whether no phone gets any message of this database
    #[schema(value_type = bool)]
    practice: Mode,
    #[schema(required)]
    campaign: Option<String>,
    phone: String,
    #[schema(value_type = MessageState)]
    state: String,
    segments: Option<i32>,
    attempts: i32,
    reference: Option<String>,
    provider: Option<String>,
    message_id: Option<String>,
    class: Option<String>,
    code: Option<String>,
    reason: Option<String>,
    #[schema(value_type = Option<ReportedDelivery>)]
    delivery: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// When it was sent or failed, or is due
    #[schema(format = DateTime)]
    at: String,
}

async fn found_messages(
    shared: &ServerState,
    found: Vec<FoundSms>,
    program: &Program,
) -> Result<Vec<FoundMessage>, Problem> {
    let store = &shared.store;
    let ids: BTreeSet<i64> = found.iter().map(|sms| sms.campaign_id).collect();
    let names = store.campaign_names(&ids.into_iter().collect::<Vec<_>>()).await?;
    // A program with a token of its own finds only what it posted.
    let sees_phones = program.0.may(Permission::Operate) || posted_by(program).is_some();
    Ok(found
        .into_iter()
        .map(|sms| FoundMessage {
            id: sms.id.to_string(),
            practice: store.mode(),
            campaign: names.get(&sms.campaign_id).cloned(),
            phone: if sees_phones { sms.phone } else { mask(&sms.phone) },
            state: sms.state,
            segments: sms.segments,
            attempts: sms.attempts,
            reference: sms.reference,
            provider: sms.provider,
            message_id: sms.message_id,
            class: sms.class,
            code: sms.code,
            reason: sms.reason,
            delivery: sms.delivery,
            created_at: sms.created_at.to_string(),
            at: sms.at.to_string(),
        })
        .collect())
}

/// Look one message up
///
/// Role `send` finds only what was posted with the same token.
#[utoipa::path(
    get,
    path = "/v1/messages/{id}",
    operation_id = "getMessage",
    tag = "messages",
    security(("token" = ["read", "operate", "send", "admin"])),
    params(("id" = String, Path, description = "The id of the message", example = "412")),
    responses(
        (status = 200, description = "The message", body = FoundMessage),
        Fails::<400>, Fails::<401>, Fails::<404>, Fails::<429>, Fails::<503>
    )
)]
pub(super) async fn get_message(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(id): Path<String>,
) -> Result<Json<FoundMessage>, Problem> {
    let id: i64 = id.parse().map_err(|_| Problem::not_found("a message's id is a number"))?;
    let posted_by = posted_by(&program);
    let found = shared.store.report().find_sms(SmsFilter::Id(id), posted_by, 1).await?;
    let message = found_messages(&shared, found, &program).await?.pop();
    message.map(Json).ok_or_else(|| {
        Problem::not_found(match posted_by {
            None => "no message has this id, or it was purged",
            Some(_) => "no message that was posted with this token has this id, or it was purged",
        })
    })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct MessageQuery {
    /// With its country code
    #[param(example = "+447400123456")]
    phone: Option<String>,
    reference: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct FoundMessages {
    /// Whether no phone gets any message of this database
    #[schema(value_type = bool)]
    practice: Mode,
    messages: Vec<FoundMessage>,
}

/// Look messages up by phone or reference
///
/// Reads whole tables; one search runs at a time. Phones are masked for role `read`. Role `send` finds only what was
/// posted with the same token.
#[utoipa::path(
    get,
    path = "/v1/messages",
    operation_id = "findMessages",
    tag = "messages",
    security(("token" = ["read", "operate", "send", "admin"])),
    params(MessageQuery),
    responses(
        (status = 200, description = "At most 100 of the newest", body = inline(FoundMessages)),
        Fails::<400>, Fails::<401>, Fails::<429>, Fails::<503>
    ),
    extensions(("x-limits" = json!(format!("{MAX_FOUND} messages; one search at a time"))))
)]
pub(super) async fn find_messages(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Query(query): Query<MessageQuery>,
) -> Result<Json<FoundMessages>, Problem> {
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
    let found = shared.search(filter, posted_by(&program), MAX_FOUND).await?;
    let messages = found_messages(&shared, found, &program).await?;
    Ok(Json(FoundMessages { practice: shared.store.mode(), messages }))
}
