//! The endpoints under `/v1`, which `openapi.json` describes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::multipart::{MultipartError, MultipartRejection};
use axum::extract::{Multipart, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, patch, post};
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::message::{
    MAX_KEY, MAX_MESSAGE, MappedMessage, PostedMessage, array, digest, invalid_phone,
};
use super::uploads::{ImportField, UploadField, UploadRequest};
use super::writer::NewMessages;
use crate::operations::{
    Actor, CampaignAction, OperationError, Refused, change_settings, change_state, limit,
};
use crate::phone::{Phone, mask};
use crate::report::CampaignSummary;
use crate::serve::ServerState;
use crate::serve::downloads::{rejected_rows, report_csv};
use crate::serve::guard::{Path, Program, Query, WholeBody};
use crate::serve::problem::{Problem, unknown_campaign};
use crate::serve::tokens::{Identity, Permission};
use crate::sms::Timestamp;
use crate::store::{
    Campaign, CampaignChange, CampaignStatus, FoundSms, IntakeKey, PostResult, SmsFilter,
    WindowChange,
};

/// The API's description.
const OPENAPI: &str = include_str!("../../../templates/openapi.json");
/// The lines of a batch that are committed together.
const CHUNK: usize = 1_000;
/// The most messages of a batch that is a JSON array, and of ids and reasons in a response.
const MAX_ARRAY: usize = 1_000;
const MAX_LISTED: usize = 10_000;
/// How long the next part of a body may take.
const PART_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest file that can be uploaded, in bytes.
const MAX_FILE: u64 = 4 << 30;
/// After how many bytes of a file the room on the disk is looked at again.
const ROOM_EVERY: u64 = 16 << 20;
/// The most bytes of the other fields of an upload.
const MAX_FIELD: usize = 64 << 10;
/// The most messages of one look-up.
const MAX_FOUND: i64 = 100;

/// A method and a path, as the description has them, and the handler.
type Endpoint = (&'static str, &'static str, MethodRouter<Arc<ServerState>>);

fn endpoints() -> Vec<Endpoint> {
    vec![
        ("get", "/openapi.json", get(openapi)),
        ("post", "/v1/messages", post(post_message)),
        ("get", "/v1/messages", get(find_messages)),
        ("get", "/v1/messages/{id}", get(get_message)),
        ("get", "/v1/campaigns", get(get_campaigns)),
        ("get", "/v1/campaigns/{name}", get(get_campaign)),
        ("patch", "/v1/campaigns/{name}", patch(change_campaign)),
        ("get", "/v1/campaigns/{name}/report.csv", get(get_report)),
        ("get", "/v1/imports/{id}", get(get_import)),
        ("get", "/v1/imports/{id}/rejects.csv", get(get_rejects)),
    ]
}

/// Their bodies are read bit by bit, and have limits of their own.
fn unlimited_endpoints() -> Vec<Endpoint> {
    vec![
        ("post", "/v1/messages/batch", post(post_batch)),
        ("post", "/v1/imports", post(post_import)),
    ]
}

fn router(endpoints: Vec<Endpoint>) -> Router<Arc<ServerState>> {
    endpoints
        .into_iter()
        .fold(Router::new(), |router, (_, path, handler)| {
            router.route(path, handler)
        })
}

pub(in crate::serve) fn routes() -> Router<Arc<ServerState>> {
    router(endpoints())
}

pub(in crate::serve) fn unlimited_routes() -> Router<Arc<ServerState>> {
    router(unlimited_endpoints()).layer(axum::extract::DefaultBodyLimit::disable())
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

async fn post_message(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<Response, Problem> {
    program.0.need(Permission::Send)?;
    let header = idempotency_key(&headers, &program.0)?;
    let intake = &shared.intake;
    let posted = PostedMessage::parse(&body).map_err(Problem::invalid)?;
    let mapped = intake.mapper.map(&posted).map_err(Problem::invalid)?;
    let campaign = intake
        .campaigns
        .open(&posted.campaign, posted.from.as_deref())
        .await?;
    let keys = mapped.keys(campaign.id, header.as_ref());
    let segments = mapped.sms.segments;
    let new = NewMessages {
        campaign: Arc::clone(&campaign),
        posted_by: program.0.name,
        due_at: mapped.due_at,
        expires_at: mapped.expires_at,
        messages: vec![(mapped, keys)],
    };
    let committed = intake.writer.commit(new).await;
    let results = committed.ok_or_else(Problem::stopping)??;
    shared.metrics.count_posted(&results);
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
            let state = known.first().map_or("purged", |sms| sms.state);
            Ok(respond(StatusCode::OK, &found(Some(id), state)))
        }
        refused => Err(refusal(&shared, &campaign, refused)),
    }
}

