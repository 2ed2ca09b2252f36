//! Posts many messages: a line for each, or a JSON list.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use http::{HeaderMap, StatusCode, header};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{PART_TIMEOUT, respond};
use crate::serve::guard::Program;
use crate::serve::intake::{MAX_MESSAGE, NewMessages};
use crate::serve::problem::Problem;
use crate::serve::state::ServerState;
use crate::serve::tokens::Permission;
use crate::sms::Timestamp;
use crate::store::{Campaign, PostResult};

/// The lines of a batch that are committed together.
const CHUNK: usize = 1_000;
/// The most messages of a batch that is a JSON array, and of ids and reasons in a response.
const MAX_ARRAY: usize = 1_000;
const MAX_LISTED: usize = 10_000;

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
        let (campaign, message) = match self.shared.intake.read(json).await {
            Ok(read) => read,
            Err(problem)
                if [StatusCode::BAD_REQUEST, StatusCode::CONFLICT].contains(&problem.status) =>
            {
                self.summary.reject(line, problem.detail);
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
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

    async fn commit(&mut self) -> Result<(), Problem> {
        self.count = 0;
        self.places.clear();
        let pending = std::mem::take(&mut self.pending);
        let lines = std::mem::take(&mut self.pending_lines);
        let intake = &self.shared.intake;
        let commits = pending.into_iter().map(async |new| {
            let campaign = Arc::clone(&new.campaign);
            (campaign, intake.commit(new).await)
        });
        let committed = join_all(commits).await;
        let mut failed = None;
        for ((campaign, committed), lines) in committed.into_iter().zip(lines) {
            match committed {
                Ok(results) => {
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
                let problem = self.shared.intake.refusal(&campaign.name, result);
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

pub(super) async fn post_batch(
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
async fn next_part(stream: &mut BodyDataStream) -> Result<Option<Bytes>, Problem> {
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

/// The messages of a JSON array, each as it was written.
fn array(json: &[u8]) -> Result<Vec<Box<RawValue>>, String> {
    serde_json::from_slice(json).map_err(|error| {
        if error.is_data() {
            "invalid list of messages: it is not a JSON array".to_owned()
        } else {
            let (line, column) = (error.line(), error.column());
            format!("invalid list of messages: it is not JSON (line {line}, column {column})")
        }
    })
}