/// Why a message was not queued.
fn refusal(shared: &ServerState, campaign: &Campaign, result: PostResult) -> Problem {
    let name = &campaign.name;
    match result {
        PostResult::Cancelled => OperationError::from(Refused::takes_no_messages(name)).into(),
        PostResult::NoCampaign => {
            shared.intake.campaigns.forget(name);
            Problem::unavailable(format!(
                "campaign `{name}` was removed just now; nothing was stored: post the message again"
            ))
        }
        PostResult::Expired => {
            Problem::invalid("invalid `expires_at`: it is in the past, so nothing would be sent")
        }
        PostResult::Known => Problem::new(
            StatusCode::CONFLICT,
            format!(
                "duplicate `dedupe_key`: campaign `{name}` has a message with this key, which was imported or \
                 posted more than a day ago; nothing was queued"
            ),
        ),
        PostResult::Conflict
        | PostResult::Queued(_)
        | PostResult::Repeated(_)
        | PostResult::Suppressed => Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "its `Idempotency-Key` or `dedupe_key` belongs to a message with another content",
        ),
    }
}

/// Collects the messages of a batch, commits them in chunks, and counts what became of them.
struct BatchReader<'a> {
    shared: &'a ServerState,
    /// The name of the token.
    posted_by: &'a str,
    line: u64,
    /// Lines and messages that are not committed yet, by campaign and schedule.
    pending: Vec<NewMessages>,
    pending_lines: Vec<Vec<u64>>,
    places: HashMap<(i64, Option<Timestamp>, Option<Timestamp>), usize>,
    count: usize,
    summary: BatchSummary,
}

#[derive(Default)]
struct BatchSummary {
    lines: u64,
    accepted: u64,
    duplicates: u64,
    suppressed: u64,
    rejected: u64,
    /// Of the first rejected lines.
    reasons: Vec<(u64, String)>,
    /// The line and the id of each message, while they are few.
    ids: Vec<(u64, Option<i64>)>,
}

impl BatchSummary {
    fn reject(&mut self, line: u64, reason: String) {
        self.rejected += 1;
        if self.reasons.len() < MAX_LISTED {
            self.reasons.push((line, reason));
        }
        self.note_id(line, None);
    }

    fn note_id(&mut self, line: u64, id: Option<i64>) {
        // One more than is listed, so that it is known that there are more.
        if self.ids.len() <= MAX_LISTED {
            self.ids.push((line, id));
        }
    }

    fn json(mut self) -> Value {
        self.reasons.sort_by_key(|(line, _)| *line);
        self.ids.sort_by_key(|(line, _)| *line);
        let reasons = self.reasons.into_iter();
        let reasons = reasons.map(|(line, reason)| json!({ "line": line, "reason": reason }));
        let ids: Vec<Option<String>> = self
            .ids
            .iter()
            .map(|(_, id)| id.map(|id| id.to_string()))
            .collect();
        json!({
            "lines": self.lines,
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "suppressed": self.suppressed,
            "rejected_count": self.rejected,
            "rejected": reasons.collect::<Vec<_>>(),
            "ids": (ids.len() <= MAX_LISTED).then_some(ids),
        })
    }
}

impl<'a> BatchReader<'a> {
    fn new(shared: &'a ServerState, posted_by: &'a str) -> Self {
        Self {
            shared,
            posted_by,
            line: 0,
            pending: Vec::new(),
            pending_lines: Vec::new(),
            places: HashMap::new(),
            count: 0,
            summary: BatchSummary::default(),
        }
    }

    /// Adds a line. Fails where the whole batch must stop; what was committed before stays.
    async fn add(&mut self, json: &[u8]) -> Result<(), Problem> {
        self.line += 1;
        let json = json.trim_ascii();
        if json.is_empty() {
            self.summary.note_id(self.line, None);
            return Ok(());
        }
        self.summary.lines += 1;
        let line = self.line;
        let mapped = match self.map(json).await {
            Ok(mapped) => mapped,
            Err(problem)
                if [StatusCode::BAD_REQUEST, StatusCode::CONFLICT].contains(&problem.status) =>
            {
                self.summary.reject(line, problem.detail);
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
        let (campaign, message) = mapped;
        let key = (campaign.id, message.due_at, message.expires_at);
        let index = *self.places.entry(key).or_insert_with(|| {
            self.pending.push(NewMessages {
                campaign,
                posted_by: self.posted_by.to_owned(),
                due_at: message.due_at,
                expires_at: message.expires_at,
                messages: Vec::new(),
            });
            self.pending_lines.push(Vec::new());
            self.pending.len() - 1
        });
        let keys = message.keys(key.0, None);
        self.pending[index].messages.push((message, keys));
        self.pending_lines[index].push(line);
        self.count += 1;
        if self.count >= CHUNK {
            self.commit().await?;
        }
        Ok(())
    }

    async fn map(&self, json: &[u8]) -> Result<(Arc<Campaign>, MappedMessage), Problem> {
        let intake = &self.shared.intake;
        let posted = PostedMessage::parse(json).map_err(Problem::invalid)?;
        let mapped = intake.mapper.map(&posted).map_err(Problem::invalid)?;
        let campaign = intake
            .campaigns
            .open(&posted.campaign, posted.from.as_deref())
            .await?;
        Ok((campaign, mapped))
    }

    async fn commit(&mut self) -> Result<(), Problem> {
        self.count = 0;
        self.places.clear();
        let pending = std::mem::take(&mut self.pending);
        let lines = std::mem::take(&mut self.pending_lines);
        let writer = &self.shared.intake.writer;
        let commits = pending.into_iter().map(async |new| {
            let campaign = Arc::clone(&new.campaign);
            (campaign, writer.commit(new).await)
        });
        let committed = futures_util::future::join_all(commits).await;
        let mut failed = None;
        for ((campaign, committed), lines) in committed.into_iter().zip(lines) {
            let committed = committed.ok_or_else(Problem::stopping);
            match committed.and_then(|done| Ok(done?)) {
                Ok(results) => {
                    self.shared.metrics.count_posted(&results);
                    for (line, result) in lines.into_iter().zip(results) {
                        self.count_result(line, &campaign, result);
                    }
                }
                Err(problem) => failed = Some(problem),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn count_result(&mut self, line: u64, campaign: &Campaign, result: PostResult) {
        let summary = &mut self.summary;
        match result {
            PostResult::Queued(id) => {
                summary.accepted += 1;
                summary.note_id(line, Some(id));
            }
            PostResult::Repeated(id) => {
                summary.duplicates += 1;
                summary.note_id(line, Some(id));
            }
            PostResult::Known => {
                summary.duplicates += 1;
                summary.note_id(line, None);
            }
            PostResult::Suppressed => {
                summary.suppressed += 1;
                summary.note_id(line, None);
            }
            PostResult::Conflict
            | PostResult::Expired
            | PostResult::Cancelled
            | PostResult::NoCampaign => {
                let problem = refusal(self.shared, campaign, result);
                summary.reject(line, problem.detail);
            }
        }
    }

    /// The answer after the last line, or after a problem that stopped the batch.
    async fn finish(mut self, read: Result<(), Problem>) -> Response {
        let done = match read {
            Ok(()) => self.commit().await,
            Err(problem) => {
                // What was read before is still stored, and counted.
                let _ = self.commit().await;
                Err(problem)
            }
        };
        match done {
            Ok(()) => respond(StatusCode::OK, &self.summary.json()),
            Err(problem) if self.summary.accepted + self.summary.duplicates == 0 => {
                problem.into_response()
            }
            Err(problem) => {
                let status = problem.status;
                let mut object = self.summary.json();
                object["title"] = json!(status.canonical_reason());
                object["status"] = json!(status.as_u16());
                object["detail"] = json!(format!(
                    "{}; the messages with an id were stored before",
                    problem.detail
                ));
                let mut response = problem.into_response();
                *response.body_mut() = Body::from(object.to_string());
                response
            }
        }
    }
}

async fn post_batch(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    program.0.need(Permission::Send)?;
    if headers.contains_key("idempotency-key") {
        return Err(Problem::invalid(
            "a batch cannot have an `Idempotency-Key`: give each message a `dedupe_key`",
        ));
    }
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let mut reader = BatchReader::new(&shared, &program.0.name);
    let read = match kind {
        "application/x-ndjson" | "application/jsonl" | "application/ndjson" => {
            read_lines(body, &mut reader).await
        }
        "application/json" => read_array(body, &mut reader).await,
        _ => {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "use `Content-Type: application/x-ndjson` with a message in each line, or \
                 `application/json` with a list of up to 1,000 messages",
            ));
        }
    };
    Ok(reader.finish(read).await)
}

/// The next part of a body; `None` at its end.
async fn next_part(stream: &mut axum::body::BodyDataStream) -> Result<Option<Bytes>, Problem> {
    match tokio::time::timeout(PART_TIMEOUT, stream.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(part))) => Ok(Some(part)),
        Ok(Some(Err(_))) => Err(Problem::invalid("the body ended early")),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )),
    }
}

async fn read_lines(body: Body, reader: &mut BatchReader<'_>) -> Result<(), Problem> {
    let mut stream = body.into_data_stream();
    let mut line: Vec<u8> = Vec::new();
    while let Some(mut part) = next_part(&mut stream).await? {
        while let Some(end) = part.iter().position(|byte| *byte == b'\n') {
            let rest = part.split_to(end + 1);
            let rest = &rest[..end];
            if line.is_empty() {
                reader.add(rest).await?;
            } else {
                push_bounded(&mut line, rest);
                reader.add(&line).await?;
                line.clear();
            }
        }
        push_bounded(&mut line, &part);
    }
    if !line.is_empty() {
        reader.add(&line).await?;
    }
    Ok(())
}

/// Adds to a line, of which one byte more than the limit is kept.
fn push_bounded(line: &mut Vec<u8>, more: &[u8]) {
    let room = (MAX_MESSAGE + 1).saturating_sub(line.len());
    line.extend_from_slice(&more[..more.len().min(room)]);
}

async fn read_array(body: Body, reader: &mut BatchReader<'_>) -> Result<(), Problem> {
    const MAX: usize = 16 << 20;
    let too_large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "a list may have up to 1,000 messages: send more as `application/x-ndjson`",
        )
    };
    let mut stream = body.into_data_stream();
    let mut text: Vec<u8> = Vec::new();
    while let Some(part) = next_part(&mut stream).await? {
        if text.len() + part.len() > MAX {
            return Err(too_large());
        }
        text.extend_from_slice(&part);
    }
    let messages = array(&text).map_err(Problem::invalid)?;
    if messages.len() > MAX_ARRAY {
        return Err(too_large());
    }
    for message in messages {
        reader.add(message.get().as_bytes()).await?;
    }
    Ok(())
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

/// Which messages a token may read: with role `send` those that were posted with it. Older ones, of which that is not
/// known, are read without their phones.
fn posted_by(program: &Program) -> Option<&str> {
    let is_viewer = program.0.role.may(Permission::View);
    (!is_viewer).then_some(program.0.name.as_str())
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

async fn get_message(
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
struct MessageQuery {
    phone: Option<String>,
    reference: Option<String>,
}

async fn find_messages(
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
    let found = shared
        .page
        .search(&shared.store, filter, posted_by, MAX_FOUND);
    let messages = found_json(&shared, &found.await?, &program).await?;
    Ok(respond(StatusCode::OK, &json!({ "messages": messages })))
}

async fn get_campaigns(
    State(shared): State<Arc<ServerState>>,
    program: Program,
) -> Result<Response, Problem> {
    program.0.need(Permission::View)?;
    let snapshot = shared.page.counted().await?;
    let campaigns = &snapshot.campaigns;
    Ok(respond(
        StatusCode::OK,
        &json!({ "counted_at": snapshot.counted_at.to_string(), "campaigns": campaigns }),
    ))
}

async fn campaign_json(shared: &ServerState, name: &str) -> Result<Value, Problem> {
    let campaign = shared.store.campaign(name).await?;
    let campaign = campaign.ok_or_else(|| unknown_campaign(name))?;
    let mut object = json!(CampaignSummary::of(&shared.store, &campaign).await?);
    object["rate"] = json!(campaign.rate.to_string());
    object["priority"] = json!(campaign.priority);
    object["provider"] = json!(campaign.provider);
    object["from"] = json!(campaign.sender);
    object["window"] = json!(campaign.window.as_ref().map(ToString::to_string));
    Ok(object)
}

async fn get_campaign(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    program.0.need(Permission::View)?;
    let object = campaign_json(&shared, &name).await?;
    Ok(respond(StatusCode::OK, &object))
}

/// Changes of a campaign; what is missing stays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CampaignPatch {
    rate: Option<String>,
    priority: Option<i32>,
    paused: Option<bool>,
    /// `09:00-20:00 mon-fri Europe/Berlin`; empty: at any time.
    window: Option<String>,
}

impl CampaignPatch {
    /// The settings that it changes.
    fn change(&self) -> Result<CampaignChange, Problem> {
        let invalid = |name: &'static str| {
            move |problem: String| Problem::invalid(format!("invalid `{name}`: {problem}"))
        };
        // An empty text was `none` in earlier versions.
        let rate = self.rate.as_deref().map(|rate| match rate.trim() {
            "" => limit("none"),
            rate => limit(rate),
        });
        Ok(CampaignChange {
            rate: rate.transpose().map_err(invalid("rate"))?,
            priority: self.priority,
            window: match self.window.as_deref() {
                None => WindowChange::Keep,
                Some("") => WindowChange::Lift,
                Some(window) => WindowChange::Set(window.parse().map_err(invalid("window"))?),
            },
            ..CampaignChange::default()
        })
    }

    /// The change of the state that it asks for.
    fn action(&self) -> Option<CampaignAction> {
        self.paused.map(|paused| {
            if paused {
                CampaignAction::Pause
            } else {
                CampaignAction::Resume
            }
        })
    }
}

async fn change_campaign(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(name): Path<String>,
    WholeBody(body): WholeBody,
) -> Result<Response, Problem> {
    program.0.need(Permission::Operate)?;
    let mut json = serde_json::Deserializer::from_slice(&body);
    let patch: CampaignPatch = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (field, error) = (error.path().to_string(), error.into_inner());
        let (line, column) = (error.line(), error.column());
        Problem::invalid(if !error.is_data() {
            format!("invalid change: it is not JSON (line {line}, column {column})")
        } else if field == "." {
            error.to_string()
        } else {
            format!("invalid `{field}`: {error}")
        })
    })?;
    let read = async || {
        let campaign = shared.store.campaign(&name).await?;
        campaign.ok_or_else(|| unknown_campaign(&name))
    };
    let mut campaign = read().await?;
    let change = patch.change()?;
    let actor = Actor::of_token(&program.0.name);
    // The state first: a cancelled campaign takes settings when it is resumed.
    if let Some(action) = patch.action() {
        change_state(&shared.store, &campaign, action, &actor).await?;
        campaign = read().await?;
    }
    change_settings(&shared.store, &campaign, &change, &actor).await?;
    let object = campaign_json(&shared, &name).await?;
    Ok(respond(StatusCode::OK, &object))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportQuery {
    list: Option<String>,
}

async fn get_report(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(name): Path<String>,
    Query(query): Query<ReportQuery>,
) -> Result<Response, Problem> {
    program.0.need(Permission::View)?;
    let list = query.list.as_deref().unwrap_or("failed");
    report_csv(&shared, &program.0, &name, list).await
}

/// The next part of a form, within its time.
async fn in_time<T>(part: impl Future<Output = Result<T, MultipartError>>) -> Result<T, Problem> {
    let part = tokio::time::timeout(PART_TIMEOUT, part).await;
    let part = part.map_err(|_| {
        let detail = "the file did not arrive in time";
        Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
    })?;
    part.map_err(|error| Problem::new(error.status(), error.body_text()))
}

async fn post_import(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    multipart: Result<Multipart, MultipartRejection>,
) -> Result<Response, Problem> {
    let mut multipart = multipart?;
    program.0.need(Permission::Send)?;
    let failed = |error: std::io::Error| {
        tracing::warn!(%error, "an uploaded file cannot be kept");
        Problem::unavailable("the file cannot be kept on the server")
    };
    let uploads = &shared.intake.uploads;
    uploads.check_room()?;
    let mut fields = Vec::new();
    let mut file = None;
    while let Some(mut field) = in_time(multipart.next_field()).await? {
        let name = field.name().unwrap_or_default().to_owned();
        if name != "file" {
            check_field(&name, &program)?;
            let mut value = Vec::new();
            while let Some(part) = in_time(field.chunk()).await? {
                if value.len() + part.len() > MAX_FIELD {
                    let detail = format!("invalid `{name}`: it is longer than 64 KiB");
                    return Err(Problem::invalid(detail));
                }
                value.extend_from_slice(&part);
            }
            let value = String::from_utf8(value);
            let value = value
                .map_err(|_| Problem::invalid(format!("invalid `{name}`: it is not UTF-8")))?;
            fields.push(ImportField { name, value });
            continue;
        }
        let name = field.file_name().unwrap_or("list.csv");
        let uploaded = uploads.create(name).map_err(failed)?;
        let mut output = tokio::fs::File::create(&uploaded.path)
            .await
            .map_err(failed)?;
        let mut size = 0;
        while let Some(part) = in_time(field.chunk()).await? {
            size += part.len() as u64;
            if size > MAX_FILE {
                return Err(Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the file is larger than 4 GiB",
                ));
            }
            if size / ROOM_EVERY != (size - part.len() as u64) / ROOM_EVERY {
                uploads.check_room()?;
            }
            output.write_all(&part).await.map_err(failed)?;
        }
        output.flush().await.map_err(failed)?;
        file = Some(uploaded);
    }
    let Some(file) = file else {
        return Err(Problem::invalid("missing field `file`: the list to import"));
    };
    let request = UploadRequest {
        fields,
        posted_by: program.0.name.clone(),
        may_change: program.0.role.may(Permission::Operate),
    };
    uploads.check(&request).map_err(Problem::invalid)?;
    if let Some(field) = request.fields.iter().find(|field| field.name == "campaign")
        && let Some(campaign) = shared.intake.campaigns.find(field.value.trim()).await?
        && campaign.state == CampaignStatus::Cancelled
    {
        return Err(refusal(&shared, &campaign, PostResult::Cancelled));
    }
    let campaign = request.fields.iter().find(|field| field.name == "campaign");
    let campaign = campaign.map(|field| field.value.clone());
    let id = uploads.accept(file, request).await.map_err(failed)?;
    let detail = format!("uploaded a list as `{id}`");
    // The file is taken, whether or not that can be recorded.
    let recorded = shared
        .store
        .record(&program.0.name, "upload", campaign.as_deref(), &detail);
    if let Err(error) = recorded.await {
        tracing::warn!(%error, who = program.0.name, id, "an upload was not recorded");
    }
    let mut response = respond(StatusCode::ACCEPTED, &json!({ "import": id }));
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/imports/{id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Fails if the field is unknown, or if the role may not use it.
fn check_field(name: &str, program: &Program) -> Result<(), Problem> {
    match UploadField::named(name) {
        Some(UploadField::Change) if !program.0.role.may(Permission::Operate) => {
            let needed = [Permission::Send, Permission::Operate];
            let problem = Problem::forbidden(&needed, program.0.role);
            let detail = format!("field `{name}`: {}", problem.detail);
            Err(Problem::new(problem.status, detail))
        }
        Some(UploadField::List | UploadField::Change) => Ok(()),
        None => Err(Problem::invalid(format!(
            "unknown field `{}`: an upload has `file` and {}",
            name.escape_debug(),
            UploadField::names()
        ))),
    }
}

fn unknown_import() -> Problem {
    Problem::not_found("unknown import: the host that took the file knows the last 100, for a week")
}

async fn get_import(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    program.0.need(Permission::Send)?;
    let state = shared.intake.uploads.state(&id, posted_by(&program));
    let state = state.ok_or_else(unknown_import)?;
    Ok(respond(StatusCode::OK, &state))
}

async fn get_rejects(
    State(shared): State<Arc<ServerState>>,
    program: Program,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    program.0.need(Permission::Send)?;
    let state = shared.intake.uploads.state(&id, posted_by(&program));
    state.ok_or_else(unknown_import)?;
    rejected_rows(&shared, &program.0, &id).await
}

#[cfg(test)]
mod tests {
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
